/* SPDX-License-Identifier: Apache-2.0 */
/* chat_api.c: reprise_chat.h: turns of conversations with tools and forms of answers (src/structured): from options to
   a chat. */
#include "api/chat.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/error.h"
#include "base/json_read.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/text.h"
#include "structured/chat_input.h"
#include "structured/structured_error.h"
#include "structured/tool_text.h"
#include "reprise_chat.h"

#define MAX_TEXT_BYTES ((size_t)64 << 20) /* of a message, or of the rendered JSON */

_Static_assert((int)RP_TOOL_CHOICE_REQUIRED == (int)TOOL_CHOICE_REQUIRED && (int)RP_THINKING_ON == (int)THINKING_ON,
               "the same values");

void rp_chat_options_init(rp_chat_options *options, uint32_t struct_size) {
    const rp_chat_options own = {.struct_size = sizeof(own)};
    base_sized_init(options, struct_size, &own, sizeof(own));
}

/* ---- texts ---- */

/* Refuses a text (NULL: none) that is not UTF-8: no JSON value can be made of it. */
static void check_utf8(const char *text, const char *place, rp_error *err) {
    const size_t n = text && !err->code ? strlen(text) : 0;
    for (size_t i = 0; i < n && !err->code;) {
        const int length = base_utf8_length((const unsigned char *)text + i, n - i);
        if (length < 1) structured_fail(err, RP_ERR_INVALID, place, "'%s' is not UTF-8: byte %zu", place, i);
        else i += (size_t)length;
    }
}

/* Takes a string over. NULL: out of memory. */
static const char *chat_own(rp_chat *c, char *text, rp_error *err) {
    if (text && base_grow((void **)&c->strings, &c->cap_strings, c->n_strings + 1, SIZE_MAX / sizeof(*c->strings),
                          sizeof(*c->strings))) {
        base_free(text);
        text = NULL;
    }
    if (!text) return structured_fail_memory(err), NULL;
    return c->strings[c->n_strings++] = text;
}

static const char *chat_copy(rp_chat *c, const char *text, rp_error *err) {
    return text && !err->code ? chat_own(c, base_strdup(text), err) : NULL;
}

/* A JSON Schema; a new reference. NULL: an error. */
static json_t *read_schema(const char *text, size_t n, const char *place, rp_error *err) {
    json_error_t at;
    json_t *value = base_json_read(text, n, BASE_JSON_ANY | BASE_JSON_REPLACE_NUL);
    if (!value) value = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &at); /* says where */
    if (!value && (at.line < 0 || json_error_code(&at) == json_error_out_of_memory)) structured_fail_memory(err);
    else if (!value)
        structured_fail(err, RP_ERR_INVALID, place, "'%s' is not valid JSON: line %d, column %d: %s", place, at.line,
                        at.column, at.text);
    else if (!json_is_object(value) && !json_is_boolean(value))
        structured_fail(err, RP_ERR_INVALID, place, "'%s': give a JSON Schema", place);
    if (!err->code) return value;
    json_decref(value);
    return NULL;
}

/* A JSON Schema, kept by the chat. */
static const json_t *chat_schema(rp_chat *c, const char *text, const char *place, rp_error *err) {
    json_t *value = text && !err->code ? read_schema(text, strlen(text), place, err) : NULL;
    if (value && json_array_append_new(c->values, value)) structured_fail_memory(err);
    return err->code ? NULL : value;
}

/* ---- the form ---- */

static bool is_tool_name(const char *name) {
    const size_t n = name ? strlen(name) : 0;
    return n > 0 && n <= RP_MAX_TOOL_NAME_BYTES &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:") == n;
}

