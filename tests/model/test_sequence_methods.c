/* SPDX-License-Identifier: Apache-2.0 */
/* test_sequence_methods.c: methods that choose which slots of a sequence are kept, against references written from the
 * papers, over random weights: the same selection, slot for slot; and no two methods choose the same slots.
 *
 *   REPRISE_TEST_SEED=N    another sequence
 *   REPRISE_TEST_ROUNDS=N  sequences, 60 by default
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "model/sequence_methods.h"
#include "support/must.h"
#include "support/ranked.h"
#include "support/reference_model.h"
#include "support/seed.h"
#include "support/tiny_random.h"

#define N_DROPPING SEQUENCE_QUEST /* methods before it drop slots */
#define MOST_LAYERS 5
#define MOST_HEADS 3
#define MOST_VIEWS 4
#define MOST_SLOTS (MOST_VIEWS * KV_SPAN_TOKENS)
#define STEPS (1 << 18) /* weights are multiples of 1 / STEPS: their sums are exact */

/* A sequence: its slots at rising positions, in views in any order; the weight that each row gave each slot. */
typedef struct world {
    kv_shape shape;
    kv_layer_shape layers[MOST_LAYERS]; /* of the shape */
    sequence_slot slots[MOST_SLOTS];
    int32_t rows[SEQUENCE_WINDOW], n_rows, kept[SEQUENCE_WINDOW]; /* rows: positions of those that are observed */
    sequence_slots in;
    attention_observer *observer;
    double weights[MOST_LAYERS][MOST_HEADS][MOST_SLOTS]; /* sums over the rows */
} world;

static int32_t below(tiny_random *r, int32_t n) { return (int32_t)tiny_random_below(r, (uint64_t)n); }

static void draw_slots(world *w, tiny_random *r) {
    const int32_t n_views = 1 + below(r, MOST_VIEWS);
    int32_t n = 0, pos = below(r, 3);
    for (int32_t k = 0; k < n_views; k++) /* the last view's slots first: order is that of positions */
        for (int32_t slot = below(r, 40), end = slot + 5 + below(r, 200); slot < end && slot < KV_SPAN_TOKENS; slot++) {
            if (below(r, 9) == 0) continue; /* masked */
            w->slots[n++] = (sequence_slot){n_views - 1 - k, slot, pos};
            pos += 1 + (below(r, 30) == 0) * below(r, 5);
        }
    w->in = (sequence_slots){.shape = &w->shape, .slots = w->slots, .n = n, .end = pos + below(r, 2)};
}

/* Rows that are observed: the slots of the last own tokens; tokens of a module may be between them. */
static void draw_rows(world *w, sequence_method m, tiny_random *r) {
    const int32_t drawn = 1 + below(r, w->in.n), most = BASE_MIN(sequence_method_rows(m), drawn);
    int32_t n = 0;
    for (int32_t i = w->in.n - 1; i >= 0 && n < most; i--)
        if (n == 0 || below(r, 6)) w->rows[n++] = w->slots[i].pos;
    w->n_rows = n;
}

/* The last own tokens, whether observed or not. */
static void draw_kept(world *w, tiny_random *r) {
    const int32_t drawn = 1 + below(r, w->in.n), most = BASE_MIN(SEQUENCE_WINDOW, drawn);
    int32_t n = 0;
    for (int32_t i = w->in.n - 1; i >= 0 && n < most; i--)
        if (n == 0 || below(r, 6)) w->kept[SEQUENCE_WINDOW - 1 - n++] = w->slots[i].pos;
    w->in.kept = w->kept + SEQUENCE_WINDOW - n;
    w->in.n_kept = n;
}

static bool sees(const world *w, int32_t layer, int32_t pos, int32_t slot) {
    const int32_t at = w->slots[slot].pos;
    return at <= pos && (w->layers[layer].window == 0 || at > pos - w->layers[layer].window);
}

