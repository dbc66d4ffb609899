/* SPDX-License-Identifier: Apache-2.0 */
/* tool_grammar.h: the grammar of an answer that must or may call tools, or is JSON, in the model's convention
 * (tool_conventions.h).
 *
 *   root ::= [reasoning] OPEN calls | [reasoning] ANSWER          from the beginning; or, if the answer may be any
 *         text,
 *   root ::= calls                                                after the trigger OPEN
 *
 * Reasoning before them is free if the model has it, it is apart from the text, and the request does not switch it off.
 * Forms that begin with JSON itself have no trigger: an answer that may call is free. Strings that are written as text
 * (TOOL_BODY_TEXT) are any text without the argument's end, or one of an enum
 * (tool_heads_is_text); all other values are JSON. What of schemas of tools that are not strict is not enforced is
 * noted. Any thread.
 */
#ifndef STRUCTURED_TOOL_GRAMMAR_H
#define STRUCTURED_TOOL_GRAMMAR_H

#include "reprise.h"
#include "structured/answer_form.h"

#define TOOLS_MAX_CALLS 16 /* in an answer */

typedef struct tool_grammar {
    char *text;          /* GBNF; NULL: the answer may be any text */
    const char *trigger; /* the grammar applies after this text; NULL: from the beginning. Static */
    json_t *dropped;     /* an array of texts: what of schemas is not enforced, by place; NULL: nothing */
} tool_grammar;

/* err: not NULL; after an error it does nothing (structured_error.h). Returns err->code: RP_ERR_INVALID (a schema, the
 * regular expression, or the grammar is too large), RP_ERR_UNSUPPORTED (a keyword of a strict schema), RP_ERR_MEMORY.
 * On success: tool_grammar_free. */
int tool_grammar_make(const answer_form *answer, tool_grammar *out, rp_error *err);
void tool_grammar_free(tool_grammar *g);

#endif
