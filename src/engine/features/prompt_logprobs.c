/* SPDX-License-Identifier: Apache-2.0 */
/* prompt_logprobs.c: see prompt_logprobs.h. */
#include "engine/features/prompt_logprobs.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/job_tokens.h"
#include "model/model.h"
#include "sampling/sampler.h"

typedef struct job_prompt_logprobs {
    logprobs logprobs;
} job_prompt_logprobs;

static job_prompt_logprobs *prompt_logprobs_of(const rp_job *c) {
    return job_feature_state(c, &prompt_logprobs_feature);
}

static int prompt_logprobs_ask(rp_job *c, const rp_request *o, rp_error *err) {
    if (o->n_prompt_logprobs == 0 || job_feature_add(c, &prompt_logprobs_feature)) return RP_OK;
    return base_fail_memory(err, sizeof(job_prompt_logprobs), "log-probabilities of a prompt");
}

static int prompt_logprobs_open(rp_job *c, rp_error *err) {
    job_prompt_logprobs *p = prompt_logprobs_of(c);
    rp_result *r = c->result;
    const size_t n = (size_t)c->n_prompt;
    if (!p) return RP_OK;
    /* a module's tokens attend to their scope, so the logits of their rows are not those of the prompt */
    if (!c->exact && c->plan->n_cached != 0)
        return base_fail(err, RP_ERR_CONFLICT,
                         "n_prompt_logprobs contradicts modules, whose tokens do not attend to the whole prompt: "
                         "give quality 'exact', or a prompt without modules");
    const int32_t n_vocab = c->engine->model->net.hp.n_vocab;
    const int rc = logprobs_open(&p->logprobs, c->request->options.n_prompt_logprobs, n_vocab, err);
    if (rc) return rc;
    const size_t n_top = (size_t)p->logprobs.n_top;
    BASE_ASSERT(n_top > 0);
    c->wants.all_logits = true;
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

static int prompt_logprobs_settle(rp_job *c, const job_rows *rows, BASE_UNUSED rp_error *err) {
    job_prompt_logprobs *p = prompt_logprobs_of(c);
    rp_result *r = c->result;
    const int32_t n_vocab = c->engine->model->net.hp.n_vocab;
    BASE_ASSERT(rows->first >= 0 && rows->first + rows->n <= job_n_given(c) && rows->n_logits == rows->n);
    for (int32_t i = 0; i < rows->n && rows->first + i + 1 < c->n_prompt; i++) {
        const int32_t at = rows->first + i + 1;
        const float *row = rows->logits + (size_t)i * (size_t)n_vocab;
        rp_token_logprob *top = r->prompt_top_logprobs + (size_t)at * (size_t)r->n_prompt_top;
        r->prompt_logprobs[at] = logprobs_measure(&p->logprobs, row, r->prompt_ids[at], top);
        int32_t rank = 1;
        for (int32_t k = 0; k < n_vocab; k++) rank += row[k] > row[r->prompt_ids[at]];
        r->prompt_ranks[at] = rank;
    }
    return RP_OK;
}

static const char *prompt_logprobs_miss_reason(BASE_UNUSED const rp_job *c) { return "logprobs"; }

static void prompt_logprobs_close(rp_job *c) { logprobs_close(&prompt_logprobs_of(c)->logprobs); }

const job_feature prompt_logprobs_feature = {
    .name = "n_prompt_logprobs",
    .state_bytes = sizeof(job_prompt_logprobs),
    .ask = prompt_logprobs_ask,
    .open = prompt_logprobs_open,
    .settle = prompt_logprobs_settle,
    .miss_reason = prompt_logprobs_miss_reason,
    .close = prompt_logprobs_close,
};
