/* SPDX-License-Identifier: Apache-2.0 */
/* test_route_frames.c: a router's view of a node's stream: what is passed on, however the bytes are cut; marks that are
   malformed; continuations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "server/route/route_frames.h"

static const char stream[] = ": keep-alive\n\n"
                             "data: {\"a\":1}\n\n"
                             ": r 5 1 10 11\n\n"
                             "event: x\ndata: : r 9 9 9\n\n"
                             ": keep-alive\n\n"
                             "data: 3\n\n"
                             ": r 12 3 2147483647\n\n"
                             "data: [DONE]\n\n";
static const char passed[] = "data: {\"a\":1}\n\n"
                             "event: x\ndata: : r 9 9 9\n\n"
                             "data: 3\n\n";

static void is_text(const base_buffer *b, const char *text) {
    assert_true(b->len == strlen(text) && (b->len == 0 || memcmp(b->data, text, b->len) == 0));
}

/* In pieces of n bytes. */
static void feed(route_frames *f, base_buffer *out, const char *text, size_t n) {
    const size_t all = strlen(text);
    for (size_t at = 0; at < all; at += n)
        assert_true(route_frames_feed(f, text + at, all - at < n ? all - at : n, out) == RP_OK);
}

static void test_every_cut(void **state) {
    (void)state;
    for (size_t n = 1; n <= sizeof(stream); n++) {
        route_frames f;
        base_buffer out = BASE_BUFFER(4096);
        route_frames_init(&f, true);
        feed(&f, &out, stream, n);
        is_text(&out, passed);
        assert_true(f.text_bytes == 12 && f.n_frames == 3 && route_frames_n_tokens(&f) == 3);
        const int32_t tokens[] = {10, 11, INT32_MAX};
        assert_true(memcmp(f.tokens.data, tokens, sizeof(tokens)) == 0);
        assert_true(route_frames_finish(&f, &out) == RP_OK);
        assert_true(out.len == strlen(passed) + strlen("data: [DONE]\n\n"));
        route_frames_free(&f);
        base_buffer_free(&out);
    }
}

static void test_lines_of_json(void **state) {
    (void)state;
    route_frames f;
    base_buffer out = BASE_BUFFER(4096);
    route_frames_init(&f, true);
    feed(&f, &out, "{\"response\":\"a\"}\n", 3);
    is_text(&out, "");
    feed(&f, &out, ": r 1 1 7\n\n{\"response\":\"b\"}\n", 3);
    is_text(&out, "{\"response\":\"a\"}\n");
    route_frames_restart(&f, true); /* the node is lost: another one sends "b" again */
    feed(&f, &out, "{\"response\":\"B\"}\n: r 2 2 8\n\n", 3);
    is_text(&out, "{\"response\":\"a\"}\n{\"response\":\"B\"}\n");
    assert_true(f.text_bytes == 2 && f.n_frames == 2 && route_frames_n_tokens(&f) == 2);
    route_frames_free(&f);
    base_buffer_free(&out);
}

static void test_without_marks(void **state) {
    (void)state;
    route_frames f;
    base_buffer out = BASE_BUFFER(4096);
    route_frames_init(&f, false);
    feed(&f, &out, stream, 7);
    is_text(&out, stream);
    assert_true(route_frames_n_tokens(&f) == 0);
    route_frames_free(&f);
    base_buffer_free(&out);
}

static void test_malformed_marks(void **state) {
    (void)state;
    static const char *const wrong[] = {": r \n", ": r 1\n", ": r 1 x\n", ": r 1 1 -1\n", ": r 1 1 2147483648\n",
                                        ": r 1  1\n", ": r 1 1 99999999999999999999\n"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        route_frames f;
        base_buffer out = BASE_BUFFER(4096);
        route_frames_init(&f, true);
        assert_true(route_frames_feed(&f, wrong[i], strlen(wrong[i]), &out) == RP_ERR_FORMAT);
        route_frames_free(&f);
        base_buffer_free(&out);
    }
}

/* What was passed on is what the marks have counted, whatever comes after it: a continuation goes on right there. */
static void is_after_first_mark(const route_frames *f, const base_buffer *out) {
    const int32_t tokens[] = {7, 8};
    is_text(out, "data: 1\n\n");
    assert_true(f->text_bytes == 1 && f->n_frames == 1 && route_frames_n_tokens(f) == 2);
    assert_true(memcmp(f->tokens.data, tokens, sizeof(tokens)) == 0);
}

static void test_after_a_malformed_mark(void **state) {
    (void)state;
    route_frames f;
    base_buffer out = BASE_BUFFER(4096);
    static const char text[] = "data: 1\n\n: r 1 1 7 8\n\ndata: 2\n\n: r 2 2 9 10 x\n\n";
    route_frames_init(&f, true);
    assert_true(route_frames_feed(&f, text, sizeof(text) - 1, &out) == RP_ERR_FORMAT);
    is_after_first_mark(&f, &out);
    route_frames_restart(&f, true);
    feed(&f, &out, "data: 2\n\n: r 2 2 9\n\n", 5);
    is_text(&out, "data: 1\n\ndata: 2\n\n");
    assert_true(f.text_bytes == 2 && f.n_frames == 2 && route_frames_n_tokens(&f) == 3);
    route_frames_free(&f);
    base_buffer_free(&out);
}

/* The frames of a mark do not fit into the memory that there is: the mark does not count either. */
static void test_after_a_failed_append(void **state) {
    (void)state;
    route_frames f;
    base_buffer out = BASE_BUFFER(16);
    static const char text[] = "data: 1\n\n: r 1 1 7 8\n\ndata: more than sixteen bytes\n\n: r 9 2 9\n\n";
    route_frames_init(&f, true);
    assert_true(route_frames_feed(&f, text, sizeof(text) - 1, &out) == RP_ERR_LIMIT);
    is_after_first_mark(&f, &out);
    route_frames_free(&f);
    base_buffer_free(&out);
}

static void test_comments_are_no_bytes(void **state) {
    (void)state;
    route_frames f;
    base_buffer out = BASE_BUFFER(4096);
    route_frames_init(&f, true);
    feed(&f, &out, ": keep-alive\n\n: keep-alive\n\n", 4);
    is_text(&out, "");
    assert_true(route_frames_finish(&f, &out) == RP_OK);
    is_text(&out, "");
    route_frames_free(&f);
    base_buffer_free(&out);
}

static void test_limits(void **state) {
    (void)state;
    route_frames f;
    base_buffer out = BASE_BUFFER(16);
    static char piece[1 << 20];
    int rc = RP_OK;
    memset(piece, 'x', sizeof(piece));
    route_frames_init(&f, true);
    for (size_t n = 0; n <= ROUTE_PENDING_BYTES && !rc; n += sizeof(piece))
        rc = route_frames_feed(&f, piece, sizeof(piece), &out);
    assert_true(rc == RP_ERR_LIMIT && out.len == 0);
    route_frames_free(&f);
    route_frames_init(&f, true);
    assert_true(route_frames_feed(&f, "data: more than sixteen bytes\n\n: r 1 1 1\n\n", 43, &out) == RP_ERR_LIMIT);
    route_frames_free(&f);
    base_buffer_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_lines_of_json),
        cmocka_unit_test(test_without_marks),
        cmocka_unit_test(test_malformed_marks),
        cmocka_unit_test(test_after_a_malformed_mark),
        cmocka_unit_test(test_after_a_failed_append),
        cmocka_unit_test(test_comments_are_no_bytes),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
