/* SPDX-License-Identifier: Apache-2.0 */
/* json_read.h: JSON from bytes, as json_loadb with JSON_REJECT_DUPLICATES reads it, many times faster where strings are
 * long: a prompt of 100,000 tokens is one. Numbers have any size (json_number.h), and strings may have U+0000. What is
 * wrong it leaves to jansson, which says why. Any thread. */
#ifndef BASE_JSON_READ_H
#define BASE_JSON_READ_H

#include <jansson.h>
#include <stddef.h>

enum {
    /* any value; else an object or an array */
    BASE_JSON_ANY = 1,
    /* numbers that are no int64 are kept as text: they are passed on as they were written */
    BASE_JSON_TEXT_NUMBERS = 2,
    /* U+0000 in a string becomes U+FFFD: for texts that code without lengths sees */
    BASE_JSON_REPLACE_NUL = 4,
    /* of keys that come twice the last one counts, as models may write them; else it is no text */
    BASE_JSON_LAST_KEY = 8,
    /* arguments that a model wrote */
    BASE_JSON_AS_WRITTEN = BASE_JSON_ANY | BASE_JSON_TEXT_NUMBERS | BASE_JSON_LAST_KEY,
};

/* NULL: not read, which says nothing about the text. */
json_t *base_json_read(const char *bytes, size_t n, unsigned flags);

/* Where the run of characters from `at` ends that stand for themselves in a string: at a quote, a backslash, a control
 * character, a byte that is no UTF-8, or `end`. */
const char *base_json_run_end(const char *at, const char *end);

#endif
