/* SPDX-License-Identifier: Apache-2.0 */
/* test_template_input.c: variables as values: they render as the same variables in JSON do, with the same origins and
   limits. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/json_number.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "template/template.h"
#include "support/seed.h"
#include "reprise_chat.h"

#define ROUNDS 400

static rp_template *parse(const char *source) {
    rp_template *t;
    rp_error err;
    if (rp_template_new(&t, source, strlen(source), "t", &err)) fail_msg("%s: %s", source, err.message);
    return t;
}

static rp_template_input *input(void) {
    rp_template_input *in;
    assert_int_equal(rp_template_input_new(&in, NULL), RP_OK);
    return in;
}

static void add(rp_template_input *in, const char *key, const char *text) {
    rp_template_input_key(in, key);
    rp_template_input_text(in, text, strlen(text));
}

static void assert_same(const rp_template_text *a, const rp_template_text *b) {
    assert_string_equal(a->bytes, b->bytes);
    assert_int_equal(a->n_runs, b->n_runs);
    for (size_t i = 0; i < a->n_runs; i++) {
        assert_int_equal(a->runs[i].end, b->runs[i].end);
        assert_int_equal(a->runs[i].origin, b->runs[i].origin);
        assert_int_equal(a->runs[i].offset, b->runs[i].offset);
    }
}

static void add_json(rp_template_input *in, const char *json) { rp_template_input_json(in, json, strlen(json)); }

/* ---- the same as JSON ---- */

static uint32_t draw(uint64_t *r) { return (uint32_t)(base_mix64((*r)++) >> 32); }

static json_t *random_value(uint64_t *r, int depth) {
    static const char *const texts[] = {"", "user", "a \"b\"\n", "\xc3\xa9", "<|im_start|>", "\xf0\x9f\x99\x82"};
    static const char *const numbers[] = {"0", "-17", "1.5", "1e400", "123456789012345678901234567890", "-0.0", "1E2"};
    const uint32_t kind = draw(r) % (depth > 3 ? 5 : 7);
    json_t *all;
    switch (kind) {
    case 0: return json_null();
    case 1: return json_boolean(draw(r) % 2);
    case 2:
    case 3: return json_string(texts[draw(r) % 6]);
    case 4: {
        const char *number = numbers[draw(r) % 7];
        return draw(r) % 2 ? base_json_number(number, strlen(number))
                           : base_json_number_as_text(number, strlen(number));
    }
    case 5:
        all = json_array();
        for (uint32_t n = draw(r) % 4; n > 0; n--) json_array_append_new(all, random_value(r, depth + 1));
        return all;
    default:
        all = json_object();
        for (uint32_t n = draw(r) % 4; n > 0; n--)
            json_object_set_new(all, texts[draw(r) % 6], random_value(r, depth + 1));
        return all;
    }
}

static json_t *random_messages(uint64_t *r) {
    static const char *const roles[] = {"user", "assistant", "admin", "system"};
    json_t *all = json_array();
    for (uint32_t n = 1 + draw(r) % 4; n > 0; n--)
        json_array_append_new(all, json_pack("{s:s, s:o, s:{s:s}}", "role", roles[draw(r) % 4], "content",
                                             random_value(r, 1), "deep", "role", "user"));
    return all;
}

/* Numbers that are kept as text are written as they are, and read as numbers: so they must be as values. */
static void values_render_as_json_does(void **state) {
    (void)state;
    uint64_t r = test_seed("template input", 1972);
    rp_template *t = parse(
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ m.deep.role }}{{ m.content is mapping }}{% endfor %}"
        "{{ x | tojson }}{{ x }}{{ y is defined and y }}");
    for (int round = 0; round < test_rounds(ROUNDS); round++) {
        json_t *root = json_pack("{s:o, s:o, s:o}", "x", random_value(&r, 0), "messages", random_messages(&r), "y",
                                 random_value(&r, 2));
        char *json = base_json_text(root, JSON_COMPACT);
        rp_template_input *in = input();
        rp_template_text *a = NULL, *b = NULL, *again = NULL;
        rp_error err;
        assert_non_null(json);
        template_input_members(in, root);
        json_decref(root); /* values are copies */
        if (rp_template_render(t, json, strlen(json), NULL, &a, &err)) fail_msg("%s: %s", json, err.message);
        if (rp_template_render_input(t, in, NULL, &b, &err)) fail_msg("%s: %s", json, err.message);
        assert_same(a, b);
        assert_int_equal(rp_template_render_input(t, in, NULL, &again, NULL), RP_OK); /* an input is not used up */
        assert_same(a, again);
        rp_template_text_free(a);
        rp_template_text_free(b);
        rp_template_text_free(again);
        rp_template_input_free(in);
        base_free(json);
    }
    rp_template_free(t);
}

