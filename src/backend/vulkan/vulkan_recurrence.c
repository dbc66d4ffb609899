/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_recurrence.c: recurrent layers: running states in device memory (recurrent_states.h has their layout), and
 * their scans.
 *
 * A run is the rows of one sequence in a step; the runs of a step are a table on the device (shaders/recurrence.glsl).
 * A scan of a layer:
 *
 *   inputs -> convolution, SiLU -> rates of heads or channels -> scan -> norm, gate
 *                   inputs of the states move
 *
 * recurrent_scan.comp has an invocation for each column of a head's matrix, which goes through the rows of its run in
 * their order: an element's arithmetic depends neither on the rows of a step nor on where steps begin.
 *
 * A tentative run leaves its states alone: it is scanned on a copy of the layer's matrices, and the inputs of the layer
 * are kept. states_accept scans those of the accepted rows again, from the states themselves, in a submission of its
 * own. If that fails, the states are undefined, and the device counts as lost: no step begins with them.
 */
#include <string.h>

#include "backend/recurrent_states.h"
#include "backend/vulkan/vulkan_backend.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

#define ELEMENT_GROUPS 8192u

struct backend_states {
    kv_address at; /* of the device */
};

/* Rows [first, end) of one sequence in a step. */
typedef struct scan_run {
    backend_states *states; /* NULL: a tentative run whose rows were accepted */
    int32_t first, end;
    int32_t kept; /* of a tentative run: its first row in vulkan_recurrent.kept; -1: it is none */
} scan_run;

struct vulkan_recurrent {
    /* [max_rows][..]; NULL: not needed. ordered: joint inputs, as q | k | v | z */
    backend_buffer *convolved, *ordered, *decays, *rates;
    scan_run *runs; /* [max_rows]: n_runs of the step */
    int32_t n_runs;
    uint64_t table; /* vulkan_run [n_runs] */
    /* Of tentative runs; NULL, and 0: there are none */
    recurrent_kept kept;  /* of max_tentative rows */
    vulkan_buffer copies; /* [tentative runs of a step][matrices of a layer] */
    int32_t max_tentative;
    size_t most_bytes; /* of a layer's state */
    char *host;        /* [3][most_bytes]: states of a layer on their way */
};

/* ---- states ---- */

static kv_memory *memory_of(const vulkan_backend *b) { return vulkan_memory_interface(b->memory); }

static kv_address state_at(const vulkan_backend *b, const backend_states *states, int32_t layer) {
    return kv_address_plus(states->at, recurrent_state_at(&b->shape, layer));
}

static int states_new(backend *self, backend_states **out, rp_error *err) {
    const vulkan_backend *b = vulkan(self);
    kv_memory *m = memory_of(b);
    const size_t bytes = recurrent_state_at(&b->shape, b->shape.n_layers);
    char *zeros = base_calloc(1, bytes);
    backend_states *s = zeros ? base_calloc(1, sizeof(*s)) : NULL;
    if (s) s->at = m->ops->alloc(m, bytes, 0);
    *out = NULL;
    if (s && !kv_address_is_none(s->at)) {
        m->ops->write(m, zeros, bytes, s->at);
        *out = s;
    } else base_free(s);
    base_free(zeros);
    return *out ? RP_OK : base_fail_memory(err, bytes, "states of recurrent layers");
}

static void states_free(backend *self, backend_states *states) {
    vulkan_backend *b = vulkan(self);
    kv_memory *m = memory_of(b);
    if (!states) return;
    vulkan_stream_wait(&b->stream, NULL); /* states_accept may still move them */
    m->ops->free(m, states->at);
    base_free(states);
}

/* Between a layer's state and the host's memory for it. */
static void read_state(const vulkan_backend *b, const backend_states *states, int32_t layer) {
    kv_memory *m = memory_of(b);
    m->ops->read(m, state_at(b, states, layer), b->shape.layers[layer].state_bytes, b->recurrent->host);
}

static void write_state(const vulkan_backend *b, const backend_states *states, int32_t layer) {
    kv_memory *m = memory_of(b);
    m->ops->write(m, b->recurrent->host, b->shape.layers[layer].state_bytes, state_at(b, states, layer));
}

