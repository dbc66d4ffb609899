/* SPDX-License-Identifier: Apache-2.0 */
/* test_studies.c: what judges slots, on the device and on the CPU, with the same KV: reduced spans, whose heads have
 * slots of their own; weights of observers of every measure, slots that rows choose; queries; deviations; and norms of
 * what values add. Results are near each other; that rows give the same bits in any step is test_shared_attention.c's.
 *
 *   REPRISE_TEST_SEED=N  other numbers
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend_registry.h"
#include "backend/slot_bounds.h"
#include "backend/vulkan/vulkan_device.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "kernels/kernels.h"
#include "model/forward.h"
#include "support/golden.h"
#include "support/must.h"
#include "support/oracle_run.h"
#include "support/seed.h"
#include "support/tiny_random.h"

#define MAX_ROWS 48
#define N_SPANS 3
#define N_TOKENS 150 /* of a span; the last block has 22 */
#define POS 470      /* of the first row */

static const char *const devices[2] = {"cpu", "vulkan"};
static tiny_random numbers;

static int32_t below(int32_t n) { return (int32_t)tiny_random_below(&numbers, (uint64_t)n); }

/* A context on each device, with the same KV. */
typedef struct side {
    backend *b;
    model_forward *forward;
    kv_pool *pool;
    kv_span *spans[N_SPANS];
    kv_context context;
    attention_observer *observer;
    query_record *queries;
    slot_bounds *bounds;
} side;

typedef struct world {
    rp_model *model;
    side sides[2];
} world;

/* ---- KV ---- */

static void fill_span(kv_span *s) {
    for (int32_t layer = 0; layer < kv_span_shape(s)->n_layers; layer++) {
        const kv_layer *l = kv_span_layer(s, layer);
        const size_t n = l->cell_bytes / sizeof(uint16_t);
        uint16_t *cell = malloc(l->cell_bytes);
        for (int32_t i = 0; i < l->n_heads * KV_SPAN_BLOCKS; i++) {
            if (i / l->n_heads * KV_BLOCK_SLOTS >= kv_span_tokens(s)) continue;
            for (size_t k = 0; k < n; k++) cell[k] = kernel_f32_to_f16(tiny_random_normal(&numbers));
            kv_span_put_cell(s, layer, i / l->n_heads, i % l->n_heads, cell);
        }
        free(cell);
    }
}

static void copy_span(const kv_span *from, kv_span *to) {
    for (int32_t layer = 0; layer < kv_span_shape(from)->n_layers; layer++) {
        const kv_layer *l = kv_span_layer(from, layer);
        char *cell = malloc(l->cell_bytes);
        for (int32_t i = 0; i < l->n_heads * KV_SPAN_BLOCKS; i++) {
            if (i / l->n_heads * KV_BLOCK_SLOTS >= kv_span_tokens(from)) continue;
            kv_span_get_cell(from, layer, i / l->n_heads, i % l->n_heads, cell);
            kv_span_put_cell(to, layer, i / l->n_heads, i % l->n_heads, cell);
        }
        free(cell);
    }
}

static kv_span *new_span(kv_pool *pool, int32_t pos) {
    kv_span *s;
    rp_error err = {0};
    int32_t slot;
    must(kv_span_new_in(&s, pool, RP_KV_F16, pos, &err), &err);
    for (int i = 0; i < N_TOKENS; i++) must(kv_span_append(s, &slot, &err), &err);
    return s;
}

/* Takes the reference of a span and gives one with some of its slots, others in each head. */
static kv_span *reduced(kv_span *s, const kv_selection *some) {
    const kv_span *const from = s;
    rp_error err = {0};
    kv_span *to;
    must(kv_span_reduce(&to, &from, 1, some, 0, &err), &err);
    kv_span_unref(s);
    return to;
}

/* ---- worlds ---- */

static void open_side(world *w, int k) {
    const kv_shape shape = model_kv_shape(w->model, RP_KV_F16);
    side *s = &w->sides[k];
    base_cpu_level level;
    rp_error err = {0};
    must(base_cpu_detect(&level, &err), &err);
    const backend_options o = {.shape = shape, .level = level, .n_ctx = 2048, .n_threads = 2, .max_rows = MAX_ROWS};
    must(backend_open(&s->b, devices[k], &w->model->net, &o, &err), &err);
    must(model_forward_new(&s->forward, w->model, s->b, MAX_ROWS, MAX_ROWS, &err), &err);
    must(kv_pool_new(&s->pool, &shape, (uint64_t)64 << 20, s->b->ops->memory(s->b), &err), &err);
    kv_context_init(&s->context, s->pool);
}

