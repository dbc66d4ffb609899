/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_attention.c: attention over views, on the CPU.
 *
 * For one KV head and a tile of rows (all heads of the group, up to CPU_TILE_QUERIES queries), in two passes:
 *
 *   1  for each view: rotate the queries to (position - shift), once for each distinct shift in a row;
 *      for each block that the layer's window reaches: 64 scores per query, with ALiBi's bias if the model has it;
 *      scores of visible slots are appended to the query's list of scores
 *      soft cap and softmax of each list; a head's sink is one more score of its list
 *   2  for each view, each block: add the weighted values of visible slots; then divide by the softmax's sum, per query
 *
 * A query's result is a function of the sequence of visible (key, value) pairs in context order: masked slots, later
 * positions, and block and span borders do not affect the order of any sum. A prompt composed of spans therefore gives
 * the bytes of the ordinary full prefill if the KV is the same. For this, the two passes keep all scores instead of
 * merging partial results block by block.
 *
 * Rows of several contexts may share a tile (cpu_attention_plan.c). A block that they share is then visited once for
 * all of them. Each row has its own view of it: its shift, mask and place in the row's context. Every row's views are
 * visited in the order of its context, so the other rows of the tile do not affect its result.
 *
 * Tasks are (tile, KV head); each thread has its own scratch. Heads of a group beyond CPU_TILE_QUERIES form further
 * tiles.
 *
 * KV of int8 and of fewer bits is computed in integers. A row that sees such a slot has a softmax of integers, too; it
 * adds its slots of floats, if any, as floats.
 * Where a layer sees integers alone and a step has fewer tasks than threads, the blocks of a task are divided among
 * threads, and the results are the same bytes (attend_split). A layer in f16 (kv_layer_shape.in_f16) sees no integers.
 *
 * A step with observed rows visits the blocks once more between the passes and reports the weights of visible slots
 * (attention_observer.h). It changes nothing else.
 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_kv_elements.h"

/* ---- storing ---- */

typedef struct store_job {
    cpu_backend *b;
    int32_t layer;
    backend_buffer *keys;
    const backend_buffer *values;
} store_job;

static void store_row(store_job *j, int64_t r) {
    const cpu_backend *b = j->b;
    const model_row *row = &b->step->rows[r];
    const kernel_table *k = &b->kernels;
    float *keys = j->keys->data + r * j->keys->width;
    const float *values = j->values ? j->values->data + r * j->values->width : NULL;
    const model_layer *layer = &b->net->layers[j->layer];
    const cpu_angles *angles = layer->rope == MODEL_NO_ROPE ? NULL : &b->angles[layer->rope];
    const int32_t n_heads = layer->n_kv_heads, key_dim = layer->key_dim, value_dim = layer->value_dim;
    if (angles)
        k->rope(keys, angles->rows + r * angles->rope->rot_dim, n_heads, key_dim, angles->rope->rot_dim,
                b->net->hp.rope_halves, keys);
    const rp_kv_format format = kv_span_layer_format(row->span, layer->states);
    const cpu_store_fn store_key = cpu_element_rows[kv_format_keys(format)]->store(k, true);
    const cpu_store_fn store_value = cpu_element_rows[kv_format_values(format)]->store(k, false);
    const int32_t block = row->slot / KV_BLOCK_SLOTS, slot = row->slot % KV_BLOCK_SLOTS;
    BASE_DCHECK(!kv_format_is_encoded(format) && !kv_span_is_sealed(row->span)); /* invariant 2 of kv/ */
    if (kv_format_keys(format) == KV_ELEMENT_INT8)
        kernel_hadamard(keys, (int64_t)n_heads * key_dim, kernel_hadamard_size(key_dim));
    for (int32_t h = 0; h < n_heads; h++) {
        store_key(keys + (int64_t)h * key_dim, key_dim, cpu_keys(row->span, layer->states, block, h), slot);
        if (values)
            store_value(values + (int64_t)h * value_dim, value_dim, cpu_values(row->span, layer->states, block, h),
                        slot);
    }
}

static void store_rows(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    for (int64_t r = begin; r < end; r++) store_row(arg, r);
}

/* Adjacent rows write into the same cache lines of a block's keys, so a task takes many rows. */
#define STORE_ROWS_PER_TASK 32

void cpu_store(backend *self, int32_t layer, backend_buffer *keys, const backend_buffer *values) {
    store_job j = {(cpu_backend *)self, layer, keys, values};
    const model_layer *l = &j.b->net->layers[layer];
    BASE_ASSERT(l->owns_kv && (values == NULL) == (j.b->latent != NULL));
    BASE_ASSERT(keys->width == l->n_kv_heads * l->key_dim);
    BASE_ASSERT(!values || values->width == l->n_kv_heads * l->value_dim);
    BASE_ASSERT(kv_pool_shape(j.b->step->contexts[0]->pool)->layers[l->states].n_heads == l->n_kv_heads);
    base_threads_for(j.b->threads, store_rows, &j, j.b->step->n_rows, STORE_ROWS_PER_TASK);
}

/* ---- attending ---- */

typedef struct attend_job {
    cpu_backend *b;
    const model_layer *layer;
    const cpu_angles *angles;                  /* NULL: queries are not rotated */
    int32_t group, head_tiles, heads_per_tile; /* group: heads that share a KV head, in head_tiles tiles */
    int32_t n_splits;                          /* threads of a task */
    bool sees_ints;                            /* the layer has spans of integers */
    const backend_buffer *queries;
    backend_buffer *dst;
} attend_job;

/* The rows of one context. */
typedef struct tile_part {
    const kv_context *context;
    const int32_t *matches; /* see cpu_plan; NULL: this context is the leader */
    size_t first_view;      /* in cpu_angles.views */
    int32_t first, end;     /* of the tile's rows */
    int32_t lowest;         /* their lowest position */
} tile_part;

/* One task, or one of n_splits parts of it: every n_splits-th block. Query q of the tile is head (first_head + q %
 * n_heads) of row q / n_heads. */
