/* SPDX-License-Identifier: Apache-2.0 */
/* span_prefetch.h: reads the KV of queued jobs from disk before their turn, and protects their hits from eviction.
 *
 *   queue   [j0][j1][j2][j3] | j4 j5 ...      the first PREFETCH_JOBS
 *             |   the spans that a lookup would hit now: referenced, and read if they are on disk
 *
 * Only unreserved memory is taken, half of it at most; the first queued job gets all of it for its admission. The
 * lookup at admission decides, and counts the hits. Engine's thread.
 */
#ifndef ENGINE_SPAN_PREFETCH_H
#define ENGINE_SPAN_PREFETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kv/span.h"

#define PREFETCH_JOBS 4

struct rp_engine;
struct rp_job;

/* Part of a job. Zero-initialise. */
typedef struct prefetch {
    kv_span **spans; /* references */
    size_t n, cap;
    bool done;         /* all hits are held; */
    uint64_t tried_at; /* else: rp_engine.budget_epoch when memory was short */
} prefetch;

/* Prefetches for the first queued jobs. */
void prefetch_run(struct rp_engine *e);
/* Releases the spans that are held for a job. */
void prefetch_release(struct rp_job *c);
/* Releases the spans that are held for all queued jobs except this one. Returns whether there were any. */
bool prefetch_release_others(struct rp_engine *e, const struct rp_job *but);

#endif
