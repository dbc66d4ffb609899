/* SPDX-License-Identifier: Apache-2.0 */
/* test_regex.c: regular expressions as grammars. The language is PCRE2's: of texts by hand, and of random patterns and
 * texts; as a whole text and as the content of a JSON string; by the grammar and by regex_matches. What is not
 * supported is refused with its place.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/memory.h"
#include "grammar/matcher.h"
#include "structured/json_grammar.h"
#include "structured/regex.h"
#include "support/seed.h"
#include "support/tiny_random.h"

#define GRAMMAR_BYTES ((size_t)1 << 20)

/* ---- grammars ---- */

typedef struct language {
    grammar *g;
    char *text;
} language;

static language language_of(const regex *r, regex_place place) {
    language l = {0};
    rp_error err;
    json_grammar *rules = json_grammar_new(); /* for `char` */
    base_buffer text = BASE_BUFFER(GRAMMAR_BYTES);
    assert_non_null(rules);
    assert_int_equal(base_buffer_append_str(&text, json_grammar_text(rules)->data), 0);
    assert_int_equal(base_buffer_append_str(&text, "root ::="), 0);
    assert_int_equal(regex_put(r, place, &text), 0);
    l.text = base_buffer_take(&text);
    if (grammar_new(&l.g, l.text, &err)) fail_msg("%s in\n%s", err.message, l.text);
    json_grammar_free(rules);
    return l;
}

static void language_free(language *l) {
    grammar_free(l->g);
    base_free(l->text);
}

static bool language_has(const language *l, const char *text) {
    matcher m = {0};
    rp_error err;
    bool fits;
    if (matcher_open(&m, l->g, NULL, &err)) fail_msg("%s", err.message);
    int32_t place = m.place;
    assert_int_equal(matcher_walk(&m, &place, text, strlen(text), &fits), 0);
    fits = fits && m.pool.places[place].may_end;
    matcher_close(&m);
    return fits;
}

/* ---- PCRE2 ---- */

static bool pcre_matches(const char *pattern, const char *text, bool whole) {
    int code;
    PCRE2_SIZE at;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    pcre2_set_newline(context, PCRE2_NEWLINE_ANYCRLF); /* of what '.' does not match */
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_BSUX, &code, &at, context);
    pcre2_compile_context_free(context);
    if (!re) fail_msg("PCRE2 refuses %s at %zu", pattern, (size_t)at);
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(re, NULL);
    int n =
        pcre2_match(re, (PCRE2_SPTR)text, strlen(text), 0, whole ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0, data, NULL);
    if (n < 0 && n != PCRE2_ERROR_NOMATCH) fail_msg("PCRE2 gives %d for %s", n, pattern);
    pcre2_match_data_free(data);
    pcre2_code_free(re);
    return n >= 0;
}

/* The content of a JSON string, as json.dumps writes it; a DEL escaped. */
static char *json_content(const char *text) {
    json_t *s = json_string(text);
    char *dump = json_dumps(s, JSON_ENCODE_ANY), *out = calloc(6 * strlen(text) + 8, 1);
    size_t n = 0;
    for (const char *c = dump + 1; c[1]; c++) {
        if (*c == 0x7f) n += (size_t)sprintf(out + n, "\\u007f");
        else out[n++] = *c;
    }
    free(dump);
    json_decref(s);
    return out;
}

typedef struct counts {
    int fit, misfit;
} counts;

