/* SPDX-License-Identifier: Apache-2.0 */
/* engine_state.h: an engine: what the files of src/engine share. Only the struct: functions are in the header of the
 * file that defines them, and what one file owns is a struct of that file's header, behind a pointer. All of it is one
 * allocation (engine.c).
 */
#ifndef ENGINE_ENGINE_STATE_H
#define ENGINE_ENGINE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/hash.h"
#include "reprise.h"

#define ENGINE_TABLE_SHARE 64 /* share of the KV budget that the tables of spans take. Measured, rounded up */

struct rp_engine {
    /* immutable */
    rp_model *model;
    int32_t n_threads, n_ctx, chunk_tokens, max_sequences, max_queue;
    const struct backend_row *backend_row; /* chosen for the model; of plans_only, too */
    const char *device;                    /* its name, with a number if one was given; while the engine opens */
    struct backend *backend;
    struct model_forward *forward;
    struct kv_pool *pool;
    struct host_tier *host;                      /* what its device evicts to RAM */
    struct draft_model *draft_model;             /* NULL: none. The engine's thread, once it runs */
    uint64_t other_bytes;                        /* of memory besides KV and its tables, at most */
    struct weights_cache *weights;               /* NULL: repacked weights are not kept */
    struct record_cipher *cipher;                /* NULL: records are not encrypted */
    struct pml_formats *formats;                 /* KV formats of text and of modules, as it was created; */
    atomic_bool falls_back;                      /* requests are planned with f16 instead; never reset */
    struct kv_layer_shape *kv_layers;            /* of states.shape: the model's, with rp_engine_options.kv_f16_layers;
                                                    NULL: the model's own */
    struct record_format *states;                /* of this engine's records: fingerprint, arithmetic, shape of the
                                                    KV */
    bool is_whole;                               /* the fingerprint covers every byte of the model (identity.h) */
    base_key salt;                               /* of shared KV: model and KV format. A tenant's: engine_salt. Every
                                                    key contains one of them */
    char identity[2 * BASE_KEY_BYTES + 1];       /* the fingerprint, in hexadecimal digits */
    bool is_recurrent;                           /* the model has recurrent layers */
    rp_module_states module_states;              /* of such a model; else RP_MODULE_STATES_EXACT */
    bool plans_only;                             /* without backend, store, tree and thread */
    struct span_reporter *reporter;              /* of the store's changes; NULL: not reported */
    const base_key *cluster_key;                 /* NULL: none */
    const struct job_observer *const *observers; /* ends with NULL */
    const struct job_feature *const *features;   /* likewise (features/features.h) */
    struct job_reduction *reduction;             /* rp_engine_options.kv_keep and kv_method: of requests that name
                                                    none */

    pthread_mutex_t lock;
    pthread_cond_t wake; /* for the engine's thread */

    /* shared: guarded by the lock */
    bool stopping, prepared, disk_notified; /* disk_notified: the store has events */
    rp_job *inbox, **inbox_end;             /* submitted jobs that the engine's thread has not seen yet */
    int32_t n_live;                         /* jobs that have not ended */
    uint64_t n_jobs;                        /* since the start: the number of the last job */
    double job_ms;                          /* moving average of the duration of a job */
    struct engine_commands *commands;
    struct engine_board *board;
    struct answer_memory *answers; /* earlier answers as tokens */
    struct engine_schemas *schemas;
    struct reduced_modules *reduced_modules;

    struct engine_vocabulary *vocabulary; /* guarded by a lock of its own; lock order: that, lock */
    struct auditor *auditor;              /* likewise; lock order: lock, that */

    /* owned by the engine's thread */
    struct span_store *store;
    struct span_tree *tree;
    struct remote_pool *remote; /* that other nodes use, too; NULL: none */
    bool pulls_at_any_cost;     /* rp_engine_experiment.pool_at_any_cost */
    rp_job *waiting;            /* queued jobs in queue order (queue.c) */
    int32_t n_waiting;
    struct turns *turns;
    rp_job **running;               /* [max_running] */
    int32_t n_running, max_running; /* max_running: paused ones included */
    struct engine_places *places;
    uint64_t budget_epoch;            /* incremented whenever KV memory may have become free; starts at 1 */
    struct segment_prefill *prefills; /* modules under prefill, in the order of their misses */
    struct cost_model *cost;
    struct draft_exploration *exploration; /* drafts.h */
    struct engine_steps *steps;
    struct engine_meter *meter;
    struct background_work *background_tasks;
    struct scaffolds *scaffolds;
    struct auto_prefills *auto_prefills;
    struct reductions *reductions;
};

#endif
