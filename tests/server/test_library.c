/* SPDX-License-Identifier: Apache-2.0 */
/* test_library.c: the server as a library: it listens before a model is loaded, refuses invalid
 * configurations, and can be freed without having run. */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <netdb.h>

#include "base/memory.h"
#include "reprise_server.h"
#include "support/tiny_model.h"

static rp_server_options options(void) {
    rp_server_options o = rp_server_options_defaults();
    o.port = 0;
    return o;
}

static rp_server *open_server(const rp_server_options *o) {
    rp_server *s;
    rp_error err;
    if (rp_server_new(&s, o, &err)) fail_msg("%s", err.message);
    return s;
}

/* What the server answers to a request, as text. */
static void ask(const rp_server *s, const char *request, char *out, size_t bytes) {
    const char *port = strrchr(rp_server_address(s, 0), ':') + 1;
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *a;
    assert_int_equal(getaddrinfo("127.0.0.1", port, &hints, &a), 0);
    int fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol);
    assert_int_equal(connect(fd, a->ai_addr, a->ai_addrlen), 0);
    freeaddrinfo(a);
    assert_int_equal(write(fd, request, strlen(request)), strlen(request));
    size_t used = 0;
    for (ssize_t n = 1; n > 0 && used + 1 < bytes; used += n > 0 ? (size_t)n : 0)
        n = read(fd, out + used, bytes - 1 - used);
    out[used] = '\0';
    close(fd);
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

static void test_loading_and_ready(void **state) {
    (void)state;
    static const char post[] = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: "
                               "application/json\r\nContent-Length: 31\r\n\r\n"
                               "{\"prompt\":\"a\",\"max_tokens\":  1}";
    rp_server_options o = options();
    rp_engine_options engine_options = rp_engine_options_defaults();
    rp_server *s = open_server(&o);
    char text[16384];
    ask(s, GET("/livez"), text, sizeof(text));
    assert_non_null(strstr(text, "HTTP/1.1 200"));
    ask(s, GET("/readyz"), text, sizeof(text));
    assert_non_null(strstr(text, "HTTP/1.1 503"));
    ask(s, GET("/health"), text, sizeof(text));
    assert_non_null(strstr(text, "Loading model"));
    ask(s, GET("/metrics"), text, sizeof(text));
    assert_non_null(strstr(text, "HTTP/1.1 200"));
    ask(s, post, text, sizeof(text));
    assert_non_null(strstr(text, "HTTP/1.1 503"));
    assert_non_null(strstr(text, "Retry-After: 1"));

    tiny_model_shape shape = tiny_model_defaults();
    rp_model *m = tiny_model_open(&shape, "chatml");
    rp_engine *e;
    assert_int_equal(rp_engine_new(&e, m, &engine_options, NULL), RP_OK);
    assert_int_equal(rp_server_ready(s, m, e, NULL), RP_OK);
    ask(s, GET("/readyz"), text, sizeof(text));
    assert_non_null(strstr(text, "HTTP/1.1 200"));
    ask(s, post, text, sizeof(text));
    assert_non_null(strstr(text, "HTTP/1.1 200"));
    rp_server_stop(s);
    rp_server_run(s); /* it was stopped before */
    rp_server_free(s);
    rp_engine_free(e);
    rp_model_close(m);
}

static void test_options_are_checked(void **state) {
    (void)state;
    rp_server *s;
    rp_error err;
    rp_server_options o;
#define REFUSED(field, value, code) \
    do { \
        o = options(); \
        o.field = value; \
        assert_int_equal(rp_server_new(&s, &o, &err), code); \
        assert_null(s); \
    } while (0)
    REFUSED(port, 65536, RP_ERR_INVALID);
    REFUSED(port, RP_SERVER_NO_PORT, RP_ERR_INVALID);
    REFUSED(max_connections, 0, RP_ERR_INVALID);
    REFUSED(max_body_bytes, (uint64_t)1 << 60, RP_ERR_INVALID);
    REFUSED(head_timeout_ms, 0, RP_ERR_INVALID);
    REFUSED(host, "0.0.0.0", RP_ERR_INVALID);
    REFUSED(host, "no such host", RP_ERR_IO);
    REFUSED(api_keys, "/nowhere/keys", RP_ERR_IO);
    REFUSED(unix_path, "", RP_ERR_INVALID);
    REFUSED(unix_path, "/nowhere/s.sock", RP_ERR_IO);
}

/* Every allocation of making a server fails once. */
static void test_no_memory(void **state) {
    (void)state;
    rp_server_options o = options();
    o.cors_origin = "*";
    for (uint64_t n = 1;; n++) {
        rp_server *s;
        base_alloc_fail_at(n, 0);
        int rc = rp_server_new(&s, &o, NULL);
        base_alloc_fail_at(0, 0);
        if (rc == RP_OK) {
            rp_server_free(s);
            assert_true(n > 3);
            return;
        }
        assert_null(s);
        assert_int_equal(rc, RP_ERR_MEMORY);
    }
}

static void test_hash(void **state) {
    (void)state;
    char a[RP_SERVER_HASH_DIGITS + 1], b[RP_SERVER_HASH_DIGITS + 1];
    assert_int_equal(rp_server_hash_key("0123456789abcdef", a, NULL), RP_OK);
    assert_int_equal(rp_server_hash_key("0123456789abcdeg", b, NULL), RP_OK);
    assert_int_equal(strlen(a), RP_SERVER_HASH_DIGITS);
    assert_string_not_equal(a, b);
    assert_int_equal(rp_server_hash_key("short", a, NULL), RP_ERR_INVALID);
    assert_int_equal(rp_server_hash_key("0123456789 abcdef", a, NULL), RP_ERR_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loading_and_ready),
        cmocka_unit_test(test_options_are_checked),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
