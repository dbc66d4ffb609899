/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_backend.c: opening the Vulkan backend, and its steps. vulkan_backend.h lists all files. */
#include "backend/vulkan/vulkan_attention.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

/* ---- memory ---- */

static void usage(backend *self, rp_memory *out) {
    const vulkan_backend *b = vulkan(self);
    const bool is_ram = b->device->description.type != VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
    const model_weight *e = &b->net->embedding;
    out->weights = is_ram ? vulkan_weights_bytes(b) : 0;
    out->weights_file = 0;
    out->file = (uint64_t)(kernel_row_bytes(e->type, e->n_in) * e->n_out); /* rows of the embedding are read in place */
    out->activations = is_ram ? b->activation_bytes : 0;
}

static kv_memory *memory(backend *self) { return vulkan_memory_interface(vulkan(self)->memory); }
static kv_memory *host_memory(backend *self) { return vulkan_memory_host(vulkan(self)->memory); }

static void device_usage(backend *self, rp_device_usage *out) {
    vulkan_backend *b = vulkan(self);
    const vulkan_copies *c = &b->copies;
    const uint64_t used = atomic_load(&b->used_bytes);
    out->limit_bytes = atomic_load(&b->limit_bytes);
    out->weight_bytes = vulkan_weights_bytes(b) - vulkan_weights_pending(b);
    out->activation_bytes = b->activation_bytes;
    vulkan_memory_usage(b->memory, out);
    const uint64_t named = out->weight_bytes + out->activation_bytes + out->kv_bytes;
    out->scratch_bytes = used > named ? used - named : 0;
    out->to_device_bytes = atomic_load(&c->to_device_bytes);
    out->to_host_bytes = atomic_load(&c->to_host_bytes);
    out->demoted_bytes = atomic_load(&c->demoted_bytes);
    out->demoted_us = atomic_load(&c->demoted_ns) / 1000;
    out->promoted_bytes = atomic_load(&c->promoted_bytes);
    out->promoted_us = atomic_load(&c->promoted_ns) / 1000;
    out->in_place_bytes = atomic_load(&b->in_place_bytes);
    out->submits = atomic_load(&b->submits);
    out->submit_us = atomic_load(&b->submit_us);
    out->step_us = atomic_load(&b->step_us);
    out->is_lost = atomic_load(&b->device->is_lost);
    out->layers = (uint64_t)b->net->hp.n_layers;
}

/* Of tables, attention and copies: what is allocated when it is needed. */
#define SCRATCH_BYTES ((uint64_t)64 << 20)

static uint64_t kv_limit(backend *self) {
    const vulkan_backend *b = vulkan(self);
    const uint64_t limit = atomic_load(&b->limit_bytes);
    const uint64_t others = atomic_load(&b->used_bytes) + vulkan_weights_pending(b) + SCRATCH_BYTES;
    if (limit == 0) return UINT64_MAX;
    return limit > others ? limit - others : 0;
}

/* ---- a step ---- */

static int begin(backend *self, const model_step *step, rp_error *err) {
    vulkan_backend *b = vulkan(self);
    int rc = vulkan_weights_prepare(self, NULL, NULL, err);
    if (rc || (rc = vulkan_copies_flush(&b->copies, err)) || (rc = vulkan_stream_begin(&b->stream, err))) return rc;
    b->step = step;
    b->failure = (rp_error){0};
    b->read = NULL;
    memset(&b->counts, 0, sizeof(b->counts));
    const uint64_t copies = atomic_load(&b->copies.timeline.submitted);
    /* after all of them, if they are complete: then no layer looks for copies of its own */
    b->part_after = copies > b->all_after && vulkan_timeline_is_past(&b->copies.timeline, copies) ? copies : 0;
    b->part_dispatches = 0;
    atomic_fetch_add(&b->in_place_bytes, vulkan_memory_in_place(b->memory, step));
    b->needs_barrier = true; /* after what copied to the device */
    vulkan_arena_reset(b);
    vulkan_retired_free(b);
    rc = vulkan_adapters_begin(b, err);
    if (!rc) rc = vulkan_attention_begin(b, err);
    return rc ? rc : vulkan_recurrence_begin(b, err);
}

