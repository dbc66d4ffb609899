/* SPDX-License-Identifier: Apache-2.0 */
/* record_cipher.c: see record_cipher.h. Parses keys; the cipher is libsodium's. */
#include "store/record/record_cipher.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"

#define VARIABLE "REPRISE_STORE_KEY"
#define MAX_FILE_BYTES 256 /* digits, and trailing white space */

struct record_cipher {
    uint8_t key[RECORD_CIPHER_KEY_BYTES];
    base_key id; /* its first RECORD_CIPHER_ID_BYTES */
};

_Static_assert(sizeof(crypto_secretstream_xchacha20poly1305_state) <= sizeof(record_stream),
               "a stream holds libsodium's state");
_Static_assert(RECORD_CIPHER_KEY_BYTES == BASE_KEY_BYTES, "a key that was derived is one");
_Static_assert(RECORD_CIPHER_KEY_BYTES == crypto_secretstream_xchacha20poly1305_KEYBYTES,
               "a key is as long as libsodium wants it");
_Static_assert(RECORD_STREAM_START_BYTES == crypto_secretstream_xchacha20poly1305_HEADERBYTES,
               "so is what begins a stream");
_Static_assert(RECORD_MESSAGE_EXTRA == crypto_secretstream_xchacha20poly1305_ABYTES, "and what a message adds");

/* ---- keys ---- */

static int record_cipher_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool read_digits(uint8_t *key, const char *text, size_t n) {
    if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) text += 3, n -= 3; /* a byte order mark */
    while (n > 0 && strchr(" \t\r\n", text[n - 1])) n--;
    if (n != 2 * RECORD_CIPHER_KEY_BYTES) return false;
    for (size_t i = 0; i < RECORD_CIPHER_KEY_BYTES; i++) {
        int high = record_cipher_digit(text[2 * i]), low = record_cipher_digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        key[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* No message contains the key itself. */
static int record_cipher_read_text(uint8_t *key, const char *text, size_t n, bool may_be_raw, const char *where,
                                   rp_error *err) {
    if (may_be_raw && n == RECORD_CIPHER_KEY_BYTES) {
        memcpy(key, text, n);
        return RP_OK;
    }
    if (read_digits(key, text, n)) return RP_OK;
    return base_fail(err, RP_ERR_INVALID, "%s contains no key: write 64 hexadecimal digits%s", where,
                     may_be_raw ? ", or 32 bytes" : "");
}

static int record_cipher_read_file(uint8_t *key, const char *path, rp_error *err) {
    base_buffer b;
    int rc = base_file_read_secret(path, MAX_FILE_BYTES, "the store's key", &b, err);
    if (rc) return rc;
    rc = record_cipher_read_text(key, b.data ? b.data : "", b.len, true, path, err);
    if (b.data) sodium_memzero(b.data, b.len);
    base_buffer_free(&b);
    return rc;
}

static int new_cipher(record_cipher **out, rp_error *err) {
    *out = NULL;
    if (sodium_init() < 0)
        return base_fail(err, RP_ERR_INTERNAL, "records cannot be encrypted: libsodium failed to initialize");
    *out = base_calloc(1, sizeof **out);
    return *out ? RP_OK : base_fail_memory(err, sizeof **out, "a cipher");
}

static void name_cipher(record_cipher *c) {
    base_hash h;
    base_hash_init(&h, "reprise cipher id");
    base_hash_bytes(&h, c->key, sizeof c->key);
    base_hash_final(&h, &c->id);
    sodium_memzero(&h, sizeof h);
}

int record_cipher_open(record_cipher **out, const char *path, rp_error *err) {
    const char *text = path ? NULL : getenv(VARIABLE);
    *out = NULL;
    if (!path && !text) return RP_OK;
    int rc = new_cipher(out, err);
    if (!rc)
        rc = path ? record_cipher_read_file((*out)->key, path, err)
                  : record_cipher_read_text((*out)->key, text, strlen(text), false, VARIABLE, err);
    if (!rc) {
        name_cipher(*out);
        return RP_OK;
    }
    record_cipher_close(*out);
    *out = NULL;
    return rc;
}

int record_cipher_of(record_cipher **out, const base_key *key, rp_error *err) {
    const int rc = new_cipher(out, err);
    if (rc) return rc;
    memcpy((*out)->key, key->bytes, sizeof(*out)->key);
    name_cipher(*out);
    return RP_OK;
}

void record_cipher_close(record_cipher *c) {
    if (c) sodium_memzero(c, sizeof *c);
    base_free(c);
}

const uint8_t *record_cipher_id(const record_cipher *c) {
    BASE_ASSERT(c); /* plain records have none */
    return c->id.bytes;
}

/* BLAKE2b does not allow length extension, so a prepended key makes it a MAC. */
void record_cipher_mac(const record_cipher *c, const char *domain, const void *bytes, size_t n, base_key *out) {
    base_hash h;
    base_hash_init(&h, domain);
    base_hash_u64(&h, c != NULL);
    if (c) base_hash_bytes(&h, c->key, sizeof c->key);
    base_hash_bytes(&h, bytes, n);
    base_hash_final(&h, out);
    sodium_memzero(&h, sizeof h);
}

/* ---- streams ---- */

static crypto_secretstream_xchacha20poly1305_state *record_stream_state_of(record_stream *s) {
    return (crypto_secretstream_xchacha20poly1305_state *)(void *)s->state;
}

void record_stream_begin(record_stream *s, const record_cipher *c, uint8_t *start) {
    int rc = crypto_secretstream_xchacha20poly1305_init_push(record_stream_state_of(s), start, c->key);
    BASE_ASSERT(rc == 0);
    (void)rc;
}

void record_stream_resume(record_stream *s, const record_cipher *c, const uint8_t *start) {
    int rc = crypto_secretstream_xchacha20poly1305_init_pull(record_stream_state_of(s), start, c->key);
    BASE_ASSERT(rc == 0);
    (void)rc;
}

void record_stream_seal(record_stream *s, const void *bytes, size_t n, const void *bound, size_t n_bound,
                        uint8_t *out) {
    int rc = crypto_secretstream_xchacha20poly1305_push(record_stream_state_of(s), out, NULL, bytes, n, bound, n_bound,
                                                        crypto_secretstream_xchacha20poly1305_TAG_MESSAGE);
    BASE_ASSERT(rc == 0);
    (void)rc;
}

bool record_stream_open(record_stream *s, const uint8_t *message, size_t n, const void *bound, size_t n_bound,
                        void *out) {
    unsigned char tag = 0;
    BASE_ASSERT(n <= SIZE_MAX - RECORD_MESSAGE_EXTRA);
    int rc = crypto_secretstream_xchacha20poly1305_pull(record_stream_state_of(s), out, NULL, &tag, message,
                                                        n + RECORD_MESSAGE_EXTRA, bound, n_bound);
    return rc == 0 && tag == crypto_secretstream_xchacha20poly1305_TAG_MESSAGE;
}

void record_stream_wipe(record_stream *s) { sodium_memzero(s, sizeof *s); }
