/* SPDX-License-Identifier: Apache-2.0 */
/* gate.c: see gate.h. Everything but `stopping`, `woken` and `wake` belongs to the gate's thread. */
#define _GNU_SOURCE /* accept4, EPOLLRDHUP */
#include "server/http/gate.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <linux/sockios.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/list.h"
#include "base/memory.h"
#include "server/http/http_stream.h"

#define EVENTS 64
#define ACCEPTS 16              /* at most, before others are looked at */
#define TICK_MS 100             /* how often deadlines are looked at, while there are some */
#define LINGER_MS 1000          /* for a client to read the end of an answer and to close, after we have */
#define STOP_MS 2000            /* the same, of all of them, when the server ends */
#define PAIR_BYTES (64 << 10)   /* of the kernel, in a socketpair */
#define CLIENT_BYTES (64 << 10) /* the kernel's send buffer per client: further bytes wait, counted, in the server */

typedef struct gate_link gate_link;

/* One of the two sockets of a link, as epoll knows it. */
typedef struct gate_end {
    gate_link *link; /* NULL: no link's: the listening socket, the daemon, or the wake */
    int fd;
    uint32_t events;   /* asked for */
    bool is_unwatched; /* epoll does not have it: the other side has closed, which epoll would report without end */
} gate_end;

struct gate_link {
    BASE_LINKS(gate_link)
    links; /* in `links` or `dead` */
    gate_end client, inner;
    http_stream stream;
    base_buffer in;  /* bytes from the client, not passed on yet */
    size_t in_at;    /* bytes of it already passed on */
    size_t in_good;  /* bytes after in_at that may be passed on */
    base_buffer out; /* bytes from the daemon, not sent to the client yet */
    size_t out_at;
    uint64_t linger_until_us; /* lingers until then after the daemon's close; 0: open */
    int unread;               /* bytes in the kernel that the client had not read when that was set */
    bool client_ended;        /* it sends no more */
    bool refused;             /* no further bytes of the client are passed on */
    bool inner_ended;         /* the daemon has closed it, or the gate has passed on the client's end */
    bool daemon_done;         /* the daemon has closed it */
    bool dead;                /* closed; freed when this round's events are over */
};

struct server_gate {
    int epoll;
    gate_end listener, daemon_end, wake;
    struct MHD_Daemon *daemon;      /* NULL: it is stopped */
    const struct MHD_Daemon *is_of; /* the same, for comparing, for ever */
    int max_connections, n_links, n_lingering;
    bool paused; /* nobody is accepted: there are as many as may be, or no descriptors */
    BASE_LIST(gate_link)
    links, dead;
    pthread_t thread;
    bool has_thread;
    _Atomic bool stopping, woken; /* woken: `wake` has been written to since it was read */
    char scratch[GATE_BYTES];
};

/* ---- epoll ---- */

static bool end_watch(server_gate *g, gate_end *e, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = e};
    e->events = events;
    return epoll_ctl(g->epoll, EPOLL_CTL_ADD, e->fd, &event) == 0;
}

static void server_gate_end_change(server_gate *g, gate_end *e, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = e};
    if (e->events == events || e->fd < 0) return;
    e->events = events;
    epoll_ctl(g->epoll, e->is_unwatched ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, e->fd, &event);
    e->is_unwatched = false;
}

static void end_close(gate_end *e) {
    if (e->fd >= 0) close(e->fd); /* epoll forgets it: nobody else has the descriptor */
    e->fd = -1;
}

/* ---- links ---- */

static void link_kill(server_gate *g, gate_link *l) {
    if (l->dead) return;
    l->dead = true;
    BASE_ASSERT(g->n_links > 0 && (!l->linger_until_us || g->n_lingering > 0));
    if (l->linger_until_us) g->n_lingering--;
    end_close(&l->client);
    end_close(&l->inner);
    BASE_LIST_REMOVE(&g->links, l, links);
    BASE_LIST_APPEND(&g->dead, l, links);
    g->n_links--;
}

