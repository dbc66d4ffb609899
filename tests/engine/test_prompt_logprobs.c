/* SPDX-License-Identifier: Apache-2.0 */
/* test_prompt_logprobs.c: rp_request.n_prompt_logprobs: the numbers are, byte for byte, those of the same tokens forced
 * as an answer after the first one, whatever is cached, in any chunks, by any number of threads, beside other jobs,
 * with and without an answer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "reprise.h"
#include "reprise_test.h"
#include "support/calls.h"
#include "support/must.h"
#include "support/shared_model.h"
#include "support/experiments.h"

#define N_TOP 5

static rp_engine *engine_of(int32_t threads, int32_t chunk) {
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = threads;
    o.chunk_tokens = chunk;
    return open_engine(&o);
}

static rp_result *run(rp_engine *e, const rp_request *q) {
    rp_error err = {0};
    rp_result *r = NULL;
    must(rp_engine_run(e, q, &r, &err), &err);
    return r;
}

static rp_request request_of(const int32_t *ids, int32_t n, int32_t max_tokens) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_tokens(ids, n);
    q.max_tokens = max_tokens;
    q.ignore_eos = true;
    q.n_prompt_logprobs = N_TOP;
    return q;
}

static int32_t *ids_of(const char *text, int32_t *n) {
    rp_error err = {0};
    int32_t *ids = NULL;
    size_t count = 0;
    must(rp_tokenize(model, text, strlen(text), false, true, &ids, &count, &err), &err);
    *n = (int32_t)count;
    return ids;
}

/* The numbers of a prompt equal those of its tokens as a forced answer. */
static void check(const rp_result *r, const rp_result *forced, const int32_t *ids, int32_t n, const char *where) {
    assert_int_equal(r->prompt_tokens, n);
    assert_int_equal(r->n_prompt_top, N_TOP);
    assert_memory_equal(r->prompt_ids, ids, (size_t)n * sizeof *ids);
    assert_true(isnan(r->prompt_logprobs[0]) && r->prompt_ranks[0] == 0 && r->prompt_top_logprobs[0].token == -1);
    assert_int_equal(forced->n_tokens, n - 1);
    if (memcmp(r->prompt_logprobs + 1, forced->logprobs, (size_t)(n - 1) * sizeof(float)) ||
        memcmp(r->prompt_top_logprobs + N_TOP, forced->top_logprobs,
               (size_t)(n - 1) * N_TOP * sizeof(rp_token_logprob)))
        fail_msg("%s: other log-probabilities", where);
    for (int32_t i = 1; i < n; i++) {
        const rp_token_logprob *top = r->prompt_top_logprobs + (ptrdiff_t)i * N_TOP;
        int32_t better = 0;
        while (better < N_TOP && top[better].logprob > r->prompt_logprobs[i]) better++;
        if (better < N_TOP) assert_int_equal(r->prompt_ranks[i], better + 1);
        else assert_true(r->prompt_ranks[i] > N_TOP);
    }
}

static rp_result *forced_of(const int32_t *ids, int32_t n) {
    rp_engine *e = engine_of(1, 64);
    rp_request q = request_of(ids, 1, n);
    q.n_prompt_logprobs = 0;
    q.n_logprobs = N_TOP;
    const rp_request_experiment forced = experiment_forced(ids + 1, n - 1);
    q.experiment = &forced;
    rp_result *r = run(e, &q);
    rp_engine_free(e);
    return r;
}

static void they_are_those_of_a_forced_answer(void **state) {
    (void)state;
    static const int32_t threads[] = {1, 2, 2, 1}, chunks[] = {1, 7, 256, 4096}, answers[] = {0, 1, 3, 12};
    int32_t n;
    char *text = calls_text(7, 150), where[64];
    int32_t *ids = ids_of(text, &n);
    rp_result *forced = forced_of(ids, n);
    for (int i = 0; i < 4; i++) {
        rp_engine *e = engine_of(threads[i], chunks[i]);
        rp_request q = request_of(ids, n, answers[i]);
        for (int again = 0; again < 3;
             again++) { /* nothing cached, the prompt cached, the prompt cached and looked up by its text */
            snprintf(where, sizeof where, "engine %d, time %d", i, again);
            if (again == 2) q.prompt = rp_prompt_text(text);
            rp_result *r = run(e, &q);
            check(r, forced, ids, n, where);
            assert_int_equal(r->n_tokens, answers[i]);
            assert_string_equal(r->finish_reason, "length");
            assert_int_equal(r->cached_tokens, 0);
            assert_string_equal(r->plan[0].reason, "logprobs");
            rp_result_free(r);
        }
        rp_request plain = request_of(ids, n, answers[i]); /* what they computed is cached */
        plain.n_prompt_logprobs = 0;
        rp_result *r = run(e, &plain);
        assert_int_equal(r->cached_tokens, n - 1);
        assert_null(r->prompt_logprobs);
        rp_result_free(r);
        rp_engine_free(e);
    }
    rp_result_free(forced);
    rp_free(ids);
    free(text);
}