/* Spans at positions from 0 on; the second one is reduced, and the third is moved and has a hole. */
static void open_world(world *w, const char *name, bool reduces) {
    rp_error err = {0};
    base_key key = {{1}};
    kv_selection *some = NULL;
    golden *g = golden_open();
    *w = (world){0};
    must(rp_model_open(&w->model, golden_find(g, name)->path, NULL, &err), &err);
    golden_close(g);
    for (int k = 0; k < 2; k++) open_side(w, k);
    const kv_shape *shape = kv_pool_shape(w->sides[0].pool);
    if (reduces) must(kv_selection_new(&some, shape->n_layers, kv_shape_heads(shape), N_TOKENS, &err), &err);
    for (int32_t i = 0; reduces && i < shape->n_layers * kv_shape_heads(shape) * N_TOKENS; i++)
        if (below(3) == 0)
            kv_selection_add(some, i / N_TOKENS / kv_shape_heads(shape), i / N_TOKENS % kv_shape_heads(shape),
                             i % N_TOKENS);
    for (int i = 0; i < N_SPANS; i++) {
        uint64_t mask[KV_SPAN_BLOCKS];
        kv_mask_first(mask, N_TOKENS);
        if (i == 2) kv_mask_clear(mask, 30, 75);
        for (int k = 0; k < 2; k++) {
            side *s = &w->sides[k];
            s->spans[i] = new_span(s->pool, i * N_TOKENS);
            if (k == 0) fill_span(s->spans[i]);
            else copy_span(w->sides[0].spans[i], s->spans[i]);
        }
        for (int k = 0; k < 2; k++) {
            side *s = &w->sides[k];
            if (i == 1 && reduces) s->spans[i] = reduced(s->spans[i], some);
            kv_span_seal(s->spans[i], &key);
            const bool has_mask = i == 2;
            must(kv_context_add(&s->context, s->spans[i], has_mask && model_is_movable(w->model) ? 9 : 0,
                                has_mask ? mask : NULL, &err),
                 &err);
        }
    }
    kv_selection_free(some);
}

static void close_world(world *w) {
    for (int k = 0; k < 2; k++) {
        side *s = &w->sides[k];
        slot_bounds_free(s->bounds);
        attention_observer_free(s->observer);
        base_free(s->queries);
        kv_context_clear(&s->context);
        for (int i = 0; i < N_SPANS; i++) kv_span_unref(s->spans[i]);
        kv_pool_free(s->pool);
        model_forward_free(s->forward);
        s->b->ops->free(s->b);
    }
    rp_model_close(w->model);
}

/* ---- steps ---- */

/* n rows from `pos` on, all but the first one observed. Their logits: *logits [2][n][n_vocab], the caller's. */
static void step(world *w, int32_t pos, int32_t n, float **logits) {
    const int32_t n_vocab = w->model->net.hp.n_vocab;
    int32_t tokens[MAX_ROWS];
    for (int32_t i = 0; i < n; i++) tokens[i] = below(n_vocab);
    *logits = malloc(sizeof(float) * 2 * (size_t)(n * n_vocab));
    for (int k = 0; k < 2; k++) {
        side *s = &w->sides[k];
        model_row rows[MAX_ROWS];
        rp_error err = {0};
        for (int32_t i = 0; i < n; i++) {
            rows[i] = (model_row){.token = tokens[i],
                                  .pos = pos + i,
                                  .wants_logits = true,
                                  .observer = i > 0 ? s->observer : NULL,
                                  .queries = s->queries,
                                  .bounds = s->bounds};
            must(kv_context_append(&s->context, pos + i, &rows[i].span, &rows[i].slot, &err), &err);
        }
        const kv_context *contexts[] = {&s->context};
        const model_step one = {.rows = rows, .n_rows = n, .contexts = contexts, .n_contexts = 1};
        must(model_forward_step(s->forward, &one, *logits + (size_t)k * (size_t)(n * n_vocab), &err), &err);
    }
}

static double deviation(const float *logits, int32_t n) {
    double worst = 0, most = 0;
    for (int32_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs((double)logits[i] - (double)logits[n + i]));
        most = fmax(most, fabs((double)logits[i]));
    }
    assert_true(most > 0);
    return worst / most;
}

static const char *const names[] = {"llama", "gemma3", "gpt-oss", "mpt", "gemma2"};

/* Of the second and third span, and of the rows' own. */
static void new_observers(world *w, attention_measure measure) {
    const model_hparams *hp = &w->model->net.hp;
    const bool is_relative = measure == ATTENTION_RELATIVE;
    rp_error err = {0};
    for (int k = 0; k < 2; k++)
        must(attention_observer_new(&w->sides[k].observer, is_relative ? hp->n_layers : w->model->n_kv_layers,
                                    is_relative ? hp->n_heads : hp->n_kv_heads, measure, (int64_t)1 << 20, 1, 3, &err),
             &err);
}

