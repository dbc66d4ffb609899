/* SPDX-License-Identifier: Apache-2.0 */
/* http_reader.c: see http_reader.h. A reader of replies owns nothing; a reader of events owns its two buffers. */
#define _POSIX_C_SOURCE 200809L /* strcasecmp, strncasecmp */

#include "common/http_reader.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/console.h"

/*   STATUS -> HEADERS -> BODY (left bytes), UNTIL_END, or SIZE -> CHUNK -> CHUNK_END -> SIZE ... -> TRAILERS -> OVER
 *     ^----- 1xx ---'                                                                            (FAULTY from anywhere) */
enum { STATUS, HEADERS, BODY, UNTIL_END, SIZE, CHUNK, CHUNK_END, TRAILERS, OVER, FAULTY };

void http_reader_begin(http_reader *r, bool no_body, void (*on_body)(void *user, const char *bytes, size_t n), void *user) {
    r->status = 0;
    r->keeps_open = false;
    r->fault = NULL;
    r->on_body = on_body;
    r->user = user;
    r->stage = STATUS;
    r->chunked = r->has_length = false;
    r->no_body = no_body;
    r->left = 0;
    r->n_line = r->n_head = 0;
}

static void break_off(http_reader *r, const char *fault) {
    r->stage = FAULTY;
    r->fault = fault;
    r->keeps_open = false;
}

/* ---- lines ---- */

static bool http_reader_is_digit(char c) { return c >= '0' && c <= '9'; }

static void take_status(http_reader *r) {
    const char *s = r->line;
    if (strncmp(s, "HTTP/1.", 7) != 0 || !http_reader_is_digit(s[7]) || s[8] != ' ' || !http_reader_is_digit(s[9]) || !http_reader_is_digit(s[10]) || !http_reader_is_digit(s[11]) ||
        (s[12] != ' ' && s[12] != '\0')) {
        break_off(r, "the reply has no HTTP/1.1 status line");
        return;
    }
    r->status = (s[9] - '0') * 100 + (s[10] - '0') * 10 + (s[11] - '0');
    r->keeps_open = s[7] != '0';
    r->stage = HEADERS;
}

static void http_reader_take_length(http_reader *r, const char *value) {
    uint64_t n = 0;
    const char *p = value;
    for (; http_reader_is_digit(*p) && n < UINT64_MAX / 100; p++) n = n * 10 + (uint64_t)(*p - '0');
    if (p == value || *p != '\0' || (r->has_length && n != r->left)) {
        break_off(r, "invalid Content-Length");
        return;
    }
    r->has_length = true;
    r->left = n;
}

