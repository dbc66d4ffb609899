/* SPDX-License-Identifier: Apache-2.0 */
/* test_pool_redis.c: a pool on one Redis server: as every driver; users; a server that hangs, is killed, full,
 * evicting, flushed; hostile replies; addresses. Without redis-server the tests of a real server are skipped. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <setjmp.h>
#include <stdarg.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/memory.h"
#include "store/remote/redis_address.h"
#include "store/remote/redis_batch.h"
#include "support/must.h"
#include "support/pool_check.h"
#include "support/redis_server.h"

#define SOON_US 10000000
#define SHORT_US 300000
#define MIB ((size_t)1 << 20)
#define ADDRESS_BYTES 256

static bool is_here;
static uint8_t bytes[8 * MIB + 1];

static void needs_redis(void) {
    if (!is_here) skip();
}

static pool_driver *driver_of(const char *format, int port) {
    char address[ADDRESS_BYTES];
    snprintf(address, sizeof(address), format, port);
    return pool_check_driver(address);
}

/* The cause of a failed operation; 0: none. */
static int try_put(pool_link *l, int i, size_t n, uint64_t time_us) {
    char name[POOL_NAME_CHARS + 1];
    rp_error err = {0};
    const struct iovec piece = {bytes, n};
    pool_check_name(i, name);
    const int rc = pool_put(l, name, &piece, 1, base_clock_us() + time_us, &err), cause = errno;
    if (rc == RP_OK) return 0;
    assert_int_equal(rc, RP_ERR_IO);
    assert_true(err.message[0] != '\0' && cause != 0);
    return cause;
}

/* *n: bytes of object i, 0 and an absent one alike. */
static int try_get(pool_link *l, int i, size_t *n, uint64_t time_us) {
    static uint8_t got[sizeof(bytes)];
    rp_error err = {0};
    pool_range r = {.bytes = got, .n = sizeof(got)};
    pool_check_name(i, r.name);
    const int rc = pool_get(l, &r, 1, base_clock_us() + time_us, &err), cause = errno;
    *n = rc == RP_OK ? r.got : 0;
    if (rc == RP_OK) return memcmp(got, bytes, r.got) == 0 ? 0 : -1;
    assert_int_equal(rc, RP_ERR_IO);
    return cause;
}

static void expect_object(pool_link *l, int i, size_t n) {
    size_t got;
    assert_int_equal(try_get(l, i, &got, SOON_US), 0);
    assert_int_equal(got, n);
}

/* ---- a real server ---- */

static void it_is_a_driver(void **state) {
    (void)state;
    needs_redis();
    redis_server s;
    char address[ADDRESS_BYTES];
    redis_server_start(&s, "--port %d --databases 4");
    snprintf(address, sizeof(address), "redis://127.0.0.1:%d", s.port);
    pool_check(address);
    assert_non_null(strstr(redis_server_ask(s.port, "", "dbsize"), "0\n")); /* no chunk is left */
    snprintf(address, sizeof(address), "redis://127.0.0.1:1,localhost:%d/3?prefix=other:&ttl=100&cluster=no", s.port);
    pool_check(address);
    pool_driver *d = driver_of("redis://127.0.0.1:%d/3?prefix=p%%3A&ttl=100", s.port);
    pool_link *l = pool_check_link(d);
    assert_int_equal(try_put(l, 7, 3 * MIB, SOON_US), 0);
    assert_non_null(strstr(redis_server_ask(s.port, "-n 3", "--scan"), "p:{"));
    assert_non_null(strstr(redis_server_ask(s.port, "-n 3", "info keyspace"), "keys=4,expires=4"));
    pool_link_close(l);
    pool_driver_close(d);
    redis_server_stop(&s);
}

