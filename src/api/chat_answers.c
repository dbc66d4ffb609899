/* SPDX-License-Identifier: Apache-2.0 */
/* chat_answers.c: reprise_chat.h: the parts of an answer, as it arrives or when it is complete (tool_finder.h). */
#include <stdio.h>
#include <string.h>

#include "api/chat.h"
#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "structured/tool_finder.h"

#define FED_BYTES ((size_t)4096) /* at a time: what the finder holds back is moved whenever it reads on */
#define CALL_ID_BYTES 32

struct rp_chat_reader {
    rp_chat *chat; /* a reference */
    tool_finder finder;
    rp_on_chat_event on_event;
    void *user;
    bool over;     /* it has failed, or ended */
    bool in_event; /* on_event is running: the finder is in the middle of a change */
};

/* The id of a call: calls of the conversation are counted from 0. */
static void call_id(const rp_chat *c, const tool_item *item, char id[CALL_ID_BYTES]) {
    BASE_ASSERT(item->tool && item->number >= 0);
    snprintf(id, CALL_ID_BYTES, "call_%zu", c->n_calls + (size_t)item->number);
}

static int reader_on_event(void *user, tool_event event, const tool_item *item, const char *bytes, size_t n) {
    static const rp_chat_event events[] = {
        [TOOL_TEXT] = RP_CHAT_TEXT,
        [TOOL_REASONING] = RP_CHAT_REASONING,
        [TOOL_BEGIN] = RP_CHAT_CALL,
        [TOOL_ARGUMENTS] = RP_CHAT_ARGUMENTS,
        [TOOL_END] = RP_CHAT_CALL_END,
    };
    BASE_ASSERT((size_t)event < BASE_ARRAY_LEN(events));
    rp_chat_reader *r = user;
    char id[CALL_ID_BYTES] = "";
    rp_tool_call call = {0};
    if (item->tool) {
        call_id(r->chat, item, id);
        call = (rp_tool_call){.id = id,
                              .name = item->tool->name,
                              .arguments = item->text.data ? item->text.data : "",
                              .is_whole = item->is_whole};
    }
    r->in_event = true;
    const bool goes_on = r->on_event(r->user, events[event], item->tool ? &call : NULL, bytes, n);
    r->in_event = false;
    return goes_on ? 0 : RP_ERR_CANCELLED;
}

/* May the reader be used now? `what` names the function. */
static int reader_check(const rp_chat_reader *r, const char *what, rp_error *err) {
    if (r->in_event) return base_fail(err, RP_ERR_INVALID, "%s: the reader is in use: it called on_event", what);
    return r->over ? base_fail(err, RP_ERR_INVALID, "%s: the answer has ended", what) : RP_OK;
}

static int reader_fail(rp_chat_reader *r, int rc, rp_error *err) {
    BASE_ASSERT(rc == RP_ERR_CANCELLED || rc == RP_ERR_MEMORY || rc == RP_ERR_LIMIT);
    r->over = true;
    if (rc == RP_ERR_CANCELLED)
        return base_fail(err, RP_ERR_CANCELLED, "the reader of an answer was stopped by its callback");
    return base_fail(err, (rp_code)rc,
                     rc == RP_ERR_MEMORY ? "out of memory for the parts of an answer"
                                         : "an answer has too many parts or bytes");
}

static void reader_init(rp_chat_reader *r, const rp_chat *chat, rp_on_chat_event on_event, void *user) {
    *r = (rp_chat_reader){.chat = chat_ref(chat), .on_event = on_event, .user = user};
    tool_finder_init(&r->finder, &r->chat->form, TOOL_REASONING_ITEMS, on_event ? reader_on_event : NULL, r);
}

static void reader_close(rp_chat_reader *r) {
    tool_finder_free(&r->finder);
    rp_chat_free(r->chat);
}

int rp_chat_reader_new(rp_chat_reader **out, const rp_chat *chat, rp_on_chat_event on_event, void *user,
                       rp_error *err) {
    if (out) *out = NULL;
    if (!out || !chat) return base_fail(err, RP_ERR_INVALID, "rp_chat_reader_new: out and chat are needed");
    *out = base_alloc(sizeof(**out));
    if (!*out) return base_fail_memory(err, sizeof(**out), "a reader of answers");
    reader_init(*out, chat, on_event, user);
    return RP_OK;
}

