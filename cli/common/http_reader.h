/* SPDX-License-Identifier: Apache-2.0 */
/* http_reader.h: incremental parsers of HTTP/1.1 replies, and of the server-sent events in their bodies.
 *
 *   bytes -> http_reader_feed -> status line, headers -> body: by length, in chunks, or until the end -> on_body
 *                                                                          sse_reader_feed -> lines -> on_event
 *
 * They have no socket and do not wait: the caller passes the bytes as they arrive, in pieces of any size. Malformed
 * HTTP ends in HTTP_BROKEN, with the reason in `fault`. Not supported: fields of trailers (skipped), compression,
 * HTTP/2. One thread.
 */
#ifndef CLI_HTTP_READER_H
#define CLI_HTTP_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_MAX_LINE_BYTES 8192             /* limit for a line of a head, and for a chunk's size line */
#define HTTP_MAX_HEAD_BYTES ((size_t)65536)  /* limit for all lines of a head, or of trailers */
#define HTTP_MAX_EVENT_BYTES ((size_t)16 << 20)

typedef enum http_state { HTTP_READING, HTTP_DONE, HTTP_BROKEN } http_state;

typedef struct http_reader {
    int status;         /* 200; 0 while unknown. Interim replies (1xx) are skipped */
    bool keeps_open;    /* valid when done: the connection can take another request */
    const char *fault;  /* reason of HTTP_BROKEN; static */
    void (*on_body)(void *user, const char *bytes, size_t n); /* NULL: the body is ignored */
    void *user;

    int stage; /* the fields from here on are private to the reader */
    bool chunked, has_length, no_body;
    uint64_t left; /* bytes left of the body, or of a chunk */
    size_t n_line, n_head;
    char line[HTTP_MAX_LINE_BYTES];
} http_reader;

/* Resets the reader for the next reply. no_body: the reply to a HEAD request. */
void http_reader_begin(http_reader *r, bool no_body, void (*on_body)(void *user, const char *bytes, size_t n), void *user);
/* Consumes bytes up to the reply's end. *used: their number; the remaining bytes belong to the next reply. */
http_state http_reader_feed(http_reader *r, const char *bytes, size_t n, size_t *used);
/* The connection was closed: HTTP_DONE if the body extends until then. */
http_state http_reader_end(http_reader *r);

typedef struct sse_reader {
    /* event: "" without a name. data: its lines, NUL-terminated. */
    void (*on_event)(void *user, const char *event, const char *data, size_t n);
    void *user;

    char event[64]; /* truncated to fit */
    char *line, *data;
    size_t n_line, cap_line, n_data, cap_data;
    bool has_data, after_return;
} sse_reader;

void sse_reader_begin(sse_reader *s, void (*on_event)(void *user, const char *event, const char *data, size_t n), void *user);
/* Returns false for an event of more than HTTP_MAX_EVENT_BYTES. */
bool sse_reader_feed(sse_reader *s, const char *bytes, size_t n);
void sse_reader_free(sse_reader *s);

#endif
