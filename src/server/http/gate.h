/* SPDX-License-Identifier: Apache-2.0 */
/* gate.h: a listening socket's thread. It accepts connections, lets through what http_stream.h finds right, and runs libmicrohttpd's loop.
 *
 *   client ==TCP or Unix==> gate --what http_stream_next passes--> socketpair ==> libmicrohttpd --> http_io.c
 *          <==============       <------------- as it is ---------            <==
 *
 * libmicrohttpd sees heads only after us and changes them as it reads, so what it would read in its own way has to be found before it.
 * Both live in one thread, so a request costs some system calls and no switch of threads (docs/decisions/0021-http-gate.md).
 *
 * A head that is refused becomes a request of our own with the field HTTP_REFUSED ("400 reason"), so that its answer comes in its turn,
 * is counted and is logged; nothing of the client's is read after it. A chunked body that is wrong becomes a chunk that libmicrohttpd
 * refuses. A side that ends or is full ends or stops the other one, so deadlines, watchdog.h and slow readers are as without a gate; between the
 * two lie at most GATE_BYTES in either direction, and what the kernel holds of the pair.
 */
#ifndef SERVER_GATE_H
#define SERVER_GATE_H

#include <microhttpd.h>

#include "reprise.h"

#define GATE_BYTES ((size_t)64 << 10)

typedef struct server_gate server_gate;

/* Takes over the daemon, one without a socket and a thread, and sets *out before its thread begins; the listening socket is the caller's, and outlives the gate. At most
 * max_connections at one time; others wait in the backlog. RP_ERR_IO, RP_ERR_MEMORY; on error the daemon is stopped. */
int gate_new(server_gate **out, int listen_fd, struct MHD_Daemon *daemon, int max_connections, rp_error *err);
/* Whose connections it has. Any thread. */
const struct MHD_Daemon *gate_daemon(const server_gate *g);
/* The daemon looks at what MHD_resume_connection has resumed: libmicrohttpd wakes its own threads alone. Any thread, until gate_free. */
void gate_wake(server_gate *g);
/* Stops the daemon, of which no connection is suspended, gives clients what it has written, and ends the thread. */
void gate_free(server_gate *g);

#endif
