# SPDX-License-Identifier: Apache-2.0
"""The models of tests/golden: one entry each, with the configuration for transformers.

Shapes are as small as possible while every kind of layer occurs; if a family allows it, heads do not divide the width,
windows are not a multiple of a block's 64 slots, and there are more tokens than the trained length. Scales, clips and
caps are strong enough to affect the logits.
"""
import functools
import math
import re
from dataclasses import dataclass, field
from typing import Callable

import torch

VOCAB = 320
REMOVED = object()  # of a patch: the key is not in config.json

SHORT, LONG, PAST = ("short", 11), ("long", 150), ("past", 300)
PROMPTS = (("one", 1), SHORT, LONG)


@dataclass
class Family:
    name: str                 # of the files
    model: str                # transformers' class, without Config or ForCausalLM
    config: dict
    note: str                 # what it exercises
    vocabulary: str           # "llama", or the pre-tokenizer of a "gpt2" one
    prompts: tuple = PROMPTS  # (name, number of tokens)
    patch: dict = field(default_factory=dict)     # of config.json, for values that the converter reads and transformers no longer writes
    reference: Callable = lambda model: None      # changes the model after it was saved and before it computes
    metadata: dict = field(default_factory=dict)  # GGUF keys that the converter omits
    experts: str = "F32"                          # type of the experts' matrices
    gates: float = 1.0                            # factor of the experts' gate and up, so that clamps take effect
    factors: dict = field(default_factory=dict)   # of parameters, by a part of their names
    differs: str = ""                             # why llama.cpp's result differs
    converter: str = ""       # the class whose converter writes it, for models that transformers has by another name
    arch: str = ""            # gguf.MODEL_ARCH, if it is not the converter's
    tensors: Callable = lambda tensors: tensors   # the saved tensors, by name, as the converter reads them


EPS = 1e-3  # of every norm: large enough that ignoring it is noticed


def shape(layers=2, width=48, ff=80, heads=6, kv_heads=2, context=512, eps="rms_norm_eps"):
    return {"num_hidden_layers": layers, "hidden_size": width, "intermediate_size": ff, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "max_position_embeddings": context, eps: EPS}


def without(config, *keys):
    return {k: v for k, v in config.items() if k not in keys}


def rope(theta=10000.0, kind="default", **more):
    return {"rope_type": kind, "rope_theta": theta, **more}


def layers_of(pattern):
    return ["sliding_attention" if c == "s" else "full_attention" for c in pattern]


def latent(layers):
    """The common shape of DeepSeek V2 and V3."""
    return dict(**shape(layers=layers, width=64, heads=4, kv_heads=4), kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=16,
                v_head_dim=32, moe_intermediate_size=32, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=2,
                first_k_dense_replace=1)


# llama.cpp needs 64 dimensions, and half of them rotated; of few heads, many tokens have equal scores: 0
INDEXER = dict(index_topk=24, index_head_dim=64, index_n_heads=8)


def latent_reference(model):
    """transformers ignores the configured eps in the norms of latent parts; files have one for all norms."""
    for layer in model.model.layers:
        for name in ("q_a_layernorm", "kv_a_layernorm"):
            if hasattr(layer.self_attn, name):
                getattr(layer.self_attn, name).variance_epsilon = EPS


def glm_dsa_reference(model):
    """transformers 5.12 rotates indexers in halves; published models have indexer_rope_interleave, which it ignores. Scores do not
    change if the dimensions of keys and queries change places: the pairs get those where transformers looks for them."""
    latent_reference(model)
    width, rotated = model.config.index_head_dim, model.config.qk_rope_head_dim
    order = torch.tensor([*range(0, rotated, 2), *range(1, rotated, 2), *range(rotated, width)])
    for layer in model.model.layers:
        if (indexer := layer.self_attn.indexer) is not None:
            heads = torch.cat([order + h * width for h in range(model.config.index_n_heads)])
            indexer.wq_b.weight.data = indexer.wq_b.weight.data[heads]
            for p in (indexer.wk.weight, indexer.k_norm.weight, indexer.k_norm.bias):
                p.data = p.data[order]


def minicpm3_reference(model):
    """DeepSeek V3 with the constant factors of MiniCPM3: of embeddings, residuals and logits."""
    latent_reference(model)
    n_layers, width = model.config.num_hidden_layers, model.config.hidden_size
    model.model.embed_tokens.weight.data *= 12
    model.lm_head.weight.data *= 256 / width
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.data *= 1.4 / n_layers ** 0.5
        layer.mlp.down_proj.weight.data *= 1.4 / n_layers ** 0.5


def mistral4_reference(model):
    """transformers 5.12 leaves YaRN's factor out of the scale of scores; later versions and llama.cpp have it."""
    latent_reference(model)
    factor = 0.1 * math.log(model.config.rope_parameters["factor"]) + 1
    for layer in model.model.layers:
        layer.self_attn.scaling *= factor ** 2


def recurrent(kind, pattern):
    return [kind if c == "c" else "attention" if kind == "mamba" else "full_attention" for c in pattern]


GEMMA4_FACTORS = {"q_norm": 0.25, "per_layer_input_gate": 0.5}  # q_norm: instead of a scale of scores
GEMMA4_ROPES = {"full_attention": rope(1000000.0, "proportional", partial_rotary_factor=0.25), "sliding_attention": rope(10000.0)}


# The epsilon is that of published models: transformers always has it in the norms of keys and queries, llama.cpp the
# one of the file.
DELTA = {**shape(layers=4, heads=4), "rms_norm_eps": 1e-6, "head_dim": 32, "linear_key_head_dim": 16, "linear_value_head_dim": 16}


