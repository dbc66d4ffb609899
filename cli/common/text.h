/* SPDX-License-Identifier: Apache-2.0 */
/* text.h: UTF-8 from anywhere, made fit for a terminal, JSON or XML; and the nearest of several words.
 *
 * "Cells" are columns of a terminal. The locale decides whether characters outside ASCII may be printed at all; main sets
 * LC_CTYPE before anything here is called.
 */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CLI_BAD_UTF8 UINT32_MAX

/* The character at s (n > 0 bytes are there). Returns its bytes; for a byte that begins none, 1 with *c = CLI_BAD_UTF8. */
size_t cli_utf8_next(const char *s, size_t n, uint32_t *c);

/* A copy of n bytes with U+FFFD for every byte that is not UTF-8. Freed by the caller. *n_out: its bytes; may be NULL. */
char *cli_utf8_clean(const char *s, size_t n, size_t *n_out);

/* Whether a character would move a terminal's cursor or change its state. */
bool cli_is_control(uint32_t c);

/* Writes text as it is but for control characters (newline and tab are kept): for terminals. */
void cli_print_safe(FILE *to, const char *s, size_t n);

/* Whether the locale can print UTF-8. */
bool cli_locale_is_utf8(void);

/* Cells that a character takes: 0, 1 or 2. */
int cli_char_cells(uint32_t c);

/* Cells that cli_print_fit would need to print all of s. */
int cli_text_cells(const char *s);

/* Prints s on one line in at most `cells`, the last of them an ellipsis where it is cut, then spaces up to `pad`. What cannot
 * be printed becomes '?'. */
void cli_print_fit(FILE *to, const char *s, int cells, int pad);

/* The nearest of some words to one that is unknown; best is NULL while none is near enough to be meant. */
#define CLI_NEAREST_BYTES 32
typedef struct cli_nearest {
    const char *word, *best;
    size_t distance;
} cli_nearest;

cli_nearest cli_nearest_start(const char *word);
void cli_nearest_try(cli_nearest *n, const char *candidate);

#endif
