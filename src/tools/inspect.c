/* SPDX-License-Identifier: Apache-2.0 */
/* inspect.c: rp_engine_inspect: a schema as a tree, and the tiles of a prompt. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "engine/core/engine_state.h"
#include "engine/core/fallback.h"
#include "engine/core/identity.h"
#include "engine/core/job.h"
#include "engine/core/prompts.h"
#include "engine/core/schemas.h"
#include "kv/kv_format.h"
#include "pml/document.h"
#include "pml/layout.h"
#include "pml/plan.h"
#include "reprise_tools.h"
#include "reprise_pml.h"

#define PREVIEW_BYTES 64

/* Owns the strings that an inspection points to. */
typedef struct inspection_owner {
    char *schema;
    char *strings; /* [n_nodes][PATH + PREVIEW + name], then [items of the plan][PATH] */
    pml_document *prompt;
    pml_plan *plan;
    rp_schema *held; /* a reference while it is made */
} inspection_owner;

#define NODE_STRINGS (2 * JOB_PATH_BYTES + PREVIEW_BYTES)

static const char *kind_name(const pml_node *n) {
    switch (n->kind) {
    case PML_SCHEMA: return "schema";
    case PML_MODULE: return "module";
    case PML_UNION: return "union";
    case PML_PARAM: return "param";
    case PML_SCAFFOLD: return "scaffold";
    case PML_ROLE: return rp_role_name((rp_role)n->role);
    default: return "text";
    }
}

/* The first characters of a text, every stretch of white space as one space, cut between characters. */
static void inspect_preview(const char *text, size_t n, char out[PREVIEW_BYTES]) {
    size_t used = 0;
    for (size_t i = 0; i < n && used < PREVIEW_BYTES - 1; i++) {
        bool space = (unsigned char)text[i] <= ' ';
        if (space && (used == 0 || out[used - 1] == ' ')) continue;
        out[used++] = space ? ' ' : text[i];
    }
    while (used == PREVIEW_BYTES - 1 && used > 0 && ((unsigned char)out[used - 1] & 0xc0) == 0x80) used--;
    if (used > 0 && ((unsigned char)out[used - 1] & 0xc0) == 0xc0) used--;
    BASE_ASSERT(used < PREVIEW_BYTES);
    out[used] = '\0';
}

/* Own tokens, canonical position and key of a module (or the schema): those of its first, and for the key its last
 * segment. One without own text has the position that it begins at. */
static void describe_holder(const pml_layout *l, int32_t node, rp_inspect_node *out) {
    out->position = l->position[node];
    for (int32_t i = l->first_plain; i < l->n_plain; i++) {
        const pml_segment *s = &l->segments[i];
        if (s->holder != node) continue;
        if (out->n_tokens == 0) out->position = s->pos;
        out->n_tokens += s->n_tokens;
        base_key_hex(&pml_segment_keys(l, s)[s->n_spans - 1], out->key, 16);
        out->kv_format = kv_format_name(s->format);
    }
}

static void describe_param(const pml_layout *l, int32_t node, rp_inspect_node *out) {
    out->n_tokens = l->schema->nodes[node].param_len;
    for (int32_t i = l->first_plain; i < l->n_plain; i++)
        for (int32_t h = 0; h < l->segments[i].n_holes; h++) {
            const pml_hole *hole = &pml_segment_holes(l, &l->segments[i])[h];
            if (hole->param == node) out->position = l->segments[i].pos + hole->offset;
        }
}

/* A union shows its longest member and where its members start. Its members come later in document order and are
   described by then. */
static void describe_unions(const pml_document *d, rp_inspect_node *nodes) {
    for (int32_t u = d->n_nodes - 1; u >= 0; u--) {
        if (d->nodes[u].kind != PML_UNION) continue;
        for (int32_t m = d->nodes[u].first_child; m >= 0; m = d->nodes[m].next) {
            if (nodes[m].n_tokens > nodes[u].n_tokens) nodes[u].n_tokens = nodes[m].n_tokens;
            if (m == d->nodes[u].first_child) nodes[u].position = nodes[m].position;
        }
    }
}

static bool inspect_is_taken(const pml_document *d, const pml_plan *plan, int32_t node) {
    if (!plan) return false;
    bool module = d->nodes[node].kind == PML_MODULE || d->nodes[node].kind == PML_SCHEMA;
    if (d->nodes[node].kind == PML_UNION) {
        for (int32_t m = d->nodes[node].first_child; m >= 0; m = d->nodes[m].next)
            if (plan->included[m]) return true;
        return false;
    }
    return plan->included[module ? node : pml_holder(d, node)];
}

