/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_recurrence.c: layers with states: running states (recurrent_states.h has their layout), scratch, and a
 * table of the kinds of layers.
 *
 * A scan divides channels or heads among threads, and each goes through the rows of the step in their order: an
 * element's arithmetic depends neither on the division nor on where steps begin. Stages without a state are divided by
 * rows.
 *
 * A tentative run of rows leaves its states alone: it is scanned on a copy of each head's matrix, and the inputs of the
 * layer are kept. states_accept scans those of the accepted rows again, now from the states themselves: the same bytes
 * as if no other row had been in the step, and no weight is read.
 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/recurrent_states.h"

#define ELEMENTS_PER_TASK 1024
#define CHANNELS_PER_TASK 256
#define ROWS_PER_TASK 4
#define ROWS_PER_CALL 64 /* of a kernel: their factors are on the stack */

struct backend_states {
    char *data;
};

/* Rows [first, end) of one sequence in a step. */
typedef struct scan_run {
    backend_states *states;
    int32_t first, end;
    int32_t kept; /* of a tentative run: its first row in cpu_recurrent.kept; -1: it is none */
} scan_run;

/* What a backend has besides running states. */
struct cpu_recurrent {
    float **convolutions;      /* [n_layers]: weights of a layer's convolution as [kernel][channels]; NULL: none */
    float **decays;            /* [n_layers]: a of Mamba1 as [state][channels]; NULL: none */
    backend_buffer *convolved; /* [max_rows][channels]; NULL: not needed */
    scan_run *runs;            /* [max_rows]: n_runs of the step */
    int32_t n_runs;
    /* Of tentative runs; NULL, and 0: there are none */
    recurrent_kept kept; /* of max_tentative rows */
    float *scratch;      /* copies of a layer's matrices, by head */
    int32_t max_tentative;
};

static const cpu_backend *cpu(const backend *b) { return (const cpu_backend *)b; }

static size_t state_at(const cpu_backend *b, int32_t layer) { return recurrent_state_at(&b->shape, layer); }

static int states_new(backend *self, backend_states **out, rp_error *err) {
    const size_t bytes = state_at(cpu(self), cpu(self)->shape.n_layers);
    *out = base_alloc(sizeof(**out));
    if (!*out) return base_fail_memory(err, sizeof(**out), "states of recurrent layers");
    if (!((*out)->data = base_alloc_aligned(bytes, RECURRENT_STATE_ALIGNMENT))) {
        base_free(*out);
        *out = NULL;
        return base_fail_memory(err, bytes, "states of recurrent layers");
    }
    memset((*out)->data, 0, bytes);
    return RP_OK;
}

static void states_free(backend *self, backend_states *states) {
    (void)self;
    if (!states) return;
    base_free(states->data);
    base_free(states);
}

static void states_load(backend *self, backend_states *states, const kv_span *from) {
    for (int32_t l = 0; l < cpu(self)->shape.n_layers; l++)
        if (cpu(self)->shape.layers[l].kind == KV_STATE)
            kv_span_get_state(from, l, states->data + state_at(cpu(self), l));
}

static void states_save(backend *self, const backend_states *states, kv_span *to) {
    for (int32_t l = 0; l < cpu(self)->shape.n_layers; l++)
        if (cpu(self)->shape.layers[l].kind == KV_STATE)
            kv_span_put_state(to, l, states->data + state_at(cpu(self), l));
}

/* ---- composition ---- */

static void states_begin(backend *self, backend_states *states) {
    const cpu_backend *b = cpu(self);
    if (!model_states_compose(b->net)) return;
    for (int32_t l = 0; l < b->shape.n_layers; l++) {
        if (b->shape.layers[l].kind != KV_STATE) continue;
        recurrent_state_begin(b->net, (float *)(void *)(states->data + state_at(b, l)));
    }
}

static int states_compose(backend *self, backend_states *states, const kv_span *end, const kv_span *begin,
                          rp_error *err) {
    const cpu_backend *b = cpu(self);
    const size_t bytes = model_state_bytes(b->net);
    BASE_ASSERT(model_states_compose(b->net));
    char *copies = base_alloc(2 * bytes); /* of `end` and `begin` */
    if (!copies) return base_fail_memory(err, 2 * bytes, "states of recurrent layers");
    for (int32_t l = 0; l < b->shape.n_layers; l++) {
        if (b->shape.layers[l].kind != KV_STATE) continue;
        BASE_ASSERT(b->shape.layers[l].state_bytes == bytes);
        kv_span_get_state(end, l, copies);
        if (begin) kv_span_get_state(begin, l, copies + bytes);
        recurrent_state_compose(b->net, (float *)(void *)(states->data + state_at(b, l)),
                                (const float *)(const void *)copies,
                                begin ? (const float *)(const void *)(copies + bytes) : NULL);
    }
    base_free(copies);
    return RP_OK;
}

/* ---- a scan ---- */

