/* SPDX-License-Identifier: Apache-2.0 */
/* http_client.h: requests to a server of HTTP/1.1 at a TCP port or a Unix socket. Replies are read by http_reader.h.
 *
 * What it does not do: TLS (a proxy's work), proxies, redirects, cookies, compression. A whole reply comes from http_ask, which waits;
 * who drives many connections takes http_connect, http_request_bytes and a reader each. Any thread; a target is not changed once open.
 */
#ifndef CLI_HTTP_CLIENT_H
#define CLI_HTTP_CLIENT_H

#include <sys/socket.h>

#include "common/http_reader.h"

#define HTTP_DEFAULT_URL "http://127.0.0.1:8080"
#define HTTP_MAX_REPLY_BYTES ((size_t)64 << 20)
#define HTTP_PATIENCE_S 60 /* http_ask: for the next byte */

typedef struct http_target {
    char name[320]; /* for messages: "http://127.0.0.1:8080", "unix:/run/reprise.sock" */
    char host[280]; /* "127.0.0.1:8080" */
    char base[256]; /* what stands before every path: "", "/reprise" */
    struct sockaddr_storage address;
    socklen_t n_address;
} http_target;

/* Finds out where a server is, and that somebody listens there. url: "http://HOST[:PORT][/BASE]"; unix_path: a Unix socket in place of
 * its host and port, or NULL. Returns an exit status: CLI_WRONG_USE for what is no such URL, CLI_FAILED where nobody listens. */
int http_target_open(http_target *t, const char *url, const char *unix_path);

typedef struct http_request {
    const char *method, *path; /* "GET", "/v1/models" */
    const char *key;           /* sent as "Authorization: Bearer KEY"; NULL: none */
    const char *content_type;  /* NULL: application/json */
    const char *body;          /* NULL: none */
    size_t n_body;
} http_request;

/* All of a request, freed by the caller. */
char *http_request_bytes(const http_target *t, const http_request *q, size_t *n);

/* A socket that is connected, or with `at_once` one that does not block and may still be connecting. -1: errno says why. */
int http_connect(const http_target *t, bool at_once);

typedef struct http_reply {
    int status;
    char *body; /* NUL-terminated */
    size_t n_body;
} http_reply;

/* Sends a request and waits for its reply, of any status. Returns an exit status; free the reply in any case. */
int http_ask(const http_target *t, const http_request *q, http_reply *reply);
void http_reply_free(http_reply *reply);

#endif