static void links_bury(server_gate *g) {
    for (gate_link *l; (l = g->dead.first) != NULL;) {
        BASE_ASSERT(l->dead && l->client.fd < 0 && l->inner.fd < 0);
        BASE_LIST_REMOVE(&g->dead, l, links);
        base_buffer_free(&l->in);
        base_buffer_free(&l->out);
        base_free(l);
    }
}

/* The daemon learns that the client sends no more; it may still answer. */
static void inner_end(gate_link *l) {
    if (!l->inner_ended) shutdown(l->inner.fd, SHUT_WR);
    l->inner_ended = true;
}

/* Bytes that the kernel has for the client: it takes more only when a third of its buffer is free, so that they tell
   sooner whether one reads. */
static int link_unread(const gate_link *l) {
    int n = 0;
    return ioctl(l->client.fd, SIOCOUTQ, &n) == 0 ? n : 0;
}

static void link_linger(server_gate *g, gate_link *l, uint64_t ms) {
    BASE_ASSERT(!l->dead);
    if (!l->linger_until_us) g->n_lingering++;
    l->linger_until_us = base_clock_us() + ms * 1000;
    l->unread = link_unread(l);
}

/* Bytes of the buffer from *at on, to a socket; whether it is still one. */
static bool send_some(int fd, const base_buffer *b, size_t *at, size_t n) {
    BASE_ASSERT(*at <= b->len && n <= b->len - *at);
    while (n > 0) {
        ssize_t sent = send(fd, b->data + *at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
        *at += (size_t)sent;
        n -= (size_t)sent;
    }
    return true;
}

/* ---- from the client ---- */

/* Replaces all pending bytes of the client by the gate's own: a head or an invalid chunk, as libmicrohttpd expects. */
static bool link_refuse(gate_link *l, http_verdict verdict, const char *why) {
    BASE_ASSERT(!l->refused && why); /* a refusal has a reason, and is the last one */
    l->refused = true;
    base_buffer_clear(&l->in);
    l->in_at = 0;
    int rc = l->stream.state == HTTP_HEAD
                 ? base_buffer_printf(&l->in,
                                      "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" HTTP_REFUSED
                                      ": %d %s\r\n\r\n",
                                      verdict == HTTP_TOO_LARGE ? 431 : 400, why)
                 : base_buffer_append_str(&l->in, "no size\r\n");
    l->in_good = l->in.len;
    return rc == 0;
}

/* Determines how many bytes from in_at may be passed on. false: out of memory. */
static bool link_judge(gate_link *l) {
    while (!l->refused && l->in_good == 0 && l->in_at < l->in.len) {
        const char *why;
        size_t used, dropped;
        http_verdict verdict =
            http_stream_next(&l->stream, l->in.data + l->in_at, l->in.len - l->in_at, &used, &dropped, &why);
        if (verdict == HTTP_WAIT) return true;
        if (verdict != HTTP_PASS) return link_refuse(l, verdict, why);
        BASE_ASSERT(used > 0 && dropped <= used && used <= l->in.len - l->in_at); /* so that this ends */
        l->in_at += dropped;
        l->in_good = used - dropped;
    }
    return true;
}

/* Passes on the permitted bytes, and updates the events to wait for. */
static void link_forward(server_gate *g, gate_link *l) {
    bool blocked = false, alive = true;
    while (alive && !blocked && link_judge(l) && l->in_good > 0) {
        size_t before = l->in_at;
        alive = send_some(l->inner.fd, &l->in, &l->in_at, l->in_good);
        l->in_good -= l->in_at - before;
        blocked = l->in_good > 0;
    }
    if (!alive)
        l->refused = true, l->in_good = 0,
        l->in_at = l->in.len; /* the daemon has closed it: its last reply is already on the way */
    if (l->in_at > 0) {
        memmove(l->in.data, l->in.data + l->in_at, l->in.len - l->in_at);
        base_buffer_truncate(&l->in, l->in.len - l->in_at);
        l->in_at = 0;
    }
    BASE_ASSERT(l->in_at == 0 && l->in_good <= l->in.len);
    if (l->client_ended && !blocked) inner_end(l);
    server_gate_end_change(g, &l->client, (l->client_ended ? 0 : blocked ? (uint32_t)EPOLLRDHUP
                                                                         : (uint32_t)EPOLLIN) |
                                              (l->out.len > 0 ? (uint32_t)EPOLLOUT : 0));
    server_gate_end_change(
        g, &l->inner, (l->out.len > 0 || l->daemon_done ? 0 : (uint32_t)EPOLLIN) | (blocked ? (uint32_t)EPOLLOUT : 0));
}

static void client_read(server_gate *g, gate_link *l) {
    BASE_ASSERT(
        l->in.len <
        GATE_BYTES); /* nothing is read while bytes wait for the daemon: recv of 0 bytes would be the client's end */
    ssize_t n = recv(l->client.fd, g->scratch, GATE_BYTES - l->in.len, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) {
        link_kill(g, l);
        return;
    }
    if (n == 0) l->client_ended = true;
    else if (!l->refused && base_buffer_append(&l->in, g->scratch, (size_t)n)) {
        link_kill(g, l);
        return;
    }
    if (l->client_ended && l->daemon_done && l->out.len == 0) link_kill(g, l);
    else link_forward(g, l);
}

/* ---- to the client ---- */

/* The daemon is done with it, and the client has all of its answers: it closes, or time does. */
static void link_finish(server_gate *g, gate_link *l) {
    BASE_ASSERT(l->daemon_done && l->out.len == 0);
    shutdown(l->client.fd, SHUT_WR);
    if (l->client_ended || !g->daemon) link_kill(g, l);
    else link_linger(g, l, LINGER_MS);
}

static void client_write(server_gate *g, gate_link *l) {
    size_t before = l->out_at;
    if (!send_some(l->client.fd, &l->out, &l->out_at, l->out.len - l->out_at)) {
        link_kill(g, l);
        return;
    }
    if (l->linger_until_us && l->out_at > before) link_linger(g, l, LINGER_MS); /* slowly, but it reads */
    if (l->out_at == l->out.len) {
        base_buffer_free(&l->out);
        l->out = BASE_BUFFER(GATE_BYTES);
        l->out_at = 0;
        if (l->daemon_done) link_finish(g, l);
    }
    if (!l->dead) link_forward(g, l);
}

static void inner_read(server_gate *g, gate_link *l) {
    ssize_t n = recv(l->inner.fd, g->scratch, GATE_BYTES, MSG_DONTWAIT), sent = 0;
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0) {
        sent = send(l->client.fd, g->scratch, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) n = -1;
        sent = BASE_MAX(sent, 0);
        if (n > sent && base_buffer_append(&l->out, g->scratch + sent, (size_t)(n - sent))) n = -1;
        if (n < 0) link_kill(g, l);
        else if (n > sent) link_forward(g, l);
        return;
    }
    l->daemon_done = l->inner_ended = l->refused = true; /* n < 0: it left something unread */
    l->in_at = l->in_good = 0;
    base_buffer_clear(&l->in);
    if (l->out.len > 0) link_linger(g, l, LINGER_MS);
    else link_finish(g, l);
    if (!l->dead) link_forward(g, l);
}

