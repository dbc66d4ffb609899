/* SPDX-License-Identifier: Apache-2.0 */
/* router_world.c: see router_world.h. */
#include "support/router_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "support/must.h"

static uint64_t env_now(void *user) { return ((router_world *)user)->now_us; }
static uint64_t env_random(void *user) { return tiny_random_u64(&((router_world *)user)->random); }

static void env_open(void *user, int32_t node, const uint8_t nonce[CLUSTER_NONCE_BYTES], uint64_t epoch,
                     uint64_t after) {
    router_world *w = user;
    world_node *x = &w->nodes[node];
    (void)epoch;
    (void)after; /* every stream begins with a snapshot */
    cluster_stream_key_make(&x->key, w->secret, nonce);
    x->is_open = true;
    x->n_frames = 0;
    x->n_opened++;
}

static void env_close(void *user, int32_t node) { ((router_world *)user)->nodes[node].is_open = false; }

static void env_send(void *user, cluster_request *r) {
    router_world *w = user;
    world_request *q = (world_request *)(void *)r;
    q->n_sends++;
    q->began_at_send = r->began;
    w->n_sends++;
    if (w->on_send) w->on_send(w->user, q);
}

static void env_cancel(void *user, cluster_request *r) {
    router_world *w = user;
    world_request *q = (world_request *)(void *)r;
    q->n_cancels++;
    if (w->on_cancel) w->on_cancel(w->user, q);
}

static void env_ask(void *user, int32_t node) { ((router_world *)user)->nodes[node].is_asked = true; }

static void env_end(void *user, cluster_request *r, cluster_outcome outcome, uint64_t retry_after_ms) {
    router_world *w = user;
    world_request *q = (world_request *)(void *)r;
    q->n_ends++;
    q->outcome = outcome;
    q->retry_ms = retry_after_ms;
    if (w->on_end) w->on_end(w->user, q);
}

/* ---- streams ---- */

static void world_feed(router_world *w, int32_t node, base_buffer *bytes) {
    cluster_router_fed(w->router, node, bytes->data, bytes->len);
    base_buffer_free(bytes);
}

static void write_load(router_world *w, world_node *x, base_buffer *out) {
    x->load.sent_us = w->now_us + x->clock_us;
    must(cluster_write_load(out, &x->key, x->n_frames++, &x->load), &(rp_error){0});
}

void world_greet(router_world *w, int32_t node) {
    world_node *x = &w->nodes[node];
    base_buffer out = BASE_BUFFER((size_t)1 << 24);
    rp_error err = {0};
    x->seq = 0;
    must(cluster_write_hello(&out, &x->key, x->n_frames++, &x->hello), &err);
    must(cluster_write_snapshot(&out, &x->key, x->n_frames++, 0, 0), &err);
    must(cluster_write_names(&out, &x->key, x->n_frames++, NULL, 0), &err);
    write_load(w, x, &out);
    world_feed(w, node, &out);
}

void world_report(router_world *w, int32_t node) {
    base_buffer out = BASE_BUFFER((size_t)1 << 20);
    if (!w->nodes[node].is_open) return;
    if (w->nodes[node].n_frames == 0) { /* a stream begins with its hello */
        world_greet(w, node);
        return;
    }
    write_load(w, &w->nodes[node], &out);
    world_feed(w, node, &out);
}

void world_hold(router_world *w, int32_t node, const rp_named_kv *items, int32_t n, uint32_t tiers) {
    world_node *x = &w->nodes[node];
    base_buffer out = BASE_BUFFER((size_t)1 << 24);
    rp_span_change *changes = calloc((size_t)n, sizeof(*changes));
    for (int32_t i = 0; i < n; i++) changes[i] = (rp_span_change){items[i].name, tiers};
    must(cluster_write_changes(&out, &x->key, x->n_frames++, x->seq + 1, changes, (size_t)n), &(rp_error){0});
    x->seq += (uint64_t)n;
    free(changes);
    world_feed(w, node, &out);
}

void world_restart(router_world *w, int32_t node) {
    w->nodes[node].hello.epoch++;
    w->nodes[node].clock_us += 12345;
    if (!w->nodes[node].is_open) return;
    w->nodes[node].is_open = false;
    cluster_router_cut(w->router, node);
}

/* ---- the world ---- */

cluster_router_options world_options(router_world *w) {
    cluster_router_options o = cluster_router_defaults();
    memset(w, 0, sizeof(*w));
    memset(w->secret, 7, sizeof(w->secret));
    o.secret = w->secret;
    return o;
}

