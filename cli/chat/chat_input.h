/* SPDX-License-Identifier: Apache-2.0 */
/* chat_input.h: the user's messages, from an editor on a terminal or line by line.
 *
 *   a line                      is a message
 *   a line that ends in \       continues on the next line
 *   """ ... """                 everything between is one message, over any number of lines
 *   Alt-Enter; a paste          put line ends into the line of the editor
 */
#ifndef CLI_CHAT_INPUT_H
#define CLI_CHAT_INPUT_H

#include <stdbool.h>

typedef struct chat_input chat_input;

typedef enum chat_read {
    CHAT_READ_TEXT,      /* a message that is not empty */
    CHAT_READ_CANCELLED, /* Ctrl-C: the message was given up */
    CHAT_READ_END,       /* end of file, Ctrl-D */
    CHAT_READ_FAILED,    /* an error line was printed */
} chat_read;

/* interactive: with a prompt, and with an editor unless the terminal is dumb. history: the file, NULL for the usual
 * one, "off" for none; used by the editor only. */
chat_input *chat_input_open(bool interactive, const char *history);
void chat_input_close(chat_input *in);

/* The next message. *text: freed by the caller, only for CHAT_READ_TEXT. */
chat_read chat_input_read(chat_input *in, char **text);

#endif
