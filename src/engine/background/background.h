/* background.h: the background: tokens that are computed while no call runs or waits, for the good of later ones.
 *
 *   background_submit --> queue (BACKGROUND_MAX_TASKS) --admit--> the one under way --> done
 *                     ^                                 |
 *                     +---- gives up its room ----------+   (BACKGROUND_MAX_TRIES)
 *
 * A task is a plain run: tokens at positions, each of which attends to all before it, as RP_REUSE_EXACT runs them; what was read before is
 * found by the prefix tree. It is an rp_job that nobody waits for, apart from the others: it is in no queue of theirs and counts nowhere among
 * them (rp_engine_info.background counts it), and is told of as RP_STEP_BACKGROUND.
 *
 *   when    no call runs or waits and none has for BACKGROUND_QUIET_MS (at once where rp_engine_drain waits), and the engine is prepared
 *   steps   have rows of the task alone, as many as the cost model gives BACKGROUND_STEP_US; where a row alone takes longer, as many as take about
 *           as long as one. So a call that comes meanwhile waits for one such step at most
 *   room    is reserved for all of a task, as for calls. A call that may lack room takes it away before it is admitted: the task begins again
 *           when it is its turn, and finds what it had computed if that is kept
 *   uses    what a task finds is not noted as used
 *
 * The engine's thread, all of it.
 */
#ifndef ENGINE_BACKGROUND_H
#define ENGINE_BACKGROUND_H

#include "base/hash.h"
#include "store/span_tree.h"

#define BACKGROUND_MAX_TASKS 64 /* that are not done; one more is refused */
#define BACKGROUND_MAX_TRIES 16 /* a task that gave up its room so often is dropped */
#define BACKGROUND_QUIET_MS 20  /* a caller that asks again at once is not kept waiting; nobody misses the time */
#define BACKGROUND_STEP_US 500.0 /* a first token of the smallest models takes some milliseconds */

/* What a task gave; borrowed during the call. */
typedef struct background_result {
    const float *logits;   /* [n_vocab] behind its last token */
    const span_path *path; /* what was found and, if it is kept, what was computed: all of its tokens, or fewer where room was short */
    size_t n_found_steps;  /* of the path */
} background_result;

/* Called once for each task that was taken: rc 0 and a result; or NULL and RP_ERR_BUDGET (it was dropped: the budget cannot hold it, or calls
 * needed its room too often), RP_ERR_CANCELLED (rp_engine_free), RP_ERR_MEMORY. It may submit the next one. */
typedef void (*background_done_fn)(rp_engine *e, void *user, int rc, const background_result *result);

typedef struct background_task {
    base_key salt;               /* of the tenant whose text it is (rp_job.root.salt): found and kept as the tenant's */
    int32_t *tokens, *positions; /* [n], by rising position; of base_alloc */
    int32_t n;                   /* at least 1 */
    bool keeps;                  /* what is computed stays in the tree, for others to find; else it is gone when the task is done */
    background_done_fn done;
    void *user;
} background_task;

/* Queues a task behind the others. Its arrays are the engine's from then on; where it is refused they stay the caller's. No error text:
 * RP_ERR_BUSY (there are BACKGROUND_MAX_TASKS), RP_ERR_MEMORY. May be called in callbacks and where a call ends. */
int background_submit(rp_engine *e, const background_task *task);

/* The flat twin of a call's prompt, which RP_REUSE_EXACT would run: fills in salt, tokens, positions and n. The call has its plan still, as
 * where it ends. Takes about 0.1 us a token. RP_ERR_MEMORY. */
int background_twin(const rp_job *c, background_task *out);

/* Tasks under way or waiting, and when they may be worked on. Zero-initialised: none. */
typedef struct background_work {
    rp_job *queue;   /* by their turn */
    rp_job *current; /* its path and its blocks are held */
    int32_t n_tasks;  /* both */
    uint64_t busy_us; /* when the last call ended */
    uint64_t tried_at; /* rp_engine.budget_epoch when there was no room for the first */
    bool hurried;     /* somebody waits in rp_engine_drain */
} background_work;

/* ---- for the scheduler and its steps ---- */

/* May a step of the background be computed now? */
bool background_is_due(const rp_engine *e);
/* How long until one may, if nothing happens meanwhile, in ms; -1: for ever. */
int64_t background_wait_ms(const rp_engine *e);
/* The task whose tokens are to be computed now; NULL: none. Admits the next one. */
rp_job *background_next(rp_engine *e);
/* Most time that its next step may take, in us, behind so many slots. */
double background_step_us(const rp_engine *e, int64_t slots);
/* Rows were computed; logits: behind the last one, if that was the task's last. */
void background_settle(rp_engine *e, rp_job *c, int32_t n_rows, int rc, const float *logits);
/* A call that may take so many blocks is to be admitted: the task under way gives up its room if that could be too little (a number
 * that is too large is fine). Returns whether it did. */
bool background_make_room(rp_engine *e, int64_t blocks);
/* The engine ends: so do all. */
void background_end_all(rp_engine *e);

#endif
