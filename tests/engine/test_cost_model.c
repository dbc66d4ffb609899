/* SPDX-License-Identifier: Apache-2.0 */
/* test_cost_model.c: the cost model on simulated machines with known times: its predictions, and the rows that it
 * allows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <math.h>

#include "engine/core/cost_model.h"

/* Rows wait for the weights up to `read_us`; beyond, their computation is the limit. */
typedef struct machine {
    double read_us, row_us, slot_us;
    unsigned noise; /* state; 0: none */
} machine;

static double random_share(machine *m) {
    m->noise = m->noise * 1664525u + 1013904223u;
    return (m->noise >> 8) / 16777216.0;
}

static double time_of(machine *m, const cost_load *l) {
    double us = fmax(m->read_us, m->row_us * l->rows) + m->slot_us * l->slots;
    if (m->noise == 0) return us;
    double share = random_share(m);
    return us * (1 + 0.1 * share) * (random_share(m) < 0.02 ? 8 : 1); /* with occasional other processes */
}

static cost_load load_of(int32_t rows, double slots) { return (cost_load){rows, rows * slots, slots}; }

static void run(cost_model *c, machine *m, int32_t rows, double slots) {
    cost_load l = load_of(rows, slots);
    cost_model_learn(c, &l, time_of(m, &l));
}

static double predict(const cost_model *c, int32_t rows, double slots) {
    cost_load l = load_of(rows, slots);
    return cost_model_predict(c, &l);
}

/* Answers of `rows` rows with an endless prompt, as steps.c composes them; the longest step relative to one without
 * chunks. */
static double serve(cost_model *c, machine *m, int32_t rows, int steps, int32_t *last_piece) {
    double worst = 0;
    for (int i = 0; i < steps; i++) {
        cost_load l = load_of(rows, 200.0 * rows);
        double alone = fmax(m->read_us, m->row_us * rows) + m->slot_us * l.slots;
        if (cost_model_knows(c, rows) && i % 32 != 31) {
            *last_piece = cost_model_overhead(c, &l, 500, 256, 1.75 * cost_model_predict(c, &l));
            l.rows += *last_piece;
            l.slots += 500;
        }
        double us = time_of(m, &l);
        cost_model_learn(c, &l, us);
        if (us / alone > worst) worst = us / alone;
    }
    return worst;
}

static void test_nothing_is_known(void **state) {
    (void)state;
    cost_model c;
    cost_model_init(&c);
    cost_load l = load_of(1, 100);
    assert_true(cost_model_predict(&c, &l) == 0);
    assert_false(cost_model_knows(&c, 1));
    assert_int_equal(cost_model_overhead(&c, &l, 0, 256, 100), 16);
    assert_int_equal(cost_model_overhead(&c, &l, 0, 5, 100), 5);
    assert_int_equal(cost_model_overhead(&c, &l, 0, 0, 100), 0);
}

static void test_guesses_are_cautious(void **state) {
    (void)state;
    cost_model c;
    machine m = {.read_us = 33000, .row_us = 10500};
    cost_model_init(&c);
    for (int i = 0; i < 50; i++) run(&c, &m, 1, 100);
    assert_true(fabs(predict(&c, 1, 100) / 33000 - 1) < 0.01);
    assert_true(predict(&c, 256, 100) >= 256 * 10500); /* not: like one row */
    assert_false(cost_model_knows(&c, 4));
    for (int i = 0; i < 50; i++) run(&c, &m, 256, 100);
    for (int rows = 1; rows < 256; rows++) {
        assert_true(predict(&c, rows, 100) <= predict(&c, rows + 1, 100));
        assert_true(predict(&c, rows, 100) >= 0.95 * fmax(33000, 10500 * rows));
    }
}

/* A prompt besides one answer soon gets the time spent on loading the weights, without a noticeably longer step. */
static void test_rooms_of_machines(void **state) {
    (void)state;
    static const struct {
        machine m;
        int32_t rows, least, most;
    } cases[] = {
        {{.read_us = 33000, .row_us = 10500, .slot_us = 1}, 1, 4, 4}, /* two cores, 1.1 G weights of 8 bits */
        {{.read_us = 33000, .row_us = 10500, .slot_us = 1}, 3, 2, 2},
        {{.read_us = 20000, .row_us = 300, .slot_us = 1}, 4, 90, 120}, /* many cores: memory is the limit for long */
        {{.read_us = 50, .row_us = 50, .slot_us = 0}, 8, 4, 6},        /* no loading of weights */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cost_model c;
        machine m = cases[i].m;
        int32_t piece = 0;
        cost_model_init(&c);
        run(&c, &m, 79, 79); /* a prompt before any answer */
        double worst = serve(&c, &m, cases[i].rows, 400, &piece);
        if (piece < cases[i].least || piece > cases[i].most || worst > 2)
            fail_msg("case %zu: pieces of %d rows, not %d to %d; longest step %.2f times one without", i, (int)piece,
                     (int)cases[i].least, (int)cases[i].most, worst);
    }
}

