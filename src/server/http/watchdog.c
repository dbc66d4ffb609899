/* SPDX-License-Identifier: Apache-2.0 */
/* watchdog.c: see watchdog.h. One thread looks after all connections. Owns the list of peers, under its lock. */
#define _GNU_SOURCE /* EPOLLRDHUP, POLLRDHUP */

#include "server/http/watchdog.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "server/http/request_memory.h"
#include "server/http/server_internal.h"
#include "server/http/server_request.h"

#define LOOK_MS 250 /* how often deadlines and streams are looked at */
#define EVENTS 64
#define REFUSED_US 1000000 /* for the head of a request that gets 503 */

struct watchdog {
    pthread_mutex_t lock;
    pthread_t thread;
    bool has_thread, stopping;
    int epoll, wake;
    uint64_t keep_alive_us;
    watchdog_limits limits;
    BASE_LIST(server_peer)
    peers;
    int32_t n_accepted; /* peers that are neither refused nor closing */
    uint64_t n_reclaimed;
};

/* ---- the thread ---- */

/* An event may be of a peer that went meanwhile, or of another one in its memory. Locked. */
static void see_event(watchdog *g, server_peer *peer) {
    const server_peer *listed = g->peers.first;
    while (listed && listed != peer) listed = listed->links.next;
    if (!listed || !peer->watched || !peer->request) return;
    struct pollfd fd = {.fd = peer->fd, .events = POLLRDHUP};
    if (poll(&fd, 1, 0) > 0) server_request_abandon(peer->request);
}

static void *watchdog_main(void *arg) {
    watchdog *g = arg;
    struct epoll_event events[EVENTS];
    for (bool stopping = false; !stopping;) {
        int n = epoll_wait(g->epoll, events, EVENTS, LOOK_MS);
        pthread_mutex_lock(&g->lock);
        for (int i = 0; i < n; i++)
            if (events[i].data.ptr) see_event(g, events[i].data.ptr);
        uint64_t now = base_clock_us();
        for (server_peer *p = g->peers.first; p; p = p->links.next)
            if (p->deadline_us && p->deadline_us <= now) {
                p->deadline_us = 0;
                shutdown(p->fd, SHUT_RDWR);
            }
        for (server_peer *p = g->peers.first; p; p = p->links.next)
            if (p->request) p->request->server->answers->look(p->request, g->keep_alive_us);
        stopping = g->stopping;
        pthread_mutex_unlock(&g->lock);
        request_memory_trim();
    }
    return NULL;
}

/* ---- life ---- */

int watchdog_new(watchdog **out, const watchdog_limits *limits, uint64_t keep_alive_us, rp_error *err) {
    watchdog *g = base_calloc(1, sizeof(*g));
    *out = NULL;
    if (!g) return base_fail_memory(err, sizeof(*g), "connections");
    g->keep_alive_us = keep_alive_us;
    g->limits = *limits;
    pthread_mutex_init(&g->lock, NULL);
    g->epoll = epoll_create1(EPOLL_CLOEXEC);
    g->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN};
    if (g->epoll >= 0 && g->wake >= 0 && epoll_ctl(g->epoll, EPOLL_CTL_ADD, g->wake, &event) == 0)
        g->has_thread = pthread_create(&g->thread, NULL, watchdog_main, g) == 0;
    if (!g->has_thread) {
        int rc = base_fail_errno(err, "the server cannot poll connections:", "epoll");
        watchdog_free(g);
        return rc;
    }
    *out = g;
    return RP_OK;
}

void watchdog_free(watchdog *g) {
    if (!g) return;
    if (g->has_thread) {
        uint64_t one = 1;
        pthread_mutex_lock(&g->lock);
        g->stopping = true;
        pthread_mutex_unlock(&g->lock);
        if (write(g->wake, &one, sizeof(one)) < 0) { /* it looks again within LOOK_MS anyway */
        }
        pthread_join(g->thread, NULL);
    }
    BASE_ASSERT(!g->peers.first); /* they were removed */
    if (g->epoll >= 0) close(g->epoll);
    if (g->wake >= 0) close(g->wake);
    pthread_mutex_destroy(&g->lock);
    base_free(g);
}

/* ---- peers ---- */

static uint64_t watchdog_deadline(uint64_t timeout_us) { return timeout_us ? base_clock_us() + timeout_us : 0; }

/* Of one address. INT32_MAX: any number. */
static int32_t limit_of(const watchdog *g, const server_peer *p) {
    static const unsigned char none[16] = {0}, v4[12] = {[10] = 0xff, [11] = 0xff}, v6[16] = {[15] = 1};
    if (memcmp(p->address, none, sizeof(none)) == 0) return INT32_MAX;
    if (g->limits.per_address > 0) return g->limits.per_address;
    bool is_loopback =
        (memcmp(p->address, v4, sizeof(v4)) == 0 && p->address[12] == 127) || memcmp(p->address, v6, sizeof(v6)) == 0;
    return is_loopback ? INT32_MAX : BASE_MAX(g->limits.max / 4, 1);
}

