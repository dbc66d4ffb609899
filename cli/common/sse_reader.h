/* SPDX-License-Identifier: Apache-2.0 */
/* sse_reader.h: an incremental parser of server-sent events.
 *
 *   bytes of a reply's body -> sse_reader_feed -> lines -> on_event
 *
 * It does not wait: the caller passes the bytes as they arrive, in pieces of any size. One thread.
 */
#ifndef CLI_SSE_READER_H
#define CLI_SSE_READER_H

#include <stdbool.h>
#include <stddef.h>

#define SSE_MAX_EVENT_BYTES ((size_t)16 << 20)

typedef struct sse_reader {
    /* event: "" without a name. data: its lines, NUL-terminated. */
    void (*on_event)(void *user, const char *event, const char *data, size_t n);
    void *user;

    char event[64]; /* truncated to fit */
    char *line, *data;
    size_t n_line, cap_line, n_data, cap_data;
    bool has_data, after_return;
} sse_reader;

void sse_reader_begin(sse_reader *s, void (*on_event)(void *user, const char *event, const char *data, size_t n),
                      void *user);
/* Returns false for an event of more than SSE_MAX_EVENT_BYTES. */
bool sse_reader_feed(sse_reader *s, const char *bytes, size_t n);
void sse_reader_free(sse_reader *s);

#endif
