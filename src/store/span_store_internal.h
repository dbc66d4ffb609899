/* SPDX-License-Identifier: Apache-2.0 */
/* span_store_internal.h: shared by span_store.c (the table and uses), span_store_budget.c (eviction, pins, TTLs,
 * quotas), span_store_disk.c, span_store_write.c (write-back) and span_store_live.c (administration). */
#ifndef STORE_SPAN_STORE_INTERNAL_H
#define STORE_SPAN_STORE_INTERNAL_H

#include "store/index/eviction.h"
#include "store/index/item_heap.h"
#include "store/span_store.h"

#define SPAN_STORE_NONE UINT32_MAX

/* Lists of entries, the newest first. From LIST_DUE on: spans that are not on disk yet (span_store_write.c); an entry
 * is in at most one of these. */
typedef enum span_list_kind {
    LIST_RAM,
    LIST_DUE,     /* to be written as soon as the disk accepts them */
    LIST_ONCE,    /* text that was used once: written when nothing is due */
    LIST_WRITING, /* passed to the tier */
    N_LISTS,
} span_list_kind;

typedef enum span_tier {
    TIER_RAM,
    TIER_DISK,
    N_TIERS,
} span_tier;

typedef struct span_links {
    uint32_t newer, older; /* entry indices; `older` links the free list */
} span_links;

/* A record on disk, or on its way there. */
typedef struct span_file {
    uint64_t bytes;  /* its size on disk, or an upper bound */
    uint64_t serial; /* of its write (tier.h); 0: it existed when the store was opened */
    bool written;
    bool unreadable;   /* counted, and never read: encrypted with another key, or a read failed */
    kv_span_form form; /* its arrays: below */
    uint16_t arrays[];
} span_file;

typedef struct span_entry {
    bool used;       /* else it is in the free list */
    bool failed;     /* its span could not be read, or was removed while it was referenced: unlinked from lookup;
                        freed with its last reference */
    bool arriving;   /* it came into RAM for a use that is not counted yet */
    bool is_foreign; /* a record of another model: never found */
    uint8_t tiers;   /* as last reported: span_store_set_on_change */
    bool noted;      /* the index has the current fields from uses to pinned */
    base_key key;
    record_kind kind;     /* a text has a parent in eviction; others may be pinned */
    base_key parent;      /* of a text: another entry's key, or a root's */
    char *label;          /* of a module, or of its reduced KV; NULL: unknown */
    bool fetched;         /* read by span_store_fetch, no get yet */
    kv_span *span;        /* NULL: not in RAM */
    span_file *file;      /* NULL: not on disk */
    record_row *row;      /* not written yet: its future row; NULL otherwise */
    span_list_kind waits; /* the list of spans to write that it is in; LIST_RAM: none */
    uint64_t since_us;    /* base_clock_us: when it entered that list */
    uint64_t wait_bytes;  /* bytes of KV in that list */
    void *owner;
    uint64_t cost_us;
    uint32_t tenant;
    uint64_t uses;
    int64_t last_use;               /* seconds since 1970 */
    int64_t ttl_s;                  /* 0: none */
    int64_t expires;                /* 0: never */
    int64_t keep_s, kept_until;     /* as readers asked; 0: not kept. Not on disk: a restart forgets it */
    bool pinned;                    /* as requested, */
    uint64_t pinned_bytes[N_TIERS]; /* and as the budget of pins permits; 0: not in this tier */
    span_links links[N_LISTS];
} span_entry;

typedef struct span_list {
    uint32_t newest, oldest;
} span_list;

/* A tenant's quota; its group in both tiers is its index in the list, plus 1. */
typedef struct span_quota {
    uint32_t tenant;
    uint64_t bytes[N_TIERS];
} span_quota;

/* Entries by a time, in seconds since 1970. */
typedef struct span_deadlines {
    item_heap heap;
    uint32_t *places;
    size_t n_places, cap_places;
} span_deadlines;

