/* SPDX-License-Identifier: Apache-2.0 */
/* test_reduction.c: methods that choose which slots of a module are kept.
 *
 * Selections against references that are written from the papers, over weights of the slow definition of attention
 * (naive_attention.h): the same slots, in models of every kind of layer and random models; the same bytes for every
 * number of threads; and no two methods choose the same slots.
 *
 * Then an experiment in f32 with the bundled model: the documents of items of models/eval are reduced, as one module,
 * and their questions answered over what is left.
 *
 *   REPRISE_TEST_ROUNDS=N  items of each task, 2 by default; docs/quality.md has the table of 100
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_kv_elements.h"
#include "model/reduction.h"
#include "support/eval_items.h"
#include "support/forward_run.h"
#include "support/golden.h"
#include "support/must.h"
#include "support/naive_attention.h"
#include "support/oracle_run.h"
#include "support/ranked.h"
#include "support/reference_model.h"
#include "support/seed.h"

#define MODEL "models/reprise-mini.gguf"
#define MOST_ROWS FORWARD_RUN_ROWS /* of a question and its answer */
#define MOST_TOKENS 400            /* of a module with random tokens */
#define REPEAT "Repeat the previous context exactly."

static const int32_t shares[] = {500, 250, 125};
#define N_SHARES ((int)BASE_ARRAY_LEN(shares))

static void *allocate(size_t n, size_t bytes) { return reference_alloc(n, bytes); }

/* ---- a module
   ------------------------------------------------------------------------------------------------------- */

/* Complete spans of one context, and what was observed of them. */
typedef struct module {
    kv_span *before;                                    /* the tokens before it, at most 256, which are not reduced;
                                                           NULL: none */
    kv_span **spans;                                    /* references */
    int32_t n_spans, n, first;                          /* first: its position */
    attention_observer *observers[REDUCTION_N_METHODS]; /* NULL: the method observes no rows */
    reduction_queries *queries[REDUCTION_N_METHODS];
} module;

static void seal_own(kv_context *c) {
    static const base_key key = {{1}};
    kv_context_close(c);
    for (size_t i = 0; i < c->n_views; i++)
        if (!kv_span_is_sealed(c->views[i].span)) kv_span_seal(c->views[i].span, &key);
}

static void new_observers(module *m, const rp_model *model) {
    rp_error err = {0};
    for (int i = 0; i < REDUCTION_N_METHODS; i++)
        must(reduction_observer_new(&m->observers[i], model, (reduction_method)i, m->first > 0, (size_t)m->n_spans,
                                    &err),
             &err);
}

static void open_queries(module *m, forward_run *r) {
    rp_error err = {0};
    for (int i = 0; i < REDUCTION_N_METHODS; i++)
        if (reduction_method_needs_queries((reduction_method)i))
            must(reduction_queries_new(&m->queries[i], r->model, 2048, (reduction_method)i, m->n, &err), &err);
    must(query_record_new(&r->queries, r->model->net.hp.n_layers, r->model->net.hp.n_heads * r->model->net.hp.key_dim,
                          &err),
         &err);
}

/* Up to the end of a span. */
static int32_t end_of_piece(int32_t first, int32_t n) {
    return BASE_MIN((first / KV_SPAN_TOKENS + 1) * KV_SPAN_TOKENS, n);
}

static void feed_piece(module *m, forward_run *r, const int32_t *tokens, int32_t first, int32_t end) {
    rp_error err = {0};
    forward_run_feed(r, tokens + first, m->first + first, end - first, 0, NULL);
    const kv_span *last = r->context.views[r->context.n_views - 1].span;
    if (end % KV_SPAN_TOKENS != 0 && end != m->n) return;
    for (int i = 0; i < REDUCTION_N_METHODS; i++)
        if (m->queries[i]) must(reduction_queries_add(m->queries[i], r->backend, last, r->queries, &err), &err);
}

/* Prefills n_before tokens at positions from 0 on, and n tokens, the module; then a repetition of the module after
   `asking`. */
static void open_module(module *m, forward_run *r, const int32_t *tokens, int32_t n_before, int32_t n,
                        const int32_t *asking, int32_t n_asking) {
    *m = (module){.n = n, .n_spans = (n + KV_SPAN_TOKENS - 1) / KV_SPAN_TOKENS, .first = n_before};
    r->observer = NULL;
    forward_run_feed(r, tokens, 0, n_before, 0, NULL);
    seal_own(&r->context);
    tokens += n_before;
    new_observers(m, r->model);
    open_queries(m, r);
    for (int32_t first = 0, next; first < n; first = next)
        feed_piece(m, r, tokens, first, next = end_of_piece(first, n));
    base_free(r->queries);
    r->queries = NULL;
    seal_own(&r->context);
    for (int i = 0; i < REDUCTION_N_METHODS; i++) {
        const size_t n_views = r->context.n_views;
        if (!reduction_method_repeats((reduction_method)i)) continue;
        r->observer = m->observers[i];
        forward_run_feed(r, asking, m->first + n, n_asking, 0, NULL);
        forward_run_feed(r, tokens, m->first + n + n_asking, n, 0, NULL);
        kv_context_drop(&r->context, r->context.n_views - n_views);
    }
    r->observer = NULL;
    m->spans = allocate((size_t)m->n_spans, sizeof(*m->spans));
    if (m->first > 0) m->before = kv_span_ref(r->context.views[0].span);
    for (int32_t i = 0; i < m->n_spans; i++) m->spans[i] = kv_span_ref(r->context.views[i + (m->first > 0)].span);
    kv_context_clear(&r->context);
}

