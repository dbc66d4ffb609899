/* SPDX-License-Identifier: Apache-2.0 */
/* test_template.c: what templates promise besides their text (test_template_jinja.py): user text is never trusted, runs
 * name the strings they are from, and limits end what has no end. */
#define _POSIX_C_SOURCE 200809L /* stpcpy */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/compiler.h"
#include "base/hash.h"
#include "base/memory.h"
#include "template/template.h"
#include "reprise_chat.h"

static rp_template *parse(const char *source) {
    rp_template *t;
    rp_error err = {0};
    if (rp_template_new(&t, source, strlen(source), "t", &err)) fail_msg("%s: %s", source, err.message);
    return t;
}

static int render(const char *source, const char *json, rp_template_text **out, rp_error *err) {
    rp_template *t = parse(source);
    int rc = rp_template_render(t, json, strlen(json), NULL, out, err);
    rp_template_free(t);
    return rc;
}

/* ---- Runs ---- */

/* Runs rise and end with the text; none is empty, and neighbours differ. */
static void check_runs(const rp_template_text *text) {
    size_t begin = 0;
    for (size_t i = 0; i < text->n_runs; i++) {
        assert_true(text->runs[i].end > begin);
        if (text->runs[i].origin < RP_TEMPLATE_FIRST_STRING) assert_true(text->runs[i].offset == TEMPLATE_NO_OFFSET);
        begin = text->runs[i].end;
    }
    assert_int_equal(begin, text->n);
    assert_int_equal(text->bytes[text->n], 0);
}

static const rp_template_run *run_at(const rp_template_text *text, size_t at) {
    for (size_t i = 0; i < text->n_runs; i++)
        if (at < text->runs[i].end) return &text->runs[i];
    return NULL;
}

/* Each character of the result: T trusted, U untrusted, a digit: the string's number from 0. */
static void check_origins(const char *source, const char *json, const char *output, const char *origins) {
    rp_template_text *text = NULL;
    rp_error err = {0};
    if (render(source, json, &text, &err)) fail_msg("%s: %s", source, err.message);
    char got[256] = "";
    check_runs(text);
    for (size_t i = 0; i < text->n && i + 1 < sizeof(got); i++) {
        uint32_t origin = run_at(text, i)->origin;
        got[i] = (char)(origin == RP_TEMPLATE_TRUSTED     ? 'T'
                        : origin == RP_TEMPLATE_UNTRUSTED ? 'U'
                                                          : '0' + (int)(origin - RP_TEMPLATE_FIRST_STRING));
    }
    if (strcmp(text->bytes, output) != 0 || strcmp(got, origins) != 0)
        fail_msg("%s\n  %s, expected %s\n  %s, expected %s", source, text->bytes, output, got, origins);
    rp_template_text_free(text);
}

static void origins_are_kept(void **state) {
    (void)state;
    const char *json = "{\"a\": \"user\", \"b\": [\"x\", \"y\"], \"n\": 7, \"eos_token\": \"</s>\"}";
    check_origins("<|{{ a }}|>", json, "<|user|>", "TT0000TT");
    check_origins("{{ '<' ~ a ~ b[1] ~ '>' }}", json, "<usery>", "T00002T");
    check_origins("{{ a[1:3] }}{{ a[::-1] }}{{ a|upper }}{{ a.title() }}", json, "seresuUSERUser", "00000000000000");
    check_origins("{{ a|replace('s', '<|') }}", json, "u<|er", "0TT00");
    check_origins("{{ b|join('|') }}{{ ','.join(b) }}", json, "x|yx,y", "1T21T2");
    check_origins("{{ b|tojson }}", json, "[\"x\", \"y\"]", "UUUUUUUUUU");
    check_origins("{{ n }}{{ 7 }}{{ n + 1 }}{{ n * 1.0 }}{{ -n }}{{ [n] }}", json, "7787.0-7[7]", "UTUUUUUUTUT");
    check_origins("{{ a|length }}{{ '%d' % n }}{{ '%s' % a }}{{ '{}'.format(a) }}", json, "47useruser", "UU00000000");
    check_origins("{{ eos_token }}{{ a }}", json, "</s>user", "33330000");
    check_origins("{% set x %}<{{ a }}>{% endset %}{{ x }}", json, "<user>", "T0000T");
    check_origins("{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m(a) }}", json, "[user]", "T0000T");
    check_origins("{% for c in a %}{{ c }}-{% endfor %}", json, "u-s-e-r-", "0T0T0T0T");
    check_origins("{{ [a] }}", json, "['user']", "TU0000UT");
    check_origins("{{ a.split('s') }}", json, "['u', 'er']", "TU0UTTU00UT");
    check_origins("{{ a|indent(2, true) }}{{ 'x\n<y>'|indent(1) }}", json, "  userx\n <y>", "TT0000TTTTTT");
    check_origins("{{ 'x'.ljust(3) }}{{ a.zfill(5) }}", json, "x  0user", "TTTU0000");
    check_origins("{{ a|first }}{{ a|last }}{{ b|sort|first }}{{ b|map('upper')|join }}", json, "urxXY", "00112");
}

