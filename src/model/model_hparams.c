/* SPDX-License-Identifier: Apache-2.0 */
/* model_hparams.c: hyper-parameters from the metadata of the file, each checked against its range and the others. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/model_internal.h"

#define KEY_BYTES 128

/* "<arch>.<key>" */
static const char *full_key(const rp_model *m, const char *key, char full[KEY_BYTES]) {
    const int n = snprintf(full, KEY_BYTES, "%s.%s", m->arch->name, key);
    BASE_ASSERT(n < KEY_BYTES); /* both are ours */
    (void)n;
    return full;
}

/* A number, or an array with the same number for every layer. */
static bool get_number(const rp_model *m, const char *full, uint64_t *out) {
    gguf_array a;
    uint32_t first, v;
    if (gguf_get_u64(m->file, full, out)) return true;
    if (!gguf_get_array(m->file, full, &a) || a.n == 0 || (a.type != GGUF_U32 && a.type != GGUF_I32)) return false;
    memcpy(&first, a.data, sizeof(first));
    for (uint64_t i = 1; i < a.n; i++) {
        memcpy(&v, (const char *)a.data + i * sizeof(v), sizeof(v));
        if (v != first) return false;
    }
    *out = first;
    return true;
}

/* Reads an integer in [min, max]. fallback < 0: the key is required. */
static int read_int(const rp_model *m, const char *key, int32_t min, int32_t max, int32_t fallback, int32_t *out,
                    rp_error *err) {
    BASE_ASSERT(min >= 0 && min <= max);
    char full[KEY_BYTES];
    uint64_t v = 0;
    if (!get_number(m, full_key(m, key, full), &v)) {
        if (gguf_has(m->file, full))
            return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                                "metadata '%s' is not a single number: models with different layers are not supported",
                                full);
        if (fallback < 0)
            return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0,
                                "metadata '%s' is missing: the model file is incomplete", full);
        *out = fallback;
        return RP_OK;
    }
    if (v < (uint64_t)min || v > (uint64_t)max)
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "metadata '%s' is %llu, expected %d to %d", full,
                            (unsigned long long)v, min, max);
    *out = (int32_t)v;
    return RP_OK;
}

static int model_hparams_read_size(const rp_model *m, const char *key, int32_t max, int32_t fallback, int32_t *out,
                                   rp_error *err) {
    return read_int(m, key, 1, max, fallback, out, err);
}

/* Reads a finite number in [min, max]. */
static int read_number(const rp_model *m, const char *key, double min, double max, double fallback, double *out,
                       rp_error *err) {
    char full[KEY_BYTES];
    *out = fallback;
    if (!gguf_get_f64(m->file, full_key(m, key, full), out) || (*out >= min && *out <= max)) return RP_OK;
    return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "metadata '%s' is %g, expected %g to %g", full, *out,
                        min, max);
}

static int read_float(const rp_model *m, const char *key, double min, double max, double fallback, float *out,
                      rp_error *err) {
    double v;
    int rc = read_number(m, key, min, max, fallback, &v, err);
    *out = (float)v;
    return rc;
}

static bool read_flag(const rp_model *m, const char *key, bool fallback) {
    char full[KEY_BYTES];
    bool v = fallback;
    gguf_get_bool(m->file, full_key(m, key, full), &v);
    return v;
}

/* Numbers beyond these limits are invalid: they would overflow or underflow in f32. */
#define SMALL 1e-12
#define LARGE 1e12

/* ---- rotation ---- */

static int read_rope_scaling(rp_model *m, rp_error *err) {
    model_hparams *hp = &m->net.hp;
    char full[KEY_BYTES];
    gguf_string type;
    bool linear = !gguf_has(m->file, full_key(m, "rope.scaling.type", full)) &&
                  gguf_has(m->file, full_key(m, "rope.scaling.factor", full));
    if (gguf_get_string(m->file, full_key(m, "rope.scaling.type", full), &type)) {
        linear = gguf_string_is(type, "linear");
        hp->rope.yarn = gguf_string_is(type, "yarn");
        if (!linear && !hp->rope.yarn && !gguf_string_is(type, "none") && !gguf_string_is(type, "longrope"))
            return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                                "rope scaling '%.*s' is not supported (supported: none, linear, yarn, longrope, and "
                                "the factors of Llama 3)",
                                (int)BASE_MIN(type.n, 32), type.bytes);
    }
    int rc = read_number(m, linear || hp->rope.yarn ? "rope.scaling.factor" : "rope.scale_linear", SMALL, LARGE, 1.0,
                         &hp->rope.factor, err);
    if (rc || !hp->rope.yarn) return rc;
    hp->rope.yarn_truncate = read_flag(m, "rope.scaling.yarn_truncate", !(m->arch->features & MODEL_YARN_EXACT));
    double magnitude, less, growth = 0.1 * log(BASE_MAX(hp->rope.factor, 1.0));
    if ((rc = read_number(m, "rope.scaling.yarn_log_multiplier", 0.0, LARGE, 0.0, &less, err))) return rc;
    double usual = (1.0 + growth) / (1.0 + less * growth);
    if (hp->plain_key_dim > 0) { /* of scores alone, and in the file times 0.1 */
        const double all = 1.0 + 10.0 * less * growth;
        hp->score_scale *= (float)(all * all);
        usual = 1.0;
    }
    if ((rc = read_number(m, "rope.scaling.yarn_attn_factor", SMALL, LARGE, usual, &magnitude, err))) return rc;
    hp->rope.magnitude *= magnitude;
    if (m->arch->features & MODEL_QK_NORM_ROTATED) hp->rope.magnitude = 1.0; /* the norms undo it */
    if ((rc = read_number(m, "rope.scaling.yarn_beta_fast", SMALL, LARGE, 32.0, &hp->rope.beta_fast, err))) return rc;
    return read_number(m, "rope.scaling.yarn_beta_slow", SMALL, LARGE, 1.0, &hp->rope.beta_slow, err);
}

