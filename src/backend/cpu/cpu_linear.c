/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_linear.c: linear layers on the CPU: several matrices over shared input rows, as one loop of tasks. */
#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "backend/cpu/cpu_backend.h"

/* Outputs per task: enough to hide the cost of taking a task, few enough for threads to finish together. With many rows
 * of activations, a task's weights (32 rows of a few KB) stay in the second-level cache. With few rows every weight is
 * read once, and longer sequential reads improve hardware prefetching (Q4_0: 8 %). */
#define OUTPUTS_PER_TASK 32
#define MOST_OUTPUTS_PER_TASK 256
#define TASKS_PER_THREAD 4
#define QUANTIZE_ROWS_PER_TASK 4

typedef struct linear_job {
    cpu_backend *b;
    const backend_buffer *src;
    cpu_linear_part *parts;
    int32_t n_parts;
    int64_t q8_stride;
    int64_t outputs; /* of a task */
} linear_job;

static void quantize_rows(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    linear_job *j = arg;
    for (int64_t r = begin; r < end; r++)
        j->b->kernels.quantize_row(cpu_row_of(j->src, r), j->b->q8 + r * j->q8_stride, j->src->width);
}

/* The last part that begins at the task or before it. A binary search: experts have hundreds of parts. */
static const cpu_linear_part *linear_job_part_of(const linear_job *j, int64_t task) {
    int32_t low = 0, high = j->n_parts - 1;
    while (low < high) {
        int32_t middle = (low + high + 1) / 2;
        if (j->parts[middle].first_task <= task) low = middle;
        else high = middle - 1;
    }
    BASE_DCHECK(j->parts[low].first_task <= task);
    return &j->parts[low];
}

static void linear_task(linear_job *j, int64_t task) {
    const cpu_linear_part *p = linear_job_part_of(j, task);
    const model_weight *w = &p->weight;
    int64_t begin = (task - p->first_task) * j->outputs;
    int64_t end = BASE_MIN(begin + j->outputs, w->n_out);
    BASE_DCHECK(begin < end);
    bool quantized = kernel_type_quantized(w->type);
    int64_t x_stride = quantized ? j->q8_stride : (int64_t)sizeof(float) * j->src->width;
    const char *x = quantized ? j->b->q8 : (const char *)j->src->data;
    j->b->kernels.linear[w->type](w->data, w->n_in, begin, end, x + p->first_row * x_stride, x_stride, p->n_rows,
                                  cpu_row_at(p->dst, p->first_row), p->dst->width);
    for (int32_t r = p->first_row; p->bias && r < p->first_row + p->n_rows; r++) {
        float *y = cpu_row_at(p->dst, r) + begin;
        j->b->kernels.add(y, p->bias + begin, 1.0f, y, end - begin);
    }
}

static void linear_tasks(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    for (int64_t t = begin; t < end; t++) linear_task(arg, t);
}

static int64_t outputs_per_task(const cpu_backend *b, const cpu_linear_part *parts, int32_t n_parts) {
    int64_t n = 0;
    for (int32_t i = 0; i < n_parts; i++) {
        if (parts[i].n_rows > KERNEL_FEW_ROWS) return OUTPUTS_PER_TASK;
        n += parts[i].weight.n_out;
    }
    n = n / (base_threads_count(b->threads) * TASKS_PER_THREAD * OUTPUTS_PER_TASK) * OUTPUTS_PER_TASK;
    return BASE_MIN(BASE_MAX(n, OUTPUTS_PER_TASK), MOST_OUTPUTS_PER_TASK);
}

void cpu_linear(cpu_backend *b, const backend_buffer *src, int32_t rows, cpu_linear_part *parts, int32_t n_parts) {
    linear_job j = {
        .b = b, .src = src, .parts = parts, .n_parts = n_parts, .outputs = outputs_per_task(b, parts, n_parts)};
    bool quantized = false;
    int64_t tasks = 0;
    for (int32_t i = 0; i < n_parts; i++) {
        BASE_ASSERT(parts[i].weight.n_in <= src->width && parts[i].weight.n_out <= parts[i].dst->width);
        BASE_ASSERT(parts[i].first_row >= 0 && parts[i].first_row + parts[i].n_rows <= rows);
        parts[i].first_task = tasks;
        tasks += (parts[i].weight.n_out + j.outputs - 1) / j.outputs;
        quantized |= kernel_type_quantized(parts[i].weight.type);
    }
    if (quantized) {
        j.q8_stride = kernel_q8_bytes(src->width);
        base_threads_for(b->threads, quantize_rows, &j, rows, QUANTIZE_ROWS_PER_TASK);
    }
    base_threads_for(b->threads, linear_tasks, &j, tasks, 1);
}

/* Allocates for the widest rows that a linear layer quantizes. */
int cpu_linear_open(cpu_backend *b, int32_t max_rows, rp_error *err) {
    const model_hparams *hp = &b->net->hp;
    int64_t value = (int64_t)hp->n_heads * BASE_MAX(hp->value_dim, hp->head_value_dim);
    int64_t width = BASE_MAX(BASE_MAX(hp->n_embd, hp->n_ff_shared), BASE_MAX(value, hp->n_query_latent));
    width = BASE_MAX(width, BASE_MAX((int64_t)hp->recurrent.n_heads * hp->recurrent.head_dim,
                                     BASE_MAX(hp->n_layer_embd, hp->n_laurel)));
    if (model_has_dense(hp)) width = BASE_MAX(width, hp->n_ff);
    int64_t expert_width = hp->n_experts > 0 ? BASE_MAX(hp->n_embd, hp->n_ff_expert) : 0;
    size_t bytes = (size_t)kernel_q8_bytes((width + 31) / 32 * 32) * (size_t)max_rows;
    size_t expert_bytes =
        (size_t)kernel_q8_bytes((expert_width + 31) / 32 * 32) * (size_t)max_rows * (size_t)hp->n_experts_used;
    bytes = BASE_MAX(bytes, expert_bytes);
    const int64_t run = hp->plain_key_dim > 0 ? BASE_MAX(hp->plain_key_dim, hp->value_dim) : 0; /* of a head */
    const size_t run_bytes = (size_t)kernel_q8_bytes((run + 31) / 32 * 32) * (size_t)max_rows * (size_t)hp->n_heads;
    bytes = BASE_MAX(bytes, run_bytes);
    b->q8 = base_alloc_aligned(bytes, 64);
    b->activation_bytes += bytes;
    return b->q8 ? RP_OK : base_fail_memory(err, bytes, "activations");
}
