/* SPDX-License-Identifier: Apache-2.0 */
/* route_frames.c: see route_frames.h. Owns nothing else. */
#include "server/route/route_frames.h"

#include <string.h>

#include "cluster/relay.h"

#define MARK_BYTES (sizeof(CLUSTER_MARK) - 1)

void route_frames_init(route_frames *f, bool has_marks) {
    *f = (route_frames){.has_marks = has_marks};
    f->pending = BASE_BUFFER(ROUTE_PENDING_BYTES);
    f->tokens = BASE_BUFFER(CLUSTER_MAX_RESUMED * sizeof(int32_t));
}

void route_frames_free(route_frames *f) {
    base_buffer_free(&f->pending);
    base_buffer_free(&f->tokens);
}

void route_frames_restart(route_frames *f, bool has_marks) {
    f->has_marks = has_marks;
    f->skips_empty = false;
    f->line_at = 0;
    base_buffer_clear(&f->pending);
}

size_t route_frames_n_tokens(const route_frames *f) { return f->tokens.len / sizeof(int32_t); }

/* ---- marks ---- */

/* A number and the space or the end after it. NULL: malformed. */
static const char *read_mark_number(const char *at, const char *end, uint64_t *value) {
    const char *begin = at;
    *value = 0;
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        if (*value > (UINT64_MAX - 9) / 10) return NULL;
        *value = *value * 10 + (uint64_t)(*at - '0');
    }
    if (at == begin || (at < end && *at != ' ')) return NULL;
    return at < end ? at + 1 : at;
}

static int take_mark(route_frames *f, const char *at, const char *end) {
    uint64_t text_bytes, n_frames, id;
    if (!(at = read_mark_number(at, end, &text_bytes)) || !(at = read_mark_number(at, end, &n_frames))) return RP_ERR_FORMAT;
    while (at < end) {
        if (!(at = read_mark_number(at, end, &id)) || id > INT32_MAX) return RP_ERR_FORMAT;
        const int32_t token = (int32_t)id;
        const int rc = base_buffer_append(&f->tokens, &token, sizeof(token));
        if (rc) return rc;
    }
    f->text_bytes = text_bytes;
    f->n_frames = n_frames;
    return RP_OK;
}

/* ---- lines ---- */

/* Removes the line from the pending bytes. */
static void drop_line(route_frames *f, size_t end) {
    memmove(f->pending.data + f->line_at, f->pending.data + end, f->pending.len - end);
    base_buffer_truncate(&f->pending, f->pending.len - (end - f->line_at));
    f->skips_empty = true;
}

/* Frames before a mark: they are passed on. */
static int pass_frames(route_frames *f, size_t n, base_buffer *out) {
    const int rc = base_buffer_append(out, f->pending.data, n);
    if (rc) return rc;
    memmove(f->pending.data, f->pending.data + n, f->pending.len - n);
    base_buffer_truncate(&f->pending, f->pending.len - n);
    f->line_at -= n;
    return RP_OK;
}

/* The line from line_at to its line feed, before `end`. */
static int take_line(route_frames *f, size_t end, base_buffer *out) {
    const char *line = f->pending.data + f->line_at;
    const size_t n = end - f->line_at - 1;
    int rc = RP_OK;
    if (f->skips_empty && n == 0) {
        drop_line(f, end);
        f->skips_empty = false;
        return RP_OK;
    }
    f->skips_empty = false;
    if (n >= MARK_BYTES && memcmp(line, CLUSTER_MARK, MARK_BYTES) == 0) {
        if ((rc = take_mark(f, line + MARK_BYTES, line + n))) return rc;
        drop_line(f, end);
        return pass_frames(f, f->line_at, out);
    }
    if (n > 0 && line[0] == ':') { /* frames end with empty lines, so that it may be sent before those that are pending */
        rc = base_buffer_append(out, line, n + 1);
        if (!rc) rc = base_buffer_append_str(out, "\n");
        if (!rc) drop_line(f, end);
        return rc;
    }
    f->line_at = end;
    return RP_OK;
}

int route_frames_feed(route_frames *f, const char *bytes, size_t n, base_buffer *out) {
    if (!f->has_marks) return base_buffer_append(out, bytes, n);
    size_t from = f->pending.len;
    int rc = base_buffer_append(&f->pending, bytes, n);
    while (!rc) {
        const char *feed = from < f->pending.len ? memchr(f->pending.data + from, '\n', f->pending.len - from) : NULL;
        if (!feed) return RP_OK;
        rc = take_line(f, (size_t)(feed - f->pending.data) + 1, out);
        from = f->line_at;
    }
    return rc;
}

int route_frames_finish(route_frames *f, base_buffer *out) {
    const int rc = f->pending.len > 0 ? base_buffer_append(out, f->pending.data, f->pending.len) : RP_OK;
    route_frames_restart(f, f->has_marks);
    return rc;
}
