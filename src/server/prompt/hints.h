/* SPDX-License-Identifier: Apache-2.0 */
/* hints.h: what a client could do so that more is found again: volatile text (volatile_text.h) that stands early in its prompt, or where the
 * prompt left what is known; and the operator's way of putting it elsewhere. */
#ifndef SERVER_HINTS_H
#define SERVER_HINTS_H

#include "server/http/server_request.h"

#define SERVER_MAX_HINTS 8 /* of a report */

/* [{"what": "date", "message": "system 1", "text": "2026-11-22", "at_mismatch": true, "do": "..."}]. Of the first choice, which has its
 * result. NULL: no memory. */
json_t *hints_of(const server_request *x);

/* Moves the lines of the first system message that hold volatile text to its end, so that the others are found again. Nothing is moved where
 * modules or documents stand in the message. Returns a server_problem_kind. */
int hints_settle_system(generation *gen, server_problem *p);

#endif
