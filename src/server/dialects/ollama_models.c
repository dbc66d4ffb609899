/* SPDX-License-Identifier: Apache-2.0 */
/* ollama_models.c: the routes of Ollama that do not generate: models, version, and those that change models, which this server refuses. Owns
 * nothing. Runs on workers; the version on I/O threads. */
#define _POSIX_C_SOURCE 200809L /* gmtime_r, clock_gettime */

#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "server/dialects/ollama.h"
#include "server/handlers.h"
#include "server/server_internal.h"

/* The release of Ollama whose API this is: clients compare it with what they need (codex --oss: 0.13.4). */
#define OLLAMA_VERSION "0.14.0"
#define NEVER "9999-12-31T23:59:59Z" /* when the model is unloaded */

static void write_time(int64_t seconds, long nanoseconds, char text[OLLAMA_TIME_BYTES]) {
    time_t at = (time_t)seconds;
    struct tm utc;
    size_t n = gmtime_r(&at, &utc) ? strftime(text, OLLAMA_TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &utc) : 0;
    snprintf(text + n, OLLAMA_TIME_BYTES - n, ".%06ldZ", nanoseconds / 1000);
}

void ollama_write_time(char text[OLLAMA_TIME_BYTES]) {
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_REALTIME, &now);
    write_time(now.tv_sec, now.tv_nsec, text);
}

json_t *ollama_model_name(const char *name) { return strchr(name, ':') ? json_string(name) : json_sprintf("%s:latest", name); }

/* ---- a model ---- */

#define DIGEST_BYTES (2 * BASE_KEY_BYTES + 1)

/* The fingerprint; until it is computed, a hash of the description: clients need something to compare and to cut. */
static void write_digest(const rp_server *s, char out[DIGEST_BYTES]) {
    base_hash h;
    base_key key;
    if (s->info.fingerprint[0]) {
        snprintf(out, DIGEST_BYTES, "%s", s->info.fingerprint);
        return;
    }
    base_hash_init(&h, "reprise ollama digest");
    base_hash_bytes(&h, s->info.architecture, strlen(s->info.architecture));
    base_hash_bytes(&h, s->info.weights, strlen(s->info.weights));
    base_hash_bytes(&h, &s->info.parameters, sizeof(s->info.parameters));
    base_hash_bytes(&h, &s->info.weight_bytes, sizeof(s->info.weight_bytes));
    base_hash_final(&h, &key);
    base_key_hex(&key, out, DIGEST_BYTES - 1);
}

/* "8.0B", "2.2M" */
static json_t *parameter_size(uint64_t n) {
    char text[32];
    if (n >= 1000000000) snprintf(text, sizeof(text), "%.1fB", (double)n / 1e9);
    else snprintf(text, sizeof(text), "%.2fM", (double)n / 1e6);
    return json_string(text);
}

static json_t *details_of(const rp_model_info *i) {
    return json_pack("{s:s, s:s, s:s, s:[s], s:o, s:s}", "parent_model", "", "format", "gguf", "family", i->architecture, "families", i->architecture,
                     "parameter_size", parameter_size(i->parameters), "quantization_level", i->weights);
}

static json_t *model_of(const rp_server *s, const char *name) {
    char digest[DIGEST_BYTES], since[OLLAMA_TIME_BYTES];
    write_digest(s, digest);
    write_time(s->created, 0, since);
    return json_pack("{s:o, s:o, s:s, s:I, s:s, s:o}", "name", ollama_model_name(name), "model", ollama_model_name(name), "modified_at", since,
                     "size",
                     (json_int_t)s->info.weight_bytes, "digest", digest, "details", details_of(&s->info));
}

static json_t *running_model_of(const rp_server *s, const char *name) {
    rp_engine_info e = {.struct_size = sizeof(e)};
    json_t *all = model_of(s, name), *more;
    rp_engine_describe(s->engine, &e);
    more = json_pack("{s:s, s:i, s:i}", "expires_at", NEVER, "size_vram", 0, "context_length", (int)e.n_ctx);
    int failed = !all || !more || json_object_update(all, more);
    json_decref(more);
    if (!failed) return all;
    json_decref(all);
    return NULL;
}