static void add_tools(rp_chat *c, const rp_chat_options *o, rp_error *err) {
    char place[64];
    bool named = !o->tool_name;
    if (o->n_tools > RP_MAX_TOOLS)
        structured_fail(err, RP_ERR_LIMIT, "tools", "more than %d tools: give fewer", RP_MAX_TOOLS);
    if (o->n_tools > 0 && !o->tools) {
        structured_fail(err, RP_ERR_INVALID, "tools", "n_tools is %zu, but there are no tools", o->n_tools);
        return;
    }
    c->tools = err->code ? NULL : base_calloc(BASE_MAX(o->n_tools, 1), sizeof(*c->tools));
    if (!c->tools) {
        structured_fail_memory(err);
        return;
    }
    for (size_t i = 0; i < o->n_tools && !err->code; i++) {
        const rp_tool *in = &o->tools[i];
        tool_spec *t = &c->tools[i];
        if (!is_tool_name(in->name))
            structured_fail(err, RP_ERR_INVALID, "tools",
                            "tool '%.40s': a name has up to %d letters, digits and _-.:", in->name ? in->name : "",
                            RP_MAX_TOOL_NAME_BYTES);
        for (size_t k = 0; k < i && !err->code; k++)
            if (strcmp(c->tools[k].name, in->name) == 0)
                structured_fail(err, RP_ERR_INVALID, "tools", "duplicate tool '%.80s'", in->name);
        snprintf(place, sizeof(place), "tools[%zu].description", i);
        check_utf8(in->description, place, err);
        t->name = chat_copy(c, in->name, err);
        t->description = chat_copy(c, in->description, err);
        snprintf(place, sizeof(place), "tools[%zu].parameters", i);
        t->place = chat_copy(c, place, err);
        t->schema = chat_schema(c, in->parameters, place, err);
        t->strict = in->strict;
        t->barred = !err->code && o->tool_name && strcmp(t->name, o->tool_name) != 0;
        named |= !t->barred;
    }
    if (!named) structured_fail(err, RP_ERR_NAME, "tool_name", "no tool has the name '%.80s'", o->tool_name);
    if (o->tool_choice == RP_TOOL_CHOICE_REQUIRED && o->n_tools == 0)
        structured_fail(err, RP_ERR_INVALID, "tool_choice", "a tool call is required, but there are no tools");
    c->form.tools = c->tools;
    c->form.n_tools = o->n_tools;
}

static void set_form(rp_chat *c, const rp_chat_options *o, rp_error *err) {
    if (!!o->json_schema + o->json_object + !!o->regex > 1)
        structured_fail(err, RP_ERR_INVALID, "",
                        "json_schema, json_object and regex exclude each other: give one of them");
    if ((unsigned)o->tool_choice > RP_TOOL_CHOICE_REQUIRED || (unsigned)o->thinking > RP_THINKING_ON)
        structured_fail(err, RP_ERR_INVALID, "", "tool_choice or thinking has no such value");
    add_tools(c, o, err);
    c->form.tool_choice = (tool_choice)o->tool_choice;
    c->form.one_call = o->one_call;
    c->form.wants_json = o->json_object || o->json_schema;
    c->form.schema = chat_schema(c, o->json_schema, "json_schema", err);
    c->form.regex = chat_copy(c, o->regex, err);
    c->form.place = o->regex ? "regex" : "json_schema";
    c->form.thinking = (thinking_choice)o->thinking;
    c->form.splits_reasoning = true;
}

/* ---- the model's convention ---- */

/* Does a text have a control token in it? */
static bool has_control_token(const rp_model *model, const char *text) {
    int32_t *tokens = NULL;
    size_t n = 0, hidden;
    bool found = false;
    if (rp_tokenize(model, text, strlen(text), true, false, &tokens, &n, NULL)) return false;
    for (size_t i = 0; i < n && !found; i++) {
        size_t n_name;
        const char *name = rp_token_bytes(model, tokens[i], true, &n_name);
        rp_token_bytes(model, tokens[i], false, &hidden);
        found = hidden == 0 && n_name > 0 && strstr(text, name); /* else it is the unknown token */
    }
    rp_free(tokens);
    return found;
}

