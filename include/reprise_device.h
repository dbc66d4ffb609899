/* SPDX-License-Identifier: Apache-2.0 */
/* reprise_device.h: where an engine computes: the processor, or a GPU by Vulkan (docs/gpu.md). Conventions are those of
 * reprise.h.
 */
#ifndef REPRISE_DEVICE_H
#define REPRISE_DEVICE_H

#include "reprise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rp_engine_options.device; borrowed until rp_engine_new returns. Initialise it with {.struct_size =
 * sizeof(rp_device_options)}. */
typedef struct rp_device_options {
    uint32_t struct_size;
    const char *name;   /* "cpu"; "vulkan": the best device of Vulkan; "vulkan:1": that of this number (rp_devices);
                           NULL, "auto": the processor, until Vulkan has been measured on hardware. An
                           unknown name is RP_ERR_NAME; a device that cannot compute the model, or an option that it
                           lacks, RP_ERR_UNSUPPORTED */
    uint64_t ram_bytes; /* limit on memory of the device: weights, activations and KV, which gets what the others leave;
                           RP_ERR_BUDGET if it gets nothing. 0: none */
} rp_device_options;

/* A device of this machine, or the reason why there is none of its kind. */
typedef struct rp_device {
    char name[16];         /* for rp_device_options.name: "cpu", "vulkan:0"; "vulkan": there is no device */
    char description[256]; /* the hardware: "AMD Radeon RX 7900 XTX (RADV NAVI31)" */
    char kind[24];         /* "processor", "discrete GPU", "integrated GPU", "virtual GPU", "other" */
    char driver[512];      /* "": none */
    uint64_t memory_bytes;
    bool is_usable;                               /* by name */
    bool is_automatic;                            /* by "auto" */
    bool has_adapters, has_small_kv, has_studies; /* LoRA adapters; KV of fewer than 16 bits; what judges slots:
                                                     qualities blend and focus, reduced KV, context shift */
    char reason[160];                             /* why it is not usable, or not automatic; "": it is both */
} rp_device;

/* Writes the devices of this machine to out[most], the processor first, and their number to *n, which may be larger
 * than most. Opens Vulkan's loader, which takes up to a second. Any thread. RP_ERR_INVALID (out or n is NULL). */
RP_API int rp_devices(rp_device *out, size_t most, size_t *n, rp_error *err);

#ifdef __cplusplus
}
#endif
#endif