static void states_load(backend *self, backend_states *states, const kv_span *from) {
    vulkan_backend *b = vulkan(self);
    vulkan_stream_wait(&b->stream, NULL);
    for (int32_t l = 0; l < b->shape.n_layers; l++) {
        if (b->shape.layers[l].kind != KV_STATE) continue;
        kv_span_get_state(from, l, b->recurrent->host);
        write_state(b, states, l);
    }
}

static void states_save(backend *self, const backend_states *states, kv_span *to) {
    vulkan_backend *b = vulkan(self);
    vulkan_stream_wait(&b->stream, NULL);
    for (int32_t l = 0; l < b->shape.n_layers; l++) {
        if (b->shape.layers[l].kind != KV_STATE) continue;
        read_state(b, states, l);
        kv_span_put_state(to, l, b->recurrent->host);
    }
}

static void states_begin(backend *self, backend_states *states) {
    vulkan_backend *b = vulkan(self);
    if (!model_states_compose(b->net)) return;
    vulkan_stream_wait(&b->stream, NULL);
    for (int32_t l = 0; l < b->shape.n_layers; l++) {
        if (b->shape.layers[l].kind != KV_STATE) continue;
        read_state(b, states, l);
        recurrent_state_begin(b->net, (float *)(void *)b->recurrent->host);
        write_state(b, states, l);
    }
}

static int states_compose(backend *self, backend_states *states, const kv_span *end, const kv_span *begin,
                          BASE_UNUSED rp_error *err) {
    vulkan_backend *b = vulkan(self);
    float *now = (float *)(void *)b->recurrent->host, *ends = now + b->recurrent->most_bytes / sizeof(float),
          *begins = ends + b->recurrent->most_bytes / sizeof(float);
    BASE_ASSERT(model_states_compose(b->net));
    vulkan_stream_wait(&b->stream, NULL);
    for (int32_t l = 0; l < b->shape.n_layers; l++) {
        if (b->shape.layers[l].kind != KV_STATE) continue;
        kv_span_get_state(end, l, ends);
        if (begin) kv_span_get_state(begin, l, begins);
        read_state(b, states, l);
        recurrent_state_compose(b->net, now, ends, begin ? begins : NULL);
        write_state(b, states, l);
    }
    return RP_OK;
}

/* ---- a scan ---- */

/* One layer: runs [n_runs] of n_rows rows from first_row on. */
typedef struct scan_job {
    vulkan_backend *b;
    const model_layer *layer;
    uint64_t table; /* of the runs */
    uint32_t n_runs, first_row, n_rows, most_rows;
    uint64_t at; /* of the layer in states: bytes */
    backend_buffer *const *in;
    backend_buffer *convolved, *dst;
} scan_job;

/* A buffer from the first row on. */
static uint64_t rows_of(const scan_job *j, const backend_buffer *buffer) {
    return buffer->memory.address + sizeof(float) * (uint64_t)j->first_row * (uint64_t)buffer->width;
}

static void record_elements(const scan_job *j, vulkan_shader shader, uint32_t variant, const void *args, size_t bytes,
                            uint32_t n) {
    const uint64_t groups = BASE_DIV_UP((uint64_t)j->n_rows * n, 64);
    vulkan_dispatch(j->b, shader, variant, args, bytes, (uint32_t[]){(uint32_t)BASE_MIN(groups, ELEMENT_GROUPS), 1, 1});
}

/* dst = convolution of n_inputs inputs, which have equal parts of the channels and begin at column src_at; then the
   inputs of the states move. dst NULL: these alone */
