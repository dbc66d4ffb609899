/* SPDX-License-Identifier: Apache-2.0 */
/* focus.h: quality="focus:R": recomputes what an uncertain answer looks at. Decodes over the cached modules; where a
 * prediction is uncertain for the first time, the R per cent of the modules' tokens that get most attention from its row are
 * recomputed in the prompt's context, and the prediction is made again.
 *
 *   WATCHES     a row's logits have an entropy of more than FOCUS_ENTROPY: they are dropped with the row's KV
 *   LOOKS       the row is computed again, over the same context, with an observer of its attention; and dropped again
 *   RECOMPUTES  [views without the chosen tokens][own tokens][chosen tokens, the row, the answer's later tokens: scattered]
 *   OVER        the token is drawn from the new logits, and decoding goes on
 *
 * No token is taken back: those before the row were certain. Own tokens keep their KV: the question is not prefilled again. Once a
 * request: further rounds won nothing in simulations.
 *
 * The choice depends on modules, plan and answer only: equal weights by position. The order of the context is the order of
 * a run without any hit. Nothing that attended to recomputed tokens is kept for others; own tokens before the row attended to
 * cached ones, and are. All functions except focus_most: the engine's thread.
 */
#ifndef ENGINE_FOCUS_H
#define ENGINE_FOCUS_H

#include "backend/backend.h"

/* In nats, of the model's own distribution: temperature 1, no filter, bias or grammar (docs/quality.md has its choice). */
#define FOCUS_ENTROPY 0.1

/* pml_item.why of the recomputed tokens. */
extern const char focus_reason[];

typedef enum focus_stage {
    FOCUS_OFF, /* no token may be chosen */
    FOCUS_WATCHES,
    FOCUS_LOOKS,
    FOCUS_RECOMPUTES,
    FOCUS_OVER,
} focus_stage;

/* A token of a module. */
typedef struct focus_token {
    size_t item;   /* of the plan, a view; */
    int32_t need;  /* of the job's needs */
    int32_t slot;  /* of the segment */
    size_t view;   /* of the context */
    double weight; /* of its slot, summed over all heads of all layers */
} focus_token;

/* The job's part of a sequence's fields, while others are computed. */
typedef struct focus_own {
    const int32_t *tokens, *positions;
    int32_t n, done;
} focus_own;

typedef struct job_focus {
    int32_t most; /* maximum number of chosen tokens; 0: no module has this quality */
    focus_stage stage;
    int32_t n_forgotten;   /* tokens whose context left their module's windows: never chosen */
    int32_t answer_token;  /* the answer's token, from 1, whose prediction was uncertain; 0: none was */
    bool missed;           /* a module that the result does not list, all of it being recomputed, was prefilled for the job */
    uint64_t start_us, us; /* us: from the uncertain logits to the new ones */
    attention_observer *observer;
    focus_token *chosen; /* [n_chosen], by rising position; a plan's items as they were before they are described */
    int32_t n_chosen;
    int32_t *tokens, *positions; /* [n_chosen + 1]: chosen tokens, and the row's */
    focus_own own;
} job_focus;

/* Maximum number of tokens that a planned job chooses. */
int32_t focus_most(const rp_job *c);
/* The job is composed: watches, if tokens may be chosen. */
void focus_open(rp_job *c);
/* Are these logits of a watched job uncertain? */
bool focus_is_due(const rp_job *c, const float *logits);
/* They are: their row is looked at next. The sequence has dropped it. RP_ERR_MEMORY. */
int focus_begin(rp_job *c, rp_error *err);
/* The last row of a part of a job in phase JOB_FOCUS. */
void focus_observe(const rp_job *c, model_row *row);
static inline bool focus_looks(const job_focus *f) { return f->stage == FOCUS_LOOKS; }
/* Rows of a job in phase JOB_FOCUS were computed: takes the next stage, if they were the last ones. After the stage OVER, the
 * step's last logits are the new ones. RP_ERR_MEMORY. */
int focus_settle(rp_job *c, rp_error *err);
/* Before the result's plan is described: changes the job's plan and needs as if the chosen tokens had been recomputed from the beginning on.
 * RP_ERR_MEMORY, RP_ERR_LIMIT. */
int focus_describe(rp_job *c, rp_error *err);
/* Frees everything; the job watches again from its first token on. */
void focus_release(rp_job *c);

#endif
