/* SPDX-License-Identifier: Apache-2.0 */
/* gate.h: the thread of a listening socket. It accepts connections, forwards bytes that http_stream.h accepts, and runs
 * libmicrohttpd's loop.
 *
 *   client ==TCP or Unix==> gate --bytes that http_stream_next accepts--> socketpair ==> libmicrohttpd --> http_io.c
 *          <==============       <------------- unchanged -------------             <==
 *
 * libmicrohttpd parses heads leniently and modifies them while it reads, so ambiguous requests must be detected before
 * it. Both run in one thread: a request costs a few system calls and no thread switch
 * (docs/decisions/0021-http-gate.md).
 *
 * A refused head is replaced by a request of our own with the field HTTP_REFUSED ("400 reason"): its reply is sent in
 * order, counted and logged, and no later byte of the client is read. A malformed chunked body becomes a chunk that
 * libmicrohttpd refuses. If one side ends or is full, the gate ends or pauses the other: deadlines, watchdog.h and slow
 * clients behave as without a gate. Between the two sides are at most GATE_BYTES in each direction, besides the
 * kernel's buffers of the pair.
 */
#ifndef SERVER_GATE_H
#define SERVER_GATE_H

#include <microhttpd.h>

#include "reprise.h"

#define GATE_BYTES ((size_t)64 << 10)

typedef struct server_gate server_gate;

/* Takes over a daemon without a socket and a thread, and sets *out before its own thread starts. The listening
 * socket belongs to the caller and outlives the gate. At most max_connections at a time; others wait in the backlog.
 * RP_ERR_IO, RP_ERR_MEMORY; on error the daemon is stopped. */
int gate_new(server_gate **out, int listen_fd, struct MHD_Daemon *daemon, int max_connections, rp_error *err);
/* The daemon of its connections. Any thread. */
const struct MHD_Daemon *gate_daemon(const server_gate *g);
/* Makes the daemon process connections that MHD_resume_connection has resumed: libmicrohttpd wakes only threads of
 * its own. Any thread, until gate_free. */
void gate_wake(server_gate *g);
/* Stops the daemon, which has no suspended connection, sends its pending output to clients, and ends the thread. */
void gate_free(server_gate *g);

#endif
