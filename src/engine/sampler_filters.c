/* sampler_filters.c: which tokens may be drawn: top_k, typical, top_p, min_p. A vocabulary is not sorted whole: the best are brought to
 * the front in growing pieces until there are enough of them. */
#include <math.h>

#include "base/compiler.h"
#include "engine/sampler.h"

#define FIRST_PIECE 128 /* a peaked distribution has its mass in fewer */
#define PIECE_GROWTH 8

/* ---- Sorting ---- */

static bool is_better(sampler_candidate a, sampler_candidate b) { return a.key != b.key ? a.key > b.key : a.id < b.id; }

/* c[0..n) is a heap, worst at the root, but for c[i], which may belong further down. */
static void sift_down(sampler_candidate *c, int32_t i, int32_t n) {
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

static void swap(sampler_candidate *a, sampler_candidate *b) {
    sampler_candidate t = *a;
    *a = *b;
    *b = t;
}

/* The k best so far are a heap whose root, the worst of them, gives way to a better one; then the worst goes to the end, again and
 * again. */
void candidates_sort(sampler_candidate *c, int32_t n, int32_t k) {
    for (int32_t i = k / 2 - 1; i >= 0; i--) sift_down(c, i, k);
    for (int32_t i = k; i < n && k > 0; i++) {
        if (!is_better(c[i], c[0])) continue;
        swap(&c[i], &c[0]);
        sift_down(c, 0, k);
    }
    for (int32_t end = k - 1; end > 0; end--) {
        swap(&c[0], &c[end]);
        sift_down(c, 0, end);
    }
}

/* ---- Filters. Each gets n >= 1 candidates and returns how many are left, at the front, logits as keys. ---- */

static double highest_logit(const sampler_candidate *c, int32_t n) {
    double highest = c[0].key;
    for (int32_t i = 1; i < n; i++) highest = BASE_MAX(highest, c[i].key);
    return highest;
}

/* The best by key, until they have the wanted mass: the sum of exp(logit - highest). */
static int32_t keep_mass(const float *logits, double highest, double wanted, sampler_candidate *c, int32_t n) {
    double mass = 0;
    int32_t n_sorted = 0, piece = FIRST_PIECE;
    for (int32_t i = 0; i < n; i++) {
        if (i == n_sorted) {
            piece = BASE_MIN(piece, n - n_sorted);
            candidates_sort(c + n_sorted, n - n_sorted, piece);
            n_sorted += piece;
            piece = piece <= n / PIECE_GROWTH ? piece * PIECE_GROWTH : n;
        }
        mass += exp(logits[c[i].id] - highest);
        if (mass >= wanted) return i + 1;
    }
    return n;
}

static int32_t keep_top_p(const float *logits, float p, sampler_candidate *c, int32_t n) {
    double sum = 0, highest = highest_logit(c, n);
    for (int32_t i = 0; i < n; i++) sum += exp(c[i].key - highest);
    return keep_mass(logits, highest, p * sum, c, n);
}

/* Surprise is -log(probability), entropy its mean. Their difference is that between a logit and the mean logit: the sum cancels. */
static int32_t keep_typical(const float *logits, float p, sampler_candidate *c, int32_t n) {
    double sum = 0, mean = 0, highest = highest_logit(c, n);
    for (int32_t i = 0; i < n; i++) {
        double above = c[i].key - highest, weight = exp(above);
        sum += weight;
        mean += weight * above;
    }
    mean /= sum;
    for (int32_t i = 0; i < n; i++) c[i].key = -fabs(c[i].key - highest - mean);
    n = keep_mass(logits, highest, p * sum, c, n);
    for (int32_t i = 0; i < n; i++) c[i].key = logits[c[i].id];
    return n;
}

static int32_t keep_min_p(float p, sampler_candidate *c, int32_t n) {
    double least = highest_logit(c, n) + log(p);
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
    if (o->top_p < 1) n = keep_top_p(logits, o->top_p, c, n);
    if (o->min_p > 0) n = keep_min_p(o->min_p, c, n);
    return n;
}
