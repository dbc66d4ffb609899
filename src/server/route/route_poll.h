/* SPDX-License-Identifier: Apache-2.0 */
/* route_poll.h: libcurl's transfers over epoll: what a turn costs depends on the sockets that have something, not on how many nodes there are. One
 * thread, which also adds handles to `multi`; any thread may wake it. */
#ifndef SERVER_ROUTE_POLL_H
#define SERVER_ROUTE_POLL_H

#include <curl/curl.h>
#include <stdint.h>

#include "reprise.h"

/* Zero-initialised it is closed. It does not move while it is open. */
typedef struct route_poll {
    CURLM *multi;
    int epoll, wake; /* wake: an eventfd */
    uint64_t due_us; /* when curl wants to be called, whatever happens; UINT64_MAX: never */
} route_poll;

int route_poll_open(route_poll *p, rp_error *err);
void route_poll_close(route_poll *p); /* no handle is left */
void route_poll_wake(const route_poll *p);
/* Waits until there is something to do, at most so long, and lets curl do it. Handles that were added meanwhile begin without waiting. */
void route_poll_wait(route_poll *p, int most_ms);

#endif
