/* SPDX-License-Identifier: Apache-2.0 */
/* run_form.h: forms of answers of `reprise run`: JSON by a JSON Schema, tool calls, reasoning. Files are read and
 * checked before a model is opened. */
#ifndef CLI_RUN_FORM_H
#define CLI_RUN_FORM_H

#include <jansson.h>

#include "common/options.h"
#include "reprise_chat.h"

/* The values of the options. */
typedef struct run_form_args {
    const char *json_schema, *tools, *tool_choice;
    int32_t thinking; /* an rp_thinking */
} run_form_args;

extern const char *const run_thinking_names[]; /* in the order of rp_thinking; NULL at the end */

/* clang-format off */
#define RUN_JSON_SCHEMA_ROW(type, field) \
    {.name = "json-schema", .kind = CLI_TEXT, .value = "FILE|TEXT", .offset = offsetof(type, field), \
     .help = "constrain answers to JSON that matches this JSON Schema, a file or its text ('{}': any JSON)"}
#define RUN_TOOLS_ROWS(type, field) \
    {.name = "tools", .kind = CLI_TEXT, .value = "FILE", .offset = offsetof(type, field.tools), \
     .help = "functions that the model may call, as JSON in OpenAI's form; each call is printed as one line of JSON"}, \
    {.name = "tool-choice", .kind = CLI_TEXT, .value = "WORD", .offset = offsetof(type, field.tool_choice), \
     .help = "with --tools: auto, required (at least one call), none, or the name of the one tool to call (auto)"}, \
    {.name = "thinking", .kind = CLI_CHOICE, .value = "auto|off|on", .offset = offsetof(type, field.thinking), \
     .choices = run_thinking_names, \
     .help = "reasoning of models that can be told (enable_thinking of the chat template): off, on, or as the " \
             "template has it (auto)"}
/* clang-format on */

typedef struct run_form {
    char *schema;            /* owned: the JSON Schema; NULL: none */
    const char *schema_name; /* its file, or the option */
    char *grammar;           /* owned: GBNF of the schema, for prompts that are no conversation */
    const char *tools_name;  /* the file; NULL: no tools */
    json_t *definitions;     /* owned: what the tools' texts are in */
    rp_tool *tools;          /* owned, and so are their parameters */
    size_t n_tools;
    rp_tool_choice choice;
    const char *tool_name; /* NULL: any */
    rp_thinking thinking;
    const char *of_chats; /* run_form_of_chats */
} run_form;

/* The functions below print their error line and return an exit status. */

/* Reads a JSON Schema from a file or, if the value is JSON itself, from the value. *schema: freed by free(), *grammar:
   by rp_free(). */
int run_schema_read(const char *value, char **schema, char **grammar);
int run_form_read(run_form *f, const run_form_args *args);
static inline bool run_form_is_given(const run_form *f) {
    return f->schema != NULL || f->tools_name != NULL || f->thinking != RP_THINKING_DEFAULT;
}
/* The option that needs the model's chat template; NULL: none does. */
const char *run_form_of_chats(const run_form_args *args);
/* A turn of the conversation that ends with the user's text; system: NULL if there is none. Prints warnings of the
   schemas, if `warns`. */
int run_form_chat(const run_form *f, const rp_model *model, const char *system, const char *text, bool warns,
                  rp_chat **out);
/* A call as one JSON object: {"id", "name", "arguments"}; arguments that are no JSON are a string. */
json_t *run_call_json(const rp_tool_call *call);
void run_form_free(run_form *f);

#endif