static void weights_are_those_of_the_cpu(void **state) {
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(names) * 4; i++) {
        const attention_measure measure = (attention_measure)(i % 4);
        double worst = 0, most = 0;
        float *logits;
        world w;
        open_world(&w, names[i / 4], i % 2);
        new_observers(&w, measure);
        for (int round = 0; round < 2; round++) { /* the second step adds to the first */
            step(&w, 470 + round * 20, 20, &logits);
            const double d = deviation(logits, 20 * w.model->net.hp.n_vocab);
            if (d > 1e-3) fail_msg("%s: logits differ by %g", names[i / 4], d);
            free(logits);
        }
        const attention_observer *a = w.sides[0].observer, *b = w.sides[1].observer;
        for (size_t k = 0; k < a->n; k++) {
            uint32_t bits[2] = {(uint32_t)a->weights[k], (uint32_t)b->weights[k]};
            float x[2];
            memcpy(x, bits, sizeof(x));
            const bool is_maximum = attention_observer_is_maximum(a);
            const double of_a = is_maximum ? (double)x[0] : (double)a->weights[k] / a->one,
                         of_b = is_maximum ? (double)x[1] : (double)b->weights[k] / b->one;
            worst = fmax(worst, fabs(of_a - of_b));
            most = fmax(most, of_a);
        }
        printf("%s, measure %d: weights differ by %.2g of %.2g\n", names[i / 4], measure, worst, most);
        assert_true(most > 0 && worst < 5e-4 * most);
        close_world(&w);
    }
}

/* As on a device with memory of its own: the slots of reduced spans are copied by a shader. */
static void reduced_spans_are_made_out_of_the_hosts_reach(void **state) {
    float *logits;
    world w;
    (void)state;
    vulkan_is_unmapped = true;
    open_world(&w, "llama", true);
    step(&w, POS, 20, &logits);
    const double d = deviation(logits, 20 * w.model->net.hp.n_vocab);
    if (d > 1e-3) fail_msg("logits differ by %g", d);
    free(logits);
    close_world(&w);
    vulkan_is_unmapped = false;
}

static void queries_are_those_of_the_cpu(void **state) {
    (void)state;
    world w;
    float *logits;
    rp_error err = {0};
    open_world(&w, "llama", false);
    const model_hparams *hp = &w.model->net.hp;
    const int32_t width = hp->n_heads * hp->key_dim;
    for (int k = 0; k < 2; k++) must(query_record_new(&w.sides[k].queries, hp->n_layers, width, &err), &err);
    step(&w, POS, 20, &logits);
    free(logits);
    const size_t n = (size_t)hp->n_layers * KV_SPAN_TOKENS * (size_t)width;
    double worst = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        const double a = (double)w.sides[0].queries->x[i], b = (double)w.sides[1].queries->x[i];
        worst = fmax(worst, fabs(a - b));
        most = fmax(most, fabs(a));
    }
    assert_true(most > 0 && worst < 1e-4 * most);
    close_world(&w);
}

/* Slots of the first and third span, a third of which rows attend to. */
static void list_slots(world *w) {
    for (int k = 0; k < 2; k++) {
        side *s = &w->sides[k];
        sequence_slot slots[2 * N_TOKENS];
        rp_error err = {0};
        int32_t n = 0, ends[2];
        for (int32_t run = 0; run < 2; run++) {
            const kv_view *v = &s->context.views[run * 2];
            for (int32_t slot = 0; slot < N_TOKENS; slot++)
                if (v->mask[slot / KV_BLOCK_SLOTS] >> slot % KV_BLOCK_SLOTS & 1)
                    slots[n++] =
                        (sequence_slot){run * 2, slot, kv_span_slot_position(v->span, slot) + v->shift};
            ends[run] = n;
        }
        must(slot_bounds_new(&s->bounds, kv_pool_shape(s->pool), &s->context, slots, n, ends, 2, n / 3, POS, &err),
             &err);
        must(s->b->ops->study->bound(s->b, s->bounds, &s->context, &err), &err);
    }
}