/* The answer is the same, too. */
static void they_change_no_answer(void **state) {
    (void)state;
    int32_t n;
    char *text = calls_text(3, 80);
    int32_t *ids = ids_of(text, &n);
    rp_engine *e = engine_of(2, 32);
    rp_request q = request_of(ids, n, 16);
    q.n_logprobs = N_TOP;
    rp_result *with = run(e, &q);
    q.n_prompt_logprobs = 0;
    rp_result *without = run(e, &q);
    assert_memory_equal(with->tokens, without->tokens, 16 * sizeof(int32_t));
    assert_memory_equal(with->logprobs, without->logprobs, 16 * sizeof(float));
    rp_result_free(with);
    rp_result_free(without);
    rp_engine_free(e);
    rp_free(ids);
    free(text);
}

#define N_JOBS 6

static void jobs_beside_them_change_nothing(void **state) {
    (void)state;
    rp_engine *e = engine_of(2, 48);
    int32_t n[N_JOBS], *ids[N_JOBS];
    rp_result *forced[N_JOBS];
    rp_job *jobs[N_JOBS], *others[N_JOBS];
    for (int i = 0; i < N_JOBS; i++) {
        char *text = calls_text(20 + i / 2, 60 + 10 * i); /* pairs begin alike */
        ids[i] = ids_of(text, &n[i]);
        forced[i] = forced_of(ids[i], n[i]);
        free(text);
    }
    for (int i = 0; i < N_JOBS; i++) {
        rp_request q = request_of(ids[i], n[i], i % 3), other = request_of(ids[i], n[i], 20);
        other.n_prompt_logprobs = 0;
        other.n_draft = 4;
        others[i] = calls_submit(e, &other);
        jobs[i] = calls_submit(e, &q);
    }
    for (int i = 0; i < N_JOBS; i++) {
        rp_result *r = calls_result(jobs[i]);
        check(r, forced[i], ids[i], n[i], "beside others");
        rp_result_free(r);
        rp_result_free(forced[i]);
        rp_job_free(jobs[i]);
        calls_end(others[i]);
        rp_free(ids[i]);
    }
    rp_engine_free(e);
}

static void a_prompt_of_one_token_has_none(void **state) {
    (void)state;
    rp_engine *e = engine_of(1, 0);
    rp_request q = request_of((const int32_t[]){300}, 1, 0);
    rp_result *r = run(e, &q);
    assert_int_equal(r->prompt_tokens, 1);
    assert_int_equal(r->prompt_ids[0], 300);
    assert_true(isnan(r->prompt_logprobs[0]));
    rp_result_free(r);
    rp_engine_free(e);
}

/* Tokens of a module have no logits in the whole prompt, except at quality exact. */
static void modules_need_quality_exact(void **state) {
    (void)state;
    static const char schema[] =
        "<schema name='s'>Once <module name='a'>upon a time</module> there <module name='b'>was a</module></schema>";
    rp_engine *e = engine_of(1, 0);
    rp_error err = {0};
    rp_result *r = NULL;
    load_schema(e, schema, "s.xml");
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_pml("<prompt schema='s'><a/><b/> little</prompt>");
    q.max_tokens = 0;
    q.n_prompt_logprobs = N_TOP;
    assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_ERR_CONFLICT);
    assert_non_null(strstr(err.message, "give quality 'exact'"));
    q.quality = (rp_quality){RP_QUALITY_EXACT, 0};
    r = run(e, &q);
    int32_t *ids = malloc((size_t)r->prompt_tokens * sizeof *ids), n = r->prompt_tokens;
    memcpy(ids, r->prompt_ids, (size_t)n * sizeof *ids);
    rp_result *forced = forced_of(ids, n);
    check(r, forced, ids, n, "quality exact");
    rp_result_free(forced);
    rp_result_free(r);
    free(ids);
    rp_engine_free(e);
}

static void numbers_out_of_range_are_refused(void **state) {
    (void)state;
    rp_engine *e = engine_of(1, 0);
    rp_error err = {0};
    rp_result *r = NULL;
    rp_request q = request_of((const int32_t[]){300}, 1, 0);
    q.n_prompt_logprobs = -1;
    assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_ERR_INVALID);
    assert_non_null(strstr(err.message, "n_prompt_logprobs is -1"));
    q.n_prompt_logprobs = RP_MAX_LOGPROBS + 1;
    assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_ERR_LIMIT);
    rp_engine_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_are_those_of_a_forced_answer),
        cmocka_unit_test(they_change_no_answer),
        cmocka_unit_test(jobs_beside_them_change_nothing),
        cmocka_unit_test(a_prompt_of_one_token_has_none),
        cmocka_unit_test(modules_need_quality_exact),
        cmocka_unit_test(numbers_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
