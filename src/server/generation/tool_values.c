/* SPDX-License-Identifier: Apache-2.0 */
/* tool_values.c: see tool_values.h. Owns nothing. */
#include "server/generation/tool_values.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/compiler.h"
#include "base/json_read.h"
#include "server/generation/tool_heads.h"

static bool is_type_string(const json_t *type) { return json_is_string(type) && strcasecmp(json_string_value(type), "string") == 0; }

bool tool_values_is_text(const server_tool *tool, const char *name, size_t n) {
    const json_t *schema = json_object_getn(json_object_get(tool->schema, "properties"), name, n), *values = json_object_get(schema, "enum");
    bool strings = json_array_size(values) > 0;
    for (size_t i = 0; i < json_array_size(values); i++) strings &= json_is_string(json_array_get(values, i));
    return strings || is_type_string(json_object_get(schema, "type")) || json_is_string(json_object_get(schema, "const"));
}

int tool_values_escaped(tool_finder *f, const char *text, size_t n) {
    size_t plain = 0;
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        const unsigned char c = (unsigned char)text[i];
        char code[8];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        if (c == '"' || c == '\\') snprintf(code, sizeof(code), "\\%c", c);
        else if (c == '\n') snprintf(code, sizeof(code), "\\n");
        else snprintf(code, sizeof(code), "\\u%04x", c);
        rc = tool_items_arguments(f, text + plain, i - plain);
        if (!rc) rc = tool_items_arguments(f, code, strlen(code));
        plain = i + 1;
    }
    return rc ? rc : tool_items_arguments(f, text + plain, n - plain);
}

int tool_values_string(tool_finder *f, const char *text, size_t n) {
    int rc = tool_items_arguments(f, "\"", 1);
    if (!rc) rc = tool_values_escaped(f, text, n);
    return rc ? rc : tool_items_arguments(f, "\"", 1);
}

int tool_values_any(tool_finder *f, const char *text, size_t n) {
    static const char *const python[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    const char *own = text;
    size_t n_own = n;
    while (n_own > 0 && tool_heads_is_space(*own)) own++, n_own--;
    while (n_own > 0 && tool_heads_is_space(own[n_own - 1])) n_own--;
    for (size_t i = 0; i < BASE_ARRAY_LEN(python); i++)
        if (strlen(python[i][0]) == n_own && memcmp(python[i][0], own, n_own) == 0)
            return tool_items_arguments(f, python[i][1], strlen(python[i][1]));
    json_t *value = base_json_read(own, n_own, BASE_JSON_AS_WRITTEN);
    json_decref(value);
    return value ? tool_items_arguments(f, own, n_own) : tool_values_string(f, text, n);
}