typedef struct cpu_tile {
    const attend_job *j;
    const kv_context *leader;
    cpu_scratch *scratch;
    int32_t kv_head, first_head, n_heads, n_rows, n_parts;
    int32_t n_splits, split, n_visited; /* n_visited: blocks in this pass, those of other splits included */
    tile_part parts[CPU_TILE_QUERIES];
    int32_t rows[CPU_TILE_QUERIES];             /* of the step */
    const tile_part *part_of[CPU_TILE_QUERIES]; /* of each row */
    /* of each row: its queries are rotated for this view's shift; NULL: not yet rotated */
    const kv_view *rotated[CPU_TILE_QUERIES];
    kv_element rounded
        [CPU_TILE_QUERIES]; /* of each row: its rounded queries are for keys of this kind; KV_ELEMENT_F32: none are */
    /* of each query: final factors of its sums of weighted values, those of floats and those of integers */
    float factors[CPU_TILE_QUERIES], int_factors[CPU_TILE_QUERIES];
    /* if the layer sees integers: of each row: it sees some; of each query: its scale */
    bool is_int[CPU_TILE_QUERIES];
    float query_scales[CPU_TILE_QUERIES];
    /* rows of integers: of each query: heavy weights, in all and used (pass 2), the highest score, the sum of
     * exponentials; of each row: the largest scale of a value, and the visible slots (of all splits, once they are
     * joined) */
    int32_t n_heavy[CPU_TILE_QUERIES], heavy_used[CPU_TILE_QUERIES];
    float highest[CPU_TILE_QUERIES], value_scale[CPU_TILE_QUERIES];
    int64_t totals[CPU_TILE_QUERIES], n_slots[CPU_TILE_QUERIES];
    /* of each row: scores appended (pass 1) or used (pass 2); its heads see the same slots */
    int64_t done[CPU_TILE_QUERIES];
} tile;

size_t cpu_tile_bytes(void) { return sizeof(tile); }

/* A span that rows [first, end) of a tile attend to. */
typedef struct visit {
    kv_span *span, *next; /* next: the span that is probably visited next, for memory prefetch, or NULL */
    kv_element keys, values;
    int32_t first, end;
    const kv_view *views[CPU_TILE_QUERIES]; /* of each row; NULL: it does not see the span */
} visit;

/* Processes one block of a visit; visible: the slots that each row of the visit sees, by row of the tile. */
typedef void (*block_fn)(tile *t, const visit *v, int32_t block, const uint64_t *visible);

static const model_row *tile_row_of(const tile *t, int32_t r) { return &t->j->b->step->rows[t->rows[r]]; }

/* Rounds the rotated queries of a row to 16 bits, transformed for keys of int8 as those are; their scales include the
 * model's factor of scores. */
static void round_queries(tile *t, int32_t r, kv_element keys) {
    const cpu_backend *b = t->j->b;
    const int64_t dim = t->j->layer->key_dim, size = kernel_hadamard_size(dim), n = t->n_heads * dim;
    const float *x = t->scratch->queries + r * n;
    float factor = b->net->hp.score_scale;
    if (keys == KV_ELEMENT_INT8) {
        kernel_hadamard(memcpy(t->scratch->transformed, x, sizeof(float) * (size_t)n), n, size);
        x = t->scratch->transformed;
        factor /= (float)size;
    }
    for (int32_t h = 0; h < t->n_heads; h++)
        t->query_scales[r * t->n_heads + h] =
            b->kernels.query_int8(x + h * dim, dim, t->scratch->int_queries + r * n + h * dim) * factor;
    t->rounded[r] = keys;
}

/* Rotates the queries of a row for the shift of a view, unless they already are. */
static void rotate_row(tile *t, int32_t r, const kv_view *v) {
    const cpu_backend *b = t->j->b;
    const int32_t key_dim = t->j->layer->key_dim;
    const cpu_angles *angles = t->j->angles;
    const tile_part *part = t->part_of[r];
    bool halves = b->net->hp.rope_halves;
    if (t->rotated[r] && (!angles || t->rotated[r]->shift == v->shift)) return;
    t->rotated[r] = v;
    t->rounded[r] = KV_ELEMENT_F32;
    int64_t width = (int64_t)t->n_heads * key_dim;
    const float *q = cpu_row_of(t->j->queries, t->rows[r]) + (int64_t)t->first_head * key_dim;
    BASE_DCHECK(v >= part->context->views && v < part->context->views + part->context->n_views);
    float *out = t->scratch->queries + r * width;
    if (!angles) {
        memcpy(out, q, sizeof(float) * (size_t)width);
        return;
    }
    const int32_t rot_dim = angles->rope->rot_dim;
    const float *shift_cs = angles->views + (part->first_view + (size_t)(v - part->context->views)) * (size_t)rot_dim;
    const bool is_weighed = t->j->layer->query_weights.data != NULL;
    const float *cs =
        cpu_shifted_angles(b, angles, t->rows[r], is_weighed ? 0 : v->shift, shift_cs, t->scratch->angles);
    b->kernels.rope(q, cs, t->n_heads, key_dim, rot_dim, halves, out);
    if (is_weighed)
        cpu_weigh_queries(b, t->j->layer, t->n_heads, v->shift ? shift_cs : NULL, t->scratch->angles, out);
}

/* ---- visiting ---- */

/* Adds the rows of a part to a visit, with view i of their context. */
static void join_visit(const tile *t, visit *v, const tile_part *part, size_t i) {
    const kv_view *view = &part->context->views[i];
    const int64_t end = (int64_t)kv_span_end(view->span) + view->shift;
    const int32_t window = t->j->layer->window;
    /* It ends before the first row's window: no row sees any of it. */
    if (window > 0 && end <= (int64_t)part->lowest - window + 1) return;
    if (!v->span) {
        v->span = view->span;
        v->next = i + 1 < part->context->n_views ? view[1].span : NULL;
        const rp_kv_format format = kv_span_layer_format(view->span, t->j->layer->states);
        v->keys = kv_format_keys(format);
        v->values = kv_format_values(format);
        v->first = v->end = part->first;
    }
    BASE_DCHECK(v->span == view->span && v->end <= part->first);       /* parts join in the order of their rows */
    for (int32_t r = v->end; r < part->first; r++) v->views[r] = NULL; /* in between */
    for (int32_t r = part->first; r < part->end; r++) v->views[r] = view;
    v->end = part->end;
}

