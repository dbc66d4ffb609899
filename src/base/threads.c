/* SPDX-License-Identifier: Apache-2.0 */
/* threads.c: the pool that shares loops.
 *
 * Owns its workers, the description of the loop that runs, and the word that opens and closes it; does not own what
 * the loop touches. One thread calls; the workers only run loops.
 *
 *   state   | loop number (32 bits) | open (1) | workers inside (31) |
 *
 *   caller  writes the loop ── publishes it: number + 1, open ── takes chunks ── closes it ── waits for 0 inside
 *   worker  waits for an open loop with a new number ── enters: inside + 1 ── takes chunks ── leaves: inside - 1
 *
 * A worker enters by compare-and-swap on a state that is open, so a closed loop is never entered: the caller waits
 * for those who are inside and not for those who were too late, and may then write the next loop. Entering acquires
 * what publishing released (the loop's description), and seeing 0 inside acquires what leaving released (the results).
 *
 * Sleeping: each side announces that it sleeps and then looks at the state once more; the other side changes the
 * state and then looks for sleepers. All four are sequentially consistent, so at least one of them sees the other.
 */
#define _POSIX_C_SOURCE 200809L

#include "base/threads.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

#define OPEN ((uint64_t)1 << 31)
#define INSIDE_MASK (OPEN - 1)
#define NUMBER_ONE ((uint64_t)1 << 32)

/* The gaps between the loops of one layer are shorter than this: silu of 11,008 values, which one thread computes,
   takes 6. */
#define SPIN_US 20
/* A spin that lasts this long was interrupted: someone else wants the core, and the next waits do not spin. */
#define SPIN_LOST_US 50
#define SPIN_PENALTY 64

typedef struct worker {
    base_threads *pool;
    pthread_t thread;
    int index; /* 1 .. n_threads - 1 */
} worker;

struct base_threads {
    int n_threads;
    int n_workers; /* started; n_threads - 1, or fewer if a start failed */
    bool may_spin; /* there is a processor for each thread */

    /* The loop: written by the caller while it is closed and nobody is inside. */
    base_loop_fn fn;
    void *arg;
    int64_t n, grain, n_chunks;

    _Alignas(64) _Atomic uint64_t state;
    _Alignas(64) _Atomic int64_t next_chunk; /* on a line of its own: every chunk writes it */
    _Alignas(64) _Atomic int n_sleeping;     /* workers */
    _Atomic bool caller_sleeps;
    _Atomic bool stop;

    pthread_mutex_t mutex; /* protects only falling asleep */
    pthread_cond_t opened; /* state was opened, or stop */
    pthread_cond_t left;   /* 0 inside */
    int caller_penalty;    /* the caller's */
    worker workers[];
};

/* ---- Waiting --------------------------------------------------------------------------------------------------- */

typedef bool (*ready_fn)(base_threads *t, uint64_t last);

static bool loop_is_new(base_threads *t, uint64_t last) {
    uint64_t s = atomic_load(&t->state);
    return ((s & OPEN) && s / NUMBER_ONE != last) || atomic_load(&t->stop);
}

static bool base_threads_unreachable_inside(base_threads *t, uint64_t last) {
    (void)last;
    return (atomic_load(&t->state) & INSIDE_MASK) == 0;
}

/* Waits a few microseconds. *penalty belongs to the waiting thread. */
static bool base_threads_spin(base_threads *t, ready_fn ready, uint64_t last, int *penalty) {
    if (ready(t, last)) return true;
    if (!t->may_spin) return false;
    if (*penalty > 0) {
        --*penalty;
        return false;
    }
    uint64_t begin = base_clock_us(), spent = 0;
    bool done = false;
    while (!done && spent < SPIN_US) {
        for (int i = 0; i < 8; i++) base_cpu_relax();
        done = ready(t, last);
        spent = base_clock_us() - begin;
    }
    if (spent >= SPIN_LOST_US) *penalty = SPIN_PENALTY;
    return done;
}

