/* SPDX-License-Identifier: Apache-2.0 */
/* gemini_tools.c: see gemini.h. Owns nothing. */
#include "base/check.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "server/dialects/gemini.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A field by its name in JSON, or as Python's clients may write it. */
static const json_t *gemini_tools_either(const json_t *object, const char *name, const char *snake) {
    const json_t *value = json_object_get(object, name);
    return value ? value : json_object_get(object, snake);
}

/* ---- contents ---- */

const char *gemini_object_text(generation *gen, const json_t *value, const char *otherwise, server_problem *p) {
    char *text = json_is_object(value) ? base_json_text(value, 0) : NULL;
    const char *kept = generation_keep(gen, text ? text : otherwise, p);
    base_free(text);
    return kept;
}

/* {"functionCall": {"id": ..., "name": ..., "args": {...}}}: a call of the last message. */
static void gemini_tools_add_call(generation *gen, const json_t *call, const char *prefix, server_problem *p) {
    const char *id = NULL, *name = NULL;
    server_fields f = {call, p, prefix};
    server_field_text(&f, "id", &id);
    server_field_text(&f, "name", &name);
    const json_t *args = server_field_object(&f, "args");
    if (!name) server_fail(p, SERVER_INVALID, prefix, "'%sname' is missing", prefix);
    else generation_add_call(gen, id, name, gemini_object_text(gen, args, "{}", p), p);
}

/* {"functionResponse": {"id": ..., "name": ..., "response": {...}}}: a message. */
static void add_response(generation *gen, const json_t *response, const char *prefix, server_problem *p) {
    const char *id = NULL, *name = NULL;
    server_fields f = {response, p, prefix};
    char field[112];
    server_field_text(&f, "id", &id);
    server_field_text(&f, "name", &name);
    const json_t *content = server_field_object(&f, "response");
    snprintf(field, sizeof(field), "%.90sid", prefix);
    generation_text_message(gen, RP_ROLE_TOOL, gemini_object_text(gen, content, "{}", p), p);
    generation_add_result(gen, id, false, field, p);
}

/* {"text": ..., "thought": true}: reasoning of the last message. */
static bool is_thought(const json_t *part) { return json_is_true(json_object_get(part, "thought")); }

/* Whether one of the 64 parts before part i is the same call or response: its id, and all else. gemini-cli 0.61 repeats
 * responses each time that it resumes a session; every copy would change the prompt before what is new. */
static bool gemini_tools_repeated(const json_t *parts, size_t i, const char *key, const char *snake,
                                  const json_t *value) {
    const char *id = json_string_value(json_object_get(value, "id"));
    for (size_t j = i > 64 ? i - 64 : 0; id && j < i; j++) {
        const json_t *other = gemini_tools_either(json_array_get(parts, j), key, snake);
        const char *other_id = json_string_value(json_object_get(other, "id"));
        if (other_id && strcmp(id, other_id) == 0 && json_equal(value, other)) return true;
    }
    return false;
}

typedef void (*add_part)(generation *gen, const json_t *value, const char *prefix, server_problem *p);

static void gemini_tools_each(generation *gen, const json_t *parts, const char *key, const char *snake,
                              const char *name, add_part add, server_problem *p) {
    for (size_t i = 0; i < json_array_size(parts) && !p->kind; i++) {
        char prefix[96];
        const json_t *value = gemini_tools_either(json_array_get(parts, i), key, snake);
        snprintf(prefix, sizeof(prefix), "%.40s.parts[%zu].%.24s.", name, i, key);
        if (!value || gemini_tools_repeated(parts, i, key, snake, value)) continue;
        if (json_is_object(value)) add(gen, value, prefix, p);
        else server_fail(p, SERVER_INVALID, name, "'%s' is not an object", prefix);
    }
}

/* Parts of another kind than text, in place of it. */
static void gemini_tools_check_parts(const json_t *parts, const char *name, server_problem *p) {
    static const char *const kinds[] = {
        "inlineData", "inline_data", "fileData", "file_data", "executableCode", "executable_code",
        "codeExecutionResult", "code_execution_result", "toolCall", "tool_call", "toolResponse", "tool_response"};
    for (size_t i = 0; i < json_array_size(parts) && !p->kind; i++)
        for (size_t k = 0; k < BASE_ARRAY_LEN(kinds) && !p->kind; k++)
            if (json_object_get(json_array_get(parts, i), kinds[k]) &&
                !json_object_get(json_array_get(parts, i), "text"))
                server_fail(p, SERVER_INVALID, name, "'%.60s.parts[%zu].%s': this model accepts text only", name, i,
                            kinds[k]);
}

