/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_step.c: what a step records: dispatches, barriers, and memory for tables that the host writes. */
#include <string.h>

#include "backend/vulkan/vulkan_backend.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
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
    const int rc = vulkan_stream_begin(&b->stream, &err);
    if (rc) vulkan_step_fail(b, rc, &err);
    b->needs_barrier = true;
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
