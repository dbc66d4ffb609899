/* SPDX-License-Identifier: Apache-2.0 */
/* anthropic.c: /v1/messages and /v1/messages/count_tokens. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "server/answers/report.h"
#include "server/answers/request_fingerprint.h"
#include "server/dialects/anthropic.h"
#include "server/dialects/dialect_handlers.h"
#include "server/dialects/dialects.h"
#include "server/dialects/openai.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"
#include "server/prompt/conversation_prompt.h"
#include "server/prompt/known_fields.h"
#include "server/prompt/tools.h"

/* ---- fields ---- */

#define MAX_MARKS 4 /* cache_control, the official limit */

/* A block's {"cache_control": {"type": "ephemeral", "ttl": "5m"}}: is it present? *is_long: set if it is kept for an
   hour. */
static bool is_marked(generation *gen, const json_t *block, const char *name, bool *is_long, server_problem *p) {
    static const generation_ttl ttls[] = {{"5m", 300}, {"1h", 3600}, {NULL, 0}};
    char prefix[96];
    const char *type = "";
    snprintf(prefix, sizeof(prefix), "%.60s.cache_control.", name);
    const json_t *mark = server_field_object(&(server_fields){block, p, ""}, "cache_control");
    if (!mark) return false;
    server_fields f = {mark, p, prefix};
    server_field_text(&f, "type", &type);
    if (!p->kind && strcmp(type, "ephemeral") != 0)
        server_fail(p, SERVER_INVALID, "cache_control", "%stype: is '%.40s': give ephemeral", prefix, type);
    gen->retention_s = BASE_MAX(gen->retention_s, ttls[0].seconds);
    generation_retain(gen, &f, "ttl", ttls);
    const char *ttl = json_string_value(json_object_get(mark, "ttl"));
    *is_long |= ttl && strcmp(ttl, ttls[1].name) == 0;
    return true;
}

/* How many blocks of a content, or tools of a list, ask to be cached. */
static int count_marks(generation *gen, const json_t *list, const char *name, bool *is_long, server_problem *p) {
    int n = 0;
    for (size_t i = 0; i < json_array_size(list) && !p->kind; i++)
        n += is_marked(gen, json_array_get(list, i), name, is_long, p);
    return n;
}

/* The messages so far are marked. */
static void mark_messages(generation *gen, bool is_long) {
    gen->marked[SERVER_MARK_ANY].n_messages = gen->n_messages;
    if (is_long) gen->marked[SERVER_MARK_LONG].n_messages = gen->n_messages;
}

static int anthropic_add(generation *gen, rp_role role, const json_t *content, const char *name, server_problem *p) {
    bool is_long = false;
    anthropic_add_content(gen, role, content, name, p);
    int n = count_marks(gen, content, name, &is_long, p);
    if (n > 0) mark_messages(gen, is_long);
    return n;
}

/* Returns how many of its blocks ask to be cached. */
static int anthropic_parse_message(generation *gen, const json_t *message, size_t i, server_problem *p) {
    char prefix[48], content[64];
    const char *role = "";
    snprintf(prefix, sizeof(prefix), "messages.%zu.", i);
    snprintf(content, sizeof(content), "%scontent", prefix);
    server_fields f = {message, p, prefix};
    if (!json_is_object(message)) server_fail(p, SERVER_INVALID, "messages", "messages.%zu: is not an object", i);
    server_field_text(&f, "role", &role);
    if (p->kind) return 0;
    /* Claude Code sends its reminders as messages of the system's within the conversation. */
    rp_role as = strcmp(role, "user") == 0 ? RP_ROLE_USER : strcmp(role, "system") == 0 ? RP_ROLE_SYSTEM
                                                                                        : RP_ROLE_ASSISTANT;
    if (as == RP_ROLE_ASSISTANT && strcmp(role, "assistant") != 0)
        server_fail(p, SERVER_INVALID, "messages", "%srole: is '%.40s': give user, assistant or system", prefix, role);
    else if (!server_field(&f, "content")) server_fail(p, SERVER_INVALID, "messages", "%s: is missing", content);
    else return anthropic_add(gen, as, json_object_get(message, "content"), content, p);
    return 0;
}

