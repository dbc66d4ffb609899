/* dropped_keys.h: remembers the last keys that were dropped for room, and what was known of them.
 *
 *   ring    | oldest ... newest | free |     a key that is taken leaves a hole
 *   table   open addressing: name -> place in the ring
 *
 * A name is the beginning of a key (64 of its 256 bits): a wrong answer costs a number in the statistics and nothing else.
 * Used by one thread.
 */
#ifndef STORE_DROPPED_KEYS_H
#define STORE_DROPPED_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

#define DROPPED_KEYS_LEAST ((size_t)1 << 10)
#define DROPPED_KEYS_MOST ((size_t)1 << 20) /* 24 bytes each */

typedef struct dropped_key {
    uint64_t name;
    float uses;
    uint32_t n_born; /* children it ever had; UINT32_MAX: a hole */
} dropped_key;

/* Zero-initialise. */
typedef struct dropped_keys {
    dropped_key *ring;
    uint32_t *buckets; /* places in the ring, or UINT32_MAX: empty; twice as many as the ring has */
    size_t cap, first, n; /* cap: a power of two; n: places in use, holes among them */
} dropped_keys;

void dropped_keys_free(dropped_keys *d);
/* Makes room for `n` keys, DROPPED_KEYS_LEAST to DROPPED_KEYS_MOST. RP_ERR_MEMORY: as it was. */
int dropped_keys_reserve(dropped_keys *d, size_t n) BASE_NODISCARD;
/* Remembers a key, which is not remembered yet. True: the oldest was forgotten for it, and is in *forgotten. There is room for some. */
bool dropped_keys_add(dropped_keys *d, const dropped_key *key, dropped_key *forgotten);
bool dropped_keys_has(const dropped_keys *d, uint64_t name);
/* Gives a key that is remembered and forgets it. False: it is not. */
bool dropped_keys_take(dropped_keys *d, uint64_t name, dropped_key *out);

#endif
