/* model.c: opening a model: hyper-parameters, the tables of architectures and tensors, checks, fingerprint.
 *
 * Nothing of the file is trusted: shapes are checked against each other here, once, so that the forward pass need not.
 */
#include "model/model.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

static const model_arch model_archs[] = {
    {"llama", MODEL_NORM_RMS | MODEL_ROPE | MODEL_FFN_SWIGLU},
};

/* Limits that no real model comes near; with them no product of two sizes overflows 64 bits. */
#define MAX_LAYERS 4096
#define MAX_DIM (1 << 20)
#define MAX_VOCAB (1 << 24)
#define MAX_CONTEXT (1 << 26)

/* ---- hyper-parameters ---- */

/* Reads "<arch>.<key>" as an integer in [1, max]. fallback < 0: the key is required. */
static int read_size(const rp_model *m, const char *key, int32_t max, int32_t fallback, int32_t *out, rp_error *err) {
    char full[128];
    snprintf(full, sizeof(full), "%s.%s", m->arch->name, key);
    uint64_t v = 0;
    if (!gguf_get_u64(m->file, full, &v)) {
        if (gguf_has(m->file, full))
            return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                                "metadata '%s' is not one number: layers that differ are not supported", full);
        if (fallback < 0)
            return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "metadata '%s' is missing: is this a whole model?",
                                full);
        *out = fallback;
        return RP_OK;
    }
    if (v < 1 || v > (uint64_t)max)
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "metadata '%s' is %llu, expected 1 to %d", full,
                            (unsigned long long)v, max);
    *out = (int32_t)v;
    return RP_OK;
}

static double read_number(const rp_model *m, const char *key, double fallback) {
    char full[128];
    snprintf(full, sizeof(full), "%s.%s", m->arch->name, key);
    double v = fallback;
    gguf_get_f64(m->file, full, &v);
    return v;
}

static bool string_is(gguf_string s, const char *text) {
    return s.n == strlen(text) && memcmp(s.bytes, text, s.n) == 0;
}

static int read_rope(rp_model *m, rp_error *err) {
    model_hparams *hp = &m->hp;
    int rc = read_size(m, "rope.dimension_count", hp->key_dim, hp->key_dim, &hp->rot_dim, err);
    if (rc) return rc;
    if (hp->rot_dim % 2)
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "%d rotary dimensions are odd", hp->rot_dim);
    hp->rope_base = read_number(m, "rope.freq_base", 10000.0);
    hp->rope_factor = read_number(m, "rope.scale_linear", 1.0); /* the key before rope.scaling.* */
    char key[128];
    gguf_string type;
    snprintf(key, sizeof(key), "%s.rope.scaling.type", m->arch->name);
    if (gguf_get_string(m->file, key, &type) && !string_is(type, "none")) {
        if (!string_is(type, "linear"))
            return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                                "rope scaling '%.*s' is not supported (supported: none, linear, and the factors of Llama 3)",
                                (int)BASE_MIN(type.n, 32), type.bytes);
        hp->rope_factor = read_number(m, "rope.scaling.factor", 1.0);
    }
    if (!(hp->rope_base > 0) || !isfinite(hp->rope_base) || !(hp->rope_factor > 0) || !isfinite(hp->rope_factor))
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "rotary base %g or factor %g is not a positive number",
                            hp->rope_base, hp->rope_factor);
    return RP_OK;
}

static int read_hparams(rp_model *m, rp_error *err) {
    model_hparams *hp = &m->hp;
    int rc;
    if ((rc = read_size(m, "block_count", MAX_LAYERS, -1, &hp->n_layers, err)) ||
        (rc = read_size(m, "embedding_length", MAX_DIM, -1, &hp->n_embd, err)) ||
        (rc = read_size(m, "feed_forward_length", MAX_DIM, -1, &hp->n_ff, err)) ||
        (rc = read_size(m, "attention.head_count", hp->n_embd, -1, &hp->n_heads, err)) ||
        (rc = read_size(m, "attention.head_count_kv", hp->n_heads, hp->n_heads, &hp->n_kv_heads, err)) ||
        (rc = read_size(m, "context_length", MAX_CONTEXT, -1, &hp->n_ctx_train, err)))
        return rc;
    int32_t head_dim = hp->n_embd / hp->n_heads;
    if ((rc = read_size(m, "attention.key_length", 4096, head_dim, &hp->key_dim, err)) ||
        (rc = read_size(m, "attention.value_length", 4096, head_dim, &hp->value_dim, err)))
        return rc;
    if (hp->n_heads % hp->n_kv_heads)
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "%d heads cannot share %d key-value heads evenly",
                            hp->n_heads, hp->n_kv_heads);
    int32_t experts = 0;
    if ((rc = read_size(m, "expert_count", 4096, 0, &experts, err))) return rc;
    if (experts > 0)
        return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0, "mixture of experts (%d) is not supported", experts);
    hp->norm_eps = (float)read_number(m, "attention.layer_norm_rms_epsilon", 1e-5);
    hp->n_vocab = tokenizer_n_vocab(m->tokenizer);
    if (hp->n_vocab < 1 || hp->n_vocab > MAX_VOCAB)
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "a vocabulary of %d tokens", hp->n_vocab);
    return read_rope(m, err);
}

