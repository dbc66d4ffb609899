/* SPDX-License-Identifier: Apache-2.0 */
/* gate.h: holds an engine at a chosen point: its thread blocks in the callback of an answer's first token until the
 * gate is opened. */
#ifndef TESTS_GATE_H
#define TESTS_GATE_H

#include <pthread.h>
#include <stdbool.h>

#include "reprise.h"

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool arrived, open;
    rp_job *call;
} gate;

/* Submits hold, with the gate's on_token, and waits until the engine is held. A failure aborts. */
void gate_close(gate *g, rp_engine *e, const rp_request *hold);
/* Opens the gate. The caller waits for the job and frees it. */
void gate_open(gate *g);
/* Opens the gate, waits for the job and frees it. */
void gate_end(gate *g);

#endif
