/* SPDX-License-Identifier: Apache-2.0 */
/* kv_plan.c: see kv_plan.h. */
#include "kv/kv_plan.h"

#include "base/check.h"
#include "base/compiler.h"

/* ---- shapes ---- */

kv_layer kv_shape_layer_in(const kv_shape *s, int32_t layer, rp_kv_format format) {
    return kv_layer_make(s->n_kv_heads, s->key_dim, s->value_dim, s->windows ? s->windows[layer] : 0, format);
}

kv_layer kv_shape_layer(const kv_shape *s, int32_t layer) { return kv_shape_layer_in(s, layer, kv_shape_layer_format(s, layer)); }

size_t kv_shape_block_bytes(const kv_shape *s) { return kv_shape_layer_in(s, 0, s->format).block_bytes; }

bool kv_shape_mixes(const kv_shape *s) {
    bool mixes = false;
    for (int32_t i = 0; i < s->n_layers && !mixes; i++) mixes = kv_shape_layer_format(s, i) != s->format;
    return mixes;
}

size_t kv_shape_most_block_bytes(const kv_shape *s) {
    return kv_shape_layer_in(s, 0, kv_shape_mixes(s) ? RP_KV_F16 : s->format).block_bytes;
}

uint64_t kv_shape_token_bytes(const kv_shape *s) {
    uint64_t bytes = 0;
    for (int32_t i = 0; i < s->n_layers; i++) bytes += kv_shape_layer(s, i).block_bytes;
    return bytes / KV_BLOCK_SLOTS;
}

kv_packing kv_shape_packing(const kv_shape *s, rp_kv_format format) {
    const kv_layer l = kv_shape_layer_in(s, 0, format); /* all layers have the same heads */
    kv_packing packing = {.per_cell = 1};
    if (!kv_layer_is_supported(&l)) return packing;
    const size_t block = kv_shape_block_bytes(s), apart = BASE_MAX(l.key_bytes, l.value_bytes);
    packing.part_bytes = l.cell_bytes;
    if (format == RP_KV_F16 && block / apart > 2 * (block / packing.part_bytes)) packing = (kv_packing){.per_cell = 2, .part_bytes = apart};
    const size_t n = block / packing.part_bytes;
    packing.per_block = n > INT32_MAX ? INT32_MAX : (int32_t)n;
    return packing;
}

int32_t kv_shape_f16_blocks(const kv_shape *s) {
    const kv_packing packing = kv_shape_packing(s, RP_KV_F16);
    return packing.per_block > 0 ? (s->n_kv_heads * packing.per_cell + packing.per_block - 1) / packing.per_block : 0;
}

int64_t kv_shape_packed_blocks(const kv_shape *pool, rp_kv_format format, int64_t n, int64_t n_f16) {
    const kv_packing packing = kv_shape_packing(pool, format);
    BASE_ASSERT(packing.per_block > 0);
    return kv_packing_blocks(&packing, n * pool->n_kv_heads) + (n_f16 > 0 ? n_f16 * kv_shape_f16_blocks(pool) : 0);
}

/* ---- plans ---- */

void kv_plan_init(kv_plan *p, const kv_shape *pool, rp_kv_format format, kv_layer *layers, const int32_t *column) {
    int32_t n_f16 = 0;
    *p = (kv_plan){.shape = kv_shape_in(pool, format), .layers = layers, .column = column, .packing = kv_shape_packing(pool, format)};
    for (int32_t i = 0; i < pool->n_layers; i++) {
        layers[i] = kv_shape_layer(&p->shape, i);
        n_f16 += layers[i].format != format;
    }
    if (n_f16 > 0) {
        p->f16_packing = kv_shape_packing(pool, RP_KV_F16);
        p->f16_blocks = kv_shape_f16_blocks(pool);
    }
    if (format == pool->format) p->column_blocks = column[pool->n_layers];
    else if (p->packing.per_block > 0) p->column_blocks = (int32_t)kv_shape_packed_blocks(pool, format, pool->n_layers - n_f16, n_f16);
}
