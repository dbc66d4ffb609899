/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_indexer.c: indexers (DeepSeek Sparse Attention) on the CPU: keys of tokens, and the choice of those that a row's
 * attention sees.
 *
 *   visible slots of a row, in the order of its context    more than index_top_k: else all of them are chosen
 *   -> a score each: for each head, in ascending order, weight * max(0, query . key)
 *   -> the highest index_top_k; of equal scores the earlier slot -> a mask for each block of each view of the row
 *
 * Keys are stored rotated to where their span was computed, as those of attention: a view that is moved by a shift
 * turns the queries. A score depends on the row's query and the slot's key alone, and the choice on the sequence of
 * visible slots: neither depends on blocks, spans, the other rows of a step, or threads. Tasks are rows; each thread
 * has its own scratch.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_kv_elements.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "kv/slot_selection.h"

#define INDEX_EPSILON 1e-6f /* of the norm of keys: no metadata have it */

typedef struct index_scratch {
    float *queries;  /* [n_index_heads][index_dim], rotated */
    float *angles;   /* [rot_dim] */
    float *products; /* [n_index_heads][64] of a block */
    float *weights;  /* [n_index_heads] */
    float *scores;   /* [slots of a context] */
    kv_selection *chosen;
} index_scratch;

struct cpu_indexer {
    uint64_t (*masks)[KV_SPAN_BLOCKS]; /* of each row of the step, by view of its context: slots that it sees */
    size_t *first_masks;               /* [max_rows]: of a row's masks */
    size_t *first_views;               /* [contexts of the step]: in cpu_angles.views */
    size_t cap_masks, cap_views;
    int64_t n_slots; /* capacity of the scratch */
    index_scratch *scratch;
};

static void free_scratch(cpu_backend *b) {
    cpu_indexer *x = b->indexer;
    for (int i = 0; x->scratch && i < base_threads_count(b->threads); i++) {
        base_free(x->scratch[i].queries);
        base_free(x->scratch[i].angles);
        base_free(x->scratch[i].products);
        base_free(x->scratch[i].weights);
        base_free(x->scratch[i].scores);
        kv_selection_free(x->scratch[i].chosen);
    }
    base_free(x->scratch);
    x->scratch = NULL;
    x->n_slots = 0;
}

int cpu_indexer_open(cpu_backend *b, int32_t max_rows, rp_error *err) {
    if (b->net->hp.n_index_heads == 0) return RP_OK;
    b->indexer = base_calloc(1, sizeof(*b->indexer));
    if (!b->indexer) return base_fail_memory(err, sizeof(*b->indexer), "the indexer");
    b->indexer->first_masks = base_calloc((size_t)max_rows, sizeof(*b->indexer->first_masks));
    if (b->indexer->first_masks) return RP_OK;
    return base_fail_memory(err, (uint64_t)max_rows * sizeof(*b->indexer->first_masks), "the indexer");
}

void cpu_indexer_free(cpu_backend *b) {
    if (!b->indexer) return;
    free_scratch(b);
    base_free(b->indexer->masks);
    base_free(b->indexer->first_masks);
    base_free(b->indexer->first_views);
    base_free(b->indexer);
}

static bool alloc_scratch(cpu_backend *b, int64_t slots, rp_error *err) {
    const size_t heads = (size_t)b->net->hp.n_index_heads, dim = (size_t)b->net->hp.index_dim;
    cpu_indexer *x = b->indexer;
    x->scratch = base_calloc((size_t)base_threads_count(b->threads), sizeof(*x->scratch));
    for (int i = 0; x->scratch && i < base_threads_count(b->threads); i++) {
        index_scratch *s = &x->scratch[i];
        s->queries = base_alloc_aligned(sizeof(float) * heads * dim, 64);
        s->angles = base_alloc(sizeof(float) * dim);
        s->products = base_alloc_aligned(sizeof(float) * heads * KV_BLOCK_SLOTS, 64);
        s->weights = base_alloc(sizeof(float) * heads);
        s->scores = base_alloc(sizeof(float) * (size_t)slots);
        if (!s->queries || !s->angles || !s->products || !s->weights || !s->scores ||
            kv_selection_new(&s->chosen, 1, 1, (int32_t)slots, err))
            return false;
    }
    x->n_slots = slots;
    return x->scratch != NULL;
}

static int reserve_scratch(cpu_backend *b, int64_t slots, rp_error *err) {
    if (slots <= b->indexer->n_slots) return RP_OK;
    slots = BASE_MIN(BASE_MAX(slots + slots / 2, KV_SPAN_TOKENS), KV_SELECTION_MAX_SLOTS);
    free_scratch(b);
    if (alloc_scratch(b, slots, err)) return RP_OK;
    free_scratch(b);
    return base_fail_memory(err, (uint64_t)slots * sizeof(float), "the indexer's scores");
}

