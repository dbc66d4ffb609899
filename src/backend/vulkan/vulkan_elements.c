/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_elements.c: buffers of activations, embeddings, norms, and operations on each element. */
#include <math.h>
#include <string.h>

#include "backend/vulkan/vulkan_backend.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

/* ---- buffers ---- */

int vulkan_buffer_create(backend *self, int32_t rows, int32_t width, backend_buffer **out, rp_error *err) {
    vulkan_backend *b = vulkan(self);
    backend_buffer *buffer = base_calloc(1, sizeof(*buffer));
    *out = NULL;
    if (!buffer) return base_fail_memory(err, sizeof(*buffer), "activations");
    const uint64_t bytes = sizeof(float) * (uint64_t)rows * (uint64_t)width;
    *buffer = (backend_buffer){.rows = rows, .width = width, .most_width = width};
    const int rc = vulkan_take(b, VULKAN_ON_DEVICE, bytes, "activations", &buffer->memory, err);
    if (rc) base_free(buffer);
    else {
        b->activation_bytes += bytes;
        *out = buffer;
    }
    return rc;
}

void vulkan_buffer_destroy(backend *self, backend_buffer *buffer) {
    vulkan_backend *b = vulkan(self);
    if (!buffer) return;
    vulkan_stream_wait(&b->stream, NULL); /* a step may still use it */
    vulkan_give(b, &buffer->memory);
    base_free(buffer);
}

void vulkan_buffer_set_width(backend *self, backend_buffer *buffer, int32_t width) {
    (void)self;
    BASE_ASSERT(width > 0 && width <= buffer->most_width);
    buffer->width = width;
}

/* ---- elements ---- */

static vulkan_elements_args args_of(const backend_buffer *dst, const backend_buffer *src, int32_t rows) {
    BASE_ASSERT(rows >= 0 && rows <= dst->rows);
    return (vulkan_elements_args){.dst = dst->memory.address,
                                  .src = src ? src->memory.address : 0,
                                  .rows = (uint32_t)rows,
                                  .width = (uint32_t)dst->width};
}

void vulkan_act(backend *self, kernel_act act, backend_buffer *a, const backend_buffer *up, int32_t rows) {
    BASE_ASSERT(!up || up->width == a->width);
    const vulkan_elements_args args = args_of(a, up, rows);
    vulkan_element_op_record(vulkan(self), VULKAN_ACT + (uint32_t)act, &args);
}

void vulkan_xielu(backend *self, const model_xielu *x, backend_buffer *a, int32_t rows) {
    BASE_ASSERT(x->alpha_p > 0);
    vulkan_elements_args args = args_of(a, NULL, rows);
    args.x = x->alpha_n;
    args.y = x->alpha_p;
    args.z = x->beta;
    args.w = x->eps;
    vulkan_element_op_record(vulkan(self), VULKAN_XIELU, &args);
}

void vulkan_add(backend *self, backend_buffer *dst, const backend_buffer *src, float scale, int32_t rows) {
    BASE_ASSERT(src->width == dst->width);
    vulkan_elements_args args = args_of(dst, src, rows);
    args.x = scale;
    vulkan_element_op_record(vulkan(self), VULKAN_ADD, &args);
}

static void change(backend *self, backend_buffer *dst, uint32_t op, float x, int32_t rows) {
    vulkan_elements_args args = args_of(dst, NULL, rows);
    args.x = x;
    vulkan_element_op_record(vulkan(self), op, &args);
}

void vulkan_clamp(backend *self, backend_buffer *dst, float limit, int32_t rows) {
    change(self, dst, VULKAN_CLAMP, limit, rows);
}

void vulkan_scale(backend *self, backend_buffer *dst, float factor, int32_t rows) {
    change(self, dst, VULKAN_SCALE, factor, rows);
}

void vulkan_soft_cap(backend *self, backend_buffer *dst, float cap, int32_t rows) {
    BASE_ASSERT(cap > 0);
    change(self, dst, VULKAN_SOFT_CAP, cap, rows);
}

