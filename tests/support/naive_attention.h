/* SPDX-License-Identifier: Apache-2.0 */
/* naive_attention.h: attention of one query over a context by definition, slot by slot, in double: no tiles, masks as
 * words, or lists. For tests; out of memory ends the program.
 */
#ifndef SUPPORT_NAIVE_ATTENTION_H
#define SUPPORT_NAIVE_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kv/context.h"
#include "backend/model_network.h"

/* A query of one head, not yet rotated. */
typedef struct naive_query {
    const model_network *net;
    int32_t n_ctx; /* selects the frequencies of long-rope models */
    int32_t layer, head, pos;
    const float *x; /* [key_dim] */
    /* [views][KV_SPAN_TOKENS]: slots that it does not see, besides those that no query at its position does; NULL: none
       */
    const bool *hidden;
} naive_query;

/* out[key_dim]: the query rotated to (pos - shift). */
void naive_rotate(const naive_query *q, int32_t shift, double *out);

/* A slot that the query sees, with its weight after softmax. */
typedef struct naive_slot {
    int32_t view, slot;
    double weight;
} naive_slot;

/* Writes the visible slots in context order, and out[value_dim]. Returns their number, at most cap. */
size_t naive_attention(const naive_query *q, const kv_context *c, naive_slot *slots, size_t cap, double *out);

#endif
