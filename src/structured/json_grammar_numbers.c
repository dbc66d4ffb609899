/* SPDX-License-Identifier: Apache-2.0 */
/* json_grammar_numbers.c: see json_grammar_numbers.h and json_grammar_internal.h: bounds of numbers, and multipleOf.
 * Owns nothing.
 *
 * Numbers of one length are compared digit by digit: 123 to 456 is 1 and then 23 to 99, [2-3] and then any two, 4 and
 * then 00 to 56.
 *
 * A multiple of a / 10^k is a multiple of a once its point is k digits to the right. Its digits are read with a
 * remainder modulo a, which has a rule for each number of digits that may follow:
 *
 *   r(left, rem) ::= "" (if rem is 0) | [0] r(left - 1, 10 rem mod a) | [1] r(left - 1, (10 rem + 1) mod a) | ...
 */
#include "structured/json_grammar_numbers.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/json_number.h"
#include "structured/json_grammar_internal.h"

#define MAX_MODULUS 64  /* remainders */
#define MAX_PLACES 4    /* k */
#define MAX_LISTED 1024 /* multiples between two bounds that are listed */
#define WHOLE_DIGITS 9  /* of a multiple, beside the zeros that 10^n in the modulus adds */
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
    BASE_ASSERT(a[0] && b[0]);
    const size_t n = strlen(a), m = strlen(b);
    return n != m ? (n > m) - (n < m) : strcmp(a, b);
}

int json_grammar_whole_compare(const json_grammar_whole *a, const json_grammar_whole *b) {
    if (a->negative != b->negative) return a->negative ? -1 : 1;
    return a->negative ? compare_digits(b->digits, a->digits) : compare_digits(a->digits, b->digits);
}

