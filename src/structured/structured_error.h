/* SPDX-License-Identifier: Apache-2.0 */
/* structured_error.h: errors of schemas and forms. Functions of this folder take an rp_error that is not NULL and that
 * the caller has set to {0}; they record the first error in it, and do nothing after it. `where` is the path of the
 * schema or field in its request ("tools[0].function.parameters.properties.x"), or "". Any thread.
 */
#ifndef STRUCTURED_ERROR_H
#define STRUCTURED_ERROR_H

#include "base/compiler.h"
#include "reprise.h"

/* Records an error, unless there is one. The message includes the place, where it matters. where: NULL is "". Returns
   the recorded code. */
int structured_fail(rp_error *err, rp_code code, const char *where, const char *fmt, ...) BASE_PRINTF(4, 5);
int structured_fail_memory(rp_error *err);

#endif
