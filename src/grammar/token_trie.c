/* SPDX-License-Identifier: Apache-2.0 */
/* token_trie.c: see token_trie.h. */
#include "grammar/token_trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

typedef struct token_text {
    const char *bytes;
    uint32_t n;
    int32_t id;
} token_text;

static int token_trie_by_bytes(const void *a, const void *b) {
    const token_text *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, BASE_MIN(x->n, y->n));
    if (order) return order;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static int32_t count_ends(const token_source *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_tokens; i++) n += s->is_end(s->user, i);
    return n;
}

/* Lists the tokens for the nodes, sorted, and puts the others into their sets. */
static uint32_t list_texts(token_trie *t, const token_source *s, token_text *texts) {
    uint32_t n_texts = 0;
    for (int32_t i = 0; i < s->n_tokens; i++) {
        size_t n = 0;
        const char *bytes = s->bytes(s->user, i, &n);
        if (s->is_end(s->user, i)) {
            t->end_tokens[t->n_end_tokens++] = i;
            n = 0;
        }
        if (bytes && n > 0 && n <= TOKEN_TRIE_MAX_DEPTH) texts[n_texts++] = (token_text){bytes, (uint32_t)n, i};
        else token_mask_add(t->others, i);
    }
    qsort(texts, n_texts, sizeof(*texts), token_trie_by_bytes);
    return n_texts;
}

/* Length of the common prefix of two texts. */
static uint32_t token_text_common(const token_text *a, const token_text *b) {
    uint32_t n = BASE_MIN(a->n, b->n), i = 0;
    while (i < n && a->bytes[i] == b->bytes[i]) i++;
    return i;
}

static size_t count_nodes(const token_text *texts, uint32_t n) {
    size_t nodes = 1;
    for (uint32_t i = 0; i < n; i++) nodes += texts[i].n - (i > 0 ? token_text_common(&texts[i - 1], &texts[i]) : 0);
    return nodes;
}

static void token_trie_fill(token_trie *t, const token_text *texts, uint32_t n) {
    uint32_t open[TOKEN_TRIE_MAX_DEPTH + 1] = {0}; /* the open ancestors, by depth */
    uint32_t nodes = 1, depth = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t same = i > 0 ? token_text_common(&texts[i - 1], &texts[i]) : 0;
        for (; depth > same; depth--) t->ends[open[depth]] = nodes;
        for (; depth < texts[i].n; nodes++) {
            t->bytes[nodes] = (uint8_t)texts[i].bytes[depth++];
            t->depths[nodes] = (uint16_t)depth;
            t->first[nodes] = i;
            open[depth] = nodes;
        }
        t->depth = BASE_MAX(t->depth, depth);
        t->tokens[i] = texts[i].id;
    }
    for (;; depth--) {
        t->ends[open[depth]] = nodes;
        if (depth == 0) break;
    }
    BASE_ASSERT(nodes == t->n_nodes); /* count_nodes */
    t->first[nodes] = n;
}

static int token_trie_allocate(token_trie *t, size_t nodes, uint32_t n_texts, rp_error *err) {
    if (nodes > TOKEN_TRIE_MAX_NODES)
        return base_fail(err, RP_ERR_LIMIT, "a vocabulary of more than %zu bytes", TOKEN_TRIE_MAX_NODES);
    t->n_nodes = (uint32_t)nodes;
    t->bytes = base_calloc(nodes, sizeof(*t->bytes));
    t->depths = base_calloc(nodes, sizeof(*t->depths));
    t->ends = base_calloc(nodes, sizeof(*t->ends));
    t->first = base_calloc(nodes + 1, sizeof(*t->first));
    t->tokens = base_calloc((size_t)n_texts + 1, sizeof(*t->tokens));
    t->size_bytes = nodes * (sizeof(*t->bytes) + sizeof(*t->depths) + sizeof(*t->ends) + sizeof(*t->first)) +
                    ((size_t)n_texts + (size_t)t->n_end_tokens) * sizeof(*t->tokens) +
                    token_mask_words(t->n_tokens) * sizeof(*t->others);
    if (t->bytes && t->depths && t->ends && t->first && t->tokens) return RP_OK;
    return base_fail_memory(err, t->size_bytes, "a vocabulary's trie");
}

int token_trie_new(token_trie **out, const token_source *s, rp_error *err) {
    token_trie *t = *out = base_calloc(1, sizeof(*t));
    token_text *texts = base_calloc((size_t)s->n_tokens + 1, sizeof(*texts));
    int rc = RP_OK;
    if (t) {
        t->n_tokens = s->n_tokens;
        t->others = base_calloc(token_mask_words(s->n_tokens) + 1, sizeof(*t->others));
        t->end_tokens = base_calloc((size_t)count_ends(s) + 1, sizeof(*t->end_tokens));
    }
    if (!t || !texts || !t->others || !t->end_tokens)
        rc = base_fail_memory(err, (size_t)s->n_tokens * sizeof(*texts), "a vocabulary's trie");
    if (!rc) {
        uint32_t n = list_texts(t, s, texts);
        rc = token_trie_allocate(t, count_nodes(texts, n), n, err);
        if (!rc) token_trie_fill(t, texts, n);
    }
    base_free(texts);
    if (rc) {
        token_trie_free(t);
        *out = NULL;
    }
    return rc;
}

void token_trie_free(token_trie *t) {
    if (!t) return;
    base_free(t->bytes);
    base_free(t->depths);
    base_free(t->ends);
    base_free(t->first);
    base_free(t->tokens);
    base_free(t->others);
    base_free(t->end_tokens);
    base_free(t);
}
