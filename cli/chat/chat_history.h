/* SPDX-License-Identifier: Apache-2.0 */
/* chat_history.h: messages of earlier sessions, in a file that only its owner can read.
 *
 * The file has one JSON string per line, oldest first. A message is appended as it is sent, in one write, so that
 * sessions at the same time share the file and none loses the messages of another.
 */
#ifndef CLI_CHAT_HISTORY_H
#define CLI_CHAT_HISTORY_H

#include <stdbool.h>

#define CHAT_HISTORY_LINES 1000      /* messages that are kept */
#define CHAT_HISTORY_MAX_BYTES 65536 /* a longer message is not remembered */

typedef struct chat_history chat_history;

/* path: the file; NULL: $XDG_STATE_HOME/reprise/chat_history, or in ~/.local/state. Its folder is created. Prints a
 * warning and returns NULL if the file cannot be used: a chat works without it. */
chat_history *chat_history_open(const char *path);
void chat_history_close(chat_history *h);

/* Calls take with each message of the file, oldest first. A line that is no JSON string is skipped. */
void chat_history_each(chat_history *h, void (*take)(void *user, const char *text), void *user);
/* Appends a message. */
void chat_history_add(chat_history *h, const char *text);

#endif