static void convolve_inputs(const scan_job *j, backend_buffer *const *in, int n_inputs, uint32_t src_at, bool is_gated,
                            const backend_buffer *dst) {
    const model_hparams *hp = &j->b->net->hp;
    const uint32_t channels = (uint32_t)hp->recurrent.channels, taps = (uint32_t)hp->recurrent.kernel;
    const uint32_t n = channels / (uint32_t)n_inputs;
    const model_weight *convs = j->layer->recurrent.convs, *bias = &j->layer->recurrent.conv_bias;
    BASE_ASSERT(taps > 1 && taps <= MODEL_MAX_KERNEL && channels % (uint32_t)n_inputs == 0);
    for (int move = dst == NULL; move < 2; move++)
        for (int i = 0; i < n_inputs; i++) {
            /* a weight may have the channels of several inputs */
            const uint32_t first = n * (uint32_t)i, own = first % (uint32_t)convs->n_out;
            const vulkan_convolve_args a = {
                .runs = j->table,
                .src = in[i]->memory.address + sizeof(float) * src_at,
                .dst = dst ? dst->memory.address + sizeof(float) * first : 0,
                .weights = vulkan_weight(j->b, &convs[first / convs->n_out]) + sizeof(float) * (uint64_t)own * taps,
                .bias = bias->data ? vulkan_weight(j->b, bias) + sizeof(float) * first : 0,
                .at = j->at + sizeof(float) * first,
                .n = n,
                .taps = taps,
                .channels = channels,
                .src_width = (uint32_t)in[i]->width,
                .dst_width = dst ? (uint32_t)dst->width : 0};
            const vulkan_convolve_op op = move ? (is_gated ? VULKAN_MOVE_GATED : VULKAN_MOVE_INPUTS)
                                               : (is_gated ? VULKAN_CONVOLVE_GATED : VULKAN_CONVOLVE_SILU);
            (i == 0 ? vulkan_dispatch : vulkan_dispatch_beside)(
                j->b, VULKAN_CONVOLVE, op, &a, sizeof(a),
                (uint32_t[]){BASE_DIV_UP(n, 64), move ? 1 : j->most_rows, j->n_runs});
        }
}

/* Steps and decays of n columns of an input: softplus(x + bias), exp(steps * factors); NULL: not wanted. */
static void make_rates(const scan_job *j, bool is_sigmoid, vulkan_rates_args a, const backend_buffer *src,
                       const backend_buffer *steps, const backend_buffer *decays) {
    a.src += rows_of(j, src);
    a.steps = steps ? rows_of(j, steps) : 0;
    a.decays = decays ? rows_of(j, decays) : 0;
    a.rows = j->n_rows;
    a.src_width = (uint32_t)src->width;
    if (a.per == 0) a.per = 1;
    if (a.run == 0) a.run = a.n;
    BASE_ASSERT((!steps || steps->width == (int32_t)a.n) && (!decays || decays->width == (int32_t)a.n));
    record_elements(j, VULKAN_RATES, is_sigmoid, &a, sizeof(a), a.n);
}

/* The heads' matrices go through the rows. a: without runs, dst, places and shape */
static void scan_heads(const scan_job *j, vulkan_scan_kind kind, vulkan_scan_args a) {
    const vulkan_backend *b = j->b;
    const model_hparams *hp = &b->net->hp;
    a.runs = j->table;
    a.dst = j->dst->memory.address;
    a.at = j->at + sizeof(float) * recurrent_matrices_at(b->net);
    a.copy_at = sizeof(float) * recurrent_matrices_at(b->net);
    a.n_heads = (uint32_t)hp->recurrent.n_heads;
    a.dim = (uint32_t)hp->recurrent.head_dim;
    a.n_state = (uint32_t)hp->recurrent.state_dim;
    a.n_groups = (uint32_t)hp->recurrent.n_groups;
    a.neighbours = hp->recurrent.neighbours;
    a.has_products = model_states_compose(b->net);
    vulkan_dispatch(j->b, VULKAN_SCAN, kind, &a, sizeof(a),
                    (uint32_t[]){BASE_DIV_UP(a.dim, 64), a.n_heads, j->n_runs});
}

/* Norms of runs of n columns of rows, in place. weight: of a run, or one for each; NULL: see vulkan_norm_kind */
static void norm_runs(const scan_job *j, vulkan_norm_kind kind, const backend_buffer *x, uint32_t column, uint32_t n,
                      uint32_t runs, const model_weight *weight, vulkan_norm_args a) {
    a.src = a.dst = rows_of(j, x) + sizeof(float) * column;
    a.weight = vulkan_weight(j->b, weight);
    a.n = n;
    a.runs = runs;
    a.weight_runs = weight && weight->n_in * weight->n_out > n ? runs : 1;
    a.n_runs = runs * j->n_rows;
    a.stride = (uint32_t)x->width;
    vulkan_norm_record(j->b, kind, &a);
}

