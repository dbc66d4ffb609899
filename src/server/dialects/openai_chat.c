/* SPDX-License-Identifier: Apache-2.0 */
/* openai_chat.c: /v1/chat/completions. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "server/answers/report.h"
#include "server/dialects/dialect_handlers.h"
#include "server/dialects/dialects.h"
#include "server/dialects/openai.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"
#include "server/prompt/known_fields.h"

/* ---- fields ---- */

/* The names of vLLM and DeepSeek, OpenRouter, and Ollama. */
static void parse_reasoning(generation *gen, const server_fields *f) {
    static const char *const names[] = {"reasoning_content", "reasoning", "thinking"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        const char *text = json_string_value(json_object_get(f->object, names[i]));
        if (!text) continue;
        generation_add_reasoning(gen, text, f->problem);
        return;
    }
}

static void parse_calls_and_results(generation *gen, rp_role role, const server_fields *f) {
    const char *id = NULL;
    char name[64];
    snprintf(name, sizeof(name), "%.40stool_call_id", f->prefix);
    if (role == RP_ROLE_ASSISTANT) {
        parse_reasoning(gen, f);
        openai_parse_calls(gen, f);
    }
    if (role != RP_ROLE_TOOL) return;
    server_field_text(f, "tool_call_id", &id);
    generation_add_result(gen, id, false, name, f->problem);
}

/* An answer that refuses has `refusal` in place of its content. */
static const json_t *openai_chat_content(const json_t *message, rp_role role) {
    const json_t *content = json_object_get(message, "content"), *refusal = json_object_get(message, "refusal");
    return role == RP_ROLE_ASSISTANT && json_is_string(refusal) && (!content || json_is_null(content)) ? refusal
                                                                                                       : content;
}

static void openai_chat_parse_message(generation *gen, const json_t *message, size_t i, server_problem *p) {
    static const char *const types[] = {"text", "input_text", "output_text", "refusal", NULL};
    static const char *const unknown[] = {"function_call", NULL};
    char prefix[48], content[64];
    const char *name = NULL;
    rp_role role;
    snprintf(prefix, sizeof(prefix), "messages[%zu].", i);
    snprintf(content, sizeof(content), "%scontent", prefix);
    if (!json_is_object(message)) {
        server_fail(p, SERVER_INVALID, "messages",
                    "'messages[%zu]' is not an object: give {\"role\": \"user\", \"content\": \"...\"}", i);
        return;
    }
    server_fields f = {message, p, prefix};
    server_field_text(&f, "role", &name);
    openai_refuse(&f, unknown);
    if (p->kind) return;
    if (!openai_parse_role(name, &role)) {
        server_fail(p, SERVER_INVALID, "messages",
                    "'%srole' is %s%.40s: give system, developer, user, assistant or tool", prefix,
                    name ? "unknown: " : "missing", name ? name : "");
        return;
    }
    generation_message(gen, role, openai_chat_content(message, role), types, content, p);
    openai_parse_breakpoints(gen, json_object_get(message, "content"), content, p);
    parse_calls_and_results(gen, role, &f);
}

static void parse_messages(generation *gen, const server_fields *f) {
    const json_t *messages = server_field_array(f, "messages");
    if (!messages || json_array_size(messages) == 0)
        server_fail(f->problem, SERVER_INVALID, "messages", "'messages' is missing: give at least one");
    for (size_t i = 0; i < json_array_size(messages) && !f->problem->kind; i++)
        openai_chat_parse_message(gen, json_array_get(messages, i), i, f->problem);
}

/* The fields in use, and fields accepted and ignored: those that the official clients send along or back, and agents'
 * marks for other servers' caches and reasoning. */
