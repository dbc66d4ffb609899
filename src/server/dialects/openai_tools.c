/* SPDX-License-Identifier: Apache-2.0 */
/* openai_tools.c: tools and forms of answers in OpenAI's dialects: fields in, calls out. Owns nothing. */
#include <stdio.h>
#include <string.h>

#include "server/dialects/openai.h"

/* ---- tools ---- */

static void openai_tools_add_function(generation *gen, const server_fields *f) {
    char place[128];
    server_tool tool = {0};
    server_field_text(f, "name", &tool.name);
    server_field_text(f, "description", &tool.description);
    server_field_bool(f, "strict", &tool.strict);
    tool.schema = server_field_object(f, "parameters");
    if (!f->problem->kind && !tool.name) server_fail(f->problem, SERVER_INVALID, "tools", "'%sname' is missing", f->prefix);
    snprintf(place, sizeof(place), "%.100sparameters", f->prefix);
    tool.place = generation_keep(gen, place, f->problem);
    generation_add_tool(gen, &tool, f->problem);
}

static void openai_tools_parse_tool(generation *gen, const json_t *tool, size_t i, openai_nesting nesting, server_problem *p) {
    char prefix[64], inside[96];
    const char *type = NULL;
    snprintf(prefix, sizeof(prefix), "tools[%zu].", i);
    snprintf(inside, sizeof(inside), "%sfunction.", prefix);
    server_fields f = {tool, p, prefix};
    if (!json_is_object(tool)) server_fail(p, SERVER_INVALID, "tools", "'tools[%zu]' is not an object: give {\"type\": \"function\", ...}", i);
    server_field_text(&f, "type", &type);
    if (!p->kind && !(type && strcmp(type, "function") == 0))
        server_fail(p, SERVER_UNSUPPORTED, "tools", "'tools[%zu]' is of type '%.40s': this server supports functions only", i, type ? type : "");
    if (nesting == OPENAI_FLAT) openai_tools_add_function(gen, &f);
    else {
        const json_t *function = server_field_object(&f, "function");
        if (!function) server_fail(p, SERVER_INVALID, "tools", "'%sfunction' is missing", prefix);
        else openai_tools_add_function(gen, &(server_fields){function, p, inside});
    }
}

/* ---- choice ---- */

/* The name in {"type": "function", "function": {"name": ...}} or {"type": "function", "name": ...}, or NULL. */
static const char *name_in(const json_t *choice, openai_nesting nesting) {
    return json_string_value(json_object_get(nesting == OPENAI_NESTED ? json_object_get(choice, "function") : choice, "name"));
}

static void choose_mode(generation *gen, const char *mode, server_problem *p) {
    if (strcmp(mode, "none") == 0) gen->tool_choice = SERVER_TOOLS_NONE;
    else if (strcmp(mode, "required") == 0) gen->tool_choice = SERVER_TOOLS_REQUIRED;
    else if (strcmp(mode, "auto") != 0)
        server_fail(p, SERVER_INVALID, "tool_choice", "'tool_choice' is '%.40s': give none, auto, required or a function", mode);
}

/* {"mode": "auto" | "required", "tools": [...]} */
static void choose_allowed(generation *gen, const json_t *allowed, openai_nesting nesting, server_problem *p) {
    const json_t *list = json_object_get(allowed, "tools");
    const char *names[SERVER_MAX_TOOLS], *mode = json_string_value(json_object_get(allowed, "mode"));
    size_t n = json_array_size(list);
    if (n == 0 || n > SERVER_MAX_TOOLS) server_fail(p, SERVER_INVALID, "tool_choice", "'tool_choice' needs a list of tools");
    for (size_t i = 0; i < n && !p->kind; i++) {
        names[i] = name_in(json_array_get(list, i), nesting);
        if (!names[i]) server_fail(p, SERVER_INVALID, "tool_choice", "'tool_choice' has a tool without a name");
    }
    if (!p->kind) generation_allow_tools(gen, names, n, "tool_choice", p);
    choose_mode(gen, mode ? mode : "auto", p);
}

static void openai_tools_parse_choice(generation *gen, const server_fields *f, openai_nesting nesting) {
    const json_t *choice = server_field(f, "tool_choice");
    const char *type = json_string_value(json_object_get(choice, "type"));
    server_problem *p = f->problem;
    if (!choice) return;
    if (json_is_string(choice)) choose_mode(gen, json_string_value(choice), p);
    else if (!type) server_field_wrong(f, "tool_choice", choice, "none, auto, required or {\"type\": \"function\", ...}");
    else if (strcmp(type, "allowed_tools") == 0)
        choose_allowed(gen, nesting == OPENAI_NESTED ? json_object_get(choice, "allowed_tools") : choice, nesting, p);
    else if (strcmp(type, "function") != 0)
        server_fail(p, SERVER_UNSUPPORTED, "tool_choice", "'tool_choice' is of type '%.40s': this server supports functions only", type);
    else {
        const char *name = name_in(choice, nesting);
        if (!name) server_fail(p, SERVER_INVALID, "tool_choice", "'tool_choice' needs a function name");
        else generation_allow_tools(gen, &name, 1, "tool_choice", p);
        gen->tool_choice = SERVER_TOOLS_REQUIRED;
    }
}

void openai_parse_tools(generation *gen, const server_fields *f, openai_nesting nesting) {
    const json_t *tools = server_field_array(f, "tools");
    bool parallel = true;
    for (size_t i = 0; i < json_array_size(tools) && !f->problem->kind; i++)
        openai_tools_parse_tool(gen, json_array_get(tools, i), i, nesting, f->problem);
    server_field_bool(f, "parallel_tool_calls", &parallel);
    gen->one_call = !parallel;
    openai_tools_parse_choice(gen, f, nesting);
}