bool rp_model_writes_control_marks(const rp_model *model) {
    rp_model_info info = {.struct_size = sizeof(info)};
    if (!model) return false;
    rp_model_describe(model, &info);
    const tool_convention c = tool_convention_detect(
        info.chat_template, info.chat_template ? strlen(info.chat_template) : 0, info.chat_format);
    bool found = false;
    const char *mark;
    for (size_t i = 0; !found && (mark = tool_convention_mark(&c, i)); i++) found = has_control_token(model, mark);
    return found;
}

/* ---- messages ---- */

static void check_call(const rp_tool_call *call, size_t i, size_t k, rp_error *err) {
    char place[96];
    if (!call->name || !call->arguments)
        structured_fail(err, RP_ERR_INVALID, "messages", "messages[%zu]: a call has a name and arguments", i);
    snprintf(place, sizeof(place), "messages[%zu].calls[%zu].name", i, k);
    check_utf8(call->name, place, err);
    snprintf(place, sizeof(place), "messages[%zu].calls[%zu].id", i, k);
    check_utf8(call->id, place, err);
}

static void check_message(const rp_chat_message *m, size_t i, rp_error *err) {
    if ((unsigned)m->role >= RP_N_ROLES)
        structured_fail(err, RP_ERR_INVALID, "messages", "messages[%zu] has no such role", i);
    else if ((m->n_calls > 0 || m->reasoning) && m->role != RP_ROLE_ASSISTANT)
        structured_fail(err, RP_ERR_INVALID, "messages", "messages[%zu]: calls and reasoning are of the assistant", i);
    else if (m->n_calls > 0 && !m->calls)
        structured_fail(err, RP_ERR_INVALID, "messages", "messages[%zu]: n_calls is %zu, but there are no calls", i,
                        m->n_calls);
    else
        for (size_t k = 0; k < m->n_calls && !err->code; k++) check_call(&m->calls[k], i, k, err);
}

static void check_messages(const rp_chat_options *o, rp_error *err) {
    if (o->n_messages == 0 || o->n_messages > RP_MAX_MESSAGES || !o->messages) {
        structured_fail(err, RP_ERR_INVALID, "messages", "a conversation has 1 to %d messages", RP_MAX_MESSAGES);
        return;
    }
    for (size_t i = 0; i < o->n_messages && !err->code; i++) check_message(&o->messages[i], i, err);
}

/* The messages of options as a template's input has them. The texts are borrowed. */
typedef struct conversation {
    rp_message *messages;
    chat_call *calls;
    chat_result *results;
    chat_reasoning *reasonings;
    size_t n_calls, n_results, n_reasonings;
    chat_merged merged; /* for a template that refuses the messages as they are */
} conversation;

static void conversation_free(conversation *v) {
    base_free(v->messages);
    base_free(v->calls);
    base_free(v->results);
    base_free(v->reasonings);
    chat_merged_free(&v->merged);
}

static void conversation_make(conversation *v, const rp_chat_options *o, rp_error *err) {
    size_t n_calls = 0;
    if (err->code) return;
    for (size_t i = 0; i < o->n_messages; i++) n_calls += o->messages[i].n_calls;
    v->messages = base_calloc(o->n_messages, sizeof(*v->messages));
    v->calls = base_calloc(BASE_MAX(n_calls, 1), sizeof(*v->calls));
    v->results = base_calloc(o->n_messages, sizeof(*v->results));
    v->reasonings = base_calloc(o->n_messages, sizeof(*v->reasonings));
    if (!v->messages || !v->calls || !v->results || !v->reasonings) structured_fail_memory(err);
    for (size_t i = 0; i < o->n_messages && !err->code; i++) {
        const rp_chat_message *m = &o->messages[i];
        const char *text = m->text ? m->text : "";
        v->messages[i] = (rp_message){m->role, text, strlen(text)};
        if (m->role == RP_ROLE_TOOL) v->results[v->n_results++] = (chat_result){.message = i, .id = m->call_id};
        if (m->reasoning) v->reasonings[v->n_reasonings++] = (chat_reasoning){i, m->reasoning};
        for (size_t k = 0; k < m->n_calls; k++)
            v->calls[v->n_calls++] = (chat_call){i, m->calls[k].id, m->calls[k].name, m->calls[k].arguments};
    }
    BASE_ASSERT(err->code || v->n_calls == n_calls);
}

