/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_observers.c: what rows attend to (backend/attention_observer.h), on the device.
 *
 * The weights of a layer are joined on the device, tile by tile: over rows, and over the query heads that count as one.
 * What is left, a number for each observed slot and list of heads, is copied to the host's memory after each layer; the
 * host adds it to the observers when the step is computed. So a step with observers waits no more often than others.
 *
 *   scores and factors of a tile --observe--> joined [runs][lists][blocks][64] --copied--> readback [layers][...]
 *
 * A run: adjacent rows of a step with the same observer. Records of queries are as large as the queries themselves:
 * they are read layer by layer, and awaited, which bounds the memory that they take.
 */
#include <math.h>
#include <string.h>

#include "backend/vulkan/vulkan_attention.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

#define MOST_BLOCKS 32768u /* workgroups of a dispatch: each takes several blocks, if there are more */
#define MAX_RUNS ((size_t)1 << 20)

typedef struct observed_run {
    attention_observer *observer;
    int32_t first, end; /* rows of the step */
    size_t first_view, n_views;
    uint32_t first_entry, n_entries; /* of the observed views */
    uint64_t at;                     /* of its numbers in those of a layer */
} observed_run;

struct vulkan_observers {
    observed_run *runs; /* [n_runs] of the step */
    size_t n_runs, cap_runs;
    int32_t *layers; /* [n_layers]: those that the step has computed so far */
    int32_t n_layers;
    bool is_relative, is_recorded;
    uint64_t layer_bytes;   /* of all runs */
    vulkan_buffer joined;   /* of a layer */
    vulkan_buffer norms;    /* f32 [rows]: 1 / length of each row's input of the layer's attention */
    vulkan_buffer readback; /* of all layers, in the host's memory: outside of the limit on device memory */
};

void vulkan_observers_free(vulkan_backend *b) {
    vulkan_observers *o = b->attention->observers;
    if (!o) return;
    vulkan_give(b, &o->joined);
    vulkan_give(b, &o->norms);
    vulkan_buffer_free(b->device, &o->readback);
    base_free(o->runs);
    base_free(o->layers);
    base_free(o);
    b->attention->observers = NULL;
}

/* ---- the runs of a step ---- */

/* Lists of a layer: its heads that an observer counts apart. */
static uint32_t lists_of(const attention_observer *o, const model_layer *l) {
    switch (o->measure) {
    case ATTENTION_TOTAL: return 1;
    case ATTENTION_RELATIVE: return (uint32_t)l->n_heads;
    case ATTENTION_MAXIMUM:
    case ATTENTION_SUM: break;
    }
    return (uint32_t)l->n_kv_heads;
}

/* Of the layer that has most. */
static uint32_t most_lists(const vulkan_backend *b, const attention_observer *o) {
    uint32_t n = 0;
    for (int32_t i = 0; i < b->net->hp.n_layers; i++)
        if (model_mixer_attends(b->net->layers[i].mixer)) n = BASE_MAX(n, lists_of(o, &b->net->layers[i]));
    return n;
}

static int add_run(vulkan_backend *b, int32_t first, int32_t end, rp_error *err) {
    vulkan_observers *o = b->attention->observers;
    const model_row *row = &b->step->rows[first];
    const kv_context *c = b->step->contexts[row->context];
    observed_run run = {.observer = row->observer, .first = first, .end = end, .first_view = row->observer->first_view};
    if (run.first_view >= c->n_views) return RP_OK; /* it has none of the observed views yet */
    run.n_views = BASE_MIN(row->observer->n_views, c->n_views - run.first_view);
    run.first_entry = (uint32_t)b->attention->first_entry[row->context];
    for (size_t i = 0; i < run.first_view + run.n_views; i++)
        *(i < run.first_view ? &run.first_entry : &run.n_entries) += (uint32_t)vulkan_view_blocks(&c->views[i]);
    if (run.n_entries == 0) return RP_OK;
    run.at = o->layer_bytes;
    if (base_grow((void **)&o->runs, &o->cap_runs, o->n_runs + 1, MAX_RUNS, sizeof(*o->runs)))
        return base_fail_memory(err, o->n_runs * sizeof(*o->runs), "observers");
    o->layer_bytes += sizeof(uint64_t) * KV_BLOCK_SLOTS * (uint64_t)most_lists(b, run.observer) * run.n_entries;
    o->runs[o->n_runs++] = run;
    o->is_relative |= run.observer->measure == ATTENTION_RELATIVE;
    return RP_OK;
}

