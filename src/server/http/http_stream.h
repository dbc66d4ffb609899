/* SPDX-License-Identifier: Apache-2.0 */
/* http_stream.h: splits the bytes of a client into requests by RFC 9112, and refuses input that two parsers could read differently.
 * It returns the number of bytes that may be passed on to libmicrohttpd, which then parses exactly the accepted requests.
 *
 *   HEAD ---no body---> HEAD            a head: request line and fields, passed on when it is complete
 *     |---Content-Length n---> BODY     n bytes
 *     '---chunked---> SIZE ---n > 0---> DATA ---> DATA_END ---> SIZE
 *                       '-----0-----> TRAILER ---> HEAD
 *
 * A refused head is the last one. Pure: no memory, no sockets; one thread at a time.
 */
#ifndef SERVER_HTTP_STREAM_H
#define SERVER_HTTP_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_MAX_HEAD ((size_t)32 << 10) /* bytes of a request line with its fields */
#define HTTP_MAX_FIELDS 128              /* of a head; browsers send 20 */
#define HTTP_MAX_TRAILER ((size_t)8 << 10)
#define HTTP_REFUSED "x-reprise-refused" /* a field that no client may send: carries a refusal to the handler that replies (gate.h) */

typedef enum http_state { HTTP_HEAD, HTTP_BODY, HTTP_SIZE, HTTP_DATA, HTTP_DATA_END, HTTP_TRAILER } http_state;

typedef struct http_stream {
    http_state state;
    uint64_t left;  /* remaining bytes of a body or a chunk */
    size_t scanned; /* valid bytes of an incomplete head, size or trailer */
} http_stream;

/* The action for the first *used bytes. */
typedef enum http_verdict {
    HTTP_WAIT,      /* none: more bytes are needed */
    HTTP_PASS,      /* pass them on */
    HTTP_SKIP,      /* drop them: an empty line before a request */
    HTTP_REFUSE,    /* 400: refuse the request */
    HTTP_TOO_LARGE, /* 431: its head has too many bytes or fields */
} http_verdict;

/* Examines n > 0 bytes. *used: number of bytes for HTTP_PASS and HTTP_SKIP. *why: reason of a refusal, static. */
http_verdict http_stream_next(http_stream *s, const char *bytes, size_t n, size_t *used, const char **why);

#endif
