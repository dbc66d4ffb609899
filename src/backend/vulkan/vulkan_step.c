/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_step.c: what a step records: dispatches, barriers, and memory for tables that the host writes. */
#include <string.h>

#include "backend/vulkan/vulkan_backend.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

#define CHUNK_BYTES ((uint64_t)1 << 20)
#define MAX_CHUNKS 4096
#define ALIGNMENT 64
#define MAX_GROUPS 65535u /* in one dimension, on every device */
#define ELEMENT_GROUPS 8192u

void vulkan_step_fail(vulkan_backend *b, int rc, const rp_error *err) {
    BASE_ASSERT(rc != RP_OK);
    if (b->failure.code) return;
    b->failure = *err;
    b->failure.code = (rp_code)rc;
}

/* ---- memory of a step ---- */

static int add_chunk(vulkan_backend *b, uint64_t bytes, rp_error *err) {
    vulkan_arena *a = &b->arena;
    int rc = base_grow((void **)&a->chunks, &a->cap, a->n + 1, MAX_CHUNKS, sizeof(*a->chunks));
    if (rc) return base_fail_memory(err, MAX_CHUNKS * sizeof(*a->chunks), "tables of a step");
    rc = vulkan_take(b, VULKAN_TO_DEVICE, bytes, "tables of a step", &a->chunks[a->n], err);
    if (rc) return rc;
    a->n++;
    a->used = 0;
    return RP_OK;
}

vulkan_part vulkan_arena_take(vulkan_backend *b, size_t bytes) {
    vulkan_arena *a = &b->arena;
    const uint64_t need = BASE_DIV_UP((uint64_t)BASE_MAX(bytes, (size_t)1), ALIGNMENT) * ALIGNMENT;
    rp_error err = {0};
    if (b->failure.code) return (vulkan_part){NULL, 0};
    if (a->n == 0 || a->used + need > a->chunks[a->n - 1].bytes) {
        const uint64_t last = a->n > 0 ? 2 * a->chunks[a->n - 1].bytes : 0;
        const int rc = add_chunk(b, BASE_MAX(BASE_MAX(need, last), CHUNK_BYTES), &err);
        if (rc) {
            vulkan_step_fail(b, rc, &err);
            return (vulkan_part){NULL, 0};
        }
    }
    const vulkan_buffer *chunk = &a->chunks[a->n - 1];
    const vulkan_part part = {chunk->mapped + a->used, chunk->address + a->used};
    a->used += need;
    b->counts.table_bytes += need;
    return part;
}

/* The last chunk is the largest, and will be enough for most steps. */
void vulkan_arena_reset(vulkan_backend *b) {
    vulkan_arena *a = &b->arena;
    a->used = 0;
    if (a->n < 2) return;
    for (size_t i = 0; i + 1 < a->n; i++) vulkan_give(b, &a->chunks[i]);
    a->chunks[0] = a->chunks[a->n - 1];
    a->n = 1;
}

void vulkan_arena_free(vulkan_backend *b) {
    for (size_t i = 0; i < b->arena.n; i++) vulkan_give(b, &b->arena.chunks[i]);
    base_free(b->arena.chunks);
    b->arena = (vulkan_arena){0};
}

void vulkan_retire(vulkan_backend *b, vulkan_buffer *buffer) {
    if (!buffer->handle) return;
    if (base_grow((void **)&b->retired, &b->cap_retired, b->n_retired + 1, MAX_CHUNKS, sizeof(*b->retired))) {
        rp_error err = {0};
        vulkan_step_fail(b, base_fail_memory(&err, sizeof(*buffer), "a step"), &err); /* it is not submitted */
        vulkan_give(b, buffer);
    } else b->retired[b->n_retired++] = *buffer;
    *buffer = (vulkan_buffer){0};
}

void vulkan_retired_free(vulkan_backend *b) {
    for (size_t i = 0; i < b->n_retired; i++) vulkan_give(b, &b->retired[i]);
    base_free(b->retired);
    b->retired = NULL;
    b->n_retired = b->cap_retired = 0;
}

/* ---- dispatches ---- */

