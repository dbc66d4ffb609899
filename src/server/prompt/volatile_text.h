/* SPDX-License-Identifier: Apache-2.0 */
/* volatile_text.h: pieces of text that differ in each request without meaning to: dates and times, ids, headers that
 * programs prepend, counters. All text after such a piece misses the prefix cache. Owns nothing; any thread. */
#ifndef SERVER_VOLATILE_TEXT_H
#define SERVER_VOLATILE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* X(NAME, word) */
#define VOLATILE_KINDS(X) \
    X(DATE, "date")           /* 2026-11-22, with or without a time; 22/11/2026; November 22, 2026; 22 Nov 2026 */ \
    X(TIME, "time")           /* 10:04:59 */ \
    X(TIMESTAMP, "timestamp") /* seconds or milliseconds since 1970 */ \
    X(UUID, "uuid") \
    X(HEX, "hex")         /* 16 hexadecimal digits or more */ \
    X(HEADER, "header")   /* a line like "x-request-id: ..." */ \
    X(COUNTER, "counter") /* "Request #17", "turn: 3" */

typedef enum volatile_kind {
#define X(name, word) VOLATILE_##name,
    VOLATILE_KINDS(X)
#undef X
} volatile_kind;

typedef struct volatile_piece {
    volatile_kind kind;
    size_t begin, end;
} volatile_piece;

const char *volatile_word(volatile_kind kind);

/* The first piece of a text of n bytes that begins at `from` or later. */
bool volatile_find(const char *text, size_t n, size_t from, volatile_piece *out);

#endif
