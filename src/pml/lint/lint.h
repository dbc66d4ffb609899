/* lint.h: what could be better in a schema, and in the way prompts use it: rp_schema_lint's work. docs/lint.md says what is found and why.
 *
 *   layout --walk--> findings      sizes, unions, positions, scopes (lint.c), borders of texts (lint_space.c), words (lint_names.c)
 *   prompts --> use --> findings   who imports what with what, argument by argument (lint_use.c)
 *
 * Computes nothing and changes nothing. One thread a call.
 */
#ifndef PML_LINT_H
#define PML_LINT_H

#include "pml/layout.h"

/* Thresholds. A finding is worth reading or it is not made: each has its reason in docs/lint.md. */
#define LINT_SMALL_TOKENS 16      /* modules below it are too small to pay */
#define LINT_UNION_TOKENS 64      /* empty positions of a union that are worth a word, if they are also half of it: a block's */
#define LINT_BEGINNING_TOKENS 8   /* less before the first modules is no beginning */
#define LINT_BEHIND_TOKENS 32     /* text behind a parameter */
#define LINT_INDENT_TOKENS 8      /* of indentation; and one in 50 of all */
#define LINT_HOLE_TOKENS 2        /* a parameter may be so much longer than its longest argument, */
#define LINT_LEAST_PROMPTS 5      /* fewer say nothing about what is always so */
#define LINT_NEAR_BYTES 160       /* of a module's text in which "the above" means what stands before the module */

/* l: of the schema; n_ctx: positions, > 0. RP_ERR_MEMORY. *out: pml_lint_free. */
int pml_lint(const pml_layout *l, const rp_lint_prompt *prompts, size_t n_prompts, int32_t n_ctx, rp_lint **out, rp_error *err);
void pml_lint_free(rp_lint *made); /* NULL is fine */

#endif
