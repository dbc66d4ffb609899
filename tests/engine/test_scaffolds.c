/* SPDX-License-Identifier: Apache-2.0 */
/* test_scaffolds.c: learned scaffolds: the first prompt with a combination of modules gets the bytes of reuse, the next
 * one those of exact; learned spans stay within their budget, belong to one tenant, and are evicted when unused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/background/scaffolds.h"
#include "support/oracle_run.h"
#include "support/shared_model.h"
#include "reprise_store.h"
#include "support/experiments.h"
#include "reprise_test.h"

#define WORDS 70 /* of a module */
#define ANSWER 4

static char schema[16384];
static const int32_t answer[ANSWER] = {20, 31, 42, 53};

static void add_module(char **end, char name) {
    *end += sprintf(*end, "<module name=\"%c\">", name);
    for (int i = 0; i < WORDS; i++)
        *end += sprintf(*end, "%c%c ", 'a' + (name * 7 + i * 5) % 26, 'a' + (i * name) % 26);
    if (name == 'c') *end += sprintf(*end, "for <param name=\"who\" len=\"8\"/> only");
    *end += sprintf(*end, "</module>");
}

static int open_model_and_schema(void **state) {
    char *end = schema + sprintf(schema, "<schema name=\"s\"><system>Read on.");
    for (char name = 'a'; name <= 'd'; name++) add_module(&end, name);
    sprintf(end, "</system></schema>");
    return open_model(state);
}

static rp_engine *new_engine(rp_kv_format format, uint64_t scaffold_bytes) {
    rp_engine_options o = rp_engine_options_defaults();
    o.kv_format = format;
    o.scaffold_bytes = scaffold_bytes;
    o.n_threads = 1;
    rp_engine *e = open_engine(&o);
    load_schema(e, schema, "s");
    return e;
}

static rp_request request(const char *prompt, rp_quality_mode mode) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_pml(prompt);
    q.quality = (rp_quality){mode, 0};
    static const rp_request_experiment forced = {.struct_size = sizeof(forced), .forced = answer, .n_forced = ANSWER};
    q.experiment = &forced;
    return q;
}

#define PROMPT(modules, question) "<prompt schema=\"s\">" modules "<user>" question "</user></prompt>"
#define C "<c who=\"you\"/>"

/* The quality of a request: RP_QUALITY_REUSE (with the reason), or _SCAFFOLD. */
static rp_quality_mode ask(rp_engine *e, const char *prompt, const char *tenant) {
    rp_request q = request(prompt, RP_QUALITY_SCAFFOLD);
    q.tenant = tenant;
    rp_result *r = tiny_model_answer(e, &q);
    rp_quality_mode used = r->quality.used.mode;
    assert_int_equal(r->quality.asked.mode, RP_QUALITY_SCAFFOLD);
    assert_string_equal(r->quality.reason, used == RP_QUALITY_SCAFFOLD ? "" : "new");
    assert_int_equal(r->quality.recomputed_tokens, 0);
    assert_int_equal(r->bytes_copied, 0);
    rp_result_free(r);
    return used;
}

static rp_scaffold_stats stats_of(rp_engine *e) {
    rp_scaffold_stats s = {.struct_size = sizeof(s)};
    rp_engine_scaffold_stats(e, &s);
    assert_true(s.bytes <= s.budget_bytes);
    assert_true(s.prefilled + s.pending <= s.known);
    return s;
}

/* The run of a prompt in an engine of its own. */
static void run_alone(oracle_run *run, rp_kv_format format, const char *prompt, rp_quality_mode mode) {
    rp_engine *e = new_engine(format, 0);
    rp_request q = request(prompt, mode);
    oracle_run_make(run, e, &q);
    rp_engine_free(e);
}