void gemini_add_parts(generation *gen, rp_role role, const json_t *parts, const char *name, server_problem *p) {
    static const char *const types[] = {"text", NULL};
    size_t before = gen->n_messages;
    json_t *texts = json_array();
    gemini_tools_check_parts(parts, name, p);
    if (!texts) server_fail_memory(p);
    for (size_t i = 0; i < json_array_size(parts); i++) {
        json_t *part = json_array_get(parts, i);
        const bool is_text = !gemini_tools_either(part, "functionCall", "function_call") &&
                             !gemini_tools_either(part, "functionResponse", "function_response");
        if (is_text && !(role == RP_ROLE_ASSISTANT && is_thought(part))) json_array_append(texts, part);
    }
    if (role == RP_ROLE_USER)
        gemini_tools_each(gen, parts, "functionResponse", "function_response", name, add_response, p);
    if (role != RP_ROLE_USER || json_array_size(texts) > 0 || gen->n_messages == before)
        generation_message(gen, role, texts, types, name, p);
    if (role == RP_ROLE_ASSISTANT) {
        for (size_t i = 0; i < json_array_size(parts) && !p->kind; i++) {
            const json_t *part = json_array_get(parts, i);
            if (is_thought(part)) generation_add_reasoning(gen, json_string_value(json_object_get(part, "text")), p);
        }
        gemini_tools_each(gen, parts, "functionCall", "function_call", name, gemini_tools_add_call, p);
    }
    json_decref(texts);
}

/* ---- tools ---- */

static void gemini_tools_add_function(generation *gen, const json_t *function, const char *prefix, server_problem *p) {
    static const char *const schemas[] = {"parameters", "parametersJsonSchema", "parameters_json_schema"};
    server_fields f = {function, p, prefix};
    tool_spec t = {0};
    char place[112];
    if (!json_is_object(function)) server_fail(p, SERVER_INVALID, "tools", "'%.80s' is not an object", prefix);
    server_field_text(&f, "name", &t.name);
    server_field_text(&f, "description", &t.description);
    snprintf(place, sizeof(place), "%.80sparameters", prefix);
    for (size_t i = 0; i < BASE_ARRAY_LEN(schemas) && !t.schema; i++) t.schema = server_field_object(&f, schemas[i]);
    if (!t.name) server_fail(p, SERVER_INVALID, "tools", "'%sname' is missing", prefix);
    t.place = generation_keep(gen, place, p);
    generation_add_tool(gen, &t, p);
}

/* {"functionDeclarations": [...]}, and nothing else. */
static void gemini_tools_parse_tool(generation *gen, const json_t *tool, size_t i, server_problem *p) {
    const json_t *functions = gemini_tools_either(tool, "functionDeclarations", "function_declarations");
    json_t *value;
    const char *name;
    json_object_foreach((json_t *)tool, name, value) {
        if (value != functions && !json_is_null(value))
            server_fail(p, SERVER_UNSUPPORTED, "tools",
                        "'tools[%zu].%.40s' is not supported: this server supports functions only", i, name);
    }
    for (size_t k = 0; k < json_array_size(functions) && !p->kind; k++) {
        char prefix[80];
        snprintf(prefix, sizeof(prefix), "tools[%zu].functionDeclarations[%zu].", i, k);
        gemini_tools_add_function(gen, json_array_get(functions, k), prefix, p);
    }
}

void gemini_allow_tools(generation *gen, const json_t *allowed, const char *field, server_problem *p) {
    const char *names[SERVER_MAX_TOOLS];
    size_t n = json_array_size(allowed);
    if (n > SERVER_MAX_TOOLS)
        server_fail(p, SERVER_INVALID, field, "'%s' has more than %d names", field, SERVER_MAX_TOOLS);
    for (size_t i = 0; i < n && !p->kind; i++) {
        BASE_ASSERT(i < BASE_ARRAY_LEN(names));
        names[i] = json_string_value(json_array_get(allowed, i));
        if (!names[i]) server_fail(p, SERVER_INVALID, field, "'%s' has an entry that is not a name", field);
    }
    if (n > 0 && !p->kind) generation_allow_tools(gen, names, n, field, p);
}

