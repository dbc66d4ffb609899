/* SPDX-License-Identifier: Apache-2.0 */
/* prompt_logprobs.c: see prompt_logprobs.h. */
#include "engine/features/prompt_logprobs.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/job_tokens.h"
#include "model/model.h"
#include "sampling/sampler.h"

/* A module's tokens attend to their scope, so the logits of their rows are not those of the prompt. */
static int prompt_logprobs_check(const rp_job *c, rp_error *err) {
    if (c->exact || c->plan->n_cached == 0) return RP_OK;
    return base_fail(
        err, RP_ERR_CONFLICT,
        "n_prompt_logprobs contradicts modules, whose tokens do not attend to the whole prompt: give quality 'exact', or a prompt without modules");
}

int prompt_logprobs_open(rp_job *c, rp_error *err) {
    rp_result *r = c->result;
    const size_t n = (size_t)c->n_prompt;
    if (c->request->options.n_prompt_logprobs == 0) return RP_OK;
    int rc = prompt_logprobs_check(c, err);
    if (!rc) rc = logprobs_open(&c->prompt_logprobs.logprobs, c->request->options.n_prompt_logprobs, c->engine->model->net.hp.n_vocab, err);
    if (rc) return rc;
    const size_t n_top = (size_t)c->prompt_logprobs.logprobs.n_top;
    r->n_prompt_top = (int32_t)n_top;
    r->prompt_ids = base_calloc(n, sizeof(*r->prompt_ids));
    r->prompt_logprobs = base_calloc(n, sizeof(*r->prompt_logprobs));
    r->prompt_ranks = base_calloc(n, sizeof(*r->prompt_ranks));
    r->prompt_top_logprobs = base_calloc(n, n_top * sizeof(*r->prompt_top_logprobs));
    if (!r->prompt_ids || !r->prompt_logprobs || !r->prompt_ranks || !r->prompt_top_logprobs)
        return base_fail_memory(err, n * n_top * sizeof(*r->prompt_top_logprobs), "log-probabilities of a prompt");
    memcpy(r->prompt_ids, c->tokens, n * sizeof(*r->prompt_ids));
    r->prompt_logprobs[0] = NAN;
    for (size_t i = 0; i < n_top; i++) r->prompt_top_logprobs[i] = (rp_token_logprob){-1, NAN};
    return RP_OK;
}

static int32_t rank_of(const float *logits, int32_t n, int32_t token) {
    int32_t rank = 1;
    for (int32_t i = 0; i < n; i++) rank += logits[i] > logits[token];
    return rank;
}

void prompt_logprobs_take(rp_job *c, int32_t first, int32_t n, const float *logits) {
    rp_result *r = c->result;
    const int32_t n_vocab = c->engine->model->net.hp.n_vocab;
    BASE_ASSERT(first >= 0 && first + n <= job_n_given(c));
    for (int32_t i = 0; i < n && first + i + 1 < c->n_prompt; i++) {
        const int32_t at = first + i + 1;
        const float *row = logits + (size_t)i * (size_t)n_vocab;
        r->prompt_logprobs[at] =
            logprobs_measure(&c->prompt_logprobs.logprobs, row, r->prompt_ids[at], r->prompt_top_logprobs + (size_t)at * (size_t)r->n_prompt_top);
        r->prompt_ranks[at] = rank_of(row, n_vocab, r->prompt_ids[at]);
    }
}

void prompt_logprobs_close(job_prompt_logprobs *p) { logprobs_close(&p->logprobs); }
