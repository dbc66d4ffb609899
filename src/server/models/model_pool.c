/* SPDX-License-Identifier: Apache-2.0 */
/* model_pool.c: see model_pool.h. Owns the models that it has loaded, and the loader's thread. */
#include "server/models/model_pool.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/threads.h"
#include "server/core/fields.h"
#include "server/http/server_internal.h"
#include "reprise_adapter.h"

typedef struct pool_alias {
    char *name;
    int32_t model;
} pool_alias;

struct model_pool {
    rp_server *server;
    rp_server_models source; /* load, unload, user; load NULL: the model is borrowed */
    server_model *models;    /* [n] */
    int32_t n;
    pool_alias *aliases; /* [n_aliases] */
    int32_t n_aliases;
    server_adapter *adapters; /* [n_adapters] */
    int32_t n_adapters;
    pthread_mutex_t lock;   /* above the work queue's */
    pthread_cond_t changed; /* a request waits, a model has no users, or the pool stops */
    bool has_lock, has_loader, stops;
    pthread_t loader;
};

/* ---- names ---- */

static bool is_name(const char *own, const char *name, size_t n) {
    return strlen(own) == n && memcmp(own, name, n) == 0;
}

static server_adapter *find_adapter(model_pool *p, const char *name, size_t n) {
    for (int32_t i = 0; i < p->n_adapters; i++)
        if (is_name(p->adapters[i].name, name, n)) return &p->adapters[i];
    return NULL;
}

static server_model *find_exact(model_pool *p, const char *name, size_t n) {
    for (int32_t i = 0; i < p->n; i++)
        if (is_name(p->models[i].name, name, n)) return &p->models[i];
    for (int32_t i = 0; i < p->n_aliases; i++)
        if (is_name(p->aliases[i].name, name, n)) return &p->models[p->aliases[i].model];
    const server_adapter *a = find_adapter(p, name, n);
    return a ? &p->models[a->model] : is_name("default", name, n) ? &p->models[0]
                                                                  : NULL;
}

/* The length of a name without Ollama's suffix; its whole length, if it has none. */
static size_t length_before_suffix(const char *name) {
    static const char latest[] = ":latest";
    const size_t n = strlen(name), suffix = sizeof(latest) - 1;
    return n <= suffix || strcmp(name + n - suffix, latest) != 0 ? n : n - suffix;
}

server_model *model_pool_find(model_pool *p, const char *name) {
    server_model *m = find_exact(p, name, strlen(name));
    return m ? m : find_exact(p, name, length_before_suffix(name));
}

server_adapter *model_pool_adapter(model_pool *p, const char *name) {
    server_adapter *a = find_adapter(p, name, strlen(name));
    return a ? a : find_adapter(p, name, length_before_suffix(name));
}

server_adapter *model_pool_adapter_of(model_pool *p, const server_model *m, int32_t i) {
    BASE_ASSERT(i >= 0);
    for (int32_t k = 0; k < p->n_adapters; k++)
        if (&p->models[p->adapters[k].model] == m && i-- == 0) return &p->adapters[k];
    return NULL;
}

int32_t model_pool_count(const model_pool *p) { return p->n; }

const char *model_pool_name(model_pool *p, int32_t i, server_model **model) {
    const int32_t alias = i - p->n, adapter = alias - p->n_aliases;
    if (i < 0 || adapter >= p->n_adapters) return NULL;
    *model = &p->models[alias < 0 ? i : adapter < 0 ? p->aliases[alias].model
                                                    : p->adapters[adapter].model];
    return alias < 0 ? p->models[i].name : adapter < 0 ? p->aliases[alias].name
                                                       : p->adapters[adapter].name;
}

int model_pool_fail(model_pool *p, server_problem *problem, const char *name) {
    char known[400] = "";
    server_model *m;
    const char *one;
    for (int32_t i = 0; (one = model_pool_name(p, i, &m)) != NULL; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s'%s'", i > 0 ? ", " : "", one);
    }
    return server_fail(problem, SERVER_MODEL, "model", "unknown model '%.80s': this server has %s", name, known);
}

