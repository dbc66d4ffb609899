/* SPDX-License-Identifier: Apache-2.0 */
/* signature.c: see signature.h. Owns nothing. Any thread. */
#define _POSIX_C_SOURCE 200809L /* stat */
#include "cluster/signature.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"

#define MAX_SECRET_FILE_BYTES 256 /* digits, and trailing white space */
#define MAC_BYTES 32
#define MAC_AT (2 + 2 * CLUSTER_NONCE_BYTES + 1)

_Static_assert(sizeof(crypto_onetimeauth_state) <= sizeof(cluster_body), "a body's tag holds libsodium's state");
_Static_assert(MAC_BYTES == crypto_generichash_BYTES && crypto_onetimeauth_KEYBYTES == crypto_generichash_BYTES,
               "hashes are BLAKE2b-256");
_Static_assert(CLUSTER_BODY_TAG_BYTES == crypto_onetimeauth_BYTES, "tags are of Poly1305");

/* ---- the secret ---- */

static bool parse_secret(uint8_t *secret, const char *text, size_t n) {
    size_t used = 0;
    const char *end = NULL;
    if (n == RP_CLUSTER_KEY_BYTES) {
        memcpy(secret, text, n);
        return true;
    }
    if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) text += 3, n -= 3; /* a byte order mark */
    while (n > 0 && strchr(" \t\r\n", text[n - 1])) n--;
    return n == 2 * RP_CLUSTER_KEY_BYTES &&
           sodium_hex2bin(secret, RP_CLUSTER_KEY_BYTES, text, n, NULL, &used, &end) == 0 && end == text + n &&
           used == RP_CLUSTER_KEY_BYTES;
}

int cluster_secret_read(uint8_t secret[RP_CLUSTER_KEY_BYTES], const char *path, rp_error *err) {
    base_buffer b;
    int rc = base_file_read_secret(path, MAX_SECRET_FILE_BYTES, "the cluster's secret", &b, err);
    if (rc) return rc;
    if (!parse_secret(secret, b.data ? b.data : "", b.len)) /* no message contains the secret */
        rc = base_fail(err, RP_ERR_INVALID, "%s contains no secret: write 64 hexadecimal digits, or 32 bytes", path);
    if (b.data) sodium_memzero(b.data, b.len);
    base_buffer_free(&b);
    return rc;
}

/* ---- parts with their lengths ---- */

static void add_framed(crypto_generichash_state *h, const void *bytes, size_t n) {
    const uint8_t length[4] = {(uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24)};
    crypto_generichash_update(h, length, sizeof(length));
    crypto_generichash_update(h, bytes, n);
}

static void add_text(crypto_generichash_state *h, const char *text) {
    add_framed(h, text ? text : "", text ? strlen(text) : 0);
}

/* ---- bodies ---- */

static crypto_onetimeauth_state *state_of(cluster_body *b) { return (crypto_onetimeauth_state *)(void *)b->state; }

void cluster_body_init(cluster_body *b, const uint8_t *secret, const uint8_t nonce[CLUSTER_NONCE_BYTES]) {
    crypto_generichash_state h;
    uint8_t key[crypto_onetimeauth_KEYBYTES];
    crypto_generichash_init(&h, secret, RP_CLUSTER_KEY_BYTES, sizeof(key));
    add_text(&h, "reprise body 1");
    add_framed(&h, nonce, CLUSTER_NONCE_BYTES);
    crypto_generichash_final(&h, key, sizeof(key));
    crypto_onetimeauth_init(state_of(b), key);
    sodium_memzero(&h, sizeof(h));
    sodium_memzero(key, sizeof(key));
}

void cluster_body_add(cluster_body *b, const void *bytes, size_t n) {
    crypto_onetimeauth_update(state_of(b), bytes, n);
}

void cluster_body_final(cluster_body *b, uint8_t tag[CLUSTER_BODY_TAG_BYTES]) {
    crypto_onetimeauth_final(state_of(b), tag);
}

/* ---- requests ---- */

