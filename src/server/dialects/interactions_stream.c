/* SPDX-License-Identifier: Apache-2.0 */
/* interactions_stream.c: the events of a stream of Gemini's Interactions.
 *
 *   interaction.created, interaction.status_update
 *   a text: step.start, step.delta {"type": "text"} ..., step.stop
 *   reasoning: step.start, step.delta {"type": "thought_summary"} ..., step.stop
 *   a call: step.start with its id and name, step.delta {"type": "arguments_delta"} ..., step.stop
 *   interaction.completed, whatever its status is; or error
 *   done
 *
 * I/O thread; interactions_replay: a worker.
 */
#include <string.h>

#include "base/check.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "server/dialects/interactions.h"
#include "server/dialects/responses.h"

/* An event of that type; takes the object over, which gets the type. */
static int interactions_event(server_request *x, const char *type, json_t *object) {
    if (object && json_object_set_new(object, "event_type", json_string(type))) {
        json_decref(object);
        object = NULL;
    }
    return server_request_frame(x, type, object);
}

static int step_start(server_request *x, size_t i, json_t *step) {
    return interactions_event(x, "step.start", json_pack("{s:I, s:o}", "index", (json_int_t)i, "step", step));
}

static int step_delta(server_request *x, size_t i, json_t *delta) {
    return interactions_event(x, "step.delta", json_pack("{s:I, s:o}", "index", (json_int_t)i, "delta", delta));
}

static int step_stop(server_request *x, size_t i) {
    return interactions_event(x, "step.stop", json_pack("{s:I}", "index", (json_int_t)i));
}

/* Takes the text over. */
static json_t *delta_of(bool is_thought, json_t *text) {
    if (!is_thought) return json_pack("{s:s, s:o}", "type", "text", "text", text);
    return json_pack("{s:s, s:{s:s, s:o}}", "type", "thought_summary", "content", "type", "text", "text", text);
}

static json_t *arguments_delta(json_t *text) {
    return json_pack("{s:s, s:o}", "type", "arguments_delta", "arguments", text);
}

/* ---- an answer ---- */

int interactions_open(server_request *x) {
    BASE_ASSERT(x->answers->n_choices == 1 && x->answers->choices[0].n_blocks == 0);
    json_t *object = interactions_object(x, "in_progress", false);
    json_t *update = json_pack("{s:O, s:s}", "interaction_id", json_object_get(object, "id"), "status", "in_progress");
    int rc = interactions_event(x, "interaction.created", json_pack("{s:o}", "interaction", object));
    if (!rc) return interactions_event(x, "interaction.status_update", update);
    json_decref(update);
    return rc;
}

static int end_step(server_request *x, server_choice *c) {
    if (!c->block_is_open) return 0;
    BASE_ASSERT(c->n_blocks > 0);
    c->block_is_open = false;
    return step_stop(x, (size_t)c->n_blocks - 1);
}

static int begin_step(server_request *x, server_choice *c, json_t *step) {
    BASE_ASSERT(!c->block_is_open);
    c->block_is_open = true;
    return step_start(x, (size_t)c->n_blocks++, step);
}

/* A delta of the item that the finder is at; the one before it ends. */
static int text_delta(server_request *x, server_choice *c, bool is_thought, const server_piece *piece) {
    int rc = c->block_is_open && (size_t)c->n_blocks < c->finder.n_items ? end_step(x, c) : 0;
    if (!rc && !c->block_is_open)
        rc = begin_step(x, c, json_pack("{s:s}", "type", is_thought ? "thought" : "model_output"));
    return rc ? rc
              : step_delta(x, (size_t)c->n_blocks - 1, delta_of(is_thought, base_json_string(piece->text, piece->n)));
}

int interactions_report_piece(server_request *x, server_choice *c, const server_piece *piece) {
    return text_delta(x, c, false, piece);
}

