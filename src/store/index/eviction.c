/* SPDX-License-Identifier: Apache-2.0 */
/* eviction.c: see eviction.h. Items that can be offered are in the heap of their group; those with children or a pin
 * are in none. Kept items are in the second heap of their group. */
#include "store/index/eviction.h"

#include <math.h>

#include "base/check.h"
#include "base/memory.h"
#include "reprise.h"
#include "store/index/ghost_list.h"
#include "store/index/item_heap.h"

#define N_SHARES 8           /* uses of 1, 2 to 3, 4 to 7, ..., 128 and more */
#define SHARE_EVENTS 20000.0 /* half-life of measured shares, in events: precise enough, and follows a day */
#define MAX_BORN (UINT32_MAX - 1)

typedef struct item {
    double used_at; /* clock */
    uint64_t name, bytes, cost_us;
    float uses; /* 0: the index is free */
    uint32_t parent, group;
    uint32_t life, parent_life;  /* generation of this index, and of its parent's: a reused index has a later one */
    uint32_t n_children, n_born; /* present; ever */
    uint64_t session;            /* of its last use; 0: none */
    bool pinned, expired, kept;
    bool is_shared; /* others than this session have used it */
    uint8_t rank;   /* the highest of its readers */
} item;

typedef struct group {
    item_heap heap, kept;
    size_t n_items;
    uint64_t bytes, kept_bytes;
} group;

/* Fates of items: used once more, out of used once more or forgotten. Both start as if one of two had been used. */
typedef struct share {
    double used, all;
} share;

struct eviction {
    item *items;
    uint32_t *places;                      /* in the heap of the item's group */
    size_t n_items, cap_items, cap_places; /* n_items: indices, free ones among them */
    size_t n_present;
    group *groups;
    size_t n_groups, cap_groups;
    double clock;
    uint64_t n_orders, kept_bytes;
    eviction_reader reader;
    share shares[N_SHARES];
    ghost_list dropped;
    uint32_t *refused; /* refused items of eviction_victim */
    size_t n_refused, cap_refused;
};

int eviction_new(eviction **out) {
    eviction *e = base_calloc(1, sizeof(*e));
    *out = e;
    if (!e) return RP_ERR_MEMORY;
    for (int i = 0; i < N_SHARES; i++) e->shares[i] = (share){.used = 2, .all = 4};
    return RP_OK;
}

void eviction_free(eviction *e) {
    if (!e) return;
    for (size_t i = 0; i < e->n_groups; i++) {
        base_free(e->groups[i].heap.entries);
        base_free(e->groups[i].kept.entries);
    }
    base_free(e->groups);
    base_free(e->items);
    base_free(e->places);
    base_free(e->refused);
    ghost_list_free(&e->dropped);
    base_free(e);
}

/* ---- expected reuse ---- */

static share *eviction_share_of(eviction *e, float uses) {
    int i = 0;
    for (int limit = 2; i < N_SHARES - 1 && uses >= (float)limit; limit *= 2) i++;
    return &e->shares[i];
}

/* Counts that an item of that many uses was used once more, or was forgotten. */
static void eviction_learn(eviction *e, float uses, bool used) {
    share *s = eviction_share_of(e, uses);
    s->used += used;
    s->all += 1;
    BASE_DCHECK(s->used > 0 && s->used <= s->all); /* a probability */
    if (s->all < SHARE_EVENTS) return;
    s->used /= 2;
    s->all /= 2;
}

static double eviction_stay(eviction *e, const item *it) {
    BASE_ASSERT(it->bytes > 0 && it->uses > 0);
    const share *s = eviction_share_of(e, it->uses);
    static const double factors[] = {[EVICTION_ONE_OFF] = 1, [EVICTION_SUBAGENT] = 4, [EVICTION_RUNNING] = 8};
    return factors[it->rank] * (double)it->uses * sqrt((double)it->cost_us / (double)it->bytes * (s->used / s->all));
}

/* ---- heaps ---- */

static item *eviction_present(const eviction *e, uint32_t i) {
    BASE_ASSERT(i < e->n_items && e->items[i].uses > 0);
    return &e->items[i];
}

/* The parent of an item, if it is still present; or NULL. */
static item *parent_of(const eviction *e, const item *it) {
    if (it->parent == EVICTION_NONE) return NULL;
    BASE_ASSERT(it->parent < e->n_items);
    item *parent = &e->items[it->parent];
    return parent->uses > 0 && parent->life == it->parent_life ? parent : NULL;
}

