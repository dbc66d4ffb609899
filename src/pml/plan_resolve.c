/* SPDX-License-Identifier: Apache-2.0 */
/* plan_resolve.c: the modules that a prompt includes, and the applicable scaffolds. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "pml/plan_internal.h"

#define PATH_BYTES 160

/* ---- imports ---- */

/* A module of that name anywhere in the schema, for a hint; -1 if there is none. */
static int32_t find_anywhere(const pml_document *d, const char *name) {
    for (int32_t i = 0; i < d->n_nodes; i++)
        if (d->nodes[i].kind == PML_MODULE && strcmp(d->nodes[i].name, name) == 0) return i;
    return -1;
}

/* Lists the modules directly in `holder`, as many as fit. */
static void list_modules(const pml_document *d, int32_t holder, char *out, size_t bytes) {
    size_t used = 0;
    for (int32_t i = holder + 1; i < d->n_nodes && used < bytes; i++) {
        if (d->nodes[i].kind != PML_MODULE || pml_holder(d, i) != holder) continue;
        int n = snprintf(out + used, bytes - used, "%s%s", used > 0 ? ", " : ": it has ", d->nodes[i].name);
        if (n < 0 || (size_t)n >= bytes - used) out[used] = '\0'; /* only whole names */
        used = n < 0 ? bytes : used + (size_t)n;
    }
}

static int unknown_module(plan_build *b, int32_t holder, int32_t node) {
    const char *name = b->prompt->nodes[node].name;
    char path[PATH_BYTES], inside[PATH_BYTES + 8] = "", list[PATH_BYTES] = "";
    if (holder > 0) snprintf(inside, sizeof(inside), " in '%s'", pml_path(b->schema, holder, path, sizeof(path)));
    const char *near = pml_nearest_module(b->schema, holder, name);
    int32_t elsewhere = find_anywhere(b->schema, name);
    if (elsewhere >= 0)
        return pml_fail(b->err, RP_ERR_NAME, b->prompt, node,
                        "schema '%s' has no module '%s'%s: import it as '%s', nested", b->schema->nodes[0].name, name,
                        inside, pml_path(b->schema, elsewhere, path, sizeof(path)));
    if (near)
        return pml_fail(b->err, RP_ERR_NAME, b->prompt, node, "schema '%s' has no module '%s'%s: did you mean '%s'?",
                        b->schema->nodes[0].name, name, inside, near);
    list_modules(b->schema, holder, list, sizeof(list));
    return pml_fail(b->err, RP_ERR_NAME, b->prompt, node, "schema '%s' has no module '%s'%s%s",
                    b->schema->nodes[0].name, name, inside, list);
}

