/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_adapters.c: what LoRA adapters add to linear layers on the CPU (model/adapter.h).
 *
 *   rows    | no adapter | adapter 1 | adapter 1 | adapter 2 | no adapter | ...
 *           |            |        group          |   group   |
 *
 *   low  = A x             rows of a group together, tasks over outputs of A
 *   y   += factor * B low  likewise over outputs of B
 *
 * Both products are those of kernel_table.linear, whose elements depend on their own inputs only, and each element of y
 * is added to once: a row's result does not depend on the other rows, on groups or on threads. Rows without an adapter
 * are not touched.
 */
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "backend/cpu/cpu_backend.h"

#define OUTPUTS_PER_TASK 64 /* a multiple of every table's side */
#define ROWS_PER_TILE 16    /* of a product that is added: 4 KiB on the stack */

/* Rows [row, row + n_rows) of the source with one adapter and scale. */
typedef struct adapter_group {
    const adapter_weights *adapter;
    float scale;
    int32_t row, n_rows;
} adapter_group;

/* A product of one group and one matrix. */
typedef struct adapter_part {
    const adapter_group *group;
    const adapter_matrix *matrix;
    float *low; /* [n_rows][rank] */
    backend_buffer *dst;
    int64_t first_a, first_b; /* first task of either product */
} adapter_part;

struct cpu_adapters {
    adapter_group *groups; /* [cap_rows] */
    adapter_part *parts;   /* [cap_rows * BACKEND_MAX_WEIGHTS] */
    float *low;            /* [BACKEND_MAX_WEIGHTS][cap_rows][max_rank] */
    int32_t cap_rows, max_rank;
};

/* ---- scratch ---- */

static void free_scratch(cpu_adapters *x) {
    base_free(x->groups);
    base_free(x->parts);
    base_free(x->low);
    *x = (cpu_adapters){.groups = NULL};
}

void cpu_adapters_free(cpu_backend *b) {
    if (!b->adapters) return;
    free_scratch(b->adapters);
    base_free(b->adapters);
}

static int reserve(cpu_adapters *x, int32_t rows, int32_t rank, rp_error *err) {
    if (rows <= x->cap_rows && rank <= x->max_rank) return RP_OK;
    rows = BASE_MAX(rows, x->cap_rows);
    rank = BASE_MAX(rank, x->max_rank);
    const size_t low_bytes = sizeof(float) * BACKEND_MAX_WEIGHTS * (size_t)rows * (size_t)rank;
    free_scratch(x);
    x->groups = base_calloc((size_t)rows, sizeof(*x->groups));
    x->parts = base_calloc((size_t)rows * BACKEND_MAX_WEIGHTS, sizeof(*x->parts));
    x->low = base_alloc(low_bytes);
    if (!x->groups || !x->parts || !x->low) {
        free_scratch(x);
        return base_fail_memory(err, low_bytes, "an adapter's activations");
    }
    x->cap_rows = rows;
    x->max_rank = rank;
    return RP_OK;
}

int cpu_adapters_begin(cpu_backend *b, rp_error *err) {
    int32_t rank = 0;
    for (int32_t r = 0; r < b->step->n_rows; r++) {
        const adapter_weights *a = b->step->rows[r].adapter;
        if (!a) continue;
        BASE_ASSERT(a->side == b->kernels.side && a->net == model_network_whole(b->net));
        rank = BASE_MAX(rank, a->max_rank);
    }
    b->is_adapted = rank > 0;
    if (rank == 0) return RP_OK;
    if (!b->adapters && !(b->adapters = base_calloc(1, sizeof(*b->adapters))))
        return base_fail_memory(err, sizeof(*b->adapters), "an adapter");
    return reserve(b->adapters, b->step->n_rows, rank, err);
}

bool cpu_adapters_are_on(const backend *self) { return ((const cpu_backend *)self)->is_adapted; }

/* ---- products ---- */

typedef struct adapt_job {
    cpu_backend *b;
    const backend_buffer *src;
    adapter_part *parts;
    int32_t n_parts;
} adapt_job;

static int32_t list_groups(const cpu_backend *b, const int32_t *indices, int32_t rows) {
    adapter_group *groups = b->adapters->groups;
    int32_t n = 0;
    for (int32_t r = 0; r < rows; r++) {
        const model_row *row = &b->step->rows[indices ? indices[r] : r];
        adapter_group *last = n > 0 ? &groups[n - 1] : NULL;
        if (!row->adapter) continue;
        if (last && last->row + last->n_rows == r && last->adapter == row->adapter && last->scale == row->adapter_scale)
            last->n_rows++;
        else groups[n++] = (adapter_group){row->adapter, row->adapter_scale, r, 1};
    }
    return n;
}

static int64_t n_tasks(int64_t n_out) { return BASE_DIV_UP(n_out, OUTPUTS_PER_TASK); }

