/* SPDX-License-Identifier: Apache-2.0 */
/* http_stream.h: the bytes that a client sends, cut into requests by RFC 9112 alone: what two readers could read in two ways is refused.
 * It says how many of the bytes may be passed on to libmicrohttpd, which then reads what we have read and nothing else.
 *
 *   HEAD ---no body---> HEAD            a head: request line and fields, passed on when all of it is there
 *     |---Content-Length n---> BODY     n bytes
 *     '---chunked---> SIZE ---n > 0---> DATA ---> DATA_END ---> SIZE
 *                       '-----0-----> TRAILER ---> HEAD
 *
 * A head that is refused is the last one. Pure: no memory, no sockets; one thread at a time.
 */
#ifndef SERVER_HTTP_STREAM_H
#define SERVER_HTTP_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_MAX_HEAD ((size_t)32 << 10) /* bytes of a request line with its fields */
#define HTTP_MAX_FIELDS 128              /* of a head; browsers send 20 */
#define HTTP_MAX_TRAILER ((size_t)8 << 10)
#define HTTP_REFUSED "x-reprise-refused" /* a field that no client may send: how a refusal reaches whoever answers (gate.h) */

typedef enum http_state { HTTP_HEAD, HTTP_BODY, HTTP_SIZE, HTTP_DATA, HTTP_DATA_END, HTTP_TRAILER } http_state;

typedef struct http_stream {
    http_state state;
    uint64_t left;  /* of a body or a chunk */
    size_t scanned; /* bytes of an unfinished head, size or trailer that hold nothing wrong */
} http_stream;

/* What is to be done with the first n of the bytes. */
typedef enum http_verdict {
    HTTP_WAIT,      /* nothing: more has to come first */
    HTTP_PASS,      /* pass them on */
    HTTP_SKIP,      /* leave them out: an empty line before a request */
    HTTP_REFUSE,    /* 400: refuse the request */
    HTTP_TOO_LARGE, /* 431: its head has too many bytes or fields */
} http_verdict;

/* Looks at n > 0 bytes. *used: of HTTP_PASS and HTTP_SKIP, how many. *why: of a refusal, static. */
http_verdict http_stream_next(http_stream *s, const char *bytes, size_t n, size_t *used, const char **why);

#endif
