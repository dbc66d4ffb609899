/* SPDX-License-Identifier: Apache-2.0 */
/* test_pool_http.c: a pool over HTTP on a real nginx with DAV: as every driver, with TLS, with credentials, through a
 * cache, on a full disk, and while nginx is stopped, killed and started again. Skipped without nginx. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "support/must.h"
#include "support/pool_check.h"
#include "support/store_folder.h"
#include "support/web_server.h"

#define SOON_US 10000000
#define MIB ((size_t)1 << 20)
#define ADDRESS_BYTES 256

enum { PLAIN,
       TLS,
       CACHE,
       N_PORTS };

static struct {
    web_server server;
    char dir[STORE_FOLDER_BYTES];
    bool is_there, has_full;
} nginx;

/* ---- nginx ---- */

/* Paths are relative to its folder. */
static const char configuration[] =
    "daemon off; user root; worker_processes 1; pid pid; error_log error.log;\n"
    "events { worker_connections 256; }\n"
    "http {\n"
    "  access_log off; default_type application/octet-stream; sendfile on; root root;\n"
    "  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;\n"
    "  uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n"
    "  client_max_body_size 64m; dav_methods PUT DELETE; create_full_put_path on;\n"
    "  proxy_cache_path cache keys_zone=pool:1m max_size=64m;\n"
    "  server {\n"
    "    listen 127.0.0.1:%d;\n"
    "    location /basic/ { auth_basic pool; auth_basic_user_file users; }\n"
    "    location /bearer/ { if ($http_authorization != \"Bearer token-1\") { return 403; } }\n"
    "    location /small/ { client_max_body_size 1m; }\n"
    "    location /readonly/ { dav_methods off; }\n"
    "    location /full/ { root .; client_body_temp_path full/body; }\n"
    "  }\n"
    "  server { listen 127.0.0.1:%d ssl; ssl_certificate cert.pem; ssl_certificate_key key.pem; }\n"
    "  server {\n"
    "    listen 127.0.0.1:%d;\n"
    "    location / { proxy_pass http://127.0.0.1:%d; proxy_cache pool; proxy_cache_valid 200 1h; }\n"
    "  }\n"
    "}\n";

