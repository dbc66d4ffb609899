/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_copies.c: copies over the bus: between the host and device memory through staging buffers, and of blocks
 * between device memory and the host's.
 *
 *   copy queue   | evictions | layer 0 of all spans | layer 1 | layers 2, 3 | ...        number n, n + 1, n + 2, ...
 *                                      v                 v           v
 *   step         | ... ------- | layer 0 -------- | layer 1 -- | layers 2, 3, ... |      parts (vulkan_step.c)
 *
 * All copies are submitted to one queue, in which a barrier puts each after those before it. Each submission has the
 * next number of a timeline semaphore, and each block of KV the numbers of the last copies that write and read it: a
 * step waits for those of the blocks that it uses, and the host for those of the memory that it reads or writes. Where
 * the queue is that of the steps, their order does the same.
 *
 * Copies of blocks are queued first, and submitted together by the next step: evictions, whose blocks others may take
 * the place of, then layer by layer, whatever span they are of. A copy that would not keep its order with what is
 * queued submits that first.
 *
 * Uploads have two staging buffers: the host fills one while the other is copied. What the host reads is awaited.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/vulkan/vulkan_backend.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

#define STAGING_BYTES ((uint64_t)4 << 20)
#define COPY_REGIONS 64 /* of one command */
#define MOST_GROUPS 32768
#define MAX_QUEUED ((size_t)1 << 24)
#define MOST_BATCHES 8 /* of one flush, besides evictions: half of the slots */

uint64_t vulkan_batch_bytes = (uint64_t)1 << 20; /* takes longer than a submission */

/* Without times the speed of the bus stays unknown. */
static void open_times(vulkan_copies *c) {
    vulkan_device *d = c->backend->device;
    const VkQueryPoolCreateInfo info = {.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO,
                                        .queryType = VK_QUERY_TYPE_TIMESTAMP,
                                        .queryCount = 2 * VULKAN_BATCH_SLOTS};
    if (d->description.queues.timestamp_bits == 0) return;
    if (d->vk.vkCreateQueryPool(d->handle, &info, NULL, &c->times) != VK_SUCCESS) c->times = VK_NULL_HANDLE;
}

int vulkan_copies_open(vulkan_copies *c, vulkan_backend *b, rp_error *err) {
    vulkan_device *d = b->device;
    const bool is_staged = vulkan_device_is_apart(d);
    if (pthread_mutex_init(&c->lock, NULL) != 0) return base_fail_memory(err, sizeof(c->lock), "a lock");
    c->backend = b;
    int rc = vulkan_timeline_new(&c->timeline, d, err);
    if (!rc) rc = vulkan_stream_new(&c->down, d, &d->copy_queue, &c->timeline, err);
    if (!rc && is_staged) rc = vulkan_stream_new(&c->rows, d, &d->queue, &b->timeline, err);
    for (int i = 0; i < VULKAN_STAGING_SLOTS && !rc; i++)
        rc = vulkan_stream_new(&c->up[i].stream, d, &d->copy_queue, &c->timeline, err);
    for (int i = 0; i < VULKAN_BATCH_SLOTS && !rc && is_staged; i++)
        rc = vulkan_stream_new(&c->batches[i].stream, d, &d->copy_queue, &c->timeline, err);
    /* now, so that no copy fails for lack of memory */
    for (int i = 0; i < VULKAN_STAGING_SLOTS && !rc && is_staged; i++)
        rc = vulkan_take(b, VULKAN_TO_DEVICE, STAGING_BYTES, "copies", &c->up[i].staging, err);
    if (!rc && is_staged) rc = vulkan_take(b, VULKAN_TO_HOST, STAGING_BYTES, "copies", &c->unstaging, err);
    if (!rc && is_staged) open_times(c);
    return rc; /* vulkan_copies_close frees the others */
}

