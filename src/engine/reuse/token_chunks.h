/* SPDX-License-Identifier: Apache-2.0 */
/* token_chunks.h: cuts a prompt into chunks at places that its content decides (content-defined chunking; LBFS,
 * Muthitacharoen et al., 2001): a run of tokens that recurs at another place in another prompt is cut in the same way
 * there, but for its first and last chunk.
 *
 *   prompt   [im_start][user][\n] A tool result ...\n ... \n ... [im_end][\n][im_start][assistant][\n]
 *   borders                      ^message    ^line      ^line    ^message
 *
 *   message  always cut: before a control token, and after the line that begins with one: the header of a message is
 *   not part of its text
 *   line     from 64 tokens on, at one line end in 4, chosen by a rolling hash of the last tokens
 *   any      from 512 tokens on, at one token in 64, chosen likewise; at 2,048 tokens
 *
 * The last chunk of a prompt has no border: it is left out, unless a message ends there. Pure functions, any thread.
 */
#ifndef ENGINE_TOKEN_CHUNKS_H
#define ENGINE_TOKEN_CHUNKS_H

#include <stdint.h>

#define TOKEN_CHUNK_LEAST 64 /* tokens; messages may be shorter */
#define TOKEN_CHUNK_LONG 512 /* from here on any token may be a border */
#define TOKEN_CHUNK_MOST 2048
#define TOKEN_CHUNK_HEADER 8 /* tokens of a message's header, at most; a longer one counts as text */

/* What a token of the vocabulary is to the chunker. */
typedef enum token_class { TOKEN_CLASS_TEXT,
                           TOKEN_CLASS_LINE_END,
                           TOKEN_CLASS_CONTROL } token_class;

/* Writes the ends (exclusive) of the chunks of tokens[0..n), ascending; the first chunk begins at 0. classes: a
 * token_class for each id of the vocabulary. ends has room for n numbers. Returns their number. O(n). */
int32_t token_chunks_cut(const int32_t *tokens, int32_t n, const uint8_t *classes, int32_t *ends);

#endif
