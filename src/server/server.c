/* SPDX-License-Identifier: Apache-2.0 */
/* server.c: a server's life: made, ready, draining, gone. The threads are those of the README. */
#define _GNU_SOURCE /* eventfd, pthread_condattr_setclock */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <sodium.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/sized.h"
#include "cluster/signature.h"
#include "server/admin/engine_metrics.h"
#include "server/answers/generate.h"
#include "server/answers/report_ring.h"
#include "server/answers/response_registry.h"
#include "server/dialects/content_registry.h"
#include "server/http/request_memory.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"
#include "server/node/cluster_node.h"
#include "server/node/cluster_port.h"
#include "server/node/kv_events.h"
#include "server/node/node_metrics.h"
#include "server/prompt/document_split.h"
#include "server/request_work.h"
#include "server/route/route.h"
#include "server/routes.h"
#include "reprise_store.h"
#include "reprise_cluster.h"

#define DEFAULT_PORT 8080
#define DEFAULT_CONNECTIONS 1024
#define MAX_CONNECTIONS 65536
#define DEFAULT_BODY_BYTES ((uint64_t)16 << 20)
#define DEFAULT_MAX_TOKENS 1024
#define MAX_TIMEOUT_MS (24 * 3600 * 1000)
#define CANCELLED_MS \
    5000 /* jobs end before the next step; streams to clients that stopped reading are cut after this */

void rp_server_options_init(rp_server_options *options, uint32_t struct_size) {
    rp_server_options own = {
        .port = DEFAULT_PORT,
        .max_connections = DEFAULT_CONNECTIONS,
        .reply_buffer_bytes = SERVER_PENDING_BYTES,
        .default_max_tokens = DEFAULT_MAX_TOKENS,
        .shifted_reuse = -1,
        .head_timeout_ms = 10000,
        .body_timeout_ms = 60000,
        .idle_timeout_ms = 75000,
        .drain_timeout_ms = 30000,
        .keep_alive_ms = 15000,
    };
    base_sized_init(options, struct_size, &own, sizeof(own));
}

static uint64_t request_ram(const rp_server_options *o) {
    if (o->request_ram_bytes > 0) return o->request_ram_bytes;
    return o->router ? REQUEST_MEMORY_ROUTED : REQUEST_MEMORY_DEFAULT;
}

static uint64_t max_body(const rp_server_options *o) {
    return o->max_body_bytes > 0 ? o->max_body_bytes
                                 : BASE_MIN(DEFAULT_BODY_BYTES, request_memory_of_bodies(request_ram(o)));
}

static int server_check_options(const rp_server_options *o, rp_error *err) {
    const struct {
        const char *name;
        int32_t value, min, max;
    } ranges[] = {
        {"port", o->port, RP_SERVER_NO_PORT, 65535},
        {"max_connections", o->max_connections, 1, MAX_CONNECTIONS},
        {"max_connections_per_address", o->max_connections_per_address, 0, MAX_CONNECTIONS},
        {"default_max_tokens", o->default_max_tokens, 1, INT32_MAX},
        {"head_timeout_ms", o->head_timeout_ms, 1, MAX_TIMEOUT_MS},
        {"body_timeout_ms", o->body_timeout_ms, 1, MAX_TIMEOUT_MS},
        {"idle_timeout_ms", o->idle_timeout_ms, 1, MAX_TIMEOUT_MS},
        {"keep_alive_ms", o->keep_alive_ms, 0, MAX_TIMEOUT_MS},
        {"drain_timeout_ms", o->drain_timeout_ms, 0, MAX_TIMEOUT_MS},
        {"shutdown_delay_ms", o->shutdown_delay_ms, 0, MAX_TIMEOUT_MS},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(ranges); i++)
        if (ranges[i].value < ranges[i].min || ranges[i].value > ranges[i].max)
            return base_fail(err, RP_ERR_INVALID, "%s is %d: give %d to %d", ranges[i].name, ranges[i].value,
                             ranges[i].min, ranges[i].max);
    const uint64_t most = request_memory_of_bodies(request_ram(o));
    if (request_ram(o) < REQUEST_MEMORY_LEAST || request_ram(o) > INT64_MAX)
        return base_fail(err, RP_ERR_INVALID, "request_ram_bytes: give %llu at least",
                         (unsigned long long)REQUEST_MEMORY_LEAST);
    if (max_body(o) > most)
        return base_fail(err, RP_ERR_INVALID, "max_body_bytes: give at most %llu, half of request_ram_bytes",
                         (unsigned long long)most);
    if (o->n_aliases < 0 || o->n_aliases > SERVER_MAX_ALIASES)
        return base_fail(err, RP_ERR_INVALID, "n_aliases is %d: give 0 to %d", o->n_aliases, SERVER_MAX_ALIASES);
    if (o->n_adapters < 0 || o->n_adapters > SERVER_MAX_ADAPTERS)
        return base_fail(err, RP_ERR_INVALID, "n_adapters is %d: give 0 to %d", o->n_adapters, SERVER_MAX_ADAPTERS);
    if (o->reply_buffer_bytes == 0) return base_fail(err, RP_ERR_INVALID, "reply_buffer_bytes: give 1 at least");
    return RP_OK;
}