/* {"functionCallingConfig": {"mode": "AUTO" | "ANY" | "NONE", "allowedFunctionNames": [...]}} */
static void gemini_tools_parse_config(generation *gen, const json_t *config, server_problem *p) {
    const json_t *calling = gemini_tools_either(config, "functionCallingConfig", "function_calling_config");
    const char *mode = json_string_value(json_object_get(calling, "mode"));
    if (!mode || strcmp(mode, "AUTO") == 0 || strcmp(mode, "MODE_UNSPECIFIED") == 0)
        gen->form.tool_choice = TOOL_CHOICE_AUTO;
    else if (strcmp(mode, "ANY") == 0) gen->form.tool_choice = TOOL_CHOICE_REQUIRED;
    else if (strcmp(mode, "NONE") == 0) gen->form.tool_choice = TOOL_CHOICE_NONE;
    else
        server_fail(p, SERVER_INVALID, "toolConfig",
                    "'toolConfig.functionCallingConfig.mode' is '%.40s': give AUTO, ANY or NONE", mode);
    gemini_allow_tools(gen, gemini_tools_either(calling, "allowedFunctionNames", "allowed_function_names"),
                       "toolConfig.functionCallingConfig.allowedFunctionNames", p);
}

void gemini_parse_tools(generation *gen, const server_fields *f) {
    const json_t *tools = server_field_array(f, "tools"),
                 *config = gemini_tools_either(f->object, "toolConfig", "tool_config");
    for (size_t i = 0; i < json_array_size(tools) && !f->problem->kind; i++)
        gemini_tools_parse_tool(gen, json_array_get(tools, i), i, f->problem);
    if (config && !json_is_object(config) && !json_is_null(config))
        server_field_wrong(f, "toolConfig", config, "an object");
    else if (config) gemini_tools_parse_config(gen, config, f->problem);
}

/* ---- forms ---- */

void gemini_set_format(generation *gen, const char *type, const char *field, const json_t *schema, const char *place,
                       server_problem *p) {
    bool json = strcmp(type, "application/json") == 0;
    if (!json && strcmp(type, "text/plain") != 0)
        server_fail(p, SERVER_UNSUPPORTED, field, "'%s' is '%.40s': give text/plain or application/json", field, type);
    gen->form.wants_json = json || schema;
    gen->form.schema = json && !schema ? json_true() : schema; /* any JSON; not counted */
    gen->form.place = generation_keep(gen, place, p);
}

void gemini_parse_format(generation *gen, const server_fields *config) {
    static const char *const schemas[] = {"responseSchema", "responseJsonSchema", "_responseJsonSchema"};
    const char *type = "text/plain";
    const json_t *schema = NULL;
    char field[80], place[80] = "";
    server_field_text(config, "responseMimeType", &type);
    snprintf(field, sizeof(field), "%.40sresponseMimeType", config->prefix);
    for (size_t i = 0; i < BASE_ARRAY_LEN(schemas) && !schema; i++) {
        schema = server_field_object(config, schemas[i]);
        snprintf(place, sizeof(place), "%.40s%s", config->prefix, schemas[i]);
    }
    gemini_set_format(gen, type, field, schema, place, config->problem);
}

/* ---- answers ---- */

json_t *gemini_part_of(const server_choice *c, const tool_item *item) {
    char id[TOOL_CALL_ID_BYTES];
    json_t *args = item->tool ? tool_item_arguments(item) : NULL;
    json_t *text = item->tool ? NULL : base_json_string(item->text.data, item->text.len);
    if (item->is_reasoning) return json_pack("{s:o, s:b}", "text", text, "thought", 1);
    if (!item->tool) return json_pack("{s:o}", "text", text);
    if (!args) return json_pack("{s:o}", "text", tool_item_source(item));
    tool_call_id(id, "call_", c->x->id, c->index, item->number);
    return json_pack("{s:{s:s, s:s, s:o}}", "functionCall", "id", id, "name", item->tool->name, "args", args);
}

json_t *gemini_parts(const server_choice *c) {
    json_t *parts = json_array();
    for (size_t i = 0; i < c->finder.n_items && parts; i++)
        if (json_array_append_new(parts, gemini_part_of(c, &c->finder.items[i]))) return json_decref(parts), NULL;
    if (parts && c->finder.n_items == 0) json_array_append_new(parts, json_pack("{s:o}", "text", generate_text(c)));
    return parts;
}
