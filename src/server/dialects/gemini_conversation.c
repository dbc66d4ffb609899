/* SPDX-License-Identifier: Apache-2.0 */
/* gemini_conversation.c: a conversation in Gemini's dialect: systemInstruction, contents and tools, of a request
 * (gemini.c) or of one that is kept (cached_contents_http.c). */
#include <stdio.h>
#include <string.h>

#include "server/dialects/gemini.h"
#include "server/prompt/known_fields.h"

/* A content's parts as one message: {"parts": [{"text": ...}]}. */
static void parse_content(generation *gen, rp_role role, const json_t *content, const char *name, server_problem *p) {
    const json_t *parts = json_object_get(content, "parts");
    if (!json_is_object(content) || !json_is_array(parts))
        server_fail(p, SERVER_INVALID, name, "'%s' needs an array 'parts'", name);
    else gemini_add_parts(gen, role, parts, name, p);
}

static void parse_contents(generation *gen, const server_fields *f) {
    const json_t *contents = server_field_array(f, "contents");
    for (size_t i = 0; i < json_array_size(contents) && !f->problem->kind; i++) {
        const json_t *content = json_array_get(contents, i);
        const char *role = json_string_value(json_object_get(content, "role"));
        char name[48];
        snprintf(name, sizeof(name), "contents[%zu]", i);
        bool model = role && strcmp(role, "model") == 0;
        if (role && !model && strcmp(role, "user") != 0 && strcmp(role, "function") != 0)
            server_fail(f->problem, SERVER_INVALID, name, "'%s.role' is '%.40s': give user or model", name, role);
        else parse_content(gen, model ? RP_ROLE_ASSISTANT : RP_ROLE_USER, content, name, f->problem);
    }
}

#define PART_FIELDS \
    SERVER_PART_FIELDS "functionCall function_call functionResponse function_response thought thoughtSignature " \
                       "thought_signature partMetadata "
#define CALL_FIELDS "id name args partialArgs willContinue"
#define RESPONSE_FIELDS "id name response willContinue scheduling"
#define FUNCTION_FIELDS \
    "name description behavior parameters parametersJsonSchema parameters_json_schema response responseJsonSchema " \
    "response_json_schema"
#define CALLING_FIELDS "mode allowedFunctionNames allowed_function_names"

/* Both spellings, as the parser takes both. Signatures of thoughts come from other models' answers. */
static const server_known_fields inside[] = {
    {"systemInstruction", "role parts"},
    {"systemInstruction.parts[]", PART_FIELDS},
    {"system_instruction", "role parts"},
    {"system_instruction.parts[]", PART_FIELDS},
    {"contents[]", "role parts"},
    {"contents[].parts[]", PART_FIELDS},
    {"contents[].parts[].source", SERVER_SOURCE_FIELDS},
    {"contents[].parts[].functionCall", CALL_FIELDS},
    {"contents[].parts[].function_call", CALL_FIELDS},
    {"contents[].parts[].functionResponse", RESPONSE_FIELDS},
    {"contents[].parts[].function_response", RESPONSE_FIELDS},
    {"tools[].functionDeclarations[]", FUNCTION_FIELDS},
    {"tools[].function_declarations[]", FUNCTION_FIELDS},
    {"toolConfig", "functionCallingConfig function_calling_config retrievalConfig"},
    {"toolConfig.functionCallingConfig", CALLING_FIELDS},
    {"toolConfig.function_calling_config", CALLING_FIELDS},
    {"tool_config", "functionCallingConfig function_calling_config retrieval_config"},
    {"tool_config.functionCallingConfig", CALLING_FIELDS},
    {"tool_config.function_calling_config", CALLING_FIELDS},
};

void gemini_parse_conversation(generation *gen, const server_fields *f) {
    const json_t *system = server_field_object(f, "systemInstruction");
    if (!system) system = server_field_object(f, "system_instruction");
    if (system) parse_content(gen, RP_ROLE_SYSTEM, system, "systemInstruction", f->problem);
    parse_contents(gen, f);
    if (gen->n_messages == 0)
        server_fail(f->problem, SERVER_INVALID, "contents", "'contents' is missing: give at least one");
    gemini_parse_tools(gen, f);
    generation_known_inside(gen, inside, BASE_ARRAY_LEN(inside), f->problem);
}
