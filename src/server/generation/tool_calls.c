/* SPDX-License-Identifier: Apache-2.0 */
/* tool_calls.c: see tool_calls.h. */
#include "server/generation/tool_calls.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "server/generation/tools.h"

enum { IN_TEXT, IN_HEAD, IN_ARGUMENTS, IN_TAIL };

/* Does a text have a form? */
typedef enum match { NO, YES, PERHAPS /* the text is a prefix of it */ } match;

static const char open_text[] = TOOLS_CALL_OPEN;
#define OPEN_BYTES (sizeof(open_text) - 1)

void tool_finder_init(tool_finder *f, const generation *gen, tool_on_event on_event, void *user) {
    *f = (tool_finder){.gen = gen, .held = BASE_BUFFER(TOOL_CALLS_BYTES), .on_event = on_event, .user = user};
}

void tool_finder_free(tool_finder *f) {
    for (size_t i = 0; i < f->n_items; i++) base_buffer_free(&f->items[i].text);
    base_free(f->items);
    base_buffer_free(&f->held);
    *f = (tool_finder){0};
}

/* ---- output ---- */

static int tool_finder_report(tool_finder *f, tool_event event, const char *bytes, size_t n) {
    return f->on_event ? f->on_event(f->user, event, &f->items[f->n_items - 1], bytes, n) : 0;
}

static int tool_finder_add_item(tool_finder *f, const server_tool *tool) {
    int rc = base_grow((void **)&f->items, &f->cap_items, f->n_items + 1, TOOL_CALLS_ITEMS, sizeof(*f->items));
    if (rc) return rc;
    f->items[f->n_items++] = (tool_item){.tool = tool, .number = tool ? f->n_calls++ : 0, .text = BASE_BUFFER(TOOL_CALLS_BYTES)};
    return 0;
}

static int tool_finder_append(tool_finder *f, tool_event event, const char *bytes, size_t n) {
    int rc = base_buffer_append(&f->items[f->n_items - 1].text, bytes, n);
    return rc ? rc : tool_finder_report(f, event, bytes, n);
}

static int tool_finder_report_text(tool_finder *f, const char *bytes, size_t n) {
    int rc = 0;
    if (n == 0) return 0;
    if (f->n_items == 0 || f->items[f->n_items - 1].tool) rc = tool_finder_add_item(f, NULL);
    return rc ? rc : tool_finder_append(f, TOOL_TEXT, bytes, n);
}

/* Forgets the first n bytes that were held back. */
static void tool_finder_drop(tool_finder *f, size_t n) {
    memmove(f->held.data, f->held.data + n, f->held.len - n);
    base_buffer_truncate(&f->held, f->held.len - n);
}

/* Outputs them as text. */
static int tool_finder_release(tool_finder *f, size_t n) {
    int rc = tool_finder_report_text(f, f->held.data, n);
    if (!rc && n > 0) tool_finder_drop(f, n);
    return rc;
}

/* ---- forms ---- */

static bool tool_calls_is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static size_t spaces_at(const base_buffer *b, size_t at) {
    size_t n = 0;
    while (at + n < b->len && tool_calls_is_space(b->data[at + n])) n++;
    return n;
}

/* White space, then this text; moves *at after it. */
static match tool_calls_expect(const base_buffer *b, size_t *at, const char *text) {
    size_t n = strlen(text);
    *at += spaces_at(b, *at);
    size_t there = BASE_MIN(n, b->len - *at);
    if (memcmp(b->data + *at, text, there) != 0) return NO;
    if (there < n) return PERHAPS;
    *at += n;
    return YES;
}

static match expect_all(const base_buffer *b, size_t *at, const char *const *texts) {
    match m = YES;
    for (; *texts && m == YES; texts++) m = tool_calls_expect(b, at, *texts);
    return m;
}

static const server_tool *tool_calls_find_tool(const generation *gen, const char *name, size_t n) {
    for (size_t i = 0; i < gen->n_tools; i++)
        if (!gen->tools[i].barred && strlen(gen->tools[i].name) == n && memcmp(gen->tools[i].name, name, n) == 0) return &gen->tools[i];
    return NULL;
}

/* The head of a call after its opening text, up to the '{' of its arguments. */
static match match_head(const tool_finder *f, size_t *at, const server_tool **tool) {
    static const char *const before[] = {"{", "\"name\"", ":", "\"", NULL}, *const after[] = {"\"", ",", "\"arguments\"", ":", "{", NULL};
    const base_buffer *b = &f->held;
    match m = expect_all(b, at, before);
    if (m != YES) return m;
    const char *name = b->data + *at, *end = memchr(name, '"', b->len - *at);
    if (!end) return PERHAPS;
    *tool = tool_calls_find_tool(f->gen, name, (size_t)(end - name));
    *at += (size_t)(end - name);
    m = *tool ? expect_all(b, at, after) : NO;
    if (m == YES) (*at)--;
    return m;
}

/* ---- states: each reads as much as is decided; *goes_on: another may read on ---- */

