/* SPDX-License-Identifier: Apache-2.0 */
/* test_grammar.c: GBNF parsing: accepted syntax and its meaning, refused syntax and its position; matching byte by byte
 * against the slow search of random_grammar.h; masks of the trie against tokens one by one; triggers; limits; failing
 * allocations; a small pool. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "grammar/matcher.h"
#include "support/oracle_run.h"
#include "support/random_grammar.h"
#include "support/seed.h"

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

static uint64_t seed;

/* ---- one grammar and its matcher ---- */

typedef struct fixture {
    grammar *g;
    matcher m;
} fixture;

static void open_fixture(fixture *f, const char *text, const char *trigger) {
    rp_error err = {0};
    *f = (fixture){0};
    if (grammar_new(&f->g, text, &err) || matcher_open(&f->m, f->g, trigger, &err))
        fail_msg("%s\n%s", err.message, text);
}

static void close_fixture(fixture *f) {
    matcher_close(&f->m);
    grammar_free(f->g);
}

static bool takes(fixture *f, const char *bytes, size_t n) {
    bool fits;
    assert_int_equal(matcher_walk(&f->m, &f->m.place, bytes, n, &fits), RP_OK);
    return fits;
}

/* 2: the grammar matches the answer; 1: the answer is a prefix of a match; 0: neither. */
static int judge(const char *text, const char *trigger, const char *answer) {
    fixture f;
    open_fixture(&f, text, trigger);
    int verdict = takes(&f, answer, strlen(answer)) ? 1 + matcher_may_end(&f.m) : 0;
    close_fixture(&f);
    return verdict;
}

/* ---- accepted syntax ---- */

static void what_users_write_means_what_it_should(void **state) {
    (void)state;
    static const struct {
        const char *grammar, *answer;
        int verdict;
    } cases[] = {
        {"root ::= \"yes\" | \"no\"", "yes", 2},
        {"root ::= \"yes\" | \"no\"", "ye", 1},
        {"root ::= \"yes\" | \"no\"", "yess", 0},
        {"# a comment\n\nroot  ::= # another\n  \"a\" # and one\n", "a", 2},
        {"root ::= \"a\"\n  | \"b\"\n\t|\"c\"\nother ::= \"d\"", "c", 2},
        {"root ::= (\"a\"\n \"b\"\n| \"c\")+", "abc", 2},
        {"root ::= a-1 a-1\r\na-1 ::= [x]\r\n", "xx", 2},
        {"root ::= [a-cx-]*", "abc-x", 2},
        {"root ::= [^\"\\\\\\x7F\\x00-\\x1F]*", "a\xc3\xa9\xf0\x9f\x98\x80", 2},
        {"root ::= [^\"\\\\\\x7F\\x00-\\x1F]*", "a\n", 0},
        {"root ::= [^a]", "a", 0},
        {"root ::= [\\]\\[\\-\\^\\\\]+", "[]-^\\", 2},
        {"root ::= \"\\\"\\n\\t\\r\\\\\"", "\"\n\t\r\\", 2},
        {"root ::= \"\\xE9\\u20AC\\U0001F600\"", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 2},
        {"root ::= .", "\n", 2},
        {"root ::= .", "\xe2\x82\xac", 2},
        {"root ::= .", "\xe2\x82", 1},
        {"root ::= .*", "\xed\xa0\x80", 0}, /* half of a surrogate pair */
        {"root ::= .*", "\xc0\x80", 0},
        {"root ::= .*", "\xf4\x90\x80\x80", 0},
        {"root ::= .*", "\xff", 0},
        {"root ::= [\\u0410-\\u044F]+", "\xd0\x9f\xd1\x80", 2},
        {"root ::= [\\u0410-\\u044F]+", "\xd0\x8f", 0},
        {"root ::= [\\uFFFF-\\U00010000]", "\xf0\x90\x80\x80", 2},
        {"root ::= [\\uD7FF-\\uE000]", "\xee\x80\x80", 2},
        {"root ::= \"ab\"{2}", "abab", 2},
        {"root ::= \"ab\"{2}", "ababa", 0},
        {"root ::= [0-9]{2,}", "1", 1},
        {"root ::= [0-9]{2,}", "12345", 2},
        {"root ::= [0-9]{ 1 , 3 } \"!\"?", "123!", 2},
        {"root ::= [0-9]{1,3}", "1234", 0},
        {"root ::= \"a\"{0}", "", 2},
        {"root ::= (\"\" | ([a]?)*)* \"b\"", "aab", 2},
        {"root ::= \"a\" *", "aaa", 2},
        {"root ::= \"\"", "", 2},
        {"root ::=", "", 2},
        {"root ::= | \"a\"", "", 2},
        {"root ::= \"(\" root \")\" | \"\"", "((()", 1},
        {"root ::= \"(\" root \")\" | \"\"", "(())", 2},
        {"list ::= item | item \",\" list\nitem ::= [a-z]+\nroot ::= list", "ab,c,d", 2},
    };
    for (size_t i = 0; i < LEN(cases); i++)
        if (judge(cases[i].grammar, NULL, cases[i].answer) != cases[i].verdict)
            fail_msg("%s: '%s' is %d", cases[i].grammar, cases[i].answer,
                     judge(cases[i].grammar, NULL, cases[i].answer));
}

