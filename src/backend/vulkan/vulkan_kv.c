/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_kv.c: elements of KV formats, the encoding of complete spans, and reading of heads, on the device. A task is
 * the keys or values of one head in a block:
 *
 *   block of `from` --kv_read--> floats [slots][dimension], scratch --kv_encode--> block of `to`
 *
 * A head's bytes are a function of its own slots, and those of the CPU for the same slots (shaders/kv_rounding.glsl).
 * What has the same elements in both is copied. Heads are read by the first half: as floats, which the host gets.
 */
#include <string.h>

#include "backend/vulkan/vulkan_backend.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"

#define FLOATS_BYTES ((uint64_t)16 << 20) /* of scratch: as many tasks as fit are encoded at once */
#define MOST_TASKS 32768                  /* of a dispatch */

uint32_t vulkan_element_of(rp_kv_format format, bool is_key) {
    switch (kv_format_side(format, is_key)) {
    case KV_ELEMENT_F32: return VULKAN_ELEMENT_F32;
    case KV_ELEMENT_F16: return VULKAN_ELEMENT_F16;
    case KV_ELEMENT_INT8: return VULKAN_ELEMENT_INT8;
    case KV_ELEMENT_4BIT: return VULKAN_ELEMENT_4BIT;
    case KV_ELEMENT_2BIT: return VULKAN_ELEMENT_2BIT;
    default: break;
    }
    BASE_ASSERT(false); /* an element that shaders know */
    return VULKAN_ELEMENT_NONE;
}

/* Tasks of one batch, in the order of their scratch. */
typedef struct encoding {
    vulkan_backend *b;
    const kv_span *from;
    kv_span *to;
    vulkan_kv_task *read, *write; /* [MOST_TASKS], in memory of the step */
    uint64_t read_at, write_at, floats;
    uint32_t n_read, n_write;
    uint32_t most_slots;
} encoding;

static bool begin_batch(encoding *e) {
    const size_t bytes = sizeof(vulkan_kv_task) * MOST_TASKS;
    const vulkan_part read = vulkan_arena_take(e->b, bytes), write = vulkan_arena_take(e->b, bytes);
    e->read = read.host;
    e->write = write.host;
    e->read_at = read.address;
    e->write_at = write.address;
    e->n_read = e->n_write = e->most_slots = 0;
    e->floats = 0;
    return read.host && write.host;
}

static void record_batch(const encoding *e) {
    const vulkan_kv_args read = {e->read_at}, write = {e->write_at};
    vulkan_dispatch(e->b, VULKAN_KV_READ, 0, &read, sizeof(read), (uint32_t[]){e->n_read, e->most_slots, 1});
    vulkan_dispatch(e->b, VULKAN_KV_ENCODE, 0, &write, sizeof(write), (uint32_t[]){e->n_write, 1, 1});
}

/* false: the step has failed. */
static bool add_task(encoding *e, int32_t layer, int32_t block, int32_t head, bool is_key, uint32_t n) {
    const kv_layer *from = kv_span_layer(e->from, layer), *to = kv_span_layer(e->to, layer);
    const size_t bytes = is_key ? to->key_bytes : to->value_bytes;
    vulkan_kv_task source = {.head = (is_key ? kv_span_keys : kv_span_values)(e->from, layer, block, head).at,
                             .element = vulkan_element_of(from->format, is_key),
                             .dim = (uint32_t)(is_key ? to->key_dim : to->value_dim),
                             .n = n,
                             .is_key = is_key},
                   target = source;
    const uint64_t floats = sizeof(float) * (uint64_t)n * source.dim;
    target.head = (is_key ? kv_span_keys : kv_span_values)(e->to, layer, block, head).at;
    target.element = vulkan_element_of(to->format, is_key);
    BASE_ASSERT(target.element != VULKAN_ELEMENT_INT8 || source.element == VULKAN_ELEMENT_INT8); /* not encoded */
    if (e->n_write == MOST_TASKS || e->floats + floats > FLOATS_BYTES) {
        record_batch(e);
        if (!begin_batch(e)) return false;
    }
    if (source.element == target.element) { /* not rounded again */
        target.floats = source.head;
        target.element = VULKAN_ELEMENT_NONE;
        target.dim = (uint32_t)(bytes / sizeof(uint32_t));
    } else {
        source.floats = target.floats = e->b->kv_floats.address + e->floats;
        e->floats += floats;
        e->most_slots = BASE_MAX(e->most_slots, n);
        e->read[e->n_read++] = source;
    }
    e->write[e->n_write++] = target;
    return true;
}

static void record_encoding(encoding *e) {
    const int32_t n_blocks = BASE_DIV_UP(kv_span_tokens(e->from), KV_BLOCK_SLOTS);
    if (!begin_batch(e)) return;
    for (int32_t layer = 0; layer < e->b->shape.n_layers; layer++)
        for (int32_t block = 0; block < n_blocks; block++)
            for (int32_t head = 0; head < kv_span_layer(e->from, layer)->n_heads; head++) {
                const int32_t left = kv_span_slots(e->from, layer, head) - block * KV_BLOCK_SLOTS;
                const uint32_t n = (uint32_t)BASE_MIN(left, KV_BLOCK_SLOTS);
                if (left <= 0 || (!kv_span_is_reduced(e->from) && !kv_span_has(e->from, layer, block))) continue;
                if (!add_task(e, layer, block, head, true, n) || !add_task(e, layer, block, head, false, n)) return;
            }
    record_batch(e);
}

