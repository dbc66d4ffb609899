/* SPDX-License-Identifier: Apache-2.0 */
/* budget.c: see budget.h. Any thread.
 *
 * `used` of a budget is the sum of what threads took from it; a thread's `own.left` is the part of that which it has
 * not allocated yet. */
#include "base/budget.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"

#define MAX_DEPTH 4 /* of budgets within each other */

struct base_budget {
    base_budget *parent;
    uint64_t limit;
    _Atomic uint64_t used, peak;
    _Atomic uint32_t n_refs;
    const base_budget *_Atomic refused_by;
};

static _Thread_local struct {
    base_budget *budget;
    size_t left; /* taken from the budget, not allocated */
} own;

base_budget *base_budget_new(base_budget *parent, uint64_t limit) {
    int depth = 1;
    for (const base_budget *p = parent; p; p = p->parent) depth++;
    BASE_ASSERT(depth <= MAX_DEPTH);
    base_budget *b = calloc(1, sizeof(*b)); /* not base_calloc, which takes from budgets */
    if (!b) return NULL;
    b->parent = base_budget_ref(parent);
    b->limit = limit;
    atomic_init(&b->n_refs, 1);
    return b;
}

base_budget *base_budget_ref(base_budget *b) {
    if (!b) return NULL;
    const uint32_t before = atomic_fetch_add_explicit(&b->n_refs, 1, memory_order_relaxed);
    BASE_ASSERT(before > 0); /* else it is freed */
    (void)before;
    return b;
}

/* Takes n bytes less from what is used of one budget; at most what is. Returns how many. */
static uint64_t level_return(base_budget *b, uint64_t n) {
    uint64_t used = atomic_load_explicit(&b->used, memory_order_relaxed), less;
    do less = BASE_MIN(n, used);
    while (!atomic_compare_exchange_weak_explicit(&b->used, &used, used - less, memory_order_relaxed,
                                                  memory_order_relaxed));
    return less;
}

/* Returns n bytes to b, at most what is used of it, and to its parents, which count no less. */
static void budget_return(base_budget *b, uint64_t n) {
    const uint64_t less = level_return(b, n);
    for (base_budget *p = b->parent; p; p = p->parent) {
        const uint64_t of_parent = level_return(p, less);
        BASE_ASSERT(of_parent == less);
    }
}

void base_budget_unref(base_budget *b) {
    while (b && atomic_fetch_sub_explicit(&b->n_refs, 1, memory_order_acq_rel) == 1) {
        base_budget *parent = b->parent;
        budget_return(b, UINT64_MAX);
        BASE_ASSERT(own.budget != b);
        free(b);
        b = parent;
    }
}

/* Adds n bytes to one budget; false: they exceed its limit, and it is unchanged. */
static bool level_claim(base_budget *b, uint64_t n, bool limited) {
    uint64_t used = atomic_load_explicit(&b->used, memory_order_relaxed);
    do {
        if (limited && (used > b->limit || n > b->limit - used)) return false;
    } while (
        !atomic_compare_exchange_weak_explicit(&b->used, &used, used + n, memory_order_relaxed, memory_order_relaxed));
    used += n;
    uint64_t peak = atomic_load_explicit(&b->peak, memory_order_relaxed);
    while (used > peak && !atomic_compare_exchange_weak_explicit(&b->peak, &peak, used, memory_order_relaxed,
                                                                 memory_order_relaxed)) {
    }
    return true;
}

/* Adds n bytes to b and its parents, outermost first: no budget ever counts less than those within it. Returns NULL, or
 * the budget whose limit they would exceed: then nothing was added. */
static const base_budget *budget_claim(base_budget *b, uint64_t n, bool limited) {
    base_budget *chain[MAX_DEPTH];
    int depth = 0;
    for (base_budget *p = b; p; p = p->parent) chain[depth++] = p;
    for (int i = 0; i < depth && limited; i++)
        if (n > chain[i]->limit) return chain[i];
    for (int i = depth - 1; i >= 0; i--) {
        if (level_claim(chain[i], n, limited)) continue;
        for (int k = i + 1; k < depth; k++) level_return(chain[k], n); /* no less is used of them */
        return chain[i];
    }
    return NULL;
}

base_budget *base_budget_current(void) { return own.budget; }

bool base_budget_take(size_t n) {
    base_budget *b = own.budget;
    if (!b) return true;
    if (BASE_UNLIKELY(own.left < n)) {
        const size_t need = n - own.left;
        size_t got = need + BASE_BUDGET_STEP;
        const base_budget *refused = need > SIZE_MAX / 2 ? b : budget_claim(b, got, true);
        if (refused && need <= SIZE_MAX / 2) refused = budget_claim(b, got = need, true);
        if (refused) {
            atomic_store_explicit(&b->refused_by, refused, memory_order_relaxed);
            return false;
        }
        own.left += got;
    }
    own.left -= n;
    return true;
}

void base_budget_add(size_t n) {
    base_budget *b = own.budget;
    if (!b) return;
    if (own.left >= n) {
        own.left -= n;
        return;
    }
    (void)budget_claim(b, n - own.left, false);
    own.left = 0;
}

void base_budget_give(size_t n) {
    base_budget *b = own.budget;
    if (!b) return;
    own.left += n;
    if (BASE_LIKELY(own.left <= 2 * BASE_BUDGET_STEP)) return;
    budget_return(b, own.left - BASE_BUDGET_STEP);
    own.left = BASE_BUDGET_STEP;
}

base_budget *base_budget_enter(base_budget *b) {
    base_budget *before = own.budget;
    BASE_ASSERT(before || own.left == 0); /* what is left is of a budget */
    if (before == b) return before;
    if (before && own.left > 0) budget_return(before, own.left);
    own.budget = b;
    own.left = 0;
    return before;
}

const base_budget *base_budget_refusal(void) {
    return own.budget ? atomic_load_explicit(&own.budget->refused_by, memory_order_relaxed) : NULL;
}

bool base_budget_is_root(const base_budget *b) { return !b->parent; }

uint64_t base_budget_limit(const base_budget *b) { return b->limit; }

uint64_t base_budget_used(const base_budget *b) { return atomic_load_explicit(&b->used, memory_order_relaxed); }

uint64_t base_budget_peak(const base_budget *b) { return atomic_load_explicit(&b->peak, memory_order_relaxed); }
