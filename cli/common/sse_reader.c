/* SPDX-License-Identifier: Apache-2.0 */
/* sse_reader.c: see sse_reader.h. A reader owns its two buffers. */
#include "common/sse_reader.h"

#include <stdlib.h>
#include <string.h>

#include "common/console.h"

void sse_reader_begin(sse_reader *s, void (*on_event)(void *user, const char *event, const char *data, size_t n),
                      void *user) {
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

static bool sse_reader_append(char **to, size_t *used, size_t *cap, const char *bytes, size_t n) {
    if (n > SSE_MAX_EVENT_BYTES - *used) return false;
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
    if (s->has_data && !sse_reader_append(&s->data, &s->n_data, &s->cap_data, "\n", 1)) return false;
    s->has_data = true;
    return sse_reader_append(&s->data, &s->n_data, &s->cap_data, value, strlen(value));
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
        if (!sse_reader_append(&s->line, &s->n_line, &s->cap_line, bytes + i, part)) return false;
        i += part;
        if (i == n) break;
        s->after_return = bytes[i++] == '\r';
        if (!take_event_line(s)) return false;
    }
    return true;
}
