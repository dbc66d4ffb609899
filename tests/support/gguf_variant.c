/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_variant.c: copies a GGUF file key by key and tensor by tensor. Threads: none. */
#define _POSIX_C_SOURCE 200809L /* mkstemp */

#include "gguf_variant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/gguf/gguf.h"
#include "model/gguf/gguf_writer.h"
#include "must.h"
#include "reference_model.h"

typedef struct copying {
    const gguf_variant *v;
    gguf_file *from;
    gguf_writer *to;
    char architecture[64];
    uint64_t n_layers;
} copying;

static void begin(copying *c) {
    gguf_string name = {0};
    char key[128];
    gguf_get_string(c->from, "general.architecture", &name);
    snprintf(c->architecture, sizeof c->architecture, "%.*s", (int)name.n, name.bytes);
    snprintf(key, sizeof key, "%s.block_count", c->architecture);
    gguf_get_u64(c->from, key, &c->n_layers);
}

/* without: a key to leave out; NULL: none. */
static void copy_metadata(const gguf_file *from, const char *without, gguf_writer *to) {
    for (size_t i = 0; i < gguf_n_metadata(from); i++) {
        gguf_string key = gguf_metadata_key(from, i);
        gguf_value_type type;
        gguf_bytes value = gguf_metadata_raw(from, i, &type);
        char name[GGUF_MAX_NAME + 1];
        snprintf(name, sizeof name, "%.*s", (int)key.n, key.bytes);
        if (without && strcmp(name, without) == 0) continue;
        gguf_writer_raw(to, name, type, value.data, value.n);
    }
}

static void copy_keys(copying *c) {
    copy_metadata(c->from, c->v->without_key, c->to);
    if (c->v->shared_kv_layers > 0) {
        char key[128];
        snprintf(key, sizeof key, "%s.attention.shared_kv_layers", c->architecture);
        gguf_writer_u32(c->to, key, (uint32_t)c->v->shared_kv_layers);
    }
}

/* A key or value tensor of a layer that shall have none? */
static bool is_dropped(const copying *c, const char *name) {
    unsigned layer = 0;
    char rest[GGUF_MAX_NAME + 1] = "";
    if (sscanf(name, "blk.%u.%256s", &layer, rest) != 2 || layer + (uint64_t)c->v->shared_kv_layers < c->n_layers)
        return false;
    return strncmp(rest, "attn_k.", 7) == 0 || strncmp(rest, "attn_v.", 7) == 0 ||
           strncmp(rest, "attn_k_norm.", 12) == 0;
}

static float *floats_of(const gguf_tensor *t, int64_t n_rows) {
    const int64_t row_bytes = kernel_row_bytes(t->type, t->dims[0]);
    float *all = reference_alloc((size_t)(n_rows * t->dims[0]), sizeof *all);
    for (int64_t r = 0; r < n_rows; r++)
        kernel_dequantize(t->type, (const char *)t->data + r * row_bytes, all + r * t->dims[0], t->dims[0]);
    return all;
}

/* blk.1.ffn_up_exps.weight becomes blk.1.ffn_up.0.weight and so on. */
static void write_experts(copying *c, const gguf_tensor *t, const char *name, const float *all) {
    char one[GGUF_MAX_NAME + 32];
    const int before = (int)(strstr(name, "_exps.weight") - name);
    for (int64_t e = 0; e < t->dims[2]; e++) {
        snprintf(one, sizeof one, "%.*s.%d.weight", before, name, (int)e);
        gguf_writer_tensor(c->to, one, KERNEL_F32, 2, t->dims, all + e * t->dims[0] * t->dims[1]);
    }
}

/* Latent attention: [latent][head][keys, then values] of blk.N.attn_k_b, [plain][latent][head], and blk.N.attn_v_b,
 * [latent][value][head]. */
static void write_joint(copying *c, const gguf_tensor *k, const char *name) {
    char other[GGUF_MAX_NAME + 1];
    const int before = (int)(strstr(name, "attn_k_b") - name);
    snprintf(other, sizeof other, "%.*sattn_v_b.weight", before, name);
    const gguf_tensor *v = gguf_find_tensor(c->from, other);
    const int64_t plain = k->dims[0], latent = k->dims[1], heads = k->dims[2], value = v->dims[1], each = plain + value;
    float *keys = floats_of(k, latent * heads), *values = floats_of(v, value * heads),
          *all = reference_alloc((size_t)(heads * each * latent), sizeof *all);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t d = 0; d < latent; d++) {
            for (int64_t i = 0; i < plain; i++)
                all[(h * each + i) * latent + d] = keys[(h * latent + d) * plain + i];
            for (int64_t i = 0; i < value; i++)
                all[(h * each + plain + i) * latent + d] = values[(h * value + i) * latent + d];
        }
    snprintf(other, sizeof other, "%.*sattn_kv_b.weight", before, name);
    gguf_writer_tensor(c->to, other, KERNEL_F32, 2, (int64_t[]){latent, heads * each}, all);
    free(keys);
    free(values);
    free(all);
}

