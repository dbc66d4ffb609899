/* SPDX-License-Identifier: Apache-2.0 */
/* ollama.c: /api/generate and /api/chat of Ollama: fields, defaults, lines and timings. Owns nothing. */
#include "server/dialects/ollama.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "server/answers/report.h"
#include "server/dialects/dialect_handlers.h"
#include "server/dialects/openai.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"
#include "server/prompt/known_fields.h"

/* ---- fields ---- */

/* Ollama's options of sampling. A negative num_predict selects the server's default. */
static void parse_options(generation *gen, const server_fields *f) {
    rp_sampling *s = &gen->sampling;
    const json_t *options = server_field_object(f, "options");
    server_fields o = {options, f->problem, "options."};
    gen->otherwise.temperature = 0.8f; /* Ollama's defaults */
    gen->otherwise.top_k = 40;
    gen->otherwise.top_p = 0.9f;
    gen->otherwise.repeat_penalty = 1.1f;
    gen->otherwise.repeat_last = 64;
    if (!options) return;
    server_field_int(&o, "num_predict", INT32_MIN, INT32_MAX, &gen->max_tokens);
    if (gen->max_tokens <= 0) gen->max_tokens = -1;
    server_field_real(&o, "temperature", 0, 100, &s->temperature);
    generation_top_k(gen, &o, "top_k");
    server_field_real(&o, "top_p", 0, 1, &s->top_p);
    server_field_real(&o, "min_p", 0, 1, &s->min_p);
    server_field_real(&o, "typical_p", 0, 1, &s->typical);
    server_field_real(&o, "repeat_penalty", 0, 100, &s->repeat_penalty);
    if (s->repeat_penalty < 0.01f) s->repeat_penalty = 1; /* Open WebUI's 0 is none */
    server_field_int(&o, "repeat_last_n", -1, INT32_MAX, &s->repeat_last);
    server_field_real(&o, "presence_penalty", -100, 100, &s->presence_penalty);
    server_field_real(&o, "frequency_penalty", -100, 100, &s->frequency_penalty);
    gen->has_seed = server_field_seed(&o, "seed", &s->seed);
    generation_stops(gen, &o, "stop");
    generation_known(gen, &o,
                     "num_predict temperature top_k top_p min_p typical_p repeat_penalty repeat_last_n "
                     "presence_penalty frequency_penalty "
                     "seed stop num_ctx num_batch num_gpu main_gpu num_thread num_keep use_mmap use_mlock numa "
                     "low_vram f16_kv vocab_only");
}

/* "json", or a schema. */
static void parse_format(generation *gen, const server_fields *f) {
    const json_t *format = server_field(f, "format");
    const char *name = json_string_value(format);
    if (!format || (name && !name[0])) return;
    if (json_is_object(format)) gen->form.schema = format;
    else if (!name || strcmp(name, "json") != 0) server_field_wrong(f, "format", format, "\"json\" or a JSON Schema");
    gen->form.place = "format";
    gen->form.wants_json = true;
}

static void refuse_images(const server_fields *f) {
    if (json_array_size(server_field_array(f, "images")) > 0)
        server_fail(f->problem, SERVER_UNSUPPORTED, "images", "'%simages': this model accepts text only", f->prefix);
}

#define COMMON_FIELDS SERVER_EXTRA_FIELDS "model stream options format keep_alive think logprobs top_logprobs "

static void parse_common(generation *gen, const server_fields *f) {
    bool wants_logprobs = false;
    int32_t n_logprobs = 0;
    gen->stream = true;
    gen->default_tokens = SERVER_UNLIMITED_TOKENS;
    server_field_text(f, "model", &gen->model);
    if (!gen->model || !gen->model[0])
        server_fail(f->problem, SERVER_INVALID, "model", "'model' is missing: give a name of GET /api/tags");
    server_field_bool(f, "stream", &gen->stream);
    parse_options(gen, f);
    parse_format(gen, f);
    const json_t *keep = server_field(f, "keep_alive"); /* nothing is unloaded, so a duration has no effect */
    if (keep && !json_is_string(keep) && !json_is_number(keep))
        server_field_wrong(f, "keep_alive", keep, "a duration as \"5m\", or seconds");
    const json_t *think = server_field(f, "think"); /* a bool or an effort */
    if (json_is_boolean(think)) generation_set_thinking(gen, json_is_true(think));
    else if (json_is_string(think)) generation_set_effort(gen, json_string_value(think), "think", f->problem);
    else if (think) server_field_wrong(f, "think", think, "a bool or an effort as \"low\"");
    server_field_bool(f, "logprobs", &wants_logprobs);
    server_field_int(f, "top_logprobs", 0, OPENAI_MAX_TOP_LOGPROBS, &n_logprobs);
    if (wants_logprobs) gen->n_logprobs = n_logprobs;
    generation_extras(gen, f);
}