/* {"type": "enabled", "budget_tokens": 1024}, {"type": "disabled"}, or {"type": "adaptive"} or "between_tools": as the
   model likes it. */
static void parse_thinking(generation *gen, const server_fields *f) {
    const json_t *thinking = server_field_object(f, "thinking");
    server_fields g = {thinking, f->problem, "thinking."};
    const char *type = "";
    if (!thinking) return;
    server_field_text(&g, "type", &type);
    server_field_int(&g, "budget_tokens", 1, INT32_MAX, &gen->thinking_tokens);
    if (strcmp(type, "enabled") == 0) generation_set_thinking(gen, true);
    else if (strcmp(type, "disabled") == 0) generation_set_thinking(gen, false);
    else if (strcmp(type, "adaptive") != 0 && strcmp(type, "between_tools") != 0)
        server_fail(f->problem, SERVER_INVALID, "thinking",
                    "thinking.type: is '%.40s': give enabled, disabled, adaptive or between_tools", type);
}

/* {"effort": "low", "format": {"type": "json_schema", "schema": {...}}}; the format was the field output_format of a
   beta. */
static void parse_output(generation *gen, const server_fields *f) {
    const char *effort = NULL;
    server_fields g = {server_field_object(f, "output_config"), f->problem, "output_config."};
    server_field_text(&g, "effort", &effort);
    if (effort && !f->problem->kind) generation_set_effort(gen, effort, "output_config.effort", f->problem);
    openai_parse_format(gen, f, "output_format", OPENAI_FLAT);
    openai_parse_format(gen, &g, "format", OPENAI_FLAT);
}

#define BLOCK_FIELDS SERVER_PART_FIELDS "id input caller tool_use_id content is_error thinking signature data "
#define MARK_FIELDS "type ttl scope"

/* The fields of a conversation's objects that the messages routes use, and those that they ignore on purpose. */
static const server_known_fields inside[] = {
    {"cache_control", MARK_FIELDS},
    {"system[]", BLOCK_FIELDS},
    {"system[].cache_control", MARK_FIELDS},
    {"system[].source", SERVER_SOURCE_FIELDS},
    {"messages[]", "role content"},
    {"messages[].content[]", BLOCK_FIELDS},
    {"messages[].content[].cache_control", MARK_FIELDS},
    {"messages[].content[].source", SERVER_SOURCE_FIELDS},
    {"messages[].content[].citations", "enabled"},
    {"messages[].content[].content[]", BLOCK_FIELDS},
    {"messages[].content[].content[].source", SERVER_SOURCE_FIELDS},
    {"tools[]", "type name description input_schema strict cache_control input_examples allowed_callers defer_loading "
                "eager_input_streaming"},
    {"tools[].cache_control", MARK_FIELDS},
    {"tool_choice", "type name disable_parallel_tool_use"},
    {"thinking", "type budget_tokens display"},
    {"diagnostics", "previous_message_id"},
    {"output_format", "type name schema strict description"},
    {"output_config", "effort format task_budget"},
    {"output_config.format", "type name schema strict description"},
};

