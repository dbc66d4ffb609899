/* cpu_attention.c: attention over views, on the CPU.
 *
 * For one key-value head and a tile of rows (all heads of the group, up to CPU_TILE_QUERIES queries), in two passes:
 *
 *   1  for each view: rotate the queries to (position - shift), once for each distinct shift in a row;
 *      for each block that the layer's window reaches: 64 scores a query, with ALiBi's bias where the model has it; those of visible
 *      slots are appended to the query's list of scores
 *      soft cap and softmax of each list; a head's sink takes part in it as one more score
 *   2  for each view, each block: add the visible slots' values, weighted; then the softmax's division, once for each query
 *
 * A query's result is a function of the sequence of visible (key, value) pairs in context order: masked slots, later positions, block
 * and span borders leave no trace in the order of any sum. That is why a prompt composed of spans gives the bytes of the plain
 * run wherever the states are the same, and why the two passes keep all scores instead of merging partial results block by block.
 *
 * Tasks are (tile, key-value head); scratch belongs to threads. Heads of a group beyond CPU_TILE_QUERIES make further tiles.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/cpu/cpu_backend.h"

/* ---- scratch ---- */

static void free_scratch(cpu_backend *b) {
    if (!b->scratch) return;
    for (int i = 0; i < base_threads_count(b->threads); i++) {
        base_free(b->scratch[i].scores);
        base_free(b->scratch[i].queries);
        base_free(b->scratch[i].angles);
    }
    base_free(b->scratch);
    b->scratch = NULL;
    b->scratch_slots = 0;
}

void cpu_attention_free(cpu_backend *b) {
    free_scratch(b);
    base_free(b->tiles);
    for (int i = 0; i < CPU_N_ANGLES; i++) {
        base_free(b->angles[i].rows);
        base_free(b->angles[i].views);
    }
}

static bool alloc_scratch(cpu_backend *b, int64_t slots) {
    const model_hparams *hp = &b->model->hp;
    b->scratch = base_calloc((size_t)base_threads_count(b->threads), sizeof(*b->scratch));
    if (!b->scratch) return false;
    for (int i = 0; i < base_threads_count(b->threads); i++) {
        cpu_scratch *s = &b->scratch[i];
        s->scores = base_alloc_aligned(sizeof(float) * CPU_TILE_QUERIES * (size_t)slots, 64);
        s->queries = base_alloc_aligned(sizeof(float) * CPU_TILE_QUERIES * (size_t)hp->key_dim, 64);
        s->angles = base_alloc_aligned(sizeof(float) * (size_t)hp->rot_dim, 64);
        if (!s->scores || !s->queries || !s->angles) return false;
    }
    b->scratch_slots = slots;
    return true;
}

static uint64_t scratch_bytes(const cpu_backend *b, int64_t slots) {
    return sizeof(float) * CPU_TILE_QUERIES * (uint64_t)slots * (uint64_t)base_threads_count(b->threads);
}

/* An odd number of cache lines: lists a power of two apart would evict each other. */
static int reserve(cpu_backend *b, int64_t slots, rp_error *err) {
    slots = ((slots + 15) / 16 | 1) * 16;
    b->activation_bytes -= scratch_bytes(b, b->scratch_slots);
    free_scratch(b);
    if (!alloc_scratch(b, slots)) {
        free_scratch(b);
        return base_fail_memory(err, scratch_bytes(b, slots), "attention scores");
    }
    b->activation_bytes += scratch_bytes(b, slots);
    return RP_OK;
}

/* Contexts up to here find their scratch allocated: 4 MiB a thread. */
#define OPEN_SLOTS 32768

/* Room for the longest list of scores, and a sink, of a context of n_ctx slots. */
int cpu_attention_open(cpu_backend *b, int32_t n_ctx, rp_error *err) {
    return reserve(b, BASE_MIN((int64_t)n_ctx, OPEN_SLOTS) + 1, err);
}