struct span_store {
    kv_pool *pool;
    eviction *tiers[N_TIERS];
    uint64_t pinned_bytes[N_TIERS];
    bool reported_pins;
    span_quota *quotas;
    size_t n_quotas, cap_quotas;
    span_deadlines expiring, keeping; /* by expires, by kept_until */
    span_reader reader;
    int64_t (*now)(void); /* seconds since 1970 */
    span_entry *entries;
    size_t n_entries, cap_entries; /* n_entries: ever used, free entries included */
    uint32_t free_list;
    span_list lists[N_LISTS];
    uint32_t *buckets; /* entry index or NONE; linear probing */
    size_t n_buckets, n_used, n_failed;
    span_store_on_drop on_drop;
    void *drop_user;
    span_store_on_change on_change;
    void *change_user;
    rp_store_stats stats;
    store_tier *tier; /* NULL: none */
    const record_format *format;
    span_store_write write;
    bool read_only; /* the disk */
    uint64_t disk_budget, request, flushed;
    uint64_t retry_us; /* after a failed write: not before this time */
    bool reported_failure;
    uint64_t waiting_bytes[N_LISTS];    /* of KV */
    uint64_t allowed_bytes, allowed_us; /* budget of text that may replace records, at this time (span_store_write.c) */
    bool computing;
    uint32_t share;    /* of a processor, that the tier's writes get meanwhile: 1/share */
    uint64_t quiet_us; /* base_clock_us: since when no request is computed */
    bool closing;      /* no further input: everything is written */
    span_sync *syncs;  /* not done yet */
};

uint32_t span_store_find(const span_store *s, const base_key *key); /* NONE: no entry */
int span_store_take_entry(span_store *s, const base_key *key, void *owner, uint32_t *out, rp_error *err);
/* Gives an entry that is not in RAM a span, with one reference. RP_ERR_MEMORY: it does not. */
int span_store_enter_ram(span_store *s, uint32_t i, kv_span *span);
void span_store_link(span_store *s, span_list_kind list, uint32_t i); /* as the newest */
void span_store_unlink(span_store *s, span_list_kind list, uint32_t i);
/* Removes the span from RAM; the entry stays. for_room: its key enters the ghost list. */
void span_store_leave_ram(span_store *s, uint32_t i, bool for_room);
/* Removes an entry that is in no tier, and calls on_drop for its owner. */
void span_store_forget(span_store *s, uint32_t i);
/* Reports the entry's tiers, if they have changed. */
void span_store_report(span_store *s, uint32_t i);
/* Unlinks an entry in RAM from lookup; it is freed with its last reference. */
void span_store_fail(span_store *s, uint32_t i);
/* Sets the label, if there is memory for it. */
void span_store_set_label(span_entry *e, const char *label);

/* ---- span_store_budget.c ---- */

int span_store_open_budget(span_store *s); /* RP_ERR_MEMORY */
void span_store_close_budget(span_store *s);
/* Adds the entry's span or record to a tier and to its eviction. idle: as in eviction.h. RP_ERR_MEMORY: it was not
 * added. */
