/* SPDX-License-Identifier: Apache-2.0 */
/* serve_models.c: see serve_models.h. Owns the loaded models. The server calls models_load and models_unload on one
 * thread at a time; the lock is for serve_models_visit. */
#include "serve_models.h"

#include <ctype.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "common/command.h"
#include "common/console.h"
#include "models/model_path.h"
#include "reprise.h"

#define DEFAULT_KV_BYTES ((uint64_t)2 << 30) /* of each of several models: what an engine without --ram has */
#define DEFAULT_DISK_BYTES ((uint64_t)16 << 30)
#define NAME_BYTES 64
#define DIR_BYTES 4096

typedef struct serve_model {
    char name[NAME_BYTES + 1];
    char *path; /* owned */
    cli_loaded loaded;
    uint64_t most; /* memory that it takes, while it is loaded; 0: not loaded */
} serve_model;

struct serve_models {
    serve_models_options options;
    rp_server *server;
    serve_model items[RP_SERVER_MAX_MODELS];
    size_t n;
    char *draft_path;     /* owned; NULL: none */
    bool is_starting;     /* the first load, which shows progress */
    pthread_mutex_t lock; /* guards `loaded` of all */
};

/* ---- names ---- */

/* The length of NAME in NAME=FILE: letters, digits, '.', '_' and '-'; 0: there is none. */
static size_t name_length(const char *text) {
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || (n > 0 && strchr("._-", text[n]) != NULL && text[n] != '\0')) n++;
    return text[n] == '=' ? n : 0;
}

static int add_model(serve_models *s, const char *text) {
    serve_model *m = &s->items[s->n];
    const size_t n = name_length(text);
    const bool is_only = s->options.models->n == 1;
    const char *given = n > 0 ? text + n + 1 : text;
    if (n == 0 && !is_only)
        return cli_fail(CLI_WRONG_USE, "--model %s: give each of several models a name: --model NAME=FILE", text);
    if (n > NAME_BYTES)
        return cli_fail(CLI_WRONG_USE, "--model %s: the name has more than %d characters", text, NAME_BYTES);
    if (given[0] == '\0') return cli_fail(CLI_WRONG_USE, "--model %s: the file's path is missing", text);
    memcpy(m->name, text, n);
    if (!is_only && strcmp(m->name, "weights") == 0)
        return cli_fail(CLI_WRONG_USE, "--model %s: the store's folder has a folder 'weights': give another name",
                        text);
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->items[i].name, m->name) == 0)
            return cli_fail(CLI_WRONG_USE, "two models have the name '%s': give each its own", m->name);
    int status = model_path_find(given, &m->path);
    s->n += status == CLI_OK;
    return status;
}

static int add_models(serve_models *s) {
    const serve_models_options *o = &s->options;
    int status = CLI_OK;
    if (o->models->n > RP_SERVER_MAX_MODELS)
        return cli_fail(CLI_WRONG_USE, "--model: give at most %d models", RP_SERVER_MAX_MODELS);
    for (size_t i = 0; i < o->models->n && status == CLI_OK; i++) status = add_model(s, o->models->items[i]);
    if (status == CLI_OK && o->draft_model != NULL && s->n > 1)
        return cli_fail(CLI_WRONG_USE, "--draft-model is for a single model: start a server for each of the %zu models",
                        s->n);
    if (status == CLI_OK && o->draft_model != NULL) status = model_path_find(o->draft_model, &s->draft_path);
    if (status != CLI_OK || s->n == 1) return status;
    if (o->name != NULL)
        return cli_fail(CLI_WRONG_USE, "--name is for a single model: with several use --model NAME=FILE");
    if (o->chat_format != NULL)
        return cli_fail(CLI_WRONG_USE, "--chat-format is for a single model: each model file has its own");
    return CLI_OK;
}

/* ---- loading, called by the server ---- */

static uint64_t loaded_bytes(const serve_models *s) {
    uint64_t sum = 0;
    for (size_t i = 0; i < s->n; i++) sum += s->items[i].most;
    return sum;
}

static int fail_budget(const serve_models *s, const serve_model *m, uint64_t used, rp_error *err) {
    *err = (rp_error){.code = RP_ERR_BUDGET};
    snprintf(err->message, sizeof(err->message), "model '%s': loaded models take %llu of %llu MiB: raise --ram",
             m->name, (unsigned long long)used >> 20, (unsigned long long)s->options.engine.ram_bytes >> 20);
    return RP_ERR_BUDGET;
}

/* The share of one of several models. dir: receives the path of its store. */
static int set_share(const serve_models *s, const serve_model *m, rp_engine_options *o, char dir[DIR_BYTES],
                     rp_error *err) {
    const uint64_t used = loaded_bytes(s);
    if (o->ram_bytes > 0 && used >= o->ram_bytes) return fail_budget(s, m, used, err);
    if (o->ram_bytes > 0) o->ram_bytes -= used;
    if (o->kv_budget_bytes == 0) o->kv_budget_bytes = DEFAULT_KV_BYTES;
    if (used > 0) o->kv_min_bytes = o->kv_budget_bytes;
    if (o->store_dir == NULL) return RP_OK;
    o->store_budget_bytes = (o->store_budget_bytes > 0 ? o->store_budget_bytes : DEFAULT_DISK_BYTES) / s->n;
    const int n = snprintf(dir, DIR_BYTES, "%s/%s", o->store_dir, m->name);
    o->store_dir = dir;
    if (n > 0 && n < DIR_BYTES) return RP_OK;
    *err = (rp_error){.code = RP_ERR_INVALID};
    snprintf(err->message, sizeof(err->message), "--store: the path is too long");
    return RP_ERR_INVALID;
}

