/* SPDX-License-Identifier: Apache-2.0 */
/* json_write.h: JSON to bytes, as json_dumps writes it, with numbers of any size (json_number.h) and reals in the
 * fewest digits that read as themselves. What may have values of a client is written here: jansson's own functions
 * refuse or change such numbers. Any thread. */
#ifndef BASE_JSON_WRITE_H
#define BASE_JSON_WRITE_H

#include <jansson.h>

#include "base/buffer.h"

/* Appends a value of any type. flags, of jansson's: JSON_COMPACT, JSON_SORT_KEYS, JSON_REAL_PRECISION(n);
 * JSON_ENCODE_ANY changes nothing. Returns 0, RP_ERR_INVALID (value is NULL, or a string is no UTF-8), RP_ERR_MEMORY or
 * RP_ERR_LIMIT; then a part may have been appended. */
int base_json_write(base_buffer *out, const json_t *value, size_t flags) BASE_NODISCARD;
/* The same as a text, which ends with NUL; freed with base_free. NULL: as above. */
char *base_json_text(const json_t *value, size_t flags) BASE_NODISCARD;
/* A JSON string of n bytes that may not be UTF-8: each byte of an invalid or cut character becomes U+FFFD. NULL: out of
   memory. */
json_t *base_json_string(const char *bytes, size_t n) BASE_NODISCARD;

#endif
