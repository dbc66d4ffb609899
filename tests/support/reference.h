/* SPDX-License-Identifier: Apache-2.0 */
/* reference.h: the oracle: a prompt laid out flat, with an explicit position and an explicit attention list for every
 * token.
 *
 * Written from docs/pml.md alone, and compared with the engine, which uses views, spans and plans instead. Parts:
 *
 *   reference_model    a transformer of one token at a time
 *   reference_schema   segments, scopes and canonical positions of a schema
 *   reference          a prompt over them: order, positions, scaffolds, attention
 *
 * For tests: out of memory ends the program. Not thread-safe.
 */
#ifndef SUPPORT_REFERENCE_H
#define SUPPORT_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "pml/document.h"
#include "reprise.h"

typedef struct reference reference;
typedef struct reference_prompt reference_prompt;

/* A model of any family of reference_model.h. chat: a chat format's name; NULL: the model's. n_ctx: as
 * reference_model_open takes it. */
int reference_open(reference **out, const char *path, const char *chat, int32_t n_ctx, rp_error *err);
void reference_close(reference *r); /* after its prompts */
int32_t reference_n_vocab(const reference *r);

/* Lays out and computes a prompt. quality: the request's. choice: the engine's result, or NULL: only the tokens that
 * blend recomputed are used, and checked against the rules of docs/quality.md.
 * RP_ERR_CONFLICT: blend chose a token against these rules. RP_ERR_LENGTH: an argument or a text does not fit.
 * RP_ERR_NAME: an import that the schema does not have. RP_ERR_INVALID: no token at all. RP_ERR_CONTEXT: more positions
 * than the model has learned. */
int reference_prompt_new(reference_prompt **out, reference *r, const pml_document *schema, const pml_document *prompt,
                         rp_quality quality, const rp_result *choice, rp_error *err);
/* The beginning-of-text token, if the model wants one, and n given tokens, as one plain run. */
reference_prompt *reference_plain_new(reference *r, const int32_t *ids, int32_t n);
void reference_prompt_free(reference_prompt *p);

/* The logits after the last token (borrowed until the next use of p). */
const float *reference_prompt_logits(const reference_prompt *p);
/* Appends a token of the answer; returns the logits after it. */
const float *reference_prompt_append(reference_prompt *p, int32_t token);

int32_t reference_prompt_tokens(const reference_prompt *p); /* of the prompt, hidden ones not counted */
int32_t reference_prompt_reused(const reference_prompt *p); /* of these: with the KV of their segment */
int32_t reference_prompt_again(const reference_prompt *p);  /* segment tokens that quality recomputes */
int32_t reference_prompt_end(const reference_prompt *p);    /* the position after the last token */
double reference_prompt_margin(const reference_prompt *p);  /* of choices of experts: reference_kv_margin */
/* Number of segments with a scaffold's joint KV. */
int32_t reference_prompt_joint(const reference_prompt *p);
/* Prints tokens with positions and origin. */
void reference_prompt_print(const reference_prompt *p, FILE *to);

/* Is a placeholder of the schema longer than its parameter? */
bool reference_schema_is_too_long(const reference *r, const pml_document *schema);

#endif
