/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c: creates and frees an engine, its parts and its thread. */
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/threads.h"
#include "engine/background/audit.h"
#include "engine/background/auto_prefills.h"
#include "engine/background/background.h"
#include "engine/background/reductions.h"
#include "engine/background/scaffolds.h"
#include "engine/core/abilities.h"
#include "engine/core/commands.h"
#include "engine/core/cost_model.h"
#include "engine/core/device_layers.h"
#include "engine/core/drafts.h"
#include "engine/core/engine_state.h"
#include "store/remote/remote_pool.h"
#include "engine/core/host_tier.h"
#include "engine/core/identity.h"
#include "engine/core/job_feature.h"
#include "engine/core/job_tokens.h"
#include "engine/core/load.h"
#include "engine/core/observer.h"
#include "engine/core/scheduler.h"
#include "engine/core/schemas.h"
#include "engine/core/status.h"
#include "engine/core/steps.h"
#include "engine/core/turns.h"
#include "engine/core/vocabulary.h"
#include "engine/features/features.h"
#include "engine/reuse/answer_memory.h"
#include "engine/reuse/reduced_modules.h"
#include "kernels/kernels.h"
#include "kv/block_pool.h"
#include "kv/kv_format.h"
#include "backend/backend.h"
#include "model/forward.h"
#include "backend/mock/mock_backend.h"
#include "model/model.h"
#include "model/reduction.h"
#include "pml/layout.h"
#include "store/record/record.h"
#include "store/record/record_cipher.h"
#include "store/index/span_names.h"
#include "store/span_store.h"
#include "store/index/span_tree.h"
#include "store/weights_cache.h"
#include "backend/mock/mock_backend.h"
#include "store/disk/disk_tier.h"
#include "reprise_cluster.h"
#include "reprise_device.h"
#include "reprise_store.h"
#include "reprise_test.h"

#define DEFAULT_BUDGET_BYTES ((uint64_t)2 << 30)
#define SCAFFOLD_SHARE 4 /* divisor of the KV budget */
#define MIN_KV_BYTES DEVICE_MIN_KV_BYTES
#define DEFAULT_CHUNK_TOKENS 256
#define MAX_CHUNK_TOKENS 4096
#define DEFAULT_STORE_BYTES ((uint64_t)16 << 30)
#define DEFAULT_WEIGHTS_BYTES ((uint64_t)8 << 30)
#define MIN_WEIGHTS_BYTES ((uint64_t)64 << 20) /* repacked in a tenth of a second */
#define DEFAULT_SEQUENCES 16
#define MAX_SEQUENCES 256
#define DEFAULT_QUEUE 256
#define MAX_QUEUE 65536
#define MAX_CTX (1 << 30) /* sums and differences of two positions fit */

/* One allocation: the engine, and what its files own of it. */
typedef struct whole_engine {
    rp_engine engine; /* first */
    pml_formats formats;
    record_format states;
    base_key cluster_key;
    engine_commands commands;
    engine_board board;
    engine_schemas schemas;
    reduced_modules reduced_modules;
    engine_vocabulary vocabulary;
    turns turns;
    engine_places places;
    cost_model cost;
    draft_exploration exploration;
    engine_steps steps;
    engine_meter meter;
    host_tier host;
    background_work background_tasks;
    scaffolds scaffolds;
    auto_prefills auto_prefills;
    reductions reductions;
    pthread_t thread;
    bool has_lock, has_wake, has_drained, has_thread; /* were created */
} whole_engine;

static whole_engine *whole_of(rp_engine *e) { return (whole_engine *)(void *)e; }

