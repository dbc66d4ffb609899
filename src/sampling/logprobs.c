/* SPDX-License-Identifier: Apache-2.0 */
/* logprobs.c: how likely the model holds tokens, before anything is done to its logits. */
#include <math.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "sampling/sampler.h"

int logprobs_open(logprobs *l, int32_t n_top, int32_t n_vocab, rp_error *err) {
    l->n_vocab = n_vocab;
    l->n_top = BASE_MIN(n_top, n_vocab);
    if (l->n_top == 0) return RP_OK;
    l->candidates = base_calloc((size_t)n_vocab, sizeof(*l->candidates));
    return l->candidates ? RP_OK
                         : base_fail_memory(err, (uint64_t)n_vocab * sizeof(*l->candidates), "log-probabilities");
}

void logprobs_close(logprobs *l) {
    base_free(l->candidates);
    *l = (logprobs){0};
}

/* log(sum of exp(logit)). */
static double log_sum(const float *logits, int32_t n) {
    double highest = -INFINITY, sum = 0;
    for (int32_t i = 0; i < n; i++) highest = BASE_MAX(highest, (double)logits[i]);
    for (int32_t i = 0; i < n; i++) sum += exp(logits[i] - highest);
    return highest + log(sum);
}

double logprobs_entropy(const float *logits, int32_t n) {
    double highest = -INFINITY, sum = 0, moment = 0;
    for (int32_t i = 0; i < n; i++) highest = BASE_MAX(highest, (double)logits[i]);
    for (int32_t i = 0; i < n; i++) {
        const double below = logits[i] - highest, weight = exp(below);
        sum += weight;
        if (weight > 0) moment += weight * below; /* 0 times -infinity is no number */
    }
    return log(sum) - moment / sum;
}

double logprobs_token(const float *logits, int32_t n, int32_t token) {
    return (double)logits[token] - log_sum(logits, n);
}

static float logprob_of(float logit, double total) { return logit > -INFINITY ? (float)(logit - total) : -INFINITY; }

float logprobs_measure(const logprobs *l, const float *logits, int32_t token, rp_token_logprob *top) {
    BASE_ASSERT(l->n_top > 0 && token >= 0 && token < l->n_vocab);
    double total = log_sum(logits, l->n_vocab);
    for (int32_t i = 0; i < l->n_vocab; i++) l->candidates[i] = (sampler_candidate){logits[i], i};
    candidates_sort(l->candidates, l->n_vocab, l->n_top);
    for (int32_t i = 0; i < l->n_top; i++)
        top[i] = (rp_token_logprob){l->candidates[i].id, logprob_of((float)l->candidates[i].key, total)};
    return logprob_of(logits[token], total);
}
