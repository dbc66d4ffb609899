/* SPDX-License-Identifier: Apache-2.0 */
/* prompts.h: rp_prompt and rp_builder, as the jobs that are made of it see it. The submitting thread.
 */
#ifndef ENGINE_PROMPTS_H
#define ENGINE_PROMPTS_H

#include "base/hash.h"
#include "pml/document.h"
#include "reprise_pml.h"

/* RP_ERR_INVALID: no prompt, an unknown kind, no content, or a schema that its kind does not have. */
int engine_prompt_check(const rp_prompt *p, rp_error *err);

const char *builder_schema(const rp_builder *b); /* its name; NULL: the schema is made of the prompt's documents */
int builder_make_schema(const rp_builder *b, rp_engine *e, const base_key *salt, const char *name,
                        const char *modules_in, rp_schema **out, rp_error *err);
/* The first error of the functions that added to the prompt. */
int builder_check(const rp_builder *b, rp_error *err);
/* The document that the parts make over their schema (pml_parts_build). name: for errors. */
int builder_build(const rp_builder *b, const pml_document *schema, const char *name, pml_document **out, rp_error *err);

#endif
