/* SPDX-License-Identifier: Apache-2.0 */
/* host_tier.c: see host_tier.h. */
#include "engine/core/host_tier.h"

#include "backend/backend_registry.h"
#include "base/compiler.h"
#include "base/error.h"
#include "engine/core/engine_state.h"
#include "kv/block_pool.h"
#include "store/record/record.h"
#include "store/span_store.h"

#define LEAST_OWN 0.1 /* of a step's time: what reading in place cannot explain */

bool host_tier_is_apart(const rp_engine *e) {
    const backend_ops *ops = e->backend->ops;
    return ops->host_memory && ops->host_memory(e->backend);
}

/* Learns the speed of copies since the last call. */
static const bus_model *learn_bus(rp_engine *e) {
    host_tier *h = e->host;
    rp_device_usage u = {.struct_size = sizeof(u)};
    e->backend->ops->device_usage(e->backend, &u);
    bus_model_learn(&h->bus.to_device, u.promoted_bytes - h->up_bytes, u.promoted_us - h->up_us);
    bus_model_learn(&h->bus.to_ram, u.demoted_bytes - h->down_bytes, u.demoted_us - h->down_us);
    h->up_bytes = u.promoted_bytes, h->up_us = u.promoted_us;
    h->down_bytes = u.demoted_bytes, h->down_us = u.demoted_us;
    return &h->bus;
}

static bool host_tier_reads_in_place(void *user, double n_reads, bool is_full) {
    rp_engine *e = user;
    switch (e->host->in_place) {
    case RP_KV_IN_PLACE_ALWAYS: return true;
    case RP_KV_IN_PLACE_NEVER: return false;
    default: return bus_model_reads_in_place(learn_bus(e), n_reads, is_full);
    }
}

static bool host_tier_recomputes(void *user, uint64_t bytes, uint64_t cost_us) {
    rp_engine *e = user;
    return e->host->in_place == RP_KV_IN_PLACE_AUTO && bus_model_recomputes(learn_bus(e), bytes, cost_us);
}

double host_tier_measured_us(rp_engine *e, double us) {
    host_tier *h = e->host;
    rp_device_usage u = {.struct_size = sizeof(u)};
    if (!h->pool) return us;
    e->backend->ops->device_usage(e->backend, &u);
    const double bytes = (double)(u.in_place_bytes - h->in_place_bytes);
    h->in_place_bytes = u.in_place_bytes;
    return BASE_MAX(us - bytes * bus_model_byte_us(&h->bus.to_device), us * LEAST_OWN);
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
    span_store_set_ram(e->store, &(span_ram){.pool = h->pool,
                                             .reads_in_place = host_tier_reads_in_place,
                                             .recomputes = host_tier_recomputes,
                                             .user = e});
    return RP_OK;
}

void host_tier_close(rp_engine *e) { kv_pool_free(e->host->pool); }