def delta_reference(model):
    """Delta nets token after token: transformers computes a prompt in chunks."""
    for layer in model.model.layers:
        if hasattr(layer, "linear_attn"):
            rule = layer.linear_attn.recurrent_gated_delta_rule
            layer.linear_attn.chunk_gated_delta_rule = lambda *args, cu_seqlens=None, rule=rule, **more: rule(*args, **more)


MAMBA = dict(mamba_n_heads=8, mamba_d_head=12, mamba_d_state=16, mamba_n_groups=1, mamba_expand=2, mamba_d_conv=4)


def nemotron_reference(model):
    """transformers has a least time step, which neither the model's own code nor llama.cpp has."""
    for layer in model.model.layers:
        layer.mixer.time_step_min = 0.0


def nemotron_h(layers):
    """One chunk for each prompt: transformers adds up the states of several over the wrong dimension."""
    return dict(chunk_size=256, hidden_size=48, intermediate_size=80, layers_block_type=layers, num_attention_heads=4, num_key_value_heads=2,
                head_dim=16, max_position_embeddings=512, ssm_state_size=16, mamba_num_heads=8, mamba_head_dim=12, n_groups=2,
                conv_kernel=4, expand=2, layer_norm_epsilon=EPS)


def mpt_reference(model):
    """transformers computes ALiBi for the trained length only, and always with a largest bias of 8."""
    model.config.max_seq_len = 512
    model.transformer.build_mpt_alibi_tensor = functools.partial(model.transformer.build_mpt_alibi_tensor,
                                                                 alibi_bias_max=model.config.attn_config.alibi_bias_max)


def deepseek_reference(model):
    """Its shared expert has no gate: one that is always open."""
    for layer in model.model.layers[1:]:
        layer.mlp.shared_expert_gate.weight.data.zero_()
        layer.mlp.shared_expert_gate.register_forward_hook(lambda module, args, out: out + 100)


def fused_qkv(tensors):
    """BailingMoE's names: q, k and v are one tensor."""
    parts = {}
    for name in [n for n in tensors if re.search("self_attn.[qkv]_proj", n)]:
        parts.setdefault(name[:name.index("self_attn")], {})[name.split("self_attn.")[1][0]] = tensors.pop(name)
    for name, p in parts.items():
        tensors[name + "attention.query_key_value.weight"] = lambda p=p: torch.cat([p["q"](), p["k"](), p["v"]()])
    names = {"self_attn.o_proj": "attention.dense", "self_attn.q_norm": "attention.query_layernorm",
             "self_attn.k_norm": "attention.key_layernorm", "embed_tokens": "word_embeddings",
             "e_score_correction_bias": "expert_bias"}
    for old, new in names.items():
        for name in [n for n in tensors if old in n]:
            tensors[name.replace(old, new)] = tensors.pop(name)
    return tensors


NO_WINDOW = "has no window in this architecture: differs from the 25th token on"

