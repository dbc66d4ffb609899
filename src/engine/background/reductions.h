/* SPDX-License-Identifier: Apache-2.0 */
/* reductions.h: modules with keep: after their KV was computed or used, their reduced KV is computed in the background (background.h), and later
 * requests use it instead.
 *
 *   request ended: full --no reduced KV yet--> task of its schema --idle--> prefill with a reduction (segment_reduction.h) --> store, KNOWN
 *   request planned: KNOWN --> reduced
 *
 * The plan of a request decides once, for each view, whether it is of full or of reduced KV: what it computes does not depend on what is cached.
 * A known module stays known as long as the engine: if its reduced KV was evicted, a request computes it again, a miss with its reason. Two equal
 * requests before and after a module becomes known may differ; each equals its own recomputation.
 *
 * A view that the prompt changes in part (link, blend, a recomputed last token), a scaffold's joint segments and scopes use full KV.
 */
#ifndef ENGINE_REDUCTIONS_H
#define ENGINE_REDUCTIONS_H

#include "base/hash.h"
#include "engine/background/background.h"
#include "engine/observer.h"

#define REDUCTIONS_MAX ((size_t)1 << 16) /* known modules; others stay as they are */

typedef struct reductions {
    base_key *known; /* [n], ascending: keys of first spans; guarded by the engine's lock */
    size_t n, cap;
    rp_schema *pending[BACKGROUND_MAX_TASKS]; /* with a task; the engine's thread */
    int n_pending;
} reductions;

/* Submits the task of a request's or a prefill's schema when it has ended. */
extern const job_observer reductions_observer;

/* Notes the reduced KV of the store's disk. Before the engine's thread starts. */
void reductions_open(rp_engine *e);
void reductions_free(rp_engine *e);
/* A module's reduced KV is in the store; first: the key of its first span. */
void reductions_note(rp_engine *e, const base_key *first);
/* The submitting thread: decides which views of a planned job are of reduced KV. */
void reductions_plan(rp_job *c);

/* What a task does next: its current module, if any, is complete. */
typedef enum reductions_outcome {
    REDUCTIONS_NEEDS, /* the next module, which the job needs now */
    REDUCTIONS_WAITS, /* reads or writes hold the memory that it needs */
    REDUCTIONS_ENDED,
} reductions_outcome;
reductions_outcome reductions_advance(rp_engine *e, rp_job *c);

#endif