void vulkan_multiply(backend *self, backend_buffer *dst, const model_weight *factors, int32_t rows) {
    BASE_ASSERT(factors->n_in == dst->width && factors->type == KERNEL_F32);
    vulkan_elements_args args = args_of(dst, NULL, rows);
    args.src = vulkan_weight(vulkan(self), factors);
    vulkan_element_op_record(vulkan(self), VULKAN_MULTIPLY, &args);
}

void vulkan_temper(backend *self, backend_buffer *dst, int32_t rows) {
    vulkan_backend *b = vulkan(self);
    const model_hparams *hp = &b->net->hp;
    const vulkan_part factors = vulkan_arena_take(b, sizeof(float) * (size_t)rows);
    BASE_ASSERT(rows <= b->step->n_rows && hp->temperature.length > 0);
    if (!factors.host) return;
    for (int32_t r = 0; r < rows; r++) {
        const int64_t pos = (int64_t)b->step->rows[r].pos + hp->temperature.offset;
        const double turns = (double)(pos / hp->temperature.length);
        ((float *)factors.host)[r] = (float)(1 + (double)hp->temperature.scale * log(1 + turns));
    }
    vulkan_elements_args args = args_of(dst, NULL, rows);
    args.other = factors.address;
    vulkan_element_op_record(b, VULKAN_SCALE_ROWS, &args);
}

void vulkan_gate_rows(backend *self, backend_buffer *dst, const backend_buffer *gates, int32_t rows) {
    BASE_ASSERT(gates->width == 1 && rows <= gates->rows);
    const vulkan_elements_args args = args_of(dst, gates, rows);
    vulkan_element_op_record(vulkan(self), VULKAN_GATE_ROWS, &args);
}

void vulkan_gather(backend *self, const backend_buffer *src, const int32_t *indices, int32_t n, backend_buffer *dst) {
    vulkan_backend *b = vulkan(self);
    const vulkan_part list = vulkan_arena_take(b, sizeof(*indices) * (size_t)n);
    BASE_ASSERT(src->width == dst->width);
    if (!list.host) return;
    memcpy(list.host, indices, sizeof(*indices) * (size_t)n);
    vulkan_elements_args args = args_of(dst, src, n);
    args.other = list.address;
    vulkan_element_op_record(b, VULKAN_GATHER, &args);
}

void vulkan_copy_runs(backend *self, const backend_buffer *src, backend_columns from, int32_t rows, int32_t width,
                      int32_t n, backend_buffer *dst, backend_columns to) {
    BASE_ASSERT(width > 0 && n > 0 && rows <= src->rows);
    BASE_ASSERT(from.first + (n - 1) * from.step + width <= src->width);
    BASE_ASSERT(to.first + (n - 1) * to.step + width <= dst->width);
    vulkan_elements_args args = args_of(dst, src, rows);
    args.width = (uint32_t)(width * n);
    args.n = (uint32_t)width;
    args.src_width = (uint32_t)src->width;
    args.dst_width = (uint32_t)dst->width;
    args.src_first = (uint32_t)from.first;
    args.dst_first = (uint32_t)to.first;
    args.src_step = (uint32_t)from.step;
    args.dst_step = (uint32_t)to.step;
    vulkan_element_op_record(vulkan(self), VULKAN_COPY_RUNS, &args);
}

/* ---- embeddings: rows are decoded on the host ---- */

static void dequantize_row(const model_weight *w, int64_t row, float *dst) {
    BASE_ASSERT(row >= 0 && row < w->n_out); /* plans and requests refuse other tokens */
    kernel_dequantize(w->type, (const char *)w->data + kernel_row_bytes(w->type, w->n_in) * row, dst, w->n_in);
}

static void add_row(const model_weight *w, int64_t row, float factor, float *dst, float *scratch) {
    dequantize_row(w, row, scratch);
    for (int64_t i = 0; i < w->n_in; i++) dst[i] += factor * scratch[i];
}

static void embed_row(const model_network *net, const model_weight *table, const model_row *row, float *dst,
                      float *scratch) {
    dequantize_row(table ? table : &net->embedding, row->token, dst);
    for (int32_t i = 0; i < net->hp.n_embd && net->hp.embed_scale != 1.0f; i++) dst[i] *= net->hp.embed_scale;
    if (net->token_types.data) add_row(&net->token_types, row->type, 1.0f, dst, scratch);
    if (net->positions.data) add_row(&net->positions, row->pos, 1.0f, dst, scratch);
}

