/* SPDX-License-Identifier: Apache-2.0 */
/* schemas.c: schemas by tenant and name. A planned job keeps its schema, even if another one of that name replaces it.
 * */
#include "engine/core/schemas.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/sized.h"
#include "engine/core/abilities.h"
#include "engine/core/engine_state.h"
#include "engine/core/identity.h"
#include "kv/block_pool.h"
#include "kv/kv_format.h"
#include "model/adapter.h"
#include "model/model.h"
#include "model/reduction.h"
#include "pml/document.h"
#include "pml/layout.h"
#include "pml/parts.h"
#include "pml/quality.h"

/* The name of a schema's content for the auditor: its modules' keys and quality attributes. */
static base_key schema_version(const rp_schema *s) {
    base_hash h;
    base_key key;
    base_hash_init(&h, "reprise audited schema 1");
    base_hash_u64(&h, s->layout->n_keys);
    for (size_t i = 0; i < s->layout->n_keys; i++) base_hash_key(&h, &s->layout->keys[i]);
    for (int32_t i = 0; i < s->document->n_nodes; i++) {
        base_hash_u64(&h, s->document->nodes[i].quality.mode);
        base_hash_u64(&h, (uint64_t)s->document->nodes[i].quality.amount);
    }
    base_hash_final(&h, &key);
    return key;
}

/* The forms of a schema, or of its form, for adapters: they have no forms. */
static void free_adapted(rp_schema *s) {
    for (rp_schema *a = s->adapted, *next; a; a = next) {
        next = a->next_adapted;
        adapter_unref(a->adapter.adapter);
        pml_layout_free(a->layout);
        base_free(a);
    }
}

static void free_schema(rp_schema *s) {
    for (int i = 0; i < N_FALLBACKS; i++) {
        rp_schema *form = s->fallbacks[i];
        if (!form) continue;
        free_adapted(form);
        pml_layout_free(form->layout);
        base_free(form);
    }
    free_adapted(s);
    pml_layout_free(s->layout);
    pml_document_free(s->document);
    base_free(s->name);
    base_free(s);
}

rp_schema *engine_schema_ref(rp_engine *e, rp_schema *s) {
    pthread_mutex_lock(&e->lock);
    BASE_ASSERT((s->of ? s->of : s)->refs > 0); /* the caller knows it by one of them */
    (s->of ? s->of : s)->refs++;
    pthread_mutex_unlock(&e->lock);
    return s;
}

void engine_schema_unref(rp_engine *e, rp_schema *s) {
    if (!s) return;
    if (s->of) s = s->of;
    pthread_mutex_lock(&e->lock);
    BASE_ASSERT(s->refs > 0 && !s->of);
    bool last = --s->refs == 0;
    pthread_mutex_unlock(&e->lock);
    if (last) free_schema(s);
}

void engine_schemas_free(rp_engine *e) {
    for (size_t i = 0; i < e->schemas->n; i++) free_schema(e->schemas->items[i]);
    base_free(e->schemas->items);
}

const char *rp_schema_name(const rp_schema *schema) { return schema->name; }

/* ---- by salt, then by name; locked ---- */

/* Names are compared within a salt only: the time of a search reveals nothing of other tenants' names. */
static int schema_compare(const rp_schema *s, const base_key *salt, const char *name) {
    int c = memcmp(&s->salt, salt, sizeof(*salt));
    return c ? c : strcmp(s->name, name);
}

/* The index of a schema, or its insertion index; of "": the first one of the salt. */
static size_t schemas_schema_index(const rp_engine *e, const base_key *salt, const char *name) {
    size_t low = 0, high = e->schemas->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (schema_compare(e->schemas->items[mid], salt, name) < 0) low = mid + 1;
        else high = mid;
    }
    return low;
}

