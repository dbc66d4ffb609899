/* SPDX-License-Identifier: Apache-2.0 */
/* tools.c: see tools.h. Owns nothing. */
#include "server/prompt/tools.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/memory.h"
#include "server/prompt/guided.h"
#include "structured/tool_grammar.h"
#include "structured/tool_text.h"

#define MAX_TEXT_BYTES SERVER_MAX_JOINED_BYTES

/* ---- text ---- */

/* An error of a buffer. */
static void tools_check_text(const base_buffer *b, int rc, server_problem *p) {
    if (rc == RP_ERR_LIMIT)
        server_fail(p, SERVER_INVALID, "tools", "tools and messages have more than %zu bytes: give less", b->limit);
    else if (rc) server_fail_memory(p);
}

static void tools_put(base_buffer *b, const char *text, server_problem *p) {
    if (!p->kind) tools_check_text(b, base_buffer_append_str(b, text), p);
}

/* With modular reuse each is a document of the system message, which is the first. */
static void put_definitions(generation *gen, base_buffer *b, server_problem *p) {
    tools_put(b, tool_text_before, p);
    for (size_t i = 0; i < gen->form.n_tools && !p->kind; i++) {
        server_part part = {.kind = SERVER_PART_DOCUMENT, .begin = b->len};
        tools_check_text(b, tool_text_definition(b, &gen->form.tools[i]), p);
        part.end = b->len;
        if (gen->modular) generation_add_part(gen, &part, p);
        tools_put(b, "\n", p);
    }
    tools_put(b, tool_text_after, p);
}

/* Where a message's text went: into which message, and where in it. */
typedef struct message_move {
    size_t message, offset;
} message_move;

/* The messages that the model gets, as they are made. */
typedef struct message_list {
    rp_message *items;
    message_move *moves; /* [n_messages] of the ask */
    size_t n, n_marked[SERVER_N_MARKS];
} message_list;

/* ---- messages ---- */

/* Adds a message of what the buffer holds, and empties it. */
static void add_built(generation *gen, message_list *l, rp_role role, base_buffer *b, server_problem *p) {
    BASE_ASSERT(l->n <= gen->n_messages); /* there is place for one more */
    size_t n = b->len;
    const char *text = generation_keep(gen, b->data ? b->data : "", p);
    if (text) l->items[l->n++] = (rp_message){role, text, n};
    base_buffer_clear(b);
}

/* Text that was moved to the message's end (agent_noise.h) stays after the stable text, which includes the
   definitions. */
static void add_system(generation *gen, message_list *l, base_buffer *b, server_problem *p) {
    const char *moved = NULL;
    BASE_ASSERT(b->len == 0 && l->n == 0);
    if (gen->n_messages > 0 && gen->messages[0].role == RP_ROLE_SYSTEM && gen->messages[0].n > 0) {
        tools_put(b, gen->messages[0].text, p);
        if (gen->stable_bytes > 0 && !p->kind) {
            BASE_ASSERT(gen->stable_bytes <= gen->messages[0].n && gen->stable_bytes <= b->len);
            moved = gen->messages[0].text + gen->stable_bytes;
            base_buffer_truncate(b, gen->stable_bytes);
        }
        tools_put(b, "\n\n", p);
    }
    put_definitions(gen, b, p);
    if (moved) {
        gen->stable_bytes = b->len;
        tools_put(b, moved, p);
    }
    add_built(gen, l, RP_ROLE_SYSTEM, b, p);
    for (int k = 0; k < SERVER_N_MARKS; k++)
        if (gen->marked[k].has_tools) l->n_marked[k] = l->n;
}

/* Index of the call with that id, for the order of results; results without an id keep their order. */
static size_t order_of(const generation *gen, const chat_result *r, size_t otherwise) {
    for (size_t i = gen->n_calls; i-- > 0 && r->id;)
        if (gen->calls[i].id && strcmp(gen->calls[i].id, r->id) == 0) return i;
    return otherwise;
}

