/* SPDX-License-Identifier: Apache-2.0 */
/* document_parts.c: from the parts of a prompt to a document (parts.h): the same drafts that a parse makes, with white
 * space preserved.
 *
 * Owns the builder, which lives on the stack of one build. No recursion.
 */
#include "pml/parts.h"

#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "pml/document_internal.h"

/* The path of the last import. */
typedef struct import_path {
    int32_t drafts[PML_MAX_PATH_NAMES];  /* imports, from the outermost inward */
    int32_t modules[PML_MAX_PATH_NAMES]; /* their modules in the schema; -1: none */
    int depth;
} import_path;

typedef struct assembly {
    pml_builder b;
    const pml_document *schema;
    import_path path;
    size_t number; /* of the part, from 1 */
    size_t text_number; /* of the first of the texts in b.pending */
} assembly;

size_t pml_text_check(const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        i += pml_utf8_check(bytes + i, n - i);
        if (i < n && bytes[i] != '\0') return i;
    }
    return n;
}

static int flush_texts(assembly *a) {
    int rc = a->b.pending.len > 0 ? pml_builder_add_text(&a->b, a->b.pending.data, a->b.pending.len, a->text_number) : RP_OK;
    base_buffer_clear(&a->b.pending);
    return rc;
}

/* ---- imports ---- */

/* The last import of that name in `parent`, or -1. */
static int32_t last_import(const assembly *a, int32_t parent, const char *name, size_t n) {
    int32_t last = a->b.drafts[parent].last_child;
    if (last < 0 || a->b.drafts[last].node.kind != PML_IMPORT) return -1;
    const char *of_last = a->b.drafts[last].node.name;
    return strlen(of_last) == n && memcmp(of_last, name, n) == 0 ? last : -1;
}

static int add_import(assembly *a, int32_t parent, const char *name, size_t n, int32_t *out) {
    pml_builder *b = &a->b;
    b->frames[b->depth++].draft = parent;
    int rc = pml_builder_add(b, PML_IMPORT, a->number, out);
    b->depth--;
    if (rc) return rc;
    b->drafts[*out].node.name = pml_storage_string(b->storage, name, n);
    return b->drafts[*out].node.name ? RP_OK : pml_builder_memory(b, a->number, n + 1, "a name");
}

static int assembly_add_module(assembly *a, const pml_part *part) {
    import_path *path = &a->path;
    int32_t parent = a->b.frames[a->b.depth - 1].draft, holder = 0;
    path->depth = 0;
    for (const char *name = part->name; *name != '\0'; name += *name == '/') {
        size_t n = strcspn(name, "/");
        int32_t import = last_import(a, parent, name, n);
        if (import < 0 && add_import(a, parent, name, n, &import)) return a->b.rc;
        if (holder >= 0) holder = pml_find_module(a->schema, holder, name, n);
        path->drafts[path->depth] = parent = import;
        path->modules[path->depth++] = holder;
        name += n;
    }
    return RP_OK;
}

/* ---- arguments ---- */

/* The innermost import of the path with a module that has the parameter; the innermost one if none has. */
static int32_t import_with(const assembly *a, const char *param) {
    for (int i = a->path.depth - 1; i >= 0; i--)
        if (a->path.modules[i] >= 0 && pml_find_param(a->schema, a->path.modules[i], param) >= 0) return a->path.drafts[i];
    return a->path.drafts[a->path.depth - 1];
}

/* Grows an array in the storage at every power of two. */
static bool grow_arguments(pml_storage *s, pml_node *n) {
    int32_t used = n->n_arguments;
    if ((used & (used - 1)) != 0) return true;
    pml_argument *more = pml_storage_take(s, sizeof(*more) * (size_t)BASE_MAX(2 * used, 1));
    if (more && used > 0) memcpy(more, n->arguments, sizeof(*more) * (size_t)used);
    if (more) n->arguments = more;
    return more != NULL;
}

static int assembly_add_argument(assembly *a, const pml_part *part) {
    pml_node *n = &a->b.drafts[import_with(a, part->name)].node;
    for (int32_t i = 0; i < n->n_arguments; i++)
        if (strcmp(n->arguments[i].name, part->name) == 0)
            return pml_builder_fail(&a->b, a->number, RP_ERR_CONFLICT, "argument '%.*s' of '%.*s' is given twice: give it only once",
                                    PML_SHOWN(part->name), PML_SHOWN(n->name));
    pml_argument argument = {.n_value = part->n};
    bool room = grow_arguments(a->b.storage, n);
    if (room) argument.name = pml_storage_string(a->b.storage, part->name, strlen(part->name));
    if (room) argument.value = pml_storage_string(a->b.storage, part->n > 0 ? part->text : "", part->n);
    if (!argument.name || !argument.value) return pml_builder_memory(&a->b, a->number, part->n, "an argument");
    ((pml_argument *)n->arguments)[n->n_arguments++] = argument;
    return RP_OK;
}

/* ---- all of them ---- */

static int assembly_add_role(assembly *a, const pml_part *part) {
    int32_t i;
    if (pml_builder_add(&a->b, PML_ROLE, a->number, &i)) return a->b.rc;
    a->b.drafts[i].node.role = part->role;
    a->b.frames[a->b.depth++].draft = i;
    return RP_OK;
}