static int read_rope(rp_model *m, rp_error *err) {
    model_hparams *hp = &m->net.hp;
    int rc;
    if (!(m->arch->features & MODEL_ROPE) || hp->n_heads == 0) return RP_OK;
    if ((m->arch->features & MODEL_ROPE_TOLD) && !read_flag(m, "rope.scaling.finetuned", false)) return RP_OK;
    if ((rc = model_hparams_read_size(m, "rope.dimension_count", hp->key_dim, hp->key_dim, &hp->rot_dim, err)) ||
        (rc = read_number(m, "rope.freq_base", 1.0 + SMALL, LARGE, 10000.0, &hp->rope.base, err)) ||
        (rc = read_number(m, "rope.freq_base_swa", 1.0 + SMALL, LARGE,
                          m->arch->local_base > 0 ? m->arch->local_base : hp->rope.base, &hp->rope.base_local, err)) ||
        (rc = read_number(m, "rope.scaling.attn_factor", SMALL, LARGE, 1.0, &hp->rope.magnitude, err)) ||
        (rc = model_hparams_read_size(m, "rope.scaling.original_context_length", MODEL_MAX_CONTEXT, hp->n_ctx_train,
                                      &hp->rope.n_ctx_original, err)))
        return rc;
    rc = model_hparams_read_size(m, "rope.dimension_count_swa", hp->key_dim, hp->rot_dim, &hp->rope.rot_dim_local, err);
    if (rc) return rc;
    for (int32_t i = 0; i < hp->n_layers; i++) {
        const bool is_local = m->net.layers[i].window > 0 && (m->arch->features & MODEL_ROPE_LOCAL);
        const int32_t rotated = is_local ? hp->rope.rot_dim_local : hp->rot_dim;
        if (rotated % 2 || rotated > m->net.layers[i].key_dim)
            return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0,
                                "%d rotary dimensions in heads of %d: expected an even number, at most those", rotated,
                                m->net.layers[i].key_dim);
    }
    if ((rc = read_rope_scaling(m, err))) return rc;
    const bool is_usual = m->arch->temperature.scale > 0 && hp->window > 0;
    hp->temperature.offset = m->arch->temperature.offset;
    if ((rc = model_hparams_read_size(m, "attention.temperature_length", MODEL_MAX_CONTEXT,
                                      is_usual ? m->arch->temperature.length : hp->rope.n_ctx_original,
                                      &hp->temperature.length, err)))
        return rc;
    return read_float(m, "attention.temperature_scale", 0.0, LARGE, is_usual ? m->arch->temperature.scale : 0.0,
                      &hp->temperature.scale, err);
}

/* ---- shape ---- */

/* Files give the layers with a window as a period, as a list, or not at all. */
static int read_window(rp_model *m, rp_error *err) {
    model_hparams *hp = &m->net.hp;
    char full[KEY_BYTES];
    gguf_array list;
    int rc = read_int(m, "attention.sliding_window", 0, INT32_MAX, m->arch->window, &hp->window, err);
    if (rc) return rc;
    if (hp->window > MODEL_MAX_CONTEXT) hp->window = 0; /* wider than any context */
    hp->global_every = m->arch->global_every;
    hp->windows_are_chunks = m->arch->windows_are_chunks;
    hp->windows_are_centred = model_is_encoder(m);
    if (hp->windows_are_centred && hp->window > 0) hp->window = hp->window / 2 * 2 + 1; /* with the token itself */
    const bool is_listed = gguf_get_array(m->file, full_key(m, MODEL_WINDOW_PATTERN, full), &list);
    if (!is_listed)
        rc = read_int(m, MODEL_WINDOW_PATTERN, 0, MODEL_MAX_LAYERS, hp->global_every, &hp->global_every, err);
    if (rc) return rc;
    if (is_listed && (list.type != GGUF_BOOL || list.n < (uint64_t)hp->n_layers))
        return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                            "metadata '%s' is not a list of booleans for %d layers", full, hp->n_layers);
    for (int32_t i = 0; i < hp->n_layers; i++) {
        const int32_t at = i + (m->arch->global_first ? hp->global_every - 1 : 0);
        const bool is_global = hp->global_every > 0 && (at + 1) % hp->global_every == 0;
        if (is_listed ? ((const uint8_t *)list.data)[i] != 0 : !is_global) m->net.layers[i].window = hp->window;
    }
    return RP_OK;
}

/* ---- numbers of layers ---- */

#define KV_HEADS "attention.head_count_kv"
#define FEED_FORWARD "feed_forward_length"
#define RECURRENT_LAYERS "attention.recurrent_layers" /* booleans */

