/* SPDX-License-Identifier: Apache-2.0 */
/* interactions_object.c: an interaction as JSON: its steps, its usage. Owns nothing. */
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "server/answers/report.h"
#include "server/core/json_time.h"
#include "server/dialects/interactions.h"
#include "server/dialects/responses.h"
#include "server/models/model_pool.h"

const kept_kind interactions_kind = {"v1_", "interaction", "previous_interaction_id", "steps", interactions_steps};

/* ---- steps ---- */

/* The i-th item of an answer. A call that was cut is text. */
static json_t *interactions_step(const server_choice *c, size_t i) {
    BASE_ASSERT(i < responses_count_items(c));
    const tool_item *item = i < c->finder.n_items ? &c->finder.items[i] : NULL;
    json_t *arguments = item && item->tool ? tool_item_arguments(item) : NULL;
    char id[TOOL_CALL_ID_BYTES];
    if (arguments) {
        tool_call_id(id, "call_", c->x->id, c->index, item->number);
        return json_pack("{s:s, s:s, s:s, s:o}", "type", "function_call", "id", id, "name", item->tool->name,
                         "arguments", arguments);
    }
    json_t *text = responses_is_call(c, i) ? tool_item_source(item) : responses_text(c, i);
    json_t *content = json_pack("[{s:s, s:o}]", "type", "text", "text", text);
    if (responses_is_reasoning(c, i)) return json_pack("{s:s, s:o}", "type", "thought", "summary", content);
    return json_pack("{s:s, s:o}", "type", "model_output", "content", content);
}

static json_t *interactions_output(const server_choice *c) {
    json_t *steps = json_array();
    for (size_t i = 0; i < responses_count_items(c) && steps; i++)
        if (json_array_append_new(steps, interactions_step(c, i))) return json_decref(steps), NULL;
    return steps;
}

/* ---- the object ---- */

static json_t *by_modality(int64_t tokens) {
    return json_pack("[{s:s, s:I}]", "modality", "text", "tokens", (json_int_t)tokens);
}

static json_t *interactions_usage(const server_request *x) {
    const server_usage u = report_usage(x);
    const int64_t output = u.answer - u.reasoning;
    return json_pack("{s:I, s:o, s:I, s:o, s:I, s:o, s:I, s:I, s:I}", "total_input_tokens", (json_int_t)u.prompt,
                     "input_tokens_by_modality", by_modality(u.prompt), "total_cached_tokens", (json_int_t)u.cached,
                     "cached_tokens_by_modality", by_modality(u.cached), "total_output_tokens", (json_int_t)output,
                     "output_tokens_by_modality", by_modality(output), "total_tool_use_tokens", (json_int_t)0,
                     "total_thought_tokens", (json_int_t)u.reasoning, "total_tokens",
                     (json_int_t)(u.prompt + u.answer));
}

const char *interactions_status(const server_choice *c) {
    if (report_finish(c->result) != SERVER_FINISH_STOP) return "incomplete";
    for (size_t i = 0; i < c->finder.n_items; i++)
        if (responses_is_call(c, i)) return "requires_action";
    return "completed";
}

/* Fields of the request that the object repeats. Nonzero: no memory. */
static int add_given(const server_request *x, json_t *object) {
    static const char *const names[] = {"previous_interaction_id", "system_instruction", "tools", "generation_config",
                                        "response_format", "response_mime_type", "labels", "service_tier"};
    int rc = 0;
    for (size_t i = 0; i < BASE_ARRAY_LEN(names) && !rc; i++) {
        json_t *value = json_object_get(x->gen->root, names[i]);
        if (value && !json_is_null(value)) rc = json_object_set(object, names[i], value);
    }
    return rc;
}

json_t *interactions_object(const server_request *x, const char *status, bool with_steps) {
    const bool is_over = strcmp(status, "in_progress") != 0, has_usage = is_over && strcmp(status, "failed") != 0;
    const int64_t created = server_request_created(x);
    char id[KEPT_ANSWERS_ID_BYTES];
    kept_answers_id(x, &interactions_kind, id);
    json_t *all = json_pack("{s:s, s:s, s:s, s:s}", "id", id, "object", "interaction", "model", server_request_model(x),
                            "status", status);
    int rc = all ? 0 : -1;
    if (!rc && is_over) rc = json_object_set_new(all, "created", server_json_time(created));
    if (!rc && is_over)
        rc = json_object_set_new(all, "updated", server_json_time(x->relay ? created : (int64_t)time(NULL)));
    if (!rc && with_steps) rc = json_object_set_new(all, "steps", interactions_output(&x->answers->choices[0]));
    if (!rc && with_steps) rc = add_given(x, all);
    if (!rc && has_usage) rc = json_object_set_new(all, "usage", interactions_usage(x));
    if (!rc && has_usage) rc = json_object_set_new(all, "reprise", report_reprise(x));
    if (!rc) return all;
    json_decref(all);
    return NULL;
}

void interactions_keep(const server_request *x, const json_t *object) {
    kept_answers_put(x, &interactions_kind, object);
}
