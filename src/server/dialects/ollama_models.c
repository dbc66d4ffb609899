/* SPDX-License-Identifier: Apache-2.0 */
/* ollama_models.c: the routes of Ollama that do not generate: models, version, and those that change models, which this
 * server refuses. Owns nothing. Runs on workers; the version on I/O threads. */
#define _POSIX_C_SOURCE 200809L /* gmtime_r, clock_gettime */

#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/hash.h"
#include "server/dialects/dialect_handlers.h"
#include "server/dialects/ollama.h"
#include "server/http/request_relay.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"

/* The release of Ollama whose API this is: clients compare it with what they need (codex --oss: 0.13.4). */
#define OLLAMA_VERSION "0.14.0"
#define NEVER "9999-12-31T23:59:59Z" /* when the model is unloaded */

static void write_time(int64_t seconds, long nanoseconds, char text[OLLAMA_TIME_BYTES]) {
    time_t at = (time_t)seconds;
    struct tm utc;
    size_t n = gmtime_r(&at, &utc) ? strftime(text, OLLAMA_TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &utc) : 0;
    snprintf(text + n, OLLAMA_TIME_BYTES - n, ".%06ldZ", nanoseconds / 1000);
}

void ollama_write_time(const server_request *x, char text[OLLAMA_TIME_BYTES]) {
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_REALTIME, &now);
    if (x->relay && x->relay->has_route) now = (struct timespec){(time_t)server_request_created(x), 0};
    write_time(now.tv_sec, now.tv_nsec, text);
}

json_t *ollama_model_name(const char *name) {
    return strchr(name, ':') ? json_string(name) : json_sprintf("%s:latest", name);
}

/* ---- a model ---- */

#define DIGEST_BYTES (2 * BASE_KEY_BYTES + 1)

/* The fingerprint; until it is computed, a hash of the description: clients need something to compare and to cut. */
static void write_digest(const rp_model_info *i, char out[DIGEST_BYTES]) {
    base_hash h;
    base_key key;
    if (i->fingerprint[0]) {
        snprintf(out, DIGEST_BYTES, "%s", i->fingerprint);
        return;
    }
    base_hash_init(&h, "reprise ollama digest");
    base_hash_bytes(&h, i->architecture, strlen(i->architecture));
    base_hash_bytes(&h, i->weights, strlen(i->weights));
    base_hash_bytes(&h, &i->parameters, sizeof(i->parameters));
    base_hash_bytes(&h, &i->weight_bytes, sizeof(i->weight_bytes));
    base_hash_final(&h, &key);
    base_key_hex(&key, out, DIGEST_BYTES - 1);
}

static json_t *details_of(const rp_model_info *i) {
    char size[32]; /* "8.0B", "2.2M" */
    if (i->parameters >= 1000000000) snprintf(size, sizeof(size), "%.1fB", (double)i->parameters / 1e9);
    else snprintf(size, sizeof(size), "%.2fM", (double)i->parameters / 1e6);
    return json_pack("{s:s, s:s, s:s, s:[s], s:s, s:s}", "parent_model", "", "format", "gguf", "family",
                     i->architecture, "families", i->architecture, "parameter_size", size,
                     "quantization_level", i->weights);
}

static json_t *model_of(const server_model *m, const char *name, int64_t created) {
    char digest[DIGEST_BYTES], since[OLLAMA_TIME_BYTES];
    write_digest(&m->info, digest);
    write_time(created, 0, since);
    return json_pack("{s:o, s:o, s:s, s:I, s:s, s:o}", "name", ollama_model_name(name), "model",
                     ollama_model_name(name), "modified_at", since, "size", (json_int_t)m->info.weight_bytes, "digest",
                     digest, "details", details_of(&m->info));
}

static json_t *running_model_of(const server_model *m, const char *name, int64_t created) {
    BASE_ASSERT(m->state == MODEL_LOADED);
    rp_engine_info e = {.struct_size = sizeof(e)};
    json_t *all = model_of(m, name, created), *more;
    rp_engine_describe(m->engine, &e);
    more = json_pack("{s:s, s:i, s:i}", "expires_at", NEVER, "size_vram", 0, "context_length", (int)e.n_ctx);
    int failed = !all || !more || json_object_update(all, more);
    json_decref(more);
    if (!failed) return all;
    json_decref(all);
    return NULL;
}

/* A list of models in the making, under the pool's lock. */
typedef struct model_list {
    const char *name; /* of the next one */
    int64_t created;
    bool running; /* loaded models only, under their own names */
    json_t *models;
    int failed;
} model_list;

static void add_model(server_model *m, void *user) {
    model_list *l = user;
    if (l->running && (m->state != MODEL_LOADED || strcmp(l->name, m->name) != 0)) return;
    l->failed |= json_array_append_new(l->models, (l->running ? running_model_of : model_of)(m, l->name, l->created));
}