static void write_file(const char *name, const char *text, mode_t mode) {
    char path[STORE_FOLDER_BYTES + 32];
    snprintf(path, sizeof(path), "%s/%s", nginx.dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void nginx_run(void) {
    char path[STORE_FOLDER_BYTES + 32], log[STORE_FOLDER_BYTES + 32];
    const char *argv[] = {web_server_nginx(), "-p", nginx.dir, "-c", path, "-e", log, NULL};
    snprintf(path, sizeof(path), "%s/nginx.conf", nginx.dir);
    snprintf(log, sizeof(log), "%s/error.log", nginx.dir);
    web_server_start(&nginx.server, argv);
}

static int begin(void **state) {
    char text[sizeof(configuration) + 32], path[STORE_FOLDER_BYTES + 32];
    (void)state;
    if (!web_server_nginx()) return 0;
    store_folder_make(nginx.dir);
    nginx.is_there = web_server_certificate(nginx.dir);
    if (!nginx.is_there) return 0;
    web_server_listen(&nginx.server, N_PORTS);
    const int *ports = nginx.server.ports;
    snprintf(text, sizeof(text), configuration, ports[PLAIN], ports[TLS], ports[CACHE], ports[PLAIN]);
    write_file("nginx.conf", text, 0600);
    write_file("users", "node:{PLAIN}pass@word\n", 0644);
    write_file("token", "token-1\n", 0600);
    write_file("other-token", "token-2\n", 0600);
    snprintf(path, sizeof(path), "%s/full", nginx.dir);
    mkdir(path, 0755);
    nginx.has_full = web_server_mount(path, 2 * MIB);
    nginx_run();
    return 0;
}

static int end(void **state) {
    char path[STORE_FOLDER_BYTES + 32];
    (void)state;
    web_server_kill(&nginx.server);
    snprintf(path, sizeof(path), "%s/full", nginx.dir);
    if (nginx.has_full) web_server_unmount(path);
    if (nginx.dir[0]) store_folder_remove(nginx.dir);
    return 0;
}

/* The address of a folder at one of its ports. */
static const char *address_of(char out[ADDRESS_BYTES], int port, const char *path) {
    if (!nginx.is_there) skip();
    snprintf(out, ADDRESS_BYTES, "%s://127.0.0.1:%d/%s", port == TLS ? "https" : "http", nginx.server.ports[port],
             path);
    return out;
}

/* The same with an option that names a file. */
static const char *address_with(char out[ADDRESS_BYTES], int port, const char *path, const char *option,
                                const char *file) {
    address_of(out, port, path);
    const size_t n = strlen(out);
    snprintf(out + n, ADDRESS_BYTES - n, "?%s=%s/%s", option, nginx.dir, file);
    return out;
}

/* ---- links ---- */

typedef struct test_pool {
    pool_driver *driver;
    pool_link *link;
} test_pool;

static test_pool pool_at(const char *address) {
    pool_driver *d = pool_check_driver(address);
    return (test_pool){.driver = d, .link = pool_check_link(d)};
}

static void pool_end(test_pool p) {
    pool_link_close(p.link);
    pool_driver_close(p.driver);
}

/* Writes n bytes as object i. Returns the cause of a failure, or 0. */
static int put(test_pool p, int i, size_t n, rp_error *err) {
    char name[POOL_NAME_CHARS + 1];
    char *bytes = calloc(1, n);
    const struct iovec piece = {bytes, n};
    pool_check_name(i, name);
    const int rc = pool_put(p.link, name, &piece, 1, base_clock_us() + SOON_US, err), cause = errno;
    free(bytes);
    assert_true(rc == RP_OK || rc == RP_ERR_IO);
    return rc ? cause : 0;
}

static bool has(test_pool p, int i, size_t n) {
    rp_error err = {0};
    char *bytes = malloc(n);
    pool_range r = {.bytes = bytes, .n = n};
    pool_check_name(i, r.name);
    must(pool_get(p.link, &r, 1, base_clock_us() + SOON_US, &err), &err);
    free(bytes);
    if (r.found) assert_int_equal(r.got, n);
    return r.found;
}

static void take_away(test_pool p, int i) {
    char name[POOL_NAME_CHARS + 1];
    rp_error err = {0};
    pool_check_name(i, name);
    must(pool_remove(p.link, name, base_clock_us() + SOON_US, &err), &err);
}

/* ---- tests ---- */

static void it_is_a_driver(void **state) {
    (void)state;
    char address[ADDRESS_BYTES];
    pool_check(address_of(address, PLAIN, "pool/"));
}

static void it_is_a_driver_over_tls(void **state) {
    (void)state;
    char address[ADDRESS_BYTES];
    pool_check(address_with(address, TLS, "tls", "ca", "cert.pem"));
}

static void an_untrusted_certificate_is_refused(void **state) {
    (void)state;
    char address[ADDRESS_BYTES];
    rp_error err = {0};
    test_pool p = pool_at(address_of(address, TLS, ""));
    pool_check_fails(p.link, EPROTO, EPROTO);
    assert_int_equal(put(p, 1, 10, &err), EPROTO);
    assert_non_null(strstr(err.message, "certificate is not trusted"));
    pool_end(p);
    p = pool_at(address_with(address, TLS, "", "ca", "users")); /* has no certificate */
    pool_check_fails(p.link, EPROTO, EPROTO);
    pool_end(p);
    snprintf(address, sizeof(address), "https://127.0.0.1:%d/", nginx.server.ports[PLAIN]); /* without TLS there */
    p = pool_at(address);
    pool_check_fails(p.link, EPROTO, EPROTO);
    pool_end(p);
}

/* The objects of nginx are those of a pool in its root. */
static void its_root_is_a_pool_in_a_folder(void **state) {
    (void)state;
    char address[ADDRESS_BYTES], folder[ADDRESS_BYTES];
    rp_error err = {0};
    test_pool http = pool_at(address_of(address, PLAIN, "shared/"));
    snprintf(folder, sizeof(folder), "dir:%s/root/shared", nginx.dir);
    assert_int_equal(put(http, 1, 1000, &err), 0);
    test_pool dir = pool_at(folder);
    assert_true(has(dir, 1, 1000));
    assert_int_equal(put(dir, 2, MIB, &err), 0);
    assert_true(has(http, 2, MIB));
    take_away(http, 2);
    assert_false(has(dir, 2, MIB));
    take_away(dir, 1);
    pool_end(dir);
    pool_end(http);
}

static void credentials_are_sent(void **state) {
    (void)state;
    char address[ADDRESS_BYTES];
    rp_error err = {0};
    static const char *const files[] = {"token", "other-token"};
    for (int i = 0; i < 2; i++) {
        test_pool p = pool_at(address_with(address, PLAIN, "bearer/", "bearer_file", files[i]));
        assert_int_equal(put(p, 1, 10, &err), i ? EACCES : 0);
        if (i) pool_check_fails(p.link, EACCES, EACCES);
        else take_away(p, 1);
        pool_end(p);
        if (!nginx.is_there) skip();
        snprintf(address, sizeof(address), "http://node:%s@127.0.0.1:%d/basic/", i ? "other" : "pass%40word",
                 nginx.server.ports[PLAIN]);
        p = pool_at(address);
        assert_int_equal(put(p, 2, 10, &err), i ? EACCES : 0);
        if (i) assert_null(strstr(err.message, "other"));
        else take_away(p, 2);
        pool_end(p);
    }
}

/* Objects never change: a cache in front of nginx may answer for it. */
static void a_cache_answers_ranges(void **state) {
    (void)state;
    char address[ADDRESS_BYTES];
    rp_error err = {0};
    test_pool origin = pool_at(address_of(address, PLAIN, "origin/")),
              cache = pool_at(address_of(address, CACHE, "origin/"));
    assert_int_equal(put(cache, 1, 3 * MIB, &err), 0);
    assert_true(has(cache, 1, 3 * MIB));
    take_away(origin, 1);
    assert_true(has(cache, 1, 3 * MIB)); /* of its own */
    assert_true(has(cache, 1, 8192));
    assert_false(has(origin, 1, 8192));
    pool_end(origin);
    pool_end(cache);
}

static void what_nginx_refuses_has_a_cause(void **state) {
    (void)state;
    char address[ADDRESS_BYTES];
    rp_error err = {0};
    test_pool p = pool_at(address_of(address, PLAIN, "small"));
    assert_int_equal(put(p, 1, MIB + 1, &err), ENOSPC); /* 413 */
    assert_int_equal(put(p, 1, 4 * MIB, &err), ENOSPC);
    assert_int_equal(put(p, 1, MIB, &err), 0);
    take_away(p, 1);
    pool_end(p);
    p = pool_at(address_of(address, PLAIN, "readonly"));
    assert_int_equal(put(p, 1, 10, &err), EPROTO); /* 405 */
    assert_false(has(p, 1, 10));
    pool_end(p);
}

static void a_full_disk_is_an_error_of_writing(void **state) {
    (void)state;
    char address[ADDRESS_BYTES];
    rp_error err = {0};
    test_pool p = pool_at(address_of(address, PLAIN, "full/pool"));
    if (!nginx.has_full) {
        printf("skipped: no file system can be mounted\n");
        skip();
    }
    assert_int_equal(put(p, 1, MIB, &err), 0);
    const int cause = put(p, 2, 4 * MIB, &err);
    printf("a full disk: %s\n", err.message);
    assert_true(cause == ENOSPC || cause == EIO);
    assert_true(has(p, 1, MIB));
    assert_false(has(p, 2, 4 * MIB));
    take_away(p, 1);
    assert_int_equal(put(p, 2, MIB, &err), 0);
    take_away(p, 2);
    pool_end(p);
}

static void nginx_may_stop_die_and_return(void **state) {
    (void)state;
    char address[ADDRESS_BYTES];
    rp_error err = {0};
    test_pool p = pool_at(address_of(address, PLAIN, "life"));
    assert_int_equal(put(p, 1, 1000, &err), 0);
    assert_true(has(p, 1, 1000)); /* over a connection that is kept */
    web_server_signal(&nginx.server, SIGSTOP);
    pool_check_fails(p.link, ETIMEDOUT, ETIMEDOUT);
    web_server_signal(&nginx.server, SIGCONT);
    assert_true(has(p, 1, 1000));
    web_server_kill(&nginx.server);
    pool_check_fails(p.link, ECONNREFUSED, ECONNREFUSED);
    web_server_listen(&nginx.server, N_PORTS);
    pool_check_fails(p.link, ETIMEDOUT, ETIMEDOUT); /* a socket without a program */
    nginx_run();
    assert_true(has(p, 1, 1000));
    take_away(p, 1);
    pool_end(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_a_driver),
        cmocka_unit_test(it_is_a_driver_over_tls),
        cmocka_unit_test(an_untrusted_certificate_is_refused),
        cmocka_unit_test(its_root_is_a_pool_in_a_folder),
        cmocka_unit_test(credentials_are_sent),
        cmocka_unit_test(a_cache_answers_ranges),
        cmocka_unit_test(what_nginx_refuses_has_a_cause),
        cmocka_unit_test(a_full_disk_is_an_error_of_writing),
        cmocka_unit_test(nginx_may_stop_die_and_return),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
