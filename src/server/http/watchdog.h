/* SPDX-License-Identifier: Apache-2.0 */
/* watchdog.h: limits of connections, and the checks that libmicrohttpd lacks: deadlines of heads and bodies that
 * arrive slowly, and disconnection of a client while its connection is suspended.
 *
 * A peer is a connection. At its deadline its socket is shut down, and libmicrohttpd closes it. A client that has
 * closed its side for writing counts as disconnected. Streams without output get a comment at intervals, so that no
 * proxy closes them.
 */
#ifndef SERVER_WATCHDOG_H
#define SERVER_WATCHDOG_H

#include <stdint.h>
#include <sys/socket.h>

#include "base/list.h"
#include "reprise.h"

struct server_request;

typedef struct server_peer {
    BASE_LINKS(struct server_peer)
    links;
    int fd;
    uint64_t deadline_us;           /* 0: none */
    struct server_request *request; /* abandoned when the client disconnects; or NULL */
    bool watched;
    unsigned char address[16]; /* IPv4 as ::ffff:a.b.c.d; zeros: none (a Unix socket) */
    /* of the request that is read, on the cluster's port (cluster_port.h); NULL: none. Freed with the peer */
    char *target;
    uint64_t idle_us; /* idle since then; 0: a request is being read or handled */
    bool refused;     /* beyond a limit: its requests get 503, and it is closed */
    bool is_closing;  /* its socket was shut down to make way for a new connection */
} server_peer;

/* Maximum connections. A new connection beyond a limit replaces the oldest idle one of that address, or of all; if
 * none is idle, it is refused. per_address 0: a quarter of max, and no limit for loopback addresses, which may
 * belong to a proxy. Unix sockets have no address. */
typedef struct watchdog_limits {
    int32_t max, per_address;
} watchdog_limits;

typedef struct watchdog watchdog;

/* keep_alive_us: interval of comments (generate_look); 0: none. RP_ERR_IO, RP_ERR_MEMORY. */
int watchdog_new(watchdog **out, const watchdog_limits *limits, uint64_t keep_alive_us, rp_error *err);
void watchdog_free(watchdog *g); /* after all peers were removed */

/* I/O threads. NULL: no memory. */
server_peer *watchdog_add(watchdog *g, int fd, const struct sockaddr *from, uint64_t timeout_us);
void watchdog_remove(watchdog *g, server_peer *peer);
/* busy: a request is being read or handled; else: it was answered. */
void watchdog_set_busy(watchdog *g, server_peer *peer, bool busy);
/* Number of idle connections closed for new ones. Any thread. */
uint64_t watchdog_reclaimed(watchdog *g);
void watchdog_set_deadline(watchdog *g, server_peer *peer, uint64_t timeout_us); /* 0: none */
/* Calls server_request_abandon for this request when the client disconnects, until watchdog_forget. */
void watchdog_watch(watchdog *g, server_peer *peer, struct server_request *x);
void watchdog_forget(watchdog *g, server_peer *peer);

/* Calls a function for every watched request, with the watchdog's lock held. */
void watchdog_visit(watchdog *g, void (*visit)(struct server_request *x, void *user), void *user);
/* Abandons every watched request. */
void watchdog_abandon_all(watchdog *g);

#endif
