/* SPDX-License-Identifier: Apache-2.0 */
/* deferred_backend.c: see deferred_backend.h. */
#include "deferred_backend.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define MAX_QUEUED 4096 /* operations of a step */

typedef enum op_kind { OP_SET_WIDTH,
                       OP_EMBED,
                       OP_EMBED_LAYERS,
                       OP_NORM,
                       OP_LINEAR,
                       OP_ADAPT,
                       OP_LINEAR_RUNS,
                       OP_COPY_RUNS,
                       OP_STORE,
                       OP_INDEX_STORE,
                       OP_INDEX_CHOOSE,
                       OP_ATTEND,
                       OP_ACT,
                       OP_EXPERTS,
                       OP_GATE_ROWS,
                       OP_ADD,
                       OP_CLAMP,
                       OP_SCALE,
                       OP_SOFT_CAP,
                       OP_TEMPER,
                       OP_XIELU,
                       OP_SPARSIFY,
                       OP_MIX,
                       OP_MATCH,
                       OP_MULTIPLY,
                       OP_GATHER,
                       OP_OBSERVE,
                       OP_CONVOLVE,
                       OP_SCAN } op_kind;

/* A call: its arguments, in the order of backend_ops. */
typedef struct call {
    op_kind kind;
    int32_t layer, rows, width, n;
    const backend_buffer *src, *other;
    backend_buffer *dst, *dsts[MODEL_MAX_SCANNED]; /* at least BACKEND_MAX_WEIGHTS */
    const model_weight *weights[BACKEND_MAX_WEIGHTS], *biases[BACKEND_MAX_WEIGHTS];
    bool has_biases;
    const model_norm *norm;
    const model_xielu *xielu;
    int32_t *indices; /* owned; NULL: none */
    backend_buffer *srcs[MODEL_MAX_STREAMS];
    kernel_act act;
    float factor;
    backend_columns from, to;
} call;

typedef struct deferred {
    backend base;
    backend_ops ops;
    backend_study study;
    backend_recurrence recurrence;
    backend *inner;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    call calls[MAX_QUEUED];
    size_t n, done; /* of calls; both 0 after a wait */
    uint64_t computed;
    bool is_closed, stops;
} deferred;

static deferred *of(backend *b) { return (deferred *)b; }
static const deferred *of_const(const backend *b) { return (const deferred *)b; }

/* ---- the thread ---- */

static void compute(backend *b, const call *c) {
    const backend_ops *op = b->ops;
    switch (c->kind) {
    case OP_SET_WIDTH: op->buffer_set_width(b, c->dst, c->n); break;
    case OP_EMBED: op->embed(b, c->weights[0], c->dst); break;
    case OP_EMBED_LAYERS: op->embed_layers(b, c->dst); break;
    case OP_NORM: op->norm(b, c->src, c->norm, c->rows, c->dst); break;
    case OP_LINEAR: op->linear(b, c->src, c->rows, c->n, c->weights, c->has_biases ? c->biases : NULL, c->dsts); break;
    case OP_ADAPT: op->adapt(b, c->src, c->indices, c->rows, c->n, c->weights, c->dsts); break;
    case OP_LINEAR_RUNS: op->linear_runs(b, c->src, c->from, c->rows, c->weights[0], c->dst, c->to); break;
    case OP_COPY_RUNS: op->copy_runs(b, c->src, c->from, c->rows, c->width, c->n, c->dst, c->to); break;
    case OP_STORE: op->store(b, c->layer, c->dst, c->src); break;
    case OP_INDEX_STORE: op->index_store(b, c->layer, c->dst); break;
    case OP_INDEX_CHOOSE: op->index_choose(b, c->layer, c->src, c->other); break;
    case OP_ATTEND: op->attend(b, c->layer, c->src, c->dst); break;
    case OP_ACT: op->act(b, c->act, c->dst, c->src, c->rows); break;
    case OP_EXPERTS: op->experts(b, c->layer, c->src, c->other, c->rows, c->dst); break;
    case OP_GATE_ROWS: op->gate_rows(b, c->dst, c->src, c->rows); break;
    case OP_ADD: op->add(b, c->dst, c->src, c->factor, c->rows); break;
    case OP_CLAMP: op->clamp(b, c->dst, c->factor, c->rows); break;
    case OP_SCALE: op->scale(b, c->dst, c->factor, c->rows); break;
    case OP_SOFT_CAP: op->soft_cap(b, c->dst, c->factor, c->rows); break;
    case OP_TEMPER: op->temper(b, c->dst, c->rows); break;
    case OP_XIELU: op->xielu(b, c->xielu, c->dst, c->rows); break;
    case OP_SPARSIFY: op->sparsify(b, c->dst, c->factor, c->rows); break;
    case OP_MIX: op->mix(b, c->srcs, c->n, c->other, c->rows, c->dsts, c->width); break;
    case OP_MATCH: op->match(b, c->dst, c->src, c->rows); break;
    case OP_MULTIPLY: op->multiply(b, c->dst, c->weights[0], c->rows); break;
    case OP_GATHER: op->gather(b, c->src, c->indices, c->n, c->dst); break;
    case OP_OBSERVE: op->study->observe_input(b, c->src); break;
    case OP_CONVOLVE: op->recurrence->convolve(b, c->layer, c->dsts[0], c->dst); break;
    case OP_SCAN: op->recurrence->scan(b, c->layer, c->dsts, c->dst); break;
    }
}

