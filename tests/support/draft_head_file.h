/* SPDX-License-Identifier: Apache-2.0 */
/* draft_head_file.h: files with a draft head (nextn tensors), and the head as an ordinary model. For tests: a failing
 * read or write ends the program. Not thread-safe.
 *
 * The head is a layer, and a row of it is a projection of a token's embedding and a hidden state. So a model of this
 * layer alone, in which embedding i is row i, yields the head's logits for the tokens 0, 1, 2, ...: with its loader and
 * its forward pass, or with the reference.
 */
#ifndef SUPPORT_DRAFT_HEAD_FILE_H
#define SUPPORT_DRAFT_HEAD_FILE_H

#include <stdbool.h>
#include <stdint.h>

/* A copy of a golden model with a head: a changed copy of its last layer of attention, and random weights. owns_tables:
 * with embeddings, an output matrix and a norm of its own. Stores a temporary file's name in path; the caller unlinks
 * it. */
void draft_head_file_write(const char *golden, bool owns_tables, char path[64]);
/* The head of such a file as a model of one layer, for n rows: tokens[i], and the final hidden state of the token
 * before it, hidden[i][n_embd]. */
void draft_head_model_write(const char *with_head, const int32_t *tokens, const float *hidden, int32_t n,
                            char path[64]);

#endif