static const char json_text[] =
    "root   ::= object\n"
    "value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
    "object ::= \"{\" ws ( string \":\" ws value (\",\" ws string \":\" ws value)* )? \"}\" ws\n"
    "array  ::= \"[\" ws ( value (\",\" ws value)* )? \"]\" ws\n"
    "string ::= \"\\\"\" ( [^\"\\\\\\x7F\\x00-\\x1F] | "
    "\"\\\\\" ([\"\\\\bfnrt/] | \"u\" [0-9a-fA-F]{4}) )* \"\\\"\" ws\n"
    "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws\n"
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n";

static void json_is_followed(void **state) {
    (void)state;
    assert_int_equal(judge(json_text, NULL, "{\"a\": [1, -2.5e3, \"\\u00e9\\n\xc3\xa9\"],\n  \"b\": {\"c\": null}}"),
                     2);
    assert_int_equal(judge(json_text, NULL, "{\"a\": [1, -2.5e3, \"\\u00e"), 1);
    assert_int_equal(judge(json_text, NULL, "{\"a\": [1, -2.5e3, \"\\u00g"), 0);
    assert_int_equal(judge(json_text, NULL, "{\"a\": 01"), 0);
    assert_int_equal(judge(json_text, NULL, "{\"a\"}"), 0);
}

/* ---- refused syntax ---- */

static void expect_refused(const char *text, rp_code code, const char *says) {
    grammar *g;
    matcher m = {0};
    rp_error err = {0};
    int rc = grammar_new(&g, text, &err);
    if (rc == RP_OK) rc = matcher_open(&m, g, NULL, &err);
    matcher_close(&m);
    grammar_free(g);
    if (rc != (int)code || !strstr(err.message, says))
        fail_msg("%.200s: %d '%s' does not say '%s'", text, rc, err.message, says);
}