static void parse_conversation(generation *gen, const server_fields *f) {
    static const char *const unknown[] = {"mcp_servers", NULL};
    const json_t *system = server_field(f, "system"), *messages = server_field_array(f, "messages");
    server_field_text(f, "model", &gen->model);
    if (!gen->model) server_fail(f->problem, SERVER_INVALID, "model", "model: is missing");
    if (json_array_size(messages) == 0)
        server_fail(f->problem, SERVER_INVALID, "messages", "messages: give at least one");
    bool is_long = false;
    int marks = count_marks(gen, server_field(f, "tools"), "tools", &is_long, f->problem);
    gen->marked[SERVER_MARK_ANY].has_tools = marks > 0;
    gen->marked[SERVER_MARK_LONG].has_tools = is_long;
    is_long = false;
    if (system) marks += anthropic_add(gen, RP_ROLE_SYSTEM, system, "system", f->problem);
    for (size_t i = 0; i < json_array_size(messages) && !f->problem->kind; i++)
        marks += anthropic_parse_message(gen, json_array_get(messages, i), i, f->problem);
    if (is_marked(gen, f->object, "request", &is_long, f->problem)) { /* of the request itself: its last block */
        marks++;
        mark_messages(gen, is_long);
    }
    if (marks > MAX_MARKS)
        server_fail(f->problem, SERVER_INVALID, "cache_control",
                    "cache_control: is on %d blocks: at most %d are allowed", marks, MAX_MARKS);
    parse_thinking(gen, f);
    parse_output(gen, f);
    anthropic_parse_tools(gen, f);
    /* Is the last message a prefix of the answer? A message with tool calls is not: their results are missing. */
    const bool is_answer = gen->n_messages > 0 && gen->messages[gen->n_messages - 1].role == RP_ROLE_ASSISTANT;
    const bool has_calls = gen->n_calls > 0 && gen->calls[gen->n_calls - 1].message == gen->n_messages - 1;
    gen->continues_last = is_answer && !has_calls;
    openai_refuse(f, unknown);
    generation_known_inside(gen, inside, BASE_ARRAY_LEN(inside), f->problem);
}

int anthropic_parse_count(generation *gen, server_problem *p) {
    server_fields f = {gen->root, p, ""};
    parse_conversation(gen, &f);
    generation_known(gen, &f,
                     "model messages system tools tool_choice thinking output_format mcp_servers cache_control "
                     "output_config context_management");
    return (int)p->kind;
}

int anthropic_parse(generation *gen, server_problem *p) {
    server_fields f = {gen->root, p, ""};
    gen->otherwise.temperature = 1;
    parse_conversation(gen, &f);
    server_field_int(&f, "max_tokens", 1, INT32_MAX, &gen->max_tokens);
    if (gen->max_tokens < 0) server_fail(p, SERVER_INVALID, "max_tokens", "max_tokens: is missing");
    server_field_real(&f, "temperature", 0, 1, &gen->sampling.temperature);
    server_field_real(&f, "top_p", 0, 1, &gen->sampling.top_p);
    server_field_bool(&f, "stream", &gen->stream);
    generation_stops(gen, &f, "stop_sequences");
    gen->has_seed = server_field_seed(&f, "seed", &gen->sampling.seed);
    const server_fields diagnostics = {server_field_object(&f, "diagnostics"), p, "diagnostics."};
    if (diagnostics.object) { /* {"previous_message_id": "msg_..." or null} */
        gen->is_diagnosed = true;
        server_field_text(&diagnostics, "previous_message_id", &gen->compared_id);
    }
    generation_extras(gen, &f);
    generation_known(gen, &f,
                     SERVER_EXTRA_FIELDS
                     "model messages diagnostics system max_tokens temperature top_p stream stop_sequences seed "
                     "thinking tools tool_choice output_format mcp_servers "
                     "cache_control metadata service_tier output_config context_management container inference_geo");
    return (int)p->kind;
}

/* ---- usage: input_tokens are those that were neither read from the cache nor asked to be kept there ---- */

/* Computed tokens up to the last mark. With "reuse": "off" none is cached. */
static int64_t count_created(const server_request *x, server_usage u, server_mark mark) {
    if (x->gen->reuse == RP_REUSE_OFF || x->gen->adds_nothing) return 0;
    return BASE_MAX(BASE_MIN((int64_t)conversation_prompt_count_marked(x, mark), u.prompt) - u.cached, 0);
}

