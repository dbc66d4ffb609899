/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.h: logits -> token, and how likely it was. The steps and their order are reprise_sampling.h's (rp_sampling).
 *
 *   logits --allowed, bias, penalties--> adjusted copy --[top_k, typical, top_p, min_p]--> candidates --temperature,
 *   random--> token
 *
 * A sampler belongs to one answer. Opening it allocates what its steps need, and nothing for greedy without bias and
 * penalties; a token allocates nothing. Logits are read and never written. One thread at a time; nothing depends on how
 * many computed the logits.
 */
#ifndef SAMPLING_SAMPLER_H
#define SAMPLING_SAMPLER_H

#include "reprise.h"

/* ---- Options ---- */

/* Checks sampling, stops, n_logprobs and n_prompt_logprobs of a request: the one place that does. RP_ERR_INVALID,
   RP_ERR_LIMIT. */
int sampling_check(const rp_request *request, int32_t n_vocab, rp_error *err);

/* Do earlier tokens change the distribution (penalties)? */
bool sampling_looks_back(const rp_sampling *o);

/* ---- Candidates ---- */

/* A token that may be drawn. Better is a higher key, and the lower id of two with equal keys. */
typedef struct sampler_candidate {
    double key; /* the logit, outside of `typical`; a double, so that rounding makes no two keys equal */
    int32_t id;
} sampler_candidate;

/* Brings the k <= n best to the front, best first; the others stay in any order. O(n + m log k), m of them were ever
   among the best. */
void candidates_sort(sampler_candidate *c, int32_t n, int32_t k);

/* Steps 3 to 6: fills c, [n_vocab], with the remaining tokens, their logits as keys, and returns how many. Those with a
 * logit of -infinity or not a number never remain; 0 if there is no other. */
int32_t sampler_filter(const rp_sampling *o, const float *logits, int32_t n_vocab, sampler_candidate *c);

/* ---- Drawing ---- */

typedef struct sampler {
    rp_sampling options; /* its bias is borrowed */
    int32_t n_vocab;
    uint64_t random; /* splitmix64 */
    bool adjusts;    /* there are a bias or penalties */
    /* [n_vocab] logits after them, of what is allowed; NULL if there are none and all is always allowed */
    float *adjusted;
    const uint64_t *allowed;       /* tokens that may be drawn, as bits; NULL: all. Set for a draw, after
                                      sampler_restrict; borrowed */
    sampler_candidate *candidates; /* [n_vocab]; NULL at temperature 0 */
    int32_t *counts;               /* [n_vocab] occurrences in the window; NULL if nothing looks back */
    int32_t *window;               /* [window_cap] the last tokens, a ring; NULL if nothing looks back */
    int32_t window_cap, n_window, oldest;
} sampler;

/* Zero-initialise. Options are checked ones. max_tokens: how many sampler_accept will ever get. RP_ERR_MEMORY; close it
   after that too. */
int sampler_open(sampler *s, const rp_sampling *options, int32_t n_vocab, int64_t max_tokens, rp_error *err);
void sampler_close(sampler *s);

/* Allocates the arrays for sampling with disallowed tokens. RP_ERR_MEMORY. */
int sampler_restrict(sampler *s, rp_error *err);

/* Adds a token of the prompt or the answer to the history, in order. */
void sampler_accept(sampler *s, int32_t token);

/* Where no token has a logit above -infinity, not even one that is allowed, it is any token. */
int32_t sampler_draw(sampler *s, const float *logits);
/* Instead of sampler_draw: the token is known. Later tokens are those that they would be after sampler_draw. */
void sampler_skip(sampler *s);

/* ---- Log-probabilities ---- */

typedef struct logprobs {
    int32_t n_vocab, n_top;
    sampler_candidate *candidates; /* [n_vocab]; NULL if none are wanted */
} logprobs;

/* Zero-initialise. n_top: 0 for none. RP_ERR_MEMORY. */
int logprobs_open(logprobs *l, int32_t n_top, int32_t n_vocab, rp_error *err);
void logprobs_close(logprobs *l);

/* Entropy of the model's own distribution over n tokens, in nats. A NaN if a logit is one. */
double logprobs_entropy(const float *logits, int32_t n);
/* The log-probability of a token in the model's own distribution. */
double logprobs_token(const float *logits, int32_t n, int32_t token);
/* Log-probability of a token, and of of the n_top most likely ones into top. */
float logprobs_measure(const logprobs *l, const float *logits, int32_t token, rp_token_logprob *top);

#endif
