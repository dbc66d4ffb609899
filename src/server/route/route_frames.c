/* SPDX-License-Identifier: Apache-2.0 */
/* route_frames.c: see route_frames.h. */
#include "server/route/route_frames.h"

#include <string.h>

#include "base/check.h"
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

void route_frames_forget(route_frames *f) {
    f->text_bytes = f->n_frames = 0;
    base_buffer_clear(&f->tokens);
}

size_t route_frames_n_tokens(const route_frames *f) {
    BASE_ASSERT(f->tokens.len % sizeof(int32_t) == 0); /* tokens of complete marks */
    return f->tokens.len / sizeof(int32_t);
}

/* Removes the pending bytes [line_at, end): a mark or a comment. */
static void drop_until(route_frames *f, size_t end) {
    BASE_ASSERT(f->line_at < end && end <= f->pending.len);
    memmove(f->pending.data + f->line_at, f->pending.data + end, f->pending.len - end);
    base_buffer_truncate(&f->pending, f->pending.len - (end - f->line_at));
    f->skips_empty = true;
}

/* ---- marks ---- */

/* Reads a number and the space or the end after it. Returns where the next number begins; NULL: malformed. */
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

/* Reads a mark and appends its tokens; on failure f->tokens may have some of them. */
static int read_mark(route_frames *f, const char *at, const char *end, uint64_t *text_bytes, uint64_t *n_frames) {
    uint64_t id;
    if (!(at = read_mark_number(at, end, text_bytes)) || !(at = read_mark_number(at, end, n_frames)))
        return RP_ERR_FORMAT;
    while (at < end) {
        if (!(at = read_mark_number(at, end, &id)) || id > INT32_MAX) return RP_ERR_FORMAT;
        const int32_t token = (int32_t)id;
        const int rc = base_buffer_append(&f->tokens, &token, sizeof(token));
        if (rc) return rc;
    }
    return RP_OK;
}

/* Takes the mark [line_at, end) and passes on the frames before it, or does nothing: the passed-on frames are always
 * those that the last mark counts. */
static int take_mark(route_frames *f, size_t end, base_buffer *out) {
    const char *line = f->pending.data + f->line_at;
    const size_t n_had = f->tokens.len;
    uint64_t text_bytes, n_frames;
    int rc = read_mark(f, line + MARK_BYTES, f->pending.data + end - 1, &text_bytes, &n_frames);
    if (!rc) rc = base_buffer_append(out, f->pending.data, f->line_at);
    if (rc) {
        base_buffer_truncate(&f->tokens, n_had);
        return rc;
    }
    f->text_bytes = text_bytes;
    f->n_frames = n_frames;
    f->line_at = 0;
    drop_until(f, end);
    return RP_OK;
}

/* Takes the line [line_at, end), with its line feed. */
static int take_line(route_frames *f, size_t end, base_buffer *out) {
    BASE_ASSERT(f->line_at < end && end <= f->pending.len);
    const char *line = f->pending.data + f->line_at;
    const size_t n = end - f->line_at - 1;
    if (f->skips_empty && n == 0) {
        drop_until(f, end);
        f->skips_empty = false;
        return RP_OK;
    }
    f->skips_empty = false;
    if (n >= MARK_BYTES && memcmp(line, CLUSTER_MARK, MARK_BYTES) == 0) return take_mark(f, end, out);
    if (n > 0 && line[0] == ':') drop_until(f, end);
    else f->line_at = end;
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
