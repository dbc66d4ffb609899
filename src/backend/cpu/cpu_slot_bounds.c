/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_slot_bounds.c: slots chosen anew for each row (backend/slot_bounds.h), on the CPU.
 *
 * The larger of q * largest and q * smallest is q+ * largest + q- * smallest, where q+ has the positive elements of q,
 * and q- the negative ones: two products with blocks of 64 "keys" each, by the kernel that computes scores. Before a
 * layer attends, tasks (row, KV head) rotate the row's queries once for each run of groups, compute all bounds, and
 * write a mask for each view; attention clears slots that are not in it (cpu_attention.c). A row's masks do not depend
 * on other rows.
 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_kv_elements.h"
#include "backend/slot_bounds.h"

/* ---- filling ---- */

typedef struct fill_job {
    const cpu_backend *b;
    const slot_bounds *bounds;
    const kv_context *context;
    float *keys; /* of each thread: [3][key_dim]: a key, the largest elements, the smallest */
} fill_job;

/* Slots that no row can see do not count: whether their keys are still there depends on the cache. */
static void fill_group(const fill_job *j, int32_t layer, int32_t kv_head, int32_t group, float *key) {
    const slot_bounds *s = j->bounds;
    const int32_t dim = s->key_dim, window = j->b->shape.layers[layer].window;
    float *largest = key + dim, *smallest = largest + dim;
    for (int32_t d = 0; d < dim; d++) largest[d] = -INFINITY, smallest[d] = INFINITY;
    if (!slot_bounds_reaches(s, group, s->end, window))
        for (int32_t d = 0; d < dim; d++) largest[d] = smallest[d] = 0;
    for (int32_t i = s->groups[group].first; i < s->groups[group].end; i++) {
        if (window > 0 && s->end - s->slots[i].pos >= window) continue;
        const kv_span *span = j->context->views[s->slots[i].view].span;
        const int32_t block = s->slots[i].slot / KV_BLOCK_SLOTS, slot = s->slots[i].slot % KV_BLOCK_SLOTS;
        cpu_elements(kv_span_layer(span, layer), cpu_keys(span, layer, block, kv_head), true, slot, key);
        for (int32_t d = 0; d < dim; d++) {
            largest[d] = BASE_MAX(largest[d], key[d]);
            smallest[d] = BASE_MIN(smallest[d], key[d]);
        }
    }
    for (int smaller = 0; smaller < 2; smaller++)
        j->b->kernels.store_key_f16(smaller ? smallest : largest, dim,
                                    slot_bounds_keys(s, layer, kv_head, group / KV_BLOCK_SLOTS, smaller),
                                    group % KV_BLOCK_SLOTS);
}

static void fill_blocks(void *arg, int64_t begin, int64_t end, int thread) {
    const fill_job *j = arg;
    const slot_bounds *s = j->bounds;
    const int64_t n_blocks = slot_bounds_blocks(s), n_heads = s->n_kv_heads;
    float *keys = j->keys + (int64_t)thread * 3 * s->key_dim;
    for (int64_t i = begin; i < end; i++) {
        const int32_t layer = (int32_t)(i / n_blocks / n_heads), kv_head = (int32_t)(i / n_blocks % n_heads);
        const int32_t block = (int32_t)(i % n_blocks), first = block * KV_BLOCK_SLOTS;
        const size_t bytes = sizeof(*s->keys) * 2 * (size_t)s->key_dim * KV_BLOCK_SLOTS;
        memset(slot_bounds_keys(s, layer, kv_head, block, false), 0, bytes);
        for (int32_t group = first; group < BASE_MIN(first + KV_BLOCK_SLOTS, s->n_groups); group++)
            fill_group(j, layer, kv_head, group, keys);
    }
}

