/* SPDX-License-Identifier: Apache-2.0 */
/* prompts.h: rp_prompt, as the jobs that are made of it see it. The submitting thread.
 */
#ifndef ENGINE_PROMPTS_H
#define ENGINE_PROMPTS_H

#include "base/hash.h"
#include "pml/document.h"
#include "reprise.h"

const char *engine_prompt_schema(const rp_prompt *p); /* its name; NULL: the schema is made of the prompt's documents */
int engine_prompt_make_schema(const rp_prompt *p, rp_engine *e, const base_key *salt, const char *name, const char *modules_in, rp_schema **out,
                              rp_error *err);
/* The first error of the functions that added to the prompt. */
int engine_prompt_check(const rp_prompt *p, rp_error *err);
/* The document that the parts make over their schema (pml_parts_build). name: for errors. */
int engine_prompt_build(const rp_prompt *p, const pml_document *schema, const char *name, pml_document **out, rp_error *err);

#endif
