/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_elements.c: buffers of activations, and operations on each of their elements, in loops of the backend's threads.
 *
 * The leaf of this folder: operations that are made of several, mixtures of experts among them, use it.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_backend.h"
#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"

#define ELEMENTS_PER_TASK 16384

/* ---- buffers ---- */

int cpu_buffer_new(backend *self, int32_t rows, int32_t width, backend_buffer **out, rp_error *err) {
    size_t bytes = sizeof(backend_buffer) + sizeof(float) * (size_t)rows * (size_t)width;
    backend_buffer *b = base_calloc(1, bytes);
    *out = b;
    if (!b) return base_fail_memory(err, bytes, "activations");
    ((cpu_backend *)self)->activation_bytes += bytes;
    b->rows = rows;
    b->width = b->most_width = width;
    return RP_OK;
}

void cpu_buffer_set_width(backend *self, backend_buffer *buffer, int32_t width) {
    (void)self;
    BASE_ASSERT(width > 0 && width <= buffer->most_width);
    buffer->width = width;
}

void cpu_buffer_free(backend *self, backend_buffer *buffer) {
    (void)self;
    base_free(buffer);
}

void cpu_buffer_read(backend *self, const backend_buffer *src, int32_t rows, float *dst) {
    (void)self;
    BASE_ASSERT(rows >= 0 && rows <= src->rows);
    memcpy(dst, src->data, sizeof(float) * (size_t)rows * (size_t)src->width);
}

void cpu_buffer_write(backend *self, const float *src, int32_t rows, backend_buffer *dst) {
    (void)self;
    BASE_ASSERT(rows >= 0 && rows <= dst->rows);
    memcpy(dst->data, src, sizeof(float) * (size_t)rows * (size_t)dst->width);
}

/* ---- elements ---- */

typedef struct elements_job {
    const kernel_table *kernels;
    kernel_act act;
    const model_xielu *xielu;
    float factor;
    const float *src; /* NULL: none */
    float *dst;
} elements_job;

static void elements(backend *self, base_loop_fn fn, elements_job *j, const backend_buffer *dst, int32_t rows) {
    const cpu_backend *b = (const cpu_backend *)self;
    BASE_ASSERT(rows <= dst->rows);
    j->kernels = &b->kernels;
    base_threads_for(b->threads, fn, j, (int64_t)rows * dst->width, ELEMENTS_PER_TASK);
}

static void act_part(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const elements_job *j = arg;
    j->kernels->act[j->act](j->dst + begin, j->src ? j->src + begin : NULL, j->dst + begin, end - begin);
}

void cpu_act(backend *self, kernel_act act, backend_buffer *a, const backend_buffer *up, int32_t rows) {
    BASE_ASSERT(!up || up->width == a->width);
    elements_job j = {.act = act, .src = up ? up->data : NULL, .dst = a->data};
    elements(self, act_part, &j, a, rows);
}

static void xielu_part(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const elements_job *j = arg;
    const model_xielu *x = j->xielu;
    for (int64_t i = begin; i < end; i++) {
        const float a = j->dst[i];
        const float curved = a > 0 ? x->alpha_p * a * a : x->alpha_n * (expm1f(fminf(a, x->eps)) - a);
        j->dst[i] = curved + x->beta * a;
    }
}

void cpu_xielu(backend *self, const model_xielu *xielu, backend_buffer *a, int32_t rows) {
    BASE_ASSERT(xielu->alpha_p > 0);
    elements_job j = {.xielu = xielu, .dst = a->data};
    elements(self, xielu_part, &j, a, rows);
}

static void add_part(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const elements_job *j = arg;
    j->kernels->add(j->dst + begin, j->src + begin, j->factor, j->dst + begin, end - begin);
}

void cpu_add(backend *self, backend_buffer *dst, const backend_buffer *src, float scale, int32_t rows) {
    BASE_ASSERT(src->width == dst->width);
    elements_job j = {.factor = scale, .src = src->data, .dst = dst->data};
    elements(self, add_part, &j, dst, rows);
}

static void clamp_part(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const elements_job *j = arg;
    j->kernels->clamp(j->dst + begin, j->factor, end - begin);
}

void cpu_clamp(backend *self, backend_buffer *dst, float limit, int32_t rows) {
    elements_job j = {.factor = limit, .dst = dst->data};
    elements(self, clamp_part, &j, dst, rows);
}

static void scale_part(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const elements_job *j = arg;
    j->kernels->scale(j->dst + begin, j->factor, end - begin);
}

void cpu_scale(backend *self, backend_buffer *dst, float factor, int32_t rows) {
    elements_job j = {.factor = factor, .dst = dst->data};
    elements(self, scale_part, &j, dst, rows);
}

static void soft_cap_part(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const elements_job *j = arg;
    j->kernels->soft_cap(j->dst + begin, j->factor, end - begin);
}

void cpu_soft_cap(backend *self, backend_buffer *dst, float cap, int32_t rows) {
    elements_job j = {.factor = cap, .dst = dst->data};
    elements(self, soft_cap_part, &j, dst, rows);
}
