/* SPDX-License-Identifier: Apache-2.0 */
/* text.c: UTF-8, cells and words. Owns nothing. One thread (the locale is the process's). */
#define _XOPEN_SOURCE 700

#include "common/text.h"

#include <langinfo.h>
#include <math.h>
#include <string.h>
#include <wchar.h>

#include "common/console.h"

/* ---- UTF-8 ---- */

static size_t bad_byte(uint32_t *c) {
    *c = CLI_BAD_UTF8;
    return 1;
}

size_t cli_utf8_next(const char *s, size_t n, uint32_t *c) {
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000}; /* smaller values have shorter forms */
    unsigned char first = (unsigned char)s[0];
    if (first < 0x80) {
        *c = first;
        return 1;
    }
    size_t len = first >= 0xF0 ? 4 : first >= 0xE0 ? 3
                                                   : 2;
    if (first < 0xC2 || first > 0xF4 || len > n) return bad_byte(c);
    uint32_t v = first & (0x7Fu >> len);
    for (size_t i = 1; i < len; i++) {
        unsigned char next = (unsigned char)s[i];
        if ((next & 0xC0) != 0x80) return bad_byte(c);
        v = v << 6 | (next & 0x3F);
    }
    if (v < least[len] || v > 0x10FFFF || (v >= 0xD800 && v <= 0xDFFF)) return bad_byte(c);
    *c = v;
    return len;
}

char *cli_utf8_clean(const char *s, size_t n, size_t *n_out) {
    char *out = cli_alloc(3 * n + 1); /* U+FFFD takes three bytes */
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        uint32_t c;
        size_t len = cli_utf8_next(s + i, n - i, &c);
        bool bad = c == CLI_BAD_UTF8;
        memcpy(out + used, bad ? "\xEF\xBF\xBD" : s + i, bad ? 3 : len);
        used += bad ? 3 : len;
        i += len;
    }
    out[used] = '\0';
    if (n_out != NULL) *n_out = used;
    return out;
}

bool cli_is_control(uint32_t c) { return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == CLI_BAD_UTF8; }

void cli_print_safe(FILE *to, const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        uint32_t c;
        size_t len = cli_utf8_next(s + i, n - i, &c);
        if (cli_is_control(c) && c != '\n' && c != '\t')
            fputc('?', to);
        else
            fwrite(s + i, 1, len, to);
        i += len;
    }
}

/* ---- Cells ---- */

bool cli_locale_is_utf8(void) { return strcmp(nl_langinfo(CODESET), "UTF-8") == 0; }

int cli_char_cells(uint32_t c) {
    if (c < 0x80) return 1;
    int cells = c <= 0x10FFFF ? wcwidth((wchar_t)c) : 1;
    return cells < 0 ? 1 : cells; /* the C locale has no widths outside ASCII */
}

static bool text_printable(uint32_t c) { return !cli_is_control(c) && (c < 0x80 || cli_locale_is_utf8()); }

int cli_text_cells(const char *s) {
    int cells = 0;
    for (size_t n = strlen(s), i = 0; i < n;) {
        uint32_t c;
        i += cli_utf8_next(s + i, n - i, &c);
        cells += text_printable(c) ? cli_char_cells(c) : 1;
    }
    return cells;
}

void cli_print_fit(FILE *to, const char *s, int cells, int pad) {
    int used = 0;
    bool cut = cli_text_cells(s) > cells;
    const char *ellipsis = cli_locale_is_utf8() ? "\xE2\x80\xA6" : "~";
    int room = cut ? cells - 1 : cells;
    for (size_t n = strlen(s), i = 0; i < n;) {
        uint32_t c;
        size_t len = cli_utf8_next(s + i, n - i, &c);
        int w = text_printable(c) ? cli_char_cells(c) : 1;
        if (used + w > room) break;
        if (text_printable(c))
            fwrite(s + i, 1, len, to);
        else
            fputc('?', to);
        used += w;
        i += len;
    }
    if (cut && cells > 0) {
        fputs(ellipsis, to);
        used++;
    }
    if (pad > used) fprintf(to, "%*s", pad - used, "");
}

void cli_print_shares(FILE *to, const float *shares, int n, int cells) {
    static const char *const bars[] = {" ", "\xE2\x96\x81", "\xE2\x96\x82", "\xE2\x96\x83", "\xE2\x96\x84",
                                       "\xE2\x96\x85", "\xE2\x96\x86", "\xE2\x96\x87", "\xE2\x96\x88"};
    static const char plain[] = " .:-=+*#@";
    const int step = (n + cells - 1) / cells;
    for (int i = 0; i < n; i += step) {
        const int end = i + step < n ? i + step : n;
        float sum = 0;
        for (int k = i; k < end; k++) sum += shares[k];
        const int level = (int)ceilf(sum / (float)(end - i) * 8); /* only 0 is empty */
        if (cli_locale_is_utf8()) fputs(bars[level > 8 ? 8 : level], to);
        else fputc(plain[level > 8 ? 8 : level], to);
    }
}

/* ---- Words ---- */

/* Levenshtein's distance between words of fewer than CLI_NEAREST_BYTES bytes. */
static size_t text_distance(const char *a, const char *b) {
    size_t row[CLI_NEAREST_BYTES + 1], n = strlen(b);
    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t change = diagonal + (a[i - 1] != b[j - 1]);
            size_t skip = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < skip ? change : skip;
        }
    }
    return row[n];
}

cli_nearest cli_nearest_start(const char *word) { return (cli_nearest){word, NULL, SIZE_MAX}; }

void cli_nearest_try(cli_nearest *n, const char *candidate) {
    size_t len = strlen(n->word), other = strlen(candidate);
    if (len == 0 || len >= CLI_NEAREST_BYTES || other >= CLI_NEAREST_BYTES) return;
    size_t d = text_distance(n->word, candidate);
    size_t shorter = len < other ? len : other;
    if (d > 1 && shorter >= 3 && strncmp(n->word, candidate, shorter) == 0) d = 1; /* a prefix: --temperature */
    if (d < n->distance && d <= 1 + len / 3) {
        n->distance = d;
        n->best = candidate;
    }
}
