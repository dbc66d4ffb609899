/* SPDX-License-Identifier: Apache-2.0 */
/* test_shared_attention.c: rows of several contexts with common spans in one step, against each row in a step alone.
 *
 * Contexts are made of a few common views in one order, with differences: views are left out, exchanged, shifted
 * differently, masked differently, used twice, or put between others; some contexts have nothing in common. Every
 * context exists twice, with the same sealed spans and open spans of its own: one takes its rows in steps of a random
 * mix, the other one row per step on one thread. Logits and the KV of fresh tokens are bit-identical. In some worlds
 * each span has a format of its own, in some a few layers are in f16; such KV attends like its elements in f32. Some
 * spans are reduced: each head of each layer has slots of its own. Some rows choose the slots of some views
 * (backend/slot_bounds.h). The choice, attention, and the weights that observers get, agree with their slow definitions
 * (naive_choice.h, naive_attention.h); observers get the same bits from rows together and alone, and change nothing.
 *
 * REPRISE_TEST_ROUNDS: worlds of each model and format, of 3. REPRISE_TEST_DEVICE=vulkan: rows on the device, together
 * and alone; the slow definitions are the CPU's.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/cpu_kv_elements.h"
#include "model/forward.h"
#include "support/golden.h"
#include "support/must.h"
#include "support/naive_choice.h"
#include "support/oracle_run.h"
#include "support/seed.h"
#include "support/test_device.h"

#define N_SPANS 24
#define N_COMMON 6
#define MAX_CONTEXTS 20
#define MAX_ROWS 64
#define MAX_VIEWS 32 /* of a context that is composed */
#define N_STEPS 5
#define FIRST_POS 500 /* of fresh tokens, where the model has so many positions */
#define START_SPREAD \
    50 /* of the first positions of contexts: with the steps, they fit the 256 learned positions of the golden models */
#define MAX_SHIFT 150
#define MOST_WEIGHTS \
    (64 * 64 * N_STEPS * MAX_ROWS) /* that an observer joins for a slot: of at most 64 query heads of 64 layers */

typedef struct engine {
    backend *backend;
    model_forward *forward;
} engine;

/* One context, twice. */
typedef struct twin {
    kv_context together, alone;
    attention_observer *observers[2]; /* of its rows together and alone; NULL: none */
    slot_bounds *bounds[2];           /* the same; made by either engine */
    int32_t pos;                      /* of the next token */
} twin;

typedef struct world {
    const rp_model *model;
    const char *name;
    kv_pool *pool;
    engine together, alone;
    kernel_table kernels;
    kv_span *spans[N_SPANS];
    kv_view common[N_COMMON]; /* their spans, shifts and masks */
    twin twins[MAX_CONTEXTS];
    int32_t n_twins, first_pos;
    bool mixes;                /* formats of spans */
    bool reduces;              /* spans may be reduced, and rows choose slots */
    kv_layer_shape layers[64]; /* of the pool's shape, where it has any */
    int n_observed;            /* contexts of a twin with observers: none, that of rows together, both */
    float *logits, *expected;
    tiny_random *random;
} world;

static int32_t below(world *w, int32_t n) { return (int32_t)tiny_random_below(w->random, (uint64_t)n); }
static bool one_in(world *w, int32_t n) { return below(w, n) == 0; }

/* ---- a world ---- */

static engine open_engine(world *w, rp_kv_format format, base_cpu_level level, int32_t threads) {
    rp_error err = {0};
    engine e;
    backend_options o = {.shape = model_kv_shape(w->model, format),
                         .level = level,
                         .n_ctx = 2048,
                         .n_threads = threads,
                         .max_rows = MAX_ROWS};
    must(backend_open(&e.backend, test_device(), &w->model->net, &o, &err), &err);
    must(model_forward_new(&e.forward, w->model, e.backend, MAX_ROWS, MAX_ROWS, &err), &err);
    return e;
}

static void close_engine(engine *e) {
    model_forward_free(e->forward);
    e->backend->ops->free(e->backend);
}

static void fill_block(world *w, kv_span *s, int32_t layer, int32_t block) {
    const kv_layer_shape *shape = &kv_pool_shape(w->pool)->layers[layer];
    const rp_kv_format format = kv_span_layer_format(s, layer);
    const kv_layer *l = kv_span_layer(s, layer);
    const kernel_table *k = &w->kernels;
    char *cell = base_calloc(1, l->cell_bytes);
    float x[64];
    for (int32_t i = 0; i < 2 * shape->n_heads * KV_BLOCK_SLOTS; i++) {
        int32_t slot = i % KV_BLOCK_SLOTS, head = i / (2 * KV_BLOCK_SLOTS);
        bool is_key = i / KV_BLOCK_SLOTS % 2 == 0;
        int32_t dim = is_key ? shape->key_dim : shape->value_dim;
        assert_true(dim <= 64);
        for (int32_t d = 0; d < dim; d++) x[d] = tiny_random_normal(w->random);
        void *to = cell + (is_key ? 0 : l->key_bytes);
        if (format == RP_KV_F32) (is_key ? k->store_key_f32 : k->store_value_f32)(x, dim, to, slot);
        else if (format == RP_KV_INT8) (is_key ? k->store_key_int8 : k->store_value_int8)(x, dim, to, slot);
        else (is_key ? k->store_key_f16 : k->store_value_f16)(x, dim, to, slot);
        if (!is_key && slot == KV_BLOCK_SLOTS - 1) kv_span_put_cell(s, layer, block, head, cell); /* the head is full */
    }
    base_free(cell);
}

/* The pool's format, or any other that it can hold. */
static rp_kv_format random_format(world *w) {
    const rp_kv_format own = kv_pool_shape(w->pool)->format, f = (rp_kv_format)below(w, RP_N_KV_FORMATS);
    return w->mixes && kv_pool_takes(w->pool, f) ? f : own;
}

static kv_span *encoded(const world *w, kv_span *s, rp_kv_format format) {
    rp_error err = {0};
    kv_span *to;
    if (!kv_format_is_encoded(format)) return s;
    must(kv_span_new_like(&to, s, format, &err), &err);
    must(w->alone.backend->ops->encode(w->alone.backend, s, to, &err), &err);
    kv_span_unref(s);
    return to;
}