static void gate(const scan_job *j, bool is_sigmoid, const backend_buffer *z, uint32_t z_at, const backend_buffer *x,
                 uint32_t per) {
    const vulkan_gate_args a = {.y = rows_of(j, j->dst),
                                .x = x ? rows_of(j, x) : 0,
                                .z = rows_of(j, z) + sizeof(float) * z_at,
                                .d = x ? vulkan_weight(j->b, &j->layer->recurrent.d) : 0,
                                .rows = j->n_rows,
                                .n = (uint32_t)j->dst->width,
                                .x_width = x ? (uint32_t)x->width : 0,
                                .z_width = (uint32_t)z->width,
                                .per = per};
    record_elements(j, VULKAN_GATE, is_sigmoid, &a, sizeof(a), a.n);
}

/* ---- short convolutions ---- */

static void scan_short_conv(const scan_job *j) {
    const int32_t channels = j->b->net->hp.recurrent.channels;
    BASE_ASSERT(j->in[0]->width == 3 * channels && j->dst->width == channels);
    convolve_inputs(j, j->in, 1, 0, true, j->dst);
}

/* ---- Mamba2 ---- */

static void scan_mamba2(const scan_job *j) {
    const model_hparams *hp = &j->b->net->hp;
    const model_recurrent *l = &j->layer->recurrent;
    const struct vulkan_recurrent *r = j->b->recurrent;
    const uint32_t dim = (uint32_t)hp->recurrent.head_dim, n_heads = (uint32_t)hp->recurrent.n_heads,
                   n_groups = (uint32_t)hp->recurrent.n_groups, channels = (uint32_t)hp->recurrent.channels,
                   inner = n_heads * dim;
    BASE_ASSERT(j->dst->width == (int32_t)inner && j->in[0]->width == (int32_t)(inner + channels + n_heads));
    convolve_inputs(j, j->in, 1, inner, false, j->convolved); /* x | B | C */
    make_rates(j, false,
               (vulkan_rates_args){.src = sizeof(float) * (inner + channels),
                                   .bias = vulkan_weight(j->b, &l->dt_bias),
                                   .factors = vulkan_weight(j->b, &l->a),
                                   .n = n_heads},
               j->in[0], r->rates, r->decays);
    scan_heads(j, VULKAN_SCAN_MAMBA2,
               (vulkan_scan_args){.x = j->convolved->memory.address,
                                  .decays = r->decays->memory.address,
                                  .rates = r->rates->memory.address,
                                  .width = channels});
    gate(j, false, j->in[0], 0, j->convolved, dim);
    if (l->norm.weight.data)
        norm_runs(j, VULKAN_RMS_NORM, j->dst, 0, inner / n_groups, n_groups, &l->norm.weight,
                  (vulkan_norm_args){.eps = hp->norm_eps});
}

/* ---- Mamba1 ---- */

static void scan_mamba1(const scan_job *j) {
    const model_hparams *hp = &j->b->net->hp;
    const model_recurrent *l = &j->layer->recurrent;
    const uint32_t channels = (uint32_t)hp->recurrent.channels, n = (uint32_t)hp->recurrent.state_dim;
    const vulkan_norm_args eps = {.eps = hp->norm_eps};
    BASE_ASSERT(j->dst->width == hp->recurrent.channels && j->in[0]->width == 2 * hp->recurrent.channels);
    BASE_ASSERT(j->in[1]->width == j->dst->width && j->in[2]->width == j->dst->width);
    BASE_ASSERT(j->in[3]->width == 2 * hp->recurrent.state_dim && hp->recurrent.n_heads == 1);
    if (l->b_norm.weight.data) {
        norm_runs(j, VULKAN_RMS_NORM, j->in[3], 0, n, 1, &l->b_norm.weight, eps);
        norm_runs(j, VULKAN_RMS_NORM, j->in[3], n, n, 1, &l->c_norm.weight, eps);
    }
    make_rates(j, false, (vulkan_rates_args){.n = channels}, j->in[2], j->in[2], NULL);
    scan_heads(j, VULKAN_SCAN_MAMBA1,
               (vulkan_scan_args){.x = j->in[1]->memory.address,
                                  .decays = vulkan_weight(j->b, &l->a),
                                  .rates = j->in[2]->memory.address,
                                  .bc = j->in[3]->memory.address,
                                  .width = channels});
    gate(j, false, j->in[0], channels, j->in[1], 1);
}

/* ---- delta nets ---- */

