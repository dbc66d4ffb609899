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

static void copy_rows(kv_memory *m, kv_address from, kv_address to, size_t row_bytes, size_t stride, size_t n) {
    const char *a = kv_host_bytes(from);
    char *b = kv_host_bytes(to);
    (void)m;
    for (size_t i = 0; i < n; i++) memcpy(b + i * stride, a + i * stride, row_bytes);
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
