/* SPDX-License-Identifier: Apache-2.0 */
/* span_reduced.c: spans that have some slots of a run, other ones in each head of each layer. Blocks are compact: a
 * head has one cell (kv_layer.h) for each 64 slots that it keeps, and cells fill blocks of the pool, head by head;
 * those of layers that are apart follow the others:
 *
 *   blocks of the pool   [layer 0: head 0: slots 0-63][layer 0: head 0: slots 64-127][layer 0: head 1: slots 0-63] ...
 *
 * All layers have the same heads (kv_capabilities.reduces). */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "kv/span_internal.h"

static bool is_apart(const kv_plan *plan, int32_t layer) { return plan->places[layer].is_apart; }

/* Of layers that are apart; cells of the same size in all of them. */
static const kv_packing *apart_packing(const kv_plan *plan) {
    for (int32_t i = 0; i < plan->shape.n_layers; i++)
        if (is_apart(plan, i)) return &plan->places[i].packing;
    return NULL;
}

int64_t span_reduced_blocks(const kv_pool *pool, const kv_span_form *form, int64_t *first_apart) {
    const kv_plan *plan = kv_pool_plan(pool, form->format);
    const kv_packing *apart = apart_packing(plan);
    const int32_t n_heads = kv_shape_heads(&plan->shape);
    int64_t n_cells = 0, n_apart = 0;
    for (int32_t i = 0; i < plan->shape.n_layers * n_heads; i++)
        *(is_apart(plan, i / n_heads) ? &n_apart : &n_cells) += span_cells_of(form->slots[i]);
    BASE_ASSERT(plan->packing.per_block > 0 && form->n_kv_heads == n_heads);
    *first_apart = kv_packing_blocks(&plan->packing, n_cells);
    return *first_apart + (n_apart > 0 ? kv_packing_blocks(apart, n_apart) : 0);
}

/* The places of the slots and cells of each head. */
static void place_heads(kv_span *s, const uint16_t *slots) {
    const int32_t n_heads = span_heads(s);
    for (int32_t i = 0, cell = 0, apart = 0; i < s->n_layers * n_heads; i++) {
        int32_t *next = is_apart(s->plan, i / n_heads) ? &apart : &cell;
        s->first_slots[i + 1] = s->first_slots[i] + slots[i];
        s->first_cells[i] = *next;
        *next += span_cells_of(slots[i]);
    }
}

int span_new_reduced(kv_span **out, kv_pool *pool, const kv_span_form *form, rp_error *err) {
    const kv_shape *shape = kv_pool_shape(pool);
    const size_t n_heads = (size_t)shape->n_layers * (size_t)kv_shape_heads(shape);
    size_t n_slots = 0;
    int64_t first_apart;
    for (size_t i = 0; i < n_heads; i++) n_slots += form->slots[i];
    const size_t n_blocks = (size_t)span_reduced_blocks(pool, form, &first_apart);
    int rc = span_new(out, pool, &span_reduced, form->format, form->first_pos, n_blocks,
                      sizeof(int32_t) * (2 * n_heads + 1 + n_slots), err);
    if (rc) return rc;
    kv_span *s = *out;
    s->first_apart[0] = (int32_t)first_apart;
    s->first_slots = (int32_t *)(s->blocks + n_blocks);
    s->first_cells = s->first_slots + n_heads + 1;
    s->head_positions = s->first_cells + n_heads;
    s->end = form->end;
    s->n_parts = form->n_parts;
    place_heads(s, form->slots);
    return RP_OK;
}

static int reduced_take(kv_span *s, const kv_span_form *form, rp_error *err) {
    int64_t first_apart;
    const size_t n = (size_t)span_reduced_blocks(s->pool, form, &first_apart);
    const int rc = kv_pool_take(s->pool, s->blocks, n, err);
    BASE_ASSERT(first_apart == s->first_apart[0] && form->n_parts > 0);
    s->n_blocks = span_cells_of(s->n_tokens);
    if (!rc) s->n_pool_blocks = n;
    return rc;
}

static bool reduced_has(const kv_span *s, int32_t layer, int32_t block) {
    bool has = false;
    for (int32_t h = 0; h < span_heads(s) && !has; h++) has = span_slots_of(s, layer, h) > block * KV_BLOCK_SLOTS;
    return has;
}

static kv_address reduced_part(const kv_span *s, int32_t layer, int32_t block, int32_t kv_head, int part) {
    const kv_layer *l = &s->plan->layers[layer];
    const int64_t cell = s->first_cells[span_head_index(s, layer, kv_head)] + block;
    BASE_DCHECK(block * KV_BLOCK_SLOTS < span_slots_of(s, layer, kv_head));
    if (is_apart(s->plan, layer))
        return span_part_of(l, &s->plan->places[layer].packing, s->blocks + s->first_apart[0], cell, part);
    return span_part_of(l, &s->plan->packing, s->blocks, cell, part);
}

const span_layout span_reduced = {.take = reduced_take, .has = reduced_has, .part = reduced_part};

/* ---- forms ---- */

/* A run has at most KV_SELECTION_MAX_SLOTS slots, at consecutive positions. */
bool span_reduced_is_possible(const kv_span_form *f, const kv_shape *shape) {
    int32_t most = 0;
    if (!kv_shape_capabilities(shape).reduces || f->n_kv_heads != kv_shape_heads(shape) ||
        (int64_t)shape->n_layers * f->n_kv_heads > KV_REDUCED_MAX_HEADS || f->n_parts < 1 ||
        f->n_parts > KV_REDUCED_MAX_PARTS || f->end < f->first_pos + f->n_tokens ||
        f->end - f->first_pos > KV_SELECTION_MAX_SLOTS)
        return false;
    for (int32_t i = 0; i < shape->n_layers; i++) {
        int32_t n = 0; /* slots of the layer's head that has most */
        for (int32_t h = 0; h < f->n_kv_heads; h++) n = BASE_MAX(n, f->slots[(int64_t)i * f->n_kv_heads + h]);
        if (n > f->n_tokens || f->kept[i] != span_all_blocks(n)) return false;
        most = BASE_MAX(most, n);
    }
    return most == f->n_tokens;
}

int64_t kv_reduced_blocks(const kv_pool *pool, rp_kv_format format, int64_t n_cells, int64_t n_spans) {
    const kv_plan *plan = kv_pool_plan(pool, format);
    const kv_packing *apart = apart_packing(plan);
    const int64_t blocks = kv_packing_blocks(&plan->packing, n_cells) + n_spans;
    return apart ? BASE_MAX(blocks, kv_packing_blocks(apart, n_cells) + n_spans) + n_spans
                 : blocks; /* at worst all are apart */
}

int32_t kv_span_parts(const kv_span *s) { return s->n_parts; }

void kv_span_put_positions(kv_span *s, int32_t layer, int32_t kv_head, const int32_t *positions) {
    BASE_ASSERT(s->first_slots && layer >= span_layers_ready(s)); /* else the span is shared: invariant 2 */
    const int32_t i = span_head_index(s, layer, kv_head);
    memcpy(s->head_positions + s->first_slots[i], positions,
           sizeof(*positions) * (size_t)span_slots_of(s, layer, kv_head));
}
