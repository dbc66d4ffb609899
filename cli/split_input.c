/* SPDX-License-Identifier: Apache-2.0 */
/* split_input.c: reads prompts: a file is one prompt, unless its first line is a JSON object with "prompt" or
 * "messages"; then each line is one.
 *
 *   {"prompt": "..."}
 *   {"messages": [{"role": "user", "content": "..."}, ...]}
 *
 * content: a string, or [{"type": "text", "text": "..."}, ...]. Owns the prompts. One thread.
 */
#include "split_input.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "common/console.h"
#include "reprise_tools.h"

#define NAME_BYTES 300

static char *split_input_copy(const char *s, size_t n) {
    char *p = cli_alloc(n + 1);
    if (n > 0) memcpy(p, s, n);
    return p;
}

/* Adds a prompt with an array for its messages, which the caller fills. */
static rp_message *split_input_add(split_input *in, const char *name, size_t n_messages, bool plain) {
    if (in->n == in->cap) {
        in->cap = in->cap > 0 ? 2 * in->cap : 64;
        in->prompts = cli_realloc(in->prompts, in->cap * sizeof(*in->prompts));
    }
    rp_message *messages = cli_alloc(n_messages * sizeof(*messages));
    in->prompts[in->n++] = (rp_split_prompt){split_input_copy(name, strlen(name)), messages, n_messages, plain};
    return messages;
}

static void add_plain(split_input *in, const char *name, const char *text, size_t n) {
    *split_input_add(in, name, 1, true) = (rp_message){.role = RP_ROLE_USER, .text = split_input_copy(text, n), .n = n};
}

/* ---- JSON Lines ---- */

static bool role_of(const char *name, rp_role *out) {
    if (name == NULL || strcmp(name, "developer") != 0) return rp_role_parse(name, out);
    *out = RP_ROLE_SYSTEM;
    return true;
}

/* All text of a message's content; NULL if it is malformed. */
static char *content_of(const json_t *content, size_t *n) {
    *n = 0;
    if (json_is_string(content)) {
        *n = json_string_length(content);
        return split_input_copy(json_string_value(content), *n);
    }
    if (!json_is_array(content)) return NULL;
    char *text = cli_alloc(1);
    size_t i;
    const json_t *part;
    json_array_foreach(content, i, part) {
        const json_t *s = json_object_get(part, "text");
        if (!json_is_string(s)) {
            free(text);
            return NULL;
        }
        text = cli_realloc(text, *n + json_string_length(s) + 1);
        memcpy(text + *n, json_string_value(s), json_string_length(s) + 1);
        *n += json_string_length(s);
    }
    return text;
}

static int split_input_add_messages(split_input *in, const char *name, const json_t *list) {
    size_t i, n = json_array_size(list);
    const json_t *m;
    if (n == 0) return cli_fail(CLI_FAILED, "%s: \"messages\" is not a list with a message in it", name);
    rp_message *messages = split_input_add(in, name, n, false);
    json_array_foreach(list, i, m) {
        if (!role_of(json_string_value(json_object_get(m, "role")), &messages[i].role))
            return cli_fail(CLI_FAILED,
                            "%s: message %zu needs a \"role\" of system, developer, user, assistant or tool", name, i);
        messages[i].text = content_of(json_object_get(m, "content"), &messages[i].n);
        if (messages[i].text == NULL)
            return cli_fail(CLI_FAILED, "%s: message %zu needs a \"content\": give a string, or a list of texts", name,
                            i);
    }
    return CLI_OK;
}

static int add_object(split_input *in, const char *name, const json_t *object) {
    const json_t *prompt = json_object_get(object, "prompt"), *messages = json_object_get(object, "messages");
    if (messages != NULL) return split_input_add_messages(in, name, messages);
    if (!json_is_string(prompt))
        return cli_fail(CLI_FAILED, "%s: give an object with \"prompt\", a string, or \"messages\"", name);
    add_plain(in, name, json_string_value(prompt), json_string_length(prompt));
    return CLI_OK;
}

/* Length of the line at s, without its line end. */
static size_t line_length(const char *s, size_t n) {
    const char *end = n > 0 ? memchr(s, '\n', n) : NULL;
    return end != NULL ? (size_t)(end - s) : n;
}

static bool split_input_is_blank(const char *s, size_t n) {
    size_t i = 0;
    while (i < n && strchr(" \t\r", s[i]) != NULL && s[i] != '\0') i++;
    return i == n;
}

static bool is_json_lines(const char *data, size_t n) {
    if (n == 0 || data[0] != '{') return false;
    json_t *first = json_loadb(data, line_length(data, n), JSON_ALLOW_NUL, NULL);
    bool is = json_object_get(first, "prompt") != NULL || json_object_get(first, "messages") != NULL;
    json_decref(first);
    return is;
}

static int add_lines(split_input *in, const char *file, const char *data, size_t n) {
    int status = CLI_OK;
    size_t line = 1;
    for (size_t i = 0, length; i < n && status == CLI_OK; i += length + 1, line++) {
        char name[NAME_BYTES];
        json_error_t wrong;
        length = line_length(data + i, n - i);
        if (split_input_is_blank(data + i, length)) continue;
        snprintf(name, sizeof name, "%s:%zu", file, line);
        json_t *object = json_loadb(data + i, length, JSON_ALLOW_NUL, &wrong);
        status =
            object == NULL ? cli_fail(CLI_FAILED, "%s: not JSON: %s", name, wrong.text) : add_object(in, name, object);
        json_decref(object);
    }
    return status;
}

/* ---- Files ---- */

int split_input_read(split_input *in, const cli_list *files) {
    int status = CLI_OK;
    for (size_t i = 0; i < files->n && status == CLI_OK; i++) {
        char *data = NULL;
        size_t n = 0;
        const char *name = strcmp(files->items[i], "-") == 0 ? "stdin" : files->items[i];
        status = cli_read(files->items[i], &data, &n);
        if (status == CLI_OK && is_json_lines(data, n)) status = add_lines(in, name, data, n);
        else if (status == CLI_OK) add_plain(in, name, data, n);
        free(data);
    }
    return status;
}

void split_input_free(split_input *in) {
    for (size_t i = 0; i < in->n; i++) {
        for (size_t m = 0; m < in->prompts[i].n_messages; m++) free((void *)(uintptr_t)in->prompts[i].messages[m].text);
        free((void *)(uintptr_t)in->prompts[i].messages);
        free((void *)(uintptr_t)in->prompts[i].name);
    }
    free(in->prompts);
}
