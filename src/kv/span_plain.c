/* SPDX-License-Identifier: Apache-2.0 */
/* span_plain.c: spans of the pool's format: columns of 64 tokens, in which each layer has a block of the pool, or
 * several if it is apart (kv_plan.h). Blocks that no later token reaches through a layer's window are freed one by
 * one. */
#include <string.h>

#include "base/error.h"
#include "kv/span_internal.h"

int span_new_plain(kv_span **out, kv_pool *pool, int32_t first_pos, bool scattered, rp_error *err) {
    const kv_plan *plan = kv_pool_plan(pool, kv_pool_shape(pool)->format);
    const size_t n_blocks = (size_t)plan->column_blocks * KV_SPAN_BLOCKS;
    const int rc = span_new(out, pool, &span_plain, plan->shape.format, first_pos, n_blocks,
                            scattered ? sizeof(int32_t) * KV_SPAN_TOKENS : 0, err);
    if (!rc && scattered) (*out)->positions = (int32_t *)((*out)->blocks + n_blocks);
    return rc;
}

/* Blocks of the pool of a layer's block. */
static size_t blocks_of(const kv_span *s, int32_t layer) { return (size_t)s->plan->places[layer].n_blocks; }

static int plain_append(kv_span *s, rp_error *err) {
    BASE_ASSERT(s->n_blocks < KV_SPAN_BLOCKS);
    const int32_t n_host = s->plan->column[kv_pool_host_layers(s->pool)];
    const int rc = kv_pool_take_both(s->pool, s->blocks + s->n_pool_blocks, (size_t)n_host,
                                     (size_t)s->plan->column_blocks, err);
    if (rc) return rc;
    s->n_pool_blocks += (size_t)s->plan->column_blocks;
    s->n_blocks++;
    return RP_OK;
}

/* The blocks of one more column, of the layers that have it. Of one that is incomplete, the blocks that were taken are
   freed with the span. */
static int take_kept(kv_span *s, const uint8_t *kept, rp_error *err) {
    const int32_t block = s->n_blocks++;
    int rc = RP_OK;
    s->n_pool_blocks += (size_t)s->plan->column_blocks;
    for (int32_t i = 0; i < s->n_layers && !rc; i++) {
        const size_t n = blocks_of(s, i), n_host = i < kv_pool_host_layers(s->pool) ? n : 0;
        if (kept[i] >> block & 1)
            rc = kv_pool_take_both(s->pool, s->blocks + span_index_of(s, i, block), n_host, n, err);
        else s->n_trimmed += (int32_t)blocks_of(s, i);
    }
    return rc;
}

static int plain_take(kv_span *s, const kv_span_form *form, rp_error *err) {
    int rc = RP_OK;
    BASE_ASSERT(s->n_tokens <= KV_SPAN_TOKENS && !s->positions); /* invariant 7 */
    while (s->n_blocks * KV_BLOCK_SLOTS < s->n_tokens && !rc) rc = take_kept(s, form->kept, err);
    return rc;
}

static bool plain_has(const kv_span *s, int32_t layer, int32_t block) {
    return blocks_of(s, layer) > 0 && !kv_address_is_none(s->blocks[span_index_of(s, layer, block)]);
}

static kv_address plain_part(const kv_span *s, int32_t layer, int32_t block, int32_t kv_head, int part) {
    BASE_DCHECK(plain_has(s, layer, block));
    return span_part_of(&s->plan->layers[layer], &s->plan->places[layer].packing,
                        s->blocks + span_index_of(s, layer, block), kv_head, part);
}

const span_layout span_plain = {.append = plain_append, .take = plain_take, .has = plain_has, .part = plain_part};

/* A window ends at the token's own position and starts `window` - 1 before it. Empty slots of the block count as well:
 * they may get a token later. */
bool kv_block_is_reached(int32_t pos, int32_t window, int32_t from, const kv_positions *later, size_t n_later) {
    int64_t first = pos, last = first + KV_BLOCK_SLOTS - 1;
    if (window == 0 || last > (int64_t)from - window) return true;
    for (size_t i = 0; i < n_later; i++)
        if (last > (int64_t)later[i].begin - window && first < later[i].end) return true;
    return false;
}

int32_t kv_span_trim(kv_span *s, int32_t from, const kv_positions *later, size_t n_later) {
    const int32_t trimmed = s->n_trimmed;
    BASE_ASSERT(!s->sealed && span_is_unshared(s));                           /* invariants 2, 6 */
    if (!s->plan->has_windows || s->positions || !span_is_plain(s)) return 0; /* invariant 7 */
    for (int32_t i = 0; i < s->n_blocks * s->n_layers; i++) {
        const int32_t layer = i % s->n_layers, block = i / s->n_layers, window = s->plan->layers[layer].window;
        const size_t n = blocks_of(s, layer);
        kv_address *blocks = s->blocks + span_index_of(s, layer, block);
        if (!plain_has(s, layer, block) ||
            kv_block_is_reached(s->first_pos + block * KV_BLOCK_SLOTS, window, from, later, n_later))
            continue;
        kv_pool_give(s->pool, blocks, n);
        memset(blocks, 0, sizeof(*blocks) * n);
        s->n_trimmed += (int32_t)n;
        s->readable_from = BASE_MAX(s->readable_from, from);
    }
    if (s->n_trimmed > trimmed) s->serial = span_next_serial();
    return s->n_trimmed - trimmed;
}