/* Chunks of a longer object that an object replaces are removed, at most 64 of them at once. */
static void a_shorter_object_leaves_no_chunk_of_a_longer_one(void **state) {
    (void)state;
    needs_redis();
    redis_server s;
    redis_server_start(&s, "--port %d");
    pool_driver *d = driver_of("redis://127.0.0.1:%d", s.port);
    pool_link *l = pool_check_link(d);
    char name[POOL_NAME_CHARS + 1];
    rp_error err = {0};
    pool_check_name(5, name);
    struct iovec pieces[20];
    for (int i = 0; i < 20; i++) pieces[i] = (struct iovec){bytes, i % 7 == 6 ? 0 : 8 * MIB};
    must(pool_put(l, name, pieces, 20, base_clock_us() + SOON_US, &err), &err); /* 18 * 8 MiB */
    assert_non_null(strstr(redis_server_ask(s.port, "", "dbsize"), "145\n"));
    assert_int_equal(try_put(l, 5, 2 * REDIS_CHUNK_BYTES, SOON_US), 0);
    assert_non_null(strstr(redis_server_ask(s.port, "", "dbsize"), "2\n"));
    expect_object(l, 5, 2 * REDIS_CHUNK_BYTES);
    for (int i = 0; i < 20; i++) pieces[i].iov_len = 8 * MIB;
    must(pool_put(l, name, pieces, 20, base_clock_us() + SOON_US, &err), &err);
    must(pool_remove(l, name, base_clock_us() + SOON_US, &err), &err);
    assert_non_null(strstr(redis_server_ask(s.port, "", "dbsize"), "0\n"));
    struct iovec many[70]; /* more than a batch has chunks */
    for (int i = 0; i < 70; i++) many[i] = (struct iovec){bytes, 8 * MIB};
    assert_int_equal(pool_put(l, name, many, 70, base_clock_us() + SOON_US, &err), RP_ERR_IO);
    assert_string_equal(pool_cause_name(errno), "too_large");
    pool_link_close(l);
    pool_driver_close(d);
    redis_server_stop(&s);
}

static void users_and_passwords(void **state) {
    (void)state;
    needs_redis();
    redis_server s;
    char address[ADDRESS_BYTES], path[STORE_FOLDER_BYTES + 16];
    redis_server_start(&s, "--port %d --requirepass s3cret");
    redis_server_ask(s.port, "-a s3cret", "acl setuser reader on '>reads' '~*' +get +getrange +exists");
    redis_server_ask(s.port, "-a s3cret",
                     "acl setuser pool on '>p@ss/word' '~reprise:*' +set +getrange +exists +unlink +multi +exec");
    snprintf(address, sizeof(address), "redis://:s3cret@127.0.0.1:%d/1", s.port);
    pool_check(address);
    snprintf(address, sizeof(address), "redis://pool:p%%40ss%%2Fword@127.0.0.1:%d", s.port);
    pool_check(address);
    snprintf(path, sizeof(path), "%s/password", s.folder);
    FILE *f = fopen(path, "w");
    fputs("p@ss/word\n", f);
    fclose(f);
    chmod(path, 0600);
    snprintf(address, sizeof(address), "redis://pool@127.0.0.1:%d?password_file=%s", s.port, path);
    pool_check(address);
    static const char *const wrong[] = {"redis://127.0.0.1:%d", "redis://:wrong@127.0.0.1:%d",
                                        "redis://pool:s3cret@127.0.0.1:%d"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        pool_driver *d = driver_of(wrong[i], s.port);
        pool_link *l = pool_check_link(d);
        pool_check_fails(l, EACCES, EACCES);
        assert_int_equal(try_put(l, 1, 10, SOON_US), EACCES);
        pool_link_close(l);
        pool_driver_close(d);
    }
    pool_driver *d = driver_of("redis://reader:reads@127.0.0.1:%d", s.port);
    pool_link *l = pool_check_link(d);
    assert_int_equal(try_put(l, 1, 3 * MIB, SOON_US), EACCES);
    expect_object(l, 1, 0); /* nothing of it */
    pool_link_close(l);
    pool_driver_close(d);
    redis_server_stop(&s);
}

