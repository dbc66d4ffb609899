/* SPDX-License-Identifier: Apache-2.0 */
/* tool_literals.h: arguments that a model writes as literals of a notation (TOOL_BODY_LITERALS), as JSON, as they come.
 *
 *   city:<|"|>Rome<|"|>,days:3}          Gemma 4: {"city": "Rome", "days": 3}
 *   city='Rome', flag=True)              Python, LFM2: {"city": "Rome", "flag": true}
 *
 * A word that is no literal is a string. A quote in Python ends its string only before what may follow a string: the
 * template of LFM2 writes texts as they are, between apostrophes. Pure functions, any thread.
 */
#ifndef STRUCTURED_TOOL_LITERALS_H
#define STRUCTURED_TOOL_LITERALS_H

#include <stdint.h>

#include "base/buffer.h"
#include "structured/tool_conventions.h"

#define TOOL_VALUE_DEPTH 1024                /* of brackets in arguments; a deeper JSON value ends where a text does */
#define TOOL_LITERALS_WORD_BYTES 512         /* of a name or a literal without quotes, with the spaces around it */
#define TOOL_LITERALS_NAME_ENDS "=,{}[]()\n" /* no name of an argument in Python has one of these */

typedef enum tool_literals_verdict { TOOL_LITERALS_GO_ON,
                                     TOOL_LITERALS_WHOLE,
                                     TOOL_LITERALS_BROKEN } tool_literals_verdict;

typedef struct tool_literals {
    const tool_form *form;
    int state;
    const char *quote; /* of the string that is read */
    bool is_key;       /* it is a name */
    int32_t depth;
    uint64_t brackets[TOOL_VALUE_DEPTH / 64]; /* open ones: whether each is an object's */
} tool_literals;

/* From the arguments' first byte on, after the bracket that opens them. */
void tool_literals_begin(tool_literals *l, const tool_form *form);
/* Reads as much of n bytes as is decided: *used. Appends it as JSON, with the bracket that closes all arguments.
   Returns 0 or an error of the buffer. */
int tool_literals_read(tool_literals *l, const char *text, size_t n, size_t *used, base_buffer *out,
                       tool_literals_verdict *verdict) BASE_NODISCARD;

/* Appends text as the content of a JSON string. Returns 0 or an error of the buffer. */
int tool_literals_escape(base_buffer *out, const char *text, size_t n) BASE_NODISCARD;

/* A stack of brackets in bits: false: it is full; or another one, or none, is on top. */
bool tool_brackets_push(uint64_t *brackets, int32_t *depth, bool is_object);
bool tool_brackets_pop(const uint64_t *brackets, int32_t *depth, bool is_object);

#endif
