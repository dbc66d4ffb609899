/* SPDX-License-Identifier: Apache-2.0 */
/* host_tier.c: see host_tier.h. */
#include "engine/core/host_tier.h"

#include "backend/backend_registry.h"
#include "base/error.h"
#include "engine/core/engine_state.h"
#include "kv/block_pool.h"
#include "store/record/record.h"
#include "store/span_store.h"

bool host_tier_is_apart(const rp_engine *e) {
    const backend_ops *ops = e->backend->ops;
    return ops->host_memory && ops->host_memory(e->backend);
}

/* A copy costs the way over the bus once, and once more for what it evicts from a full device; reading in place costs
 * it for each token that is computed. A copy that replaces nothing is not awaited, and is therefore worth a little more
 * than its bytes: of equal costs, the copy. The bus is as fast both ways, so its speed decides nothing. */
static bool host_tier_reads_in_place(void *user, double n_reads, bool is_full) {
    const rp_engine *e = user;
    switch (e->host->in_place) {
    case RP_KV_IN_PLACE_ALWAYS: return true;
    case RP_KV_IN_PLACE_NEVER: return false;
    default: return n_reads < (is_full ? 2 : 1);
    }
}

int host_tier_open(rp_engine *e, uint64_t budget_bytes, rp_kv_in_place in_place, rp_error *err) {
    host_tier *h = e->host;
    if ((unsigned)in_place > RP_KV_IN_PLACE_NEVER)
        return base_fail(err, RP_ERR_INVALID, "unknown kv_in_place %d", (int)in_place);
    h->in_place = in_place;
    if (!host_tier_is_apart(e) || budget_bytes < kv_pool_block_bytes(e->pool)) return RP_OK;
    const int rc =
        kv_pool_new(&h->pool, &e->states->shape, budget_bytes, e->backend->ops->host_memory(e->backend), err);
    if (rc) return rc;
    kv_pool_set_home(h->pool, e->pool);
    span_store_set_host(e->store, &(span_host){h->pool, host_tier_reads_in_place, e});
    return RP_OK;
}

void host_tier_close(rp_engine *e) { kv_pool_free(e->host->pool); }
