/* SPDX-License-Identifier: Apache-2.0 */
/* chat_rendering.c: see chat_rendering.h. */
#include "server/prompt/chat_rendering.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json_read.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"
#include "server/prompt/tools.h"
#include "structured/tool_text.h"

#define SHORT_ID_DIGITS 9 /* of call ids, for Mistral's templates */

bool chat_rendering_applies(const server_request *x) {
    return rp_model_template(x->model->model) && x->gen->n_messages > 0 && !x->gen->has_markup;
}

bool chat_rendering_has_tools(const server_request *x) {
    return chat_rendering_applies(x) && rp_template_uses(rp_model_template(x->model->model), "tools");
}

/* ---- Messages as JSON ---- */

typedef struct chat_json {
    const generation *gen;
    const rp_template *t;
    chat_style style;
    size_t call, result, reasoning; /* the next ones */
} chat_json;

/* false: out of memory. Takes the item over. */
static bool set(json_t *object, const char *name, json_t *item) { return json_object_set_new(object, name, item) == 0; }

static void short_id(const char *id, char out[SHORT_ID_DIGITS + 1]) {
    base_hash h;
    base_key key;
    char digits[SHORT_ID_DIGITS + 2];
    base_hash_init(&h, "reprise call id 1");
    base_hash_bytes(&h, id, strlen(id));
    base_hash_final(&h, &key);
    base_key_hex(&key, digits, SHORT_ID_DIGITS + 1);
    memcpy(out, digits, SHORT_ID_DIGITS);
    out[SHORT_ID_DIGITS] = '\0';
}

static json_t *id_json(const chat_json *c, const char *id) {
    char digits[SHORT_ID_DIGITS + 1];
    if (!c->style.short_ids) return json_string(id);
    short_id(id, digits);
    return json_string(digits);
}

static json_t *call_json(const chat_json *c, const generation_call *call, size_t number) {
    char id[32];
    snprintf(id, sizeof(id), "call_%zu", number);
    json_t *arguments = c->style.text_arguments ? NULL : base_json_read(call->arguments, strlen(call->arguments), BASE_JSON_AS_WRITTEN);
    if (!arguments) arguments = json_string(call->arguments);
    return json_pack("{s:o, s:s, s:{s:s, s:o}}", "id", id_json(c, call->id ? call->id : id), "type", "function", "function", "name", call->name,
                     "arguments",
                     arguments);
}

static bool add_calls(chat_json *c, json_t *message, size_t i) {
    const generation *gen = c->gen;
    json_t *calls = NULL;
    for (; c->call < gen->n_calls && gen->calls[c->call].message == i; c->call++) {
        if (!calls) calls = json_array();
        if (!calls || json_array_append_new(calls, call_json(c, &gen->calls[c->call], c->call))) return json_decref(calls), false;
    }
    return !calls || set(message, "tool_calls", calls);
}

/* The call that a result belongs to: that of its id, or the n-th one for the n-th result without an id. */
static const generation_call *call_of(const generation *gen, const generation_result *r) {
    for (size_t i = gen->n_calls; i-- > 0 && r->id;)
        if (gen->calls[i].id && strcmp(gen->calls[i].id, r->id) == 0) return &gen->calls[i];
    const size_t n = (size_t)(r - gen->results);
    return !r->id && n < gen->n_calls ? &gen->calls[n] : NULL;
}

static bool add_result(chat_json *c, json_t *message, size_t i) {
    const generation *gen = c->gen;
    char id[32];
    if (c->result >= gen->n_results || gen->results[c->result].message != i) return true;
    const generation_result *r = &gen->results[c->result++];
    const generation_call *call = call_of(gen, r);
    if (!call) return !r->id || set(message, "tool_call_id", id_json(c, r->id));
    snprintf(id, sizeof(id), "call_%zu", (size_t)(call - gen->calls));
    return set(message, "name", json_string(call->name)) && set(message, "tool_call_id", id_json(c, call->id ? call->id : id));
}

/* Reasoning has two names among templates. */
static bool add_reasoning(chat_json *c, json_t *message, size_t i) {
    const generation *gen = c->gen;
    base_buffer text = BASE_BUFFER(SERVER_MAX_JOINED_BYTES);
    bool ok = true;
    for (; c->reasoning < gen->n_reasonings && gen->reasonings[c->reasoning].message == i && ok; c->reasoning++)
        ok = base_buffer_append_str(&text, gen->reasonings[c->reasoning].text) == 0;
    const char *name = !rp_template_uses(c->t, "reasoning_content") && rp_template_uses(c->t, "thinking") ? "thinking" : "reasoning_content";
    if (ok && text.len > 0) ok = set(message, name, json_stringn(text.data, text.len));
    base_buffer_free(&text);
    return ok;
}