/* A layer's number in a list of them; -1: there is no list, or it is too short. */
static int64_t listed(const rp_model *m, const char *key, int32_t layer) {
    char full[KEY_BYTES];
    gguf_array list;
    uint32_t n;
    if (!gguf_get_array(m->file, full_key(m, key, full), &list) || (uint64_t)layer >= list.n ||
        (list.type != GGUF_U32 && list.type != GGUF_I32))
        return -1;
    memcpy(&n, (const char *)list.data + (size_t)layer * sizeof(n), sizeof(n));
    return n;
}

/* Reads an integer for each layer, one of [min, max] for all or a list of those from min_listed on, into a member of
 * model_layer; *most: the largest. fallback < 0: the key is required. */
static int read_layer_numbers(rp_model *m, const char *key, int32_t min, int32_t min_listed, int32_t max,
                              int32_t fallback, size_t member, int32_t *most, rp_error *err) {
    const bool is_listed = listed(m, key, 0) >= 0;
    int rc = is_listed ? RP_OK : read_int(m, key, min, max, fallback, most, err);
    if (rc) return rc;
    const int32_t single = is_listed ? 0 : *most;
    if (is_listed) *most = 0;
    for (int32_t i = 0; i < m->net.hp.n_layers; i++) {
        const int64_t n = is_listed ? listed(m, key, i) : single;
        if (is_listed && (n < min_listed || n > max))
            return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0,
                                "metadata '%s.%s' is not a list of numbers from %d to %d for %d layers", m->arch->name,
                                key, min_listed, max, m->net.hp.n_layers);
        *(int32_t *)((char *)&m->net.layers[i] + member) = (int32_t)n;
        *most = BASE_MAX(*most, (int32_t)n);
    }
    return RP_OK;
}

/* Widths of heads, those of layers with a window apart. */
static int read_head_dims(rp_model *m, rp_error *err) {
    model_hparams *hp = &m->net.hp;
    const int32_t usual = hp->n_embd / hp->n_heads;
    int32_t key, value, key_local, value_local;
    int rc;
    BASE_ASSERT(usual > 0);
    if ((rc = model_hparams_read_size(m, "attention.key_length", 4096, usual, &key, err)) ||
        (rc = model_hparams_read_size(m, "attention.value_length", 4096, usual, &value, err)) ||
        (rc = model_hparams_read_size(m, "attention.key_length_swa", 4096, key, &key_local, err)) ||
        (rc = model_hparams_read_size(m, "attention.value_length_swa", 4096, value, &value_local, err)))
        return rc;
    if (key_local != key && m->arch->score_scale == 0)
        return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                            "heads of %d and %d dimensions, whose scores have different scales, are not supported", key,
                            key_local);
    for (int32_t i = 0; i < hp->n_layers; i++) {
        model_layer *l = &m->net.layers[i];
        l->key_dim = l->window > 0 ? key_local : key;
        l->value_dim = l->window > 0 ? value_local : value;
        hp->key_dim = BASE_MAX(hp->key_dim, l->key_dim);
        hp->value_dim = BASE_MAX(hp->value_dim, l->value_dim);
    }
    return RP_OK;
}

/* Heads that share a KV head are as many for each of them, and widths stay within 32 bits. */
static int check_heads(const rp_model *m, rp_error *err) {
    for (int32_t i = 0; i < m->net.hp.n_layers; i++) {
        const model_layer *l = &m->net.layers[i];
        if (l->n_kv_heads < 1 || l->n_heads % l->n_kv_heads)
            return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0,
                                "%d heads cannot share %d key-value heads evenly", l->n_heads, l->n_kv_heads);
    }
    const model_hparams *hp = &m->net.hp;
    if ((m->arch->features & MODEL_ATTENTION_GATED) && hp->key_dim != hp->value_dim)
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0,
                            "gates of attention with keys of %d and values of %d dimensions: they must be equal",
                            hp->key_dim, hp->value_dim);
    if ((m->arch->features & MODEL_ALIBI) && listed(m, "attention.head_count", 0) >= 0)
        return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                            "ALiBi with a list of numbers of heads is not supported");
    if ((int64_t)hp->n_heads * BASE_MAX(hp->key_dim, hp->value_dim) <= MODEL_MAX_DIM) return RP_OK;
    return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "%d heads of %d and %d dimensions", hp->n_heads,
                        hp->key_dim, hp->value_dim);
}

model_mixer model_layer_mixer(const rp_model *m, int32_t layer) {
    if (layer >= m->net.hp.n_layers) return MODEL_ATTENTION; /* of a draft head */
    if (m->arch->features & MODEL_HAS_DELTA_NET) {
        char full[KEY_BYTES];
        gguf_array list;
        const bool is_listed = gguf_get_array(m->file, full_key(m, RECURRENT_LAYERS, full), &list);
        BASE_ASSERT(!is_listed || (uint64_t)layer < list.n); /* read_delta_layers */
        const bool is_attention =
            is_listed ? ((const uint8_t *)list.data)[layer] == 0 : (layer + 1) % m->attention_every == 0;
        return is_attention ? MODEL_ATTENTION : MODEL_DELTA_NET;
    }
    if (!(m->arch->features & MODEL_RECURRENT)) return MODEL_ATTENTION;
    if (m->arch->mixes_both) return MODEL_ATTENTION_MAMBA2;
    if (m->net.hp.n_heads > 0 && listed(m, KV_HEADS, layer) != 0) return MODEL_ATTENTION;
    if (m->arch->is_split && model_layer_has_ffn(m, layer)) return MODEL_NO_MIXER;
    if (m->arch->features & MODEL_HAS_MAMBA1) return MODEL_MAMBA1;
    if (m->arch->features & MODEL_HAS_KIMI_DELTA) return MODEL_KIMI_DELTA;
    return m->arch->features & MODEL_HAS_SHORT_CONV ? MODEL_SHORT_CONV : MODEL_MAMBA2;
}

