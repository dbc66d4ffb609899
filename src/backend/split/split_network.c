/* SPDX-License-Identifier: Apache-2.0 */
/* split_network.c: the two parts of a network: copies of its layers and of its list of matrices, in which those of the
 * other side are absent. */
#include <string.h>

#include "backend/split/split_backend.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

/* Layers, with that of the draft head. */
static int32_t layers_of(const model_network *net) {
    return net->hp.n_layers + (net->draft_head.projection.data != NULL);
}

static int32_t most_of(int32_t a, int32_t b, int32_t c) { return BASE_MAX(a, BASE_MAX(b, c)); }

int32_t split_kv_layers(const model_network *net, int32_t first) {
    int32_t n = 0;
    for (int32_t i = 0; i < first; i++) {
        const model_layer *l = &net->layers[i];
        if (l->owns_kv) n = BASE_MAX(n, most_of(l->states, l->recurrence, l->index) + 1);
    }
    return n;
}

/* The layer that a layer reads KV of; itself, or -1: it reads none of another. */
static int32_t source_of(const model_network *net, int32_t layer) {
    const model_layer *l = &net->layers[layer];
    int32_t i = layer;
    if (model_mixer_attends(l->mixer) && !l->owns_kv)
        while (--i >= 0 && !(net->layers[i].owns_kv && net->layers[i].states == l->states)) {}
    else if (l->is_chosen && l->index < 0)
        while (--i >= 0 && net->layers[i].index < 0) {}
    return i;
}

int split_check(const model_network *net, int32_t first, rp_error *err) {
    const int32_t n = net->hp.n_layers;
    BASE_ASSERT(first > 0 && first < n);
    int32_t lowest = first, reader = 0; /* of the layers that the last ones need */
    for (int32_t l = n; l-- > lowest;) {
        const int32_t source = source_of(net, l);
        if (source >= 0 && source < lowest) lowest = source, reader = l;
    }
    if (lowest < first)
        return base_fail(err, RP_ERR_UNSUPPORTED,
                         "device_layers %d: layer %d reads what layer %d stored, and must be on the same side: give at "
                         "least %d",
                         n - first, reader, lowest, n - lowest);
    if (split_kv_layers(net, first) == split_kv_layers(net, n))
        return base_fail(err, RP_ERR_UNSUPPORTED, "device_layers %d: the last layers have no KV: give more", n - first);
    return RP_OK;
}

/* ---- parts ---- */

static const model_weight absent;

/* Weights before the first layer are the host's, those after the last one the device's. */
static split_side side_of(const model_network *net, const model_weight *w, int32_t first) {
    const model_layer *l = net->layers, *end = l + layers_of(net);
    const uintptr_t at = (uintptr_t)w;
    if (at >= (uintptr_t)l && at < (uintptr_t)end)
        return at < (uintptr_t)(l + first) ? SPLIT_HOST : SPLIT_DEVICE;
    bool is_before = w == &net->layer_projection;
    for (int i = 0; i < MODEL_MAX_STREAMS - 1; i++) is_before |= w == &net->streams_in[i];
    return is_before ? SPLIT_HOST : SPLIT_DEVICE;
}

static uint64_t bytes_of(const model_weight *w) {
    return w->data ? (uint64_t)(kernel_row_bytes(w->type, w->n_in) * w->n_out * BASE_MAX(w->n_slices, 1)) : 0;
}

static void keep_matrices(split_part *p, const model_network *net, int32_t first, split_side side) {
    uint64_t on_device = 0;
    for (int32_t i = 0; i < net->n_matrices; i++) {
        const model_weight *w = net->matrices[i];
        const split_side own = side_of(net, w, first);
        p->matrices[i] = own == side ? w : &absent;
        /* rows of the embedding are read on the host, too */
        if (own == SPLIT_DEVICE && w->data != net->embedding.data) on_device += bytes_of(w);
    }
    p->net.weight_bytes = side == SPLIT_DEVICE ? on_device : net->weight_bytes - BASE_MIN(on_device, net->weight_bytes);
    if (p->matrices[net->output.matrix] == &absent) p->net.output.data = NULL;
}

int split_part_open(split_part *p, const model_network *net, const kv_shape *shape, int32_t first, split_side side,
                    rp_error *err) {
    const size_t n = (size_t)layers_of(net), n_kv = (size_t)shape->n_layers;
    const int32_t n_host_kv = split_kv_layers(net, first);
    p->net = *net;
    p->shape = *shape;
    p->layers = base_calloc(n, sizeof(*p->layers));
    p->matrices = base_calloc((size_t)net->n_matrices, sizeof(*p->matrices));
    p->kv_layers = base_calloc(n_kv, sizeof(*p->kv_layers));
    if (!p->layers || !p->matrices || !p->kv_layers)
        return base_fail_memory(err, n * sizeof(*p->layers), "the layers of a device");
    memcpy(p->layers, net->layers, n * sizeof(*p->layers));
    memcpy(p->kv_layers, shape->layers, n_kv * sizeof(*p->kv_layers));
    for (int32_t i = 0; i < net->hp.n_layers; i++)
        if ((i < first) != (side == SPLIT_HOST)) p->layers[i].mixer = MODEL_NO_MIXER;
    for (int32_t i = 0; i < shape->n_layers; i++)
        if ((i < n_host_kv) != (side == SPLIT_HOST) && p->kv_layers[i].kind == KV_STATE)
            p->kv_layers[i] = (kv_layer_shape){.kind = KV_PAIRS};
    keep_matrices(p, net, first, side);
    p->net.whole = net;
    p->net.layers = p->layers;
    p->net.matrices = p->matrices;
    p->shape.layers = p->kv_layers;
    return RP_OK;
}

void split_part_close(split_part *p) {
    base_free(p->layers);
    base_free(p->matrices);
    base_free(p->kv_layers);
}
