/* SPDX-License-Identifier: Apache-2.0 */
/* span_store.h: spans by key, in RAM and on disk, under a budget for each tier. The store's door; behind it:
 *
 *   span_index <- span_budget <- span_places <- span_write_back <- span_store      each uses those to its left (index/)
 *                                tier.h <----- disk/, or any other table
 *
 *   entry   key | span, in RAM or not | record on disk or not | owner            looked up by key (open addressing)
 *
 *   computed --put--> RAM --written--> RAM and disk --reclaimed--> disk --get--> RAM and disk
 *                      |                                             |
 *                      +--reclaimed before it was written--> removed <--+--evicted from disk
 *
 * The store sees spans as bytes with names: keys, sizes, forms and reference counts, never tensors. It has one
 * reference to each span in RAM. The budget in RAM is the pool's (kv/block_pool.h): when no block is free, the pool
 * calls span_store_reclaim. The budget on disk is the store's own: the possible size of a record is counted before it
 * is written. In both tiers eviction.h selects the victims: an entry in RAM and on disk costs a read to restore, an
 * entry in one tier costs a prefill. The disk tier (tier.h) is optional. span_store_poll must be called regularly.
 *
 * Write-back (index/span_write_back.h): modules and text that was used twice are due and are written first; text that
 * was used once is written when nothing is due, and does not replace records of more value.
 *
 * With a device, `RAM` above is its memory, and a tier of the host's RAM is between it and the disk:
 * span_store_set_ram.
 *
 *   keep     a soft pin that a reader asks for (cache_control, prompt_cache_retention): evicted after all others, until
 *         its
 *            time is over, as long as all of them together fit into half of what pins leave of a tier's budget, and
 *            those of a tenant with a quota into half of that; beyond it the least valuable ones lose it
 *   pin      exempt from eviction in both tiers, as long as all pins together fit into half of a tier's budget
 *   ttl      removed when it was not used for so long and nobody references it
 *   quota    over quota, a tenant's own entries are evicted; entries that its jobs reference are not
 *
 *   faults   KV that cannot be read is a miss, once: its span leaves the store at once, even while it is referenced.
 *            An unreadable record gives its place to the recomputed span (span_index.h, invariant 5). Records of
 *            other models are unreadable from the opening on
 *
 * Invariants: an entry's span is sealed and has the entry's key; a span that anyone else references is not evicted; an
 * entry is in RAM, on disk, or on its way there. Used by one thread (the engine's).
 */
#ifndef STORE_SPAN_STORE_H
#define STORE_SPAN_STORE_H

#include "store/index/span_write_back.h"
#include "store/span_pushes.h"
#include "reprise_store.h"

#define SPAN_STORE_MAX SPAN_INDEX_MAX

typedef struct span_store span_store;

int span_store_new(span_store **out, kv_pool *pool, rp_error *err); /* RP_ERR_MEMORY. The pool is borrowed */
/* Writes all spans that wait to be written, then releases its references. */
void span_store_free(span_store *s);
/* The same until a deadline (base_clock_us; UINT64_MAX: none): after it, waits for one system call at most. Returns
 * the number of spans that were not written, which it logs. */
size_t span_store_close(span_store *s, uint64_t deadline_us);

/* The slower tier of two hits; a miss changes nothing. */
static inline span_found span_found_slower(span_found a, span_found b) {
    return b <= SPAN_FOUND_POOL ? BASE_MAX(a, b) : a;
}

/* Spans that are evicted from the memory of a device move to RAM. Once, before the first span. */
void span_store_set_ram(span_store *s, const span_ram *ram);
/* How often the spans that are looked up from now on are read, approximately: once for each token that is computed. */
void span_store_set_reads(span_store *s, double n_reads);

/* The span of that key with a reference for the caller, or NULL; counts a hit or a miss, but no use. found may be
 * NULL. */
kv_span *span_store_get(span_store *s, const base_key *key, span_found *found);
/* The same for a job that will get it later (prefetch): nothing is counted, and a span that is read or copied for it is
 * SPAN_FOUND_DISK or SPAN_FOUND_RAM to the first get. */
