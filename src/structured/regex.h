/* SPDX-License-Identifier: Apache-2.0 */
/* regex.h: regular expressions as expressions of a grammar: a strict subset of ECMA-262's syntax, which is also
 * Python's and Rust's.
 *
 *   pattern --regex_parse--> tree --regex_put--> GBNF        tree --regex_matches--> does a text match?
 *
 *   a . [a-z] [^a-z] \d \D \w \W \s \S       characters; . is any but a line end; \d, \w are ASCII; \s is ASCII, \S has
 *         no white space of Unicode
 *   \n \r \t \f \v \0 \xHH \uHHHH \u{H} \.   escapes; \cX, \b, \p{...} and back-references are refused
 *   ab a|b (a) (?:a) (?<name>a) (?P<name>a)  sequence, alternatives, groups; look-around and flags are refused
 *   * + ? {m} {m,} {m,n}                     also lazy (a trailing ?), which is the same language; possessive is
 *         refused
 *   ^ $                                      at the beginning and at the end of the pattern or of one of its
 *         alternatives
 *
 * NUL and surrogates are no characters. A tree is immutable; any thread.
 */
#ifndef STRUCTURED_REGEX_H
#define STRUCTURED_REGEX_H

#include <stdbool.h>

#include "base/buffer.h"

#define REGEX_MAX_BYTES 8192 /* of a pattern */
#define REGEX_MAX_NODES 8192
#define REGEX_MAX_RANGES 16384
#define REGEX_MAX_DEPTH 64 /* of groups */
#define REGEX_MAX_REPEAT 2000
#define REGEX_MAX_TEXT 1024 /* characters of a text for regex_matches */
#define REGEX_WHY_BYTES 160
#define REGEX_UNBOUNDED (-1)

typedef struct regex regex;

/* Where the text is. */
typedef enum regex_place {
    REGEX_WHOLE, /* all of it matches, as in vLLM's guided_regex: anchors add nothing */
    REGEX_JSON,  /* the content of a JSON string, as json.dumps writes it, contains a match, as in JSON Schema. Needs
                    rule `char` of json_grammar.c */
} regex_place;

/* NULL: why says what is wrong, with the character's number ("character 5: look-ahead is not supported"), or is empty:
   out of memory. */
regex *regex_parse(const char *pattern, char why[REGEX_WHY_BYTES]);
void regex_free(regex *r);
/* Appends an expression in parentheses. Returns 0 or an error of the buffer. */
int regex_put(const regex *r, regex_place place, base_buffer *out) BASE_NODISCARD;
/* Does the text contain a match? A text of more than REGEX_MAX_TEXT characters, or without memory to decide: no. */
bool regex_matches(const regex *r, const char *text);
/* Makes it match only texts of min to max characters (max: REGEX_UNBOUNDED), if that is easy: it does already, or it is
 * one repeated set between anchors, as ^[a-z]+$. Returns whether it does now. */
bool regex_limit(regex *r, int min, int max);
/* Could one text contain matches of both? No only if each is anchored at its beginning, and the first characters
   differ. */
bool regex_may_overlap(const regex *a, const regex *b);
/* Characters of the shortest and the longest text that contains a match. most: REGEX_UNBOUNDED if there is none. */
void regex_lengths(const regex *r, int *least, int *most);

#endif