static json_t *usage_of(const server_request *x, server_usage u) {
    const int64_t created = count_created(x, u, SERVER_MARK_ANY),
                  kept = BASE_MIN(count_created(x, u, SERVER_MARK_LONG), created);
    return json_pack("{s:I, s:I, s:{s:I, s:I}, s:I, s:I}", "input_tokens", (json_int_t)(u.prompt - u.cached - created),
                     "cache_creation_input_tokens", (json_int_t)created, "cache_creation", "ephemeral_5m_input_tokens",
                     (json_int_t)(created - kept), "ephemeral_1h_input_tokens", (json_int_t)kept,
                     "cache_read_input_tokens", (json_int_t)u.cached, "output_tokens", (json_int_t)u.answer);
}

static json_t *anthropic_usage(const server_request *x) { return usage_of(x, report_usage(x)); }

/* ---- replies ---- */

static const char *server_choice_reason(const server_choice *c) {
    if (report_finish(c->result) == SERVER_FINISH_LENGTH) return "max_tokens";
    if (c->finder.n_calls > 0) return "tool_use";
    return c->result->stop ? "stop_sequence" : "end_turn";
}

#define MESSAGE_ID_BYTES (SERVER_ID_BYTES + 8)

static void message_id(const server_request *x, char id[MESSAGE_ID_BYTES]) {
    snprintf(id, MESSAGE_ID_BYTES, "msg_%s", x->id);
}

/* Where the prompt begins to differ from that of the message before it, whatever was cached. null: nowhere, or that was
   not asked. */
static json_t *anthropic_diagnostics(const server_request *x, int64_t n_prompt) {
    static const char *const names[] = {[FINGERPRINT_MODEL] = "model_changed",
                                        [FINGERPRINT_SYSTEM] = "system_changed",
                                        [FINGERPRINT_TOOLS] = "tools_changed",
                                        [FINGERPRINT_MESSAGES] = "messages_changed",
                                        [FINGERPRINT_EFFORT] = "unavailable",
                                        [FINGERPRINT_OTHERS] = "unavailable",
                                        [FINGERPRINT_UNKNOWN] = "previous_message_not_found"};
    if (!x->gen->compared_id) return json_null();
    const fingerprint_comparison found = request_fingerprint_compare(x, x->gen->compared_id, n_prompt);
    BASE_ASSERT((size_t)found.difference < BASE_ARRAY_LEN(names));
    const char *name = names[found.difference];
    if (!name) return json_null(); /* the same */
    json_t *reason = json_pack("{s:s}", "type", name);
    const bool is_known = found.difference != FINGERPRINT_UNKNOWN && strcmp(name, "unavailable") != 0;
    if (reason && is_known)
        json_object_set_new(reason, "cache_missed_input_tokens", json_integer((json_int_t)found.n_missed));
    return json_pack("{s:o}", "cache_miss_reason", reason);
}

static json_t *anthropic_message(const server_request *x, json_t *content, const char *stop_reason, const char *stop,
                                 json_t *used, int64_t n_prompt) {
    char id[MESSAGE_ID_BYTES];
    message_id(x, id);
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s?, s:s?, s:o, s:o}", "id", id, "type", "message", "role",
                     "assistant", "model", server_request_model(x), "content", content, "stop_reason", stop_reason,
                     "stop_sequence", stop, "usage", used, "diagnostics", anthropic_diagnostics(x, n_prompt));
}

/* For the request after it. */
static void keep_fingerprint(const server_request *x) {
    char id[MESSAGE_ID_BYTES];
    message_id(x, id);
    request_fingerprint_keep(x, id, report_usage(x).prompt);
}

