/* SPDX-License-Identifier: Apache-2.0 */
/* check.h: assertions: conditions that hold whatever a user, a file or another process does. A failed one is a defect
 * of Reprise: the process aborts with a line that names the place, before wrong data is used or written. Errors that
 * input can cause are rp_error, never assertions.
 *
 *   BASE_ASSERT   in every build; for conditions that cost a few instructions
 *   BASE_DCHECK   in debug and sanitizer builds (without NDEBUG); for those that cost more, and in kernels
 */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#include "base/compiler.h"

/* Writes "file:line: function: assertion failed: condition" to standard error and aborts. Any thread, with any lock
   held. */
_Noreturn void base_check_failed(const char *file, int line, const char *function, const char *condition);

#define BASE_ASSERT(condition) \
    (BASE_LIKELY(condition) ? (void)0 : base_check_failed(__FILE__, __LINE__, __func__, #condition))

#ifdef NDEBUG
#define BASE_DCHECK(condition) ((void)sizeof(!(condition))) /* compiled, not evaluated */
#else
#define BASE_DCHECK(condition) BASE_ASSERT(condition)
#endif

#endif
