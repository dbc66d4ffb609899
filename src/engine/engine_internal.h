/* engine_internal.h: what the files of the engine share.
 *
 *   engine.c        making an engine; memory, statistics
 *   identity.c      what names its KV (identity.h)
 *   models.c        models and tokens: the plain parts of the interface
 *   schemas.c       schemas by name, counted by reference
 *   job.c, request.c, result.c     a call: its life, what it asks for, what it gave (job.h)
 *   scheduler.c     the engine's thread: who runs
 *   queue.c         calls that wait: whose turn it is (turns.h)
 *   prefetch.c    states of calls that wait, fetched and held (prefetch.h)
 *   steps.c         what a step computes, and what becomes of it
 *   background.c          what is computed while no call runs (background.h)
 *   scaffolds.c     what prompts combine, computed together then (scaffolds.h)
 *   prefix.c        what was read before: found, waited for, given
 *   shifted_reuse.c         what was read before behind another piece: found, moved
 *   conversation.c  answers: remembered as their tokens, and recalled in the next turn (answer_memory.h)
 *   segment_prefills.c  modules: found, or computed (segment_prefills.h)
 *   audit.c         one in N requests computed again in full and compared (audit.h)
 *   prompts.c       prompts that a program makes part by part
 *   inspect.c       what rp_engine_inspect tells
 *   lint_api.c  what rp_schema_lint tells, without an engine
 *
 * Headers of their own: blend.h, sequence.h, answer.h, prompt_lookup.h, sampler.h, text_stream.h, cost_model.h.
 */
#ifndef ENGINE_ENGINE_INTERNAL_H
#define ENGINE_ENGINE_INTERNAL_H

#include "engine/background/audit.h"
#include "engine/job.h"
#include "engine/cost_model.h"
#include "model/forward.h"
#include "pml/parts.h"

#define ENGINE_MAX_SCHEMAS ((size_t)1 << 16)
#define ENGINE_STEP_PREFILLS 64 /* modules in a step: more than fill it */

typedef struct engine_command engine_command;

struct rp_schema {
    int refs; /* under the engine's lock */
    base_key salt; /* its tenant's, of all its keys */
    base_key version; /* audit_version; none: a request's own */
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
    rp_job *job;    /* NULL: a job's */
    segment_prefill *prefill;
    int32_t first_row, n_rows;
    int32_t first_logits; /* of the rows that want them, which end the part; -1: none does */
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
} engine_status;

struct rp_engine {
    rp_model *model;
    int32_t n_threads, n_ctx, chunk_tokens, max_sequences, max_queue;
    double token_goal_us; /* 0: by what a step without prompts takes */
    rp_on_step on_step;
    void *step_user;
    backend *backend;
    model_forward *forward;
    kv_pool *pool;
    record_cipher *cipher; /* of records; NULL: none */
    record_format states; /* what a record of this engine's states is like */
    bool is_whole;        /* its fingerprint is of every byte of the model (identity.h) */
    base_key salt; /* of what is shared: model, state format. A tenant's: engine_salt. One of them is part of every key */

    pthread_t thread;
    const job_observer *const *observers; /* ends with NULL */
    bool has_lock, has_wake, has_drained, has_thread; /* were made */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* of the engine's thread */

    /* shared: under the lock */
    bool stopping, prepared, disk_told; /* disk_told: the store has something to take up */
    rp_job *inbox, **inbox_end; /* submitted, not seen by the engine's thread */
    engine_command *commands;      /* of threads that wait for them */
    engine_command *open_commands; /* that are not over; the engine's thread's */
    int32_t n_live;              /* calls that have not ended */
    engine_status status;
    int32_t n_draining;          /* threads that wait for those, */
    pthread_cond_t drained;      /* for this */
    uint64_t n_jobs;            /* ever: the last one's number */
    answer_memory *answers; /* as tokens */
    rp_schema **schemas; /* by salt, then by name */
    size_t n_schemas, cap_schemas;
    double job_ms; /* how long calls take, about */

