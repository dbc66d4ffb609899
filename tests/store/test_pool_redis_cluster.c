/* SPDX-License-Identifier: Apache-2.0 */
/* test_pool_redis_cluster.c: a pool on Redis over TLS; on a cluster of three masters, while slots migrate and after a
 * node is lost; on a master that Sentinels replace. Skipped without redis-server, redis-sentinel or openssl. */
#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "store/remote/redis_batch.h"
#include "support/must.h"
#include "support/pool_check.h"
#include "support/redis_server.h"

#define SOON_US 10000000
#define N_NODES 3
#define N_SLOTS_EACH 5461 /* and one more for the last */
#define ADDRESS_BYTES 512
#define LINE_BYTES 1024
#define CHUNKS 5

static bool is_here;
static uint8_t bytes[CHUNKS * REDIS_CHUNK_BYTES], other_bytes[CHUNKS * REDIS_CHUNK_BYTES];

static void needs_redis(void) {
    if (!is_here) skip();
}

static void put(pool_link *l, int i, const uint8_t *content, size_t n) {
    char name[POOL_NAME_CHARS + 1];
    rp_error err = {0};
    const struct iovec piece = {(void *)(uintptr_t)content, n};
    pool_check_name(i, name);
    must(pool_put(l, name, &piece, 1, base_clock_us() + SOON_US, &err), &err);
}

static void expect(pool_link *l, int i, const uint8_t *content, size_t n) {
    static uint8_t got[sizeof(bytes) + 1];
    rp_error err = {0};
    pool_range r = {.bytes = got, .n = sizeof(got)};
    pool_check_name(i, r.name);
    must(pool_get(l, &r, 1, base_clock_us() + SOON_US, &err), &err);
    assert_int_equal(r.found, content != NULL);
    assert_int_equal(r.got, content ? n : 0);
    if (content) assert_memory_equal(got, content, n);
}

static void remove_object(pool_link *l, int i) {
    char name[POOL_NAME_CHARS + 1];
    rp_error err = {0};
    pool_check_name(i, name);
    must(pool_remove(l, name, base_clock_us() + SOON_US, &err), &err);
}

/* ---- TLS ---- */

static void run_in(const char *folder, const char *command) {
    char line[LINE_BYTES];
    snprintf(line, sizeof(line), "cd %s && { %s; } >log 2>&1", folder, command);
    if (system(line) != 0) fail_msg("%s", line);
}

#define NEW_KEY "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"

/* Two authorities, a certificate for 127.0.0.1 and one for a client. */
static void make_certificates(const char *folder) {
    run_in(folder, "openssl req -x509 " NEW_KEY " -keyout ca.key -out ca.pem -subj /CN=ca");
    run_in(folder, "openssl req -x509 " NEW_KEY " -keyout other.key -out other.pem -subj /CN=other");
    run_in(folder,
           "openssl req -x509 -CA ca.pem -CAkey ca.key " NEW_KEY " -keyout server.key -out server.pem -subj /CN=server"
           " -addext subjectAltName=IP:127.0.0.1");
    run_in(folder, "openssl req -x509 -CA ca.pem -CAkey ca.key " NEW_KEY
                   " -keyout client.key -out client.pem -subj /CN=client");
}

static void check_refused(const char *format, int port, const char *folder, int cause, int or_cause) {
    char address[ADDRESS_BYTES];
    snprintf(address, sizeof(address), format, port, folder);
    pool_driver *d = pool_check_driver(address);
    pool_link *l = pool_check_link(d);
    pool_check_fails(l, cause, or_cause);
    pool_link_close(l);
    pool_driver_close(d);
}

