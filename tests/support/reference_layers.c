/* SPDX-License-Identifier: Apache-2.0 */
/* reference_layers.c: matrices, norms, softmax, ALiBi, mlps and experts of the slow reference. Threads: none; pure
   functions. */
#include "reference_layers.h"

#include <math.h>
#include <stdlib.h>

/* Four sums: the processor need not wait for each addition. */
static double dot(const float *w, const double *x, int n) {
    double sum[4] = {0};
    for (int i = 0; i < n; i++) sum[i % 4] += w[i] * x[i];
    return sum[0] + sum[1] + sum[2] + sum[3];
}

void reference_apply(const reference_linear *l, const double *x, double *y) {
    for (int32_t o = 0; o < l->n_out; o++)
        y[o] = dot(l->w + (size_t)o * (size_t)l->n_in, x, l->n_in) + (l->bias ? l->bias[o] : 0);
}

/* (x - mean) / sqrt(mean of (x - mean)^2 + eps) w + b; RMS norms take 0 for the mean. */
static void normalise_piece(const reference_model *m, const float *w, const float *bias, double *x, int32_t n) {
    double mean = 0, squares = 0;
    for (int32_t i = 0; i < n && m->layer_norm; i++) mean += x[i] / n;
    for (int32_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    for (int32_t i = 0; i < n; i++) x[i] = (x[i] - mean) / sqrt(squares / n + m->eps) * w[i] + (bias ? bias[i] : 0);
}

void reference_normalise(const reference_model *m, const reference_norm *norm, double *x, int32_t n) {
    if (!norm->w) return;
    for (int32_t i = 0; i < n / norm->n; i++) {
        size_t row = (size_t)(i % norm->rows) * (size_t)norm->n;
        normalise_piece(m, norm->w + row, norm->bias ? norm->bias + row : NULL, x + i * norm->n, norm->n);
    }
}

void reference_softmax(double *p, size_t n, const float *sink) {
    double max = sink ? *sink : p[0], sum = 0;
    for (size_t i = 0; i < n; i++) max = p[i] > max ? p[i] : max;
    for (size_t i = 0; i < n; i++) sum += p[i] = exp(p[i] - max);
    if (sink) sum += exp(*sink - max);
    for (size_t i = 0; i < n; i++) p[i] /= sum;
}

double reference_soft_cap(double x, double cap) { return cap > 0 ? cap * tanh(x / cap) : x; }

/* Press et al. 2022: of n heads, n a power of two, head h has slope 2^(-max (h + 1) / n). Other numbers of heads take
 * the slopes of the largest power below, and for the rest every other one of twice that power, from its first. */
double reference_alibi_slope(const reference_model *m, int32_t head) {
    int32_t n = 1;
    if (m->alibi == 0) return 0;
    while (2 * n <= m->n_heads) n *= 2;
    if (head < n) return exp2(-m->alibi * (head + 1) / n);
    return exp2(-m->alibi * (2 * (head - n) + 1) / (2 * n));
}

/* ---- mlp ------------------------------------------------------------------------------------------------------- */

double reference_sigmoid(double x) { return 1 / (1 + exp(-x)); }

static double gelu_tanh(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x))); }

static double gelu_erf(double x) { return 0.5 * x * (1 + erf(x / sqrt(2))); }

static double activation(reference_activation kind, double x) {
    if (kind == REFERENCE_GELU_TANH) return gelu_tanh(x);
    if (kind == REFERENCE_GELU_ERF) return gelu_erf(x);
    if (kind == REFERENCE_RELU_SQUARED) return x > 0 ? x * x : 0;
    return x * reference_sigmoid(x);
}

double reference_activate(const reference_model *m, double x) { return activation(m->family->activation, x); }

static double xielu(const reference_mlp *p, double x) {
    const double beta = *p->xielu[2], bend = x > 0 ? log1p(exp(*p->xielu[1])) : beta + log1p(exp(*p->xielu[0]));
    return bend * (x > 0 ? x * x : expm1(fmin(x, *p->xielu[3])) - x) + beta * x;
}

/* gpt-oss: both sides clamped, a steeper sigmoid, and 1 added to the other side. */
static double clamped(double gate, double up) {
    gate = fmin(gate, 7);
    up = fmin(fmax(up, -7), 7);
    return gate * reference_sigmoid(1.702 * gate) * (up + 1);
}