/* Counts accepted connections of one address (NULL: of all) and finds the one that is idle for longest, or NULL. */
static int32_t count_peers(const watchdog *g, const unsigned char *address, server_peer **oldest) {
    int32_t n = 0;
    *oldest = NULL;
    for (server_peer *p = g->peers.first; p; p = p->links.next) {
        if (p->refused || p->is_closing || (address && memcmp(p->address, address, sizeof(p->address)) != 0)) continue;
        n++;
        if (p->idle_us && (!*oldest || p->idle_us <= (*oldest)->idle_us)) *oldest = p;
    }
    BASE_ASSERT(address || n == g->n_accepted);
    return n;
}

/* For a new connection that is beyond a limit. */
static void watchdog_reclaim(watchdog *g, server_peer *p, server_peer *oldest) {
    if (!oldest) {
        p->refused = true;
        return;
    }
    BASE_ASSERT(g->n_accepted > 0 && oldest != p && !oldest->refused && !oldest->is_closing);
    oldest->is_closing = true;
    oldest->idle_us = 0;
    shutdown(oldest->fd, SHUT_RDWR);
    g->n_accepted--;
    g->n_reclaimed++;
}

static void watchdog_judge(watchdog *g, server_peer *p) {
    int32_t limit = limit_of(g, p);
    server_peer *oldest;
    if (limit < INT32_MAX && count_peers(g, p->address, &oldest) >= limit) watchdog_reclaim(g, p, oldest);
    if (!p->refused && g->n_accepted >= g->limits.max) {
        count_peers(g, NULL, &oldest);
        watchdog_reclaim(g, p, oldest);
    }
    if (!p->refused) g->n_accepted++;
    else p->deadline_us = BASE_MIN(p->deadline_us, watchdog_deadline(REFUSED_US));
    BASE_ASSERT(p->refused || g->n_accepted <= g->limits.max);
}

void watchdog_set_busy(watchdog *g, server_peer *p, bool busy) {
    pthread_mutex_lock(&g->lock);
    p->idle_us = busy || p->is_closing ? 0 : base_clock_us();
    pthread_mutex_unlock(&g->lock);
}

uint64_t watchdog_reclaimed(watchdog *g) {
    pthread_mutex_lock(&g->lock);
    uint64_t n = g->n_reclaimed;
    pthread_mutex_unlock(&g->lock);
    return n;
}

server_peer *watchdog_add(watchdog *g, int fd, const struct sockaddr *from, uint64_t timeout_us) {
    server_peer *p = base_calloc(1, sizeof(*p));
    if (!p) return NULL;
    *p = (server_peer){.fd = fd, .deadline_us = watchdog_deadline(timeout_us), .idle_us = base_clock_us()};
    if (from && from->sa_family == AF_INET6)
        memcpy(p->address, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr, sizeof(p->address));
    if (from && from->sa_family == AF_INET) {
        p->address[10] = p->address[11] = 0xff;
        memcpy(p->address + 12, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    }
    pthread_mutex_lock(&g->lock);
    watchdog_judge(g, p);
    BASE_LIST_PREPEND(&g->peers, p, links);
    pthread_mutex_unlock(&g->lock);
    return p;
}

/* Locked. */
static void watchdog_unwatch(watchdog *g, server_peer *p) {
    BASE_ASSERT(p->request || !p->watched);
    if (p->watched) epoll_ctl(g->epoll, EPOLL_CTL_DEL, p->fd, NULL);
    p->watched = false;
    p->request = NULL;
}

void watchdog_remove(watchdog *g, server_peer *p) {
    if (!p) return;
    pthread_mutex_lock(&g->lock);
    watchdog_unwatch(g, p);
    BASE_ASSERT(p->refused || p->is_closing || g->n_accepted > 0);
    if (!p->refused && !p->is_closing) g->n_accepted--;
    BASE_LIST_REMOVE(&g->peers, p, links);
    pthread_mutex_unlock(&g->lock);
    base_free(p->target);
    base_free(p);
}

void watchdog_set_deadline(watchdog *g, server_peer *p, uint64_t timeout_us) {
    pthread_mutex_lock(&g->lock);
    p->deadline_us = watchdog_deadline(timeout_us);
    pthread_mutex_unlock(&g->lock);
}

void watchdog_watch(watchdog *g, server_peer *p, server_request *x) {
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.ptr = p};
    pthread_mutex_lock(&g->lock);
    BASE_ASSERT(!p->request && !p->watched); /* a connection has one request at a time */
    p->request = x;
    p->watched = epoll_ctl(g->epoll, EPOLL_CTL_ADD, p->fd, &event) == 0;
    pthread_mutex_unlock(&g->lock);
}

void watchdog_forget(watchdog *g, server_peer *p) {
    pthread_mutex_lock(&g->lock);
    watchdog_unwatch(g, p);
    pthread_mutex_unlock(&g->lock);
}

void watchdog_visit(watchdog *g, void (*visit)(server_request *x, void *user), void *user) {
    pthread_mutex_lock(&g->lock);
    for (server_peer *p = g->peers.first; p; p = p->links.next)
        if (p->request) visit(p->request, user);
    pthread_mutex_unlock(&g->lock);
}

void watchdog_abandon_all(watchdog *g) {
    pthread_mutex_lock(&g->lock);
    for (server_peer *p = g->peers.first; p; p = p->links.next)
        if (p->request) server_request_abandon(p->request);
    pthread_mutex_unlock(&g->lock);
}
