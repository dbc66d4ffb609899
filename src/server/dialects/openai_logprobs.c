/* SPDX-License-Identifier: Apache-2.0 */
/* openai_logprobs.c: log-probabilities of an answer's tokens, as chat completions and /v1/prompts list them, and of a
 * prompt's, as vLLM lists them. Owns nothing. */
#include <math.h>
#include <stdio.h>

#include "base/check.h"
#include "server/dialects/openai.h"

#define LEAST_LOGPROB (-9999.0) /* what clients expect for never */

double openai_logprob(float logprob) { return isfinite(logprob) ? (double)logprob : LEAST_LOGPROB; }

static json_t *logprob_entry(const server_request *x, int32_t token, float logprob) {
    return json_pack("{s:o, s:f, s:o}", "token", openai_token_text(x, token), "logprob", openai_logprob(logprob),
                     "bytes", openai_token_bytes(x, token));
}

static json_t *token_entry(const server_request *x, int32_t token, float logprob, const rp_token_logprob *top,
                           int32_t n_top) {
    BASE_ASSERT(n_top >= 0 && (n_top == 0 || top));
    json_t *one = logprob_entry(x, token, logprob), *list = json_array();
    for (int32_t i = 0; i < n_top && list; i++)
        if (json_array_append_new(list, logprob_entry(x, top[i].token, top[i].logprob))) break;
    if (one && list && json_object_set_new(one, "top_logprobs", list) == 0) return one;
    json_decref(one);
    return NULL;
}

json_t *openai_result_logprobs(const server_request *x, const rp_result *r) {
    BASE_ASSERT(x->gen->n_logprobs >= 0);
    int32_t n_top = BASE_MIN(r->n_top, x->gen->n_logprobs);
    json_t *list = json_array();
    for (int32_t i = 0; i < r->n_tokens && list; i++)
        if (json_array_append_new(list, token_entry(x, r->tokens[i], r->logprobs[i],
                                                    r->top_logprobs + (size_t)i * (size_t)r->n_top, n_top)))
            break;
    return list;
}

json_t *openai_piece_logprobs(const server_request *x, const server_piece *piece) {
    BASE_ASSERT(x->gen->n_logprobs >= 0);
    json_t *list = json_array();
    for (const server_token *t = piece->tokens; t != piece->tokens_end && list; t = server_token_next(t))
        if (json_array_append_new(list, token_entry(x, t->id, t->logprob, server_token_top(t), t->n_top))) break;
    return list;
}

/* ---- vLLM's ---- */

static int add_ranked(json_t *all, const server_request *x, int32_t token, float logprob, int32_t rank) {
    char id[16];
    snprintf(id, sizeof(id), "%d", (int)token);
    json_t *text = openai_token_text(x, token);
    return json_object_set_new(
        all, id,
        json_pack("{s:f, s:i, s:o}", "logprob", openai_logprob(logprob), "rank", (int)rank, "decoded_token", text));
}

static json_t *ranked_of_token(const server_request *x, const rp_result *r, int32_t i) {
    const rp_token_logprob *top = r->prompt_top_logprobs + (size_t)i * (size_t)r->n_prompt_top;
    json_t *all = i == 0 ? json_null() : json_object();
    for (int32_t k = 0; k < BASE_MIN(r->n_prompt_top, x->gen->n_prompt_logprobs) && i > 0 && all; k++)
        if (add_ranked(all, x, top[k].token, top[k].logprob, k + 1)) return json_decref(all), NULL;
    if (i > 0 && all && add_ranked(all, x, r->prompt_ids[i], r->prompt_logprobs[i], r->prompt_ranks[i]))
        return json_decref(all), NULL;
    return all;
}

json_t *openai_prompt_logprobs(const server_request *x, const rp_result *r) {
    BASE_ASSERT(x->gen->n_prompt_logprobs >= 0);
    json_t *list = json_array();
    for (int32_t i = 0; i < r->prompt_tokens && list; i++)
        if (json_array_append_new(list, ranked_of_token(x, r, i))) return json_decref(list), NULL;
    return list;
}
