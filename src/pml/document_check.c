/* SPDX-License-Identifier: Apache-2.0 */
/* document_check.c: conversion of drafts to nodes, and checks that need the whole document.
 *
 *   finish_nodes      drafts without empty texts, with new links
 *   index_names       modules, imports and parameters by (holder, name); the document keeps the index for lookups
 *   check_names       (holder, name) is unique
 *   check_default     a union's default is one of its members
 *   check_scaffolds   paths name modules, no two of them members of one union
 *
 * Linear or n log n in the document's size, for any contents.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "pml/document_internal.h"

/* Data of the checks of one document. */
typedef struct checker {
    pml_builder *b;
    pml_document *d;
    pml_storage *s;
} checker;

static size_t pml_builder_offset_of(const pml_builder *b, int32_t node) {
    size_t low = (size_t)node, high = b->n_drafts; /* a draft's final index is never above its own */
    while (low + 1 < high && b->drafts[low].final != node) low++;
    BASE_ASSERT(b->drafts[low].final == node);
    return b->drafts[low].offset;
}

/* ---- Nodes ---- */

static void link_node(checker *c, pml_draft *draft, int32_t i) {
    pml_node *n = &c->d->nodes[i];
    BASE_ASSERT((draft->node.parent < 0) == (i == 0)); /* the root alone has no parent */
    *n = draft->node;
    n->first_child = n->next = -1;
    draft->final = i;
    draft->last_child = -1; /* from now on: the last node linked under it */
    if (n->parent < 0) return;
    pml_draft *parent = &c->b->drafts[n->parent];
    BASE_ASSERT(parent->final >= 0 && parent->final < i); /* texts alone are omitted, and have no children */
    n->parent = parent->final;
    if (parent->last_child < 0) c->d->nodes[parent->final].first_child = i;
    else c->d->nodes[parent->last_child].next = i;
    parent->last_child = i;
}

static int finish_nodes(checker *c) {
    pml_builder *b = c->b;
    size_t n = 0;
    for (size_t i = 0; i < b->n_drafts; i++) n += b->drafts[i].node.kind != PML_TEXT || b->drafts[i].node.n_text > 0;
    c->d->nodes = base_calloc(n, sizeof *c->d->nodes);
    if (!c->d->nodes) return pml_builder_memory(b, 0, n * sizeof *c->d->nodes, "the document's tree");
    for (size_t i = 0; i < b->n_drafts; i++)
        if (b->drafts[i].node.kind != PML_TEXT || b->drafts[i].node.n_text > 0)
            link_node(c, &b->drafts[i], c->d->n_nodes++);
    BASE_ASSERT((size_t)c->d->n_nodes == n);
    return 0;
}

/* ---- Names ---- */

static bool pml_node_has_name(const pml_node *n) {
    return n->kind == PML_MODULE || n->kind == PML_IMPORT || n->kind == PML_PARAM;
}

static int pml_named_compare_named(const pml_named *x, const pml_named *y) {
    if (x->holder != y->holder) return x->holder < y->holder ? -1 : 1;
    if (x->is_param != y->is_param) return x->is_param ? 1 : -1;
    return strcmp(x->name, y->name);
}

static int document_check_compare_entries(const void *x, const void *y) {
    const pml_named *a = x, *b = y;
    int order = pml_named_compare_named(a, b);
    return order != 0 ? order : (a->node > b->node) - (a->node < b->node);
}

static int index_names(checker *c) {
    size_t n = 0;
    for (int32_t i = 0; i < c->d->n_nodes; i++) n += pml_node_has_name(&c->d->nodes[i]);
    c->s->named = base_calloc(n, sizeof *c->s->named);
    if (!c->s->named) return pml_builder_memory(c->b, 0, n * sizeof *c->s->named, "the document's names");
    for (int32_t i = 0; i < c->d->n_nodes; i++) {
        const pml_node *node = &c->d->nodes[i];
        if (!pml_node_has_name(node)) continue;
        c->s->named[c->s->n_named++] = (pml_named){
            .holder = pml_holder(c->d, i), .node = i, .is_param = node->kind == PML_PARAM, .name = node->name};
    }
    BASE_ASSERT(c->s->n_named == n);
    qsort(c->s->named, n, sizeof *c->s->named, document_check_compare_entries);
    return 0;
}

