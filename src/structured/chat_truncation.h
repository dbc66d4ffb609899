/* SPDX-License-Identifier: Apache-2.0 */
/* chat_truncation.h: which turns of a conversation are left out when it is too long for the context.
 *
 *   [system] [user] [assistant] [user] [assistant] [user] | answer
 *            '------- dropped -------' ^ first kept
 *
 * Leading system messages are kept. The oldest turns are dropped in whole pieces of a quarter of the context: as a
 * conversation grows, the same messages stay dropped for many turns, and those turns hit the prefix cache. The rest
 * begins with a message of the user, with the last one at least.
 *
 * Owns nothing. Any thread.
 */
#ifndef STRUCTURED_CHAT_TRUNCATION_H
#define STRUCTURED_CHAT_TRUNCATION_H

#include <stddef.h>
#include <stdint.h>

#include "reprise.h"

/* Tokens of a prompt of n_tokens beyond those that leave place for an answer of max_tokens, of which at most a quarter
 * of the context counts. At most 0: it fits. */
int64_t chat_excess(int64_t n_tokens, int32_t n_ctx, int32_t max_tokens);

/* How many system messages are before all others: they are always kept. */
size_t chat_count_leading_systems(const rp_message *messages, size_t n_messages);

/* The message with which the conversation goes on, without `excess` > 0 tokens at least. ends[n_messages]: tokens of
 * the prompt up to the end of each message, not falling. first: the messages from there on may be dropped. 0: there is
 * no message of the user after it, and nothing can be dropped. */
size_t chat_first_kept(const rp_message *messages, size_t n_messages, const size_t *ends, size_t first, int64_t excess,
                       int32_t n_ctx);

#endif
