/* SPDX-License-Identifier: Apache-2.0 */
/* kv_plan.c: see kv_plan.h. */
#include "kv/kv_plan.h"

#include "base/check.h"
#include "base/compiler.h"

/* ---- shapes ---- */

kv_capabilities kv_shape_capabilities(const kv_shape *s) {
    bool has_states = false, is_uniform = true;
    for (int32_t i = 0; i < s->n_layers; i++) {
        const kv_layer_shape *l = &s->layers[i], *first = &s->layers[0];
        has_states |= l->kind == KV_STATE;
        is_uniform &= l->kind == KV_PAIRS && l->kind == first->kind && l->n_heads == first->n_heads &&
                      l->key_dim == first->key_dim && l->value_dim == first->value_dim;
    }
    return (kv_capabilities){
        .masks = !has_states,
        .shifts = !has_states,
        .truncates = !has_states,
        .modules = !has_states,
        .reduces = is_uniform,
    };
}

int32_t kv_shape_heads(const kv_shape *s) {
    BASE_ASSERT(kv_shape_capabilities(s).reduces);
    return s->layers[0].n_heads;
}

bool kv_shape_has_windows(const kv_shape *s) {
    bool has = false;
    for (int32_t i = 0; i < s->n_layers && !has; i++) has = s->layers[i].window > 0;
    return has;
}

bool kv_shape_mixes(const kv_shape *s) {
    bool mixes = false;
    for (int32_t i = 0; i < s->n_layers && !mixes; i++) mixes = kv_shape_layer_format(s, i) != s->format;
    return mixes;
}

size_t kv_shape_most_block_bytes(const kv_shape *s) {
    size_t most = 0;
    for (int32_t i = 0; i < s->n_layers; i++) most = BASE_MAX(most, kv_shape_layer(s, i).block_bytes);
    return most;
}

uint64_t kv_shape_token_bytes(const kv_shape *s) {
    uint64_t bytes = 0;
    for (int32_t i = 0; i < s->n_layers; i++) bytes += kv_shape_layer(s, i).block_bytes;
    return bytes / KV_BLOCK_SLOTS;
}

/* ---- places in blocks ---- */

static kv_packing packing_of(const kv_layer *l, size_t block_bytes) {
    kv_packing packing = {.per_cell = 1};
    if (!kv_layer_is_supported(l) || l->cell_bytes == 0) return packing;
    const size_t apart = BASE_MAX(l->key_bytes, l->value_bytes);
    BASE_ASSERT(apart > 0 && block_bytes > 0);
    packing.part_bytes = l->cell_bytes;
    if (l->kind == KV_PAIRS && l->format == RP_KV_F16 && block_bytes / apart > 2 * (block_bytes / packing.part_bytes))
        packing = (kv_packing){.per_cell = 2, .part_bytes = apart};
    const size_t n = block_bytes / packing.part_bytes;
    packing.per_block = n > INT32_MAX ? INT32_MAX : (int32_t)n;
    return packing;
}

/* The first layer with blocks; 0 if there is none. Layers with cells of the same size are not apart. */
static int32_t common_layer(const kv_shape *s) {
    int32_t i = 0;
    while (i < s->n_layers && s->layers[i].kind == KV_STATE) i++;
    return i < s->n_layers ? i : 0;
}

/* A layer of spans of a format in a pool with blocks of block_bytes. */
static kv_place place_of(const kv_shape *pool, size_t block_bytes, rp_kv_format format, int32_t layer) {
    const kv_shape own = kv_shape_in(pool, format);
    const kv_layer l = kv_shape_layer(&own, layer), common = kv_shape_layer_in(pool, common_layer(pool), format);
    kv_place p = {.packing = packing_of(&l, block_bytes)};
    if (l.kind == KV_STATE) return p;
    p.is_whole = format == pool->format && l.format == format && l.block_bytes == block_bytes;
    p.is_apart = !p.is_whole && (format == pool->format || l.format != format || l.key_bytes != common.key_bytes ||
                                 l.value_bytes != common.value_bytes);
    if (p.is_whole) p.n_blocks = 1;
    else if (p.is_apart && p.packing.per_block > 0) p.n_blocks = kv_packing_blocks(&p.packing, l.n_heads);
    return p;
}

/* Does it take the layer's cells? */
static bool takes(const kv_place *p, const kv_layer_shape *layer) {
    return layer->kind == KV_STATE || p->packing.per_block > 0;
}

/* Blocks of a column in the pool's format; 0: a layer does not fit. */
static int64_t column_blocks(const kv_shape *pool, size_t block_bytes) {
    int64_t n = 0;
    for (int32_t i = 0; i < pool->n_layers; i++) {
        const kv_place p = place_of(pool, block_bytes, pool->format, i);
        if (!takes(&p, &pool->layers[i])) return 0;
        n += p.n_blocks;
    }
    return n;
}

/* Without layers that have blocks: of states. */
#define STATE_BLOCK_BYTES ((size_t)64 << 10)

size_t kv_shape_block_bytes(const kv_shape *s) {
    const kv_layer common = kv_shape_layer_in(s, common_layer(s), s->format);
    size_t best = common.block_bytes;
    if (best == 0) return STATE_BLOCK_BYTES;
    for (int32_t i = 0; i < s->n_layers; i++) {
        const size_t bytes = kv_shape_layer_in(s, i, s->format).block_bytes;
        if (bytes == best || bytes == 0) continue;
        const int64_t n = column_blocks(s, bytes), n_best = column_blocks(s, best);
        if (n > 0 && (n_best == 0 || (uint64_t)n * bytes < (uint64_t)n_best * best)) best = bytes;
    }
    return best;
}

kv_packing kv_shape_packing(const kv_shape *s, rp_kv_format format) {
    const kv_layer common = kv_shape_layer_in(s, common_layer(s), format);
    return packing_of(&common, kv_shape_block_bytes(s));
}

/* ---- plans ---- */

int64_t kv_plan_blocks(const kv_plan *p, const uint8_t *kept) {
    int64_t n_cells = 0, n = 0;
    for (int32_t i = 0; i < p->shape.n_layers; i++) {
        const int64_t has = kept ? base_popcount64(kept[i]) : 1;
        if (!takes(&p->places[i], &p->shape.layers[i])) return -1;
        if (p->places[i].is_whole || p->places[i].is_apart) n += has * p->places[i].n_blocks;
        else n_cells += has * p->layers[i].n_heads;
    }
    return n + (n_cells > 0 ? kv_packing_blocks(&p->packing, n_cells) : 0);
}

void kv_plan_init(kv_plan *p, const kv_shape *pool, rp_kv_format format, kv_layer *layers, kv_place *places,
                  int32_t *column) {
    const size_t block_bytes = kv_shape_block_bytes(pool);
    BASE_ASSERT((format == pool->format) == (column != NULL));
    *p = (kv_plan){
        .shape = kv_shape_in(pool, format),
        .layers = layers,
        .places = places,
        .column = column,
        .packing = kv_shape_packing(pool, format),
        .has_windows = kv_shape_has_windows(pool),
    };
    for (int32_t i = 0; i < pool->n_layers; i++) {
        layers[i] = kv_shape_layer(&p->shape, i);
        places[i] = place_of(pool, block_bytes, format, i);
        if (column) column[i + 1] = column[i] + places[i].n_blocks;
    }
    p->column_blocks = (int32_t)kv_plan_blocks(p, NULL);
    BASE_ASSERT(!column || p->column_blocks < 0 || column[pool->n_layers] == p->column_blocks);
}
