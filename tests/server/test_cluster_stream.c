/* SPDX-License-Identifier: Apache-2.0 */
/* test_cluster_stream.c: span streams of a server under load: a thread changes names as an engine does, routers' views
 * follow over HTTP and end with exactly what is held, a reader that does not read is cut, and a server ends with open
 * streams. Sizes are smaller with sanitizers. */
#define _GNU_SOURCE /* mkstemp */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <netinet/in.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/file.h"
#include "cluster/signature.h"
#include "cluster/view.h"
#include "reprise_server.h"
#include "support/must.h"
#include "support/tiny_model.h"
#include "reprise_cluster.h"

#ifdef BASE_SANITIZED
#define N_NAMES 40000u
#else
#define N_NAMES 200000u
#endif
#define N_READERS 4
#define BATCH 50u

static uint8_t secret[RP_CLUSTER_KEY_BYTES];

/* ---- a server ---- */

typedef struct node {
    rp_server *server;
    rp_engine_options options; /* with the callback that the engine has */
    int port;
    char secret_path[40];
} node;

static int load(void *user, int32_t i, rp_model **model, rp_engine **engine, rp_error *err) {
    const node *n = user;
    const tiny_model_shape shape = tiny_model_defaults();
    (void)i;
    *model = tiny_model_open(&shape, "chatml");
    return rp_engine_new(engine, *model, &n->options, err);
}

static void unload(void *user, int32_t i, rp_model *model, rp_engine *engine) {
    (void)user;
    (void)i;
    rp_engine_free(engine); /* it reports that its spans go */
    rp_model_close(model);
}

static void node_start(node *n) {
    rp_error err;
    snprintf(n->secret_path, sizeof(n->secret_path), "/tmp/reprise-cluster-XXXXXX");
    const int fd = mkstemp(n->secret_path);
    assert_true(fd >= 0 && write(fd, secret, sizeof(secret)) == sizeof(secret));
    close(fd);
    rp_server_options o = rp_server_options_defaults();
    o.port = 0;
    o.cluster_listen = "127.0.0.1:0";
    o.cluster_secret = n->secret_path;
    o.cluster_name = "one";
    must(rp_server_new(&n->server, &o, &err), &err);
    n->options = rp_engine_options_defaults();
    rp_server_join(n->server, &n->options);
    assert_non_null(n->options.cluster->on_spans);
    const char *name = "tiny";
    const rp_server_models models = {
        .struct_size = sizeof(models), .n = 1, .names = &name, .load = load, .unload = unload, .user = n};
    must(rp_server_ready_models(n->server, &models, &err), &err);
    n->port = atoi(strrchr(rp_server_address(n->server, 1), ':') + 1);
}

static void node_end(node *n) {
    rp_server_stop(n->server);
    rp_server_run(n->server);
    rp_server_free(n->server);
    unlink(n->secret_path);
}

/* ---- changes: name i has the tiers of the last one ---- */

static rp_name name_of(uint32_t i) {
    rp_name name;
    crypto_generichash(name.bytes, sizeof(name.bytes), (const unsigned char *)&i, sizeof(i), NULL, 0);
    return name;
}

typedef struct writer {
    node *n;
    uint32_t count; /* names held at the end */
} writer;

/* Each name comes; each third one moves to disk, each fifth one goes. */
static void *write_changes(void *arg) {
    writer *w = arg;
    rp_span_change changes[2 * BATCH];
    for (uint32_t i = 0; i < N_NAMES; i += BATCH) {
        size_t n = 0;
        for (uint32_t k = i; k < i + BATCH; k++) changes[n++] = (rp_span_change){name_of(k), RP_TIER_RAM};
        for (uint32_t k = i; k < i + BATCH; k++) {
            if (k % 5 == 0) changes[n++] = (rp_span_change){name_of(k), 0};
            else if (k % 3 == 0) changes[n++] = (rp_span_change){name_of(k), RP_TIER_DISK};
            w->count += k % 5 != 0;
        }
        w->n->options.cluster->on_spans(w->n->options.cluster->spans_user, changes, n);
    }
    return NULL;
}

/* ---- readers ---- */

