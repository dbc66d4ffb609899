/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_budget.c: buffers within the limit of the backend's device memory. */
#include "backend/vulkan/vulkan_backend.h"
#include "base/error.h"

int vulkan_take(vulkan_backend *b, vulkan_use use, uint64_t bytes, const char *what, vulkan_buffer *out,
                rp_error *err) {
    const uint64_t used = atomic_fetch_add(&b->used_bytes, bytes) + bytes, limit = atomic_load(&b->limit_bytes);
    int rc = limit > 0 && used > limit
                 ? base_fail(err, RP_ERR_BUDGET,
                             "the limit of device memory (%llu MiB) is too small for %s (%llu MiB more): raise it",
                             (unsigned long long)limit >> 20, what, (unsigned long long)bytes >> 20)
                 : vulkan_buffer_new(b->device, use, bytes, what, out, err);
    if (rc) {
        atomic_fetch_sub(&b->used_bytes, bytes);
        *out = (vulkan_buffer){0};
    }
    return rc;
}

void vulkan_give(vulkan_backend *b, vulkan_buffer *buffer) {
    if (!buffer->handle) return;
    atomic_fetch_sub(&b->used_bytes, buffer->bytes);
    vulkan_buffer_free(b->device, buffer);
}
