/* SPDX-License-Identifier: Apache-2.0 */
/* test_look_ahead.c: prefetch for queued jobs: their KV is read from disk and not evicted; cancelled jobs release it.
 *
 * One job runs at a time. The running job submits the next one in the callback of its first token, on the engine's
 * thread: the number of loop iterations up to each later callback is known, and no test depends on time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "reprise.h"
#include "reprise_store.h"
#include "support/calls.h"
#include "support/shared_model.h"
#include "support/store_folder.h"
#include "support/experiments.h"

static rp_engine *new_engine(const char *dir, uint64_t columns) {
    rp_engine_options o = rp_engine_options_defaults();
    o.n_threads = 1;
    o.max_sequences = 1;
    o.store_dir = dir;
    o.kv_budget_bytes = columns * column_bytes;
    return open_engine(&o);
}

/* A text of n tokens, begin-of-text included, that shares no prefix with another one. Owned by the caller. */
static char *text_of(int number, size_t n) {
    char *text = malloc(8 * n + 32), *end = text + sprintf(text, "%d:", number * 7919);
    for (size_t have = 0; have < n;) {
        int32_t *tokens;
        end += sprintf(end, " %c", 'a' + (number + (int)(end - text)) % 26);
        assert_int_equal(rp_tokenize(model, text, (size_t)(end - text), false, true, &tokens, &have, NULL), RP_OK);
        rp_free(tokens);
    }
    return text;
}

static int32_t read_it(rp_engine *e, const char *text) {
    rp_request q = calls_request(text, 1);
    rp_result *r;
    rp_error err;
    if (rp_engine_run(e, &q, &r, &err)) fail_msg("%s", err.message);
    int32_t cached = r->cached_tokens;
    rp_result_free(r);
    return cached;
}

/* ---- a running job and a queued one --------------------------------------------------------------------------------
 * */

#define LOOK_AT 4 /* token of the running job's answer */

typedef struct pair {
    rp_engine *engine;
    rp_request waits; /* submitted at the running job's first token */
    rp_job *call;
    bool cancels; /* cancels the queued job after the check */
    int n;
    rp_store_stats first, seen;
    rp_job_state state;
} pair;

static bool on_token(void *user, const rp_token *token) {
    pair *p = user;
    (void)token;
    if (p->n == 0) {
        p->first.struct_size = p->seen.struct_size = sizeof(p->first);
        rp_engine_store_stats(p->engine, &p->first);
        assert_int_equal(rp_engine_submit(p->engine, &p->waits, &p->call, NULL), RP_OK);
    }
    if (p->n == LOOK_AT) {
        rp_job_status status = {.struct_size = sizeof(status)};
        rp_engine_store_stats(p->engine, &p->seen);
        rp_job_get_status(p->call, &status);
        p->state = status.state;
        if (p->cancels) rp_job_cancel(p->call);
    }
    p->n++;
    return true;
}

/* The queued job's result; NULL: it was cancelled. */
static rp_result *run_pair(pair *p, const char *text, int32_t max_tokens) {
    rp_request q = calls_request(text, max_tokens);
    rp_result *r, *waited = NULL;
    rp_error err;
    q.experiment = &experiment_no_prefix; /* all lookups miss */
    q.on_token = on_token;
    q.user = p;
    if (rp_engine_run(p->engine, &q, &r, &err)) fail_msg("%s", err.message);
    rp_result_free(r);
    int rc = rp_job_result(p->call, &waited, &err);
    if (p->cancels) assert_int_equal(rc, RP_ERR_CANCELLED);
    else if (rc) fail_msg("%s", err.message);
    rp_job_free(p->call);
    return waited;
}