static void link_event(server_gate *g, gate_end *e, uint32_t events) {
    gate_link *l = e->link;
    if (l->dead) return;
    if (e == &l->client) {
        if (events & (EPOLLERR | EPOLLHUP)) link_kill(g, l); /* both directions are closed: the daemon sees the same */
        else if (events & EPOLLIN) client_read(g, l);
        else if (events & EPOLLRDHUP) l->client_ended = true, inner_end(l), link_forward(g, l);
        if (!l->dead && events & EPOLLOUT) client_write(g, l);
        return;
    }
    BASE_ASSERT(e == &l->inner);
    if (events & EPOLLOUT) link_forward(g, l);
    if (!l->dead && l->out.len == 0 && !l->daemon_done && events & (EPOLLIN | EPOLLHUP | EPOLLERR)) inner_read(g, l);
    else if (!l->dead && events & (EPOLLHUP | EPOLLERR)) {
        /* The daemon has closed, and the client has not read what came before: it gets that, and the rest, as long as
         * it reads. */
        BASE_ASSERT(!l->inner.is_unwatched);
        epoll_ctl(g->epoll, EPOLL_CTL_DEL, l->inner.fd, NULL);
        l->inner.events = 0;
        l->inner.is_unwatched = true;
        if (!l->linger_until_us) link_linger(g, l, LINGER_MS);
    }
}