/* The same for the step's contexts. They may hold more slots than positions (what is masked), or be very long: grows by half, so that a
 * generated token rarely allocates. */
static int reserve_scratch(cpu_backend *b, rp_error *err) {
    int64_t most = 0;
    for (int32_t i = 0; i < b->step->n_contexts; i++) most = BASE_MAX(most, kv_context_slots(b->step->contexts[i]) + 1);
    return most <= b->scratch_slots ? RP_OK : reserve(b, most + most / 2, err);
}

/* ---- the plan of a step: angles of every row's position and every view's shift, tiles of rows ---- */

static int row_angles(cpu_backend *b, cpu_angles *a, rp_error *err) {
    const model_step *step = b->step;
    size_t rot = (size_t)b->model->hp.rot_dim;
    int rc = base_grow((void **)&a->rows, &a->cap_rows, (size_t)step->n_rows * rot, SIZE_MAX / 8, sizeof(float));
    if (rc) return base_fail_memory(err, (uint64_t)step->n_rows * rot * sizeof(float), "rotations");
    for (int32_t r = 0; r < step->n_rows; r++)
        model_rope_angles(b->model, a->rope, step->rows[r].pos, a->rope->magnitude, a->rows + (size_t)r * rot);
    return RP_OK;
}

static int view_angles(cpu_backend *b, cpu_angles *a, rp_error *err) {
    size_t rot = (size_t)b->model->hp.rot_dim, n = 0;
    for (int32_t i = 0; i < b->step->n_contexts; i++) n += b->step->contexts[i]->n_views;
    int rc = base_grow((void **)&a->views, &a->cap_views, n * rot, SIZE_MAX / 8, sizeof(float));
    if (rc) return base_fail_memory(err, n * rot * sizeof(float), "rotations");
    float *cs = a->views;
    for (int32_t i = 0; i < b->step->n_contexts; i++) {
        const kv_context *c = b->step->contexts[i];
        for (size_t v = 0; v < c->n_views; v++, cs += rot) {
            if (v > 0 && c->views[v].shift == c->views[v - 1].shift) memcpy(cs, cs - rot, rot * sizeof(float));
            else model_rope_angles(b->model, a->rope, c->views[v].shift, 1.0f, cs);
        }
    }
    return RP_OK;
}

static size_t first_view_of(const model_step *step, int32_t context) {
    size_t n = 0;
    for (int32_t i = 0; i < context; i++) n += step->contexts[i]->n_views;
    return n;
}

static int cut_tiles(cpu_backend *b, rp_error *err) {
    const model_step *step = b->step;
    b->n_tiles = 0;
    int rc = base_grow((void **)&b->tiles, &b->cap_tiles, (size_t)step->n_rows, SIZE_MAX / 64, sizeof(*b->tiles));
    if (rc) return base_fail_memory(err, (uint64_t)step->n_rows * sizeof(*b->tiles), "tiles");
    for (int32_t r = 0; r < step->n_rows;) {
        int32_t end = r + 1, context = step->rows[r].context;
        while (end < step->n_rows && end - r < b->rows_per_tile && step->rows[end].context == context) end++;
        b->tiles[b->n_tiles++] = (cpu_row_tile){r, end - r, context, first_view_of(step, context)};
        r = end;
    }
    return RP_OK;
}

int cpu_attention_begin(cpu_backend *b, rp_error *err) {
    int rc = reserve_scratch(b, err);
    for (int i = 0; i < CPU_N_ANGLES && !rc; i++) {
        cpu_angles *a = &b->angles[i];
        if (a->rope && !(rc = row_angles(b, a, err))) rc = view_angles(b, a, err);
    }
    return rc ? rc : cut_tiles(b, err);
}

/* ---- storing ---- */

typedef struct store_job {
    cpu_backend *b;
    int32_t layer;
    backend_buffer *keys;
    const backend_buffer *values;
} store_job;

