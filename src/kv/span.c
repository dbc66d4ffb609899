/* SPDX-License-Identifier: Apache-2.0 */
/* span.c: see span.h. */
#include "kv/span.h"

#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

struct kv_span {
    atomic_int refs;
    atomic_int ready; /* layers that may be read; see kv_span_layers_ready */
    atomic_bool failed;
    kv_pool *pool;
    base_key key;
    bool sealed;
    const kv_plan *plan;                   /* of its format, in the pool */
    int32_t first_pos, n_tokens, n_blocks; /* n_blocks: blocks in each layer */
    int32_t n_layers;
    int32_t n_trimmed; /* blocks freed before the span itself */
    int32_t readable_from;
    int32_t *positions; /* scattered: [KV_SPAN_TOKENS], stored after blocks[]; else NULL */
    /* reduced, else NULL: of each (layer, KV head) and one more: index of its first slot in head_positions; of each: its
     * first cell, among those of layers in f16 or the others. All stored after blocks[] */
    int32_t *first_slots, *first_cells, *head_positions;
    int32_t end, n_parts; /* reduced: the highest position + 1; parts of the run */
    /* packed spans, those of another format than the pool's and reduced ones: cells of (block, layer) follow those of
     * place[block][layer] others, from blocks[first_block[block]] on; those of a layer in f16 from blocks[first_f16[block]] on.
     * NO_PLACE: the layer does not have the block */
    bool is_packed;
    int32_t n_pool_blocks, first_block[KV_SPAN_BLOCKS], first_f16[KV_SPAN_BLOCKS];
    uint16_t *place;
    /* [block][column], so that one block of every layer is taken at once; none: freed. Packed or reduced: of the pool, without gaps */
    kv_address blocks[];
};

#define NO_PLACE UINT16_MAX

static bool is_in_f16(const kv_span *s, int32_t layer) { return kv_plan_is_in_f16(s->plan, layer); }
static int32_t n_heads_of(const kv_span *s) { return s->plan->shape.n_kv_heads; } /* in each layer */

int32_t kv_column_blocks(const kv_pool *pool, rp_kv_format format) {
    BASE_ASSERT(kv_pool_takes(pool, format));
    return kv_pool_plan(pool, format)->column_blocks;
}

static void init_span(kv_span *s, kv_pool *pool, rp_kv_format format, int32_t first_pos) {
    const kv_plan *plan = kv_pool_plan(pool, format);
    atomic_init(&s->refs, 1);
    atomic_init(&s->ready, plan->shape.n_layers);
    s->pool = pool;
    s->plan = plan;
    s->first_pos = first_pos;
    s->readable_from = INT32_MIN;
    s->n_layers = plan->shape.n_layers;
}

static int new_span(kv_span **out, kv_pool *pool, rp_kv_format format, int32_t first_pos, bool scattered, rp_error *err) {
    const kv_shape *shape = kv_pool_shape(pool);
    const bool packs = format != shape->format;
    size_t n_blocks = (size_t)kv_column_blocks(pool, format) * KV_SPAN_BLOCKS, n_places = packs ? (size_t)shape->n_layers * KV_SPAN_BLOCKS : 0;
    size_t bytes = sizeof(kv_span) + sizeof(kv_address) * n_blocks + (scattered ? sizeof(int32_t) * KV_SPAN_TOKENS : 0) + sizeof(uint16_t) * n_places;
    kv_span *s = base_calloc(1, bytes);
    *out = s;
    if (!s) return base_fail_memory(err, bytes, "a span");
    init_span(s, pool, format, first_pos);
    if (scattered) s->positions = (int32_t *)(s->blocks + n_blocks);
    if (!packs) return RP_OK;
    s->is_packed = true;
    s->place = (uint16_t *)((int32_t *)(s->blocks + n_blocks) + (scattered ? KV_SPAN_TOKENS : 0));
    return RP_OK;
}

static int32_t cells_of(int32_t n_slots) { return (n_slots + KV_BLOCK_SLOTS - 1) / KV_BLOCK_SLOTS; }

/* Blocks of the pool that a reduced span takes. *first_f16: of these, those of layers that are not in f16, which come first. */
static int64_t reduced_blocks(const kv_shape *pool, const kv_span_form *form, int64_t *first_f16) {
    const kv_packing packing = kv_shape_packing(pool, form->format), f16_packing = kv_shape_packing(pool, RP_KV_F16);
    const kv_shape own = kv_shape_in(pool, form->format);
    int64_t n_cells = 0, n_f16 = 0;
    for (int32_t i = 0; i < pool->n_layers * pool->n_kv_heads; i++)
        *(kv_shape_layer_format(&own, i / pool->n_kv_heads) == form->format ? &n_cells : &n_f16) += cells_of(form->slots[i]);
    BASE_ASSERT(packing.per_block > 0 && form->n_kv_heads == pool->n_kv_heads);
    *first_f16 = kv_packing_blocks(&packing, n_cells);
    return *first_f16 + (n_f16 > 0 ? kv_packing_blocks(&f16_packing, n_f16) : 0);
}

/* The places of the slots and cells of each head. */
static void place_heads(kv_span *s, const uint16_t *slots) {
    for (int32_t i = 0, cell = 0, f16_cell = 0; i < s->n_layers * n_heads_of(s); i++) {
        int32_t *next = is_in_f16(s, i / n_heads_of(s)) ? &f16_cell : &cell;
        s->first_slots[i + 1] = s->first_slots[i] + slots[i];
        s->first_cells[i] = *next;
        *next += cells_of(slots[i]);
    }
}

