/* SPDX-License-Identifier: Apache-2.0 */
/* draft_head_file.c: see draft_head_file.h. */
#define _POSIX_C_SOURCE 200809L /* mkstemp */

#include "draft_head_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/gguf/gguf.h"
#include "model/gguf/gguf_writer.h"
#include "must.h"
#include "reference_model.h"
#include "tiny_random.h"

#define NAME_BYTES 160

/* A file that is copied, in part. */
typedef struct copy {
    gguf_file *from;
    gguf_writer *to;
    char arch[64];
    int32_t n_layers; /* block_count */
} copy;

static void copy_begin(copy *c, const char *from) {
    rp_error err = {0};
    gguf_string arch = {0};
    uint64_t n = 0;
    char key[NAME_BYTES];
    must(gguf_open(&c->from, from, &err), &err);
    c->to = gguf_writer_new(3, 0);
    gguf_get_string(c->from, "general.architecture", &arch);
    snprintf(c->arch, sizeof c->arch, "%.*s", (int)arch.n, arch.bytes);
    snprintf(key, sizeof key, "%s.block_count", c->arch);
    if (!gguf_get_u64(c->from, key, &n)) abort();
    c->n_layers = (int32_t)n;
}

static void copy_end(copy *c, char path[64]) {
    rp_error err = {0};
    snprintf(path, 64, "/tmp/reprise-head-XXXXXX");
    const int fd = mkstemp(path);
    if (fd < 0 || close(fd)) abort();
    must(gguf_writer_save(c->to, path, &err), &err);
    gguf_writer_free(c->to);
    gguf_close(c->from);
}

/* A key of the architecture: its name in key. */
static const char *key_of(const copy *c, const char *name, char key[NAME_BYTES]) {
    snprintf(key, NAME_BYTES, "%s.%s", c->arch, name);
    return key;
}

/* All but what depends on the number of layers, which becomes n_layers, n_heads of them of draft heads. recurrent: of
 * each layer; NULL: the file does not list it. */
static void copy_keys(copy *c, int32_t n_layers, int32_t n_heads, const uint8_t *recurrent) {
    static const char *const changed[] = {"block_count", "nextn_predict_layers", "leading_dense_block_count",
                                          "attention.recurrent_layers"};
    char key[NAME_BYTES], other[NAME_BYTES];
    uint64_t n_dense = 0;
    for (size_t i = 0; i < gguf_n_metadata(c->from); i++) {
        gguf_string name = gguf_metadata_key(c->from, i);
        gguf_value_type type;
        gguf_bytes value = gguf_metadata_raw(c->from, i, &type);
        bool is_changed = false;
        snprintf(key, sizeof key, "%.*s", (int)name.n, name.bytes);
        for (int k = 0; k < 4; k++) is_changed |= strcmp(key, key_of(c, changed[k], other)) == 0;
        if (!is_changed) gguf_writer_raw(c->to, key, type, value.data, value.n);
    }
    gguf_writer_u32(c->to, key_of(c, "block_count", key), (uint32_t)n_layers);
    if (n_heads > 0) gguf_writer_u32(c->to, key_of(c, "nextn_predict_layers", key), (uint32_t)n_heads);
    if (gguf_get_u64(c->from, key_of(c, "leading_dense_block_count", key), &n_dense))
        gguf_writer_u32(c->to, key, n_layers > 1 ? (uint32_t)n_dense : 0);
    if (recurrent)
        gguf_writer_array(c->to, key_of(c, "attention.recurrent_layers", key), GGUF_BOOL, recurrent,
                          (size_t)n_layers);
}

static float *floats_of(const gguf_tensor *t) {
    const int64_t rows = t->dims[1] * t->dims[2] * t->dims[3], bytes = kernel_row_bytes(t->type, t->dims[0]);
    float *all = reference_alloc((size_t)(rows * t->dims[0]), sizeof *all);
    for (int64_t r = 0; r < rows; r++)
        kernel_dequantize(t->type, (const char *)t->data + r * bytes, all + r * t->dims[0], t->dims[0]);
    return all;
}

static const gguf_tensor *find(const copy *c, const char *name) { return gguf_find_tensor(c->from, name); }

static void put(copy *c, const char *name, const gguf_tensor *t, const float *data) {
    gguf_writer_tensor(c->to, name, KERNEL_F32, t->n_dims, t->dims, data);
}

static void name_of(const gguf_tensor *t, char name[NAME_BYTES]) {
    snprintf(name, NAME_BYTES, "%.*s", (int)t->name.n, t->name.bytes);
}

static float noise(tiny_random *r) {
    return (float)tiny_random_below(r, 2001) / 1000.0f - 1.0f;
}

/* ---- a file with a head ---- */

static void put_random(copy *c, tiny_random *r, int32_t layer, const char *name, int64_t n_in, int64_t n_out) {
    char full[NAME_BYTES];
    float *x = reference_alloc((size_t)(n_in * n_out), sizeof *x);
    for (int64_t i = 0; i < n_in * n_out; i++)
        x[i] = n_out > 1 ? 1.7f * noise(r) / sqrtf((float)n_in) : 1.0f + 0.3f * noise(r);
    snprintf(full, sizeof full, "blk.%d.nextn.%s.weight", layer, name);
    gguf_writer_tensor(c->to, full, KERNEL_F32, n_out > 1 ? 2 : 1, (int64_t[]){n_in, n_out}, x);
    free(x);
}

static int32_t last_attention(const copy *c) {
    for (int32_t l = c->n_layers; l-- > 0;) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "blk.%d.attn_output.weight", l);
        if (find(c, name)) return l;
    }
    abort();
}

