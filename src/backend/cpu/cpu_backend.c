/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_backend.c: operations of the forward pass on the CPU: opening, embeddings, and row-wise operations. cpu_backend.h
   lists all files. */
#include "backend/cpu/cpu_backend.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"

#define ROWS_PER_TASK 4

static cpu_backend *cpu(backend *b) { return (cpu_backend *)b; }

static void free_backend(backend *self) {
    cpu_backend *b = cpu(self);
    cpu_attention_free(b);
    cpu_choices_free(b);
    cpu_adapters_free(b);
    cpu_experts_free(b);
    cpu_latent_free(b);
    cpu_indexer_free(b);
    cpu_recurrence_free(b);
    cpu_pack_free(b);
    base_threads_free(b->threads);
    base_free(b->row);
    base_free(b->inverse_norms);
    base_free(b->q8);
    base_free(b);
}

static kv_memory *memory(backend *self) {
    (void)self;
    return kv_host_memory();
}

/* ---- a step ---- */

static void usage(backend *self, rp_memory *out) {
    const uint64_t packed = cpu_packed_total(cpu(self));
    out->weights = cpu(self)->is_mapped ? 0 : packed;
    out->weights_file = cpu(self)->is_mapped ? packed : 0;
    out->file = cpu(self)->net->weight_bytes - cpu_packed_source(cpu(self)) + out->weights_file;
    out->activations = cpu(self)->activation_bytes;
}

static int begin(backend *self, const model_step *step, rp_error *err) {
    int rc = cpu_pack_prepare(self, NULL, NULL, err);
    if (rc) return rc;
    cpu(self)->step = step;
    if (step->states && cpu(self)->recurrent) cpu_recurrence_begin(cpu(self));
    rc = cpu_choices_begin(cpu(self), err);
    if (!rc) rc = cpu_adapters_begin(cpu(self), err);
    if (!rc) rc = cpu_indexer_begin(cpu(self), err);
    return rc || cpu(self)->net->hp.n_heads == 0 ? rc : cpu_attention_begin(cpu(self), err);
}

static void dequantize_row(const model_weight *w, int64_t row, float *dst) {
    BASE_DCHECK(row >= 0 && row < w->n_out);
    kernel_dequantize(w->type, (const char *)w->data + kernel_row_bytes(w->type, w->n_in) * row, dst, w->n_in);
}

/* Tied embedding and output weights are one matrix in memory as well: the repacked one. */
static void embedding_row(cpu_backend *b, int64_t token, float *dst) {
    const model_weight *w = &b->net->embedding, *output = cpu_packed(b, &b->net->output);
    bool is_packed = w->data == b->net->output.data && output->data != w->data;
    BASE_ASSERT(token >= 0 && token < w->n_out); /* plans and requests refuse others */
    if (is_packed) kernel_packed_row(w->type, b->kernels.side, output->data, w->n_in, token, b->row);
    if (is_packed) kernel_dequantize(w->type, b->row, dst, w->n_in);
    else dequantize_row(w, token, dst);
}

static void embed(backend *self, const model_weight *table, backend_buffer *dst) {
    cpu_backend *b = cpu(self);
    const model_network *net = b->net;
    for (int32_t r = 0; r < b->step->n_rows; r++) {
        float *y = cpu_row_at(dst, r);
        if (table) dequantize_row(table, b->step->rows[r].token, y);
        else embedding_row(b, b->step->rows[r].token, y);
        if (net->hp.embed_scale != 1.0f) b->kernels.scale(y, net->hp.embed_scale, dst->width);
        if (net->token_types.data) {
            dequantize_row(&net->token_types, b->step->rows[r].type, b->row);
            b->kernels.add(y, b->row, 1.0f, y, dst->width);
        }
        if (!net->positions.data) continue;
        dequantize_row(&net->positions, b->step->rows[r].pos, b->row);
        b->kernels.add(y, b->row, 1.0f, y, dst->width);
    }
}

static void embed_layers(backend *self, backend_buffer *dst) {
    cpu_backend *b = cpu(self);
    const float scale = sqrtf((float)b->net->hp.n_layer_embd);
    BASE_ASSERT(dst->width == b->net->layer_embeddings.n_in);
    for (int32_t r = 0; r < b->step->n_rows; r++) {
        float *y = cpu_row_at(dst, r);
        dequantize_row(&b->net->layer_embeddings, b->step->rows[r].token, b->row);
        b->kernels.add(y, b->row, scale, y, dst->width);
    }
}

