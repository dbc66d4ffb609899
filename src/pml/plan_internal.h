/* plan_internal.h: what the files of the plan share: the state of building one.
 *
 *   plan_resolve.c   imports -> modules, scaffolds that fit
 *   plan_order.c     entries in prompt order, and their positions
 *   plan_quality.c   which tokens are computed again
 *   plan.c           entries -> items; public functions
 */
#ifndef PML_PLAN_INTERNAL_H
#define PML_PLAN_INTERNAL_H

#include "pml/plan.h"

/* A segment, or a text of the prompt's own, in prompt order. */
typedef struct plan_entry {
    int32_t segment;    /* or -1; joint twins where a scaffold fits */
    int32_t node;       /* of the prompt, for errors */
    int32_t import;     /* segments: the prompt's outermost import that brings it, -1 for anonymous text */
    int32_t pos, n_tokens;
    size_t first_token; /* texts: in the plan's tokens */
    size_t order;
    bool opens_answer;  /* the chat format's assistant prefix: stands behind everything */
} plan_entry;

typedef struct plan_build {
    pml_plan *plan;
    const pml_layout *layout;
    const pml_document *schema, *prompt;
    const rp_model *model;
    rp_error *err;

    /* by node of the schema */
    int32_t *import_of; /* the prompt's node that imports it, or -1 */
    int32_t *taken_of;  /* a union's member that is imported, or -1 */
    int32_t *first_own; /* the next own segment to emit of an imported module or the schema, or -1 */
    /* by segment */
    int32_t *next_own;  /* the own segment after it, or -1 */
    int32_t *instead;   /* the joint twin that is taken for it, or itself */

    plan_entry *entries;
    size_t n_entries, cap_entries;
    int previous_role;
    int32_t open_role; /* the prompt's node of a role that the answer goes on in, or -1 */
    int32_t import; /* the outermost import that is being emitted */
    rp_quality quality; /* of the request */
    rp_quality least;   /* of modules that neither it nor the prompt says one for */
} plan_build;

int plan_resolve(plan_build *b);
int plan_leave_open(plan_build *b); /* the role that the prompt ends with */
int plan_order(plan_build *b);
int plan_place(plan_build *b);
/* plan_quality.c: what holds for the modules of the entries; tokens that are computed again. */
void plan_find_quality(plan_build *b);
rp_quality plan_quality_of(const plan_build *b, int32_t holder);
int plan_turn_dial(pml_plan *p, rp_error *err);
/* plan.c */
const pml_argument *plan_argument(const plan_build *b, int32_t holder, const char *param); /* that the prompt gives; NULL: none */
int plan_add_item(pml_plan *p, const pml_item *item, rp_error *err);

#endif
