/* tokenizer_unigram.c: the most probable way to write a text in pieces (Kudo 2018): Viterbi over the sum of the pieces' scores, which are
 * logarithms of probabilities. A character that no piece writes costs 10 more than the worst piece; it becomes byte tokens if the
 * vocabulary has them, else a run of such characters becomes one unknown token.
 *
 * Pieces are found by walking along the text in their sorted list, where those that begin alike stand together:
 *
 *   text "abd":   a.. -> [a, ab, abc, abd, b]   ab. -> [ab, abc, abd]   abd -> [abd]      a range narrows with each byte
 *                         ^ is a piece               ^ is a piece             ^ is a piece
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/tokenizer_internal.h"

#define UNKNOWN_PENALTY 10.0f /* as SentencePiece */
#define MAX_PIECE_BYTES 1024 /* longer ones are never taken: a text is walked that far from each of its characters */

/* ---- the pieces ---- */

static int compare(const void *a, const void *b) {
    const unigram_piece *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, BASE_MIN(x->n, y->n));
    if (order) return order;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

int unigram_open(tokenizer *t, rp_error *err) {
    float lowest = 0;
    t->pieces = base_calloc((size_t)t->n_vocab, sizeof(*t->pieces));
    if (!t->pieces) return base_fail_memory(err, (size_t)t->n_vocab * sizeof(*t->pieces), "the vocabulary");
    for (int32_t i = 0; i < t->n_vocab; i++) {
        if (t->types[i] != TOKEN_NORMAL || t->texts[i].n == 0 || t->texts[i].n > MAX_PIECE_BYTES) continue;
        if (t->n_pieces == 0 || t->scores[i] < lowest) lowest = t->scores[i];
        t->pieces[t->n_pieces++] = (unigram_piece){t->texts[i].bytes, (uint32_t)t->texts[i].n, i};
    }
    qsort(t->pieces, (size_t)t->n_pieces, sizeof(*t->pieces), compare);
    t->unknown_score = lowest - UNKNOWN_PENALTY;
    return RP_OK;
}

/* The first piece in [low, high), whose members agree in `depth` bytes, that goes on with at least `byte`. */
static int32_t first_from(const tokenizer *t, int32_t low, int32_t high, size_t depth, int byte) {
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        const unigram_piece *p = &t->pieces[middle];
        if (p->n <= depth || (unsigned char)p->bytes[depth] < byte) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* ---- the best path ---- */

/* The best way to reach a byte of the text: from where, with which piece (-1: none writes the character). The score is a float as in
 * SentencePiece, and rounded where it rounds: pieces in another order have the same sum but for rounding, and that decides. */
typedef struct path {
    float score;
    uint32_t from; /* UINT32_MAX: not reached yet */
    int32_t id;
} path;

static void offer(path *to, float score, size_t from, int32_t id) {
    if (to->from == UINT32_MAX || score > to->score) *to = (path){score, (uint32_t)from, id};
}

/* Extends the path that ends at `at` by every piece that begins there. */
static void extend(const tokenizer *t, const char *text, size_t n, size_t at, path *paths) {
    size_t character = spm_character_bytes(text + at, n - at);
    int32_t low = 0, high = t->n_pieces;
    bool written = false;
    for (size_t depth = 0; at + depth < n && low < high; depth++) {
        int byte = (unsigned char)text[at + depth];
        low = first_from(t, low, high, depth, byte);
        high = first_from(t, low, high, depth, byte + 1);
        if (low == high || t->pieces[low].n != depth + 1) continue;
        int32_t id = t->pieces[low].id;
        offer(&paths[at + depth + 1], paths[at].score + t->scores[id], at, id);
        written = written || depth + 1 == character;
    }
    if (!written) offer(&paths[at + character], paths[at].score + t->unknown_score, at, -1);
}

/* Turns the links of the best path around, so that it can be followed from its beginning. */
static void turn_around(path *paths, size_t n) {
    path ahead = {.from = UINT32_MAX};
    for (size_t at = n, next = n;;) {
        path p = paths[at];
        paths[at] = (path){0, (uint32_t)next, ahead.id};
        if (at == 0) break;
        ahead = p;
        next = at;
        at = p.from;
    }
}

/* Follows the path: from[at] is where the piece that begins at `at` ends, id what it is. */
static int write_path(const tokenizer *t, const char *text, size_t n, const path *paths, token_list *out) {
    bool after_unknown = false;
    int rc = RP_OK;
    for (size_t at = 0, end; at < n && !rc; at = end) {
        end = paths[at].from;
        int32_t id = paths[at].id;
        rc = id >= 0 ? token_list_push(out, id) : spm_add_unknown(t, text + at, end - at, &after_unknown, out);
        after_unknown = after_unknown && id < 0;
    }
    return rc;
}

int unigram_encode(const tokenizer *t, const char *text, size_t n, token_list *out) {
    path *paths = base_alloc((n + 1) * sizeof(*paths));
    if (!paths) return RP_ERR_MEMORY;
    for (size_t i = 0; i <= n; i++) paths[i].from = UINT32_MAX;
    paths[0].score = 0;
    for (size_t at = 0; at < n; at += spm_character_bytes(text + at, n - at)) extend(t, text, n, at, paths);
    turn_around(paths, n);
    int rc = write_path(t, text, n, paths, out);
    base_free(paths);
    return rc;
}
