/* gemini_tools.c: see gemini.h. Owns nothing. */
#include "server/gemini.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A field by its name in JSON, or as Python's clients may write it. */
static const json_t *either(const json_t *object, const char *name, const char *snake) {
    const json_t *value = json_object_get(object, name);
    return value ? value : json_object_get(object, snake);
}

/* ---- contents ---- */

static const char *text_of(server_ask *ask, const json_t *value, const char *otherwise, server_problem *p) {
    char *text = json_is_object(value) ? json_dumps(value, 0) : NULL;
    const char *kept = server_ask_keep(ask, text ? text : otherwise, p);
    free(text); /* jansson's */
    return kept;
}

/* {"functionCall": {"id": ..., "name": ..., "args": {...}}}: a call of the last message. */
static void add_call(server_ask *ask, const json_t *call, const char *prefix, server_problem *p) {
    const char *id = NULL, *name = NULL;
    server_fields f = {call, p, prefix};
    server_field_text(&f, "id", &id);
    server_field_text(&f, "name", &name);
    const json_t *args = server_field_object(&f, "args");
    if (!name) server_fail(p, SERVER_INVALID, prefix, "'%sname' is missing", prefix);
    else server_ask_add_call(ask, id, name, text_of(ask, args, "{}", p), p);
}

/* {"functionResponse": {"id": ..., "name": ..., "response": {...}}}: a message. */
static void add_response(server_ask *ask, const json_t *response, const char *prefix, server_problem *p) {
    const char *id = NULL, *name = NULL;
    server_fields f = {response, p, prefix};
    char field[112];
    server_field_text(&f, "id", &id);
    server_field_text(&f, "name", &name);
    const json_t *content = server_field_object(&f, "response");
    snprintf(field, sizeof(field), "%.90sid", prefix);
    server_ask_text_message(ask, RP_ROLE_TOOL, text_of(ask, content, "{}", p), p);
    server_ask_add_result(ask, id, false, field, p);
}

typedef void (*add_part)(server_ask *ask, const json_t *value, const char *prefix, server_problem *p);

static void each(server_ask *ask, const json_t *parts, const char *key, const char *snake, const char *name, add_part add,
                 server_problem *p) {
    for (size_t i = 0; i < json_array_size(parts) && !p->kind; i++) {
        char prefix[96];
        const json_t *value = either(json_array_get(parts, i), key, snake);
        snprintf(prefix, sizeof(prefix), "%.40s.parts[%zu].%.24s.", name, i, key);
        if (!value) continue;
        if (json_is_object(value)) add(ask, value, prefix, p);
        else server_fail(p, SERVER_INVALID, name, "'%s' is no object", prefix);
    }
}

static bool is_text(const json_t *part) {
    return !either(part, "functionCall", "function_call") && !either(part, "functionResponse", "function_response");
}

void gemini_add_parts(server_ask *ask, rp_role role, const json_t *parts, const char *name, server_problem *p) {
    static const char *const types[] = {"text", NULL};
    size_t before = ask->n_messages;
    json_t *texts = json_array();
    if (!texts) server_fail_memory(p);
    for (size_t i = 0; i < json_array_size(parts); i++)
        if (is_text(json_array_get(parts, i))) json_array_append(texts, json_array_get(parts, i));
    if (role == RP_ROLE_USER) each(ask, parts, "functionResponse", "function_response", name, add_response, p);
    if (role != RP_ROLE_USER || json_array_size(texts) > 0 || ask->n_messages == before) server_ask_message(ask, role, texts, types, name, p);
    if (role == RP_ROLE_ASSISTANT) each(ask, parts, "functionCall", "function_call", name, add_call, p);
    json_decref(texts);
}

/* ---- tools ---- */

static void add_function(server_ask *ask, const json_t *function, const char *prefix, server_problem *p) {
    static const char *const schemas[] = {"parameters", "parametersJsonSchema", "parameters_json_schema"};
    server_fields f = {function, p, prefix};
    server_tool t = {0};
    char place[112];
    if (!json_is_object(function)) server_fail(p, SERVER_INVALID, "tools", "'%.80s' is no object", prefix);
    server_field_text(&f, "name", &t.name);
    server_field_text(&f, "description", &t.description);
    snprintf(place, sizeof(place), "%.80sparameters", prefix);
    for (size_t i = 0; i < BASE_ARRAY_LEN(schemas) && !t.schema; i++) t.schema = server_field_object(&f, schemas[i]);
    if (!t.name) server_fail(p, SERVER_INVALID, "tools", "'%sname' is missing", prefix);
    t.place = server_ask_keep(ask, place, p);
    server_ask_add_tool(ask, &t, p);
}