int ollama_parse_generate(generation *gen, server_problem *p) {
    server_fields f = {gen->root, p, ""};
    const char *system = NULL, *prompt = "", *template = "", *suffix = "";
    bool raw = false;
    parse_common(gen, &f);
    server_field_text(&f, "system", &system);
    server_field_text(&f, "prompt", &prompt);
    server_field_text(&f, "template", &template);
    server_field_bool(&f, "raw", &raw);
    server_field_text(&f, "suffix", &suffix);
    refuse_images(&f);
    if (suffix[0]) gen->infill = (server_infill){.wanted = true, .suffix = suffix, .n_suffix = strlen(suffix)};
    if (template[0]) generation_ignore(gen, p, "the field 'template'");
    if (raw && json_array_size(server_field_array(&f, "context")) > 0)
        server_fail(p, SERVER_INVALID, "context", "'context' cannot be combined with 'raw': leave one of them out");
    if (raw || suffix[0]) generation_prompts(gen, &f, "prompt", false);
    else {
        if (system && system[0]) generation_text_message(gen, RP_ROLE_SYSTEM, system, p);
        generation_text_message(gen, RP_ROLE_USER, prompt, p);
    }
    generation_known(gen, &f, COMMON_FIELDS "prompt system template raw suffix images context");
    return (int)p->kind;
}

/* {"function": {"name": ..., "arguments": {...}}}: a call of the last message. */
static void parse_call(generation *gen, const json_t *call, const char *prefix, server_problem *p) {
    char inside[96];
    const char *id = NULL, *name = NULL;
    server_fields f = {call, p, prefix};
    snprintf(inside, sizeof(inside), "%.80sfunction.", prefix);
    const json_t *function = json_is_object(call) ? server_field_object(&f, "function") : NULL;
    if (!p->kind && !function) server_fail(p, SERVER_INVALID, "messages", "'%.80s' needs a function", prefix);
    if (p->kind) return;
    server_fields g = {function, p, inside};
    server_field_text(&f, "id", &id);
    server_field_text(&g, "name", &name);
    const json_t *arguments =
        server_field(&g, "arguments"); /* or, from clients that speak to OpenAI as well, its text */
    if (arguments && !json_is_string(arguments)) arguments = server_field_object(&g, "arguments");
    if (!p->kind && !name) server_fail(p, SERVER_INVALID, "messages", "'%sname' is missing", inside);
    if (p->kind) return;
    char *text = json_is_object(arguments) ? base_json_text(arguments, 0)
                                           : NULL; /* as models write it: a space after ':' and ',' */
    const char *kept = text ? generation_keep(gen, text, p) : json_string_value(arguments);
    base_free(text);
    if (!kept || !kept[0]) kept = "{}";
    generation_add_call(gen, id && id[0] ? id : NULL, name, kept, p);
}

static void parse_calls(generation *gen, const server_fields *f) {
    const json_t *calls = server_field_array(f, "tool_calls");
    for (size_t i = 0; i < json_array_size(calls) && !f->problem->kind; i++) {
        char prefix[80];
        snprintf(prefix, sizeof(prefix), "%.40stool_calls[%zu].", f->prefix, i);
        parse_call(gen, json_array_get(calls, i), prefix, f->problem);
    }
}

static void parse_message(generation *gen, const json_t *message, size_t i, server_problem *p) {
    const char *name = "", *content = "", *id = NULL, *thinking = "";
    char prefix[48];
    rp_role role;
    snprintf(prefix, sizeof(prefix), "messages[%zu].", i);
    server_fields f = {message, p, prefix};
    if (!json_is_object(message)) server_fail(p, SERVER_INVALID, "messages", "'messages[%zu]' is not an object", i);
    server_field_text(&f, "role", &name);
    server_field_text(&f, "content", &content);
    server_field_text(&f, "tool_call_id", &id);
    server_field_text(&f, "thinking", &thinking);
    refuse_images(&f);
    if (!rp_role_parse(name, &role))
        server_fail(p, SERVER_INVALID, "messages", "'%srole' is '%.40s': give system, user, assistant or tool", prefix,
                    name);
    if (p->kind) return;
    generation_text_message(gen, role, content, p);
    if (role == RP_ROLE_ASSISTANT) generation_add_reasoning(gen, thinking, p);
    if (role == RP_ROLE_ASSISTANT) parse_calls(gen, &f);
    if (role == RP_ROLE_TOOL) generation_add_result(gen, id && id[0] ? id : NULL, false, "messages", p);
}

