/* SPDX-License-Identifier: Apache-2.0 */
/* chat_input.c: see chat_input.h. Owns nothing. */
#include "structured/chat_input.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/json_read.h"
#include "base/memory.h"
#include "structured/tool_text.h"

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

typedef struct message_writer {
    const chat_input *in;
    json_t *ids;                    /* id -> number of the last call with it, among those written */
    size_t call, result, reasoning; /* the next ones */
} message_writer;

/* false: out of memory. Takes the item over. */
static bool set(json_t *object, const char *name, json_t *item) { return json_object_set_new(object, name, item) == 0; }

static const char *id_of(const chat_call *call, size_t number, char own[OWN_ID_BYTES]) {
    snprintf(own, OWN_ID_BYTES, "call_%zu", number);
    return call->id ? call->id : own;
}

static json_t *id_json(const chat_input *in, const char *id) {
    base_hash h;
    base_key key;
    char digits[SHORT_ID_DIGITS + 2];
    if (!in->style.short_ids) return json_string(id);
    base_hash_init(&h, "reprise call id 1");
    base_hash_bytes(&h, id, strlen(id));
    base_hash_final(&h, &key);
    base_key_hex(&key, digits, SHORT_ID_DIGITS + 1);
    return json_stringn(digits, SHORT_ID_DIGITS);
}

static json_t *call_json(const chat_input *in, const chat_call *call, const char *id) {
    json_t *arguments = in->style.text_arguments ? NULL : base_json_read(call->arguments, strlen(call->arguments), BASE_JSON_AS_WRITTEN);
    if (!arguments) arguments = json_string(call->arguments);
    return json_pack("{s:o, s:s, s:{s:s, s:o}}", "id", id_json(in, id), "type", "function", "function", "name", call->name, "arguments", arguments);
}

static bool write_calls(message_writer *w, json_t *message, size_t i) {
    const chat_input *in = w->in;
    json_t *calls = NULL;
    for (; w->call < in->n_calls && in->calls[w->call].message == i; w->call++) {
        char own[OWN_ID_BYTES];
        const char *id = id_of(&in->calls[w->call], w->call, own);
        if (!calls) calls = json_array();
        if (!calls || json_array_append_new(calls, call_json(in, &in->calls[w->call], id)) ||
            !set(w->ids, id, json_integer((json_int_t)w->call)))
            return json_decref(calls), false;
    }
    return !calls || set(message, "tool_calls", calls);
}

/* The result of a call that is written before it: by its id, or by its number. */
static bool write_result(message_writer *w, json_t *message, size_t i) {
    const chat_input *in = w->in;
    char own[OWN_ID_BYTES];
    if (w->result >= in->n_results || in->results[w->result].message != i) return true;
    size_t number = w->result;
    const char *id = in->results[w->result++].id;
    const json_t *found = id ? json_object_get(w->ids, id) : NULL;
    if (id) number = found ? (size_t)json_integer_value(found) : SIZE_MAX;
    if (number >= w->call) return !id || set(message, "tool_call_id", id_json(in, id));
    const chat_call *call = &in->calls[number];
    return set(message, "name", json_string(call->name)) && set(message, "tool_call_id", id_json(in, id_of(call, number, own)));
}

/* Reasoning has two names among templates. */
static bool write_reasoning(message_writer *w, json_t *message, size_t i) {
    const chat_input *in = w->in;
    base_buffer text = BASE_BUFFER(MAX_REASONING_BYTES);
    bool ok = true;
    for (; w->reasoning < in->n_reasonings && in->reasonings[w->reasoning].message == i && ok; w->reasoning++)
        ok = base_buffer_append_str(&text, in->reasonings[w->reasoning].text) == 0;
    const char *name = !rp_template_uses(in->t, "reasoning_content") && rp_template_uses(in->t, "thinking") ? "thinking" : "reasoning_content";
    if (ok && text.len > 0) ok = set(message, name, json_stringn(text.data, text.len));
    base_buffer_free(&text);
    return ok;
}

static json_t *message_json(message_writer *w, size_t i) {
    const rp_message *m = &w->in->messages[i];
    json_t *message = json_pack("{s:s, s:s%}", "role", role_names[m->role], "content", m->text, m->n);
    if (message && write_reasoning(w, message, i) && write_calls(w, message, i) && write_result(w, message, i)) return message;
    return json_decref(message), NULL;
}

static size_t count_leading_systems(const chat_input *in) {
    size_t n = 0;
    while (n < in->n_messages && in->messages[n].role == RP_ROLE_SYSTEM) n++;
    return n;
}

/* Messages that are left out are written, too: calls and results are numbered by all of them. */
static json_t *messages_json(const chat_input *in) {
    message_writer w = {.in = in, .ids = json_object()};
    const size_t n_leading = count_leading_systems(in);
    json_t *all = w.ids ? json_array() : NULL;
    for (size_t i = 0; i < in->n_messages && all; i++) {
        json_t *message = message_json(&w, i);
        if (!message || ((i < n_leading || i >= in->first) && json_array_append(all, message))) json_decref(all), all = NULL;
        json_decref(message);
    }
    json_decref(w.ids);
    return all;
}

