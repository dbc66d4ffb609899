/* SPDX-License-Identifier: Apache-2.0 */
/* grammar.h: a grammar as a network over bytes, made of GBNF text (docs/scheduling.md#grammars lists what is taken).
 *
 *   text --grammar_parse.c--> tree --grammar_network.c--> nodes        character classes --grammar_units.c--> units
 *
 *   node   UNIT a character by a unit, then `next` | SPLIT either of two nodes | CALL a rule, then `next` | END of a rule
 *   unit   bytes of a character: edges (from byte, to byte) -> what the character's rest is; GRAMMAR_DONE: nothing
 *
 *   root ::= "a" [0-9]* | other          0 END    1 UNIT 'a' -> 2    2 SPLIT 3, 0    3 UNIT [0-9] -> 2    4 CALL other -> 0   5 SPLIT 1, 4
 *
 * A class is one node however many characters are in it, and a literal has a node a byte. Repeats are written out, so the number of nodes
 * bounds them. Classes match whole UTF-8 characters, never parts, and never bytes that are no UTF-8.
 *
 * A grammar is immutable; any number of threads may use it.
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
#define GRAMMAR_MAX_DEPTH 256 /* of groups and repeats inside each other */

#define GRAMMAR_DONE 0 /* the unit of nothing */

typedef enum grammar_node_kind { GRAMMAR_END, GRAMMAR_UNIT, GRAMMAR_SPLIT, GRAMMAR_CALL } grammar_node_kind;

typedef struct grammar_node {
    uint8_t kind;
    uint32_t what; /* UNIT: the unit; SPLIT: a node; CALL and END: the rule */
    uint32_t next; /* UNIT, CALL: the node behind it; SPLIT: the other node */
} grammar_node;

typedef struct grammar_edge {
    uint8_t low, high;
    uint32_t unit; /* that has to follow */
} grammar_edge;

typedef struct grammar_unit {
    uint32_t first, n; /* edges, by rising byte, none of which overlap */
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

/* RP_ERR_SYNTAX ("grammar:line:column"; also unknown rules, rules that are there twice, left recursion), RP_ERR_LIMIT, RP_ERR_MEMORY. */
int grammar_new(grammar **out, const char *text, rp_error *err);
void grammar_free(grammar *g);

#endif
