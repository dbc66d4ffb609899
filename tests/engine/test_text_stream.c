/* SPDX-License-Identifier: Apache-2.0 */
/* test_text_stream.c: stop strings across every token border, the bytes held back and their release, whole characters.
 * */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/text.h"
#include "sampling/text_stream.h"
#include "support/oracle_run.h"
#include "support/seed.h"
#include "support/tiny_random.h"

#define MOST_BYTES 512

static uint64_t seed;

/* ---- the slow version: the first position where a stop string is complete, the longest that ends there ---- */

static bool ends_with(const char *text, size_t n, const char *tail, size_t n_tail) {
    return n >= n_tail && memcmp(text + n - n_tail, tail, n_tail) == 0;
}

/* Remaining bytes of the text; *at_stop. */
static size_t slow_end(const char *text, size_t n, const char *const *stops, int32_t n_stops, bool *at_stop) {
    *at_stop = false;
    for (size_t end = 1; end <= n; end++) {
        size_t longest = 0;
        for (int32_t i = 0; i < n_stops; i++)
            if (ends_with(text, end, stops[i], strlen(stops[i]))) longest = BASE_MAX(longest, strlen(stops[i]));
        if (longest == 0) continue;
        *at_stop = true;
        return end - longest;
    }
    return n;
}

/* Number of bytes at the end that may begin a stop string. */
static size_t slow_held(const char *text, size_t n, const char *const *stops, int32_t n_stops) {
    size_t held = 0;
    for (int32_t i = 0; i < n_stops; i++)
        for (size_t k = 1; k < strlen(stops[i]); k++)
            if (ends_with(text, n, stops[i], k)) held = BASE_MAX(held, k);
    return held;
}

/* ---- a stream and its listener ---- */

typedef struct listener {
    text_stream stream;
    char seen[MOST_BYTES];
    size_t n_seen;
    int pieces, stop_at; /* returns false at this piece; 0: never */
} listener;

static bool on_text(void *user, const char *text, size_t n) {
    listener *l = user;
    assert_true(n > 0 && l->n_seen + n < sizeof l->seen);
    assert_int_equal(strlen(text), n);
    for (size_t i = 0; i < n;) {
        int length = base_utf8_length((const unsigned char *)text + i, n - i);
        assert_true(length > 0);
        i += (size_t)length;
    }
    memcpy(l->seen + l->n_seen, text, n);
    l->n_seen += n;
    return ++l->pieces != l->stop_at;
}

static void listener_open(listener *l, const char *const *stops, int32_t n_stops) {
    *l = (listener){.stream = {.text = BASE_BUFFER(MOST_BYTES), .on_text = on_text}};
    l->stream.user = l;
    assert_int_equal(stop_matcher_open(&l->stream.stops, stops, n_stops, NULL), RP_OK);
}

static void add(listener *l, const char *bytes, size_t n) {
    if (!l->stream.stop && !l->stream.cancelled) assert_int_equal(text_stream_add(&l->stream, bytes, n, NULL), RP_OK);
}

/* Ends the text and checks the result. */
static void check_end(listener *l, const char *expected, size_t n, bool at_stop) {
    text_stream_end(&l->stream);
    if (l->stream.text.len != n || (n > 0 && memcmp(l->stream.text.data, expected, n) != 0) ||
        (l->stream.stop != NULL) != at_stop)
        fail_msg("'%.*s', at a stop: %d; should be '%.*s', %d", (int)l->stream.text.len, l->stream.text.data,
                 l->stream.stop != NULL, (int)n, expected, at_stop);
    assert_int_equal(l->n_seen, n);
    assert_memory_equal(l->seen, expected, n);
    text_stream_close(&l->stream);
}

/* ---- tests ---- */

