/* SPDX-License-Identifier: Apache-2.0 */
/* hash.h: 256-bit keys by BLAKE2b (libsodium).
 *
 * Everything that is hashed is framed (length before bytes, little-endian integers), so that two different
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

void base_hash_init(base_hash *h, const char *domain);                   /* domain separates kinds of keys */
void base_hash_bytes(base_hash *h, const void *bytes, size_t n);         /* framed by its length */
void base_hash_u64(base_hash *h, uint64_t v);
void base_hash_key(base_hash *h, const base_key *key);
void base_hash_final(base_hash *h, base_key *out);

bool base_key_equal(const base_key *a, const base_key *b);
/* Lower-case hexadecimal of the first `digits` (<= 64) nibbles; out holds digits + 1 bytes. */
void base_key_hex(const base_key *key, char *out, size_t digits);
/* The key of 64 lower-case digits; what follows them is not looked at. false: one of the 64 is no such digit, and *out is undefined. */
bool base_key_parse(base_key *out, const char *digits);

#endif
