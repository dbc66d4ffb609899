/* SPDX-License-Identifier: Apache-2.0 */
/* redis_tls.h: TLS 1.2 and 1.3 over a non-blocking socket, by GnuTLS: the only files that see it. The server's
 * certificate and name are always verified. A build without GnuTLS refuses to open credentials. */
#ifndef STORE_REDIS_TLS_H
#define STORE_REDIS_TLS_H

#include <stddef.h>
#include <sys/types.h>

#include "reprise.h"

typedef struct redis_tls redis_tls;                 /* credentials: what is trusted, and a certificate of ours */
typedef struct redis_tls_session redis_tls_session; /* over one socket; one thread at a time */

/* ca: a file of certificates that are trusted, NULL: the system's. cert, key: files of a certificate of this client and
 * of its key, or NULL. RP_ERR_IO (a file), RP_ERR_MEMORY, RP_ERR_UNSUPPORTED. Any thread may use the result. */
int redis_tls_open(redis_tls **out, const char *ca, const char *cert, const char *key, rp_error *err);
void redis_tls_close(redis_tls *t); /* after its sessions; NULL is fine */

/* host: the name, or address, that the server's certificate must have. RP_ERR_MEMORY. */
int redis_tls_begin(redis_tls_session **out, const redis_tls *t, int fd, const char *host, rp_error *err);
/* No more data is sent: a notice for the peer, if the socket takes it. NULL is fine. */
void redis_tls_end(redis_tls_session *s);

/* Steps, as of a non-blocking socket. They give -1 with errno: EAGAIN: wait for redis_tls_events, then repeat the step
 * with the same arguments; EACCES: the server's certificate is refused; EPROTO: no TLS. redis_tls_why has the reason.
 * */
int redis_tls_handshake(redis_tls_session *s);
ssize_t redis_tls_read(redis_tls_session *s, void *bytes, size_t n); /* 0: the end */
ssize_t redis_tls_write(redis_tls_session *s, const void *bytes, size_t n);
short redis_tls_events(const redis_tls_session *s);    /* of poll */
const char *redis_tls_why(const redis_tls_session *s); /* of the last step that failed; valid until the next one */

#endif
