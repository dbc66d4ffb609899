/* SPDX-License-Identifier: Apache-2.0 */
/* test_draft_model.c: answers with a draft model equal those without one, token for token; its counts; its refusals.
 *
 * `make test-drafts` runs 1,000 random requests, `make test` fewer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "engine/core/drafts.h"
#include "engine/core/engine_state.h"
#include "reprise.h"
#include "reprise_test.h"
#include "support/calls.h"
#include "support/draft_head_file.h"
#include "support/golden.h"
#include "support/must.h"
#include "support/recurrent_model.h"
#include "support/seed.h"
#include "support/tiny_model.h"
#include "support/tiny_random.h"

#define ROUNDS 192 /* requests of `make test` */
#define BATCH 8    /* requests that are submitted together */
#define CTX 4096

static rp_model *target, *same, *smaller, *shorter;
static rp_model *recurrent, *hybrid, *small; /* targets: decayed sums, the golden qwen35; what drafts for that */
static const char *const head_names[] = {"qwen35", "glm4moe", "deepseek3"};
#define N_HEADS (sizeof(head_names) / sizeof(head_names[0]))
static rp_model *heads[N_HEADS]; /* targets with draft heads */

static tiny_model_shape shape_of(uint64_t seed) {
    tiny_model_shape s = tiny_model_defaults();
    s.n_ctx = CTX;
    s.seed = seed;
    return s;
}

static int open_models(void **state) {
    tiny_model_shape shape = shape_of(3);
    (void)state;
    target = tiny_model_open(&shape, NULL);
    same = tiny_model_open(&shape, NULL);
    shape.n_ctx = 512; /* it has to begin anew within an answer */
    shorter = tiny_model_open(&shape, NULL);
    shape = shape_of(4);
    shape.n_layers = 1;
    smaller = tiny_model_open(&shape, NULL);
    shape = shape_of(3);
    recurrent = tiny_model_open(&shape, NULL);
    recurrent_model_make(recurrent);
    rp_error err = {0};
    golden *g = golden_open();
    must(rp_model_open(&hybrid, golden_find(g, "qwen35")->path, NULL, &err), &err);
    must(rp_model_open(&small, golden_find(g, "qwen2")->path, NULL, &err), &err);
    for (size_t i = 0; i < N_HEADS; i++) {
        char path[64];
        draft_head_file_write(golden_find(g, head_names[i])->path, i == 1, path);
        must(rp_model_open(&heads[i], path, NULL, &err), &err);
        unlink(path); /* it stays mapped */
    }
    golden_close(g);
    return 0;
}

static int close_models(void **state) {
    (void)state;
    rp_model_close(target);
    rp_model_close(same);
    rp_model_close(smaller);
    rp_model_close(shorter);
    rp_model_close(recurrent);
    rp_model_close(hybrid);
    rp_model_close(small);
    for (size_t i = 0; i < N_HEADS; i++) rp_model_close(heads[i]);
    return 0;
}

static rp_engine *open_engine(rp_model *model, rp_model *draft, int32_t n_threads, int32_t max_sequences,
                              uint64_t draft_kv_bytes) {
    rp_engine_options o = rp_engine_options_defaults();
    rp_engine *e;
    rp_error err = {0};
    o.n_threads = n_threads;
    o.max_sequences = max_sequences;
    o.draft_model = draft;
    o.draft_kv_bytes = draft_kv_bytes;
    o.kv_budget_bytes = (uint64_t)256 << 20;
    must(rp_engine_new(&e, model, &o, &err), &err);
    return e;
}

static rp_engine *open_with(rp_model *draft, int32_t n_threads, int32_t max_sequences, uint64_t draft_kv_bytes) {
    return open_engine(target, draft, n_threads, max_sequences, draft_kv_bytes);
}

static void expect_equal(const rp_result *a, const rp_result *b) {
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->tokens, b->tokens, (size_t)a->n_tokens * sizeof(*a->tokens));
    assert_string_equal(a->text, b->text);
    assert_string_equal(a->finish_reason, b->finish_reason);
    if (a->logprobs) assert_memory_equal(a->logprobs, b->logprobs, (size_t)a->n_tokens * sizeof(*a->logprobs));
}

/* ---- random requests --------------------------------------------------------------------------------------------- */

/* A random request. It borrows from here. */
typedef struct drawn_request {
    rp_request request;
    rp_request_experiment experiment;
    int32_t *prompt;
    const char *stops[1];
} drawn_request;

static int32_t below(tiny_random *r, int32_t n) { return (int32_t)tiny_random_below(r, (uint64_t)n); }

