/* SPDX-License-Identifier: Apache-2.0 */
/* reduced_run.c: see reduced_run.h. */
#include "support/reduced_run.h"

#include "base/compiler.h"
#include "base/memory.h"
#include "support/must.h"

static void fill_cell(tiny_random *r, kv_span *s, int32_t layer, int32_t block, int32_t head) {
    const size_t bytes = kv_span_layer(s, layer)->cell_bytes;
    uint8_t *cell = base_alloc(bytes);
    if (!cell) must(RP_ERR_MEMORY, &(rp_error){.message = "a cell"});
    for (size_t i = 0; i < bytes; i++) cell[i] = (uint8_t)tiny_random_below(r, 256);
    kv_span_put_cell(s, layer, block, head, cell);
    base_free(cell);
}

/* Unused slots of a cell as an encoder leaves them: zeros. */
static void clear_cell(kv_span *s, int32_t layer, int32_t block, int32_t head, int32_t n_used) {
    const kv_layer one = kv_layer_cell(kv_span_layer(s, layer));
    uint8_t *cell = base_alloc(one.cell_bytes);
    if (!cell) must(RP_ERR_MEMORY, &(rp_error){.message = "a cell"});
    kv_span_get_cell(s, layer, block, head, cell);
    kv_block_clear_slots(&one, cell, n_used);
    kv_block_pack(&one, cell, n_used);
    kv_block_unpack(&one, cell, n_used);
    kv_span_put_cell(s, layer, block, head, cell);
    base_free(cell);
}

void reduced_run_fill(tiny_random *r, kv_span *reduced) {
    const kv_shape *shape = kv_span_shape(reduced);
    for (int32_t i = 0; i < shape->n_layers * kv_shape_heads(shape); i++) {
        const int32_t layer = i / kv_shape_heads(shape), head = i % kv_shape_heads(shape),
                      n = kv_span_slots(reduced, layer, head);
        for (int32_t b = 0; b * KV_BLOCK_SLOTS < n; b++) {
            fill_cell(r, reduced, layer, b, head);
            if (n < (b + 1) * KV_BLOCK_SLOTS) clear_cell(reduced, layer, b, head, n - b * KV_BLOCK_SLOTS);
        }
    }
}

void reduced_run_make(tiny_random *r, kv_pool *pool, rp_kv_format format, int32_t pos, int32_t n_tokens,
                      kv_span *run[REDUCED_RUN_SPANS]) {
    const int32_t n_layers = kv_pool_shape(pool)->n_layers, n_kv_heads = kv_shape_heads(kv_pool_shape(pool));
    rp_error err = {0};
    for (int i = 0; i < REDUCED_RUN_SPANS; i++) {
        const int32_t first = i * KV_SPAN_TOKENS, n = BASE_MIN(n_tokens - first, KV_SPAN_TOKENS);
        int32_t slot;
        run[i] = NULL;
        if (n <= 0) continue;
        must(kv_span_new_in(&run[i], pool, format, pos + first, &err), &err);
        for (int32_t k = 0; k < n; k++) must(kv_span_append(run[i], &slot, &err), &err);
        for (int32_t k = 0; k < n_layers * n_kv_heads * ((n + KV_BLOCK_SLOTS - 1) / KV_BLOCK_SLOTS); k++)
            fill_cell(r, run[i], k / n_kv_heads % n_layers, k / n_kv_heads / n_layers, k % n_kv_heads);
    }
}

size_t reduced_run_spans(kv_span *const run[REDUCED_RUN_SPANS]) {
    size_t n = 0;
    while (n < REDUCED_RUN_SPANS && run[n]) n++;
    return n;
}

void reduced_run_free(kv_span *run[REDUCED_RUN_SPANS]) {
    for (int i = 0; i < REDUCED_RUN_SPANS; i++) kv_span_unref(run[i]);
}

kv_selection *reduced_run_select(tiny_random *r, const kv_shape *shape, int32_t n_tokens) {
    kv_selection *s;
    rp_error err = {0};
    must(kv_selection_new(&s, shape->n_layers, kv_shape_heads(shape), n_tokens, &err), &err);
    for (int32_t head = 0; head < shape->n_layers * kv_shape_heads(shape); head++) {
        const uint64_t least = tiny_random_below(r, 5);
        for (int32_t slot = 0; slot < n_tokens; slot++)
            if (tiny_random_below(r, 4) < least)
                kv_selection_add(s, head / kv_shape_heads(shape), head % kv_shape_heads(shape), slot);
    }
    if (kv_selection_most(s) == 0) kv_selection_add(s, 0, 0, (int32_t)tiny_random_below(r, (uint64_t)n_tokens));
    return s;
}
