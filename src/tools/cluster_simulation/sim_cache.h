/* SPDX-License-Identifier: Apache-2.0 */
/* sim_cache.h: the KV that a simulated node keeps: names in RAM and on disk, under the store's eviction policy
 * (store/index/eviction.h). Sizes in tokens.
 *
 *   RAM   capacity >= reserved (running requests) + used (names)     invariant: at all times
 *   disk  every name that enters RAM is written to disk, too, if there is a disk; evicted from RAM it remains there
 *
 * Names that running requests use are held: not evicted.
 */
#ifndef TOOLS_SIM_CACHE_H
#define TOOLS_SIM_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reprise_tools.h"

/* A name's tiers changed. */
typedef void (*sim_cache_changed)(void *user, uint32_t id, const rp_name *name, uint32_t tiers);

typedef struct sim_cache sim_cache;

/* n_names: numbers of names are below it. changed: may be NULL. RP_ERR_MEMORY. */
int sim_cache_new(sim_cache **out, size_t n_names, int64_t ram_tokens, int64_t disk_tokens, sim_cache_changed changed,
                  void *user);
void sim_cache_free(sim_cache *c);

uint32_t sim_cache_tiers(const sim_cache *c, uint32_t id);  /* RP_TIER_*; 0: not held */
uint32_t sim_cache_tenant(const sim_cache *c, uint32_t id); /* of a held one: who made it */
/* Counts a use of a name, and holds it in RAM; from disk it enters RAM (false: no space). */
bool sim_cache_hold(sim_cache *c, uint32_t id, uint32_t parent);
/* Holds a name in RAM that was just added: that was its use. */
void sim_cache_hold_new(sim_cache *c, uint32_t id);
void sim_cache_release(sim_cache *c, uint32_t id);
/* Adds a name that was computed, unless it is there or there is no space. parent: id of the text before it, or
 * UINT32_MAX. cost_us: to compute it. RP_OK or RP_ERR_MEMORY. */
int sim_cache_add(sim_cache *c, uint32_t id, const rp_named_kv *item, uint32_t parent, uint32_t tenant,
                  uint64_t cost_us);
/* Memory of a running request; evicts names. false: there is no space, even if all names that are not held were
   evicted. */
bool sim_cache_reserve(sim_cache *c, int64_t tokens);
void sim_cache_unreserve(sim_cache *c, int64_t tokens);
/* The process ends: RAM is empty. Reports nothing. */
void sim_cache_forget_ram(sim_cache *c);
/* Names on disk, at a start: calls changed for each. */
void sim_cache_report(const sim_cache *c);

typedef struct sim_cache_use {
    int64_t ram_tokens, disk_tokens, reserved_tokens;
    size_t names, held;
} sim_cache_use;
sim_cache_use sim_cache_used(const sim_cache *c);

#endif
