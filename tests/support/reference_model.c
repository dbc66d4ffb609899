/* SPDX-License-Identifier: Apache-2.0 */
/* reference_model.c: the slow, obvious transformer: every token's keys and values, and one token's pass through the
 * layers. Does not own attention lists (reference.c). Threads: none.
 */
#include "reference_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "reference_layers.h"
#include "reference_weights.h"

/* One token's keys and values in every layer, un-rotated. */
typedef struct token_kv {
    double *keys, *values; /* [layer][kv head][dim] */
    double *index;         /* [layer][index_dim] */
} token_kv;

struct reference_kv {
    const reference_model *m;
    token_kv *tokens;
    int32_t n, cap;
    reference_angles angles[2]; /* of the model's ropes */
    double margin;              /* of the closest choice of experts, or of an indexer, so far */
    bool *chosen;               /* [cap]: the tokens that the last indexer chose */
};

/* The attention list of one token in a layer. */
typedef struct sight_list {
    const reference_sight *list;
    size_t n;
} sight_list;

void *reference_alloc(size_t n, size_t bytes) {
    void *p = calloc(n ? n : 1, bytes);
    if (!p) {
        fprintf(stderr, "reference: out of memory\n");
        abort();
    }
    return p;
}

static double *doubles(int32_t n) { return reference_alloc((size_t)n, sizeof(double)); }

/* ---- the model ------------------------------------------------------------------------------------------------- */

int reference_model_open(reference_model **out, const gguf_file *f, int32_t n_ctx, rp_error *err) {
    reference_model *m = reference_alloc(1, sizeof *m);
    reference_opening o = {.f = f, .m = m, .err = err};
    m->n_ctx = n_ctx;
    reference_read_keys(&o);
    if (!o.rc) reference_read_ropes(&o);
    if (!o.rc) reference_read_weights(&o);
    if (o.rc) {
        reference_model_close(m);
        m = NULL;
    }
    *out = m;
    return o.rc;
}

void reference_model_close(reference_model *m) {
    if (!m) return;
    for (size_t i = 0; i < m->n_owned; i++) free(m->owned[i]);
    for (int i = 0; i < 2; i++) free(m->ropes[i].frequencies);
    free(m->owned);
    free(m->layers);
    free(m);
}

int32_t reference_model_n_vocab(const reference_model *m) { return m->n_vocab; }

int32_t reference_model_n_positions(const reference_model *m) { return m->n_positions; }

/* ---- KV -------------------------------------------------------------------------------------------------------- */

reference_kv *reference_kv_new(const reference_model *m) {
    reference_kv *s = reference_alloc(1, sizeof *s);
    s->m = m;
    s->margin = INFINITY;
    return s;
}

void reference_kv_free(reference_kv *s) {
    if (!s) return;
    for (int32_t i = 0; i < s->n; i++) {
        free(s->tokens[i].keys);
        free(s->tokens[i].values);
        free(s->tokens[i].index);
    }
    for (int i = 0; i < 2; i++) reference_angles_free(&s->angles[i]);
    free(s->tokens);
    free(s->chosen);
    free(s);
}

int32_t reference_kv_count(const reference_kv *s) { return s->n; }

double reference_kv_margin(const reference_kv *s) { return s->margin; }

static void new_token(reference_kv *s) {
    if (s->n == s->cap) {
        token_kv *more = reference_alloc(2 * (size_t)s->cap + 64, sizeof *more);
        if (s->n) memcpy(more, s->tokens, (size_t)s->n * sizeof *more);
        free(s->tokens);
        s->tokens = more;
        s->cap = 2 * s->cap + 64;
        free(s->chosen);
        s->chosen = reference_alloc((size_t)s->cap, sizeof *s->chosen);
    }
    token_kv *t = &s->tokens[s->n++];
    t->keys = doubles(s->m->n_layers * s->m->n_kv_heads * s->m->key_dim);
    t->values = doubles(s->m->n_layers * s->m->n_kv_heads * s->m->value_dim);
    t->index = doubles(s->m->n_layers * s->m->index_dim);
}

static double *keys_of(const reference_kv *s, int32_t token, int32_t layer, int32_t head) {
    return s->tokens[token].keys + layer * s->m->n_kv_heads * s->m->key_dim + head * s->m->layers[layer].key_dim;
}

