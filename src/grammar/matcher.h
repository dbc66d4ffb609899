/* SPDX-License-Identifier: Apache-2.0 */
/* matcher.h: matches a text against a grammar, byte by byte, and computes the mask of tokens allowed next.
 *
 *   place    a state of the automaton: a set of configs, all ways in which the text can be a prefix of a match
 *   config   (node, unit, cell): this unit of the node's character is still to match; cell: the stack at this node
 *   cell     (node, parent): a stack frame: an active call and where it returns to; stacks share their lower frames
 *
 *   { "a" : [ 1            place 17: (digits', DONE, 5)  (more, DONE, 4)  ...     cell 5 -> 4 -> 2 -> 0, the bottom
 *
 * Equal cells and equal places are stored once (hash-consing). Each place has a row: for each class of bytes, the next
 * place. The automaton is thereby built on demand, and most bytes cost one lookup in a row. A call at the end of a rule
 * returns to that rule's caller (tail call): lists written by recursion do not grow the stack.
 *
 * Until the trigger has matched, there is one config, at no node. The trigger is matched by its own automaton (Knuth,
 * Morris, Pratt, 1977).
 *
 * Bounds: a pool holds all of it; when the pool is full, unused places and cells are evicted (matcher_pool.c). A place
 * of too many configs, or a step that takes too much work, fails with RP_ERR_LIMIT. Calls nested deeper than
 * MATCHER_MAX_NESTING are not in the language. One thread at a time.
 */
#ifndef GRAMMAR_MATCHER_H
#define GRAMMAR_MATCHER_H

#include "grammar/grammar.h"
#include "grammar/index_table.h"
#include "grammar/token_trie.h"

#define MATCHER_MAX_NESTING 4096
#define MATCHER_MAX_CONFIGS 16384            /* of a place */
#define MATCHER_MAX_ITEMS 65536              /* nodes visited between two bytes */
#define MATCHER_MAX_WORK ((uint64_t)1 << 18) /* configs and nodes for one token; other sequences wait: about 25 ms */
/* Of a whole text: each token pays for MATCHER_TOKEN_WORK; the unpaid rest is at most MATCHER_MAX_DEBT. */
#define MATCHER_TOKEN_WORK ((uint64_t)1 << 14)
#define MATCHER_MAX_DEBT ((uint64_t)1 << 19)
#define MATCHER_POOL_BYTES ((size_t)4 << 20)
#define MATCHER_MASKS 16 /* cached masks */

typedef struct matcher_config {
    uint32_t node, unit, cell; /* MATCHER_TRIGGER: unit is the number of bytes of the trigger that the text ends with */
} matcher_config;

#define MATCHER_TRIGGER UINT32_MAX

typedef struct matcher_cell {
    uint32_t node, parent, depth;
} matcher_cell;

typedef struct matcher_place {
    uint32_t first, n; /* configs, sorted */
    bool may_end;
    bool is_free; /* the trigger has not matched yet */
} matcher_place;

typedef struct matcher_pool {
    matcher_cell *cells; /* 0: the bottom */
    matcher_config *configs;
    matcher_place *places; /* 0: MATCHER_NOWHERE */
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
    uint64_t used; /* matcher.n_used at the last use */
} matcher_mask;

typedef struct matcher_item {
    uint32_t node, cell;
} matcher_item;

typedef struct matcher {
    const grammar *g;  /* borrowed */
    bool no_end;       /* tokens that end the answer are never allowed by the grammar */
    size_t pool_bytes; /* MATCHER_POOL_BYTES; less in tests */
    char *trigger;     /* NULL: none */
    size_t n_trigger;
    uint32_t *borders; /* [n_trigger] [i]: length of the longest proper prefix that is a suffix of trigger[0..i] */
    uint8_t class_of[256];
    int32_t n_classes;
    matcher_pool pool;
    int32_t place;         /* after the text so far */
    uint64_t work, n_used; /* work: of the current or last matcher_walk or matcher_allowed */
    uint64_t debt;         /* of the whole text */
    matcher_mask masks[MATCHER_MASKS];
    int32_t *path; /* [path_cap] places along the path to a node of the trie */
    size_t path_cap;

    /* of the current step */
    matcher_item *items; /* nodes reached, each once */
    matcher_config *found;
    size_t n_items, n_found, cap_items, cap_found;
    index_table item_table;
    bool may_end, is_free;
} matcher;

/* Zero-initialise m first. trigger: NULL, or at least one byte; copied. RP_ERR_LIMIT (the grammar's start is too
 * ambiguous), RP_ERR_MEMORY. Close the matcher on failure, too. */
int matcher_open(matcher *m, const grammar *g, const char *trigger, rp_error *err);
void matcher_close(matcher *m);

/* Matches n bytes from *place. If *fits, *place is the place after them; else *place is invalid, except that m->place
 * keeps its value. RP_ERR_LIMIT, RP_ERR_MEMORY: *fits is undefined. */
int matcher_walk(matcher *m, int32_t *place, const char *bytes, size_t n, bool *fits);
/* Pays for work after a token of the text has matched. RP_ERR_LIMIT: the debt exceeds MATCHER_MAX_DEBT. */
int matcher_pay(matcher *m);
/* The mask of tokens allowed next; borrowed until the next call. drops_space: a token's leading space adds no text. */
int matcher_allowed(matcher *m, const token_trie *t, bool drops_space, const uint64_t **bits);

/* May the text end here? Must it end, because no byte is allowed? */
static inline bool matcher_may_end(const matcher *m) { return m->pool.places[m->place].may_end; }
static inline bool matcher_must_end(const matcher *m) { return matcher_may_end(m) && m->pool.places[m->place].n == 0; }

/* ---- matcher_pool.c ---- */

int matcher_pool_open(matcher *m);
void matcher_pool_free(matcher_pool *p);
bool matcher_pool_is_full(const matcher *m);
/* The cell of a call. *out: INDEX_NONE if the stack would exceed MATCHER_MAX_NESTING. */
int matcher_pool_push(matcher_pool *p, uint32_t node, uint32_t parent, uint32_t *out);
/* The place of the configs in m->found, which are sorted and distinct. */
int matcher_pool_enter(matcher *m, int32_t *out);
/* Evicts all but m->place and the n listed places, which get new indices. RP_ERR_LIMIT: over half of the pool remains
 * used. */
int matcher_pool_make_room(matcher *m, int32_t *places, size_t n);
/* Adds a config to m->found. RP_ERR_LIMIT, RP_ERR_MEMORY. */
int matcher_find(matcher *m, matcher_config config);
void matcher_sort_found(matcher *m);

#endif
