/* span_store_internal.h: what span_store.c and span_store_disk.c share. */
#ifndef STORE_SPAN_STORE_INTERNAL_H
#define STORE_SPAN_STORE_INTERNAL_H

#include "store/span_store.h"

#define SPAN_STORE_NONE UINT32_MAX

/* Entries stand in lists, each by last use, newest first. */
typedef enum span_list_kind { LIST_RAM, LIST_DISK, LIST_UNWRITTEN, N_LISTS } span_list_kind;

typedef struct span_links {
    uint32_t newer, older; /* entry indices; `older` links the free list */
} span_links;

/* A record on disk, or on its way there. */
typedef struct span_file {
    uint64_t bytes; /* that it takes, or at most will */
    bool written;
    bool unreadable; /* it counts, and nobody gets it: encrypted with another key, or reading it failed */
    kv_span_form form; /* kept: below */
    uint8_t kept[];    /* [n_layers] */
} span_file;

typedef struct span_entry {
    bool used;       /* else it is on the free list */
    bool failed;     /* its span could not be read, and goes from RAM as soon as nobody holds it */
    base_key key;
    bool fetched;    /* it was read, and nobody has got it yet */
    kv_span *span;   /* NULL: not in RAM */
    span_file *file; /* NULL: not on disk */
    record_row *row; /* not written yet: what is to be; NULL otherwise */
    void *owner;
    uint64_t uses;
    int64_t last_use;    /* seconds since 1970 */
    bool noted;          /* the index knows uses and last_use */
    span_links links[N_LISTS];
} span_entry;

typedef struct span_list {
    uint32_t newest, oldest;
} span_list;

struct span_store {
    kv_pool *pool;
    span_entry *entries;
    size_t n_entries, cap_entries; /* n_entries: ever used, the free ones among them */
    uint32_t free_list;
    span_list lists[N_LISTS];
    uint32_t *buckets; /* entry index or NONE; linear probing */
    size_t n_buckets, n_used, n_failed;
    span_store_on_drop on_drop;
    void *drop_user;
    span_store_room room;
    void *room_user;
    rp_store_stats stats;
    base_key dropped[SPAN_STORE_DROPPED]; /* a ring: the last stats.evictions of them */

    disk_tier *tier; /* NULL: none */
    const record_format *format;
    span_store_write write;
    uint64_t disk_budget, request, flushed;
    uint64_t retry_us; /* after a failed write: not before */
    bool told_failure;
};

uint32_t span_store_find(const span_store *s, const base_key *key); /* NONE: not there */
int span_store_take_entry(span_store *s, const base_key *key, void *owner, uint32_t *out, rp_error *err);
void span_store_link(span_store *s, span_list_kind list, uint32_t i); /* as the newest */
void span_store_unlink(span_store *s, span_list_kind list, uint32_t i);
/* The entry is neither in RAM nor on disk any more: it goes, and its owner is told. */
void span_store_forget(span_store *s, uint32_t i);
/* Takes the span out of RAM; the entry stays. */
void span_store_leave_ram(span_store *s, uint32_t i);

/* ---- span_store_disk.c ---- */

/* Begins to read an entry that is on disk: its span with a reference for the caller; NULL: no room, no memory. */
kv_span *span_store_read(span_store *s, uint32_t i);
/* Begins to write an entry, or lets it wait; nothing where there is no disk. */
void span_store_write_entry(span_store *s, uint32_t i, const span_note *note);
/* Is there a record that can be read, as far as is known? */
static inline bool span_store_can_read(const span_entry *e) { return e->file && !e->file->unreadable; }
/* Takes the record from disk; the entry stays. */
void span_store_leave_disk(span_store *s, uint32_t i, bool set_aside);

#endif
