/* SPDX-License-Identifier: Apache-2.0 */
/* test_token_chunks.c: content-defined chunks: borders follow the content, not its place; sizes; the table that counts
 * chunks.
 *
 *   REPRISE_TEST_SEED=N    another sequence
 *   REPRISE_TEST_ROUNDS=N  random prompts, 200 by default
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/background/chunk_index.h"
#include "engine/reuse/token_chunks.h"
#include "support/seed.h"
#include "support/tiny_random.h"

#define VOCABULARY 1000
#define CONTROL 0
#define LINE_ENDS 40 /* ids 1 to 40 */
#define MOST 20000

static uint8_t classes[VOCABULARY];
static int32_t tokens[MOST], other[MOST], ends[MOST], other_ends[MOST];
static uint64_t seed;

static int make_classes(void **state) {
    (void)state;
    seed = test_seed("token chunks", 20261128);
    classes[CONTROL] = TOKEN_CLASS_CONTROL;
    for (int i = 1; i <= LINE_ENDS; i++) classes[i] = TOKEN_CLASS_LINE_END;
    return 0;
}

static int32_t add_text(int32_t *to, int32_t n, tiny_random *r, int32_t n_new) {
    for (int32_t i = 0; i < n_new; i++) to[n++] = 1 + (int32_t)tiny_random_below(r, VOCABULARY - 1);
    return n;
}

static int32_t add_header(int32_t *to, int32_t n) {
    to[n++] = CONTROL;
    to[n++] = VOCABULARY - 1; /* a role */
    to[n++] = 1;
    return n;
}

static void borders_rise_and_chunks_have_a_size(void **state) {
    tiny_random r = {.state = seed};
    (void)state;
    for (int round = 0; round < test_rounds(200); round++) {
        const int32_t n = add_text(tokens, add_header(tokens, 0), &r, (int32_t)tiny_random_below(&r, MOST - 4));
        const int32_t n_ends = token_chunks_cut(tokens, n, classes, ends);
        assert_true(n_ends >= 1 && ends[0] == 3); /* the header */
        for (int32_t i = 1; i < n_ends; i++) {
            const int32_t length = ends[i] - ends[i - 1];
            assert_in_range(length, TOKEN_CHUNK_LEAST, TOKEN_CHUNK_MOST);
            if (length < TOKEN_CHUNK_LONG) assert_int_equal(classes[tokens[ends[i] - 1]], TOKEN_CLASS_LINE_END);
        }
        assert_true(n - ends[n_ends - 1] < TOKEN_CHUNK_MOST);
    }
}

/* The same text after two beginnings: but for its first chunks, it is cut at the same places. */
static void a_text_is_cut_alike_at_another_place(void **state) {
    tiny_random r = {.state = seed};
    int32_t n_all = 0, n_alike = 0;
    (void)state;
    for (int round = 0; round < test_rounds(200); round++) {
        const int32_t begin = add_text(tokens, 0, &r, (int32_t)tiny_random_below(&r, 3000)), n_text = 4000;
        const int32_t other_begin = add_text(other, 0, &r, (int32_t)tiny_random_below(&r, 3000));
        const int32_t n = add_text(tokens, begin, &r, n_text);
        memcpy(other + other_begin, tokens + begin, (size_t)n_text * sizeof(*other));
        const int32_t n_ends = token_chunks_cut(tokens, n, classes, ends);
        const int32_t n_others = token_chunks_cut(other, other_begin + n_text, classes, other_ends);
        for (int32_t i = 0, k = 0; i < n_ends; i++) {
            if (ends[i] < begin + TOKEN_CHUNK_MOST) continue;
            while (k < n_others && other_ends[k] - other_begin < ends[i] - begin) k++;
            n_all++;
            n_alike += k < n_others && other_ends[k] - other_begin == ends[i] - begin;
        }
    }
    assert_true(n_all > 0 && n_alike * 100 >= n_all * 98);
}

/* A message is cut at its two ends, whatever precedes it and however short it is, and its text in the same way
   everywhere. */
static void messages_are_cut_first(void **state) {
    tiny_random r = {.state = seed};
    (void)state;
    for (int round = 0; round < test_rounds(200); round++) {
        const int32_t n_text = 1 + (int32_t)tiny_random_below(&r, 3000);
        int32_t begin = add_header(tokens, add_text(tokens, 0, &r, (int32_t)tiny_random_below(&r, 3000)));
        int32_t n = add_text(tokens, begin, &r, n_text);
        tokens[n] = CONTROL;
        int32_t n_ends = token_chunks_cut(tokens, n + 1, classes, ends), first = 0;
        const int32_t n_alone = token_chunks_cut(tokens + begin - 3, n_text + 4, classes, other_ends);
        while (first < n_ends && ends[first] < begin) first++;
        assert_int_equal(ends[first], begin);
        assert_int_equal(ends[n_ends - 1], n);
        assert_int_equal(n_ends - first, n_alone);
        for (int32_t i = 0; i < n_alone; i++) assert_int_equal(ends[first + i] - begin, other_ends[i] - 3);
    }
}

static base_key key_of(uint32_t number) {
    base_hash h;
    base_key key;
    base_hash_init(&h, "test chunk");
    base_hash_u64(&h, number);
    base_hash_final(&h, &key);
    return key;
}

static void a_table_counts_and_forgets_the_oldest(void **state) {
    enum { FEW = 1000,
           MANY = 4 * CHUNK_INDEX_SETS * CHUNK_INDEX_WAYS };
    chunk_index *x = chunk_index_new();
    (void)state;
    assert_non_null(x);
    for (uint32_t round = 1; round <= 3; round++)
        for (uint32_t i = 0; i < FEW; i++) {
            const base_key key = key_of(i);
            assert_int_equal(chunk_index_count(x, &key), round);
        }
    for (uint32_t i = FEW; i < MANY; i++) {
        const base_key key = key_of(i);
        assert_int_equal(chunk_index_count(x, &key), 1);
    }
    uint32_t n_known = 0;
    for (uint32_t i = 0; i < FEW; i++) {
        const base_key key = key_of(i);
        n_known += chunk_index_count(x, &key) > 1;
    }
    assert_true(n_known < FEW / 10);
    chunk_index_free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(borders_rise_and_chunks_have_a_size),
        cmocka_unit_test(a_text_is_cut_alike_at_another_place),
        cmocka_unit_test(messages_are_cut_first),
        cmocka_unit_test(a_table_counts_and_forgets_the_oldest),
    };
    return cmocka_run_group_tests_name("token chunks", tests, make_classes, NULL);
}
