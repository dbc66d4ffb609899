/* SPDX-License-Identifier: Apache-2.0 */
/* pool_pulls.h: KV of queued requests from a pool that nodes share (store/remote/remote_pool.h), before their turn.
 *
 *   queued --modules or text missing--> LOOKING --rows--> PULLING --all of them, or the deadline--> DONE
 *      |          which of them has the pool?   |             into spans of the job's own   |
 *      +----------- nothing is missing ---------+---- nothing is worth a pull --------------+--> admission
 *
 * Pull, verify, then count: what is pulled enters the store when all of its bytes were checked, and is an ordinary hit
 * from then on. A pull has to beat computing: by the measured speeds of both, and by its deadline, the predicted time
 * of computing what is missing. What is late, or cannot be used, is computed; so is everything while the pool is not
 * used (its breaker). The first POOL_PULL_JOBS of the queue pull at a time, and what one of them pulls the others wait
 * for.
 *
 * Text is found by the names of its tokens, modules by the keys of their spans. Pulled text continues the prefix tree
 * where that ends, wherever its own spans begin. Not pulled: text of models with recurrent layers, whose checkpoints
 * are not pushed, and reduced modules.
 *
 * Engine's thread.
 */
#ifndef ENGINE_POOL_PULLS_H
#define ENGINE_POOL_PULLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/remote/remote_pool.h"

struct rp_engine;
struct rp_job;

#define POOL_PULL_JOBS 8

typedef enum pull_state {
    PULL_NEW,
    PULL_LOOKING,
    PULL_PULLING,
    PULL_DONE,
} pull_state;

typedef struct pulled_span {
    remote_row found; /* owned */
    kv_span *span;    /* a reference; NULL: not pulled */
    uint64_t ticket;  /* 0: its event has come, or there is none */
    bool follows;     /* another job pulls it, as far as known */
    int32_t slot_at;  /* of text: index of the job's token that is in slot 0, */
    int32_t scope;    /* and its scope */
} pulled_span;

/* Part of a job. Zero-initialise. */
typedef struct pool_pulls {
    pull_state state;
    uint64_t ticket;      /* of its look */
    uint64_t deadline_us; /* base_clock_us */
    pulled_span *items;   /* modules, then text in rising position */
    size_t n, n_open;
} pool_pulls;

/* Takes the pool's events, and begins looks and pulls for queued jobs. */
void pool_pulls_run(struct rp_engine *e);
/* Must a queued job wait for the pool? */
bool pool_pulls_hold(const struct rp_engine *e, const struct rp_job *c);
/* Gives up what a job has not pulled yet. */
void pool_pulls_release(struct rp_job *c);
/* The same for all queued jobs except this one. Returns whether there was any. */
bool pool_pulls_release_others(struct rp_engine *e, const struct rp_job *but);

#endif