int cpu_bound(backend *self, slot_bounds *bounds, const kv_context *context, rp_error *err) {
    cpu_backend *b = (cpu_backend *)self;
    const size_t bytes = sizeof(float) * 3 * (size_t)bounds->key_dim * (size_t)base_threads_count(b->threads);
    fill_job j = {.b = b, .bounds = bounds, .context = context, .keys = base_alloc(bytes)};
    BASE_ASSERT(bounds->n_kv_heads == b->net->hp.n_kv_heads && bounds->key_dim == b->net->hp.key_dim);
    BASE_ASSERT(bounds->n_views <= context->n_views);
    if (!j.keys) return base_fail_memory(err, bytes, "bounds of slots");
    const int rc = slot_bounds_take_keys(bounds, &b->shape, err);
    if (rc) {
        base_free(j.keys);
        return rc;
    }
    base_threads_for(b->threads, fill_blocks, &j,
                     slot_bounds_blocks(bounds) * b->shape.n_layers * b->net->hp.n_kv_heads, 1);
    base_free(j.keys);
    return RP_OK;
}

/* ---- the rows of a step that choose ---- */

#define HEADS 8 /* query heads whose bounds are computed together */

/* Scratch of a thread, in one allocation. */
typedef struct choice {
    float *angles;        /* [key_dim] */
    float *queries;       /* [3][HEADS][key_dim]: rotated; their positive elements, their negative ones */
    float *scores;        /* [2][HEADS][64] */
    float *bounds;        /* [HEADS][groups] */
    float *highest;       /* [groups] of all heads */
    kv_selection *chosen; /* of the groups */
} choice;

struct cpu_choices {
    int32_t *rows;                     /* [n_rows] of the step that choose */
    size_t *first_views;               /* [n_rows] of their contexts, in cpu_angles.views */
    size_t *first_masks;               /* [n_rows] */
    uint64_t (*masks)[KV_SPAN_BLOCKS]; /* of each row: [KV heads][views of its bounds] */
    int32_t *of_row;                   /* [rows of the step]: index of the row among those that choose; -1 */
    size_t n_rows, n_masks, cap_rows, cap_views, cap_first, cap_masks, cap_of_row;
    choice *scratch; /* one for each thread, for up to n_groups */
    int32_t n_groups;
};

static void free_scratch(const cpu_backend *b, cpu_choices *c) {
    for (int i = 0; c->scratch && i < base_threads_count(b->threads); i++) {
        base_free(c->scratch[i].angles);
        kv_selection_free(c->scratch[i].chosen);
    }
    base_free(c->scratch);
    c->scratch = NULL;
    c->n_groups = 0;
}

void cpu_choices_free(cpu_backend *b) {
    cpu_choices *c = b->choices;
    if (!c) return;
    free_scratch(b, c);
    base_free(c->rows);
    base_free(c->first_views);
    base_free(c->first_masks);
    base_free(c->masks);
    base_free(c->of_row);
    base_free(c);
    b->choices = NULL;
}

static bool alloc_scratch(const cpu_backend *b, cpu_choices *c, int32_t n_groups) {
    const size_t dim = (size_t)b->net->hp.key_dim, rot = dim, n = (size_t)n_groups;
    rp_error err;
    c->scratch = base_calloc((size_t)base_threads_count(b->threads), sizeof(*c->scratch));
    for (int i = 0; c->scratch && i < base_threads_count(b->threads); i++) {
        choice *s = &c->scratch[i];
        s->angles =
            base_alloc(sizeof(float) * (rot + 3 * HEADS * dim + 2 * HEADS * (size_t)KV_BLOCK_SLOTS + (HEADS + 1) * n));
        if (!s->angles || kv_selection_new(&s->chosen, 1, 1, n_groups, &err)) return false;
        s->queries = s->angles + rot;
        s->scores = s->queries + 3 * HEADS * dim;
        s->bounds = s->scores + 2 * HEADS * KV_BLOCK_SLOTS;
        s->highest = s->bounds + HEADS * n;
    }
    c->n_groups = n_groups;
    return c->scratch != NULL;
}

