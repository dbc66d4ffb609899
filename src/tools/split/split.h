/* SPDX-License-Identifier: Apache-2.0 */
/* split.h: plain prompts -> a schema, and a prompt document for each of them (docs/split.md).
 *
 *   texts --words--> atoms --windows--> classes --runs--> parts --lead, joins, unions--> modules --> PML
 *
 * The documents are PML; nothing here parses them again. Pure functions of the texts and the model; any thread.
 */
#ifndef TOOLS_SPLIT_H
#define TOOLS_SPLIT_H

#include "model/model.h"
#include "reprise_tools.h"

#define SPLIT_MAX_MESSAGES ((size_t)1 << 20) /* of all prompts together */
#define SPLIT_MAX_MODULES ((size_t)1 << 16)
#define SPLIT_ARGUMENT_BYTES 256 /* longer variations do not become arguments */
#define SPLIT_MAX_PARAMS 16      /* per module */

typedef struct split_document {
    char *bytes; /* NUL-terminated */
    size_t n;
} split_document;

/* Composition of a prompt, in bytes of its text. */
typedef struct split_figures {
    uint64_t total, cached, first, prefix; /* as rp_split_import */
} split_figures;

typedef struct split_proposed_module {
    char *name;
    bool is_alternative;
    int32_t n_params, n_prompts;
    size_t n_bytes;
} split_proposed_module;

typedef struct split_proposed {
    split_document schema;
    split_document *prompts; /* n_prompts */
    split_figures *figures;  /* n_prompts */
    split_proposed_module *modules;
    size_t n_modules, n_prompts;
    size_t lead_bytes;
} split_proposed;

/* options: rp_split's, with a valid name and min_bytes. *out: split_free. Errors as rp_split. */
int split_new(split_proposed **out, const rp_split_prompt *prompts, size_t n, const rp_split_options *options,
              rp_error *err);
void split_free(split_proposed *s);

/* shared[i]: length of the longest prefix that row i shares with an earlier row, in elements. RP_ERR_MEMORY. */
int split_prefixes(const int32_t *const *rows, const size_t *lengths, size_t n, size_t *shared, rp_error *err);

#endif
