/* SPDX-License-Identifier: Apache-2.0 */
/* backend_registry.h: the backends of this build, a row each. Immutable; any thread.
 *
 * A new backend NAME is a folder with two functions, and a row of BACKENDS:
 *
 *   NAME_backend_unavailable   why it cannot compute a network on a device of this machine; NULL: it can
 *   NAME_backend_new           creates one (backend_row.open)
 *   NAME_backend_devices       the devices of this machine that it computes on
 */
#ifndef BACKEND_BACKEND_REGISTRY_H
#define BACKEND_BACKEND_REGISTRY_H

#include "backend/backend.h"
#include "base/cpu.h"
#include "reprise_device.h"

/* What a backend can do besides plain steps, bits. */
enum {
    /* The operations that choose and judge slots (backend_study); reports to observers */
    BACKEND_STUDIES = 1 << 0,
    BACKEND_ADAPTS = 1 << 1, /* adapters of rows */
    BACKEND_AUTO = 1 << 2,   /* it is used without being named */
    BACKEND_ONE_KV = 1 << 3, /* all KV has the pool's format, which may be int8: no encode */
    BACKEND_DEVICE = 1 << 4, /* it has memory of its own, and may compute the last layers of a network alone */
};

/* Of a backend that has several devices, numbered from 0: the best one. */
#define BACKEND_ANY_DEVICE (-1)

/* X(name, capabilities), the preferred one first */
#define BACKENDS(X) \
    X(vulkan, BACKEND_STUDIES | BACKEND_ADAPTS | BACKEND_DEVICE) \
    X(cpu, BACKEND_STUDIES | BACKEND_ADAPTS | BACKEND_AUTO) \
    X(mock, BACKEND_AUTO)

/* Microseconds that a step takes, at least those of its own work: of the step, of each row, of each slot of each row's
   context. */
typedef struct backend_times {
    double step_us, row_us, row_slot_us;
} backend_times;

/* Every backend reads what concerns it. */
typedef struct backend_options {
    kv_shape shape;       /* of the pool; borrowed parts must outlive the backend. Spans may have any other format */
    base_cpu_level level; /* of the CPU's kernels */
    int32_t n_ctx, n_threads,
        max_rows;                   /* context length, which selects the frequencies of long-rope models; >= 1; rows of
                                       one step */
    int32_t max_tentative;          /* rows of a step in tentative contexts (model_step) */
    const backend_weights *weights; /* borrowed; NULL: repacked weights are not kept */
    backend_times times;
    int32_t device;                         /* a number, or BACKEND_ANY_DEVICE; backend_open sets it */
    uint64_t device_bytes;                  /* limit on memory of the device; 0: none */
    int32_t host_layers;                    /* of a device: first layers that the CPU computes (split/); 0: none */
    rp_device_arithmetic device_arithmetic; /* of its products; the processor has its own */
} backend_options;

typedef struct backend_row {
    const char *name;
    uint32_t can; /* BACKEND_* */
    const char *(*unavailable)(const model_network *net, int32_t device);
    /* The network is borrowed. RP_ERR_MEMORY, RP_ERR_IO (threads, the device), RP_ERR_BUDGET. */
    int (*open)(backend **out, const model_network *net, const backend_options *options, rp_error *err);
    /* Writes the first `most` devices, all fields but is_automatic. Returns their number. */
    size_t (*devices)(rp_device *out, size_t most);
} backend_row;

/* Writes the first `most` devices of all backends, the processor first. Returns their number. */
size_t backend_devices(rp_device *out, size_t most);

/* The backend of that name, "vulkan", "vulkan:1" for a device of that number; NULL, "auto": the first one with
 * BACKEND_AUTO that can compute the network. The row is static. RP_ERR_NAME (with the names that exist),
 * RP_ERR_UNSUPPORTED (with the reason). */
int backend_find(const backend_row **out, const char *name, const model_network *net, rp_error *err);

/* The row of what backend_open creates of a row with host_layers > 0. */
const backend_row *backend_find_split(void);

/* Creates the backend of that name, as backend_find and backend_row.open. RP_ERR_UNSUPPORTED, too: its network cannot
 * be divided before the layer host_layers (split_check). */
int backend_open(backend **out, const char *name, const model_network *net, const backend_options *options,
                 rp_error *err);

#define X(name, can) \
    const char *name##_backend_unavailable(const model_network *net, int32_t device); \
    int name##_backend_new(backend **out, const model_network *net, const backend_options *options, rp_error *err); \
    size_t name##_backend_devices(rp_device *out, size_t most);
BACKENDS(X)
#undef X

#endif
