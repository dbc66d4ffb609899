/* SPDX-License-Identifier: Apache-2.0 */
/* span_pushes.h: which spans of a store are pushed to a pool (remote/remote_pool.h), and when.
 *
 *   put ---- module, or text that was evicted before ----------------------+
 *        \                                                                 +--> due --> pushed: the pool has it
 *         +- other text: waits for its second use ------------------------+      ^  |
 *                                                                                 +--+ the pool is busy
 *
 * The KV of requests is never written on their path: what is due waits in a bounded queue of keys, and what leaves
 * memory before its turn, or does not fit into the queue, is not pushed. Spans that came from the pool are not pushed
 * again. Not pushed: records that the store has found on its disk, reduced modules, and states of recurrent layers.
 *
 * Used by one thread, the engine's.
 */
#ifndef STORE_SPAN_PUSHES_H
#define STORE_SPAN_PUSHES_H

#include "store/index/span_places.h"
#include "store/remote/remote_pool.h"

#define SPAN_PUSHES_DUE 4096

/* The names of the texts that end in the span of an entry (index/span_names.h), into out[most]; returns their
   number. */
typedef int (*span_text_names)(void *user, const void *owner, rp_name *out, int most);

typedef struct span_tenant_salt {
    uint32_t tenant; /* span_tenant */
    base_key salt;
} span_tenant_salt;

typedef struct span_pushes {
    span_places *places;
    remote_pool *pool; /* borrowed; NULL: nothing is pushed */
    const base_key *fingerprint;
    span_text_names names;
    void *names_user;
    span_tenant_salt *tenants; /* [n_tenants], rising */
    size_t n_tenants, cap_tenants;
    base_key due[SPAN_PUSHES_DUE]; /* a ring of n_due keys from first_due on */
    size_t first_due, n_due;
} span_pushes;

void span_pushes_close(span_pushes *p);
/* What its tenants' objects are encrypted with depends on their salts: those of tenants that are not known are not
 * pushed. RP_ERR_MEMORY. */
int span_pushes_know(span_pushes *p, const base_key *salt);
/* An entry was inserted: r, copied, is the content of its record. seen: it was in the store before. */
void span_pushes_add(span_pushes *p, uint32_t i, const record *r, bool seen);
/* It was used again. */
void span_pushes_use(span_pushes *p, uint32_t i);
/* The pool has it: it is not pushed. */
void span_pushes_skip(span_pushes *p, uint32_t i);
/* Passes what is due to the pool, as much as it accepts. */
void span_pushes_continue(span_pushes *p);
/* Handles the event of a push; its span stays the caller's. */
void span_pushes_take(span_pushes *p, const remote_event *event);

#endif
