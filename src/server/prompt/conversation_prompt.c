/* SPDX-License-Identifier: Apache-2.0 */
/* conversation_prompt.c: see conversation_prompt.h. */
#include "server/prompt/conversation_prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "reprise_tools.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"
#include "server/prompt/agent_noise.h"
#include "server/prompt/chat_rendering.h"
#include "server/prompt/document_split.h"
#include "server/prompt/prompt_parts.h"
#include "server/prompt/request_tenant.h"
#include "server/prompt/tools.h"
#include "reprise_chat.h"
#include "reprise_pml.h"

#define MIN_MODULE_TOKENS 32 /* shorter documents stay text */
#define COUNTED_BYTES 2048   /* of a document, to see whether it has that many tokens */

/* ---- Documents ---- */

/* The last text of a message is the question, which must attend to the documents before it. A part of type document is
   one. */
static bool may_be_document(const generation *gen, size_t i) {
    const server_part *part = &gen->parts[i];
    BASE_ASSERT(i < gen->n_parts && part->message < gen->n_messages);
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
    rp_builder *prompt;
    size_t n_modules; /* modules, PML and documents so far */
} conversation;

/* Is the part a module of the prompt, not plain text of its message? */
static bool is_module(const conversation *c, const server_part *part) {
    const generation *gen = c->x->gen;
    if (part->kind == SERVER_PART_MODULE || part->kind == SERVER_PART_PML) return true;
    return gen->modular && c->n_modules < RP_MAX_DOCUMENTS && may_be_document(gen, (size_t)(part - gen->parts)) &&
           is_long(c->x->model->model, gen->messages[part->message].text + part->begin, part->end - part->begin);
}

static void conversation_append_module(conversation *c, const server_part *part, const rp_message *m) {
    BASE_ASSERT(part->begin <= part->end && part->end <= m->n);
    c->n_modules++;
    switch (part->kind) {
    case SERVER_PART_MODULE:
        rp_builder_import(c->prompt, part->name);
        prompt_parts_add_arguments(c->prompt, part->args, "args.", &c->x->problem);
        break;
    case SERVER_PART_PML: rp_builder_append_pml(c->prompt, part->pml, strlen(part->pml)); break;
    default: rp_builder_append_document(c->prompt, m->text + part->begin, part->end - part->begin);
    }
}

/* Appends a message, which has the parts [part, end). Errors of parts are kept by the prompt, and reported when it is
   submitted. */
static void conversation_append_message(conversation *c, const rp_message *m, const server_part *part,
                                        const server_part *end) {
    size_t at = 0;
    rp_builder_begin_message(c->prompt, m->role);
    for (; part < end && !c->x->problem.kind; part++) {
        if (!is_module(c, part)) continue;
        BASE_ASSERT(part->begin >= at); /* parts are ordered by place */
        rp_builder_append_text(c->prompt, m->text + at, part->begin - at);
        conversation_append_module(c, part, m);
        at = part->end;
    }
    rp_builder_append_text(c->prompt, m->text + at, m->n - at);
    rp_builder_end_role(c->prompt);
}

static void conversation_append_all(conversation *c) {
    const generation *gen = c->x->gen;
    const server_part *part = gen->parts, *end = part + gen->n_parts;
    for (size_t i = 0; i < gen->n_messages && !c->x->problem.kind; i++) {
        const server_part *next = part;
        while (next < end && next->message == i) next++;
        conversation_append_message(c, &gen->messages[i], part, next);
        part = next;
    }
    BASE_ASSERT(c->x->problem.kind || part == end); /* parts are ordered by message */
}

/* The schema of all parts of type module; *out NULL: there is none. Returns a server_problem_kind. */
static int conversation_schema(const generation *gen, const char **out, server_problem *p) {
    *out = NULL;
    for (size_t i = 0; i < gen->n_parts; i++) {
        const server_part *part = &gen->parts[i];
        if (part->kind != SERVER_PART_MODULE) continue;
        if (*out && strcmp(*out, part->schema) != 0)
            return server_fail(
                p, SERVER_INVALID, "messages",
                "the messages use modules of the schemas '%.80s' and '%.80s': a conversation can use one schema", *out,
                part->schema);
        *out = part->schema;
    }
    return SERVER_FINE;
}

/* ---- Rendered text ---- */

/* A document in the rendered text: bytes [begin, end) of it. */
typedef struct rendered_document {
    size_t begin, end;
} rendered_document;

typedef struct rendered_documents {
    rendered_document *items;
    size_t n, cap;
} rendered_documents;

