/* SPDX-License-Identifier: Apache-2.0 */
/* llamacpp.c: /completion and /infill of llama.cpp's server: its fields, defaults, frames and timings. */
#include "server/dialects/dialect_handlers.h"

#include <math.h>
#include <string.h>

#include "base/check.h"

#include "server/answers/report.h"
#include "server/dialects/dialects.h"
#include "server/dialects/openai.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"
#include "server/prompt/known_fields.h"

/* ---- fields ---- */

/* A negative length selects the server's default; 0 evaluates the prompt only. */
static void parse_length(generation *gen, const server_fields *f, const char *name) {
    server_field_int(f, name, -2, INT32_MAX, &gen->max_tokens);
    if (gen->max_tokens < 0) gen->max_tokens = -1;
}

#define COMPLETION_FIELDS \
    SERVER_EXTRA_FIELDS "prompt stream max_tokens n_predict temperature top_p presence_penalty frequency_penalty " \
                        "seed n_probs stop logit_bias " \
                        "json_schema n_cmpl cache_prompt n_cache_reuse model id_slot n_keep min_keep return_tokens " \
                        "timings_per_token return_progress post_sampling_probs response_fields "

/* Tokens that are computed again after an edit: some quality for little time (docs/scheduling.md). */
#define RECOMPUTED_AFTER_EDIT 32

/* llama.cpp's n_cache_reuse is the size of the smallest run that it moves; here any is moved that is worth it. 0:
   none. */
void llamacpp_parse_cache(generation *gen, const server_fields *f) {
    int32_t n = 0;
    server_field_bool(f, "return_progress", &gen->returns_progress);
    server_field_int(f, "n_cache_reuse", 0, INT32_MAX, &n);
    if (n <= 0 || server_field(f, "shifted_reuse")) return;
    gen->shifted_reuse = RECOMPUTED_AFTER_EDIT;
    gen->names_shifted = true;
}

/* All fields but the prompt. */
static void llamacpp_parse_options(generation *gen, const server_fields *f) {
    rp_sampling *s = &gen->sampling;
    bool cache_prompt = true;
    int32_t n_probs = 0;
    gen->otherwise.temperature = 0.8f; /* llama.cpp's defaults */
    gen->otherwise.top_k = 40;
    gen->otherwise.top_p = 0.95f;
    gen->otherwise.min_p = 0.05f;
    server_field_text(f, "model", &gen->model);
    server_field_bool(f, "stream", &gen->stream);
    parse_length(gen, f, "max_tokens");
    parse_length(gen, f, "n_predict");
    server_field_real(f, "temperature", 0, 100, &s->temperature);
    server_field_real(f, "top_p", 0, 1, &s->top_p);
    server_field_real(f, "presence_penalty", -100, 100, &s->presence_penalty);
    server_field_real(f, "frequency_penalty", -100, 100, &s->frequency_penalty);
    gen->has_seed = server_field_seed(f, "seed", &s->seed) && (int64_t)s->seed >= 0;
    server_field_int(f, "n_cmpl", 1, SERVER_MAX_CHOICES, &gen->n);
    server_field_bool(f, "return_tokens", &gen->returns_tokens);
    server_field_int(f, "n_probs", 0, RP_MAX_LOGPROBS, &n_probs);
    if (n_probs > 0) gen->n_logprobs = n_probs;
    generation_stops(gen, f, "stop");
    generation_bias(gen, f, "logit_bias");
    generation_extras(gen, f);
    openai_parse_json_schema(gen, f);
    llamacpp_parse_cache(gen, f);
    server_field_bool(f, "cache_prompt", &cache_prompt);
    if (!cache_prompt) gen->reuse = RP_REUSE_OFF;
}

int llamacpp_parse_completion(generation *gen, server_problem *p) {
    server_fields f = {gen->root, p, ""};
    generation_prompts(gen, &f, "prompt", true);
    llamacpp_parse_options(gen, &f);
    generation_known(gen, &f, COMPLETION_FIELDS);
    return (int)p->kind;
}

