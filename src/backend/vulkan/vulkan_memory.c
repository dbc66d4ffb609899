/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_memory.c: KV blocks in device memory, and copies between the host and it.
 *
 * An allocation is a buffer of Vulkan; the address of a block is its address on the device, so that shaders take it as
 * it is. Where the host reaches device memory, it copies by itself; elsewhere through a staging buffer, by commands on
 * the device's queue, one operation at a time.
 */
#include <string.h>

#include "backend/vulkan/vulkan_backend.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

#define STAGING_BYTES ((uint64_t)4 << 20)
#define MAX_ALLOCATIONS ((size_t)1 << 20)

struct vulkan_memory {
    kv_memory base;
    vulkan_backend *backend;
    pthread_mutex_t lock;       /* guards the allocations */
    vulkan_buffer *allocations; /* [n], by ascending address */
    size_t n, cap;
    pthread_mutex_t copying; /* guards those below */
    vulkan_stream stream;
    vulkan_buffer staging, unstaging; /* to the device, from it; empty until the first copy */
};

static vulkan_memory *of(kv_memory *m) { return (vulkan_memory *)m; }

/* ---- allocations ---- */

/* Index of the first allocation that begins after an address. */
static size_t find_after(const vulkan_memory *m, uint64_t address) {
    size_t low = 0, high = m->n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (m->allocations[middle].address <= address) low = middle + 1;
        else high = middle;
    }
    return low;
}

static vulkan_buffer find(vulkan_memory *m, kv_address a) {
    pthread_mutex_lock(&m->lock);
    const size_t i = find_after(m, a.at);
    BASE_ASSERT(i > 0 && a.at < m->allocations[i - 1].address + m->allocations[i - 1].bytes);
    const vulkan_buffer found = m->allocations[i - 1];
    pthread_mutex_unlock(&m->lock);
    return found;
}

static kv_address memory_alloc(kv_memory *self, size_t bytes) {
    vulkan_memory *m = of(self);
    vulkan_buffer buffer;
    rp_error err = {0};
    if (vulkan_take(m->backend, VULKAN_ON_DEVICE, bytes, "the KV cache", &buffer, &err)) {
        base_log(BASE_LOG_WARN, "vulkan: %s", err.message);
        return (kv_address){0};
    }
    pthread_mutex_lock(&m->lock);
    const int rc = base_grow((void **)&m->allocations, &m->cap, m->n + 1, MAX_ALLOCATIONS, sizeof(*m->allocations));
    if (!rc) {
        const size_t i = find_after(m, buffer.address);
        memmove(m->allocations + i + 1, m->allocations + i, sizeof(*m->allocations) * (m->n - i));
        m->allocations[i] = buffer;
        m->n++;
    }
    pthread_mutex_unlock(&m->lock);
    if (rc) vulkan_give(m->backend, &buffer);
    return (kv_address){rc ? 0 : buffer.address};
}

static void memory_free(kv_memory *self, kv_address allocation) {
    vulkan_memory *m = of(self);
    if (kv_address_is_none(allocation)) return;
    pthread_mutex_lock(&m->lock);
    const size_t i = find_after(m, allocation.at) - 1;
    BASE_ASSERT(i < m->n && m->allocations[i].address == allocation.at);
    vulkan_buffer buffer = m->allocations[i];
    memmove(m->allocations + i, m->allocations + i + 1, sizeof(*m->allocations) * (m->n - i - 1));
    m->n--;
    pthread_mutex_unlock(&m->lock);
    vulkan_give(m->backend, &buffer);
}

/* ---- copies through staging buffers ---- */

/* Runs copies between buffers, and waits. The caller holds `copying`. */
static int run_copies(vulkan_memory *m, const vulkan_buffer *from, const vulkan_buffer *to, const VkBufferCopy *regions,
                      uint32_t n, rp_error *err) {
    int rc = vulkan_stream_begin(&m->stream, err);
    if (rc) return rc;
    vulkan_stream_barrier(&m->stream); /* after steps */
    m->stream.device->vk.vkCmdCopyBuffer(m->stream.commands, from->handle, to->handle, n, regions);
    vulkan_stream_barrier(&m->stream);
    rc = vulkan_stream_submit(&m->stream, err);
    return rc ? rc : vulkan_stream_wait(&m->stream, err);
}

static int open_staging(vulkan_memory *m, vulkan_use use, vulkan_buffer *staging, rp_error *err) {
    return staging->handle ? RP_OK : vulkan_take(m->backend, use, STAGING_BYTES, "copies", staging, err);
}

int vulkan_memory_upload(vulkan_memory *m, const void *from, uint64_t bytes, const vulkan_buffer *to, uint64_t at,
                         rp_error *err) {
    BASE_ASSERT(at + bytes <= to->bytes);
    if (to->mapped) {
        memcpy(to->mapped + at, from, bytes);
        return RP_OK;
    }
    pthread_mutex_lock(&m->copying);
    int rc = open_staging(m, VULKAN_TO_DEVICE, &m->staging, err);
    for (uint64_t done = 0; done < bytes && !rc; done += STAGING_BYTES) {
        const uint64_t n = BASE_MIN(bytes - done, STAGING_BYTES);
        memcpy(m->staging.mapped, (const char *)from + done, n);
        rc = run_copies(m, &m->staging, to, &(VkBufferCopy){.dstOffset = at + done, .size = n}, 1, err);
    }
    pthread_mutex_unlock(&m->copying);
    return rc;
}

