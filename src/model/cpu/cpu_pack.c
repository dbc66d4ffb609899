/* cpu_pack.c: the model's matrices in the order that this machine's products want (kernel_pack), made once when the backend
 * is opened. The mapped file stays for looking up embeddings; what is packed is not read there again. */
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
    const rp_model *m = b->model;
    size_t total = 0;
    int32_t n = model_n_matrices(m);
    b->packed = base_calloc((size_t)n, sizeof(*b->packed));
    if (!b->packed) return base_fail_memory(err, (uint64_t)n * sizeof(*b->packed), "the weights");
    for (int32_t i = 0; i < n; i++) {
        const model_weight *w = model_matrix(m, i);
        if (is_packed(b, w)) total += (size_t)(slice_bytes(b, w) * w->n_slices);
    }
    if (total == 0) return RP_OK;
    b->packed_bytes = base_alloc_aligned(total, ALIGNMENT);
    if (!b->packed_bytes) return base_fail_memory(err, total, "the weights");
    char *at = b->packed_bytes;
    for (int32_t i = 0; i < n; i++) {
        const model_weight *w = model_matrix(m, i);
        if (!is_packed(b, w)) continue;
        b->packed[i] = *w;
        b->packed[i].data = at;
        b->packed[i].slice_bytes = slice_bytes(b, w);
        pack_job j = {w, at, b->packed[i].slice_bytes, b->kernels.side};
        base_threads_for(b->threads, pack_groups, &j, (w->n_out + j.side - 1) / j.side * w->n_slices, GROUPS_PER_TASK);
        at += b->packed[i].slice_bytes * w->n_slices;
        if (w->data == m->embedding.data) continue; /* its rows are still looked up */
        for (int64_t k = 0; k < w->n_slices; k++)
            gguf_forget(m->file, model_weight_slice(w, k).data, (size_t)(w->n_out * kernel_row_bytes(w->type, w->n_in)));
    }
    return RP_OK;
}

void cpu_pack_free(cpu_backend *b) {
    base_free(b->packed);
    base_free(b->packed_bytes);
}
