/* SPDX-License-Identifier: Apache-2.0 */
/* test_prompt_lookup.c: guesses from earlier text, and the acceptance that is learned from them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sampling/prompt_lookup.h"

static prompt_lookup opened(const int32_t *prompt, int32_t n, int32_t most) {
    prompt_lookup d = {0};
    rp_error err;
    assert_int_equal(prompt_lookup_open(&d, prompt, n, n + 64, most, &err), RP_OK);
    return d;
}

static void expect_guess(prompt_lookup *d, int32_t room, int32_t n, const int32_t *tokens) {
    prompt_lookup_guess(d, room);
    assert_int_equal(d->n_guessed, n);
    assert_int_equal(d->n_tokens, 0); /* the caller decides */
    if (n > 0) assert_memory_equal(d->tokens, tokens, sizeof(*tokens) * (size_t)n);
}

static void the_latest_match_of_three_goes_before_one_of_two(void **state) {
    static const int32_t three[] = {1, 2, 3, 10, 11, 12, 9, 2, 3, 20, 21, 1, 2, 3};
    static const int32_t two[] = {1, 2, 3, 10, 7, 2, 3, 20, 21, 22, 5, 2, 3};
    static const int32_t none[] = {1, 2, 3, 4, 5, 3};
    (void)state;
    prompt_lookup d = opened(three, 14, 4);
    expect_guess(&d, 15, 4, (int32_t[]){10, 11, 12, 9});
    assert_int_equal(d.matched, 3);
    expect_guess(&d, 2, 2, (int32_t[]){10, 11});
    expect_guess(&d, 0, 0, NULL);
    prompt_lookup_close(&d);
    d = opened(two, 13, 15);
    expect_guess(&d, 15, 6, (int32_t[]){20, 21, 22, 5, 2, 3}); /* up to the end of the text */
    assert_int_equal(d.matched, 2);
    prompt_lookup_close(&d);
    d = opened(none, 6, 15);
    expect_guess(&d, 15, 0, NULL);
    assert_true(prompt_lookup_rate(&d) == 0);
    prompt_lookup_close(&d);
}

/* One token of an answer, with `drafted` tokens of the guess in its step. */
static void answer(prompt_lookup *d, int32_t drafted, const int32_t *right, int32_t n_right, int32_t next) {
    prompt_lookup_guess(d, 15);
    d->n_tokens = drafted;
    for (int32_t i = 0; i < n_right; i++) prompt_lookup_accept(d, right[i]);
    prompt_lookup_accept(d, next);
    prompt_lookup_learn(d, n_right, next);
}

/* A text that repeats itself, and one whose words are continued in ever new ways; nothing is drafted. */
static void acceptance_is_learned_without_drafts(void **state) {
    int32_t prompt[96];
    (void)state;
    for (int32_t i = 0; i < 96; i++) prompt[i] = i % 8;
    prompt_lookup d = opened(prompt, 96, 15);
    prompt_lookup_guess(&d, 15);
    const double first = prompt_lookup_rate(&d);
    assert_true(first > 0.2 && first < 0.8);
    for (int32_t i = 0; i < 20; i++) answer(&d, 0, NULL, 0, (96 + i) % 8);
    prompt_lookup_guess(&d, 15);
    assert_true(prompt_lookup_rate(&d) > 0.9);
    for (int32_t i = 0; i < 3; i++) { /* 0 1 2 100, 0 1 2 101, ..: the guess after 0 1 2 is wrong each time */
        for (int32_t k = 0; k < 12; k++) answer(&d, 0, NULL, 0, k % 4 < 3 ? k % 4 : 100 + 12 * i + k);
    }
    answer(&d, 0, NULL, 0, 0);
    answer(&d, 0, NULL, 0, 1);
    answer(&d, 0, NULL, 0, 2);
    prompt_lookup_guess(&d, 15);
    assert_int_equal(d.matched, 3);
    assert_true(prompt_lookup_rate(&d) < 0.75);
    prompt_lookup_close(&d);
}

static void drafts_grow_while_they_are_right(void **state) {
    int32_t prompt[64];
    (void)state;
    for (int32_t i = 0; i < 64; i++) prompt[i] = i % 16;
    prompt_lookup d = opened(prompt, 64, 8);
    prompt_lookup_guess(&d, 15);
    assert_int_equal(d.n_guessed, 8);
    d.n_tokens = 8;
    prompt_lookup_learn(&d, 2, 99); /* the third was wrong */
    assert_int_equal(d.length, 3);
    d.n_tokens = 3;
    prompt_lookup_learn(&d, 3, 99);
    assert_int_equal(d.length, 6);
    d.n_tokens = 6;
    prompt_lookup_learn(&d, 6, 99);
    assert_int_equal(d.length, 8); /* the request's limit */
    prompt_lookup_close(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_latest_match_of_three_goes_before_one_of_two),
        cmocka_unit_test(acceptance_is_learned_without_drafts),
        cmocka_unit_test(drafts_grow_while_they_are_right),
    };
    return cmocka_run_group_tests_name("prompt lookup", tests, NULL, NULL);
}
