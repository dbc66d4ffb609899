/* SPDX-License-Identifier: Apache-2.0 */
/* generation.c: the record of what is asked for, and what parsers share. Owns no state. Any thread. */
#include "server/prompt/generation.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/json_number.h"
#include "base/memory.h"
#include "base/text.h"
#include "reprise_pml.h"

#define NAME_BYTES 96

int generation_parse(generation *gen, json_t *root, generation_parser parse, server_problem *p) {
    *gen = (generation){.root = json_incref(root),
                        .max_tokens = -1,
                        .n = 1,
                        .sampling = rp_sampling_defaults(),
                        .otherwise = rp_sampling_defaults(),
                        .n_logprobs = -1,
                        .n_prompt_logprobs = -1,
                        .n_draft = RP_DRAFT_AUTO,
                        .shifted_reuse = -1,
                        .thinking_tokens = -1};
    rp_sampling *s = &gen->sampling;
    s->temperature = s->top_p = s->min_p = s->repeat_penalty = GENERATION_OPEN_REAL;
    s->top_k = s->repeat_last = GENERATION_OPEN_INT;
    int kind = parse(gen, p);
    if (!kind && gen->embedding.pooling == RP_POOLING_OFF &&
        (int64_t)BASE_MAX(gen->n_prompts, 1) * gen->n > SERVER_MAX_CHOICES)
        kind = server_fail(p, SERVER_INVALID, "n", "%zu answers requested: at most %d are allowed",
                           BASE_MAX(gen->n_prompts, 1) * (size_t)gen->n, SERVER_MAX_CHOICES);
    return kind;
}

void generation_free(generation *gen) {
    for (size_t i = 0; i < gen->n_owned; i++) base_free(gen->owned[i]);
    base_free(gen->owned);
    base_free(gen->messages);
    rp_template_text_free(gen->rendered);
    base_free(gen->rendered_turns);
    base_free(gen->rendered_sources);
    base_free(gen->parts);
    for (size_t i = 0; i < gen->n_prompts; i++) base_free(gen->prompts[i].tokens);
    base_free(gen->prompts);
    base_free(gen->bias);
    base_free(gen->form.tools);
    base_free(gen->calls);
    base_free(gen->results);
    base_free(gen->reasonings);
    rp_builder_free(gen->built);
    json_decref(gen->made);
    json_decref(gen->template_hint);
    base_free(gen->fingerprint);
    json_decref(gen->guided.owned);
    json_decref(gen->root);
    *gen = (generation){0};
}

/* ---- prompts and messages ---- */

const char *generation_own(generation *gen, char *text, server_problem *p) {
    int rc =
        text ? base_grow((void **)&gen->owned, &gen->cap_owned, gen->n_owned + 1, RP_MAX_MESSAGES, sizeof(*gen->owned))
             : RP_ERR_MEMORY;
    if (rc) {
        base_free(text);
        server_fail_memory(p);
        return NULL;
    }
    return gen->owned[gen->n_owned++] = text;
}

void generation_add_prompt(generation *gen, const char *text, const json_t *ids, server_problem *p) {
    const bool embeds = gen->embedding.pooling != RP_POOLING_OFF;
    const bool has_query = gen->embedding.query != NULL; /* of a rerank: it is one more */
    const size_t most = embeds ? SERVER_MAX_EMBEDDINGS + has_query : SERVER_MAX_CHOICES;
    int rc = base_grow((void **)&gen->prompts, &gen->cap_prompts, gen->n_prompts + 1, most, sizeof(*gen->prompts));
    if (rc == RP_ERR_LIMIT && embeds)
        server_fail(p, SERVER_INVALID, "input", "more than %d texts: give fewer", SERVER_MAX_EMBEDDINGS);
    else if (rc == RP_ERR_LIMIT)
        server_fail(p, SERVER_INVALID, "prompt", "more than %d prompts: give fewer", SERVER_MAX_CHOICES);
    else if (rc) server_fail_memory(p);
    else gen->prompts[gen->n_prompts++] = (server_prompt){.text = text, .ids = ids};
}

