/* SPDX-License-Identifier: Apache-2.0 */
/* sequence.c: see sequence.h. */
#include "engine/core/sequence.h"

#include "base/check.h"
#include "base/compiler.h"
#include "backend/backend.h"

static int64_t blocks_for(int64_t tokens) { return BASE_DIV_UP(tokens, KV_BLOCK_SLOTS); }

/* The format is the pool's. */
static int64_t pool_blocks(const kv_pool *pool, int32_t n, int32_t runs, int32_t max_piece, bool keeps_windows) {
    const kv_shape *shape = kv_pool_shape(pool);
    const int32_t *column = kv_pool_plan(pool, shape->format)->column;
    int64_t whole = blocks_for(n) + runs, sum = 0;
    for (int32_t l = 0; l < shape->n_layers; l++) {
        int32_t window = keeps_windows ? 0 : shape->layers[l].window;
        /* before a chunk is trimmed its window is held as well; each end of a window may lie within a block */
        int64_t reached = window > 0 ? blocks_for((int64_t)window + max_piece) + 2 + runs : whole;
        sum += BASE_MIN(whole, reached) * (column[l + 1] - column[l]);
    }
    return sum;
}

int64_t sequence_blocks_in(const kv_pool *pool, rp_kv_format format, int32_t n, int32_t runs, int32_t max_piece,
                           bool keeps_windows) {
    BASE_ASSERT(n >= 0 && runs >= 0 && max_piece >= 0);
    if (format == kv_pool_shape(pool)->format) return pool_blocks(pool, n, runs, max_piece, keeps_windows);
    return (blocks_for(n) + runs) * kv_column_blocks(pool, format); /* spans of another format free no blocks */
}

int64_t sequence_held_blocks(const kv_pool *pool, rp_kv_format format, int32_t n) {
    return blocks_for(n) * kv_column_blocks(pool, format);
}

void sequence_reserve(sequence *s, int64_t blocks) {
    BASE_ASSERT(blocks >= 0);
    if (blocks != s->reserved) kv_pool_reserve(s->context.pool, blocks - s->reserved);
    s->reserved = blocks;
}

void sequence_reset(sequence *s) {
    sequence_reserve(s, 0);
    *s = (sequence){.context = s->context};
}

int sequence_append(sequence *s, int32_t token, int32_t pos, model_row *row, rp_error *err) {
    *row = (model_row){.token = token, .pos = pos};
    int rc = kv_context_append(&s->context, pos, &row->span, &row->slot, err);
    if (rc) return rc;
    BASE_ASSERT(row->slot >= 0 && row->slot < KV_SPAN_TOKENS);
    s->slots++;
    if (row->slot % KV_BLOCK_SLOTS == 0)
        sequence_reserve(s, BASE_MAX(s->reserved - kv_column_blocks(s->context.pool, s->context.format), 0));
    return RP_OK;
}

/* Blocks of a layer that begin in the last n tokens: those that stay are counted again when they are appended to. */
static int64_t begun_blocks(const kv_context *c, int32_t n) {
    int64_t blocks = 0;
    for (size_t i = c->n_views; n > 0; n -= BASE_MIN(n, kv_span_tokens(c->views[i].span))) {
        int32_t tokens = kv_span_tokens(c->views[--i].span);
        blocks += blocks_for(tokens) - blocks_for(tokens - BASE_MIN(n, tokens));
    }
    return blocks;
}

void sequence_settle(sequence *s, int32_t n, int32_t pos) {
    BASE_ASSERT(n >= 0 && n <= s->slots);
    int64_t blocks = begun_blocks(&s->context, n) * kv_column_blocks(s->context.pool, s->context.format);
    kv_context_truncate(&s->context, n);
    s->slots -= n;
    if (!s->keeps_windows) blocks += kv_context_trim(&s->context, pos);
    if (blocks > 0) sequence_reserve(s, s->reserved + blocks);
}