static rp_schema **find_slot(const rp_engine *e, const base_key *salt, const char *name) {
    size_t i = schemas_schema_index(e, salt, name);
    return i < e->schemas->n && schema_compare(e->schemas->items[i], salt, name) == 0 ? &e->schemas->items[i] : NULL;
}

/* Appends the names of a salt's schemas to a list, as far as they fit, except those that `but` has as well. */
static void list_names(const rp_engine *e, const base_key *salt, const base_key *but, char *list, size_t bytes) {
    for (size_t i = schemas_schema_index(e, salt, "");
         i < e->schemas->n && base_key_equal(&e->schemas->items[i]->salt, salt); i++) {
        size_t used = strlen(list);
        if (used + 1 == bytes) return;
        if (but && find_slot(e, but, e->schemas->items[i]->name)) continue;
        snprintf(list + used, bytes - used, "%s'%s'", used ? ", " : "", e->schemas->items[i]->name);
    }
}

/* Fails with the names that the tenant may see. */
static int schemas_fail_unknown(const rp_engine *e, const base_key *salt, const char *name, rp_error *err) {
    char list[256] = "";
    list_names(e, salt, NULL, list, sizeof(list));
    if (!base_key_equal(salt, &e->salt)) list_names(e, &e->salt, salt, list, sizeof(list));
    if (!list[0]) return base_fail(err, RP_ERR_NAME, "schema '%.100s' is not loaded: load it first", name);
    return base_fail(err, RP_ERR_NAME, "schema '%.100s' is not loaded (loaded: %s)", name, list);
}

/* ---- lookup and loading ---- */

int engine_find_schema(rp_engine *e, const base_key *salt, const char *name, rp_schema **out, rp_error *err) {
    int rc = RP_OK;
    pthread_mutex_lock(&e->lock);
    rp_schema **slot = find_slot(e, salt, name);
    if (!slot) slot = find_slot(e, &e->salt, name);
    if (!slot) rc = schemas_fail_unknown(e, salt, name, err);
    else {
        *out = *slot;
        BASE_ASSERT((*out)->refs > 0 && !(*out)->of);
        (*out)->refs++;
    }
    pthread_mutex_unlock(&e->lock);
    return rc;
}

int engine_find_schema_of(rp_engine *e, const base_key *salt, const pml_document *prompt, rp_schema **out,
                          rp_error *err) {
    rp_error found;
    int rc = engine_find_schema(e, salt, prompt->nodes[0].name, out, &found);
    return rc ? pml_fail(err, found.code, prompt, 0, "%s", found.message) : RP_OK;
}

/* Locked. */
static int add_schema(rp_engine *e, rp_schema *s) {
    int rc = base_grow((void **)&e->schemas->items, &e->schemas->cap, e->schemas->n + 1, ENGINE_MAX_SCHEMAS,
                       sizeof(*e->schemas->items));
    if (rc) return rc;
    size_t i = schemas_schema_index(e, &s->salt, s->name);
    BASE_ASSERT(i == 0 || schema_compare(e->schemas->items[i - 1], &s->salt, s->name) < 0);
    BASE_ASSERT(i == e->schemas->n || schema_compare(e->schemas->items[i], &s->salt, s->name) > 0); /* a name is new */
    memmove(e->schemas->items + i + 1, e->schemas->items + i, (e->schemas->n++ - i) * sizeof(*e->schemas->items));
    e->schemas->items[i] = s;
    return RP_OK;
}

/* Takes ownership of the schema: adds it, or replaces the tenant's schema of that name. */
static int register_schema(rp_engine *e, rp_schema *s, rp_error *err) {
    rp_schema *old = NULL;
    int rc = RP_OK;
    BASE_ASSERT(s->refs == 1 && !s->of); /* which the list takes */
    pthread_mutex_lock(&e->lock);
    rp_schema **slot = find_slot(e, &s->salt, s->name);
    if (slot) {
        old = *slot;
        *slot = s;
    } else rc = add_schema(e, s);
    pthread_mutex_unlock(&e->lock);
    engine_schema_unref(e, old);
    return rc ? base_fail(err, rc, "too many schemas: '%s' exceeds the limit of %zu", s->name, ENGINE_MAX_SCHEMAS)
              : RP_OK;
}