static int open_stream(const node *n, const uint8_t nonce[CLUSTER_NONCE_BYTES], uint64_t epoch, uint64_t after,
                       int receive_bytes) {
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)n->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char target[100], request[400], signature[CLUSTER_SIGNATURE_BYTES];
    uint8_t tag[CLUSTER_BODY_TAG_BYTES];
    cluster_body body;
    cluster_body_init(&body, secret, nonce);
    cluster_body_final(&body, tag);
    snprintf(target, sizeof(target), "/v1/cluster/stream?epoch=%llx&after=%llu", (unsigned long long)epoch,
             (unsigned long long)after);
    cluster_sign(signature, secret, nonce, &(cluster_signed){"GET", target, NULL, NULL, tag});
    static const char form[] = "GET %s HTTP/1.1\r\nHost: node\r\n" CLUSTER_SIGNATURE_HEADER ": %s\r\n\r\n";
    const int bytes = snprintf(request, sizeof(request), form, target, signature);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_bytes) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(write(fd, request, (size_t)bytes), bytes);
    return fd;
}

/* A chunked body as it arrives: HEAD, then size lines and chunks. */
typedef struct body_reader {
    char line[4096];
    size_t n_line, left;
    bool in_body, skips_end;
} body_reader;

/* Passes the bytes of chunks to the view. */
static void body_feed(body_reader *b, cluster_view *v, const char *bytes, size_t n) {
    rp_error err;
    while (n > 0) {
        if (b->left > 0) {
            const size_t m = BASE_MIN(n, b->left);
            must(cluster_view_feed(v, base_clock_us(), bytes, m, &err), &err);
            bytes += m, n -= m, b->left -= m;
            continue;
        }
        if (b->n_line + 1 == sizeof(b->line)) abort();
        b->line[b->n_line++] = *bytes++;
        b->line[b->n_line] = '\0';
        n--;
        if (!b->in_body) {
            b->in_body = b->n_line >= 4 && strcmp(b->line + b->n_line - 4, "\r\n\r\n") == 0;
            if (b->in_body && !strstr(b->line, "200 OK")) abort();
            if (b->in_body) b->n_line = 0;
        } else if (b->n_line >= 3 && b->line[b->n_line - 1] == '\n') { /* "\r\n" after a chunk goes before the size */
            b->left = strtoul(b->line, NULL, 16);
            b->n_line = 0;
        } else if (b->n_line == 2 && strcmp(b->line, "\r\n") == 0) b->n_line = 0;
    }
}

typedef struct reader {
    node *n;
    pthread_t thread;
    _Atomic uint32_t *wanted; /* names at the end; 0: the end has not come */
    cluster_index *index;
    cluster_view *view;
    uint64_t closes_after; /* frames: it closes the connection, and comes back; 0: never */
} reader;

/* Reads until it has all that is held, and some frames more, which have a digest. */
static void read_until_complete(reader *r, int fd) {
    static _Thread_local char bytes[1 << 16];
    body_reader b = {0};
    uint64_t complete_at = 0;
    const cluster_view_counts *c = cluster_view_counted(r->view);
    while (!complete_at || c->frames < complete_at + 6) {
        const ssize_t n = read(fd, bytes, sizeof(bytes));
        if (n <= 0) abort();
        body_feed(&b, r->view, bytes, (size_t)n);
        const uint32_t wanted = atomic_load(r->wanted);
        if (!complete_at && wanted && cluster_index_count_of(r->index, 0) == wanted) complete_at = c->frames;
        if (r->closes_after && c->frames >= r->closes_after) return;
    }
}

static void *read_stream(void *arg) {
    reader *r = arg;
    for (uint64_t round = 0;; round++) {
        uint8_t nonce[CLUSTER_NONCE_BYTES];
        uint64_t epoch, after;
        cluster_view_open(r->view, base_clock_us(), nonce, (uintptr_t)r ^ round, &epoch, &after);
        const int fd = open_stream(r->n, nonce, epoch, after, 0);
        read_until_complete(r, fd);
        close(fd);
        if (!r->closes_after) return NULL;
        r->closes_after = 0;
        cluster_view_cut(r->view, base_clock_us());
    }
}