static const server_known_fields inside[] = {
    {"messages[]", "role content thinking images tool_calls tool_name tool_call_id name"},
    {"messages[].tool_calls[]", "id type function"},
    {"messages[].tool_calls[].function", "index name arguments"},
    {"tools[]", "type function"},
    {"tools[].function", "name description parameters strict"},
};

int ollama_parse_chat(generation *gen, server_problem *p) {
    server_fields f = {gen->root, p, ""};
    parse_common(gen, &f);
    const json_t *messages = server_field_array(&f, "messages");
    for (size_t i = 0; i < json_array_size(messages) && !p->kind; i++)
        parse_message(gen, json_array_get(messages, i), i, p);
    openai_parse_tool_list(gen, server_field_array(&f, "tools"), "tools", OPENAI_NESTED, p);
    generation_known(gen, &f, COMMON_FIELDS "messages tools");
    generation_known_inside(gen, inside, BASE_ARRAY_LEN(inside), p);
    return (int)p->kind;
}

/* ---- answers ---- */

static bool is_chat(const server_request *x) { return strcmp(x->route->path, "/api/chat") == 0; }

/* What an object has of an answer. Takes its parts over; all but the content may be NULL. */
typedef struct ollama_answer {
    json_t *content, *thinking, *calls, *logprobs;
} ollama_answer;

/* {"model": ..., "created_at": ..., "message": {...} or "response": "...", "done": ...} */
static json_t *object_of(const server_request *x, ollama_answer a, bool done) {
    char now[OLLAMA_TIME_BYTES];
    ollama_write_time(x, now);
    bool chat = is_chat(x);
    const char *name = x->gen->model ? x->gen->model : server_request_model(x); /* as Ollama does: the client's words */
    json_t *answer = a.content;
    if (chat) answer = json_pack("{s:s, s:o, s:o*, s:o*}", "role", "assistant", "content", a.content, "thinking",
                                 a.thinking, "tool_calls", a.calls);
    return json_pack("{s:s, s:s, s:o, s:o*, s:b, s:o*}", "model", name, "created_at", now,
                     chat ? "message" : "response", answer, "thinking", chat ? NULL : a.thinking, "done", done,
                     "logprobs", a.logprobs);
}

static json_int_t nanoseconds(double ms) { return ms > 0 ? (json_int_t)(ms * 1e6) : 0; }

/* The model is loaded before the server is ready: load_duration is 0. */
static json_t *counts_of(const rp_result *r) {
    const rp_timings *t = &r->timings;
    return json_pack("{s:s, s:I, s:I, s:i, s:i, s:I, s:i, s:I}", "done_reason",
                     report_finish(r) == SERVER_FINISH_STOP ? "stop" : "length", "total_duration",
                     nanoseconds(t->ttft_ms + t->decode_ms), "load_duration", (json_int_t)0, "prompt_eval_count",
                     (int)r->prompt_tokens, "prompt_eval_cached_count", (int)r->cached_tokens, "prompt_eval_duration",
                     nanoseconds(t->ttft_ms - t->queue_ms), "eval_count", (int)r->n_tokens, "eval_duration",
                     nanoseconds(t->decode_ms));
}

/* The last object of an answer. */
static json_t *last_object(const server_request *x, const server_choice *c, ollama_answer a) {
    json_t *all = object_of(x, a, true), *counts = counts_of(c->result);
    int failed = !all || !counts || json_object_update(all, counts);
    json_decref(counts);
    if (!failed && !is_chat(x)) failed = json_object_set_new(all, "context", ollama_context(x, c));
    if (!failed) failed = json_object_set_new(all, "reprise", report_reprise(x));
    if (!failed) return all;
    json_decref(all);
    return NULL;
}

/* A complete call; NULL for an incomplete one, or out of memory. */
static json_t *call_of(const server_request *x, const server_choice *c, const tool_item *item) {
    char id[TOOL_CALL_ID_BYTES];
    json_t *arguments = tool_item_arguments(item);
    if (!arguments) return NULL;
    tool_call_id(id, "call_", x->id, c->index, item->number);
    return json_pack("{s:s, s:{s:i, s:s, s:o}}", "id", id, "function", "index", (int)item->number, "name",
                     item->tool->name, "arguments", arguments);
}