static item_heap *item_heap_of(eviction *e, const item *it) {
    return it->kept ? &e->groups[it->group].kept : &e->groups[it->group].heap;
}

/* Moves an item into its group's heap, or out of it. Among equals the one placed first is evicted first. */
static void eviction_place(eviction *e, uint32_t i) {
    item *it = eviction_present(e, i);
    item_heap *heap = item_heap_of(e, it);
    const double due = it->expired ? -1 : it->used_at + eviction_stay(e, it);
    BASE_ASSERT(due == due); /* a number: the heap's order is total */
    if (it->pinned || it->n_children > 0) item_heap_remove(heap, e->places, i);
    else item_heap_put(heap, e->places, (item_heap_entry){due, e->n_orders++, i});
}

/* ---- items ---- */

static int reserve_item(eviction *e, uint32_t i) {
    int rc = base_grow((void **)&e->items, &e->cap_items, (size_t)i + 1, EVICTION_MAX_ITEMS, sizeof(*e->items));
    if (!rc) rc = base_grow((void **)&e->places, &e->cap_places, (size_t)i + 1, EVICTION_MAX_ITEMS, sizeof(*e->places));
    for (; !rc && e->n_items <= i; e->n_items++) {
        e->items[e->n_items] = (item){0};
        e->places[e->n_items] = ITEM_HEAP_NOWHERE;
    }
    return rc;
}

static int reserve_group(eviction *e, uint32_t g) {
    int rc = base_grow((void **)&e->groups, &e->cap_groups, (size_t)g + 1, EVICTION_MAX_GROUPS, sizeof(*e->groups));
    while (!rc && e->n_groups <= g) e->groups[e->n_groups++] = (group){0};
    if (!rc) rc = item_heap_reserve(&e->groups[g].heap, e->groups[g].n_items + 1);
    return rc ? rc : item_heap_reserve(&e->groups[g].kept, e->groups[g].n_items + 1);
}

/* The uses of a new item: from the ghost list, from the caller, or estimated from its siblings. */
static void begin_uses(eviction *e, item *it, const eviction_item *about, item *parent) {
    ghost_key before;
    if (ghost_list_take(&e->dropped, it->name, &before)) {
        eviction_learn(e, before.uses, true);
        it->uses = before.uses + 1;
        it->n_born = before.n_born;
    } else if (about->uses > 0 || !parent) {
        it->uses = about->uses > 0 ? about->uses : 1;
    } else { /* it is one more child of its parent */
        if (parent->n_born < MAX_BORN) parent->n_born++;
        it->uses = BASE_MAX(1, parent->uses / (float)parent->n_born);
    }
}

static void stand_on(eviction *e, uint32_t i, uint32_t parent) {
    e->items[i].parent = parent;
    e->items[i].parent_life = e->items[parent].life;
    BASE_ASSERT(e->items[parent].life != 0 && i != parent);
    if (eviction_present(e, parent)->n_children++ == 0) eviction_place(e, parent);
}

int eviction_add(eviction *e, uint32_t i, const eviction_item *about) {
    BASE_ASSERT(about->bytes > 0 && about->group < EVICTION_MAX_GROUPS && (i >= e->n_items || e->items[i].uses == 0));
    /* Reserves memory for one more item: after that, only an addition can fail. */
    int rc = i < EVICTION_MAX_ITEMS ? reserve_item(e, i) : RP_ERR_LIMIT;
    if (!rc) rc = reserve_group(e, about->group);
    if (!rc)
        rc = base_grow((void **)&e->refused, &e->cap_refused, e->n_present + 1, EVICTION_MAX_ITEMS,
                       sizeof(*e->refused));
    if (!rc) rc = ghost_list_reserve(&e->dropped, 2 * (e->n_present + 1));
    if (rc) return rc;
    item *it = &e->items[i];
    *it = (item){
        .name = about->name,
        .bytes = about->bytes,
        .cost_us = about->cost_us,
        .parent = EVICTION_NONE,
        .group = about->group,
        .life = it->life + 1,
        .session = e->reader.session,
        .rank = (uint8_t)e->reader.rank,
    };
    begin_uses(e, it, about, about->parent == EVICTION_NONE ? NULL : eviction_present(e, about->parent));
    BASE_ASSERT(about->idle >= 0 && about->idle <= 1);
    it->used_at = e->clock - about->idle * eviction_stay(e, it);
    e->groups[it->group].n_items++;
    e->groups[it->group].bytes += it->bytes;
    e->n_present++;
    if (about->parent != EVICTION_NONE) stand_on(e, i, about->parent);
    eviction_place(e, i);
    return RP_OK;
}

