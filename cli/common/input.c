/* SPDX-License-Identifier: Apache-2.0 */
/* input.c: see input.h. Owns nothing. One thread. */
#define _POSIX_C_SOURCE 200809L

#include "common/input.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/command.h"
#include "common/console.h"

#define NAME_MAX_BYTES 1024 /* a longer text is no path that somebody typed */

const char *cli_input_name(const char *path) { return strcmp(path, "-") == 0 ? "stdin" : path; }

int cli_read_utf8(const char *path, const char *what, char **out) {
    size_t n = 0;
    int status = cli_read(path, out, &n);
    if (status != CLI_OK) return status;
    size_t length = strlen(*out);
    return length == n ? CLI_OK
                       : cli_fail(CLI_FAILED, "%s: byte %zu is zero: %s in UTF-8", cli_input_name(path), length, what);
}

char *cli_cut_line_end(char *text) {
    size_t n = strlen(text);
    if (n > 0 && text[n - 1] == '\n') text[--n] = '\0';
    if (n > 0 && text[n - 1] == '\r') text[--n] = '\0';
    return text;
}

/* The file begins with markup, after a byte order mark and white space. */
static bool input_is_markup(const char *path) {
    char head[64];
    FILE *from = fopen(path, "rb");
    if (from == NULL) return false;
    size_t n = fread(head, 1, sizeof head - 1, from);
    fclose(from);
    head[n] = '\0';
    const char *s = strncmp(head, "\xEF\xBB\xBF", 3) == 0 ? head + 3 : head;
    return s[strspn(s, " \t\r\n")] == '<';
}

void cli_warn_of_file(const char *option, const char *text) {
    struct stat st;
    if (strcmp(text, "-") == 0) cli_warn("'%s-' is text: for standard input give -f -", option);
    if (*text == '\0' || strlen(text) > NAME_MAX_BYTES || stat(text, &st) != 0 || !S_ISREG(st.st_mode)) return;
    if (input_is_markup(text)) cli_warn("'%s%s' is text: for a PML file give --pml %s", option, text, text);
    else cli_warn("'%s%s' is text: for the text of a file give -f %s", option, text, text);
}