static void draw_request(drawn_request *d, int32_t n_vocab, tiny_random *r) {
    static const float temperatures[] = {0, 0.3f, 0.8f, 1.3f};
    static const int32_t lengths[] = {3, 40, 150, 400};
    const int32_t n = 1 + below(r, lengths[below(r, 4)]), words = 2 + below(r, BASE_MIN(n_vocab - 262, 200));
    *d = (drawn_request){.request = calls_request(NULL, 1 + below(r, 60))};
    rp_request *q = &d->request;
    d->prompt = calloc((size_t)n, sizeof(*d->prompt));
    if (!d->prompt) abort();
    for (int32_t i = 0; i < n; i++) d->prompt[i] = 260 + below(r, words); /* few words: lookup finds some */
    q->prompt = rp_prompt_tokens(d->prompt, (size_t)n);
    q->sampling.temperature = temperatures[below(r, 4)];
    q->sampling.seed = tiny_random_below(r, 1u << 30);
    q->sampling.top_k = below(r, 2) ? 0 : 1 + below(r, 40);
    q->sampling.top_p = below(r, 2) ? 1 : 0.9f;
    q->sampling.repeat_penalty = below(r, 3) ? 1 : 1.2f;
    q->n_logprobs = below(r, 3) ? 0 : 2;
    q->ignore_eos = below(r, 4) != 0;
    if (below(r, 6) == 0) {
        d->stops[0] = "e";
        q->stops = d->stops;
        q->n_stops = 1;
    }
    if (below(r, 6) == 0) q->grammar = "root ::= [a-z ]{1,20} \".\"";
}

typedef struct draft_tally {
    int64_t requests, drafted, accepted, by_model, by_model_accepted;
} draft_tally;

/* A batch alone in a plain engine, then all at once with drafts. */
static void run_batch(rp_engine *plain, rp_engine *drafting, int32_t n_vocab, bool knows, tiny_random *r,
                      draft_tally *t) {
    drawn_request drawn[BATCH];
    rp_result *expected[BATCH];
    rp_job *jobs[BATCH];
    for (int i = 0; i < BATCH; i++) {
        draw_request(&drawn[i], n_vocab, r);
        expected[i] = tiny_model_answer(plain, &drawn[i].request);
    }
    for (int i = 0; i < BATCH; i++) {
        rp_request *q = &drawn[i].request;
        q->n_draft = below(r, 3) == 0 ? RP_DRAFT_AUTO : 1 + below(r, RP_MAX_DRAFT);
        drawn[i].experiment = (rp_request_experiment){.struct_size = sizeof(rp_request_experiment),
                                                      .known = expected[i]->tokens,
                                                      .n_known = expected[i]->n_tokens,
                                                      .known_share = 0.7f};
        if (knows && expected[i]->n_tokens > 0) q->experiment = &drawn[i].experiment;
        jobs[i] = calls_submit(drafting, q);
    }
    for (int i = 0; i < BATCH; i++) {
        rp_result *got = calls_result(jobs[i]);
        expect_equal(expected[i], got);
        assert_true(got->model_drafted_tokens <= got->drafted_tokens);
        assert_true(got->model_accepted_tokens <= got->accepted_tokens && got->accepted_tokens <= got->drafted_tokens);
        t->requests++;
        t->drafted += got->drafted_tokens;
        t->accepted += got->accepted_tokens;
        t->by_model += got->model_drafted_tokens;
        t->by_model_accepted += got->model_accepted_tokens;
        rp_job_free(jobs[i]);
        rp_result_free(got);
        rp_result_free(expected[i]);
        free(drawn[i].prompt);
    }
}

/* What drafts for a target. */
typedef struct subject {
    rp_model *target, *drafts[3];
    int32_t n_drafts;
} subject;

