/* SPDX-License-Identifier: Apache-2.0 */
/* golden.c: parses tests/golden/index.json and NAME.logits. Owns copies of everything it read. Threads: none. */
#define _POSIX_C_SOURCE 200809L /* strdup */

#include "golden.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/compiler.h"
#include "model/model.h"

#define MAX_PATH 4096

BASE_PRINTF(1, 2)
static _Noreturn void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("golden: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

static void *take(size_t n, size_t bytes) {
    void *p = calloc(n ? n : 1, bytes);
    if (!p) fail("out of memory");
    return p;
}

static char *copy(const char *s) {
    char *p = strdup(s);
    if (!p) fail("out of memory");
    return p;
}

static char *path_of(const char *name, const char *ending) {
    const char *tree = getenv("REPRISE_SOURCE_DIR");
    char *path = take(MAX_PATH, 1);
    snprintf(path, MAX_PATH, "%s/tests/golden/%s%s", tree && *tree ? tree : REPRISE_SOURCE_DIR, name, ending);
    return path;
}

/* ---- members of an object; a value of another type ends the program ---------------------------------------------- */

static const json_t *member(const json_t *object, const char *key, bool required) {
    const json_t *v = json_object_get(object, key);
    if (!v && required) fail("index.json: no \"%s\"", key);
    return v;
}

static char *text(const json_t *object, const char *key, bool required) {
    const json_t *v = member(object, key, required);
    if (v && !json_is_string(v)) fail("index.json: \"%s\" is no string", key);
    return v ? copy(json_string_value(v)) : NULL;
}

static int32_t number(const json_t *object, const char *key) {
    const json_t *v = member(object, key, true);
    if (!json_is_integer(v)) fail("index.json: \"%s\" is no integer", key);
    return (int32_t)json_integer_value(v);
}

static int32_t *numbers(const json_t *object, const char *key, bool required, int32_t *n) {
    const json_t *v = member(object, key, required);
    *n = (int32_t)json_array_size(v);
    if (!v) return NULL;
    int32_t *ids = take((size_t)*n, sizeof *ids);
    for (int32_t i = 0; i < *n; i++) {
        const json_t *id = json_array_get(v, (size_t)i);
        if (!json_is_integer(id)) fail("index.json: \"%s\" holds something else than integers", key);
        ids[i] = (int32_t)json_integer_value(id);
    }
    return ids;
}

/* ---- models ---------------------------------------------------------------------------------------------------- */

static void read_prompt(golden_prompt *p, const json_t *object) {
    const json_t *peer = member(object, "peer", false); /* none: llama.cpp refuses the file */
    p->name = text(object, "name", true);
    p->tokens = numbers(object, "tokens", true, &p->n_tokens);
    p->rows = number(object, "rows");
    p->offset = number(object, "offset");
    p->greedy = numbers(object, "greedy", true, &p->n_greedy);
    p->peer_error = peer ? json_number_value(member(peer, "error", true)) : 0;
    p->peer_same = peer ? number(peer, "same") : 0;
    p->peer_greedy = peer ? numbers(peer, "greedy", false, &p->n_peer_greedy) : NULL;
    if (p->rows < 1 || p->rows > p->n_tokens) fail("index.json: %d rows of %d tokens", p->rows, p->n_tokens);
}

/* Every row belongs to one prompt, and the file has all of them and nothing else. */
static void read_logits(golden_model *m) {
    char *path = path_of(m->name, ".logits");
    for (int32_t i = 0; i < m->n_prompts; i++) {
        if (m->prompts[i].offset != m->n_rows) fail("index.json: rows of %s are out of order", m->name);
        m->n_rows += m->prompts[i].rows;
    }
    size_t n = (size_t)m->n_rows * (size_t)m->vocabulary;
    FILE *f = fopen(path, "rb");
    m->logits = take(n, sizeof *m->logits);
    if (!f || fread(m->logits, sizeof *m->logits, n, f) != n || fgetc(f) != EOF)
        fail("%s does not hold %d rows", path, m->n_rows);
    fclose(f);
    free(path);
}

static void read_model(golden_model *m, const json_t *object) {
    const json_t *prompts = member(object, "prompts", true);
    m->name = text(object, "name", true);
    m->architecture = text(object, "architecture", true);
    m->covers = text(object, "covers", true);
    m->differs = text(object, "differs", false);
    m->vocabulary = number(object, "vocabulary");
    m->path = path_of(m->name, ".gguf");
    m->n_prompts = (int32_t)json_array_size(prompts);
    m->prompts = take((size_t)m->n_prompts, sizeof *m->prompts);
    for (int32_t i = 0; i < m->n_prompts; i++) read_prompt(&m->prompts[i], json_array_get(prompts, (size_t)i));
    read_logits(m);
}

golden *golden_open(void) {
    json_error_t err;
    char *path = path_of("index", ".json");
    json_t *root = json_load_file(path, 0, &err);
    if (!root) fail("%s, line %d: %s", path, err.line, err.text);
    const json_t *models = member(root, "models", true);
    golden *g = take(1, sizeof *g);
    g->n_models = (int32_t)json_array_size(models);
    if (g->n_models == 0) fail("%s: no models", path);
    g->models = take((size_t)g->n_models, sizeof *g->models);
    for (int32_t i = 0; i < g->n_models; i++) read_model(&g->models[i], json_array_get(models, (size_t)i));
    json_decref(root);
    free(path);
    return g;
}

static void free_model(golden_model *m) {
    for (int32_t i = 0; i < m->n_prompts; i++) {
        free(m->prompts[i].name);
        free(m->prompts[i].tokens);
        free(m->prompts[i].greedy);
        free(m->prompts[i].peer_greedy);
    }
    free(m->prompts);
    free(m->name);
    free(m->architecture);
    free(m->covers);
    free(m->differs);
    free(m->path);
    free(m->logits);
}

void golden_close(golden *g) {
    if (!g) return;
    for (int32_t i = 0; i < g->n_models; i++) free_model(&g->models[i]);
    free(g->models);
    free(g);
}

const golden_model *golden_find(const golden *g, const char *name) {
    for (int32_t i = 0; i < g->n_models; i++)
        if (strcmp(g->models[i].name, name) == 0) return &g->models[i];
    return NULL;
}

const golden_prompt *golden_find_prompt(const golden_model *m, const char *name) {
    for (int32_t i = 0; i < m->n_prompts; i++)
        if (strcmp(m->prompts[i].name, name) == 0) return &m->prompts[i];
    return NULL;
}

const float *golden_row(const golden_model *m, const golden_prompt *p, int32_t i) {
    return m->logits + (size_t)(p->offset + i) * (size_t)m->vocabulary;
}

int32_t golden_row_token(const golden_prompt *p, int32_t i) { return p->n_tokens - p->rows + i; }

bool golden_is_recurrent(const golden_model *m) {
    const model_arch *arch = model_arch_find(m->architecture, strlen(m->architecture));
    return arch && (arch->features & MODEL_RECURRENT);
}