/* ---- accepting ---- */

/* A link of this client; false: no memory or no descriptors, and the client is closed. */
static bool link_open(server_gate *g, int fd, const struct sockaddr_storage *from, socklen_t n_from) {
    BASE_ASSERT(g->daemon && g->n_links < g->max_connections); /* else the gate is paused */
    int pair[2] = {-1, -1}, on = 1, bytes = CLIENT_BYTES, pair_bytes = PAIR_BYTES;
    gate_link *l = base_calloc(1, sizeof(*l));
    if (!l || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        base_free(l);
        close(fd);
        return false;
    }
    for (int i = 0; i < 2; i++) setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &pair_bytes, sizeof(pair_bytes));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    if (from->ss_family != AF_UNIX) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    *l = (gate_link){.client = {l, fd, 0, false},
                     .inner = {l, pair[0], 0, false},
                     .in = BASE_BUFFER(GATE_BYTES),
                     .out = BASE_BUFFER(GATE_BYTES)};
    BASE_LIST_PREPEND(&g->links, l, links);
    g->n_links++;
    /* The daemon closes its end whether it takes it or not; then we see that. */
    (void)MHD_add_connection(g->daemon, pair[1], (const struct sockaddr *)from, n_from);
    if (!end_watch(g, &l->client, EPOLLIN) || !end_watch(g, &l->inner, EPOLLIN)) link_kill(g, l);
    return true;
}

static void gate_accept(server_gate *g) {
    for (int i = 0; i < ACCEPTS && !g->paused; i++) {
        struct sockaddr_storage from = {0};
        socklen_t n = sizeof(from);
        int fd = accept4(g->listener.fd, (struct sockaddr *)&from, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)) return;
        g->paused = fd < 0 || !link_open(g, fd, &from, n) || g->n_links >= g->max_connections;
    }
}

/* ---- the thread ---- */

static void server_gate_examine_deadlines(server_gate *g) {
    uint64_t now = base_clock_us();
    for (gate_link *l = g->links.first, *next; l; l = next) {
        next = l->links.next;
        if (!l->linger_until_us || l->linger_until_us > now) continue;
        if (l->out.len > 0 && link_unread(l) < l->unread) link_linger(g, l, LINGER_MS); /* slowly, but it reads */
        else link_kill(g, l);
    }
}

/* Called before the daemon runs: a connection resumed after this writes to the eventfd again. */
static void gate_awake(server_gate *g) {
    uint64_t times;
    if (read(g->wake.fd, &times, sizeof(times)) < 0) { /* the counter is already 0 */
    }
    atomic_store(&g->woken, false);
}

