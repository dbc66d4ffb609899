/* SPDX-License-Identifier: Apache-2.0 */
/* job_feature.h: what a request may ask for besides an answer to its prompt: a row of one table each
 * (features/features.h). The core calls the functions below, which call the rows that a job has, and names none of
 * them: it includes no header of src/engine/features (tools/check-includes).
 *
 *   submitting thread   options     submit.c       before there is a job: options that others make meaningless
 *                       ask         request.c      the options are valid: checks the feature's own, and adds it to the
 *                             job
 *                       plan        request.c      the prompt has its plan
 *                       count       request.c      and its form, after each change: how many tokens it may compute
 *                             besides (job_wants)
 *                       open        request.c      the tokens are listed, and there is a result
 *                       begin       request.c      the answer is open: the last one
 *   engine's thread     compose     scheduler.c    the context has its views, each time
 *                       row         steps.c        a row of the job is appended
 *                       settle      steps.c        rows of the prompt were computed
 *                       intercept   steps.c        logits of the answer, before a token is drawn from them
 *                       end_prompt  steps.c        the first token was drawn, and the answer goes on
 *                       goes_on     steps.c        likewise, after each draw
 *                       amend       result.c       the job is complete: changes its plan to what was computed
 *                       describe    result.c       fills in its part of the result
 *                       release     job.c          the job gives its KV back, and may be composed anew
 *   any                 close       job.c          it is freed
 *
 * A row leaves out the functions that it does not need. What the core has to know at other times, and in loops, are the
 * numbers of job_wants, which features set in plan, count or open. Of a job, rows are called in the order of the table.
 */
#ifndef ENGINE_JOB_FEATURE_H
#define ENGINE_JOB_FEATURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reprise.h"

#define JOB_MAX_FEATURES 8

struct adapter_use;
struct model_row;
typedef struct job_feature job_feature;

/* What the features of a job want of the core. Zeros: nothing. */
typedef struct job_wants {
    const struct adapter_use *adapter; /* that computes its tokens; NULL: the base model alone */
    const char *late_reason;           /* pml_item.why of the n_late tokens: none of them is in the prefix cache */
    const char *full_reason;           /* why its modules keep all of their KV, as rp_plan_item.full_reason; NULL: the
                                          plan decides */
    int32_t most_answer;               /* tokens of its answer; 0: as many as its context has */
    int32_t most_held;                 /* tokens of its answer that hold KV at one time; 0: all of them */
    int32_t n_extra;                   /* tokens of modules that it may compute before its first token is drawn, besides
                                          those of its plan's runs; */
    int32_t n_late;                    /* and after that, in spans of their own */
    int32_t n_observed;                /* last tokens of the prompt that it computes whatever is cached */
    bool unshared;                     /* it neither uses nor adds KV of the prefix cache */
    bool scatters;                     /* its own tokens are between views: their spans are scattered */
    bool exclusive;                    /* no other job takes its open span before its prompt is complete */
    bool all_logits;                   /* it wants those of each token of its prompt */
    bool one_part;                     /* its prompt is one part of one step */
    bool no_logits;                    /* the next rows are computed for another reason than to draw a token */
} job_wants;

/* The features of a job, in the order of the table. */
typedef struct job_features {
    int32_t n;
    const job_feature *rows[JOB_MAX_FEATURES];
    void *states[JOB_MAX_FEATURES]; /* [rows[i]->state_bytes] each, owned */
} job_features;

/* Rows of a part that a step has computed. */
typedef struct job_rows {
    int32_t first, n;    /* tokens of the job */
    const float *logits; /* of the rows that want them, in order: [n_logits][n_outputs]; NULL: of none */
    const float *hidden; /* likewise: [n_hidden][n_embd] */
    int32_t n_logits, n_hidden;
} job_rows;

/* Blocks that a job takes besides those of its tokens, and runs of consecutive positions besides those of its
   prompt. */
typedef struct job_room {
    int64_t blocks;
    int32_t runs;
} job_room;

/* What was computed again of the modules that a job uses: rp_quality_report, and the times. */
typedef struct job_again {
    int32_t n_probed, n_late; /* n_late: of them, after the first token was drawn */
    int32_t n_forgotten;      /* tokens that may not be computed again, for their context is gone */
    int32_t answer_token;     /* rp_quality_report.focus_token */
    uint64_t probe_us, late_us;
    bool missed;     /* a module that the plan does not list any more was prefilled */
    const char *why; /* why nothing was, as rp_quality_report.reason; NULL: a common reason */
} job_again;

struct job_feature {
    const char *name; /* of the option that asks for it */
    size_t state_bytes;

