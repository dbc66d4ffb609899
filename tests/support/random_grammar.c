/* SPDX-License-Identifier: Apache-2.0 */
/* random_grammar.c: see random_grammar.h. */
#include "random_grammar.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLASS,
       LITERAL,
       RULE,
       SEQUENCE,
       CHOICE,
       REPEAT };

const char *const random_grammar_letters[RANDOM_GRAMMAR_LETTERS] = {
    "a", "b", "\"", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
static const char *const written[RANDOM_GRAMMAR_LETTERS] = {"a", "\\x62", "\\\"", "\xc3\xa9", "\\u20AC", "\\U0001F600"};

/* ---- making ---- */

static int add(random_grammar *g, random_expr e) {
    if (g->n_exprs == RANDOM_GRAMMAR_EXPRS) abort();
    g->exprs[g->n_exprs] = e;
    return g->n_exprs++;
}

static int random_class(random_grammar *g, tiny_random *r) {
    uint32_t letters = 1 + (uint32_t)tiny_random_below(r, (1 << RANDOM_GRAMMAR_LETTERS) - 1);
    return add(g, (random_expr){
                      .kind = CLASS, .letters = letters, .negated = !g->letters_alone && tiny_random_below(r, 3) == 0});
}

static int random_literal(random_grammar *g, tiny_random *r) {
    random_expr e = {.kind = LITERAL, .n = (int)tiny_random_below(r, 4)};
    for (int i = 0; i < e.n; i++) e.letters |= (uint32_t)tiny_random_below(r, RANDOM_GRAMMAR_LETTERS) << 3 * i;
    return add(g, e);
}

/* inside: a character certainly precedes, so that any rule may follow; else only rules after `rule`. */
static int random_any(random_grammar *g, tiny_random *r, int rule, int depth, bool inside) {
    int kind = (int)tiny_random_below(r, 6);
    if (depth == 0 || g->n_exprs > RANDOM_GRAMMAR_EXPRS - 40) kind %= 2;
    switch (kind) {
    case CLASS: return random_class(g, r);
    case LITERAL: return random_literal(g, r);
    case RULE: {
        int low = inside ? 0 : rule + 1;
        if (low >= g->n_rules) return random_class(g, r);
        return add(g,
                   (random_expr){.kind = RULE, .first = low + (int)tiny_random_below(r, (uint64_t)(g->n_rules - low))});
    }
    case REPEAT: {
        random_expr e = {.kind = REPEAT, .first = random_any(g, r, rule, depth - 1, inside)};
        e.least = (int)tiny_random_below(r, 3);
        e.most = tiny_random_below(r, 2) ? -1 : e.least + (int)tiny_random_below(r, 3);
        return add(g, e);
    }
    default: {
        int first = random_any(g, r, rule, depth - 1, inside);
        bool consumes = kind == SEQUENCE && g->exprs[first].kind == CLASS;
        int second = random_any(g, r, rule, depth - 1, inside || consumes);
        return add(g, (random_expr){.kind = kind, .first = first, .second = second});
    }
    }
}

/* ---- as GBNF ---- */

static void say(random_grammar *g, const char *fmt, ...) {
    size_t used = strlen(g->text);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(g->text + used, sizeof g->text - used, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof g->text - used) abort();
}

static void say_class(random_grammar *g, uint32_t letters, bool negated, tiny_random *r) {
    if (letters == (1 << RANDOM_GRAMMAR_LETTERS) - 1 && negated) {
        say(g, ".");
        return;
    }
    say(g, negated ? "[^" : "[");
    for (int i = 0; i < RANDOM_GRAMMAR_LETTERS; i++)
        if ((letters >> i & 1) != (negated ? 1u : 0u))
            say(g, i == 1 && !negated && tiny_random_below(r, 2) ? "b-b" : "%s", written[i]);
    say(g, "]");
}

static void say_repeat(random_grammar *g, const random_expr *e) {
    if (e->most < 0) say(g, e->least == 0 ? "*" : e->least == 1 ? "+"
                                                                : "{%d,}",
                         e->least);
    else if (e->least == 0 && e->most == 1) say(g, "?");
    else say(g, e->least == e->most ? "{%d}" : "{%d,%d}", e->least, e->most);
}

static void say_expr(random_grammar *g, int i, tiny_random *r) {
    const random_expr *e = &g->exprs[i];
    switch (e->kind) {
    case CLASS: say_class(g, e->letters, e->negated, r); break;
    case LITERAL:
        say(g, "\"");
        for (int k = 0; k < e->n; k++) say(g, "%s", written[e->letters >> 3 * k & 7]);
        say(g, "\"");
        break;
    case RULE: say(g, e->first == 0 ? "root" : "rule-%d", e->first); break;
    case REPEAT:
        say(g, "(");
        say_expr(g, e->first, r);
        say(g, ")");
        say_repeat(g, e);
        break;
    default:
        say(g, "(");
        say_expr(g, e->first, r);
        say(g, e->kind == CHOICE ? (tiny_random_below(r, 2) ? "|" : " # or\n | ") : " ");
        say_expr(g, e->second, r);
        say(g, ")");
    }
}

void random_grammar_make(random_grammar *g, tiny_random *r, bool letters_alone) {
    *g = (random_grammar){.letters_alone = letters_alone,
                          .n_rules = 1 + (int)tiny_random_below(r, RANDOM_GRAMMAR_RULES)};
    for (int i = 0; i < g->n_rules; i++) {
        int base = tiny_random_below(r, 2) ? random_class(g, r) : random_literal(g, r); /* a text without other rules */
        int other = random_any(g, r, i, 3, false);
        g->rules[i] = add(g, (random_expr){.kind = CHOICE, .first = other, .second = base});
    }
    for (int i = 0; i < g->n_rules; i++) {
        say(g, i == 0 ? "root ::= " : "rule-%d ::= ", i);
        say_expr(g, g->rules[i], r);
        say(g, "\n");
    }
}

/* ---- judging ---- */

typedef struct search {
    const random_grammar *g;
    const char *text;
    size_t n;
    bool wants_more;                                               /* some parse reached the end of the text and expects
                                                                      more */
    uint32_t known[RANDOM_GRAMMAR_EXPRS][RANDOM_GRAMMAR_MOST + 1]; /* results of read_expr; UNKNOWN: not computed */
} search;

#define UNKNOWN UINT32_MAX

/* End positions (bits) after a letter at `at`. */
static uint32_t read_letter(search *s, int letter, size_t at) {
    const char *bytes = random_grammar_letters[letter];
    size_t n = strlen(bytes), left = s->n - at;
    if (memcmp(s->text + at, bytes, left < n ? left : n) != 0) return 0;
    if (left < n) s->wants_more = true;
    return left < n ? 0 : UINT32_C(1) << (at + n);
}

static uint32_t read_expr(search *s, int i, size_t at);

static uint32_t read_from_all(search *s, int i, uint32_t places) {
    uint32_t ends = 0;
    for (size_t at = 0; at <= s->n; at++)
        if (places >> at & 1) ends |= read_expr(s, i, at);
    return ends;
}

/* More repetitions make no difference: each non-empty one takes a byte. */
static uint32_t read_repeat(search *s, const random_expr *e, size_t at) {
    uint32_t places = UINT32_C(1) << at, ends = e->least == 0 ? places : 0;
    int most = e->least + (int)s->n + 2;
    if (e->most >= 0 && e->most < most) most = e->most;
    for (int i = 1; i <= most && places; i++) {
        places = read_from_all(s, e->first, places);
        if (i >= e->least) ends |= places;
    }
    return ends;
}

static uint32_t read_again(search *s, int i, size_t at) {
    const random_expr *e = &s->g->exprs[i];
    uint32_t ends = 0;
    switch (e->kind) {
    case CLASS:
        for (int k = 0; k < RANDOM_GRAMMAR_LETTERS; k++)
            if (e->letters >> k & 1) ends |= read_letter(s, k, at);
            else if (e->negated && at < s->n)
                read_letter(s, k, at); /* a prefix of it may continue with a character that is no letter */
        return ends;
    case LITERAL:
        ends = UINT32_C(1) << at;
        for (int k = 0; k < e->n; k++) {
            uint32_t from = ends;
            ends = 0;
            for (size_t p = 0; p <= s->n; p++)
                if (from >> p & 1) ends |= read_letter(s, (int)(e->letters >> 3 * k & 7), p);
        }
        return ends;
    case RULE: return read_expr(s, s->g->rules[e->first], at);
    case CHOICE: return read_expr(s, e->first, at) | read_expr(s, e->second, at);
    case REPEAT: return read_repeat(s, e, at);
    default: return read_from_all(s, e->second, read_expr(s, e->first, at));
    }
}

/* Evaluates each expression and position once: otherwise the time is exponential. */
static uint32_t read_expr(search *s, int i, size_t at) {
    if (s->known[i][at] == UNKNOWN) s->known[i][at] = read_again(s, i, at);
    return s->known[i][at];
}

random_verdict random_grammar_judge(const random_grammar *g, const char *text, size_t n) {
    search s = {.g = g, .text = text, .n = n};
    if (n > RANDOM_GRAMMAR_MOST) abort();
    memset(s.known, 0xff, sizeof s.known);
    bool whole = read_expr(&s, g->rules[0], 0) >> n & 1;
    return (random_verdict){whole, whole || s.wants_more};
}
