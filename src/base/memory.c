/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c: the library's allocations, counted, taken from the thread's budget, and made to fail where a test asks for
 * it.
 *
 * Owns three counters and the point of failure, nothing else. Thread-safe: counters are atomic and order nothing, or
 * the thread's own.
 *
 * A budget counts the bytes that a block really has (malloc_usable_size). They are known only afterwards: before it,
 * the bytes asked for are taken.
 */
#define _DEFAULT_SOURCE /* madvise */

#include "base/memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <malloc.h>
#include <sys/mman.h>
#endif

#include "base/budget.h"
#include "base/check.h"
#include "reprise.h"

/* n_allocs only rises, so the N-th allocation from now has a number that no other one has. */
static _Atomic uint64_t n_allocs;
static _Atomic uint64_t n_reported;  /* n_allocs at the last base_alloc_count */
static _Atomic uint64_t fail_number; /* the allocation that fails; 0: none */
static _Atomic int fail_sticky;
static _Thread_local uint64_t n_failures;

static size_t block_bytes(void *p) {
#if defined(__linux__)
    return malloc_usable_size(p);
#else
    (void)p; /* budgets are for servers, which run on Linux */
    return 0;
#endif
}

/* Counts an allocation, which needs `more` bytes. Returns false if it has to fail. */
static bool memory_admit(size_t bytes, size_t more) {
    uint64_t number = atomic_fetch_add_explicit(&n_allocs, 1, memory_order_relaxed) + 1;
    uint64_t fail = atomic_load_explicit(&fail_number, memory_order_relaxed);
    if (BASE_UNLIKELY(fail != 0 && number >= fail))
        if (number == fail || atomic_load_explicit(&fail_sticky, memory_order_relaxed)) return n_failures++, false;
    return (bytes <= PTRDIFF_MAX && base_budget_take(more)) || (n_failures++, false);
}

/* The block was made from `taken` bytes of the budget; NULL: it was not made. */
static void *memory_settle(void *p, size_t taken) {
    if (!p) n_failures++;
    if (!base_budget_current()) return p;
    const size_t bytes = p ? block_bytes(p) : 0;
    if (bytes >= taken) base_budget_add(bytes - taken);
    else base_budget_give(taken - bytes);
    return p;
}

void *base_alloc(size_t bytes) {
    return memory_admit(bytes, bytes) ? memory_settle(malloc(bytes ? bytes : 1), bytes) : NULL;
}

void *base_calloc(size_t n, size_t bytes) {
    if (bytes != 0 && n > SIZE_MAX / bytes) return NULL;
    size_t total = n * bytes;
    return memory_admit(total, total) ? memory_settle(calloc(total > 0 ? total : 1, 1), total) : NULL;
}

void *base_realloc(void *p, size_t bytes) {
    const size_t before = p && base_budget_current() ? block_bytes(p) : 0, more = bytes > before ? bytes - before : 0;
    if (!memory_admit(bytes, more)) return NULL;
    void *grown = realloc(p, bytes ? bytes : 1);
    if (!grown) {
        n_failures++;
        base_budget_give(more);
    } else if (base_budget_current()) {
        const size_t now = block_bytes(grown);
        if (now >= before + more) base_budget_add(now - before - more);
        else base_budget_give(before + more - now);
    }
    return grown;
}

#define HUGE_PAGE ((size_t)2 << 20)
#define HUGE_FROM (4 * HUGE_PAGE) /* at most a fifth is lost to rounding, of what is never touched */

/* Fresh memory costs most of a second for each GB in pages of 4 KiB, and a tenth of that in huge ones. */
static void advise_huge(void *p, size_t bytes) {
#if defined(MADV_HUGEPAGE)
    (void)madvise(p, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* only advice */
#else
    (void)p;
    (void)bytes;
#endif
}

void *base_alloc_aligned(size_t bytes, size_t align) {
    BASE_ASSERT(align >= sizeof(void *) && (align & (align - 1)) == 0);
    void *p = NULL;
    if (!memory_admit(bytes, bytes)) return NULL;
    if (bytes >= HUGE_FROM && align < HUGE_PAGE) align = HUGE_PAGE;
    if (posix_memalign(&p, align, bytes ? bytes : 1) != 0) p = NULL;
    else if (bytes >= HUGE_FROM) advise_huge(p, bytes);
    return memory_settle(p, bytes);
}

char *base_strdup(const char *s) { return base_strndup(s, strlen(s)); }

char *base_strndup(const char *s, size_t n) {
    const char *end = memchr(s, '\0', n);
    if (end) n = (size_t)(end - s);
    char *copy = base_alloc(n + 1);
    if (!copy) return NULL;
    memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

void base_free(void *p) {
    if (p && base_budget_current()) base_budget_give(block_bytes(p));
    free(p);
}

int base_grow(void **items, size_t *cap, size_t need, size_t max, size_t elem_bytes) {
    BASE_DCHECK(*cap == 0 || *items); /* invariant 3 */
    if (need <= *cap) return 0;
    if (need > max) return RP_ERR_LIMIT;
    /* By half: memory that was given back can serve a later step, which doubling never allows. */
    size_t want = *cap > max - *cap / 2 ? max : *cap + *cap / 2;
    want = BASE_MIN(BASE_MAX(BASE_MAX(want, need), (size_t)8), max);
    BASE_ASSERT(want >= need && want <= max);
    if (elem_bytes != 0 && want > SIZE_MAX / elem_bytes) return RP_ERR_MEMORY;
    void *grown = base_realloc(*items, want * elem_bytes);
    if (!grown) return RP_ERR_MEMORY;
    *items = grown;
    *cap = want;
    return 0;
}

void base_alloc_fail_at(uint64_t n, int sticky) {
    uint64_t now = atomic_load_explicit(&n_allocs, memory_order_relaxed);
    atomic_store_explicit(&fail_sticky, sticky, memory_order_relaxed);
    atomic_store_explicit(&fail_number, n ? now + n : 0, memory_order_relaxed);
}

uint64_t base_alloc_failures(void) { return n_failures; }

uint64_t base_alloc_count(void) {
    uint64_t now = atomic_load_explicit(&n_allocs, memory_order_relaxed);
    return now - atomic_exchange_explicit(&n_reported, now, memory_order_relaxed);
}