static void reply_models(server_request *x, bool running) {
    server_model *m;
    model_list l = {.created = x->server->created, .running = running, .models = json_array()};
    for (int32_t i = 0; l.models && (l.name = model_pool_name(x->server->models, i, &m)); i++)
        model_pool_look(x->server->models, m, add_model, &l);
    if (l.models && !l.failed) server_request_reply_json(x, 200, json_pack("{s:o}", "models", l.models));
    else {
        json_decref(l.models);
        server_fail_memory(&x->problem);
        server_request_reply_problem(x);
    }
}

void handle_ollama_tags(server_request *x) { reply_models(x, false); }

void handle_ollama_ps(server_request *x) { reply_models(x, true); }

void handle_ollama_version(server_request *x) {
    server_request_reply_json(x, 200, json_pack("{s:s, s:s}", "version", OLLAMA_VERSION, "reprise", rp_version()));
}

/* ---- show ---- */

static int set_number(json_t *object, const char *architecture, const char *key, int64_t value) {
    char full[128];
    snprintf(full, sizeof(full), "%.60s.%s", architecture, key);
    return json_object_set_new(object, full, json_integer((json_int_t)value));
}

/* The keys of the model's file that clients read, under the names that they have in it. */
static json_t *keys_of(const rp_model_info *i) {
    const char *a = i->architecture;
    json_t *all =
        json_pack("{s:s, s:o, s:I}", "general.architecture", a, "general.name",
                  base_json_string(i->name, strlen(i->name)), "general.parameter_count", (json_int_t)i->parameters);
    if (all && !set_number(all, a, "context_length", i->n_ctx_train) &&
        !set_number(all, a, "block_count", i->n_layers) && !set_number(all, a, "embedding_length", i->n_embd) &&
        !set_number(all, a, "feed_forward_length", i->n_ff) &&
        !set_number(all, a, "attention.head_count", i->n_heads) &&
        !set_number(all, a, "attention.head_count_kv", i->n_kv_heads) && !set_number(all, a, "vocab_size", i->n_vocab))
        return all;
    json_decref(all);
    return NULL;
}

/* Under the pool's lock. */
typedef struct shown_model {
    int64_t created;
    json_t *out;
} shown_model;

static void show_model(server_model *m, void *user) {
    shown_model *shown = user;
    const rp_model_info *i = &m->info;
    char since[OLLAMA_TIME_BYTES];
    write_time(shown->created, 0, since);
    shown->out = json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:[s, s], s:s}", "modelfile", "", "parameters", "",
                           "template", i->chat_format, "license", "", "details", details_of(i), "model_info",
                           keys_of(i), "capabilities", "completion", "tools", "modified_at", since);
}

/* The name in the field `model`, or `name`, as older clients have it; owned by *root. NULL: a problem is set. */
static const char *asked_model(server_request *x, json_t **root) {
    const char *name = NULL;
    *root = server_request_json(x);
    server_fields f = {*root, &x->problem, ""};
    if (!*root) return NULL;
    server_field_text(&f, "name", &name);
    server_field_text(&f, "model", &name);
    if (!name || !name[0])
        server_fail(&x->problem, SERVER_INVALID, "model", "'model' is missing: give a name of GET /api/tags");
    return x->problem.kind ? NULL : name;
}

void handle_ollama_show(server_request *x) {
    json_t *root = NULL;
    shown_model shown = {x->server->created, NULL};
    const char *name = asked_model(x, &root);
    server_model *m = name ? model_pool_find(x->server->models, name) : NULL;
    if (name && !m) server_fail(&x->problem, SERVER_MODEL, "model", "model '%.80s' not found", name);
    json_decref(root);
    if (m) model_pool_look(x->server->models, m, show_model, &shown);
    if (x->problem.kind) server_request_reply_problem(x);
    else server_request_reply_json(x, 200, shown.out);
}

/* ---- what this server does not do ---- */

/* A model that is here is pulled already: clients pull before they ask. */
void handle_ollama_pull(server_request *x) {
    json_t *root = NULL;
    const char *name = asked_model(x, &root);
    if (name && !model_pool_find(x->server->models, name))
        server_fail(&x->problem, SERVER_NOT_IMPLEMENTED, "model",
                    "model '%.80s' is not here, and this server pulls none: start it with another model file", name);
    json_decref(root);
    if (x->problem.kind) server_request_reply_problem(x);
    else server_request_reply_json(x, 200, json_pack("{s:s}", "status", "success"));
}

void handle_ollama_change(server_request *x) {
    server_fail(&x->problem, SERVER_NOT_IMPLEMENTED, NULL,
                "%s is not supported: this server serves the model file that it was started with", x->route->path);
    server_request_reply_problem(x);
}