static json_t *message_json(chat_json *c, size_t i) {
    static const char *const roles[RP_N_ROLES] = {"system", "user", "assistant", "tool"};
    const rp_message *m = &c->gen->messages[i];
    json_t *message = json_pack("{s:s, s:s%}", "role", roles[m->role], "content", m->text, m->n);
    if (message && add_reasoning(c, message, i) && add_calls(c, message, i) && add_result(c, message, i)) return message;
    return json_decref(message), NULL;
}

static size_t count_leading_systems(const generation *gen) {
    size_t n = 0;
    while (n < gen->n_messages && gen->messages[n].role == RP_ROLE_SYSTEM) n++;
    return n;
}

/* From message `first` on, besides the leading system messages. */
static json_t *messages_json(chat_json *c, size_t first) {
    const size_t n_leading = count_leading_systems(c->gen);
    json_t *all = json_array();
    for (size_t i = 0; i < c->gen->n_messages && all; i++) {
        json_t *message = message_json(c, i);
        if (!message || ((i < n_leading || i >= first) && json_array_append(all, message))) json_decref(all), all = NULL;
        json_decref(message);
    }
    return all;
}

static json_t *tools_json(const generation *gen) {
    json_t *all = json_array();
    for (size_t i = 0; i < gen->form.n_tools && all; i++)
        if (!gen->form.tools[i].barred && json_array_append_new(all, tool_text_json(&gen->form.tools[i]))) json_decref(all), all = NULL;
    return all;
}

/* Variables with control tokens, which are the model's: a client's are left out. */
static const char *const names_of_model[] = {"bos_token", "eos_token", "unk_token", "pad_token"};

static bool is_of_model(const char *name) {
    for (size_t i = 0; i < BASE_ARRAY_LEN(names_of_model); i++)
        if (strcmp(names_of_model[i], name) == 0) return true;
    return false;
}

static void report_names_of_model(server_request *x) {
    for (size_t i = 0; i < BASE_ARRAY_LEN(names_of_model); i++)
        if (json_object_get(x->gen->template_kwargs, names_of_model[i]))
            generation_ignore(x->gen, &x->problem, "chat_template_kwargs.%s: the model's own is used", names_of_model[i]);
}

static bool add_variables(const generation *gen, json_t *input) {
    const char *name;
    json_t *item;
    bool ok = true;
    json_object_foreach((json_t *)gen->template_kwargs, name, item) ok = ok && (is_of_model(name) || json_object_set(input, name, item) == 0);
    if (gen->form.thinking != THINKING_UNSET) {
        ok = ok && set(input, "enable_thinking", json_boolean(gen->form.thinking == THINKING_ON));
        ok = ok && set(input, "thinking", json_boolean(gen->form.thinking == THINKING_ON));
    }
    if (gen->reasoning_effort) ok = ok && set(input, "reasoning_effort", json_string(gen->reasoning_effort));
    return ok;
}

/* The variables as transformers sets them: what is not given is None. */
static json_t *input_json(const server_request *x, chat_style style, size_t first) {
    const generation *gen = x->gen;
    const bool has_tools = answer_form_may_call(&gen->form) && chat_rendering_has_tools(x);
    chat_json c = {.gen = gen, .t = rp_model_template(x->model->model), .style = style};
    json_t *input = json_object();
    if (input && set(input, "tools", json_null()) && set(input, "documents", json_null()) && add_variables(gen, input) &&
        (!has_tools || set(input, "tools", tools_json(gen))) && set(input, "messages", messages_json(&c, first)) &&
        set(input, "add_generation_prompt", json_boolean(!gen->continues_last)))
        return input;
    return json_decref(input), NULL;
}

/* ---- Origins ---- */

static uint32_t count_strings(const json_t *json) {
    const char *name;
    json_t *item;
    uint32_t n = json_is_string(json) ? 1 : 0;
    json_object_foreach((json_t *)json, name, item) n += count_strings(item);
    for (size_t i = 0; i < json_array_size(json); i++) n += count_strings(json_array_get(json, i));
    return n;
}

/* Numbers the contents as rp_template_render numbers the strings of its input: in the order of the JSON text. In a message the content follows the
 * role. */