void vulkan_embed(backend *self, const model_weight *table, backend_buffer *dst) {
    vulkan_backend *b = vulkan(self);
    const int32_t rows = b->step->n_rows, width = dst->width;
    /* one row more: scratch */
    const vulkan_part part = vulkan_arena_take(b, sizeof(float) * (size_t)(rows + 1) * (size_t)width);
    BASE_ASSERT(width == b->net->hp.n_embd);
    if (!part.host) return;
    float *to = part.host;
    for (int32_t r = 0; r < rows; r++)
        embed_row(b->net, table, &b->step->rows[r], to + (size_t)r * (size_t)width, to + (size_t)rows * (size_t)width);
    vulkan_elements_args args = args_of(dst, NULL, rows);
    args.src = part.address;
    args.n = args.src_width = args.dst_width = (uint32_t)width;
    vulkan_element_op_record(b, VULKAN_COPY_RUNS, &args);
}

void vulkan_embed_layers(backend *self, backend_buffer *dst) {
    vulkan_backend *b = vulkan(self);
    const model_weight *w = &b->net->layer_embeddings;
    const int32_t rows = b->step->n_rows;
    const vulkan_part part = vulkan_arena_take(b, sizeof(float) * (size_t)rows * (size_t)dst->width);
    BASE_ASSERT(dst->width == w->n_in);
    if (!part.host) return;
    for (int32_t r = 0; r < rows; r++)
        dequantize_row(w, b->step->rows[r].token, (float *)part.host + (size_t)r * (size_t)dst->width);
    vulkan_elements_args args = args_of(dst, NULL, rows);
    args.src = part.address;
    args.x = sqrtf((float)b->net->hp.n_layer_embd);
    vulkan_element_op_record(b, VULKAN_ADD, &args);
}

void vulkan_buffer_write(backend *self, const float *src, int32_t rows, backend_buffer *dst) {
    const size_t bytes = sizeof(float) * (size_t)rows * (size_t)dst->width;
    const vulkan_part part = vulkan_arena_take(vulkan(self), bytes);
    if (!part.host) return;
    memcpy(part.host, src, bytes);
    vulkan_elements_args args = args_of(dst, NULL, rows);
    args.src = part.address;
    args.n = args.src_width = args.dst_width = (uint32_t)dst->width;
    vulkan_element_op_record(vulkan(self), VULKAN_COPY_RUNS, &args);
}

/* ---- norms ---- */

#define NORM_GROUPS 32768u

void vulkan_norm_record(vulkan_backend *b, vulkan_norm_kind kind, const vulkan_norm_args *a) {
    vulkan_dispatch(b, VULKAN_NORM, kind, a, sizeof(*a),
                    (uint32_t[]){BASE_MIN(a->n_runs, NORM_GROUPS), BASE_DIV_UP(a->n_runs, NORM_GROUPS), 1});
}

void vulkan_norm(backend *self, const backend_buffer *src, const model_norm *norm, int32_t rows, backend_buffer *dst) {
    vulkan_backend *b = vulkan(self);
    BASE_ASSERT(src->width == dst->width && src->width % norm->weight.n_in == 0);
    BASE_ASSERT(norm->weight.type == KERNEL_F32);
    const uint32_t runs = (uint32_t)(src->width / norm->weight.n_in), all = runs * (uint32_t)rows;
    const vulkan_norm_args args = {.src = src->memory.address,
                                   .dst = dst->memory.address,
                                   .weight = vulkan_weight(b, &norm->weight),
                                   .bias = vulkan_weight(b, &norm->bias),
                                   .n = (uint32_t)norm->weight.n_in,
                                   .runs = runs,
                                   .weight_runs = (uint32_t)norm->weight.n_out,
                                   .n_runs = all,
                                   .eps = b->net->hp.norm_eps,
                                   .stride = (uint32_t)src->width};
    vulkan_norm_record(b, b->net->hp.layer_norm ? VULKAN_LAYER_NORM : VULKAN_RMS_NORM, &args);
}
