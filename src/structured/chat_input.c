/* SPDX-License-Identifier: Apache-2.0 */
/* chat_input.c: see chat_input.h. Owns nothing. */
#include "structured/chat_input.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/json_read.h"
#include "base/memory.h"
#include "structured/chat_truncation.h"
#include "structured/tool_text.h"
#include "template/template.h"

#define SHORT_ID_DIGITS 9                      /* of call ids, for Mistral's templates */
#define MAX_REASONING_BYTES ((size_t)64 << 20) /* of a message */
#define OWN_ID_BYTES 32

static const char *const role_names[RP_N_ROLES] = {"system", "user", "assistant", "tool"};

const char *rp_role_name(rp_role role) { return (unsigned)role < RP_N_ROLES ? role_names[role] : NULL; }

bool rp_role_parse(const char *name, rp_role *out) {
    for (int i = 0; name && i < RP_N_ROLES; i++) {
        if (strcmp(role_names[i], name) != 0) continue;
        *out = (rp_role)i;
        return true;
    }
    return false;
}

/* ---- messages ---- */

/* What belongs to a message, by number: calls[calls, end_calls), reasonings[reasonings, end_reasonings). */
typedef struct message_parts {
    size_t calls, end_calls, reasonings, end_reasonings;
    const chat_result *result; /* NULL: none */
    size_t answers;            /* the number of the call that it answers; SIZE_MAX: an unknown one */
} message_parts;

/* Numbers the parts of all messages, those that are left out, too. */
typedef struct part_counter {
    const chat_input *in;
    json_t *ids;                    /* id -> number of the last call with it, so far */
    size_t call, result, reasoning; /* the next ones */
} part_counter;

static const char *id_of(const chat_call *call, size_t number, char own[OWN_ID_BYTES]) {
    snprintf(own, OWN_ID_BYTES, "call_%zu", number);
    return call->id ? call->id : own;
}

/* The parts of message i, after those of the one before it. false: out of memory. */
static bool count_parts(part_counter *c, size_t i, message_parts *out) {
    const chat_input *in = c->in;
    char own[OWN_ID_BYTES];
    *out = (message_parts){.calls = c->call, .reasonings = c->reasoning, .answers = SIZE_MAX};
    BASE_ASSERT(c->call == in->n_calls || in->calls[c->call].message >= i); /* by rising message */
    BASE_ASSERT(c->reasoning == in->n_reasonings || in->reasonings[c->reasoning].message >= i);
    for (; c->call < in->n_calls && in->calls[c->call].message == i; c->call++)
        if (json_object_set_new(c->ids, id_of(&in->calls[c->call], c->call, own), json_integer((json_int_t)c->call)))
            return false;
    while (c->reasoning < in->n_reasonings && in->reasonings[c->reasoning].message == i) c->reasoning++;
    out->end_calls = c->call;
    out->end_reasonings = c->reasoning;
    if (c->result == in->n_results || in->results[c->result].message != i) return true;
    out->result = &in->results[c->result];
    out->answers = c->result++;
    const json_t *found = out->result->id ? json_object_get(c->ids, out->result->id) : NULL;
    if (out->result->id) out->answers = found ? (size_t)json_integer_value(found) : SIZE_MAX;
    if (out->answers >= c->call) out->answers = SIZE_MAX;
    return true;
}

static void add_text(rp_template_input *to, const char *key, const char *text) {
    rp_template_input_key(to, key);
    template_input_copy(to, text, strlen(text));
}

static void add_json(rp_template_input *to, const char *key, const json_t *value) {
    rp_template_input_key(to, key);
    template_input_json(to, value);
}

static void add_id(const chat_input *in, rp_template_input *to, const char *key, const char *id) {
    base_hash h;
    base_key digest;
    char digits[SHORT_ID_DIGITS + 2];
    if (in->style.short_ids) {
        base_hash_init(&h, "reprise call id 1");
        base_hash_bytes(&h, id, strlen(id));
        base_hash_final(&h, &digest);
        base_key_hex(&digest, digits, SHORT_ID_DIGITS + 1);
        digits[SHORT_ID_DIGITS] = '\0';
        id = digits;
    }
    add_text(to, key, id);
}

