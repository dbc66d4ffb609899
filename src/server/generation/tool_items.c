/* SPDX-License-Identifier: Apache-2.0 */
/* tool_items.c: see tool_items.h. Owns nothing. */
#include "server/generation/tool_items.h"

#include <string.h>

#include "base/check.h"
#include "base/memory.h"

const tool_item *tool_items_last(const tool_finder *f) { return &f->items[f->n_items - 1]; }

static int report_item(tool_finder *f, tool_event event, const char *bytes, size_t n) {
    return f->on_event ? f->on_event(f->user, event, tool_items_last(f), bytes, n) : 0;
}

static int add_item(tool_finder *f, tool_item item) {
    int rc = base_grow((void **)&f->items, &f->cap_items, f->n_items + 1, TOOL_CALLS_ITEMS, sizeof(*f->items));
    if (rc) return rc;
    item.text = BASE_BUFFER(TOOL_CALLS_BYTES);
    f->items[f->n_items++] = item;
    return 0;
}

static int append_item(tool_finder *f, tool_event event, const char *bytes, size_t n) {
    tool_item *item = &f->items[f->n_items - 1];
    int rc = base_buffer_append(&item->text, bytes, n);
    item->end = f->n_read + n;
    return rc ? rc : report_item(f, event, bytes, n);
}

static int append_text(tool_finder *f, bool is_reasoning, const char *bytes, size_t n) {
    int rc = 0;
    if (f->n_items == 0 || tool_items_last(f)->tool || tool_items_last(f)->is_reasoning != is_reasoning)
        rc = add_item(f, (tool_item){.is_reasoning = is_reasoning, .begin = f->n_read});
    return rc ? rc : append_item(f, is_reasoning ? TOOL_REASONING : TOOL_TEXT, bytes, n);
}

/* The bytes are the first of those held back, or of all of them. */
int tool_items_text(tool_finder *f, const char *bytes, size_t n) {
    if (n == 0) return 0;
    f->has_text = true;
    return append_text(f, false, bytes, n);
}

int tool_items_reasoning(tool_finder *f, const char *bytes, size_t n) {
    if (n == 0 || f->reasoning == TOOL_REASONING_DROPPED) return 0;
    return append_text(f, f->reasoning == TOOL_REASONING_ITEMS, bytes, n);
}

int tool_items_begin(tool_finder *f, const server_tool *tool) {
    int rc = add_item(f, (tool_item){.tool = tool, .number = f->n_calls});
    if (rc) return rc;
    f->n_calls++;
    return report_item(f, TOOL_BEGIN, "", 0);
}

int tool_items_arguments(tool_finder *f, const char *bytes, size_t n) { return n > 0 ? append_item(f, TOOL_ARGUMENTS, bytes, n) : 0; }

int tool_items_end(tool_finder *f, bool is_whole) {
    f->items[f->n_items - 1].is_whole = is_whole;
    return report_item(f, TOOL_END, "", 0);
}

void tool_items_drop(tool_finder *f, size_t n) {
    BASE_DCHECK(n <= f->held.len);
    if (n == 0) return;
    memmove(f->held.data, f->held.data + n, f->held.len - n);
    base_buffer_truncate(&f->held, f->held.len - n);
    f->n_read += n;
}

int tool_items_release(tool_finder *f, size_t n) {
    int rc = tool_items_text(f, f->held.data, n);
    if (!rc) tool_items_drop(f, n);
    return rc;
}

int tool_items_begin_reasoning(tool_finder *f, size_t at) {
    int rc = base_grow((void **)&f->reasoned, &f->cap_reasoned, f->n_reasoned + 1, TOOL_CALLS_ITEMS, sizeof(*f->reasoned));
    if (!rc) f->reasoned[f->n_reasoned++] = (tool_range){f->n_read + at, SIZE_MAX};
    return rc;
}

void tool_items_end_reasoning(tool_finder *f, size_t at) { f->reasoned[f->n_reasoned - 1].end = f->n_read + at; }