/* Random slots of each head of each layer, of blocks that the span has. Its reference is taken. */
static kv_span *reduced(world *w, kv_span *s) {
    rp_error err = {0};
    const kv_shape *shape = kv_pool_shape(w->pool);
    const kv_span *const from = s;
    kv_selection *some;
    kv_span *to = s;
    must(kv_selection_new(&some, shape->n_layers, kv_shape_heads(shape), kv_span_tokens(s), &err), &err);
    for (int32_t head = 0; head < shape->n_layers * kv_shape_heads(shape); head++) {
        const int32_t layer = head / kv_shape_heads(shape), least = below(w, 5);
        for (int32_t slot = 0; slot < some->n_slots; slot++)
            if (below(w, 4) < least && kv_span_has(s, layer, slot / KV_BLOCK_SLOTS))
                kv_selection_add(some, layer, head % kv_shape_heads(shape), slot);
    }
    if (kv_selection_most(some) > 0) {
        must(kv_span_reduce(&to, &from, 1, some, 0, &err), &err);
        assert_int_equal(kv_span_readable_from(to), kv_span_readable_from(s));
        kv_span_unref(s);
    }
    kv_selection_free(some);
    return to;
}

/* Random KV, sealed. In layers with a window, some spans lack blocks that no row attends to. */
static kv_span *make_span(world *w) {
    rp_error err = {0};
    kv_span *s;
    base_key key = {{1}};
    int32_t n = one_in(w, 4) ? KV_SPAN_TOKENS : 1 + below(w, KV_SPAN_TOKENS), slot;
    const rp_kv_format format = random_format(w);
    const rp_kv_format open = kv_format_is_encoded(format) ? kv_pool_shape(w->pool)->format : format;
    must(kv_span_new_in(&s, w->pool, open, below(w, w->first_pos - 100), &err), &err);
    for (int32_t i = 0; i < n; i++) must(kv_span_append(s, &slot, &err), &err);
    for (int32_t b = 0; b * KV_BLOCK_SLOTS < n; b++)
        for (int32_t l = 0; l < kv_pool_shape(w->pool)->n_layers; l++) fill_block(w, s, l, b);
    if (one_in(w, 2)) kv_span_trim(s, w->first_pos - MAX_SHIFT, NULL, 0);
    if (one_in(w, 3) && w->reduces) s = reduced(w, s);
    s = encoded(w, s, format);
    kv_span_seal(s, &key);
    return s;
}

static int32_t random_shift(world *w) {
    if (!model_is_movable(w->model) || one_in(w, 3)) return 0;
    return below(w, 2 * MAX_SHIFT + 1) - MAX_SHIFT;
}

static kv_view random_view(world *w, kv_span *span) {
    kv_view v = {.span = span, .shift = random_shift(w)};
    kv_mask_first(v.mask, kv_span_tokens(span));
    for (int32_t holes = one_in(w, 2) ? below(w, 4) : 0; holes > 0; holes--) {
        int32_t begin = below(w, KV_SPAN_TOKENS);
        kv_mask_clear(v.mask, begin, begin + below(w, 100));
    }
    return v;
}

static void add_view(twin *t, const kv_view *v) {
    rp_error err = {0};
    const uint64_t *mask = kv_span_is_reduced(v->span) ? NULL : v->mask;
    must(kv_context_add(&t->together, v->span, v->shift, mask, &err), &err);
    must(kv_context_add(&t->alone, v->span, v->shift, mask, &err), &err);
}

/* Of some of the views. In half of the worlds with observers, rows alone have none: they must get the same logits. */
static void add_observers(world *w, twin *t) {
    rp_error err = {0};
    const size_t first = (size_t)below(w, (int32_t)t->together.n_views + 1),
                 n = (size_t)below(w, (int32_t)(t->together.n_views - first) + 1);
    const attention_measure measure = (attention_measure)below(w, 4);
    const bool is_relative = measure == ATTENTION_RELATIVE;
    const model_hparams *hp = &w->model->net.hp;
    const int32_t n_layers = is_relative ? hp->n_layers : w->model->n_kv_layers,
                  n_heads = is_relative ? hp->n_heads : hp->n_kv_heads;
    for (int i = 0; i < w->n_observed; i++)
        must(attention_observer_new(&t->observers[i], n_layers, n_heads, measure, MOST_WEIGHTS, first, n, &err), &err);
}

/* Lists the slots of some views; adjacent views are one run where that is possible. */
static void add_bounds(world *w, twin *t) {
    static sequence_slot slots[MAX_VIEWS * KV_SPAN_TOKENS];
    rp_error err = {0};
    int32_t ends[MAX_VIEWS], n_runs = 0, n = 0, before = -1;
    const kv_context *c = &t->together;
    const engine *engines[] = {&w->together, &w->alone};
    assert_true(c->n_views <= MAX_VIEWS);
    for (int32_t i = 0; i < (int32_t)c->n_views; i++) {
        const kv_view *v = &c->views[i];
        const int32_t first = n;
        if (kv_span_is_reduced(v->span) || one_in(w, 6)) continue;
        for (int32_t slot = 0; slot < kv_span_tokens(v->span); slot++)
            if (v->mask[slot / 64] >> (slot % 64) & 1)
                slots[n++] = (sequence_slot){i, slot, kv_span_slot_position(v->span, slot) + v->shift};
        if (n == first) continue;
        const bool goes_on =
            before >= 0 && c->views[before].shift == v->shift && slots[first - 1].pos < slots[first].pos;
        n_runs += !goes_on;
        ends[n_runs - 1] = n;
        before = i;
    }
    if (n == 0) return;
    const int32_t most = 1 + below(w, one_in(w, 4) ? n + 100 : n / 2 + 1);
    for (int k = 0; k < 2; k++) {
        must(
            slot_bounds_new(&t->bounds[k], kv_pool_shape(w->pool), c, slots, n, ends, n_runs, most, w->first_pos, &err),
            &err);
        must(engines[k]->backend->ops->study->bound(engines[k]->backend, t->bounds[k], c, &err), &err);
    }
    const kv_shape *shape = kv_pool_shape(w->pool);
    const int64_t n_keys = slot_bounds_blocks(t->bounds[0]) * shape->n_layers * kv_shape_heads(shape) * 2 *
                           shape->layers[0].key_dim * KV_BLOCK_SLOTS;
    if (t->bounds[0]->keys) /* in the host's memory */
        assert_memory_equal(t->bounds[0]->keys, t->bounds[1]->keys, sizeof(uint16_t) * (size_t)n_keys);
}