static void store_row(store_job *j, int64_t r) {
    const cpu_backend *b = j->b;
    const model_hparams *hp = &b->model->hp;
    const model_row *row = &b->step->rows[r];
    const kernel_table *k = &b->kernels;
    bool f32 = b->shape.format == KV_F32;
    float *keys = j->keys->data + r * j->keys->width;
    const float *values = j->values->data + r * j->values->width;
    const model_layer *layer = &b->model->layers[j->layer];
    bool halves = (b->model->arch->features & MODEL_ROPE_HALVES) != 0;
    if (layer->rope != MODEL_NO_ROPE)
        k->rope(keys, b->angles[layer->rope].rows + r * hp->rot_dim, hp->n_kv_heads, hp->key_dim, hp->rot_dim, halves, keys);
    void *block = kv_span_block(row->span, layer->states, row->slot / KV_BLOCK_SLOTS);
    int slot = row->slot % KV_BLOCK_SLOTS;
    for (int32_t h = 0; h < hp->n_kv_heads; h++) {
        (f32 ? k->store_key_f32 : k->store_key_f16)(keys + (int64_t)h * hp->key_dim, hp->key_dim,
                                                    kv_block_keys(&b->shape, block, h), slot);
        (f32 ? k->store_value_f32 : k->store_value_f16)(values + (int64_t)h * hp->value_dim, hp->value_dim,
                                                        kv_block_values(&b->shape, block, h), slot);
    }
}

static void store_rows(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    for (int64_t r = begin; r < end; r++) store_row(arg, r);
}

/* Rows next to each other write into the same cache lines of a block's keys, so a task takes many. */
#define STORE_ROWS_PER_TASK 32

void cpu_store(backend *self, int32_t layer, backend_buffer *keys, const backend_buffer *values) {
    store_job j = {(cpu_backend *)self, layer, keys, values};
    base_threads_for(j.b->threads, store_rows, &j, j.b->step->n_rows, STORE_ROWS_PER_TASK);
}

/* ---- attending ---- */

typedef struct attend_job {
    cpu_backend *b;
    const model_layer *layer;
    const cpu_angles *angles; /* NULL: queries are not rotated */
    int32_t group, head_tiles, heads_per_tile; /* group: heads that share a key-value head, in head_tiles tiles */
    const backend_buffer *queries;
    backend_buffer *dst;
} attend_job;

/* One task. Query q of the tile is head (first_head + q % n_heads) of row (rows->row + q / n_heads). */
typedef struct tile {
    const attend_job *j;
    const cpu_row_tile *rows;
    const kv_context *context;
    cpu_scratch *scratch;
    int32_t kv_head, first_head, n_heads, n_queries;
    int32_t lowest; /* position of the rows */
    float factors[CPU_TILE_QUERIES]; /* of each query: what its sum of weighted values is still to be multiplied by */
    int64_t done[CPU_TILE_QUERIES];  /* of each row: scores appended (pass 1) or used (pass 2); its heads see the same slots */
} tile;

/* The angles of (position - shift): cos and sin of a difference. A shift of 0 gives the row's own, to the bit. */
static const float *shifted_angles(const tile *t, int32_t r, int32_t shift, const float *shift_cs) {
    const cpu_backend *b = t->j->b;
    int32_t rot = b->model->hp.rot_dim;
    const float *a = t->j->angles->rows + (int64_t)(t->rows->row + r) * rot;
    if (shift == 0) return a;
    float *out = t->scratch->angles;
    for (int32_t i = 0; i < rot; i += 2) {
        out[i] = a[i] * shift_cs[i] + a[i + 1] * shift_cs[i + 1];
        out[i + 1] = a[i + 1] * shift_cs[i] - a[i] * shift_cs[i + 1];
    }
    return out;
}

