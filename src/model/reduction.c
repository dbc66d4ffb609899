/* SPDX-License-Identifier: Apache-2.0 */
/* reduction.c: see reduction.h. The scores of a layer are computed head by head, from weights, or from the decoded keys
 * and values of a head. Statistics of queries: reduction_queries.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/reduction_queries.h"

#define RESOLUTION_ROWS 32 /* weights are as fine as those of sums over so many rows (attention_observer_new) */

static const struct {
    const char *name;
    kv_selection_budget budget;
    bool repeats;
    attention_measure measure;
    bool needs_queries;
} methods[REDUCTION_N_METHODS] = {
#define X(NAME, name, budget, repeats, measure, queries) \
    {name, KV_BUDGET_##budget, repeats, ATTENTION_##measure, queries},
    REDUCTION_METHODS(X)
#undef X
};

const char *reduction_method_name(reduction_method m) {
    BASE_ASSERT((unsigned)m < REDUCTION_N_METHODS);
    return methods[m].name;
}
bool reduction_method_repeats(reduction_method m) { return methods[m].repeats; }
bool reduction_method_needs_queries(reduction_method m) { return methods[m].needs_queries; }

bool reduction_share_parse(const char *text, int32_t *permille) {
    int32_t n = 0, digits = 0;
    if (strcmp(text, "auto") == 0) {
        *permille = REDUCTION_AUTO;
        return true;
    }
    for (; *text >= '0' && *text <= '9' && digits < 3; text++, digits++) n = n * 10 + (*text - '0');
    if (digits == 0) return false;
    n *= 10;
    if (text[0] == '.' && text[1] >= '0' && text[1] <= '9') n += text[1] - '0', text += 2;
    *permille = n;
    return strcmp(text, "%") == 0 && n >= 1 && n <= REDUCTION_ALL;
}

char *reduction_share_text(int32_t permille, char out[REDUCTION_SHARE_BYTES]) {
    const int32_t whole = permille / 10, tenths = permille % 10;
    BASE_ASSERT(permille >= 0 && permille <= REDUCTION_AUTO);
    if (permille == REDUCTION_AUTO) snprintf(out, REDUCTION_SHARE_BYTES, "auto");
    else if (tenths) snprintf(out, REDUCTION_SHARE_BYTES, "%d.%d%%", (int)whole, (int)tenths);
    else snprintf(out, REDUCTION_SHARE_BYTES, "%d%%", (int)whole);
    return out;
}

bool reduction_method_parse(const char *name, reduction_method *out) {
    for (int i = 0; i < REDUCTION_N_METHODS; i++) {
        if (strcmp(name, methods[i].name) != 0) continue;
        *out = (reduction_method)i;
        return true;
    }
    return false;
}

int reduction_options_read(const char *share, const char *method, int32_t *permille, reduction_method *m,
                           rp_error *err) {
    if (share && !reduction_share_parse(share, permille))
        return base_fail(err, RP_ERR_INVALID, "keep_share '%.40s': %s", share, REDUCTION_SHARE_ADVICE);
    if (method && !reduction_method_parse(method, m))
        return base_fail(err, RP_ERR_INVALID, "keep_method '%.40s': give " REDUCTION_METHOD_NAMES, method);
    return RP_OK;
}

int reduction_observer_new(attention_observer **out, const rp_model *model, reduction_method m, size_t first_view,
                           size_t n_views, rp_error *err) {
    const model_hparams *hp = &model->net.hp;
    const attention_measure measure = methods[m].measure;
    const bool is_relative = measure == ATTENTION_RELATIVE;
    *out = NULL;
    if (!methods[m].repeats) return RP_OK;
    return attention_observer_new(out, is_relative ? hp->n_layers : model->n_kv_layers,
                                  is_relative ? hp->n_heads : hp->n_kv_heads, measure,
                                  (int64_t)RESOLUTION_ROWS * hp->n_heads, first_view, n_views, err);
}

/* ---- scores of one head, from what was observed ---- */

static double observed_weight(const reduction_run *run, int32_t layer, int32_t head, int32_t slot) {
    return attention_observer_weight(run->observer, layer, head, (size_t)(slot / KV_SPAN_TOKENS),
                                     slot % KV_SPAN_TOKENS);
}

/* Slots at the first positions of a context are kept by all heads. */
static void keep_first(const reduction_head *h, double *scores) {
    for (int32_t slot = 0; slot < h->n_slots && kv_span_position(h->run->spans[0]) + slot < REDUCTION_FIRST; slot++)
        scores[slot] = (double)INFINITY;
}

/* ---- all heads ---- */

/* The scores of a layer of KV: of all layers of the model that use it. norms: [query heads][slots]; values of all KV
   heads. */
static int score_plus(backend *b, reduction_head *h, double *norms, double *scores, rp_error *err) {
    const rp_model *model = h->run->model;
    const int32_t group = model->net.hp.n_heads / model->net.hp.n_kv_heads, n = h->n_slots;
    int rc = RP_OK;
    for (int32_t k = 0; k < model->net.hp.n_kv_heads && !rc; k++) {
        rc = b->ops->study->read_head(b, h->run->spans, h->run->n_spans, h->layer, k, false,
                                      h->values + (int64_t)k * n * h->value_dim, err);
        for (int32_t slot = 0; slot < n; slot++) scores[(int64_t)k * n + slot] = 0;
    }
    for (int32_t layer = 0; layer < model->net.hp.n_layers && !rc; layer++) {
        if (model->net.layers[layer].states != h->layer) continue;
        rc = b->ops->study->output_norms(b, layer, h->values, n, norms, err);
        for (int32_t head = 0; head < model->net.hp.n_heads && !rc; head++)
            for (int32_t slot = 0; slot < n; slot++) {
                double *score = &scores[(int64_t)(head / group) * n + slot];
                *score = fmax(*score, observed_weight(h->run, layer, head, slot) * norms[(int64_t)head * n + slot]);
            }
    }
    for (int32_t k = 0; k < model->net.hp.n_kv_heads; k++) keep_first(h, scores + (int64_t)k * n);
    return rc;
}

/* The scores of a layer: [KV head][slot]. */
static int score_layer(reduction_method m, backend *b, reduction_head *h, double *scores, rp_error *err) {
    const kv_shape *shape = kv_span_shape(h->run->spans[0]);
    const bool reads = methods[m].needs_queries;
    int rc = RP_OK;
    for (h->kv_head = 0; h->kv_head < kv_shape_heads(shape) && !rc; h->kv_head++) {
        double *own = scores + (int64_t)h->kv_head * h->n_slots;
        for (int is_key = 0; is_key < 2 && reads && !rc; is_key++)
            rc = b->ops->study->read_head(b, h->run->spans, h->run->n_spans, h->layer, h->kv_head, is_key,
                                          is_key ? h->keys : h->values, err);
        if (rc) break;
        switch (m) {
        case REDUCTION_KVZIP:
            for (int32_t slot = 0; slot < h->n_slots; slot++)
                own[slot] = observed_weight(h->run, h->layer, h->kv_head, slot);
            keep_first(h, own);
            break;
        case REDUCTION_KVZIP_PLUS: break; /* all heads at once: score_plus */
        case REDUCTION_EXPECTED: rc = reduction_score_expected(h, own, err); break;
        case REDUCTION_COMPACTOR: rc = reduction_score_compactor(h, own, err); break;
        case REDUCTION_N_METHODS: break;
        }
    }
    return rc;
}

/* As floats, without slots that are left out, and those of blocks out of a window's reach, which were freed. */
static void keep_scores(const reduction_head *h, int32_t n_kv_heads, const double *scores, float *out) {
    for (int32_t i = 0; i < n_kv_heads * h->n_slots; i++) {
        const int32_t slot = i % h->n_slots;
        const bool is_there = reduction_has(h, slot) && !(h->run->left_out && h->run->left_out[slot]);
        out[i] = is_there ? (float)scores[i] : -INFINITY;
    }
}

static int score_all(reduction_method m, backend *b, reduction_head *h, float *out, rp_error *err) {
    const kv_shape *shape = kv_span_shape(h->run->spans[0]);
    const size_t n = (size_t)kv_shape_heads(shape) * (size_t)h->n_slots;
    size_t n_doubles = n; /* of a layer: [KV heads][slots] of scores, and of leverages or, of query heads, norms */
    if (m == REDUCTION_KVZIP_PLUS) n_doubles += (size_t)h->run->model->net.hp.n_heads * (size_t)h->n_slots;
    if (m == REDUCTION_COMPACTOR) n_doubles += n;
    const size_t n_values = (size_t)shape->layers[0].value_dim * (m == REDUCTION_KVZIP_PLUS ? n : (size_t)h->n_slots);
    const size_t n_keys = (size_t)shape->layers[0].key_dim * (size_t)h->n_slots;
    const size_t bytes = n_doubles * sizeof(double) + (n_keys + n_values) * sizeof(float);
    double *scores = base_alloc(bytes);
    if (!scores) return base_fail_memory(err, bytes, "scores of slots");
    h->leverages = m == REDUCTION_COMPACTOR ? scores + n : NULL;
    h->keys = (float *)(scores + n_doubles);
    h->values = h->keys + n_keys;
    int rc = RP_OK;
    for (h->layer = 0; h->layer < shape->n_layers && !rc; h->layer++) {
        rc = m == REDUCTION_KVZIP_PLUS ? score_plus(b, h, scores + n, scores, err) : score_layer(m, b, h, scores, err);
        if (m == REDUCTION_COMPACTOR && !rc) reduction_blend_compactor(h, kv_shape_heads(shape), scores);
        if (!rc) keep_scores(h, kv_shape_heads(shape), scores, out + (size_t)h->layer * n);
    }
    base_free(scores);
    return rc;
}

static int32_t slots_of(const reduction_run *run) {
    BASE_ASSERT(run->n_spans > 0);
    return kv_span_end(run->spans[run->n_spans - 1]) - kv_span_position(run->spans[0]);
}

int reduction_score(float **out, backend *b, reduction_method m, const reduction_run *run, rp_error *err) {
    const kv_shape *shape = kv_span_shape(run->spans[0]);
    reduction_head h = {.run = run,
                        .n_slots = slots_of(run),
                        .key_dim = shape->layers[0].key_dim,
                        .value_dim = shape->layers[0].value_dim};
    const size_t bytes = sizeof(float) * (size_t)shape->n_layers * (size_t)kv_shape_heads(shape) * (size_t)h.n_slots;
    float *scores = *out = base_alloc(bytes);
    if (!scores) return base_fail_memory(err, bytes, "scores of slots");
    BASE_ASSERT(run->observer != NULL || !methods[m].repeats);
    BASE_ASSERT(!run->observer || run->observer->n_views == run->n_spans);
    BASE_ASSERT(run->queries != NULL || !methods[m].needs_queries);
    const int rc = score_all(m, b, &h, scores, err);
    if (rc) {
        base_free(scores);
        *out = NULL;
    }
    return rc;
}

int reduction_select_scored(kv_selection **out, reduction_method m, int32_t permille, const reduction_run *run,
                            const float *scores, rp_error *err) {
    const kv_shape *shape = kv_span_shape(run->spans[0]);
    const int rc = kv_selection_new(out, shape->n_layers, kv_shape_heads(shape), slots_of(run), err);
    if (!rc) kv_selection_highest(*out, scores, methods[m].budget, permille);
    return rc;
}

int reduction_select(kv_selection **out, backend *b, reduction_method m, int32_t permille, const reduction_run *run,
                     rp_error *err) {
    float *scores;
    *out = NULL;
    int rc = reduction_score(&scores, b, m, run, err);
    if (rc) return rc;
    rc = reduction_select_scored(out, m, permille, run, scores, err);
    base_free(scores);
    return rc;
}