void vulkan_step_continue(vulkan_backend *b) {
    rp_error err = {0};
    if (b->stream.is_recording || b->failure.code) return;
    b->needs_barrier = true;
    b->part_after = 0;
    b->part_dispatches = b->counts.dispatches;
    const int rc = vulkan_stream_begin(&b->stream, &err);
    if (rc) vulkan_step_fail(b, rc, &err);
}

/* ---- parts ----
 *
 * A step is one submission, unless copies of KV are under way beside it: then each part of it begins after the copies
 * of the blocks that it reads or writes, and the device computes the first layers while those of later ones are copied.
 * A queue that copies share with steps orders them by itself. */

/* What the recorded part begins after: its KV, and all uploads of other things so far. A submission after it in the
 * queue begins after the same copies. */
static vulkan_after after_copies(vulkan_backend *b) {
    const uint64_t after = BASE_MAX(b->part_after, atomic_load(&b->copies.uploaded));
    if (!b->device->overlaps || after <= b->all_after) return (vulkan_after){0};
    return (vulkan_after){&b->copies.timeline, after};
}

static int submit_part(vulkan_backend *b, bool is_last, rp_error *err) {
    const vulkan_after after = after_copies(b);
    const uint64_t start = base_clock_us();
    const bool was_submitted = b->stream.is_submitted;
    const int rc = (is_last ? vulkan_stream_submit : vulkan_stream_split)(&b->stream, after, err);
    if (!was_submitted) b->submitted_us = start;
    if (!rc) b->all_after = BASE_MAX(b->all_after, after.number);
    b->counts.parts++;
    b->part_after = 0;
    b->part_dispatches = b->counts.dispatches;
    b->needs_barrier = true;
    atomic_fetch_add(&b->submits, 1);
    atomic_fetch_add(&b->submit_us, base_clock_us() - start);
    return rc;
}

void vulkan_step_after(vulkan_backend *b, uint64_t copy) {
    vulkan_timeline *copies = &b->copies.timeline;
    rp_error err = {0};
    BASE_ASSERT(copy <= atomic_load(&copies->submitted));
    if (!b->device->overlaps || b->failure.code || copy <= BASE_MAX(b->part_after, b->all_after)) return;
    const bool has_begun = b->stream.is_recording && b->counts.dispatches > b->part_dispatches;
    if (has_begun && b->stream.n_parts < VULKAN_MAX_PARTS && !vulkan_timeline_is_past(copies, copy)) {
        const int rc = submit_part(b, false, &err);
        if (rc) vulkan_step_fail(b, rc, &err);
    }
    /* the last part that there may be begins after all of them */
    b->part_after = b->stream.n_parts < VULKAN_MAX_PARTS ? copy : atomic_load(&copies->submitted);
}