static void close_module(module *m) {
    kv_span_unref(m->before);
    for (int32_t i = 0; i < m->n_spans; i++) kv_span_unref(m->spans[i]);
    for (int i = 0; i < REDUCTION_N_METHODS; i++)
        attention_observer_free(m->observers[i]), reduction_queries_free(m->queries[i]);
    free(m->spans);
}

static kv_selection *select_slots(const forward_run *r, const module *m, reduction_method method, int32_t permille) {
    rp_error err = {0};
    kv_selection *s;
    const reduction_run run = {.model = r->model,
                               .spans = (const kv_span *const *)m->spans,
                               .n_spans = (size_t)m->n_spans,
                               .observer = m->observers[method],
                               .queries = m->queries[method]};
    must(reduction_select(&s, r->backend, method, permille, &run, &err), &err);
    return s;
}

/* ---- references
   ----------------------------------------------------------------------------------------------------- */

/* Weights by definition, of the rows that are observed: [reduction_rows][layer][KV head][slot]. */
static struct {
    forward_run *run;
    const module *module;
    backend_ops ops;
    backend_study study;
    void (*attend)(backend *b, int32_t layer, const backend_buffer *queries, backend_buffer *dst);
    void (*observe_input)(backend *b, const backend_buffer *input);
    double norms[FORWARD_RUN_ROWS]; /* of the inputs of attention, of a step's rows */
    double *weights;                /* [layer][KV head][slot]: the highest weight that a row of the repetition gave */
    double *relative;               /* [layer of the model][query head][slot]: the highest weight divided by a row's
                                       norm */
    double *queries;                /* [layer][slot][query head][key dimension], not rotated */
    float *elements[2];             /* values and keys: [layer][KV head][slot][dimension] */
} naive;

static size_t index_of(const kv_shape *shape, int32_t n, int32_t layer, int32_t kv_head, int32_t slot) {
    return ((size_t)layer * (size_t)kv_shape_heads(shape) + (size_t)kv_head) * (size_t)n + (size_t)slot;
}

static void recording_observe_input(backend *self, const backend_buffer *input) {
    const cpu_backend *b = (cpu_backend *)self;
    naive.observe_input(self, input);
    for (int32_t r = 0; r < b->step->n_rows; r++) {
        naive.norms[r] = 0;
        for (int32_t i = 0; i < input->width; i++) naive.norms[r] += pow((double)cpu_row_of(input, r)[i], 2);
        naive.norms[r] = sqrt(naive.norms[r]);
    }
}

static void recording_attend(backend *self, int32_t layer, const backend_buffer *queries, backend_buffer *dst) {
    static naive_slot slots[1 << 12];
    const cpu_backend *b = (cpu_backend *)self;
    const model_hparams *hp = &b->net->hp;
    double out[256];
    naive.attend(self, layer, queries, dst);
    for (int64_t i = 0; i < b->step->n_rows * (int64_t)queries->width; i++) {
        const int32_t slot = b->step->rows[i / queries->width].pos - naive.module->first;
        if (slot < 0 || slot >= naive.module->n) continue;
        naive.queries[((int64_t)layer * naive.module->n + slot) * queries->width + i % queries->width] =
            (double)queries->data[i];
    }
    for (int32_t i = 0; i < b->step->n_rows * hp->n_heads; i++) {
        const int32_t r = i / hp->n_heads, h = i % hp->n_heads, kv_head = h / (hp->n_heads / hp->n_kv_heads);
        const model_row *row = &b->step->rows[r];
        const float *x = cpu_row_of(queries, r) + h * hp->key_dim;
        const naive_query q = {.net = b->net, .n_ctx = 2048, .layer = layer, .head = h, .pos = row->pos, .x = x};
        const bool is_relative = row->observer == naive.module->observers[REDUCTION_KVZIP_PLUS];
        if (!row->observer) continue;
        const size_t n = naive_attention(&q, b->step->contexts[0], slots, BASE_ARRAY_LEN(slots), out);
        for (size_t k = 0; k < n; k++) {
            const int32_t view = slots[k].view - (naive.module->first > 0),
                          slot = view * KV_SPAN_TOKENS + slots[k].slot;
            double *relative = &naive.relative[((int64_t)layer * hp->n_heads + h) * naive.module->n + slot];
            if (view < 0 || view >= naive.module->n_spans) continue;
            if (is_relative) *relative = fmax(*relative, slots[k].weight / naive.norms[r]);
            if (is_relative) continue; /* the same repetition was observed before */
            double *joined =
                &naive.weights[index_of(&b->shape, naive.module->n, b->net->layers[layer].states, kv_head, slot)];
            *joined = fmax(*joined, slots[k].weight);
        }
    }
}