/* It hangs, comes back, loses connections, is killed, and starts again: the link works when the server does. */
static void a_link_outlives_its_server(void **state) {
    (void)state;
    needs_redis();
    redis_server s;
    redis_server_start(&s, "--port %d");
    pool_driver *d = driver_of("redis://127.0.0.1:%d", s.port);
    pool_link *l = pool_check_link(d);
    assert_int_equal(try_put(l, 1, 2 * MIB, SOON_US), 0);
    redis_server_signal(&s, SIGSTOP);
    pool_check_fails(l, ETIMEDOUT, ETIMEDOUT);
    assert_int_equal(try_put(l, 2, 8 * MIB, SHORT_US), ETIMEDOUT);
    assert_int_equal(try_put(l, 2, 8 * MIB, 0), ETIMEDOUT);
    redis_server_signal(&s, SIGCONT);
    expect_object(l, 1, 2 * MIB);
    redis_server_ask(s.port, "", "client kill type normal skipme yes");
    expect_object(l, 1, 2 * MIB); /* between operations: nobody notices */
    redis_server_ask(s.port, "", "client kill type normal skipme yes");
    assert_int_equal(try_put(l, 2, 3 * MIB, SOON_US), 0);
    redis_server_ask(s.port, "", "flushall");
    expect_object(l, 1, 0);
    redis_server_kill(&s);
    pool_check_fails(l, ECONNREFUSED, ECONNREFUSED);
    redis_server_restart(&s, "--port %d");
    expect_object(l, 1, 0);
    assert_int_equal(try_put(l, 1, 3 * MIB, SOON_US), 0);
    expect_object(l, 1, 3 * MIB);
    pool_link_close(l);
    pool_driver_close(d);
    redis_server_stop(&s);
}

typedef struct worker {
    pthread_t thread;
    pool_link *link;
    bool puts;
    _Atomic int n_done, cause; /* of the first failure */
} worker;

static void *work_until_failure(void *arg) {
    worker *w = arg;
    for (int cause = 0; cause == 0; w->n_done++) {
        size_t n;
        cause = w->puts ? try_put(w->link, 1, 8 * MIB, SOON_US) : try_get(w->link, 1, &n, SOON_US);
        w->cause = cause;
    }
    return NULL;
}

/* Connections are killed again and again: every operation succeeds, or fails by a loss, and no get has wrong bytes.
 * Then the server is. */
static void losses_during_operations(void **state) {
    (void)state;
    needs_redis();
    redis_server s;
    redis_server_start(&s, "--port %d");
    pool_driver *d = driver_of("redis://127.0.0.1:%d", s.port);
    pool_link *l = pool_check_link(d);
    for (int round = 0; round < 4; round++) {
        worker workers[2] = {{.link = pool_check_link(d)}, {.link = pool_check_link(d), .puts = true}};
        assert_int_equal(try_put(l, 1, 8 * MIB, SOON_US), 0);
        for (int i = 0; i < 2; i++) pthread_create(&workers[i].thread, NULL, work_until_failure, &workers[i]);
        for (int i = 0; i < 2; i++)
            while (workers[i].n_done < 3 && !workers[i].cause) sched_yield();
        for (int i = 0; i < 20 && round < 3; i++) redis_server_ask(s.port, "", "client kill type normal skipme yes");
        redis_server_kill(&s);
        for (int i = 0; i < 2; i++) {
            pthread_join(workers[i].thread, NULL);
            const int cause = workers[i].cause;
            if (cause != ECONNRESET && cause != EPIPE && cause != ECONNREFUSED) fail_msg("errno %d", cause);
            pool_link_close(workers[i].link);
        }
        redis_server_restart(&s, "--port %d");
    }
    pool_link_close(l);
    pool_driver_close(d);
    redis_server_stop(&s);
}

/* maxmemory of about one object: without eviction the second one does not fit, and nothing of it is there; with
 * eviction it is, or a part of it, whose bytes are right. */
