/* SPDX-License-Identifier: Apache-2.0 */
/* hints.h: advice for more cache hits: volatile text (volatile_text.h) early in a prompt, or at the
 * first mismatch; and the operator's option to move it. */
#ifndef SERVER_HINTS_H
#define SERVER_HINTS_H

#include "server/http/server_request.h"

#define SERVER_MAX_HINTS 8 /* of a report */

/* [{"what": "date", "message": "system 1", "text": "2026-11-22", "at_mismatch": true, "do": "..."}]. Of the first choice, which has its
 * result. NULL: no memory. */
json_t *hints_of(const server_request *x);

/* Moves the lines of the first system message that contain volatile text to its end, so that the others hit. Nothing is moved if
 * the message contains modules or documents. Returns a server_problem_kind. */
int hints_settle_system(generation *gen, server_problem *p);

#endif