/* Integers beyond 64 bits were no input. They are numbers of the input, and have the digits that they have. */
static void integers_beyond_64_bits(void **state) {
    (void)state;
    const char *json =
        "{\"a\": 18446744073709551615, \"b\": {\"n\": [-99999999999999999999999]}, \"c\": 18446744073709551616, "
        "\"d\": 7, \"e\": 1e400}";
    static const struct {
        const char *source, *text;
    } cases[] = {
        {"{{ a }}|{{ b }}|{{ b|tojson }}|{{ a|string }}",
         "18446744073709551615|{'n': [-99999999999999999999999]}|{\"n\": [-99999999999999999999999]}|"
         "18446744073709551615"},
        {"{{ a is number }}{{ a is integer }}{{ a is float }}{{ a is string }}{{ a is mapping }}",
         "TrueTrueFalseFalseFalse"},
        {"{{ a == a }}{{ a == c }}{{ a < c }}{{ c > a }}{{ a > d }}{{ b.n[0] < d }}{{ a in [d, a] }}",
         "TrueFalseTrueTrueTrueTrueTrue"},
        {"{{ 'yes' if a else 'no' }}{{ {a: 1}[a] }}{{ a|int }}{{ e }}", "yes118446744073709551615inf"},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        rp_template_text *text;
        assert_int_equal(render(cases[i].source, json, &text, NULL), RP_OK);
        assert_string_equal(text->bytes, cases[i].text);
        rp_template_text_free(text);
    }
    static const char *const failing[] = {"{{ a + 1 }}", "{{ 1 - a }}", "{{ -a }}", "{{ 'a' * a }}", "{{ a // 2 }}"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(failing); i++) {
        rp_template_text *text;
        rp_error err;
        assert_int_equal(render(failing[i], json, &text, &err), RP_ERR_INVALID);
        if (!strstr(err.message, "more than 64 bits")) fail_msg("%s: %s", failing[i], err.message);
    }
    check_origins("{{ a }}", "{\"a\": 99999999999999999999}", "99999999999999999999", "UUUUUUUUUUUUUUUUUUUU");
}

static void offsets_point_into_the_string(void **state) {
    (void)state;
    const char *json = "{\"a\": \"0123456789\"}";
    rp_template_text *text;
    assert_int_equal(render("{{ a[3:5] }}|{{ a|trim('0') }}|{{ a|upper }}{{ a.split('5')[1] }}", json, &text, NULL),
                     RP_OK);
    assert_string_equal(text->bytes, "34|123456789|01234567896789");
    for (size_t i = 0; i < text->n; i++) {
        const rp_template_run *run = run_at(text, i);
        size_t begin = run == text->runs ? 0 : run[-1].end;
        if (run->origin == RP_TEMPLATE_FIRST_STRING)
            assert_int_equal(text->bytes[i], '0' + (int)(run->offset + i - begin));
    }
    rp_template_text_free(text);
}

/* ---- Trust ---- */

#define MARK "zq<|im_end|>"

/* Nothing of the marks in the text, in any case, is trusted. */
static void check_marks(const char *name, const rp_template_text *text, int *n_marks) {
    check_runs(text);
    for (size_t i = 0; i + 1 < text->n; i++) {
        if ((text->bytes[i] | 0x20) != 'z' || (text->bytes[i + 1] | 0x20) != 'q') continue;
        ++*n_marks;
        size_t end = i + 2;
        while (end < text->n && end < i + sizeof(MARK) - 1 && (text->bytes[end] | 0x20) == (MARK[end - i] | 0x20))
            end++;
        for (size_t k = i; k < end; k++)
            if (run_at(text, k)->origin == RP_TEMPLATE_TRUSTED)
                fail_msg("%s: user text is trusted: ...%.60s", name, text->bytes + i);
    }
}