static void add_ids(generation *gen, const server_fields *f, const char *name, const json_t *list, bool mixed) {
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n && !f->problem->kind; i++) {
        const json_t *one = json_array_get(list, i);
        int64_t id = 0;
        const bool is_id = base_json_int64(one, &id) && id >= 0 && id <= INT32_MAX;
        if (!is_id && !(mixed && json_is_string(one)))
            server_fail(f->problem, SERVER_INVALID, name,
                        "'%s' has an invalid token id at entry %zu: give whole numbers%s", name, i,
                        mixed ? " and strings" : "");
    }
    if (n == 0) server_fail(f->problem, SERVER_INVALID, name, "'%s' has an empty array: give token ids", name);
    if (!f->problem->kind) generation_add_prompt(gen, NULL, list, f->problem);
}

static void add_prompts(generation *gen, const server_fields *f, const char *name, const json_t *list, bool mixed) {
    for (size_t i = 0; i < json_array_size(list) && !f->problem->kind; i++) {
        const json_t *one = json_array_get(list, i);
        if (json_is_string(one)) generation_add_prompt(gen, json_string_value(one), NULL, f->problem);
        else if (json_is_array(one)) add_ids(gen, f, name, one, mixed);
        else
            server_fail(f->problem, SERVER_INVALID, name, "'%s[%zu]' must be a string or an array of token ids", name,
                        i);
    }
}

void generation_prompts(generation *gen, const server_fields *f, const char *name, bool mixed) {
    const json_t *all = server_field(f, name);
    bool has_number = false;
    for (size_t i = 0; i < json_array_size(all) && !has_number; i++)
        has_number = json_is_number(json_array_get(all, i));
    if (!all) server_fail(f->problem, SERVER_INVALID, name, "'%s' is missing: give a string, or token ids", name);
    else if (json_is_string(all)) generation_add_prompt(gen, json_string_value(all), NULL, f->problem);
    else if (!json_is_array(all)) server_field_wrong(f, name, all, "a string, or token ids, or an array of those");
    else if (json_array_size(all) == 0)
        server_fail(f->problem, SERVER_INVALID, name, "'%s' is an empty array: give a string", name);
    else if (has_number) add_ids(gen, f, name, all, mixed);
    else add_prompts(gen, f, name, all, mixed);
}

static void generation_add_message(generation *gen, rp_role role, const char *text, size_t n, server_problem *p) {
    int rc = base_grow((void **)&gen->messages, &gen->cap_messages, gen->n_messages + 1, RP_MAX_MESSAGES,
                       sizeof(*gen->messages));
    if (rc == RP_ERR_LIMIT)
        server_fail(p, SERVER_INVALID, "messages", "more than %d messages: give fewer", RP_MAX_MESSAGES);
    else if (rc) server_fail_memory(p);
    else gen->messages[gen->n_messages++] = (rp_message){role, text, n};
}

static bool generation_is_listed(const char *type, const char *const *types) {
    for (; *types; types++)
        if (strcmp(*types, type) == 0) return true;
    return false;
}

/* ---- parts of a content ---- */

void generation_add_part(generation *gen, const server_part *part, server_problem *p) {
    BASE_ASSERT(part->begin <= part->end && part->message <= gen->n_messages); /* its message is there, or next */
    int rc = base_grow((void **)&gen->parts, &gen->cap_parts, gen->n_parts + 1, SERVER_MAX_PARTS, sizeof(*gen->parts));
    if (rc == RP_ERR_LIMIT)
        server_fail(p, SERVER_INVALID, "messages", "more than %d parts: give fewer", SERVER_MAX_PARTS);
    else if (rc) server_fail_memory(p);
    else gen->parts[gen->n_parts++] = *part;
    if (part->kind == SERVER_PART_PML || part->kind == SERVER_PART_MODULE) gen->has_markup = true;
}

