/* SPDX-License-Identifier: Apache-2.0 */
/* json_grammar_numbers.c: see json_grammar_numbers.h.
 *
 * Numbers of one length are compared digit by digit: 123 to 456 is 1 and then 23 to 99, [2-3] and then any two, 4 and then 00 to 56.
 */
#include "server/generation/json_grammar_numbers.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"

#define TEXT_BYTES 24

static bool is_all(const char *digits, char digit) { return digits[strspn(digits, (char[]){digit, '\0'})] == '\0'; }

static int any_digits(base_buffer *out, size_t n) { return n == 0 ? 0 : base_buffer_printf(out, " [0-9]{%zu}", n); }

static int json_grammar_numbers_between(base_buffer *out, const char *lo, const char *hi);

/* One branch of `between`: a digit, and then what is from lo to hi. */
static int json_grammar_numbers_branch(base_buffer *out, char digit, const char *lo, const char *hi) {
    int rc = base_buffer_printf(out, " [%c]", digit);
    return rc ? rc : json_grammar_numbers_between(out, lo, hi);
}

/* Texts of one length. */
static int json_grammar_numbers_between(base_buffer *out, const char *lo, const char *hi) {
    static const char nines[] = "999999999999999999", zeros[] = "000000000000000000";
    size_t rest = strlen(lo) - (lo[0] != '\0');
    const char *low_end = nines + strlen(nines) - rest, *high_begin = zeros + strlen(zeros) - rest;
    int rc = 0;
    if (!lo[0]) return 0;
    if (is_all(lo, '0') && is_all(hi, '9')) return any_digits(out, rest + 1);
    if (lo[0] == hi[0]) return json_grammar_numbers_branch(out, lo[0], lo + 1, hi + 1);
    bool low = !is_all(lo + 1, '0'), high = !is_all(hi + 1, '9'); /* the first or last digit is not free in what follows it */
    char first = (char)(lo[0] + low), last = (char)(hi[0] - high);
    rc = base_buffer_append_str(out, " (");
    if (!rc && low) rc = json_grammar_numbers_branch(out, lo[0], lo + 1, low_end);
    if (!rc && low && first <= last) rc = base_buffer_append_str(out, " | ");
    if (!rc && first <= last) rc = base_buffer_printf(out, "[%c-%c]", first, last);
    if (!rc && first <= last) rc = any_digits(out, rest);
    if (!rc && high) rc = base_buffer_append_str(out, " | ");
    if (!rc && high) rc = json_grammar_numbers_branch(out, hi[0], high_begin, hi + 1);
    return rc ? rc : base_buffer_append_str(out, ")");
}

/* 0 <= lo <= hi: an alternative for each length. */
static int without_sign(base_buffer *out, int64_t lo, int64_t hi) {
    int rc = base_buffer_append_str(out, "(");
    bool any = false;
    for (int64_t first = 0, last = 9; first <= hi && !rc; first = last + 1, last = 10 * last + 9) {
        char from[TEXT_BYTES], to[TEXT_BYTES];
        if (last < lo) continue;
        snprintf(from, sizeof(from), "%" PRId64, BASE_MAX(first, lo));
        snprintf(to, sizeof(to), "%" PRId64, BASE_MIN(last, hi));
        if (any) rc = base_buffer_append_str(out, " |");
        any = true;
        if (!rc) rc = json_grammar_numbers_between(out, from, to);
    }
    return rc ? rc : base_buffer_append_str(out, ")");
}

/* 0 <= lo <= hi: those below hi may have a fraction. */
static int reals_without_sign(base_buffer *out, int64_t lo, int64_t hi) {
    int rc = base_buffer_append_str(out, "(");
    if (!rc && lo < hi) rc = without_sign(out, lo, hi - 1);
    if (!rc && lo < hi) rc = base_buffer_append_str(out, " (\".\" [0-9]{1,16})? | ");
    return rc ? rc : base_buffer_printf(out, "\"%" PRId64 "\" (\".\" [0]{1,4})?)", hi);
}

typedef int (*part)(base_buffer *out, int64_t lo, int64_t hi);

static int with_sign(base_buffer *out, int64_t lo, int64_t hi, int64_t least, part write) {
    int rc = base_buffer_append_str(out, "(");
    if (!rc && lo < 0) rc = base_buffer_append_str(out, "\"-\" ");
    if (!rc && lo < 0) rc = write(out, BASE_MAX(least, -hi), -lo);
    if (!rc && lo < 0 && hi >= 0) rc = base_buffer_append_str(out, " | ");
    if (!rc && hi >= 0) rc = write(out, BASE_MAX(lo, 0), hi);
    return rc ? rc : base_buffer_append_str(out, ")");
}

int json_grammar_integers(base_buffer *out, int64_t lo, int64_t hi) { return with_sign(out, lo, hi, 1, without_sign); }
int json_grammar_reals(base_buffer *out, int64_t lo, int64_t hi) { return with_sign(out, lo, hi, 0, reals_without_sign); }
