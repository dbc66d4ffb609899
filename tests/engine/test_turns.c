/* SPDX-License-Identifier: Apache-2.0 */
/* test_turns.c: fair turns of tenants: rounds of predicted time, the queue, and the rows of steps; and paused jobs.
 * Order and rows are counted, not time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/core/turns.h"
#include "reprise.h"
#include "support/calls.h"
#include "support/gate.h"
#include "support/shared_model.h"
#include "support/tiny_model.h"

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

static const base_key A = {{1}}, B = {{2}};

static void a_round_gives_each_tenant_a_quantum(void **state) {
    (void)state;
    turn at = {7, 100};
    at = turns_next(at, 60, 100);
    assert_true(at.round == 7 && at.left_us == 40);
    at = turns_next(at, 40, 100);
    assert_true(at.round == 7 && at.left_us == 0);
    at = turns_next(at, 250, 100); /* the cost of three quanta */
    assert_true(at.round == 10 && at.left_us == 50);
    at = turns_next(at, 0, 100);
    assert_true(at.round == 10 && at.left_us == 50);
}

static void a_tenant_saves_nothing_while_it_is_away(void **state) {
    (void)state;
    turns t = {0};
    turns_begin(&t, &A, 0, 100);
    for (int i = 0; i < 10; i++) turns_admit(&t, &A, 0, turns_next(turns_start(&t, &A, 0, 100), 100, 100));
    assert_int_equal(turns_start(&t, &A, 0, 100).round, 9);
    assert_int_equal(turns_start(&t, &B, 0, 100).round, 9); /* not 0 */
    assert_int_equal(turns_start(&t, &B, 5, 100).round, 0); /* another level has rounds of its own */
    turns_refund(&t, &A, 0, 1000, 100);
    assert_int_equal(turns_start(&t, &A, 0, 100).round, 9); /* never later than the level */
    turns_rest(&t, &A, 0);
    turns_begin(&t, &A, 0, 100);
    turns_refund(&t, &A, 0, -250, 100);
    assert_int_equal(turns_start(&t, &A, 0, 100).round, 11);
    turns_free(&t);
}

/* Two tenants with requests of different length: over many rounds both get the same time, within a quantum and a
 * request. */
static void shares_are_equal_in_time_not_in_requests(void **state) {
    (void)state;
    turns t = {0};
    double served[2] = {0}, costs[2] = {35, 470};
    turns_begin(&t, &A, 0, 100);
    turns_begin(&t, &B, 0, 100);
    for (int i = 0; i < 2000; i++) {
        turn a = turns_next(turns_start(&t, &A, 0, 100), costs[0], 100),
             b = turns_next(turns_start(&t, &B, 0, 100), costs[1], 100);
        bool first = a.round <= b.round;
        turns_admit(&t, first ? &A : &B, 0, first ? a : b);
        served[first ? 0 : 1] += costs[first ? 0 : 1];
        double gap = served[0] - served[1];
        assert_true(gap < 100 + 470 + 35 && gap > -(100 + 470 + 35));
    }
    turns_free(&t);
}

static void the_list_of_tenants_stays_short(void **state) {
    (void)state;
    turns t = {0};
    for (uint32_t i = 0; i < 20000; i++) {
        base_key key = {{0}};
        memcpy(key.bytes, &i, sizeof(i));
        turns_admit(&t, &key, 0, turns_next(turns_start(&t, &key, 0, 100), 150, 100));
    }
    assert_true(t.n_tenants < 200);
    turns_free(&t);
}

/* ---- the queue --------------------------------------------------------------------------------------------------- */

static rp_request tenant_request(const char *tenant, const char *text, int32_t max_tokens) {
    rp_request q = calls_request(text, max_tokens);
    q.tenant = tenant;
    return q;
}

/* Its text, owned by the caller. */
static char *finish(rp_job *c) {
    rp_result *r = calls_result(c);
    char *text = r->text;
    r->text = NULL;
    rp_result_free(r);
    rp_job_free(c);
    return text;
}

