/* SPDX-License-Identifier: Apache-2.0 */
/* fallback.c: forms of schemas: in f16, where the auditor found their KV formats, or the engine's, too inexact; and for
 * adapters, of either. A form is made when a request first uses it, and kept with its schema. Any thread. */
#include "engine/core/fallback.h"

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "engine/background/audit.h"
#include "engine/core/engine_state.h"
#include "engine/core/schemas.h"
#include "model/adapter.h"
#include "pml/layout.h"

/* A form of s, whose modules are named by `salt`. */
static int make_form(rp_engine *e, rp_schema *s, const pml_formats *formats, const base_key *salt, rp_schema **out,
                     rp_error *err) {
    BASE_ASSERT(!s->of || (!s->of->of && s->document == s->of->document)); /* forms are of the schema itself */
    rp_schema *f = *out = base_calloc(1, sizeof(*f));
    if (!f) return base_fail_memory(err, sizeof(*f), "a schema");
    *f = (rp_schema){
        .of = s->of ? s->of : s, .salt = s->salt, .version = s->version, .name = s->name, .document = s->document};
    int rc = pml_layout_new(&f->layout, s->document, e->model, formats, salt, err);
    if (!rc) return RP_OK;
    base_free(f);
    *out = NULL;
    return rc;
}

/* One that is not linked: another thread was first. Linked ones are freed with their schema. */
static void free_form(rp_schema *f) {
    if (!f) return;
    BASE_ASSERT(!f->adapted && !f->next_adapted); /* nobody has seen it */
    adapter_unref(f->adapter.adapter);
    pml_layout_free(f->layout);
    base_free(f);
}

/* *s, which has a reference, in the form for a fallback. */
static int use_fallback(rp_engine *e, rp_schema **s, engine_fallback fallback, rp_error *err) {
    const rp_kv_format text = fallback == FALLBACK_ALL ? RP_KV_F16 : e->formats->text;
    const pml_formats formats = {.text = text, .modules = RP_KV_F16, .falls_back = true, .named = e->formats->text};
    rp_schema *own = NULL, *of = *s;
    BASE_ASSERT((unsigned)fallback < N_FALLBACKS && !of->of);
    pthread_mutex_lock(&e->lock);
    rp_schema *known = of->fallbacks[fallback];
    pthread_mutex_unlock(&e->lock);
    int rc =
        known ? RP_OK : make_form(e, of, &formats, &of->salt, &own, err); /* its tokens are found without the lock */
    if (rc) return rc;
    pthread_mutex_lock(&e->lock);
    if (!of->fallbacks[fallback]) {
        of->fallbacks[fallback] = own;
        own = NULL;
    }
    *s = of->fallbacks[fallback];
    pthread_mutex_unlock(&e->lock);
    free_form(own);
    return RP_OK;
}

/* ---- adapters ---- */

/* Locked. */
static rp_schema *find_adapted(const rp_schema *of, const adapter_use *adapter) {
    rp_schema *a = of->adapted;
    while (a && !base_key_equal(&a->adapter.key, &adapter->key)) a = a->next_adapted;
    return a;
}

/* What names the modules of a tenant that are computed with an adapter. */
static base_key adapted_salt(const base_key *salt, const adapter_use *adapter) {
    base_hash h;
    base_key out;
    base_hash_init(&h, "reprise adapted modules 1");
    base_hash_key(&h, salt);
    base_hash_key(&h, &adapter->key);
    base_hash_final(&h, &out);
    return out;
}

/* The same for an adapter. */
static int use_adapted(rp_engine *e, rp_schema **s, const adapter_use *adapter, rp_error *err) {
    rp_schema *own = NULL, *of = *s;
    const base_key salt = adapted_salt(&of->salt, adapter);
    pthread_mutex_lock(&e->lock);
    rp_schema *known = find_adapted(of, adapter);
    pthread_mutex_unlock(&e->lock);
    int rc = known ? RP_OK : make_form(e, of, &of->layout->formats, &salt, &own, err);
    if (rc) return rc;
    if (own) own->adapter = adapter_use_of(adapter->adapter, adapter->scale);
    pthread_mutex_lock(&e->lock);
    if (!known && !(known = find_adapted(of, adapter))) {
        own->next_adapted = of->adapted;
        of->adapted = known = own;
        own = NULL;
    }
    BASE_ASSERT(base_key_equal(&known->adapter.key, &adapter->key));
    *s = known;
    pthread_mutex_unlock(&e->lock);
    free_form(own);
    return RP_OK;
}

int engine_use_schema(rp_engine *e, rp_schema **s, const adapter_use *adapter, rp_error *err) {
    const engine_fallback fallback = atomic_load(&e->falls_back) ? FALLBACK_ALL
                                     : audit_falls_back(e, *s)   ? FALLBACK_MODULES
                                                                 : FALLBACK_NONE;
    int rc = fallback == FALLBACK_NONE ? RP_OK : use_fallback(e, s, fallback, err);
    if (!rc && adapter && adapter->adapter && adapter->adapter->n_invocation == 0) rc = use_adapted(e, s, adapter, err);
    if (!rc) return RP_OK;
    engine_schema_unref(e, *s);
    *s = NULL;
    return rc;
}
