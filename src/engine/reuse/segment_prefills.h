/* SPDX-License-Identifier: Apache-2.0 */
/* segment_prefills.h: segments as spans: cache hits, or one prefill in the segment's scope for all jobs that need it.
 *
 *   job     needs  [hit][hit][missing]-----> prefill   needs (its scope)  [hit][missing]-----> prefill ...
 *   job     needs  [missing]------------/
 *
 * A need that is met holds references to its spans, so they cannot be evicted before they are used. When a job is
 * admitted, all of its misses are known and have their prefills. A prefill without waiters is freed. Engine's thread.
 */
#ifndef ENGINE_SEGMENT_PREFILLS_H
#define ENGINE_SEGMENT_PREFILLS_H

#include "engine/reuse/segment_reduction.h"
#include "engine/core/sequence.h"
#include "store/span_store.h"
#include "pml/layout.h"
#include "reprise_pml.h"

typedef struct segment_prefill segment_prefill;
typedef struct segment_needs segment_needs;
typedef struct segment_need segment_need;

/* Which states of recurrent layers a context needs of a segment (checkpoints.h). Each is a checkpoint in the store: its
 * key follows from the segment's, and it may be evicted while the KV is not; that is a miss. */
typedef enum segment_states {
    SEGMENT_STATES_NONE,
    SEGMENT_STATES_END,  /* those after its last token */
    SEGMENT_STATES_BOTH, /* and those from which its first token was computed */
} segment_states;

/* How a context takes a segment. */
typedef struct segment_view {
    int32_t segment, shift;
    int32_t n_tokens;     /* its first slots: all of them, unless the prompt recomputes its last token */
    bool mask_holes;      /* placeholders are masked in a prompt; in a scope a segment is visible with them, as it was
                             computed */
    const int32_t *again; /* [n_again] slots that the prompt recomputes, rising; borrowed */
    int32_t n_again;
    bool reduced; /* its reduced KV, as a whole */
    segment_states states;
} segment_view;

struct segment_need {
    segment_view view;
    bool missed;              /* a cache miss */
    span_found from;          /* the slowest tier of its spans */
    const char *reason;       /* of the miss; "" for a hit */
    int32_t n_spans;          /* reduced: of its parts; 0 while they are prefilled */
    kv_span **spans;          /* [n_spans] references; NULL while they are prefilled */
    kv_span *end, *begin;     /* states, references; begin NULL: before any token. Both may still be loading */
    segment_prefill *prefill; /* that computes it; NULL: the need is met */
    segment_need *next;       /* of the prefill's waiters */
    segment_needs *owner;
};

struct segment_needs {
    segment_need *items; /* [n]; does not move while any is missing */
    int32_t n, cap, n_missing;
    int rc;       /* RP_OK, or a prefill failed, */
    rp_error err; /* with this */
};

struct segment_prefill {
    segment_prefill *next; /* in the engine's list */
    rp_schema *schema;     /* a reference */
    int32_t segment;
    bool kept;                    /* its spans enter the store; else they are for `asker` only */
    bool composed;                /* its scope is in the context */
    rp_job *asker;                /* the job that missed it first; NULL: that has ended */
    bool in_background;           /* only a background task waits for it: it is computed in that task's steps
                                     (background.h) */
    segment_reduction *reduction; /* it computes the segment's reduced KV; NULL: the segment's KV */
    segment_needs needs;
    segment_need *waiters;
    kv_positions *later;           /* positions of its parameters: prompts attend to it from there */
    struct backend_states *states; /* of recurrent layers, after its last computed token; NULL: before its first one */
    sequence seq;
};

/* The key of the states after a segment's last token. */
base_key segment_states_name(const pml_layout *l, const pml_segment *s);

/* Allocates space for n needs. RP_ERR_MEMORY. */
int segment_needs_reserve(segment_needs *needs, int32_t n, rp_error *err);
/* Adds a need: a cache hit, or a prefill that it joins or creates. look false: neither looked up nor inserted.
   RP_ERR_MEMORY, RP_ERR_CONTEXT. */
int segment_needs_add(rp_engine *e, segment_needs *needs, rp_schema *schema, const segment_view *view, rp_job *asker,
                      bool look, rp_error *err);
/* Adds the views of all needs to a context; all are met. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int segment_needs_compose(const segment_needs *needs, const pml_layout *l, kv_context *c, rp_error *err);
/* Does a need that is met have all KV that its own tokens attended to? Layers with a window keep only what tokens after
 * a long module attend to: such tokens cannot be computed again. */
bool segment_need_is_whole(const segment_need *need);
/* Are all states of the needs loaded? Could any not be read? */
bool segment_needs_are_ready(const segment_needs *needs);
bool segment_needs_have_failed(const segment_needs *needs);
/* Releases a need that is met; those after it move. */
void segment_needs_remove(segment_needs *needs, int32_t index);
/* Releases the spans of all needs, which are met; what was found of them stays. */
void segment_needs_drop_spans(segment_needs *needs);
/* Counts their hits as uses. */
void segment_needs_use(rp_engine *e, const segment_needs *needs, const pml_layout *l);
/* Releases all needs. Zero-initialised ones are fine. */
void segment_needs_release(rp_engine *e, segment_needs *needs);

/* Composes the context of a prefill with all of its scope. RP_ERR_MEMORY. */
int segment_prefill_compose(rp_engine *e, segment_prefill *prefill, rp_error *err);
/* Before rows of it are computed: recurrent layers begin with the states after the last segment of its scope, for which
 * it waits. RP_ERR_MEMORY. */
int segment_prefill_begin(rp_engine *e, segment_prefill *prefill, rp_error *err);
/* Is all that its rows attend to, or begin with, loaded? Could a part of it not be read? */
bool segment_prefill_is_ready(const segment_prefill *prefill);
bool segment_prefill_has_failed(const segment_prefill *prefill);
/* All tokens are computed: seals the spans, inserts them into the store, hands them to all waiters and frees the
 * prefill. On RP_ERR_MEMORY it still exists. */
int segment_prefill_finish(rp_engine *e, segment_prefill *prefill, rp_error *err);
/* A read from disk failed in its scope: looks the scope up again. Errors of segment_needs_add. */
int segment_prefill_requeue(rp_engine *e, segment_prefill *prefill, rp_error *err);
/* A job ends: no prefill names it any more. */
void segment_prefills_forget(rp_engine *e, const rp_job *c);
/* Passes the error to all waiters and frees the prefill. */
void segment_prefill_fail(rp_engine *e, segment_prefill *prefill, const rp_error *err);

/* Of a step: rows that it may have at most; whether it wants their logits; `row` computes its next token; n_rows more
 * rows, counted in seq.done, were computed, with these logits, or NULL (RP_ERR_MEMORY). */
int32_t segment_prefill_most_rows(const segment_prefill *prefill);
bool segment_prefill_wants_logits(const segment_prefill *prefill);
void segment_prefill_row(segment_prefill *prefill, model_row *row);
int segment_prefill_settle(segment_prefill *prefill, int32_t n_rows, const float *logits, rp_error *err);

const pml_layout *segment_prefill_layout(const segment_prefill *prefill);
const pml_segment *segment_prefill_segment(const segment_prefill *prefill);

#endif
