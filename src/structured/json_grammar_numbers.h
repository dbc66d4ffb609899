/* SPDX-License-Identifier: Apache-2.0 */
/* json_grammar_numbers.h: numbers between bounds, as expressions of a grammar. Any thread. */
#ifndef STRUCTURED_JSON_GRAMMAR_NUMBERS_H
#define STRUCTURED_JSON_GRAMMAR_NUMBERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

#define JSON_GRAMMAR_DIGITS 16
#define JSON_GRAMMAR_MAX_NUMBER \
    INT64_C(9999999999999999) /* of JSON_GRAMMAR_DIGITS digits: what a number without a bound has */
#define JSON_GRAMMAR_BOUND_DIGITS 64

/* A whole number: 64-bit bounds are usual, and beyond what a number without bounds may have. */
typedef struct json_grammar_whole {
    bool negative;                              /* not 0 */
    char digits[JSON_GRAMMAR_BOUND_DIGITS + 2]; /* without zeros before them; "0" */
} json_grammar_whole;

json_grammar_whole json_grammar_whole_of(int64_t value);
/* The whole number next to a number of JSON, at or below it, or, `up`, at or above it. *exact: it is that number.
 * Returns 0, RP_ERR_LIMIT (more than JSON_GRAMMAR_BOUND_DIGITS digits; out->negative is set) or RP_ERR_MEMORY. */
int json_grammar_whole_read(const json_t *number, bool up, json_grammar_whole *out, bool *exact);
int json_grammar_whole_compare(const json_grammar_whole *a, const json_grammar_whole *b);
/* The next one, up or down. */
void json_grammar_whole_step(json_grammar_whole *w, bool up);
/* +-99...9, of n digits. */
json_grammar_whole json_grammar_whole_nines(size_t n, bool negative);

/* Appends an expression in parentheses for the whole numbers from lo to hi, or for the numbers, with fractions and
 * without exponents. lo <= hi. Returns 0 or an error of the buffer. */
int json_grammar_integers(base_buffer *out, const json_grammar_whole *lo, const json_grammar_whole *hi) BASE_NODISCARD;
int json_grammar_reals(base_buffer *out, const json_grammar_whole *lo, const json_grammar_whole *hi) BASE_NODISCARD;

#endif
