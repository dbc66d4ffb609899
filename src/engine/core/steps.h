/* SPDX-License-Identifier: Apache-2.0 */
/* steps.h: a step of the engine: the rows that are computed together, and what becomes of the jobs that they are of.
   The engine's thread.
 */
#ifndef ENGINE_STEPS_H
#define ENGINE_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/core/cost_model.h"
#include "engine/reuse/segment_prefills.h"
#include "backend/backend.h"
#include "reprise.h"

#define ENGINE_STEP_PREFILLS 64 /* modules in a step: more than fill it */

/* What becomes of a part's job after its step. Module prefills and background tasks end in the step: they are nobody's
   request. */
typedef enum step_outcome {
    STEP_CONTINUES,
    STEP_ENDED,   /* the answer is complete */
    STEP_FAILED,  /* with the part's rc and err */
    STEP_REQUEUE, /* a read from disk failed under it */
} step_outcome;

/* One sequence's share of a step. */
typedef struct step_part {
    rp_job *job; /* NULL: the part is a module's */
    segment_prefill *prefill;
    int32_t first_row, n_rows;
    int32_t first_logits,
        n_logits;                   /* of the rows that want logits: index of those of the first one, or -1 if there is
                                       none; their number */
    int32_t first_hidden, n_hidden; /* likewise of hidden states */
    int rc;                         /* RP_OK, or why it could not be appended or computed; */
    rp_error err;                   /* with this */
    step_outcome outcome;
} step_part;

/* What the scheduler has to do for the jobs of a step. */
typedef struct step_result {
    int32_t n_parts; /* in engine_steps.parts, each with its outcome */
    /* whose modules' tokens were compared with the prompt that they are in, and failed with this; NULL: none */
    rp_job *probed;
    int rc;
    rp_error err;
} step_result;

/* What steps are composed in: they allocate nothing. */
typedef struct engine_steps {
    double token_goal_us; /* longest step while answers are decoded; 0: a multiple of a step without prompts */
    rp_on_step on_step;
    void *step_user;
    cost_model probe_cost;       /* of tokens that are only probed */
    uint64_t n;                  /* steps so far */
    uint64_t last_plain;         /* number of the last one with answers only */
    int32_t next_answer;         /* first answer of the next step, where more are resumed than a step can hold */
    bool reported_first;         /* this step produced a first token: yield, so that its reader runs before the next
                                    step */
    step_part *parts;            /* [max_parts] */
    rp_step_part *reported;      /* [max_parts], for on_step */
    const kv_context **contexts; /* [max_parts] */
    backend_states **states;     /* [max_parts] */
    bool *tentative;             /* [max_parts]: parts with drafts, where states of layers cannot lose rejected ones */
    rp_job **answers;            /* [max_sequences] those of a step */
    model_row *rows;             /* [max_rows] */
    float *logits;               /* [max_logits][n_outputs] */
    float *hidden;               /* [max_rows][n_embd] */
    int32_t max_parts, max_rows, max_logits;
} engine_steps;

/* Allocates the arrays; the limits are set. RP_ERR_MEMORY. */
int steps_open(rp_engine *e, rp_error *err);
void steps_close(engine_steps *s);
/* Computes one step. false: there was nothing to compute. Requests are neither ended nor requeued: the scheduler does
   so by the result. */
bool steps_run(rp_engine *e, step_result *out);

#endif
