/* SPDX-License-Identifier: Apache-2.0 */
/* model_convention.c: see model_convention.h. Owns nothing. */
#include "server/generation/model_convention.h"

#include <string.h>

/* Does a text have a control token in it? */
static bool has_control_token(const rp_model *model, const char *text) {
    int32_t *tokens = NULL;
    size_t n = 0, hidden;
    bool found = false;
    if (rp_tokenize(model, text, strlen(text), true, false, &tokens, &n, NULL)) return false;
    for (size_t i = 0; i < n && !found; i++) {
        size_t n_name;
        const char *name = rp_token_bytes(model, tokens[i], true, &n_name);
        rp_token_bytes(model, tokens[i], false, &hidden);
        found = hidden == 0 && n_name > 0 && strstr(text, name); /* else it is the unknown token */
    }
    rp_free(tokens);
    return found;
}

model_convention model_convention_of(const rp_model *model) {
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_model_describe(model, &info);
    const size_t n = info.chat_template ? strlen(info.chat_template) : 0;
    model_convention c = {.convention = tool_convention_detect(info.chat_template, n, info.chat_format)};
    for (size_t i = 0; !c.special_text; i++) {
        const char *mark = tool_convention_mark(&c.convention, i);
        if (!mark) break;
        c.special_text = has_control_token(model, mark);
    }
    return c;
}
