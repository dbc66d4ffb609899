/* SPDX-License-Identifier: Apache-2.0 */
/* lora_file.c: see lora_file.h. */
#define _POSIX_C_SOURCE 200809L /* mkstemp */

#include "lora_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/gguf/gguf.h"
#include "must.h"
#include "tiny_random.h"

#define UNIT 0x1p-10f

lora_shape lora_defaults(uint64_t seed) {
    return (lora_shape){.rank = 4, .alpha = 8, .type = KERNEL_F32, .seed = seed};
}

bool lora_file_changes(const char *name, int64_t n_rows) {
    const size_t n = strlen(name);
    if (n_rows < 2 || n < 7 || strcmp(name + n - 7, ".weight") != 0) return false;
    return !strstr(name, "embd") && !strstr(name, "norm") && !strstr(name, "_exps") && !strstr(name, "token_types") &&
           !strstr(name, "cls") && !strstr(name, "ssm_conv1d") && !strstr(name, "shortconv.conv") &&
           !strstr(name, "altup_proj") && !strstr(name, "attn_k_b") && !strstr(name, "attn_v_b") &&
           !strstr(name, "attn_kv_b");
}

/* Whole numbers up to 127 times a power of two; the first of 32 is 127: Q8_0 has them exactly. */
static float *elements(const lora_shape *s, const char *name, char side, int64_t n) {
    tiny_random r = {s->seed * 2 + (side == 'b')};
    float *x = malloc((size_t)n * sizeof *x);
    if (!x) abort();
    for (const char *c = name; *c; c++) r.state = (r.state ^ (uint8_t)*c) * UINT64_C(0x100000001b3);
    for (int64_t i = 0; i < n; i++) x[i] = UNIT * (i % 32 ? (float)tiny_random_below(&r, 255) - 127 : 127);
    return x;
}

static void add_matrix(gguf_writer *w, const lora_shape *s, const char *name, char side, int64_t n_in, int64_t n_out) {
    char full[GGUF_MAX_NAME + 16];
    float *x = elements(s, name, side, n_in * n_out);
    snprintf(full, sizeof full, "%s.lora_%c", name, side);
    gguf_writer_tensor(w, full, n_in % kernel_type_block(s->type) ? KERNEL_F32 : s->type, 2, (int64_t[]){n_in, n_out},
                       x);
    free(x);
}

gguf_writer *lora_file_begin(const char *model, const lora_shape *s, int n_pairs) {
    rp_error err = {0};
    gguf_file *f = NULL;
    gguf_string arch = {0};
    char name[GGUF_MAX_NAME + 1];
    gguf_writer *w = gguf_writer_new(3, 0);
    must(gguf_open(&f, model, &err), &err);
    gguf_get_string(f, "general.architecture", &arch);
    snprintf(name, sizeof name, "%.*s", (int)arch.n, arch.bytes);
    gguf_writer_string(w, "general.type", "adapter");
    gguf_writer_string(w, "general.architecture", name);
    gguf_writer_string(w, "general.name", "test adapter");
    gguf_writer_string(w, "adapter.type", "lora");
    if (s->alpha != 0) gguf_writer_f32(w, "adapter.lora.alpha", s->alpha);
    if (s->invocation)
        gguf_writer_array(w, "adapter.alora.invocation_tokens", GGUF_U32, s->invocation, (size_t)s->n_invocation);
    for (size_t i = 0; i < gguf_n_tensors(f) && n_pairs > 0; i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        snprintf(name, sizeof name, "%.*s", (int)t->name.n, t->name.bytes);
        if (!lora_file_changes(name, t->dims[1])) continue;
        add_matrix(w, s, name, 'a', t->dims[0], s->rank);
        add_matrix(w, s, name, 'b', s->rank, t->dims[1]);
        n_pairs--;
    }
    gguf_close(f);
    return w;
}

void lora_file_write(const char *model, const lora_shape *s, char path[64]) {
    rp_error err = {0};
    gguf_writer *w = lora_file_begin(model, s, 1 << 20);
    snprintf(path, 64, "/tmp/reprise-lora-XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0) abort();
    close(fd);
    must(gguf_writer_save(w, path, &err), &err);
    gguf_writer_free(w);
}

void lora_file_add(const lora_shape *s, const char *name, float *x, int64_t n_rows, int64_t width) {
    float *a = elements(s, name, 'a', width * s->rank), *b = elements(s, name, 'b', s->rank * n_rows);
    const double factor = s->alpha != 0 ? s->alpha / (double)s->rank : 1;
    for (int64_t o = 0; o < n_rows; o++)
        for (int64_t i = 0; i < width; i++) {
            double sum = 0;
            for (int32_t k = 0; k < s->rank; k++) sum += (double)b[o * s->rank + k] * (double)a[k * width + i];
            x[o * width + i] += (float)(factor * sum);
        }
    free(a);
    free(b);
}
