/* tokenizer_spm.c: SentencePiece (Kudo and Richardson 2018): spaces written as U+2581, and its two ways to cut. BPE, as in GGUF's "llama"
 * vocabularies, is here: characters are merged, the pair whose union has the highest score first, the leftmost among equals; what is no
 * token falls back to byte tokens. The most probable pieces ("t5") are in tokenizer_unigram.c.
 */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/tokenizer_internal.h"

#define SPACE "\xe2\x96\x81"

int spm_open(tokenizer *t, const gguf_file *f, rp_error *err) {
    int rc = charsmap_open(&t->map, f, err);
    if (rc) return rc;
    t->space_prefix = true;
    t->adds_bos = t->kind == TOKENIZER_SPM;
    gguf_get_bool(f, "tokenizer.ggml.add_space_prefix", &t->space_prefix);
    gguf_get_bool(f, "tokenizer.ggml.remove_extra_whitespaces", &t->merges_spaces);
    return t->kind == TOKENIZER_UNIGRAM ? unigram_open(t, err) : RP_OK;
}

void spm_close(tokenizer *t) {
    charsmap_close(&t->map);
    base_free(t->pieces);
}

/* ---- spaces ---- */

/* A space that is due is written before the next character: so spaces at the text's end, where they are merged, are never written. */
typedef struct escaper {
    base_buffer out;
    bool merges, started, space_due;
} escaper;

static int flush_space(escaper *e) {
    bool due = e->space_due;
    e->space_due = false;
    return due ? base_buffer_append(&e->out, SPACE, 3) : RP_OK;
}

static int escape(escaper *e, const char *text, size_t n) {
    int rc = RP_OK;
    for (size_t i = 0; i < n && !rc;) {
        const char *space = memchr(text + i, ' ', n - i);
        size_t plain = space ? (size_t)(space - text) - i : n - i;
        if (plain > 0 || !e->merges) rc = flush_space(e);
        if (plain > 0) {
            if (!rc) rc = base_buffer_append(&e->out, text + i, plain);
            e->started = true;
            i += plain;
        } else {
            e->space_due = e->space_due || e->started || !e->merges;
            i++;
        }
    }
    return rc || e->merges ? rc : flush_space(e);
}

static int normalise(const tokenizer *t, const char *text, size_t n, bool beginning, base_buffer *out) {
    escaper e = {.out = BASE_BUFFER(TOKENIZER_MAX_NORMAL_BYTES), .merges = t->merges_spaces, .started = !beginning,
                 .space_due = beginning && t->space_prefix};
    int rc = RP_OK;
    if (!t->map.units) rc = escape(&e, text, n);
    for (size_t i = 0; t->map.units && i < n && !rc;) {
        gguf_string s;
        i += charsmap_step(&t->map, text + i, n - i, &s);
        rc = escape(&e, s.bytes, (size_t)s.n);
    }
    *out = e.out;
    return rc;
}

/* ---- BPE ---- */

static bool propose(const merge_work *w, const merge_piece *left, const merge_piece *right, merge_candidate *c) {
    c->id = tokenizer_map_find(w->t, w->text + left->start, left->n + right->n);
    if (c->id < 0) return false;
    c->priority = w->t->scores[c->id];
    return true;
}

size_t spm_character_bytes(const char *s, size_t n) {
    unsigned char c = (unsigned char)s[0];
    size_t length = c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (length > n) return 1;
    for (size_t i = 1; i < length; i++)
        if (((unsigned char)s[i] & 0xc0) != 0x80) return 1;
    return length;
}

int spm_add_bytes(const tokenizer *t, const char *text, size_t n, token_list *out) {
    for (size_t i = 0; i < n; i++) {
        int32_t id = t->byte_tokens[(unsigned char)text[i]];
        if (id < 0) id = t->unk;
        int rc = id >= 0 ? token_list_push(out, id) : RP_OK;
        if (rc) return rc;
    }
    return RP_OK;
}

static int merge_text(merge_work *w, size_t n, token_list *out) {
    int rc;
    for (size_t i = 0; i < n;) {
        size_t length = spm_character_bytes(w->text + i, n - i);
        if ((rc = merge_add_piece(w, i, length, tokenizer_map_find(w->t, w->text + i, length)))) return rc;
        i += length;
    }
    if ((rc = merge_run(w))) return rc;
    for (size_t i = 0; i < w->n_pieces && !rc; i++) {
        const merge_piece *p = &w->pieces[i];
        if (p->n == 0) continue;
        rc = p->id >= 0 ? token_list_push(out, p->id) : spm_add_bytes(w->t, w->text + p->start, p->n, out);
    }
    return rc;
}

int spm_encode(const tokenizer *t, const char *text, size_t n, bool beginning, token_list *out, rp_error *err) {
    base_buffer normal;
    int rc = normalise(t, text, n, beginning, &normal);
    if (!rc && t->kind == TOKENIZER_UNIGRAM) rc = unigram_encode(t, normal.data, normal.len, out);
    else if (!rc) {
        merge_work w = {.t = t, .text = normal.data, .propose = propose};
        rc = merge_text(&w, normal.len, out);
        merge_free(&w);
    }
    base_buffer_free(&normal);
    return rc ? base_fail(err, rc, "a text of %zu bytes cannot be tokenized: too long, or no memory", n) : RP_OK;
}
