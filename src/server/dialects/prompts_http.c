/* SPDX-License-Identifier: Apache-2.0 */
/* prompts_http.c: /v1/prompts: a PML prompt, as JSON {"prompt": "<prompt ...>", ...}, as parts with text that is never
 * parsed (prompt_parts.c), or as the document itself. Events are "text", "done" and "error". */
#include <string.h>

#include "server/answers/report.h"
#include "server/dialects/dialect_handlers.h"
#include "server/dialects/openai.h"
#include "server/dialects/pml_dialect.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"
#include "server/prompt/known_fields.h"

/* Roles do not nest: there are two levels at most. */
static const server_known_fields inside[] = {
    {"parts[]", "type text name schema args role parts"},
    {"parts[].parts[]", "type text name schema args role parts"},
};

int pml_parse_prompt(generation *gen, server_problem *p) {
    server_fields f = {gen->root, p, ""};
    openai_parse_common(gen, &f);
    gen->otherwise.temperature = 0; /* as `reprise run` */
    server_field_text(&f, "prompt", &gen->pml);
    server_field_int(&f, "logprobs", 0, RP_MAX_LOGPROBS, &gen->n_logprobs);
    generation_parts(gen, &f);
    if (gen->pml && gen->built)
        server_fail(p, SERVER_INVALID, "parts", "'prompt' and 'parts' exclude each other: give one of them");
    if (!gen->pml && !gen->built)
        server_fail(p, SERVER_INVALID, "prompt",
                    "'prompt' is missing: give a PML document, or 'schema' and 'parts' with text that is not parsed");
    generation_known(gen, &f, OPENAI_COMMON_FIELDS "prompt schema parts logprobs");
    generation_known_inside(gen, inside, BASE_ARRAY_LEN(inside), p);
    return (int)p->kind;
}

/* "o*" omits fields that were not requested. */
static json_t *prompts_http_answer(const server_request *x, const server_choice *c) {
    const rp_result *r = c->result;
    json_t *logprobs = x->gen->n_logprobs >= 0 ? openai_result_logprobs(x, r) : NULL;
    json_t *prompt_logprobs = x->gen->n_prompt_logprobs >= 0 ? openai_prompt_logprobs(x, r) : NULL;
    return json_pack("{s:i, s:o, s:s, s:o*, s:o*}", "index", (int)c->index, "text",
                     base_json_string(r->text, strlen(r->text)), "finish_reason", r->finish_reason, "logprobs",
                     logprobs, "prompt_logprobs", prompt_logprobs);
}

static json_t *prompts_http_report(const server_request *x) {
    json_t *answers = json_array();
    for (int32_t i = 0; i < x->answers->n_choices && answers; i++)
        if (json_array_append_new(answers, prompts_http_answer(x, &x->answers->choices[i])))
            return json_decref(answers), NULL;
    const server_usage u = report_usage(x);
    json_t *usage = json_pack("{s:I, s:I, s:I, s:I}", "prompt_tokens", (json_int_t)u.prompt, "cached_tokens",
                              (json_int_t)u.cached, "fresh_tokens", (json_int_t)(u.prompt - u.cached), "answer_tokens",
                              (json_int_t)u.answer);
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "object", "prompt", "id", x->id, "model",
                     server_request_model(x), "answers", answers, "usage", usage, "reprise", report_reprise(x));
}

static json_t *prompts_http_whole(server_request *x) { return prompts_http_report(x); }

static int prompts_http_report_piece(server_request *x, server_choice *c, const server_piece *piece) {
    bool has_tokens = piece->tokens != piece->tokens_end;
    if (piece->n == 0 && !has_tokens) return 0;
    json_t *logprobs = has_tokens ? openai_piece_logprobs(x, piece) : NULL;
    json_t *text = base_json_string(piece->text, piece->n);
    return server_request_frame(
        x, "text", json_pack("{s:i, s:o, s:o*}", "index", (int)c->index, "text", text, "logprobs", logprobs));
}

static int prompts_http_end_stream(server_request *x) {
    return server_request_frame(x, "done", prompts_http_report(x));
}

static int prompts_http_fail_stream(server_request *x, const server_problem *p) {
    return server_request_frame(x, "error", server_problem_openai(p));
}

static const server_form form = {
    .parse = pml_parse_prompt,
    .whole = prompts_http_whole,
    .piece = prompts_http_report_piece,
    .end = prompts_http_end_stream,
    .fail = prompts_http_fail_stream,
};

/* The body is the PML document; every option has its default. */
static void handle_document(server_request *x) {
    json_t *prompt = json_stringn(x->body.data ? x->body.data : "", x->body.len);
    json_t *root = prompt ? json_pack("{s:o, s:b}", "prompt", prompt, "stream", server_request_wants_events(x)) : NULL;
    if (root) generation_parse(x->gen, root, pml_parse_prompt, &x->problem);
    else server_fail(&x->problem, SERVER_INVALID, NULL, "the body is not UTF-8");
    json_decref(root);
    if (x->problem.kind) server_request_reply_problem(x);
    else generate_begin(x, &form);
}

void handle_prompt(server_request *x) {
    if (request_is_document(x)) handle_document(x);
    else generate_handle(x, &form);
}
