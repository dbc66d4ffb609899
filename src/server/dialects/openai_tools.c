/* SPDX-License-Identifier: Apache-2.0 */
/* openai_tools.c: tools and forms of answers in OpenAI's dialects: fields in, calls out. Owns nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "server/dialects/openai.h"

/* ---- tools ---- */

/* The name under which the model sees a tool of a namespace. */
const char *openai_tool_name(generation *gen, const char *group, const char *name, server_problem *p) {
    char full[2 * SERVER_MAX_TOOL_NAME];
    if (!group || !name || strcmp(group, OPENAI_DEFAULT_NAMESPACE) == 0) return name;
    snprintf(full, sizeof(full), "%.*s.%.*s", SERVER_MAX_TOOL_NAME - 1, group, SERVER_MAX_TOOL_NAME - 1, name);
    return generation_keep(gen, full, p);
}

/* The name and the description of a tool; group: its namespace, or NULL. */
static tool_spec named_tool(generation *gen, const server_fields *f, const char *group) {
    tool_spec tool = {.group = group};
    server_field_text(f, "name", &tool.own_name);
    server_field_text(f, "description", &tool.description);
    if (!f->problem->kind && !tool.own_name)
        server_fail(f->problem, SERVER_INVALID, "tools", "'%sname' is missing", f->prefix);
    tool.name = openai_tool_name(gen, group, tool.own_name, f->problem);
    return tool;
}

static void openai_tools_add_function(generation *gen, const server_fields *f, const char *group) {
    char place[128];
    tool_spec tool = named_tool(gen, f, group);
    server_field_bool(f, "strict", &tool.strict);
    tool.schema = server_field_object(f, "parameters");
    snprintf(place, sizeof(place), "%.100sparameters", f->prefix);
    tool.place = generation_keep(gen, place, f->problem);
    generation_add_tool(gen, &tool, f->problem);
}

/* {"type": "custom", "name": ..., "format": {"type": "text"} | {"type": "grammar", "syntax": ..., "definition": ...}};
 * nested: format has a "grammar" of its own. */
static void add_custom(generation *gen, const server_fields *f, const char *group) {
    const json_t *format = server_field_object(f, "format"), *grammar = json_object_get(format, "grammar");
    tool_spec tool = named_tool(gen, f, group);
    tool.place = generation_keep(gen, f->prefix, f->problem);
    generation_add_freeform(gen, &tool, grammar ? grammar : format, f->problem);
}

static void parse_one_tool(generation *gen, const json_t *tool, const char *list, size_t i, openai_nesting nesting,
                           const char *group, server_problem *p);

/* {"type": "namespace", "name": ..., "tools": [...]}: its tools, one by one. */
static void add_namespace(generation *gen, const server_fields *f, openai_nesting nesting) {
    const json_t *tools = server_field_array(f, "tools");
    const char *group = NULL;
    char list[64];
    server_field_text(f, "name", &group);
    if (!f->problem->kind && !group) server_fail(f->problem, SERVER_INVALID, "tools", "'%sname' is missing", f->prefix);
    snprintf(list, sizeof(list), "%.50stools", f->prefix);
    for (size_t i = 0; i < json_array_size(tools) && !f->problem->kind; i++)
        parse_one_tool(gen, json_array_get(tools, i), list, i, nesting, group, f->problem);
}

/* Tools that only a vendor's servers can run are left out: the model does not see them, so no answer calls them. */
static void parse_one_tool(generation *gen, const json_t *tool, const char *list, size_t i, openai_nesting nesting,
                           const char *group, server_problem *p) {
    char prefix[96], inside[128];
    const char *type = NULL;
    snprintf(prefix, sizeof(prefix), "%.60s[%zu].", list, i);
    server_fields f = {tool, p, prefix};
    if (!json_is_object(tool))
        server_fail(p, SERVER_INVALID, "tools", "'%.60s[%zu]' is not an object: give {\"type\": \"function\", ...}",
                    list, i);
    server_field_text(&f, "type", &type);
    if (!p->kind && !type) server_fail(p, SERVER_INVALID, "tools", "'%stype' is missing: give function", prefix);
    if (p->kind) return;
    bool is_function = strcmp(type, "function") == 0;
    if (strcmp(type, "namespace") == 0 && !group) add_namespace(gen, &f, nesting);
    else if (!is_function && strcmp(type, "custom") != 0)
        generation_ignore(gen, p, "%.60s[%zu] of type '%.40s'", list, i, type);
    else {
        const json_t *object = nesting == OPENAI_FLAT ? tool : server_field_object(&f, type);
        if (nesting == OPENAI_NESTED) snprintf(inside, sizeof(inside), "%s%.20s.", prefix, type);
        server_fields g = {object, p, nesting == OPENAI_FLAT ? prefix : inside};
        if (!object) server_fail(p, SERVER_INVALID, "tools", "'%s%.20s' is missing", prefix, type);
        else if (is_function) openai_tools_add_function(gen, &g, group);
        else add_custom(gen, &g, group);
    }
}

