/* SPDX-License-Identifier: Apache-2.0 */
/* route_poll.h: libcurl's transfers over epoll: the cost of a call is proportional to the ready sockets, not to the
 * number of nodes. One thread, which also adds handles to `multi`; any thread may wake it. */
#ifndef SERVER_ROUTE_POLL_H
#define SERVER_ROUTE_POLL_H

#include <curl/curl.h>
#include <stdint.h>

#include "reprise.h"

/* Zero-initialise: closed. Its address must not change while it is open. */
typedef struct route_poll {
    CURLM *multi;
    int epoll, wake; /* wake: an eventfd */
    uint64_t due_us; /* curl's timer; UINT64_MAX: none */
} route_poll;

int route_poll_open(route_poll *p, rp_error *err);
void route_poll_close(route_poll *p); /* all handles must be removed */
void route_poll_wake(const route_poll *p);
/* Waits for events, at most most_ms, and lets curl process them. Handles that were added before start without a
 * wait. */
void route_poll_wait(route_poll *p, int most_ms);

#endif
