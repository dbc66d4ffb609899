/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_deviate.c: deviation of the rows' keys and values from the cached ones in their slots, on the CPU. Rows are split
 * between threads; one thread computes each row's sum, head by head, keys before values. */
#include "base/check.h"
#include "model/cpu/cpu_backend.h"

typedef struct deviate_job {
    cpu_backend *b;
    int32_t layer;
    backend_buffer *keys;
    const backend_buffer *values;
    float *deviations;
} deviate_job;

/* Element i of a block's head. */
static float cpu_backend_stored(const cpu_backend *b, const void *states, int64_t i) {
    return b->shape.format == KV_F32 ? ((const float *)states)[i] : kernel_f16_to_f32(((const uint16_t *)states)[i]);
}

/* Rounds an element to the KV format, as storing it does. */
static float cpu_backend_rounded(const cpu_backend *b, float x) { return b->shape.format == KV_F32 ? x : kernel_f16_to_f32(kernel_f32_to_f16(x)); }

/* Sum over n elements; stored elements are `stride` apart. */
static double squared_difference(const cpu_backend *b, const float *x, const void *states, int64_t first, int64_t stride, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)cpu_backend_rounded(b, x[i]) - (double)cpu_backend_stored(b, states, first + i * stride);
        sum += d * d;
    }
    return sum;
}

static void rotate_keys(const deviate_job *j, const model_row *row, float *keys, float *angles) {
    const cpu_backend *b = j->b;
    const model_hparams *hp = &b->model->hp;
    int32_t rope = b->model->layers[j->layer].rope;
    bool halves = (b->model->arch->features & MODEL_ROPE_HALVES) != 0;
    if (rope == MODEL_NO_ROPE) return;
    const model_rope *r = b->angles[rope].rope;
    model_rope_angles(b->model, r, kv_span_position(row->span) + row->slot, r->magnitude, angles);
    b->kernels.rope(keys, angles, hp->n_kv_heads, hp->key_dim, hp->rot_dim, halves, keys);
}

static void deviate_row(const deviate_job *j, int64_t r, float *angles) {
    const cpu_backend *b = j->b;
    const model_hparams *hp = &b->model->hp;
    const model_row *row = &b->step->rows[r];
    float *keys = cpu_row_at(j->keys, r);
    const float *values = cpu_row_of(j->values, r);
    void *block = kv_span_block(row->span, b->model->layers[j->layer].states, row->slot / KV_BLOCK_SLOTS);
    int64_t slot = row->slot % KV_BLOCK_SLOTS;
    double sum = 0;
    BASE_ASSERT(!kv_span_is_scattered(row->span));
    rotate_keys(j, row, keys, angles);
    for (int32_t h = 0; h < hp->n_kv_heads; h++)
        sum += squared_difference(b, keys + (int64_t)h * hp->key_dim, kv_block_keys(&b->shape, block, h), slot, KV_BLOCK_SLOTS, hp->key_dim);
    for (int32_t h = 0; h < hp->n_kv_heads; h++)
        sum += squared_difference(b, values + (int64_t)h * hp->value_dim, kv_block_values(&b->shape, block, h), slot * hp->value_dim, 1,
                                  hp->value_dim);
    j->deviations[r] = (float)sum;
}

static void deviate_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const deviate_job *j = arg;
    for (int64_t r = begin; r < end; r++) deviate_row(j, r, j->b->scratch[thread].angles);
}

#define ROWS_PER_TASK 16

void cpu_deviate(backend *self, int32_t layer, backend_buffer *keys, const backend_buffer *values, float *deviations) {
    deviate_job j = {(cpu_backend *)self, layer, keys, values, deviations};
    base_threads_for(j.b->threads, deviate_rows, &j, j.b->step->n_rows, ROWS_PER_TASK);
}
