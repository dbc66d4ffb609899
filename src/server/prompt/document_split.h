/* SPDX-License-Identifier: Apache-2.0 */
/* document_split.h: splits texts at separators into documents, for conversations whose documents are modules
 * (rp_server_options.split_documents).
 *
 *   "Answer briefly.\n### 1\nText of one.\n### 2\nText of another.\nQuestion: ..."    with  ^### \d+\n|^Question:
 *     --> parts  [Answer briefly.] [Text of one.] [Text of another.] [ ...]
 *
 * A match is text between two parts: it stays where it is, and no part contains it, so that a document with another
 * number is the same document. The last part is the question (conversation_prompt.c). The message's text does not
 * change.
 */
#ifndef SERVER_DOCUMENT_SPLIT_H
#define SERVER_DOCUMENT_SPLIT_H

#include "server/prompt/generation.h"

#define DOCUMENT_SPLIT_MAX_BYTES 4096 /* of an expression */

typedef struct document_split document_split;

/* Compiles a regular expression (PCRE2; ^ and $ match at line ends). RP_ERR_INVALID (with the byte; or it matches the
   empty text), RP_ERR_MEMORY. */
int document_split_new(document_split **out, const char *pattern, rp_error *err);
void document_split_free(document_split *d);

/* Replaces the texts of messages that have no parts, and their text parts, by the parts between separators; counts them
 * in gen->n_split. Texts without a match stay as they are, and so does the rest after RP_MAX_DOCUMENTS parts, or if the
 * matcher exceeds its limit, with a warning. Any thread. Returns a server_problem_kind. */
int document_split_apply(const document_split *d, generation *gen, server_problem *p);

#endif