int rp_chat_reader_feed(rp_chat_reader *r, const char *text, size_t n, rp_error *err) {
    if (!r || (!text && n > 0))
        return base_fail(err, RP_ERR_INVALID, "rp_chat_reader_feed: reader and text are needed");
    int rc = reader_check(r, "rp_chat_reader_feed", err);
    if (rc) return rc;
    for (size_t at = 0; at < n && !rc; at += FED_BYTES)
        rc = tool_finder_feed(&r->finder, text + at, BASE_MIN(n - at, FED_BYTES));
    return rc ? reader_fail(r, rc, err) : RP_OK;
}

/* ---- complete answers ---- */

static char *taken(base_buffer *b, size_t *n) {
    *n = b->len;
    return b->data ? base_buffer_take(b) : base_strdup("");
}

static int fill_answer(const rp_chat *c, const tool_finder *f, rp_chat_answer *a) {
    base_buffer text = BASE_BUFFER(TOOL_CALLS_BYTES), reasoning = BASE_BUFFER(TOOL_CALLS_BYTES);
    int rc = tool_finder_text(f, false, &text);
    if (!rc) rc = tool_finder_text(f, true, &reasoning);
    if (!rc && (!(a->text = taken(&text, &a->n_text)) || !(a->reasoning = taken(&reasoning, &a->n_reasoning))))
        rc = RP_ERR_MEMORY;
    base_buffer_free(&text);
    base_buffer_free(&reasoning);
    if (!rc && !(a->calls = base_calloc((size_t)BASE_MAX(f->n_calls, 1), sizeof(*a->calls)))) rc = RP_ERR_MEMORY;
    for (size_t i = 0; i < f->n_items && !rc; i++) {
        const tool_item *item = &f->items[i];
        char id[CALL_ID_BYTES];
        if (!item->tool) continue;
        BASE_ASSERT(a->n_calls < (size_t)f->n_calls);
        rp_tool_call *call = &a->calls[a->n_calls++];
        call_id(c, item, id);
        call->id = base_strdup(id);
        call->name = base_strdup(item->tool->name);
        call->arguments = base_strdup(item->text.data ? item->text.data : "");
        call->is_whole = item->is_whole;
        if (!call->id || !call->name || !call->arguments) rc = RP_ERR_MEMORY;
    }
    BASE_ASSERT(rc || a->n_calls == (size_t)f->n_calls);
    return rc;
}

int rp_chat_reader_end(rp_chat_reader *r, rp_chat_answer **out, rp_error *err) {
    if (out) *out = NULL;
    if (!r) return base_fail(err, RP_ERR_INVALID, "rp_chat_reader_end: a reader is needed");
    int rc = reader_check(r, "rp_chat_reader_end", err);
    if (rc) return rc;
    rc = tool_finder_finish(&r->finder);
    rp_chat_answer *a = rc || !out ? NULL : base_calloc(1, sizeof(*a));
    if (!rc && out) rc = a ? fill_answer(r->chat, &r->finder, a) : RP_ERR_MEMORY;
    if (rc) {
        rp_chat_answer_free(a);
        return reader_fail(r, rc, err);
    }
    r->over = true;
    if (!out) return RP_OK;
    a->struct_size = (uint32_t)sizeof(*a);
    *out = a;
    return RP_OK;
}

void rp_chat_reader_free(rp_chat_reader *r) {
    if (!r || r->in_event) return;
    reader_close(r);
    base_free(r);
}

int rp_chat_parse(const rp_chat *chat, const char *text, size_t n, rp_chat_answer **out, rp_error *err) {
    if (out) *out = NULL;
    if (!chat || !out || (!text && n > 0))
        return base_fail(err, RP_ERR_INVALID, "rp_chat_parse: chat, text and out are needed");
    rp_chat_reader r;
    reader_init(&r, chat, NULL, NULL);
    int rc = rp_chat_reader_feed(&r, text, n, err);
    if (!rc) rc = rp_chat_reader_end(&r, out, err);
    reader_close(&r);
    return rc;
}

void rp_chat_answer_free(rp_chat_answer *a) {
    if (!a) return;
    for (size_t i = 0; i < a->n_calls; i++) {
        base_free((void *)a->calls[i].id);
        base_free((void *)a->calls[i].name);
        base_free((void *)a->calls[i].arguments);
    }
    base_free(a->calls);
    base_free(a->text);
    base_free(a->reasoning);
    base_free(a);
}