static void *work(void *arg) {
    deferred *d = arg;
    pthread_mutex_lock(&d->lock);
    while (!d->stops || d->done < d->n) {
        if (d->done == d->n || d->is_closed) {
            pthread_cond_wait(&d->changed, &d->lock);
            continue;
        }
        const call c = d->calls[d->done];
        pthread_mutex_unlock(&d->lock);
        compute(d->inner, &c);
        free(c.indices);
        pthread_mutex_lock(&d->lock);
        d->done++;
        d->computed++;
        pthread_cond_broadcast(&d->changed);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static void push(backend *b, call c) {
    deferred *d = of(b);
    pthread_mutex_lock(&d->lock);
    BASE_ASSERT(d->n < MAX_QUEUED);
    d->calls[d->n++] = c;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
}

static backend *wait(backend *b) {
    deferred *d = of(b);
    pthread_mutex_lock(&d->lock);
    while (d->done < d->n) pthread_cond_wait(&d->changed, &d->lock);
    d->n = d->done = 0;
    pthread_mutex_unlock(&d->lock);
    return d->inner;
}

/* ---- operations that return at once ---- */

static int32_t *copy_indices(const int32_t *indices, int32_t n) {
    if (!indices) return NULL;
    int32_t *copy = malloc(sizeof(*copy) * (size_t)(n + 1));
    memcpy(copy, indices, sizeof(*copy) * (size_t)n);
    return copy;
}

static call of_weights(op_kind kind, const backend_buffer *src, int32_t rows, int32_t n,
                       const model_weight *const *weights, const model_weight *const *biases,
                       backend_buffer *const *dst) {
    call c = {.kind = kind, .src = src, .rows = rows, .n = n, .has_biases = biases != NULL};
    BASE_ASSERT(n <= BACKEND_MAX_WEIGHTS);
    for (int32_t i = 0; i < n; i++) {
        c.weights[i] = weights[i];
        c.biases[i] = biases ? biases[i] : NULL;
        c.dsts[i] = dst[i];
    }
    return c;
}

static void set_width(backend *b, backend_buffer *buffer, int32_t width) {
    push(b, (call){.kind = OP_SET_WIDTH, .dst = buffer, .n = width});
}
static void embed_layers(backend *b, backend_buffer *dst) { push(b, (call){.kind = OP_EMBED_LAYERS, .dst = dst}); }
static void embed(backend *b, const model_weight *table, backend_buffer *dst) {
    push(b, (call){.kind = OP_EMBED, .weights = {table}, .dst = dst});
}
static void norm(backend *b, const backend_buffer *src, const model_norm *n, int32_t rows, backend_buffer *dst) {
    push(b, (call){.kind = OP_NORM, .src = src, .norm = n, .rows = rows, .dst = dst});
}
static void linear(backend *b, const backend_buffer *src, int32_t rows, int32_t n, const model_weight *const *weights,
                   const model_weight *const *biases, backend_buffer *const *dst) {
    push(b, of_weights(OP_LINEAR, src, rows, n, weights, biases, dst));
}
static void adapt(backend *b, const backend_buffer *src, const int32_t *indices, int32_t rows, int32_t n,
                  const model_weight *const *weights, backend_buffer *const *dst) {
    call c = of_weights(OP_ADAPT, src, rows, n, weights, NULL, dst);
    c.indices = copy_indices(indices, rows);
    push(b, c);
}
static void linear_runs(backend *b, const backend_buffer *src, backend_columns from, int32_t rows,
                        const model_weight *weight, backend_buffer *dst, backend_columns to) {
    push(b, (call){.kind = OP_LINEAR_RUNS,
                   .src = src,
                   .from = from,
                   .rows = rows,
                   .weights = {weight},
                   .dst = dst,
                   .to = to});
}
static void copy_runs(backend *b, const backend_buffer *src, backend_columns from, int32_t rows, int32_t width,
                      int32_t n, backend_buffer *dst, backend_columns to) {
    push(b, (call){.kind = OP_COPY_RUNS,
                   .src = src,
                   .from = from,
                   .rows = rows,
                   .width = width,
                   .n = n,
                   .dst = dst,
                   .to = to});
}
static void store(backend *b, int32_t layer, backend_buffer *keys, const backend_buffer *values) {
    push(b, (call){.kind = OP_STORE, .layer = layer, .dst = keys, .src = values});
}
static void attend(backend *b, int32_t layer, const backend_buffer *queries, backend_buffer *dst) {
    push(b, (call){.kind = OP_ATTEND, .layer = layer, .src = queries, .dst = dst});
}
static void act(backend *b, kernel_act kind, backend_buffer *a, const backend_buffer *up, int32_t rows) {
    push(b, (call){.kind = OP_ACT, .act = kind, .dst = a, .src = up, .rows = rows});
}
static void experts(backend *b, int32_t layer, const backend_buffer *src, const backend_buffer *scores, int32_t rows,
                    backend_buffer *dst) {
    push(b, (call){.kind = OP_EXPERTS, .layer = layer, .src = src, .other = scores, .rows = rows, .dst = dst});
}
static void xielu(backend *b, const model_xielu *x, backend_buffer *a, int32_t rows) {
    push(b, (call){.kind = OP_XIELU, .xielu = x, .rows = rows, .dst = a});
}

static void sparsify(backend *b, backend_buffer *a, float deviations, int32_t rows) {
    push(b, (call){.kind = OP_SPARSIFY, .dst = a, .factor = deviations, .rows = rows});
}

static void mix(backend *b, backend_buffer *const *src, int32_t n, const backend_buffer *factors, int32_t rows,
                backend_buffer *const *dst, int32_t n_dst) {
    call c = {.kind = OP_MIX, .other = factors, .n = n, .rows = rows, .width = n_dst};
    BASE_ASSERT(n <= MODEL_MAX_STREAMS && n_dst <= BACKEND_MAX_WEIGHTS);
    memcpy(c.srcs, src, sizeof(*src) * (size_t)n);
    memcpy(c.dsts, dst, sizeof(*dst) * (size_t)n_dst);
    push(b, c);
}

static void match(backend *b, backend_buffer *dst, const backend_buffer *like, int32_t rows) {
    push(b, (call){.kind = OP_MATCH, .dst = dst, .src = like, .rows = rows});
}

static void multiply(backend *b, backend_buffer *dst, const model_weight *factors, int32_t rows) {
    push(b, (call){.kind = OP_MULTIPLY, .dst = dst, .weights = {factors}, .rows = rows});
}

static void temper(backend *b, backend_buffer *dst, int32_t rows) {
    push(b, (call){.kind = OP_TEMPER, .rows = rows, .dst = dst});
}

static void gate_rows(backend *b, backend_buffer *dst, const backend_buffer *gates, int32_t rows) {
    push(b, (call){.kind = OP_GATE_ROWS, .dst = dst, .src = gates, .rows = rows});
}
static void add(backend *b, backend_buffer *dst, const backend_buffer *src, float factor, int32_t rows) {
    push(b, (call){.kind = OP_ADD, .dst = dst, .src = src, .factor = factor, .rows = rows});
}
static void clamp(backend *b, backend_buffer *dst, float limit, int32_t rows) {
    push(b, (call){.kind = OP_CLAMP, .dst = dst, .factor = limit, .rows = rows});
}
static void scale(backend *b, backend_buffer *dst, float factor, int32_t rows) {
    push(b, (call){.kind = OP_SCALE, .dst = dst, .factor = factor, .rows = rows});
}
static void soft_cap(backend *b, backend_buffer *dst, float cap, int32_t rows) {
    push(b, (call){.kind = OP_SOFT_CAP, .dst = dst, .factor = cap, .rows = rows});
}
static void index_store(backend *b, int32_t layer, backend_buffer *keys) {
    push(b, (call){.kind = OP_INDEX_STORE, .layer = layer, .dst = keys});
}
static void index_choose(backend *b, int32_t layer, const backend_buffer *queries, const backend_buffer *weights) {
    push(b, (call){.kind = OP_INDEX_CHOOSE, .layer = layer, .src = queries, .other = weights});
}
static void gather(backend *b, const backend_buffer *src, const int32_t *indices, int32_t n, backend_buffer *dst) {
    push(b, (call){.kind = OP_GATHER, .src = src, .indices = copy_indices(indices, n), .n = n, .dst = dst});
}
static void observe_input(backend *b, const backend_buffer *input) {
    push(b, (call){.kind = OP_OBSERVE, .src = input});
}
static void convolve(backend *b, int32_t layer, backend_buffer *src, backend_buffer *dst) {
    push(b, (call){.kind = OP_CONVOLVE, .layer = layer, .dsts = {src}, .dst = dst});
}
static void scan(backend *b, int32_t layer, backend_buffer *const *in, backend_buffer *dst) {
    call c = {.kind = OP_SCAN, .layer = layer, .dst = dst};
    memcpy(c.dsts, in, sizeof(c.dsts));
    push(b, c);
}

/* ---- operations that wait ---- */

static void buffer_read(backend *b, const backend_buffer *src, int32_t rows, float *dst) {
    backend *inner = wait(b);
    inner->ops->buffer_read(inner, src, rows, dst);
}
static void buffer_write(backend *b, const float *src, int32_t rows, backend_buffer *dst) {
    backend *inner = wait(b);
    inner->ops->buffer_write(inner, src, rows, dst);
}
static int begin(backend *b, const model_step *step, rp_error *err) {
    backend *inner = wait(b);
    return inner->ops->begin(inner, step, err);
}
static void deviate(backend *b, int32_t layer, backend_buffer *keys, const backend_buffer *values, float *deviations) {
    backend *inner = wait(b);
    inner->ops->study->deviate(inner, layer, keys, values, deviations);
}
static int states_new(backend *b, backend_states **out, rp_error *err) {
    return of(b)->inner->ops->recurrence->states_new(of(b)->inner, out, err);
}
static void states_free(backend *b, backend_states *states) {
    backend *inner = wait(b);
    inner->ops->recurrence->states_free(inner, states);
}
static void states_load(backend *b, backend_states *states, const kv_span *from) {
    backend *inner = wait(b);
    inner->ops->recurrence->states_load(inner, states, from);
}
static void states_save(backend *b, const backend_states *states, kv_span *to) {
    backend *inner = wait(b);
    inner->ops->recurrence->states_save(inner, states, to);
}
static void states_accept(backend *b, backend_states *states, int32_t n) {
    backend *inner = wait(b);
    inner->ops->recurrence->states_accept(inner, states, n);
}
static void states_begin(backend *b, backend_states *states) {
    backend *inner = wait(b);
    inner->ops->recurrence->states_begin(inner, states);
}
static int states_compose(backend *b, backend_states *states, const kv_span *end, const kv_span *begin, rp_error *err) {
    backend *inner = wait(b);
    return inner->ops->recurrence->states_compose(inner, states, end, begin, err);
}

/* ---- what is not of a step ---- */

static kv_memory *memory(backend *b) { return of(b)->inner->ops->memory(of(b)->inner); }
static int buffer_new(backend *b, int32_t rows, int32_t width, backend_buffer **out, rp_error *err) {
    return of(b)->inner->ops->buffer_new(of(b)->inner, rows, width, out, err);
}
static void buffer_free(backend *b, backend_buffer *buffer) {
    backend *inner = wait(b);
    inner->ops->buffer_free(inner, buffer);
}
static bool has_adapters(const backend *b) { return of_const(b)->inner->ops->has_adapters(of_const(b)->inner); }

static void free_deferred(backend *b) {
    deferred *d = of(b);
    pthread_mutex_lock(&d->lock);
    d->stops = true;
    d->is_closed = false;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    d->inner->ops->free(d->inner);
    free(d);
}

static void set_gate(backend *b, bool is_closed) {
    pthread_mutex_lock(&of(b)->lock);
    of(b)->is_closed = is_closed;
    pthread_cond_broadcast(&of(b)->changed);
    pthread_mutex_unlock(&of(b)->lock);
}

void deferred_backend_close_gate(backend *b) { set_gate(b, true); }
void deferred_backend_open_gate(backend *b) { set_gate(b, false); }

uint64_t deferred_backend_computed(backend *b) {
    pthread_mutex_lock(&of(b)->lock);
    const uint64_t n = of(b)->computed;
    pthread_mutex_unlock(&of(b)->lock);
    return n;
}

backend *deferred_backend_new(backend *inner) {
    deferred *d = calloc(1, sizeof(*d));
    BASE_ASSERT(d && inner->ops->study && inner->ops->recurrence && !inner->ops->enter); /* it is a CPU's */
    d->inner = inner;
    d->study = (backend_study){.observe_input = observe_input, .deviate = deviate}; /* of a forward pass */
    d->recurrence = (backend_recurrence){states_new, states_free, states_load, states_save, states_accept,
                                         states_begin, states_compose, convolve, scan};
    d->ops = (backend_ops){
        .name = "deferred",
        .study = &d->study,
        .recurrence = &d->recurrence,
        .free = free_deferred,
        .memory = memory,
        .buffer_new = buffer_new,
        .buffer_free = buffer_free,
        .buffer_read = buffer_read,
        .buffer_write = buffer_write,
        .begin = begin,
        .buffer_set_width = set_width,
        .embed = embed,
        .embed_layers = embed_layers,
        .norm = norm,
        .linear = linear,
        .adapt = adapt,
        .has_adapters = has_adapters,
        .linear_runs = linear_runs,
        .copy_runs = copy_runs,
        .store = store,
        .index_store = index_store,
        .index_choose = index_choose,
        .attend = attend,
        .act = act,
        .experts = experts,
        .temper = temper,
        .xielu = xielu,
        .sparsify = sparsify,
        .mix = mix,
        .match = match,
        .multiply = multiply,
        .gate_rows = gate_rows,
        .add = add,
        .clamp = clamp,
        .scale = scale,
        .soft_cap = soft_cap,
        .gather = gather,
    };
    d->base.ops = &d->ops;
    BASE_ASSERT(pthread_mutex_init(&d->lock, NULL) == 0 && pthread_cond_init(&d->changed, NULL) == 0);
    BASE_ASSERT(pthread_create(&d->thread, NULL, work, d) == 0);
    return &d->base;
}
