/* span_store.c: see span_store.h. */
#include "store/span_store.h"

#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

#define NONE UINT32_MAX
#define FIRST_BUCKETS 64 /* a power of two; doubled when half full */

typedef struct entry {
    kv_span *span;         /* NULL: on the free list */
    void *owner;
    uint32_t newer, older; /* entry indices; `older` links the free list */
} entry;

struct span_store {
    entry *entries;
    size_t n_entries, cap_entries; /* n_entries: ever used, the free ones among them */
    uint32_t free_list, newest, oldest;
    uint32_t *buckets; /* entry index or NONE; linear probing */
    size_t n_buckets, n_used;
    span_store_on_drop on_drop;
    void *user; /* of on_drop */
    rp_store_stats stats;
    base_key dropped[SPAN_STORE_DROPPED]; /* a ring: the last stats.evictions of them */
};

int span_store_new(span_store **out, rp_error *err) {
    span_store *s = base_calloc(1, sizeof(*s));
    *out = s;
    if (!s) return base_fail_memory(err, sizeof(*s), "the store");
    s->free_list = s->newest = s->oldest = NONE;
    return RP_OK;
}

void span_store_free(span_store *s) {
    if (!s) return;
    for (size_t i = 0; i < s->n_entries; i++) kv_span_unref(s->entries[i].span);
    base_free(s->entries);
    base_free(s->buckets);
    base_free(s);
}

/* ---- the table: keys are hashes already, so their first bytes serve as the hash ---- */

static size_t home_bucket(const span_store *s, const base_key *key) {
    uint64_t h;
    memcpy(&h, key->bytes, sizeof(h));
    return (size_t)h & (s->n_buckets - 1);
}

/* The bucket that holds the key, or the empty one where it belongs. */
static size_t find_bucket(const span_store *s, const base_key *key) {
    size_t b = home_bucket(s, key);
    while (s->buckets[b] != NONE && !base_key_equal(kv_span_key(s->entries[s->buckets[b]].span), key))
        b = (b + 1) & (s->n_buckets - 1);
    return b;
}

static int grow_table(span_store *s) {
    size_t n = s->n_buckets ? s->n_buckets * 2 : FIRST_BUCKETS;
    uint32_t *old = s->buckets, *buckets = base_alloc(n * sizeof(*buckets));
    size_t n_old = s->n_buckets;
    if (!buckets) return RP_ERR_MEMORY;
    memset(buckets, 0xff, n * sizeof(*buckets));
    s->buckets = buckets;
    s->n_buckets = n;
    for (size_t i = 0; i < n_old; i++)
        if (old[i] != NONE) buckets[find_bucket(s, kv_span_key(s->entries[old[i]].span))] = old[i];
    base_free(old);
    return RP_OK;
}

/* Empties a bucket and moves those behind it up, so that no probe ends too early. */
static void clear_bucket(span_store *s, size_t hole) {
    size_t mask = s->n_buckets - 1;
    for (size_t b = (hole + 1) & mask; s->buckets[b] != NONE; b = (b + 1) & mask) {
        size_t home = home_bucket(s, kv_span_key(s->entries[s->buckets[b]].span));
        if (((b - home) & mask) < ((b - hole) & mask)) continue; /* its home lies behind the hole */
        s->buckets[hole] = s->buckets[b];
        hole = b;
    }
    s->buckets[hole] = NONE;
}

/* ---- the list by last use ---- */

static void unlink_entry(span_store *s, uint32_t i) {
    entry *e = &s->entries[i];
    *(e->newer == NONE ? &s->newest : &s->entries[e->newer].older) = e->older;
    *(e->older == NONE ? &s->oldest : &s->entries[e->older].newer) = e->newer;
}

static void link_newest(span_store *s, uint32_t i) {
    entry *e = &s->entries[i];
    e->newer = NONE;
    e->older = s->newest;
    *(s->newest == NONE ? &s->oldest : &s->entries[s->newest].newer) = i;
    s->newest = i;
}

/* ---- use ---- */

bool span_store_has(const span_store *s, const base_key *key) {
    return s->n_buckets > 0 && s->buckets[find_bucket(s, key)] != NONE;
}

