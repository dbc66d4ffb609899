/* SPDX-License-Identifier: Apache-2.0 */
/* answer_form.h: the form of an answer: tools that it may call, a JSON Schema, a regular expression or choices, and how
 * the model writes it.
 *
 *   answer_form --tool_grammar.h--> a grammar for the engine          before the answer
 *   answer_form --tool_finder.h---> text, reasoning and calls         while it is streamed
 *
 * A value: its creator owns what it points to. Several threads may read one that is not modified.
 */
#ifndef STRUCTURED_ANSWER_FORM_H
#define STRUCTURED_ANSWER_FORM_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "structured/tool_conventions.h"

/* Whether the answer may, or must, call tools. */
typedef enum tool_choice {
    TOOL_CHOICE_AUTO,
    TOOL_CHOICE_NONE,
    TOOL_CHOICE_REQUIRED,
} tool_choice;

/* A function that the model may call. */
typedef struct tool_spec {
    const char *name, *description; /* description: NULL if none */
    const json_t *schema;           /* of its arguments; NULL: none */
    const char *place;              /* of the schema, for errors */
    bool strict;                    /* an unsupported keyword of its schema is an error */
    bool barred;                    /* excluded by the tool choice */
    const char *group,
        *own_name;    /* the owner's, not read here: of a tool in a namespace, the namespace, and the name in it; else
                         NULL */
    bool is_freeform; /* likewise: its input is a text */
} tool_spec;

/* Whether the model is to reason, as far as the request says. */
typedef enum thinking_choice {
    THINKING_UNSET,
    THINKING_OFF,
    THINKING_ON,
} thinking_choice;

typedef struct answer_form {
    tool_spec *tools; /* [n_tools] */
    size_t n_tools;
    tool_choice tool_choice;
    bool one_call;          /* at most */
    bool loose_tools;       /* the schemas of tools that are not strict are left out: their grammar was too large for
                               the engine */
    bool wants_json;        /* the answer is a JSON object, or matches `schema` */
    const json_t *schema;   /* NULL: none */
    const char *place;      /* of `schema` or `regex`, for errors */
    const char *regex;      /* the answer is a text that matches it; NULL: none */
    const json_t *choices;  /* the answer is one of these strings, an array; NULL: none */
    const char *whitespace; /* a regular expression of the white space after ':' and ',' of JSON; NULL: at most one
                               space */

    tool_convention convention; /* of the model */
    bool reasoning_open;        /* the prompt ends within reasoning: the answer continues it */
    bool splits_reasoning;      /* reasoning is apart from the text; otherwise it is text */
    thinking_choice thinking;
} answer_form;

static inline bool answer_form_may_call(const answer_form *form) {
    return form->n_tools > 0 && form->tool_choice != TOOL_CHOICE_NONE;
}
/* Is the answer a text that matches a regular expression, or one of several? */
static inline bool answer_form_is_text(const answer_form *form) { return form->regex || form->choices; }

#endif