void vulkan_copies_close(vulkan_copies *c) {
    if (!c->backend) return;
    vulkan_device *d = c->backend->device;
    BASE_ASSERT(c->n_queued == 0); /* the memory of blocks is freed before */
    for (int i = 0; i < VULKAN_STAGING_SLOTS; i++) {
        vulkan_stream_free(&c->up[i].stream); /* waits */
        vulkan_give(c->backend, &c->up[i].staging);
    }
    for (int i = 0; i < VULKAN_BATCH_SLOTS; i++) vulkan_stream_free(&c->batches[i].stream);
    vulkan_stream_free(&c->down);
    vulkan_stream_free(&c->rows);
    vulkan_give(c->backend, &c->unstaging);
    if (c->times && !atomic_load(&d->is_hung)) d->vk.vkDestroyQueryPool(d->handle, c->times, NULL);
    vulkan_timeline_free(&c->timeline);
    base_free(c->queued);
    pthread_mutex_destroy(&c->lock);
    c->backend = NULL;
}

/* ---- commands ---- */

static int begin_copies(vulkan_stream *s, rp_error *err) {
    const int rc = vulkan_stream_begin(s, err);
    if (!rc) vulkan_stream_barrier(s); /* after earlier copies; in a queue that is shared, after steps */
    return rc;
}

/* Copies see what steps wrote that the host has awaited: none uses memory of a step that is being computed. */
static int end_copies(vulkan_copies *c, vulkan_stream *s, rp_error *err) {
    vulkan_timeline *steps = &c->backend->timeline;
    const uint64_t completed = c->backend->device->overlaps ? atomic_load(&steps->completed) : 0;
    vulkan_stream_barrier(s);
    return vulkan_stream_submit(s, (vulkan_after){steps, completed}, err);
}

static void record_copy(vulkan_stream *s, VkBuffer from, VkBuffer to, const VkBufferCopy *regions, uint32_t n) {
    s->device->vk.vkCmdCopyBuffer(s->commands, from, to, n, regions);
}

/* A copy that fails for lack of memory is tried again: the memory of a device whose KV is undefined cannot be used. */
#define MOST_TRIES 4
static bool is_tried_again(int rc, int *n_tries) { return rc == RP_ERR_MEMORY && ++*n_tries < MOST_TRIES; }

/* ---- blocks ---- */

/* Records copies of blocks, those between the same two buffers by one command. */
static void record_blocks(vulkan_stream *s, const vulkan_block_copy *blocks, size_t n) {
    VkBufferCopy regions[COPY_REGIONS];
    for (size_t i = 0; i < n;) {
        const vulkan_block_copy *first = &blocks[i];
        uint32_t k = 0;
        for (; k < COPY_REGIONS && i < n && blocks[i].from == first->from && blocks[i].to == first->to; k++, i++)
            regions[k] = (VkBufferCopy){blocks[i].from_at, blocks[i].to_at, blocks[i].bytes};
        record_copy(s, first->from, first->to, regions, k);
    }
}

/* The times of a batch that is complete. */
static void read_times(vulkan_copies *c, vulkan_batch_slot *slot) {
    vulkan_device *d = c->backend->device;
    const uint32_t bits = d->description.queues.timestamp_bits, first = 2 * (uint32_t)(slot - c->batches);
    uint64_t times[2];
    if (slot->bytes == 0) return;
    const VkResult result = d->vk.vkGetQueryPoolResults(d->handle, c->times, first, 2, sizeof(times), times,
                                                        sizeof(times[0]), VK_QUERY_RESULT_64_BIT);
    if (result == VK_SUCCESS) {
        const uint64_t ticks = (times[1] - times[0]) & (bits < 64 ? (UINT64_C(1) << bits) - 1 : UINT64_MAX);
        const uint64_t ns = BASE_MAX((uint64_t)((double)ticks * d->tick_us * 1000), 1);
        atomic_fetch_add(slot->is_promotion ? &c->promoted_bytes : &c->demoted_bytes, slot->bytes);
        atomic_fetch_add(slot->is_promotion ? &c->promoted_ns : &c->demoted_ns, ns);
    }
    slot->bytes = 0;
}

static void record_time(vulkan_copies *c, const vulkan_batch_slot *slot, uint32_t which) {
    vulkan_device *d = c->backend->device;
    if (!c->times) return;
    d->vk.vkCmdWriteTimestamp(slot->stream.commands,
                              which == 0 ? VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT : VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT,
                              c->times, 2 * (uint32_t)(slot - c->batches) + which);
}

