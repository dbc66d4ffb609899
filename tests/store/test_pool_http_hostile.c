/* SPDX-License-Identifier: Apache-2.0 */
/* test_pool_http_hostile.c: a pool over HTTP on a server that lies, cuts, repeats itself without end, or is silent; and
 * addresses. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "store/remote/pool_http_address.h"
#include "support/must.h"
#include "support/pool_check.h"
#include "support/store_folder.h"
#include "support/web_server.h"

#define SOON_US 10000000
#define SHORT_US 400000
#define BEGIN 10 /* of the range of each get */
#define N 100
#define OBJECT_BYTES 1000
#define MAX_REPLY 4096

/* ---- the server: a connection at a time, a reply for each request ---- */

typedef struct reply {
    const char *head;
    const char *endless; /* repeated without end after the head */
    int n_body;          /* bytes of the object from first_byte on */
    int first_byte;
    bool is_silent, stays; /* sends nothing; keeps the connection */
} reply;

static struct {
    web_server sockets;
    pthread_t thread;
    pthread_mutex_t lock;
    reply replies[8]; /* one after another, then the last. Under lock */
    int n_replies, n_requests;
    _Atomic bool stops;
} server = {.lock = PTHREAD_MUTEX_INITIALIZER};

static char byte_at(int at) { return (char)('a' + at % 26); }