static int check_formats(const rp_engine *e, const pml_layout *l, rp_error *err) {
    for (int32_t i = 0; i < l->n_segments; i++) {
        const pml_segment *s = &l->segments[i];
        if (kv_pool_takes(e->pool, s->format)) continue;
        return pml_fail(err, RP_ERR_UNSUPPORTED, l->schema, s->holder,
                        "KV in %s, with %d KV heads of %d dimensions, does not go with an engine in %s: choose another "
                        "kv or kv_format",
                        kv_format_name(s->format), e->model->net.hp.n_kv_heads, e->model->net.hp.key_dim,
                        kv_format_name(e->formats->text));
    }
    return RP_OK;
}

static int check_keep(const rp_engine *e, const pml_layout *l, rp_error *err) {
    int32_t i = 0;
    if (!engine_reuses_modules(e)) return RP_OK; /* modules are text */
    while (i < l->n_segments && l->segments[i].keep == 0) i++;
    rp_error why;
    return i == l->n_segments || !engine_check_reduces(e, "keep", &why)
               ? RP_OK
               : pml_fail(err, why.code, l->schema, l->segments[i].holder, "%s", why.message);
}

static int read_formats(pml_formats *out, const rp_schema_options *o, rp_error *err) {
    if (o->kv_format && !kv_format_parse(o->kv_format, &out->modules))
        return base_fail(err, RP_ERR_INVALID, "kv_format '%.40s': %s", o->kv_format, kv_format_advice(o->kv_format));
    return reduction_options_read(o->keep_share, o->keep_method, &out->keep, &out->method, err);
}

/* Lays a document out, which it takes over, on failure too. */
static int make_schema_of(rp_engine *e, const base_key *salt, pml_document *document, const rp_schema_options *options,
                          rp_schema **out, rp_error *err) {
    pml_formats formats = *e->formats;
    int rc = RP_OK;
    if (model_is_encoder(e->model))
        rc = base_fail(err, RP_ERR_UNSUPPORTED,
                       "'%s' is an encoder: its states depend on the whole text, so it has no modules",
                       e->model->arch->name);
    else if (options) rc = read_formats(&formats, options, err);
    if (rc) {
        pml_document_free(document);
        return rc;
    }
    rp_schema *s = base_calloc(1, sizeof(*s));
    if (!s) {
        pml_document_free(document);
        return base_fail_memory(err, sizeof(*s), "a schema");
    }
    *s = (rp_schema){.refs = 1, .salt = *salt, .document = document};
    rc = pml_layout_new(&s->layout, s->document, e->model, &formats, salt, err);
    if (!rc) rc = check_formats(e, s->layout, err);
    if (!rc) rc = check_keep(e, s->layout, err);
    if (!rc && !(s->name = base_strdup(s->document->nodes[0].name))) rc = base_fail_memory(err, 64, "a name");
    if (rc) free_schema(s);
    else *out = s;
    return rc;
}

int engine_make_schema(rp_engine *e, const base_key *salt, const char *pml, size_t n, const char *name, const char *dir,
                       const rp_schema_options *options, rp_schema **out, rp_error *err) {
    pml_document *document;
    *out = NULL;
    int rc = pml_schema_parse(&document, pml, n, name, dir, options, err);
    if (!rc && options && options->name && strcmp(options->name, document->nodes[0].name) != 0) {
        rc = pml_fail(err, RP_ERR_INVALID, document, 0,
                      "the schema's own name is '%.100s', not '%.100s': change one of the two", document->nodes[0].name,
                      options->name);
        pml_document_free(document);
    }
    return rc ? rc : make_schema_of(e, salt, document, options, out, err);
}

