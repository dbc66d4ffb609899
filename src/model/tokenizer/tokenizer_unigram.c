/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_unigram.c: the most probable segmentation of a text (Kudo 2018): Viterbi over the sum of the pieces'
 * scores, which are log-probabilities. A character that no piece covers scores 10 less than the worst piece. It becomes
 * byte tokens if the vocabulary has them, else a run of these characters becomes one unknown token.
 */
#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/tokenizer/tokenizer_internal.h"

#define UNKNOWN_PENALTY 10.0f /* as SentencePiece */
#define MAX_PIECE_BYTES 1024  /* longer pieces are ignored: the limit bounds the walk from each character */

int unigram_open(tokenizer *t, rp_error *err) {
    prefix_list *l = &t->pieces;
    float lowest = 0;
    l->texts = base_calloc((size_t)t->n_vocab, sizeof(*l->texts));
    if (!l->texts) return base_fail_memory(err, (size_t)t->n_vocab * sizeof(*l->texts), "the vocabulary");
    for (int32_t i = 0; i < t->n_vocab; i++) {
        if (t->types[i] != TOKEN_NORMAL || t->texts[i].n == 0 || t->texts[i].n > MAX_PIECE_BYTES) continue;
        if (l->n == 0 || t->scores[i] < lowest) lowest = t->scores[i];
        l->texts[l->n++] = (prefix_text){t->texts[i].bytes, (uint32_t)t->texts[i].n, i};
    }
    prefix_sort(l);
    t->unknown_score = lowest - UNKNOWN_PENALTY;
    return RP_OK;
}

/* ---- the best path ---- */

/* The best path to a byte of the text: its previous byte offset and its last piece (-1: unknown character). The score
 * is a float with SentencePiece's rounding: pieces in another order have the same sum except for rounding, which
 * decides. */
typedef struct path {
    float score;
    uint32_t from; /* UINT32_MAX: not reached yet */
    int32_t id;
} path;

static void path_offer(path *to, float score, size_t from, int32_t id) {
    if (to->from == UINT32_MAX || score > to->score) *to = (path){score, (uint32_t)from, id};
}

/* Extends the path that ends at `at` by every piece that begins there. */
static void tokenizer_unigram_extend(const tokenizer *t, const char *text, size_t n, size_t at, path *paths) {
    BASE_DCHECK(at == 0 || paths[at].from != UINT32_MAX); /* every character is reached */
    size_t character = character_bytes(text + at, n - at);
    prefix_walk walk = prefix_begin(&t->pieces);
    bool written = false;
    for (size_t end = at; end < n && prefix_step(&t->pieces, &walk, text[end++]);) {
        const prefix_text *piece;
        if (prefix_whole(&t->pieces, &walk, &piece) == 0) continue;
        path_offer(&paths[end], paths[at].score + t->scores[piece->id], at, piece->id);
        written = written || walk.depth == character;
    }
    if (!written) path_offer(&paths[at + character], paths[at].score + t->unknown_score, at, -1);
}

/* Reverses the links of the best path, so that it can be followed from its start. */
static void turn_around(path *paths, size_t n) {
    path ahead = {.from = UINT32_MAX};
    for (size_t at = n, next = n;;) {
        path p = paths[at];
        paths[at] = (path){0, (uint32_t)next, ahead.id};
        if (at == 0) break;
        ahead = p;
        next = at;
        BASE_ASSERT(p.from < at);
        at = p.from;
    }
}

/* Writes the tokens of the path: from[at] is the end of the piece that starts at `at`, id its token. */
static int write_path(const tokenizer *t, const char *text, size_t n, const path *paths, token_list *out) {
    bool after_unknown = false;
    int rc = RP_OK;
    for (size_t at = 0, end; at < n && !rc; at = end) {
        end = paths[at].from;
        BASE_ASSERT(at < end && end <= n);
        int32_t id = paths[at].id;
        rc = id >= 0 ? token_list_push(out, id) : character_add_unknown(t, text + at, end - at, &after_unknown, out);
        after_unknown = after_unknown && id < 0;
    }
    return rc;
}

int unigram_encode(const tokenizer *t, const char *text, size_t n, token_list *out) {
    path *paths = base_alloc((n + 1) * sizeof(*paths));
    if (!paths) return RP_ERR_MEMORY;
    for (size_t i = 0; i <= n; i++) paths[i].from = UINT32_MAX;
    paths[0].score = 0;
    for (size_t at = 0; at < n; at += character_bytes(text + at, n - at))
        tokenizer_unigram_extend(t, text, n, at, paths);
    turn_around(paths, n);
    int rc = write_path(t, text, n, paths, out);
    base_free(paths);
    return rc;
}