/* Keys and queries of each group get the length 1, queries then 1 / sqrt(dimensions). */
static void norm_keys(const scan_job *j) {
    const model_hparams *hp = &j->b->net->hp;
    const uint32_t n = (uint32_t)hp->recurrent.state_dim, n_groups = (uint32_t)hp->recurrent.n_groups;
    for (uint32_t keys = 0; keys < 2; keys++)
        norm_runs(j, VULKAN_LENGTH, j->convolved, keys * n_groups * n, n, n_groups, NULL,
                  (vulkan_norm_args){.eps = (float)RECURRENT_QK_EPSILON, .scale = keys ? 1.0f : (float)n});
}

/* ordered = joint inputs, q | k | v | z of each group, as q | k | v | z of all. */
static void order_inputs(const scan_job *j) {
    const model_hparams *hp = &j->b->net->hp;
    const int32_t n = hp->recurrent.state_dim, n_groups = hp->recurrent.n_groups, v = j->dst->width / n_groups;
    const int32_t widths[4] = {n, n, v, v};
    const int32_t end = (int32_t)(j->first_row + j->n_rows);
    int32_t from = 0, to = 0;
    for (int i = 0; i < 4; i++) {
        vulkan_copy_runs(&j->b->base, j->in[0], (backend_columns){from, 2 * (n + v)}, end, widths[i], n_groups,
                         j->b->recurrent->ordered, (backend_columns){to, widths[i]});
        from += widths[i];
        to += n_groups * widths[i];
    }
}

static void scan_delta_net(const scan_job *j) {
    const model_hparams *hp = &j->b->net->hp;
    const model_recurrent *l = &j->layer->recurrent;
    const struct vulkan_recurrent *r = j->b->recurrent;
    const uint32_t channels = (uint32_t)hp->recurrent.channels, n_heads = (uint32_t)hp->recurrent.n_heads,
                   dim = (uint32_t)hp->recurrent.head_dim, group = n_heads / (uint32_t)hp->recurrent.n_groups;
    const bool is_joint = hp->recurrent.joint, pairs = hp->recurrent.neighbours; /* beta | dt of each group's heads */
    BASE_ASSERT(j->dst->width == (int32_t)(n_heads * dim));
    BASE_ASSERT(j->in[0]->width == (int32_t)channels + (is_joint ? j->dst->width : 0));
    BASE_ASSERT(j->in[2]->width == (int32_t)(pairs ? 2 * n_heads : n_heads));
    if (is_joint) order_inputs(j);
    const backend_buffer *z = is_joint ? r->ordered : j->in[1];
    convolve_inputs(j, is_joint ? &r->ordered : j->in, 1, 0, false, j->convolved);
    norm_keys(j);
    const vulkan_rates_args columns = {.n = n_heads, .run = pairs ? group : n_heads, .step = 2 * group};
    vulkan_rates_args decays = columns;
    decays.src = pairs ? sizeof(float) * group : 0;
    decays.bias = vulkan_weight(j->b, &l->dt_bias);
    decays.factors = vulkan_weight(j->b, &l->a);
    make_rates(j, true, columns, j->in[2], r->rates, NULL);
    make_rates(j, false, decays, j->in[pairs ? 2 : 3], NULL, r->decays);
    scan_heads(j, VULKAN_SCAN_DELTA,
               (vulkan_scan_args){.x = j->convolved->memory.address,
                                  .decays = r->decays->memory.address,
                                  .rates = r->rates->memory.address,
                                  .width = channels});
    norm_runs(j, VULKAN_RMS_NORM, j->dst, 0, dim, n_heads, &l->norm.weight, (vulkan_norm_args){.eps = hp->norm_eps});
    gate(j, false, z, is_joint ? channels : 0, NULL, 1);
}

/* ---- Kimi delta attention ---- */

