/* SPDX-License-Identifier: Apache-2.0 */
/* sim_chaos.h: runs with faults: a random small cluster, its faults, and the invariants that hold nevertheless. */
#ifndef TOOLS_SIM_CHAOS_H
#define TOOLS_SIM_CHAOS_H

#include "tools/cluster_simulation/sim_cluster.h"

/* Draws cluster and workload from the seed; the policy stays. */
void sim_chaos_draw(rp_cluster_simulate_options *o);
/* Schedules faults of nodes and routers, and switches those of the network on. */
void sim_chaos_begin(sim_cluster *s);
/* All requests have ended: no more faults; lets everything become quiet. */
void sim_chaos_calm(sim_cluster *s);
/* Invariants of a quiet cluster: s->broken is set if one does not hold. */
void sim_chaos_check(sim_cluster *s);

#endif