/* The place of a part: the end of the text joined so far for the next message. */
static server_part part_at(const generation *gen, const base_buffer *joined, server_part_kind kind) {
    return (server_part){.kind = kind, .message = gen->n_messages, .begin = joined->len, .end = joined->len};
}

/* field: "text", or "refusal" of a part in which an assistant refuses: it is what the assistant said. */
static void append_text(generation *gen, base_buffer *joined, const server_fields *f, const char *field,
                        const char *name) {
    server_part part = part_at(gen, joined, SERVER_PART_TEXT);
    const char *text = NULL;
    server_field_text(f, field, &text);
    if (!text) server_fail(f->problem, SERVER_INVALID, name, "'%s' has a part without '%s'", name, field);
    if (f->problem->kind) return;
    if (base_buffer_append_str(joined, text)) server_fail_memory(f->problem);
    part.end = joined->len;
    if (part.end > part.begin) generation_add_part(gen, &part, f->problem);
}

/* ---- documents: the lines before the text, then the text, then an empty line ---- */

static void append_line(base_buffer *joined, const server_fields *f, const char *field) {
    const char *text = NULL;
    server_field_text(f, field, &text);
    if (text && !f->problem->kind && (base_buffer_append_str(joined, text) || base_buffer_append_str(joined, "\n")))
        server_fail_memory(f->problem);
}

/* A text, or an array of {"type": "text", "text": ...}, which follow each other in lines. */
static void append_texts(base_buffer *joined, const server_fields *f, const char *field, const char *name) {
    const json_t *content = server_field(f, field);
    const size_t n = json_is_array(content) ? json_array_size(content) : 1;
    if (!content) server_fail(f->problem, SERVER_INVALID, name, "'%s' has a document without '%s'", name, field);
    for (size_t i = 0; i < n && !f->problem->kind; i++) {
        const json_t *one = json_is_array(content) ? json_array_get(content, i) : content;
        const json_t *text = json_is_string(one) ? one : json_object_get(one, "text");
        if (!json_is_string(text))
            server_fail(f->problem, SERVER_UNSUPPORTED, name,
                        "'%s' has a document with a '%s' that is not text: give {\"type\": \"text\", "
                        "\"text\": ...}",
                        name, field);
        else if (base_buffer_append_str(joined, json_string_value(text)) ||
                 base_buffer_append_str(joined, i + 1 < n ? "\n" : "\n\n"))
            server_fail_memory(f->problem);
    }
}

/* {"citations": {"enabled": true}} asks for marks in the answer that say which document a sentence is from. */
static void check_citations(generation *gen, const server_fields *f, const char *name) {
    if (json_is_true(json_object_get(server_field(f, "citations"), "enabled")))
        generation_ignore(gen, f->problem, "'citations' of a part of %.80s", name);
}

/* {"type": "document", "source": {"type": "text", "data": "..."}, "title": ..., "context": ...}; or a source {"type":
   "content", "content": ...} */
static void append_document(generation *gen, base_buffer *joined, const server_fields *f, const char *name) {
    server_part part = part_at(gen, joined, SERVER_PART_DOCUMENT);
    const char *type = "";
    server_fields source = {server_field_object(f, "source"), f->problem, f->prefix};
    server_field_text(&source, "type", &type);
    append_line(joined, f, "title");
    append_line(joined, f, "context");
    if (strcmp(type, "text") == 0 || strcmp(type, "content") == 0)
        append_texts(joined, &source, type[0] == 't' ? "data" : "content", name);
    else
        server_fail(f->problem, SERVER_UNSUPPORTED, name,
                    "'%s' has a document with a source that is not text: give "
                    "{\"type\": \"text\", \"data\": ...} or {\"type\": \"content\", \"content\": ...}",
                    name);
    check_citations(gen, f, name);
    part.end = joined->len;
    if (!f->problem->kind) generation_add_part(gen, &part, f->problem);
}