static void what_is_wrong_is_said_with_its_place(void **state) {
    (void)state;
    static const struct {
        const char *grammar, *says;
    } cases[] = {
        {"", "grammar:1:1: the rule 'root', the start of every answer, is missing"},
        {"start ::= \"a\"", "grammar:1:1: the rule 'root', the start of every answer, is missing"},
        {"root ::= \"a\n", "grammar:1:10: unterminated string literal"},
        {"root ::= [a", "grammar:1:10: unterminated character class"},
        {"root ::= []", "grammar:1:10: empty character class"},
        {"root ::= [^\\x00-\\U0010FFFF]", "grammar:1:10: empty character class"},
        {"root ::= [z-a]", "grammar:1:11: descending range from U+007A to U+0061"},
        {"root ::= (\"a\"", "grammar:1:14: expected ')' or the rest of the group, found the end"},
        {"root ::= \"a\")", "grammar:1:13: expected '|', the rest of the rule, or the end of the line, found ')'"},
        {"root ::= *", "grammar:1:10: expected something to repeat, found '*'"},
        {"root ::= \"a\" | +", "grammar:1:16: expected something to repeat"},
        {"root ::= \"a\"{", "grammar:1:14: expected a repetition count, found the end"},
        {"root ::= \"a\"{,2}", "grammar:1:14: expected a repetition count, found ','"},
        {"root ::= \"a\"{3,2}", "grammar:1:13: {3,2}: write the smaller number first"},
        {"root ::= \"a\"{2", "grammar:1:15: expected '}'"},
        {"root ::= \"\\q\"", "grammar:1:11: unknown escape"},
        {"root ::= \"\\x4\"", "grammar:1:14: expected a hexadecimal digit, found '\"'"},
        {"root ::= \"\\uD800\"", "grammar:1:11: U+D800 is not a character, but half of a UTF-16 surrogate pair"},
        {"root ::= \"\\U00110000\"", "grammar:1:11: U+110000 is not a character"},
        {"root ::= \"\xff\"", "grammar:1:11: byte 0xff is not UTF-8"},
        {"root := \"a\"", "grammar:1:6: expected '::=', found ':'"},
        {"# x\n  root ::= a_b", "grammar:2:13: expected '|', the rest of the rule, or the end of the line, found '_'"},
        {"root ::= vlaue\nvalue ::= \"a\"", "grammar:1:10: unknown rule 'vlaue': did you mean 'value'?"},
        {"root ::= \"\xc3\xa9\" zzzzzz\nvalue ::= \"a\"", "grammar:1:14: unknown rule 'zzzzzz'"},
        {"root ::= \"a\"\nroot ::= \"b\"", "grammar:2:1: duplicate rule 'root'"},
        {"root ::= root \"a\" | \"b\"", "grammar:1:1: left recursion: the rule 'root' begins with itself"},
        {"root ::= a\na ::= \"x\" | b\nb ::= ws? [ ]* a \"y\"\nws ::= \"\"", "begins with itself"},
        {"root ::= \"a\"\nb ::= c\nc ::= (\"\" | b)* d\nd ::= \"d\"", "begins with itself"},
    };
    for (size_t i = 0; i < LEN(cases); i++) expect_refused(cases[i].grammar, RP_ERR_SYNTAX, cases[i].says);
}

/* A text of n pieces between two ends. */
static char *repeated(const char *begin, const char *piece, size_t n, const char *end) {
    char *text = malloc(strlen(begin) + n * strlen(piece) + strlen(end) + 1), *at = text;
    assert_non_null(text);
    at += sprintf(at, "%s", begin);
    for (size_t i = 0; i < n; i++) at += sprintf(at, "%s", piece);
    sprintf(at, "%s", end);
    return text;
}

static void what_is_too_large_is_refused(void **state) {
    (void)state;
    char *texts[] = {repeated("root ::= ", "(", 300, ""), repeated("root ::= \"a\"", "?", 300, ""),
                     repeated("root ::= ", "\"0123456789\"", RP_MAX_GRAMMAR_BYTES / 8, "")};
    expect_refused("root ::= \"a\"{1,1000000}", RP_ERR_LIMIT, "grammar:1:16: more than 65536 repetitions");
    expect_refused("root ::= (\"abc\"{1000}){1000}", RP_ERR_LIMIT, "expands to more than 262144 nodes here");
    expect_refused("root ::= (([a]{0,100}){0,100}){0,100}", RP_ERR_LIMIT, "expands to more than");
    expect_refused(texts[0], RP_ERR_LIMIT, "more than 256 deep");
    expect_refused(texts[1], RP_ERR_LIMIT, "more than 256 deep");
    expect_refused(texts[2], RP_ERR_LIMIT, "at most 262144");
    for (size_t i = 0; i < LEN(texts); i++) free(texts[i]);
    assert_int_equal(judge("root ::= ((\"\"{65536}){65536}){65536} \"a\"", NULL, "a"),
                     2); /* repeated empty text adds no nodes */
}

