/* SPDX-License-Identifier: Apache-2.0 */
/* error.c: filling in errors, and the texts of their codes.
 *
 * Owns nothing: every error belongs to the caller. A message is built beside the error and copied at the end, so that
 * an argument may come from the error that is being overwritten ("%s", err->message). Thread-safe.
 */
#define _POSIX_C_SOURCE 200809L

#include "base/check.h"
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A message is one line of whole UTF-8 characters, whatever a file's name or a document put into it. */
static void error_tidy(char *s, bool truncated) {
    size_t n = 0;
    for (; s[n]; n++)
        if ((unsigned char)s[n] < 0x20 || s[n] == 0x7f) s[n] = ' ';
    if (!truncated) return;
    size_t start = n; /* of the last character */
    while (start > 0 && ((unsigned char)s[start - 1] & 0xC0) == 0x80) start--;
    if (start == 0) return;
    unsigned char lead = (unsigned char)s[start - 1];
    size_t want = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2
                                 : lead >= 0xC0   ? 1
                                                  : 0;
    if (n - start < want) s[start - 1] = '\0';
}

static void error_fill(rp_error *err, rp_code code, const char *where, uint64_t offset, const char *fmt, va_list ap) {
    BASE_ASSERT(code < 0); /* invariant 1: a success leaves the error alone */
    rp_error e = {.code = code, .offset = offset};
    int n = snprintf(e.where, sizeof e.where, "%s", where);
    error_tidy(e.where, n >= (int)sizeof e.where);
    size_t used = 0;
    if (e.where[0]) used = (size_t)snprintf(e.message, sizeof e.message, "%s: ", e.where);
    BASE_ASSERT(used < sizeof e.message);
    n = vsnprintf(e.message + used, sizeof e.message - used, fmt, ap);
    error_tidy(e.message, n < 0 || (size_t)n >= sizeof e.message - used);
    *err = e;
}

int base_fail(rp_error *err, rp_code code, const char *fmt, ...) {
    if (!err) return code;
    va_list ap;
    va_start(ap, fmt);
    error_fill(err, code, "", 0, fmt, ap);
    va_end(ap);
    return code;
}

int base_fail_at(rp_error *err, rp_code code, const char *where, uint64_t offset, const char *fmt, ...) {
    if (!err) return code;
    va_list ap;
    va_start(ap, fmt);
    error_fill(err, code, where ? where : "", offset, fmt, ap);
    va_end(ap);
    return code;
}

const char *base_errno_text(int cause, char *out, size_t n) {
    if (strerror_r(cause, out, n) != 0) snprintf(out, n, "unknown error");
    return out;
}

int base_fail_errno(rp_error *err, const char *what, const char *path) {
    char text[128];
    return base_fail(err, RP_ERR_IO, "%s '%s': %s", what, path, base_errno_text(errno, text, sizeof text));
}

const char *rp_code_name(rp_code code) {
    switch (code) {
#define X(name, value, text) \
    case RP_##name: return "RP_" #name;
        RP_ERRORS(X)
#undef X
    }
    return "RP_ERR_?";
}

const char *rp_code_text(rp_code code) {
    switch (code) {
#define X(name, value, text) \
    case RP_##name: return text;
        RP_ERRORS(X)
#undef X
    }
    return "not an error code of this library";
}

const char *rp_version(void) { return RP_VERSION_STRING; }
