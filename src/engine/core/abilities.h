/* SPDX-License-Identifier: Apache-2.0 */
/* abilities.h: what requests may ask of the KV of an engine's model, computed by its backend. Any thread. */
#ifndef ENGINE_ABILITIES_H
#define ENGINE_ABILITIES_H

#include <stdbool.h>

#include "backend/backend_registry.h"
#include "reprise.h"

/* May heads keep some of their slots? RP_ERR_UNSUPPORTED: no, with the reason; what: the option that asks for it,
   "kv_keep". */
int engine_check_reduces(const rp_engine *e, const char *what, rp_error *err);
/* Are modules computed apart from what precedes them, and composed? If not they are text of the prompt. */
bool engine_reuses_modules(const rp_engine *e);
/* May the engine have this option? RP_ERR_INVALID, RP_ERR_UNSUPPORTED. */
int engine_check_module_states(const rp_engine *e, rp_module_states states, rp_error *err);

/* Can the backend do what an option needs? can: one of BACKEND_*. RP_ERR_UNSUPPORTED: no; what: the option. */
int engine_check_backend(const rp_engine *e, uint32_t can, const char *what, rp_error *err);

#endif
