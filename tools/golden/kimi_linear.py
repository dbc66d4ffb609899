# SPDX-License-Identifier: Apache-2.0
"""Kimi Linear (Kimi Team, 2025, arXiv 2510.26692), which transformers does not have: from the paper's equations, with
the parameters' names of the published model, which llama.cpp's converter reads.

A layer of Kimi delta attention, for each head, with S [keys][values], all of a token t:

    q, k, v   SiLU of causal convolutions of the projected input; q and k of length 1, q / sqrt(dimensions)
    a         exp(-exp(A) softplus(f_b f_a x + dt)), a decay for each dimension of a key
    S'        diag(a) S; S = S' + beta k (v - S'^T k)^T; beta: sigmoid of a projection
    output    o_proj(rms_norm(S^T q) * sigmoid(g_b g_a x))

The other layers are latent attention without positions.
"""
import torch
import torch.nn.functional as F
import transformers
from torch import nn
from transformers.modeling_outputs import CausalLMOutput


class KimiLinearConfig(transformers.PretrainedConfig):
    model_type = "kimi_linear"


class Norm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def linear(n_in, n_out):
    return nn.Linear(n_in, n_out, bias=False)


def unit(x):
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)


class Convolution(nn.Module):
    def __init__(self, channels, taps):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels, 1, taps))

    def forward(self, x):  # [tokens][channels]
        taps = self.weight.shape[-1]
        return F.silu(F.conv1d(F.pad(x.T[None], (taps - 1, 0)), self.weight, groups=x.shape[-1])[0].T)


class DeltaAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n, self.dim = c.linear_attn_config["num_heads"], c.linear_attn_config["head_dim"]
        width, taps = self.n * self.dim, c.linear_attn_config["short_conv_kernel_size"]
        for part in "qkv":
            setattr(self, f"{part}_proj", linear(c.hidden_size, width))
            setattr(self, f"{part}_conv1d", Convolution(width, taps))
        self.A_log = nn.Parameter(torch.zeros(1, 1, self.n, 1))
        self.dt_bias = nn.Parameter(torch.zeros(width))
        for part in "fg":
            setattr(self, f"{part}_a_proj", linear(c.hidden_size, self.dim))
            setattr(self, f"{part}_b_proj", linear(self.dim, width))
        self.b_proj, self.o_proj = linear(c.hidden_size, self.n), linear(width, c.hidden_size)
        self.o_norm = Norm(self.dim, c.rms_norm_eps)

    def heads(self, x):
        return x.view(-1, self.n, self.dim)

    def forward(self, x):
        q, k, v = (self.heads(getattr(self, f"{p}_conv1d")(getattr(self, f"{p}_proj")(x))) for p in "qkv")
        q, k = unit(q) / self.dim ** 0.5, unit(k)
        rate = F.softplus(self.f_b_proj(self.f_a_proj(x)) + self.dt_bias)
        decay = torch.exp(-self.A_log[0].exp() * self.heads(rate))
        beta = torch.sigmoid(self.b_proj(x))
        state, out = torch.zeros(self.n, self.dim, self.dim), []
        for t in range(len(x)):
            state = decay[t].unsqueeze(-1) * state
            known = (state * k[t].unsqueeze(-1)).sum(1)
            state = state + k[t].unsqueeze(-1) * (beta[t].unsqueeze(-1) * (v[t] - known)).unsqueeze(1)
            out.append((state * q[t].unsqueeze(-1)).sum(1))
        gate = torch.sigmoid(self.heads(self.g_b_proj(self.g_a_proj(x))))
        return self.o_proj((self.o_norm(torch.stack(out)) * gate).flatten(1))


class LatentAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n, self.plain, self.value, self.latent = c.num_attention_heads, c.qk_nope_head_dim, c.v_head_dim, c.kv_lora_rank
        self.key = self.plain + c.qk_rope_head_dim
        self.q_proj = linear(c.hidden_size, self.n * self.key)
        self.kv_a_proj_with_mqa = linear(c.hidden_size, self.latent + c.qk_rope_head_dim)
        self.kv_a_layernorm = Norm(self.latent, c.rms_norm_eps)
        self.kv_b_proj = linear(self.latent, self.n * (self.plain + self.value))
        self.o_proj = linear(self.n * self.value, c.hidden_size)

    def forward(self, x):
        q = self.q_proj(x).view(-1, self.n, self.key)
        latent, shared = self.kv_a_proj_with_mqa(x).split([self.latent, self.key - self.plain], -1)
        k, v = self.kv_b_proj(self.kv_a_layernorm(latent)).view(-1, self.n, self.plain + self.value).split([self.plain, self.value], -1)
        k = torch.cat([k, shared.unsqueeze(1).expand(-1, self.n, -1)], -1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / self.key ** 0.5
        scores = scores.masked_fill(torch.ones(len(x), len(x), dtype=torch.bool).triu(1), float("-inf"))
        return self.o_proj(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1))


class Mlp(nn.Module):
    def __init__(self, width, ff, names=("gate_proj", "up_proj", "down_proj")):
        super().__init__()
        self.names = names
        for name, shape in zip(names, ((width, ff), (width, ff), (ff, width))):
            setattr(self, name, linear(*shape))

    def forward(self, x):
        gate, up, down = (getattr(self, name) for name in self.names)
        return down(F.silu(gate(x)) * up(x))


class Experts(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        self.gate = linear(c.hidden_size, c.num_experts)
        self.gate.register_buffer("e_score_correction_bias", torch.zeros(c.num_experts))
        self.experts = nn.ModuleList(Mlp(c.hidden_size, c.moe_intermediate_size, ("w1", "w3", "w2")) for _ in range(c.num_experts))
        self.shared_experts = Mlp(c.hidden_size, c.moe_intermediate_size * c.num_shared_experts)

    def forward(self, x):
        scores = torch.sigmoid(self.gate(x))
        chosen = (scores + self.gate.e_score_correction_bias).topk(self.config.num_experts_per_token, -1).indices
        weights = scores.gather(1, chosen)
        weights = weights / weights.sum(-1, keepdim=True) * self.config.routed_scaling_factor
        routed = [sum(w * self.experts[e](row) for e, w in zip(some, of)) for row, some, of in zip(x, chosen.tolist(), weights)]
        return torch.stack(routed) + self.shared_experts(x)


class Layer(nn.Module):
    def __init__(self, c, i):
        super().__init__()
        attends = i + 1 in c.linear_attn_config["full_attn_layers"]
        self.input_layernorm, self.post_attention_layernorm = Norm(c.hidden_size, c.rms_norm_eps), Norm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = LatentAttention(c) if attends else DeltaAttention(c)
        self.has_experts = i >= c.first_k_dense_replace
        if self.has_experts:
            self.block_sparse_moe = Experts(c)
        else:
            self.mlp = Mlp(c.hidden_size, c.intermediate_size)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + (self.block_sparse_moe if self.has_experts else self.mlp)(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c.num_hidden_layers))
        self.norm = Norm(c.hidden_size, c.rms_norm_eps)


class KimiLinearForCausalLM(transformers.PreTrainedModel):
    config_class = KimiLinearConfig

    def __init__(self, config):
        super().__init__(config)
        self.model, self.lm_head = Model(config), linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def _init_weights(self, module):
        pass  # make.py draws them

    def forward(self, input_ids, **_):
        x = self.model.embed_tokens(input_ids[0])
        for layer in self.model.layers:
            x = layer(x)
        return CausalLMOutput(logits=self.lm_head(self.model.norm(x)).unsqueeze(0))


transformers.AutoConfig.register("kimi_linear", KimiLinearConfig)
transformers.AutoModelForCausalLM.register(KimiLinearConfig, KimiLinearForCausalLM)
