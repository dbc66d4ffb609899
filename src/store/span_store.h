/* span_store.h: keeps spans by key, in RAM, until their room is needed.
 *
 *   table   open addressing: key -> entry          entries also form a list by last use
 *
 *   newest <-> ... <-> oldest                      evicting walks from the oldest and takes the first that nobody holds
 *
 * The store sees spans as bytes with names: it reads keys, sizes and reference counts, never tensors. It has one reference to each
 * span. The budget is the pool's (kv/block_pool.h): when a block cannot be had, the pool calls span_store_reclaim.
 *
 * Invariants: an entry's span is sealed and its key is the entry's; a span that anyone else holds is never evicted.
 * Used by one thread (the engine's).
 */
#ifndef STORE_SPAN_STORE_H
#define STORE_SPAN_STORE_H

#include "kv/span.h"
#include "reprise.h"

#define SPAN_STORE_MAX ((size_t)1 << 26)
#define SPAN_STORE_DROPPED 1024 /* keys that are remembered */

typedef struct span_store span_store;

int span_store_new(span_store **out, rp_error *err); /* RP_ERR_MEMORY */
void span_store_free(span_store *s);                 /* drops its references */

/* The span of that key with a reference for the caller, or NULL; counts a hit or a miss, and a hit as a use. */
kv_span *span_store_get(span_store *s, const base_key *key);
/* Is it there? Counts nothing. */
bool span_store_has(const span_store *s, const base_key *key);
/* Keeps a sealed span (takes a reference of its own); one of the same key that is there already stays, with its owner.
 * owner: for on_drop; NULL: nobody asks. RP_ERR_MEMORY. */
int span_store_put(span_store *s, kv_span *span, void *owner, rp_error *err);
/* Notes a span as used now; nothing if it is not there. */
void span_store_use(span_store *s, const base_key *key);
/* Drops the span of that key, which is there and which nobody holds. */
void span_store_drop(span_store *s, const base_key *key);
/* Was the span of that key dropped, as far as the last SPAN_STORE_DROPPED tell? */
bool span_store_was_dropped(const span_store *s, const base_key *key);
/* Bytes of spans that nobody holds: what reclaiming could give. */
uint64_t span_store_idle_bytes(const span_store *s);
/* Bytes of the span of that key, if it is there and nobody holds it; else 0. */
uint64_t span_store_idle_bytes_of(const span_store *s, const base_key *key);
/* From now on fn is called after a span that has an owner was dropped; fn NULL: no more. */
typedef void (*span_store_on_drop)(void *user, void *owner);
void span_store_set_on_drop(span_store *s, span_store_on_drop fn, void *user);
/* Drops the span that was used longest ago among those that nobody holds; false if there is none. A kv_reclaim_fn. */
bool span_store_reclaim(void *store);

/* spans, bytes, hits, misses, inserts, evictions; budget_bytes and used_bytes, which are the pool's, are left alone. */
void span_store_stats(const span_store *s, rp_store_stats *out);

#endif
