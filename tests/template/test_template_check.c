/* SPDX-License-Identifier: Apache-2.0 */
/* test_template_check.c: rp_template_check: which changes of earlier text it finds, where, and in which line of the
 * template; which it does not report; limits; failing allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "reprise_tools.h"
#include "template/template.h"
#include "reprise_chat.h"

#define TURNS \
    "{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": \"Yes\", " \
    "\"reasoning_content\": \"Hm\"}, " \
    "{\"role\": \"user\", \"content\": \"Why\"}, {\"role\": \"assistant\", \"content\": \"So\", " \
    "\"reasoning_content\": \"Eh\"}, " \
    "{\"role\": \"user\", \"content\": \"Ah\"}"
#define CONVERSATION "{\"tools\": null, \"add_generation_prompt\": true, \"messages\": [" TURNS "]}"
#define BODY "{{ '<' + m.role + '>' + m.content }}{% endfor %}\n"
#define ANSWER "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
#define STABLE "{% for m in messages %}\n" BODY ANSWER
#define DROPS \
    "{% for m in messages %}\n" \
    "{{ '<' + m.role + '>' }}\n" \
    "{% if m.reasoning_content and loop.last %}\n" \
    "{{ '(' + m.reasoning_content + ')' }}\n" \
    "{% endif %}\n" \
    "{{ m.content }}\n" \
    "{% endfor %}" ANSWER

static rp_template_report *check(const char *source, const char *json, const rp_template_check_options *options) {
    rp_template *t;
    rp_error err = {0};
    rp_template_report *report = NULL;
    if (rp_template_new(&t, source, strlen(source), "t", &err)) fail_msg("%s: %s", source, err.message);
    if (rp_template_check(t, NULL, json, strlen(json), options, &report, &err)) fail_msg("%s: %s", source, err.message);
    rp_template_free(t);
    return report;
}

static void check_none(const char *source, const char *json) {
    rp_template_report *r = check(source, json, NULL);
    if (r->n_changes > 0) fail_msg("%s: '%s' becomes '%s'", source, r->changes[0].before, r->changes[0].after);
    assert_int_equal(r->n_rendered, r->n_messages);
    assert_true(r->n_bytes > 0);
    rp_template_report_free(r);
}

/* What is not in a prompt is not compared: the text after the last message. Other variables, same words. */
static void stable_templates(void **state) {
    (void)state;
    check_none(STABLE, CONVERSATION);
    check_none("{% for m in messages %}" BODY "{% if not add_generation_prompt %}</s>{% else %}<assistant>{% endif %}",
               CONVERSATION);
    check_none("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if loop.last and m.role != 'user' %}<return>{% "
               "else %}<end>{% endif %}"
               "{% endfor %}",
               CONVERSATION);
    check_none("{% if date is not defined %}{% set date = '1 May' %}{% endif %}{{ date }}" STABLE, CONVERSATION);
    check_none("{% if false %}{{ strftime_now('%Y') }}{% endif %}" STABLE, CONVERSATION);
}

static void dropped_reasoning(void **state) {
    (void)state;
    rp_template_report *r = check(DROPS, CONVERSATION, NULL);
    assert_int_equal(r->n_changes, 2);
    const rp_template_change *c = &r->changes[0];
    assert_int_equal(c->n_before, 2);
    assert_int_equal(c->n_after, 3);
    assert_int_equal(c->message, 1);
    assert_int_equal(c->line_before, 4);
    assert_int_equal(c->line_after, 6);
    assert_false(c->by_time || c->opens_answer);
    assert_int_equal(c->byte, strlen("<user>\nHi\n<assistant>\n"));
    assert_int_equal(c->text_line, 4);
    assert_string_equal(c->before, "<user>\nHi\n<assistant>\n(Hm)\nYes\n");
    assert_string_equal(c->after, "<user>\nHi\n<assistant>\nYes\n<user>\nWhy\n");
    assert_int_equal(r->changes[1].message, 3);
    rp_template_report_free(r);
}

