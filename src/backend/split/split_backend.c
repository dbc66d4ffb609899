/* SPDX-License-Identifier: Apache-2.0 */
/* split_backend.c: opening a backend of two sides, its steps and its memory. split_backend.h lists all files. */
#include "backend/split/split_backend.h"

#include <stdio.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

static backend *host(backend *self) { return split(self)->sides[SPLIT_HOST]; }
static backend *device(backend *self) { return split(self)->sides[SPLIT_DEVICE]; }

/* ---- memory ---- */

static kv_memory *memory(backend *self) { return device(self)->ops->memory(device(self)); }
static int32_t host_layers(const backend *self) { return ((const split_backend *)self)->n_host_kv; }
static uint64_t kv_limit(backend *self) { return device(self)->ops->kv_limit(device(self)); }
static const char *arithmetic(const backend *self) { return ((const split_backend *)self)->arithmetic; }

static void usage(backend *self, rp_memory *out) {
    rp_memory other = {0};
    host(self)->ops->usage(host(self), out);
    device(self)->ops->usage(device(self), &other); /* what of it is RAM; rows of the embedding are counted */
    out->weights += other.weights;
    out->activations += other.activations;
}

static void device_usage(backend *self, rp_device_usage *out) {
    const split_backend *b = split(self);
    device(self)->ops->device_usage(device(self), out);
    out->layers = (uint64_t)(b->net->hp.n_layers - b->first);
    out->carried_bytes = atomic_load(&split(self)->carried_bytes);
}

static int prepare(backend *self, rp_on_progress on_progress, void *user, rp_error *err) {
    const int rc = host(self)->ops->prepare(host(self), on_progress, user, err);
    return rc ? rc : device(self)->ops->prepare(device(self), on_progress, user, err);
}

/* ---- a step ---- */

static int begin(backend *self, const model_step *step, rp_error *err) {
    split_backend *b = split(self);
    b->side = SPLIT_HOST;
    split_states_begin(b, step);
    const int rc = host(self)->ops->begin(host(self), &b->steps[SPLIT_HOST], err);
    return rc ? rc : device(self)->ops->begin(device(self), &b->steps[SPLIT_DEVICE], err);
}

/* The CPU's operations are complete: its rows are copied, and the device reads them when it computes. */
static void enter(backend *self, int32_t layer, backend_buffer *const *carried, int32_t n, int32_t rows) {
    split_backend *b = split(self);
    if (b->side == SPLIT_DEVICE || layer < b->first) return;
    b->side = SPLIT_DEVICE;
    for (int32_t i = 0; i < n; i++) {
        backend_buffer *const *halves = carried[i]->halves;
        const size_t floats = (size_t)rows * (size_t)carried[i]->width;
        BASE_ASSERT(floats <= b->n_rows);
        host(self)->ops->buffer_read(host(self), halves[SPLIT_HOST], rows, b->rows);
        device(self)->ops->buffer_write(device(self), b->rows, rows, halves[SPLIT_DEVICE]);
        atomic_fetch_add(&b->carried_bytes, sizeof(float) * floats);
    }
}

static void submit(backend *self, const backend_buffer *read, int32_t rows) {
    BASE_ASSERT(split(self)->side == SPLIT_DEVICE); /* the last layer is the device's */
    device(self)->ops->submit(device(self), read ? read->halves[SPLIT_DEVICE] : NULL, rows);
}

static int finish(backend *self, rp_error *err) { return device(self)->ops->finish(device(self), err); }

/* ---- opening ---- */

static void free_backend(backend *self) {
    split_backend *b = split(self);
    for (int i = 0; i < SPLIT_SIDES; i++) {
        if (b->sides[i]) b->sides[i]->ops->free(b->sides[i]);
        split_part_close(&b->parts[i]);
        base_free(b->states[i]);
    }
    base_free(b->rows);
    base_free(b);
}

