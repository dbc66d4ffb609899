/* SPDX-License-Identifier: Apache-2.0 */
/* json_text.h: JSON strings: from bytes that may not be UTF-8, of times. */
#ifndef SERVER_JSON_TEXT_H
#define SERVER_JSON_TEXT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the UTF-8 character at s; 0: invalid. Overlong forms, surrogates and code points above U+10FFFF are
 * invalid. */
size_t server_character(const unsigned char *s, size_t n);
/* A JSON string of n bytes; invalid and cut characters become U+FFFD. NULL: out of memory. */
json_t *server_json_text(const char *bytes, size_t n);
/* "2026-11-28T10:00:00Z", of seconds since 1970; "" for a time that has no such form. NULL: out of memory. */
json_t *server_json_time(int64_t seconds);

#endif