static void drop_bounds(twin *t) {
    for (int k = 0; k < 2; k++) {
        slot_bounds_free(t->bounds[k]);
        t->bounds[k] = NULL;
    }
}

/* The common views, with differences. */
static void compose(world *w, twin *t) {
    kv_view views[N_COMMON];
    bool stranger = one_in(w, 6);
    kv_context_init(&t->together, w->pool);
    kv_context_init(&t->alone, w->pool);
    memcpy(views, w->common, sizeof(views));
    for (int32_t i = one_in(w, 3) ? below(w, 3) : 0; i > 0; i--) {
        int32_t a = below(w, N_COMMON), b = below(w, N_COMMON);
        kv_view v = views[a];
        views[a] = views[b];
        views[b] = v;
    }
    for (int32_t i = 0; i < N_COMMON && !stranger; i++) {
        if (one_in(w, 5)) continue;
        kv_view other = random_view(w, views[i].span), between = random_view(w, w->spans[below(w, N_SPANS)]);
        if (one_in(w, 4)) add_view(t, &between);
        add_view(t, one_in(w, 3) ? &other : &views[i]);
    }
    for (int32_t i = below(w, 3); i > 0; i--) {
        kv_view v = random_view(w, w->spans[below(w, N_SPANS)]);
        add_view(t, &v);
    }
    t->pos = w->first_pos + below(w, START_SPREAD);
}

static void open_world(world *w, const rp_model *m, const char *name, rp_kv_format format, bool mixes, int32_t threads,
                       tiny_random *random) {
    rp_error err = {0};
    base_cpu_level level;
    *w = (world){.model = m, .name = name, .random = random, .first_pos = FIRST_POS, .mixes = mixes};
    w->n_observed = below(w, 3);
    if (m->net.positions.data)
        w->first_pos = BASE_MIN(FIRST_POS, (int32_t)m->net.positions.n_out - START_SPREAD - N_STEPS * 40);
    kv_shape shape = model_kv_shape(m, format);
    assert_true(shape.n_layers <= 64);
    for (int32_t i = 0; i < shape.n_layers; i++) {
        w->layers[i] = shape.layers[i];
        w->layers[i].in_f16 = one_in(w, 2);
    }
    if (one_in(w, 2)) shape.layers = w->layers;
    w->reduces = kv_shape_capabilities(&shape).reduces;
    must(base_cpu_detect(&level, &err), &err);
    if (one_in(w, 5)) level = BASE_CPU_GENERIC;
    kernel_table_init(&w->kernels, level);
    w->together = open_engine(w, format, level, threads);
    w->alone = open_engine(w, format, level, 1);
    kv_memory *memory = w->together.backend->ops->memory(w->together.backend); /* the other engine reads it as well */
    must(kv_pool_new(&w->pool, &shape, (uint64_t)1 << 30, memory, &err), &err);
    w->logits = base_calloc(MAX_ROWS, sizeof(float) * (size_t)m->net.hp.n_vocab);
    w->expected = base_calloc(1, sizeof(float) * (size_t)m->net.hp.n_vocab);
    for (int i = 0; i < N_SPANS; i++) w->spans[i] = make_span(w);
    for (int i = 0; i < N_COMMON; i++) w->common[i] = random_view(w, w->spans[i]);
    w->n_twins = 1 + below(w, MAX_CONTEXTS);
    for (int32_t i = 0; i < w->n_twins; i++) {
        compose(w, &w->twins[i]);
        add_observers(w, &w->twins[i]);
        w->twins[i].bounds[0] = w->twins[i].bounds[1] = NULL;
        if (one_in(w, 2) && w->reduces) add_bounds(w, &w->twins[i]);
    }
}

static void close_world(world *w) {
    for (int32_t i = 0; i < MAX_CONTEXTS; i++) {
        drop_bounds(&w->twins[i]);
        for (int k = 0; k < 2; k++) attention_observer_free(w->twins[i].observers[k]);
        if (i >= w->n_twins) continue;
        kv_context_clear(&w->twins[i].together);
        kv_context_clear(&w->twins[i].alone);
    }
    for (int i = 0; i < N_SPANS; i++) kv_span_unref(w->spans[i]);
    kv_pool_free(w->pool);
    close_engine(&w->alone);
    close_engine(&w->together);
    base_free(w->logits);
    base_free(w->expected);
}

/* ---- steps ---- */

typedef enum mix { DECODE,
                   DECODE_AND_PREFILL,
                   ANY,
                   N_MIXES } mix;

static int32_t rows_of(world *w, mix kind, int32_t i) {
    if (kind == DECODE) return 1;
    if (kind == ANY) return below(w, 4);
    return i == 0 ? 1 + below(w, 40) : 1;
}

static void shuffle(world *w, int32_t *order, int32_t n) {
    for (int32_t i = 0; i < n; i++) order[i] = i;
    for (int32_t i = n; i-- > 1;) {
        int32_t j = below(w, i + 1), x = order[i];
        order[i] = order[j];
        order[j] = x;
    }
}

/* Rows of a mix, contexts in a random order. Returns how many. */
static int32_t append_rows(world *w, mix kind, model_row *rows, const kv_context **contexts) {
    rp_error err = {0};
    int32_t order[MAX_CONTEXTS], n = 0;
    shuffle(w, order, w->n_twins);
    for (int32_t i = 0; i < w->n_twins; i++) contexts[i] = &w->twins[i].together;
    for (int32_t i = 0; i < w->n_twins; i++) {
        twin *t = &w->twins[order[i]];
        for (int32_t k = BASE_MIN(rows_of(w, kind, i), MAX_ROWS - n); k > 0; k--, n++) {
            rows[n] = (model_row){.token = below(w, w->model->net.hp.n_vocab), .pos = t->pos++, .context = order[i]};
            rows[n].wants_logits = !one_in(w, 8);
            rows[n].observer = one_in(w, 3) ? NULL : t->observers[0];
            rows[n].bounds = one_in(w, 3) ? NULL : t->bounds[0];
            must(kv_context_append(&t->together, rows[n].pos, &rows[n].span, &rows[n].slot, &err), &err);
        }
    }
    return n;
}

