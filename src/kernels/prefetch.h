/* prefetch.h: asking for memory ahead of its use. */
#ifndef KERNELS_PREFETCH_H
#define KERNELS_PREFETCH_H

#include <stdint.h>

#include "base/compiler.h"

/* Asks for the cache lines of [p + ahead, p + ahead + bytes); the address may lie outside of any object. */
static BASE_ALWAYS_INLINE void kernel_prefetch(const void *p, int64_t ahead, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) BASE_PREFETCH((const void *)((uintptr_t)p + (uintptr_t)(ahead + i)));
}

#endif
