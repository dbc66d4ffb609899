/* SPDX-License-Identifier: Apache-2.0 */
/* shifted_reuse.h: reuse of the suffix after an edit, at other positions. The engine's thread.
 */
#ifndef ENGINE_SHIFTED_REUSE_H
#define ENGINE_SHIFTED_REUSE_H

#include "reprise.h"

/* After prefix_find: finds cached tokens after an edit, at other positions: c->moved. */
void shifted_reuse_find(rp_job *c);

#endif
