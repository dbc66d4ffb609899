# SPDX-License-Identifier: Apache-2.0
"""The models of tests/golden: one entry each, with the configuration for transformers.

Shapes are as small as possible while every kind of layer occurs; if a family allows it, heads do not divide the width,
windows are not a multiple of a block's 64 slots, and there are more tokens than the trained length. Scales, clips and
caps are strong enough to affect the logits.
"""
import functools
from dataclasses import dataclass, field
from typing import Callable

VOCAB = 320

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
    differs: str = ""                             # why llama.cpp's result differs


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


def recurrent(kind, pattern):
    return [kind if c == "c" else "attention" if kind == "mamba" else "full_attention" for c in pattern]


MAMBA = dict(mamba_n_heads=8, mamba_d_head=12, mamba_d_state=16, mamba_n_groups=1, mamba_expand=2, mamba_d_conv=4)


def mpt_reference(model):
    """transformers computes ALiBi for the trained length only, and always with a largest bias of 8."""
    model.config.max_seq_len = 512
    model.transformer.build_mpt_alibi_tensor = functools.partial(model.transformer.build_mpt_alibi_tensor,
                                                                 alibi_bias_max=model.config.attn_config.alibi_bias_max)


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
    Family("stablelm", "StableLm", dict(**shape(heads=3, kv_heads=3, eps="layer_norm_eps"), partial_rotary_factor=0.25, use_qkv_bias=True),
           "LayerNorm with biases, a quarter of the dimensions rotates, biases of q, k and v", "stablelm2",
           patch={"partial_rotary_factor": 0.25}),
    Family("stablelm-12b", "StableLm",
           dict(**shape(eps="layer_norm_eps"), partial_rotary_factor=0.25, use_parallel_residual=True, qk_layernorm=True),
           "parallel residual with one norm, a LayerNorm of its own for each head's q and k", "stablelm2",
           patch={"partial_rotary_factor": 0.25}),
    Family("starcoder2", "Starcoder2", dict(**shape(ff=192, eps="norm_epsilon"), sliding_window=None),
           "LayerNorm, biases, a plain mlp with tanh GELU", "starcoder"),
    Family("olmo2", "Olmo2", dict(**shape()), "norms only after attention and mlp, one norm over all of q and all of k", "olmo"),
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
    Family("lfm2", "Lfm2",
           dict(**shape(layers=5, heads=4, context=4096, eps="norm_eps"), layer_types=recurrent("conv", "ccfcc"), block_auto_adjust_ff_dim=False,
                conv_L_cache=3, rope_parameters=rope(1000000.0)),
           "gated convolutions of 3 tokens in four layers, attention with norms of q and k in one", "lfm2"),
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
]
