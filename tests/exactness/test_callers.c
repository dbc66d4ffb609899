/* SPDX-License-Identifier: Apache-2.0 */
/* test_callers.c: many jobs at once under adverse conditions: several threads wait for them, cancel and free them at
 * any time, and allocations fail. Every job ends with its own bytes or a clean error, nothing leaks (ASan) or races
 * (TSan), and the engine continues.
 *
 *   REPRISE_TEST_SEED=N    another sequence
 *   REPRISE_TEST_ROUNDS=N  rounds of each test, 6 by default
 */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "support/schedule_run.h"
#include "support/seed.h"
#include "reprise_pml.h"
#include "reprise_store.h"
#include "support/experiments.h"
#include "reprise_test.h"

static schedule_model models[SCHEDULE_MODELS];
static uint64_t seed;
static int rounds;

static int open_models(void **state) {
    (void)state;
    seed = test_seed("calls", 20261123);
    rounds = test_rounds(6);
    schedule_models_open(models);
    return 0;
}

static int close_models(void **state) {
    (void)state;
    schedule_models_close(models);
    return 0;
}

/* ---- failing allocations ---- */

static void failing_allocations_end_calls_and_nothing_else(void **state) {
    (void)state;
    schedule_tally tally = {0};
    for (int i = 0; i < rounds; i++) {
        schedule_world world;
        tiny_random r = {.state = seed + (uint64_t)i};
        schedule_world_make(&world, models, seed + (uint64_t)i);
        for (int k = 0; k < 2; k++) schedule_run(&world, &r, true, &tally);
        schedule_world_free(&world);
    }
    schedule_tally_print("failing allocations", &tally);
    if (rounds >= 5) assert_true(tally.failed > 0 && tally.compared > 0);
}

/* ---- random operations by several threads ---- */

#define N_THREADS 4
#define HANDS 4 /* calls that a thread has at a time */
#define OPERATIONS 60
#define MOST_WAIT_US 10000000

/* A job that a thread has submitted. Others may cancel it, under the lock, while `handle` is set. */
typedef struct hand {
    const schedule_call *call;
    rp_job *handle;
    bool was_cancelled, is_taken;
    int32_t n_steps; /* engine's thread */
    bool differs;
} hand;

typedef struct party {
    const schedule_world *w;
    rp_engine *engine;
    pthread_mutex_t lock;
    hand hands[N_THREADS][HANDS];
    int wrong; /* under the lock */
    uint64_t submitted, ended, answered;
} party;

typedef struct guest {
    party *p;
    hand *hands;
    tiny_random r;
    pthread_t thread;
} guest;

static void compare_logits(void *user, const float *logits, int32_t n_vocab) {
    hand *h = user;
    const oracle_run *alone = &h->call->alone;
    int32_t i = h->n_steps++;
    if (i >= alone->n_steps || memcmp(oracle_run_logits(alone, i), logits, (size_t)n_vocab * sizeof(*logits)) != 0)
        h->differs = true;
}

static void note(party *p, bool right, bool answered) {
    pthread_mutex_lock(&p->lock);
    p->ended++;
    p->wrong += !right;
    p->answered += answered;
    pthread_mutex_unlock(&p->lock);
}

static void begin(guest *g, hand *h) {
    static const char *const tenants[] = {NULL, "a", "b"};
    party *p = g->p;
    rp_job *handle = NULL;
    pthread_mutex_lock(&p->lock); /* others look at a hand to cancel its call */
    *h = (hand){.call = &p->w->calls[tiny_random_below(&g->r, (uint64_t)p->w->n_calls)]};
    pthread_mutex_unlock(&p->lock);
    rp_request q = h->call->request;
    q.n_draft = (int32_t)tiny_random_below(&g->r, RP_MAX_DRAFT + 2) + RP_DRAFT_AUTO;
    q.tenant = tenants[tiny_random_below(&g->r, BASE_ARRAY_LEN(tenants))];
    q.on_logits = compare_logits;
    q.user = h;
    int rc = rp_engine_submit(p->engine, &q, &handle, NULL);
    pthread_mutex_lock(&p->lock);
    h->handle = handle;
    p->submitted += rc == 0;
    p->wrong += rc != 0;
    pthread_mutex_unlock(&p->lock);
}

/* Called after the job has ended, without the lock. */
static void take(guest *g, hand *h) {
    rp_error err = {0};
    rp_result *r = NULL, *again = NULL;
    int rc = rp_job_result(h->handle, &r, &err);
    pthread_mutex_lock(&g->p->lock);
    bool was_cancelled = h->was_cancelled;
    pthread_mutex_unlock(&g->p->lock);
    bool whole = !rc && strcmp(r->finish_reason, "cancelled") != 0;
    bool right = whole ? h->n_steps == h->call->alone.n_steps && strcmp(r->text, h->call->alone.result->text) == 0
                       : was_cancelled && (!rc || rc == RP_ERR_CANCELLED);
    if (!rc && rp_job_result(h->handle, &again, NULL) != RP_ERR_INVALID) right = false; /* once */
    if (!right) printf("call %llu: rc %d %s\n", (unsigned long long)rp_job_number(h->handle), rc, err.message);
    note(g->p, right && !h->differs, whole);
    rp_result_free(r);
    h->is_taken = true;
}

