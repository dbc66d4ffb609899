/* SPDX-License-Identifier: Apache-2.0 */
/* openai_text.c: /v1/completions. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "server/answers/report.h"
#include "server/dialects/dialect_handlers.h"
#include "server/dialects/openai.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"

#define DEFAULT_TOKENS 16 /* the official default */
#define MAX_LOGPROBS 20

/* ---- fields ---- */

int openai_parse_text(generation *gen, server_problem *p) {
    server_fields f = {gen->root, p, ""};
    int32_t best_of = 0;
    const char *suffix = NULL;
    gen->max_tokens = DEFAULT_TOKENS;
    openai_parse_common(gen, &f);
    generation_prompts(gen, &f, "prompt", false);
    server_field_bool(&f, "echo", &gen->echo);
    server_field_int(&f, "logprobs", 0, MAX_LOGPROBS, &gen->n_logprobs);
    server_field_int(&f, "best_of", 1, SERVER_MAX_CHOICES, &best_of);
    if (best_of > 0 && best_of != gen->n)
        server_fail(p, SERVER_UNSUPPORTED, "best_of",
                    "'best_of' is not supported: leave it out, or give the value of 'n'");
    server_field_text(&f, "suffix", &suffix);
    if (suffix && suffix[0])
        gen->infill = (server_infill){.wanted = true, .suffix = suffix, .n_suffix = strlen(suffix)};
    if (gen->echo && gen->infill.wanted)
        server_fail(p, SERVER_UNSUPPORTED, "echo", "'echo' cannot be combined with 'suffix': leave one of them out");
    if (gen->echo && gen->n_logprobs >= 0) {
        if (gen->stream)
            server_fail(p, SERVER_UNSUPPORTED, "stream",
                        "'echo' with 'logprobs' is not available in a stream: leave 'stream' out");
        /* Clients that score a prompt drop the last entry: there must be one, even if the text ends. */
        if (gen->max_tokens == 1) gen->ignore_eos = true;
    }
    generation_known(gen, &f, OPENAI_COMMON_FIELDS "prompt echo logprobs best_of suffix");
    return (int)p->kind;
}

/* ---- log-probabilities: parallel arrays ---- */

typedef struct columns {
    json_t *tokens, *logprobs, *top, *offsets;
    size_t offset;
} columns;

static void add_row(columns *c, const server_request *x, int32_t token, float logprob, const rp_token_logprob *top,
                    int32_t n_top) {
    size_t n = 0;
    BASE_ASSERT(n_top >= 0 && (n_top == 0 || top));
    json_t *likeliest = json_object();
    rp_token_bytes(x->model->model, token, false, &n);
    for (int32_t i = 0; i < n_top; i++) {
        json_t *text = openai_token_text(x, top[i].token);
        if (text &&
            !json_object_get(likeliest, json_string_value(text))) /* of tokens with one text, the most likely one */
            json_object_set_new(likeliest, json_string_value(text),
                                json_real(openai_logprob(top[i].logprob)));
        json_decref(text);
    }
    json_array_append_new(c->tokens, openai_token_text(x, token));
    json_array_append_new(c->logprobs, json_real(openai_logprob(logprob)));
    json_array_append_new(c->top, likeliest);
    json_array_append_new(c->offsets, json_integer((json_int_t)c->offset));
    c->offset += n;
}

static columns begin_columns(size_t offset) {
    return (columns){json_array(), json_array(), json_array(), json_array(), offset};
}

static json_t *end_columns(const columns *c) {
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", c->tokens, "token_logprobs", c->logprobs, "top_logprobs", c->top,
                     "text_offset", c->offsets);
}

static const char *openai_text_prompt_of(const server_request *x, const server_choice *c) {
    BASE_ASSERT((size_t)(c->index / x->gen->n) < x->gen->n_prompts);
    return x->gen->echo ? x->gen->prompts[c->index / x->gen->n].text : "";
}

/* Bytes of the i-th token of the prompt in its echo: a prompt of ids shows control tokens, a text has none, and its
 * first word may have a space before it that the text has not. */
static size_t echoed_bytes(const server_request *x, const server_choice *choice, int32_t i) {
    const server_prompt *prompt = &x->gen->prompts[choice->index / x->gen->n];
    const rp_result *r = choice->result;
    BASE_ASSERT(i >= 0 && i < r->prompt_tokens && (size_t)(choice->index / x->gen->n) < x->gen->n_prompts);
    size_t n = 0, before = 0;
    const char *bytes = rp_token_bytes(x->model->model, r->prompt_ids[i], prompt->ids != NULL, &n);
    for (int32_t k = 0; k < i && before == 0; k++)
        rp_token_bytes(x->model->model, r->prompt_ids[k], prompt->ids != NULL, &before);
    return n - (!prompt->ids && before == 0 && n > 0 && bytes[0] == ' ' && prompt->text[0] != ' ');
}

/* The prompt's tokens; the first one has no log-probability. */
static void add_prompt_rows(columns *c, const server_request *x, const server_choice *choice) {
    const rp_result *r = choice->result;
    for (int32_t i = 0; i < r->prompt_tokens; i++) {
        const size_t offset = c->offset;
        add_row(c, x, r->prompt_ids[i], r->prompt_logprobs[i],
                r->prompt_top_logprobs + (size_t)i * (size_t)r->n_prompt_top,
                i == 0 ? 0 : BASE_MIN(r->n_prompt_top, x->gen->n_logprobs));
        c->offset = offset + echoed_bytes(x, choice, i);
    }
    json_array_set_new(c->logprobs, 0, json_null());
    json_array_set_new(c->top, 0, json_null());
}

