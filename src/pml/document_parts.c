/* SPDX-License-Identifier: Apache-2.0 */
/* document_parts.c: from the parts of a prompt to a document (parts.h): the same drafts that a parse makes, with white
 * space preserved.
 *
 * Owns the builder, which lives on the stack of one build. No recursion.
 */
#include "pml/parts.h"

#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "pml/document_internal.h"

/* The path of the last import. */
typedef struct import_path {
    int32_t drafts[PML_MAX_PATH_NAMES];  /* imports, from the outermost inward */
    int32_t modules[PML_MAX_PATH_NAMES]; /* their modules in the schema; -1: none */
    int depth;
} import_path;

/* Where a part of a message belongs (parts.h); ordered: a part with several modules belongs where the last of theirs
   does. */
typedef enum part_place { PLACE_INSIDE,
                          PLACE_OUTSIDE,
                          PLACE_BARE } part_place;

typedef struct open_message {
    int role;     /* -1: no message is open */
    bool is_bare; /* it is a role of the schema */
    bool role_is_open;
    bool has_content;
} open_message;

typedef struct assembly {
    pml_builder b; /* b.part: number of the part, from 1 */
    const pml_document *schema;
    import_path path;
    open_message message;
    bool has_roles; /* a role or a message began before */
} assembly;

size_t pml_text_check(const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        i += pml_utf8_check(bytes + i, n - i);
        if (i < n && bytes[i] != '\0') return i;
    }
    return n;
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
    BASE_ASSERT(b->depth < PML_MAX_DEPTH);
    b->frames[b->depth++].draft = parent;
    int rc = pml_builder_add(b, PML_IMPORT, a->b.part, out);
    b->depth--;
    if (rc) return rc;
    b->drafts[*out].node.name = pml_storage_string(b->storage, name, n);
    return b->drafts[*out].node.name ? RP_OK : pml_builder_memory(b, a->b.part, n + 1, "a name");
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
        BASE_ASSERT(path->depth < PML_MAX_PATH_NAMES); /* parts.h; rp_builder_import refuses longer ones */
        path->drafts[path->depth] = parent = import;
        path->modules[path->depth++] = holder;
        name += n;
    }
    return RP_OK;
}

/* ---- arguments ---- */

/* The innermost import of the path with a module that has the parameter; the innermost one if none has. */
static int32_t import_with(const assembly *a, const char *param) {
    BASE_ASSERT(a->path.depth > 0); /* an argument belongs to the module before it */
    for (int i = a->path.depth - 1; i >= 0; i--)
        if (a->path.modules[i] >= 0 && pml_find_param(a->schema, a->path.modules[i], param) >= 0)
            return a->path.drafts[i];
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
            return pml_builder_fail(&a->b, a->b.part, RP_ERR_CONFLICT,
                                    "argument '%.*s' of '%.*s' is given twice: give it only once",
                                    PML_SHOWN(part->name), PML_SHOWN(n->name));
    pml_argument argument = {.n_value = part->n};
    bool room = grow_arguments(a->b.storage, n);
    if (room) argument.name = pml_storage_string(a->b.storage, part->name, strlen(part->name));
    if (room) argument.value = pml_storage_string(a->b.storage, part->n > 0 ? part->text : "", part->n);
    if (!argument.name || !argument.value) return pml_builder_memory(&a->b, a->b.part, part->n, "an argument");
    ((pml_argument *)n->arguments)[n->n_arguments++] = argument;
    return RP_OK;
}

/* ---- roles and messages ---- */

static int assembly_open_role(assembly *a, int role) {
    BASE_ASSERT(a->b.rc == 0 && a->b.depth == 1); /* roles do not nest */
    int32_t i;
    if (pml_builder_flush_text(&a->b) || pml_builder_add(&a->b, PML_ROLE, a->b.part, &i)) return a->b.rc;
    a->b.drafts[i].node.role = role;
    pml_element_open(&a->b, i, true);
    a->has_roles = true;
    return RP_OK;
}