/* {"functionDeclarations": [...]}, and nothing else. */
static void parse_tool(server_ask *ask, const json_t *tool, size_t i, server_problem *p) {
    const json_t *functions = either(tool, "functionDeclarations", "function_declarations");
    json_t *value;
    const char *name;
    json_object_foreach((json_t *)tool, name, value) {
        if (value != functions && !json_is_null(value))
            server_fail(p, SERVER_UNSUPPORTED, "tools", "'tools[%zu].%.40s' is not here: this server has functions alone", i, name);
    }
    for (size_t k = 0; k < json_array_size(functions) && !p->kind; k++) {
        char prefix[80];
        snprintf(prefix, sizeof(prefix), "tools[%zu].functionDeclarations[%zu].", i, k);
        add_function(ask, json_array_get(functions, k), prefix, p);
    }
}

static void parse_allowed(server_ask *ask, const json_t *allowed, server_problem *p) {
    const char *names[SERVER_MAX_TOOLS];
    size_t n = json_array_size(allowed);
    if (n > SERVER_MAX_TOOLS) server_fail(p, SERVER_INVALID, "toolConfig", "'allowedFunctionNames' has more than %d names", SERVER_MAX_TOOLS);
    for (size_t i = 0; i < n && !p->kind; i++) {
        names[i] = json_string_value(json_array_get(allowed, i));
        if (!names[i]) server_fail(p, SERVER_INVALID, "toolConfig", "'allowedFunctionNames' has an entry that is no name");
    }
    if (n > 0 && !p->kind) server_ask_allow_tools(ask, names, n, "toolConfig.functionCallingConfig.allowedFunctionNames", p);
}

/* {"functionCallingConfig": {"mode": "AUTO" | "ANY" | "NONE", "allowedFunctionNames": [...]}} */
static void parse_config(server_ask *ask, const json_t *config, server_problem *p) {
    const json_t *calling = either(config, "functionCallingConfig", "function_calling_config");
    const char *mode = json_string_value(json_object_get(calling, "mode"));
    if (!mode || strcmp(mode, "AUTO") == 0 || strcmp(mode, "MODE_UNSPECIFIED") == 0) ask->tool_choice = SERVER_TOOLS_AUTO;
    else if (strcmp(mode, "ANY") == 0) ask->tool_choice = SERVER_TOOLS_REQUIRED;
    else if (strcmp(mode, "NONE") == 0) ask->tool_choice = SERVER_TOOLS_NONE;
    else server_fail(p, SERVER_INVALID, "toolConfig", "'toolConfig.functionCallingConfig.mode' is '%.40s': give AUTO, ANY or NONE", mode);
    parse_allowed(ask, either(calling, "allowedFunctionNames", "allowed_function_names"), p);
}

void gemini_parse_tools(server_ask *ask, const server_fields *f) {
    const json_t *tools = server_field_array(f, "tools"), *config = either(f->object, "toolConfig", "tool_config");
    for (size_t i = 0; i < json_array_size(tools) && !f->problem->kind; i++) parse_tool(ask, json_array_get(tools, i), i, f->problem);
    if (config) parse_config(ask, config, f->problem);
}

/* ---- forms ---- */

void gemini_parse_format(server_ask *ask, const server_fields *config) {
    static const char *const schemas[] = {"responseSchema", "responseJsonSchema", "_responseJsonSchema"};
    const char *type = "text/plain";
    char place[80] = "";
    server_field_text(config, "responseMimeType", &type);
    for (size_t i = 0; i < BASE_ARRAY_LEN(schemas) && !ask->answer_schema; i++) {
        ask->answer_schema = server_field_object(config, schemas[i]);
        snprintf(place, sizeof(place), "%.40s%s", config->prefix, schemas[i]);
    }
    bool json = strcmp(type, "application/json") == 0;
    if (!json && strcmp(type, "text/plain") != 0)
        server_fail(config->problem, SERVER_UNSUPPORTED, "responseMimeType", "'%sresponseMimeType' is '%.40s': give text/plain or application/json",
                    config->prefix, type);
    ask->wants_json = json || ask->answer_schema;
    if (json && !ask->answer_schema) ask->answer_schema = json_true(); /* any JSON; not counted */
    ask->answer_place = server_ask_keep(ask, place, config->problem);
}

/* ---- answers ---- */

json_t *gemini_part_of(const server_choice *c, const tool_item *item) {
    char id[TOOL_CALL_ID_BYTES];
    json_t *args = item->tool && item->is_whole ? json_loadb(item->text.data, item->text.len, 0, NULL) : NULL;
    if (!item->tool) return json_pack("{s:o}", "text", server_json_text(item->text.data, item->text.len));
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