static void states_are_read_before_the_call_runs(void **state) {
    (void)state;
    char dir[STORE_FOLDER_BYTES], *text = text_of(1, 600);
    store_folder_make(dir);
    rp_engine *e = new_engine(dir, 64);
    assert_int_equal(read_it(e, text), 0);
    rp_engine_free(e);
    pair p = {.engine = new_engine(dir, 64), .waits = calls_request(text, 1)};
    rp_result *r = run_pair(&p, "short", 20);
    assert_int_equal(p.state, RP_JOB_WAITING);
    assert_int_equal(p.first.spans, 0);
    assert_true(p.seen.spans >= 3 && p.seen.hits == p.first.hits); /* in RAM, and not counted as hits yet */
    assert_int_equal(r->cached_tokens, r->prompt_tokens - 1);
    assert_string_equal(r->plan[0].tier, "disk");
    rp_result_free(r);
    assert_int_equal(read_it(p.engine, text), 599); /* the next one hits it in RAM */
    rp_engine_free(p.engine);
    store_folder_remove(dir);
    free(text);
}

/* The least recently used KV would be evicted for a running job, although the next one needs it. */
static void states_that_a_waiting_call_uses_are_not_dropped(void **state) {
    (void)state;
    char *text = text_of(1, 560), *newer = text_of(2, 600);
    pair p = {.engine = new_engine(NULL, 44), .waits = calls_request(text, 1)};
    read_it(p.engine, text);
    read_it(p.engine, newer);
    rp_result *r = run_pair(&p, "short", 26 * 64);
    assert_int_equal(p.state, RP_JOB_WAITING);
    assert_int_equal(r->cached_tokens, r->prompt_tokens - 1);
    rp_result_free(r);
    assert_true(read_it(p.engine, newer) < 599); /* something had to be evicted */
    rp_engine_free(p.engine);
    free(text);
    free(newer);
}

static void a_cancelled_call_lets_go(void **state) {
    (void)state;
    char *text = text_of(1, 560), *large = text_of(3, 40 * 64);
    pair p = {.engine = new_engine(NULL, 44), .waits = calls_request(text, 1), .cancels = true};
    read_it(p.engine, text);
    assert_null(run_pair(&p, "short", 20));
    assert_int_equal(p.state, RP_JOB_WAITING);
    assert_int_equal(read_it(p.engine, large), 0); /* takes all there is */
    rp_engine_free(p.engine);
    free(text);
    free(large);
}

/* Prefetched KV of later jobs does not block the first one, nor does the first one wait for its own. */
static void the_first_that_waits_gets_all_the_room(void **state) {
    (void)state;
    char *texts[4], *large = text_of(9, 40 * 64);
    rp_job *behind[4];
    rp_error err;
    for (int i = 0; i < 4; i++) texts[i] = text_of(i + 1, 500);
    pair p = {.engine = new_engine(NULL, 44), .waits = calls_request(large, 1)};
    for (int i = 0; i < 4; i++) read_it(p.engine, texts[i]);
    p.waits.priority = 1;
    rp_request hold = calls_request("short", 1000), q;
    rp_job *running;
    hold.on_token = on_token;
    hold.user = &p;
    assert_int_equal(rp_engine_submit(p.engine, &hold, &running, NULL), RP_OK);
    for (int i = 0; i < 4; i++) {
        q = calls_request(texts[i], 1);
        if (rp_engine_submit(p.engine, &q, &behind[i], &err)) fail_msg("%s", err.message);
    }
    rp_job_wait(running, -1);
    rp_result *r;
    if (rp_job_result(p.call, &r, &err)) fail_msg("%s", err.message);
    rp_result_free(r);
    for (int i = 0; i < 4; i++) {
        if (rp_job_result(behind[i], &r, &err)) fail_msg("%s", err.message);
        rp_result_free(r);
        rp_job_free(behind[i]);
        free(texts[i]);
    }
    rp_job_free(p.call);
    rp_job_free(running);
    rp_engine_free(p.engine);
    free(large);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_are_read_before_the_call_runs),
        cmocka_unit_test(states_that_a_waiting_call_uses_are_not_dropped),
        cmocka_unit_test(a_cancelled_call_lets_go),
        cmocka_unit_test(the_first_that_waits_gets_all_the_room),
    };
    return cmocka_run_group_tests_name("prefetch", tests, open_model, close_model);
}