/* ---- messages as text, for models that write tools in no other way ---- */

/* An error of a buffer. */
static void check_text(int rc, rp_error *err) {
    if (rc == RP_ERR_LIMIT)
        structured_fail(err, RP_ERR_LIMIT, "messages", "tools and messages have more than %zu bytes: give less",
                        MAX_TEXT_BYTES);
    else if (rc) structured_fail_memory(err);
}

/* Adds a message of what the buffer holds, and empties it. */
static void add_written(rp_chat *c, rp_role role, base_buffer *b, rp_error *err) {
    BASE_ASSERT((unsigned)role < RP_N_ROLES); /* check_message */
    const size_t n = b->len;
    const char *text = chat_copy(c, b->data ? b->data : "", err);
    if (!err->code && base_grow((void **)&c->messages, &c->cap_messages, c->n_messages + 1, RP_MAX_MESSAGES + 1,
                                sizeof(*c->messages)))
        structured_fail_memory(err);
    if (!err->code) c->messages[c->n_messages++] = (rp_message){role, text, n};
    base_buffer_clear(b);
}

static void add_definitions(rp_chat *c, base_buffer *b, rp_error *err) {
    int rc = b->len > 0 ? base_buffer_append_str(b, "\n\n") : 0;
    if (!rc) rc = base_buffer_append_str(b, tool_text_before);
    for (size_t i = 0; i < c->form.n_tools && !rc; i++) {
        if (c->tools[i].barred) continue;
        rc = tool_text_definition(b, &c->tools[i]);
        if (!rc) rc = base_buffer_append_str(b, "\n");
    }
    check_text(rc ? rc : base_buffer_append_str(b, tool_text_after), err);
}

/* Definitions, calls and results become text of the messages. */
static void write_messages(rp_chat *c, const rp_chat_options *o, const char *chat_format, rp_error *err) {
    const bool as_user = tool_text_results_are_users(chat_format), calls = answer_form_may_call(&c->form);
    base_buffer b = BASE_BUFFER(MAX_TEXT_BYTES);
    if (calls && o->messages[0].role != RP_ROLE_SYSTEM) {
        add_definitions(c, &b, err);
        add_written(c, RP_ROLE_SYSTEM, &b, err);
    }
    for (size_t i = 0; i < o->n_messages && !err->code; i++) {
        const rp_chat_message *m = &o->messages[i];
        const bool goes_on =
            as_user && m->role == RP_ROLE_TOOL && i + 1 < o->n_messages && o->messages[i + 1].role == RP_ROLE_TOOL;
        size_t at;
        if (m->role == RP_ROLE_TOOL) check_text(tool_text_result(&b, m->text ? m->text : "", false, &at), err);
        else check_text(base_buffer_append_str(&b, m->text ? m->text : ""), err);
        if (calls && i == 0 && m->role == RP_ROLE_SYSTEM) add_definitions(c, &b, err);
        for (size_t k = 0; k < m->n_calls && !err->code; k++)
            check_text(tool_text_call(&b, m->calls[k].name, m->calls[k].arguments), err);
        if (!goes_on) add_written(c, m->role == RP_ROLE_TOOL && as_user ? RP_ROLE_USER : m->role, &b, err);
    }
    BASE_ASSERT(err->code || (c->n_messages > 0 && b.len == 0)); /* the last message has taken what was written */
    base_buffer_free(&b);
}

/* ---- the prompt ---- */

