/* SPDX-License-Identifier: Apache-2.0 */
/* answer_meaning.h: what an answer says, however it is written, as a digest: its text, its reasoning, and its calls, by
 * name and arguments.
 *
 *   <tool_call>\n{"name": "f", "arguments": {"a": 1, "b": 2}}\n</tool_call>  --+
 *                                                                             +--> the same meaning
 *   \n<tool_call>{"arguments": {"b":2.0,"a":1}, "name":"f"}</tool_call>      --+
 *
 * The model's answer and what a chat template makes of the message that a client returns are read by the same
 * convention (tool_finder.h): neither dialects nor templates matter. Arguments are compared as JSON values, white space
 * around texts and ids of calls not at all. Any thread.
 */
#ifndef STRUCTURED_ANSWER_MEANING_H
#define STRUCTURED_ANSWER_MEANING_H

#include "reprise.h"
#include "structured/answer_form.h"

/* The meaning of an answer of n bytes after `opening`, the generation prompt. false: it ends within reasoning or a
   call, or out of memory. */
bool answer_meaning(const answer_form *answer, const char *opening, const char *text, size_t n,
                    uint8_t meaning[RP_MEANING_BYTES]);

#endif
