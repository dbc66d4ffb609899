/* SPDX-License-Identifier: Apache-2.0 */
/* host_tier.h: KV that a device evicts stays in RAM: the engine's RAM tier, where memory of the device is other memory.
 *
 *   device memory (rp_engine.pool) --evicted--> RAM (host_tier.pool) --evicted--> disk, or removed
 *                 ^                               |
 *                 +---- copied for a hit ---------+---- read in place, over the bus, for a hit
 *
 * The store moves spans (store/index/span_places.h). This file opens the tier, and decides by cost whether a hit is
 * copied or read in place. Used by the engine's thread.
 */
#ifndef ENGINE_HOST_TIER_H
#define ENGINE_HOST_TIER_H

#include "engine/core/bus_model.h"
#include "reprise_device.h"

typedef struct host_tier {
    struct kv_pool *pool; /* NULL: there is none */
    rp_kv_in_place in_place;
    bus_model bus;
    uint64_t up_bytes, up_us, down_bytes, down_us; /* of rp_device_usage, that `bus` has learned from */
    uint64_t in_place_bytes;                       /* likewise: before the last step */
} host_tier;

/* Is memory of the engine's device other memory than RAM? */
bool host_tier_is_apart(const rp_engine *e);
/* Gives the store a tier of so many bytes in RAM; a budget for less than a block: none. RP_ERR_INVALID (in_place),
 * RP_ERR_MEMORY. */
int host_tier_open(rp_engine *e, uint64_t budget_bytes, rp_kv_in_place in_place, rp_error *err);
/* The time of the last step without that of its reads of KV in RAM over the bus, which are no cost of its rows and
 * slots: what cost_model learns. */
double host_tier_measured_us(rp_engine *e, double us);
void host_tier_close(rp_engine *e); /* after the store */

#endif