static int reserve_scratch(cpu_backend *b, int32_t n_groups, rp_error *err) {
    cpu_choices *c = b->choices;
    if (n_groups <= c->n_groups) return RP_OK;
    free_scratch(b, c);
    if (alloc_scratch(b, c, n_groups)) return RP_OK;
    free_scratch(b, c);
    return base_fail_memory(err, sizeof(float) * (HEADS + 1) * (uint64_t)n_groups, "bounds of slots");
}

static int reserve_rows(cpu_backend *b, rp_error *err) {
    cpu_choices *c = b->choices;
    const size_t n = (size_t)b->step->n_rows;
    if (base_grow((void **)&c->rows, &c->cap_rows, n, SIZE_MAX / 64, sizeof(*c->rows)) ||
        base_grow((void **)&c->first_views, &c->cap_views, n, SIZE_MAX / 64, sizeof(*c->first_views)) ||
        base_grow((void **)&c->first_masks, &c->cap_first, n, SIZE_MAX / 64, sizeof(*c->first_masks)) ||
        base_grow((void **)&c->of_row, &c->cap_of_row, n, SIZE_MAX / 64, sizeof(*c->of_row)))
        return base_fail_memory(err, n * sizeof(*c->first_masks), "rows that choose slots");
    return RP_OK;
}

int cpu_choices_begin(cpu_backend *b, rp_error *err) {
    bool any = false;
    int32_t n_groups = 0;
    for (int32_t r = 0; r < b->step->n_rows; r++) any |= b->step->rows[r].bounds != NULL;
    b->is_chosen = any;
    if (!any) return RP_OK;
    if (!b->choices && !(b->choices = base_calloc(1, sizeof(*b->choices))))
        return base_fail_memory(err, sizeof(*b->choices), "rows that choose slots");
    cpu_choices *c = b->choices;
    int rc = reserve_rows(b, err);
    c->n_rows = c->n_masks = 0;
    for (int32_t r = 0; r < b->step->n_rows && !rc; r++) {
        const slot_bounds *s = b->step->rows[r].bounds;
        c->of_row[r] = s ? (int32_t)c->n_rows : -1;
        if (!s) continue;
        c->rows[c->n_rows] = r;
        size_t first_view = 0; /* of the row's context, among those of all contexts */
        for (int32_t i = 0; i < b->step->rows[r].context; i++) first_view += b->step->contexts[i]->n_views;
        c->first_views[c->n_rows] = first_view;
        c->first_masks[c->n_rows++] = c->n_masks;
        c->n_masks += s->n_views * (size_t)s->n_kv_heads;
        n_groups = BASE_MAX(n_groups, s->n_groups);
    }
    if (!rc && base_grow((void **)&c->masks, &c->cap_masks, c->n_masks, SIZE_MAX / 64, sizeof(*c->masks)))
        rc = base_fail_memory(err, c->n_masks * sizeof(*c->masks), "masks of slots");
    return rc ? rc : reserve_scratch(b, n_groups, err);
}

uint64_t cpu_chosen_slots(const cpu_backend *b, int32_t row, int32_t kv_head, size_t view, int32_t block) {
    const cpu_choices *c = b->choices;
    const slot_bounds *s = b->step->rows[row].bounds;
    if (!s || view >= s->n_views) return ~UINT64_C(0);
    BASE_DCHECK(c->of_row[row] >= 0 && (size_t)c->of_row[row] < c->n_rows && block < KV_SPAN_BLOCKS);
    return c->masks[c->first_masks[c->of_row[row]] + (size_t)kv_head * s->n_views + view][block];
}

/* ---- choosing ---- */

typedef struct choose_job {
    const cpu_backend *b;
    const model_layer *layer;
    const cpu_angles *angles; /* NULL: queries are not rotated */
    const backend_buffer *queries;
    int32_t group; /* query heads of a KV head */
} choose_job;

/* A row and a KV head of it. */
typedef struct chooser {
    const choose_job *j;
    const slot_bounds *bounds;
    const choice *s;
    int32_t row, kv_head, pos;
    size_t first_view;
} chooser;