static void describe_node(const pml_layout *l, const pml_plan *plan, int32_t i, rp_inspect_node *out, char *strings) {
    const pml_node *n = &l->schema->nodes[i];
    char *path = strings, *name = strings + JOB_PATH_BYTES, *shown = strings + 2 * JOB_PATH_BYTES;
    bool holder = n->kind == PML_MODULE || n->kind == PML_SCHEMA;
    int32_t depth = 0;
    for (int32_t around = n->parent; around >= 0; around = l->schema->nodes[around].parent) depth++;
    snprintf(name, JOB_PATH_BYTES, "%s", n->kind == PML_SCAFFOLD ? n->scaffold : n->name ? n->name
                                                                                         : "");
    *out = (rp_inspect_node){.kind = kind_name(n),
                             .name = name,
                             .path = path,
                             .preview = shown,
                             .kv_format = "",
                             .depth = depth,
                             .taken = inspect_is_taken(l->schema, plan, i),
                             .cached = n->kind != PML_MODULE || n->cache};
    pml_path(l->schema, holder ? i : pml_holder(l->schema, i), path, JOB_PATH_BYTES);
    if (n->kind == PML_TEXT) inspect_preview(n->text, n->n_text, shown);
    if (holder) describe_holder(l, i, out);
    if (n->kind == PML_PARAM) describe_param(l, i, out);
}

static int32_t n_holes(const pml_plan *plan, const pml_item *item) {
    return item->is_view ? plan->layout->segments[item->segment].n_holes : 0;
}

static size_t most_tiles(const pml_plan *plan) {
    size_t n = 0;
    for (size_t i = 0; plan && i < plan->n_items; i++) n += 1 + (size_t)n_holes(plan, &plan->items[i]);
    return n;
}

/* Tiles of one item: a view is cut where its parameters leave holes. */
static void add_tiles(rp_inspection *x, const pml_plan *plan, const pml_item *item, char *path) {
    int32_t begin = 0;
    if (item->holder < 0) snprintf(path, JOB_PATH_BYTES, "prompt");
    else pml_path(plan->layout->schema, item->holder, path, JOB_PATH_BYTES);
    for (int32_t h = 0; h <= n_holes(plan, item); h++) {
        bool last = h == n_holes(plan, item);
        const pml_hole *hole =
            last ? NULL : &pml_segment_holes(plan->layout, &plan->layout->segments[item->segment])[h];
        int32_t end = last ? item->n_tokens : BASE_MIN(hole->offset, item->n_tokens);
        BASE_ASSERT(last || hole->offset >= begin); /* holes rise */
        if (end > begin)
            x->tiles[x->n_tiles++] = (rp_inspect_tile){.path = path,
                                                       .position = item->pos + begin,
                                                       .n_tokens = end - begin,
                                                       .is_view = item->is_view,
                                                       .exact = item->exact,
                                                       .shift = item->shift};
        begin = last ? end : hole->offset + hole->len;
    }
}

static int inspect_fill(rp_inspection *x, inspection_owner *o, const pml_layout *l, rp_error *err) {
    const pml_node *root = &l->schema->nodes[0];
    size_t n_nodes = (size_t)l->schema->n_nodes, n_items = o->plan ? o->plan->n_items : 0;
    x->nodes = base_calloc(n_nodes, sizeof(*x->nodes));
    x->tiles = base_calloc(most_tiles(o->plan) + 1, sizeof(*x->tiles));
    o->strings = base_calloc(n_nodes * NODE_STRINGS + n_items * JOB_PATH_BYTES, 1);
    o->schema = base_strdup(root->name);
    if (!x->nodes || !x->tiles || !o->strings || !o->schema)
        return base_fail_memory(err, n_nodes * NODE_STRINGS, "an inspection");
    x->schema = o->schema;
    x->layout = l->fixed ? "fixed" : "packed";
    x->scope = root->scope == PML_SCOPE_MODULE ? "module" : "path";
    x->schema_positions = l->length;
    x->prompt_positions = o->plan ? o->plan->end : 0;
    for (size_t i = 0; i < n_nodes; i++)
        describe_node(l, o->plan, (int32_t)i, &x->nodes[i], o->strings + i * NODE_STRINGS);
    describe_unions(l->schema, x->nodes);
    for (size_t i = 0; i < n_items; i++)
        add_tiles(x, o->plan, &o->plan->items[i], o->strings + n_nodes * NODE_STRINGS + i * JOB_PATH_BYTES);
    BASE_ASSERT((size_t)x->n_tiles <= most_tiles(o->plan));
    x->n_nodes = (int32_t)n_nodes;
    return RP_OK;
}

