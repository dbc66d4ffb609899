/* SPDX-License-Identifier: Apache-2.0 */
/* router_world.h: a router with nodes that do what a test says, over real span streams, under a clock of its own. */
#ifndef SUPPORT_ROUTER_WORLD_H
#define SUPPORT_ROUTER_WORLD_H

#include "cluster/router.h"
#include "support/tiny_random.h"
#include "reprise_cluster.h"

#define WORLD_NODES 128

typedef struct world_node {
    bool is_open; /* the router has its stream */
    cluster_stream_key key;
    uint64_t n_frames, seq, n_opened;
    cluster_hello hello; /* the next stream begins with it */
    cluster_load load;   /* the next report */
    uint64_t clock_us;   /* its own clock is the world's plus this */
    bool hangs;          /* it does not say which requests it works on */
    bool is_asked;
} world_node;

typedef struct world_request {
    cluster_request r; /* first */
    int n_sends, n_cancels, n_ends;
    bool began_at_send; /* of the last one */
    cluster_outcome outcome;
    uint64_t retry_ms;
    void *user;
} world_request;

typedef struct router_world {
    cluster_router *router;
    uint64_t now_us, n_sends;
    tiny_random random;
    world_node nodes[WORLD_NODES];
    int32_t n_nodes;
    uint8_t secret[RP_CLUSTER_KEY_BYTES];
    void (*on_send)(void *user, world_request *q); /* NULL: none */
    void (*on_cancel)(void *user, world_request *q);
    void (*on_end)(void *user, world_request *q);
    void *user;
} router_world;

/* The defaults of a router, without goals. */
cluster_router_options world_options(router_world *w);
/* A router with n nodes that are well, hold nothing and have nothing to do. Nodes run 4 requests; a step takes 1 ms and
   10 us a row. */
void world_begin(router_world *w, const cluster_router_options *options, int32_t n);
void world_end(router_world *w); /* all requests have ended */
/* Ticks at every time that the router asks for, until `us` from now. quiet: without signs of life of nodes; else every
   100 ms. */
void world_pass(router_world *w, uint64_t us, bool quiet);
/* The node's stream: hello, empty snapshot, load; its load alone, after a hello if the stream has none; names that it
   holds now. */
void world_greet(router_world *w, int32_t node);
void world_report(router_world *w, int32_t node);
void world_hold(router_world *w, int32_t node, const rp_named_kv *items, int32_t n, uint32_t tiers);
/* Starts it anew: another process. */
void world_restart(router_world *w, int32_t node);

/* n text names of 64 tokens from position 0, of text number `text`. */
void world_text(rp_named_kv *items, int32_t n, uint32_t text);
/* A module's span. */
rp_named_kv world_module(uint32_t number, int32_t position, int32_t n_tokens);
world_request world_request_of(const rp_named_kv *items, int32_t n_items, int32_t prompt_tokens);
void world_submit(router_world *w, world_request *q);
/* First byte and end. */
void world_serve(router_world *w, world_request *q);

#endif
