/* SPDX-License-Identifier: Apache-2.0 */
/* sequence_methods.c: see sequence_methods.h. Scores are computed head by head, then the highest are kept: of a head, of a
 * head with its layer's budget, or of all heads. */
#include "model/sequence_methods.h"

#include <math.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/reduction.h"

typedef enum sequence_budget { BUDGET_ALL,
                               BUDGET_LAYER,
                               BUDGET_HEAD } sequence_budget;

static const struct {
    const char *name;
    int32_t rows, pool;
    sequence_budget budget;
} methods[SEQUENCE_N_METHODS] = {
#define X(NAME, name, rows, pool, budget) {name, rows, pool, BUDGET_##budget},
    SEQUENCE_METHODS(X)
#undef X
};

const char *sequence_method_name(sequence_method m) { return methods[m].name; }
int32_t sequence_method_rows(sequence_method m) { return methods[m].rows; }

bool sequence_method_parse(const char *name, sequence_method *out) {
    for (int i = 0; i < SEQUENCE_N_METHODS; i++) {
        if (strcmp(name, methods[i].name) != 0) continue;
        *out = (sequence_method)i;
        return true;
    }
    return false;
}

/* ---- scores of one head ---- */

typedef struct head {
    const sequence_slots *in;
    sequence_method method;
    int32_t mean, layer, kv_head, window;
    double *weights; /* [n] scratch */
} head;

static double weight_of(const head *h, int32_t kv_head, int32_t i) {
    const sequence_slot *s = &h->in->slots[i];
    return attention_observer_weight(h->in->observer, h->layer, kv_head, (size_t)s->view, s->slot);
}

/* Does a row at position pos see the slot in this layer? */
static bool sees(const head *h, int32_t pos, const sequence_slot *s) { return s->pos <= pos && (h->window == 0 || pos - s->pos < h->window); }

/* The last observed rows, as far as half of the budget goes, are kept whatever their weights; the others get the highest
 * weight of their neighbours, without the kept ones. */
static void score_by_window(const head *h, float *scores) {
    const sequence_slots *in = h->in;
    const int32_t radius = methods[h->method].pool / 2, n_recent = BASE_MIN(in->n_rows, h->mean / 2);
    const int32_t *recent = in->rows + in->n_rows - n_recent;
    int32_t n = 0;
    for (int32_t i = 0, row = 0; i < in->n; i++) {
        while (row < n_recent && recent[row] < in->slots[i].pos) row++;
        const bool is_recent = row < n_recent && recent[row] == in->slots[i].pos;
        scores[i] = is_recent ? INFINITY : 0;
        if (!is_recent) h->weights[n++] = weight_of(h, h->kv_head, i);
    }
    for (int32_t i = 0, k = 0; i < in->n; i++) {
        double highest = 0;
        if (scores[i] > 0) continue;
        for (int32_t j = BASE_MAX(k - radius, 0); j <= k + radius && j < n; j++) highest = fmax(highest, h->weights[j]);
        scores[i] = (float)highest;
        k++;
    }
}

/* Rows that could see each slot: those at its position or after it, and within the window. */
static void score_h2o(const head *h, float *scores) {
    const sequence_slots *in = h->in;
    const int32_t first_recent = in->n - h->mean / 2;
    for (int32_t i = 0, begin = 0, end = 0; i < in->n; i++) {
        const int32_t pos = in->slots[i].pos;
        while (begin < in->n_rows && in->rows[begin] < pos) begin++;
        while (end < in->n_rows && (h->window == 0 || in->rows[end] - pos < h->window)) end++;
        scores[i] = i >= first_recent ? INFINITY : (float)(weight_of(h, h->kv_head, i) / BASE_MAX(end - begin, 1));
    }
}

static void score_ends(const head *h, float *scores) {
    for (int32_t i = 0; i < h->in->n; i++) scores[i] = i < REDUCTION_FIRST ? INFINITY : (float)i;
}

