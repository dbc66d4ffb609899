/* SPDX-License-Identifier: Apache-2.0 */
/* sampler_filters.c: which tokens may be drawn: top_k, typical, top_p, min_p. A vocabulary is not sorted whole: of the
 * k best only the worst must be known, and of those that have a share of the probability only the few near its end. */
#include <math.h>

#include "base/check.h"
#include "base/compiler.h"
#include "sampling/sampler.h"

#define BUCKETS 1024       /* of keys: about a hundred tokens in one where they are densest */
#define BUCKETS_REACH 64.0 /* below the best key. The logits that lie lower weigh e^-50 together, or less */

/* ---- Sorting ---- */

static bool is_better(sampler_candidate a, sampler_candidate b) { return a.key != b.key ? a.key > b.key : a.id < b.id; }

/* c[0..n) is a heap, worst at the root, except c[i], which may belong further down. */
static void sampler_candidate_sift_down(sampler_candidate *c, int32_t i, int32_t n) {
    sampler_candidate moved = c[i];
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && is_better(c[child], c[child + 1])) child++;
        if (!is_better(moved, c[child])) break;
        c[i] = c[child];
        i = child;
    }
    c[i] = moved;
}

static void sampler_candidate_swap(sampler_candidate *a, sampler_candidate *b) {
    sampler_candidate t = *a;
    *a = *b;
    *b = t;
}

/* The k best so far are a heap whose root, the worst of them, is replaced by a better one; then the worst is moved to
 * the end, again and again. */
void candidates_sort(sampler_candidate *c, int32_t n, int32_t k) {
    BASE_ASSERT(k >= 0 && k <= n);
    for (int32_t i = k / 2 - 1; i >= 0; i--) sampler_candidate_sift_down(c, i, k);
    for (int32_t i = k; i < n && k > 0; i++) {
        if (!is_better(c[i], c[0])) continue;
        sampler_candidate_swap(&c[i], &c[0]);
        sampler_candidate_sift_down(c, 0, k);
    }
    for (int32_t end = k - 1; end > 0; end--) {
        sampler_candidate_swap(&c[0], &c[end]);
        sampler_candidate_sift_down(c, 0, end);
    }
}

/* ---- Filters. Each gets n >= 1 candidates and returns how many are left, at the front, logits as keys. ---- */

static double highest_key(const sampler_candidate *c, int32_t n) {
    double highest = c[0].key;
    for (int32_t i = 1; i < n; i++) highest = BASE_MAX(highest, c[i].key);
    return highest;
}

/* Where keys fall into buckets, best first: bucket 0 begins with the best key, the last one has no end. */
typedef struct bucket_scale {
    double top, per_key;
} bucket_scale;

static bucket_scale scale_for(const sampler_candidate *c, int32_t n) {
    double top = highest_key(c, n), lowest = top;
    for (int32_t i = 0; i < n; i++) lowest = BASE_MIN(lowest, c[i].key);
    double range = BASE_MIN(top - lowest, BUCKETS_REACH);
    return (bucket_scale){top, range > 0 ? BUCKETS / range : 0};
}

static int sampler_filters_bucket_of(bucket_scale s, double key) {
    double at = (s.top - key) * s.per_key;
    return at >= 0 && at < BUCKETS ? (int)at : BUCKETS - 1; /* what is no number comes last */
}

/* Brings those in buckets before `end` to the front; returns how many. */
static int32_t sampler_filters_gather(bucket_scale s, int end, sampler_candidate *c, int32_t n) {
    int32_t front = 0;
    for (int32_t i = 0; i < n; i++)
        if (sampler_filters_bucket_of(s, c[i].key) < end) sampler_candidate_swap(&c[i], &c[front++]);
    return front;
}

/* The best by key, until they have a share p of the mass, the sum of exp(logit - highest). Whole buckets are taken, and
 * the one in which the share is reached is sorted. */
static int32_t keep_share(const float *logits, double highest, float p, sampler_candidate *c, int32_t n) {
    double masses[BUCKETS] = {0}, sum = 0, mass = 0;
    BASE_ASSERT(n > 0);
    bucket_scale s = scale_for(c, n);
    for (int32_t i = 0; i < n; i++) masses[sampler_filters_bucket_of(s, c[i].key)] += exp(logits[c[i].id] - highest);
    for (int b = 0; b < BUCKETS; b++) sum += masses[b];
    int last = 0;
    while (last < BUCKETS - 1 && !(mass + masses[last] >= p * sum)) mass += masses[last++];
    int32_t first = sampler_filters_gather(s, last, c, n),
            end = first + sampler_filters_gather(s, last + 1, c + first, n - first);
    candidates_sort(c + first, end - first, end - first);
    for (int32_t i = first; i < end; i++) {
        mass += exp(logits[c[i].id] - highest);
        if (mass >= p * sum) return i + 1;
    }
    return end;
}

/* Surprise is -log(probability), entropy its mean. Their difference is that between a logit and the mean logit: the sum
   cancels. */
static int32_t keep_typical(const float *logits, float p, sampler_candidate *c, int32_t n) {
    double sum = 0, mean = 0, highest = highest_key(c, n);
    for (int32_t i = 0; i < n; i++) {
        double above = c[i].key - highest, weight = exp(above);
        sum += weight;
        mean += weight * above;
    }
    mean /= sum;
    for (int32_t i = 0; i < n; i++) c[i].key = -fabs(c[i].key - highest - mean);
    n = keep_share(logits, highest, p, c, n);
    for (int32_t i = 0; i < n; i++) c[i].key = logits[c[i].id];
    return n;
}

static int32_t keep_min_p(float p, sampler_candidate *c, int32_t n) {
    double least = highest_key(c, n) + log(p);
    int32_t left = 0;
    for (int32_t i = 0; i < n; i++)
        if (c[i].key >= least) c[left++] = c[i];
    return left;
}

int32_t sampler_filter(const rp_sampling *o, const float *logits, int32_t n_vocab, sampler_candidate *c) {
    int32_t n = 0;
    for (int32_t i = 0; i < n_vocab; i++)
        if (logits[i] > -INFINITY) c[n++] = (sampler_candidate){logits[i], i};
    if (n == 0) return 0;
    if (o->top_k > 0 && o->top_k < n) {
        candidates_sort(c, n, o->top_k);
        n = o->top_k;
    }
    if (o->typical < 1) n = keep_typical(logits, o->typical, c, n);
    if (o->top_p < 1) n = keep_share(logits, highest_key(c, n), o->top_p, c, n);
    if (o->min_p > 0) n = keep_min_p(o->min_p, c, n);
    BASE_ASSERT(n > 0 && n <= n_vocab); /* no filter takes the most likely token */
    return n;
}
