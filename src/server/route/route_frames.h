/* SPDX-License-Identifier: Apache-2.0 */
/* route_frames.h: the stream of a node, up to its last mark (docs/cluster-protocol.md).
 *
 *   data: ...\n\n data: ...\n\n : r 12 2 801 44\n\n data: ...          frames | mark | frames that are not passed on yet
 *   ----------- passed on ----- -- taken out ---- -- pending --
 *
 * What was passed on is what the last mark has counted, also after an error: another node can go on after it, with the tokens of all marks. Comments
 * that are no marks are dropped: they are no part of the answer, and routers have their own (keep-alive). One thread at a time.
 */
#ifndef SERVER_ROUTE_FRAMES_H
#define SERVER_ROUTE_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "reprise.h"

#define ROUTE_PENDING_BYTES ((size_t)16 << 20) /* of frames between two marks */

typedef struct route_frames {
    bool has_marks;      /* false: everything is passed on as it comes */
    base_buffer pending; /* whole lines after the last mark, and an incomplete one from line_at on */
    size_t line_at;
    bool skips_empty;              /* the empty line after a mark or a comment is to come */
    uint64_t text_bytes, n_frames; /* of the last mark */
    base_buffer tokens;            /* int32: of all marks */
} route_frames;

void route_frames_init(route_frames *f, bool has_marks);
void route_frames_free(route_frames *f);
/* The stream of another node continues the answer: frames after the last mark are forgotten. */
void route_frames_restart(route_frames *f, bool has_marks);
/* The answer is computed again from its beginning: nothing of it was passed on, and the tokens of marks are forgotten. Before restart. */
void route_frames_forget(route_frames *f);
/* Appends what is to be passed on to out. RP_ERR_FORMAT (a malformed mark), RP_ERR_LIMIT, RP_ERR_MEMORY: what it has appended before is to be passed
 * on all the same. */
int route_frames_feed(route_frames *f, const char *bytes, size_t n, base_buffer *out);
/* The stream is complete: everything after the last mark is passed on. */
int route_frames_finish(route_frames *f, base_buffer *out);
/* Tokens of the answer so far. */
size_t route_frames_n_tokens(const route_frames *f);

#endif