int cpu_indexer_begin(cpu_backend *b, rp_error *err) {
    const model_step *step = b->step;
    cpu_indexer *x = b->indexer;
    size_t n_views = 0, n_masks = 0;
    int64_t most = 0;
    if (!x) return RP_OK;
    if (base_grow((void **)&x->first_views, &x->cap_views, (size_t)step->n_contexts, SIZE_MAX / 8, sizeof(size_t)))
        return base_fail_memory(err, (uint64_t)step->n_contexts * sizeof(size_t), "the indexer");
    for (int32_t c = 0; c < step->n_contexts; c++) {
        x->first_views[c] = n_views;
        n_views += step->contexts[c]->n_views;
        most = BASE_MAX(most, kv_context_slots(step->contexts[c]));
    }
    for (int32_t r = 0; r < step->n_rows; r++) {
        x->first_masks[r] = n_masks;
        n_masks += step->contexts[step->rows[r].context]->n_views;
    }
    if (base_grow((void **)&x->masks, &x->cap_masks, n_masks, SIZE_MAX / 64, sizeof(*x->masks)))
        return base_fail_memory(err, n_masks * sizeof(*x->masks), "the indexer");
    return reserve_scratch(b, most, err);
}

/* ---- keys ---- */

typedef struct index_job {
    cpu_backend *b;
    const model_layer *layer;
    backend_buffer *keys;
    const backend_buffer *queries, *weights;
} index_job;

static void store_keys(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const index_job *j = arg;
    const kernel_table *k = &j->b->kernels;
    const model_norm *norm = &j->layer->index_norm;
    const cpu_angles *angles = &j->b->angles[j->layer->rope];
    const int32_t dim = j->keys->width, rot_dim = angles->rope->rot_dim;
    const bool halves = j->b->net->hp.index_halves;
    for (int64_t r = begin; r < end; r++) {
        const model_row *row = &j->b->step->rows[r];
        float *x = cpu_row_at(j->keys, r);
        k->layer_norm(x, norm->weight.data, norm->bias.data, INDEX_EPSILON, x, dim);
        k->rope(x, angles->rows + r * rot_dim, 1, dim, rot_dim, halves, x);
        const rp_kv_format format = kv_span_layer_format(row->span, j->layer->index);
        BASE_DCHECK(!kv_element_is_int(kv_format_keys(format)) && !kv_span_is_sealed(row->span));
        cpu_element_rows[kv_format_keys(format)]->store(k, true)(
            x, dim, cpu_keys(row->span, j->layer->index, row->slot / KV_BLOCK_SLOTS, 0), row->slot % KV_BLOCK_SLOTS);
    }
}

/* As many as attention's (cpu_attention.c): adjacent rows write into the same cache lines. */
#define STORE_ROWS_PER_TASK 32

void cpu_index_store(backend *self, int32_t layer, backend_buffer *keys) {
    index_job j = {.b = (cpu_backend *)self, .keys = keys};
    j.layer = &j.b->net->layers[layer];
    BASE_ASSERT(j.layer->index >= 0 && keys->width == j.b->net->hp.index_dim);
    BASE_ASSERT(j.b->shape.layers[j.layer->index].key_dim == keys->width);
    base_threads_for(j.b->threads, store_keys, &j, j.b->step->n_rows, STORE_ROWS_PER_TASK);
}

/* ---- the choice of a row ---- */

/* What a task computes with: one row. */
typedef struct index_row {
    const index_job *j;
    const kv_context *context;
    index_scratch *s;
    int32_t row;
    size_t first_view;                 /* of the context, in cpu_angles.views */
    uint64_t (*masks)[KV_SPAN_BLOCKS]; /* [views of the context] */
} index_row;

/* Fills in the masks with all slots that the row sees; returns their number. */
static int64_t see_all(const index_row *i) {
    const model_row *row = &i->j->b->step->rows[i->row];
    int64_t n = 0;
    int32_t last;
    const int32_t reach = model_layer_reach(&i->j->b->net->hp, i->j->layer, row->pos, row->after, &last);
    for (size_t v = 0; v < i->context->n_views; v++)
        for (int32_t block = 0; block < KV_SPAN_BLOCKS; block++) {
            i->masks[v][block] = kv_view_visible(&i->context->views[v], i->j->layer->index, 0, block, last, reach);
            n += base_popcount64(i->masks[v][block]);
        }
    return n;
}

/* The queries for keys of a view. */
static void rotate_queries(const index_row *i, size_t view) {
    const cpu_backend *b = i->j->b;
    const cpu_angles *angles = &b->angles[i->j->layer->rope];
    const int32_t rot_dim = angles->rope->rot_dim;
    const float *shift_cs = angles->views + (i->first_view + view) * (size_t)rot_dim;
    const float *cs =
        cpu_shifted_angles(b, angles, i->row, i->context->views[view].shift, shift_cs, i->s->angles);
    const float *queries = cpu_row_of(i->j->queries, i->row);
    b->kernels.rope(queries, cs, b->net->hp.n_index_heads, b->net->hp.index_dim, rot_dim, b->net->hp.index_halves,
                    i->s->queries);
}