static int plan_build_check_arguments(plan_build *b, int32_t module, int32_t node) {
    const pml_node *n = &b->prompt->nodes[node];
    for (int32_t i = 0; i < n->n_arguments; i++) {
        const char *name = n->arguments[i].name;
        if (pml_find_param(b->schema, module, name) >= 0) continue;
        const char *near = pml_nearest_param(b->schema, module, name);
        return pml_fail(b->err, RP_ERR_NAME, b->prompt, node, "module '%s' has no parameter '%s'%s%s%s", n->name, name,
                        near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    return RP_OK;
}

static int take_import(plan_build *b, int32_t holder, int32_t node) {
    const pml_node *n = &b->prompt->nodes[node];
    int32_t module = pml_find_module(b->schema, holder, n->name, strlen(n->name));
    if (module < 0) return unknown_module(b, holder, node);
    BASE_ASSERT(b->import_of[module] < 0); /* the parser refuses a module that is imported twice */
    int32_t u = pml_union_of(b->schema, module);
    if (u >= 0 && b->taken_of[u] >= 0)
        return pml_fail(b->err, RP_ERR_CONFLICT, b->prompt, node,
                        "'%s' and '%s' are members of one union: import one of them",
                        b->schema->nodes[b->taken_of[u]].name, n->name);
    if (u >= 0) b->taken_of[u] = module;
    b->import_of[module] = node;
    b->plan->included[module] = true;
    int rc = plan_build_check_arguments(b, module, node);
    for (int32_t c = n->first_child; c >= 0 && !rc; c = b->prompt->nodes[c].next)
        if (b->prompt->nodes[c].kind == PML_IMPORT) rc = take_import(b, module, c);
    return rc;
}

/* Takes the imports among the children of the prompt or of one of its roles. */
static int take_imports(plan_build *b, int32_t parent) {
    int rc = RP_OK;
    for (int32_t c = b->prompt->nodes[parent].first_child; c >= 0 && !rc; c = b->prompt->nodes[c].next) {
        if (b->prompt->nodes[c].kind == PML_IMPORT) rc = take_import(b, 0, c);
        else if (b->prompt->nodes[c].kind == PML_ROLE) rc = take_imports(b, c);
    }
    return rc;
}

const pml_argument *plan_argument(const plan_build *b, int32_t holder, const char *param) {
    if (b->import_of[holder] < 0) return NULL;
    const pml_node *n = &b->prompt->nodes[b->import_of[holder]];
    for (int32_t i = 0; i < n->n_arguments; i++)
        if (strcmp(n->arguments[i].name, param) == 0) return &n->arguments[i];
    return NULL;
}

/* ---- scaffolds ---- */

static const pml_scaffold *largest_fitting(const plan_build *b, const bool *claimed) {
    const pml_scaffold *best = NULL;
    for (int32_t i = 0; i < b->layout->n_scaffolds; i++) {
        const pml_scaffold *s = &b->layout->scaffolds[i];
        bool fits = !best || s->n_modules > best->n_modules;
        for (int32_t k = 0; fits && k < s->n_modules; k++)
            fits = b->plan->included[s->modules[k]] && !claimed[s->modules[k]];
        if (fits) best = s;
    }
    return best;
}

static int choose_scaffolds(plan_build *b) {
    const pml_layout *l = b->layout;
    for (int32_t i = l->first_plain; i < l->n_plain; i++) b->instead[i] = i;
    if (l->n_scaffolds == 0) return RP_OK;
    bool *claimed = base_calloc((size_t)b->schema->n_nodes, sizeof(bool));
    if (!claimed) return base_fail_memory(b->err, (uint64_t)b->schema->n_nodes, "scaffolds");
    for (const pml_scaffold *s; (s = largest_fitting(b, claimed));) {
        for (int32_t i = 0; i < s->n_modules; i++) claimed[s->modules[i]] = true;
        for (int32_t i = s->first_segment; i < s->first_segment + s->n_segments; i++) {
            int32_t plain = l->segments[i].joint_of;
            BASE_ASSERT(plain >= l->first_plain && plain < l->n_plain);
            if (b->instead[plain] == plain) b->instead[plain] = i;
        }
    }
    base_free(claimed);
    return RP_OK;
}

/* ---- own segments ---- */

/* Lists the segments of the prompt by their source: the nearest enclosing imported module, or the schema. Segments of
 * defaults belong to the source that encloses the union. */
static int link_own_segments(plan_build *b) {
    int32_t n_nodes = b->schema->n_nodes;
    int32_t *last = base_alloc((size_t)n_nodes * sizeof(int32_t));
    if (!last) return base_fail_memory(b->err, (uint64_t)n_nodes * 4, "a plan");
    for (int32_t i = b->layout->first_plain; i < b->layout->n_plain; i++) {
        int32_t holder = b->layout->segments[i].holder;
        b->next_own[i] = -1;
        if (!b->plan->included[holder]) continue;
        while (holder > 0 && b->import_of[holder] < 0) holder = pml_holder(b->schema, holder);
        if (b->first_own[holder] < 0) b->first_own[holder] = i;
        else b->next_own[last[holder]] = i;
        last[holder] = i;
    }
    base_free(last);
    return RP_OK;
}

int plan_resolve(plan_build *b) {
    int rc;
    b->plan->included[0] = true;
    if ((rc = take_imports(b, 0))) return rc;
    pml_include_defaults(b->schema, b->plan->included);
    if ((rc = choose_scaffolds(b))) return rc;
    return link_own_segments(b);
}
