/* SPDX-License-Identifier: Apache-2.0 */
/* error.h: filling in an rp_error. The codes themselves are one list, RP_ERRORS in reprise_error.h.
 *
 * Convention of the whole tree: a function that can fail returns int, 0 or a negative rp_code, and takes an
 * optional (may be NULL) rp_error as its last parameter, which it fills in exactly when it fails. The innermost
 * function that knows what, where and what to do writes the message; callers pass the code on.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "reprise.h"

/* Fills *err (if not NULL) with code and a printf-style one-line message; where = "", offset = 0. Returns code. */
int base_fail(rp_error *err, rp_code code, const char *fmt, ...) BASE_PRINTF(3, 4);

/* The same with a place: `where` as "file:line:column" or "file: part"; offset in bytes of the input, or 0. */
int base_fail_at(rp_error *err, rp_code code, const char *where, uint64_t offset, const char *fmt, ...)
    BASE_PRINTF(5, 6);

/* RP_ERR_MEMORY with the standard text ("out of memory: N bytes for WHAT"). Returns RP_ERR_MEMORY: inline, so that an
 * analyzer of one file knows that it is not 0. */
static inline int base_fail_memory(rp_error *err, uint64_t bytes, const char *what) {
    base_fail(err, RP_ERR_MEMORY, "out of memory: %llu bytes for %s", (unsigned long long)bytes, what);
    return RP_ERR_MEMORY;
}

/* What the system calls this errno, into out[n]; returns out. */
const char *base_errno_text(int cause, char *out, size_t n);

/* RP_ERR_IO from errno: "WHAT 'path': strerror". Returns RP_ERR_IO. */
int base_fail_errno(rp_error *err, const char *what, const char *path);

#endif
