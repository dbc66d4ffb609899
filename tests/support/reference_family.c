/* SPDX-License-Identifier: Apache-2.0 */
/* reference_family.c: the architectures of the slow reference, and a file's keys. Written from tools/golden/README.md.
 * Threads: none. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "reference_weights.h"

static const reference_family families[] = {
    {.name = "afmoe",
     .locality = REFERENCE_LOCAL_THREE_OF_FOUR,
     .rotates_locally = true,
     .root_embedding = true,
     .sigmoid = true},
    {.name = "apertus"},
    {.name = "arcee", .activation = REFERENCE_RELU_SQUARED, .rotation = REFERENCE_ADJACENT},
    {.name = "bailingmoe2"},
    {.name = "bloom", .activation = REFERENCE_GELU_TANH, .rotation = REFERENCE_UNROTATED, .alibi = 8},
    {.name = "chatglm", .rotation = REFERENCE_ADJACENT},
    {.name = "cohere2",
     .rotation = REFERENCE_ADJACENT,
     .locality = REFERENCE_LOCAL_THREE_OF_FOUR,
     .rotates_locally = true,
     .parallel = true},
    {.name = "command-r", .rotation = REFERENCE_ADJACENT, .parallel = true},
    {.name = "deepseek", .rotation = REFERENCE_ADJACENT},
    {.name = "deepseek2", .rotation = REFERENCE_ADJACENT},
    {.name = "deepseek32", .rotation = REFERENCE_ADJACENT, .index_halves = true},
    {.name = "dots1"},
    {.name = "ernie4_5", .rotation = REFERENCE_ADJACENT},
    {.name = "ernie4_5-moe", .rotation = REFERENCE_ADJACENT, .renormalised = true},
    {.name = "exaone4", .locality = REFERENCE_LOCAL_THREE_OF_FOUR, .rotates_locally = true},
    {.name = "exaone-moe", .locality = REFERENCE_LOCAL_THREE_OF_FOUR, .rotates_locally = true},
    {.name = "falcon", .activation = REFERENCE_GELU_ERF, .parallel = true},
    {.name = "gemma", .activation = REFERENCE_GELU_TANH, .root_embedding = true},
    {.name = "gemma2",
     .activation = REFERENCE_GELU_TANH,
     .root_embedding = true,
     .locality = REFERENCE_LOCAL_EVEN,
     .wide_layers = 46},
    {.name = "gemma3",
     .activation = REFERENCE_GELU_TANH,
     .root_embedding = true,
     .locality = REFERENCE_LOCAL_FIVE_OF_SIX,
     .wide_layers = 62},
    {.name = "gemma3n",
     .activation = REFERENCE_GELU_TANH,
     .root_embedding = true,
     .unscaled = true,
     .normed_values = true},
    {.name = "gemma4",
     .activation = REFERENCE_GELU_TANH,
     .root_embedding = true,
     .renormalised = true,
     .unscaled = true,
     .normed_values = true},
    {.name = "glm-dsa", .rotation = REFERENCE_ADJACENT},
    {.name = "glm4", .rotation = REFERENCE_ADJACENT},
    {.name = "glm4moe", .mlp_norm = "post_attention_norm"},
    {
        .name = "gpt-oss",
        .activation = REFERENCE_CLAMPED,
        .locality = REFERENCE_LOCAL_EVEN,
        .renormalised = true,
        .yarn_unrounded = true,
        .mlp_norm = "post_attention_norm",
    },
    {.name = "gpt2", .activation = REFERENCE_GELU_TANH, .rotation = REFERENCE_UNROTATED},
    {.name = "gptneox", .activation = REFERENCE_GELU_ERF},
    {.name = "granite", .rotation = REFERENCE_ADJACENT, .divided_logits = true},
    {.name = "granitemoe", .rotation = REFERENCE_ADJACENT, .divided_logits = true, .renormalised = true},
    {.name = "hunyuan-dense", .norms_rotated = true},
    {.name = "hunyuan-moe", .norms_rotated = true, .renormalised = true},
    {.name = "hy_v3"},
    {.name = "internlm2", .rotation = REFERENCE_ADJACENT},
    {.name = "jais2", .activation = REFERENCE_RELU_SQUARED},
    {.name = "llama", .rotation = REFERENCE_ADJACENT, .renormalised = true},
    {.name = "llama4",
     .rotation = REFERENCE_ADJACENT,
     .locality = REFERENCE_LOCAL_THREE_OF_FOUR,
     .rotates_locally = true,
     .chunk = 8192,
     .normless_experts = 128,
     .sigmoid = true,
     .weighs_inputs = true},
    {.name = "minicpm3", .embedding_scale = 12, .depth_scale = 1.4, .base_width = 256},
    {.name = "minimax-m2", .renormalised = true},
    {.name = "mistral3", .rotation = REFERENCE_ADJACENT},
    {.name = "mistral4", .rotation = REFERENCE_ADJACENT},
    {.name = "mpt", .activation = REFERENCE_GELU_ERF, .rotation = REFERENCE_UNROTATED},
    {.name = "nemotron", .activation = REFERENCE_RELU_SQUARED, .layer_norm = true},
    {.name = "olmo", .rotation = REFERENCE_ADJACENT, .bare_norms = true},
    {.name = "olmo2", .locality = REFERENCE_LOCAL_THREE_OF_FOUR},
    {.name = "olmoe"},
    {.name = "phi2", .activation = REFERENCE_GELU_TANH, .parallel = true},
    {.name = "phi3"},
    {.name = "qwen2"},
    {.name = "qwen2moe"},
    {.name = "qwen2vl"},
    {.name = "qwen3"},
    {.name = "qwen3moe", .renormalised = true},
    {.name = "qwen3vl"},
    {.name = "qwen3vlmoe", .renormalised = true},
    {.name = "seed_oss", .mlp_norm = "post_attention_norm"},
    {.name = "smollm3", .rotation = REFERENCE_ADJACENT, .unrotated_every = 4},
    {.name = "stablelm", .parallel_without_norm = true},
    {.name = "starcoder", .activation = REFERENCE_GELU_TANH, .rotation = REFERENCE_UNROTATED},
    {.name = "starcoder2", .activation = REFERENCE_GELU_TANH},
};

/* ---- keys ------------------------------------------------------------------------------------------------------ */

