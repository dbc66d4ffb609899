/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_support.c: which networks the Vulkan backend computes, and on which device. */
#include "backend/vulkan/vulkan_backend.h"

#include <stdio.h>

#include "base/compiler.h"

/* Queries, keys and values of a head are in shared memory (MOST_DIMS of shaders): every device has 16 KiB. */
#define MAX_HEAD_DIM 2048

static const char *layer_unsupported(const model_layer *l) {
    if (l->key_dim > MAX_HEAD_DIM || l->value_dim > MAX_HEAD_DIM)
        return "Vulkan computes heads of at most 2048 dimensions: use the CPU";
    return NULL;
}

const char *vulkan_network_unsupported(const model_network *net) {
    if (net->is_mock) return "the model was opened with mock, and has no weights";
    if (net->hp.index_dim > MAX_HEAD_DIM) return "Vulkan computes indexers of at most 2048 dimensions: use the CPU";
    if (net->hp.n_experts > VULKAN_MOST_EXPERTS) return "Vulkan computes mixtures of at most 1024 experts: use the CPU";
    const char *why = NULL;
    const int32_t n_layers = net->hp.n_layers + (net->draft_head.projection.data != NULL);
    for (int32_t i = 0; i < n_layers && !why; i++) why = layer_unsupported(&net->layers[i]);
    return why;
}

static void describe(const vulkan_description *d, size_t number, rp_device *out) {
    const bool is_real = d->type == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU ||
                         d->type == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU ||
                         d->type == VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU;
    *out = (rp_device){.memory_bytes = d->memory_bytes, .is_usable = !d->unusable};
    snprintf(out->name, sizeof(out->name), "vulkan:%zu", number);
    snprintf(out->description, sizeof(out->description), "%s", d->name);
    snprintf(out->kind, sizeof(out->kind), "%s", vulkan_type_name(d->type));
    snprintf(out->driver, sizeof(out->driver), "%s", d->driver);
    if (d->unusable) snprintf(out->reason, sizeof(out->reason), "%s", d->unusable);
    else
        snprintf(out->reason, sizeof(out->reason), "%s",
                 is_real ? "this backend has not been measured on hardware yet"
                         : "the processor emulates it, slower than the CPU backend");
}

size_t vulkan_backend_devices(rp_device *out, size_t most) {
    vulkan_description all[VULKAN_MAX_DEVICES];
    rp_error err = {0};
    const int rc = vulkan_instance_ref(&err);
    const int32_t n = rc ? 0 : vulkan_describe_all(all);
    for (int32_t i = 0; i < n && (size_t)i < most; i++) describe(&all[i], (size_t)i, &out[i]);
    if (n == 0 && most > 0) {
        *out = (rp_device){.name = "vulkan", .kind = "other"};
        snprintf(out->reason, sizeof(out->reason), "%.150s", rc ? err.message : "Vulkan has no device");
    }
    if (!rc) vulkan_instance_unref();
    return n > 0 ? (size_t)n : 1;
}

const char *vulkan_backend_unavailable(const model_network *net, int32_t device) {
    const char *why = vulkan_network_unsupported(net);
    vulkan_description all[VULKAN_MAX_DEVICES];
    rp_error err = {0};
    if (why) return why;
    if (vulkan_instance_ref(&err)) return "there is no Vulkan loader or driver: see reprise devices";
    vulkan_choose(all, vulkan_describe_all(all), device, &why);
    vulkan_instance_unref();
    return why;
}
