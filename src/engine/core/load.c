/* SPDX-License-Identifier: Apache-2.0 */
/* load.c: an engine's load, for routers (reprise_cluster.h): counted on the engine's thread, read by any. */
#include "engine/core/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/file.h"
#include "base/sized.h"
#include "engine/background/background.h"
#include "engine/core/cost_model.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/queue.h"
#include "engine/core/status.h"
#include "engine/reuse/segment_prefills.h"
#include "kv/block_pool.h"
#include "kv/kv_plan.h"
#include "pml/layout.h"
#include "reprise_cluster.h"
#include "store/record/record.h"
#include "store/span_store.h"

/* Counting free memory takes time for each span in RAM. */
#define COUNT_FREE_US ((uint64_t)50000)
#define GAP_SHARE 0.95
/* Before so many steps, one that was disturbed decides the coefficients, and a router that believes them sends nothing
   that could correct them. */
#define LEAST_STEPS 16

/* ---- tokens to compute ---- */

static void load_add_tokens(const rp_engine *e, rp_engine_load *load, int32_t n) {
    if (n <= 0) return;
    load->queued_tokens += n;
    if (e->cost->n >= LEAST_STEPS) load->drain_us += (uint64_t)queue_prompt_us(e, n);
}

static void load_add_jobs(rp_engine *e, rp_engine_load *load) {
    for (const rp_job *c = e->waiting; c; c = c->next) load_add_tokens(e, load, c->queued.expected_tokens);
    for (const segment_prefill *p = e->prefills; p; p = p->next)
        if (!p->in_background) load_add_tokens(e, load, segment_prefill_segment(p)->n_tokens - p->seq.done);
    for (int32_t i = 0; i < e->n_running; i++) {
        const rp_job *c = e->running[i];
        if (job_is_answering(c)) {
            load->decoding++;
            load->context_tokens += c->seq.slots;
        } else if (c->kind == JOB_REQUEST) /* its tokens after its modules */
            load_add_tokens(e, load,
                            c->phase == JOB_COMPOSING ? c->n_prompt - c->prefix.n_found : c->seq.n - c->seq.done);
    }
}

/* ---- the rest ---- */

static uint64_t free_bytes(rp_engine *e) {
    const uint64_t now = base_clock_us();
    const bool idle = e->n_running == 0 && !e->waiting;
    if (e->meter->free_bytes_us && now - e->meter->free_bytes_us < COUNT_FREE_US &&
        (!idle || e->meter->free_bytes_idle))
        return e->meter->free_bytes;
    const kv_pool_stats pool = kv_pool_get_stats(e->pool);
    e->meter->free_bytes =
        pool.budget_bytes - BASE_MIN(pool.used_bytes, pool.budget_bytes) + span_store_idle_bytes(e->store);
    e->meter->free_bytes_us = now;
    e->meter->free_bytes_idle = idle;
    return e->meter->free_bytes;
}

rp_engine_load engine_load(rp_engine *e) {
    rp_engine_load load = {.background = e->background_tasks->n_tasks, .free_bytes = free_bytes(e)};
    _Static_assert(RP_COST_KNOTS == COST_KNOTS, "the load has the model's knots");
    load_add_jobs(e, &load);
    load.quiet_us = base_clock_us(); /* when it is: rp_engine_get_load makes a time since then of it */
    load.read_byte_us = span_store_read_byte_us(e->store);
    if (e->cost->n >= LEAST_STEPS) cost_model_coefficients(e->cost, load.knot_us, &load.row_slot_us, &load.slot_us);
    return load;
}

void engine_count_gap(rp_engine *e, uint64_t end_us, bool answers) {
    engine_meter *g = e->meter;
    if (answers && g->last_us) {
        pthread_mutex_lock(&e->lock);
        g->gap_us[g->n_gaps++ % ENGINE_GAPS] = (float)(end_us - g->last_us);
        pthread_mutex_unlock(&e->lock);
    }
    g->last_us = answers ? end_us : 0;
}

static int compare_gaps(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

int rp_engine_get_load(rp_engine *e, rp_engine_load *out) {
    if (!e || base_sized_check(out, "rp_engine_load", NULL)) return RP_ERR_INVALID;
    const kv_shape shape =
        kv_shape_in(&e->states->shape, atomic_load(&e->falls_back) ? RP_KV_F16 : e->formats->modules);
    float us[ENGINE_GAPS];
    pthread_mutex_lock(&e->lock);
    rp_engine_load load = e->board->status.load;
    load.running = BASE_MIN(e->board->status.running, e->n_live);
    load.waiting = e->n_live - load.running;
    const uint64_t n = BASE_MIN(e->meter->n_gaps, (uint64_t)ENGINE_GAPS);
    memcpy(us, e->meter->gap_us, sizeof(us));
    pthread_mutex_unlock(&e->lock);
    const uint64_t now_us = base_clock_us();
    load.quiet_us = now_us - BASE_MIN(load.quiet_us, now_us);
    if (n > 0) qsort(us, (size_t)n, sizeof(*us), compare_gaps);
    load.gap_p95_us = n > 0 ? (uint64_t)us[(size_t)((double)(n - 1) * GAP_SHARE)] : 0;
    load.kv_bytes_per_token = kv_shape_token_bytes(&shape);
    load.max_running = e->max_sequences;
    load.chunk_tokens = e->chunk_tokens;
    base_sized_write(out, &load, sizeof(load));
    return RP_OK;
}
