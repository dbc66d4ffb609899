/* SPDX-License-Identifier: Apache-2.0 */
/* tool_finder.c: see tool_finder.h. A function for each state: it reads as much as is decided. */
#include "structured/tool_finder.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "structured/tool_heads.h"

enum {
    IN_TEXT,
    IN_REASONING,
    IN_HEADER,
    IN_HEAD,
    IN_ARGUMENTS,
    IN_LITERALS,
    IN_KEY,
    IN_VALUE,
    IN_TAIL, /* IN_ARGUMENTS to IN_VALUE: within a call */
    IN_NEXT,
};

enum {
    MARK_CALL,      /* begins calls */
    MARK_REASONING, /* begins reasoning */
    MARK_CLOSE,     /* ends it */
    MARK_DROP,      /* is no part of the answer */
    MARK_HEADER,    /* begins a header of harmony's */
    MARK_END,       /* ends a message of harmony's */
};
#define IN_TEXT_MARKS (1u << MARK_CALL | 1u << MARK_REASONING | 1u << MARK_DROP | 1u << MARK_HEADER | 1u << MARK_END)
#define IN_REASONING_MARKS (1u << MARK_CLOSE | 1u << MARK_HEADER | 1u << MARK_END)

static void add_mark(tool_finder *f, const char *text, int kind, bool at_start) {
    for (size_t i = 0; i < f->n_marks; i++)
        if (strcmp(f->marks[i].text, text) == 0 && f->marks[i].at_start == at_start) return;
    BASE_ASSERT(f->n_marks < TOOL_MAX_MARKS);
    f->marks[f->n_marks++] = (tool_mark){text, (uint8_t)strlen(text), (uint8_t)kind, at_start};
}

bool tool_finder_is_needed(const answer_form *answer) {
    return answer_form_may_call(answer) || answer->convention.reasoning ||
           tool_convention_family(&answer->convention)->dropped[0];
}

void tool_finder_init(tool_finder *f, const answer_form *answer, tool_reasoning reasoning, tool_on_event on_event,
                      void *user) {
    const tool_family *family = tool_convention_family(&answer->convention);
    const reasoning_marks *marks = answer->convention.reasoning;
    *f = (tool_finder){.answer = answer,
                       .reasoning = reasoning,
                       .held = BASE_BUFFER(TOOL_CALLS_BYTES),
                       .on_event = on_event,
                       .user = user};
    for (size_t i = 0; answer_form_may_call(answer) && i < TOOL_MAX_FORMS && family->forms[i]; i++)
        if (!family->has_channels || i > 0) add_mark(f, family->forms[i]->open, MARK_CALL, family->forms[i]->at_start);
    for (size_t i = 0; i < BASE_ARRAY_LEN(family->dropped) && family->dropped[i]; i++)
        add_mark(f, family->dropped[i], MARK_DROP, false);
    if (marks && !family->has_channels) {
        add_mark(f, marks->open, MARK_REASONING, marks->at_start);
        add_mark(f, marks->close, MARK_CLOSE, false);
    }
    for (size_t i = 0; family->has_channels && tool_channels_begin(i); i++)
        add_mark(f, tool_channels_begin(i), MARK_HEADER, false);
    for (size_t i = 0; family->has_channels && tool_channels_end(i); i++)
        add_mark(f, tool_channels_end(i), MARK_END, false);
    f->state = answer->reasoning_open ? IN_REASONING : family->has_channels ? IN_HEADER
                                                                            : IN_TEXT;
    f->skips_space = answer->reasoning_open;
}

void tool_finder_free(tool_finder *f) {
    for (size_t i = 0; i < f->n_items; i++) base_buffer_free(&f->items[i].text);
    base_free(f->items);
    base_free(f->reasoned);
    base_buffer_free(&f->held);
    *f = (tool_finder){0};
}

/* ---- items, and events of them: each function returns 0, RP_ERR_MEMORY or the result of on_event; n may be 0 ---- */

/* The current call. */
static const tool_item *finder_last(const tool_finder *f) {
    BASE_ASSERT(f->n_items > 0);
    return &f->items[f->n_items - 1];
}

