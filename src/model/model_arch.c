/* SPDX-License-Identifier: Apache-2.0 */
/* model_arch.c: the table of architectures. docs/models.md describes each row and how it was verified. */
#include <string.h>

#include "base/compiler.h"
#include "model/model.h"

#define LLAMA (MODEL_PRE_NORM | MODEL_FFN_NORM | MODEL_ROPE | MODEL_FFN_GATED | MODEL_EXPERTS_SUM_1)
#define QWEN (LLAMA | MODEL_ROPE_HALVES)
/* Three delta nets for each layer of attention, whose output has a gate. */
#define QWEN_NEXT (QWEN | MODEL_FFN_NORM_RENAMED | MODEL_QK_NORM | MODEL_HAS_DELTA_NET | MODEL_ATTENTION_GATED)
#define GEMMA (QWEN | MODEL_EMBED_SQRT)
#define GPT2 (MODEL_LAYER_NORM | MODEL_PRE_NORM | MODEL_FFN_NORM)
/* Of BERT: no norm before anything, LayerNorms after each sum and after the embedding. */
#define BERT (MODEL_ENCODER | MODEL_LAYER_NORM | MODEL_EMBED_NORM)
/* Weights of experts sum to 1 only if the metadata have it, and each row passes a shared expert without a gate. */
#define SHARED_EXPERTS(of) (((of) & ~MODEL_EXPERTS_SUM_1) | MODEL_EXPERTS_SHARED)
/* Norms follow attention and the feed-forward, and none precedes them. */
#define POST_NORMS(of) (((of) & ~(MODEL_PRE_NORM | MODEL_FFN_NORM)) | MODEL_POST_NORM)
#define NEOX (MODEL_LAYER_NORM | MODEL_PRE_NORM | MODEL_ROPE | MODEL_ROPE_HALVES)