/* A reduced span with empty blocks, and positions of 0, or NULL. The form is possible. */
static int new_reduced(kv_span **out, kv_pool *pool, const kv_span_form *form, rp_error *err) {
    const kv_shape *shape = kv_pool_shape(pool);
    const size_t n_heads = (size_t)shape->n_layers * (size_t)shape->n_kv_heads;
    size_t n_slots = 0;
    int64_t first_f16;
    for (size_t i = 0; i < n_heads; i++) n_slots += form->slots[i];
    const size_t n_blocks = (size_t)reduced_blocks(shape, form, &first_f16);
    const size_t bytes = sizeof(kv_span) + sizeof(kv_address) * n_blocks + sizeof(int32_t) * (2 * n_heads + 1 + n_slots);
    kv_span *s = base_calloc(1, bytes);
    *out = NULL;
    if (!s) return base_fail_memory(err, bytes, "a span");
    init_span(s, pool, form->format, form->first_pos);
    s->is_packed = true;
    s->first_f16[0] = (int32_t)first_f16;
    s->first_slots = (int32_t *)(s->blocks + n_blocks);
    s->first_cells = s->first_slots + n_heads + 1;
    s->head_positions = s->first_cells + n_heads;
    s->n_tokens = form->n_tokens;
    s->n_blocks = cells_of(form->n_tokens);
    s->end = form->end;
    s->n_parts = form->n_parts;
    s->readable_from = form->readable_from;
    place_heads(s, form->slots);
    int rc = kv_pool_take(pool, s->blocks, n_blocks, err);
    if (rc) {
        base_free(s);
        return rc;
    }
    s->n_pool_blocks = (int32_t)n_blocks;
    *out = s;
    return RP_OK;
}

int kv_span_new(kv_span **out, kv_pool *pool, int32_t first_pos, rp_error *err) {
    return new_span(out, pool, kv_pool_shape(pool)->format, first_pos, false, err);
}

int kv_span_new_in(kv_span **out, kv_pool *pool, rp_kv_format format, int32_t first_pos, rp_error *err) {
    return new_span(out, pool, format, first_pos, false, err);
}

int kv_span_new_scattered(kv_span **out, kv_pool *pool, rp_kv_format format, int32_t first_pos, rp_error *err) {
    return new_span(out, pool, format, first_pos, true, err);
}

/* Of spans that are not packed: blocks of the pool in a column, and the first one of a layer's block. */
static int32_t column_blocks(const kv_span *s) { return s->plan->column[s->n_layers]; }
static int32_t layer_blocks(const kv_span *s, int32_t layer) { return s->plan->column[layer + 1] - s->plan->column[layer]; }
static size_t index_of(const kv_span *s, int32_t layer, int32_t block) {
    return (size_t)block * (size_t)column_blocks(s) + (size_t)s->plan->column[layer];
}

/* Takes the blocks of one more column: of the layers that have it (kept: bit `block` of each layer; NULL: all). */
static int take_column(kv_span *s, const uint8_t *kept, rp_error *err) {
    const int32_t block = s->n_blocks;
    int rc = RP_OK;
    if (!s->is_packed) {
        if (!kept) rc = kv_pool_take(s->pool, s->blocks + index_of(s, 0, block), (size_t)column_blocks(s), err);
        for (int32_t i = 0; i < s->n_layers && kept && !rc; i++) {
            if (kept[i] >> block & 1) rc = kv_pool_take(s->pool, s->blocks + index_of(s, i, block), (size_t)layer_blocks(s, i), err);
            else s->n_trimmed += layer_blocks(s, i);
        }
        s->n_blocks += !rc || kept; /* of one that is incomplete, the blocks that were taken are freed with the span */
        return rc;
    }
    const int32_t n_blocks = kv_column_blocks(s->pool, s->plan->shape.format);
    int32_t n = 0, n_f16 = 0;
    BASE_ASSERT(!kept);
    if ((rc = kv_pool_take(s->pool, s->blocks + s->n_pool_blocks, (size_t)n_blocks, err))) return rc;
    for (int32_t i = 0; i < s->n_layers; i++)
        s->place[(size_t)block * (size_t)s->n_layers + (size_t)i] = (uint16_t)(is_in_f16(s, i) ? n_f16++ : n++);
    s->first_block[block] = s->n_pool_blocks;
    s->first_f16[block] = s->n_pool_blocks + kv_packing_blocks(&s->plan->packing, (int64_t)n * n_heads_of(s));
    s->n_pool_blocks += n_blocks;
    s->n_blocks++;
    return RP_OK;
}

kv_span *kv_span_ref(kv_span *s) {
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

void kv_span_unref(kv_span *s) {
    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) return;
    size_t n = s->is_packed ? (size_t)s->n_pool_blocks : (size_t)s->n_blocks * (size_t)column_blocks(s), kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!kv_address_is_none(s->blocks[i])) s->blocks[kept++] = s->blocks[i];
    kv_pool_give(s->pool, s->blocks, kept);
    base_free(s);
}

bool kv_span_is_unshared(const kv_span *s) { return atomic_load_explicit(&s->refs, memory_order_acquire) == 1; }

