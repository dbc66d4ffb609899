/* SPDX-License-Identifier: Apache-2.0 */
/* sampler.c: the next token from its logits: disallowed tokens, bias and penalties, then the most likely token, or one
 * sampled from those that the filters leave. */
#include "sampling/sampler.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"

/* ---- What it holds ---- */

static int open_window(sampler *s, int64_t max_tokens, rp_error *err) {
    int64_t cap = s->options.repeat_last < 0 ? max_tokens : BASE_MIN(s->options.repeat_last, max_tokens);
    s->window_cap = (int32_t)BASE_MAX(BASE_MIN(cap, INT32_MAX), 1);
    s->counts = base_calloc((size_t)s->n_vocab, sizeof(*s->counts));
    s->window = base_calloc((size_t)s->window_cap, sizeof(*s->window));
    if (!s->counts || !s->window)
        return base_fail_memory(err, ((uint64_t)s->n_vocab + (uint64_t)s->window_cap) * sizeof(int32_t), "penalties");
    return RP_OK;
}

int sampler_restrict(sampler *s, rp_error *err) {
    if (!s->adjusted) s->adjusted = base_calloc((size_t)s->n_vocab, sizeof(*s->adjusted));
    return s->adjusted ? RP_OK : base_fail_memory(err, (uint64_t)s->n_vocab * sizeof(*s->adjusted), "logits");
}

int sampler_open(sampler *s, const rp_sampling *options, int32_t n_vocab, int64_t max_tokens, rp_error *err) {
    bool looks_back = sampling_looks_back(options);
    s->options = *options;
    s->n_vocab = n_vocab;
    s->random = options->seed;
    s->adjusts = looks_back || options->n_bias > 0;
    if (s->adjusts) {
        int rc = sampler_restrict(s, err);
        if (rc) return rc;
    }
    if (options->temperature > 0) {
        s->candidates = base_calloc((size_t)n_vocab, sizeof(*s->candidates));
        if (!s->candidates) return base_fail_memory(err, (uint64_t)n_vocab * sizeof(*s->candidates), "candidates");
    }
    return looks_back ? open_window(s, max_tokens, err) : RP_OK;
}

void sampler_close(sampler *s) {
    base_free(s->adjusted);
    base_free(s->candidates);
    base_free(s->counts);
    base_free(s->window);
    *s = (sampler){0};
}

void sampler_accept(sampler *s, int32_t token) {
    if (!s->window) return;
    BASE_ASSERT(token >= 0 && token < s->n_vocab);
    if (s->n_window == s->window_cap) {
        BASE_ASSERT(s->counts[s->window[s->oldest]] > 0);
        s->counts[s->window[s->oldest]]--;
        s->window[s->oldest] = token;
        s->oldest = (s->oldest + 1) % s->window_cap;
    } else {
        s->window[s->n_window++] = token; /* the oldest is the first until the ring is full */
    }
    s->counts[token]++;
}

/* ---- Bias and penalties ---- */

/* Once for each token of the window, however often it is there: those that are done have a negative count meanwhile. */
static void sampler_penalize(sampler *s) {
    for (int32_t i = 0; i < s->n_window; i++) {
        int32_t id = s->window[i];
        if (s->counts[id] < 0) continue;
        const rp_sampling *o = &s->options;
        const float logit = s->adjusted[id];
        const float repeated = logit > 0 ? logit / o->repeat_penalty : logit * o->repeat_penalty;
        s->adjusted[id] = repeated - o->presence_penalty - (float)s->counts[id] * o->frequency_penalty;
        s->counts[id] = -s->counts[id];
    }
    for (int32_t i = 0; i < s->n_window; i++)
        if (s->counts[s->window[i]] < 0) s->counts[s->window[i]] = -s->counts[s->window[i]];
}

static const float *sampler_adjust(sampler *s, const float *logits) {
    if (!s->adjusts && !s->allowed) return logits;
    memcpy(s->adjusted, logits, (size_t)s->n_vocab * sizeof(*logits));
    for (int32_t i = 0; s->allowed && i < s->n_vocab; i++)
        if (!(s->allowed[i >> 6] >> (i & 63) & 1)) s->adjusted[i] = -INFINITY;
    for (int32_t i = 0; i < s->options.n_bias; i++) s->adjusted[s->options.bias[i].token] += s->options.bias[i].bias;
    sampler_penalize(s);
    return s->adjusted;
}

/* ---- Drawing ---- */

/* The first of them; what is no number is never among them. 0 if there is no other. */
static int32_t sampler_likeliest(const float *logits, int32_t n) {
    int32_t best = 0;
    float highest = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        if (!(logits[i] > highest)) continue;
        highest = logits[i];
        best = i;
    }
    return best;
}

/* From softmax(key / temperature), by a random number. Keys become weights. */
static int32_t draw_candidate(const sampler *s, uint64_t random, sampler_candidate *c, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (c[i].key > c[best].key) best = i;
    double sum = 0, top = c[best].key, scale = 1.0 / s->options.temperature;
    for (int32_t i = 0; i < n; i++) sum += c[i].key = exp((c[i].key - top) * scale);
    double left = (double)(random >> 11) * 0x1p-53 * sum;
    for (int32_t i = 0; i < n; i++) {
        left -= c[i].key;
        if (left < 0) return c[i].id;
    }
    return c[best].id; /* rounding used up the sum */
}

int32_t sampler_draw(sampler *s, const float *logits) {
    logits = sampler_adjust(s, logits);
    if (!s->candidates) return sampler_likeliest(logits, s->n_vocab);
    const uint64_t random = base_random_next(&s->random); /* of every token, needed or not: sampler_skip */
    int32_t n = sampler_filter(&s->options, logits, s->n_vocab, s->candidates);
    return n > 0 ? draw_candidate(s, random, s->candidates, n) : sampler_likeliest(logits, s->n_vocab);
}

void sampler_skip(sampler *s) {
    if (s->candidates) base_random_next(&s->random);
}