/* All judges agree about the pattern and each text. */
static void check(const char *pattern, const char *const *texts, size_t n, counts *seen) {
    char why[REGEX_WHY_BYTES];
    regex *r = regex_parse(pattern, why);
    if (!r) fail_msg("%s: %s", pattern, why);
    language whole = language_of(r, REGEX_WHOLE), json = language_of(r, REGEX_JSON);
    int least, most;
    regex_lengths(r, &least, &most);
    for (size_t i = 0; i < n; i++) {
        bool all = pcre_matches(pattern, texts[i], true), some = pcre_matches(pattern, texts[i], false);
        char *content = json_content(texts[i]);
        int length = 0;
        for (const char *c = texts[i]; *c; c++) length += ((unsigned char)*c & 0xc0) != 0x80;
        if (language_has(&whole, texts[i]) != all)
            fail_msg("/%s/ %s all of '%s':\n%s", pattern, all ? "refuses" : "accepts", texts[i], whole.text);
        if (language_has(&json, content) != some)
            fail_msg("/%s/ %s in \"%s\":\n%s", pattern, some ? "refuses" : "accepts", content, json.text);
        if (regex_matches(r, texts[i]) != some) fail_msg("/%s/: regex_matches is wrong about '%s'", pattern, texts[i]);
        if (some && (length < least || (most >= 0 && length > most)))
            fail_msg("/%s/: '%s' is not of %d to %d characters", pattern, texts[i], least, most);
        *(some ? &seen->fit : &seen->misfit) += 1;
        free(content);
    }
    language_free(&whole);
    language_free(&json);
    regex_free(r);
}

/* ---- by hand ---- */

static void patterns_by_hand(void **state) {
    (void)state;
    static const char *const patterns[] = {
        "",
        "a",
        "abc",
        "a|b|",
        "^a$",
        "^a",
        "a$",
        "^(a|bc)$",
        "^(?:a|^b)$",
        "(^a$)|b",
        "^$",
        "a*",
        "a+?b",
        "(ab){2,3}",
        "a{0}",
        "a{2}",
        "a{2,}",
        "[a-c]+",
        "[^a-c]",
        "[\\d_-]+",
        "\\d\\D\\w\\W\\s\\S",
        ".",
        "^.$",
        "\\.\\*\\+\\?\\(\\)\\[\\]\\{\\}\\^\\$\\|\\/\\-\\\\",
        "\"",
        "^\\\\$",
        "[\"\\\\]",
        "\\n\\r\\t\\f\\v",
        "^[\\x00-\\x1f]*$",
        "\\x41\\u0042",
        "\\u00e9|\\u20ac",
        "[\\u00e0-\\u00ff]",
        "é+",
        "(?<year>\\d{4})-(?P<month>\\d\\d)",
        "(a|(b|(c)))+d",
        "((a*)*)*",
        "(a?){3}",
        "a{,",
        "a{x}",
        "]",
        "}",
        "^[\\]\\-^]$",
        "[^\"]*",
        "[^\\\\\"\\x00-\\x1F]",
        "\\x7f",
        "[\\x7e-\\x80]",
        "^[a-z]+@[a-z]+\\.[a-z]{2,3}$",
        "^(foo|bar)*$",
        "(?:)",
        "^|a",
        "$",
        "[\\b]",
    };
    static const char *const texts[] = {
        "",
        "a",
        "b",
        "c",
        "d",
        "ab",
        "abc",
        "bc",
        "aa",
        "aab",
        "ababab",
        "abab",
        "1",
        "1a",
        "_-9",
        "1ab- x",
        "\n",
        "\r",
        "\t",
        "\"",
        "\\",
        "a\"b",
        ".*+?()[]{}^$|/-\\",
        "\n\r\t\f\v",
        "AB",
        "é",
        "éé",
        "😀",
        "2024-07",
        "abcd",
        "cd",
        "]",
        "}",
        "a{,",
        "a{x}",
        "^",
        "-",
        "\x7f",
        "~",
        "\x01",
        "me@it.org",
        "foobar",
        " ",
        "\b",
        "xay",
        "à",
    };
    counts seen = {0};
    for (size_t i = 0; i < BASE_ARRAY_LEN(patterns); i++) { check(patterns[i], texts, BASE_ARRAY_LEN(texts), &seen); }
    char why[REGEX_WHY_BYTES];
    regex *r = regex_parse("^\\u{1F600}$", why); /* PCRE2 has this as \x{...} */
    assert_true(regex_matches(r, "😀"));
    regex_free(r);
    assert_true(seen.fit > 400 && seen.misfit > 400);
}

/* ---- refused ---- */

