/* SPDX-License-Identifier: Apache-2.0 */
/* redis_socket.h: a connection to a host, over TCP or TLS: bytes by deadlines.
 *
 * Errors are RP_ERR_IO with the cause in errno (pool_driver.h), or RP_ERR_MEMORY. After one a socket can only be
 * closed. deadline_us: base_clock_us. One thread at a time. fuzz/fuzz_pool_redis.c has another implementation. */
#ifndef STORE_REDIS_SOCKET_H
#define STORE_REDIS_SOCKET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "reprise.h"
#include "store/remote/redis_address.h"
#include "store/remote/redis_tls.h"

typedef struct redis_socket redis_socket;

/* tls: borrowed until the socket is closed; NULL: none. */
int redis_socket_open(redis_socket **out, const redis_host *host, const redis_tls *tls, uint64_t deadline_us,
                      rp_error *err);
void redis_socket_close(redis_socket *s); /* keeps errno; NULL is fine */

/* At least one byte into n pieces, *got in all. The end of the stream is ECONNRESET. */
int redis_socket_read(redis_socket *s, const struct iovec *pieces, int n, size_t *got, uint64_t deadline_us,
                      rp_error *err);
/* All bytes of n <= BASE_IO_MAX_PIECES pieces; *pieces is used up. */
int redis_socket_write(redis_socket *s, struct iovec *pieces, int n, uint64_t deadline_us, rp_error *err);

#endif