/* The number of a row's view in its context. */
static size_t view_of(const tile *t, const visit *v, int32_t r) {
    return (size_t)(v->views[r] - t->part_of[r]->context->views);
}

/* Of the slots of a block that a row chose. */
static uint64_t chosen_slots(const tile *t, const visit *v, int32_t r, int32_t block) {
    return cpu_chosen_slots(t->j->b, t->rows[r], t->kv_head, view_of(t, v, r), block);
}

/* Visible slots of a block for each row; false if no row sees any. */
static bool block_visibility(const tile *t, const visit *v, int32_t block, uint64_t *visible) {
    const model_layer *l = t->j->layer;
    uint64_t any = 0;
    for (int32_t r = v->first; r < v->end; r++) {
        const model_row *row = tile_row_of(t, r);
        int32_t last;
        const int32_t reach = model_layer_reach(&t->j->b->net->hp, l, row->pos, row->after, &last);
        visible[r] = v->views[r] ? kv_view_visible(v->views[r], l->states, t->kv_head, block, last, reach) : 0;
        if (t->j->b->is_chosen && visible[r]) visible[r] &= chosen_slots(t, v, r, block);
        if (l->is_chosen && visible[r])
            visible[r] &= cpu_indexed_slots(t->j->b, t->rows[r], view_of(t, v, r), block);
        any |= visible[r];
    }
    return any != 0;
}

static void visit_blocks(tile *t, const visit *v, block_fn fn) {
    BASE_DCHECK(t->split >= 0 && t->split < t->n_splits);
    uint64_t visible[CPU_TILE_QUERIES];
    for (int32_t block = 0; v->span && block < KV_SPAN_BLOCKS; block++)
        if (block_visibility(t, v, block, visible) && t->n_visited++ % t->n_splits == t->split)
            fn(t, v, block, visible);
}

/* Visits views [begin, end) of a part's context for its rows alone. */
static void visit_alone(tile *t, const tile_part *part, size_t begin, size_t end, block_fn fn) {
    for (size_t i = begin; i < end; i++) {
        visit v;
        v.span = NULL;
        join_visit(t, &v, part, i);
        visit_blocks(t, &v, fn);
    }
}

/* Calls fn for every block that a row sees, in each context's own order: view by view of the leader, each after the
 * earlier unmatched views of its followers. */
static void visit_all(tile *t, block_fn fn) {
    size_t next[CPU_TILE_QUERIES] = {0}; /* of each part: the first view that was not visited */
    t->n_visited = 0;
    for (size_t i = 0; i < t->leader->n_views; i++) {
        visit v;
        v.span = NULL;
        for (int32_t p = 0; p < t->n_parts; p++) {
            /* The view of the part's context with the same span as view i of the leader, or -1. */
            int64_t match = t->parts[p].matches ? t->parts[p].matches[i] : (int64_t)i;
            if (match < 0) continue;
            BASE_DCHECK((size_t)match >= next[p]); /* matches ascend */
            visit_alone(t, &t->parts[p], next[p], (size_t)match, fn);
            join_visit(t, &v, &t->parts[p], (size_t)match);
            next[p] = (size_t)match + 1;
        }
        visit_blocks(t, &v, fn);
    }
    for (int32_t p = 0; p < t->n_parts; p++) visit_alone(t, &t->parts[p], next[p], t->parts[p].context->n_views, fn);
}

/* Keys or values of a block of a span; NULL: the span does not have it. */
static const void *head_of(const tile *t, const kv_span *s, int32_t block, bool is_key) {
    const int32_t layer = t->j->layer->states;
    const bool has = kv_span_is_reduced(s) ? block * KV_BLOCK_SLOTS < kv_span_slots(s, layer, t->kv_head)
                                           : kv_span_has(s, layer, block);
    if (!has) return NULL;
    return is_key ? cpu_keys(s, layer, block, t->kv_head) : cpu_values(s, layer, block, t->kv_head);
}

/* Those that are probably visited after a block's; NULL: none. */
static const void *head_after(const tile *t, const visit *v, int32_t block, bool is_key) {
    if (++block * KV_BLOCK_SLOTS < kv_span_tokens(v->span)) return head_of(t, v->span, block, is_key);
    return v->next ? head_of(t, v->next, 0, is_key) : NULL;
}

/* ---- pass 1 ---- */

static float *scores_of(const tile *t, int32_t r, int32_t head) {
    return t->scratch->scores + (int64_t)(r * t->n_heads + head) * t->j->b->scratch_slots;
}

/* Appends the scores of visible slots to the lists of one row's queries. scores: [head][64] */
static void append_scores(tile *t, int32_t r, uint64_t visible, const float *scores) {
    BASE_DCHECK(t->done[r] + base_popcount64(visible) <= t->j->b->scratch_slots);
    for (int32_t h = 0; h < t->n_heads; h++, scores += KV_BLOCK_SLOTS) {
        float *list = scores_of(t, r, h) + t->done[r];
        if (visible == ~UINT64_C(0)) memcpy(list, scores, sizeof(float) * KV_BLOCK_SLOTS);
        else
            for (uint64_t bits = visible; bits; bits &= bits - 1) *list++ = scores[base_ctz64(bits)];
    }
    t->done[r] += base_popcount64(visible);
}

static float *value_scales_of(const tile *t, int32_t r) {
    return t->scratch->value_scales + (int64_t)r * t->j->b->scratch_slots;
}

static int16_t *weights_of(const tile *t, int32_t r, int32_t head) {
    return t->scratch->weights + (int64_t)(r * t->n_heads + head) * t->j->b->scratch_slots;
}