static void gate_round(server_gate *g) {
    struct epoll_event events[EVENTS];
    MHD_UNSIGNED_LONG_LONG ms = INT_MAX;
    if (g->daemon && MHD_get_timeout(g->daemon, &ms) != MHD_YES) ms = INT_MAX;
    if (g->n_lingering > 0 || g->paused || !g->daemon) ms = BASE_MIN(ms, (MHD_UNSIGNED_LONG_LONG)TICK_MS);
    int n = epoll_wait(g->epoll, events, EVENTS, ms >= INT_MAX ? -1 : (int)ms);
    for (int i = 0; i < n; i++) {
        gate_end *e = events[i].data.ptr;
        if (e->link) link_event(g, e, events[i].events);
        else if (e == &g->listener && g->daemon) gate_accept(g);
        else if (e == &g->wake) gate_awake(g);
    }
    if (g->daemon) MHD_run(g->daemon);
    if (g->n_lingering > 0) server_gate_examine_deadlines(g);
    links_bury(g);
    BASE_ASSERT((g->links.first != NULL) == (g->n_links > 0));
    if (g->paused && n == 0)
        g->paused = g->n_links >= g->max_connections; /* descriptors: TICK_MS later is soon enough */
    if (g->daemon) server_gate_end_change(g, &g->listener, g->paused ? 0 : EPOLLIN);
}

/* The daemon closes its connections; clients still get what it wrote to them. */
static void gate_stop(server_gate *g) {
    uint64_t until = base_clock_us() + (uint64_t)STOP_MS * 1000;
    server_gate_end_change(g, &g->listener, 0);
    epoll_ctl(g->epoll, EPOLL_CTL_DEL, g->daemon_end.fd, NULL);
    MHD_stop_daemon(g->daemon);
    g->daemon = NULL;
    while (g->links.first && base_clock_us() < until) gate_round(g);
    while (g->links.first) link_kill(g, g->links.first);
    BASE_ASSERT(g->n_links == 0 && g->n_lingering == 0);
    links_bury(g);
}

static void *gate_main(void *arg) {
    server_gate *g = arg;
    while (!atomic_load(&g->stopping)) gate_round(g);
    gate_stop(g);
    return NULL;
}

int gate_new(server_gate **out, int listen_fd, struct MHD_Daemon *daemon, int max_connections, rp_error *err) {
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD);
    server_gate *g = base_calloc(1, sizeof(*g));
    *out = NULL;
    if (!g) {
        MHD_stop_daemon(daemon);
        return base_fail_memory(err, sizeof(*g), "a listening socket");
    }
    *g = (server_gate){.epoll = epoll_create1(EPOLL_CLOEXEC),
                       .listener = {NULL, listen_fd, 0, false},
                       .daemon_end = {NULL, info ? info->epoll_fd : -1, 0, false},
                       .wake = {NULL, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), 0, false},
                       .daemon = daemon,
                       .is_of = daemon,
                       .max_connections = max_connections};
    if (g->epoll >= 0 && g->wake.fd >= 0 && end_watch(g, &g->listener, EPOLLIN) &&
        end_watch(g, &g->daemon_end, EPOLLIN) && end_watch(g, &g->wake, EPOLLIN)) {
        *out = g; /* the first request may come, and be resumed, before this function returns */
        g->has_thread = pthread_create(&g->thread, NULL, gate_main, g) == 0;
    }
    if (!g->has_thread) {
        *out = NULL;
        int rc = base_fail_errno(err, "the server cannot poll for connections:", "epoll");
        MHD_stop_daemon(daemon);
        gate_free(g);
        return rc;
    }
    return RP_OK;
}

const struct MHD_Daemon *gate_daemon(const server_gate *g) { return g->is_of; }

void gate_wake(server_gate *g) {
    uint64_t one = 1;
    if (atomic_exchange(&g->woken, true)) return;
    if (write(g->wake.fd, &one, sizeof(one)) < 0) { /* it is full: it wakes all the same */
    }
}

void gate_free(server_gate *g) {
    if (!g) return;
    atomic_store(&g->stopping, true);
    if (g->has_thread) {
        gate_wake(g);
        pthread_join(g->thread, NULL);
    }
    if (g->wake.fd >= 0) close(g->wake.fd);
    if (g->epoll >= 0) close(g->epoll);
    BASE_ASSERT(!g->links.first && !g->dead.first);
    base_free(g);
}
