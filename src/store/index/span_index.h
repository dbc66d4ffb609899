/* SPDX-License-Identifier: Apache-2.0 */
/* span_index.h: the entries of a store: by key, in lists, with their place in each tier. Knows where KV is, and moves
 * none (span_places.h).
 *
 *   key -- buckets (open addressing) --> entry:  key | place in each tier | use | owner
 *
 *   place     absent -> there, unwritten -> there, written -> absent
 *                              (the disk tier alone)
 *   lists     LIST_MEMORY | one of LIST_DUE, LIST_ONCE, LIST_WRITING, or none       the newest first
 *
 * Invariants:
 *
 *   1. An entry in memory, or in RAM below a device, has a span, which is sealed and has the entry's key, and is in one
 *      of the two; it is in LIST_MEMORY, or in LIST_RAM.
 *   2. An entry in the disk tier has the form of its record.
 *   3. An entry that waits to be written has a span; until its write begins it has the row of its future record.
 *   4. An entry without a place is removed at once.
 *   5. An entry without usable KV, of an unreadable record alone, has no owner: the key is a miss, until a recomputed
 *      span takes the entry over.
 *
 * Used by one thread.
 */
#ifndef STORE_SPAN_INDEX_H
#define STORE_SPAN_INDEX_H

#include "store/record/record_row.h"

#define SPAN_INDEX_NONE UINT32_MAX
#define SPAN_INDEX_MAX ((size_t)1 << 26)

/* TIER_MEMORY: the memory that is computed with: the device's where the backend has one, else RAM. TIER_RAM: RAM below
 * a device, for what is evicted from it. TIER_DISK: the tier below, whatever it is (tier.h). */
typedef enum span_tier {
    TIER_MEMORY,
    TIER_DISK,
    TIER_RAM,
    N_TIERS,
} span_tier;

/* The result of a lookup. */
typedef enum span_found {
    SPAN_FOUND_MEMORY, /* in the memory that is computed with */
    SPAN_FOUND_RAM,    /* in RAM below a device: it was copied to the device's, or is read in place */
    SPAN_FOUND_DISK,   /* a hit on disk: its layers become ready one by one (kv_span_layers_ready), or it fails */
    SPAN_FOUND_POOL,   /* pulled from a pool for a job (span_store_put_pulled) */
    SPAN_FOUND_NOTHING,
    SPAN_FOUND_NO_MEMORY, /* on disk, but there is no memory to read it into */
} span_found;

/* From LIST_DUE on: spans that are not in the disk tier yet (span_write_back.h). */
typedef enum span_list_kind {
    LIST_MEMORY,
    LIST_RAM,
    LIST_DUE,     /* to be written as soon as the tier accepts them */
    LIST_ONCE,    /* text that was used once: written when nothing is due */
    LIST_WRITING, /* passed to the tier */
    N_LISTS,
} span_list_kind;

typedef struct span_links {
    uint32_t newer, older; /* entry indices; `older` links the free list */
} span_links;

typedef struct span_place {
    bool is_there;
    bool is_written;       /* it can be read: in memory at once; in the disk tier when its record is complete */
    bool is_unreadable;    /* counted, and never read: another model's, encrypted with another key, or a read failed */
    uint64_t bytes;        /* there, or an upper bound */
    uint64_t pinned_bytes; /* of a pinned entry, as far as the budget of pins permits; else 0 */
    uint64_t serial;       /* of its write (tier.h); 0: it existed when the store was opened */
} span_place;

