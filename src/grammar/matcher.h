/* SPDX-License-Identifier: Apache-2.0 */
/* matcher.h: follows a text through a grammar, byte by byte, and says which tokens can come next.
 *
 *   place    a set of configs: all ways in which the text so far can be the beginning of one of the grammar
 *   config   (node, unit, cell): at this node, of whose character this unit is still to come; then on where the cell says
 *   cell     (node, parent): a call that is under way, and where it returns to: a stack, of which many share their lower parts
 *
 *   { "a" : [ 1            place 17: (digits', DONE, 5)  (more, DONE, 4)  ...     cell 5 -> 4 -> 2 -> 0, the bottom
 *
 * Equal cells, and equal places, are there once (hash-consing), so a place has a row: for each class of bytes, the place behind it. A
 * grammar is thereby made into an automaton as far as it is needed, and most bytes cost one look into a row. Calls at the end of a rule
 * return to where that rule would (tail calls), so lists that are written by recursion do not grow the stack.
 *
 * Before a trigger was read there is one config, at no node: the trigger is followed by its automaton (Knuth, Morris, Pratt, 1977).
 *
 * Bounds. All of it is in a pool; where that is full, what is not needed any more is forgotten (matcher_pool.c). A place of too many
 * configs, or a step that takes too much work, fails with RP_ERR_LIMIT. Calls more than MATCHER_MAX_NESTING deep are not in the language.
 * One thread at a time.
 */
#ifndef GRAMMAR_MATCHER_H
#define GRAMMAR_MATCHER_H

#include "grammar/grammar.h"
#include "grammar/index_table.h"
#include "grammar/token_trie.h"

#define MATCHER_MAX_NESTING 4096
#define MATCHER_MAX_CONFIGS 16384              /* of a place */
#define MATCHER_MAX_ITEMS 65536                /* nodes that are passed between two bytes */
#define MATCHER_MAX_WORK ((uint64_t)1 << 18)   /* configs and nodes looked at for one token, while other sequences wait: about 25 ms */
/* Of a whole text: each token pays for MATCHER_TOKEN_WORK of it, and what is not paid for is no more than MATCHER_MAX_DEBT. */
#define MATCHER_TOKEN_WORK ((uint64_t)1 << 14)
#define MATCHER_MAX_DEBT ((uint64_t)1 << 19)
#define MATCHER_POOL_BYTES ((size_t)4 << 20)
#define MATCHER_MASKS 16                       /* sets of tokens that are kept */

typedef struct matcher_config {
    uint32_t node, unit, cell; /* MATCHER_TRIGGER: unit is how much of the trigger the text ends with */
} matcher_config;

#define MATCHER_TRIGGER UINT32_MAX

typedef struct matcher_cell {
    uint32_t node, parent, depth;
} matcher_cell;

typedef struct matcher_place {
    uint32_t first, n; /* configs, sorted */
    bool may_end;
    bool is_free;      /* the trigger was not there yet */
} matcher_place;

typedef struct matcher_pool {
    matcher_cell *cells; /* 0: the bottom */
    matcher_config *configs;
    matcher_place *places; /* 0: nowhere */
    int32_t *rows;         /* [places][n_classes] places, or MATCHER_UNKNOWN */
    size_t n_cells, n_configs, n_places;
    size_t cap_cells, cap_configs, cap_places, cap_rows;
    index_table cell_table, place_table;
} matcher_pool;

#define MATCHER_NOWHERE 0
#define MATCHER_UNKNOWN (-1)

typedef struct matcher_mask {
    int32_t place; /* MATCHER_UNKNOWN: none */
    uint64_t *bits;
    uint64_t used; /* matcher.n_used, then */
} matcher_mask;

typedef struct matcher_item {
    uint32_t node, cell;
} matcher_item;

typedef struct matcher {
    const grammar *g; /* borrowed */
    bool no_end;       /* tokens that end the answer are never allowed by the grammar */
    size_t pool_bytes; /* MATCHER_POOL_BYTES; less in tests */
    char *trigger;    /* NULL: none */
    size_t n_trigger;
    uint32_t *borders; /* [n_trigger] [i]: the longest beginning, shorter than i + 1, that trigger[0..i] ends with */
    uint8_t class_of[256];
    int32_t n_classes;
    matcher_pool pool;
    int32_t place; /* where the text is */
    uint64_t work, n_used; /* work: since the last matcher_walk or matcher_allowed began */
    uint64_t debt;         /* of the whole text */
    matcher_mask masks[MATCHER_MASKS];
    int32_t *path; /* [path_cap] places on the way to a node of the trie */
    size_t path_cap;

    /* of the step that is made */
    matcher_item *items; /* nodes reached, each once */
    matcher_config *found;
    size_t n_items, n_found, cap_items, cap_found;
    index_table item_table;
    bool may_end, is_free;
} matcher;

/* Zero-initialise. trigger: NULL or at least a byte; copied. RP_ERR_LIMIT (the grammar's beginning is too ambiguous), RP_ERR_MEMORY. Close
 * it after that too. */
int matcher_open(matcher *m, const grammar *g, const char *trigger, rp_error *err);
void matcher_close(matcher *m);

/* Goes on from *place by n bytes. fits: *place is where that leads to; else it is of no use any more, unless it is m->place, which stays
 * what it was. RP_ERR_LIMIT, RP_ERR_MEMORY: nothing can be said. */
int matcher_walk(matcher *m, int32_t *place, const char *bytes, size_t n, bool *fits);
/* A token of the text was followed: it pays for some of the work. RP_ERR_LIMIT: too much of it is not paid for. */
int matcher_pay(matcher *m);
/* The tokens that can come next, as bits; borrowed until the next call. drops_space: a space at the beginning of a token adds nothing. */
int matcher_allowed(matcher *m, const token_trie *t, bool drops_space, const uint64_t **bits);

/* May the text end here? Must it, for nothing can come? */
static inline bool matcher_may_end(const matcher *m) { return m->pool.places[m->place].may_end; }
static inline bool matcher_must_end(const matcher *m) { return matcher_may_end(m) && m->pool.places[m->place].n == 0; }

/* ---- matcher_pool.c ---- */

int matcher_pool_open(matcher *m);
void matcher_pool_free(matcher_pool *p);
bool matcher_pool_is_full(const matcher *m);
/* The cell of that call. *out: INDEX_NONE where the stack would become too deep. */
int matcher_pool_push(matcher_pool *p, uint32_t node, uint32_t parent, uint32_t *out);
/* The place of the configs in m->found, which are sorted and different. */
int matcher_pool_enter(matcher *m, int32_t *out);
/* Forgets all but m->place and the n places listed, which get new numbers. RP_ERR_LIMIT: there is little room even so. */
int matcher_pool_make_room(matcher *m, int32_t *places, size_t n);
/* Adds a config to m->found. RP_ERR_LIMIT, RP_ERR_MEMORY. */
int matcher_find(matcher *m, matcher_config config);
void matcher_sort_found(matcher *m);

#endif
