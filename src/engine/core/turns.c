/* SPDX-License-Identifier: Apache-2.0 */
/* turns.c: see turns.h. Linear lists: tenants that are not ahead of their level are removed from time to time, so the
 * length is about the number of tenants with requests. */
#include "engine/core/turns.h"

#include <math.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/memory.h"

#define LEAST_SWEEP 64
#define MAX_LEVELS ((size_t)1 << 16)
#define MAX_ROUNDS 1e15 /* of one request; the counter cannot overflow */

void turns_free(turns *t) {
    base_free(t->tenants);
    base_free(t->levels);
    *t = (turns){0};
}

static turns_tenant *find_tenant(const turns *t, const base_key *salt, int32_t priority) {
    for (size_t i = 0; i < t->n_tenants; i++)
        if (t->tenants[i].priority == priority && base_key_equal(&t->tenants[i].salt, salt)) return &t->tenants[i];
    return NULL;
}

static turns_level *find_level(const turns *t, int32_t priority) {
    for (size_t i = 0; i < t->n_levels; i++)
        if (t->levels[i].priority == priority) return &t->levels[i];
    return NULL;
}

static uint64_t round_of(const turns *t, int32_t priority) {
    const turns_level *level = find_level(t, priority);
    return level ? level->round : 0;
}

turn turns_start(const turns *t, const base_key *salt, int32_t priority, double quantum_us) {
    const turns_tenant *tenant = find_tenant(t, salt, priority);
    return tenant ? tenant->last : (turn){round_of(t, priority), quantum_us};
}

turn turns_next(turn from, double cost_us, double quantum_us) {
    double missing = cost_us - from.left_us;
    if (missing <= 0 || quantum_us <= 0) return (turn){from.round, from.left_us - cost_us};
    double rounds = BASE_MIN(ceil(missing / quantum_us), MAX_ROUNDS);
    return (turn){from.round + (uint64_t)rounds, BASE_MAX(rounds * quantum_us - missing, 0)};
}

/* Removes tenants without queued requests whose level has reached their round: they would start with a quantum
   anyway. */
static void sweep_tenants(turns *t) {
    size_t kept = 0;
    for (size_t i = 0; i < t->n_tenants; i++) {
        const turns_tenant *x = &t->tenants[i];
        if (x->waits || x->last.round > round_of(t, x->priority)) t->tenants[kept++] = *x;
    }
    t->n_tenants = kept;
    t->sweep_at = BASE_MAX(2 * kept, LEAST_SWEEP);
}

static turns_tenant *add_tenant(turns *t, const base_key *salt, int32_t priority, turn last) {
    if (t->n_tenants >= t->sweep_at) sweep_tenants(t);
    if (base_grow((void **)&t->tenants, &t->cap_tenants, t->n_tenants + 1, TURNS_MAX_TENANTS, sizeof(*t->tenants)))
        return NULL;
    turns_tenant *tenant = &t->tenants[t->n_tenants++];
    *tenant = (turns_tenant){.salt = *salt, .priority = priority, .last = last};
    return tenant;
}

void turns_begin(turns *t, const base_key *salt, int32_t priority, double quantum_us) {
    turns_tenant *tenant = find_tenant(t, salt, priority);
    turn now = {round_of(t, priority), quantum_us};
    if (!tenant) tenant = add_tenant(t, salt, priority, now);
    if (!tenant) return;
    BASE_ASSERT(!tenant->waits); /* its first one */
    if (tenant->last.round < now.round) tenant->last = now;
    tenant->last.left_us = BASE_MIN(tenant->last.left_us, quantum_us);
    tenant->waits = true;
}

void turns_rest(turns *t, const base_key *salt, int32_t priority) {
    turns_tenant *tenant = find_tenant(t, salt, priority);
    if (tenant) tenant->waits = false;
}

void turns_admit(turns *t, const base_key *salt, int32_t priority, turn at) {
    turns_level *level = find_level(t, priority);
    if (!level &&
        base_grow((void **)&t->levels, &t->cap_levels, t->n_levels + 1, MAX_LEVELS, sizeof(*t->levels)) == 0) {
        level = &t->levels[t->n_levels++];
        *level = (turns_level){priority, 0};
    }
    if (!level) return;
    level->round = BASE_MAX(level->round, at.round);
    turns_tenant *tenant = find_tenant(t, salt, priority);
    if (tenant) tenant->last = at;
    else add_tenant(t, salt, priority, at);
}

void turns_refund(turns *t, const base_key *salt, int32_t priority, double us, double quantum_us) {
    turns_tenant *tenant = find_tenant(t, salt, priority);
    uint64_t round = round_of(t, priority);
    if (!tenant || quantum_us <= 0) return;
    if (!tenant->waits && tenant->last.round < round) {
        if (us >= 0) return; /* it starts with a quantum, and saves nothing */
        tenant->last = (turn){round, quantum_us};
    }
    double left = tenant->last.left_us + us, rounds = floor(left / quantum_us); /* > 0: back */
    uint64_t ahead = tenant->last.round > round ? tenant->last.round - round : 0;
    rounds = BASE_MAX(BASE_MIN(rounds, (double)ahead), -MAX_ROUNDS);
    if (rounds >= 0) tenant->last.round -= (uint64_t)rounds;
    else tenant->last.round += (uint64_t)-rounds;
    tenant->last.left_us = BASE_MAX(left - rounds * quantum_us, 0);
}
