/* job.h: a call, from rp_engine_submit to its result.
 *
 *                 submitting thread        engine's thread
 *   request.c     copy, plan, check
 *   job.c        queue ------------------> scheduler.c   WAITING
 *                                           admit: look up prefix and modules, reserve      -> COMPOSING
 *                                           segment_prefills.c: modules that are missing
 *                                           compose: views                                  -> PREFILL
 *                                           blend.c: chooses what is computed again         -> PROBING, composed anew -> PREFILL
 *                                           steps.c: tokens, piece by piece; the last row's logits: answer.c -> DECODE
 *                                           the store writes what it has computed, if it is to wait for that -> FLUSHING
 *   rp_job_wait  <------------------------ call_end: result or error                       -> DONE
 *
 * What stands under "shared" is guarded by the engine's lock. Everything else belongs to the submitting thread until the call is queued,
 * to the engine's thread until it has ended, and to whoever holds the rp_job after that.
 */
#ifndef ENGINE_JOB_H
#define ENGINE_JOB_H

#include <pthread.h>
#include <stdatomic.h>

#include "sampling/answer.h"
#include "engine/reuse/answer_memory.h"
#include "engine/reuse/blend.h"
#include "sampling/prompt_lookup.h"
#include "engine/background/background.h"
#include "engine/reuse/span_prefetch.h"
#include "engine/background/scaffolds.h"
#include "engine/reuse/segment_prefills.h"
#include "engine/sequence.h"
#include "engine/turns.h"
#include "pml/plan.h"
#include "store/span_tree.h"

#define JOB_PATH_BYTES 256

typedef enum job_kind {
    JOB_REQUEST,
    JOB_MODULE_PREFILL,  /* computes the modules of a schema: rp_schema_prefill */
    JOB_PREPARE, /* brings weights into order: rp_engine_prepare */
    JOB_BACKGROUND, /* nobody waits for it: background.h */
} job_kind;

typedef enum job_phase { JOB_WAITING, JOB_COMPOSING, JOB_PROBING, JOB_PREFILL, JOB_DECODE, JOB_FLUSHING, JOB_DONE } job_phase;

/* Tokens behind an edit, whose states are taken from where they were read before (shifted_reuse.c). None: n is 0. */
typedef struct job_moved {
    span_path path;      /* that read them, from its token `from` on */
    int32_t from, first; /* first: the call's token, */
    int32_t pos;         /* at this position */
    int32_t n, shift;
    int32_t n_shift_recomputed;  /* tokens before them that are computed again */
} job_moved;

struct rp_job {
    rp_engine *engine;
    job_kind kind;
    uint64_t number;
    rp_job *next; /* of those that wait, or in the inbox */
    base_key flow; /* whose turn it takes (queue.c): the salt of rp_request.flow, or its tenant's */

    /* what was asked for */
    rp_request options; /* with copies of what it borrows */
    char **stops;
    rp_logit_bias *bias;
    int32_t *forced;
    rp_schema *schema; /* a reference; NULL for plain text */
    pml_document *document;
    pml_plan *plan;
    bool exact;        /* the plan is run flat: scopes are ignored */
    int32_t raised;    /* steps that its schema was moved up the dial (audit.h) */
    scaffold_form other; /* of the prompt; the one in use stands below */
    span_root root;    /* of the tokens below, in the tree: its tenant's salt, and what stands before them */
    /* Tokens behind the plan's views by rising position, then those of the answer. [cap_tokens] */
    int32_t *tokens, *positions;
    int32_t n_prompt, n_tokens, cap_tokens, n_runs; /* n_tokens: with those of the answer; n_runs: stretches of consecutive positions in the prompt */
    base_key before;   /* of a conversation: names what stands before its answer; */
    bool remembers;    /* the answer is kept as tokens (conversation.c) */
    uint64_t submitted_us, planned_us; /* planned_us: how long planning took */
    uint64_t deadline_us;              /* 0: none */