/* Each rule doubles the number of ways to be empty. */
static void a_beginning_of_too_many_ways_is_refused(void **state) {
    (void)state;
    char text[4096] = "root ::= r0\n";
    for (int i = 0; i < 30; i++) sprintf(text + strlen(text), "r%d ::= r%d r%d \"x\"?\n", i, i + 1, i + 1);
    strcat(text, "r30 ::= \"y\"?\n");
    expect_refused(text, RP_ERR_LIMIT, "more than 16384 initial states");
}

/* ---- against the slow search ---- */

/* Appends a letter, sometimes a part of one. */
static size_t add_letter(tiny_random *r, char *text, size_t n) {
    const char *letter = random_grammar_letters[tiny_random_below(r, RANDOM_GRAMMAR_LETTERS)];
    size_t bytes = strlen(letter);
    if (tiny_random_below(r, 20) == 0) bytes = 1 + tiny_random_below(r, bytes);
    if (n + bytes > RANDOM_GRAMMAR_MOST) return n;
    memcpy(text + n, letter, bytes);
    return n + bytes;
}

static void expect_same(const random_grammar *g, fixture *f, const char *text, size_t n, bool fits) {
    random_verdict v = random_grammar_judge(g, text, n);
    if (fits != v.beginning || (fits && matcher_may_end(&f->m) != v.whole))
        fail_msg("'%.*s' (%zu bytes): fits %d, may end %d; is a beginning %d, is whole %d, of\n%s", (int)n, text, n,
                 fits, fits && matcher_may_end(&f->m), v.beginning, v.whole, g->text);
}

/* Tries letters, including ones that do not fit. False: the grammar is too ambiguous to match; few grammars may be. */
static bool follow_random_text(const random_grammar *g, fixture *f, tiny_random *r) {
    char text[RANDOM_GRAMMAR_MOST + 4];
    int32_t start = f->m.place;
    size_t n = 0;
    for (int tries = 0; tries < 40; tries++) {
        size_t longer = add_letter(r, text, n);
        bool fits = true;
        for (size_t i = n; i < longer && fits; i++) {
            int rc = matcher_walk(&f->m, &f->m.place, text + i, 1, &fits);
            if (rc == RP_ERR_LIMIT) return false;
            assert_int_equal(rc, RP_OK);
            expect_same(g, f, text, i + 1, fits);
            if (fits) n = i + 1;
        }
        if (!fits && n < longer - 1) break; /* in the middle of a letter: no other letter fits */
    }
    f->m.place = f->m.pool_bytes < MATCHER_POOL_BYTES ? f->m.place : start;
    return true;
}

static void random_grammars_are_followed_as_the_slow_search_reads(void **state) {
    (void)state;
    tiny_random r = {.state = seed};
    random_grammar *g = malloc(sizeof *g);
    int too_hard = 0;
    for (int round = 0; round < 400; round++) {
        fixture f;
        random_grammar_make(g, &r, false);
        open_fixture(&f, g->text, NULL);
        random_verdict v = random_grammar_judge(g, "", 0);
        assert_true(v.beginning);
        assert_int_equal(matcher_may_end(&f.m), v.whole);
        bool goes_on = true;
        for (int i = 0; i < 8 && goes_on; i++) goes_on = follow_random_text(g, &f, &r);
        too_hard += !goes_on;
        close_fixture(&f);
    }
    assert_in_range(too_hard, 0, 4);
    free(g);
}

