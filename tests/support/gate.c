/* SPDX-License-Identifier: Apache-2.0 */
/* gate.c: see gate.h. */
#include "gate.h"

#include <stdio.h>
#include <stdlib.h>

#include "calls.h"

static bool wait_at_gate(void *user, const rp_token *token) {
    gate *g = user;
    (void)token;
    pthread_mutex_lock(&g->lock);
    g->arrived = true;
    pthread_cond_broadcast(&g->changed);
    while (!g->open) pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return true;
}

void gate_close(gate *g, rp_engine *e, const rp_request *hold) {
    rp_request q = *hold;
    rp_error err;
    *g = (gate){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    q.on_token = wait_at_gate;
    q.user = g;
    if (rp_engine_submit(e, &q, &g->call, &err)) {
        fprintf(stderr, "gate: %s\n", err.message);
        abort();
    }
    pthread_mutex_lock(&g->lock);
    while (!g->arrived) pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

void gate_open(gate *g) {
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

void gate_end(gate *g) {
    gate_open(g);
    calls_end(g->call);
}