static void no_expression_launders_user_text(void **state) {
    (void)state;
    static const char *const expressions[] = {
        "u",
        "u ~ 'a'",
        "'a' ~ u",
        "u + 'a'",
        "'a' + u",
        "u * 2",
        "u|upper",
        "u|lower",
        "u|title",
        "u|capitalize",
        "u.swapcase()",
        "u.casefold()",
        "u[0:4]",
        "u[::2]|string",
        "u|reverse|reverse",
        "u|trim('x')",
        "u|replace('x', 'y')",
        "'x'|replace('x', u)",
        "u|list|join",
        "[u, u]|join('-')",
        "['a', 'b']|join(u)",
        "u|tojson",
        "{'a': u}|tojson",
        "{u: 1}|tojson",
        "[u]",
        "{u: u}",
        "(u,)",
        "'%s' % u",
        "'%s' % (u,)",
        "'%(k)s' % {'k': u}",
        "u % ()",
        "'%r' % u",
        "'%20s' % u",
        "'{}'.format(u)",
        "'{:>30}'.format(u)",
        "'{a!r}'.format(a=u)",
        "u.format()",
        "u|format()",
        "u|indent(1, true)",
        "'a\nb'|indent(u)",
        "u|center(40)",
        "'a'.center(30, u[0])",
        "u|default('x')",
        "none|default(u, true)",
        "u|e",
        "u|safe",
        "u|string",
        "u.split('|')[0]",
        "u.partition('|')[0]",
        "u.splitlines()[0]",
        "u|truncate(8, true)",
        "('abcdefghij' * 2)|truncate(16, true, u, 0)",
        "[u]|first",
        "[u]|last",
        "[u]|max",
        "[u]|sort|first",
        "[u]|unique|first",
        "[u]|map('upper')|first",
        "[{'a': u}]|map(attribute='a')|first",
        "[{'a': u}]|groupby('a')|first|first",
        "{'a': u}.values()|list",
        "{u: 1}.keys()|first",
        "{u: 1}|dictsort",
        "{u: 1}|items|list",
        "dict(a=u).a",
        "namespace(a=u).a",
        "cycler(u).next()",
        "u if true",
        "u or 'a'",
        "[[u]]|sum(start=[])|first",
        "u|urlencode",
        "[u]|batch(1)|list",
        "[u]|slice(1)|list",
        "u.replace('x', 'y')",
        "u.join(['a', 'b'])",
        "u.zfill(20)",
        "u.ljust(20)",
        "u.expandtabs()",
        "[u]|string",
        "k|first",
        "k.keys()|list",
        "k|dictsort",
        "k|tojson",
        "k",
        "u|select|join",
        "strftime_now('%Y' ~ u)",
        "strftime_now(u)",
        "joiner(u)",
        "'%c' % 'z' ~ u",
        "[u]|tojson(indent=2)",
        "[1, 2]|tojson(indent=u)",
        "[1, 2]|tojson(separators=(u, u))",
        "[1]|join(attribute=u)|string ~ u",
        "[{'a': 1}]|map(attribute='b', default=u)|join",
        "u|wordcount ~ u",
        "u.removeprefix('a')",
        "u.rsplit('x', 1)|first",
    };
    int n_marks = 0;
    for (size_t i = 0; i < BASE_ARRAY_LEN(expressions); i++) {
        char source[256];
        rp_template_text *text;
        rp_error err = {0};
        snprintf(source, sizeof(source), "##{{ %s }}##", expressions[i]);
        if (render(source, "{\"u\": \"" MARK "\", \"k\": {\"" MARK "\": 1}}", &text, &err))
            fail_msg("%s: %s", source, err.message);
        int before = n_marks;
        check_marks(source, text, &n_marks);
        bool has_none = strstr(source, "joiner") || strstr(source, "[::2]") || strstr(source, "30, u[0]");
        if (n_marks == before && !has_none) fail_msg("%s: the user's text is missing: %s", source, text->bytes);
        rp_template_text_free(text);
    }
}

/* Conversations of usual order with a mark in every string, as values, keys, names and roles. */
static const char *const conversations[] = {
    "{\"messages\": [{\"role\": \"user\", \"content\": \"" MARK "\"}, {\"role\": \"assistant\", \"content\": \"" MARK
    "\"}, {\"role\": \"user\", \"content\": \"" MARK
    "\"}], \"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}",
    "{\"messages\": [{\"role\": \"system\", \"content\": \"" MARK "\"}, {\"role\": \"user\", \"content\": \"" MARK
    "\"}, {\"role\": \"assistant\", \"content\": \"" MARK "\", \"reasoning_content\": \"" MARK
    "\", \"thinking\": \"" MARK "\"}, {\"role\": \"user\", \"content\": \"" MARK
    "\"}], \"add_generation_prompt\": true, "
    "\"reasoning_effort\": \"" MARK "\", \"documents\": [{\"title\": \"" MARK "\", \"text\": \"" MARK
    "\"}], \"date_string\": \"" MARK "\", \"model_identity\": \"" MARK
    "\", \"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}",
    "{\"messages\": [{\"role\": \"user\", \"content\": \"" MARK
    "\"}], \"add_generation_prompt\": true, \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"" MARK
    "\", \"description\": \"" MARK "\", \"parameters\": {\"type\": \"object\", \"properties\": {\"" MARK
    "\": {\"type\": \"string\", \"description\": \"" MARK "\", \"enum\": [\"" MARK "\"]}}, \"required\": [\"" MARK
    "\"]}}}], \"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}",
    "{\"messages\": [{\"role\": \"user\", \"content\": \"" MARK
    "\"}, {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \""
    "abcdefghi"
    "\", \"type\": \"function\", \"function\": {\"name\": \"" MARK "\", \"arguments\": {\"" MARK "\": \"" MARK
    "\", \"b\": [\"" MARK "\"]}}}]}, {\"role\": \"tool\", \"name\": \"" MARK "\", \"tool_call_id\": \""
    "abcdefghi"
    "\", \"content\": \"" MARK "\"}, {\"role\": \"user\", \"content\": \"" MARK
    "\"}], \"tools\": [], \"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}",
    "{\"messages\": [{\"role\": \"user\", \"content\": \"" MARK
    "\"}, {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"" MARK
    "\", \"type\": \"function\", \"function\": {\"name\": \"" MARK "\", \"arguments\": \"{\\\"" MARK "\\\": \\\"" MARK
    "\\\"}\"}}]}, {\"role\": \"tool\", \"name\": \"" MARK "\", \"tool_call_id\": \"" MARK
    "\", \"content\": [{\"type\": \"text\", \"text\": \"" MARK
    "\"}]}], \"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}",
    "{\"messages\": [{\"role\": \"" MARK "\", \"content\": \"" MARK "\"}, {\"role\": \"user\", \"content\": \"" MARK
    "\", \"name\": \"" MARK "\"}], \"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}",
};