int engine_make_parts_schema(rp_engine *e, const base_key *salt, const pml_part *parts, size_t n, const char *name,
                             const char *modules_in, rp_schema **out, rp_error *err) {
    pml_document *document;
    *out = NULL;
    int rc = pml_parts_schema(&document, parts, n, name, err);
    return rc ? rc : make_schema_of(e, salt, document, &(rp_schema_options){.kv_format = modules_in}, out, err);
}

void rp_schema_options_init(rp_schema_options *options, uint32_t struct_size) {
    base_sized_init(options, struct_size, &(rp_schema_options){.tenant = NULL}, sizeof(rp_schema_options));
}

int rp_schema_parse(rp_engine *e, const char *pml, size_t n, const char *name, const char *dir,
                    const rp_schema_options *options, rp_schema **out, rp_error *err) {
    rp_schema *s = NULL;
    rp_schema_options o = rp_schema_options_defaults();
    base_key salt;
    if (out) *out = NULL;
    if (!e || (!pml && n > 0)) return base_fail(err, RP_ERR_INVALID, "rp_schema_parse: engine and pml are needed");
    int rc = base_sized_read(&o, sizeof(o), options, "rp_schema_options", err);
    if (!rc && !pml_quality_is_valid(o.quality))
        rc = base_fail(err, RP_ERR_INVALID, "rp_schema_options.quality %d:%d: " PML_QUALITY_ADVICE, (int)o.quality.mode,
                       o.quality.amount);
    if (!rc) rc = engine_salt(e, o.tenant, &salt, err);
    if (!rc) rc = engine_make_schema(e, &salt, pml ? pml : "", n, name ? name : "schema", dir, &o, &s, err);
    if (!rc) s->version = schema_version(s);
    if (!rc && (rc = register_schema(e, s, err))) free_schema(s);
    if (!rc && out) *out = s;
    return rc;
}

int engine_read_schema(const char *path, base_buffer *bytes, char **dir, rp_error *err) {
    *dir = NULL;
    int rc = base_file_read_text(path, PML_MAX_BYTES, bytes, err);
    if (rc) return rc;
    const char *slash = strrchr(path, '/');
    *dir = slash ? base_strndup(path, slash == path ? 1 : (size_t)(slash - path)) : base_strdup(".");
    return *dir ? RP_OK : base_fail_memory(err, strlen(path), "a path");
}

int rp_schema_load(rp_engine *e, const char *path, const rp_schema_options *options, rp_schema **out, rp_error *err) {
    base_buffer bytes = {0};
    char *dir = NULL;
    if (out) *out = NULL;
    if (!e || !path) return base_fail(err, RP_ERR_INVALID, "rp_schema_load: engine and path are needed");
    int rc = engine_read_schema(path, &bytes, &dir, err);
    if (!rc) rc = rp_schema_parse(e, bytes.data ? bytes.data : "", bytes.len, path, dir, options, out, err);
    base_free(dir);
    base_buffer_free(&bytes);
    return rc;
}

int rp_schema_unload(rp_engine *e, const char *tenant, const char *name, rp_error *err) {
    base_key salt;
    rp_schema *old = NULL;
    if (!e || !name) return base_fail(err, RP_ERR_INVALID, "rp_schema_unload: engine and name are needed");
    int rc = engine_salt(e, tenant, &salt, err);
    if (rc) return rc;
    pthread_mutex_lock(&e->lock);
    rp_schema **slot = find_slot(e, &salt, name);
    if (slot) {
        size_t i = (size_t)(slot - e->schemas->items);
        old = *slot;
        memmove(slot, slot + 1, (--e->schemas->n - i) * sizeof(*slot));
    } else rc = schemas_fail_unknown(e, &salt, name, err);
    pthread_mutex_unlock(&e->lock);
    engine_schema_unref(e, old);
    return rc;
}
