/* SPDX-License-Identifier: Apache-2.0 */
/* redis_connection.h: commands to a Redis server and their replies (RESP2), over a redis_socket.
 *
 * Reader and formatter are ours, not hiredis': 0.14 holds whole replies and commands without a limit, copies a reply
 * twice and aborts the process when memory ends. Over loopback it has 0.5 to 0.85 of the rate of GETRANGE, 0.25 to 0.4
 * of SET.
 *
 *   socket -> in[64 KiB] -> lines: "+OK", "-ERR ...", ":1", "$SIZE", "*COUNT"
 *        \--> the caller's memory: bytes of a "$SIZE"
 *
 * A reply is read token by token, each at most once: nothing is allocated for it, and its reader decides what it
 * accepts. A reply that breaks the protocol, or a limit, is RP_ERR_IO with EPROTO. After any error a connection can
 * only be closed: what follows in it is unknown. One thread at a time. */
#ifndef STORE_REDIS_CONNECTION_H
#define STORE_REDIS_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "store/remote/redis_socket.h"

#define REDIS_IN_BYTES ((size_t)64 << 10)
#define REDIS_MAX_LINE 4096         /* an error repeats arguments */
#define REDIS_MAX_DEPTH 7           /* arrays in arrays */
#define REDIS_MAX_SKIPPED (1 << 20) /* tokens of an unexpected reply */
#define REDIS_MAX_TEXT 256          /* bytes of a text that is read or skipped */

typedef struct redis_connection {
    redis_socket *socket;
    redis_host host;
    size_t begin, end; /* unread bytes of in */
    char in[REDIS_IN_BYTES];
} redis_connection;

/* User and password of servers, and their database. */
typedef struct redis_login {
    const char *user, *password; /* NULL: none */
    uint32_t db;
} redis_login;

/* Connects and logs in. tls: as redis_socket_open. RP_ERR_IO, RP_ERR_MEMORY. */
int redis_connect(redis_connection **out, const redis_host *host, const redis_tls *tls, const redis_login *login,
                  uint64_t deadline_us, rp_error *err);
void redis_disconnect(redis_connection *c); /* keeps errno; NULL is fine */
/* Logs in on a connection without replies to read: what redis_connect does. */
int redis_log_in(redis_connection *c, const redis_login *login, uint64_t deadline_us, rp_error *err);

/* Appends a command of n words. RP_ERR_MEMORY, RP_ERR_LIMIT: as base_buffer. */
int redis_command(base_buffer *out, int n, const char *const *words);
int redis_send(redis_connection *c, const base_buffer *commands, uint64_t deadline_us, rp_error *err);

typedef struct redis_token {
    char type;        /* + - : $ * */
    int64_t n;        /* of ':', its value; of '$', bytes that follow, of '*', tokens; -1 of these: nothing */
    const char *text; /* of '+' and '-'; valid until the next call */
} redis_token;

int redis_read_token(redis_connection *c, redis_token *out, uint64_t deadline_us, rp_error *err);
/* The bytes of a '$', all n of them. */
int redis_read_bytes(redis_connection *c, void *bytes, size_t n, uint64_t deadline_us, rp_error *err);
/* A '$' of at most REDIS_MAX_TEXT - 1 bytes as a text; an absent one is empty. */
int redis_read_text(redis_connection *c, char out[REDIS_MAX_TEXT], uint64_t deadline_us, rp_error *err);
/* A token and all that belongs to it. *left: tokens that may be skipped yet: REDIS_MAX_SKIPPED at first. */
int redis_skip(redis_connection *c, int *left, uint64_t deadline_us, rp_error *err);

/* RP_ERR_IO: a reply that is an error (text: after its '-'), with the cause in errno. */
int redis_fail_reply(const redis_connection *c, const char *text, rp_error *err);
/* RP_ERR_IO, EPROTO: a reply that the protocol, or the command, does not have. */
int redis_fail_protocol(const redis_connection *c, const char *what, rp_error *err);

#endif