static void add_call(const chat_input *in, rp_template_input *to, size_t number) {
    BASE_ASSERT(number < in->n_calls && in->calls[number].name && in->calls[number].arguments);
    const chat_call *call = &in->calls[number];
    char own[OWN_ID_BYTES];
    rp_template_input_begin_dict(to);
    add_id(in, to, "id", id_of(call, number, own));
    add_text(to, "type", "function");
    rp_template_input_key(to, "function");
    rp_template_input_begin_dict(to);
    add_text(to, "name", call->name);
    json_t *arguments = in->style.text_arguments
                            ? NULL
                            : base_json_read(call->arguments, strlen(call->arguments), BASE_JSON_AS_WRITTEN);
    if (arguments) add_json(to, "arguments", arguments);
    else add_text(to, "arguments", call->arguments);
    json_decref(arguments);
    rp_template_input_end(to);
    rp_template_input_end(to);
}

/* Reasoning has two names among templates. false: out of memory. */
static bool add_reasoning(const chat_input *in, rp_template_input *to, const message_parts *p) {
    base_buffer text = BASE_BUFFER(MAX_REASONING_BYTES);
    bool ok = true;
    for (size_t k = p->reasonings; k < p->end_reasonings && ok; k++)
        ok = base_buffer_append_str(&text, in->reasonings[k].text) == 0;
    const char *name = !rp_template_uses(in->t, "reasoning_content") && rp_template_uses(in->t, "thinking")
                           ? "thinking"
                           : "reasoning_content";
    if (ok && text.len > 0) {
        rp_template_input_key(to, name);
        template_input_copy(to, text.data, text.len);
    }
    base_buffer_free(&text);
    return ok;
}

static void add_content(const chat_input *in, rp_template_input *to, const char *key, size_t i, uint32_t *sources) {
    rp_template_input_key(to, key);
    const uint32_t source = template_input_borrow(to, in->messages[i].text, in->messages[i].n);
    if (sources) sources[i] = source;
}

/* Does the template have results in the message of their calls, and no messages of their own for them? So have the
   first ones of Gemma 4. */
static bool has_responses(const rp_template *t) {
    return rp_template_uses(t, "tool_responses") && !rp_template_uses(t, "tool_call_id");
}

/* The results after message i, as part of it, and the answer after them, if it has no calls and the message no text:
 * it is one turn. Returns the last message that is in it. */
static size_t add_responses(part_counter *c, rp_template_input *to, size_t i, uint32_t *sources, bool *ok) {
    const chat_input *in = c->in;
    BASE_ASSERT(i < in->n_messages && in->messages[i].role == RP_ROLE_ASSISTANT);
    size_t last = i;
    message_parts parts;
    rp_template_input_key(to, "tool_responses");
    rp_template_input_begin_list(to);
    while (*ok && last + 1 < in->n_messages && in->messages[last + 1].role == RP_ROLE_TOOL) {
        *ok = count_parts(c, ++last, &parts);
        rp_template_input_begin_dict(to);
        if (*ok && parts.answers != SIZE_MAX) add_text(to, "name", in->calls[parts.answers].name);
        add_content(in, to, "response", last, sources);
        rp_template_input_end(to);
    }
    rp_template_input_end(to);
    const bool is_answered = last > i && last + 1 < in->n_messages &&
                             in->messages[last + 1].role == RP_ROLE_ASSISTANT &&
                             (c->call == in->n_calls || in->calls[c->call].message != last + 1);
    if (!*ok || !is_answered || in->messages[i].n > 0) {
        add_content(in, to, "content", i, sources);
        return last;
    }
    *ok = count_parts(c, ++last, &parts);
    add_content(in, to, "content", last, sources);
    return last;
}

/* Returns the last message that is in it: i, or one after it. */
static size_t add_message(part_counter *c, rp_template_input *to, size_t i, const message_parts *p, uint32_t *sources,
                          bool *ok) {
    const chat_input *in = c->in;
    BASE_ASSERT(i < in->n_messages && (unsigned)in->messages[i].role < RP_N_ROLES);
    BASE_ASSERT(p->answers == SIZE_MAX || p->answers < in->n_calls);
    const rp_message *m = &in->messages[i];
    const bool folds = m->role == RP_ROLE_ASSISTANT && p->calls != p->end_calls && has_responses(in->t);
    char own[OWN_ID_BYTES];
    size_t last = i;
    rp_template_input_begin_dict(to);
    add_text(to, "role", role_names[m->role]);
    *ok = add_reasoning(in, to, p);
    if (*ok && folds) last = add_responses(c, to, i, sources, ok);
    else add_content(in, to, "content", i, sources);
    if (p->calls != p->end_calls) {
        rp_template_input_key(to, "tool_calls");
        rp_template_input_begin_list(to);
        for (size_t k = p->calls; k < p->end_calls; k++) add_call(in, to, k);
        rp_template_input_end(to);
    }
    if (p->answers != SIZE_MAX) { /* the result of a call that is written before it: by its id, or by its number */
        add_text(to, "name", in->calls[p->answers].name);
        add_id(in, to, "tool_call_id", id_of(&in->calls[p->answers], p->answers, own));
    } else if (p->result && p->result->id) add_id(in, to, "tool_call_id", p->result->id);
    rp_template_input_end(to);
    return last;
}

