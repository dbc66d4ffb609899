/* SPDX-License-Identifier: Apache-2.0 */
/* json_grammar_numbers.c: see json_grammar_numbers.h.
 *
 * Numbers of one length are compared digit by digit: 123 to 456 is 1 and then 23 to 99, [2-3] and then any two, 4 and then 00 to 56.
 */
#include "server/generation/json_grammar_numbers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/json_number.h"

#define NINES "9999999999999999999999999999999999999999999999999999999999999999999"
#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000000"
_Static_assert(sizeof(NINES) > JSON_GRAMMAR_BOUND_DIGITS + 1 && sizeof(ZEROS) == sizeof(NINES), "as long as a bound");

/* ---- whole numbers ---- */

json_grammar_whole json_grammar_whole_of(int64_t value) {
    json_grammar_whole w = {.negative = value < 0};
    snprintf(w.digits, sizeof(w.digits), "%" PRIu64, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
    return w;
}

json_grammar_whole json_grammar_whole_nines(size_t n, bool negative) {
    json_grammar_whole w = {.negative = negative};
    snprintf(w.digits, sizeof(w.digits), "%.*s", (int)BASE_MIN(n, JSON_GRAMMAR_BOUND_DIGITS), NINES);
    return w;
}

/* Of numbers without a sign. */
static int compare_digits(const char *a, const char *b) {
    const size_t n = strlen(a), m = strlen(b);
    return n != m ? (n > m) - (n < m) : strcmp(a, b);
}

int json_grammar_whole_compare(const json_grammar_whole *a, const json_grammar_whole *b) {
    if (a->negative != b->negative) return a->negative ? -1 : 1;
    return a->negative ? compare_digits(b->digits, a->digits) : compare_digits(a->digits, b->digits);
}

/* By one away from 0. There is a place for one more digit. */
static void step_away(char *digits) {
    size_t n = strlen(digits), i = n;
    while (i > 0 && digits[i - 1] == '9') digits[--i] = '0';
    if (i > 0) {
        digits[i - 1]++;
        return;
    }
    memmove(digits + 1, digits, n + 1);
    digits[0] = '1';
}

/* By one towards 0; not of 0. */
static void step_back(char *digits) {
    size_t n = strlen(digits), i = n;
    while (digits[i - 1] == '0') digits[--i] = '9';
    digits[i - 1]--;
    if (digits[0] == '0' && n > 1) memmove(digits, digits + 1, n);
}

void json_grammar_whole_step(json_grammar_whole *w, bool up) {
    const bool is_zero = strcmp(w->digits, "0") == 0;
    if (is_zero) w->negative = !up;
    if (is_zero || w->negative != up) step_away(w->digits);
    else step_back(w->digits);
    if (strcmp(w->digits, "0") == 0) w->negative = false;
}

bool json_grammar_whole_read(const json_t *number, bool up, json_grammar_whole *out, bool *exact) {
    base_json_decimal d;
    *out = (json_grammar_whole){.digits = "0"};
    *exact = false;
    if (base_json_decimal_read(number, &d)) return false;
    out->negative = d.negative;
    const bool fits = d.point < JSON_GRAMMAR_BOUND_DIGITS;
    if (fits && d.point > 0) {
        const size_t n = BASE_MIN(d.n, (size_t)d.point);
        memcpy(out->digits, d.digits, n);
        snprintf(out->digits + n, sizeof(out->digits) - n, "%.*s", (int)((size_t)d.point - n), ZEROS);
    }
    *exact = d.point >= (int64_t)d.n;
    base_json_decimal_free(&d);
    if (!fits) return false;
    const bool away = !*exact && out->negative != up; /* cut off towards 0 */
    if (strcmp(out->digits, "0") == 0 && !away) out->negative = false;
    if (away) step_away(out->digits);
    return true;
}

/* ---- expressions ---- */

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
    size_t rest = strlen(lo) - (lo[0] != '\0');
    const char *low_end = &NINES[sizeof(NINES) - 1 - rest], *high_begin = &ZEROS[sizeof(ZEROS) - 1 - rest];
    int rc = 0;
    if (!lo[0]) return 0;
    if (is_all(lo, '0') && is_all(hi, '9')) return any_digits(out, rest + 1);
    if (lo[0] == hi[0]) return json_grammar_numbers_branch(out, lo[0], lo + 1, hi + 1);
    bool low = !is_all(lo + 1, '0'),
         high = !is_all(hi + 1, '9'); /* the first or last digit is not free in what follows it */
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
static int without_sign(base_buffer *out, const char *lo, const char *hi) {
    const size_t shortest = strlen(lo), longest = strlen(hi);
    int rc = base_buffer_append_str(out, "(");
    for (size_t n = shortest; n <= longest && !rc; n++) {
        char from[sizeof(ZEROS) + 1] = "1" ZEROS, to[sizeof(NINES)] = NINES;
        from[n] = to[n] = '\0';
        if (n > shortest) rc = base_buffer_append_str(out, " |");
        if (!rc) rc = json_grammar_numbers_between(out, n == shortest ? lo : from, n == longest ? hi : to);
    }
    return rc ? rc : base_buffer_append_str(out, ")");
}

/* 0 <= lo <= hi: those below hi may have a fraction. */
static int reals_without_sign(base_buffer *out, const char *lo, const char *hi) {
    char below[JSON_GRAMMAR_BOUND_DIGITS + 2];
    const bool differ = strcmp(lo, hi) != 0;
    int rc = base_buffer_append_str(out, "(");
    snprintf(below, sizeof(below), "%s", hi);
    if (differ) step_back(below);
    if (!rc && differ) rc = without_sign(out, lo, below);
    if (!rc && differ) rc = base_buffer_append_str(out, " (\".\" [0-9]{1,16})? | ");
    return rc ? rc : base_buffer_printf(out, "\"%s\" (\".\" [0]{1,4})?)", hi);
}

typedef int (*part)(base_buffer *out, const char *lo, const char *hi);

/* least: of the numbers after a '-' that may be 0, or must not. */
static int with_sign(base_buffer *out, const json_grammar_whole *lo, const json_grammar_whole *hi, const char *least,
                     part write) {
    int rc = base_buffer_append_str(out, "(");
    if (!rc && lo->negative) rc = base_buffer_append_str(out, "\"-\" ");
    if (!rc && lo->negative) rc = write(out, hi->negative ? hi->digits : least, lo->digits);
    if (!rc && lo->negative && !hi->negative) rc = base_buffer_append_str(out, " | ");
    if (!rc && !hi->negative) rc = write(out, lo->negative ? "0" : lo->digits, hi->digits);
    return rc ? rc : base_buffer_append_str(out, ")");
}

int json_grammar_integers(base_buffer *out, const json_grammar_whole *lo, const json_grammar_whole *hi) {
    return with_sign(out, lo, hi, "1", without_sign);
}
int json_grammar_reals(base_buffer *out, const json_grammar_whole *lo, const json_grammar_whole *hi) {
    return with_sign(out, lo, hi, "0", reals_without_sign);
}
