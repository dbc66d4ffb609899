/* SPDX-License-Identifier: Apache-2.0 */
/* job.h: a job, from rp_engine_submit to its result: a request, the prefill of a schema's modules, or a background
 * task.
 *
 *                 submitting thread        engine's thread
 *   request.c     copy, plan, check
 *   submit.c      queue -----------------> scheduler.c   WAITING
 *                                           admit: look up prefix and modules, reserve      -> COMPOSING
 *                                           segment_prefills.c: prefills missing modules
 *                                           compose: views                                  -> PREFILL
 *                                           features may probe the modules' tokens first    -> PROBING, composed again
 *                                                 -> PREFILL
 *                                           steps.c: tokens in chunks; logits of the last row: answer.c -> DECODE
 *                                           a feature may want a row computed again         -> RECOMPUTING -> DECODE
 *                                           write-through: the store writes its KV          -> FLUSHING
 *   rp_job_wait  <------------------------ scheduler_end, job_publish: result or error      -> DONE
 *
 * Three owners, held by the compiler:
 *
 *   request   immutable once the job is queued: every thread may read it. job_draft writes it before.
 *   shared    guarded by the engine's lock, except two atomics; opaque outside of job.c
 *   the rest  owned by the submitting thread until the job is queued, by the engine's thread until it has ended, and by
 *   the holder of the
 *             rp_job after that
 */
#ifndef ENGINE_JOB_H
#define ENGINE_JOB_H

#include <pthread.h>
#include <stdatomic.h>

#include "sampling/answer.h"
#include "engine/reuse/answer_memory.h"
#include "engine/reuse/auto_modules.h"
#include "engine/reuse/checkpoints.h"
#include "engine/reuse/moved_kv.h"
#include "engine/reuse/pool_pulls.h"
#include "sampling/prompt_lookup.h"
#include "engine/background/background.h"
#include "engine/reuse/span_prefetch.h"
#include "engine/background/scaffolds.h"
#include "engine/reuse/segment_prefills.h"
#include "engine/core/drafts.h"
#include "engine/core/job_feature.h"
#include "engine/core/sequence.h"
#include "engine/core/turns.h"
#include "model/adapter.h"
#include "pml/plan.h"
#include "store/index/span_tree.h"
#include "reprise_pml.h"
#include "reprise_test.h"

#define JOB_PATH_BYTES 256

typedef enum job_kind {
    JOB_REQUEST,
    JOB_MODULE_PREFILL, /* prefills the modules of a schema: rp_schema_prefill */
    JOB_PREPARE,        /* repacks weights: rp_engine_prepare */
    JOB_BACKGROUND,     /* without a caller: background.h */
} job_kind;

typedef enum job_phase { JOB_WAITING,
                         JOB_COMPOSING,
                         JOB_PROBING,
                         JOB_PREFILL,
                         JOB_RECOMPUTING,
                         JOB_DECODE,
                         JOB_FLUSHING,
                         JOB_DONE } job_phase;

/* Own tokens from `first` on, up to those of the next scope: what they attend to besides one another. */
typedef struct job_scope {
    int32_t first;
    base_key root;               /* of these tokens in the prefix tree (job_tokens.c) */
    int32_t first_view, n_views; /* that they attend to, besides those of the scopes before: of the plan's views */
} job_scope;

/* A request, or the parameters of another kind of job. Written by the submitting thread until the job is queued. */
typedef struct job_request {
    uint64_t number;
    base_key flow;      /* the tenant in the queue's order (queue.c): the salt of rp_request.flow, or its tenant's */
    rp_request options; /* with copies of everything that it borrows */
    char **stops;
    rp_logit_bias *bias;
    rp_request_experiment experiment; /* with a copy of its tokens, */
    int32_t *forced, *known;
    rp_schema *schema; /* a reference; NULL for plain text */
    pml_document *document;
    int32_t raised;                    /* quality steps by which the auditor raised its schema (audit.h) */
    base_key before;                   /* of a conversation: a name of the tokens before its answer
                                          (pml_plan.opened); */
    bool remembers;                    /* the answer is remembered as tokens (conversation.c) */
    span_reader reader;                /* who uses and adds KV: its session, and how long it asks to keep that */
    int32_t dropped;                   /* messages that truncation left out */
    uint64_t submitted_us, planned_us; /* planned_us: duration of planning */
    uint64_t deadline_us;              /* 0: none */
    bool keeps;                        /* JOB_BACKGROUND: these as in its background_task */
    background_piece *pieces;
    int32_t n_pieces;
    background_advance_fn advance;
    background_done_fn background_done;
    void *background_user;
} job_request;

/* Its place among others: in the queue (queue.c), after one that computes the same, in the batch (scheduler.c). */
typedef struct job_queued {
    turn turn;               /* while it is queued: its round; */
    uint64_t place;          /* among the jobs of that round */
    double cost_us;          /* predicted when it was queued; */
    int32_t expected_tokens; /* prompt tokens that it had to compute by what was cached then (load.c) */
    bool is_charged;         /* its tenant was charged for it on admission */
    uint64_t tenant_rows;    /* prompt rows computed for its tenant while one of the tenant's jobs ran */
    rp_job *waits_for;       /* a job that computes the same prefix and is ahead, */
    int32_t waits_until;     /* until that has computed so many of its tokens */
    uint64_t tried_at;       /* rp_engine.budget_epoch when its admission failed for lack of memory */
    int32_t n_tries;         /* how often it was preempted */
    int32_t turn_from;       /* answer tokens when it got its place in the batch */
    uint64_t aside;          /* when it gave that up, in order; 0: it has it (scheduler_turns) */
} job_queued;