/* "NAME": of the first model; "NAME=MODEL". */
static int add_alias(model_pool *p, const char *text, rp_error *err) {
    const char *equals = strchr(text, '=');
    size_t n = equals ? (size_t)(equals - text) : strlen(text);
    server_model *m = equals ? model_pool_find(p, equals + 1) : &p->models[0];
    if (n == 0 || n >= SERVER_MODEL_NAME_BYTES)
        return base_fail(err, RP_ERR_INVALID, "'%.80s' is no name of a model: give 1 to %d bytes", text,
                         SERVER_MODEL_NAME_BYTES - 1);
    if (!m) return base_fail(err, RP_ERR_INVALID, "alias '%.80s': there is no model '%.80s'", text, equals + 1);
    if (find_exact(p, text, n) && !is_name("default", text, n))
        return base_fail(err, RP_ERR_INVALID, "alias '%.80s': the name is in use: give another one", text);
    BASE_ASSERT(p->n_aliases < p->server->options.n_aliases); /* the array's size */
    pool_alias *a = &p->aliases[p->n_aliases];
    if (!(a->name = base_calloc(n + 1, 1))) return base_fail_memory(err, n, "a name");
    memcpy(a->name, text, n);
    a->model = (int32_t)(m - p->models);
    p->n_aliases++;
    return RP_OK;
}

static int add_aliases(model_pool *p, rp_error *err) {
    const rp_server_options *o = &p->server->options;
    int rc = RP_OK;
    if (o->n_aliases > 0 && !(p->aliases = base_calloc((size_t)o->n_aliases, sizeof(*p->aliases))))
        return base_fail_memory(err, 64, "names");
    for (int32_t i = 0; i < o->n_aliases && !rc; i++) rc = add_alias(p, p->server->aliases[i], err);
    return rc;
}

/* Names become labels of metrics as they are. */
static bool is_plain(const char *name) {
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || strchr("=\"\\\x7f", *c)) return false;
    return true;
}

/* "NAME=FILE", of the first model, or "NAME@MODEL=FILE". */
static int add_adapter(model_pool *p, const char *text, rp_error *err) {
    BASE_ASSERT(p->n_adapters < p->server->options.n_adapters); /* the array's size */
    server_adapter *a = &p->adapters[p->n_adapters];
    char model[SERVER_MODEL_NAME_BYTES] = "";
    const char *equals = strchr(text, '='), *at = equals ? memchr(text, '@', (size_t)(equals - text)) : NULL;
    const size_t n = equals ? (size_t)((at ? at : equals) - text) : 0, n_model = at ? (size_t)(equals - at - 1) : 0;
    if (n == 0 || n >= SERVER_MODEL_NAME_BYTES || n_model >= SERVER_MODEL_NAME_BYTES || !equals[1])
        return base_fail(err, RP_ERR_INVALID, "adapter '%.80s': give NAME=FILE, or NAME@MODEL=FILE", text);
    memcpy(a->name, text, n);
    if (at) memcpy(model, at + 1, n_model);
    const server_model *m = at ? model_pool_find(p, model) : &p->models[0];
    if (!m) return base_fail(err, RP_ERR_INVALID, "adapter '%.80s': there is no model '%.80s'", a->name, model);
    if (!is_plain(a->name) || find_exact(p, a->name, n))
        return base_fail(err, RP_ERR_INVALID,
                         "adapter '%.80s': the name is in use, or has control characters: give another one", a->name);
    a->path = equals + 1;
    a->model = (int32_t)(m - p->models);
    p->n_adapters++;
    return RP_OK;
}

static int set_name(model_pool *p, int32_t i, const char *name, rp_error *err) {
    BASE_ASSERT(i >= 0 && i < p->n && !p->models[i].name[0]);
    if (!name || !name[0] || strlen(name) >= SERVER_MODEL_NAME_BYTES || !is_plain(name))
        return base_fail(err, RP_ERR_INVALID,
                         "'%.80s' is no name of a model: give 1 to %d bytes without = \" \\ and control characters",
                         name ? name : "", SERVER_MODEL_NAME_BYTES - 1);
    if (model_pool_find(p, name) && strcmp(name, "default") != 0)
        return base_fail(err, RP_ERR_INVALID, "two models have the name '%.80s': give each its own", name);
    snprintf(p->models[i].name, SERVER_MODEL_NAME_BYTES, "%s", name);
    return RP_OK;
}