/* total[64] = the scores of a block's slots. */
static void score_block(const index_row *i, size_t view, int32_t block, float total[KV_BLOCK_SLOTS]) {
    const cpu_backend *b = i->j->b;
    const int64_t heads = b->net->hp.n_index_heads, dim = b->net->hp.index_dim;
    const kv_span *span = i->context->views[view].span;
    const kv_element e = kv_format_keys(kv_span_layer_format(span, i->j->layer->index));
    const void *keys = cpu_keys(span, i->j->layer->index, block, 0);
    cpu_element_rows[e]->scores (&b->kernels)(keys, dim, i->s->queries, dim, heads, 1.0f / sqrtf((float)dim),
                                              i->s->products, KV_BLOCK_SLOTS, keys);
    memset(total, 0, sizeof(float) * KV_BLOCK_SLOTS);
    for (int64_t h = 0; h < heads; h++) {
        const float *product = i->s->products + h * KV_BLOCK_SLOTS, weight = i->s->weights[h];
        for (int slot = 0; slot < KV_BLOCK_SLOTS; slot++)
            total[slot] += weight * (product[slot] > 0 ? product[slot] : 0.0f);
    }
}

/* Scores of all slots of the masks, in their order. */
static void score_all(const index_row *i) {
    const cpu_backend *b = i->j->b;
    const float *weights = cpu_row_of(i->j->weights, i->row), scale = 1.0f / sqrtf((float)b->net->hp.n_index_heads);
    const kv_view *rotated = NULL;
    float *scores = i->s->scores;
    for (int32_t h = 0; h < b->net->hp.n_index_heads; h++) i->s->weights[h] = weights[h] * scale;
    for (size_t v = 0; v < i->context->n_views; v++)
        for (int32_t block = 0; block < KV_SPAN_BLOCKS; block++) {
            float total[KV_BLOCK_SLOTS];
            if (!i->masks[v][block]) continue;
            if (!rotated || rotated->shift != i->context->views[v].shift) rotate_queries(i, v);
            rotated = &i->context->views[v];
            score_block(i, v, block, total);
            for (uint64_t bits = i->masks[v][block]; bits; bits &= bits - 1) *scores++ = total[base_ctz64(bits)];
        }
}

/* Leaves the chosen slots of the masks. */
static void keep_chosen(const index_row *i) {
    int32_t n = 0;
    for (size_t v = 0; v < i->context->n_views; v++)
        for (int32_t block = 0; block < KV_SPAN_BLOCKS; block++)
            for (uint64_t bits = i->masks[v][block]; bits; bits &= bits - 1, n++)
                if (!kv_selection_has(i->s->chosen, 0, 0, n)) i->masks[v][block] &= ~(bits & (~bits + 1));
    BASE_DCHECK(n == i->s->chosen->n_slots);
}

static void choose_rows(void *arg, int64_t begin, int64_t end, int thread) {
    const index_job *j = arg;
    const cpu_indexer *x = j->b->indexer;
    const model_step *step = j->b->step;
    for (int64_t r = begin; r < end; r++) {
        const int32_t context = step->rows[r].context;
        const index_row i = {.j = j,
                             .context = step->contexts[context],
                             .s = &x->scratch[thread],
                             .row = (int32_t)r,
                             .first_view = x->first_views[context],
                             .masks = x->masks + x->first_masks[r]};
        const int64_t n = see_all(&i);
        if (n <= j->b->net->hp.index_top_k) continue;
        BASE_ASSERT(n <= x->n_slots);
        score_all(&i);
        i.s->chosen->n_slots = (int32_t)n;
        memset(i.s->chosen->bits, 0, sizeof(*i.s->chosen->bits) * (size_t)kv_selection_words(i.s->chosen));
        kv_selection_add_highest(i.s->chosen, i.s->scores, 0, 1, j->b->net->hp.index_top_k);
        keep_chosen(&i);
    }
}

void cpu_index_choose(backend *self, int32_t layer, const backend_buffer *queries, const backend_buffer *weights) {
    index_job j = {.b = (cpu_backend *)self, .queries = queries, .weights = weights};
    const model_hparams *hp = &j.b->net->hp;
    j.layer = &j.b->net->layers[layer];
    BASE_ASSERT(j.layer->index >= 0 && j.layer->rope != MODEL_NO_ROPE && weights->width == hp->n_index_heads);
    BASE_ASSERT(queries->width == hp->n_index_heads * hp->index_dim);
    base_threads_for(j.b->threads, choose_rows, &j, j.b->step->n_rows, 1);
}

uint64_t cpu_indexed_slots(const cpu_backend *b, int32_t row, size_t view, int32_t block) {
    const cpu_indexer *x = b->indexer;
    BASE_DCHECK(row >= 0 && row < b->step->n_rows && block >= 0 && block < KV_SPAN_BLOCKS);
    BASE_DCHECK(view < b->step->contexts[b->step->rows[row].context]->n_views);
    return x->masks[x->first_masks[row] + view][block];
}
