/* SPDX-License-Identifier: Apache-2.0 */
/* reduction_queries.h: scores of the methods that need a module's queries: internals of reduction.h. */
#ifndef MODEL_REDUCTION_QUERIES_H
#define MODEL_REDUCTION_QUERIES_H

#include "model/reduction.h"

/* One head of a run. */
typedef struct reduction_head {
    const reduction_run *run;
    int32_t layer, kv_head, n_slots, key_dim, value_dim;
    float *keys,
        *values;       /* [n_slots][dimensions], decoded, where a method needs them; kvzip+: values of all KV heads */
    double *leverages; /* [KV heads][n_slots] of the layer: Compactor */
} reduction_head;

/* Has the run the block of a slot in the head's layer? */
static inline bool reduction_has(const reduction_head *h, int32_t slot) {
    return kv_span_has(h->run->spans[slot / KV_SPAN_TOKENS], h->layer, slot % KV_SPAN_TOKENS / KV_BLOCK_SLOTS);
}
double reduction_norm(const float *x, int32_t n); /* Euclidean */

/* scores: [n_slots]. RP_ERR_MEMORY. */
int reduction_score_expected(const reduction_head *h, double *scores, rp_error *err);
/* scores: attention; and the head's leverages. RP_ERR_MEMORY. */
int reduction_score_compactor(const reduction_head *h, double *scores, rp_error *err);
/* Both, of all heads of a layer, standardized and added: scores. */
void reduction_blend_compactor(const reduction_head *h, int32_t n_kv_heads, double *scores);

#endif
