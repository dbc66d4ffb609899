/* SPDX-License-Identifier: Apache-2.0 */
/* input.h: texts that commands take from arguments, files and standard input. */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include "common/options.h"

/* Advice for an argument too many: most are words of a prompt without quotes. */
#define CLI_QUOTE_ADVICE "put a prompt of several words in quotes, and give each of several prompts with -p"

/* A path for reports and errors: "stdin" for "-". */
const char *cli_input_name(const char *path);

/* cli_read of a text without zero bytes. what: "a grammar is GBNF", for the error. Returns an exit status. */
int cli_read_utf8(const char *path, const char *what, char **out);

/* Removes one line end at the end of a text; returns the text. */
char *cli_cut_line_end(char *text);

/* Warns if a prompt's text, given with `option` ("-p " or ""), is the name of a file, or "-": users of other programs
   mean its content. */
void cli_warn_of_file(const char *option, const char *text);

#endif