/* ---- forms ---- */

static void set_schema(generation *gen, const server_fields *f, const char *name) {
    char place[128];
    const json_t *schema = server_field_object(f, name);
    if (!schema) return;
    snprintf(place, sizeof(place), "%.80s%s", f->prefix, name);
    gen->answer_schema = schema;
    gen->answer_place = generation_keep(gen, place, f->problem);
    gen->wants_json = true;
}

void openai_parse_format(generation *gen, const server_fields *f, const char *name, openai_nesting nesting) {
    const json_t *format = server_field_object(f, name);
    const char *type = "text";
    char prefix[48], inside[64];
    server_problem *p = f->problem;
    if (!format) return;
    snprintf(prefix, sizeof(prefix), "%.16s%.24s.", f->prefix, name);
    snprintf(inside, sizeof(inside), "%sjson_schema.", prefix);
    server_fields g = {format, p, prefix};
    server_field_text(&g, "type", &type);
    bool has_schema = strcmp(type, "json_schema") == 0;
    if (has_schema || strcmp(type, "json_object") == 0) {
        gen->wants_json = true;
        const json_t *nested = nesting == OPENAI_NESTED ? server_field_object(&g, "json_schema") : NULL;
        if (nested) set_schema(gen, &(server_fields){nested, p, inside}, "schema");
        else set_schema(gen, &g, "schema"); /* of type json_object, too, as llama.cpp's server has it */
        if (has_schema && !gen->answer_schema)
            server_fail(p, SERVER_INVALID, name, "'%sschema' is missing", nesting == OPENAI_NESTED ? inside : prefix);
    } else if (strcmp(type, "text") != 0)
        server_fail(p, SERVER_UNSUPPORTED, name, "'%stype' is '%.40s': give text, json_object or json_schema", prefix, type);
}

void openai_parse_json_schema(generation *gen, const server_fields *f) { set_schema(gen, f, "json_schema"); }

/* ---- calls in the conversation ---- */

static void parse_call(generation *gen, const json_t *call, const char *prefix, server_problem *p) {
    const char *id = NULL, *type = "function", *name = NULL, *arguments = "";
    char inside[96];
    snprintf(inside, sizeof(inside), "%.80sfunction.", prefix);
    server_fields f = {call, p, prefix};
    if (!json_is_object(call)) server_fail(p, SERVER_INVALID, "messages", "'%.80s' is not an object", prefix);
    server_field_text(&f, "id", &id);
    server_field_text(&f, "type", &type);
    const json_t *function = server_field_object(&f, "function");
    if (!p->kind && (strcmp(type, "function") != 0 || !function))
        server_fail(p, SERVER_INVALID, "messages", "'%.80s' needs a function", prefix);
    server_fields g = {function, p, inside};
    if (p->kind) return;
    server_field_text(&g, "name", &name);
    server_field_text(&g, "arguments", &arguments);
    if (!name) server_fail(p, SERVER_INVALID, "messages", "'%sname' is missing", inside);
    generation_add_call(gen, id, name, arguments[0] ? arguments : "{}", p);
}

void openai_parse_calls(generation *gen, const server_fields *message) {
    const json_t *calls = server_field_array(message, "tool_calls");
    for (size_t i = 0; i < json_array_size(calls) && !message->problem->kind; i++) {
        char prefix[80];
        snprintf(prefix, sizeof(prefix), "%.40stool_calls[%zu].", message->prefix, i);
        parse_call(gen, json_array_get(calls, i), prefix, message->problem);
    }
}

/* ---- calls in answers ---- */

static json_t *call_of(const server_request *x, const server_choice *c, const tool_item *item) {
    char id[TOOL_CALL_ID_BYTES];
    tool_call_id(id, "call_", x->id, c->index, item->number);
    return json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id, "type", "function", "function", "name", item->tool->name, "arguments",
                     server_json_text(item->text.data, item->text.len));
}

json_t *openai_message(const server_request *x, const server_choice *c) {
    json_t *calls = json_array(), *text = generate_text(c);
    for (size_t i = 0; i < c->finder.n_items && calls; i++)
        if (c->finder.items[i].tool && json_array_append_new(calls, call_of(x, c, &c->finder.items[i]))) return json_decref(calls), NULL;
    bool any = json_array_size(calls) > 0;
    if (any && json_string_length(text) == 0) {
        json_decref(text);
        text = json_null();
    }
    json_t *message = json_pack("{s:s, s:o, s:n}", "role", "assistant", "content", text, "refusal");
    if (message && any) json_object_set(message, "tool_calls", calls);
    json_t *reasoning = generate_reasoning(c);
    if (message && json_string_length(reasoning) > 0) json_object_set(message, "reasoning_content", reasoning);
    json_decref(reasoning);
    json_decref(calls);
    return message;
}

json_t *openai_call_delta(const server_request *x, const server_choice *c, tool_event event, const tool_item *item, const char *bytes,
                          size_t n) {
    char id[TOOL_CALL_ID_BYTES];
    tool_call_id(id, "call_", x->id, c->index, item->number);
    if (event == TOOL_BEGIN)
        return json_pack("{s:[{s:i, s:s, s:s, s:{s:s, s:s}}]}", "tool_calls", "index", (int)item->number, "id", id, "type", "function",
                         "function", "name", item->tool->name, "arguments", "");
    return json_pack("{s:[{s:i, s:{s:o}}]}", "tool_calls", "index", (int)item->number, "function", "arguments", server_json_text(bytes, n));
}