int span_store_enter_tier(span_store *s, span_tier tier, uint32_t i, uint64_t bytes, float idle);
void span_store_leave_tier(span_store *s, span_tier tier, uint32_t i, bool for_room);
/* The entry as an item of a tier, in which it may be absent. */
eviction_item span_store_item(const span_store *s, span_tier tier, uint32_t i, uint64_t bytes, float idle);
/* Sets the parents of the items of all entries on disk. */
void span_store_settle_disk(span_store *s);
/* Pins it, as far as the budget of pins permits, or removes the pin. */
void span_store_set_pinned(span_store *s, uint32_t i, bool pinned);
/* Counts a use. terms NULL: none. */
void span_store_use_entry(span_store *s, uint32_t i, const span_terms *terms);
/* Watches the entry's expiry; without memory for that, lookup detects it. */
void span_store_watch(span_store *s, uint32_t i);
void span_store_unwatch(span_store *s, uint32_t i); /* before its removal */
/* Has it expired, and does nobody reference it? */
bool span_store_has_expired(const span_store *s, uint32_t i);
void span_store_expire(span_store *s, uint32_t i); /* removes it from both tiers */
/* Removes expired entries that nobody references. */
void span_store_sweep(span_store *s);
uint32_t span_store_group(const span_store *s, uint32_t tenant);
uint64_t span_store_quota(const span_store *s, uint32_t tenant, span_tier tier); /* UINT64_MAX: none */
/* Evicts the tenant's entries from RAM while it is over its quota. */
void span_store_fit_quota(span_store *s, uint32_t tenant);
/* Updates the item's cost in each tier: it depends on the other tier. */
void span_store_set_cost(span_store *s, uint32_t i);

/* ---- span_store_disk.c ---- */

/* Starts the read of an entry that is on disk: its span with a reference for the caller; NULL: no memory. */
kv_span *span_store_read(span_store *s, uint32_t i);
/* Is there a record that is readable, as far as known? */
static inline bool span_store_can_read(const span_entry *e) { return e->file && !e->file->unreadable; }
/* Removes failed entries that nobody references. */
void span_store_drop_failed(span_store *s);
/* Updates the record's usage in the index. */
void span_store_note_use(span_store *s, uint32_t i);
/* Removes the record from disk; the entry stays. */
void span_store_leave_disk(span_store *s, uint32_t i, tier_removal how, bool for_room);
/* Removes a record that was not written from the entry. */
void span_store_forget_file(span_store *s, uint32_t i, bool for_room);
/* Adds a record to the entry. idle: as in eviction.h. RP_ERR_MEMORY: the caller keeps the file. */
int span_store_enter_disk(span_store *s, uint32_t i, span_file *f, float idle);
/* n_layers: of the form, which may be another model's, and is then kept without its arrays. NULL: out of memory. */
span_file *span_store_new_file(const span_store *s, const kv_span_form *form, int32_t n_layers);
static inline bool span_store_can_write(const span_store *s) { return s->tier && s->write != SPAN_STORE_WRITE_OFF; }
/* The part of the disk budget that records may take. */
uint64_t span_store_disk_limit(const span_store *s);
/* Starts the syncs that waited for writes. */
void span_store_start_syncs(span_store *s);

/* ---- span_store_write.c ---- */

/* Starts the write of an entry, or queues it; does nothing without a disk. seen: it was in the store before. */
void span_store_write_entry(span_store *s, uint32_t i, const span_note *note, bool seen);
/* Raises its priority after another use. */
void span_store_write_sooner(span_store *s, uint32_t i);
/* Cancels a queued write: the entry's span leaves RAM, or is removed. is_lost: counts it. */
void span_store_stop_waiting(span_store *s, uint32_t i, bool is_lost);
/* Passes queued writes to the disk tier, as many as it accepts. */
void span_store_write_waiting(span_store *s);
void span_store_take_write(span_store *s, const tier_event *event);
/* Removes an entry from LIST_WRITING: it was written, or failed. */
void span_store_end_write(span_store *s, uint32_t i);
/* Writes all queued spans until the deadline (base_clock_us). Returns the number of spans that were not written. */
size_t span_store_flush(span_store *s, uint64_t deadline_us);
/* Frees that many bytes on disk for a tenant. about: only if it would be kept longer than the victims; NULL: in any
 * case. */
typedef enum span_disk_fit {
    DISK_FITS,
    DISK_FITS_LATER,
    DISK_FITS_NEVER,
} span_disk_fit;
span_disk_fit span_store_make_disk_space(span_store *s, uint32_t tenant, uint64_t bytes, const eviction_item *about);

/* ---- span_store_live.c ---- */

void span_store_take_sync(span_store *s, const tier_event *event);

#endif