static uint64_t number_of(copying *c, const char *name) {
    char key[128];
    uint64_t n = 0;
    snprintf(key, sizeof key, "%s.%s", c->architecture, name);
    if (!gguf_get_u64(c->from, key, &n)) abort();
    return n;
}

/* Rows of blk.N.attn_qkv, q | k | v, and of blk.N.attn_gate as q | k | v | z of each group. */
static void write_joint_delta_net(copying *c, const gguf_tensor *qkv, const gguf_tensor *gate, const char *name) {
    char joint[GGUF_MAX_NAME + 1];
    const int64_t groups = (int64_t)number_of(c, "ssm.group_count"), key = (int64_t)number_of(c, "ssm.state_size"),
                  value = gate->dims[1] / groups, width = qkv->dims[0], n = qkv->dims[1] + gate->dims[1];
    float *rows = floats_of(qkv, qkv->dims[1]), *z = floats_of(gate, gate->dims[1]),
          *all = reference_alloc((size_t)(n * width), sizeof *all), *to = all;
    for (int64_t g = 0; g < groups; g++) {
        const struct {
            const float *from;
            int64_t n;
        } parts[] = {{rows + g * key * width, key},
                     {rows + (groups + g) * key * width, key},
                     {rows + (2 * groups * key + g * value) * width, value},
                     {z + g * value * width, value}};
        for (int i = 0; i < 4; to += parts[i++].n * width)
            memcpy(to, parts[i].from, (size_t)(parts[i].n * width) * sizeof *to);
    }
    snprintf(joint, sizeof joint, "%.*sssm_in.weight", (int)(strstr(name, "attn_qkv") - name), name);
    gguf_writer_tensor(c->to, joint, KERNEL_F32, 2, (int64_t[]){width, n}, all);
    free(rows);
    free(z);
    free(all);
}

static void copy_tensor(copying *c, const gguf_tensor *t) {
    char name[GGUF_MAX_NAME + 1];
    snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.bytes);
    if (is_dropped(c, name)) return;
    if (c->v->joint_keys_values && strstr(name, "attn_v_b.weight")) return;
    if (c->v->joint_keys_values && strstr(name, "attn_k_b.weight")) {
        write_joint(c, t, name);
        return;
    }
    if (c->v->joint_delta_nets && strstr(name, "attn_gate.weight")) return;
    if (c->v->joint_delta_nets && strstr(name, "attn_qkv.weight")) {
        char gate[GGUF_MAX_NAME + 1];
        snprintf(gate, sizeof gate, "%.*sattn_gate.weight", (int)(strstr(name, "attn_qkv") - name), name);
        write_joint_delta_net(c, t, gguf_find_tensor(c->from, gate), name);
        return;
    }
    const int64_t n_rows = t->dims[1] * t->dims[2] * t->dims[3];
    float *all = floats_of(t, n_rows);
    if (c->v->change) c->v->change(name, all, n_rows, t->dims[0]);
    if (c->v->split_experts && strstr(name, "_exps.weight")) write_experts(c, t, name, all);
    else gguf_writer_tensor(c->to, name, KERNEL_F32, t->n_dims, t->dims, all);
    free(all);
}

void gguf_variant_write(const char *from, const gguf_variant *v, char path[64]) {
    rp_error err = {0};
    copying c = {.v = v, .to = gguf_writer_new(3, 0)};
    must(gguf_open(&c.from, from, &err), &err);
    begin(&c);
    copy_keys(&c);
    for (size_t i = 0; i < gguf_n_tensors(c.from); i++) copy_tensor(&c, gguf_tensor_at(c.from, i));
    if (v->add) v->add(c.to);
    snprintf(path, 64, "/tmp/reprise-variant-XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0) abort();
    close(fd);
    must(gguf_writer_save(c.to, path, &err), &err);
    gguf_writer_free(c.to);
    gguf_close(c.from);
}

/* A gguf_fill_fn: copies rows of the tensor in arg. */
static int copy_rows(void *arg, int64_t row, int64_t n_rows, void *dst) {
    const gguf_tensor *t = arg;
    size_t row_bytes = (size_t)kernel_row_bytes(t->type, t->dims[0]);
    memcpy(dst, (const char *)t->data + (size_t)row * row_bytes, (size_t)n_rows * row_bytes);
    return RP_OK;
}

void gguf_variant_write_part(const gguf_file *whole, int no, int n, const char *path) {
    rp_error err = {0};
    gguf_writer *w = gguf_writer_new(3, 0);
    if (no == 0) copy_metadata(whole, NULL, w);
    gguf_writer_u32(w, "split.no", (uint32_t)no);
    gguf_writer_u32(w, "split.count", (uint32_t)n);
    gguf_writer_u32(w, "split.tensors.count", (uint32_t)gguf_n_tensors(whole));
    for (size_t i = (size_t)no; i < gguf_n_tensors(whole); i += (size_t)n) {
        const gguf_tensor *t = gguf_tensor_at(whole, i);
        char name[GGUF_MAX_NAME + 1];
        snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.bytes);
        gguf_writer_tensor_fill(w, name, t->type, t->n_dims, t->dims, copy_rows, (void *)(uintptr_t)t);
    }
    must(gguf_writer_save(w, path, &err), &err);
    gguf_writer_free(w);
}