/* ---- descriptions ---- */

/* Offsets of the texts that belong to the model: the pool has copies, which outlive it. Other texts are static. */
#define TEXT(field) offsetof(rp_model_info, field)
static const size_t info_texts[] = {TEXT(name), TEXT(architecture), TEXT(weights),
                                    TEXT(chat_format), TEXT(fingerprint), TEXT(chat_template)};
#undef TEXT

static const char **info_text(rp_model_info *info, size_t i) {
    return (const char **)(void *)((char *)info + info_texts[i]);
}

static void info_free(rp_model_info *info) {
    for (size_t i = 0; i < BASE_ARRAY_LEN(info_texts); i++) base_free((void *)(uintptr_t)*info_text(info, i));
    *info = (rp_model_info){.struct_size = sizeof(*info)};
}

static int info_copy(rp_model_info *out, const rp_model_info *in, rp_error *err) {
    bool failed = false;
    *out = *in;
    for (size_t i = 0; i < BASE_ARRAY_LEN(info_texts); i++) {
        const char **text = info_text(out, i), *own = *text;
        *text = own ? base_strdup(own) : NULL;
        failed |= own && !*text;
    }
    if (!failed) return RP_OK;
    info_free(out);
    return base_fail_memory(err, 64, "a model's description");
}

/* ---- loading ---- */

static void unload(model_pool *p, server_model *m) {
    server_adapter *a;
    rp_store_close(m->store);
    for (int32_t i = 0; (a = model_pool_adapter_of(p, m, i)); i++) {
        rp_adapter_close(a->adapter);
        a->adapter = NULL;
    }
    if (p->source.unload && m->engine) p->source.unload(p->source.user, (int32_t)(m - p->models), m->model, m->engine);
    m->store = NULL;
    m->engine = NULL;
    m->model = NULL;
}

/* What a loaded model needs before its first request. info: receives copies. */
static int prepare(model_pool *p, server_model *m, rp_model_info *info, rp_error *err) {
    BASE_ASSERT(!m->store);
    rp_model_info now = {.struct_size = sizeof(now)};
    server_adapter *a;
    int rc = api_keys_set_quotas(p->server->keys, m->engine, err);
    if (!rc) rc = rp_store_attach(&m->store, m->engine, err);
    for (int32_t i = 0; !rc && (a = model_pool_adapter_of(p, m, i)); i++)
        rc = rp_adapter_open(&a->adapter, m->model, a->path, err);
    if (rc) return rc;
    rp_model_describe(m->model, &now);
    m->convention = model_convention_of(m->model);
    rc = info_copy(info, &now, err);
    return rc ? rc : schemas_restore(p->server, m, err);
}

static int load(model_pool *p, server_model *m, rp_model_info *info, rp_error *err) {
    int rc =
        p->source.load ? p->source.load(p->source.user, (int32_t)(m - p->models), &m->model, &m->engine, err) : RP_OK;
    if (!rc && (rc = prepare(p, m, info, err))) {
        info_free(info);
        unload(p, m);
    }
    return rc;
}

/* Under the lock: the model that leaves for another one; NULL: none can. */
static server_model *find_victim(model_pool *p) {
    server_model *best = NULL;
    for (int32_t i = 0; i < p->n; i++) {
        server_model *m = &p->models[i];
        if (m->state != MODEL_LOADED) continue;
        bool better =
            best && ((m->n_users == 0) != (best->n_users == 0) ? m->n_users == 0 : m->used_us < best->used_us);
        if (!best || better) best = m;
    }
    return best;
}

/* Under the lock, which it releases meanwhile. */
static void make_leave(model_pool *p, server_model *m) {
    BASE_ASSERT(m->state == MODEL_LOADED);
    m->state = MODEL_LEAVING;
    while (m->n_users > 0 && !p->stops) pthread_cond_wait(&p->changed, &p->lock);
    if (m->n_users > 0) {
        m->state = MODEL_LOADED;
        return;
    }
    BASE_ASSERT(m->n_users == 0); /* invariant 9 */
    pthread_mutex_unlock(&p->lock);
    unload(p, m);
    pthread_mutex_lock(&p->lock);
    m->state = MODEL_UNLOADED;
    m->n_unloads++;
}