/* Decodes all keys or values: naive.elements; 0 where a window's block was freed. */
static void read_elements(const kv_shape *shape, const module *m, bool is_key) {
    const int32_t dim = is_key ? shape->layers[0].key_dim : shape->layers[0].value_dim,
                  n_heads = shape->n_layers * kv_shape_heads(shape);
    float *x = naive.elements[is_key] = allocate((size_t)(n_heads * m->n * dim), sizeof(*x));
    for (int32_t i = 0; i < n_heads * m->n; i++, x += dim) {
        const int32_t slot = i % m->n, kv_head = i / m->n % kv_shape_heads(shape),
                      layer = i / m->n / kv_shape_heads(shape);
        const kv_span *s = m->spans[slot / 256];
        if (!kv_span_has(s, layer, slot % 256 / 64)) continue;
        cpu_elements(kv_span_layer(s, layer), (is_key ? cpu_keys : cpu_values)(s, layer, slot % 256 / 64, kv_head),
                     is_key, slot % 64, x);
    }
}

static double element(const kv_shape *shape, const module *m, bool is_key, int32_t layer, int32_t kv_head, int32_t slot,
                      int32_t d) {
    const int32_t dim = is_key ? shape->layers[0].key_dim : shape->layers[0].value_dim;
    return (double)naive.elements[is_key][index_of(shape, m->n, layer, kv_head, slot) * (size_t)dim + (size_t)d];
}

static double value_norm(const kv_shape *shape, const module *m, int32_t layer, int32_t kv_head, int32_t slot) {
    double sum = 0;
    for (int32_t d = 0; d < shape->layers[0].value_dim; d++)
        sum += pow(element(shape, m, false, layer, kv_head, slot, d), 2);
    return sqrt(sum);
}

/* The matrix of a rotation to a position, [dim][dim]. */
static void rotation(const rp_model *model, int32_t layer, int32_t pos, bool inverse, double *out) {
    const int32_t dim = model->net.hp.key_dim, kind = model->net.layers[layer].rope;
    const bool halves = (model->arch->features & MODEL_ROPE_HALVES) != 0;
    float cs[256];
    for (int32_t i = 0; i < dim * dim; i++) out[i] = i / dim == i % dim;
    if (kind == MODEL_NO_ROPE) return;
    const model_rope *rope = model_layer_rope(&model->net, kind, 2048);
    const int32_t half = rope->rot_dim / 2;
    model_rope_angles(rope, pos, inverse ? 1 / rope->magnitude : rope->magnitude, cs);
    for (int32_t i = 0; i < half; i++) {
        const int32_t a = halves ? i : 2 * i, b = halves ? i + half : 2 * i + 1;
        const double s = inverse ? -(double)cs[2 * i + 1] : (double)cs[2 * i + 1];
        out[a * dim + a] = out[b * dim + b] = (double)cs[2 * i];
        out[a * dim + b] = -s;
        out[b * dim + a] = s;
    }
}

static const double *query_of(const rp_model *model, const module *m, int32_t layer, int32_t head, int32_t slot) {
    const model_hparams *hp = &model->net.hp;
    return naive.queries + (((int64_t)layer * m->n + slot) * hp->n_heads + head) * hp->key_dim;
}

/* Over the slots that are there. */
static void naive_softmax(double *x, const bool *there, int32_t n) {
    double highest = -INFINITY, sum = 0;
    for (int32_t i = 0; i < n; i++) highest = there[i] ? fmax(highest, x[i]) : highest;
    for (int32_t i = 0; i < n; i++) sum += there[i] ? exp(x[i] - highest) : 0;
    for (int32_t i = 0; i < n; i++) x[i] = there[i] ? exp(x[i] - highest) / sum : 0;
}

/* Expected attention of a query head: mu' = R mu, S' = R S R', for [slots of the run]. */
static void naive_expected_head(const rp_model *model, const kv_shape *shape, const module *m, int32_t layer,
                                int32_t head, double *out) {
    const int32_t dim = shape->layers[0].key_dim, n = m->n - 4;
    double *r = allocate((size_t)(dim * dim), sizeof(double)), *one = allocate((size_t)(dim * dim), sizeof(double));
    double *s = allocate((size_t)(dim * dim), sizeof(double)), *turned = allocate((size_t)(dim * dim), sizeof(double));
    double *mu = allocate((size_t)dim, sizeof(double));
    bool there[MOST_TOKENS];
    for (int32_t pos = m->first + m->n; pos < m->first + m->n + 512; pos++) {
        rotation(model, layer, pos, false, one);
        for (int32_t i = 0; i < dim * dim; i++) r[i] += one[i] / 512;
    }
    for (int32_t slot = 4; slot < m->n; slot++)
        for (int32_t d = 0; d < dim; d++) mu[d] += query_of(model, m, layer, head, slot)[d] / n;
    for (int32_t slot = 4; slot < m->n; slot++)
        for (int32_t i = 0; i < dim * dim; i++) {
            const double *q = query_of(model, m, layer, head, slot);
            s[i] += (q[i / dim] - mu[i / dim]) * (q[i % dim] - mu[i % dim]) / n;
        }
    for (int32_t i = 0; i < dim * dim; i++) { /* R S, */
        one[i] = 0;
        for (int32_t k = 0; k < dim; k++) one[i] += r[i / dim * dim + k] * s[k * dim + i % dim];
    }
    for (int32_t i = 0; i < dim * dim; i++) /* R S R' */
        for (int32_t k = 0; k < dim; k++) turned[i] += one[i / dim * dim + k] * r[i % dim * dim + k];
    for (int32_t slot = 4; slot < m->n; slot++) {
        double z = 0;
        const double scale = (double)model->net.hp.score_scale;
        for (int32_t i = 0; i < dim * dim; i++) {
            const double ka =
                element(shape, m, true, layer, head / (model->net.hp.n_heads / kv_shape_heads(shape)), slot, i / dim);
            const double kb =
                element(shape, m, true, layer, head / (model->net.hp.n_heads / kv_shape_heads(shape)), slot, i % dim);
            z += scale * ka * r[i] * mu[i % dim] + scale * scale / 2 * ka * turned[i] * kb;
        }
        out[slot] = z;
        there[slot] = kv_span_has(m->spans[slot / 256], layer, slot % 256 / 64);
    }
    naive_softmax(out + 4, there + 4, n);
    free(r), free(one), free(s), free(mu), free(turned);
}

