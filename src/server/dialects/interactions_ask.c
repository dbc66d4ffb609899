/* SPDX-License-Identifier: Apache-2.0 */
/* interactions_ask.c: the fields of Gemini's Interactions. Owns nothing. Any thread. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "server/dialects/dialects.h"
#include "server/dialects/gemini.h"
#include "server/dialects/interactions.h"
#include "server/dialects/item_history.h"
#include "server/dialects/openai.h"
#include "server/prompt/known_fields.h"

static const char *const text_types[] = {"text", NULL};

/* ---- input as steps ---- */

static bool ends_in(const char *text, const char *end) {
    const size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* Of a step, not of a content. */
static bool is_step(const char *type) {
    static const char *const types[] = {"user_input", "model_output", "thought"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(types) && type; i++)
        if (strcmp(type, types[i]) == 0) return true;
    return type && (ends_in(type, "_call") || ends_in(type, "_result"));
}

/* A list of steps under construction. */
typedef struct step_writer {
    json_t *steps;
    json_t *content; /* borrowed: of the last step, if contents that follow belong to it */
    bool failed;     /* no memory */
} step_writer;

/* Contents that follow each other are one step of that type. Takes the content over. */
static void add_content(step_writer *w, const char *type, json_t *content) {
    if (!w->content) {
        w->content = json_array();
        w->failed |= json_array_append_new(w->steps, json_pack("{s:s, s:o}", "type", type, "content", w->content)) != 0;
    }
    if (w->failed) json_decref(content);
    else w->failed = json_array_append_new(w->content, content) != 0;
}

static void add_element(step_writer *w, const char *type, json_t *element) {
    if (json_is_string(element)) add_content(w, type, json_pack("{s:s, s:O}", "type", "text", "text", element));
    else if (!json_is_object(element) || is_step(json_string_value(json_object_get(element, "type")))) {
        w->content = NULL;
        w->failed |= json_array_append(w->steps, element) != 0;
    } else add_content(w, type, json_incref(element));
}

static void add_elements(step_writer *w, const char *type, json_t *elements) {
    if (!json_is_array(elements)) add_element(w, type, elements);
    for (size_t i = 0; i < json_array_size(elements) && !w->failed; i++)
        add_element(w, type, json_array_get(elements, i));
}

/* {"role": "user" | "model", "content": ...}; a role that is neither stays for the parser to refuse. */
static bool add_turn(step_writer *w, json_t *turn) {
    const char *role = json_string_value(json_object_get(turn, "role"));
    json_t *content = json_object_get(turn, "content");
    const bool is_model = role && strcmp(role, "model") == 0;
    if (!content || json_object_get(turn, "type") || (!is_model && !(role && strcmp(role, "user") == 0))) return false;
    w->content = NULL;
    add_elements(w, is_model ? "model_output" : "user_input", content);
    w->content = NULL;
    return true;
}

json_t *interactions_steps(json_t *input) {
    step_writer w = {.steps = json_array()};
    if (!w.steps) return NULL;
    const bool is_list = json_is_array(input);
    const size_t n = is_list ? json_array_size(input) : input && !json_is_null(input);
    for (size_t i = 0; i < n && !w.failed; i++) {
        json_t *element = is_list ? json_array_get(input, i) : input;
        if (!add_turn(&w, element)) add_element(&w, "user_input", element);
    }
    if (!w.failed) return w.steps;
    json_decref(w.steps);
    return NULL;
}

/* ---- steps as messages ---- */

/* Function results are texts, lists of contents, or objects. */
static void interactions_add_result(generation *gen, const server_fields *f) {
    const json_t *result = json_object_get(f->object, "result");
    const char *id = NULL;
    bool is_error = false;
    char name[64];
    server_field_text(f, "call_id", &id);
    server_field_bool(f, "is_error", &is_error);
    snprintf(name, sizeof(name), "%.40sresult", f->prefix);
    if (!f->problem->kind && !id) server_fail(f->problem, SERVER_INVALID, "input", "'%scall_id' is missing", f->prefix);
    if (json_is_object(result))
        generation_text_message(gen, RP_ROLE_TOOL, gemini_object_text(gen, result, "{}", f->problem), f->problem);
    else generation_message(gen, RP_ROLE_TOOL, result, text_types, name, f->problem);
    snprintf(name, sizeof(name), "%.40scall_id", f->prefix);
    generation_add_result(gen, id, is_error, name, f->problem);
}

static void interactions_add_call(generation *gen, const server_fields *f) {
    const char *id = NULL, *name = NULL;
    server_field_text(f, "id", &id);
    server_field_text(f, "name", &name);
    const json_t *arguments = server_field_object(f, "arguments");
    if (!f->problem->kind && (!id || !name))
        server_fail(f->problem, SERVER_INVALID, "input", "'%sid' and '%sname': give both", f->prefix, f->prefix);
    const char *text = gemini_object_text(gen, arguments, "{}", f->problem);
    if (!f->problem->kind) item_history_add_call(gen, id, name, text, f->problem);
}

static void interactions_add_message(generation *gen, const server_fields *f, rp_role role) {
    const json_t *content = json_object_get(f->object, "content");
    char name[64];
    snprintf(name, sizeof(name), "%.40scontent", f->prefix);
    generation_message(gen, role, content, text_types, name, f->problem);
}

static void interactions_add_step(generation *gen, item_history *h, const json_t *step, size_t i, server_problem *p) {
    const char *type = NULL;
    char prefix[48];
    snprintf(prefix, sizeof(prefix), "input[%zu].", i);
    server_fields f = {step, p, prefix};
    if (!json_is_object(step))
        server_fail(p, SERVER_INVALID, "input", "'input[%zu]' is neither a content nor a step", i);
    server_field_text(&f, "type", &type);
    if (!p->kind && !type)
        server_fail(p, SERVER_INVALID, "input", "'%stype' is missing: give user_input, model_output or text", prefix);
    if (p->kind) return;
    if (strcmp(type, "thought") == 0) {
        item_history_hold(h, step);
        return;
    }
    if (strcmp(type, "user_input") == 0) interactions_add_message(gen, &f, RP_ROLE_USER);
    else if (strcmp(type, "model_output") == 0) interactions_add_message(gen, &f, RP_ROLE_ASSISTANT);
    else if (strcmp(type, "function_call") == 0) interactions_add_call(gen, &f);
    else if (strcmp(type, "function_result") == 0) interactions_add_result(gen, &f);
    else
        generation_ignore(gen, p, "input[%zu] of type '%.40s'", i,
                          type); /* about tools that only Google's servers run */
    item_history_attach(gen, h, p);
}

static void interactions_parse_input(generation *gen, const server_fields *f) {
    const char *system = NULL;
    item_history history = {.n_reasoning = 0};
    json_t *steps = interactions_steps(json_object_get(f->object, "input"));
    server_field_text(f, "system_instruction", &system);
    if (system) generation_text_message(gen, RP_ROLE_SYSTEM, system, f->problem);
    const size_t before = gen->n_messages;
    generation_hold(gen, steps, f->problem);
    for (size_t i = 0; i < json_array_size(steps) && !f->problem->kind; i++)
        interactions_add_step(gen, &history, json_array_get(steps, i), i, f->problem);
    if (gen->n_messages == before)
        server_fail(f->problem, SERVER_INVALID, "input", "'input' is missing: give a string, contents or steps");
}

/* ---- configuration ---- */

static void interactions_set_mode(generation *gen, const char *mode, server_problem *p) {
    if (strcasecmp(mode, "any") == 0) gen->form.tool_choice = TOOL_CHOICE_REQUIRED;
    else if (strcasecmp(mode, "none") == 0) gen->form.tool_choice = TOOL_CHOICE_NONE;
    else if (strcasecmp(mode, "auto") != 0 && strcasecmp(mode, "validated") != 0) /* calls are always valid */
        server_fail(p, SERVER_INVALID, "generation_config.tool_choice",
                    "'generation_config.tool_choice' is '%.40s': give auto, any, none or validated", mode);
}

/* "auto" | "any" | "none" | "validated" | {"allowed_tools": {"mode": ..., "tools": [names]}} */
static void interactions_parse_choice(generation *gen, const server_fields *config) {
    const json_t *choice = server_field(config, "tool_choice"), *allowed = json_object_get(choice, "allowed_tools");
    const char *mode = json_string_value(json_is_string(choice) ? choice : json_object_get(allowed, "mode"));
    if (!choice) return;
    if (!json_is_string(choice) && !json_is_object(allowed))
        server_field_wrong(config, "tool_choice", choice, "a mode or {\"allowed_tools\": {...}}");
    if (mode) interactions_set_mode(gen, mode, config->problem);
    gemini_allow_tools(gen, json_object_get(allowed, "tools"), "generation_config.tool_choice.allowed_tools.tools",
                       config->problem);
}

static void interactions_parse_config(generation *gen, const server_fields *f) {
    server_fields g = {server_field_object(f, "generation_config"), f->problem, "generation_config."};
    const char *level = NULL, *summaries = "auto";
    rp_sampling *s = &gen->sampling;
    if (!g.object) return;
    server_field_real(&g, "temperature", 0, 2, &s->temperature);
    server_field_real(&g, "top_p", 0, 1, &s->top_p);
    server_field_int(&g, "max_output_tokens", 1, INT32_MAX, &gen->max_tokens);
    gen->has_seed = server_field_seed(&g, "seed", &s->seed);
    generation_stops(gen, &g, "stop_sequences");
    server_field_text(&g, "thinking_level", &level);
    if (level && !f->problem->kind) generation_set_effort(gen, level, "generation_config.thinking_level", f->problem);
    server_field_text(&g, "thinking_summaries", &summaries);
    gen->hides_reasoning |= strcmp(summaries, "none") == 0;
    interactions_parse_choice(gen, &g);
    generation_known(
        gen, &g,
        "temperature top_p max_output_tokens seed stop_sequences thinking_level thinking_summaries tool_choice");
}

/* A format by its type, not a schema, whose type is another one. */
static bool is_format(const json_t *format) {
    static const char *const types[] = {"text", "audio", "image", "video"};
    const char *type = json_string_value(json_object_get(format, "type"));
    for (size_t i = 0; i < BASE_ARRAY_LEN(types) && type; i++)
        if (strcmp(type, types[i]) == 0) return true;
    return false;
}

/* {"type": "text", "mime_type", "schema"}, or a list with it; or, as older clients have it, the schema, with
   response_mime_type. */
static void interactions_parse_format(generation *gen, const server_fields *f) {
    const json_t *format = server_field(f, "response_format"), *schema = NULL;
    const char *mime = NULL, *field = "response_mime_type", *place = "response_format";
    server_field_text(f, "response_mime_type", &mime);
    if (json_is_array(format)) {
        if (json_array_size(format) > 1)
            server_fail(f->problem, SERVER_UNSUPPORTED, place,
                        "'response_format' has several formats: give the one of type text");
        format = json_array_get(format, 0);
    }
    if (format && !json_is_object(format)) server_field_wrong(f, place, format, "an object");
    if (is_format(format)) {
        server_fields g = {format, f->problem, "response_format."};
        const char *type = json_string_value(json_object_get(format, "type"));
        if (strcmp(type, "text") != 0)
            server_fail(f->problem, SERVER_UNSUPPORTED, place,
                        "'response_format.type' is '%s': this server's models answer with text", type);
        server_field_text(&g, "mime_type", &mime);
        schema = server_field_object(&g, "schema");
        field = "response_format.mime_type", place = "response_format.schema";
        generation_known(gen, &g, "type mime_type schema");
    } else if (json_object_size(format) > 0) schema = format;
    gemini_set_format(gen, mime ? mime : "text/plain", field, schema, place, f->problem);
}

static void check_modalities(const server_fields *f) {
    const json_t *list = server_field_array(f, "response_modalities");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name || strcasecmp(name, "text") != 0)
            server_fail(f->problem, SERVER_UNSUPPORTED, "response_modalities",
                        "'response_modalities' has '%.20s': this server's models answer with text", name ? name : "?");
    }
}

