/* SPDX-License-Identifier: Apache-2.0 */
/* eval_task.c: parser of task files. Owns the JSON that holds the items' strings. One thread. */
#include "eval/eval_task.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "common/console.h"
#include "common/text.h"

static const char *const metric_names[EVAL_METRIC_COUNT] = {"exact", "contains", "f1", "rouge-l", "perplexity"};

const char *eval_metric_name(eval_metric metric) { return metric_names[metric]; }

/* Owner of the memory that items point into. */
typedef struct task_owner {
    json_t *lines; /* array of objects */
    char **texts;  /* contents and folders of schema files */
    size_t n_texts;
} task_owner;

static char *task_owner_keep(task_owner *o, char *text) {
    o->texts = cli_realloc(o->texts, (o->n_texts + 1) * sizeof *o->texts);
    return o->texts[o->n_texts++] = text;
}

static char *eval_task_copy(const char *s, size_t n) {
    char *p = cli_alloc(n + 1);
    memcpy(p, s, n);
    return p;
}

#define FIELDS "fields: schema, prompt, answers, metric and, optionally, id"

static int fail_field(const eval_task *t, const eval_item *item, const char *field, const char *what) {
    return cli_fail(CLI_FAILED, "%s:%d: \"%s\" %s (" FIELDS ")", t->path, item->line, field, what);
}

static int eval_task_read_schema(eval_task *t, eval_item *item, const json_t *value) {
    task_owner *o = t->owner;
    if (value == NULL) {
        if (t->n_items == 0) return fail_field(t, item, "schema", "is missing: the first line needs it");
        item->schema = item[-1].schema;
        item->schema_name = item[-1].schema_name;
        item->dir = item[-1].dir;
        return CLI_OK;
    }
    const char *s = json_string_value(value);
    if (s == NULL) return fail_field(t, item, "schema", "must be a string: a PML document, or the path of one");
    item->schema = s;
    if (s[strspn(s, " \t\r\n")] == '<') return CLI_OK;
    const char *slash = strrchr(t->path, '/');
    size_t n_folder = slash != NULL && s[0] != '/' ? (size_t)(slash - t->path) + 1 : 0;
    char *path = task_owner_keep(o, cli_alloc(n_folder + strlen(s) + 1)), *bytes = NULL;
    memcpy(path, t->path, n_folder);
    memcpy(path + n_folder, s, strlen(s));
    size_t n = 0;
    int status = cli_read(path, &bytes, &n);
    if (status != CLI_OK) return status;
    item->schema = task_owner_keep(o, bytes);
    item->schema_name = path;
    slash = strrchr(path, '/');
    item->dir = task_owner_keep(o, slash != NULL ? eval_task_copy(path, slash == path ? 1 : (size_t)(slash - path))
                                                 : eval_task_copy(".", 1));
    return CLI_OK;
}

static int read_answers(eval_task *t, eval_item *item, const json_t *value) {
    bool single = json_is_string(value);
    size_t n = single ? 1 : json_array_size(value);
    if (n == 0) return fail_field(t, item, "answers", "must be a list of strings, one or more");
    item->answers = cli_alloc(n * sizeof *item->answers);
    for (; item->n_answers < n; item->n_answers++) {
        const char *s = json_string_value(single ? value : json_array_get(value, item->n_answers));
        if (s == NULL || s[0] == '\0') return fail_field(t, item, "answers", "must be a list of non-empty strings");
        item->answers[item->n_answers] = s;
    }
    return CLI_OK;
}

static int read_metric(eval_task *t, eval_item *item, const json_t *value) {
    const char *name = json_string_value(value);
    if (name == NULL) return fail_field(t, item, "metric", "must be one of exact, contains, f1, rouge-l, perplexity");
    cli_nearest nearest = cli_nearest_start(name);
    for (int i = 0; i < EVAL_METRIC_COUNT; i++) {
        if (strcmp(metric_names[i], name) == 0) {
            item->metric = (eval_metric)i;
            return CLI_OK;
        }
        cli_nearest_try(&nearest, metric_names[i]);
    }
    if (nearest.best != NULL)
        return cli_fail(CLI_FAILED, "%s:%d: unknown metric \"%s\": did you mean \"%s\"?", t->path, item->line, name,
                        nearest.best);
    return cli_fail(CLI_FAILED, "%s:%d: unknown metric \"%s\": give exact, contains, f1, rouge-l or perplexity",
                    t->path, item->line, name);
}

