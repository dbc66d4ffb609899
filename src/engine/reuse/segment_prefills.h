/* segment_prefills.h: segments -> spans: found in the store, or computed in their scope by a job that everybody waits for who needs them.
 *
 *   call    needs  [found][found][missing]----> job   needs (its scope)  [found][missing]----> job ...
 *   call    needs  [missing]-------------------/
 *
 * A need that is met holds references to its spans, so nothing that was found can be dropped before it is used. Everything that a call
 * lacks is known, and has its jobs, when the call is admitted. A job without anybody who waits for it is ended. The engine's thread.
 */
#ifndef ENGINE_SEGMENT_PREFILLS_H
#define ENGINE_SEGMENT_PREFILLS_H

#include "engine/sequence.h"
#include "pml/layout.h"

typedef struct segment_prefill segment_prefill;
typedef struct segment_needs segment_needs;
typedef struct segment_need segment_need;

/* How a context takes a segment. */
typedef struct segment_view {
    int32_t segment, shift;
    int32_t n_tokens; /* its first slots; all of them but where the prompt's last token is computed anew */
    bool mask_holes;  /* a prompt does not see placeholders; a segment in a scope is seen as it was computed, with them */
    const int32_t *again; /* [n_again] slots that the prompt computes itself, rising; borrowed */
    int32_t n_again;
} segment_view;

struct segment_need {
    segment_view view;
    bool missed;         /* it was not in the store */
    bool from_disk;      /* it was, but not in RAM */
    const char *reason;  /* why; "" if it was */
    int32_t n_spans;
    kv_span **spans;     /* [n_spans] references; NULL where a job computes them */
    segment_prefill *prefill;    /* NULL: met */
    segment_need *next;  /* of those that wait for the job */
    segment_needs *owner;
};

struct segment_needs {
    segment_need *items; /* does not move while any is missing */
    int32_t n, cap, n_missing;
    int rc;       /* a job failed, */
    rp_error err; /* with this */
};

struct segment_prefill {
    segment_prefill *next;   /* of the engine's */
    rp_schema *schema;   /* a reference */
    int32_t segment;
    bool kept;           /* goes to the store; else it is for `asker` alone */
    bool composed;       /* its scope stands in the context */
    rp_job *asker;      /* who missed it first; NULL: gone */
    segment_needs needs;
    segment_need *waiters;
    kv_positions *later; /* where prompts will read it at its parameters */
    sequence seq;
};

/* Room for n needs. RP_ERR_MEMORY. */
int segment_needs_reserve(segment_needs *needs, int32_t n, rp_error *err);
/* One more. Looks it up (look: in the store; else nothing is found and nothing kept), or joins or makes a job. RP_ERR_MEMORY,
 * RP_ERR_CONTEXT. */
int segment_needs_add(rp_engine *e, segment_needs *needs, rp_schema *schema, const segment_view *view, rp_job *asker, bool look,
                      rp_error *err);
/* Adds the views of all needs, which are met, to a context. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int segment_needs_compose(const segment_needs *needs, const pml_layout *l, kv_context *c, rp_error *err);
/* Nobody needs it any more: lets go of a need that is met. Those behind it move. */
void segment_needs_remove(segment_needs *needs, int32_t index);
/* Notes what was found of them as used. */
void segment_needs_use(rp_engine *e, const segment_needs *needs, const pml_layout *l);
/* Lets go of everything. Zero-initialised is fine. */
void segment_needs_release(rp_engine *e, segment_needs *needs);

/* The scope of a job is there: it can be computed. RP_ERR_MEMORY. */
int segment_prefill_compose(rp_engine *e, segment_prefill *prefill, rp_error *err);
/* All tokens are computed: the spans are named, kept and handed over, and the job is gone. RP_ERR_MEMORY: it is still there. */
int segment_prefill_finish(rp_engine *e, segment_prefill *prefill, rp_error *err);
/* States of its scope that were to come from disk could not be read: looks them up again, or has them computed. Errors of segment_needs_add. */
int segment_prefill_requeue(rp_engine *e, segment_prefill *prefill, rp_error *err);
/* Tells everybody who waits, and the job is gone. */
void segment_prefill_fail(rp_engine *e, segment_prefill *prefill, const rp_error *err);

const pml_layout *segment_prefill_layout(const segment_prefill *prefill);
const pml_segment *segment_prefill_segment(const segment_prefill *prefill);

#endif
