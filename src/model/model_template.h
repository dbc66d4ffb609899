/* SPDX-License-Identifier: Apache-2.0 */
/* model_template.h: a model's own chat template (template/template.h), and rendered text as tokens.
 *
 * Control tokens are recognised within trusted bytes only, and only if all of their bytes are trusted. The text between
 * them is tokenized as one, trusted or not: without control tokens in user text the tokens are those that transformers
 * makes.
 */
#ifndef MODEL_MODEL_TEMPLATE_H
#define MODEL_MODEL_TEMPLATE_H

#include "model/model.h"
#include "reprise_chat.h"

/* Parses m->chat_template, if there is one. One that cannot be parsed is reported in the log, and is none.
   RP_ERR_MEMORY. */
int model_read_template(rp_model *m, rp_error *err);
void model_free_template(rp_model *m);

/* Puts the beginning-of-text token before a rendered text, if the model adds one and the text does not begin with it.
   RP_ERR_MEMORY. */
int model_complete_rendered(const rp_model *m, rp_template_text *text, rp_error *err);

/* Checks a rendered text of a caller: runs rise and end with the text. RP_ERR_INVALID. */
int model_check_rendered(const rp_template_text *text, rp_error *err);
/* Appends the tokens of bytes [from, to) of a rendered text. From byte 0 on: after the beginning-of-text token, if the
 * model adds one and the text does not begin with it. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int model_append_rendered(const rp_model *m, const rp_template_text *text, size_t from, size_t to, token_list *out,
                          rp_error *err);
/* The names and texts of the special tokens that templates use ("bos_token"): [*n] pairs in out[2 * 4], owned by the
   model. */
void model_template_tokens(const rp_model *m, const char *out[8], size_t *n);
/* The trusted bytes of [from, to) of a checked text, relative to `from`: *n ranges. Owned by the caller (base_free);
   NULL: out of memory. */
tokenizer_range *model_trusted_ranges(const rp_template_text *text, size_t from, size_t to, size_t *n);
/* The end of the first opening of an answer within trusted bytes at or after `from`: an answer begins there. SIZE_MAX:
 * none. An opening is the part of the generation prompt that the template also writes before answers of earlier turns;
 * *opening, if not NULL, becomes it. */
size_t model_find_answer(const rp_model *m, const rp_template_text *text, size_t from, const char **opening);
/* The next control token within trusted bytes at or after `from`: the byte at which it begins. SIZE_MAX: none. */
size_t model_find_control(const rp_model *m, const rp_template_text *text, size_t from);
/* The next end-of-turn token within trusted bytes at or after `from`: the byte at which it begins. SIZE_MAX: none. */
size_t model_find_turn_end(const rp_model *m, const rp_template_text *text, size_t from);

#endif