bool model_layer_has_ffn(const rp_model *m, int32_t layer) {
    if (m->net.hp.n_ff == 0) return false;
    return !m->arch->is_split || (listed(m, FEED_FORWARD, layer) != 0 && listed(m, KV_HEADS, layer) == 0);
}

/* Latent attention. Newer files have the lengths of a latent vector and, as _mla, those of a head; older ones those of
   a head. */
static int read_latent(rp_model *m, rp_error *err) {
    model_hparams *hp = &m->net.hp;
    char full[KEY_BYTES];
    const bool is_newer = gguf_has(m->file, full_key(m, "attention.key_length_mla", full));
    int32_t own, rotated;
    int rc;
    if ((rc = model_hparams_read_size(m, is_newer ? "attention.key_length_mla" : "attention.key_length", 4096, -1, &own,
                                      err)) ||
        (rc = model_hparams_read_size(m, is_newer ? "attention.value_length_mla" : "attention.value_length", 4096,
                                      is_newer ? -1 : hp->n_embd / hp->n_heads, &hp->head_value_dim, err)) ||
        (rc = model_hparams_read_size(m, "attention.kv_lora_rank", 16384, -1, &hp->value_dim, err)) ||
        (rc = read_int(m, "attention.q_lora_rank", 0, MODEL_MAX_DIM, 0, &hp->n_query_latent, err)) ||
        (rc = model_hparams_read_size(m, "rope.dimension_count", 4096, -1, &rotated, err)))
        return rc;
    if (rotated >= own || hp->window > 0)
        return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                            "latent attention with %d rotated of %d key dimensions and a window of %d: fewer rotated "
                            "ones, and no window, are supported",
                            rotated, own, hp->window);
    hp->rot_dim = rotated;
    hp->plain_key_dim = own - rotated;
    hp->key_dim = rotated + hp->value_dim;
    hp->n_kv_heads = 1;
    for (int32_t i = 0; i < hp->n_layers; i++) {
        model_layer *l = &m->net.layers[i];
        l->n_kv_heads = 1;
        l->key_dim = hp->key_dim;
        l->value_dim = hp->value_dim;
    }
    if ((int64_t)hp->n_heads * BASE_MAX(hp->key_dim, own) > MODEL_MAX_DIM)
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "%d heads of %d dimensions", hp->n_heads,
                            hp->key_dim);
    return RP_OK;
}

#define INDEXERS "attention.indexer.types" /* booleans */

bool model_layer_has_indexer(const rp_model *m, int32_t layer) {
    char full[KEY_BYTES];
    gguf_array list;
    if (!(m->arch->features & MODEL_HAS_INDEXER)) return false;
    const bool is_listed = gguf_get_array(m->file, full_key(m, INDEXERS, full), &list);
    BASE_ASSERT(!is_listed || (uint64_t)layer < list.n); /* read_indexers */
    return !is_listed || ((const uint8_t *)list.data)[layer] != 0;
}

/* After read_latent. Layers without an indexer have the choice of an earlier layer. */
static int read_indexers(rp_model *m, rp_error *err) {
    model_hparams *hp = &m->net.hp;
    char full[KEY_BYTES];
    gguf_array list;
    const int32_t n_layers = hp->n_layers - hp->n_draft_layers; /* the list has no layers for drafts */
    int rc;
    if (!(m->arch->features & MODEL_HAS_INDEXER)) return RP_OK;
    if ((rc = model_hparams_read_size(m, "attention.indexer.head_count", 4096, -1, &hp->n_index_heads, err)) ||
        (rc = model_hparams_read_size(m, "attention.indexer.key_length", 4096, -1, &hp->index_dim, err)) ||
        (rc = model_hparams_read_size(m, "attention.indexer.top_k", INT32_MAX, -1, &hp->index_top_k, err)))
        return rc;
    hp->index_halves = m->arch->index_halves;
    if (hp->n_query_latent == 0 || hp->rot_dim > hp->index_dim)
        return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                            "an indexer of %d dimensions, %d of them rotated, with %d latent ones of queries: it needs "
                            "latent queries, and at least the rotated dimensions",
                            hp->index_dim, hp->rot_dim, hp->n_query_latent);
    if (!gguf_get_array(m->file, full_key(m, INDEXERS, full), &list)) return RP_OK;
    if (list.type == GGUF_BOOL && list.n >= (uint64_t)n_layers && ((const uint8_t *)list.data)[0] != 0) return RP_OK;
    return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                        "metadata '%s' is not a list of booleans for %d layers, the first of which has an indexer",
                        full, n_layers);
}

#define L(member) offsetof(model_layer, member)

