/* SPDX-License-Identifier: Apache-2.0 */
/* test_http_client.c: events split at any byte, URLs, and complete requests to a server with canned replies, valid and
 * not. TLS is in tests/server/test_tls.py. */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/command.h"
#include "common/console.h"
#include "common/http_client.h"
#include "common/sse_reader.h"

typedef struct heard {
    char bytes[4096];
    size_t n;
} heard;

static void hear(void *user, const char *bytes, size_t n) {
    heard *h = user;
    assert_true(h->n + n < sizeof h->bytes);
    memcpy(h->bytes + h->n, bytes, n);
    h->n += n;
    h->bytes[h->n] = '\0';
}

/* ---- events ---- */

static void hear_event(void *user, const char *event, const char *data, size_t n) {
    assert_int_equal(strlen(data), n);
    hear(user, event, strlen(event));
    hear(user, "=", 1);
    hear(user, data, n);
    hear(user, ";", 1);
}

static void test_events_in_any_pieces(void **state) {
    (void)state;
    static const char text[] = ": hello\r\n\r\ndata: {\"a\": 1}\n\nevent: done\ndata:x\ndata\ndata:  y\r\n\r\nid: "
                               "7\n\nevent: none\r\rdata: [DONE]\r\r"
                               "data: without an end";
    for (size_t piece = 1; piece < sizeof text; piece++) {
        heard h = {0};
        sse_reader s = {0};
        sse_reader_begin(&s, hear_event, &h);
        for (size_t i = 0; i < sizeof text - 1; i += piece)
            assert_true(sse_reader_feed(&s, text + i, sizeof text - 1 - i < piece ? sizeof text - 1 - i : piece));
        assert_string_equal(h.bytes, "={\"a\": 1};done=x\n\n y;=[DONE];");
        sse_reader_free(&s);
    }
}

static void test_an_event_has_a_limit(void **state) {
    (void)state;
    sse_reader s = {0};
    heard h = {0};
    char *piece = cli_alloc(1 << 20);
    size_t n = 0;
    memset(piece, 'a', 1 << 20);
    sse_reader_begin(&s, hear_event, &h);
    while (n <= 2 * SSE_MAX_EVENT_BYTES && sse_reader_feed(&s, piece, 1 << 20)) n += 1 << 20;
    assert_true(n <= SSE_MAX_EVENT_BYTES);
    free(piece);
    sse_reader_free(&s);
}

/* ---- a server of canned replies ---- */

typedef struct canned {
    int fd;
    const char *reply;
    heard asked;
    pthread_t thread;
} canned;

/* Replies to each connection that sends something. */
static void *serve(void *user) {
    canned *s = user;
    for (;;) {
        int fd = accept(s->fd, NULL, NULL);
        if (fd < 0) return NULL;
        ssize_t n = recv(fd, s->asked.bytes, sizeof s->asked.bytes - 1, 0);
        if (n > 0) {
            s->asked.bytes[n] = '\0';
            for (const char *p = s->reply; *p != '\0'; p++) send(fd, p, 1, MSG_NOSIGNAL);
        }
        close(fd);
        if (n > 0) return NULL;
    }
}