/* One layer of a step. */
typedef struct scan_job scan_job;
struct scan_job {
    const cpu_backend *b;
    const model_layer *layer;
    const float *weights; /* of the convolution */
    const float *decays;  /* cpu_recurrent.decays of the layer */
    const scan_run *runs; /* [n_runs], of n_rows rows from first_row on */
    int32_t n_runs, first_row, n_rows;
    size_t at;       /* of the layer in states */
    int64_t conv_at; /* in[0]: the first column that the convolution reads */
    backend_buffer *const *in;
    int n_conv_inputs; /* in[0], in[1] ... have equal parts of the convolution's channels */
    backend_buffer *convolved, *dst;
    /* products: of decays, by head (Mamba2); NULL: the state is a copy that is discarded, without products */
    void (*rows_of_head)(const scan_job *j, int64_t head, float *state, float *products, int32_t first, int32_t end);
};

static float *scan_run_state(const scan_job *j, const scan_run *run) {
    return (float *)(void *)(run->states->data + j->at);
}

/* The matrices of a layer's state from element `at` on. */
static float *scan_run_matrices(const scan_job *j, const scan_run *run, int64_t at) {
    const model_hparams *hp = &j->b->net->hp;
    return scan_run_state(j, run) + (hp->recurrent.kernel - 1) * hp->recurrent.channels + at;
}

/* A run, channels [begin, last): dst = convolution of src, whose column src_at is the first channel's; the inputs of
 * the state become the last ones. */
static void convolve_rows(const scan_job *j, const scan_run *run, const backend_buffer *src, int64_t src_at,
                          backend_buffer *dst, int64_t begin, int64_t last) {
    const int32_t kernel = j->b->net->hp.recurrent.kernel, channels = j->b->net->hp.recurrent.channels;
    const int32_t first = run->first, end = run->end;
    const float *bias = j->layer->recurrent.conv_bias.data;
    float *inputs = scan_run_state(j, run);
    BASE_ASSERT(kernel > 1 && kernel <= MODEL_MAX_KERNEL && last <= channels);
    BASE_ASSERT(src_at + begin >= 0 && src_at + last <= src->width);
    for (int32_t r = first; r < end; r++) {
        const float *x[MODEL_MAX_KERNEL];
        for (int32_t i = 0; i < kernel; i++) {
            const int32_t row = r - (kernel - 1) + i;
            x[i] = row >= first ? cpu_row_of(src, row) + src_at : inputs + (row - first + kernel - 1) * channels;
            x[i] += begin;
        }
        j->b->kernels.convolve(x, kernel, j->weights + begin, channels, bias ? bias + begin : NULL,
                               cpu_row_at(dst, r) + begin, last - begin);
    }
    for (int32_t i = 0; i < kernel - 1 && run->kept < 0; i++) {
        const int32_t row = end - (kernel - 1) + i;
        const float *from = row >= first ? cpu_row_of(src, row) + src_at : inputs + (i + end - first) * channels;
        memcpy(inputs + i * channels + begin, from + begin, sizeof(float) * (size_t)(last - begin));
    }
}

/* ---- short convolutions ---- */

static void multiply(float *y, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] *= x[i];
}

static void short_conv_part(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const scan_job *j = arg;
    const int64_t n = j->b->net->hp.recurrent.channels; /* of each of B, C, x */
    for (const scan_run *run = j->runs; run < j->runs + j->n_runs; run++) {
        for (int32_t r = run->first; r < run->end; r++)
            multiply(cpu_row_at(j->in[0], r) + 2 * n + begin, cpu_row_of(j->in[0], r) + begin, end - begin);
        convolve_rows(j, run, j->in[0], 2 * n, j->dst, begin, end);
        for (int32_t r = run->first; r < run->end; r++)
            multiply(cpu_row_at(j->dst, r) + begin, cpu_row_of(j->in[0], r) + n + begin, end - begin);
    }
}

static void scan_short_conv(scan_job *j) {
    const int32_t channels = j->b->net->hp.recurrent.channels;
    BASE_ASSERT(j->in[0]->width == 3 * channels && j->dst->width == channels);
    base_threads_for(j->b->threads, short_conv_part, j, channels, CHANNELS_PER_TASK);
}

/* ---- Mamba2, and what delta nets share with it ---- */

/* Channels [begin, end) of CONVOLVED = SiLU of the convolution of input i. */
static void convolve_input(const scan_job *j, int i, int64_t begin, int64_t end) {
    const int64_t first_channel = j->b->net->hp.recurrent.channels / j->n_conv_inputs * i;
    for (const scan_run *run = j->runs; run < j->runs + j->n_runs; run++) {
        convolve_rows(j, run, j->in[i], j->conv_at - first_channel, j->convolved, begin, end);
        for (int32_t r = run->first; r < run->end; r++) {
            float *y = cpu_row_at(j->convolved, r) + begin;
            j->b->kernels.act[KERNEL_SILU](y, NULL, y, end - begin);
        }
    }
}

