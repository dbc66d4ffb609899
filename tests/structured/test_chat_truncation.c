/* SPDX-License-Identifier: Apache-2.0 */
/* test_chat_truncation.c: which turns are left out, against a search through all of them; and that they stay left out
   as a conversation grows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "base/hash.h"
#include "structured/chat_truncation.h"
#include "support/seed.h"

#define MOST 60

static uint32_t draw(uint64_t *r) { return (uint32_t)(base_mix64((*r)++) >> 32); }

static void an_answer_gets_a_quarter_at_most(void **state) {
    (void)state;
    assert_int_equal(chat_excess(900, 1000, 100), 0);
    assert_int_equal(chat_excess(901, 1000, 100), 1);
    assert_int_equal(chat_excess(751, 1000, 5000), 1); /* 250 for the answer */
    assert_int_equal(chat_excess(999, 1000, 0), 0);    /* one token at least */
    assert_int_equal(chat_excess(1, 1, 10), 0);
}

static void system_messages_lead(void **state) {
    (void)state;
    const rp_message all[] = {
        {RP_ROLE_SYSTEM, "", 0}, {RP_ROLE_SYSTEM, "", 0}, {RP_ROLE_USER, "", 0}, {RP_ROLE_SYSTEM, "", 0}};
    assert_int_equal(chat_count_leading_systems(all, 4), 2);
    assert_int_equal(chat_count_leading_systems(all, 1), 1);
    assert_int_equal(chat_count_leading_systems(all + 2, 2), 0);
}

/* The definition: whole quarters of the context, then the first message of the user; the last one if none is late
   enough. */
static size_t slow_first_kept(const rp_message *messages, size_t n, const size_t *ends, size_t first, int64_t excess,
                              int32_t n_ctx) {
    int64_t drop = 0, last = 0;
    while (drop < excess) drop += BASE_MAX(n_ctx / 4, 1);
    for (size_t i = n; i-- > first + 1;) {
        if (messages[i].role != RP_ROLE_USER) continue;
        const int64_t dropped = (int64_t)(ends[i - 1] - (first > 0 ? ends[first - 1] : 0));
        if (last == 0 || dropped >= drop) last = (int64_t)i;
    }
    return (size_t)last;
}

static void whole_pieces_are_dropped(void **state) {
    (void)state;
    uint64_t r = test_seed("chat truncation", 48);
    for (int round = 0; round < test_rounds(3000); round++) {
        rp_message messages[MOST];
        size_t ends[MOST], end = draw(&r) % 20;
        const size_t n = 1 + draw(&r) % MOST;
        const int32_t n_ctx = (int32_t)(1 + draw(&r) % 500);
        for (size_t i = 0; i < n; i++) {
            messages[i] = (rp_message){(rp_role)(draw(&r) % RP_N_ROLES), "", 0};
            ends[i] = end += draw(&r) % 40;
        }
        const size_t first = chat_count_leading_systems(messages, n);
        const int64_t excess = 1 + draw(&r) % 600;
        assert_int_equal(chat_first_kept(messages, n, ends, first, excess, n_ctx),
                         slow_first_kept(messages, n, ends, first, excess, n_ctx));
    }
}

/* Of a conversation that grows by 10 tokens a message in a context of 400, the first kept message moves once in a
   quarter of it. */
static void turns_stay_dropped(void **state) {
    (void)state;
    rp_message messages[MOST];
    size_t ends[MOST], last = 0;
    int moves = 0;
    for (size_t i = 0; i < MOST; i++) {
        messages[i] = (rp_message){i % 2 ? RP_ROLE_ASSISTANT : RP_ROLE_USER, "", 0};
        ends[i] = 10 * (i + 1);
    }
    for (size_t n = 1; n <= MOST; n += 2) {
        const int64_t excess = chat_excess((int64_t)ends[n - 1], 400, 50);
        const size_t kept = excess > 0 ? chat_first_kept(messages, n, ends, 0, excess, 400) : 0;
        assert_true(kept >= last);
        assert_true(excess <= 0 || (int64_t)(ends[n - 1] - ends[kept - 1]) <= 350);
        moves += kept > last;
        last = kept;
    }
    assert_int_equal(moves, 3); /* 250 tokens too many: 100, 200, 300 are dropped */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_gets_a_quarter_at_most),
        cmocka_unit_test(system_messages_lead),
        cmocka_unit_test(whole_pieces_are_dropped),
        cmocka_unit_test(turns_stay_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