static void generation_prompt(void **state) {
    (void)state;
    const char *source =
        "{% for m in messages %}" BODY "{% if add_generation_prompt %}\n{{ '<assistant>' }}<think>{% endif %}";
    rp_template_report *r = check(source, CONVERSATION, NULL);
    assert_int_equal(r->n_changes, 2);
    assert_true(r->changes[0].opens_answer);
    assert_int_equal(r->changes[0].n_before, 1);
    assert_int_equal(r->changes[0].message, 1);
    assert_int_equal(r->changes[0].line_before, 3);
    rp_template_report_free(r);
}

/* Of the last turn only, as a server sees it: the change of an earlier one is found in it. */
static void last_turn(void **state) {
    (void)state;
    rp_template_check_options options = rp_template_check_options_defaults();
    options.last_turn = true;
    rp_template_report *r = check(DROPS, CONVERSATION, &options);
    assert_int_equal(r->n_changes, 1);
    assert_int_equal(r->changes[0].n_before, 4);
    assert_int_equal(r->changes[0].n_after, 5);
    assert_int_equal(r->changes[0].message, -1);
    assert_int_equal(r->n_bytes,
                     strlen("<user>\nHi\n<assistant>\nYes\n<user>\nWhy\n<assistant>\nSo\n<user>\nAh\n<assistant>"));
    rp_template_report_free(r);
    r = check(DROPS, "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}", &options);
    assert_int_equal(r->n_changes, 0);
    rp_template_report_free(r);
}

/* Dates of all days and formats: the first byte that changes, and the end. */
static void dates(void **state) {
    (void)state;
    static const char *const formats[][2] = {
        {"%d %b %Y", "26 Nov 2026"},
        {"%Y-%m-%d", "2026-11-26"},
        {"%B %d, %Y", "November 26, 2026"},
        {"%H:%M", "10:11"},
        {"%A, %d.%m.%y", "Thursday, 26.11.26"},
    };
    rp_template_check_options options = rp_template_check_options_defaults();
    options.has_time = true;
    options.time = 1795687905; /* 26 November 2026, 10:11:45 */
    for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++) {
        char source[512];
        snprintf(source, sizeof(source), "%s%s%s", "{% set day = strftime_now('", formats[i][0],
                 "') %}\nIt is {{ day }}.\n" STABLE);
        rp_template_report *r = check(source, CONVERSATION, &options);
        assert_int_equal(r->n_changes, 1);
        const rp_template_change *c = &r->changes[0];
        assert_true(c->by_time);
        assert_int_equal(c->n_before, c->n_after);
        assert_int_equal(c->message, 0);
        assert_int_equal(c->line_before, 2);
        assert_int_equal(c->byte, strlen("It is "));
        assert_int_equal(c->end, c->byte + strlen(formats[i][1]));
        assert_memory_equal(c->before + (c->byte - c->from), formats[i][1], strlen(formats[i][1]));
        rp_template_report_free(r);
    }
}

/* Excerpts are whole characters. */
static void excerpts(void **state) {
    (void)state;
    char source[2048] = "{% for m in messages %}", json[512];
    for (int i = 0; i < 50; i++) strcat(source, "\xc3\xa4\xe2\x82\xac");
    strcat(source, "{{ messages|length }}");
    for (int i = 0; i < 50; i++) strcat(source, "\xc3\xa4\xe2\x82\xac");
    strcat(source, "{{ m.content }}{% endfor %}");
    snprintf(json, sizeof(json), "{\"messages\": [" TURNS "]}");
    rp_template_report *r = check(source, json, NULL);
    assert_int_equal(r->n_changes, 4);
    for (size_t i = 0; i < r->n_changes; i++)
        for (int side = 0; side < 2; side++) {
            const char *text = side ? r->changes[i].after : r->changes[i].before;
            assert_true(((unsigned char)text[0] & 0xc0) != 0x80);
            const size_t n = strlen(text), last = text[n - 1] == '\xa4' ? 2 : 3;
            assert_in_range(n, 90, 96);
            assert_memory_equal(text + n - last, last == 2 ? "\xc3\xa4" : "\xe2\x82\xac", last);
        }
    rp_template_report_free(r);
}