/* The conversation as the template gets it: as it is, or written as text (write_messages). */
static chat_input input_of(const rp_chat *c, const rp_model *model, const rp_chat_options *o, const conversation *v) {
    chat_input in = {
        .t = rp_model_template(model), .form = &c->form, .messages = v->messages, .n_messages = o->n_messages};
    if (c->messages) {
        in.messages = c->messages;
        in.n_messages = c->n_messages;
        return in;
    }
    in.calls = v->calls;
    in.n_calls = v->n_calls;
    in.results = v->results;
    in.n_results = v->n_results;
    in.reasonings = v->reasonings;
    in.n_reasonings = v->n_reasonings;
    return in;
}

static int render(rp_chat *c, const rp_model *model, const chat_input *in, rp_template_failure *failure,
                  rp_error *err) {
    BASE_ASSERT(in->n_messages > 0 && !c->turns && !c->rendered); /* an earlier try has left nothing */
    uint32_t *sources = base_calloc(in->n_messages, sizeof(*sources));
    rp_template_input *values = NULL;
    rp_template_options options = rp_template_options_defaults();
    options.failure = failure;
    c->turns = base_calloc(in->n_messages, sizeof(*c->turns));
    int rc = sources && c->turns ? chat_input_values(in, &values, sources, err) : structured_fail_memory(err);
    if (!rc) rc = rp_model_render_input(model, values, &options, &c->rendered, err);
    if (!rc) c->n_turns = chat_input_turns(in, c->rendered, sources, c->turns, NULL);
    rp_template_input_free(values);
    base_free(sources);
    if (rc) base_free(c->turns), c->turns = NULL;
    BASE_ASSERT(!rc == (c->rendered != NULL) && c->n_turns <= in->n_messages);
    return rc;
}

/* Another form of the conversation, for a template that refuses it. false: there is none, or an error. */
static bool adapt(chat_input *in, conversation *v, rp_template_failure why, rp_error *err) {
    const chat_retry retry = chat_input_adapt(in, v->merged.messages != NULL, why);
    if (retry != CHAT_MERGE) return retry == CHAT_AGAIN;
    BASE_ASSERT(!v->merged.messages); /* once */
    const int rc = chat_merge(&v->merged, in->messages, in->n_messages, MAX_TEXT_BYTES);
    check_text(rc, err);
    if (rc) return false;
    if (in->n_calls + in->n_results + in->n_reasonings > 0)
        chat_merged_move(&v->merged, v->calls, v->n_calls, v->results, v->n_results, v->reasonings, v->n_reasonings);
    BASE_ASSERT(v->merged.n_messages > 0 && v->merged.n_messages <= in->n_messages);
    in->messages = v->merged.messages;
    in->n_messages = v->merged.n_messages;
    return true;
}

/* Renders the conversation; again in another form, if the template refuses it. */
static void render_conversation(rp_chat *c, const rp_model *model, chat_input *in, conversation *v, rp_error *err) {
    rp_error first = {0}, again = {0};
    rp_template_failure why = RP_TEMPLATE_FAILED;
    if (err->code) return;
    int rc = render(c, model, in, &why, &first);
    again = first;
    while (rc == RP_ERR_INVALID && adapt(in, v, why, err)) {
        again = (rp_error){0};
        rc = render(c, model, in, &why, &again);
    }
    if (rc && !err->code) *err = rc == RP_ERR_INVALID ? first : again;
    else if (!rc) c->form.reasoning_open = chat_input_opens_reasoning(in, c->rendered);
    BASE_ASSERT(!rc == !err->code); /* else a chat without its prompt would be returned */
}

