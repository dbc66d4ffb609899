/* SPDX-License-Identifier: Apache-2.0 */
/* trap_memory.h: memory for KV blocks as a device has it, made of host memory: its addresses fault (SIGSEGV; EFAULT in
 * a system call) unless they are opened, as a backend does for each of its steps. Operations use the same pages at
 * other addresses. The host has no pointer to it.
 *
 * One for the process; any thread.
 */
#ifndef SUPPORT_TRAP_MEMORY_H
#define SUPPORT_TRAP_MEMORY_H

#include "kv/block_memory.h"

kv_memory *trap_memory(void);

/* Between the two, for all threads, an address is a valid pointer. Pairs may nest, and those of several threads
   overlap. */
void trap_memory_open(void);
void trap_memory_close(void);

/* Bytes that operations have read, written and copied in all allocations so far. */
typedef struct trap_memory_use {
    uint64_t allocated, read, written, copied;
} trap_memory_use;
trap_memory_use trap_memory_used(void);

#endif
