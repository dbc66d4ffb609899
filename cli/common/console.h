/* SPDX-License-Identifier: Apache-2.0 */
/* console.h: shared by the commands: error lines, memory, files, the clock, Ctrl-C, progress on a terminal. */
#ifndef CLI_CONSOLE_H
#define CLI_CONSOLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "reprise.h"

#define CLI_INPUT_MAX_BYTES ((size_t)64 << 20) /* limit for a prompt or a text to tokenize: that of PML */

#if defined(__GNUC__)
#define CLI_PRINTF(fmt_index, first) __attribute__((format(printf, fmt_index, first)))
#else
#define CLI_PRINTF(fmt_at, first)
#endif

/* Prints "reprise: ..." as one line on standard error; control characters of the arguments become '?'. Returns
 * status. */
int cli_fail(int status, const char *fmt, ...) CLI_PRINTF(2, 3);
/* Prints "warning: ..." as one line on standard error; execution continues. */
void cli_warn(const char *fmt, ...) CLI_PRINTF(1, 2);
/* An error message of the library, with its option fields and functions replaced by the program's options and
 * commands. */
enum { CLI_MESSAGE_BYTES = 2 * RP_ERROR_MESSAGE_BYTES };
const char *cli_message(const rp_error *err, char out[CLI_MESSAGE_BYTES]);
/* cli_fail with this message. */
int cli_fail_library_as(int status, const rp_error *err);
/* cli_fail_library_as with CLI_FAILED. */
int cli_fail_library(const rp_error *err);

/* Zeroed memory; exits with status 1 if out of memory. n may be 0. */
void *cli_alloc(size_t n);
void *cli_realloc(void *p, size_t n);

/* The text of a file, or of standard input for "-", without a byte order mark, NUL-terminated. UTF-16 is refused. Freed
 * by the caller. Returns an exit status. */
int cli_read(const char *path, char **data, size_t *n);

/* The first line of a file with an API key; NULL for no file. Freed by the caller. Returns an exit status. */
int cli_read_key(const char *file, char **key);

/* Flushes standard output. Returns CLI_FAILED after printing its error line if something could not be written. */
int cli_finish_output(void);
/* Opens a file of text that is its owner's alone, such as a conversation, to write it: with O_TRUNC or O_APPEND; a new
 * one if there is none. A file that is there becomes private. -1: errno is the cause; of what is no regular file of
 * this user, EPERM. */
int cli_open_private(const char *path, int flags);
/* Closes a written file. Returns an exit status, like cli_finish_output. */
int cli_close_output(FILE *file, const char *path);

double cli_now_ms(void);

/* The first Ctrl-C after this sets a flag; the second ends the program by the signal's default action. */
void cli_interrupt_catch(void);
/* Clears the flag. Every Ctrl-C after this sets it, and none ends the program. */
void cli_interrupt_catch_each(void);
/* Ctrl-C has its default action again: it ends the program. */
void cli_interrupt_release(void);
bool cli_interrupted(void);

/* Width of `to` in cells: the terminal's, or `otherwise`. */
int cli_terminal_cells(FILE *to, int otherwise);
bool cli_is_terminal(FILE *to);
/* TERM=dumb: a terminal without a movable cursor. */
bool cli_terminal_is_dumb(void);
/* True for a terminal that is not dumb, unless NO_COLOR is set. */
bool cli_has_colour(FILE *to);

/* A progress bar with rate and time left on standard error if that is a terminal; otherwise nothing.
   Zero-initialise. */
typedef struct cli_progress {
    bool shown;
    double drawn_ms, began_ms;
    uint64_t began_at; /* `done` when it was first drawn */
} cli_progress;
void cli_progress_draw(cli_progress *p, const char *what, const char *unit, uint64_t done, uint64_t total);
void cli_progress_clear(cli_progress *p);

#endif
