/* SPDX-License-Identifier: Apache-2.0 */
/* grammar_internal.h: the syntax tree between text and network. Only the grammar_*.c files include it. */
#ifndef GRAMMAR_GRAMMAR_INTERNAL_H
#define GRAMMAR_GRAMMAR_INTERNAL_H

#include "base/compiler.h"
#include "grammar/grammar.h"

#define GRAMMAR_NONE UINT32_MAX

typedef enum grammar_expr_kind {
    EXPR_BYTES,    /* bytes [first, first + n) of the tree: a literal */
    EXPR_CLASS,    /* unit `first` */
    EXPR_RULE,     /* use `first` of the tree; names are resolved to rules later */
    EXPR_SEQUENCE, /* of the list `first`, last part first */
    EXPR_CHOICE,   /* of the list `first` */
    EXPR_REPEAT,   /* `first`, n to `most` times */
} grammar_expr_kind;

typedef struct grammar_expr {
    uint8_t kind;
    uint16_t height;         /* of the subtree */
    uint32_t first, n, most; /* most: GRAMMAR_NONE: unbounded */
    uint32_t next;           /* in its list; GRAMMAR_NONE: the last */
    uint32_t at;             /* offset in the text */
} grammar_expr;

/* A name in the text: a rule's definition (expr: its expression) or a use of it (expr: the rule). */
typedef struct grammar_name {
    uint32_t at, n;
    uint32_t expr;
} grammar_name;

typedef struct grammar_tree {
    const char *text;
    size_t n_text;
    grammar *g; /* its units are added while the text is parsed */
    rp_error *err;
    grammar_expr *exprs;
    uint8_t *bytes;
    grammar_name *rules, *uses; /* rules: in text order, then sorted by name */
    size_t n_exprs, n_bytes, n_rules, n_uses;
    size_t cap_exprs, cap_bytes, cap_rules, cap_uses;
} grammar_tree;

/* Reports an error at an offset of the text. */
int grammar_fail(const grammar_tree *t, rp_code code, size_t at, const char *fmt, ...) BASE_PRINTF(4, 5);

/* Parses the text into rules and uses. */
int grammar_parse(grammar_tree *t);

/* Code points from low to high. */
typedef struct grammar_range {
    uint32_t low, high;
} grammar_range;

/* Sorts and merges n ranges, complements them if `negated`, removes code points that are not characters, and adds a
 * unit. ranges: capacity n + 2. *unit: GRAMMAR_DONE if no character is left. RP_ERR_LIMIT, RP_ERR_MEMORY. */
int grammar_add_class(grammar *g, grammar_range *ranges, size_t n, bool negated, uint32_t *unit);
/* Adds the unit of one byte. */
int grammar_add_byte(grammar *g, uint8_t byte, uint32_t *unit);

/* Resolves names, converts rules to nodes, and refuses left recursion. */
int grammar_link(grammar_tree *t);

#endif
