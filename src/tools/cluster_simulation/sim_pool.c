/* SPDX-License-Identifier: Apache-2.0 */
/* sim_pool.c: see sim_pool.h. */
#include "tools/cluster_simulation/sim_pool.h"

#include "base/check.h"
#include "base/compiler.h"
#include "base/memory.h"

/* A name, from its first use on: whether the pool has it, and its neighbours in the list of those that it has. */
typedef struct pool_entry {
    const rp_named_kv *item; /* NULL: never used */
    uint32_t tenant, uses;   /* uses: by requests, on all nodes */
    bool has;
    uint32_t newer, older;
} pool_entry;

struct sim_pool {
    sim_pool_options o;
    pool_entry *entries; /* [n_names] */
    size_t n_names;
    uint32_t newest, oldest; /* by last use; SIM_NONE: it is empty */
    int64_t tokens, written_tokens;
    uint64_t link_until; /* its link is busy until then */
};

int sim_pool_new(sim_pool **out, const sim_pool_options *o, size_t n_names) {
    BASE_ASSERT(o->tokens > 0);
    sim_pool *p = base_calloc(1, sizeof(*p));
    *out = p;
    if (!p) return RP_ERR_MEMORY;
    *p = (sim_pool){.o = *o, .n_names = n_names, .newest = SIM_NONE, .oldest = SIM_NONE};
    p->entries = base_calloc(n_names + 1, sizeof(*p->entries));
    if (p->entries) return RP_OK;
    sim_pool_free(p);
    *out = NULL;
    return RP_ERR_MEMORY;
}

void sim_pool_free(sim_pool *p) {
    if (!p) return;
    base_free(p->entries);
    base_free(p);
}

bool sim_pool_has(const sim_pool *p, uint32_t id) {
    BASE_ASSERT(id < p->n_names);
    return p->entries[id].has;
}

uint32_t sim_pool_tenant(const sim_pool *p, uint32_t id) { return p->entries[id].tenant; }

/* ---- the list ---- */

static void pool_unlink(sim_pool *p, uint32_t id) {
    pool_entry *e = &p->entries[id];
    BASE_ASSERT(e->has);
    if (e->newer == SIM_NONE) p->newest = e->older;
    else p->entries[e->newer].older = e->older;
    if (e->older == SIM_NONE) p->oldest = e->newer;
    else p->entries[e->older].newer = e->newer;
    e->has = false;
    p->tokens -= e->item->n_tokens;
}

static void pool_link(sim_pool *p, uint32_t id) {
    pool_entry *e = &p->entries[id];
    BASE_ASSERT(!e->has);
    e->newer = SIM_NONE;
    e->older = p->newest;
    if (p->newest == SIM_NONE) p->oldest = id;
    else p->entries[p->newest].newer = id;
    p->newest = id;
    e->has = true;
    p->tokens += e->item->n_tokens;
}

static bool pool_write(sim_pool *p, uint32_t id) {
    int32_t n = p->entries[id].item->n_tokens;
    if (n > p->o.tokens) return false;
    while (p->tokens + n > p->o.tokens) pool_unlink(p, p->oldest);
    pool_link(p, id);
    p->written_tokens += n;
    return true;
}

/* ---- names ---- */

static void pool_touch(sim_pool *p, uint32_t id) {
    pool_unlink(p, id);
    pool_link(p, id);
}

uint64_t sim_pool_transfer(sim_pool *p, uint64_t now_us, double us) {
    p->link_until = BASE_MAX(p->link_until, now_us) + (uint64_t)us;
    return p->link_until + (uint64_t)p->o.rtt_us;
}

void sim_pool_fetched(sim_pool *p, uint32_t id) {
    if (sim_pool_has(p, id)) pool_touch(p, id);
}

bool sim_pool_use(sim_pool *p, uint32_t id, const rp_named_kv *item, uint32_t tenant) {
    BASE_ASSERT(id < p->n_names && item);
    pool_entry *e = &p->entries[id];
    e->item = item;
    e->tenant = tenant;
    e->uses++;
    if (e->has) pool_touch(p, id);
    if (e->has || (e->uses < 2 && p->o.writes != RP_CLUSTER_POOL_ALWAYS)) return false;
    return pool_write(p, id);
}

bool sim_pool_evicted(sim_pool *p, uint32_t id) {
    const pool_entry *e = &p->entries[id];
    if (!e->item || e->has || p->o.writes == RP_CLUSTER_POOL_SECOND_USE) return false;
    return pool_write(p, id);
}

int64_t sim_pool_written_tokens(const sim_pool *p) { return p->written_tokens; }