static void scan_kimi_delta(const scan_job *j) {
    const model_hparams *hp = &j->b->net->hp;
    const model_recurrent *l = &j->layer->recurrent;
    const struct vulkan_recurrent *r = j->b->recurrent;
    const uint32_t dim = (uint32_t)hp->recurrent.head_dim, n_heads = (uint32_t)hp->recurrent.n_heads,
                   inner = n_heads * dim;
    BASE_ASSERT(hp->recurrent.state_dim == hp->recurrent.head_dim && hp->recurrent.n_groups == hp->recurrent.n_heads);
    BASE_ASSERT(j->dst->width == (int32_t)inner && hp->recurrent.channels == (int32_t)(3 * inner));
    for (int i = 0; i < MODEL_MAX_SCANNED; i++)
        BASE_ASSERT(j->in[i]->width == (int32_t)(i == 3 ? n_heads : inner));
    convolve_inputs(j, j->in, 3, 0, false, j->convolved);
    norm_keys(j);
    make_rates(j, true, (vulkan_rates_args){.n = n_heads}, j->in[3], r->rates, NULL);
    make_rates(j, false,
               (vulkan_rates_args){.factors = vulkan_weight(j->b, &l->a), .n = inner, .per = dim}, j->in[4], NULL,
               r->decays);
    scan_heads(j, VULKAN_SCAN_KIMI,
               (vulkan_scan_args){.x = j->convolved->memory.address,
                                  .decays = r->decays->memory.address,
                                  .rates = r->rates->memory.address,
                                  .width = 3 * inner});
    norm_runs(j, VULKAN_RMS_NORM, j->dst, 0, dim, n_heads, &l->norm.weight, (vulkan_norm_args){.eps = hp->norm_eps});
    gate(j, true, j->in[5], 0, NULL, 1);
}

/* ---- decayed sums ---- */

static void scan_decayed_sum(const scan_job *j) {
    const uint32_t n = (uint32_t)j->dst->width;
    const vulkan_scan_args a = {.runs = j->table,
                                .x = j->in[0]->memory.address,
                                .decays = vulkan_weight(j->b, &j->layer->recurrent.decay),
                                .dst = j->dst->memory.address,
                                .at = j->at,
                                .n_heads = 1,
                                .dim = n,
                                .n_state = 1,
                                .n_groups = 1,
                                .width = (uint32_t)j->in[0]->width};
    BASE_ASSERT(j->b->shape.layers[j->layer->recurrence].state_bytes == sizeof(float) * n);
    vulkan_dispatch(j->b, VULKAN_SCAN, VULKAN_SCAN_DECAYED_SUM, &a, sizeof(a),
                    (uint32_t[]){BASE_DIV_UP(n, 64), 1, j->n_runs});
}

/* ---- all kinds ---- */

static void (*const kinds[])(const scan_job *j) = {
    [MODEL_SHORT_CONV] = scan_short_conv,
    [MODEL_MAMBA2] = scan_mamba2,
    [MODEL_MAMBA1] = scan_mamba1,
    [MODEL_ATTENTION_MAMBA2] = scan_mamba2,
    [MODEL_DELTA_NET] = scan_delta_net,
    [MODEL_KIMI_DELTA] = scan_kimi_delta,
    [MODEL_DECAYED_SUM] = scan_decayed_sum,
};

/* Of runs that are adjacent, whose table is at that address. */
static scan_job job_of(vulkan_backend *b, int32_t layer, const scan_run *runs, int32_t n_runs, uint64_t table,
                       backend_buffer *const *in) {
    const model_layer *l = &b->net->layers[layer];
    scan_job j = {.b = b,
                  .layer = l,
                  .table = table,
                  .n_runs = (uint32_t)n_runs,
                  .first_row = (uint32_t)runs[0].first,
                  .n_rows = (uint32_t)(runs[n_runs - 1].end - runs[0].first),
                  .at = recurrent_state_at(&b->shape, l->recurrence),
                  .in = in,
                  .convolved = b->recurrent->convolved};
    BASE_ASSERT(model_mixer_recurs(l->mixer) && kinds[l->mixer]);
    for (int32_t i = 0; i < n_runs; i++)
        j.most_rows = BASE_MAX(j.most_rows, (uint32_t)(runs[i].end - runs[i].first));
    return j;
}

static scan_job job_of_step(vulkan_backend *b, int32_t layer, backend_buffer *const *in) {
    const struct vulkan_recurrent *r = b->recurrent;
    return job_of(b, layer, r->runs, r->n_runs, r->table, in);
}

