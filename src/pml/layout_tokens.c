/* SPDX-License-Identifier: Apache-2.0 */
/* layout_tokens.c: texts of schemas and prompts as tokens: which are trusted, and where a word's space is. Owns
   nothing; any thread. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "pml/layout.h"

int pml_append_role_text(const rp_model *m, const char *text, token_list *out, rp_error *err) {
    tokenizer_options options = {.parse_special = true, .space_prefix = false};
    return tokenizer_encode(m->tokenizer, text, strlen(text), options, out, err);
}

int pml_append_text(const rp_model *m, const char *text, size_t n, bool continues, token_list *out, rp_error *err) {
    bool prefix = !continues && n > 0 && !pml_is_space(text[0]);
    return tokenizer_encode(m->tokenizer, text, n, (tokenizer_options){.space_prefix = prefix}, out, err);
}

int pml_append_argument(const rp_model *m, const pml_node *param, const pml_argument *argument, token_list *out,
                        rp_error *err) {
    const char *value = argument->value;
    size_t n = argument->n_value;
    if (!param->border_space || n == 0 || pml_is_space(value[0]))
        return tokenizer_encode(m->tokenizer, value, n, (tokenizer_options){0}, out, err);
    char *spaced = base_alloc(n + 2);
    if (!spaced) return base_fail_memory(err, n + 2, "an argument");
    spaced[0] = ' ';
    memcpy(spaced + 1, value, n + 1);
    int rc = tokenizer_encode(m->tokenizer, spaced, n + 1, (tokenizer_options){0}, out, err);
    base_free(spaced);
    return rc;
}

int pml_append_value(const rp_model *m, const pml_node *param, const char *value, token_list *out, rp_error *err) {
    return pml_append_argument(m, param, &(pml_argument){.value = value, .n_value = strlen(value)}, out, err);
}
