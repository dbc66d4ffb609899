/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_deviate.c: deviation of the rows' keys and values from the cached ones in their slots, on the CPU. Rows are split
 * between threads; one thread computes each row's sum, head by head, keys before values. */
#include "base/check.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_kv_elements.h"

typedef struct deviate_job {
    cpu_backend *b;
    int32_t layer;
    backend_buffer *keys;
    const backend_buffer *values;
    float *deviations;
} deviate_job;

/* Rounds an element as the format of the cached one does. scale: of int8, from all elements of the head. */
static float rounded_element(const kv_layer *l, const void *head, bool is_key, int slot, int64_t d, float x,
                             float scale) {
    const kv_element e = kv_format_side(l->format, is_key);
    const int bits = kv_element_bits(e);
    if (e == KV_ELEMENT_INT8) return scale * (float)kernel_int8_code(x, scale);
    if (!kv_element_is_encoded(e)) return cpu_element_rows[e]->round(x);
    return is_key ? kernel_bits_round_key(head, bits, l->key_dim, d, x)
                  : kernel_bits_round_value(head, bits, l->value_dim, slot, x);
}

/* Sum over the elements of a head, as stored. */
static double squared_difference(const kv_layer *l, const float *x, const void *head, bool is_key, int slot) {
    const int64_t dim = is_key ? l->key_dim : l->value_dim;
    const kv_element e = kv_format_side(l->format, is_key);
    const float scale = kernel_int8_scale(x, dim);
    double sum = 0;
    for (int64_t i = 0; i < dim; i++) {
        double d = (double)rounded_element(l, head, is_key, slot, i, x[i], scale) -
                   (double)cpu_stored_element(e, head, is_key, dim, slot, i);
        sum += d * d;
    }
    return sum;
}

static void rotate_keys(const deviate_job *j, const model_row *row, float *keys, float *angles) {
    const cpu_backend *b = j->b;
    const model_layer *l = &b->net->layers[j->layer];
    if (l->rope == MODEL_NO_ROPE) return;
    const model_rope *r = b->angles[l->rope].rope;
    model_rope_angles(r, kv_span_position(row->span) + row->slot, r->magnitude, angles);
    b->kernels.rope(keys, angles, l->n_kv_heads, l->key_dim, r->rot_dim, b->net->hp.rope_halves, keys);
}

static void deviate_row(const deviate_job *j, int64_t r, float *angles) {
    const cpu_backend *b = j->b;
    const model_row *row = &b->step->rows[r];
    float *keys = cpu_row_at(j->keys, r);
    const float *values = j->values ? cpu_row_of(j->values, r) : NULL;
    const int32_t layer = b->net->layers[j->layer].states, block = row->slot / KV_BLOCK_SLOTS;
    const kv_layer *l = kv_span_layer(row->span, layer);
    int slot = row->slot % KV_BLOCK_SLOTS;
    double sum = 0;
    BASE_ASSERT(!kv_span_is_scattered(row->span));
    rotate_keys(j, row, keys, angles);
    const int64_t size = kv_format_keys(l->format) == KV_ELEMENT_INT8 ? kernel_hadamard_size(l->key_dim) : 1;
    kernel_hadamard(keys, (int64_t)l->n_heads * l->key_dim, size); /* of size 1: unchanged */
    for (int32_t h = 0; h < l->n_heads; h++)
        sum += squared_difference(l, keys + (int64_t)h * l->key_dim, cpu_keys(row->span, layer, block, h), true, slot);
    sum /= (double)size;
    for (int32_t h = 0; values && h < l->n_heads; h++)
        sum += squared_difference(l, values + (int64_t)h * l->value_dim, cpu_values(row->span, layer, block, h), false,
                                  slot);
    j->deviations[r] = (float)sum;
}

static void deviate_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const deviate_job *j = arg;
    for (int64_t r = begin; r < end; r++) deviate_row(j, r, j->b->scratch[thread].angles);
}

#define ROWS_PER_TASK 16

void cpu_deviate(backend *self, int32_t layer, backend_buffer *keys, const backend_buffer *values, float *deviations) {
    deviate_job j = {(cpu_backend *)self, layer, keys, values, deviations};
    BASE_ASSERT(j.b->net->layers[layer].owns_kv); /* model_probe_layer */
    base_threads_for(j.b->threads, deviate_rows, &j, j.b->step->n_rows, ROWS_PER_TASK);
}
