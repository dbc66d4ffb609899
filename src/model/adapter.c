/* SPDX-License-Identifier: Apache-2.0 */
/* adapter.c: see adapter.h. */
#include "model/adapter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

#define SUFFIX_A ".lora_a"
#define SUFFIX_B ".lora_b"
#define SUFFIX_BYTES (sizeof(SUFFIX_A) - 1)
#define MAX_BLOCKS ((size_t)1 << 20)
#define MAX_SCALE 1e6 /* a larger alpha is a damaged file */

typedef struct opening {
    rp_adapter *a;
    const gguf_file *file;
    rp_error *err;
} opening;

/* ---- metadata ---- */

/* A string that must have this value. */
static int check_string(const opening *o, const char *key, const char *wanted, const char *advice) {
    gguf_string is;
    if (!gguf_get_string(o->file, key, &is))
        return base_fail_at(o->err, RP_ERR_FORMAT, gguf_name(o->file), 0, "metadata '%s' is missing: %s", key, advice);
    if (gguf_string_is(is, wanted)) return RP_OK;
    return base_fail_at(o->err, RP_ERR_UNSUPPORTED, gguf_name(o->file), 0, "metadata '%s' is '%.*s', expected '%s': %s",
                        key, (int)BASE_MIN(is.n, 64), is.bytes, wanted, advice);
}

static int check_architecture(const opening *o) {
    gguf_string is;
    const char *wanted = o->a->model->arch->name;
    if (!gguf_get_string(o->file, "general.architecture", &is))
        return base_fail_at(o->err, RP_ERR_FORMAT, gguf_name(o->file), 0, "metadata 'general.architecture' is missing");
    if (gguf_string_is(is, wanted)) return RP_OK;
    return base_fail_at(
        o->err, RP_ERR_CONFLICT, gguf_name(o->file), 0,
        "the adapter is for architecture '%.*s', but the model is '%s': use the model that it was trained on",
        (int)BASE_MIN(is.n, 64), is.bytes, wanted);
}

static int read_alpha(const opening *o) {
    double alpha = 0;
    if (gguf_has(o->file, "adapter.lora.alpha") && !gguf_get_f64(o->file, "adapter.lora.alpha", &alpha))
        return base_fail_at(o->err, RP_ERR_FORMAT, gguf_name(o->file), 0,
                            "metadata 'adapter.lora.alpha' is not a float");
    if (!isfinite(alpha) || fabs(alpha) > MAX_SCALE)
        return base_fail_at(o->err, RP_ERR_FORMAT, gguf_name(o->file), 0, "metadata 'adapter.lora.alpha' is %g", alpha);
    o->a->alpha = (float)alpha;
    return RP_OK;
}

static int read_invocation(const opening *o) {
    static const char key[] = "adapter.alora.invocation_tokens";
    rp_adapter *a = o->a;
    gguf_array list;
    if (!gguf_has(o->file, key)) return RP_OK;
    if (!gguf_get_array(o->file, key, &list) || (list.type != GGUF_U32 && list.type != GGUF_I32))
        return base_fail_at(o->err, RP_ERR_FORMAT, gguf_name(o->file), 0,
                            "metadata '%s' is not an array of 32-bit integers", key);
    if (list.n == 0 || list.n > ADAPTER_MAX_INVOCATION)
        return base_fail_at(o->err, RP_ERR_FORMAT, gguf_name(o->file), 0,
                            "metadata '%s' has %llu tokens: expected 1 to %d", key, (unsigned long long)list.n,
                            ADAPTER_MAX_INVOCATION);
    if (!(a->invocation = base_calloc((size_t)list.n, sizeof(*a->invocation))))
        return base_fail_memory(o->err, list.n * sizeof(*a->invocation), "an adapter");
    memcpy(a->invocation, list.data, (size_t)list.n * sizeof(*a->invocation));
    a->n_invocation = (int32_t)list.n;
    for (int32_t i = 0; i < a->n_invocation; i++)
        if (a->invocation[i] < 0 || a->invocation[i] >= a->model->net.hp.n_vocab)
            return base_fail_at(o->err, RP_ERR_CONFLICT, gguf_name(o->file), 0,
                                "metadata '%s' has token %lld, but the model's vocabulary has %d", key,
                                (long long)(uint32_t)a->invocation[i], a->model->net.hp.n_vocab);
    return RP_OK;
}

