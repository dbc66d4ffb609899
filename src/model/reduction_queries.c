/* SPDX-License-Identifier: Apache-2.0 */
/* reduction_queries.c: Expected Attention and Compactor. Sums are in double, in the order of slots.
 *
 * Expected Attention: with mean mu and covariance S of a head's queries before rotation, and R the mean of the
 * rotations to the next positions, a slot's key k gets exp(s mu'R'k + s^2/2 k'R S R'k), s the factor of scores, divided
 * by the sum over slots: the mean over the query heads of its KV head, times the norm of its value.
 *
 * Compactor: a head's keys before rotation, centred, are the rows of X; leverage = diag(X (X'X)^-1 X'). Attention: the
 * sum over the queries of a span, each a softmax over all keys of the span, without a factor of scores, averaged over
 * query heads; times the norm of the value; averaged over three neighbours. Both are standardized over the heads of a
 * layer. Slots of freed blocks count as zeros.
 */
#include "model/reduction_queries.h"

#include <math.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"

struct reduction_queries {
    const rp_model *model;
    int32_t n_ctx, n_slots;
    reduction_method method;
    int32_t n_added;   /* slots */
    int64_t n_queries; /* Expected: that are counted */
    /* Expected: [layers of the model][query heads][dim], and [...][dim][dim]: sums of queries and of their products.
     * Compactor: [layers of KV][KV heads][n_slots]: sums of weights */
    double *sums, *products;
};

/* ---- queries ---- */

int reduction_queries_new(reduction_queries **out, const rp_model *model, int32_t n_ctx, reduction_method m,
                          int32_t n_slots, rp_error *err) {
    const model_hparams *hp = &model->net.hp;
    const size_t n_heads = (size_t)hp->n_layers * (size_t)hp->n_heads, dim = (size_t)hp->key_dim;
    const size_t n_sums =
        m == REDUCTION_EXPECTED ? n_heads * dim : (size_t)hp->n_layers * (size_t)hp->n_kv_heads * (size_t)n_slots;
    const size_t n_products = m == REDUCTION_EXPECTED ? n_heads * dim * dim : 0;
    reduction_queries *q = *out = base_calloc(1, sizeof(*q));
    if (!q) return base_fail_memory(err, sizeof(*q), "queries");
    *q = (reduction_queries){.model = model, .n_ctx = n_ctx, .n_slots = n_slots, .method = m};
    q->sums = base_calloc(n_sums + n_products, sizeof(double));
    q->products = q->sums + n_sums;
    BASE_ASSERT(m == REDUCTION_EXPECTED || m == REDUCTION_COMPACTOR);
    if (q->sums) return RP_OK;
    base_free(q);
    *out = NULL;
    return base_fail_memory(err, (uint64_t)(n_sums + n_products) * sizeof(double), "queries");
}

void reduction_queries_free(reduction_queries *q) {
    if (!q) return;
    base_free(q->sums);
    base_free(q);
}