/* ---- rows ---- */

typedef struct norm_job {
    cpu_backend *b;
    const backend_buffer *src;
    const model_norm *norm;
    backend_buffer *dst;
} norm_job;

static void norm_row(const norm_job *j, const float *x, float *y) {
    const kernel_table *k = &j->b->kernels;
    const float *w = j->norm->weight.data, *bias = j->norm->bias.data;
    float eps = j->b->net->hp.norm_eps;
    /* from one run's weights to the next's */
    int64_t n = j->norm->weight.n_in, step = j->norm->weight.n_out > 1 ? n : 0;
    for (int64_t i = 0; i < j->src->width; i += n, w += step) {
        if (j->b->net->hp.layer_norm) k->layer_norm(x + i, w, bias, eps, y + i, n);
        else k->rms_norm(x + i, w, eps, y + i, n);
    }
}

static void norm_rows(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const norm_job *j = arg;
    for (int64_t r = begin; r < end; r++) norm_row(j, cpu_row_of(j->src, r), cpu_row_at(j->dst, r));
}

static void norm(backend *self, const backend_buffer *src, const model_norm *norm, int32_t rows, backend_buffer *dst) {
    BASE_ASSERT(src->width == dst->width && src->width % norm->weight.n_in == 0);
    BASE_ASSERT(norm->weight.n_out == 1 || norm->weight.n_in * norm->weight.n_out == src->width);
    norm_job j = {cpu(self), src, norm, dst};
    base_threads_for(j.b->threads, norm_rows, &j, rows, ROWS_PER_TASK);
}

static void gate_rows(backend *self, backend_buffer *dst, const backend_buffer *gates, int32_t rows) {
    BASE_ASSERT(gates->width == 1 && rows <= gates->rows);
    for (int32_t r = 0; r < rows; r++)
        cpu(self)->kernels.scale(cpu_row_at(dst, r), 1.0f / (1.0f + expf(-gates->data[r])), dst->width);
}

static void temper(backend *self, backend_buffer *dst, int32_t rows) {
    const cpu_backend *b = cpu(self);
    const model_hparams *hp = &b->net->hp;
    BASE_ASSERT(rows <= b->step->n_rows && hp->temperature.length > 0);
    for (int32_t r = 0; r < rows; r++) {
        const int64_t pos = (int64_t)b->step->rows[r].pos + hp->temperature.offset;
        const double turns = (double)(pos / hp->temperature.length);
        b->kernels.scale(cpu_row_at(dst, r), (float)(1 + (double)hp->temperature.scale * log(1 + turns)), dst->width);
    }
}

static void gather(backend *self, const backend_buffer *src, const int32_t *indices, int32_t n, backend_buffer *dst) {
    (void)self;
    BASE_ASSERT(src->width == dst->width && n <= dst->rows);
    for (int32_t i = 0; i < n; i++)
        memcpy(cpu_row_at(dst, i), cpu_row_of(src, indices[i]), sizeof(float) * (size_t)src->width);
}

/* ---- linear layers ---- */

static void linear(backend *self, const backend_buffer *src, int32_t rows, int32_t n,
                   const model_weight *const *weights, const model_weight *const *biases, backend_buffer *const *dst) {
    cpu_linear_part parts[BACKEND_MAX_WEIGHTS];
    BASE_ASSERT(n <= BACKEND_MAX_WEIGHTS);
    for (int32_t i = 0; i < n; i++)
        parts[i] = (cpu_linear_part){.weight = *cpu_packed(cpu(self), weights[i]),
                                     .bias = biases ? biases[i]->data : NULL,
                                     .n_rows = rows,
                                     .dst = dst[i]};
    cpu_linear(cpu(self), src, rows, parts, n);
}

/* ---- opening ---- */

static const backend_study study = {
    .read_head = cpu_read_head,
    .bound = cpu_bound,
    .deviate = cpu_deviate,
    .observe_input = cpu_observe_input,
    .output_norms = cpu_output_norms,
};