static void check_alone(world *w, const model_row *row, const float *logits) {
    rp_error err = {0};
    twin *t = &w->twins[row->context];
    const kv_context *contexts[] = {&t->alone};
    size_t bytes = sizeof(float) * (size_t)w->model->net.hp.n_vocab;
    model_row r = *row;
    r.context = 0;
    if (r.observer) r.observer = t->observers[1];
    if (r.bounds) r.bounds = t->bounds[1];
    must(kv_context_append(&t->alone, r.pos, &r.span, &r.slot, &err), &err);
    must(model_forward_step(w->alone.forward,
                            &(model_step){.rows = &r, .n_rows = 1, .contexts = contexts, .n_contexts = 1}, w->expected,
                            &err),
         &err);
    if (row->wants_logits && memcmp(logits, w->expected, bytes) != 0)
        fail_msg("%s: context %d at %d: deviates by %g", w->name, (int)row->context, (int)row->pos,
                 oracle_deviation(logits, w->expected, w->model->net.hp.n_vocab));
}

/* Rows of a step, together and each alone, in the order of the step. */
static void run_step(world *w, mix kind) {
    rp_error err = {0};
    model_row rows[MAX_ROWS];
    const kv_context *contexts[MAX_CONTEXTS];
    int32_t n = append_rows(w, kind, rows, contexts);
    if (n == 0) return;
    must(model_forward_step(w->together.forward,
                            &(model_step){.rows = rows, .n_rows = n, .contexts = contexts, .n_contexts = w->n_twins},
                            w->logits, &err),
         &err);
    const float *logits = w->logits;
    for (int32_t r = 0; r < n; r++) {
        check_alone(w, &rows[r], logits);
        if (rows[r].wants_logits) logits += w->model->net.hp.n_vocab;
    }
    for (int32_t i = 0; i < w->n_twins; i++) {
        kv_context_trim(&w->twins[i].together, w->twins[i].pos);
        kv_context_trim(&w->twins[i].alone, w->twins[i].pos);
    }
}

/* The blocks of a layer of two spans: the same ones, and in them the same slots. */
static void check_layer(const kv_span *s, const kv_span *t, const kv_shape *own, int32_t layer) {
    const kv_layer shape = kv_shape_layer(own, layer);
    const size_t bytes = shape.block_bytes;
    char *copies = base_alloc(2 * bytes);
    assert_non_null(copies);
    for (int32_t slot = 0; slot < kv_span_tokens(s); slot++) {
        const int32_t block = slot / KV_BLOCK_SLOTS, at = slot % KV_BLOCK_SLOTS;
        assert_int_equal(kv_span_has(s, layer, block), kv_span_has(t, layer, block));
        if (!kv_span_has(s, layer, block)) continue;
        if (at == 0) kv_span_get_block(s, layer, block, copies), kv_span_get_block(t, layer, block, copies + bytes);
        assert_true(kv_block_same_slot(&shape, copies, at, copies + bytes, at));
    }
    base_free(copies);
}

/* The KV of fresh tokens: that of a layer depends on everything before it. */
static void check_kv(const world *w) {
    const kv_shape *shape = kv_pool_shape(w->pool);
    for (int32_t i = 0; i < w->n_twins; i++) {
        const kv_context *a = &w->twins[i].together, *b = &w->twins[i].alone;
        assert_int_equal(a->n_views, b->n_views);
        for (size_t v = 0; v < a->n_views; v++) {
            const kv_span *s = a->views[v].span, *t = b->views[v].span;
            if (s == t || kv_span_is_sealed(s)) continue;
            assert_int_equal(kv_span_tokens(s), kv_span_tokens(t));
            for (int32_t l = 0; l < shape->n_layers; l++) check_layer(s, t, shape, l);
        }
    }
}

/* Rows together and alone report the same bits. Returns the number of weights above 0. */
static int64_t check_observers(const world *w) {
    int64_t n = 0;
    for (int32_t i = 0; i < w->n_twins && w->n_observed == 2; i++) {
        const attention_observer *a = w->twins[i].observers[0], *b = w->twins[i].observers[1];
        assert_int_equal(a->n, b->n);
        for (size_t k = 0; k < a->n; k++) {
            assert_true(a->weights[k] == b->weights[k]);
            n += a->weights[k] > 0;
        }
    }
    return n;
}

static int64_t n_weights;

static void check_model(const rp_model *m, const char *name, tiny_random *random) {
    static world w;
    int rounds = test_rounds(3);
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < 2 * RP_N_KV_FORMATS; i++) {
            const rp_kv_format format = (rp_kv_format)(i / 2);
            if (kv_format_is_encoded(format)) continue;
            open_world(&w, m, name, format, i % 2, 1 + round % 3, random);
            for (int step = 0; step < N_STEPS; step++) run_step(&w, (mix)below(&w, N_MIXES));
            check_kv(&w);
            n_weights += check_observers(&w);
            close_world(&w);
        }
}

/* ---- tests ---- */

/* Separate heads, groups, one key-value head for all, groups larger than a tile; widths that are not a multiple of a
 * vector. */
static void rows_of_made_up_models_are_what_they_are_alone(void **state) {
    static const int32_t heads[][3] = {{4, 4, 16}, {4, 2, 16}, {8, 1, 8}, {40, 1, 8}, {6, 2, 20}, {64, 2, 4}};
    tiny_random *random = *state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(heads); i++) {
        char name[64];
        oracle_model m;
        tiny_model_shape shape = tiny_model_defaults();
        shape.n_heads = heads[i][0];
        shape.n_kv_heads = heads[i][1];
        shape.head_dim = heads[i][2];
        snprintf(name, sizeof(name), "%d heads of %d over %d", (int)shape.n_heads, (int)shape.head_dim,
                 (int)shape.n_kv_heads);
        oracle_model_open(&m, &shape, "plain");
        check_model(m.model, name, random);
        oracle_model_close(&m);
    }
}

/* Windows, soft caps, sinks, ALiBi, learned positions, layers without positions, two bases of rotation, long-rope,
   heads of several widths. */