void vulkan_dispatch_beside(vulkan_backend *b, vulkan_shader shader, uint32_t variant, const void *arguments,
                            size_t bytes, const uint32_t groups[3]) {
    const struct VolkDeviceTable *vk = &b->device->vk;
    VkPipeline pipeline;
    rp_error err = {0};
    BASE_ASSERT(bytes <= VULKAN_MAX_ARGUMENTS && bytes % 4 == 0);
    BASE_ASSERT(groups[0] <= MAX_GROUPS && groups[1] <= MAX_GROUPS && groups[2] <= MAX_GROUPS);
    if (groups[0] == 0 || groups[1] == 0 || groups[2] == 0) return;
    vulkan_step_continue(b);
    if (b->failure.code) return;
    const int rc = vulkan_pipeline(b->device, shader, variant, &pipeline, &err);
    if (rc) {
        vulkan_step_fail(b, rc, &err);
        return;
    }
    vk->vkCmdBindPipeline(b->stream.commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
    vk->vkCmdPushConstants(b->stream.commands, b->device->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, (uint32_t)bytes,
                           arguments);
    vk->vkCmdDispatch(b->stream.commands, groups[0], groups[1], groups[2]);
    b->counts.dispatches++;
    b->needs_barrier = true;
}

void vulkan_dispatch(vulkan_backend *b, vulkan_shader shader, uint32_t variant, const void *arguments, size_t bytes,
                     const uint32_t groups[3]) {
    vulkan_step_continue(b);
    if (b->failure.code) return;
    if (b->needs_barrier) vulkan_stream_barrier(&b->stream);
    b->needs_barrier = false;
    vulkan_dispatch_beside(b, shader, variant, arguments, bytes, groups);
}

void vulkan_element_op_record(vulkan_backend *b, uint32_t op, const vulkan_elements_args *a) {
    const uint64_t n = BASE_DIV_UP((uint64_t)a->rows * a->width, 128);
    vulkan_dispatch(b, VULKAN_ELEMENTS, op, a, sizeof(*a),
                    (uint32_t[]){(uint32_t)BASE_MIN(n, ELEMENT_GROUPS), 1, 1});
}

/* ---- ends, results ---- */

void vulkan_step_end(vulkan_backend *b) {
    rp_error err = {0};
    if (!b->stream.is_recording) return;
    if (b->failure.code) { /* what is recorded does not run */
        b->device->vk.vkEndCommandBuffer(b->stream.commands);
        b->stream.is_recording = false;
        return;
    }
    const int rc = submit_part(b, true, &err);
    if (rc) vulkan_step_fail(b, rc, &err);
}

void vulkan_step_wait(vulkan_backend *b) {
    rp_error why = {0};
    const bool was_submitted = b->stream.is_submitted;
    const int rc = vulkan_stream_wait(&b->stream, &why);
    if (rc) vulkan_step_fail(b, rc, &why);
    if (was_submitted) atomic_fetch_add(&b->step_us, base_clock_us() - b->submitted_us);
}

void vulkan_record_copy(vulkan_backend *b, const vulkan_buffer *from, const vulkan_buffer *to, uint64_t to_at,
                        uint64_t bytes) {
    vulkan_step_continue(b);
    if (b->failure.code) return;
    vulkan_stream_barrier(&b->stream);
    b->device->vk.vkCmdCopyBuffer(b->stream.commands, from->handle, to->handle, 1,
                                  &(VkBufferCopy){.dstOffset = to_at, .size = bytes});
    vulkan_stream_barrier(&b->stream);
    b->needs_barrier = false;
}

void vulkan_record_read(vulkan_backend *b, const vulkan_buffer *src, uint64_t bytes) {
    rp_error err = {0};
    if (b->failure.code || bytes == 0) return;
    if (b->readback.bytes < bytes) {
        vulkan_buffer larger;
        const int rc = vulkan_take(b, VULKAN_TO_HOST, bytes, "results", &larger, &err);
        if (rc) {
            vulkan_step_fail(b, rc, &err);
            return;
        }
        vulkan_give(b, &b->readback);
        b->readback = larger;
    }
    vulkan_record_copy(b, src, &b->readback, 0, bytes);
}

const void *vulkan_read_now(vulkan_backend *b, const vulkan_buffer *from, uint64_t bytes) {
    BASE_ASSERT(b->failure.code || (bytes > 0 && bytes <= from->bytes));
    vulkan_record_read(b, from, bytes);
    b->read = NULL;
    vulkan_step_end(b);
    vulkan_step_wait(b);
    if (b->failure.code) return NULL;
    atomic_fetch_add(&b->copies.to_host_bytes, bytes);
    return b->readback.mapped;
}

void vulkan_work_begin(vulkan_backend *b) {
    rp_error err = {0};
    if (!b->stream.is_recording) b->failure = (rp_error){0}; /* of an earlier step */
    const int rc = vulkan_copies_flush(&b->copies, &err);
    if (rc) vulkan_step_fail(b, rc, &err);
    vulkan_step_continue(b);
    vulkan_step_after(b, atomic_load(&b->copies.timeline.submitted)); /* of blocks that it reads, or takes */
}

bool vulkan_grow_scratch(vulkan_backend *b, vulkan_buffer *buffer, uint64_t floats) {
    rp_error err = {0};
    if (b->failure.code) return false;
    if (buffer->bytes >= sizeof(float) * floats) return true;
    vulkan_buffer larger;
    const int rc = vulkan_take(b, VULKAN_ON_DEVICE, sizeof(float) * floats, "attention", &larger, &err);
    if (rc) {
        vulkan_step_fail(b, rc, &err);
        return false;
    }
    vulkan_retire(b, buffer); /* recorded commands refer to it */
    *buffer = larger;
    return true;
}
