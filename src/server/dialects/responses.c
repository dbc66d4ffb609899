/* SPDX-License-Identifier: Apache-2.0 */
/* responses.c: /v1/responses: the routes, and the table of operations of its form. */
#include "base/check.h"
#include "server/dialects/dialect_handlers.h"
#include "server/dialects/dialects.h"
#include "server/dialects/responses.h"

static json_t *responses_whole(server_request *x) {
    BASE_ASSERT(x->answers->n_choices == 1);
    json_t *all = responses_logprobs_add_result(&x->answers->choices[0])
                      ? NULL
                      : responses_object(x, responses_status(&x->answers->choices[0]));
    if (all) responses_keep(x, all);
    return all;
}

static const server_form form = {
    .parse = responses_parse,
    .whole = responses_whole,
    .open = responses_open,
    .piece = responses_tell_piece,
    .close = responses_close,
    .end = responses_end,
    .fail = responses_fail,
    .call = responses_tell_call,
    .reasoning = responses_tell_piece,
};

void handle_response_create(server_request *x) {
    kept_answers_begin(x, &responses_kind, &form);
}

void handle_response_get(server_request *x) {
    json_t *object = kept_answers_get(x, &responses_kind, false);
    if (object) server_request_reply_json(x, 200, object);
    else server_request_reply_problem(x);
}

void handle_response_delete(server_request *x) {
    if (kept_answers_remove(x, &responses_kind)) server_request_reply_problem(x);
    else
        server_request_reply_json(x, 200,
                                  json_pack("{s:s, s:s, s:b}", "id", x->name, "object", "response", "deleted", 1));
}