static bool send_all(int fd, const char *bytes, size_t n) {
    while (n > 0) {
        const ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        bytes += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* Reads a head. false: the client has closed the connection. */
static bool receive(int fd) {
    char bytes[MAX_REPLY];
    size_t n = 0;
    while (n < sizeof(bytes) - 1) {
        const ssize_t some = recv(fd, bytes + n, sizeof(bytes) - 1 - n, 0);
        if (some <= 0) return false;
        n += (size_t)some;
        bytes[n] = '\0';
        if (strstr(bytes, "\r\n\r\n")) return true;
    }
    return true;
}

/* true: the connection stays. */
static bool answer(int fd, const reply *r) {
    char body[OBJECT_BYTES];
    if (r->is_silent) {
        char byte;
        while (recv(fd, &byte, 1, 0) > 0) continue; /* until the client gives up */
        return false;
    }
    for (int i = 0; i < r->n_body; i++) body[i] = byte_at(r->first_byte + i);
    bool is_fine = send_all(fd, r->head, strlen(r->head)) && send_all(fd, body, (size_t)r->n_body);
    while (is_fine && r->endless) is_fine = send_all(fd, r->endless, strlen(r->endless));
    return is_fine && r->stays;
}

static void *serve(void *arg) {
    (void)arg;
    for (;;) {
        const int fd = accept(server.sockets.fds[0], NULL, NULL);
        if (fd < 0 || server.stops) break;
        while (receive(fd)) {
            pthread_mutex_lock(&server.lock);
            const int i = server.n_requests++, n = server.n_replies;
            const reply r = server.replies[i < n ? i : n - 1];
            pthread_mutex_unlock(&server.lock);
            if (!answer(fd, &r)) break;
        }
        close(fd);
    }
    return NULL;
}

static void replies_are(const reply *replies, int n) {
    pthread_mutex_lock(&server.lock);
    memcpy(server.replies, replies, (size_t)n * sizeof(*replies));
    server.n_requests = 0;
    server.n_replies = n;
    pthread_mutex_unlock(&server.lock);
}

static int n_requests(void) {
    pthread_mutex_lock(&server.lock);
    const int n = server.n_requests;
    pthread_mutex_unlock(&server.lock);
    return n;
}

static int begin(void **state) {
    (void)state;
    web_server_listen(&server.sockets, 1);
    assert_int_equal(pthread_create(&server.thread, NULL, serve, NULL), 0);
    return 0;
}

static int end(void **state) {
    (void)state;
    server.stops = true;
    shutdown(server.sockets.fds[0], SHUT_RDWR);
    pthread_join(server.thread, NULL);
    close(server.sockets.fds[0]);
    return 0;
}

/* ---- a link to it ---- */

static struct {
    pool_driver *driver;
    pool_link *link;
} pool;

static int open_pool(void **state) {
    char address[64];
    (void)state;
    snprintf(address, sizeof(address), "http://127.0.0.1:%d/pool", server.sockets.ports[0]);
    pool.driver = pool_check_driver(address);
    pool.link = pool_check_link(pool.driver);
    return 0;
}

static int close_pool(void **state) {
    (void)state;
    pool_link_close(pool.link);
    pool_driver_close(pool.driver);
    return 0;
}

/* Gets the range. Returns the cause of a failure, or 0; *got: -1, the object is not there. */
static int get(uint64_t within_us, int *got, rp_error *err) {
    char bytes[N + 1] = "";
    pool_range r = {.begin = BEGIN, .bytes = bytes, .n = N};
    pool_check_name(1, r.name);
    *err = (rp_error){0};
    bytes[N] = '#';
    const int rc = pool_get(pool.link, &r, 1, base_clock_us() + within_us, err), cause = errno;
    assert_int_equal(bytes[N], '#');
    if (rc) {
        assert_int_equal(rc, RP_ERR_IO);
        assert_true(err->message[0] != '\0' && cause != 0);
        return cause;
    }
    *got = r.found ? (int)r.got : -1;
    for (int i = 0; i < *got; i++) assert_int_equal(bytes[i], byte_at(BEGIN + i));
    return 0;
}

#define HEAD(status, headers) "HTTP/1.1 " status "\r\n" headers "\r\n"
#define LENGTH(n) "Content-Length: " #n "\r\n"
#define RANGE(range) "Content-Range: bytes " range "\r\n"
#define CHUNKED "Transfer-Encoding: chunked\r\n"
#define PARTIAL "206 Partial Content"
#define GOOD \
    { .head = HEAD(PARTIAL, RANGE("10-109/1000") LENGTH(100)), .n_body = N, .first_byte = BEGIN }

/* ---- malformed replies ---- */

static void malformed_replies_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *name;
        reply reply;
    } cases[] = {
        {"endless headers", {.head = "HTTP/1.1 200 OK\r\n", .endless = "X-Filler: 0123456789abcdef\r\n"}},
        {"an endless header", {.head = "HTTP/1.1 200 OK\r\nX-Filler: ", .endless = "0123456789abcdef0123456789abcdef"}},
        {"an endless status", {.head = "HTTP/1.1 200 ", .endless = "OK OK OK OK OK OK OK OK OK OK"}},
        {"endless replies before the reply", {.head = "", .endless = HEAD("100 Continue", "")}},
        {"an endless error", {.head = HEAD("404 Not Found", ""), .endless = "not here, not here, not here, "}},
        {"another range", {.head = HEAD(PARTIAL, RANGE("0-99/1000") LENGTH(100)), .n_body = N}},
        {"a longer range", {.head = HEAD(PARTIAL, RANGE("10-110/1000") LENGTH(101)), .n_body = N + 1}},
        {"a shorter range of a longer object", {.head = HEAD(PARTIAL, RANGE("10-59/1000") LENGTH(50)), .n_body = 50}},
        {"a shorter range, of an unknown length",
         {.head = HEAD(PARTIAL, RANGE("10-59/*") LENGTH(50)), .n_body = 50}},
        {"a range past the object's end", {.head = HEAD(PARTIAL, RANGE("10-109/50") LENGTH(100)), .n_body = N}},
        {"a range that ends before it begins", {.head = HEAD(PARTIAL, RANGE("10-9/1000") LENGTH(0))}},
        {"a range of 2^64", {.head = HEAD(PARTIAL, RANGE("10-18446744073709551615/*") LENGTH(100)), .n_body = N}},
        {"no range", {.head = HEAD(PARTIAL, LENGTH(100)), .n_body = N}},
        {"two ranges", {.head = HEAD(PARTIAL, RANGE("10-109/1000") RANGE("0-99/1000") LENGTH(100)), .n_body = N}},
        {"words for a range", {.head = HEAD(PARTIAL, RANGE("ten-109/1000") LENGTH(100)), .n_body = N}},
        {"units", {.head = HEAD(PARTIAL, "Content-Range: lines 10-109/1000\r\n" LENGTH(100)), .n_body = N}},
        {"parts", {.head = HEAD(PARTIAL, "Content-Type: multipart/byteranges; boundary=x\r\n") "--x\r\n", .n_body = N}},
        {"more bytes than the range",
         {.head = HEAD(PARTIAL, RANGE("10-109/1000")), .endless = "abcdefghijklmnopqrstuvwxyz"}},
        {"fewer bytes than the range", {.head = HEAD(PARTIAL, RANGE("10-109/1000")), .n_body = 50}},
        {"an object without a length", {.head = HEAD("200 OK", ""), .n_body = 50}},
        {"no range, although it is there", {.head = HEAD("416 Range Not Satisfiable", RANGE("*/1000") LENGTH(0))}},
        {"an invalid length", {.head = HEAD("200 OK", LENGTH(-5)), .n_body = 50}},
        {"a redirect", {.head = HEAD("302 Found", "Location: /elsewhere\r\n" LENGTH(0))}},
        {"a redirect to a file", {.head = HEAD("301 Moved", "Location: file:///etc/passwd\r\n" LENGTH(0))}},
        {"no content", {.head = HEAD("204 No Content", "")}},
        {"another protocol", {.head = "220 mail.example.org ESMTP\r\n"}},
        {"no protocol", {.head = "\001\002\003\004\377\376\r\n\r\n"}},
        {"endless garbage", {.head = "", .endless = "\001\002\003\004\377\376"}},
        {"a status that is none", {.head = HEAD("999999 What", "")}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const reply good = GOOD;
        rp_error err;
        int got = 0;
        replies_are(&cases[i].reply, 1);
        const int cause = get(SOON_US, &got, &err);
        if (cause != EPROTO) fail_msg("%s: errno %d, %d bytes, %s", cases[i].name, cause, got, err.message);
        if (n_requests() != 1) fail_msg("%s: %d requests, %s", cases[i].name, n_requests(), err.message);
        replies_are(&good, 1); /* the link can be used again */
        if (get(SOON_US, &got, &err)) fail_msg("after %s: %s", cases[i].name, err.message);
        assert_int_equal(got, N);
    }
}

/* ---- unusual replies that are fine ---- */

static void other_servers_are_understood(void **state) {
    (void)state;
    static const struct {
        const char *name;
        reply reply;
        int got;
    } cases[] = {
        {"a part", GOOD, N},
        {"a connection that stays",
         {.head = HEAD(PARTIAL, RANGE("10-109/*") LENGTH(100)), .n_body = N, .first_byte = BEGIN, .stays = true},
         N},
        {"the object's end",
         {.head = HEAD(PARTIAL, RANGE("10-59/60") LENGTH(50)), .n_body = 50, .first_byte = BEGIN},
         50},
        {"lower case",
         {.head = HEAD("206 partial", "content-range: bytes 10-109/1000\r\n"), .n_body = N, .first_byte = BEGIN},
         N},
        {"a server without ranges", {.head = HEAD("200 OK", LENGTH(1000)), .n_body = OBJECT_BYTES}, N},
        {"a short object of it", {.head = HEAD("200 OK", LENGTH(60)), .n_body = 60}, 50},
        {"an object of it that ends with the range", {.head = HEAD("200 OK", LENGTH(110)), .n_body = 110}, N},
        {"an object of it that ends before the range", {.head = HEAD("200 OK", LENGTH(5)), .n_body = 5}, 0},
        {"an endless object of it", {.head = HEAD("200 OK", ""), .endless = "abcdefghijklmnopqrstuvwxyz"}, N},
        {"chunks", {.head = HEAD("200 OK", CHUNKED) "c\r\nabcdefghijkl\r\n3\r\nmno\r\n0\r\n\r\n"}, 5},
        {"an empty object", {.head = HEAD("416 Range Not Satisfiable", RANGE("*/0") LENGTH(0))}, 0},
        {"an empty object of S3", {.head = HEAD("416 Range Not Satisfiable", LENGTH(0))}, 0},
        {"a missing object", {.head = HEAD("404 Not Found", LENGTH(0))}, -1},
        {"a missing object, explained",
         {.head = HEAD("404 Not Found", LENGTH(29)) "<Error><Code>NoSuchKey</Code>"},
         -1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rp_error err;
        int got = -2;
        replies_are(&cases[i].reply, 1);
        const int cause = get(SOON_US, &got, &err);
        if (cause || got != cases[i].got)
            fail_msg("%s: errno %d, %d bytes, %s", cases[i].name, cause, got, err.message);
    }
}

/* ---- statuses and retries ---- */

static void statuses_have_causes(void **state) {
    (void)state;
    static const struct {
        const char *head;
        int cause, n_requests;
        const char *message;
    } cases[] = {
        {HEAD("401 Unauthorized", LENGTH(0)), EACCES, 1, "HTTP status 401"},
        {HEAD("403 Forbidden", LENGTH(40)) "<Error><Code>SignatureDoesNotMatch</Code>", EACCES, 1,
         "403 (SignatureDoesNotMatch)"},
        {HEAD("404 Not Found", LENGTH(32)) "<Error><Code>NoSuchBucket</Code>", ENOENT, 1, "NoSuchBucket"},
        {HEAD("507 Insufficient Storage", LENGTH(0)), ENOSPC, 1, "507"},
        {HEAD("400 Bad Request", LENGTH(0)), EPROTO, 1, "400"},
        {HEAD("500 Internal Server Error", LENGTH(0)), EIO, 4, "500"},
        {HEAD("503 Slow Down", "Retry-After: 0\r\n" LENGTH(31)) "<Error><Code>SlowDown</Code></>", EBUSY, 4,
         "503 (SlowDown)"},
        {HEAD("503 Slow Down", "Retry-After: 3600\r\n" LENGTH(0)), EBUSY, 1, "503"},
        {HEAD("429 Too Many", "Retry-After: Fri, 01 Jan 2100 00:00:00 GMT\r\n" LENGTH(0)), EBUSY, 1, "429"},
        {HEAD(PARTIAL, RANGE("10-109/1000") LENGTH(100)) "abc", ECONNRESET, 4, ""},
        {"HTTP/1.1 206 Partial Con", ECONNRESET, 4, ""},
        {"HTTP/1.1 206 Partial Content\r\nContent-Length: 1000\r\nContent-R", ECONNRESET, 4, ""},
        {HEAD("200 OK", CHUNKED) "zz\r\nabc", ECONNRESET, 4, "chunked"}, /* libcurl's name of it */
        {"", ECONNRESET, 4, ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const reply r = {.head = cases[i].head};
        rp_error err;
        int got;
        replies_are(&r, 1);
        const int cause = get(SOON_US, &got, &err);
        if (cause != cases[i].cause || !strstr(err.message, cases[i].message) || strchr(err.message, '\n'))
            fail_msg("'%s': errno %d, %s", cases[i].head, cause, err.message);
        assert_int_equal(n_requests(), cases[i].n_requests);
    }
}

static void passing_failures_are_retried(void **state) {
    (void)state;
    const reply replies[] = {{.head = HEAD("503 Slow Down", "Retry-After: 0\r\n" LENGTH(0)), .stays = true},
                             {.head = HEAD(PARTIAL, RANGE("10-109/1000") LENGTH(100)), .n_body = 30, .first_byte = 3},
                             {.head = ""},
                             GOOD};
    rp_error err;
    int got;
    replies_are(replies, 4);
    assert_int_equal(get(SOON_US, &got, &err), 0);
    assert_int_equal(got, N);
    assert_int_equal(n_requests(), 4);
    replies_are(replies, 1); /* only as long as the deadline allows */
    const uint64_t begun = base_clock_us();
    assert_int_equal(get(120000, &got, &err), EBUSY);
    assert_true(n_requests() < 4 && base_clock_us() < begun + SOON_US);
}

static void silence_is_a_timeout(void **state) {
    (void)state;
    const reply silent = {.head = "", .is_silent = true}, good = GOOD;
    const struct iovec piece = {"x", 1};
    char name[POOL_NAME_CHARS + 1];
    rp_error err;
    int got;
    replies_are(&silent, 1);
    pool_check_fails(pool.link, ETIMEDOUT, ETIMEDOUT);
    pool_check_name(1, name);
    assert_int_equal(pool_put(pool.link, name, &piece, 1, base_clock_us() + SHORT_US, &err), RP_ERR_IO);
    assert_int_equal(errno, ETIMEDOUT);
    assert_int_equal(pool_remove(pool.link, name, base_clock_us() + SHORT_US, &err), RP_ERR_IO);
    assert_int_equal(errno, ETIMEDOUT);
    assert_int_equal(pool_remove(pool.link, name, base_clock_us(), &err), RP_ERR_IO); /* no time at all */
    assert_int_equal(errno, ETIMEDOUT);
    replies_are(&good, 1);
    assert_int_equal(get(SOON_US, &got, &err), 0);
}

/* A server that answers before it has read the body. */
static void an_early_answer_ends_a_put(void **state) {
    (void)state;
    const reply r = {.head = HEAD("413 Too Large", LENGTH(0) "Connection: close\r\n")};
    char name[POOL_NAME_CHARS + 1];
    rp_error err = {0};
    const size_t n = (size_t)8 << 20;
    char *bytes = calloc(1, n);
    const struct iovec piece = {bytes, n};
    replies_are(&r, 1);
    pool_check_name(1, name);
    assert_int_equal(pool_put(pool.link, name, &piece, 1, base_clock_us() + SOON_US, &err), RP_ERR_IO);
    assert_int_equal(errno, ENOSPC);
    free(bytes);
}

/* ---- addresses ---- */

static void wrong_addresses_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *address, *message;
    } cases[] = {
        {"http://", "use http[s]://"},
        {"https://?ca=a", "use http[s]://"},
        {"https://host:port/", "use http[s]://"},
        {"https://host/#part", "a fragment"},
        {"https://host/?colour=red", "unknown option 'colour'"},
        {"https://host/?ca", "an option without a value 'ca'"},
        {"https://host/?ca=", "invalid value of the option 'ca'"},
        {"https://host/?ca=%0a", "invalid value of the option 'ca'"},
        {"https://host/?ca=%4", "invalid value of the option 'ca'"},
        {"https://host/?ca=%zz", "invalid value of the option 'ca'"},
        {"https://host/?bearer_file=a&bearer_file=b", "given twice 'bearer_file'"},
        {"https://user:pass@host/?bearer_file=a", "a user and a bearer token"},
        {"http://host/?ca=/dev/null", "'ca' is an option of https"},
        {"https://user:secret@host/?colour=red", "'https://host/?colour=red'"},
        {"s3://", "invalid name of a bucket"},
        {"s3://ab", "invalid name of a bucket"},
        {"s3://bucket@host/", "invalid name of a bucket"},
        {"s3://bucket/a//b", "a prefix has"},
        {"s3://bucket/../b", "a prefix has"},
        {"s3://bucket/a b", "a prefix has"},
        {"s3://bucket/a?zone=b", "unknown option 'zone'"},
        {"s3://bucket/a?region=a%2fb", "invalid region"},
        {"s3://bucket/a?style=virtually", "invalid value"},
        {"s3://bucket/a?style=newer", "neither path nor virtual"},
        {"s3://bucket/a?endpoint=ftp://host", "its scheme"},
        {"s3://bucket/a?endpoint=host:9000", "use s3://"},
        {"s3://bucket/a?endpoint=http://host/path", "its endpoint has a path"},
        {"s3://bucket/a?endpoint=http://user@host", "more than a host and a port"},
        {"s3://bucket/a", "AWS_ACCESS_KEY_ID"},
    };
    unsetenv("AWS_ACCESS_KEY_ID");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        pool_driver *d;
        rp_error err = {0};
        if (pool_driver_open(&d, cases[i].address, &err) != RP_ERR_INVALID || !strstr(err.message, cases[i].message) ||
            strstr(err.message, "secret"))
            fail_msg("%s: %s", cases[i].address, err.message);
        assert_null(d);
    }
}