static void reader_start(reader *r, node *n, _Atomic uint32_t *wanted, uint64_t closes_after) {
    rp_error err;
    *r = (reader){.n = n, .wanted = wanted, .closes_after = closes_after};
    must(cluster_index_new(&r->index, &err), &err);
    must(cluster_view_new(&r->view, r->index, 0, secret, &err), &err);
    assert_int_equal(pthread_create(&r->thread, NULL, read_stream, r), 0);
}

static void reader_check(reader *r) {
    const cluster_view_counts *c = cluster_view_counted(r->view);
    pthread_join(r->thread, NULL);
    assert_int_equal(c->wrong_digests + c->gaps + c->forged + c->other_epochs, 0);
    assert_string_equal(cluster_view_hello(r->view)->node, "one");
    for (uint32_t i = 0; i < N_NAMES; i += 97) {
        const rp_name name = name_of(i);
        assert_int_equal(cluster_index_get(r->index, &name, 0), i % 5 == 0 ? 0 : i % 3 == 0 ? RP_TIER_DISK
                                                                                            : RP_TIER_RAM);
    }
    cluster_view_free(r->view);
    cluster_index_free(r->index);
}

/* ---- tests ---- */

/* By the server's metrics. */
static int count_streams(const node *n) {
    static const char request[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                      name[] = "\nreprise_cluster_streams ";
    static char text[1 << 18];
    const struct sockaddr_in a = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(strrchr(rp_server_address(n->server, 0), ':') + 1)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    size_t used = 0;
    assert_int_equal(connect(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(write(fd, request, sizeof(request) - 1), sizeof(request) - 1);
    for (ssize_t m; used + 1 < sizeof(text) && (m = read(fd, text + used, sizeof(text) - 1 - used)) > 0;)
        used += (size_t)m;
    text[used] = '\0';
    close(fd);
    const char *at = strstr(text, name);
    assert_non_null(at);
    return atoi(at + sizeof(name) - 1);
}

static void test_views_follow(void **state) {
    static char bytes[1 << 16];
    (void)state;
    node n;
    node_start(&n);
    writer w = {.n = &n};
    _Atomic uint32_t wanted = 0;
    reader readers[N_READERS + 1];
    pthread_t thread;
    const uint8_t nonce[CLUSTER_NONCE_BYTES] = {1};
    const int stalled = open_stream(&n, nonce, 0, 0, 4096);
    for (int i = 0; i < N_READERS; i++) reader_start(&readers[i], &n, &wanted, i == 0 ? 20 : 0);
    assert_int_equal(pthread_create(&thread, NULL, write_changes, &w), 0);
    pthread_join(thread, NULL);
    atomic_store(&wanted, w.count);
    const uint64_t begin = base_clock_us();
    reader_start(&readers[N_READERS], &n, &wanted, 0); /* a snapshot */
    for (int i = 0; i <= N_READERS; i++) reader_check(&readers[i]);
    printf("%u names: %.3f s until a new reader has them and a digest\n", w.count,
           (double)(base_clock_us() - begin) / 1e6);
    while (count_streams(&n) > 0) continue; /* until the stalled one is cut, too */
    size_t got = 0;
    for (ssize_t m; (m = read(stalled, bytes, sizeof(bytes))) > 0;) got += (size_t)m; /* an end, or a reset */
    assert_in_range(got, 1, (uint64_t)17 * w.count);
    close(stalled);
    node_end(&n);
}

static void test_end_with_open_streams(void **state) {
    (void)state;
    node n;
    node_start(&n);
    int fds[8];
    char byte;
    for (int i = 0; i < 8; i++) {
        const uint8_t nonce[CLUSTER_NONCE_BYTES] = {(uint8_t)i};
        fds[i] = open_stream(&n, nonce, 0, 0, 0);
        assert_int_equal(read(fds[i], &byte, 1), 1);
    }
    node_end(&n);
    for (int i = 0; i < 8; i++) {
        while (read(fds[i], &byte, 1) > 0) continue;
        close(fds[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_views_follow),
                                       cmocka_unit_test(test_end_with_open_streams)};
    if (sodium_init() < 0) abort();
    for (size_t i = 0; i < sizeof(secret); i++) secret[i] = (uint8_t)(3 * i);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
