/* SPDX-License-Identifier: Apache-2.0 */
/* adapters.h: the LoRA adapter of a request: where it is switched on.
 *
 *   ordinary    modules: keys of the adapter (fallback.c)      text: a root of the adapter
 *   activated   | base model: keys and root of the base | invocation tokens, rest, answer: a root of the adapter |
 *                                                       from
 *
 * The root of the adapter is that of a scope (job_tokens.c), which the adapter with its scale names as well. The submitting thread, except
 * job_find_switch, which the engine's thread calls as well.
 */
#ifndef ENGINE_ADAPTERS_H
#define ENGINE_ADAPTERS_H

#include <stdint.h>

#include "reprise.h"

/* Takes the request's adapter, before it is planned. RP_ERR_INVALID, RP_ERR_CONFLICT. */
int job_take_adapter(rp_job *c, const rp_request *o, rp_error *err);
/* The plan is final: finds the invocation of an activated adapter, or does without it. RP_ERR_UNSUPPORTED, RP_ERR_MEMORY. */
int job_activate_adapter(rp_job *c, rp_error *err);
/* The token from which on the adapter computes the tokens below; INT32_MAX: there is none. Sets switch_at. */
int32_t job_find_switch(rp_job *c);

#endif
