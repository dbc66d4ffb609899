/* SPDX-License-Identifier: Apache-2.0 */
/* json_number.c: see json_number.h. Owns nothing. */
#include "base/check.h"
#include "base/json_number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

#define MOST_EXPONENT (INT64_C(1) << 40)

/* As jansson has its reals (json_real_t), with a text after it: jansson frees it as one of its own. */
typedef struct kept_number {
    json_t json;
    double value;
    char text[];
} kept_number;

/* ---- reading ---- */

static size_t digits_end(const char *text, size_t n, size_t at) {
    while (at < n && text[at] >= '0' && text[at] <= '9') at++;
    return at;
}

/* Is it a number of RFC 8259? *whole: it has neither point nor exponent. */
static bool is_number(const char *text, size_t n, bool *whole) {
    size_t at = n > 0 && text[0] == '-', end = digits_end(text, n, at);
    if (end == at || (text[at] == '0' && end > at + 1)) return false;
    *whole = end == n;
    if (end < n && text[end] == '.') {
        at = end + 1;
        if ((end = digits_end(text, n, at)) == at) return false;
    }
    if (end < n && (text[end] == 'e' || text[end] == 'E')) {
        at = end + 1;
        if (at < n && (text[at] == '+' || text[at] == '-')) at++;
        if ((end = digits_end(text, n, at)) == at) return false;
    }
    return end == n;
}

static json_t *keep_text(const char *text, size_t n) {
    json_malloc_t allocate = NULL;
    json_free_t release = NULL;
    json_get_alloc_funcs(&allocate, &release);
    kept_number *kept = n < SIZE_MAX / 2 ? allocate(sizeof(*kept) + n + 1) : NULL;
    if (!kept) return NULL;
    kept->json.type = JSON_REAL;
    kept->json.refcount = 1;
    kept->value = text[0] == '-' ? (double)-INFINITY : (double)INFINITY;
    memcpy(kept->text, text, n);
    kept->text[n] = '\0';
    if (isinf(json_real_value(&kept->json))) return &kept->json;
    release(kept); /* another jansson has another layout */
    return NULL;
}

static json_t *number_of(const char *text, size_t n, bool keeps_reals) {
    bool whole = false;
    json_error_t err;
    if (!is_number(text, n, &whole)) return NULL;
    if (keeps_reals && !whole) return keep_text(text, n);
    json_t *value = json_loadb(text, n, JSON_DECODE_ANY, &err);
    return value || json_error_code(&err) != json_error_numeric_overflow ? value : keep_text(text, n);
}

json_t *base_json_number(const char *text, size_t n) { return number_of(text, n, false); }
json_t *base_json_number_as_text(const char *text, size_t n) { return number_of(text, n, true); }

const char *base_json_number_text(const json_t *value) {
    if (!json_is_real(value) || !isinf(json_real_value(value))) return NULL;
    return ((const kept_number *)(const void *)value)->text;
}

/* ---- decimals ---- */

void base_json_real_text(double value, char out[BASE_JSON_REAL_BYTES]) {
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(out, BASE_JSON_REAL_BYTES - 2, "%.*g", precision, value);
        if (strtod(out, NULL) == value) break;
    }
    char *comma = strchr(out, ','); /* of a locale */
    if (comma) *comma = '.';
    const size_t n = strlen(out);
    BASE_DCHECK(n + strlen(".0") < BASE_JSON_REAL_BYTES);
    if (!strpbrk(out, ".e")) memcpy(out + n, ".0", sizeof(".0")); /* else it would read as an integer */
}

static int64_t exponent_of(const char *text) {
    int64_t value = 0;
    const bool negative = *text == '-';
    if (*text == '-' || *text == '+') text++;
    for (; *text >= '0' && *text <= '9'; text++) value = BASE_MIN(10 * value + (*text - '0'), MOST_EXPONENT);
    BASE_DCHECK(value >= 0 && value <= MOST_EXPONENT);
    return negative ? -value : value;
}