static const server_known_fields inside[] = {
    {"messages[]",
     "role content name refusal annotations audio tool_calls tool_call_id function_call reasoning reasoning_content "
     "reasoning_details thinking cache_control id parsed"},
    {"messages[].content[]", SERVER_PART_FIELDS "refusal annotations id prompt_cache_breakpoint"},
    {"messages[].content[].source", SERVER_SOURCE_FIELDS},
    {"messages[].content[].prompt_cache_breakpoint", OPENAI_BREAKPOINT_FIELDS},
    {"messages[].tool_calls[]", "id type function custom index extra_content cache_control"},
    {"messages[].tool_calls[].custom", "name input"},
    {"messages[].tool_calls[].function", "name arguments parsed_arguments"},
    {"tools[]", "type function custom cache_control"},
    {"tools[].custom", "name description format"},
    {"tools[].function", "name description parameters strict cache_control"},
    {"tool_choice", "type function custom allowed_tools"},
    {"tool_choice.function", "name"},
    {"tool_choice.custom", "name"},
    {"tool_choice.allowed_tools", "mode tools"},
    {"tool_choice.allowed_tools.tools[]", "type function"},
    {"tool_choice.allowed_tools.tools[].function", "name"},
    {"response_format", "type json_schema schema"},
    {"response_format.json_schema", "name description schema strict"},
};

int openai_parse_chat(generation *gen, server_problem *p) {
    static const char *const unknown[] = {"functions", "audio", NULL};
    server_fields f = {gen->root, p, ""};
    bool wants_logprobs = false;
    int32_t n_logprobs = 0;
    openai_parse_common(gen, &f);
    server_field_int(&f, "max_completion_tokens", 0, INT32_MAX, &gen->max_tokens);
    server_field_bool(&f, "continue_final_message", &gen->continues_last);
    parse_messages(gen, &f);
    server_field_bool(&f, "logprobs", &wants_logprobs);
    server_field_int(&f, "top_logprobs", 0, OPENAI_MAX_TOP_LOGPROBS, &n_logprobs);
    if (n_logprobs > 0 && !wants_logprobs)
        server_fail(p, SERVER_INVALID, "top_logprobs", "'top_logprobs' needs 'logprobs': true");
    if (wants_logprobs) gen->n_logprobs = n_logprobs;
    openai_parse_tools(gen, &f, OPENAI_NESTED);
    openai_parse_format(gen, &f, "response_format", OPENAI_NESTED);
    openai_parse_json_schema(gen, &f);
    llamacpp_parse_cache(gen, &f);
    openai_refuse(&f, unknown);
    generation_known(gen, &f,
                     OPENAI_COMMON_FIELDS
                     "messages max_completion_tokens continue_final_message logprobs top_logprobs tools tool_choice "
                     "parallel_tool_calls response_format json_schema return_progress n_cache_reuse functions "
                     "function_call audio modalities verbosity");
    generation_known_inside(gen, inside, BASE_ARRAY_LEN(inside), p);
    BASE_ASSERT(p->kind || gen->n_messages > 0); /* each of them was added, or refused */
    if (!p->kind && gen->continues_last && gen->messages[gen->n_messages - 1].role != RP_ROLE_ASSISTANT)
        server_fail(p, SERVER_INVALID, "continue_final_message",
                    "'continue_final_message' needs a final message of the assistant");
    return (int)p->kind;
}

/* ---- log-probabilities ---- */

/* logprobs of a choice; takes the list over. */
static json_t *logprobs_object(json_t *list) { return json_pack("{s:o, s:n}", "content", list, "refusal"); }

/* ---- whole ---- */

static json_t *openai_chat_choice_of(const server_request *x, const server_choice *c) {
    json_t *logprobs = x->gen->n_logprobs >= 0 ? logprobs_object(openai_result_logprobs(x, c->result)) : json_null();
    return json_pack("{s:i, s:o, s:o, s:s}", "index", (int)c->index, "message", openai_message(x, c), "logprobs",
                     logprobs, "finish_reason", openai_finish(c));
}

static json_t *openai_chat_head(const server_request *x, const char *object, json_t *choices) {
    char id[SERVER_ID_BYTES + 16];
    snprintf(id, sizeof(id), "chatcmpl-%s", x->id);
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", id, "object", object, "created",
                     (json_int_t)server_request_created(x), "model", server_request_model(x), "system_fingerprint",
                     "reprise", "choices", choices);
}

static json_t *openai_chat_whole(server_request *x) {
    json_t *choices = json_array();
    for (int32_t i = 0; i < x->answers->n_choices && choices; i++)
        if (json_array_append_new(choices, openai_chat_choice_of(x, &x->answers->choices[i])))
            return json_decref(choices), NULL;
    json_t *all = openai_chat_head(x, "chat.completion", choices);
    if (all &&
        (json_object_set_new(all, "usage", openai_usage(x)) || json_object_set_new(all, "reprise", report_reprise(x))))
        return json_decref(all), NULL;
    if (all && x->gen->n_prompt_logprobs >= 0 &&
        json_object_set_new(all, "prompt_logprobs", openai_prompt_logprobs(x, x->answers->choices[0].result)))
        return json_decref(all), NULL;
    return all;
}

