/* SPDX-License-Identifier: Apache-2.0 */
/* test_auto_modules.c: reuse without marks (RP_REUSE_AUTO): text that was computed twice is reused at a third place;
 * the logits are, bit for bit, those of the same views composed by hand, whether what follows them is a hit or
 * computed; plain requests and other tenants get nothing of it.
 *
 *   REPRISE_TEST_SEED=N    another sequence
 *   REPRISE_TEST_ROUNDS=N  random texts, 6 by default
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
#include "engine/reuse/auto_modules.h"
#include "engine/reuse/token_chunks.h"
#include "reprise_store.h"
#include "support/forward_run.h"
#include "support/oracle_run.h"
#include "support/seed.h"
#include "support/store_folder.h"

#define TEXT_BYTES 16384
#define CTX 8192

static oracle_model model;
static uint64_t seed;

static int open_model(void **state) {
    const char *chat;
    (void)state;
    seed = test_seed("auto modules", 20261128);
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

/* ---- prompts ---- */

static void add_words(char *text, tiny_random *r, int n) {
    char *end = text + strlen(text);
    for (int i = 0; i < n; i++)
        end += sprintf(end, "%s%c%d", i % 7 == 6 ? "\n" : " ", (int)('a' + tiny_random_below(r, 26)),
                       (int)tiny_random_below(r, 100));
}

/* A passage, and prompts that have it after different beginnings; the last one continues the third. */
typedef struct prompts {
    char passage[TEXT_BYTES], text[4][TEXT_BYTES];
} prompts;

static void make_prompts(prompts *p, tiny_random *r) {
    p->passage[0] = '\0';
    add_words(p->passage, r, 600 + (int)tiny_random_below(r, 200));
    for (int i = 0; i < 3; i++) {
        p->text[i][0] = '\0';
        add_words(p->text[i], r, 20 + (int)tiny_random_below(r, 80));
        strcat(p->text[i], p->passage);
        add_words(p->text[i], r, 20 + (int)tiny_random_below(r, 80));
    }
    strcpy(p->text[3], p->text[2]);
    add_words(p->text[3], r, 5 + (int)tiny_random_below(r, 30));
}

static rp_engine *open_engine(const char *store_dir, const rp_engine_options *from) {
    rp_engine_options o = from ? *from : rp_engine_options_defaults();
    rp_engine *e;
    o.kv_format = RP_KV_F32;
    o.n_threads = 1;
    o.store_dir = store_dir;
    if (rp_engine_new(&e, model.model, &o, NULL)) abort();
    return e;
}

static void ask_as(oracle_run *run, rp_engine *e, const char *text, rp_reuse reuse, const char *tenant) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_text(text);
    q.max_tokens = 2;
    q.ignore_eos = true;
    q.reuse = reuse;
    q.tenant = tenant;
    oracle_run_make(run, e, &q);
    if (run->rc) fail_msg("%s", run->err.message);
    assert_int_equal(run->result->cached_tokens + run->result->fresh_tokens, run->result->prompt_tokens);
    assert_true(rp_engine_drain(e, -1)); /* the background, too */
}

static void ask(oracle_run *run, rp_engine *e, const char *text, rp_reuse reuse) { ask_as(run, e, text, reuse, NULL); }

static void tell(rp_engine *e, const char *text) {
    oracle_run run;
    ask(&run, e, text, RP_REUSE_AUTO);
    oracle_run_free(&run);
}

/* ---- by hand ---- */

/* Adds views of the KV of tokens [from, from + n) of a text computed by itself. */
static void add_module(forward_run *run, const int32_t *tokens, int32_t n_text, int32_t from, int32_t n,
                       int32_t shift) {
    kv_context to = run->context;
    kv_context_init(&run->context, run->pool);
    forward_run_feed(run, tokens, 0, n_text, 0, NULL);
    kv_context_close(&run->context);
    kv_context module = run->context;
    run->context = to;
    for (size_t i = 0; i < module.n_views; i++) {
        kv_span *span = module.views[i].span;
        const int32_t first = kv_span_position(span), n_span = kv_span_tokens(span);
        uint64_t mask[KV_SPAN_BLOCKS];
        kv_span_seal(span, &(base_key){.bytes = {(uint8_t)i, (uint8_t)shift}});
        if (from + n <= first || from >= first + n_span) continue;
        kv_mask_range(mask, BASE_MAX(from - first, 0), BASE_MIN(from + n - first, n_span));
        if (kv_context_add(&run->context, span, shift, mask, NULL)) abort();
    }
    kv_context_clear(&module);
}