/* Appends the scales of visible slots' values to a row's list; 0: the values are floats. values: of the block */
static void append_value_scales(const tile *t, int32_t r, const visit *v, uint64_t visible, const void *values) {
    const int64_t dim = t->j->layer->value_dim;
    float *list = value_scales_of(t, r) + t->done[r], all[KV_BLOCK_SLOTS];
    if (!kv_element_is_int(v->values)) {
        memset(list, 0, sizeof(*list) * (size_t)base_popcount64(visible));
        return;
    }
    const void *scales = v->values == KV_ELEMENT_INT8
                             ? (const uint8_t *)values + KERNEL_INT8_SCALES(dim)
                             : kernel_bits_value_scales(values, kv_element_bits(v->values), dim);
    kernel_int8_scales(scales, visible == ~UINT64_C(0) ? list : all);
    if (visible != ~UINT64_C(0))
        for (uint64_t bits = visible; bits; bits &= bits - 1) *list++ = all[base_ctz64(bits)];
}

static kernel_heavy *heavy_of(const tile *t, int64_t q) {
    return t->scratch->heavy + q * kernel_int8_max_heavy(t->j->b->scratch_slots);
}

/* End of the rows from r on that see the same slots as r and have seen as many slots before: one kernel call serves
 * them all. */
static int32_t end_of_same(const tile *t, const uint64_t *visible, int32_t r, int32_t end) {
    int32_t same = r + 1;
    while (same < end && visible[same] == visible[r] && t->done[same] == t->done[r]) same++;
    return same;
}

/* Distances from the slots of a block to a later position; of slots that are not used: any. */
static void find_distances(const tile *t, const kv_view *v, int32_t block, int32_t pos,
                           float distances[KV_BLOCK_SLOTS]) {
    const int32_t layer = t->j->layer->states, first = block * KV_BLOCK_SLOTS,
                  n = kv_span_slots(v->span, layer, t->kv_head) - first;
    const int32_t *positions = kv_span_positions(v->span, layer, t->kv_head);
    for (int32_t i = 0; i < KV_BLOCK_SLOTS; i++)
        distances[i] =
            (float)(pos - v->shift -
                    (positions ? positions[first + (i < n ? i : 0)] : kv_span_position(v->span) + first + i));
}

/* ALiBi, for the heads of a row: subtracts the head's slope times the distance in positions. Scores of two heads are
 * `stride` apart. */
static void tile_add_bias(const tile *t, int32_t r, const kv_view *v, int32_t block, float *scores, int64_t stride) {
    float distances[KV_BLOCK_SLOTS];
    find_distances(t, v, block, tile_row_of(t, r)->pos, distances);
    for (int32_t h = 0; h < t->n_heads; h++) {
        float slope = t->j->b->net->alibi_slopes[t->first_head + h], *s = scores + h * stride;
        for (int32_t i = 0; i < KV_BLOCK_SLOTS; i++) s[i] -= slope * distances[i];
    }
}

/* Scores of n queries from q on for keys of 4 or 2 bits, which are unpacked already. */
static void score_folded(const tile *t, int64_t q, int64_t n, float *scores, int64_t stride, const void *next) {
    const cpu_backend *b = t->j->b;
    const cpu_scratch *s = t->scratch;
    const int64_t dim = t->j->layer->key_dim;
    float scales[CPU_TILE_QUERIES], added[CPU_TILE_QUERIES], factor = b->net->hp.score_scale;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = (q + i) * dim;
        added[i] =
            b->kernels.fold_query(s->queries + at, s->int_queries + at, &s->ranges, dim, s->folded + i * dim) * factor;
        scales[i] = t->query_scales[q + i] * s->ranges.unit;
    }
    b->kernels.scores_int8(s->unpacked, dim, s->folded, dim, n, scales, scores, stride, next);
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < KV_BLOCK_SLOTS; j++) scores[i * stride + j] += added[i];
}

/* Scores of the queries of rows [first, end). */
static void tile_score(const tile *t, const visit *v, int32_t first, int32_t end, const void *k, float *scores,
                       int64_t stride, const void *next) {
    const cpu_backend *b = t->j->b;
    const int64_t dim = t->j->layer->key_dim, q = (int64_t)first * t->n_heads,
                  n = (int64_t)(end - first) * t->n_heads;
    const float *queries = t->scratch->queries + q * dim, scale = b->net->hp.score_scale;
    if (kv_element_is_encoded(v->keys)) score_folded(t, q, n, scores, stride, next);
    else if (kv_element_is_int(v->keys))
        b->kernels.scores_int8(k, dim, t->scratch->int_queries + q * dim, dim, n, t->query_scales + q, scores, stride,
                               next);
    else cpu_element_rows[v->keys]->scores (&b->kernels)(k, dim, queries, dim, n, scale, scores, stride, next);
}

/* Rows [first, end), all of them with visible slots in the block; k: its keys; next: keys to prefetch from memory. */
static void score_rows(tile *t, const visit *v, int32_t block, const uint64_t *visible, int32_t first, int32_t end,
                       const void *k, const void *next) {
    const cpu_backend *b = t->j->b;
    int32_t heads = t->n_heads;
    float some[CPU_TILE_QUERIES * KV_BLOCK_SLOTS];
    /* write directly into the lists */
    bool whole = visible[first] == ~UINT64_C(0) && end_of_same(t, visible, first, end) == end;
    float *scores = whole ? scores_of(t, first, 0) + t->done[first] : some;
    int64_t stride = whole ? b->scratch_slots : KV_BLOCK_SLOTS;
    for (int32_t r = first; r < end; r++) {
        rotate_row(t, r, v->views[r]);
        if (kv_element_is_int(v->keys) && t->rounded[r] != v->keys) round_queries(t, r, v->keys);
    }
    tile_score(t, v, first, end, k, scores, stride, next);
    for (int32_t r = first; r < end; r++, scores += heads * stride) {
        if (t->j->sees_ints) append_value_scales(t, r, v, visible[r], head_of(t, v->span, block, false));
        t->is_int[r] |= kv_element_is_int(v->values);
        if (b->net->alibi_slopes) tile_add_bias(t, r, v->views[r], block, scores, stride);
        if (whole) t->done[r] += KV_BLOCK_SLOTS;
        else append_scores(t, r, visible[r], scores);
    }
}

