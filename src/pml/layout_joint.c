/* SPDX-License-Identifier: Apache-2.0 */
/* layout_joint.c: scaffolds: segments that are prefilled jointly in addition to separately.
 *
 * A scaffold acts as a prompt: the modules that it names, their enclosing modules, and the segments that are then
 * certain. Each of its segments gets a joint twin. The scope of a twin is every earlier joint segment. If the twin's
 * module is named and has scope `module`, the scope is limited to the named modules, after its anchor if it has one.
 */
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "pml/layout_internal.h"

/* The module of a path such as "plan/miami"; the parser has checked that it exists. */
static int32_t layout_joint_find_path(const pml_document *d, const char *path, size_t n) {
    int32_t node = 0;
    while (n > 0 && node >= 0) {
        const char *slash = memchr(path, '/', n);
        size_t part = slash ? (size_t)(slash - path) : n;
        node = pml_find_module(d, node, path, part);
        n -= slash ? part + 1 : part;
        path += slash ? part + 1 : part;
    }
    return node;
}

static int read_modules(const pml_layout *l, pml_scaffold *s, rp_error *err) {
    const char *p = l->schema->nodes[s->node].scaffold;
    s->modules = base_calloc(strlen(p) / 2 + 1, sizeof(int32_t));
    if (!s->modules) return base_fail_memory(err, strlen(p) * 2, "a scaffold");
    while (*p) {
        while (pml_is_space(*p)) p++;
        size_t n = 0;
        while (p[n] && !pml_is_space(p[n])) n++;
        if (n == 0) break;
        int32_t m = layout_joint_find_path(l->schema, p, n);
        if (m <= 0)
            return pml_fail(err, RP_ERR_NAME, l->schema, s->node, "scaffold names an unknown module '%.*s'", (int)n, p);
        s->modules[s->n_modules++] = m;
        p += n;
    }
    return RP_OK;
}

/* Marks the modules of the scaffold's prompt. named: the modules that the scaffold names. */
static int mark_included(const pml_layout *l, const pml_scaffold *s, bool *named, bool *included, rp_error *err) {
    const pml_document *d = l->schema;
    included[0] = true;
    for (int32_t i = 0; i < s->n_modules; i++) {
        named[s->modules[i]] = true;
        for (int32_t m = s->modules[i]; m > 0; m = pml_holder(d, m)) included[m] = true;
    }
    for (int32_t m = 0; m < d->n_nodes; m++) {
        int32_t u = included[m] && d->nodes[m].kind == PML_MODULE ? pml_union_of(d, m) : -1;
        if (u < 0) continue;
        for (int32_t other = d->nodes[m].next; other >= 0; other = d->nodes[other].next)
            if (included[other])
                return pml_fail(
                    err, RP_ERR_CONFLICT, d, s->node,
                    "scaffold names '%s' and '%s', two members of one union: a prompt imports only one of them",
                    d->nodes[m].name, d->nodes[other].name);
    }
    pml_include_defaults(d, included);
    return RP_OK;
}

static int add_twin(pml_layout *l, int32_t index, const pml_scaffold *s, int32_t scaffold, const bool *named,
                    rp_error *err) {
    pml_segment twin = l->segments[index];
    BASE_ASSERT(twin.joint_of < 0 && index < l->n_plain); /* twins are of plain segments */
    bool keeps_to_named = named[twin.holder] && l->scope_of[twin.holder] == PML_SCOPE_MODULE;
    int32_t packed = 0, first = s->first_segment, end = l->n_segments;
    twin.joint_of = index;
    twin.scaffold = scaffold;
    twin.first_scope = l->n_scopes;
    twin.n_scope = 0;
    if (keeps_to_named && pml_is_anchored(l, twin.holder)) {
        int rc = pml_layout_add_scope(l, PML_ANCHOR_SEGMENT, err);
        if (rc) return rc;
        twin.n_scope = packed = 1;
    }
    for (int32_t i = first; i < end; i++) {
        if (keeps_to_named && !named[l->segments[i].holder]) continue;
        int rc = pml_layout_add_scope(l, i, err);
        if (rc) return rc;
        twin.n_scope++;
        packed += l->segments[i].n_tokens;
    }
    if (!l->fixed) twin.pos = packed;
    return pml_layout_add_segment(l, &twin, err);
}

static int layout_joint_join(pml_layout *l, int32_t scaffold, bool *named, bool *included, rp_error *err) {
    pml_scaffold *s = &l->scaffolds[scaffold];
    int rc;
    if ((rc = read_modules(l, s, err)) || (rc = mark_included(l, s, named, included, err))) return rc;
    s->first_segment = l->n_segments;
    for (int32_t i = l->first_plain; i < l->n_plain; i++) {
        if (!included[l->segments[i].holder]) continue;
        if ((rc = add_twin(l, i, s, scaffold, named, err))) return rc;
        s->n_segments++;
    }
    return RP_OK;
}

int pml_layout_join(pml_layout *l, rp_error *err) {
    const pml_document *d = l->schema;
    int32_t n = 0;
    for (int32_t i = 0; i < d->n_nodes; i++) n += d->nodes[i].kind == PML_SCAFFOLD;
    if (n == 0) return RP_OK;
    size_t marks_bytes = (size_t)d->n_nodes * sizeof(bool);
    bool *marks = base_alloc(2 * marks_bytes);
    l->scaffolds = base_calloc((size_t)n, sizeof(*l->scaffolds));
    int rc = marks && l->scaffolds ? RP_OK : base_fail_memory(err, marks_bytes, "scaffolds");
    for (int32_t i = 0; i < d->n_nodes && !rc; i++) {
        if (d->nodes[i].kind != PML_SCAFFOLD) continue;
        memset(marks, 0, 2 * marks_bytes);
        l->scaffolds[l->n_scaffolds++].node = i;
        rc = layout_joint_join(l, l->n_scaffolds - 1, marks, marks + d->n_nodes, err);
    }
    base_free(marks);
    return rc;
}