static bool add_messages(const chat_input *in, rp_template_input *to, uint32_t *sources) {
    part_counter c = {.in = in, .ids = json_object()};
    const size_t n_leading = chat_count_leading_systems(in->messages, in->n_messages);
    bool ok = c.ids != NULL;
    for (size_t i = 0; sources && i < in->n_messages; i++) sources[i] = 0; /* left out, or without a text of its own */
    rp_template_input_key(to, "messages");
    rp_template_input_begin_list(to);
    for (size_t i = 0; i < in->n_messages && ok; i++) {
        const bool is_kept = i < n_leading || i >= in->first;
        message_parts parts;
        ok = count_parts(&c, i, &parts);
        if (ok && is_kept) i = add_message(&c, to, i, &parts, sources, &ok);
    }
    rp_template_input_end(to);
    json_decref(c.ids);
    return ok;
}

/* ---- variables ---- */

static bool add_tools(const answer_form *form, rp_template_input *to) {
    bool ok = true;
    rp_template_input_key(to, "tools");
    rp_template_input_begin_list(to);
    for (size_t i = 0; i < form->n_tools && ok; i++) {
        json_t *definition = form->tools[i].barred ? NULL : tool_text_json(&form->tools[i]);
        ok = definition || form->tools[i].barred;
        if (definition) template_input_json(to, definition);
        json_decref(definition);
    }
    rp_template_input_end(to);
    return ok;
}

bool chat_input_is_of_model(const char *variable) {
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++)
        if (strcmp(names[i], variable) == 0) return true;
    return false;
}

static void add_variables(const chat_input *in, rp_template_input *to) {
    const char *name;
    json_t *item;
    json_object_foreach((json_t *)in->variables, name, item) {
        if (!chat_input_is_of_model(name)) add_json(to, name, item);
    }
    if (in->form->thinking != THINKING_UNSET) {
        const json_t *thinks = json_boolean(in->form->thinking == THINKING_ON);
        add_json(to, "enable_thinking", thinks);
        add_json(to, "thinking", thinks);
        if (in->form->thinking == THINKING_OFF && !json_object_get(in->variables, "thinking_budget") &&
            rp_template_uses(in->t, "thinking_budget")) { /* Seed-OSS has no other switch */
            rp_template_input_key(to, "thinking_budget");
            rp_template_input_json(to, "0", 1);
        }
    }
    if (in->reasoning_effort) add_text(to, "reasoning_effort", in->reasoning_effort);
}

int chat_input_values(const chat_input *in, rp_template_input **out, uint32_t *sources, rp_error *err) {
    const bool has_tools = answer_form_may_call(in->form) && rp_template_uses(in->t, "tools");
    const int rc = rp_template_input_new(out, err);
    if (rc) return rc;
    add_json(*out, "tools", json_null());
    add_json(*out, "documents", json_null());
    add_variables(in, *out);
    bool ok = !has_tools || add_tools(in->form, *out);
    ok = ok && add_messages(in, *out, sources);
    add_json(*out, "add_generation_prompt", json_boolean(!in->continues_last));
    if (ok) return RP_OK;
    rp_template_input_free(*out);
    *out = NULL;
    return base_fail_memory(err, 0, "a conversation");
}

chat_retry chat_input_adapt(chat_input *in, bool is_merged, rp_template_failure why) {
    if (why == RP_TEMPLATE_RENDERED) return CHAT_GIVE_UP;
    if (why == RP_TEMPLATE_WRONG_TYPE && !in->style.text_arguments && in->n_calls > 0) {
        in->style.text_arguments = true;
        return CHAT_AGAIN;
    }
    if (why == RP_TEMPLATE_REFUSED && !in->style.short_ids && in->n_calls + in->n_results > 0) {
        in->style.short_ids = true;
        return CHAT_AGAIN;
    }
    if (is_merged || in->n_messages < 2) return CHAT_GIVE_UP;
    in->style.short_ids = false;
    return CHAT_MERGE;
}