static void patterns_that_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *says;
    } wrong[] = {
        {"a(?=b)", "character 4: look-ahead"},
        {"(?!b)", "look-ahead"},
        {"(?<=b)", "look-behind"},
        {"(?<!b)", "look-behind"},
        {"(?i)a", "flags"},
        {"(?P=x)", "(?P"},
        {"(a)\\1", "back-references"},
        {"\\bword", "\\b is not supported"},
        {"\\A", "\\A"},
        {"\\p{L}", "Unicode properties"},
        {"a++", "possessive"},
        {"a**", "quantifier"},
        {"*a", "nothing is before"},
        {"(", "')' is missing"},
        {")", "')' has no '('"},
        {"[a", "']' is missing"},
        {"[]", "write \\]"},
        {"[^]", "write \\]"},
        {"[b-a]", "descending"},
        {"a{3,2}", "descending"},
        {"a{,3}", "write {0,n}"},
        {"a{9999}", "limited to 2000"},
        {"[[:alpha:]]", "POSIX"},
        {"\\", "backslash ends"},
        {"[\\", "backslash ends"},
        {"\\q", "\\q is not supported"},
        {"\\0", "NUL"},
        {"\\01", "octal"},
        {"\\x00", "NUL"},
        {"\\x4", "hexadecimal"},
        {"\\u{}", "\\u{...}"},
        {"\\u{110000}", "above U+10FFFF"},
        {"\\uD800", "surrogate"},
        {"a^b", "'^' is supported only at the beginning"},
        {"a$b", "'$' is supported only at the end"},
        {"(a$)b", "'$'"},
        {"x(^a|b)", "'^'"},
        {"^*", "anchor cannot be repeated"},
        {"[a-\\d]", "range cannot end"},
        {"\xff", "not UTF-8"},
    };
    char why[REGEX_WHY_BYTES];
    for (size_t i = 0; i < BASE_ARRAY_LEN(wrong); i++) {
        regex *r = regex_parse(wrong[i].pattern, why);
        if (r) fail_msg("%s is accepted", wrong[i].pattern);
        if (!strstr(why, wrong[i].says)) fail_msg("%s: '%s' does not say '%s'", wrong[i].pattern, why, wrong[i].says);
        assert_memory_equal(why, "character ", 10);
    }
    char deep[2 * REGEX_MAX_DEPTH + 8] = {0};
    memset(deep, '(', REGEX_MAX_DEPTH + 1);
    assert_null(regex_parse(deep, why));
    assert_non_null(strstr(why, "nested"));
    char *longest = malloc(REGEX_MAX_BYTES + 2);
    memset(longest, 'a', REGEX_MAX_BYTES + 1);
    longest[REGEX_MAX_BYTES + 1] = '\0';
    assert_null(regex_parse(longest, why));
    free(longest);
}

/* ---- lengths, overlap ---- */

static void lengths(void **state) {
    (void)state;
    static const struct {
        const char *pattern;
        int least, most;
        /* repeated */
    } cases[] = {
        {"^a{2,5}$", 2, 5},
        {"^(ab|c)d?$", 1, 3},
        {"^a*$", 0, -1},
        {"a", 1, -1},
        {"^$", 0, 0},
        {"^(a|bcd)$|^e{7}$", 1, 7},
        {"^(a{0,3}){2}$", 0, 6},
    };
    char why[REGEX_WHY_BYTES];
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        int least, most;
        regex *r = regex_parse(cases[i].pattern, why);
        regex_lengths(r, &least, &most);
        assert_int_equal(least, cases[i].least);
        assert_int_equal(most, cases[i].most);
        regex_free(r);
    }
    static const struct {
        const char *pattern;
        int min, max;
        bool limited;
        const char *fit, *misfit;
    } limits[] = {{"^[a-z]+$", 0, 3, true, "abc", "abcd"}, {"^[a-z]*$", 2, -1, true, "ab", "a"}, /* bounded */
                  {"^[a-z]{2,4}$", 1, 9, true, "abcd", "a"},                                     /* no text is left */
                  {"^[a-z]{2,4}$", 5, 9, false, "abcd", "a"},
                  {"a", 1, -1, true, "xax", "b"},
                  {"a", 2, -1, false, "a", "b"}};
    for (size_t i = 0; i < BASE_ARRAY_LEN(limits); i++) {
        regex *r = regex_parse(limits[i].pattern, why);
        assert_int_equal(regex_limit(r, limits[i].min, limits[i].max), limits[i].limited);
        assert_true(regex_matches(r, limits[i].fit));
        assert_false(regex_matches(r, limits[i].misfit));
        regex_free(r);
    }
}

