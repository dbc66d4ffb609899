/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_nfc.c: Unicode's normal form C (UAX #15), by utf8proc, for models that were trained on composed text.
 *
 * A text is composed in pieces of a starter and the characters that may combine with it. The time is linear, and only
 * the output is allocated. A piece of more than PIECE_CHARACTERS is cut; human languages stay far below (the
 * stream-safe form of UAX #15 allows 30).
 */
#include <utf8proc.h>

#include "base/check.h"
#include "base/error.h"
#include "model/tokenizer/tokenizer_internal.h"

#define PIECE_CHARACTERS 128
#define DECOMPOSED_MAX 4 /* maximum length of a character's canonical decomposition (Unicode 15: U+1F82 and others) */

bool nfc_is_plain(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        /* U+0300 and above; lower characters are composed and do not combine with previous ones */
        if ((unsigned char)text[i] >= 0xcc) return false;
    return true;
}

/* Returns true if c may combine with the previous character: marks, and the vowels and final consonants of Hangul. */
static bool tokenizer_nfc_joins(utf8proc_int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    bool mark = k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
    return mark || (c >= 0x1160 && c <= 0x11ff);
}

/* Length of the piece at the start of text; 0: invalid UTF-8. */
static size_t piece_bytes(const char *text, size_t n) {
    utf8proc_int32_t c;
    size_t used = 0;
    for (int count = 0; used < n && count < PIECE_CHARACTERS; count++) {
        const utf8proc_ssize_t most = (utf8proc_ssize_t)BASE_MIN(n - used, 4);
        const utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)text + used, most, &c);
        if (length <= 0 || (used > 0 && !tokenizer_nfc_joins(c))) break;
        used += (size_t)length;
    }
    return used;
}

static int append_piece(base_buffer *out, const char *text, size_t n) {
    const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    utf8proc_int32_t points[PIECE_CHARACTERS * DECOMPOSED_MAX];
    utf8proc_ssize_t count = utf8proc_decompose((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, points,
                                                BASE_ARRAY_LEN(points), options);
    /* unreachable for validated text */
    if (count < 0 || count > (utf8proc_ssize_t)BASE_ARRAY_LEN(points)) return base_buffer_append(out, text, n);
    count = utf8proc_normalize_utf32(points, count, options);
    int rc = RP_OK;
    for (utf8proc_ssize_t i = 0; i < count && !rc; i++) {
        utf8proc_uint8_t bytes[4];
        utf8proc_ssize_t length = utf8proc_encode_char(points[i], bytes);
        BASE_DCHECK(length > 0 && length <= 4);
        rc = base_buffer_append(out, bytes, (size_t)length);
    }
    return rc;
}

/* Number of ASCII bytes at the start of text that no character combines with; without the last one if more text
 * follows. */
static size_t ascii_bytes(const char *text, size_t n) {
    size_t used = 0;
    while (used < n && (unsigned char)text[used] < 0x80) used++;
    return used == n || used == 0 ? used : used - 1;
}

int nfc_append(base_buffer *out, const char *text, size_t n) {
    int rc = RP_OK;
    for (size_t i = 0, used; i < n && !rc; i += used) {
        size_t plain = ascii_bytes(text + i, n - i), piece = plain > 0 ? 0 : piece_bytes(text + i, n - i);
        used = plain > 0 ? plain : piece > 0 ? piece
                                             : 1; /* 1: an invalid byte */
        BASE_ASSERT(used <= n - i);
        rc = piece > 0 ? append_piece(out, text + i, piece) : base_buffer_append(out, text + i, used);
    }
    return rc;
}