static int assembly_close_role(assembly *a) {
    BASE_ASSERT(a->b.depth <= 2);
    a->b.depth = 1;
    return a->message.role_is_open = false;
}

/* The outermost module of a path, or -1. */
static int32_t outermost_module(const pml_document *schema, const char *path) {
    return pml_find_module(schema, 0, path, strcspn(path, "/"));
}

/* Unknown modules are reported by the plan. */
static part_place place_of_module(const pml_document *schema, int32_t module) {
    if (module < 0) return PLACE_INSIDE;
    if (pml_role_of(schema, module) >= 0) return PLACE_BARE;
    return pml_contains_role(schema, module) ? PLACE_OUTSIDE : PLACE_INSIDE;
}

/* *module: the last one that is in a role of the schema, if the place is bare. */
static part_place place_of_part(const pml_document *schema, const pml_part *part, int32_t *module) {
    part_place place = PLACE_INSIDE;
    if (part->kind == PML_PART_MODULE) return place_of_module(schema, *module = outermost_module(schema, part->name));
    if (part->kind != PML_PART_PML) return PLACE_INSIDE;
    const pml_node *nodes = part->content->nodes;
    for (int32_t i = nodes[0].first_child; i >= 0; i = nodes[i].next) {
        int32_t imported = nodes[i].kind == PML_IMPORT ? outermost_module(schema, nodes[i].name) : -1;
        part_place one = nodes[i].kind == PML_ROLE ? PLACE_OUTSIDE : place_of_module(schema, imported);
        if (one == PLACE_BARE) *module = imported;
        place = BASE_MAX(place, one);
    }
    return place;
}

/* Can the message be the role of the schema that the module is in? */
static int check_bare(assembly *a, size_t number, int32_t module, int role) {
    const char *around = pml_role_name(pml_role_of(a->schema, module)), *name = a->schema->nodes[module].name;
    if (pml_role_of(a->schema, module) != role)
        return pml_builder_fail(&a->b, number, RP_ERR_CONFLICT,
                                "module '%.*s' is in the schema's <%s>: import it in a message of that role, not of %s",
                                PML_SHOWN(name), around, pml_role_name(role));
    if (!a->has_roles) return RP_OK;
    return pml_builder_fail(&a->b, number, RP_ERR_CONFLICT,
                            "module '%.*s' is in the schema's own <%s>, before all messages: import it in the first "
                            "message, or move it out of the role",
                            PML_SHOWN(name), around);
}

/* part: the message; end: of all parts. */
static int assembly_begin_message(assembly *a, const pml_part *part, const pml_part *end) {
    size_t number = a->b.part;
    BASE_ASSERT(a->message.role < 0); /* the one before has ended */
    a->message = (open_message){.role = part->role};
    for (const pml_part *p = part + 1; p < end && p->kind != PML_PART_END; p++) {
        int32_t module = -1;
        number += p->kind != PML_PART_ARGUMENT;
        if (place_of_part(a->schema, p, &module) != PLACE_BARE) continue;
        if (check_bare(a, number, module, part->role)) return a->b.rc;
        a->message.is_bare = true;
    }
    return RP_OK;
}

/* Opens or closes the message's role for a part of it. */
static int assembly_place(assembly *a, const pml_part *part) {
    int32_t module;
    open_message *m = &a->message;
    if (m->role < 0) return RP_OK;
    m->has_content = true;
    if (place_of_part(a->schema, part, &module) == PLACE_OUTSIDE)
        return m->role_is_open ? assembly_close_role(a) : RP_OK;
    if (m->is_bare || m->role_is_open) return RP_OK;
    m->role_is_open = true;
    return assembly_open_role(a, m->role);
}

/* A message without content is an empty role. */
static int assembly_end(assembly *a) {
    if (a->message.role >= 0 && !a->message.has_content && !a->b.rc) assembly_open_role(a, a->message.role);
    a->has_roles |= a->message.role >= 0;
    a->message.role = -1;
    assembly_close_role(a);
    return a->b.rc;
}

/* ---- all of them ---- */

