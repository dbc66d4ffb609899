/* SPDX-License-Identifier: Apache-2.0 */
/* tool_calls.h: finds tool calls in the text of an answer while it is streamed.
 *
 *   TEXT --"<tool_call>"--> HEAD --{"name": "f", "arguments": and '{'--> ARGUMENTS --the '}' of it--> TAIL --} </tool_call>--> TEXT
 *                             |                                                                        |
 *                             +-- anything else, unknown name, the end: the held-back text is text     +-- anything else is text
 *
 * Text that may begin a call is held back until that is decided, with the white space before it. A call is reported when its name is known,
 * and its arguments as they arrive. White space around calls belongs to them. No other text is lost. One thread at a time.
 */
#ifndef SERVER_TOOL_CALLS_H
#define SERVER_TOOL_CALLS_H

#include "base/buffer.h"
#include "server/generation/generation.h"

#define TOOL_CALLS_BYTES ((size_t)64 << 20) /* of an answer */
#define TOOL_CALLS_HEAD_BYTES 512           /* a longer head is text */
#define TOOL_CALLS_ITEMS 4096
#define TOOL_CALL_ID_BYTES 80

/* A part of an answer: text, or a call. */
typedef struct tool_item {
    const server_tool *tool; /* NULL: text */
    int32_t number;          /* index of the call in the answer, from 0 */
    base_buffer text;        /* text, or arguments */
    bool is_whole;           /* the arguments are complete */
} tool_item;

typedef enum tool_event { TOOL_TEXT, TOOL_BEGIN, TOOL_ARGUMENTS, TOOL_END } tool_event;

/* n new bytes of the item; 0 for TOOL_BEGIN and TOOL_END, once per call. A nonzero result ends tool_finder_feed. */
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
/* Returns 0, the nonzero result of on_event, or RP_ERR_MEMORY. */
int tool_finder_feed(tool_finder *f, const char *text, size_t n) BASE_NODISCARD;
/* Ends the answer: reports held-back text. */
int tool_finder_finish(tool_finder *f) BASE_NODISCARD;

/* The text of an answer without its calls; owned by the caller (base_buffer_free). */
int tool_finder_text(const tool_finder *f, base_buffer *out) BASE_NODISCARD;
/* The original text of an incomplete call. NULL: out of memory. */
json_t *tool_item_source(const tool_item *item);
/* A unique id of a call: "call_9f...e1_0_2". */
void tool_call_id(char out[TOOL_CALL_ID_BYTES], const char *prefix, const char *request, int32_t choice, int32_t number);

#endif