static double gated(reference_activation kind, double gate, double up) {
    return kind == REFERENCE_CLAMPED ? clamped(gate, up) : activation(kind, gate) * up;
}

/* max(0, x - (mean + deviations times the standard deviation of all)) */
static void sparsify(double deviations, double *x, size_t n) {
    double mean = 0, squares = 0;
    for (size_t i = 0; i < n; i++) mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    for (size_t i = 0; i < n; i++) x[i] = fmax(0, x[i] - mean - deviations * sqrt(squares / (double)n));
}

/* down(act(gate x) up x), or down(act(up x)) without a gate. */
static void apply_mlp(reference_activation kind, const reference_mlp *p, const double *x, double *y) {
    size_t n = (size_t)p->up.n_out;
    double *gate = reference_alloc(n, sizeof *gate), *up = reference_alloc(n, sizeof *up);
    reference_apply(&p->up, x, up);
    if (p->gate.w) reference_apply(&p->gate, x, gate);
    if (p->deviations) sparsify(*p->deviations, gate, n);
    for (size_t i = 0; i < n; i++)
        up[i] = p->xielu[0] ? xielu(p, up[i]) : p->gate.w ? gated(kind, gate[i], up[i])
                                                          : activation(kind, up[i]);
    reference_apply(&p->down, up, y);
    free(gate);
    free(up);
}

/* ---- experts --------------------------------------------------------------------------------------------------- */

reference_linear reference_matrix_of(const reference_linear *stack, int32_t e) {
    reference_linear l = *stack;
    if (l.w) l.w += (size_t)e * (size_t)l.n_in * (size_t)l.n_out;
    if (l.bias) l.bias += (size_t)e * (size_t)l.n_out;
    return l;
}

static reference_mlp expert_of(const reference_mlp *stack, int32_t e) {
    return (reference_mlp){.gate = reference_matrix_of(&stack->gate, e),
                           .up = reference_matrix_of(&stack->up, e),
                           .down = reference_matrix_of(&stack->down, e)};
}

/* Marks the n largest of `values` in chosen[of], the first of equal ones. Returns the margin: the smallest of those
 * minus the largest of the others. */
static double mark_largest(const double *values, int32_t of, int32_t n, bool *chosen) {
    double least = INFINITY, other = -INFINITY;
    for (int32_t k = 0; k < n; k++) {
        int32_t best = -1;
        for (int32_t e = 0; e < of; e++)
            if (!chosen[e] && (best < 0 || values[e] > values[best])) best = e;
        chosen[best] = true;
        least = values[best];
    }
    for (int32_t e = 0; e < of; e++) other = chosen[e] ? other : fmax(other, values[e]);
    return least - other;
}

/* The experts outside the best groups, by the sum of their two best, become minus infinity. Returns the margin. */
static double keep_groups(const reference_model *m, double *values) {
    const int32_t size = m->n_experts / m->n_groups;
    if (m->n_groups <= 1 || m->n_used_groups == m->n_groups) return INFINITY;
    double *sums = reference_alloc((size_t)m->n_groups, sizeof *sums);
    bool *kept = reference_alloc((size_t)m->n_groups, sizeof *kept);
    for (int32_t g = 0; g < m->n_groups; g++) {
        bool *two = reference_alloc((size_t)size, sizeof *two);
        mark_largest(values + g * size, size, size > 1 ? 2 : 1, two);
        for (int32_t e = 0; e < size; e++) sums[g] += two[e] ? values[g * size + e] : 0;
        free(two);
    }
    const double margin = mark_largest(sums, m->n_groups, m->n_used_groups, kept);
    for (int32_t e = 0; e < m->n_experts; e++)
        if (!kept[e / size]) values[e] = -INFINITY;
    free(kept);
    free(sums);
    return margin;
}

/* Turns the router's probabilities into weights: those of the n_used largest, corrected, stay, others become 0. Returns
 * the margin of the choice. */