/* The same of all inputs. */
static void convolve_part(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const scan_job *j = arg;
    const int64_t width = j->b->net->hp.recurrent.channels / j->n_conv_inputs; /* of an input */
    for (int i = 0; i < j->n_conv_inputs; i++) {
        const int64_t from = BASE_MAX(begin, i * width), to = BASE_MIN(end, (i + 1) * width);
        if (from < to) convolve_input(j, i, from, to);
    }
}

/* log(1 + exp(x)) */
static float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

/* A head's rows [first, end) of one sequence, at most ROWS_PER_CALL. state: of the head */
static void mamba2_rows(const scan_job *j, int64_t head, float *state, float *products, int32_t first, int32_t end) {
    const model_network *net = j->b->net;
    const int64_t dim = net->hp.recurrent.head_dim, n_state = net->hp.recurrent.state_dim;
    const int64_t n_heads = net->hp.recurrent.n_heads, n_groups = net->hp.recurrent.n_groups;
    const int64_t channels = net->hp.recurrent.channels, inner = n_heads * dim;
    const float *dt_bias = j->layer->recurrent.dt_bias.data, *a = j->layer->recurrent.a.data;
    const float *x = cpu_row_of(j->convolved, first) + head * dim;
    const float *b = cpu_row_of(j->convolved, first) + inner + head * n_groups / n_heads * n_state;
    float dt[ROWS_PER_CALL], decay[ROWS_PER_CALL];
    BASE_DCHECK(end - first <= ROWS_PER_CALL);
    for (int32_t r = first; r < end; r++) {
        dt[r - first] = softplus(cpu_row_of(j->in[0], r)[inner + channels + head] + dt_bias[head]);
        decay[r - first] = expf(dt[r - first] * a[head]);
    }
    for (int32_t r = first; r < end && products; r++) products[head] *= decay[r - first];
    const kernel_mamba2_rows rows = {.n = end - first,
                                     .x = x,
                                     .b = b,
                                     .c = b + n_groups * n_state,
                                     .stride = channels,
                                     .dt = dt,
                                     .decay = decay,
                                     .y = cpu_row_at(j->dst, first) + head * dim,
                                     .y_stride = inner};
    j->b->kernels.mamba2(state, n_state, dim, &rows);
}

/* All rows of some heads. */
static void heads_part(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const scan_job *j = arg;
    const model_hparams *hp = &j->b->net->hp;
    const int64_t n = (int64_t)hp->recurrent.head_dim * hp->recurrent.state_dim;
    for (int64_t head = begin; head < end; head++)
        for (const scan_run *run = j->runs; run < j->runs + j->n_runs; run++) {
            float *state = scan_run_matrices(j, run, head * n);
            float *products = scan_run_matrices(j, run, hp->recurrent.n_heads * n); /* after all matrices */
            if (run->kept >= 0) {
                state = memcpy(j->b->recurrent->scratch + head * n, state, sizeof(float) * (size_t)n);
                products = NULL;
            }
            for (int32_t first = run->first; first < run->end; first += ROWS_PER_CALL)
                j->rows_of_head(j, head, state, products, first, BASE_MIN(run->end, first + ROWS_PER_CALL));
        }
}

/* y = norm of (y + d x) * silu(z), the norm over each group of heads */
static void mamba2_gate_part(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const scan_job *j = arg;
    const kernel_table *k = &j->b->kernels;
    const model_hparams *hp = &j->b->net->hp;
    const int64_t dim = hp->recurrent.head_dim, n_groups = hp->recurrent.n_groups, inner = j->dst->width;
    const float *d = j->layer->recurrent.d.data, *weights = j->layer->recurrent.norm.weight.data;
    for (int64_t r = j->first_row + begin; r < j->first_row + end; r++) {
        float *y = cpu_row_at(j->dst, r);
        for (int64_t h = 0; h < hp->recurrent.n_heads; h++)
            k->add(y + h * dim, cpu_row_of(j->convolved, r) + h * dim, d[h], y + h * dim, dim);
        k->act[KERNEL_SILU](cpu_row_of(j->in[0], r), y, y, inner);
        for (int64_t at = 0; weights && at < inner; at += inner / n_groups)
            k->rms_norm(y + at, weights + at, hp->norm_eps, y + at, inner / n_groups);
    }
}

static void scan_mamba2(scan_job *j) {
    const model_hparams *hp = &j->b->net->hp;
    const int32_t inner = hp->recurrent.n_heads * hp->recurrent.head_dim;
    BASE_ASSERT(j->dst->width == inner && j->convolved && j->convolved->width == hp->recurrent.channels);
    BASE_ASSERT(j->in[0]->width == inner + hp->recurrent.channels + hp->recurrent.n_heads);
    j->conv_at = inner; /* x | B | C */
    base_threads_for(j->b->threads, convolve_part, j, hp->recurrent.channels, CHANNELS_PER_TASK);
    j->rows_of_head = mamba2_rows;
    base_threads_for(j->b->threads, heads_part, j, hp->recurrent.n_heads, 1);
    base_threads_for(j->b->threads, mamba2_gate_part, j, j->n_rows, ROWS_PER_TASK);
}