static void over_tls(void **state) {
    (void)state;
    needs_redis();
    char folder[STORE_FOLDER_BYTES], options[LINE_BYTES], address[ADDRESS_BYTES];
    redis_server s, plain;
    rp_error err = {0};
    pool_driver *d;
    store_folder_make(folder);
    make_certificates(folder);
    snprintf(address, sizeof(address), "rediss://127.0.0.1?ca=%s/ca.pem", folder);
    if (pool_driver_open(&d, address, &err) == RP_ERR_UNSUPPORTED) {
        print_message("skipped: %s\n", err.message);
        skip();
    }
    pool_driver_close(d);
    snprintf(options, sizeof(options),
             "--port 0 --tls-port %%d --tls-ca-cert-file %s/ca.pem --tls-cert-file %s/server.pem"
             " --tls-key-file %s/server.key",
             folder, folder, folder);
    redis_server_start(&s, options);
    redis_server_start(&plain, "--port %d");
    snprintf(address, sizeof(address), "rediss://127.0.0.1:%d?ca=%s/ca.pem&cert=%s/client.pem&key=%s/client.key",
             s.port, folder, folder, folder);
    pool_check(address);
    check_refused("rediss://127.0.0.1:%d?ca=%s/other.pem", s.port, folder, EACCES, EACCES);
    /* The system's certificates; another name; no certificate of the client. */
    check_refused("rediss://127.0.0.1:%d", s.port, folder, EACCES, EACCES);
    check_refused("rediss://localhost:%d?ca=%s/ca.pem", s.port, folder, EACCES, EACCES);
    check_refused("rediss://127.0.0.1:%d?ca=%s/ca.pem", s.port, folder, EACCES, ECONNRESET);
    /* Without TLS a server waits for the end of a line. */
    check_refused("rediss://127.0.0.1:%d?ca=%s/ca.pem", plain.port, folder, EPROTO, ETIMEDOUT);
    check_refused("redis://127.0.0.1:%d", s.port, folder, EPROTO, ECONNRESET);
    d = pool_check_driver(address);
    pool_link *l = pool_check_link(d);
    put(l, 1, bytes, sizeof(bytes));
    redis_server_signal(&s, SIGSTOP);
    pool_check_fails(l, ETIMEDOUT, ETIMEDOUT);
    redis_server_signal(&s, SIGCONT);
    expect(l, 1, bytes, sizeof(bytes));
    redis_server_kill(&s);
    pool_check_fails(l, ECONNREFUSED, ECONNREFUSED);
    pool_link_close(l);
    pool_driver_close(d);
    snprintf(address, sizeof(address), "rediss://127.0.0.1?ca=%s/absent.pem", folder);
    assert_int_equal(pool_driver_open(&d, address, &err), RP_ERR_IO);
    snprintf(address, sizeof(address), "rediss://127.0.0.1?ca=%s/ca.pem&cert=%s/client.pem&key=%s/ca.key", folder,
             folder, folder);
    assert_int_equal(pool_driver_open(&d, address, &err), RP_ERR_IO);
    redis_server_stop(&s);
    redis_server_stop(&plain);
    store_folder_remove(folder);
}

/* ---- a cluster ---- */

typedef struct cluster {
    redis_server nodes[N_NODES];
    char ids[N_NODES][41];
} cluster;

static void cluster_start(cluster *c) {
    char options[LINE_BYTES], command[LINE_BYTES];
    for (int i = 0; i < N_NODES; i++) {
        snprintf(options, sizeof(options),
                 "--port %%d --cluster-enabled yes --cluster-port %d --cluster-node-timeout 2000"
                 " --cluster-require-full-coverage no",
                 redis_server_free_port());
        redis_server_start(&c->nodes[i], options);
        snprintf(c->ids[i], sizeof(c->ids[i]), "%s", redis_server_ask(c->nodes[i].port, "", "cluster myid"));
        snprintf(command, sizeof(command), "cluster addslotsrange %d %d", i * N_SLOTS_EACH,
                 i == N_NODES - 1 ? REDIS_SLOTS - 1 : (i + 1) * N_SLOTS_EACH - 1);
        redis_server_ask(c->nodes[i].port, "", command);
        snprintf(command, sizeof(command), "cluster set-config-epoch %d", i + 1);
        redis_server_ask(c->nodes[i].port, "", command);
    }
    for (int i = 1; i < N_NODES; i++) {
        snprintf(command, sizeof(command), "cluster nodes | grep myself | sed 's/.*@\\([0-9]*\\).*/\\1/'");
        const int bus = atoi(redis_server_ask(c->nodes[i].port, "", command));
        snprintf(command, sizeof(command), "cluster meet 127.0.0.1 %d %d", c->nodes[i].port, bus);
        redis_server_ask(c->nodes[0].port, "", command);
    }
    for (int i = 0; i < N_NODES; i++) redis_server_await(c->nodes[i].port, "", "cluster info", "cluster_state:ok");
    for (int i = 0; i < N_NODES; i++)
        for (int k = 0; k < N_NODES; k++) { /* each node knows the slots of each */
            snprintf(command, sizeof(command), "cluster nodes | grep '%s.* connected.*-'", c->ids[k]);
            redis_server_await(c->nodes[i].port, "", command, c->ids[k]);
        }
}