static void the_next_prompt_is_exact(void **state) {
    (void)state;
    static const char *const prompts[] = {
        PROMPT("<a/><b/>", "What?"), PROMPT("<b/><a/>", "What?"),
        PROMPT("<a/>" C, "Who?"), PROMPT("<a/>Between.<d/>" C "<b/>", "Which?"),
        PROMPT("<d/>", ""), "<prompt schema=\"s\"><b/>" C "</prompt>"}; /* it ends with a module */
    for (int format = RP_KV_F16; format <= RP_KV_INT8; format++)
        for (size_t i = 0; i < sizeof(prompts) / sizeof(*prompts); i++) {
            rp_engine *e = new_engine((rp_kv_format)format, 0);
            rp_request q = request(prompts[i], RP_QUALITY_SCAFFOLD);
            oracle_run reuse, exact, first, second;
            run_alone(&reuse, (rp_kv_format)format, prompts[i], RP_QUALITY_REUSE);
            run_alone(&exact, (rp_kv_format)format, prompts[i], RP_QUALITY_EXACT);
            oracle_run_make(&first, e, &q);
            assert_true(rp_engine_drain(e, -1));
            oracle_run_make(&second, e, &q);
            assert_int_equal(reuse.rc, RP_OK);
            assert_true(oracle_run_same(&first, &reuse));
            assert_true(oracle_run_same(&second, &exact));
            assert_int_equal(first.result->quality.used.mode, RP_QUALITY_REUSE);
            assert_int_equal(second.result->quality.used.mode, RP_QUALITY_SCAFFOLD);
            assert_int_equal(second.result->bytes_copied, 0);
            for (int32_t k = 0; k < second.result->n_plan; k++) assert_true(second.result->plan[k].exact);
            oracle_run_free(&reuse);
            oracle_run_free(&exact);
            oracle_run_free(&first);
            oracle_run_free(&second);
            rp_engine_free(e);
        }
}

static void a_combination_is_its_modules_in_their_order_with_their_arguments(void **state) {
    (void)state;
    rp_engine *e = new_engine(RP_KV_F16, 0);
    assert_int_equal(ask(e, PROMPT("<a/>" C, "One."), NULL), RP_QUALITY_REUSE);
    rp_engine_drain(e, -1);
    assert_int_equal(ask(e, PROMPT("<a/>" C, "Another question."), NULL), RP_QUALITY_SCAFFOLD);
    assert_int_equal(ask(e, PROMPT(C "<a/>", "One."), NULL), RP_QUALITY_REUSE);
    assert_int_equal(ask(e, PROMPT("<a/><c who=\"me\"/>", "One."), NULL), RP_QUALITY_REUSE);
    assert_int_equal(ask(e, PROMPT("<a/>" C, "One."), "guest"), RP_QUALITY_REUSE);
    rp_engine_drain(e, -1);
    assert_int_equal(ask(e, PROMPT("<a/>" C, "One."), "guest"), RP_QUALITY_SCAFFOLD);
    rp_scaffold_stats s = stats_of(e);
    assert_int_equal(s.known, 4);
    assert_int_equal(s.prefilled, 4);
    assert_int_equal(s.hits, 2);
    assert_int_equal(s.misses, 4);
    assert_true(s.bytes > 0);
    rp_engine_free(e);
}

static void nothing_is_learned_unless_it_is_asked_for(void **state) {
    (void)state;
    rp_engine *e = new_engine(RP_KV_F16, 0);
    const rp_quality_mode modes[] = {RP_QUALITY_AS_WRITTEN, RP_QUALITY_REUSE, RP_QUALITY_EXACT};
    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        rp_request q = request(PROMPT("<a/><b/>", "What?"), modes[i]);
        rp_result_free(tiny_model_answer(e, &q));
    }
    rp_engine_info info = {.struct_size = sizeof(info)};
    rp_engine_describe(e, &info);
    assert_int_equal(info.background, 0);
    assert_int_equal(stats_of(e).known, 0);
    rp_engine_free(e);
}

