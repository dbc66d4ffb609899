/* SPDX-License-Identifier: Apache-2.0 */
/* engine_internal.h: the engine, and the functions that its files share. src/engine/README.md lists the files; these have headers of their own:
 * job.h, identity.h, observer.h, sequence.h, cost_model.h, turns.h, reuse/ (segment_prefills.h, blend.h, span_prefetch.h, answer_memory.h),
 * background/ (background.h, audit.h, scaffolds.h), and src/sampling.
 */
#ifndef ENGINE_ENGINE_INTERNAL_H
#define ENGINE_ENGINE_INTERNAL_H

#include "backend/backend_registry.h"
#include "engine/background/audit.h"
#include "engine/background/auto_prefills.h"
#include "engine/background/reductions.h"
#include "engine/core/job.h"
#include "engine/reuse/reduced_modules.h"
#include "engine/core/cost_model.h"
#include "model/forward.h"
#include "pml/parts.h"
#include "store/index/span_names.h"
#include "store/weights_cache.h"

#define ENGINE_MAX_SCHEMAS ((size_t)1 << 16)
#define ENGINE_STEP_PREFILLS 64 /* modules in a step: more than fill it */
#define ENGINE_GAPS 256         /* inter-token latencies that rp_engine_get_load looks at */

typedef struct engine_command engine_command;

/* Where the auditor found 8 bits or fewer too inexact: in f16 instead. Requests that were planned before are not affected. */
typedef enum engine_fallback {
    FALLBACK_MODULES, /* of one schema: its modules; text keeps the engine's format */
    FALLBACK_ALL,     /* of the engine: text and all modules */
    N_FALLBACKS,
    FALLBACK_NONE = N_FALLBACKS
} engine_fallback;

struct rp_schema {
    int refs; /* guarded by the engine's lock; of all its forms together */
    rp_schema *of;             /* a form for a fallback: the registered schema, which has the document and the name; else NULL */
    rp_schema *fallbacks[N_FALLBACKS]; /* its forms, made when they are first used; guarded by the lock, then immutable */
    rp_schema *adapted;        /* of this form or fallback: forms for adapters, likewise: a list, */
    rp_schema *next_adapted;   /* of which this is one: */
    adapter_use adapter;       /* its modules are computed with this; zeros: with none */
    base_key salt; /* its tenant's; part of the key of each of its spans */
    base_key version; /* a hash of its content, for the auditor; zero: a request's own schema */
    char *name;
    pml_document *document;
    pml_layout *layout;
};

/* What becomes of a part's job after its step. Module prefills and background tasks end in the step: they are nobody's request. */
typedef enum step_outcome {
    STEP_CONTINUES,
    STEP_ENDED,   /* the answer is complete */
    STEP_FAILED,  /* with the part's rc and err */
    STEP_REQUEUE, /* a read from disk failed under it */
} step_outcome;

/* One sequence's share of a step. */
typedef struct step_part {
    rp_job *job;    /* NULL: the part is a module's */
    segment_prefill *prefill;
    int32_t first_row, n_rows;
    int32_t first_logits; /* index of the logits of the part's first row that wants them; such rows end the part; -1: none */
    int32_t first_hidden, n_pooled; /* of an embedding: its rows' first hidden state, and their number (embedding.h) */
    int rc;           /* RP_OK, or why it could not be appended or computed; */
    rp_error err;     /* with this */
    step_outcome outcome;
} step_part;

/* What the scheduler has to do for the jobs of a step. */
typedef struct step_result {
    int32_t n_parts; /* in rp_engine.parts, each with its outcome */
    rp_job *probed;  /* compared with the prompt that it is in (blend.h), and failed with this; NULL: none */
    int rc;
    rp_error err;
} step_result;

/* What other threads see of an engine, as of the end of its last step. */
typedef struct engine_status {
    rp_memory memory;
    rp_store_stats store;
    rp_scaffold_stats scaffolds;
    int32_t running;    /* requests, those that wait for their KV to be written included */
    int32_t background; /* tasks that have not ended */
    rp_engine_load load; /* without requests' numbers, and gap_p95_us */
} engine_status;

/* The last inter-token latencies: a ring. */
typedef struct engine_gaps {
    float us[ENGINE_GAPS];
    uint64_t n; /* ever added */
    uint64_t last_us; /* end of the last step with answers; 0: none is running */
} engine_gaps;

