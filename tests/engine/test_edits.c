/* SPDX-License-Identifier: Apache-2.0 */
/* test_edits.c: reuse after an edit at shifted positions: the logits are, bit for bit, those of the same views composed
 * by hand; the plan reports it; without the option nothing changes.
 *
 *   REPRISE_TEST_SEED=N    another sequence
 *   REPRISE_TEST_ROUNDS=N  random edits, 40 by default
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "support/forward_run.h"
#include "support/oracle_run.h"
#include "support/seed.h"
#include "support/store_folder.h"

#define MAX_WORDS 900
#define CTX 4096

static oracle_model model;
static uint64_t seed;

static int open_model(void **state) {
    const char *chat;
    (void)state;
    seed = test_seed("edits", 20261123);
    tiny_model_shape shape = oracle_shape(1, &chat);
    shape.n_ctx = CTX;
    oracle_model_open(&model, &shape, chat);
    return 0;
}

static int close_model(void **state) {
    (void)state;
    oracle_model_close(&model);
    return 0;
}

/* A prompt as words: [same][old or new piece][rest][more, of the new one]. */
typedef struct edit {
    char old_text[MAX_WORDS * 8], new_text[MAX_WORDS * 8];
    int32_t *old_tokens, *new_tokens;
    size_t n_old, n_new;
} edit;

static void add_words(char *text, tiny_random *r, int n) {
    char *end = text + strlen(text);
    for (int i = 0; i < n; i++)
        end += sprintf(end, " %c%d", (int)('a' + tiny_random_below(r, 26)), (int)tiny_random_below(r, 100));
}

static void make_edit(edit *x, tiny_random *r) {
    char rest[MAX_WORDS * 8] = "";
    rp_error err;
    x->old_text[0] = '\0';
    add_words(x->old_text, r, 20 + (int)tiny_random_below(r, 80));
    strcpy(x->new_text, x->old_text);
    add_words(rest, r, 60 + (int)tiny_random_below(r, 150));
    if (tiny_random_below(r, 4)) add_words(x->old_text, r, 1 + (int)tiny_random_below(r, 60)); /* replaced or removed */
    if (tiny_random_below(r, 4))
        add_words(x->new_text, r, 1 + (int)tiny_random_below(r, 60)); /* replaced or inserted */
    strcat(x->old_text, rest);
    strcat(x->new_text, rest);
    add_words(x->new_text, r, 1 + (int)tiny_random_below(r, 20));
    if (rp_tokenize(model.model, x->old_text, strlen(x->old_text), false, true, &x->old_tokens, &x->n_old, &err) ||
        rp_tokenize(model.model, x->new_text, strlen(x->new_text), false, true, &x->new_tokens, &x->n_new, &err))
        fail_msg("%s", err.message);
}

static void free_edit(edit *x) {
    rp_free(x->old_tokens);
    rp_free(x->new_tokens);
}

/* ---- by hand ---- */

/* Adds views of the slots at positions [begin, end), with a shift. */
static void add_views(kv_context *to, const kv_context *from, int32_t begin, int32_t end, int32_t shift) {
    for (size_t i = 0; i < from->n_views; i++) {
        kv_span *span = from->views[i].span;
        int32_t first = kv_span_position(span), n = kv_span_tokens(span);
        uint64_t mask[KV_SPAN_BLOCKS];
        if (end <= first || begin >= first + n) continue;
        kv_mask_first(mask, BASE_MIN(end - first, n));
        kv_mask_clear(mask, 0, begin - first);
        if (kv_context_add(to, span, shift, mask, NULL)) abort();
    }
}

/* The logits after the new text, from the views of a plan with a shifted item. */
static void compose_by_hand(const edit *x, const rp_result *r, float *logits) {
    forward_run run;
    kv_context old;
    const rp_plan_item *found = &r->plan[0], *moved = NULL;
    base_cpu_level level; /* of the engine */
    if (base_cpu_detect(&level, NULL)) abort();
    forward_run_open(&run, model.model, level, CTX, 32, 1);
    forward_run_feed(&run, x->old_tokens, 0, (int32_t)x->n_old, 0, NULL);
    kv_context_close(&run.context);
    for (size_t i = 0; i < run.context.n_views; i++)
        kv_span_seal(run.context.views[i].span, &(base_key){.bytes = {(uint8_t)i}});
    old = run.context;
    kv_context_init(&run.context, run.pool);
    for (int32_t i = 0; i < r->n_plan; i++)
        if (r->plan[i].is_view && !r->plan[i].exact) moved = &r->plan[i];
    int32_t begin = found->n_tokens, piece = moved->position - begin, behind = moved->position + moved->n_tokens;
    add_views(&run.context, &old, 0, begin, 0);
    forward_run_feed(&run, x->new_tokens + begin, begin, piece, 0, NULL);
    kv_context_close(&run.context);
    add_views(&run.context, &old, moved->position - moved->shift, behind - moved->shift, moved->shift);
    forward_run_feed(&run, x->new_tokens + behind, behind, (int32_t)x->n_new - behind, 1, logits);
    kv_context_clear(&old);
    forward_run_close(&run);
}