static void answers_are_those_without_a_draft_model(void **state) {
    const int rounds = (test_rounds(ROUNDS) + BATCH - 1) / BATCH;
    tiny_random r = {test_seed("draft_model", 49)};
    const subject subjects[] = {{target, {same, smaller, shorter}, 3},
                                {recurrent, {same, smaller, shorter}, 3},
                                {hybrid, {small}, 1},
                                {heads[0], {NULL}, 1},
                                {heads[1], {NULL}, 1},
                                {heads[2], {NULL}, 1}};
    (void)state;
    int64_t by_lookup = 0;
    for (size_t s = 0; s < BASE_ARRAY_LEN(subjects); s++) {
        rp_model_info info = {.struct_size = sizeof(info)};
        rp_engine *plain = open_engine(subjects[s].target, NULL, 1, 1, 0);
        draft_tally t = {0};
        rp_model_describe(subjects[s].target, &info);
        for (int i = (int)s * 4; i < rounds; i += 4 * (int)BASE_ARRAY_LEN(subjects)) {
            const int32_t n_threads = 1 + below(&r, 3), max_sequences = 1 + below(&r, BATCH);
            const uint64_t kv = below(&r, 3) ? 0 : (uint64_t)(1 + below(&r, 16)) << 16; /* sometimes little */
            rp_model *draft = subjects[s].drafts[below(&r, subjects[s].n_drafts)];
            rp_engine *drafting = open_engine(subjects[s].target, draft, n_threads, max_sequences, kv);
            for (int k = i; k < i + 4 && k < rounds; k++)
                run_batch(plain, drafting, info.n_vocab, k % 2 == 0, &r, &t);
            rp_engine_free(drafting);
        }
        rp_engine_free(plain);
        print_message("target %zu, %lld requests: %lld tokens drafted, %lld accepted; by the model %lld, %lld\n", s,
                      (long long)t.requests, (long long)t.drafted, (long long)t.accepted, (long long)t.by_model,
                      (long long)t.by_model_accepted);
        if (t.requests == 0) continue;
        assert_true(t.by_model > t.requests && t.by_model_accepted > t.by_model / 40);
        by_lookup += t.drafted - t.by_model;
        assert_true(t.by_model_accepted < t.by_model * 9 / 10); /* rejected ones, too */
    }
    assert_true(by_lookup > 0);
}

/* ---- what it does ------------------------------------------------------------------------------------------------ */

/* The same model reads all of a short text: every draft is right, at any temperature. */
static void an_equal_model_is_always_right(void **state) {
    (void)state;
    rp_engine *plain = open_with(NULL, 1, 1, 0), *e = open_with(same, 1, 1, 0);
    for (int warm = 0; warm < 2; warm++) {
        rp_request q = calls_request("once upon a time", 48);
        q.sampling.temperature = warm ? 0.9f : 0;
        q.sampling.seed = 7;
        rp_result *expected = tiny_model_answer(plain, &q);
        q.n_draft = 5;
        rp_result *got = tiny_model_answer(e, &q);
        expect_equal(expected, got);
        assert_true(got->model_drafted_tokens >= 20 && got->model_accepted_tokens == got->model_drafted_tokens);
        assert_string_equal(got->draft_reason, "");
        rp_result_free(expected);
        rp_result_free(got);
    }
    rp_engine_free(e);
    rp_engine_free(plain);
}

/* The window slides, and a model of few positions begins anew. */
static void long_answers_outlast_the_window(void **state) {
    rp_model *drafts[] = {same, shorter};
    (void)state;
    rp_engine *plain = open_with(NULL, 2, 1, 0);
    rp_request q = calls_request("a long story", 2600);
    q.sampling.temperature = 1;
    q.sampling.seed = 11;
    rp_result *expected = tiny_model_answer(plain, &q);
    assert_int_equal(expected->n_tokens, 2600);
    const rp_request_experiment known = {.struct_size = sizeof(known),
                                         .known = expected->tokens,
                                         .n_known = expected->n_tokens,
                                         .known_share = 0.9f};
    q.n_draft = 4;
    q.experiment = &known;
    for (size_t i = 0; i < BASE_ARRAY_LEN(drafts); i++) {
        rp_engine *e = open_with(drafts[i], 2, 1, 0);
        rp_result *got = tiny_model_answer(e, &q);
        expect_equal(expected, got);
        assert_true(got->model_accepted_tokens > 1000);
        rp_result_free(got);
        rp_engine_free(e);
    }
    rp_result_free(expected);
    rp_engine_free(plain);
}

/* The acceptance of a head is the one that the experiment sets, and the head reads no prompt. */
static void a_head_drafts_from_the_second_token_on(void **state) {
    (void)state;
    for (size_t i = 0; i < N_HEADS; i++) {
        rp_engine *e = open_engine(heads[i], NULL, 2, 1, 0);
        rp_request q = calls_request("once upon a time", 60);
        q.sampling.temperature = 1;
        q.sampling.seed = 3;
        rp_result *expected = tiny_model_answer(e, &q);
        const rp_request_experiment known = {.struct_size = sizeof(known),
                                             .known = expected->tokens,
                                             .n_known = expected->n_tokens,
                                             .known_share = 1};
        assert_string_equal(expected->draft_reason, "off");
        q.n_draft = 4;
        q.experiment = &known;
        rp_result *got = tiny_model_answer(e, &q);
        expect_equal(expected, got);
        assert_string_equal(got->draft_reason, "");
        assert_int_equal(got->model_accepted_tokens, got->model_drafted_tokens);
        assert_true(got->model_accepted_tokens >= 40);
        rp_result_free(expected);
        rp_result_free(got);
        rp_engine_free(e);
    }
}