/* few: many slots have the same weight */
static void draw_weights(world *w, bool few, tiny_random *r) {
    rp_error err = {0};
    memset(w->weights, 0, sizeof(w->weights));
    must(attention_observer_new(&w->observer, w->shape.n_layers, kv_shape_heads(&w->shape), ATTENTION_SUM,
                                MOST_SLOTS * 4, 0, MOST_VIEWS, &err),
         &err);
    for (int32_t i = 0; i < w->shape.n_layers * kv_shape_heads(&w->shape) * w->in.n; i++) {
        const int32_t slot = i % w->in.n, head = i / w->in.n % kv_shape_heads(&w->shape),
                      layer = i / w->in.n / kv_shape_heads(&w->shape);
        for (int32_t k = 0; k < w->n_rows; k++) {
            if (!sees(w, layer, w->rows[k], slot) || below(r, 3)) continue;
            const float weight = (float)below(r, few ? 3 : STEPS / 64) / (float)STEPS;
            uint64_t numbers[KV_BLOCK_SLOTS] = {0};
            const sequence_slot *s = &w->slots[slot];
            numbers[s->slot % KV_BLOCK_SLOTS] = attention_observer_number(w->observer, weight);
            attention_observer_add(w->observer, layer, head, (size_t)s->view, s->slot / KV_BLOCK_SLOTS,
                                   UINT64_C(1) << s->slot % KV_BLOCK_SLOTS, numbers);
            w->weights[layer][head][slot] += (double)weight;
        }
    }
    w->in.observer = w->observer;
}

/* ---- references ---- */

static bool is_kept(const world *w, int32_t slot) {
    for (int32_t k = 0; k < w->in.n_kept; k++)
        if (w->in.kept[k] == w->slots[slot].pos) return true;
    return false;
}

/* SnapKV, Listing 1: max_pool1d over the prefix before the observation window, which is kept. */
static double naive_snapkv(const world *w, int32_t kernel, int32_t layer, int32_t head, int32_t slot) {
    double highest = 0;
    for (int32_t direction = -1; direction <= 1; direction += 2)
        for (int32_t i = slot, n = 0; i >= 0 && i < w->in.n && n <= kernel / 2; i += direction) {
            if (is_kept(w, i)) continue;
            highest = fmax(highest, w->weights[layer][head][i]);
            n++;
        }
    return highest;
}

static double naive_score(const world *w, sequence_method m, int32_t layer, int32_t head, int32_t slot) {
    if (is_kept(w, slot)) return INFINITY;
    switch (m) {
    case SEQUENCE_SNAPKV: return naive_snapkv(w, 15, layer, head, slot);
    case SEQUENCE_SINKS: return slot < 4 ? INFINITY : slot;
    case SEQUENCE_QUEST: /* test_shared_attention.c */
    case SEQUENCE_N_METHODS: break;
    }
    return 0;
}

/* Heads [first, end) keep the first n of their slots, sorted. */
static void check_heads(const world *w, sequence_method m, const kv_selection *s, int32_t first, int32_t end,
                        int32_t n) {
    ranked *all = reference_alloc((size_t)((end - first) * w->in.n), sizeof(*all));
    int32_t there = 0;
    for (int32_t head = first; head < end; head++)
        for (int32_t slot = 0; slot < w->in.n; slot++) {
            const int32_t layer = head / kv_shape_heads(&w->shape), kv_head = head % kv_shape_heads(&w->shape);
            if (sees(w, layer, w->in.end, slot))
                all[there++] = (ranked){(double)(float)naive_score(w, m, layer, kv_head, slot), slot, head};
            else assert_false(kv_selection_has(s, layer, kv_head, slot));
        }
    qsort(all, (size_t)there, sizeof(*all), compare_ranked);
    for (int32_t i = 0; i < there; i++)
        if (kv_selection_has(s, all[i].head / kv_shape_heads(&w->shape), all[i].head % kv_shape_heads(&w->shape),
                             all[i].slot) != (i < n))
            fail_msg("%s: slot %d of head %d, score %g, place %d of %d", sequence_method_name(m), all[i].slot,
                     all[i].head, all[i].score, i, n);
    free(all);
}

static void check_method(const world *w, sequence_method m, int32_t mean, const kv_selection *s) {
    const int32_t n_heads = w->shape.n_layers * kv_shape_heads(&w->shape), own = BASE_MIN(mean, w->in.n - w->in.n_kept);
    int32_t total = 0;
    for (int32_t head = 0; head < n_heads; head++) {
        const int32_t layer = head / kv_shape_heads(&w->shape);
        int32_t there = 0, kept = 0;
        for (int32_t slot = 0; slot < w->in.n; slot++) there += sees(w, layer, w->in.end, slot);
        for (int32_t slot = 0; slot < w->in.n; slot++) kept += is_kept(w, slot) && sees(w, layer, w->in.end, slot);
        total += BASE_MIN(there, kept + own);
        if (m == SEQUENCE_SNAPKV) continue;
        check_heads(w, m, s, head, head + 1, kept + own);
    }
    if (m == SEQUENCE_SNAPKV) check_heads(w, m, s, 0, n_heads, total);
}