static void files_of_addresses_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *format, *message;
        int rc;
    } cases[] = {
        {"https://host/?ca=%s/absent", "absent", RP_ERR_IO},
        {"https://host/?bearer_file=%s/absent", "absent", RP_ERR_IO},
        {"https://host/?bearer_file=%s/open", "others may read", RP_ERR_INVALID},
        {"https://host/?bearer_file=%s/empty", "not one line", RP_ERR_INVALID},
        {"https://host/?bearer_file=%s/lines", "not one line", RP_ERR_INVALID},
        {"s3://bucket?credentials_file=%s/absent", "absent", RP_ERR_IO},
        {"s3://bucket?credentials_file=%s/open", "others may read", RP_ERR_INVALID},
        {"s3://bucket?credentials_file=%s/empty", "no access key", RP_ERR_INVALID},
        {"s3://bucket?credentials_file=%s/one", "no access key", RP_ERR_INVALID},
        {"s3://bucket?credentials_file=%s/other", "no access key", RP_ERR_INVALID},
    };
    static const struct {
        const char *name, *text;
        mode_t mode;
    } files[] = {{"open", "one\ntwo\n", 0644},
                 {"empty", "", 0600},
                 {"lines", "one\ntwo\n", 0600},
                 {"one", "one\n", 0600},
                 {"other", "[other]\naws_access_key_id = a\naws_secret_access_key = b\n", 0600}};
    char dir[STORE_FOLDER_BYTES], text[2 * STORE_FOLDER_BYTES + 64];
    store_folder_make(dir);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(text, sizeof(text), "%s/%s", dir, files[i].name);
        FILE *f = fopen(text, "w");
        assert_non_null(f);
        fputs(files[i].text, f);
        fclose(f);
        assert_int_equal(chmod(text, files[i].mode), 0);
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        pool_driver *d;
        rp_error err = {0};
        snprintf(text, sizeof(text), cases[i].format, dir);
        if (pool_driver_open(&d, text, &err) != cases[i].rc || !strstr(err.message, cases[i].message))
            fail_msg("%s: %s", text, err.message);
    }
    store_folder_remove(dir);
}

