/* SPDX-License-Identifier: Apache-2.0 */
/* status.c: status for other threads: the engine's thread copies it into rp_engine.status, under the lock. */
#include <errno.h>

#include "base/file.h"
#include "engine/engine_internal.h"

void engine_publish(rp_engine *e) {
    kv_pool_stats states = kv_pool_get_stats(e->pool);
    rp_memory memory = {.states = states.slab_bytes, .kv_limit = states.budget_bytes};
    rp_store_stats stats = {.budget_bytes = states.budget_bytes, .used_bytes = states.used_bytes};
    e->backend->ops->usage(e->backend, &memory);
    span_store_stats(e->store, &stats);
    int32_t running = e->n_running;
    for (const rp_job *c = e->flushing; c; c = c->next) running++;
    pthread_mutex_lock(&e->lock);
    memory.token_trie = e->status.memory.token_trie;
    e->status = (engine_status){.memory = memory, .store = stats, .scaffolds = e->scaffolds.stats, .running = running,
                                .background = e->background_tasks.n_tasks};
    if (e->status.background == 0) pthread_cond_broadcast(&e->drained);
    pthread_mutex_unlock(&e->lock);
}

void rp_engine_describe(rp_engine *e, rp_engine_info *out) {
    *out = (rp_engine_info){.n_threads = e->n_threads,
                            .n_ctx = e->n_ctx,
                            .chunk_tokens = e->chunk_tokens,
                            .max_sequences = e->max_sequences,
                            .max_queue = e->max_queue,
                            .kv_format = e->states.shape.format == KV_F32 ? RP_KV_F32 : RP_KV_F16};
    pthread_mutex_lock(&e->lock);
    out->prepared = e->prepared;
    out->running = BASE_MIN(e->status.running, e->n_live);
    out->waiting = e->n_live - out->running;
    out->background = e->status.background;
    pthread_mutex_unlock(&e->lock);
}

void rp_engine_memory(rp_engine *e, rp_memory *out) {
    pthread_mutex_lock(&e->lock);
    *out = e->status.memory;
    pthread_mutex_unlock(&e->lock);
}

void rp_engine_store_stats(rp_engine *e, rp_store_stats *out) {
    pthread_mutex_lock(&e->lock);
    *out = e->status.store;
    pthread_mutex_unlock(&e->lock);
}

void rp_engine_scaffold_stats(rp_engine *e, rp_scaffold_stats *out) {
    pthread_mutex_lock(&e->lock);
    *out = e->status.scaffolds;
    pthread_mutex_unlock(&e->lock);
    out->budget_bytes = e->scaffolds.budget_bytes; /* as configured */
}

bool rp_engine_drain(rp_engine *e, int64_t timeout_ms) {
    struct timespec until = base_clock_after(BASE_MAX(timeout_ms, 0));
    int rc = 0;
    pthread_mutex_lock(&e->lock);
    e->n_draining++;
    pthread_cond_signal(&e->wake);
    while (e->status.background > 0 && rc != ETIMEDOUT)
        rc = timeout_ms < 0 ? pthread_cond_wait(&e->drained, &e->lock) : pthread_cond_timedwait(&e->drained, &e->lock, &until);
    bool nothing = e->status.background == 0;
    e->n_draining--;
    pthread_mutex_unlock(&e->lock);
    return nothing;
}