/* Both the newest form of the input and older ones: what a content has, a step may have. */
#define STEP_FIELDS SERVER_PART_FIELDS "annotations id arguments call_id result is_error signature summary "

static const server_known_fields inside[] = {
    {"input[]", STEP_FIELDS "content role error"},
    {"input[].content[]", STEP_FIELDS},
    {"input[].content[].source", SERVER_SOURCE_FIELDS},
    {"input[].result[]", SERVER_PART_FIELDS "annotations"},
    {"tools[]", "type name description parameters strict"},
    {"generation_config.tool_choice", "allowed_tools"},
    {"generation_config.tool_choice.allowed_tools", "mode tools"},
};

#define FIELDS \
    "model input system_instruction tools generation_config response_format response_mime_type response_modalities " \
    "stream store background " \
    "previous_interaction_id continuation_token cached_content environment agent agent_config webhook_config labels " \
    "safety_settings service_tier"

int interactions_parse(generation *gen, server_problem *p) {
    static const char *const unknown[] = {"agent", "agent_config", "environment", "background",
                                          "webhook_config", "continuation_token", "cached_content", NULL};
    server_fields f = {gen->root, p, ""};
    bool store = true;
    const char *previous = NULL;
    gen->otherwise.temperature = 1;
    gen->default_tokens = SERVER_UNLIMITED_TOKENS;
    server_field_text(&f, "model", &gen->model);
    if (gen->model && strncmp(gen->model, "models/", 7) == 0) gen->model += 7;
    server_field_bool(&f, "stream", &gen->stream);
    server_field_bool(&f, "store", &store);
    server_field_text(&f, "previous_interaction_id", &previous);
    interactions_parse_input(gen, &f);
    openai_parse_tool_list(gen, server_field_array(&f, "tools"), "tools", OPENAI_FLAT, p);
    interactions_parse_config(gen, &f);
    interactions_parse_format(gen, &f);
    check_modalities(&f);
    generation_extras(gen, &f);
    openai_refuse(&f, unknown);
    generation_known(gen, &f, SERVER_EXTRA_FIELDS FIELDS);
    generation_known_inside(gen, inside, BASE_ARRAY_LEN(inside), p);
    return (int)p->kind;
}
