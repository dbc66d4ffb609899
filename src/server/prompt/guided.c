/* SPDX-License-Identifier: Apache-2.0 */
/* guided.c: see guided.h. Owns nothing. */
#include "server/prompt/guided.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/json_read.h"

/* One form was found. */
static void guided_take(generation *gen, const server_fields *f, const char *full) {
    if (gen->guided.field)
        server_fail(f->problem, SERVER_INVALID, full, "'%s' and '%s' exclude each other: give one of them",
                    gen->guided.field, full);
    else gen->guided.field = full;
}

/* A JSON schema: an object, or its text. */
static void guided_parse_json(generation *gen, const server_fields *f, const char *name, const char *full) {
    const json_t *value = server_field(f, name);
    if (!value) return;
    guided_take(gen, f, full);
    if (f->problem->kind) return; /* the generation owns the text of the first one */
    if (json_is_string(value)) {
        json_error_t at;
        const char *text = json_string_value(value);
        const size_t n = json_string_length(value);
        value = gen->guided.owned = base_json_read(text, n, BASE_JSON_ANY | BASE_JSON_REPLACE_NUL);
        if (!value) value = gen->guided.owned = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &at);
        if (!value)
            server_fail(f->problem, SERVER_INVALID, full, "'%s' is not valid JSON: line %d, column %d: %s", full,
                        at.line, at.column, at.text);
    }
    if (value && !json_is_object(value)) server_field_wrong(f, name, value, "a JSON schema");
    gen->guided.schema = value;
}

static void guided_parse_text(generation *gen, const server_fields *f, const char *name, const char *full,
                              const char **out) {
    const char *text = NULL;
    server_field_text(f, name, &text);
    if (!text) return;
    guided_take(gen, f, full);
    *out = text;
}

static void guided_parse_choices(generation *gen, const server_fields *f, const char *name, const char *full) {
    const json_t *list = server_field_array(f, name);
    size_t n = json_array_size(list), bytes = 0;
    if (!list) return;
    guided_take(gen, f, full);
    bool texts = n > 0 && n <= JSON_GRAMMAR_NAMES;
    for (size_t i = 0; i < n; i++) {
        texts = texts && json_string_length(json_array_get(list, i)) > 0;
        bytes += json_string_length(json_array_get(list, i));
    }
    if (!texts || bytes > SERVER_MAX_CHOICE_BYTES)
        server_fail(f->problem, SERVER_INVALID, full,
                    "'%s' must be 1 to %d strings, none of them empty, of at most %zu bytes together", full,
                    JSON_GRAMMAR_NAMES, SERVER_MAX_CHOICE_BYTES);
    gen->form.choices = list;
}

static void guided_parse_structured(generation *gen, const server_fields *f) {
    const json_t *object = server_field_object(f, "structured_outputs");
    const server_fields in = {object, f->problem, "structured_outputs."};
    bool any = false;
    if (!object) return;
    guided_parse_json(gen, &in, "json", "structured_outputs.json");
    guided_parse_text(gen, &in, "regex", "structured_outputs.regex", &gen->form.regex);
    guided_parse_choices(gen, &in, "choice", "structured_outputs.choice");
    guided_parse_text(gen, &in, "grammar", "structured_outputs.grammar", &gen->guided.grammar);
    server_field_bool(&in, "json_object", &any);
    if (any) guided_take(gen, &in, "structured_outputs.json_object");
    gen->guided.json_object = any;
    server_field_text(&in, "whitespace_pattern", &gen->form.whitespace);
    if (server_field(&in, "structural_tag"))
        server_fail(
            f->problem, SERVER_UNSUPPORTED, "structured_outputs.structural_tag",
            "'structured_outputs.structural_tag' is not supported: give json, regex, choice, grammar or json_object");
    generation_known(gen, &in,
                     "json regex choice grammar json_object whitespace_pattern structural_tag disable_fallback "
                     "disable_any_whitespace "
                     "disable_additional_properties");
}

void guided_parse(generation *gen, const server_fields *f) {
    guided_parse_json(gen, f, "guided_json", "guided_json");
    guided_parse_text(gen, f, "guided_regex", "guided_regex", &gen->form.regex);
    guided_parse_choices(gen, f, "guided_choice", "guided_choice");
    guided_parse_text(gen, f, "guided_grammar", "guided_grammar", &gen->guided.grammar);
    server_field_text(f, "guided_whitespace_pattern", &gen->form.whitespace);
    guided_parse_structured(gen, f);
}

void guided_settle(generation *gen, server_problem *p) {
    const server_guided *guided = &gen->guided;
    if (p->kind || !guided->field) return;
    const int of_text = (gen->form.regex != NULL) + (gen->form.choices != NULL) + (guided->grammar != NULL);
    BASE_ASSERT(of_text + (guided->schema != NULL) + guided->json_object == 1); /* guided_take refuses a second one */
    if (gen->grammar || gen->form.wants_json)
        server_fail(p, SERVER_INVALID, guided->field, "'%s' and %s exclude each other: give one of them", guided->field,
                    gen->grammar ? "'grammar'" : "another format of the answer");
    gen->grammar = guided->grammar;
    gen->form.wants_json = guided->json_object || guided->schema;
    gen->form.schema = guided->schema;
    gen->form.place = guided->field;
}