int kv_span_append(kv_span *s, int32_t *slot, rp_error *err) {
    BASE_ASSERT(!s->sealed && s->n_tokens < KV_SPAN_TOKENS); /* invariant 2 */
    BASE_ASSERT(kv_span_is_unshared(s));                     /* invariant 1 */
    BASE_ASSERT(!kv_format_is_encoded(s->plan->shape.format));
    if (s->n_tokens == s->n_blocks * KV_BLOCK_SLOTS) {
        int rc = take_column(s, NULL, err);
        if (rc) return rc;
    }
    *slot = s->n_tokens++;
    return RP_OK;
}

void kv_span_place(kv_span *s, int32_t pos) {
    int32_t slot = s->n_tokens - 1;
    /* invariant 3 */
    BASE_ASSERT(s->positions && (slot == 0 ? pos == s->first_pos : pos > s->positions[slot - 1]));
    s->positions[slot] = pos;
}

void kv_span_truncate(kv_span *s, int32_t n) {
    BASE_ASSERT(!s->sealed && n <= s->n_tokens); /* invariant 2 */
    s->n_tokens -= n;
    BASE_ASSERT(s->n_tokens >= 0 && s->n_tokens <= s->n_blocks * KV_BLOCK_SLOTS);
}

/* A window ends at the token's own position and starts `window` - 1 before it. Empty slots of the block count as well:
 * they may get a token later. */
bool kv_block_is_reached(int32_t pos, int32_t window, int32_t from, const kv_positions *later, size_t n_later) {
    int64_t first = pos, last = first + KV_BLOCK_SLOTS - 1;
    if (window == 0 || last > (int64_t)from - window) return true;
    for (size_t i = 0; i < n_later; i++)
        if (last > (int64_t)later[i].begin - window && first < later[i].end) return true;
    return false;
}

int32_t kv_span_trim(kv_span *s, int32_t from, const kv_positions *later, size_t n_later) {
    int32_t trimmed = s->n_trimmed;
    const int32_t *windows = kv_pool_shape(s->pool)->windows;
    BASE_ASSERT(!s->sealed && kv_span_is_unshared(s)); /* invariants 2, 6 */
    for (int32_t i = 0; windows && !s->positions && !s->is_packed && i < s->n_blocks * s->n_layers; i++) {
        int32_t layer = i % s->n_layers, block = i / s->n_layers, n = layer_blocks(s, layer);
        kv_address *blocks = s->blocks + index_of(s, layer, block);
        if (kv_address_is_none(*blocks) || kv_block_is_reached(s->first_pos + block * KV_BLOCK_SLOTS, windows[layer], from, later, n_later)) continue;
        kv_pool_give(s->pool, blocks, (size_t)n);
        memset(blocks, 0, sizeof(*blocks) * (size_t)n);
        s->n_trimmed += n;
        s->readable_from = BASE_MAX(s->readable_from, from);
    }
    return s->n_trimmed - trimmed;
}

int32_t kv_span_readable_from(const kv_span *s) { return s->readable_from; }

void kv_span_seal(kv_span *s, const base_key *key) {
    BASE_ASSERT(!s->sealed && kv_span_is_unshared(s)); /* invariant 1 */
    BASE_ASSERT(!s->positions);                        /* invariant 7 */
    s->key = *key;
    s->sealed = true;
}

/* ---- forms ---- */

static uint8_t all_blocks(int32_t n_slots) { return (uint8_t)((1 << cells_of(n_slots)) - 1); }

/* Slots of the head of a layer that has most. */
static int32_t most_slots(const kv_span_form *f, int32_t layer) {
    int32_t most = 0;
    for (int32_t h = 0; h < f->n_kv_heads; h++) most = BASE_MAX(most, f->slots[(int64_t)layer * f->n_kv_heads + h]);
    return most;
}

/* A run has at most KV_SELECTION_MAX_SLOTS slots, at consecutive positions. */
static bool reduced_is_possible(const kv_span_form *f, const kv_shape *shape) {
    int32_t most = 0;
    if (f->n_kv_heads != shape->n_kv_heads || (int64_t)shape->n_layers * f->n_kv_heads > KV_REDUCED_MAX_HEADS || f->n_parts < 1 ||
        f->n_parts > KV_REDUCED_MAX_PARTS || f->end < f->first_pos + f->n_tokens || f->end - f->first_pos > KV_SELECTION_MAX_SLOTS)
        return false;
    for (int32_t i = 0; i < shape->n_layers; i++) {
        const int32_t n = most_slots(f, i);
        if (n > f->n_tokens || f->kept[i] != all_blocks(n)) return false;
        most = BASE_MAX(most, n);
    }
    return most == f->n_tokens;
}

/* Only layers with a window may lack blocks, unless the span is reduced. */
bool kv_form_is_possible(const kv_span_form *f, const kv_shape *shape) {
    if (f->n_tokens < 1 || f->n_tokens > KV_SPAN_TOKENS || f->first_pos < 0 || f->first_pos > INT32_MAX - KV_SPAN_TOKENS) return false;
    if (f->slots) return reduced_is_possible(f, shape);
    for (int32_t i = 0; i < shape->n_layers; i++) {
        const uint8_t all = all_blocks(f->n_tokens);
        bool windowed = shape->windows && shape->windows[i] > 0;
        if (f->kept[i] & ~all || (!windowed && f->kept[i] != all)) return false;
    }
    return true;
}

static size_t slots_bytes(const kv_span_form *f, int32_t n_layers) {
    return f->slots ? sizeof(*f->slots) * (size_t)n_layers * (size_t)f->n_kv_heads : 0;
}

size_t kv_form_bytes(const kv_span_form *form, int32_t n_layers) { return slots_bytes(form, n_layers) + (size_t)n_layers; }

