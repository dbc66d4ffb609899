/* SPDX-License-Identifier: Apache-2.0 */
/* reference_rope.c: frequencies of rotary positions, with every scaling, and the product of a rotated query and a key.
 *
 *   plain     f(i) = base^(-2i / d), d = rotated dimensions
 *   linear    f(i) / factor
 *   factors   f(i) / factors[i]: a tensor of the file (Llama 3's, or one of long-rope's two)
 *   YaRN      between both: f(i) where a pair turns often within the trained length, f(i) / factor where it turns
 *         seldom
 */
#include "reference_rope.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "reference_weights.h"

static double plain_frequency(double base, int32_t i, int32_t n_pairs) { return pow(base, -(double)i / n_pairs); }

/* ---- YaRN (Peng et al. 2023) ----------------------------------------------------------------------------------- */

/* The pair, as a real number, that turns `turns` times in `length` positions: length base^(-i / n_pairs) = 2 pi
   turns. */
static double pair_of_turns(double turns, double length, double base, int32_t n_pairs) {
    const double pi = acos(-1);
    return n_pairs * log(length / (2 * pi * turns)) / log(base);
}

/* The pairs between which frequencies go from unchanged (*low) to divided (*high). */
static void yarn_range(reference_opening *o, double base, int32_t n_pairs, double *low, double *high) {
    const double length = reference_number(o, "rope.scaling.original_context_length", o->m->n_trained);
    *low = pair_of_turns(reference_real(o, "rope.scaling.yarn_beta_fast", 32), length, base, n_pairs);
    *high = pair_of_turns(reference_real(o, "rope.scaling.yarn_beta_slow", 1), length, base, n_pairs);
    bool truncate = !o->m->family->yarn_unrounded;
    char key[128];
    snprintf(key, sizeof key, "%s.rope.scaling.yarn_truncate", o->m->family->name);
    gguf_get_bool(o->f, key, &truncate);
    if (truncate) *low = floor(*low), *high = ceil(*high);
    *low = fmax(*low, 0);
    *high = fmin(*high, 2 * n_pairs - 1);
    if (*low == *high) *high += 0.001;
}

static void scale_yarn(reference_opening *o, reference_rope *r, double base, double factor) {
    double low, high;
    yarn_range(o, base, r->n_pairs, &low, &high);
    for (int32_t i = 0; i < r->n_pairs; i++) {
        double divided = fmin(fmax((i - low) / (high - low), 0), 1); /* how much of it */
        r->frequencies[i] *= (1 - divided) + divided / factor;
    }
    const double growth = factor > 1 ? 0.1 * log(factor) : 0,
                 less = reference_real(o, "rope.scaling.yarn_log_multiplier", 0);
    const double usual = o->m->n_latent > 0 ? 1 : (1 + growth) / (1 + less * growth); /* of scores, where latent */
    r->magnitude *= reference_real(o, "rope.scaling.yarn_attn_factor", usual);
}

/* ---- opening --------------------------------------------------------------------------------------------------- */

static void divide_by_tensor(reference_opening *o, reference_rope *r, const char *name) {
    const gguf_tensor *t = NULL;
    const float *factors = reference_tensor(o, name, false, &t);
    if (!factors) return;
    if (t->dims[0] != r->n_pairs) {
        o->rc = base_fail(o->err, RP_ERR_FORMAT, "reference: %s has %d factors for %d pairs", name, (int)t->dims[0],
                          r->n_pairs);
        return;
    }
    for (int32_t i = 0; i < r->n_pairs; i++) r->frequencies[i] /= factors[i];
}

static void scale(reference_opening *o, reference_rope *r, double base) {
    gguf_string kind = {0};
    char key[128];
    const double factor = reference_real(o, "rope.scaling.factor", 1);
    const int32_t trained = reference_number(o, "rope.scaling.original_context_length", o->m->n_trained);
    snprintf(key, sizeof key, "%s.rope.scaling.type", o->m->family->name);
    gguf_get_string(o->f, key, &kind);
    r->magnitude = reference_real(o, "rope.scaling.attn_factor", 1);
    if (kind.n == 6 && memcmp(kind.bytes, "linear", 6) == 0)
        for (int32_t i = 0; i < r->n_pairs; i++) r->frequencies[i] /= factor;
    if (kind.n == 4 && memcmp(kind.bytes, "yarn", 4) == 0) scale_yarn(o, r, base, factor);
    divide_by_tensor(o, r, "rope_freqs.weight");
    divide_by_tensor(o, r, o->m->n_ctx > trained ? "rope_factors_long.weight" : "rope_factors_short.weight");
}