static const backend_ops ops = {
    .name = "cpu",
    .study = &study,
    .recurrence = &cpu_recurrence,
    .free = free_backend,
    .memory = memory,
    .buffer_new = cpu_buffer_new,
    .buffer_free = cpu_buffer_free,
    .buffer_set_width = cpu_buffer_set_width,
    .buffer_read = cpu_buffer_read,
    .buffer_write = cpu_buffer_write,
    .prepare = cpu_pack_prepare,
    .usage = usage,
    .begin = begin,
    .embed = embed,
    .embed_layers = embed_layers,
    .norm = norm,
    .linear = linear,
    .adapt = cpu_adapt,
    .has_adapters = cpu_adapters_are_on,
    .linear_runs = cpu_linear_runs,
    .copy_runs = cpu_copy_runs,
    .store = cpu_store,
    .index_store = cpu_index_store,
    .index_choose = cpu_index_choose,
    .encode = cpu_encode,
    .attend = cpu_attend,
    .act = cpu_act,
    .xielu = cpu_xielu,
    .sparsify = cpu_sparsify,
    .mix = cpu_mix,
    .match = cpu_match,
    .multiply = cpu_multiply,
    .experts = cpu_mix_experts,
    .gate_rows = gate_rows,
    .add = cpu_add,
    .clamp = cpu_clamp,
    .scale = cpu_scale,
    .soft_cap = cpu_soft_cap,
    .temper = temper,
    .gather = gather,
};

static int open_parts(cpu_backend *b, const backend_options *o, rp_error *err) {
    int rc = base_threads_new(&b->threads, o->n_threads, err);
    if (rc) return rc;
    const int64_t row = BASE_MAX(b->net->hp.n_embd, (int64_t)b->net->hp.n_layers * b->net->hp.n_layer_embd);
    b->row = base_alloc(sizeof(float) * (size_t)row);
    if (!b->row) return base_fail_memory(err, sizeof(float) * (uint64_t)row, "activations");
    b->inverse_norms = base_alloc(sizeof(float) * (size_t)o->max_rows);
    if (!b->inverse_norms) return base_fail_memory(err, sizeof(float) * (uint64_t)o->max_rows, "activations");
    if ((rc = cpu_pack_open(b, err)) || (rc = cpu_linear_open(b, o->max_rows, err)) ||
        (b->net->hp.n_heads > 0 && (rc = cpu_attention_open(b, o->n_ctx, err))))
        return rc;
    if ((rc = cpu_latent_open(b, o->max_rows, err)) || (rc = cpu_indexer_open(b, o->max_rows, err))) return rc;
    if (model_is_recurrent(b->net) && (rc = cpu_recurrence_open(b, o->max_rows, o->max_tentative, err))) return rc;
    return cpu_experts_open(b, o->max_rows, err);
}

size_t cpu_backend_devices(rp_device *out, size_t most) {
    base_cpu_level level;
    const bool is_known = base_cpu_detect(&level, NULL) == RP_OK;
    if (most == 0) return 1;
    *out = (rp_device){.name = "cpu", .kind = "processor", .is_usable = true};
    snprintf(out->description, sizeof(out->description), "%d threads, %s", base_cpu_count(),
             is_known ? base_cpu_name(level) : "unknown");
    out->memory_bytes = base_cpu_memory();
    return 1;
}

const char *cpu_backend_unavailable(const model_network *net, int32_t device) {
    (void)device;
    return net->is_mock ? "the model was opened with mock, and has no weights" : NULL;
}

int cpu_backend_new(backend **out, const model_network *net, const backend_options *o, rp_error *err) {
    *out = NULL;
    cpu_backend *b = base_calloc(1, sizeof(*b));
    if (!b) return base_fail_memory(err, sizeof(*b), "the CPU backend");
    b->base.ops = &ops;
    b->net = net;
    b->shape = o->shape;
    b->weights = o->weights;
    kernel_table_init(&b->kernels, o->level);
    int32_t group = CPU_TILE_QUERIES; /* the smallest of any layer: of other layers, a tile has a part of a group */
    for (int32_t l = 0; l < net->hp.n_layers; l++) {
        const model_layer *layer = &net->layers[l];
        if (!model_mixer_attends(layer->mixer)) continue;
        BASE_ASSERT(layer->n_heads % layer->n_kv_heads == 0);
        group = BASE_MIN(group, layer->n_heads / layer->n_kv_heads);
        /* the kinds of angles that a step needs */
        if (layer->rope != MODEL_NO_ROPE) b->angles[layer->rope].rope = model_layer_rope(net, layer->rope, o->n_ctx);
    }
    b->rows_per_tile = CPU_TILE_QUERIES / group;
    int rc = open_parts(b, o, err);
    if (rc) {
        free_backend(&b->base);
        return rc;
    }
    *out = &b->base;
    return RP_OK;
}
