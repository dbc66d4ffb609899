/* SPDX-License-Identifier: Apache-2.0 */
/* span_packed.c: spans of another format than the pool's. Each block is one cell (kv_layer.h) for each head, and cells,
 * or their parts, fill blocks of the pool, layer by layer:
 *
 *   blocks of the pool   [layer 0: head 0][layer 0: head 1] ... | [layer 1: head 0] ... | layers that are apart
 *
 * A span that grows begins each column of 64 tokens with a new block of the pool; one that is made whole has no gaps
 * between columns. */
#include "base/error.h"
#include "kv/span_internal.h"

#define NO_PLACE (-1)

int span_new_packed(kv_span **out, kv_pool *pool, rp_kv_format format, int32_t first_pos, bool scattered,
                    rp_error *err) {
    const kv_plan *plan = kv_pool_plan(pool, format);
    BASE_ASSERT(plan->column_blocks >= 0);
    const size_t n_blocks = (size_t)plan->column_blocks * KV_SPAN_BLOCKS,
                 n_places = (size_t)plan->shape.n_layers * KV_SPAN_BLOCKS;
    const size_t n_positions = scattered ? KV_SPAN_TOKENS : 0;
    const int rc =
        span_new(out, pool, &span_packed, format, first_pos, n_blocks, sizeof(int32_t) * (n_positions + n_places), err);
    if (rc) return rc;
    kv_span *s = *out;
    s->place = (int32_t *)(s->blocks + n_blocks) + n_positions;
    if (scattered) s->positions = (int32_t *)(s->blocks + n_blocks);
    return RP_OK;
}

/* Numbers of cells, and of blocks of layers that are apart, while layers are given their places. */
typedef struct counts {
    int32_t cells, apart;
} counts;

static void place_layer(kv_span *s, int32_t layer, int32_t block, bool has, counts *n) {
    const kv_place *p = &s->plan->places[layer];
    int32_t *place = &s->place[(size_t)block * (size_t)s->n_layers + (size_t)layer];
    if (!has || s->plan->layers[layer].kind == KV_STATE) {
        *place = NO_PLACE;
    } else if (p->is_apart) {
        *place = n->apart;
        n->apart += p->n_blocks;
    } else {
        *place = n->cells;
        n->cells += s->plan->layers[layer].n_heads;
    }
}

static int32_t blocks_of_cells(const kv_span *s, int32_t n_cells) {
    return n_cells > 0 ? kv_packing_blocks(&s->plan->packing, n_cells) : 0;
}

static int packed_append(kv_span *s, rp_error *err) {
    counts n = {0};
    const int32_t block = s->n_blocks, first = (int32_t)s->n_pool_blocks;
    BASE_ASSERT(block < KV_SPAN_BLOCKS);
    const int rc = kv_pool_take(s->pool, s->blocks + s->n_pool_blocks, (size_t)s->plan->column_blocks, err);
    if (rc) return rc;
    for (int32_t i = 0; i < s->n_layers; i++) place_layer(s, i, block, true, &n);
    s->first_block[block] = first;
    s->first_apart[block] = first + blocks_of_cells(s, n.cells);
    s->n_pool_blocks += (size_t)s->plan->column_blocks;
    s->n_blocks++;
    BASE_ASSERT(s->first_apart[block] + n.apart == (int32_t)s->n_pool_blocks);
    return RP_OK;
}

/* All columns, without gaps between them. */
static int packed_take(kv_span *s, const kv_span_form *form, rp_error *err) {
    counts n = {0};
    s->n_blocks = span_cells_of(s->n_tokens);
    for (int32_t b = 0; b < s->n_blocks; b++)
        for (int32_t i = 0; i < s->n_layers; i++) place_layer(s, i, b, form->kept[i] >> b & 1, &n);
    const int32_t first_apart = blocks_of_cells(s, n.cells);
    for (int32_t b = 0; b < s->n_blocks; b++) s->first_apart[b] = first_apart;
    BASE_ASSERT(first_apart + n.apart <= s->plan->column_blocks * KV_SPAN_BLOCKS); /* the space of blocks[] */
    const int rc = kv_pool_take(s->pool, s->blocks, (size_t)(first_apart + n.apart), err);
    if (!rc) s->n_pool_blocks = (size_t)(first_apart + n.apart);
    return rc;
}

static int32_t place_of(const kv_span *s, int32_t layer, int32_t block) {
    return s->place[(size_t)block * (size_t)s->n_layers + (size_t)layer];
}

static bool packed_has(const kv_span *s, int32_t layer, int32_t block) { return place_of(s, layer, block) != NO_PLACE; }

static kv_address packed_part(const kv_span *s, int32_t layer, int32_t block, int32_t kv_head, int part) {
    const kv_layer *l = &s->plan->layers[layer];
    const kv_place *p = &s->plan->places[layer];
    const int32_t place = place_of(s, layer, block);
    BASE_DCHECK(place != NO_PLACE);
    if (p->is_apart) return span_part_of(l, &p->packing, s->blocks + s->first_apart[block] + place, kv_head, part);
    return span_part_of(l, &s->plan->packing, s->blocks + s->first_block[block], (int64_t)place + kv_head, part);
}

const span_layout span_packed = {.append = packed_append, .take = packed_take, .has = packed_has, .part = packed_part};
