/* SPDX-License-Identifier: Apache-2.0 */
/* eval_score.h: scores of answers, divergence of distributions, and confidence intervals of means. Pure functions. */
#ifndef CLI_EVAL_SCORE_H
#define CLI_EVAL_SCORE_H

#include <stddef.h>
#include <stdint.h>

#include "eval/eval_task.h"

/* 0 to 1: the best over the accepted answers. Not for EVAL_PERPLEXITY.
 *   exact      equal except for case (of ASCII), white space and a full stop at the end
 *   contains   an accepted answer occurs in the answer, compared in the same way, at word boundaries
 *   f1         harmonic mean of precision and recall over words, without articles (Rajpurkar et al., 2016)
 *   rouge-l    the same over the longest common subsequence of words (Lin, 2004) */
double eval_score(eval_metric metric, const char *answer, const char *const *accepted, size_t n_accepted);

/* Converts logits to log-probabilities, in place. */
void eval_log_softmax(float *logits, int32_t n);
/* KL(p || q) in nats, from log-probabilities; never below 0. */
double eval_kl(const float *p, const float *q, int32_t n);
int32_t eval_argmax(const float *values, int32_t n);

/* A mean and its 95 % bootstrap interval. */
typedef struct eval_mean {
    double mean, low, high;
} eval_mean;
eval_mean eval_bootstrap(const double *values, size_t n, int resamples, uint64_t seed);
double eval_median(double *values, size_t n); /* sorts them */

#endif