/* The inputs of tentative rows, before the scan changes them. */
static void keep_inputs(const scan_job *j, int32_t layer) {
    const struct vulkan_recurrent *r = j->b->recurrent;
    for (const scan_run *run = r->runs; run < r->runs + r->n_runs; run++)
        for (int i = 0; i < MODEL_MAX_SCANNED && run->kept >= 0; i++) {
            const backend_buffer *to = r->kept.inputs[layer][i], *from = j->in[i];
            if (!to) continue;
            BASE_ASSERT(to->width == from->width && run->kept + run->end - run->first <= r->max_tentative);
            const uint64_t row = sizeof(float) * (uint64_t)to->width;
            vulkan_elements_args a = {.dst = to->memory.address + row * (uint64_t)run->kept,
                                      .src = from->memory.address + row * (uint64_t)run->first,
                                      .rows = (uint32_t)(run->end - run->first),
                                      .width = (uint32_t)to->width};
            a.n = a.src_width = a.dst_width = a.width;
            vulkan_element_op_record(j->b, VULKAN_COPY_RUNS, &a);
        }
}

static void scan(backend *self, int32_t layer, backend_buffer *const *in, backend_buffer *dst) {
    scan_job j = job_of_step(vulkan(self), layer, in);
    keep_inputs(&j, layer);
    j.dst = dst;
    kinds[j.layer->mixer](&j);
}

static void convolve(backend *self, int32_t layer, backend_buffer *src, backend_buffer *dst) {
    const scan_job j = job_of_step(vulkan(self), layer, &src);
    BASE_ASSERT(j.layer->mixer == MODEL_MAMBA1 && dst->width == j.b->net->hp.recurrent.channels);
    convolve_inputs(&j, &src, 1, 0, false, dst);
}

/* ---- runs ---- */

static uint64_t make_table(vulkan_backend *b, const scan_run *runs, int32_t n) {
    const struct vulkan_recurrent *r = b->recurrent;
    const vulkan_part part = vulkan_arena_take(b, sizeof(vulkan_run) * (size_t)n);
    uint64_t copy = r->copies.address;
    for (int32_t i = 0; i < n && part.host; i++) {
        ((vulkan_run *)part.host)[i] = (vulkan_run){.states = runs[i].states->at.at,
                                                    .copy = runs[i].kept >= 0 ? copy : 0,
                                                    .first = (uint32_t)runs[i].first,
                                                    .end = (uint32_t)runs[i].end};
        if (runs[i].kept >= 0) copy += r->most_bytes;
    }
    return part.address;
}

int vulkan_recurrence_begin(vulkan_backend *b, rp_error *err) {
    struct vulkan_recurrent *r = b->recurrent;
    const model_step *step = b->step;
    int32_t n_kept = 0, n_copies = 0;
    int rc = RP_OK;
    if (!r || !step->states) return RP_OK;
    r->n_runs = 0;
    for (int32_t first = 0, end; first < step->n_rows; first = end) {
        const int32_t context = step->rows[first].context;
        for (end = first + 1; end < step->n_rows && step->rows[end].context == context;) end++;
        scan_run *run = &r->runs[r->n_runs++];
        *run = (scan_run){.states = step->states[context], .first = first, .end = end, .kept = -1};
        if (!step->tentative || !step->tentative[context]) continue;
        run->kept = n_kept;
        n_kept += end - first;
        n_copies++;
    }
    BASE_ASSERT(n_kept <= r->max_tentative);
    const uint64_t need = (uint64_t)n_copies * r->most_bytes;
    if (r->copies.bytes < need) {
        vulkan_give(b, &r->copies); /* no step is computed */
        rc = vulkan_take(b, VULKAN_ON_DEVICE, need, "states of recurrent layers", &r->copies, err);
    }
    if (!rc) r->table = make_table(b, r->runs, r->n_runs);
    if (!rc && b->failure.code) rc = base_fail(err, b->failure.code, "%s", b->failure.message);
    return rc;
}

/* ---- accepted rows ---- */

/* One layer, of kept rows. Mamba1 keeps the result of the convolution: here that moves its inputs only. */
static void accept_rows(vulkan_backend *b, int32_t layer, const scan_run *run, uint64_t table) {
    scan_job j = job_of(b, layer, run, 1, table, b->recurrent->kept.inputs[layer]);
    j.dst = b->recurrent->kept.accepted;
    vulkan_buffer_set_width(&b->base, j.dst, (int32_t)j.layer->recurrent.out.n_in);
    if (j.layer->mixer == MODEL_MAMBA1) convolve_inputs(&j, j.in, 1, 0, false, NULL);
    kinds[j.layer->mixer](&j);
}

