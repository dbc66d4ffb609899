/* SPDX-License-Identifier: Apache-2.0 */
/* text.h: UTF-8, and names that people have typed.
 *
 * Owns nothing; every function depends on its arguments only.
 */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* ---- UTF-8 (RFC 3629) ---- */

/* Length of the character at s (n >= 1 bytes): 1 to 4; 0: its end is missing; -1: no UTF-8. */
int base_utf8_length(const unsigned char *s, size_t n);
/* The code point of a character of that length. */
uint32_t base_utf8_decode(const unsigned char *s, int length);
/* Writes a code point up to U+10FFFF; returns its length. */
int base_utf8_encode(uint32_t c, unsigned char out[4]);

/* ---- Names ---- */

/* The candidate nearest to a name. Start with {.name = name}; `best` stays NULL while nothing is near. */
typedef struct base_guess {
    const char *name, *best;
    int distance;
} base_guess;
void base_guess_offer(base_guess *g, const char *candidate);

/* For "%.*s" in messages: the bytes of s to show, so that the advice after a long name is still shown. */
int base_shown(const char *s);

#endif