static bool number_contents(generation *gen, const json_t *input, size_t first) {
    const json_t *messages = json_object_get(input, "messages");
    const size_t n_leading = count_leading_systems(gen);
    const char *name;
    json_t *item;
    uint32_t n = RP_TEMPLATE_FIRST_STRING;
    uint32_t *sources = base_realloc(gen->rendered_sources, BASE_MAX(gen->n_messages, 1) * sizeof(*sources));
    if (!sources) return false;
    gen->rendered_sources = sources;
    json_object_foreach((json_t *)input, name, item) {
        if (item == messages) break;
        n += count_strings(item);
    }
    for (size_t i = 0, k = 0; i < gen->n_messages; i++) {
        const bool kept = i < n_leading || i >= first;
        sources[i] = kept ? n + 1 : 0;
        if (kept) n += count_strings(json_array_get(messages, k++));
    }
    return true;
}

size_t chat_rendering_dropped(const generation *gen) {
    size_t n = 0;
    for (size_t i = 0; i < gen->n_messages && gen->rendered; i++) n += gen->rendered_sources[i] == 0;
    return n;
}

/* ---- Merging ---- */

typedef struct merged_messages {
    base_buffer text;
    rp_message *items;
    size_t n;
    size_t *to, *offset; /* [messages of the request]: where each went */
} merged_messages;

static int merge_append(merged_messages *m, rp_role role, const rp_message *message, size_t i, bool joins) {
    if (!joins) {
        base_buffer_clear(&m->text);
        m->items[m->n++] = (rp_message){.role = role};
    } else if (m->text.len > 0 && message->n > 0 && base_buffer_append_str(&m->text, "\n\n")) return RP_ERR_MEMORY;
    m->to[i] = m->n - 1;
    m->offset[i] = m->text.len;
    return base_buffer_append(&m->text, message->text, message->n);
}

/* Joins consecutive messages of users and of the assistant; system messages belong to the user's message after them. Calls and results stay as they
 * are. */
static int merge_all(generation *gen, merged_messages *m, server_problem *p) {
    int last = -1;
    for (size_t i = 0; i < gen->n_messages; i++) {
        const rp_message *message = &gen->messages[i];
        const rp_role role = message->role == RP_ROLE_SYSTEM ? RP_ROLE_USER : message->role;
        if (merge_append(m, role, message, i, (int)role == last && role != RP_ROLE_TOOL)) return server_fail_memory(p);
        last = (int)role;
        const bool ends = i + 1 == gen->n_messages || gen->messages[i + 1].role == RP_ROLE_TOOL ||
                          (gen->messages[i + 1].role == RP_ROLE_SYSTEM ? RP_ROLE_USER : gen->messages[i + 1].role) != role || role == RP_ROLE_TOOL;
        if (!ends) continue;
        m->items[m->n - 1].n = m->text.len;
        m->items[m->n - 1].text = generation_keep(gen, m->text.data ? m->text.data : "", p);
        if (p->kind) return (int)p->kind;
    }
    return SERVER_FINE;
}

static int merge_messages(generation *gen, server_problem *p) {
    const size_t n = gen->n_messages;
    merged_messages m = {.text = BASE_BUFFER(SERVER_MAX_JOINED_BYTES)};
    m.items = base_calloc(n, sizeof(*m.items));
    m.to = base_calloc(n, sizeof(*m.to));
    m.offset = base_calloc(n, sizeof(*m.offset));
    int kind = m.items && m.to && m.offset ? merge_all(gen, &m, p) : server_fail_memory(p);
    if (!kind) {
        for (size_t i = 0; i < gen->n_parts; i++) {
            server_part *part = &gen->parts[i];
            part->begin += m.offset[part->message];
            part->end += m.offset[part->message];
            part->message = m.to[part->message];
        }
        for (size_t i = 0; i < gen->n_calls; i++) gen->calls[i].message = m.to[gen->calls[i].message];
        for (size_t i = 0; i < gen->n_results; i++) gen->results[i].message = m.to[gen->results[i].message];
        for (size_t i = 0; i < gen->n_reasonings; i++) gen->reasonings[i].message = m.to[gen->reasonings[i].message];
        for (int k = 0; k < SERVER_N_MARKS; k++)
            if (gen->marked[k].n_messages > 0) gen->marked[k].n_messages = m.to[gen->marked[k].n_messages - 1] + 1;
        base_free(gen->messages);
        gen->messages = m.items;
        gen->n_messages = m.n;
        gen->cap_messages = n;
        m.items = NULL;
    }
    base_buffer_free(&m.text);
    base_free(m.items);
    base_free(m.to);
    base_free(m.offset);
    return kind;
}

/* ---- Rendering ---- */

char *chat_rendering_input(const server_request *x) {
    json_t *input = input_json(x, x->gen->rendered_style, x->gen->rendered_first);
    char *json = input ? base_json_text(input, JSON_COMPACT) : NULL;
    json_decref(input);
    return json;
}

