/* SPDX-License-Identifier: Apache-2.0 */
/* chat_commands.h: the /commands of `reprise chat`. */
#ifndef CLI_CHAT_COMMANDS_H
#define CLI_CHAT_COMMANDS_H

#include "chat/chat_session.h"

/* Rows of the numbers that /set changes, in the order of its list; they are options of the command line, too. */
/* clang-format off */
#define CHAT_SETTING_ROWS(type, field) \
    {.name = "max-tokens", .letter = 'n', .kind = CLI_INT, .value = "N", .offset = offsetof(type, field.max_tokens), \
     .min = 1, .max = INT32_MAX, \
     .help = "maximum number of tokens of an answer (1024)"}, \
        CLI_SAMPLING_ROWS(type, field.sampling)

/* True for a single line that begins with one slash. */
bool chat_is_command(const char *text);

/* Executes a command; what it prints is on standard error, answers on standard output. *quit: set by /quit. Returns an
 * exit status; the error is printed. */
int chat_command_run(chat_session *s, const char *line, bool *quit);

#endif
