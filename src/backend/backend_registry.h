/* SPDX-License-Identifier: Apache-2.0 */
/* backend_registry.h: the backends of this build, a row each. Immutable; any thread.
 *
 * A new backend NAME is a folder with two functions, and a row of BACKENDS:
 *
 *   NAME_backend_unavailable   why it cannot compute a network on this machine; NULL: it can
 *   NAME_backend_new           creates one (backend_row.open)
 */
#ifndef BACKEND_BACKEND_REGISTRY_H
#define BACKEND_BACKEND_REGISTRY_H

#include "backend/backend.h"
#include "base/cpu.h"

/* What a backend can do besides plain steps, bits. */
enum {
    BACKEND_STUDIES =
        1 << 0, /* it has the operations that choose and judge slots: read_head, bound, deviate, output_norms */
};

/* X(name, capabilities), the preferred one first */
#define BACKENDS(X) \
    X(cpu, BACKEND_STUDIES) \
    X(mock, 0)

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
} backend_options;

typedef struct backend_row {
    const char *name;
    uint32_t can; /* BACKEND_* */
    const char *(*unavailable)(const model_network *net);
    /* The network is borrowed. RP_ERR_MEMORY, RP_ERR_IO (threads). */
    int (*open)(backend **out, const model_network *net, const backend_options *options, rp_error *err);
} backend_row;

/* The backend of that name; NULL: the first one that can compute the network. The row is static. RP_ERR_NAME (with the
 * names that exist), RP_ERR_UNSUPPORTED (with the reason). */
int backend_find(const backend_row **out, const char *name, const model_network *net, rp_error *err);

/* Creates the backend of that name, as backend_find and backend_row.open. */
int backend_open(backend **out, const char *name, const model_network *net, const backend_options *options,
                 rp_error *err);

#define X(name, can) \
    const char *name##_backend_unavailable(const model_network *net); \
    int name##_backend_new(backend **out, const model_network *net, const backend_options *options, rp_error *err);
BACKENDS(X)
#undef X

#endif
