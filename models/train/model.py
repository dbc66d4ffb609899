# SPDX-License-Identifier: Apache-2.0
"""The models that are trained here: a Llama, and a hybrid of Mamba2 and attention layers (llama.cpp's granitehybrid).

Both are a list of layers; a layer mixes tokens (`mix`), projects the result (`o`), and has a feed-forward part. Attention is plain, full and
causal. The hybrid's attention has no positions, as Granite 4's: its Mamba2 layers know the order of tokens.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

LLAMA = {"kind": "llama", "d": 192, "layers": 4, "heads": 6, "ff": 512, "vocab": 2048, "context": 2048, "eps": 1e-5, "theta": 200000.0}
# m: Mamba2, a: attention. ssm_heads heads of ssm_dim channels, each with a state of ssm_dim x state.
HYBRID = {"kind": "hybrid", "d": 128, "layers": 4, "mixers": "mama", "heads": 4, "ff": 320, "vocab": 2048, "context": 2048, "eps": 1e-5,
          "theta": 10000.0, "ssm_heads": 8, "ssm_dim": 32, "state": 32, "kernel": 4}
BLOCK = 192  # queries of one attention product; its keys are those up to the block's last query
CHUNK = 64   # tokens of a Mamba2 layer that are computed as products of matrices; a state passes from chunk to chunk


class Norm(nn.Module):
    def __init__(self, d, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Layer(nn.Module):
    """mix(h, turn, mask) of a subclass: [B, T, d] -> [B, T, n_in of o]."""

    def __init__(self, s):
        super().__init__()
        d, ff = s["d"], s["ff"]
        self.attn_norm, self.ffn_norm = Norm(d, s["eps"]), Norm(d, s["eps"])
        self.gate, self.up, self.down = nn.Linear(d, ff, bias=False), nn.Linear(d, ff, bias=False), nn.Linear(ff, d, bias=False)

    def forward(self, x, turn, mask, wanted=None):
        """x: [B, T, d]. turn: [B, T, 1, 1, D / 2], complex: rotary angles; None: no positions. mask: [1, T, T]. wanted: indices into B * T; only
        their rows, [n, d], come out (all that the last layer has to do)."""
        a = self.mix(self.attn_norm(x), turn, mask)
        if wanted is not None:
            x, a = x.flatten(0, 1)[wanted], a.flatten(0, 1)[wanted]
        x = x + self.o(a)
        gate, up = F.linear(self.ffn_norm(x), torch.cat([self.gate.weight, self.up.weight])).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Attention(Layer):
    def __init__(self, s):
        super().__init__(s)
        self.heads = s["heads"]
        self.q, self.k, self.v, self.o = (nn.Linear(s["d"], s["d"], bias=False) for _ in range(4))

    def mix(self, h, turn, mask):
        b, t, d = h.shape
        n = d // self.heads
        h = F.linear(h, torch.cat([self.q.weight, self.k.weight, self.v.weight])).view(b, t, 3, self.heads, n)
        qk = h[:, :, :2]
        if turn is not None:
            pairs = torch.view_as_complex(qk.reshape(b, t, 2, self.heads, n // 2, 2))  # adjacent, as GGUF's llama has them
            qk = torch.view_as_real(pairs * turn).reshape(b, t, 2, self.heads, n)
        q, k, v = (z.transpose(1, 2).reshape(b * self.heads, t, n) for z in (qk[:, :, 0], qk[:, :, 1], h[:, :, 2]))
        a = torch.cat([torch.bmm(torch.baddbmm(mask[:, i:i + BLOCK, :i + BLOCK], q[:, i:i + BLOCK], k[:, :i + BLOCK].transpose(1, 2),
                                               alpha=n ** -0.5).softmax(-1), v[:, :i + BLOCK]) for i in range(0, t, BLOCK)], 1)
        return a.view(b, self.heads, t, n).transpose(1, 2).reshape(b, t, d)


class Mamba2(Layer):
    """One group: all heads have the same B and C. Head h: S_t = exp(dt_t a) S_(t-1) + dt_t x_t B_t', y_t = S_t C_t + d x_t (Dao and Gu, 2024)."""

    def __init__(self, s):
        super().__init__(s)
        self.n, self.p, self.state, self.kernel = s["ssm_heads"], s["ssm_dim"], s["state"], s["kernel"]
        self.inner = self.n * self.p
        self.channels = self.inner + 2 * self.state
        self.inputs = nn.Linear(s["d"], self.inner + self.channels + self.n, bias=False)  # z | x B C | dt
        self.conv = nn.Conv1d(self.channels, self.channels, self.kernel, groups=self.channels)
        dt = torch.exp(torch.rand(self.n) * (math.log(0.1) - math.log(0.001)) + math.log(0.001))
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))  # softplus of it is dt
        self.a_log = nn.Parameter(torch.log(torch.linspace(1, 16, self.n)))
        self.skip = nn.Parameter(torch.ones(self.n))
        self.norm = Norm(self.inner, s["eps"])
        self.o = nn.Linear(self.inner, s["d"], bias=False)

    def mix(self, h, turn, mask):
        z, x, dt = self.inputs(h).split([self.inner, self.channels, self.n], -1)
        x = F.silu(self.conv(F.pad(x.transpose(1, 2), (self.kernel - 1, 0)))).transpose(1, 2)
        x, b, c = x.split([self.inner, self.state, self.state], -1)
        x = x.reshape(*x.shape[:2], self.n, self.p)
        y = scan(x, F.softplus(dt + self.dt_bias), -torch.exp(self.a_log), b, c) + self.skip[:, None] * x
        return self.norm(y.flatten(2) * F.silu(z))