static int submit_batch(vulkan_copies *c, const vulkan_block_copy *blocks, size_t n, rp_error *err) {
    vulkan_device *d = c->backend->device;
    vulkan_batch_slot *slot = &c->batches[c->next_batch % VULKAN_BATCH_SLOTS];
    int rc = vulkan_stream_wait(&slot->stream, err);
    if (rc) return rc;
    read_times(c, slot);
    if ((rc = begin_copies(&slot->stream, err))) return rc;
    if (c->times) d->vk.vkResetQueryPool(d->handle, c->times, 2 * (uint32_t)(slot - c->batches), 2);
    record_time(c, slot, 0);
    record_blocks(&slot->stream, blocks, n);
    record_time(c, slot, 1);
    if ((rc = end_copies(c, &slot->stream, err))) return rc;
    c->next_batch++;
    slot->is_promotion = blocks[0].is_promotion;
    for (size_t i = 0; i < n; i++) {
        slot->bytes += c->times ? blocks[i].bytes : 0;
        blocks[i].source->read = blocks[i].target->written = slot->stream.number;
    }
    return RP_OK;
}

/* Evictions, then layer by layer; blocks of a layer in the order of their addresses. */
static int compare_copies(const void *a, const void *b) {
    const vulkan_block_copy *x = a, *y = b;
    if (x->is_promotion != y->is_promotion) return x->is_promotion ? 1 : -1;
    if (x->is_promotion && x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    return x->from_at < y->from_at ? -1 : x->from_at > y->from_at;
}

/* How many copies of a sorted list are one batch: whole layers, of `least` bytes if there are as many. */
static size_t count_batch(const vulkan_block_copy *blocks, size_t n, uint64_t least) {
    uint64_t bytes = 0;
    size_t i = 0;
    for (; i < n && blocks[i].is_promotion == blocks[0].is_promotion; i++) {
        if (bytes >= least && blocks[i].is_promotion && blocks[i].layer != blocks[i - 1].layer) break;
        bytes += blocks[i].bytes;
    }
    return i;
}

static int flush(vulkan_copies *c, rp_error *err) {
    const bool overlaps = c->backend->device->overlaps;
    uint64_t bytes = 0;
    size_t done = 0;
    int rc = RP_OK;
    if (c->n_queued == 0) return RP_OK;
    qsort(c->queued, c->n_queued, sizeof(*c->queued), compare_copies);
    for (size_t i = 0; i < c->n_queued; i++) bytes += c->queued[i].is_promotion ? c->queued[i].bytes : 0;
    const uint64_t least = overlaps ? BASE_MAX(vulkan_batch_bytes, bytes / MOST_BATCHES) : UINT64_MAX;
    for (size_t n; done < c->n_queued && !rc; done += rc ? 0 : n) {
        int n_tries = 0;
        n = count_batch(c->queued + done, c->n_queued - done, least);
        do rc = submit_batch(c, c->queued + done, n, err);
        while (is_tried_again(rc, &n_tries));
    }
    c->n_queued -= done;
    memmove(c->queued, c->queued + done, sizeof(*c->queued) * c->n_queued);
    return rc;
}

int vulkan_copies_flush(vulkan_copies *c, rp_error *err) {
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < VULKAN_BATCH_SLOTS; i++)
        if (c->batches[i].bytes > 0 && vulkan_timeline_is_past(&c->timeline, c->batches[i].stream.number))
            read_times(c, &c->batches[i]);
    const int rc = flush(c, err);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

/* Would the copy be before one that is queued and that it must follow? A promotion is after all evictions. */
static bool overtakes(const vulkan_block_copy *b) {
    return b->source->written == VULKAN_QUEUED || b->target->written == VULKAN_QUEUED ||
           (b->target->read == VULKAN_QUEUED && !b->is_promotion);
}

int vulkan_copies_queue(vulkan_copies *c, const vulkan_block_copy *blocks, size_t n, rp_error *err) {
    bool is_first = false;
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < n && !is_first; i++) is_first = overtakes(&blocks[i]);
    int rc = is_first ? flush(c, err) : RP_OK;
    if (!rc && base_grow((void **)&c->queued, &c->cap_queued, c->n_queued + n, MAX_QUEUED, sizeof(*c->queued)))
        rc = base_fail_memory(err, (c->n_queued + n) * sizeof(*c->queued), "copies of blocks");
    for (size_t i = 0; i < n && !rc; i++) {
        blocks[i].source->read = blocks[i].target->written = VULKAN_QUEUED;
        c->queued[c->n_queued++] = blocks[i];
        atomic_fetch_add(blocks[i].is_promotion ? &c->to_device_bytes : &c->to_host_bytes, blocks[i].bytes);
    }
    pthread_mutex_unlock(&c->lock);
    return rc;
}

