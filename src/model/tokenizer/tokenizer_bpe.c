/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_bpe.c: byte-level BPE (GPT-2, Radford et al. 2019): the bytes of a word, written in printable stand-ins,
 * are merged by rank. tokenizer_pre.c cuts a text into words. */
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/tokenizer/tokenizer_internal.h"

#define KNOWN_BITS 12
#define KNOWN_BYTES 16
#define KNOWN_TOKENS 5
#define KNOWN_TEXT_BYTES 4096 /* shorter texts have too few words that come again */

/* ---- bytes and their stand-ins ---- */

/* Printable bytes map to themselves, the others to U+0100 and following, in order. */
static bool tokenizer_bpe_is_placed_for_itself(int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

int bpe_byte_to_text(uint8_t byte, char out[2]) {
    int c = byte;
    if (!tokenizer_bpe_is_placed_for_itself(byte)) {
        c = 0x100;
        for (int b = 0; b < byte; b++) c += !tokenizer_bpe_is_placed_for_itself(b);
    }
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    BASE_DCHECK(c < 0x200);
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3f));
    return 2;
}

/* The byte of a stand-in, or -1. */
static int byte_of(int c) {
    if (c < 0x100) return tokenizer_bpe_is_placed_for_itself(c) ? c : -1;
    for (int b = 0, n = 0x100; b < 256; b++)
        if (!tokenizer_bpe_is_placed_for_itself(b) && n++ == c) return b;
    return -1;
}

size_t bpe_text_to_bytes(const char *text, size_t n, char *out) {
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)text[i];
        bool two = (c & 0xe0) == 0xc0 && i + 1 < n;
        int byte = two ? byte_of((c & 0x1f) << 6 | (text[i + 1] & 0x3f)) : c < 0x80 ? byte_of(c)
                                                                                    : -1;
        if (byte >= 0) out[used++] = (char)byte;
        else
            /* no stand-in: copied unchanged */
            for (int k = 0; k < (two ? 2 : 1); k++) out[used++] = text[i + (size_t)k];
        i += two ? 2 : 1;
    }
    BASE_ASSERT(used <= n);
    return used;
}

/* ---- opening ---- */

/* One line "left right"; a token may begin with a space. joined: [TOKENIZER_MAX_TOKEN_BYTES], scratch. */
static bool parse_merge(const tokenizer *t, gguf_string s, char *joined, token_pair *out) {
    const char *space = s.n > 1 ? memchr(s.bytes + 1, ' ', (size_t)s.n - 1) : NULL;
    if (!space) return false;
    size_t left = (size_t)(space - s.bytes), right = (size_t)s.n - left - 1;
    *out = (token_pair){tokenizer_map_find(t, s.bytes, left), tokenizer_map_find(t, space + 1, right), -1};
    if (out->left < 0 || out->right < 0 || left + right > TOKENIZER_MAX_TOKEN_BYTES) return true;
    memcpy(joined, s.bytes, left);
    memcpy(joined + left, space + 1, right);
    out->merged = tokenizer_map_find(t, joined, left + right);
    return true;
}

int bpe_read_merges(tokenizer *t, const gguf_file *f, rp_error *err) {
    gguf_array a;
    if (!gguf_get_array(f, "tokenizer.ggml.merges", &a) || a.type != GGUF_STRING || a.n > TOKENIZER_MAX_VOCAB)
        return base_fail_at(err, RP_ERR_FORMAT, gguf_name(f), 0,
                            "metadata 'tokenizer.ggml.merges' is missing or not a list of strings");
    gguf_string *lines = base_calloc((size_t)a.n + 1, sizeof(*lines));
    char *joined = base_alloc(TOKENIZER_MAX_TOKEN_BYTES);
    t->merges = base_calloc((size_t)a.n + 1, sizeof(*t->merges));
    int rc = lines && joined && t->merges ? token_map_init(&t->by_pair, (size_t)a.n) : RP_ERR_MEMORY;
    if (rc) {
        base_fail_memory(err, a.n * sizeof(*lines), "the merges of the vocabulary");
        goto out;
    }
    gguf_array_strings(&a, lines);
    t->n_merges = (int32_t)a.n;
    for (int32_t i = 0; i < t->n_merges && !rc; i++)
        if (!parse_merge(t, lines[i], joined, &t->merges[i]))
            rc = base_fail_at(err, RP_ERR_FORMAT, gguf_name(f), 0, "merge %d is not two strings separated by a space",
                              i);
    if (!rc) tokenizer_pairs_fill(t);
out:
    base_free(lines);
    base_free(joined);
    return rc;
}

int bpe_open(tokenizer *t, const gguf_file *f, rp_error *err) {
    int rc;
    for (int b = 0; b < 256; b++) {
        char text[2];
        t->byte_tokens[b] = tokenizer_map_find(t, text, (size_t)bpe_byte_to_text((uint8_t)b, text));
    }
    if ((rc = pre_open(t, f, err))) return rc;
    t->adds_bos = t->pre->adds_bos;
    for (int32_t i = 0; i < t->n_vocab; i++) t->longest = BASE_MAX(t->longest, (size_t)t->texts[i].n);
    return bpe_read_merges(t, f, err);
}

void bpe_close(tokenizer *t) {
    pre_close(t);
    base_free(t->merges);
    base_free(t->by_pair.slots);
}

/* ---- a word ---- */

