/* SPDX-License-Identifier: Apache-2.0 */
/* bench_cluster_route.c: a router's time for a request, and at rest.
 *
 *   bench_cluster_route [NODES [TOKENS]]     default 100 nodes, 100,000 tokens (1,563 names)
 *
 * Processor time of one thread: of cluster_router_submit, choice and all (the median of many requests, and their 99th
 * percentile), when no node, one of three nodes, or every node holds the whole prompt; of a tick at which nothing is
 * due; and the share of a core that streams of nodes with a report every 100 ms take. Names are served from a real
 * index, over real streams.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "support/router_world.h"
#include "reprise_cluster.h"

#define ROUNDS 200
#define IDLE_SECONDS 10

static double cpu_now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Every `step`-th node holds the text; 0: none. */
static void time_requests(int32_t n_nodes, int32_t n_names, int32_t step, const char *what) {
    router_world w;
    cluster_router_options o = world_options(&w);
    rp_named_kv *text = calloc((size_t)n_names, sizeof(*text));
    double us[ROUNDS];
    o.ttft_goal_ms = 1e6; /* all rules are evaluated */
    o.itl_goal_ms = 1e6;
    world_begin(&w, &o, n_nodes);
    world_text(text, n_names, 1);
    for (int32_t i = 0; step && i < n_nodes; i += step) world_hold(&w, i, text, n_names, RP_TIER_RAM);
    for (int i = 0; i < ROUNDS; i++) {
        world_request q = world_request_of(text, n_names, 64 * n_names + 17);
        double from = cpu_now_us();
        world_submit(&w, &q);
        us[i] = cpu_now_us() - from;
        if (step) world_serve(&w, &q);
        else cluster_router_failed(w.router, &q.r, CLUSTER_NODE_REFUSES, 0); /* its speculative entries end */
        cluster_request_close(&q.r);
    }
    world_end(&w);
    free(text);
    qsort(us, ROUNDS, sizeof(us[0]), compare);
    printf("submit, %s: median %.0f us, 99th percentile %.0f us\n", what, us[ROUNDS / 2], us[ROUNDS * 99 / 100]);
}

static void time_rest(int32_t n_nodes) {
    router_world w;
    cluster_router_options o = world_options(&w);
    world_begin(&w, &o, n_nodes);
    double from = cpu_now_us();
    enum { TICKS = 1000000 };
    for (int i = 0; i < TICKS; i++) cluster_router_tick(w.router);
    double tick_us = (cpu_now_us() - from) / TICKS;
    from = cpu_now_us();
    world_pass(&w, (uint64_t)IDLE_SECONDS * 1000000, false);
    double share = (cpu_now_us() - from) / (IDLE_SECONDS * 1e6);
    printf("tick without anything due: %.3f us\n", tick_us);
    printf("reports of %d nodes, 10 each a second, writing them included: %.3f %% of a core\n", n_nodes, 100 * share);
    world_end(&w);
}

int main(int argc, char **argv) {
    int32_t nodes = argc > 1 ? atoi(argv[1]) : 100, tokens = argc > 2 ? atoi(argv[2]) : 100000;
    int32_t names = (tokens + RP_NAME_TOKENS - 1) / RP_NAME_TOKENS;
    if (nodes < 1 || nodes > WORLD_NODES || names < 1) {
        fprintf(stderr, "usage: bench_cluster_route [NODES (1 to %d) [TOKENS]]\n", WORLD_NODES);
        return 2;
    }
    printf("%d nodes, %d names\n", nodes, names);
    time_requests(nodes, names, 0, "no node holds it");
    time_requests(nodes, names, 3, "one of three nodes holds it");
    time_requests(nodes, names, 1, "every node holds it");
    time_rest(nodes);
    return 0;
}