/* ---- tests ---- */

static kv_selection *select_slots(world *w, sequence_method m, int32_t mean) {
    rp_error err = {0};
    kv_selection *s;
    const attention_observer *observer = w->in.observer;
    if (sequence_method_rows(m) == 0) w->in.observer = NULL;
    must(sequence_select(&s, m, mean, &w->in, &err), &err);
    w->in.observer = observer;
    return s;
}

static void set_shape(world *w, int32_t n_layers, int32_t n_heads, const int32_t *windows) {
    w->shape = (kv_shape){.n_layers = n_layers, .layers = w->layers};
    for (int32_t i = 0; i < n_layers; i++) w->layers[i] = (kv_layer_shape){.n_heads = n_heads, .window = windows[i]};
}

static void draw_shape(world *w, tiny_random *r) {
    const int32_t n_layers = 1 + below(r, MOST_LAYERS), n_heads = 1 + below(r, MOST_HEADS);
    int32_t windows[MOST_LAYERS] = {0};
    for (int32_t i = 0; i < n_layers; i++) windows[i] = below(r, 2) ? 0 : 1 + below(r, 300);
    if (below(r, 3) != 0) memset(windows, 0, sizeof(windows));
    set_shape(w, n_layers, n_heads, windows);
}

static void methods_choose_what_their_papers_say(void **state) {
    (void)state;
    static world w;
    tiny_random r = {.state = test_seed("sequence methods", 20261125)};
    for (int i = 0, rounds = test_rounds(60); i < rounds; i++) {
        draw_shape(&w, &r);
        for (int m = 0; m < N_DROPPING; m++) {
            draw_slots(&w, &r);
            draw_rows(&w, (sequence_method)m, &r);
            draw_kept(&w, &r);
            draw_weights(&w, below(&r, 3) == 0, &r);
            const int32_t mean = 1 + below(&r, below(&r, 3) ? w.in.n : w.in.n + 50);
            kv_selection *s = select_slots(&w, (sequence_method)m, mean);
            check_method(&w, (sequence_method)m, mean, s);
            kv_selection_free(s);
            attention_observer_free(w.observer);
        }
    }
}

/* Over the same slots, rows and weights. */
static void no_two_methods_choose_the_same(void **state) {
    (void)state;
    static world w;
    tiny_random r = {.state = 7};
    set_shape(&w, 4, 2, (const int32_t[4]){0});
    do draw_slots(&w, &r);
    while (w.in.n < 300);
    draw_rows(&w, SEQUENCE_SNAPKV, &r);
    draw_kept(&w, &r);
    draw_weights(&w, false, &r);
    for (int32_t mean = 80; mean <= 200; mean += 40) {
        kv_selection *s[N_DROPPING];
        for (int m = 0; m < N_DROPPING; m++) {
            s[m] = select_slots(&w, (sequence_method)m, mean);
            for (int k = 0; k < m; k++)
                if (memcmp(s[m]->bits, s[k]->bits, sizeof(*s[m]->bits) * 8 * (size_t)kv_selection_words(s[m])) == 0)
                    fail_msg("%s chooses as %s does", sequence_method_name((sequence_method)m),
                             sequence_method_name((sequence_method)k));
        }
        for (int m = 0; m < N_DROPPING; m++) kv_selection_free(s[m]);
    }
    attention_observer_free(w.observer);
}

static void methods_have_names(void **state) {
    (void)state;
    sequence_method m;
    for (int i = 0; i < SEQUENCE_N_METHODS; i++) {
        assert_true(sequence_method_parse(sequence_method_name((sequence_method)i), &m));
        assert_int_equal(m, i);
        assert_int_equal(sequence_method_is_dynamic(m), i >= N_DROPPING);
    }
    assert_false(sequence_method_parse("kvzip", &m));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(methods_choose_what_their_papers_say),
        cmocka_unit_test(no_two_methods_choose_the_same),
        cmocka_unit_test(methods_have_names),
    };
    return cmocka_run_group_tests_name("sequence methods", tests, NULL, NULL);
}