#define ENGINE_TABLE_SHARE 64 /* share of the KV budget that the tables of spans take. Measured, rounded up */

struct rp_engine {
    rp_model *model;
    int32_t n_threads, n_ctx, chunk_tokens, max_sequences, max_queue;
    double token_goal_us; /* longest step while answers are decoded; 0: a multiple of a step without prompts */
    rp_on_step on_step;
    void *step_user;
    const backend_row *backend_row; /* chosen for the model; of plans_only, too */
    backend *backend;
    model_forward *forward;
    kv_pool *pool;
    uint64_t other_bytes;   /* of memory besides KV and its tables, at most */
    weights_cache *weights; /* NULL: repacked weights are not kept */
    record_cipher *cipher; /* NULL: records are not encrypted */
    pml_formats formats;  /* KV formats of text and of modules, as it was created; */
    job_reduction reduction; /* rp_engine_options.kv_keep and kv_method: of requests that name none */
    atomic_bool falls_back; /* requests are planned with f16 instead; never reset */
    kv_layer_shape *kv_layers; /* of states.shape: the model's, with rp_engine_options.kv_f16_layers; NULL: the model's own */
    record_format states; /* of this engine's records: fingerprint, arithmetic, shape of the KV */
    bool is_whole;        /* the fingerprint covers every byte of the model (identity.h) */
    base_key salt; /* of shared KV: model and KV format. A tenant's: engine_salt. Every key contains one of them */
    char identity[2 * BASE_KEY_BYTES + 1]; /* the fingerprint, in hexadecimal digits */
    bool plans_only;         /* without backend, store, tree and thread; immutable */
    bool has_cluster_key;
    span_reporter *reporter; /* of the store's changes; NULL: not reported. The cluster key: cluster_key */
    base_key cluster_key;

    pthread_t thread;
    const job_observer *const *observers; /* ends with NULL */
    bool has_lock, has_wake, has_drained, has_thread; /* were created */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* for the engine's thread */

    /* shared: guarded by the lock */
    bool stopping, prepared, disk_notified; /* disk_told: the store has events */
    rp_job *inbox, **inbox_end; /* submitted jobs that the engine's thread has not seen yet */
    engine_command *commands;      /* of other threads, which wait for them */
    engine_command *open_commands; /* begun and not completed; owned by the engine's thread */
    int32_t n_live;              /* jobs that have not ended */
    engine_status status;
    engine_gaps gaps;
    int32_t n_draining;          /* threads in rp_engine_drain, */
    pthread_cond_t drained;      /* which wait for this */
    uint64_t n_jobs;            /* since the start: the number of the last job */
    answer_memory *answers; /* earlier answers as tokens */
    rp_schema **schemas; /* by salt, then by name */
    size_t n_schemas, cap_schemas;
    double job_ms; /* moving average of the duration of a job */

    pthread_mutex_t trie_lock; /* held while the trie is built; lock order: trie_lock, lock */
    bool has_trie_lock;
    uint8_t *token_classes; /* [n_vocab] (auto_modules.h), likewise: NULL before the first request that needs them */
    token_trie *tries[2]; /* the vocabulary, by special_text; NULL before the first request with a grammar */

    /* owned by the engine's thread */
    span_store *store;
    span_tree *tree;
    rp_job *waiting;   /* queued jobs in queue order (queue.c) */
    rp_job *flushing;  /* complete, but their KV is not on disk yet (RP_STORE_WRITE_THROUGH) */
    rp_job **running;  /* [max_running] */
    int32_t n_running, max_running; /* max_running: paused ones included */
    int32_t n_paused;   /* of them, as of the last admission: paused jobs, and those that gave up their turn, do not count against max_sequences */
    uint64_t n_asides;  /* turns given up so far */
    bool new_had_turn;  /* the last place went to a job that had waited for its admission */
    int32_t next_answer; /* first answer of the next step, where more are resumed than a step can hold */
    turns turns;
    int32_t n_waiting;
    uint64_t n_admitted; /* since the start */
    uint64_t budget_epoch;   /* incremented whenever KV memory may have become free; starts at 1 */
    segment_prefill *prefills;  /* modules under prefill, in the order of their misses */
    background_work background_tasks;
    auditor *auditor;
    scaffolds scaffolds;
    auto_prefills auto_prefills;
    reductions reductions;
    reduced_modules reduced_modules; /* guarded by the lock */
    cost_model cost;
    cost_model probe_cost; /* of tokens that are only probed (blend.h) */
    uint64_t last_plain; /* number of the last step with answers only */
    uint64_t n_steps;
    uint64_t free_bytes, free_bytes_us; /* rp_engine_load.free_bytes, when it was counted, */
    bool free_bytes_idle;               /* and whether no request ran or waited then */
    bool reported_first; /* this step produced a first token: yield, so that its reader runs before the next step */
    step_part *parts;             /* [max_parts] */
    rp_step_part *reported;           /* [max_parts], for on_step */
    const kv_context **contexts;  /* [max_parts] */
    model_row *rows;              /* [max_rows] */
    float *logits;                /* [max_logits][n_outputs] */
    float *hidden;                /* [max_rows][n_embd] */
    int32_t max_parts, max_rows, max_logits;
};

