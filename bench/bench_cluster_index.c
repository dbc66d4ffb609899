/* SPDX-License-Identifier: Apache-2.0 */
/* bench_cluster_index.c: memory and time of a router's index of names, and of a snapshot of a node.
 *
 *   bench_cluster_index [NAMES [SNAPSHOT]]     names in the index, default 10 million; names of a node's snapshot,
 *         default 1 million
 *
 * Each name is held by 1 to 3 of 100 nodes. Times are processor time, of one thread: of match, clear and snapshot the
 * medians of several rounds.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buffer.h"
#include "cluster/journal.h"
#include "cluster/view.h"
#include "support.h"
#include "support/span_names.h"
#include "reprise_cluster.h"

#define N_NODES 100
#define ITEMS 1563 /* 100,000 tokens, 64 a name */
#define ROUNDS 21

static rp_error err;

static double cpu_now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A line of the process's status, "VmRSS" (resident memory) or "VmHWM" (its peak), in bytes; 0: unknown. */
static double status_bytes(const char *name) {
    char line[256];
    const size_t n = strlen(name);
    double bytes = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && bytes == 0 && fgets(line, sizeof line, f))
        if (strncmp(line, name, n) == 0 && line[n] == ':') bytes = strtod(line + n + 1, NULL) * 1024;
    if (f) fclose(f);
    return bytes;
}

static int32_t holder(uint64_t name, int k) { return (int32_t)((name * 31 + (uint64_t)k * 37) % N_NODES); }

static void fill(cluster_index *x, uint64_t n) {
    const double before = status_bytes("VmRSS"), begin = cpu_now_s();
    uint64_t sets = 0;
    double longest = 0, most = 0, from = begin;
    for (uint64_t i = 0; i < n; i++) {
        const rp_name name = span_name_at(i);
        for (int k = 0; k <= (int)(i % 3); k++, sets++)
            if (cluster_index_report(x, &name, holder(i, k), RP_TIER_RAM)) bench_die("set", NULL);
        if (i % 100 == 99) {
            const double now = cpu_now_s();
            longest = now - from > longest ? now - from : longest;
            from = now;
        }
        const double each = (double)cluster_index_bytes(x) / (double)(i + 1);
        if (i >= n / 4 && each > most) most = each;
    }
    const double seconds = cpu_now_s() - begin;
    printf("names                      %12zu\n", cluster_index_count(x));
    printf("bytes                      %12.1f MB, %.1f a name; at most %.1f on the way\n",
           (double)cluster_index_bytes(x) / 1e6, (double)cluster_index_bytes(x) / (double)n, most);
    printf("resident memory            %12.1f MB more; the process's peak %.1f MB\n",
           (status_bytes("VmRSS") - before) / 1e6, status_bytes("VmHWM") / 1e6);
    printf("set                        %12.1f ns, the longest 200 %.2f ms\n", seconds / (double)sets * 1e9,
           longest * 1e3);
}

static void time_get(const cluster_index *x, uint64_t n) {
    enum { GETS = 1000000 };
    uint64_t seed = 1, hits = 0;
    const double begin = cpu_now_s();
    for (int i = 0; i < GETS; i++) {
        const uint64_t name = span_below(&seed, n);
        const rp_name key = span_name_at(name);
        hits += cluster_index_get(x, &key, holder(name, 0)) != 0;
    }
    printf("get, held                  %12.1f ns\n", (cpu_now_s() - begin) / GETS * 1e9);
    if (hits != GETS) bench_die("get", NULL);
    const double other = cpu_now_s();
    for (uint64_t i = 0; i < GETS; i++) {
        const rp_name key = span_name_at(n + i);
        hits += cluster_index_get(x, &key, 1) != 0;
    }
    printf("get, not held              %12.1f ns\n", (cpu_now_s() - other) / GETS * 1e9);
    if (hits != GETS) bench_die("get", NULL);
}

/* widely: all nodes hold all names. */
static void time_match(cluster_index *x, uint64_t n, bool widely) {
    static rp_named_kv items[ITEMS];
    static uint8_t held[ITEMS * N_NODES];
    double seconds[ROUNDS];
    uint64_t seed = 3;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < ITEMS; i++) {
            const uint64_t name = widely ? 2 * n + (uint64_t)i : span_below(&seed, n);
            items[i] = (rp_named_kv){.name = span_name_at(name), .is_module = !widely, .n_tokens = 64};
            for (int32_t k = 0; widely && round == 0 && k < N_NODES; k++)
                if (cluster_index_report(x, &items[i].name, k, RP_TIER_RAM)) bench_die("set", NULL);
        }
        const double begin = cpu_now_s();
        cluster_index_match(x, items, ITEMS, N_NODES, held);
        seconds[round] = cpu_now_s() - begin;
    }
    printf("match, %d names, %d nodes %8.1f us, %s\n", ITEMS, N_NODES, bench_median(seconds, ROUNDS) * 1e6,
           widely ? "text that all nodes hold" : "modules that 1 to 3 nodes hold");
}