/* ---- Mamba1 ---- */

static void mamba1_norm_part(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const scan_job *j = arg;
    const model_recurrent *l = &j->layer->recurrent;
    const model_hparams *hp = &j->b->net->hp;
    const int64_t n = hp->recurrent.state_dim;
    for (int64_t r = j->first_row + begin; r < j->first_row + end; r++) {
        float *b = cpu_row_at(j->in[3], r), *c = b + n;
        j->b->kernels.rms_norm(b, l->b_norm.weight.data, hp->norm_eps, b, n);
        j->b->kernels.rms_norm(c, l->c_norm.weight.data, hp->norm_eps, c, n);
    }
}

/* Channels [begin, end): y = (output + d x) silu(z) */
static void mamba1_part(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const scan_job *j = arg;
    const model_hparams *hp = &j->b->net->hp;
    const int64_t channels = hp->recurrent.channels, n_state = hp->recurrent.state_dim;
    const float *d = (const float *)j->layer->recurrent.d.data;
    for (int32_t r = j->first_row; r < j->first_row + j->n_rows; r++) {
        float *dt = cpu_row_at(j->in[2], r);
        for (int64_t i = begin; i < end; i++) dt[i] = softplus(dt[i]);
    }
    for (const scan_run *run = j->runs; run < j->runs + j->n_runs; run++) {
        const int32_t first = run->first;
        const float *b = cpu_row_of(j->in[3], first);
        const kernel_mamba1_rows rows = {.n = run->end - first,
                                         .x = cpu_row_of(j->in[1], first) + begin,
                                         .dt = cpu_row_of(j->in[2], first) + begin,
                                         .b = b,
                                         .c = b + n_state,
                                         .y = cpu_row_at(j->dst, first) + begin,
                                         .stride = channels,
                                         .bc_stride = 2 * n_state};
        float *state = scan_run_matrices(j, run, begin);
        if (run->kept >= 0) {
            float *copy = j->b->recurrent->scratch + begin;
            for (int64_t i = 0; i < n_state; i++)
                memcpy(copy + i * channels, state + i * channels, sizeof(float) * (size_t)(end - begin));
            state = copy;
        }
        j->b->kernels.mamba1(state, j->decays + begin, channels, n_state, end - begin, &rows);
    }
    for (int32_t r = j->first_row; r < j->first_row + j->n_rows; r++) {
        float *y = cpu_row_at(j->dst, r) + begin;
        const float *x = cpu_row_of(j->in[1], r) + begin;
        for (int64_t i = 0; i < end - begin; i++) y[i] += d[begin + i] * x[i];
        j->b->kernels.act[KERNEL_SILU](cpu_row_of(j->in[0], r) + channels + begin, y, y, end - begin);
    }
}

static void scan_mamba1(scan_job *j) {
    const model_hparams *hp = &j->b->net->hp;
    const int32_t channels = hp->recurrent.channels;
    BASE_ASSERT(j->dst->width == channels && j->in[0]->width == 2 * channels && j->in[1]->width == channels);
    BASE_ASSERT(j->in[2]->width == channels && j->in[3]->width == 2 * hp->recurrent.state_dim && j->decays);
    if (j->layer->recurrent.b_norm.weight.data)
        base_threads_for(j->b->threads, mamba1_norm_part, j, j->n_rows, ROWS_PER_TASK);
    base_threads_for(j->b->threads, mamba1_part, j, channels, CHANNELS_PER_TASK);
}

/* ---- delta nets ---- */

/* Reorders joint inputs, q | k | v | z of each group, to q | k | v | z of all; z moves up in place, the last first. */
static void delta_order_part(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const scan_job *j = arg;
    const model_hparams *hp = &j->b->net->hp;
    const size_t n = (size_t)hp->recurrent.state_dim, n_groups = (size_t)hp->recurrent.n_groups;
    const size_t v = (size_t)j->dst->width / n_groups, each = 2 * (n + v), channels = n_groups * (2 * n + v);
    for (int64_t r = j->first_row + begin; r < j->first_row + end; r++) {
        float *x = cpu_row_at(j->in[0], r), *to = cpu_row_at(j->convolved, r);
        for (size_t g = 0; g < n_groups; g++) {
            memcpy(to + g * n, x + g * each, n * sizeof(float));
            memcpy(to + (n_groups + g) * n, x + g * each + n, n * sizeof(float));
            memcpy(to + 2 * n_groups * n + g * v, x + g * each + 2 * n, v * sizeof(float));
        }
        for (size_t g = n_groups; g-- > 0;)
            memmove(x + channels + g * v, x + g * each + 2 * n + v, v * sizeof(float));
        memcpy(x, to, channels * sizeof(float));
    }
}