static int report_item(tool_finder *f, tool_event event, const char *bytes, size_t n) {
    return f->on_event ? f->on_event(f->user, event, finder_last(f), bytes, n) : 0;
}

static int add_item(tool_finder *f, tool_item item) {
    int rc = base_grow((void **)&f->items, &f->cap_items, f->n_items + 1, TOOL_CALLS_ITEMS, sizeof(*f->items));
    if (rc) return rc;
    item.text = BASE_BUFFER(TOOL_CALLS_BYTES);
    f->items[f->n_items++] = item;
    return 0;
}

static int append_item(tool_finder *f, tool_event event, const char *bytes, size_t n) {
    BASE_ASSERT(f->n_items > 0);
    tool_item *item = &f->items[f->n_items - 1];
    int rc = base_buffer_append(&item->text, bytes, n);
    item->end = f->n_read + n;
    return rc ? rc : report_item(f, event, bytes, n);
}

static int append_text(tool_finder *f, bool is_reasoning, const char *bytes, size_t n) {
    int rc = 0;
    if (f->n_items == 0 || finder_last(f)->tool || finder_last(f)->is_reasoning != is_reasoning)
        rc = add_item(f, (tool_item){.is_reasoning = is_reasoning, .begin = f->n_read});
    return rc ? rc : append_item(f, is_reasoning ? TOOL_REASONING : TOOL_TEXT, bytes, n);
}

/* The bytes are the first of those held back, or of all of them. */
static int finder_reasoning(tool_finder *f, const char *bytes, size_t n) {
    if (n == 0 || f->reasoning == TOOL_REASONING_DROPPED) return 0;
    return append_text(f, f->reasoning == TOOL_REASONING_ITEMS, bytes, n);
}

static int finder_arguments(tool_finder *f, const char *bytes, size_t n) {
    return n > 0 ? append_item(f, TOOL_ARGUMENTS, bytes, n) : 0;
}

static int finder_end(tool_finder *f, bool is_whole) {
    BASE_ASSERT(f->n_items > 0 && finder_last(f)->tool);
    f->items[f->n_items - 1].is_whole = is_whole;
    return report_item(f, TOOL_END, "", 0);
}

static void finder_drop(tool_finder *f, size_t n) {
    BASE_ASSERT(n <= f->held.len);
    if (n == 0) return;
    memmove(f->held.data, f->held.data + n, f->held.len - n);
    base_buffer_truncate(&f->held, f->held.len - n);
    f->n_read += n;
}

static int finder_release(tool_finder *f, size_t n) {
    if (n == 0) return 0;
    f->has_text = true;
    int rc = append_text(f, false, f->held.data, n);
    if (!rc) finder_drop(f, n);
    return rc;
}

static int finder_begin_reasoning(tool_finder *f, size_t at) {
    BASE_ASSERT(at <= f->held.len);
    int rc =
        base_grow((void **)&f->reasoned, &f->cap_reasoned, f->n_reasoned + 1, TOOL_CALLS_ITEMS, sizeof(*f->reasoned));
    if (!rc) f->reasoned[f->n_reasoned++] = (tool_range){f->n_read + at, SIZE_MAX};
    return rc;
}

/* ---- marks in text ---- */

/* May this mark be at `at`? before: the white space from the beginning on. */
static bool mark_counts(const tool_finder *f, const tool_mark *mark, unsigned kinds, size_t at, size_t before) {
    BASE_ASSERT(mark->kind <= MARK_END);
    if (!(kinds >> mark->kind & 1)) return false;
    if (!mark->at_start) return true;
    return at <= before && !f->has_text && f->n_calls == 0 && (mark->kind != MARK_REASONING || f->n_reasoned == 0);
}

/* The first mark, and where it is. NULL: there is none; *at is the length of the text that is no part of one, whatever
 * follows, and neither white space before one. */
static const tool_mark *find_mark(const tool_finder *f, unsigned kinds, size_t *at) {
    const base_buffer *b = &f->held;
    const size_t before = tool_heads_spaces(b, 0);
    size_t end = b->len;
    for (*at = 0; *at < b->len; (*at)++)
        for (size_t i = 0; i < f->n_marks; i++) {
            const tool_mark *mark = &f->marks[i];
            const size_t n = BASE_MIN(mark->n, b->len - *at);
            if (b->data[*at] != mark->text[0] || memcmp(b->data + *at, mark->text, n) != 0 ||
                !mark_counts(f, mark, kinds, *at, before))
                continue;
            if (n == mark->n) return mark;
            end = BASE_MIN(end, *at);
        }
    while (end > 0 && tool_heads_is_space(b->data[end - 1])) end--;
    *at = end;
    return NULL;
}

