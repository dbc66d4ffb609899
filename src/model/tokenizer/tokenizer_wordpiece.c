/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_wordpiece.c: WordPiece, BERT's tokenizer ("bert" in GGUF; Devlin et al., 2019): a text is normalised and
 * cut into words, and each word into the longest pieces of the vocabulary, from left to right. A word without such
 * pieces is the unknown token.
 *
 *   normalised  control characters are dropped; without case: letters lower, accents (marks of NFD) dropped
 *   words       between white space; each punctuation character, and each Chinese one, is a word
 *   pieces      GGUF marks those at the start of a word with U+2581; others ("##ing") have no mark
 *
 * GGUF does not say whether a vocabulary has case: it has if any of its pieces has a capital letter.
 */
#include <utf8proc.h>

#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "model/tokenizer/tokenizer_internal.h"

#define START "\xe2\x96\x81" /* U+2581 */
#define START_BYTES 3
#define WORD_CHARACTERS 100 /* of a word; longer ones are unknown */
#define WORD_BYTES (START_BYTES + 4 * WORD_CHARACTERS + 1)
#define DECOMPOSED_MAX 8 /* of one character */

typedef struct wordpiece_word {
    const tokenizer *t;
    token_list *out;
    char bytes[WORD_BYTES]; /* START, the word, and room for a NUL */
    size_t n;               /* bytes, START included */
    int n_characters;
    bool is_long;
} wordpiece_word;

/* ---- characters ---- */

static bool is_space(utf8proc_int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    return c == ' ' || (c >= '\t' && c <= '\r') || c == 0x85 || k == UTF8PROC_CATEGORY_ZS ||
           k == UTF8PROC_CATEGORY_ZL || k == UTF8PROC_CATEGORY_ZP;
}

static bool is_dropped(utf8proc_int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    if (c == '\t' || c == '\n' || c == '\r') return false;
    return c == 0 || c == 0xfffd || k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO;
}

