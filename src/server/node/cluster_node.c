/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_node.c: see cluster_node.h. `lock` guards the list of streams; it comes before the locks of readers and of
   requests. */
#define _GNU_SOURCE /* eventfd */
#include "server/node/cluster_node.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <sodium.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"
#include "base/list.h"
#include "base/memory.h"
#include "cluster/nonces.h"
#include "reprise_store.h"
#include "server/http/server_internal.h"
#include "server/models/model_pool.h"
#include "server/models/schema_registry.h"

/* A stream. The request owns it, and is alive while it is listed. */
typedef struct server_reader {
    BASE_LINKS(struct server_reader)
    links;
    server_request *x;
    pthread_mutex_t lock; /* guards reader: the I/O thread reads, the node's thread asks whether it is ready */
    cluster_journal_reader *reader;
} server_reader;

struct cluster_node {
    rp_server *server;
    uint8_t secret[RP_CLUSTER_KEY_BYTES];
    cluster_hello hello;
    char tag[CLUSTER_NODE_TAG_BYTES];
    cluster_journal *journal;
    rp_engine *engine;         /* NULL: not ready */
    schema_registry *registry; /* of its model: uploaded schemas */

    int wake;
    pthread_t thread;
    bool has_thread;
    _Atomic bool stopping, woken, load_is_due; /* woken: `wake` has been written to since it was read */
    pthread_mutex_t lock;
    BASE_LIST(server_reader)
    readers;
    _Atomic int32_t n_readers;
    pthread_mutex_t nonces_lock; /* alone */
    cluster_nonces *nonces;
};

/* ---- the thread ---- */

static void node_wake(cluster_node *n) {
    uint64_t one = 1;
    if (atomic_exchange(&n->woken, true)) return;
    if (write(n->wake, &one, sizeof(one)) < 0) { /* it is full: it wakes all the same */
    }
}

static void node_take_load(cluster_node *n) {
    BASE_ASSERT(n->engine && n->registry); /* cluster_node_ready */
    cluster_load load = {.engine.struct_size = sizeof(load.engine),
                         .draining = server_is_draining(n->server),
                         .sent_us = base_clock_us()};
    load.schemas = schema_registry_digest(n->registry);
    if (rp_engine_get_load(n->engine, &load.engine) == RP_OK) cluster_journal_set_load(n->journal, &load);
}

/* Resumes the connections of streams that have something to send. */
static void node_resume_readers(cluster_node *n) {
    const uint64_t now = base_clock_us();
    pthread_mutex_lock(&n->lock);
    for (server_reader *r = n->readers.first; r; r = r->links.next) {
        pthread_mutex_lock(&r->lock);
        const bool is_ready = cluster_journal_is_ready(r->reader, now);
        pthread_mutex_unlock(&r->lock);
        if (!is_ready) continue;
        server_request *x = r->x;
        pthread_mutex_lock(&x->lock);
        x->has_news = true;
        if (x->stage == SERVER_STREAMING) server_request_resume(x);
        pthread_mutex_unlock(&x->lock);
    }
    pthread_mutex_unlock(&n->lock);
}

static int node_timeout_ms(cluster_node *n, uint64_t load_us) {
    const uint64_t now = base_clock_us();
    if (atomic_load(&n->n_readers) == 0) return -1;
    return now >= load_us ? 0 : (int)((load_us - now + 999) / 1000);
}

static void *node_main(void *arg) {
    cluster_node *n = arg;
    struct pollfd wake = {.fd = n->wake, .events = POLLIN};
    uint64_t load_us = 0; /* when the load is taken next */
    uint64_t times;
    while (!atomic_load(&n->stopping)) {
        (void)poll(&wake, 1, node_timeout_ms(n, load_us));
        if (read(n->wake, &times, sizeof(times)) < 0) { /* it timed out */
        }
        atomic_store(&n->woken, false);
        if (atomic_exchange(&n->load_is_due, false) || base_clock_us() >= load_us) {
            node_take_load(n);
            load_us = base_clock_us() + CLUSTER_LOAD_EVERY_US;
        }
        node_resume_readers(n);
    }
    return NULL;
}

/* ---- life ---- */