static double *values_of(const reference_kv *s, int32_t token, int32_t layer, int32_t head) {
    return s->tokens[token].values + layer * s->m->n_kv_heads * s->m->value_dim + head * s->m->layers[layer].value_dim;
}

/* ---- attention ------------------------------------------------------------------------------------------------- */

static double product(reference_kv *s, const reference_layer *l, const double *q, const double *k, int32_t distance) {
    double sum = 0;
    if (l->rope) {
        reference_angles *a = &s->angles[l->rope - s->m->ropes];
        return reference_rope_dot(l->rope, reference_angles_at(a, l->rope, distance), q, k, l->key_dim);
    }
    for (int32_t d = 0; d < l->key_dim; d++) sum += q[d] * k[d];
    return sum;
}

/* A head's query or key at a position, normed after its rotation. */
static void norm_rotated(reference_kv *s, const reference_layer *l, const reference_norm *norm, int32_t position,
                         double *x) {
    const reference_model *m = s->m;
    double squares = 0;
    reference_rope_turn(l->rope, reference_angles_at(&s->angles[l->rope - m->ropes], l->rope, position), x);
    if (norm->w) {
        reference_normalise(m, norm, x, m->key_dim);
        return;
    }
    for (int32_t d = 0; d < m->key_dim; d++) squares += x[d] * x[d] / m->key_dim;
    for (int32_t d = 0; d < m->key_dim; d++) x[d] /= sqrt(squares + m->eps);
}

/* The product of a query and a key that are normed after their rotation. */
static double product_normed(reference_kv *s, const reference_layer *l, const double *q, const double *k,
                             int32_t position, int32_t distance) {
    const size_t n = (size_t)s->m->key_dim;
    double *both = doubles(2 * s->m->key_dim), sum = 0;
    memcpy(both, q, n * sizeof *q);
    memcpy(both + n, k, n * sizeof *k);
    norm_rotated(s, l, &l->q_norm, position, both);
    norm_rotated(s, l, &l->k_norm, position - distance, both + n);
    for (size_t d = 0; d < n; d++) sum += both[d] * both[n + d];
    free(both);
    return sum;
}

/* One head: the attention output of its query. p: scratch, one number for each token of the list. */
static void attend(reference_kv *s, const reference_layer *l, int32_t head, int32_t position, const double *q,
                   sight_list seen, double *p, double *out) {
    const reference_model *m = s->m;
    const int32_t kv_head = head / (m->n_heads / l->n_kv_heads);
    for (size_t i = 0; i < seen.n; i++) {
        const reference_sight *t = &seen.list[i];
        const double *k = keys_of(s, t->token, l->states_of, kv_head);
        double score = m->score_scale * (l->norms_rotated ? product_normed(s, l, q, k, position, t->distance)
                                                          : product(s, l, q, k, t->distance));
        p[i] = reference_soft_cap(score, m->score_cap) - reference_alibi_slope(m, head) * t->distance;
    }
    reference_softmax(p, seen.n, l->sinks ? &l->sinks[head] : NULL);
    for (int32_t d = 0; d < l->value_dim; d++) out[d] = 0;
    for (size_t i = 0; i < seen.n; i++) {
        const double *v = values_of(s, seen.list[i].token, l->states_of, kv_head);
        for (int32_t d = 0; d < l->value_dim; d++) out[d] += p[i] * v[d];
    }
}

static void clip(const reference_model *m, double *x, int32_t n) {
    for (int32_t i = 0; i < n && m->clamp > 0; i++) x[i] = fmin(fmax(x[i], -m->clamp), m->clamp);
}

/* A row of q, k or v: product, clip, norm. A layer without this matrix leaves y alone. */
static void project(const reference_model *m, const reference_linear *w, const reference_norm *norm, const double *x,
                    double *y) {
    if (!w->w) return;
    reference_apply(w, x, y);
    clip(m, y, w->n_out);
    reference_normalise(m, norm, y, w->n_out);
}

/* The entries within a layer's window, or in the token's chunk. The caller frees the list. */
static sight_list within(const reference_model *m, const reference_layer *l, int32_t position, sight_list all) {
    sight_list some = {0};
    reference_sight *list = reference_alloc(all.n, sizeof *list);
    for (size_t i = 0; i < all.n; i++) {
        const int32_t distance = all.list[i].distance;
        const bool sees = l->window == 0          ? true
                          : m->family->chunk == 0 ? distance < l->window
                                                  : (position - distance) / l->window == position / l->window;
        if (sees) list[some.n++] = all.list[i];
    }
    some.list = list;
    return some;
}

