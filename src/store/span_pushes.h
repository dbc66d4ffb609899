/* SPDX-License-Identifier: Apache-2.0 */
/* span_pushes.h: which spans of a store are pushed to a pool (remote/remote_pool.h), and when.
 *
 *   put ---- module, or text that was evicted before ----------> due ---+
 *        \                                                       ^      +--> pushed, what is due first
 *         +- other text ----> once --------- its second use -----+      |
 *                              +----------------------------------------+
 *
 * Text that was used once is pushed, too: a pool has more hits with it (docs/cluster-simulation.md). The KV of requests
 * is never written on their path: keys wait in two bounded queues while the pool is busy, and what leaves memory before
 * its turn, or does not fit into a queue, is not pushed. Nor are spans that came from the pool, records that the store
 * has found on its disk, reduced modules, and states of recurrent layers.
 *
 * Used by one thread, the engine's.
 */
#ifndef STORE_SPAN_PUSHES_H
#define STORE_SPAN_PUSHES_H

#include "store/index/span_places.h"
#include "store/remote/remote_pool.h"

#define SPAN_PUSHES_QUEUED 4096

/* The names of the texts that end in the span of an entry (index/span_names.h), into out[most]; returns their
   number. */
typedef int (*span_text_names)(void *user, const void *owner, rp_name *out, int most);

typedef struct span_tenant_salt {
    uint32_t tenant; /* span_tenant */
    base_key salt;
} span_tenant_salt;

/* A ring of n keys from `first` on. */
typedef struct span_push_queue {
    base_key keys[SPAN_PUSHES_QUEUED];
    size_t first, n;
} span_push_queue;

typedef struct span_pushes {
    span_places *places;
    remote_pool *pool; /* borrowed; NULL: nothing is pushed */
    const base_key *fingerprint;
    span_text_names names;
    void *names_user;
    span_tenant_salt *tenants; /* [n_tenants], rising */
    size_t n_tenants, cap_tenants;
    span_push_queue due, once;
} span_pushes;

void span_pushes_close(span_pushes *p);
/* What its tenants' objects are encrypted with depends on their salts: those of tenants that are not known are not
 * pushed. RP_ERR_MEMORY. */
int span_pushes_know(span_pushes *p, const base_key *salt);
/* An entry was inserted: r, copied, is the content of its record. seen: it was in the store before. */
void span_pushes_add(span_pushes *p, uint32_t i, const record *r, bool seen);
/* It was used again. */
void span_pushes_use(span_pushes *p, uint32_t i);
/* Passes what is due to the pool, as much as it accepts. */
void span_pushes_continue(span_pushes *p);
/* Handles the event of a push; its span stays the caller's. */
void span_pushes_take(span_pushes *p, const remote_event *event);

#endif