static size_t before_spaces(const base_buffer *b, size_t at) {
    BASE_ASSERT(at <= b->len);
    while (at > 0 && tool_heads_is_space(b->data[at - 1])) at--;
    return at;
}

static void skip_spaces(tool_finder *f) {
    if (!f->skips_space) return;
    finder_drop(f, tool_heads_spaces(&f->held, 0));
    f->skips_space = f->held.len == 0;
}

/* ---- text and reasoning ---- */

/* n: bytes of the mark or header after the spaces. */
static int begin_reasoning(tool_finder *f, size_t spaces, size_t n) {
    BASE_ASSERT(spaces + n <= f->held.len);
    int rc = finder_begin_reasoning(f, spaces);
    if (!rc && f->reasoning == TOOL_REASONING_AS_TEXT) rc = finder_reasoning(f, f->held.data, spaces + n);
    if (rc) return rc;
    finder_drop(f, spaces + n);
    f->state = IN_REASONING;
    f->skips_space = f->reasoning != TOOL_REASONING_AS_TEXT;
    return 0;
}

static int tool_finder_read_text(tool_finder *f, bool *goes_on) {
    BASE_ASSERT(f->state == IN_TEXT);
    size_t at;
    skip_spaces(f);
    const tool_mark *mark = find_mark(f, IN_TEXT_MARKS, &at);
    if (!mark) *goes_on = false;
    const size_t text = mark ? before_spaces(&f->held, at) : at, spaces = at - text;
    int rc = finder_release(f, text);
    if (rc || !mark) return rc;
    switch (mark->kind) {
    case MARK_CALL:
        f->mark = mark->text;
        f->state = IN_HEAD;
        return 0;
    case MARK_REASONING: return begin_reasoning(f, spaces, mark->n);
    case MARK_HEADER:
        finder_drop(f, spaces);
        f->state = IN_HEADER;
        return 0;
    default:
        if (mark->kind == MARK_END) f->state = IN_HEADER;
        finder_drop(f, spaces + mark->n);
        return 0;
    }
}

static int read_reasoning(tool_finder *f, bool *goes_on) {
    BASE_ASSERT(f->state == IN_REASONING);
    size_t at;
    /* Without a prompt that opened it, the range has begun. */
    const bool is_open = f->n_reasoned > 0 && f->reasoned[f->n_reasoned - 1].end == SIZE_MAX;
    int rc = is_open ? 0 : finder_begin_reasoning(f, 0);
    if (rc) return rc;
    skip_spaces(f);
    const tool_mark *mark = find_mark(f, IN_REASONING_MARKS, &at);
    const bool as_text = f->reasoning == TOOL_REASONING_AS_TEXT;
    if (!mark) *goes_on = false;
    const size_t text = mark && !as_text ? before_spaces(&f->held, at) : at,
                 n = mark && mark->kind != MARK_HEADER ? mark->n : 0;
    rc = finder_reasoning(f, f->held.data, as_text ? at + n : text);
    if (rc) return rc;
    if (mark) {
        BASE_ASSERT(f->n_reasoned > 0 && at + n <= f->held.len);
        f->reasoned[f->n_reasoned - 1].end = f->n_read + at + n;
    }
    finder_drop(f, mark ? at + n : text);
    if (!mark) return 0;
    f->state = mark->kind == MARK_CLOSE ? IN_TEXT : IN_HEADER;
    f->skips_space = mark->kind == MARK_CLOSE && !as_text;
    return 0;
}

/* ---- calls ---- */