/* ---- tensors ---- */

enum dim { D_NONE, D_EMBD, D_FF, D_Q, D_K, D_V, D_VALUE, D_VOCAB, D_ROT_PAIRS }; /* D_VALUE: n_heads * value_dim */
enum { REQUIRED = 1, VECTOR = 2 }; /* VECTOR: F32 of n_in elements, used elementwise */

typedef struct tensor_row {
    const char *name;   /* with %d for the layer */
    size_t offset;      /* of the model_weight in rp_model or model_layer */
    enum dim in, out;
    unsigned flags;
} tensor_row;

static const tensor_row model_tensors[] = {
    {"token_embd.weight", offsetof(rp_model, embedding), D_EMBD, D_VOCAB, REQUIRED},
    {"output_norm.weight", offsetof(rp_model, output_norm), D_EMBD, D_NONE, REQUIRED | VECTOR},
    {"output.weight", offsetof(rp_model, output), D_EMBD, D_VOCAB, 0},
    {"rope_freqs.weight", offsetof(rp_model, rope_factors), D_ROT_PAIRS, D_NONE, VECTOR},
};

static const tensor_row layer_tensors[] = {
    {"blk.%d.attn_norm.weight", offsetof(model_layer, attn_norm), D_EMBD, D_NONE, REQUIRED | VECTOR},
    {"blk.%d.attn_q.weight", offsetof(model_layer, q), D_EMBD, D_Q, REQUIRED},
    {"blk.%d.attn_k.weight", offsetof(model_layer, k), D_EMBD, D_K, REQUIRED},
    {"blk.%d.attn_v.weight", offsetof(model_layer, v), D_EMBD, D_V, REQUIRED},
    {"blk.%d.attn_output.weight", offsetof(model_layer, o), D_VALUE, D_EMBD, REQUIRED},
    {"blk.%d.attn_q.bias", offsetof(model_layer, q_bias), D_Q, D_NONE, VECTOR},
    {"blk.%d.attn_k.bias", offsetof(model_layer, k_bias), D_K, D_NONE, VECTOR},
    {"blk.%d.attn_v.bias", offsetof(model_layer, v_bias), D_V, D_NONE, VECTOR},
    {"blk.%d.attn_output.bias", offsetof(model_layer, o_bias), D_EMBD, D_NONE, VECTOR},
    {"blk.%d.ffn_norm.weight", offsetof(model_layer, ffn_norm), D_EMBD, D_NONE, REQUIRED | VECTOR},
    {"blk.%d.ffn_gate.weight", offsetof(model_layer, gate), D_EMBD, D_FF, REQUIRED},
    {"blk.%d.ffn_up.weight", offsetof(model_layer, up), D_EMBD, D_FF, REQUIRED},
    {"blk.%d.ffn_down.weight", offsetof(model_layer, down), D_FF, D_EMBD, REQUIRED},
    {"blk.%d.ffn_gate.bias", offsetof(model_layer, gate_bias), D_FF, D_NONE, VECTOR},
    {"blk.%d.ffn_up.bias", offsetof(model_layer, up_bias), D_FF, D_NONE, VECTOR},
    {"blk.%d.ffn_down.bias", offsetof(model_layer, down_bias), D_EMBD, D_NONE, VECTOR},
};

