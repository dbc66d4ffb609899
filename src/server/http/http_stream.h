/* SPDX-License-Identifier: Apache-2.0 */
/* http_stream.h: splits the bytes of a client into requests by RFC 9112, and refuses input that two parsers could read
 * differently. It returns the number of bytes that may be passed on to libmicrohttpd, which then parses exactly the
 * accepted requests: a head is rewritten in place, to what was checked.
 *
 *   HEAD ---no body---> HEAD            a head: request line and fields, passed on when it is complete
 *     |---Content-Length n---> BODY     n bytes
 *     '---chunked---> SIZE ---n > 0---> DATA ---> DATA_END ---> SIZE
 *                       '-----0-----> TRAILER ---> HEAD
 *
 * The canonical head is never longer than the client's:
 *
 *   METHOD SP /PATH SP HTTP/1.x   the path of an absolute target, or * of OPTIONS; an absolute target's authority
 *         becomes the value of Host
 *   NAME:VALUE                    without white space around the value; a length without leading zeros, "chunked" in
 *         lower case; no Cookie,
 *                                 which nobody reads
 *   (empty)
 *
 * Fields of a trailer are checked and dropped. A refused head is the last one. Pure: no memory, no sockets; one thread
 * at a time.
 */
#ifndef SERVER_HTTP_STREAM_H
#define SERVER_HTTP_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_MAX_HEAD ((size_t)32 << 10) /* bytes of a request line with its fields */
#define HTTP_MAX_FIELDS 128              /* of a head; browsers send 20 */
#define HTTP_MAX_ARGUMENTS 128           /* of a query: libmicrohttpd has no memory, and no reply, for thousands */
#define HTTP_MAX_TRAILER ((size_t)8 << 10)
#define HTTP_MAX_AUTHORITY 320 /* of an absolute target: a name, and a port */
#define HTTP_REFUSED \
    "x-reprise-refused" /* a field that no client may send: carries a refusal to the handler that replies (gate.h) */

typedef enum http_state { HTTP_HEAD,
                          HTTP_BODY,
                          HTTP_SIZE,
                          HTTP_DATA,
                          HTTP_DATA_END,
                          HTTP_TRAILER } http_state;

typedef struct http_stream {
    http_state state;
    uint64_t left;  /* remaining bytes of a body or a chunk */
    size_t scanned; /* valid bytes of an incomplete head, size or trailer */
} http_stream;

/* The action for the first *used bytes. */
typedef enum http_verdict {
    HTTP_WAIT,      /* none: more bytes are needed */
    HTTP_PASS,      /* drop the first *dropped of them, pass on the others */
    HTTP_REFUSE,    /* 400: refuse the request */
    HTTP_TOO_LARGE, /* 431: its head has too many bytes, fields or arguments */
} http_verdict;

/* Examines n > 0 bytes, and changes those of an accepted or refused head. *used, *dropped: numbers of bytes for
 * HTTP_PASS; all of them are dropped of an empty line before a request. *why: reason of a refusal, static. */
http_verdict http_stream_next(http_stream *s, char *bytes, size_t n, size_t *used, size_t *dropped, const char **why);

#endif
