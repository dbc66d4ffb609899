/* SPDX-License-Identifier: Apache-2.0 */
/* span_tree.h: what was read before, by its tokens: a radix tree whose nodes are spans.
 *
 *   root     whose text it is (a tenant's salt), and a key: all that stands before the first token (the salt itself for plain text, the
 *            views of a plan, with the salt, for a prompt of modules)
 *   node     tokens at consecutive positions behind the first `at` tokens of its parent, and the span that holds their states
 *
 *       root -- [You are a concise guide. Today is] -- [Monday. ...]
 *                            |
 *                            at 3: [verbose guide ...]
 *
 * A prompt that leaves a node in the middle uses the span's first tokens by a view with a mask, and what it computes becomes a
 * child from there on: nothing is split, copied or computed again. Where two prompts have computed the same, the later one's span serves
 * from the token on in which they differ. Matches are exact to the token.
 *
 * Spans belong to the store (span_store.h), which may drop any that nobody holds, children before their parents. Of the last SPAN_TREE_DROPPED_NODES that were dropped the tree still knows the tokens: to say that a prompt
 * was known.
 *
 * Texts of two salts have no node in common, and what is said of a text of one does not depend on those of another.
 *
 * Invariants: a node's way is its parent's way with the first `at` tokens of the parent; the first token of a child is neither another
 * child's nor its parent's own next one at that place; what is held is there, and so is all above it. Used by one thread (the engine's).
 */
#ifndef STORE_SPAN_TREE_H
#define STORE_SPAN_TREE_H

#include "store/span_store.h"

#define SPAN_TREE_MAX_STEPS ((size_t)1 << 20)
#define SPAN_TREE_ALIKE 16
#define SPAN_TREE_DROPPED_NODES 4096 /* at most 1 KiB of tokens each */

typedef struct span_tree span_tree;
typedef struct span_node span_node;

/* Where texts begin. The key depends on the salt, too, so whoever comes with it has the right salt: a root whose salt is not known, zeros
 * (states that come from elsewhere name their root by key alone), gets it from the first match. Until then nothing is told of its texts. */
typedef struct span_root {
    base_key salt;
    base_key key; /* names of nodes follow from it alone */
} span_root;

/* Why a match ended where it did. */
typedef enum span_end {
    SPAN_END_ALL,     /* all tokens were found */
    SPAN_END_NEW,     /* nobody read on like this, as far as is known */
    SPAN_END_DROPPED, /* somebody did, and the states were dropped */
    SPAN_END_WINDOW,  /* layers with a window gave back what a reader from here would need */
    SPAN_END_MEMORY,    /* it is on disk, and there is no room to read it into */
} span_end;

/* Tokens of a way: slots [first_slot, first_slot + n_tokens) of a span. */
typedef struct span_step {
    span_node *node; /* held */
    kv_span *span;   /* a reference; NULL for the root */
    bool from_disk;  /* it was not in RAM when it was found */
    int32_t first_slot, n_tokens;
} span_step;

/* A way from a root downwards: steps[0] is the root. */
typedef struct span_path {
    span_tree *tree;
    span_step *steps;
    size_t n_steps, cap_steps;
    size_t n_tokens; /* of all steps */
    span_end end;    /* of the match */
} span_path;

/* store is borrowed; its drops are told to this tree alone. RP_ERR_MEMORY. */
int span_tree_new(span_tree **out, span_store *store, rp_error *err);
void span_tree_free(span_tree *t); /* before its store; no path is open */

/* Finds the longest way that reads tokens[0..n) at positions[0..n) behind a root. *path is overwritten; release it, after errors too.
 * RP_ERR_MEMORY. */
int span_tree_match(span_tree *t, const span_root *root, const int32_t *tokens, const int32_t *positions, size_t n, span_path *path,
                    rp_error *err);
/* Calls fn with the keys of the spans that such a match would take, in their order, until it returns false; fn NULL: all of them. Nothing is
 * held or noted. Returns how many tokens they have of these: a match may find fewer, where a record cannot be read or a window reaches. */
typedef bool (*span_tree_fn)(void *user, const base_key *key);
size_t span_tree_peek(const span_tree *t, const span_root *root, const int32_t *tokens, const int32_t *positions, size_t n,
                       span_tree_fn fn, void *user);
/* How what is known goes on behind a path: up to `most` tokens of its last node or of a child. Returns how many. */
int32_t span_path_known(const span_path *path, int32_t *tokens, int32_t most);
/* Was a text that begins like these n tokens read behind another root of the same salt? As many tokens as the text's first span has, at
 * least SPAN_TREE_ALIKE. */
bool span_tree_knows(const span_tree *t, const span_root *but, const int32_t *tokens, size_t n);
/* What else was read behind step i of a path: the rest of its node behind the step's tokens, if there is any, else its newest other child
 * there; then the newest child of each. *other: without a root, perhaps empty; span_path_release. RP_ERR_MEMORY. */
int span_path_other(const span_path *path, size_t i, span_path *other, rp_error *err);
/* The tokens of a step, and in *pos the position of the first. Valid while the step is held. */
const int32_t *span_step_tokens(const span_step *step, int32_t *pos);
/* Goes on by the tokens of an open span, which were computed behind the path: as far as they are known along nodes that are there, and
 * by a new node, whose span it becomes, from there on. *kept: it was named, sealed and given to the store; otherwise others hold all
 * of it. RP_ERR_MEMORY: the path ends where it was known. */
int span_tree_extend(span_path *path, kv_span *span, const int32_t *tokens, uint64_t cost_us, bool *kept, rp_error *err);
/* What nobody holds and span_tree_extend would, since others have computed the same: bytes of spans. */
uint64_t span_tree_extend_bytes(const span_path *path, const kv_span *span, const int32_t *tokens);
/* Notes what the path has found as used. */
void span_path_use(const span_path *path);
/* The node of that key goes, with its span, from both tiers, if nothing that is there stands on it and no path holds it. */
void span_tree_release(span_tree *t, const base_key *key);
/* Lets go of it. A path of zeros is fine. */
void span_path_release(span_path *path);

/* Nodes of records (a span_store_own; user: the tree), which stand nowhere until span_tree_settle hangs all of them where they belong. What does not say
 * what its key says, and what hangs nowhere, is dropped. RP_ERR_MEMORY. */
int span_tree_own(void *tree, const record_row *row, void **owner, rp_error *err);
int span_tree_settle(span_tree *t, rp_error *err);

size_t span_tree_nodes(const span_tree *t); /* that are there, without roots */

#endif