/* ---- made ---- */

static int init_locks(rp_server *s, rp_error *err) {
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes)) return base_fail_memory(err, sizeof(*s), "a server");
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->log_lock, NULL);
    pthread_cond_init(&s->idle, &attributes);
    pthread_condattr_destroy(&attributes);
    s->has_lock = true;
    return RP_OK;
}

static int copy_strings(char ***out, const char *const *strings, int32_t n, rp_error *err) {
    if (n == 0) return RP_OK;
    BASE_ASSERT(n > 0 && !*out); /* server_check_options */
    char **copies = *out = base_calloc((size_t)n, sizeof(*copies));
    if (!copies) return base_fail_memory(err, (uint64_t)n * sizeof(*copies), "a server");
    for (int32_t i = 0; i < n; i++)
        if (!(copies[i] = base_strdup(strings[i]))) return base_fail_memory(err, strlen(strings[i]), "a server");
    return RP_OK;
}

static void free_strings(char **strings, int32_t n) {
    for (int32_t i = 0; strings && i < n; i++) base_free(strings[i]);
    base_free(strings);
}

static int make_kv_events(rp_server *s, const rp_server_options *o, rp_error *err) {
    const char *address = s->listeners.items[0].address,
               *name = o->kv_events_name ? o->kv_events_name : o->cluster_name;
    BASE_ASSERT(s->listeners.n > 0);
    if (o->router) return base_fail(err, RP_ERR_INVALID, "kv_events: a router holds no KV");
    if (o->api_keys && !o->kv_events_tenant)
        return base_fail(
            err, RP_ERR_INVALID,
            "kv_events: with api_keys every text is a tenant's: set kv_events_tenant to that of the gateway's key");
    if (o->kv_events_tenant && !o->api_keys)
        return base_fail(err, RP_ERR_INVALID,
                         "kv_events_tenant: without api_keys all text is the operator's, and no tenant's");
    if (!name) name = strncmp(address, "http://", 7) == 0 ? address + 7 : address;
    return kv_events_new(&s->kv_events, o->kv_events, name, o->kv_events_tenant, err);
}

static void tell_routers(rp_server *s) {
    if (s->cluster) cluster_node_changed(s->cluster);
}

/* Of nodes, then of models. */
static int append_metrics(base_buffer *b, rp_server *s) {
    const int rc = node_metrics_append(b, s);
    if (rc || server_get_state(s) == SERVER_STATE_LOADING) return rc;
    return s->route ? route_metrics_append(b, s->route) : engine_metrics_append(b, s->models);
}

static const server_layers layers = {
    .open = request_work_open,
    .close = request_work_close,
    .head = cluster_port_begin,
    .body = cluster_port_end,
    .changed = tell_routers,
    .metrics = append_metrics,
};

static int take_pool(rp_server *s, const rp_server_options *o, rp_error *err) {
    if (!o->cluster_secret)
        return base_fail(err, RP_ERR_INVALID, "pool needs cluster_secret: the file of the cluster's secret");
    if (!(s->pool = base_strdup(o->pool))) return base_fail_memory(err, strlen(o->pool), "a server");
    return cluster_secret_read(s->pool_secret, o->cluster_secret, err);
}

