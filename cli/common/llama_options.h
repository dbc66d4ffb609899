/* SPDX-License-Identifier: Apache-2.0 */
/* llama_options.h: options of llama.cpp's programs, and of vLLM's server, that a command does not have, and their
   equivalents here. */
#ifndef CLI_LLAMA_OPTIONS_H
#define CLI_LLAMA_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

struct cli_command;

/* True if this, n bytes with its dashes and without a value, is such an option. */
bool cli_llama_option_is(const char *arg, size_t n);

/* If so, prints one line on standard error, with the equivalent option or advice, and returns CLI_WRONG_USE; else
 * CLI_OK. */
int cli_llama_option_refuse(const struct cli_command *command, const char *arg, size_t n);

#endif