/* The queries of n heads for groups of one run: rotated, and taken apart by sign. */
static void prepare_queries(const chooser *c, int32_t first_head, int32_t n, const slot_run *run) {
    const cpu_backend *b = c->j->b;
    const model_hparams *hp = &b->net->hp;
    const float *q = cpu_row_of(c->j->queries, c->row) + (int64_t)first_head * hp->key_dim;
    float *rotated = c->s->queries, *plus = rotated + HEADS * hp->key_dim, *minus = plus + HEADS * hp->key_dim;
    BASE_DCHECK(n <= HEADS);
    if (c->j->angles) {
        const size_t view = c->first_view + (size_t)run->view;
        const int32_t shift = b->step->contexts[b->step->rows[c->row].context]->views[run->view].shift;
        const int32_t rot_dim = c->j->angles->rope->rot_dim;
        const float *shift_cs = c->j->angles->views + view * (size_t)rot_dim;
        const bool is_weighed = c->j->layer->query_weights.data != NULL;
        const float *cs = cpu_shifted_angles(b, c->j->angles, c->row, is_weighed ? 0 : shift, shift_cs, c->s->angles);
        b->kernels.rope(q, cs, n, hp->key_dim, rot_dim, b->net->hp.rope_halves, rotated);
        if (is_weighed) cpu_weigh_queries(b, c->j->layer, n, shift ? shift_cs : NULL, c->s->angles, rotated);
        q = rotated;
    }
    for (int64_t i = 0; i < (int64_t)n * hp->key_dim; i++)
        plus[i] = q[i] > 0 ? q[i] : 0, minus[i] = q[i] < 0 ? q[i] : 0;
}

/* Bounds of a block's groups from `first` to `end` for n heads, whose queries are prepared. */
static void bound_block(const chooser *c, int32_t n, int64_t block, int32_t first, int32_t end) {
    const cpu_backend *b = c->j->b;
    const slot_bounds *s = c->bounds;
    const int64_t dim = s->key_dim;
    BASE_DCHECK(first < end && first / KV_BLOCK_SLOTS == block && end <= (block + 1) * KV_BLOCK_SLOTS);
    const uint16_t *largest = slot_bounds_keys(s, c->j->layer->states, c->kv_head, block, false),
                   *smallest = largest + dim * KV_BLOCK_SLOTS;
    const float *plus = c->s->queries + HEADS * dim, *minus = plus + HEADS * dim, scale = b->net->hp.score_scale;
    float *high = c->s->scores, *low = high + HEADS * KV_BLOCK_SLOTS;
    b->kernels.attn_scores_f16(largest, dim, plus, dim, n, scale, high, KV_BLOCK_SLOTS, smallest);
    b->kernels.attn_scores_f16(smallest, dim, minus, dim, n, scale, low, KV_BLOCK_SLOTS,
                               smallest + dim * KV_BLOCK_SLOTS);
    for (int32_t h = 0; h < n; h++)
        for (int32_t g = first; g < end; g++) {
            const int64_t i = h * KV_BLOCK_SLOTS + g % KV_BLOCK_SLOTS;
            c->s->bounds[(int64_t)h * s->n_groups + g] = high[i] + low[i];
        }
}

static void bound_runs(const chooser *c, int32_t first_head, int32_t n) {
    for (int32_t i = 0; i < c->bounds->n_runs; i++) {
        const slot_run *run = &c->bounds->runs[i];
        prepare_queries(c, first_head, n, run);
        for (int32_t g = run->first, end; g < run->end; g = end) {
            end = BASE_MIN(g - g % KV_BLOCK_SLOTS + KV_BLOCK_SLOTS, run->end);
            bound_block(c, n, g / KV_BLOCK_SLOTS, g, end);
        }
    }
}

