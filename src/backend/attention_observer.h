/* SPDX-License-Identifier: Apache-2.0 */
/* attention_observer.h: observers of steps. What rows attend to: the attention weights (after softmax over all slots
 * that a row sees, and a sink) of the slots of some views, by layer of the KV and KV head.
 *
 *   row of a step --observer--> weights [layer][KV head][view][slot]     joined with those of other rows and earlier
 *         steps
 *
 * The weights that a slot gets from several rows, and from the query heads that share a KV head, are joined: their
 * maximum (KVzip: how much a repetition of the text looks at each slot) or their sum (SnapKV: over the last rows; H2O:
 * over all; TOVA: of one row), or their sum over all heads of all layers (their total; focus: of one row), which is one
 * number a slot: it is read as that of head 0 of layer 0. Layers that use another layer's KV count as that layer.
 *
 * Relative weights (KVzip+) are divided by the norm of the row's input of the layer's attention. Their maximum over
 * rows is by layer of the model and query head, since each has an output matrix of its own.
 *
 * Maxima are of floats, sums of fixed-point numbers: both are the same bits in any order, so the weights do not depend
 * on steps, threads, tiles, or rows of other contexts. Sums have 62 bits: those of few rows are finer.
 *
 * Owned by the caller, who must not read it while a step runs. The backend's threads write to it during a step.
 */
#ifndef BACKEND_ATTENTION_OBSERVER_H
#define BACKEND_ATTENTION_OBSERVER_H

#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "kv/span.h"

typedef enum attention_measure { ATTENTION_MAXIMUM,
                                 ATTENTION_SUM,
                                 ATTENTION_TOTAL,
                                 ATTENTION_RELATIVE } attention_measure;

typedef struct attention_observer {
    attention_measure measure;
    int32_t n_heads;            /* of a layer */
    double one;                 /* of sums: the number of a weight of 1, a power of two */
    size_t first_view, n_views; /* of the rows' context, which may not have all of them yet */
    size_t n;
    /* [n]: [layers][heads][n_views][KV_SPAN_TOKENS], total: [n_views][KV_SPAN_TOKENS]: bits of floats, or fixed-point
       numbers */
    atomic_uint_least64_t weights[];
} attention_observer;

/* All weights are 0. n_layers, n_heads: those of KV; relative: the model's, and its query heads. most: weights of a
 * slot that are joined, query heads that share a KV head (total: of all layers) times rows of all steps; not for
 * maxima. RP_ERR_MEMORY. */
int attention_observer_new(attention_observer **out, int32_t n_layers, int32_t n_heads, attention_measure measure,
                           int64_t most, size_t first_view, size_t n_views, rp_error *err);
void attention_observer_free(attention_observer *o); /* NULL is fine */
/* The joined weight of a slot of view first_view + view; slots of a reduced span are those of the head. */
double attention_observer_weight(const attention_observer *o, int32_t layer, int32_t head, size_t view, int32_t slot);

/* Queries of the tokens of one span, in all layers of the model, before their rotation; of the rows that name the
   record. */
typedef struct query_record {
    int32_t n_layers, width; /* width: query heads times key dimensions */
    float x[];               /* [layers][KV_SPAN_TOKENS][width]: of the row whose KV is in that slot */
} query_record;

/* RP_ERR_MEMORY. Freed with base_free. */
int query_record_new(query_record **out, int32_t n_layers, int32_t width, rp_error *err);
static inline float *query_record_at(query_record *q, int32_t layer, int32_t slot) {
    BASE_DCHECK(layer >= 0 && layer < q->n_layers && slot >= 0 && slot < KV_SPAN_TOKENS);
    return q->x + ((int64_t)layer * KV_SPAN_TOKENS + slot) * q->width;
}

/* ---- for backends ---- */

/* Are weights joined by their maximum? */
static inline bool attention_observer_is_maximum(const attention_observer *o) {
    return o->measure == ATTENTION_MAXIMUM || o->measure == ATTENTION_RELATIVE;
}

/* A weight as it is joined: not below 0; 0 for a NaN. */
static inline uint64_t attention_observer_number(const attention_observer *o, float weight) {
    uint32_t bits;
    if (!(weight > 0)) return 0;
    if (!attention_observer_is_maximum(o)) return (uint64_t)((double)weight * o->one + 0.5);
    memcpy(&bits, &weight, sizeof(bits)); /* ordered as the floats */
    return bits;
}

/* Joins the numbers of a block's slots; those that are not in `slots` are ignored. Any thread. */
void attention_observer_add(attention_observer *o, int32_t layer, int32_t head, size_t view, int32_t block,
                            uint64_t slots, const uint64_t numbers[KV_BLOCK_SLOTS]);

#endif