/* {"type": "search_result", "source": "https://...", "title": "...", "content": [{"type": "text", "text": "..."}]} */
static void append_search_result(generation *gen, base_buffer *joined, const server_fields *f, const char *name) {
    server_part part = part_at(gen, joined, SERVER_PART_DOCUMENT);
    append_line(joined, f, "title");
    append_line(joined, f, "source");
    append_texts(joined, f, "content", name);
    check_citations(gen, f, name);
    part.end = joined->len;
    if (!f->problem->kind) generation_add_part(gen, &part, f->problem);
}

static void append_pml(generation *gen, const base_buffer *joined, const server_fields *f, const char *name) {
    server_part part = part_at(gen, joined, SERVER_PART_PML);
    server_field_text(f, "text", &part.pml);
    if (!part.pml)
        server_fail(f->problem, SERVER_INVALID, name, "'%s' has a part of type pml without 'text': give <prompt ...>",
                    name);
    if (!f->problem->kind) generation_add_part(gen, &part, f->problem);
}

static void generation_append_module(generation *gen, const base_buffer *joined, const server_fields *f,
                                     const char *name) {
    server_part part = part_at(gen, joined, SERVER_PART_MODULE);
    server_field_text(f, "schema", &part.schema);
    server_field_text(f, "name", &part.name);
    part.args = server_field_object(f, "args");
    if (!part.schema || !part.name)
        server_fail(f->problem, SERVER_INVALID, name, "'%s' has a part of type module without '%s'", name,
                    part.schema ? "name" : "schema");
    if (!f->problem->kind) generation_add_part(gen, &part, f->problem);
}

/* Parts of earlier answers that no text is lost with: reasoning, and what tools of another server did. */
static bool generation_is_harmless(const char *type) {
    static const char *const types[] = {"thinking",
                                        "redacted_thinking",
                                        "reasoning",
                                        "reasoning_text",
                                        "server_tool_use",
                                        "web_search_tool_result",
                                        "web_fetch_tool_result",
                                        "code_execution_tool_result",
                                        "bash_code_execution_tool_result",
                                        "text_editor_code_execution_tool_result",
                                        "tool_search_tool_result",
                                        "mcp_tool_use",
                                        "mcp_tool_result",
                                        "tool_reference",
                                        "container_upload",
                                        "compaction",
                                        "browser_state",
                                        "tool_addition",
                                        "tool_removal",
                                        "mcp_tool_listing",
                                        "fallback",
                                        NULL};
    return generation_is_listed(type, types);
}

static void append_part(generation *gen, base_buffer *joined, const json_t *part, const char *const *types,
                        const char *name, server_problem *p) {
    char prefix[NAME_BYTES];
    const char *type = types[0];
    if (!json_is_object(part)) {
        server_fail(p, SERVER_INVALID, name, "'%s' has a part that is not an object: give {\"type\": \"%s\", ...}",
                    name, types[0]);
        return;
    }
    snprintf(prefix, sizeof(prefix), "%.80s.", name);
    server_fields f = {part, p, prefix};
    server_field_text(&f, "type", &type);
    if (p->kind) return;
    if (generation_is_listed(type, types))
        append_text(gen, joined, &f, strcmp(type, "refusal") == 0 ? type : "text", name);
    else if (strcmp(type, "pml") == 0) append_pml(gen, joined, &f, name);
    else if (strcmp(type, "module") == 0) generation_append_module(gen, joined, &f, name);
    else if (strcmp(type, "document") == 0) append_document(gen, joined, &f, name);
    else if (strcmp(type, "search_result") == 0) append_search_result(gen, joined, &f, name);
    else if (generation_is_harmless(type)) generation_ignore(gen, p, "a part of type '%.40s' in %.80s", type, name);
    else
        server_fail(p, SERVER_UNSUPPORTED, name, "'%s' has a part of type '%.40s': this model accepts text only", name,
                    type);
}

