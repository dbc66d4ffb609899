/* SPDX-License-Identifier: Apache-2.0 */
/* structured_error.c: see structured_error.h. Owns nothing. */
#include "structured/structured_error.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/check.h"
#include "base/error.h"

int structured_fail(rp_error *err, rp_code code, const char *where, const char *fmt, ...) {
    char text[RP_ERROR_MESSAGE_BYTES];
    rp_error place;
    va_list ap;
    if (err->code != RP_OK) return err->code;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    base_fail_at(&place, code, where ? where : "", 0, "%s", ""); /* one line of whole characters */
    base_fail(err, code, "%s", text);
    snprintf(err->where, sizeof(err->where), "%s", place.where);
    BASE_ASSERT(err->code != RP_OK && err->message[0]); /* invariant 2: an error has a text */
    return err->code;
}

int structured_fail_memory(rp_error *err) { return structured_fail(err, RP_ERR_MEMORY, NULL, "out of memory"); }
