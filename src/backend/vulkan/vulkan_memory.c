/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_memory.c: KV blocks in device memory, and in memory of the host that the device reads over the bus.
 *
 * An allocation is a buffer of Vulkan; the address of a block is its address on the device, so that shaders take it as
 * it is, in either memory. Where the host reaches a buffer, it copies by itself; else by vulkan_copies.c.
 */
#include <string.h>

#include "backend/vulkan/vulkan_backend.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"

#define MAX_ALLOCATIONS ((size_t)1 << 20)

/* One of the two memories. */
typedef struct vulkan_kv {
    kv_memory base;
    vulkan_memory *memory;
    bool is_host;
} vulkan_kv;

typedef struct allocation {
    vulkan_buffer buffer;
    bool is_host;
    uint64_t block_bytes; /* 0: it is not of blocks */
    vulkan_block *blocks; /* [buffer.bytes / block_bytes]; NULL: no copies are tracked */
} allocation;

struct vulkan_memory {
    vulkan_kv device, host;
    vulkan_backend *backend;
    pthread_mutex_t lock;    /* guards the others */
    allocation *allocations; /* [n], of both memories, by ascending address */
    size_t n, cap;
    uint64_t device_bytes, host_bytes; /* of them */
};

static vulkan_memory *of(kv_memory *m) { return ((vulkan_kv *)m)->memory; }
static bool is_host(const kv_memory *m) { return ((const vulkan_kv *)m)->is_host; }

/* ---- allocations ---- */

/* Index of the first allocation that begins after an address. */
static size_t find_after(const vulkan_memory *m, uint64_t address) {
    size_t low = 0, high = m->n;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (m->allocations[middle].buffer.address <= address) low = middle + 1;
        else high = middle;
    }
    return low;
}

static allocation find(vulkan_memory *m, uint64_t address) {
    pthread_mutex_lock(&m->lock);
    const size_t i = find_after(m, address);
    BASE_ASSERT(i > 0 && address < m->allocations[i - 1].buffer.address + m->allocations[i - 1].buffer.bytes);
    const allocation found = m->allocations[i - 1];
    pthread_mutex_unlock(&m->lock);
    return found;
}

static uint64_t *bytes_of(vulkan_memory *m, bool host) { return host ? &m->host_bytes : &m->device_bytes; }

static void release(vulkan_memory *m, allocation *a) {
    if (a->is_host) vulkan_buffer_free(m->backend->device, &a->buffer);
    else vulkan_give(m->backend, &a->buffer);
    base_free(a->blocks);
}

static int allocate(vulkan_memory *m, allocation *a, size_t bytes, rp_error *err) {
    const size_t n = a->block_bytes > 0 && vulkan_device_is_apart(m->backend->device) ? bytes / a->block_bytes : 0;
    int rc = a->is_host ? vulkan_buffer_new_host(m->backend->device, bytes, "KV in host memory", &a->buffer, err)
                        : vulkan_take(m->backend, VULKAN_ON_DEVICE, bytes, "the KV cache", &a->buffer, err);
    if (!rc && n > 0 && !(a->blocks = base_calloc(n, sizeof(*a->blocks)))) {
        rc = base_fail_memory(err, n * sizeof(*a->blocks), "the KV cache");
        release(m, a);
    }
    return rc;
}

static kv_address memory_alloc(kv_memory *self, size_t bytes, size_t block_bytes) {
    vulkan_memory *m = of(self);
    allocation a = {.is_host = is_host(self), .block_bytes = block_bytes};
    rp_error err = {0};
    BASE_ASSERT(block_bytes == 0 || bytes % block_bytes == 0);
    int rc = allocate(m, &a, bytes, &err);
    if (rc) {
        base_log(BASE_LOG_WARN, "vulkan: %s", err.message);
        return (kv_address){0};
    }
    pthread_mutex_lock(&m->lock);
    rc = base_grow((void **)&m->allocations, &m->cap, m->n + 1, MAX_ALLOCATIONS, sizeof(*m->allocations));
    if (!rc) {
        const size_t i = find_after(m, a.buffer.address);
        memmove(m->allocations + i + 1, m->allocations + i, sizeof(*m->allocations) * (m->n - i));
        m->allocations[i] = a;
        m->n++;
        *bytes_of(m, a.is_host) += a.buffer.bytes;
    }
    pthread_mutex_unlock(&m->lock);
    if (rc) release(m, &a);
    return (kv_address){rc ? 0 : a.buffer.address};
}