/* What it found in the prefix cache, and what it inserts (prefix.c). */
typedef struct job_prefix {
    bool shares; /* it uses the prefix cache: looks up and inserts */
    span_path path;
    int32_t n_found;      /* cached tokens of the path, */
    size_t n_found_steps; /* in so many of its steps */
    span_end found_end;
    bool known_elsewhere;                       /* a miss, although its first tokens are cached after another prefix */
    int32_t known[RP_MISMATCH_TOKENS], n_known; /* tokens of the cached prompt after the first mismatch */
    size_t first_own_view;                      /* first view of the context that is not in the prefix tree yet, */
    int32_t n_given;                            /* which begins at this token */
} job_prefix;

/* Counted on the way, for its result and its status. */
typedef struct job_figures {
    uint64_t admitted_us, composed_us, compose_us;
    uint64_t prefill_done, prefill_total; /* tokens of modules */
    uint64_t copied_bytes;                /* of KV, while it was composed */
    uint64_t saved_us;                    /* predicted time to compute the cached KV */
} job_figures;

struct rp_job {
    rp_engine *engine;
    job_kind kind;
    const job_request *request;
    struct job_shared *shared;
    rp_job *next; /* in the queue, the inbox or the list of flushing jobs */

    /* Plan and tokens. */
    pml_plan *plan;
    bool exact;          /* the plan runs flat: scopes are ignored */
    rp_kv_format format; /* of its own tokens: the engine's for text when it was planned */
    scaffold_form other; /* the form of the prompt that is not in use */
    base_key salt;       /* of its tenant */
    job_scope *scopes;   /* [cap_scopes] of the tokens below; the first one is that of token 0 */
    int32_t n_scopes, cap_scopes;
    int32_t switch_at; /* > 0: the first of the tokens below that its adapter computes, as earlier ones are the base
                          model's: a scope begins there */
    /* Tokens that are not views, by rising position, then those of the answer. [cap_tokens] */
    int32_t *tokens, *positions;
    int32_t n_prompt, n_tokens, cap_tokens,
        n_runs;        /* n_tokens: those of the answer included; n_runs: runs of consecutive positions in the prompt */
    int32_t n_resumed; /* tokens of the answer that were sampled before: the last one only if the answer goes on */

    /* Admission, reuse and computation. */
    job_phase phase;
    job_queued queued;
    prefetch ahead; /* while it is queued */
    pool_pulls pulls;
    segment_needs needs;
    int32_t next_segment; /* JOB_MODULE_PREFILL */
    job_prefix prefix;
    sequence seq;
    answer answer;
    prompt_lookup prompt_lookup;
    job_drafts drafts;
    job_moved moved;
    job_auto automatic;
    job_states states; /* of recurrent layers */
    job_wants wants;   /* of its features, */
    job_features features;
    int32_t n_dropped;          /* positions that its context has lost: later tokens moved back by so
                                                   many */
    struct audit_case *audited; /* sampled by the auditor, which holds its first token's logits; else
                                                   NULL */
    uint64_t flush_serial;      /* value of span_store_flushed when all of its KV is on disk */
    job_figures figures;
    rp_result *result; /* taken by rp_job_result */
};

/* Position of the answer's token that is pushed as number `token` of the job. */
static inline int32_t job_answer_position(const rp_job *c, int32_t token) {
    return c->plan->end + token - c->n_prompt - c->n_dropped;
}
/* Of up to `most` tokens of its answer, those that hold KV at one time. */
static inline int32_t job_held(const rp_job *c, int32_t most) {
    return c->wants.most_held > 0 && c->wants.most_held < most ? c->wants.most_held : most;
}

/* Has its answer begun? It decodes, or a later token is made again. */
static inline bool job_is_answering(const rp_job *c) {
    return c->phase == JOB_DECODE || (c->phase == JOB_RECOMPUTING && c->answer.first_us);
}

/* Has all that it found been read from disk? Could a part of it not be read? */
static inline bool job_is_ready(const rp_job *c) {
    return sequence_is_ready(&c->seq.context) && checkpoints_are_ready(c) && segment_needs_are_ready(&c->needs);
}
static inline bool job_has_failed(const rp_job *c) {
    return kv_context_has_failed(&c->seq.context) || checkpoints_have_failed(c) || segment_needs_have_failed(&c->needs);
}

int job_new(rp_job **out, rp_engine *e, job_kind kind, rp_error *err);
/* The request of a job that is not queued yet, for writing. */
job_request *job_draft(rp_job *c);
/* The engine's thread: whether rp_job_cancel or rp_job_pause was called. */
bool job_is_cancelled(const rp_job *c);
bool job_is_paused(const rp_job *c);
/* The status that rp_job_get_status copies. The engine's lock is held. */
rp_job_status *job_status_locked(rp_job *c);
void job_free(rp_job *c);
/* The engine's thread: releases the KV that a job holds or has reserved; the job is in no list of jobs that compute. */
void job_release(rp_job *c);
/* Engine's thread: the job has ended with rc and, if that is not 0, *err; it holds nothing. Its caller may free it
   before this returns. */
void job_publish(rp_job *c, int rc, const rp_error *err);

#endif
