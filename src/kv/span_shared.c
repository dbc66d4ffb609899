/* SPDX-License-Identifier: Apache-2.0 */
/* span_shared.c: what all layouts of spans use (span_internal.h). */
#include "base/error.h"
#include "base/memory.h"
#include "kv/span_internal.h"

uint64_t span_next_serial(void) {
    static atomic_ullong last;
    return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

int span_new(kv_span **out, kv_pool *pool, const span_layout *layout, rp_kv_format format, int32_t first_pos,
             size_t n_blocks, size_t extra, rp_error *err) {
    BASE_ASSERT(!layout->part ||
                kv_pool_takes(pool, format)); /* without slots (states) a span has no format of its own */
    const size_t bytes = sizeof(kv_span) + sizeof(kv_address) * n_blocks + extra;
    kv_span *s = base_calloc(1, bytes);
    *out = s;
    if (!s) return base_fail_memory(err, bytes, "a span");
    s->plan = kv_pool_plan(pool, format);
    s->layout = layout;
    s->pool = pool;
    s->serial = span_next_serial();
    s->first_pos = first_pos;
    s->readable_from = INT32_MIN;
    s->n_layers = s->plan->shape.n_layers;
    atomic_init(&s->refs, 1);
    atomic_init(&s->ready, s->n_layers);
    return RP_OK;
}

/* The keys (part 0) or values (part 1) of a cell of a layer that is packed into blocks of the pool. */
kv_address span_part_of(const kv_layer *l, const kv_packing *p, const kv_address *blocks, int64_t cell, int part) {
    const bool apart = p->per_cell == 2;
    const int64_t i = cell * p->per_cell + (apart ? part : 0);
    return kv_address_plus(kv_block_address(blocks[i / p->per_block]),
                           (size_t)(i % p->per_block) * p->part_bytes + (apart || part == 0 ? 0 : l->cell_values_at));
}
