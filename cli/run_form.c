/* SPDX-License-Identifier: Apache-2.0 */
/* run_form.c: see run_form.h. One thread. */
#include "run_form.h"

#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "common/console.h"
#include "common/input.h"
#include "common/json_out.h"

#define REAL_DIGITS 15 /* any decimal of so many reads as itself */

const char *const run_thinking_names[] = {"auto", "off", "on", NULL};

const char *run_form_of_chats(const run_form_args *args) {
    if (args->tools != NULL) return "--tools";
    return args->thinking != RP_THINKING_DEFAULT ? "--thinking" : NULL;
}

/* ---- JSON Schema ---- */

/* The value is JSON itself, no path: an object, true or false. */
static bool is_json(const char *value) {
    const char *s = value + strspn(value, " \t\r\n");
    return *s == '{' || strcmp(s, "true") == 0 || strcmp(s, "false") == 0;
}

/* JSON of a file or, with line 1 only, of an option's value. NULL: the error line is printed. */
static json_t *parse(const char *text, const char *name, int status) {
    json_error_t error;
    json_t *value = json_loads(text, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (value == NULL) cli_fail(status, "%s:%d:%d: not JSON: %s", name, error.line, error.column, error.text);
    return value;
}

int run_schema_read(const char *value, char **schema, char **grammar) {
    const bool inside = is_json(value);
    const char *name = inside ? "--json-schema" : cli_input_name(value);
    const int wrong = inside ? CLI_WRONG_USE : CLI_FAILED;
    rp_error err;
    int status = CLI_OK;
    if (inside) {
        const size_t n = strlen(value);
        *schema = cli_alloc(n + 1);
        memcpy(*schema, value, n);
    } else status = cli_read_utf8(value, "a JSON Schema is JSON", schema);
    if (status != CLI_OK) return status;
    json_t *json = parse(*schema, name, wrong);
    if (json == NULL) return wrong;
    json_decref(json);
    if (rp_json_schema_grammar(*schema, strlen(*schema), grammar, &err) == RP_OK) return CLI_OK;
    return cli_fail(wrong, "%s: %s", name, err.message);
}

/* ---- tools ---- */

static int read_tool(run_form *f, const json_t *definition, size_t i) {
    const json_t *function = json_object_get(definition, "function");
    const char *type = json_string_value(json_object_get(definition, "type"));
    if (!json_is_object(definition) || (function != NULL && !json_is_object(function)))
        return cli_fail(CLI_FAILED,
                        "%s: tools[%zu] is no function: give {\"type\": \"function\", \"function\": {\"name\": ...}}",
                        f->tools_name, i);
    if (type != NULL && strcmp(type, "function") != 0)
        return cli_fail(CLI_FAILED, "%s: tools[%zu] is of type '%.40s': give functions only", f->tools_name, i, type);
    if (function == NULL) function = definition;
    const json_t *name = json_object_get(function, "name"), *description = json_object_get(function, "description"),
                 *parameters = json_object_get(function, "parameters"), *strict = json_object_get(function, "strict");
    if (!json_is_string(name))
        return cli_fail(CLI_FAILED, "%s: tools[%zu] has no name: give \"name\", a string", f->tools_name, i);
    if (description != NULL && !json_is_string(description) && !json_is_null(description))
        return cli_fail(CLI_FAILED, "%s: tools[%zu].description: give a string", f->tools_name, i);
    if (parameters != NULL && !json_is_object(parameters) && !json_is_null(parameters))
        return cli_fail(CLI_FAILED, "%s: tools[%zu].parameters: give a JSON Schema, an object", f->tools_name, i);
    if (strict != NULL && !json_is_boolean(strict) && !json_is_null(strict))
        return cli_fail(CLI_FAILED, "%s: tools[%zu].strict: give true or false", f->tools_name, i);
    rp_tool *tool = &f->tools[f->n_tools++];
    *tool = (rp_tool){
        .name = json_string_value(name), .description = json_string_value(description), .strict = json_is_true(strict)};
    if (!json_is_object(parameters)) return CLI_OK;
    tool->parameters = json_dumps(parameters, JSON_COMPACT | JSON_REAL_PRECISION(REAL_DIGITS));
    return tool->parameters != NULL ? CLI_OK : cli_fail(CLI_FAILED, "out of memory");
}

/* An array of tools, or an object with one as `tools`: the body of a request. */
static int read_tools(run_form *f, const char *path) {
    char *text = NULL;
    f->tools_name = cli_input_name(path);
    int status = cli_read_utf8(path, "tools are JSON", &text);
    if (status != CLI_OK) return status;
    f->definitions = parse(text, f->tools_name, CLI_FAILED);
    free(text);
    if (f->definitions == NULL) return CLI_FAILED;
    const json_t *list = json_is_object(f->definitions) ? json_object_get(f->definitions, "tools") : f->definitions;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return cli_fail(CLI_FAILED,
                        "%s: it has no tools: give an array of {\"type\": \"function\", \"function\": {\"name\": ...}}",
                        f->tools_name);
    f->tools = cli_alloc(json_array_size(list) * sizeof *f->tools);
    for (size_t i = 0; i < json_array_size(list) && status == CLI_OK; i++)
        status = read_tool(f, json_array_get(list, i), i);
    return status;
}

static int read_choice(run_form *f, const char *word) {
    if (word == NULL || strcmp(word, "auto") == 0) return CLI_OK;
    if (strcmp(word, "none") == 0) {
        f->choice = RP_TOOL_CHOICE_NONE;
        return CLI_OK;
    }
    f->choice = RP_TOOL_CHOICE_REQUIRED;
    if (strcmp(word, "required") == 0) return CLI_OK;
    f->tool_name = word;
    for (size_t i = 0; i < f->n_tools; i++)
        if (strcmp(f->tools[i].name, word) == 0) return CLI_OK;
    return cli_fail(CLI_WRONG_USE, "--tool-choice '%s': give auto, required, none, or the name of a tool in %s", word,
                    f->tools_name);
}

int run_form_read(run_form *f, const run_form_args *args) {
    int status = CLI_OK;
    f->thinking = (rp_thinking)args->thinking;
    f->of_chats = run_form_of_chats(args);
    if (args->json_schema != NULL) {
        f->schema_name = is_json(args->json_schema) ? "--json-schema" : cli_input_name(args->json_schema);
        status = run_schema_read(args->json_schema, &f->schema, &f->grammar);
    }
    if (status == CLI_OK && args->tools != NULL) status = read_tools(f, args->tools);
    return status == CLI_OK ? read_choice(f, args->tool_choice) : status;
}

/* ---- conversations ---- */

/* The file that an error is about: `where` is a path in the options ("tools[0].parameters.properties.x"). */
static int fail_chat(const run_form *f, const rp_error *err) {
    const bool in_tools = f->tools_name != NULL && strncmp(err->where, "tool", 4) == 0;
    const bool in_schema = f->schema != NULL && strncmp(err->where, "json_schema", 11) == 0;
    if (!in_tools && !in_schema) return cli_fail_library(err);
    return cli_fail(CLI_FAILED, "%s: %s", in_tools ? f->tools_name : f->schema_name, err->message);
}

int run_form_chat(const run_form *f, const rp_model *model, const char *system, const char *text, bool warns,
                  rp_chat **out) {
    rp_chat_message messages[2];
    rp_chat_options o = rp_chat_options_defaults();
    rp_error err;
    const char *line;
    if (system != NULL && *system != '\0')
        messages[o.n_messages++] = (rp_chat_message){.role = RP_ROLE_SYSTEM, .text = system};
    messages[o.n_messages++] = (rp_chat_message){.role = RP_ROLE_USER, .text = text};
    o.messages = messages;
    o.tools = f->tools;
    o.n_tools = f->n_tools;
    o.tool_choice = f->choice;
    o.tool_name = f->tool_name;
    o.json_schema = f->schema;
    o.thinking = f->thinking;
    if (rp_chat_new(out, model, &o, &err) != RP_OK) return fail_chat(f, &err);
    for (size_t i = 0; warns && (line = rp_chat_warning(*out, i)) != NULL; i++) cli_warn("%s: %s", f->tools_name, line);
    return CLI_OK;
}

json_t *run_call_json(const rp_tool_call *call) {
    json_t *object = json_object();
    json_t *arguments = call->is_whole ? json_loads(call->arguments, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    cli_json_set(object, "id", cli_json_text(call->id));
    cli_json_set(object, "name", cli_json_text(call->name));
    cli_json_set(object, "arguments", arguments != NULL ? arguments : cli_json_text(call->arguments));
    return object;
}

void run_form_free(run_form *f) {
    for (size_t i = 0; i < f->n_tools; i++) free((char *)(uintptr_t)f->tools[i].parameters);
    free(f->tools);
    json_decref(f->definitions);
    free(f->schema);
    rp_free(f->grammar);
    *f = (run_form){0};
}