#define HEAVY 50

/* HEAVY long requests are queued, then a short one of another tenant arrives. Returns the position at which that one is
 * served, from 1. */
static int place_of_the_light_one(bool salted, int32_t sequences) {
    rp_engine_options o = rp_engine_options_defaults();
    o.max_sequences = sequences;
    o.chunk_tokens = 32;
    rp_engine *e = open_engine(&o);
    rp_request hold = tenant_request("heavy", "gate", 2);
    rp_job *calls[HEAVY + 1];
    calls_order orders[HEAVY + 1];
    int next = 0;
    gate g;
    gate_close(&g, e, &hold);
    for (int i = 0; i <= HEAVY; i++) {
        char tenant[32];
        bool light = i == HEAVY;
        snprintf(tenant, sizeof(tenant), salted ? "heavy %d" : "heavy", i);
        char *text = light ? calls_text(i, 2) : calls_text(i, 100);
        rp_request q = tenant_request(light ? "light" : tenant, text, 1);
        q.flow = light ? "light" : salted ? "heavy"
                                          : NULL;
        orders[i] = (calls_order){&next, 0};
        q.on_done = calls_note_order;
        q.user = &orders[i];
        calls[i] = calls_submit(e, &q);
        free(text);
    }
    gate_end(&g);
    for (int i = 0; i <= HEAVY; i++) calls_end(calls[i]);
    for (int i = 1; i < HEAVY && sequences == 1; i++)
        assert_true(orders[i - 1].place < orders[i].place); /* a tenant's own: FIFO */
    rp_engine_free(e);
    return orders[HEAVY].place;
}

static void a_light_tenant_waits_for_a_quantum_not_for_a_queue(void **state) {
    (void)state;
    assert_in_range(place_of_the_light_one(false, 1), 1, 3);
    assert_in_range(place_of_the_light_one(false, 4), 1, 8);
}

/* Tenants of one flow, for example of a client's cache salts, share one tenant's turns. */
static void many_tenants_of_a_flow_have_one_turn(void **state) {
    (void)state;
    assert_in_range(place_of_the_light_one(true, 1), 1, 3);
}

/* ---- rows of steps ----------------------------------------------------------------------------------------------- */

typedef struct rows_seen {
    uint64_t heavy, light;                        /* job numbers */
    int32_t heavy_rows, light_rows, heavy_before; /* heavy_before: heavy's rows when light's prompt was done */
} rows_seen;

static void see_step(void *user, const rp_step *step) {
    rows_seen *seen = user;
    for (int32_t i = 0; i < step->n_parts; i++) {
        const rp_step_part *p = &step->parts[i];
        if (p->kind != RP_STEP_PREFILL) continue;
        if (p->job == seen->heavy) seen->heavy_rows += p->n_rows;
        if (p->job == seen->light) seen->light_rows += p->n_rows, seen->heavy_before = seen->heavy_rows;
    }
}

static void a_long_prompt_does_not_hold_up_another_tenants_short_one(void **state) {
    (void)state;
    rows_seen seen = {0};
    rp_engine_options o = rp_engine_options_defaults();
    o.max_sequences = 4;
    o.chunk_tokens = 16;
    o.on_step = see_step;
    o.step_user = &seen;
    rp_engine *e = open_engine(&o);
    rp_request hold = tenant_request(NULL, "gate", 2);
    gate g;
    gate_close(&g, e, &hold);
    char *long_text = calls_text(1, 120), *short_text = calls_text(2, 8);
    rp_request heavy = tenant_request("heavy", long_text, 1), light = tenant_request("light", short_text, 1);
    rp_job *calls[2] = {calls_submit(e, &heavy), calls_submit(e, &light)};
    seen.heavy = rp_job_number(calls[0]);
    seen.light = rp_job_number(calls[1]);
    gate_end(&g);
    for (int i = 0; i < 2; i++) calls_end(calls[i]);
    rp_engine_free(e);
    assert_true(seen.light_rows > 16 && seen.heavy_rows > 200);
    assert_true(seen.heavy_before <= seen.light_rows + 2 * 16); /* as many rows as its own, and two steps */
    free(long_text);
    free(short_text);
}

