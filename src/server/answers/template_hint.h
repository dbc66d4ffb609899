/* SPDX-License-Identifier: Apache-2.0 */
/* template_hint.h: whether a prompt missed the prefix cache because the model's chat template writes an earlier turn in
 * another way than before (rp_template_check). Owns nothing. Workers: up to 5 renderings. */
#ifndef SERVER_TEMPLATE_HINT_H
#define SERVER_TEMPLATE_HINT_H

#include "server/http/server_request.h"

/* Limits, since the end of a stream waits for up to 5 renderings: longer conversations, and templates that take more
 * steps for all of them (10 ms, 20 at most), are not examined. */
#define SERVER_MAX_CHECKED_BYTES ((size_t)128 << 10)
#define SERVER_MAX_CHECKED_STEPS ((uint64_t)1 << 20) /* published templates take one a byte, or less */

/* May the first choice's mismatch be the template's? Then a worker looks. The thread that owns the request. */
bool template_hint_is_due(const server_request *x);
/* Worker. Sets gen->template_hint, if the first choice's mismatch is where the template changes its text: {"what":
 * "template", "message": "assistant 1", "text": what the template writes now, "cached": what it wrote before, "line":
 * of the template, "at_mismatch": true, "do": "..."}. */
void template_hint_find(server_request *x);

#endif
