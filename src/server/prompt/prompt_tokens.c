/* SPDX-License-Identifier: Apache-2.0 */
/* prompt_tokens.c: see prompt_tokens.h. Owns nothing: the generation owns tokens and texts. */
#include "server/prompt/prompt_tokens.h"

#include <string.h>

#include "base/check.h"
#include "base/json_number.h"
#include "base/memory.h"
#include "reprise_chat.h"

int prompt_tokens_text(const rp_model *m, const int32_t *tokens, size_t n, base_buffer *out) {
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        size_t bytes = 0;
        const char *text = rp_token_bytes(m, tokens[i], true, &bytes);
        if (text) rc = base_buffer_append(out, text, bytes);
    }
    return rc;
}

typedef struct token_buffer {
    int32_t *ids;
    size_t n, cap;
} token_buffer;

static int token_buffer_append(token_buffer *b, const int32_t *ids, size_t n, server_problem *p) {
    if (base_grow((void **)&b->ids, &b->cap, b->n + n, SERVER_MAX_PROMPT_TOKENS, sizeof(*b->ids)))
        return server_fail(p, SERVER_INVALID, "prompt", "'prompt' is too long: give at most %zu tokens",
                           SERVER_MAX_PROMPT_TOKENS);
    memcpy(b->ids + b->n, ids, n * sizeof(*ids));
    b->n += n;
    return SERVER_FINE;
}

static int append_string(token_buffer *b, const rp_model *m, const json_t *text, bool first, server_problem *p) {
    int32_t *ids = NULL;
    size_t n = 0;
    rp_error err;
    if (rp_tokenize(m, json_string_value(text), json_string_length(text), false, first, &ids, &n, &err))
        return server_fail_library(p, &err);
    int kind = n > 0 ? token_buffer_append(b, ids, n, p) : SERVER_FINE;
    rp_free(ids);
    return kind;
}

/* The prompt owns the tokens on failure as well. */
static int server_prompt_fill(server_prompt *prompt, const rp_model *m, server_problem *p) {
    BASE_ASSERT(!prompt->tokens);
    token_buffer b = {0};
    for (size_t i = 0; i < json_array_size(prompt->ids) && !p->kind; i++) {
        const json_t *one = json_array_get(prompt->ids, i);
        int64_t value = 0;
        if (json_is_string(one)) {
            append_string(&b, m, one, i == 0, p);
            continue;
        }
        const int32_t id = base_json_int64(one, &value) ? (int32_t)value : -1; /* generation_prompts has checked it */
        BASE_ASSERT(id >= 0);
        token_buffer_append(&b, &id, 1, p);
    }
    prompt->tokens = b.ids;
    prompt->n_tokens = b.n;
    return (int)p->kind;
}

static int prompt_tokens_echo(generation *gen, server_prompt *prompt, const rp_model *m, server_problem *p) {
    BASE_ASSERT(prompt->ids && !prompt->text);
    base_buffer text = BASE_BUFFER(SERVER_MAX_JOINED_BYTES);
    bool ok = prompt_tokens_text(m, prompt->tokens, prompt->n_tokens, &text) == 0;
    prompt->text = ok ? generation_own(gen, text.data ? base_buffer_take(&text) : base_strdup(""), p) : NULL;
    base_buffer_free(&text);
    return prompt->text ? SERVER_FINE : server_fail_memory(p);
}

/* ---- infill ---- */

/* The files of an infill; the caller's (base_free). */
static rp_infill_file *infill_files(const server_infill *infill, server_problem *p) {
    const size_t n = json_array_size(infill->files);
    rp_infill_file *files = base_calloc(n + 1, sizeof(*files));
    if (!files) server_fail_memory(p);
    for (size_t i = 0; i < n && files; i++) {
        const json_t *one = json_array_get(infill->files, i), *name = json_object_get(one, "filename"),
                     *text = json_object_get(one, "text");
        files[i] = (rp_infill_file){.name = json_is_string(name) ? json_string_value(name) : NULL,
                                    .text = json_string_value(text),
                                    .n_bytes = json_string_length(text)};
    }
    return files;
}

static int infill_fill(const generation *gen, server_prompt *prompt, const rp_model *m, server_problem *p) {
    const server_infill *infill = &gen->infill;
    BASE_ASSERT(infill->wanted && infill->suffix && !prompt->tokens);
    rp_error err;
    if (prompt->ids)
        return server_fail(p, SERVER_UNSUPPORTED, "prompt",
                           "an infill needs a prompt that is a text: 'prompt' has token ids");
    rp_infill_file *files = infill_files(infill, p);
    rp_infill in = {.struct_size = (uint32_t)sizeof(in), .prefix = prompt->text, .n_prefix = strlen(prompt->text)};
    in.suffix = infill->suffix, in.n_suffix = infill->n_suffix;
    in.begun = infill->begun, in.n_begun = infill->begun ? strlen(infill->begun) : 0;
    in.files = files, in.n_files = (int32_t)json_array_size(infill->files);
    int32_t *ids = NULL;
    token_buffer b = {0};
    size_t n = 0;
    if (!p->kind && rp_tokenize_infill(m, &in, &ids, &n, &err)) server_fail_library(p, &err);
    if (!p->kind) token_buffer_append(&b, ids, n, p);
    rp_free(ids);
    base_free(files);
    prompt->tokens = b.ids;
    prompt->n_tokens = b.n;
    return (int)p->kind;
}

int prompt_tokens_fill(generation *gen, const rp_model *m, server_problem *p) {
    for (size_t i = 0; i < gen->n_prompts && !p->kind; i++) {
        server_prompt *prompt = &gen->prompts[i];
        if (gen->infill.wanted) infill_fill(gen, prompt, m, p);
        if (!prompt->ids) continue;
        if (server_prompt_fill(prompt, m, p) == SERVER_FINE && gen->echo) prompt_tokens_echo(gen, prompt, m, p);
    }
    return (int)p->kind;
}