kv_span_form kv_form_copy(const kv_span_form *form, int32_t n_layers, void *arrays) {
    kv_span_form copy = *form;
    uint8_t *kept = (uint8_t *)arrays + slots_bytes(form, n_layers);
    if (form->slots) copy.slots = memcpy(arrays, form->slots, slots_bytes(form, n_layers));
    copy.kept = memcpy(kept, form->kept, (size_t)n_layers);
    return copy;
}

size_t kv_span_form_bytes(const kv_span *s) {
    return (size_t)s->n_layers + (s->first_slots ? sizeof(uint16_t) * (size_t)s->n_layers * (size_t)n_heads_of(s) : 0);
}

kv_span_form kv_span_describe(const kv_span *s, void *arrays) {
    const int32_t n_heads = s->first_slots ? s->n_layers * n_heads_of(s) : 0;
    uint16_t *slots = arrays;
    uint8_t *kept = (uint8_t *)(slots + n_heads);
    for (int32_t i = 0; i < n_heads; i++) slots[i] = (uint16_t)(s->first_slots[i + 1] - s->first_slots[i]);
    /* blocks after the last token, which an open span may have kept, are not the span's */
    for (int32_t i = 0; i < s->n_layers; i++) kept[i] = kv_span_kept(s, i) & all_blocks(s->n_tokens);
    return (kv_span_form){.format = s->plan->shape.format,
                          .first_pos = s->first_pos,
                          .n_tokens = s->n_tokens,
                          .readable_from = s->readable_from,
                          .kept = kept,
                          .slots = s->first_slots ? slots : NULL,
                          .n_kv_heads = s->first_slots ? n_heads_of(s) : 0,
                          .end = s->end,
                          .n_parts = s->n_parts};
}

bool kv_span_has_form(const kv_span *s, const kv_span_form *form) {
    bool same = form->format == s->plan->shape.format && form->first_pos == s->first_pos && form->n_tokens == s->n_tokens &&
                form->readable_from == s->readable_from && !form->slots == !s->first_slots;
    if (same && form->slots) same = form->n_kv_heads == n_heads_of(s) && form->end == s->end && form->n_parts == s->n_parts;
    for (int32_t i = 0; same && i < s->n_layers; i++) {
        same = form->kept[i] == (kv_span_kept(s, i) & all_blocks(s->n_tokens));
        for (int32_t h = 0; same && form->slots && h < form->n_kv_heads; h++)
            same = form->slots[(int64_t)i * form->n_kv_heads + h] == kv_span_slots(s, i, h);
    }
    return same;
}

int64_t kv_form_blocks(const kv_shape *pool, const kv_span_form *form) {
    const kv_shape own = kv_shape_in(pool, form->format);
    int64_t n = 0, n_f16 = 0, first_f16;
    if (form->slots) return kv_shape_packing(pool, form->format).per_block > 0 ? reduced_blocks(pool, form, &first_f16) : 0;
    for (int32_t i = 0; i < pool->n_layers; i++)
        *(kv_shape_layer_format(&own, i) == form->format ? &n : &n_f16) += base_popcount64(form->kept[i]);
    if (form->format != pool->format && kv_shape_packing(pool, form->format).per_block > 0) return kv_shape_packed_blocks(pool, form->format, n, n_f16);
    return n + (n_f16 > 0 ? n_f16 * kv_shape_f16_blocks(pool) : 0);
}

/* All cells of a packed span, without gaps between its columns. */
static int take_cells(kv_span *s, const uint8_t *kept, rp_error *err) {
    int32_t n = 0, n_f16 = 0;
    s->n_blocks = (s->n_tokens + KV_BLOCK_SLOTS - 1) / KV_BLOCK_SLOTS;
    for (int32_t b = 0; b < s->n_blocks; b++)
        for (int32_t i = 0; i < s->n_layers; i++)
            s->place[(size_t)b * (size_t)s->n_layers + (size_t)i] = !(kept[i] >> b & 1) ? NO_PLACE : (uint16_t)(is_in_f16(s, i) ? n_f16++ : n++);
    const int32_t first_f16 = kv_packing_blocks(&s->plan->packing, (int64_t)n * n_heads_of(s)), n_blocks = first_f16 + n_f16 * s->plan->f16_blocks;
    for (int32_t b = 0; b < s->n_blocks; b++) s->first_f16[b] = first_f16;
    int rc = kv_pool_take(s->pool, s->blocks, (size_t)n_blocks, err);
    if (!rc) s->n_pool_blocks = n_blocks;
    return rc;
}

/* Empty blocks for n tokens. */
static int take_columns(kv_span *s, int32_t n_tokens, const uint8_t *kept, rp_error *err) {
    int rc = RP_OK;
    s->n_tokens = n_tokens;
    if (s->is_packed) return take_cells(s, kept, err);
    while (s->n_blocks * KV_BLOCK_SLOTS < n_tokens && !rc) rc = take_column(s, kept, err);
    return rc;
}

static int new_of_form(kv_span **out, kv_pool *pool, const kv_span_form *form, rp_error *err) {
    kv_span *s = NULL;
    if (form->slots) return new_reduced(out, pool, form, err);
    *out = NULL;
    int rc = kv_span_new_in(&s, pool, form->format, form->first_pos, err);
    if (!rc) rc = take_columns(s, form->n_tokens, form->kept, err);
    if (rc) {
        kv_span_unref(s);
        return rc;
    }
    s->readable_from = form->readable_from;
    *out = s;
    return RP_OK;
}