static int begin_call(tool_finder *f, size_t at, const tool_spec *tool) {
    BASE_ASSERT(at <= f->held.len && tool);
    finder_drop(f, at);
    f->depth = f->n_values = 0;
    f->in_string = f->escaped = false;
    int rc = add_item(f, (tool_item){.tool = tool, .number = f->n_calls});
    if (!rc) {
        f->n_calls++;
        rc = report_item(f, TOOL_BEGIN, "", 0);
    }
    f->state = !f->form || f->form->body == TOOL_BODY_JSON || f->form->body == TOOL_BODY_NAMED ? IN_ARGUMENTS
               : f->form->body == TOOL_BODY_TEXT                                               ? IN_KEY
                                                                                               : IN_LITERALS;
    if (f->state == IN_LITERALS) tool_literals_begin(&f->literals, f->form);
    return rc || f->state == IN_ARGUMENTS ? rc : finder_arguments(f, "{", 1);
}

static int read_header(tool_finder *f, bool *goes_on) {
    BASE_ASSERT(f->state == IN_HEADER);
    tool_channel channel = TOOL_CHANNEL_UNKNOWN;
    const tool_spec *tool = NULL;
    size_t n = 0;
    tool_match m = tool_channels_header(f->answer, &f->held, TOOL_CALLS_HEAD_BYTES, &channel, &tool, &n);
    if (m == TOOL_PERHAPS) {
        *goes_on = false;
        return 0;
    }
    f->state = IN_TEXT;
    f->form = NULL;
    for (size_t i = 0; m == TOOL_NO && tool_channels_begin(i); i++)
        if (strncmp(f->held.data, tool_channels_begin(i), BASE_MIN(strlen(tool_channels_begin(i)), f->held.len)) == 0)
            return finder_release(f, strlen(tool_channels_begin(i))); /* else it would be found again */
    if (m == TOOL_NO) return 0;
    if (channel == TOOL_CHANNEL_CALL) return begin_call(f, n, tool);
    if (channel == TOOL_CHANNEL_REASONING) return begin_reasoning(f, 0, n);
    if (channel == TOOL_CHANNEL_UNKNOWN) return finder_release(f, n);
    finder_drop(f, n);
    return 0;
}

/* The forms that begin with the mark exclude each other: the first that fits is the one. */
static tool_match match_forms(tool_finder *f, size_t spaces, size_t *at, const tool_spec **tool) {
    BASE_ASSERT(f->mark);
    const tool_family *family = tool_convention_family(&f->answer->convention);
    tool_match all = TOOL_NO;
    for (size_t i = 0; i < TOOL_MAX_FORMS && family->forms[i]; i++) {
        const tool_form *form = family->forms[i];
        if (strcmp(form->open, f->mark) != 0) continue;
        *at = spaces + (form->at_start ? 0 : strlen(form->open));
        tool_match m = form->is_list ? tool_heads_expect(&f->held, at, "[") : TOOL_YES;
        if (m == TOOL_YES) m = tool_heads_call(form, f->answer, &f->held, at, tool);
        if (m == TOOL_PERHAPS) all = m;
        if (m != TOOL_YES) continue;
        f->form = form;
        return m;
    }
    return all;
}

#define LOOK_AHEAD 16 /* bytes after a match that decided it, at most */

/* Without a limit on matches, too, a long text would be decided by how it was cut. */
static tool_match within_limit(const tool_finder *f, tool_match m, size_t begin, size_t at) {
    BASE_ASSERT(begin <= f->held.len);
    if (m == TOOL_YES) return at - begin <= TOOL_CALLS_HEAD_BYTES - LOOK_AHEAD ? m : TOOL_NO;
    return m == TOOL_PERHAPS && f->held.len - begin >= TOOL_CALLS_HEAD_BYTES ? TOOL_NO : m;
}

static int read_head(tool_finder *f, bool *goes_on) {
    BASE_ASSERT(f->state == IN_HEAD && f->mark);
    const size_t spaces = tool_heads_spaces(&f->held, 0);
    const tool_spec *tool = NULL;
    size_t at = 0;
    tool_match m = match_forms(f, spaces, &at, &tool);
    m = within_limit(f, m, spaces, at);
    if (m == TOOL_PERHAPS) {
        *goes_on = false;
        return 0;
    }
    if (m == TOOL_YES) return begin_call(f, at, tool);
    f->state = IN_TEXT;
    return finder_release(f, spaces + strlen(f->mark));
}