/* Latent attention: keys and values of every head from the latent vector of the token. A key's rotated part is first
   here. */
static void expand_latent(reference_kv *s, int32_t i, const double *x) {
    const reference_model *m = s->m;
    const reference_layer *l = &m->layers[i];
    const int32_t n = m->n_latent, plain = m->key_dim - m->n_rotated;
    double *latent = doubles(n + m->n_rotated);
    reference_apply(&l->latent_kv, x, latent);
    reference_normalise(m, &l->latent_norm, latent, n);
    for (int32_t h = 0; h < m->n_heads; h++) {
        double *k = keys_of(s, s->n - 1, i, h), *v = values_of(s, s->n - 1, i, h);
        for (int32_t d = 0; d < m->n_rotated; d++) k[d] = latent[n + d];
        for (int32_t d = 0; d < plain; d++)
            for (int32_t c = 0; c < n; c++) k[m->n_rotated + d] += l->latent_keys[(h * n + c) * plain + d] * latent[c];
        for (int32_t d = 0; d < m->value_dim; d++)
            for (int32_t c = 0; c < n; c++) v[d] += l->latent_values[(h * m->value_dim + d) * n + c] * latent[c];
    }
    free(latent);
}

/* Queries of latent attention; their rotated part, last in the file, is first here. */
static void project_latent_queries(const reference_model *m, const reference_layer *l, const double *x, double *q) {
    double *latent = doubles(l->q_latent.w ? l->q_latent.n_out : 1), *raw = doubles(m->n_heads * m->key_dim);
    if (l->q_latent.w) project(m, &l->q_latent, &l->q_latent_norm, x, latent);
    project(m, &l->q, &(reference_norm){0}, l->q_latent.w ? latent : x, raw);
    for (int32_t i = 0; i < m->n_heads * m->key_dim; i++) {
        const int32_t d = i % m->key_dim, plain = m->key_dim - m->n_rotated;
        q[i - d + (d < plain ? d + m->n_rotated : d - plain)] = raw[i];
    }
    free(raw);
    free(latent);
}

/* (x - mean) / deviation, times weights, plus biases */
static void norm_index_key(const reference_layer *l, double *x, int32_t n) {
    double mean = 0, squares = 0;
    for (int32_t d = 0; d < n; d++) mean += x[d] / n;
    for (int32_t d = 0; d < n; d++) squares += (x[d] - mean) * (x[d] - mean) / n;
    for (int32_t d = 0; d < n; d++) x[d] = (x[d] - mean) / sqrt(squares + 1e-6) * l->index_norm[d] + l->index_bias[d];
}

/* Chooses the tokens of a list with the highest scores, the first of equal ones. */
static void choose_highest(reference_kv *s, const double *scores, sight_list seen) {
    double least = INFINITY, other = -INFINITY, most = 0;
    for (int32_t k = 0; k < s->m->n_index_chosen && (size_t)k < seen.n; k++) {
        size_t best = seen.n;
        for (size_t i = 0; i < seen.n; i++)
            if (!s->chosen[seen.list[i].token] && (best == seen.n || scores[i] > scores[best])) best = i;
        s->chosen[seen.list[best].token] = true;
        least = scores[best];
    }
    for (size_t i = 0; i < seen.n; i++) {
        most = fmax(most, fabs(scores[i]));
        if (!s->chosen[seen.list[i].token]) other = fmax(other, scores[i]);
    }
    /* of equal scores, as those of tokens that no head weighs, the order decides */
    if ((size_t)s->m->n_index_chosen < seen.n && least > other) s->margin = fmin(s->margin, (least - other) / most);
}