int kv_span_new_like(kv_span **out, const kv_span *from, rp_kv_format format, rp_error *err) {
    void *arrays = base_alloc(kv_span_form_bytes(from));
    *out = NULL;
    BASE_ASSERT(!from->positions);
    if (!arrays) return base_fail_memory(err, kv_span_form_bytes(from), "a span");
    kv_span_form form = kv_span_describe(from, arrays);
    form.format = format;
    const int rc = new_of_form(out, from->pool, &form, err);
    base_free(arrays);
    if (!rc && from->first_slots)
        memcpy((*out)->head_positions, from->head_positions, sizeof(int32_t) * (size_t)from->first_slots[from->n_layers * n_heads_of(from)]);
    return rc;
}

/* ---- reduced spans ---- */

int32_t kv_reduced_spans(const kv_selection *selection) { return (kv_selection_most(selection) + KV_SPAN_TOKENS - 1) / KV_SPAN_TOKENS; }

/* Slots of the run: selected ones [begin, end) of a head. Returns their number. */
static int32_t list_selected(const kv_selection *selection, int32_t layer, int32_t kv_head, int32_t begin, int32_t end, int32_t *out) {
    const uint64_t *bits = kv_selection_head(selection, layer, kv_head);
    int32_t n = 0, listed = 0;
    for (int32_t i = 0; i < kv_selection_words(selection) && n < end; i++)
        for (uint64_t left = bits[i]; left && n < end; left &= left - 1, n++)
            if (n >= begin) out[listed++] = i * 64 + base_ctz64(left);
    return listed;
}

/* indices: of the head's slots, in from. */
static void copy_slots(const kv_source *from, const int32_t *indices, kv_span *to, int32_t layer, int32_t kv_head) {
    const kv_layer *l = &to->plan->layers[layer];
    kv_memory *memory = kv_pool_memory(to->pool);
    for (int32_t slot = 0, n = kv_span_slots(to, layer, kv_head); slot < n; slot++) {
        const kv_span *s = from[indices[slot]].span;
        const int32_t slot_from = from[indices[slot]].slot, block = slot_from / KV_BLOCK_SLOTS;
        BASE_ASSERT(kv_span_has(s, layer, block));
        kv_copy_slot(memory, l, true, kv_span_keys(s, layer, block, kv_head), slot_from % KV_BLOCK_SLOTS,
                     kv_span_keys(to, layer, slot / KV_BLOCK_SLOTS, kv_head), slot % KV_BLOCK_SLOTS);
        kv_copy_slot(memory, l, false, kv_span_values(s, layer, block, kv_head), slot_from % KV_BLOCK_SLOTS,
                     kv_span_values(to, layer, slot / KV_BLOCK_SLOTS, kv_head), slot % KV_BLOCK_SLOTS);
    }
}

/* The slots of each head, and the lowest and highest position. */
static kv_span_form form_of_lists(const kv_span *from, const kv_selection *selection, const uint16_t *slots, const int32_t *positions) {
    kv_span_form f = {.format = from->plan->shape.format, .first_pos = INT32_MAX, .readable_from = INT32_MIN, .slots = slots, .n_kv_heads = selection->n_kv_heads, .n_parts = kv_reduced_spans(selection)};
    for (int32_t i = 0; i < selection->n_layers * selection->n_kv_heads; positions += slots[i++]) {
        if (slots[i] == 0) continue;
        f.n_tokens = BASE_MAX(f.n_tokens, slots[i]);
        f.first_pos = BASE_MIN(f.first_pos, positions[0]);
        f.end = BASE_MAX(f.end, positions[slots[i] - 1] + 1);
    }
    return f;
}

int kv_span_collect(kv_span **out, const kv_source *from, const kv_selection *selection, int32_t i, rp_error *err) {
    const int32_t n_kv_heads = selection->n_kv_heads, n_heads = selection->n_layers * n_kv_heads;
    const size_t n_most = (size_t)n_heads * KV_SPAN_TOKENS, bytes = n_most * 2 * sizeof(int32_t) + (size_t)n_heads * sizeof(uint16_t);
    const kv_span *any = from[0].span;
    *out = NULL;
    if (n_heads > KV_REDUCED_MAX_HEADS) return base_fail(err, RP_ERR_LIMIT, "a reduced span of %d heads: at most %d", n_heads, KV_REDUCED_MAX_HEADS);
    int32_t *positions = base_alloc(bytes), *indices = positions ? positions + n_most : NULL, n = 0;
    if (!positions) return base_fail_memory(err, bytes, "a span");
    uint16_t *slots = (uint16_t *)(indices + n_most);
    BASE_ASSERT(any->n_layers == selection->n_layers && n_heads_of(any) == n_kv_heads);
    BASE_ASSERT(!kv_format_is_encoded(any->plan->shape.format) && i < kv_reduced_spans(selection));
    for (int32_t head = 0; head < n_heads; n += slots[head++])
        slots[head] = (uint16_t)list_selected(selection, head / n_kv_heads, head % n_kv_heads, i * KV_SPAN_TOKENS, (i + 1) * KV_SPAN_TOKENS, indices + n);
    for (int32_t k = 0; k < n; k++) positions[k] = kv_span_slot_position(from[indices[k]].span, from[indices[k]].slot);
    kv_span_form form = form_of_lists(any, selection, slots, positions);
    for (int32_t k = 0; k < selection->n_slots; k++) form.readable_from = BASE_MAX(form.readable_from, from[k].span->readable_from);
    const int rc = new_reduced(out, any->pool, &form, err);
    if (!rc) memcpy((*out)->head_positions, positions, sizeof(*positions) * (size_t)n);
    for (int32_t head = 0, k = 0; !rc && head < n_heads; k += slots[head++]) copy_slots(from, indices + k, *out, head / n_kv_heads, head % n_kv_heads);
    base_free(positions);
    return rc;
}

