/* SPDX-License-Identifier: Apache-2.0 */
/* run_inputs.h: the prompts of `reprise run`: text of the command line, of files and of standard input, and PML
   documents. */
#ifndef CLI_RUN_INPUTS_H
#define CLI_RUN_INPUTS_H

#include "common/options.h"
#include "reprise_chat.h"
#include "run_form.h"

/* The values of the options that give prompts. */
typedef struct run_prompts {
    const char *text; /* the argument; "-": standard input. NULL: none */
    const char *system;
    cli_list prompts, files, documents; /* --prompt, --file, --pml */
    bool raw;                           /* --raw */
} run_prompts;

/* clang-format off */
#define RUN_PROMPTS_ROWS(type, field) \
    {.name = "text", .kind = CLI_TEXT, .value = "TEXT", .offset = offsetof(type, field.text), .positional = true, \
     .help = "prompt, as with --prompt; '-', or no prompt at all: standard input"}, \
    {.name = "prompt", .letter = 'p', .kind = CLI_LIST, .value = "TEXT", .offset = offsetof(type, field.prompts), \
     .help = "prompt text; may be repeated: prompts run in order and share the KV cache"}, \
    {.name = "file", .letter = 'f', .kind = CLI_LIST, .value = "FILE", .offset = offsetof(type, field.files), \
     .help = "file of a prompt's text, without its last line end; '-': standard input; may be repeated"}, \
    {.name = "pml", .kind = CLI_LIST, .value = "FILE", .offset = offsetof(type, field.documents), \
     .help = "prompt file (PML) over modules of the schema, '-' for standard input; may be repeated"}, \
    {.name = "system", .kind = CLI_TEXT, .value = "STRING", .offset = offsetof(type, field.system), \
     .help = "system prompt before the text, in the model's chat template (none)"}, \
    {.name = "raw", .kind = CLI_FLAG, .offset = offsetof(type, field.raw), \
     .help = "continue the text itself, '' being the beginning-of-text token alone; without it, a model with a chat " \
             "template answers " \
             "the text as a user's message"}
/* clang-format on */

/* One prompt: a PML document, or text. */
typedef struct run_input {
    const char *name; /* a file name, "stdin", or "text" */
    const char *text; /* NULL for a document */
    char *document;   /* owned; NULL for text */
    char *bytes;      /* owned: where `text` is from a file; or NULL */
    rp_message messages[2];
    int32_t n_messages;
    rp_template_text *rendered; /* owned: the messages in the model's own template; NULL: it has none, or the prompt is
                                   a chat */
    rp_chat *chat;              /* owned: the text as a turn whose answer has a form; NULL: it has none */
} run_input;

typedef struct run_inputs {
    run_input *items;
    size_t n;
} run_inputs;

/* Checks what the table cannot. Returns an exit status. */
int run_prompts_check(const run_prompts *p);
/* Reads the prompts. Returns an exit status; without any prompt it is CLI_WRONG_USE. Warns of a text that names a
   file. */
int run_inputs_read(run_inputs *in, const run_prompts *p);
/* Puts texts into the model's chat template, with the form of their answers, unless --raw is given or it has none.
 * chat_format: of --chat-format; NULL: not given. */
int run_inputs_render(run_inputs *in, const run_prompts *p, const run_form *form, const rp_model *model,
                      const char *chat_format);
/* Sets the prompt of a request; not of a chat, which has its own. */
void run_input_apply(const run_input *in, rp_request *r);
void run_inputs_free(run_inputs *in);

#endif
