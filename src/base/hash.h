/* SPDX-License-Identifier: Apache-2.0 */
/* hash.h: 256-bit keys by BLAKE2b (libsodium), a keyed hash of short inputs, and a hash for tables in memory.
 *
 * Everything that BLAKE2b hashes is framed (length before bytes, little-endian integers), so that two different
 * sequences of updates never give the same input.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BASE_KEY_BYTES 32

typedef struct base_key {
    uint8_t bytes[BASE_KEY_BYTES];
} base_key;

typedef struct base_hash {
    _Alignas(64) unsigned char state[384]; /* crypto_generichash_state; checked by a static assertion */
} base_hash;

void base_hash_init(base_hash *h, const char *domain); /* domain separates kinds of keys */
void base_hash_init_keyed(base_hash *h, const char *domain,
                          const base_key *key);                  /* nobody without the key can compute the result */
void base_hash_bytes(base_hash *h, const void *bytes, size_t n); /* framed by its length */
void base_hash_u64(base_hash *h, uint64_t v);
void base_hash_key(base_hash *h, const base_key *key);
void base_hash_final(base_hash *h, base_key *out);

#define BASE_SHORT_KEY_BYTES 16
#define BASE_SHORT_HASH_BYTES 16

/* SipHash-2-4 with 128 bits (Aumasson and Bernstein, 2012): for many inputs of some hundred bytes, about three times as
 * fast as BLAKE2b. Nobody without the key can compute the result; who has the key can find two inputs with one result.
 * The input is hashed as it is, without frames. */
void base_short_hash(uint8_t out[BASE_SHORT_HASH_BYTES], const uint8_t key[BASE_SHORT_KEY_BYTES], const void *bytes,
                     size_t n);

bool base_key_equal(const base_key *a, const base_key *b);
/* Lower-case hexadecimal of the first `digits` (<= 64) nibbles; out holds digits + 1 bytes. */
void base_key_hex(const base_key *key, char *out, size_t digits);
/* The key of 64 lower-case digits; what follows them is not looked at. false: one of the 64 is no such digit, and *out
   is undefined. */
bool base_key_parse(base_key *out, const char *digits);

/* The finalizer of splitmix64 (Steele, Lea and Flood, 2014): every bit of x changes about half of the bits.
   Invertible. */
static inline uint64_t base_mix64(uint64_t x) {
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* splitmix64: the next number; its state only counts, so that any seed is good. */
static inline uint64_t base_random_next(uint64_t *state) { return base_mix64(*state += UINT64_C(0x9e3779b97f4a7c15)); }

/* FNV-1a with its high bits mixed into the low ones, for tables whose size is a power of two. Never stored. */
static inline uint64_t base_table_hash(const void *bytes, size_t n) {
    const unsigned char *p = (const unsigned char *)bytes;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h ^ h >> 32;
}

#endif
