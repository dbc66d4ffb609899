/* SPDX-License-Identifier: Apache-2.0 */
/* llama_options.h: options of llama.cpp's programs that a command of ours does not have, and what they are called here. */
#ifndef CLI_LLAMA_OPTIONS_H
#define CLI_LLAMA_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

struct cli_command;

/* Is this, n bytes with its dashes and without a value, an option of llama.cpp? */
bool cli_llama_option_is(const char *arg, size_t n);

/* If so, prints one line on standard error, which names ours or says what to do without it, and returns CLI_WRONG_USE; else CLI_OK. */
int cli_llama_option_refuse(const struct cli_command *command, const char *arg, size_t n);

#endif
