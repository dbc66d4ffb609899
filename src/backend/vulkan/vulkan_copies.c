/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_copies.c: copies over the bus: between the host and device memory through staging buffers, and of blocks
 * between device memory and the host's.
 *
 * All copies are submitted to the queue of the steps, in whose order they take effect: a copy to the device is
 * submitted and not awaited, and the next step reads what it wrote. Two of them are under way at a time, each with a
 * staging buffer: the host fills one while the other is copied. What the host reads is awaited, once for all of its
 * blocks.
 */
#include <string.h>

#include "backend/vulkan/vulkan_backend.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"

#define STAGING_BYTES ((uint64_t)4 << 20)
#define COPY_REGIONS 64 /* of one command */
#define MOST_GROUPS 32768

int vulkan_copies_open(vulkan_copies *c, vulkan_backend *b, rp_error *err) {
    const bool is_staged = vulkan_device_is_apart(b->device);
    if (pthread_mutex_init(&c->lock, NULL) != 0) return base_fail_memory(err, sizeof(c->lock), "a lock");
    c->backend = b;
    int rc = vulkan_stream_new(&c->down, b->device, err);
    for (int i = 0; i < VULKAN_COPY_SLOTS && !rc; i++) rc = vulkan_stream_new(&c->up[i].stream, b->device, err);
    /* now, so that no copy fails for lack of memory */
    for (int i = 0; i < VULKAN_COPY_SLOTS && !rc && is_staged; i++)
        rc = vulkan_take(b, VULKAN_TO_DEVICE, STAGING_BYTES, "copies", &c->up[i].staging, err);
    if (!rc && is_staged) rc = vulkan_take(b, VULKAN_TO_HOST, STAGING_BYTES, "copies", &c->unstaging, err);
    return rc; /* vulkan_copies_close frees the others */
}

void vulkan_copies_close(vulkan_copies *c) {
    if (!c->backend) return;
    for (int i = 0; i < VULKAN_COPY_SLOTS; i++) {
        vulkan_stream_free(&c->up[i].stream); /* waits */
        vulkan_give(c->backend, &c->up[i].staging);
    }
    vulkan_stream_free(&c->down);
    vulkan_give(c->backend, &c->unstaging);
    pthread_mutex_destroy(&c->lock);
    c->backend = NULL;
}

void vulkan_copies_settle(vulkan_copies *c) {
    if (!c->backend) return;
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < VULKAN_COPY_SLOTS; i++) vulkan_stream_wait(&c->up[i].stream, NULL);
    pthread_mutex_unlock(&c->lock);
}

/* ---- commands ---- */

static int begin_copies(vulkan_stream *s, rp_error *err) {
    const int rc = vulkan_stream_begin(s, err);
    if (!rc) vulkan_stream_barrier(s); /* after steps and earlier copies */
    return rc;
}

static int end_copies(vulkan_stream *s, bool waits, rp_error *err) {
    vulkan_stream_barrier(s);
    const int rc = vulkan_stream_submit(s, err);
    return rc || !waits ? rc : vulkan_stream_wait(s, err);
}

static void record_copy(vulkan_stream *s, const vulkan_buffer *from, const vulkan_buffer *to,
                        const VkBufferCopy *regions, uint32_t n) {
    s->device->vk.vkCmdCopyBuffer(s->commands, from->handle, to->handle, n, regions);
}

/* A copy that fails for lack of memory is tried again: the memory of a device whose KV is undefined cannot be used. */
#define MOST_TRIES 4
static bool is_tried_again(int rc, int *n_tries) { return rc == RP_ERR_MEMORY && ++*n_tries < MOST_TRIES; }

/* The stream and staging buffer of the next copy to the device. */
static vulkan_copy_slot *next_slot(vulkan_copies *c) { return &c->up[c->next++ % VULKAN_COPY_SLOTS]; }

/* ---- through staging buffers ---- */

static int upload_piece(vulkan_copies *c, const void *from, uint64_t n, const vulkan_buffer *to, uint64_t at,
                        rp_error *err) {
    vulkan_copy_slot *slot = next_slot(c);
    int rc = begin_copies(&slot->stream, err); /* waits until its staging buffer is free */
    if (rc) return rc;
    memcpy(slot->staging.mapped, from, n);
    record_copy(&slot->stream, &slot->staging, to, &(VkBufferCopy){.dstOffset = at, .size = n}, 1);
    return end_copies(&slot->stream, false, err);
}

int vulkan_upload(vulkan_copies *c, const void *from, uint64_t bytes, const vulkan_buffer *to, uint64_t at,
                  rp_error *err) {
    int rc = RP_OK;
    BASE_ASSERT(at + bytes <= to->bytes);
    if (to->mapped) {
        memcpy(to->mapped + at, from, bytes);
        return RP_OK;
    }
    pthread_mutex_lock(&c->lock);
    for (uint64_t done = 0; done < bytes && !rc; done += STAGING_BYTES) {
        const uint64_t n = BASE_MIN(bytes - done, STAGING_BYTES);
        int n_tries = 0;
        do rc = upload_piece(c, (const char *)from + done, n, to, at + done, err);
        while (is_tried_again(rc, &n_tries));
    }
    pthread_mutex_unlock(&c->lock);
    if (!rc) atomic_fetch_add(&c->to_device_bytes, bytes);
    return rc;
}

