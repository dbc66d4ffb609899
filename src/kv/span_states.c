/* SPDX-License-Identifier: Apache-2.0 */
/* span_states.c: spans of states: what the layers of the kind STATE hold after the token before the span's position.
 * They have no tokens. A layer's state fills blocks of the pool of its own, in the order of its bytes:
 *
 *   blocks of the pool   [layer 0: bytes 0 ..][layer 0: ..][layer 3: bytes 0 ..] ...      layers of other kinds have
 *         none
 */
#include "base/error.h"
#include "kv/span_internal.h"

/* Index of a layer's first block; of the layer after the last: their number. */
static size_t index_of(const kv_pool *pool, int32_t layer) {
    const size_t block = kv_pool_block_bytes(pool);
    const kv_layer_shape *layers = kv_pool_shape(pool)->layers;
    size_t n = 0;
    for (int32_t i = 0; i < layer; i++) n += kv_state_blocks(&layers[i], block);
    return n;
}

int64_t kv_states_blocks(const kv_pool *pool) { return (int64_t)index_of(pool, kv_pool_shape(pool)->n_layers); }

int span_new_states(kv_span **out, kv_pool *pool, int32_t first_pos, rp_error *err) {
    const kv_shape *shape = kv_pool_shape(pool);
    BASE_ASSERT(first_pos > 0); /* before any token there is no state */
    return span_new(out, pool, &span_states, shape->format, first_pos, index_of(pool, shape->n_layers), 0, err);
}

static int states_take(kv_span *s, const kv_span_form *form, rp_error *err) {
    const size_t n = index_of(s->pool, s->n_layers);
    BASE_ASSERT(form->is_states && s->n_tokens == 0 && n > 0);
    const int rc = kv_pool_take_both(s->pool, s->blocks, index_of(s->pool, kv_pool_host_layers(s->pool)), n, err);
    if (!rc) s->n_pool_blocks = n;
    return rc;
}

/* No slots: has and part are never called. */
const span_layout span_states = {.take = states_take};

bool kv_span_is_states(const kv_span *s) { return s->layout == &span_states; }

/* Between a layer's state and bytes on the host, block by block: to or from is NULL. */
static void copy_state(const kv_span *s, int32_t layer, uint8_t *to, const uint8_t *from) {
    kv_memory *m = kv_pool_layer_memory(s->pool, layer);
    const size_t bytes = kv_pool_shape(s->pool)->layers[layer].state_bytes, block = kv_pool_block_bytes(s->pool);
    const kv_address *blocks = s->blocks + index_of(s->pool, layer);
    BASE_ASSERT(kv_span_is_states(s) && s->plan->layers[layer].kind == KV_STATE);
    for (size_t at = 0; at < bytes; at += block, blocks++) {
        if (to) m->ops->read(m, kv_block_address(*blocks), BASE_MIN(block, bytes - at), to + at);
        else m->ops->write(m, from + at, BASE_MIN(block, bytes - at), kv_block_address(*blocks));
    }
}

void kv_span_get_state(const kv_span *s, int32_t layer, void *to) { copy_state(s, layer, to, NULL); }

void kv_span_put_state(kv_span *s, int32_t layer, const void *from) {
    BASE_ASSERT(!s->sealed || layer >= span_layers_ready(s)); /* invariant 2 */
    copy_state(s, layer, NULL, from);
}