/* ---- variables ---- */

static json_t *tools_json(const answer_form *form) {
    json_t *all = json_array();
    for (size_t i = 0; i < form->n_tools && all; i++)
        if (!form->tools[i].barred && json_array_append_new(all, tool_text_json(&form->tools[i]))) json_decref(all), all = NULL;
    return all;
}

bool chat_input_is_of_model(const char *variable) {
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++)
        if (strcmp(names[i], variable) == 0) return true;
    return false;
}

static bool write_variables(const chat_input *in, json_t *out) {
    const char *name;
    json_t *item;
    bool ok = true;
    json_object_foreach((json_t *)in->variables, name, item) ok = ok && (chat_input_is_of_model(name) || json_object_set(out, name, item) == 0);
    if (in->form->thinking != THINKING_UNSET) {
        ok = ok && set(out, "enable_thinking", json_boolean(in->form->thinking == THINKING_ON));
        ok = ok && set(out, "thinking", json_boolean(in->form->thinking == THINKING_ON));
    }
    return ok && (!in->reasoning_effort || set(out, "reasoning_effort", json_string(in->reasoning_effort)));
}

json_t *chat_input_json(const chat_input *in) {
    const bool has_tools = answer_form_may_call(in->form) && rp_template_uses(in->t, "tools");
    json_t *out = json_object();
    if (out && set(out, "tools", json_null()) && set(out, "documents", json_null()) && write_variables(in, out) &&
        (!has_tools || set(out, "tools", tools_json(in->form))) && set(out, "messages", messages_json(in)) &&
        set(out, "add_generation_prompt", json_boolean(!in->continues_last)))
        return out;
    return json_decref(out), NULL;
}

bool chat_input_adapt(chat_input *in, const rp_error *err) {
    if (!in->style.short_ids && strstr(err->message, "length 9")) return in->style.short_ids = true;
    if (!in->style.text_arguments && in->n_calls > 0 && strstr(err->message, "TypeError")) return in->style.text_arguments = true;
    return false;
}

/* ---- merging ---- */

static int merge_append(chat_merged *m, const rp_message *message, size_t i, rp_role role, bool joins) {
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

void chat_merged_move(const chat_merged *m, chat_call *calls, size_t n_calls, chat_result *results, size_t n_results, chat_reasoning *reasonings,
                      size_t n_reasonings) {
    for (size_t i = 0; i < n_calls; i++) calls[i].message = m->to[calls[i].message];
    for (size_t i = 0; i < n_results; i++) results[i].message = m->to[results[i].message];
    for (size_t i = 0; i < n_reasonings; i++) reasonings[i].message = m->to[reasonings[i].message];
}

/* ---- the rendered text ---- */

static uint32_t count_strings(const json_t *json) {
    const char *name;
    json_t *item;
    uint32_t n = json_is_string(json) ? 1 : 0;
    json_object_foreach((json_t *)json, name, item) n += count_strings(item);
    for (size_t i = 0; i < json_array_size(json); i++) n += count_strings(json_array_get(json, i));
    return n;
}

/* Strings are numbered as rp_template_render numbers them: in the order of the JSON text. In a message the content follows the role. */
void chat_input_sources(const chat_input *in, const json_t *json, uint32_t *sources) {
    const json_t *messages = json_object_get(json, "messages");
    const size_t n_leading = count_leading_systems(in);
    const char *name;
    json_t *item;
    uint32_t n = RP_TEMPLATE_FIRST_STRING;
    json_object_foreach((json_t *)json, name, item) {
        if (item == messages) break;
        n += count_strings(item);
    }
    for (size_t i = 0, k = 0; i < in->n_messages; i++) {
        const bool kept = i < n_leading || i >= in->first;
        sources[i] = kept ? n + 1 : 0;
        if (kept) n += count_strings(json_array_get(messages, k++));
    }
}

size_t chat_input_turns(const chat_input *in, const rp_template_text *text, const uint32_t *sources, rp_rendered_turn *turns) {
    size_t end = 0, n = 0;
    for (size_t i = 0, run = 0; i < in->n_messages; i++) {
        size_t k = run;
        while (k < text->n_runs && text->runs[k].origin != sources[i]) k++;
        if (sources[i] == 0 || k == text->n_runs) continue;
        for (; k < text->n_runs && text->runs[k].origin == sources[i]; k++) end = text->runs[k].end;
        turns[n++] = (rp_rendered_turn){end, in->messages[i].role};
        run = k;
    }
    BASE_ASSERT(end <= text->n);
    return n;
}

bool chat_input_opens_reasoning(const chat_input *in, const rp_template_text *text) {
    const size_t n_runs = text->n_runs > 0 && in->continues_last ? text->n_runs - 1 : text->n_runs;
    size_t from = 0;
    for (size_t i = 0; i < n_runs; i++)
        if (text->runs[i].origin != RP_TEMPLATE_TRUSTED) from = text->runs[i].end;
    return tool_convention_opens_reasoning(&in->form->convention, text->bytes + from, text->n - from);
}