int interactions_report_reasoning(server_request *x, server_choice *c, const server_piece *piece) {
    return text_delta(x, c, true, piece);
}

int interactions_report_call(server_request *x, server_choice *c, tool_event event, const tool_item *item,
                             const char *bytes, size_t n) {
    char id[TOOL_CALL_ID_BYTES];
    if (event == TOOL_END) return end_step(x, c);
    if (event != TOOL_BEGIN) return step_delta(x, (size_t)c->n_blocks - 1, arguments_delta(base_json_string(bytes, n)));
    int rc = end_step(x, c);
    tool_call_id(id, "call_", x->id, c->index, item->number);
    return rc ? rc
              : begin_step(x, c,
                           json_pack("{s:s, s:s, s:s, s:{}}", "type", "function_call", "id", id, "name",
                                     item->tool->name, "arguments"));
}

int interactions_close(server_request *x, server_choice *c) {
    int rc = c->n_blocks == 0 ? begin_step(x, c, json_pack("{s:s}", "type", "model_output"))
                              : 0; /* an empty answer is a step, too */
    return rc ? rc : end_step(x, c);
}

static int complete(server_request *x, json_t *object) {
    int rc = interactions_event(x, "interaction.completed", json_pack("{s:o}", "interaction", object));
    return rc ? rc : server_request_done(x, "done");
}

/* The steps were sent: the last event leaves them out. */
int interactions_end(server_request *x) {
    json_t *object = interactions_object(x, interactions_status(&x->answers->choices[0]), true);
    if (object) interactions_keep(x, object);
    if (object) json_object_del(object, "steps");
    return complete(x, object);
}

int interactions_fail(server_request *x, const server_problem *p) {
    json_t *error = json_pack("{s:{s:s, s:s}}", "error", "code", server_problem_name(p->kind), "message", p->message);
    int rc = interactions_event(x, "error", error);
    return rc ? rc : server_request_done(x, "done");
}

/* ---- a stored one ---- */

static int replay_step(server_request *x, size_t i, const json_t *step) {
    const char *type = json_string_value(json_object_get(step, "type"));
    if (!type || strcmp(type, "function_call") != 0) {
        const bool is_thought = type && strcmp(type, "thought") == 0;
        const json_t *contents = json_object_get(step, is_thought ? "summary" : "content");
        json_t *text = json_object_get(json_array_get(contents, 0), "text");
        int rc = step_start(x, i, json_pack("{s:s}", "type", is_thought ? "thought" : "model_output"));
        if (!rc) rc = step_delta(x, i, delta_of(is_thought, text ? json_incref(text) : json_string("")));
        return rc ? rc : step_stop(x, i);
    }
    char *arguments = base_json_text(json_object_get(step, "arguments"), JSON_COMPACT);
    json_t *begun = json_copy((json_t *)step);
    int rc = begun ? json_object_set_new(begun, "arguments", json_object()) : -1;
    if (rc) json_decref(begun);
    else rc = step_start(x, i, begun);
    if (!rc) rc = step_delta(x, i, arguments_delta(json_string(arguments ? arguments : "")));
    base_free(arguments);
    return rc ? rc : step_stop(x, i);
}

int interactions_replay(server_request *x, const json_t *object) {
    const json_t *steps = json_object_get(object, "steps");
    json_t *bare = json_copy((json_t *)object), *begun = json_object();
    static const char *const names[] = {"id", "object", "model"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(names) && begun; i++)
        json_object_set(begun, names[i], json_object_get(object, names[i]));
    if (begun) json_object_set_new(begun, "status", json_string("in_progress"));
    if (bare) json_object_del(bare, "steps");
    int rc = interactions_event(x, "interaction.created", json_pack("{s:o}", "interaction", begun));
    for (size_t i = 0; i < json_array_size(steps) && !rc; i++) rc = replay_step(x, i, json_array_get(steps, i));
    if (!rc) return complete(x, bare);
    json_decref(bare);
    return rc;
}
