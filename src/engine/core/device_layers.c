/* SPDX-License-Identifier: Apache-2.0 */
/* device_layers.c: see device_layers.h. */
#include "engine/core/device_layers.h"

#include <string.h>

#include "backend/split/split_layers.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/core/engine_state.h"
#include "kv/kv_format.h"
#include "kv/kv_plan.h"
#include "model/forward.h"
#include "model/model.h"
#include "engine/core/steps.h"
#include "pml/layout.h"
#include "store/record/record.h"

bool device_layers_are_split(const rp_engine *e) { return (e->backend_row->can & BACKEND_ONE_KV) != 0; }

/* ---- the backend ---- */

static int use_processor(rp_engine *e, rp_error *err) {
    const int rc = backend_find(&e->backend_row, "cpu", &e->model->net, err);
    if (!rc) e->device = e->backend_row->name;
    return rc;
}

int device_layers_find(rp_engine *e, const rp_device_options *o, rp_error *err) {
    if ((unsigned)o->arithmetic > RP_DEVICE_ARITHMETIC_F32)
        return base_fail(err, RP_ERR_INVALID, "unknown device arithmetic %d", (int)o->arithmetic);
    const int rc = backend_find(&e->backend_row, o->name, &e->model->net, err);
    if (rc) return rc;
    /* a number is a part of the name; the caller's string is borrowed until the engine is open */
    e->device = !o->name || strcmp(o->name, "auto") == 0 ? e->backend_row->name : o->name;
    if (o->layers < RP_DEVICE_LAYERS_NONE)
        return base_fail(err, RP_ERR_INVALID, "device_layers is %d: give a number of layers", o->layers);
    const bool is_device = (e->backend_row->can & BACKEND_DEVICE) != 0;
    if (o->layers > 0 && !is_device)
        return base_fail(err, RP_ERR_UNSUPPORTED, "device_layers %d: the device '%s' is the processor: name a GPU",
                         o->layers, e->backend_row->name);
    return is_device && o->layers == RP_DEVICE_LAYERS_NONE ? use_processor(e, err) : RP_OK;
}

static int open_with(rp_engine *e, backend_options *options, int32_t host_layers, rp_error *err) {
    options->host_layers = host_layers;
    const int rc = backend_open(&e->backend, e->device, &e->model->net, options, err);
    if (rc) return rc;
    return model_forward_new(&e->forward, e->model, e->backend, e->steps->max_rows, e->steps->max_logits, err);
}

static void close_backend(rp_engine *e) {
    model_forward_free(e->forward);
    if (e->backend) e->backend->ops->free(e->backend);
    e->forward = NULL;
    e->backend = NULL;
}

/* ---- the number of layers ---- */

#define LEAST_TOKENS 2048 /* whose KV has memory on the device, in engines that choose their layers */
#define LEAST_STATES 4    /* of recurrent layers: running ones and checkpoints */

/* Bytes of KV that the device should have memory for. */
static uint64_t kv_bytes_of(const rp_engine *e, int32_t host_layers) {
    const kv_shape *shape = &e->states->shape;
    const uint64_t blocks = (uint64_t)BASE_DIV_UP(BASE_MIN(e->n_ctx, LEAST_TOKENS), KV_BLOCK_SLOTS);
    uint64_t bytes = 0;
    for (int32_t i = split_kv_layers(&e->model->net, host_layers); i < shape->n_layers; i++)
        bytes += blocks * kv_shape_layer(shape, i).block_bytes + LEAST_STATES * (uint64_t)shape->layers[i].state_bytes;
    return BASE_MAX(bytes, DEVICE_MIN_KV_BYTES);
}

/* Opens with so many layers on the processor. *fits: there is memory for the others' weights and for KV; if not, what
 * was opened is closed again. */
static int try_layers(rp_engine *e, backend_options *options, int32_t host_layers, bool *fits, rp_error *err) {
    const uint64_t least = host_layers > 0 ? kv_bytes_of(e, host_layers) : DEVICE_MIN_KV_BYTES;
    const int rc = open_with(e, options, host_layers, err);
    *fits = !rc && e->backend->ops->kv_limit(e->backend) >= least;
    if (!*fits) close_backend(e);
    return rc == RP_ERR_BUDGET ? RP_OK : rc; /* the limit is exceeded, whatever else the device computes */
}

/* Numbers of layers that the processor may compute, ascending: where the network may be divided, and all of them. */
static int32_t list_numbers(const model_network *net, int32_t *out) {
    int32_t n = 0;
    for (int32_t i = 1; i < net->hp.n_layers; i++)
        if (!split_check(net, i, NULL)) out[n++] = i;
    out[n++] = net->hp.n_layers;
    return n;
}

static int check_format(const rp_engine *e, rp_error *err) {
    const rp_kv_format format = e->formats->modules;
    if (!kv_format_is_encoded(format)) return RP_OK;
    return base_fail(err, RP_ERR_UNSUPPORTED,
                     "kv_format %s: layers are computed on the processor (device_layers), and their KV is not encoded: "
                     "use f16, f32 or int8, or give the device more memory",
                     kv_format_name(format));
}

/* The fewest layers on the processor that leave the device memory for KV: found by opening backends, which upload no
 * weights before they compute. The result depends on the model, the options and the device alone. */
static int choose(rp_engine *e, backend_options *options, rp_error *err) {
    const int32_t n_layers = e->model->net.hp.n_layers;
    int32_t *numbers = base_alloc(sizeof(*numbers) * (size_t)n_layers);
    if (!numbers) return base_fail_memory(err, sizeof(*numbers) * (uint64_t)n_layers, "the layers of a device");
    int32_t low = 0, high = list_numbers(&e->model->net, numbers) - 1;
    int rc = check_format(e, err);
    while (low < high && !rc) { /* the last number fits in any case */
        const int32_t middle = (low + high) / 2;
        bool fits;
        if ((rc = try_layers(e, options, numbers[middle], &fits, err))) break;
        if (fits) high = middle;
        else low = middle + 1;
        if (fits) close_backend(e);
    }
    const int32_t chosen = numbers[high];
    base_free(numbers);
    if (rc) return rc;
    base_log(BASE_LOG_WARN, "device memory (%llu MiB) is too small for all layers: the device computes %d of %d",
             (unsigned long long)options->device_bytes >> 20, n_layers - chosen, n_layers);
    if (chosen == n_layers && (rc = use_processor(e, err))) return rc;
    if (chosen < n_layers) e->backend_row = backend_find_split();
    return open_with(e, options, chosen == n_layers ? 0 : chosen, err);
}

int device_layers_open(rp_engine *e, const rp_device_options *o, backend_options *options, rp_error *err) {
    const int32_t n_layers = e->model->net.hp.n_layers;
    const bool is_device = (e->backend_row->can & BACKEND_DEVICE) != 0;
    bool fits;
    if (!is_device || (o->layers == RP_DEVICE_LAYERS_AUTO && o->ram_bytes == 0) || o->layers >= n_layers)
        return open_with(e, options, 0, err);
    if (o->layers > 0) {
        const int rc = check_format(e, err);
        if (rc) return rc;
        e->backend_row = backend_find_split();
        base_log(BASE_LOG_INFO, "the device computes the last %d of %d layers", o->layers, n_layers);
        return open_with(e, options, n_layers - o->layers, err);
    }
    const int rc = try_layers(e, options, 0, &fits, err);
    return rc || fits ? rc : choose(e, options, err);
}