def scan(x, dt, a, b, c):
    """x: [B, T, H, P], dt: [B, T, H], a: [H], b and c: [B, T, N] -> y: [B, T, H, P], by chunks."""
    batch, t = x.shape[:2]
    pad = -t % CHUNK
    x, dt, b, c = F.pad(x, (0, 0, 0, 0, 0, pad)), F.pad(dt, (0, 0, 0, pad)), F.pad(b, (0, 0, 0, pad)), F.pad(c, (0, 0, 0, pad))
    x, dt, b, c = (v.reshape(batch, (t + pad) // CHUNK, CHUNK, *v.shape[2:]) for v in (x, dt, b, c))
    x = (x * dt[..., None]).permute(0, 1, 3, 2, 4)                      # [B, chunks, H, L, P]
    sums = (dt * a).permute(0, 1, 3, 2).cumsum(-1)                      # [B, chunks, H, L]: logarithms of decays since the chunk began
    future = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=x.device).triu(1)
    decay = (sums[..., :, None] - sums[..., None, :]).masked_fill(future, -1e30).exp()
    y = (c @ b.transpose(-1, -2))[:, :, None] * decay @ x
    ends = (x * (sums[..., -1:] - sums).exp()[..., None]).transpose(-1, -2) @ b[:, :, None]  # [B, chunks, H, P, N]: what a chunk adds
    state, states = torch.zeros_like(ends[:, 0]), []
    for i in range(ends.shape[1]):
        states.append(state)
        state = state * sums[:, i, :, -1].exp()[..., None, None] + ends[:, i]
    y = y + c[:, :, None] @ torch.stack(states, 1).transpose(-1, -2) * sums.exp()[..., None]
    return y.permute(0, 1, 3, 2, 4).reshape(batch, t + pad, *x.shape[2:3], x.shape[-1])[:, :t]


class Model(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.shape = s
        self.embed = nn.Embedding(s["vocab"], s["d"])
        self.layers = nn.ModuleList({"m": Mamba2, "a": Attention}[m](s) for m in s.get("mixers", "a" * s["layers"]))
        self.norm = Norm(s["d"], s["eps"])
        for n, p in self.named_parameters():
            if n.endswith((".o.weight", "down.weight")):  # a layer says nothing at first: tokens are not drowned in noise
                nn.init.zeros_(p)
            elif p.dim() == 2:
                nn.init.normal_(p, std=0.02 if "embed" in n else s["d"] ** -0.5)

    def forward(self, tokens, positions, wanted):
        """tokens, positions: [B, T]; wanted: indices into B * T. Logits of the wanted tokens (tied with the embedding)."""
        s, turn = self.shape, None
        half, t = s["d"] // s["heads"] // 2, tokens.shape[1]
        if s["kind"] == "llama":
            angles = positions[:, :, None, None, None] * s["theta"] ** (-torch.arange(half, device=tokens.device) / half)
            turn = torch.polar(torch.ones_like(angles), angles)
        mask = torch.full((1, t, t), -1e30, device=tokens.device).triu(1)
        x = self.embed(tokens)
        for i, layer in enumerate(self.layers):
            x = layer(x, turn, mask, wanted if i == s["layers"] - 1 else None)
        return self.norm(x) @ self.embed.weight.T


if __name__ == "__main__":  # the scan by chunks beside the recurrence, token by token
    torch.manual_seed(1)
    x, dt, a, b, c = torch.randn(2, 150, 3, 4), torch.rand(2, 150, 3), -torch.rand(3), torch.randn(2, 150, 5), torch.randn(2, 150, 5)
    state, rows = torch.zeros(2, 3, 4, 5), []
    for i in range(150):
        state = state * (dt[:, i] * a).exp()[..., None, None] + (dt[:, i, :, None] * x[:, i])[..., None] * b[:, i, None, None]
        rows.append((state * c[:, i, None, None]).sum(-1))
    error = (scan(x, dt, a, b, c) - torch.stack(rows, 1)).abs().max().item()
    print(f"largest difference: {error:.1e}")
    assert error < 1e-4
