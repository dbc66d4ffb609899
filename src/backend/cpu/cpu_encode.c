/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_encode.c: elements of KV blocks, and the encoding of complete spans, on the CPU. Tasks of encoding are (layer,
 * block, KV head); a head's bytes are a function of its own slots. A layer in f16 is f16 in both spans, as a rule, and
 * copied. */
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_kv_elements.h"

float cpu_stored_element(kv_element e, const void *head, bool is_key, int64_t dim, int slot, int64_t d) {
    const int bits = kv_element_bits(e);
    if (!kv_element_is_encoded(e)) return cpu_element_rows[e]->load(head, is_key, dim, slot, d);
    return is_key ? kernel_bits_key(head, bits, dim, slot, d) : kernel_bits_value(head, bits, dim, slot, d);
}

void cpu_elements(const kv_layer *l, const void *head, bool is_key, int slot, float *out) {
    const int64_t dim = is_key ? l->key_dim : l->value_dim, size = kernel_hadamard_size(dim);
    const kv_element e = kv_format_side(l->format, is_key);
    const bool is_transformed = is_key && e == KV_ELEMENT_INT8;
    for (int64_t d = 0; d < dim; d++) out[d] = cpu_stored_element(e, head, is_key, dim, slot, d);
    if (!is_transformed) return;
    kernel_hadamard(out, dim, size);
    for (int64_t d = 0; d < dim; d++) out[d] /= (float)size;
}

typedef struct encode_job {
    const cpu_backend *b;
    const kv_span *from, *to;
    float *slots; /* of each thread: [64][the larger dimension] */
} encode_job;

static int64_t slots_floats(const model_hparams *hp) {
    return (int64_t)KV_BLOCK_SLOTS * BASE_MAX(hp->key_dim, hp->value_dim);
}

void cpu_encode_head(const kernel_table *k, const kv_layer *from_layer, const void *from, bool is_key, int n, float *x,
                     const kv_layer *to_layer, void *to) {
    const int64_t dim = is_key ? to_layer->key_dim : to_layer->value_dim;
    const kv_element e = kv_format_side(to_layer->format, is_key);
    BASE_ASSERT(n > 0 && n <= KV_BLOCK_SLOTS);
    if (e == kv_format_side(from_layer->format, is_key)) { /* not rounded again */
        memcpy(to, from, is_key ? to_layer->key_bytes : to_layer->value_bytes);
        return;
    }
    for (int slot = 0; slot < n; slot++) cpu_elements(from_layer, from, is_key, slot, x + slot * dim);
    if (kv_element_is_encoded(e)) {
        (is_key ? kernel_encode_keys : kernel_encode_values)(kv_element_bits(e), x, n, dim, to);
        return;
    }
    const cpu_store_fn store = cpu_element_rows[e]->store(k, is_key);
    if (e == KV_ELEMENT_INT8 && is_key) kernel_hadamard(x, n * dim, kernel_hadamard_size(dim));
    for (int slot = 0; slot < n; slot++) store(x + slot * dim, dim, to, slot);
}

static void encode_heads(void *arg, int64_t begin, int64_t end, int thread) {
    const encode_job *j = arg;
    const kernel_table *k = &j->b->kernels;
    const int32_t n_heads = j->b->net->hp.n_kv_heads,
                  n_blocks = BASE_DIV_UP(kv_span_tokens(j->from), KV_BLOCK_SLOTS);
    float *x = j->slots + thread * slots_floats(&j->b->net->hp);
    for (int64_t i = begin; i < end; i++) {
        const int32_t head = (int32_t)(i % n_heads), block = (int32_t)(i / n_heads % n_blocks),
                      layer = (int32_t)(i / n_heads / n_blocks);
        if (head >= kv_span_layer(j->from, layer)->n_heads) continue; /* n_heads: of the layer with most */
        const int n = BASE_MIN(kv_span_slots(j->from, layer, head) - block * KV_BLOCK_SLOTS, KV_BLOCK_SLOTS);
        if (n <= 0 || (!kv_span_is_reduced(j->from) && !kv_span_has(j->from, layer, block))) continue;
        const kv_layer *from = kv_span_layer(j->from, layer), *to = kv_span_layer(j->to, layer);
        cpu_encode_head(k, from, cpu_keys(j->from, layer, block, head), true, n, x, to,
                        cpu_keys(j->to, layer, block, head));
        cpu_encode_head(k, from, cpu_values(j->from, layer, block, head), false, n, x, to,
                        cpu_values(j->to, layer, block, head));
    }
}

int cpu_encode(backend *self, const kv_span *from, kv_span *to, rp_error *err) {
    cpu_backend *b = (cpu_backend *)self;
    encode_job j = {.b = b, .from = from, .to = to};
    const uint64_t bytes =
        sizeof(float) * (uint64_t)slots_floats(&b->net->hp) * (uint64_t)base_threads_count(b->threads);
    const int64_t n_blocks = BASE_DIV_UP(kv_span_tokens(from), KV_BLOCK_SLOTS);
    BASE_ASSERT(kv_span_tokens(from) == kv_span_tokens(to) && !kv_span_is_sealed(to)); /* kv_span_new_like */
    BASE_ASSERT(kv_format_is_encoded(kv_span_format(to)) && !kv_format_is_encoded(kv_span_format(from)));
    if (!(j.slots = base_alloc((size_t)bytes))) return base_fail_memory(err, bytes, "the encoding of KV");
    base_threads_for(b->threads, encode_heads, &j, n_blocks * b->shape.n_layers * b->net->hp.n_kv_heads, 8);
    base_free(j.slots);
    return RP_OK;
}

/* ---- elements of a run ---- */

typedef struct read_job {
    const kv_span *const *run;
    int32_t layer, kv_head;
    bool is_key;
    float *to;
} read_job;

void cpu_read_slots(const kv_span *const *run, int32_t layer, int32_t kv_head, bool is_key, int64_t begin, int64_t end,
                    float *to) {
    for (int64_t slot = begin; slot < end; slot++) {
        const kv_span *s = run[slot / KV_SPAN_TOKENS];
        BASE_DCHECK(!kv_span_is_reduced(s));
        const int32_t block = (int32_t)(slot % KV_SPAN_TOKENS) / KV_BLOCK_SLOTS;
        const kv_layer *l = kv_span_layer(s, layer);
        const int64_t dim = is_key ? l->key_dim : l->value_dim;
        if (!kv_span_has(s, layer, block)) {
            memset(to + slot * dim, 0, sizeof(*to) * (size_t)dim);
            continue;
        }
        const void *head = (is_key ? cpu_keys : cpu_values)(s, layer, block, kv_head);
        cpu_elements(l, head, is_key, (int)(slot % KV_BLOCK_SLOTS), to + slot * dim);
    }
}

/* A base_loop_fn. */
static void read_slots(void *arg, int64_t begin, int64_t end, int thread) {
    const read_job *j = arg;
    (void)thread;
    cpu_read_slots(j->run, j->layer, j->kv_head, j->is_key, begin, end, j->to);
}

int cpu_read_head(backend *self, const kv_span *const *run, size_t n, int32_t layer, int32_t kv_head, bool is_key,
                  float *to, rp_error *err) {
    cpu_backend *b = (cpu_backend *)self;
    read_job j = {.run = run, .layer = layer, .kv_head = kv_head, .is_key = is_key, .to = to};
    (void)err; /* nothing fails */
    base_threads_for(b->threads, read_slots, &j, kv_span_end(run[n - 1]) - kv_span_position(run[0]), KV_BLOCK_SLOTS);
    return RP_OK;
}