/* NULL: no memory. */
static rp_engine *engine_new(rp_model *model) {
    whole_engine *w = base_calloc(1, sizeof(*w));
    if (!w) return NULL;
    w->engine.model = model;
    w->engine.formats = &w->formats;
    w->engine.states = &w->states;
    w->engine.commands = &w->commands;
    w->engine.board = &w->board;
    w->engine.schemas = &w->schemas;
    w->engine.reduced_modules = &w->reduced_modules;
    w->engine.vocabulary = &w->vocabulary;
    w->engine.turns = &w->turns;
    w->engine.places = &w->places;
    w->engine.cost = &w->cost;
    w->engine.exploration = &w->exploration;
    w->engine.steps = &w->steps;
    w->engine.meter = &w->meter;
    w->engine.host = &w->host;
    w->engine.background_tasks = &w->background_tasks;
    w->engine.scaffolds = &w->scaffolds;
    w->engine.auto_prefills = &w->auto_prefills;
    w->engine.reductions = &w->reductions;
    return &w->engine;
}

void rp_engine_options_init(rp_engine_options *options, uint32_t struct_size) {
    rp_engine_options own = {
        .chunk_tokens = DEFAULT_CHUNK_TOKENS, .max_sequences = DEFAULT_SEQUENCES, .max_queue = DEFAULT_QUEUE};
    base_sized_init(options, struct_size, &own, sizeof(own));
}

static int check_cluster_options(const rp_engine_options *o, rp_error *err) {
    base_key identity;
    const rp_cluster_options *c = o->cluster;
    if (c->on_spans && !c->key) return base_fail(err, RP_ERR_INVALID, "on_spans reports names: give a cluster key");
    if (c->on_spans && c->plans_only)
        return base_fail(err, RP_ERR_INVALID, "on_spans contradicts plans_only: such an engine holds no KV");
    if (c->on_blocks && !c->key) return base_fail(err, RP_ERR_INVALID, "on_blocks reports names: give a cluster key");
    if (c->on_blocks && c->plans_only)
        return base_fail(err, RP_ERR_INVALID, "on_blocks contradicts plans_only: such an engine holds no KV");
    if (c->pool && !c->key)
        return base_fail(err, RP_ERR_INVALID, "a pool's objects are named by the cluster's secret: give a cluster key");
    if (c->pool && c->plans_only)
        return base_fail(err, RP_ERR_INVALID, "pool contradicts plans_only: such an engine holds no KV");
    if (o->store_dir && c->plans_only)
        return base_fail(err, RP_ERR_INVALID, "store_dir contradicts plans_only: such an engine holds no KV");
    if (c->identity && !c->plans_only)
        return base_fail(err, RP_ERR_INVALID,
                         "identity is for engines with plans_only: others compute their own (rp_engine_identity)");
    if (c->identity && (strlen(c->identity) != 2 * BASE_KEY_BYTES || !base_key_parse(&identity, c->identity)))
        return base_fail(err, RP_ERR_INVALID, "identity '%.70s': give the %d hexadecimal digits of rp_engine_identity",
                         c->identity, 2 * BASE_KEY_BYTES);
    return RP_OK;
}

static int engine_check_options(const rp_engine_options *o, rp_error *err) {
    int rc = base_threads_check(o->n_threads, err);
    if (rc) return rc;
    if (o->n_ctx < 0 || o->n_ctx > MAX_CTX)
        return base_fail(err, RP_ERR_INVALID, "n_ctx %d: give 0 to %d positions", o->n_ctx, MAX_CTX);
    if (o->chunk_tokens < 0 || o->chunk_tokens > MAX_CHUNK_TOKENS)
        return base_fail(err, RP_ERR_INVALID, "chunk_tokens is %d: expected 1 to %d", o->chunk_tokens,
                         MAX_CHUNK_TOKENS);
    if (o->max_sequences < 0 || o->max_sequences > MAX_SEQUENCES)
        return base_fail(err, RP_ERR_INVALID, "max_sequences is %d: expected 1 to %d", o->max_sequences, MAX_SEQUENCES);
    if (o->max_queue < 0 || o->max_queue > MAX_QUEUE)
        return base_fail(err, RP_ERR_INVALID, "max_queue is %d: expected 1 to %d", o->max_queue, MAX_QUEUE);
    if (!(o->token_goal_ms >= 0))
        return base_fail(err, RP_ERR_INVALID, "token_goal_ms is %g: give 0 or more", (double)o->token_goal_ms);
    if ((int)o->store_write < RP_STORE_WRITE_BACK || o->store_write > RP_STORE_WRITE_OFF)
        return base_fail(err, RP_ERR_INVALID, "unknown store_write value %d", (int)o->store_write);
    if ((unsigned)o->kv_format >= RP_N_KV_FORMATS)
        return base_fail(err, RP_ERR_INVALID, "unknown kv_format %d: give one of" RP_KV_FORMAT_NAMES,
                         (int)o->kv_format);
    if (o->kv_f16_layers && !kv_format_is_small(o->kv_format))
        return base_fail(
            err, RP_ERR_INVALID,
            "kv_f16_layers is for KV of less than 16 bits, but the KV format is %s: choose int8, or leave it out",
            kv_format_name(o->kv_format));
    return check_cluster_options(o, err);
}

