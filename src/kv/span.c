/* SPDX-License-Identifier: Apache-2.0 */
/* span.c: see span.h. What all layouts share; each layout has a file of its own (span_internal.h). */
#include "kv/span.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "kv/span_internal.h"
#include "kv/span_memory.h"

int32_t kv_column_blocks(const kv_pool *pool, rp_kv_format format) {
    BASE_ASSERT(kv_pool_takes(pool, format));
    return kv_pool_plan(pool, format)->column_blocks;
}

/* ---- life ---- */

int kv_span_new(kv_span **out, kv_pool *pool, int32_t first_pos, rp_error *err) {
    return span_new_plain(out, pool, first_pos, false, err);
}

static int new_of_format(kv_span **out, kv_pool *pool, rp_kv_format format, int32_t first_pos, bool scattered,
                         rp_error *err) {
    if (format == kv_pool_shape(pool)->format) return span_new_plain(out, pool, first_pos, scattered, err);
    return span_new_packed(out, pool, format, first_pos, scattered, err);
}

int kv_span_new_in(kv_span **out, kv_pool *pool, rp_kv_format format, int32_t first_pos, rp_error *err) {
    return new_of_format(out, pool, format, first_pos, false, err);
}

int kv_span_new_scattered(kv_span **out, kv_pool *pool, rp_kv_format format, int32_t first_pos, rp_error *err) {
    return new_of_format(out, pool, format, first_pos, true, err);
}

kv_span *kv_span_ref(kv_span *s) {
    const int before = atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    BASE_ASSERT(before > 0); /* a span that is freed is nobody's */
    return s;
}

void kv_span_unref(kv_span *s) {
    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) return;
    size_t kept = 0;
    for (size_t i = 0; i < s->n_pool_blocks; i++)
        if (!kv_address_is_none(s->blocks[i])) s->blocks[kept++] = s->blocks[i];
    kv_pool_give(s->pool, s->blocks, kept);
    base_free(s);
}

bool kv_span_is_unshared(const kv_span *s) { return span_is_unshared(s); }

uint64_t kv_span_serial(const kv_span *s) { return s->serial; }

const kv_memory *kv_span_memory(const kv_span *s) { return kv_pool_memory(s->pool); }

/* The layer that the i-th block of the pool is of; of layouts that mix layers in a block: the first. */
static int32_t layer_of_block(const kv_span *s, size_t i) {
    int32_t layer = 0;
    if (!span_is_plain(s)) return 0;
    const int32_t at = (int32_t)(i % (size_t)s->plan->column_blocks);
    while (layer + 1 < s->n_layers && s->plan->column[layer + 1] <= at) layer++;
    return layer;
}

int kv_span_move(kv_span *s, kv_pool *to, rp_error *err) {
    const kv_memory *m = kv_pool_memory(s->pool);
    const size_t n = s->n_pool_blocks - (size_t)s->n_trimmed;
    BASE_ASSERT(s->sealed && to != s->pool && kv_pool_block_bytes(to) == kv_pool_block_bytes(s->pool));
    BASE_ASSERT(span_layers_ready(s) == s->n_layers && m->ops->copy_blocks && kv_pool_host_layers(s->pool) == 0);
    const size_t bytes = (2 * sizeof(kv_address) + sizeof(int32_t)) * BASE_MAX(n, 1);
    kv_address *from = base_alloc(bytes);
    if (!from) return base_fail_memory(err, bytes, "the blocks of a span");
    kv_address *moved = from + n;
    int32_t *layers = (int32_t *)(moved + n);
    size_t kept = 0;
    for (size_t i = 0; i < s->n_pool_blocks; i++) {
        if (kv_address_is_none(s->blocks[i])) continue;
        layers[kept] = layer_of_block(s, i);
        from[kept++] = s->blocks[i];
    }
    BASE_ASSERT(kept == n);
    int rc = kv_pool_take(to, moved, n, err);
    if (!rc && (rc = m->ops->copy_blocks(kv_pool_memory(s->pool), from, moved, layers, n, kv_pool_block_bytes(to),
                                         err)))
        kv_pool_give(to, moved, n);
    if (!rc) {
        kv_pool_give_last(s->pool, from, n); /* the copy may not have begun */
        s->pool = to;
        s->serial = span_next_serial();
        s->plan = kv_pool_plan(to, s->plan->shape.format);
        for (size_t i = 0, k = 0; i < s->n_pool_blocks; i++)
            if (!kv_address_is_none(s->blocks[i])) s->blocks[i] = moved[k++];
    }
    base_free(from);
    return rc;
}

