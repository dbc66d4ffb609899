/* SPDX-License-Identifier: Apache-2.0 */
/* test_answer_memory.c: answers as tokens: the memory against a naive one, its limits; and turns of a conversation,
 * which continue with the sampled tokens where a new tokenization of the text would miss.
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
#include "engine/reuse/answer_memory.h"
#include "support/tiny_model.h"
#include "support/tiny_random.h"
#include "support/experiments.h"

/* ---- the memory ---- */

#define N_KEYS (2 * ANSWER_MEMORY_ANSWERS)

static base_key key_of(uint64_t i) {
    base_key k;
    base_hash h;
    base_hash_init(&h, "test");
    base_hash_u64(&h, i);
    base_hash_final(&h, &k);
    return k;
}

static void put(answer_memory *m, uint64_t i, size_t n) {
    base_key key = key_of(i);
    int32_t *tokens = base_alloc(n * sizeof(*tokens));
    for (size_t k = 0; k < n; k++) tokens[k] = (int32_t)(i + k);
    answer_memory_put(m, &key, tokens, n);
}

/* Number of its tokens that are known; 0: none. */
static size_t known(answer_memory *m, uint64_t i) {
    base_key key = key_of(i);
    size_t n = 0;
    const int32_t *tokens = answer_memory_find(m, &key, &n);
    for (size_t k = 0; k < n; k++) assert_int_equal(tokens[k], i + k);
    return tokens ? n : 0;
}

static void what_was_used_last_is_known(void **state) {
    (void)state;
    static uint64_t used[N_KEYS]; /* when; 0: not in the memory */
    static size_t length[N_KEYS];
    tiny_random r = {20260101};
    answer_memory *m;
    assert_int_equal(answer_memory_new(&m, NULL), RP_OK);
    size_t n = 0;
    for (uint64_t t = 1; t < 40000; t++) {
        uint64_t i = tiny_random_below(&r, N_KEYS);
        if (tiny_random_below(&r, 3) == 0) {
            assert_int_equal(known(m, i), used[i] ? length[i] : 0);
            if (used[i]) used[i] = t;
            continue;
        }
        n += used[i] == 0;
        used[i] = t;
        put(m, i, length[i] = 1 + tiny_random_below(&r, 50));
        if (n <= ANSWER_MEMORY_ANSWERS) continue;
        uint64_t oldest = i;
        for (uint64_t k = 0; k < N_KEYS; k++)
            if (used[k] && used[k] < used[oldest]) oldest = k;
        used[oldest] = 0;
        n--;
    }
    assert_int_equal(n, ANSWER_MEMORY_ANSWERS);
    answer_memory_free(m);
}

static void tokens_are_bounded(void **state) {
    (void)state;
    answer_memory *m;
    assert_int_equal(answer_memory_new(&m, NULL), RP_OK);
    put(m, 1, ANSWER_MEMORY_TOKENS / 2);
    put(m, 2, ANSWER_MEMORY_TOKENS / 2);
    assert_int_equal(known(m, 1), ANSWER_MEMORY_TOKENS / 2);
    put(m, 3, 1); /* 2 is the least recently used */
    assert_true(known(m, 1) > 0 && known(m, 2) == 0 && known(m, 3) == 1);
    put(m, 3, ANSWER_MEMORY_TOKENS + 1); /* over the limit: the key has no tokens */
    assert_true(known(m, 1) > 0 && known(m, 3) == 0);
    put(m, 4, ANSWER_MEMORY_TOKENS);
    assert_true(known(m, 1) == 0 && known(m, 4) == ANSWER_MEMORY_TOKENS);
    answer_memory_free(m);
}

/* ---- turns ---- */

typedef struct turn {
    rp_model *model;
    rp_engine *engine;
    rp_message messages[3];
    rp_result *first; /* the answer to messages[0], which is messages[1] */
} turn;

static rp_request ask(const turn *t, int32_t n_messages) {
    rp_request q = rp_request_defaults();
    q.prompt = rp_prompt_messages(t->messages, n_messages);
    q.max_tokens = 24;
    q.sampling.temperature = 1;
    return q;
}