static const backend_ops ops = {
    .name = "split",
    .recurrence = &split_recurrence,
    .free = free_backend,
    .memory = memory,
    .host_layers = host_layers,
    .device_usage = device_usage,
    .kv_limit = kv_limit,
    .arithmetic = arithmetic,
    .buffer_new = split_buffer_new,
    .buffer_free = split_buffer_free,
    .buffer_set_width = split_buffer_set_width,
    .buffer_read = split_buffer_read,
    .buffer_write = split_buffer_write,
    .prepare = prepare,
    .usage = usage,
    .begin = begin,
    .enter = enter,
    .submit = submit,
    .finish = finish,
    .embed = split_embed,
    .embed_layers = split_embed_layers,
    .norm = split_norm,
    .linear = split_linear,
    .adapt = split_adapt,
    .has_adapters = split_has_adapters,
    .linear_runs = split_linear_runs,
    .copy_runs = split_copy_runs,
    .store = split_store,
    .index_store = split_index_store,
    .index_choose = split_index_choose,
    .attend = split_attend,
    .act = split_act,
    .sparsify = split_sparsify,
    .mix = split_mix,
    .match = split_match,
    .multiply = split_multiply,
    .xielu = split_xielu,
    .experts = split_experts,
    .gate_rows = split_gate_rows,
    .add = split_add,
    .clamp = split_clamp,
    .scale = split_scale,
    .soft_cap = split_soft_cap,
    .temper = split_temper,
    .gather = split_gather,
};

/* Results depend on both sides' arithmetic, and on where the network is divided. */
static void name_arithmetic(split_backend *b, base_cpu_level level) {
    snprintf(b->arithmetic, sizeof(b->arithmetic), "split %d of %d, cpu %d, %.620s", b->first, b->net->hp.n_layers,
             (int)kernel_arithmetic_of(level), device(&b->base)->ops->arithmetic(device(&b->base)));
}

static int open_sides(split_backend *b, const backend_row *row, const backend_options *o, rp_error *err) {
    backend_options own = *o;
    int rc = RP_OK;
    own.host_layers = 0;
    for (int i = 0; i < SPLIT_SIDES && !rc; i++)
        rc = split_part_open(&b->parts[i], b->net, &o->shape, b->first, (split_side)i, err);
    own.shape = b->parts[SPLIT_HOST].shape;
    if (!rc) rc = cpu_backend_new(&b->sides[SPLIT_HOST], &b->parts[SPLIT_HOST].net, &own, err);
    own.shape = b->parts[SPLIT_DEVICE].shape;
    own.weights = NULL;
    if (!rc) rc = row->open(&b->sides[SPLIT_DEVICE], &b->parts[SPLIT_DEVICE].net, &own, err);
    return rc;
}

static int open_arrays(split_backend *b, rp_error *err) {
    const model_hparams *hp = &b->net->hp;
    const size_t rows = (size_t)b->max_rows;
    b->n_rows = rows * (size_t)BASE_MAX(hp->n_embd, hp->n_layers * hp->n_layer_embd);
    b->rows = base_alloc(sizeof(*b->rows) * b->n_rows);
    if (!b->rows) return base_fail_memory(err, sizeof(*b->rows) * b->n_rows, "activations");
    for (int i = 0; i < SPLIT_SIDES; i++)
        if (!(b->states[i] = base_calloc(rows, sizeof(**b->states))))
            return base_fail_memory(err, rows * sizeof(**b->states), "states");
    return RP_OK;
}

int split_backend_new(backend **out, const backend_row *row, const model_network *net, const backend_options *o,
                      rp_error *err) {
    *out = NULL;
    const char *why = cpu_backend_unavailable(net, BACKEND_ANY_DEVICE);
    if (why) return base_fail(err, RP_ERR_UNSUPPORTED, "device_layers: %s", why);
    int rc = split_check(net, o->host_layers, err);
    if (rc) return rc;
    split_backend *b = base_calloc(1, sizeof(*b));
    if (!b) return base_fail_memory(err, sizeof(*b), "the layers of a device");
    b->base.ops = &ops;
    b->net = net;
    b->first = o->host_layers;
    b->n_host_kv = split_kv_layers(net, b->first);
    b->max_rows = o->max_rows;
    if ((rc = open_sides(b, row, o, err)) || (rc = open_arrays(b, err))) {
        free_backend(&b->base);
        return rc;
    }
    BASE_ASSERT(device(&b->base)->ops->submit && device(&b->base)->ops->arithmetic && device(&b->base)->ops->kv_limit);
    name_arithmetic(b, o->level);
    *out = &b->base;
    return RP_OK;
}
