/* SPDX-License-Identifier: Apache-2.0 */
/* schemas_http.c: /v1/schemas: upload and download of PML; an upload prefills the modules.
 *
 * PUT replies when the modules are prefilled, or, to a client that accepts events, with "progress" events meanwhile and
 * "done" at the end. A worker waits for the prefill, SERVER_MAX_PREFILLS at a time. A client's disconnect cancels it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/json_write.h"
#include "server/http/server_internal.h"
#include "server/models/schema_changes.h"
#include "server/prompt/schemas_http.h"
#include "reprise_tools.h"
#include "reprise_pml.h"

#define BUSY_RETRY_MS 2000

/* ---- tenant ---- */

const char *schemas_http_tenant(server_request *x) {
    const char *shared = server_request_query(x, "shared");
    if (!shared || strcmp(shared, "true") != 0) return x->key->tenant;
    if (!(x->key->rights & SERVER_SHARE))
        server_fail(&x->problem, SERVER_RIGHTS, "shared", "this API key may not manage shared schemas: its line in "
                                                          "the key file needs rights=...,share");
    return NULL;
}

/* ---- looking inside ---- */

static json_t *schemas_http_text(const char *s) { return base_json_string(s, strlen(s)); }

static json_t *layout_of(const rp_inspection *i) {
    json_t *nodes = json_array();
    for (int32_t k = 0; k < i->n_nodes && nodes; k++) {
        const rp_inspect_node *n = &i->nodes[k];
        json_t *node = json_pack("{s:s, s:o, s:o, s:i, s:i, s:i, s:s, s:s, s:b, s:o}", "kind", n->kind, "name",
                                 schemas_http_text(n->name), "path", schemas_http_text(n->path), "depth", (int)n->depth,
                                 "tokens", (int)n->n_tokens, "position", (int)n->position, "key", n->key, "kv_format",
                                 n->kv_format, "cached", n->cached, "preview", schemas_http_text(n->preview));
        if (json_array_append_new(nodes, node)) break;
    }
    return json_pack("{s:s, s:o, s:s, s:s, s:i, s:o}", "object", "schema.layout", "schema",
                     schemas_http_text(i->schema), "layout", i->layout, "scope", i->scope, "positions",
                     (int)i->schema_positions, "nodes", nodes);
}

void handle_schema_layout(server_request *x) {
    rp_inspection *inspection;
    rp_error err;
    if (rp_engine_inspect(x->model->engine, x->key->tenant, x->name, NULL, NULL, &inspection, &err)) {
        server_fail_library(&x->problem, &err);
        server_request_reply_problem(x);
        return;
    }
    json_t *layout = layout_of(inspection);
    rp_inspection_free(inspection);
    server_request_reply_json(x, 200, layout);
}

/* ---- texts ---- */

void handle_schema_list(server_request *x) {
    const char *tenant = schemas_http_tenant(x);
    if (x->problem.kind) server_request_reply_problem(x);
    else
        server_request_reply_json(
            x, 200,
            json_pack("{s:s, s:o}", "object", "list", "data", schema_registry_names(x->model->registry, tenant)));
}

void handle_schema_get(server_request *x) {
    base_buffer pml = BASE_BUFFER(SERVER_REPLY_BYTES);
    const char *tenant = schemas_http_tenant(x);
    int rc = x->problem.kind ? RP_ERR_INVALID : schema_registry_get(x->model->registry, tenant, x->name, &pml);
    if (rc == 0) {
        server_request_reply_text(x, 200, "application/xml", &pml);
        return;
    }
    base_buffer_free(&pml);
    if (rc == RP_ERR_NAME)
        server_fail(&x->problem, SERVER_NOT_FOUND, "name", "this tenant has no schema '%.80s' sent over HTTP", x->name);
    else server_fail_memory(&x->problem);
    server_request_reply_problem(x);
}

void schemas_http_delete(server_request *x, const char *tenant, uint64_t changed) {
    schema_entry e = {.tenant = tenant, .name = x->name, .changed = changed};
    if (x->problem.kind || schema_change_remove(x->server, x->model, &e, &x->problem)) server_request_reply_problem(x);
    else
        server_request_reply_json(
            x, 200, json_pack("{s:s, s:s, s:b}", "object", "schema.deleted", "name", x->name, "deleted", 1));
}

