/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures of the cluster port, and the headers that they cover: vectors that another implementation of BLAKE2b has
 * made (Python's hashlib), every part of a request changed once, malformed values, and the file of a secret. */
#define _DEFAULT_SOURCE /* mkstemp */

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "cluster/nonces.h"
#include "cluster/relay.h"
#include "cluster/signature.h"
#include "reprise_cluster.h"

static int failures;

static void expect(bool is, const char *what) {
    if (is) return;
    failures++;
    fprintf(stderr, "failed: %s\n", what);
}
#define EXPECT(condition) expect(condition, #condition)

static const char stream_vector[] =
    "1;000102030405060708090a0b0c0d0e0f;03a3f21acba143b141e6350c564621d19bb42a39a52910415ebb6a4983ea036e";
static const char chat_vector[] =
    "1;000102030405060708090a0b0c0d0e0f;8495046be11d13aace26fadb9b44c04864586c5b3f5347f328495d0a0db683f6";
static const char route[] = "epoch=00000000000000ff;id=abc;seed=7;created=1790000000;marks=1";

static void fill(uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)i;
}

/* In pieces of every size. */
static void tag_body(uint8_t *tag, const uint8_t *secret, const void *bytes, size_t n, size_t piece) {
    uint8_t nonce[CLUSTER_NONCE_BYTES];
    cluster_body b;
    fill(nonce, sizeof(nonce));
    cluster_body_init(&b, secret, nonce);
    for (size_t at = 0; at < n; at += piece) cluster_body_add(&b, (const char *)bytes + at, BASE_MIN(piece, n - at));
    cluster_body_final(&b, tag);
}

static void test_vectors(void) {
    uint8_t secret[RP_CLUSTER_KEY_BYTES], nonce[CLUSTER_NONCE_BYTES], parsed[CLUSTER_NONCE_BYTES],
        body_tag[CLUSTER_BODY_TAG_BYTES];
    char text[CLUSTER_SIGNATURE_BYTES];
    static const unsigned char body[] = {'{', '"', 'a', '"', ':', ' ', '1', '}', 5, 0, 0, 0, 9, 0, 0, 0};
    fill(secret, sizeof(secret));
    fill(nonce, sizeof(nonce));
    tag_body(body_tag, secret, "", 0, 1);
    cluster_sign(text, secret, nonce,
                 &(cluster_signed){"GET", "/v1/cluster/stream?epoch=0&after=0", NULL, NULL, body_tag});
    EXPECT(strcmp(text, stream_vector) == 0);
    for (size_t piece = 1; piece <= sizeof(body); piece++) {
        tag_body(body_tag, secret, body, sizeof(body), piece);
        cluster_sign(text, secret, nonce, &(cluster_signed){"POST", "/v1/chat/completions", route, "2;5;3", body_tag});
        EXPECT(strcmp(text, chat_vector) == 0);
    }
    EXPECT(cluster_signature_parse(text, parsed) && memcmp(parsed, nonce, sizeof(nonce)) == 0);
    char tag[CLUSTER_NODE_TAG_BYTES];
    cluster_node_tag(tag, "node-a");
    EXPECT(strcmp(tag, "e86b3842") == 0);
}

static void test_changes(void) {
    uint8_t secret[RP_CLUSTER_KEY_BYTES], body_tag[CLUSTER_BODY_TAG_BYTES], other[CLUSTER_BODY_TAG_BYTES];
    fill(secret, sizeof(secret));
    tag_body(body_tag, secret, "{\"a\": 1}\5\0\0\0\11\0\0\0", 16, 16);
    tag_body(other, secret, "{\"a\": 1}\6\0\0\0\11\0\0\0", 16, 16);
    const cluster_signed right = {"POST", "/v1/chat/completions", route, "2;5;3", body_tag};
    EXPECT(cluster_signature_check(chat_vector, secret, &right));
    const cluster_signed wrong[] = {
        {"PUT", right.target, route, "2;5;3", body_tag},
        {"POST", "/v1/chat/completions?a=1", route, "2;5;3", body_tag},
        {"POST", right.target, NULL, "2;5;3", body_tag},
        {"POST", right.target, route, NULL, body_tag},
        {"POST", right.target, "2;5;3", route, body_tag},
        {"POST", right.target, route, "2;5;3", other},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(wrong); i++) EXPECT(!cluster_signature_check(chat_vector, secret, &wrong[i]));
    for (size_t i = 0; i < sizeof(chat_vector) - 1; i++) {
        char text[sizeof(chat_vector)];
        memcpy(text, chat_vector, sizeof(text));
        text[i] = text[i] == '0' ? '1' : '0';
        EXPECT(!cluster_signature_check(text, secret, &right));
        text[i] = '\0';
        EXPECT(!cluster_signature_check(text, secret, &right));
    }
    EXPECT(!cluster_signature_check(NULL, secret, &right));
    secret[31] ^= 1;
    EXPECT(!cluster_signature_check(chat_vector, secret, &right));
}

