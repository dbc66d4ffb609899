/* SPDX-License-Identifier: Apache-2.0 */
/* hash.c: 256-bit keys by BLAKE2b.
 *
 * Owns the framing (what is hashed, in which order and with which lengths); libsodium owns the hash itself. A state
 * is used by one thread at a time; different states are independent.
 *
 *   input = domain | update | update ...      each: tag byte, u64 (little-endian), then that many bytes if a string
 */
#include "base/hash.h"

#include <pthread.h>
#include <sodium.h>
#include <string.h>

#include "base/check.h"

_Static_assert(sizeof(crypto_generichash_state) <= sizeof(((base_hash *)0)->state),
               "base_hash holds libsodium's state");
_Static_assert(_Alignof(crypto_generichash_state) <= _Alignof(base_hash), "base_hash is aligned for libsodium's state");
_Static_assert(sizeof(base_key) == BASE_KEY_BYTES, "a key has no padding");
_Static_assert(BASE_SHORT_KEY_BYTES == crypto_shorthash_siphashx24_KEYBYTES &&
                   BASE_SHORT_HASH_BYTES == crypto_shorthash_siphashx24_BYTES,
               "the short hash is SipHash with 128 bits");
_Static_assert(BASE_KEY_BYTES >= crypto_generichash_BYTES_MIN && BASE_KEY_BYTES <= crypto_generichash_BYTES_MAX,
               "BLAKE2b makes keys of this length");

/* Tags keep a number apart from a string of eight bytes, and a key from a string of thirty-two. */
enum { TAG_BYTES = 'b',
       TAG_U64 = 'u',
       TAG_KEY = 'k' };

static pthread_once_t sodium_once = PTHREAD_ONCE_INIT;

/* Chooses the fastest BLAKE2b of this processor. Hashing works, and gives the same, even where this fails. */
static void sodium_start(void) {
    int rc = sodium_init();
    (void)rc;
}

static crypto_generichash_state *base_hash_state_of(base_hash *h) {
    return (crypto_generichash_state *)(void *)h->state;
}

static void base_hash_update(base_hash *h, const void *bytes, size_t n) {
    int rc = crypto_generichash_update(base_hash_state_of(h), bytes, n);
    BASE_ASSERT(rc == 0);
    (void)rc;
}

static void update_frame(base_hash *h, unsigned char tag, uint64_t v) {
    unsigned char frame[9] = {tag};
    for (int i = 0; i < 8; i++) frame[1 + i] = (unsigned char)(v >> (8 * i));
    base_hash_update(h, frame, sizeof frame);
}

static void hash_start(base_hash *h, const char *domain, const unsigned char *key, size_t key_bytes) {
    pthread_once(&sodium_once, sodium_start);
    int rc = crypto_generichash_init(base_hash_state_of(h), key, key_bytes, BASE_KEY_BYTES);
    BASE_ASSERT(rc == 0);
    (void)rc;
    base_hash_bytes(h, domain, strlen(domain));
}

void base_hash_init(base_hash *h, const char *domain) { hash_start(h, domain, NULL, 0); }

void base_hash_init_keyed(base_hash *h, const char *domain, const base_key *key) {
    hash_start(h, domain, key->bytes, sizeof key->bytes);
}

void base_hash_bytes(base_hash *h, const void *bytes, size_t n) {
    update_frame(h, TAG_BYTES, n);
    if (n > 0) base_hash_update(h, bytes, n);
}

void base_hash_u64(base_hash *h, uint64_t v) { update_frame(h, TAG_U64, v); }

void base_hash_key(base_hash *h, const base_key *key) {
    update_frame(h, TAG_KEY, sizeof key->bytes);
    base_hash_update(h, key->bytes, sizeof key->bytes);
}

void base_hash_final(base_hash *h, base_key *out) {
    int rc = crypto_generichash_final(base_hash_state_of(h), out->bytes, sizeof out->bytes);
    BASE_ASSERT(rc == 0);
    (void)rc;
}

void base_short_hash(uint8_t out[BASE_SHORT_HASH_BYTES], const uint8_t key[BASE_SHORT_KEY_BYTES], const void *bytes,
                     size_t n) {
    int rc = crypto_shorthash_siphashx24(out, bytes, n, key);
    BASE_ASSERT(rc == 0);
    (void)rc;
}

bool base_key_equal(const base_key *a, const base_key *b) { return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0; }

void base_key_hex(const base_key *key, char *out, size_t digits) {
    BASE_ASSERT(digits <= 2 * BASE_KEY_BYTES);
    char all[2 * BASE_KEY_BYTES + 1];
    sodium_bin2hex(all, sizeof(all), key->bytes, BASE_KEY_BYTES);
    memcpy(out, all, digits);
    out[digits] = '\0';
}

static int digit_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool base_key_parse(base_key *out, const char *digits) {
    for (size_t i = 0; i < sizeof out->bytes; i++) {
        int high = digit_value(digits[2 * i]), low = high < 0 ? -1 : digit_value(digits[2 * i + 1]);
        if (low < 0) return false;
        out->bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}
