/* SPDX-License-Identifier: Apache-2.0 */
/* must.h: checks of a test's preconditions. */
#ifndef SUPPORT_MUST_H
#define SUPPORT_MUST_H

#include <stdio.h>
#include <stdlib.h>

#include "reprise.h"

/* Ends the program with the error's place and message. */
static inline void must(int rc, const rp_error *err) {
    if (rc == 0) return;
    fprintf(stderr, "cannot set up the test: %s%s%s\n", err->where, err->where[0] ? ": " : "", err->message);
    abort();
}

#endif