/* Number of bytes at the end that may begin a call, with the white space before them. */
static size_t tool_calls_undecided(const base_buffer *b) {
    size_t n = BASE_MIN(OPEN_BYTES - 1, b->len);
    while (n > 0 && memcmp(b->data + b->len - n, open_text, n) != 0) n--;
    while (n < b->len && tool_calls_is_space(b->data[b->len - n - 1])) n++;
    return n;
}

/* Where a call's opening text begins; b->len: nowhere. */
static size_t find_open(const base_buffer *b) {
    for (size_t at = 0; at + OPEN_BYTES <= b->len; at++)
        if (memcmp(b->data + at, open_text, OPEN_BYTES) == 0) return at;
    return b->len;
}

static int tool_finder_read_text(tool_finder *f, bool *goes_on) {
    base_buffer *b = &f->held;
    size_t n = find_open(b);
    if (n == b->len) {
        *goes_on = false;
        return tool_finder_release(f, b->len - tool_calls_undecided(b));
    }
    while (n > 0 && tool_calls_is_space(b->data[n - 1])) n--;
    f->state = IN_HEAD;
    return tool_finder_release(f, n);
}

static int read_head(tool_finder *f, bool *goes_on) {
    size_t at = spaces_at(&f->held, 0) + OPEN_BYTES, open_end = at;
    const server_tool *tool = NULL;
    match m = match_head(f, &at, &tool);
    if (m == PERHAPS && f->held.len < TOOL_CALLS_HEAD_BYTES) {
        *goes_on = false;
        return 0;
    }
    f->state = m == YES ? IN_ARGUMENTS : IN_TEXT;
    if (m != YES) return tool_finder_release(f, open_end);
    tool_finder_drop(f, at);
    f->depth = 0;
    f->in_string = f->escaped = false;
    int rc = tool_finder_add_item(f, tool);
    return rc ? rc : tool_finder_report(f, TOOL_BEGIN, "", 0);
}

/* One byte of the arguments; returns whether it is their last. */
static bool read_byte(tool_finder *f, char c) {
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
    size_t n = 0;
    bool over = false;
    while (n < f->held.len && !over) over = read_byte(f, f->held.data[n++]);
    f->items[f->n_items - 1].is_whole = over;
    if (over) f->state = IN_TAIL;
    else *goes_on = false;
    int rc = n > 0 ? tool_finder_append(f, TOOL_ARGUMENTS, f->held.data, n) : 0;
    if (!rc && n > 0) tool_finder_drop(f, n);
    return rc;
}

static int read_tail(tool_finder *f, bool *goes_on) {
    static const char *const tail[] = {"}", TOOLS_CALL_CLOSE, NULL};
    size_t at = 0;
    match m = f->held.len > 0 ? expect_all(&f->held, &at, tail) : PERHAPS;
    if (m == PERHAPS && f->held.len < TOOL_CALLS_HEAD_BYTES) {
        *goes_on = false;
        return 0;
    }
    if (m == YES) tool_finder_drop(f, at);
    f->state = IN_TEXT;
    return tool_finder_report(f, TOOL_END, "", 0);
}

int tool_finder_feed(tool_finder *f, const char *text, size_t n) {
    static int (*const states[])(tool_finder * f, bool * goes_on) = {tool_finder_read_text, read_head, tool_finder_read_arguments, read_tail};
    int rc = base_buffer_append(&f->held, text, n);
    bool goes_on = n > 0;
    while (goes_on && !rc) rc = states[f->state](f, &goes_on);
    return rc;
}

/* White space after the last call belongs to it; so does an incomplete closing text. */
int tool_finder_finish(tool_finder *f) {
    base_buffer *b = &f->held;
    bool behind_call = f->n_items > 0 && f->items[f->n_items - 1].tool && spaces_at(b, 0) == b->len;
    int state = f->state;
    f->state = IN_TEXT;
    if (state == IN_ARGUMENTS || state == IN_TAIL) return tool_finder_report(f, TOOL_END, "", 0);
    return behind_call || b->len == 0 ? 0 : tool_finder_release(f, b->len);
}

/* ---- results ---- */

int tool_finder_text(const tool_finder *f, base_buffer *out) {
    int rc = 0;
    for (size_t i = 0; i < f->n_items && !rc; i++)
        if (!f->items[i].tool) rc = base_buffer_append(out, f->items[i].text.data, f->items[i].text.len);
    return rc;
}

json_t *tool_item_source(const tool_item *item) {
    base_buffer text = BASE_BUFFER(TOOL_CALLS_BYTES + TOOL_CALLS_HEAD_BYTES);
    int rc = base_buffer_printf(&text, TOOLS_CALL_OPEN "\n{\"name\": \"%s\", \"arguments\": ", item->tool->name);
    if (!rc) rc = base_buffer_append(&text, item->text.data, item->text.len);
    json_t *value = rc ? NULL : server_json_text(text.data, text.len);
    base_buffer_free(&text);
    return value;
}

void tool_call_id(char out[TOOL_CALL_ID_BYTES], const char *prefix, const char *request, int32_t choice, int32_t number) {
    snprintf(out, TOOL_CALL_ID_BYTES, "%.16s%.40s_%d_%d", prefix, request, (int)choice, (int)number);
}
