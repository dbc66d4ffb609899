/* SPDX-License-Identifier: Apache-2.0 */
/* responses_ask.c: the fields of /v1/responses. Owns nothing. Any thread. */
#include <stdio.h>
#include <string.h>

#include "server/dialects/dialects.h"
#include "server/dialects/item_history.h"
#include "server/dialects/openai.h"
#include "server/prompt/known_fields.h"

static const char *const text_types[] = {"input_text", "output_text", "text", "refusal", NULL};

/* ---- items ---- */

static void responses_ask_add_message(generation *gen, const server_fields *f) {
    const char *given = "";
    char name[64];
    rp_role role;
    server_field_text(f, "role", &given);
    snprintf(name, sizeof(name), "%.40scontent", f->prefix);
    if (!openai_parse_role(given, &role) || role == RP_ROLE_TOOL) {
        server_fail(f->problem, SERVER_INVALID, "input",
                    "'%srole' is '%.40s': give user, assistant, system or developer", f->prefix, given);
        return;
    }
    generation_message(gen, role, json_object_get(f->object, "content"), text_types, name, f->problem);
    openai_parse_breakpoints(gen, json_object_get(f->object, "content"), name, f->problem);
}

/* field: of the arguments, or of a custom tool's input. */
static void responses_ask_add_call(generation *gen, const server_fields *f, const char *field) {
    const char *id = NULL, *name = NULL, *group = NULL, *arguments = "";
    server_field_text(f, "call_id", &id);
    server_field_text(f, "name", &name);
    server_field_text(f, "namespace", &group);
    server_field_text(f, field, &arguments);
    name = openai_tool_name(gen, group, name, f->problem);
    if (strcmp(field, "input") == 0 && !f->problem->kind)
        arguments = openai_freeform_arguments(gen, arguments, f->problem);
    if (!f->problem->kind && (!id || !name))
        server_fail(f->problem, SERVER_INVALID, "input", "'%scall_id' and '%sname': give both", f->prefix, f->prefix);
    if (!f->problem->kind) item_history_add_call(gen, id, name, arguments, f->problem);
}

static void add_output(generation *gen, const server_fields *f) {
    const char *id = NULL;
    char name[64];
    server_field_text(f, "call_id", &id);
    snprintf(name, sizeof(name), "%.40soutput", f->prefix);
    if (!f->problem->kind && !id) server_fail(f->problem, SERVER_INVALID, "input", "'%scall_id' is missing", f->prefix);
    generation_message(gen, RP_ROLE_TOOL, json_object_get(f->object, "output"), text_types, name, f->problem);
    openai_parse_breakpoints(gen, json_object_get(f->object, "output"), name, f->problem);
    snprintf(name, sizeof(name), "%.40scall_id", f->prefix);
    generation_add_result(gen, id, false, name, f->problem);
}

/* Codex sends its tools as the first item, beside or instead of the field `tools`. */
static void add_tools(generation *gen, const server_fields *f) {
    char list[64];
    snprintf(list, sizeof(list), "%.50stools", f->prefix);
    openai_parse_tool_list(gen, server_field_array(f, "tools"), list, OPENAI_FLAT, f->problem);
}

/* Items about tools that this server has none of, and marks of other servers. */
static bool is_left_out(const char *type) {
    static const char *const types[] = {"web_search_call",
                                        "file_search_call",
                                        "image_generation_call",
                                        "code_interpreter_call",
                                        "computer_call",
                                        "computer_call_output",
                                        "shell_call",
                                        "shell_call_output",
                                        "apply_patch_call",
                                        "apply_patch_call_output",
                                        "program",
                                        "program_output",
                                        "configuration_update",
                                        "local_shell_call",
                                        "local_shell_call_output",
                                        "tool_search_call",
                                        "tool_search_output",
                                        "mcp_list_tools",
                                        "mcp_call",
                                        "mcp_approval_request",
                                        "mcp_approval_response",
                                        "compaction",
                                        "compaction_summary",
                                        "compaction_trigger",
                                        "context_compaction",
                                        "ghost_snapshot"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(types); i++)
        if (strcmp(types[i], type) == 0) return true;
    return false;
}