static int read_metadata(const opening *o) {
    static const char advice[] = "give a LoRA adapter as convert_lora_to_gguf writes it";
    gguf_string name;
    int rc = check_string(o, "general.type", "adapter", advice);
    if (!rc) rc = check_string(o, "adapter.type", "lora", advice);
    if (!rc) rc = check_architecture(o);
    if (!rc) rc = read_alpha(o);
    if (!rc) rc = read_invocation(o);
    if (rc) return rc;
    const bool named = gguf_get_string(o->file, "general.name", &name);
    o->a->name = named ? base_strndup(name.bytes, (size_t)BASE_MIN(name.n, 256)) : base_strdup("");
    return o->a->name ? RP_OK : base_fail_memory(o->err, 256, "a name");
}

/* ---- tensors ---- */

static int fail_tensor(const opening *o, const gguf_tensor *t, rp_code code, const char *what) {
    char where[RP_ERROR_WHERE_BYTES];
    snprintf(where, sizeof(where), "%.120s: tensor '%.*s'", gguf_name(o->file), (int)BASE_MIN(t->name.n, 96),
             t->name.bytes);
    return base_fail_at(o->err, code, where, 0, "%s", what);
}

static bool has_suffix(gguf_string name, const char *suffix) {
    return name.n > SUFFIX_BYTES && memcmp(name.bytes + name.n - SUFFIX_BYTES, suffix, SUFFIX_BYTES) == 0;
}

/* The other tensor of a pair, or, with suffix "", the base's tensor. NULL: there is none. */
static const gguf_tensor *find_other(const gguf_file *f, gguf_string name, const char *suffix) {
    BASE_ASSERT(name.n > SUFFIX_BYTES); /* has_suffix */
    char other[GGUF_MAX_NAME + 1];
    const int n = (int)(name.n - SUFFIX_BYTES);
    if ((size_t)snprintf(other, sizeof(other), "%.*s%s", n, name.bytes, suffix) >= sizeof(other)) return NULL;
    return gguf_find_tensor(f, other);
}

#define NO_SLICES "adapters of experts, and of heads of latent attention, are not supported"

static bool is_float(kernel_type t) { return t == KERNEL_F32 || t == KERNEL_F16 || t == KERNEL_BF16; }

static bool is_matrix(const gguf_tensor *t) { return t->dims[2] == 1 && t->dims[3] == 1; }

static int check_pair(const opening *o, const gguf_tensor *a, const gguf_tensor *b, const gguf_tensor *base) {
    const int64_t rank = a->dims[1];
    if (!is_matrix(base) || !is_matrix(a) || !is_matrix(b))
        return fail_tensor(o, a, RP_ERR_UNSUPPORTED, NO_SLICES);
    for (int i = 0; i < 2; i++) {
        const gguf_tensor *t = i ? b : a;
        if (!is_float(t->type) && t->type != KERNEL_Q8_0)
            return fail_tensor(o, t, RP_ERR_UNSUPPORTED, "is neither F32, F16, BF16 nor Q8_0");
    }
    if (rank < 1 || rank > ADAPTER_MAX_RANK)
        return fail_tensor(o, a, RP_ERR_UNSUPPORTED, "has a rank that is not from 1 to 4096");
    if (b->dims[0] != rank) return fail_tensor(o, b, RP_ERR_FORMAT, "has another rank than its lora_a");
    if (a->dims[0] != base->dims[0] || b->dims[1] != base->dims[1])
        return fail_tensor(
            o, a, RP_ERR_CONFLICT,
            "does not have the shape of the model's tensor: use the model that the adapter was trained on");
    return RP_OK;
}

/* Memory that belongs to the adapter. NULL: none left. */
static char *adapter_take_block(rp_adapter *a, int64_t bytes) {
    BASE_ASSERT(bytes > 0);
    if (base_grow((void **)&a->blocks, &a->cap_blocks, a->n_blocks + 1, MAX_BLOCKS, sizeof(*a->blocks))) return NULL;
    char *block = base_alloc_aligned(BASE_DIV_UP((size_t)bytes, 64) * 64, 64);
    if (!block) return NULL;
    a->blocks[a->n_blocks++] = block;
    a->bytes += (uint64_t)bytes;
    return block;
}