static void join_parts(generation *gen, rp_role role, const json_t *parts, const char *const *types, const char *name,
                       server_problem *p) {
    base_buffer joined = BASE_BUFFER(SERVER_MAX_JOINED_BYTES);
    size_t n = json_array_size(parts);
    if (n > SERVER_MAX_PARTS)
        server_fail(p, SERVER_INVALID, name, "'%s' has %zu parts: give at most %d", name, n, SERVER_MAX_PARTS);
    for (size_t i = 0; i < n && !p->kind; i++) append_part(gen, &joined, json_array_get(parts, i), types, name, p);
    size_t bytes = joined.len;
    const char *text =
        p->kind ? NULL : generation_own(gen, joined.data ? base_buffer_take(&joined) : base_strdup(""), p);
    if (text) generation_add_message(gen, role, text, bytes, p);
    base_buffer_free(&joined);
}

void generation_message(generation *gen, rp_role role, const json_t *content, const char *const *types,
                        const char *name, server_problem *p) {
    if (p->kind) return;
    if (!content || json_is_null(content)) generation_add_message(gen, role, "", 0, p);
    else if (json_is_string(content))
        generation_add_message(gen, role, json_string_value(content), json_string_length(content), p);
    else if (json_is_array(content)) join_parts(gen, role, content, types, name, p);
    else server_field_wrong(&(server_fields){content, p, ""}, name, content, "a string or an array of parts");
}

void generation_text_message(generation *gen, rp_role role, const char *text, server_problem *p) {
    if (!p->kind) generation_add_message(gen, role, text, strlen(text), p);
}

const char *generation_keep(generation *gen, const char *text, server_problem *p) {
    return p->kind ? NULL : generation_own(gen, base_strdup(text), p);
}

/* ---- tools ---- */

static tool_spec *generation_find_tool(const generation *gen, const char *name) {
    for (size_t i = 0; i < gen->form.n_tools; i++)
        if (strcmp(gen->form.tools[i].name, name) == 0) return &gen->form.tools[i];
    return NULL;
}

void generation_add_tool(generation *gen, const tool_spec *tool, server_problem *p) {
    if (p->kind) return;
    /* What all vendors take: letters, digits, '_', '-', and '.' and ':' as Gemini does. */
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:";
    const size_t n = strlen(tool->name);
    if (n == 0 || n > SERVER_MAX_TOOL_NAME || strspn(tool->name, letters) != n) {
        server_fail(p, SERVER_INVALID, "tools",
                    "tool '%.40s': a name has up to %d letters, digits and _-.:", tool->name, SERVER_MAX_TOOL_NAME);
        return;
    }
    if (generation_find_tool(gen, tool->name)) {
        server_fail(p, SERVER_INVALID, "tools", "duplicate tool '%.80s': give each name once", tool->name);
        return;
    }
    int rc = base_grow((void **)&gen->form.tools, &gen->cap_tools, gen->form.n_tools + 1, SERVER_MAX_TOOLS,
                       sizeof(*gen->form.tools));
    if (rc == RP_ERR_LIMIT) server_fail(p, SERVER_INVALID, "tools", "more than %d tools: give fewer", SERVER_MAX_TOOLS);
    else if (rc) server_fail_memory(p);
    else gen->form.tools[gen->form.n_tools++] = *tool;
}

/* The description and the grammar, if there is one: the model sees it, no mask enforces it. */
static const char *describe_freeform(generation *gen, const char *description, const json_t *format,
                                     server_problem *p) {
    const char *syntax = json_string_value(json_object_get(format, "syntax"));
    const char *grammar = json_string_value(json_object_get(format, "definition"));
    base_buffer text = BASE_BUFFER(SERVER_MAX_JOINED_BYTES);
    if (!grammar) return description;
    bool ok = base_buffer_append_str(&text, description ? description : "") == 0 &&
              base_buffer_append_str(&text, "\n\nThe input follows this grammar (") == 0 &&
              base_buffer_append_str(&text, syntax ? syntax : "?") == 0 &&
              base_buffer_append_str(&text, "):\n") == 0 && base_buffer_append_str(&text, grammar) == 0;
    const char *kept = ok ? generation_keep(gen, text.data, p) : NULL;
    if (!ok) server_fail_memory(p);
    base_buffer_free(&text);
    return kept;
}

