/* SPDX-License-Identifier: Apache-2.0 */
/* responses_object.c: a response as JSON: its items, its usage, and its storage. Owns nothing. */
#include "server/dialects/responses.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

#include "server/answers/report.h"
#include "server/answers/request_fingerprint.h"
#include "server/dialects/openai.h"
#include "server/models/model_pool.h"

/* ---- items ---- */

size_t responses_count_items(const server_choice *c) { return BASE_MAX(c->finder.n_items, 1); }

bool responses_is_call(const server_choice *c, size_t i) { return i < c->finder.n_items && c->finder.items[i].tool; }

bool responses_is_reasoning(const server_choice *c, size_t i) {
    return i < c->finder.n_items && c->finder.items[i].is_reasoning;
}

void responses_item_id(const server_request *x, const server_choice *c, size_t i, char id[RESPONSES_ID_BYTES]) {
    const char *kind = responses_is_call(c, i) ? "fc" : responses_is_reasoning(c, i) ? "rs"
                                                                                     : "msg";
    const int n = snprintf(id, RESPONSES_ID_BYTES, "%s_%s_%zu", kind, x->id, i);
    BASE_ASSERT(n > 0 && n < RESPONSES_ID_BYTES); /* a cut id would name another item */
}

json_t *responses_text(const server_choice *c, size_t i) {
    if (i >= c->finder.n_items) return generate_text(c); /* not searched for calls, or empty */
    return base_json_string(c->finder.items[i].text.data, c->finder.items[i].text.len);
}

json_t *responses_logprobs(const server_choice *c, size_t i) {
    token_place place = {0};
    if (i < c->finder.n_items)
        return responses_logprobs_list(c, &place, c->finder.items[i].begin, c->finder.items[i].end);
    return responses_logprobs_list(c, &place, 0, c->result ? strlen(c->result->text) : c->n_shown);
}

json_t *responses_part(const server_choice *c, size_t i, bool is_whole) {
    json_t *text = is_whole ? responses_text(c, i) : json_string("");
    if (responses_is_reasoning(c, i)) return json_pack("{s:s, s:o}", "type", "reasoning_text", "text", text);
    return json_pack("{s:s, s:o, s:[], s:o}", "type", "output_text", "text", text, "annotations", "logprobs",
                     is_whole ? responses_logprobs(c, i) : json_array());
}

json_t *responses_item(const server_request *x, const server_choice *c, size_t i, bool is_whole) {
    BASE_ASSERT(i < responses_count_items(c));
    char id[RESPONSES_ID_BYTES], call_id[TOOL_CALL_ID_BYTES];
    const bool is_last = i + 1 == responses_count_items(c);
    const bool is_cut = is_whole && is_last && c->result && report_finish(c->result) != SERVER_FINISH_STOP;
    const char *status = is_cut ? "incomplete" : is_whole ? "completed"
                                                          : "in_progress";
    responses_item_id(x, c, i, id);
    if (!responses_is_call(c, i)) {
        json_t *content = is_whole ? json_pack("[o]", responses_part(c, i, true)) : json_array();
        if (responses_is_reasoning(c, i))
            return json_pack("{s:s, s:s, s:s, s:[], s:o, s:n}", "id", id, "type", "reasoning", "status", status,
                             "summary", "content", content, "encrypted_content");
        return json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", id, "type", "message", "status", status, "role",
                         "assistant", "content", content);
    }
    const tool_item *item = &c->finder.items[i];
    tool_call_id(call_id, "call_", x->id, c->index, item->number);
    const char *name = item->tool->own_name ? item->tool->own_name : item->tool->name;
    json_t *text = !is_whole ? json_string("") : item->tool->is_freeform ? openai_freeform_input(item)
                                                                         : responses_text(c, i);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s*, s:o}", "id", id, "type",
                     item->tool->is_freeform ? "custom_tool_call" : "function_call", "status", status, "call_id",
                     call_id, "name", name, "namespace", item->tool->group,
                     item->tool->is_freeform ? "input" : "arguments", text);
}

/* ---- stored responses ---- */

/* A string is a message of the user's. */
static json_t *items_of(json_t *input) {
    if (json_is_array(input)) return json_copy(input);
    return input ? json_pack("[{s:s, s:s, s:O}]", "type", "message", "role", "user", "content", input) : json_array();
}

const kept_kind responses_kind = {"resp_", "response", "previous_response_id", "output", items_of};

void responses_keep(const server_request *x, const json_t *object) {
    kept_answers_put(x, &responses_kind, object);
    request_fingerprint_keep(x, json_string_value(json_object_get(object, "id")), report_usage(x).prompt);
}

/* ---- the object ---- */

static json_t *responses_usage(const server_request *x) {
    server_usage u = report_usage(x);
    return json_pack("{s:I, s:{s:I, s:I}, s:I, s:{s:I}, s:I}", "input_tokens", (json_int_t)u.prompt,
                     "input_tokens_details", "cached_tokens", (json_int_t)u.cached, "cache_write_tokens",
                     (json_int_t)u.written, "output_tokens", (json_int_t)u.answer, "output_tokens_details",
                     "reasoning_tokens", (json_int_t)u.reasoning, "total_tokens", (json_int_t)(u.prompt + u.answer));
}

