/* SPDX-License-Identifier: Apache-2.0 */
/* split.h: plain prompts -> a schema, and a prompt document for each of them (docs/split.md).
 *
 *   texts --words--> atoms --windows--> classes --runs--> parts --lead, joins, unions--> modules --> PML
 *
 * The documents are PML; nothing here parses them again. Pure functions of the texts and the model; any thread.
 */
#ifndef PML_SPLIT_H
#define PML_SPLIT_H

#include "model/model.h"
#include "reprise_tools.h"

#define PML_SPLIT_MAX_MESSAGES ((size_t)1 << 20) /* of all prompts together */
#define PML_SPLIT_MAX_MODULES ((size_t)1 << 16)
#define PML_SPLIT_ARGUMENT_BYTES 256             /* longer variations do not become arguments */
#define PML_SPLIT_MAX_PARAMS 16                  /* per module */

typedef struct pml_split_document {
    char *bytes; /* NUL-terminated */
    size_t n;
} pml_split_document;

/* Composition of a prompt, in bytes of its text. */
typedef struct pml_split_figures {
    uint64_t total, cached, first, prefix; /* as rp_split_import */
} pml_split_figures;

typedef struct pml_split_module {
    char *name;
    bool is_alternative;
    int32_t n_params, n_prompts;
    size_t n_bytes;
} pml_split_module;

typedef struct pml_split {
    pml_split_document schema;
    pml_split_document *prompts; /* n_prompts */
    pml_split_figures *figures;  /* n_prompts */
    pml_split_module *modules;
    size_t n_modules, n_prompts;
    size_t lead_bytes;
} pml_split;

/* options: rp_split's, with a valid name and min_bytes. *out: pml_split_free. Errors as rp_split. */
int pml_split_new(pml_split **out, const rp_split_prompt *prompts, size_t n, const rp_split_options *options, rp_error *err);
void pml_split_free(pml_split *s);

/* shared[i]: length of the longest prefix that row i shares with an earlier row, in elements. RP_ERR_MEMORY. */
int pml_split_prefixes(const int32_t *const *rows, const size_t *lengths, size_t n, size_t *shared, rp_error *err);

#endif