static void init(reference_opening *o, reference_rope *r, double base, int32_t n_rotated) {
    r->n_pairs = n_rotated / 2;
    r->adjacent = o->m->family->rotation == REFERENCE_ADJACENT;
    r->magnitude = 1;
    r->frequencies = reference_alloc((size_t)r->n_pairs, sizeof *r->frequencies);
    for (int32_t i = 0; i < r->n_pairs; i++) r->frequencies[i] = plain_frequency(base, i, r->n_pairs);
}

/* Local layers are scaled as global ones, unless they have a base of their own: then not at all. */
void reference_read_ropes(reference_opening *o) {
    const double base = reference_real(o, "rope.freq_base", 10000);
    const bool own = reference_has(o, "rope.freq_base_swa");
    const int32_t n_rotated = reference_number(o, "rope.dimension_count", o->m->key_dim);
    init(o, &o->m->ropes[0], base, n_rotated);
    scale(o, &o->m->ropes[0], base);
    init(o, &o->m->ropes[1], reference_real(o, "rope.freq_base_swa", base),
         reference_number(o, "rope.dimension_count_swa", n_rotated));
    if (!own) scale(o, &o->m->ropes[1], base);
}

/* ---- use ------------------------------------------------------------------------------------------------------- */

static void grow(reference_angles *a, int32_t n) {
    double **more = reference_alloc((size_t)n, sizeof *more);
    if (a->n) memcpy(more, a->at, (size_t)a->n * sizeof *more);
    free(a->at);
    a->at = more;
    a->n = n;
}

const double *reference_angles_at(reference_angles *a, const reference_rope *r, int32_t distance) {
    if (distance < 0) {
        fprintf(stderr, "reference: a token sees one that stands %d behind it\n", -distance);
        abort();
    }
    if (distance >= a->n) grow(a, 2 * distance + 64);
    if (a->at[distance]) return a->at[distance];
    double *cs = a->at[distance] = reference_alloc(2 * (size_t)r->n_pairs, sizeof *cs);
    for (int32_t i = 0; i < r->n_pairs; i++) {
        cs[2 * i] = cos(distance * r->frequencies[i]);
        cs[2 * i + 1] = sin(distance * r->frequencies[i]);
    }
    return cs;
}

void reference_angles_free(reference_angles *a) {
    for (int32_t i = 0; i < a->n; i++) free(a->at[i]);
    free(a->at);
}

double reference_rope_dot(const reference_rope *r, const double *cs, const double *q, const double *k, int32_t dim) {
    double first = 0, second = 0, still = 0;
    for (int32_t i = 0; i < r->n_pairs; i++) {
        int32_t a = r->adjacent ? 2 * i : i, b = r->adjacent ? 2 * i + 1 : i + r->n_pairs;
        first += (q[a] * cs[2 * i] - q[b] * cs[2 * i + 1]) * k[a];
        second += (q[a] * cs[2 * i + 1] + q[b] * cs[2 * i]) * k[b];
    }
    for (int32_t d = 2 * r->n_pairs; d < dim; d++) still += q[d] * k[d];
    return r->magnitude * r->magnitude * (first + second) + still;
}

void reference_rope_turn(const reference_rope *r, const double *cs, double *x) {
    for (int32_t i = 0; i < r->n_pairs; i++) {
        int32_t a = r->adjacent ? 2 * i : i, b = r->adjacent ? 2 * i + 1 : i + r->n_pairs;
        const double first = x[a], second = x[b];
        x[a] = first * cs[2 * i] - second * cs[2 * i + 1];
        x[b] = first * cs[2 * i + 1] + second * cs[2 * i];
    }
}
