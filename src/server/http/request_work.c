/* SPDX-License-Identifier: Apache-2.0 */
/* request_work.c: requests on workers: the model that they need, their handling, and their end (server_request.h). Owns nothing. */
#include <stddef.h>

#include "base/check.h"
#include "base/file.h"
#include "base/memory.h"
#include "server/cluster/cluster_node.h"
#include "server/cluster/cluster_port.h"
#include "server/http/request_content.h"
#include "server/http/request_memory.h"
#include "server/http/server_request.h"
#include "server/model_pool.h"
#include "server/server_internal.h"

void server_request_free(server_request *x) {
    const request_memory_visit visit = request_memory_enter(x);
    x->server->answers->free(x);
    model_pool_leave(x);
    generation_free(&x->gen);
    server_request_drop_body(x);
    base_buffer_free(&x->reply);
    base_free(x->taken);
    cluster_node_forget(x);
    cluster_port_free(x);
    request_memory_leave(visit);
    request_memory_end(x);
    pthread_mutex_destroy(&x->lock);
    base_free(x);
}

void server_request_release(server_request *x) {
    pthread_mutex_lock(&x->lock);
    bool alone = x->stage == SERVER_CLOSED;
    x->held = false;
    x->progress.over = x->has_news = true;
    if (!alone) server_request_resume(x);
    pthread_mutex_unlock(&x->lock);
    if (alone) server_request_free(x);
}

static server_request *of_work(server_work *work) { return (server_request *)(void *)((char *)work - offsetof(server_request, work)); }

static void server_request_handle(server_request *x, bool gone) {
    rp_server *s = x->server;
    x->handled_us = base_clock_us();
    if (gone) server_fail(&x->problem, SERVER_CANCELLED, NULL, "the client disconnected");
    const bool is_good = !gone && request_decode_content(x), enters = is_good && model_pool_enter(x); /* else it waits, or was replied to */
    server_model *turn = enters || !is_good ? x->turn : NULL;
    if (!is_good) server_request_reply_problem(x);
    else if (enters) x->route->handle(x);
    if (turn) model_pool_end_turn(s->models, turn);
}

void server_run_work(server_work *work) {
    server_request *x = of_work(work);
    pthread_mutex_lock(&x->lock);
    server_stage stage = x->stage;
    bool gone = x->gone;
    BASE_ASSERT(stage == SERVER_QUEUED || stage == SERVER_FINISHING || stage == SERVER_CLOSED); /* invariant 1: a worker has it */
    if (stage == SERVER_QUEUED) server_request_enter(x, SERVER_HANDLING);
    pthread_mutex_unlock(&x->lock);
    const request_memory_visit visit = request_memory_enter(x);
    if (stage == SERVER_QUEUED) server_request_handle(x, gone);
    else if (stage == SERVER_FINISHING) x->server->answers->finish(x);
    else if (stage == SERVER_CLOSED) server_request_free(x);
    request_memory_leave(visit);
}