/* By one away from 0. There is a place for one more digit. */
static void step_away(char *digits) {
    BASE_ASSERT(strlen(digits) <= JSON_GRAMMAR_BOUND_DIGITS + 1);
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
    BASE_ASSERT(strspn(digits, "0") < strlen(digits));
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

int json_grammar_whole_read(const json_t *number, bool up, json_grammar_whole *out, bool *exact) {
    base_json_decimal d;
    *out = (json_grammar_whole){.digits = "0"};
    *exact = false;
    const int rc = base_json_decimal_read(number, &d);
    if (rc) return rc;
    out->negative = d.negative;
    const bool fits = d.point < JSON_GRAMMAR_BOUND_DIGITS;
    if (fits && d.point > 0) {
        const size_t n = BASE_MIN(d.n, (size_t)d.point);
        memcpy(out->digits, d.digits, n);
        snprintf(out->digits + n, sizeof(out->digits) - n, "%.*s", (int)((size_t)d.point - n), ZEROS);
    }
    *exact = d.point >= (int64_t)d.n;
    base_json_decimal_free(&d);
    if (!fits) return RP_ERR_LIMIT;
    const bool away = !*exact && out->negative != up; /* cut off towards 0 */
    if (strcmp(out->digits, "0") == 0 && !away) out->negative = false;
    if (away) step_away(out->digits);
    return RP_OK;
}

/* ---- expressions ---- */

static bool is_all(const char *digits, char digit) { return digits[strspn(digits, (char[]){digit, '\0'})] == '\0'; }

static int any_digits(base_buffer *out, size_t n) {
    BASE_ASSERT(n < sizeof(NINES));
    return n == 0 ? 0 : base_buffer_printf(out, " [0-9]{%zu}", n);
}

static int json_grammar_numbers_between(base_buffer *out, const char *lo, const char *hi);

/* One branch of `between`: a digit, and then what is from lo to hi. */
static int json_grammar_numbers_branch(base_buffer *out, char digit, const char *lo, const char *hi) {
    int rc = base_buffer_printf(out, " [%c]", digit);
    return rc ? rc : json_grammar_numbers_between(out, lo, hi);
}

/* Texts of one length. */
static int json_grammar_numbers_between(base_buffer *out, const char *lo, const char *hi) {
    BASE_ASSERT(strlen(lo) == strlen(hi));
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
    BASE_ASSERT(compare_digits(lo, hi) <= 0);
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
    BASE_ASSERT(compare_digits(lo, hi) <= 0);
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
    BASE_ASSERT(json_grammar_whole_compare(lo, hi) <= 0);
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

/* ---- bounds ---- */

/* A bound as the nearest whole number inside of it. strict: the exclusive one, or true for the other as it was once.
 * Returns whether it is there and can be honoured; one that no number of JSON_GRAMMAR_BOUND_DIGITS digits exceeds is as
 * good as none. */
static bool bound_of(json_grammar *g, const json_t *schema, bool upper, bool whole, json_grammar_whole *out) {
    const char *name = upper ? "maximum" : "minimum", *outside = upper ? "exclusiveMaximum" : "exclusiveMinimum";
    const json_t *in = json_object_get(schema, name), *ex = json_object_get(schema, outside);
    bool exclusive = json_is_number(ex) || (json_is_true(ex) && json_is_number(in)), exact = false;
    if (json_is_number(ex) && json_is_number(in)) { /* the narrower one */
        const int order = base_json_number_compare(in, ex);
        exclusive = upper ? order >= 0 : order <= 0;
    }
    const json_t *value = json_is_number(ex) && exclusive ? ex : in;
    const char *used = value == ex ? outside : name;
    if (!value || json_is_null(value) || json_grammar_failed(g)) return false;
    if (!json_is_number(value)) {
        json_grammar_wrong(g, name, "a number");
        return false;
    }
    const int rc = json_grammar_whole_read(value, !upper, out, &exact);
    if (rc) {
        if (rc != RP_ERR_LIMIT) structured_fail_memory(g->error);
        else if (out->negative == upper)
            json_grammar_unsupported(
                g, used, "bounds have at most " JSON_GRAMMAR_TEXT(JSON_GRAMMAR_BOUND_DIGITS) " digits", NULL);
        return false;
    }
    if (!whole && (exclusive || !exact)) {
        json_grammar_unsupported(g, exclusive ? outside : name, "bounds of numbers must be whole and inclusive", NULL);
        return false;
    }
    if (exclusive && exact) json_grammar_whole_step(out, !upper);
    return true;
}

/* ---- multiples ---- */

typedef struct multiple {
    int64_t a;
    int places; /* of a / 10^places */
} multiple;

static int64_t power_of_ten(int n) {
    BASE_ASSERT(n >= 0 && n <= 18);
    int64_t p = 1;
    while (n-- > 0) p *= 10;
    return p;
}

static int64_t json_grammar_gcd(int64_t a, int64_t b) {
    BASE_ASSERT(a >= 0 && b >= 0);
    return b == 0 ? a : json_grammar_gcd(b, a % b);
}

/* whole: of the integers among the multiples. Returns false where there is no multipleOf, or a problem. */
static bool multiple_of(json_grammar *g, const json_t *schema, bool whole, multiple *out) {
    const json_t *value = json_object_get(schema, "multipleOf");
    const double v = json_number_value(value);
    if (!value || json_is_null(value) || json_grammar_failed(g)) return false;
    if (!json_is_number(value) || !(v > 0) || !isfinite(v)) {
        json_grammar_wrong(g, "multipleOf", "a number above 0");
        return false;
    }
    for (int k = 0; k <= MAX_PLACES; k++) {
        const double a = v * (double)power_of_ten(k);
        if (fabs(a - round(a)) > 1e-9 * a || a > (double)JSON_GRAMMAR_MAX_NUMBER) continue;
        *out = (multiple){(int64_t)round(a), k};
        if (whole) *out = (multiple){out->a / json_grammar_gcd(out->a, power_of_ten(k)), 0};
        return true;
    }
    json_grammar_unsupported(
        g, "multipleOf", "it must have at most 16 digits, " JSON_GRAMMAR_TEXT(MAX_PLACES) " of them after the point",
        NULL);
    return false;
}

/* n / 10^places, without zeros at its end. */
static void put_decimal(json_grammar *g, base_buffer *out, int64_t n, int places) {
    BASE_ASSERT(places >= 0 && places <= MAX_PLACES);
    while (places > 0 && n % 10 == 0) n /= 10, places--;
    const int64_t p = power_of_ten(places), m = n < 0 ? -n : n;
    if (json_grammar_failed(g)) return;
    if (places == 0) json_grammar_check(g, base_buffer_printf(out, " \"%" PRId64 "\"", n));
    else
        json_grammar_check(
            g, base_buffer_printf(out, " \"%s%" PRId64 ".%0*" PRId64 "\"", n < 0 ? "-" : "", m / p, places, m % p));
}

/* Lists the multiples between whole bounds. Returns false if they are too many. */
static bool put_listed(json_grammar *g, multiple m, int64_t lo, int64_t hi, base_buffer *out) {
    BASE_ASSERT(m.a > 0 && m.places >= 0 && m.places <= MAX_PLACES);
    const double unit = (double)power_of_ten(m.places);
    if ((double)hi * unit - (double)lo * unit > (double)m.a * MAX_LISTED) return false;
    if (fabs((double)lo) * unit > (double)JSON_GRAMMAR_MAX_NUMBER ||
        fabs((double)hi) * unit > (double)JSON_GRAMMAR_MAX_NUMBER)
        return false;
    lo *= power_of_ten(m.places), hi *= power_of_ten(m.places);
    int64_t n = lo / m.a * m.a;
    if (n < lo) n += m.a;
    if (n > hi) json_grammar_wrong(g, "multipleOf", "a number with a multiple between minimum and maximum");
    json_grammar_put(g, out, " (");
    for (bool first = true; n <= hi && !json_grammar_failed(g); n += m.a, first = false) {
        if (!first) json_grammar_put(g, out, " |");
        put_decimal(g, out, n, m.places);
    }
    json_grammar_put(g, out, ")");
    return true;
}

/* Can up to n more digits make a multiple of what has that remainder? */
static bool can_end(int rem, int n, int a) {
    BASE_ASSERT(rem >= 0 && rem < a);
    const int64_t p = power_of_ten(n), shifted = rem * (p % a) % a;
    return (a - shifted) % a < p;
}

/* d: one more digit, if it can end. Returns what separates the next one. */
static const char *put_digit(json_grammar *g, base_buffer *out, const char *between, int d, int rule, bool ends) {
    BASE_ASSERT(d >= 0 && d < 10);
    if (!ends) return between;
    if (!json_grammar_failed(g)) json_grammar_check(g, base_buffer_printf(out, "%s [%d] r%d", between, d, rule));
    return " |";
}

/* Rules of digits, as above. after: [a] rules of what may follow digits with that remainder, which has up to `places`
 * digits; NULL: nothing may, and the remainder must be 0. Returns the number of r(0, 0); r(left, rem) is that + left *
 * a + rem. What cannot end has a rule without use. */
static int put_digit_rules(json_grammar *g, int a, int levels, const int *after, int places) {
    BASE_ASSERT(a > 0 && a <= MAX_MODULUS);
    const int base = g->n_rules;
    g->n_rules += (levels + 1) * a;
    for (int left = 0; left <= levels; left++)
        for (int rem = 0; rem < a && !json_grammar_failed(g); rem++) {
            base_buffer e = json_grammar_expression();
            const char *between = "";
            if (after && can_end(rem, places, a)) json_grammar_put_rule(g, &e, after[rem]), between = " |";
            else if (!after && rem == 0) json_grammar_put(g, &e, " \"\""), between = " |";
            for (int d = 0; d < 10 && left > 0; d++) {
                const int next = (10 * rem + d) % a;
                between =
                    put_digit(g, &e, between, d, base + (left - 1) * a + next, can_end(next, left - 1 + places, a));
            }
            json_grammar_end_rule(g, base + left * a + rem, &e);
        }
    return base;
}

/* What may follow the point: up to `places` digits, after whole digits with each remainder. after: [a] rules: nothing,
 * if it is a multiple, or the point with such digits. */
static void put_fraction_rules(json_grammar *g, int a, int places, int *after) {
    BASE_ASSERT(a > 0 && a <= MAX_MODULUS && places > 0);
    const int base = g->n_rules;
    g->n_rules += (places + 1) * a;
    for (int left = 0; left <= places; left++)
        for (int rem = 0; rem < a && !json_grammar_failed(g); rem++) {
            base_buffer e = json_grammar_expression();
            const char *between = "";
            const bool ends = rem * power_of_ten(left) % a == 0;
            if (ends) json_grammar_put(g, &e, " \"\""), between = " |";
            const bool begins = left == places && can_end(rem, left, a);
            if (begins) json_grammar_put(g, &e, between), json_grammar_put(g, &e, " \".\" ("), between = "";
            for (int d = 0; d < 10 && left > 0 && (begins || left < places); d++) {
                const int next = (10 * rem + d) % a;
                between = put_digit(g, &e, between, d, base + (left - 1) * a + next, can_end(next, left - 1, a));
            }
            if (begins) json_grammar_put(g, &e, ")");
            json_grammar_end_rule(g, base + left * a + rem, &e);
        }
    for (int rem = 0; rem < a; rem++) after[rem] = base + places * a + rem;
}

/* All multiples of a few digits, or those above 0, or from 0 on. */
static void put_multiples(json_grammar *g, multiple m, bool negative, bool zero, base_buffer *out) {
    BASE_ASSERT(m.a > 0);
    int zeros = 0, after[MAX_MODULUS];
    while (m.places == 0 && m.a % 10 == 0) m.a /= 10, zeros++;
    const int a = (int)m.a;
    BASE_ASSERT(a <= MAX_MODULUS); /* put_multiples_between refuses others */
    if (m.places > 0) put_fraction_rules(g, a, m.places, after);
    const int levels = WHOLE_DIGITS - 1, base = put_digit_rules(g, a, levels, m.places > 0 ? after : NULL, m.places);
    json_grammar_put(g, out, negative ? " (\"-\"? (" : " ((");
    for (int d = 1; d < 10 && !json_grammar_failed(g); d++)
        json_grammar_check(g, base_buffer_printf(out, "%s[%d] r%d", d > 1 ? " | " : "", d, base + levels * a + d % a));
    json_grammar_put(g, out, ")");
    if (zeros > 0 && !json_grammar_failed(g)) json_grammar_check(g, base_buffer_printf(out, " [0]{%d}", zeros));
    if (m.places > 0 && !json_grammar_failed(g))
        json_grammar_check(g, base_buffer_printf(out, " | %s[0] r%d", negative ? "\"-\"? " : "", after[0]));
    else if (zero) json_grammar_put(g, out, " | [0]");
    json_grammar_put(g, out, ")");
}

/* Bounds of numbers of JSON_GRAMMAR_DIGITS digits, as int64; others are as good as none. Returns whether lo and hi are
   bounds. */
static bool short_bound(bool there, const json_grammar_whole *w, int64_t *out) {
    if (!there || strlen(w->digits) > JSON_GRAMMAR_DIGITS) return false;
    *out = strtoll(w->digits, NULL, 10);
    if (w->negative) *out = -*out;
    return true;
}

typedef struct bounds {
    bool low, high; /* they are there */
    json_grammar_whole lo, hi;
} bounds;

/* Has it written the numbers of a schema with multipleOf? */
static bool put_multiples_between(json_grammar *g, const json_t *schema, bool whole, const bounds *b,
                                  base_buffer *out) {
    multiple m;
    int64_t lo = 0, hi = 0;
    if (!multiple_of(g, schema, whole, &m)) return false;
    const bool low = short_bound(b->low, &b->lo, &lo), high = short_bound(b->high, &b->hi, &hi);
    const bool beyond = (b->low && !low && !b->lo.negative) || (b->high && !high && b->hi.negative);
    if (!beyond && low && high && put_listed(g, m, lo, hi, out)) return true;
    int64_t a = m.a;
    while (m.places == 0 && a % 10 == 0) a /= 10;
    if (beyond || high || (low && lo != 0 && !(lo == 1 && m.places == 0)))
        json_grammar_unsupported(
            g, "multipleOf",
            "with minimum and maximum up to " JSON_GRAMMAR_TEXT(MAX_LISTED) " multiples, or with a minimum of 0 alone",
            NULL);
    else if (a > MAX_MODULUS)
        json_grammar_unsupported(
            g, "multipleOf",
            "give one of at most " JSON_GRAMMAR_TEXT(MAX_MODULUS) ", times a power of ten, or a minimum and a maximum",
            NULL);
    else {
        put_multiples(g, m, !low, !low || lo == 0, out);
        return true;
    }
    return false;
}

/* ---- numbers ---- */

/* What a bound that is not there stands for: enough digits to pass the other one. */
static json_grammar_whole open_end(const json_grammar_whole *other, bool there, bool negative) {
    const size_t n = there && other->negative == negative ? strlen(other->digits) + 1 : 0;
    return json_grammar_whole_nines(BASE_MAX(n, JSON_GRAMMAR_DIGITS), negative);
}

void json_grammar_put_number(json_grammar *g, const json_t *schema, bool whole, base_buffer *out) {
    bounds b = {0};
    b.low = bound_of(g, schema, false, whole, &b.lo);
    b.high = bound_of(g, schema, true, whole, &b.hi);
    if (json_grammar_failed(g)) return;
    if (!b.low) b.lo = open_end(&b.hi, b.high, true);
    if (!b.high) b.hi = open_end(&b.lo, b.low, false);
    if (json_grammar_whole_compare(&b.lo, &b.hi) > 0)
        json_grammar_wrong(g, json_object_get(schema, "minimum") ? "minimum" : "exclusiveMinimum", "at most maximum");
    if (json_grammar_failed(g) || put_multiples_between(g, schema, whole, &b, out) || json_grammar_failed(g)) return;
    if (!b.low && !b.high) json_grammar_put(g, out, whole ? " integer" : " number");
    else {
        json_grammar_put(g, out, " ");
        if (!json_grammar_failed(g))
            json_grammar_check(g, whole ? json_grammar_integers(out, &b.lo, &b.hi)
                                        : json_grammar_reals(out, &b.lo, &b.hi));
    }
}
