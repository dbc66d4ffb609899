/* SPDX-License-Identifier: Apache-2.0 */
/* layout_internal.h: declarations shared by the files of the layout.
 *
 *   layout.c            the walk over a schema; uses all others
 *   layout_joint.c      joint twins of scaffolds
 *   layout_keys.c       keys of spans
 *   layout_reduced.c    which segments have reduced KV, and its keys
 *   layout_segments.c   segments and scopes under construction
 *   layout_tokens.c     texts as tokens
 */
#ifndef PML_LAYOUT_INTERNAL_H
#define PML_LAYOUT_INTERNAL_H

#include "pml/layout.h"

/* layout_segments.c. RP_ERR_LIMIT, RP_ERR_MEMORY. */
int pml_layout_add_segment(pml_layout *l, const pml_segment *s, rp_error *err);
int pml_layout_add_scope(pml_layout *l, int32_t segment, rp_error *err);
/* Whether the own segments of a node have the anchor in their scope. The schema's own segments begin with that
 * token. */
static inline bool pml_is_anchored(const pml_layout *l, int32_t node) {
    return l->first_plain > 0 && node != 0 && l->scope_of[node] == PML_SCOPE_MODULE &&
           l->anchor_of[node] == PML_ANCHOR_BOS;
}
/* Adds the joint twins of every scaffold (layout_joint.c). */
int pml_layout_join(pml_layout *l, rp_error *err);
/* Computes the keys of all spans (layout_keys.c). */
int pml_layout_name(pml_layout *l, const base_key *salt, rp_error *err);
/* Then: which segments have reduced KV, and its names (layout_reduced.c). */
void pml_layout_reduce(pml_layout *l);

#endif