/* ---- engine.c, identity.c, models.c ---- */

/* The salt of a tenant's KV; tenant NULL or "": that of shared KV. RP_ERR_LIMIT. Any thread. */
int engine_salt(const rp_engine *e, const char *tenant, base_key *out, rp_error *err);

/* KV format of the text of requests that are planned now. Any thread. */
static inline rp_kv_format engine_text_format(const rp_engine *e) { return atomic_load(&e->falls_back) ? RP_KV_F16 : e->formats.text; }

/* ---- status.c ---- */

/* The engine's thread: updates rp_engine.status. */
void engine_publish(rp_engine *e);

/* ---- load.c ---- */

/* The engine's thread: the load as of now. */
rp_engine_load engine_load(rp_engine *e);
/* The engine's thread: a step ended at that time; answers: it had rows of them. */
void engine_count_gap(rp_engine *e, uint64_t end_us, bool answers);

/* ---- submit.c ---- */

/* RP_ERR_UNSUPPORTED: the engine has plans_only. */
int engine_check_computes(const rp_engine *e, rp_error *err);

/* ---- schemas.c ---- */

/* A reference to the schema of that name for the tenant of this salt: its own, else the shared one. RP_ERR_NAME lists the schemas that the
 * tenant may use. Any thread. */
int engine_find_schema(rp_engine *e, const base_key *salt, const char *name, rp_schema **out, rp_error *err);
/* The schema that a prompt names; the error of an unknown one has its place. */
int engine_find_schema_of(rp_engine *e, const base_key *salt, const pml_document *prompt, rp_schema **out, rp_error *err);
/* A schema that is not registered by name, with one reference, the caller's; the salt is part of its modules' keys. Otherwise as rp_schema_parse. */
int engine_make_schema(rp_engine *e, const base_key *salt, const char *pml, size_t n, const char *name, const char *dir,
                       const rp_schema_options *options, rp_schema **out, rp_error *err);
/* Likewise, of the documents among the parts of a prompt (pml_parts_schema). modules_in: as rp_schema_options.kv_format. */
int engine_make_parts_schema(rp_engine *e, const base_key *salt, const pml_part *parts, size_t n, const char *name, const char *modules_in,
                             rp_schema **out, rp_error *err);
/* The bytes of a schema file, and the folder for its src attributes. Both are the caller's (base_buffer_free, base_free), after a failure too. */
int engine_read_schema(const char *path, base_buffer *bytes, char **dir, rp_error *err);
rp_schema *engine_schema_ref(rp_engine *e, rp_schema *s);
void engine_schema_unref(rp_engine *e, rp_schema *s);
void engine_schemas_free(rp_engine *e);

/* ---- fallback.c ---- */

/* Exchanges a reference to a schema for one to the form that requests use now: another one, if its KV formats were found too
 * inexact, or if modules are computed with an adapter: one without invocation tokens; NULL: none. On failure the reference is
 * released, and *s is NULL. RP_ERR_MEMORY, RP_ERR_LIMIT. Any thread. */
int engine_use_schema(rp_engine *e, rp_schema **s, const adapter_use *adapter, rp_error *err);

/* ---- prompts.c: rp_prompt ---- */

const char *engine_prompt_schema(const rp_prompt *p); /* its name; NULL: the schema is made of the prompt's documents */
int engine_prompt_make_schema(const rp_prompt *p, rp_engine *e, const base_key *salt, const char *name, const char *modules_in, rp_schema **out,
                              rp_error *err);