/* The indexer of a layer: stores the last token's key and chooses from a list. */
static void run_indexer(reference_kv *s, int32_t layer, const double *x, sight_list seen) {
    const reference_model *m = s->m;
    const reference_layer *l = &m->layers[layer];
    double *latent = doubles(l->q_latent.n_out), *q = doubles(l->index_q.n_out), *weights = doubles(m->n_index_heads),
           *scores = doubles((int32_t)seen.n), *key = s->tokens[s->n - 1].index + layer * m->index_dim;
    project(m, &l->q_latent, &l->q_latent_norm, x, latent);
    reference_apply(&l->index_q, latent, q);
    reference_apply(&l->index_weights, x, weights);
    reference_apply(&l->index_k, x, key);
    norm_index_key(l, key, m->index_dim);
    for (size_t i = 0; i < seen.n; i++) {
        const double *cs = reference_angles_at(&s->angles[0], &m->index_rope, seen.list[i].distance);
        const double *k = s->tokens[seen.list[i].token].index + layer * m->index_dim;
        for (int32_t h = 0; h < m->n_index_heads; h++)
            scores[i] += weights[h] / sqrt(m->n_index_heads) *
                         fmax(0, reference_rope_dot(&m->index_rope, cs, q + h * m->index_dim, k, m->index_dim)) /
                         sqrt(m->index_dim);
    }
    memset(s->chosen, 0, (size_t)s->n * sizeof *s->chosen);
    choose_highest(s, scores, seen);
    free(scores);
    free(weights);
    free(q);
    free(latent);
}

/* Leaves those that the last indexer chose. */
static sight_list chosen_of(const reference_kv *s, sight_list all) {
    sight_list some = {0};
    reference_sight *list = reference_alloc(all.n, sizeof *list);
    for (size_t i = 0; i < all.n; i++)
        if (s->chosen[all.list[i].token]) list[some.n++] = all.list[i];
    some.list = list;
    free((void *)all.list);
    return some;
}

static void attention(reference_kv *s, int32_t i, int32_t position, const double *x, sight_list all, double *y) {
    const reference_model *m = s->m;
    const reference_layer *l = &m->layers[i];
    sight_list seen = within(m, l, position, all);
    if (l->index_k.w) run_indexer(s, i, x, seen);
    if (m->n_index_chosen > 0) seen = chosen_of(s, seen);
    const reference_norm none = {0}, *q_norm = l->norms_rotated ? &none : &l->q_norm,
                         *k_norm = l->norms_rotated ? &none : &l->k_norm;
    double *q = doubles(m->n_heads * m->key_dim), *mix = doubles(m->n_heads * m->value_dim),
           *p = doubles((int32_t)seen.n);
    if (m->n_latent > 0) {
        project_latent_queries(m, l, x, q);
        expand_latent(s, i, x);
    } else project(m, &l->q, q_norm, x, q);
    const int32_t tempered_at = position + (m->family->chunk > 0); /* counted from 1 there */
    for (int32_t d = 0; d < m->n_heads * l->key_dim && l->tempered; d++)
        q[d] *= 1 + m->temperature * log(1 + floor(tempered_at / m->temperature_length));
    project(m, &l->k, k_norm, x, keys_of(s, s->n - 1, i, 0));
    project(m, &l->v, &l->v_norm, x, values_of(s, s->n - 1, i, 0));
    for (int32_t h = 0; h < m->n_heads; h++)
        attend(s, l, h, position, q + h * l->key_dim, seen, p, mix + h * l->value_dim);
    if (l->gate.w) {
        double *gate = doubles(m->n_heads * l->value_dim);
        reference_apply(&l->gate, x, gate);
        for (int32_t d = 0; d < m->n_heads * l->value_dim; d++) mix[d] *= reference_sigmoid(gate[d]);
        free(gate);
    }
    reference_apply(&l->o, mix, y);
    free(p);
    free(mix);
    free(q);
    free((void *)seen.list);
}

/* ---- one token ------------------------------------------------------------------------------------------------- */

static void add(const reference_model *m, double *x, const double *y) {
    for (int32_t d = 0; d < m->n_embd; d++) x[d] += m->residual_scale * y[d];
}

/* normed = norm(x) */
static void norm_of(const reference_model *m, const reference_norm *norm, const double *x, double *normed) {
    memcpy(normed, x, (size_t)m->n_embd * sizeof *x);
    reference_normalise(m, norm, normed, m->n_embd);
}

/* y = what the layer makes of its part of extra, the token's embeddings of all layers */
static void make_embedding(const reference_model *m, int32_t i, const double *extra, const double *x, double *y) {
    const reference_layer *l = &m->layers[i];
    double *gate = doubles(m->n_layer_embd);
    reference_apply(&l->embedding_gate, x, gate);
    for (int32_t d = 0; d < m->n_layer_embd; d++)
        gate[d] = reference_activate(m, gate[d]) * extra[i * m->n_layer_embd + d];
    reference_apply(&l->embedding_up, gate, y);
    reference_normalise(m, &l->embedding_norm, y, m->n_embd);
    free(gate);
}

