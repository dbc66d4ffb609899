/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_streams.c: operations of models with several streams of the residual (AltUp), and of sparse activations. */
#include <math.h>

#include "backend/vulkan/vulkan_backend.h"
#include "base/check.h"
#include "base/compiler.h"

#define STREAM_GROUPS 32768u

static vulkan_streams_args args_of(const backend_buffer *dst, int32_t rows) {
    BASE_ASSERT(rows >= 0 && rows <= dst->rows);
    return (vulkan_streams_args){
        .dst = dst->memory.address, .rows = (uint32_t)rows, .width = (uint32_t)dst->width};
}

static void record(vulkan_backend *b, vulkan_stream_op op, const vulkan_streams_args *a, bool first) {
    (first ? vulkan_dispatch : vulkan_dispatch_beside)(
        b, VULKAN_STREAMS, op, a, sizeof(*a),
        (uint32_t[]){BASE_MIN(a->rows, STREAM_GROUPS), BASE_DIV_UP(a->rows, STREAM_GROUPS), 1});
}

void vulkan_mix(backend *self, backend_buffer *const *src, int32_t n, const backend_buffer *factors, int32_t rows,
                backend_buffer *const *dst, int32_t n_dst) {
    BASE_ASSERT(factors->width == n * n_dst && rows <= factors->rows && n <= MODEL_MAX_STREAMS);
    for (int32_t i = 0; i < n_dst; i++) {
        vulkan_streams_args a = args_of(dst[i], rows);
        a.factors = factors->memory.address + sizeof(float) * (uint64_t)i * (uint64_t)n;
        a.factors_width = (uint32_t)factors->width;
        a.n = (uint32_t)n;
        for (int32_t k = 0; k < n; k++) {
            BASE_ASSERT(src[k]->width == dst[i]->width && src[k] != dst[i]);
            a.src[k] = src[k]->memory.address;
        }
        record(vulkan(self), VULKAN_MIX, &a, i == 0);
    }
}

void vulkan_match(backend *self, backend_buffer *dst, const backend_buffer *like, int32_t rows) {
    vulkan_streams_args a = args_of(dst, rows);
    BASE_ASSERT(dst->width == like->width && rows <= like->rows);
    a.src[0] = like->memory.address;
    record(vulkan(self), VULKAN_MATCH, &a, true);
}

void vulkan_sparsify(backend *self, backend_buffer *x, float deviations, int32_t rows) {
    vulkan_streams_args a = args_of(x, rows);
    BASE_ASSERT(isfinite(deviations));
    a.x = deviations;
    record(vulkan(self), VULKAN_SPARSIFY, &a, true);
}