void generation_hold(generation *gen, json_t *value, server_problem *p) {
    if (!gen->made) gen->made = json_array();
    if (json_array_append_new(gen->made, value)) server_fail_memory(p);
}

void generation_add_freeform(generation *gen, const tool_spec *tool, const json_t *format, server_problem *p) {
    tool_spec t = *tool;
    if (p->kind) return;
    json_t *schema = json_pack("{s:s, s:{s:{s:s}}, s:[s], s:b}", "type", "object", "properties", SERVER_FREEFORM_INPUT,
                               "type", "string", "required", SERVER_FREEFORM_INPUT, "additionalProperties", 0);
    generation_hold(gen, schema, p);
    t.schema = schema;
    t.is_freeform = true;
    t.description = describe_freeform(gen, tool->description, format, p);
    generation_add_tool(gen, &t, p);
}

void generation_allow_tools(generation *gen, const char *const *names, size_t n, const char *field, server_problem *p) {
    for (size_t i = 0; i < gen->form.n_tools; i++) gen->form.tools[i].barred = true;
    for (size_t i = 0; i < n && !p->kind; i++) {
        tool_spec *tool = generation_find_tool(gen, names[i]);
        if (tool) tool->barred = false;
        else server_fail(p, SERVER_INVALID, field, "'%s': unknown tool '%.80s'", field, names[i]);
    }
}

void generation_add_call(generation *gen, const char *id, const char *name, const char *arguments, server_problem *p) {
    if (p->kind) return;
    BASE_ASSERT(gen->n_messages > 0 && gen->messages[gen->n_messages - 1].role == RP_ROLE_ASSISTANT);
    int rc = base_grow((void **)&gen->calls, &gen->cap_calls, gen->n_calls + 1, SERVER_MAX_CALLS, sizeof(*gen->calls));
    if (rc == RP_ERR_LIMIT)
        server_fail(p, SERVER_INVALID, "messages", "more than %d tool calls: give fewer", SERVER_MAX_CALLS);
    else if (rc) server_fail_memory(p);
    else gen->calls[gen->n_calls++] = (chat_call){gen->n_messages - 1, id, name, arguments};
}

static bool generation_is_called(const generation *gen, const char *id) {
    for (size_t i = gen->n_calls; i-- > 0;)
        if (gen->calls[i].id && strcmp(gen->calls[i].id, id) == 0) return true;
    return false;
}

void generation_add_result(generation *gen, const char *id, bool is_error, const char *field, server_problem *p) {
    if (p->kind) return;
    if (id && !generation_is_called(gen, id)) {
        server_fail(p, SERVER_INVALID, field, "'%s' is '%.80s': no earlier tool call has that id", field, id);
        return;
    }
    BASE_ASSERT(gen->n_messages > 0 && gen->messages[gen->n_messages - 1].role == RP_ROLE_TOOL);
    if (base_grow((void **)&gen->results, &gen->cap_results, gen->n_results + 1, RP_MAX_MESSAGES,
                  sizeof(*gen->results)))
        server_fail_memory(p); /* there are no more of them than messages */
    else gen->results[gen->n_results++] = (chat_result){gen->n_messages - 1, id, is_error};
}

/* ---- reasoning ---- */

void generation_add_reasoning(generation *gen, const char *text, server_problem *p) {
    if (p->kind || !text || !text[0] || gen->n_messages == 0) return;
    BASE_ASSERT(gen->messages[gen->n_messages - 1].role == RP_ROLE_ASSISTANT);
    int rc = base_grow((void **)&gen->reasonings, &gen->cap_reasonings, gen->n_reasonings + 1, SERVER_MAX_PARTS,
                       sizeof(*gen->reasonings));
    if (rc == RP_ERR_LIMIT)
        server_fail(p, SERVER_INVALID, "messages", "more than %d parts with reasoning: give fewer", SERVER_MAX_PARTS);
    else if (rc) server_fail_memory(p);
    else gen->reasonings[gen->n_reasonings++] = (chat_reasoning){gen->n_messages - 1, text};
}

