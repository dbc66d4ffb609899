/* SPDX-License-Identifier: Apache-2.0 */
/* index_wide.h: holders of names that many nodes hold: entries with 4 bits (planes) a node, in a pool.
 *
 *   chunk     1024 entries, each u64[4 planes][n_words]: bit k of word w is node 64 w + k. n_words is that of the
 *             highest node of the chunk
 *   free      a list of free entries, linked by their first words
 *
 * Adding or widening a chunk copies no other chunk. Only index.c uses it.
 */
#ifndef CLUSTER_INDEX_WIDE_H
#define CLUSTER_INDEX_WIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INDEX_WIDE_PLANES 4
#define INDEX_WIDE_CHUNK 1024

typedef struct index_wide_chunk {
    uint64_t *words;
    uint32_t n_words; /* of a plane */
} index_wide_chunk;

/* Zero-initialise: empty. */
typedef struct index_wide_pool {
    index_wide_chunk *chunks;
    size_t n_chunks, chunks_cap;
    size_t used;
    uint32_t free; /* 1 + the first free entry; 0: none */
    uint64_t bytes;
} index_wide_pool;

void index_wide_close(index_wide_pool *p);
/* An entry without holders. RP_ERR_MEMORY, RP_ERR_LIMIT (CLUSTER_INDEX_MAX_WIDE). */
int index_wide_add(index_wide_pool *p, uint32_t *entry);
void index_wide_remove(index_wide_pool *p, uint32_t entry);
/* Sets the planes of a node; 0: it is no holder. Removing or changing a holder cannot fail. RP_ERR_MEMORY: nothing was
 * changed. */
int index_wide_set(index_wide_pool *p, uint32_t entry, int32_t node, uint32_t planes);
uint32_t index_wide_get(const index_wide_pool *p, uint32_t entry, int32_t node);
/* The next holder after `node` (-1: the first one); -1: there is none. A holder has a bit in one of the planes 0 to
 * 2. */
int32_t index_wide_next(const index_wide_pool *p, uint32_t entry, int32_t node);
/* Planes 0 to 2 of nodes 64 * word to 64 * word + 63, and the holders among these nodes. false: no node from 64 * word
 * on is a holder. */
bool index_wide_word(const index_wide_pool *p, uint32_t entry, int32_t word, uint64_t planes[3], uint64_t *holders);
int32_t index_wide_count(const index_wide_pool *p, uint32_t entry);

#endif