kv_span *span_store_fetch(span_store *s, const base_key *key);
/* Is there an entry of that key, in either tier? Counts nothing. */
bool span_store_has(const span_store *s, const base_key *key);
void *span_store_owner(const span_store *s, const base_key *key); /* NULL: no owner, or no entry */
/* Time to compute it, in us, approximately; 0 without an entry. */
uint64_t span_store_cost(const span_store *s, const base_key *key);

/* Inserts a sealed span and takes a reference of its own; an entry of the same key with usable KV stays, with its
 * owner. owner: for on_drop; may be NULL. about: content of its record, copied; key and form are the span's. NULL:
 * the span is not written to disk, and its cost is 0. terms: of this use, the first; may be NULL. RP_ERR_MEMORY. */
int span_store_put(span_store *s, kv_span *span, void *owner, const record *about, const span_terms *terms,
                   rp_error *err);
/* The same of one that a pool has: it is not pushed there, and its first get finds it in the pool. */
int span_store_put_pulled(span_store *s, kv_span *span, void *owner, const record *about, rp_error *err);
/* Counts a use of a span now; nothing without an entry. terms may be NULL. Inserting is the first use. */
void span_store_use(span_store *s, const base_key *key, const span_terms *terms);
/* Is of the reader as well, without another use: it was inserted for it. */
void span_store_mark(span_store *s, const base_key *key, const span_terms *terms);
/* Whose uses and insertions are counted from now on; zeros: nobody's. */
void span_store_set_reader(span_store *s, span_reader reader);
/* A session ended: what it alone has used is evicted before all others, and kept no longer. Takes time for each
   entry. */
void span_store_end_session(span_store *s, uint64_t session);
/* Removes the entry of that key, which exists, from both tiers. */
void span_store_drop(span_store *s, const base_key *key);
/* Is the key in a ghost list: was it evicted not long ago (eviction.h)? */
bool span_store_was_dropped(const span_store *s, const base_key *key);
/* Bytes of spans in RAM that nobody else references: reclaiming could free them. */
uint64_t span_store_idle_bytes(const span_store *s);
/* Reclaimable or free bytes that getting the span of that key would take; 0 without an entry. */
uint64_t span_store_idle_bytes_of(const span_store *s, const base_key *key);
/* Measured microseconds to read a byte of a record from disk; 0: not known. */
double span_store_read_byte_us(const span_store *s);
/* For assertions: do the counts agree with the lists, and, if nothing is being read, written or removed, the KV in
 * RAM with the pool's used bytes? Takes time for each entry. */
bool span_store_is_consistent(const span_store *s, uint64_t used_bytes);
/* Sets the function that is called after an entry with an owner has lost its KV; NULL: none. */
void span_store_set_on_drop(span_store *s, span_store_on_drop fn, void *user);
/* Sets the function that is called for changes, and calls it for every entry; NULL: none. Records of other models are
   left out. */
void span_store_set_on_change(span_store *s, span_store_on_change fn, void *user);
/* Blocks that are free or that reclaiming would free, less those that sequences have reserved (kv_pool_reserve).
 * Negative: more is reserved than there is. Reads of records take no more than these. */
int64_t span_store_free_blocks(const span_store *s);
/* Evicts the span of the lowest priority that nobody else references from RAM. false: there is none. A
 * kv_reclaim_fn. */
bool span_store_reclaim(void *store);
/* Sets a tenant's quota in RAM and on disk; 0: none. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int span_store_set_quota(span_store *s, uint32_t tenant, uint64_t ram_bytes, uint64_t disk_bytes);

/* ---- administration of a store in use ---- */

/* Calls fn with every entry, in no order. The label is borrowed; of encrypted records from disk it is "". */
typedef void (*span_store_each_fn)(void *user, const store_item *item);
void span_store_each(const span_store *s, span_store_each_fn fn, void *user);
/* Is there a disk that may not be changed? */
bool span_store_is_read_only(const span_store *s);
/* Each of these changes one entry and its row in the index; false: no entry, or a text, which cannot be pinned. */
bool span_store_pin(span_store *s, const base_key *key, bool pinned);
/* Sets the idle timeout, starting now; 0 clears it. */
bool span_store_set_ttl(span_store *s, const base_key *key, int64_t ttl_s);
/* Removes it from both tiers. References stay valid; there are no further hits, and the memory is freed with the last
 * reference. */
bool span_store_remove(span_store *s, const base_key *key);

