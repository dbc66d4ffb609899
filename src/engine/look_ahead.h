/* look_ahead.h: states of calls that wait: fetched from disk before it is their turn, and spared from eviction.
 *
 *   waiting   [c0][c1][c2][c3] | c4 c5 ...      the first LOOK_AHEAD_CALLS
 *               |   what a look-up would find now: held, and read if it is on disk
 *
 * Only room that nobody was promised is taken, and half of it at most; the first that waits gets all of it when it is to run. What is held
 * is found again by the look-up of admission, which alone counts and decides. The engine's thread.
 */
#ifndef ENGINE_LOOK_AHEAD_H
#define ENGINE_LOOK_AHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kv/span.h"

#define LOOK_AHEAD_CALLS 4

struct rp_engine;
struct rp_call;

/* Part of a call. Zero-initialised: nothing was fetched yet. */
typedef struct look_ahead {
    kv_span **spans; /* references */
    size_t n, cap;
    bool done;         /* all that was found is held; */
    uint64_t tried_at; /* else: rp_engine.n_ended when there was no room */
} look_ahead;

/* Fetches for the first calls that wait. */
void look_ahead_run(struct rp_engine *e);
/* Lets go of what is held for a call. */
void look_ahead_release(struct rp_call *c);
/* Lets go of what is held for all calls that wait but this one. Was there anything? */
bool look_ahead_release_others(struct rp_engine *e, const struct rp_call *but);

#endif