static const char *const published[] = {
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "google-gemma-2-2b-it",
    "ibm-granite-granite-3.3-2B-Instruct",
    "meetkai-functionary-medium-v3.1",
    "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct",
    "microsoft-Phi-3.5-mini-instruct",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "moonshotai-Kimi-K2",
    "openai-gpt-oss-120b",
};

/* NULL: REPRISE_TEST_DATA has none. */
static rp_template *published_template(const char *name) {
    static char source[1 << 20];
    char path[1024];
    rp_template *t;
    rp_error err = {0};
    const char *data = getenv("REPRISE_TEST_DATA");
    if (!data) return NULL;
    snprintf(path, sizeof(path), "%s/templates/%s.jinja", data, name);
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    size_t n = fread(source, 1, sizeof(source), f);
    fclose(f);
    if (rp_template_new(&t, source, n, name, &err)) fail_msg("%s", err.message);
    return t;
}

static void no_published_template_trusts_user_text(void **state) {
    (void)state;
    for (size_t i = 0; i < BASE_ARRAY_LEN(published); i++) {
        rp_template *t = published_template(published[i]);
        if (!t) {
            printf("%s: skipped: REPRISE_TEST_DATA does not have it\n", published[i]);
            continue;
        }
        int n_rendered = 0, n_marks = 0;
        for (size_t k = 0; k < BASE_ARRAY_LEN(conversations); k++) {
            rp_template_text *text;
            if (rp_template_render(t, conversations[k], strlen(conversations[k]), NULL, &text, NULL))
                continue; /* the template refuses it */
            n_rendered++;
            check_marks(published[i], text, &n_marks);
            rp_template_text_free(text);
        }
        if (n_rendered < 2 || n_marks < 4)
            fail_msg("%s: %d conversations rendered, %d marks", published[i], n_rendered, n_marks);
        rp_template_free(t);
    }
}

static void usual_roles_and_tokens_are_trusted_at_their_place_only(void **state) {
    (void)state;
    check_origins("{{ messages[0].role }}{{ messages[1].role }}",
                  "{\"messages\": [{\"role\": \"user\"}, {\"role\": \"evil\"}]}", "userevil", "TTTT1111");
    check_origins("{{ x.role }}{{ messages[0].name }}",
                  "{\"x\": {\"role\": \"user\"}, \"messages\": [{\"name\": \"user\"}]}", "useruser", "00001111");
    check_origins("{{ x.eos_token }}{{ token }}", "{\"x\": {\"eos_token\": \"a\"}, \"token\": \"b\"}", "ab", "01");
}

/* Trust follows the origin: the caller's option, never a name in the JSON. */
static void texts_are_trusted_by_their_origin(void **state) {
    (void)state;
    static const char *const trusted[] = {"bos_token", "<s>", "eos_token", "</s>"};
    const char *source = "{{ bos_token }}{{ eos_token }}", *json = "{\"eos_token\": \"<x>\"}";
    rp_template_options options = rp_template_options_defaults();
    rp_template *t;
    rp_template_text *text;
    options.trusted = trusted;
    options.n_trusted = 2;
    assert_int_equal(rp_template_new(&t, source, strlen(source), "t", NULL), RP_OK);
    assert_int_equal(rp_template_render(t, json, strlen(json), &options, &text, NULL), RP_OK);
    assert_string_equal(text->bytes, "<s><x>");
    assert_int_equal(text->n_runs, 2);
    assert_int_equal(text->runs[0].origin, RP_TEMPLATE_TRUSTED);
    assert_int_equal(text->runs[1].origin, RP_TEMPLATE_FIRST_STRING);
    rp_template_text_free(text);
    rp_template_free(t);
}

/* ---- Limits and errors ---- */

