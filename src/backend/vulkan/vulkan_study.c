/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_study.c: operations that judge slots (backend_study), and the deviation of recomputed KV from the KV in its
 * slots. What is summed over rows, heads or dimensions is summed on the device; numbers of a module that are computed
 * once and in double are the host's (docs/decisions/0097-slots-are-judged-on-the-device.md). */
#include <string.h>

#include "backend/output_norms.h"
#include "backend/vulkan/vulkan_attention.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"

/* ---- deviation ---- */

/* The slots of the rows in a layer, with the elements of keys and values; angles of their positions in their spans.
   false: the step has failed. */
static bool make_slots(vulkan_backend *b, const model_layer *l, bool has_values, vulkan_store_args *a) {
    const int32_t rows = b->step->n_rows, n_heads = l->n_kv_heads;
    const model_rope *rope = l->rope == MODEL_NO_ROPE ? NULL : b->attention->ropes[l->rope];
    const size_t angles = rope ? sizeof(float) * (size_t)rope->rot_dim : 0;
    const vulkan_part slots = vulkan_arena_take(b, sizeof(vulkan_slot) * (size_t)rows * (size_t)n_heads),
                      turns = vulkan_arena_take(b, angles * (size_t)rows);
    if (!slots.host || !turns.host) return false;
    vulkan_slot *out = slots.host;
    for (int32_t r = 0; r < rows; r++) {
        const model_row *row = &b->step->rows[r];
        const int32_t block = row->slot / KV_BLOCK_SLOTS;
        const rp_kv_format format = kv_span_layer_format(row->span, l->states);
        BASE_ASSERT(!kv_span_is_scattered(row->span) && !kv_span_is_reduced(row->span));
        for (int32_t h = 0; h < n_heads; h++)
            *out++ = (vulkan_slot){
                .keys = kv_span_keys(row->span, l->states, block, h).at,
                .values = has_values ? kv_span_values(row->span, l->states, block, h).at : 0,
                .element = vulkan_element_of(format, true) | vulkan_element_of(format, false) << 8,
                .slot = (uint32_t)(row->slot % KV_BLOCK_SLOTS)};
        if (rope)
            model_rope_angles(rope, kv_span_position(row->span) + row->slot, rope->magnitude,
                              (float *)(void *)((char *)turns.host + angles * (size_t)r));
    }
    a->slots = slots.address;
    a->angles = rope ? turns.address : 0;
    a->rot_dim = rope ? (uint32_t)rope->rot_dim : 0;
    return true;
}

void vulkan_deviate(backend *self, int32_t layer, backend_buffer *keys, const backend_buffer *values,
                    float *deviations) {
    vulkan_backend *b = vulkan(self);
    const model_layer *l = &b->net->layers[layer];
    const uint32_t rows = (uint32_t)b->step->n_rows;
    const size_t bytes = sizeof(float) * rows;
    vulkan_store_args a = {.keys = keys->memory.address,
                           .values = values ? values->memory.address : 0,
                           .n_heads = (uint32_t)l->n_kv_heads,
                           .key_dim = (uint32_t)l->key_dim,
                           .value_dim = values ? (uint32_t)l->value_dim : 0};
    BASE_ASSERT(l->owns_kv && keys->width == l->n_kv_heads * l->key_dim); /* model_probe_layer */
    vulkan_memory_await_rows(b->memory, l->states);
    if (vulkan_grow_scratch(b, &b->attention->deviations, rows) && make_slots(b, l, values != NULL, &a)) {
        a.deviations = b->attention->deviations.address;
        vulkan_dispatch(b, VULKAN_DEVIATE, b->net->hp.rope_halves, &a, sizeof(a), (uint32_t[]){rows, 1, 1});
    }
    const float *x = vulkan_read_now(b, &b->attention->deviations, bytes);
    if (x) memcpy(deviations, x, bytes);
    else memset(deviations, 0, bytes); /* finish reports the failure */
}

/* ---- norms ---- */

/* A weight_row_fn: rows of the model's file, which the host reads. */
static void read_row(const void *user, const model_weight *w, int64_t row, void *scratch, float *to) {
    (void)user;
    (void)scratch;
    kernel_dequantize(w->type, (const char *)w->data + row * kernel_row_bytes(w->type, w->n_in), to, w->n_in);
}

int vulkan_output_norms(backend *self, int32_t layer, const float *values, int32_t n, double *norms, rp_error *err) {
    const vulkan_backend *b = vulkan(self);
    base_threads *threads;
    int rc = base_threads_new(&threads, b->n_threads, err);
    if (rc) return rc;
    rc = backend_output_norms(threads, b->net, layer, read_row, NULL, values, n, norms, err);
    base_threads_free(threads);
    return rc;
}

const backend_study vulkan_study = {
    .read_head = vulkan_read_head,
    .bound = vulkan_bound,
    .deviate = vulkan_deviate,
    .observe_input = vulkan_observe_input,
    .output_norms = vulkan_output_norms,
};