/* The entry of a key, now the newest; NONE. */
static uint32_t use_entry(span_store *s, const base_key *key) {
    if (!span_store_has(s, key)) return NONE;
    uint32_t i = s->buckets[find_bucket(s, key)];
    unlink_entry(s, i);
    link_newest(s, i);
    return i;
}

kv_span *span_store_get(span_store *s, const base_key *key) {
    uint32_t i = use_entry(s, key);
    *(i == NONE ? &s->stats.misses : &s->stats.hits) += 1;
    return i == NONE ? NULL : kv_span_ref(s->entries[i].span);
}

void span_store_use(span_store *s, const base_key *key) { use_entry(s, key); }

bool span_store_was_dropped(const span_store *s, const base_key *key) {
    for (uint64_t i = 0; i < BASE_MIN(s->stats.evictions, SPAN_STORE_DROPPED); i++)
        if (base_key_equal(&s->dropped[i], key)) return true;
    return false;
}

uint64_t span_store_idle_bytes(const span_store *s) {
    uint64_t bytes = 0;
    for (uint32_t i = s->oldest; i != NONE; i = s->entries[i].newer)
        if (kv_span_is_unshared(s->entries[i].span)) bytes += kv_span_bytes(s->entries[i].span);
    return bytes;
}

uint64_t span_store_idle_bytes_of(const span_store *s, const base_key *key) {
    if (!span_store_has(s, key)) return 0;
    const kv_span *span = s->entries[s->buckets[find_bucket(s, key)]].span;
    return kv_span_is_unshared(span) ? kv_span_bytes(span) : 0;
}

void span_store_set_on_drop(span_store *s, span_store_on_drop fn, void *user) {
    s->on_drop = fn;
    s->user = user;
}

static int take_entry(span_store *s, uint32_t *out) {
    if (s->free_list != NONE) {
        *out = s->free_list;
        s->free_list = s->entries[*out].older;
        return RP_OK;
    }
    int rc = base_grow((void **)&s->entries, &s->cap_entries, s->n_entries + 1, SPAN_STORE_MAX, sizeof(entry));
    if (rc) return rc;
    *out = (uint32_t)s->n_entries++;
    return RP_OK;
}

int span_store_put(span_store *s, kv_span *span, void *owner, rp_error *err) {
    if (span_store_has(s, kv_span_key(span))) return RP_OK;
    uint32_t i;
    int rc = s->n_used * 2 >= s->n_buckets ? grow_table(s) : RP_OK;
    if (!rc) rc = take_entry(s, &i);
    if (rc) return base_fail(err, rc, "the store cannot take one more span beside %zu", s->n_used);
    s->entries[i].span = kv_span_ref(span);
    s->entries[i].owner = owner;
    s->buckets[find_bucket(s, kv_span_key(span))] = i;
    link_newest(s, i);
    s->n_used++;
    s->stats.inserts++;
    s->stats.bytes += kv_span_bytes(span);
    return RP_OK;
}

static void evict(span_store *s, uint32_t i) {
    kv_span *span = s->entries[i].span;
    void *owner = s->entries[i].owner;
    clear_bucket(s, find_bucket(s, kv_span_key(span)));
    unlink_entry(s, i);
    s->entries[i] = (entry){.span = NULL, .older = s->free_list};
    s->free_list = i;
    s->n_used--;
    s->dropped[s->stats.evictions++ % SPAN_STORE_DROPPED] = *kv_span_key(span);
    s->stats.bytes -= kv_span_bytes(span);
    BASE_TRACE(STORE, "evict a span of %d tokens", kv_span_tokens(span));
    kv_span_unref(span);
    if (owner && s->on_drop) s->on_drop(s->user, owner);
}

void span_store_drop(span_store *s, const base_key *key) {
    uint32_t i = s->buckets[find_bucket(s, key)];
    assert(kv_span_is_unshared(s->entries[i].span));
    evict(s, i);
}

bool span_store_reclaim(void *store) {
    span_store *s = store;
    for (uint32_t i = s->oldest; i != NONE; i = s->entries[i].newer) {
        if (!kv_span_is_unshared(s->entries[i].span)) continue;
        evict(s, i);
        return true;
    }
    return false;
}

void span_store_stats(const span_store *s, rp_store_stats *out) {
    uint64_t budget = out->budget_bytes, used = out->used_bytes;
    *out = s->stats;
    out->spans = s->n_used;
    out->budget_bytes = budget;
    out->used_bytes = used;
}
