/* SPDX-License-Identifier: Apache-2.0 */
/* redis_lookup.c: see redis_lookup.h. A name is looked up by a thread of its own, which its caller leaves alone at the
 * deadline: who is the last of the two frees the look-up. */
#define _POSIX_C_SOURCE 200809L
#include "store/remote/redis_lookup.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/threads.h"
#include "store/remote/redis_address.h"

#define MAX_LOOKUPS 64 /* at once, in this process */

typedef struct lookup {
    pthread_mutex_t lock;
    pthread_cond_t is_over;
    char host[REDIS_HOST_BYTES], port[8];
    struct addrinfo *found;
    int failed; /* of getaddrinfo */
    bool is_done, is_left;
} lookup;

static _Atomic int n_lookups;

static int look_up(lookup *l, int flags) {
    const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
    return getaddrinfo(l->host, l->port, &wanted, &l->found);
}

static void lookup_free(lookup *l) {
    if (l->found) freeaddrinfo(l->found);
    pthread_cond_destroy(&l->is_over);
    pthread_mutex_destroy(&l->lock);
    base_free(l);
}

static void *lookup_run(void *arg) {
    lookup *l = arg;
    const int failed = look_up(l, 0);
    pthread_mutex_lock(&l->lock);
    BASE_ASSERT(!l->is_done && (failed || l->found));
    l->failed = failed;
    l->is_done = true;
    const bool is_left = l->is_left;
    pthread_cond_signal(&l->is_over);
    pthread_mutex_unlock(&l->lock);
    if (is_left) lookup_free(l);
    atomic_fetch_sub(&n_lookups, 1);
    return NULL;
}

static int lookup_fail(rp_error *err, int cause, const char *host, const char *why) {
    const int rc = base_fail(err, RP_ERR_IO, "cannot look up host '%s': %s", host, why);
    errno = cause;
    return rc;
}

/* Waits for the thread, and frees the look-up. */
static int lookup_wait(lookup *l, struct addrinfo **out, uint64_t deadline_us, rp_error *err) {
    char host[REDIS_HOST_BYTES];
    strcpy(host, l->host);
    pthread_mutex_lock(&l->lock);
    for (uint64_t now; !l->is_done && (now = base_clock_us()) < deadline_us;) {
        const struct timespec until = base_clock_after((int64_t)((deadline_us - now) / 1000 + 1));
        pthread_cond_timedwait(&l->is_over, &l->lock, &until);
    }
    const bool is_done = l->is_done;
    const int failed = l->failed;
    l->is_left = !is_done;
    if (is_done && !failed) *out = l->found, l->found = NULL;
    pthread_mutex_unlock(&l->lock);
    if (!is_done) return lookup_fail(err, ETIMEDOUT, host, "no answer before the deadline");
    lookup_free(l);
    return failed ? lookup_fail(err, EHOSTUNREACH, host, gai_strerror(failed)) : RP_OK;
}

int redis_lookup(struct addrinfo **out, const char *host, uint16_t port, uint64_t deadline_us, rp_error *err) {
    BASE_ASSERT(strlen(host) < REDIS_HOST_BYTES);
    *out = NULL;
    lookup *l = base_calloc(1, sizeof(*l));
    if (!l) return base_fail_memory(err, sizeof(*l), "a host's address");
    snprintf(l->host, sizeof(l->host), "%s", host);
    snprintf(l->port, sizeof(l->port), "%d", port);
    if (look_up(l, AI_NUMERICHOST) == 0) { /* an address: no name server is asked */
        *out = l->found;
        base_free(l);
        return RP_OK;
    }
    pthread_t thread;
    if (!base_cond_init(&l->is_over)) return base_free(l), base_fail_memory(err, sizeof(*l), "a host's address");
    pthread_mutex_init(&l->lock, NULL);
    if (atomic_fetch_add(&n_lookups, 1) >= MAX_LOOKUPS || base_thread_start(&thread, lookup_run, l) != 0) {
        atomic_fetch_sub(&n_lookups, 1);
        lookup_free(l);
        return lookup_fail(err, EAGAIN, host, "too many look-ups wait for name servers");
    }
    pthread_detach(thread);
    return lookup_wait(l, out, deadline_us, err);
}
