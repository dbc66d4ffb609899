/* tokenizer_spm.c: SentencePiece-style BPE (Kudo and Richardson 2018, as llama.cpp's "llama" vocabularies): characters are merged, the
 * pair whose union has the highest score first, the leftmost among equals; what is no token falls back to byte tokens. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "model/tokenizer_internal.h"

static bool propose(const merge_work *w, const merge_piece *left, const merge_piece *right, merge_candidate *c) {
    c->id = tokenizer_map_find(w->t, w->text + left->start, left->n + right->n);
    if (c->id < 0) return false;
    c->priority = w->t->scores[c->id];
    return true;
}

/* Bytes of the character at s; 1 where none begins, so that bytes that are no UTF-8 stay apart and come back as they were. */
static size_t character_bytes(const char *s, size_t n) {
    unsigned char c = (unsigned char)s[0];
    size_t length = c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (length > n) return 1;
    for (size_t i = 1; i < length; i++)
        if (((unsigned char)s[i] & 0xc0) != 0x80) return 1;
    return length;
}

static int add_bytes(const tokenizer *t, const char *text, size_t n, token_list *out) {
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
        size_t length = character_bytes(w->text + i, n - i);
        if ((rc = merge_add_piece(w, i, length, tokenizer_map_find(w->t, w->text + i, length)))) return rc;
        i += length;
    }
    if ((rc = merge_run(w))) return rc;
    for (size_t i = 0; i < w->n_pieces && !rc; i++) {
        const merge_piece *p = &w->pieces[i];
        if (p->n == 0) continue;
        rc = p->id >= 0 ? token_list_push(out, p->id) : add_bytes(w->t, w->text + p->start, p->n, out);
    }
    return rc;
}

int spm_encode(const tokenizer *t, const char *text, size_t n, token_list *out, rp_error *err) {
    base_buffer escaped = BASE_BUFFER(TOKENIZER_MAX_TOKENS * 4);
    int rc = RP_OK;
    for (size_t i = 0; i < n && !rc;) {
        size_t plain = 0;
        while (i + plain < n && text[i + plain] != ' ') plain++;
        if (plain > 0) rc = base_buffer_append(&escaped, text + i, plain);
        else rc = base_buffer_append(&escaped, "\xe2\x96\x81", 3);
        i += plain > 0 ? plain : 1;
    }
    merge_work w = {.t = t, .text = escaped.data, .propose = propose};
    if (!rc) rc = merge_text(&w, escaped.len, out);
    merge_free(&w);
    base_buffer_free(&escaped);
    return rc ? base_fail(err, rc, "a text of %zu bytes cannot be tokenized: too long, or no memory", n) : RP_OK;
}
