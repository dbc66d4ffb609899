/* SPDX-License-Identifier: Apache-2.0 */
/* test_pool_s3.c: a pool on S3, over a server of the tests (s3_server.py) that verifies signatures by itself: both
 * styles, with and without TLS, session tokens, failing requests, and credentials that are refused. Skipped without
 * Python. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/file.h"
#include "support/must.h"
#include "support/pool_check.h"
#include "support/store_folder.h"
#include "support/web_server.h"

#define SOON_US 10000000
#define ADDRESS_BYTES 512
#define USER "AKIAEXAMPLE"
#define PASSWORD "secret/key+with=signs" /* with characters that a URL would encode */
#define FD "10"                          /* WEB_SERVER_FIRST_FD */
#define SCRIPT "/tests/store/s3_server.py"

static char dir[STORE_FOLDER_BYTES], script[512];
static web_server server;

static void write_file(const char *name, const char *text) {
    char path[STORE_FOLDER_BYTES + 32];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(path, 0600), 0);
}

static int begin(void **state) {
    const char *source = getenv("REPRISE_SOURCE_DIR");
    (void)state;
    store_folder_make(dir);
    snprintf(script, sizeof(script), "%s" SCRIPT, source ? source : ".");
    write_file("lines", USER "\n" PASSWORD "\n");
    write_file("aws", "[other]\naws_access_key_id = no\n[default]\n# a comment\naws_access_key_id = " USER
                      "\naws_secret_access_key=" PASSWORD
                      "\naws_session_token = token-1\n[last]\naws_secret_access_key = no\n");
    write_file("wrong", USER "\nanother\n");
    write_file("unknown", "AKIAUNKNOWN\n" PASSWORD "\n");
    return 0;
}

static int end(void **state) {
    (void)state;
    store_folder_remove(dir);
    return 0;
}

/* Starts the server with up to four more arguments. */
static void serve(const char *const *more) {
    const char *argv[16] = {"/usr/bin/env", "python3", script, FD, "bucket", USER, PASSWORD};
    int n = 7;
    if (system("python3 -c 'import ssl' >/dev/null 2>&1") != 0) {
        printf("skipped: python3 is not installed\n");
        skip();
    }
    for (; more && *more; more++) argv[n++] = *more;
    web_server_listen(&server, 1);
    web_server_start(&server, argv);
}

static int stop(void **state) {
    (void)state;
    web_server_kill(&server);
    return 0;
}

/* s3://bucket/PREFIX at the server, with credentials of a file. */
static const char *address_of(char out[ADDRESS_BYTES], const char *prefix, const char *endpoint,
                              const char *credentials, const char *options) {
    snprintf(out, ADDRESS_BYTES, "s3://%s?endpoint=%s:%d&credentials_file=%s/%s%s", prefix, endpoint, server.ports[0],
             dir, credentials, options);
    return out;
}

static void it_is_a_driver(void **state) {
    (void)state;
    char address[ADDRESS_BYTES];
    serve(NULL);
    pool_check(address_of(address, "bucket/a~b/c_d.e-f", "http://127.0.0.1", "lines", ""));
}

static void it_is_a_driver_in_virtual_style_with_faults(void **state) {
    (void)state;
    const char *const more[] = {"--faults", "--region", "eu-west-3", NULL};
    char address[ADDRESS_BYTES];
    serve(more);
    pool_check(address_of(address, "bucket", "http://localhost", "lines", "&style=virtual&region=eu-west-3"));
}

static void it_is_a_driver_over_tls_with_a_session(void **state) {
    (void)state;
    char address[ADDRESS_BYTES], ca[STORE_FOLDER_BYTES + 16];
    const char *const more[] = {"--tls", dir, "--token", "token-1", NULL};
    if (!web_server_certificate(dir)) skip();
    serve(more);
    snprintf(ca, sizeof(ca), "&ca=%s/cert.pem", dir);
    pool_check(address_of(address, "bucket/pool", "https://127.0.0.1", "aws", ca));
}

/* An operation of each kind fails with this cause and a message that has the text. */
static void expect_refused(const char *address, int cause, const char *text) {
    pool_driver *d;
    pool_link *l;
    rp_error err = {0};
    char byte = 'x', name[POOL_NAME_CHARS + 1];
    const struct iovec piece = {&byte, 1};
    pool_range r = {.bytes = &byte, .n = 1};
    must(pool_driver_open(&d, address, &err), &err);
    must(pool_link_open(d, &l, &err), &err);
    pool_check_name(1, name);
    strcpy(r.name, name);
    for (int i = 0; i < 3; i++) {
        const uint64_t deadline = base_clock_us() + SOON_US;
        const int rc = i == 0   ? pool_get(l, &r, 1, deadline, &err)
                       : i == 1 ? pool_put(l, name, &piece, 1, deadline, &err)
                                : pool_remove(l, name, deadline, &err);
        const int found = errno;
        if (rc != RP_ERR_IO || found != cause || !strstr(err.message, text) || strstr(err.message, PASSWORD))
            fail_msg("errno %d: %s", found, err.message);
    }
    pool_link_close(l);
    pool_driver_close(d);
}

static void what_s3_refuses_has_a_cause(void **state) {
    (void)state;
    char address[ADDRESS_BYTES];
    serve(NULL);
    expect_refused(address_of(address, "bucket", "http://127.0.0.1", "wrong", ""), EACCES, "SignatureDoesNotMatch");
    expect_refused(address_of(address, "bucket", "http://127.0.0.1", "unknown", ""), EACCES, "InvalidAccessKeyId");
    expect_refused(address_of(address, "bucket", "http://127.0.0.1", "aws", ""), EACCES, "InvalidToken");
    expect_refused(address_of(address, "other-bucket", "http://127.0.0.1", "lines", ""), ENOENT, "NoSuchBucket");
    expect_refused(address_of(address, "bucket", "http://127.0.0.1", "lines", "&region=eu-west-3"), EPROTO,
                   "AuthorizationHeaderMalformed");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(it_is_a_driver, stop),
        cmocka_unit_test_teardown(it_is_a_driver_in_virtual_style_with_faults, stop),
        cmocka_unit_test_teardown(it_is_a_driver_over_tls_with_a_session, stop),
        cmocka_unit_test_teardown(what_s3_refuses_has_a_cause, stop),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
