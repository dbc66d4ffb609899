/* SPDX-License-Identifier: Apache-2.0 */
/* eval_items.h: items of models/eval as tokens of one plain prompt: a system message with documents, a question, and
 * its answer. For tests; a missing file fails the test.
 */
#ifndef SUPPORT_EVAL_ITEMS_H
#define SUPPORT_EVAL_ITEMS_H

#include <stdbool.h>
#include <stdint.h>

#include "reprise.h"

/* A document, a question and its answer. */
typedef struct eval_item {
    int32_t *tokens;
    int32_t n_before, n_document, n_prompt, n; /* tokens before the first document, the question, the answer; all */
} eval_item;

/* A file of the source tree. */
const char *eval_path(char path[512], const char *name);
/* The first n items of a task ("facts-4") whose question and answer have most_rows tokens at most. Returns their
   number. */
int eval_items_read(const rp_model *m, const char *task, int32_t most_rows, eval_item *items, int n);
void eval_item_free(eval_item *it);
/* Tokens of a question after the document, up to the start of its answer; *n of them. rp_free. */
int32_t *eval_question_tokens(const rp_model *m, const char *question, int32_t *n);

int32_t eval_best_of(const float *logits, int32_t n);
/* logits: [tokens of the answer][n_vocab]: is each token the most likely one? */
bool eval_is_right(const eval_item *it, const float *logits, int32_t n_vocab);

#endif