static void score_tova(const head *h, float *scores) {
    for (int32_t i = 0; i < h->in->n; i++) {
        double sum = 0;
        for (int32_t kv_head = 0; kv_head < h->in->shape->n_kv_heads; kv_head++) sum += weight_of(h, kv_head, i);
        scores[i] = (float)sum;
    }
}

/* Returns the number of slots that the first later row sees; the others get no score. */
static int32_t score_head(const head *h, float *scores) {
    int32_t n = 0;
    switch (h->method) {
    case SEQUENCE_SNAPKV:
    case SEQUENCE_SNAPKV_PAPER:
    case SEQUENCE_PYRAMIDKV: score_by_window(h, scores); break;
    case SEQUENCE_H2O: score_h2o(h, scores); break;
    case SEQUENCE_SINKS: score_ends(h, scores); break;
    case SEQUENCE_TOVA: score_tova(h, scores); break;
    case SEQUENCE_N_METHODS: break;
    }
    for (int32_t i = 0; i < h->in->n; i++) {
        const bool is_seen = sees(h, h->in->end, &h->in->slots[i]);
        if (!is_seen) scores[i] = -INFINITY;
        n += is_seen;
    }
    return n;
}

/* ---- budgets ---- */

/* Slots of a head of a layer: PyramidKV's line, as its implementation rounds it. Its window is part of the mean. */
static int32_t budget_of_layer(const head *h) {
    const int32_t last = h->in->shape->n_layers - 1, window = BASE_MIN(h->in->n_rows, h->mean / 2);
    const int32_t mean = h->mean - window, most = h->in->n - window;
    int32_t top = mean / PYRAMID_BETA, bottom = 2 * mean - top;
    if (methods[h->method].budget != BUDGET_LAYER || last == 0) return h->mean;
    if (bottom >= most) bottom = most, top = 2 * mean - bottom;
    return bottom - h->layer * ((bottom - top) / last) + window;
}

static void select_all(kv_selection *s, head *h, float *scores) {
    const int64_t n = h->in->n, n_heads = h->in->shape->n_kv_heads;
    int64_t total = 0;
    for (h->layer = 0; h->layer < h->in->shape->n_layers; h->layer++) {
        h->window = h->in->shape->windows ? h->in->shape->windows[h->layer] : 0;
        for (h->kv_head = 0; h->kv_head < n_heads; h->kv_head++) {
            const int64_t i = h->layer * n_heads + h->kv_head;
            const int32_t most = score_head(h, scores + i * n);
            if (methods[h->method].budget == BUDGET_ALL) total += BASE_MIN(most, h->mean);
            else kv_selection_add_highest(s, scores, i, i + 1, budget_of_layer(h));
        }
    }
    if (methods[h->method].budget == BUDGET_ALL) kv_selection_add_highest(s, scores, 0, h->in->shape->n_layers * n_heads, total);
}

int sequence_select(kv_selection **out, sequence_method m, int32_t mean, const sequence_slots *in, rp_error *err) {
    const size_t n_scores = (size_t)in->shape->n_layers * (size_t)in->shape->n_kv_heads * (size_t)in->n;
    const size_t bytes = sizeof(double) * (size_t)in->n + sizeof(float) * n_scores;
    double *weights = base_alloc(bytes);
    *out = NULL;
    if (!weights) return base_fail_memory(err, bytes, "scores of slots");
    BASE_ASSERT(mean > 0 && in->n > 0 && (in->observer != NULL) == (methods[m].rows > 0));
    head h = {.in = in, .method = m, .mean = BASE_MIN(mean, in->n), .weights = weights};
    const int rc = kv_selection_new(out, in->shape->n_layers, in->shape->n_kv_heads, in->n, err);
    if (!rc) select_all(*out, &h, (float *)(weights + in->n));
    base_free(weights);
    return rc;
}