static void let_go(guest *g, hand *h) {
    rp_job *handle = h->handle;
    pthread_mutex_lock(&g->p->lock);
    h->handle = NULL;
    pthread_mutex_unlock(&g->p->lock);
    rp_job_free(handle);
    if (!h->is_taken) note(g->p, !h->differs, false);
}

static void cancel_any(guest *g) {
    party *p = g->p;
    hand *h = &p->hands[tiny_random_below(&g->r, N_THREADS)][tiny_random_below(&g->r, HANDS)];
    pthread_mutex_lock(&p->lock);
    if (h->handle) {
        h->was_cancelled = true;
        rp_job_cancel(h->handle);
    }
    pthread_mutex_unlock(&p->lock);
}

static void *guest_main(void *arg) {
    guest *g = arg;
    for (int i = 0; i < OPERATIONS; i++) {
        hand *h = &g->hands[tiny_random_below(&g->r, HANDS)];
        rp_job_status status = {.struct_size = sizeof(status)};
        switch (tiny_random_below(&g->r, h->handle ? 6 : 1)) {
        case 0:
            if (!h->handle) begin(g, h);
            break;
        case 1: cancel_any(g); break;
        case 2: let_go(g, h); break;
        case 3: rp_job_get_status(h->handle, &status); break;
        case 4:
            if (rp_job_wait(h->handle, (int64_t)tiny_random_below(&g->r, 2)) && !h->is_taken) take(g, h);
            break;
        default:
            if (!h->is_taken) take(g, h);
        }
    }
    for (int i = 0; i < HANDS; i++)
        if (g->hands[i].handle) let_go(g, &g->hands[i]);
    return NULL;
}

