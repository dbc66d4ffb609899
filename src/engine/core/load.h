/* SPDX-License-Identifier: Apache-2.0 */
/* load.h: an engine's load, for routers (reprise_cluster.h): counted on the engine's thread, read by any.
 */
#ifndef ENGINE_LOAD_H
#define ENGINE_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "reprise.h"
#include "reprise_cluster.h"

#define ENGINE_GAPS 256 /* inter-token latencies that rp_engine_get_load looks at */

typedef struct engine_meter {
    /* the last inter-token latencies: a ring; guarded by the engine's lock */
    float gap_us[ENGINE_GAPS];
    uint64_t n_gaps; /* ever added */
    /* the engine's thread */
    uint64_t last_us;                   /* end of the last step with answers; 0: none is running */
    uint64_t free_bytes, free_bytes_us; /* rp_engine_load.free_bytes, when it was counted, */
    bool free_bytes_idle;               /* and whether no request ran or waited then */
} engine_meter;

/* The engine's thread: the load as of now. */
rp_engine_load engine_load(rp_engine *e);
/* The engine's thread: a step ended at that time; answers: it had rows of them. */
void engine_count_gap(rp_engine *e, uint64_t end_us, bool answers);

#endif
