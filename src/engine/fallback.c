/* SPDX-License-Identifier: Apache-2.0 */
/* fallback.c: schemas in f16, where the auditor found their KV formats, or the engine's, too inexact. A form is made when a
 * request first uses it, and kept with its schema. Any thread. */
#include "base/error.h"
#include "base/memory.h"
#include "engine/engine_internal.h"

static int make_fallback(rp_engine *e, rp_schema *s, engine_fallback fallback, rp_schema **out, rp_error *err) {
    const kv_format text = fallback == FALLBACK_ALL ? KV_F16 : e->formats.text;
    const pml_formats formats = {.text = text, .modules = KV_F16, .falls_back = true, .named = e->formats.text};
    rp_schema *f = *out = base_calloc(1, sizeof(*f));
    if (!f) return base_fail_memory(err, sizeof(*f), "a schema");
    *f = (rp_schema){.of = s, .salt = s->salt, .version = s->version, .name = s->name, .document = s->document};
    int rc = pml_layout_new(&f->layout, s->document, e->model, &formats, &s->salt, err);
    if (!rc) return RP_OK;
    base_free(f);
    *out = NULL;
    return rc;
}

int engine_use_schema(rp_engine *e, rp_schema **s, rp_error *err) {
    const engine_fallback fallback = atomic_load(&e->falls_back) ? FALLBACK_ALL : audit_falls_back(e, *s) ? FALLBACK_MODULES
                                                                                                          : FALLBACK_NONE;
    rp_schema *own = NULL, *of = *s;
    if (fallback == FALLBACK_NONE) return RP_OK;
    pthread_mutex_lock(&e->lock);
    *s = of->fallbacks[fallback];
    pthread_mutex_unlock(&e->lock);
    if (*s) return RP_OK;
    int rc = make_fallback(e, of, fallback, &own, err); /* its tokens are found without the lock */
    if (rc) {
        engine_schema_unref(e, of);
        *s = NULL;
        return rc;
    }
    pthread_mutex_lock(&e->lock);
    if (!of->fallbacks[fallback]) {
        of->fallbacks[fallback] = own;
        own = NULL;
    }
    *s = of->fallbacks[fallback];
    pthread_mutex_unlock(&e->lock);
    if (own) pml_layout_free(own->layout); /* another thread was first */
    base_free(own);
    return RP_OK;
}
