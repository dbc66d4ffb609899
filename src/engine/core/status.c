/* SPDX-License-Identifier: Apache-2.0 */
/* status.c: status for other threads: the engine's thread copies it to the board, under the lock. */
#include "engine/core/status.h"

#include <errno.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/file.h"
#include "base/sized.h"
#include "engine/background/background.h"
#include "engine/background/scaffolds.h"
#include "engine/core/device_layers.h"
#include "engine/core/draft_model.h"
#include "engine/core/engine_state.h"
#include "engine/core/host_tier.h"
#include "engine/core/job.h"
#include "engine/core/load.h"
#include "engine/core/scheduler.h"
#include "kv/block_pool.h"
#include "kv/kv_plan.h"
#include "backend/backend.h"
#include "pml/layout.h"
#include "reprise_cluster.h"
#include "store/record/record.h"
#include "store/span_store.h"
#include "store/weights_cache.h"

void engine_publish(rp_engine *e) {
    kv_pool_stats states = kv_pool_get_stats(e->pool);
    rp_memory memory = {
        .kv = states.slab_bytes,
        .kv_limit = states.budget_bytes,
        .most = e->other_bytes + states.budget_bytes / (ENGINE_TABLE_SHARE - 1) * ENGINE_TABLE_SHARE,
    };
    rp_device_usage device = {0};
    if (e->backend->ops->device_usage) e->backend->ops->device_usage(e->backend, &device);
    if (host_tier_is_apart(e)) { /* KV of the device takes no RAM but its tables */
        const kv_pool_stats host = e->host->pool ? kv_pool_get_stats(e->host->pool) : (kv_pool_stats){0};
        memory.kv = host.slab_bytes;
        memory.kv_limit = host.budget_bytes;
        memory.most = e->other_bytes + host.budget_bytes +
                      (states.budget_bytes + host.budget_bytes) / (ENGINE_TABLE_SHARE - 1);
    }
    if (device_layers_are_split(e)) { /* a part of the KV is the device's */
        memory.kv = states.host_slab_bytes;
        memory.kv_limit = states.host_budget_bytes;
        memory.most = e->other_bytes + states.host_budget_bytes + states.budget_bytes / (ENGINE_TABLE_SHARE - 1);
    }
    rp_store_stats stats = {.budget_bytes = states.budget_bytes, .used_bytes = states.used_bytes};
    if (e->draft_model) {
        const kv_pool_stats draft = kv_pool_get_stats(e->draft_model->pool);
        memory.kv += draft.slab_bytes;
        memory.kv_limit += draft.budget_bytes;
        memory.most += draft.budget_bytes;
    }
    e->backend->ops->usage(e->backend, &memory);
    if (e->draft_model) draft_model_usage(e->draft_model, &memory);
    span_store_stats(e->store, &stats);
    const rp_engine_load load = engine_load(e);
    int32_t running = e->n_running;
    for (const rp_job *c = e->places->flushing; c; c = c->next) running++;
    pthread_mutex_lock(&e->lock);
    memory.token_trie = e->board->status.memory.token_trie;
    BASE_ASSERT(running <= e->n_live);
    e->board->status = (engine_status){
        .memory = memory,
        .store = stats,
        .device = device,
        .scaffolds = e->scaffolds->stats,
        .running = running,
        .background = e->background_tasks->n_tasks,
        .load = load,
    };
    if (e->board->status.background == 0) pthread_cond_broadcast(&e->board->drained);
    pthread_mutex_unlock(&e->lock);
}

int rp_engine_describe(rp_engine *e, rp_engine_info *out) {
    if (!e || base_sized_check(out, "rp_engine_info", NULL)) return RP_ERR_INVALID;
    const kv_shape shape =
        kv_shape_in(&e->states->shape, atomic_load(&e->falls_back) ? RP_KV_F16 : e->formats->modules);
    rp_engine_info info = {.n_threads = e->n_threads,
                           .n_ctx = e->n_ctx,
                           .chunk_tokens = e->chunk_tokens,
                           .max_sequences = e->max_sequences,
                           .max_queue = e->max_queue,
                           .kv_format = (rp_kv_format)shape.format,
                           .kv_bytes_per_token = kv_shape_token_bytes(&shape)};
    pthread_mutex_lock(&e->lock);
    info.prepared = e->prepared;
    BASE_ASSERT(e->n_live >= 0 && e->n_live <= e->max_sequences + e->max_queue);
    info.weights_cache = !e->prepared ? "" : e->weights ? weights_cache_state(e->weights)
                                                        : "off";
    info.running = BASE_MIN(e->board->status.running, e->n_live);
    info.waiting = e->n_live - info.running;
    info.background = e->board->status.background;
    pthread_mutex_unlock(&e->lock);
    base_sized_write(out, &info, sizeof(info));
    return RP_OK;
}

static engine_status engine_read_status(rp_engine *e) {
    pthread_mutex_lock(&e->lock);
    engine_status status = e->board->status;
    pthread_mutex_unlock(&e->lock);
    return status;
}

int rp_engine_memory(rp_engine *e, rp_memory *out) {
    if (!e || base_sized_check(out, "rp_memory", NULL)) return RP_ERR_INVALID;
    engine_status status = engine_read_status(e);
    base_sized_write(out, &status.memory, sizeof(status.memory));
    return RP_OK;
}

int rp_engine_store_stats(rp_engine *e, rp_store_stats *out) {
    if (!e || base_sized_check(out, "rp_store_stats", NULL)) return RP_ERR_INVALID;
    engine_status status = engine_read_status(e);
    base_sized_write(out, &status.store, sizeof(status.store));
    return RP_OK;
}

int rp_engine_device_usage(rp_engine *e, rp_device_usage *out) {
    if (!e || base_sized_check(out, "rp_device_usage", NULL)) return RP_ERR_INVALID;
    engine_status status = engine_read_status(e);
    base_sized_write(out, &status.device, sizeof(status.device));
    return RP_OK;
}

int rp_engine_scaffold_stats(rp_engine *e, rp_scaffold_stats *out) {
    if (!e || base_sized_check(out, "rp_scaffold_stats", NULL)) return RP_ERR_INVALID;
    engine_status status = engine_read_status(e);
    status.scaffolds.budget_bytes = e->scaffolds->budget_bytes; /* immutable */
    base_sized_write(out, &status.scaffolds, sizeof(status.scaffolds));
    return RP_OK;
}

/* ---- Waiting for background tasks ---- */

bool rp_engine_drain(rp_engine *e, int64_t timeout_ms) {
    struct timespec until = base_clock_after(BASE_MAX(timeout_ms, 0));
    int rc = 0;
    pthread_mutex_lock(&e->lock);
    e->board->n_draining++;
    pthread_cond_signal(&e->wake);
    while (e->board->status.background > 0 && rc != ETIMEDOUT)
        rc = timeout_ms < 0 ? pthread_cond_wait(&e->board->drained, &e->lock)
                            : pthread_cond_timedwait(&e->board->drained, &e->lock, &until);
    bool nothing = e->board->status.background == 0;
    e->board->n_draining--;
    BASE_ASSERT(e->board->n_draining >= 0 && (nothing || timeout_ms >= 0));
    pthread_mutex_unlock(&e->lock);
    return nothing;
}