/* text: a number of JSON. */
static int decimal_of(const char *text, base_json_decimal *out) {
    const size_t n = strlen(text);
    out->negative = *text == '-';
    out->digits = base_alloc(n + 1);
    if (!out->digits) return RP_ERR_MEMORY;
    bool after_point = false;
    for (text += out->negative; *text && *text != 'e' && *text != 'E'; text++) {
        if (*text == '.') {
            after_point = true;
            continue;
        }
        const bool leads = *text == '0' && out->n == 0;
        if (!leads) out->digits[out->n++] = *text;
        if (after_point && leads) out->point--;
        else if (!after_point && !leads) out->point++;
    }
    if (*text) out->point += exponent_of(text + 1);
    while (out->n > 0 && out->digits[out->n - 1] == '0') out->n--;
    if (out->n == 0) out->point = 0, out->negative = false;
    BASE_DCHECK(out->n == 0 || (out->digits[0] != '0' && out->digits[out->n - 1] != '0'));
    return 0;
}

int base_json_decimal_read(const json_t *value, base_json_decimal *out) {
    char text[BASE_JSON_REAL_BYTES];
    *out = (base_json_decimal){0};
    if (!json_is_number(value)) return RP_ERR_INVALID;
    const char *kept = base_json_number_text(value);
    if (kept) return decimal_of(kept, out);
    if (json_is_integer(value)) snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else base_json_real_text(json_real_value(value), text);
    return decimal_of(text, out);
}

void base_json_decimal_free(base_json_decimal *d) {
    base_free(d->digits);
    *d = (base_json_decimal){0};
}

/* ---- comparing ---- */

bool base_json_is_whole(const json_t *value) {
    if (json_is_integer(value)) return true;
    if (!json_is_real(value)) return false;
    if (!base_json_number_text(value)) return json_real_value(value) == floor(json_real_value(value));
    base_json_decimal d;
    const bool whole = base_json_decimal_read(value, &d) == 0 && d.point >= (int64_t)d.n;
    base_json_decimal_free(&d);
    return whole;
}

bool base_json_int64(const json_t *value, int64_t *out) {
    if (json_is_integer(value)) {
        *out = (int64_t)json_integer_value(value);
        return true;
    }
    const double v = json_is_real(value) ? json_real_value(value) : (double)NAN;
    const bool fits = v == floor(v) && v >= -0x1p63 && v < 0x1p63;
    if (fits) *out = (int64_t)v;
    return fits;
}

static int magnitude_compare(const base_json_decimal *a, const base_json_decimal *b) {
    if (a->n == 0 || b->n == 0) return (a->n > 0) - (b->n > 0);
    if (a->point != b->point) return a->point < b->point ? -1 : 1;
    const int order = memcmp(a->digits, b->digits, BASE_MIN(a->n, b->n));
    return order != 0 ? order : (a->n > b->n) - (a->n < b->n);
}

int base_json_number_compare(const json_t *a, const json_t *b) {
    if (json_is_integer(a) && json_is_integer(b))
        return (json_integer_value(a) > json_integer_value(b)) - (json_integer_value(a) < json_integer_value(b));
    base_json_decimal x, y;
    const int rc = base_json_decimal_read(a, &x), other = base_json_decimal_read(b, &y);
    int order = 0;
    if (rc || other)
        order = (json_number_value(a) > json_number_value(b)) - (json_number_value(a) < json_number_value(b));
    else if (x.negative != y.negative) order = x.negative ? -1 : 1;
    else order = x.negative ? magnitude_compare(&y, &x) : magnitude_compare(&x, &y);
    base_json_decimal_free(&x);
    base_json_decimal_free(&y);
    return order;
}

static bool objects_equal(const json_t *a, const json_t *b) {
    const char *name;
    json_t *item;
    if (json_object_size(a) != json_object_size(b)) return false;
    json_object_foreach((json_t *)a, name, item) {
        const json_t *other = json_object_get(b, name);
        if (!other || !base_json_equal(item, other)) return false;
    }
    return true;
}

bool base_json_equal(const json_t *a, const json_t *b) {
    if (!a || !b) return false;
    if (a == b) return true;
    if (json_is_number(a) && json_is_number(b)) return base_json_number_compare(a, b) == 0;
    if (json_is_object(a) && json_is_object(b)) return objects_equal(a, b);
    if (!json_is_array(a) || !json_is_array(b)) return json_equal(a, b);
    bool same = json_array_size(a) == json_array_size(b);
    for (size_t i = 0; i < json_array_size(a) && same; i++)
        same = base_json_equal(json_array_get(a, i), json_array_get(b, i));
    return same;
}