static void the_builder_makes_messages(void **state) {
    (void)state;
    static const char json[] = "{\"tools\": [{\"name\": \"f\"}], \"messages\": [{\"role\": \"user\", \"content\": \"hi "
                               "<x>\"}], \"n\": 3, \"z\": null}";
    rp_template *t =
        parse("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ tools[0].name }}{{ n + 1 }}{{ z }}");
    rp_template_input *in = input();
    rp_template_text *a, *b;
    rp_template_input_key(in, "tools");
    add_json(in, "[{\"name\": \"f\"}]");
    rp_template_input_key(in, "messages");
    rp_template_input_begin_list(in);
    rp_template_input_begin_dict(in);
    add(in, "role", "user");
    rp_template_input_key(in, "content");
    const uint32_t content = rp_template_input_text(in, "hi <x>", 6);
    rp_template_input_end(in);
    rp_template_input_end(in);
    rp_template_input_key(in, "n");
    add_json(in, "3");
    rp_template_input_key(in, "z");
    add_json(in, "null");
    assert_int_equal(rp_template_render(t, json, strlen(json), NULL, &a, NULL), RP_OK);
    assert_int_equal(rp_template_render_input(t, in, NULL, &b, NULL), RP_OK);
    assert_same(a, b);
    assert_string_equal(b->bytes, "<user>hi <x>f4None");
    assert_int_equal(b->runs[0].origin, RP_TEMPLATE_TRUSTED);
    assert_int_equal(b->runs[0].end, 6); /* "<user>" */
    assert_int_equal(b->runs[1].origin, content);
    assert_int_equal(b->runs[1].end, 12);
    rp_template_text_free(a);
    rp_template_text_free(b);
    rp_template_input_free(in);
    rp_template_free(t);
}

/* A role is trusted in the list of messages alone, wherever else a client writes one. */
static void roles_are_trusted_at_their_place(void **state) {
    (void)state;
    rp_template *t = parse("{{ role }}{{ x.role }}{{ m[0].role }}{{ messages[0].content.role }}{{ messages[0].role "
                           "}}{{ messages[1].role }}");
    rp_template_input *in = input();
    rp_template_text *text;
    add(in, "role", "user");
    rp_template_input_key(in, "x");
    add_json(in, "{\"role\": \"user\", \"messages\": [{\"role\": \"user\"}]}");
    rp_template_input_key(in, "m");
    add_json(in, "[{\"role\": \"user\"}]");
    rp_template_input_key(in, "messages");
    add_json(in, "[{\"role\": \"admin\", \"content\": {\"role\": \"user\"}}, {\"role\": \"user\"}]");
    assert_int_equal(rp_template_render_input(t, in, NULL, &text, NULL), RP_OK);
    assert_string_equal(text->bytes, "useruseruseruseradminuser");
    for (size_t i = 0; i < text->n_runs; i++)
        assert_int_equal(text->runs[i].origin == RP_TEMPLATE_TRUSTED, i + 1 == text->n_runs);
    assert_int_equal(text->n_runs, 6);
    rp_template_text_free(text);
    rp_template_input_free(in);
    rp_template_free(t);
}

/* ---- mistakes and limits ---- */

