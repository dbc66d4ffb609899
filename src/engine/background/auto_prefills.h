/* SPDX-License-Identifier: Apache-2.0 */
/* auto_prefills.h: chunks of text that prompts repeat are prefilled as automatic modules (auto_modules.h) in the
 * background (background.h).
 *
 *   a job with RP_REUSE_AUTO ended --> its chunks that had to be computed are counted by key (chunk_index.h)
 *                                  --> a chunk computed AUTO_USES times becomes a task: [ first token | chunk ] as a
 *                                  prompt of its own
 */
#ifndef ENGINE_AUTO_PREFILLS_H
#define ENGINE_AUTO_PREFILLS_H

#include "engine/background/chunk_index.h"
#include "engine/core/observer.h"

#define AUTO_USES 2 /* computations of a chunk until it is prefilled as a module */
#define AUTO_TASKS \
    16 /* prefills of modules that wait or run; further ones are submitted when the chunk is computed again */

/* Of an engine, for its thread. Zero-initialise. */
typedef struct auto_prefills {
    chunk_index *index; /* NULL until the first request */
    int32_t n_tasks;
} auto_prefills;

void auto_prefills_free(rp_engine *e);

extern const job_observer auto_prefills_observer;

#endif
