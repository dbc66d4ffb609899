/* SPDX-License-Identifier: Apache-2.0 */
/* stream_marks.h: marks in the stream of a routed request, by which its router can have another node continue it, and
 * the continuation: what the client has is rendered once more, so that the dialect's state is what it was, and dropped
 * (docs/cluster-protocol.md).
 *
 *   on_token --> choice.sampled --taken with the text before it--> relay.unmarked --after a batch of frames--> ": r
 *   TEXT_BYTES FRAMES TOKEN ..."
 *
 *   a continuation:  text  |-- first text_bytes: rendered, dropped --|-- rendered and sent -->
 *
 * A frame depends on the text before it alone, not on how that was cut (tool_finder.h), so a dialect that has rendered
 * text_bytes bytes is in the state of the node that was lost. One number depends on the cuts: that of frames
 * (sequence_number of /v1/responses): the mark has it. The last frames of a stream have no mark.
 */
#ifndef SERVER_STREAM_MARKS_H
#define SERVER_STREAM_MARKS_H

#include "server/answers/generate.h"

/* Worker, the choices are made: decides whether the stream has marks. A server_problem_kind: the answer cannot be
   continued. */
int stream_marks_begin(server_request *x);
/* The tokens that were sampled before: into the engine's request. */
void stream_marks_resume(const server_request *x, rp_request *q);
/* The engine's thread: a token was sampled. Is it one of those that were sampled before? */
bool stream_marks_is_resumed(server_choice *c);
/* Appends it to those of the next mark. false: no memory. Locked. */
bool stream_marks_add(server_choice *c, int32_t token);

/* ---- I/O thread ---- */

/* Tokens were taken with text (choice.taken_sampled). Nonzero: out of memory. */
int stream_marks_take(server_request *x, const server_choice *c);
/* The frames of the stream's begin are rendered: drops them if the client has them. */
void stream_marks_drop_begin(server_request *x, size_t reply_bytes);
/* Is what is rendered what the client has? */
bool stream_marks_skip(const server_request *x);
/* How many of the next n bytes of text the client has. */
size_t stream_marks_count_had(const server_request *x, size_t n);
/* n bytes of text were rendered; those of a client that has them are dropped: the reply is cut to reply_bytes. */
void stream_marks_rendered(server_request *x, server_choice *c, size_t n, size_t reply_bytes);
/* Appends a mark if there is something to mark since the reply had reply_bytes. Nonzero: out of memory. */
int stream_marks_append(server_request *x, size_t reply_bytes);

#endif
