/* SPDX-License-Identifier: Apache-2.0 */
/* host_memory.c: see host_memory.h. */
#include "kv/host_memory.h"

#include <string.h>

#include "base/memory.h"

static kv_address alloc(kv_memory *m, size_t bytes, size_t block_bytes) {
    (void)m, (void)block_bytes;
    return (kv_address){(uintptr_t)base_alloc_aligned(bytes, 64)};
}

static void free_allocation(kv_memory *m, kv_address allocation) {
    (void)m;
    base_free(kv_host_bytes(allocation));
}

static void read_bytes(kv_memory *m, kv_address from, size_t bytes, void *to) {
    (void)m;
    memcpy(to, kv_host_bytes(from), bytes);
}

static void write_bytes(kv_memory *m, const void *from, size_t bytes, kv_address to) {
    (void)m;
    memcpy(kv_host_bytes(to), from, bytes);
}

static void copy_rows(kv_memory *m, const kv_row_copy *copies, size_t n) {
    (void)m;
    for (size_t k = 0; k < n; k++) {
        const kv_row_copy *c = &copies[k];
        const char *from = kv_host_bytes(c->from);
        char *to = kv_host_bytes(c->to);
        for (size_t at = 0, i = 0; i < c->n_rows; i++, at += c->stride) memcpy(to + at, from + at, c->row_bytes);
    }
}

static void *host_pointer(kv_memory *m, kv_address a) {
    (void)m;
    return kv_host_bytes(a);
}

kv_memory *kv_host_memory(void) {
    static const kv_memory_ops ops = {.alloc = alloc,
                                      .free = free_allocation,
                                      .read = read_bytes,
                                      .write = write_bytes,
                                      .copy_rows = copy_rows,
                                      .host_pointer = host_pointer};
    static kv_memory memory = {&ops};
    return &memory;
}