static void overlaps(void **state) {
    (void)state;
    static const struct {
        const char *a, *b;
        bool overlap;
    } cases[] = {{"^a", "^b", false},
                 {"^ab", "^ac", false},
                 {"^ab", "^a", true},
                 {"a", "^b", true},
                 {"^[a-c]", "^[d-f]|^x", false}, /* sets */
                 {"^[a-c]", "^[c-f]", true},
                 {"^a*", "^b", true}};
    char why[REGEX_WHY_BYTES];
    for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
        regex *a = regex_parse(cases[i].a, why), *b = regex_parse(cases[i].b, why);
        assert_int_equal(regex_may_overlap(a, b), cases[i].overlap);
        assert_int_equal(regex_may_overlap(b, a), cases[i].overlap);
        regex_free(a);
        regex_free(b);
    }
}

/* ---- random ---- */

static void put_random(tiny_random *random, char *out, size_t size, int depth) {
    static const char *const atoms[] = {"a", "b", "\\\"", "\\\\", "[ab]", "[^a]", "\\d",
                                        "\\w", ".", "\\n", "é", "[a-c\\\\]", "\\s"};
    static const char *const times[] = {"", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,}"};
    size_t used = strlen(out);
    int n = (int)(tiny_random_u64(random) % 3) + 1;
    for (int i = 0; i < n && used + 64 < size; i++, used = strlen(out)) {
        if (i > 0 && tiny_random_u64(random) % 4 == 0) strcat(out, "|");
        if (depth > 0 && tiny_random_u64(random) % 3 == 0) {
            strcat(out, tiny_random_u64(random) % 2 ? "(" : "(?:");
            put_random(random, out, size, depth - 1);
            strcat(out, ")");
        } else strcat(out, atoms[tiny_random_u64(random) % BASE_ARRAY_LEN(atoms)]);
        strcat(out, times[tiny_random_u64(random) % BASE_ARRAY_LEN(times)]);
    }
}

static void random_patterns(void **state) {
    (void)state;
    static const char *const letters[] = {"a", "b", "c", "\"", "\\", "1", "é", "\n", " ", "_"};
    const uint64_t seed = test_seed("random_patterns", 1);
    tiny_random random = {seed};
    counts seen = {0};
    for (int i = 0; i < 600; i++) {
        char pattern[512] = "", storage[12][64];
        const char *texts[12];
        const bool begins = tiny_random_u64(&random) % 3 == 0, ends = tiny_random_u64(&random) % 3 == 0;
        if (begins || ends) strcat(pattern, begins ? "^(" : "(");
        put_random(&random, pattern, sizeof(pattern) - 8, 2);
        if (begins || ends) strcat(pattern, ends ? ")$" : ")");
        for (int k = 0; k < 12; k++) {
            storage[k][0] = '\0';
            for (int n = (int)(tiny_random_u64(&random) % 7); n > 0; n--)
                strcat(storage[k], letters[tiny_random_u64(&random) % BASE_ARRAY_LEN(letters)]);
            texts[k] = storage[k];
        }
        check(pattern, texts, 12, &seen);
    }
    assert_true(seen.fit > 500 && seen.misfit > 500);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_by_hand),
        cmocka_unit_test(patterns_that_are_refused),
        cmocka_unit_test(lengths),
        cmocka_unit_test(overlaps),
        cmocka_unit_test(random_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