static int take_name(cluster_node *n, const char *name, rp_error *err) {
    const server_listeners *l = &n->server->listeners;
    BASE_ASSERT(l->n > 0 && l->items[l->n - 1].is_cluster);
    const char *address = l->items[l->n - 1].address; /* the cluster's is the last one */
    if (!name) name = strncmp(address, "http://", 7) == 0 ? address + 7 : address;
    if (strlen(name) == 0 || strlen(name) >= sizeof(n->hello.node))
        return base_fail(err, RP_ERR_INVALID, "cluster_name has %zu bytes: give 1 to %zu", strlen(name),
                         sizeof(n->hello.node) - 1);
    for (const char *c = name; *c; c++)
        if (*c <= ' ' || *c > '~')
            return base_fail(err, RP_ERR_INVALID, "cluster_name: give visible ASCII characters without white space");
    snprintf(n->hello.node, sizeof(n->hello.node), "%s", name);
    cluster_node_tag(n->tag, name);
    return RP_OK;
}

int cluster_node_new(cluster_node **out, rp_server *server, const char *secret_file, const char *name, rp_error *err) {
    cluster_node *n = base_calloc(1, sizeof(*n));
    *out = n;
    if (!n) return base_fail_memory(err, sizeof(*n), "a node");
    n->server = server;
    n->wake = -1;
    pthread_mutex_init(&n->lock, NULL);
    pthread_mutex_init(&n->nonces_lock, NULL);
    if (!(n->nonces = cluster_nonces_new()))
        return base_fail_memory(err, CLUSTER_KNOWN_NONCES * CLUSTER_NONCE_BYTES, "a node");
    n->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (n->wake < 0) return base_fail_errno(err, "cannot make", "eventfd");
    if (!secret_file)
        return base_fail(err, RP_ERR_INVALID, "cluster_listen needs cluster_secret: the file of the cluster's secret");
    int rc = cluster_secret_read(n->secret, secret_file, err);
    if (rc || (rc = take_name(n, name, err))) return rc;
    do randombytes_buf(&n->hello.epoch, sizeof(n->hello.epoch));
    while (n->hello.epoch == 0); /* 0: a router has seen none yet */
    return cluster_journal_new(&n->journal, n->secret, &n->hello, err);
}

int cluster_node_ready(cluster_node *n, const server_model *m, rp_error *err) {
    rp_engine_info e = {.struct_size = sizeof(e)};
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_store_stats t = {.struct_size = sizeof(t)};
    cluster_hello *h = &n->hello;
    rp_engine_describe(m->engine, &e);
    rp_model_describe(m->model, &info);
    rp_engine_store_stats(m->engine, &t);
    snprintf(h->identity, sizeof(h->identity), "%s", rp_engine_identity(m->engine));
    snprintf(h->model, sizeof(h->model), "%.*s", (int)sizeof(h->model) - 1, info.name);
    snprintf(h->kv_format, sizeof(h->kv_format), "%.*s", (int)sizeof(h->kv_format) - 1,
             rp_kv_format_name((int32_t)e.kv_format));
    snprintf(h->weights, sizeof(h->weights), "%.*s", (int)sizeof(h->weights) - 1, info.weights);
    h->n_ctx = e.n_ctx;
    h->max_sequences = e.max_sequences;
    h->max_queue = e.max_queue;
    h->kv_budget_bytes = t.budget_bytes;
    h->disk_budget_bytes = t.disk_budget_bytes;
    n->engine = m->engine;
    n->registry = m->registry;
    cluster_journal_set_hello(n->journal, h);
    node_take_load(n);
    n->has_thread = pthread_create(&n->thread, NULL, node_main, n) == 0;
    return n->has_thread ? RP_OK : base_fail_errno(err, "cannot start the node's", "thread");
}

void cluster_node_stop(cluster_node *n) {
    if (!n || !n->has_thread) return;
    atomic_store(&n->stopping, true);
    node_wake(n);
    pthread_join(n->thread, NULL);
    n->has_thread = false;
}

void cluster_node_free(cluster_node *n) {
    if (!n) return;
    cluster_node_stop(n);
    BASE_ASSERT(!n->readers.first && atomic_load(&n->n_readers) == 0); /* streams have ended */
    cluster_journal_free(n->journal);
    if (n->wake >= 0) close(n->wake);
    cluster_nonces_free(n->nonces);
    pthread_mutex_destroy(&n->nonces_lock);
    pthread_mutex_destroy(&n->lock);
    sodium_memzero(n, sizeof(*n));
    base_free(n);
}

