/* SPDX-License-Identifier: Apache-2.0 */
/* test_truncation.c: conversations that are longer than the context go on without their oldest turns: at flat memory,
 * with the bytes of a run without reuse, and mostly from the prefix cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/calls.h"
#include "support/oracle_run.h"
#include "support/shared_model.h"

#define CONTEXT 2048
#define TURNS 200 /* of more than a hundred tokens: ten contexts */
#define ANSWER 6

static rp_message conversation[2 * TURNS + 1];
static int32_t n_messages;

static void add_message(rp_role role, char *text) {
    conversation[n_messages++] = (rp_message){.role = role, .text = text, .n = strlen(text)};
}

static void clear(void) {
    for (int32_t i = 0; i < n_messages; i++) free((char *)(uintptr_t)conversation[i].text);
    n_messages = 0;
}

static rp_engine *new_engine(void) {
    rp_engine_options o = rp_engine_options_defaults();
    o.n_ctx = CONTEXT;
    o.kv_budget_bytes = column_bytes * (CONTEXT / 64) * 4;
    return open_engine(&o);
}

static rp_request request_of(bool truncates) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_messages(conversation, n_messages);
    q.max_tokens = ANSWER;
    q.ignore_eos = true;
    q.truncates = truncates;
    return q;
}

static void conversations_go_on_beyond_the_context(void **state) {
    int32_t dropped = 0, n_drops = 0, n_refused = 0;
    int64_t prompt_tokens = 0, cached_tokens = 0;
    uint64_t most_bytes[2] = {0, 0}; /* in the first quarter of the conversation, and after it */
    rp_engine *e = new_engine(), *other = new_engine();
    (void)state;
    add_message(RP_ROLE_SYSTEM, calls_text(1, 10));
    for (int turn = 0; turn < TURNS; turn++) {
        add_message(RP_ROLE_USER, calls_text(2 + turn, 12));
        rp_request q = request_of(true);
        oracle_run run, off;
        oracle_run_make(&run, e, &q);
        if (run.rc) fail_msg("turn %d: %s", turn, run.err.message);
        const rp_result *r = run.result;
        assert_true(r->prompt_tokens + ANSWER <= CONTEXT && r->prompt_tokens + r->n_tokens <= CONTEXT);
        uint64_t *most = &most_bytes[turn >= TURNS / 4];
        if (r->kv_bytes > *most) *most = r->kv_bytes;
        assert_true(r->dropped_messages >= dropped && r->dropped_messages % 2 == 0 &&
                    r->dropped_messages < n_messages - 1);
        n_drops += r->dropped_messages > dropped;
        dropped = r->dropped_messages;
        prompt_tokens += r->prompt_tokens;
        cached_tokens += r->cached_tokens;
        if (turn % 10 == 9) { /* the same bytes without anything cached */
            q.reuse = RP_REUSE_OFF;
            oracle_run_make(&off, other, &q);
            assert_int_equal(off.rc, RP_OK);
            assert_int_equal(off.result->dropped_messages, r->dropped_messages);
            assert_true(oracle_run_same(&run, &off));
            oracle_run_free(&off);
        }
        rp_request whole = request_of(false);
        rp_result *result = NULL;
        n_refused += rp_engine_run(other, &whole, &result, NULL) == RP_ERR_CONTEXT;
        rp_result_free(result);
        add_message(RP_ROLE_ASSISTANT,
                    calls_text(1000 + turn, 2)); /* not the engine's own answer: its text is found all the same */
        oracle_run_free(&run);
    }
    printf("%d drops, %lld of %lld prompt tokens cached, at most %llu and %llu bytes\n", n_drops,
           (long long)cached_tokens, (long long)prompt_tokens, (unsigned long long)most_bytes[0],
           (unsigned long long)most_bytes[1]);
    assert_true(4 * most_bytes[1] <= 5 * most_bytes[0] && most_bytes[1] <= 4 * column_bytes * (CONTEXT / 64));
    assert_true(n_refused > TURNS / 2 && dropped > TURNS);
    assert_true(n_drops <= TURNS / 3);              /* a quarter of the context at a time: several turns */
    assert_true(2 * cached_tokens > prompt_tokens); /* between two drops only the last turn is new */
    clear();
    rp_engine_free(e), rp_engine_free(other);
}

static void what_cannot_be_dropped_is_refused(void **state) {
    rp_engine *e = new_engine();
    rp_result *r = NULL;
    rp_error err = {0};
    (void)state;
    add_message(RP_ROLE_SYSTEM, calls_text(1, 10));
    add_message(RP_ROLE_USER, calls_text(2, 10));
    add_message(RP_ROLE_ASSISTANT, calls_text(3, 10));
    add_message(RP_ROLE_USER, calls_text(4, 600)); /* longer than the context by itself */
    rp_request q = request_of(true);
    assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_ERR_CONTEXT);
    clear();
    add_message(RP_ROLE_SYSTEM, calls_text(1, 600));
    add_message(RP_ROLE_USER, calls_text(2, 4));
    q = request_of(true);
    assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_ERR_CONTEXT);
    clear();
    add_message(RP_ROLE_USER, calls_text(2, 10)); /* short ones stay whole */
    add_message(RP_ROLE_ASSISTANT, calls_text(3, 10));
    add_message(RP_ROLE_USER, calls_text(4, 10));
    q = request_of(true);
    assert_int_equal(rp_engine_run(e, &q, &r, &err), RP_OK);
    assert_int_equal(r->dropped_messages, 0);
    rp_result_free(r);
    clear();
    rp_engine_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations_go_on_beyond_the_context),
        cmocka_unit_test(what_cannot_be_dropped_is_refused),
    };
    return cmocka_run_group_tests_name("truncation", tests, open_model, close_model);
}
