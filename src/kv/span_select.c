/* SPDX-License-Identifier: Apache-2.0 */
/* span_select.c: reduced spans made of slots of other spans, copied byte by byte: kv_span_reduce, kv_span_collect. */
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "kv/span_internal.h"

int32_t kv_reduced_spans(const kv_selection *selection) {
    return BASE_DIV_UP(kv_selection_most(selection), KV_SPAN_TOKENS);
}

/* Slots of the run: selected ones [begin, end) of a head. Returns their number. */
static int32_t list_selected(const kv_selection *selection, int32_t layer, int32_t kv_head, int32_t begin, int32_t end,
                             int32_t *out) {
    const uint64_t *bits = kv_selection_head(selection, layer, kv_head);
    int32_t n = 0, listed = 0;
    for (int32_t i = 0; i < kv_selection_words(selection) && n < end; i++)
        for (uint64_t left = bits[i]; left && n < end; left &= left - 1, n++)
            if (n >= begin) out[listed++] = i * 64 + base_ctz64(left);
    return listed;
}

/* Copies of a head, which a device makes together. */
typedef struct slot_copies {
    kv_row_copy rows[2 * KV_SLOT_COPIES * KV_SPAN_TOKENS];
    size_t n;
} slot_copies;

/* indices: of the head's slots, in from. */
static void copy_slots(const kv_source *from, const int32_t *indices, kv_span *to, int32_t layer, int32_t kv_head,
                       slot_copies *copies) {
    const kv_layer *l = &to->plan->layers[layer];
    kv_memory *memory = kv_pool_memory(to->pool);
    copies->n = 0;
    for (int32_t slot = 0, n = kv_span_slots(to, layer, kv_head); slot < n; slot++) {
        const kv_span *s = from[indices[slot]].span;
        const int32_t slot_from = from[indices[slot]].slot, block = slot_from / KV_BLOCK_SLOTS;
        BASE_ASSERT(kv_span_has(s, layer, block));
        for (int is_key = 0; is_key < 2; is_key++) {
            kv_address (*const head)(const kv_span *, int32_t, int32_t, int32_t) =
                is_key ? kv_span_keys : kv_span_values;
            copies->n += kv_slot_copies(l, is_key, head(s, layer, block, kv_head), slot_from % KV_BLOCK_SLOTS,
                                        head(to, layer, slot / KV_BLOCK_SLOTS, kv_head), slot % KV_BLOCK_SLOTS,
                                        copies->rows + copies->n);
        }
    }
    BASE_ASSERT(copies->n <= BASE_ARRAY_LEN(copies->rows));
    if (copies->n > 0) memory->ops->copy_rows(memory, copies->rows, copies->n);
}

/* The slots of each head, and the lowest and highest position. */
static kv_span_form form_of_lists(const kv_span *from, const kv_selection *selection, const uint16_t *slots,
                                  const int32_t *positions) {
    kv_span_form f = {
        .format = from->plan->shape.format,
        .first_pos = INT32_MAX,
        .readable_from = INT32_MIN,
        .slots = slots,
        .n_kv_heads = selection->n_kv_heads,
        .n_parts = kv_reduced_spans(selection),
    };
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
    const size_t n_most = (size_t)n_heads * KV_SPAN_TOKENS,
                 bytes = sizeof(slot_copies) + n_most * 2 * sizeof(int32_t) + (size_t)n_heads * sizeof(uint16_t);
    const kv_span *any = from[0].span;
    *out = NULL;
    if (n_heads > KV_REDUCED_MAX_HEADS)
        return base_fail(err, RP_ERR_LIMIT, "a reduced span of %d heads: at most %d", n_heads, KV_REDUCED_MAX_HEADS);
    slot_copies *copies = base_alloc(bytes);
    if (!copies) return base_fail_memory(err, bytes, "a span");
    int32_t *positions = (int32_t *)(copies + 1), *indices = positions + n_most, n = 0;
    uint16_t *slots = (uint16_t *)(indices + n_most);
    BASE_ASSERT(any->n_layers == selection->n_layers && span_heads(any) == n_kv_heads);
    BASE_ASSERT(!kv_format_is_encoded(any->plan->shape.format) && i < kv_reduced_spans(selection));
    for (int32_t head = 0; head < n_heads; n += slots[head++]) {
        const int32_t begin = i * KV_SPAN_TOKENS;
        slots[head] = (uint16_t)list_selected(selection, head / n_kv_heads, head % n_kv_heads, begin,
                                              begin + KV_SPAN_TOKENS, indices + n);
    }
    for (int32_t k = 0; k < n; k++) positions[k] = kv_span_slot_position(from[indices[k]].span, from[indices[k]].slot);
    kv_span_form form = form_of_lists(any, selection, slots, positions);
    for (int32_t k = 0; k < selection->n_slots; k++)
        form.readable_from = BASE_MAX(form.readable_from, from[k].span->readable_from);
    const int rc = span_new_of_form(out, kv_pool_home(any->pool), &form, err);
    if (!rc) memcpy((*out)->head_positions, positions, sizeof(*positions) * (size_t)n);
    for (int32_t head = 0, k = 0; !rc && head < n_heads; k += slots[head++])
        copy_slots(from, indices + k, *out, head / n_kv_heads, head % n_kv_heads, copies);
    base_free(copies);
    return rc;
}

int kv_span_reduce(kv_span **out, const kv_span *const *from, size_t n_from, const kv_selection *selection, int32_t i,
                   rp_error *err) {
    const size_t bytes = sizeof(kv_source) * (size_t)selection->n_slots;
    kv_source *sources = base_alloc(bytes);
    *out = NULL;
    if (!sources) return base_fail_memory(err, bytes, "a span");
    BASE_ASSERT(selection->n_slots == (int32_t)(n_from - 1) * KV_SPAN_TOKENS + from[n_from - 1]->n_tokens);
    for (int32_t slot = 0; slot < selection->n_slots; slot++)
        sources[slot] = (kv_source){from[slot / KV_SPAN_TOKENS], slot % KV_SPAN_TOKENS};
    const int rc = kv_span_collect(out, sources, selection, i, err);
    base_free(sources);
    return rc;
}