/* The tokens of the messages without a memory. *tokens: owned by the caller. */
static size_t cut(const turn *t, int32_t n, int32_t **tokens) {
    size_t n_tokens;
    rp_error err;
    if (rp_tokenize_messages(t->model, t->messages, (size_t)n, false, tokens, &n_tokens, &err))
        fail_msg("%s", err.message);
    return n_tokens;
}

static bool is_text(const turn *t, const rp_result *r) {
    size_t done = 0, n = 0;
    for (int32_t i = 0; i < r->n_tokens; i++, done += n) {
        const char *bytes = rp_token_bytes(t->model, r->tokens[i], false, &n);
        if (n == 0 || strncmp(r->text + done, bytes, n) != 0) return false;
    }
    return done > 0 && r->text[done] == '\0';
}

/* Samples answers until one matches the text of its tokens, but not the tokenization of that text. */
static void open_turn(turn *t) {
    tiny_model_shape shape = tiny_model_defaults();
    rp_engine_options o = rp_engine_options_defaults();
    rp_error err;
    shape.n_ctx = 1024;
    o.n_threads = 1;
    *t = (turn){
        .model = tiny_model_open(&shape, "chatml"),
        .messages = {{RP_ROLE_USER, "Where is it?", 12}, {.role = RP_ROLE_ASSISTANT}, {RP_ROLE_USER, "Why?", 4}},
    };
    if (rp_engine_new(&t->engine, t->model, &o, &err)) fail_msg("%s", err.message);
    for (uint64_t seed = 1; !t->first && seed < 100; seed++) {
        rp_request q = ask(t, 1);
        q.sampling.seed = seed;
        rp_result *r = tiny_model_answer(t->engine, &q);
        int32_t *first, *both;
        t->messages[1] = (rp_message){RP_ROLE_ASSISTANT, r->text, strlen(r->text)};
        size_t n = cut(t, 1, &first), m = cut(t, 2, &both);
        bool same =
            m >= n + (size_t)r->n_tokens && memcmp(both + n, r->tokens, (size_t)r->n_tokens * sizeof(*both)) == 0;
        assert_int_equal(n, r->prompt_tokens);
        rp_free(first);
        rp_free(both);
        if (is_text(t, r) && !same) t->first = r;
        else rp_result_free(r);
    }
    assert_non_null(t->first);
}

static void close_turn(turn *t) {
    rp_result_free(t->first);
    rp_engine_free(t->engine);
    rp_model_close(t->model);
}

/* The last token of an answer is sampled but, unless it ends the answer, not computed. */
static int32_t earlier_tokens(const turn *t) { return t->first->prompt_tokens + t->first->n_tokens - 1; }

static void the_next_turn_goes_on_with_the_tokens(void **state) {
    (void)state;
    turn t;
    int32_t *tokens;
    open_turn(&t);
    size_t n = cut(&t, 3, &tokens);
    rp_request q = ask(&t, 0);
    q.prompt = rp_prompt_tokens(
        tokens, n); /* the same conversation, newly tokenized: it leaves the earlier turn within its answer */
    rp_result *anew = tiny_model_answer(t.engine, &q);
    assert_true(anew->cached_tokens < earlier_tokens(&t));
    assert_true(anew->mismatch.token >= t.first->prompt_tokens);
    q = ask(&t, 3);
    rp_result *goes_on = tiny_model_answer(t.engine, &q);
    assert_true(goes_on->cached_tokens >= earlier_tokens(&t));
    /* another turn: both answers are in it as they were sampled */
    rp_message messages[5] = {
        t.messages[0],
        t.messages[1],
        t.messages[2],
        {RP_ROLE_ASSISTANT, goes_on->text, strlen(goes_on->text)},
        {RP_ROLE_USER, "Where?", 6},
    };
    q.prompt = rp_prompt_messages(messages, 5);
    rp_result *third = tiny_model_answer(t.engine, &q);
    if (is_text(&t, goes_on)) assert_true(third->cached_tokens >= goes_on->prompt_tokens + goes_on->n_tokens - 1);
    assert_true(third->cached_tokens >= earlier_tokens(&t));
    rp_result_free(third);
    rp_result_free(anew);
    rp_result_free(goes_on);
    rp_free(tokens);
    close_turn(&t);
}