static void score_block(tile *t, const visit *v, int32_t block, const uint64_t *visible) {
    const cpu_backend *b = t->j->b;
    const void *k = head_of(t, v->span, block, true), *after = head_after(t, v, block, true), *next = after ? after : k;
    if (kv_element_is_encoded(v->keys)) {
        b->kernels.unpack_keys(k, kv_element_bits(v->keys), t->j->layer->key_dim, t->scratch->unpacked);
        b->kernels.key_ranges(k, kv_element_bits(v->keys), t->j->layer->key_dim, &t->scratch->ranges);
    }
    for (int32_t r = v->first, end; r < v->end; r = end) {
        for (end = r; end < v->end && visible[end]; end++) {}
        if (end == r) {
            end++;
            continue;
        }
        score_rows(t, v, block, visible, r, end, k, next);
        next = k; /* already in the cache */
    }
}

/* A list of scores of one query, with the sink, if any: of the first split only. Returns its length. */
static int64_t finish_list(const tile *t, int32_t r, int32_t head) {
    const cpu_backend *b = t->j->b;
    const float *sinks = t->j->layer->sinks.data;
    float *list = scores_of(t, r, head), cap = b->net->hp.score_cap;
    int64_t n = t->done[r];
    if (cap > 0) b->kernels.soft_cap(list, cap, n);
    if (sinks && t->split == 0) list[n++] = sinks[t->first_head + head];
    BASE_ASSERT(n <= b->scratch_slots);
    return n;
}

/* Converts scores to weights up to a common factor. The weight of a sink is stored after the others and not used. */
static void weigh_scores(tile *t) {
    for (int32_t q = 0; q < t->n_rows * t->n_heads; q++) {
        if (t->is_int[q / t->n_heads]) continue;
        const int64_t n = finish_list(t, q / t->n_heads, q % t->n_heads);
        t->int_factors[q] = 0;
        t->factors[q] = n > 0 ? t->j->b->kernels.softmax(scores_of(t, q / t->n_heads, q % t->n_heads), n) : 0.0f;
    }
}

/* ---- softmax of rows of integers: steps of all splits, joined after each ---- */

static void find_highest(tile *t) {
    const kernel_table *k = &t->j->b->kernels;
    for (int32_t r = 0; r < t->n_rows; r++) {
        if (!t->is_int[r]) continue;
        t->n_slots[r] = t->done[r];
        t->value_scale[r] = k->highest(value_scales_of(t, r), t->done[r]);
    }
    for (int32_t q = 0; q < t->n_rows * t->n_heads; q++) {
        if (!t->is_int[q / t->n_heads]) continue;
        const int64_t n = finish_list(t, q / t->n_heads, q % t->n_heads);
        t->highest[q] = k->highest(scores_of(t, q / t->n_heads, q % t->n_heads), n);
    }
}

/* Gives `all` the larger values of both, and the sum of their slots. */
static void join_highest(tile *all, const tile *other) {
    for (int32_t r = 0; r < all->n_rows; r++) {
        all->n_slots[r] += other->n_slots[r];
        all->value_scale[r] = fmaxf(all->value_scale[r], other->value_scale[r]);
    }
    for (int32_t q = 0; q < all->n_rows * all->n_heads; q++)
        all->highest[q] = fmaxf(all->highest[q], other->highest[q]);
}

static void copy_highest(tile *to, const tile *all) {
    memcpy(to->n_slots, all->n_slots, sizeof(all->n_slots));
    memcpy(to->value_scale, all->value_scale, sizeof(all->value_scale));
    memcpy(to->highest, all->highest, sizeof(all->highest));
}

static void sum_exponentials(tile *t) {
    const int64_t sinks = t->j->layer->sinks.data && t->split == 0;
    for (int32_t q = 0; q < t->n_rows * t->n_heads; q++) {
        const int32_t r = q / t->n_heads;
        if (!t->is_int[r]) continue;
        t->totals[q] = t->j->b->kernels.exp_int8(scores_of(t, r, q % t->n_heads), t->done[r] + sinks, t->highest[q]);
    }
}

/* Values whose scales are all below this count as 0: factors stay finite. */
#define LEAST_VALUE_SCALE 0x1p-90f

/* Integer weights, and the factor of their sums. */
static void round_weights(tile *t) {
    for (int32_t q = 0; q < t->n_rows * t->n_heads; q++) {
        const int32_t r = q / t->n_heads, head = q % t->n_heads;
        if (!t->is_int[r]) continue;
        const double one = (double)(1 << kernel_int8_weight_bits(t->n_slots[r])), scale = (double)t->value_scale[r];
        const bool is_zero = t->totals[q] <= 0 || !(t->value_scale[r] >= LEAST_VALUE_SCALE);
        const float factor = is_zero ? 0.0f : (float)(one * (double)KERNEL_INT8_ONE / ((double)t->totals[q] * scale));
        BASE_ASSERT(t->n_slots[r] <= KERNEL_INT8_MAX_SLOTS);
        t->n_heavy[q] = (int32_t)t->j->b->kernels.weights_int8(scores_of(t, r, head), value_scales_of(t, r), t->done[r],
                                                               factor, weights_of(t, r, head), heavy_of(t, q));
        t->heavy_used[q] = 0;
        BASE_ASSERT(t->n_heavy[q] <= kernel_int8_max_heavy(t->j->b->scratch_slots));
        t->int_factors[q] = is_zero ? 0.0f : (float)(scale / one);
        t->factors[q] = t->totals[q] > 0 ? (float)((double)KERNEL_INT8_ONE / (double)t->totals[q]) : 0.0f;
    }
}

/* ---- observers: what the rows attend to ---- */