    /* An engine is opened: reads its options, and keeps what the rows of jobs need. It is freed. */
    int (*open_engine)(rp_engine *e, const rp_engine_options *o, rp_error *err);
    void (*close_engine)(rp_engine *e);

    void (*options)(rp_request *o);
    int (*ask)(rp_job *c, const rp_request *o, rp_error *err);
    int (*plan_text)(rp_job *c, const char *text, size_t n,
                     rp_error *err); /* of a text alone: instead of pml_plan_text */
    int (*plan)(rp_job *c, rp_error *err);
    void (*count)(rp_job *c); /* of all rows of the table, whether the job has them or not */
    int (*open)(rp_job *c, rp_error *err);
    bool (*yield)(
        rp_job *c,
        bool yields); /* memory is short: gives up, or takes back, what was no demand of the request. Was it one? */
    int (*begin)(rp_job *c, rp_error *err);
    void (*room)(const rp_job *c, job_room *room); /* adds to it */

    int (*compose)(rp_job *c, rp_error *err);
    int32_t (*probe_left)(const rp_job *c);                        /* of a job in phase JOB_PROBING: rows to probe; */
    int (*probe)(rp_job *c, int32_t n, rp_error *err);             /* probes n of them; */
    int (*choose)(rp_job *c, rp_error *err);                       /* none are left: composes the job anew */
    void (*row)(rp_job *c, int32_t token, struct model_row *row);  /* what the row of that token needs and reports */
    int (*settle)(rp_job *c, const job_rows *rows, rp_error *err); /* the sequence has counted them */
    bool (*intercept)(const rp_job *c, const float *logits);       /* must the row be computed anew, in another way? */
    int (*again)(rp_job *c, rp_error *err);                        /* it must: the job has dropped it, and gets the
                                                                      phase JOB_RECOMPUTING */
    int (*end_prompt)(rp_job *c, rp_error *err);
    int (*goes_on)(rp_job *c, rp_error *err);

    const char *(*miss_reason)(const rp_job *c); /* why tokens of its runs are no hits; NULL: a common reason */
    int (*amend)(rp_job *c, rp_error *err);
    void (*count_again)(const rp_job *c, rp_quality asked, job_again *out); /* of all rows of the table: adds to it */
    const char *(*warning)(const rp_job *c);                                /* for the result; NULL: none */
    void (*describe)(rp_job *c);                                            /* of all rows of the table */

    void (*release)(rp_job *c);
    void (*close)(rp_job *c);
};

/* ---- for features ---- */

/* Adds a row to a job, with a state of zeros. NULL: no memory. */
void *job_feature_add(rp_job *c, const job_feature *f);
/* The state of a row; NULL: the job does not have it. */
void *job_feature_state(const rp_job *c, const job_feature *f);

/* ---- for the core ---- */

int job_features_open_engine(rp_engine *e, const rp_engine_options *o, rp_error *err);
void job_features_close_engine(rp_engine *e);

void job_features_options(const rp_engine *e, rp_request *o);
int job_features_ask(rp_job *c, const rp_request *o, rp_error *err);
/* *planned: a feature has made the plan. */
int job_features_plan_text(rp_job *c, const char *text, size_t n, bool *planned, rp_error *err);
int job_features_plan(rp_job *c, rp_error *err);
void job_features_count(rp_job *c);
int job_features_open(rp_job *c, rp_error *err);
bool job_features_yield(rp_job *c, bool yields);
int job_features_begin(rp_job *c, rp_error *err);
job_room job_features_room(const rp_job *c);

int job_features_compose(rp_job *c, rp_error *err);
int32_t job_features_probe_left(const rp_job *c);
int job_features_probe(rp_job *c, int32_t n, rp_error *err);
int job_features_choose(rp_job *c, rp_error *err);
void job_features_row(rp_job *c, int32_t token, struct model_row *row);
int job_features_settle(rp_job *c, const job_rows *rows, rp_error *err);
/* The row that must compute the logits anew; NULL: none. */
const job_feature *job_features_intercept(const rp_job *c, const float *logits);
int job_features_end_prompt(rp_job *c, rp_error *err);
int job_features_go_on(rp_job *c, rp_error *err);

const char *job_features_miss_reason(const rp_job *c);
int job_features_amend(rp_job *c, rp_error *err);
job_again job_features_count_again(const rp_job *c, rp_quality asked);
/* The i-th warning; NULL: there are fewer. */
const char *job_features_warning(const rp_job *c, int32_t i);
void job_features_describe(rp_job *c);

void job_features_release(rp_job *c);
void job_features_close(rp_job *c);

#endif