/* ---- waiting ---- */

static uint64_t copies_before(const vulkan_block *b, bool for_write) {
    return for_write ? BASE_MAX(b->written, b->read) : b->written;
}

uint64_t vulkan_copies_before(vulkan_copies *c, const vulkan_block *block, bool for_write) {
    pthread_mutex_lock(&c->lock);
    const uint64_t number = copies_before(block, for_write);
    pthread_mutex_unlock(&c->lock);
    BASE_ASSERT(number != VULKAN_QUEUED); /* a step submits them first */
    return number;
}

/* The last copy that writes blocks, or also reads them; none is queued afterwards. */
static int last_before(vulkan_copies *c, const vulkan_block *blocks, size_t n, bool for_write, uint64_t *last,
                       rp_error *err) {
    int rc = RP_OK;
    *last = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        if (copies_before(&blocks[i], for_write) == VULKAN_QUEUED) rc = flush(c, err);
        if (!rc) *last = BASE_MAX(*last, copies_before(&blocks[i], for_write));
    }
    return rc;
}

int vulkan_copies_await(vulkan_copies *c, const vulkan_block *blocks, size_t n, bool for_write, rp_error *err) {
    uint64_t last;
    pthread_mutex_lock(&c->lock);
    const int rc = last_before(c, blocks, n, for_write, &last, err);
    pthread_mutex_unlock(&c->lock);
    return rc ? rc : vulkan_timeline_wait(&c->timeline, last, err);
}

void vulkan_copies_settle(vulkan_copies *c) {
    rp_error err = {0};
    if (!c->backend) return;
    pthread_mutex_lock(&c->lock);
    const int rc = flush(c, &err);
    if (rc) vulkan_device_give_up(c->backend->device, "a copy of KV", &err);
    for (size_t i = 0; i < c->n_queued; i++) c->queued[i].source->read = c->queued[i].target->written = 0;
    c->n_queued = 0;
    for (int i = 0; i < VULKAN_BATCH_SLOTS; i++)
        if (!vulkan_stream_wait(&c->batches[i].stream, NULL)) read_times(c, &c->batches[i]);
    vulkan_timeline_wait(&c->timeline, atomic_load(&c->timeline.submitted), NULL);
    pthread_mutex_unlock(&c->lock);
}

/* ---- through staging buffers ---- */

static int upload_piece(vulkan_copies *c, const void *from, uint64_t n, const vulkan_region *to, uint64_t done,
                        rp_error *err) {
    vulkan_staging_slot *slot = &c->up[c->next++ % VULKAN_STAGING_SLOTS];
    uint64_t last;
    int rc = last_before(c, to->blocks, to->n_blocks, true, &last, err); /* this one is after it */
    if (!rc) rc = begin_copies(&slot->stream, err);                      /* waits until its staging buffer is free */
    if (rc) return rc;
    memcpy(slot->staging.mapped, (const char *)from + done, n);
    record_copy(&slot->stream, slot->staging.handle, to->buffer->handle,
                &(VkBufferCopy){.dstOffset = to->at + done, .size = n}, 1);
    if ((rc = end_copies(c, &slot->stream, err))) return rc;
    for (size_t i = 0; i < to->n_blocks; i++) to->blocks[i].written = slot->stream.number;
    if (to->n_blocks == 0) atomic_store(&c->uploaded, slot->stream.number);
    return RP_OK;
}