/* Rows from r on with the same view of the same observer; one row, if it is not observed. */
static int32_t end_of_observed(const tile *t, const visit *v, int32_t r) {
    const attention_observer *o = tile_row_of(t, r)->observer;
    int32_t end = r + 1;
    while (o && end < v->end && v->views[end] == v->views[r] && tile_row_of(t, end)->observer == o) end++;
    return end;
}

/* What rows and heads give the slots of a block. */
typedef struct observed {
    float maxima[KV_BLOCK_SLOTS];
    uint64_t sums[KV_BLOCK_SLOTS];
} observed;

/* Joins a query's weights of the visible slots, which are list times factor. A NaN is above nothing. Maxima of whole
 * blocks are most of an observer's work: the compiler makes vectors of them. */
static void join_maxima(observed *all, const float *list, float factor, uint64_t visible) {
    if (visible == ~UINT64_C(0))
        for (int i = 0; i < KV_BLOCK_SLOTS; i++) {
            const float weight = list[i] * factor, highest = all->maxima[i];
            all->maxima[i] = weight > highest ? weight : highest;
        }
    else
        for (uint64_t bits = visible; bits; bits &= bits - 1) {
            const float weight = *list++ * factor;
            float *highest = &all->maxima[base_ctz64(bits)];
            if (weight > *highest) *highest = weight;
        }
}

static void join_sums(const attention_observer *o, observed *all, const float *list, float factor, uint64_t visible) {
    for (uint64_t bits = visible; bits; bits &= bits - 1)
        all->sums[base_ctz64(bits)] += attention_observer_number(o, *list++ * factor);
}

/* Reports what the slots of a block got, and forgets it. */
static void report_observed(const tile *t, attention_observer *o, int32_t head, size_t view, int32_t block,
                            uint64_t any, observed *all) {
    const bool is_relative = o->measure == ATTENTION_RELATIVE;
    const int32_t layer = is_relative ? (int32_t)(t->j->layer - t->j->b->net->layers) : t->j->layer->states;
    for (uint64_t bits = attention_observer_is_maximum(o) ? any : 0; bits; bits &= bits - 1)
        all->sums[base_ctz64(bits)] = attention_observer_number(o, all->maxima[base_ctz64(bits)]);
    attention_observer_add(o, layer, is_relative ? t->first_head + head : t->kv_head, view, block, any, all->sums);
    *all = (observed){0};
}

/* Reports what rows [r, end), which have the same view, give the slots of a block. */
static void observe_view(const tile *t, attention_observer *o, size_t view, int32_t block, int32_t r, int32_t end,
                         const uint64_t *visible) {
    const bool is_maximum = attention_observer_is_maximum(o), is_relative = o->measure == ATTENTION_RELATIVE;
    uint64_t any = 0;
    observed all = {0};
    for (int32_t i = r; i < end; i++) any |= visible[i];
    for (int32_t h = 0; h < t->n_heads && any; h++) {
        for (int32_t i = r; i < end; i++) {
            const float *list = scores_of(t, i, h) + t->done[i], own = t->factors[i * t->n_heads + h];
            const float factor = is_relative ? own * t->j->b->inverse_norms[t->rows[i]] : own;
            if (is_maximum) join_maxima(&all, list, factor, visible[i]);
            else join_sums(o, &all, list, factor, visible[i]);
        }
        if (is_relative || h + 1 == t->n_heads) report_observed(t, o, h, view, block, any, &all);
    }
}

static void observe_block(tile *t, const visit *v, int32_t block, const uint64_t *visible) {
    for (int32_t r = v->first, end; r < v->end; r = end) {
        attention_observer *o = tile_row_of(t, r)->observer;
        const size_t view = v->views[r] ? view_of(t, v, r) : 0;
        end = end_of_observed(t, v, r);
        if (o && view >= o->first_view && view < o->first_view + o->n_views)
            observe_view(t, o, view - o->first_view, block, r, end, visible);
        for (int32_t i = r; i < end; i++) t->done[i] += base_popcount64(visible[i]);
    }
}

/* After softmax. */
static void observe_rows(tile *t) {
    for (int32_t r = 0; r < t->n_rows; r++) t->done[r] = 0;
    visit_all(t, observe_block);
}

/* ---- pass 2 ---- */

/* Slot of the n-th bit that is set. */
static int slot_of(uint64_t visible, int64_t n) {
    for (; n > 0; n--) visible &= visible - 1;
    return base_ctz64(visible);
}

/* Adds the block's heavy slots to query q, whose list is at `done`. */
static void add_heavy(tile *t, int64_t q, const void *values, uint64_t visible, int64_t done) {
    const int64_t dim = t->j->layer->value_dim;
    const kernel_heavy *heavy = heavy_of(t, q);
    for (int32_t *i = &t->heavy_used[q]; *i < t->n_heavy[q] && heavy[*i].index < done + base_popcount64(visible); ++*i)
        t->j->b->kernels.value_int8(values, dim, slot_of(visible, heavy[*i].index - done), heavy[*i].weight,
                                    t->scratch->int_sums + q * dim);
}

/* A block's values as int8 for rows [first, end), which see the same slots. */
static void add_int8_values(tile *t, const void *values, uint64_t visible, int32_t first, int32_t end,
                            const void *next) {
    const cpu_backend *b = t->j->b;
    const int64_t dim = t->j->layer->value_dim, q = (int64_t)first * t->n_heads,
                  n = (int64_t)(end - first) * t->n_heads;
    const int64_t stride = b->scratch_slots;
    int16_t some[CPU_TILE_QUERIES * KV_BLOCK_SLOTS];
    const int16_t *list = weights_of(t, first, 0) + t->done[first], *p = list;
    if (visible != ~UINT64_C(0)) {
        memset(some, 0, sizeof(*some) * (size_t)(n * KV_BLOCK_SLOTS));
        for (int64_t i = 0; i < n; i++) {
            const int16_t *weight = list + i * stride;
            for (uint64_t bits = visible; bits; bits &= bits - 1)
                some[i * KV_BLOCK_SLOTS + base_ctz64(bits)] = *weight++;
        }
        p = some;
    }
    b->kernels.values_int8(values, dim, p, p == some ? KV_BLOCK_SLOTS : stride, n, t->scratch->int_sums + q * dim, dim,
                           next);
    for (int64_t i = q; i < q + n; i++) add_heavy(t, i, values, visible, t->done[first]);
}