int kv_span_append(kv_span *s, int32_t *slot, rp_error *err) {
    BASE_ASSERT(!s->sealed && s->n_tokens < KV_SPAN_TOKENS); /* invariant 2 */
    BASE_ASSERT(kv_span_is_unshared(s));                     /* invariant 1 */
    BASE_ASSERT(s->layout->append && !kv_format_is_encoded(s->plan->shape.format));
    if (s->n_tokens == s->n_blocks * KV_BLOCK_SLOTS) {
        int rc = s->layout->append(s, err);
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

int32_t kv_span_readable_from(const kv_span *s) { return s->readable_from; }

void kv_span_seal(kv_span *s, const base_key *key) {
    BASE_ASSERT(!s->sealed && kv_span_is_unshared(s)); /* invariant 1 */
    BASE_ASSERT(!s->positions);                        /* invariant 7 */
    s->key = *key;
    s->sealed = true;
}

/* ---- forms ---- */

static bool has_states(const kv_shape *shape) {
    bool has = false;
    for (int32_t i = 0; i < shape->n_layers && !has; i++) has = shape->layers[i].kind == KV_STATE;
    return has;
}

/* Only layers with a window may lack blocks, unless the span is reduced. */
bool kv_form_is_possible(const kv_span_form *f, const kv_shape *shape) {
    if (f->is_states)
        return !f->slots && f->n_tokens == 0 && f->first_pos > 0 && has_states(shape) && f->format == shape->format;
    if (f->n_tokens < 1 || f->n_tokens > KV_SPAN_TOKENS || f->first_pos < 0 ||
        f->first_pos > INT32_MAX - KV_SPAN_TOKENS)
        return false;
    if (f->slots) return span_reduced_is_possible(f, shape);
    for (int32_t i = 0; i < shape->n_layers; i++) {
        const kv_layer_shape *l = &shape->layers[i];
        const uint8_t all = l->kind == KV_STATE ? 0 : span_all_blocks(f->n_tokens);
        if (f->kept[i] & ~all || (l->window == 0 && f->kept[i] != all)) return false;
    }
    return true;
}

static size_t slots_bytes(const kv_span_form *f, int32_t n_layers) {
    return f->slots ? sizeof(*f->slots) * (size_t)n_layers * (size_t)f->n_kv_heads : 0;
}

size_t kv_form_bytes(const kv_span_form *form, int32_t n_layers) {
    return slots_bytes(form, n_layers) + (size_t)n_layers;
}

kv_span_form kv_form_copy(const kv_span_form *form, int32_t n_layers, void *arrays) {
    kv_span_form copy = *form;
    uint8_t *kept = (uint8_t *)arrays + slots_bytes(form, n_layers);
    if (form->slots) copy.slots = memcpy(arrays, form->slots, slots_bytes(form, n_layers));
    copy.kept = memcpy(kept, form->kept, (size_t)n_layers);
    return copy;
}

size_t kv_span_form_bytes(const kv_span *s) {
    return (size_t)s->n_layers + (s->first_slots ? sizeof(uint16_t) * (size_t)s->n_layers * (size_t)span_heads(s) : 0);
}

kv_span_form kv_span_describe(const kv_span *s, void *arrays) {
    const int32_t n_heads = s->first_slots ? s->n_layers * span_heads(s) : 0;
    uint16_t *slots = arrays;
    uint8_t *kept = (uint8_t *)(slots + n_heads);
    for (int32_t i = 0; i < n_heads; i++) slots[i] = (uint16_t)(s->first_slots[i + 1] - s->first_slots[i]);
    /* blocks after the last token, which an open span may have kept, are not the span's */
    for (int32_t i = 0; i < s->n_layers; i++) kept[i] = kv_span_kept(s, i) & span_all_blocks(s->n_tokens);
    return (kv_span_form){.format = s->plan->shape.format,
                          .first_pos = s->first_pos,
                          .n_tokens = s->n_tokens,
                          .readable_from = s->readable_from,
                          .kept = kept,
                          .slots = s->first_slots ? slots : NULL,
                          .n_kv_heads = s->first_slots ? span_heads(s) : 0,
                          .end = s->end,
                          .n_parts = s->n_parts,
                          .is_states = kv_span_is_states(s)};
}

bool kv_span_has_form(const kv_span *s, const kv_span_form *form) {
    bool same = form->format == s->plan->shape.format && form->first_pos == s->first_pos &&
                form->n_tokens == s->n_tokens && form->readable_from == s->readable_from &&
                !form->slots == !s->first_slots && form->is_states == kv_span_is_states(s);
    if (same && form->slots)
        same = form->n_kv_heads == span_heads(s) && form->end == s->end && form->n_parts == s->n_parts;
    for (int32_t i = 0; same && i < s->n_layers; i++) {
        same = form->kept[i] == (kv_span_kept(s, i) & span_all_blocks(s->n_tokens));
        for (int32_t h = 0; same && form->slots && h < form->n_kv_heads; h++)
            same = form->slots[(int64_t)i * form->n_kv_heads + h] == kv_span_slots(s, i, h);
    }
    return same;
}

static bool pool_takes_form(const kv_pool *pool, const kv_span_form *form) {
    return kv_pool_takes(pool, form->format) && !(form->slots && kv_pool_host_layers(pool) > 0);
}

int64_t kv_form_blocks(const kv_pool *pool, const kv_span_form *form) {
    int64_t first_apart;
    if (!pool_takes_form(pool, form)) return 0;
    if (form->is_states) return kv_states_blocks(pool);
    return form->slots ? span_reduced_blocks(pool, form, &first_apart)
                       : kv_plan_blocks(kv_pool_plan(pool, form->format), form->kept);
}

int span_new_of_form(kv_span **out, kv_pool *pool, const kv_span_form *form, rp_error *err) {
    int rc = RP_OK;
    if (form->is_states) rc = span_new_states(out, pool, form->first_pos, err);
    else if (form->slots) rc = span_new_reduced(out, pool, form, err);
    else rc = kv_span_new_in(out, pool, form->format, form->first_pos, err);
    if (rc) return rc;
    kv_span *s = *out;
    s->n_tokens = form->n_tokens;
    s->readable_from = form->readable_from;
    BASE_ASSERT(s->n_tokens <= KV_SPAN_TOKENS && s->n_blocks == 0);
    if ((rc = s->layout->take(s, form, err))) {
        kv_span_unref(s);
        *out = NULL;
    }
    return rc;
}

int kv_span_new_states(kv_span **out, kv_pool *pool, int32_t pos, rp_error *err) {
    const kv_span_form form = {
        .format = kv_pool_shape(pool)->format, .first_pos = pos, .readable_from = INT32_MIN, .is_states = true};
    return span_new_of_form(out, pool, &form, err);
}

int kv_span_new_like(kv_span **out, const kv_span *from, rp_kv_format format, rp_error *err) {
    void *arrays = base_alloc(kv_span_form_bytes(from));
    *out = NULL;
    BASE_ASSERT(!from->positions);
    if (!arrays) return base_fail_memory(err, kv_span_form_bytes(from), "a span");
    kv_span_form form = kv_span_describe(from, arrays);
    form.format = format;
    const int rc = span_new_of_form(out, kv_pool_home(from->pool), &form, err);
    base_free(arrays);
    if (!rc && from->first_slots)
        memcpy((*out)->head_positions, from->head_positions,
               sizeof(int32_t) * (size_t)from->first_slots[from->n_layers * span_heads(from)]);
    return rc;
}

/* ---- loading ---- */

int kv_span_restore(kv_span **out, kv_pool *pool, const kv_span_form *form, const base_key *key, rp_error *err) {
    *out = NULL;
    if (!kv_form_is_possible(form, kv_pool_shape(pool)))
        return base_fail(err, RP_ERR_FORMAT, "a span of %d tokens at %d", form->n_tokens, form->first_pos);
    if (!pool_takes_form(pool, form))
        return base_fail(err, RP_ERR_FORMAT, "a span in %s", kv_format_name(form->format));
    int rc = span_new_of_form(out, pool, form, err);
    kv_span *s = *out;
    if (!s) return rc;
    atomic_init(&s->ready, 0);
    if (key) kv_span_seal(s, key);
    return RP_OK;
}

void kv_span_set_ready(kv_span *s, int32_t n) {
    BASE_ASSERT(n >= span_layers_ready(s) && n <= s->n_layers); /* layers only become ready */
    atomic_store_explicit(&s->ready, n, memory_order_release);
    kv_pool_notify_filled(s->pool);
}

void kv_span_set_failed(kv_span *s) {
    atomic_store_explicit(&s->failed, true, memory_order_relaxed);
    kv_span_set_ready(s, s->n_layers);
}

int32_t kv_span_layers_ready(const kv_span *s) { return span_layers_ready(s); }
bool kv_span_has_failed(const kv_span *s) { return atomic_load_explicit(&s->failed, memory_order_relaxed); }

void kv_span_wait(const kv_span *s, int32_t n) {
    if (kv_span_layers_ready(s) < n) kv_pool_wait_filled(s->pool, &s->ready, n);
}

/* ---- contents ---- */

uint8_t kv_span_kept(const kv_span *s, int32_t layer) {
    uint8_t kept = 0;
    for (int32_t b = 0; b < s->n_blocks; b++) kept |= (uint8_t)(s->layout->has(s, layer, b) << b);
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

int32_t kv_span_slots(const kv_span *s, int32_t layer, int32_t kv_head) { return span_slots_of(s, layer, kv_head); }
const int32_t *kv_span_positions(const kv_span *s, int32_t layer, int32_t kv_head) {
    return span_positions_of(s, layer, kv_head);
}

int32_t kv_span_slot_position(const kv_span *s, int32_t slot) {
    BASE_DCHECK(!s->first_slots);
    return s->positions ? s->positions[slot] : s->first_pos + slot;
}

const base_key *kv_span_key(const kv_span *s) { return &s->key; }

rp_kv_format kv_span_format(const kv_span *s) { return s->plan->shape.format; }
const kv_shape *kv_span_shape(const kv_span *s) { return &s->plan->shape; }
const kv_layer *kv_span_layer(const kv_span *s, int32_t layer) { return &s->plan->layers[layer]; }
bool kv_span_has_pool_format(const kv_span *s) { return span_is_plain(s); }
rp_kv_format kv_span_layer_format(const kv_span *s, int32_t layer) { return s->plan->layers[layer].format; }

uint64_t kv_span_bytes(const kv_span *s) {
    return ((uint64_t)s->n_pool_blocks - (uint64_t)s->n_trimmed) * kv_pool_block_bytes(s->pool);
}

bool kv_span_has(const kv_span *s, int32_t layer, int32_t block) {
    BASE_DCHECK(block < s->n_blocks && layer < s->n_layers);
    BASE_ASSERT(!s->first_slots);
    return s->layout->has(s, layer, block);
}

kv_address kv_span_keys(const kv_span *s, int32_t layer, int32_t block, int32_t kv_head) {
    if (!span_is_whole(s, layer)) return s->layout->part(s, layer, block, kv_head, 0);
    return kv_address_plus(span_whole_block(s, layer, block), kv_block_keys_at(&s->plan->layers[layer], kv_head));
}

kv_address kv_span_values(const kv_span *s, int32_t layer, int32_t block, int32_t kv_head) {
    if (!span_is_whole(s, layer)) return s->layout->part(s, layer, block, kv_head, 1);
    return kv_address_plus(span_whole_block(s, layer, block), kv_block_values_at(&s->plan->layers[layer], kv_head));
}

/* Between a head's keys and values on the host, and those in a block. */
static void get_head(const kv_span *s, int32_t layer, int32_t block, int32_t kv_head, void *keys, void *values) {
    const kv_layer *l = &s->plan->layers[layer];
    kv_memory *m = kv_pool_layer_memory(s->pool, layer);
    m->ops->read(m, kv_span_keys(s, layer, block, kv_head), l->key_bytes, keys);
    m->ops->read(m, kv_span_values(s, layer, block, kv_head), l->value_bytes, values);
}

static void put_head(kv_span *s, int32_t layer, int32_t block, int32_t kv_head, const void *keys, const void *values) {
    const kv_layer *l = &s->plan->layers[layer];
    kv_memory *m = kv_pool_layer_memory(s->pool, layer);
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
    kv_memory *m = kv_pool_layer_memory(s->pool, layer);
    uint8_t *bytes = to;
    BASE_ASSERT(!s->first_slots);
    if (span_is_whole(s, layer)) {
        m->ops->read(m, span_whole_block(s, layer, block), l->block_bytes, to);
        return;
    }
    for (int32_t h = 0; h < l->n_heads; h++)
        get_head(s, layer, block, h, bytes + kv_block_keys_at(l, h), bytes + kv_block_values_at(l, h));
}

void kv_span_put_block(kv_span *s, int32_t layer, int32_t block, const void *from) {
    const kv_layer *l = &s->plan->layers[layer];
    kv_memory *m = kv_pool_layer_memory(s->pool, layer);
    const uint8_t *bytes = from;
    BASE_ASSERT(!s->first_slots);
    if (span_is_whole(s, layer)) {
        m->ops->write(m, from, l->block_bytes, span_whole_block(s, layer, block));
        return;
    }
    for (int32_t h = 0; h < l->n_heads; h++)
        put_head(s, layer, block, h, bytes + kv_block_keys_at(l, h), bytes + kv_block_values_at(l, h));
}

bool kv_span_is_in_place(const kv_span *s, int32_t layer) {
    return span_is_whole(s, layer) && kv_pool_layer_memory(s->pool, layer)->ops->host_pointer;
}

void *kv_span_in_place(const kv_span *s, int32_t layer, int32_t block) {
    kv_memory *m = kv_pool_layer_memory(s->pool, layer);
    BASE_ASSERT(kv_span_is_in_place(s, layer) && kv_span_has(s, layer, block));
    return m->ops->host_pointer(m, span_whole_block(s, layer, block));
}

bool kv_span_is_lost(const kv_span *s) {
    kv_memory *m = kv_pool_memory(s->pool); /* the host's never fails */
    return m->ops->has_failed && m->ops->has_failed(m);
}