/* ---- Loops ----------------------------------------------------------------------------------------------------- */

static void run_chunks(base_threads *t, int thread) {
    for (;;) {
        int64_t chunk = atomic_fetch_add_explicit(&t->next_chunk, 1, memory_order_relaxed);
        if (chunk >= t->n_chunks) return;
        int64_t begin = chunk * t->grain;
        BASE_DCHECK(begin >= 0 && begin < t->n);
        t->fn(t->arg, begin, t->n - begin > t->grain ? begin + t->grain : t->n, thread);
    }
}

/* Enters the loop that is open, if it is not the one numbered *last. */
static bool base_threads_enter(base_threads *t, uint64_t *last) {
    uint64_t s = atomic_load(&t->state);
    while ((s & OPEN) && s / NUMBER_ONE != *last) {
        if (!atomic_compare_exchange_weak(&t->state, &s, s + 1)) continue;
        BASE_ASSERT((s & INSIDE_MASK) + 1 < (uint64_t)t->n_threads); /* the caller is not counted */
        *last = s / NUMBER_ONE;
        return true;
    }
    return false;
}

static void *threads_worker_main(void *arg) {
    worker *w = arg;
    base_threads *t = w->pool;
    uint64_t last = 0; /* loops are numbered from 1, so none is missed */
    int penalty = 0;
    BASE_ASSERT(w->index >= 1 && w->index < t->n_threads);
    while (!atomic_load(&t->stop)) {
        if (!base_threads_spin(t, loop_is_new, last, &penalty)) {
            pthread_mutex_lock(&t->mutex);
            atomic_fetch_add(&t->n_sleeping, 1);
            while (!loop_is_new(t, last)) pthread_cond_wait(&t->opened, &t->mutex);
            atomic_fetch_sub(&t->n_sleeping, 1);
            pthread_mutex_unlock(&t->mutex);
        }
        if (!base_threads_enter(t, &last)) continue;
        run_chunks(t, w->index);
        const uint64_t before = atomic_fetch_sub(&t->state, 1); /* leaves */
        BASE_ASSERT((before & INSIDE_MASK) > 0);
        if ((before & INSIDE_MASK) != 1 || !atomic_load(&t->caller_sleeps)) continue;
        pthread_mutex_lock(&t->mutex);
        pthread_cond_signal(&t->left);
        pthread_mutex_unlock(&t->mutex);
    }
    return NULL;
}

void base_threads_for(base_threads *t, base_loop_fn fn, void *arg, int64_t n, int64_t grain) {
    BASE_ASSERT((atomic_load(&t->state) & (OPEN | INSIDE_MASK)) == 0); /* loops do not nest */
    if (n <= 0) return;
    t->fn = fn;
    t->arg = arg;
    t->n = n;
    t->grain = grain > 0 ? grain : 1;
    t->n_chunks = n / t->grain + (n % t->grain != 0);
    atomic_store_explicit(&t->next_chunk, 0, memory_order_relaxed);
    if (t->n_workers == 0 || t->n_chunks == 1) {
        run_chunks(t, 0);
        return;
    }
    /* Publishes the loop under the next number. Number 0 is left out when the 32 bits wrap: it is a worker's 'none
     * yet'. */
    uint64_t number = (atomic_load_explicit(&t->state, memory_order_relaxed) / NUMBER_ONE + 1) & UINT32_MAX;
    atomic_store(&t->state, (number ? number : 1) * NUMBER_ONE | OPEN);
    if (atomic_load(&t->n_sleeping) > 0) {
        pthread_mutex_lock(&t->mutex);
        pthread_cond_broadcast(&t->opened);
        pthread_mutex_unlock(&t->mutex);
    }
    run_chunks(t, 0);
    atomic_fetch_and(&t->state, ~OPEN);
    if (!base_threads_spin(t, base_threads_unreachable_inside, 0, &t->caller_penalty)) {
        pthread_mutex_lock(&t->mutex);
        atomic_store(&t->caller_sleeps, true);
        while (!base_threads_unreachable_inside(t, 0)) pthread_cond_wait(&t->left, &t->mutex);
        atomic_store(&t->caller_sleeps, false);
        pthread_mutex_unlock(&t->mutex);
    }
    BASE_DCHECK(atomic_load(&t->next_chunk) >= t->n_chunks); /* invariant 8 */
}