int kv_span_reduce(kv_span **out, const kv_span *const *from, size_t n_from, const kv_selection *selection, int32_t i, rp_error *err) {
    const size_t bytes = sizeof(kv_source) * (size_t)selection->n_slots;
    kv_source *sources = base_alloc(bytes);
    *out = NULL;
    if (!sources) return base_fail_memory(err, bytes, "a span");
    BASE_ASSERT(selection->n_slots == (int32_t)(n_from - 1) * KV_SPAN_TOKENS + from[n_from - 1]->n_tokens);
    for (int32_t slot = 0; slot < selection->n_slots; slot++) sources[slot] = (kv_source){from[slot / KV_SPAN_TOKENS], slot % KV_SPAN_TOKENS};
    const int rc = kv_span_collect(out, sources, selection, i, err);
    base_free(sources);
    return rc;
}

int64_t kv_reduced_blocks(const kv_shape *pool, rp_kv_format format, int64_t n_cells, int64_t n_spans) {
    const kv_shape own = kv_shape_in(pool, format);
    const kv_packing packing = kv_shape_packing(pool, format), f16_packing = kv_shape_packing(pool, RP_KV_F16);
    const int64_t blocks = kv_packing_blocks(&packing, n_cells) + n_spans;
    if (!kv_shape_mixes(&own)) return blocks;
    return BASE_MAX(blocks, kv_packing_blocks(&f16_packing, n_cells) + n_spans) + n_spans; /* at worst all are in f16 */
}

int32_t kv_span_parts(const kv_span *s) { return s->n_parts; }

/* ---- loading ---- */

int kv_span_restore(kv_span **out, kv_pool *pool, const kv_span_form *form, const base_key *key, rp_error *err) {
    *out = NULL;
    if (!kv_form_is_possible(form, kv_pool_shape(pool)))
        return base_fail(err, RP_ERR_FORMAT, "a span of %d tokens at %d", form->n_tokens, form->first_pos);
    if (!kv_pool_takes(pool, form->format)) return base_fail(err, RP_ERR_FORMAT, "a span in %s", kv_format_name(form->format));
    int rc = new_of_form(out, pool, form, err);
    kv_span *s = *out;
    if (!s) return rc;
    atomic_init(&s->ready, 0);
    s->key = *key;
    s->sealed = true;
    return RP_OK;
}

void kv_span_put_positions(kv_span *s, int32_t layer, int32_t kv_head, const int32_t *positions) {
    BASE_ASSERT(s->first_slots && layer >= kv_span_layers_ready(s)); /* else the span is shared: invariant 2 */
    const int32_t i = layer * n_heads_of(s) + kv_head;
    memcpy(s->head_positions + s->first_slots[i], positions, sizeof(*positions) * (size_t)kv_span_slots(s, layer, kv_head));
}

void kv_span_set_ready(kv_span *s, int32_t n) {
    atomic_store_explicit(&s->ready, n, memory_order_release);
    kv_pool_notify_filled(s->pool);
}

void kv_span_set_failed(kv_span *s) {
    atomic_store_explicit(&s->failed, true, memory_order_relaxed);
    kv_span_set_ready(s, s->n_layers);
}

int32_t kv_span_layers_ready(const kv_span *s) { return atomic_load_explicit(&s->ready, memory_order_acquire); }
bool kv_span_has_failed(const kv_span *s) { return atomic_load_explicit(&s->failed, memory_order_relaxed); }

void kv_span_wait(const kv_span *s, int32_t n) {
    if (kv_span_layers_ready(s) < n) kv_pool_wait_filled(s->pool, &s->ready, n);
}

uint8_t kv_span_kept(const kv_span *s, int32_t layer) {
    uint8_t kept = 0;
    if (s->first_slots) {
        for (int32_t h = 0; h < n_heads_of(s); h++) kept |= all_blocks(kv_span_slots(s, layer, h));
        return kept;
    }
    for (int32_t b = 0; b < s->n_blocks; b++) kept |= (uint8_t)(kv_span_has(s, layer, b) << b);
    return kept;
}

bool kv_span_is_sealed(const kv_span *s) { return s->sealed; }
int32_t kv_span_tokens(const kv_span *s) { return s->n_tokens; }
int32_t kv_span_position(const kv_span *s) { return s->first_pos; }
int32_t kv_span_end(const kv_span *s) {
    if (s->first_slots) return s->end;
    return s->positions && s->n_tokens > 0 ? s->positions[s->n_tokens - 1] + 1 : s->first_pos + s->n_tokens;
}
bool kv_span_is_scattered(const kv_span *s) { return s->positions != NULL; }
bool kv_span_is_reduced(const kv_span *s) { return s->first_slots != NULL; }

static int32_t head_index(const kv_span *s, int32_t layer, int32_t kv_head) { return layer * n_heads_of(s) + kv_head; }

int32_t kv_span_slots(const kv_span *s, int32_t layer, int32_t kv_head) {
    const int32_t i = head_index(s, layer, kv_head);
    return s->first_slots ? s->first_slots[i + 1] - s->first_slots[i] : s->n_tokens;
}