static void responses_ask_add_item(generation *gen, item_history *h, const json_t *item, size_t i, server_problem *p) {
    const char *type = "message";
    char prefix[48];
    snprintf(prefix, sizeof(prefix), "input[%zu].", i);
    server_fields f = {item, p, prefix};
    if (!json_is_object(item)) server_fail(p, SERVER_INVALID, "input", "'input[%zu]' is not an object", i);
    server_field_text(&f, "type", &type);
    if (p->kind) return;
    if (strcmp(type, "message") == 0) responses_ask_add_message(gen, &f);
    else if (strcmp(type, "function_call") == 0) responses_ask_add_call(gen, &f, "arguments");
    else if (strcmp(type, "custom_tool_call") == 0) responses_ask_add_call(gen, &f, "input");
    else if (strcmp(type, "function_call_output") == 0 || strcmp(type, "custom_tool_call_output") == 0)
        add_output(gen, &f);
    else if (strcmp(type, "additional_tools") == 0) add_tools(gen, &f);
    else if (is_left_out(type)) generation_ignore(gen, p, "input[%zu] of type '%.40s'", i, type);
    else if (strcmp(type, "reasoning") == 0) {
        item_history_hold(h, item);
        return;
    } else
        server_fail(p, SERVER_UNSUPPORTED, "input",
                    "'%stype' is '%.40s': give message, function_call or function_call_output", prefix, type);
    item_history_attach(gen, h, p);
}

static void parse_input(generation *gen, const server_fields *f) {
    const json_t *input = server_field(f, "input");
    const char *instructions = NULL;
    item_history history = {.n_reasoning = 0};
    server_field_text(f, "instructions", &instructions);
    if (instructions) generation_text_message(gen, RP_ROLE_SYSTEM, instructions, f->problem);
    size_t before = gen->n_messages;
    if (json_is_string(input)) generation_text_message(gen, RP_ROLE_USER, json_string_value(input), f->problem);
    else if (input && !json_is_array(input)) server_field_wrong(f, "input", input, "a string or an array of items");
    for (size_t i = 0; json_is_array(input) && i < json_array_size(input) && !f->problem->kind; i++)
        responses_ask_add_item(gen, &history, json_array_get(input, i), i, f->problem);
    if (gen->n_messages == before)
        server_fail(f->problem, SERVER_INVALID, "input", "'input' is missing: give a string or items");
}

/* Items are what earlier answers held: clients send them back whole. */
static const server_known_fields inside[] = {
    {"input[]", "type role content id status phase call_id name arguments output summary encrypted_content namespace "
                "parsed_arguments "
                "created_by input tools execution"},
    {"input[].content[]", SERVER_PART_FIELDS "refusal annotations logprobs parsed id prompt_cache_breakpoint"},
    {"input[].content[].source", SERVER_SOURCE_FIELDS},
    {"input[].content[].prompt_cache_breakpoint", OPENAI_BREAKPOINT_FIELDS},
    {"input[].output[]", SERVER_PART_FIELDS "refusal annotations logprobs id prompt_cache_breakpoint"},
    {"input[].output[].source", SERVER_SOURCE_FIELDS},
    {"input[].output[].prompt_cache_breakpoint", OPENAI_BREAKPOINT_FIELDS},
    {"tools[]", "type name description parameters strict defer_loading cache_control format tools output_schema"},
    {"tools[].tools[]", "type name description parameters strict defer_loading cache_control format output_schema"},
    {"input[].tools[]",
     "type name description parameters strict defer_loading cache_control format tools output_schema"},
    {"input[].tools[].tools[]",
     "type name description parameters strict defer_loading cache_control format output_schema"},
    {"tool_choice", "type name mode tools namespace"},
    {"tool_choice.tools[]", "type name namespace"},
    {"text", "format verbosity"},
    {"reasoning", "effort summary generate_summary context"},
    {"text.format", "type name description schema strict"},
};