/* With a tiny pool nearly everything is recomputed: the results are the same. */
static void little_room_changes_nothing(void **state) {
    (void)state;
    tiny_random r = {.state = seed + 1};
    random_grammar *g = malloc(sizeof *g);
    for (int round = 0; round < 200; round++) {
        random_grammar_make(g, &r, false);
        for (int i = 0; i < 4; i++) {
            fixture f;
            open_fixture(&f, g->text, NULL);
            f.m.pool_bytes = 2000 + (size_t)tiny_random_below(&r, 4000);
            char text[RANDOM_GRAMMAR_MOST + 4];
            size_t n = 0;
            for (int tries = 0; tries < 30; tries++) {
                size_t longer = add_letter(&r, text, n);
                bool fits;
                int rc = matcher_walk(&f.m, &f.m.place, text + n, longer - n, &fits);
                if (rc == RP_ERR_LIMIT) break;
                assert_int_equal(rc, RP_OK);
                expect_same(g, &f, text, longer, fits);
                if (fits) n = longer;
            }
            close_fixture(&f);
        }
    }
    free(g);
}

static void deep_texts_need_no_more_room(void **state) {
    (void)state;
    fixture f;
    open_fixture(&f, "root ::= \"(\" root \")\" \"x\"? | \"[\" root \"]\" [xy]{0,3} | \"\"", NULL);
    f.m.pool_bytes = 200000;
    for (int i = 0; i < MATCHER_MAX_NESTING / 2; i++) assert_true(takes(&f, i % 3 ? "(" : "[", 1));
    for (int i = MATCHER_MAX_NESTING / 2; i-- > 0;) assert_true(takes(&f, i % 3 ? ")x" : "]yy", i % 3 ? 2 : 3));
    assert_true(matcher_may_end(&f.m) && matcher_must_end(&f.m) == false); /* one more y */
    for (int i = 0; i < MATCHER_MAX_NESTING; i++) assert_false(takes(&f, "(", 1));
    close_fixture(&f);
    open_fixture(&f, "root ::= \"(\" root \")\" | \"x\"", NULL);
    int depth = 0;
    while (depth <= MATCHER_MAX_NESTING && takes(&f, "(", 1)) depth++;
    assert_int_equal(depth, MATCHER_MAX_NESTING); /* deeper nesting is not in the language, */
    assert_true(takes(&f, "x))", 3));             /* and the text so far can continue */
    close_fixture(&f);
}

/* ---- tokens ---- */

#define MOST_TOKENS 80

typedef struct vocabulary {
    char texts[MOST_TOKENS][16];
    size_t lengths[MOST_TOKENS];
    bool ends[MOST_TOKENS];
    int32_t n;
} vocabulary;

static const char *bytes_of(const void *user, int32_t token, size_t *n) {
    const vocabulary *v = user;
    *n = v->lengths[token];
    return *n > 0 ? v->texts[token] : NULL;
}

static bool is_end(const void *user, int32_t token) { return ((const vocabulary *)user)->ends[token]; }

static void make_vocabulary(vocabulary *v, tiny_random *r) {
    *v = (vocabulary){.n = 1 + (int32_t)tiny_random_below(r, MOST_TOKENS)};
    for (int32_t i = 0; i < v->n; i++) {
        size_t n = 0, letters = tiny_random_below(r, 4);
        for (size_t k = 0; k < letters; k++) n = add_letter(r, v->texts[i], n);
        if (tiny_random_below(r, 8) == 0)
            v->texts[i][n++] = ' ', memmove(v->texts[i] + 1, v->texts[i], n - 1), v->texts[i][0] = ' ';
        v->lengths[i] = n;
        v->ends[i] = tiny_random_below(r, 20) == 0;
    }
}

static token_trie *make_trie(const vocabulary *v) {
    token_source source = {v->n, bytes_of, is_end, v};
    token_trie *t;
    assert_int_equal(token_trie_new(&t, &source, NULL), RP_OK);
    return t;
}

