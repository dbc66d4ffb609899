/* SPDX-License-Identifier: Apache-2.0 */
/* watchdog.h: connections, and what libmicrohttpd does not see of them: that a head or a body takes too long although bytes keep coming, and
 * that a client went away while its connection is suspended; and how many there may be.
 *
 * A peer is a connection. Its deadline is when its socket is shut down; libmicrohttpd then closes it. A client that has closed its side for
 * writing counts as gone. Streams whose calls have told nothing for a while get a word, so that nobody takes them for dead.
 */
#ifndef SERVER_WATCHDOG_H
#define SERVER_WATCHDOG_H

#include <stdint.h>
#include <sys/socket.h>

#include "reprise.h"

struct server_request;

typedef struct server_peer {
    struct server_peer *previous, *next;
    int fd;
    uint64_t deadline_us;             /* 0: none */
    struct server_request *request; /* that is told when the client goes; or NULL */
    bool watched;
    unsigned char address[16]; /* IPv4 as ::ffff:a.b.c.d; zeros: none (a Unix socket) */
    uint64_t idle_us;          /* since when no request is read or handled; 0: one is */
    bool refused;              /* beyond a limit: its requests get 503, and it is closed */
    bool is_closing;           /* its socket was shut down for a new one's sake */
} server_peer;

/* Connections at most. Beyond one of these the oldest idle one is closed, of that address or of all; where none is idle, the new one is
 * refused. per_address 0: a quarter of max, and no limit for loopback addresses: a proxy's. A Unix socket has no address. */
typedef struct watchdog_limits {
    int32_t max, per_address;
} watchdog_limits;

typedef struct watchdog watchdog;

/* keep_alive_us: see generate_look; 0: readers are told nothing. RP_ERR_IO, RP_ERR_MEMORY. */
int watchdog_new(watchdog **out, const watchdog_limits *limits, uint64_t keep_alive_us, rp_error *err);
void watchdog_free(watchdog *g);                 /* after all peers were removed */

/* I/O threads. NULL: no memory. */
server_peer *watchdog_add(watchdog *g, int fd, const struct sockaddr *from, uint64_t timeout_us);
void watchdog_remove(watchdog *g, server_peer *peer);
/* A request is read and handled from now on; or (busy false) was answered. */
void watchdog_set_busy(watchdog *g, server_peer *peer, bool busy);
/* Idle connections that were closed for new ones. Any thread. */
uint64_t watchdog_reclaimed(watchdog *g);
void watchdog_set_deadline(watchdog *g, server_peer *peer, uint64_t timeout_us); /* 0: none */
/* Tells server_request_abandon of this exchange when the client goes, until watchdog_forget. */
void watchdog_watch(watchdog *g, server_peer *peer, struct server_request *x);
void watchdog_forget(watchdog *g, server_peer *peer);

/* Calls a function for every exchange that is watched, with the guard's lock held. */
void watchdog_visit(watchdog *g, void (*visit)(struct server_request *x, void *user), void *user);
/* Abandons every exchange that is watched. */
void watchdog_abandon_all(watchdog *g);

#endif