static const char *full_key(reference_opening *o, const char *key, char *buffer, size_t bytes) {
    snprintf(buffer, bytes, "%s.%s", o->m->family->name, key);
    return buffer;
}

int32_t reference_number(reference_opening *o, const char *key, int64_t otherwise) {
    char full[128];
    uint64_t v = 0;
    if (gguf_get_u64(o->f, full_key(o, key, full, sizeof full), &v)) return (int32_t)v;
    if (otherwise < 0) o->rc = base_fail(o->err, RP_ERR_FORMAT, "reference: no %s", full);
    return (int32_t)otherwise;
}

int32_t reference_layer_number(reference_opening *o, const char *key, int32_t layer, int64_t otherwise) {
    char full[128];
    gguf_array list;
    uint32_t v;
    if (!gguf_get_array(o->f, full_key(o, key, full, sizeof full), &list)) return reference_number(o, key, otherwise);
    memcpy(&v, (const char *)list.data + (size_t)layer * sizeof v, sizeof v);
    return (int32_t)v;
}

double reference_real(reference_opening *o, const char *key, double otherwise) {
    char full[128];
    gguf_get_f64(o->f, full_key(o, key, full, sizeof full), &otherwise);
    return otherwise;
}

bool reference_has(reference_opening *o, const char *key) {
    char full[128];
    return gguf_has(o->f, full_key(o, key, full, sizeof full));
}

static void find_family(reference_opening *o) {
    gguf_string name = {0};
    gguf_get_string(o->f, "general.architecture", &name);
    for (size_t i = 0; i < BASE_ARRAY_LEN(families); i++)
        if (name.n == strlen(families[i].name) && memcmp(name.bytes, families[i].name, name.n) == 0)
            o->m->family = &families[i];
    if (!o->m->family)
        o->rc =
            base_fail(o->err, RP_ERR_UNSUPPORTED, "reference: unknown architecture '%.*s'", (int)name.n, name.bytes);
}

static void read_sizes(reference_opening *o) {
    reference_model *m = o->m;
    m->n_layers = reference_number(o, "block_count", -1);
    m->n_embd = reference_number(o, "embedding_length", -1);
    m->n_heads = reference_number(o, "attention.head_count", -1);
    m->n_trained = reference_number(o, "context_length", -1);
    if (o->rc) return;
    if (m->n_ctx == 0) m->n_ctx = m->n_trained;
    m->n_latent = reference_number(o, "attention.kv_lora_rank", 0);
    if (m->n_latent > 0) m->n_rotated = reference_number(o, "rope.dimension_count", -1);
    m->n_index_heads = reference_number(o, "attention.indexer.head_count", 0);
    m->index_dim = reference_number(o, "attention.indexer.key_length", 0);
    m->n_index_chosen = reference_number(o, "attention.indexer.top_k", 0);
    m->n_streams = reference_number(o, "altup.num_inputs", 0);
    m->n_layer_embd = reference_number(o, "embedding_length_per_layer_input", 0);
    m->n_experts = reference_number(o, "expert_count", 0);
    m->n_used = reference_number(o, "expert_used_count", 0);
    m->n_groups = reference_number(o, "expert_group_count", 1);
    m->n_used_groups = reference_number(o, "expert_group_used_count", m->n_groups);
    m->sigmoid = reference_number(o, "expert_gating_func", m->family->sigmoid ? 2 : 1) == 2;
    m->expert_scale = reference_real(o, "expert_weights_scale", 1);
    m->window = reference_number(o, "attention.sliding_window", m->family->chunk);
    const bool is_tempered = m->family->chunk > 0 && m->window > 0; /* layers without positions, by convention */
    m->temperature = reference_real(o, "attention.temperature_scale", is_tempered ? 0.1 : 0);
    m->temperature_length = reference_number(
        o, "attention.temperature_length",
        is_tempered ? m->family->chunk : reference_number(o, "rope.scaling.original_context_length", m->n_trained));
    m->n_shared_layers = reference_number(o, "attention.shared_kv_layers", 0);
    m->layers = reference_alloc((size_t)m->n_layers, sizeof *m->layers);
    for (int32_t i = 0; i < m->n_layers; i++) {
        reference_read_layer_shape(o, i);
        m->n_kv_heads = m->layers[i].n_kv_heads > m->n_kv_heads ? m->layers[i].n_kv_heads : m->n_kv_heads;
        m->key_dim = m->layers[i].key_dim > m->key_dim ? m->layers[i].key_dim : m->key_dim;
        m->value_dim = m->layers[i].value_dim > m->value_dim ? m->layers[i].value_dim : m->value_dim;
    }
}

