/* SPDX-License-Identifier: Apache-2.0 */
/* route_poll.c: see route_poll.h. Owns curl's multi handle and two descriptors. */
#define _GNU_SOURCE /* eventfd */
#include "server/route/route_poll.h"

#include <errno.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"

#define MOST_EVENTS 64 /* of one wait */

/* curl's callback: the events of a socket. epoll removes closed sockets by itself. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *socket) {
    const route_poll *p = user;
    struct epoll_event e = {.data.fd = fd};
    (void)easy;
    (void)socket;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(p->epoll, EPOLL_CTL_DEL, fd, &e);
        return 0;
    }
    if (what & CURL_POLL_IN) e.events |= EPOLLIN;
    if (what & CURL_POLL_OUT) e.events |= EPOLLOUT;
    if (epoll_ctl(p->epoll, EPOLL_CTL_MOD, fd, &e) == 0) return 0;
    return errno == ENOENT && epoll_ctl(p->epoll, EPOLL_CTL_ADD, fd, &e) == 0 ? 0 : -1;
}

static int on_timer(CURLM *multi, long timeout_ms, void *user) {
    route_poll *p = user;
    (void)multi;
    p->due_us = timeout_ms < 0 ? UINT64_MAX : base_clock_us() + (uint64_t)timeout_ms * 1000;
    return 0;
}

int route_poll_open(route_poll *p, rp_error *err) {
    struct epoll_event e = {.events = EPOLLIN};
    BASE_ASSERT(!p->multi); /* closed */
    *p = (route_poll){
        .epoll = epoll_create1(EPOLL_CLOEXEC), .wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .due_us = UINT64_MAX};
    e.data.fd = p->wake;
    if (p->epoll < 0 || p->wake < 0 || epoll_ctl(p->epoll, EPOLL_CTL_ADD, p->wake, &e))
        base_fail_errno(err, "cannot make", "epoll");
    else if (!(p->multi = curl_multi_init())) base_fail(err, RP_ERR_MEMORY, "libcurl cannot be initialized");
    if (!p->multi) {
        if (p->epoll >= 0) close(p->epoll);
        if (p->wake >= 0) close(p->wake);
        return RP_ERR_IO;
    }
    curl_multi_setopt(p->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(p->multi, CURLMOPT_SOCKETDATA, p);
    curl_multi_setopt(p->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(p->multi, CURLMOPT_TIMERDATA, p);
    return RP_OK;
}

void route_poll_close(route_poll *p) {
    if (!p->multi) return;
    curl_multi_cleanup(p->multi); /* closes connections, which calls on_socket */
    close(p->epoll);
    close(p->wake);
    *p = (route_poll){0};
}

void route_poll_wake(const route_poll *p) {
    if (p->multi) (void)eventfd_write(p->wake, 1); /* fails only if the counter is full: it is awake then */
}

static void take_event(route_poll *p, const struct epoll_event *e) {
    eventfd_t value;
    int running, what = 0;
    if (e->data.fd == p->wake) {
        (void)eventfd_read(p->wake, &value);
        return;
    }
    if (e->events & (EPOLLIN | EPOLLHUP)) what |= CURL_CSELECT_IN;
    if (e->events & EPOLLOUT) what |= CURL_CSELECT_OUT;
    if (e->events & EPOLLERR) what |= CURL_CSELECT_ERR;
    curl_multi_socket_action(p->multi, e->data.fd, what,
                             &running); /* curl ignores sockets that it has closed meanwhile */
}

void route_poll_wait(route_poll *p, int most_ms) {
    struct epoll_event events[MOST_EVENTS];
    int running;
    const uint64_t now = base_clock_us();
    const int wait_ms = p->due_us <= now ? 0 : (int)BASE_MIN((p->due_us - now + 999) / 1000, (uint64_t)most_ms);
    const int n = epoll_wait(p->epoll, events, MOST_EVENTS, wait_ms);
    for (int i = 0; i < n; i++) take_event(p, &events[i]);
    if (p->due_us > base_clock_us()) return;
    p->due_us = UINT64_MAX; /* curl sets its next timer */
    curl_multi_socket_action(p->multi, CURL_SOCKET_TIMEOUT, 0, &running);
}