static void addresses_of_s3_become_urls(void **state) {
    (void)state;
    static const struct {
        const char *address, *base, *region;
    } cases[] = {
        {"s3://bucket", "https://bucket.s3.us-east-1.amazonaws.com", "us-east-1"},
        {"s3://bucket/a/b/?region=eu-west-3", "https://bucket.s3.eu-west-3.amazonaws.com/a/b", "eu-west-3"},
        {"s3://my.bucket/a?style=path", "https://s3.us-east-1.amazonaws.com/my.bucket/a", "us-east-1"},
        {"s3://bucket/a?endpoint=https://rgw.example:7480", "https://rgw.example:7480/bucket/a", "us-east-1"},
        {"s3://bucket?endpoint=http://[::1]:9000/&style=virtual", "http://bucket.[::1]:9000", "us-east-1"},
        {"s3://bucket/~a?endpoint=https%3A%2F%2Frgw.example&style=virtual&region=default",
         "https://bucket.rgw.example/~a", "default"},
        {"s3://bucket?endpoint=https://s3.cn-north-1.amazonaws.com.cn&region=cn-north-1",
         "https://bucket.s3.cn-north-1.amazonaws.com.cn", "cn-north-1"},
    };
    pool_http_address a;
    rp_error err = {0};
    unsetenv("AWS_REGION");
    unsetenv("AWS_ENDPOINT_URL");
    unsetenv("AWS_SESSION_TOKEN");
    setenv("AWS_ACCESS_KEY_ID", "key", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        must(pool_s3_address_read(&a, cases[i].address, &err), &err);
        assert_string_equal(a.base, cases[i].base);
        assert_string_equal(a.region, cases[i].region);
        assert_string_equal(a.user, "key");
        assert_string_equal(a.password, "secret");
        assert_string_equal(a.token, "");
    }
    setenv("AWS_REGION", "eu-central-1", 1);
    setenv("AWS_ENDPOINT_URL", "http://minio:9000", 1);
    setenv("AWS_SESSION_TOKEN", "session", 1);
    must(pool_s3_address_read(&a, "s3://bucket/a", &err), &err);
    assert_string_equal(a.base, "http://minio:9000/bucket/a");
    assert_string_equal(a.region, "eu-central-1");
    assert_string_equal(a.token, "session");
    assert_false(a.is_tls);
    must(pool_s3_address_read(&a, "s3://bucket/a?region=x&endpoint=https://h", &err), &err);
    assert_string_equal(a.base, "https://h/bucket/a");
    assert_string_equal(a.region, "x");
    assert_true(a.is_tls);
    unsetenv("AWS_REGION");
    unsetenv("AWS_ENDPOINT_URL");
    unsetenv("AWS_SESSION_TOKEN");
}

