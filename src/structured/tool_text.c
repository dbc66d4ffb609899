/* SPDX-License-Identifier: Apache-2.0 */
/* tool_text.c: see tool_text.h. Owns nothing. */
#include "structured/tool_text.h"

#include <string.h>

#include "base/error.h"
#include "base/json_write.h"

#define CALL_OPEN "<tool_call>"
#define CALL_CLOSE "</tool_call>"

const char tool_text_before[] =
    "# Tools\n\nYou may call functions. These are there, as JSON between <tools> and </tools>:\n<tools>\n";
const char tool_text_after[] = "</tools>\n\nTo call one, write its name and its arguments as JSON between <tool_call> "
                               "and </tool_call>, and nothing after it:\n"
                               "<tool_call>\n{\"name\": \"the function's name\", \"arguments\": {\"an argument's "
                               "name\": \"its value\"}}\n</tool_call>";

json_t *tool_text_json(const tool_spec *t) {
    json_t *schema =
        t->schema ? json_incref((json_t *)t->schema) : json_pack("{s:s, s:{}}", "type", "object", "properties");
    return json_pack("{s:s, s:{s:s, s:s*, s:o}}", "type", "function", "function", "name", t->name, "description",
                     t->description, "parameters", schema);
}

/* Takes the value over; NULL is no memory. */
static int append_json(base_buffer *out, json_t *value, size_t flags) {
    const int rc = value ? base_json_write(out, value, flags) : RP_ERR_MEMORY;
    json_decref(value);
    return rc;
}

int tool_text_definition(base_buffer *out, const tool_spec *t) {
    return append_json(out, tool_text_json(t), JSON_COMPACT | JSON_SORT_KEYS);
}

int tool_text_call(base_buffer *out, const char *name, const char *arguments) {
    int rc = out->len > 0 ? base_buffer_append_str(out, "\n") : 0;
    if (!rc) rc = base_buffer_append_str(out, CALL_OPEN "\n{\"name\": ");
    if (!rc) rc = append_json(out, json_string(name), 0);
    if (!rc) rc = base_buffer_append_str(out, ", \"arguments\": ");
    if (!rc) rc = base_buffer_append_str(out, arguments);
    return rc ? rc : base_buffer_append_str(out, "}\n" CALL_CLOSE);
}

int tool_text_result(base_buffer *out, const char *text, bool is_error, size_t *at) {
    int rc = out->len > 0 ? base_buffer_append_str(out, "\n") : 0;
    if (!rc) rc = base_buffer_append_str(out, is_error ? "<tool_response>\nError: " : "<tool_response>\n");
    *at = out->len;
    if (!rc) rc = base_buffer_append_str(out, text);
    return rc ? rc : base_buffer_append_str(out, "\n</tool_response>");
}

bool tool_text_results_are_users(const char *chat_format) { return strcmp(chat_format, "chatml") == 0; }