static void make_prompt(rp_chat *c, const rp_model *model, const rp_chat_options *o, rp_error *err) {
    rp_model_info info = {.struct_size = sizeof(info)};
    const rp_template *t = rp_model_template(model);
    conversation v = {0};
    conversation_make(&v, o, err);
    const bool any = answer_form_may_call(&c->form) || v.n_calls > 0 || v.n_results > 0;
    if (!err->code) {
        rp_model_describe(model, &info);
        c->form.convention = tool_convention_detect(
            info.chat_template, info.chat_template ? strlen(info.chat_template) : 0, info.chat_format);
        c->n_calls = v.n_calls;
    }
    if (!err->code && (!t || (any && !rp_template_uses(t, "tools")))) write_messages(c, o, info.chat_format, err);
    if (t) {
        chat_input in = input_of(c, model, o, &v);
        render_conversation(c, model, &in, &v, err);
    }
    if (!err->code)
        c->special_text =
            (answer_form_may_call(&c->form) || c->form.convention.reasoning) && rp_model_writes_control_marks(model);
    conversation_free(&v);
}

/* ---- chats ---- */

int rp_chat_new(rp_chat **out, const rp_model *model, const rp_chat_options *options, rp_error *err) {
    rp_chat_options o = {.struct_size = sizeof(o)};
    rp_error own = {0};
    if (out) *out = NULL;
    if (!out || !model || !options)
        return base_fail(err, RP_ERR_INVALID, "rp_chat_new: out, model and options are needed");
    const int rc = base_sized_read(&o, sizeof(o), options, "rp_chat_options", err);
    rp_chat *c = rc ? NULL : base_calloc(1, sizeof(*c));
    if (rc) return rc;
    if (c) {
        atomic_init(&c->refs, 1);
        c->values = json_array();
    }
    if (!c || !c->values) structured_fail_memory(&own);
    else {
        check_messages(&o, &own);
        set_form(c, &o, &own);
        make_prompt(c, model, &o, &own);
        tool_grammar_make(&c->form, &c->grammar, &own);
    }
    if (own.code) {
        rp_chat_free(c);
        if (err) *err = own;
        return own.code;
    }
    BASE_ASSERT(c && (c->rendered || c->messages));
    *out = c;
    return RP_OK;
}

/* ---- references ---- */

rp_chat *chat_ref(const rp_chat *c) {
    rp_chat *own = (rp_chat *)(uintptr_t)c; /* its count is all that changes */
    atomic_fetch_add_explicit(&own->refs, 1, memory_order_relaxed);
    return own;
}

void rp_chat_free(rp_chat *c) {
    if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) > 1) return;
    for (size_t i = 0; i < c->n_strings; i++) base_free(c->strings[i]);
    base_free((void *)c->strings);
    base_free(c->tools);
    base_free(c->messages);
    json_decref(c->values);
    tool_grammar_free(&c->grammar);
    rp_template_text_free(c->rendered);
    base_free(c->turns);
    base_free(c);
}

const char *rp_chat_grammar(const rp_chat *chat) { return chat ? chat->grammar.text : NULL; }
const char *rp_chat_trigger(const rp_chat *chat) { return chat ? chat->grammar.trigger : NULL; }
const char *rp_chat_warning(const rp_chat *chat, size_t i) {
    return chat ? json_string_value(json_array_get(chat->grammar.dropped, i)) : NULL;
}

/* ---- grammars ---- */

int rp_json_schema_grammar(const char *schema, size_t n, char **out, rp_error *err) {
    rp_error own = {0};
    if (out) *out = NULL;
    if (!schema || !out) return base_fail(err, RP_ERR_INVALID, "rp_json_schema_grammar: schema and out are needed");
    json_t *value = read_schema(schema, n, "schema", &own);
    const answer_form form = {.wants_json = true, .schema = value, .place = "schema"};
    tool_grammar g = {0};
    if (value && !tool_grammar_make(&form, &g, &own)) {
        BASE_ASSERT(g.text && !g.trigger); /* an answer that is JSON is JSON from its first byte */
        *out = g.text;
        json_decref(g.dropped);
    }
    json_decref(value);
    if (own.code && err) *err = own;
    return own.code;
}