/* ---- streams ---- */

/* A chunk of one choice. finish: NULL before the end. Takes ownership of delta and logprobs. */
static int openai_chat_chunk(server_request *x, const server_choice *c, json_t *delta, json_t *logprobs,
                             const char *finish) {
    json_t *choice = json_pack("[{s:i, s:o, s:o, s:s?}]", "index", (int)c->index, "delta", delta, "logprobs", logprobs,
                               "finish_reason", finish);
    json_t *all = openai_chat_head(x, "chat.completion.chunk", choice);
    if (all && x->gen->include_usage) json_object_set_new(all, "usage", json_null());
    return server_request_frame(x, NULL, all);
}

static int openai_chat_open_stream(server_request *x) {
    int rc = 0;
    for (int32_t i = 0; i < x->answers->n_choices && !rc; i++)
        rc = openai_chat_chunk(x, &x->answers->choices[i], json_pack("{s:s, s:s}", "role", "assistant", "content", ""),
                               json_null(), NULL);
    return rc;
}

static int openai_chat_report_piece(server_request *x, server_choice *c, const server_piece *piece) {
    json_t *logprobs = x->gen->n_logprobs >= 0 ? logprobs_object(openai_piece_logprobs(x, piece)) : json_null();
    return openai_chat_chunk(x, c, json_pack("{s:o}", "content", base_json_string(piece->text, piece->n)), logprobs,
                             NULL);
}

static int openai_chat_report_reasoning(server_request *x, server_choice *c, const server_piece *piece) {
    json_t *logprobs = x->gen->n_logprobs >= 0 ? logprobs_object(openai_piece_logprobs(x, piece)) : json_null();
    return openai_chat_chunk(x, c, json_pack("{s:o}", "reasoning_content", base_json_string(piece->text, piece->n)),
                             logprobs, NULL);
}

static int openai_chat_report_call(server_request *x, server_choice *c, tool_event event, const tool_item *item,
                                   const char *bytes, size_t n) {
    /* that of a custom tool comes at its end, as a whole */
    if ((event == TOOL_END) != item->tool->is_freeform) return 0;
    return openai_chat_chunk(x, c, openai_call_delta(x, c, event, item, bytes, n), json_null(), NULL);
}

static int openai_chat_report_progress(server_request *x, server_choice *c, const server_prompt_progress *progress) {
    BASE_ASSERT(x->gen->returns_progress);
    json_t *all = openai_chat_head(
        x, "chat.completion.chunk",
        json_pack("[{s:i, s:{}, s:n, s:n}]", "index", (int)c->index, "delta", "logprobs", "finish_reason"));
    if (all && x->gen->include_usage) json_object_set_new(all, "usage", json_null());
    if (all) json_object_set_new(all, "prompt_progress", generate_progress(progress));
    return server_request_frame(x, NULL, all);
}

static int openai_chat_close_choice(server_request *x, server_choice *c) {
    return openai_chat_chunk(x, c, json_object(), json_null(), openai_finish(c));
}

/* The usage, where it is asked for, comes in a chunk of its own without choices. */
static int openai_chat_end_stream(server_request *x) {
    if (x->gen->include_usage) {
        json_t *all = openai_chat_head(x, "chat.completion.chunk", json_array());
        if (all) json_object_set_new(all, "usage", openai_usage(x));
        if (all) json_object_set_new(all, "reprise", report_reprise(x));
        if (server_request_frame(x, NULL, all)) return 1;
    }
    return openai_done(x);
}

static const server_form form = {
    .parse = openai_parse_chat,
    .whole = openai_chat_whole,
    .open = openai_chat_open_stream,
    .piece = openai_chat_report_piece,
    .close = openai_chat_close_choice,
    .end = openai_chat_end_stream,
    .fail = openai_fail,
    .call = openai_chat_report_call,
    .reasoning = openai_chat_report_reasoning,
    .progress = openai_chat_report_progress,
};

void handle_openai_chat(server_request *x) { generate_handle(x, &form); }