/* ---- pauses ------------------------------------------------------------------------------------------------------ */

typedef struct reader {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    rp_job *call;           /* NULL: not known yet */
    int pieces, most, wake; /* wake: paused at this piece; most: the maximum while paused */
    bool paused;
} reader;

static bool on_text(void *user, const char *text, size_t n) {
    reader *r = user;
    (void)text;
    (void)n;
    pthread_mutex_lock(&r->lock);
    while (!r->call) pthread_cond_wait(&r->changed, &r->lock);
    r->pieces++;
    if (r->pieces == r->wake) {
        r->paused = true;
        rp_job_pause(r->call);
        pthread_cond_broadcast(&r->changed);
    }
    pthread_mutex_unlock(&r->lock);
    return true;
}

static rp_job *begin_reading(rp_engine *e, reader *r, int wake) {
    rp_request q = tenant_request("reader", "once upon a time", 40);
    *r = (reader){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .wake = wake};
    q.on_text = on_text;
    q.user = r;
    rp_job *c = calls_submit(e, &q);
    pthread_mutex_lock(&r->lock);
    r->call = c;
    pthread_cond_broadcast(&r->changed);
    while (wake && !r->paused) pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
    return c;
}

static int pieces_of(reader *r) {
    pthread_mutex_lock(&r->lock);
    int n = r->pieces;
    pthread_mutex_unlock(&r->lock);
    return n;
}

static void a_paused_call_keeps_its_state_and_takes_no_place(void **state) {
    (void)state;
    rp_engine_options o = rp_engine_options_defaults();
    o.max_sequences = 1;
    rp_engine *e = open_engine(&o);
    reader plain, slow[3];
    char *whole = finish(begin_reading(e, &plain, 0));
    rp_job *paused[3];
    for (int i = 0; i < 3; i++) paused[i] = begin_reading(e, &slow[i], 3);
    for (int i = 0; i < 3; i++) { /* other jobs continue, step by step, although there is only one sequence */
        rp_request q = tenant_request("other", "something else", 30);
        calls_end(calls_submit(e, &q));
    }
    for (int i = 0; i < 3; i++) assert_in_range(pieces_of(&slow[i]), 3, 3);
    for (int i = 0; i < 3; i++) rp_job_resume(paused[i]);
    for (int i = 0; i < 3; i++) {
        char *text = finish(paused[i]);
        assert_string_equal(text, whole);
        free(text);
    }
    free(whole);
    rp_engine_free(e);
}

static void a_paused_call_can_be_cancelled_and_freed(void **state) {
    (void)state;
    rp_engine_options o = rp_engine_options_defaults();
    rp_engine *e = open_engine(&o);
    reader r;
    rp_job *c = begin_reading(e, &r, 2);
    rp_job_cancel(c);
    rp_result *result;
    rp_error err;
    assert_int_equal(rp_job_result(c, &result, &err), RP_OK);
    assert_string_equal(result->finish_reason, "cancelled");
    rp_result_free(result);
    rp_job_free(c);
    c = begin_reading(e, &r, 2);
    rp_job_free(c);
    rp_engine_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_round_gives_each_tenant_a_quantum),
        cmocka_unit_test(a_tenant_saves_nothing_while_it_is_away),
        cmocka_unit_test(shares_are_equal_in_time_not_in_requests),
        cmocka_unit_test(the_list_of_tenants_stays_short),
        cmocka_unit_test(a_light_tenant_waits_for_a_quantum_not_for_a_queue),
        cmocka_unit_test(many_tenants_of_a_flow_have_one_turn),
        cmocka_unit_test(a_long_prompt_does_not_hold_up_another_tenants_short_one),
        cmocka_unit_test(a_paused_call_keeps_its_state_and_takes_no_place),
        cmocka_unit_test(a_paused_call_can_be_cancelled_and_freed),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