static void begin_serving(canned *s, const struct sockaddr *address, socklen_t n, const char *reply) {
    s->reply = reply;
    s->fd = socket(address->sa_family, SOCK_STREAM, 0);
    assert_int_equal(bind(s->fd, address, n), 0);
    assert_int_equal(listen(s->fd, 8), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void end_serving(canned *s) {
    pthread_join(s->thread, NULL);
    close(s->fd);
}

/* Begins to serve at a free port of the loopback device. */
static int begin_serving_tcp(canned *s, const char *reply) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    begin_serving(s, (const struct sockaddr *)&address, sizeof address, reply);
    assert_int_equal(getsockname(s->fd, (struct sockaddr *)&address, &n), 0);
    return ntohs(address.sin_port);
}

static void test_asking_by_tcp(void **state) {
    (void)state;
    canned s = {0};
    char url[64], expected[512];
    http_target t;
    http_reply reply;
    int port = begin_serving_tcp(&s, "HTTP/1.1 201 Made\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
    snprintf(url, sizeof url, "http://localhost:%d/base/", port);
    assert_int_equal(http_target_open(&t, url, NULL, NULL), CLI_OK);
    http_request q = {.method = "POST", .path = "/v1/x", .key = "secret", .body = "{}", .n_body = 2};
    assert_int_equal(http_ask(&t, &q, &reply), CLI_OK);
    end_serving(&s);
    assert_int_equal(reply.status, 201);
    assert_string_equal(reply.body, "ok");
    http_reply_free(&reply);
    snprintf(expected, sizeof expected,
             "POST /base/v1/x HTTP/1.1\r\nHost: localhost:%d\r\nAccept: */*\r\nAuthorization: Bearer secret\r\n"
             "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
             port);
    assert_string_equal(s.asked.bytes, expected);
    assert_int_equal(http_ask(&t, &q, &reply), CLI_FAILED); /* the server is closed */
    http_reply_free(&reply);
    assert_int_equal(http_target_open(&t, url, NULL, NULL), CLI_FAILED);
}

typedef struct reply_case {
    const char *text;
    int status; /* 0: the reply is refused */
    const char *body;
} reply_case;

static const reply_case replies[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello"},
    {"HTTP/1.1 204 No Content\r\n\r\n", 204, ""},
    {"HTTP/1.0 503 Busy\r\n\r\nto the end", 503, "to the end"},
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", 200, "a"},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nX: y\r\n\r\n", 200,
     "abc0123456789"},
    {"HTTP/1.1 302 Found\r\nLocation: http://localhost/\r\nContent-Length: 0\r\n\r\n", 302, ""},
    {"SSH-2.0-x\r\n", 0, NULL},
    {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", 0, NULL},
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", 0, NULL},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 0, NULL},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", 0, NULL},
};

static void test_replies(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof replies / sizeof replies[0]; i++) {
        canned s = {0};
        char url[64];
        http_target t;
        http_reply reply;
        snprintf(url, sizeof url, "http://127.0.0.1:%d", begin_serving_tcp(&s, replies[i].text));
        assert_int_equal(http_target_open(&t, url, NULL, NULL), CLI_OK);
        int status = http_ask(&t, &(http_request){.method = "GET", .path = "/"}, &reply);
        end_serving(&s);
        assert_int_equal(status, replies[i].status != 0 ? CLI_OK : CLI_FAILED);
        if (status == CLI_OK) {
            assert_int_equal(reply.status, replies[i].status);
            assert_string_equal(reply.body, replies[i].body);
        }
        http_reply_free(&reply);
    }
}

static void test_asking_by_a_unix_socket(void **state) {
    (void)state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char folder[] = "/tmp/reprise-http-XXXXXX";
    canned s = {0};
    http_target t;
    http_reply reply;
    assert_non_null(mkdtemp(folder));
    snprintf(address.sun_path, sizeof address.sun_path, "%s/s", folder);
    assert_int_equal(http_target_open(&t, HTTP_DEFAULT_URL, address.sun_path, NULL), CLI_FAILED);
    begin_serving(&s, (const struct sockaddr *)&address, sizeof address,
                  "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut");
    assert_int_equal(http_target_open(&t, HTTP_DEFAULT_URL, address.sun_path, NULL), CLI_OK);
    assert_int_equal(http_ask(&t, &(http_request){.method = "GET", .path = "/"}, &reply),
                     CLI_FAILED); /* it ended too early */
    http_reply_free(&reply);
    end_serving(&s);
    unlink(address.sun_path);
    rmdir(folder);
}

static void test_wrong_urls(void **state) {
    (void)state;
    static const char *const urls[] = {"",
                                       "127.0.0.1:8080",
                                       "ftp://x",
                                       "http://",
                                       "http://:80",
                                       "http://x:port",
                                       "http://x:1234567",
                                       "http://[::1",
                                       "http://[]:80",
                                       "http://a b",
                                       "http://x/\r\nHost: y",
                                       "http://u@x",
                                       "http://x/?a"};
    http_target t;
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++)
        assert_int_equal(http_target_open(&t, urls[i], NULL, NULL), CLI_WRONG_USE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events_in_any_pieces),
        cmocka_unit_test(test_an_event_has_a_limit),
        cmocka_unit_test(test_asking_by_tcp),
        cmocka_unit_test(test_asking_by_a_unix_socket),
        cmocka_unit_test(test_replies),
        cmocka_unit_test(test_wrong_urls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