/* A model that cannot be loaded is a fault of the server, whatever is wrong with its files: their names and the reason
 * are the operator's (log). */
static void fail_load(server_request *x, const server_model *m, const rp_error *failure) {
    if (failure->code == RP_ERR_MEMORY || failure->code == RP_ERR_BUDGET || failure->code == RP_ERR_BUSY ||
        failure->code == RP_ERR_CANCELLED)
        server_fail_library(&x->problem, failure);
    else
        server_fail(&x->problem, SERVER_INTERNAL, "model",
                    "model '%.80s' cannot be loaded: the server's log has the reason", m->name);
}

/* Under the lock: the requests that wait for a model are queued, as its users or with a problem. */
static void queue_waiting(model_pool *p, server_model *m, const rp_error *failure) {
    BASE_ASSERT(failure || m->state == MODEL_LOADED);
    while (m->first) {
        server_request *x = m->first;
        BASE_ASSERT(m->n_waiting > 0 && !x->model);
        m->first = x->next_waiting;
        m->n_waiting--;
        if (failure) fail_load(x, m, failure);
        else {
            x->model = m;
            m->n_users++;
        }
        work_queue_put(p->server->work, &x->work);
    }
    BASE_ASSERT(m->n_waiting == 0);
    m->last = NULL;
}

/* Under the lock, which it releases meanwhile. */
static int load_or_fail(model_pool *p, server_model *m, rp_error *err) {
    rp_model_info info = {.struct_size = sizeof(info)};
    uint64_t begin_us = base_clock_us();
    int rc;
    BASE_ASSERT(m->state == MODEL_UNLOADED && m->n_users == 0);
    m->state = MODEL_LOADING;
    for (;;) {
        pthread_mutex_unlock(&p->lock);
        rc = load(p, m, &info, err);
        pthread_mutex_lock(&p->lock);
        server_model *victim = rc == RP_ERR_BUDGET && !p->stops ? find_victim(p) : NULL;
        if (!victim) break;
        make_leave(p, victim);
    }
    m->state = rc ? MODEL_UNLOADED : MODEL_LOADED;
    m->used_us = base_clock_us();
    if (rc) return rc;
    info_free(&m->info);
    m->info = info;
    m->n_loads++;
    m->load_us += m->used_us - begin_us;
    return RP_OK;
}

/* Under the lock: the model whose first request has waited longest; NULL: none waits. */
static server_model *find_wanted(model_pool *p) {
    server_model *best = NULL;
    for (int32_t i = 0; i < p->n; i++) {
        server_model *m = &p->models[i];
        if (m->first && m->state == MODEL_UNLOADED && (!best || m->wanted_us < best->wanted_us)) best = m;
    }
    return best;
}

