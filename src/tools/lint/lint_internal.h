/* SPDX-License-Identifier: Apache-2.0 */
/* lint_internal.h: internals shared by lint*.c only.
 *
 *   lint.c           all checks; findings from the layout alone
 *   lint_use.c       prompts: imports, combinations, arguments
 *   lint_space.c     text borders and indentation
 *   lint_names.c     references to text outside the module
 *   lint_template.c  the model's chat template
 *   lint_places.c    modules' places, and what they see of each other
 *   lint_report.c    the list of findings
 */
#ifndef TOOLS_LINT_INTERNAL_H
#define TOOLS_LINT_INTERNAL_H

#include "base/compiler.h"
#include "tools/lint/lint.h"
#include "reprise_tools.h"

/* Use of a parameter by prompts. */
typedef struct lint_param {
    int32_t n_given, n_too_long, longest; /* number of arguments; number that are too long; tokens of the longest */
    char *sample;                         /* the first argument given, or NULL */
} lint_param;

/* Use of the schema by prompts, by its nodes. */
typedef struct lint_use {
    int32_t *imported;  /* modules: prompts that include it, defaults too */
    int32_t *with_next; /* modules: prompts that import it and, directly after it, the next module */
    lint_param *params; /* parameters */
    int32_t n_planned;  /* prompts that were planned */
} lint_use;

/* Which document a finding is in; findings are sorted by it. */
typedef enum lint_source { LINT_OF_SCHEMA,
                           LINT_OF_PROMPT,
                           LINT_OF_TEMPLATE } lint_source;

typedef struct lint_entry {
    rp_lint_finding f;
    size_t number; /* order of discovery */
    lint_source source;
    char *strings; /* owns the strings of f */
} lint_entry;

typedef struct lint {
    const pml_layout *l;
    const pml_document *d;
    int32_t n_ctx;
    lint_entry *entries;
    size_t n_entries, cap_entries, n_left_out;
    size_t n_others;
    int32_t *tokens;       /* by node: a module's own tokens, without holes */
    int32_t *end;          /* by node: the first node after all that it holds */
    int32_t *first, *last; /* by node: a holder's segments are in this range, itself included; first > last: none */
    bool *is_grouped;      /* by node: a module in a finding of `together` or `always` */
    lint_use use;
    rp_error *err;
} lint;

/* A place in a document. */
typedef struct lint_place {
    const char *document;
    int32_t line, column;
    lint_source source;
} lint_place;

/* Adds a finding; module: a node of the schema, -1: none. Messages are cut at RP_ERROR_MESSAGE_BYTES. RP_ERR_MEMORY. */
int lint_add_at(lint *x, rp_lint_code code, const lint_place *place, int32_t module, const char *fmt, ...)
    BASE_PRINTF(5, 6);
/* At a node of the schema; the module is the node or the one around it. */
#define lint_add(x, code, node, ...) \
    lint_add_at(x, code, \
                &(lint_place){(x)->d->name, (x)->d->nodes[node].line, (x)->d->nodes[node].column, LINT_OF_SCHEMA}, \
                (x)->d->nodes[node].kind == PML_MODULE ? (node) : pml_holder((x)->d, node), __VA_ARGS__)

/* Makes the result, which owns the findings from then on. RP_ERR_MEMORY: they stay in the list. */
int lint_hand_over(lint *x, rp_lint **out);
void lint_entries_free(lint_entry *entries, size_t n);

/* Ends of what each node holds; own tokens and segments of holders. The arrays are allocated, and zeros. */
void lint_measure(lint *x);
/* Whether the module's text attends to the holder's (a module or the schema) when it is prefilled. */
bool lint_has_seen(const lint *x, int32_t module, int32_t holder);
/* Whether no prompt has both modules: they are in different members of one union. */
bool lint_excludes(const lint *x, int32_t a, int32_t b);
/* Whether a scaffold prefills them together. */
bool lint_is_joint(const lint *x, int32_t a, int32_t b);
/* The module directly after this one, with nothing between them that gives text; -1: none. Members of unions have
 * none. */
int32_t lint_next_module(const lint *x, int32_t module);
/* Whether it holds only texts and parameters. */
bool lint_is_leaf(const lint *x, int32_t module);
bool lint_has_params(const lint *x, int32_t module);
/* Whether its KV is cached and reused as it is: neither cache="false" nor quality="exact". */
bool lint_is_reused(const lint *x, int32_t holder);
/* Reused, and never prefilled together with other modules: quality is below "scaffold". */
bool lint_is_read_alone(const lint *x, int32_t holder);

/* Reads the prompts into x->use and adds the findings that depend on them alone. */
int lint_read_use(lint *x, const rp_lint_prompt *prompts, size_t n_prompts);
int lint_check_params(lint *x);
int lint_check_together(lint *x); /* marks is_grouped */
void lint_use_free(lint_use *use, int32_t n_nodes);

int lint_check_space(lint *x);
int lint_check_names(lint *x);
/* Needs no schema. */
int lint_check_template(lint *x, const rp_model *model);

#endif