void openai_parse_tool_list(generation *gen, const json_t *tools, const char *list, openai_nesting nesting,
                            server_problem *p) {
    for (size_t i = 0; i < json_array_size(tools) && !p->kind; i++)
        parse_one_tool(gen, json_array_get(tools, i), list, i, nesting, NULL, p);
}

/* ---- choice ---- */

/* The name in {"type": "function", "function": {"name": ...}} or {"type": "function", "name": ...}, likewise of type
   custom; or NULL. */
static const char *name_in(generation *gen, const json_t *choice, openai_nesting nesting, server_problem *p) {
    const char *type = json_string_value(json_object_get(choice, "type"));
    const json_t *object = nesting == OPENAI_NESTED ? json_object_get(choice, type ? type : "function") : choice;
    return openai_tool_name(gen, json_string_value(json_object_get(object, "namespace")),
                            json_string_value(json_object_get(object, "name")), p);
}

static bool is_callable(const char *type) { return strcmp(type, "function") == 0 || strcmp(type, "custom") == 0; }

static void choose_mode(generation *gen, const char *mode, server_problem *p) {
    if (strcmp(mode, "none") == 0) gen->form.tool_choice = TOOL_CHOICE_NONE;
    else if (strcmp(mode, "required") == 0) gen->form.tool_choice = TOOL_CHOICE_REQUIRED;
    else if (strcmp(mode, "auto") != 0)
        server_fail(p, SERVER_INVALID, "tool_choice",
                    "'tool_choice' is '%.40s': give none, auto, required or a function", mode);
}

/* {"mode": "auto" | "required", "tools": [...]} */
static void choose_allowed(generation *gen, const json_t *allowed, openai_nesting nesting, server_problem *p) {
    const json_t *list = json_object_get(allowed, "tools");
    const char *names[SERVER_MAX_TOOLS], *mode = json_string_value(json_object_get(allowed, "mode"));
    size_t n = json_array_size(list);
    if (n == 0 || n > SERVER_MAX_TOOLS)
        server_fail(p, SERVER_INVALID, "tool_choice", "'tool_choice' needs a list of tools");
    size_t n_names = 0;
    for (size_t i = 0; i < n && !p->kind; i++) {
        const char *type = json_string_value(json_object_get(json_array_get(list, i), "type"));
        if (type && !is_callable(type)) continue; /* it was left out of the tools */
        BASE_ASSERT(n_names < BASE_ARRAY_LEN(names));
        names[n_names] = name_in(gen, json_array_get(list, i), nesting, p);
        if (!names[n_names++]) server_fail(p, SERVER_INVALID, "tool_choice", "'tool_choice' has a tool without a name");
    }
    if (!p->kind) generation_allow_tools(gen, names, n_names, "tool_choice", p);
    choose_mode(gen, mode ? mode : "auto", p);
}

static void openai_tools_parse_choice(generation *gen, const server_fields *f, openai_nesting nesting) {
    const json_t *choice = server_field(f, "tool_choice");
    const char *type = json_string_value(json_object_get(choice, "type"));
    server_problem *p = f->problem;
    if (!choice) return;
    if (json_is_string(choice)) choose_mode(gen, json_string_value(choice), p);
    else if (!type)
        server_field_wrong(f, "tool_choice", choice, "none, auto, required or {\"type\": \"function\", ...}");
    else if (strcmp(type, "allowed_tools") == 0)
        choose_allowed(gen, nesting == OPENAI_NESTED ? json_object_get(choice, "allowed_tools") : choice, nesting, p);
    else if (!is_callable(type))
        server_fail(p, SERVER_UNSUPPORTED, "tool_choice", "'tool_choice' is of type '%.40s': give function or custom",
                    type);
    else {
        const char *name = name_in(gen, choice, nesting, p);
        if (!name) server_fail(p, SERVER_INVALID, "tool_choice", "'tool_choice' needs a function name");
        else generation_allow_tools(gen, &name, 1, "tool_choice", p);
        gen->form.tool_choice = TOOL_CHOICE_REQUIRED;
    }
}

void openai_parse_tools(generation *gen, const server_fields *f, openai_nesting nesting) {
    const json_t *tools = server_field_array(f, "tools");
    bool parallel = true;
    openai_parse_tool_list(gen, tools, "tools", nesting, f->problem);
    server_field_bool(f, "parallel_tool_calls", &parallel);
    gen->form.one_call = !parallel;
    openai_tools_parse_choice(gen, f, nesting);
}

/* ---- forms ---- */