static void cluster_stop(cluster *c) {
    for (int i = 0; i < N_NODES; i++) redis_server_stop(&c->nodes[i]);
}

static int node_of(int object) {
    char name[POOL_NAME_CHARS + 1];
    pool_check_name(object, name);
    const int node = redis_slot(name, POOL_NAME_CHARS) / N_SLOTS_EACH;
    return node == N_NODES ? N_NODES - 1 : node;
}

static void set_slot(const cluster *c, int on, int slot, const char *what, int node) {
    char command[LINE_BYTES];
    snprintf(command, sizeof(command), "cluster setslot %d %s %s", slot, what, c->ids[node]);
    if (!strstr(redis_server_ask(c->nodes[on].port, "", command), "OK")) fail_msg("%s", command);
}

static void migrate(const cluster *c, int from, int to, int object, int chunk) {
    char command[LINE_BYTES], name[POOL_NAME_CHARS + 1];
    pool_check_name(object, name);
    snprintf(command, sizeof(command), "migrate 127.0.0.1 %d 'reprise:{%s}:%d' 0 5000", c->nodes[to].port, name, chunk);
    if (!strstr(redis_server_ask(c->nodes[from].port, "", command), "OK")) fail_msg("%s", command);
}

/* A slot is on its way: some chunks of an object are there, some are not yet; and a link that has not heard of it. */
static void check_migrating_slot(cluster *c, const char *address) {
    pool_driver *d = pool_check_driver(address);
    pool_link *l = pool_check_link(d), *late = pool_check_link(d);
    char name[POOL_NAME_CHARS + 1];
    const int object = 77, from = node_of(object), to = (from + 1) % N_NODES;
    pool_check_name(object, name);
    const int slot = redis_slot(name, POOL_NAME_CHARS);
    put(l, object, bytes, sizeof(bytes));
    expect(late, object, bytes, sizeof(bytes));
    set_slot(c, to, slot, "importing", from);
    set_slot(c, from, slot, "migrating", to);
    expect(l, object, bytes, sizeof(bytes));
    migrate(c, from, to, object, 1);
    migrate(c, from, to, object, 3);
    expect(l, object, bytes, sizeof(bytes));
    put(l, object, other_bytes, sizeof(bytes) - 1); /* here and there */
    expect(l, object, other_bytes, sizeof(bytes) - 1);
    remove_object(l, object);
    expect(l, object, NULL, 0);
    put(l, object, bytes, sizeof(bytes)); /* all of it there */
    expect(l, object, bytes, sizeof(bytes));
    expect(late, object, bytes, sizeof(bytes));
    put(l, object, other_bytes, REDIS_CHUNK_BYTES);
    expect(l, object, other_bytes, REDIS_CHUNK_BYTES);
    put(l, object, bytes, sizeof(bytes));
    for (int i = 0; i < N_NODES; i++) set_slot(c, (to + i) % N_NODES, slot, "node", to);
    expect(late, object, bytes, sizeof(bytes)); /* MOVED */
    expect(l, object, bytes, sizeof(bytes));
    put(late, object, other_bytes, sizeof(bytes));
    expect(l, object, other_bytes, sizeof(bytes));
    remove_object(l, object);
    pool_link_close(l);
    pool_link_close(late);
    pool_driver_close(d);
}

typedef struct resharding {
    pthread_t thread;
    const cluster *cluster;
    _Atomic bool is_over;
} resharding;

/* Some hundred slots of the first node to the second one. redis_server_ask is the other thread's. */
static void *reshard(void *arg) {
    resharding *r = arg;
    char line[LINE_BYTES];
    snprintf(line, sizeof(line),
             "redis-cli --cluster reshard 127.0.0.1:%d --cluster-from %s --cluster-to %s --cluster-slots 300"
             " --cluster-yes >/dev/null 2>&1",
             r->cluster->nodes[0].port, r->cluster->ids[0], r->cluster->ids[1]);
    const bool is_done = system(line) == 0;
    r->is_over = true;
    return is_done ? r : NULL;
}