double reduction_norm(const float *x, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* Rotates x[dim] by the angles of a position; forward false: back. */
static void rotate(const rp_model *m, const model_rope *rope, const float *cs, bool forward, double *x) {
    const int32_t half = rope->rot_dim / 2;
    const bool halves = (m->arch->features & MODEL_ROPE_HALVES) != 0;
    for (int32_t i = 0; i < half; i++) {
        const int32_t a = halves ? i : 2 * i, b = halves ? i + half : 2 * i + 1;
        const double c = (double)cs[2 * i], s = forward ? (double)cs[2 * i + 1] : -(double)cs[2 * i + 1], xa = x[a],
                     xb = x[b];
        x[a] = xa * c - xb * s;
        x[b] = xa * s + xb * c;
    }
}

static const model_rope *rope_of(const reduction_queries *q, int32_t layer) {
    const int32_t kind = q->model->net.layers[layer].rope;
    return kind == MODEL_NO_ROPE ? NULL : model_layer_rope(&q->model->net, kind, q->n_ctx);
}

/* ---- Expected Attention ---- */

static void add_moments(reduction_queries *q, query_record *record, int32_t n) {
    const model_hparams *hp = &q->model->net.hp;
    const int64_t dim = hp->key_dim;
    for (int32_t i = 0; i < hp->n_layers * hp->n_heads; i++) {
        double *sums = q->sums + i * dim, *products = q->products + i * dim * dim;
        for (int32_t slot = 0; slot < n; slot++) {
            const float *x = query_record_at(record, i / hp->n_heads, slot) + i % hp->n_heads * dim;
            if (q->n_added + slot < REDUCTION_FIRST) continue;
            for (int64_t a = 0; a < dim; a++) {
                sums[a] += (double)x[a];
                for (int64_t b = 0; b <= a; b++) products[a * dim + b] += (double)x[a] * (double)x[b];
            }
        }
    }
    q->n_queries += BASE_MAX(q->n_added + n - BASE_MAX(q->n_added, REDUCTION_FIRST), 0);
}

/* The mean rotation to the next positions after `end`, as angles: each pair is turned and shrunk. */
static void mean_rotation(const model_rope *rope, int32_t end, float *cs, double *sums) {
    const int32_t n = rope->rot_dim;
    for (int32_t i = 0; i < n; i++) sums[i] = 0;
    for (int32_t pos = end; pos < end + REDUCTION_FUTURE; pos++) {
        model_rope_angles(rope, pos, rope->magnitude, cs);
        for (int32_t i = 0; i < n; i++) sums[i] += (double)cs[i];
    }
    for (int32_t i = 0; i < n; i++) cs[i] = (float)(sums[i] / REDUCTION_FUTURE);
}

/* Scratch of a head. */
typedef struct expected_head {
    float *cs;                                    /* [rot_dim] */
    double *mean, *angle_sums, *turned, *weights; /* [dim], [dim], [dim], [n_slots] */
} expected_head;

/* Adds the expected attention of one query head: weights of slots after the first ones sum to 1. */
static void add_expected(const reduction_head *h, int32_t layer, int32_t head, expected_head *x, double *scores) {
    const reduction_queries *q = h->run->queries;
    const model_hparams *hp = &q->model->net.hp;
    const int64_t dim = hp->key_dim, at = (int64_t)layer * hp->n_heads + head;
    const double *sums = q->sums + at * dim, *products = q->products + at * dim * dim,
                 n = (double)BASE_MAX(q->n_queries, 1);
    const double scale = (double)hp->score_scale;
    const float *weights = q->model->net.layers[layer].query_weights.data;
    double highest = -(double)INFINITY, sum = 0;
    for (int64_t a = 0; a < dim; a++) x->mean[a] = sums[a] / n;
    for (int32_t slot = REDUCTION_FIRST; slot < h->n_slots; slot++) {
        double mean = 0, variance = 0;
        if (!reduction_has(h, slot)) continue;
        for (int64_t a = 0; a < dim; a++)
            x->turned[a] = (double)h->keys[slot * dim + a] * (weights ? (double)weights[a] : 1.0);
        if (rope_of(q, layer)) rotate(q->model, rope_of(q, layer), x->cs, false, x->turned); /* R'k */
        for (int64_t a = 0; a < dim; a++) {
            double row = 0;
            for (int64_t b = 0; b < dim; b++)
                row += (products[BASE_MAX(a, b) * dim + BASE_MIN(a, b)] / n - x->mean[a] * x->mean[b]) * x->turned[b];
            mean += x->mean[a] * x->turned[a];
            variance += x->turned[a] * row;
        }
        x->weights[slot] = scale * mean + scale * scale / 2 * variance;
        highest = fmax(highest, x->weights[slot]);
    }
    for (int32_t slot = REDUCTION_FIRST; slot < h->n_slots; slot++)
        if (reduction_has(h, slot)) sum += x->weights[slot] = exp(x->weights[slot] - highest);
    for (int32_t slot = REDUCTION_FIRST; slot < h->n_slots; slot++)
        if (reduction_has(h, slot)) scores[slot] += x->weights[slot] / sum;
}

int reduction_score_expected(const reduction_head *h, double *scores, rp_error *err) {
    const reduction_queries *q = h->run->queries;
    const model_hparams *hp = &q->model->net.hp;
    const size_t dim = (size_t)hp->key_dim, n = 3 * dim + (size_t)h->n_slots,
                 bytes = n * sizeof(double) + dim * sizeof(float);
    const int32_t group = hp->n_heads / hp->n_kv_heads;
    double *memory = base_calloc(1, bytes);
    if (!memory) return base_fail_memory(err, bytes, "scores of slots");
    BASE_ASSERT(q->n_added == h->n_slots && q->method == REDUCTION_EXPECTED);
    expected_head x = {
        .mean = memory, .angle_sums = memory + dim, .turned = memory + 2 * dim, .weights = memory + 3 * dim};
    x.cs = (float *)(memory + n);
    for (int32_t slot = 0; slot < h->n_slots; slot++) scores[slot] = 0;
    for (int32_t l = 0; l < hp->n_layers; l++) { /* all that use this layer's KV */
        if (q->model->net.layers[l].states != h->layer) continue;
        const int32_t end = kv_span_end(h->run->spans[h->run->n_spans - 1]);
        if (rope_of(q, l)) mean_rotation(rope_of(q, l), end, x.cs, x.angle_sums);
        for (int32_t head = h->kv_head * group; head < (h->kv_head + 1) * group; head++)
            add_expected(h, l, head, &x, scores);
    }
    for (int32_t slot = 0; slot < h->n_slots; slot++)
        if (slot < REDUCTION_FIRST) scores[slot] = (double)INFINITY;
        else scores[slot] *= reduction_norm(h->values + (int64_t)slot * h->value_dim, h->value_dim);
    base_free(memory);
    return RP_OK;
}

/* ---- Compactor ---- */

/* Scratch of a span's attention. */
typedef struct span_attention {
    float *keys;             /* [KV_SPAN_TOKENS][dim] of the span's head */
    float *cs;               /* [rot_dim] */
    double *query, *weights; /* [dim], [KV_SPAN_TOKENS] */
} span_attention;

/* The attention of one query, rotated in x->query, over the keys of its span. */
static void add_attention(const span_attention *x, int32_t n, int64_t dim, double *columns) {
    double highest = -(double)INFINITY, sum = 0;
    for (int32_t j = 0; j < n; j++) {
        x->weights[j] = 0;
        for (int64_t d = 0; d < dim; d++) x->weights[j] += x->query[d] * (double)x->keys[j * dim + d];
        highest = fmax(highest, x->weights[j]);
    }
    for (int32_t j = 0; j < n; j++) sum += x->weights[j] = exp(x->weights[j] - highest);
    for (int32_t j = 0; j < n; j++) columns[j] += x->weights[j] / sum;
}

static int add_span(reduction_queries *q, backend *b, const kv_span *span, query_record *record, span_attention *x,
                    rp_error *err) {
    const model_hparams *hp = &q->model->net.hp;
    const int32_t n = kv_span_tokens(span), group = hp->n_heads / hp->n_kv_heads;
    const int64_t dim = hp->key_dim;
    int rc = RP_OK;
    for (int32_t l = 0; l < hp->n_layers; l++)
        for (int32_t head = 0; head < hp->n_heads; head++) {
            const int32_t states = q->model->net.layers[l].states, kv_head = head / group;
            const float *weights = q->model->net.layers[l].query_weights.data;
            double *columns = q->sums + ((int64_t)states * hp->n_kv_heads + kv_head) * q->n_slots + q->n_added;
            if (head % group == 0) rc = b->ops->study->read_head(b, &span, 1, states, kv_head, true, x->keys, err);
            if (rc) return rc;
            for (int32_t slot = 0; slot < n; slot++) {
                const float *from = query_record_at(record, l, slot) + head * dim;
                for (int64_t d = 0; d < dim; d++) x->query[d] = (double)from[d];
                if (rope_of(q, l)) {
                    model_rope_angles(rope_of(q, l), kv_span_position(span) + slot, rope_of(q, l)->magnitude, x->cs);
                    rotate(q->model, rope_of(q, l), x->cs, true, x->query);
                }
                for (int64_t d = 0; weights && d < dim; d++) x->query[d] *= (double)weights[d];
                add_attention(x, n, dim, columns);
            }
        }
    return RP_OK;
}

int reduction_queries_add(reduction_queries *q, backend *b, const kv_span *span, query_record *record, rp_error *err) {
    const size_t dim = (size_t)q->model->net.hp.key_dim, n = dim + KV_SPAN_TOKENS,
                 n_floats = KV_SPAN_TOKENS * dim + dim;
    const size_t bytes = n * sizeof(double) + n_floats * sizeof(float);
    BASE_ASSERT(q->n_added + kv_span_tokens(span) <= q->n_slots && record->n_layers == q->model->net.hp.n_layers);
    int rc = RP_OK;
    if (q->method == REDUCTION_EXPECTED) add_moments(q, record, kv_span_tokens(span));
    else {
        double *memory = base_alloc(bytes);
        if (!memory) return base_fail_memory(err, bytes, "queries");
        span_attention x = {.query = memory, .weights = memory + dim, .keys = (float *)(memory + n)};
        x.cs = x.keys + KV_SPAN_TOKENS * dim;
        rc = add_span(q, b, span, record, &x, err);
        base_free(memory);
    }
    q->n_added += kv_span_tokens(span);
    return rc;
}

/* The lower triangle of G = L L', in place. G is positive definite: a multiple of 1 was added. */
static void factor(double *g, int64_t dim) {
    for (int64_t i = 0; i < dim; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = g[i * dim + j];
            for (int64_t k = 0; k < j; k++) sum -= g[i * dim + k] * g[j * dim + k];
            g[i * dim + j] = i == j ? sqrt(fmax(sum, 1e-30)) : sum / g[j * dim + j];
        }
}

#define RIDGE 1e-2 /* added to the diagonal of X'X, as in the paper's implementation: few slots leave it singular */

/* x'(X'X)^-1 x of each row of X: the squared length of y with L y = x. */
static void find_leverages(double *x, int32_t n, int64_t dim, double *g, double *out) {
    for (int64_t a = 0; a < dim; a++)
        for (int64_t b = 0; b <= a; b++) {
            double sum = a == b ? RIDGE : 0;
            for (int32_t slot = 0; slot < n; slot++) sum += x[slot * dim + a] * x[slot * dim + b];
            g[a * dim + b] = sum;
        }
    factor(g, dim);
    for (int32_t slot = 0; slot < n; slot++) {
        double *y = x + slot * dim;
        out[slot] = 0;
        for (int64_t a = 0; a < dim; a++) {
            for (int64_t b = 0; b < a; b++) y[a] -= g[a * dim + b] * y[b];
            y[a] /= g[a * dim + a];
            out[slot] += y[a] * y[a];
        }
    }
}

/* A head's keys before rotation, centred: the first layer that uses the KV has their rotation. */
static void unrotated_keys(const reduction_head *h, double *x, float *cs) {
    const reduction_queries *q = h->run->queries;
    const int64_t dim = h->key_dim;
    int32_t layer = 0;
    while (layer < q->model->net.hp.n_layers && q->model->net.layers[layer].states != h->layer) layer++;
    BASE_ASSERT(layer < q->model->net.hp.n_layers); /* a layer of KV has one that owns it */
    const model_rope *rope = rope_of(q, layer);
    for (int32_t slot = 0; slot < h->n_slots; slot++) {
        for (int64_t d = 0; d < dim; d++) x[slot * dim + d] = (double)h->keys[slot * dim + d];
        if (!rope) continue;
        model_rope_angles(rope, kv_span_position(h->run->spans[0]) + slot, 1.0f / rope->magnitude, cs);
        rotate(q->model, rope, cs, false, x + slot * dim);
    }
    for (int64_t d = 0; d < dim; d++) {
        double mean = 0;
        for (int32_t slot = 0; slot < h->n_slots; slot++) mean += x[slot * dim + d] / h->n_slots;
        for (int32_t slot = 0; slot < h->n_slots; slot++) x[slot * dim + d] -= mean;
    }
}

int reduction_score_compactor(const reduction_head *h, double *scores, rp_error *err) {
    const reduction_queries *q = h->run->queries;
    const size_t dim = (size_t)h->key_dim, n = (size_t)h->n_slots,
                 bytes = (n * dim + dim * dim) * sizeof(double) + dim * sizeof(float);
    const model_hparams *hp = &q->model->net.hp;
    double *x = base_alloc(bytes), *columns = q->sums + ((int64_t)h->layer * hp->n_kv_heads + h->kv_head) * h->n_slots;
    if (!x) return base_fail_memory(err, bytes, "scores of slots");
    BASE_ASSERT(q->n_added == h->n_slots && q->method == REDUCTION_COMPACTOR);
    unrotated_keys(h, x, (float *)(x + n * dim + dim * dim));
    find_leverages(x, h->n_slots, h->key_dim, x + n * dim, h->leverages + (int64_t)h->kv_head * h->n_slots);
    for (int32_t slot = 0; slot < h->n_slots; slot++) {
        double sum = 0;
        for (int32_t i = BASE_MAX(slot - 1, 0); i <= slot + 1 && i < h->n_slots; i++)
            sum += columns[i] * reduction_norm(h->values + (int64_t)i * h->value_dim, h->value_dim);
        scores[slot] = sum;
    }
    base_free(x);
    return RP_OK;
}

/* Mean 0 and deviation 1. */
static void standardize(double *x, int64_t n) {
    BASE_ASSERT(n > 0);
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    const double deviation = fmax(sqrt(squares / (double)BASE_MAX(n - 1, 1)), 1e-6);
    for (int64_t i = 0; i < n; i++) x[i] = (x[i] - mean) / deviation;
}

void reduction_blend_compactor(const reduction_head *h, int32_t n_kv_heads, double *scores) {
    const int64_t n = (int64_t)n_kv_heads * h->n_slots;
    standardize(scores, n);
    standardize(h->leverages, n);
    for (int64_t i = 0; i < n; i++) {
        const int32_t slot = (int32_t)(i % h->n_slots);
        scores[i] += REDUCTION_LEVERAGE * h->leverages[i];
        if (slot < REDUCTION_EDGE_FIRST || slot >= h->n_slots - REDUCTION_EDGE_LAST) scores[i] = (double)INFINITY;
    }
}