static void memory_free(kv_memory *self, kv_address address) {
    vulkan_memory *m = of(self);
    if (kv_address_is_none(address)) return;
    vulkan_copies_settle(&m->backend->copies);
    pthread_mutex_lock(&m->lock);
    const size_t i = find_after(m, address.at) - 1;
    BASE_ASSERT(i < m->n && m->allocations[i].buffer.address == address.at);
    allocation a = m->allocations[i];
    memmove(m->allocations + i, m->allocations + i + 1, sizeof(*m->allocations) * (m->n - i - 1));
    m->n--;
    *bytes_of(m, a.is_host) -= a.buffer.bytes;
    pthread_mutex_unlock(&m->lock);
    release(m, &a);
}

/* ---- the table of operations ---- */

/* A failed copy leaves KV undefined: the device counts as lost, and its results are not used. */
static void note_failure(vulkan_memory *m, int rc, const rp_error *err) {
    if (rc) vulkan_device_give_up(m->backend->device, "a copy of KV", err);
}

/* Some bytes of an allocation, with the blocks that they are in. */
static vulkan_region region_of(const allocation *a, uint64_t address, uint64_t bytes) {
    vulkan_region r = {.buffer = &a->buffer, .at = address - a->buffer.address, .bytes = bytes};
    BASE_ASSERT(r.at + bytes <= a->buffer.bytes);
    if (!a->blocks || bytes == 0) return r;
    const uint64_t first = r.at / a->block_bytes;
    r.blocks = a->blocks + first;
    r.n_blocks = (size_t)((r.at + bytes - 1) / a->block_bytes - first + 1);
    return r;
}

/* Before the host reads or writes memory that it reaches itself: copies that use it are completed. */
static int await_copies(vulkan_memory *m, const vulkan_region *r, bool for_write, rp_error *err) {
    if (!r->buffer->mapped || r->n_blocks == 0) return RP_OK;
    return vulkan_copies_await(&m->backend->copies, r->blocks, r->n_blocks, for_write, err);
}

static void memory_read(kv_memory *self, kv_address from, size_t bytes, void *to) {
    rp_error err = {0};
    const allocation a = find(of(self), from.at);
    const vulkan_region r = region_of(&a, from.at, bytes);
    int rc = await_copies(of(self), &r, false, &err);
    if (!rc) rc = vulkan_download(&of(self)->backend->copies, &r, to, &err);
    if (rc) memset(to, 0, bytes);
    note_failure(of(self), rc, &err);
}

static void memory_write(kv_memory *self, const void *from, size_t bytes, kv_address to) {
    rp_error err = {0};
    const allocation a = find(of(self), to.at);
    const vulkan_region r = region_of(&a, to.at, bytes);
    int rc = await_copies(of(self), &r, true, &err);
    if (!rc) rc = vulkan_upload(&of(self)->backend->copies, from, &r, &err);
    note_failure(of(self), rc, &err);
}

