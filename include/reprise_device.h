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

/* Where the device reads KV that was evicted from its memory to RAM, if that is other memory. Results are the same. */
typedef enum rp_kv_in_place {
    RP_KV_IN_PLACE_AUTO,   /* in RAM, over the bus, if a request reads it so rarely that a copy would cost more */
    RP_KV_IN_PLACE_ALWAYS, /* in RAM */
    RP_KV_IN_PLACE_NEVER,  /* in its own memory, after a copy, unless that is full */
} rp_kv_in_place;

#define RP_DEVICE_LAYERS_AUTO 0
#define RP_DEVICE_LAYERS_NONE (-1) /* all layers are computed on the processor */

/* What products with quantized weights are made of on the device. Weights of floats have products of floats. Results
 * differ, and so do the keys of KV. */
typedef enum rp_device_arithmetic {
    RP_DEVICE_ARITHMETIC_INT8, /* activations rounded to 8 bits in blocks of 32, as on the processor: dot products, or
                                  cooperative matrices where the device has them */
    RP_DEVICE_ARITHMETIC_F32,  /* activations of 32 bits: nearer to the reference, and slower */
} rp_device_arithmetic;

/* rp_engine_options.device; borrowed until rp_engine_new returns. Initialise it with {.struct_size =
 * sizeof(rp_device_options)}. */
typedef struct rp_device_options {
    uint32_t struct_size;
    /* "cpu"; "vulkan": the best device of Vulkan; "vulkan:1": that of this number (rp_devices); NULL, "auto": the
     * processor, until Vulkan has been measured on hardware. An unknown name is RP_ERR_NAME; a device that cannot
     * compute the model, or an option that it lacks, RP_ERR_UNSUPPORTED */
    const char *name;
    /* Limit on memory of the device: weights, activations and KV, which gets what the others leave; RP_ERR_BUDGET if it
     * gets nothing with the number of layers that is given. 0: none, and 2 GiB for KV */
    uint64_t ram_bytes;
    rp_kv_in_place kv_in_place; /* a zero is RP_KV_IN_PLACE_AUTO */
    /* The model's last so many layers, with its output head, are computed on the device, the others on the processor,
     * each with its KV. RP_DEVICE_LAYERS_AUTO: all, unless ram_bytes is too small for their weights; then the most that
     * fit with KV of 2048 tokens. The same for the same model, device and options: KV in a store depends on it. More
     * than the model has: all. RP_ERR_UNSUPPORTED: KV of a format that is encoded, or a layer that reads the KV of one
     * on the other side */
    int32_t layers;
    rp_device_arithmetic arithmetic; /* a zero is RP_DEVICE_ARITHMETIC_INT8 */
} rp_device_options;

/* What an engine has in memory of its device, and what went over the bus between it and RAM. Totals since its start; as
 * of the last step. All zero: it computes on the processor. */
typedef struct rp_device_usage {
    uint32_t struct_size;
    bool is_lost;         /* every request fails: start the program again */
    uint64_t limit_bytes; /* rp_device_options.ram_bytes; 0: none */
    /* memory of the device, by use */
    uint64_t weight_bytes, activation_bytes, kv_bytes, scratch_bytes;
    uint64_t host_bytes;                     /* KV in RAM that the device reads: allocated so far */
    uint64_t to_device_bytes, to_host_bytes; /* copied over the bus, weights included */
    /* of these, KV that the device evicted to RAM, as far as its copies were timed, and the time of that */
    uint64_t demoted_bytes, demoted_us;
    uint64_t in_place_bytes; /* KV in RAM that steps read over the bus: once for each step */
    /* submissions of steps; the processor's time in them; the time from them to the end of the step */
    uint64_t submits, submit_us, step_us;
    uint64_t promoted_bytes, promoted_us; /* as demoted_bytes and demoted_us: KV that was copied from RAM */
    uint64_t layers;                      /* of the model that the device computes: the last ones, or all; 0: none */
    uint64_t carried_bytes;               /* activations of the layers before them, copied to the device once a step */
} rp_device_usage;
/* Any thread. RP_ERR_INVALID (struct_size is not set). */
RP_API int rp_engine_device_usage(rp_engine *engine, rp_device_usage *out);

/* A device of this machine, or the reason why there is none of its kind. */
typedef struct rp_device {
    char name[16];         /* for rp_device_options.name: "cpu", "vulkan:0"; "vulkan": there is no device */
    char description[256]; /* the hardware: "AMD Radeon RX 7900 XTX (RADV NAVI31)" */
    char kind[24];         /* "processor", "discrete GPU", "integrated GPU", "virtual GPU", "other" */
    char driver[512];      /* "": none */
    uint64_t memory_bytes;
    bool is_usable;    /* by name */
    bool is_automatic; /* by "auto" */
    char reason[160];  /* why it is not usable, or not automatic; "": it is both */
} rp_device;

/* Writes the devices of this machine to out[most], the processor first, and their number to *n, which may be larger
 * than most. Opens Vulkan's loader, which takes up to a second. Any thread. RP_ERR_INVALID (out or n is NULL). */
RP_API int rp_devices(rp_device *out, size_t most, size_t *n, rp_error *err);

#ifdef __cplusplus
}
#endif
#endif