/* One byte of the arguments; returns whether it is their last. */
static bool read_byte(tool_finder *f, char c) {
    BASE_ASSERT(f->depth >= 0);
    if (f->escaped) f->escaped = false;
    else if (f->in_string) {
        f->escaped = c == '\\';
        f->in_string = c != '"';
    } else if (c == '"') f->in_string = true;
    else if (c == '{' || c == '[') f->depth++;
    else if (c == '}' || c == ']') return --f->depth == 0;
    return false;
}

static int tool_finder_read_arguments(tool_finder *f, bool *goes_on) {
    BASE_ASSERT(f->state == IN_ARGUMENTS);
    size_t n = 0;
    bool over = false;
    while (n < f->held.len && !over) over = read_byte(f, f->held.data[n++]);
    if (over) f->state = IN_TAIL;
    else *goes_on = false;
    int rc = finder_arguments(f, f->held.data, n);
    if (!rc) finder_drop(f, n);
    return rc;
}

static int read_literals(tool_finder *f, bool *goes_on) {
    BASE_ASSERT(f->state == IN_LITERALS && f->form);
    base_buffer json = BASE_BUFFER(TOOL_CALLS_BYTES);
    tool_literals_verdict verdict;
    size_t n = 0;
    int rc = tool_literals_read(&f->literals, f->held.data, f->held.len, &n, &json, &verdict);
    if (!rc) rc = finder_arguments(f, json.data, json.len);
    base_buffer_free(&json);
    if (rc) return rc;
    finder_drop(f, n);
    if (verdict == TOOL_LITERALS_GO_ON) *goes_on = false;
    else f->state = verdict == TOOL_LITERALS_WHOLE ? IN_TAIL : IN_TEXT;
    return verdict == TOOL_LITERALS_BROKEN ? finder_end(f, false) : 0;
}

/* Harmony's form has neither tail nor another call: a mark ends the message. */
static int read_tail(tool_finder *f, bool *goes_on) {
    BASE_ASSERT(f->state == IN_TAIL);
    size_t at = 0;
    tool_match m = !f->form ? TOOL_YES : f->held.len > 0 ? tool_heads_tail(f->form, &f->held, &at)
                                                         : TOOL_PERHAPS;
    m = within_limit(f, m, 0, at);
    if (m == TOOL_PERHAPS) {
        *goes_on = false;
        return 0;
    }
    if (m == TOOL_YES) finder_drop(f, at);
    f->state = m == TOOL_YES && f->form ? IN_NEXT : IN_TEXT;
    return finder_end(f, true);
}

/* After a call: the end of all calls, or the next one. */
static int read_next(tool_finder *f, bool *goes_on) {
    BASE_ASSERT(f->state == IN_NEXT && f->form);
    const tool_spec *tool = NULL;
    size_t end = 0, at = 0;
    tool_match closes = f->form->close[0] ? tool_heads_expect(&f->held, &end, f->form->close) : TOOL_NO;
    closes = within_limit(f, closes, 0, end);
    tool_match m = f->form->next ? tool_heads_expect(&f->held, &at, f->form->next) : TOOL_NO;
    if (m == TOOL_YES) m = tool_heads_call(f->form, f->answer, &f->held, &at, &tool);
    m = within_limit(f, m, 0, at);
    if (closes == TOOL_YES) finder_drop(f, end);
    else if (m == TOOL_YES) return begin_call(f, at, tool);
    else if (closes == TOOL_PERHAPS || m == TOOL_PERHAPS) {
        *goes_on = false;
        return 0;
    }
    f->state = IN_TEXT;
    return 0;
}

/* ---- the end of JSON ---- */

enum {
    SCAN_BEGIN, /* white space */
    SCAN_JSON,  /* it may be JSON: an object, an array or a string */
    SCAN_WHOLE, /* it is, if its end follows */
    SCAN_TEXT,  /* the first end is its end */
};

static void value_begin(tool_finder *f) {
    f->depth = 0;
    f->in_string = f->escaped = false;
    f->n_scanned = 0;
    f->scan = SCAN_BEGIN;
}

