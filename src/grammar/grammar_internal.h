/* SPDX-License-Identifier: Apache-2.0 */
/* grammar_internal.h: what the files that make a grammar share: the tree between text and network. Nobody else includes it. */
#ifndef GRAMMAR_GRAMMAR_INTERNAL_H
#define GRAMMAR_GRAMMAR_INTERNAL_H

#include "base/compiler.h"
#include "grammar/grammar.h"

#define GRAMMAR_NONE UINT32_MAX

typedef enum grammar_expr_kind {
    EXPR_BYTES,    /* bytes [first, first + n) of the tree: a literal */
    EXPR_CLASS,    /* unit `first` */
    EXPR_RULE,     /* use `first` of the tree, later the rule */
    EXPR_SEQUENCE, /* of the list `first`, which begins with its last part */
    EXPR_CHOICE,   /* of the list `first` */
    EXPR_REPEAT,   /* `first`, n to `most` times */
} grammar_expr_kind;

typedef struct grammar_expr {
    uint8_t kind;
    uint16_t height; /* of what is below it */
    uint32_t first, n, most; /* most: GRAMMAR_NONE: no end */
    uint32_t next;   /* in the list that it is in; GRAMMAR_NONE: the last */
    uint32_t at;     /* offset in the text */
} grammar_expr;

/* A name in the text: where a rule is defined (expr: what it is) or used. */
typedef struct grammar_name {
    uint32_t at, n;
    uint32_t expr;
} grammar_name;

typedef struct grammar_tree {
    const char *text;
    size_t n_text;
    grammar *g; /* its units are made on the way */
    rp_error *err;
    grammar_expr *exprs;
    uint8_t *bytes;
    grammar_name *rules, *uses; /* rules: in the order of the text, then sorted by name */
    size_t n_exprs, n_bytes, n_rules, n_uses;
    size_t cap_exprs, cap_bytes, cap_rules, cap_uses;
} grammar_tree;

/* An error at an offset of the text. */
int grammar_fail(const grammar_tree *t, rp_code code, size_t at, const char *fmt, ...) BASE_PRINTF(4, 5);

/* Text to rules and uses. */
int grammar_parse(grammar_tree *t);

/* Code points from low to high. */
typedef struct grammar_range {
    uint32_t low, high;
} grammar_range;

/* Sorts and joins n ranges, turns them into all others if `negated`, leaves out what is no character, and makes a unit of them.
 * ranges: room for n + 2. *unit: GRAMMAR_DONE where none is left. RP_ERR_LIMIT, RP_ERR_MEMORY. */
int grammar_add_class(grammar *g, grammar_range *ranges, size_t n, bool negated, uint32_t *unit);
/* The unit of one byte. */
int grammar_add_byte(grammar *g, uint8_t byte, uint32_t *unit);

/* Rules, whose names are known, to nodes; refuses left recursion. */
int grammar_link(grammar_tree *t);

#endif
