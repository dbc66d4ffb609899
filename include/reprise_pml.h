/* SPDX-License-Identifier: Apache-2.0 */
/* reprise_pml.h: schemas of reusable prompt modules (PML, docs/pml.md), and prompts over them, built part by part.
 * Conventions are those of reprise.h.
 */
#ifndef REPRISE_PML_H
#define REPRISE_PML_H

#include "reprise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Schemas ---- */

/* Owned by its engine; valid until replaced by one of the same name and tenant, or rp_engine_free. Jobs keep their own
 * references to its parts. */
typedef struct rp_schema rp_schema;

typedef enum rp_scope { RP_SCOPE_AS_WRITTEN,
                        RP_SCOPE_PATH,
                        RP_SCOPE_MODULE } rp_scope;
/* What a module of scope `module` attended to before itself: nothing, or the beginning-of-text token only. */
typedef enum rp_anchor { RP_ANCHOR_AS_WRITTEN,
                         RP_ANCHOR_NONE,
                         RP_ANCHOR_BOS } rp_anchor;
typedef enum rp_layout { RP_LAYOUT_AS_WRITTEN,
                         RP_LAYOUT_PACKED,
                         RP_LAYOUT_FIXED } rp_layout;

/* Tenant of a schema, and overrides of its attributes, to compare reuse settings without editing it. Default: shared,
 * owned by the operator, as written. */
typedef struct rp_schema_options {
    uint32_t struct_size;
    const char *tenant; /* owner: no other tenant can use the schema, and its name may equal that of a shared one
                           or of another tenant's. NULL: shared by all. Borrowed during the call. */
    const char *name;   /* required name of the schema, else RP_ERR_INVALID, and nothing is replaced; NULL: any.
                           Borrowed during the call */
    rp_scope scope;     /* of the schema and of all its modules */
    rp_anchor anchor;   /* likewise; no effect with scope path */
    rp_layout layout;
    rp_quality quality;      /* of the schema and of all its modules */
    const char *scaffold;    /* paths of modules, separated by spaces: an extra scaffold; NULL: none. Borrowed
                                during the call. */
    const char *kv_format;   /* "int8", ...: of modules whose schema names none (kv); a tenant's default. NULL:
                                the engine's. Borrowed during the call. */
    const char *keep_share;  /* "25%": of modules whose schema names none (keep). NULL:
                                rp_engine_options.keep_share. Borrowed during the call. */
    const char *keep_method; /* of its modules. NULL: rp_engine_options.keep_method. Borrowed during the call. */
} rp_schema_options;

RP_API void rp_schema_options_init(rp_schema_options *options, uint32_t struct_size);
static inline rp_schema_options rp_schema_options_defaults(void) {
    rp_schema_options o;
    rp_schema_options_init(&o, (uint32_t)sizeof(o));
    return o;
}

/* Loads a schema file. `src` attributes may name files in the file's own directory only.
 * Replaces a loaded schema of the same name and tenant. options may be NULL, *out too.
 * RP_ERR_IO, RP_ERR_SYNTAX, RP_ERR_NAME, RP_ERR_CONFLICT, RP_ERR_LENGTH, RP_ERR_LIMIT, RP_ERR_MEMORY; where and message
 * contain file:line:column. */
RP_API int rp_schema_load(rp_engine *engine, const char *path, const rp_schema_options *options, rp_schema **out,
                          rp_error *err);
/* Like rp_schema_load, from memory. name: document name in errors. dir: directory for `src`; NULL: `src` is refused. */
RP_API int rp_schema_parse(rp_engine *engine, const char *pml, size_t n, const char *name, const char *dir,
                           const rp_schema_options *options, rp_schema **out, rp_error *err);
RP_API const char *rp_schema_name(const rp_schema *schema);
/* Unloads the tenant's schema of that name (NULL: a shared one); jobs that use it continue. Its KV stays in the store
 * until evicted, and a schema with the same modules hits it again. RP_ERR_NAME, RP_ERR_LIMIT. */
RP_API int rp_schema_unload(rp_engine *engine, const char *tenant, const char *name, rp_error *err);

/* Prefills every module of a schema that the store does not hold, as far as the budget allows. The schema is the one
 * that a request of that tenant would get. RP_ERR_NAME, RP_ERR_LIMIT, RP_ERR_BUDGET, RP_ERR_MEMORY, RP_ERR_CONTEXT,
 * RP_ERR_BUSY. */
RP_API int rp_schema_prefill(rp_engine *engine, const char *tenant, const char *schema, rp_on_progress on_progress,
                             void *user, rp_error *err);
/* Like rp_schema_prefill, as a job to wait for or cancel. It has no result: rp_job_result gives NULL, and its error.
 * Modules prefilled before cancellation stay cached. The schema may be replaced meanwhile. */
RP_API int rp_schema_submit(rp_engine *engine, const char *tenant, const char *schema, rp_on_progress on_progress,
                            void *user, rp_job **out, rp_error *err);

/* ---- Prompts built part by part ---- */

