/* SPDX-License-Identifier: Apache-2.0 */
/* sim_cache.c: see sim_cache.h. A slot for each name that is held; its number is that of its item in both tiers'
   eviction policies. */
#include "tools/cluster_simulation/sim_cache.h"

#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "store/index/eviction.h"

#define NO_SLOT UINT32_MAX

typedef struct sim_slot {
    rp_name name;
    uint32_t id, tenant, tiers;
    int32_t n_tokens, holders;
    uint64_t cost_us;
    uint32_t next_free;
} sim_slot;

struct sim_cache {
    int64_t ram_capacity, disk_capacity;
    sim_cache_use use;
    int64_t held_tokens;
    eviction *ram, *disk; /* disk: NULL without one */
    uint32_t *slot_of;    /* [n_names] by number of the name */
    size_t n_names;
    sim_slot *slots;
    size_t n_slots, cap_slots;
    uint32_t free_slot;
    sim_cache_changed changed;
    void *user;
};

int sim_cache_new(sim_cache **out, size_t n_names, int64_t ram_tokens, int64_t disk_tokens, sim_cache_changed changed,
                  void *user) {
    sim_cache *c = base_calloc(1, sizeof(*c));
    *out = c;
    if (!c) return RP_ERR_MEMORY;
    *c = (sim_cache){
        .ram_capacity = ram_tokens,
        .disk_capacity = disk_tokens,
        .n_names = n_names,
        .free_slot = NO_SLOT,
        .changed = changed,
        .user = user,
    };
    c->slot_of = base_alloc(BASE_MAX(n_names, (size_t)1) * sizeof(*c->slot_of));
    int rc = c->slot_of ? eviction_new(&c->ram) : RP_ERR_MEMORY;
    if (!rc && disk_tokens > 0) rc = eviction_new(&c->disk);
    if (!rc) memset(c->slot_of, 0xff, n_names * sizeof(*c->slot_of));
    if (rc) sim_cache_free(c);
    if (rc) *out = NULL;
    return rc;
}

void sim_cache_free(sim_cache *c) {
    if (!c) return;
    eviction_free(c->ram);
    eviction_free(c->disk);
    base_free(c->slot_of);
    base_free(c->slots);
    base_free(c);
}

sim_cache_use sim_cache_used(const sim_cache *c) { return c->use; }

static sim_slot *cache_find(const sim_cache *c, uint32_t id) {
    BASE_ASSERT(id < c->n_names);
    return c->slot_of[id] == NO_SLOT ? NULL : &c->slots[c->slot_of[id]];
}

uint32_t sim_cache_tiers(const sim_cache *c, uint32_t id) {
    const sim_slot *s = cache_find(c, id);
    return s ? s->tiers : 0;
}

uint32_t sim_cache_tenant(const sim_cache *c, uint32_t id) {
    const sim_slot *s = cache_find(c, id);
    return s ? s->tenant : UINT32_MAX;
}

/* ---- slots ---- */

static uint32_t cache_take_slot(sim_cache *c) {
    uint32_t i = c->free_slot;
    if (i != NO_SLOT) c->free_slot = c->slots[i].next_free;
    else if (base_grow((void **)&c->slots, &c->cap_slots, c->n_slots + 1, EVICTION_MAX_ITEMS, sizeof(*c->slots)) ==
             RP_OK)
        i = (uint32_t)c->n_slots++;
    return i;
}

static void cache_free_slot(sim_cache *c, uint32_t i) {
    BASE_ASSERT(c->slot_of[c->slots[i].id] == i && c->slots[i].holders == 0 && c->use.names > 0);
    c->slot_of[c->slots[i].id] = NO_SLOT;
    c->slots[i].next_free = c->free_slot;
    c->free_slot = i;
    c->use.names--;
}

