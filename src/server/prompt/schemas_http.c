/* SPDX-License-Identifier: Apache-2.0 */
/* schemas_http.c: /v1/schemas: upload and download of PML; an upload prefills the modules.
 *
 * PUT replies when the modules are prefilled, or, to a client that accepts events, with "progress" events meanwhile and
 * "done" at the end. A worker waits for the prefill, SERVER_MAX_PREFILLS at a time. A client's disconnect cancels it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "server/handlers.h"
#include "server/prompt/schemas_http.h"
#include "server/server_internal.h"
#include "reprise_tools.h"

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

static json_t *schemas_http_text(const char *s) { return server_json_text(s, strlen(s)); }

static json_t *inspect_node(const rp_inspect_node *n) {
    return json_pack("{s:s, s:o, s:o, s:i, s:i, s:i, s:s, s:s, s:b, s:o}", "kind", n->kind, "name", schemas_http_text(n->name), "path", schemas_http_text(n->path),
                     "depth", (int)n->depth, "tokens", (int)n->n_tokens, "position", (int)n->position, "key", n->key, "kv_format",
                     n->kv_format, "cached", n->cached,
                     "preview", schemas_http_text(n->preview));
}

static json_t *layout_of(const rp_inspection *i) {
    json_t *nodes = json_array();
    for (int32_t k = 0; k < i->n_nodes && nodes; k++)
        if (json_array_append_new(nodes, inspect_node(&i->nodes[k]))) break;
    return json_pack("{s:s, s:o, s:s, s:s, s:i, s:o}", "object", "schema.layout", "schema", schemas_http_text(i->schema), "layout", i->layout, "scope",
                     i->scope, "positions", (int)i->schema_positions, "nodes", nodes);
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
    else server_request_reply_json(x, 200, json_pack("{s:s, s:o}", "object", "list", "data", schema_registry_names(x->model->registry, tenant)));
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
    if (rc == RP_ERR_NAME) server_fail(&x->problem, SERVER_NOT_FOUND, "name", "this tenant has no schema '%.80s' sent over HTTP", x->name);
    else server_fail_memory(&x->problem);
    server_request_reply_problem(x);
}

int schemas_http_remove(server_request *x, const char *tenant) {
    server_model *m = x->model;
    rp_error err;
    schema_registry_remove(m->registry, tenant, x->name);
    if (m->folder && schema_folder_remove(m->folder, tenant, x->name, &err)) return server_fail_library(&x->problem, &err);
    return rp_schema_unload(m->engine, tenant, x->name, &err) ? server_fail_library(&x->problem, &err) : SERVER_FINE;
}

void handle_schema_delete(server_request *x) {
    const char *tenant = schemas_http_tenant(x);
    pthread_mutex_lock(&x->model->schema_lock);
    if (!x->problem.kind) schemas_http_remove(x, tenant);
    pthread_mutex_unlock(&x->model->schema_lock);
    if (x->problem.kind) server_request_reply_problem(x);
    else server_request_reply_json(x, 200, json_pack("{s:s, s:s, s:b}", "object", "schema.deleted", "name", x->name, "deleted", 1));
}

/* ---- PUT ---- */

/* Locked. */
static int schemas_http_parse(server_request *x, const char *tenant, const char *pml, size_t n, rp_error *err) {
    rp_schema_options options = {.struct_size = sizeof(options), .tenant = tenant, .name = x->name, .kv_format = api_keys_kv_format(x->server->keys, tenant)};
    char document[SERVER_NAME_BYTES + 16];
    snprintf(document, sizeof(document), "%s.xml", x->name);
    return rp_schema_parse(x->model->engine, pml, n, document, NULL, &options, NULL, err);
}

/* Locked. A schema that could not be kept is not loaded either: the one before it is again, if there was one. */
static void schemas_http_take_back(server_request *x, const char *tenant, const base_buffer *old) {
    rp_error err;
    schema_registry_remove(x->model->registry, tenant, x->name);
    bool kept = old->len > 0 && !schemas_http_parse(x, tenant, old->data, old->len, &err) &&
                !schema_registry_put(x->model->registry, tenant, x->name, old->data, old->len);
    if (!kept) (void)rp_schema_unload(x->model->engine, tenant, x->name, &err);
}

