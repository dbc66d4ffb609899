/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_run.h: one random schedule: the jobs of a world, mixed, in one engine, compared bit for bit with runs alone.
 *
 *   pass     slots [job, variant of its request] in random order
 *            client threads      | submit, wait for events | cancel | prefill | replace the schema | ...
 *            the engine's thread | callbacks: compare, count an event, submit, cancel
 *
 * Nothing sleeps: a client continues after a number of events (callbacks), or when no job runs that could cause one.
 * Failures detected in callbacks are kept until the jobs have ended. Only the interleaving of threads differs between
 * runs; the seed determines the rest.
 *
 * In half of the schedules the jobs belong to many tenants: the operator, a guest, one with its own copy of the schema,
 * and newcomers with one request each, some with their own copy. A tenant's first job never hits entries of other
 * tenants in the same engine, even of equal texts.
 */
#ifndef SUPPORT_SCHEDULE_RUN_H
#define SUPPORT_SCHEDULE_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "schedule_world.h"

/* Counts of the events in schedules, to show that each of them occurred. */
typedef struct schedule_tally {
    uint64_t schedules, calls, compared;   /* compared: requests that ran to their end */
    uint64_t logits;                       /* compared rows of logits */
    uint64_t logits_in[RP_N_KV_FORMATS];   /* by the engine's KV format; modules may have others */
    uint64_t prefix_tokens, module_tokens; /* hits in the prefix cache; in modules */
    uint64_t evictions, drafted, accepted;
    uint64_t model_drafted, model_accepted; /* of them, by a draft model */

    uint64_t waits; /* steps in which an admissible job waited for another with the same prompt */

    uint64_t shared_steps; /* steps with rows of several requests */

    uint64_t cancelled, expired, full; /* requests: cancelled, ended by their deadline, refused by a full queue */

    uint64_t failed; /* requests that failed for lack of memory */
    uint64_t restarts, disk_tokens, pool_tokens, disk_evictions, disk_faults, reduced_logits,
        mixed; /* engines with an earlier store; hits in it; ... */

    uint64_t shifted; /* requests that may differ: they shifted the KV after an edit */

    uint64_t reduced,
        beyond; /* compared requests whose KV was reduced for their answer; whose answer was longer than the context */

    uint64_t firsts; /* answers to a tenant's first request, after those of other tenants */
} schedule_tally;

/* Runs one random schedule. may_fail: some allocations fail, in all passes except the last, and requests may end with
 * RP_ERR_MEMORY or RP_ERR_LIMIT; the results of the others equal those of running alone. Fails the test (cmocka) if
 * bytes differ, a request ends with a wrong status, or memory is leaked. */
void schedule_run(const schedule_world *w, tiny_random *r, bool may_fail, schedule_tally *tally);
void schedule_tally_print(const char *test, const schedule_tally *t);

#endif
