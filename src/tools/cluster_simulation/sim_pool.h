/* SPDX-License-Identifier: Apache-2.0 */
/* sim_pool.h: the pool that simulated nodes share, beside each node's own KV: names, of which the least recently used
 * is evicted, as by Redis. Sizes in tokens.
 *
 *   a node has a name   --rp_cluster_pool_writes--------> the pool's        evicted without notice
 *   a node lacks a name --fetch of all of its request---> the node's own
 *
 * Fetches of all nodes take the pool's link one after the other: 10 us for a token of 128 KiB are 105 Gbit/s. Writing
 * is not on the path of a request, and takes no time. Nodes tell the pool which of its names they use.
 */
#ifndef TOOLS_SIM_POOL_H
#define TOOLS_SIM_POOL_H

#include "tools/cluster_simulation/sim_workload.h"

typedef struct sim_pool sim_pool;

typedef struct sim_pool_options {
    int64_t tokens;
    double rtt_us;
    int32_t writes; /* rp_cluster_pool_writes */
} sim_pool_options;

/* n_names: numbers of names are below it. RP_ERR_MEMORY. */
int sim_pool_new(sim_pool **out, const sim_pool_options *o, size_t n_names);
void sim_pool_free(sim_pool *p);

bool sim_pool_has(const sim_pool *p, uint32_t id);
uint32_t sim_pool_tenant(const sim_pool *p, uint32_t id); /* of one that it has: who made it */
/* A transfer that begins now, after those that began before: when it has arrived, the round trip included. */
uint64_t sim_pool_transfer(sim_pool *p, uint64_t now_us, double us);
/* A name is fetched: counts a use, unless it was evicted since it was asked for. */
void sim_pool_fetched(sim_pool *p, uint32_t id);
/* A node holds a name for a request; it evicts one. Whether the pool has the name since then. item: of the workload,
 * borrowed. */
bool sim_pool_use(sim_pool *p, uint32_t id, const rp_named_kv *item, uint32_t tenant);
bool sim_pool_evicted(sim_pool *p, uint32_t id);

int64_t sim_pool_written_tokens(const sim_pool *p);

#endif