/* One character of what may be JSON: false: it is not. */
static bool scan_character(tool_finder *f, char c) {
    if (f->in_string) {
        if ((unsigned char)c < 0x20) return false;
        if (f->escaped) f->escaped = false;
        else if (c == '\\') f->escaped = true;
        else f->in_string = c != '"';
        return true;
    }
    if (c == '"') return f->in_string = true;
    if (c == '{' || c == '[') return tool_brackets_push(f->brackets, &f->depth, c == '{');
    if (c == '}' || c == ']') return tool_brackets_pop(f->brackets, &f->depth, c == '}');
    return tool_heads_is_space(c) || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c != '\0' && strchr(":,.+-E", c));
}

static void scan_held(tool_finder *f) {
    BASE_ASSERT(f->n_scanned <= f->held.len);
    const base_buffer *b = &f->held;
    for (; f->scan < SCAN_WHOLE && f->n_scanned < b->len; f->n_scanned++) {
        const char c = b->data[f->n_scanned];
        if (f->scan == SCAN_BEGIN && tool_heads_is_space(c)) continue;
        if (f->scan == SCAN_BEGIN) f->scan = c == '{' || c == '[' || c == '"' ? SCAN_JSON : SCAN_TEXT;
        if (f->scan == SCAN_JSON && !scan_character(f, c)) f->scan = SCAN_TEXT;
        if (f->scan == SCAN_JSON && f->depth == 0 && !f->in_string) f->scan = SCAN_WHOLE;
    }
}

static bool is_json(const char *text, size_t n) {
    json_t *value = base_json_read(text, n, BASE_JSON_AS_WRITTEN);
    json_decref(value);
    return value;
}

/* The first end, however the value was written. */
static bool first_end(const tool_finder *f, const char *end, size_t *n) {
    const size_t length = strlen(end);
    const base_buffer *b = &f->held;
    for (*n = 0; *n + length <= b->len; (*n)++)
        if (b->data[*n] == end[0] && memcmp(b->data + *n, end, length) == 0) return true;
    return false;
}

static bool value_end(tool_finder *f, size_t *n, size_t *n_end) {
    const char *end = f->form->value_end;
    scan_held(f);
    if (f->scan == SCAN_WHOLE) {
        size_t at = f->n_scanned;
        const tool_match m = tool_heads_expect(&f->held, &at, end);
        if (m == TOOL_PERHAPS) return false;
        if (m == TOOL_YES && is_json(f->held.data, f->n_scanned)) {
            *n = f->n_scanned;
            *n_end = at - *n;
            return true;
        }
        f->scan = SCAN_TEXT;
    }
    *n_end = strlen(end);
    return f->scan == SCAN_TEXT && first_end(f, end, n);
}

/* ---- as JSON ---- */

static int value_escaped(tool_finder *f, const char *text, size_t n) {
    base_buffer escaped = BASE_BUFFER(TOOL_CALLS_BYTES);
    int rc = tool_literals_escape(&escaped, text, n);
    if (!rc) rc = finder_arguments(f, escaped.data, escaped.len);
    base_buffer_free(&escaped);
    return rc;
}

static int value_string(tool_finder *f, const char *text, size_t n) {
    int rc = finder_arguments(f, "\"", 1);
    if (!rc) rc = value_escaped(f, text, n);
    return rc ? rc : finder_arguments(f, "\"", 1);
}

