/* SPDX-License-Identifier: Apache-2.0 */
/* tool_finder.h: splits the text of an answer, while it is streamed, into text, reasoning and tool calls, by the
 * model's convention (tool_conventions.h).
 *
 *   TEXT --"<tool_call>"--> HEAD --{"name": "f", "arguments": and '{'--> ARGUMENTS --the '}' of it--> TAIL --}
 *   </tool_call>--> NEXT
 *    ^  |                     |                                             ^                           |
 *          |
 *    |  +--"<think>"--> REASONING --"</think>"--> TEXT                      +---- separator and head
 *          ---|-----------------------+
 *    +----- anything else, an unknown name, the end: the held-back text is text ----------------------+-- anything else
 *    is text
 *
 * Harmony's answers are messages with headers, each to the next mark: HEADER, then TEXT, REASONING or ARGUMENTS.
 * Arguments that are not JSON become JSON as they arrive: KEY and VALUE instead of ARGUMENTS (TOOL_BODY_TEXT), or
 * LITERALS (TOOL_BODY_LITERALS: tool_literals.h).
 *
 * Text that may begin a call or reasoning is held back until that is decided, with the white space before it. A call is
 * reported when its name is known, and its arguments as they arrive. White space around calls and reasoning belongs to
 * them. No other text is lost. The events do not depend on how the text is cut. One thread at a time.
 */
#ifndef STRUCTURED_TOOL_FINDER_H
#define STRUCTURED_TOOL_FINDER_H

#include <stdint.h>

#include "base/buffer.h"
#include "reprise.h"
#include "structured/answer_form.h"
#include "structured/tool_literals.h"

#define TOOL_CALLS_BYTES ((size_t)64 << 20) /* of an answer */
#define TOOL_CALLS_HEAD_BYTES 512           /* a longer head is text */
#define TOOL_CALLS_ITEMS 4096
#define TOOL_CALL_ID_BYTES 80

/* A part of an answer: text, reasoning, or a call. */
typedef struct tool_item {
    const tool_spec *tool; /* NULL: text or reasoning */
    bool is_reasoning;
    int32_t number;    /* index of the call in the answer, from 0 */
    base_buffer text;  /* text, or arguments as JSON */
    size_t begin, end; /* text: its range in the answer as the model wrote it */
    bool is_whole;     /* the arguments are complete */
} tool_item;

typedef enum tool_event { TOOL_TEXT,
                          TOOL_REASONING,
                          TOOL_BEGIN,
                          TOOL_ARGUMENTS,
                          TOOL_END } tool_event;

/* n new bytes of the item; 0 for TOOL_BEGIN and TOOL_END, once per call. A nonzero result ends tool_finder_feed. */
typedef int (*tool_on_event)(void *user, tool_event event, const tool_item *item, const char *bytes, size_t n);

/* What a finder does with reasoning. */
typedef enum tool_reasoning { TOOL_REASONING_ITEMS,
                              TOOL_REASONING_AS_TEXT /* with its marks */,
                              TOOL_REASONING_DROPPED } tool_reasoning;

/* A range of bytes of the answer as the model wrote it. */
typedef struct tool_range {
    size_t begin, end;
} tool_range;

/* A text that matters while text or reasoning is read. */
typedef struct tool_mark {
    const char *text;
    uint8_t n, kind;
    bool at_start;
} tool_mark;
#define TOOL_MAX_MARKS 16

typedef struct tool_finder {
    const answer_form *answer; /* borrowed: tools, convention, whether the prompt opened reasoning */
    tool_reasoning reasoning;
    tool_item *items;
    size_t n_items, cap_items;
    int32_t n_calls;
    tool_range *reasoned; /* reasoning with its marks, in the order of the answer */
    size_t n_reasoned, cap_reasoned;

    /* inside */
    tool_mark marks[TOOL_MAX_MARKS];
    size_t n_marks;
    base_buffer held;
    size_t n_read; /* bytes of the answer before `held` */
    int state;
    const tool_form *form; /* of the current calls */
    const char *mark;      /* HEAD: what they began with */
    bool skips_space;      /* white space at the beginning of `held` belongs to what was before it */
    bool has_text;         /* a text was reported */
    int32_t depth;         /* of open brackets in arguments */
    bool in_string, escaped;
    bool skips_line;    /* VALUE: a line end at its beginning belongs to its mark */
    bool is_text_value; /* VALUE: a string, written as it comes; else JSON, when it is whole */
    uint8_t scan;       /* VALUE, no string: what its first n_scanned bytes are (value_end) ... */
    size_t n_scanned;
    uint64_t brackets[TOOL_VALUE_DEPTH / 64]; /* ... and the brackets that are open in them */
    int32_t n_values;
    tool_literals literals;
    tool_on_event on_event;
    void *user;
} tool_finder;

/* May a chat's answer in this form have other parts than text? Otherwise it is what the model writes, and needs no
   finder. */
bool tool_finder_is_needed(const answer_form *answer);
/* on_event may be NULL. */
void tool_finder_init(tool_finder *f, const answer_form *answer, tool_reasoning reasoning, tool_on_event on_event,
                      void *user);
void tool_finder_free(tool_finder *f);
/* Returns 0, the nonzero result of on_event, or RP_ERR_MEMORY. */
int tool_finder_feed(tool_finder *f, const char *text, size_t n) BASE_NODISCARD;
/* Does what was fed end within reasoning or a call, or before the end of all calls? To be asked before
   tool_finder_finish. */
bool tool_finder_is_open(const tool_finder *f);
/* Ends the answer: reports held-back text. */
int tool_finder_finish(tool_finder *f) BASE_NODISCARD;

/* Is a stop string, which ends `after` bytes before the end of what was fed, a part of the answer's text? Neither
 * reasoning and calls nor the white space and marks around them are. Undecided: what was fed may begin one of those. */
rp_stop_verdict tool_finder_stop(const tool_finder *f, const char *stop, size_t after);

/* The texts of an answer, or its reasoning; owned by the caller (base_buffer_free). */
int tool_finder_text(const tool_finder *f, bool reasoning, base_buffer *out) BASE_NODISCARD;
/* The arguments of a complete call as a value, with numbers as they were written; the caller's. NULL: it is incomplete,
   or out of memory. */
json_t *tool_item_arguments(const tool_item *item);
/* The original text of an incomplete call. NULL: out of memory. */
json_t *tool_item_source(const tool_item *item);
/* A unique id of a call: "call_9f...e1_0_2". */
void tool_call_id(char out[TOOL_CALL_ID_BYTES], const char *prefix, const char *request, int32_t choice,
                  int32_t number);

#endif