/* Keys and queries of each group get the length 1, queries then 1 / sqrt(dimensions). */
static void delta_norm_part(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const scan_job *j = arg;
    const model_hparams *hp = &j->b->net->hp;
    const int64_t n = hp->recurrent.state_dim, n_groups = hp->recurrent.n_groups;
    for (int64_t r = j->first_row + begin; r < j->first_row + end; r++) {
        float *x = cpu_row_at(j->convolved, r);
        for (int64_t g = 0; g < 2 * n_groups; g++, x += n) {
            double squares = 0;
            for (int64_t i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];
            const double length = sqrt((squares + RECURRENT_QK_EPSILON) * (double)(g < n_groups ? n : 1));
            j->b->kernels.scale(x, (float)(1 / length), n);
        }
    }
}

/* A head's rows [first, end) of one sequence, at most ROWS_PER_CALL. state: of the head */
static void delta_rows(const scan_job *j, int64_t head, float *state, BASE_UNUSED float *products, int32_t first,
                       int32_t end) {
    const model_hparams *hp = &j->b->net->hp;
    const int64_t dim = hp->recurrent.head_dim, n_state = hp->recurrent.state_dim, channels = hp->recurrent.channels;
    const int64_t n_heads = hp->recurrent.n_heads, n_groups = hp->recurrent.n_groups, in_group = n_heads / n_groups;
    const int64_t group = hp->recurrent.neighbours ? head / in_group : head % n_groups;
    const int64_t beta_at = hp->recurrent.neighbours ? head + group * in_group : head;
    const backend_buffer *rates = hp->recurrent.neighbours ? j->in[2] : j->in[3];
    const int64_t rate_at = hp->recurrent.neighbours ? beta_at + in_group : head;
    const float *dt_bias = j->layer->recurrent.dt_bias.data, *a = j->layer->recurrent.a.data;
    const float *q = cpu_row_of(j->convolved, first) + group * n_state;
    float beta[ROWS_PER_CALL], decay[ROWS_PER_CALL];
    BASE_DCHECK(end - first <= ROWS_PER_CALL);
    for (int32_t r = first; r < end; r++) {
        beta[r - first] = 1.0f / (1.0f + expf(-cpu_row_of(j->in[2], r)[beta_at]));
        decay[r - first] = expf(softplus(cpu_row_of(rates, r)[rate_at] + dt_bias[head]) * a[head]);
    }
    const kernel_delta_rows rows = {.n = end - first,
                                    .q = q,
                                    .k = q + n_groups * n_state,
                                    .v = cpu_row_of(j->convolved, first) + 2 * n_groups * n_state + head * dim,
                                    .stride = channels,
                                    .beta = beta,
                                    .decay = decay,
                                    .y = cpu_row_at(j->dst, first) + head * dim,
                                    .y_stride = n_heads * dim};
    j->b->kernels.delta(state, n_state, dim, &rows);
}

/* y = norm of each head's y, times silu(z), or sigmoid(z) */
static void delta_gate_part(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const scan_job *j = arg;
    const model_hparams *hp = &j->b->net->hp;
    const int64_t dim = hp->recurrent.head_dim, inner = j->dst->width;
    const bool is_kimi = j->layer->mixer == MODEL_KIMI_DELTA;
    for (int64_t r = j->first_row + begin; r < j->first_row + end; r++) {
        float *y = cpu_row_at(j->dst, r);
        const float *z = hp->recurrent.joint ? cpu_row_of(j->in[0], r) + hp->recurrent.channels
                                             : cpu_row_of(j->in[is_kimi ? 5 : 1], r);
        for (int64_t at = 0; at < inner; at += dim)
            j->b->kernels.rms_norm(y + at, j->layer->recurrent.norm.weight.data, hp->norm_eps, y + at, dim);
        j->b->kernels.act[is_kimi ? KERNEL_SIGMOID : KERNEL_SILU](z, y, y, inner);
    }
}

static void scan_delta_net(scan_job *j) {
    const model_hparams *hp = &j->b->net->hp;
    const int32_t inner = hp->recurrent.n_heads * hp->recurrent.head_dim;
    BASE_ASSERT(j->dst->width == inner && j->convolved);
    BASE_ASSERT(j->in[0]->width == hp->recurrent.channels + (hp->recurrent.joint ? inner : 0));
    BASE_ASSERT(j->in[2]->width == (hp->recurrent.neighbours ? 2 : 1) * hp->recurrent.n_heads);
    if (hp->recurrent.joint) base_threads_for(j->b->threads, delta_order_part, j, j->n_rows, ROWS_PER_TASK);
    base_threads_for(j->b->threads, convolve_part, j, hp->recurrent.channels, CHANNELS_PER_TASK);
    base_threads_for(j->b->threads, delta_norm_part, j, j->n_rows, ROWS_PER_TASK);
    j->rows_of_head = delta_rows;
    base_threads_for(j->b->threads, heads_part, j, hp->recurrent.n_heads, 1);
    base_threads_for(j->b->threads, delta_gate_part, j, j->n_rows, ROWS_PER_TASK);
}