static int64_t dim_of(const model_hparams *hp, enum dim d) {
    switch (d) {
    case D_NONE: return 1;
    case D_EMBD: return hp->n_embd;
    case D_FF: return hp->n_ff;
    case D_Q: return (int64_t)hp->n_heads * hp->key_dim;
    case D_K: return (int64_t)hp->n_kv_heads * hp->key_dim;
    case D_V: return (int64_t)hp->n_kv_heads * hp->value_dim;
    case D_VALUE: return (int64_t)hp->n_heads * hp->value_dim;
    case D_VOCAB: return hp->n_vocab;
    case D_ROT_PAIRS: return hp->rot_dim / 2;
    }
    return 0;
}

/* Finds one tensor, checks type and shape, and fills in the weight at base + row->offset. */
static int bind_tensor(rp_model *m, void *base, const tensor_row *row, int32_t layer, rp_error *err) {
    char name[64], where[RP_ERROR_WHERE_BYTES];
    if (layer >= 0) {
        const char *rest = strchr(row->name + 4, '.');
        snprintf(name, sizeof(name), "blk.%d%s", layer, rest);
    } else {
        snprintf(name, sizeof(name), "%s", row->name);
    }
    snprintf(where, sizeof(where), "%s: tensor '%s'", gguf_name(m->file), name);
    const gguf_tensor *t = gguf_find_tensor(m->file, name);
    if (!t && !(row->flags & REQUIRED)) return RP_OK;
    if (!t) return base_fail_at(err, RP_ERR_FORMAT, where, 0, "is missing: is this a whole model?");
    int64_t n_in = dim_of(&m->hp, row->in), n_out = dim_of(&m->hp, row->out);
    if (t->dims[0] != n_in || t->dims[1] != n_out || t->dims[2] != 1 || t->dims[3] != 1)
        return base_fail_at(err, RP_ERR_FORMAT, where, 0, "has shape %lld x %lld, the metadata asks for %lld x %lld",
                            (long long)t->dims[0], (long long)t->dims[1], (long long)n_in, (long long)n_out);
    if ((row->flags & VECTOR) && t->type != KERNEL_F32)
        return base_fail_at(err, RP_ERR_UNSUPPORTED, where, 0, "is %s, expected F32", kernel_type_name(t->type));
    model_weight *w = (model_weight *)((char *)base + row->offset);
    *w = (model_weight){.data = t->data, .type = t->type, .n_in = n_in, .n_out = n_out};
    return RP_OK;
}

static int bind_tensors(rp_model *m, rp_error *err) {
    int rc;
    m->layers = base_calloc((size_t)m->hp.n_layers, sizeof(*m->layers));
    if (!m->layers) return base_fail_memory(err, (uint64_t)m->hp.n_layers * sizeof(*m->layers), "the layers");
    for (size_t i = 0; i < BASE_ARRAY_LEN(model_tensors); i++)
        if ((rc = bind_tensor(m, m, &model_tensors[i], -1, err))) return rc;
    for (int32_t l = 0; l < m->hp.n_layers; l++)
        for (size_t i = 0; i < BASE_ARRAY_LEN(layer_tensors); i++)
            if ((rc = bind_tensor(m, &m->layers[l], &layer_tensors[i], l, err))) return rc;
    if (!m->output.data) m->output = m->embedding;
    return RP_OK;
}

/* ---- fingerprint ---- */

/* Bytes taken from each tensor: 64 pieces of 64, evenly spread. Whoever changes weights changes most of them (a fine-tuning
 * step, another quantisation), so the pieces tell models apart at a cost that does not grow with the file. */
#define SAMPLE_PIECES 64
#define SAMPLE_BYTES 64

