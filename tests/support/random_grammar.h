/* SPDX-License-Identifier: Apache-2.0 */
/* random_grammar.h: random grammars, and a slow, obvious membership test: a recursive search over all derivations of a
 * text, independent of the automata, stacks and byte tries of the library.
 *
 * Rules are never left-recursive, and every rule derives a text. The alphabet is small, with characters of 1 to 4
 * bytes.
 */
#ifndef SUPPORT_RANDOM_GRAMMAR_H
#define SUPPORT_RANDOM_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tiny_random.h"

#define RANDOM_GRAMMAR_EXPRS 160
#define RANDOM_GRAMMAR_RULES 5
#define RANDOM_GRAMMAR_TEXT 8192 /* bytes of GBNF */
#define RANDOM_GRAMMAR_MOST 30   /* bytes of a text that can be judged */
#define RANDOM_GRAMMAR_LETTERS 6 /* of the alphabet */

extern const char *const random_grammar_letters[RANDOM_GRAMMAR_LETTERS];

typedef struct random_expr {
    int kind;
    uint32_t letters;  /* of a class: a bit each; of a literal: the letters, 3 bits each */
    int n;             /* of a literal */
    bool negated;      /* a negated class: it also has characters other than letters */
    int first, second; /* expressions; a rule */
    int least, most;   /* of a repeat; most -1: no end */
} random_expr;

typedef struct random_grammar {
    random_expr exprs[RANDOM_GRAMMAR_EXPRS];
    bool letters_alone;
    int n_exprs, rules[RANDOM_GRAMMAR_RULES], n_rules;
    char text[RANDOM_GRAMMAR_TEXT]; /* as GBNF */
} random_grammar;

/* letters_alone: no class has any other character. */
void random_grammar_make(random_grammar *g, tiny_random *r, bool letters_alone);

/* Is the text in the language? Is it a prefix of such a text? n: up to RANDOM_GRAMMAR_MOST bytes; the last character
 * may be incomplete. */
typedef struct random_verdict {
    bool whole, beginning;
} random_verdict;
random_verdict random_grammar_judge(const random_grammar *g, const char *text, size_t n);

#endif
