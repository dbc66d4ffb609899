/* SPDX-License-Identifier: Apache-2.0 */
/* json_text.h: bytes that may not be UTF-8 as JSON strings. */
#ifndef SERVER_JSON_TEXT_H
#define SERVER_JSON_TEXT_H

#include <jansson.h>
#include <stddef.h>

/* Bytes of the UTF-8 character at s, 0 if there is none. Overlong forms, surrogates and what is above U+10FFFF are none. */
size_t server_character(const unsigned char *s, size_t n);
/* A JSON string of n bytes that may be cut characters: what is not UTF-8 becomes U+FFFD. NULL: no memory. */
json_t *server_json_text(const char *bytes, size_t n);

#endif