static double choose(const reference_model *m, const float *correction, double *p) {
    double sum = 0, *values = reference_alloc((size_t)m->n_experts, sizeof *values);
    bool *chosen = reference_alloc((size_t)m->n_experts, sizeof *chosen);
    for (int32_t e = 0; e < m->n_experts; e++) values[e] = p[e] + (correction ? correction[e] : 0);
    double margin = keep_groups(m, values);
    margin = fmin(margin, mark_largest(values, m->n_experts, m->n_used, chosen));
    for (int32_t e = 0; e < m->n_experts; e++) sum += chosen[e] ? p[e] : 0;
    for (int32_t e = 0; e < m->n_experts; e++)
        p[e] = chosen[e] ? p[e] / (m->renormalised ? sum : 1) * m->expert_scale : 0;
    free(chosen);
    free(values);
    return margin;
}

static void add_scaled(double *y, const double *x, double factor, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] += factor * x[i];
}

/* routed: what the router reads. */
static double apply_experts(const reference_model *m, const reference_layer *l, const double *routed, const double *x,
                            double *y) {
    double *p = reference_alloc((size_t)m->n_experts, sizeof *p),
           *one = reference_alloc((size_t)m->n_embd, sizeof *one);
    double *weighed = reference_alloc((size_t)m->n_embd, sizeof *weighed);
    const bool inputs = m->family->weighs_inputs;
    reference_apply(&l->router, routed, p);
    for (int32_t e = 0; e < m->n_experts && m->sigmoid; e++) p[e] = reference_sigmoid(p[e]);
    if (!m->sigmoid) reference_softmax(p, (size_t)m->n_experts, NULL);
    const double margin = choose(m, l->correction, p);
    for (int32_t e = 0; e < m->n_experts && l->expert_factors; e++) p[e] *= l->expert_factors[e];
    for (int32_t d = 0; d < m->n_embd; d++) y[d] = 0;
    for (int32_t e = 0; e < m->n_experts; e++) {
        if (p[e] == 0) continue;
        reference_mlp expert = expert_of(&l->mlp, e);
        for (int32_t d = 0; d < m->n_embd; d++) weighed[d] = inputs ? x[d] * p[e] : x[d];
        apply_mlp(m->family->activation, &expert, weighed, one);
        add_scaled(y, one, inputs ? 1 : p[e], m->n_embd);
    }
    free(weighed);
    free(one);
    free(p);
    return margin;
}

/* The expert of all tokens, with a sigmoid gate if there is one. */
static void add_shared(const reference_model *m, const reference_layer *l, const double *x, double *y) {
    double *one = reference_alloc((size_t)m->n_embd, sizeof *one), gate = 0;
    apply_mlp(m->family->activation, &l->shared, x, one);
    if (l->shared_gate.w) reference_apply(&l->shared_gate, x, &gate);
    add_scaled(y, one, l->shared_gate.w ? reference_sigmoid(gate) : 1, m->n_embd);
    free(one);
}

/* Experts beside an mlp: each has norms before and after it, and the router reads x / its root mean square, times
 * factors. */
static double apply_beside(const reference_model *m, const reference_layer *l, const double *x, const double *normed,
                           double *y) {
    const size_t n = (size_t)m->n_embd;
    double *routed = reference_alloc(n, sizeof *routed), *own = reference_alloc(n, sizeof *own), squares = 0;
    for (size_t d = 0; d < n; d++) squares += x[d] * x[d];
    const double root = sqrt(squares / (double)n + m->eps) * sqrt((double)n);
    for (size_t d = 0; d < n; d++) routed[d] = x[d] / root * l->routed[d];
    for (size_t d = 0; d < n; d++) own[d] = x[d];
    reference_normalise(m, &l->experts_norm, own, m->n_embd);
    const double margin = apply_experts(m, l, routed, own, y);
    reference_normalise(m, &l->post_experts_norm, y, m->n_embd);
    apply_mlp(m->family->activation, &l->shared, normed, own);
    reference_normalise(m, &l->post_shared_norm, own, m->n_embd);
    add_scaled(y, own, 1, m->n_embd);
    free(own);
    free(routed);
    return margin;
}

double reference_mlp_apply(const reference_model *m, const reference_layer *l, const double *x, const double *normed,
                           double *y) {
    double margin = INFINITY;
    if (l->routed) return apply_beside(m, l, x, normed, y);
    if (l->router.w) margin = apply_experts(m, l, normed, normed, y);
    else apply_mlp(m->family->activation, &l->mlp, normed, y);
    if (l->shared.up.w) add_shared(m, l, normed, y);
    return margin;
}
