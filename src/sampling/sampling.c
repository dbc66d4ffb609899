/* SPDX-License-Identifier: Apache-2.0 */
/* sampling.c: the options of sampling: defaults, and the one place that checks them. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "sampling/sampler.h"

#define DEFAULT_REPEAT_LAST 64 /* llama.cpp's */
#define MAX_BIAS 1000.0f       /* beyond any logit, and far from overflow */

rp_sampling rp_sampling_defaults(void) {
    return (rp_sampling){.typical = 1, .top_p = 1, .repeat_penalty = 1, .repeat_last = DEFAULT_REPEAT_LAST};
}

bool sampling_looks_back(const rp_sampling *o) {
    return o->repeat_last != 0 && (o->repeat_penalty != 1 || o->presence_penalty != 0 || o->frequency_penalty != 0);
}

static int check_ranges(const rp_sampling *o, rp_error *err) {
    const struct {
        const char *name;
        float value, min, max, off;
    } ranges[] = {
        {"temperature", o->temperature, 0, 100, 0},
        {"typical", o->typical, 0, 1, 1},
        {"top_p", o->top_p, 0, 1, 1},
        {"min_p", o->min_p, 0, 1, 0},
        {"repeat_penalty", o->repeat_penalty, 0.01f, 100, 1},
        {"presence_penalty", o->presence_penalty, -100, 100, 0},
        {"frequency_penalty", o->frequency_penalty, -100, 100, 0},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(ranges); i++)
        if (!(ranges[i].value >= ranges[i].min && ranges[i].value <= ranges[i].max))
            return base_fail(err, RP_ERR_INVALID, "sampling: %s is %g: give a number from %g to %g (%g: off)",
                             ranges[i].name, (double)ranges[i].value, (double)ranges[i].min, (double)ranges[i].max,
                             (double)ranges[i].off);
    if (o->top_k < 0)
        return base_fail(err, RP_ERR_INVALID, "sampling: top_k is %d: give a number of tokens (0: off)", o->top_k);
    if (o->repeat_last < -1)
        return base_fail(err, RP_ERR_INVALID, "sampling: repeat_last is %d: give a number of tokens (0: none, -1: all)",
                         o->repeat_last);
    return RP_OK;
}

static int check_bias(const rp_sampling *o, int32_t n_vocab, rp_error *err) {
    if (o->n_bias < 0 || (o->n_bias > 0 && !o->bias))
        return base_fail(err, RP_ERR_INVALID, "sampling: n_bias is %d%s: give the entries of bias, or 0", o->n_bias,
                         o->bias ? "" : " and bias is NULL");
    for (int32_t i = 0; i < o->n_bias; i++) {
        int32_t token = o->bias[i].token;
        float bias = o->bias[i].bias;
        if (token < 0 || token >= n_vocab)
            return base_fail(err, RP_ERR_INVALID, "sampling: a bias is for token %d: give an id from 0 to %d", token,
                             n_vocab - 1);
        if (!(bias >= -MAX_BIAS && bias <= MAX_BIAS) && bias != -INFINITY)
            return base_fail(err, RP_ERR_INVALID,
                             "sampling: the bias of token %d is %g: give a number from %g to %g, or -inf", token,
                             (double)bias, (double)-MAX_BIAS, (double)MAX_BIAS);
    }
    return RP_OK;
}

/* Half a character would never come: text is whole characters. */
static bool is_utf8(const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        int length = base_utf8_length((const unsigned char *)s + i, n - i);
        if (length <= 0) return false;
        i += (size_t)length;
    }
    return true;
}

static int check_stops(const rp_request *q, rp_error *err) {
    if (q->n_stops > RP_MAX_STOPS)
        return base_fail(err, RP_ERR_LIMIT, "%d stop strings: give at most %d", q->n_stops, RP_MAX_STOPS);
    if (q->n_stops < 0 || (q->n_stops > 0 && !q->stops))
        return base_fail(err, RP_ERR_INVALID, "n_stops is %d%s: give the strings, or 0", q->n_stops,
                         q->stops ? "" : " and stops is NULL");
    for (int32_t i = 0; i < q->n_stops; i++) {
        size_t n = q->stops[i] ? strlen(q->stops[i]) : 0;
        if (n == 0)
            return base_fail(err, RP_ERR_INVALID,
                             "stop string %d is empty: give at least one character, or leave it out", i + 1);
        if (n > RP_MAX_STOP_BYTES)
            return base_fail(err, RP_ERR_LIMIT, "stop string %d has %zu bytes: give at most %d", i + 1, n,
                             RP_MAX_STOP_BYTES);
        if (!is_utf8(q->stops[i], n))
            return base_fail(err, RP_ERR_INVALID, "stop string %d is not UTF-8: give whole characters", i + 1);
    }
    return RP_OK;
}

int sampling_check(const rp_request *q, int32_t n_vocab, rp_error *err) {
    int rc;
    if ((rc = check_ranges(&q->sampling, err)) || (rc = check_bias(&q->sampling, n_vocab, err)) ||
        (rc = check_stops(q, err)))
        return rc;
    if (q->n_logprobs < 0)
        return base_fail(err, RP_ERR_INVALID, "n_logprobs is %d: give 1 to %d, or 0 for none", q->n_logprobs,
                         RP_MAX_LOGPROBS);
    if (q->n_logprobs > RP_MAX_LOGPROBS)
        return base_fail(err, RP_ERR_LIMIT, "n_logprobs is %d: give at most %d", q->n_logprobs, RP_MAX_LOGPROBS);
    if (q->n_prompt_logprobs < 0)
        return base_fail(err, RP_ERR_INVALID, "n_prompt_logprobs is %d: give 1 to %d, or 0 for none",
                         q->n_prompt_logprobs, RP_MAX_LOGPROBS);
    if (q->n_prompt_logprobs > RP_MAX_LOGPROBS)
        return base_fail(err, RP_ERR_LIMIT, "n_prompt_logprobs is %d: give at most %d", q->n_prompt_logprobs,
                         RP_MAX_LOGPROBS);
    return RP_OK;
}