static void rows_of_every_kind_of_layer_are_what_they_are_alone(void **state) {
    static const char *const names[] = {"gemma2", "gemma3", "gpt-oss", "bloom", "mpt", "gemma4",
                                        "gpt2", "mistral", "smollm3", "phi3-longrope", "gemma4-moe"};
    golden *g = golden_open();
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        rp_error err = {0};
        rp_model *m;
        const golden_model *file = golden_find(g, names[i]);
        assert_non_null(file);
        must(model_open(&m, file->path, NULL, &err), &err);
        check_model(m, names[i], *state);
        model_close(m);
    }
    golden_close(g);
}

#define MOST_ROUNDS \
    20 /* until a context is divided: whether it is depends on its length and the threads, which are drawn */

/* One context alone in a world of int8 KV, its blocks divided among 2 to 8 threads. Returns how often, with the
 * n_before of earlier models; if that is 0 after all rounds, there are more. */
static uint64_t divide(const rp_model *m, const char *name, uint64_t n_before, tiny_random *random) {
    static world w;
    uint64_t n = n_before;
    int rounds = test_rounds(3);
    for (int round = 0; round < rounds || (n == 0 && round < MOST_ROUNDS); round++) {
        open_world(&w, m, name, RP_KV_INT8, round % 2, 2 + (int32_t)tiny_random_below(random, 7), random);
        for (; w.n_twins > 1; w.n_twins--) {
            kv_context_clear(&w.twins[w.n_twins - 1].together);
            kv_context_clear(&w.twins[w.n_twins - 1].alone);
        }
        for (int step = 0; step < N_STEPS; step++) run_step(&w, step % 2 ? DECODE_AND_PREFILL : DECODE);
        check_kv(&w);
        n_weights += check_observers(&w);
        n += ((cpu_backend *)w.together.backend)->n_divided;
        close_world(&w);
    }
    return n;
}

static void a_context_divided_among_threads_gives_the_same_bytes(void **state) {
    static const int32_t heads[][3] = {{8, 1, 8}, {40, 1, 8}, {6, 2, 20}};
    static const char *const names[] = {"gemma2", "gpt-oss", "bloom", "mistral"};
    uint64_t n = 0;
    for (size_t i = 0; i < BASE_ARRAY_LEN(heads); i++) {
        oracle_model m;
        tiny_model_shape shape = tiny_model_defaults();
        shape.n_heads = heads[i][0];
        shape.n_kv_heads = heads[i][1];
        shape.head_dim = heads[i][2];
        oracle_model_open(&m, &shape, "plain");
        n = divide(m.model, "few heads", n, *state);
        oracle_model_close(&m);
    }
    golden *g = golden_open();
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        rp_error err = {0};
        rp_model *m;
        must(model_open(&m, golden_find(g, names[i])->path, NULL, &err), &err);
        n = divide(m, names[i], n, *state);
        model_close(m);
    }
    golden_close(g);
    printf("attentions with divided contexts: %llu; weights observed: %lld\n", (unsigned long long)n,
           (long long)n_weights);
    assert_true(n > 0 && n_weights > 0);
}

/* The elements of a span, in the pool's format, f32. */
static kv_span *decoded(const world *w, const kv_span *s) {
    rp_error err = {0};
    base_key key = {{1}};
    kv_span *to;
    const kv_shape own = kv_shape_in(kv_pool_shape(w->pool), kv_span_format(s));
    const kernel_table *k = &((cpu_backend *)w->alone.backend)->kernels;
    must(kv_span_new_like(&to, s, RP_KV_F32, &err), &err);
    for (int32_t i = 0; i < own.n_layers * kv_shape_heads(&own) * kv_span_tokens(s); i++) {
        const int32_t slot = i % kv_span_tokens(s), block = slot / KV_BLOCK_SLOTS,
                      head = i / kv_span_tokens(s) % kv_shape_heads(&own);
        const int32_t layer = i / kv_span_tokens(s) / kv_shape_heads(&own), at = slot % KV_BLOCK_SLOTS;
        const kv_layer shape = kv_shape_layer(&own, layer);
        float x[64];
        if (slot >= kv_span_slots(s, layer, head) || (!kv_span_is_reduced(s) && !kv_span_has(s, layer, block)))
            continue;
        cpu_elements(&shape, cpu_keys(s, layer, block, head), true, at, x);
        k->store_key_f32(x, shape.key_dim, cpu_keys(to, layer, block, head), at);
        cpu_elements(&shape, cpu_values(s, layer, block, head), false, at, x);
        k->store_value_f32(x, shape.value_dim, cpu_values(to, layer, block, head), at);
    }
    kv_span_seal(to, &key);
    return to;
}

/* Gives one of each context's twins the elements of its spans instead of their codes. */
static void decode_twins(world *w) {
    for (int32_t i = 0; i < w->n_twins; i++) {
        kv_context *c = &w->twins[i].alone;
        for (size_t v = 0; v < c->n_views; v++) kv_context_replace(c, v, decoded(w, c->views[v].span));
    }
}

/* Rounded queries and weights are the only differences. */
static void spans_of_every_format_attend_like_their_elements(void **state) {
    static const int32_t heads[][3] = {{4, 2, 16}, {8, 4, 8}, {6, 2, 20}};
    static world w;
    double worst = 0;
    for (int round = 0; round < test_rounds(9); round++) {
        oracle_model m;
        tiny_model_shape shape = tiny_model_defaults();
        shape.n_heads = heads[round % 3][0];
        shape.n_kv_heads = heads[round % 3][1];
        shape.head_dim = heads[round % 3][2];
        oracle_model_open(&m, &shape, "plain");
        open_world(&w, m.model, "elements", RP_KV_F32, true, 1 + round % 2, *state);
        decode_twins(&w);
        for (int32_t i = 0; i < w.n_twins; i++) {
            rp_error err = {0};
            twin *t = &w.twins[i];
            model_row row = {.token = below(&w, m.model->net.hp.n_vocab), .pos = t->pos, .wants_logits = true};
            float *const logits[] = {w.logits, w.expected};
            kv_context *const contexts[] = {&t->together, &t->alone};
            model_forward *const forwards[] = {w.together.forward, w.alone.forward};
            for (int k = 0; k < 2; k++) {
                must(kv_context_append(contexts[k], row.pos, &row.span, &row.slot, &err), &err);
                const kv_context *const context = contexts[k];
                must(model_forward_step(forwards[k],
                                        &(model_step){.rows = &row, .n_rows = 1, .contexts = &context, .n_contexts = 1},
                                        logits[k], &err),
                     &err);
            }
            worst = fmax(worst, oracle_deviation(w.logits, w.expected, m.model->net.hp.n_vocab));
        }
        close_world(&w);
        oracle_model_close(&m);
    }
    printf("codes against their elements in f32: %g\n", worst);
    assert_true(worst < 2e-3 && worst > 0);
}