uint64_t cluster_node_epoch(const cluster_node *n) { return n->hello.epoch; }
const uint8_t *cluster_node_secret(const cluster_node *n) { return n->secret; }
const char *cluster_node_name(const cluster_node *n) { return n->hello.node; }
const char *cluster_node_tag_of(const cluster_node *n) { return n->tag; }

bool cluster_node_take_nonce(cluster_node *n, const uint8_t nonce[CLUSTER_NONCE_BYTES]) {
    pthread_mutex_lock(&n->nonces_lock);
    const bool is_new = cluster_nonces_add(n->nonces, nonce);
    pthread_mutex_unlock(&n->nonces_lock);
    return is_new;
}

int32_t cluster_node_streams(cluster_node *n) { return atomic_load(&n->n_readers); }
uint64_t cluster_node_names(cluster_node *n) { return cluster_journal_count(n->journal); }

void cluster_node_on_spans(void *node, const rp_span_change *changes, size_t count) {
    cluster_node *n = node;
    cluster_journal_change(n->journal, changes, count);
    if (atomic_load(&n->n_readers) > 0) node_wake(n);
}

void cluster_node_changed(cluster_node *n) {
    atomic_store(&n->load_is_due, true);
    node_wake(n);
}

/* ---- streams ---- */

/* I/O thread: more frames. A reader that takes none in time is cut by the watchdog. */
static void cluster_node_take(server_request *x) {
    server_reader *r = x->reader;
    BASE_ASSERT(r && r->x == x);
    const uint64_t now = base_clock_us();
    uint64_t next_us;
    watchdog_set_deadline(x->server->watchdog, x->peer, CLUSTER_STREAM_STALL_US);
    pthread_mutex_lock(&r->lock);
    const int rc = cluster_journal_read(r->reader, now, CLUSTER_STREAM_BYTES, &x->reply, &next_us);
    const bool has_more = !rc && cluster_journal_is_ready(r->reader, now);
    pthread_mutex_unlock(&r->lock);
    pthread_mutex_lock(&x->lock);
    x->has_news |= has_more; /* of a snapshot: at once */
    x->gone |= rc != RP_OK;  /* no memory: the stream is cut */
    pthread_mutex_unlock(&x->lock);
}

int cluster_node_open(server_request *x, const uint8_t nonce[CLUSTER_NONCE_BYTES], uint64_t epoch, uint64_t after) {
    cluster_node *n = x->server->cluster;
    BASE_ASSERT(n && !x->reader);
    server_reader *r = base_calloc(1, sizeof(*r));
    rp_error err;
    if (!r) return server_fail_memory(&x->problem);
    if (cluster_journal_open(n->journal, nonce, epoch, after, &r->reader, &err)) {
        base_free(r);
        if (err.code != RP_ERR_LIMIT) return server_fail_library(&x->problem, &err);
        server_fail(&x->problem, SERVER_BUSY, NULL, "the node has %d span streams already", CLUSTER_MAX_READERS);
        x->problem.retry_after_ms = 1000;
        return SERVER_BUSY;
    }
    pthread_mutex_init(&r->lock, NULL);
    r->x = x;
    x->reader = r;
    server_request_set_active(x, false); /* it has no end that a shutdown could wait for */
    x->content_type = "application/octet-stream";
    x->is_bytes = true;
    pthread_mutex_lock(&n->lock);
    BASE_LIST_PREPEND(&n->readers, r, links);
    atomic_fetch_add(&n->n_readers, 1);
    pthread_mutex_unlock(&n->lock);
    node_wake(n);
    pthread_mutex_lock(&x->lock);
    BASE_ASSERT(x->stage == SERVER_HANDLING);
    x->is_stream = x->has_news = true;
    x->take = cluster_node_take;
    x->stage = SERVER_STREAMING;
    server_request_resume(x);
    pthread_mutex_unlock(&x->lock);
    return SERVER_FINE;
}

void cluster_node_forget(server_request *x) {
    server_reader *r = x->reader;
    if (!r) return;
    cluster_node *n = x->server->cluster;
    pthread_mutex_lock(&n->lock);
    BASE_LIST_REMOVE(&n->readers, r, links);
    const int32_t before = atomic_fetch_sub(&n->n_readers, 1);
    BASE_ASSERT(before > 0);
    pthread_mutex_unlock(&n->lock);
    cluster_journal_close(r->reader);
    pthread_mutex_destroy(&r->lock);
    base_free(r);
    x->reader = NULL;
}
