/* SPDX-License-Identifier: Apache-2.0 */
/* gate.h: holds an engine where a test wants it: its thread stands in the callback of an answer's first token until the gate is opened. */
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

/* Submits hold, with the gate's on_token, and waits until the engine stands there. A failure aborts. */
void gate_close(gate *g, rp_engine *e, const rp_request *hold);
/* Lets it go on. The call is the caller's to wait for and to free. */
void gate_open(gate *g);
/* The same; waits for the call and frees it. */
void gate_end(gate *g);

#endif
