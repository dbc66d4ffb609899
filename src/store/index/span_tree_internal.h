/* SPDX-License-Identifier: Apache-2.0 */
/* span_tree_internal.h: shared by span_tree.c (the tree) and span_tree_names.c (names of nodes). */
#ifndef STORE_SPAN_TREE_INTERNAL_H
#define STORE_SPAN_TREE_INTERNAL_H

#include "base/list.h"
#include "store/index/span_names.h"
#include "store/index/span_tree.h"

struct span_node {
    span_node *parent;    /* NULL: a root */
    span_node **children; /* by (at, position, first token) */
    size_t n_children, cap_children;
    base_key key;
    base_key salt;    /* of a root */
    uint64_t number;  /* ascending in order of creation */
    size_t holds;     /* references by paths */
    bool present;     /* the store has its span; never for a root */
    bool is_replaced; /* no child of its parent any more; freed with its last reference */
    uint8_t tiers;    /* RP_TIER_*, as the store has last reported; 0 without names */
    int32_t depth;    /* tokens of its path before it; set with names, like */
    span_chain chain; /* up to the last multiple of SPAN_NAME_TOKENS of them (span_names.h) */
    BASE_LINKS(span_node)
    dropped;    /* of an evicted node without references */
    int32_t at; /* tokens of the parent before it */
    int32_t pos, first_slot, n_tokens;
    uint64_t states
        [KV_SPAN_BLOCKS]; /* bit k: there was a checkpoint after its token k: the store may have dropped it since */
    int32_t tokens[];
};

/* A node of a record, not linked to its parent yet; or a checkpoint of a record, not known to its node yet. */
typedef struct lost_node {
    span_node *node; /* NULL: a checkpoint, */
    base_key parent;
    int32_t at; /* after so many tokens of the node `parent`, */
    base_key key;
} lost_node;

struct span_tree {
    span_store *store;
    lost_node *lost; /* between span_tree_own and span_tree_settle */
    size_t n_lost, cap_lost;
    span_node **roots; /* by salt, then by key */
    size_t n_roots, cap_roots, n_present, n_dropped;
    uint64_t n_made; /* nodes, ever created */
    BASE_LIST(span_node)
    dropped;                 /* in the order of eviction */
    span_reporter *reporter; /* borrowed; NULL: nodes have no names */
};

/* ---- children, in order ---- */

/* The point at which a child begins. */
typedef struct place {
    int32_t at, pos, token;
} place;

static inline place span_node_place_of(const span_node *n) { return (place){n->at, n->pos, n->tokens[0]}; }

static inline int span_tree_compare(int32_t a, int32_t b) { return (a > b) - (a < b); }

static inline int span_tree_compare_places(place a, place b) {
    int c = span_tree_compare(a.at, b.at);
    if (c == 0) c = span_tree_compare(a.pos, b.pos);
    return c ? c : span_tree_compare(a.token, b.token);
}

/* The index of the child at a place, or its insertion point. */
static inline size_t child_index(const span_node *parent, place p) {
    size_t low = 0, high = parent->n_children;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (span_tree_compare_places(span_node_place_of(parent->children[mid]), p) < 0) low = mid + 1;
        else high = mid;
    }
    return low;
}

/* ---- span_tree_names.c; nothing without a reporter ---- */

/* A root, or a node that was linked to its parent: sets depth and chain. */
void span_node_begin_names(const span_tree *t, span_node *n);
/* The same for all nodes below the roots. */
void span_tree_begin_names(const span_tree *t);

#endif
