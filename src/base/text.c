/* SPDX-License-Identifier: Apache-2.0 */
/* text.c: see text.h. */
#include "base/text.h"

#include <stdbool.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"

#define MAX_GUESS_BYTES 64 /* longer names are not compared: the table stays small */
#define SHOWN_NAME_BYTES 60

/* ---- names ---- */

static unsigned char text_fold(char c) { return (unsigned char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); }

/* Edits that make b of a: insert, delete or replace a byte, or swap two neighbours; upper and lower case are one.
 * (Optimal string alignment: three rows of the Levenshtein table.) */
static int edit_distance(const char *a, size_t n_a, const char *b, size_t n_b) {
    BASE_ASSERT(n_a <= MAX_GUESS_BYTES && n_b <= MAX_GUESS_BYTES);
    int rows[3][MAX_GUESS_BYTES + 1];
    for (size_t j = 0; j <= n_b; j++) rows[0][j] = (int)j;
    for (size_t i = 1; i <= n_a; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= n_b; j++) {
            bool same = text_fold(a[i - 1]) == text_fold(b[j - 1]);
            int best = above[j - 1] + !same;
            best = BASE_MIN(best, BASE_MIN(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && text_fold(a[i - 1]) == text_fold(b[j - 2]) &&
                text_fold(a[i - 2]) == text_fold(b[j - 1]))
                best = BASE_MIN(best, above2[j - 2] + 1);
            row[j] = best;
        }
    }
    return rows[n_a % 3][n_b];
}

/* Near: about one edit in three bytes, so that "E" is not taken for "I". */
void base_guess_offer(base_guess *g, const char *candidate) {
    size_t n = strlen(g->name), n_candidate = strlen(candidate);
    if (n > MAX_GUESS_BYTES || n_candidate > MAX_GUESS_BYTES) return;
    int distance = edit_distance(g->name, n, candidate, n_candidate);
    if (distance > (int)(BASE_MAX(n, n_candidate) + 1) / 3 || (g->best && distance >= g->distance)) return;
    g->best = candidate;
    g->distance = distance;
}

int base_shown(const char *s) {
    size_t n = 0;
    while (n < SHOWN_NAME_BYTES && s[n]) n++;
    while (n > 0 && ((unsigned char)s[n] & 0xC0) == 0x80) n--; /* whole characters */
    return (int)n;
}

/* ---- UTF-8 ---- */

int base_utf8_length(const unsigned char *s, size_t n) {
    BASE_DCHECK(n > 0);
    if (s[0] < 0x80) return 1;
    int length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3
                                                 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4) return -1;
    if (n > 1) {
        unsigned char low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90
                                                               : 0x80;
        unsigned char high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f
                                                                : 0xbf;
        if (s[1] < low || s[1] > high) return -1;
    }
    for (int i = 2; i < length && (size_t)i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return -1;
    return (size_t)length <= n ? length : 0;
}

uint32_t base_utf8_decode(const unsigned char *s, int length) {
    BASE_DCHECK(length >= 1 && length <= 4);
    uint32_t c = length == 1 ? s[0] : s[0] & (0xffu >> (length + 1));
    for (int i = 1; i < length; i++) c = c << 6 | (s[i] & 0x3fu);
    return c;
}

int base_utf8_encode(uint32_t c, unsigned char out[4]) {
    BASE_DCHECK(c <= 0x10ffff);
    int length = c < 0x80 ? 1 : c < 0x800 ? 2
                            : c < 0x10000 ? 3
                                          : 4;
    for (int i = length - 1; i > 0; i--, c >>= 6) out[i] = (unsigned char)(0x80 | (c & 0x3f));
    out[0] = (unsigned char)(length == 1 ? c : (0xf00u >> length & 0xff) | c);
    return length;
}