typedef struct ordered_result {
    const chat_result *result;
    size_t order, at;
} ordered_result;

static int tools_compare(const void *a, const void *b) {
    const ordered_result *x = a, *y = b;
    if (x->order != y->order) return x->order < y->order ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Consecutive results, in the order of their calls: the model sees no ids. */
static void add_results(generation *gen, message_list *l, size_t first, size_t n, bool as_user, base_buffer *b,
                        server_problem *p) {
    BASE_ASSERT(n > 0 && first + n <= gen->n_results);
    ordered_result *list = p->kind ? NULL : base_calloc(n, sizeof(*list));
    if (!list) {
        server_fail_memory(p);
        return;
    }
    for (size_t i = 0; i < n; i++)
        list[i] = (ordered_result){&gen->results[first + i], order_of(gen, &gen->results[first + i], i), i};
    qsort(list, n, sizeof(*list), tools_compare);
    for (size_t i = 0; i < n && !p->kind; i++) {
        const chat_result *result = list[i].result;
        BASE_ASSERT(result->message < gen->n_messages);
        size_t at = 0;
        tools_check_text(b, tool_text_result(b, gen->messages[result->message].text, result->is_error, &at), p);
        l->moves[result->message] = (message_move){l->n, at};
        if (!as_user) add_built(gen, l, RP_ROLE_TOOL, b, p);
    }
    if (as_user) add_built(gen, l, RP_ROLE_USER, b, p);
    base_free(list);
}

static void tools_add_messages(generation *gen, message_list *l, bool as_user, base_buffer *b, server_problem *p) {
    size_t call = 0, result = 0, i = 0;
    if (answer_form_may_call(&gen->form)) {
        add_system(gen, l, b, p);
        i = gen->n_messages > 0 && gen->messages[0].role == RP_ROLE_SYSTEM;
        for (int k = 0; k < SERVER_N_MARKS && i > 0; k++)
            if (gen->marked[k].n_messages > 0) l->n_marked[k] = l->n;
    }
    while (i < gen->n_messages && !p->kind) {
        l->moves[i] = (message_move){l->n, 0};
        BASE_ASSERT(l->n <= i + 1); /* each message, or run of results, becomes one at most; and one is the system's */
        /* Results of the messages from this one on, without a gap. */
        size_t n_results = 0;
        while (result + n_results < gen->n_results && gen->results[result + n_results].message == i + n_results)
            n_results++;
        bool has_calls = call < gen->n_calls && gen->calls[call].message == i;
        if (n_results > 0) add_results(gen, l, result, n_results, as_user, b, p);
        else if (!has_calls) l->items[l->n++] = gen->messages[i];
        else {
            tools_put(b, gen->messages[i].text, p);
            for (; call < gen->n_calls && gen->calls[call].message == i && !p->kind; call++)
                tools_check_text(b, tool_text_call(b, gen->calls[call].name, gen->calls[call].arguments), p);
            add_built(gen, l, RP_ROLE_ASSISTANT, b, p);
        }
        for (int k = 0; k < SERVER_N_MARKS; k++)
            if (i < gen->marked[k].n_messages) l->n_marked[k] = l->n;
        result += n_results;
        i += BASE_MAX(n_results, 1);
    }
}

static int by_place(const void *a, const void *b) {
    const server_part *x = a, *y = b;
    if (x->message != y->message) return x->message < y->message ? -1 : 1;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Parts of contents move with their texts; those of definitions, from n on, stay at their place. */
static void move_parts(generation *gen, const message_list *l, size_t n) {
    for (size_t i = 0; i < n; i++) {
        server_part *part = &gen->parts[i];
        BASE_ASSERT(part->message < gen->n_messages);
        message_move move = l->moves[part->message];
        part->message = move.message;
        part->begin += move.offset;
        part->end += move.offset;
    }
    for (size_t i = 0; i < gen->n_reasonings; i++)
        gen->reasonings[i].message = l->moves[gen->reasonings[i].message].message;
    for (size_t i = 0; i < gen->n_parts; i++) gen->parts[i].order = i;
    if (gen->n_parts > 0) qsort(gen->parts, gen->n_parts, sizeof(*gen->parts), by_place);
}

static void rewrite_messages(generation *gen, const char *chat_format, server_problem *p) {
    base_buffer b = BASE_BUFFER(MAX_TEXT_BYTES);
    size_t n_parts = gen->n_parts, n = gen->n_messages;
    message_list l = {.items = base_calloc(n + 1, sizeof(*l.items)), .moves = base_calloc(n + 1, sizeof(*l.moves))};
    if (l.items && l.moves) tools_add_messages(gen, &l, tool_text_results_are_users(chat_format), &b, p);
    else server_fail_memory(p);
    if (!p->kind) move_parts(gen, &l, n_parts);
    base_buffer_free(&b);
    base_free(l.moves);
    if (p->kind) {
        base_free(l.items);
        return;
    }
    BASE_ASSERT(l.n <= n + 1);
    base_free(gen->messages);
    gen->messages = l.items;
    gen->cap_messages = gen->n_messages + 1;
    gen->n_messages = l.n;
    for (int k = 0; k < SERVER_N_MARKS; k++) gen->marked[k].n_messages = l.n_marked[k];
    gen->n_calls = gen->n_results = 0; /* they are text now */
}

static bool has_tool(const generation *gen) {
    for (size_t i = 0; i < gen->form.n_tools; i++)
        if (!gen->form.tools[i].barred) return true;
    return false;
}

int tools_check(generation *gen, server_problem *p) {
    if (p->kind) return (int)p->kind;
    guided_settle(gen, p);
    if (p->kind) return (int)p->kind;
    if (gen->form.tool_choice == TOOL_CHOICE_REQUIRED && !has_tool(gen))
        return server_fail(p, SERVER_INVALID, "tool_choice",
                           "a tool call is required, but there are no tools: give 'tools'");
    if (answer_form_may_call(&gen->form) && !has_tool(gen)) gen->form.tool_choice = TOOL_CHOICE_NONE;
    if ((answer_form_may_call(&gen->form) || gen->form.wants_json || answer_form_is_text(&gen->form)) && gen->grammar)
        return server_fail(p, SERVER_INVALID, "grammar",
                           "'grammar' cannot be combined with tools or an answer format: leave it out");
    return SERVER_FINE;
}

int tools_write(generation *gen, const char *chat_format, server_problem *p) {
    if (!p->kind && (answer_form_may_call(&gen->form) || gen->n_calls > 0 || gen->n_results > 0))
        rewrite_messages(gen, chat_format, p);
    return (int)p->kind;
}

bool tools_loosen(generation *gen, server_problem *p) {
    bool any = false;
    for (size_t i = 0; i < gen->form.n_tools; i++)
        any |= gen->form.tools[i].schema && !gen->form.tools[i].strict && !gen->form.tools[i].barred;
    if (p->kind || gen->form.loose_tools || !any || !gen->grammar || !answer_form_may_call(&gen->form)) return false;
    gen->form.loose_tools = true;
    generation_ignore(gen, p, "the schemas of tools that are not strict (their grammar is too large)");
    return tools_constrain(gen, p) == SERVER_FINE;
}

int tools_constrain(generation *gen, server_problem *p) {
    tool_grammar g;
    rp_error err = {0};
    if (p->kind || tool_grammar_make(&gen->form, &g, &err)) return server_fail_structured(p, &err);
    if (!g.text) return SERVER_FINE;
    gen->grammar = generation_own(gen, g.text, p);
    gen->grammar_trigger = g.trigger;
    g.text = NULL;
    for (size_t i = 0; i < json_array_size(g.dropped); i++)
        generation_ignore(gen, p, "%s", json_string_value(json_array_get(g.dropped, i)));
    tool_grammar_free(&g);
    return (int)p->kind;
}