static double now_seconds(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

CLI_PRINTF(2, 3)
static void models_log(const serve_models *s, const char *format, ...) {
    char line[256];
    va_list args;
    if (s->n == 1) return;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    rp_log_line(line);
}

/* Its number is what --request-ram leaves of --ram. */
static void name_request_ram(rp_error *err) {
    const size_t n = strlen(err->message);
    snprintf(err->message + n, sizeof(err->message) - n, " (without --request-ram, which is part of --ram)");
}

static int models_load(void *user, int32_t i, rp_model **model, rp_engine **engine, rp_error *err) {
    serve_models *s = user;
    serve_model *m = &s->items[i];
    rp_engine_options o = s->options.engine;
    cli_loaded loaded = {.mock = s->options.mock, .draft_path = s->draft_path};
    char dir[DIR_BYTES];
    const double begin = now_seconds();
    int rc = s->n > 1 ? set_share(s, m, &o, dir, err) : RP_OK;
    if (rc == RP_OK)
        rc = cli_open(&loaded, m->path, s->options.chat_format, &o, s->options.schemas, s->is_starting, err);
    s->is_starting = false;
    if (rc == RP_ERR_BUDGET) name_request_ram(err);
    if (rc != RP_OK) return rc;
    rp_memory memory = {.struct_size = sizeof(memory)};
    rp_engine_memory(loaded.engine, &memory);
    pthread_mutex_lock(&s->lock);
    m->loaded = loaded;
    m->most = memory.most;
    pthread_mutex_unlock(&s->lock);
    *model = loaded.model;
    *engine = loaded.engine;
    models_log(s, "loaded model '%s' in %.2f s: %llu MiB", m->name, now_seconds() - begin,
               (unsigned long long)memory.most >> 20);
    return RP_OK;
}

static void models_unload(void *user, int32_t i, rp_model *model, rp_engine *engine) {
    serve_models *s = user;
    serve_model *m = &s->items[i];
    const int64_t left_ms = rp_server_drain_left_ms(s->server); /* -1: the server goes on: all writes are completed */
    (void)model;
    (void)engine;
    pthread_mutex_lock(&s->lock);
    m->loaded.close_ms = &left_ms;
    cli_loaded_free(&m->loaded);
    m->most = 0;
    pthread_mutex_unlock(&s->lock);
    models_log(s, "unloaded model '%s'", m->name);
}

/* ---- life ---- */

int serve_models_new(serve_models **out, const serve_models_options *options) {
    serve_models *s = calloc(1, sizeof(*s));
    *out = s;
    if (s == NULL) return cli_fail(CLI_FAILED, "out of memory");
    s->options = *options;
    pthread_mutex_init(&s->lock, NULL);
    int status = add_models(s);
    return status == CLI_OK ? cli_check_chat_format(options->chat_format) : status;
}

/* The descriptions of several models, which are opened for them. */
static int models_describe(serve_models *s, rp_model *models[], rp_model_info infos[]) {
    for (size_t i = 0; i < s->n; i++) {
        rp_error err;
        infos[i] = (rp_model_info){.struct_size = sizeof(*infos)};
        const int rc = s->options.mock != NULL ? rp_model_open_mock(&models[i], s->items[i].path, s->options.mock, &err)
                                               : rp_model_open(&models[i], s->items[i].path, NULL, &err);
        if (rc != RP_OK) return cli_fail_library(&err);
        rp_model_describe(models[i], &infos[i]);
    }
    return CLI_OK;
}

static int models_start(serve_models *s, const rp_model_info *infos) {
    const char *names[RP_SERVER_MAX_MODELS];
    rp_server_models models = {.struct_size = sizeof(models), .n = (int32_t)s->n, .names = names, .infos = infos};
    rp_error err;
    models.load = models_load;
    models.unload = models_unload;
    models.user = s;
    for (size_t i = 0; i < s->n; i++) names[i] = s->items[i].name;
    if (s->n == 1 && names[0][0] == '\0') names[0] = s->options.name; /* NULL: from the file */
    s->is_starting = true;
    int rc = rp_server_ready_models(s->server, &models, &err);
    return rc == RP_OK ? CLI_OK : cli_fail_library(&err);
}

/* The folder of the stores' folders. The engines warn if it cannot be used. */
static void make_store_folder(const serve_models *s) {
    if (s->n > 1 && s->options.engine.store_dir != NULL && !s->options.engine.store_read_only)
        (void)mkdir(s->options.engine.store_dir, S_IRWXU);
}

int serve_models_ready(serve_models *s, rp_server *server) {
    rp_model *models[RP_SERVER_MAX_MODELS] = {NULL};
    rp_model_info infos[RP_SERVER_MAX_MODELS];
    s->server = server;
    rp_server_join(server, &s->options.engine);
    make_store_folder(s);
    int status = s->n > 1 ? models_describe(s, models, infos) : CLI_OK;
    if (status == CLI_OK) status = models_start(s, s->n > 1 ? infos : NULL);
    for (size_t i = 0; i < s->n; i++) rp_model_close(models[i]);
    return status;
}

void serve_models_visit(serve_models *s, void (*visit)(void *user, rp_engine *engine), void *user) {
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n; i++)
        if (s->items[i].loaded.engine != NULL) visit(user, s->items[i].loaded.engine);
    pthread_mutex_unlock(&s->lock);
}

void serve_models_free(serve_models *s) {
    if (s == NULL) return;
    pthread_mutex_destroy(&s->lock);
    for (size_t i = 0; i < s->n; i++) free(s->items[i].path);
    free(s->draft_path);
    free(s);
}