/* A prompt that was found as far as the compared one goes is a hit, whatever else differs. One that does not differ,
 * and was not found, was evicted. */
static json_t *responses_diagnostics(const server_request *x) {
    static const char *const reasons[FINGERPRINT_UNKNOWN + 1] = {[FINGERPRINT_MODEL] = "model_changed",
                                                                 [FINGERPRINT_SYSTEM] = "input_changed",
                                                                 [FINGERPRINT_TOOLS] = "tools_changed",
                                                                 [FINGERPRINT_EFFORT] = "reasoning_effort_changed",
                                                                 [FINGERPRINT_MESSAGES] = "input_changed"};
    const server_usage u = report_usage(x);
    const fingerprint_comparison found = request_fingerprint_compare(x, x->gen->compared_id, u.prompt);
    BASE_ASSERT((size_t)found.difference < BASE_ARRAY_LEN(reasons));
    const bool is_hit = found.difference == FINGERPRINT_SAME ? u.cached > 0 : u.cached + 1 >= found.n_compared;
    if (found.difference == FINGERPRINT_UNKNOWN) return json_pack("{s:s}", "type", "comparison_response_not_found");
    if (is_hit) return json_pack("{s:s}", "type", "cache_hit");
    if (!reasons[found.difference]) return json_pack("{s:s}", "type", "unavailable");
    return json_pack("{s:s, s:s, s:I}", "type", "cache_miss", "reason", reasons[found.difference],
                     "cache_missed_tokens", (json_int_t)found.n_missed_of_own);
}

const char *responses_status(const server_choice *c) {
    return report_finish(c->result) == SERVER_FINISH_STOP ? "completed" : "incomplete";
}

/* What the client gave, or what counts where it gave nothing (taken over). */
static json_t *responses_given(const server_request *x, const char *name, json_t *otherwise) {
    json_t *value = json_object_get(x->gen->root, name);
    if (!value || json_is_null(value)) return otherwise;
    json_decref(otherwise);
    return json_incref(value);
}

static json_t *responses_output(const server_request *x, const server_choice *c) {
    json_t *items = json_array();
    for (size_t i = 0; i < responses_count_items(c) && items; i++)
        if (json_array_append_new(items, responses_item(x, c, i, true))) return json_decref(items), NULL;
    return items;
}

/* A float as its shortest decimal number: 0.7, not 0.699999988079071. */
static json_t *responses_number(float value) { return json_real(round((double)value * 1e6) / 1e6); }

json_t *responses_object(const server_request *x, const char *status) {
    const server_choice *c = &x->answers->choices[0];
    char id[KEPT_ANSWERS_ID_BYTES];
    bool is_over = strcmp(status, "completed") == 0 || strcmp(status, "incomplete") == 0,
         is_cut = strcmp(status, "incomplete") == 0;
    kept_answers_id(x, &responses_kind, id);
    json_t *all = json_pack(
        "{s:s, s:s, s:I, s:s, s:n, s:o, s:s, s:o, s:o}", "id", id, "object", "response", "created_at",
        (json_int_t)server_request_created(x), "status", status, "error", "incomplete_details",
        is_cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null(), "model", server_request_model(x),
        "output", is_over ? responses_output(x, c) : json_array(), "usage", is_over ? responses_usage(x) : json_null());
    json_t *temperature = responses_number(x->gen->sampling.temperature),
           *top_p = responses_number(x->gen->sampling.top_p);
    json_t *more = json_pack(
        "{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:{s:s?, s:n}, s:s}", "top_logprobs",
        BASE_MAX((int)x->gen->n_logprobs, 0), "instructions", responses_given(x, "instructions", json_null()),
        "max_output_tokens", responses_given(x, "max_output_tokens", json_null()), "previous_response_id",
        responses_given(x, "previous_response_id", json_null()), "parallel_tool_calls",
        responses_given(x, "parallel_tool_calls", json_true()), "store", responses_given(x, "store", json_true()),
        "temperature", responses_given(x, "temperature", temperature), "top_p", responses_given(x, "top_p", top_p),
        "tools", responses_given(x, "tools", json_array()), "tool_choice",
        responses_given(x, "tool_choice", json_string("auto")), "text",
        responses_given(x, "text", json_pack("{s:{s:s}}", "format", "type", "text")), "metadata",
        responses_given(x, "metadata", json_object()), "reasoning", "effort", x->gen->reasoning_effort, "summary",
        "truncation", x->gen->truncates ? "auto" : "disabled");
    if (all && more && json_object_update(all, more) == 0 && is_over)
        json_object_set_new(all, "reprise", report_reprise(x));
    if (all && is_over && x->gen->compared_id)
        json_object_set_new(all, "prompt_cache_diagnostics", responses_diagnostics(x));
    json_decref(more);
    return all;
}