/* The expected bit of a token in the mask, from matching its bytes. */
static bool may_come(fixture *f, const vocabulary *v, int32_t token, bool drops_space) {
    const matcher_place *at = &f->m.pool.places[f->m.place];
    const char *bytes = v->texts[token];
    size_t n = v->lengths[token];
    int32_t place = f->m.place;
    bool fits;
    if (at->is_free && (n == 0 || v->ends[token])) return true;
    if (v->ends[token]) return at->may_end && !f->m.no_end;
    if (n == 0) return false;
    if (drops_space && bytes[0] == ' ') bytes++, n--;
    assert_int_equal(matcher_walk(&f->m, &place, bytes, n, &fits), RP_OK);
    return fits;
}

/* False: the grammar is too ambiguous to match, in this pool or at all. */
static bool expect_mask(fixture *f, const vocabulary *v, const token_trie *t, bool drops_space) {
    const uint64_t *bits;
    uint64_t copy[2] = {0};
    int rc = matcher_allowed(&f->m, t, drops_space, &bits);
    if (rc == RP_ERR_LIMIT) return false;
    assert_int_equal(rc, RP_OK);
    memcpy(copy, bits, token_mask_words(v->n) * sizeof *bits); /* matching may evict */
    for (int32_t i = 0; i < v->n; i++)
        if (token_mask_has(copy, i) != may_come(f, v, i, drops_space))
            fail_msg("token %d '%s': mask %d", i, v->texts[i], token_mask_has(copy, i));
    return true;
}

static void masks_have_what_fits_token_by_token(void **state) {
    (void)state;
    tiny_random r = {.state = seed + 2};
    random_grammar *g = malloc(sizeof *g);
    int too_hard = 0;
    for (int round = 0; round < 300; round++) {
        vocabulary v;
        fixture f;
        random_grammar_make(g, &r, false);
        make_vocabulary(&v, &r);
        token_trie *t = make_trie(&v);
        open_fixture(&f, g->text, round % 3 == 0 ? "b\"" : NULL);
        f.m.no_end = round % 5 == 0;
        if (round % 4 == 0) f.m.pool_bytes = 3000 + (size_t)tiny_random_below(&r, 6000);
        bool goes_on = expect_mask(&f, &v, t, true);
        for (int i = 0; i < 25 && (goes_on || f.m.pool_bytes < MATCHER_POOL_BYTES); i++) {
            int32_t token = (int32_t)tiny_random_below(&r, (uint64_t)v.n);
            bool fits;
            goes_on = expect_mask(&f, &v, t, false);
            int rc = matcher_walk(&f.m, &f.m.place, v.texts[token], v.lengths[token], &fits);
            if (rc == RP_ERR_LIMIT) break;
            assert_int_equal(rc, RP_OK);
        }
        too_hard += !goes_on && f.m.pool_bytes >= MATCHER_POOL_BYTES;
        close_fixture(&f);
        token_trie_free(t);
    }
    assert_in_range(too_hard, 0, 4);
    free(g);
}

static void a_trie_has_every_token_once(void **state) {
    (void)state;
    tiny_random r = {.state = seed + 3};
    for (int round = 0; round < 200; round++) {
        vocabulary v;
        int seen[MOST_TOKENS] = {0};
        char path[64] = "";
        make_vocabulary(&v, &r);
        token_trie *t = make_trie(&v);
        for (uint32_t i = 1; i < t->n_nodes; i++) {
            path[t->depths[i] - 1] = (char)t->bytes[i];
            assert_true(t->ends[i] > i && t->ends[i] <= t->n_nodes &&
                        (t->ends[i] == t->n_nodes || t->depths[t->ends[i]] <= t->depths[i]));
            for (uint32_t k = t->first[i]; k < t->first[i + 1]; k++) {
                seen[t->tokens[k]]++;
                assert_int_equal(v.lengths[t->tokens[k]], t->depths[i]);
                assert_memory_equal(v.texts[t->tokens[k]], path, t->depths[i]);
            }
        }
        for (int32_t i = 0; i < v.n; i++) {
            assert_int_equal(seen[i], v.lengths[i] > 0 && !v.ends[i]);
            assert_int_equal(token_mask_has(t->others, i), v.lengths[i] == 0 || v.ends[i]);
        }
        token_trie_free(t);
    }
}