static int server_make(rp_server *s, const rp_server_options *o, rp_error *err) {
    int rc;
    watchdog_limits limits = {o->max_connections, o->max_connections_per_address};
    if ((rc = server_check_options(o, err)) || (rc = init_locks(s, err)) ||
        (rc = copy_strings(&s->aliases, o->aliases, o->n_aliases, err)) ||
        (rc = copy_strings(&s->adapters, o->adapters, o->n_adapters, err)))
        return rc;
    request_memory_init();
    if (!(s->memory = base_budget_new(NULL, s->options.request_ram_bytes)))
        return base_fail_memory(err, sizeof(*s), "a server");
    if (sodium_init() < 0) return base_fail(err, RP_ERR_INTERNAL, "libsodium failed to initialize");
    randombytes_buf(&s->seed, sizeof(s->seed));
    if (o->router && (rc = route_new(&s->route, s, o->router, err))) return rc;
    s->routes = s->route ? route_all_routes() : server_all_routes();
    s->layers = &layers;
    s->node_tag = "";
    s->answers = s->route ? &route_operations : &generate_operations;
    s->created = (int64_t)time(NULL);
    snprintf(s->model_name, sizeof(s->model_name), "%s", o->model_name ? o->model_name : "");
    if (o->cors_origin && !(s->cors_origin = base_strdup(o->cors_origin))) return base_fail_memory(err, 64, "a server");
    if (o->split_documents && (rc = document_split_new(&s->split, o->split_documents, err))) return rc;
    if (o->schema_dir && !(s->schema_dir = base_strdup(o->schema_dir))) return base_fail_memory(err, 64, "a server");
    if ((s->stop_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) < 0)
        return base_fail_errno(err, "cannot make", "eventfd");
    if ((rc = api_keys_new(&s->keys, o->api_keys, err)) ||
        (rc = api_keys_limit_memory(s->keys, s->memory, request_memory_of_tenant(s->options.request_ram_bytes), err)) ||
        (rc = content_registry_new(&s->contents, err)) || (rc = response_registry_new(&s->responses, err)) ||
        (rc = response_registry_new(&s->fingerprints, err)) || (rc = report_ring_new(&s->reports, err)) ||
        (rc = watchdog_new(&s->watchdog, &limits, (uint64_t)o->keep_alive_ms * 1000, err)) ||
        (rc = work_queue_new(&s->work, SERVER_WORKERS, request_work_run, err)) ||
        (rc = listeners_open(&s->listeners, o, err)))
        return rc;
    if (s->listeners.beyond_loopback && !o->api_keys)
        return base_fail(err, RP_ERR_INVALID,
                         "%s is reachable from other machines: set api_keys, or listen on 127.0.0.1",
                         s->listeners.items[0].address);
    if ((rc = server_names_init(&s->names, o, &s->listeners, err))) return rc;
    if (o->cluster_listen && (rc = cluster_node_new(&s->cluster, s, o->cluster_secret, o->cluster_name, err)))
        return rc;
    if (o->pool && (rc = take_pool(s, o, err))) return rc;
    if (s->cluster) s->node_tag = cluster_node_tag_of(s->cluster);
    if (o->kv_events && (rc = make_kv_events(s, o, err))) return rc;
    return listeners_start(&s->listeners, s, &http_io_callbacks, o, err);
}

int rp_server_new(rp_server **out, const rp_server_options *options, rp_error *err) {
    if (!out) return base_fail(err, RP_ERR_INVALID, "rp_server_new: out is needed");
    *out = NULL;
    rp_server_options o = rp_server_options_defaults();
    int rc = base_sized_read(&o, sizeof(o), options, "rp_server_options", err);
    if (rc) return rc;
    rp_server *s = base_calloc(1, sizeof(*s));
    if (!s) return base_fail_memory(err, sizeof(*s), "a server");
    s->stop_event = -1;
    s->options = o;
    s->options.host = s->options.unix_path = s->options.api_keys = s->options.cors_origin = s->options.model_name =
        NULL;
    s->options.schema_dir = s->options.split_documents = s->options.cluster_listen = s->options.cluster_secret =
        s->options.cluster_name = s->options.pool = NULL;
    s->options.host_names = s->options.aliases = s->options.adapters = NULL;
    s->options.request_ram_bytes = request_ram(&o);
    s->options.max_body_bytes = max_body(&o);
    s->options.reply_buffer_bytes = BASE_MIN(o.reply_buffer_bytes, request_ram(&o) / 4);
    s->options.router = NULL;
    s->options.kv_events = s->options.kv_events_name = s->options.kv_events_tenant = NULL;
    rc = server_make(s, &o, err);
    if (rc) rp_server_free(s);
    else *out = s;
    return rc;
}