static int read_heads(rp_model *m, rp_error *err) {
    model_hparams *hp = &m->net.hp;
    const int32_t least_listed = m->arch->features & MODEL_RECURRENT ? 0 : 1;
    int rc;
    /* without heads, every layer recurs; a list of KV heads has 0 for a layer that recurs alone */
    const int32_t least = (m->arch->features & MODEL_RECURRENT & ~MODEL_HAS_DELTA_NET) && !m->arch->mixes_both ? 0 : 1;
    rc = read_layer_numbers(m, "attention.head_count", least, 1, hp->n_embd, -1, L(n_heads), &hp->n_heads, err);
    if (rc || hp->n_heads == 0) return rc;
    if ((rc = read_layer_numbers(m, KV_HEADS, 1, least_listed, hp->n_heads, hp->n_heads, L(n_kv_heads),
                                 &hp->n_kv_heads, err)) ||
        (rc = read_window(m, err)))
        return rc;
    if (hp->n_kv_heads == 0) hp->n_kv_heads = hp->n_heads; /* all layers are recurrent */
    for (int32_t i = 0; i < hp->n_layers; i++) {
        model_layer *l = &m->net.layers[i];
        if (l->n_kv_heads == 0) l->n_heads = l->n_kv_heads = hp->n_kv_heads; /* recurrent: not used */
    }
    rc = m->arch->features & MODEL_LATENT ? read_latent(m, err) : read_head_dims(m, err);
    if (!rc) rc = read_indexers(m, err);
    if (!rc) rc = check_heads(m, err);
    return rc ? rc : read_int(m, "attention.shared_kv_layers", 0, hp->n_layers - 1, 0, &hp->n_shared, err);
}

/* Of expert_gating_func. The third is a softmax over the selected experts: the first with weights that sum to 1. */
enum { GATING_UNSET,
       GATING_SOFTMAX,
       GATING_SIGMOID,
       GATING_SOFTMAX_SELECTED };

static int read_routing(rp_model *m, rp_error *err) {
    model_hparams *hp = &m->net.hp;
    int32_t gating;
    int rc;
    if ((rc = read_int(m, "expert_gating_func", 0, INT32_MAX, GATING_UNSET, &gating, err)) ||
        (rc = read_float(m, "expert_weights_scale", 0.0, LARGE, 1.0, &hp->experts_scale, err)) ||
        (rc = read_int(m, "expert_group_count", 0, hp->n_experts, 0, &hp->n_expert_groups, err)) ||
        (rc = read_int(m, "expert_group_used_count", 0, BASE_MAX(hp->n_expert_groups, 1), hp->n_expert_groups,
                       &hp->n_expert_groups_used, err)))
        return rc;
    if (gating > GATING_SOFTMAX_SELECTED)
        return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                            "expert gating function %d is not supported (supported: softmax 1, sigmoid 2, softmax of "
                            "the selected experts 3)",
                            gating);
    hp->experts_sigmoid = gating == GATING_UNSET ? m->arch->experts_sigmoid : gating == GATING_SIGMOID;
    hp->experts_sum_1 = gating == GATING_SOFTMAX_SELECTED ||
                        read_flag(m, "expert_weights_norm", (m->arch->features & MODEL_EXPERTS_SUM_1) != 0);
    hp->experts_read_weighed = m->arch->experts_read_weighed;
    if (hp->experts_scale == 0) hp->experts_scale = 1; /* not used */
    if (hp->n_expert_groups <= 1 || hp->n_expert_groups_used == hp->n_expert_groups) hp->n_expert_groups = 0;
    if (hp->n_expert_groups == 0) return RP_OK;
    const int32_t group = hp->n_experts / hp->n_expert_groups;
    if (hp->n_experts % hp->n_expert_groups || group * hp->n_expert_groups_used < hp->n_experts_used)
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0,
                            "%d experts cannot be selected from %d of %d groups of %d experts", hp->n_experts_used,
                            hp->n_expert_groups_used, hp->n_expert_groups, hp->n_experts);
    return RP_OK;
}

/* The width of the shared expert, or of several as one. Without a gate it is that of the tensors: files do not agree on
 * what the key means. */
static int read_shared(rp_model *m, rp_error *err) {
    model_hparams *hp = &m->net.hp;
    if (m->arch->features & MODEL_EXPERTS_BESIDE) hp->n_ff_shared = hp->n_ff;
    if (m->arch->features & MODEL_SHARED_GATE)
        return model_hparams_read_size(m, "expert_shared_feed_forward_length", MODEL_MAX_DIM, hp->n_ff,
                                       &hp->n_ff_shared, err);
    const gguf_tensor *up = NULL;
    for (int32_t i = 0; i < hp->n_layers && !up; i++) {
        char name[64];
        snprintf(name, sizeof(name), "blk.%d.ffn_up_shexp.weight", i);
        up = gguf_find_tensor(m->file, name);
    }
    if (!up || !(m->arch->features & MODEL_EXPERTS_SHARED)) return RP_OK;
    if (up->dims[1] > MODEL_MAX_DIM)
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "a shared expert of width %lld",
                            (long long)up->dims[1]);
    hp->n_ff_shared = (int32_t)up->dims[1];
    return RP_OK;
}

static int read_experts(rp_model *m, rp_error *err) {
    model_hparams *hp = &m->net.hp;
    int rc;
    if ((rc = read_int(m, "expert_count", 0, MODEL_MAX_EXPERTS, m->arch->features & MODEL_EXPERTS ? -1 : 0,
                       &hp->n_experts, err)) ||
        hp->n_experts == 0)
        return rc;
    if ((rc = model_hparams_read_size(m, "expert_used_count", hp->n_experts, -1, &hp->n_experts_used, err)) ||
        (rc = read_routing(m, err)) ||
        (rc = read_int(m, "leading_dense_block_count", 0, hp->n_layers - 1, 0, &hp->n_dense, err)) ||
        (rc = model_hparams_read_size(m, "interleave_moe_layer_step", hp->n_layers, 1, &hp->experts_every, err)))
        return rc;
    /* Files of early 2024 give the summed width of all experts that a row passes. */
    int32_t width = m->arch->features & MODEL_EXPERTS ? BASE_MAX(hp->n_ff / hp->n_experts_used, 1) : hp->n_ff;
    if ((rc = model_hparams_read_size(m, "expert_feed_forward_length", MODEL_MAX_DIM, width, &hp->n_ff_expert, err)))
        return rc;
    return read_shared(m, err);
}