/* A name has other tiers than before; without any its slot is free. */
static void cache_set_tiers(sim_cache *c, uint32_t i, uint32_t tiers) {
    BASE_ASSERT((tiers & ~(uint32_t)(RP_TIER_RAM | RP_TIER_DISK)) == 0);
    sim_slot *s = &c->slots[i];
    if (s->tiers == tiers) return;
    s->tiers = tiers;
    if (c->changed) c->changed(c->user, s->id, &s->name, tiers);
    if (!tiers) cache_free_slot(c, i);
}

/* ---- space ---- */

static bool is_not_held(void *user, uint32_t item) { return ((const sim_cache *)user)->slots[item].holders == 0; }

static bool cache_evict(sim_cache *c, eviction *from, uint32_t tier) {
    uint32_t victim = eviction_victim(from, EVICTION_NONE, is_not_held, c);
    if (victim == EVICTION_NONE) return false;
    sim_slot *s = &c->slots[victim];
    BASE_ASSERT(s->tiers & tier && s->holders == 0);
    eviction_drop(from, victim);
    if (tier == RP_TIER_RAM) c->use.ram_tokens -= s->n_tokens;
    else c->use.disk_tokens -= s->n_tokens;
    BASE_ASSERT(c->use.ram_tokens >= 0 && c->use.disk_tokens >= 0);
    cache_set_tiers(c, victim, s->tiers & ~tier);
    return true;
}

static bool cache_make_space(sim_cache *c, int64_t tokens) {
    BASE_ASSERT(tokens >= 0 && c->held_tokens <= c->use.ram_tokens); /* what is held is in RAM */
    if (c->use.reserved_tokens + c->held_tokens + tokens > c->ram_capacity) return false;
    while (c->use.reserved_tokens + c->use.ram_tokens + tokens > c->ram_capacity)
        if (!cache_evict(c, c->ram, RP_TIER_RAM)) return false;
    return true;
}

bool sim_cache_reserve(sim_cache *c, int64_t tokens) {
    if (!cache_make_space(c, tokens)) return false;
    c->use.reserved_tokens += tokens;
    return true;
}

void sim_cache_unreserve(sim_cache *c, int64_t tokens) {
    BASE_ASSERT(c->use.reserved_tokens >= tokens);
    c->use.reserved_tokens -= tokens;
}

/* ---- names ---- */

static eviction_item item_of(const sim_cache *c, const sim_slot *s, uint32_t parent, uint32_t tier) {
    const sim_slot *p = parent == UINT32_MAX ? NULL : cache_find(c, parent);
    uint32_t parent_slot = p && p->tiers & tier ? c->slot_of[parent] : EVICTION_NONE;
    return (eviction_item){
        .name = s->id, .bytes = (uint64_t)s->n_tokens, .cost_us = s->cost_us, .parent = parent_slot, .group = 0};
}

static int cache_enter_ram(sim_cache *c, uint32_t i, uint32_t parent) {
    BASE_ASSERT(!(c->slots[i].tiers & RP_TIER_RAM));
    eviction_item about = item_of(c, &c->slots[i], parent, RP_TIER_RAM);
    int rc = eviction_add(c->ram, i, &about);
    if (!rc) c->use.ram_tokens += c->slots[i].n_tokens;
    return rc;
}

/* Writes a name that is in RAM to disk: without space there, it stays in RAM alone. */
static int cache_enter_disk(sim_cache *c, uint32_t i, uint32_t parent) {
    BASE_ASSERT(c->disk && c->slots[i].tiers == RP_TIER_RAM);
    sim_slot *s = &c->slots[i];
    while (c->use.disk_tokens + s->n_tokens > c->disk_capacity)
        if (!cache_evict(c, c->disk, RP_TIER_DISK)) return RP_OK;
    eviction_item about = item_of(c, s, parent, RP_TIER_DISK);
    int rc = eviction_add(c->disk, i, &about);
    if (rc) return rc;
    c->use.disk_tokens += s->n_tokens;
    cache_set_tiers(c, i, s->tiers | RP_TIER_DISK);
    return RP_OK;
}

