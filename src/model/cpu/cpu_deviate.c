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

/* Element d of a slot: keys are [dim][64 slots], values [64 slots][dim]; int8 as in kernels.h. */
static float stored_element(const cpu_backend *b, const void *head, bool is_key, int64_t dim, int slot, int64_t d) {
    const int64_t i = is_key ? d * KV_BLOCK_SLOTS + slot : slot * dim + d;
    switch (b->shape.format) {
    case KV_F32: return ((const float *)head)[i];
    case KV_INT8: return is_key ? kernel_int8_key(head, dim, slot, d) : kernel_int8_value(head, dim, slot, d);
    default: return kernel_f16_to_f32(((const uint16_t *)head)[i]);
    }
}

/* Rounds an element to the KV format, as storing it does. scale: of int8, from all elements of the head. */
static float rounded_element(const cpu_backend *b, float x, float scale) {
    switch (b->shape.format) {
    case KV_F32: return x;
    case KV_INT8: return scale * (float)kernel_int8_code(x, scale);
    default: return kernel_f16_to_f32(kernel_f32_to_f16(x));
    }
}

/* Sum over the elements of a head. */
static double squared_difference(const cpu_backend *b, const float *x, const void *head, bool is_key, int64_t dim, int slot) {
    const float scale = b->shape.format == KV_INT8 ? kernel_int8_scale(x, dim) : 0;
    double sum = 0;
    for (int64_t i = 0; i < dim; i++) {
        double d = (double)rounded_element(b, x[i], scale) - (double)stored_element(b, head, is_key, dim, slot, i);
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
    int slot = row->slot % KV_BLOCK_SLOTS;
    double sum = 0;
    BASE_ASSERT(!kv_span_is_scattered(row->span));
    rotate_keys(j, row, keys, angles);
    for (int32_t h = 0; h < hp->n_kv_heads; h++)
        sum += squared_difference(b, keys + (int64_t)h * hp->key_dim, kv_block_keys(&b->shape, block, h), true, hp->key_dim, slot);
    for (int32_t h = 0; h < hp->n_kv_heads; h++)
        sum += squared_difference(b, values + (int64_t)h * hp->value_dim, kv_block_values(&b->shape, block, h), false, hp->value_dim, slot);
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