static void naive_expected(const rp_model *model, const kv_shape *shape, const module *m, int32_t layer, double *out) {
    const int32_t group = model->net.hp.n_heads / kv_shape_heads(shape);
    double *own = allocate((size_t)m->n, sizeof(double));
    for (int32_t head = 0; head < model->net.hp.n_heads; head++) {
        naive_expected_head(model, shape, m, layer, head, own);
        for (int32_t slot = 4; slot < m->n; slot++) out[head / group * m->n + slot] += own[slot] / group;
    }
    for (int32_t i = 0; i < kv_shape_heads(shape) * m->n; i++)
        out[i] = i % m->n < 4 ? INFINITY : out[i] * value_norm(shape, m, layer, i / m->n, i % m->n);
    free(own);
}

static void z_scores(double *x, int32_t n) {
    double mean = 0, variance = 0;
    for (int32_t i = 0; i < n; i++) mean += x[i] / n;
    for (int32_t i = 0; i < n; i++) variance += pow(x[i] - mean, 2) / (n - 1);
    for (int32_t i = 0; i < n; i++) x[i] = (x[i] - mean) / sqrt(variance);
}

/* diag(X (X'X + 0.01)^-1 X'), the inverse by Gauss and Jordan. */
static void naive_leverage(const rp_model *model, const kv_shape *shape, const module *m, int32_t layer,
                           int32_t kv_head, double *out) {
    const int32_t dim = shape->layers[0].key_dim;
    double *x = allocate((size_t)(m->n * dim), sizeof(double)), *r = allocate((size_t)(dim * dim), sizeof(double));
    double *g = allocate((size_t)(dim * dim), sizeof(double)), *inverse = allocate((size_t)(dim * dim), sizeof(double));
    for (int32_t slot = 0; slot < m->n; slot++) {
        rotation(model, layer, m->first + slot, true, r);
        for (int32_t i = 0; i < dim * dim; i++)
            x[slot * dim + i / dim] += r[i] * element(shape, m, true, layer, kv_head, slot, i % dim);
    }
    for (int32_t d = 0; d < dim; d++) {
        double mean = 0;
        for (int32_t slot = 0; slot < m->n; slot++) mean += x[slot * dim + d] / m->n;
        for (int32_t slot = 0; slot < m->n; slot++) x[slot * dim + d] -= mean;
    }
    for (int32_t i = 0; i < dim * dim; i++) {
        g[i] = i / dim == i % dim ? 0.01 : 0;
        inverse[i] = i / dim == i % dim;
        for (int32_t slot = 0; slot < m->n; slot++) g[i] += x[slot * dim + i / dim] * x[slot * dim + i % dim];
    }
    for (int32_t k = 0; k < dim; k++) {
        const double pivot = g[k * dim + k];
        for (int32_t i = 0; i < dim; i++) g[k * dim + i] /= pivot, inverse[k * dim + i] /= pivot;
        for (int32_t row = 0; row < dim; row++) {
            const double f = row == k ? 0 : g[row * dim + k];
            for (int32_t i = 0; i < dim; i++)
                g[row * dim + i] -= f * g[k * dim + i], inverse[row * dim + i] -= f * inverse[k * dim + i];
        }
    }
    for (int32_t slot = 0; slot < m->n; slot++) {
        out[slot] = 0;
        for (int32_t i = 0; i < dim * dim; i++)
            out[slot] += x[slot * dim + i / dim] * inverse[i] * x[slot * dim + i % dim];
    }
    free(x), free(r), free(g), free(inverse);
}