/* Input of an inspection: `built`, or `prompt` and `schema`, one of which may be NULL. */
typedef struct inspected {
    const char *schema, *prompt;
    const rp_builder *built;
    const char *name; /* of the prompt in errors */
} inspected;

static int inspect_parse(rp_engine *e, const base_key *salt, const inspected *what, inspection_owner *o,
                         rp_error *err) {
    int rc = what->prompt ? pml_prompt_parse(&o->prompt, what->prompt, strlen(what->prompt), what->name, err) : RP_OK;
    if (rc) return rc;
    rc = what->schema ? engine_find_schema(e, salt, what->schema, &o->held, err)
                      : engine_find_schema_of(e, salt, o->prompt, &o->held, err);
    if (!rc) rc = engine_use_schema(e, &o->held, NULL, err);
    if (rc || !what->prompt || strcmp(o->prompt->nodes[0].name, o->held->name) == 0) return rc;
    return pml_fail(err, RP_ERR_NAME, o->prompt, 0, "the prompt is for schema '%s', not for '%s'",
                    o->prompt->nodes[0].name, o->held->name);
}

static int inspect_build(rp_engine *e, const base_key *salt, const inspected *what, inspection_owner *o,
                         rp_error *err) {
    const char *schema = builder_schema(what->built);
    int rc = builder_check(what->built, err);
    if (!rc)
        rc = schema ? engine_find_schema(e, salt, schema, &o->held, err)
                    : builder_make_schema(what->built, e, salt, what->name, NULL, &o->held, err);
    if (!rc) rc = engine_use_schema(e, &o->held, NULL, err);
    return rc ? rc : builder_build(what->built, o->held->document, what->name, &o->prompt, err);
}

static int inspect_new(rp_engine *e, const char *tenant, inspected what, rp_inspection **out, rp_error *err) {
    base_key salt;
    *out = NULL;
    if (!what.name) what.name = "prompt";
    int rc = engine_salt(e, tenant, &salt, err);
    if (rc) return rc;
    rp_inspection *x = base_calloc(1, sizeof(*x));
    inspection_owner *o = base_calloc(1, sizeof(*o));
    if (!x || !o) {
        base_free(x);
        base_free(o);
        return base_fail_memory(err, sizeof(*x), "an inspection");
    }
    x->struct_size = (uint32_t)sizeof(*x);
    x->owner = o;
    rc = what.built ? inspect_build(e, &salt, &what, o, err) : inspect_parse(e, &salt, &what, o, err);
    if (!rc && o->prompt)
        rc = pml_plan_new(&o->plan, o->held->layout, o->prompt, false, (rp_quality){0}, (rp_quality){0}, err);
    if (!rc) rc = inspect_fill(x, o, o->held->layout, err);
    engine_schema_unref(e, o->held);
    if (rc) rp_inspection_free(x);
    else *out = x;
    return rc;
}

int rp_engine_inspect(rp_engine *e, const char *tenant, const char *schema, const char *prompt, const char *prompt_name,
                      rp_inspection **out, rp_error *err) {
    if (!e || !out || (!schema && !prompt))
        return base_fail(err, RP_ERR_INVALID, "rp_engine_inspect: engine, out, and schema or prompt are needed");
    return inspect_new(e, tenant, (inspected){.schema = schema, .prompt = prompt, .name = prompt_name}, out, err);
}

int rp_engine_inspect_prompt(rp_engine *e, const char *tenant, const rp_builder *prompt, const char *prompt_name,
                             rp_inspection **out, rp_error *err) {
    if (!e || !out || !prompt)
        return base_fail(err, RP_ERR_INVALID, "rp_engine_inspect_prompt: engine, prompt and out are needed");
    return inspect_new(e, tenant, (inspected){.built = prompt, .name = prompt_name}, out, err);
}

void rp_inspection_free(rp_inspection *x) {
    if (!x) return;
    inspection_owner *o = x->owner;
    pml_plan_free(o->plan);
    pml_document_free(o->prompt);
    base_free(o->strings);
    base_free(o->schema);
    base_free(o);
    base_free(x->nodes);
    base_free(x->tiles);
    base_free(x);
}
