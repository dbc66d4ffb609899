/* SPDX-License-Identifier: Apache-2.0 */
/* test_template_vectors.c: chat templates of published models against what Python's Jinja2 makes of them: templates/NAME.jinja
 * and templates/expected.jsonl of REPRISE_TEST_DATA, or the folder and file that are given as arguments (tools/template_lab). */
#define _POSIX_C_SOURCE 200809L /* getline */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/file.h"
#include "reprise.h"

#define NOW 1768480496 /* 2026-01-15 12:34:56 */

typedef struct entry {
    char name[256];
    rp_template *t;
} entry;

static entry templates[64];
static size_t n_templates;
static int n_failed;

static rp_template *template_of(const char *folder, const char *name) {
    char path[1024];
    rp_error err;
    for (size_t i = 0; i < n_templates; i++)
        if (strcmp(templates[i].name, name) == 0) return templates[i].t;
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    static char source[1 << 20];
    size_t n = f ? fread(source, 1, sizeof(source), f) : 0;
    if (f) fclose(f);
    entry *e = &templates[n_templates++];
    snprintf(e->name, sizeof(e->name), "%s", name);
    if (!f || rp_template_new(&e->t, source, n, name, &err)) {
        printf("%s: %s\n", path, f ? err.message : "cannot be read");
        n_failed++;
    }
    return e->t;
}

/* The library's message begins with the place: "name:12: TypeError: ...". */
static const char *without_place(const rp_error *err) {
    size_t n = strlen(err->where);
    return n > 0 && strncmp(err->message, err->where, n) == 0 && strncmp(err->message + n, ": ", 2) == 0 ? err->message + n + 2 : err->message;
}

static void report(const char *template_name, const char *name, const char *expected, const char *got) {
    if (n_failed++ >= 20) return;
    size_t i = 0;
    while (expected[i] && expected[i] == got[i]) i++;
    size_t from = i < 40 ? 0 : i - 40;
    printf("%s, %s: differs at byte %zu\n  expected ...%.120s\n  got      ...%.120s\n", template_name, name, i, expected + from, got + from);
}

static void check(const char *folder, const json_t *vector) {
    const char *name = json_string_value(json_object_get(vector, "template")), *label = json_string_value(json_object_get(vector, "case"));
    const char *output = json_string_value(json_object_get(vector, "output")), *error = json_string_value(json_object_get(vector, "error"));
    rp_template *t = template_of(folder, name);
    char *input = json_dumps(json_object_get(vector, "input"), JSON_REAL_PRECISION(17));
    rp_template_options options = rp_template_options_defaults();
    rp_template_text *text = NULL;
    rp_error err = {0};
    options.has_time = true;
    options.time = NOW;
    if (t && input) {
        int rc = rp_template_render(t, input, strlen(input), &options, &text, &err);
        if (rc && !error) report(name, label, output, err.message);
        else if (rc && strncmp(error, without_place(&err), RP_ERROR_MESSAGE_BYTES - 300) != 0) report(name, label, error, without_place(&err));
        else if (!rc && error) report(name, label, error, text->bytes);
        else if (!rc && strcmp(output, text->bytes) != 0) report(name, label, output, text->bytes);
    }
    rp_template_text_free(text);
    free(input);
}

int main(int argc, char **argv) {
    const char *data = getenv("REPRISE_TEST_DATA");
    char folder[512], path[600];
    if (argc < 3 && !data) {
        printf("skipped: REPRISE_TEST_DATA is not set\n");
        return 0;
    }
    snprintf(folder, sizeof(folder), argc > 2 ? "%s" : "%s/templates", argc > 2 ? argv[1] : data);
    snprintf(path, sizeof(path), argc > 2 ? "%s" : "%s/expected.jsonl", argc > 2 ? argv[2] : folder);
    FILE *f = fopen(path, "r");
    if (!f) {
        printf("%s: cannot be read\n", path);
        return 1;
    }
    char *line = NULL;
    size_t cap = 0;
    int n = 0;
    for (; getline(&line, &cap, f) > 0; n++) {
        json_t *vector = json_loads(line, 0, NULL);
        if (vector) check(folder, vector);
        else n_failed++;
        json_decref(vector);
    }
    free(line);
    fclose(f);
    for (size_t i = 0; i < n_templates; i++) rp_template_free(templates[i].t);
    printf("%d renderings of %zu templates, %d differ\n", n, n_templates, n_failed);
    return n_failed > 0 || n == 0;
}
