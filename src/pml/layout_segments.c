/* SPDX-License-Identifier: Apache-2.0 */
/* layout_segments.c: segments and scopes of a layout under construction, and what follows from one segment. The walk,
 * the scaffolds and the keys use it; it uses none of them.
 */
#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "pml/layout_internal.h"

int pml_layout_add_segment(pml_layout *l, const pml_segment *s, rp_error *err) {
    BASE_ASSERT(s->holder >= 0 && s->holder < l->schema->n_nodes);
    int rc =
        base_grow((void **)&l->segments, &l->cap_segments, (size_t)l->n_segments + 1, PML_MAX_SEGMENTS, sizeof(*s));
    if (rc) return base_fail(err, rc, "schema '%s': more than %d segments", l->schema->nodes[0].name, l->n_segments);
    l->segments[l->n_segments++] = *s;
    /* Its format is that of the innermost module that names one, or of the schema. */
    const pml_node *nodes = l->schema->nodes;
    int32_t holder = s->holder;
    for (; holder > 0 && !nodes[holder].has_kv; holder = nodes[holder].parent) {}
    const bool has_kv = nodes[holder].has_kv && (!l->formats.falls_back || !kv_format_is_small(nodes[holder].kv));
    l->segments[l->n_segments - 1].format = has_kv ? nodes[holder].kv : l->formats.modules;
    return RP_OK;
}

int pml_layout_add_scope(pml_layout *l, int32_t segment, rp_error *err) {
    BASE_ASSERT(segment >= 0 && segment < l->n_segments); /* invariant 2 */
    int rc = base_grow((void **)&l->scopes, &l->cap_scopes, l->n_scopes + 1, PML_MAX_SCOPE, sizeof(int32_t));
    if (rc) return base_fail(err, rc, "schema '%s': the scopes are too long in total", l->schema->nodes[0].name);
    l->scopes[l->n_scopes++] = segment;
    return RP_OK;
}

int32_t pml_scope_position(const pml_layout *l, const pml_segment *s, int32_t i, int32_t *cursor) {
    BASE_DCHECK(i >= 0 && i < s->n_scope);
    const pml_segment *t = &l->segments[pml_segment_scope(l, s)[i]];
    if (l->fixed) return t->pos;
    int32_t pos = *cursor;
    *cursor += t->n_tokens;
    return pos;
}

int pml_segment_readers(const pml_layout *l, const pml_segment *s, kv_positions **out, rp_error *err) {
    const pml_hole *holes = pml_segment_holes(l, s);
    *out = NULL;
    if (s->n_holes == 0) return RP_OK;
    *out = base_calloc((size_t)s->n_holes, sizeof(**out));
    if (!*out) return base_fail_memory(err, (uint64_t)s->n_holes * sizeof(**out), "a module");
    BASE_DCHECK(holes[s->n_holes - 1].offset + holes[s->n_holes - 1].len <= s->n_tokens);
    for (int32_t i = 0; i < s->n_holes; i++)
        (*out)[i] = (kv_positions){s->pos + holes[i].offset - 1, s->pos + holes[i].offset + holes[i].len};
    return RP_OK;
}
