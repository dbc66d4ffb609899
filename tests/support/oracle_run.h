/* SPDX-License-Identifier: Apache-2.0 */
/* oracle_run.h: shared by the oracle tests: made-up models, captured runs, deviations.
 *
 * For tests: a failing setup ends the program. Not thread-safe.
 */
#ifndef SUPPORT_ORACLE_RUN_H
#define SUPPORT_ORACLE_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "model/gguf/gguf.h"
#include "model/tokenizer/tokenizer.h"
#include "reference.h"
#include "reprise.h"
#include "tiny_model.h"
#include "tiny_random.h"

/* A made-up model, opened by the library and, if its weights are F32, by the reference. */
typedef struct oracle_model {
    tiny_model_shape shape;
    const char *chat;
    rp_model *model;
    reference *ref;  /* or NULL */
    gguf_file *file; /* borrowed by `tokenizer` */
    tokenizer *tokenizer;
    char path[64];
} oracle_model;

/* The i-th shape under test (MHA, GQA, MQA; tied and not; heads of 8 to 128; biases, scaled and partial rotation). */
#define ORACLE_SHAPES 9
tiny_model_shape oracle_shape(int i, const char **chat);
void oracle_model_open(oracle_model *m, const tiny_model_shape *shape, const char *chat);
void oracle_model_close(oracle_model *m);

/* A run with the logits before each of its tokens. */
typedef struct oracle_run {
    int rc;
    rp_error err;
    rp_result *result;
    float *logits; /* [n_steps][n_vocab] */
    int32_t n_steps, n_vocab;
} oracle_run;

/* Replaces req's on_logits and user. A failed run has no logits. */
void oracle_run_make(oracle_run *run, rp_engine *engine, const rp_request *req);
/* The same in two calls: other requests may run meanwhile. run and what req borrows must stay until the second. */
int oracle_run_submit(oracle_run *run, rp_engine *engine, const rp_request *req, rp_job **job);
void oracle_run_finish(oracle_run *run, rp_job *job);
void oracle_run_free(oracle_run *run);
const float *oracle_run_logits(const oracle_run *run, int32_t step);
/* Same steps, same bytes, same tokens? Or both failed with the same code. */
bool oracle_run_same(const oracle_run *a, const oracle_run *b);

/* Did quality="blend:R" or "focus:R" choose the same tokens? Both have results. */
bool oracle_run_same_choice(const oracle_run *a, const oracle_run *b);

/* Is the token of a step the most likely one of its logits? */
bool oracle_run_is_greedy(const oracle_run *run, int32_t step);
/* Do the engine and the reference count the same tokens, and was nothing copied? run must not have failed. */
bool oracle_run_counts_agree(const oracle_run *run, const reference_prompt *ref);
/* Prints both plans. ref may be NULL, run may have failed. */
void oracle_run_print(const oracle_run *run, const reference_prompt *ref);

/* max |a - b| / max |b|; infinite if a value is not finite. */
double oracle_deviation(const float *a, const float *b, int32_t n);

#endif
