/* SPDX-License-Identifier: Apache-2.0 */
/* json_number.h: numbers of JSON (RFC 8259), which have any size, as values of jansson, which holds integers as int64
 * and others as double.
 *
 *   18          json_integer            as jansson reads it
 *   0.5, 1e2    json_real               likewise
 *   2^64, 1e400 "a number kept as text" a json_real whose value is infinite, with its text after it
 *
 * Jansson makes no infinite value, so that none of its own is taken for one of these. For code that does not know them
 * they are numbers beyond every limit. json_copy of what contains them is fine, json_deep_copy and jansson's dumps are
 * not: base_json_write (json_write.h) writes them. Any thread.
 */
#ifndef BASE_JSON_NUMBER_H
#define BASE_JSON_NUMBER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A number from its text, n bytes; the caller's (json_decref). NULL: it is no number, or out of memory. */
json_t *base_json_number(const char *text, size_t n);
/* The same, but whatever is no int64 is kept as text: for what is passed on as it was written. */
json_t *base_json_number_as_text(const char *text, size_t n);
/* The text of a number that is kept as text; NULL: it is another value. */
const char *base_json_number_text(const json_t *value);

/* A whole number, however it is written: 3, 3.0, 3e2, 18446744073709551616. */
bool base_json_is_whole(const json_t *value);
/* Its value as int64; false: it is not whole, or beyond. */
bool base_json_int64(const json_t *value, int64_t *out);
/* Compares two numbers by value, whatever their size: below, at or above 0. A double counts as the fewest digits that
   read as it. */
int base_json_number_compare(const json_t *a, const json_t *b);
/* As json_equal, but numbers are equal by value: 1 and 1.0. */
bool base_json_equal(const json_t *a, const json_t *b);

/* A number as decimal digits: 0.DIGITS x 10^point, without zeros at either end; 0 has no digits. */
typedef struct base_json_decimal {
    bool negative;
    char *digits; /* [n] ASCII; owned: base_json_decimal_free */
    size_t n;
    int64_t point; /* exponents beyond +-2^40 are cut off there */
} base_json_decimal;
/* Returns 0, RP_ERR_INVALID (no number) or RP_ERR_MEMORY. Free it in any case. */
int base_json_decimal_read(const json_t *value, base_json_decimal *out);
void base_json_decimal_free(base_json_decimal *d);

/* A double in the fewest digits that read as itself: "0.1", "1e+22", "1.0". */
#define BASE_JSON_REAL_BYTES 40
void base_json_real_text(double value, char out[BASE_JSON_REAL_BYTES]);

#endif
