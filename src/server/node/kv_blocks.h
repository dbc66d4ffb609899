/* SPDX-License-Identifier: Apache-2.0 */
/* kv_blocks.h: which blocks of text the engine holds, and which of that subscribers do not know yet (kv_events.h).
 *
 *   table    name -> block: parent, tokens, tiers now, tiers as they were taken last
 *   order    all blocks, by the time at which they were held first: parents before children
 *   changed  those whose tiers differ from what was taken, in the order in which they began to
 *   cursor   after a restart: the next block of `order`; all before it have been taken since
 *
 * There is no queue that could overflow: a block that changes twice before it is taken is taken once, in its last
 * state, and one that came and went is not taken at all. What is taken is in an order in which no block comes before
 * its parent: where both are new, the parent has changed first. The engine's thread waits at most for a copy of
 * KV_BLOCKS_PIECE blocks. Thread-safe, with one thread that takes.
 */
#ifndef SERVER_KV_BLOCKS_H
#define SERVER_KV_BLOCKS_H

#include "reprise_cluster.h"

#define KV_BLOCKS_MAX ((size_t)1 << 20) /* 64 Mi tokens; about 370 MB */
#define KV_BLOCKS_PIECE 256

typedef struct kv_blocks kv_blocks;

/* A block has come into some tiers, and has left others. */
typedef struct kv_block_change {
    rp_name name, parent;     /* as in rp_block_change */
    uint32_t stored, removed; /* RP_TIER_* */
    int32_t tokens[RP_NAME_TOKENS];
} kv_block_change;

/* RP_ERR_MEMORY. */
int kv_blocks_new(kv_blocks **out, rp_error *err);
void kv_blocks_free(kv_blocks *b);
/* An rp_on_blocks; user: the blocks. A block for which there is no memory, or that exceeds KV_BLOCKS_MAX, is left out
 * until it changes again, as if it was not held. */
void kv_blocks_change(void *blocks, const rp_block_change *changes, size_t n);
/* Takes up to `most` changed blocks, at most KV_BLOCKS_PIECE; returns their number. */
size_t kv_blocks_take(kv_blocks *b, kv_block_change *out, size_t most);
/* Forgets what was taken: subscribers know nothing. */
void kv_blocks_restart(kv_blocks *b);
/* Blocks in the table, and those left out since the start. */
size_t kv_blocks_count(kv_blocks *b);
uint64_t kv_blocks_left_out(kv_blocks *b);

#endif
