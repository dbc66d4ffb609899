/* SPDX-License-Identifier: Apache-2.0 */
/* sequence_reduction.h: a request's KV is reduced for its decode alone, once its prompt is complete (rp_request.kv_keep).
 *
 *   prompt    [view of a module][view of a prefix][own spans ......... | observed rows]   first token drawn from these
 *                    |                  |               |                                  prefix tree: the own spans
 *   decode    [reduced span][reduced span] ...                          [own: answer]      of the job alone
 *
 * The slots that each head keeps are copied into reduced spans, and the context's views are dropped: the store may evict
 * them. Views of encoded or reduced spans stay whole. What the prompt computed enters the prefix tree before; nothing after it
 * does.
 *
 * With quest all views stay: each row of the answer chooses the slots that it sees (backend/slot_bounds.h), among all but those of
 * encoded and reduced spans, of the last own tokens and of the answer, which it sees in any case.
 *
 * Hit = miss: methods score slots by the weights of the prompt's last own rows (model/sequence_methods.h), so these are computed
 * whatever is cached. The order of slots is that of positions, whatever spans they are in.
 *
 * Engine's thread, except reduction_read and reduction_yield (the submitting thread).
 */
#ifndef ENGINE_SEQUENCE_REDUCTION_H
#define ENGINE_SEQUENCE_REDUCTION_H

#include "backend/backend.h"
#include "model/sequence_methods.h"

struct rp_job;

typedef struct job_reduction {
    bool asked;         /* by the request, or as the engine's default */
    bool is_default;    /* the request names neither kv_keep nor kv_method: the default applies where it can */
    const char *reason; /* why the default does not apply: as rp_kv_reduction.reason; NULL: it does. Static */
    sequence_method method;
    int32_t slots, permille;      /* one of them: slots to keep in the mean of all heads, or their share; the other is 0 */
    attention_observer *observer; /* of a composed job whose method needs one; else NULL */
    int32_t n_rows;               /* observed rows: the last ones of the prompt */
    struct slot_bounds *bounds;   /* of a composed job whose answer's rows choose their slots, once its prompt is complete; else NULL */
    bool done;
    uint64_t bytes_before, bytes; /* KV of the context before and after */
    uint64_t us;                  /* time it took */
    double share;                 /* kept slots, of all heads */
} job_reduction;

/* Submitting thread: reads kv_keep and kv_method of a request, or of an engine's options (usual: NULL). usual: the engine's, for what a request
 * does not name. RP_ERR_INVALID. */
int reduction_read(job_reduction *r, const job_reduction *usual, const char *keep, const char *method, rp_error *err);
/* A planned job: a default yields to reason, or, with NULL, applies again. Returns whether there is a default. */
bool reduction_yield(struct rp_job *c, const char *reason);

/* Rows at the end of the prompt that the method observes: they are computed whatever is cached. 0: none. */
int32_t reduction_observed_rows(const struct rp_job *c);
/* Blocks that the reduced KV takes at most, while the job holds its complete KV too; 0 for other jobs. */
int64_t reduction_blocks(const struct rp_job *c);
/* A composed job: begins to observe. RP_ERR_MEMORY. */
int reduction_open(struct rp_job *c, rp_error *err);
/* The row computes the job's token of that index: sets what it reports to, and what chooses its slots. */
void reduction_prepare_row(const struct rp_job *c, int32_t token, model_row *row);
/* The prompt is complete, its first token drawn, its KV in the prefix tree, and its plan described; it shares nothing from now
 * on. Replaces the context's views, and reserves what the answer takes. Without effect on other jobs, or if all slots are
 * kept. RP_ERR_MEMORY, RP_ERR_LIMIT: the job must fail. */
int reduction_apply(struct rp_job *c, rp_error *err);
void reduction_release(struct rp_job *c);

#endif