static void a_full_server(void **state) {
    (void)state;
    needs_redis();
    redis_server s;
    redis_server_start(&s, "--port %d --maxmemory 8mb --maxmemory-policy noeviction");
    pool_driver *d = driver_of("redis://127.0.0.1:%d", s.port);
    pool_link *l = pool_check_link(d);
    assert_int_equal(try_put(l, 1, 4 * MIB, SOON_US), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(try_put(l, 2, 8 * MIB, SOON_US), ENOSPC);
    assert_string_equal(pool_cause_name(ENOSPC), "no_space");
    expect_object(l, 1, 4 * MIB);
    expect_object(l, 2, 0);
    redis_server_ask(s.port, "", "config set maxmemory-policy allkeys-lru");
    for (int i = 2; i < 12; i++) {
        size_t n;
        assert_int_equal(try_put(l, i, 3 * MIB, SOON_US), 0);
        assert_int_equal(try_get(l, i, &n, SOON_US), 0);
    }
    pool_link_close(l);
    pool_driver_close(d);
    redis_server_stop(&s);
}

/* ---- no server, or a hostile one ---- */

static void nobody_listens(void **state) {
    (void)state;
    pool_driver *d = driver_of("redis://127.0.0.1:%d", redis_server_free_port());
    pool_link *l = pool_check_link(d);
    pool_check_fails(l, ECONNREFUSED, ECONNREFUSED);
    pool_link_close(l);
    pool_driver_close(d);
    d = driver_of("redis://no-such-host.invalid:%d", 6379);
    l = pool_check_link(d);
    pool_check_fails(l, EHOSTUNREACH, ETIMEDOUT);
    pool_link_close(l);
    pool_driver_close(d);
}

/* In place of the system's: a name server that does not answer until it is allowed to. */
static pthread_mutex_t name_server = PTHREAD_MUTEX_INITIALIZER;

int getaddrinfo(const char *host, const char *port, const struct addrinfo *wanted, struct addrinfo **out) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (strcmp(host, "slow.example") != 0 || wanted->ai_flags & AI_NUMERICHOST) return real(host, port, wanted, out);
    pthread_mutex_lock(&name_server); /* one at a time: ThreadSanitizer does not see the locks of the system's */
    const int failed = real("127.0.0.1", port, wanted, out);
    pthread_mutex_unlock(&name_server);
    return failed;
}

static void a_slow_name_server(void **state) {
    (void)state;
    pool_driver *d = driver_of("redis://slow.example:%d", redis_server_free_port());
    pool_link *l = pool_check_link(d);
    pthread_mutex_lock(&name_server);
    pool_check_fails(l, ETIMEDOUT, ETIMEDOUT);
    int cause = 0;
    for (int i = 0; i < 100 && cause != EAGAIN; i++)
        cause = try_put(l, 1, 1, 1000); /* look-ups that wait have a limit */
    assert_int_equal(cause, EAGAIN);
    pthread_mutex_unlock(&name_server);
    do cause = try_put(l, 1, 1, SOON_US);
    while (cause == EAGAIN);
    assert_int_equal(cause, ECONNREFUSED);
    pool_link_close(l);
    pool_driver_close(d);
}

typedef struct hostile_case {
    const char *script;
    size_t n; /* 0: a string */
    bool repeats, holds;
    int cause, or_cause;
    const char *options; /* of the address */
} hostile_case;

static const hostile_case hostile_cases[] = {
    {.script = "HTTP/1.1 400 Bad Request\r\n\r\n", .cause = EPROTO},
    {.script = "\r\n", .cause = EPROTO},
    {.script = ":1\n", .cause = EPROTO},
    {.script = ":\r\n", .cause = EPROTO},
    {.script = ":2\r\n", .cause = EPROTO},
    {.script = ":99999999999999999999\r\n", .cause = EPROTO},
    {.script = "+OK\r\n$1\r\na\r\n", .cause = EPROTO},
    {.script = ":1\r\n$-1\r\n", .cause = EPROTO},
    {.script = ":1\r\n$-2\r\n", .cause = EPROTO},
    {.script = ":1\r\n$2\r\nab\r\n", .cause = EPROTO}, /* more than was asked for */
    {.script = ":1\r\n$9223372036854775807\r\n", .holds = true, .cause = EPROTO},
    {.script = ":1\r\n$1\r\nab\r\n", .cause = EPROTO},
    {.script = ":1\r\n*1\r\n$1\r\na\r\n", .cause = EPROTO},
    {.script = ":1\r\n$1\r\n", .cause = EPROTO}, /* a new connection answers a GETRANGE alone with :1 */
    {.script = ":1\r\n$1\r\n", .holds = true, .cause = ETIMEDOUT},
    {.script = ":1", .holds = true, .cause = ETIMEDOUT},
    {.script = "", .holds = true, .cause = ETIMEDOUT},
    {.script = "", .cause = ECONNRESET, .or_cause = EPIPE},
    {.script = "\0\0\0\0", .n = 4, .repeats = true, .cause = EPROTO},
    {.script = "xxxxxxxxxxxxxxxx", .repeats = true, .cause = EPROTO},
    {.script = "-LOADING Redis is loading the dataset in memory\r\n", .repeats = true, .cause = EAGAIN},
    {.script = "-ERR \x01\x1b[31m\xff\r\n", .repeats = true, .cause = EPROTO},
    {.script = "-MOVED 1 127.0.0.1:1\r\n", .repeats = true, .cause = EPROTO, .options = "?cluster=no"},
    {.script = "-MOVED 16384 127.0.0.1:1\r\n", .repeats = true, .cause = EPROTO},
    {.script = "-ASK 1 nonsense\r\n", .repeats = true, .cause = EPROTO},
    {.script = "-MOVED 1 :70000\r\n", .repeats = true, .cause = EPROTO},
    {.script = "*1\r\n", .repeats = true, .cause = EPROTO, .options = "?cluster=yes"},
    {.script = "*1\r\n*4\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:1\r\n"
               "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
     .cause = EPROTO,
     .options = "?cluster=yes"},
    {.script = "*16385\r\n", .cause = EPROTO, .options = "?cluster=yes"},
    {.script = "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\nh\r\n:1\r\n", .cause = EPROTO, .options = "?cluster=yes"},
    {.script = "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1000000000\r\n",
     .holds = true,
     .cause = EPROTO,
     .options = "?cluster=yes"},
    {.script = "*1\r\n*3\r\n:0\r\n:1\r\n*1000000\r\n$1\r\nh\r\n:1\r\n:1\r\n:1\r\n",
     .holds = true,
     .cause = ETIMEDOUT,
     .options = "?cluster=yes"},
    {.script = "-ERR This instance has cluster support disabled\r\n", .cause = EPROTO, .options = "?cluster=yes"},
    {.script = "*-1\r\n", .cause = ENOENT, .options = "?sentinel=m"},
    {.script = "*2\r\n$9\r\n127.0.0.1\r\n$5\r\n99999\r\n", .cause = EPROTO, .options = "?sentinel=m"},
    {.script = "*2\r\n$300\r\n", .cause = EPROTO, .options = "?sentinel=m"},
    {.script = "-NOAUTH Authentication required.\r\n", .cause = EACCES, .options = "?sentinel=m"},
};

