/* prefetch.h: states of calls that wait: fetched from disk before it is their turn, and spared from eviction.
 *
 *   waiting   [c0][c1][c2][c3] | c4 c5 ...      the first PREFETCH_JOBS
 *               |   what a look-up would find now: held, and read if it is on disk
 *
 * Only room that nobody was promised is taken, and half of it at most; the first that waits gets all of it when it is to run. What is held
 * is found again by the look-up of admission, which alone counts and decides. The engine's thread.
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

/* Part of a call. Zero-initialised: nothing was fetched yet. */
typedef struct prefetch {
    kv_span **spans; /* references */
    size_t n, cap;
    bool done;         /* all that was found is held; */
    uint64_t tried_at; /* else: rp_engine.budget_epoch when there was no room */
} prefetch;

/* Fetches for the first calls that wait. */
void prefetch_run(struct rp_engine *e);
/* Lets go of what is held for a call. */
void prefetch_release(struct rp_job *c);
/* Lets go of what is held for all calls that wait but this one. Was there anything? */
bool prefetch_release_others(struct rp_engine *e, const struct rp_job *but);

#endif