static int reserve_floats(vulkan_backend *b, rp_error *err) {
    if (b->kv_floats.handle) return RP_OK;
    return vulkan_take(b, VULKAN_ON_DEVICE, FLOATS_BYTES, "elements of KV", &b->kv_floats, err);
}

int vulkan_encode(backend *self, const kv_span *from, kv_span *to, rp_error *err) {
    vulkan_backend *b = vulkan(self);
    encoding e = {.b = b, .from = from, .to = to};
    BASE_ASSERT(kv_span_tokens(from) == kv_span_tokens(to) && !kv_span_is_sealed(to)); /* kv_span_new_like */
    BASE_ASSERT(kv_format_is_encoded(kv_span_format(to)) && !kv_format_is_encoded(kv_span_format(from)));
    const int rc = reserve_floats(b, err);
    if (rc) return rc;
    vulkan_work_begin(b);
    record_encoding(&e);
    b->base.ops->submit(self, NULL, 0);
    return b->base.ops->finish(self, err);
}

/* ---- reading ---- */

/* A head of a run of spans, whose slots are numbered from its first. */
typedef struct head_reading {
    vulkan_backend *b;
    const kv_span *const *run;
    int32_t layer, kv_head, n_slots;
    uint32_t dim;
    bool is_key;
} head_reading;

/* Is a slot's block there? */
static bool has_slot(const head_reading *h, int32_t slot) {
    return kv_span_has(h->run[slot / KV_SPAN_TOKENS], h->layer, slot % KV_SPAN_TOKENS / KV_BLOCK_SLOTS);
}

/* The task of the block that begins with a slot; its floats follow `first`'s, the first of the batch. */
static vulkan_kv_task block_task(const head_reading *h, int32_t slot, int32_t first) {
    const kv_span *s = h->run[slot / KV_SPAN_TOKENS];
    const int32_t block = slot % KV_SPAN_TOKENS / KV_BLOCK_SLOTS;
    BASE_DCHECK(!kv_span_is_reduced(s));
    return (vulkan_kv_task){
        .head = (h->is_key ? kv_span_keys : kv_span_values)(s, h->layer, block, h->kv_head).at,
        .floats = h->b->kv_floats.address + sizeof(float) * h->dim * (uint64_t)(slot - first),
        .element = vulkan_element_of(kv_span_layer_format(s, h->layer), h->is_key),
        .dim = h->dim,
        .n = (uint32_t)BASE_MIN(h->n_slots - slot, KV_BLOCK_SLOTS),
        .is_key = h->is_key};
}

/* Reads slots [first, end), the first of a block. */
static int read_slots(const head_reading *h, int32_t first, int32_t end, float *to, rp_error *err) {
    vulkan_backend *b = h->b;
    const size_t n_blocks = BASE_DIV_UP((size_t)(end - first), KV_BLOCK_SLOTS),
                 bytes = sizeof(float) * h->dim * (size_t)(end - first);
    vulkan_work_begin(b);
    const vulkan_part tasks = vulkan_arena_take(b, sizeof(vulkan_kv_task) * n_blocks);
    if (tasks.host) {
        vulkan_kv_task *out = tasks.host;
        for (int32_t slot = first; slot < end; slot += KV_BLOCK_SLOTS)
            if (has_slot(h, slot)) *out++ = block_task(h, slot, first);
        const vulkan_kv_args a = {tasks.address};
        vulkan_dispatch(b, VULKAN_KV_READ, 0, &a, sizeof(a),
                        (uint32_t[]){(uint32_t)(out - (vulkan_kv_task *)tasks.host), KV_BLOCK_SLOTS, 1});
    }
    const void *floats = vulkan_read_now(b, &b->kv_floats, bytes);
    if (!floats) return b->base.ops->finish(&b->base, err);
    memcpy(to + (size_t)first * h->dim, floats, bytes);
    for (int32_t slot = first; slot < end; slot++)
        if (!has_slot(h, slot)) memset(to + (size_t)slot * h->dim, 0, sizeof(*to) * h->dim);
    return RP_OK;
}

int vulkan_read_head(backend *self, const kv_span *const *run, size_t n, int32_t layer, int32_t kv_head, bool is_key,
                     float *to, rp_error *err) {
    const kv_layer *l = kv_span_layer(run[0], layer);
    const head_reading h = {.b = vulkan(self),
                            .run = run,
                            .layer = layer,
                            .kv_head = kv_head,
                            .n_slots = kv_span_end(run[n - 1]) - kv_span_position(run[0]),
                            .dim = (uint32_t)(is_key ? l->key_dim : l->value_dim),
                            .is_key = is_key};
    const int32_t at_once = (int32_t)BASE_MIN(FLOATS_BYTES / (sizeof(float) * h.dim * KV_BLOCK_SLOTS), MOST_TASKS) *
                            KV_BLOCK_SLOTS; /* whole blocks */
    int rc = reserve_floats(h.b, err);
    BASE_ASSERT(at_once > 0);
    for (int32_t slot = 0; slot < h.n_slots && !rc; slot += at_once)
        rc = read_slots(&h, slot, BASE_MIN(slot + at_once, h.n_slots), to, err);
    return rc;
}
