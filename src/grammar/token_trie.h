/* SPDX-License-Identifier: Apache-2.0 */
/* token_trie.h: a vocabulary as a trie of bytes: tokens with a common prefix are matched together.
 *
 *   "a" "ab" "abc" "b"      node   0 (root)  1 a   2 b   3 c   4 b       byte order; common prefixes are shared
 *                           depth  0         1     2     3     1
 *                           end    5         4     4     4     5         the first node after its subtree
 *
 * Tokens without text, tokens that end the answer, and tokens longer than TOKEN_TRIE_MAX_DEPTH are in no node.
 * Immutable: any number of threads may use it.
 */
#ifndef GRAMMAR_TOKEN_TRIE_H
#define GRAMMAR_TOKEN_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "reprise.h"

#define TOKEN_TRIE_MAX_DEPTH 1024
#define TOKEN_TRIE_MAX_NODES ((size_t)1 << 28)

typedef struct token_trie {
    int32_t n_tokens;
    uint32_t n_nodes, depth; /* depth: of the deepest node */
    uint8_t *bytes;          /* [n_nodes] */
    uint16_t *depths;
    uint32_t *ends;
    uint32_t *first; /* [n_nodes + 1] a node's tokens are tokens[first[i]] to before tokens[first[i + 1]] */
    int32_t *tokens;
    uint64_t *others;    /* [token_mask_words] mask of the tokens in no node */
    int32_t *end_tokens; /* tokens that end an answer */
    int32_t n_end_tokens;
    size_t size_bytes; /* memory of the trie */
} token_trie;

/* The vocabulary that a trie is built from. */
typedef struct token_source {
    int32_t n_tokens;
    const char *(*bytes)(const void *user, int32_t token,
                         size_t *n); /* bytes that a token adds to a text; n 0 or NULL: none */
    bool (*is_end)(const void *user, int32_t token);
    const void *user;
} token_source;

/* RP_ERR_MEMORY, RP_ERR_LIMIT. The source's bytes are borrowed until it returns. */
int token_trie_new(token_trie **out, const token_source *source, rp_error *err);
void token_trie_free(token_trie *t);

/* Masks: one bit per token. */
static inline size_t token_mask_words(int32_t n_tokens) { return BASE_DIV_UP((size_t)n_tokens, 64); }
static inline bool token_mask_has(const uint64_t *mask, int32_t token) { return mask[token >> 6] >> (token & 63) & 1; }
static inline void token_mask_add(uint64_t *mask, int32_t token) { mask[token >> 6] |= UINT64_C(1) << (token & 63); }

#endif