static int assembly_add_part(assembly *a, const pml_part *part) {
    int rc;
    if (part->kind == PML_PART_TEXT) {
        if (a->b.pending.len == 0) a->text_number = a->number;
        rc = base_buffer_append(&a->b.pending, part->text, part->n);
        if (rc == RP_ERR_LIMIT) return pml_builder_fail(&a->b, a->number, rc, "the prompt's texts exceed %zu bytes: shorten them", PML_MAX_BYTES);
        return rc ? pml_builder_memory(&a->b, a->number, part->n, "a text") : RP_OK;
    }
    if ((rc = flush_texts(a))) return rc;
    switch (part->kind) {
    case PML_PART_MODULE:
    case PML_PART_DOCUMENT: return assembly_add_module(a, part);
    case PML_PART_ARGUMENT: return assembly_add_argument(a, part);
    case PML_PART_ROLE: return assembly_add_role(a, part);
    default: a->b.depth = 1; return RP_OK;
    }
}

static int add_root(assembly *a) {
    const char *schema = a->schema->nodes[0].name;
    int32_t root;
    if (pml_builder_add(&a->b, PML_PROMPT, 0, &root)) return a->b.rc;
    a->b.drafts[root].node.name = pml_storage_string(a->b.storage, schema, strlen(schema));
    if (!a->b.drafts[root].node.name) return pml_builder_memory(&a->b, 0, strlen(schema), "a name");
    a->b.drafts[root].preserve = true; /* inherited by all its children */
    a->b.frames[a->b.depth++].draft = root;
    return RP_OK;
}

static int assembly_assemble(assembly *a, const pml_part *parts, size_t n) {
    int rc = add_root(a);
    for (size_t i = 0; i < n && !rc; i++) {
        a->number += parts[i].kind != PML_PART_ARGUMENT && parts[i].kind != PML_PART_END;
        rc = assembly_add_part(a, &parts[i]);
    }
    return rc ? rc : flush_texts(a);
}

/* Makes the document of the drafts that `assemble` adds, and frees the builder. */
static int assembly_build(assembly *a, int (*assemble)(assembly *a, const pml_part *parts, size_t n), const pml_part *parts, size_t n,
                          pml_document **out) {
    *out = NULL;
    a->b.storage = base_calloc(1, sizeof *a->b.storage);
    if (!a->b.storage) pml_builder_memory(&a->b, 0, sizeof *a->b.storage, "a document");
    if (a->b.rc == 0 && assemble(a, parts, n) == 0) {
        pml_space_settle(&a->b);
        a->b.rc = pml_builder_document(&a->b, out);
    }
    if (a->b.rc == 0) BASE_TRACE(PML, "build %s: %zu parts, %d nodes, %zu bytes of text", a->b.name, n, (int)(*out)->n_nodes, a->b.text_total);
    base_buffer_free(&a->b.pending);
    base_free(a->b.drafts);
    pml_storage_free(a->b.storage);
    return a->b.rc;
}

int pml_parts_build(pml_document **out, const pml_document *schema, const pml_part *parts, size_t n, const char *name, rp_error *err) {
    assembly a = {.b = {.is_prompt = true, .by_parts = true, .bytes = "", .name = name, .err = err, .pending = BASE_BUFFER(PML_MAX_BYTES)},
                  .schema = schema};
    return assembly_build(&a, assembly_assemble, parts, n, out);
}

/* ---- A schema of documents ---- */

static int assembly_add_named(assembly *a, pml_kind kind, const char *name, int32_t *out) {
    if (pml_builder_add(&a->b, kind, a->number, out)) return a->b.rc;
    pml_node *node = &a->b.drafts[*out].node;
    node->role = -1;
    node->name = pml_storage_string(a->b.storage, name, strlen(name));
    return node->name ? RP_OK : pml_builder_memory(&a->b, a->number, strlen(name), "a name");
}

static int assembly_add_document(assembly *a, const char *name, const char *text, size_t n) {
    int32_t module;
    if (assembly_add_named(a, PML_MODULE, name, &module)) return a->b.rc;
    pml_node *node = &a->b.drafts[module].node;
    node->cache = true;
    node->scope = PML_SCOPE_INHERIT;
    node->anchor = PML_ANCHOR_INHERIT;
    a->b.frames[a->b.depth++].draft = module;
    int rc = n > 0 ? pml_builder_add_text(&a->b, text, n, a->number) : RP_OK;
    a->b.depth--;
    return rc;
}

static int assembly_assemble_schema(assembly *a, const pml_part *parts, size_t n) {
    int32_t root;
    if (assembly_add_named(a, PML_SCHEMA, PML_PARTS_SCHEMA, &root)) return a->b.rc;
    pml_node *node = &a->b.drafts[root].node;
    node->layout = PML_LAYOUT_PACKED;
    node->scope = PML_SCOPE_PATH;
    node->anchor = PML_ANCHOR_NONE;
    a->b.drafts[root].preserve = true;
    a->b.frames[a->b.depth++].draft = root;
    int rc = assembly_add_document(a, "first", ".", 1);
    for (size_t i = 0; i < n && !rc; i++) {
        a->number += parts[i].kind != PML_PART_ARGUMENT && parts[i].kind != PML_PART_END;
        if (parts[i].kind == PML_PART_DOCUMENT) rc = assembly_add_document(a, parts[i].name, parts[i].text, parts[i].n);
    }
    return rc;
}

int pml_parts_schema(pml_document **out, const pml_part *parts, size_t n, const char *name, rp_error *err) {
    assembly a = {.b = {.by_parts = true, .bytes = "", .name = name, .err = err, .pending = BASE_BUFFER(PML_MAX_BYTES)}};
    return assembly_build(&a, assembly_assemble_schema, parts, n, out);
}