static int engine_check_context(const rp_engine *e, rp_error *err) {
    const rp_model *m = e->model;
    if (e->n_ctx <= m->net.hp.n_ctx_train) return RP_OK;
    if (model_is_movable(m)) {
        base_log(BASE_LOG_INFO,
                 "n_ctx is %d, but the model was trained for %d positions: output beyond them may be wrong", e->n_ctx,
                 m->net.hp.n_ctx_train);
        return RP_OK;
    }
    return base_fail(err, RP_ERR_CONTEXT, "n_ctx is %d, but '%s' has learned position embeddings for %d positions only",
                     e->n_ctx, m->arch->name, m->net.hp.n_ctx_train);
}

static int open_locks(rp_engine *e, rp_error *err) {
    whole_engine *w = whole_of(e);
    w->has_lock = pthread_mutex_init(&e->lock, NULL) == 0;
    w->has_wake = base_cond_init(&e->wake);
    w->has_drained = base_cond_init(&w->board.drained);
    return vocabulary_open(&w->vocabulary) && w->has_lock && w->has_wake && w->has_drained
               ? RP_OK
               : base_fail_memory(err, sizeof(e->lock), "a lock");
}

static int open_thread(rp_engine *e, rp_error *err) {
    whole_engine *w = whole_of(e);
    BASE_ASSERT(!e->plans_only && e->store && e->tree);
    if (!(w->has_thread = base_thread_start(&w->thread, scheduler_main, e) == 0))
        return base_fail(err, RP_ERR_IO, "cannot start the engine's thread");
    return RP_OK;
}