static void fingerprint(rp_model *m) {
    base_hash h;
    size_t n = 0;
    base_hash_init(&h, "reprise model 1");
    for (size_t i = 0; i < gguf_n_parts(m->file); i++) {
        const void *header = gguf_header(m->file, i, &n);
        base_hash_bytes(&h, header, n);
    }
    base_hash_bytes(&h, chat_format_name(m->chat), strlen(chat_format_name(m->chat)));
    for (size_t i = 0; i < gguf_n_tensors(m->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(m->file, i);
        if (t->bytes <= SAMPLE_PIECES * SAMPLE_BYTES) {
            base_hash_bytes(&h, t->data, t->bytes);
            continue;
        }
        uint64_t step = (t->bytes - SAMPLE_BYTES) / (SAMPLE_PIECES - 1);
        for (uint64_t k = 0; k < SAMPLE_PIECES; k++)
            base_hash_bytes(&h, (const char *)t->data + k * step, SAMPLE_BYTES);
    }
    base_hash_final(&h, &m->fingerprint);
    base_key_hex(&m->fingerprint, m->fingerprint_hex, 2 * BASE_KEY_BYTES);
}

/* ---- opening ---- */

static int find_arch(rp_model *m, rp_error *err) {
    gguf_string name;
    if (!gguf_get_string(m->file, "general.architecture", &name))
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(m->file), 0, "metadata 'general.architecture' is missing");
    char list[256] = "";
    for (size_t i = 0; i < BASE_ARRAY_LEN(model_archs); i++) {
        if (string_is(name, model_archs[i].name)) {
            m->arch = &model_archs[i];
            return RP_OK;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", model_archs[i].name);
    }
    return base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0, "architecture '%.*s' is not supported (supported: %s)",
                        (int)BASE_MIN(name.n, 64), name.bytes, list);
}

static int choose_chat_format(rp_model *m, const char *wanted, rp_error *err) {
    m->chat = wanted ? chat_format_find(wanted) : chat_format_detect(m->file, m->tokenizer, &m->chat_guessed);
    if (m->chat_guessed)
        base_log(BASE_LOG_WARN, "%s: its chat template is not known: chat format '%s' is used instead", gguf_name(m->file), chat_format_name(m->chat));
    if (m->chat) return RP_OK;
    char list[RP_ERROR_MESSAGE_BYTES] = "";
    for (int i = 0; chat_format_at(i); i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s%s", i ? ", " : "", chat_format_name(chat_format_at(i)));
    }
    return base_fail(err, RP_ERR_NAME, "unknown chat format '%s' (known: %s)", wanted, list);
}

static int open_all(rp_model *m, const char *path, const rp_model_options *options, rp_error *err) {
    int rc;
    gguf_string name;
    if ((rc = gguf_open(&m->file, path, err)) || (rc = find_arch(m, err)) ||
        (rc = tokenizer_new(&m->tokenizer, m->file, err)) ||
        (rc = choose_chat_format(m, options ? options->chat_format : NULL, err)) || (rc = read_hparams(m, err)) ||
        (rc = bind_tensors(m, err)))
        return rc;
    bool named = gguf_get_string(m->file, "general.name", &name);
    m->name = named ? base_strndup(name.bytes, (size_t)BASE_MIN(name.n, 256)) : base_strdup("");
    if (!m->name) return base_fail_memory(err, 256, "a name");
    fingerprint(m);
    return RP_OK;
}

int model_open(rp_model **out, const char *path, const rp_model_options *options, rp_error *err) {
    *out = NULL;
    rp_model *m = base_calloc(1, sizeof(*m));
    if (!m) return base_fail_memory(err, sizeof(*m), "a model");
    uint64_t start = base_clock_us();
    int rc = open_all(m, path, options, err);
    if (rc) {
        model_close(m);
        return rc;
    }
    BASE_TRACE(MODEL, "opened %s in %.1f ms: %s, %d layers, chat format %s, fingerprint %.16s", path,
               (double)(base_clock_us() - start) / 1e3, m->arch->name, m->hp.n_layers, chat_format_name(m->chat),
               m->fingerprint_hex);
    *out = m;
    return RP_OK;
}

void model_close(rp_model *m) {
    if (!m) return;
    base_free(m->name);
    base_free(m->layers);
    tokenizer_free(m->tokenizer);
    gguf_close(m->file);
    base_free(m);
}

kv_shape model_state_shape(const rp_model *m, kv_format format) {
    return (kv_shape){.n_layers = m->hp.n_layers,
                      .n_kv_heads = m->hp.n_kv_heads,
                      .key_dim = m->hp.key_dim,
                      .value_dim = m->hp.value_dim,
                      .format = format};
}

void model_rope_angles(const rp_model *m, int32_t pos, float *cs) {
    const model_hparams *hp = &m->hp;
    const float *factors = m->rope_factors.data;
    for (int32_t i = 0; i < hp->rot_dim / 2; i++) {
        double frequency = pow(hp->rope_base, -2.0 * i / hp->rot_dim) / hp->rope_factor;
        if (factors) frequency /= factors[i];
        double angle = pos * frequency;
        cs[2 * i] = (float)cos(angle);
        cs[2 * i + 1] = (float)sin(angle);
    }
}
