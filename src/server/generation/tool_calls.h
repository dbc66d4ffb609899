/* SPDX-License-Identifier: Apache-2.0 */
/* tool_calls.h: calls of tools in an answer's text, as it comes.
 *
 *   TEXT --"<tool_call>"--> HEAD --{"name": "f", "arguments": and '{'--> ARGUMENTS --the '}' of it--> TAIL --} </tool_call>--> TEXT
 *                             |                                                                        |
 *                             +-- anything else, another name, the end: what was held back is text     +-- anything else is text
 *
 * What may be a call's beginning is held back until that is decided, white space before it too. A call is told when its name is known;
 * its arguments are told as they come. White space around calls belongs to them. Nothing else is lost. One thread at a time.
 */
#ifndef SERVER_TOOL_CALLS_H
#define SERVER_TOOL_CALLS_H

#include "base/buffer.h"
#include "server/generation/generation.h"

#define TOOL_CALLS_BYTES ((size_t)64 << 20) /* of an answer */
#define TOOL_CALLS_HEAD_BYTES 512           /* a longer head is no call's */
#define TOOL_CALLS_ITEMS 4096
#define TOOL_CALL_ID_BYTES 80

/* A part of an answer: text, or a call. */
typedef struct tool_item {
    const server_tool *tool; /* NULL: text */
    int32_t number;          /* of this call among the answer's, from 0 */
    base_buffer text;        /* or arguments */
    bool is_whole;           /* the arguments are */
} tool_item;

typedef enum tool_event { TOOL_TEXT, TOOL_BEGIN, TOOL_ARGUMENTS, TOOL_END } tool_event;

/* n bytes that the item has got; 0 of TOOL_BEGIN and TOOL_END, which come once for each call. Nonzero ends the feeding. */
typedef int (*tool_on_event)(void *user, tool_event event, const tool_item *item, const char *bytes, size_t n);

typedef struct tool_finder {
    const generation *gen; /* borrowed */
    tool_item *items;
    size_t n_items, cap_items;
    int32_t n_calls;

    /* inside */
    base_buffer held;
    int state;
    int32_t depth; /* of open brackets in arguments */
    bool in_string, escaped;
    tool_on_event on_event;
    void *user;
} tool_finder;

/* on_event may be NULL. */
void tool_finder_init(tool_finder *f, const generation *gen, tool_on_event on_event, void *user);
void tool_finder_free(tool_finder *f);
/* Reads on. Returns 0, what on_event returned, or an error of memory. */
int tool_finder_feed(tool_finder *f, const char *text, size_t n) BASE_NODISCARD;
/* The answer is over: tells what was held back. */
int tool_finder_finish(tool_finder *f) BASE_NODISCARD;

/* The text of an answer without its calls; the caller's (base_buffer_free). */
int tool_finder_text(const tool_finder *f, base_buffer *out) BASE_NODISCARD;
/* A call that was cut, as the text that it was. NULL: no memory. */
json_t *tool_item_source(const tool_item *item);
/* An id that no other call of any answer has: "call_9f...e1_0_2". */
void tool_call_id(char out[TOOL_CALL_ID_BYTES], const char *prefix, const char *request, int32_t choice, int32_t number);

#endif