/* The logits after a prompt whose plan has views of automatic modules. Returns their number. */
static int compose_by_hand(const char *text, const rp_result *r, float *logits) {
    forward_run run;
    int32_t *tokens, module[(TOKEN_CHUNK_MOST + 1)];
    size_t n;
    int n_modules = 0;
    base_cpu_level level; /* of the engine */
    if (base_cpu_detect(&level, NULL) || rp_tokenize(model.model, text, strlen(text), true, true, &tokens, &n, NULL))
        abort();
    assert_int_equal(n, r->prompt_tokens);
    forward_run_open(&run, model.model, level, CTX, 32, 1);
    for (int32_t i = 0, at = 0; i < r->n_plan; at += r->plan[i++].n_tokens) {
        const rp_plan_item *item = &r->plan[i];
        assert_int_equal(item->position, at);
        if (!item->is_view || item->shift == 0) { /* hits of other text, too */
            forward_run_feed(&run, tokens + at, at, item->n_tokens, i + 1 == r->n_plan, logits);
            continue;
        }
        const int32_t from = at - item->shift,
                      n_text = from + item->n_tokens; /* in the module's text: the first token, and the chunk */
        assert_false(item->exact);
        assert_true(n_text <= (TOKEN_CHUNK_MOST + 1) && from >= 1 + AUTO_LINK);
        module[0] = tokens[0];
        memcpy(module + 1, tokens + at - from + 1, (size_t)(n_text - 1) * sizeof(*module));
        add_module(&run, module, n_text, from, item->n_tokens, item->shift);
        n_modules++;
    }
    forward_run_close(&run);
    rp_free(tokens);
    return n_modules;
}

static void expect_by_hand(const char *text, const oracle_run *run, int least_modules) {
    float *expected = malloc(sizeof(float) * (size_t)run->n_vocab);
    const int n_modules = compose_by_hand(text, run->result, expected);
    if (memcmp(expected, oracle_run_logits(run, 0), sizeof(float) * (size_t)run->n_vocab) != 0)
        fail_msg("REPRISE_TEST_SEED=%llu: deviation %g", (unsigned long long)seed,
                 oracle_deviation(expected, oracle_run_logits(run, 0), run->n_vocab));
    assert_true(n_modules >= least_modules);
    free(expected);
}

static int32_t tokens_with(const rp_result *r, const char *reason) {
    int32_t n = 0;
    for (int32_t i = 0; i < r->n_plan; i++)
        if (strcmp(r->plan[i].reason, reason) == 0) n += r->plan[i].n_tokens;
    return n;
}

/* ---- tests ---- */

/* The third use of a passage reuses it; the next turn hits what was computed after it, with the bytes of a miss. */
static void a_passage_is_reused_from_its_third_use_on(void **state) {
    tiny_random r = {.state = seed};
    (void)state;
    for (int round = 0; round < test_rounds(6); round++) {
        prompts p;
        oracle_run first, second, third, next, miss, plain, fresh;
        make_prompts(&p, &r);
        rp_engine *e = open_engine(NULL, NULL), *other = open_engine(NULL, NULL), *none = open_engine(NULL, NULL);
        ask(&first, e, p.text[0], RP_REUSE_AUTO);
        ask(&second, e, p.text[1], RP_REUSE_AUTO);
        assert_int_equal(first.result->inexact_tokens + second.result->inexact_tokens, 0);
        ask(&third, e, p.text[2], RP_REUSE_AUTO);
        expect_by_hand(p.text[2], &third, 1);
        assert_true(third.result->cached_tokens > 200);
        assert_true(third.result->inexact_tokens > third.result->cached_tokens - AUTO_LINK);
        assert_true(tokens_with(third.result, "link") >= AUTO_LINK &&
                    tokens_with(third.result, "link") % AUTO_LINK == 0);

        ask(&next, e, p.text[3], RP_REUSE_AUTO);
        assert_true(next.result->cached_tokens >= third.result->prompt_tokens - 1);
        expect_by_hand(p.text[3], &next, 1);
        tell(other, p.text[0]);
        tell(other, p.text[1]);
        ask(&miss, other, p.text[3], RP_REUSE_AUTO);
        assert_true(miss.result->cached_tokens < next.result->cached_tokens);
        assert_true(oracle_run_same(&next, &miss));

        ask(&plain, e, p.text[3], RP_REUSE_ON); /* KV after a module is no hit of a plain request */
        ask(&fresh, none, p.text[3], RP_REUSE_ON);
        assert_int_equal(plain.result->inexact_tokens, 0);
        assert_true(oracle_run_same(&plain, &fresh));
        oracle_run *runs[] = {&first, &second, &third, &next, &miss, &plain, &fresh};
        for (size_t i = 0; i < BASE_ARRAY_LEN(runs); i++) oracle_run_free(runs[i]);
        rp_engine_free(e);
        rp_engine_free(other);
        rp_engine_free(none);
    }
}

static void plain_requests_neither_teach_nor_learn(void **state) {
    tiny_random r = {.state = seed + 1};
    prompts p;
    oracle_run run, same;
    (void)state;
    make_prompts(&p, &r);
    rp_engine *e = open_engine(NULL, NULL);
    static const rp_reuse others[] = {RP_REUSE_ON, RP_REUSE_EXACT, RP_REUSE_OFF};
    for (size_t i = 0; i < BASE_ARRAY_LEN(others); i++)
        for (int k = 0; k < 2; k++) ask(&run, e, p.text[k], others[i]), oracle_run_free(&run);
    ask(&run, e, p.text[2], RP_REUSE_AUTO);
    assert_int_equal(run.result->inexact_tokens, 0);
    tell(e, p.text[0]);
    tell(e, p.text[1]);
    for (size_t i = 0; i < BASE_ARRAY_LEN(others); i++) {
        ask(&same, e, p.text[2], others[i]);
        assert_int_equal(same.result->inexact_tokens, 0);
        assert_true(oracle_run_same(&run, &same));
        oracle_run_free(&same);
    }
    oracle_run_free(&run);
    rp_engine_free(e);
}