/* Packs rows [first, first + n_out) of a tensor. Rows of Q8_0 become F32. */
static int pack_rows(const opening *o, const gguf_tensor *t, int64_t first, int64_t n_out, model_weight *w) {
    rp_adapter *a = o->a;
    const int64_t n_in = t->dims[0], row_bytes = kernel_row_bytes(t->type, n_in);
    BASE_ASSERT(first >= 0 && n_out > 0 && first + n_out <= t->dims[1]);
    const char *rows = (const char *)t->data + first * row_bytes;
    *w = (model_weight){.type = is_float(t->type) ? t->type : KERNEL_F32, .n_in = n_in, .n_out = n_out, .n_slices = 1};
    const int64_t packed = kernel_packed_bytes(w->type, a->weights.side, n_in, n_out);
    char *to = adapter_take_block(a, packed);
    float *floats = is_float(t->type) ? NULL : base_alloc((size_t)(n_in * n_out) * sizeof(float));
    if (!to || (!floats && !is_float(t->type))) {
        base_free(floats);
        return base_fail_memory(o->err, (uint64_t)packed, "an adapter");
    }
    for (int64_t r = 0; r < n_out && floats; r++)
        kernel_dequantize(t->type, rows + r * row_bytes, floats + r * n_in, n_in);
    const char *from = floats ? (const char *)floats : rows;
    kernel_pack(w->type, a->weights.side, from, n_in, n_out, to);
    w->data = to;
    base_free(floats);
    return RP_OK;
}

static int bind_pair(const opening *o, const gguf_tensor *ta, const gguf_tensor *tb, const gguf_tensor *base) {
    rp_adapter *a = o->a;
    model_weight shared = {.data = NULL};
    for (int32_t i = 0; i < a->model->net.n_matrices; i++) {
        const model_weight *w = a->model->net.matrices[i];
        const char *data = w->data, *begin = base->data;
        /* Not of this tensor: skipped. Matrices are cut at rows. */
        if (!data || data < begin || data >= begin + base->bytes || w->n_in != base->dims[0]) continue;
        BASE_ASSERT((data - begin) % kernel_row_bytes(base->type, base->dims[0]) == 0);
        const int64_t first = (data - begin) / kernel_row_bytes(base->type, base->dims[0]);
        if (w->n_slices != 1) return fail_tensor(o, ta, RP_ERR_UNSUPPORTED, NO_SLICES);
        adapter_matrix *m = &a->weights.matrices[i];
        if (m->a.data) return fail_tensor(o, ta, RP_ERR_FORMAT, "changes a matrix that another tensor changes, too");
        int rc = shared.data ? RP_OK : pack_rows(o, ta, 0, ta->dims[1], &shared);
        if (!rc) rc = pack_rows(o, tb, first, w->n_out, &m->b);
        if (rc) return rc;
        m->a = shared;
        m->factor = a->alpha != 0 ? a->alpha / (float)ta->dims[1] : 1.0f;
    }
    if (!shared.data)
        return fail_tensor(
            o, ta, RP_ERR_UNSUPPORTED,
            "changes a tensor that is no matrix of a linear layer: adapters of embeddings and norms are not supported");
    a->weights.max_rank = BASE_MAX(a->weights.max_rank, (int32_t)ta->dims[1]);
    a->n_tensors++;
    return RP_OK;
}

static int bind_tensor(const opening *o, const gguf_tensor *t) {
    const rp_model *m = o->a->model;
    const bool is_a = has_suffix(t->name, SUFFIX_A);
    if (!is_a && !has_suffix(t->name, SUFFIX_B))
        return fail_tensor(o, t, RP_ERR_UNSUPPORTED,
                           "is neither a lora_a nor a lora_b: only low-rank pairs are supported");
    const gguf_tensor *other = find_other(o->file, t->name, is_a ? SUFFIX_B : SUFFIX_A);
    if (!other)
        return fail_tensor(o, t, RP_ERR_FORMAT,
                           is_a ? "has no lora_b: the file is incomplete" : "has no lora_a: the file is incomplete");
    if (!is_a) return RP_OK; /* with its lora_a */
    const gguf_tensor *base = find_other(m->file, t->name, "");
    if (!base)
        return fail_tensor(
            o, t, RP_ERR_CONFLICT,
            "changes a tensor that the model does not have: use the model that the adapter was trained on");
    if (base->data == m->net.embedding.data)
        return fail_tensor(o, t, RP_ERR_UNSUPPORTED,
                           "changes the embeddings, which is not supported: train the adapter without token_embd");
    int rc = check_pair(o, t, other, base);
    return rc ? rc : bind_pair(o, t, other, base);
}

