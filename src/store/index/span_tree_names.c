/* SPDX-License-Identifier: Apache-2.0 */
/* span_tree_names.c: the names of a tree's nodes (span_names.h), and the report of their tiers.
 *
 *   path     0        64       128      192      256           tokens from the root on
 *   nodes    [------------- n -----|------]                    depth of n: 0    names of n: those of 64, 128 and 192
 *                                   [------ m ------]          depth of m: 140  names of m: those of 192 and 256
 *
 * A node has the names of the multiples of SPAN_NAME_TOKENS in (depth, depth + its tokens]. Two nodes have no name in
 * common: paths differ. A name is held if the node and all its ancestors are in some tier: an ancestor that is absent
 * makes all names below it useless, and they are reported as gone until it is back. The tiers of a name are those of
 * its node.
 */
#include "base/check.h"
#include "store/index/span_tree_internal.h"
#include "reprise_cluster.h"

static bool has_parent(const span_node *n) { return n->parent != NULL; }

/* Tokens [from, from + SPAN_NAME_TOKENS) of the path that ends with n, which has the last of them. */
static void path_tokens(const span_node *n, int32_t from, int32_t *tokens, int32_t *positions) {
    for (int32_t k = SPAN_NAME_TOKENS - 1; k >= 0; k--) {
        while (n->depth > from + k) n = n->parent;
        const int32_t i = from + k - n->depth;
        BASE_DCHECK(i >= 0 && i < n->n_tokens);
        tokens[k] = n->tokens[i];
        positions[k] = n->pos + i;
    }
}

/* The chain from before n up to `end` tokens of the path; tiers, if not NULL, are reported for each name. */
static span_chain span_node_chain(const span_tree *t, const span_node *n, int32_t end, const uint32_t *tiers) {
    int32_t tokens[SPAN_NAME_TOKENS], positions[SPAN_NAME_TOKENS];
    span_chain chain = n->chain;
    for (int32_t from = n->depth / SPAN_NAME_TOKENS * SPAN_NAME_TOKENS; from + SPAN_NAME_TOKENS <= end;
         from += SPAN_NAME_TOKENS) {
        path_tokens(n, from, tokens, positions);
        const rp_name parent = chain.name;
        span_chain_next(&chain, tokens, positions);
        for (int32_t k = 0; k < SPAN_NAME_TOKENS; k++) chain.is_plain &= positions[k] == from + k;
        if (!tiers) continue;
        span_reporter_add(t->reporter, &chain.name, *tiers);
        if (chain.is_plain) span_reporter_add_block(t->reporter, &chain.name, &parent, tokens, *tiers);
    }
    return chain;
}

void span_node_begin_names(const span_tree *t, span_node *n) {
    if (!t->reporter) return;
    if (!has_parent(n)) {
        n->chain = span_chain_begin(&t->reporter->cluster_key, &n->key);
        n->chain.is_plain = t->reporter->on_blocks && base_key_equal(&n->key, &t->reporter->blocks_root);
        return;
    }
    BASE_ASSERT(n->at >= 0 && n->at <= n->parent->n_tokens);
    n->depth = n->parent->depth + n->at;
    n->chain = span_node_chain(t, n->parent, n->depth, NULL);
}

/* The node after n in the order of parents before children, below `top`; skip: without those below n. NULL: none. */
static span_node *node_after(const span_node *top, span_node *n, bool skip) {
    if (!skip && n->n_children > 0) return n->children[0];
    for (; n != top; n = n->parent) {
        const size_t next = child_index(n->parent, span_node_place_of(n)) + 1;
        if (next < n->parent->n_children) return n->parent->children[next];
    }
    return NULL;
}

void span_tree_begin_names(const span_tree *t) {
    for (size_t i = 0; i < t->n_roots && t->reporter; i++)
        for (span_node *n = t->roots[i]; n; n = node_after(t->roots[i], n, false)) span_node_begin_names(t, n);
}

static bool is_reached(const span_node *n) {
    for (n = n->parent; has_parent(n); n = n->parent)
        if (n->tiers == 0) return false;
    return true;
}

static void report_node(const span_tree *t, const span_node *n, uint32_t tiers) {
    span_node_chain(t, n, n->depth + n->n_tokens, &tiers);
}

/* Names below a node are there with it, and not without it. */
static void report_below(const span_tree *t, span_node *top) {
    bool skip = false;
    for (span_node *n = top; (n = node_after(top, n, skip));) {
        skip = n->tiers == 0;
        if (!skip) report_node(t, n, top->tiers ? n->tiers : 0);
    }
}

void span_tree_report(void *tree, const span_change *change) {
    const span_tree *t = tree;
    span_node *n = change->owner;
    if (record_is_of_states(change->kind)) return; /* routers count tokens, not checkpoints */
    if (change->kind != RECORD_TEXT) {
        const rp_name name = span_name_of(&t->reporter->cluster_key, change->key);
        span_reporter_add(t->reporter, &name, change->tiers);
        return;
    }
    if (!n) return;
    BASE_ASSERT(base_key_equal(&n->key, change->key) && n->n_tokens > 0);
    const bool was_there = n->tiers != 0;
    n->tiers = (uint8_t)change->tiers;
    if (!is_reached(n)) return;
    report_node(t, n, n->tiers);
    if (was_there != (n->tiers != 0)) report_below(t, n);
}

int span_tree_text_names(void *tree, const void *owner, rp_name *out, int most) {
    const span_tree *t = tree;
    const span_node *n = owner;
    int32_t tokens[SPAN_NAME_TOKENS], positions[SPAN_NAME_TOKENS];
    span_chain chain = n->chain;
    int k = 0;
    BASE_ASSERT(t->reporter);
    for (int32_t from = n->depth / SPAN_NAME_TOKENS * SPAN_NAME_TOKENS;
         from + SPAN_NAME_TOKENS <= n->depth + n->n_tokens && k < most; from += SPAN_NAME_TOKENS) {
        path_tokens(n, from, tokens, positions);
        span_chain_next(&chain, tokens, positions);
        out[k++] = chain.name;
    }
    return k;
}

void span_tree_set_reporter(span_tree *t, struct span_reporter *reporter) { t->reporter = reporter; }