static int reserve(vulkan_backend *b, rp_error *err) {
    vulkan_observers *o = b->attention->observers;
    const uint64_t bytes = o->layer_bytes * (uint64_t)b->net->hp.n_layers;
    int rc = RP_OK;
    if (o->n_runs == 0 || o->readback.bytes >= bytes) return RP_OK;
    vulkan_buffer_free(b->device, &o->readback); /* the last step is computed */
    o->readback = (vulkan_buffer){0};
    rc = vulkan_buffer_new(b->device, VULKAN_TO_HOST, bytes, "weights of attention", &o->readback, err);
    if (rc) o->readback = (vulkan_buffer){0};
    return rc;
}

int vulkan_observers_begin(vulkan_backend *b, rp_error *err) {
    const model_step *step = b->step;
    vulkan_observers *o = b->attention->observers;
    bool any = false;
    int rc = RP_OK;
    for (int32_t r = 0; r < step->n_rows; r++) any = any || step->rows[r].observer || step->rows[r].queries;
    if (!any && !o) return RP_OK;
    if (!o) {
        if (!(o = b->attention->observers = base_calloc(1, sizeof(*o))))
            return base_fail_memory(err, sizeof(*o), "observers");
        if (!(o->layers = base_alloc(sizeof(*o->layers) * (size_t)b->net->hp.n_layers)))
            return base_fail_memory(err, sizeof(*o->layers) * (size_t)b->net->hp.n_layers, "observers");
    }
    o->n_runs = 0;
    o->n_layers = 0;
    o->layer_bytes = 0;
    o->is_relative = o->is_recorded = false;
    for (int32_t r = 0, end; r < step->n_rows && !rc; r = end) {
        const model_row *row = &step->rows[r];
        o->is_recorded |= row->queries != NULL;
        for (end = r + 1; end < step->n_rows && step->rows[end].observer == row->observer &&
                          step->rows[end].context == row->context && row->observer;
             end++)
            o->is_recorded |= step->rows[end].queries != NULL;
        if (row->observer) rc = add_run(b, r, end, err);
    }
    return rc ? rc : reserve(b, err);
}

/* ---- a layer ---- */

void vulkan_observe_input(backend *self, const backend_buffer *input) {
    vulkan_backend *b = vulkan(self);
    vulkan_observers *o = b->attention->observers;
    const uint32_t rows = (uint32_t)b->step->n_rows;
    if (!o || !o->is_relative) return;
    BASE_ASSERT(input->width == b->net->hp.n_embd);
    if (!vulkan_grow_scratch(b, &o->norms, rows)) return;
    const vulkan_norm_args a = {.src = input->memory.address,
                                .dst = o->norms.address,
                                .n = (uint32_t)input->width,
                                .runs = 1,
                                .weight_runs = 1,
                                .n_runs = rows,
                                .stride = (uint32_t)input->width};
    vulkan_norm_record(b, VULKAN_INVERSE_LENGTH, &a);
}