void cluster_sign(char out[CLUSTER_SIGNATURE_BYTES], const uint8_t *secret, const uint8_t nonce[CLUSTER_NONCE_BYTES],
                  const cluster_signed *r) {
    crypto_generichash_state h;
    uint8_t mac[MAC_BYTES];
    char digits[2 * CLUSTER_NONCE_BYTES + 1];
    sodium_bin2hex(digits, sizeof(digits), nonce, CLUSTER_NONCE_BYTES);
    crypto_generichash_init(&h, secret, RP_CLUSTER_KEY_BYTES, sizeof(mac));
    add_text(&h, "reprise request 1");
    add_text(&h, r->method);
    add_text(&h, r->target);
    add_text(&h, digits);
    add_text(&h, r->route);
    add_text(&h, r->resume);
    add_framed(&h, r->body_tag, CLUSTER_BODY_TAG_BYTES);
    crypto_generichash_final(&h, mac, sizeof(mac));
    const int n = snprintf(out, CLUSTER_SIGNATURE_BYTES, "1;%s;", digits);
    BASE_ASSERT(n == MAC_AT); /* where cluster_signature_parse reads it */
    sodium_bin2hex(out + MAC_AT, CLUSTER_SIGNATURE_BYTES - MAC_AT, mac, sizeof(mac));
    sodium_memzero(&h, sizeof(h));
}

bool cluster_signature_parse(const char *text, uint8_t nonce[CLUSTER_NONCE_BYTES]) {
    size_t used = 0;
    if (!text || strlen(text) != CLUSTER_SIGNATURE_BYTES - 1 || strncmp(text, "1;", 2) != 0 || text[MAC_AT - 1] != ';')
        return false;
    if (strspn(text + 2, "0123456789abcdef") != 2 * CLUSTER_NONCE_BYTES ||
        strspn(text + MAC_AT, "0123456789abcdef") != 2 * MAC_BYTES)
        return false;
    return sodium_hex2bin(nonce, CLUSTER_NONCE_BYTES, text + 2, 2 * CLUSTER_NONCE_BYTES, NULL, &used, NULL) == 0 &&
           used == CLUSTER_NONCE_BYTES;
}

bool cluster_signature_check(const char *text, const uint8_t *secret, const cluster_signed *r) {
    uint8_t nonce[CLUSTER_NONCE_BYTES];
    char right[CLUSTER_SIGNATURE_BYTES];
    if (!cluster_signature_parse(text, nonce)) return false;
    cluster_sign(right, secret, nonce, r);
    return sodium_memcmp(right, text, CLUSTER_SIGNATURE_BYTES - 1) == 0;
}

/* ---- replies ---- */

void cluster_reply_tag(char out[CLUSTER_REPLY_TAG_BYTES], const uint8_t *secret,
                       const uint8_t nonce[CLUSTER_NONCE_BYTES], const void *bytes, size_t n) {
    crypto_generichash_state h;
    uint8_t tag[(CLUSTER_REPLY_TAG_BYTES - 1) / 2];
    crypto_generichash_init(&h, secret, RP_CLUSTER_KEY_BYTES, sizeof(tag));
    add_text(&h, "reprise reply 1");
    add_framed(&h, nonce, CLUSTER_NONCE_BYTES);
    add_framed(&h, bytes, n);
    crypto_generichash_final(&h, tag, sizeof(tag));
    sodium_bin2hex(out, CLUSTER_REPLY_TAG_BYTES, tag, sizeof(tag));
    sodium_memzero(&h, sizeof(h));
}

/* ---- nodes ---- */

void cluster_node_tag(char out[CLUSTER_NODE_TAG_BYTES], const char *name) {
    uint8_t hash[crypto_generichash_BYTES];
    crypto_generichash(hash, sizeof(hash), (const unsigned char *)name, strlen(name), NULL, 0);
    sodium_bin2hex(out, CLUSTER_NODE_TAG_BYTES, hash, (CLUSTER_NODE_TAG_BYTES - 1) / 2);
}