static int fail_twice(checker *c, int32_t first, int32_t second) {
    const pml_node *a = &c->d->nodes[first], *b = &c->d->nodes[second];
    const char *what = b->kind == PML_PARAM ? "parameter" : "module";
    if (b->kind == PML_IMPORT)
        return pml_builder_fail(c->b, pml_builder_offset_of(c->b, second), RP_ERR_CONFLICT,
                                "the module \"%.*s\" is already imported in %s %d: import it once", PML_SHOWN(b->name),
                                c->b->by_parts ? "part" : "line", (int)a->line);
    return pml_builder_fail(c->b, pml_builder_offset_of(c->b, second), RP_ERR_CONFLICT,
                            "duplicate %s \"%.*s\", first in line %d: rename one of them", what, PML_SHOWN(b->name),
                            (int)a->line);
}

/* Reports the first duplicate name in document order. */
static int checker_check_names(checker *c) {
    const pml_named *named = c->s->named;
    size_t found = 0;
    for (size_t i = 1; i < c->s->n_named; i++)
        if (pml_named_compare_named(&named[i - 1], &named[i]) == 0 && (found == 0 || named[i].node < named[found].node))
            found = i;
    return found > 0 ? fail_twice(c, named[found - 1].node, named[found].node) : 0;
}

/* ---- Defaults and scaffolds ---- */

static int check_default(checker *c, int32_t i) {
    const char *name = c->d->nodes[i].scaffold;
    base_guess guess = {.name = name};
    for (int32_t m = c->d->nodes[i].first_child; m >= 0; m = c->d->nodes[m].next) {
        if (strcmp(c->d->nodes[m].name, name) == 0) return 0;
        base_guess_offer(&guess, c->d->nodes[m].name);
    }
    if (guess.best)
        return pml_builder_fail(c->b, pml_builder_offset_of(c->b, i), RP_ERR_NAME,
                                "scaffold=\"%.*s\" in <union>: unknown member; did you mean \"%.*s\"?", PML_SHOWN(name),
                                PML_SHOWN(guess.best));
    return pml_builder_fail(c->b, pml_builder_offset_of(c->b, i), RP_ERR_NAME,
                            "scaffold=\"%.*s\" in <union>: unknown member; name one of its modules", PML_SHOWN(name));
}

/* For each node, in the scaffold being checked (by its node; 0: none yet): */
typedef struct scaffold_mark {
    int32_t scaffold; /* the last one that named the module, or chose a member of the union */
    int32_t member;   /* unions: the chosen one */
} scaffold_mark;

static int fail_path(checker *c, int32_t scaffold, int32_t holder, const char *path, size_t n_path, const char *part,
                     size_t n_part) {
    int shown_path = (int)BASE_MIN(n_path, (size_t)60);
    char name[65] = "";
    if (n_part < sizeof name) memcpy(name, part, n_part);
    const char *best = name[0] ? pml_nearest_module(c->d, holder, name) : NULL;
    if (best)
        return pml_builder_fail(c->b, pml_builder_offset_of(c->b, scaffold), RP_ERR_NAME,
                                "modules names \"%.*s\": unknown module \"%s\"; did you mean \"%.*s\"?", shown_path,
                                path, name, PML_SHOWN(best));
    return pml_builder_fail(
        c->b, pml_builder_offset_of(c->b, scaffold), RP_ERR_NAME,
        "modules names \"%.*s\", which is not a module of this schema: write names from the outermost inward, as a/b",
        shown_path, path);
}