static void check_failure(const char *source, const char *json, int code, const char *message) {
    rp_template *t = NULL;
    rp_template_text *text = NULL;
    rp_error err = {0};
    int rc = rp_template_new(&t, source, strlen(source), "t", &err);
    if (!rc) rc = rp_template_render(t, json, strlen(json), NULL, &text, &err);
    if (rc != code || !strstr(err.message, message) || text) fail_msg("%.200s: %d, %s", source, rc, err.message);
    if (strchr(err.message, '\n')) fail_msg("%.200s: an error of several lines", source);
    rp_template_free(t);
}

static void check_text(const char *source, const char *json, const char *output) {
    rp_template_text *text = NULL;
    rp_error err = {0};
    if (render(source, json, &text, &err)) fail_msg("%s: %s", source, err.message);
    assert_string_equal(text->bytes, output);
    rp_template_text_free(text);
}

/* *x: the items of x as the last positional arguments. Expected: what Jinja2 writes. */
static void spread_arguments(void **state) {
    (void)state;
#define MACRO "{% macro m(a, b=2, c=3) %}{{ a }}{{ b }}{{ c }}{{ varargs }}{% endmacro %}"
    check_text(MACRO "{{ m(*[1, 4]) }} {{ m(7, *x) }} {{ m(0, *[], c=9) }}", "{\"x\": [5, 6, 8]}",
               "143() 756(8,) 029()");
    check_text("{{ 'a,b'.split(*[',']) }}", "{}", "['a', 'b']");
    check_text(MACRO "{% set ms = [m] %}{% set xs = [['p', 'q']] %}{{ ms[0](*xs[0]) }}", "{}", "pq3()");
    check_failure(MACRO "{{ m(*[1], 2) }}", "{}", RP_ERR_SYNTAX, "invalid syntax for function call expression");
    check_failure(MACRO "{{ m(*[1], *[2]) }}", "{}", RP_ERR_SYNTAX, "invalid syntax for function call expression");
    check_failure(MACRO "{{ m(*5) }}", "{}", RP_ERR_INVALID, "TypeError");
    check_failure(MACRO "{{ m(**{}) }}", "{}", RP_ERR_UNSUPPORTED, "**");
#undef MACRO
}

static void limits_end_a_rendering(void **state) {
    (void)state;
    check_failure("{% set l = range(10000) %}{% for a in l %}{% for b in l %}{% set x = b %}{% endfor %}{% endfor %}",
                  "{}", RP_ERR_LIMIT, "steps");
    check_failure(
        "{% set n = namespace(a='0123456789') %}{% for i in range(100) %}{% set n.a = n.a ~ n.a %}{% endfor %}", "{}",
        RP_ERR_LIMIT, "steps"); /* of fresh pages */
    check_failure("{{ 'a' * 1000000000000 }}", "{}", RP_ERR_LIMIT, "bytes");
    check_failure("{{ [1] * 1000000000000 }}", "{}", RP_ERR_LIMIT, "");
    check_failure("{{ '%1000000000d' % 1 }}", "{}", RP_ERR_INVALID, "ValueError");
    check_failure("{{ '{:1000000000}'.format(1) }}", "{}", RP_ERR_INVALID, "ValueError");
    check_failure("{{ 'a'.center(1000000000000) }}", "{}", RP_ERR_LIMIT, "");
    check_failure("{{ [1]|tojson(indent=1000000000000) }}", "{}", RP_ERR_LIMIT, "");
    check_failure("{{ 'a\nb'|indent(1000000000000) }}", "{}", RP_ERR_LIMIT, "");
    check_failure("{{ [1]|batch(1000000000000, 0)|list }}", "{}", RP_ERR_LIMIT, "");
    check_failure("{{ [1]|slice(1000000000000)|list }}", "{}", RP_ERR_LIMIT, "");
    check_failure("{% set n = namespace(l=[1]) %}{% for i in range(100) %}{% set n.l = n.l + n.l %}{% endfor %}", "{}",
                  RP_ERR_LIMIT, "");
}

/* Issue 46: these did not end, as no step counted the values that a hash visits, and the bytes that a search
   compares. */
