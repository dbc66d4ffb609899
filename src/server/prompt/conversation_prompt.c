/* SPDX-License-Identifier: Apache-2.0 */
/* conversation_prompt.c: see conversation_prompt.h. */
#include "server/prompt/conversation_prompt.h"

#include <string.h>

#include "reprise_tools.h"
#include "server/prompt/prompt_parts.h"
#include "server/server_internal.h"

#define MIN_MODULE_TOKENS 32  /* shorter documents stay text */
#define COUNTED_BYTES 2048    /* of a document, to see whether it has that many tokens */

/* ---- Documents ---- */

/* The last text of a message is the question, which must attend to the documents before it. A part of type document is one. */
static bool may_be_document(const generation *gen, size_t i) {
    const server_part *part = &gen->parts[i];
    rp_role role = gen->messages[part->message].role;
    if (role == RP_ROLE_ASSISTANT) return false;
    if (part->kind == SERVER_PART_DOCUMENT || role == RP_ROLE_SYSTEM) return true;
    return part->kind == SERVER_PART_TEXT && i + 1 < gen->n_parts && gen->parts[i + 1].message == part->message;
}

static bool is_long(const rp_model *m, const char *text, size_t n) {
    int32_t *tokens = NULL;
    size_t n_tokens = 0;
    if (n > COUNTED_BYTES)
        for (n = COUNTED_BYTES; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;) n--; /* whole characters */
    if (n < MIN_MODULE_TOKENS / 2 || rp_tokenize(m, text, n, false, false, &tokens, &n_tokens, NULL)) return false;
    rp_free(tokens);
    return n_tokens >= MIN_MODULE_TOKENS;
}

/* ---- The prompt ---- */

typedef struct conversation {
    server_request *x;
    rp_prompt *prompt;
    size_t n_modules; /* modules, PML and documents so far */
} conversation;

/* Is the part a module of the prompt, not plain text of its message? */
static bool is_module(const conversation *c, const server_part *part) {
    const generation *gen = &c->x->gen;
    if (part->kind == SERVER_PART_MODULE || part->kind == SERVER_PART_PML) return true;
    return gen->modular && c->n_modules < RP_MAX_DOCUMENTS && may_be_document(gen, (size_t)(part - gen->parts)) &&
           is_long(c->x->server->model, gen->messages[part->message].text + part->begin, part->end - part->begin);
}

static void conversation_append_module(conversation *c, const server_part *part, const rp_message *m) {
    c->n_modules++;
    switch (part->kind) {
    case SERVER_PART_MODULE:
        rp_prompt_import(c->prompt, part->name);
        prompt_parts_add_arguments(c->prompt, part->args, "args.", &c->x->problem);
        break;
    case SERVER_PART_PML: rp_prompt_append_pml(c->prompt, part->pml, strlen(part->pml)); break;
    default: rp_prompt_append_document(c->prompt, m->text + part->begin, part->end - part->begin);
    }
}

/* Appends a message, which has the parts [part, end). Errors of parts are kept by the prompt, and reported when it is submitted. */
static void conversation_append_message(conversation *c, const rp_message *m, const server_part *part, const server_part *end) {
    size_t at = 0;
    rp_prompt_begin_message(c->prompt, m->role);
    for (; part < end && !c->x->problem.kind; part++) {
        if (!is_module(c, part)) continue;
        rp_prompt_append_text(c->prompt, m->text + at, part->begin - at);
        conversation_append_module(c, part, m);
        at = part->end;
    }
    rp_prompt_append_text(c->prompt, m->text + at, m->n - at);
    rp_prompt_end_role(c->prompt);
}

static void conversation_append_all(conversation *c) {
    const generation *gen = &c->x->gen;
    const server_part *part = gen->parts, *end = part + gen->n_parts;
    for (size_t i = 0; i < gen->n_messages && !c->x->problem.kind; i++) {
        const server_part *next = part;
        while (next < end && next->message == i) next++;
        conversation_append_message(c, &gen->messages[i], part, next);
        part = next;
    }
}

/* The schema of all parts of type module; *out NULL: there is none. Returns a server_problem_kind. */
static int conversation_schema(const generation *gen, const char **out, server_problem *p) {
    *out = NULL;
    for (size_t i = 0; i < gen->n_parts; i++) {
        const server_part *part = &gen->parts[i];
        if (part->kind != SERVER_PART_MODULE) continue;
        if (*out && strcmp(*out, part->schema) != 0)
            return server_fail(p, SERVER_INVALID, "messages",
                               "the messages use modules of the schemas '%.80s' and '%.80s': a conversation can use one schema", *out, part->schema);
        *out = part->schema;
    }
    return SERVER_FINE;
}

int conversation_prompt_build(server_request *x) {
    generation *gen = &x->gen;
    conversation c = {.x = x};
    const char *schema;
    if (x->problem.kind || gen->built || gen->n_parts == 0) return (int)x->problem.kind; /* built: by an earlier call, to count tokens */
    if (!gen->has_markup && !(gen->modular && x->server->info.movable)) return SERVER_FINE;
    if (gen->has_markup && gen->modular)
        return server_fail(&x->problem, SERVER_INVALID, "reuse", "'reuse' modular makes a schema from the parts: leave it out if messages use modules");
    if (conversation_schema(gen, &schema, &x->problem)) return (int)x->problem.kind;
    if (rp_prompt_new(&c.prompt, schema, NULL)) return server_fail_memory(&x->problem);
    conversation_append_all(&c);
    if (c.n_modules > 0) gen->built = c.prompt;
    else rp_prompt_free(c.prompt);
    return (int)x->problem.kind;
}

/* ---- Counting ---- */

static int conversation_count_built(server_request *x, size_t *n_tokens) {
    char salted[SERVER_SALTED_BYTES];
    rp_inspection *all;
    rp_error err;
    if (rp_engine_inspect_prompt(x->server->engine, server_request_tenant(x, salted), x->gen.built, "messages", &all, &err))
        return server_fail_library(&x->problem, &err);
    for (int32_t i = 0; i < all->n_tiles; i++) *n_tokens += (size_t)all->tiles[i].n_tokens;
    rp_inspection_free(all);
    return SERVER_FINE;
}

int conversation_prompt_count(server_request *x, size_t *n_tokens) {
    int32_t *tokens = NULL;
    rp_error err;
    *n_tokens = 0;
    if (conversation_prompt_build(x)) return (int)x->problem.kind;
    if (x->gen.built) return conversation_count_built(x, n_tokens);
    if (rp_tokenize_messages(x->server->model, x->gen.messages, x->gen.n_messages, x->gen.continues_last, &tokens, n_tokens, &err))
        return server_fail_library(&x->problem, &err);
    rp_free(tokens);
    return SERVER_FINE;
}