static void test_noise(void **state) {
    (void)state;
    cost_model c;
    machine m = {.read_us = 33000, .row_us = 10500, .slot_us = 1, .noise = 7};
    int32_t piece = 0;
    cost_model_init(&c);
    serve(&c, &m, 1, 1000, &piece);
    assert_in_range(piece, 3, 6);
}

/* All steps become slower: the chunk size does not change. */
static void test_a_slower_machine(void **state) {
    (void)state;
    cost_model c;
    machine m = {.read_us = 33000, .row_us = 10500, .slot_us = 1},
            slow = {.read_us = 99000, .row_us = 31500, .slot_us = 3};
    int32_t piece = 0;
    cost_model_init(&c);
    serve(&c, &m, 1, 200, &piece);
    serve(&c, &slow, 1, 100, &piece);
    assert_in_range(piece, 3, 5);
    assert_true(fabs(predict(&c, 1, 200) / 99200 - 1) < 0.2);
    serve(&c, &m, 1, 100, &piece);
    assert_in_range(piece, 3, 5);
}

/* For ten seconds another process takes most of the machine: what eviction compares hardly changes; and a machine that
 * stays slower becomes the usual one. */
static void test_usual_speed(void **state) {
    (void)state;
    cost_model c;
    machine m = {.read_us = 330, .row_us = 105, .slot_us = 0.01},
            slow = {.read_us = 9900, .row_us = 3150, .slot_us = 0.3};
    int32_t piece = 0;
    cost_model_init(&c);
    assert_int_equal(cost_model_usual_us(&c, 256, 0), 0);
    serve(&c, &m, 1, 500, &piece);
    const double before = (double)cost_model_usual_us(&c, 256, 0), longer = (double)cost_model_usual_us(&c, 256, 1000);
    const double now = (double)cost_model_tokens_us(&c, 256, 0);
    assert_true(before > 0);
    assert_true(longer > before);
    serve(&c, &slow, 1, 100, &piece);
    assert_true((double)cost_model_tokens_us(&c, 256, 0) > 10 * now);
    assert_true((double)cost_model_usual_us(&c, 256, 0) < 2 * before);
    serve(&c, &slow, 1, 10000, &piece);
    assert_true(fabs((double)cost_model_usual_us(&c, 256, 0) / (double)cost_model_tokens_us(&c, 256, 0) - 1) < 0.2);
}

/* Hundreds of thousands of steps of all sizes, with the process suspended for ten minutes now and then: the fit does
 * not drift. */
static void test_hours_and_stops(void **state) {
    (void)state;
    cost_model c;
    machine m = {.read_us = 330, .row_us = 105, .slot_us = 0.01, .noise = 11};
    cost_model_init(&c);
    for (int i = 0; i < 300000; i++) {
        cost_load l = load_of(1 + (int32_t)(40 * random_share(&m) * random_share(&m)), 4000 * random_share(&m));
        cost_model_learn(&c, &l, i % 20000 == 19999 ? 600e6 : time_of(&m, &l));
    }
    m.noise = 0;
    for (int32_t rows = 1; rows <= 32; rows++) {
        cost_load l = load_of(rows, 1000);
        double ratio = predict(&c, rows, 1000) / time_of(&m, &l);
        if (ratio < 0.7 || ratio > 1.5) fail_msg("%d rows: predicted %.2f times what they take", (int)rows, ratio);
    }
    assert_in_range((int)(c.speed * 100), 25, 400);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_known),
        cmocka_unit_test(test_guesses_are_cautious),
        cmocka_unit_test(test_rooms_of_machines),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_a_slower_machine),
        cmocka_unit_test(test_usual_speed),
        cmocka_unit_test(test_hours_and_stops),
    };
    return cmocka_run_group_tests_name("cost_model", tests, NULL, NULL);
}