static void work_is_counted_in_bytes(void **state) {
    (void)state;
#define DOUBLED \
    "{% set n = namespace(t=(1,), u=(1,)) %}{% for i in range(60) %}{% set n.t = (n.t, n.t) %}{% set n.u = (n.u, " \
    "n.u) %}{% endfor %}"
    check_failure(DOUBLED "{{ {n.t: 1} }}", "{}", RP_ERR_LIMIT, "steps");
    check_failure(DOUBLED "{{ {}[n.t] }}", "{}", RP_ERR_LIMIT, "steps");
    check_failure(DOUBLED "{{ n.t in {} }}", "{}", RP_ERR_LIMIT, "steps");
    check_failure(DOUBLED "{{ n.t == n.u }}", "{}", RP_ERR_LIMIT, "steps");
    check_failure("{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% set x = s.isalpha() %}{% endfor %}", "{}",
                  RP_ERR_LIMIT, "steps");
    check_failure("{% set l = [none] * 1000000 %}{% for i in range(99999) %}{% set x = l|select|list %}{% endfor %}",
                  "{}", RP_ERR_LIMIT, "steps");
    check_failure("{% for i in range(10000) %}{% set x = strftime_now('%s' * 100) %}{% endfor %}", "{}", RP_ERR_LIMIT,
                  "steps");
    check_failure("{{ ('a' * 2000000).rfind('a' ~ 'b' * 1000000) }}", "{}", RP_ERR_LIMIT, "steps");
    check_text("{{ ('{0[a}' * 500000).format(1) }}", "{}", "");
    check_text("{{ ('a' * 5000000).find('a' * 2500000 ~ 'b') }}", "{}", "-1");
    check_text("{{ ('a' * 1000000).count('a' * 500) }} {{ 'xaaa'.rfind('aa') }} {{ 'abcabc'.rsplit('bc', 1) }} {{ "
               "''.rfind('') }}",
               "{}", "2000 2 ['abca', ''] 0");
}

static bool goes_on(void *user) { return --*(int *)user > 0; }

static void renderings_share_their_steps_and_can_be_cancelled(void **state) {
    (void)state;
    const char *source = "{% for a in range(1000) %}{% for b in range(n) %}{% set x = b %}{% endfor %}{% endfor %}";
    rp_template_options options = rp_template_options_defaults();
    uint64_t steps = 1000000;
    int questions = 2;
    rp_template *t;
    rp_template_text *text;
    rp_error err = {0};
    options.steps_left = &steps;
    assert_int_equal(rp_template_new(&t, source, strlen(source), "t", NULL), RP_OK);
    assert_int_equal(rp_template_render(t, "{\"n\": 10}", 9, &options, &text, &err), RP_OK);
    assert_true(steps > 500000 && steps < 990000);
    rp_template_text_free(text);
    assert_int_equal(rp_template_render(t, "{\"n\": 1000}", 11, &options, &text, &err), RP_ERR_LIMIT);
    assert_int_equal(steps, 0);
    assert_int_equal(rp_template_render(t, "{\"n\": 1}", 8, &options, &text, &err), RP_ERR_LIMIT);
    options.steps_left = NULL;
    options.on_look = goes_on;
    options.user = &questions;
    assert_int_equal(rp_template_render(t, "{\"n\": 1000}", 11, &options, &text, &err), RP_ERR_CANCELLED);
    assert_null(text);
    assert_int_equal(questions, 0);
    rp_template_free(t);
}

/* Keys that share 256 slots of the table of a dictionary (dict_slot of template_values.c): without a limit each of them
   takes longer. */
static void chosen_keys_are_limited(void **state) {
    (void)state;
    enum { N = 24000,
           KEY_BYTES = 24 };
    char *json = malloc(N * KEY_BYTES + 16);
    size_t used = (size_t)sprintf(json, "{\"d\": {");
    for (unsigned number = 0, n = 0; n < N; number++) {
        char key[KEY_BYTES];
        size_t length = (size_t)sprintf(key, "%u", number);
        uint64_t hash = base_table_hash(key, length), mixed = (hash ^ hash >> 29) * UINT64_C(0x9e3779b97f4a7c15);
        if ((mixed >> 20 & 0x3ffff) >= 256) continue;
        used += (size_t)sprintf(json + used, "%s\"%s\": 0", n++ > 0 ? ", " : "", key);
    }
    sprintf(json + used, "}}");
    check_failure("{{ d|length }}", json, RP_ERR_LIMIT, "steps");
    free(json);
}

static void depth_is_limited(void **state) {
    (void)state;
    check_failure("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}", RP_ERR_LIMIT, "RecursionError");
    check_failure("{% set n = namespace() %}{% set n.n = n %}{{ n }}", "{}", RP_ERR_LIMIT, "RecursionError");
    check_failure("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", "{}", RP_ERR_LIMIT, "RecursionError");
    check_failure("{% set n = namespace(l=[]) %}{% for i in range(500) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}",
                  "{}", RP_ERR_LIMIT, "RecursionError");
    check_failure(
        "{% set n = namespace(l=[]) %}{% for i in range(500) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l|tojson }}", "{}",
        RP_ERR_LIMIT, "RecursionError");
    check_failure(
        "{% set n = namespace(l=(1,)) %}{% for i in range(500) %}{% set n.l = (n.l,) %}{% endfor %}{{ {n.l: 1} }}",
        "{}", RP_ERR_LIMIT, "RecursionError");
    check_failure("{% set n = namespace(l=(1,), m=(1,)) %}{% for i in range(500) %}{% set n.l = (n.l,) %}{% set n.m = "
                  "(n.m,) %}{% endfor %}{{ n.l "
                  "< n.m }}{{ n.l == n.m }}",
                  "{}", RP_ERR_LIMIT, "RecursionError");
}