static void begin_and_not_end(rp_template_input *in) {
    rp_template_input_key(in, "a");
    rp_template_input_begin_list(in);
}
static void value_without_key(rp_template_input *in) { rp_template_input_text(in, "x", 1); }
static void key_without_value(rp_template_input *in) { rp_template_input_key(in, "a"); }
static void key_after_key(rp_template_input *in) {
    rp_template_input_key(in, "a");
    add(in, "b", "c");
}
static void key_in_a_list(rp_template_input *in) {
    begin_and_not_end(in);
    add(in, "b", "c");
    rp_template_input_end(in);
}
static void end_without_begin(rp_template_input *in) { rp_template_input_end(in); }
static void end_after_key(rp_template_input *in) {
    rp_template_input_key(in, "a");
    rp_template_input_begin_dict(in);
    rp_template_input_key(in, "b");
    rp_template_input_end(in);
}
static void bad_json(rp_template_input *in) {
    rp_template_input_key(in, "a");
    add_json(in, "{\"a\": 1");
}
static void bad_utf8(rp_template_input *in) { add(in, "a", "\xc3\xa9\xff"); }
static void bad_key(rp_template_input *in) { add(in, "a\xff", "b"); }

static void mistakes_are_reported(void **state) {
    (void)state;
    void (*const mistakes[])(rp_template_input * in) = {
        begin_and_not_end, value_without_key, key_without_value, key_after_key, key_in_a_list,
        end_without_begin, end_after_key, bad_json, bad_utf8, bad_key};
    rp_template *t = parse("{{ a }}");
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(*mistakes); i++) {
        rp_template_input *in = input();
        rp_template_text *text = (rp_template_text *)t;
        rp_template_failure failure = RP_TEMPLATE_RENDERED;
        rp_template_options options = rp_template_options_defaults();
        rp_error err = {0};
        options.failure = &failure;
        mistakes[i](in);
        if (i > 0 && i != 2) add(in, "more", "ignored"); /* the first error stays */
        if (rp_template_render_input(t, in, &options, &text, &err) != RP_ERR_INVALID || text)
            fail_msg("mistake %d: %s", (int)i, err.message);
        assert_int_equal(failure, RP_TEMPLATE_FAILED);
        assert_int_equal(strncmp(err.message, "input: ", 7), 0);
        rp_template_input_free(in);
    }
    rp_template_free(t);
    rp_template_input_free(NULL);
}

static void depth_and_size_are_limited(void **state) {
    (void)state;
    rp_template *t = parse("{{ a is defined }}");
    rp_template_text *text;
    for (int levels = TEMPLATE_MAX_DEPTH - 1; levels <= TEMPLATE_MAX_DEPTH;
         levels++) { /* the variables are the first one */
        rp_template_input *in = input();
        rp_template_input_key(in, "a");
        for (int i = 0; i < levels; i++) rp_template_input_begin_list(in);
        for (int i = 0; i < levels; i++) rp_template_input_end(in);
        const int rc = rp_template_render_input(t, in, NULL, &text, NULL);
        assert_int_equal(rc, levels < TEMPLATE_MAX_DEPTH ? RP_OK : RP_ERR_LIMIT);
        if (!rc) rp_template_text_free(text);
        rp_template_input_free(in);
    }
    const size_t n = TEMPLATE_MAX_INPUT_BYTES / 2 + 1;
    char *large = base_calloc(n, 1);
    rp_template_input *in = input();
    for (int i = 0; i < 2; i++) {
        rp_template_input_key(in, i ? "a" : "b");
        template_input_borrow(in, large, n);
        assert_int_equal(rp_template_render_input(t, in, NULL, &text, NULL), i ? RP_ERR_LIMIT : RP_OK);
        if (!i) rp_template_text_free(text);
    }
    rp_template_input_free(in);
    base_free(large);
    rp_template_free(t);
}

/* The steps of an input are those of each of its renderings: its limit cannot be split into many small texts. */
static void steps_of_an_input_count(void **state) {
    (void)state;
    rp_template *t = parse("x");
    rp_template_input *in = input();
    rp_template_text *text = NULL;
    rp_template_options options = rp_template_options_defaults();
    uint64_t steps = 100000;
    options.steps_left = &steps;
    rp_template_input_key(in, "a");
    rp_template_input_begin_list(in);
    for (int i = 0; i < 1000; i++) rp_template_input_text(in, "y", 1);
    rp_template_input_end(in);
    assert_int_equal(rp_template_render_input(t, in, &options, &text, NULL), RP_OK);
    assert_true(steps < 95000);
    rp_template_text_free(text);
    steps = 5000;
    assert_int_equal(rp_template_render_input(t, in, &options, &text, NULL), RP_ERR_LIMIT);
    assert_null(text);
    assert_int_equal(steps, 0);
    rp_template_input_free(in);
    rp_template_free(t);
}