/* false: the client has left, the server ends, or the deadline has passed. */
static bool rendering_goes_on(void *user) {
    server_request *x = user;
    pthread_mutex_lock(&x->lock);
    const bool gone = x->gone;
    pthread_mutex_unlock(&x->lock);
    return !gone && (x->gen->deadline_ms <= 0 || base_clock_us() - x->arrived_us < (uint64_t)x->gen->deadline_ms * 1000);
}

/* A template that takes too many steps or too much memory is the fault of the model's file, not of the client. */
static int rendering_fail(server_request *x, int rc, const rp_error *err) {
    if (rc == RP_ERR_CANCELLED) {
        pthread_mutex_lock(&x->lock);
        const bool gone = x->gone;
        pthread_mutex_unlock(&x->lock);
        if (gone) return server_fail(&x->problem, SERVER_CANCELLED, NULL, "the client disconnected");
        return server_fail(&x->problem, SERVER_DEADLINE, "deadline_ms", "the deadline of %d ms passed while the chat template was rendered",
                           (int)x->gen->deadline_ms);
    }
    if (rc == RP_ERR_LIMIT && err->where[0])
        return server_fail(&x->problem, SERVER_INTERNAL, NULL, "%s: the model needs another chat template, or a shorter conversation", err->message);
    return server_fail_library(&x->problem, err);
}

/* Renders the messages from `first` on. */
static int render(server_request *x, chat_style style, size_t first, rp_error *err) {
    generation *gen = x->gen;
    gen->rendered_style = style;
    gen->rendered_first = first;
    json_t *input = input_json(x, style, first);
    char *json = input && number_contents(gen, input, first) ? base_json_text(input, JSON_COMPACT) : NULL;
    json_decref(input);
    if (!json) return server_fail_memory(&x->problem), RP_ERR_MEMORY;
    rp_template_text *text = NULL;
    rp_template_options options = rp_template_options_defaults();
    options.steps_left = &gen->steps_left;
    options.on_look = rendering_goes_on;
    options.user = x;
    const int rc = rp_model_render(x->model->model, json, strlen(json), &options, &text, err);
    base_free(json);
    rp_template_text_free(gen->rendered);
    gen->rendered = text;
    return rc;
}

/* What the template seems to miss, from the text of its error. false: nothing that can be given. */
static bool adapt(server_request *x, chat_style *style, const rp_error *err) {
    if (!style->short_ids && strstr(err->message, "length 9")) return style->short_ids = true;
    if (!style->text_arguments && x->gen->n_calls > 0 && strstr(err->message, "TypeError")) return style->text_arguments = true;
    if (style->merged || x->gen->n_messages < 2) return false;
    style->merged = true;
    return merge_messages(x->gen, &x->problem) == SERVER_FINE;
}

/* The text after the last content of the request. */
static void find_reasoning(generation *gen) {
    const rp_template_text *text = gen->rendered;
    size_t from = 0;
    for (size_t i = 0; i + 1 < text->n_runs; i++)
        if (text->runs[i].origin != RP_TEMPLATE_TRUSTED) from = text->runs[i].end;
    if (text->n_runs > 0 && text->runs[text->n_runs - 1].origin != RP_TEMPLATE_TRUSTED && !gen->continues_last) from = text->n;
    gen->form.reasoning_open = tool_convention_opens_reasoning(&gen->form.convention, text->bytes + from, text->n - from);
}

/* Where the contents of messages end. Contents that the template left out, or wrote in another order, are no turns. */
static int find_turns(generation *gen, server_problem *p) {
    const rp_template_text *text = gen->rendered;
    size_t end = 0;
    gen->rendered_turns = base_calloc(gen->n_messages, sizeof(*gen->rendered_turns));
    if (!gen->rendered_turns) return server_fail_memory(p);
    for (size_t i = 0, run = 0; i < gen->n_messages; i++) {
        const uint32_t source = gen->rendered_sources[i];
        size_t k = run;
        while (k < text->n_runs && text->runs[k].origin != source) k++;
        if (source == 0 || k == text->n_runs) continue;
        for (; k < text->n_runs && text->runs[k].origin == source; k++) end = text->runs[k].end;
        gen->rendered_turns[gen->n_rendered_turns++] = (rp_rendered_turn){end, gen->messages[i].role};
        run = k;
    }
    return SERVER_FINE;
}

/* How many runs end with the content of the last message; 0: it has none. */
static size_t runs_to_last(const generation *gen) {
    const uint32_t source = gen->rendered_sources[gen->n_messages - 1];
    size_t n_runs = gen->rendered->n_runs;
    while (n_runs > 0 && gen->rendered->runs[n_runs - 1].origin != source) n_runs--;
    return n_runs;
}