/* ---- the definition ---- */

/* What the rows of a step attend to by definition, against the backend's results and observers' weights. */
static struct {
    world *w;
    void (*attend)(backend *b, int32_t layer, const backend_buffer *queries, backend_buffer *dst);
    double *weights[MAX_CONTEXTS]; /* as the observers' */
    double worst[2];               /* difference of an output, of a weight */
    int64_t n_hidden;              /* slots that rows did not choose */
} defined;

static void join_weight(const world *w, const model_row *row, int32_t layer, int32_t kv_head, const naive_slot *s) {
    const attention_observer *o = row->observer;
    const int64_t view = s->view - (o ? (int64_t)o->first_view : 0);
    if (!o || view < 0 || view >= (int64_t)o->n_views) return;
    const int64_t head =
        o->measure == ATTENTION_TOTAL ? 0 : (int64_t)layer * w->model->net.hp.n_kv_heads + kv_head;
    double *joined = &defined.weights[row->context][(head * (int64_t)o->n_views + view) * KV_SPAN_TOKENS + s->slot];
    *joined = o->measure != ATTENTION_MAXIMUM ? *joined + s->weight : fmax(*joined, s->weight);
}

/* Bounds that are nearer to each other may be in another order. */
#define LEAST_MARGIN 1e-4

/* The slots that a row does not choose, by definition: those that the backend did not, unless two bounds are as good as
   equal. NULL: it sees all. */
static const bool *check_choice(const cpu_backend *b, int32_t layer, const backend_buffer *queries, int32_t r,
                                int32_t kv_head, const kv_context *c) {
    static bool hidden[(MAX_VIEWS + MAX_ROWS) * KV_SPAN_TOKENS];
    const model_row *row = &b->step->rows[r];
    const naive_query q = {.net = b->net, .n_ctx = 2048, .layer = layer, .pos = row->pos, .x = cpu_row_of(queries, r)};
    if (!row->bounds) return NULL;
    assert_true(c->n_views <= MAX_VIEWS + MAX_ROWS);
    const bool is_clear = naive_choose(&q, kv_head, row->bounds, c, hidden) > LEAST_MARGIN;
    for (size_t i = 0; i < c->n_views * KV_SPAN_TOKENS; i++) {
        const size_t view = i / KV_SPAN_TOKENS, slot = i % KV_SPAN_TOKENS;
        const bool is_selected = c->views[view].mask[slot / 64] >> (slot % 64) & 1;
        const bool is_chosen = cpu_chosen_slots(b, r, kv_head, view, (int32_t)slot / 64) >> (slot % 64) & 1;
        if (is_clear && is_selected && is_chosen == hidden[i])
            fail_msg("%s, layer %d, KV head %d: slot %zu of view %zu is %schosen", defined.w->name, layer, kv_head,
                     slot, view, is_chosen ? "" : "not ");
        hidden[i] = is_selected && !is_chosen;
        defined.n_hidden += hidden[i];
    }
    return hidden;
}

static void checking_attend(backend *self, int32_t layer, const backend_buffer *queries, backend_buffer *dst) {
    static naive_slot slots[1 << 14];
    const cpu_backend *b = (cpu_backend *)self;
    const model_layer *l = &b->net->layers[layer];
    const bool *hidden = NULL;
    double out[64];
    defined.attend(self, layer, queries, dst);
    for (int32_t r = 0; r < b->step->n_rows; r++)
        for (int32_t h = 0; h < l->n_heads; h++) {
            const model_row *row = &b->step->rows[r];
            const float *x = cpu_row_of(queries, r) + h * l->key_dim;
            const int32_t states = l->states, group = l->n_heads / l->n_kv_heads, kv_head = h / group;
            const kv_context *c = b->step->contexts[row->context];
            if (h % group == 0) hidden = check_choice(b, layer, queries, r, kv_head, c);
            const naive_query q = {
                .net = b->net, .n_ctx = 2048, .layer = layer, .head = h, .pos = row->pos, .x = x, .hidden = hidden};
            const size_t n = naive_attention(&q, c, slots, BASE_ARRAY_LEN(slots), out);
            for (int32_t d = 0; d < l->value_dim; d++)
                defined.worst[0] =
                    fmax(defined.worst[0], fabs(out[d] - (double)cpu_row_of(dst, r)[h * l->value_dim + d]));
            for (size_t i = 0; i < n; i++) join_weight(defined.w, row, states, kv_head, &slots[i]);
        }
}

