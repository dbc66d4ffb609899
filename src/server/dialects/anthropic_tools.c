/* SPDX-License-Identifier: Apache-2.0 */
/* anthropic_tools.c: see anthropic.h. Owns nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "server/dialects/anthropic.h"

/* ---- contents ---- */

static const char *const text_types[] = {"text", NULL};

static bool is_block(const json_t *block, const char *type) {
    const char *own = json_string_value(json_object_get(block, "type"));
    return own && strcmp(own, type) == 0;
}

/* {"type": "tool_use", "id": ..., "name": ..., "input": {...}}: a call of the last message. */
static void anthropic_tools_add_call(generation *gen, const json_t *block, const char *prefix, server_problem *p) {
    const char *id = NULL, *name = NULL;
    server_fields f = {block, p, prefix};
    server_field_text(&f, "id", &id);
    server_field_text(&f, "name", &name);
    const json_t *input = server_field_object(&f, "input");
    if (!p->kind && (!id || !name)) server_fail(p, SERVER_INVALID, "messages", "%sname and id: give both", prefix);
    if (p->kind) return;
    char *text = input ? base_json_text(input, 0) : NULL; /* as models write it: a space after ':' and ',' */
    const char *kept = generation_keep(gen, text ? text : "{}", p);
    base_free(text);
    generation_add_call(gen, id, name, kept, p);
}

/* {"type": "tool_result", "tool_use_id": ..., "content": ..., "is_error": ...}: a message. */
static void add_result(generation *gen, const json_t *block, const char *prefix, server_problem *p) {
    const char *id = NULL;
    char name[112];
    bool is_error = false;
    server_fields f = {block, p, prefix};
    server_field_text(&f, "tool_use_id", &id);
    server_field_bool(&f, "is_error", &is_error);
    snprintf(name, sizeof(name), "%.90stool_use_id", prefix);
    if (!p->kind && !id) server_fail(p, SERVER_INVALID, name, "%s: is missing", name);
    snprintf(name, sizeof(name), "%.90scontent", prefix);
    generation_message(gen, RP_ROLE_TOOL, json_object_get(block, "content"), text_types, name, p);
    snprintf(name, sizeof(name), "%.90stool_use_id", prefix);
    generation_add_result(gen, id, is_error, name, p);
}

/* {"type": "thinking", "thinking": ..., "signature": ...}: of the last message. Signatures are not checked: the text is
   the client's anyway. */
static void add_thinking(generation *gen, const json_t *block, const char *prefix, server_problem *p) {
    const char *text = NULL;
    server_field_text(&(server_fields){block, p, prefix}, "thinking", &text);
    generation_add_reasoning(gen, text, p);
}

/* The blocks of one type. */
static void anthropic_tools_each(generation *gen, const json_t *content, const char *type, const char *name,
                                 void (*add)(generation *gen, const json_t *block, const char *prefix,
                                             server_problem *p),
                                 server_problem *p) {
    for (size_t i = 0; i < json_array_size(content) && !p->kind; i++) {
        char prefix[96];
        snprintf(prefix, sizeof(prefix), "%.64s.%zu.", name, i);
        if (is_block(json_array_get(content, i), type)) add(gen, json_array_get(content, i), prefix, p);
    }
}

void anthropic_add_content(generation *gen, rp_role role, const json_t *content, const char *name, server_problem *p) {
    const char *other = role == RP_ROLE_ASSISTANT ? "tool_use" : role == RP_ROLE_USER ? "tool_result"
                                                                                      : "";
    json_t *texts = json_is_array(content) ? json_array() : NULL;
    size_t before = gen->n_messages, n = json_array_size(content);
    if (!texts) {
        generation_message(gen, role, content, text_types, name, p);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        json_t *block = json_array_get(content, i);
        const bool is_thinking = is_block(block, "thinking") || is_block(block, "redacted_thinking");
        if (!is_block(block, other) && !(role == RP_ROLE_ASSISTANT && is_thinking)) json_array_append(texts, block);
    }
    if (role == RP_ROLE_USER) anthropic_tools_each(gen, content, other, name, add_result, p);
    if (role != RP_ROLE_USER || json_array_size(texts) > 0 || gen->n_messages == before)
        generation_message(gen, role, texts, text_types, name, p);
    if (role == RP_ROLE_ASSISTANT) {
        anthropic_tools_each(gen, content, "thinking", name, add_thinking, p);
        anthropic_tools_each(gen, content, other, name, anthropic_tools_add_call, p);
    }
    json_decref(texts);
}

