/* SPDX-License-Identifier: Apache-2.0 */
/* chunk_index.h: how often chunks of text were computed, by key: a table of fixed size.
 *
 *   key (with a tenant's salt) --> set of CHUNK_INDEX_WAYS entries: [key, computed, used] ...
 *
 * A new chunk replaces the entry of its set that was used longest ago. A key contains the tenant's salt: no tenant
 * learns of another's chunks; one that floods the table only delays the admission of others' chunks. Used by one thread
 * (the engine's).
 */
#ifndef ENGINE_CHUNK_INDEX_H
#define ENGINE_CHUNK_INDEX_H

#include "base/hash.h"

#define CHUNK_INDEX_SETS 2048
#define CHUNK_INDEX_WAYS 8

typedef struct chunk_index chunk_index; /* about 800 KB */

chunk_index *chunk_index_new(void); /* NULL: no memory */
void chunk_index_free(chunk_index *x);
/* Counts a computation of the chunk, and returns how often it was computed, this one included. */
uint32_t chunk_index_count(chunk_index *x, const base_key *key);

#endif