const char *rp_server_address(const rp_server *s, int i) {
    return i >= 0 && i < s->listeners.n ? s->listeners.items[i].address : NULL;
}

typedef struct join {
    cluster_node *node;
    rp_error *err;
} join;

static int join_cluster(server_model *m, void *user) {
    const join *j = user;
    return cluster_node_ready(j->node, m, j->err);
}

/* rc: of making the pool. */
static int accept_requests(rp_server *s, int rc, rp_error *err) {
    BASE_ASSERT(rc || s->models);
    int loading = SERVER_STATE_LOADING;
    if (!rc && s->cluster) rc = model_pool_visit(s->models, join_cluster, &(join){s->cluster, err});
    if (!rc && s->kv_events) {
        server_model *model;
        rc = kv_events_ready(s->kv_events, model_pool_name(s->models, 0, &model), err);
    }
    if (!rc) atomic_compare_exchange_strong(&s->state, &loading, SERVER_STATE_READY);
    return rc;
}

int rp_server_ready(rp_server *s, rp_model *model, rp_engine *engine, rp_error *err) {
    if (!s || !model || !engine)
        return base_fail(err, RP_ERR_INVALID, "rp_server_ready: server, model and engine are needed");
    if (s->cluster)
        return base_fail(err, RP_ERR_UNSUPPORTED,
                         "cluster_listen needs rp_server_ready_models: its engine ends before the server");
    if (s->kv_events)
        return base_fail(err, RP_ERR_UNSUPPORTED,
                         "kv_events needs rp_server_ready_models: its engine ends before the server");
    return accept_requests(s, model_pool_new_single(&s->models, s, model, engine, err), err);
}

int rp_server_ready_models(rp_server *s, const rp_server_models *models, rp_error *err) {
    if (!s || !models) return base_fail(err, RP_ERR_INVALID, "rp_server_ready_models: server and models are needed");
    if (s->cluster && models->n > 1)
        return base_fail(err, RP_ERR_UNSUPPORTED,
                         "cluster_listen is for a server with one model: start a server for each of the %d", models->n);
    if (s->kv_events && models->n > 1)
        return base_fail(err, RP_ERR_UNSUPPORTED,
                         "kv_events is for a server with one model: start a server for each of the %d", models->n);
    return accept_requests(s, model_pool_new(&s->models, s, models, err), err);
}

void rp_server_join(rp_server *s, rp_engine_options *o) {
    if (!s->cluster && !s->kv_events && !s->pool) return;
    rp_cluster_options *cluster = &s->engine_cluster;
    *cluster = (rp_cluster_options){.struct_size = sizeof(*cluster)};
    if (s->cluster) {
        cluster->key = cluster_node_secret(s->cluster);
        cluster->on_spans = cluster_node_on_spans;
        cluster->spans_user = s->cluster;
    }
    if (s->kv_events) kv_events_join(s->kv_events, cluster);
    if (s->pool) {
        cluster->key = s->pool_secret;
        cluster->pool = s->pool;
        cluster->pool_write_bytes = s->options.pool_write_bytes;
    }
    o->cluster = cluster;
}

int rp_server_ready_router(rp_server *s, rp_model *model, const rp_engine_options *options, rp_error *err) {
    if (!s || !model || !s->route)
        return base_fail(err, RP_ERR_INVALID,
                         "rp_server_ready_router: a server with the option router, and a model are needed");
    return accept_requests(s, route_start(s->route, model, options, err), err);
}

void rp_server_count_step(rp_server *s, const rp_step *step) {
    histogram_add_us(&s->counts.step, step->end_us - step->start_us);
}

/* ---- stopped ---- */

void rp_server_stop(rp_server *s) {
    uint64_t one = 1;
    int saved = errno;
    if (write(s->stop_event, &one, sizeof(one)) < 0) { /* it is full: it was stopped before */
    }
    errno = saved;
}

