/* SPDX-License-Identifier: Apache-2.0 */
/* scheduler.h: the engine's thread.
 */
#ifndef ENGINE_SCHEDULER_H
#define ENGINE_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "reprise.h"

/* Places in the batch, and jobs that have left it. The engine's thread. */
typedef struct engine_places {
    rp_job *flushing;    /* complete, but their KV is not on disk yet (RP_STORE_WRITE_THROUGH) */
    int32_t n_paused;    /* running jobs, as of the last admission, that are paused or gave up their turn: they do not
                            count against max_sequences */
    uint64_t n_admitted; /* since the start */
    uint64_t n_asides;   /* turns given up so far */
    bool new_had_turn;   /* the last place went to a job that had waited for its admission */
} engine_places;

/* arg: the rp_engine. */
void *scheduler_main(void *arg);

#endif