static void naive_compactor(const rp_model *model, const kv_shape *shape, const module *m, int32_t layer, double *out) {
    const int32_t dim = shape->layers[0].key_dim, group = model->net.hp.n_heads / kv_shape_heads(shape),
                  all = kv_shape_heads(shape) * m->n;
    double *a = allocate((size_t)all, sizeof(double)), *leverage = allocate((size_t)all, sizeof(double));
    double *r = allocate((size_t)(dim * dim), sizeof(double));
    for (int32_t slot = 0; slot < m->n; slot++) {
        rotation(model, layer, m->first + slot, false, r);
        for (int32_t head = 0; head < model->net.hp.n_heads; head++) {
            const int32_t begin = slot / 256 * 256, end = BASE_MIN(begin + 256, m->n);
            double p[256] = {0}, turned[256] = {0};
            bool there[256];
            for (int32_t i = 0; i < dim * dim; i++)
                turned[i / dim] += r[i] * query_of(model, m, layer, head, slot)[i % dim];
            for (int32_t j = begin; j < end; j++)
                for (int32_t d = 0; d < dim; d++)
                    p[j - begin] += turned[d] * element(shape, m, true, layer, head / group, j, d);
            memset(there, true, sizeof(there));
            naive_softmax(p, there, end - begin);
            for (int32_t j = begin; j < end; j++) a[head / group * m->n + j] += p[j - begin] / group;
        }
    }
    for (int32_t i = 0; i < all; i++) a[i] *= value_norm(shape, m, layer, i / m->n, i % m->n);
    for (int32_t i = 0; i < all; i++) {
        const int32_t slot = i % m->n;
        out[i] = ((slot > 0 ? a[i - 1] : 0) + a[i] + (slot + 1 < m->n ? a[i + 1] : 0)) / 3;
    }
    z_scores(out, all);
    for (int32_t h = 0; h < kv_shape_heads(shape); h++) naive_leverage(model, shape, m, layer, h, leverage + h * m->n);
    z_scores(leverage, all);
    for (int32_t i = 0; i < all; i++)
        out[i] = i % m->n < 8 || i % m->n >= m->n - 4 ? INFINITY : out[i] + 0.3 * leverage[i];
    free(a), free(leverage), free(r);
}

/* Norm of what a slot's value adds to the residual stream through the query head's columns of a layer's output
   matrix. */
static double naive_added_norm(const rp_model *model, const float *matrix, const kv_shape *shape, const module *m,
                               int32_t layer, int32_t head, int32_t slot) {
    const int32_t dim = shape->layers[0].value_dim, kv_head = head / (model->net.hp.n_heads / model->net.hp.n_kv_heads);
    const int32_t states = model->net.layers[layer].states;
    double squared = 0;
    for (int64_t row = 0; row < model->net.layers[layer].o.n_out; row++) {
        double sum = 0;
        for (int32_t d = 0; d < dim; d++)
            sum += (double)matrix[row * model->net.layers[layer].o.n_in + head * dim + d] *
                   element(shape, m, false, states, kv_head, slot, d);
        squared += sum * sum;
    }
    return sqrt(squared);
}

static void naive_plus(const rp_model *model, const kv_shape *shape, const module *m, double *out) {
    const int32_t group = model->net.hp.n_heads / model->net.hp.n_kv_heads;
    for (int32_t layer = 0; layer < model->net.hp.n_layers; layer++) {
        const model_weight *w = &model->net.layers[layer].o;
        float *matrix = allocate((size_t)(w->n_in * w->n_out), sizeof(*matrix));
        for (int64_t row = 0; row < w->n_out; row++)
            kernel_dequantize(w->type, (const char *)w->data + row * kernel_row_bytes(w->type, w->n_in),
                              matrix + row * w->n_in, w->n_in);
        for (int32_t i = 0; i < model->net.hp.n_heads * m->n; i++) {
            const int32_t head = i / m->n, slot = i % m->n;
            double *score = &out[index_of(shape, m->n, model->net.layers[layer].states, head / group, slot)];
            const double weight = naive.relative[(int64_t)layer * model->net.hp.n_heads * m->n + i];
            *score = fmax(*score, weight * naive_added_norm(model, matrix, shape, m, layer, head, slot));
        }
        free(matrix);
    }
}

/* Scores of methods that need more than weights: [layer][KV head][slot]. */
static double *naive_scores[REDUCTION_N_METHODS];

static void score_others(const rp_model *model, const kv_shape *shape, const module *m) {
    const int32_t n = kv_shape_heads(shape) * m->n;
    naive_scores[REDUCTION_KVZIP_PLUS] = allocate((size_t)(shape->n_layers * n), sizeof(double));
    naive_plus(model, shape, m, naive_scores[REDUCTION_KVZIP_PLUS]);
    for (int i = REDUCTION_EXPECTED; i <= REDUCTION_COMPACTOR; i++) {
        naive_scores[i] = allocate((size_t)(shape->n_layers * n), sizeof(double));
        for (int32_t layer = 0; layer < shape->n_layers; layer++)
            (i == REDUCTION_EXPECTED ? naive_expected : naive_compactor)(model, shape, m, layer,
                                                                         naive_scores[i] + layer * n);
    }
}