static const char *const tricky[][4] = {
    /* text, stop strings */
    {"Hello, world", ", w", NULL, NULL},
    {"Hello, world", "world", NULL, NULL},
    {"Hello, world", "Hello", NULL, NULL},
    {"Hello, world", "worlds", "H e", NULL},
    {"aaaab", "aab", NULL, NULL},
    {"abababac", "ababac", NULL, NULL},
    {"xabcdx", "abcd", "bc", NULL},
    {"xabcdx", "abcd", "bcd", "cd"},
    {"the end\n\nUser: hi", "\nUser:", "\n\nUser:", NULL},
    {"un \xc3\xa9t\xc3\xa9 \xe2\x82\xac 5 \xf0\x9f\x98\x80!", "\xe2\x82\xac", NULL, NULL},
    {"un \xc3\xa9t\xc3\xa9 \xe2\x82\xac 5 \xf0\x9f\x98\x80!", "\xf0\x9f\x98\x80!", "\xe2\x82\xad", "\xc3\xaa"},
    {"x", "x", NULL, NULL},
    {"", "x", NULL, NULL},
};

/* One token, two tokens with every border, three with every two borders, one token per byte. */
static void a_stop_string_is_found_across_every_border(void **state) {
    (void)state;
    for (size_t t = 0; t < BASE_ARRAY_LEN(tricky); t++) {
        const char *text = tricky[t][0], *const *stops = tricky[t] + 1;
        int32_t n_stops = 0;
        bool at_stop;
        while (n_stops < 3 && stops[n_stops]) n_stops++;
        size_t n = strlen(text), left = slow_end(text, n, stops, n_stops, &at_stop);
        for (size_t i = 0; i <= n; i++)
            for (size_t k = i; k <= n; k++) {
                listener l;
                listener_open(&l, stops, n_stops);
                add(&l, text, i);
                add(&l, text + i, k - i);
                add(&l, text + k, n - k);
                check_end(&l, text, left, at_stop);
            }
        listener l;
        listener_open(&l, stops, n_stops);
        for (size_t i = 0; i < n; i++) add(&l, text + i, 1);
        check_end(&l, text, left, at_stop);
    }
}

static size_t random_text(tiny_random *r, char *out, size_t characters) {
    static const char *const alphabet[] = {"a", "a", "b", "\xc3\xa9", "\xf0\x9f\x98\x80"};
    size_t n = 0;
    for (size_t i = 0; i < characters; i++) {
        const char *c = alphabet[tiny_random_below(r, BASE_ARRAY_LEN(alphabet))];
        memcpy(out + n, c, strlen(c));
        n += strlen(c);
    }
    out[n] = '\0';
    return n;
}

/* The text is published at once, except a suffix that may become a stop string. */
static void no_more_is_held_back_than_must_be(void **state) {
    (void)state;
    tiny_random r = {.state = seed};
    for (int round = 0; round < 3000; round++) {
        char text[MOST_BYTES], strings[4][64];
        const char *stops[4];
        int32_t n_stops = (int32_t)tiny_random_below(&r, 5);
        size_t n = random_text(&r, text, tiny_random_below(&r, 60));
        for (int32_t i = 0; i < n_stops; i++) {
            random_text(&r, strings[i], 1 + tiny_random_below(&r, 6));
            stops[i] = strings[i];
        }
        bool at_stop;
        size_t left = slow_end(text, n, stops, n_stops, &at_stop);
        listener l;
        listener_open(&l, stops, n_stops);
        for (size_t i = 0; i < n && !l.stream.stop;) {
            size_t piece = 1 + tiny_random_below(&r, BASE_MIN(n - i, 9));
            add(&l, text + i, piece);
            i += piece;
            if (l.stream.stop) break;
            size_t whole = i - l.stream.n_pending;
            assert_int_equal(l.n_seen, whole - slow_held(text, whole, stops, n_stops));
        }
        check_end(&l, text, left, at_stop);
    }
}

static void the_end_lets_go_what_was_held_back(void **state) {
    (void)state;
    const char *const stops[] = {"STOP HERE"};
    listener l;
    listener_open(&l, stops, 1);
    add(&l, "go STOP HE", 10);
    assert_int_equal(l.n_seen, 3);
    check_end(&l, "go STOP HE", 10, false);
    listener_open(&l, stops, 1);
    add(&l, "go STOP HE", 10);
    add(&l, "N", 1);
    assert_int_equal(l.n_seen, 11);
    add(&l, "\xe2\x82", 2); /* a character cut in two by the end */
    check_end(&l, "go STOP HEN", 11, false);
}

