/* SPDX-License-Identifier: Apache-2.0 */
/* split_ops.c: operations on the side that computes the current layer. */
#include "backend/split/split_backend.h"

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

/* ---- buffers ---- */

int split_buffer_new(backend *self, int32_t rows, int32_t width, backend_buffer **out, rp_error *err) {
    backend_buffer *buffer = base_calloc(1, sizeof(*buffer));
    int rc = RP_OK;
    *out = NULL;
    if (!buffer) return base_fail_memory(err, sizeof(*buffer), "activations");
    buffer->width = width;
    for (int i = 0; i < SPLIT_SIDES && !rc; i++) {
        backend *b = split(self)->sides[i];
        rc = b->ops->buffer_new(b, rows, width, &buffer->halves[i], err);
    }
    if (rc) split_buffer_free(self, buffer);
    else *out = buffer;
    return rc;
}

void split_buffer_free(backend *self, backend_buffer *buffer) {
    if (!buffer) return;
    for (int i = 0; i < SPLIT_SIDES; i++) {
        backend *b = split(self)->sides[i];
        if (buffer->halves[i]) b->ops->buffer_free(b, buffer->halves[i]);
    }
    base_free(buffer);
}

void split_buffer_set_width(backend *self, backend_buffer *buffer, int32_t width) {
    for (int i = 0; i < SPLIT_SIDES; i++) {
        backend *b = split(self)->sides[i];
        b->ops->buffer_set_width(b, buffer->halves[i], width);
    }
    buffer->width = width;
}

/* The current side, and its half of a buffer; NULL: there is no buffer. */
static backend *now(backend *self) { return split(self)->sides[split(self)->side]; }
static backend_buffer *half(backend *self, const backend_buffer *x) {
    return x ? x->halves[split(self)->side] : NULL;
}

#define MOST_BUFFERS 4 /* of a list */
_Static_assert(BACKEND_MAX_WEIGHTS <= MOST_BUFFERS && MODEL_MAX_STREAMS <= MOST_BUFFERS, "lists of buffers");

static void list_halves(backend *self, backend_buffer *const *x, int32_t n, backend_buffer *out[MOST_BUFFERS]) {
    BASE_ASSERT(n <= MOST_BUFFERS);
    for (int32_t i = 0; i < n; i++) out[i] = half(self, x[i]);
}

/* The side of a layer's operations. */
static backend *side_of(backend *self, BASE_UNUSED int32_t layer) {
    BASE_DCHECK(split(self)->side == (layer < split(self)->first ? SPLIT_HOST : SPLIT_DEVICE));
    return now(self);
}

/* Of the side that computed it: after a step, the device. */
void split_buffer_read(backend *self, const backend_buffer *src, int32_t rows, float *dst) {
    now(self)->ops->buffer_read(now(self), half(self, src), rows, dst);
}

void split_buffer_write(backend *self, const float *src, int32_t rows, backend_buffer *dst) {
    now(self)->ops->buffer_write(now(self), src, rows, half(self, dst));
}

/* ---- of a layer ---- */

void split_store(backend *self, int32_t layer, backend_buffer *keys, const backend_buffer *values) {
    backend *b = side_of(self, layer);
    b->ops->store(b, layer, half(self, keys), half(self, values));
}

void split_index_store(backend *self, int32_t layer, backend_buffer *keys) {
    backend *b = side_of(self, layer);
    b->ops->index_store(b, layer, half(self, keys));
}

void split_index_choose(backend *self, int32_t layer, const backend_buffer *queries, const backend_buffer *weights) {
    backend *b = side_of(self, layer);
    b->ops->index_choose(b, layer, half(self, queries), half(self, weights));
}

void split_attend(backend *self, int32_t layer, const backend_buffer *queries, backend_buffer *dst) {
    backend *b = side_of(self, layer);
    b->ops->attend(b, layer, half(self, queries), half(self, dst));
}

void split_experts(backend *self, int32_t layer, const backend_buffer *src, const backend_buffer *scores, int32_t rows,
                   backend_buffer *dst) {
    backend *b = side_of(self, layer);
    b->ops->experts(b, layer, half(self, src), half(self, scores), rows, half(self, dst));
}

/* ---- of rows ---- */

void split_embed(backend *self, const model_weight *table, backend_buffer *dst) {
    now(self)->ops->embed(now(self), table, half(self, dst));
}

void split_embed_layers(backend *self, backend_buffer *dst) {
    now(self)->ops->embed_layers(now(self), half(self, dst));
}

