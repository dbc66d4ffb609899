/* SPDX-License-Identifier: Apache-2.0 */
/* test_template_vectors.c: chat templates of published models against what Python's Jinja2 makes of them:
 * templates/NAME.jinja and templates/expected.jsonl of REPRISE_TEST_DATA, or: test_template_vectors FOLDER
 * VECTORS.jsonl [MOST_REPORTS].
 *
 * A line of the vectors: {"template": file in FOLDER, or "source": the template itself; "case": label; "input": {...};
 * "output": text, or "error": "Exception: text"; "any_text": true: only the kind of result is compared, failed or
 * not}. */
#define _POSIX_C_SOURCE 200809L /* getline */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/file.h"
#include "reprise.h"
#include "reprise_chat.h"

#define NOW 1768480496 /* 2026-01-15 12:34:56 */

typedef struct entry {
    char name[256];
    rp_template *t;
} entry;

static entry templates[64];
static size_t n_templates;
static int n_failed, most_reports = 20;

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
    return n > 0 && strncmp(err->message, err->where, n) == 0 && strncmp(err->message + n, ": ", 2) == 0
               ? err->message + n + 2
               : err->message;
}

static void report(const char *template_name, const char *name, const char *expected, const char *got) {
    if (n_failed++ >= most_reports) return;
    size_t i = 0;
    while (expected[i] && expected[i] == got[i]) i++;
    size_t from = i < 40 ? 0 : i - 40;
    printf("%s, %s: differs at byte %zu\n  expected ...%.120s\n  got      ...%.120s\n", template_name, name, i,
           expected + from, got + from);
}

static const char *text_of(const json_t *vector, const char *name) {
    return json_string_value(json_object_get(vector, name));
}

/* The output, or the error; *failed: which. The caller frees it. */
static char *render(const rp_template *t, const json_t *vector, bool *failed) {
    char *input = json_dumps(json_object_get(vector, "input"), JSON_REAL_PRECISION(17)), *out = NULL;
    rp_template_options options = rp_template_options_defaults();
    rp_template_text *text = NULL;
    rp_error err = {0};
    options.has_time = true;
    options.time = NOW;
    *failed = !input || rp_template_render(t, input, strlen(input), &options, &text, &err) != RP_OK;
    out = strdup(*failed ? without_place(&err) : text->bytes);
    rp_template_text_free(text);
    free(input);
    return out;
}

static void check(const char *folder, const json_t *vector) {
    const char *name = text_of(vector, "template"), *source = text_of(vector, "source"),
               *label = text_of(vector, "case");
    const char *output = text_of(vector, "output"), *error = text_of(vector, "error");
    rp_template *own = NULL;
    rp_error err = {0};
    bool failed = source && rp_template_new(&own, source, strlen(source), "inline", &err);
    const rp_template *t = source ? own : template_of(folder, name);
    char *got = t ? render(t, vector, &failed) : strdup(without_place(&err));
    const char *expected = error ? error : output;
    bool same = got && failed == (error != NULL);
    if (same && !json_is_true(json_object_get(vector, "any_text")))
        same = failed ? strncmp(error, got, RP_ERROR_MESSAGE_BYTES - 300) == 0 : strcmp(output, got) == 0;
    if (!same && (t || source))
        report(source ? source : name, label ? label : "", expected, got ? got : "out of memory");
    free(got);
    rp_template_free(own);
}

int main(int argc, char **argv) {
    const char *data = getenv("REPRISE_TEST_DATA");
    char folder[512], path[600];
    if (argc < 3 && !data) {
        printf("skipped: REPRISE_TEST_DATA is not set\n");
        return 0;
    }
    if (argc > 3) most_reports = atoi(argv[3]);
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
