/* SPDX-License-Identifier: Apache-2.0 */
/* random_pml.h: random valid schemas, and random valid prompts for them, for tests.
 *
 * A schema nests up to four modules deep and holds unions with and without defaults, parameters, roles, scaffolds,
 * mixed scopes and anchors, cache="false", xml:space and white space of every kind. A prompt takes a subset of its
 * modules in any order, with arguments, text between them, roles and several turns. The same generator state gives the
 * same documents everywhere. Modules begin and end with texts, modules, unions and roles. Valid means well-formed and
 * without unknown names or excluding members; in a fixed layout a text may still not fit its gap, one argument in forty
 * is too long on purpose, and where may_be_too_long is set so is one placeholder in 120. Running out of memory ends the
 * program.
 */
#ifndef SUPPORT_RANDOM_PML_H
#define SUPPORT_RANDOM_PML_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "model/tokenizer/tokenizer.h"
#include "tiny_random.h"

#define RANDOM_PML_MODULES 24
#define RANDOM_PML_PARAMS 3
#define RANDOM_PML_SCAFFOLDS 3
#define RANDOM_PML_NAMED 4

typedef enum random_pml_layout { RANDOM_PML_ANY,
                                 RANDOM_PML_PACKED,
                                 RANDOM_PML_FIXED } random_pml_layout;

typedef struct random_pml_module {
    char name[16];
    char path[128];
    int32_t parent;   /* -1: the schema */
    int32_t union_id; /* -1: in none */
    bool has_role;    /* it or a module inside it */
    int32_t n_params;
    int32_t param_len[RANDOM_PML_PARAMS]; /* of p0, p1, p2 */
} random_pml_module;

typedef struct random_pml {
    tiny_random *r;
    base_buffer schema, prompt; /* documents, NUL-terminated */
    random_pml_layout layout;   /* of the schemas to generate; may be set after init */
    int32_t shorter;            /* divisor for the words of a text, 1 by init: for many tokens per word */
    bool dial;                  /* quality="..." here and there: reuse, link, blend and exact; false by init */
    bool formats;               /* kv="..." here and there; false by init */
    bool longer;                /* a third of the texts has up to 120 words; false by init */
    bool may_be_too_long;       /* placeholders; false by init */
    bool fixed;
    random_pml_module modules[RANDOM_PML_MODULES];
    int32_t n_modules, n_unions;
    int32_t scaffolds[RANDOM_PML_SCAFFOLDS][RANDOM_PML_NAMED]; /* modules; -1: no more */
    int32_t n_scaffolds;
} random_pml;

void random_pml_init(random_pml *p, tiny_random *r);
void random_pml_free(random_pml *p);
/* Generates p->schema, with the name "s". */
void random_pml_schema(random_pml *p);
/* Generates p->prompt for it. The tokenizer determines the lengths of arguments. */
void random_pml_prompt(random_pml *p, const tokenizer *t);

#endif
