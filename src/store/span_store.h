/* span_store.h: keeps spans by key, in RAM and on disk, until their room is needed.
 *
 *   entry   key | span, in RAM or not | record on disk or not | owner            found by key (open addressing)
 *
 *   computed --put--> RAM --written--> RAM and disk --reclaimed--> disk --get--> RAM and disk
 *                      |                                             |
 *                      +--reclaimed before it was written--> gone <--+--room on disk is needed
 *
 * The store sees spans as bytes with names: it reads keys, sizes, forms and reference counts, never tensors. It has one reference to each
 * span in RAM. The budget of RAM is the pool's (kv/block_pool.h): when a block cannot be had, the pool calls span_store_reclaim. The
 * budget of the disk is its own: what a record may take is counted before it is written. What goes first in either tier is the policy's
 * choice (eviction.h): what is in RAM and on disk costs a read to have again, what is in one of them costs computing. The disk (disk_tier.h)
 * is optional. span_store_poll must be called now and then.
 *
 * Write-back (span_store_write.c) is for what comes again: modules and text that was used twice are due and are written first; text that was
 * used once is written when nothing is due, and does not push out what is worth more.
 *
 *   pin      stays in the tiers that it is in, as long as half of their budgets is enough for all pins
 *   ttl      goes when it was not used for so long and nobody has it
 *   quota    a tenant that keeps more than it may loses its own; what its calls hold is not taken from them
 *
 * Invariants: an entry's span is sealed and its key is the entry's; a span that anyone else holds stays in RAM; an entry is in RAM, on disk, or
 * on its way there. Used by one thread (the engine's).
 */
#ifndef STORE_SPAN_STORE_H
#define STORE_SPAN_STORE_H

#include "store/disk_tier.h"

#define SPAN_STORE_MAX ((size_t)1 << 26)
/* Limit on the age of text that is due to be written with write-back, while no single system call takes seconds. Later it waits like text used once:
 * long enough for a disk's hiccup, and short enough that a crash loses little. */
#define SPAN_STORE_LAG_LIMIT_US ((uint64_t)6000000)

typedef struct span_store span_store;

int span_store_new(span_store **out, kv_pool *pool, rp_error *err); /* RP_ERR_MEMORY. The pool is borrowed */
/* Writes what waits to be written, then drops its references. */
void span_store_free(span_store *s);
/* The same until a deadline (base_clock_us; UINT64_MAX: none): after it the disk is waited for during one call of the system at most. Returns how
 * many spans were not written: they are logged. */
size_t span_store_close(span_store *s, uint64_t deadline_us);

/* What get found. */
typedef enum span_found {
    SPAN_FOUND_RAM,
    SPAN_FOUND_DISK,    /* it is being read: its layers become ready one after another (kv_span_layers_ready), or it fails */
    SPAN_FOUND_NOTHING,
    SPAN_FOUND_NO_MEMORY, /* it is on disk, and there is no room to read it into */
} span_found;

/* The span of that key with a reference for the caller, or NULL; counts a hit or a miss, but no use. found may be NULL. */
kv_span *span_store_get(span_store *s, const base_key *key, span_found *found);
/* The same for a call that will get it later: nothing is counted, and what is read for it is SPAN_FOUND_DISK to the first get. */
kv_span *span_store_fetch(span_store *s, const base_key *key);
/* Is it there, in either tier? Counts nothing. */
bool span_store_has(const span_store *s, const base_key *key);
/* Is it there, but as a record that cannot be read? */
bool span_store_is_lost(const span_store *s, const base_key *key);
void *span_store_owner(const span_store *s, const base_key *key); /* NULL: none, or it is not there */
/* What computing it took, about, in us; 0 if it is not there. */
uint64_t span_store_cost(const span_store *s, const base_key *key);

/* What whoever uses a span wants of it. What was wanted once holds on. */
typedef struct span_terms {
    int64_t ttl_s; /* it goes when it was not used for so long; 0: says nothing */
    bool pin;      /* it stays; not for texts */
} span_terms;

/* Whose a span is: a number that tells a tenant's spans from others', never 0. */
uint32_t span_tenant(const base_key *salt);

/* What a span's record says beside the span's own form. */
typedef struct span_note {
    record_kind kind;
    base_key parent;
    int32_t at, first_slot, n_tokens; /* as in record.h */
    const int32_t *tokens;            /* borrowed, as all here: copied */
    uint64_t cost_us;
    uint32_t tenant; /* 0: nobody's */
    const char *label;
    span_terms terms;
} span_note;

/* Keeps a sealed span (takes a reference of its own); one of the same key that is there already stays, with its owner.
 * owner: for on_drop; NULL: nobody asks. note: NULL: it is not written to disk, and costs nothing to have again. RP_ERR_MEMORY. */
int span_store_put(span_store *s, kv_span *span, void *owner, const span_note *note, rp_error *err);
/* Notes a span as used now; nothing if it is not there. terms: NULL: none. Putting one is its first use. */
void span_store_use(span_store *s, const base_key *key, const span_terms *terms);
/* Drops the span of that key, which is there and which nobody but the disk tier holds, from both tiers. */
void span_store_drop(span_store *s, const base_key *key);
/* Was the span of that key dropped, as far as is remembered (eviction.h)? */
bool span_store_was_dropped(const span_store *s, const base_key *key);
/* Bytes of spans that nobody holds: what reclaiming could give. */
uint64_t span_store_idle_bytes(const span_store *s);
/* Bytes in RAM that getting the span of that key would take from what reclaiming could give, or from what is free; 0 if it is not there. */
uint64_t span_store_idle_bytes_of(const span_store *s, const base_key *key);
/* For assertions: do the counts agree with the lists, and, if nothing is being read, written or removed, the KV in RAM with the pool's used
 * bytes? Takes time for each entry. */