/* The queries as they meet the keys of a view that is moved by `shift`. */
static void rotate_queries(tile *t, int32_t shift, const float *shift_cs) {
    const cpu_backend *b = t->j->b;
    const model_hparams *hp = &b->model->hp;
    bool halves = (b->model->arch->features & MODEL_ROPE_HALVES) != 0;
    int64_t width = (int64_t)t->n_heads * hp->key_dim;
    for (int32_t r = 0; r < t->rows->n_rows; r++) {
        const float *q = cpu_row_of(t->j->queries, t->rows->row + r) + (int64_t)t->first_head * hp->key_dim;
        float *out = t->scratch->queries + r * width;
        if (!t->j->angles) memcpy(out, q, sizeof(float) * (size_t)width);
        else b->kernels.rope(q, shifted_angles(t, r, shift, shift_cs), t->n_heads, hp->key_dim, hp->rot_dim, halves, out);
    }
}

/* Does the view end before the window of the first row begins? Then no row sees any of it. */
static bool out_of_reach(const tile *t, const kv_view *v) {
    int64_t end = (int64_t)kv_span_position(v->span) + v->shift + kv_span_tokens(v->span);
    return t->j->layer->window > 0 && end <= (int64_t)t->lowest - t->j->layer->window + 1;
}

/* Visible slots of a block for each row; false if no row sees any. */
static bool block_visibility(const tile *t, const kv_view *v, int32_t block, uint64_t *visible) {
    uint64_t any = 0;
    const model_row *rows = t->j->b->step->rows + t->rows->row;
    for (int32_t r = 0; r < t->rows->n_rows; r++) any |= visible[r] = kv_view_visible(v, block, rows[r].pos, t->j->layer->window);
    return any != 0;
}

/* The block that is probably attended after block `block` of view i; NULL: none. */
static void *block_after(const tile *t, size_t i, int32_t block) {
    const kv_span *span = t->context->views[i].span;
    if (++block * KV_BLOCK_SLOTS >= kv_span_tokens(span)) {
        if (++i == t->context->n_views) return NULL;
        span = t->context->views[i].span;
        block = 0;
    }
    return kv_span_block(span, t->j->layer->states, block);
}

static float *scores_of(const tile *t, int32_t r, int32_t head) {
    return t->scratch->scores + (int64_t)(r * t->n_heads + head) * t->j->b->scratch_slots;
}

/* Appends the scores of visible slots to the lists of one row's queries. scores: [query][64] */
static void append_scores(tile *t, int32_t r, uint64_t visible, const float *scores) {
    for (int32_t h = 0; h < t->n_heads; h++) {
        float *list = scores_of(t, r, h) + t->done[r];
        const float *s = scores + (int64_t)(r * t->n_heads + h) * KV_BLOCK_SLOTS;
        if (visible == ~UINT64_C(0)) memcpy(list, s, sizeof(float) * KV_BLOCK_SLOTS);
        else
            for (uint64_t bits = visible; bits; bits &= bits - 1) *list++ = s[base_ctz64(bits)];
    }
    t->done[r] += base_popcount64(visible);
}

/* Do all rows of the tile see the same slots here, and have they seen equally many before? Then one call serves them all. */
static bool rows_agree(const tile *t, const uint64_t *visible) {
    for (int32_t r = 1; r < t->rows->n_rows; r++)
        if (visible[r] != visible[0] || t->done[r] != t->done[0]) return false;
    return true;
}

/* ALiBi: each score less the head's slope times the distance in positions. Scores of two queries are `stride` apart. */
static void add_bias(const tile *t, const kv_view *v, int32_t block, float *scores, int64_t stride) {
    const cpu_backend *b = t->j->b;
    int32_t first = kv_span_position(v->span) + v->shift + block * KV_BLOCK_SLOTS;
    for (int32_t r = 0; r < t->rows->n_rows; r++) {
        int32_t distance = b->step->rows[t->rows->row + r].pos - first;
        for (int32_t h = 0; h < t->n_heads; h++) {
            float slope = b->model->alibi_slopes[t->first_head + h], *s = scores + (r * t->n_heads + h) * stride;
            for (int32_t i = 0; i < KV_BLOCK_SLOTS; i++) s[i] -= slope * (float)(distance - i);
        }
    }
}