/* ---- Kimi delta attention ---- */

/* [4] dt = decays of the dimensions of keys; [1] = the convolved keys times these. */
static void kimi_decay_part(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const scan_job *j = arg;
    const int64_t n = j->b->net->hp.recurrent.state_dim, inner = j->dst->width;
    const float *a = j->layer->recurrent.a.data;
    for (int64_t r = j->first_row + begin; r < j->first_row + end; r++) {
        float *decay = cpu_row_at(j->in[4], r), *decayed = cpu_row_at(j->in[1], r);
        const float *k = cpu_row_of(j->convolved, r) + inner;
        for (int64_t i = 0; i < inner; i++) {
            decay[i] = expf(softplus(decay[i]) * a[i / n]);
            decayed[i] = decay[i] * k[i];
        }
    }
}

/* A head's rows [first, end) of one sequence, at most ROWS_PER_CALL. state: of the head */
static void kimi_rows(const scan_job *j, int64_t head, float *state, BASE_UNUSED float *products, int32_t first,
                      int32_t end) {
    const model_hparams *hp = &j->b->net->hp;
    const int64_t dim = hp->recurrent.head_dim, channels = hp->recurrent.channels, inner = j->dst->width;
    const float *q = cpu_row_of(j->convolved, first) + head * dim;
    float beta[ROWS_PER_CALL];
    BASE_DCHECK(end - first <= ROWS_PER_CALL);
    for (int32_t r = first; r < end; r++) beta[r - first] = 1.0f / (1.0f + expf(-cpu_row_of(j->in[3], r)[head]));
    const kernel_delta_rows rows = {.n = end - first,
                                    .q = q,
                                    .k = q + inner,
                                    .v = q + 2 * inner,
                                    .stride = channels,
                                    .beta = beta,
                                    .decays = cpu_row_of(j->in[4], first) + head * dim,
                                    .decayed_k = cpu_row_of(j->in[1], first) + head * dim,
                                    .decay_stride = inner,
                                    .y = cpu_row_at(j->dst, first) + head * dim,
                                    .y_stride = inner};
    j->b->kernels.delta(state, dim, dim, &rows);
}

static void scan_kimi_delta(scan_job *j) {
    const model_hparams *hp = &j->b->net->hp;
    const int32_t inner = hp->recurrent.n_heads * hp->recurrent.head_dim, n_rows = j->n_rows;
    BASE_ASSERT(hp->recurrent.state_dim == hp->recurrent.head_dim && hp->recurrent.n_groups == hp->recurrent.n_heads);
    BASE_ASSERT(j->dst->width == inner && j->convolved && hp->recurrent.channels == 3 * inner);
    for (int i = 0; i < MODEL_MAX_SCANNED; i++)
        BASE_ASSERT(j->in[i]->width == (i == 3 ? hp->recurrent.n_heads : inner));
    j->n_conv_inputs = 3;
    base_threads_for(j->b->threads, convolve_part, j, hp->recurrent.channels, CHANNELS_PER_TASK);
    base_threads_for(j->b->threads, delta_norm_part, j, n_rows, ROWS_PER_TASK);
    base_threads_for(j->b->threads, kimi_decay_part, j, n_rows, ROWS_PER_TASK);
    j->rows_of_head = kimi_rows;
    base_threads_for(j->b->threads, heads_part, j, hp->recurrent.n_heads, 1);
    base_threads_for(j->b->threads, delta_gate_part, j, n_rows, ROWS_PER_TASK);
}

/* ---- decayed sums ---- */

static void decayed_sum_part(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const scan_job *j = arg;
    const float *decay = j->layer->recurrent.decay.data;
    for (const scan_run *run = j->runs; run < j->runs + j->n_runs; run++) {
        float *state = scan_run_state(j, run), *copy = j->b->recurrent->scratch;
        if (run->kept >= 0) memcpy(copy + begin, state + begin, sizeof(float) * (size_t)(end - begin));
        if (run->kept >= 0) state = copy;
        for (int32_t r = run->first; r < run->end; r++) {
            const float *x = cpu_row_of(j->in[0], r);
            float *y = cpu_row_at(j->dst, r);
            for (int64_t i = begin; i < end; i++) y[i] = state[i] = decay[i] * state[i] + x[i];
        }
    }
}

static void scan_decayed_sum(scan_job *j) {
    BASE_ASSERT(j->in[0]->width == j->dst->width);
    BASE_ASSERT(j->b->shape.layers[j->layer->recurrence].state_bytes == sizeof(float) * (size_t)j->dst->width);
    base_threads_for(j->b->threads, decayed_sum_part, j, j->dst->width, ELEMENTS_PER_TASK);
}

/* ---- all kinds ---- */