/* Does a pin of it outlive the process? Not without its record on disk. True without a disk, where nothing does. */
bool span_store_is_kept(const span_store *s, const base_key *key);

/* Makes all changes so far durable: removals, pins, times to live; they survive a crash or a loss of power. Records of
 * pinned entries that wait to be written are written first. span_store_poll sets done, with rc and err if that is not
 * certain. Owned by the caller, which does not move it until then. */
typedef struct span_sync {
    struct span_sync *next;
    uint64_t serial; /* 0: not started */
    bool after_pins; /* starts when no pinned entry waits to be written */
    bool done;
    int rc;
    rp_error err;
} span_sync;
void span_store_sync(span_store *s, span_sync *sync, bool after_pins);

/* For tests: seconds since 1970. */
void span_store_set_clock(span_store *s, int64_t (*now)(void));

/* ---- a pool that other nodes use ---- */

/* Pushes spans to the pool from now on (span_pushes.h), which is borrowed until the store is closed. fingerprint: of
 * their records; borrowed. names: of the entries' owners. Once. */
void span_store_set_pool(span_store *s, remote_pool *pool, const base_key *fingerprint, span_text_names names,
                         void *user);
/* span_pushes_know; without a pool it does nothing. */
int span_store_know_tenant(span_store *s, const base_key *salt);
/* The event of a push. */
void span_store_take_push(span_store *s, const remote_event *event);
void span_store_count_look(span_store *s);
/* Counts what an event of a pull has read, or a fault. */
void span_store_count_pull(span_store *s, const remote_event *event);

/* ---- the disk ---- */

typedef struct span_store_disk {
    tier_source source;
    const record_format *format; /* of the records of this model; borrowed until the store is closed */
    void (*notify)(void *user);  /* called by any thread when span_store_poll has something to do */
    void *notify_user;
    span_store_write write;
    uint64_t budget_bytes;  /* of the whole folder */
    const base_key *others; /* [n_others] fingerprints with another arithmetic: their records are counted in the log */
    size_t n_others;
} span_store_disk;

/* Opens the disk tier and adds its records as entries. A folder that cannot be used now (RP_ERR_IO of a tier_source)
 * is opened read-only or left out, with a warning: rp_store_stats.disk_state. own is called for each record of
 * this model that is of text (record_is_of_text), and sets *claim, which is zeros. Once, before the first
 * span_store_put. Errors of a tier_source. */
typedef struct span_claim {
    void *owner;   /* of the entry; NULL: none */
    bool is_known; /* else the record is removed */
} span_claim;
typedef int (*span_store_own)(void *user, const record_row *row, span_claim *claim, rp_error *err);
int span_store_open_disk(span_store *s, const span_store_disk *disk, span_store_own own, void *user, rp_error *err);
/* Evicts records beyond the budget or a quota. After all owners are known. */
void span_store_fit_disk(span_store *s);
/* Waits until the disk tier has completed everything queued so far. */
void span_store_settle_writer(span_store *s);
/* Handles events of the disk tier, queues further writes and removes expired entries. Returns whether spans became
 * ready, failed or were written. */
bool span_store_poll(span_store *s);
/* While requests are computed, the writer takes a small share of a processor (never where requests wait for it). */
void span_store_set_computing(span_store *s, bool computing);
/* Reads that get starts from now on belong to the next request: they follow the reads of earlier requests. */
void span_store_next_request(span_store *s);
/* The value that span_store_flushed reaches when all spans inserted so far are on disk, or could not be written. */
uint64_t span_store_put_serial(const span_store *s);
uint64_t span_store_flushed(const span_store *s);
/* Stores the auditor's results beside the records: as tier_keep_audit. RP_ERR_CONFLICT also without a disk that
 * is written. */
int span_store_keep_audit(span_store *s, char *bytes, size_t n);
/* Milliseconds until span_store_poll may write a span that waits for an idle engine; -1: none waits. */
int64_t span_store_wait_ms(const span_store *s);
bool span_store_is_busy(const span_store *s); /* the disk tier references spans */
bool span_store_writes_through(const span_store *s);

/* Fills in all fields but budget_bytes and used_bytes, which are the pool's. */
void span_store_stats(const span_store *s, rp_store_stats *out);

#endif