static void rows_choose_the_slots_of_the_cpu(void **state) {
    (void)state;
    for (size_t i = 0; i < 2 * BASE_ARRAY_LEN(names); i++) {
        float *chosen;
        world w;
        open_world(&w, names[i / 2], i % 2);
        list_slots(&w);
        new_observers(&w, ATTENTION_MAXIMUM);
        step(&w, POS, 20, &chosen);
        const double d = deviation(chosen, 20 * w.model->net.hp.n_vocab);
        printf("%s: logits of rows that choose differ by %.2g\n", names[i / 2], d);
        if (d > 1e-3) fail_msg("%s: rows that choose differ by %g", names[i / 2], d);
        free(chosen);
        size_t n_seen = 0;
        for (size_t k = 0; k < w.sides[0].observer->n; k++) { /* no other slot is seen on the device */
            const uint64_t a = w.sides[0].observer->weights[k], b = w.sides[1].observer->weights[k];
            assert_true((a > 0) == (b > 0));
            n_seen += b > 0;
        }
        assert_true(n_seen > 0);
        close_world(&w);
    }
}

static void deviations_are_those_of_the_cpu(void **state) {
    static const rp_kv_format formats[] = {RP_KV_F16, RP_KV_KIVI4, RP_KV_K4V2, RP_KV_KIVI2};
    (void)state;
    for (size_t f = 0; f < BASE_ARRAY_LEN(formats); f++) {
        float deviations[2][MAX_ROWS];
        int32_t tokens[MAX_ROWS];
        world w;
        open_world(&w, "llama", false);
        for (int32_t i = 0; i < MAX_ROWS; i++) tokens[i] = below(w.model->net.hp.n_vocab);
        for (int k = 0; k < 2; k++) {
            side *s = &w.sides[k];
            model_row rows[MAX_ROWS];
            rp_error err = {0};
            if (kv_format_is_encoded(formats[f])) {
                kv_span *to;
                must(kv_span_new_like(&to, s->spans[2], formats[f], &err), &err);
                must(s->b->ops->encode(s->b, s->spans[2], to, &err), &err);
                kv_context_replace(&s->context, 2, to);
            }
            const kv_view *v = &s->context.views[2];
            for (int32_t i = 0; i < MAX_ROWS; i++)
                rows[i] = (model_row){.token = tokens[i],
                                      .pos = kv_span_slot_position(v->span, 80 + i) + v->shift,
                                      .span = v->span,
                                      .slot = 80 + i};
            const kv_context *contexts[] = {&s->context};
            const model_step one = {.rows = rows, .n_rows = MAX_ROWS, .contexts = contexts, .n_contexts = 1};
            must(model_forward_probe(s->forward, &one, deviations[k], &err), &err);
        }
        for (int32_t i = 0; i < MAX_ROWS; i++) {
            const double a = (double)deviations[0][i], b = (double)deviations[1][i];
            if (!(a > 0) || fabs(a - b) > 1e-3 * a)
                fail_msg("%s: row %d deviates by %g, not %g", kv_format_name(formats[f]), (int)i, b, a);
        }
        close_world(&w);
    }
}

/* The host computes them, from the same numbers: the same bits. */
static void norms_are_those_of_the_cpu(void **state) {
    (void)state;
    enum { N = 10 };
    world w;
    open_world(&w, "llama", false);
    const model_hparams *hp = &w.model->net.hp;
    const size_t n_values = (size_t)(hp->n_kv_heads * N * hp->value_dim), n_norms = (size_t)(hp->n_heads * N);
    float *values = malloc(sizeof(*values) * n_values);
    double *norms = malloc(sizeof(*norms) * 2 * n_norms);
    for (size_t i = 0; i < n_values; i++) values[i] = tiny_random_normal(&numbers);
    for (int k = 0; k < 2; k++) {
        rp_error err = {0};
        backend *b = w.sides[k].b;
        must(b->ops->prepare(b, NULL, NULL, &err), &err);
        must(b->ops->study->output_norms(b, 1, values, N, norms + (size_t)k * n_norms, &err), &err);
    }
    assert_memory_equal(norms, norms + n_norms, sizeof(*norms) * n_norms);
    assert_true(norms[0] > 0);
    free(values), free(norms);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_those_of_the_cpu),
        cmocka_unit_test(reduced_spans_are_made_out_of_the_hosts_reach),
        cmocka_unit_test(queries_are_those_of_the_cpu),
        cmocka_unit_test(rows_choose_the_slots_of_the_cpu),
        cmocka_unit_test(deviations_are_those_of_the_cpu),
        cmocka_unit_test(norms_are_those_of_the_cpu),
    };
    rp_error err = {0};
    const model_network net = {.hp = {.n_embd = 64}};
    const char *why = vulkan_backend_unavailable(&net, BACKEND_ANY_DEVICE);
    if (why) {
        printf("skipped: %s\n", why);
        return 77;
    }
    must(vulkan_instance_ref(&err), &err); /* stays: opening a driver takes long */
    numbers.state = test_seed("vulkan_studies", 20261130);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    vulkan_instance_unref();
    return failed;
}