/* A list of files: {"filename": ..., "text": ...}. */
static void parse_extra(generation *gen, const server_fields *f) {
    const json_t *files = server_field_array(f, "input_extra");
    for (size_t i = 0; i < json_array_size(files) && !f->problem->kind; i++) {
        const json_t *one = json_array_get(files, i);
        if (!json_is_string(json_object_get(one, "text")) ||
            (json_object_get(one, "filename") && !json_is_string(json_object_get(one, "filename"))))
            server_fail(f->problem, SERVER_INVALID, "input_extra",
                        "'input_extra[%zu]' must be {\"filename\": \"...\", \"text\": \"...\"}", i);
    }
    if (json_array_size(files) > SERVER_MAX_INFILL_FILES)
        server_fail(f->problem, SERVER_INVALID, "input_extra", "'input_extra' has %zu entries: give at most %d",
                    json_array_size(files), SERVER_MAX_INFILL_FILES);
    gen->infill.files = files;
}

int llamacpp_parse_infill(generation *gen, server_problem *p) {
    static const server_known_fields inside[] = {{"input_extra[]", "filename text"}};
    server_fields f = {gen->root, p, ""};
    const char *prefix = NULL;
    server_field_text(&f, "input_prefix", &prefix);
    server_field_text(&f, "input_suffix", &gen->infill.suffix);
    server_field_text(&f, "prompt", &gen->infill.begun);
    if (!prefix || !gen->infill.suffix)
        server_fail(p, SERVER_INVALID, prefix ? "input_suffix" : "input_prefix", "'%s' is missing: give a string",
                    prefix ? "input_suffix" : "input_prefix");
    parse_extra(gen, &f);
    generation_prompts(gen, &f, "input_prefix", false);
    gen->infill.wanted = true;
    gen->infill.n_suffix = gen->infill.suffix ? strlen(gen->infill.suffix) : 0;
    llamacpp_parse_options(gen, &f);
    generation_known(gen, &f, COMPLETION_FIELDS "input_prefix input_suffix input_extra");
    generation_known_inside(gen, inside, BASE_ARRAY_LEN(inside), p);
    return (int)p->kind;
}

/* ---- replies ---- */

static double llamacpp_per(double a, double b) { return b > 0 ? a / b : 0; }

/* prompt_ms is llama.cpp's: the time to first token without the waiting. */
static json_t *result_timings(const rp_result *r) {
    double prompt_ms = r->timings.ttft_ms - r->timings.queue_ms, decode_ms = r->timings.decode_ms;
    return json_pack("{s:i, s:i, s:f, s:f, s:f, s:i, s:f, s:f, s:f}", "cache_n", (int)r->cached_tokens, "prompt_n",
                     (int)r->fresh_tokens, "prompt_ms", prompt_ms, "prompt_per_token_ms",
                     llamacpp_per(prompt_ms, r->fresh_tokens), "prompt_per_second",
                     llamacpp_per(1e3 * r->fresh_tokens, prompt_ms), "predicted_n", (int)r->n_tokens, "predicted_ms",
                     decode_ms, "predicted_per_token_ms", llamacpp_per(decode_ms, r->n_tokens), "predicted_per_second",
                     llamacpp_per(1e3 * r->n_tokens, decode_ms));
}

static json_t *llamacpp_probability(const server_request *x, int32_t token, float logprob) {
    return json_pack("{s:i, s:o, s:f, s:o}", "id", (int)token, "token", openai_token_text(x, token), "logprob",
                     isfinite(logprob) ? (double)logprob : -9999.0, "bytes", openai_token_bytes(x, token));
}

static json_t *llamacpp_probabilities(const server_request *x, const rp_result *r) {
    json_t *list = json_array();
    for (int32_t i = 0; i < r->n_tokens && list && x->gen->n_logprobs > 0; i++) {
        json_t *one = llamacpp_probability(x, r->tokens[i], r->logprobs[i]), *top = json_array();
        const rp_token_logprob *likeliest = r->top_logprobs + (size_t)i * (size_t)r->n_top;
        for (int32_t k = 0; k < BASE_MIN(r->n_top, x->gen->n_logprobs); k++)
            json_array_append_new(top, llamacpp_probability(x, likeliest[k].token, likeliest[k].logprob));
        json_object_set_new(one, "top_logprobs", top);
        json_array_append_new(list, one);
    }
    return list;
}

