/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_pack.c: repacks the model's matrices for this machine's kernels (kernel_pack), once: by prepare, or before the
 * first step. Repacked matrices are not read from the mapped file again.
 *
 *   packed data   matrix n-1 | matrix n-2 | ... | matrix 0      in memory, or mapped from a file (backend_weights)
 *   a matrix      slice 0 | zeros | slice 1 | zeros | ...       each slice begins aligned
 */
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "backend/cpu/cpu_backend.h"

#define ALIGNMENT BACKEND_PACKED_ALIGNMENT

/* Version of the bytes that this file and kernel_pack make of a matrix: raise it with every change of them, so that
 * kept weights of the former order are not used. */
#define PACKED_VERSION 1

typedef struct pack_job {
    const model_weight *from;
    char *to;
    int64_t to_slice_bytes;
    int side;
} pack_job;

static bool is_packed(const cpu_backend *b, const model_weight *w) {
    return w->data && b->kernels.side > 1;
}

/* One slice's bytes, rounded up so that the next begins aligned. */
static int64_t slice_bytes(const cpu_backend *b, const model_weight *w) {
    return BASE_DIV_UP(kernel_packed_bytes(w->type, b->kernels.side, w->n_in, w->n_out), ALIGNMENT) * ALIGNMENT;
}

/* Groups of rows, numbered through all slices. */
static void pack_groups(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const pack_job *j = arg;
    const model_weight *w = j->from;
    const int64_t groups = (w->n_out + j->side - 1) / j->side, row_bytes = kernel_row_bytes(w->type, w->n_in);
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = i % groups * j->side;
        const char *from = model_weight_slice(w, i / groups).data;
        char *to = j->to + i / groups * j->to_slice_bytes;
        kernel_pack(w->type, j->side, from + row * row_bytes, w->n_in, BASE_MIN(j->side, w->n_out - row),
                    to + row * row_bytes);
    }
}

#define GROUPS_PER_TASK 4

int cpu_pack_open(cpu_backend *b, rp_error *err) {
    int32_t n = b->net->n_matrices;
    b->packed = base_calloc((size_t)n, sizeof(*b->packed));
    return b->packed ? RP_OK : base_fail_memory(err, (uint64_t)n * sizeof(*b->packed), "the weights");
}

uint64_t cpu_packed_total(const cpu_backend *b) {
    uint64_t total = 0;
    for (int32_t i = 0; i < b->net->n_matrices; i++) {
        const model_weight *w = b->net->matrices[i];
        if (is_packed(b, w)) total += (uint64_t)(slice_bytes(b, w) * w->n_slices);
    }
    return total;
}

uint64_t cpu_packed_source(const cpu_backend *b) {
    uint64_t total = 0;
    for (int32_t i = 0; i < b->net->n_matrices; i++) {
        const model_weight *w = b->net->matrices[i];
        if (is_packed(b, w)) total += (uint64_t)(kernel_row_bytes(w->type, w->n_in) * w->n_out * w->n_slices);
    }
    return total;
}

static void bind_matrix(cpu_backend *b, int32_t i, const char *data) {
    BASE_ASSERT((uintptr_t)data % ALIGNMENT == 0);
    const model_weight *w = b->net->matrices[i];
    b->packed[i] = *w;
    b->packed[i].data = data;
    b->packed[i].slice_bytes = slice_bytes(b, w);
}

/* Repacks matrix i into `to` and releases its part of the mapped file. */
static void pack_matrix(cpu_backend *b, int32_t i, char *to) {
    const model_weight *w = b->net->matrices[i];
    const int64_t side = b->kernels.side, used = kernel_packed_bytes(w->type, b->kernels.side, w->n_in, w->n_out);
    bind_matrix(b, i, to);
    const int64_t stride = b->packed[i].slice_bytes;
    BASE_ASSERT(used <= stride && stride - used < ALIGNMENT);
    pack_job j = {w, to, stride, b->kernels.side};
    base_threads_for(b->threads, pack_groups, &j, (w->n_out + side - 1) / side * w->n_slices, GROUPS_PER_TASK);
    for (int64_t k = 0; k < w->n_slices; k++) {
        memset(to + k * stride + used, 0, (size_t)(stride - used));
        if (b->net->forget)
            b->net->forget(b->net->source, model_weight_slice(w, k).data,
                           (size_t)(w->n_out * kernel_row_bytes(w->type, w->n_in)));
    }
}