static void what_is_learned_has_a_budget(void **state) {
    (void)state;
    rp_engine *none = new_engine(RP_KV_F16, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask(none, PROMPT("<a/><b/>", "What?"), NULL), RP_QUALITY_REUSE);
        rp_engine_drain(none, -1);
    }
    assert_int_equal(stats_of(none).prefilled, 0);
    rp_engine_free(none);

    rp_engine *e = new_engine(RP_KV_F16, 0);
    ask(e, PROMPT("<a/><b/>", "What?"), NULL);
    rp_engine_drain(e, -1);
    uint64_t bytes = stats_of(e).bytes; /* of one */
    rp_engine_free(e);

    e = new_engine(RP_KV_F16, bytes + bytes / 2);
    ask(e, PROMPT("<a/><b/>", "What?"), NULL);
    rp_engine_drain(e, -1);
    assert_int_equal(stats_of(e).prefilled, 1);
    assert_int_equal(ask(e, PROMPT("<d/><b/>", "What?"), NULL),
                     RP_QUALITY_REUSE); /* weight 1 does not replace weight 1 */
    rp_engine_drain(e, -1);
    assert_int_equal(stats_of(e).prefilled, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask(e, PROMPT("<d/><b/>", "What?"), NULL), i < 1 ? RP_QUALITY_REUSE : RP_QUALITY_SCAFFOLD);
        rp_engine_drain(e, -1);
        assert_int_equal(stats_of(e).prefilled, 1);
    }
    assert_int_equal(stats_of(e).dropped, 1);
    assert_int_equal(ask(e, PROMPT("<a/><b/>", "What?"), NULL), RP_QUALITY_REUSE); /* its KV was erased as well */
    rp_engine_free(e);
}

static void what_does_not_come_again_is_forgotten(void **state) {
    (void)state;
    rp_engine *e = new_engine(RP_KV_F16, 0);
    ask(e, PROMPT("<a/><b/>", "What?"), NULL);
    ask(e, PROMPT("<d/>", "What?"), NULL);
    rp_engine_drain(e, -1);
    rp_scaffold_stats before = stats_of(e);
    assert_int_equal(before.prefilled, 2);
    rp_request q = request(PROMPT("<d/>", "What?"), RP_QUALITY_SCAFFOLD);
    const rp_request_experiment forced = experiment_forced(answer, 1);
    q.experiment = &forced;
    for (int i = 0; i < 2 * (int)SCAFFOLDS_HALF_LIFE + 2; i++)
        rp_result_free(tiny_model_answer(e, &q)); /* weight <= 1/4 */
    rp_scaffold_stats after = stats_of(e);
    assert_int_equal(after.known, 1);
    assert_int_equal(after.prefilled, 1);
    assert_int_equal(after.dropped, 1);
    assert_true(after.bytes < before.bytes);
    assert_int_equal(ask(e, PROMPT("<a/><b/>", "What?"), NULL), RP_QUALITY_REUSE);
    rp_engine_free(e);
}

static void calls_are_cancelled_and_engines_end_meanwhile(void **state) {
    (void)state;
    for (int round = 0; round < 6; round++) {
        rp_engine *e = new_engine(RP_KV_F16, 0);
        rp_job *calls[4];
        static const char *const prompts[] = {PROMPT("<a/><b/>", "What?"), PROMPT("<b/><d/>", "What?"),
                                              PROMPT("<d/>" C, "What?"), PROMPT("<a/><b/>", "Who?")};
        for (int i = 0; i < 4; i++) {
            rp_request q = request(prompts[i], RP_QUALITY_SCAFFOLD);
            assert_int_equal(rp_engine_submit(e, &q, &calls[i], NULL), RP_OK);
        }
        if (round % 2) rp_job_cancel(calls[1]);
        for (int i = 0; i < 4; i++) {
            if (round != 0) rp_job_wait(calls[i], -1);
            rp_job_free(calls[i]);
        }
        if (round == 5) rp_engine_drain(e, 1);
        rp_engine_free(e);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_prompt_is_exact),
        cmocka_unit_test(a_combination_is_its_modules_in_their_order_with_their_arguments),
        cmocka_unit_test(nothing_is_learned_unless_it_is_asked_for),
        cmocka_unit_test(what_is_learned_has_a_budget),
        cmocka_unit_test(what_does_not_come_again_is_forgotten),
        cmocka_unit_test(calls_are_cancelled_and_engines_end_meanwhile),
    };
    return cmocka_run_group_tests(tests, open_model_and_schema, close_model);
}