typedef struct span_entry {
    bool used;          /* else it is in the free list */
    bool arriving;      /* it came into memory for a use that is not counted yet */
    bool is_noted;      /* the tier has the current use */
    span_found fetched; /* where it came into memory from for a job (span_store_fetch, span_store_put_pulled), no get
                           yet; SPAN_FOUND_MEMORY: it did not */
    bool push_is_due;   /* it is in the queue of what is pushed to one first */
    uint8_t tiers;      /* as last reported: span_store_set_on_change */
    base_key key;
    record_kind kind; /* texts and states have a parent in eviction; others may be pinned */
    base_key parent;  /* of a text, or of states: another entry's key, or a root's */
    /* the entry of that key, or NONE; the list of its children, the last first: entry + 1, so that zeros are none */
    uint32_t parent_at, first_child, next_child, previous_child;
    char *label; /* of a module, or of its reduced KV; NULL: unknown */
    void *owner;
    span_place places[N_TIERS];
    kv_span *span;        /* in memory or in RAM; NULL: in neither */
    kv_span_form *form;   /* of its record, with its arrays (base_free); NULL: not in the disk tier */
    record_row *row;      /* not written yet: its future row; NULL otherwise */
    record_row *push_row; /* in memory, and not in the pool, as far as known: the row of its future record there */
    span_list_kind waits; /* the list of spans to write that it is in; LIST_MEMORY: none */
    uint64_t since_us;    /* base_clock_us: when it entered that list */
    uint64_t wait_bytes;  /* bytes of KV in that list */
    uint64_t cost_us;
    uint32_t tenant;
    record_use use;             /* pinned: as requested */
    int64_t ttl_s;              /* 0: none */
    int64_t keep_s, kept_until; /* as readers asked; 0: not kept. Not in the tier: a restart forgets it */
    span_links links[N_LISTS];
} span_entry;

typedef struct span_list {
    uint32_t newest, oldest;
} span_list;

typedef struct span_index {
    span_entry *entries;
    size_t n_entries, cap; /* n_entries: ever used, free entries included */
    size_t n_used;
    uint32_t free_list;
    uint32_t *buckets; /* entry index or SPAN_INDEX_NONE; linear probing */
    size_t n_buckets;
    span_list lists[N_LISTS];
} span_index;

/* The number of a tenant, from its salt: never 0. */
uint32_t span_tenant(const base_key *salt);

void span_index_init(span_index *x);
void span_index_free(span_index *x); /* with all entries, and their references */
/* SPAN_INDEX_NONE: no entry. */
uint32_t span_index_find(const span_index *x, const base_key *key);
/* Adds an entry of a key that has none, in no tier. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int span_index_add(span_index *x, const base_key *key, uint32_t *out);
/* Makes an entry a child of another one, its parent; nothing if it has one. */
void span_index_set_parent(span_index *x, uint32_t i, uint32_t parent);
/* The children of an entry, one after another; SPAN_INDEX_NONE: there is no other. */
static inline uint32_t span_index_first_child(const span_index *x, uint32_t i);
static inline uint32_t span_index_next_child(const span_index *x, uint32_t i);
/* Removes an entry that is in no tier and in no list; its children have no parent then. */
void span_index_remove(span_index *x, uint32_t i);
void span_index_link(span_index *x, span_list_kind list, uint32_t i); /* as the newest */
void span_index_unlink(span_index *x, span_list_kind list, uint32_t i);
/* Sets the label, if there is memory for it. */
void span_entry_set_label(span_entry *e, const char *label);

static inline uint32_t span_index_first_child(const span_index *x, uint32_t i) { return x->entries[i].first_child - 1; }
static inline uint32_t span_index_next_child(const span_index *x, uint32_t i) { return x->entries[i].next_child - 1; }
static inline bool span_entry_is_in(const span_entry *e, span_tier tier) { return e->places[tier].is_there; }
/* The tier of its span. */
static inline span_tier span_entry_place(const span_entry *e) {
    return e->places[TIER_RAM].is_there ? TIER_RAM : TIER_MEMORY;
}
/* Is there a record that is readable, as far as known? */
static inline bool span_entry_can_read(const span_entry *e) {
    return e->places[TIER_DISK].is_there && !e->places[TIER_DISK].is_unreadable;
}
/* Is it complete, too? */
static inline bool span_entry_has_record(const span_entry *e) {
    return span_entry_can_read(e) && e->places[TIER_DISK].is_written;
}
/* Has it usable KV, in either tier? */
static inline bool span_entry_can_use(const span_entry *e) { return e->span || span_entry_can_read(e); }
/* Do others than the store reference its span? */
static inline bool span_entry_is_held(const span_entry *e) { return e->span && !kv_span_is_unshared(e->span); }

#endif