static json_t *anthropic_whole(server_request *x) {
    BASE_ASSERT(x->answers->n_choices == 1);
    const server_choice *c = &x->answers->choices[0];
    json_t *all = anthropic_message(x, anthropic_content(x, c), server_choice_reason(c), c->result->stop,
                                    anthropic_usage(x), report_usage(x).prompt);
    if (all) json_object_set_new(all, "reprise", report_reprise(x));
    keep_fingerprint(x);
    return all;
}

static int anthropic_open_stream(server_request *x) {
    BASE_ASSERT(x->answers->n_choices == 1 && x->answers->choices[0].n_blocks == 0);
    /* There is no result yet, but the first text has come: the prompt is composed. */
    rp_job_status status = {.struct_size = sizeof(status)};
    rp_job_get_status(x->answers->choices[0].call, &status);
    json_t *used = usage_of(x, (server_usage){.prompt = status.prompt_tokens, .cached = status.cached_tokens});
    json_t *message = anthropic_message(x, json_array(), NULL, NULL, used, status.prompt_tokens);
    int rc =
        server_request_frame(x, "message_start", json_pack("{s:s, s:o}", "type", "message_start", "message", message));
    if (!rc && !generate_is_parsed(&x->answers->choices[0]))
        rc = anthropic_begin_text(x, &x->answers->choices[0]); /* else it may begin with another block */
    return rc ? rc : server_request_frame(x, "ping", json_pack("{s:s}", "type", "ping"));
}

static int anthropic_report_piece(server_request *x, server_choice *c, const server_piece *piece) {
    int rc = c->block_is_reasoning ? anthropic_end_block(x, c) : 0;
    if (!rc && !c->block_is_open) rc = anthropic_begin_text(x, c);
    if (rc) return rc;
    BASE_ASSERT(c->block_is_open && !c->block_is_reasoning && c->n_blocks > 0);
    return server_request_frame(x, "content_block_delta",
                                json_pack("{s:s, s:i, s:{s:s, s:o}}", "type", "content_block_delta", "index",
                                          (int)c->n_blocks - 1, "delta", "type", "text_delta", "text",
                                          base_json_string(piece->text, piece->n)));
}

static int anthropic_close_choice(server_request *x, server_choice *c) {
    const int rc = anthropic_end_block(x, c);
    if (rc) return rc;
    keep_fingerprint(x);
    json_t *delta = json_pack("{s:s, s:s?}", "stop_reason", server_choice_reason(c), "stop_sequence", c->result->stop);
    json_t *all = json_pack("{s:s, s:o, s:o, s:o}", "type", "message_delta", "delta", delta, "usage",
                            anthropic_usage(x), "reprise", report_reprise(x));
    return server_request_frame(x, "message_delta", all);
}

static int anthropic_end_stream(server_request *x) {
    return server_request_frame(x, "message_stop", json_pack("{s:s}", "type", "message_stop"));
}

static int anthropic_fail_stream(server_request *x, const server_problem *p) {
    return server_request_frame(x, "error", server_problem_anthropic(p));
}

static const server_form form = {
    .parse = anthropic_parse,
    .whole = anthropic_whole,
    .open = anthropic_open_stream,
    .piece = anthropic_report_piece,
    .close = anthropic_close_choice,
    .end = anthropic_end_stream,
    .fail = anthropic_fail_stream,
    .call = anthropic_tell_call,
    .reasoning = anthropic_tell_reasoning,
};

void handle_anthropic_messages(server_request *x) { generate_handle(x, &form); }

void handle_anthropic_count(server_request *x) {
    json_t *root = server_request_json(x);
    if (root) generation_parse(x->gen, root, anthropic_parse_count, &x->problem);
    json_decref(root);
    size_t n = 0;
    tools_check(x->gen, &x->problem);
    generate_check_fields(x);
    if (x->problem.kind || conversation_prompt_count(x, &n)) server_request_reply_problem(x);
    else server_request_reply_json(x, 200, report_unknown(x, json_pack("{s:I}", "input_tokens", (json_int_t)n)));
}