/* The module of a path "a/b" of n bytes. */
static int checker_find_path(checker *c, int32_t scaffold, const char *path, size_t n, int32_t *out) {
    const char *part = path, *end = path + n;
    int32_t module = 0;
    for (;;) {
        const char *slash = memchr(part, '/', (size_t)(end - part));
        size_t n_part = (size_t)((slash ? slash : end) - part);
        int32_t found = pml_find_module(c->d, module, part, n_part);
        if (found < 0) return fail_path(c, scaffold, module, path, n, part, n_part);
        module = found;
        if (!slash) break;
        part = slash + 1;
    }
    *out = module;
    return 0;
}

/* Adds the module and its enclosing modules to the scaffold. Each must be the only member of its union. */
static int mark_module(checker *c, scaffold_mark *marks, int32_t scaffold, int32_t module) {
    if (marks[module].scaffold == scaffold)
        return pml_builder_fail(c->b, pml_builder_offset_of(c->b, scaffold), RP_ERR_CONFLICT,
                                "modules names \"%.*s\" twice: name it once", PML_SHOWN(c->d->nodes[module].name));
    marks[module].scaffold = scaffold;
    for (int32_t i = module; i > 0; i = pml_holder(c->d, i)) {
        int32_t u = pml_union_of(c->d, i);
        if (u < 0) continue;
        if (marks[u].scaffold == scaffold && marks[u].member != i)
            return pml_builder_fail(c->b, pml_builder_offset_of(c->b, scaffold), RP_ERR_CONFLICT,
                                    "\"%.*s\" and \"%.*s\" are members of one union, and a prompt imports only one "
                                    "member: name one of them",
                                    PML_SHOWN(c->d->nodes[marks[u].member].name), PML_SHOWN(c->d->nodes[i].name));
        marks[u] = (scaffold_mark){.scaffold = scaffold, .member = i};
    }
    return 0;
}

static int check_scaffold(checker *c, scaffold_mark *marks, int32_t scaffold) {
    const char *s = c->d->nodes[scaffold].scaffold;
    size_t n_paths = 0;
    for (;;) {
        int32_t module = -1;
        while (pml_is_space(*s)) s++;
        if (!*s) break;
        size_t n = strcspn(s, " \t\r\n");
        if (checker_find_path(c, scaffold, s, n, &module) != 0 || mark_module(c, marks, scaffold, module) != 0)
            return c->b->rc;
        n_paths++;
        s += n;
    }
    if (n_paths >= 2) return 0;
    return pml_builder_fail(c->b, pml_builder_offset_of(c->b, scaffold), RP_ERR_SYNTAX,
                            "<scaffold> prefills modules jointly: name two or more in modules, separated by spaces");
}

static int check_scaffolds(checker *c) {
    scaffold_mark *marks = NULL;
    int rc = 0;
    for (int32_t i = 1; i < c->d->n_nodes && rc == 0; i++) {
        if (c->d->nodes[i].kind != PML_SCAFFOLD) continue;
        if (!marks && !(marks = base_calloc((size_t)c->d->n_nodes, sizeof *marks)))
            rc = pml_builder_memory(c->b, 0, (size_t)c->d->n_nodes * sizeof *marks, "scaffolds");
        else rc = check_scaffold(c, marks, i);
    }
    base_free(marks);
    return rc;
}

int pml_document_finish(pml_builder *b, pml_document *d) {
    checker c = {.b = b, .d = d, .s = d->owner};
    int rc = finish_nodes(&c);
    if (rc == 0) rc = index_names(&c);
    if (rc == 0) rc = checker_check_names(&c);
    for (int32_t i = 1; rc == 0 && i < d->n_nodes; i++)
        if (d->nodes[i].kind == PML_UNION && d->nodes[i].scaffold) rc = check_default(&c, i);
    return rc == 0 ? check_scaffolds(&c) : rc;
}
