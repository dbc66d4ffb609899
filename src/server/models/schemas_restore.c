/* SPDX-License-Identifier: Apache-2.0 */
/* schemas_restore.c: uploaded schemas of a model that is being loaded: from files of an earlier process, or from an
 * earlier load (server_internal.h). Owns nothing. The thread that loads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "server/http/server_internal.h"
#include "server/models/schema_changes.h"

static json_t *schemas_restore_text(const char *s) { return base_json_string(s, strlen(s)); }

static void log_line(rp_server *s, const char *schema, const rp_error *why) {
    json_t *line = json_pack("{s:s, s:o, s:o}", "event", "a schema was not loaded", "schema",
                             schemas_restore_text(schema), "error", schemas_restore_text(why->message));
    char *said = line && s->options.on_log ? json_dumps(line, JSON_COMPACT) : NULL;
    pthread_mutex_lock(&s->log_lock);
    if (said) s->options.on_log(s->options.user, said);
    pthread_mutex_unlock(&s->log_lock);
    base_free(said);
    json_decref(line);
}

/* A model that is being loaded. */
typedef struct restoring {
    rp_server *server;
    server_model *model;
} restoring;

static void on_kept(void *user, const schema_entry *e) {
    const restoring *r = user;
    rp_error err;
    if (e->text && schema_change_parse(r->server, r->model, e, &err)) log_line(r->server, e->name, &err);
}

static void on_found(void *user, const schema_entry *e) {
    const restoring *r = user;
    BASE_ASSERT(e->text && e->changed > 0); /* schema_folder_visit */
    rp_error err;
    int rc = schema_change_parse(r->server, r->model, e, &err);
    if (!rc && (rc = schema_registry_put(r->model->registry, e)))
        base_fail(&err, (rp_code)rc, "its text exceeds the limit (%d schemas, %zu MB)", SERVER_MAX_REGISTRY,
                  SERVER_MAX_REGISTRY_BYTES >> 20);
    if (rc) log_line(r->server, e->name, &err);
}

static void on_bad(void *user, const rp_error *err) { log_line(((const restoring *)user)->server, "", err); }

int schemas_restore(rp_server *s, server_model *m, rp_error *err) {
    restoring r = {s, m};
    if (m->n_loads == 0) return m->folder ? schema_folder_visit(m->folder, on_found, on_bad, &r, err) : RP_OK;
    schema_registry_visit(m->registry, on_kept, &r);
    return RP_OK;
}