static void tenants_share_no_modules(void **state) {
    tiny_random r = {.state = seed + 2};
    prompts p;
    oracle_run run;
    (void)state;
    make_prompts(&p, &r);
    rp_engine *e = open_engine(NULL, NULL);
    for (int i = 0; i < 3; i++) {
        ask_as(&run, e, p.text[i], RP_REUSE_AUTO, "a");
        assert_int_equal(run.result->inexact_tokens > 0, i == 2);
        oracle_run_free(&run);
    }
    ask_as(&run, e, p.text[2], RP_REUSE_AUTO, "b");
    assert_int_equal(run.result->cached_tokens, 0);
    oracle_run_free(&run);
    rp_engine_free(e);
}

/* A module is text in the prefix cache: another engine finds it on disk without a count; a corrupt one is a miss. */
static void modules_are_kept_on_disk(void **state) {
    tiny_random r = {.state = seed + 3};
    prompts p;
    oracle_run third, kept, lost, plain;
    char dir[STORE_FOLDER_BYTES];
    (void)state;
    make_prompts(&p, &r);
    store_folder_make(dir);
    rp_engine *e = open_engine(dir, NULL);
    tell(e, p.text[0]);
    tell(e, p.text[1]);
    rp_engine_free(e);
    e = open_engine(dir, NULL);
    ask(&third, e, p.text[2], RP_REUSE_AUTO);
    expect_by_hand(p.text[2], &third, 1);
    rp_engine_free(e);
    e = open_engine(dir, NULL);
    ask(&kept, e, p.text[2], RP_REUSE_AUTO);
    assert_true(oracle_run_same(&third, &kept));
    assert_int_equal(kept.result->fresh_tokens, 1);
    rp_engine_free(e);
    store_folder_flip(dir, ".rps");
    e = open_engine(dir, NULL);
    ask(&lost, e, p.text[2], RP_REUSE_AUTO);
    rp_engine_free(e);
    e = open_engine(NULL, NULL);
    ask(&plain, e, p.text[2], RP_REUSE_ON);
    rp_engine_free(e);
    assert_int_equal(lost.result->prompt_tokens, plain.result->prompt_tokens);
    assert_int_equal(lost.result->inexact_tokens, 0);
    assert_true(oracle_run_same(&lost, &plain));
    oracle_run_free(&third);
    oracle_run_free(&kept);
    oracle_run_free(&lost);
    oracle_run_free(&plain);
    store_folder_remove(dir);
}

/* The auditor compares each with its exact run, and a beginning that is too far from it gets no more modules. */
static void the_auditor_stops_them(void **state) {
    enum { LEAST = 8 }; /* samples before a verdict */
    tiny_random r = {.state = seed + 4};
    char passage[TEXT_BYTES] = "", begin[TEXT_BYTES] = "", text[TEXT_BYTES];
    rp_engine_options o = rp_engine_options_defaults();
    int32_t inexact[LEAST + 6];
    rp_audit *report;
    oracle_run run;
    (void)state;
    o.audit_every = 1;
    o.audit_raises = true;
    o.max_divergence = 1e-9f;
    rp_engine *e = open_engine(NULL, &o);
    add_words(begin, &r, 400);
    add_words(passage, &r, 700);
    for (int i = 0; i < LEAST + 6; i++) {
        strcpy(text, begin);
        add_words(text, &r, 20);
        strcat(text, passage);
        add_words(text, &r, 20);
        ask(&run, e, text, RP_REUSE_AUTO);
        inexact[i] = run.result->inexact_tokens;
        oracle_run_free(&run);
    }
    for (int i = 0; i < LEAST + 6; i++) assert_int_equal(inexact[i] > 0, i >= 2 && i < LEAST + 2);
    assert_int_equal(rp_engine_audit(e, &report, NULL), RP_OK);
    assert_int_equal(report->n_schemas, 1);
    assert_memory_equal(report->schemas[0].name, "automatic modules ", 18);
    assert_string_equal(report->schemas[0].raised_to, "exact");
    assert_int_equal(report->schemas[0].all.samples, LEAST);
    rp_audit_free(report);
    rp_engine_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_passage_is_reused_from_its_third_use_on),
        cmocka_unit_test(plain_requests_neither_teach_nor_learn),
        cmocka_unit_test(tenants_share_no_modules),
        cmocka_unit_test(modules_are_kept_on_disk),
        cmocka_unit_test(the_auditor_stops_them),
    };
    return cmocka_run_group_tests_name("auto modules", tests, open_model, close_model);
}