static void set_schema(generation *gen, const server_fields *f, const char *name) {
    char place[128];
    const json_t *schema = server_field_object(f, name);
    if (!schema) return;
    snprintf(place, sizeof(place), "%.80s%s", f->prefix, name);
    gen->form.schema = schema;
    gen->form.place = generation_keep(gen, place, f->problem);
    gen->form.wants_json = true;
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
        gen->form.wants_json = true;
        const json_t *nested = nesting == OPENAI_NESTED ? server_field_object(&g, "json_schema") : NULL;
        if (nested) set_schema(gen, &(server_fields){nested, p, inside}, "schema");
        else set_schema(gen, &g, "schema"); /* of type json_object, too, as llama.cpp's server has it */
        if (has_schema && !gen->form.schema)
            server_fail(p, SERVER_INVALID, name, "'%sschema' is missing", nesting == OPENAI_NESTED ? inside : prefix);
    } else if (strcmp(type, "text") != 0)
        server_fail(p, SERVER_UNSUPPORTED, name, "'%stype' is '%.40s': give text, json_object or json_schema", prefix,
                    type);
}

void openai_parse_json_schema(generation *gen, const server_fields *f) { set_schema(gen, f, "json_schema"); }

/* ---- calls in the conversation ---- */

const char *openai_freeform_arguments(generation *gen, const char *input, server_problem *p) {
    json_t *object = json_pack("{s:s}", SERVER_FREEFORM_INPUT, input);
    char *text = object ? base_json_text(object, 0) : NULL;
    const char *kept = text ? generation_keep(gen, text, p) : NULL;
    if (!text) server_fail_memory(p);
    base_free(text);
    json_decref(object);
    return kept;
}

static void parse_call(generation *gen, const json_t *call, const char *prefix, server_problem *p) {
    const char *id = NULL, *type = "function", *name = NULL, *arguments = "";
    char inside[96];
    snprintf(inside, sizeof(inside), "%.80sfunction.", prefix);
    server_fields f = {call, p, prefix};
    if (!json_is_object(call)) server_fail(p, SERVER_INVALID, "messages", "'%.80s' is not an object", prefix);
    server_field_text(&f, "id", &id);
    server_field_text(&f, "type", &type);
    bool is_custom = strcmp(type, "custom") == 0;
    const json_t *function = server_field_object(&f, is_custom ? "custom" : "function");
    if (!p->kind && !(function && is_callable(type)))
        server_fail(p, SERVER_INVALID, "messages", "'%.80s' needs a function", prefix);
    server_fields g = {function, p, inside};
    if (p->kind) return;
    server_field_text(&g, "name", &name);
    server_field_text(&g, is_custom ? "input" : "arguments", &arguments);
    if (!name) server_fail(p, SERVER_INVALID, "messages", "'%sname' is missing", inside);
    if (is_custom) arguments = openai_freeform_arguments(gen, arguments, p);
    if (p->kind) return;
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

json_t *openai_freeform_input(const tool_item *item) {
    json_t *object = tool_item_arguments(item);
    json_t *input = json_object_get(object, SERVER_FREEFORM_INPUT);
    json_t *text = json_is_string(input) ? json_incref(input) : base_json_string(item->text.data, item->text.len);
    json_decref(object);
    return text;
}

static json_t *call_of(const server_request *x, const server_choice *c, const tool_item *item) {
    char id[TOOL_CALL_ID_BYTES];
    tool_call_id(id, "call_", x->id, c->index, item->number);
    if (item->tool->is_freeform)
        return json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id, "type", "custom", "custom", "name", item->tool->name,
                         "input", openai_freeform_input(item));
    return json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id, "type", "function", "function", "name", item->tool->name,
                     "arguments", base_json_string(item->text.data, item->text.len));
}

json_t *openai_message(const server_request *x, const server_choice *c) {
    json_t *calls = json_array(), *text = generate_text(c);
    for (size_t i = 0; i < c->finder.n_items && calls; i++)
        if (c->finder.items[i].tool && json_array_append_new(calls, call_of(x, c, &c->finder.items[i])))
            return json_decref(calls), NULL;
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

json_t *openai_call_delta(const server_request *x, const server_choice *c, tool_event event, const tool_item *item,
                          const char *bytes, size_t n) {
    char id[TOOL_CALL_ID_BYTES];
    tool_call_id(id, "call_", x->id, c->index, item->number);
    if (item->tool->is_freeform) /* the input is decoded when it is complete */
        return json_pack("{s:[{s:i, s:s, s:s, s:{s:s, s:o}}]}", "tool_calls", "index", (int)item->number, "id", id,
                         "type", "custom", "custom", "name", item->tool->name, "input", openai_freeform_input(item));
    if (event == TOOL_BEGIN)
        return json_pack("{s:[{s:i, s:s, s:s, s:{s:s, s:s}}]}", "tool_calls", "index", (int)item->number, "id", id,
                         "type", "function", "function", "name", item->tool->name, "arguments", "");
    return json_pack("{s:[{s:i, s:{s:o}}]}", "tool_calls", "index", (int)item->number, "function", "arguments",
                     base_json_string(bytes, n));
}