/* The text is tokenized again: for reuse modes that promise it, for other tenants, and unless both text and preceding
 * tokens are identical. */
static void elsewhere_the_text_counts(void **state) {
    (void)state;
    turn t;
    int32_t *tokens;
    open_turn(&t);
    size_t n = cut(&t, 3, &tokens);
    rp_request with[5];
    for (int i = 0; i < 5; i++) with[i] = ask(&t, 3);
    with[1].reuse = RP_REUSE_OFF;
    with[2].reuse = RP_REUSE_EXACT;
    with[3].experiment = &experiment_no_prefix;
    with[4].tenant = "another";
    for (int i = 0; i < 5; i++) {
        rp_result *r = tiny_model_answer(t.engine, &with[i]), *same;
        rp_request q = with[i];
        q.prompt = rp_prompt_tokens(tokens, n);
        same = tiny_model_answer(t.engine, &q);
        bool equal = r->prompt_tokens == same->prompt_tokens && r->n_tokens == same->n_tokens &&
                     memcmp(r->tokens, same->tokens, (size_t)r->n_tokens * sizeof(*r->tokens)) == 0;
        assert_true(equal == (i > 0));
        rp_result_free(r);
        rp_result_free(same);
    }
    rp_free(tokens);
    t.messages[1].n--; /* a client that trims what it sends */
    n = cut(&t, 3, &tokens);
    rp_request q = ask(&t, 3);
    rp_result *trimmed = tiny_model_answer(t.engine, &q);
    assert_int_equal(trimmed->prompt_tokens, n);
    rp_result_free(trimmed);
    rp_free(tokens);
    close_turn(&t);
}

/* An answer whose text has names of control tokens continues with these tokens; from anybody else they are plain
   text. */
static void control_tokens_go_on_as_they_were_sampled(void **state) {
    (void)state;
    static const char *const control[] = {"<|im_end|>", "[TOOL_CALLS]", NULL};
    static const char text[] = "[TOOL_CALLS][1]";
    tiny_model_shape shape = tiny_model_defaults();
    turn t = {.messages = {{RP_ROLE_USER, "Where is it?", 12},
                           {RP_ROLE_ASSISTANT, text, sizeof(text) - 1},
                           {RP_ROLE_USER, "Why?", 4}}};
    int32_t *tokens;
    size_t n;
    shape.control = control;
    t.model = tiny_model_open(&shape, "chatml");
    assert_int_equal(rp_engine_new(&t.engine, t.model, NULL, NULL), RP_OK);
    assert_int_equal(rp_tokenize(t.model, control[1], strlen(control[1]), true, false, &tokens, &n, NULL), RP_OK);
    const rp_logit_bias bias = {tokens[0], 1000};
    rp_free(tokens);
    rp_request q = ask(&t, 1);
    q.grammar = "root ::= \"[TOOL_CALLS][1]\"";
    q.special_text = true;
    q.sampling.bias = &bias;
    q.sampling.n_bias = 1;
    t.first = tiny_model_answer(t.engine, &q);
    assert_string_equal(t.first->text, text);
    assert_int_equal(t.first->tokens[0], bias.token);
    q = ask(&t, 3);
    n = cut(&t, 3, &tokens);
    rp_free(tokens);
    rp_result *own = tiny_model_answer(t.engine, &q);
    q.tenant = "another";
    rp_result *other = tiny_model_answer(t.engine, &q);
    assert_int_equal(other->prompt_tokens, n); /* 12 characters and more */
    assert_true(own->prompt_tokens <= (int32_t)n - 11 && own->cached_tokens >= earlier_tokens(&t));
    rp_result_free(own);
    rp_result_free(other);
    close_turn(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_used_last_is_known),
        cmocka_unit_test(tokens_are_bounded),
        cmocka_unit_test(the_next_turn_goes_on_with_the_tokens),
        cmocka_unit_test(control_tokens_go_on_as_they_were_sampled),
        cmocka_unit_test(elsewhere_the_text_counts),
    };
    return cmocka_run_group_tests_name("answer memory", tests, NULL, NULL);
}
