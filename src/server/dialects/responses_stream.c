/* SPDX-License-Identifier: Apache-2.0 */
/* responses_stream.c: the events of a stream of /v1/responses, each with its number.
 *
 *   created, in_progress
 *   a message: output_item.added, content_part.added, output_text.delta ..., output_text.done, content_part.done,
 *   output_item.done reasoning: output_item.added, content_part.added, reasoning_text.delta ..., reasoning_text.done,
 *   content_part.done, output_item.done a call: output_item.added, function_call_arguments.delta ...,
 *   function_call_arguments.done, output_item.done a call of a custom tool: output_item.added,
 *   custom_tool_call_input.delta, custom_tool_call_input.done, output_item.done completed or incomplete; or failed
 *
 * I/O thread.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "server/dialects/openai.h"
#include "server/dialects/responses.h"

/* An event of that type; takes the object over, which gets type and number. */
static int responses_stream_event(server_request *x, const char *type, json_t *object) {
    server_choice *c = &x->answers->choices[0];
    json_t *all = json_pack("{s:s, s:i}", "type", type, "sequence_number", (int)c->n_events++);
    if (!object || !all || json_object_update(all, object)) {
        json_decref(all);
        all = NULL;
    }
    json_decref(object);
    return server_request_frame(x, type, all);
}

/* One of the item that the stream is at: with its id and index, and one field more (taken over). */
static json_t *item_fields(const server_request *x, const server_choice *c, bool has_part, const char *name,
                           json_t *value) {
    char id[RESPONSES_ID_BYTES];
    BASE_ASSERT(c->n_blocks > 0);
    responses_item_id(x, c, (size_t)c->n_blocks - 1, id);
    json_t *all = json_pack("{s:s, s:i, s:o}", "item_id", id, "output_index", (int)c->n_blocks - 1, name, value);
    if (all && has_part) json_object_set_new(all, "content_index", json_integer(0));
    return all;
}

static int item_event(server_request *x, const server_choice *c, const char *type, bool has_part, const char *name,
                      json_t *value) {
    return responses_stream_event(x, type, item_fields(x, c, has_part, name, value));
}

/* One about the text of a message or of reasoning: a delta, or all of it. */
static int text_event(server_request *x, const server_choice *c, bool is_delta, json_t *text, json_t *logprobs) {
    const bool is_reasoning = responses_is_reasoning(c, (size_t)c->n_blocks - 1);
    char type[40];
    snprintf(type, sizeof(type), "response.%s.%s", is_reasoning ? "reasoning_text" : "output_text",
             is_delta ? "delta" : "done");
    json_t *all = item_fields(x, c, true, is_delta ? "delta" : "text", text);
    if (all && !is_reasoning) json_object_set(all, "logprobs", logprobs);
    json_decref(logprobs);
    return responses_stream_event(x, type, all);
}

static json_t *responses_stream_item_at(const server_request *x, const server_choice *c, bool is_whole) {
    return json_pack("{s:i, s:o}", "output_index", (int)c->n_blocks - 1, "item",
                     responses_item(x, c, (size_t)c->n_blocks - 1, is_whole));
}

static int begin_item(server_request *x, server_choice *c) {
    BASE_ASSERT(!c->block_is_open);
    c->n_blocks++;
    BASE_ASSERT((size_t)c->n_blocks <= responses_count_items(c)); /* the block is the item of that index */
    c->block_is_open = true;
    return responses_stream_event(x, "response.output_item.added", responses_stream_item_at(x, c, false));
}

/* Of a message or reasoning. */
static int begin_message(server_request *x, server_choice *c) {
    int rc = begin_item(x, c);
    return rc ? rc
              : item_event(x, c, "response.content_part.added", true, "part",
                           responses_part(c, (size_t)c->n_blocks - 1, false));
}

