/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_recurrence.c: layers with states.
 *
 *   states   [layer 0: state_bytes][layer 3: state_bytes] ...      of one sequence, layers of other kinds have none;
 *         each begins at a cache line
 *
 * A scan divides the elements among threads, and each goes through the rows of the step in their order: an element's
 * arithmetic depends neither on the division nor on where steps begin.
 */
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "backend/cpu/cpu_backend.h"

#define STATE_ALIGNMENT 64
#define ELEMENTS_PER_TASK 1024

struct backend_states {
    char *data;
};

static const cpu_backend *cpu(const backend *b) { return (const cpu_backend *)b; }

/* Where the state of a layer of a span begins; of the layer after the last: bytes of all. */
static size_t state_at(const cpu_backend *b, int32_t layer) {
    size_t at = 0;
    for (int32_t l = 0; l < layer; l++)
        at += ((size_t)b->shape.layers[l].state_bytes + STATE_ALIGNMENT - 1) / STATE_ALIGNMENT * STATE_ALIGNMENT;
    return at;
}

static int states_new(backend *self, backend_states **out, rp_error *err) {
    const size_t bytes = state_at(cpu(self), cpu(self)->shape.n_layers);
    *out = base_alloc(sizeof(**out));
    if (!*out) return base_fail_memory(err, sizeof(**out), "states of recurrent layers");
    if (!((*out)->data = base_alloc_aligned(bytes, STATE_ALIGNMENT))) {
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

typedef struct scan_job {
    const cpu_backend *b;
    const float *decay;
    size_t at; /* of the layer in states */
    const backend_buffer *src;
    backend_buffer *dst;
} scan_job;

static void scan_part(void *arg, int64_t begin, int64_t end, int thread) {
    (void)thread;
    const scan_job *j = arg;
    const model_step *step = j->b->step;
    for (int32_t r = 0; r < step->n_rows; r++) {
        float *state = (float *)(void *)(step->states[step->rows[r].context]->data + j->at), *y = cpu_row_at(j->dst, r);
        const float *x = cpu_row_of(j->src, r);
        for (int64_t i = begin; i < end; i++) y[i] = state[i] = j->decay[i] * state[i] + x[i];
    }
}

static void scan(backend *self, int32_t layer, const backend_buffer *src, backend_buffer *dst) {
    const cpu_backend *b = cpu(self);
    const model_layer *l = &b->net->layers[layer];
    scan_job j = {b, l->decay.data, state_at(b, l->states), src, dst};
    BASE_ASSERT(l->mixer == MODEL_DECAYED_SUM && b->step->states && src->width == dst->width);
    BASE_ASSERT(b->shape.layers[l->states].state_bytes == sizeof(float) * (size_t)src->width);
    base_threads_for(b->threads, scan_part, &j, src->width, ELEMENTS_PER_TASK);
}

const backend_recurrence cpu_recurrence = {
    .states_new = states_new,
    .states_free = states_free,
    .states_load = states_load,
    .states_save = states_save,
    .scan = scan,
};
