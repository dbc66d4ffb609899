/* SPDX-License-Identifier: Apache-2.0 */
/* http_client.h: HTTP/1.1 requests to a server at a TCP port or a Unix socket. http_reader.h parses the replies.
 *
 * Not supported: TLS (left to a proxy), proxies, redirects, cookies, compression. http_ask waits for a whole reply;
 * callers with many connections use http_connect, http_request_bytes and a reader per connection. Thread-safe; a target
 * is immutable once open.
 */
#ifndef CLI_HTTP_CLIENT_H
#define CLI_HTTP_CLIENT_H

#include <sys/socket.h>

#include "common/http_reader.h"

#define HTTP_DEFAULT_URL "http://127.0.0.1:8080"
#define HTTP_MAX_REPLY_BYTES ((size_t)64 << 20)
#define HTTP_PATIENCE_S 60 /* timeout of http_ask for the next byte */

typedef struct http_target {
    char name[320]; /* for messages: "http://127.0.0.1:8080", "unix:/run/reprise.sock" */
    char host[280]; /* "127.0.0.1:8080" */
    char base[256]; /* prefix of every path: "", "/reprise" */
    struct sockaddr_storage address;
    socklen_t n_address;
} http_target;

/* Resolves a server's address and checks that it accepts connections. url: "http://HOST[:PORT][/BASE]"; unix_path: a
 * Unix socket instead of its host and port, or NULL. Returns an exit status: CLI_WRONG_USE for an invalid URL,
 * CLI_FAILED if no server listens. */
int http_target_open(http_target *t, const char *url, const char *unix_path);

typedef struct http_request {
    const char *method, *path; /* "GET", "/v1/models" */
    const char *key;           /* sent as "Authorization: Bearer KEY"; NULL: none */
    const char *content_type;  /* NULL: application/json */
    const char *body;          /* NULL: none */
    size_t n_body;
} http_request;

/* The bytes of a request, freed by the caller. */
char *http_request_bytes(const http_target *t, const http_request *q, size_t *n);

/* A connected socket; with `at_once` a non-blocking one that may still be connecting. -1 on failure, with errno. */
int http_connect(const http_target *t, bool at_once);

typedef struct http_reply {
    int status;
    char *body; /* NUL-terminated */
    size_t n_body;
} http_reply;

/* Sends a request and waits for its reply, with any status. Returns an exit status; free the reply in any case. */
int http_ask(const http_target *t, const http_request *q, http_reply *reply);
void http_reply_free(http_reply *reply);

#endif