static uint64_t bytes_of(const backend_buffer *src, int32_t rows) {
    return sizeof(float) * (uint64_t)rows * (uint64_t)src->width;
}

static void submit(backend *self, const backend_buffer *read, int32_t rows) {
    vulkan_backend *b = vulkan(self);
    if (read) vulkan_record_read(b, &read->memory, bytes_of(read, rows));
    b->read = read;
    vulkan_step_end(b);
}

static int finish(backend *self, rp_error *err) {
    vulkan_backend *b = vulkan(self);
    vulkan_step_wait(b);
    vulkan_observers_report(b);
    if (b->failure.code && err) *err = b->failure;
    return b->failure.code;
}

/* Of a buffer that submit did not name: a submission of its own. */
static void read_later(vulkan_backend *b, const backend_buffer *src, int32_t rows) {
    vulkan_step_continue(b);
    submit(&b->base, src, rows);
    finish(&b->base, NULL);
}

static void buffer_read(backend *self, const backend_buffer *src, int32_t rows, float *dst) {
    vulkan_backend *b = vulkan(self);
    const size_t bytes = (size_t)bytes_of(src, rows);
    BASE_ASSERT(rows >= 0 && rows <= src->rows);
    if (b->read != src || b->stream.is_recording) read_later(b, src, rows);
    else finish(self, NULL);
    if (b->failure.code) memset(dst, 0, bytes); /* finish reports it */
    else memcpy(dst, b->readback.mapped, bytes);
}

static const char *arithmetic(const backend *self) { return ((const vulkan_backend *)self)->arithmetic; }

/* ---- opening ---- */

static void free_backend(backend *self) {
    vulkan_backend *b = vulkan(self);
    vulkan_stream_free(&b->stream);   /* waits */
    vulkan_copies_settle(&b->copies); /* to what is freed below */
    vulkan_experts_free(b);
    vulkan_attention_free(b);
    vulkan_tables_free(b);
    vulkan_recurrence_free(b);
    vulkan_adapters_free(b);
    vulkan_weights_free(b);
    vulkan_memory_free(b->memory);
    vulkan_copies_close(&b->copies);
    vulkan_arena_free(b);
    vulkan_retired_free(b);
    vulkan_timeline_free(&b->timeline);
    if (b->device) vulkan_give(b, &b->readback);
    if (b->device) vulkan_give(b, &b->kv_floats);
    if (b->device) vulkan_give(b, &b->codes);
    BASE_ASSERT(atomic_load(&b->used_bytes) == 0); /* buffers of activations were freed before */
    vulkan_device_unref(b->device);
    base_free(b);
}

static const backend_ops ops = {
    .name = "vulkan",
    .study = &vulkan_study,
    .recurrence = &vulkan_recurrence,
    .free = free_backend,
    .memory = memory,
    .host_memory = host_memory,
    .device_usage = device_usage,
    .kv_limit = kv_limit,
    .arithmetic = arithmetic,
    .buffer_new = vulkan_buffer_create,
    .buffer_free = vulkan_buffer_destroy,
    .buffer_set_width = vulkan_buffer_set_width,
    .buffer_read = buffer_read,
    .buffer_write = vulkan_buffer_write,
    .prepare = vulkan_weights_prepare,
    .usage = usage,
    .begin = begin,
    .submit = submit,
    .finish = finish,
    .embed = vulkan_embed,
    .embed_layers = vulkan_embed_layers,
    .norm = vulkan_norm,
    .linear = vulkan_linear,
    .adapt = vulkan_adapt,
    .has_adapters = vulkan_adapters_are_on,
    .linear_runs = vulkan_linear_runs,
    .copy_runs = vulkan_copy_runs,
    .store = vulkan_store,
    .index_store = vulkan_index_store,
    .index_choose = vulkan_index_choose,
    .encode = vulkan_encode,
    .attend = vulkan_attend,
    .act = vulkan_act,
    .xielu = vulkan_xielu,
    .sparsify = vulkan_sparsify,
    .mix = vulkan_mix,
    .match = vulkan_match,
    .multiply = vulkan_multiply,
    .experts = vulkan_mix_experts,
    .gate_rows = vulkan_gate_rows,
    .add = vulkan_add,
    .clamp = vulkan_clamp,
    .scale = vulkan_scale,
    .soft_cap = vulkan_soft_cap,
    .temper = vulkan_temper,
    .gather = vulkan_gather,
};