/* The model under its first n names. */
static void reply_models(server_request *x, int32_t n_aliases, json_t *(*describe)(const rp_server *s, const char *name)) {
    const rp_server *s = x->server;
    json_t *list = json_array();
    int failed = !list;
    for (int32_t i = -1; i < n_aliases && !failed; i++) failed = json_array_append_new(list, describe(s, i < 0 ? s->model_name : s->aliases[i]));
    if (!failed) server_request_reply_json(x, 200, json_pack("{s:o}", "models", list));
    else {
        json_decref(list);
        server_fail_memory(&x->problem);
        server_request_reply_problem(x);
    }
}

void handle_ollama_tags(server_request *x) { reply_models(x, x->server->options.n_aliases, model_of); }

void handle_ollama_ps(server_request *x) { reply_models(x, 0, running_model_of); }

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
static json_t *keys_of(const rp_server *s) {
    const rp_model_info *i = &s->info;
    const char *a = i->architecture;
    json_t *all = json_pack("{s:s, s:o, s:I}", "general.architecture", a, "general.name", server_json_text(i->name, strlen(i->name)),
                            "general.parameter_count",
                            (json_int_t)i->parameters);
    if (all && !set_number(all, a, "context_length", i->n_ctx_train) && !set_number(all, a, "block_count", i->n_layers) &&
        !set_number(all, a, "embedding_length", i->n_embd) && !set_number(all, a, "feed_forward_length", i->n_ff) &&
        !set_number(all, a, "attention.head_count", i->n_heads) && !set_number(all, a, "attention.head_count_kv", i->n_kv_heads) &&
        !set_number(all, a, "vocab_size", i->n_vocab))
        return all;
    json_decref(all);
    return NULL;
}

static json_t *show_of(const rp_server *s) {
    char since[OLLAMA_TIME_BYTES];
    write_time(s->created, 0, since);
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:[s, s], s:s}", "modelfile", "", "parameters", "", "template", s->info.chat_format,
                     "license", "",
                     "details", details_of(&s->info), "model_info", keys_of(s), "capabilities", "completion", "tools", "modified_at", since);
}

/* The name in the field `model`, or `name`, as older clients have it; owned by *root. NULL: a problem is set. */
static const char *asked_model(server_request *x, json_t **root) {
    const char *name = NULL;
    *root = server_json_parse(x->body.data, x->body.len, &x->problem);
    server_fields f = {*root, &x->problem, ""};
    if (!*root) return NULL;
    server_field_text(&f, "name", &name);
    server_field_text(&f, "model", &name);
    if (!name || !name[0]) server_fail(&x->problem, SERVER_INVALID, "model", "'model' is missing: give a name of GET /api/tags");
    return x->problem.kind ? NULL : name;
}

void handle_ollama_show(server_request *x) {
    json_t *root = NULL;
    const char *name = asked_model(x, &root);
    if (name && !server_has_model(x->server, name)) server_fail(&x->problem, SERVER_MODEL, "model", "model '%.80s' not found", name);
    json_decref(root);
    if (x->problem.kind) server_request_reply_problem(x);
    else server_request_reply_json(x, 200, show_of(x->server));
}

/* ---- what this server does not do ---- */

/* A model that is here is pulled already: clients pull before they ask. */
void handle_ollama_pull(server_request *x) {
    json_t *root = NULL;
    const char *name = asked_model(x, &root);
    if (name && !server_has_model(x->server, name))
        server_fail(&x->problem, SERVER_NOT_IMPLEMENTED, "model",
                    "model '%.80s' is not here, and this server pulls none: start it with another model file", name);
    json_decref(root);
    if (x->problem.kind) server_request_reply_problem(x);
    else server_request_reply_json(x, 200, json_pack("{s:s}", "status", "success"));
}

void handle_ollama_change(server_request *x) {
    server_fail(&x->problem, SERVER_NOT_IMPLEMENTED, NULL, "%s is not supported: this server serves the model file that it was started with",
                x->route->path);
    server_request_reply_problem(x);
}