static const model_arch archs[] = {
    {.name = "llama", .features = LLAMA, .act = KERNEL_SILU},
    {.name = "gpt2", .features = GPT2 | MODEL_POSITIONS, .act = KERNEL_GELU_TANH},
    {.name = "falcon", .features = NEOX | MODEL_PARALLEL, .act = KERNEL_GELU},
    {.name = "mpt", .features = GPT2 | MODEL_ALIBI, .act = KERNEL_GELU},
    {.name = "bloom", .features = GPT2 | MODEL_ALIBI | MODEL_EMBED_NORM, .act = KERNEL_GELU_TANH},
    {.name = "gptneox", .features = NEOX | MODEL_FFN_NORM | MODEL_PARALLEL_TOLD, .act = KERNEL_GELU},
    {.name = "phi2", .features = NEOX | MODEL_PARALLEL, .act = KERNEL_GELU_TANH},
    {.name = "phi3", .features = QWEN, .act = KERNEL_SILU},
    {.name = "qwen2", .features = QWEN, .act = KERNEL_SILU},
    {.name = "qwen2moe",
     .features = (QWEN & ~MODEL_EXPERTS_SUM_1) | MODEL_EXPERTS | MODEL_EXPERTS_SHARED | MODEL_SHARED_GATE,
     .act = KERNEL_SILU},
    {.name = "qwen3", .features = QWEN | MODEL_QK_NORM, .act = KERNEL_SILU},
    {.name = "qwen3moe", .features = QWEN | MODEL_QK_NORM | MODEL_EXPERTS, .act = KERNEL_SILU},
    {.name = "qwen3next",
     .features = QWEN_NEXT | MODEL_DELTA_NEIGHBOURS | MODEL_EXPERTS | MODEL_EXPERTS_SHARED | MODEL_SHARED_GATE,
     .act = KERNEL_SILU},
    {.name = "qwen35", .features = QWEN_NEXT, .act = KERNEL_SILU},
    {.name = "qwen35moe",
     .features = QWEN_NEXT | MODEL_EXPERTS | MODEL_EXPERTS_SHARED | MODEL_SHARED_GATE,
     .act = KERNEL_SILU},
    {.name = "gemma", .features = GEMMA, .act = KERNEL_GELU_TANH},
    {
        .name = "gemma2",
        .features = GEMMA | MODEL_POST_NORM,
        .act = KERNEL_GELU_TANH,
        .global_every = 2,
        .wide_layers = 46,
        .window = 4096,
        .score_cap = 50,
        .logit_cap = 30,
    },
    {
        .name = "gemma3",
        .features = GEMMA | MODEL_POST_NORM | MODEL_QK_NORM | MODEL_ROPE_LOCAL,
        .act = KERNEL_GELU_TANH,
        .global_every = 6,
        .wide_layers = 62,
        .local_base = 10000,
    },
    {
        .name = "gemma3n",
        .features =
            GEMMA | MODEL_POST_NORM | MODEL_QK_NORM | MODEL_ROPE_LOCAL | MODEL_LAYER_EMBEDDINGS | MODEL_STREAMS,
        .act = KERNEL_GELU_TANH,
        .global_every = 5,
        .local_base = 10000,
        .score_scale = 1,
        .values_normed = true,
        .logit_cap = 30,
    },
    {
        .name = "gemma4",
        .features = GEMMA | MODEL_POST_NORM | MODEL_QK_NORM | MODEL_ROPE_LOCAL | MODEL_LAYER_EMBEDDINGS |
                    MODEL_EXPERTS_BESIDE,
        .act = KERNEL_GELU_TANH,
        .global_every = 6,
        .local_base = 10000,
        .score_scale = 1,
        .values_normed = true,
    },
    {.name = "stablelm", .features = NEOX | MODEL_PARALLEL_BARE | MODEL_FFN_GATED, .act = KERNEL_SILU},
    {.name = "starcoder2", .features = GPT2 | MODEL_ROPE | MODEL_ROPE_HALVES, .act = KERNEL_GELU_TANH},
    {
        .name = "olmo2",
        .features = POST_NORMS(QWEN) | MODEL_QK_NORM | MODEL_ROPE_LOCAL,
        .act = KERNEL_SILU,
        .global_every = 4,
    },
    {.name = "command-r",
     .features = MODEL_LAYER_NORM | MODEL_PRE_NORM | MODEL_PARALLEL | MODEL_ROPE | MODEL_FFN_GATED,
     .act = KERNEL_SILU},
    {.name = "deepseek2", .features = SHARED_EXPERTS(LLAMA) | MODEL_LATENT, .act = KERNEL_SILU},
    {.name = "granite", .features = LLAMA | MODEL_LOGIT_DIVISOR, .act = KERNEL_SILU},
    {.name = "smollm3", .features = LLAMA, .act = KERNEL_SILU, .no_rope_every = 4},
    {
        .name = "gpt-oss",
        .features = QWEN | MODEL_FFN_NORM_RENAMED | MODEL_EXPERTS | MODEL_SINKS | MODEL_YARN_EXACT,
        .act = KERNEL_SWIGLU_OAI,
        .global_every = 2,
    },
    {.name = "chatglm", .features = LLAMA, .act = KERNEL_SILU},
    {.name = "glm4", .features = LLAMA | MODEL_POST_NORM, .act = KERNEL_SILU},
    {.name = "glm4moe",
     .features = SHARED_EXPERTS(QWEN) | MODEL_FFN_NORM_RENAMED | MODEL_QK_NORM_IF,
     .act = KERNEL_SILU,
     .experts_sigmoid = true},
    {.name = "exaone4",
     .features = POST_NORMS(QWEN) | MODEL_QK_NORM,
     .act = KERNEL_SILU,
     .global_every = 4,
     .rope_in_windows = true},
    {.name = "seed_oss", .features = QWEN | MODEL_FFN_NORM_RENAMED, .act = KERNEL_SILU},
    {.name = "ernie4_5", .features = LLAMA, .act = KERNEL_SILU},
    {.name = "ernie4_5-moe", .features = SHARED_EXPERTS(LLAMA) | MODEL_EXPERTS_SUM_1, .act = KERNEL_SILU},
    {.name = "cohere2",
     .features = MODEL_LAYER_NORM | MODEL_PRE_NORM | MODEL_PARALLEL | MODEL_ROPE | MODEL_FFN_GATED,
     .act = KERNEL_SILU,
     .global_every = 4,
     .rope_in_windows = true},
    {.name = "granitemoe", .features = LLAMA | MODEL_LOGIT_DIVISOR | MODEL_EXPERTS_SHARED, .act = KERNEL_SILU},
    {.name = "olmoe", .features = (QWEN & ~MODEL_EXPERTS_SUM_1) | MODEL_QK_NORM, .act = KERNEL_SILU},
    {.name = "internlm2", .features = LLAMA, .act = KERNEL_SILU},
    {.name = "qwen2vl", .features = QWEN, .act = KERNEL_SILU},
    {.name = "qwen3vl", .features = QWEN | MODEL_QK_NORM, .act = KERNEL_SILU},
    {.name = "qwen3vlmoe", .features = QWEN | MODEL_QK_NORM | MODEL_EXPERTS, .act = KERNEL_SILU},
    {.name = "deepseek", .features = SHARED_EXPERTS(LLAMA), .act = KERNEL_SILU},
    {.name = "dots1", .features = SHARED_EXPERTS(QWEN) | MODEL_QK_NORM, .act = KERNEL_SILU, .experts_sigmoid = true},
    {.name = "bailingmoe2",
     .features = SHARED_EXPERTS(QWEN) | MODEL_QK_NORM,
     .act = KERNEL_SILU,
     .experts_sigmoid = true},
    {.name = "minimax-m2", .features = QWEN | MODEL_QK_NORM, .act = KERNEL_SILU, .experts_sigmoid = true},
    {.name = "mistral3", .features = LLAMA, .act = KERNEL_SILU},
    {.name = "arcee", .features = LLAMA & ~MODEL_FFN_GATED, .act = KERNEL_RELU_SQUARED},
    {.name = "nemotron", .features = NEOX | MODEL_FFN_NORM, .act = KERNEL_RELU_SQUARED},
    {.name = "apertus", .features = (QWEN & ~MODEL_FFN_GATED) | MODEL_QK_NORM, .act = KERNEL_SILU, .is_xielu = true},
    {
        .name = "lfm2",
        .features = (QWEN & ~MODEL_EXPERTS_SUM_1) | MODEL_QK_NORM | MODEL_HAS_SHORT_CONV | MODEL_OUTPUT_NORM_RENAMED,
        .act = KERNEL_SILU,
    },
    {.name = "lfm2moe",
     .features = QWEN | MODEL_QK_NORM | MODEL_HAS_SHORT_CONV | MODEL_OUTPUT_NORM_RENAMED,
     .act = KERNEL_SILU,
     .experts_sigmoid = true},
    {.name = "granitehybrid",
     .features = LLAMA | MODEL_LOGIT_DIVISOR | MODEL_EXPERTS_SHARED | MODEL_HAS_MAMBA2 | MODEL_ROPE_TOLD,
     .act = KERNEL_SILU},
    {.name = "mamba2", .features = MODEL_PRE_NORM | MODEL_HAS_MAMBA2, .act = KERNEL_SILU},
    {.name = "falcon-h1",
     .features = (QWEN & ~MODEL_FFN_NORM) | MODEL_HAS_MAMBA2,
     .act = KERNEL_SILU,
     .mixes_both = true},
    {.name = "nemotron_h",
     .features = MODEL_PRE_NORM | MODEL_HAS_MAMBA2,
     .act = KERNEL_RELU_SQUARED,
     .is_split = true},
    {.name = "nemotron_h_moe",
     .features = MODEL_PRE_NORM | MODEL_HAS_MAMBA2 | MODEL_EXPERTS | MODEL_EXPERTS_SHARED | MODEL_EXPERTS_SUM_1,
     .act = KERNEL_RELU_SQUARED,
     .is_split = true,
     .experts_sigmoid = true},
    {.name = "mamba", .features = MODEL_PRE_NORM | MODEL_HAS_MAMBA1, .act = KERNEL_SILU},
    {.name = "jamba",
     .features = (LLAMA & ~(MODEL_ROPE | MODEL_EXPERTS_SUM_1)) | MODEL_HAS_MAMBA1 | MODEL_MAMBA1_NORMS,
     .act = KERNEL_SILU,
     .experts_by_router = true},
    {.name = "bert", .features = BERT | MODEL_POSITIONS, .act = KERNEL_GELU},
    {.name = "nomic-bert", .features = BERT | MODEL_ROPE | MODEL_ROPE_HALVES | MODEL_FFN_GATED, .act = KERNEL_SILU},
};

const model_arch *model_arch_find(const char *name, size_t n) {
    for (size_t i = 0; i < BASE_ARRAY_LEN(archs); i++)
        if (strlen(archs[i].name) == n && memcmp(archs[i].name, name, n) == 0) return &archs[i];
    return NULL;
}

const model_arch *model_arch_at(size_t i) { return i < BASE_ARRAY_LEN(archs) ? &archs[i] : NULL; }
