/* cpu_backend.c: the forward pass's operations on the CPU: buffers, embeddings, norms, linear layers.
 *
 * Work is split over outputs (linear) or rows (the rest); no element's arithmetic depends on the split.
 */
#include "model/cpu_backend.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

/* Outputs that one task computes: enough to hide the cost of taking a task, few enough for two threads to end together. A task's
 * weights (32 rows of a few KB) stay in the second-level cache while the rows of activations pass. */
#define OUTPUTS_PER_TASK 32
#define ROWS_PER_TASK 4
#define ELEMENTS_PER_TASK 16384

static cpu_backend *cpu(backend *b) { return (cpu_backend *)b; }

static void free_backend(backend *self) {
    cpu_backend *b = cpu(self);
    cpu_attention_free(b);
    base_threads_free(b->threads);
    base_free(b->row_angles);
    base_free(b->view_angles);
    base_free(b->tiles);
    base_free(b->q8);
    base_free(b);
}

static const kv_memory *memory(backend *self) {
    (void)self;
    return NULL;
}

static int buffer_new(backend *self, int32_t rows, int32_t width, backend_buffer **out, rp_error *err) {
    (void)self;
    size_t bytes = sizeof(backend_buffer) + sizeof(float) * (size_t)rows * (size_t)width;
    backend_buffer *b = base_calloc(1, bytes);
    *out = b;
    if (!b) return base_fail_memory(err, bytes, "activations");
    b->rows = rows;
    b->width = width;
    return RP_OK;
}

static void buffer_free(backend *self, backend_buffer *buffer) {
    (void)self;
    base_free(buffer);
}

static const float *row_of(const backend_buffer *b, int64_t row) { return b->data + row * b->width; }
static float *row_at(backend_buffer *b, int64_t row) { return b->data + row * b->width; }

static void buffer_read(backend *self, const backend_buffer *src, int32_t rows, float *dst) {
    (void)self;
    memcpy(dst, src->data, sizeof(float) * (size_t)rows * (size_t)src->width);
}

/* ---- a step ---- */

static int row_angles(cpu_backend *b, const model_step *step, rp_error *err) {
    size_t rot = (size_t)b->model->hp.rot_dim;
    int rc = base_grow((void **)&b->row_angles, &b->cap_row_angles, (size_t)step->n_rows * rot, SIZE_MAX / 8, sizeof(float));
    if (rc) return base_fail_memory(err, (uint64_t)step->n_rows * rot * sizeof(float), "rotations");
    for (int32_t r = 0; r < step->n_rows; r++) model_rope_angles(b->model, step->rows[r].pos, b->row_angles + (size_t)r * rot);
    return RP_OK;
}

static int begin(backend *self, const model_step *step, rp_error *err) {
    cpu_backend *b = cpu(self);
    b->step = step;
    int rc = row_angles(b, step, err);
    return rc ? rc : cpu_attention_begin(b, err);
}

static void embed(backend *self, const model_weight *embedding, backend_buffer *dst) {
    const model_step *step = cpu(self)->step;
    int64_t row_bytes = kernel_row_bytes(embedding->type, embedding->n_in);
    for (int32_t r = 0; r < step->n_rows; r++) {
        const char *src = (const char *)embedding->data + row_bytes * step->rows[r].token;
        kernel_dequantize(embedding->type, src, row_at(dst, r), embedding->n_in);
    }
}

/* ---- elementwise ---- */

typedef struct rows_job {
    cpu_backend *b;
    const backend_buffer *src;
    const model_weight *weight;
    backend_buffer *dst;
} rows_job;

static void norm_rows(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    rows_job *j = arg;
    float eps = j->b->model->hp.norm_eps;
    for (int64_t r = begin; r < end; r++)
        j->b->kernels.rms_norm(row_of(j->src, r), j->weight->data, eps, row_at(j->dst, r), j->src->width);
}

static void norm(backend *self, const backend_buffer *src, const model_weight *weight, int32_t rows, backend_buffer *dst) {
    rows_job j = {cpu(self), src, weight, dst};
    base_threads_for(j.b->threads, norm_rows, &j, rows, ROWS_PER_TASK);
}

static void gate_part(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    rows_job *j = arg;
    j->b->kernels.silu_mul(j->dst->data + begin, j->src->data + begin, j->dst->data + begin, end - begin);
}

static void gate(backend *self, backend_buffer *gate_buffer, const backend_buffer *up, int32_t rows) {
    rows_job j = {cpu(self), up, NULL, gate_buffer};
    base_threads_for(j.b->threads, gate_part, &j, (int64_t)rows * up->width, ELEMENTS_PER_TASK);
}

static void add_part(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    rows_job *j = arg;
    j->b->kernels.add(j->dst->data + begin, j->src->data + begin, j->dst->data + begin, end - begin);
}

static void add(backend *self, backend_buffer *dst, const backend_buffer *src, int32_t rows) {
    rows_job j = {cpu(self), src, NULL, dst};
    base_threads_for(j.b->threads, add_part, &j, (int64_t)rows * src->width, ELEMENTS_PER_TASK);
}