static void observe_run(vulkan_backend *b, const vulkan_tile *t, const observed_run *run) {
    const vulkan_observers *o = b->attention->observers;
    const int32_t tile = (int32_t)t->first, begin = BASE_MAX(run->first, tile),
                  end = BASE_MIN(run->end, tile + (int32_t)t->n_rows);
    int one;
    if (begin >= end) return;
    frexp(run->observer->one, &one); /* a power of two: 2^(one - 1) */
    const uint32_t n_heads = (uint32_t)t->layer->n_heads, n_lists = lists_of(run->observer, t->layer);
    const bool is_relative = run->observer->measure == ATTENTION_RELATIVE;
    const vulkan_observe_args a = {.scores = b->attention->scores.address,
                                   .factors = b->attention->factors.address,
                                   .rows = t->sight->rows,
                                   .blocks = t->sight->blocks,
                                   .norms = is_relative ? o->norms.address : 0,
                                   .dst = o->joined.address + run->at,
                                   .first_entry = run->first_entry,
                                   .n_entries = run->n_entries,
                                   .n_heads = n_heads,
                                   .group = n_heads / (uint32_t)t->layer->n_kv_heads,
                                   .heads_of_list = n_heads / n_lists,
                                   .stride = t->stride,
                                   .row_heads = t->sight->row_heads,
                                   .first_row = t->first,
                                   .begin = (uint32_t)(begin - tile),
                                   .end = (uint32_t)(end - tile),
                                   .one = (uint32_t)(one - 1),
                                   .maximum = attention_observer_is_maximum(run->observer),
                                   .adds = begin > run->first};
    BASE_ASSERT(n_heads % n_lists == 0 && one >= 1);
    vulkan_dispatch(b, VULKAN_OBSERVE, 0, &a, sizeof(a),
                    (uint32_t[]){BASE_MIN(run->n_entries, MOST_BLOCKS), n_lists, 1});
}

void vulkan_observe_tile(vulkan_backend *b, const vulkan_tile *t) {
    vulkan_observers *o = b->attention->observers;
    if (!o || o->n_runs == 0 || !vulkan_grow_scratch(b, &o->joined, o->layer_bytes / sizeof(float))) return;
    for (size_t i = 0; i < o->n_runs; i++) observe_run(b, t, &o->runs[i]);
}

void vulkan_observe_layer(vulkan_backend *b, int32_t layer) {
    vulkan_observers *o = b->attention->observers;
    if (!o || o->n_runs == 0 || b->failure.code) return;
    BASE_ASSERT(o->n_layers < b->net->hp.n_layers);
    vulkan_record_copy(b, &o->joined, &o->readback, (uint64_t)o->n_layers * o->layer_bytes, o->layer_bytes);
    o->layers[o->n_layers++] = layer;
}

void vulkan_record_queries(vulkan_backend *b, int32_t layer, const backend_buffer *queries) {
    const vulkan_observers *o = b->attention->observers;
    const size_t width = (size_t)queries->width;
    if (!o || !o->is_recorded) return;
    const float *x = vulkan_read_now(b, &queries->memory, sizeof(float) * (uint64_t)b->step->n_rows * width);
    for (int32_t r = 0; r < b->step->n_rows && x; r++) {
        const model_row *row = &b->step->rows[r];
        BASE_DCHECK(!row->queries || row->queries->width == queries->width);
        if (row->queries)
            memcpy(query_record_at(row->queries, layer, row->slot), x + (size_t)r * width, sizeof(*x) * width);
    }
}

/* ---- the step is computed ---- */

static void report_layer(const vulkan_backend *b, const observed_run *run, int32_t layer, const uint64_t *numbers) {
    attention_observer *o = run->observer;
    const kv_context *c = b->step->contexts[b->step->rows[run->first].context];
    const int32_t own = o->measure == ATTENTION_RELATIVE ? layer : b->net->layers[layer].states;
    for (uint32_t list = 0; list < lists_of(o, &b->net->layers[layer]); list++)
        for (size_t i = 0; i < run->n_views; i++) {
            const int32_t n_blocks = vulkan_view_blocks(&c->views[run->first_view + i]);
            for (int32_t block = 0; block < n_blocks; block++, numbers += KV_BLOCK_SLOTS)
                attention_observer_add(o, own, (int32_t)list, i, block, ~UINT64_C(0), numbers);
        }
}

void vulkan_observers_report(vulkan_backend *b) {
    vulkan_observers *o = b->attention->observers;
    if (!o || o->n_layers == 0) return;
    for (int32_t i = 0; i < o->n_layers && !b->failure.code; i++)
        for (size_t k = 0; k < o->n_runs; k++)
            report_layer(b, &o->runs[k], o->layers[i],
                         (const uint64_t *)(const void *)(o->readback.mapped + (uint64_t)i * o->layer_bytes +
                                                          o->runs[k].at));
    if (!b->failure.code)
        atomic_fetch_add(&b->copies.to_host_bytes, (uint64_t)o->n_layers * o->layer_bytes);
    o->n_layers = 0;
}