/* Caller holds the lock. Registry and folder. */
static int schemas_http_keep(server_request *x, const char *tenant) {
    server_model *m = x->model;
    rp_error err;
    if (schema_registry_put(m->registry, tenant, x->name, x->body.data, x->body.len)) return server_fail_memory(&x->problem);
    if (!m->folder || !schema_folder_put(m->folder, tenant, x->name, x->body.data, x->body.len, &err)) return SERVER_FINE;
    return server_fail(&x->problem, SERVER_INTERNAL, NULL, "schema '%s' was not loaded because it cannot be saved: %.300s", x->name, err.message);
}

int schemas_http_load(server_request *x, const char *tenant) {
    server_model *m = x->model;
    rp_error err;
    base_buffer old = BASE_BUFFER(SERVER_MAX_REGISTRY_BYTES);
    if (x->body.len == 0) return server_fail(&x->problem, SERVER_INVALID, NULL, "the body is empty: send a PML schema");
    if (schema_registry_check(m->registry, tenant, x->name, x->body.len, &err)) return server_fail_library(&x->problem, &err);
    int rc = schema_registry_get(m->registry, tenant, x->name, &old);
    if (rc && rc != RP_ERR_NAME) return server_fail_memory(&x->problem);
    rc = schemas_http_parse(x, tenant, x->body.data, x->body.len, &err);
    if (rc == RP_ERR_NAME || rc == RP_ERR_IO) err.code = RP_ERR_SYNTAX; /* of something in the document: the client has not asked for it */
    if (rc) server_fail_library(&x->problem, &err);
    else if (schemas_http_keep(x, tenant)) schemas_http_take_back(x, tenant, &old);
    base_buffer_free(&old);
    return (int)x->problem.kind;
}

static json_t *schemas_http_done(const server_request *x) {
    const server_progress *p = &x->progress;
    return json_pack("{s:s, s:s, s:I, s:I}", "object", "schema", "name", x->name, "computed_tokens", (json_int_t)p->done, "missing_tokens",
                     (json_int_t)p->total);
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
        rc = server_request_frame(x, "progress", json_pack("{s:I, s:I}", "done", (json_int_t)p.done, "total", (json_int_t)p.total));
    pthread_mutex_lock(&x->lock);
    x->progress.reported = p.done;
    pthread_mutex_unlock(&x->lock);
    if (p.over && !rc) rc = x->problem.kind ? server_request_frame(x, "error", x->say(&x->problem)) : server_request_frame(x, "done", schemas_http_done(x));
    x->stream_ended = p.over;
    if (rc) x->gone = true;
}

/* The stream begins before the work does. */
static void prefill_with_events(server_request *x, const char *tenant) {
    server_request_hold(x, take_progress);
    schemas_http_prefill(x, tenant);
    server_request_release(x);
}

static bool begin_prefill(server_request *x) {
    if (atomic_fetch_add(&x->server->n_prefills, 1) < SERVER_MAX_PREFILLS) return true;
    atomic_fetch_sub(&x->server->n_prefills, 1);
    server_fail(&x->problem, SERVER_BUSY, NULL, "other schemas are being prefilled: retry later");
    x->problem.retry_after_ms = BUSY_RETRY_MS;
    return false;
}

void handle_schema_put(server_request *x) {
    rp_server *s = x->server;
    const char *wanted = server_request_query(x, "prefill");
    bool prefills = !wanted || strcmp(wanted, "false") != 0;
    const char *tenant = schemas_http_tenant(x);
    bool may = !x->problem.kind && (!prefills || begin_prefill(x));
    if (may) {
        pthread_mutex_lock(&x->model->schema_lock);
        schemas_http_load(x, tenant);
        pthread_mutex_unlock(&x->model->schema_lock);
    }
    if (x->problem.kind || !prefills || !server_request_wants_events(x)) {
        if (!x->problem.kind && prefills) schemas_http_prefill(x, tenant);
        if (may && prefills) atomic_fetch_sub(&s->n_prefills, 1);
        if (x->problem.kind) server_request_reply_problem(x);
        else server_request_reply_json(x, 200, schemas_http_done(x));
        return;
    }
    prefill_with_events(x, tenant); /* the request may be freed from here on */
    atomic_fetch_sub(&s->n_prefills, 1);
}