    pthread_mutex_t trie_lock; /* held while it is made; the other lock is below it */
    bool has_trie_lock;
    token_trie *trie; /* the vocabulary, since the first call with a grammar */

    /* the engine's thread */
    span_store *store;
    span_tree *tree;
    rp_job *waiting;   /* in the order in which they are to run */
    rp_job *flushing;  /* their answers are there, what they have computed is not on disk yet (RP_STORE_WRITE_THROUGH) */
    rp_job **running;  /* [max_running] */
    int32_t n_running, max_running; /* max_running: with those that are paused */
    int32_t n_paused;   /* of them, at the last look: they take no place of max_sequences */
    int32_t next_answer; /* where more answers go on than a step has places for, it begins with this one */
    turns turns;
    int32_t n_waiting;
    uint64_t n_admitted; /* ever */
    uint64_t budget_epoch;   /* calls, modules of rp_schema_prefill, what the disk has done, from 1: each gives room back */
    segment_prefill *prefills;  /* in the order in which they were missed */
    background_work background_tasks;
    auditor *auditor;
    scaffolds scaffolds;
    cost_model cost;
    cost_model probe_cost; /* of tokens that are only looked at (blend.h) */
    uint64_t last_plain; /* number of the last step of answers alone */
    uint64_t n_steps;
    bool told_first; /* somebody got a first token in this step: who reads it goes before the next step, where threads take all processors */
    step_part *parts;             /* [max_parts] */
    rp_step_part *told;           /* [max_parts] */
    const kv_context **contexts;  /* [max_parts] */
    model_row *rows;              /* [max_rows] */
    float *logits;                /* [max_logits][n_vocab] */
    int32_t max_parts, max_rows, max_logits;
};

/* ---- engine.c, identity.c, models.c ---- */

/* What names all that is the tenant's; NULL and "": what names all that is shared. RP_ERR_LIMIT. Any thread. */
int engine_salt(const rp_engine *e, const char *tenant, base_key *out, rp_error *err);

/* ---- status.c ---- */

/* The engine's thread: updates rp_engine.status. */
void engine_publish(rp_engine *e);

/* ---- schemas.c ---- */

/* A reference to the schema of that name that the tenant of this salt gets: its own, or else the shared one. RP_ERR_NAME lists what there
 * is for it. Any thread. */
int engine_find_schema(rp_engine *e, const base_key *salt, const char *name, rp_schema **out, rp_error *err);
/* The schema that a prompt names; the error of an unknown one has its place. */
int engine_find_schema_of(rp_engine *e, const base_key *salt, const pml_document *prompt, rp_schema **out, rp_error *err);
/* A schema that nobody else finds, with one reference, the caller's; its modules are named by the salt. As rp_schema_parse otherwise. */
int engine_make_schema(rp_engine *e, const base_key *salt, const char *pml, size_t n, const char *name, const char *dir,
                       const rp_schema_options *options, rp_schema **out, rp_error *err);
/* A schema file's bytes, and the folder of its src files: both the caller's (base_buffer_free, base_free), after a failure, too. */
int engine_read_schema(const char *path, base_buffer *bytes, char **dir, rp_error *err);
rp_schema *engine_schema_ref(rp_engine *e, rp_schema *s);
void engine_schema_unref(rp_engine *e, rp_schema *s);
void engine_schemas_free(rp_engine *e);

/* ---- prompts.c: rp_prompt ---- */

const char *engine_prompt_schema(const rp_prompt *p); /* its name */
/* The first error of a call that added to the prompt. */
int engine_prompt_check(const rp_prompt *p, rp_error *err);
/* The document that the parts make over their schema (pml_parts_build). name: for errors. */
int engine_prompt_build(const rp_prompt *p, const pml_document *schema, const char *name, pml_document **out, rp_error *err);

/* ---- scheduler.c ---- */