static void *loader_run(void *user) {
    model_pool *p = user;
    pthread_mutex_lock(&p->lock);
    while (!p->stops) {
        server_model *m = find_wanted(p);
        if (!m) {
            pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        rp_error err;
        int rc = load_or_fail(p, m, &err);
        if (rc) base_log(BASE_LOG_ERROR, "server: model '%s' cannot be loaded: %s", m->name, err.message);
        queue_waiting(p, m, rc ? &err : NULL);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- users ---- */

/* The value of a JSON body's field `model`, or of `name`, which older clients of Ollama send. A body of XML has none:
 * then it is in the query. NULL: none, or a problem. */
static const char *name_in_body(server_request *x) {
    if (request_is_document(x)) return server_request_query(x, "model");
    if (!x->root) x->root = server_json_parse(x->body.data, x->body.len, &x->problem);
    const char *name = json_string_value(json_object_get(x->root, "model"));
    if (!name) name = json_string_value(json_object_get(x->root, "name"));
    return name && strncmp(name, "models/", 7) == 0 ? name + 7 : name; /* Gemini's */
}

static server_model *find_asked(model_pool *p, server_request *x) {
    char buffer[SERVER_NAME_BYTES], *verb;
    const char *name = NULL;
    if (p->n == 1) return &p->models[0];
    switch (x->route->model) {
    case SERVER_MODEL_IN_BODY: name = name_in_body(x); break;
    case SERVER_MODEL_IN_PATH: /* in Gemini's paths, a verb follows the name */
        snprintf(buffer, sizeof(buffer), "%s", x->name);
        if ((verb = strrchr(buffer, ':'))) *verb = '\0';
        name = buffer;
        break;
    default: name = server_request_query(x, "model"); break;
    }
    server_model *m = x->problem.kind ? NULL : name ? model_pool_find(p, name)
                                                    : &p->models[0];
    if (!m && !x->problem.kind) model_pool_fail(p, &x->problem, name);
    return m;
}

/* Under the lock. */
static void wait_for(server_request *x, server_model *m) {
    BASE_ASSERT(!x->model && m->state != MODEL_LOADED && !m->first == !m->last);
    pthread_mutex_lock(&x->lock);
    server_request_enter(x, SERVER_QUEUED);
    pthread_mutex_unlock(&x->lock);
    x->next_waiting = NULL;
    if (m->last) m->last->next_waiting = x;
    else {
        m->first = x;
        m->wanted_us = base_clock_us();
    }
    m->last = x;
    m->n_waiting++;
}

/* Under the lock. false: the request waits, queued by model_pool_end_turn. */
static bool take_turn(model_pool *p, server_request *x, server_model *m) {
    BASE_ASSERT(x->model == m && (!x->turn || x->turn == m));
    if (x->turn) return true;
    if (m->n_turns < (p->n > 1 ? SERVER_MAX_TURNS : SERVER_WORKERS - SERVER_FREE_WORKERS)) {
        BASE_ASSERT(!m->first_turn); /* nobody waits while there is a turn */
        m->n_turns++;
        x->turn = m;
        return true;
    }
    pthread_mutex_lock(&x->lock);
    x->stage = SERVER_QUEUED;
    pthread_mutex_unlock(&x->lock);
    x->next_waiting = NULL;
    if (m->last_turn) m->last_turn->next_waiting = x;
    else m->first_turn = x;
    m->last_turn = x;
    return false;
}

void model_pool_end_turn(model_pool *p, server_model *m) {
    pthread_mutex_lock(&p->lock);
    BASE_ASSERT(m->n_turns > 0);
    server_request *x = m->first_turn;
    if (x) {
        if (!(m->first_turn = x->next_waiting)) m->last_turn = NULL;
        BASE_ASSERT(x->model == m && !x->turn);
        x->turn = m;
        work_queue_put(p->server->work, &x->work);
    } else m->n_turns--;
    pthread_mutex_unlock(&p->lock);
}

/* A failed load has left a problem. */
bool model_pool_enter(server_request *x) {
    model_pool *p = x->server->models;
    server_model *m = NULL;
    if (!x->problem.kind && x->route->model == SERVER_NO_MODEL) return true;
    if (!x->problem.kind) m = x->model ? x->model : find_asked(p, x);
    if (!m) {
        server_request_reply_problem(x);
        return false;
    }
    pthread_mutex_lock(&p->lock);
    const bool is_ready = x->model || m->state == MODEL_LOADED, stops = p->stops;
    bool has_turn = false;
    if (is_ready && !x->model) {
        x->model = m;
        m->n_users++;
        m->used_us = base_clock_us();
    }
    if (is_ready) has_turn = take_turn(p, x, m);
    else if (!stops) {
        wait_for(x, m);
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    if (!is_ready && stops) {
        server_fail(&x->problem, SERVER_LOADING, NULL, "the server is shutting down: use another one");
        server_request_reply_problem(x);
    }
    return has_turn;
}

/* Under the lock. */
static void drop_user(model_pool *p, server_model *m) {
    BASE_ASSERT(m->n_users > 0); /* invariant 9 */
    if (--m->n_users == 0) pthread_cond_broadcast(&p->changed);
}

void model_pool_leave(server_request *x) {
    if (x->model && !x->has_parted) model_pool_part(x);
    x->model = NULL;
}

void model_pool_part(server_request *x) {
    model_pool *p = x->server->models;
    BASE_ASSERT(!x->has_parted);
    pthread_mutex_lock(&p->lock);
    x->model->used_us = base_clock_us();
    drop_user(p, x->model);
    pthread_mutex_unlock(&p->lock);
    x->has_parted = true;
}

int model_pool_reload(model_pool *p, rp_error *err) {
    server_model *m = &p->models[0];
    BASE_ASSERT(p->n == 1 && !p->has_loader); /* the only model: nobody else loads it */
    rp_error own = {0};
    int rc = RP_OK;
    pthread_mutex_lock(&p->lock);
    if (m->state == MODEL_LOADED) make_leave(p, m);
    if (m->state == MODEL_UNLOADED && !p->stops) {
        rc = load_or_fail(p, m, &own);
        queue_waiting(p, m, rc ? &own : NULL);
    }
    pthread_mutex_unlock(&p->lock);
    if (rc && err) *err = own;
    return rc;
}

int model_pool_visit(model_pool *p, int (*visit)(server_model *m, void *user), void *user) {
    int rc = 0;
    for (int32_t i = 0; i < p->n && !rc; i++) {
        server_model *m = &p->models[i];
        pthread_mutex_lock(&p->lock);
        bool is_loaded = m->state == MODEL_LOADED;
        m->n_users += is_loaded;
        pthread_mutex_unlock(&p->lock);
        if (!is_loaded) continue;
        rc = visit(m, user);
        pthread_mutex_lock(&p->lock);
        drop_user(p, m);
        pthread_mutex_unlock(&p->lock);
    }
    return rc;
}

void model_pool_look(model_pool *p, server_model *m, void (*look)(server_model *m, void *user), void *user) {
    pthread_mutex_lock(&p->lock);
    look(m, user);
    pthread_mutex_unlock(&p->lock);
}

/* ---- life ---- */

/* The folder of a model's uploaded schemas: of several models, a folder of its own. */
static int open_schemas(model_pool *p, server_model *m, rp_error *err) {
    char path[4096];
    const char *dir = p->server->schema_dir;
    pthread_mutex_init(&m->schema_lock, NULL);
    int rc = schema_registry_new(&m->registry, err);
    if (rc || !dir) return rc;
    int n = snprintf(path, sizeof(path), "%s%s%s", dir, p->n > 1 ? "/" : "", p->n > 1 ? m->name : "");
    if (n < 0 || (size_t)n >= sizeof(path))
        return base_fail(err, RP_ERR_INVALID, "the path of the schema folder is too long: '%.80s'", dir);
    if ((rc = base_io_mkdirs(dir, err))) return rc;
    return schema_folder_new(&m->folder, path, err);
}

static int pool_make(model_pool **out, rp_server *server, int32_t n, rp_error *err) {
    model_pool *p = base_calloc(1, sizeof(*p));
    if (!p || !(p->models = base_calloc((size_t)n, sizeof(*p->models)))) {
        base_free(p);
        return base_fail_memory(err, sizeof(*p), "the models");
    }
    p->server = server;
    p->n = n;
    pthread_mutex_init(&p->lock, NULL);
    p->has_lock = base_cond_init(&p->changed);
    *out = p;
    return p->has_lock ? RP_OK : base_fail_memory(err, sizeof(*p), "the models");
}

/* Names are set, except that of a single model which is named by its file. */
static int pool_open(model_pool *p, rp_error *err) {
    const bool is_named = p->models[0].name[0] != '\0';
    const int32_t n_adapters = p->server->options.n_adapters;
    int rc = is_named ? add_aliases(p, err) : RP_OK; /* else they follow its name */
    if (!rc && n_adapters > 0 && !(p->adapters = base_calloc((size_t)n_adapters, sizeof(*p->adapters))))
        rc = base_fail_memory(err, (uint64_t)n_adapters * sizeof(*p->adapters), "adapters");
    for (int32_t i = 0; i < n_adapters && !rc; i++) rc = add_adapter(p, p->server->adapters[i], err);
    for (int32_t i = 0; i < p->n && !rc; i++) rc = open_schemas(p, &p->models[i], err);
    if (rc) return rc;
    pthread_mutex_lock(&p->lock);
    rc = load_or_fail(p, &p->models[0], err);
    pthread_mutex_unlock(&p->lock);
    if (!rc && !is_named) {
        const char *name = p->models[0].info.name;
        const bool is_fit = name[0] && is_plain(name) && strlen(name) < SERVER_MODEL_NAME_BYTES;
        rc = set_name(p, 0, is_fit ? name : "reprise", err);
        if (!rc) rc = add_aliases(p, err);
    }
    if (rc || p->n == 1) return rc;
    int failed = base_thread_start(&p->loader, loader_run, p);
    p->has_loader = failed == 0;
    return failed ? base_fail(err, RP_ERR_IO, "cannot start a thread: %s", strerror(failed)) : RP_OK;
}

static int pool_fill(model_pool *p, const rp_server_models *models, rp_error *err) {
    int rc = RP_OK;
    p->source = *models;
    p->source.names = NULL;
    p->source.infos = NULL;
    for (int32_t i = 0; i < p->n && !rc; i++) {
        p->models[i].info.struct_size = sizeof(p->models[i].info);
        if (p->n > 1 || models->names[i]) rc = set_name(p, i, models->names[i], err);
        if (!rc && models->infos) rc = info_copy(&p->models[i].info, &models->infos[i], err);
    }
    return rc ? rc : pool_open(p, err);
}

int model_pool_new(model_pool **out, rp_server *server, const rp_server_models *models, rp_error *err) {
    rp_server_models own = {0};
    *out = NULL;
    int rc = base_sized_read(&own, sizeof(own), models, "rp_server_models", err);
    if (rc) return rc;
    if (own.n < 1 || own.n > RP_SERVER_MAX_MODELS || !own.names || !own.load || !own.unload)
        return base_fail(err, RP_ERR_INVALID, "rp_server_ready_models: give 1 to %d names, load and unload",
                         RP_SERVER_MAX_MODELS);
    if (!(rc = pool_make(out, server, own.n, err))) rc = pool_fill(*out, &own, err);
    if (!rc) return rc;
    model_pool_free(*out);
    *out = NULL;
    return rc;
}

int model_pool_new_single(model_pool **out, rp_server *server, rp_model *model, rp_engine *engine, rp_error *err) {
    int rc = pool_make(out, server, 1, err);
    if (!rc) {
        server_model *m = &(*out)->models[0];
        m->info.struct_size = sizeof(m->info);
        m->model = model;
        m->engine = engine;
        if (server->model_name[0]) rc = set_name(*out, 0, server->model_name, err);
    }
    if (!rc) rc = pool_open(*out, err);
    if (!rc) return rc;
    model_pool_free(*out);
    *out = NULL;
    return rc;
}

void model_pool_stop(model_pool *p) {
    rp_error stopped;
    if (!p) return;
    base_fail(&stopped, RP_ERR_CANCELLED, "the server is shutting down");
    pthread_mutex_lock(&p->lock);
    p->stops = true;
    for (int32_t i = 0; i < p->n; i++) queue_waiting(p, &p->models[i], &stopped);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

void model_pool_free(model_pool *p) {
    if (!p) return;
    model_pool_stop(p);
    if (p->has_loader) pthread_join(p->loader, NULL);
    for (int32_t i = 0; i < p->n; i++) {
        server_model *m = &p->models[i];
        BASE_ASSERT(m->n_users == 0 && m->n_turns == 0 && !m->first && !m->first_turn); /* all requests are freed */
        unload(p, m);
        info_free(&m->info);
        if (m->registry) pthread_mutex_destroy(&m->schema_lock);
        schema_registry_free(m->registry);
        schema_folder_free(m->folder);
    }
    for (int32_t i = 0; i < p->n_aliases; i++) base_free(p->aliases[i].name);
    base_free(p->aliases);
    base_free(p->adapters);
    base_free(p->models);
    if (p->has_lock) pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    base_free(p);
}

const char *server_request_model(const server_request *x) { return x->adapter ? x->adapter->name : x->model->name; }
