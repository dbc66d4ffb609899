/* SPDX-License-Identifier: Apache-2.0 */
/* chunk_index.c: see chunk_index.h. */
#include "engine/background/chunk_index.h"

#include <string.h>

#include "base/memory.h"

typedef struct chunk_entry {
    base_key key;
    uint64_t used; /* chunk_index.n_counted at its last use; 0: free */
    uint32_t computed;
} chunk_entry;

struct chunk_index {
    uint64_t n_counted;
    chunk_entry sets[CHUNK_INDEX_SETS][CHUNK_INDEX_WAYS];
};

chunk_index *chunk_index_new(void) { return base_calloc(1, sizeof(chunk_index)); }

void chunk_index_free(chunk_index *x) { base_free(x); }

uint32_t chunk_index_count(chunk_index *x, const base_key *key) {
    uint64_t number;
    memcpy(&number, key->bytes, sizeof(number)); /* of a hash */
    chunk_entry *set = x->sets[number % CHUNK_INDEX_SETS], *oldest = set;
    x->n_counted++;
    for (int i = 0; i < CHUNK_INDEX_WAYS; i++) {
        chunk_entry *entry = &set[i];
        if (entry->used < oldest->used) oldest = entry;
        if (entry->used == 0 || !base_key_equal(&entry->key, key)) continue;
        entry->used = x->n_counted;
        return ++entry->computed;
    }
    *oldest = (chunk_entry){.key = *key, .used = x->n_counted, .computed = 1};
    return 1;
}