/* NULL: none. */
static json_t *calls_of(const server_request *x, const server_choice *c) {
    json_t *list = NULL;
    for (size_t i = 0; i < c->finder.n_items; i++) {
        json_t *call = c->finder.items[i].tool ? call_of(x, c, &c->finder.items[i]) : NULL;
        if (!call) continue;
        if (!list) list = json_array();
        json_array_append_new(list, call);
    }
    return list;
}

static json_t *ollama_whole(server_request *x) {
    BASE_ASSERT(x->answers->n_choices == 1);
    const server_choice *c = &x->answers->choices[0];
    json_t *thinking = generate_is_parsed(c) ? generate_reasoning(c) : NULL;
    if (json_string_length(thinking) == 0) json_decref(thinking), thinking = NULL;
    json_t *logprobs = x->gen->n_logprobs >= 0 ? openai_result_logprobs(x, c->result) : NULL;
    return last_object(x, c, (ollama_answer){generate_text(c), thinking, calls_of(x, c), logprobs});
}

static json_t *piece_logprobs(const server_request *x, const server_piece *piece) {
    return x->gen->n_logprobs >= 0 ? openai_piece_logprobs(x, piece) : NULL;
}

static int ollama_piece(server_request *x, server_choice *c, const server_piece *piece) {
    (void)c;
    const ollama_answer answer = {.content = base_json_string(piece->text, piece->n),
                                  .logprobs = piece_logprobs(x, piece)};
    return server_request_line(x, object_of(x, answer, false));
}

static int ollama_reasoning(server_request *x, server_choice *c, const server_piece *piece) {
    (void)c;
    const ollama_answer answer = {json_string(""), base_json_string(piece->text, piece->n), NULL,
                                  piece_logprobs(x, piece)};
    return server_request_line(x, object_of(x, answer, false));
}

/* A call is sent when it is complete; one that the limit has cut is text. */
static int ollama_call(server_request *x, server_choice *c, tool_event event, const tool_item *item, const char *bytes,
                       size_t n) {
    (void)bytes;
    (void)n;
    if (event != TOOL_END) return 0;
    BASE_ASSERT(item->tool);
    json_t *call = call_of(x, c, item);
    if (!call) return server_request_line(x, object_of(x, (ollama_answer){.content = tool_item_source(item)}, false));
    return server_request_line(
        x, object_of(x, (ollama_answer){json_string(""), NULL, json_pack("[o]", call), NULL}, false));
}

static int ollama_close(server_request *x, server_choice *c) {
    BASE_ASSERT(c == x->answers->choices && c->result);
    return server_request_line(x, last_object(x, c, (ollama_answer){.content = json_string("")}));
}

static int ollama_fail(server_request *x, const server_problem *p) {
    return server_request_line(x, server_problem_ollama(p));
}

static const server_form chat_form = {
    .parse = ollama_parse_chat,
    .whole = ollama_whole,
    .piece = ollama_piece,
    .close = ollama_close,
    .fail = ollama_fail,
    .call = ollama_call,
    .reasoning = ollama_reasoning,
};
static const server_form generate_form = {
    .parse = ollama_parse_generate,
    .whole = ollama_whole,
    .piece = ollama_piece,
    .close = ollama_close,
    .fail = ollama_fail,
    .reasoning = ollama_reasoning,
};

/* ---- routes ---- */

static void reply_loaded(server_request *x) {
    const json_t *keep = json_object_get(x->gen->root, "keep_alive");
    bool unloads = json_is_number(keep) ? json_number_value(keep) == 0
                                        : json_is_string(keep) && strcmp(json_string_value(keep), "0") == 0;
    json_t *all = object_of(x, (ollama_answer){.content = json_string("")}, true);
    if (all) json_object_set_new(all, "done_reason", json_string(unloads ? "unload" : "load"));
    server_request_reply_json(x, 200, all);
}

static void ollama_handle(server_request *x, const server_form *form) {
    json_t *root = server_request_json(x);
    x->is_lines = true;
    if (root) generation_parse(x->gen, root, form->parse, &x->problem);
    json_decref(root);
    /* A request without a prompt loads the model, or unloads it with keep_alive 0. Here it is loaded always. */
    const json_t *prompt = json_object_get(x->gen->root, "prompt");
    const bool loads = !x->problem.kind && (is_chat(x) ? x->gen->n_messages == 0 : json_string_length(prompt) == 0);
    if (!x->problem.kind && !loads) ollama_continue(x);
    if (x->problem.kind) server_request_reply_problem(x);
    else if (loads) reply_loaded(x);
    else generate_begin(x, form);
}

void handle_ollama_generate(server_request *x) { ollama_handle(x, &generate_form); }

void handle_ollama_chat(server_request *x) { ollama_handle(x, &chat_form); }