static void read_scales(reference_opening *o) {
    reference_model *m = o->m;
    const bool wide = m->family->wide_layers == m->n_layers;
    const double root = sqrt(wide ? (double)m->n_embd / m->n_heads : m->key_dim);
    m->score_scale = reference_real(o, "attention.scale", m->family->unscaled ? 1 : 1 / root);
    if (m->n_latent > 0 && reference_has(o, "rope.scaling.yarn_log_multiplier")) {
        const double log_factor = log(reference_real(o, "rope.scaling.factor", 1));
        m->score_scale *= pow(1 + reference_real(o, "rope.scaling.yarn_log_multiplier", 0) * log_factor, 2);
    }
    m->score_cap = reference_real(o, "attn_logit_softcapping", 0);
    m->logit_cap = reference_real(o, "final_logit_softcapping", 0);
    m->clamp = reference_real(o, "attention.clamp_kqv", 0);
    m->alibi = reference_real(o, "attention.max_alibi_bias", m->family->alibi);
    const reference_family *f = m->family;
    m->embedding_scale = reference_real(o, "embedding_scale",
                                        f->root_embedding        ? sqrt(m->n_embd)
                                        : f->embedding_scale > 0 ? f->embedding_scale
                                                                 : 1);
    const double by_depth = f->depth_scale > 0 ? f->depth_scale / sqrt(m->n_layers) : 1;
    m->residual_scale = reference_real(o, "residual_scale", by_depth);
    m->logit_scale = reference_real(o, "logit_scale", f->base_width > 0 ? f->base_width / m->n_embd : 1);
    if (m->family->divided_logits) m->logit_scale = 1 / m->logit_scale;
}

void reference_read_keys(reference_opening *o) {
    find_family(o);
    if (!o->rc) read_sizes(o);
    if (o->rc) return;
    read_scales(o);
    o->m->layer_norm = o->m->family->layer_norm || (!reference_has(o, "attention.layer_norm_rms_epsilon") &&
                                                    reference_has(o, "attention.layer_norm_epsilon"));
    o->m->eps =
        reference_real(o, o->m->layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 1e-5);
    o->m->parallel = o->m->family->parallel;
    o->m->renormalised = o->m->family->renormalised;
    char norm[128];
    gguf_get_bool(o->f, full_key(o, "expert_weights_norm", norm, sizeof norm), &o->m->renormalised);
    if (strcmp(o->m->family->name, "gptneox") == 0) {
        o->m->parallel = true;
        gguf_get_bool(o->f, "gptneox.use_parallel_residual", &o->m->parallel);
    }
}

bool reference_layer_is_local(reference_opening *o, int32_t layer) {
    const reference_model *m = o->m;
    char full[128];
    gguf_array list;
    if (m->window == 0) return false;
    if (gguf_get_array(o->f, full_key(o, "attention.sliding_window_pattern", full, sizeof full), &list))
        return ((const uint8_t *)list.data)[layer] != 0;
    if (m->family->locality == REFERENCE_LOCAL_EVEN) return layer % 2 == 0;
    if (m->family->locality == REFERENCE_LOCAL_FIVE_OF_SIX) return (layer + 1) % 6 != 0;
    if (m->family->locality == REFERENCE_LOCAL_THREE_OF_FOUR) return (layer + 1) % 4 != 0;
    return true;
}

void reference_read_layer_shape(reference_opening *o, int32_t i) {
    const reference_model *m = o->m;
    reference_layer *l = &m->layers[i];
    const bool has_own = reference_has(o, "attention.key_length_mla");
    const int32_t usual = m->n_embd / m->n_heads, key = reference_number(o, "attention.key_length", usual),
                  value = reference_number(o, "attention.value_length", usual);
    const bool is_local = reference_layer_is_local(o, i);
    l->n_ff = reference_layer_number(o, "feed_forward_length", i, -1);
    l->n_kv_heads = reference_layer_number(o, "attention.head_count_kv", i, m->n_heads);
    l->key_dim = is_local ? reference_number(o, "attention.key_length_swa", key) : key;
    l->value_dim = is_local ? reference_number(o, "attention.value_length_swa", value) : value;
    if (m->n_latent == 0) return;
    l->n_kv_heads = m->n_heads;
    if (has_own) l->key_dim = reference_number(o, "attention.key_length_mla", -1);
    if (has_own) l->value_dim = reference_number(o, "attention.value_length_mla", -1);
}