/* ---- tools ---- */

static void anthropic_tools_parse_tool(generation *gen, const json_t *tool, size_t i, server_problem *p) {
    char prefix[48], place[64];
    const char *type = "custom";
    tool_spec t = {0};
    snprintf(prefix, sizeof(prefix), "tools.%zu.", i);
    snprintf(place, sizeof(place), "%sinput_schema", prefix);
    server_fields f = {tool, p, prefix};
    if (!json_is_object(tool)) server_fail(p, SERVER_INVALID, "tools", "tools.%zu: is not an object", i);
    server_field_text(&f, "type", &type);
    if (!p->kind &&
        strcmp(type, "custom") != 0) { /* a tool of Anthropic's servers, or one whose schema only its models know */
        generation_ignore(gen, p, "tools.%zu of type '%.40s'", i, type);
        return;
    }
    server_field_text(&f, "name", &t.name);
    server_field_text(&f, "description", &t.description);
    server_field_bool(&f, "strict", &t.strict);
    t.schema = server_field_object(&f, "input_schema");
    if (!p->kind && (!t.name || !t.schema))
        server_fail(p, SERVER_INVALID, "tools", "%sname and input_schema: give both", prefix);
    t.place = generation_keep(gen, place, p);
    generation_add_tool(gen, &t, p);
}

static void anthropic_tools_parse_choice(generation *gen, const server_fields *f) {
    const json_t *choice = server_field_object(f, "tool_choice");
    server_fields g = {choice, f->problem, "tool_choice."};
    const char *type = "", *name = NULL;
    if (!choice) return;
    server_field_text(&g, "type", &type);
    server_field_text(&g, "name", &name);
    server_field_bool(&g, "disable_parallel_tool_use", &gen->form.one_call);
    if (strcmp(type, "none") == 0) gen->form.tool_choice = TOOL_CHOICE_NONE;
    else if (strcmp(type, "any") == 0 || (strcmp(type, "tool") == 0 && name))
        gen->form.tool_choice = TOOL_CHOICE_REQUIRED;
    else if (strcmp(type, "auto") != 0)
        server_fail(f->problem, SERVER_INVALID, "tool_choice",
                    "tool_choice.type: is '%.40s': give auto, any, none, or tool and a name", type);
    if (strcmp(type, "tool") == 0 && !f->problem->kind)
        generation_allow_tools(gen, &name, 1, "tool_choice.name", f->problem);
}

void anthropic_parse_tools(generation *gen, const server_fields *f) {
    const json_t *tools = server_field_array(f, "tools");
    for (size_t i = 0; i < json_array_size(tools) && !f->problem->kind; i++)
        anthropic_tools_parse_tool(gen, json_array_get(tools, i), i, f->problem);
    anthropic_tools_parse_choice(gen, f);
}

/* ---- answers ---- */

static json_t *text_block(json_t *text) { return json_pack("{s:s, s:o}", "type", "text", "text", text); }

#define SIGNATURE_BYTES (2 * BASE_KEY_BYTES + 1)

/* A name of the reasoning. The official clients keep blocks that have one. */
static void sign_reasoning(const tool_item *item, char out[SIGNATURE_BYTES]) {
    base_hash h;
    base_key key;
    base_hash_init(&h, "reprise reasoning");
    base_hash_bytes(&h, item->text.data, item->text.len);
    base_hash_final(&h, &key);
    base_key_hex(&key, out, SIGNATURE_BYTES - 1);
}

static json_t *job_block(const server_request *x, const server_choice *c, const tool_item *item, json_t *input) {
    char id[TOOL_CALL_ID_BYTES];
    tool_call_id(id, "toolu_", x->id, c->index, item->number);
    return json_pack("{s:s, s:s, s:s, s:o}", "type", "tool_use", "id", id, "name", item->tool->name, "input", input);
}