static void node_begin(world_node *x, int32_t i) {
    x->hello = (cluster_hello){
        .epoch = 1000 + (uint64_t)i, .kv_budget_bytes = (uint64_t)1 << 40, .max_sequences = 4, .n_ctx = 1 << 20};
    snprintf(x->hello.identity, sizeof(x->hello.identity), "identity");
    snprintf(x->hello.kv_format, sizeof(x->hello.kv_format), "f16");
    snprintf(x->hello.node, sizeof(x->hello.node), "node%d", i);
    x->clock_us = UINT64_C(1000000007) * (uint64_t)(i + 1);
    x->load.engine = (rp_engine_load){.struct_size = sizeof(rp_engine_load), .max_running = 4, .chunk_tokens = 512};
    for (int k = 0; k < RP_COST_KNOTS; k++) x->load.engine.knot_us[k] = 1000 + 10 * (double)(1 << k);
}

void world_begin(router_world *w, const cluster_router_options *options, int32_t n) {
    cluster_env env = {w, env_now, env_random, env_open, env_close, env_send, env_cancel, env_ask, env_end};
    rp_error err = {0};
    w->now_us = 5000000;
    must(cluster_router_new(&w->router, options, &env, &err), &err);
    for (int32_t i = 0; i < n; i++) {
        char name[32];
        int32_t node = -1;
        node_begin(&w->nodes[i], i);
        snprintf(name, sizeof(name), "node%d", i);
        must(cluster_router_add_node(w->router, name, &node, &err), &err);
        must(node == i ? RP_OK : RP_ERR_INVALID, &err);
    }
    w->n_nodes = n;
    cluster_router_tick(w->router);
    for (int32_t i = 0; i < n; i++) world_greet(w, i);
}

void world_end(router_world *w) {
    cluster_router_free(w->router);
    w->router = NULL;
}

static void hear(void *user, cluster_request *r) {
    const router_world *w = user;
    cluster_router_heard(w->router, r, w->now_us, true);
}

/* Nodes say which requests they work on: all that they have. */
static void world_answer(router_world *w) {
    for (int32_t i = 0; i < w->n_nodes; i++) {
        if (!w->nodes[i].is_asked) continue;
        w->nodes[i].is_asked = false;
        if (!w->nodes[i].hangs) cluster_router_each_sent(w->router, i, hear, w);
    }
}

void world_pass(router_world *w, uint64_t us, bool quiet) {
    uint64_t end = w->now_us + us;
    for (;;) {
        uint64_t next = cluster_router_tick(w->router), sign = w->now_us + 100000;
        world_answer(w);
        if (!quiet) next = BASE_MIN(next, sign);
        if (next > end || w->now_us == end) break;
        w->now_us = BASE_MIN(BASE_MAX(next, w->now_us + 1), end);
        for (int32_t i = 0; i < w->n_nodes && !quiet && w->now_us == sign; i++) world_report(w, i);
    }
    w->now_us = end;
    cluster_router_tick(w->router);
}

/* ---- requests ---- */

static rp_name name_of(uint64_t kind, uint64_t number, uint64_t part) {
    tiny_random r = {kind << 60 ^ number << 20 ^ part};
    rp_name name;
    uint64_t a = tiny_random_u64(&r), b = tiny_random_u64(&r);
    memcpy(name.bytes, &a, 8);
    memcpy(name.bytes + 8, &b, 8);
    return name;
}

void world_text(rp_named_kv *items, int32_t n, uint32_t text) {
    for (int32_t i = 0; i < n; i++)
        items[i] =
            (rp_named_kv){.name = name_of(1, text, (uint64_t)i), .n_tokens = 64, .position = 64 * i, .bytes = 64000};
}

rp_named_kv world_module(uint32_t number, int32_t position, int32_t n_tokens) {
    rp_named_kv module = {.name = name_of(2, number, 0), .is_module = true, .n_tokens = n_tokens, .position = position};
    module.bytes = 1000 * (uint64_t)n_tokens;
    return module;
}

world_request world_request_of(const rp_named_kv *items, int32_t n_items, int32_t prompt_tokens) {
    return (world_request){.r = {.items = items,
                                 .n_items = n_items,
                                 .prompt_tokens = prompt_tokens,
                                 .max_tokens = 10,
                                 .tenant = 1,
                                 .only_node = -1}};
}

void world_submit(router_world *w, world_request *q) { cluster_router_submit(w->router, &q->r); }

void world_serve(router_world *w, world_request *q) {
    cluster_router_began(w->router, &q->r);
    cluster_router_finished(w->router, &q->r);
}
