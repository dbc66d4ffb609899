/* SPDX-License-Identifier: Apache-2.0 */
/* json_read.h: an object or array of JSON from bytes, as json_loadb with JSON_REJECT_DUPLICATES reads it, many times faster where strings are long:
 * a prompt of 100,000 tokens is one. What is wrong, or rare, it leaves to jansson, which says why. */
#ifndef SERVER_JSON_READ_H
#define SERVER_JSON_READ_H

#include <jansson.h>
#include <stddef.h>

/* What json_loadb would return; NULL: not read, which says nothing about the text. */
json_t *server_json_read(const char *bytes, size_t n);

#endif
