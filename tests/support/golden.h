/* SPDX-License-Identifier: Apache-2.0 */
/* golden.h: tests/golden, the tiny models of every family and the logits that another implementation computes for them
 * (tests/golden/README.md describes how they were made).
 *
 * The folder is REPRISE_SOURCE_DIR/tests/golden; the source tree that was built, unless the environment names one.
 * For tests: a folder that is missing or damaged ends the program with a message. Not thread-safe.
 */
#ifndef SUPPORT_GOLDEN_H
#define SUPPORT_GOLDEN_H

#include <stdbool.h>
#include <stdint.h>

typedef struct golden_prompt {
    char *name;                          /* "one", "short", "long", "past" */
    int32_t *tokens, n_tokens;           /* nothing is put before them, no beginning-of-text token either */
    int32_t rows, offset;                /* rows of logits that are stored, and the number of the first in
                                            golden_model.logits */
    int32_t *greedy, n_greedy;           /* each the best of a full prompt before it */
    double peer_error;                   /* llama.cpp: largest difference of a logit over the largest logit */
    int32_t peer_same;                   /* of its greedy tokens, how many are the same */
    int32_t *peer_greedy, n_peer_greedy; /* its own; NULL, 0 where all are the same */
} golden_prompt;

typedef struct golden_model {
    char *name, *architecture; /* architecture: from the GGUF */
    char *covers;              /* the features it exercises, as a description */
    char *differs;             /* why llama.cpp computes something else; NULL where it agrees */
    char *path;                /* of NAME.gguf */
    int32_t vocabulary;        /* values in a row of logits */
    golden_prompt *prompts;
    int32_t n_prompts;
    float *logits; /* [n_rows][vocabulary] */
    int32_t n_rows;
} golden_model;

typedef struct golden {
    golden_model *models;
    int32_t n_models;
} golden;

golden *golden_open(void);
void golden_close(golden *g); /* NULL does nothing */

/* Has it recurrent layers? The slow reference (reference.h) has none: transformers alone is theirs. */
bool golden_is_recurrent(const golden_model *m);

const golden_model *golden_find(const golden *g, const char *name);               /* NULL: there is none */
const golden_prompt *golden_find_prompt(const golden_model *m, const char *name); /* NULL: there is none */

/* Row i of a prompt's rows, 0 <= i < rows: `vocabulary` logits after token number golden_row_token. */
const float *golden_row(const golden_model *m, const golden_prompt *p, int32_t i);
int32_t golden_row_token(const golden_prompt *p, int32_t i);

#endif