/* ---- recurrent layers ---- */

#define MAX_STATE_FLOATS (1 << 28) /* of a layer; the pool has the same limit */

/* Which layers are delta nets: a list, or all but each n-th. */
static int read_delta_layers(rp_model *m, rp_error *err) {
    char full[KEY_BYTES];
    gguf_array list;
    if (!gguf_get_array(m->file, full_key(m, RECURRENT_LAYERS, full), &list))
        return model_hparams_read_size(m, "full_attention_interval", MODEL_MAX_LAYERS, 4, &m->attention_every, err);
    if (list.type == GGUF_BOOL && list.n >= (uint64_t)m->net.hp.n_layers) return RP_OK;
    return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                        "metadata '%s' is not a list of booleans for %d layers", full, m->net.hp.n_layers);
}

/* Kimi delta attention: as many heads as attention has, of one number of dimensions. */
static int read_kimi_delta(rp_model *m, rp_error *err) {
    model_hparams *hp = &m->net.hp;
    int32_t dim;
    int rc;
    if ((rc = read_int(m, "ssm.conv_kernel", 2, MODEL_MAX_KERNEL, -1, &hp->recurrent.kernel, err)) ||
        (rc = model_hparams_read_size(m, "kda.head_dim", 4096, -1, &dim, err)))
        return rc;
    hp->recurrent.n_heads = hp->recurrent.n_groups = hp->n_heads;
    hp->recurrent.head_dim = hp->recurrent.state_dim = hp->recurrent.n_steps = dim;
    if ((int64_t)hp->n_heads * dim <= MODEL_MAX_DIM && (int64_t)hp->n_heads * dim * dim <= MAX_STATE_FLOATS / 2) {
        hp->recurrent.channels = 3 * hp->n_heads * dim; /* q, k, v */
        return RP_OK;
    }
    return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "%d recurrent heads of %d dimensions", hp->n_heads,
                        dim);
}

static int read_recurrence(rp_model *m, rp_error *err) {
    model_hparams *hp = &m->net.hp;
    const bool is_delta = (m->arch->features & MODEL_HAS_DELTA_NET) != 0;
    int32_t inner;
    int rc;
    if (m->arch->features & MODEL_HAS_SHORT_CONV) {
        hp->recurrent.channels = hp->n_embd;
        return read_int(m, "shortconv.l_cache", 2, MODEL_MAX_KERNEL, -1, &hp->recurrent.kernel, err);
    }
    if (m->arch->features & MODEL_HAS_KIMI_DELTA) return read_kimi_delta(m, err);
    const bool is_mamba1 = (m->arch->features & MODEL_HAS_MAMBA1) != 0;
    int32_t *rank = is_mamba1 ? &hp->recurrent.n_steps : &hp->recurrent.n_heads;
    hp->recurrent.n_heads = 1; /* of Mamba1, whose channels are dimensions of one head */
    if ((rc = read_int(m, "ssm.conv_kernel", 2, MODEL_MAX_KERNEL, -1, &hp->recurrent.kernel, err)) ||
        (rc = model_hparams_read_size(m, "ssm.inner_size", MODEL_MAX_DIM, -1, &inner, err)) ||
        (rc = model_hparams_read_size(m, "ssm.time_step_rank", inner, -1, rank, err)) ||
        (rc = model_hparams_read_size(m, "ssm.group_count", hp->recurrent.n_heads, is_delta ? -1 : 1,
                                      &hp->recurrent.n_groups, err)) ||
        (rc = model_hparams_read_size(m, "ssm.state_size", 4096, -1, &hp->recurrent.state_dim, err)))
        return rc;
    if (is_delta && (rc = read_delta_layers(m, err))) return rc;
    hp->recurrent.neighbours = (m->arch->features & MODEL_DELTA_NEIGHBOURS) != 0;
    for (int32_t i = 0; i < hp->n_layers && hp->recurrent.neighbours && !hp->recurrent.joint; i++) {
        char name[64]; /* of older files */
        snprintf(name, sizeof(name), "blk.%d.ssm_in.weight", i);
        hp->recurrent.joint = gguf_find_tensor(m->file, name) != NULL;
    }
    if (is_mamba1 && read_flag(m, "ssm.dt_b_c_rms", false))
        return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                            "norms without weights in recurrent layers (Falcon Mamba) are not supported");
    hp->recurrent.head_dim = inner / hp->recurrent.n_heads;
    hp->recurrent.channels = is_mamba1 ? inner : inner + 2 * hp->recurrent.n_groups * hp->recurrent.state_dim;
    if (inner % hp->recurrent.n_heads == 0 && hp->recurrent.n_heads % hp->recurrent.n_groups == 0 &&
        (int64_t)inner * hp->recurrent.state_dim <= MAX_STATE_FLOATS / 2 &&
        (int64_t)hp->recurrent.n_groups * hp->recurrent.state_dim <= MODEL_MAX_DIM)
        return RP_OK;
    return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0,
                        "%d state dimensions of %d groups for %d heads of %d dimensions in all",
                        hp->recurrent.state_dim, hp->recurrent.n_groups, hp->recurrent.n_heads, inner);
}