int vulkan_upload(vulkan_copies *c, const void *from, const vulkan_region *to, rp_error *err) {
    int rc = RP_OK;
    BASE_ASSERT(to->at + to->bytes <= to->buffer->bytes);
    if (to->buffer->mapped) {
        memcpy(to->buffer->mapped + to->at, from, to->bytes);
        return RP_OK;
    }
    pthread_mutex_lock(&c->lock);
    for (uint64_t done = 0; done < to->bytes && !rc; done += STAGING_BYTES) {
        const uint64_t n = BASE_MIN(to->bytes - done, STAGING_BYTES);
        int n_tries = 0;
        do rc = upload_piece(c, from, n, to, done, err);
        while (is_tried_again(rc, &n_tries));
    }
    pthread_mutex_unlock(&c->lock);
    if (!rc) atomic_fetch_add(&c->to_device_bytes, to->bytes);
    return rc;
}

/* Submits the copies of `down`, and waits. */
static int complete(vulkan_copies *c, rp_error *err) {
    const int rc = end_copies(c, &c->down, err);
    return rc ? rc : vulkan_stream_wait(&c->down, err);
}

static int download_piece(vulkan_copies *c, const vulkan_region *from, uint64_t done, uint64_t n, void *to,
                          rp_error *err) {
    uint64_t last;
    int rc = last_before(c, from->blocks, from->n_blocks, false, &last, err);
    if (!rc) rc = begin_copies(&c->down, err);
    if (rc) return rc;
    record_copy(&c->down, from->buffer->handle, c->unstaging.handle,
                &(VkBufferCopy){.srcOffset = from->at + done, .size = n}, 1);
    if (!(rc = complete(c, err))) memcpy((char *)to + done, c->unstaging.mapped, n);
    return rc;
}

int vulkan_download(vulkan_copies *c, const vulkan_region *from, void *to, rp_error *err) {
    int rc = RP_OK;
    BASE_ASSERT(from->at + from->bytes <= from->buffer->bytes);
    if (from->buffer->mapped) {
        memcpy(to, from->buffer->mapped + from->at, from->bytes);
        return RP_OK;
    }
    pthread_mutex_lock(&c->lock);
    for (uint64_t done = 0; done < from->bytes && !rc; done += STAGING_BYTES) {
        int n_tries = 0;
        do rc = download_piece(c, from, done, BASE_MIN(from->bytes - done, STAGING_BYTES), to, err);
        while (is_tried_again(rc, &n_tries));
    }
    pthread_mutex_unlock(&c->lock);
    if (!rc) atomic_fetch_add(&c->to_host_bytes, from->bytes);
    return rc;
}

/* ---- rows ---- */

/* Copies of rows, by a shader, since rows are as short as an element: in the queue of steps, after all copies. Their
 * table is in a staging buffer. */
static int copy_rows(vulkan_copies *c, const kv_row_copy *copies, size_t n, rp_error *err) {
    vulkan_staging_slot *slot = &c->up[c->next++ % VULKAN_STAGING_SLOTS];
    vulkan_device *d = c->backend->device;
    vulkan_after after = {0};
    VkPipeline pipeline;
    int rc = vulkan_pipeline(d, VULKAN_COPY_ROWS, 0, &pipeline, err);
    if (!rc) rc = flush(c, err);
    if (!rc) rc = vulkan_stream_wait(&slot->stream, err); /* until its staging buffer is free */
    if (!rc) rc = begin_copies(&c->rows, err);
    if (rc) return rc;
    memcpy(slot->staging.mapped, copies, sizeof(*copies) * n);
    const vulkan_copy_rows_args a = {slot->staging.address, (uint32_t)n};
    d->vk.vkCmdBindPipeline(c->rows.commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    d->vk.vkCmdPushConstants(c->rows.commands, d->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(a), &a);
    d->vk.vkCmdDispatch(c->rows.commands, (uint32_t)BASE_MIN(n, MOST_GROUPS), 1, 1);
    vulkan_stream_barrier(&c->rows);
    if (d->overlaps) after = (vulkan_after){&c->timeline, atomic_load(&c->timeline.submitted)};
    rc = vulkan_stream_submit(&c->rows, after, err);
    return rc ? rc : vulkan_stream_wait(&c->rows, err);
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
