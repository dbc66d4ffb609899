/* SPDX-License-Identifier: Apache-2.0 */
/* plan_internal.h: state of a plan under construction, shared by its files.
 *
 *   plan.c           making a plan: uses all others; entries -> items; conversations
 *   plan_resolve.c   imports -> modules, their arguments, applicable scaffolds
 *   plan_order.c     entries in prompt order, and their positions
 *   plan_quality.c   which tokens are recomputed
 *   plan_items.c     the list of items; a plan as a flat prompt
 */
#ifndef PML_PLAN_INTERNAL_H
#define PML_PLAN_INTERNAL_H

#include "pml/plan.h"

/* A segment, or a text of the prompt itself, in prompt order. */
typedef struct plan_entry {
    int32_t segment; /* or -1; a joint twin where a scaffold applies */
    int32_t node;    /* of the prompt, for errors */
    int32_t import;  /* segments: the prompt's outermost import that includes it, -1 for anonymous text */
    int32_t pos, n_tokens;
    size_t first_token; /* texts: in the plan's tokens */
    size_t order;
    bool opens_answer; /* the generation prompt of the chat format: after everything else */
} plan_entry;

typedef struct plan_build {
    pml_plan *plan;
    const pml_layout *layout;
    const pml_document *schema, *prompt;
    const rp_model *model;
    rp_error *err;

    /* by node of the schema */
    int32_t *import_of; /* the prompt's node that imports it, or -1 */
    int32_t *taken_of;  /* the imported member of a union, or -1 */
    int32_t *first_own; /* the next own segment to emit of an imported module or the schema, or -1 */
    /* by segment */
    int32_t *next_own; /* the own segment after it, or -1 */
    int32_t *instead;  /* the joint twin that replaces it, or itself */

    plan_entry *entries;
    size_t n_entries, cap_entries;
    int previous_role;
    int32_t open_role;  /* the prompt's node of the role that the answer continues, or -1 */
    int32_t import;     /* the outermost import that is being emitted */
    rp_quality quality; /* of the request */
    rp_quality least;   /* minimum for modules without a quality from request or prompt */
} plan_build;

/* plan_resolve.c */
int plan_resolve(plan_build *b);
/* The argument that the prompt gives; NULL: none. */
const pml_argument *plan_argument(const plan_build *b, int32_t holder, const char *param);
/* plan_order.c */
int plan_leave_open(plan_build *b); /* the role at the end of the prompt */
int plan_order(plan_build *b);
int plan_place(plan_build *b);
/* plan_quality.c: effective quality of the entries' modules; recomputed tokens. */
void plan_find_quality(plan_build *b);
rp_quality plan_quality_of(const plan_build *b, int32_t holder);
int plan_turn_dial(pml_plan *p, rp_error *err);
/* Recurrent layers: the states before the last token of a module are not known. Recomputes a view without it whole. */
int plan_compute_last(pml_plan *p, rp_error *err);
/* plan_items.c. RP_ERR_LIMIT, RP_ERR_MEMORY. */
int plan_add_item(pml_plan *p, const pml_item *item, rp_error *err);

#endif