/* ---- merging ---- */

static int merge_append(chat_merged *m, const rp_message *message, size_t i, rp_role role, bool joins) {
    BASE_ASSERT(!joins || m->n_messages > 0);
    int rc = 0;
    if (!joins) {
        if (m->n_messages > 0) rc = base_buffer_append(&m->text, "", 1);
        m->messages[m->n_messages++] = (rp_message){.role = role};
    }
    rp_message *into = &m->messages[m->n_messages - 1];
    const size_t begin = m->text.len - into->n;
    if (!rc && into->n > 0 && message->n > 0) rc = base_buffer_append_str(&m->text, "\n\n");
    m->to[i] = m->n_messages - 1;
    m->offset[i] = m->text.len - begin;
    if (!rc) rc = base_buffer_append(&m->text, message->text, message->n);
    into->n = m->text.len - begin;
    return rc;
}

int chat_merge(chat_merged *out, const rp_message *messages, size_t n, size_t max_bytes) {
    int last = -1, rc = 0;
    *out = (chat_merged){.text = BASE_BUFFER(max_bytes)};
    out->messages = base_calloc(BASE_MAX(n, 1), sizeof(*out->messages));
    out->to = base_calloc(BASE_MAX(n, 1), sizeof(*out->to));
    out->offset = base_calloc(BASE_MAX(n, 1), sizeof(*out->offset));
    if (!out->messages || !out->to || !out->offset) return RP_ERR_MEMORY;
    for (size_t i = 0; i < n && !rc; i++) {
        const rp_role role = messages[i].role == RP_ROLE_SYSTEM ? RP_ROLE_USER : messages[i].role;
        rc = merge_append(out, &messages[i], i, role, (int)role == last && role != RP_ROLE_TOOL);
        last = (int)role;
    }
    if (rc) return rc;
    const char *text = out->text.data ? out->text.data : "";
    for (size_t i = 0; i < out->n_messages; i++) {
        out->messages[i].text = text;
        text += out->messages[i].n + (i + 1 < out->n_messages);
    }
    BASE_ASSERT(!out->text.data || text == out->text.data + out->text.len);
    return 0;
}

void chat_merged_free(chat_merged *m) {
    base_free(m->messages);
    base_free(m->to);
    base_free(m->offset);
    base_buffer_free(&m->text);
}

void chat_merged_move(const chat_merged *m, chat_call *calls, size_t n_calls, chat_result *results, size_t n_results,
                      chat_reasoning *reasonings, size_t n_reasonings) {
    for (size_t i = 0; i < n_calls; i++) calls[i].message = m->to[calls[i].message];
    for (size_t i = 0; i < n_results; i++) results[i].message = m->to[results[i].message];
    for (size_t i = 0; i < n_reasonings; i++) reasonings[i].message = m->to[reasonings[i].message];
}

/* ---- the rendered text ---- */

size_t chat_input_turns(const chat_input *in, const rp_template_text *text, const uint32_t *sources,
                        rp_rendered_turn *turns, size_t *of) {
    size_t end = 0, n = 0;
    for (size_t i = 0, run = 0; i < in->n_messages; i++) {
        size_t k = run;
        while (k < text->n_runs && text->runs[k].origin != sources[i]) k++;
        if (sources[i] == 0 || k == text->n_runs) continue;
        for (; k < text->n_runs && text->runs[k].origin == sources[i]; k++) end = text->runs[k].end;
        if (of) of[n] = i;
        turns[n++] = (rp_rendered_turn){end, in->messages[i].role};
        run = k;
    }
    BASE_ASSERT(end <= text->n);
    return n;
}

bool chat_input_opens_reasoning(const chat_input *in, const rp_template_text *text) {
    BASE_ASSERT(text->n_runs == 0 || text->runs[text->n_runs - 1].end == text->n);
    const size_t n_runs = text->n_runs > 0 && in->continues_last ? text->n_runs - 1 : text->n_runs;
    size_t from = 0;
    for (size_t i = 0; i < n_runs; i++)
        if (text->runs[i].origin != RP_TEMPLATE_TRUSTED) from = text->runs[i].end;
    return tool_convention_opens_reasoning(&in->form->convention, text->bytes + from, text->n - from);
}
