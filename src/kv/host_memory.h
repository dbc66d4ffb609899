/* SPDX-License-Identifier: Apache-2.0 */
/* host_memory.h: KV blocks in the memory of the process. For its owners, the backends that compute on the CPU, and for
 * tests; tools/check-includes keeps it from everyone else.
 */
#ifndef KV_HOST_MEMORY_H
#define KV_HOST_MEMORY_H

#include "kv/block_memory.h"

/* No state; never freed. */
kv_memory *kv_host_memory(void);

/* The bytes at an address of host memory, which is the address of the process. */
static inline void *kv_host_bytes(kv_address a) { return (void *)(uintptr_t)a.at; }

#endif
