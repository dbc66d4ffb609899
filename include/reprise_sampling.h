/* SPDX-License-Identifier: Apache-2.0 */
/* reprise_sampling.h: how an answer's tokens are sampled, and the sampling that a model's file advises. Conventions
 * are those of reprise.h, which includes it.
 */
#ifndef REPRISE_SAMPLING_H
#define REPRISE_SAMPLING_H

#include "reprise_error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rp_model rp_model;

typedef struct rp_logit_bias {
    int32_t token;
    float bias; /* -1000 to 1000, or -INFINITY: never this token */
} rp_logit_bias;

/* How the next token is sampled from its logits. The steps, in this order:
 *
 *   0. grammar      tokens that rp_request.grammar does not allow get a logit of -infinity
 *   1. bias         is added to a token's logit
 *   2. penalties    for a token that occurs c > 0 times in the last `repeat_last` tokens of prompt and answer: a logit
 *                   above 0 is divided by repeat_penalty, any other is multiplied by it (Keskar et al., 2019); then
 *                   presence_penalty and c * frequency_penalty are subtracted. Temperature 0 picks the most likely
 *                   token here.
 *   3. top_k        keeps the k most likely tokens (Fan et al., 2018)
 *   4. typical      keeps the tokens with the surprise nearest to the entropy, up to this cumulative probability
 *                   (Meister et al., 2022)
 *   5. top_p        keeps the most likely tokens up to this cumulative probability (Holtzman et al., 2020)
 *   6. min_p        keeps tokens with at least this fraction of the top token's probability (Nguyen et al., 2024)
 *   7. temperature  draws one of the remaining tokens from softmax(logits / temperature)
 *
 * Steps 4 to 6 use the probabilities, at temperature 1, of the tokens that the previous steps kept. Each step keeps
 * at least one token; ties are broken by the lowest id. The order is llama.cpp's default, so its values have the same
 * meaning here. Its other defaults (temperature 0.8, top_k 40, top_p 0.95, min_p 0.05) are not used: each filter is
 * off by default.
 *
 * The same seed, options and logits give the same tokens, on any number of threads.
 *
 * Log-probabilities (rp_request.n_logprobs, n_prompt_logprobs) are those of the model, softmax(logits), before step
 * 0. */
typedef struct rp_sampling {
    float temperature;         /* 0 to 100; 0: greedy (default) */
    int32_t top_k;             /* 0: off (default) */
    float typical;             /* 0 to 1; 1: off (default) */
    float top_p;               /* 0 to 1; 1: off (default) */
    float min_p;               /* 0 to 1; 0: off (default) */
    float repeat_penalty;      /* 0.01 to 100; 1: off (default) */
    float presence_penalty;    /* -100 to 100; 0: off (default) */
    float frequency_penalty;   /* -100 to 100; 0: off (default) */
    int32_t repeat_last;       /* window of the penalties in tokens; 0: none, -1: all; default 64 */
    const rp_logit_bias *bias; /* n_bias entries; those of one token add up. NULL: none (default) */
    int32_t n_bias;
    uint64_t seed;        /* for temperature > 0; default 0 */
    uint64_t reserved[6]; /* 0 */
} rp_sampling;

RP_API rp_sampling rp_sampling_defaults(void);

/* The options of sampling that a model file can advise, for rp_model_sampling. */
typedef enum rp_sampling_advice {
    RP_ADVISES_TEMPERATURE = 1,     /* general.sampling.temp */
    RP_ADVISES_TOP_K = 2,           /* general.sampling.top_k */
    RP_ADVISES_TOP_P = 4,           /* general.sampling.top_p */
    RP_ADVISES_MIN_P = 8,           /* general.sampling.min_p */
    RP_ADVISES_REPEAT_PENALTY = 16, /* general.sampling.penalty_repeat */
    RP_ADVISES_REPEAT_LAST = 32,    /* general.sampling.penalty_last_n */
} rp_sampling_advice;

/* Sets the options of sampling that the model's file advises (its general.sampling.* keys), and leaves the others.
 * Returns the set of them, a sum of RP_ADVISES_*; 0: none. The library itself does not apply the advice:
 * rp_request_defaults is greedy for every model; `reprise run`, `chat` and `serve` do. Values out of the ranges of
 * rp_sampling are not used, and were logged when the model was opened. Any thread. */
RP_API uint32_t rp_model_sampling(const rp_model *model, rp_sampling *sampling);

#ifdef __cplusplus
}
#endif
#endif
