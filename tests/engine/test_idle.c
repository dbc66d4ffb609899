/* SPDX-License-Identifier: Apache-2.0 */
/* test_idle.c: background tasks: their results, when they run, and the memory that they take.
 *
 * Tasks are submitted on the engine's thread, as the engine does it. Requests are submitted from on_step, on that
 * thread as well: the state between two steps is known, and nothing depends on time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "engine/background/background.h"
#include "engine/core/commands.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "support/calls.h"
#include "support/must.h"
#include "support/shared_model.h"
#include "support/tiny_model.h"

#define TOKENS 600 /* of a task: several spans, and many steps of the background */

/* Prepared, as after the first request. */
static rp_engine *new_engine(const rp_engine_options *options) {
    rp_engine *e = open_engine(options);
    rp_error err = {0};
    must(rp_engine_prepare(e, NULL, NULL, &err), &err);
    return e;
}

/* ---- tasks ---- */

typedef struct task {
    int32_t n, seed;
    bool keeps;
    int submit_rc;
    /* results */
    int n_done, rc;
    size_t path_tokens;
    float *logits; /* [n_vocab] */
} task;

static void fill(int32_t *tokens, int32_t n, int32_t seed) {
    for (int32_t i = 0; i < n; i++) tokens[i] = 10 + (i * 37 + seed * 101 + i * i % 91) % 400;
}

static void on_done(rp_engine *e, void *user, int rc, const background_result *result) {
    task *t = user;
    size_t bytes = (size_t)e->model->net.hp.n_vocab * sizeof(float);
    t->n_done++;
    t->rc = rc;
    assert_true((rc == RP_OK) == (result != NULL));
    if (!result) return;
    t->path_tokens = result->path->n_tokens;
    memcpy(t->logits = realloc(t->logits, bytes), result->logits, bytes);
}

static void submit(rp_engine *e, void *arg) {
    task *t = arg;
    background_task it = {
        .salt = e->salt, .format = e->formats->text, .n = t->n, .keeps = t->keeps, .done = on_done, .user = t};
    it.tokens = base_alloc((size_t)t->n * sizeof(int32_t));
    it.positions = base_alloc((size_t)t->n * sizeof(int32_t));
    fill(it.tokens, t->n, t->seed);
    for (int32_t i = 0; i < t->n; i++) it.positions[i] = i;
    t->submit_rc = background_submit(e, &it);
    if (t->submit_rc == RP_OK) return;
    base_free(it.tokens);
    base_free(it.positions);
}

static void submit_task(rp_engine *e, task *t) { assert_int_equal(engine_do(e, submit, t, NULL), RP_OK); }

static int32_t in_background(rp_engine *e) {
    rp_engine_info info = {.struct_size = sizeof(info)};
    rp_engine_describe(e, &info);
    return info.background;
}

/* ---- requests ---- */

/* An rp_on_logits of an answer of one token. */
static void keep_logits(void *user, const float *logits, int32_t n) {
    float **out = user;
    memcpy(*out = malloc((size_t)n * sizeof(float)), logits, (size_t)n * sizeof(float));
}

static rp_request request(const int32_t *tokens, int32_t n, int32_t max_tokens) {
    rp_request q = calls_request(NULL, max_tokens);
    q.prompt = rp_prompt_tokens(tokens, n);
    return q;
}

/* ---- results ---- */

static void a_task_gives_the_bytes_of_a_call(void **state) {
    (void)state;
    for (int format = RP_KV_F16; format <= RP_KV_INT8; format++)
        for (int keeps = 0; keeps < 2; keeps++) {
            rp_engine_options o = rp_engine_options_defaults();
            o.kv_format = (rp_kv_format)format;
            rp_engine *e = new_engine(&o);
            task t = {.n = TOKENS, .keeps = keeps};
            submit_task(e, &t);
            assert_true(rp_engine_drain(e, -1));
            assert_int_equal(in_background(e), 0);
            assert_int_equal(t.n_done, 1);
            assert_int_equal(t.rc, RP_OK);
            assert_int_equal(t.path_tokens, keeps ? TOKENS : 0);
            int32_t tokens[TOKENS];
            float *logits = NULL;
            fill(tokens, TOKENS, 0);
            rp_request q = request(tokens, TOKENS, 1);
            q.on_logits = keep_logits;
            q.user = &logits;
            rp_result *r = tiny_model_answer(e, &q);
            assert_int_equal(r->cached_tokens, keeps ? TOKENS - 1 : 0);
            assert_memory_equal(logits, t.logits, (size_t)e->model->net.hp.n_vocab * sizeof(float));
            rp_result_free(r);
            rp_engine_free(e);
            free(logits);
            free(t.logits);
        }
}

static void one_more_than_the_limit_is_refused_and_the_engine_ends_them(void **state) {
    (void)state;
    task tasks[BACKGROUND_MAX_TASKS + 1] = {0};
    int32_t tokens[8];
    rp_engine *e = new_engine(NULL);
    fill(tokens, 8, 1);
    rp_job *c;
    rp_request q = request(tokens, 8, 3000); /* it runs: no task is begun; tasks come between two steps each */
    assert_int_equal(rp_engine_submit(e, &q, &c, NULL), RP_OK);
    for (int i = 0; i <= BACKGROUND_MAX_TASKS; i++) {
        tasks[i] = (task){.n = TOKENS, .seed = i};
        submit_task(e, &tasks[i]);
        assert_int_equal(tasks[i].submit_rc, i < BACKGROUND_MAX_TASKS ? RP_OK : RP_ERR_BUSY);
    }
    rp_engine_info info = {.struct_size = sizeof(info)};
    rp_engine_describe(e, &info);
    assert_int_equal(info.running + info.waiting, 1); /* tasks are not counted as requests */
    assert_int_equal(info.background, BACKGROUND_MAX_TASKS);
    assert_false(rp_engine_drain(e, 0));
    rp_job_free(c);
    rp_engine_free(e);
    for (int i = 0; i <= BACKGROUND_MAX_TASKS; i++) {
        assert_int_equal(tasks[i].n_done, i < BACKGROUND_MAX_TASKS);
        assert_true(tasks[i].rc == RP_OK || tasks[i].rc == RP_ERR_CANCELLED);
        free(tasks[i].logits);
    }
}

