/* SPDX-License-Identifier: Apache-2.0 */
/* hints.h: hints to the client for a higher hit rate: a template that changes its text (template_hint.h); volatile text
 * (volatile_text.h) early in its prompt, or at the first mismatch with the cached prefix; and the operator's option that
 * moves such text (stable_system). */
#ifndef SERVER_HINTS_H
#define SERVER_HINTS_H

#include "server/http/server_request.h"

#define SERVER_MAX_HINTS 8 /* per report */

/* [{"what": "date", "message": "system 1", "text": "2026-11-22", "at_mismatch": true, "do": "..."}]. Hints for the
 * first choice, which must have its result. NULL: out of memory. */
json_t *hints_of(const server_request *x);

/* Moves the lines with volatile text of the first system message to its end, so that the other lines hit the prefix
 * cache. A message that contains modules or documents is left unchanged. Returns a server_problem_kind. */
int hints_settle_system(generation *gen, server_problem *p);

#endif