/* The score of a slot of a head, as the method's paper has it. */
static double naive_score(reduction_method method, const kv_shape *shape, const module *m, int32_t layer,
                          int32_t kv_head, int32_t slot) {
    const double *repeated = naive.weights + index_of(shape, m->n, layer, kv_head, 0);
    switch (method) {
    case REDUCTION_KVZIP: return m->first + slot < 4 ? INFINITY : repeated[slot];
    case REDUCTION_KVZIP_PLUS:
        return m->first + slot < 4 ? INFINITY : naive_scores[method][index_of(shape, m->n, layer, kv_head, slot)];
    case REDUCTION_EXPECTED:
    case REDUCTION_COMPACTOR: return naive_scores[method][index_of(shape, m->n, layer, kv_head, slot)];
    case REDUCTION_N_METHODS: break;
    }
    return 0;
}

/* Heads [first, end): sorted by the reference's scores, the first ones are kept. Weights are floats or, in sums,
 * multiples of 2^-51, and the reference's are not: slots as near as that to the last kept score may be kept or not.
 * Returns how many differ so. */
static int check_heads(reduction_method method, const forward_run *r, const module *m, const kv_selection *s,
                       int32_t first, int32_t end, int32_t permille) {
    const kv_shape *shape = kv_pool_shape(r->pool);
    ranked *all = allocate((size_t)((end - first) * m->n), sizeof(*all));
    int32_t n = 0, n_kept = 0, n_differ = 0;
    for (int32_t head = first; head < end; head++)
        for (int32_t slot = 0; slot < m->n; slot++) {
            const int32_t layer = head / kv_shape_heads(shape), kv_head = head % kv_shape_heads(shape);
            n_kept += kv_selection_has(s, layer, kv_head, slot);
            if (!kv_span_has(m->spans[slot / KV_SPAN_TOKENS], layer, slot % KV_SPAN_TOKENS / KV_BLOCK_SLOTS)) {
                assert_false(kv_selection_has(s, layer, kv_head, slot));
                continue;
            }
            all[n++] = (ranked){naive_score(method, shape, m, layer, kv_head, slot), slot, head};
        }
    qsort(all, (size_t)n, sizeof(*all), compare_ranked);
    const int32_t n_expected = (n * permille + 999) / 1000;
    assert_int_equal(n_kept, n_expected);
    for (int32_t i = 0; i < n && n_expected > 0; i++) {
        const bool is_kept =
            kv_selection_has(s, all[i].head / kv_shape_heads(shape), all[i].head % kv_shape_heads(shape), all[i].slot);
        const double last = all[n_expected - 1].score;
        if (is_kept == (i < n_expected)) continue;
        n_differ += fabs(all[i].score) > 1e-14;
        if (!(fabs(all[i].score - last) <= 2e-4 * fabs(last) + 1e-14))
            fail_msg("%s: slot %d of head %d: %g, the last is %g", reduction_method_name(method), all[i].slot,
                     all[i].head, all[i].score, last);
    }
    free(all);
    return n_differ;
}

static bool is_same(const kv_selection *a, const kv_selection *b) {
    return memcmp(a->bits, b->bits, sizeof(*a->bits) * (size_t)(a->n_layers * a->n_kv_heads * kv_selection_words(a))) ==
           0;
}

/* Are all slots that the repetition attends to within the share? Out of the reach of windows are others. All methods
 * that score by its weights keep the same then. */
static bool keeps_all_weights(const kv_shape *shape, const module *m, int32_t permille) {
    const int32_t n_heads = shape->n_layers * kv_shape_heads(shape);
    int32_t n_there = 0, n_weights = 0;
    for (int32_t i = 0; i < n_heads * m->n; i++) {
        const int32_t layer = i / m->n / kv_shape_heads(shape), slot = i % m->n;
        n_there += kv_span_has(m->spans[slot / KV_SPAN_TOKENS], layer, slot % KV_SPAN_TOKENS / KV_BLOCK_SLOTS);
        n_weights += naive_score(REDUCTION_KVZIP, shape, m, layer, i / m->n % kv_shape_heads(shape), slot) > 0;
    }
    return n_weights <= (n_there * permille + 999) / 1000;
}