/* ---- triggers ---- */

static void the_grammar_holds_behind_the_first_trigger(void **state) {
    (void)state;
    static const char g[] = "root ::= \"ab\"";
    assert_int_equal(judge(g, "<t>", "any <text <"), 2);
    assert_int_equal(judge(g, "<t>", "any <t"), 2);
    assert_int_equal(judge(g, "<t>", "any \xff <t>"), 1);
    assert_int_equal(judge(g, "<t>", "any <t>ab"), 2);
    assert_int_equal(judge(g, "<t>", "any <<t>a"), 1);
    assert_int_equal(judge(g, "<t>", "any <t>b"), 0);
    assert_int_equal(judge(g, "<t>", "any <t><t>"), 0);
    assert_int_equal(judge(g, "aab", "aaabab"), 2);
    assert_int_equal(judge(g, "aab", "aaabb"), 0);
    assert_int_equal(judge("root ::= \"\"", "x", "x"), 2);
    assert_int_equal(judge("root ::= \"\"", "x", "xx"), 0);
}

/* ---- work ---- */

static void what_takes_too_much_work_fails_and_does_not_hang(void **state) {
    (void)state;
    /* every x may belong to any level, and each level has its own return */
    char text[4096] = "root ::= r0 \"!\"\n";
    for (int i = 0; i < 12; i++)
        sprintf(text + strlen(text), "r%d ::= \"x\" r%d \"a\" | \"x\" r%d \"b\" | \"x\" r%d \"c\" | \"y\"\n", i,
                (i + 1) % 12, (i + 5) % 12, i);
    fixture f;
    bool fits = true;
    int rc = RP_OK, n = 0;
    open_fixture(&f, text, NULL);
    for (; n < 1000 && rc == RP_OK && fits; n++) rc = matcher_walk(&f.m, &f.m.place, "x", 1, &fits);
    assert_int_equal(rc, RP_ERR_LIMIT);
    assert_true(n < 30);
    close_fixture(&f);
}

/* Grammars of maximum cost over a long text: the work per token and of the whole text is bounded. */
static void a_hostile_grammar_costs_a_bounded_amount(void **state) {
    (void)state;
    char levels[4096] = "root ::= r0 \"!\"\n", many[16384] = "root ::= ", late[8192] = "root ::= [ab]* (";
    for (int i = 0; i < 12; i++)
        sprintf(levels + strlen(levels), "r%d ::= \"a\" r%d \"a\" | \"b\" r%d \"b\" | \"a\" r%d \"c\" | \"y\"\n", i,
                (i + 1) % 12, (i + 5) % 12, i);
    for (int i = 0; i < 400; i++) sprintf(many + strlen(many), "[ab]{0,%d} ", 1 + i % 9);
    for (int i = 0; i < 60; i++) sprintf(late + strlen(late), "%s\"a\" [ab]{%d}", i ? " | " : "", 10 + i * 4);
    strcat(late, ")");
    const char *const hostile[] = {levels, many, late, "root ::= (\"a\"? \"b\"?){1,2000}",
                                   "root ::= \"a\" root | \"a\" root \"b\" | \"b\" root \"a\" | \"c\""};
    vocabulary v = {.n = 62};
    for (int32_t i = 0; i < v.n; i++) { /* all words of up to 5 letters of a and b */
        int letters = 1;
        while ((2 << letters) - 2 <= i) letters++;
        for (int k = 0; k < letters; k++) v.texts[i][k] = (char)('a' + ((i + 2 - (1 << letters)) >> k & 1));
        v.lengths[i] = (size_t)letters;
    }
    token_trie *t = make_trie(&v);
    tiny_random r = {3};
    for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
        fixture f;
        uint64_t most = 0, all = 0;
        int n = 0, rc = RP_OK;
        open_fixture(&f, hostile[i], NULL);
        for (bool fits = true; n < 300 && fits && !rc; n++) {
            const uint64_t *bits;
            size_t token = tiny_random_below(&r, 62);
            rc = matcher_allowed(&f.m, t, false, &bits);
            uint64_t work = f.m.work;
            if (!rc) rc = matcher_walk(&f.m, &f.m.place, v.texts[token], v.lengths[token], &fits);
            work += f.m.work;
            if (!rc) rc = matcher_pay(&f.m);
            all += work;
            most = work > most ? work : most;
        }
        print_message("grammar %zu: %d tokens, %llu of work for one at most, %llu for all%s\n", i, n,
                      (unsigned long long)most, (unsigned long long)all, rc ? ", then refused" : "");
        assert_true(rc == RP_OK || rc == RP_ERR_LIMIT);
        assert_true(most <= 2 * (MATCHER_MAX_WORK + MATCHER_MAX_ITEMS + MATCHER_MAX_CONFIGS));
        assert_true(all <= MATCHER_MAX_DEBT + (uint64_t)n * MATCHER_TOKEN_WORK + most);
        close_fixture(&f);
    }
    token_trie_free(t);
}