/* Joins the bounds of a query head with those of the heads before. */
static void join_bounds(const chooser *c, int32_t head, float *bounds) {
    const slot_bounds *s = c->bounds;
    int32_t last_pos;
    const int32_t window = model_layer_reach(&c->j->b->net->hp, c->j->layer, c->pos, 0, &last_pos);
    const float *slopes = c->j->b->net->alibi_slopes;
    float most = -INFINITY;
    for (int32_t g = 0; g < s->n_groups && (slopes || window > 0); g++) {
        const int32_t last = s->slots[s->groups[g].end - 1].pos;
        if (slopes) bounds[g] -= slopes[head] * (float)(c->pos - last);
        if (!slot_bounds_reaches(s, g, c->pos, window)) bounds[g] = -INFINITY;
    }
    for (int32_t g = 0; g < s->n_groups; g++) most = BASE_MAX(most, bounds[g]);
    if (most == -INFINITY) return; /* no group is within reach */
    for (int32_t g = 0; g < s->n_groups; g++) c->s->highest[g] = BASE_MAX(c->s->highest[g], bounds[g] - most);
}

static void write_masks(const chooser *c, uint64_t (*masks)[KV_SPAN_BLOCKS]) {
    const slot_bounds *s = c->bounds;
    memcpy(masks, s->others, sizeof(*masks) * s->n_views);
    for (int32_t g = 0; g < s->n_groups; g++) {
        if (!kv_selection_has(c->s->chosen, 0, 0, g)) continue;
        for (int32_t i = s->groups[g].first; i < s->groups[g].end; i++)
            masks[s->slots[i].view][s->slots[i].slot / KV_BLOCK_SLOTS] |= UINT64_C(1)
                                                                          << s->slots[i].slot % KV_BLOCK_SLOTS;
    }
}

static void choose_slots(const chooser *c, uint64_t (*masks)[KV_SPAN_BLOCKS]) {
    const int32_t n_groups = c->bounds->n_groups;
    const int32_t first_head = c->kv_head * c->j->group;
    kv_selection *chosen = c->s->chosen;
    for (int32_t g = 0; g < n_groups; g++) c->s->highest[g] = -INFINITY;
    for (int32_t done = 0, n; done < c->j->group; done += n) {
        n = BASE_MIN(c->j->group - done, HEADS);
        bound_runs(c, first_head + done, n);
        for (int32_t h = 0; h < n; h++) join_bounds(c, first_head + done + h, c->s->bounds + (int64_t)h * n_groups);
    }
    BASE_ASSERT(n_groups <= c->j->b->choices->n_groups); /* the capacity of `chosen` */
    chosen->n_slots = n_groups;
    memset(chosen->bits, 0, sizeof(*chosen->bits) * (size_t)kv_selection_words(chosen));
    kv_selection_add_highest(chosen, c->s->highest, 0, 1, c->bounds->most);
    write_masks(c, masks);
}

static void choose_tasks(void *arg, int64_t begin, int64_t end, int thread) {
    const choose_job *j = arg;
    const cpu_choices *all = j->b->choices;
    const int32_t n_heads = j->b->net->hp.n_kv_heads;
    for (int64_t i = begin; i < end; i++) {
        const int64_t k = i / n_heads;
        const model_row *row = &j->b->step->rows[all->rows[k]];
        chooser c = {.j = j, .bounds = row->bounds, .s = &all->scratch[thread], .row = all->rows[k], .pos = row->pos};
        c.kv_head = (int32_t)(i % n_heads);
        c.first_view = all->first_views[k];
        choose_slots(&c, all->masks + all->first_masks[k] + (size_t)c.kv_head * row->bounds->n_views);
    }
}

void cpu_choose(cpu_backend *b, int32_t layer, const backend_buffer *queries) {
    BASE_ASSERT(b->is_chosen);
    const model_layer *l = &b->net->layers[layer];
    choose_job j = {.b = b, .layer = l, .queries = queries, .group = b->net->hp.n_heads / b->net->hp.n_kv_heads};
    if (l->rope != MODEL_NO_ROPE) j.angles = &b->angles[l->rope];
    base_threads_for(b->threads, choose_tasks, &j, (int64_t)b->choices->n_rows * b->net->hp.n_kv_heads, 1);
}