/* Kinds of tokens, and outputs of the rank head: those of its tensors. */
static int read_encoder(rp_model *m, rp_error *err) {
    const gguf_tensor *types = gguf_find_tensor(m->file, "token_types.weight"),
                      *cls = gguf_find_tensor(m->file, "cls.weight"),
                      *scores = gguf_find_tensor(m->file, "cls.output.weight");
    const gguf_tensor *last = scores ? scores : cls;
    const gguf_tensor *dense = gguf_find_tensor(m->file, "dense_2.weight");
    const int64_t n_types = types ? types->dims[1] : 0, n_outputs = last ? last->dims[1] : 0,
                  n_dense = dense && (m->arch->features & MODEL_EMBEDDING_DENSE) ? dense->dims[1] : 0;
    if (n_dense > MODEL_MAX_DIM)
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "embeddings through %lld dimensions",
                            (long long)n_dense);
    m->net.hp.n_pooled_dense = (int32_t)n_dense;
    if (n_types > MODEL_MAX_TYPES || n_outputs > MODEL_MAX_SCORES)
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "%lld kinds of tokens and %lld scores",
                            (long long)n_types, (long long)n_outputs);
    m->net.hp.n_types = (int32_t)n_types;
    m->net.hp.n_outputs = (int32_t)n_outputs;
    return RP_OK;
}

/* The rank of Laurel's matrices is that of the tensors. */
static int read_streams(rp_model *m, rp_error *err) {
    model_hparams *hp = &m->net.hp;
    const gguf_tensor *laurel = gguf_find_tensor(m->file, "blk.0.laurel_l.weight");
    int32_t active;
    int rc = read_int(m, "altup.num_inputs", 2, MODEL_MAX_STREAMS, -1, &hp->n_streams, err);
    if (!rc) rc = read_int(m, "altup.active_idx", 0, 0, 0, &active, err); /* the first */
    if (rc) return rc;
    if (!laurel) return RP_OK; /* model_tensors.c reports the missing tensor */
    if (laurel->dims[1] > MODEL_MAX_DIM)
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "Laurel's matrices of rank %lld",
                            (long long)laurel->dims[1]);
    hp->n_laurel = (int32_t)laurel->dims[1];
    return RP_OK;
}

static int read_layer_embeddings(rp_model *m, rp_error *err) {
    model_hparams *hp = &m->net.hp;
    if (!(m->arch->features & MODEL_LAYER_EMBEDDINGS)) return RP_OK;
    int rc = read_int(m, "embedding_length_per_layer_input", 0, MODEL_MAX_DIM, 0, &hp->n_layer_embd, err);
    if (rc || (int64_t)hp->n_layer_embd * hp->n_layers <= MODEL_MAX_DIM) return rc;
    return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "embeddings of %d dimensions for each of %d layers",
                        hp->n_layer_embd, hp->n_layers);
}

static int read_shape(rp_model *m, rp_error *err) {
    model_hparams *hp = &m->net.hp;
    const bool recurs = (m->arch->features & MODEL_RECURRENT) != 0; /* layers may have no feed-forward */
    int32_t n_ff_expert;                                            /* files without dense layers may have it alone */
    int rc;
    if ((rc = model_hparams_read_size(m, "block_count", MODEL_MAX_LAYERS, -1, &hp->n_layers, err)) ||
        (rc = read_int(m, "nextn_predict_layers", 0, hp->n_layers - 1, 0, &hp->n_draft_layers, err)) ||
        (rc = model_hparams_read_size(m, "embedding_length", MODEL_MAX_DIM, -1, &hp->n_embd, err)) ||
        (rc = read_int(m, "expert_feed_forward_length", 0, MODEL_MAX_DIM, 0, &n_ff_expert, err)) ||
        (rc = model_hparams_read_size(m, "context_length", MODEL_MAX_CONTEXT, -1, &hp->n_ctx_train, err)))
        return rc;
    m->net.layers = base_calloc((size_t)hp->n_layers, sizeof(*m->net.layers));
    if (!m->net.layers) return base_fail_memory(err, (uint64_t)hp->n_layers * sizeof(*m->net.layers), "the layers");
    if ((rc = read_layer_numbers(m, FEED_FORWARD, recurs ? 0 : 1, recurs ? 0 : 1, MODEL_MAX_DIM,
                                 n_ff_expert > 0 ? n_ff_expert : -1, L(n_ff), &hp->n_ff, err)) ||
        (rc = read_heads(m, err)) || (rc = read_layer_embeddings(m, err)))
        return rc;
    if (hp->n_ff == 0) hp->n_ff = n_ff_expert;
    hp->n_layers -= hp->n_draft_layers;
    hp->experts_by_router = m->arch->experts_by_router;
    if ((rc = read_experts(m, err)) || ((m->arch->features & MODEL_STREAMS) && (rc = read_streams(m, err)))) return rc;
    hp->n_vocab = tokenizer_n_vocab(m->tokenizer);
    if (hp->n_vocab < 1 || hp->n_vocab > MODEL_MAX_VOCAB)
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "a vocabulary of %d tokens", hp->n_vocab);
    hp->n_outputs = hp->n_vocab;
    if ((m->arch->features & MODEL_RECURRENT) && (rc = read_recurrence(m, err))) return rc;
    return model_is_encoder(m) ? read_encoder(m, err) : RP_OK;
}

