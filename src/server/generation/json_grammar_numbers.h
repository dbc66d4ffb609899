/* SPDX-License-Identifier: Apache-2.0 */
/* json_grammar_numbers.h: numbers between bounds, as expressions of a grammar. Any thread. */
#ifndef SERVER_JSON_GRAMMAR_NUMBERS_H
#define SERVER_JSON_GRAMMAR_NUMBERS_H

#include <stdint.h>

#include "base/buffer.h"

#define JSON_GRAMMAR_DIGITS 16
#define JSON_GRAMMAR_MAX_NUMBER INT64_C(9999999999999999) /* of JSON_GRAMMAR_DIGITS digits: what stands for no bound */

/* Appends an expression in parentheses for the whole numbers from lo to hi, or for the numbers, with fractions and without exponents.
 * -JSON_GRAMMAR_MAX_NUMBER <= lo <= hi <= JSON_GRAMMAR_MAX_NUMBER. Returns 0 or an error of the buffer. */
int json_grammar_integers(base_buffer *out, int64_t lo, int64_t hi) BASE_NODISCARD;
int json_grammar_reals(base_buffer *out, int64_t lo, int64_t hi) BASE_NODISCARD;

#endif