void handle_schema_delete(server_request *x) { schemas_http_delete(x, schemas_http_tenant(x), 0); }

/* ---- PUT ---- */

static json_t *schemas_http_done(const server_request *x) {
    const server_progress *p = &x->progress;
    return json_pack("{s:s, s:s, s:I, s:I}", "object", "schema", "name", x->name, "computed_tokens",
                     (json_int_t)p->done, "missing_tokens", (json_int_t)p->total);
}

static void schemas_http_on_progress(void *user, uint64_t n, uint64_t total) {
    server_request *x = user;
    pthread_mutex_lock(&x->lock);
    x->progress.done = n;
    x->progress.total = total;
    x->has_news = true;
    if (x->stage == SERVER_STREAMING) server_request_resume(x);
    pthread_mutex_unlock(&x->lock);
}

static void schemas_http_prefill(server_request *x, const char *tenant) {
    rp_error err;
    rp_job *call;
    rp_result *none;
    if (rp_schema_submit(x->model->engine, tenant, x->name, schemas_http_on_progress, x, &call, &err)) {
        server_fail_library(&x->problem, &err);
        return;
    }
    pthread_mutex_lock(&x->lock);
    BASE_ASSERT(!x->encoding);
    x->encoding = call;
    if (x->gone) rp_job_cancel(call);
    pthread_mutex_unlock(&x->lock);
    if (rp_job_result(call, &none, &err)) server_fail_library(&x->problem, &err);
    pthread_mutex_lock(&x->lock);
    x->encoding = NULL;
    pthread_mutex_unlock(&x->lock);
    rp_job_free(call);
}

/* I/O thread. What the worker has written under the lock is read under it. */
static void take_progress(server_request *x) {
    pthread_mutex_lock(&x->lock);
    server_progress p = x->progress;
    pthread_mutex_unlock(&x->lock);
    int rc = 0;
    if (p.total > 0 && p.done != p.reported)
        rc = server_request_frame(x, "progress",
                                  json_pack("{s:I, s:I}", "done", (json_int_t)p.done, "total", (json_int_t)p.total));
    pthread_mutex_lock(&x->lock);
    x->progress.reported = p.done;
    pthread_mutex_unlock(&x->lock);
    if (p.over && !rc)
        rc = x->problem.kind ? server_request_frame(x, "error", x->say(&x->problem))
                             : server_request_frame(x, "done", schemas_http_done(x));
    x->stream_ended = p.over;
    if (rc) x->gone = true;
}

bool schemas_http_begin_prefill(server_request *x) {
    if (atomic_fetch_add(&x->server->n_prefills, 1) < SERVER_MAX_PREFILLS) return true;
    schemas_http_end_prefill(x->server);
    server_fail(&x->problem, SERVER_BUSY, NULL, "other schemas are being prefilled: retry later");
    x->problem.retry_after_ms = BUSY_RETRY_MS;
    return false;
}

void schemas_http_end_prefill(rp_server *s) {
    const int before = atomic_fetch_sub(&s->n_prefills, 1);
    BASE_ASSERT(before > 0);
}

bool schemas_http_prefills(server_request *x) {
    const char *wanted = server_request_query(x, "prefill");
    return !wanted || strcmp(wanted, "false") != 0;
}

void schemas_http_put(server_request *x, const char *tenant, uint64_t changed) {
    rp_server *s = x->server;
    schema_entry e = {tenant, x->name, x->body.data, x->body.len, changed};
    const bool prefills = schemas_http_prefills(x),
               may = !x->problem.kind && (!prefills || schemas_http_begin_prefill(x));
    if (may) schema_change_put(s, x->model, &e, &x->problem);
    if (x->problem.kind || !prefills || !server_request_wants_events(x)) {
        if (!x->problem.kind && prefills) schemas_http_prefill(x, tenant);
        if (may && prefills) schemas_http_end_prefill(s);
        if (x->problem.kind) server_request_reply_problem(x);
        else server_request_reply_json(x, 200, schemas_http_done(x));
        return;
    }
    server_request_hold(x, take_progress); /* the stream begins before the work does */
    schemas_http_prefill(x, tenant);
    server_request_release(x); /* the request may be freed from here on */
    schemas_http_end_prefill(s);
}

void handle_schema_put(server_request *x) { schemas_http_put(x, schemas_http_tenant(x), 0); }
