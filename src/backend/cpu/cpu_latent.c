/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_latent.c: latent attention on the CPU: products of a head's columns with its own matrix, and values out of keys.
 *
 *   rows of src, run of each head -> slots [head][row], contiguous -> product of each head over its slots -> runs of
 *   dst
 *
 * A slot is a row of a linear layer, so its result does not depend on the other slots. Latent vectors are stored as
 * keys, in the order [dimension][64 slots]; the kernels of values want [slot][dimension], so each block is turned once
 * for all queries of a tile: a copy, which rounds nothing.
 */
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"

struct cpu_latent {
    backend_buffer *plain, *latent, *values; /* [max_rows * n_heads][plain_key_dim], [value_dim], [head_value_dim] */
    cpu_linear_part *parts;                  /* [n_heads] */
};

int cpu_latent_open(cpu_backend *b, int32_t max_rows, rp_error *err) {
    const model_hparams *hp = &b->net->hp;
    if (hp->plain_key_dim == 0) return RP_OK;
    const int32_t slots = max_rows * hp->n_heads;
    int rc;
    BASE_ASSERT(hp->n_kv_heads == 1 && hp->value_dim + hp->rot_dim == hp->key_dim); /* model_hparams.c */
    b->latent = base_calloc(1, sizeof(*b->latent));
    if (!b->latent) return base_fail_memory(err, sizeof(*b->latent), "latent attention");
    b->latent->parts = base_calloc((size_t)hp->n_heads, sizeof(*b->latent->parts));
    if (!b->latent->parts) return base_fail_memory(err, (uint64_t)hp->n_heads * 64, "latent attention");
    if ((rc = cpu_buffer_new(&b->base, slots, hp->plain_key_dim, &b->latent->plain, err)) ||
        (rc = cpu_buffer_new(&b->base, slots, hp->value_dim, &b->latent->latent, err)))
        return rc;
    return cpu_buffer_new(&b->base, slots, hp->head_value_dim, &b->latent->values, err);
}

void cpu_latent_free(cpu_backend *b) {
    if (!b->latent) return;
    cpu_buffer_free(&b->base, b->latent->plain);
    cpu_buffer_free(&b->base, b->latent->latent);
    cpu_buffer_free(&b->base, b->latent->values);
    base_free(b->latent->parts);
    base_free(b->latent);
}

/* ---- runs of columns ---- */

/* Copies runs of rows: item i is run i % n of row i / n. slots: dst has a row for each run, [run][row]; or src has. */
typedef struct runs_job {
    const backend_buffer *src;
    backend_buffer *dst;
    backend_columns from, to;
    int32_t width, n, rows;
    bool to_slots, from_slots;
} runs_job;

static void copy_items(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const runs_job *j = arg;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = i / j->n, run = i % j->n, slot = run * j->rows + row;
        const float *src = j->from_slots ? cpu_row_of(j->src, slot)
                                         : cpu_row_of(j->src, row) + j->from.first + run * j->from.step;
        float *dst = j->to_slots ? cpu_row_at(j->dst, slot) : cpu_row_at(j->dst, row) + j->to.first + run * j->to.step;
        memcpy(dst, src, sizeof(float) * (size_t)j->width);
    }
}

#define RUNS_PER_TASK 64

static void copy_all(cpu_backend *b, runs_job *j) {
    base_threads_for(b->threads, copy_items, j, (int64_t)j->rows * j->n, RUNS_PER_TASK);
}

static bool fits(const backend_buffer *b, backend_columns c, int32_t width, int32_t n) {
    return c.first >= 0 && c.step >= 0 && (int64_t)c.first + (int64_t)c.step * (n - 1) + width <= b->width;
}

void cpu_copy_runs(backend *self, const backend_buffer *src, backend_columns from, int32_t rows, int32_t width,
                   int32_t n, backend_buffer *dst, backend_columns to) {
    BASE_ASSERT(src != dst && fits(src, from, width, n) && fits(dst, to, width, n));
    runs_job j = {.src = src, .dst = dst, .from = from, .to = to, .width = width, .n = n, .rows = rows};
    copy_all((cpu_backend *)self, &j);
}

void cpu_linear_runs(backend *self, const backend_buffer *src, backend_columns from, int32_t rows,
                     const model_weight *weight, backend_buffer *dst, backend_columns to) {
    cpu_backend *b = (cpu_backend *)self;
    const model_hparams *hp = &b->net->hp;
    cpu_latent *x = b->latent;
    const model_weight *w = cpu_packed(b, weight);
    const bool makes_keys = w->n_in == hp->plain_key_dim && w->n_out == hp->value_dim;
    backend_buffer *in = makes_keys ? x->plain : x->latent, *out = makes_keys ? x->latent : x->values;
    const int32_t n = hp->n_heads;
    BASE_ASSERT(w->n_slices == n && w->n_in == in->width && w->n_out == out->width);
    BASE_ASSERT(fits(src, from, in->width, n) && fits(dst, to, out->width, n));
    runs_job gather = {.src = src, .dst = in, .from = from, .width = in->width, .n = n, .rows = rows, .to_slots = true};
    copy_all(b, &gather);
    for (int32_t h = 0; h < n; h++)
        x->parts[h] = (cpu_linear_part){
            .weight = model_weight_slice(w, h), .first_row = h * rows, .n_rows = rows, .dst = out};
    cpu_linear(b, in, n * rows, x->parts, n);
    runs_job scatter = {
        .src = out, .dst = dst, .to = to, .width = out->width, .n = n, .rows = rows, .from_slots = true};
    copy_all(b, &scatter);
}

/* ---- values of a block ---- */

#define SIDE 8  /* of the squares that are turned in registers */
#define LINE 32 /* halves in a cache line */

typedef uint16_t halves __attribute__((vector_size(2 * SIDE)));

#define LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)

/* Three rounds of interleaving rows i and i + 4 turn a square of 8. */
static void turn_square(const uint16_t *in, uint16_t *out, int64_t dim) {
    halves a[SIDE], c[SIDE];
    for (int i = 0; i < SIDE; i++) memcpy(&a[i], in + (size_t)i * KV_BLOCK_SLOTS, sizeof(a[i]));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < SIDE / 2; i++) {
            c[2 * i] = LOW(a[i], a[i + SIDE / 2]);
            c[2 * i + 1] = HIGH(a[i], a[i + SIDE / 2]);
        }
        memcpy(a, c, sizeof(a));
    }
    for (int i = 0; i < SIDE; i++) memcpy(out + i * dim, &a[i], sizeof(a[i]));
}

void cpu_latent_values(const void *in, int64_t dim, size_t element_bytes, void *out) {
    const int64_t square = element_bytes == 2 ? dim / SIDE * SIDE : 0;
    BASE_ASSERT(element_bytes == 2 || element_bytes == 4);
    for (int64_t line = 0; line < square; line += LINE) /* a cache line of each of SIDE rows is written whole */
        for (int slot = 0; slot < KV_BLOCK_SLOTS; slot += SIDE)
            for (int64_t d = line; d < BASE_MIN(line + LINE, square); d += SIDE)
                turn_square((const uint16_t *)in + d * KV_BLOCK_SLOTS + slot, (uint16_t *)out + slot * dim + d, dim);
    for (int64_t d = square; d < dim; d++)
        for (int64_t slot = 0; slot < KV_BLOCK_SLOTS; slot++)
            memcpy((char *)out + (size_t)(slot * dim + d) * element_bytes,
                   (const char *)in + (size_t)(d * KV_BLOCK_SLOTS + slot) * element_bytes, element_bytes);
}