/* A template that refuses some beginnings, or all; more changes than a report has; too many steps. */
static void limits(void **state) {
    (void)state;
    rp_template_report *r =
        check("{% if messages|length % 2 == 0 %}{{ raise_exception('no') }}{% endif %}" STABLE, CONVERSATION, NULL);
    assert_int_equal(r->n_rendered, 3);
    assert_int_equal(r->n_changes, 0);
    rp_template_report_free(r);
    r = check("{{ raise_exception('no') }}", CONVERSATION, NULL);
    assert_int_equal(r->n_rendered + r->n_bytes, 0);
    rp_template_report_free(r);

    enum { N = RP_TEMPLATE_MAX_CHANGES + 11 };
    char *json = malloc(N * 40 + 64), *at = json + sprintf(json, "{\"messages\": [");
    for (int i = 0; i < N; i++) at += sprintf(at, "%s{\"role\": \"user\", \"content\": \"x\"}", i > 0 ? ", " : "");
    strcpy(at, "]}");
    r = check("{{ messages|length }}{{ messages[0].content }}", json, NULL);
    assert_int_equal(r->n_changes, RP_TEMPLATE_MAX_CHANGES);
    assert_int_equal(r->n_changes + r->n_left_out, N - 1);
    rp_template_report_free(r);

    rp_template_check_options options = rp_template_check_options_defaults();
    options.max_steps = 1000;
    options.last_turn = true;
    const char *slow = "{% for a in messages %}{% for b in messages %}{{ a.content }}{% endfor %}{% endfor %}";
    rp_template *t;
    rp_error err = {0};
    assert_int_equal(rp_template_new(&t, slow, strlen(slow), "t", NULL), RP_OK);
    assert_int_equal(rp_template_check(t, NULL, json, strlen(json), &options, &r, &err), RP_ERR_LIMIT);
    assert_null(r);
    assert_non_null(strstr(err.message, "steps"));
    rp_template_free(t);
    free(json);
}

static void refused_input(void **state) {
    (void)state;
    static const char *const inputs[] = {
        "", "[]", "{", "{}", "{\"messages\": []}", "{\"messages\": {}}", "{\"messages\": 1}", "{\"messages\": [1]} x"};
    rp_template *t;
    assert_int_equal(rp_template_new(&t, STABLE, strlen(STABLE), "t", NULL), RP_OK);
    for (size_t i = 0; i < sizeof(inputs) / sizeof(*inputs); i++) {
        rp_error err = {0};
        rp_template_report *r = (rp_template_report *)&err;
        assert_int_equal(rp_template_check(t, NULL, inputs[i], strlen(inputs[i]), NULL, &r, &err), RP_ERR_INVALID);
        assert_null(r);
        assert_non_null(strstr(err.message, "messages"));
    }
    rp_template_free(t);
    rp_template_report_free(check(STABLE, "{\"messages\": [1, \"x\", null, []]}", NULL)); /* the template fails */
}

static void failing_allocations(void **state) {
    (void)state;
    const char *source = "{{ strftime_now('%Y') }}\n" DROPS;
    rp_template *t;
    assert_int_equal(rp_template_new(&t, source, strlen(source), "t", NULL), RP_OK);
    int rc = RP_ERR_MEMORY, n = 0;
    while (rc) {
        rp_template_report *r = NULL;
        rp_error err = {0};
        base_alloc_fail_at((uint64_t)++n, 0);
        rc = rp_template_check(t, NULL, CONVERSATION, strlen(CONVERSATION), NULL, &r, &err);
        base_alloc_fail_at(0, 0);
        if (rc) assert_int_equal(rc, RP_ERR_MEMORY);
        if (rc) assert_null(r);
        rp_template_report_free(r);
    }
    assert_true(n > 20);
    rp_template_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(stable_templates),
                                       cmocka_unit_test(dropped_reasoning),
                                       cmocka_unit_test(generation_prompt),
                                       cmocka_unit_test(last_turn),
                                       cmocka_unit_test(dates),
                                       cmocka_unit_test(excerpts),
                                       cmocka_unit_test(limits),
                                       cmocka_unit_test(refused_input),
                                       cmocka_unit_test(failing_allocations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