static void test_headers(void) {
    static const char *const malformed[] = {
        "",
        "epoch=ff",
        "epoch=ff;id=a;seed=1;created=1",
        "epoch=ff;id=a;seed=1;created=1;marks=2",
        "epoch=;id=a;seed=1;created=1;marks=1",
        "epoch=fff00000000000000;id=a;seed=1;created=1;marks=1",
        "epoch=ff;id=a;seed=18446744073709551616;created=1;marks=1",
        "epoch=ff;id=a b;seed=1;created=1;marks=1",
        "epoch=ff;id=;seed=1;created=1;marks=1",
        "epoch=ff;id=a;seed=-1;created=1;marks=1",
        "epoch=ff;id=a;seed=1;created=9223372036854775808;marks=1",
        "epoch=ff;epoch=ff;id=a;seed=1;created=1;marks=1",
        "epoch=ff;id=a;seed=1;created=1;marks=1;",
        "epoch=ff;id=a;seed=1;created=1;marks=1;x=1",
        "epoch=FF;id=a;seed=1;created=1;marks=1",
        "epoch=ff;id=0123456789012345678901234567890123456789;seed=1;created=1;marks=1",
        "epoch=ff;id=a;seed=1;created=1;marks=1;left=",
        "epoch=ff;id=a;seed=1;created=1;marks=1;left=-1",
        "epoch=ff;id=a;seed=1;created=1;marks=1;left=9223372036854775808",
        "epoch=ff;id=a;seed=1;created=1;left=5"};
    static const char *const malformed_resumes[] = {
        "", "1", "1;2", "1;2;", "1;2;3;", "1;2;3;4", "-1;2;3", "1; 2;3", "a;2;3", "16777217;2;3", "1;2;2147483648"};
    char text[CLUSTER_ROUTE_BYTES];
    cluster_route r;
    cluster_resume s;
    EXPECT(cluster_route_read(&r, route) && r.epoch == 0xff && strcmp(r.id, "abc") == 0 && r.seed == 7 &&
           r.created == 1790000000 && r.marks);
    cluster_route_write(text, &r);
    EXPECT(strcmp(text, route) == 0);
    r = (cluster_route){UINT64_MAX, "0123456789-abcdefghijklmnopqrstuvwxyz_A", UINT64_MAX, INT64_MAX, false, INT64_MAX};
    cluster_route_write(text, &r);
    cluster_route back;
    EXPECT(cluster_route_read(&back, text) && back.epoch == r.epoch && back.seed == r.seed &&
           back.created == r.created && !back.marks && back.left_ms == INT64_MAX && strcmp(back.id, r.id) == 0);
    EXPECT(cluster_route_read(&back, "marks=1;id=z;epoch=1;created=0;seed=0") && back.epoch == 1 && back.marks &&
           back.left_ms == 0);
    for (size_t i = 0; i < BASE_ARRAY_LEN(malformed); i++) expect(!cluster_route_read(&r, malformed[i]), malformed[i]);
    EXPECT(!cluster_route_read(&r, NULL) && !cluster_resume_read(&s, NULL));
    for (size_t i = 0; i < BASE_ARRAY_LEN(malformed_resumes); i++)
        expect(!cluster_resume_read(&s, malformed_resumes[i]), malformed_resumes[i]);
    EXPECT(cluster_resume_read(&s, "12;345;6") && s.n_tokens == 12 && s.text_bytes == 345 && s.frames == 6);
    cluster_resume_write(text, &s);
    EXPECT(strcmp(text, "12;345;6") == 0);
    for (int i = CLUSTER_NO_REFUSAL + 1; i < CLUSTER_N_REFUSALS; i++) {
        EXPECT(cluster_refusal_read(cluster_refusal_value((cluster_refusal)i)) == (cluster_refusal)i);
        EXPECT(cluster_refusal_read(cluster_refusal_message((cluster_refusal)i)) == CLUSTER_NO_REFUSAL);
    }
    EXPECT(cluster_refusal_read("") == CLUSTER_NO_REFUSAL && cluster_refusal_read("Draining") == CLUSTER_NO_REFUSAL);
}