/* Parts of all groups and weights that the groups' adapters change. *tasks_a, *tasks_b: their tasks. */
static int32_t list_parts(cpu_backend *b, int32_t n_groups, int32_t n, const model_weight *const *weights,
                          backend_buffer *const *dst, int64_t *tasks_a, int64_t *tasks_b) {
    cpu_adapters *x = b->adapters;
    int32_t n_parts = 0;
    *tasks_a = *tasks_b = 0;
    for (int32_t g = 0; g < n_groups; g++)
        for (int32_t i = 0; i < n; i++) {
            const adapter_group *group = &x->groups[g];
            const adapter_matrix *m = &group->adapter->matrices[weights[i]->matrix];
            BASE_DCHECK(weights[i]->matrix < b->net->n_matrices && m->a.n_out <= x->max_rank);
            if (!m->a.data) continue;
            float *low = x->low + ((int64_t)i * x->cap_rows + group->row) * x->max_rank;
            x->parts[n_parts++] = (adapter_part){group, m, low, dst[i], *tasks_a, *tasks_b};
            *tasks_a += n_tasks(m->a.n_out);
            *tasks_b += n_tasks(m->b.n_out);
        }
    return n_parts;
}

static void multiply_low(const adapt_job *j, const adapter_part *p, int64_t begin) {
    const model_weight *a = &p->matrix->a;
    BASE_DCHECK(begin < a->n_out && a->n_in <= j->src->width);
    j->b->kernels.linear[a->type](a->data, a->n_in, begin, BASE_MIN(begin + OUTPUTS_PER_TASK, a->n_out),
                                  cpu_row_of(j->src, p->group->row), (int64_t)sizeof(float) * j->src->width,
                                  p->group->n_rows, p->low, a->n_out);
}

static void add_high(const adapt_job *j, const adapter_part *p, int64_t begin) {
    const model_weight *w = &p->matrix->b;
    const int64_t n = BASE_MIN(OUTPUTS_PER_TASK, w->n_out - begin), rank = w->n_in;
    const char *data =
        (const char *)w->data + begin * kernel_row_bytes(w->type, w->n_in); /* begins a group of packed rows */
    const float factor = p->group->scale * p->matrix->factor;
    BASE_DCHECK(n > 0 && rank == p->matrix->a.n_out);
    float product[ROWS_PER_TILE * OUTPUTS_PER_TASK];
    for (int32_t r = 0; r < p->group->n_rows; r += ROWS_PER_TILE) {
        const int32_t rows = BASE_MIN(ROWS_PER_TILE, p->group->n_rows - r);
        j->b->kernels.linear[w->type](data, rank, 0, n, p->low + r * rank, (int64_t)sizeof(float) * rank, rows, product,
                                      OUTPUTS_PER_TASK);
        for (int32_t k = 0; k < rows; k++) {
            float *y = cpu_row_at(p->dst, p->group->row + r + k) + begin;
            j->b->kernels.add(y, product + k * OUTPUTS_PER_TASK, factor, y, n);
        }
    }
}

/* The last part that begins at the task or before it; they are few. */
static const adapter_part *part_of(const adapt_job *j, int64_t task, bool is_b) {
    int32_t i = 0;
    while (i + 1 < j->n_parts && (is_b ? j->parts[i + 1].first_b : j->parts[i + 1].first_a) <= task) i++;
    return &j->parts[i];
}

static void low_tasks(void *arg, int64_t begin, int64_t end, int thread) {
    const adapt_job *j = arg;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        const adapter_part *p = part_of(j, t, false);
        multiply_low(j, p, (t - p->first_a) * OUTPUTS_PER_TASK);
    }
}

static void high_tasks(void *arg, int64_t begin, int64_t end, int thread) {
    const adapt_job *j = arg;
    (void)thread;
    for (int64_t t = begin; t < end; t++) {
        const adapter_part *p = part_of(j, t, true);
        add_high(j, p, (t - p->first_b) * OUTPUTS_PER_TASK);
    }
}

void cpu_adapt(backend *self, const backend_buffer *src, const int32_t *indices, int32_t rows, int32_t n,
               const model_weight *const *weights, backend_buffer *const *dst) {
    cpu_backend *b = (cpu_backend *)self;
    int64_t tasks_a, tasks_b;
    BASE_ASSERT(b->is_adapted);
    BASE_ASSERT(n <= BACKEND_MAX_WEIGHTS && rows <= b->adapters->cap_rows);
    const int32_t n_parts = list_parts(b, list_groups(b, indices, rows), n, weights, dst, &tasks_a, &tasks_b);
    adapt_job j = {.b = b, .src = src, .parts = b->adapters->parts, .n_parts = n_parts};
    if (n_parts == 0) return;
    base_threads_for(b->threads, low_tasks, &j, tasks_a, 1);
    base_threads_for(b->threads, high_tasks, &j, tasks_b, 1);
}