bool span_store_is_consistent(const span_store *s, uint64_t used_bytes);
/* From now on fn is called after a span that has an owner was dropped; fn NULL: no more. */
typedef void (*span_store_on_drop)(void *user, void *owner);
void span_store_set_on_drop(span_store *s, span_store_on_drop fn, void *user);
/* Blocks that are free or that reclaiming would free, less those that sequences have reserved (kv_pool_reserve). Negative: more is reserved
 * than there is. Reads of records take no more than these. */
int64_t span_store_free_blocks(const span_store *s);
/* Takes the span that goes first of those that nobody holds out of RAM. false if there is none. A kv_reclaim_fn. */
bool span_store_reclaim(void *store);
/* From now on a tenant keeps so many bytes in RAM and on disk at most; 0: as many as there is room for. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int span_store_set_quota(span_store *s, uint32_t tenant, uint64_t ram_bytes, uint64_t disk_bytes);

/* ---- for who looks after it while it is used ---- */

/* What is known of an entry. The label is borrowed. */
typedef struct span_about {
    base_key key;
    record_kind kind;
    const char *label; /* of a module; "" of text, and where it came from disk encrypted */
    int32_t n_tokens;
    uint64_t ram_bytes, disk_bytes; /* 0: it is not there */
    uint64_t cost_us, uses;
    int64_t last_use, expires; /* as in record_index.h */
    bool pinned, expired;
    bool held; /* by others than the store */
} span_about;

/* Calls fn with every entry, in no order. */
typedef void (*span_store_about_fn)(void *user, const span_about *about);
void span_store_each(const span_store *s, span_store_about_fn fn, void *user);
/* Is there a disk that nothing may be changed on? */
bool span_store_is_read_only(const span_store *s);
/* Each of these changes one entry, and what the index says of it; false: it is not there, or it is a text, which cannot be pinned. */
bool span_store_pin(span_store *s, const base_key *key, bool pinned);
/* It goes when it was not used for so long from now on; 0: it does not. */
bool span_store_set_ttl(span_store *s, const base_key *key, int64_t ttl_s);
/* It goes from both tiers. What is held stays valid for those that hold it, is found by nobody else, and goes from RAM after them. */
bool span_store_remove(span_store *s, const base_key *key);

/* What was removed so far shall be gone from the disk for good, after a crash or a loss of power too. done: it is, or rc and err say why that is
 * not sure; span_store_poll sets it. The caller's, which leaves it where it is until it is done. */
typedef struct span_sync {
    struct span_sync *next;
    uint64_t serial;
    bool done;
    int rc;
    rp_error err;
} span_sync;
void span_store_sync(span_store *s, span_sync *sync);

/* For tests: seconds since 1970. */
void span_store_set_clock(span_store *s, int64_t (*now)(void));

/* ---- the disk ---- */

typedef enum span_store_write {
    SPAN_STORE_WRITE_BACK,    /* soon */
    SPAN_STORE_WRITE_THROUGH, /* what a call has read and said is on disk when it ends: span_store_flushed */
    SPAN_STORE_WRITE_OFF,     /* what is there is read, nothing is added */
} span_store_write;

typedef struct span_store_disk {
    disk_tier_options tier;
    span_store_write write;
    uint64_t budget_bytes; /* of the folder, all in all */
    const base_key *others; /* [n_others] fingerprints of this model's KV with another arithmetic: such records are counted in the log */
    size_t n_others;
} span_store_disk;

/* Opens the disk tier. What is on disk is there from now on. One that cannot be used now (RP_ERR_IO of disk_tier_open) is opened read-only, or
 * gone without, with a warning: rp_store_stats.disk_state. own is told each text record of this model, with the owner that the entry shall get in *owner (NULL:
 * the record is dropped). Once, before anything is put. Errors of disk_tier_open. */
typedef int (*span_store_own)(void *user, const record_row *row, void **owner, rp_error *err);
int span_store_open_disk(span_store *s, const span_store_disk *disk, span_store_own own, void *user, rp_error *err);
/* The budget or a quota may be less than what is there. Once all owners are in their places. */
void span_store_fit_disk(span_store *s);
/* Waits until the disk has done what it was asked for so far. */
void span_store_settle_writer(span_store *s);
/* Takes up what the disk has done, and gives it more to do; drops what has expired. Returns whether spans became ready, failed or were written. */
bool span_store_poll(span_store *s);
/* Is somebody computing from now on? Then what is written later takes little of the processors (never where calls wait for it). */
void span_store_set_computing(span_store *s, bool computing);
/* Reads that get begins from now on belong to one more request: they go behind those of requests before it. */
void span_store_next_request(span_store *s);
/* A number that span_store_flushed reaches when all that was put so far is on disk, or could not be written. */
uint64_t span_store_put_serial(const span_store *s);
uint64_t span_store_flushed(const span_store *s);
/* Keeps what an auditor found beside the records: as disk_tier_keep_audit. RP_ERR_CONFLICT without a disk that is written, too. */
int span_store_keep_audit(span_store *s, char *bytes, size_t n);
/* Milliseconds until span_store_poll may have something to write that waits for a quiet moment; -1: nothing does. */
int64_t span_store_wait_ms(const span_store *s);
bool span_store_is_busy(const span_store *s); /* the disk holds spans */
bool span_store_writes_through(const span_store *s);

/* spans, bytes, hits, misses, inserts, evictions and all of the disk; budget_bytes and used_bytes, which are the pool's, are left alone. */
void span_store_stats(const span_store *s, rp_store_stats *out);

#endif