static void add_values(tile *t, const visit *v, int32_t block, const uint64_t *visible) {
    const cpu_backend *b = t->j->b;
    int32_t dim = t->j->layer->value_dim, heads = t->n_heads;
    const void *values = head_of(t, v->span, block, false), *after = head_after(t, v, block, false),
               *next = after ? after : values;
    const kernel_attn_values_fn fn =
        kv_element_is_int(v->values) ? NULL : cpu_element_rows[v->values]->values(&b->kernels);
    if (kv_element_is_encoded(v->values)) {
        b->kernels.unpack_values(values, kv_element_bits(v->values), dim, t->scratch->unpacked);
        values = t->scratch->unpacked;
    }
    if (b->latent) {
        cpu_latent_values(values, dim, (size_t)kv_element_bits(v->values) / 8, t->scratch->latent_values);
        values = t->scratch->latent_values;
    }
    for (int32_t r = v->first, end; r < v->end; r = end) {
        end = end_of_same(t, visible, r, v->end);
        if (!visible[r]) continue;
        if (kv_element_is_int(v->values)) add_int8_values(t, values, visible[r], r, end, next);
        else fn(values, dim, visible[r], scores_of(t, r, 0) + t->done[r], b->scratch_slots, (int64_t)(end - r) * heads,
                t->scratch->sums + (int64_t)r * heads * dim, dim, next);
        for (int32_t i = r, n = base_popcount64(visible[r]); i < end; i++) t->done[i] += n;
        next = values; /* already in the cache */
    }
}

/* The sums of a query of integers, and of floats, as one. */
static void finish_int_sums(tile *t, int64_t q) {
    const int64_t dim = t->j->layer->value_dim;
    float *sums = t->scratch->sums;
    for (int64_t d = q * dim; d < (q + 1) * dim; d++)
        sums[d] = (float)((double)t->scratch->int_sums[d] * (double)t->int_factors[q] +
                          (double)sums[d] * (double)t->factors[q]);
}

static void sum_values(tile *t) {
    size_t n = (size_t)t->n_rows * (size_t)t->n_heads * (size_t)t->j->layer->value_dim;
    for (int32_t r = 0; r < t->n_rows; r++) t->done[r] = 0;
    if (t->j->sees_ints) memset(t->scratch->int_sums, 0, sizeof(int32_t) * n);
    memset(t->scratch->sums, 0, sizeof(float) * n);
    visit_all(t, add_values);
}

static void write_sums(tile *t) {
    const cpu_backend *b = t->j->b;
    size_t dim = (size_t)t->j->layer->value_dim, width = (size_t)t->n_heads * dim;
    float *sums = t->scratch->sums;
    for (int32_t q = 0; q < t->n_rows * t->n_heads; q++) {
        if (t->is_int[q / t->n_heads]) finish_int_sums(t, q);
        else b->kernels.scale(sums + (size_t)q * dim, t->factors[q], (int64_t)dim);
    }
    for (int32_t r = 0; r < t->n_rows; r++, sums += width)
        memcpy(cpu_row_at(t->j->dst, t->rows[r]) + (size_t)t->first_head * dim, sums, sizeof(float) * width);
}

/* ---- tasks ---- */

static void fill_parts(tile *t, const cpu_row_tile *rows) {
    const cpu_backend *b = t->j->b;
    t->leader = b->step->contexts[rows->leader];
    BASE_ASSERT(rows->n_rows * t->n_heads <= CPU_TILE_QUERIES && rows->n_parts <= rows->n_rows);
    t->n_parts = rows->n_parts;
    for (int32_t p = 0; p < rows->n_parts; p++) {
        const cpu_part *from = &b->plan.parts[rows->first_part + p];
        tile_part *part = &t->parts[p];
        const kv_context *context = b->step->contexts[from->context];
        *part = (tile_part){
            .context = context, .first_view = from->first_view, .first = t->n_rows, .end = t->n_rows + from->n_rows};
        part->matches = context == t->leader ? NULL : b->plan.matches + from->matches;
        part->lowest = b->step->rows[from->row].pos;
        for (int32_t r = 0; r < from->n_rows; r++, t->n_rows++) {
            t->rows[t->n_rows] = from->row + r;
            t->part_of[t->n_rows] = part;
            t->rotated[t->n_rows] = NULL;
            t->done[t->n_rows] = 0;
            t->is_int[t->n_rows] = false;
            part->lowest = BASE_MIN(part->lowest, b->step->rows[from->row + r].pos);
        }
    }
}

/* The tiles of a group run one after the other for each KV head: their shared blocks are still in a cache. */
static void open_tile(tile *t, const attend_job *j, int64_t task, cpu_scratch *scratch) {
    cpu_backend *b = j->b;
    int32_t n_kv_heads = j->layer->n_kv_heads, head_tile = (int32_t)(task % j->head_tiles);
    task /= j->head_tiles;
    const cpu_row_tile *any = &b->plan.tiles[task / n_kv_heads]; /* of its group */
    task -= (int64_t)any->first_tile * n_kv_heads;
    t->j = j;
    t->scratch = scratch;
    t->kv_head = (int32_t)(task / any->n_tiles);
    t->first_head = t->kv_head * j->group + head_tile * j->heads_per_tile;
    BASE_ASSERT(t->kv_head < n_kv_heads && head_tile * j->heads_per_tile < j->group);
    t->n_heads = BASE_MIN(j->heads_per_tile, j->group - head_tile * j->heads_per_tile);
    t->n_splits = 1;
    t->split = 0;
    t->n_rows = 0;
    fill_parts(t, &b->plan.tiles[any->first_tile + task % any->n_tiles]);
}

