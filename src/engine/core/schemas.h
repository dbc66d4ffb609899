/* SPDX-License-Identifier: Apache-2.0 */
/* schemas.h: schemas by tenant and name, and their forms (fallback.h). A planned job keeps its schema, even if another
   one of that name replaces it.
 */
#ifndef ENGINE_SCHEMAS_H
#define ENGINE_SCHEMAS_H

#include <stddef.h>

#include "base/buffer.h"
#include "base/hash.h"
#include "model/adapter.h"
#include "pml/layout.h"
#include "pml/parts.h"
#include "reprise.h"
#include "reprise_pml.h"

#define ENGINE_MAX_SCHEMAS ((size_t)1 << 16)

/* Where the auditor found 8 bits or fewer too inexact: in f16 instead. Requests that were planned before are not
   affected. */
typedef enum engine_fallback {
    FALLBACK_MODULES, /* of one schema: its modules; text keeps the engine's format */
    FALLBACK_ALL,     /* of the engine: text and all modules */
    N_FALLBACKS,
    FALLBACK_NONE = N_FALLBACKS
} engine_fallback;

struct rp_schema {
    int refs;                          /* guarded by the engine's lock; of all its forms together */
    rp_schema *of;                     /* a form for a fallback: the registered schema, which has the document and the
                                          name; else NULL */
    rp_schema *fallbacks[N_FALLBACKS]; /* its forms, made when they are first used; guarded by the lock, then
                                          immutable */
    rp_schema *adapted;                /* of this form or fallback: forms for adapters, likewise: a list, */
    rp_schema *next_adapted;           /* of which this is one: */
    adapter_use adapter;               /* its modules are computed with this; zeros: with none */
    base_key salt;                     /* its tenant's; part of the key of each of its spans */
    base_key version;                  /* a hash of its content, for the auditor; zero: a request's own schema */
    char *name;
    pml_document *document;
    pml_layout *layout;
};

/* Those that are registered by name. Guarded by the engine's lock. Zero-initialise. */
typedef struct engine_schemas {
    rp_schema **items; /* by salt, then by name */
    size_t n, cap;
} engine_schemas;

/* A reference to the schema of that name for the tenant of this salt: its own, else the shared one. RP_ERR_NAME lists
 * the schemas that the tenant may use. Any thread. */
int engine_find_schema(rp_engine *e, const base_key *salt, const char *name, rp_schema **out, rp_error *err);
/* The schema that a prompt names; the error of an unknown one has its place. */
int engine_find_schema_of(rp_engine *e, const base_key *salt, const pml_document *prompt, rp_schema **out,
                          rp_error *err);
/* A schema that is not registered by name, with one reference, the caller's; the salt is part of its modules' keys.
   Otherwise as rp_schema_parse. */
int engine_make_schema(rp_engine *e, const base_key *salt, const char *pml, size_t n, const char *name, const char *dir,
                       const rp_schema_options *options, rp_schema **out, rp_error *err);
/* Likewise, of the documents among the parts of a prompt (pml_parts_schema). modules_in: as
   rp_schema_options.kv_format. */
int engine_make_parts_schema(rp_engine *e, const base_key *salt, const pml_part *parts, size_t n, const char *name,
                             const char *modules_in, rp_schema **out, rp_error *err);
/* The bytes of a schema file, and the folder for its src attributes. Both are the caller's (base_buffer_free,
   base_free), after a failure too. */
int engine_read_schema(const char *path, base_buffer *bytes, char **dir, rp_error *err);
rp_schema *engine_schema_ref(rp_engine *e, rp_schema *s);
void engine_schema_unref(rp_engine *e, rp_schema *s);
void engine_schemas_free(rp_engine *e);

#endif