/* Objects of every node are written and read while slots migrate. */
static void check_resharding(const cluster *c, const char *address) {
    pool_driver *d = pool_check_driver(address);
    pool_link *writer = pool_check_link(d), *reader = pool_check_link(d);
    resharding r = {.cluster = c};
    void *is_done;
    pthread_create(&r.thread, NULL, reshard, &r);
    for (int round = 0; !r.is_over; round++)
        for (int i = 0; i < 60; i++) {
            put(writer, 500 + i, round % 2 ? bytes : other_bytes, 4096 + (size_t)i);
            expect(reader, 500 + i, round % 2 ? bytes : other_bytes, 4096 + (size_t)i);
        }
    pthread_join(r.thread, &is_done);
    assert_non_null(is_done);
    pool_check(address);
    for (int i = 0; i < 60; i++) remove_object(writer, 500 + i);
    pool_link_close(writer);
    pool_link_close(reader);
    pool_driver_close(d);
}

/* The seed of an address, or a node with slots: what it does not serve still is. */
static void check_lost_node(cluster *c, const char *address) {
    pool_driver *d = pool_check_driver(address);
    pool_link *l = pool_check_link(d);
    rp_error err = {0};
    int there = 0, lost = 0;
    while (node_of(there) != 1) there++;
    while (node_of(lost) != 2) lost++;
    put(l, there, bytes, 1000);
    put(l, lost, bytes, 1000);
    redis_server_kill(&c->nodes[2]);
    expect(l, there, bytes, 1000);
    uint8_t byte;
    pool_range range = {.bytes = &byte, .n = 1};
    pool_check_name(lost, range.name);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pool_get(l, &range, 1, base_clock_us() + SOON_US, &err), RP_ERR_IO);
        if (errno != ECONNREFUSED && errno != EAGAIN) fail_msg("errno %d: %s", errno, err.message);
        expect(l, there, bytes, 1000);
    }
    redis_server_signal(&c->nodes[1], SIGSTOP);
    pool_range hangs = {.bytes = &byte, .n = 1};
    pool_check_name(there, hangs.name);
    const uint64_t begin_us = base_clock_us();
    assert_int_equal(pool_get(l, &hangs, 1, begin_us + 300000, &err), RP_ERR_IO);
    assert_int_equal(errno, ETIMEDOUT);
    redis_server_signal(&c->nodes[1], SIGCONT);
    redis_server_await(c->nodes[0].port, "", "ping", "PONG");
    expect(l, there, bytes, 1000);
    pool_link_close(l);
    pool_driver_close(d);
}

static void on_a_cluster(void **state) {
    (void)state;
    needs_redis();
    cluster c;
    char address[ADDRESS_BYTES];
    cluster_start(&c);
    snprintf(address, sizeof(address), "redis://127.0.0.1:%d,127.0.0.1:%d?cluster=yes", redis_server_free_port(),
             c.nodes[1].port);
    pool_check(address);                                                         /* the first seed is not there */
    snprintf(address, sizeof(address), "redis://127.0.0.1:%d", c.nodes[0].port); /* it turns out to be one */
    pool_check(address);
    check_migrating_slot(&c, address);
    check_resharding(&c, address);
    for (int i = 0; i < N_NODES; i++) assert_non_null(strstr(redis_server_ask(c.nodes[i].port, "", "dbsize"), "0\n"));
    check_refused("redis://127.0.0.1:%d?cluster=no&prefix=x%.0s", c.nodes[node_of(1) == 0].port, "", EPROTO, EPROTO);
    snprintf(address, sizeof(address), "redis://127.0.0.1:%d,127.0.0.1:%d", c.nodes[2].port, c.nodes[0].port);
    check_lost_node(&c, address);
    cluster_stop(&c);
}

static void a_server_is_no_cluster(void **state) {
    (void)state;
    needs_redis();
    redis_server s;
    redis_server_start(&s, "--port %d");
    check_refused("redis://127.0.0.1:%d?cluster=yes&prefix=x%.0s", s.port, "", EPROTO, EPROTO);
    redis_server_stop(&s);
}

/* ---- Sentinels ---- */

static const char *master_port(const redis_server *sentinel) {
    return redis_server_ask(sentinel->port, "-a watch", "sentinel get-master-addr-by-name pool");
}

