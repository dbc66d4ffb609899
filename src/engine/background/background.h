/* SPDX-License-Identifier: Apache-2.0 */
/* background.h: tasks without a caller, which run while no request runs or waits: recomputation for the auditor, joint
 * prefill of learned scaffolds.
 *
 *   background_submit --> queue (BACKGROUND_MAX_TASKS) --admit--> running --> done
 *                     ^                                 |
 *                     +------ releases its memory ------+   (BACKGROUND_MAX_TRIES)
 *
 * A task is a plain run: tokens at positions, each of which attends to all before it, as RP_REUSE_EXACT runs them. It
 * uses the prefix cache. Or it computes the reduced KV of a schema's modules, one after another (reductions.h); the
 * rows are those of prefills then. It is an rp_job without a caller, is in none of the requests' lists and is not
 * counted with them (rp_engine_info.background counts it); on_step reports it as RP_STEP_BACKGROUND.
 *
 *   when     no request runs or waits, and none has for BACKGROUND_QUIET_MS (at once while rp_engine_drain waits); the
 *         engine is prepared
 *   steps    have rows of the task only, as many as the cost model predicts for BACKGROUND_STEP_US; where one row takes
 *         longer, as many as take
 *            about as long as one; of modules that are reduced, as four. A request that arrives meanwhile waits for one
 *            such step at most
 *   memory   is reserved for the whole task, as for requests. A request that may lack memory takes it before it is
 *         admitted: the task is requeued,
 *            and hits what it has computed if that was kept
 *   uses     its hits do not count as uses
 *
 * All functions: the engine's thread.
 */
#ifndef ENGINE_BACKGROUND_H
#define ENGINE_BACKGROUND_H

#include "base/hash.h"
#include "store/index/span_tree.h"
#include "reprise_pml.h"

struct segment_prefill;

#define BACKGROUND_MAX_TASKS 64  /* queued and running; one more is refused */
#define BACKGROUND_MAX_TRIES 16  /* a task that gave up its memory so often ends with RP_ERR_BUDGET */
#define BACKGROUND_QUIET_MS 20   /* a caller that sends its next request at once does not wait for a step */
#define BACKGROUND_STEP_US 500.0 /* a first token of the smallest models takes some milliseconds */

/* The result of a task; valid during the callback. */
typedef struct background_result {
    const float *logits; /* [n_vocab] after its last token */
    /* the cached prefix and, if it is kept, the computed tokens: all of them, or fewer if memory was short */
    const span_path *path;
    size_t n_found_steps;                /* steps of the path that were cache hits */
    const struct backend_states *states; /* of recurrent layers after its last token; NULL: the model has none */
} background_result;

/* Called once for each accepted task: rc 0 and a result; or NULL and RP_ERR_BUDGET (the budget cannot hold it, or
 * requests needed its memory too often), RP_ERR_CANCELLED (rp_engine_free), RP_ERR_MEMORY. It may submit the next
 * task. */
typedef void (*background_done_fn)(rp_engine *e, void *user, int rc, const background_result *result);

/* What a task of a schema does next: its current module, if any, is complete. */
typedef enum background_outcome {
    BACKGROUND_NEEDS, /* the next module, which the job needs now */
    BACKGROUND_WAITS, /* reads or writes hold the memory that it needs */
    BACKGROUND_ENDED,
} background_outcome;
typedef background_outcome (*background_advance_fn)(rp_engine *e, rp_job *c);

/* Tokens up to `end`, from the end of the previous piece on: a module's, in its format, or others. Later tokens attend
 * to them in that format; as in the prefill of a module, they attend to one another in the format that they are
 * computed in. */
typedef struct background_piece {
    int32_t end;
    rp_kv_format format;
} background_piece;

typedef struct background_task {
    base_key salt;       /* the tenant's (rp_job.salt): the task hits and inserts that tenant's entries */
    rp_kv_format format; /* of its tokens; one that is not encoded */
    /* [n_pieces], by base_alloc, the last with end n: formats piece by piece instead, without the prefix cache; */
    background_piece *pieces;
    int32_t n_pieces;              /* or none */
    int32_t *tokens, *positions;   /* [n], by rising position; allocated with base_alloc */
    int32_t n;                     /* at least 1 */
    bool keeps;                    /* the KV is inserted into the prefix tree; else it is freed when the task ends */
    rp_schema *schema;             /* instead of tokens: modules of it, one after another; borrowed. The result is
                                      NULL; */
    background_advance_fn advance; /* chooses them */
    background_done_fn done;
    void *user;
} background_task;

/* Queues a task after the others and takes its arrays over; on an error they stay the caller's. No error text:
 * RP_ERR_BUSY (there are BACKGROUND_MAX_TASKS), RP_ERR_MEMORY. May be called in callbacks and when a job ends. */
int background_submit(rp_engine *e, const background_task *task);

/* The flat form of a job's prompt, as RP_REUSE_EXACT runs it: fills in salt, format, tokens, positions and n; and
 * pieces, if the modules have another format than text. The job still has its plan. Takes about 0.1 us a token.
 * RP_ERR_MEMORY. */
int background_twin(const rp_job *c, background_task *out);
/* Frees the arrays of a task that was not submitted. */
void background_task_free(background_task *task);
/* Rows that the next step of a task may have at most: up to the end of its piece. */
int32_t background_most_rows(const rp_job *c);

/* Tasks that run or wait, and when they may run. Zero-initialise. */
typedef struct background_work {
    rp_job *queue;     /* first in, first out */
    rp_job *current;   /* running: it holds its path and its blocks */
    int32_t n_tasks;   /* both */
    uint64_t busy_us;  /* when the last request ended */
    uint64_t tried_at; /* rp_engine.budget_epoch when the admission of the first one failed for lack of memory */
    bool hurried;      /* a thread waits in rp_engine_drain */
} background_work;

/* ---- for the scheduler and its steps ---- */

/* May a background step run now? */
bool background_is_due(const rp_engine *e);
/* Time until one may, if nothing else happens, in ms; -1: never. */
int64_t background_wait_ms(const rp_engine *e);
/* The task of the next step; NULL: none. Admits a task if none runs. *prefill: the one whose rows it has; NULL: its
   own. */
rp_job *background_next(rp_engine *e, struct segment_prefill **prefill);
/* Longest time of its next step, in us, after so many slots. of_module: of a prefill. */
double background_step_us(const rp_engine *e, int64_t slots, bool of_module);
/* Rows were computed. logits: those after the task's last token, or NULL. */
void background_settle(rp_engine *e, rp_job *c, int32_t n_rows, int rc, const float *logits);
/* A request that needs up to so many blocks is to be admitted: the running task releases its memory if the free memory
 * could be too little (a number that is too large is fine). Returns whether it did. */
bool background_make_room(rp_engine *e, int64_t blocks);
/* The engine ends: ends all tasks. */
void background_end_all(rp_engine *e);

#endif