/* The text is the published text. */
static void a_caller_who_stops_is_shown_nothing_more(void **state) {
    (void)state;
    const char *const stops[] = {"STOP"};
    listener l;
    listener_open(&l, stops, 1);
    l.stop_at = 2;
    add(&l, "one ", 4);
    add(&l, "two ST", 6);
    assert_true(l.stream.cancelled);
    check_end(&l, "one two ", 8, false);
}

/* Invalid UTF-8 becomes U+FFFD, which may be a stop string. */
static void bytes_that_are_no_text_are_replaced(void **state) {
    (void)state;
    const char *const stops[] = {"b\xef\xbf\xbd"};
    listener l;
    listener_open(&l, NULL, 0);
    add(&l, "a\xff"
            "b\xe2\x82"
            "c\xc3",
        7);
    check_end(&l, "a\xef\xbf\xbd"
                  "b\xef\xbf\xbd"
                  "c",
              9, false);
    listener_open(&l, stops, 1);
    add(&l, "a\xff"
            "b\xe2\x82"
            "c\xc3",
        7);
    check_end(&l, "a\xef\xbf\xbd", 4, true);
}

/* Stop strings within brackets are text; whether "(" begins brackets is known one character later, at "((". */
static rp_stop_verdict on_stop(void *user, const char *stop, const char *text, size_t n, size_t end) {
    const listener *l = user;
    const size_t begin = end - strlen(stop);
    int depth = 0;
    assert_memory_equal(text + begin, stop, strlen(stop));
    assert_true(l->stream.released <= begin);
    for (size_t i = 0; i < begin; i++)
        depth += text[i] == '(' && i + 1 < n && text[i + 1] == '(' ? 1 : text[i] == ')' ? -1
                                                                                        : 0;
    if (depth > 0) return RP_STOP_IS_TEXT;
    if (text[begin] != '(') return RP_STOP_COUNTS;
    if (begin + 1 == n) return RP_STOP_UNDECIDED;
    return text[begin + 1] == '(' ? RP_STOP_IS_TEXT : RP_STOP_COUNTS;
}

/* As reasoning is: the stop string after it ends the text, wherever tokens are cut, and nothing of it is shown. */
static void stop_strings_count_where_the_caller_says(void **state) {
    (void)state;
    static const struct {
        const char *text, *stops[2], *left;
    } cases[] = {
        {"((a STOP b) c STOP d", {"STOP", NULL}, "((a STOP b) c "},
        {"((aaa)aaaa", {"aa", "aaa"}, "((aaa)"},
        {"((abcabc) abc", {"abcabd", "abc"}, "((abcabc) "},
        {"((STOP", {"STOP", NULL}, "((STOP"},
        {"x((y)z(w", {"(", NULL}, "x((y)z"},
        {"x((y)z(", {"(", NULL}, "x((y)z("}, /* never decided */
        {"(STOP) (", {"(", "STOP"}, ""},
    };
    for (size_t t = 0; t < BASE_ARRAY_LEN(cases); t++) {
        const char *text = cases[t].text;
        const size_t n = strlen(text);
        for (size_t i = 0; i <= n; i++)
            for (size_t k = i; k <= n; k++) {
                listener l;
                listener_open(&l, cases[t].stops, cases[t].stops[1] ? 2 : 1);
                l.stream.on_stop = on_stop;
                add(&l, text, i);
                add(&l, text + i, k - i);
                add(&l, text + k, n - k);
                check_end(&l, cases[t].left, strlen(cases[t].left), strcmp(cases[t].left, text) != 0);
            }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_string_is_found_across_every_border),
        cmocka_unit_test(no_more_is_held_back_than_must_be),
        cmocka_unit_test(the_end_lets_go_what_was_held_back),
        cmocka_unit_test(a_caller_who_stops_is_shown_nothing_more),
        cmocka_unit_test(bytes_that_are_no_text_are_replaced),
        cmocka_unit_test(stop_strings_count_where_the_caller_says),
    };
    seed = test_seed("text_stream", 20261123);
    return cmocka_run_group_tests_name("engine/text_stream", tests, NULL, NULL);
}