/* ---- tests ---- */

static rp_engine *open_engine(const char *store_dir) {
    rp_engine_options o = rp_engine_options_defaults();
    rp_engine *e;
    o.kv_format = RP_KV_F32;
    o.n_threads = 1;
    o.store_dir = store_dir;
    if (rp_engine_new(&e, model.model, &o, NULL)) abort();
    return e;
}

static rp_engine *new_engine(void) { return open_engine(NULL); }

static void ask(oracle_run *run, rp_engine *e, const char *text, int32_t shifted_reuse) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_text(text);
    q.max_tokens = 1;
    q.ignore_eos = true;
    q.shifted_reuse = shifted_reuse;
    oracle_run_make(run, e, &q);
    if (run->rc) fail_msg("%s", run->err.message);
}

static int32_t tokens_with(const rp_result *r, const char *reason) {
    int32_t n = 0;
    for (int32_t i = 0; i < r->n_plan; i++)
        if (strcmp(r->plan[i].reason, reason) == 0) n += r->plan[i].n_tokens;
    return n;
}

static int32_t moved_tokens(const rp_result *r) {
    int32_t n = 0;
    for (int32_t i = 0; i < r->n_plan; i++)
        if (r->plan[i].is_view && !r->plan[i].exact) n += r->plan[i].n_tokens;
    return n;
}

/* How many tokens before the moved ones, and after the found ones, both texts have in common. */
static int32_t same_before(const edit *x, const rp_result *r) {
    const rp_plan_item *moved = NULL;
    int32_t n = 0;
    for (int32_t i = 0; i < r->n_plan; i++)
        if (r->plan[i].is_view && !r->plan[i].exact) moved = &r->plan[i];
    const int32_t new = moved->position, old = moved->position - moved->shift, least = r->plan[0].n_tokens;
    while (old - n > least && x->new_tokens[new - 1 - n] == x->old_tokens[old - 1 - n]) n++;
    return n;
}

static void check_edit(tiny_random *r, int32_t *n_moved) {
    static const int32_t limits[] = {0, 1, 8, 40};
    int32_t shifted_reuse = limits[tiny_random_below(r, BASE_ARRAY_LEN(limits))];
    edit x = {0};
    oracle_run first, run, again, all, off;
    rp_engine *e = new_engine();
    make_edit(&x, r);
    ask(&first, e, x.old_text, -1);
    ask(&run, e, x.new_text, shifted_reuse);
    assert_int_equal(run.result->prompt_tokens, x.n_new);
    assert_int_equal(run.result->cached_tokens + run.result->fresh_tokens, x.n_new);
    int32_t moved = moved_tokens(run.result);
    if (moved > 0) {
        float *expected = malloc(sizeof(float) * (size_t)run.n_vocab);
        compose_by_hand(&x, run.result, expected);
        if (memcmp(expected, oracle_run_logits(&run, 0), sizeof(float) * (size_t)run.n_vocab) != 0)
            fail_msg("REPRISE_TEST_SEED=%llu: deviation %g", (unsigned long long)seed,
                     oracle_deviation(expected, oracle_run_logits(&run, 0), run.n_vocab));
        assert_true(tokens_with(run.result, "shifted") <= shifted_reuse);
        assert_true(same_before(&x, run.result) >= shifted_reuse);
        ask(&again, e, x.new_text, shifted_reuse); /* what was computed after them is a hit */
        assert_true(oracle_run_same(&run, &again));
        assert_int_equal(again.result->fresh_tokens, 1);
        oracle_run_free(&again);
        free(expected);
    }
    *n_moved += moved > 0;
    ask(&all, e, x.new_text, INT32_MAX); /* all of it recomputed: nothing is shifted */
    assert_int_equal(moved_tokens(all.result), 0);
    oracle_run_free(&all);
    /* KV computed after shifted KV is never a hit of a plain run: it gets the plain bytes */
    ask(&off, e, x.new_text, -1);
    rp_engine *fresh = new_engine();
    oracle_run plain;
    ask(&plain, fresh, x.new_text, -1);
    assert_true(oracle_run_same(&plain, &off));
    assert_int_equal(moved_tokens(off.result), 0);
    oracle_run_free(&first);
    oracle_run_free(&run);
    oracle_run_free(&off);
    oracle_run_free(&plain);
    rp_engine_free(fresh);
    rp_engine_free(e);
    free_edit(&x);
}