#undef L

/* ---- numbers ---- */

static int read_scales(rp_model *m, rp_error *err) {
    model_hparams *hp = &m->net.hp;
    uint64_t features = m->arch->features;
    bool wide = m->arch->wide_layers == hp->n_layers;
    const int32_t head_dim = hp->plain_key_dim > 0 ? hp->plain_key_dim + hp->rot_dim : hp->key_dim;
    double score = 1.0 / sqrt(wide ? (double)hp->n_embd / hp->n_heads : BASE_MAX(head_dim, 1));
    if (m->arch->score_scale > 0) score = m->arch->score_scale;
    double embed = features & MODEL_EMBED_SQRT ? sqrt(hp->n_embd) : 1.0;
    double residual = m->arch->depth_scale > 0 ? m->arch->depth_scale / sqrt(hp->n_layers) : 1.0;
    double logit = m->arch->base_width > 0 ? m->arch->base_width / hp->n_embd : 1.0;
    if (m->arch->embed_scale > 0) embed = m->arch->embed_scale;
    int rc;
    if ((rc = read_float(m, "attention.scale", SMALL, LARGE, score, &hp->score_scale, err)) ||
        (rc = read_float(m, "embedding_scale", SMALL, LARGE, embed, &hp->embed_scale, err)) ||
        (rc = read_float(m, "residual_scale", SMALL, LARGE, residual, &hp->residual_scale, err)) ||
        (rc = read_float(m, "logit_scale", SMALL, LARGE, logit, &hp->logit_scale, err)))
        return rc;
    if (features & MODEL_LOGIT_DIVISOR) hp->logit_scale = 1.0f / hp->logit_scale;
    return RP_OK;
}

static int read_numbers(rp_model *m, rp_error *err) {
    model_hparams *hp = &m->net.hp;
    int rc;
    gguf_string act;
    char full[KEY_BYTES];
    hp->act = m->arch->act;
    if ((m->arch->features & MODEL_ACT_TOLD) &&
        gguf_get_string(m->file, full_key(m, "hidden_activation", full), &act)) {
        if (!gguf_string_is(act, "gelu") && !gguf_string_is(act, "silu"))
            return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                                "activation '%.*s' is not supported (supported: gelu, silu)",
                                (int)BASE_MIN(act.n, 32), act.bytes);
        hp->act = gguf_string_is(act, "silu") ? KERNEL_SILU : KERNEL_GELU;
    }
    hp->layer_norm = (m->arch->features & MODEL_LAYER_NORM) != 0;
    hp->rope_halves = (m->arch->features & MODEL_ROPE_HALVES) != 0;
    hp->parallel = (m->arch->features & MODEL_PARALLEL) != 0;
    hp->attention_gated = (m->arch->features & MODEL_ATTENTION_GATED) != 0;
    if (m->arch->features & MODEL_PARALLEL_TOLD) hp->parallel = read_flag(m, "use_parallel_residual", true);
    /* some files name that of RMSNorms as that of LayerNorms */
    if ((rc = read_float(m, "attention.layer_norm_epsilon", 0.0, 1.0, 1e-5, &hp->norm_eps, err)) ||
        (!hp->layer_norm && (rc = read_float(m, "attention.layer_norm_rms_epsilon", 0.0, 1.0, (double)hp->norm_eps,
                                             &hp->norm_eps, err))) ||
        (rc = read_float(m, "attn_logit_softcapping", 0.0, LARGE, m->arch->score_cap, &hp->score_cap, err)) ||
        (rc = read_float(m, "final_logit_softcapping", 0.0, LARGE, m->arch->logit_cap, &hp->logit_cap, err)) ||
        (rc = read_float(m, "attention.clamp_kqv", 0.0, LARGE, 0.0, &hp->qkv_limit, err)) ||
        (rc = read_float(m, "attention.max_alibi_bias", 0.0, LARGE, 8.0, &hp->alibi_max, err)))
        return rc;
    return read_scales(m, err);
}

int model_read_hparams(rp_model *m, rp_error *err) {
    int rc;
    if (!read_flag(m, "attention.causal", true) && !model_is_encoder(m))
        return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                            "its attention is not causal: it is an embedding model of a kind that is not supported "
                            "(supported: bert, nomic-bert, jina-bert-v3, modern-bert, eurobert, gemma-embedding)");
    if ((rc = read_shape(m, err)) || (rc = read_numbers(m, err))) return rc;
    /* What an embedding is computed from. The file's "none" leaves the choice to the caller, as a file without the key
     * does. The values are GGUF's. */
    const rp_pooling usual = model_is_encoder(m) ? RP_POOLING_MEAN : RP_POOLING_LAST;
    const rp_pooling poolings[] = {usual, RP_POOLING_MEAN, RP_POOLING_CLS, RP_POOLING_LAST, RP_POOLING_RANK};
    int32_t pooling;
    if ((rc = read_int(m, "pooling_type", 0, BASE_ARRAY_LEN(poolings) - 1, 0, &pooling, err))) return rc;
    m->net.hp.pooling = poolings[pooling];
    return read_rope(m, err);
}