void eviction_set_parent(eviction *e, uint32_t i, uint32_t parent) {
    BASE_ASSERT(i != parent);
    if (!parent_of(e, eviction_present(e, i))) stand_on(e, i, parent);
}

int eviction_set_group(eviction *e, uint32_t i, uint32_t g) {
    item *it = eviction_present(e, i);
    BASE_ASSERT(g < EVICTION_MAX_GROUPS);
    int rc = reserve_group(e, g);
    if (rc || g == it->group) return rc;
    group *from = &e->groups[it->group], *to = &e->groups[g];
    item_heap_remove(item_heap_of(e, it), e->places, i);
    BASE_ASSERT(from->n_items > 0 && from->bytes >= it->bytes);
    from->n_items--, to->n_items++;
    from->bytes -= it->bytes, to->bytes += it->bytes;
    if (it->kept) from->kept_bytes -= it->bytes, to->kept_bytes += it->bytes;
    it->group = g;
    eviction_place(e, i);
    return RP_OK;
}

void eviction_use(eviction *e, uint32_t i) {
    item *it = eviction_present(e, i);
    const bool again = it->session != 0 && it->session == e->reader.session;
    eviction_learn(e, it->uses, true);
    if (!again) {
        it->uses += 1;
        it->is_shared = it->is_shared || it->session != 0;
        it->session = e->reader.session;
    }
    it->rank = BASE_MAX(it->rank, (uint8_t)e->reader.rank);
    it->used_at = e->clock;
    it->expired = false;
    eviction_place(e, i);
}

void eviction_mark(eviction *e, uint32_t i) {
    item *it = eviction_present(e, i);
    it->is_shared = it->is_shared || (it->session != 0 && it->session != e->reader.session);
    it->session = e->reader.session != 0 ? e->reader.session : it->session;
    it->rank = BASE_MAX(it->rank, (uint8_t)e->reader.rank);
    eviction_place(e, i);
}

void eviction_set_cost(eviction *e, uint32_t i, uint64_t cost_us) {
    eviction_present(e, i)->cost_us = cost_us;
    eviction_place(e, i);
}

void eviction_set_pinned(eviction *e, uint32_t i, bool pinned) {
    eviction_present(e, i)->pinned = pinned;
    eviction_place(e, i);
}

void eviction_set_kept(eviction *e, uint32_t i, bool kept) {
    item *it = eviction_present(e, i);
    group *g = &e->groups[it->group];
    if (it->kept == kept) return;
    item_heap_remove(item_heap_of(e, it), e->places, i);
    BASE_ASSERT(kept || (g->kept_bytes >= it->bytes && e->kept_bytes >= g->kept_bytes));
    it->kept = kept;
    g->kept_bytes = kept ? g->kept_bytes + it->bytes : g->kept_bytes - it->bytes;
    e->kept_bytes = kept ? e->kept_bytes + it->bytes : e->kept_bytes - it->bytes;
    eviction_place(e, i);
}

void eviction_set_reader(eviction *e, eviction_reader reader) {
    BASE_ASSERT(reader.rank <= EVICTION_RUNNING);
    e->reader = reader;
}

void eviction_end_session(eviction *e, uint64_t session) {
    for (uint32_t i = 0; i < e->n_items && session != 0; i++) {
        const item *it = &e->items[i];
        if (it->uses == 0 || it->session != session || it->is_shared) continue;
        eviction_set_kept(e, i, false);
        eviction_expire(e, i);
    }
}

void eviction_expire(eviction *e, uint32_t i) {
    eviction_present(e, i)->expired = true;
    eviction_place(e, i);
}

/* ---- victims ---- */

/* The heap with the lowest top, of kept items or of the others: the group's, or among all; NULL: they are empty. */
static const item_heap *lowest_heap(const eviction *e, uint32_t g, bool kept) {
    const size_t first = g == EVICTION_NONE ? 0 : g,
                 end = g == EVICTION_NONE ? e->n_groups : BASE_MIN((size_t)g + 1, e->n_groups);
    const item_heap *best = NULL;
    for (size_t i = first; i < end; i++) {
        const item_heap *heap = kept ? &e->groups[i].kept : &e->groups[i].heap;
        if (heap->n > 0 && (!best || item_heap_entry_less(&heap->entries[0], &best->entries[0]))) best = heap;
    }
    return best;
}