static void check_methods(const rp_model *model, const char *name, tiny_random *random) {
    static int32_t tokens[MOST_TOKENS], asking[5];
    const int32_t n = BASE_MIN(200 + (int32_t)tiny_random_below(random, 200), model->net.positions.data ? 120 : 400);
    const int32_t n_before = (int32_t)tiny_random_below(random, 2) * (1 + (int32_t)tiny_random_below(random, 40));
    forward_run run, other;
    module m, same;
    base_cpu_level level;
    rp_error err = {0};
    int n_differ = 0, n_all = 0;
    must(base_cpu_detect(&level, &err), &err);
    for (int32_t i = 0; i < n; i++) tokens[i] = (int32_t)tiny_random_below(random, (uint64_t)model->net.hp.n_vocab);
    for (int32_t i = 0; i < 5; i++) asking[i] = (int32_t)tiny_random_below(random, (uint64_t)model->net.hp.n_vocab);
    forward_run_open(&run, model, level, 2048, 13, 1);
    forward_run_open(&other, model, level, 2048, FORWARD_RUN_ROWS, 3);
    const kv_shape *shape = kv_pool_shape(run.pool);
    const int32_t n_heads = shape->n_layers * kv_shape_heads(shape);
    naive.weights = allocate((size_t)(n_heads * n), sizeof(double));
    naive.relative = allocate((size_t)(model->net.hp.n_layers * model->net.hp.n_heads * n), sizeof(double));
    naive.queries =
        allocate((size_t)(model->net.hp.n_layers * n * model->net.hp.n_heads * model->net.hp.key_dim), sizeof(double));
    naive.run = &run;
    naive.module = &m;
    naive.ops = *run.backend->ops;
    naive.attend = naive.ops.attend;
    naive.ops.attend = recording_attend;
    naive.study = *naive.ops.study;
    naive.observe_input = naive.study.observe_input;
    naive.study.observe_input = recording_observe_input;
    naive.ops.study = &naive.study;
    run.backend->ops = &naive.ops;
    open_module(&m, &run, tokens, n_before, n - n_before, asking, 5);
    open_module(&same, &other, tokens, n_before, n - n_before, asking, 5);
    for (int i = 0; i < 2; i++) read_elements(shape, &m, i);
    score_others(model, shape, &m);
    for (int share = 0; share < N_SHARES; share++) {
        kv_selection *chosen[REDUCTION_N_METHODS];
        const bool keeps_all = keeps_all_weights(shape, &m, shares[share]);
        for (int i = 0; i < REDUCTION_N_METHODS; i++) {
            const reduction_method method = (reduction_method)i;
            const int32_t step = method == REDUCTION_KVZIP || method == REDUCTION_KVZIP_PLUS ? n_heads : 1;
            kv_selection *again = select_slots(&other, &same, method, shares[share]);
            chosen[i] = select_slots(&run, &m, method, shares[share]);
            if (!is_same(chosen[i], again))
                fail_msg("%s: %s depends on steps or threads", name, reduction_method_name(method));
            kv_selection_free(again);
            for (int k = 0; k < i; k++)
                if (is_same(chosen[i], chosen[k]) &&
                    !(method == REDUCTION_KVZIP_PLUS && k == REDUCTION_KVZIP && keeps_all))
                    fail_msg("%s: %s chooses as %s does", name, reduction_method_name(method),
                             reduction_method_name((reduction_method)k));
            for (int32_t head = 0; head < n_heads; head += step)
                n_differ += check_heads(method, &run, &m, chosen[i], head, head + step, shares[share]);
            n_all += n_heads * m.n;
        }
        for (int i = 0; i < REDUCTION_N_METHODS; i++) kv_selection_free(chosen[i]);
    }
    assert_true(n_differ * 1000 <= n_all);
    close_module(&m);
    close_module(&same);
    forward_run_close(&run);
    forward_run_close(&other);
    free(naive.weights);
    for (int i = REDUCTION_KVZIP_PLUS; i <= REDUCTION_COMPACTOR; i++) free(naive_scores[i]);
    free(naive.relative);
    for (int i = 0; i < 2; i++) free(naive.elements[i]);
    free(naive.queries);
}

static void methods_choose_what_their_papers_say(void **state) {
    static const char *const names[] = {"llama", "gemma2", "gemma3", "gpt-oss", "bloom",
                                        "mpt", "gpt2", "mistral", "phi3-longrope"};
    golden *g = golden_open();
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        rp_error err = {0};
        rp_model *m;
        must(model_open(&m, golden_find(g, names[i])->path, NULL, &err), &err);
        check_methods(m, names[i], *state);
        model_close(m);
    }
    golden_close(g);
    for (int i = 0; i < ORACLE_SHAPES; i++) {
        oracle_model m;
        const char *chat;
        const tiny_model_shape shape = oracle_shape(i, &chat);
        if (shape.n_ctx < 1100) continue;
        oracle_model_open(&m, &shape, chat);
        check_methods(m.model, "made up", *state);
        oracle_model_close(&m);
    }
}

static void methods_have_names(void **state) {
    (void)state;
    reduction_method m;
    for (int i = 0; i < REDUCTION_N_METHODS; i++) {
        assert_true(reduction_method_parse(reduction_method_name((reduction_method)i), &m));
        assert_int_equal(m, i);
    }
    assert_false(reduction_method_parse("kvzap", &m));
}

/* ---- answers of the bundled model
   ------------------------------------------------------------------------------------ */

/* Those whose answers are exact: they are compared token by token. */
static const char *const tasks[] = {"facts-4", "facts-16", "distractor", "passkey", "pairs-16",
                                    "persona", "labels", "code-complete", "listing"};
#define N_TASKS ((int)BASE_ARRAY_LEN(tasks))

static struct {
    int n[N_TASKS], all[N_TASKS], right[REDUCTION_N_METHODS][N_SHARES][N_TASKS];
    double bytes[REDUCTION_N_METHODS][N_SHARES]; /* share of the full spans' */
} table;