/* ---- when ---- */

/* Submits a request in every third background step, and records the following steps. */
typedef struct watch {
    rp_engine *e;
    rp_job *calls[64];
    int32_t n_calls, n_background, tokens[40];
    bool under_way;             /* one of them */
    int32_t in_the_way, shared; /* background steps while a request ran; with other rows */
} watch;

static void call_is_over(void *user) { ((watch *)user)->under_way = false; }

static void submit_call(watch *w) {
    w->tokens[0] = 10 + w->n_calls; /* a miss */
    rp_request q = request(w->tokens, 40, 3);
    q.on_done = call_is_over;
    q.user = w;
    w->under_way = true;
    assert_int_equal(rp_engine_submit(w->e, &q, &w->calls[w->n_calls++], NULL), RP_OK);
}

static void watch_step(void *user, const rp_step *s) {
    watch *w = user;
    bool background = false;
    for (int32_t i = 0; i < s->n_parts; i++) background |= s->parts[i].kind == RP_STEP_BACKGROUND;
    if (!background) return;
    w->shared += s->n_parts > 1 || s->parts[0].job != 0 || s->n_running + s->n_waiting > 0;
    w->in_the_way += w->under_way;
    if (++w->n_background % 3 == 0 && w->n_calls < 64) submit_call(w);
}

static void a_call_waits_for_one_step_of_the_background_at_most(void **state) {
    (void)state;
    watch w = {0};
    task tasks[8];
    rp_engine_options o = rp_engine_options_defaults();
    o.on_step = watch_step;
    o.step_user = &w;
    o.chunk_tokens = 16; /* many steps */
    fill(w.tokens, 40, 3);
    w.e = new_engine(&o);
    for (int i = 0; i < 8; i++) {
        tasks[i] = (task){.n = TOKENS, .seed = i, .keeps = i % 2};
        submit_task(w.e, &tasks[i]);
    }
    assert_true(rp_engine_drain(w.e, -1));
    for (int i = 0; i < w.n_calls; i++) rp_job_wait(w.calls[i], -1), rp_job_free(w.calls[i]);
    rp_engine_free(w.e);
    assert_true(w.n_background >= 8 * TOKENS / 16);
    assert_int_equal(w.n_calls, 64);
    assert_int_equal(w.shared, 0);
    assert_int_equal(w.in_the_way, 0);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(tasks[i].n_done, 1);
        assert_int_equal(tasks[i].rc, RP_OK);
        free(tasks[i].logits);
    }
}

/* ---- memory ---- */

typedef struct crowd {
    rp_engine *e;
    rp_job *call;
    int32_t tokens[700], steps, rows; /* of the background */
} crowd;

static void crowd_step(void *user, const rp_step *s) {
    crowd *c = user;
    if (s->parts[0].kind != RP_STEP_BACKGROUND) return;
    c->rows += s->parts[0].n_rows;
    if (++c->steps != 20) return;
    rp_request q = request(c->tokens, 700, 1);
    assert_int_equal(rp_engine_submit(c->e, &q, &c->call, NULL), RP_OK);
}

static void a_task_gives_its_room_to_a_call(void **state) {
    (void)state;
    for (int keeps = 0; keeps < 2; keeps++) {
        crowd w = {0};
        rp_engine_options o = rp_engine_options_defaults();
        o.on_step = crowd_step;
        o.step_user = &w;
        o.chunk_tokens = 16;
        o.kv_budget_bytes = 14 * column_bytes; /* of 700 tokens 11, and as a task 10 */
        fill(w.tokens, 700, 5);
        w.e = new_engine(&o);
        task t = {.n = TOKENS, .seed = 6, .keeps = keeps};
        submit_task(w.e, &t);
        assert_true(rp_engine_drain(w.e, -1));
        rp_result *r;
        rp_error err;
        if (rp_job_result(w.call, &r, &err)) fail_msg("%s", err.message);
        assert_int_equal(r->fresh_tokens, 700);
        rp_result_free(r);
        rp_job_free(w.call);
        assert_int_equal(t.n_done, 1);
        assert_int_equal(t.rc, RP_OK);
        if (!keeps) assert_true(w.rows > TOKENS); /* it was requeued */
        rp_engine_free(w.e);
        free(t.logits);
    }
}

static void a_task_that_no_budget_holds_is_dropped(void **state) {
    (void)state;
    rp_engine_options o = rp_engine_options_defaults();
    o.kv_budget_bytes = 4 * column_bytes;
    rp_engine *e = new_engine(&o);
    task t = {.n = TOKENS}, small = {.n = 60};
    submit_task(e, &t);
    submit_task(e, &small);
    assert_true(rp_engine_drain(e, -1));
    assert_int_equal(t.rc, RP_ERR_BUDGET);
    assert_int_equal(small.rc, RP_OK);
    rp_engine_free(e);
    free(small.logits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_task_gives_the_bytes_of_a_call),
        cmocka_unit_test(one_more_than_the_limit_is_refused_and_the_engine_ends_them),
        cmocka_unit_test(a_call_waits_for_one_step_of_the_background_at_most),
        cmocka_unit_test(a_task_gives_its_room_to_a_call),
        cmocka_unit_test(a_task_that_no_budget_holds_is_dropped),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