static bool is_punctuation(utf8proc_int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    if ((c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126)) return true;
    return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

/* CJK ideographs, as BERT lists them: not kana or hangul. Of extension E, the part that the published tokenizer has. */
static bool is_ideograph(utf8proc_int32_t c) {
    static const utf8proc_int32_t ranges[][2] = {
        {0x4e00, 0x9fff},
        {0x3400, 0x4dbf},
        {0x20000, 0x2a6df},
        {0x2a700, 0x2b73f},
        {0x2b740, 0x2b81f},
        {0x2b920, 0x2ceaf},
        {0xf900, 0xfaff},
        {0x2f800, 0x2fa1f},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(ranges); i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
    return false;
}

/* ---- words ---- */

/* The longest piece at the start of `text`, or -1; *used: its bytes without the mark. */
static int32_t longest_piece(const tokenizer *t, const char *text, size_t n, size_t mark, size_t *used) {
    if (mark == 0 && n >= START_BYTES && memcmp(text, START, START_BYTES) == 0)
        return -1; /* would be the start of a word */
    for (; n > mark; n--) {
        const bool cuts = ((unsigned char)text[n] & 0xc0) == 0x80; /* text is followed by a byte: the rest, or a NUL */
        const int32_t id = cuts ? -1 : tokenizer_map_find(t, text, n);
        *used = n;
        if (id >= 0 && t->types[id] != TOKEN_CONTROL && t->types[id] != TOKEN_UNKNOWN) return id;
    }
    return -1;
}

/* Ends the word: its pieces, or the unknown token. */
static int word_end(wordpiece_word *w) {
    BASE_ASSERT(w->n >= START_BYTES && w->n < WORD_BYTES);
    const size_t before = w->out->n;
    size_t at = 0, used = 0;
    int rc = RP_OK;
    const bool is_empty = w->n_characters == 0;
    bool is_known = !w->is_long;
    w->bytes[w->n] = '\0';
    while (!is_empty && is_known && at < w->n && !rc) {
        const int32_t id = longest_piece(w->t, w->bytes + at, w->n - at, at == 0 ? START_BYTES : 0, &used);
        if ((is_known = id >= 0)) rc = token_list_push(w->out, id);
        BASE_DCHECK(!is_known || used > 0);
        at += used;
    }
    if (!is_known && !rc) {
        w->out->n = before;
        rc = w->t->unk >= 0 ? token_list_push(w->out, w->t->unk) : RP_OK;
    }
    w->n = START_BYTES;
    w->n_characters = 0;
    w->is_long = false;
    return rc;
}

static void word_add(wordpiece_word *w, utf8proc_int32_t c) {
    if (w->n_characters == WORD_CHARACTERS) {
        w->is_long = true;
        return;
    }
    w->n += (size_t)utf8proc_encode_char(c, (utf8proc_uint8_t *)w->bytes + w->n);
    BASE_ASSERT(w->n < WORD_BYTES);
    w->n_characters++;
}

static int add_normal(wordpiece_word *w, utf8proc_int32_t c) {
    if (is_space(c)) return word_end(w);
    if (!is_punctuation(c)) {
        word_add(w, c);
        return RP_OK;
    }
    const int rc = word_end(w); /* the character is a word of its own */
    word_add(w, c);
    return rc ? rc : word_end(w);
}

static int add_character(wordpiece_word *w, utf8proc_int32_t c) {
    utf8proc_int32_t parts[DECOMPOSED_MAX] = {c};
    utf8proc_ssize_t n = 1;
    int boundary = 0, rc = RP_OK;
    if (is_dropped(c)) return RP_OK;
    const bool is_alone = is_ideograph(c);
    if (!w->t->has_case) n = utf8proc_decompose_char(c, parts, DECOMPOSED_MAX, UTF8PROC_DECOMPOSE, &boundary);
    if (n < 1 || n > DECOMPOSED_MAX) parts[0] = c, n = 1; /* unreachable for an assigned character */
    if (is_alone) rc = word_end(w);
    for (utf8proc_ssize_t i = 0; i < n && !rc; i++) {
        if (!w->t->has_case && utf8proc_category(parts[i]) == UTF8PROC_CATEGORY_MN) continue;
        rc = add_normal(w, w->t->has_case ? parts[i] : utf8proc_tolower(parts[i]));
    }
    return is_alone && !rc ? word_end(w) : rc;
}

/* ---- all of it ---- */

void wordpiece_open(tokenizer *t) {
    t->adds_bos = true;
    if (t->unk >= 0)
        t->types[t->unk] = TOKEN_UNKNOWN; /* files have it as a control token, which a text must not become */
    for (int32_t i = 0; i < t->n_vocab && !t->has_case; i++) {
        const gguf_string s = t->texts[i];
        if (t->types[i] != TOKEN_NORMAL || s.n == 0 || memchr(s.bytes, '[', (size_t)s.n)) continue; /* "[unused1]" */
        for (size_t k = 0; k < s.n; k++) t->has_case |= s.bytes[k] >= 'A' && s.bytes[k] <= 'Z';
    }
}

int wordpiece_encode(const tokenizer *t, const char *text, size_t n, token_list *out, rp_error *err) {
    wordpiece_word w = {.t = t, .out = out, .bytes = START, .n = START_BYTES};
    int rc = RP_OK;
    for (size_t i = 0; i < n && !rc;) {
        utf8proc_int32_t c;
        const utf8proc_ssize_t length =
            utf8proc_iterate((const utf8proc_uint8_t *)text + i, (utf8proc_ssize_t)BASE_MIN(n - i, 4), &c);
        if (length > 0) rc = add_character(&w, c);
        i += length > 0 ? (size_t)length : 1; /* invalid bytes are dropped, as U+FFFD is */
    }
    if (!rc) rc = word_end(&w);
    return rc ? base_fail(err, rc, "a text of %zu bytes has too many tokens", n) : RP_OK;
}