void generation_set_thinking(generation *gen, bool on) {
    if (gen->form.thinking == THINKING_UNSET) gen->form.thinking = on ? THINKING_ON : THINKING_OFF;
}

void generation_set_effort(generation *gen, const char *effort, const char *field, server_problem *p) {
    static const char *const efforts[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(efforts); i++)
        if (strcasecmp(efforts[i], effort) == 0) {
            gen->reasoning_effort = efforts[i];
            if (i == 0) generation_set_thinking(gen, false);
            return;
        }
    server_fail(p, SERVER_INVALID, field, "'%s' is '%.40s': give none, minimal, low, medium, high, xhigh or max", field,
                effort);
}

/* ---- unknown fields ---- */

static bool generation_is_known(const char *name, const char *known) {
    size_t n = strlen(name);
    for (; *known != '\0'; known += strspn(known, " ")) {
        size_t length = strcspn(known, " ");
        if (length == n && memcmp(known, name, n) == 0) return true;
        known += length;
    }
    return false;
}

static void generation_add_unknown(generation *gen, const server_fields *f, const char *name) {
    char full[2 * NAME_BYTES];
    if (gen->n_unknown++ >= SERVER_MAX_UNKNOWN) return;
    size_t cut = BASE_MIN(strlen(name), (size_t)NAME_BYTES - 1);
    while (cut > 0 && ((unsigned char)name[cut] & 0xc0) == 0x80) cut--; /* whole characters */
    snprintf(full, sizeof(full), "%.*s%.*s", NAME_BYTES - 1, f->prefix, (int)cut, name);
    gen->unknown[gen->n_unknown - 1] = generation_keep(gen, full, f->problem);
}

void generation_ignore(generation *gen, server_problem *p, const char *fmt, ...) {
    char text[4 * NAME_BYTES];
    va_list ap;
    if (p->kind || gen->n_ignored++ >= SERVER_MAX_UNKNOWN) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    for (size_t at = 0, n; text[at]; at += n) { /* whole characters */
        const int length = base_utf8_length((const unsigned char *)text + at, strlen(text + at));
        n = length > 0 ? (size_t)length : 1;
        if (length <= 0) text[at] = length == 0 ? '\0' : '?';
        if (length == 0) break;
    }
    gen->ignored[gen->n_ignored - 1] = generation_keep(gen, text, p);
}

void generation_known(generation *gen, const server_fields *f, const char *known) {
    const char *name;
    json_t *value;
    if (f->problem->kind || !f->object) return;
    json_object_foreach((json_t *)f->object, name, value) {
        if (!generation_is_known(name, known)) generation_add_unknown(gen, f, name);
    }
}

/* ---- sampling ---- */

static void add_stop(generation *gen, const server_fields *f, const char *name, const json_t *stop) {
    const char *text = json_string_value(stop);
    if (!text) server_field_wrong(f, name, stop, "a string or an array of strings");
    else if (gen->n_stops == RP_MAX_STOPS)
        server_fail(f->problem, SERVER_INVALID, name, "'%s' has more than %d strings: give fewer", name, RP_MAX_STOPS);
    else if (text[0]) gen->stops[gen->n_stops++] = text; /* an empty one stops nothing */
}

void generation_stops(generation *gen, const server_fields *f, const char *name) {
    const json_t *stop = server_field(f, name);
    if (!stop) return;
    if (!json_is_array(stop)) {
        add_stop(gen, f, name, stop);
        return;
    }
    for (size_t i = 0; i < json_array_size(stop) && !f->problem->kind; i++)
        add_stop(gen, f, name, json_array_get(stop, i));
}

void generation_top_k(generation *gen, const server_fields *f, const char *name) {
    server_field_int(f, name, -1, INT32_MAX, &gen->sampling.top_k);
    if (gen->sampling.top_k == -1) gen->sampling.top_k = 0;
}