/* Waits until the replica has all that the master was sent so far. */
static void await_replica(const redis_server *master, const redis_server *replica) {
    redis_server_ask(master->port, "-a s3cret", "set mark here");
    redis_server_await(replica->port, "-a s3cret", "get mark", "here");
}

/* Waits until the Sentinel has another master, which is ready. */
static void await_failover(const redis_server *sentinel, const redis_server *new) {
    char text[16];
    snprintf(text, sizeof(text), "\n%d\n", new->port);
    const uint64_t deadline_us = base_clock_us() + 3 * SOON_US;
    while (!strstr(master_port(sentinel), text)) assert_true(base_clock_us() < deadline_us);
    redis_server_await(new->port, "-a s3cret", "role", "master");
}

static void with_sentinels(void **state) {
    (void)state;
    needs_redis();
    redis_server master, replica, sentinel;
    char line[LINE_BYTES], address[ADDRESS_BYTES];
    redis_server_start(&master, "--port %d --requirepass s3cret --masterauth s3cret --repl-diskless-sync-delay 0");
    snprintf(line, sizeof(line), "--port %%d --requirepass s3cret --masterauth s3cret --replicaof 127.0.0.1 %d",
             master.port);
    redis_server_start(&replica, line);
    redis_server_await(replica.port, "-a s3cret", "info replication", "master_link_status:up");
    snprintf(line, sizeof(line),
             "requirepass watch\nsentinel monitor pool 127.0.0.1 %d 1\nsentinel auth-pass pool s3cret\n"
             "sentinel down-after-milliseconds pool 500\nsentinel failover-timeout pool 3000\n",
             master.port);
    redis_sentinel_start(&sentinel, line);
    redis_server_await(sentinel.port, "-a watch", "sentinel replicas pool", "master-link-status\nok");
    check_refused("redis://:s3cret@127.0.0.1:%d?sentinel=pool&prefix=x%.0s", sentinel.port, "", EACCES, EACCES);
    redis_server_ask(sentinel.port, "-a watch", "acl setuser default '>s3cret'");
    check_refused("redis://:s3cret@127.0.0.1:%d?sentinel=other&prefix=x%.0s", sentinel.port, "", ENOENT, ENOENT);
    snprintf(address, sizeof(address), "redis://:s3cret@127.0.0.1:%d,127.0.0.1:%d/2?sentinel=pool",
             redis_server_free_port(), sentinel.port);
    pool_check(address);
    pool_driver *d = pool_check_driver(address);
    pool_link *l = pool_check_link(d), *writer = pool_check_link(d);
    put(l, 1, bytes, sizeof(bytes));
    put(writer, 2, bytes, sizeof(bytes));
    await_replica(&master, &replica);
    redis_server_kill(&master);
    pool_check_fails(l, ECONNREFUSED, ETIMEDOUT);
    await_failover(&sentinel, &replica);
    expect(l, 2, bytes, sizeof(bytes));
    put(writer, 1, other_bytes, sizeof(bytes)); /* its connection was lost meanwhile */
    expect(l, 1, other_bytes, sizeof(bytes));
    snprintf(line, sizeof(line), "replicaof 127.0.0.1 %d", redis_server_free_port()); /* no master for now */
    redis_server_ask(replica.port, "-a s3cret", line);
    const struct iovec piece = {bytes, 1};
    char name[POOL_NAME_CHARS + 1];
    rp_error err = {0};
    pool_check_name(3, name);
    assert_int_equal(pool_put(writer, name, &piece, 1, base_clock_us() + SOON_US, &err), RP_ERR_IO);
    assert_string_equal(pool_cause_name(errno), "read_only");
    redis_server_ask(replica.port, "-a s3cret", "replicaof no one");
    put(writer, 3, bytes, 1);
    pool_link_close(l);
    pool_link_close(writer);
    pool_driver_close(d);
    redis_server_stop(&sentinel);
    redis_server_stop(&replica);
    redis_server_stop(&master);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_tls),
        cmocka_unit_test(a_server_is_no_cluster),
        cmocka_unit_test(on_a_cluster),
        cmocka_unit_test(with_sentinels),
    };
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)(i * 37 + i / 255);
        other_bytes[i] = (uint8_t)(i * 91 + i / 253);
    }
    is_here = redis_server_is_here("redis-server") && redis_server_is_here("redis-sentinel") &&
              redis_server_is_here("openssl");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