static int download_piece(vulkan_copies *c, const vulkan_buffer *from, uint64_t at, uint64_t n, void *to,
                          rp_error *err) {
    int rc = begin_copies(&c->down, err);
    if (rc) return rc;
    record_copy(&c->down, from, &c->unstaging, &(VkBufferCopy){.srcOffset = at, .size = n}, 1);
    if (!(rc = end_copies(&c->down, true, err))) memcpy(to, c->unstaging.mapped, n);
    return rc;
}

int vulkan_download(vulkan_copies *c, const vulkan_buffer *from, uint64_t at, uint64_t bytes, void *to, rp_error *err) {
    int rc = RP_OK;
    BASE_ASSERT(at + bytes <= from->bytes);
    if (from->mapped) {
        memcpy(to, from->mapped + at, bytes);
        return RP_OK;
    }
    pthread_mutex_lock(&c->lock);
    for (uint64_t done = 0; done < bytes && !rc; done += STAGING_BYTES) {
        int n_tries = 0;
        do rc = download_piece(c, from, at + done, BASE_MIN(bytes - done, STAGING_BYTES), (char *)to + done, err);
        while (is_tried_again(rc, &n_tries));
    }
    pthread_mutex_unlock(&c->lock);
    if (!rc) atomic_fetch_add(&c->to_host_bytes, bytes);
    return rc;
}

/* ---- blocks and rows ---- */

/* Records copies of blocks, those between the same two buffers by one command. */
static void record_blocks(vulkan_stream *s, const vulkan_block_copy *blocks, size_t n, uint64_t bytes) {
    VkBufferCopy regions[COPY_REGIONS];
    for (size_t i = 0; i < n;) {
        const vulkan_block_copy *first = &blocks[i];
        uint32_t k = 0;
        for (; k < COPY_REGIONS && i < n && blocks[i].from.handle == first->from.handle &&
               blocks[i].to.handle == first->to.handle;
             k++, i++)
            regions[k] = (VkBufferCopy){blocks[i].from_at, blocks[i].to_at, bytes};
        record_copy(s, &first->from, &first->to, regions, k);
    }
}

int vulkan_copy_blocks(vulkan_copies *c, const vulkan_block_copy *blocks, size_t n, uint64_t bytes, bool is_promotion,
                       rp_error *err) {
    if (n == 0) return RP_OK;
    pthread_mutex_lock(&c->lock);
    const uint64_t start = base_clock_us();
    vulkan_stream *s = is_promotion ? &next_slot(c)->stream : &c->down;
    int rc = begin_copies(s, err);
    if (!rc) {
        record_blocks(s, blocks, n, bytes);
        rc = end_copies(s, !is_promotion, err);
    }
    const uint64_t us = base_clock_us() - start;
    pthread_mutex_unlock(&c->lock);
    if (rc) return rc;
    atomic_fetch_add(is_promotion ? &c->to_device_bytes : &c->to_host_bytes, n * bytes);
    if (!is_promotion) {
        atomic_fetch_add(&c->demoted_bytes, n * bytes);
        atomic_fetch_add(&c->demoted_us, us);
    }
    return RP_OK;
}

/* Copies of rows, by a shader: their rows are as short as an element. The table is in the slot's staging buffer. */
static int copy_rows(vulkan_copies *c, const kv_row_copy *copies, size_t n, rp_error *err) {
    vulkan_copy_slot *slot = next_slot(c);
    vulkan_device *d = c->backend->device;
    VkPipeline pipeline;
    int rc = vulkan_pipeline(d, VULKAN_COPY_ROWS, 0, &pipeline, err);
    if (!rc) rc = begin_copies(&slot->stream, err); /* waits until its staging buffer is free */
    if (rc) return rc;
    memcpy(slot->staging.mapped, copies, sizeof(*copies) * n);
    const vulkan_copy_rows_args a = {slot->staging.address, (uint32_t)n};
    d->vk.vkCmdBindPipeline(slot->stream.commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    d->vk.vkCmdPushConstants(slot->stream.commands, d->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(a), &a);
    d->vk.vkCmdDispatch(slot->stream.commands, (uint32_t)BASE_MIN(n, MOST_GROUPS), 1, 1);
    return end_copies(&slot->stream, false, err);
}

int vulkan_copy_rows(vulkan_copies *c, const kv_row_copy *copies, size_t n, rp_error *err) {
    const size_t at_once = STAGING_BYTES / sizeof(*copies);
    int rc = RP_OK;
    BASE_ASSERT(vulkan_device_is_apart(c->backend->device)); /* else there is no staging buffer */
    pthread_mutex_lock(&c->lock);
    for (size_t done = 0; done < n && !rc; done += at_once) {
        int n_tries = 0;
        do rc = copy_rows(c, copies + done, BASE_MIN(n - done, at_once), err);
        while (is_tried_again(rc, &n_tries));
    }
    pthread_mutex_unlock(&c->lock);
    if (!rc) atomic_fetch_add(&c->to_device_bytes, sizeof(*copies) * n);
    return rc;
}