static void time_clear(cluster_index *x) {
    double seconds[5], snapshot[5];
    for (int i = 0; i < 5; i++) {
        const double begin = cpu_now_s();
        cluster_index_clear(x, 10 + i);
        seconds[i] = cpu_now_s() - begin;
        cluster_index_begin_snapshot(x, 20 + i);
        const double end = cpu_now_s();
        cluster_index_end_snapshot(x, 20 + i);
        snapshot[i] = cpu_now_s() - end;
    }
    printf("clear a node               %12.1f ms\n", bench_median(seconds, 5) * 1e3);
    printf("end a snapshot             %12.1f ms\n", bench_median(snapshot, 5) * 1e3);
}

static void time_snapshot(uint64_t n) {
    enum { TIMES = 5 };
    uint8_t secret[RP_CLUSTER_KEY_BYTES] = {7}, nonce[CLUSTER_NONCE_BYTES];
    const cluster_hello hello = {.epoch = 9, .kv_budget_bytes = (uint64_t)1 << 40};
    double seconds[TIMES], writing[TIMES];
    cluster_journal *j;
    uint64_t bytes = 0;
    if (cluster_journal_new(&j, secret, &hello, &err)) bench_die("journal", &err);
    const double begin = cpu_now_s();
    for (uint64_t i = 0; i < n; i++) {
        const rp_span_change change = {span_name_at(i), RP_TIER_RAM};
        cluster_journal_change(j, &change, 1);
    }
    printf("journal: change            %12.1f ns\n", (cpu_now_s() - begin) / (double)n * 1e9);
    for (int i = 0; i < TIMES; i++) {
        cluster_index *x = NULL;
        cluster_view *v = NULL;
        cluster_journal_reader *r;
        base_buffer out = BASE_BUFFER((size_t)1 << 21);
        uint64_t epoch, after, next;
        if (cluster_index_new(&x, &err) || cluster_view_new(&v, x, 0, secret, &err)) bench_die("view", &err);
        cluster_view_open(v, 0, nonce, (uint64_t)i, &epoch, &after);
        if (cluster_journal_open(j, nonce, epoch, after, &r, &err)) bench_die("reader", &err);
        const double from = cpu_now_s();
        writing[i] = 0;
        bytes = 0;
        while (cluster_journal_is_ready(r, 0)) {
            const double write = cpu_now_s();
            base_buffer_clear(&out);
            if (cluster_journal_read(r, 0, 1 << 18, &out, &next)) bench_die("read", NULL);
            writing[i] += cpu_now_s() - write;
            bytes += out.len;
            if (cluster_view_feed(v, 0, out.data, out.len, &err)) bench_die("feed", &err);
        }
        seconds[i] = cpu_now_s() - from;
        if (cluster_index_count(x) != n || cluster_view_get_state(v) != CLUSTER_VIEW_LIVE) bench_die("snapshot", NULL);
        base_buffer_free(&out);
        cluster_journal_close(r);
        cluster_view_free(v);
        cluster_index_free(x);
    }
    printf("snapshot, %9llu names  %12.1f ms, of it the node's part %.1f ms; %.1f MB\n", (unsigned long long)n,
           bench_median(seconds, TIMES) * 1e3, bench_median(writing, TIMES) * 1e3, (double)bytes / 1e6);
    cluster_journal_free(j);
}

int main(int argc, char **argv) {
    cluster_index *x;
    bench_name = "bench_cluster_index";
    const uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000000,
                   snapshot = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000000;
    if (n == 0 || snapshot == 0) return fprintf(stderr, "usage: bench_cluster_index [NAMES [SNAPSHOT]]\n"), 2;
    if (cluster_index_new(&x, &err)) bench_die("index", &err);
    fill(x, n);
    time_get(x, n);
    time_match(x, n, false);
    time_match(x, n, true);
    time_clear(x);
    cluster_index_free(x);
    time_snapshot(snapshot);
    return 0;
}
