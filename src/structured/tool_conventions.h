/* SPDX-License-Identifier: Apache-2.0 */
/* tool_conventions.h: how the families of models write tool calls and reasoning (docs/tools.md has an example of each).
 *
 * A form is one way to write calls, as texts around name and arguments. ' ' and '\n' in a text are optional white
 * space, but for a ' ' before a letter in a grammar:
 *
 *   open [list] begin before_name NAME after_name ARGUMENTS after_arguments end  (next begin ... end)*  [close]
 *
 *   <tool_call>     \n{"name": "f", "arguments":  {...}  }                  \n</tool_call>              TOOL_BODY_JSON
 *   <|tool_call>     call:f           {            a:1,b:[2]      }          <tool_call|>            TOOL_BODY_LITERALS
 *   [TOOL_CALLS] [  {"name": "f", "arguments":    {...}  }  ,  {...}  ]                                 TOOL_BODY_JSON,
 *         a list
 *   <function=       f               >            {...}                     </function>                 TOOL_BODY_NAMED
 *
 * tool_finder.h reads all forms of a convention; tool_grammar.h enforces the first one. Static tables; any thread.
 */
#ifndef STRUCTURED_TOOL_CONVENTIONS_H
#define STRUCTURED_TOOL_CONVENTIONS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum tool_body {
    TOOL_BODY_JSON,     /* an object: a member with the name, then one with the arguments; others are skipped */
    TOOL_BODY_NAMED,    /* the name as text, then the arguments as an object */
    TOOL_BODY_TEXT,     /* the name as text, then key_open k key_close v value_end for each argument */
    TOOL_BODY_LITERALS, /* the name as text, then k key_close v, with commas between, in brackets: values are literals
                             of a notation of their own */
} tool_body;

/* How values are written as literals. Strings in a quote that is one character have escapes, as in Python; others have
 * none. Names in objects are strings, or bare. */
typedef struct tool_notation {
    const char *quotes[2]; /* the first one is written, either is read; NULL: there is one */
    char close;            /* of the arguments */
    bool has_escapes, bare_keys;
    const char *names[3]; /* true, false, null, as they are written */
} tool_notation;

typedef struct tool_form {
    const char *open;
    bool at_start; /* only at the beginning of the answer's text, which the form's `open` belongs to ("{") */
    bool is_list;  /* calls are elements of a JSON array, which begins after `open` (at_start: with it) */
    tool_body body;
    const char *begin;
    const char *name_key, *arguments_key;                   /* JSON: as the grammar writes them; either of two is
                                                               read */
    const char *id_key;                                     /* JSON: a member before the name that the grammar writes;
                                                               NULL: none */
    const char *before_name, *after_name, *after_arguments; /* NAMED; after_name: TEXT and LITERALS, too */
    const char *id_mark;                                    /* NAMED: what may follow the name before after_name: this
                                                               and an id; NULL: nothing */
    bool writes_id;                                         /* ... the grammar writes it, a number */
    const char *key_open, *key_close, *value_end;           /* TEXT; key_close: LITERALS, too */
    const char *key_close_json;                             /* TEXT: instead of key_close, if the value is JSON; NULL:
                                                               the schema says which are */
    bool has_lines;                                         /* TEXT: line ends around a value belong to its marks */
    const tool_notation *notation;                          /* LITERALS */
    const char *end;
    const char *next; /* NULL: each call has its `open` */
    const char *close;
} tool_form;

#define TOOL_MAX_FORMS 10

/* Texts around reasoning. */
typedef struct reasoning_marks {
    const char *open, *close;
    bool at_start; /* `open` counts only at the beginning of an answer: elsewhere it is text */
} reasoning_marks;

typedef struct tool_family {
    const char *name;
    const tool_form *forms[TOOL_MAX_FORMS]; /* NULL at the end */
    const char *dropped[4];                 /* texts that are no part of the answer; NULL at the end */
    const char *answer_open, *answer_close; /* around an answer without calls, in a grammar; "": none */
    bool has_channels;                      /* harmony: messages with headers (tool_channels.h); forms has only what the
                                               grammar needs */
} tool_family;

typedef struct tool_convention {
    const tool_family *family;        /* NULL, in a zeroed one: Hermes */
    const reasoning_marks *reasoning; /* NULL: the model has none */
} tool_convention;

/* The convention of a model by its chat template (n bytes; NULL: none), or without one by its chat format
 * (chat_format.h). Hermes, if neither is known. */
tool_convention tool_convention_detect(const char *chat_template, size_t n, const char *chat_format);
/* Never NULL. */
const tool_family *tool_convention_family(const tool_convention *c);
/* By name; NULL: unknown. tool_family_at: the i-th family, NULL past the end. */
const tool_family *tool_family_find(const char *name);
const tool_family *tool_family_at(size_t i);

/* The i-th text that the model may write as a control token, NULL past the end: texts of the convention's calls and
   reasoning. */
const char *tool_convention_mark(const tool_convention *c, size_t i);
/* Does a text (the end of a prompt that the template wrote, or an answer to continue) end within reasoning? */
bool tool_convention_opens_reasoning(const tool_convention *c, const char *text, size_t n);

#endif