bool bpe_propose(const merge_work *w, const merge_piece *left, const merge_piece *right, merge_candidate *c) {
    int32_t rank = left->id >= 0 && right->id >= 0 ? tokenizer_pair_rank(w->t, left->id, right->id) : -1;
    if (rank < 0) return false;
    BASE_DCHECK(rank < w->t->n_merges);
    c->priority = -(double)rank;
    c->id = w->t->merges[rank].merged;
    if (c->id >= 0 && w->t->types[c->id] == TOKEN_CONTROL)
        return false; /* merging never yields one (tokenizer_infill.c) */
    return true;
}

/* The tokens of a short word that came before in this text: they depend on its bytes alone. Each word has one place,
   which a later one takes over. */
typedef struct known_word {
    char bytes[KNOWN_BYTES]; /* zeros after its end */
    int32_t ids[KNOWN_TOKENS];
    uint8_t n, n_ids; /* n: bytes; 0: none */
} known_word;

typedef struct encoder {
    merge_work work;
    token_list *out;
    char *stand_ins;   /* [longest + 1], scratch; NULL: whole words are not looked up */
    known_word *known; /* [1 << KNOWN_BITS]; NULL: of a short text */
} encoder;

/* The token of a whole word, or -1. */
static int32_t whole_word(const encoder *e, const char *word, size_t n) {
    const tokenizer *t = e->work.t;
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        if (used >= t->longest) return -1;
        used += (size_t)bpe_byte_to_text((uint8_t)word[i], e->stand_ins + used);
        BASE_DCHECK(used <= t->longest + 1);
    }
    int32_t id = tokenizer_map_find(t, e->stand_ins, used);
    return id >= 0 && t->types[id] == TOKEN_NORMAL ? id : -1;
}

static int encode_new_word(encoder *e, const char *word, size_t n) {
    merge_work *w = &e->work;
    const tokenizer *t = w->t;
    int32_t whole = e->stand_ins ? whole_word(e, word, n) : -1;
    int rc;
    if (whole >= 0) return token_list_push(e->out, whole);
    w->n_pieces = w->n_heap = 0;
    for (size_t i = 0; i < n; i++)
        if ((rc = merge_add_piece(w, i, 1, t->byte_tokens[(unsigned char)word[i]]))) return rc;
    if ((rc = merge_run(w))) return rc;
    for (size_t i = 0; i < w->n_pieces && !rc; i++) {
        int32_t id = w->pieces[i].id >= 0 ? w->pieces[i].id : t->unk;
        if (w->pieces[i].n > 0 && id >= 0) rc = token_list_push(e->out, id);
    }
    return rc;
}

/* NULL: the word is too long, or the text is short. The word's bytes go to `bytes`. */
static known_word *known_place(const encoder *e, char bytes[KNOWN_BYTES], const char *word, size_t n) {
    uint64_t halves[2];
    if (!e->known || n == 0 || n > KNOWN_BYTES) return NULL;
    memset(bytes, 0, KNOWN_BYTES);
    memcpy(bytes, word, n);
    memcpy(halves, bytes, sizeof(halves));
    const uint64_t h = (halves[0] ^ n) * UINT64_C(0x9e3779b97f4a7c15) ^ halves[1] * UINT64_C(0xc2b2ae3d27d4eb4f);
    return &e->known[h * UINT64_C(0x9e3779b97f4a7c15) >> (64 - KNOWN_BITS)];
}

static int encode_word(void *user, const char *word, size_t n) {
    encoder *e = user;
    char bytes[KNOWN_BYTES];
    known_word *k = known_place(e, bytes, word, n);
    int rc = RP_OK;
    if (k && k->n == n && memcmp(k->bytes, bytes, KNOWN_BYTES) == 0) {
        BASE_DCHECK(k->n_ids <= KNOWN_TOKENS);
        return token_list_append(e->out, k->ids, k->n_ids);
    }
    const size_t before = e->out->n;
    rc = encode_new_word(e, word, n);
    const size_t n_ids = e->out->n - before;
    if (rc || !k || n_ids > KNOWN_TOKENS) return rc;
    *k = (known_word){.n = (uint8_t)n, .n_ids = (uint8_t)n_ids};
    memcpy(k->bytes, bytes, KNOWN_BYTES);
    if (n_ids > 0) memcpy(k->ids, e->out->ids + before, n_ids * sizeof(*k->ids));
    return RP_OK;
}

int bpe_encode(const tokenizer *t, const char *text, size_t n, token_list *out, rp_error *err) {
    encoder e = {.work = {.t = t, .propose = bpe_propose}, .out = out};
    base_buffer composed = BASE_BUFFER(TOKENIZER_MAX_NORMAL_BYTES);
    bool plain = !t->pre->nfc || nfc_is_plain(text, n);
    int rc = plain ? RP_OK : nfc_append(&composed, text, n);
    if (!rc && t->pre->ignore_merges && !(e.stand_ins = base_alloc(t->longest + 1))) rc = RP_ERR_MEMORY;
    if (!rc && n >= KNOWN_TEXT_BYTES && !(e.known = base_calloc((size_t)1 << KNOWN_BITS, sizeof(*e.known))))
        rc = RP_ERR_MEMORY;
    if (!rc) rc = pre_cut(t, plain ? text : composed.data, plain ? n : composed.len, encode_word, &e);
    merge_free(&e.work);
    base_free(e.stand_ins);
    base_free(e.known);
    base_buffer_free(&composed);
    return rc ? base_fail(err, rc, "a text of %zu bytes cannot be tokenized: too long, or out of memory", n) : RP_OK;
}
