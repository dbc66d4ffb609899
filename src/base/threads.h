/* SPDX-License-Identifier: Apache-2.0 */
/* threads.h: a fixed pool of threads that share loops.
 *
 *   base_threads_for(pool, fn, arg, n, grain)
 *
 *        caller ──┐ takes [0,grain)  [3g,4g) ...
 *        worker 1 ┤ takes [g,2g) ...               one atomic counter hands out the chunks
 *        worker 2 ┘ ...
 *
 * The calling thread works too: a pool of n threads has n - 1 workers. Chunks are handed out dynamically, so results
 * must not depend on who runs which. Nothing is allocated for a loop. Between loops workers sleep on a condition
 * after a short bounded spin (a spinning pool collapses when someone else wants a core).
 * A pool is used by one calling thread at a time; loops do not nest.
 */
#ifndef BASE_THREADS_H
#define BASE_THREADS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "reprise.h"

#define BASE_THREADS_MAX 256

/* Starts a thread that blocks all signals but those of its own faults (SIGBUS, SIGSEGV, ...): the others are the
   program's. 0, or an errno as of pthread_create. */
int base_thread_start(pthread_t *out, void *(*fn)(void *), void *arg);

/* A condition variable with timed waits on the monotonic clock, as base_clock_after. false: the system has no memory
   for it. */
bool base_cond_init(pthread_cond_t *cond);

typedef struct base_threads base_threads;

/* thread: 0 .. count-1, stable during one call, for scratch memory per thread. */
typedef void (*base_loop_fn)(void *arg, int64_t begin, int64_t end, int thread);

int base_threads_check(int32_t n, rp_error *err);                       /* 0 (one a processor) to BASE_THREADS_MAX:
                                                                           RP_ERR_INVALID */
int base_threads_new(base_threads **out, int n_threads, rp_error *err); /* RP_ERR_INVALID, RP_ERR_MEMORY, RP_ERR_IO */
void base_threads_free(base_threads *t);
int base_threads_count(const base_threads *t);
void base_threads_for(base_threads *t, base_loop_fn fn, void *arg, int64_t n, int64_t grain);

#endif
