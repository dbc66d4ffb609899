/* SPDX-License-Identifier: Apache-2.0 */
/* reprise_test.h: for tests and measurements: mock models, and settings that only comparisons need. It may change in
 * any version. Conventions are those of reprise.h.
 */
#ifndef REPRISE_TEST_H
#define REPRISE_TEST_H

#include "reprise.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Mock models ---- */

typedef struct rp_mock_options {
    uint32_t struct_size;
    const char *chat_format; /* as rp_model_options.chat_format */
    double step_us;          /* microseconds that a step takes, as far as its work does not take longer: for itself, */
    double row_us;           /* for each row, */
    double row_slot_us;      /* and for each slot of each row's context. 0 (default): none */
} rp_mock_options;

/* Opens a mock, for tests of many engines: vocabulary, chat format and context length are those of a GGUF file, which
 * needs no weights and may have any architecture. There are no weights, a token has little KV, and logits are a hash of
 * what a row attends to (docs/verification.md). Everything but the arithmetic is real, and as exact. Its fingerprint is
 * not the model's, its architecture "mock", its answers words without a meaning. It has no adapters.
 * options   NULL for the defaults; borrowed during the call. RP_ERR_INVALID: a time below 0; else as rp_model_open. */
RP_API int rp_model_open_mock(rp_model **out, const char *path, const rp_mock_options *options, rp_error *err);

/* ---- Comparisons ---- */

/* rp_request.experiment; borrowed during submission. Initialise it with {.struct_size =
 * sizeof(rp_request_experiment)}. */
struct rp_request_experiment {
    uint32_t struct_size;
    int32_t n_forced;
    const int32_t *forced;  /* n_forced tokens used as the answer, whatever the model, `sampling`, `stops` and `grammar`
                               say; then it ends. NULL: none */
    int32_t first_position; /* moves the whole plan; default 0. Logits do not depend on it except for rounding */
    bool no_prefix;         /* disable the prefix cache: no lookups, nothing is cached for them */
    int32_t n_known;
    const int32_t *known; /* n_known tokens of the answer, as known from an earlier run: the draft model computes as
                             ever, but each token that it drafts is the known one with the probability known_share, and
                             else a wrong one: for measurements without a trained pair of models. NULL: none */
    float known_share;    /* 0 to 1 */
};

/* rp_engine_options.experiment; borrowed until rp_engine_new returns. Initialise it likewise. */
struct rp_engine_experiment {
    uint32_t struct_size;
    bool pool_at_any_cost;  /* pull KV from a pool even where computing it is quicker, and wait ten seconds for it */
    bool store_whole_reads; /* read KV from disk span by span, instead of layer by layer for all spans */
};

#ifdef __cplusplus
}
#endif
#endif
