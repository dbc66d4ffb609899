/* SPDX-License-Identifier: Apache-2.0 */
/* model_template.h: a model's own chat template (template/template.h), and rendered text as tokens.
 *
 * Control tokens are recognised within trusted bytes only, and only if all of their bytes are trusted. The text between them is
 * tokenized as one, whoever wrote it: without control tokens in user text the tokens are those that transformers makes.
 */
#ifndef MODEL_MODEL_TEMPLATE_H
#define MODEL_MODEL_TEMPLATE_H

#include "model/model.h"

/* Parses the template of the file, if it has one. One that cannot be parsed is reported in the log, and is none. RP_ERR_MEMORY. */
int model_read_template(rp_model *m, rp_error *err);
void model_free_template(rp_model *m);

/* Checks a rendered text of a caller: runs rise and end with the text. RP_ERR_INVALID. */
int model_check_rendered(const rp_template_text *text, rp_error *err);
/* Appends the tokens of bytes [from, to) of a rendered text. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int model_append_rendered(const rp_model *m, const rp_template_text *text, size_t from, size_t to, token_list *out, rp_error *err);
/* The end of the first generation prompt within trusted bytes at or after `from`: an answer begins there. SIZE_MAX: none. */
size_t model_find_answer(const rp_model *m, const rp_template_text *text, size_t from);
/* The next end-of-turn token within trusted bytes at or after `from`: the byte at which it begins. SIZE_MAX: none. */
size_t model_find_turn_end(const rp_model *m, const rp_template_text *text, size_t from);

#endif
