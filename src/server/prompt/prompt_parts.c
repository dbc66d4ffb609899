/* SPDX-License-Identifier: Apache-2.0 */
/* prompt_parts.c: the prompt of /v1/prompts as parts: JSON -> rp_prompt. Texts in it are never parsed.
 *
 *   {"schema": "cities", "parts": [{"type": "module", "name": "plan/miami", "args": {"duration": "3 days"}},
 *                                  {"type": "role", "role": "user", "parts": [{"type": "text", "text": "Is 2 < 3?"}]}]}
 *
 *   {"parts": [{"type": "document", "text": "..."}, {"type": "text", "text": "What is in it?"}]}
 *
 * Owns nothing; the prompt belongs to the generation. Any thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "server/prompt/generation.h"
#include "server/prompt/prompt_parts.h"
#include "reprise_pml.h"

#define PREFIX_BYTES 64

static void prompt_parts_add_parts(generation *gen, const json_t *parts, const char *place, bool in_role,
                                   server_problem *p);

/* A part that rp_prompt refuses is reported at submission. append: rp_builder_append_text or
 * rp_builder_append_document. */
static void prompt_parts_add_text(generation *gen, const server_fields *f,
                                  int (*append)(rp_builder *prompt, const char *text, size_t n)) {
    const json_t *text = server_field(f, "text");
    if (json_is_string(text)) append(gen->built, json_string_value(text), json_string_length(text));
    else if (text) server_field_wrong(f, "text", text, "a string");
    else server_fail(f->problem, SERVER_INVALID, "parts", "'%stext' is missing: give a string", f->prefix);
}

void prompt_parts_add_arguments(rp_builder *prompt, const json_t *args, const char *prefix, server_problem *p) {
    const server_fields f = {args, p, prefix};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)args, name, value) {
        if (p->kind) break;
        char *number = json_is_number(value) ? base_json_text(value, JSON_REAL_PRECISION(9)) : NULL;
        if (json_is_string(value))
            rp_builder_set_argument(prompt, name, json_string_value(value), json_string_length(value));
        else if (number) rp_builder_set_argument(prompt, name, number, strlen(number));
        else server_field_wrong(&f, name, value, "a string or a number");
        base_free(number);
    }
}

static void prompt_parts_add_module(generation *gen, const server_fields *f, const char *schema) {
    const char *name = NULL, *of = schema;
    const json_t *args = server_field_object(f, "args");
    server_field_text(f, "name", &name);
    server_field_text(f, "schema", &of);
    if (f->problem->kind) return;
    if (!name)
        server_fail(f->problem, SERVER_INVALID, "parts",
                    "'%sname' is missing: give a module's path, such as plan/miami", f->prefix);
    else if (!schema)
        server_fail(f->problem, SERVER_INVALID, "schema",
                    "'schema' is missing: give the name of the schema that the modules are of");
    else if (strcmp(of, schema) != 0)
        server_fail(f->problem, SERVER_INVALID, "parts",
                    "'%sschema' is '%.80s', but the prompt is for '%.80s': a prompt can use one schema", f->prefix, of,
                    schema);
    else rp_builder_import(gen->built, name);
    prompt_parts_add_arguments(gen->built, args, f->prefix, f->problem);
}

static void prompt_parts_add_role(generation *gen, const server_fields *f, bool in_role) {
    const char *name = "";
    const json_t *parts = server_field_array(f, "parts");
    rp_role role;
    server_field_text(f, "role", &name);
    const bool is_role = rp_role_parse(name, &role);
    if (f->problem->kind) return;
    if (!is_role)
        server_fail(f->problem, SERVER_INVALID, "parts", "'%srole' is '%.40s': give system, user, assistant or tool",
                    f->prefix, name);
    else if (in_role)
        server_fail(f->problem, SERVER_INVALID, "parts", "'%srole' is inside a role: roles do not nest", f->prefix);
    else {
        rp_builder_begin_role(gen->built, role);
        prompt_parts_add_parts(gen, parts, f->prefix, true, f->problem);
        rp_builder_end_role(gen->built);
    }
}

static void prompt_parts_add_part(generation *gen, const json_t *part, const char *place, bool in_role,
                                  server_problem *p) {
    const char *type = NULL;
    server_fields f = {part, p, place};
    BASE_ASSERT(place[0]);
    if (!json_is_object(part)) {
        server_fail(p, SERVER_INVALID, "parts", "'%.*s' is not an object: give {\"type\": \"text\", \"text\": ...}",
                    (int)strlen(place) - 1, place);
        return;
    }
    server_field_text(&f, "type", &type);
    if (p->kind) return;
    if (!type)
        server_fail(p, SERVER_INVALID, "parts", "'%stype' is missing: give text, document, module, pml or role", place);
    else if (strcmp(type, "text") == 0) prompt_parts_add_text(gen, &f, rp_builder_append_text);
    else if (strcmp(type, "document") == 0) prompt_parts_add_text(gen, &f, rp_builder_append_document);
    else if (strcmp(type, "pml") == 0) prompt_parts_add_text(gen, &f, rp_builder_append_pml);
    else if (strcmp(type, "module") == 0) prompt_parts_add_module(gen, &f, gen->built_schema);
    else if (strcmp(type, "role") == 0) prompt_parts_add_role(gen, &f, in_role);
    else
        server_fail(p, SERVER_INVALID, "parts", "'%stype' is '%.40s': give text, document, module, pml or role", place,
                    type);
}

/* place: "" or the role's, "parts[2]." */
static void prompt_parts_add_parts(generation *gen, const json_t *parts, const char *place, bool in_role,
                                   server_problem *p) {
    char here[PREFIX_BYTES];
    size_t n = json_array_size(parts);
    if (n > SERVER_MAX_PARTS)
        server_fail(p, SERVER_INVALID, "parts", "'%sparts' has %zu parts: give at most %d", place, n, SERVER_MAX_PARTS);
    for (size_t i = 0; i < n && !p->kind; i++) {
        snprintf(here, sizeof(here), "%sparts[%zu].", place, i);
        prompt_parts_add_part(gen, json_array_get(parts, i), here, in_role, p);
    }
}

void generation_parts(generation *gen, const server_fields *f) {
    const json_t *parts = server_field_array(f, "parts");
    rp_error err;
    server_field_text(f, "schema", &gen->built_schema);
    if (f->problem->kind) return;
    if (!parts && gen->built_schema)
        server_fail(f->problem, SERVER_INVALID, "schema", "'schema' is for 'parts': give them, or leave it out");
    if (!parts) return;
    if (gen->built_schema && !gen->built_schema[0])
        server_fail(f->problem, SERVER_INVALID, "schema",
                    "'schema' is empty: give the name of the schema that the modules are of, or leave it out");
    else if (rp_builder_new(&gen->built, gen->built_schema, &err)) server_fail_memory(f->problem);
    else prompt_parts_add_parts(gen, parts, "", false, f->problem);
}
