/* SPDX-License-Identifier: Apache-2.0 */
/* span_store_internal.h: what span_store.c (the table and uses), span_store_budget.c (what goes, and what never does), span_store_disk.c,
 * span_store_write.c (what is written, and when) and span_store_live.c (for who looks after it) share. */
#ifndef STORE_SPAN_STORE_INTERNAL_H
#define STORE_SPAN_STORE_INTERNAL_H

#include "store/eviction.h"
#include "store/item_heap.h"
#include "store/span_store.h"

#define SPAN_STORE_NONE UINT32_MAX

/* Lists of entries, the newest first. Those from LIST_DUE on are spans that are not on disk yet (span_store_write.c): an entry is in one of them
 * at most. */
typedef enum span_list_kind {
    LIST_RAM,
    LIST_DUE,     /* to be written as soon as the disk takes them */
    LIST_ONCE,    /* text that was used once: written when nothing is due */
    LIST_WRITING, /* the disk tier has them */
    N_LISTS,
} span_list_kind;

typedef enum span_tier { TIER_RAM, TIER_DISK, N_TIERS } span_tier;

typedef struct span_links {
    uint32_t newer, older; /* entry indices; `older` links the free list */
} span_links;

/* A record on disk, or on its way there. */
typedef struct span_file {
    uint64_t bytes; /* that it takes, or at most will */
    uint64_t serial; /* of its write (disk_tier_serial); 0: it was there when the store was opened */
    bool written;
    bool unreadable; /* it counts, and nobody gets it: encrypted with another key, or reading it failed */
    kv_span_form form; /* kept: below */
    uint8_t kept[];    /* [n_layers] */
} span_file;

typedef struct span_entry {
    bool used;       /* else it is on the free list */
    bool failed;     /* its span could not be read, or was removed while it was held: it is found no more, and goes from RAM as soon as nobody
                        holds it */
    bool arriving;   /* it came into RAM for a use that is not noted yet */
    bool noted;      /* the index knows what follows from uses to pinned */
    base_key key;
    bool is_text;    /* else it stands alone, and may be pinned */
    base_key parent; /* of a text: another's, or a root's */
    char *label;     /* of a module; NULL: none is known */
    bool fetched;    /* it was read, and nobody has got it yet */
    kv_span *span;   /* NULL: not in RAM */
    span_file *file; /* NULL: not on disk */
    record_row *row; /* not written yet: what is to be; NULL otherwise */
    span_list_kind waits; /* LIST_DUE or LIST_ONCE while it waits to be written, LIST_WRITING; LIST_RAM: it does not */
    uint64_t since_us;    /* base_clock_us, of those: when it began to wait */
    uint64_t wait_bytes;  /* of those: its states */
    void *owner;
    uint64_t cost_us;
    uint32_t tenant;
    uint64_t uses;
    int64_t last_use; /* seconds since 1970 */
    int64_t ttl_s;    /* 0: none */
    int64_t expires;  /* 0: never */
    bool pinned;      /* as was asked for, */
    uint64_t pinned_bytes[N_TIERS]; /* and as far as there is room for pins; 0: not in this tier */
    span_links links[N_LISTS];
} span_entry;

typedef struct span_list {
    uint32_t newest, oldest;
} span_list;

/* What a tenant may keep; its group in both tiers is its place in the list, and 1. */
typedef struct span_quota {
    uint32_t tenant;
    uint64_t bytes[N_TIERS];
} span_quota;

struct span_store {
    kv_pool *pool;
    eviction *tiers[N_TIERS];
    uint64_t pinned_bytes[N_TIERS];
    bool told_pins;
    span_quota *quotas;
    size_t n_quotas, cap_quotas;
    item_heap expiring; /* by when */
    uint32_t *expiring_places;
    size_t n_places, cap_places;
    int64_t (*now)(void); /* seconds since 1970 */
    span_entry *entries;
    size_t n_entries, cap_entries; /* n_entries: ever used, the free ones among them */
    uint32_t free_list;
    span_list lists[N_LISTS];
    uint32_t *buckets; /* entry index or NONE; linear probing */
    size_t n_buckets, n_used, n_failed;
    span_store_on_drop on_drop;
    void *drop_user;
    rp_store_stats stats;
    disk_tier *tier; /* NULL: none */
    const record_format *format;
    span_store_write write;
    bool read_only; /* the disk */
    uint64_t disk_budget, request, flushed;
    uint64_t retry_us; /* after a failed write: not before */
    bool told_failure;
    uint64_t waiting_bytes[N_LISTS]; /* of states */
    uint64_t allowed_bytes, allowed_us; /* that text may replace on disk, as of this time (span_store_write.c) */
    bool computing;
    uint64_t quiet_us; /* base_clock_us: since when nobody computes */
    bool closing;      /* nothing comes any more: everything is written */
    span_sync *syncs;  /* that are not done */
};

uint32_t span_store_find(const span_store *s, const base_key *key); /* NONE: not there */
int span_store_take_entry(span_store *s, const base_key *key, void *owner, uint32_t *out, rp_error *err);
/* An entry that is not in RAM gets a span, and one reference to it. RP_ERR_MEMORY: it does not. */
int span_store_enter_ram(span_store *s, uint32_t i, kv_span *span);
void span_store_link(span_store *s, span_list_kind list, uint32_t i); /* as the newest */
void span_store_unlink(span_store *s, span_list_kind list, uint32_t i);
/* Takes the span out of RAM; the entry stays. for_room: it is remembered. */
void span_store_leave_ram(span_store *s, uint32_t i, bool for_room);
/* The entry is neither in RAM nor on disk any more: it goes, and its owner is told. */
void span_store_forget(span_store *s, uint32_t i);
/* An entry in RAM is found no more, and goes as soon as nobody holds it. */
void span_store_fail(span_store *s, uint32_t i);
/* The label, as far as there is memory for it. */
void span_store_set_label(span_entry *e, const char *label);