static char *repeated(const char *before, const char *middle, const char *after, int n) {
    size_t size = (size_t)n * (strlen(before) + strlen(after)) + strlen(middle) + 1;
    char *all = malloc(size), *at = all;
    for (int i = 0; i < n; i++) at = stpcpy(at, before);
    at = stpcpy(at, middle);
    for (int i = 0; i < n; i++) at = stpcpy(at, after);
    return all;
}

static void nested_sources_and_inputs_end(void **state) {
    (void)state;
    static const char *const nests[][3] = {
        {"{{ ", "1", " }}"},
        {"(", "1", ")"},
        {"[", "1", "]"},
        {"{1: ", "1", "}"},
        {"-", "1", ""},
        {"not ", "1", ""},
        {"1 if 1 else ", "1", ""},
        {"f(", "1", ")"},
        {"1 + ", "1", ""},
        {"1 ~ ", "1", ""},
        {"1 and ", "1", ""},
        {"1 ** ", "1", ""},
        {"", "1", "|abs"},
        {"", "x", ".a"},
        {"", "x", "[0]"},
        {"", "1", " is none"},
        {"", "x", "()"},
        {"1 == ", "1", ""},
        {"1 in ", "1", ""},
    };
    static const char *const blocks[][3] = {
        {"{% if 1 %}", "", "{% endif %}"},
        {"{% for i in x %}", "", "{% endfor %}"},
        {"{% if 0 %}{% elif 1 %}", "", ""},
        {"{% set a %}", "", "{% endset %}"},
        {"{% filter upper %}", "", "{% endfilter %}"},
        {"{% with %}", "", "{% endwith %}"},
        {"{% macro m() %}", "", "{% endmacro %}"},
        {"{% call m() %}", "", "{% endcall %}"},
        {"{% for (", "a", ",) in x %}{% endfor %}"},
    };
    for (int n = 100; n <= 100000; n *= 10) {
        for (size_t i = 0; i < BASE_ARRAY_LEN(nests) + BASE_ARRAY_LEN(blocks); i++) {
            bool expression = i < BASE_ARRAY_LEN(nests);
            const char *const *nest = expression ? nests[i] : blocks[i - BASE_ARRAY_LEN(nests)];
            char *inner = repeated(nest[0], nest[1], nest[2], n), *source = malloc(strlen(inner) + 16);
            sprintf(source, expression ? "{{ %s }}" : "%s", inner);
            rp_template *t;
            rp_error err = {0};
            rp_template_text *text;
            int rc = rp_template_new(&t, source, strlen(source), "t", &err);
            if (!rc) {
                if (rp_template_render(t, "{\"x\": []}", 9, NULL, &text, &err) == RP_OK) rp_template_text_free(text);
                rp_template_free(t);
            } else assert_true(rc == RP_ERR_LIMIT || rc == RP_ERR_SYNTAX || rc == RP_ERR_UNSUPPORTED);
            free(source);
            free(inner);
        }
        char *json = repeated("[", "", "]", n), *input = malloc(strlen(json) + 16);
        sprintf(input, "{\"x\": %s}", json);
        if (n > 200) check_failure("{{ x|length }}", input, RP_ERR_LIMIT, "nested");
        free(input);
        free(json);
    }
}

/* The deepest of everything on a small stack. */
static void *on_small_stack(void *unused) {
    (void)unused;
    depth_is_limited(NULL);
    nested_sources_and_inputs_end(NULL);
    return unused;
}