static int assembly_add_text(assembly *a, const pml_part *part) {
    if (a->b.pending.len == 0) a->b.pending_offset = a->b.part;
    int rc = base_buffer_append(&a->b.pending, part->text, part->n);
    if (rc == RP_ERR_LIMIT)
        return pml_builder_fail(&a->b, a->b.part, rc, "the prompt's texts exceed %zu bytes: shorten them",
                                PML_MAX_BYTES);
    return rc ? pml_builder_memory(&a->b, a->b.part, part->n, "a text") : RP_OK;
}

/* The ranges are copied into the document. */
static int assembly_add_rendered(assembly *a, const pml_part *part) {
    if (part->n == 0 || pml_builder_add_text(&a->b, part->text, part->n, a->b.part)) return a->b.rc;
    tokenizer_range *trusted = pml_storage_take(a->b.storage, (part->n_trusted + 1) * sizeof(*trusted));
    if (!trusted) return pml_builder_memory(&a->b, a->b.part, part->n_trusted * sizeof(*trusted), "a text");
    if (part->n_trusted > 0) memcpy(trusted, part->trusted, part->n_trusted * sizeof(*trusted));
    pml_node *node = &a->b.drafts[a->b.n_drafts - 1].node;
    node->trusted = trusted;
    node->n_trusted = part->n_trusted;
    return RP_OK;
}

static int assembly_add_part(assembly *a, const pml_part *part, const pml_part *end) {
    int rc = RP_OK;
    if (part->kind != PML_PART_TEXT) rc = pml_builder_flush_text(&a->b);
    if (!rc && part->kind < PML_PART_ROLE && part->kind != PML_PART_ARGUMENT) rc = assembly_place(a, part);
    if (rc) return rc;
    switch (part->kind) {
    case PML_PART_TEXT: return assembly_add_text(a, part);
    case PML_PART_RENDERED: return assembly_add_rendered(a, part);
    case PML_PART_MODULE:
    case PML_PART_DOCUMENT: return assembly_add_module(a, part);
    case PML_PART_ARGUMENT: return assembly_add_argument(a, part);
    case PML_PART_PML: return pml_builder_graft(&a->b, part->text, part->n);
    case PML_PART_ROLE: return assembly_open_role(a, part->role);
    case PML_PART_MESSAGE: return assembly_begin_message(a, part, end);
    default: return assembly_end(a);
    }
}

static int add_root(assembly *a) {
    const char *schema = a->schema->nodes[0].name;
    int32_t root;
    if (pml_builder_add(&a->b, PML_PROMPT, 0, &root)) return a->b.rc;
    a->b.drafts[root].node.name = pml_storage_string(a->b.storage, schema, strlen(schema));
    if (!a->b.drafts[root].node.name) return pml_builder_memory(&a->b, 0, strlen(schema), "a name");
    a->b.drafts[root].preserve = true; /* inherited by all its children */
    pml_element_open(&a->b, root, true);
    return RP_OK;
}

static int assembly_assemble(assembly *a, const pml_part *parts, size_t n) {
    int rc = add_root(a);
    for (size_t i = 0; i < n && !rc; i++) {
        a->b.part += parts[i].kind != PML_PART_ARGUMENT && parts[i].kind != PML_PART_END;
        rc = assembly_add_part(a, &parts[i], parts + n);
    }
    if (!rc) rc = pml_builder_flush_text(&a->b);
    return rc ? rc : assembly_end(a);
}

/* Joins texts that follow each other: one of a part and one of PML. They are tokenized as one text, as in a PML
   prompt. */
