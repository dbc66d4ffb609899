/* SPDX-License-Identifier: Apache-2.0 */
/* request_work.c: see request_work.h. Owns nothing. */
#include "server/request_work.h"

#include <stddef.h>

#include "base/check.h"
#include "base/file.h"
#include "base/memory.h"
#include "server/answers/generate.h"
#include "server/http/request_content.h"
#include "server/http/request_memory.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"
#include "server/node/cluster_node.h"

/* ---- its parts ---- */

/* The parts of a request that layers above http/ own, in one block of memory. */
typedef struct request_parts {
    generation gen;
    server_answers answers;
} request_parts;

int request_work_open(server_request *x) {
    BASE_ASSERT(!x->gen && !x->answers);
    request_parts *p = base_calloc(1, sizeof(*p));
    if (!p) return RP_ERR_MEMORY;
    x->gen = &p->gen;
    x->answers = &p->answers;
    return RP_OK;
}

void request_work_close(server_request *x) {
    x->server->answers->free(x);
    BASE_ASSERT(!x->answers->choices && x->answers->n_choices == 0);
    model_pool_leave(x);
    generation_free(x->gen);
    cluster_node_forget(x);
    base_free(x->gen); /* the parts */
}

_Static_assert(offsetof(request_parts, gen) == 0, "the parts are freed by their first one");

/* ---- its handling ---- */

static void server_request_handle(server_request *x, bool gone) {
    rp_server *s = x->server;
    BASE_ASSERT(work_queue_is_worker() && !x->route->is_quick);
    x->handled_us = base_clock_us();
    if (gone) server_fail(&x->problem, SERVER_CANCELLED, NULL, "the client disconnected");
    const bool is_good = !gone && request_decode_content(x),
               enters = is_good && model_pool_enter(x); /* else it waits, or was replied to */
    server_model *turn = enters || !is_good ? x->turn : NULL;
    if (!is_good) server_request_reply_problem(x);
    else if (enters) x->route->handle(x);
    if (turn) model_pool_end_turn(s->models, turn);
}

void request_work_run(server_work *work) {
    server_request *x = (server_request *)(void *)((char *)work - offsetof(server_request, work));
    pthread_mutex_lock(&x->lock);
    server_stage stage = x->stage;
    bool gone = x->gone, held = x->held;
    BASE_ASSERT(stage == SERVER_QUEUED || stage == SERVER_FINISHING || stage == SERVER_CLOSED ||
                held); /* invariant 1: a worker has it */
    if (stage == SERVER_QUEUED) server_request_enter(x, SERVER_HANDLING);
    pthread_mutex_unlock(&x->lock);
    const request_memory_visit visit = request_memory_enter(x);
    if (held) {
        if (!gone) x->server->answers->assist(x);
        server_request_release(x);
    } else if (stage == SERVER_QUEUED) server_request_handle(x, gone);
    else if (stage == SERVER_FINISHING) x->server->answers->finish(x);
    else if (stage == SERVER_CLOSED) server_request_free(x);
    request_memory_leave(visit);
}