/* Called on a thread of the store: there is an outcome to take. */
static void engine_wake(void *user) {
    rp_engine *e = user;
    pthread_mutex_lock(&e->lock);
    e->disk_notified = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

/* Whose text is reported as blocks: before the first root, after the salt. */
static int set_blocks_root(rp_engine *e, const rp_engine_options *o, rp_error *err) {
    base_key salt;
    if (!o->cluster->on_blocks) return RP_OK;
    const int rc = engine_salt(e, o->cluster->blocks_tenant, &salt, err);
    if (!rc) e->reporter->blocks_root = job_text_root(e, &salt, e->formats->text);
    return rc;
}

static int open_disk(rp_engine *e, const rp_engine_options *o, rp_error *err) {
    static const span_store_write ways[] = {[RP_STORE_WRITE_BACK] = SPAN_STORE_WRITE_BACK,
                                            [RP_STORE_WRITE_THROUGH] = SPAN_STORE_WRITE_THROUGH,
                                            [RP_STORE_WRITE_OFF] = SPAN_STORE_WRITE_OFF};
    identity_note note;
    int rc = record_cipher_open(&e->cipher, o->store_key_file, err);
    if (!rc) rc = identity_find(e, o, &note, err);
    if (!rc) rc = set_blocks_root(e, o, err);
    if (rc) return rc;
    base_key others[KERNEL_ARITHMETIC_END];
    size_t n_others = identity_others(e, others);
    const disk_tier_options tier = {
        .dir = o->store_dir, .whole_reads = o->experiment->store_whole_reads, .cipher = e->cipher};
    span_store_disk disk = {.source = {.open = disk_tier_open, .options = &tier, .read_only = o->store_read_only},
                            .format = e->states,
                            .notify = engine_wake,
                            .notify_user = e,
                            .write = ways[o->store_write],
                            .budget_bytes = o->store_budget_bytes ? o->store_budget_bytes : DEFAULT_STORE_BYTES,
                            .others = others,
                            .n_others = n_others};
    rc = span_store_open_disk(e->store, &disk, span_tree_own, e->tree, err);
    rp_store_stats stats = {0};
    span_store_stats(e->store, &stats);
    if (!rc && stats.disk_state == RP_STORE_WORKS) identity_keep(e, o, &note);
    if (!rc) rc = span_tree_settle(e->tree, err);
    if (!rc) span_store_fit_disk(e->store);
    if (!rc) reduced_modules_open(e);
    if (!rc) span_store_settle_writer(e->store); /* the folder is within its budget before the first request */
    return rc;
}

/* After the identity is known. */
static int open_remote(rp_engine *e, const rp_engine_options *o, rp_error *err) {
    const remote_pool_options options = {
        .address = o->cluster->pool,
        .secret = e->cluster_key,
        .format = e->states,
        .write_bytes_per_s = o->cluster->pool_write_bytes,
        .notify = engine_wake,
        .notify_user = e,
    };
    const int rc = remote_pool_open(&e->remote, &options, err);
    if (!rc) span_store_set_pool(e->store, e->remote, &e->states->fingerprint, span_tree_text_names, e->tree);
    return rc;
}

const char *rp_store_state_name(rp_store_state state) {
    static const char *const names[RP_N_STORE_STATES] = {"off", "works", "unwritten", "read_only", "unusable"};
    return (unsigned)state < RP_N_STORE_STATES ? names[state] : NULL;
}

#define POOL_CLOSE_US 5000000 /* for what is being pushed to a pool when an engine is closed */
/* Memory besides weights, file, activations and KV: the program and its libraries, stacks, the vocabulary, buffers of
 * steps. Measured, rounded up. */
#define PROGRAM_BYTES ((uint64_t)24 << 20)
#define TOKEN_BYTES 256

/* Bytes for the KV cache, as set in the options, within what the rest leaves: of the memory that is computed with, and
 * of RAM besides, where that is a device's. */
static int kv_budget(rp_engine *e, const rp_engine_options *o, uint64_t *out, uint64_t *ram, rp_error *err) {
    const bool is_apart = host_tier_is_apart(e), is_split = device_layers_are_split(e);
    uint64_t n_vocab = (uint64_t)e->model->net.hp.n_vocab;
    uint64_t logits = (uint64_t)e->steps->max_logits * (uint64_t)e->model->net.hp.n_outputs * sizeof(float);
    logits += audit_bytes(o, e->model->net.hp.n_vocab);
    uint64_t hidden = (uint64_t)e->steps->max_rows * (uint64_t)e->model->net.hp.n_embd * sizeof(float);
    rp_memory m = {0};
    *ram = o->kv_budget_bytes ? o->kv_budget_bytes : o->ram_bytes ? UINT64_MAX
                                                                  : DEFAULT_BUDGET_BYTES;
    e->backend->ops->usage(e->backend, &m);
    if (e->draft_model) draft_model_usage(e->draft_model, &m);
    uint64_t rest = m.weights + m.file + m.activations + logits + hidden + n_vocab * TOKEN_BYTES + PROGRAM_BYTES;
    e->other_bytes = rest;
    const uint64_t most = e->backend->ops->kv_limit ? e->backend->ops->kv_limit(e->backend) : UINT64_MAX;
    if (is_apart || is_split) *out = o->device->ram_bytes ? most : DEFAULT_BUDGET_BYTES;
    else *out = BASE_MIN(*ram, most);
    if (most < MIN_KV_BYTES)
        return base_fail(err, RP_ERR_BUDGET,
                         "the limit on the device's memory (%llu MiB) leaves none for the KV cache: raise it",
                         (unsigned long long)o->device->ram_bytes >> 20);
    if (o->ram_bytes == 0) return RP_OK;
    uint64_t left = o->ram_bytes > rest ? (o->ram_bytes - rest) / ENGINE_TABLE_SHARE * (ENGINE_TABLE_SHARE - 1) : 0;
    *ram = BASE_MIN(*ram, left);
    if (is_apart) return RP_OK;
    if (!is_split) *out = BASE_MIN(*out, left);
    if (left >= MIN_KV_BYTES && left >= o->kv_min_bytes) return RP_OK;
    if (left >= MIN_KV_BYTES)
        return base_fail(
            err, RP_ERR_BUDGET,
            "ram_bytes (%llu MiB) leaves %llu MiB for the KV cache, kv_min_bytes is %llu MiB: raise ram_bytes",
            (unsigned long long)o->ram_bytes >> 20, (unsigned long long)left >> 20,
            (unsigned long long)o->kv_min_bytes >> 20);
    return base_fail(err, RP_ERR_BUDGET,
                     "ram_bytes (%llu MiB) leaves no memory for the KV cache: weights and their file take %llu MiB, "
                     "the rest %llu: raise ram_bytes, or use a smaller model",
                     (unsigned long long)o->ram_bytes >> 20, (unsigned long long)(m.weights + m.file) >> 20,
                     (unsigned long long)(rest - m.weights - m.file) >> 20);
}

static int open_weights(rp_engine *e, const rp_engine_options *o, rp_error *err) {
    if (!o->weights_dir) return RP_OK;
    return weights_cache_new(
        &e->weights, e->model,
        &(weights_cache_options){
            .dir = o->weights_dir,
            .budget_bytes = o->weights_budget_bytes ? o->weights_budget_bytes : DEFAULT_WEIGHTS_BYTES,
            .min_bytes = o->weights_min_bytes ? o->weights_min_bytes : MIN_WEIGHTS_BYTES,
            .read_only = o->store_read_only || (o->store_dir && o->store_write == RP_STORE_WRITE_OFF),
            .n_threads = e->n_threads},
        err);
}

/* The shape of the engine's KV. */
static int open_shape(rp_engine *e, const rp_engine_options *o, rp_error *err) {
    /* an encoder's KV lives for one step, and nothing is kept of it: it costs nothing to be exact */
    const rp_kv_format modules = model_is_encoder(e->model) ? RP_KV_F32 : o->kv_format;
    const rp_kv_format format = kv_format_is_encoded(modules) ? RP_KV_INT8 : modules;
    *e->formats = (pml_formats){.text = format, .modules = modules, .method = REDUCTION_KVZIP};
    int rc = engine_check_module_states(e, o->module_states, err);
    if (!rc) rc = reduction_options_read(o->keep_share, o->keep_method, &e->formats->keep, &e->formats->method, err);
    if (!rc && e->formats->keep > 0 && e->formats->keep != REDUCTION_ALL)
        rc = engine_check_reduces(e, "keep_share", err);
    if (!rc) rc = job_features_open_engine(e, o, err);
    if (rc) return rc;
    e->states->any_format = true;
    e->states->shape = model_kv_shape(e->model, format);
    if (!o->kv_f16_layers) return RP_OK;
    const size_t bytes = sizeof(*e->kv_layers) * (size_t)e->model->n_kv_layers;
    e->kv_layers = base_alloc(bytes);
    if (!e->kv_layers) return base_fail_memory(err, bytes, "the layers in f16");
    memcpy(e->kv_layers, e->model->kv_layers, bytes);
    e->states->shape.layers = e->kv_layers;
    return model_read_f16_layers(e->model, "kv_f16_layers", o->kv_f16_layers, e->kv_layers, err);
}

/* Before the first root of the tree. */
static int open_reporter(rp_engine *e, const rp_engine_options *o, rp_error *err) {
    const rp_cluster_options *cluster = o->cluster;
    if (!cluster->on_spans && !cluster->on_blocks && !cluster->pool) return RP_OK;
    e->reporter = base_calloc(1, sizeof(*e->reporter));
    if (!e->reporter) return base_fail_memory(err, sizeof(*e->reporter), "reports of spans");
    e->reporter->cluster_key = *e->cluster_key;
    e->reporter->fn = cluster->on_spans;
    e->reporter->user = cluster->spans_user;
    e->reporter->on_blocks = cluster->on_blocks;
    e->reporter->blocks_user = cluster->blocks_user;
    span_tree_set_reporter(e->tree, e->reporter);
    return RP_OK;
}

/* What drafts besides prompt lookup: a draft model, else the model's own head. */
static int open_draft(rp_engine *e, const rp_engine_options *o, rp_error *err) {
    if (o->draft_model)
        return draft_model_open(&e->draft_model, o->draft_model, e->model, e->n_threads, e->max_sequences, err);
    if (!model_has_draft_head(e->model)) return RP_OK;
    return draft_head_open(&e->draft_model, e->model, e->backend, e->forward, e->max_sequences, e->steps->max_rows,
                           e->n_ctx, err);
}

/* Is the KV of drafts in RAM, where that of the engine's device is not? */
static bool draft_is_in_ram(const rp_engine *e) {
    return host_tier_is_apart(e) || (device_layers_are_split(e) && !e->draft_model->is_head);
}

/* budget: of the memory that is computed with; ram: of RAM, where some of the KV is the device's */
static int open_pool(rp_engine *e, const rp_engine_options *o, uint64_t budget, uint64_t ram, rp_error *err) {
    const backend_ops *ops = e->backend->ops;
    int rc = kv_pool_new(&e->pool, &e->states->shape, budget, ops->memory(e->backend), err);
    const int32_t n_host = !rc && ops->host_layers ? ops->host_layers(e->backend) : 0;
    if (n_host > 0) kv_pool_divide(e->pool, n_host, ram, o->ram_bytes ? ram : UINT64_MAX);
    return rc;
}

static int engine_open_parts(rp_engine *e, const rp_engine_options *o, rp_error *err) {
    base_cpu_level level;
    uint64_t budget, ram;
    int rc = open_shape(e, o, err);
    if (!rc) rc = base_cpu_detect(&level, err);
    if (!rc) rc = open_weights(e, o, err);
    if (rc) return rc;
    backend_options options = {
        .shape = model_kv_shape(e->model, e->formats->text),
        .level = level,
        .n_ctx = e->n_ctx,
        .n_threads = e->n_threads,
        .max_rows = e->steps->max_rows,
        .max_tentative = e->is_recurrent ? BASE_MIN(e->max_sequences, RP_MAX_DRAFT) + RP_MAX_DRAFT : 0,
        .weights = e->weights ? weights_cache_interface(e->weights) : NULL,
        .times = e->model->times,
        .device_bytes = o->device->ram_bytes,
        .device_arithmetic = o->device->arithmetic,
    };
    if ((rc = device_layers_open(e, o->device, &options, err)) || (rc = open_draft(e, o, err)) ||
        (rc = kv_budget(e, o, &budget, &ram, err)) ||
        (rc = e->draft_model ? draft_model_open_kv(e->draft_model, o->draft_kv_bytes,
                                                   draft_is_in_ram(e) ? &ram : &budget, err)
                             : RP_OK) ||
        (rc = open_pool(e, o, budget, ram, err)) ||
        (rc = span_store_new(&e->store, e->pool, err)) ||
        (rc = host_tier_open(e, ram, o->device->kv_in_place, err)) || (rc = span_tree_new(&e->tree, e->store, err)) ||
        (rc = steps_open(e, err)))
        return rc;
    if (!(e->running = base_calloc((size_t)e->max_running, sizeof(*e->running))))
        return base_fail_memory(err, (uint64_t)e->max_running * sizeof(*e->running), "an engine");
    if ((rc = answer_memory_new(&e->answers, err)) || (rc = open_reporter(e, o, err))) return rc;
    e->scaffolds->budget_bytes =
        o->scaffold_bytes ? o->scaffold_bytes : kv_pool_get_stats(e->pool).budget_bytes / SCAFFOLD_SHARE;
    kv_pool_set_reclaim(e->pool, span_store_reclaim, e->store);
    identity_make(e, kernel_arithmetic_of(level));
    identity_note note;
    if (o->cluster->pool && !o->store_dir) rc = identity_find(e, o, &note, err); /* keys are not this process's alone */
    if (!rc) rc = o->store_dir ? open_disk(e, o, err) : set_blocks_root(e, o, err);
    if (!rc && o->cluster->pool) rc = open_remote(e, o, err);
    if (!rc && e->reporter) { /* what is on disk */
        span_store_set_on_change(e->store, span_tree_report, e->tree);
        span_reporter_flush(e->reporter);
    }
    if (!rc) engine_publish(e);
    return rc ? rc : audit_open(e, o, err);
}

/* A plan may be of a larger prompt than this machine could hold: the budget is the nodes' matter. */
#define PLANS_BUDGET_BYTES ((uint64_t)1 << 50)

/* What plans need: shape, salt, and a pool that gives no blocks. */
static int open_plans(rp_engine *e, const rp_engine_options *o, rp_error *err) {
    base_cpu_level level;
    base_key identity;
    int rc = open_shape(e, o, err);
    if (!rc) rc = base_cpu_detect(&level, err);
    if (!rc)
        rc = kv_pool_new(&e->pool, &e->states->shape, o->kv_budget_bytes ? o->kv_budget_bytes : PLANS_BUDGET_BYTES,
                         NULL, err);
    if (!rc) rc = answer_memory_new(&e->answers, err);
    if (rc) return rc;
    identity_make(e, kernel_arithmetic_of(level));
    if (o->cluster->identity && base_key_parse(&identity, o->cluster->identity)) identity_take(e, &identity);
    return RP_OK;
}

static const job_observer *const observers[] = {&audit_observer, &scaffolds_observer, &auto_prefills_observer,
                                                &reductions_observer, NULL};

static void take_options(rp_engine *e, const rp_engine_options *o) {
    rp_engine_options defaults = rp_engine_options_defaults();
    e->n_threads = o->n_threads ? o->n_threads : base_cpu_count();
    e->n_ctx = o->n_ctx ? o->n_ctx : e->model->net.hp.n_ctx_train;
    e->chunk_tokens = o->chunk_tokens ? o->chunk_tokens : defaults.chunk_tokens;
    if (model_is_encoder(e->model))
        e->chunk_tokens = BASE_MAX(e->chunk_tokens, e->n_ctx); /* a text is one part of a step */
    e->max_sequences = o->max_sequences ? o->max_sequences : defaults.max_sequences;
    e->max_queue = o->max_queue ? o->max_queue : defaults.max_queue;
    e->steps->token_goal_us = (double)o->token_goal_ms * 1e3;
    e->plans_only = o->cluster->plans_only;
    e->pulls_at_any_cost = o->experiment->pool_at_any_cost;
    e->is_recurrent = model_is_recurrent(&e->model->net);
    e->module_states = e->is_recurrent ? o->module_states : RP_MODULE_STATES_EXACT;
    if (o->cluster->key) {
        memcpy(whole_of(e)->cluster_key.bytes, o->cluster->key, sizeof(e->cluster_key->bytes));
        e->cluster_key = &whole_of(e)->cluster_key;
    }
    e->steps->on_step = o->on_step;
    e->steps->step_user = o->step_user;
    /* a step: a token of each answer, drafts of one answer or several, a chunk of prompts */
    e->max_running = e->max_sequences + e->max_queue;
    e->steps->max_logits = e->max_sequences + RP_MAX_DRAFT;
    e->steps->max_rows = e->steps->max_logits + e->chunk_tokens;
    e->steps->max_parts =
        2 * e->max_sequences + ENGINE_STEP_PREFILLS; /* listed; jobs in a step: at most max_sequences */
    e->inbox_end = &e->inbox;
    e->budget_epoch = 1;
    e->observers = observers;
    e->features = job_features_table;
    cost_model_init(e->cost);
    cost_model_init(&e->steps->probe_cost);
}

int rp_engine_new(rp_engine **out, rp_model *model, const rp_engine_options *options, rp_error *err) {
    if (!out || !model) return base_fail(err, RP_ERR_INVALID, "rp_engine_new: out and model are needed");
    rp_engine_options o = rp_engine_options_defaults();
    *out = NULL;
    rp_cluster_options cluster = {.struct_size = sizeof(cluster)};
    rp_engine_experiment experiment = {.struct_size = sizeof(experiment)};
    rp_device_options device = {.struct_size = sizeof(device)};
    int rc = base_sized_read(&o, sizeof(o), options, "rp_engine_options", err);
    if (!rc) rc = base_sized_read(&device, sizeof(device), o.device, "rp_device_options", err);
    o.device = &device;
    if (!rc) rc = base_sized_read(&cluster, sizeof(cluster), o.cluster, "rp_cluster_options", err);
    if (!rc) rc = base_sized_read(&experiment, sizeof(experiment), o.experiment, "rp_engine_experiment", err);
    o.cluster = &cluster;
    o.experiment = &experiment;
    if (!rc) rc = engine_check_options(&o, err);
    if (!rc) rc = cluster.plans_only ? model_check_shape(model, err) : model_check_whole(model, err);
    if (rc) return rc;
    rp_engine *e = engine_new(model);
    if (!e) return base_fail_memory(err, sizeof(whole_engine), "an engine");
    take_options(e, &o);
    if ((rc = device_layers_find(e, o.device, err)) || (rc = engine_check_context(e, err)) ||
        (rc = open_locks(e, err)) || (rc = e->plans_only ? open_plans(e, &o, err) : engine_open_parts(e, &o, err)) ||
        (rc = e->plans_only ? RP_OK : open_thread(e, err))) {
        rp_engine_free(e);
        return rc;
    }
    *out = e;
    return RP_OK;
}

void rp_engine_free(rp_engine *e) { rp_engine_close(e, -1); }

size_t rp_engine_close(rp_engine *e, int64_t timeout_ms) {
    if (!e) return 0;
    uint64_t deadline = timeout_ms < 0 ? UINT64_MAX : base_clock_us() + (uint64_t)timeout_ms * 1000;
    whole_engine *w = whole_of(e);
    if (w->has_thread) {
        pthread_mutex_lock(&e->lock);
        BASE_ASSERT(!e->stopping);
        e->stopping = true;
        pthread_cond_signal(&e->wake);
        pthread_mutex_unlock(&e->lock);
        pthread_join(w->thread, NULL);
    }
    BASE_ASSERT(e->n_running == 0 && !e->waiting && !e->prefills); /* nobody uses what is freed below */
    if (e->store) span_store_set_on_change(e->store, NULL, NULL);
    job_features_close_engine(e);
    scaffolds_free(e);
    auto_prefills_free(e);
    reduced_modules_free(e);
    engine_schemas_free(e);
    audit_close(e);
    answer_memory_free(e->answers);
    model_forward_free(e->forward);
    draft_model_close(e->draft_model);
    span_tree_free(e->tree);
    size_t n_lost = span_store_close(e->store, deadline);
    remote_pool_close(e->remote, BASE_MIN(deadline, base_clock_us() + POOL_CLOSE_US));
    record_cipher_close(e->cipher);
    host_tier_close(e);
    kv_pool_free(e->pool);
    base_free(e->kv_layers);
    if (e->backend) e->backend->ops->free(e->backend);
    weights_cache_free(e->weights);
    base_free(e->reporter);
    if (w->has_wake) pthread_cond_destroy(&e->wake);
    if (w->has_drained) pthread_cond_destroy(&w->board.drained);
    if (w->has_lock) pthread_mutex_destroy(&e->lock);
    vocabulary_close(&w->vocabulary);
    base_free(e->running);
    turns_free(e->turns);
    steps_close(&w->steps);
    base_free(w);
    return n_lost;
}
