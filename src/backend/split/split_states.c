/* SPDX-License-Identifier: Apache-2.0 */
/* split_states.c: states of recurrent layers. Each side has those of its own layers; a side without recurrent layers
 * has none. Spans of states have both: layers of the CPU in the host's memory, the others in the device's. */
#include "backend/split/split_backend.h"

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"

struct backend_states {
    backend_states *sides[SPLIT_SIDES]; /* NULL: the side has no recurrent layers */
};

/* Of a side; NULL: it has no recurrent layers. */
static const backend_recurrence *recurrence_of(backend *self, int side) {
    const split_backend *b = split(self);
    return model_is_recurrent(&b->parts[side].net) ? b->sides[side]->ops->recurrence : NULL;
}

static void states_free(backend *self, backend_states *states) {
    if (!states) return;
    for (int i = 0; i < SPLIT_SIDES; i++) {
        const backend_recurrence *r = recurrence_of(self, i);
        if (r) r->states_free(split(self)->sides[i], states->sides[i]);
    }
    base_free(states);
}

static int states_new(backend *self, backend_states **out, rp_error *err) {
    backend_states *s = base_calloc(1, sizeof(*s));
    int rc = RP_OK;
    *out = NULL;
    if (!s) return base_fail_memory(err, sizeof(*s), "states of recurrent layers");
    for (int i = 0; i < SPLIT_SIDES && !rc; i++) {
        const backend_recurrence *r = recurrence_of(self, i);
        if (r) rc = r->states_new(split(self)->sides[i], &s->sides[i], err);
    }
    if (rc) states_free(self, s);
    else *out = s;
    return rc;
}

static void states_load(backend *self, backend_states *states, const kv_span *from) {
    for (int i = 0; i < SPLIT_SIDES; i++) {
        const backend_recurrence *r = recurrence_of(self, i);
        if (r) r->states_load(split(self)->sides[i], states->sides[i], from);
    }
}

static void states_save(backend *self, const backend_states *states, kv_span *to) {
    for (int i = 0; i < SPLIT_SIDES; i++) {
        const backend_recurrence *r = recurrence_of(self, i);
        if (r) r->states_save(split(self)->sides[i], states->sides[i], to);
    }
}

static void states_accept(backend *self, backend_states *states, int32_t n) {
    for (int i = 0; i < SPLIT_SIDES; i++) {
        const backend_recurrence *r = recurrence_of(self, i);
        if (r) r->states_accept(split(self)->sides[i], states->sides[i], n);
    }
}

static void states_begin(backend *self, backend_states *states) {
    for (int i = 0; i < SPLIT_SIDES; i++) {
        const backend_recurrence *r = recurrence_of(self, i);
        if (r) r->states_begin(split(self)->sides[i], states->sides[i]);
    }
}

/* After a failure the states of one side are composed, and the others are not: they are not used. */
static int states_compose(backend *self, backend_states *states, const kv_span *end, const kv_span *begin,
                          rp_error *err) {
    int rc = RP_OK;
    for (int i = 0; i < SPLIT_SIDES && !rc; i++) {
        const backend_recurrence *r = recurrence_of(self, i);
        if (r) rc = r->states_compose(split(self)->sides[i], states->sides[i], end, begin, err);
    }
    return rc;
}

static void convolve(backend *self, int32_t layer, backend_buffer *src, backend_buffer *dst) {
    const split_backend *b = split(self);
    backend *side = b->sides[b->side];
    side->ops->recurrence->convolve(side, layer, src->halves[b->side], dst->halves[b->side]);
}

static void scan(backend *self, int32_t layer, backend_buffer *const *in, backend_buffer *dst) {
    const split_backend *b = split(self);
    backend *side = b->sides[b->side];
    backend_buffer *from[MODEL_MAX_SCANNED];
    for (int i = 0; i < MODEL_MAX_SCANNED; i++) from[i] = in[i] ? in[i]->halves[b->side] : NULL;
    side->ops->recurrence->scan(side, layer, from, dst->halves[b->side]);
}

const backend_recurrence split_recurrence = {
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

void split_states_begin(split_backend *b, const model_step *step) {
    BASE_ASSERT(!step->states || step->n_contexts <= b->max_rows);
    for (int i = 0; i < SPLIT_SIDES; i++) {
        const bool has_states = step->states && recurrence_of(&b->base, i);
        b->steps[i] = *step;
        b->steps[i].states = has_states ? b->states[i] : NULL;
        for (int32_t c = 0; c < step->n_contexts && has_states; c++) b->states[i][c] = step->states[c]->sides[i];
    }
}