/* ---- span_store_budget.c ---- */

int span_store_open_budget(span_store *s); /* RP_ERR_MEMORY */
void span_store_close_budget(span_store *s);
/* The entry's span or record is there from now on, and takes part in what goes. idle: as in eviction.h. RP_ERR_MEMORY: it does not. */
int span_store_enter_tier(span_store *s, span_tier tier, uint32_t i, uint64_t bytes, float idle);
void span_store_leave_tier(span_store *s, span_tier tier, uint32_t i, bool for_room);
/* The entry as an item of a tier, which it need not be in. */
eviction_item span_store_item(const span_store *s, span_tier tier, uint32_t i, uint64_t bytes, float idle);
/* Items of all entries that are on disk stand on their parents from now on. */
void span_store_settle_disk(span_store *s);
/* It stays, as far as there is room for pins, or not any more. */
void span_store_set_pinned(span_store *s, uint32_t i, bool pinned);
/* Notes a use. terms: NULL: none. */
void span_store_use_entry(span_store *s, uint32_t i, const span_terms *terms);
/* When the entry expires is watched; without memory for that it is found out when it is asked for. */
void span_store_watch(span_store *s, uint32_t i);
void span_store_unwatch(span_store *s, uint32_t i); /* it goes */
/* Is its time over, and does nobody hold it? */
bool span_store_has_expired(const span_store *s, uint32_t i);
void span_store_expire(span_store *s, uint32_t i); /* it goes from both tiers */
/* Drops what has expired and nobody holds. */
void span_store_sweep(span_store *s);
uint32_t span_store_group(const span_store *s, uint32_t tenant);
uint64_t span_store_quota(const span_store *s, uint32_t tenant, span_tier tier); /* UINT64_MAX: none */
/* The tenant loses its own in RAM where it has more than its quota. */
void span_store_fit_quota(span_store *s, uint32_t tenant);
/* What a tier's entry would cost to have again changes with the other tier. */
void span_store_set_cost(span_store *s, uint32_t i);

/* ---- span_store_disk.c ---- */

/* Begins to read an entry that is on disk: its span with a reference for the caller; NULL: no room, no memory. */
kv_span *span_store_read(span_store *s, uint32_t i);
/* Is there a record that can be read, as far as is known? */
static inline bool span_store_can_read(const span_entry *e) { return e->file && !e->file->unreadable; }
/* Drops what has failed and nobody holds. */
void span_store_drop_failed(span_store *s);
/* Has the index say of a record what became of it since it was written. */
void span_store_note_use(span_store *s, uint32_t i);
/* Takes the record from disk; the entry stays. */
void span_store_leave_disk(span_store *s, uint32_t i, disk_removal how, bool for_room);
/* Forgets the record without removing it: it was not written. */
void span_store_forget_file(span_store *s, uint32_t i, bool for_room);
/* The entry has a record from now on, which file says. idle: as in eviction.h. RP_ERR_MEMORY: the file is the caller's. */
int span_store_enter_disk(span_store *s, uint32_t i, span_file *f, float idle);
/* n_layers: of the form, which may be of another model. NULL: no memory. */
span_file *span_store_new_file(const span_store *s, const kv_span_form *form, int32_t n_layers);
static inline bool span_store_can_write(const span_store *s) { return s->tier && s->write != SPAN_STORE_WRITE_OFF; }
/* Bytes of the disk's budget that records may take. */
uint64_t span_store_disk_limit(const span_store *s);
/* A word for errno, for metrics and /readyz. */
const char *span_store_trouble_name(int cause);

/* ---- span_store_write.c ---- */

/* Begins to write an entry, or lets it wait; nothing where there is no disk. seen: it was here before. */
void span_store_write_entry(span_store *s, uint32_t i, const span_note *note, bool seen);
/* It was used once more. */
void span_store_write_sooner(span_store *s, uint32_t i);
/* The entry's span leaves RAM, or is removed: it is not written. is_lost: that is counted. */
void span_store_stop_waiting(span_store *s, uint32_t i, bool is_lost);
/* Gives the disk what it can take of those that wait. */
void span_store_write_waiting(span_store *s);
void span_store_take_write(span_store *s, const disk_event *event);
/* An entry in LIST_WRITING is written, or will not be. */
void span_store_end_write(span_store *s, uint32_t i);
/* What waits to be written is, until the deadline (base_clock_us). Returns how many spans were not. */
size_t span_store_flush(span_store *s, uint64_t deadline_us);
/* Makes room on disk for so many bytes more of a tenant. about: only for what would be kept longer than what goes; NULL: in any case. */
typedef enum span_disk_fit { DISK_FITS, DISK_FITS_LATER, DISK_FITS_NEVER } span_disk_fit;
span_disk_fit span_store_make_disk_space(span_store *s, uint32_t tenant, uint64_t bytes, const eviction_item *about);

/* ---- span_store_live.c ---- */

void span_store_take_sync(span_store *s, const disk_event *event);

#endif