static void hostile_replies(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(hostile_cases) / sizeof(hostile_cases[0]); i++) {
        const hostile_case *c = &hostile_cases[i];
        scripted_server s;
        char address[ADDRESS_BYTES];
        scripted_server_start(&s, c->script, c->n > 0 ? c->n : strlen(c->script), c->repeats, c->holds);
        snprintf(address, sizeof(address), "redis://127.0.0.1:%%d%s", c->options ? c->options : "");
        pool_driver *d = driver_of(address, s.port);
        pool_link *l = pool_check_link(d);
        pool_check_fails(l, c->cause, c->or_cause ? c->or_cause : c->cause);
        pool_link_close(l);
        pool_driver_close(d);
        scripted_server_stop(&s);
    }
}

/* ---- addresses ---- */

static void addresses_are_read(void **state) {
    (void)state;
    redis_address a;
    rp_error err = {0};
    must(redis_address_parse(&a, "redis://[::1],b.example:7000,c/12?sentinel=my%20master&ttl=60&prefix=x:", &err),
         &err);
    assert_int_equal(a.n_hosts, 3);
    assert_string_equal(a.hosts[0].name, "::1");
    assert_int_equal(a.hosts[0].port, 26379);
    assert_string_equal(a.hosts[1].name, "b.example");
    assert_int_equal(a.hosts[1].port, 7000);
    assert_int_equal(a.db, 12);
    assert_int_equal(a.ttl_s, 60);
    assert_string_equal(a.sentinel, "my master");
    redis_address_free(&a);
    must(redis_address_parse(&a, "rediss://u%40:p%3a%2f@h?cluster=yes", &err), &err);
    assert_true(a.is_tls && a.cluster == REDIS_CLUSTER_YES && a.hosts[0].port == 6379);
    assert_string_equal(a.user, "u@");
    assert_string_equal(a.password, "p:/");
    redis_address_free(&a);
}