/* The answer continues the last message: what the template writes after its content is cut off. */
static void cut_after_last(generation *gen) {
    rp_template_text *text = gen->rendered;
    const size_t n_runs = runs_to_last(gen);
    if (n_runs == 0) return; /* an empty message alone */
    text->n_runs = n_runs;
    text->n = text->runs[n_runs - 1].end;
    text->bytes[text->n] = '\0';
}

/* The last message has no content to continue: a new answer is the same. */
static void leave_out_last(generation *gen) {
    gen->n_messages--;
    gen->continues_last = false;
    while (gen->n_parts > 0 && gen->parts[gen->n_parts - 1].message >= gen->n_messages) gen->n_parts--;
}

static int count_rendered(server_request *x, size_t *n) {
    int32_t *tokens = NULL;
    rp_error err;
    if (rp_tokenize_rendered(x->model->model, x->gen->rendered, &tokens, n, &err)) return server_fail_library(&x->problem, &err);
    rp_free(tokens);
    return SERVER_FINE;
}

#define PIECES 4 /* of the context: whole ones are dropped, so that the next turns hit the prefix cache; the answer gets one at most */

/* Renders the conversation from message `first` on, and counts its tokens. */
static int render_and_count(server_request *x, chat_style style, size_t first, size_t *n) {
    rp_error err;
    const int rc = render(x, style, first, &err);
    if (x->problem.kind) return (int)x->problem.kind;
    return rc ? rendering_fail(x, rc, &err) : count_rendered(x, n);
}

/* Leaves out the oldest turns: the conversation goes on with the first message of the user, of users[n], with which it has `most` tokens; at
 * least with the last one. */
static int drop_turns(server_request *x, chat_style style, const size_t *users, size_t n_users, int64_t most) {
    size_t low = 0, high = n_users - 1, n = 0;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (render_and_count(x, style, users[middle], &n)) return (int)x->problem.kind;
        if ((int64_t)n <= most) high = middle;
        else low = middle + 1;
    }
    return render_and_count(x, style, users[low], &n);
}

static int truncate_oldest(server_request *x, chat_style style) {
    const generation *gen = x->gen;
    rp_engine_info info = {.struct_size = sizeof(info)};
    size_t n = 0, n_users = 0;
    rp_engine_describe(x->model->engine, &info);
    const int32_t wanted = gen->max_tokens >= 0 ? gen->max_tokens : x->server->options.default_max_tokens;
    const int64_t answer = BASE_MIN(BASE_MAX(wanted, 1), info.n_ctx / PIECES), piece = BASE_MAX(info.n_ctx / PIECES, 1);
    if (count_rendered(x, &n)) return (int)x->problem.kind;
    const int64_t excess = (int64_t)n - (info.n_ctx - answer);
    size_t *users = excess > 0 ? base_calloc(gen->n_messages, sizeof(*users)) : NULL;
    if (excess <= 0) return SERVER_FINE;
    if (!users) return server_fail_memory(&x->problem);
    for (size_t i = count_leading_systems(gen) + 1; i < gen->n_messages; i++)
        if (gen->messages[i].role == RP_ROLE_USER) users[n_users++] = i;
    /* without a later message of the user the engine refuses the prompt */
    int kind = n_users > 0 ? drop_turns(x, style, users, n_users, (int64_t)n - (excess + piece - 1) / piece * piece) : SERVER_FINE;
    base_free(users);
    return kind;
}

int chat_rendering_make(server_request *x) {
    chat_style style = {0};
    rp_error err, first;
    if (x->problem.kind || x->gen->rendered) return (int)x->problem.kind;
    report_names_of_model(x);
    x->gen->steps_left = RP_TEMPLATE_MAX_STEPS;
    int rc = render(x, style, 0, &err);
    first = err;
    while (rc == RP_ERR_INVALID && !x->problem.kind && adapt(x, &style, &err)) rc = render(x, style, 0, &err);
    if (!rc && x->gen->continues_last && x->gen->n_messages > 1 && runs_to_last(x->gen) == 0) {
        leave_out_last(x->gen);
        rc = render(x, style, 0, &err);
    }
    if (x->problem.kind) return (int)x->problem.kind;
    if (rc) return rendering_fail(x, rc, rc == RP_ERR_INVALID ? &first : &err);
    if (x->gen->truncates && truncate_oldest(x, style)) return (int)x->problem.kind;
    if (x->gen->continues_last) cut_after_last(x->gen);
    find_reasoning(x->gen);
    return find_turns(x->gen, &x->problem);
}