/* The heap with the next victim on top; NULL: there is none. */
static const item_heap *first_heap(const eviction *e, uint32_t g) {
    const item_heap *heap = lowest_heap(e, g, false);
    return heap ? heap : lowest_heap(e, g, true);
}

uint32_t eviction_least_kept(const eviction *e, uint32_t g) {
    const item_heap *heap = lowest_heap(e, g, true);
    return heap ? heap->entries[0].item : EVICTION_NONE;
}

uint64_t eviction_kept_bytes(const eviction *e, uint32_t g) {
    if (g == EVICTION_NONE) return e->kept_bytes;
    return g < e->n_groups ? e->groups[g].kept_bytes : 0;
}

uint32_t eviction_victim(eviction *e, uint32_t g, eviction_may_go may_go, void *user) {
    uint32_t victim = EVICTION_NONE;
    BASE_ASSERT(e->n_refused == 0); /* may_go does not come back here */
    for (const item_heap *h; victim == EVICTION_NONE && (h = first_heap(e, g));) {
        uint32_t top = h->entries[0].item;
        BASE_ASSERT(!e->items[top].pinned && e->items[top].n_children == 0 && e->n_refused < e->cap_refused);
        if (!may_go || may_go(user, top)) {
            victim = top;
            continue;
        }
        item_heap_remove(item_heap_of(e, &e->items[top]), e->places, top);
        e->refused[e->n_refused++] = top;
    }
    for (size_t i = 0; i < e->n_refused; i++) { /* back, with the priority of a use now */
        BASE_ASSERT(e->places[e->refused[i]] == ITEM_HEAP_NOWHERE);
        e->items[e->refused[i]].used_at = e->clock;
        eviction_place(e, e->refused[i]);
    }
    e->n_refused = 0;
    return victim;
}

bool eviction_outranks(eviction *e, const eviction_item *about, uint32_t victim) {
    const item *v = eviction_present(e, victim);
    BASE_ASSERT(about->bytes > 0);
    item it = {.bytes = about->bytes, .cost_us = about->cost_us, .uses = BASE_MAX(about->uses, 1)};
    if (v->kept) return false;
    if (v->expired || ghost_list_has(&e->dropped, about->name)) return true;
    return e->clock + eviction_stay(e, &it) > v->used_at + eviction_stay(e, v);
}

/* Removes an item; its parent may become a candidate. */
static void eviction_leave(eviction *e, uint32_t i) {
    item *it = eviction_present(e, i), *parent = parent_of(e, it);
    const group *g = &e->groups[it->group];
    BASE_ASSERT(e->n_present > 0 && g->n_items > 0 && g->bytes >= it->bytes && (!parent || parent->n_children > 0));
    BASE_ASSERT(!it->kept || (g->kept_bytes >= it->bytes && e->kept_bytes >= it->bytes));
    item_heap_remove(item_heap_of(e, it), e->places, i);
    e->groups[it->group].n_items--;
    e->groups[it->group].bytes -= it->bytes;
    if (it->kept) e->groups[it->group].kept_bytes -= it->bytes, e->kept_bytes -= it->bytes;
    e->n_present--;
    it->uses = 0;
    if (parent && --parent->n_children == 0) eviction_place(e, it->parent);
}

void eviction_drop(eviction *e, uint32_t i) {
    const item *it = eviction_present(e, i);
    ghost_key key = {it->name, it->uses, it->n_born}, forgotten;
    uint32_t at = e->places[i];
    BASE_ASSERT(it->n_children == 0);
    BASE_ASSERT(at != ITEM_HEAP_NOWHERE || it->pinned);
    if (at != ITEM_HEAP_NOWHERE) e->clock = BASE_MAX(e->clock, item_heap_of(e, it)->entries[at].value);
    eviction_leave(e, i);
    if (!ghost_list_has(&e->dropped, key.name) && ghost_list_add(&e->dropped, &key, &forgotten))
        eviction_learn(e, forgotten.uses, false);
}

void eviction_remove(eviction *e, uint32_t i) { eviction_leave(e, i); }

bool eviction_was_dropped(const eviction *e, uint64_t name) { return ghost_list_has(&e->dropped, name); }

uint64_t eviction_group_bytes(const eviction *e, uint32_t g) { return g < e->n_groups ? e->groups[g].bytes : 0; }