    /* the engine's thread */
    job_phase phase;
    turn turn;                /* while it waits: when it is served; */
    uint64_t place;           /* among those of the same round */
    double cost_us;           /* predicted when it was queued; */
    bool is_charged;          /* its tenant was, when it was admitted */
    uint64_t tenant_rows;     /* of prompts, that steps gave its tenant while one of its calls ran */
    bool shares;              /* its tokens may be found by others, and theirs by it */
    rp_job *waits_for;       /* reads the same, and is further */
    int32_t waits_until;      /* has computed so many of its tokens */
    uint64_t tried_at;        /* rp_engine.budget_epoch when there was no room for it */
    prefetch ahead;         /* while it waits */
    segment_needs needs;
    int32_t next_segment;     /* JOB_MODULE_PREFILL */
    uint64_t flush_serial;    /* span_store_flushed, when all of it is on disk */
    span_path path;
    int32_t n_found;          /* tokens that the path gave, */
    size_t n_found_steps;     /* by so many of its steps */
    span_end found_end;
    bool known_elsewhere;     /* nothing was found, and its beginning was read behind something else */
    size_t first_own_view;    /* not given to the tree yet: this view of the context and those after it, */
    int32_t n_given;          /* which begin at this token */
    sequence seq;
    answer answer;
    prompt_lookup prompt_lookup;
    uint64_t prefill_done, prefill_total; /* tokens of modules */
    uint64_t admitted_us, composed_us, compose_us;
    job_moved moved;
    job_blend blend;
    int32_t known[RP_MISMATCH_TOKENS], n_known; /* how what was read before went on where the prompt left it */
    uint64_t copied_bytes; /* of states, while it was composed */
    struct audit_case *audited; /* it was chosen, and its first token's logits are kept; else NULL */
    uint64_t saved_us;     /* what computing the states that were found would have taken */
    bool keeps;            /* JOB_BACKGROUND: as its background_task says, */
    background_done_fn background_done; /* and these */
    void *background_user;
    int32_t n_tries;       /* how often it gave up its room */

    /* shared */
    atomic_bool cancelled, paused;
    rp_job_status status;
    bool ended;
    pthread_cond_t ended_cond;
    int rc;
    rp_error err;
    rp_result *result;
};

/* ---- request.c: on the submitting thread ---- */

/* Copies, parses, plans and checks. The call was made by job_new. Errors as rp_engine_submit. */
int job_plan(rp_job *c, const rp_request *request, rp_error *err);
/* ---- job_tokens.c ---- */

/* Lists the tokens of the flat prompt instead, in rising position. RP_ERR_MEMORY. */
int job_list_flat(rp_job *c, rp_error *err);
/* The plan has other runs: lists their tokens and positions anew, for which there is room. */
void job_list_runs(rp_job *c);
/* Instead of that: a plain run of n tokens at their positions, both the call's from then on, of the tenant of that salt. */
void job_take_tokens(rp_job *c, const base_key *salt, int32_t *tokens, int32_t *positions, int32_t n);
/* Stretches of consecutive positions. */
int32_t job_count_runs(const int32_t *positions, int32_t n);
/* Blocks that n tokens of the call, the prompt's and the answer's, take at most, and what may be chosen to be computed again. */
int64_t job_own_blocks(const rp_job *c, int32_t n, bool keeps_windows);
/* Blocks that a request's modules and n of its tokens take at one time. */
int64_t job_count_blocks(const rp_job *c, int32_t n, bool keeps_windows);
/* Blocks that all of a request takes at most, modules included. */
int64_t job_most_blocks(const rp_job *c);

/* ---- job.c ---- */

int job_new(rp_job **out, rp_engine *e, job_kind kind, rp_error *err);
void job_free(rp_job *c);
/* The engine's thread: releases the KV that a job holds or has reserved; the job is in no list of jobs that compute. */
void job_release(rp_job *c);
/* Engine's thread: the call has ended, with rc and, if that is not 0, *err. Everything it holds was released. It may be freed meanwhile. */
void job_publish(rp_job *c, int rc, const rp_error *err);

/* ---- result.c: engine's thread ---- */

/* The call is composed: counts what was found. */
void job_count_found(rp_job *c);
/* Fills in the result of an answer that is over: plan, counts, timings. RP_ERR_MEMORY. */
int job_describe(rp_job *c, rp_error *err);

#endif