static void check_defined(const rp_model *m, const char *name, rp_kv_format format, bool mixes, tiny_random *random) {
    static world w;
    rp_error err = {0};
    model_row rows[MAX_ROWS];
    const kv_context *contexts[MAX_CONTEXTS];
    open_world(&w, m, name, format, mixes, 1 + (int32_t)tiny_random_below(random, 3), random);
    for (; w.n_twins > 3; w.n_twins--) {
        kv_context_clear(&w.twins[w.n_twins - 1].together);
        kv_context_clear(&w.twins[w.n_twins - 1].alone);
    }
    backend_ops ops = *w.together.backend->ops;
    defined.w = &w;
    defined.attend = ops.attend;
    defined.worst[0] = defined.worst[1] = 0;
    ops.attend = checking_attend;
    w.together.backend->ops = &ops;
    for (int32_t i = 0; i < w.n_twins; i++) {
        twin *t = &w.twins[i];
        for (int k = 0; k < 2; k++) attention_observer_free(t->observers[k]);
        const attention_measure measure = (attention_measure)below(&w, 3);
        const int32_t n_kv_heads = m->net.hp.n_kv_heads;
        must(attention_observer_new(&t->observers[0], m->n_kv_layers, n_kv_heads, measure, MOST_WEIGHTS, 0,
                                    t->together.n_views, &err),
             &err);
        t->observers[1] = NULL;
        defined.weights[i] = base_calloc(t->observers[0]->n, sizeof(double));
    }
    for (int step = 0; step < 2; step++) { /* the second one adds to the first */
        const int32_t n = append_rows(&w, step ? DECODE : ANY, rows, contexts);
        const model_step together = {.rows = rows, .n_rows = n, .contexts = contexts, .n_contexts = w.n_twins};
        if (n > 0) must(model_forward_step(w.together.forward, &together, w.logits, &err), &err);
    }
    for (int32_t i = 0; i < w.n_twins; i++) {
        const attention_observer *o = w.twins[i].observers[0];
        const kv_shape *shape = kv_pool_shape(w.pool);
        const int32_t n_heads = m->net.hp.n_kv_heads,
                      n_joined = o->measure == ATTENTION_TOTAL ? shape->n_layers * n_heads : 1;
        for (size_t k = 0; k < o->n; k++) {
            const int32_t head = (int32_t)(k / KV_SPAN_TOKENS / o->n_views), slot = (int32_t)(k % KV_SPAN_TOKENS);
            const size_t view = k / KV_SPAN_TOKENS % o->n_views;
            const double weight = attention_observer_weight(o, head / n_heads, head % n_heads, view, slot);
            defined.worst[1] = fmax(defined.worst[1], fabs(weight - defined.weights[i][k]) / n_joined);
        }
        base_free(defined.weights[i]);
    }
    w.together.backend->ops = ((cpu_backend *)w.alone.backend)->base.ops;
    close_world(&w);
    const bool is_rounded = mixes || kv_format_is_int(format);
    if (defined.worst[0] > (is_rounded ? 1e-2 : 1e-4) || defined.worst[1] > (is_rounded ? 1e-3 : 1e-5))
        fail_msg("%s, %s%s: outputs differ by %g, weights by %g", name, kv_format_name(format),
                 mixes ? " and others" : "", defined.worst[0], defined.worst[1]);
}

static void attention_and_its_observers_agree_with_their_definition(void **state) {
    static const char *const names[] = {"llama", "gemma2", "gemma3", "gpt-oss", "bloom", "gemma4", "gemma4-moe",
                                        "mpt", "gpt2", "mistral", "smollm3", "phi3-longrope"};
    static const rp_kv_format formats[] = {RP_KV_F32, RP_KV_F16, RP_KV_INT8};
    golden *g = golden_open();
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        rp_error err = {0};
        rp_model *m;
        must(model_open(&m, golden_find(g, names[i])->path, NULL, &err), &err);
        for (size_t k = 0; k < 2 * BASE_ARRAY_LEN(formats); k++)
            check_defined(m, names[i], formats[k / 2], k % 2, *state);
        model_close(m);
    }
    golden_close(g);
    printf("slots that rows did not choose: %lld\n", (long long)defined.n_hidden);
    assert_true(defined.n_hidden > 1000);
}

/* A reduced span whose heads all have the slots of a mask, in place of a masked view: the same sums in the same
   order. */
static void check_masks(const rp_model *m, const char *name, rp_kv_format format, tiny_random *random) {
    static world w;
    rp_error err = {0};
    base_key key = {{2}};
    int n_compared = 0;
    open_world(&w, m, name, format, false, 1 + (int32_t)tiny_random_below(random, 3), random);
    const kv_shape *shape = kv_pool_shape(w.pool);
    for (int32_t i = 0; i < w.n_twins; i++) {
        twin *t = &w.twins[i];
        kv_context_clear(&t->together);
        kv_context_clear(&t->alone);
        for (int32_t k = 0; k < N_COMMON; k++) {
            const kv_view v = random_view(&w, w.spans[below(&w, N_SPANS)]);
            const kv_span *const from = v.span;
            kv_selection *some;
            kv_span *to;
            if (kv_span_is_reduced(v.span)) continue;
            must(kv_selection_new(&some, shape->n_layers, kv_shape_heads(shape), kv_span_tokens(v.span), &err), &err);
            for (int32_t slot = 0; slot < some->n_slots; slot++)
                for (int32_t head = 0; head < shape->n_layers * kv_shape_heads(shape); head++)
                    if ((v.mask[slot / 64] >> (slot % 64) & 1) &&
                        kv_span_has(from, head / kv_shape_heads(shape), slot / 64))
                        kv_selection_add(some, head / kv_shape_heads(shape), head % kv_shape_heads(shape), slot);
            if (kv_selection_most(some) > 0) {
                must(kv_span_reduce(&to, &from, 1, some, 0, &err), &err);
                kv_span_seal(to, &key);
                must(kv_context_add(&t->together, to, v.shift, NULL, &err), &err);
                must(kv_context_add(&t->alone, v.span, v.shift, v.mask, &err), &err);
                kv_span_unref(to);
                n_compared++;
            }
            kv_selection_free(some);
        }
        for (int k = 0; k < 2; k++) attention_observer_free(t->observers[k]);
        t->observers[0] = t->observers[1] = NULL;
        drop_bounds(t);
    }
    for (int step = 0; step < 3; step++) run_step(&w, (mix)below(&w, N_MIXES));
    check_kv(&w);
    close_world(&w);
    assert_true(n_compared > 0);
}

static void a_reduced_span_is_a_view_with_a_mask_of_each_head(void **state) {
    static const char *const names[] = {"llama", "gemma2", "gemma3", "gpt-oss", "bloom",
                                        "mpt", "gpt2", "mistral", "phi3-longrope"};
    golden *g = golden_open();
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        rp_error err = {0};
        rp_model *m;
        must(model_open(&m, golden_find(g, names[i])->path, NULL, &err), &err);
        for (int format = 0; format < RP_N_KV_FORMATS; format++)
            if (!kv_format_is_encoded((rp_kv_format)format)) check_masks(m, names[i], (rp_kv_format)format, *state);
        model_close(m);
    }
    golden_close(g);
}

/* Contexts [common views, a span of its own], with all their rows in one step; the plan of that step. */
static const cpu_plan *plan_of(world *w, int32_t n_twins, int32_t rows_each) {
    rp_error err = {0};
    static model_row rows[MAX_ROWS];
    static const kv_context *contexts[MAX_CONTEXTS];
    int32_t n = 0;
    for (int32_t i = 0; i < n_twins; i++) {
        contexts[i] = &w->twins[i].together;
        for (int32_t k = 0; k < rows_each; k++, n++) {
            rows[n] = (model_row){.pos = w->twins[i].pos++, .context = i};
            must(kv_context_append(&w->twins[i].together, rows[n].pos, &rows[n].span, &rows[n].slot, &err), &err);
        }
    }
    must(model_forward_step(w->together.forward,
                            &(model_step){.rows = rows, .n_rows = n, .contexts = contexts, .n_contexts = n_twins},
                            w->logits, &err),
         &err);
    return &((cpu_backend *)w->together.backend)->plan;
}

