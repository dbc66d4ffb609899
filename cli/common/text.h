/* SPDX-License-Identifier: Apache-2.0 */
/* text.h: untrusted UTF-8, made safe for a terminal, JSON or XML; and the nearest of several words.
 *
 * "Cells" are columns of a terminal. The locale decides whether characters outside ASCII can be printed; main sets
 * LC_CTYPE before it calls any of these functions.
 */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CLI_BAD_UTF8 UINT32_MAX

/* The character at s (n > 0 bytes). Returns its length in bytes; for an invalid byte, 1 with *c = CLI_BAD_UTF8. */
size_t cli_utf8_next(const char *s, size_t n, uint32_t *c);

/* A copy of n bytes with U+FFFD for every invalid byte. Freed by the caller. *n_out: its length in bytes; may be
 * NULL. */
char *cli_utf8_clean(const char *s, size_t n, size_t *n_out);

/* True if a character would move a terminal's cursor or change its state. */
bool cli_is_control(uint32_t c);

/* Prints text for terminals: all control characters except newline and tab are replaced. */
void cli_print_safe(FILE *to, const char *s, size_t n);

/* True if the locale can print UTF-8. */
bool cli_locale_is_utf8(void);

/* Width of a character in cells: 0, 1 or 2. */
int cli_char_cells(uint32_t c);

/* Cells that cli_print_fit would need for all of s. */
int cli_text_cells(const char *s);

/* Prints s on one line in at most `cells`, truncated with an ellipsis in the last cell, then spaces up to `pad`.
 * Unprintable characters become '?'. */
void cli_print_fit(FILE *to, const char *s, int cells, int pad);

/* Prints n numbers from 0 to 1 as a line of bars, at most `cells` of them: each the mean of as many numbers. */
void cli_print_shares(FILE *to, const float *shares, int n, int cells);

/* The nearest of several words to an unknown one; best is NULL if none is near enough. */
#define CLI_NEAREST_BYTES 32
typedef struct cli_nearest {
    const char *word, *best;
    size_t distance;
} cli_nearest;

cli_nearest cli_nearest_start(const char *word);
void cli_nearest_try(cli_nearest *n, const char *candidate);

#endif
