/* SPDX-License-Identifier: Apache-2.0 */
/* modular.c: "reuse": "modular": the documents of a conversation are modules of its prompt (rp_prompt_append_document),
 * so that their KV is reused next to any other documents and in any order.
 */
#include "server/prompt/compose.h"
#include "server/server_internal.h"

#define MIN_MODULE_TOKENS 32 /* shorter parts stay text */
#define LOOKED_AT_BYTES 2048 /* of a part, to count its tokens up to that */

/* ---- Which parts are documents ---- */

/* The last text of a message is the question, which must attend to the documents before it. A part of type document
 * is one. */
static bool is_candidate(const generation *a, size_t i) {
    const server_part *part = &a->parts[i];
    rp_role role = a->messages[part->message].role;
    if (role == RP_ROLE_ASSISTANT) return false;
    if (part->kind == SERVER_PART_DOCUMENT || role == RP_ROLE_SYSTEM) return true;
    return part->kind == SERVER_PART_TEXT && i + 1 < a->n_parts && a->parts[i + 1].message == part->message;
}

static bool is_long(const rp_model *m, const char *text, size_t n) {
    int32_t *tokens = NULL;
    size_t n_tokens = 0;
    if (n > LOOKED_AT_BYTES)
        for (n = LOOKED_AT_BYTES; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;) n--; /* whole characters */
    if (n < MIN_MODULE_TOKENS / 2 || rp_tokenize(m, text, n, false, false, &tokens, &n_tokens, NULL)) return false;
    rp_free(tokens);
    return n_tokens >= MIN_MODULE_TOKENS;
}

/* ---- The prompt ---- */

/* Appends the text of a message, which has the parts [part, end). *n: documents so far; any beyond the limit stay
 * text. */
static void modular_append_message(const server_request *x, rp_prompt *prompt, const rp_message *m, const server_part *part, const server_part *end,
                                   size_t *n) {
    size_t at = 0;
    for (; part < end && *n < RP_MAX_DOCUMENTS; part++) {
        size_t bytes = part->end - part->begin;
        if (!is_candidate(&x->gen, (size_t)(part - x->gen.parts)) || !is_long(x->server->model, m->text + part->begin, bytes)) continue;
        rp_prompt_append_text(prompt, m->text + at, part->begin - at);
        rp_prompt_append_document(prompt, m->text + part->begin, bytes);
        at = part->end;
        ++*n;
    }
    rp_prompt_append_text(prompt, m->text + at, m->n - at);
}

/* Errors of parts are kept by the prompt, and reported when it is submitted. */
static size_t modular_append_all(const server_request *x, rp_prompt *prompt) {
    const server_part *part = x->gen.parts, *end = part + x->gen.n_parts;
    size_t n = 0;
    for (size_t i = 0; i < x->gen.n_messages; i++) {
        const server_part *next = part;
        while (next < end && next->message == i) next++;
        rp_prompt_begin_role(prompt, x->gen.messages[i].role);
        modular_append_message(x, prompt, &x->gen.messages[i], part, next, &n);
        rp_prompt_end_role(prompt);
        part = next;
    }
    return n;
}

int modular_build(server_request *x) {
    rp_prompt *prompt;
    if (x->gen.built || x->gen.n_parts == 0) return SERVER_FINE; /* built: by an earlier call, to count tokens */
    if (rp_prompt_new(&prompt, NULL, NULL)) return server_fail_memory(&x->problem);
    if (modular_append_all(x, prompt) > 0) x->gen.built = prompt;
    else rp_prompt_free(prompt);
    return SERVER_FINE;
}
