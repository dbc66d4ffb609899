/* SPDX-License-Identifier: Apache-2.0 */
/* check.c: see check.h. */
#define _POSIX_C_SOURCE 200809L

#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void base_check_failed(const char *file, int line, const char *function, const char *condition) {
    char text[512];
    int n = snprintf(text, sizeof(text),
                     "reprise: %s:%d: %s: assertion failed: %s: this is a defect of Reprise, please report it\n", file,
                     line, function, condition);
    if (n > 0 && write(STDERR_FILENO, text, n < (int)sizeof(text) ? (size_t)n : sizeof(text) - 1) < 0) abort();
    abort();
}