/* Waits until *count is 0, for up to `ms` (-1: for ever). */
static void wait_idle(rp_server *s, const int *count, int64_t ms) {
    struct timespec until = base_clock_after(BASE_MAX(ms, 0));
    int rc = 0;
    pthread_mutex_lock(&s->lock);
    while (*count > 0 && rc != ETIMEDOUT)
        rc = ms < 0 ? pthread_cond_wait(&s->idle, &s->lock) : pthread_cond_timedwait(&s->idle, &s->lock, &until);
    BASE_ASSERT(*count >= 0);
    pthread_mutex_unlock(&s->lock);
}

/* Nothing may be suspended when the daemons stop, so first nothing new is. */
static void close_down(rp_server *s) {
    pthread_mutex_lock(&s->lock);
    atomic_store(&s->state, SERVER_STATE_CLOSED);
    pthread_mutex_unlock(&s->lock);
    watchdog_abandon_all(s->watchdog);
    model_pool_stop(s->models);
    wait_idle(s, &s->n_suspended, -1);
    listeners_close(&s->listeners);
}

/* Accepts requests a little longer, and says in /readyz and to routers that it will not. */
static void leave(rp_server *s) {
    const uint64_t until = base_clock_us() + (uint64_t)s->options.shutdown_delay_ms * 1000;
    atomic_store(&s->leaves, true);
    tell_routers(s);
    for (uint64_t now; (now = base_clock_us()) < until;) poll(NULL, 0, (int)((until - now) / 1000) + 1);
}

void rp_server_run(rp_server *s) {
    struct pollfd stop = {.fd = s->stop_event, .events = POLLIN};
    while (poll(&stop, 1, -1) <= 0) continue;
    leave(s);
    s->drain_until_us = base_clock_us() + (uint64_t)s->options.drain_timeout_ms * 1000;
    atomic_store(&s->state, SERVER_STATE_DRAINING);
    tell_routers(s);
    wait_idle(s, &s->n_active, s->options.drain_timeout_ms);
    watchdog_abandon_all(s->watchdog);
    model_pool_stop(s->models);
    wait_idle(s, &s->n_active, CANCELLED_MS);
    close_down(s);
}

int64_t rp_server_drain_left_ms(const rp_server *s) {
    uint64_t now = base_clock_us();
    if (s->drain_until_us == 0) return -1;
    return now < s->drain_until_us ? (int64_t)((s->drain_until_us - now) / 1000) : 0;
}

void rp_server_free(rp_server *s) {
    if (!s) return;
    if (s->listeners.n > 0 && s->watchdog) close_down(s);
    listeners_close(&s->listeners);
    work_queue_free(s->work);
    watchdog_free(s->watchdog);
    cluster_node_stop(s->cluster);
    kv_events_stop(s->kv_events);
    route_stop(s->route);
    model_pool_free(s->models);
    route_free(s->route);
    cluster_node_free(s->cluster); /* engines that it has just closed report to these */
    kv_events_free(s->kv_events);
    content_registry_free(s->contents);
    report_ring_free(s->reports);
    response_registry_free(s->responses);
    response_registry_free(s->fingerprints);
    BASE_ASSERT(s->n_active == 0 && s->n_suspended == 0 && atomic_load(&s->counts.jobs_open) == 0);
    BASE_ASSERT(atomic_load(&s->body_bytes) == 0 && atomic_load(&s->pending_bytes) == 0); /* all requests are freed */
    api_keys_free(s->keys);
    base_budget_unref(s->memory);
    if (s->stop_event >= 0) close(s->stop_event);
    if (s->has_lock) {
        pthread_cond_destroy(&s->idle);
        pthread_mutex_destroy(&s->log_lock);
        pthread_mutex_destroy(&s->lock);
    }
    server_names_free(&s->names);
    free_strings(s->aliases, s->options.n_aliases);
    free_strings(s->adapters, s->options.n_adapters);
    base_free(s->cors_origin);
    base_free(s->schema_dir);
    base_free(s->pool);
    sodium_memzero(s->pool_secret, sizeof(s->pool_secret));
    document_split_free(s->split);
    base_free(s);
}