/* Answers the question over the spans. */
static bool answer(forward_run *r, const eval_item *it, kv_span *before, kv_span *const *spans, int32_t n_spans,
                   float *logits) {
    rp_error err = {0};
    if (before) must(kv_context_add(&r->context, before, 0, NULL, &err), &err);
    for (int32_t i = 0; i < n_spans; i++) must(kv_context_add(&r->context, spans[i], 0, NULL, &err), &err);
    const int32_t n = it->n - 1 - it->n_document, rows = it->n - it->n_prompt;
    forward_run_feed(r, it->tokens + it->n_document, it->n_document, n, rows, logits);
    kv_context_clear(&r->context);
    return eval_is_right(it, logits, r->model->net.hp.n_vocab);
}

static uint64_t bytes_of(kv_span *const *spans, int32_t n_spans) {
    uint64_t bytes = 0;
    for (int32_t i = 0; i < n_spans; i++) bytes += kv_span_bytes(spans[i]);
    return bytes;
}

static void run_reduced(forward_run *r, const eval_item *it, const module *m, reduction_method method, int share,
                        int task, float *logits) {
    static const base_key key = {{2}};
    kv_span *spans[16];
    rp_error err = {0};
    kv_selection *s = select_slots(r, m, method, shares[share]);
    const int32_t n = kv_reduced_spans(s);
    for (int32_t i = 0; i < n; i++) {
        must(kv_span_reduce(&spans[i], (const kv_span *const *)m->spans, (size_t)m->n_spans, s, i, &err), &err);
        kv_span_seal(spans[i], &key);
    }
    table.right[method][share][task] += answer(r, it, m->before, spans, n, logits);
    table.bytes[method][share] += (double)bytes_of(spans, n) / (double)bytes_of(m->spans, m->n_spans);
    for (int32_t i = 0; i < n; i++) kv_span_unref(spans[i]);
    kv_selection_free(s);
}

static void print_row(const char *name, int32_t permille, const int *right, double bytes) {
    int sum = 0, n = 0;
    for (int t = 0; t < N_TASKS; t++) {
        sum += right[t];
        n += table.n[t];
    }
    printf("| %s | %.1f | %.1f | %.1f |", name, permille / 10.0, 100 * bytes, 100.0 * sum / n);
    for (int t = 0; t < N_TASKS; t++) printf(" %.0f |", 100.0 * right[t] / BASE_MAX(table.n[t], 1));
    printf("\n");
}

static int sum_of(const int right[N_TASKS]) {
    int sum = 0;
    for (int t = 0; t < N_TASKS; t++) sum += right[t];
    return sum;
}

static void documents_are_reduced_and_questions_answered(void **state) {
    (void)state;
    const int n = test_rounds(2);
    eval_item *items = allocate((size_t)n, sizeof(*items));
    char path[512];
    base_cpu_level level;
    forward_run run;
    rp_error err = {0};
    rp_model *model;
    int32_t n_asking, n_items = 0;
    must(base_cpu_detect(&level, &err), &err);
    must(rp_model_open(&model, eval_path(path, MODEL), NULL, &err), &err);
    forward_run_open(&run, model, level, 2048, FORWARD_RUN_ROWS, 1);
    int32_t *asking = eval_question_tokens(model, REPEAT, &n_asking);
    float *logits = allocate((size_t)(MOST_ROWS * model->net.hp.n_vocab), sizeof(float));
    for (int t = 0; t < N_TASKS; t++) {
        table.n[t] = eval_items_read(model, tasks[t], MOST_ROWS, items, n);
        n_items += table.n[t];
        for (int i = 0; i < table.n[t]; i++) {
            module m;
            const int32_t n_before = items[i].n_before;
            open_module(&m, &run, items[i].tokens, n_before, items[i].n_document - n_before, asking, n_asking);
            table.all[t] += answer(&run, &items[i], m.before, m.spans, m.n_spans, logits);
            for (int method = 0; method < REDUCTION_N_METHODS; method++)
                for (int share = 0; share < N_SHARES; share++)
                    run_reduced(&run, &items[i], &m, (reduction_method)method, share, t, logits);
            close_module(&m);
            eval_item_free(&items[i]);
        }
    }
    printf("| method | kept, %% | bytes, %% | right, %% |");
    for (int t = 0; t < N_TASKS; t++) printf(" %s |", tasks[t]);
    printf("\n");
    print_row("all slots", 1000, table.all, 1);
    for (int i = 0; i < REDUCTION_N_METHODS; i++)
        for (int k = 0; k < N_SHARES; k++)
            print_row(reduction_method_name((reduction_method)i), shares[k], table.right[i][k],
                      table.bytes[i][k] / n_items);
    for (int k = 0; k < N_SHARES; k++) {
        const int kvzip = sum_of(table.right[REDUCTION_KVZIP][k]);
        assert_true(sum_of(table.all) - kvzip <= (k < 2 ? 1 + n_items / 50 : 2 + n_items / 12));
        assert_true(kvzip > sum_of(table.right[REDUCTION_EXPECTED][k]));
    }
    rp_free(asking);
    free(items);
    free(logits);
    forward_run_close(&run);
    rp_model_close(model);
}

int main(void) {
    tiny_random random = {test_seed("test_reduction", 20261124)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(methods_have_names),
        cmocka_unit_test_prestate(methods_choose_what_their_papers_say, &random),
        cmocka_unit_test(documents_are_reduced_and_questions_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