static void open_plan_world(world *w, oracle_model *m, tiny_random *random, int32_t threads) {
    tiny_model_shape shape = tiny_model_defaults(); /* 2 heads over each of 2 */
    oracle_model_open(m, &shape, "plain");
    open_world(w, m->model, "tiles", RP_KV_F16, false, threads, random);
    for (int32_t i = 0; i < w->n_twins; i++) {
        kv_context_clear(&w->twins[i].together);
        kv_context_clear(&w->twins[i].alone);
    }
    w->n_twins = MAX_CONTEXTS;
    for (int32_t i = 0; i < MAX_CONTEXTS; i++) {
        kv_context_init(&w->twins[i].together, w->pool);
        kv_context_init(&w->twins[i].alone, w->pool);
        w->twins[i].pos = w->first_pos;
    }
}

static void contexts_that_share_spans_share_tiles(void **state) {
    oracle_model m;
    static world w;
    open_plan_world(&w, &m, *state, 1);
    for (int32_t i = 0; i < 8; i++) /* the last one in another order */
        for (int32_t v = 0; v < N_COMMON; v++) add_view(&w.twins[i], &w.common[i == 7 ? (v + 1) % N_COMMON : v]);
    for (int32_t i = 8; i < 10; i++) add_view(&w.twins[i], &(kv_view){.span = w.spans[N_COMMON + i], .mask = {1}});
    const cpu_plan *p = plan_of(&w, 10, 1);
    assert_int_equal(p->n_tiles, 3);
    assert_int_equal(p->tiles[0].n_parts, 8);
    const int32_t *last = p->matches + p->parts[p->tiles[0].first_part + 7].matches;
    assert_int_equal(last[0], -1); /* it is at the end there */
    for (int32_t v = 1; v < N_COMMON; v++) assert_int_equal(last[v], v - 1);
    p = plan_of(&w, 10, 5); /* 16 rows fill a tile, and a context's own rows are cut as they were */
    assert_int_equal(p->n_tiles, 5);
    for (size_t t = 0; t < 3; t++)
        assert_true(p->tiles[t].n_rows >= 12 && p->tiles[t].n_tiles == 3 && p->tiles[t].first_tile == 0);
    close_world(&w);
    oracle_model_close(&m);
}

static void contexts_that_share_little_lead(void **state) {
    oracle_model m;
    static world w;
    open_plan_world(&w, &m, *state, 1);
    for (int32_t i = 0; i < 3; i++) /* one view of six is common */
        for (int32_t v = 0; v < N_COMMON; v++)
            add_view(&w.twins[i], &(kv_view){.span = w.spans[v == 0 ? 0 : v + i * 5], .mask = {1}});
    add_view(&w.twins[3], &(kv_view){.span = w.spans[0], .mask = {1}});
    const cpu_plan *p = plan_of(&w, 4, 1);
    assert_int_equal(p->n_tiles, 3);
    assert_int_equal(p->tiles[0].n_parts, 2); /* the short one follows the first that has its view */
    close_world(&w);
    oracle_model_close(&m);
}

static void few_rows_keep_every_thread_busy(void **state) {
    oracle_model m;
    static world w;
    open_plan_world(&w, &m, *state, 3);
    for (int32_t i = 0; i < 12; i++)
        for (int32_t v = 0; v < N_COMMON; v++) add_view(&w.twins[i], &w.common[v]);
    const cpu_plan *p = plan_of(&w, 12, 1); /* 2 key-value heads: one tile would be 2 tasks, two would be 4 */
    assert_int_equal(p->n_tiles, 3);
    assert_int_equal(plan_of(&w, 1, 1)->n_tiles, 1);
    close_world(&w);
    oracle_model_close(&m);
}

static void a_step_like_the_last_allocates_nothing(void **state) {
    oracle_model m;
    static world w;
    open_plan_world(&w, &m, *state, 1);
    for (int32_t i = 0; i < 8; i++)
        for (int32_t v = 0; v < N_COMMON; v++) add_view(&w.twins[i], &w.common[v]);
    plan_of(&w, 8, 1);
    base_alloc_count();
    for (int i = 0; i < 10; i++) plan_of(&w, 8, 1);
    assert_int_equal(base_alloc_count(), 0);
    close_world(&w);
    oracle_model_close(&m);
}

int main(void) {
    tiny_random random = {test_seed("test_shared_attention", 20261123)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(rows_of_made_up_models_are_what_they_are_alone, &random),
        cmocka_unit_test_prestate(rows_of_every_kind_of_layer_are_what_they_are_alone, &random),
        cmocka_unit_test_prestate(a_context_divided_among_threads_gives_the_same_bytes, &random),
        cmocka_unit_test_prestate(spans_of_every_format_attend_like_their_elements, &random),
        cmocka_unit_test_prestate(attention_and_its_observers_agree_with_their_definition, &random),
        cmocka_unit_test_prestate(a_reduced_span_is_a_view_with_a_mask_of_each_head, &random),
        cmocka_unit_test_prestate(contexts_that_share_spans_share_tiles, &random),
        cmocka_unit_test_prestate(contexts_that_share_little_lead, &random),
        cmocka_unit_test_prestate(few_rows_keep_every_thread_busy, &random),
        cmocka_unit_test_prestate(a_step_like_the_last_allocates_nothing, &random),
    };
    /* what is not of the CPU's code alone */
    const struct CMUnitTest of_devices[] = {tests[0], tests[1], tests[5]};
    if (strcmp(test_device(), "cpu") == 0) return cmocka_run_group_tests(tests, NULL, NULL);
    const model_network net = {.hp = {.n_embd = 64}};
    const char *why = vulkan_backend_unavailable(&net, BACKEND_ANY_DEVICE);
    if (why) {
        printf("skipped: %s\n", why);
        return 77;
    }
    return cmocka_run_group_tests(of_devices, NULL, NULL);
}
