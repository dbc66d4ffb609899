/* SPDX-License-Identifier: Apache-2.0 */
/* fallback.h: the form of a schema that requests use: another one where its KV formats were found too inexact, or for
   an adapter.
 */
#ifndef ENGINE_FALLBACK_H
#define ENGINE_FALLBACK_H

#include "model/adapter.h"
#include "reprise.h"
#include "reprise_pml.h"

/* Exchanges a reference to a schema for one to the form that requests use now: another one, if its KV formats were
 * found too inexact, or if modules are computed with an adapter: one without invocation tokens; NULL: none. On failure
 * the reference is released, and *s is NULL. RP_ERR_MEMORY, RP_ERR_LIMIT. Any thread. */
int engine_use_schema(rp_engine *e, rp_schema **s, const adapter_use *adapter, rp_error *err);

#endif
