/* SPDX-License-Identifier: Apache-2.0 */
/* lint.h: warnings about a schema and its use by prompts: the implementation of rp_schema_lint. docs/lint.md lists them
 * with reasons.
 *
 *   layout --walk--> findings      sizes, unions, positions, scopes (lint.c), text borders (lint_space.c), words
 *         (lint_names.c)
 *   prompts --> use --> findings   imports, combinations and arguments (lint_use.c)
 *   chat template --> findings     text that it changes (lint_template.c)
 *
 * Computes nothing and changes nothing. Each call uses one thread.
 */
#ifndef TOOLS_LINT_H
#define TOOLS_LINT_H

#include "pml/layout.h"
#include "reprise_tools.h"

/* Thresholds: findings below them are not worth reporting. docs/lint.md gives the reason for each. */
#define LINT_SMALL_TOKENS 16    /* smaller modules do not pay */
#define LINT_UNION_TOKENS 64    /* reported empty positions of a union, if they are also half of it: one block */
#define LINT_BEGINNING_TOKENS 8 /* less text before the first modules is no start of a text */
#define LINT_BEHIND_TOKENS 32   /* text after a parameter */
#define LINT_INDENT_TOKENS 8    /* of indentation; and one in 50 of all tokens */
#define LINT_HOLE_TOKENS 2      /* allowed excess of a parameter over its longest argument */
#define LINT_LEAST_PROMPTS 5    /* minimum number of prompts for statistics */
#define LINT_NEAR_BYTES 160     /* bytes of a module's text in which "the above" means the text before the module */

/* l: layout of the schema; n_ctx: positions, > 0. RP_ERR_MEMORY. *out: rp_lint_free. */
int lint_layout(const pml_layout *l, const rp_lint_prompt *prompts, size_t n_prompts, int32_t n_ctx, rp_lint **out,
                rp_error *err);

#endif
