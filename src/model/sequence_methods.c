/* SPDX-License-Identifier: Apache-2.0 */
/* sequence_methods.c: see sequence_methods.h. Scores are computed head by head, then the highest are kept: of a head,
 * or of all heads. */
#include "model/sequence_methods.h"

#include <math.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/reduction.h"

typedef enum sequence_budget { BUDGET_ALL,
                               BUDGET_HEAD } sequence_budget;

static const struct {
    const char *name;
    int32_t rows;
    sequence_budget budget;
} methods[SEQUENCE_N_METHODS] = {
#define X(NAME, name, rows, budget) {name, rows, BUDGET_##budget},
    SEQUENCE_METHODS(X)
#undef X
};

const char *sequence_method_name(sequence_method m) {
    BASE_ASSERT((unsigned)m < SEQUENCE_N_METHODS);
    return methods[m].name;
}
int32_t sequence_method_rows(sequence_method m) { return methods[m].rows; }
bool sequence_method_is_dynamic(sequence_method m) { return m == SEQUENCE_QUEST; }

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
    const bool *is_kept; /* [n] besides the budget */
    double *weights;     /* [n] scratch */
} head;

/* The highest weight of a slot's neighbours; kept slots do not count as neighbours. */
static void score_by_window(const head *h, float *scores) {
    const sequence_slots *in = h->in;
    const int32_t radius = SEQUENCE_POOL / 2;
    int32_t n = 0;
    for (int32_t i = 0; i < in->n; i++) {
        const sequence_slot *s = &in->slots[i];
        if (h->is_kept[i]) continue;
        h->weights[n++] = attention_observer_weight(in->observer, h->layer, h->kv_head, (size_t)s->view, s->slot);
    }
    for (int32_t i = 0, k = 0; i < in->n; i++) {
        double highest = 0;
        if (h->is_kept[i]) continue;
        for (int32_t j = BASE_MAX(k - radius, 0); j <= k + radius && j < n; j++) highest = fmax(highest, h->weights[j]);
        scores[i] = (float)highest;
        k++;
    }
}

/* A head's slots that the first later row sees; of them, those that are kept. */
typedef struct counts {
    int32_t seen, kept;
} counts;

static counts score_head(const head *h, float *scores) {
    counts n = {0, 0};
    switch (h->method) {
    case SEQUENCE_SNAPKV: score_by_window(h, scores); break;
    case SEQUENCE_SINKS:
        for (int32_t i = 0; i < h->in->n; i++) scores[i] = i < REDUCTION_FIRST ? INFINITY : (float)i;
        break;
    case SEQUENCE_QUEST:
    case SEQUENCE_N_METHODS: break;
    }
    for (int32_t i = 0; i < h->in->n; i++) {
        const int32_t pos = h->in->slots[i].pos, end = h->in->end;
        const bool is_seen = pos <= end && (h->window == 0 || end - pos < h->window); /* by a row at the end */
        if (!is_seen) scores[i] = -INFINITY;
        else if (h->is_kept[i]) scores[i] = INFINITY;
        n.seen += is_seen;
        n.kept += is_seen && h->is_kept[i];
    }
    return n;
}

/* ---- budgets ---- */

static void select_all(kv_selection *s, head *h, float *scores) {
    const int64_t n = h->in->n, n_heads = kv_shape_heads(h->in->shape);
    int64_t total = 0;
    for (h->layer = 0; h->layer < h->in->shape->n_layers; h->layer++) {
        h->window = h->in->shape->layers[h->layer].window;
        for (h->kv_head = 0; h->kv_head < n_heads; h->kv_head++) {
            const int64_t i = h->layer * n_heads + h->kv_head;
            const counts c = score_head(h, scores + i * n);
            BASE_ASSERT(c.kept <= c.seen && c.seen <= n);
            const int64_t own = BASE_MIN(c.kept + h->mean, c.seen);
            total += own;
            if (methods[h->method].budget != BUDGET_ALL) kv_selection_add_highest(s, scores, i, i + 1, own);
        }
    }
    if (methods[h->method].budget == BUDGET_ALL)
        kv_selection_add_highest(s, scores, 0, h->in->shape->n_layers * n_heads, total);
}

int sequence_select(kv_selection **out, sequence_method m, int32_t mean, const sequence_slots *in, rp_error *err) {
    const size_t n_scores = (size_t)in->shape->n_layers * (size_t)kv_shape_heads(in->shape) * (size_t)in->n;
    const size_t bytes = (sizeof(double) + sizeof(bool)) * (size_t)in->n + sizeof(float) * n_scores;
    double *weights = base_alloc(bytes);
    *out = NULL;
    if (!weights) return base_fail_memory(err, bytes, "scores of slots");
    BASE_ASSERT(mean > 0 && in->n > 0 && !sequence_method_is_dynamic(m) &&
                (in->observer != NULL) == (methods[m].rows > 0));
    float *scores = (float *)(weights + in->n);
    bool *is_kept = (bool *)(scores + n_scores);
    head h = {
        .in = in, .method = m, .mean = BASE_MIN(mean, in->n - in->n_kept), .weights = weights, .is_kept = is_kept};
    for (int32_t i = 0, k = 0; i < in->n; i++) {
        while (k < in->n_kept && in->kept[k] < in->slots[i].pos) k++;
        is_kept[i] = k < in->n_kept && in->kept[k] == in->slots[i].pos;
    }
    const int rc = kv_selection_new(out, in->shape->n_layers, kv_shape_heads(in->shape), in->n, err);
    if (!rc) select_all(*out, &h, scores);
    base_free(weights);
    return rc;
}