static int value_any(tool_finder *f, const char *text, size_t n) {
    static const char *const python[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    const char *own = text;
    size_t n_own = n;
    while (n_own > 0 && tool_heads_is_space(*own)) own++, n_own--;
    while (n_own > 0 && tool_heads_is_space(own[n_own - 1])) n_own--;
    for (size_t i = 0; i < BASE_ARRAY_LEN(python); i++)
        if (strlen(python[i][0]) == n_own && memcmp(python[i][0], own, n_own) == 0)
            return finder_arguments(f, python[i][1], strlen(python[i][1]));
    return is_json(own, n_own) ? finder_arguments(f, own, n_own) : value_string(f, text, n);
}

/* ---- arguments as text ---- */

static int read_key(tool_finder *f, bool *goes_on) {
    BASE_ASSERT(f->state == IN_KEY && f->form);
    const char *name = NULL;
    size_t n_name = 0, end = 0, at = 0;
    tool_value value = TOOL_VALUE_BY_SCHEMA;
    tool_match ends = tool_heads_expect(&f->held, &end, f->form->end),
               m = tool_heads_key(f->form, &f->held, &at, &name, &n_name, &value);
    ends = within_limit(f, ends, 0, end);
    m = within_limit(f, m, 0, at);
    int rc = 0;
    if (ends != TOOL_YES && m != TOOL_YES && (ends == TOOL_PERHAPS || m == TOOL_PERHAPS)) {
        *goes_on = false;
        return 0;
    }
    if (ends == TOOL_YES) {
        f->state = IN_NEXT;
        finder_drop(f, end);
        rc = finder_arguments(f, "}", 1);
        return rc ? rc : finder_end(f, true);
    }
    if (m != TOOL_YES) {
        f->state = IN_TEXT;
        return finder_end(f, false);
    }
    f->state = IN_VALUE;
    f->is_text_value = value == TOOL_VALUE_BY_SCHEMA
                           ? tool_heads_is_text(f->form, finder_last(f)->tool, name, n_name)
                           : value == TOOL_VALUE_TEXT;
    value_begin(f);
    rc = f->n_values++ > 0 ? finder_arguments(f, ", ", 2) : 0;
    if (!rc) rc = value_string(f, name, n_name);
    if (!rc) rc = finder_arguments(f, f->is_text_value ? ": \"" : ": ", f->is_text_value ? 3 : 2);
    if (!rc) finder_drop(f, at);
    f->skips_line = f->form->has_lines;
    return rc;
}

/* Where the text of a value ends; without its end, how much of it is certain. A line end before the end belongs to
   it. */
static bool find_text_end(const tool_finder *f, size_t *n) {
    const char *end = f->form->value_end;
    const size_t length = strlen(end);
    const base_buffer *b = &f->held;
    for (*n = 0; *n < b->len; (*n)++) {
        const size_t there = BASE_MIN(length, b->len - *n);
        if (memcmp(b->data + *n, end, there) != 0) continue;
        if (there == length) return true;
        break;
    }
    if (*n > 0 && b->data[*n - 1] == '\n') (*n)--;
    return false;
}

static int read_value(tool_finder *f, bool *goes_on) {
    BASE_ASSERT(f->state == IN_VALUE && f->form);
    size_t n = 0;
    int rc = 0;
    if (f->skips_line && f->held.len > 0) {
        if (f->held.data[0] == '\n') finder_drop(f, 1);
        f->skips_line = false;
    }
    size_t n_end = strlen(f->form->value_end);
    const bool over = f->is_text_value ? find_text_end(f, &n) : value_end(f, &n, &n_end);
    const size_t end = over ? n + n_end : n;
    if (over && f->form->has_lines && n > 0 && f->held.data[n - 1] == '\n') n--;
    if (!over) *goes_on = false;
    if (!f->is_text_value) {
        if (!over) return 0; /* it is read when it is whole */
        rc = value_any(f, f->held.data, n);
    } else {
        rc = value_escaped(f, f->held.data, n);
        if (!rc && over) rc = finder_arguments(f, "\"", 1);
    }
    if (rc) return rc;
    finder_drop(f, end);
    if (over) f->state = IN_KEY;
    return 0;
}

/* ---- all of it ---- */

static int read_on(tool_finder *f, bool goes_on) {
    static int (*const states[])(tool_finder * f, bool *goes_on) = {tool_finder_read_text,
                                                                    read_reasoning,
                                                                    read_header,
                                                                    read_head,
                                                                    tool_finder_read_arguments,
                                                                    read_literals,
                                                                    read_key,
                                                                    read_value,
                                                                    read_tail,
                                                                    read_next};
    int rc = 0;
    _Static_assert(BASE_ARRAY_LEN(states) == IN_NEXT + 1, "one for each state");
    while (goes_on && !rc) rc = states[f->state](f, &goes_on);
    return rc;
}

int tool_finder_feed(tool_finder *f, const char *text, size_t n) {
    int rc = base_buffer_append(&f->held, text, n);
    return rc ? rc : read_on(f, n > 0);
}

/* What was held back in text is white space and the beginning of a mark. */
rp_stop_verdict tool_finder_stop(const tool_finder *f, const char *stop, size_t after) {
    const base_buffer *b = &f->held;
    const tool_item *last = f->n_items > 0 ? finder_last(f) : NULL;
    const bool is_text = last && !last->tool && !last->is_reasoning;
    const char *text = is_text ? last->text.data : NULL;
    const size_t n_text = is_text ? last->text.len : 0, n_stop = strlen(stop), n = n_text + b->len,
                 mark = n_text + tool_heads_spaces(b, 0);
    if (f->state == IN_REASONING || (f->state >= IN_ARGUMENTS && f->state <= IN_VALUE)) return RP_STOP_IS_TEXT;
    if (f->state != IN_TEXT) return RP_STOP_UNDECIDED;
    if (n < after + n_stop) return RP_STOP_IS_TEXT;
    const size_t end = n - after, begin = end - n_stop;
    for (size_t i = begin; i < end; i++)
        if ((i < n_text ? text[i] : b->data[i - n_text]) != stop[i - begin]) return RP_STOP_IS_TEXT;
    return end > mark || (end > n_text && !f->has_text) ? RP_STOP_UNDECIDED : RP_STOP_COUNTS;
}

bool tool_finder_is_open(const tool_finder *f) {
    const tool_form *form = f->form;
    switch (f->state) {
    case IN_TEXT:
    case IN_HEADER:
    case IN_HEAD: return false; /* it is text */
    case IN_NEXT: return form->close[0] != '\0';
    case IN_TAIL: return form && (form->body != TOOL_BODY_NAMED || form->after_arguments[0] || form->end[0]);
    default: return true;
    }
}

/* White space after the last call or after reasoning belongs to it; so does an incomplete closing text. */
int tool_finder_finish(tool_finder *f) {
    const base_buffer *b = &f->held;
    for (size_t left = 0; f->state == IN_VALUE && !f->is_text_value && left != b->len;) {
        left = b->len;
        f->scan = SCAN_TEXT;
        int rc = read_on(f, true);
        if (rc) return rc;
    }
    const bool is_space = tool_heads_spaces(b, 0) == b->len, after_call = f->n_items > 0 && finder_last(f)->tool;
    const int state = f->state;
    f->state = IN_TEXT;
    if (f->n_reasoned > 0)
        f->reasoned[f->n_reasoned - 1].end = BASE_MIN(f->reasoned[f->n_reasoned - 1].end, f->n_read + b->len);
    if (state >= IN_ARGUMENTS && state <= IN_VALUE) return finder_end(f, false);
    if (state == IN_TAIL) return finder_end(f, true);
    if (b->len == 0 || (is_space && (after_call || f->skips_space))) return 0;
    if (state != IN_REASONING) return finder_release(f, b->len);
    return finder_reasoning(f, b->data, f->reasoning == TOOL_REASONING_AS_TEXT ? b->len : before_spaces(b, b->len));
}

/* ---- results ---- */

int tool_finder_text(const tool_finder *f, bool reasoning, base_buffer *out) {
    int rc = 0;
    for (size_t i = 0; i < f->n_items && !rc; i++)
        if (!f->items[i].tool && f->items[i].is_reasoning == reasoning)
            rc = base_buffer_append(out, f->items[i].text.data, f->items[i].text.len);
    return rc;
}

json_t *tool_item_arguments(const tool_item *item) {
    return item->is_whole ? base_json_read(item->text.data, item->text.len, BASE_JSON_AS_WRITTEN) : NULL;
}

json_t *tool_item_source(const tool_item *item) {
    BASE_ASSERT(item->tool);
    base_buffer text = BASE_BUFFER(TOOL_CALLS_BYTES + TOOL_CALLS_HEAD_BYTES);
    int rc = base_buffer_printf(&text, "<tool_call>\n{\"name\": \"%s\", \"arguments\": ", item->tool->name);
    if (!rc) rc = base_buffer_append(&text, item->text.data, item->text.len);
    json_t *value = rc ? NULL : base_json_string(text.data, text.len);
    base_buffer_free(&text);
    return value;
}

void tool_call_id(char out[TOOL_CALL_ID_BYTES], const char *prefix, const char *request, int32_t choice,
                  int32_t number) {
    snprintf(out, TOOL_CALL_ID_BYTES, "%.16s%.40s_%d_%d", prefix, request, (int)choice, (int)number);
}