/* ---- failing allocations ---- */

static int try_all(void) {
    static const char *const words[] = {"{", "\"a\"", ":", " 1", "}", "a", "x\xc3", ",", " "};
    vocabulary v = {.n = (int32_t)LEN(words)};
    for (int32_t i = 0; i < v.n; i++) v.lengths[i] = (size_t)sprintf(v.texts[i], "%s", words[i]);
    token_source source = {v.n, bytes_of, is_end, &v};
    fixture f = {0};
    token_trie *t = NULL;
    const uint64_t *bits;
    bool fits;
    int rc = grammar_new(&f.g, json_text, NULL);
    if (!rc) rc = matcher_open(&f.m, f.g, "go ", NULL);
    if (!rc) rc = token_trie_new(&t, &source, NULL);
    if (!rc) rc = matcher_allowed(&f.m, t, false, &bits);
    f.m.pool_bytes = 4000;
    if (!rc) rc = matcher_walk(&f.m, &f.m.place, "go {\"a\": [[[1, 2, {\"b\": 5", 25, &fits);
    if (!rc) rc = matcher_allowed(&f.m, t, false, &bits);
    close_fixture(&f);
    token_trie_free(t);
    return rc;
}

static void every_failing_allocation_is_an_error_and_no_leak(void **state) {
    (void)state;
    base_alloc_count();
    assert_int_equal(try_all(), RP_OK);
    uint64_t n = base_alloc_count();
    assert_true(n > 20);
    for (uint64_t i = 1; i <= n; i++) {
        base_alloc_fail_at(i, 0);
        int rc = try_all();
        base_alloc_fail_at(0, 0);
        assert_int_equal(rc, RP_ERR_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_users_write_means_what_it_should),
        cmocka_unit_test(json_is_followed),
        cmocka_unit_test(what_is_wrong_is_said_with_its_place),
        cmocka_unit_test(what_is_too_large_is_refused),
        cmocka_unit_test(a_beginning_of_too_many_ways_is_refused),
        cmocka_unit_test(random_grammars_are_followed_as_the_slow_search_reads),
        cmocka_unit_test(little_room_changes_nothing),
        cmocka_unit_test(deep_texts_need_no_more_room),
        cmocka_unit_test(masks_have_what_fits_token_by_token),
        cmocka_unit_test(a_trie_has_every_token_once),
        cmocka_unit_test(the_grammar_holds_behind_the_first_trigger),
        cmocka_unit_test(what_takes_too_much_work_fails_and_does_not_hang),
        cmocka_unit_test(a_hostile_grammar_costs_a_bounded_amount),
        cmocka_unit_test(every_failing_allocation_is_an_error_and_no_leak),
    };
    seed = test_seed("grammar", 20261123);
    return cmocka_run_group_tests_name("grammar/grammar", tests, NULL, NULL);
}