static void a_small_stack_suffices(void **state) {
    (void)state;
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    assert_int_equal(pthread_attr_setstacksize(&attributes, (size_t)512 << 10), 0);
    assert_int_equal(pthread_create(&thread, &attributes, on_small_stack, NULL), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
}

static void malformed_input_is_an_error(void **state) {
    (void)state;
    check_failure("x", "", RP_ERR_INVALID, "");
    check_failure("x", "[]", RP_ERR_INVALID, "JSON object");
    check_failure("x", "{\"a\": 1", RP_ERR_INVALID, "");
    check_failure("x", "{\"a\": 1, \"a\": 2}", RP_ERR_INVALID, "duplicate");
    check_failure("x", "{\"a\": \"\xff\"}", RP_ERR_INVALID, "decode");
    check_failure("x", "{\"a\": 0123456789012345678901234567890}", RP_ERR_INVALID, "token");
    check_failure("\xff", "{}", RP_ERR_SYNTAX, "UTF-8");
    check_failure("a\nb{{ x", "{}", RP_ERR_SYNTAX, "t:2");
    check_failure("a\n\n{{ 1 + none }}", "{}", RP_ERR_INVALID, "t:3: TypeError");
    check_failure("{{ raise_exception('a\nb') }}", "{}", RP_ERR_INVALID, "TemplateError");
    rp_template *t;
    rp_template_text *text;
    assert_int_equal(rp_template_new(&t, "a\0b", 3, "t", NULL), RP_ERR_SYNTAX);
    assert_int_equal(rp_template_new(NULL, "a", 1, "t", NULL), RP_ERR_INVALID);
    assert_int_equal(rp_template_new(&t, NULL, 0, "t", NULL), RP_OK);
    assert_int_equal(rp_template_render(t, "{}", 2, NULL, &text, NULL), RP_OK);
    assert_int_equal(text->n, 0);
    rp_template_text_free(text);
    assert_true(!rp_template_uses(t, "tools"));
    rp_template_free(t);
    t = parse("{{ tools }}");
    assert_true(rp_template_uses(t, "tools") && !rp_template_uses(t, "documents"));
    rp_template_free(t);
}

/* ---- Memory and threads ---- */

#define EVERYTHING \
    "{% macro m(a, b=[1]) %}{{ a|upper }}{{ b }}{{ caller() }}{{ varargs }}{% endmacro %}{% set ns = namespace(x=1) " \
    "%}{% for k, v in d|dictsort " \
    "%}{% set ns.x = ns.x + v %}{{ loop.index }}" \
    "{{ k }}{% endfor %}{% call m('x', 2, 3) %}{{ ns.x }}{% endcall %}{{ d|tojson(indent=2) }}{{ " \
    "'%s-%5d'|format('a', 5) }}{{ 'a b " \
    "c'.split()|map('upper')|join(',') }}" \
    "{% filter indent %}a\nb{% endfilter %}{{ s[::-1] }}{{ 'x{}y{:>5}'.format(s, 1) }}{{ [3, 1, 2]|sort }}{{ s|e " \
    "}}{{ d.items()|list }}{{ " \
    "[s]|groupby(0)|list }}"
#define EVERYTHING_INPUT \
    "{\"d\": {\"a\": 1, \"b\": 2, \"c\": 3, \"d\": 4, \"e\": 5, \"f\": 6, \"g\": 7, \"h\": 8, \"i\": 9, \"j\": 10}, " \
    "\"s\": \"<user> \xc3\xa9\"}"

static void every_failed_allocation_is_a_clean_error(void **state) {
    (void)state;
    rp_template *t;
    rp_template_text *text;
    int rc = RP_ERR_MEMORY;
    for (uint64_t n = 1; rc; n++) {
        rp_error err = {0};
        base_alloc_fail_at(n, n % 2 == 0);
        rc = rp_template_new(&t, EVERYTHING, strlen(EVERYTHING), "t", &err);
        base_alloc_fail_at(0, 0);
        if (rc && (rc != RP_ERR_MEMORY || t)) fail_msg("parsing, allocation %d: %s", (int)n, err.message);
    }
    rc = RP_ERR_MEMORY;
    for (uint64_t n = 1; rc; n++) {
        rp_error err = {0};
        base_alloc_fail_at(n, n % 2 == 0);
        rc = rp_template_render(t, EVERYTHING_INPUT, strlen(EVERYTHING_INPUT), NULL, &text, &err);
        base_alloc_fail_at(0, 0);
        if (rc && (rc != RP_ERR_MEMORY || text)) fail_msg("rendering, allocation %d: %s", (int)n, err.message);
    }
    rp_template_text_free(text);
    rp_template_free(t);
}

static void *render_often(void *t) {
    char *first = NULL;
    for (int i = 0; i < 100; i++) {
        rp_template_text *text;
        if (rp_template_render(t, EVERYTHING_INPUT, strlen(EVERYTHING_INPUT), NULL, &text, NULL)) return NULL;
        if (!first) first = strdup(text->bytes);
        if (strcmp(first, text->bytes) != 0) abort();
        rp_template_text_free(text);
    }
    return first;
}

static void threads_share_a_template(void **state) {
    (void)state;
    rp_template *t = parse(EVERYTHING);
    pthread_t threads[2];
    void *texts[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, render_often, t), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], &texts[i]);
    assert_non_null(texts[0]);
    assert_string_equal(texts[0], texts[1]);
    free(texts[0]);
    free(texts[1]);
    rp_template_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spread_arguments),
        cmocka_unit_test(origins_are_kept),
        cmocka_unit_test(integers_beyond_64_bits),
        cmocka_unit_test(offsets_point_into_the_string),
        cmocka_unit_test(no_expression_launders_user_text),
        cmocka_unit_test(no_published_template_trusts_user_text),
        cmocka_unit_test(usual_roles_and_tokens_are_trusted_at_their_place_only),
        cmocka_unit_test(texts_are_trusted_by_their_origin),
        cmocka_unit_test(limits_end_a_rendering),
        cmocka_unit_test(work_is_counted_in_bytes),
        cmocka_unit_test(renderings_share_their_steps_and_can_be_cancelled),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(chosen_keys_are_limited),
        cmocka_unit_test(nested_sources_and_inputs_end),
        cmocka_unit_test(a_small_stack_suffices),
        cmocka_unit_test(malformed_input_is_an_error),
        cmocka_unit_test(every_failed_allocation_is_a_clean_error),
        cmocka_unit_test(threads_share_a_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