static void what_stands_behind_an_edit_is_moved(void **state) {
    tiny_random r = {.state = seed};
    int32_t n_moved = 0;
    int rounds = test_rounds(40);
    (void)state;
    for (int i = 0; i < rounds; i++) check_edit(&r, &n_moved);
    printf("edits: %d of %d prompts moved what they had read before\n", (int)n_moved, rounds);
    if (rounds >= 10) assert_true(n_moved > rounds / 2);
}

/* The KV to shift is on disk, and found corrupt during the step: the prompt is restored and computed as after a miss.
 * */
static void what_cannot_be_read_is_not_moved(void **state) {
    tiny_random r = {.state = seed};
    char dir[STORE_FOLDER_BYTES];
    (void)state;
    for (int i = 0; i < 4; i++) {
        edit x = {0};
        oracle_run first, run, plain;
        store_folder_make(dir);
        make_edit(&x, &r);
        rp_engine *e = open_engine(dir);
        ask(&first, e, x.old_text, -1);
        rp_engine_free(e);
        store_folder_flip(dir, ".rps");
        e = open_engine(dir);
        ask(&run, e, x.new_text, 8);
        rp_engine_free(e);
        e = new_engine();
        ask(&plain, e, x.new_text, -1);
        assert_int_equal(run.result->prompt_tokens, x.n_new);
        assert_int_equal(run.result->cached_tokens, 0);
        assert_true(oracle_run_same(&plain, &run));
        rp_engine_free(e);
        oracle_run_free(&first);
        oracle_run_free(&run);
        oracle_run_free(&plain);
        free_edit(&x);
        store_folder_remove(dir);
    }
}

/* An engine that has the old text, and once computed what follows the moved run: the path of the new text goes on after
 * it. spans: of the text before the edit. */
static rp_engine *engine_after_edit(const edit *x, const size_t *ends, int spans) {
    rp_engine *e = new_engine();
    oracle_run run;
    for (int i = 0; i < spans; i++) {
        char text[MAX_WORDS * 8];
        sprintf(text, "%.*s", (int)ends[i], x->old_text);
        ask(&run, e, text, -1);
        oracle_run_free(&run);
    }
    ask(&run, e, x->old_text, -1);
    oracle_run_free(&run);
    ask(&run, e, x->new_text, 0);
    assert_true(moved_tokens(run.result) > 0);
    oracle_run_free(&run);
    return e;
}

enum { SPANS = 6 }; /* before the edit: some path then has as many steps as its array, which grows with them */

static void every_allocation_fails_cleanly(void **state) {
    tiny_random r = {.state = seed};
    static edit x;
    char rest[MAX_WORDS * 8] = "";
    size_t ends[SPANS];
    int n_failed = 0, n_ok = 0;
    (void)state;
    x.old_text[0] = '\0';
    for (int i = 0; i < SPANS; i++) {
        add_words(x.old_text, &r, 3);
        ends[i] = strlen(x.old_text);
    }
    strcpy(x.new_text, x.old_text);
    add_words(x.old_text, &r, 10);
    add_words(rest, &r, 60);
    strcat(x.old_text, rest);
    strcat(x.new_text, rest);
    add_words(x.new_text, &r, 5);
    for (int spans = 2; spans <= SPANS; spans++) {
        uint64_t n = 1;
        for (uint64_t i = 0; i <= n; i++) { /* 0: counts them */
            rp_engine *e = engine_after_edit(&x, ends + SPANS - spans, spans);
            rp_request q = rp_request_defaults();
            rp_result *result = NULL;
            q.prompt = rp_prompt_text(x.new_text);
            q.max_tokens = 1;
            q.shifted_reuse = 0;
            base_alloc_count();
            if (i > 0) base_alloc_fail_at(i, 0);
            const int rc = rp_engine_run(e, &q, &result, NULL);
            base_alloc_fail_at(0, 0);
            if (i == 0) n = base_alloc_count();
            assert_true(rc == RP_OK || rc == RP_ERR_MEMORY);
            *(rc ? &n_failed : &n_ok) += 1;
            rp_result_free(result);
            rp_engine_free(e);
        }
    }
    assert_true(n_failed > 0 && n_ok > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_stands_behind_an_edit_is_moved),
                                       cmocka_unit_test(what_cannot_be_read_is_not_moved),
                                       cmocka_unit_test(every_allocation_fails_cleanly)};
    return cmocka_run_group_tests_name("edits", tests, open_model, close_model);
}
