/* SPDX-License-Identifier: Apache-2.0 */
/* lint_prompts.c: see lint_prompts.h. Owns the texts that prompts point into. One thread. */
#include "lint_prompts.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "common/console.h"
#include "reprise_tools.h"

static char *lint_prompts_keep(lint_prompts *p, char *text) {
    p->texts = cli_realloc(p->texts, (p->n_texts + 1) * sizeof *p->texts);
    return p->texts[p->n_texts++] = text;
}

static int lint_prompts_add(lint_prompts *p, const char *path, size_t number, const char *pml, size_t n) {
    if (p->n == LINT_MOST_PROMPTS)
        return cli_fail(CLI_FAILED, "%s: more than %d prompts: give fewer", path, LINT_MOST_PROMPTS);
    size_t bytes = strlen(path) + 24;
    char *name = lint_prompts_keep(p, cli_alloc(bytes));
    snprintf(name, bytes, "%s#%zu", path, number);
    if ((p->n & (p->n - 1)) == 0) p->items = cli_realloc(p->items, (p->n > 0 ? 2 * p->n : 1) * sizeof *p->items);
    p->items[p->n++] = (rp_lint_prompt){pml, n, name};
    return CLI_OK;
}

/* ---- sequences of PML documents ---- */

/* The first byte after a section that begins at s and ends with `close`; `end` if it is unterminated. */
static const char *lint_prompts_after(const char *s, const char *end, const char *close) {
    size_t n = strlen(close);
    for (; (size_t)(end - s) >= n; s++)
        if (memcmp(s, close, n) == 0) return s + n;
    return end;
}

static bool lint_prompts_begins(const char *s, const char *end, const char *with) {
    size_t n = strlen(with);
    return (size_t)(end - s) >= n && memcmp(s, with, n) == 0;
}

/* The end of a tag; its attributes may contain '>'. */
static const char *tag_end(const char *s, const char *end) {
    char quote = '\0';
    for (; s < end; s++) {
        if (quote != '\0') quote = *s == quote ? '\0' : quote;
        else if (*s == '"' || *s == '\'') quote = *s;
        else if (*s == '>') return s + 1;
    }
    return end;
}

/* The end of the document that begins at s: after the closing tag of its first element. Text that is not XML extends to
 * the end of the file; the library then reports the error. */
static const char *document_end(const char *s, const char *end) {
    int depth = 0;
    while (s < end) {
        const char *tag = s;
        if (*s != '<') {
            s++;
            continue;
        }
        if (lint_prompts_begins(s, end, "<!--")) s = lint_prompts_after(s + 4, end, "-->");
        else if (lint_prompts_begins(s, end, "<![CDATA[")) s = lint_prompts_after(s + 9, end, "]]>");
        else if (lint_prompts_begins(s, end, "<?")) s = lint_prompts_after(s + 2, end, "?>");
        else {
            s = tag_end(s, end);
            bool closes = tag + 1 < end && tag[1] == '/', empty = s - tag > 1 && s[-2] == '/';
            depth += closes ? -1 : empty ? 0
                                         : 1;
            if (depth <= 0) return s;
        }
    }
    return end;
}

static bool lint_prompts_is_blank(const char *s, const char *end) {
    while (s < end && strchr(" \t\r\n", *s) != NULL && *s != '\0') s++;
    return s == end;
}

/* Only comments and white space remain until the end of the file. */
static bool lint_prompts_is_over(const char *s, const char *end) {
    while (s < end) {
        while (s < end && lint_prompts_is_blank(s, s + 1)) s++;
        if (!lint_prompts_begins(s, end, "<!--")) return s == end;
        s = lint_prompts_after(s + 4, end, "-->");
    }
    return true;
}

static int read_documents(lint_prompts *p, const char *path, const char *s, const char *end) {
    int status = CLI_OK;
    for (size_t number = 1; !lint_prompts_is_over(s, end) && status == CLI_OK; number++) {
        while (lint_prompts_is_blank(s, s + 1)) s++; /* an XML declaration is valid only at the very start */
        const char *next = document_end(s, end);
        status = lint_prompts_add(p, path, number, s, (size_t)(next - s));
        s = next;
    }
    return status;
}

/* ---- JSON Lines ---- */

static int lint_prompts_read_line(lint_prompts *p, const char *path, size_t line, const char *s, size_t n) {
    json_error_t e;
    json_t *value = json_loadb(s, n, JSON_DECODE_ANY, &e);
    if (value == NULL)
        return cli_fail(CLI_FAILED, "%s:%zu:%d: %s (expected a string, or an object with \"prompt\")", path, line,
                        e.column, e.text);
    const json_t *prompt = json_is_object(value) ? json_object_get(value, "prompt") : value;
    int status = CLI_OK;
    if (!json_is_string(prompt))
        status = cli_fail(CLI_FAILED, "%s:%zu: no prompt: expected a string, or an object with \"prompt\"", path, line);
    else {
        size_t bytes = json_string_length(prompt);
        char *text = lint_prompts_keep(p, cli_alloc(bytes + 1));
        memcpy(text, json_string_value(prompt), bytes);
        status = lint_prompts_add(p, path, line, text, bytes);
    }
    json_decref(value);
    return status;
}

static int read_lines(lint_prompts *p, const char *path, const char *s, const char *end) {
    int status = CLI_OK;
    for (size_t line = 1; s < end && status == CLI_OK; line++) {
        const char *newline = memchr(s, '\n', (size_t)(end - s)), *next = newline != NULL ? newline : end;
        if (!lint_prompts_is_blank(s, next)) status = lint_prompts_read_line(p, path, line, s, (size_t)(next - s));
        s = newline != NULL ? newline + 1 : end;
    }
    return status;
}

/* ---- Files ---- */

static int lint_prompts_read_file(lint_prompts *p, const char *path) {
    char *bytes = NULL;
    size_t n = 0, before = p->n;
    int status = cli_read(path, &bytes, &n);
    if (status != CLI_OK) return status;
    const char *s = lint_prompts_keep(p, bytes), *end = s + n, *name = strcmp(path, "-") == 0 ? "stdin" : path;
    const char *first = s + strspn(s, " \t\r\n");
    status = *first == '{' || *first == '"' ? read_lines(p, name, s, end) : read_documents(p, name, s, end);
    if (status == CLI_OK && p->n == before)
        return cli_fail(CLI_FAILED, "%s: no prompts: expected PML documents, or JSON lines with \"prompt\"", name);
    return status;
}

int lint_prompts_read(lint_prompts *p, const cli_list *files) {
    int status = CLI_OK;
    for (size_t i = 0; i < files->n && status == CLI_OK; i++) status = lint_prompts_read_file(p, files->items[i]);
    return status;
}

void lint_prompts_free(lint_prompts *p) {
    for (size_t i = 0; i < p->n_texts; i++) free(p->texts[i]);
    free(p->texts);
    free(p->items);
    *p = (lint_prompts){0};
}