static json_t *logprobs_of_result(const server_request *x, const server_choice *choice) {
    const rp_result *r = choice->result;
    if (x->gen->n_logprobs < 0) return json_null();
    columns c = begin_columns(0);
    if (x->gen->echo) add_prompt_rows(&c, x, choice);
    c.offset = strlen(openai_text_prompt_of(x, choice));
    for (int32_t i = 0; i < r->n_tokens; i++)
        add_row(&c, x, r->tokens[i], r->logprobs[i], r->top_logprobs + (size_t)i * (size_t)r->n_top,
                BASE_MIN(r->n_top, x->gen->n_logprobs));
    return end_columns(&c);
}

static json_t *logprobs_of_piece(const server_request *x, server_choice *choice, const server_piece *piece) {
    if (x->gen->n_logprobs < 0) return json_null();
    columns c = begin_columns(strlen(openai_text_prompt_of(x, choice)) + choice->reported_bytes);
    size_t before = c.offset;
    for (const server_token *t = piece->tokens; t != piece->tokens_end; t = server_token_next(t))
        add_row(&c, x, t->id, t->logprob, server_token_top(t), t->n_top);
    choice->reported_bytes += c.offset - before;
    return end_columns(&c);
}

/* ---- replies ---- */

static json_t *openai_text_head(const server_request *x, json_t *choices) {
    char id[SERVER_ID_BYTES + 16];
    snprintf(id, sizeof(id), "cmpl-%s", x->id);
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", id, "object", "text_completion", "created",
                     (json_int_t)server_request_created(x), "model", server_request_model(x), "system_fingerprint",
                     "reprise", "choices", choices);
}

static json_t *openai_text_choice_of(const server_request *x, const server_choice *c) {
    base_buffer text = BASE_BUFFER(SERVER_REPLY_BYTES);
    json_t *joined = NULL;
    if (base_buffer_append_str(&text, openai_text_prompt_of(x, c)) == 0 &&
        base_buffer_append_str(&text, c->result->text) == 0)
        joined = base_json_string(text.data, text.len);
    base_buffer_free(&text);
    json_t *prompt_logprobs = x->gen->n_prompt_logprobs >= 0 ? openai_prompt_logprobs(x, c->result) : NULL;
    return json_pack("{s:o, s:i, s:o, s:s, s:o*}", "text", joined, "index", (int)c->index, "logprobs",
                     logprobs_of_result(x, c), "finish_reason", openai_finish(c), "prompt_logprobs", prompt_logprobs);
}

static json_t *openai_text_whole(server_request *x) {
    json_t *choices = json_array();
    for (int32_t i = 0; i < x->answers->n_choices && choices; i++)
        if (json_array_append_new(choices, openai_text_choice_of(x, &x->answers->choices[i])))
            return json_decref(choices), NULL;
    json_t *all = openai_text_head(x, choices);
    if (all &&
        (json_object_set_new(all, "usage", openai_usage(x)) || json_object_set_new(all, "reprise", report_reprise(x))))
        return json_decref(all), NULL;
    return all;
}

static int openai_text_chunk(server_request *x, const server_choice *c, json_t *text, json_t *logprobs,
                             const char *finish) {
    json_t *all = openai_text_head(x, json_pack("[{s:o, s:i, s:o, s:s?}]", "text", text, "index", (int)c->index,
                                                "logprobs", logprobs, "finish_reason", finish));
    if (all && x->gen->include_usage) json_object_set_new(all, "usage", json_null());
    return server_request_frame(x, NULL, all);
}

static int openai_text_open_stream(server_request *x) {
    int rc = 0;
    for (int32_t i = 0; i < x->answers->n_choices && x->gen->echo && !rc; i++)
        rc = openai_text_chunk(x, &x->answers->choices[i],
                               base_json_string(openai_text_prompt_of(x, &x->answers->choices[i]),
                                                strlen(openai_text_prompt_of(x, &x->answers->choices[i]))),
                               json_null(), NULL);
    return rc;
}

static int openai_text_report_piece(server_request *x, server_choice *c, const server_piece *piece) {
    return openai_text_chunk(x, c, base_json_string(piece->text, piece->n), logprobs_of_piece(x, c, piece), NULL);
}

static int openai_text_close_choice(server_request *x, server_choice *c) {
    return openai_text_chunk(x, c, json_string(""), json_null(), openai_finish(c));
}

static int openai_text_end_stream(server_request *x) {
    if (x->gen->include_usage) {
        json_t *all = openai_text_head(x, json_array());
        if (all) json_object_set_new(all, "usage", openai_usage(x));
        if (all) json_object_set_new(all, "reprise", report_reprise(x));
        if (server_request_frame(x, NULL, all)) return 1;
    }
    return openai_done(x);
}

static const server_form form = {
    .parse = openai_parse_text,
    .whole = openai_text_whole,
    .open = openai_text_open_stream,
    .piece = openai_text_report_piece,
    .close = openai_text_close_choice,
    .end = openai_text_end_stream,
    .fail = openai_fail,
};

void handle_openai_text(server_request *x) { generate_handle(x, &form); }