static void (*const kinds[])(scan_job *j) = {
    [MODEL_SHORT_CONV] = scan_short_conv,
    [MODEL_MAMBA2] = scan_mamba2,
    [MODEL_MAMBA1] = scan_mamba1,
    [MODEL_ATTENTION_MAMBA2] = scan_mamba2,
    [MODEL_DELTA_NET] = scan_delta_net,
    [MODEL_KIMI_DELTA] = scan_kimi_delta,
    [MODEL_DECAYED_SUM] = scan_decayed_sum,
};

static scan_job job_of(const cpu_backend *b, int32_t layer, const scan_run *runs, int32_t n_runs,
                       backend_buffer *const *in) {
    const model_layer *l = &b->net->layers[layer];
    BASE_ASSERT(model_mixer_recurs(l->mixer) && kinds[l->mixer] && n_runs > 0);
    return (scan_job){.b = b,
                      .layer = l,
                      .weights = b->recurrent->convolutions[layer],
                      .decays = b->recurrent->decays[layer],
                      .runs = runs,
                      .n_runs = n_runs,
                      .first_row = runs[0].first,
                      .n_rows = runs[n_runs - 1].end - runs[0].first,
                      .at = state_at(b, l->recurrence),
                      .n_conv_inputs = 1,
                      .in = in};
}

static scan_job job_of_step(const cpu_backend *b, int32_t layer, backend_buffer *const *in) {
    return job_of(b, layer, b->recurrent->runs, b->recurrent->n_runs, in);
}

/* The inputs of tentative rows, before the scan changes them. */
static void keep_inputs(const scan_job *j, int32_t layer) {
    const struct cpu_recurrent *r = j->b->recurrent;
    for (const scan_run *run = j->runs; run < j->runs + j->n_runs; run++)
        for (int i = 0; i < MODEL_MAX_SCANNED && run->kept >= 0; i++) {
            backend_buffer *to = r->kept.inputs[layer][i];
            if (!to) continue;
            BASE_ASSERT(to->width == j->in[i]->width && run->kept + run->end - run->first <= r->max_tentative);
            memcpy(cpu_row_at(to, run->kept), cpu_row_of(j->in[i], run->first),
                   sizeof(float) * (size_t)to->width * (size_t)(run->end - run->first));
        }
}

static void scan(backend *self, int32_t layer, backend_buffer *const *in, backend_buffer *dst) {
    scan_job j = job_of_step(cpu(self), layer, in);
    keep_inputs(&j, layer);
    j.convolved = j.b->recurrent->convolved;
    j.dst = dst;
    kinds[j.layer->mixer](&j);
}

static void convolve(backend *self, int32_t layer, backend_buffer *src, backend_buffer *dst) {
    scan_job j = job_of_step(cpu(self), layer, &src);
    BASE_ASSERT(j.layer->mixer == MODEL_MAMBA1 && dst->width == j.b->net->hp.recurrent.channels);
    j.convolved = dst;
    base_threads_for(j.b->threads, convolve_part, &j, dst->width, CHANNELS_PER_TASK);
}

/* One layer, from kept rows [first, end) on. Mamba1 keeps the result of the convolution: here that moves its inputs
 * only. */
static void accept_rows(const cpu_backend *b, int32_t layer, const scan_run *run) {
    scan_job j = job_of(b, layer, run, 1, b->recurrent->kept.inputs[layer]);
    j.dst = b->recurrent->kept.accepted;
    j.dst->width = (int32_t)j.layer->recurrent.out.n_in;
    j.convolved = j.layer->mixer == MODEL_MAMBA1 ? j.dst : b->recurrent->convolved;
    if (j.layer->mixer == MODEL_MAMBA1)
        base_threads_for(b->threads, convolve_part, &j, j.dst->width, CHANNELS_PER_TASK);
    kinds[j.layer->mixer](&j);
}

static void states_accept(backend *self, backend_states *states, int32_t n) {
    const cpu_backend *b = cpu(self);
    struct cpu_recurrent *r = b->recurrent;
    scan_run *run = r->runs;
    while (run < r->runs + r->n_runs && run->states != states) run++;
    BASE_ASSERT(run < r->runs + r->n_runs && run->kept >= 0 && n >= 0 && n <= run->end - run->first);
    const scan_run accepted = {.states = states, .first = run->kept, .end = run->kept + n, .kept = -1};
    run->states = NULL; /* once */
    for (int32_t l = 0; l < b->net->hp.n_layers && n > 0; l++)
        if (model_mixer_recurs(b->net->layers[l].mixer)) accept_rows(b, l, &accepted);
}

void cpu_recurrence_begin(cpu_backend *b) {
    struct cpu_recurrent *r = b->recurrent;
    const model_step *step = b->step;
    int32_t n_kept = 0;
    r->n_runs = 0;
    for (int32_t first = 0, end; first < step->n_rows; first = end) {
        const int32_t context = step->rows[first].context;
        for (end = first + 1; end < step->n_rows && step->rows[end].context == context;) end++;
        scan_run *run = &r->runs[r->n_runs++];
        *run = (scan_run){.states = step->states[context], .first = first, .end = end, .kept = -1};
        if (!step->tentative || !step->tentative[context]) continue;
        run->kept = n_kept;
        n_kept += end - first;
    }
    BASE_ASSERT(n_kept <= r->max_tentative);
}