/* The device reaches all of its memory, and the host's. */
static void memory_copy_rows(kv_memory *self, const kv_row_copy *copies, size_t n) {
    vulkan_memory *m = of(self);
    rp_error err = {0};
    if (n > 0 && vulkan_device_is_apart(m->backend->device)) {
        const int rc = vulkan_copy_rows(&m->backend->copies, copies, n, &err);
        note_failure(m, rc, &err);
        return;
    }
    for (size_t k = 0; k < n; k++) {
        const kv_row_copy *c = &copies[k];
        const vulkan_buffer a = find(m, c->from.at).buffer, b = find(m, c->to.at).buffer;
        const uint64_t from = c->from.at - a.address, to = c->to.at - b.address,
                       reach = (uint64_t)(c->n_rows - 1) * c->stride + c->row_bytes;
        BASE_ASSERT(c->n_rows > 0 && from + reach <= a.bytes && to + reach <= b.bytes);
        for (uint64_t i = 0, at = 0; i < c->n_rows; i++, at += c->stride)
            memcpy(b.mapped + to + at, a.mapped + from + at, c->row_bytes);
    }
}

static int memory_copy_blocks(kv_memory *self, const kv_address *from, const kv_address *to, const int32_t *layers,
                              size_t n, size_t bytes, rp_error *err) {
    vulkan_memory *m = of(self);
    vulkan_block_copy *copies = base_alloc(sizeof(*copies) * BASE_MAX(n, 1));
    if (!copies) return base_fail_memory(err, sizeof(*copies) * n, "copies of blocks");
    for (size_t i = 0; i < n; i++) {
        const allocation a = find(m, from[i].at), b = find(m, to[i].at);
        const vulkan_region source = region_of(&a, from[i].at, bytes), target = region_of(&b, to[i].at, bytes);
        BASE_ASSERT(a.is_host != b.is_host && source.n_blocks == 1 && target.n_blocks == 1);
        BASE_ASSERT(i == 0 || a.is_host == copies[0].is_promotion);
        copies[i] = (vulkan_block_copy){.from = a.buffer.handle,
                                        .to = b.buffer.handle,
                                        .from_at = source.at,
                                        .to_at = target.at,
                                        .bytes = bytes,
                                        .source = source.blocks,
                                        .target = target.blocks,
                                        .layer = layers[i],
                                        .is_promotion = a.is_host};
    }
    const int rc = vulkan_copies_queue(&m->backend->copies, copies, n, err);
    base_free(copies);
    return rc;
}

/* ---- steps ---- */

/* A block that was looked up last: neighbours are in the same one. */
typedef struct found_block {
    uint64_t begin, end, before; /* addresses; the copy that the step begins after */
} found_block;

static void await_address(vulkan_memory *m, uint64_t address, bool for_write, found_block *last) {
    if (address >= last->begin && address < last->end) return;
    const allocation a = find(m, address);
    const vulkan_region r = region_of(&a, address, 1);
    *last = (found_block){address, address + 1, 0};
    if (r.n_blocks == 0) return;
    last->begin = a.buffer.address + r.at / a.block_bytes * a.block_bytes;
    last->end = last->begin + a.block_bytes;
    last->before = vulkan_copies_before(&m->backend->copies, r.blocks, for_write);
}

/* Has the step to wait for copies at all? */
static bool has_copies(const vulkan_memory *m) {
    const vulkan_backend *b = m->backend;
    return b->device->overlaps && atomic_load(&b->copies.timeline.submitted) > b->all_after && !b->failure.code;
}

static uint64_t copies_before_block(vulkan_memory *m, const kv_span *span, int32_t layer, int32_t block,
                                    bool for_write) {
    const kv_layer *l = kv_span_layer(span, layer);
    found_block last = {0};
    uint64_t before = 0;
    for (int32_t h = 0; h < l->n_heads; h++) {
        await_address(m, kv_span_keys(span, layer, block, h).at, for_write, &last);
        before = BASE_MAX(before, last.before);
        await_address(m, kv_span_values(span, layer, block, h).at, for_write, &last);
        before = BASE_MAX(before, last.before);
    }
    return before;
}

void vulkan_memory_await_rows(vulkan_memory *m, int32_t layer) {
    const model_step *step = m->backend->step;
    uint64_t before = 0;
    for (int32_t r = 0; r < step->n_rows && has_copies(m); r++)
        before = BASE_MAX(before, copies_before_block(m, step->rows[r].span, layer,
                                                      step->rows[r].slot / KV_BLOCK_SLOTS, true));
    vulkan_step_after(m->backend, before);
}

