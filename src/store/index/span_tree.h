/* SPDX-License-Identifier: Apache-2.0 */
/* span_tree.h: the prefix tree: a radix tree over the tokens of cached text. Its nodes are spans.
 *
 *   root     the owner of the text (a tenant's salt), and a key: everything that the first token attends to (the salt
 *         itself for
 *            plain text; the salt, views and tokens at lower positions for text after modules)
 *   node     tokens at consecutive positions after the first `at` tokens of its parent, and the span with their KV
 *
 *       root -- [You are a concise guide. Today is] -- [Monday. ...]
 *                            |
 *                            at 3: [verbose guide ...]
 *
 * A prompt that leaves a node in the middle uses the span's first tokens by a view with a mask, and its computed
 * tokens become a child at that point: no span is split, copied or recomputed. If two prompts have computed the same
 * tokens, the later span is used from the first token on in which they differ. Matches are exact to the token.
 *
 * Spans belong to the store (span_store.h), which may evict any that nobody references, children before their
 * parents. The tree still has the tokens of the last SPAN_TREE_DROPPED_NODES evicted nodes: to report a miss as
 * `evicted`.
 *
 * Recurrent layers (kv_layer.h) hold a state after each token, and a copy of it only where a text was computed up to
 * there: a checkpoint, a span of states in the store, named by a node and a number of its tokens. A model with such
 * layers uses a path up to a checkpoint (span_path_take_states). A checkpoint is evicted before its node, or alone: a
 * path then ends at an earlier one.
 *
 * Texts of two salts share no node, and no answer about a text of one salt depends on the texts of another.
 *
 * Invariants: a node's path is its parent's path with the first `at` tokens of the parent; the first token of a child
 * differs from those of all other children at that offset and from the parent's own next token; the ancestors of a
 * referenced node are referenced. Its span may have left the store, unreadable or removed: then the same text, computed
 * again, takes the node over, and another text its place in the tree; steps keep the span that they have. Used by one
 * thread (the engine's).
 */
#ifndef STORE_SPAN_TREE_H
#define STORE_SPAN_TREE_H

#include "store/span_store.h"

#define SPAN_TREE_MAX_STEPS ((size_t)1 << 20)
#define SPAN_TREE_ALIKE 16
#define SPAN_TREE_DROPPED_NODES 4096 /* at most 1 KiB of tokens each */

typedef struct span_tree span_tree;
typedef struct span_node span_node;

/* Where texts begin. The key depends on the salt: a caller with the key has the right salt. A root of unknown salt,
 * zeros (records name their root by key alone), gets the salt from its first match. Until then nothing is reported
 * about its texts. */
typedef struct span_root {
    base_key salt;
    base_key key; /* the keys of its nodes depend on this alone */
} span_root;

/* Why a match ended where it did. */
typedef enum span_end {
    SPAN_END_ALL,     /* all tokens matched */
    SPAN_END_NEW,     /* no cached text continues like this, as far as known */
    SPAN_END_DROPPED, /* one did, and its KV was evicted */
    SPAN_END_WINDOW,  /* layers with a window freed KV that the next token needs */
    SPAN_END_MEMORY,  /* it is on disk, and there is no memory to read it into */
    SPAN_END_STATES,  /* its KV is cached, but recurrent layers have no checkpoint there */
} span_end;

/* Tokens of a path: [first_token, first_token + n_tokens) of a node, in as many slots of a span from first_slot on. */
typedef struct span_step {
    span_node *node; /* referenced */
    kv_span *span;   /* a reference; NULL for a root */
    span_found from; /* its tier at the lookup */
    int32_t first_token, first_slot, n_tokens;
} span_step;

/* A path from a root downwards: steps[0] is the root; after a turn, another step is. */
typedef struct span_path {
    span_tree *tree;
    span_step *steps;
    size_t n_steps, cap_steps;
    size_t n_tokens; /* of all steps */
    span_end end;    /* of the match */
} span_path;

/* store is borrowed; this tree becomes its only on_drop. RP_ERR_MEMORY. */
int span_tree_new(span_tree **out, span_store *store, rp_error *err);
void span_tree_free(span_tree *t); /* before its store; no path is open */

/* Finds the longest path of tokens[0..n) at positions[0..n) from a root. *path is overwritten; release it, after
 * errors too. RP_ERR_MEMORY. */
int span_tree_match(span_tree *t, const span_root *root, const int32_t *tokens, const int32_t *positions, size_t n,
                    span_path *path, rp_error *err);
/* Continues a path that has matched all of its tokens so far from another root: tokens from path->n_tokens on, up to n,
 * of KV that is computed in another way than the tokens before them, which the root's key names. The path then has a
 * step of that root, without a span. RP_ERR_MEMORY. span_path_turns: how often a path was continued like this. */
int span_path_turn(span_path *path, const span_root *root, const int32_t *tokens, const int32_t *positions, size_t n,
                   rp_error *err);
