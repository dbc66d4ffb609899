/* SPDX-License-Identifier: Apache-2.0 */
/* budget.h: a limit on the memory that some work takes, such as one request's.
 *
 * A budget lies within another one, its parent, which counts the same bytes: the budgets of all requests of a tenant
 * within the tenant's, those of all tenants within the server's. A thread works within one budget, or none
 * (base_budget_enter); base_alloc and its siblings take from it, and base_free gives back to it.
 *
 *   all requests   limit 64 MiB
 *   |-- tenant a   limit 48 MiB
 *   |   |-- request  limit 32 MiB   <- entered by a worker, an I/O thread, the engine's thread in a callback
 *   |   `-- request
 *   `-- tenant b
 *
 * What counts is where memory is taken and freed, not which block it is: memory that outlives its request (an entry of
 * a registry) is returned to the parents with the request's end, and is counted by its owner's own limit from there on.
 * Memory of others that a request frees is credited to it, up to what it has taken.
 *
 * An allocation beyond a limit fails as if there were no memory. base_budget_refusal then names the budget that refused
 * it.
 */
#ifndef BASE_BUDGET_H
#define BASE_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

typedef struct base_budget base_budget;

/* parent: NULL, or a budget that the new one keeps alive. limit: bytes. With one reference, the caller's. NULL: no
   memory. */
base_budget *base_budget_new(base_budget *parent, uint64_t limit) BASE_NODISCARD;
base_budget *base_budget_ref(base_budget *b); /* NULL is fine; returns b */
/* With the last reference, what is still taken is returned to the parents. No thread may work within b then. NULL is
   fine. */
void base_budget_unref(base_budget *b);

/* The calling thread works within b (NULL: within none) from here on; the caller holds a reference meanwhile. Returns
   the budget before it. */
base_budget *base_budget_enter(base_budget *b);

/* The calling thread's, without a reference; NULL: none. */
base_budget *base_budget_current(void);

/* The budget that refused an allocation to the calling thread's budget: itself, a parent, or NULL: none did. */
const base_budget *base_budget_refusal(void);
/* Is b the outermost budget? */
bool base_budget_is_root(const base_budget *b);

uint64_t base_budget_limit(const base_budget *b);
uint64_t base_budget_used(
    const base_budget *b);                       /* bytes; each thread within b may have taken up to BASE_BUDGET_STEP in
                                                    advance */
uint64_t base_budget_peak(const base_budget *b); /* most that was ever used */

#define BASE_BUDGET_STEP \
    ((size_t)64 << 10) /* a thread takes so much in advance: atomic counters are touched once for many allocations */

/* For base/memory.c. Takes n bytes from the thread's budget; false: refused. */
bool base_budget_take(size_t n) BASE_NODISCARD;
/* Takes n bytes whatever the limit: they are allocated already. */
void base_budget_add(size_t n);
void base_budget_give(size_t n);

#endif
