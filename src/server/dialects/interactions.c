/* SPDX-License-Identifier: Apache-2.0 */
/* interactions.c: the routes of Gemini's Interactions. Owns nothing. */
#include "server/dialects/interactions.h"

#include <string.h>

#include "base/check.h"
#include "server/dialects/dialect_handlers.h"
#include "server/dialects/dialects.h"

static json_t *interactions_whole(server_request *x) {
    BASE_ASSERT(x->answers->n_choices == 1);
    json_t *all = interactions_object(x, interactions_status(&x->answers->choices[0]), true);
    if (all) interactions_keep(x, all);
    return all;
}

static const server_form form = {.parse = interactions_parse,
                                 .whole = interactions_whole,
                                 .open = interactions_open,
                                 .piece = interactions_report_piece,
                                 .close = interactions_close,
                                 .end = interactions_end,
                                 .fail = interactions_fail,
                                 .call = interactions_report_call,
                                 .reasoning = interactions_report_reasoning};

void handle_interaction_create(server_request *x) {
    kept_answers_begin(x, &interactions_kind, &form);
}

static bool is_asked(const server_request *x, const char *name) {
    const char *value = server_request_query(x, name);
    return value && (strcmp(value, "true") == 0 || strcmp(value, "1") == 0);
}

/* ?include_input=true, ?stream=true: the stream anew. Its events have no ids: there is none to continue after. */
void handle_interaction_get(server_request *x) {
    const char *last = server_request_query(x, "last_event_id");
    if (last && last[0])
        server_fail(&x->problem, SERVER_UNSUPPORTED, "last_event_id",
                    "'last_event_id' is not supported: leave it out, the stream has all steps");
    json_t *object = x->problem.kind ? NULL : kept_answers_get(x, &interactions_kind, is_asked(x, "include_input"));
    if (object && is_asked(x, "stream") && interactions_replay(x, object)) server_fail_memory(&x->problem);
    if (x->problem.kind) server_request_reply_problem(x);
    else if (is_asked(x, "stream")) {
        base_buffer frames = x->reply;
        x->reply = (base_buffer){0};
        server_request_reply_text(x, 200, "text/event-stream", &frames);
    } else server_request_reply_json(x, 200, json_incref(object));
    json_decref(object);
}

void handle_interaction_delete(server_request *x) {
    if (kept_answers_remove(x, &interactions_kind)) server_request_reply_problem(x);
    else server_request_reply_json(x, 200, json_object());
}

/* Only interactions in the background can be cancelled, and there are none: those that are stored have ended. */
void handle_interaction_cancel(server_request *x) {
    json_t *object = kept_answers_get(x, &interactions_kind, false);
    if (object)
        server_fail(&x->problem, SERVER_INVALID, NULL,
                    "interaction '%.80s' has ended: close the connection to cancel one that runs", x->name);
    json_decref(object);
    server_request_reply_problem(x);
}