size_t span_path_turns(const span_path *path);
/* Calls fn with the keys of the spans of such a match, in order, until it returns false; fn NULL: counts only. Takes
 * no references and counts no use. Returns the number of matched tokens: a match may have fewer, if a record is
 * unreadable or a window needs freed KV. states: the last checkpoint on the way, as far as is known; may be NULL. */
typedef bool (*span_tree_fn)(void *user, const base_key *key);
typedef struct span_tree_states {
    size_t n_tokens; /* before it; 0: there is none */
    base_key key;
} span_tree_states;
size_t span_tree_peek(const span_tree *t, const span_root *root, const int32_t *tokens, const int32_t *positions,
                      size_t n, span_tree_fn fn, void *user, span_tree_states *states);
/* The continuation of a path in the tree: up to `most` tokens of its last node or of a child. Returns their number. */
int32_t span_path_known(const span_path *path, int32_t *tokens, int32_t most);
/* Was a text that begins with these n tokens cached from another root of the same salt? Compares as many tokens as
 * the text's first span has, at least SPAN_TREE_ALIKE. */
bool span_tree_knows(const span_tree *t, const span_root *but, const int32_t *tokens, size_t n);
/* An alternative continuation after step i of a path: a child there, or the rest of its node after the step's tokens;
 * then the newest child of each. The newest one with a number below *below, which becomes its number: UINT64_MAX for
 * the first; 0 afterwards: there was none. *other: without a root, may be empty; span_path_release. RP_ERR_MEMORY. */
int span_path_other(const span_path *path, size_t i, uint64_t *below, span_path *other, rp_error *err);
/* The tokens of a step, and in *pos the position of the first. Valid while the step is referenced. */
const int32_t *span_step_tokens(const span_step *step, int32_t *pos);
/* Extends a path by the tokens of an open span, which were computed after it: along existing nodes as far as they
 * match, and then by a new node, which takes the span. *kept: the span was named, sealed and inserted into the store;
 * otherwise other nodes have all of its tokens. RP_ERR_MEMORY: the path ends where the match ended. */
int span_tree_extend(span_path *path, kv_span *span, const int32_t *tokens, uint64_t cost_us, bool *kept,
                     rp_error *err);
/* Inserts a span that was pulled from a pool: it is not sealed, and its slots have the tokens given, which follow the
 * first n of tokens and positions. *kept: as span_tree_extend. It is not if the tree does not have these n, or has all
 * of its own. RP_ERR_MEMORY. */
int span_tree_graft(span_tree *t, const span_root *root, const int32_t *tokens, const int32_t *positions, size_t n,
                    kv_span *span, const int32_t *span_tokens, uint64_t cost_us, bool *kept, rp_error *err);
/* Bytes of spans that nobody references and span_tree_extend would reference, as they have the same tokens. */
uint64_t span_tree_extend_bytes(const span_path *path, const kv_span *span, const int32_t *tokens);
/* The name of a checkpoint after n tokens of a span: a node's, or the last one of a module. */
base_key span_states_name(const base_key *span, int32_t n);
/* Shortens a path to its last token that has a checkpoint in the store: *states, a reference (it may still be loading);
 * NULL: none has, and the path is empty. Its end is SPAN_END_STATES if it lost tokens. */
void span_path_take_states(span_path *path, kv_span **states);
/* Seals and inserts a checkpoint: the states after the path's first n tokens, n >= 1. The caller's reference stays.
   RP_ERR_MEMORY. */
int span_path_put_states(const span_path *path, size_t n, kv_span *states, uint64_t cost_us, rp_error *err);
/* Counts a use of the path's spans. */
void span_path_use(const span_path *path);
/* Removes the node of that key and its span, from both tiers, unless it has a present child or a path references it. */
void span_tree_release(span_tree *t, const base_key *key);
/* Releases its references. A path of zeros is fine. */
void span_path_release(span_path *path);

/* Adds nodes and checkpoints of records (a span_store_own; user: the tree), without a parent until span_tree_settle
 * links all of them. One with content that does not match its key is removed, and so is one without a parent.
 * RP_ERR_MEMORY. */
int span_tree_own(void *tree, const record_row *row, span_claim *claim, rp_error *err);
int span_tree_settle(span_tree *t, rp_error *err);

/* Names its nodes, and reports their tiers (span_names.h). Before the first root; borrowed. span_tree_report is the
   store's span_store_on_change. */
struct span_reporter;
/* A span_text_names of its nodes; user: the tree, which has a reporter. */
int span_tree_text_names(void *tree, const void *owner, rp_name *out, int most);
void span_tree_set_reporter(span_tree *t, struct span_reporter *reporter);
void span_tree_report(void *tree, const span_change *change);

size_t span_tree_nodes(const span_tree *t); /* with a span, without roots */

#endif