/* The engine's thread; arg: the rp_engine. */
void *scheduler_main(void *arg);
/* Does a context have all its states? */
static inline bool engine_is_ready(const rp_engine *e, const kv_context *c) { return kv_context_is_ready(c, e->states.shape.n_layers); }

/* ---- commands.c ---- */

/* Has fn(e, arg) called on the engine's thread, and waits for it. Any thread but that one. RP_ERR_MEMORY. */
typedef void (*engine_command_fn)(rp_engine *e, void *arg);
int engine_do(rp_engine *e, engine_command_fn fn, void *arg, rp_error *err);
/* The same for what is over later than fn: it waits until is_over says so, which is asked after fn and whenever the disk has done something. */
typedef bool (*engine_command_is_over)(rp_engine *e, const void *arg);
int engine_do_until(rp_engine *e, engine_command_fn fn, engine_command_is_over is_over, void *arg, rp_error *err);
/* The engine's thread does what it was asked for. */
void engine_run_commands(rp_engine *e);
void engine_end_commands(rp_engine *e); /* that are over */

/* ---- steps.c ---- */

/* Computes one step of what can be computed. false: there was nothing. No request has ended or been requeued: that is for the scheduler, by
 * the result. */
bool steps_run(rp_engine *e, step_result *out);

/* ---- prefix.c ---- */

/* Finds what was read before of a call's tokens: its path. *wait: another call reads the same and is about to compute more of it. */
int prefix_find(rp_engine *e, rp_job *c, bool *wait, rp_error *err);
/* Adds the path's views to the call's context, which all others stand in; the rest of its tokens is its sequence from then on. */
int prefix_compose(rp_job *c, rp_error *err);
/* Gives what the call has computed to the tree: spans that are full, or (all) the open one too. What cannot be kept is not: no error. */
void prefix_give(rp_job *c, bool all);
/* Tokens that a call has computed states of, found ones included. */
static inline int32_t prefix_computed(const rp_job *c) { return c->n_found + c->seq.done; }

/* ---- queue.c: the engine's thread ---- */

/* Is it a's turn before b's? */
bool queue_precedes(const rp_job *a, const rp_job *b);
/* The call waits from now on. */
void queue_add(rp_engine *e, rp_job *c);
/* It does not any more, if it did. */
void queue_remove(rp_engine *e, rp_job *c);
/* The same for one that is admitted: its tenant is charged what it was predicted to take. */
void queue_admit(rp_engine *e, rp_job *c);
/* A call that was admitted has ended, and still holds what it has: its tenant is charged what it has taken instead. */
void queue_settle(rp_engine *e, rp_job *c);
/* Would it take the last place, which is kept for another tenant? */
bool queue_keeps_place(const rp_engine *e, const rp_job *c);
/* Which piece of a prompt is first in a step: by priority, then the tenant that steps gave fewer rows of prompts. */
bool queue_piece_precedes(const rp_job *a, const rp_job *b);
void queue_begin_rows(const rp_engine *e, rp_job *c);                    /* a call was admitted */
void queue_count_rows(const rp_engine *e, const rp_job *c, int32_t rows); /* a step has so many of it */

/* ---- conversation.c ---- */

/* Plans a request's messages; earlier answers that are remembered stand in it as their tokens. Errors as pml_plan_messages. */
int conversation_plan(rp_job *c, const rp_request *request, rp_error *err);
/* Keeps the tokens of an answer that has its text. */
void conversation_remember(rp_job *c);

/* ---- shifted_reuse.c ---- */

/* Behind prefix_find: finds tokens behind an edit that were read before at other positions: c->moved. */
void shifted_reuse_find(rp_job *c);
/* Adds their views to the call's context, behind those of the path, and takes them out of its tokens. */
int shifted_reuse_compose(rp_job *c, rp_error *err);
/* A call that is composed begins anew: puts them back, while the path is there. */
void shifted_reuse_take_back(rp_job *c);

#endif
