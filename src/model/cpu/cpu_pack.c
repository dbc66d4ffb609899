/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_pack.c: repacks the model's matrices for this machine's kernels (kernel_pack), once: by prepare, or before the
 * first step. Repacked matrices are not read from the mapped file again. */
#include "base/error.h"
#include "base/memory.h"
#include "model/cpu/cpu_backend.h"

#define ALIGNMENT 64

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
    return (kernel_packed_bytes(w->type, b->kernels.side, w->n_in, w->n_out) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
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
        kernel_pack(w->type, j->side, from + row * row_bytes, w->n_in, BASE_MIN(j->side, w->n_out - row), to + row * row_bytes);
    }
}

#define GROUPS_PER_TASK 4

int cpu_pack_open(cpu_backend *b, rp_error *err) {
    int32_t n = model_n_matrices(b->model);
    b->packed = base_calloc((size_t)n, sizeof(*b->packed));
    return b->packed ? RP_OK : base_fail_memory(err, (uint64_t)n * sizeof(*b->packed), "the weights");
}

uint64_t cpu_packed_total(const cpu_backend *b) {
    uint64_t total = 0;
    for (int32_t i = 0; i < model_n_matrices(b->model); i++) {
        const model_weight *w = model_matrix(b->model, i);
        if (is_packed(b, w)) total += (uint64_t)(slice_bytes(b, w) * w->n_slices);
    }
    return total;
}

uint64_t cpu_packed_source(const cpu_backend *b) {
    uint64_t total = 0;
    for (int32_t i = 0; i < model_n_matrices(b->model); i++) {
        const model_weight *w = model_matrix(b->model, i);
        if (is_packed(b, w)) total += (uint64_t)(kernel_row_bytes(w->type, w->n_in) * w->n_out * w->n_slices);
    }
    return total;
}

/* Repacks matrix i into `to` and releases its part of the mapped file. */
static void pack_matrix(cpu_backend *b, int32_t i, char *to) {
    const model_weight *w = model_matrix(b->model, i);
    const int64_t side = b->kernels.side;
    b->packed[i] = *w;
    b->packed[i].data = to;
    b->packed[i].slice_bytes = slice_bytes(b, w);
    pack_job j = {w, to, b->packed[i].slice_bytes, b->kernels.side};
    base_threads_for(b->threads, pack_groups, &j, (w->n_out + side - 1) / side * w->n_slices, GROUPS_PER_TASK);
    for (int64_t k = 0; k < w->n_slices; k++)
        gguf_forget(b->model->file, model_weight_slice(w, k).data, (size_t)(w->n_out * kernel_row_bytes(w->type, w->n_in)));
}

/* The last matrix, the output, is often the largest: it is repacked first, while few other matrices are in memory
 * twice. */
int cpu_pack_prepare(backend *self, rp_on_progress on_progress, void *user, rp_error *err) {
    cpu_backend *b = (cpu_backend *)self;
    if (b->prepared) return RP_OK;
    const uint64_t total = cpu_packed_total(b);
    uint64_t done = 0;
    if (total > 0) b->packed_data = base_alloc_aligned(total, ALIGNMENT);
    if (total > 0 && !b->packed_data) return base_fail_memory(err, total, "the weights");
    for (int32_t i = model_n_matrices(b->model); i-- > 0;) {
        if (!is_packed(b, model_matrix(b->model, i))) continue;
        pack_matrix(b, i, b->packed_data + done);
        done += (uint64_t)(b->packed[i].slice_bytes * b->packed[i].n_slices);
        if (on_progress) on_progress(user, done, total);
    }
    b->prepared = true;
    return RP_OK;
}

void cpu_pack_free(cpu_backend *b) {
    base_free(b->packed);
    base_free(b->packed_data);
}
