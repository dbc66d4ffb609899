/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_indexer.c: indexers (DeepSeek Sparse Attention): keys of tokens, and the choice of those that a row's
 * attention sees.
 *
 *   sight of the layer -> a score for each slot of a row -> the highest index_top_k -> the sight `chosen`
 *
 * A score depends on the row's query and the slot's key alone, and the choice on the sequence of slots that the row
 * sees: neither depends on blocks, spans or the other rows of a step. The number of chosen slots is known in advance,
 * so that the host makes the table of rows; the device makes the masks of their blocks.
 */
#include <math.h>
#include <string.h>

#include "backend/vulkan/vulkan_attention.h"
#include "base/check.h"
#include "base/compiler.h"

#define INDEX_EPSILON 1e-6f /* of the norm of keys: no metadata have it */

static bool is_f16(const kv_span *span, int32_t layer) {
    const rp_kv_format format = kv_span_layer_format(span, layer);
    BASE_ASSERT(format == RP_KV_F32 || format == RP_KV_F16); /* of latent layers */
    return format == RP_KV_F16;
}

void vulkan_index_store(backend *self, int32_t layer, backend_buffer *keys) {
    vulkan_backend *b = vulkan(self);
    const model_layer *l = &b->net->layers[layer];
    const int32_t rows = b->step->n_rows;
    const vulkan_part part = vulkan_arena_take(b, sizeof(vulkan_slot) * (size_t)rows);
    BASE_ASSERT(l->index >= 0 && l->rope != MODEL_NO_ROPE && keys->width == b->net->hp.index_dim);
    if (!part.host) return;
    vulkan_memory_await_rows(b->memory, l->index);
    const vulkan_norm_args norm = {.src = keys->memory.address,
                                   .dst = keys->memory.address,
                                   .weight = vulkan_weight(b, &l->index_norm.weight),
                                   .bias = vulkan_weight(b, &l->index_norm.bias),
                                   .n = (uint32_t)keys->width,
                                   .runs = 1,
                                   .weight_runs = 1,
                                   .n_runs = (uint32_t)rows,
                                   .eps = INDEX_EPSILON,
                                   .stride = (uint32_t)keys->width};
    vulkan_norm_record(b, VULKAN_LAYER_NORM, &norm);
    for (int32_t r = 0; r < rows; r++) {
        const model_row *row = &b->step->rows[r];
        BASE_DCHECK(!kv_span_is_sealed(row->span)); /* invariant 2 of kv/ */
        ((vulkan_slot *)part.host)[r] =
            (vulkan_slot){.keys = kv_span_keys(row->span, l->index, row->slot / KV_BLOCK_SLOTS, 0).at,
                          .element = is_f16(row->span, l->index) ? VULKAN_ELEMENT_F16 : VULKAN_ELEMENT_F32,
                          .slot = (uint32_t)(row->slot % KV_BLOCK_SLOTS)};
    }
    const vulkan_store_args a = {.keys = keys->memory.address,
                                 .angles = b->attention->row_angles[l->rope],
                                 .slots = part.address,
                                 .n_heads = 1,
                                 .key_dim = (uint32_t)keys->width,
                                 .rot_dim = (uint32_t)b->attention->ropes[l->rope]->rot_dim};
    vulkan_dispatch(b, VULKAN_STORE, b->net->hp.index_halves, &a, sizeof(a), (uint32_t[]){1, (uint32_t)rows, 1});
}