void vulkan_memory_await_contexts(vulkan_memory *m, int32_t layer) {
    const model_step *step = m->backend->step;
    uint64_t before = 0;
    for (int32_t c = 0; c < step->n_contexts && has_copies(m); c++)
        for (size_t i = 0; i < step->contexts[c]->n_views; i++) {
            const kv_span *span = step->contexts[c]->views[i].span;
            for (int32_t block = 0; block * KV_BLOCK_SLOTS < kv_span_tokens(span); block++)
                if (kv_span_has(span, layer, block))
                    before = BASE_MAX(before, copies_before_block(m, span, layer, block, false));
        }
    vulkan_step_after(m->backend, before);
}

static void *host_pointer(kv_memory *self, kv_address a) {
    const allocation found = find(of(self), a.at);
    const vulkan_region r = region_of(&found, a.at, 1);
    rp_error err = {0};
    note_failure(of(self), await_copies(of(self), &r, true, &err), &err);
    return found.buffer.mapped + r.at;
}

static bool memory_has_failed(kv_memory *self) { return atomic_load(&of(self)->backend->device->is_lost); }

static const kv_memory_ops device_ops = {.alloc = memory_alloc,
                                         .free = memory_free,
                                         .read = memory_read,
                                         .write = memory_write,
                                         .copy_rows = memory_copy_rows,
                                         .copy_blocks = memory_copy_blocks,
                                         .has_failed = memory_has_failed};

static const kv_memory_ops host_ops = {.alloc = memory_alloc,
                                       .free = memory_free,
                                       .read = memory_read,
                                       .write = memory_write,
                                       .copy_rows = memory_copy_rows,
                                       .copy_blocks = memory_copy_blocks,
                                       .host_pointer = host_pointer,
                                       .has_failed = memory_has_failed};

/* ---- life ---- */

int vulkan_memory_new(vulkan_memory **out, vulkan_backend *b, rp_error *err) {
    vulkan_memory *m = base_calloc(1, sizeof(*m));
    *out = NULL;
    if (!m) return base_fail_memory(err, sizeof(*m), "device memory");
    m->device = (vulkan_kv){{&device_ops}, m, false};
    m->host = (vulkan_kv){{&host_ops}, m, true};
    m->backend = b;
    if (pthread_mutex_init(&m->lock, NULL) != 0) {
        base_free(m);
        return base_fail_memory(err, sizeof(m->lock), "a lock");
    }
    *out = m;
    return RP_OK;
}

void vulkan_memory_free(vulkan_memory *m) {
    if (!m) return;
    BASE_ASSERT(m->n == 0);
    pthread_mutex_destroy(&m->lock);
    base_free(m->allocations);
    base_free(m);
}

kv_memory *vulkan_memory_interface(vulkan_memory *m) { return &m->device.base; }

kv_memory *vulkan_memory_host(vulkan_memory *m) {
    return vulkan_device_is_apart(m->backend->device) ? &m->host.base : NULL;
}

uint64_t vulkan_memory_in_place(const vulkan_memory *m, const model_step *step) {
    uint64_t bytes = 0;
    for (int32_t c = 0; c < step->n_contexts && vulkan_device_is_apart(m->backend->device); c++)
        for (size_t i = 0; i < step->contexts[c]->n_views; i++) {
            const kv_span *span = step->contexts[c]->views[i].span;
            if (kv_span_memory(span) == &m->host.base) bytes += kv_span_bytes(span);
        }
    return bytes;
}

void vulkan_memory_usage(vulkan_memory *m, rp_device_usage *out) {
    pthread_mutex_lock(&m->lock);
    out->kv_bytes = m->device_bytes;
    out->host_bytes = m->host_bytes;
    pthread_mutex_unlock(&m->lock);
}
