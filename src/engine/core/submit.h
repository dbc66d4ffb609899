/* SPDX-License-Identifier: Apache-2.0 */
/* submit.h: handing jobs to the engine's thread.
 */
#ifndef ENGINE_SUBMIT_H
#define ENGINE_SUBMIT_H

#include "reprise.h"

/* RP_ERR_UNSUPPORTED: the engine has plans_only. */
int engine_check_computes(const rp_engine *e, rp_error *err);

#endif