static void take_header(http_reader *r) {
    char *value = strchr(r->line, ':');
    if (value == NULL) {
        break_off(r, "a header field without ':'");
        return;
    }
    *value++ = '\0';
    value += strspn(value, " \t");
    for (size_t n = strlen(value); n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t'); n--) value[n - 1] = '\0';
    if (strcasecmp(r->line, "Content-Length") == 0) http_reader_take_length(r, value);
    else if (strcasecmp(r->line, "Connection") == 0) r->keeps_open = strcasecmp(value, "close") != 0;
    else if (strcasecmp(r->line, "Transfer-Encoding") == 0) {
        r->chunked = true;
        if (strcasecmp(value, "chunked") != 0) break_off(r, "unknown Transfer-Encoding");
    }
}

/* Determines the body's framing at the end of the head. */
static void begin_body(http_reader *r) {
    if (r->status < 200) {
        http_reader_begin(r, r->no_body, r->on_body, r->user);
        return;
    }
    if (r->no_body || r->status == 204 || r->status == 304 || (!r->chunked && r->has_length && r->left == 0)) r->stage = OVER;
    else if (r->chunked) r->stage = SIZE;
    else if (r->has_length) r->stage = BODY;
    else {
        r->stage = UNTIL_END;
        r->keeps_open = false;
    }
}

/* -1: not a hexadecimal digit. */
static int hex_value(char c) {
    if (http_reader_is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Hexadecimal digits, and optional chunk extensions after ";", which are ignored. */
static void take_size(http_reader *r) {
    const char *p = r->line;
    uint64_t n = 0;
    for (; hex_value(*p) >= 0 && n < UINT64_MAX / 32; p++) n = n * 16 + (uint64_t)hex_value(*p);
    p += strspn(p, " \t");
    if (p == r->line || (*p != '\0' && *p != ';')) {
        break_off(r, "a chunk without a size");
        return;
    }
    r->left = n;
    r->stage = n > 0 ? CHUNK : TRAILERS;
    r->n_head = 0;
}

static void http_reader_take_line(http_reader *r) {
    if (r->n_line > 0 && r->line[r->n_line - 1] == '\r') r->n_line--;
    r->line[r->n_line] = '\0';
    bool is_empty = r->n_line == 0;
    r->n_line = 0;
    switch (r->stage) {
    case STATUS: take_status(r); break;
    case HEADERS: is_empty ? begin_body(r) : take_header(r); break;
    case SIZE: take_size(r); break;
    case CHUNK_END: is_empty ? (void)(r->stage = SIZE) : break_off(r, "a chunk is longer than its size"); break;
    default: /* TRAILERS */
        if (is_empty) r->stage = OVER;
    }
}

/* Collects bytes up to the end of a line. Returns the number of bytes consumed. */
static size_t feed_line(http_reader *r, const char *bytes, size_t n) {
    const char *end = memchr(bytes, '\n', n);
    size_t part = end != NULL ? (size_t)(end - bytes) : n;
    r->n_head += part + 1;
    if (r->n_line + part >= HTTP_MAX_LINE_BYTES || r->n_head > HTTP_MAX_HEAD_BYTES) {
        break_off(r, "the header section is too long");
        return n;
    }
    memcpy(r->line + r->n_line, bytes, part);
    r->n_line += part;
    if (end == NULL) return n;
    http_reader_take_line(r);
    return part + 1;
}

/* ---- the body ---- */

static size_t feed_body(http_reader *r, const char *bytes, size_t n) {
    if (r->stage != UNTIL_END && n > r->left) n = (size_t)r->left;
    if (r->on_body != NULL && n > 0) r->on_body(r->user, bytes, n);
    if (r->stage == UNTIL_END) return n;
    r->left -= n;
    if (r->left == 0) r->stage = r->stage == BODY ? OVER : CHUNK_END;
    return n;
}

http_state http_reader_feed(http_reader *r, const char *bytes, size_t n, size_t *used) {
    size_t i = 0;
    while (i < n && r->stage != OVER && r->stage != FAULTY) {
        bool in_body = r->stage == BODY || r->stage == CHUNK || r->stage == UNTIL_END;
        i += in_body ? feed_body(r, bytes + i, n - i) : feed_line(r, bytes + i, n - i);
    }
    *used = i;
    return r->stage == OVER ? HTTP_DONE : r->stage == FAULTY ? HTTP_BROKEN : HTTP_READING;
}

http_state http_reader_end(http_reader *r) {
    if (r->stage == UNTIL_END) r->stage = OVER;
    if (r->stage == OVER) return HTTP_DONE;
    if (r->stage != FAULTY) break_off(r, "the connection closed before the end of the reply");
    return HTTP_BROKEN;
}

/* ---- server-sent events ---- */

void sse_reader_begin(sse_reader *s, void (*on_event)(void *user, const char *event, const char *data, size_t n), void *user) {
    s->on_event = on_event;
    s->user = user;
    s->event[0] = '\0';
    s->n_line = s->n_data = 0;
    s->has_data = s->after_return = false;
}

void sse_reader_free(sse_reader *s) {
    free(s->line);
    free(s->data);
    *s = (sse_reader){0};
}

static bool http_reader_append(char **to, size_t *used, size_t *cap, const char *bytes, size_t n) {
    if (n > HTTP_MAX_EVENT_BYTES - *used) return false;
    if (*used + n + 1 > *cap) {
        *cap = 2 * (*used + n + 1);
        *to = cli_realloc(*to, *cap);
    }
    if (n > 0) memcpy(*to + *used, bytes, n);
    *used += n;
    (*to)[*used] = '\0';
    return true;
}

static bool sse_reader_take_field(sse_reader *s, const char *name, size_t n_name, const char *value) {
    if (n_name == 5 && memcmp(name, "event", 5) == 0) {
        size_t n = strlen(value) < sizeof s->event ? strlen(value) : sizeof s->event - 1;
        memcpy(s->event, value, n);
        s->event[n] = '\0';
    }
    if (n_name != 4 || memcmp(name, "data", 4) != 0) return true;
    if (s->has_data && !http_reader_append(&s->data, &s->n_data, &s->cap_data, "\n", 1)) return false;
    s->has_data = true;
    return http_reader_append(&s->data, &s->n_data, &s->cap_data, value, strlen(value));
}

/* An empty line ends an event; other lines are "name: value", "name", or ": a comment". */
static bool take_event_line(sse_reader *s) {
    const char *line = s->n_line > 0 ? s->line : "";
    size_t n = s->n_line, n_name = strcspn(line, ":");
    s->n_line = 0;
    if (n > 0 && n_name == 0) return true;
    if (n > 0) {
        const char *value = line + n_name + (line[n_name] == ':');
        return sse_reader_take_field(s, line, n_name, value + (*value == ' '));
    }
    if (s->has_data) s->on_event(s->user, s->event, s->data, s->n_data);
    s->event[0] = '\0';
    s->n_data = 0;
    s->has_data = false;
    return true;
}

bool sse_reader_feed(sse_reader *s, const char *bytes, size_t n) {
    for (size_t i = 0; i < n;) {
        if (s->after_return && bytes[i] == '\n') { /* the second byte of a CR LF */
            s->after_return = false;
            i++;
            continue;
        }
        s->after_return = false;
        size_t part = 0;
        while (i + part < n && bytes[i + part] != '\n' && bytes[i + part] != '\r') part++;
        if (!http_reader_append(&s->line, &s->n_line, &s->cap_line, bytes + i, part)) return false;
        i += part;
        if (i == n) break;
        s->after_return = bytes[i++] == '\r';
        if (!take_event_line(s)) return false;
    }
    return true;
}
