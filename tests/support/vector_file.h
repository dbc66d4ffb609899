/* SPDX-License-Identifier: Apache-2.0 */
/* vector_file.h: reads the lists of cases under tests/golden.
 *
 * A line is a case; tabs separate its fields. In a field \n, \r, \t, \\, \p (for |) and \u{...} are escapes: unescape
 * it, after splitting it at '|' if it is a list.
 */
#ifndef SUPPORT_VECTOR_FILE_H
#define SUPPORT_VECTOR_FILE_H

#include <stddef.h>

#define VECTOR_MAX_FIELDS 3

typedef struct vector_case {
    int line;                        /* from 1 */
    char *fields[VECTOR_MAX_FIELDS]; /* NUL-terminated; may be changed */
} vector_case;

/* Calls f for each line of tests/golden/NAME, which must have n_fields fields; returns the number of lines. An
 * unreadable file fails the test. */
int vector_file_each(const char *name, int n_fields, void (*f)(void *user, vector_case *c), void *user);
/* Replaces the escapes of s; returns its new length. */
size_t vector_unescape(char *s);
/* The path of a file under tests/golden; static, valid until the next call. */
const char *vector_path(const char *name);

#endif
