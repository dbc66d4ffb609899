/* SPDX-License-Identifier: Apache-2.0 */
/* hints.h: hints to the client for a higher hit rate: a template that changes its text (template_hint.h); volatile text
 * (volatile_text.h) early in its prompt, or at the first mismatch with the cached prefix, unless it was moved already
 * (agent_noise.h). */
#ifndef SERVER_HINTS_H
#define SERVER_HINTS_H

#include "server/http/server_request.h"

#define SERVER_MAX_HINTS 8 /* per report */

/* [{"what": "date", "message": "system 1", "text": "2026-11-22", "at_mismatch": true, "do": "..."}]. Hints for the
 * first choice, which must have its result. NULL: out of memory. */
json_t *hints_of(const server_request *x);

#endif
