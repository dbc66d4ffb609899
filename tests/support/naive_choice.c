/* SPDX-License-Identifier: Apache-2.0 */
/* naive_choice.c: see naive_choice.h. */
#include "support/naive_choice.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_kv_elements.h"
#include "support/reference_model.h"

#define MOST_DIM 256

static bool is_seen(const sequence_slot *slot, int32_t pos, int32_t window) {
    return window == 0 || pos - slot->pos < window;
}

/* Of its slots that are seen from s->end on. */
static double bound_of(const naive_query *q, int32_t kv_head, const slot_bounds *s, const kv_context *c,
                       int32_t group) {
    const model_layer *l = &q->net->layers[q->layer];
    const slot_group *g = &s->groups[group];
    double rotated[MOST_DIM], bound = 0;
    float key[MOST_DIM];
    naive_rotate(q, c->views[s->slots[g->first].view].shift, rotated);
    for (int32_t d = 0; d < s->key_dim; d++) {
        float largest = -INFINITY, smallest = INFINITY;
        for (int32_t i = g->first; i < g->end; i++) {
            const kv_span *span = c->views[s->slots[i].view].span;
            const int32_t slot = s->slots[i].slot;
            if (!is_seen(&s->slots[i], s->end, l->window)) continue;
            const kv_layer *layer = kv_span_layer(span, l->states);
            cpu_elements(layer, cpu_keys(span, l->states, slot / KV_BLOCK_SLOTS, kv_head), true, slot % KV_BLOCK_SLOTS,
                         key);
            largest = fmaxf(largest, key[d]);
            smallest = fminf(smallest, key[d]);
        }
        if (largest < smallest) return 0;
        const double high = (double)kernel_f16_to_f32(kernel_f32_to_f16(largest)),
                     low = (double)kernel_f16_to_f32(kernel_f32_to_f16(smallest));
        bound += fmax(rotated[d] * high, rotated[d] * low);
    }
    bound *= (double)q->net->hp.score_scale;
    if (q->net->alibi_slopes) bound -= (double)q->net->alibi_slopes[q->head] * (q->pos - s->slots[g->end - 1].pos);
    return bound;
}

static void hide_group(const slot_bounds *s, int32_t group, bool is_hidden, bool *hidden) {
    for (int32_t i = s->groups[group].first; i < s->groups[group].end; i++)
        hidden[s->slots[i].view * KV_SPAN_TOKENS + s->slots[i].slot] = is_hidden;
}

double naive_choose(const naive_query *q, int32_t kv_head, const slot_bounds *s, const kv_context *c, bool *hidden) {
    const int32_t group = q->net->hp.n_heads / q->net->hp.n_kv_heads, window = q->net->layers[q->layer].window;
    double *best = reference_alloc((size_t)s->n_groups, sizeof(*best)),
           *own = reference_alloc((size_t)s->n_groups, sizeof(*own)), last = INFINITY;
    memset(hidden, 0, c->n_views * KV_SPAN_TOKENS);
    for (int32_t g = 0; g < s->n_groups; g++) best[g] = -INFINITY;
    for (int32_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        naive_query one = *q;
        double highest = -INFINITY;
        one.head = head;
        one.x = q->x + head * q->net->hp.key_dim;
        for (int32_t g = 0; g < s->n_groups; g++) {
            own[g] = bound_of(&one, kv_head, s, c, g);
            if (is_seen(&s->slots[s->groups[g].end - 1], q->pos, window)) highest = fmax(highest, own[g]);
            else own[g] = -INFINITY;
        }
        for (int32_t g = 0; g < s->n_groups; g++) best[g] = fmax(best[g], own[g] - highest);
    }
    for (int32_t g = 0; g < s->n_groups; g++) hide_group(s, g, true, hidden);
    for (int32_t n = 0; n < s->n_groups; n++) {
        int32_t chosen = 0;
        for (int32_t g = 1; g < s->n_groups; g++)
            if (best[g] > best[chosen]) chosen = g;
        if (n == s->most) last -= best[chosen];
        if (n == s->most || best[chosen] == -INFINITY) break;
        last = best[chosen];
        best[chosen] = -INFINITY;
        hide_group(s, chosen, false, hidden);
        if (n + 1 == s->n_groups) last = INFINITY;
    }
    free(best);
    free(own);
    return last;
}
