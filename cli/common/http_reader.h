/* SPDX-License-Identifier: Apache-2.0 */
/* http_reader.h: a reply of HTTP/1.1, and the server-sent events in its body, read as their bytes arrive.
 *
 *   bytes -> http_reader_feed -> status line, headers -> body: so many bytes, chunks, or until the end -> on_body
 *                                                                          sse_reader_feed -> lines -> on_event
 *
 * Neither waits nor has a socket: whoever has one feeds them what came, in whatever pieces. What is not HTTP ends in HTTP_BROKEN, with the
 * reason in `fault`. Not here: trailers' fields (they are skipped), compression, HTTP/2. One thread.
 */
#ifndef CLI_HTTP_READER_H
#define CLI_HTTP_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_MAX_LINE_BYTES 8192             /* of a head, of a chunk's size */
#define HTTP_MAX_HEAD_BYTES ((size_t)65536)  /* all lines of a head, or of trailers */
#define HTTP_MAX_EVENT_BYTES ((size_t)16 << 20)

typedef enum http_state { HTTP_READING, HTTP_DONE, HTTP_BROKEN } http_state;

typedef struct http_reader {
    int status;         /* 200; 0 until it is known. Interim replies (1xx) are passed over */
    bool keeps_open;    /* once done: the connection takes another request */
    const char *fault;  /* broken: why; static */
    void (*on_body)(void *user, const char *bytes, size_t n); /* NULL: nobody wants it */
    void *user;

    int stage; /* the rest is the reader's own */
    bool chunked, has_length, no_body;
    uint64_t left; /* of the body, or of a chunk */
    size_t n_line, n_head;
    char line[HTTP_MAX_LINE_BYTES];
} http_reader;

/* For the next reply. no_body: the reply to a HEAD. */
void http_reader_begin(http_reader *r, bool no_body, void (*on_body)(void *user, const char *bytes, size_t n), void *user);
/* Takes bytes up to the reply's end. *used: how many were; what is left belongs to the next reply. */
http_state http_reader_feed(http_reader *r, const char *bytes, size_t n, size_t *used);
/* The connection was closed: HTTP_DONE if the body was to last until then. */
http_state http_reader_end(http_reader *r);

typedef struct sse_reader {
    /* event: "" without a name. data: its lines, NUL-terminated. */
    void (*on_event)(void *user, const char *event, const char *data, size_t n);
    void *user;

    char event[64]; /* cut */
    char *line, *data;
    size_t n_line, cap_line, n_data, cap_data;
    bool has_data, after_return;
} sse_reader;

void sse_reader_begin(sse_reader *s, void (*on_event)(void *user, const char *event, const char *data, size_t n), void *user);
/* false: an event of more than HTTP_MAX_EVENT_BYTES. */
bool sse_reader_feed(sse_reader *s, const char *bytes, size_t n);
void sse_reader_free(sse_reader *s);

#endif