static int open_device(vulkan_backend *b, const backend_options *o, rp_error *err) {
    vulkan_description all[VULKAN_MAX_DEVICES];
    const char *why;
    int rc = vulkan_instance_ref(err);
    if (rc) return rc;
    const vulkan_description *d = vulkan_choose(all, vulkan_describe_all(all), o->device, &why);
    rc = d ? vulkan_device_ref(&b->device, d, err) : base_fail(err, RP_ERR_UNSUPPORTED, "%s", why);
    vulkan_instance_unref();
    if (rc) return rc;
    atomic_store(&b->limit_bytes, o->device_bytes);
    char uuid[2 * VK_UUID_SIZE + 1] = "";
    for (size_t i = 0; i < VK_UUID_SIZE; i++) snprintf(uuid + 2 * i, 3, "%02x", d->driver_uuid[i]);
    /* by which instructions codes are multiplied is no part of it: their sums are integers */
    snprintf(b->arithmetic, sizeof(b->arithmetic), "vulkan %d %s: %04x:%04x %.200s, driver %u %s", VULKAN_ARITHMETIC,
             b->is_int8 ? "int8" : "f32", d->vendor, d->device, d->name, d->driver_version, uuid);
    base_log(BASE_LOG_INFO, "vulkan: %s, %s, products of %s", d->name, d->driver, b->is_int8 ? "int8" : "f32");
    if (b->is_int8 && d->matrices.m)
        base_log(BASE_LOG_INFO, "vulkan: many rows by cooperative matrices of %u x %u x %u", d->matrices.m,
                 d->matrices.n, d->matrices.k);
    return RP_OK;
}

static int open_parts(vulkan_backend *b, const backend_options *o, rp_error *err) {
    int rc = open_device(b, o, err);
    if (!rc) rc = vulkan_timeline_new(&b->timeline, b->device, err);
    if (!rc) rc = vulkan_stream_new(&b->stream, b->device, &b->device->queue, &b->timeline, err);
    if (!rc) rc = vulkan_copies_open(&b->copies, b, err);
    if (!rc) rc = vulkan_memory_new(&b->memory, b, err);
    if (!rc) rc = vulkan_weights_new(b, err);
    if (!rc) rc = vulkan_linear_open(b, err);
    if (!rc) rc = vulkan_attention_open(b, err);
    if (!rc) rc = vulkan_tables_open(b, err);
    if (!rc) rc = vulkan_recurrence_open(b, o->max_tentative, err);
    return rc ? rc : vulkan_experts_open(b, err);
}

int vulkan_backend_new(backend **out, const model_network *net, const backend_options *o, rp_error *err) {
    *out = NULL;
    vulkan_backend *b = base_calloc(1, sizeof(*b));
    if (!b) return base_fail_memory(err, sizeof(*b), "the Vulkan backend");
    BASE_ASSERT(!vulkan_network_unsupported(net));
    b->base.ops = &ops;
    b->net = net;
    b->shape = o->shape;
    b->n_ctx = o->n_ctx;
    b->n_threads = o->n_threads;
    b->max_rows = o->max_rows;
    b->is_int8 = o->device_arithmetic == RP_DEVICE_ARITHMETIC_INT8;
    const int rc = open_parts(b, o, err);
    if (rc) {
        free_backend(&b->base);
        return rc;
    }
    *out = &b->base;
    return RP_OK;
}