/* The first error of the functions that added to the prompt. */
int engine_prompt_check(const rp_prompt *p, rp_error *err);
/* The document that the parts make over their schema (pml_parts_build). name: for errors. */
int engine_prompt_build(const rp_prompt *p, const pml_document *schema, const char *name, pml_document **out, rp_error *err);

/* ---- scheduler.c ---- */

/* The engine's thread; arg: the rp_engine. */
void *scheduler_main(void *arg);
/* Has the KV of all of a context's views been read from disk? */
static inline bool engine_is_ready(const rp_engine *e, const kv_context *c) { return kv_context_is_ready(c, e->states.shape.n_layers); }

/* ---- commands.c ---- */

/* Runs fn(e, arg) on the engine's thread and waits for it. Any other thread. RP_ERR_MEMORY. */
typedef void (*engine_command_fn)(rp_engine *e, void *arg);
int engine_do(rp_engine *e, engine_command_fn fn, void *arg, rp_error *err);
/* The same for a command that completes after fn: waits until is_over returns true; it is called after fn and after each event of the disk. */
typedef bool (*engine_command_is_over)(rp_engine *e, void *arg);
int engine_do_until(rp_engine *e, engine_command_fn fn, engine_command_is_over is_over, void *arg, rp_error *err);
/* Engine's thread: runs the commands that are queued. */
void engine_run_commands(rp_engine *e);
void engine_end_commands(rp_engine *e); /* Engine's thread: completes those that are over. */

/* ---- steps.c ---- */

/* Computes one step. false: there was nothing to compute. Requests are neither ended nor requeued: the scheduler does so by the result. */
bool steps_run(rp_engine *e, step_result *out);

/* ---- prefix.c ---- */

/* Looks up the longest cached prefix of a job's tokens: its path. *wait: a running job is about to compute more of the same prefix. */
int prefix_find(rp_engine *e, rp_job *c, bool *wait, rp_error *err);
/* The same lookup by span_tree_peek. */
size_t prefix_peek(const rp_engine *e, const rp_job *c, span_tree_fn fn, void *user);
/* Adds the views of the path to the job's context, after the modules' views. The rest of its tokens becomes its sequence. RP_ERR_MEMORY. */
int prefix_compose(rp_job *c, rp_error *err);
/* Inserts spans that the job has computed into the prefix tree: full ones, and with `all` the open one. Best effort: on failure a span is not
 * cached. */
void prefix_give(rp_job *c, bool all);
/* Tokens of a job with KV, cached ones included. */
static inline int32_t prefix_computed(const rp_job *c) { return c->n_found + c->seq.done; }

/* ---- queue.c: the engine's thread ---- */

/* Predicted time of n tokens of a prompt, in steps of their own. */
double queue_prompt_us(const rp_engine *e, int32_t n);
/* Is a before b in queue order? */
bool queue_precedes(const rp_job *a, const rp_job *b);
/* Inserts the job into the queue. */
void queue_add(rp_engine *e, rp_job *c);
/* Removes it from the queue, if it is there. */
void queue_remove(rp_engine *e, rp_job *c);
/* The same on admission: charges its tenant the predicted time. */
void queue_admit(rp_engine *e, rp_job *c);
/* An admitted job has ended and still holds its KV: charges its tenant the time taken instead of the predicted one. */
void queue_settle(rp_engine *e, rp_job *c);
/* Would it take the last sequence, which is reserved for another tenant? */
bool queue_keeps_place(const rp_engine *e, const rp_job *c);
/* Order of prompt chunks in a step: by priority, then the tenant with fewer prompt rows so far. */
bool queue_piece_precedes(const rp_job *a, const rp_job *b);
void queue_begin_rows(const rp_engine *e, rp_job *c);                    /* a job was admitted */
void queue_count_rows(const rp_engine *e, const rp_job *c, int32_t rows); /* a step computes so many of its rows */

/* ---- conversation.c ---- */

/* Plans a request's messages; remembered answers are replaced by their tokens. Errors as pml_plan_messages. */
int conversation_plan(rp_job *c, const rp_request *request, rp_error *err);
/* Remembers the tokens of a complete answer. */
void conversation_remember(rp_job *c);

/* ---- shifted_reuse.c ---- */

/* After prefix_find: finds cached tokens after an edit, at other positions: c->moved. */
void shifted_reuse_find(rp_job *c);

#endif
