/* SPDX-License-Identifier: Apache-2.0 */
/* test_eval_score.c: the scores, distances and intervals of `reprise eval`, against values worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "eval/eval_score.h"
#include "eval/eval_setting.h"
#include "reprise_pml.h"

static double score(eval_metric metric, const char *answer, const char *accepted) {
    const char *const list[] = {"no answer at all", accepted};
    return eval_score(metric, answer, list, 2);
}

static void equal_but_for_case_space_and_point(void **state) {
    (void)state;
    assert_true(score(EVAL_EXACT, "  Onion\n soup. ", "onion soup") == 1);
    assert_true(score(EVAL_EXACT, "onion", "onion soup") == 0);
    assert_true(score(EVAL_EXACT, "", "onion") == 0);
    assert_true(score(EVAL_EXACT, "12.5", "12") == 0);
}

static void contains_whole_words(void **state) {
    (void)state;
    assert_true(score(EVAL_CONTAINS, "Ormoor: Istot.", "istot") == 1);
    assert_true(score(EVAL_CONTAINS, "Istotal", "istot") == 0);
    assert_true(score(EVAL_CONTAINS, "Mistot, Istot", "istot") == 1);
    assert_true(score(EVAL_CONTAINS, "4821", "482") == 0);
    assert_true(score(EVAL_CONTAINS, "f(a, b)", "f(a, b)") == 1);
}

static void f1_counts_words(void **state) {
    (void)state;
    /* the|cat sat down; a cat sat: articles go, 2 of 3 and 2 of 2 */
    assert_float_equal(score(EVAL_F1, "The cat sat down", "a cat sat"), 0.8, 1e-12);
    /* a word counts as often as the one that has it less */
    assert_float_equal(score(EVAL_F1, "red red red", "red"), 0.5, 1e-12);
    assert_true(score(EVAL_F1, "blue", "red") == 0);
}

static void rouge_l_wants_the_order(void **state) {
    (void)state;
    /* Lin (2004): police kill the gunman / police killed the gunman: 3 of 4 words in order */
    assert_float_equal(score(EVAL_ROUGE_L, "police kill the gunman", "police killed the gunman"), 0.75, 1e-12);
    assert_float_equal(score(EVAL_ROUGE_L, "the gunman kill police", "police killed the gunman"), 0.5, 1e-12);
}

static void divergence(void **state) {
    (void)state;
    float p[3] = {logf(0.5f), logf(0.25f), logf(0.25f)}, q[3] = {3, 3, 3}, same[3] = {1.5f, 0.5f, 0.5f};
    eval_log_softmax(q, 3);
    assert_float_equal(q[0], -log(3), 1e-6);
    /* 1/2 ln(3/2) + 1/2 ln(3/4) */
    assert_float_equal(eval_kl(p, q, 3), 0.5 * log(1.5) + 0.5 * log(0.75), 1e-6);
    eval_log_softmax(same, 3);
    assert_true(eval_kl(same, same, 3) == 0);
    assert_int_equal(eval_argmax(same, 3), 0);
    float far[2] = {1000, -1000};
    eval_log_softmax(far, 2);
    assert_true(far[0] == 0 && far[1] < -1999);
}

static void interval(void **state) {
    (void)state;
    double values[400];
    for (int i = 0; i < 400; i++) values[i] = i % 4 == 0; /* mean 1/4, standard error sqrt(3/16/400) = 0.0217 */
    eval_mean m = eval_bootstrap(values, 400, 2000, 7), again = eval_bootstrap(values, 400, 2000, 7);
    assert_true(m.mean == 0.25 && m.low == again.low && m.high == again.high);
    assert_float_equal(m.low, 0.25 - 1.96 * 0.0217, 0.008);
    assert_float_equal(m.high, 0.25 + 1.96 * 0.0217, 0.008);
    m = eval_bootstrap(values, 1, 2000, 7);
    assert_true(m.mean == 1 && m.low == 1 && m.high == 1);
    double few[] = {5, 1, 3, 2};
    assert_true(eval_median(few, 4) == 2.5 && eval_median(few, 3) == 2 && eval_median(few, 0) == 0);
}

static void settings(void **state) {
    (void)state;
    eval_setting s;
    assert_int_equal(eval_setting_parse(&s, "module+fixed+scaffold"), 0);
    assert_true(s.scope == RP_SCOPE_MODULE && s.layout == RP_LAYOUT_FIXED && s.scaffold && s.reuse == RP_REUSE_ON);
    assert_int_equal(eval_setting_parse(&s, "exact"), 0);
    assert_true(s.scope == RP_SCOPE_AS_WRITTEN && s.layout == RP_LAYOUT_AS_WRITTEN && s.reuse == RP_REUSE_EXACT &&
                !s.scaffold);
    assert_int_equal(eval_setting_parse(&s, "module+bos+link:8"), 0);
    assert_true(s.scope == RP_SCOPE_MODULE && s.anchor == RP_ANCHOR_BOS && s.quality.mode == RP_QUALITY_LINK &&
                s.quality.amount == 8);
    assert_int_equal(eval_setting_parse(&s, "exact+int8"), 0);
    assert_true(s.reuse == RP_REUSE_EXACT && s.has_kv_format && s.kv_format == RP_KV_INT8);
    assert_int_equal(eval_setting_parse(&s, "f16"), 0);
    assert_true(s.reuse == RP_REUSE_ON && s.has_kv_format && s.kv_format == RP_KV_F16);
    static const char *const plus[] = {"path+keep:25%+kvzip+", "kvzip++path+keep:25%"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(eval_setting_parse(&s, plus[i]), 0);
        assert_true(s.scope == RP_SCOPE_PATH && strcmp(s.keep, "25%") == 0 && strcmp(s.keep_method, "kvzip+") == 0);
    }
    assert_int_equal(eval_setting_parse(&s, "kvzip++"), 2);
    assert_int_equal(eval_setting_parse(&s, "kvzip+kvzip+"), 2);
    assert_int_equal(eval_setting_parse(&s, "f16+int8"), 2);
    assert_int_equal(eval_setting_parse(&s, "path+link:0"), 2);
    assert_int_equal(eval_setting_parse(&s, "link:8+blend:15"), 2);
    assert_int_equal(eval_setting_parse(&s, "path+module"), 2);
    assert_int_equal(eval_setting_parse(&s, "exact+"), 2);
    assert_int_equal(eval_setting_parse(&s, ""), 2);
    assert_int_equal(eval_setting_parse(&s, "paths"), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_but_for_case_space_and_point),
        cmocka_unit_test(contains_whole_words),
        cmocka_unit_test(f1_counts_words),
        cmocka_unit_test(rouge_l_wants_the_order),
        cmocka_unit_test(divergence),
        cmocka_unit_test(interval),
        cmocka_unit_test(settings),
    };
    return cmocka_run_group_tests_name("cli/eval_score", tests, NULL, NULL);
}