static void states_accept(backend *self, backend_states *states, int32_t n) {
    vulkan_backend *b = vulkan(self);
    struct vulkan_recurrent *r = b->recurrent;
    scan_run *run = r->runs;
    while (run < r->runs + r->n_runs && run->states != states) run++;
    BASE_ASSERT(run < r->runs + r->n_runs && run->kept >= 0 && n >= 0 && n <= run->end - run->first);
    const scan_run accepted = {.states = states, .first = run->kept, .end = run->kept + n, .kept = -1};
    run->states = NULL; /* once */
    if (n == 0) return;
    vulkan_step_continue(b);
    const uint64_t table = make_table(b, &accepted, 1);
    for (int32_t l = 0; l < b->net->hp.n_layers; l++)
        if (model_mixer_recurs(b->net->layers[l].mixer)) accept_rows(b, l, &accepted, table);
    vulkan_step_end(b);
    if (b->failure.code) vulkan_device_give_up(b->device, "the move of a recurrent layer's state", &b->failure);
}

/* ---- opening ---- */

/* Scratch of one layer. */
static int open_scratch(vulkan_backend *b, rp_error *err) {
    const model_hparams *hp = &b->net->hp;
    struct vulkan_recurrent *r = b->recurrent;
    const int32_t n_heads = hp->recurrent.n_heads, inner = n_heads * hp->recurrent.head_dim;
    bool convolves = false, has_vectors = false;
    for (int32_t l = 0; l < hp->n_layers; l++) {
        const model_mixer mixer = b->net->layers[l].mixer;
        if (!model_mixer_recurs(mixer)) continue;
        convolves |= mixer != MODEL_SHORT_CONV && mixer != MODEL_MAMBA1 && mixer != MODEL_DECAYED_SUM;
        has_vectors |= mixer == MODEL_KIMI_DELTA;
    }
    int rc = RP_OK;
    if (convolves) rc = vulkan_buffer_create(&b->base, b->max_rows, hp->recurrent.channels, &r->convolved, err);
    if (!rc && hp->recurrent.joint)
        rc = vulkan_buffer_create(&b->base, b->max_rows, hp->recurrent.channels + inner, &r->ordered, err);
    if (!rc && convolves) rc = vulkan_buffer_create(&b->base, b->max_rows, n_heads, &r->rates, err);
    if (!rc && convolves)
        rc = vulkan_buffer_create(&b->base, b->max_rows, has_vectors ? inner : n_heads, &r->decays, err);
    return rc;
}

int vulkan_recurrence_open(vulkan_backend *b, int32_t max_tentative, rp_error *err) {
    if (!model_is_recurrent(b->net)) return RP_OK;
    struct vulkan_recurrent *r = b->recurrent = base_calloc(1, sizeof(*r));
    if (!r || !(r->runs = base_calloc((size_t)b->max_rows, sizeof(*r->runs))))
        return base_fail_memory(err, (uint64_t)b->max_rows * sizeof(*r->runs), "recurrent layers");
    r->max_tentative = BASE_MIN(max_tentative, b->max_rows);
    for (int32_t l = 0; l < b->shape.n_layers; l++)
        r->most_bytes = BASE_MAX(r->most_bytes, b->shape.layers[l].state_bytes);
    r->most_bytes = BASE_DIV_UP(r->most_bytes, RECURRENT_STATE_ALIGNMENT) * RECURRENT_STATE_ALIGNMENT;
    if (!(r->host = base_alloc(3 * r->most_bytes)))
        return base_fail_memory(err, 3 * r->most_bytes, "states of recurrent layers");
    const int rc = recurrent_kept_open(&r->kept, &b->base, b->net, r->max_tentative, err);
    return rc ? rc : open_scratch(b, err);
}

void vulkan_recurrence_free(vulkan_backend *b) {
    struct vulkan_recurrent *r = b->recurrent;
    if (!r) return;
    recurrent_kept_free(&r->kept, &b->base, b->net);
    vulkan_buffer_destroy(&b->base, r->convolved);
    vulkan_buffer_destroy(&b->base, r->ordered);
    vulkan_buffer_destroy(&b->base, r->decays);
    vulkan_buffer_destroy(&b->base, r->rates);
    if (b->device) vulkan_give(b, &r->copies);
    base_free(r->runs);
    base_free(r->host);
    base_free(r);
}

const backend_recurrence vulkan_recurrence = {
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