/* The rows of a sight, each with as many slots as are chosen of it, and as many blocks. */
static bool make_chosen(vulkan_backend *b, const vulkan_sight *s) {
    vulkan_attention *at = b->attention;
    const int32_t top_k = b->net->hp.index_top_k;
    const vulkan_part rows = vulkan_arena_take(b, sizeof(vulkan_row) * (size_t)b->step->n_rows);
    if (!rows.host) return false;
    at->chosen = *s;
    at->chosen.rows = rows.address;
    at->chosen.most_slots = BASE_MIN(s->most_slots, (uint32_t)top_k);
    memcpy(rows.host, s->host_rows, sizeof(vulkan_row) * (size_t)b->step->n_rows);
    for (int32_t r = 0; r < b->step->n_rows; r++) {
        vulkan_row *row = (vulkan_row *)rows.host + r;
        row->n_slots = BASE_MIN(row->n_slots, (uint32_t)top_k);
    }
    if (!vulkan_grow_scratch(b, &at->chosen_blocks, s->n_blocks * sizeof(vulkan_row_block) / sizeof(float)))
        return false;
    at->chosen.blocks = at->chosen_blocks.address;
    return true;
}

void vulkan_index_choose(backend *self, int32_t layer, const backend_buffer *queries, const backend_buffer *weights) {
    vulkan_backend *b = vulkan(self);
    vulkan_attention *at = b->attention;
    const model_hparams *hp = &b->net->hp;
    const model_layer *l = &b->net->layers[layer];
    const vulkan_sight *s = vulkan_sight_of(at, l);
    const uint64_t rows = (uint64_t)b->step->n_rows, stride = BASE_DIV_UP(BASE_MAX(s->most_slots, 1), 64) * 64;
    const uint64_t at_once = BASE_MIN(BASE_MAX(VULKAN_TILE_BYTES / sizeof(float) / stride, 1), rows);
    BASE_ASSERT(l->index >= 0 && l->rope != MODEL_NO_ROPE && weights->width == hp->n_index_heads);
    BASE_ASSERT(queries->width == hp->n_index_heads * hp->index_dim && hp->index_top_k > 0);
    at->chosen = *s; /* all of it */
    if (s->most_slots <= (uint32_t)hp->index_top_k) return;
    vulkan_memory_await_contexts(b->memory, l->index);
    const uint64_t keys = vulkan_index_table(b, layer);
    if (!keys || !make_chosen(b, s) || !vulkan_grow_scratch(b, &at->index_scores, at_once * stride)) return;
    for (uint64_t r = 0; r < rows; r += at_once) {
        const uint32_t n = (uint32_t)BASE_MIN(at_once, rows - r);
        const vulkan_index_scores_args scores = {.queries = queries->memory.address,
                                                 .weights = weights->memory.address,
                                                 .scores = at->index_scores.address,
                                                 .rows = s->rows,
                                                 .blocks = s->blocks,
                                                 .entries = s->entries,
                                                 .keys = keys,
                                                 .angles = at->row_angles[l->rope],
                                                 .shifts = at->shift_angles[l->rope],
                                                 .n_heads = (uint32_t)hp->n_index_heads,
                                                 .dim = (uint32_t)hp->index_dim,
                                                 .rot_dim = (uint32_t)at->ropes[l->rope]->rot_dim,
                                                 .stride = (uint32_t)stride,
                                                 .first_row = (uint32_t)r,
                                                 .top_k = (uint32_t)hp->index_top_k,
                                                 .scale = 1.0f / sqrtf((float)hp->index_dim),
                                                 .weight_scale = 1.0f / sqrtf((float)hp->n_index_heads)};
        vulkan_dispatch(b, VULKAN_INDEX_SCORES, hp->index_halves, &scores, sizeof(scores),
                        (uint32_t[]){BASE_DIV_UP(s->most_blocks, VULKAN_BLOCKS), n, 1});
        const vulkan_index_choose_args choose = {.scores = at->index_scores.address,
                                                 .rows = s->rows,
                                                 .blocks = s->blocks,
                                                 .chosen = at->chosen.blocks,
                                                 .stride = (uint32_t)stride,
                                                 .first_row = (uint32_t)r,
                                                 .top_k = (uint32_t)hp->index_top_k};
        vulkan_dispatch(b, VULKAN_INDEX_CHOOSE, 0, &choose, sizeof(choose), (uint32_t[]){n, 1, 1});
    }
}