const int32_t *kv_span_positions(const kv_span *s, int32_t layer, int32_t kv_head) {
    return s->first_slots ? s->head_positions + s->first_slots[head_index(s, layer, kv_head)] : s->positions;
}

int32_t kv_span_slot_position(const kv_span *s, int32_t slot) {
    BASE_DCHECK(!s->first_slots);
    return s->positions ? s->positions[slot] : s->first_pos + slot;
}

const base_key *kv_span_key(const kv_span *s) { return &s->key; }

rp_kv_format kv_span_format(const kv_span *s) { return s->plan->shape.format; }
const kv_shape *kv_span_shape(const kv_span *s) { return &s->plan->shape; }
const kv_layer *kv_span_layer(const kv_span *s, int32_t layer) { return &s->plan->layers[layer]; }
bool kv_span_has_pool_format(const kv_span *s) { return !s->is_packed; }
rp_kv_format kv_span_layer_format(const kv_span *s, int32_t layer) { return s->plan->layers[layer].format; }
/* Is each block of a layer one block of the pool, in its order? */
static bool is_whole(const kv_span *s, int32_t layer) { return !s->is_packed && !is_in_f16(s, layer); }

uint64_t kv_span_bytes(const kv_span *s) {
    const int64_t blocks = s->is_packed ? s->n_pool_blocks : (int64_t)s->n_blocks * column_blocks(s) - s->n_trimmed;
    return (uint64_t)blocks * kv_pool_block_bytes(s->pool);
}

/* Of a layer with whole blocks. */
static kv_address block_of(const kv_span *s, int32_t layer, int32_t block) {
    BASE_DCHECK(block < s->n_blocks && layer < s->n_layers);
    BASE_DCHECK(is_whole(s, layer));
    return s->blocks[index_of(s, layer, block)];
}

bool kv_span_has(const kv_span *s, int32_t layer, int32_t block) {
    BASE_DCHECK(block < s->n_blocks && layer < s->n_layers);
    const size_t place = (size_t)block * (size_t)s->n_layers + (size_t)layer;
    BASE_ASSERT(!s->first_slots);
    return s->is_packed ? s->place[place] != NO_PLACE : !kv_address_is_none(s->blocks[index_of(s, layer, block)]);
}

/* The keys (part 0) or values (part 1) of a cell of a layer that is packed into blocks of the pool. */
static kv_address part_of(const kv_layer *l, const kv_packing *p, const kv_address *blocks, int64_t cell, int part) {
    const bool apart = p->per_cell == 2;
    const int64_t i = cell * p->per_cell + (apart ? part : 0);
    return kv_address_plus(blocks[i / p->per_block], (size_t)(i % p->per_block) * p->part_bytes + (apart || part == 0 ? 0 : l->key_bytes));
}

/* A head's keys or values in a block of a reduced span: cells of layers in f16 follow the others. */
static kv_address reduced_part(const kv_span *s, int32_t layer, int32_t block, int32_t kv_head, int part) {
    const kv_layer *l = &s->plan->layers[layer];
    const int64_t cell = s->first_cells[head_index(s, layer, kv_head)] + block;
    BASE_DCHECK(block * KV_BLOCK_SLOTS < kv_span_slots(s, layer, kv_head));
    if (is_in_f16(s, layer)) return part_of(l, &s->plan->f16_packing, s->blocks + s->first_f16[0], cell, part);
    return part_of(l, &s->plan->packing, s->blocks, cell, part);
}

/* A head's keys or values in a block that is not whole. */
static kv_address packed_part(const kv_span *s, int32_t layer, int32_t block, int32_t kv_head, int part) {
    if (s->first_slots) return reduced_part(s, layer, block, kv_head, part);
    const kv_layer *l = &s->plan->layers[layer];
    const uint16_t place = s->is_packed ? s->place[(size_t)block * (size_t)s->n_layers + (size_t)layer] : 0;
    BASE_DCHECK(place != NO_PLACE);
    if (is_in_f16(s, layer)) {
        const size_t first = s->is_packed ? (size_t)(s->first_f16[block] + place * s->plan->f16_blocks) : index_of(s, layer, block);
        return part_of(l, &s->plan->f16_packing, s->blocks + first, kv_head, part);
    }
    return part_of(l, &s->plan->packing, s->blocks + s->first_block[block], (int64_t)place * n_heads_of(s) + kv_head, part);
}

kv_address kv_span_keys(const kv_span *s, int32_t layer, int32_t block, int32_t kv_head) {
    if (!is_whole(s, layer)) return packed_part(s, layer, block, kv_head, 0);
    return kv_address_plus(block_of(s, layer, block), kv_block_keys_at(&s->plan->layers[layer], kv_head));
}

kv_address kv_span_values(const kv_span *s, int32_t layer, int32_t block, int32_t kv_head) {
    if (!is_whole(s, layer)) return packed_part(s, layer, block, kv_head, 1);
    return kv_address_plus(block_of(s, layer, block), kv_block_values_at(&s->plan->layers[layer], kv_head));
}

/* Between a head's keys and values on the host, and those in a block. */
static void get_head(const kv_span *s, int32_t layer, int32_t block, int32_t kv_head, void *keys, void *values) {
    const kv_layer *l = &s->plan->layers[layer];
    kv_memory *m = kv_pool_memory(s->pool);
    m->ops->read(m, kv_span_keys(s, layer, block, kv_head), l->key_bytes, keys);
    m->ops->read(m, kv_span_values(s, layer, block, kv_head), l->value_bytes, values);
}