void split_norm(backend *self, const backend_buffer *src, const model_norm *norm, int32_t rows, backend_buffer *dst) {
    now(self)->ops->norm(now(self), half(self, src), norm, rows, half(self, dst));
}

void split_linear(backend *self, const backend_buffer *src, int32_t rows, int32_t n, const model_weight *const *weights,
                  const model_weight *const *biases, backend_buffer *const *dst) {
    backend_buffer *to[MOST_BUFFERS];
    list_halves(self, dst, n, to);
    now(self)->ops->linear(now(self), half(self, src), rows, n, weights, biases, to);
}

void split_adapt(backend *self, const backend_buffer *src, const int32_t *indices, int32_t rows, int32_t n,
                 const model_weight *const *weights, backend_buffer *const *dst) {
    backend_buffer *to[MOST_BUFFERS];
    list_halves(self, dst, n, to);
    now(self)->ops->adapt(now(self), half(self, src), indices, rows, n, weights, to);
}

bool split_has_adapters(const backend *self) {
    const split_backend *b = (const split_backend *)self;
    return b->sides[b->side]->ops->has_adapters(b->sides[b->side]);
}

void split_linear_runs(backend *self, const backend_buffer *src, backend_columns from, int32_t rows,
                       const model_weight *weight, backend_buffer *dst, backend_columns to) {
    now(self)->ops->linear_runs(now(self), half(self, src), from, rows, weight, half(self, dst), to);
}

void split_copy_runs(backend *self, const backend_buffer *src, backend_columns from, int32_t rows, int32_t width,
                     int32_t n, backend_buffer *dst, backend_columns to) {
    now(self)->ops->copy_runs(now(self), half(self, src), from, rows, width, n, half(self, dst), to);
}

void split_act(backend *self, kernel_act act, backend_buffer *a, const backend_buffer *up, int32_t rows) {
    now(self)->ops->act(now(self), act, half(self, a), half(self, up), rows);
}

void split_sparsify(backend *self, backend_buffer *a, float deviations, int32_t rows) {
    now(self)->ops->sparsify(now(self), half(self, a), deviations, rows);
}

void split_mix(backend *self, backend_buffer *const *src, int32_t n, const backend_buffer *factors, int32_t rows,
               backend_buffer *const *dst, int32_t n_dst) {
    backend_buffer *from[MOST_BUFFERS], *to[MOST_BUFFERS];
    list_halves(self, src, n, from);
    list_halves(self, dst, n_dst, to);
    now(self)->ops->mix(now(self), from, n, half(self, factors), rows, to, n_dst);
}

void split_match(backend *self, backend_buffer *dst, const backend_buffer *like, int32_t rows) {
    now(self)->ops->match(now(self), half(self, dst), half(self, like), rows);
}

void split_multiply(backend *self, backend_buffer *dst, const model_weight *factors, int32_t rows) {
    now(self)->ops->multiply(now(self), half(self, dst), factors, rows);
}

void split_xielu(backend *self, const model_xielu *xielu, backend_buffer *a, int32_t rows) {
    now(self)->ops->xielu(now(self), xielu, half(self, a), rows);
}

void split_gate_rows(backend *self, backend_buffer *dst, const backend_buffer *gates, int32_t rows) {
    now(self)->ops->gate_rows(now(self), half(self, dst), half(self, gates), rows);
}

void split_add(backend *self, backend_buffer *dst, const backend_buffer *src, float scale, int32_t rows) {
    now(self)->ops->add(now(self), half(self, dst), half(self, src), scale, rows);
}

void split_clamp(backend *self, backend_buffer *dst, float limit, int32_t rows) {
    now(self)->ops->clamp(now(self), half(self, dst), limit, rows);
}

void split_scale(backend *self, backend_buffer *dst, float factor, int32_t rows) {
    now(self)->ops->scale(now(self), half(self, dst), factor, rows);
}

void split_soft_cap(backend *self, backend_buffer *dst, float cap, int32_t rows) {
    now(self)->ops->soft_cap(now(self), half(self, dst), cap, rows);
}

void split_temper(backend *self, backend_buffer *dst, int32_t rows) {
    now(self)->ops->temper(now(self), half(self, dst), rows);
}

void split_gather(backend *self, const backend_buffer *src, const int32_t *indices, int32_t n, backend_buffer *dst) {
    now(self)->ops->gather(now(self), half(self, src), indices, n, half(self, dst));
}