/* ---- opening ---- */

/* Weights of a convolution in parts of its channels, or decays, channel by channel, as the kernel reads them: tap by
 * tap, or dimension by dimension. RP_ERR_MEMORY. */
static int transpose(const model_weight *parts, int max_parts, float **out, rp_error *err) {
    int n_parts = 0;
    while (n_parts < max_parts && parts[n_parts].data) n_parts++;
    const int64_t n = parts->n_in, width = parts->n_out, channels = n_parts * width;
    float *to = *out = base_alloc(sizeof(*to) * (size_t)(n * channels));
    if (!to) return base_fail_memory(err, sizeof(*to) * (uint64_t)(n * channels), "recurrent layers");
    for (int p = 0; p < n_parts; p++) {
        const float *from = parts[p].data;
        BASE_ASSERT(parts[p].n_in == n && parts[p].n_out == width);
        for (int64_t i = 0; i < n * width; i++) to[i % n * channels + p * width + i / n] = from[i];
    }
    return RP_OK;
}

/* For tentative rows. RP_ERR_MEMORY. */
static int open_kept(cpu_backend *b, rp_error *err) {
    struct cpu_recurrent *r = b->recurrent;
    size_t bytes = 0;
    if (r->max_tentative == 0) return RP_OK;
    for (int32_t l = 0; l < b->net->hp.n_layers; l++)
        if (model_mixer_recurs(b->net->layers[l].mixer))
            bytes = BASE_MAX(bytes, (size_t)b->shape.layers[b->net->layers[l].recurrence].state_bytes);
    if (!(r->scratch = base_alloc_aligned(bytes, RECURRENT_STATE_ALIGNMENT)))
        return base_fail_memory(err, bytes, "recurrent layers");
    b->activation_bytes += bytes;
    return recurrent_kept_open(&r->kept, &b->base, b->net, r->max_tentative, err);
}

int cpu_recurrence_open(cpu_backend *b, int32_t max_rows, int32_t max_tentative, rp_error *err) {
    const model_hparams *hp = &b->net->hp;
    bool convolves = false; /* to a buffer: a short convolution's result is the output, Mamba1's an input */
    struct cpu_recurrent *r = b->recurrent = base_calloc(1, sizeof(*r));
    if (!r || !(r->convolutions = base_calloc((size_t)hp->n_layers, sizeof(*r->convolutions))) ||
        !(r->decays = base_calloc((size_t)hp->n_layers, sizeof(*r->decays))) ||
        !(r->runs = base_calloc((size_t)max_rows, sizeof(*r->runs))))
        return base_fail_memory(err, (uint64_t)hp->n_layers * sizeof(*r->convolutions), "recurrent layers");
    r->max_tentative = BASE_MIN(max_tentative, max_rows);
    for (int32_t l = 0; l < hp->n_layers; l++) {
        const model_weight *convs = b->net->layers[l].recurrent.convs, *a = &b->net->layers[l].recurrent.a;
        int rc;
        if (!model_mixer_recurs(b->net->layers[l].mixer) || !convs->data) continue;
        BASE_ASSERT(convs->n_in == hp->recurrent.kernel && hp->recurrent.channels % convs->n_out == 0);
        convolves |= b->net->layers[l].mixer != MODEL_SHORT_CONV && b->net->layers[l].mixer != MODEL_MAMBA1;
        if ((rc = transpose(convs, MODEL_MAX_CONVS, &r->convolutions[l], err))) return rc;
        if (b->net->layers[l].mixer == MODEL_MAMBA1 && (rc = transpose(a, 1, &r->decays[l], err))) return rc;
    }
    const int rc = open_kept(b, err);
    return rc || !convolves ? rc : cpu_buffer_new(&b->base, max_rows, hp->recurrent.channels, &r->convolved, err);
}

void cpu_recurrence_free(cpu_backend *b) {
    struct cpu_recurrent *r = b->recurrent;
    if (!r) return;
    for (int32_t l = 0; r->convolutions && l < b->net->hp.n_layers; l++) base_free(r->convolutions[l]);
    for (int32_t l = 0; r->decays && l < b->net->hp.n_layers; l++) base_free(r->decays[l]);
    base_free(r->convolutions);
    base_free(r->decays);
    base_free(r->runs);
    recurrent_kept_free(&r->kept, &b->base, b->net);
    base_free(r->scratch);
    cpu_buffer_free(&b->base, r->convolved);
    base_free(r);
}

const backend_recurrence cpu_recurrence = {
    .states_new = states_new,
    .states_free = states_free,
    .states_load = states_load,
    .states_save = states_save,
    .states_accept = states_accept,
    .states_begin = states_begin,
    .states_compose = states_compose,
    .convolve = convolve,
    .scan = scan,
};