/* in + norm(b a in) */
static void laurel(const reference_model *m, const reference_layer *l, const double *in, double *y) {
    double *inner = doubles(l->laurel_a.n_out);
    reference_apply(&l->laurel_a, in, inner);
    reference_apply(&l->laurel_b, inner, y);
    reference_normalise(m, &l->laurel_norm, y, m->n_embd);
    for (int32_t d = 0; d < m->n_embd; d++) y[d] += in[d];
    free(inner);
}

/* x += attention, x += mlp; parallel layers give both the same x, and the same norm unless the mlp has its own. */
static void run_single(reference_kv *s, int32_t i, int32_t position, const double *extra, double *x, sight_list all) {
    const reference_model *m = s->m;
    const reference_layer *l = &m->layers[i];
    double *normed = doubles(m->n_embd), *y = doubles(m->n_embd), *before = doubles(m->n_embd),
           *beside = doubles(m->n_embd);
    memcpy(before, x, (size_t)m->n_embd * sizeof *x);
    norm_of(m, &l->attn_norm, x, normed);
    attention(s, i, position, normed, all, y);
    reference_normalise(m, &l->post_attn_norm, y, m->n_embd);
    add(m, x, y);
    if (l->laurel_a.w) laurel(m, l, normed, beside);
    for (int32_t d = 0; d < m->n_embd && l->laurel_a.w; d++) x[d] = (x[d] + beside[d]) / sqrt(2);
    if (!l->parallel || l->mlp_norm.w) norm_of(m, &l->mlp_norm, l->parallel ? before : x, normed);
    s->margin = fmin(s->margin, reference_mlp_apply(m, l, x, normed, y));
    reference_normalise(m, &l->post_mlp_norm, y, m->n_embd);
    add(m, x, y);
    if (l->embedding_gate.w && m->n_streams == 0) {
        make_embedding(m, i, extra, x, y);
        add(m, x, y);
    }
    for (int32_t d = 0; d < m->n_embd && l->factor; d++) x[d] *= *l->factor;
    free(beside);
    free(before);
    free(y);
    free(normed);
}

/* Coefficients of the streams: matrix tanh(router(norm(x) / n_embd)). The caller frees them. */
static double *coefficients(const reference_model *m, const reference_layer *l, const reference_linear *matrix,
                            const double *x) {
    double *in = doubles(m->n_embd), *routed = doubles(m->n_streams), *c = doubles(matrix->n_out);
    norm_of(m, &l->altup_norm, x, in);
    for (int32_t d = 0; d < m->n_embd; d++) in[d] /= m->n_embd;
    reference_apply(&l->altup_router, in, routed);
    for (int32_t k = 0; k < m->n_streams; k++) routed[k] = tanh(routed[k]);
    reference_apply(matrix, routed, c);
    free(routed);
    free(in);
    return c;
}

/* x: the streams, [n_streams][n_embd]. Each is predicted from all; the layer computes from the first prediction; what
 * it changes corrects every one. */
static void run_streams(reference_kv *s, int32_t i, int32_t position, const double *extra, double *x, sight_list all) {
    const reference_model *m = s->m;
    const reference_layer *l = &m->layers[i];
    const int32_t n = m->n_streams, width = m->n_embd;
    double *predicted = doubles(n * width), *active = doubles(width), *y = doubles(width);
    double *c = coefficients(m, l, &l->altup_predict, x);
    for (int32_t k = 0; k < n * width; k++) {
        predicted[k] = x[k];
        for (int32_t j = 0; j < n; j++) predicted[k] += c[k / width * n + j] * x[j * width + k % width];
    }
    memcpy(active, predicted, (size_t)width * sizeof *active);
    run_single(s, i, position, extra, active, all);
    double *corrections = coefficients(m, l, &l->altup_correct, active);
    for (int32_t k = 0; k < n * width; k++)
        x[k] = predicted[k] + (1 + corrections[k / width]) * (active[k % width] - predicted[k % width]);
    for (int32_t d = 0; d < width; d++) active[d] = x[d] * l->altup_scale[d];
    make_embedding(m, i, extra, active, y);
    for (int32_t k = width; k < n * width; k++) x[k] += y[k % width];
    free(corrections);
    free(c);
    free(y);
    free(active);
    free(predicted);
}

