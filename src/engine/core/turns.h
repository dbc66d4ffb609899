/* SPDX-License-Identifier: Apache-2.0 */
/* turns.h: fair turns of tenants: deficit round robin (Shreedhar and Varghese, 1995), with the rounds counted.
 *
 *   tenant A  | a1 . . | a1 a2 . | a3 . . |     a round gives each tenant a quantum of predicted time; a request is
 *         served in the round
 *   tenant B  | b1 b2 b3 |                      in which its tenant's quanta have paid for it. What is left counts for
 *         the next one.
 *   round          1         2        3
 *
 * Rounds are counted instead of walked: a request's round follows from what its tenant had left and from its cost,
 * however many rounds that takes. The quantum may therefore be small: in the time of a quantum a tenant waits at most
 * for one quantum of each other tenant, and for one request that was already running. A tenant without queued requests
 * saves nothing: it begins in the round that is being served.
 *
 * Each level of priority has rounds of its own. Tenants are known by salt. One thread.
 */
#ifndef ENGINE_TURNS_H
#define ENGINE_TURNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

#define TURNS_MAX_TENANTS ((size_t)1 << 20) /* beyond it a tenant starts as a new one each time */

/* When a request is served, and what its tenant has left of that round then, in microseconds. */
typedef struct turn {
    uint64_t round;
    double left_us;
} turn;

typedef struct turns_tenant {
    base_key salt;
    int32_t priority;
    turn last;  /* of its last admitted request, or at which it began to wait */
    bool waits; /* it has queued requests */
} turns_tenant;

typedef struct turns_level {
    int32_t priority;
    uint64_t round; /* the highest admitted one */
} turns_level;

/* Zero-initialise. */
typedef struct turns {
    turns_tenant *tenants; /* those that may be ahead of their level, and some others */
    turns_level *levels;
    size_t n_tenants, n_levels, cap_tenants, cap_levels, sweep_at;
} turns;

void turns_free(turns *t);
/* The tenant's first request is queued. */
void turns_begin(turns *t, const base_key *salt, int32_t priority, double quantum_us);
/* The tenant has no queued request any more. */
void turns_rest(turns *t, const base_key *salt, int32_t priority);
/* The turn from which the tenant's first queued request starts. */
turn turns_start(const turns *t, const base_key *salt, int32_t priority, double quantum_us);
/* The turn of a request of this cost, if the tenant's last turn is `from`. */
turn turns_next(turn from, double cost_us, double quantum_us);
/* A request was admitted at this turn. Without memory its tenant starts as a new one next time. */
void turns_admit(turns *t, const base_key *salt, int32_t priority, turn at);
/* A request of the tenant took `us` less than predicted; below 0: more. */
void turns_refund(turns *t, const base_key *salt, int32_t priority, double us, double quantum_us);

#endif
