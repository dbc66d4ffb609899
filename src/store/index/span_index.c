/* SPDX-License-Identifier: Apache-2.0 */
/* span_index.c: see span_index.h. */
#include "store/index/span_index.h"

#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"

#define NONE SPAN_INDEX_NONE
#define FIRST_BUCKETS 64 /* a power of two; doubled when half full */

uint32_t span_tenant(const base_key *salt) {
    base_key key;
    base_hash h;
    uint32_t tenant;
    base_hash_init(&h, "reprise tenant 1");
    base_hash_key(&h, salt);
    base_hash_final(&h, &key);
    memcpy(&tenant, key.bytes, sizeof(tenant));
    return BASE_MAX(tenant, 1);
}

void span_index_init(span_index *x) {
    *x = (span_index){.free_list = NONE};
    for (int i = 0; i < N_LISTS; i++) x->lists[i] = (span_list){NONE, NONE};
}

void span_index_free(span_index *x) {
    for (size_t i = 0; i < x->n_entries; i++) {
        kv_span_unref(x->entries[i].span);
        base_free(x->entries[i].form);
        base_free(x->entries[i].row);
        base_free(x->entries[i].push_row);
        base_free(x->entries[i].label);
    }
    base_free(x->entries);
    base_free(x->buckets);
}

/* ---- the table: keys are hashes, so their first bytes serve as the hash ---- */

static size_t home_bucket(const span_index *x, const base_key *key) {
    uint64_t h;
    memcpy(&h, key->bytes, sizeof(h));
    return (size_t)h & (x->n_buckets - 1);
}

/* The bucket of the key, or the empty one in which it would be inserted. */
static size_t find_bucket(const span_index *x, const base_key *key) {
    size_t b = home_bucket(x, key);
    while (x->buckets[b] != NONE && !base_key_equal(&x->entries[x->buckets[b]].key, key))
        b = (b + 1) & (x->n_buckets - 1);
    return b;
}

uint32_t span_index_find(const span_index *x, const base_key *key) {
    if (x->n_buckets == 0) return NONE;
    const uint32_t i = x->buckets[find_bucket(x, key)];
    BASE_ASSERT(i == NONE || x->entries[i].used);
    return i;
}

static int grow_table(span_index *x) {
    const size_t n = x->n_buckets ? x->n_buckets * 2 : FIRST_BUCKETS, n_old = x->n_buckets;
    uint32_t *old = x->buckets, *buckets = base_alloc(n * sizeof(*buckets));
    if (!buckets) return RP_ERR_MEMORY;
    memset(buckets, 0xff, n * sizeof(*buckets));
    x->buckets = buckets;
    x->n_buckets = n;
    for (size_t i = 0; i < n_old; i++)
        if (old[i] != NONE) buckets[find_bucket(x, &x->entries[old[i]].key)] = old[i];
    base_free(old);
    return RP_OK;
}

/* Empties a bucket and moves later ones of the run forward: no probe ends too early. */
static void clear_bucket(span_index *x, size_t hole) {
    const size_t mask = x->n_buckets - 1;
    for (size_t b = (hole + 1) & mask; x->buckets[b] != NONE; b = (b + 1) & mask) {
        const size_t home = home_bucket(x, &x->entries[x->buckets[b]].key);
        if (((b - home) & mask) < ((b - hole) & mask)) continue; /* its home is after the hole */
        x->buckets[hole] = x->buckets[b];
        hole = b;
    }
    x->buckets[hole] = NONE;
}

/* ---- the lists ---- */

void span_index_unlink(span_index *x, span_list_kind list, uint32_t i) {
    span_list *l = &x->lists[list];
    span_links *e = &x->entries[i].links[list];
    BASE_ASSERT((e->newer == NONE) == (l->newest == i) && (e->older == NONE) == (l->oldest == i)); /* in this list */
    *(e->newer == NONE ? &l->newest : &x->entries[e->newer].links[list].older) = e->older;
    *(e->older == NONE ? &l->oldest : &x->entries[e->older].links[list].newer) = e->newer;
}

void span_index_link(span_index *x, span_list_kind list, uint32_t i) {
    span_list *l = &x->lists[list];
    BASE_ASSERT(x->entries[i].used && l->newest != i);
    x->entries[i].links[list] = (span_links){.newer = NONE, .older = l->newest};
    *(l->newest == NONE ? &l->oldest : &x->entries[l->newest].links[list].newer) = i;
    l->newest = i;
}

/* ---- entries ---- */

static int take_index(span_index *x, uint32_t *out) {
    if (x->free_list != NONE) {
        *out = x->free_list;
        x->free_list = x->entries[*out].links[0].older;
        return RP_OK;
    }
    const int rc = base_grow((void **)&x->entries, &x->cap, x->n_entries + 1, SPAN_INDEX_MAX, sizeof(*x->entries));
    if (!rc) *out = (uint32_t)x->n_entries++;
    return rc;
}

int span_index_add(span_index *x, const base_key *key, uint32_t *out) {
    int rc = x->n_used * 2 >= x->n_buckets ? grow_table(x) : RP_OK;
    if (!rc) rc = take_index(x, out);
    if (rc) return rc;
    const size_t bucket = find_bucket(x, key);
    BASE_ASSERT(x->buckets[bucket] == NONE); /* no entry has this key */
    x->entries[*out] = (span_entry){.used = true, .key = *key};
    x->buckets[bucket] = *out;
    x->n_used++;
    return RP_OK;
}

void span_index_set_parent(span_index *x, uint32_t i, uint32_t parent) {
    span_entry *e = &x->entries[i], *p = &x->entries[parent];
    BASE_ASSERT(e->used && p->used && i != parent);
    if (e->parent_at != 0) return;
    e->parent_at = parent + 1;
    e->next_child = p->first_child;
    e->previous_child = 0;
    if (p->first_child != 0) x->entries[p->first_child - 1].previous_child = i + 1;
    p->first_child = i + 1;
}

static void leave_parent(span_index *x, uint32_t i) {
    span_entry *e = &x->entries[i];
    if (e->parent_at == 0) return;
    BASE_ASSERT(e->previous_child != 0 || x->entries[e->parent_at - 1].first_child == i + 1); /* in this list */
    *(e->previous_child != 0 ? &x->entries[e->previous_child - 1].next_child
                             : &x->entries[e->parent_at - 1].first_child) = e->next_child;
    if (e->next_child != 0) x->entries[e->next_child - 1].previous_child = e->previous_child;
    e->parent_at = e->next_child = e->previous_child = 0;
}

void span_index_remove(span_index *x, uint32_t i) {
    span_entry *e = &x->entries[i];
    BASE_ASSERT(e->used && !e->span && !e->form); /* invariant 4 */
    BASE_ASSERT(!e->row && !e->push_row && e->waits == LIST_MEMORY);
    leave_parent(x, i);
    while (e->first_child != 0) leave_parent(x, e->first_child - 1);
    clear_bucket(x, find_bucket(x, &e->key));
    base_free(e->label);
    *e = (span_entry){.links[0].older = x->free_list};
    x->free_list = i;
    x->n_used--;
}

void span_entry_set_label(span_entry *e, const char *label) {
    if (!label || !label[0]) return; /* a note without a record needs none */
    base_free(e->label);
    e->label = base_strdup(label);
}