static void attend_tasks(void *arg, int64_t begin, int64_t end, int thread) {
    attend_job *j = arg;
    for (int64_t i = begin; i < end; i++) {
        tile *t = j->b->scratch[thread].tile;
        open_tile(t, j, i, &j->b->scratch[thread]);
        visit_all(t, score_block);
        if (j->sees_ints) find_highest(t), sum_exponentials(t), round_weights(t);
        weigh_scores(t);
        if (j->b->is_observed) observe_rows(t);
        sum_values(t);
        write_sums(t);
    }
}

/* ---- tasks divided among threads: split i of task k has scratch k * n_splits + i ---- */

static tile *split_of(const attend_job *j, int64_t i) { return j->b->scratch[i].tile; }

static void split_scores(void *arg, int64_t begin, int64_t end, int thread) {
    attend_job *j = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        tile *t = split_of(j, i);
        open_tile(t, j, i / j->n_splits, &j->b->scratch[i]);
        t->n_splits = j->n_splits;
        t->split = (int32_t)(i % j->n_splits);
        visit_all(t, score_block);
        for (int32_t r = 0; r < t->n_rows; r++) t->is_int[r] = true; /* the layer sees integers alone */
        find_highest(t);
    }
}

static void split_exponentials(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    for (int64_t i = begin; i < end; i++) sum_exponentials(split_of(arg, i));
}

static void split_values(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        round_weights(split_of(arg, i));
        if (split_of(arg, i)->j->b->is_observed) observe_rows(split_of(arg, i));
        sum_values(split_of(arg, i));
    }
}

static void add_totals(tile *all, const tile *other) {
    for (int32_t q = 0; q < all->n_rows * all->n_heads; q++) all->totals[q] += other->totals[q];
}

static void add_int_sums(tile *all, const tile *other) {
    const int64_t n = (int64_t)all->n_rows * all->n_heads * all->j->layer->value_dim;
    for (int64_t i = 0; i < n; i++) all->scratch->int_sums[i] += other->scratch->int_sums[i];
}

static void attend_split(attend_job *j, int64_t n_tasks) {
    const int64_t n = n_tasks * j->n_splits, step = j->n_splits;
    base_threads *threads = j->b->threads;
    BASE_ASSERT(n <= base_threads_count(threads)); /* each split has the scratch of a thread */
    base_threads_for(threads, split_scores, j, n, 1);
    for (int64_t i = 0; i < n; i++)
        if (i % step != 0) join_highest(split_of(j, i - i % step), split_of(j, i));
    for (int64_t i = 0; i < n; i++)
        if (i % step != 0) copy_highest(split_of(j, i), split_of(j, i - i % step));
    base_threads_for(threads, split_exponentials, j, n, 1);
    for (int64_t i = 0; i < n; i++)
        if (i % step != 0) add_totals(split_of(j, i - i % step), split_of(j, i));
    for (int64_t i = 0; i < n; i++)
        if (i % step != 0)
            memcpy(split_of(j, i)->totals, split_of(j, i - i % step)->totals, sizeof(split_of(j, i)->totals));
    base_threads_for(threads, split_values, j, n, 1);
    for (int64_t i = 0; i < n; i++)
        if (i % step != 0) add_int_sums(split_of(j, i - i % step), split_of(j, i));
    for (int64_t i = 0; i < n; i += step) write_sums(split_of(j, i));
}

/* Shorter contexts are not worth the threads' waiting for each other. */
#define SPLIT_SLOTS 512

static int64_t longest_context(const cpu_backend *b) {
    int64_t most = 0;
    for (int32_t i = 0; i < b->step->n_contexts; i++) most = BASE_MAX(most, kv_context_slots(b->step->contexts[i]));
    return most;
}

void cpu_attend(backend *self, int32_t layer, const backend_buffer *queries, backend_buffer *dst) {
    cpu_backend *b = (cpu_backend *)self;
    for (int32_t r = 0; b->is_recorded && r < b->step->n_rows; r++) {
        const model_row *row = &b->step->rows[r];
        const size_t bytes = sizeof(float) * (size_t)queries->width;
        BASE_DCHECK(!row->queries || row->queries->width == queries->width);
        if (row->queries) memcpy(query_record_at(row->queries, layer, row->slot), cpu_row_of(queries, r), bytes);
    }
    if (b->is_chosen) cpu_choose(b, layer, queries);
    const model_layer *l = &b->net->layers[layer];
    int32_t group = l->n_heads / l->n_kv_heads, n_threads = base_threads_count(b->threads);
    const kv_shape *shape = kv_pool_shape(b->step->contexts[0]->pool);
    BASE_ASSERT(model_mixer_attends(l->mixer) && queries->width == l->n_heads * l->key_dim);
    BASE_ASSERT(dst->width == l->n_heads * l->value_dim);
    attend_job j = {.b = b, .layer = l, .group = group, .queries = queries, .dst = dst};
    j.heads_per_tile = BASE_MIN(group, CPU_TILE_QUERIES / b->plan.most_rows);
    j.sees_ints = b->sees_ints && !shape->layers[l->states].in_f16;
    if (l->rope != MODEL_NO_ROPE) j.angles = &b->angles[l->rope];
    int64_t n = (int64_t)b->plan.n_tiles * l->n_kv_heads,
            head_tiles = (group + j.heads_per_tile - 1) / j.heads_per_tile;
    bool splits =
        j.sees_ints && !b->sees_floats && 2 * n * head_tiles <= n_threads && longest_context(b) >= SPLIT_SLOTS;
    /* one row and few KV heads: reading a block more than once is better than idle threads */
    while (!splits && n * ((group + j.heads_per_tile - 1) / j.heads_per_tile) < n_threads && j.heads_per_tile > 1)
        j.heads_per_tile = (j.heads_per_tile + 1) / 2;
    j.head_tiles = (group + j.heads_per_tile - 1) / j.heads_per_tile;
    n *= j.head_tiles;
    j.n_splits = splits ? (int32_t)(n_threads / n) : 1;
    b->n_divided += splits;
    if (splits) attend_split(&j, n);
    else base_threads_for(b->threads, attend_tasks, &j, n, 1);
}