/* The i-th nonce: some collide in the sets. */
static void make_nonce(uint8_t nonce[CLUSTER_NONCE_BYTES], uint32_t i) {
    const uint32_t place = i / 3 * 2654435761u;
    memset(nonce, 0, CLUSTER_NONCE_BYTES);
    memcpy(nonce, &place, sizeof(place));
    memcpy(nonce + 8, &i, sizeof(i));
}

static void test_nonces(void) {
    uint8_t nonce[CLUSTER_NONCE_BYTES];
    cluster_nonces *n = cluster_nonces_new();
    const uint32_t many = 5 * CLUSTER_KNOWN_NONCES / 2;
    EXPECT(n != NULL);
    for (uint32_t i = 0; i < many; i++) { /* 0 is a nonce of zeros */
        make_nonce(nonce, i);
        EXPECT(cluster_nonces_add(n, nonce));
        EXPECT(!cluster_nonces_add(n, nonce));
    }
    for (uint32_t i = many - CLUSTER_KNOWN_NONCES; i < many; i++) {
        make_nonce(nonce, i);
        EXPECT(!cluster_nonces_add(n, nonce));
    }
    make_nonce(nonce, 0); /* forgotten */
    EXPECT(cluster_nonces_add(n, nonce) && !cluster_nonces_add(n, nonce));
    cluster_nonces_free(n);
}

/* Reads a file of these bytes and this mode. */
static int read_secret(uint8_t *secret, const char *bytes, size_t n, mode_t mode) {
    char path[] = "/tmp/reprise-secret-XXXXXX";
    rp_error err;
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n || fchmod(fd, mode) || close(fd)) abort();
    int rc = cluster_secret_read(secret, path, &err);
    unlink(path);
    return rc;
}

static void test_secrets(void) {
    static const char digits[] = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F\n";
    uint8_t secret[RP_CLUSTER_KEY_BYTES], wanted[RP_CLUSTER_KEY_BYTES];
    fill(wanted, sizeof(wanted));
    EXPECT(read_secret(secret, digits, sizeof(digits) - 1, 0600) == RP_OK &&
           memcmp(secret, wanted, sizeof(wanted)) == 0);
    memset(secret, 0, sizeof(secret));
    EXPECT(read_secret(secret, (const char *)wanted, sizeof(wanted), 0440) == RP_OK &&
           memcmp(secret, wanted, sizeof(wanted)) == 0);
    EXPECT(read_secret(secret, digits, sizeof(digits) - 1, 0604) == RP_ERR_INVALID);
    EXPECT(read_secret(secret, digits, sizeof(digits) - 1, 0660) == RP_ERR_INVALID);
    EXPECT(read_secret(secret, digits, sizeof(digits) - 3, 0600) == RP_ERR_INVALID);
    EXPECT(read_secret(secret, "", 0, 0600) == RP_ERR_INVALID);
    rp_error err;
    EXPECT(cluster_secret_read(secret, "/nonexistent/secret", &err) == RP_ERR_IO);
}

int main(void) {
    if (sodium_init() < 0) abort();
    test_vectors();
    test_changes();
    test_headers();
    test_nonces();
    test_secrets();
    if (failures == 0) printf("ok\n");
    return failures > 0;
}