static void hash_file(const opening *o) {
    rp_adapter *a = o->a;
    base_hash h;
    base_hash_init(&h, "reprise adapter 1");
    for (size_t i = 0; i < gguf_n_parts(o->file); i++) {
        size_t n = 0;
        const void *header = gguf_header(o->file, i, &n);
        base_hash_bytes(&h, header, n);
    }
    for (size_t i = 0; i < gguf_n_tensors(o->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(o->file, i);
        base_hash_bytes(&h, t->data, (size_t)t->bytes);
    }
    base_hash_final(&h, &a->key);
    base_key_hex(&a->key, a->key_hex, 2 * BASE_KEY_BYTES);
}

static int open_parts(const opening *o) {
    rp_adapter *a = o->a;
    const size_t n = (size_t)a->model->net.n_matrices;
    int rc = read_metadata(o);
    if (rc) return rc;
    if (!(a->weights.matrices = base_calloc(n, sizeof(*a->weights.matrices))))
        return base_fail_memory(o->err, n * sizeof(*a->weights.matrices), "an adapter");
    for (size_t i = 0; i < gguf_n_tensors(o->file) && !rc; i++) rc = bind_tensor(o, gguf_tensor_at(o->file, i));
    if (rc) return rc;
    if (a->n_tensors == 0)
        return base_fail_at(o->err, RP_ERR_FORMAT, gguf_name(o->file), 0, "the adapter has no tensors");
    hash_file(o);
    return RP_OK;
}

static atomic_uint_least64_t n_opened; /* in this process */

int adapter_open_gguf(rp_adapter **out, const rp_model *m, gguf_file *file, base_cpu_level level, rp_error *err) {
    kernel_table kernels;
    *out = NULL;
    int rc = model_check_shape(m, err);
    if (!rc && m->net.is_mock)
        rc = base_fail_at(err, RP_ERR_UNSUPPORTED, gguf_name(m->file), 0,
                          "the model is a mock, without matrices to adapt");
    rp_adapter *a = rc ? NULL : base_calloc(1, sizeof(*a));
    if (!rc && !a) rc = base_fail_memory(err, sizeof(*a), "an adapter");
    if (!rc) {
        kernel_table_init(&kernels, level);
        a->model = m;
        a->weights.net = &m->net;
        a->weights.side = kernels.side;
        a->weights.id = atomic_fetch_add(&n_opened, 1) + 1;
        atomic_init(&a->refs, 1);
        rc = open_parts(&(opening){a, file, err});
    }
    gguf_close(file);
    if (rc) adapter_unref(a);
    else *out = a;
    return rc;
}

int adapter_open(rp_adapter **out, const rp_model *m, const char *path, base_cpu_level level, rp_error *err) {
    gguf_file *file = NULL;
    *out = NULL;
    int rc = gguf_open(&file, path, err);
    return rc ? rc : adapter_open_gguf(out, m, file, level, err);
}

/* ---- references ---- */

rp_adapter *adapter_ref(rp_adapter *a) {
    if (!a) return NULL;
    const int before = atomic_fetch_add(&a->refs, 1);
    BASE_ASSERT(before > 0); /* else it is freed */
    (void)before;
    return a;
}

void adapter_unref(rp_adapter *a) {
    if (!a || atomic_fetch_sub(&a->refs, 1) != 1) return;
    for (size_t i = 0; i < a->n_blocks; i++) base_free(a->blocks[i]);
    base_free(a->blocks);
    base_free(a->weights.matrices);
    base_free(a->invocation);
    base_free(a->name);
    base_free(a);
}

adapter_use adapter_use_of(rp_adapter *a, float scale) {
    adapter_use u = {.adapter = adapter_ref(a), .scale = scale, .from = INT32_MIN};
    uint32_t bits;
    base_hash h;
    memcpy(&bits, &scale, sizeof(bits));
    base_hash_init(&h, "reprise adapter use 1");
    base_hash_key(&h, &a->key);
    base_hash_u64(&h, bits);
    base_hash_final(&h, &u.key);
    return u;
}
