/* SPDX-License-Identifier: Apache-2.0 */
/* schema_changes.c: see schema_changes.h. Owns nothing. */
#include "server/models/schema_changes.h"

#include <stdio.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "server/http/server_internal.h"
#include "reprise_pml.h"

int schema_change_parse(rp_server *server, const server_model *m, const schema_entry *e, rp_error *err) {
    BASE_ASSERT(e->text); /* not a removal */
    rp_schema_options options = {.struct_size = sizeof(options), .tenant = e->tenant, .name = e->name};
    char document[SERVER_NAME_BYTES + 16];
    options.kv_format = api_keys_kv_format(server->keys, e->tenant);
    snprintf(document, sizeof(document), "%s.xml", e->name);
    return rp_schema_parse(m->engine, e->text, e->n, document, NULL, &options, NULL, err);
}

/* Locked. Gives the change its time. false: it is done, or too late. */
static bool is_news(const server_model *m, schema_entry *e, server_problem *problem) {
    const uint64_t known = schema_registry_changed(m->registry, e->tenant, e->name),
                   now = (uint64_t)base_clock_wall_ns();
    if (e->changed == 0) {
        e->changed = BASE_MAX(now, known + 1); /* also after a change by a clock that is ahead */
        return true;
    }
    if (e->changed < known)
        server_fail(problem, SERVER_CONFLICT, NULL, "a later change of schema '%.80s' is known", e->name);
    return e->changed > known;
}

/* ---- put ---- */

/* Locked. A schema that could not be kept is not loaded either: the one before it is again, if there was one. */
static void take_back(rp_server *server, server_model *m, const schema_entry *e, const schema_entry *old) {
    rp_error err;
    schema_registry_remove(m->registry, e->tenant, e->name, old->n > 0 ? 0 : old->changed, true);
    const bool is_kept =
        old->n > 0 && !schema_change_parse(server, m, old, &err) && !schema_registry_put(m->registry, old);
    if (!is_kept) (void)rp_schema_unload(m->engine, e->tenant, e->name, &err);
}

/* Locked. Registry and folder. */
static int keep(server_model *m, const schema_entry *e, server_problem *problem) {
    rp_error err;
    if (schema_registry_put(m->registry, e)) return server_fail_memory(problem);
    if (!m->folder || !schema_folder_put(m->folder, e, &err)) return SERVER_FINE;
    return server_fail(problem, SERVER_INTERNAL, NULL, "schema '%s' was not loaded because it cannot be saved: %.300s",
                       e->name, err.message);
}

/* Locked. */
static int put(rp_server *server, server_model *m, const schema_entry *e, server_problem *problem) {
    BASE_ASSERT(e->n > 0 && e->changed > 0); /* is_news has given it its time */
    rp_error err;
    base_buffer text = BASE_BUFFER(SERVER_MAX_REGISTRY_BYTES);
    if (schema_registry_check(m->registry, e->tenant, e->name, e->n, &err)) return server_fail_library(problem, &err);
    int rc = schema_registry_get(m->registry, e->tenant, e->name, &text);
    if (rc && rc != RP_ERR_NAME) return server_fail_memory(problem);
    const schema_entry old = {e->tenant, e->name, text.data, text.len,
                              schema_registry_changed(m->registry, e->tenant, e->name)};
    rc = schema_change_parse(server, m, e, &err);
    if (rc == RP_ERR_NAME || rc == RP_ERR_IO)
        err.code = RP_ERR_SYNTAX; /* of something in the document: the client has not asked for it */
    if (rc) server_fail_library(problem, &err);
    else if (keep(m, e, problem)) take_back(server, m, e, &old);
    base_buffer_free(&text);
    return (int)problem->kind;
}

int schema_change_put(rp_server *server, server_model *m, schema_entry *e, server_problem *problem) {
    if (e->n == 0) return server_fail(problem, SERVER_INVALID, NULL, "the body is empty: send a PML schema");
    pthread_mutex_lock(&m->schema_lock);
    const bool is_done = is_news(m, e, problem) && put(server, m, e, problem) == SERVER_FINE;
    pthread_mutex_unlock(&m->schema_lock);
    if (is_done) server->layers->changed(server);
    return (int)problem->kind;
}

/* ---- removal ---- */

/* Locked. What the engine has from a file of its options can be removed, too. given: by whom the time is. */
static int take_out(server_model *m, const schema_entry *e, bool given, server_problem *problem) {
    BASE_ASSERT(e->changed > 0); /* likewise */
    rp_error err, missing;
    if (m->folder && schema_folder_remove(m->folder, e->tenant, e->name, &err))
        return server_fail_library(problem, &err);
    const int unknown = rp_schema_unload(m->engine, e->tenant, e->name, &missing);
    const bool was_there = schema_registry_remove(m->registry, e->tenant, e->name, e->changed, !unknown || given);
    return unknown && !was_there ? server_fail_library(problem, &missing) : SERVER_FINE;
}

int schema_change_remove(rp_server *server, server_model *m, schema_entry *e, server_problem *problem) {
    const bool given = e->changed != 0;
    pthread_mutex_lock(&m->schema_lock);
    const bool is_done = is_news(m, e, problem) && take_out(m, e, given, problem) == SERVER_FINE;
    pthread_mutex_unlock(&m->schema_lock);
    if (is_done) server->layers->changed(server);
    return (int)problem->kind;
}