static void wrong_addresses_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *address, *part; /* of the message */
    } wrong[] = {
        {"redis://", "host 1"},
        {"redis://h,", "host 2"},
        {"redis://h:0", "port of host 1"},
        {"redis://h:65536", "port of host 1"},
        {"redis://h:+1", "port of host 1"},
        {"redis://[::1", "host 1"},
        {"redis://[::1]x", "host 1"},
        {"redis://::1", "host 1"},
        {"redis://user:SECRET@more@h", "host 1"},
        {"redis://user:SECRET/more@h", "port of host 1"},
        {"redis://user:SEC%RET@h", "password"},
        {"redis://user:SEC%00RET@h", "password"},
        {"redis://user@h", "needs a password"},
        {"redis://user:SECRET@h?password_file=/f", "exclude each other"},
        {"redis://h/x", "database"},
        {"redis://h/65536", "database"},
        {"redis://h/1/2", "database"},
        {"redis://h?", "not an option"},
        {"redis://h?clusters=yes", "use cluster, sentinel, prefix, ttl, password_file, ca, cert, key"},
        {"redis://h?cluster=maybe", "auto, yes or no"},
        {"redis://h?cluster=yes&cluster=yes", "twice"},
        {"redis://h?cluster=yes&sentinel=m", "exclude"},
        {"redis://h/1?cluster=yes", "database 0"},
        {"redis://h?ttl=-1", "ttl"},
        {"redis://h?ttl=999999999", "ttl"},
        {"redis://h?sentinel", "no value"},
        {"redis://h?prefix=a{b", "brace"},
        {"redis://h?prefix=a%0Ab", "prefix"},
        {"redis://h?ca=/f", "rediss://"},
        {"rediss://h?cert=/f", "need each other"},
        {"redis://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "more than 16"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        pool_driver *d;
        rp_error err = {0};
        assert_int_equal(pool_driver_open(&d, wrong[i].address, &err), RP_ERR_INVALID);
        assert_null(d);
        if (!strstr(err.message, wrong[i].part)) fail_msg("%s: %s", wrong[i].address, err.message);
        assert_null(strstr(err.message, "SEC"));
    }
    pool_driver *d;
    rp_error err = {0};
    assert_int_equal(pool_driver_open(&d, "redis://u@h?password_file=/no/such/file", &err), RP_ERR_IO);
}

static void slots_are_those_of_the_specification(void **state) {
    (void)state;
    assert_int_equal(redis_slot("123456789", 9), 0x31C3); /* the specification's example */
    assert_int_equal(redis_slot("", 0), 0);
    assert_int_equal(redis_slot("foo", 3), 12182);
}

/* Each allocation fails in turn: opening and a failing operation report it, and nothing leaks. */
static void every_failing_allocation_is_reported(void **state) {
    (void)state;
    scripted_server s;
    char address[ADDRESS_BYTES];
    static const char script[] = "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\n?\r\n:1\r\n";
    scripted_server_start(&s, script, sizeof(script) - 1, false, false);
    snprintf(address, sizeof(address), "redis://u:p@127.0.0.1:%d?cluster=yes&prefix=p:&sentinel=", s.port);
    strrchr(address, '&')[0] = '\0';
    for (uint64_t n = 1;; n++) {
        pool_driver *d = NULL;
        pool_link *l = NULL;
        rp_error err = {0};
        char name[POOL_NAME_CHARS + 1];
        pool_check_name(1, name);
        (void)base_alloc_count();
        base_alloc_fail_at(n, 0);
        int rc = pool_driver_open(&d, address, &err);
        if (!rc) rc = pool_link_open(d, &l, &err);
        if (!rc) rc = pool_remove(l, name, base_clock_us() + SOON_US, &err);
        base_alloc_fail_at(0, 0);
        assert_true(rc == RP_ERR_MEMORY || rc == RP_ERR_IO);
        const bool is_last = base_alloc_count() < n;
        pool_link_close(l);
        pool_driver_close(d);
        if (is_last) break;
        assert_int_equal(rc, RP_ERR_MEMORY);
    }
    scripted_server_stop(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_read),
        cmocka_unit_test(wrong_addresses_are_refused),
        cmocka_unit_test(slots_are_those_of_the_specification),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(a_slow_name_server),
        cmocka_unit_test(hostile_replies),
        cmocka_unit_test(every_failing_allocation_is_reported),
        cmocka_unit_test(it_is_a_driver),
        cmocka_unit_test(a_shorter_object_leaves_no_chunk_of_a_longer_one),
        cmocka_unit_test(users_and_passwords),
        cmocka_unit_test(a_link_outlives_its_server),
        cmocka_unit_test(losses_during_operations),
        cmocka_unit_test(a_full_server),
    };
    for (size_t i = 0; i < sizeof(bytes); i++) bytes[i] = (uint8_t)(i * 37 + i / 255);
    is_here = redis_server_is_here("redis-server");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