static void gather(backend *self, const backend_buffer *src, const int32_t *indices, int32_t n, backend_buffer *dst) {
    (void)self;
    for (int32_t i = 0; i < n; i++) memcpy(row_at(dst, i), row_of(src, indices[i]), sizeof(float) * (size_t)src->width);
}

/* ---- linear layers ----
 * The tasks of all weights of a call are numbered through, so that one loop serves q, k and v. */

#define MAX_WEIGHTS 4

typedef struct linear_job {
    cpu_backend *b;
    const backend_buffer *src;
    int32_t rows, n;
    const model_weight *const *weights;
    const model_weight *const *biases;
    backend_buffer *const *dst;
    int64_t q8_stride;
    int64_t first_task[MAX_WEIGHTS + 1];
} linear_job;

static void quantize_rows(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    linear_job *j = arg;
    for (int64_t r = begin; r < end; r++)
        j->b->kernels.quantize_row(row_of(j->src, r), j->b->q8 + r * j->q8_stride, j->src->width);
}

static void add_bias(const linear_job *j, int32_t i, int64_t begin, int64_t end) {
    const float *bias = j->biases[i]->data;
    for (int32_t r = 0; r < j->rows; r++) {
        float *y = row_at(j->dst[i], r) + begin;
        j->b->kernels.add(y, bias + begin, y, end - begin);
    }
}

static void linear_task(linear_job *j, int64_t task) {
    int32_t i = 0;
    while (task >= j->first_task[i + 1]) i++;
    const model_weight *w = j->weights[i];
    int64_t begin = (task - j->first_task[i]) * OUTPUTS_PER_TASK;
    int64_t end = BASE_MIN(begin + OUTPUTS_PER_TASK, w->n_out);
    bool quantized = kernel_type_quantized(w->type);
    const void *x = quantized ? (const void *)j->b->q8 : j->src->data;
    int64_t x_stride = quantized ? j->q8_stride : (int64_t)sizeof(float) * j->src->width;
    j->b->kernels.linear[w->type](w->data, w->n_in, begin, end, x, x_stride, j->rows, j->dst[i]->data, j->dst[i]->width);
    if (j->biases && j->biases[i]->data) add_bias(j, i, begin, end);
}

static void linear_tasks(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    for (int64_t t = begin; t < end; t++) linear_task(arg, t);
}

static void linear(backend *self, const backend_buffer *src, int32_t rows, int32_t n, const model_weight *const *weights,
                   const model_weight *const *biases, backend_buffer *const *dst) {
    linear_job j = {.b = cpu(self), .src = src, .rows = rows, .n = n, .weights = weights, .biases = biases, .dst = dst};
    bool quantized = false;
    for (int32_t i = 0; i < n; i++) {
        j.first_task[i + 1] = j.first_task[i] + (weights[i]->n_out + OUTPUTS_PER_TASK - 1) / OUTPUTS_PER_TASK;
        quantized |= kernel_type_quantized(weights[i]->type);
    }
    if (quantized) {
        j.q8_stride = kernel_q8_bytes(src->width);
        base_threads_for(j.b->threads, quantize_rows, &j, rows, ROWS_PER_TASK);
    }
    base_threads_for(j.b->threads, linear_tasks, &j, j.first_task[n], 1);
}

/* ---- opening ---- */

/* The widest input that a linear layer may have to quantise. */
static int64_t widest(const rp_model *m) {
    const model_hparams *hp = &m->hp;
    int64_t value = (int64_t)hp->n_heads * hp->value_dim;
    return BASE_MAX(BASE_MAX(hp->n_embd, hp->n_ff), value);
}

static const backend_ops ops = {
    .name = "cpu",
    .free = free_backend,
    .memory = memory,
    .buffer_new = buffer_new,
    .buffer_free = buffer_free,
    .buffer_read = buffer_read,
    .begin = begin,
    .embed = embed,
    .norm = norm,
    .linear = linear,
    .store = cpu_store,
    .attend = cpu_attend,
    .gate = gate,
    .add = add,
    .gather = gather,
};

int cpu_backend_new(backend **out, const rp_model *m, kv_format format, base_cpu_level level, int32_t n_threads,
                    int32_t max_rows, rp_error *err) {
    *out = NULL;
    cpu_backend *b = base_calloc(1, sizeof(*b));
    if (!b) return base_fail_memory(err, sizeof(*b), "the CPU backend");
    b->base.ops = &ops;
    b->model = m;
    b->shape = model_state_shape(m, format);
    kernel_table_init(&b->kernels, level);
    int32_t group = m->hp.n_heads / m->hp.n_kv_heads;
    b->heads_per_tile = BASE_MIN(group, CPU_TILE_QUERIES);
    b->rows_per_tile = CPU_TILE_QUERIES / b->heads_per_tile;
    size_t q8_bytes = (size_t)kernel_q8_bytes((widest(m) + 31) / 32 * 32) * (size_t)max_rows;
    int rc = base_threads_new(&b->threads, n_threads, err);
    if (!rc && !(b->q8 = base_alloc_aligned(q8_bytes, 64))) rc = base_fail_memory(err, q8_bytes, "activations");
    if (rc) {
        free_backend(&b->base);
        return rc;
    }
    *out = &b->base;
    return RP_OK;
}
