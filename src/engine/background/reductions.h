/* SPDX-License-Identifier: Apache-2.0 */
/* reductions.h: modules with keep: after their KV was computed or used, their reduced KV is computed in the background
 * (background.h), and later requests use it instead.
 *
 *   request ended: full --no reduced KV yet--> task of its schema --idle--> prefill with a reduction
 *   (segment_reduction.h) --> KNOWN request planned: KNOWN --> reduced
 *
 * The plan of a request decides once, for each view, whether it is of full or of reduced KV: what it computes does not
 * depend on what is cached. A known module (reduced_modules.h) stays known as long as the engine: if its reduced KV was
 * evicted, a request computes it again, a miss with its reason. Two equal requests before and after a module becomes
 * known may differ; each equals its own recomputation.
 *
 * A view that the prompt changes in part (link, blend, a recomputed last token), a scaffold's joint segments and scopes
 * use full KV. So do plans of a schema that the auditor raised (audit.h): its modules are no longer reduced.
 */
#ifndef ENGINE_REDUCTIONS_H
#define ENGINE_REDUCTIONS_H

#include "engine/background/background.h"
#include "engine/core/observer.h"
#include "reprise_pml.h"

typedef struct reductions {
    rp_schema *pending[BACKGROUND_MAX_TASKS]; /* with a task; the engine's thread */
    int n_pending;
} reductions;

/* Submits the task of a request's or a prefill's schema when it has ended. */
extern const job_observer reductions_observer;

/* The submitting thread: decides which views of a planned job are of reduced KV. */
void reductions_plan(rp_job *c);

#endif