FAMILIES = [
    Family("gpt2", "GPT2", dict(n_embd=48, n_layer=2, n_head=4, n_positions=256, layer_norm_epsilon=EPS),
           "learned positions, LayerNorm, biases, fused qkv, tanh GELU, tied output", "gpt-2", patch={"n_ctx": 256}),
    Family("falcon-7b", "Falcon",
           dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=1, multi_query=True, parallel_attn=True,
                bias=False, alibi=False, new_decoder_architecture=False, layer_norm_epsilon=EPS),
           "parallel block with one norm, one kv head, no biases, erf GELU, tied output", "falcon"),
    Family("falcon-40b", "Falcon",
           dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=2, bias=False, alibi=False,
                new_decoder_architecture=True, num_ln_in_parallel_attn=2, layer_norm_epsilon=EPS),
           "new decoder: two norms in a parallel block, grouped kv heads", "falcon"),
    Family("mpt", "Mpt", dict(d_model=48, n_heads=4, n_layers=2, max_seq_len=128, attn_config={"alibi": True, "clip_qkv": None}),
           "ALiBi, LayerNorm without bias, erf GELU", "mpt", PROMPTS + (PAST,), {"architectures": ["MPTForCausalLM"]}, mpt_reference),
    Family("mpt-clip", "Mpt",
           dict(d_model=48, n_heads=6, n_layers=2, max_seq_len=128, attn_config={"alibi": True, "clip_qkv": 0.8, "alibi_bias_max": 4}),
           "ALiBi of 6 heads and another largest bias, q, k and v clipped", "mpt", PROMPTS + (PAST,),
           {"architectures": ["MPTForCausalLM"]}, mpt_reference),
    Family("bloom", "Bloom", dict(hidden_size=48, n_layer=2, n_head=6, layer_norm_epsilon=EPS),
           "ALiBi of 6 heads, LayerNorm of the embedding, biases, tanh GELU", "bloom", PROMPTS + (PAST,), {"seq_length": 128}),
    Family("gptneox", "GPTNeoX",
           dict(**without(shape(ff=128, heads=3, eps="layer_norm_eps"), "num_key_value_heads"), use_parallel_residual=True,
                rope_parameters=rope(partial_rotary_factor=0.25)),
           "a quarter of the dimensions rotates, parallel residual with two norms, erf GELU", "olmo", patch={"rotary_pct": 0.25}),
    Family("gptneox-sequential", "GPTNeoX",
           dict(**without(shape(ff=128, heads=3, eps="layer_norm_eps"), "num_key_value_heads"), use_parallel_residual=False,
                rope_parameters=rope(partial_rotary_factor=0.5)),
           "the same one after the other, half of the dimensions", "olmo", patch={"rotary_pct": 0.5}),
    Family("phi2", "Phi", dict(**shape(ff=192, heads=3, kv_heads=3, eps="layer_norm_eps"), partial_rotary_factor=0.5),
           "parallel block with one norm, partial rotation, biases everywhere, also of the output", "gpt-2",
           patch={"partial_rotary_factor": 0.5}),
    Family("phi3", "Phi3", dict(**shape(kv_heads=6), original_max_position_embeddings=512, sliding_window=24),
           "fused qkv and gate-up, a window of 24 in every layer", "llama", differs=NO_WINDOW),
    Family("phi3-longrope", "Phi3",
           dict(**shape(heads=3, kv_heads=1, context=1024), original_max_position_embeddings=256, sliding_window=None,
                tie_word_embeddings=True,
                rope_parameters=rope(kind="longrope", partial_rotary_factor=0.75, original_max_position_embeddings=256,
                                     short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5], long_factor=[1.0, 1.5, 2.0, 3.0, 5.0, 8.0])),
           "short and long factors around 256 positions, attention factor, partial rotation", "gpt-4o", PROMPTS + (PAST,)),
    Family("llama", "Llama", dict(**shape(layers=3, width=64, heads=4)), "grouped kv heads, untied output", "llama"),
    Family("llama-linear", "Llama", dict(**shape(), rope_parameters=rope(kind="linear", factor=4.0), tie_word_embeddings=True),
           "linear rotary scaling by 4, tied output", "llama", PROMPTS + (PAST,)),
    Family("llama3", "Llama",
           dict(**shape(heads=4), head_dim=16,
                rope_parameters=rope(500000.0, "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                     original_max_position_embeddings=128)),
           "Llama 3's scaling as factors of the frequencies, heads that do not divide the width", "llama-bpe", PROMPTS + (PAST,)),
    Family("llama-yarn", "Llama",
           dict(**shape(heads=3, kv_heads=1, context=1024), tie_word_embeddings=True,
                rope_parameters=rope(kind="yarn", factor=4.0, beta_fast=4.0, beta_slow=0.25, original_max_position_embeddings=256)),
           "YaRN: the ramp between interpolated and other frequencies, both betas, attention factor", "llama", PROMPTS + (PAST,),
           differs="computes with YaRN's betas of 32 and 1 whatever the file says; told the file's, it agrees"),
    Family("mistral", "Mistral", dict(**shape(), sliding_window=24), "a window of 24 in every layer", "llama",
           metadata={"llama.attention.sliding_window": 24}, differs=NO_WINDOW),
    Family("mixtral", "Mixtral", dict(**shape(ff=48, kv_heads=3), num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
           "4 experts, 2 used, weights of the chosen ones sum to 1", "llama"),
    Family("qwen2", "Qwen2", dict(**shape(heads=3, kv_heads=1), rope_parameters=rope(1000000.0), tie_word_embeddings=True),
           "biases of q, k and v", "qwen2"),
    Family("qwen3", "Qwen3", dict(**shape(heads=4), head_dim=16, rope_parameters=rope(1000000.0)), "norms of each head's q and k", "qwen2"),
    Family("qwen2moe", "Qwen2Moe",
           dict(**shape(), moe_intermediate_size=32, shared_expert_intermediate_size=48, num_experts=6, num_experts_per_tok=2,
                norm_topk_prob=False),
           "6 experts, 2 used, weights not normalised, a gated shared expert", "qwen2"),
    Family("qwen3moe", "Qwen3Moe",
           dict(**shape(heads=4), head_dim=16, moe_intermediate_size=32, num_experts=6, num_experts_per_tok=2, norm_topk_prob=True),
           "6 experts, 2 used, weights normalised, norms of q and k", "qwen2"),
    Family("gemma", "Gemma", dict(**shape(heads=3, kv_heads=1), head_dim=24),
           "embedding scaled by the root of the width, norms of 1 + weight, tanh GELU gate, one kv head", "llama"),
    Family("gemma2", "Gemma2",
           dict(**shape(layers=4, heads=4), head_dim=24, query_pre_attn_scalar=24, sliding_window=24, attn_logit_softcapping=4.0,
                final_logit_softcapping=6.0, layer_types=layers_of("sfsf")),
           "windows in every other layer, soft caps of scores and logits, norms after attention and mlp", "llama"),
    Family("gemma3", "Gemma3Text",
           dict(**shape(layers=7, ff=64, heads=4, kv_heads=1), head_dim=16, query_pre_attn_scalar=16, sliding_window=24,
                layer_types=layers_of("sssssfs"),
                rope_parameters={"full_attention": rope(1000000.0, "linear", factor=8.0), "sliding_attention": rope(10000.0)}),
           "5 local layers to 1 global, two rotary bases, linear scaling of the global ones, norms of q and k", "llama", PROMPTS + (PAST,)),
    Family("gemma3n", "Gemma3nText",
           dict(**shape(layers=5, ff=64, heads=4, kv_heads=1), head_dim=16, sliding_window=24, layer_types=layers_of("ssfsf"),
                final_logit_softcapping=6.0, vocab_size_per_layer_input=VOCAB, hidden_size_per_layer_input=16, laurel_rank=16,
                num_kv_shared_layers=2, activation_sparsity_pattern=[0.9, 0.5, 0.0, 0.7, 0.0],
                rope_parameters={"full_attention": rope(1000000.0), "sliding_attention": rope(10000.0)}),
           "four streams of the residual (AltUp), Laurel blocks, embeddings of each layer, sparse activations, norms of values, scores "
           "without a scale, shared KV", "llama", PROMPTS + (PAST,), converter="Gemma3nForCausalLM",
           factors={"q_norm": 0.25, "modality_router": 40.0, "correct_output_scale": 4.0, "per_layer_input_gate": 0.5},
           differs="takes embeddings of 256 dimensions alone, has one sparsity in the first ten layers, and divides by n - 1 in its deviation"),
    Family("gemma4", "Gemma4Text",
           dict(**shape(layers=6, ff=64, heads=4, kv_heads=1), head_dim=16, global_head_dim=32, sliding_window=24,
                layer_types=layers_of("ssfssf"), final_logit_softcapping=6.0, vocab_size_per_layer_input=VOCAB,
                hidden_size_per_layer_input=24, num_kv_shared_layers=3, use_double_wide_mlp=True, rope_parameters=GEMMA4_ROPES),
           "embeddings of each layer, heads of global layers twice as wide, a quarter of them rotates, norms of values, scores without "
           "a scale, half of the layers share KV and have a wider mlp, factors of layers' outputs", "llama", PROMPTS + (PAST,),
           converter="Gemma4ForConditionalGeneration", factors=GEMMA4_FACTORS),
    Family("gemma4-moe", "Gemma4Text",
           dict(**shape(layers=5, ff=64, heads=4, kv_heads=2), head_dim=16, global_head_dim=24, num_global_key_value_heads=1,
                attention_k_eq_v=True, sliding_window=24, layer_types=layers_of("ssfsf"), final_logit_softcapping=6.0,
                hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=32,
                rope_parameters=GEMMA4_ROPES),
           "experts beside the mlp, with norms of their own, weights with a factor of each expert, fused gate-up; global layers have other "
           "numbers of KV heads, whose values are their keys", "llama", PROMPTS + (PAST,), converter="Gemma4ForConditionalGeneration", factors=GEMMA4_FACTORS),
    Family("stablelm", "StableLm", dict(**shape(heads=3, kv_heads=3, eps="layer_norm_eps"), partial_rotary_factor=0.25, use_qkv_bias=True),
           "LayerNorm with biases, a quarter of the dimensions rotates, biases of q, k and v", "stablelm2",
           patch={"partial_rotary_factor": 0.25}),
    Family("stablelm-12b", "StableLm",
           dict(**shape(eps="layer_norm_eps"), partial_rotary_factor=0.25, use_parallel_residual=True, qk_layernorm=True),
           "parallel residual with one norm, a LayerNorm of its own for each head's q and k", "stablelm2",
           patch={"partial_rotary_factor": 0.25}),
    Family("starcoder2", "Starcoder2", dict(**shape(ff=192, eps="norm_epsilon"), sliding_window=None),
           "LayerNorm, biases, a plain mlp with tanh GELU", "starcoder"),
    Family("starcoder", "GPTBigCode", dict(n_embd=48, n_layer=2, n_head=4, n_positions=256, layer_norm_epsilon=EPS, multi_query=True),
           "learned positions, one kv head, LayerNorm, biases, fused qkv, tanh GELU, tied output", "starcoder"),
    Family("olmo2", "Olmo2", dict(**shape()), "norms only after attention and mlp, one norm over all of q and all of k", "olmo"),
    Family("olmo", "Olmo", dict(**without(shape(), "rms_norm_eps"), clip_qkv=1.0), "LayerNorms without weights, q, k and v clipped", "olmo"),
    Family("olmo3", "Olmo3", dict(**shape(layers=5), sliding_window=24, layer_types=layers_of("sssfs")),
           "by olmo2's name: windows in three layers of four", "olmo"),
    Family("command-r", "Cohere", dict(**shape(eps="layer_norm_eps"), logit_scale=0.25, use_qk_norm=False),
           "parallel block with one LayerNorm without bias, interleaved rotation, scaled logits, tied output", "command-r"),
    Family("granite", "Granite",
           dict(**shape(), attention_multiplier=0.4, embedding_multiplier=3.0, residual_multiplier=0.6, logits_scaling=2.0),
           "factors of embedding, scores, residuals and logits", "refact"),
    Family("smollm3", "SmolLM3", dict(**shape(layers=5), no_rope_layers=[1, 1, 1, 0, 1], tie_word_embeddings=True),
           "every fourth layer has no positions", "llama-bpe"),
    Family("gpt-oss", "GptOss",
           dict(**shape(ff=32, heads=4, context=1024), head_dim=16, sliding_window=24, num_local_experts=4, num_experts_per_tok=2,
                layer_types=layers_of("sf"),
                rope_parameters=rope(150000.0, "yarn", factor=4.0, truncate=True, original_max_position_embeddings=256)),
           "sinks, windows in every other layer, experts with biases and clamped gates, YaRN", "gpt-4o", PROMPTS + (PAST,), gates=5.0),
    Family("gpt-oss-mxfp4", "GptOss",
           dict(**shape(width=64, ff=64, heads=4, context=1024), head_dim=16, sliding_window=24, num_local_experts=4, num_experts_per_tok=2,
                layer_types=layers_of("sf"),
                rope_parameters=rope(150000.0, "yarn", factor=4.0, truncate=False, original_max_position_embeddings=256)),
           "the same with experts in MXFP4, and YaRN's range not rounded, as the published models have it", "gpt-4o", PROMPTS + (PAST,),
           experts="MXFP4",
           differs="rounds what it multiplies with MXFP4 to Q8_0, and rounds YaRN's range whatever yarn_truncate says"),
    Family("glm4", "Glm4",
           dict(**shape(heads=4), head_dim=16, attention_bias=True, rope_parameters=rope(partial_rotary_factor=0.5)),
           "norms before and after attention and mlp, half of each head rotates in adjacent pairs, fused gate-up, biases of q, k, v",
           "glm4", patch={"partial_rotary_factor": 0.5}),
    Family("glm4moe", "Glm4Moe",
           dict(**shape(heads=4), head_dim=16, attention_bias=True, use_qk_norm=True, moe_intermediate_size=24,
                n_routed_experts=12, num_experts_per_tok=3, n_shared_experts=1, first_k_dense_replace=1, norm_topk_prob=True,
                routed_scaling_factor=1.5, n_group=4, topk_group=2, rope_parameters=rope(partial_rotary_factor=0.5)),
           "a dense layer, sigmoid routing with a correction, experts from 2 of 4 groups, scaled weights, a shared expert without a "
           "gate, half of each head rotates", "glm4", patch={"num_nextn_predict_layers": 0}),
    Family("exaone4", "Exaone4", dict(**shape(), sliding_window=None, layer_types=layers_of("ff")),
           "norms only after attention and mlp, norms of q and k", "exaone4"),
    Family("exaone4-windows", "Exaone4",
           dict(**shape(layers=5), sliding_window=24, layer_types=layers_of("sssfs")),
           "the same with windows in three layers of four, which alone have positions", "exaone4",
           differs="has windows in this architecture for models of 64 layers alone"),
    Family("seed-oss", "SeedOss", dict(**shape(heads=4), head_dim=16, attention_bias=True, attention_out_bias=False),
           "biases of q, k and v, heads that do not divide the width", "seed-coder"),
    Family("ernie4-5", "Ernie4_5", dict(**shape(heads=4), head_dim=16, use_bias=False, tie_word_embeddings=True),
           "adjacent pairs, heads that do not divide the width", "llama"),
    Family("cohere2", "Cohere2",
           dict(**shape(layers=5, eps="layer_norm_eps"), logit_scale=0.25, sliding_window=24, layer_types=layers_of("sssfs")),
           "command-r with windows in three layers of four, which alone have positions", "command-r", patch={"rotary_pct": 1.0}),
    Family("hunyuan-dense", "HunYuanDenseV1", dict(**shape(heads=4), head_dim=16, rope_parameters=rope()),
           "norms of q and k after the rotation", "hunyuan"),
    Family("hunyuan-moe", "HunYuanMoEV1",
           dict(**shape(ff=32, heads=4), head_dim=16, num_experts=6, moe_topk=2, rope_parameters=rope(), tie_word_embeddings=True),
           "the same with experts whose weights sum to 1, and a shared expert without a gate", "hunyuan",
           patch={"moe_intermediate_size": [32, 32], "moe_topk": [2, 2], "num_shared_expert": [1, 1]}),
    Family("llama4", "Llama4Text",
           dict(**shape(layers=5, ff=32, heads=4), head_dim=16, intermediate_size_mlp=80, num_local_experts=4,
                interleave_moe_layer_step=2),
           "every other layer has experts, by a sigmoid that weighs their inputs, and a shared one; every fourth layer has no positions, "
           "the others norms of q and k after the rotation", "llama4"),
    Family("llama4-chunks", "Llama4Text",
           dict(**shape(layers=5, ff=32, heads=4), head_dim=16, intermediate_size_mlp=80, num_local_experts=4, num_experts_per_tok=2,
                attention_chunk_size=24, floor_scale=40, attn_scale=0.3),
           "the same with experts in all layers, two of them, chunks of 24 tokens, and queries of layers without positions scaled by the "
           "logarithm of their position", "llama4",
           metadata={"llama4.attention.sliding_window": 24, "llama4.attention.temperature_scale": 0.3,
                     "llama4.attention.temperature_length": 40},
           differs="has chunks of 8,192 tokens, and scales queries by these, whatever the file says"),
    Family("afmoe", "Afmoe",
           dict(**shape(layers=5, heads=4), head_dim=16, num_dense_layers=1, moe_intermediate_size=24, num_experts=8,
                num_experts_per_tok=2, num_shared_experts=1, route_scale=1.5, sliding_window=24, mup_enabled=True),
           "a gate of attention's output, norms before and after, norms of q and k, windows in three layers of four, which alone have "
           "positions; a dense layer, sigmoid routing with a correction, a shared expert", "afmoe", patch={"route_norm": True}),
    Family("exaone-moe", "ExaoneMoe",
           dict(**shape(layers=5, heads=4), head_dim=16, sliding_window=24, moe_intermediate_size=24, num_experts=8,
                num_experts_per_tok=2, num_shared_experts=1, first_k_dense_replace=1),
           "norms of q and k, windows in three layers of four, which alone have positions; a dense layer, sigmoid routing with a "
           "correction, a shared expert", "exaone-moe", patch={"scoring_func": "sigmoid"}),
    Family("granitemoe", "GraniteMoe",
           dict(**shape(ff=32), attention_multiplier=0.4, embedding_multiplier=3.0, residual_multiplier=0.6, logits_scaling=2.0,
                num_local_experts=6, num_experts_per_tok=2),
           "granite's factors, experts whose weights sum to 1", "refact"),
    Family("olmoe", "Olmoe",
           dict(**{**shape(ff=32, kv_heads=6), "rms_norm_eps": 1e-5}, num_experts=6, num_experts_per_tok=2, norm_topk_prob=False, clip_qkv=None),
           "experts without normalised weights, one norm over all of q and all of k", "olmo"),
    Family("dots1", "Dots1",
           dict(**shape(heads=4, kv_heads=4), head_dim=16, moe_intermediate_size=32, n_routed_experts=8, num_experts_per_tok=2,
                n_shared_experts=2, first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=2.5, n_group=1, topk_group=1),
           "a dense layer, sigmoid routing with a correction, scaled weights, two shared experts as one, norms of q and k", "qwen2",
           patch={"scoring_func": "sigmoid"}),
    Family("hy-v3", "HYV3",
           dict(**shape(layers=3, heads=4), head_dim=16, moe_intermediate_size=24, num_experts=8, num_experts_per_tok=2,
                num_shared_experts=1, router_scaling_factor=2.5, rope_parameters=rope(1000000.0)),
           "experts by a sigmoid with a correction, scaled weights, a shared expert, a dense layer, norms of q and k", "hunyuan"),
    Family("minimax-m2", "MiniMaxM2",
           dict(**shape(ff=32, heads=4), head_dim=16, rotary_dim=8, num_local_experts=8, num_experts_per_tok=2,
                rope_parameters=rope(partial_rotary_factor=0.5)),
           "sigmoid routing with a correction, one norm over all of q and all of k, half of each head rotates", "gpt-4o",
           patch={"rotary_dim": 8, "use_qk_norm": True, "scoring_func": "sigmoid"}),
    Family("ernie4-5-moe", "Ernie4_5_Moe",
           dict(**shape(ff=64), use_bias=False, moe_intermediate_size=32, moe_num_experts=8, moe_k=2, moe_num_shared_experts=1,
                moe_layer_start_index=1, moe_layer_interval=1),
           "a dense layer, softmax routing with a correction, weights that sum to 1, a shared expert without a gate", "llama"),
    Family("chatglm", "Glm",
           dict(**shape(heads=3, kv_heads=1), head_dim=16, attention_bias=True, rope_parameters=rope(partial_rotary_factor=0.5)),
           "half of each head rotates in adjacent pairs, fused gate-up, biases of q, k, v", "chatglm-bpe",
           patch={"partial_rotary_factor": 0.5, "layernorm_epsilon": EPS, "seq_length": 512}),
    Family("internlm2", "Llama", dict(**shape()), "llama by another name", "llama", arch="INTERNLM2"),
    Family("qwen2vl", "Qwen2", dict(**shape(heads=3, kv_heads=1), rope_parameters=rope(1000000.0)),
           "text of a vision model: rotation in sections, which have one position", "qwen2",
           converter="Qwen2VLForConditionalGeneration",
           patch={"rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0, "mrope_section": [2, 3, 3]}},
           differs="is less exact in this architecture: the same weights agree within 4e-6 as qwen2"),
    Family("qwen3vl", "Qwen3", dict(**shape(heads=4), head_dim=16, rope_parameters=rope(1000000.0)),
           "the same with norms of q and k", "qwen2", converter="Qwen3VLForConditionalGeneration",
           patch={"rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0, "mrope_section": [3, 3, 2]}}),
    Family("qwen3vlmoe", "Qwen3Moe",
           dict(**shape(heads=4), head_dim=16, rope_parameters=rope(), moe_intermediate_size=32, num_experts=6, num_experts_per_tok=2, norm_topk_prob=True),
           "the same with experts", "qwen2", converter="Qwen3VLMoeForConditionalGeneration",
           patch={"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [3, 3, 2]}}),
    Family("mistral3", "Ministral3",
           dict(**shape(heads=4, context=1024), head_dim=16,
                rope_parameters=rope(1000000.0, "yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
                                     original_max_position_embeddings=32, llama_4_scaling_beta=0.3)),
           "YaRN without its attention factor, queries scaled by the logarithm of their position", "tekken", PROMPTS + (PAST,),
           converter="Ministral3ForCausalLM.Ministral3Model"),
    Family("arcee", "Arcee", dict(**without(shape(ff=128), "hidden_act"), hidden_act="relu2"),
           "a plain mlp with a squared ReLU", "llama-bpe"),
    Family("nemotron", "Nemotron",
           dict(**shape(ff=128, heads=3, kv_heads=1, eps="norm_eps"), partial_rotary_factor=0.5, hidden_act="relu2"),
           "LayerNorms of 1 + weight, half of each head rotates, a plain mlp with a squared ReLU", "gpt-2",
           patch={"partial_rotary_factor": 0.5, "norm_eps": EPS}),
    Family("jais2", "Jais2", dict(**shape(heads=3, kv_heads=3, ff=128, eps="layer_norm_eps"), rope_parameters=rope(500000.0)),
           "LayerNorms, biases everywhere, squared ReLU without a gate", "gpt-2"),
    Family("deepseek", "Qwen2Moe",
           dict(**shape(), moe_intermediate_size=32, shared_expert_intermediate_size=64, num_experts=6, num_experts_per_tok=2,
                norm_topk_prob=False, qkv_bias=False, mlp_only_layers=[0]),
           "a dense layer, weights not normalised, two shared experts as one without a gate, adjacent pairs", "deepseek-llm",
           patch={"n_routed_experts": 6, "n_shared_experts": 2, "first_k_dense_replace": 1}, reference=deepseek_reference,
           converter="DeepseekForCausalLM", tensors=lambda t: {n: x for n, x in t.items() if "shared_expert_gate" not in n}),
    Family("bailingmoe2", "Glm4Moe",
           dict(**shape(heads=3, kv_heads=1), head_dim=16, attention_bias=False, use_qk_norm=True, moe_intermediate_size=24,
                n_routed_experts=12, num_experts_per_tok=3, n_shared_experts=1, first_k_dense_replace=1, norm_topk_prob=True,
                routed_scaling_factor=2.5, n_group=4, topk_group=2, rope_parameters=rope(partial_rotary_factor=0.5)),
           "fused qkv, sigmoid routing with a correction, experts from 2 of 4 groups", "bailingmoe2",
           patch={"partial_rotary_factor": 0.5, "num_experts": 12, "num_shared_experts": 1, "score_function": "sigmoid",
                  "num_nextn_predict_layers": 0, "moe_shared_expert_intermediate_size": 24},
           converter="BailingMoeV2ForCausalLM", tensors=fused_qkv),
    Family("apertus", "Apertus",
           dict(**shape(ff=128), hidden_act="xielu",
                rope_parameters=rope(500000.0, "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                     original_max_position_embeddings=128)),
           "xIELU with numbers of each layer, a plain mlp, norms of q and k, Llama 3's scaling", "tekken", PROMPTS + (PAST,)),
    Family("deepseek2", "DeepseekV2",
           dict(**{**latent(layers=3), "n_routed_experts": 4}, q_lora_rank=None, topk_method="greedy", n_group=None, topk_group=None, norm_topk_prob=False,
                routed_scaling_factor=1.0),
           "latent attention without a latent part of queries (V2 Lite): a dense layer, two shared experts as one", "deepseek-llm",
           PROMPTS + (PAST,), reference=latent_reference, differs="takes a file without that part only if it has 27 layers"),
    Family("deepseek3", "DeepseekV3",
           dict(**{**latent(layers=3), "first_k_dense_replace": 2}, q_lora_rank=32, n_group=4, topk_group=2, norm_topk_prob=True, routed_scaling_factor=2.5,
                rope_parameters=rope(kind="yarn", factor=4.0, original_max_position_embeddings=64, mscale=1.0, mscale_all_dim=1.0,
                                     beta_fast=32, beta_slow=1)),
           "latent attention with a latent part of queries (V3, R1, Kimi K2): groups of experts, sigmoid routing with a correction, YaRN "
           "that scales scores", "deepseek-v3", PROMPTS + (PAST,), patch={"scoring_func": "sigmoid"},
           reference=latent_reference),
    Family("deepseek32", "DeepseekV32",
           dict(**{**latent(layers=2), "qk_rope_head_dim": 32}, **INDEXER, q_lora_rank=32, n_group=4, topk_group=2,
                norm_topk_prob=True, routed_scaling_factor=2.5, num_experts=8, rope_parameters=rope(kind="yarn", factor=4.0, original_max_position_embeddings=64, mscale=1.0,
                                                    mscale_all_dim=1.0, beta_fast=32, beta_slow=1)),
           "the same with an indexer that chooses 24 tokens (V3.2)", "deepseek-v3", patch={"scoring_func": "sigmoid"},
           reference=latent_reference),
    Family("glm-dsa", "GlmMoeDsa",
           dict(**{**latent(layers=3), "first_k_dense_replace": 2, "n_routed_experts": 4, "n_shared_experts": 1, "kv_lora_rank": 32, "v_head_dim": 16,
                   "qk_rope_head_dim": 32, **INDEXER,
                   "index_n_heads": 16}, q_lora_rank=32, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.5,
                indexer_types=["full", "shared", "full"], rope_parameters=rope(1000000.0)),
           "an indexer in two layers, whose choice the next layer has, too, adjacent pairs rotate in it (GLM 5)", "glm4",
           patch={"scoring_func": "sigmoid"}, reference=glm_dsa_reference),
    Family("minicpm3", "DeepseekV3",
           dict(**{**latent(layers=3), "first_k_dense_replace": 3, "v_head_dim": 16}, q_lora_rank=32, rope_interleave=False),
           "latent attention rotated in halves, one matrix of keys and values, factors of embedding, residuals and logits that no key "
           "has", "llama", PROMPTS + (PAST,), reference=minicpm3_reference, converter="MiniCPM3ForCausalLM"),
    Family("mistral4", "Mistral4",
           dict(**latent(layers=2), q_lora_rank=32, norm_topk_prob=True, routed_scaling_factor=1.0,
                rope_parameters=rope(kind="yarn", factor=4.0, original_max_position_embeddings=64, mscale=1.0, mscale_all_dim=1.0,
                                     beta_fast=32, beta_slow=1, llama_4_scaling_beta=0.3)),
           "latent attention with queries scaled by the logarithm of their position, gates and ups of experts in one tensor", "tekken",
           PROMPTS + (PAST,), reference=mistral4_reference, converter="Mistral3ForConditionalGeneration.Mistral4Model",
           metadata={"mistral4.attention.temperature_scale": 0.3, "mistral4.attention.temperature_length": 64}),
    Family("lfm2", "Lfm2",
           dict(**shape(layers=5, heads=4, context=4096, eps="norm_eps"), layer_types=recurrent("conv", "ccfcc"), block_auto_adjust_ff_dim=False,
                conv_L_cache=3, rope_parameters=rope(1000000.0)),
           "gated convolutions of 3 tokens in four layers, attention with norms of q and k in one", "lfm2"),
    Family("lfm2moe", "Lfm2Moe",
           dict(**shape(layers=5, heads=4, context=4096, eps="norm_eps"), layer_types=recurrent("conv", "ccfcc"), conv_L_cache=3,
                moe_intermediate_size=32, num_experts=6, num_experts_per_tok=2, num_dense_layers=1, rope_parameters=rope(1000000.0)),
           "the same with experts by a sigmoid with a correction, and a dense layer", "lfm2"),
    Family("granitehybrid", "GraniteMoeHybrid",
           dict(**shape(layers=4), **MAMBA, shared_intermediate_size=80, num_local_experts=0, num_experts_per_tok=0,
                layer_types=recurrent("mamba", "ccfc"),
                attention_multiplier=0.4, embedding_multiplier=3.0, residual_multiplier=0.6, logits_scaling=2.0),
           "Mamba2 in three layers, one attention layer without positions, granite's factors", "refact"),
    Family("granitehybrid-moe", "GraniteMoeHybrid",
           dict(**shape(layers=4, ff=32), **MAMBA, shared_intermediate_size=48, num_local_experts=4, num_experts_per_tok=2,
                layer_types=recurrent("mamba", "cfcc"), attention_multiplier=0.4, embedding_multiplier=3.0, residual_multiplier=0.6,
                logits_scaling=2.0),
           "the same with 4 experts, 2 used, and a shared expert without a gate", "refact"),
    Family("mamba2", "Mamba2",
           dict(num_hidden_layers=3, hidden_size=48, num_heads=8, head_dim=12, state_size=16, n_groups=1, expand=2, conv_kernel=4,
                layer_norm_epsilon=EPS),
           "Mamba2 in every layer, without attention and feed-forwards", "llama"),
    Family("falcon-h1", "FalconH1",
           dict(**shape(heads=4), head_dim=16, mamba_d_ssm=96, mamba_n_heads=8, mamba_d_head=12, mamba_n_groups=2, mamba_d_state=16,
                mamba_d_conv=4, rope_parameters=rope(100000.0), lm_head_multiplier=0.5, embedding_multiplier=2.0,
                mlp_multipliers=[0.8, 0.6], key_multiplier=0.7, attention_in_multiplier=1.2, attention_out_multiplier=0.9,
                ssm_multipliers=[0.7, 0.8, 0.9, 1.1, 1.2], ssm_in_multiplier=1.3, ssm_out_multiplier=0.8),
           "Mamba2 and attention in each layer, added; factors, which the converter multiplies into the weights", "falcon",
           patch={"rope_theta": 100000.0}),
    Family("nemotron-h", "NemotronH", nemotron_h(["mamba", "mlp", "attention", "mlp", "mamba"]),
           "a layer is Mamba2 of two groups, attention without positions, or a feed-forward with a squared ReLU", "pixtral",
           patch={"hybrid_override_pattern": "M-*-M", "d_head": 12,
                  **{key: REMOVED for key in ("num_experts_per_tok", "n_routed_experts", "n_group", "topk_group")}},
           reference=nemotron_reference),
    Family("nemotron-h-moe", "NemotronH",
           dict(**nemotron_h(["mamba", "moe", "attention", "mamba", "moe"]), n_routed_experts=8, num_experts_per_tok=2,
                moe_intermediate_size=32, moe_shared_expert_intermediate_size=48, routed_scaling_factor=2.5, norm_topk_prob=True),
           "the same with experts by a sigmoid with a correction, scaled weights, and a shared expert without a gate", "pixtral",
           patch={"hybrid_override_pattern": "ME*ME", "d_head": 12}, reference=nemotron_reference),
    Family("mamba", "Mamba",
           dict(num_hidden_layers=3, hidden_size=48, state_size=8, expand=2, conv_kernel=4, time_step_rank=3, layer_norm_epsilon=EPS),
           "Mamba1 in every layer, without attention and feed-forwards, tied output", "olmo"),
    Family("jamba", "Jamba",
           dict(**shape(layers=5, ff=64, heads=4), attn_layer_period=4, attn_layer_offset=2, expert_layer_period=2, expert_layer_offset=1,
                num_experts=4, num_experts_per_tok=2, mamba_d_state=8, mamba_d_conv=4, mamba_expand=2, mamba_dt_rank=3,
                use_mamba_kernels=False),
           "Mamba1 with norms in four layers, attention without positions in one, experts in two, weights not normalised", "llama"),
    Family("qwen3next", "Qwen3Next",
           dict(**DELTA, linear_num_key_heads=2, linear_num_value_heads=6,
                layer_types=recurrent("linear_attention", "ccfc"), rope_parameters=rope(partial_rotary_factor=0.25),
                moe_intermediate_size=32, shared_expert_intermediate_size=48, num_experts=4, num_experts_per_tok=2),
           "delta nets in three layers, three heads of values to one of keys, attention with a gate, 4 experts, 2 used, a gated shared one",
           "qwen2", reference=delta_reference),
    Family("qwen35", "Qwen3_5Text",
           dict(**DELTA, linear_num_key_heads=2, linear_num_value_heads=4,
                layer_types=recurrent("linear_attention", "cccf"), tie_word_embeddings=True,
                rope_parameters=rope(1000000.0, partial_rotary_factor=0.25, mrope_section=[2, 1, 1])),
           "delta nets in three layers, heads of values in another order, attention with a gate", "qwen35", reference=delta_reference),
    Family("qwen35moe", "Qwen3_5MoeText",
           dict(**without({**DELTA, "rms_norm_eps": EPS}, "intermediate_size"), linear_num_key_heads=3, linear_num_value_heads=6,
                layer_types=recurrent("linear_attention", "cfcc"),
                rope_parameters=rope(1000000.0, partial_rotary_factor=0.25, mrope_section=[2, 1, 1]),
                moe_intermediate_size=32, shared_expert_intermediate_size=48, num_experts=4, num_experts_per_tok=2),
           "the same with 4 experts, 2 used, and a gated shared one", "qwen35", reference=delta_reference,
           differs="has the file's epsilon in the norms of keys and queries of delta nets, too; published models have one for all"),
    Family("kimi-linear", "KimiLinear",
           dict(**{**shape(layers=4, heads=4, kv_heads=4), "rms_norm_eps": 1e-6}, kv_lora_rank=32, q_lora_rank=None,
                qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, linear_attn_config=dict(full_attn_layers=[3], kda_layers=[1, 2, 4], head_dim=16, num_heads=4,
                                                       short_conv_kernel_size=4),
                num_experts=6, num_experts_per_token=2, num_shared_experts=1, moe_intermediate_size=32, first_k_dense_replace=1,
                routed_scaling_factor=2.446, moe_renormalize=True, moe_router_activation_func="sigmoid", rope_theta=10000.0),
           "delta nets with a decay for each dimension of a key in three layers, latent attention without positions in one, a dense "
           "layer, experts by a sigmoid with a correction, scaled weights, a shared expert without a gate", "kimi-k2"),
]