void generation_settle_sampling(generation *gen, const rp_model *model) {
    rp_sampling *s = &gen->sampling, *otherwise = &gen->otherwise;
    if (model) rp_model_sampling(model, otherwise);
    if (isnan(s->temperature)) s->temperature = otherwise->temperature;
    if (isnan(s->top_p)) s->top_p = otherwise->top_p;
    if (isnan(s->min_p)) s->min_p = otherwise->min_p;
    if (isnan(s->repeat_penalty)) s->repeat_penalty = otherwise->repeat_penalty;
    if (s->top_k == GENERATION_OPEN_INT) s->top_k = otherwise->top_k;
    if (s->repeat_last == GENERATION_OPEN_INT) s->repeat_last = otherwise->repeat_last;
}

static void generation_add_bias(generation *gen, const server_fields *f, const char *name, double token,
                                const json_t *weight) {
    bool never = json_is_false(weight);
    double bias = never ? (double)-INFINITY : json_number_value(weight);
    if (!(token >= 0 && token <= INT32_MAX && token == floor(token)) || !(json_is_number(weight) || never) ||
        (!never && fabs(bias) > 1000)) {
        server_fail(f->problem, SERVER_INVALID, name,
                    "'%s' has an entry that is not a token id with a number from -1000 to 1000", name);
        return;
    }
    BASE_ASSERT(gen->bias && gen->n_bias < SERVER_MAX_BIAS);
    gen->bias[gen->n_bias++] = (rp_logit_bias){(int32_t)token, (float)bias};
}

void generation_bias(generation *gen, const server_fields *f, const char *name) {
    json_t *bias = (json_t *)server_field(f, name), *weight;
    const char *key;
    BASE_ASSERT(!gen->bias && gen->n_bias == 0); /* a request has one field of it */
    if (!bias) return;
    size_t n = json_is_object(bias) ? json_object_size(bias) : json_array_size(bias);
    if (!json_is_object(bias) && !json_is_array(bias))
        server_field_wrong(f, name, bias, "an object of token ids and numbers");
    else if (n > SERVER_MAX_BIAS)
        server_fail(f->problem, SERVER_INVALID, name, "'%s' has %zu entries: give at most %d", name, n,
                    SERVER_MAX_BIAS);
    else if (n > 0 && !(gen->bias = base_calloc(n, sizeof(*gen->bias)))) server_fail_memory(f->problem);
    if (f->problem->kind || n == 0) return;
    if (json_is_object(bias)) {
        json_object_foreach(bias, key, weight) {
            if (f->problem->kind) break;
            char *end = NULL;
            const double id = strtod(key, &end);
            generation_add_bias(gen, f, name, end != key && *end == '\0' ? id : -1, weight);
        }
        return;
    }
    for (size_t i = 0; i < n && !f->problem->kind; i++) {
        const json_t *pair = json_array_get(bias, i), *token = json_array_get(pair, 0);
        generation_add_bias(gen, f, name, json_is_number(token) ? json_number_value(token) : -1,
                            json_array_get(pair, 1));
    }
}

void generation_retain(generation *gen, const server_fields *f, const char *name, const generation_ttl *ttls) {
    char names[NAME_BYTES] = "";
    const char *given = NULL;
    server_field_text(f, name, &given);
    if (!given || f->problem->kind) return;
    for (const generation_ttl *ttl = ttls; ttl->name; ttl++) {
        if (strcmp(ttl->name, given) == 0) {
            gen->retention_s = BASE_MAX(gen->retention_s, ttl->seconds);
            return;
        }
        const size_t n = strlen(names);
        snprintf(names + n, sizeof(names) - n, "%s%s", n == 0 ? "" : " or ", ttl->name);
    }
    server_fail(f->problem, SERVER_INVALID, name, "'%s%s' is '%.40s': give %s", f->prefix, name, given, names);
}
