/* SPDX-License-Identifier: Apache-2.0 */
/* block_memory.h: the memory that KV blocks are in. A backend owns it and computes in it; everything else names bytes
 * by their address, and reads and writes them through this table only. The memory may be another device's. A backend
 * may have a second one, of the host (backend_ops.host_memory): no two of its allocations have a byte of one address.
 *
 *   engine, store, kv   kv_address of a block or a head  ->  read, write, copy_rows      copies on the host
 *   backend             kv_address of a head             ->  its own pointer             computes in place
 *
 * All operations but copy_blocks are complete when they return, and see what earlier steps and operations wrote. Any
 * thread may call them, also while a step is computed, as long as nothing writes the same bytes.
 */
#ifndef KV_BLOCK_MEMORY_H
#define KV_BLOCK_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reprise.h"

/* A byte of an allocation. Not a pointer: only the memory's owner knows what the number means. */
typedef struct kv_address {
    uint64_t at; /* 0: none */
} kv_address;

static inline bool kv_address_is_none(kv_address a) { return a.at == 0; }
/* Within one allocation. */
static inline kv_address kv_address_plus(kv_address a, size_t bytes) { return (kv_address){a.at + bytes}; }

/* Rows of bytes whose beginnings are `stride` bytes apart in both places. */
typedef struct kv_row_copy {
    kv_address from, to;
    uint32_t row_bytes, stride, n_rows, unused;
} kv_row_copy;

typedef struct kv_memory kv_memory;

typedef struct kv_memory_ops {
    /* 64-byte aligned. block_bytes: of each block in it, from the first byte on; 0: it is not of blocks. None: out of
     * memory. */
    kv_address (*alloc)(kv_memory *m, size_t bytes, size_t block_bytes);
    void (*free)(kv_memory *m, kv_address allocation);
    void (*read)(kv_memory *m, kv_address from, size_t bytes, void *to);
    void (*write)(kv_memory *m, const void *from, size_t bytes, kv_address to);
    /* Makes n copies together, which do not overlap; from either memory of the backend. */
    void (*copy_rows)(kv_memory *m, const kv_row_copy *copies, size_t n);
    /* Copies n blocks of `bytes` bytes to the other memory of the backend, all in one direction. layers: whose KV each
     * is, at least, for the order of copies. Whatever uses `to` or writes `from` later finds the copy complete: other
     * operations wait, and so do steps, in the layers that use it. RP_ERR_MEMORY, RP_ERR_IO: the bytes of `to` are
     * undefined. NULL, the function: the backend has one memory. */
    int (*copy_blocks)(kv_memory *m, const kv_address *from, const kv_address *to, const int32_t *layers, size_t n,
                       size_t bytes, rp_error *err);
    /* The bytes at an address, until the allocation is freed: for files, which are read and written in place. NULL, the
     * function: the host cannot reach them. */
    void *(*host_pointer)(kv_memory *m, kv_address a);
    /* Has an operation failed, so that what `read` gave since then may be wrong? NULL, the function: none fails. */
    bool (*has_failed)(kv_memory *m);
} kv_memory_ops;

struct kv_memory {
    const kv_memory_ops *ops;
};

#endif