static void failures_have_reasons(void **state) {
    (void)state;
    static const struct {
        const char *source;
        rp_template_failure why;
    } cases[] = {
        {"x", RP_TEMPLATE_RENDERED},
        {"{{ raise_exception('TypeError: no') }}", RP_TEMPLATE_REFUSED},
        {"{{ 1 + 'a' }}", RP_TEMPLATE_WRONG_TYPE},
        {"{{ [1, 'a'] | sum | string }}", RP_TEMPLATE_WRONG_TYPE},
        {"{% for x in [1, 2] | map('no_such_filter') %}{% endfor %}", RP_TEMPLATE_FAILED},
        {"{{ a.b.c }}", RP_TEMPLATE_FAILED},
        {"{% for i in range(99999) %}{% for i in range(99999) %}{% endfor %}{% endfor %}", RP_TEMPLATE_FAILED}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        rp_template *t = parse(cases[i].source);
        rp_template_text *text;
        rp_template_failure why = RP_TEMPLATE_RENDERED;
        rp_template_options options = rp_template_options_defaults();
        options.failure = &why;
        if (!rp_template_render(t, "{}", 2, &options, &text, NULL)) rp_template_text_free(text);
        if (why != cases[i].why) fail_msg("%s: %d", cases[i].source, (int)why);
        rp_template_free(t);
    }
}

static void every_failed_allocation_is_a_clean_error(void **state) {
    (void)state;
    rp_template *t = parse("{{ messages | tojson }}{{ a }}");
    int rc = RP_ERR_MEMORY;
    for (uint64_t n = 1; rc; n++) {
        rp_template_input *in = NULL;
        rp_template_text *text = NULL;
        rp_error err = {0};
        base_alloc_fail_at(n, n % 2 == 0);
        rc = rp_template_input_new(&in, &err);
        if (!rc) {
            rp_template_input_key(in, "messages");
            add_json(in, "[{\"role\": \"user\", \"content\": \"a long enough text\"}]");
            for (int i = 0; i < 40; i++) {
                char key[] = {'a', (char)('a' + i % 26), (char)('a' + i / 26), 0};
                add(in, key, "0123456789012345678901234567890123456789012345678901234567890123456789");
            }
            rc = rp_template_render_input(t, in, NULL, &text, &err);
        }
        rp_template_input_free(in);
        base_alloc_fail_at(0, 0);
        if (rc && (rc != RP_ERR_MEMORY || text)) fail_msg("allocation %d: %s", (int)n, err.message);
        rp_template_text_free(text);
    }
    rp_template_free(t);
}

typedef struct shared {
    const rp_template *t;
    const rp_template_input *in;
} shared;

static void *render_often(void *user) {
    const shared *s = user;
    char *first = NULL;
    for (int i = 0; i < 200; i++) {
        rp_template_text *text;
        if (rp_template_render_input(s->t, s->in, NULL, &text, NULL)) return NULL;
        if (!first) first = base_strdup(text->bytes);
        if (strcmp(first, text->bytes) != 0) abort();
        rp_template_text_free(text);
    }
    return first;
}

static void threads_share_an_input(void **state) {
    (void)state;
    rp_template *t = parse(
        "{% for m in messages %}{{ m.content | upper }}{% endfor %}{{ messages | map(attribute='role') | join(',') }}");
    rp_template_input *in = input();
    pthread_t threads[3];
    void *texts[3];
    rp_template_input_key(in, "messages");
    add_json(in, "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]");
    shared s = {t, in};
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, render_often, &s), 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], &texts[i]);
    for (int i = 0; i < 3; i++) {
        assert_non_null(texts[i]);
        assert_string_equal(texts[i], "ABuser,assistant");
        base_free(texts[i]);
    }
    rp_template_input_free(in);
    rp_template_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_render_as_json_does),
        cmocka_unit_test(the_builder_makes_messages),
        cmocka_unit_test(roles_are_trusted_at_their_place),
        cmocka_unit_test(mistakes_are_reported),
        cmocka_unit_test(depth_and_size_are_limited),
        cmocka_unit_test(steps_of_an_input_count),
        cmocka_unit_test(failures_have_reasons),
        cmocka_unit_test(every_failed_allocation_is_a_clean_error),
        cmocka_unit_test(threads_share_an_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
