/* SPDX-License-Identifier: Apache-2.0 */
/* block_pool.h: memory for the KV cache, in blocks of 64 token slots of one layer (kv_layer.h), under a hard byte
 * budget.
 *
 * All blocks of a pool have one size, that of a layer's block in the pool's format; KV of other formats is packed into
 * them (kv_plan.h).
 *
 * Blocks are taken and freed one by one. Their memory is the backend's, comes in slabs and stays with the pool (fresh
 * pages cost more than a block's arithmetic). When the budget is used up, the pool asks its reclaimer (the store) to
 * evict spans before it fails.
 *
 * Thread-safe: one mutex, held for a few instructions, never while the reclaimer runs. A condition variable serves
 * threads that wait for blocks that another thread fills.
 */
#ifndef KV_BLOCK_POOL_H
#define KV_BLOCK_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kv/kv_plan.h"

typedef struct kv_pool kv_pool;

/* Tries to free at least one block by evicting an unreferenced span. Returns false if no such span is left. */
typedef bool (*kv_reclaim_fn)(void *user);

/* A pool may be divided (kv_pool_divide): the blocks of the first layers of spans are then in memory of the host, those
 * of the others in the pool's memory, a device's. A block's kv_address tells which of the two it is in
 * (kv_block_address).
 */

/* memory: borrowed; NULL: of the host. The shape's layers are borrowed. RP_ERR_INVALID (shape), RP_ERR_UNSUPPORTED (its
 * format, or a layer that does not fit into its blocks), RP_ERR_MEMORY. */
int kv_pool_new(kv_pool **out, const kv_shape *shape, uint64_t budget_bytes, kv_memory *memory, rp_error *err);
void kv_pool_set_budget(kv_pool *p, uint64_t budget_bytes); /* before the first block is taken */
/* The blocks of the first n_layers layers of spans, not all, are in the host's memory from now on, at most host_bytes;
 * the pool's budget is that of the others. The budget of both becomes the most, up to most_bytes, of which no spans
 * take more than one of the two has. The pool takes spans of its own format alone, none that is reduced. Before the
 * first block, once. */
void kv_pool_divide(kv_pool *p, int32_t n_layers, uint64_t host_bytes, uint64_t most_bytes);
int32_t kv_pool_host_layers(const kv_pool *p); /* 0: it is not divided */
/* Spans that are made of this pool's take their blocks from `home`: it is of the backend's other memory. */
void kv_pool_set_home(kv_pool *p, kv_pool *home);
kv_pool *kv_pool_home(kv_pool *p); /* p, unless another was set */
void kv_pool_free(kv_pool *p);     /* every block must have been freed */
void kv_pool_set_reclaim(kv_pool *p, kv_reclaim_fn reclaim, void *user);

const kv_shape *kv_pool_shape(const kv_pool *p);
size_t kv_pool_block_bytes(const kv_pool *p);
kv_memory *kv_pool_memory(const kv_pool *p);                      /* what blocks are in, unless they are the host's */
kv_memory *kv_pool_layer_memory(const kv_pool *p, int32_t layer); /* what those of a layer of spans are in */
/* Where a block begins: the pool names its blocks by more than their address. */
static inline kv_address kv_block_address(kv_address block) { return (kv_address){block.at & ~(uint64_t)1}; }
/* How spans of a format lie in the pool's blocks. Lives as long as the pool. */
const kv_plan *kv_pool_plan(const kv_pool *p, rp_kv_format format);
/* Can spans be in this format? */
static inline bool kv_pool_takes(const kv_pool *p, rp_kv_format format) {
    return kv_pool_plan(p, format)->column_blocks >= 0;
}

/* Takes n blocks into out[0..n), all or none. RP_ERR_BUDGET: over the budget even after reclaiming; RP_ERR_MEMORY: out
 * of memory. Not of a divided pool. */
int kv_pool_take(kv_pool *p, kv_address *out, size_t n, rp_error *err);
/* The same of a pool that may be divided: the first n_host blocks are of layers in the host's memory. */
int kv_pool_take_both(kv_pool *p, kv_address *out, size_t n_host, size_t n, rp_error *err);
void kv_pool_give(kv_pool *p, const kv_address *blocks, size_t n);
/* The same of blocks that are still being copied: they are taken again after all others that are free. */
void kv_pool_give_last(kv_pool *p, const kv_address *blocks, size_t n);

/* Waits until *count is n or more. The thread that increases it must call kv_pool_notify_filled afterwards. */
void kv_pool_wait_filled(kv_pool *p, const atomic_int *count, int n);
void kv_pool_notify_filled(kv_pool *p);

/* Reserves (delta > 0) or releases blocks that a sequence may take later. The pool only counts them: kv_pool_take
 * ignores the count. */
void kv_pool_reserve(kv_pool *p, int64_t delta);

typedef struct kv_pool_stats {
    uint64_t budget_bytes, used_bytes, slab_bytes;
    uint64_t host_budget_bytes, host_slab_bytes; /* of these, in the host's memory; 0: the pool is not divided */
    int64_t reserved_blocks;
    /* since creation; its growth over a piece of code is an upper bound of the bytes written or copied there */
    uint64_t taken_bytes_total;
} kv_pool_stats;
kv_pool_stats kv_pool_get_stats(kv_pool *p);

#endif