static void score_block(tile *t, size_t i, int32_t block, const uint64_t *visible) {
    const cpu_backend *b = t->j->b;
    const kv_view *v = &t->context->views[i];
    void *next = block_after(t, i, block);
    int32_t dim = b->shape.key_dim;
    float some[CPU_TILE_QUERIES * KV_BLOCK_SLOTS];
    bool whole = visible[0] == ~UINT64_C(0) && rows_agree(t, visible); /* straight to the lists */
    float *scores = whole ? scores_of(t, 0, 0) + t->done[0] : some;
    int64_t stride = whole ? b->scratch_slots : KV_BLOCK_SLOTS;
    const void *k = kv_block_keys(&b->shape, kv_span_block(v->span, t->j->layer->states, block), t->kv_head);
    kernel_attn_scores_fn fn = b->shape.format == KV_F32 ? b->kernels.attn_scores_f32 : b->kernels.attn_scores_f16;
    fn(k, dim, t->scratch->queries, dim, t->n_queries, b->model->hp.score_scale, scores, stride,
       next ? kv_block_keys(&b->shape, next, t->kv_head) : NULL);
    if (b->model->alibi_slopes) add_bias(t, v, block, scores, stride);
    for (int32_t r = 0; r < t->rows->n_rows; r++) {
        if (whole) t->done[r] += KV_BLOCK_SLOTS;
        else if (visible[r]) append_scores(t, r, visible[r], scores);
    }
}

static void pass_scores(tile *t) {
    uint64_t visible[CPU_TILE_QUERIES];
    size_t rot = (size_t)t->j->b->model->hp.rot_dim;
    const kv_view *rotated = NULL; /* the queries stand rotated for this view's shift */
    for (size_t i = 0; i < t->context->n_views; i++) {
        const kv_view *v = &t->context->views[i];
        for (int32_t block = 0; block < KV_SPAN_BLOCKS && !out_of_reach(t, v); block++) {
            if (!block_visibility(t, v, block, visible)) continue;
            if (!rotated || (t->j->angles && rotated->shift != v->shift))
                rotate_queries(t, v->shift, t->j->angles ? t->j->angles->views + (t->rows->first_view + i) * rot : NULL);
            rotated = v;
            score_block(t, i, block, visible);
        }
    }
}

/* Scores become weights, but for a factor. The weight of a sink is left behind the others, and not used. */
static void weigh_scores(tile *t, int32_t r, int32_t head) {
    const cpu_backend *b = t->j->b;
    const float *sinks = t->j->layer->sinks.data;
    float *list = scores_of(t, r, head), cap = b->model->hp.score_cap;
    int64_t n = t->done[r];
    if (cap > 0) b->kernels.soft_cap(list, cap, n);
    if (sinks) list[n++] = sinks[t->first_head + head];
    t->factors[r * t->n_heads + head] = n > 0 ? b->kernels.softmax(list, n) : 0.0f;
}

static float *output_of(const tile *t, int32_t r) {
    return t->j->dst->data + (int64_t)(t->rows->row + r) * t->j->dst->width + (int64_t)t->first_head * t->j->b->shape.value_dim;
}

static void add_values(tile *t, size_t i, int32_t block, const uint64_t *visible) {
    const cpu_backend *b = t->j->b;
    const kv_view *v = &t->context->views[i];
    int32_t dim = b->shape.value_dim;
    void *after = block_after(t, i, block);
    const void *next = after ? kv_block_values(&b->shape, after, t->kv_head) : NULL;
    const void *values = kv_block_values(&b->shape, kv_span_block(v->span, t->j->layer->states, block), t->kv_head);
    kernel_attn_values_fn fn = b->shape.format == KV_F32 ? b->kernels.attn_values_f32 : b->kernels.attn_values_f16;
    /* the heads of one row are `dim` apart in the output; rows are not, so each row is a call unless there is but one head */
    bool together = t->n_heads == 1 && rows_agree(t, visible);
    if (together)
        fn(values, dim, visible[0], scores_of(t, 0, 0) + t->done[0], b->scratch_slots, t->n_queries, output_of(t, 0), t->j->dst->width, next);
    for (int32_t r = 0; r < t->rows->n_rows; r++) {
        if (!visible[r]) continue;
        if (!together)
            fn(values, dim, visible[r], scores_of(t, r, 0) + t->done[r], b->scratch_slots, t->n_heads, output_of(t, r), dim, next);
        t->done[r] += base_popcount64(visible[r]);
    }
}