/* ---- what it does not -------------------------------------------------------------------------------------------- */

static void reasons_are_named(void **state) {
    static const struct {
        int32_t n_draft;
        uint64_t kv_bytes;
        const char *reason;
    } cases[] = {{0, 0, "off"}, {3, 1, "memory"}, {RP_DRAFT_AUTO, 0, NULL}};
    (void)state;
    rp_engine *plain = open_with(NULL, 1, 1, 0);
    rp_request q = calls_request("once upon a time", 40);
    rp_result *expected = tiny_model_answer(plain, &q);
    assert_string_equal(expected->draft_reason, "");
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        rp_engine *e = open_with(smaller, 1, 1, cases[i].kv_bytes);
        q.n_draft = cases[i].n_draft;
        rp_result *got = tiny_model_answer(e, &q);
        expect_equal(expected, got);
        if (cases[i].reason) assert_string_equal(got->draft_reason, cases[i].reason);
        assert_true((got->model_drafted_tokens == 0) == (got->draft_reason[0] != '\0'));
        rp_result_free(got);
        rp_engine_free(e);
    }
    rp_result_free(expected);
    rp_engine_free(plain);
}

static void expect_refusal(rp_model *draft, rp_code code, const char *text) {
    rp_engine_options o = rp_engine_options_defaults();
    rp_engine *e;
    rp_error err = {0};
    o.draft_model = draft;
    assert_int_equal(rp_engine_new(&e, target, &o, &err), code);
    assert_non_null(strstr(err.message, text));
}

static void other_tokens_and_recurrent_models_are_refused(void **state) {
    tiny_model_shape shape = shape_of(5);
    (void)state;
    shape.vocab = TINY_VOCAB_BPE;
    shape.n_vocab = 0;
    rp_model *other = tiny_model_open(&shape, NULL);
    expect_refusal(other, RP_ERR_INVALID, "draft_model has ");
    rp_model_close(other);
    shape = shape_of(5);
    expect_refusal(recurrent, RP_ERR_UNSUPPORTED, "recurrent layers");
    shape.n_ctx = 64;
    rp_model *tiny = tiny_model_open(&shape, NULL);
    expect_refusal(tiny, RP_ERR_UNSUPPORTED, "64 positions only");
    rp_model_close(tiny);
}

/* Three steps took twice as long as predicted: so did the one that tried drafts, by their load, not by its rows. */
static void explored_times_are_relative_to_those_before(void **state) {
    static rp_engine e;
    draft_exploration x = {.explores = true};
    (void)state;
    e.exploration = &x;
    assert_float_equal(drafts_measured_us(&e, 100, 150), 150, 0); /* nothing before it */
    assert_false(x.explores);
    for (int i = 0; i < DRAFT_RECENT; i++) {
        const double us = i == 1 ? 900 : 200;
        assert_float_equal(drafts_measured_us(&e, 100, us), us, 0);
    }
    x.explores = true;
    assert_float_equal(drafts_measured_us(&e, 150, 320), 160, 1e-9);
    assert_float_equal(drafts_measured_us(&e, 100, 130), 130, 0);
}

/* Of the automatic length, whatever the steps take: after 8 steps the draft model reads the text, in pieces, and its
 * first draft is measured in the step that follows. */
static void a_first_draft_is_tried_soon(void **state) {
    int32_t tokens[60]; /* no two are equal, and the answer's are drawn from all: lookup finds little */
    (void)state;
    for (int32_t i = 0; i < 60; i++) tokens[i] = 260 + i;
    rp_engine *e = open_with(smaller, 1, 1, 0);
    rp_request q = calls_request(NULL, 96);
    q.prompt = rp_prompt_tokens(tokens, 60);
    q.n_draft = RP_DRAFT_AUTO;
    q.sampling.temperature = 5;
    q.sampling.seed = 3;
    rp_result *got = tiny_model_answer(e, &q);
    assert_true(got->model_drafted_tokens > 0);
    rp_result_free(got);
    rp_engine_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_without_a_draft_model),
        cmocka_unit_test(an_equal_model_is_always_right),
        cmocka_unit_test(long_answers_outlast_the_window),
        cmocka_unit_test(a_head_drafts_from_the_second_token_on),
        cmocka_unit_test(explored_times_are_relative_to_those_before),
        cmocka_unit_test(a_first_draft_is_tried_soon),
        cmocka_unit_test(reasons_are_named),
        cmocka_unit_test(other_tokens_and_recurrent_models_are_refused),
    };
    return cmocka_run_group_tests_name("draft model", tests, open_models, close_models);
}
