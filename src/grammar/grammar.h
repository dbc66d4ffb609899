/* SPDX-License-Identifier: Apache-2.0 */
/* grammar.h: a grammar as a network over bytes, made of GBNF text (docs/scheduling.md#grammars lists the syntax).
 *
 *   text --grammar_parse.c--> tree --grammar_network.c--> nodes        character classes --grammar_units.c--> units
 *
 *   node   UNIT a character, then `next` | SPLIT either of two nodes | CALL a rule, then `next` | END of a rule
 *   unit   bytes of a character: edges (from byte, to byte) -> unit of its remaining bytes; GRAMMAR_DONE: none
 *
 *   root ::= "a" [0-9]* | other          0 END    1 UNIT 'a' -> 2    2 SPLIT 3, 0    3 UNIT [0-9] -> 2    4 CALL other
 *         -> 0   5 SPLIT 1, 4
 *
 * A character class is one node, however many characters it has; a literal has one node per byte. Repetitions are
 * expanded: GRAMMAR_MAX_NODES bounds them. Classes match whole UTF-8 characters only, never a part of one and never
 * invalid UTF-8.
 *
 * A grammar is immutable. Any number of threads may use it.
 */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reprise.h"

#define GRAMMAR_MAX_RULES 16384
#define GRAMMAR_MAX_NODES ((size_t)1 << 18)
#define GRAMMAR_MAX_EDGES ((size_t)1 << 18)
#define GRAMMAR_MAX_REPEAT 65536
#define GRAMMAR_MAX_DEPTH 256 /* of nested groups and repetitions */

#define GRAMMAR_DONE 0 /* the empty unit: the character is complete */

typedef enum grammar_node_kind { GRAMMAR_END,
                                 GRAMMAR_UNIT,
                                 GRAMMAR_SPLIT,
                                 GRAMMAR_CALL } grammar_node_kind;

typedef struct grammar_node {
    uint8_t kind;
    uint32_t what; /* UNIT: the unit; SPLIT: a node; CALL and END: the rule */
    uint32_t next; /* UNIT, CALL: the node after it; SPLIT: the other node */
} grammar_node;

typedef struct grammar_edge {
    uint8_t low, high;
    uint32_t unit; /* must follow the byte */
} grammar_edge;

typedef struct grammar_unit {
    uint32_t first, n; /* edges, in ascending order of bytes; they do not overlap */
} grammar_unit;

typedef struct grammar {
    grammar_node *nodes;
    uint32_t *entries; /* [n_rules] nodes */
    grammar_unit *units;
    grammar_edge *edges;
    size_t n_nodes, n_rules, n_units, n_edges;
    size_t cap_nodes, cap_units, cap_edges;
    uint32_t root; /* rule */
} grammar;

/* Parses GBNF. RP_ERR_SYNTAX ("grammar:line:column"; also unknown rules, duplicate rules, left recursion),
 * RP_ERR_LIMIT, RP_ERR_MEMORY. */
int grammar_new(grammar **out, const char *text, rp_error *err);
void grammar_free(grammar *g);

#endif