/* Progress of up to three phases (hashing for `find`, repacking, `keep`) as one number. */
typedef struct pack_progress {
    rp_on_progress on_progress;
    void *user;
    uint64_t phase, n_phases, unit;
} pack_progress;

static void pack_on_progress(void *user, uint64_t done, uint64_t total) {
    const pack_progress *p = user;
    const double share = total > 0 ? (double)done / (double)total : 1.0;
    if (p->on_progress)
        p->on_progress(p->user, p->phase * p->unit + (uint64_t)(share * (double)p->unit), p->n_phases * p->unit);
}

/* Hashing precedes repacking and, nearly always, writing. */
static void pack_on_hash_progress(void *user, uint64_t done, uint64_t total) {
    pack_progress *p = user;
    p->n_phases = 3;
    pack_on_progress(p, done, total);
}

/* The last matrix, the output, is often the largest: it is repacked first, while few other matrices are in memory
 * twice. With `data`, which has the repacked matrices, nothing is repacked. */
static void pack_or_bind(cpu_backend *b, const char *data, pack_progress *p, uint64_t total) {
    uint64_t done = 0;
    for (int32_t i = b->net->n_matrices; i-- > 0;) {
        if (!is_packed(b, b->net->matrices[i])) continue;
        if (data) bind_matrix(b, i, data + done);
        else pack_matrix(b, i, b->packed_data + done);
        done += (uint64_t)(b->packed[i].slice_bytes * b->packed[i].n_slices);
        if (!data) pack_on_progress(p, done, total);
    }
    BASE_ASSERT(done == total);
}

/* Describes what pack_or_bind makes. bytes: [n_matrices]. */
static backend_packed describe_packed(const cpu_backend *b, uint64_t *bytes) {
    backend_packed p = {.side = (uint32_t)b->kernels.side, .version = PACKED_VERSION, .bytes = bytes};
    for (int32_t i = b->net->n_matrices; i-- > 0;) {
        const model_weight *w = b->net->matrices[i];
        if (!is_packed(b, w)) continue;
        bytes[p.n] = (uint64_t)(slice_bytes(b, w) * w->n_slices);
        p.total += bytes[p.n++];
    }
    return p;
}

static int pack_with(cpu_backend *b, const backend_packed *packed, pack_progress *p, rp_error *err) {
    const backend_weights *kept = packed->total > 0 ? b->weights : NULL;
    bool keeps = false;
    const char *data = kept ? kept->find(kept->user, packed, &keeps, pack_on_hash_progress, p) : NULL;
    b->is_mapped = data != NULL;
    BASE_ASSERT(!data || !keeps); /* backend_weights.find */
    if (!data && packed->total > 0) b->packed_data = base_alloc_aligned(packed->total, ALIGNMENT);
    if (!data && packed->total > 0 && !b->packed_data) return base_fail_memory(err, packed->total, "the weights");
    p->phase = p->n_phases == 3;
    p->n_phases = p->phase + 1 + keeps;
    pack_or_bind(b, data, p, packed->total);
    p->phase++;
    if (keeps) kept->keep(kept->user, packed, b->packed_data, pack_on_progress, p);
    return RP_OK;
}

int cpu_pack_prepare(backend *self, rp_on_progress on_progress, void *user, rp_error *err) {
    cpu_backend *b = (cpu_backend *)self;
    if (b->prepared) return RP_OK;
    const size_t n = (size_t)b->net->n_matrices;
    uint64_t *bytes = base_calloc(n + 1, sizeof(*bytes));
    if (!bytes) return base_fail_memory(err, n * sizeof(*bytes), "the weights");
    backend_packed packed = describe_packed(b, bytes);
    pack_progress p = {.on_progress = on_progress, .user = user, .n_phases = 1, .unit = packed.total};
    int rc = pack_with(b, &packed, &p, err);
    base_free(bytes);
    b->prepared = rc == RP_OK;
    return rc;
}

void cpu_pack_free(cpu_backend *b) {
    base_free(b->packed);
    base_free(b->packed_data);
}