static void hold_party(const schedule_world *w, tiny_random *r, uint64_t *answered) {
    guest guests[N_THREADS];
    rp_engine_options o = schedule_world_options(w);
    party *p = calloc(1, sizeof(*p));
    o.max_sequences = 1 + (int32_t)tiny_random_below(r, 6);
    o.chunk_tokens = 1 + (int32_t)tiny_random_below(r, 100);
    o.n_threads = 1 + (int32_t)tiny_random_below(r, 2);
    *p = (party){.w = w, .engine = schedule_world_engine(w, &o)};
    pthread_mutex_init(&p->lock, NULL);
    for (int i = 0; i < N_THREADS; i++) {
        guests[i] = (guest){.p = p, .hands = p->hands[i], .r = {tiny_random_u64(r)}};
        if (pthread_create(&guests[i].thread, NULL, guest_main, &guests[i])) abort();
    }
    for (int i = 0; i < N_THREADS; i++) pthread_join(guests[i].thread, NULL);
    rp_store_stats stats = {.struct_size = sizeof(stats)};
    const uint64_t until = base_clock_us() + MOST_WAIT_US;
    do rp_engine_store_stats(p->engine, &stats); /* as of the last step: jobs that were freed end at the next */
    while (stats.used_bytes != stats.bytes && base_clock_us() < until);
    rp_engine_free(p->engine);
    assert_int_equal(p->wrong, 0);
    assert_int_equal(p->ended, p->submitted);
    assert_true(stats.used_bytes == stats.bytes);
    *answered += p->answered;
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static void calls_of_many_threads_end_as_they_should(void **state) {
    (void)state;
    uint64_t answered = 0;
    for (int i = 0; i < rounds; i++) {
        schedule_world world;
        tiny_random r = {.state = seed + (uint64_t)i};
        schedule_world_make(&world, models, seed + (uint64_t)i);
        hold_party(&world, &r, &answered);
        schedule_world_free(&world);
    }
    printf("calls: %llu whole answers\n", (unsigned long long)answered);
    assert_true(answered > 0);
}

/* ---- regressions ---- */

#define BUDGET_SLOTS \
    (5 * \
     64) /* of the engine below: a module beside its scope fits, and a request of PROMPT_TOKENS with nothing beside */
#define PROMPT_TOKENS 193

typedef struct late_request {
    rp_engine *engine;
    rp_job *call;
    const char *text;
    int rc;
} late_request;

static void submit_once(void *user, const rp_step *step) {
    late_request *l = user;
    rp_request q = rp_request_defaults();
    if (l->call || step->parts[0].kind != RP_STEP_MODULE) return;
    q.prompt = rp_prompt_text(l->text);
    q.priority = 1;
    q.max_tokens = 1;
    q.experiment = &experiment_no_prefix;
    l->rc = rp_engine_submit(l->engine, &q, &l->call, NULL);
}

/* At least n tokens, and fewer than n + 64. Owned by the caller. */
static char *text_of_tokens(const schedule_model *m, size_t n) {
    char *text = calloc(1, 16 * n);
    for (size_t tokens = 0; tokens < n;) {
        int32_t *ids;
        strcat(text, "river ");
        assert_int_equal(rp_tokenize(m->model, text, strlen(text), false, true, &ids, &tokens, NULL), RP_OK);
        rp_free(ids);
    }
    return text;
}

/* Regression: a request that did not fit beside a module of rp_schema_prefill was never retried, as no job had *ended*;
 * it was queued before the prefill, and both waited forever. */
static void a_request_has_its_turn_between_two_modules(void **state) {
    (void)state;
    static const char pml[] = "<schema name='e'><module name='a'>one</module><module name='b'>two</module></schema>";
    char *text = text_of_tokens(&models[0], PROMPT_TOKENS);
    late_request l = {.text = text};
    rp_engine_options o = rp_engine_options_defaults();
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_result *r;
    rp_model_describe(models[0].model, &info);
    o.kv_budget_bytes = BUDGET_SLOTS * info.kv_bytes_per_token;
    o.chunk_tokens = 1;
    o.on_step = submit_once;
    o.step_user = &l;
    assert_int_equal(rp_engine_new(&l.engine, models[0].model, &o, NULL), RP_OK);
    assert_int_equal(rp_schema_parse(l.engine, pml, strlen(pml), "e", NULL, NULL, NULL, NULL), RP_OK);
    assert_int_equal(rp_schema_prefill(l.engine, NULL, "e", NULL, NULL, NULL), RP_OK);
    assert_true(l.rc == RP_OK && l.call);
    assert_int_equal(rp_job_result(l.call, &r, NULL), RP_OK);
    rp_result_free(r);
    rp_job_free(l.call);
    rp_engine_free(l.engine);
    free(text);
}

#define ANSWER_TOKENS 600
#define TWIN_TOKENS 250 /* of the shorter twin's answer: with the prompt they take one span, but not all of it */
#define LATE_PROMPT 400
#define LATE_ANSWER 350
/* Blocks of each layer reserved for the longer twin and the late request, with one spare block per run. */
#define TWIN_BLOCKS 11
#define LATE_BLOCKS 13

typedef struct twins {
    rp_engine *engine;
    rp_request late;
    rp_job *call; /* of the late request */
    int rc;
} twins;

static void submit_late(void *user) {
    twins *t = user;
    t->rc = rp_engine_submit(t->engine, &t->late, &t->call, NULL);
}

/* Regression: two jobs have the same prompt. KV that the first kept at its end is unreserved, and gets reserved for a
 * third; the second then finds its own computed KV in the tree, and would hold that as well. */
static void what_was_promised_is_not_held_by_twins(void **state) {
    (void)state;
    static int32_t answer[ANSWER_TOKENS];
    rp_engine_options o = rp_engine_options_defaults();
    rp_model_info info = {.struct_size = sizeof(info)};
    char *late = text_of_tokens(&models[0], LATE_PROMPT);
    twins t = {.late = rp_request_defaults()};
    rp_model_describe(models[0].model, &info);
    for (int i = 0; i < ANSWER_TOKENS; i++) answer[i] = 3 + i % 200;
    o.kv_budget_bytes = (TWIN_BLOCKS + LATE_BLOCKS) * 64 * info.kv_bytes_per_token;
    o.n_threads = 1;
    o.chunk_tokens = 512;
    o.token_goal_ms = INFINITY;
    assert_int_equal(rp_engine_new(&t.engine, models[0].model, &o, NULL), RP_OK);
    rp_request q = rp_request_defaults();
    rp_job *calls[2];
    rp_result *r;
    rp_error err = {0};
    q.prompt = rp_prompt_text("river");
    t.late.prompt = rp_prompt_text(late);
    rp_request_experiment forced_late = experiment_forced(answer, LATE_ANSWER);
    forced_late.no_prefix = true;
    t.late.experiment = &forced_late;
    q.user = &t;
    for (int i = 0; i < 2; i++) {
        const rp_request_experiment forced = experiment_forced(answer, i == 0 ? TWIN_TOKENS : ANSWER_TOKENS);
        q.experiment = &forced;
        q.on_done = i == 0 ? submit_late : NULL;
        assert_int_equal(rp_engine_submit(t.engine, &q, &calls[i], NULL), RP_OK);
    }
    for (int i = 0; i < 3; i++) {
        rp_job *c = i < 2 ? calls[i] : t.call;
        assert_true(i < 2 || t.rc == RP_OK);
        if (rp_job_result(c, &r, &err)) fail_msg("call %d: %s", i, err.message);
        rp_result_free(r);
        if (i > 0) rp_job_free(c);
    }
    rp_job_free(calls[0]);
    rp_engine_free(t.engine);
    free(late);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_has_its_turn_between_two_modules),
        cmocka_unit_test(what_was_promised_is_not_held_by_twins),
        cmocka_unit_test(calls_of_many_threads_end_as_they_should),
        cmocka_unit_test(failing_allocations_end_calls_and_nothing_else),
    };
    return cmocka_run_group_tests_name("callers", tests, open_models, close_models);
}