static int end_item(server_request *x, server_choice *c) {
    size_t i = (size_t)c->n_blocks - 1;
    int rc = 0;
    if (!c->block_is_open) return 0;
    BASE_ASSERT(c->n_blocks > 0);
    c->block_is_open = false;
    if (responses_is_call(c, i) && c->finder.items[i].tool->is_freeform) { /* decoded when it is complete: one delta */
        const tool_item *item = &c->finder.items[i];
        rc = item_event(x, c, "response.custom_tool_call_input.delta", false, "delta", openai_freeform_input(item));
        if (rc) return rc;
        rc = item_event(x, c, "response.custom_tool_call_input.done", false, "input", openai_freeform_input(item));
    } else if (responses_is_call(c, i))
        rc = item_event(x, c, "response.function_call_arguments.done", false, "arguments", responses_text(c, i));
    else {
        rc = text_event(x, c, false, responses_text(c, i), responses_logprobs(c, i));
        if (!rc) rc = item_event(x, c, "response.content_part.done", true, "part", responses_part(c, i, true));
    }
    return rc ? rc : responses_stream_event(x, "response.output_item.done", responses_stream_item_at(x, c, true));
}

int responses_open(server_request *x) {
    BASE_ASSERT(x->answers->n_choices == 1 && x->answers->choices[0].n_events == 0);
    int rc = responses_stream_event(x, "response.created",
                                    json_pack("{s:o}", "response", responses_object(x, "in_progress")));
    return rc ? rc
              : responses_stream_event(x, "response.in_progress",
                                       json_pack("{s:o}", "response", responses_object(x, "in_progress")));
}

/* Those of the piece that was just added to the item. */
static json_t *delta_logprobs(server_choice *c, const server_piece *piece) {
    const size_t i = (size_t)c->n_blocks - 1;
    if (responses_is_reasoning(c, i)) return json_array();
    if (i >= c->finder.n_items) c->n_shown += piece->n;
    const size_t end = i < c->finder.n_items ? c->finder.items[i].end : c->n_shown;
    BASE_ASSERT(end >= piece->n); /* the piece is the end of the item so far */
    return responses_logprobs_list(c, &c->next_listed, end - piece->n, end);
}

/* A delta of the item that the finder is at; the one before it ends. Tokens of calls come without text. */
int responses_tell_piece(server_request *x, server_choice *c, const server_piece *piece) {
    int rc = responses_logprobs_add(c, piece);
    if (rc || piece->n == 0) return rc;
    rc = c->block_is_open && (size_t)c->n_blocks < c->finder.n_items ? end_item(x, c) : 0;
    if (!rc && !c->block_is_open) rc = begin_message(x, c);
    return rc ? rc : text_event(x, c, true, base_json_string(piece->text, piece->n), delta_logprobs(c, piece));
}

int responses_tell_call(server_request *x, server_choice *c, tool_event what, const tool_item *item, const char *bytes,
                        size_t n) {
    if (what == TOOL_END) return end_item(x, c);
    if (what == TOOL_BEGIN) {
        int rc = end_item(x, c);
        return rc ? rc : begin_item(x, c);
    }
    BASE_ASSERT(what == TOOL_ARGUMENTS && c->block_is_open);
    if (item->tool->is_freeform) return 0;
    return item_event(x, c, "response.function_call_arguments.delta", false, "delta", base_json_string(bytes, n));
}

int responses_close(server_request *x, server_choice *c) {
    int rc = c->n_blocks == 0 ? begin_message(x, c) : 0; /* an empty answer is a message, too */
    return rc ? rc : end_item(x, c);
}

int responses_end(server_request *x) {
    const char *status = responses_status(&x->answers->choices[0]);
    char type[40];
    json_t *object = responses_object(x, status);
    if (object) responses_keep(x, object);
    snprintf(type, sizeof(type), "response.%s", status);
    return responses_stream_event(x, type, json_pack("{s:o}", "response", object));
}

int responses_fail(server_request *x, const server_problem *p) {
    json_t *object = responses_object(x, "failed"), *said = server_problem_openai(p);
    json_t *code = json_object_get(json_object_get(said, "error"), "code");
    json_t *message = json_object_get(json_object_get(said, "error"), "message");
    if (object && code) json_object_set_new(object, "error", json_pack("{s:O, s:O}", "code", code, "message", message));
    json_decref(said);
    return responses_stream_event(x, "response.failed", json_pack("{s:o}", "response", object));
}
