/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_spm.c: SentencePiece (Kudo and Richardson 2018): spaces written as U+2581, and BPE as in GGUF's "llama"
 * vocabularies: characters are merged, the pair with the highest score of its merged piece first, the leftmost among
 * equals; text that is no token falls back to byte tokens. "gemma4" vocabularies list their merges by rank, as
 * byte-level BPE does, and merge no line end with other text. The unigram model ("t5") is in tokenizer_unigram.c.
 */
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/tokenizer/tokenizer_internal.h"

#define SPACE "\xe2\x96\x81"

int spm_open(tokenizer *t, const gguf_file *f, rp_error *err) {
    int rc = charsmap_open(&t->map, f, err);
    if (rc) return rc;
    t->space_prefix = true;
    t->adds_bos = t->kind == TOKENIZER_SPM;
    gguf_get_bool(f, "tokenizer.ggml.add_space_prefix", &t->space_prefix);
    gguf_get_bool(f, "tokenizer.ggml.remove_extra_whitespaces", &t->merges_spaces);
    if (t->is_ranked) return bpe_read_merges(t, f, err);
    return t->kind == TOKENIZER_UNIGRAM ? unigram_open(t, err) : RP_OK;
}

void spm_close(tokenizer *t) {
    charsmap_close(&t->map);
    base_free(t->pieces.texts);
}

/* ---- spaces ---- */

/* If spaces are merged, no space is written after a space or at the text's start (except the dummy space). */
typedef struct escaper {
    base_buffer out;
    bool merges, after_space;
} escaper;

static int escaper_escape(escaper *e, const char *text, size_t n) {
    int rc = RP_OK;
    for (size_t i = 0; i < n && !rc;) {
        const char *space = memchr(text + i, ' ', n - i);
        size_t plain = space ? (size_t)(space - text) - i : n - i;
        if (plain > 0) rc = base_buffer_append(&e->out, text + i, plain);
        else if (!e->merges || !e->after_space) rc = base_buffer_append(&e->out, SPACE, 3);
        e->after_space = plain == 0;
        i += plain > 0 ? plain : 1;
    }
    return rc;
}

static int tokenizer_spm_normalise(const tokenizer *t, const char *text, size_t n, bool beginning, base_buffer *out) {
    escaper e = {.out = BASE_BUFFER(TOKENIZER_MAX_NORMAL_BYTES), .merges = t->merges_spaces, .after_space = beginning};
    int rc = beginning && t->space_prefix ? base_buffer_append(&e.out, SPACE, 3) : RP_OK;
    if (!rc && !t->map.units) rc = escaper_escape(&e, text, n);
    for (size_t i = 0; t->map.units && i < n && !rc;) {
        gguf_string s;
        i += charsmap_step(&t->map, text + i, n - i, &s);
        rc = escaper_escape(&e, s.bytes, (size_t)s.n);
    }
    *out = e.out;
    while (t->merges_spaces && out->len >= 3 && memcmp(out->data + out->len - 3, SPACE, 3) == 0) out->len -= 3;
    return rc;
}

/* ---- BPE ---- */

/* The piece with this text, or -1. Merging never yields a control, byte or unknown token. */
static int32_t tokenizer_spm_find_piece(const tokenizer *t, const char *text, size_t n) {
    int32_t id = tokenizer_map_find(t, text, n);
    bool piece =
        id >= 0 && (t->types[id] == TOKEN_NORMAL || t->types[id] == TOKEN_USER_DEFINED || t->types[id] == TOKEN_UNUSED);
    return piece ? id : -1;
}

static bool tokenizer_spm_propose(const merge_work *w, const merge_piece *left, const merge_piece *right,
                                  merge_candidate *c) {
    BASE_DCHECK(left->start + left->n == right->start);
    c->id = tokenizer_spm_find_piece(w->t, w->text + left->start, left->n + right->n);
    if (c->id < 0) return false;
    c->priority = w->t->scores[c->id];
    return true;
}

/* End of the line ends, or of the text without any, that begin at `at`. */
static size_t end_of_run(const char *text, size_t n, size_t at) {
    const bool is_end = text[at] == '\n';
    while (at < n && (text[at] == '\n') == is_end) at++;
    return at;
}

static int merge_text(merge_work *w, size_t n, token_list *out) {
    bool after_unknown = false;
    /* line ends that are a token stay whole, be it merged or not */
    const int32_t whole = w->t->is_ranked && w->text[0] == '\n' ? tokenizer_spm_find_piece(w->t, w->text, n) : -1;
    int rc;
    if (whole >= 0) return token_list_push(out, whole);
    w->n_pieces = w->n_heap = 0;
    for (size_t i = 0; i < n;) {
        size_t length = character_bytes(w->text + i, n - i);
        if ((rc = merge_add_piece(w, i, length, tokenizer_spm_find_piece(w->t, w->text + i, length)))) return rc;
        i += length;
    }
    if ((rc = merge_run(w))) return rc;
    for (size_t i = 0; i < w->n_pieces && !rc; i++) {
        const merge_piece *p = &w->pieces[i];
        if (p->n == 0) continue;
        rc = p->id >= 0 ? token_list_push(out, p->id)
                        : character_add_unknown(w->t, w->text + p->start, p->n, &after_unknown, out);
        after_unknown = after_unknown && p->id < 0;
    }
    return rc;
}

int spm_encode(const tokenizer *t, const char *text, size_t n, bool beginning, token_list *out, rp_error *err) {
    base_buffer normal;
    int rc = tokenizer_spm_normalise(t, text, n, beginning, &normal);
    if (!rc && t->kind == TOKENIZER_UNIGRAM) rc = unigram_encode(t, normal.data, normal.len, out);
    else if (!rc) {
        merge_work w = {.t = t, .propose = t->is_ranked ? bpe_propose : tokenizer_spm_propose};
        for (size_t i = 0, end; i < normal.len && !rc; i = end) {
            end = t->is_ranked ? end_of_run(normal.data, normal.len, i) : normal.len;
            w.text = normal.data + i;
            rc = merge_text(&w, end - i, out);
        }
        merge_free(&w);
    }
    base_buffer_free(&normal);
    return rc ? base_fail(err, rc, "a text of %zu bytes cannot be tokenized: too long, or out of memory", n) : RP_OK;
}
