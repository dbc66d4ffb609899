/* layout_internal.h: what the files of the layout share. */
#ifndef PML_LAYOUT_INTERNAL_H
#define PML_LAYOUT_INTERNAL_H

#include "pml/layout.h"

int pml_layout_add_segment(pml_layout *l, const pml_segment *s, rp_error *err);
int pml_layout_add_scope(pml_layout *l, int32_t segment, rp_error *err);
/* Adds the joint twins of every scaffold (layout_joint.c). */
int pml_layout_join(pml_layout *l, rp_error *err);
/* Computes the keys of all spans (layout_keys.c). */
int pml_layout_name(pml_layout *l, const base_key *salt, rp_error *err);

#endif
