/* SPDX-License-Identifier: Apache-2.0 */
/* copied_spans.c: see copied_spans.h. */
#include "engine/features/copied_spans.h"

#include "base/check.h"
#include "base/compiler.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/sequence.h"
#include "kv/block_pool.h"
#include "kv/context.h"
#include "kv/kv_format.h"
#include "kv/kv_plan.h"
#include "kv/span.h"
#include "pml/plan.h"

int64_t copied_spans_blocks(const rp_job *c, int64_t n_cells, int64_t n_spans) {
    const kv_pool *pool = c->engine->pool;
    int64_t most = kv_reduced_blocks(pool, c->format, n_cells, n_spans);
    for (size_t i = 0; i < c->plan->n_items && !c->exact; i++) {
        const pml_item *item = &c->plan->items[i];
        const rp_kv_format format = item->is_view ? c->plan->layout->segments[item->segment].format : c->format;
        if (!kv_format_is_encoded(format)) most = BASE_MAX(most, kv_reduced_blocks(pool, format, n_cells, n_spans));
    }
    return most;
}

int copied_spans_add(rp_job *c, kv_context *to, kv_span *span, int32_t shift, rp_error *err) {
    const int64_t blocks = (int64_t)(kv_span_bytes(span) / kv_pool_block_bytes(to->pool));
    BASE_ASSERT(blocks <= c->seq.reserved); /* invariant 6 */
    sequence_reserve(&c->seq, c->seq.reserved - blocks);
    const int rc = kv_context_add(to, span, shift, NULL, err);
    kv_span_unref(span);
    return rc;
}