void draft_head_file_write(const char *golden, bool owns_tables, char path[64]) {
    copy c;
    char key[NAME_BYTES], name[NAME_BYTES], prefix[32];
    gguf_array listed;
    tiny_random r = {.state = 89};
    copy_begin(&c, golden);
    const int32_t layer = c.n_layers, like = last_attention(&c);
    uint8_t *recurrent = NULL;
    if (gguf_get_array(c.from, key_of(&c, "attention.recurrent_layers", key), &listed)) {
        recurrent = reference_alloc((size_t)layer + 1, 1);
        memcpy(recurrent, listed.data, (size_t)layer);
    }
    copy_keys(&c, layer + 1, 1, recurrent);
    free(recurrent);
    const int prefix_bytes = snprintf(prefix, sizeof prefix, "blk.%d.", like);
    for (size_t i = 0; i < gguf_n_tensors(c.from); i++) {
        const gguf_tensor *t = gguf_tensor_at(c.from, i);
        float *x = floats_of(t);
        name_of(t, name);
        put(&c, name, t, x);
        if (strncmp(name, prefix, (size_t)prefix_bytes) == 0) {
            const int64_t n = t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
            char full[NAME_BYTES + 32];
            for (int64_t k = 0; k < n; k++) x[k] *= 1.0f + 0.5f * noise(&r);
            snprintf(full, sizeof full, "blk.%d.%s", layer, name + prefix_bytes);
            put(&c, full, t, x);
        }
        free(x);
    }
    const gguf_tensor *table = find(&c, "token_embd.weight");
    const int64_t n_embd = table->dims[0], n_vocab = table->dims[1];
    put_random(&c, &r, layer, "eh_proj", 2 * n_embd, n_embd);
    put_random(&c, &r, layer, "enorm", n_embd, 1);
    put_random(&c, &r, layer, "hnorm", n_embd, 1);
    if (owns_tables) {
        put_random(&c, &r, layer, "shared_head_norm", n_embd, 1);
        put_random(&c, &r, layer, "embed_tokens", n_embd, n_vocab);
        put_random(&c, &r, layer, "shared_head_head", n_embd, n_vocab);
    }
    copy_end(&c, path);
}

/* ---- the head as a model ---- */

/* The tensor of the head, or the model's. */
static const gguf_tensor *own_or(const copy *c, const char *own, const char *other) {
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "blk.%d.nextn.%s.weight", c->n_layers - 1, own);
    const gguf_tensor *t = find(c, name);
    return t ? t : find(c, other);
}

/* y = RMS norm of x, in double */
static void normed(const copy *c, const char *name, const float *x, int64_t n, double *y) {
    const float *w = own_or(c, name, name)->data;
    char key[NAME_BYTES];
    double squares = 0, eps = 0;
    if (!gguf_get_f64(c->from, key_of(c, "attention.layer_norm_rms_epsilon", key), &eps)) abort();
    for (int64_t i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];
    for (int64_t i = 0; i < n; i++) y[i] = (double)x[i] / sqrt(squares / (double)n + eps) * (double)w[i];
}

void draft_head_model_write(const char *with_head, const int32_t *tokens, const float *hidden, int32_t n,
                            char path[64]) {
    copy c;
    char name[NAME_BYTES], prefix[32];
    const uint8_t attention = 0;
    gguf_array listed;
    copy_begin(&c, with_head);
    const bool is_listed = gguf_get_array(c.from, key_of(&c, "attention.recurrent_layers", name), &listed);
    copy_keys(&c, 1, 0, is_listed ? &attention : NULL);
    const int prefix_bytes = snprintf(prefix, sizeof prefix, "blk.%d.", c.n_layers - 1);
    for (size_t i = 0; i < gguf_n_tensors(c.from); i++) {
        const gguf_tensor *t = gguf_tensor_at(c.from, i);
        name_of(t, name);
        if (strncmp(name, prefix, (size_t)prefix_bytes) != 0 || strstr(name, ".nextn.")) continue;
        char full[NAME_BYTES + 32];
        snprintf(full, sizeof full, "blk.0.%s", name + prefix_bytes);
        put(&c, full, t, t->data);
    }
    const gguf_tensor *table = own_or(&c, "embed_tokens", "token_embd.weight"),
                      *projection = own_or(&c, "eh_proj", ""),
                      *output = own_or(&c, "shared_head_head", "output.weight");
    const int64_t n_embd = table->dims[0];
    const float *embeddings = table->data, *weights = projection->data;
    float *rows = reference_alloc((size_t)(n_embd * table->dims[1]), sizeof *rows);
    double *both = reference_alloc((size_t)(2 * n_embd), sizeof *both);
    for (int32_t i = 0; i < n; i++) {
        normed(&c, "enorm", embeddings + tokens[i] * n_embd, n_embd, both);
        normed(&c, "hnorm", hidden + i * n_embd, n_embd, both + n_embd);
        for (int64_t o = 0; o < n_embd; o++) {
            double sum = 0;
            for (int64_t k = 0; k < 2 * n_embd; k++) sum += (double)weights[o * 2 * n_embd + k] * both[k];
            rows[i * n_embd + o] = (float)sum;
        }
    }
    put(&c, "token_embd.weight", table, rows);
    put(&c, "output.weight", output ? output : find(&c, "token_embd.weight"),
        output ? output->data : find(&c, "token_embd.weight")->data);
    const gguf_tensor *norm = own_or(&c, "shared_head_norm", "output_norm.weight");
    put(&c, "output_norm.weight", norm, norm->data);
    free(rows);
    free(both);
    copy_end(&c, path);
}