static void pass_values(tile *t) {
    uint64_t visible[CPU_TILE_QUERIES];
    for (int32_t r = 0; r < t->rows->n_rows; r++) {
        t->done[r] = 0;
        memset(output_of(t, r), 0, sizeof(float) * (size_t)t->n_heads * (size_t)t->j->b->shape.value_dim);
    }
    for (size_t i = 0; i < t->context->n_views; i++) {
        const kv_view *v = &t->context->views[i];
        for (int32_t block = 0; block < KV_SPAN_BLOCKS && !out_of_reach(t, v); block++)
            if (block_visibility(t, v, block, visible)) add_values(t, i, block, visible);
    }
    int32_t dim = t->j->b->shape.value_dim;
    for (int32_t q = 0; q < t->n_queries; q++)
        t->j->b->kernels.scale(output_of(t, q / t->n_heads) + (int64_t)(q % t->n_heads) * dim, t->factors[q], dim);
}

static void attend_tile(const attend_job *j, int64_t task, int thread) {
    cpu_backend *b = j->b;
    int32_t n_kv_heads = b->shape.n_kv_heads, head_tile = (int32_t)(task % j->head_tiles);
    task /= j->head_tiles;
    tile t = {.j = j, .rows = &b->tiles[task / n_kv_heads], .scratch = &b->scratch[thread]};
    t.context = b->step->contexts[t.rows->context];
    t.kv_head = (int32_t)(task % n_kv_heads);
    t.first_head = t.kv_head * j->group + head_tile * j->heads_per_tile;
    t.n_heads = BASE_MIN(j->heads_per_tile, j->group - head_tile * j->heads_per_tile);
    t.n_queries = t.n_heads * t.rows->n_rows;
    t.lowest = b->step->rows[t.rows->row].pos;
    for (int32_t r = 1; r < t.rows->n_rows; r++) t.lowest = BASE_MIN(t.lowest, b->step->rows[t.rows->row + r].pos);
    pass_scores(&t);
    for (int32_t r = 0; r < t.rows->n_rows; r++)
        for (int32_t h = 0; h < t.n_heads; h++) weigh_scores(&t, r, h);
    pass_values(&t);
}

static void attend_tasks(void *arg, int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; i++) attend_tile(arg, i, thread);
}

void cpu_attend(backend *self, int32_t layer, const backend_buffer *queries, backend_buffer *dst) {
    cpu_backend *b = (cpu_backend *)self;
    int32_t group = b->model->hp.n_heads / b->model->hp.n_kv_heads;
    const model_layer *l = &b->model->layers[layer];
    attend_job j = {.b = b, .layer = l, .group = group, .heads_per_tile = b->heads_per_tile, .queries = queries, .dst = dst};
    if (l->rope != MODEL_NO_ROPE) j.angles = &b->angles[l->rope];
    int64_t n = (int64_t)b->n_tiles * b->shape.n_kv_heads;
    /* one row over few key-value heads: a block is read more than once rather than that threads have nothing to do */
    while (n * ((group + j.heads_per_tile - 1) / j.heads_per_tile) < base_threads_count(b->threads) && j.heads_per_tile > 1)
        j.heads_per_tile = (j.heads_per_tile + 1) / 2;
    j.head_tiles = (group + j.heads_per_tile - 1) / j.heads_per_tile;
    n *= j.head_tiles;
    base_threads_for(b->threads, attend_tasks, &j, n, 1);
}