static void addresses_of_http_become_urls(void **state) {
    (void)state;
    static const struct {
        const char *address, *base, *user, *password;
    } cases[] = {
        {"https://host", "https://host", "", ""},
        {"https://host/", "https://host", "", ""},
        {"http://host:8080/a/b//", "http://host:8080/a/b", "", ""},
        {"https://user:p%40ss%2F@host/a", "https://host/a", "user", "p@ss/"},
        {"https://host/a/../b/", "https://host/b", "", ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        pool_http_address a;
        rp_error err = {0};
        must(pool_http_address_read(&a, cases[i].address, &err), &err);
        assert_string_equal(a.base, cases[i].base);
        assert_string_equal(a.user, cases[i].user);
        assert_string_equal(a.password, cases[i].password);
        pool_http_address_wipe(&a);
        assert_string_equal(a.password, "");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_addresses_are_refused),
        cmocka_unit_test(files_of_addresses_are_checked),
        cmocka_unit_test(addresses_of_s3_become_urls),
        cmocka_unit_test(addresses_of_http_become_urls),
        cmocka_unit_test_setup_teardown(malformed_replies_are_refused, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(other_servers_are_understood, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(statuses_have_causes, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(passing_failures_are_retried, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(silence_is_a_timeout, open_pool, close_pool),
        cmocka_unit_test_setup_teardown(an_early_answer_ends_a_put, open_pool, close_pool),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
