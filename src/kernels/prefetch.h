/* SPDX-License-Identifier: Apache-2.0 */
/* prefetch.h: prefetching memory. */
#ifndef KERNELS_PREFETCH_H
#define KERNELS_PREFETCH_H

#include <stdint.h>

#include "base/compiler.h"

/* Prefetches the cache lines of [p + ahead, p + ahead + bytes); the address may be outside of any object. 8 or 16 rows
 * at once are more streams than the hardware prefetcher handles well; prefetching every byte raised one-row Q8_0
 * products from 7 to 13 GB/s a core (Zen 3, 18 GB/s when reading only). */
static BASE_ALWAYS_INLINE void kernel_prefetch(const void *p, int64_t ahead, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) BASE_PREFETCH((const void *)((uintptr_t)p + (uintptr_t)(ahead + i)));
}

/* The same, into the L2 only: data that is used late would be evicted from the L1 before its use. */
static BASE_ALWAYS_INLINE void kernel_prefetch_l2(const void *p, int64_t ahead, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) BASE_PREFETCH_L2((const void *)((uintptr_t)p + (uintptr_t)(ahead + i)));
}

#endif