/* content: the content of this message; takes ownership. */
static json_t *llamacpp_end_of(const server_request *x, const server_choice *c, json_t *content) {
    const rp_result *r = c->result;
    const char *type = report_finish(r) == SERVER_FINISH_LENGTH ? "limit" : r->stop ? "word"
                                                                                    : "eos";
    json_t *word = json_string(r->stop ? r->stop : "");
    json_t *all = json_pack("{s:i, s:o, s:i, s:b, s:s, s:i, s:i, s:i, s:b, s:s, s:o, s:o, s:o}", "index", (int)c->index,
                            "content", content, "id_slot", 0, "stop", 1, "model", server_request_model(x),
                            "tokens_predicted", (int)r->n_tokens, "tokens_evaluated", (int)r->prompt_tokens,
                            "tokens_cached", (int)(r->prompt_tokens + r->n_tokens), "truncated", 0, "stop_type", type,
                            "stopping_word", word, "timings", result_timings(r), "reprise", report_reprise(x));
    if (all && x->gen->n_logprobs > 0)
        json_object_set_new(all, "completion_probabilities", llamacpp_probabilities(x, r));
    return all;
}

static json_t *llamacpp_tokens(const rp_result *r) {
    json_t *list = json_array();
    for (int32_t i = 0; i < r->n_tokens && list; i++)
        if (json_array_append_new(list, json_integer(r->tokens[i]))) return json_decref(list), NULL;
    return list;
}

static json_t *whole_of(const server_request *x, const server_choice *c) {
    json_t *all = llamacpp_end_of(x, c, base_json_string(c->result->text, strlen(c->result->text)));
    if (all && json_object_set_new(all, "tokens", x->gen->returns_tokens ? llamacpp_tokens(c->result) : json_array()))
        return json_decref(all), NULL;
    return all;
}

/* Several prompts have a list of answers. */
static json_t *llamacpp_whole(server_request *x) {
    if (x->answers->n_choices == 1) return whole_of(x, &x->answers->choices[0]);
    json_t *list = json_array();
    for (int32_t i = 0; i < x->answers->n_choices && list; i++)
        if (json_array_append_new(list, whole_of(x, &x->answers->choices[i]))) return json_decref(list), NULL;
    return list;
}

static int llamacpp_report_piece(server_request *x, server_choice *c, const server_piece *piece) {
    if (piece->n == 0) return 0;
    return server_request_frame(x, NULL,
                                json_pack("{s:i, s:o, s:b, s:i}", "index", (int)c->index, "content",
                                          base_json_string(piece->text, piece->n), "stop", 0, "id_slot", 0));
}

static int llamacpp_report_progress(server_request *x, server_choice *c, const server_prompt_progress *progress) {
    BASE_ASSERT(x->gen->returns_progress);
    return server_request_frame(x, NULL,
                                json_pack("{s:i, s:s, s:[], s:b, s:i, s:o}", "index", (int)c->index, "content", "",
                                          "tokens", "stop", 0, "id_slot", 0, "prompt_progress",
                                          generate_progress(progress)));
}

static int llamacpp_close_choice(server_request *x, server_choice *c) {
    return server_request_frame(x, NULL, llamacpp_end_of(x, c, json_string("")));
}

static int llamacpp_fail_stream(server_request *x, const server_problem *p) {
    return server_request_frame(x, NULL, server_problem_llamacpp(p));
}

#define LLAMACPP_FORM(parser) \
    { \
        .parse = (parser), .whole = llamacpp_whole, .piece = llamacpp_report_piece, .close = llamacpp_close_choice, \
        .fail = llamacpp_fail_stream, .progress = llamacpp_report_progress \
    }

static const server_form form = LLAMACPP_FORM(llamacpp_parse_completion),
                         infill_form = LLAMACPP_FORM(llamacpp_parse_infill);

void handle_llamacpp_infill(server_request *x) { generate_handle(x, &infill_form); }

void handle_llamacpp_completion(server_request *x) { generate_handle(x, &form); }