/* ---- Life ------------------------------------------------------------------------------------------------------ */

int base_thread_start(pthread_t *out, void *(*fn)(void *), void *arg) {
    static const int own[] = {
        SIGBUS, SIGSEGV, SIGFPE,
        SIGILL}; /* the thread's faults: blocked, they would end the process without its handlers */
    sigset_t others, before;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof(own) / sizeof(*own); i++) sigdelset(&others, own[i]);
    pthread_sigmask(SIG_SETMASK, &others, &before);
    int rc = pthread_create(out, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

bool base_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr) != 0) return false;
    bool ok = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0 && pthread_cond_init(cond, &attr) == 0;
    pthread_condattr_destroy(&attr);
    return ok;
}

int base_threads_check(int32_t n, rp_error *err) {
    if (n >= 0 && n <= BASE_THREADS_MAX) return RP_OK;
    return base_fail(err, RP_ERR_INVALID, "%d threads: expected 1 to %d, or 0 for one a processor", n,
                     BASE_THREADS_MAX);
}

/* The pool without its threads. NULL: out of memory. */
static base_threads *pool_new(int n_threads) {
    size_t bytes = sizeof(base_threads) + (size_t)(n_threads - 1) * sizeof(worker);
    base_threads *t = base_alloc_aligned(bytes, 64);
    if (!t) return NULL;
    memset(t, 0, bytes);
    t->n_threads = n_threads;
    t->may_spin = n_threads <= base_cpu_count();
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->opened, NULL);
    pthread_cond_init(&t->left, NULL);
    return t;
}

int base_threads_new(base_threads **out, int n_threads, rp_error *err) {
    *out = NULL;
    if (n_threads < 1 || n_threads > BASE_THREADS_MAX)
        return base_fail(err, RP_ERR_INVALID, "%d threads: give 1 to %d", n_threads, BASE_THREADS_MAX);
    base_threads *t = pool_new(n_threads);
    if (!t) return base_fail_memory(err, sizeof *t, "a thread pool");
    for (int i = 1; i < n_threads; i++) {
        worker *w = &t->workers[i - 1];
        *w = (worker){.pool = t, .index = i};
        BASE_ASSERT(t->n_workers < t->n_threads - 1);
        int rc = base_thread_start(&w->thread, threads_worker_main, w);
        if (rc == 0) {
            t->n_workers++;
            continue;
        }
        base_threads_free(t);
        return base_fail(err, RP_ERR_IO, "cannot start thread %d of %d: %s; ask for fewer threads", i + 1, n_threads,
                         strerror(rc));
    }
    *out = t;
    return 0;
}

void base_threads_free(base_threads *t) {
    if (!t) return;
    BASE_ASSERT((atomic_load(&t->state) & (OPEN | INSIDE_MASK)) == 0); /* no loop runs */
    pthread_mutex_lock(&t->mutex);
    atomic_store(&t->stop, true);
    pthread_cond_broadcast(&t->opened);
    pthread_mutex_unlock(&t->mutex);
    for (int i = 0; i < t->n_workers; i++) pthread_join(t->workers[i].thread, NULL);
    pthread_cond_destroy(&t->left);
    pthread_cond_destroy(&t->opened);
    pthread_mutex_destroy(&t->mutex);
    base_free(t);
}

int base_threads_count(const base_threads *t) { return t->n_threads; }
