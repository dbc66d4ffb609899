/* SPDX-License-Identifier: Apache-2.0 */
/* status.h: what other threads see of an engine, as of the end of its last step.
 */
#ifndef ENGINE_STATUS_H
#define ENGINE_STATUS_H

#include <pthread.h>
#include <stdint.h>

#include "reprise.h"
#include "reprise_device.h"
#include "reprise_store.h"
#include "reprise_cluster.h"

typedef struct engine_status {
    rp_memory memory;
    rp_store_stats store;
    rp_device_usage device;
    rp_scaffold_stats scaffolds;
    int32_t running;     /* requests, those that wait for their KV to be written included */
    int32_t background;  /* tasks that have not ended */
    rp_engine_load load; /* without requests' numbers, and gap_p95_us */
} engine_status;

/* Guarded by the engine's lock. */
typedef struct engine_board {
    engine_status status;
    int32_t n_draining;     /* threads in rp_engine_drain, */
    pthread_cond_t drained; /* which wait for this */
} engine_board;

/* The engine's thread: updates the board. */
void engine_publish(rp_engine *e);

#endif
