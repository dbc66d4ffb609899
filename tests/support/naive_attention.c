/* SPDX-License-Identifier: Apache-2.0 */
/* naive_attention.c: see naive_attention.h. */
#include "support/naive_attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_kv_elements.h"

#define MOST_DIM 256

void naive_rotate(const naive_query *q, int32_t shift, double *out) {
    const model_layer *l = &q->net->layers[q->layer];
    const bool halves = q->net->hp.rope_halves;
    float angles[MOST_DIM];
    for (int32_t d = 0; d < l->key_dim; d++) out[d] = (double)q->x[d];
    if (l->rope == MODEL_NO_ROPE) return;
    const model_rope *rope = model_layer_rope(q->net, l->rope, q->n_ctx);
    const int32_t half = rope->rot_dim / 2;
    model_rope_angles(rope, q->pos - shift, rope->magnitude, angles);
    for (int32_t i = 0; i < half; i++) {
        const int32_t a = halves ? i : 2 * i, b = halves ? i + half : 2 * i + 1;
        const double x = (double)q->x[a], y = (double)q->x[b], c = (double)angles[2 * i], s = (double)angles[2 * i + 1];
        out[a] = x * c - y * s;
        out[b] = x * s + y * c;
    }
}

static double score_of(const naive_query *q, const double *rotated, const kv_layer *layer, const void *keys, int slot,
                       int32_t distance) {
    const model_hparams *hp = &q->net->hp;
    float key[MOST_DIM];
    double score = 0;
    cpu_elements(layer, keys, true, slot, key);
    for (int32_t d = 0; d < layer->key_dim; d++) score += rotated[d] * (double)key[d];
    score *= (double)hp->score_scale;
    if (q->net->alibi_slopes) score -= (double)q->net->alibi_slopes[q->head] * distance;
    return hp->score_cap > 0 ? (double)hp->score_cap * tanh(score / (double)hp->score_cap) : score;
}

/* Appends a view's visible slots, with their scores as weights. */
static size_t add_view(const naive_query *q, const kv_view *v, int32_t index, naive_slot *slots, size_t n, size_t cap) {
    const model_layer *l = &q->net->layers[q->layer];
    const int32_t kv_head = q->head / (l->n_heads / l->n_kv_heads);
    const kv_span *s = v->span;
    const int32_t *positions = kv_span_positions(s, l->states, kv_head);
    double rotated[MOST_DIM];
    naive_rotate(q, v->shift, rotated);
    for (int32_t i = 0; i < kv_span_slots(s, l->states, kv_head); i++) {
        const int32_t at = positions ? positions[i] : kv_span_position(s) + i, distance = q->pos - v->shift - at;
        if (q->hidden && q->hidden[(size_t)index * KV_SPAN_TOKENS + (size_t)i]) continue;
        if (distance < 0 || (l->window > 0 && distance >= l->window) || !(v->mask[i / 64] >> (i % 64) & 1)) continue;
        if (n == cap) abort();
        const void *keys = cpu_keys(s, l->states, i / KV_BLOCK_SLOTS, kv_head);
        slots[n++] = (naive_slot){
            index, i, score_of(q, rotated, kv_span_layer(s, l->states), keys, i % KV_BLOCK_SLOTS, distance)};
    }
    return n;
}

size_t naive_attention(const naive_query *q, const kv_context *c, naive_slot *slots, size_t cap, double *out) {
    const model_layer *l = &q->net->layers[q->layer];
    const int32_t kv_head = q->head / (l->n_heads / l->n_kv_heads);
    const float *sinks = l->sinks.data;
    double highest = sinks ? (double)sinks[q->head] : -INFINITY, sum = 0;
    size_t n = 0;
    BASE_ASSERT(l->key_dim <= MOST_DIM && l->value_dim <= MOST_DIM);
    for (size_t i = 0; i < c->n_views; i++) n = add_view(q, &c->views[i], (int32_t)i, slots, n, cap);
    for (size_t i = 0; i < n; i++) highest = fmax(highest, slots[i].weight);
    for (size_t i = 0; i < n; i++) sum += exp(slots[i].weight - highest);
    if (sinks) sum += exp((double)sinks[q->head] - highest);
    for (int32_t d = 0; d < l->value_dim; d++) out[d] = 0;
    for (size_t i = 0; i < n; i++) {
        const kv_span *s = c->views[slots[i].view].span;
        const int32_t slot = slots[i].slot;
        slots[i].weight = exp(slots[i].weight - highest) / sum;
        const void *values = cpu_values(s, l->states, slot / KV_BLOCK_SLOTS, kv_head);
        float value[MOST_DIM];
        cpu_elements(kv_span_layer(s, l->states), values, false, slot % KV_BLOCK_SLOTS, value);
        for (int32_t d = 0; d < l->value_dim; d++) out[d] += slots[i].weight * (double)value[d];
    }
    return n;
}