static int eval_task_check_fields(const eval_task *t, const eval_item *item, json_t *object) {
    static const char *const known[] = {"schema", "prompt", "answers", "metric", "id"};
    const char *field;
    json_t *value;
    json_object_foreach(object, field, value) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) found |= strcmp(known[i], field) == 0;
        if (!found) return fail_field(t, item, field, "is not a field of an item");
    }
    return CLI_OK;
}

static int eval_task_read_line(eval_task *t, const char *line, size_t n, int number) {
    task_owner *o = t->owner;
    json_error_t error;
    eval_item *item = &t->items[t->n_items];
    *item = (eval_item){.line = number};
    json_t *object = json_loadb(line, n, 0, &error);
    if (object == NULL)
        return cli_fail(CLI_FAILED, "%s:%d:%d: not JSON: %s", t->path, number, error.column, error.text);
    json_array_append_new(o->lines, object);
    if (!json_is_object(object)) return cli_fail(CLI_FAILED, "%s:%d: expected an object (" FIELDS ")", t->path, number);
    int status = eval_task_check_fields(t, item, object);
    if (status == CLI_OK) status = eval_task_read_schema(t, item, json_object_get(object, "schema"));
    if (status == CLI_OK) status = read_answers(t, item, json_object_get(object, "answers"));
    if (status == CLI_OK) status = read_metric(t, item, json_object_get(object, "metric"));
    item->prompt = json_string_value(json_object_get(object, "prompt"));
    if (status == CLI_OK && item->prompt == NULL)
        status = fail_field(t, item, "prompt", "must be a string: a PML document");
    t->n_items++; /* counted before it is complete, so that its answers are freed */
    return status;
}

static char *stem_of(const char *path) {
    const char *slash = strrchr(path, '/'), *start = slash != NULL ? slash + 1 : path, *dot = strrchr(start, '.');
    return eval_task_copy(start, dot != NULL && dot > start ? (size_t)(dot - start) : strlen(start));
}

int eval_task_read(eval_task *t, const char *path, size_t limit) {
    char *bytes = NULL;
    size_t n = 0, lines = 1;
    *t = (eval_task){.name = stem_of(path), .path = path, .owner = cli_alloc(sizeof(task_owner))};
    task_owner *o = t->owner;
    o->lines = json_array();
    int status = cli_read(path, &bytes, &n);
    if (status != CLI_OK) return status;
    task_owner_keep(o, bytes);
    for (size_t i = 0; i < n; i++) lines += bytes[i] == '\n';
    t->items = cli_alloc(lines * sizeof *t->items);
    int number = 1;
    for (size_t at = 0; at < n && status == CLI_OK && (limit == 0 || t->n_items < limit); number++) {
        const char *end = memchr(bytes + at, '\n', n - at);
        size_t length = end != NULL ? (size_t)(end - bytes) - at : n - at;
        bool blank = true;
        for (size_t i = 0; i < length && blank; i++) blank = strchr(" \t\r", bytes[at + i]) != NULL;
        if (!blank) status = eval_task_read_line(t, bytes + at, length, number);
        at += length + 1;
    }
    if (status == CLI_OK && t->n_items == 0)
        return cli_fail(CLI_FAILED, "%s: no items: expected one JSON object per line", path);
    return status;
}

void eval_task_free(eval_task *t) {
    task_owner *o = t->owner;
    for (size_t i = 0; i < t->n_items; i++) free(t->items[i].answers);
    for (size_t i = 0; o != NULL && i < o->n_texts; i++) free(o->texts[i]);
    if (o != NULL) {
        json_decref(o->lines);
        free(o->texts);
    }
    free(o);
    free(t->items);
    free(t->name);
    *t = (eval_task){0};
}
