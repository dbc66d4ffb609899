/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_world.h: a backend without a model, for tests of single operations. A failing setup ends the program. */
#ifndef VULKAN_VULKAN_WORLD_H
#define VULKAN_VULKAN_WORLD_H

#include <stdio.h>

#include "backend/vulkan/vulkan_backend.h"
#include "support/must.h"

typedef struct world {
    model_network net;
    backend *b;
    model_step step;
} world;

static inline void world_open_net(world *w, const model_network *net, int32_t max_rows,
                                  rp_device_arithmetic arithmetic) {
    rp_error err = {0};
    *w = (world){.net = *net};
    const backend_options o = {.n_ctx = 64, .n_threads = 1, .max_rows = max_rows, .device_arithmetic = arithmetic};
    must(backend_open(&w->b, "vulkan", &w->net, &o, &err), &err);
}

/* No layer, no matrix. */
static inline void world_open_in(world *w, int32_t n_embd, int32_t max_rows, rp_device_arithmetic arithmetic) {
    const model_network net = {.hp = {.n_embd = n_embd, .norm_eps = 1e-5f}};
    world_open_net(w, &net, max_rows, arithmetic);
}

static inline void world_open(world *w, int32_t n_embd, int32_t max_rows) {
    world_open_in(w, n_embd, max_rows, RP_DEVICE_ARITHMETIC_INT8);
}

/* A buffer with the values of x, [rows][width]; the caller's. */
static inline backend_buffer *world_buffer(world *w, int32_t rows, int32_t width, const float *x) {
    rp_error err = {0};
    backend_buffer *b;
    must(w->b->ops->buffer_new(w->b, rows, width, &b, &err), &err);
    const vulkan_region all = {.buffer = &b->memory, .bytes = sizeof(*x) * (size_t)rows * (size_t)width};
    must(vulkan_upload(&vulkan(w->b)->copies, x, &all, &err), &err);
    return b;
}

/* Computes what was recorded. */
static inline void world_read(world *w, backend_buffer *from, int32_t rows, float *out) {
    rp_error err = {0};
    w->b->ops->submit(w->b, from, rows);
    must(w->b->ops->finish(w->b, &err), &err);
    w->b->ops->buffer_read(w->b, from, rows, out);
}

/* Opens Vulkan's instance until vulkan_instance_unref, since opening a driver takes long; or prints why there is none.
 */
static inline bool world_is_available(int32_t n_embd) {
    const model_network net = {.hp = {.n_embd = n_embd}};
    const char *why = vulkan_backend_unavailable(&net, BACKEND_ANY_DEVICE);
    rp_error err = {0};
    if (why) printf("skipped: %s\n", why);
    else must(vulkan_instance_ref(&err), &err);
    return !why;
}

static inline void world_begin(world *w) {
    rp_error err = {0};
    must(w->b->ops->begin(w->b, &w->step, &err), &err);
}

#endif