/* {"reasoning": {"effort": "low", "summary": "auto"}}: answers have the reasoning itself, not a summary. */
static void parse_reasoning(generation *gen, const server_fields *f) {
    const json_t *reasoning = server_field_object(f, "reasoning");
    const char *effort = NULL;
    if (!reasoning) return;
    server_field_text(&(server_fields){reasoning, f->problem, "reasoning."}, "effort", &effort);
    if (effort && !f->problem->kind) generation_set_effort(gen, effort, "reasoning.effort", f->problem);
}

/* What the answer is to have besides. Log-probabilities are the one thing that this server has; the others are of tools
 * of OpenAI's, and of reasoning that is never encrypted here. */
static void parse_include(generation *gen, const server_fields *f) {
    static const char *const others[] = {"reasoning.encrypted_content", "file_search_call.results",
                                         "web_search_call.results", "web_search_call.action.sources",
                                         "message.input_image.image_url", "computer_call_output.output.image_url",
                                         "code_interpreter_call.outputs"};
    const json_t *include = server_field_array(f, "include");
    int32_t top = 0;
    server_field_int(f, "top_logprobs", 0, OPENAI_MAX_TOP_LOGPROBS, &top);
    for (size_t i = 0; i < json_array_size(include) && !f->problem->kind; i++) {
        const char *name = json_string_value(json_array_get(include, i));
        bool known = false;
        for (size_t k = 0; k < BASE_ARRAY_LEN(others) && name; k++) known |= strcmp(others[k], name) == 0;
        if (!name) server_field_wrong(f, "include", include, "an array of strings");
        else if (strcmp(name, "message.output_text.logprobs") == 0) gen->n_logprobs = top;
        else if (!known) generation_ignore(gen, f->problem, "'%.60s' in 'include'", name);
    }
    if (top > 0 && gen->n_logprobs < 0)
        generation_ignore(gen, f->problem, "'top_logprobs' without \"message.output_text.logprobs\" in 'include'");
}

int responses_parse(generation *gen, server_problem *p) {
    static const char *const unknown[] = {"background", "conversation", "prompt", NULL};
    server_fields f = {gen->root, p, ""};
    rp_sampling *s = &gen->sampling;
    const json_t *text = server_field_object(&f, "text"), *cache = server_field_object(&f, "prompt_cache_options");
    bool store = true;
    const char *previous = NULL;
    gen->otherwise.temperature = 1;
    gen->overflow_in_stream = true;
    gen->default_tokens = SERVER_UNLIMITED_TOKENS;
    server_field_text(&f, "model", &gen->model);
    server_field_bool(&f, "stream", &gen->stream);
    server_field_int(&f, "max_output_tokens", 1, INT32_MAX, &gen->max_tokens);
    server_field_real(&f, "temperature", 0, 2, &s->temperature);
    server_field_real(&f, "top_p", 0, 1, &s->top_p);
    server_field_bool(&f, "store", &store);
    server_field_text(&f, "previous_response_id", &previous);
    gen->has_seed = server_field_seed(&f, "seed", &s->seed);
    parse_input(gen, &f);
    openai_parse_tools(gen, &f, OPENAI_FLAT);
    parse_reasoning(gen, &f);
    parse_include(gen, &f);
    openai_parse_cache(gen, &f, OPENAI_CACHE_FIELDS "comparison_response_id");
    if (cache)
        server_field_text(&(server_fields){cache, p, "prompt_cache_options."}, "comparison_response_id",
                          &gen->compared_id);
    gen->is_diagnosed = true;
    if (text) openai_parse_format(gen, &(server_fields){text, p, "text."}, "format", OPENAI_FLAT);
    generation_extras(gen, &f);
    openai_refuse(&f, unknown);
    generation_known(
        gen, &f,
        SERVER_EXTRA_FIELDS
        "model input instructions stream stream_options max_output_tokens temperature top_p store previous_response_id "
        "seed tools tool_choice "
        "parallel_tool_calls text background conversation prompt user metadata service_tier safety_identifier "
        "prompt_cache_key "
        "prompt_cache_retention prompt_cache_options include reasoning max_tool_calls top_logprobs client_metadata");
    generation_known_inside(gen, inside, BASE_ARRAY_LEN(inside), p);
    return (int)p->kind;
}
