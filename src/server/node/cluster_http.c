/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_http.c: the routes of a cluster's node: the span stream, requests of routers, draining. Owns nothing.
   Workers. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/file.h"
#include "server/core/fields.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"
#include "server/node/cluster_node.h"
#include "server/node/cluster_port.h"
#include "server/node/node_handlers.h"

uint64_t cluster_http_number(server_request *x, const char *name, int base) {
    const char *text = server_request_query(x, name);
    char *end = NULL;
    if (!text) return 0;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, base);
    if (!*text || *end || *text == '-' || *text == '+' || errno)
        server_fail(&x->problem, SERVER_INVALID, name, "'%s' is '%.40s': give a number%s", name, text,
                    base == 16 ? " in hexadecimal digits" : "");
    return value;
}

void handle_cluster_stream(server_request *x) {
    uint8_t nonce[CLUSTER_NONCE_BYTES];
    if (!x->relay)
        server_fail(&x->problem, SERVER_NOT_FOUND, NULL, "span streams are on the cluster's port (--cluster-listen)");
    const uint64_t epoch = cluster_http_number(x, "epoch", 16), after = cluster_http_number(x, "after", 10);
    const char *signature = server_request_header(x, CLUSTER_SIGNATURE_HEADER);
    const bool is_signed = !x->problem.kind && cluster_signature_parse(signature, nonce);
    BASE_ASSERT(is_signed || x->problem.kind); /* cluster_port_end has checked it */
    if (x->problem.kind || cluster_node_open(x, nonce, epoch, after)) server_request_reply_problem(x);
}

/* {"draining": true}, the default, or false. */
void handle_cluster_drain(server_request *x) {
    json_t *root = x->body.len > 0 ? server_request_json(x) : json_object();
    bool drains = true;
    if (!root) server_fail_memory(&x->problem);
    else if (!json_is_object(root))
        server_fail(&x->problem, SERVER_INVALID, NULL, "the body is not an object: give {\"draining\": true}");
    server_field_bool(&(server_fields){root, &x->problem, ""}, "draining", &drains);
    json_decref(root);
    if (x->problem.kind) {
        server_request_reply_problem(x);
        return;
    }
    atomic_store(&x->server->drains, drains);
    if (x->server->cluster) cluster_node_changed(x->server->cluster);
    const json_int_t n = (json_int_t)atomic_load(&x->server->counts.jobs_open);
    server_request_reply_json(x, 200,
                              json_pack("{s:s, s:b, s:I}", "object", "drain", "draining", drains, "requests", n));
}

/* ---- what routers ask about their requests ---- */

#define REQUESTS_BYTES ((size_t)8 << 20) /* of the reply: 65536 connections, a line of 60 bytes each */

typedef struct request_list {
    base_buffer text;
    const rp_engine *engine; /* of quiet_us */
    uint64_t now_us, taken_us, quiet_us;
    bool failed;
} request_list;

/* When the request was last seen to be worked on, or waited for who works: a worker, or the engine. Locked. */
static uint64_t request_worked_us(request_list *l, server_request *x) {
    const bool has_engine = x->stage == SERVER_RUNNING || x->stage == SERVER_STREAMING || x->encoding;
    if (x->stage == SERVER_REPLYING || x->stage == SERVER_CLOSED) return l->now_us;
    if (x->stage == SERVER_QUEUED)
        return x->model ? x->stage_us : BASE_MAX(x->stage_us, l->taken_us); /* with a model it waits for a turn */
    if (!has_engine || !x->model || !x->model->engine) return x->stage_us;
    if (l->engine != x->model->engine) { /* since when its thread has begun no turn */
        rp_engine_load load = {.struct_size = sizeof(load)};
        l->engine = x->model->engine;
        l->quiet_us = rp_engine_get_load(x->model->engine, &load) == RP_OK ? BASE_MIN(load.quiet_us, l->now_us) : 0;
    }
    return BASE_MAX(x->stage_us, l->now_us - l->quiet_us);
}

static void request_list_add(server_request *x, void *user) {
    request_list *l = user;
    if (!x->relay || !x->relay->has_route) return;
    pthread_mutex_lock(&x->lock);
    const uint64_t worked_us = BASE_MIN(request_worked_us(l, x), l->now_us);
    pthread_mutex_unlock(&x->lock);
    l->failed |= base_buffer_printf(&l->text, "%s %" PRIu64 "\n", x->id, (l->now_us - worked_us) / 1000) != 0;
}

/* A line for each request of a router: its id, and for how many milliseconds nothing has worked on it. A worker
 * replies: one that hangs, as all others may, is a sign as well. */
void handle_cluster_requests(server_request *x) {
    request_list l = {.text = BASE_BUFFER(REQUESTS_BYTES),
                      .now_us = base_clock_us(),
                      .taken_us = work_queue_taken_us(x->server->work)};
    if (!x->relay)
        server_fail(&x->problem, SERVER_NOT_FOUND, NULL,
                    "requests of routers are for the cluster's port (--cluster-listen)");
    else watchdog_visit(x->server->watchdog, request_list_add, &l);
    if (l.failed && !x->problem.kind) server_fail_memory(&x->problem);
    if (x->problem.kind) server_request_reply_problem(x);
    else server_request_reply_text(x, 200, "text/plain", &l.text);
    base_buffer_free(&l.text);
}