static json_t *block_of(const server_request *x, const server_choice *c, const tool_item *item) {
    json_t *input = item->tool ? tool_item_arguments(item) : NULL;
    if (item->is_reasoning) {
        char signature[SIGNATURE_BYTES];
        sign_reasoning(item, signature);
        return json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking",
                         base_json_string(item->text.data, item->text.len), "signature", signature);
    }
    if (input) return job_block(x, c, item, input);
    return text_block(item->tool ? tool_item_source(item) : base_json_string(item->text.data, item->text.len));
}

json_t *anthropic_content(const server_request *x, const server_choice *c) {
    json_t *blocks = json_array();
    for (size_t i = 0; i < c->finder.n_items && blocks; i++)
        if (json_array_append_new(blocks, block_of(x, c, &c->finder.items[i]))) return json_decref(blocks), NULL;
    const bool has_content = c->finder.n_items > 1 || (c->finder.n_items == 1 && !c->finder.items[0].is_reasoning);
    if (blocks && !has_content) json_array_append_new(blocks, text_block(generate_text(c)));
    return blocks;
}

static int begin_block(server_request *x, server_choice *c, json_t *block) {
    BASE_ASSERT(!c->block_is_open && !c->block_is_reasoning);
    c->block_is_open = true;
    return server_request_frame(x, "content_block_start",
                                json_pack("{s:s, s:i, s:o}", "type", "content_block_start", "index", (int)c->n_blocks++,
                                          "content_block", block));
}

int anthropic_begin_text(server_request *x, server_choice *c) { return begin_block(x, c, text_block(json_string(""))); }

static int sign_block(server_request *x, const server_choice *c) {
    char signature[SIGNATURE_BYTES];
    const tool_item *item = NULL;
    for (size_t i = 0; i < c->finder.n_items; i++)
        if (c->finder.items[i].is_reasoning) item = &c->finder.items[i];
    BASE_ASSERT(item != NULL); /* the block is of the last one */
    sign_reasoning(item, signature);
    return server_request_frame(x, "content_block_delta",
                                json_pack("{s:s, s:i, s:{s:s, s:s}}", "type", "content_block_delta", "index",
                                          (int)c->n_blocks - 1, "delta", "type", "signature_delta", "signature",
                                          signature));
}

int anthropic_end_block(server_request *x, server_choice *c) {
    if (!c->block_is_open) return 0;
    BASE_ASSERT(c->n_blocks > 0);
    int rc = c->block_is_reasoning ? sign_block(x, c) : 0;
    c->block_is_open = c->block_is_reasoning = false;
    if (rc) return rc;
    return server_request_frame(x, "content_block_stop",
                                json_pack("{s:s, s:i}", "type", "content_block_stop", "index", (int)c->n_blocks - 1));
}

int anthropic_tell_reasoning(server_request *x, server_choice *c, const server_piece *piece) {
    int rc = c->block_is_open && !c->block_is_reasoning ? anthropic_end_block(x, c) : 0;
    if (!rc && !c->block_is_open)
        rc = begin_block(x, c, json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "", "signature", ""));
    c->block_is_reasoning = true;
    if (rc) return rc;
    BASE_ASSERT(c->block_is_open && c->n_blocks > 0);
    return server_request_frame(x, "content_block_delta",
                                json_pack("{s:s, s:i, s:{s:s, s:o}}", "type", "content_block_delta", "index",
                                          (int)c->n_blocks - 1, "delta", "type", "thinking_delta", "thinking",
                                          base_json_string(piece->text, piece->n)));
}

int anthropic_tell_call(server_request *x, server_choice *c, tool_event event, const tool_item *item, const char *bytes,
                        size_t n) {
    if (event == TOOL_END) return anthropic_end_block(x, c);
    if (event == TOOL_BEGIN) {
        int rc = anthropic_end_block(x, c);
        return rc ? rc : begin_block(x, c, job_block(x, c, item, json_object()));
    }
    BASE_ASSERT(event == TOOL_ARGUMENTS && c->block_is_open && !c->block_is_reasoning);
    return server_request_frame(x, "content_block_delta",
                                json_pack("{s:s, s:i, s:{s:s, s:o}}", "type", "content_block_delta", "index",
                                          (int)c->n_blocks - 1, "delta", "type", "input_json_delta", "partial_json",
                                          base_json_string(bytes, n)));
}