static void run_layer(reference_kv *s, int32_t i, int32_t position, const double *extra, double *x, sight_list all) {
    if (s->m->n_streams > 0) run_streams(s, i, position, extra, x, all);
    else run_single(s, i, position, extra, x, all);
}

/* y = matrix k of a stack times x, in the magnitude of like */
static void project_stream(const reference_model *m, const reference_linear *stack, int32_t k, const double *x,
                           const double *like, double *y) {
    const reference_linear one = reference_matrix_of(stack, k);
    double wanted = 0, is = 0;
    reference_apply(&one, x, y);
    for (int32_t d = 0; d < m->n_embd; d++) wanted += like[d] * like[d] / m->n_embd, is += y[d] * y[d] / m->n_embd;
    for (int32_t d = 0; d < m->n_embd; d++) y[d] *= sqrt(wanted / fmax(is, 1e-5));
}

/* The mean of the first stream and of projections of the others, in its place. */
static void join_streams(const reference_model *m, double *x) {
    double *y = doubles(m->n_embd), *sum = doubles(m->n_embd);
    memcpy(sum, x, (size_t)m->n_embd * sizeof *sum);
    for (int32_t k = 1; k < m->n_streams; k++) {
        project_stream(m, &m->streams_out, k - 1, x + k * m->n_embd, x, y);
        for (int32_t d = 0; d < m->n_embd; d++) sum[d] += y[d];
    }
    for (int32_t d = 0; d < m->n_embd && m->n_streams > 0; d++) x[d] = sum[d] / m->n_streams;
    free(sum);
    free(y);
}

static void embed(const reference_model *m, int32_t id, int32_t position, double *x) {
    if (m->positions && position >= m->n_positions) {
        fprintf(stderr, "reference: position %d of %d learned ones\n", position, m->n_positions);
        abort();
    }
    for (int32_t d = 0; d < m->n_embd; d++) {
        x[d] = m->embedding_scale * m->embedding[(size_t)id * (size_t)m->n_embd + (size_t)d];
        if (m->positions) x[d] += m->positions[(size_t)position * (size_t)m->n_embd + (size_t)d];
    }
    reference_normalise(m, &m->embedding_norm, x, m->n_embd);
}

/* The embeddings of all layers: the projection of x, normed, plus the token's own, times 1 / sqrt(2). */
static double *embed_layers(const reference_model *m, int32_t id, const double *x) {
    const int32_t n = m->n_layers * m->n_layer_embd;
    double *extra = doubles(n);
    if (n == 0) return extra;
    reference_apply(&m->layer_projection, x, extra);
    for (int32_t d = 0; d < n; d++) extra[d] /= sqrt(m->n_embd);
    reference_normalise(m, &m->layer_norm_of_projection, extra, n);
    const float *own = m->layer_embeddings + (size_t)id * (size_t)n;
    for (int32_t d = 0; d < n; d++) extra[d] = (extra[d] + sqrt(m->n_layer_embd) * own[d]) / sqrt(2);
    return extra;
}

static void unembed(const reference_model *m, double *x, float *logits) {
    double *y = doubles(m->n_vocab);
    reference_normalise(m, &m->output_norm, x, m->n_embd);
    reference_apply(&m->output, x, y);
    for (int32_t i = 0; i < m->n_vocab; i++) logits[i] = (float)reference_soft_cap(m->logit_scale * y[i], m->logit_cap);
    free(y);
}

void reference_kv_add(reference_kv *s, int32_t id, int32_t position, const reference_sight *sights, size_t n_sights,
                      float *logits) {
    const reference_model *m = s->m;
    reference_sight *all = reference_alloc(n_sights + 1, sizeof *all);
    double *x = doubles(m->n_embd * (m->n_streams + 1));
    if (n_sights) memcpy(all, sights, n_sights * sizeof *all);
    all[n_sights] = (reference_sight){.token = s->n, .distance = 0};
    new_token(s);
    embed(m, id, position, x);
    double *extra = embed_layers(m, id, x);
    for (int32_t k = 1; k < m->n_streams; k++) project_stream(m, &m->streams_in, k - 1, x, x, x + k * m->n_embd);
    for (int32_t i = 0; i < m->n_layers; i++) run_layer(s, i, position, extra, x, (sight_list){all, n_sights + 1});
    join_streams(m, x);
    if (logits) unembed(m, x, logits);
    free(extra);
    free(x);
    free(all);
}