static int download(vulkan_memory *m, const vulkan_buffer *from, uint64_t at, uint64_t bytes, void *to, rp_error *err) {
    BASE_ASSERT(at + bytes <= from->bytes);
    if (from->mapped) {
        memcpy(to, from->mapped + at, bytes);
        return RP_OK;
    }
    pthread_mutex_lock(&m->copying);
    int rc = open_staging(m, VULKAN_TO_HOST, &m->unstaging, err);
    for (uint64_t done = 0; done < bytes && !rc; done += STAGING_BYTES) {
        const uint64_t n = BASE_MIN(bytes - done, STAGING_BYTES);
        rc = run_copies(m, from, &m->unstaging, &(VkBufferCopy){.srcOffset = at + done, .size = n}, 1, err);
        if (!rc) memcpy((char *)to + done, m->unstaging.mapped, n);
    }
    pthread_mutex_unlock(&m->copying);
    return rc;
}

/* ---- the table of operations ---- */

/* A failed copy leaves KV undefined: the device counts as lost, and its results are not used. */
static void note_failure(vulkan_memory *m, int rc, const rp_error *err) {
    if (rc) vulkan_device_give_up(m->backend->device, "a copy of KV", err);
}

static void memory_read(kv_memory *self, kv_address from, size_t bytes, void *to) {
    rp_error err = {0};
    const vulkan_buffer buffer = find(of(self), from);
    const int rc = download(of(self), &buffer, from.at - buffer.address, bytes, to, &err);
    if (rc) memset(to, 0, bytes);
    note_failure(of(self), rc, &err);
}

static void memory_write(kv_memory *self, const void *from, size_t bytes, kv_address to) {
    rp_error err = {0};
    const vulkan_buffer buffer = find(of(self), to);
    note_failure(of(self), vulkan_memory_upload(of(self), from, bytes, &buffer, to.at - buffer.address, &err), &err);
}

#define COPY_REGIONS 64 /* of one command */

static int copy_on_device(vulkan_memory *m, const vulkan_buffer *from, const vulkan_buffer *to, VkBufferCopy region,
                          uint64_t stride, size_t n, rp_error *err) {
    VkBufferCopy regions[COPY_REGIONS];
    int rc = RP_OK;
    pthread_mutex_lock(&m->copying);
    for (size_t done = 0; done < n && !rc;) {
        uint32_t k = 0;
        for (; k < COPY_REGIONS && done < n; k++, done++) {
            regions[k] = region;
            region.srcOffset += stride;
            region.dstOffset += stride;
        }
        rc = run_copies(m, from, to, regions, k, err);
    }
    pthread_mutex_unlock(&m->copying);
    return rc;
}

static void memory_copy_rows(kv_memory *self, kv_address from, kv_address to, size_t row_bytes, size_t stride,
                             size_t n) {
    vulkan_memory *m = of(self);
    const vulkan_buffer a = find(m, from), b = find(m, to);
    const uint64_t at = from.at - a.address, dst = to.at - b.address;
    rp_error err = {0};
    if (n == 0) return;
    BASE_ASSERT(at + (n - 1) * stride + row_bytes <= a.bytes && dst + (n - 1) * stride + row_bytes <= b.bytes);
    if (!a.mapped || !b.mapped)
        note_failure(m, copy_on_device(m, &a, &b, (VkBufferCopy){at, dst, row_bytes}, stride, n, &err), &err);
    else
        for (size_t i = 0; i < n; i++) memcpy(b.mapped + dst + i * stride, a.mapped + at + i * stride, row_bytes);
}

static bool memory_has_failed(kv_memory *self) { return atomic_load(&of(self)->backend->device->is_lost); }

static const kv_memory_ops memory_ops = {.alloc = memory_alloc,
                                         .free = memory_free,
                                         .read = memory_read,
                                         .write = memory_write,
                                         .copy_rows = memory_copy_rows,
                                         .has_failed = memory_has_failed};

/* ---- life ---- */

int vulkan_memory_new(vulkan_memory **out, vulkan_backend *b, rp_error *err) {
    vulkan_memory *m = base_calloc(1, sizeof(*m));
    *out = NULL;
    if (!m) return base_fail_memory(err, sizeof(*m), "device memory");
    m->base.ops = &memory_ops;
    m->backend = b;
    const bool has_lock = pthread_mutex_init(&m->lock, NULL) == 0;
    if (!has_lock || pthread_mutex_init(&m->copying, NULL) != 0) {
        if (has_lock) pthread_mutex_destroy(&m->lock);
        base_free(m);
        return base_fail_memory(err, sizeof(m->lock), "a lock");
    }
    const int rc = vulkan_stream_new(&m->stream, b->device, err);
    if (rc) vulkan_memory_free(m);
    else *out = m;
    return rc;
}

void vulkan_memory_free(vulkan_memory *m) {
    if (!m) return;
    BASE_ASSERT(m->n == 0);
    vulkan_stream_free(&m->stream);
    vulkan_give(m->backend, &m->staging);
    vulkan_give(m->backend, &m->unstaging);
    pthread_mutex_destroy(&m->lock);
    pthread_mutex_destroy(&m->copying);
    base_free(m->allocations);
    base_free(m);
}

kv_memory *vulkan_memory_interface(vulkan_memory *m) { return &m->base; }
