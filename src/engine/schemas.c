/* schemas.c: schemas by name. A call that was planned over one keeps it, though another of its name may take its place. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "engine/engine_internal.h"

static void free_schema(rp_schema *s) {
    pml_layout_free(s->layout);
    pml_document_free(s->document);
    base_free(s->name);
    base_free(s);
}

rp_schema *engine_schema_ref(rp_engine *e, rp_schema *s) {
    pthread_mutex_lock(&e->lock);
    s->refs++;
    pthread_mutex_unlock(&e->lock);
    return s;
}

void engine_schema_unref(rp_engine *e, rp_schema *s) {
    if (!s) return;
    pthread_mutex_lock(&e->lock);
    bool last = --s->refs == 0;
    pthread_mutex_unlock(&e->lock);
    if (last) free_schema(s);
}

void engine_schemas_free(rp_engine *e) {
    for (size_t i = 0; i < e->n_schemas; i++) free_schema(e->schemas[i]);
    base_free(e->schemas);
}

const char *rp_schema_name(const rp_schema *schema) { return schema->name; }

/* Locked. */
static rp_schema **find_slot(const rp_engine *e, const char *name) {
    for (size_t i = 0; i < e->n_schemas; i++)
        if (strcmp(e->schemas[i]->name, name) == 0) return &e->schemas[i];
    return NULL;
}

/* Locked. */
static int fail_unknown(const rp_engine *e, const char *name, rp_error *err) {
    char list[256] = "";
    for (size_t i = 0; i < e->n_schemas; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof(list) - used, "%s'%s'", i ? ", " : "", e->schemas[i]->name);
    }
    if (e->n_schemas == 0)
        return base_fail(err, RP_ERR_NAME, "no schema '%.100s' is loaded: load its file first (--schema FILE)", name);
    return base_fail(err, RP_ERR_NAME, "no schema '%.100s' is loaded (loaded: %s)", name, list);
}

int engine_find_schema(rp_engine *e, const char *name, rp_schema **out, rp_error *err) {
    int rc = RP_OK;
    pthread_mutex_lock(&e->lock);
    rp_schema **slot = find_slot(e, name);
    if (!slot) rc = fail_unknown(e, name, err);
    else {
        *out = *slot;
        (*out)->refs++;
    }
    pthread_mutex_unlock(&e->lock);
    return rc;
}

/* Takes the schema over: replaces one of its name, or adds it. */
static int register_schema(rp_engine *e, rp_schema *s, rp_error *err) {
    rp_schema *old = NULL;
    int rc = RP_OK;
    pthread_mutex_lock(&e->lock);
    rp_schema **slot = find_slot(e, s->name);
    if (slot) {
        old = *slot;
        *slot = s;
    } else {
        rc = base_grow((void **)&e->schemas, &e->cap_schemas, e->n_schemas + 1, ENGINE_MAX_SCHEMAS, sizeof(*e->schemas));
        if (!rc) e->schemas[e->n_schemas++] = s;
    }
    pthread_mutex_unlock(&e->lock);
    engine_schema_unref(e, old);
    return rc ? base_fail(err, rc, "no room for schema '%s' beside %zu others", s->name, e->n_schemas) : RP_OK;
}

int rp_schema_parse(rp_engine *e, const char *pml, size_t n, const char *name, const char *dir, const rp_schema_options *options,
                    rp_schema **out, rp_error *err) {
    if (out) *out = NULL;
    rp_schema *s = base_calloc(1, sizeof(*s));
    if (!s) return base_fail_memory(err, sizeof(*s), "a schema");
    *s = (rp_schema){.refs = 1};
    int rc = pml_schema_parse(&s->document, pml, n, name ? name : "schema", dir, options, err);
    if (!rc) rc = pml_layout_new(&s->layout, s->document, e->model, &e->salt, err);
    if (!rc && !(s->name = base_strdup(s->document->nodes[0].name))) rc = base_fail_memory(err, 64, "a name");
    if (!rc) rc = register_schema(e, s, err);
    if (rc) free_schema(s);
    else if (out) *out = s;
    return rc;
}

int rp_schema_load(rp_engine *e, const char *path, const rp_schema_options *options, rp_schema **out, rp_error *err) {
    base_buffer bytes = {0};
    if (out) *out = NULL;
    int rc = base_file_read(path, PML_MAX_BYTES, &bytes, err);
    if (rc) return rc;
    const char *slash = strrchr(path, '/');
    char *dir = slash ? base_strndup(path, slash == path ? 1 : (size_t)(slash - path)) : base_strdup(".");
    if (!dir) rc = base_fail_memory(err, strlen(path), "a path");
    else rc = rp_schema_parse(e, bytes.data ? bytes.data : "", bytes.len, path, dir, options, out, err);
    base_free(dir);
    base_buffer_free(&bytes);
    return rc;
}