static int compare_documents(const void *a, const void *b) {
    const rendered_document *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static void add_document(conversation *c, rendered_documents *l, size_t begin, size_t end) {
    const char *bytes = c->x->gen->rendered->bytes;
    BASE_ASSERT(begin <= end && end <= c->x->gen->rendered->n);
    for (size_t i = 0; i < l->n; i++) /* a second equal document is text */
        if (l->items[i].end - l->items[i].begin == end - begin &&
            memcmp(bytes + l->items[i].begin, bytes + begin, end - begin) == 0)
            return;
    if (l->n >= RP_MAX_DOCUMENTS || !is_long(c->x->model->model, bytes + begin, end - begin)) return;
    if (base_grow((void **)&l->items, &l->cap, l->n + 1, RP_MAX_DOCUMENTS, sizeof(*l->items)))
        server_fail_memory(&c->x->problem);
    else l->items[l->n++] = (rendered_document){begin, end};
}

/* A part of a message, where the template wrote it unchanged. */
static void find_part(conversation *c, const server_part *part, rendered_documents *l) {
    const rp_template_text *text = c->x->gen->rendered;
    const uint32_t source = c->x->gen->rendered_sources[part->message];
    size_t begin = 0;
    for (size_t i = 0; i < text->n_runs && source > 0; begin = text->runs[i++].end) {
        const rp_template_run *run = &text->runs[i];
        if (run->origin != source || run->offset == SIZE_MAX || part->begin < run->offset ||
            part->end > run->offset + (run->end - begin))
            continue;
        add_document(c, l, begin + (part->begin - run->offset), begin + (part->end - run->offset));
        return;
    }
}

/* Bytes of the beginning-of-text token at the beginning of the rendered text: a schema of documents has its own. */
static size_t leading_bos(const conversation *c) {
    const rp_template_text *text = c->x->gen->rendered;
    int32_t *tokens = NULL;
    size_t n_tokens = 0, n = 0;
    if (rp_tokenize(c->x->model->model, "", 0, false, true, &tokens, &n_tokens, NULL) || n_tokens == 0) return 0;
    const char *bos = rp_token_bytes(c->x->model->model, tokens[0], true, &n);
    rp_free(tokens);
    return n > 0 && text->n_runs > 0 && text->runs[0].end >= n && text->runs[0].origin == RP_TEMPLATE_TRUSTED &&
                   memcmp(text->bytes, bos, n) == 0
               ? n
               : 0;
}

/* The rendered text, with its documents as modules. */
static int build_rendered(conversation *c) {
    const generation *gen = c->x->gen;
    rendered_documents l = {0};
    size_t at = leading_bos(c);
    for (size_t i = 0; i < gen->n_parts && !c->x->problem.kind; i++)
        if (may_be_document(gen, i)) find_part(c, &gen->parts[i], &l);
    const rp_template_text *text = gen->rendered;
    const bool may_call = answer_form_may_call(&gen->form);
    size_t begin = 0; /* of definitions of tools: JSON that the template wrote */
    for (size_t i = 0; i < text->n_runs && may_call && !c->x->problem.kind; begin = text->runs[i++].end)
        if (text->runs[i].origin == RP_TEMPLATE_UNTRUSTED) add_document(c, &l, begin, text->runs[i].end);
    if (l.n > 0) qsort(l.items, l.n, sizeof(*l.items), compare_documents);
    for (size_t i = 0; i < l.n && !c->x->problem.kind; i++) {
        if (l.items[i].begin < at) continue;
        rp_builder_append_rendered(c->prompt, gen->rendered, at, l.items[i].begin);
        rp_builder_append_document(c->prompt, gen->rendered->bytes + l.items[i].begin,
                                   l.items[i].end - l.items[i].begin);
        at = l.items[i].end;
        c->n_modules++;
    }
    rp_builder_append_rendered(c->prompt, gen->rendered, at, gen->rendered->n);
    base_free(l.items);
    return (int)c->x->problem.kind;
}

/* ---- All of it ---- */

static int conversation_build(server_request *x) {
    generation *gen = x->gen;
    conversation c = {.x = x};
    const char *schema;
    if (!gen->has_markup && !(gen->modular && x->model->info.movable && (gen->n_parts > 0 || gen->rendered)))
        return SERVER_FINE;
    if (gen->has_markup && gen->modular)
        return server_fail(&x->problem, SERVER_INVALID, "reuse",
                           "'reuse' modular makes a schema from the parts: leave it out if messages use modules");
    if (conversation_schema(gen, &schema, &x->problem)) return (int)x->problem.kind;
    if (rp_builder_new(&c.prompt, schema, NULL)) return server_fail_memory(&x->problem);
    if (gen->rendered) build_rendered(&c);
    else conversation_append_all(&c);
    if (c.n_modules > 0) gen->built = c.prompt;
    else rp_builder_free(c.prompt);
    return (int)x->problem.kind;
}

int conversation_prompt_build(server_request *x) {
    generation *gen = x->gen;
    if (x->problem.kind || gen->built || gen->rendered || gen->n_messages == 0)
        return (int)x->problem.kind; /* by an earlier call, to count tokens */
    /* of requests without the field `reuse` */
    const bool is_modular = x->key->reuse ? strcmp(x->key->reuse, "modular") == 0 : x->server->options.modular;
    if (!gen->names_reuse && !gen->has_markup && gen->reuse == RP_REUSE_ON) gen->modular = is_modular;
    if (agent_noise_settle(gen, x->server->options.agent_noise, chat_rendering_has_tools(x), &x->problem))
        return (int)x->problem.kind;
    if (gen->modular && x->server->split && !gen->has_markup &&
        document_split_apply(x->server->split, gen, &x->problem))
        return (int)x->problem.kind;
    if (!chat_rendering_has_tools(x) && tools_write(gen, x->model->info.chat_format, &x->problem))
        return (int)x->problem.kind;
    if (chat_rendering_applies(x) && chat_rendering_make(x)) return (int)x->problem.kind;
    return conversation_build(x);
}

/* ---- Counting ---- */

static int conversation_count_built(server_request *x, size_t *n_tokens) {
    char salted[SERVER_SALTED_BYTES];
    rp_inspection *all;
    rp_error err;
    if (rp_engine_inspect_prompt(x->model->engine, request_tenant(x, salted), x->gen->built, "messages", &all, &err))
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
    if (x->gen->built) return conversation_count_built(x, n_tokens);
    if (x->gen->rendered ? rp_tokenize_rendered(x->model->model, x->gen->rendered, &tokens, n_tokens, &err)
                         : rp_tokenize_messages(x->model->model, x->gen->messages, x->gen->n_messages,
                                                x->gen->continues_last, &tokens, n_tokens, &err))
        return server_fail_library(&x->problem, &err);
    rp_free(tokens);
    return SERVER_FINE;
}

/* The byte of the rendered text after the content of message i, or before it. SIZE_MAX: the text does not have it. */
static size_t rendered_content(const generation *gen, size_t i, bool after) {
    BASE_ASSERT(i < gen->n_messages);
    const uint32_t source = gen->rendered_sources[i];
    size_t begin = 0, found = SIZE_MAX;
    for (size_t k = 0; k < gen->rendered->n_runs && source > 0; begin = gen->rendered->runs[k++].end) {
        if (gen->rendered->runs[k].origin != source) continue;
        if (!after) return begin;
        found = gen->rendered->runs[k].end;
    }
    return found;
}

static size_t rendered_marked(const generation *gen, generation_marked marked) {
    size_t first = 0;
    if (marked.n_messages > 0) return rendered_content(gen, BASE_MIN(marked.n_messages, gen->n_messages) - 1, true);
    while (marked.has_tools && first + 1 < gen->n_messages && gen->messages[first].role == RP_ROLE_SYSTEM) first++;
    return marked.has_tools ? rendered_content(gen, first, false) : SIZE_MAX;
}

/* Tokens of the first n bytes. */
static int count_beginning(const server_request *x, size_t n, int32_t **tokens, size_t *n_tokens) {
    rp_template_text text = *x->gen->rendered;
    size_t k = 0;
    while (k < text.n_runs && text.runs[k].end < n) k++;
    if (n > text.n || n == 0 || k == text.n_runs) return RP_ERR_INVALID;
    rp_template_run *runs = base_alloc((k + 1) * sizeof(*runs));
    if (!runs) return RP_ERR_MEMORY;
    memcpy(runs, text.runs, (k + 1) * sizeof(*runs));
    runs[k].end = n;
    text.runs = runs;
    text.n_runs = k + 1;
    text.n = n;
    const int rc = rp_tokenize_rendered(x->model->model, &text, tokens, n_tokens, NULL);
    base_free(runs);
    return rc;
}

size_t conversation_prompt_count_marked(const server_request *x, server_mark mark) {
    const generation *gen = x->gen;
    BASE_ASSERT((unsigned)mark < SERVER_N_MARKS && (gen->rendered || gen->marked[mark].n_messages <= gen->n_messages));
    const generation_marked marked = gen->marked[mark];
    int32_t *tokens = NULL;
    size_t n = 0;
    int rc = RP_ERR_INVALID;
    if (gen->rendered) rc = count_beginning(x, rendered_marked(gen, marked), &tokens, &n);
    else if (marked.n_messages > 0)
        rc = rp_tokenize_messages(x->model->model, gen->messages, marked.n_messages, true, &tokens, &n, NULL);
    rp_free(tokens);
    return rc ? 0 : n;
}
