/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h: every allocation of the library goes through here, so that tests can make the N-th one fail.
 *
 * Thread-safe. A block from any of these functions is released with base_free. Sizes are checked for overflow.
 */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

void *base_alloc(size_t bytes) BASE_NODISCARD;                       /* uninitialised; bytes 0 gives a unique block */
void *base_calloc(size_t n, size_t bytes) BASE_NODISCARD;            /* zeroed; NULL on overflow of n * bytes */
void *base_realloc(void *p, size_t bytes) BASE_NODISCARD;            /* on failure p stays valid */
void *base_alloc_aligned(size_t bytes, size_t align) BASE_NODISCARD; /* align: a power of two, >= sizeof(void *) */
char *base_strdup(const char *s) BASE_NODISCARD;
char *base_strndup(const char *s, size_t n) BASE_NODISCARD; /* always NUL-terminated */
void base_free(void *p);                                    /* NULL is fine */

/* Grows an array geometrically: to a capacity of at least `need` elements, at most `max` (the array's limit).
 * *items and *cap are updated together or not at all. Returns 0, RP_ERR_MEMORY or RP_ERR_LIMIT. */
int base_grow(void **items, size_t *cap, size_t need, size_t max, size_t elem_bytes) BASE_NODISCARD;

/* Allocations that failed on the calling thread so far. Code that builds with a library and cannot check each of its
 * results, such as a JSON value by Jansson over base_alloc, compares the number before and after. */
uint64_t base_alloc_failures(void);

/* Fault injection (tests). The n-th allocation from now (1 = the next) fails, and every one after it if `sticky`.
 * 0 switches it off. base_alloc_count counts the allocations since its own last call. Process-wide, atomic. */
void base_alloc_fail_at(uint64_t n, int sticky);
uint64_t base_alloc_count(void);

#endif