int sim_cache_add(sim_cache *c, uint32_t id, const rp_named_kv *item, uint32_t parent, uint32_t tenant,
                  uint64_t cost_us) {
    if (sim_cache_tiers(c, id) & RP_TIER_RAM) return RP_OK;
    if (!cache_make_space(c, item->n_tokens)) return RP_OK;
    uint32_t i = c->slot_of[id]; /* making space may have removed it from disk */
    bool is_new = i == NO_SLOT;
    if (is_new) {
        if ((i = cache_take_slot(c)) == NO_SLOT) return RP_ERR_MEMORY;
        c->slots[i] = (sim_slot){
            .name = item->name,
            .id = id,
            .tenant = tenant,
            .n_tokens = item->n_tokens,
            .cost_us = BASE_MAX(cost_us, (uint64_t)1),
        };
        c->slot_of[id] = i;
        c->use.names++;
    }
    int rc = cache_enter_ram(c, i, parent);
    if (!rc) cache_set_tiers(c, i, c->slots[i].tiers | RP_TIER_RAM);
    else if (is_new) cache_free_slot(c, i);
    if (!rc && c->disk && !(c->slots[i].tiers & RP_TIER_DISK)) {
        c->slots[i].holders++; /* must not be evicted to make space for itself */
        rc = cache_enter_disk(c, i, parent);
        c->slots[i].holders--;
    }
    return rc;
}

static void cache_held(sim_cache *c, const sim_slot *s) {
    if (s->holders != 1) return;
    c->held_tokens += s->n_tokens;
    c->use.held++;
}

void sim_cache_hold_new(sim_cache *c, uint32_t id) {
    sim_slot *s = cache_find(c, id);
    BASE_ASSERT(s != NULL && s->tiers & RP_TIER_RAM);
    s->holders++;
    cache_held(c, s);
}

bool sim_cache_hold(sim_cache *c, uint32_t id, uint32_t parent) {
    sim_slot *s = cache_find(c, id);
    BASE_ASSERT(s != NULL);
    uint32_t i = c->slot_of[id];
    s->holders++; /* from here on it is not evicted from disk */
    if (s->tiers & RP_TIER_RAM) eviction_use(c->ram, i);
    else if (!cache_make_space(c, s->n_tokens) || cache_enter_ram(c, i, parent)) {
        s->holders--;
        return false;
    } else cache_set_tiers(c, i, s->tiers | RP_TIER_RAM);
    if (s->tiers & RP_TIER_DISK) eviction_use(c->disk, i);
    cache_held(c, s);
    return true;
}

void sim_cache_release(sim_cache *c, uint32_t id) {
    sim_slot *s = cache_find(c, id);
    BASE_ASSERT(s != NULL && s->holders > 0);
    if (--s->holders > 0) return;
    BASE_ASSERT(c->held_tokens >= s->n_tokens && c->use.held > 0);
    c->held_tokens -= s->n_tokens;
    c->use.held--;
}

void sim_cache_forget_ram(sim_cache *c) {
    for (uint32_t i = 0; i < (uint32_t)c->n_slots; i++) {
        sim_slot *s = &c->slots[i];
        if (c->slot_of[s->id] != i) continue;
        s->holders = 0;
        if (!(s->tiers & RP_TIER_RAM)) continue;
        eviction_remove(c->ram, i);
        s->tiers &= ~RP_TIER_RAM;
        if (!s->tiers) cache_free_slot(c, i);
    }
    c->held_tokens = 0;
    c->use.held = 0;
    c->use.ram_tokens = c->use.reserved_tokens = 0;
}

void sim_cache_report(const sim_cache *c) {
    for (uint32_t i = 0; i < (uint32_t)c->n_slots; i++)
        if (c->slot_of[c->slots[i].id] == i)
            c->changed(c->user, c->slots[i].id, &c->slots[i].name, c->slots[i].tiers);
}