/* A prompt over a schema, built part by part. Text is never parsed: no `<` in it is an import, and its bytes do not
 * change. Use this for user input instead of pasting it into a PML document.
 *
 *   rp_builder *b;
 *   rp_builder_new(&b, "cities", &err);
 *   rp_builder_import(b, "plan/miami");
 *   rp_builder_set_argument(b, "duration", days, strlen(days));
 *   rp_builder_begin_role(b, RP_ROLE_USER);
 *   rp_builder_append_text(b, question, strlen(question));
 *   rp_builder_end_role(b);
 *   request.prompt = rp_prompt_built(b);
 *
 * Errors. Each function that adds a part returns a code, and the builder keeps the first one: a program may ignore the
 * codes, and rp_engine_submit and rp_engine_run fail with that error. After an error, a builder accepts no more parts.
 * Errors name a part by its number, from 1, in the order of imports, texts and roles ("prompt, part 3: ...").
 * Threads. One thread at a time may add parts. Any number of requests may share a builder that is no longer changed; it
 * is borrowed during submission, and may be changed or freed afterwards. It belongs to no engine. Names and texts are
 * copied. */

/* schema: its name, resolved when a request is submitted; NULL: that of the first rp_builder_append_pml, or else the
 * prompt's modules are its documents (rp_builder_append_document). RP_ERR_INVALID, RP_ERR_MEMORY. *out:
 * rp_builder_free. */
RP_API int rp_builder_new(rp_builder **out, const char *schema, rp_error *err);
RP_API void rp_builder_free(rp_builder *builder);
/* Imports a module by its path, "plan/miami", with its outer modules. Consecutive imports with common outer modules are
 * one import, as <plan><miami/><hotel/></plan>. RP_ERR_NAME (empty name), RP_ERR_LIMIT, RP_ERR_INVALID, RP_ERR_MEMORY;
 * at submission RP_ERR_NAME (unknown module), RP_ERR_CONFLICT (imported twice, or with another member of its union). */
RP_API int rp_builder_import(rp_builder *builder, const char *path);
/* Sets an argument of the last imported module, or, if it has no such parameter, of the nearest outer one: n bytes of
 * UTF-8. RP_ERR_INVALID (no import directly before it, invalid UTF-8), RP_ERR_LIMIT, RP_ERR_MEMORY; at submission
 * RP_ERR_NAME (unknown parameter), RP_ERR_CONFLICT (given twice), RP_ERR_LENGTH. */
RP_API int rp_builder_set_argument(rp_builder *builder, const char *param, const char *text, size_t n);
/* Appends n bytes of UTF-8, in whole characters; control characters and NUL are allowed. Consecutive texts are joined.
 * White space is kept as it is. RP_ERR_INVALID (invalid UTF-8), RP_ERR_LIMIT (64 MiB in all), RP_ERR_MEMORY. */
RP_API int rp_builder_append_text(rp_builder *builder, const char *text, size_t n);
/* Appends bytes [from, to) of a rendered conversation: control tokens are recognised in trusted bytes. The text is
 * copied. For conversations with documents or modules: the text between them. RP_ERR_INVALID (invalid UTF-8,
 * malformed runs, a role is open), RP_ERR_LIMIT, RP_ERR_MEMORY. */
RP_API int rp_builder_append_rendered(rp_builder *builder, const rp_template_text *text, size_t from, size_t to);
#define RP_MAX_DOCUMENTS 1024
/* Appends n bytes of UTF-8 as a module of its own: its KV is prefilled once, without the text before it, and reused
 * in every prompt of the tenant that has the document, wherever it is. A second equal document is text. Only in a
 * prompt without a schema. RP_ERR_CONFLICT (the prompt has a schema), RP_ERR_INVALID (invalid UTF-8), RP_ERR_LIMIT
 * (64 MiB in all, RP_MAX_DOCUMENTS), RP_ERR_MEMORY; at submission RP_ERR_UNSUPPORTED (the model's positions cannot be
 * shifted). */
RP_API int rp_builder_append_document(rp_builder *builder, const char *text, size_t n);
/* Appends what a PML prompt of n bytes contains (docs/pml.md): markup that the application wrote, not a user's text.
 * Its <prompt> has no attribute but schema and xml:space; PML's rules for white space hold for its texts.
 * RP_ERR_SYNTAX, RP_ERR_CONFLICT (another schema, documents), RP_ERR_INVALID (it has roles, and a role is open),
 * RP_ERR_LIMIT, RP_ERR_MEMORY; at submission the errors of rp_builder_import. */
RP_API int rp_builder_append_pml(rp_builder *builder, const char *pml, size_t n);
/* Begins a message of that role, up to rp_builder_end_role or the end of the prompt. Roles do not nest. RP_ERR_INVALID,
 * RP_ERR_LIMIT, RP_ERR_MEMORY. */
RP_API int rp_builder_begin_role(rp_builder *builder, rp_role role);
/* Like rp_builder_begin_role, and places the modules of the message where the schema allows them: the role is closed
 * around a module that contains roles, or PML that does; a message with a module that is in a role of the schema is
 * that role, and no second one. At submission RP_ERR_CONFLICT: such a module is in a message of another role, or not
 * in the first one. */
RP_API int rp_builder_begin_message(rp_builder *builder, rp_role role);
RP_API int rp_builder_end_role(rp_builder *builder);

#ifdef __cplusplus
}
#endif
#endif