static int assembly_join_texts(assembly *a) {
    pml_draft *drafts = a->b.drafts, *last = NULL; /* the text directly before */
    for (size_t i = 0; i < a->b.n_drafts && !a->b.rc; i++) {
        pml_draft *d = &drafts[i];
        bool is_text = d->node.kind == PML_TEXT && d->node.n_text > 0;
        bool follows =
            is_text && last && last->node.parent == d->node.parent && !last->node.trusted && !d->node.trusted;
        if (follows) {
            const size_t n = last->node.n_text;
            char *joined = pml_storage_take(a->b.storage, n + d->node.n_text + 1);
            if (!joined) return pml_builder_memory(&a->b, d->offset, n + d->node.n_text, "a text");
            memcpy(joined, last->node.text, n);
            memcpy(joined + n, d->node.text, d->node.n_text + 1);
            d->node.text = joined;
            d->node.n_text += n;
            d->node.text_continues = last->node.text_continues;
            last->node.n_text = 0; /* empty texts are omitted from the document */
        }
        if (is_text || d->node.kind != PML_TEXT) last = is_text ? d : NULL;
    }
    return a->b.rc;
}

/* Makes the document of the drafts that `assemble` adds, and frees the builder. */
static int assembly_build(assembly *a, int (*assemble)(assembly *a, const pml_part *parts, size_t n),
                          const pml_part *parts, size_t n, pml_document **out) {
    *out = NULL;
    a->b.storage = base_calloc(1, sizeof *a->b.storage);
    if (!a->b.storage) pml_builder_memory(&a->b, 0, sizeof *a->b.storage, "a document");
    if (a->b.rc == 0 && assemble(a, parts, n) == 0) {
        pml_space_settle(&a->b);
        if (assembly_join_texts(a) == 0) a->b.rc = pml_builder_document(&a->b, out);
    }
    if (a->b.rc == 0)
        BASE_TRACE(PML, "build %s: %zu parts, %d nodes, %zu bytes of text", a->b.name, n, (int)(*out)->n_nodes,
                   a->b.text_total);
    base_buffer_free(&a->b.pending);
    base_free(a->b.drafts);
    pml_storage_free(a->b.storage);
    return a->b.rc;
}

int pml_parts_build(pml_document **out, const pml_document *schema, const pml_part *parts, size_t n, const char *name,
                    rp_error *err) {
    assembly a = {.b = {.is_prompt = true,
                        .by_parts = true,
                        .bytes = "",
                        .name = name,
                        .err = err,
                        .pending = BASE_BUFFER(PML_MAX_BYTES)},
                  .schema = schema,
                  .message = {.role = -1}};
    return assembly_build(&a, assembly_assemble, parts, n, out);
}

/* ---- A schema of documents ---- */

static int assembly_add_named(assembly *a, pml_kind kind, const char *name, int32_t *out) {
    if (pml_builder_add(&a->b, kind, a->b.part, out)) return a->b.rc;
    pml_node *node = &a->b.drafts[*out].node;
    node->role = -1;
    node->name = pml_storage_string(a->b.storage, name, strlen(name));
    return node->name ? RP_OK : pml_builder_memory(&a->b, a->b.part, strlen(name), "a name");
}

static int assembly_add_document(assembly *a, const char *name, const char *text, size_t n) {
    BASE_ASSERT(a->b.depth == 1);
    int32_t module;
    if (assembly_add_named(a, PML_MODULE, name, &module)) return a->b.rc;
    pml_node *node = &a->b.drafts[module].node;
    node->cache = true;
    node->scope = PML_SCOPE_INHERIT;
    node->anchor = PML_ANCHOR_INHERIT;
    a->b.frames[a->b.depth++].draft = module;
    int rc = n > 0 ? pml_builder_add_text(&a->b, text, n, a->b.part) : RP_OK;
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
        a->b.part += parts[i].kind != PML_PART_ARGUMENT && parts[i].kind != PML_PART_END;
        if (parts[i].kind == PML_PART_DOCUMENT) rc = assembly_add_document(a, parts[i].name, parts[i].text, parts[i].n);
    }
    return rc;
}

int pml_parts_schema(pml_document **out, const pml_part *parts, size_t n, const char *name, rp_error *err) {
    assembly a = {
        .b = {.by_parts = true, .bytes = "", .name = name, .err = err, .pending = BASE_BUFFER(PML_MAX_BYTES)}};
    return assembly_build(&a, assembly_assemble_schema, parts, n, out);
}