static void put_head(kv_span *s, int32_t layer, int32_t block, int32_t kv_head, const void *keys, const void *values) {
    const kv_layer *l = &s->plan->layers[layer];
    kv_memory *m = kv_pool_memory(s->pool);
    m->ops->write(m, keys, l->key_bytes, kv_span_keys(s, layer, block, kv_head));
    m->ops->write(m, values, l->value_bytes, kv_span_values(s, layer, block, kv_head));
}

void kv_span_get_cell(const kv_span *s, int32_t layer, int32_t block, int32_t kv_head, void *to) {
    get_head(s, layer, block, kv_head, to, (uint8_t *)to + s->plan->layers[layer].key_bytes);
}

void kv_span_put_cell(kv_span *s, int32_t layer, int32_t block, int32_t kv_head, const void *from) {
    put_head(s, layer, block, kv_head, from, (const uint8_t *)from + s->plan->layers[layer].key_bytes);
}

void kv_span_get_block(const kv_span *s, int32_t layer, int32_t block, void *to) {
    const kv_layer *l = &s->plan->layers[layer];
    kv_memory *m = kv_pool_memory(s->pool);
    uint8_t *bytes = to;
    BASE_ASSERT(!s->first_slots);
    if (is_whole(s, layer)) {
        m->ops->read(m, block_of(s, layer, block), l->block_bytes, to);
        return;
    }
    for (int32_t h = 0; h < l->n_heads; h++) get_head(s, layer, block, h, bytes + kv_block_keys_at(l, h), bytes + kv_block_values_at(l, h));
}

void kv_span_put_block(kv_span *s, int32_t layer, int32_t block, const void *from) {
    const kv_layer *l = &s->plan->layers[layer];
    kv_memory *m = kv_pool_memory(s->pool);
    const uint8_t *bytes = from;
    BASE_ASSERT(!s->first_slots);
    if (is_whole(s, layer)) {
        m->ops->write(m, from, l->block_bytes, block_of(s, layer, block));
        return;
    }
    for (int32_t h = 0; h < l->n_heads; h++) put_head(s, layer, block, h, bytes + kv_block_keys_at(l, h), bytes + kv_block_values_at(l, h));
}

bool kv_span_is_in_place(const kv_span *s, int32_t layer) {
    return is_whole(s, layer) && kv_pool_memory(s->pool)->ops->host_pointer;
}

void *kv_span_in_place(const kv_span *s, int32_t layer, int32_t block) {
    kv_memory *m = kv_pool_memory(s->pool);
    BASE_ASSERT(kv_span_is_in_place(s, layer) && kv_span_has(s, layer, block));
    return m->ops->host_pointer(m, block_of(s, layer, block));
}

/* Bits [0, n) of a word, for any n. */
static uint64_t low_bits(int32_t n) {
    if (n <= 0) return 0;
    return n >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1;
}

void kv_mask_first(uint64_t mask[KV_SPAN_BLOCKS], int32_t n) {
    for (int32_t b = 0; b < KV_SPAN_BLOCKS; b++) mask[b] = low_bits(n - b * KV_BLOCK_SLOTS);
}

void kv_mask_clear(uint64_t mask[KV_SPAN_BLOCKS], int32_t begin, int32_t end) {
    for (int32_t b = 0; b < KV_SPAN_BLOCKS; b++) {
        int32_t base = b * KV_BLOCK_SLOTS;
        mask[b] &= ~(low_bits(end - base) & ~low_bits(begin - base));
    }
}

void kv_mask_range(uint64_t mask[KV_SPAN_BLOCKS], int32_t begin, int32_t end) {
    kv_mask_first(mask, end);
    kv_mask_clear(mask, 0, begin);
}

int32_t kv_mask_count(const uint64_t mask[KV_SPAN_BLOCKS]) {
    int32_t n = 0;
    for (int32_t b = 0; b < KV_SPAN_BLOCKS; b++) n += base_popcount64(mask[b]);
    return n;
}

/* Number of ascending positions, n >= 1 in all, that are pos or before. */
static int32_t slots_until(const int32_t *positions, int32_t n, int64_t pos) {
    int32_t low = 0, high = n;
    if (positions[n - 1] <= pos) return n; /* nearly always */
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (positions[middle] <= pos) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* positions: of a head's slots. */
static uint64_t visible_by_position(const kv_view *v, const int32_t *positions, int32_t n_slots, int32_t block, int64_t pos, int32_t window) {
    const int32_t first = block * KV_BLOCK_SLOTS, n = BASE_MIN(n_slots - first, KV_BLOCK_SLOTS);
    if (n <= 0) return 0;
    const uint64_t visible = v->mask[block] & low_bits(slots_until(positions + first, n, pos));
    return window > 0 ? visible & ~low_bits(slots_until(positions + first, n, pos - window)) : visible;
}

uint64_t kv_view_visible(const kv_view *v, int32_t layer, int32_t kv_head, int32_t block, int32_t pos, int32_t window) {
    const int32_t *positions = kv_span_positions(v->span, layer, kv_head);
    if (positions) return visible_by_position(v, positions, kv_span_slots(v->span, layer, kv_head), block, (int64_t)pos - v->shift, window);
    int32_t first = v->span->first_pos + v->shift + block * KV_BLOCK_SLOTS;
    uint64_t visible = v->mask[block] & low_bits(pos - first + 1);
    return window > 0 ? visible & ~low_bits(pos - first + 1 - window) : visible;
}
