/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_nfc.c: Unicode's normal form C (UAX #15), by utf8proc, for vocabularies whose model was trained on composed text.
 *
 * A text is composed in pieces of a starter and what may join it, so the time is linear and nothing is allocated but the output. A piece
 * of more than PIECE_CHARACTERS is cut: text in a human language stays far below (the stream-safe form of UAX #15 allows 30).
 */
#include <utf8proc.h>

#include "base/error.h"
#include "model/tokenizer/tokenizer_internal.h"

#define PIECE_CHARACTERS 128
#define DECOMPOSED_MAX 4 /* characters that one character's canonical decomposition has at most (Unicode 15: U+1F82 and its like) */

bool nfc_is_plain(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] >= 0xcc) return false; /* U+0300 and on; all before is composed and composes with nothing before it */
    return true;
}

/* May c join the character before it? Marks, and the vowels and final consonants of Hangul. */
static bool tokenizer_nfc_joins(utf8proc_int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    bool mark = k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
    return mark || (c >= 0x1160 && c <= 0x11ff);
}

/* Bytes of the character at text, 0 if it is none. */
static size_t tokenizer_nfc_character(const char *text, size_t n, utf8proc_int32_t *c) {
    utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)BASE_MIN(n, 4), c);
    return length > 0 ? (size_t)length : 0;
}

/* Bytes of the piece that begins at text, 0 if no character does. */
static size_t piece_bytes(const char *text, size_t n) {
    utf8proc_int32_t c;
    size_t used = 0;
    for (int count = 0; used < n && count < PIECE_CHARACTERS; count++) {
        size_t length = tokenizer_nfc_character(text + used, n - used, &c);
        if (length == 0 || (used > 0 && !tokenizer_nfc_joins(c))) break;
        used += length;
    }
    return used;
}

static int append_piece(base_buffer *out, const char *text, size_t n) {
    const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    utf8proc_int32_t points[PIECE_CHARACTERS * DECOMPOSED_MAX];
    utf8proc_ssize_t count = utf8proc_decompose((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, points, BASE_ARRAY_LEN(points), options);
    if (count < 0 || count > (utf8proc_ssize_t)BASE_ARRAY_LEN(points)) return base_buffer_append(out, text, n); /* never of text that is checked */
    count = utf8proc_normalize_utf32(points, count, options);
    int rc = RP_OK;
    for (utf8proc_ssize_t i = 0; i < count && !rc; i++) {
        utf8proc_uint8_t bytes[4];
        utf8proc_ssize_t length = utf8proc_encode_char(points[i], bytes);
        rc = base_buffer_append(out, bytes, (size_t)length);
    }
    return rc;
}

/* Bytes of ASCII at text that nothing joins: up to the last one, if more text follows. */
static size_t ascii_bytes(const char *text, size_t n) {
    size_t used = 0;
    while (used < n && (unsigned char)text[used] < 0x80) used++;
    return used == n || used == 0 ? used : used - 1;
}

int nfc_append(base_buffer *out, const char *text, size_t n) {
    int rc = RP_OK;
    for (size_t i = 0, used; i < n && !rc; i += used) {
        size_t plain = ascii_bytes(text + i, n - i), piece = plain > 0 ? 0 : piece_bytes(text + i, n - i);
        used = plain > 0 ? plain : piece > 0 ? piece : 1; /* 1: a byte that is no character */
        rc = piece > 0 ? append_piece(out, text + i, piece) : base_buffer_append(out, text + i, used);
    }
    return rc;
}
