/* SPDX-License-Identifier: Apache-2.0 */
/* route_frames.h: a node's stream, passed on up to its last mark (docs/cluster-protocol.md).
 *
 *   data: ...\n\n data: ...\n\n : r 12 2 801 44\n\n data: ...          frames | mark | frames that are not passed on
 *         yet
 *   ----------- passed on ----- -- taken out ---- -- pending --
 *
 * The passed-on frames are always those that the last mark counts, also after an error, so that another node can
 * continue after them with the tokens of all marks. Other comments of the stream are dropped: they are not part of the
 * answer, and the router sends keep-alive comments of its own. One thread at a time.
 */
#ifndef SERVER_ROUTE_FRAMES_H
#define SERVER_ROUTE_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "reprise.h"

#define ROUTE_PENDING_BYTES ((size_t)16 << 20) /* of frames between two marks */

typedef struct route_frames {
    bool has_marks;      /* false: all bytes are passed on as they arrive */
    base_buffer pending; /* lines after the last mark, an incomplete one from line_at on */
    size_t line_at;
    bool skips_empty;              /* the next line is the empty one after a mark or a comment */
    uint64_t text_bytes, n_frames; /* of the last mark */
    base_buffer tokens;            /* int32: of all marks */
} route_frames;

void route_frames_init(route_frames *f, bool has_marks);
void route_frames_free(route_frames *f);
/* Begins the stream of another node, which continues the answer: drops frames after the last mark. */
void route_frames_restart(route_frames *f, bool has_marks);
/* Drops the tokens of marks: no frame was passed on, and the answer is computed again from its beginning. Before
 * restart. */
void route_frames_forget(route_frames *f);
/* Appends the bytes to be passed on to out. RP_ERR_FORMAT (a malformed mark), RP_ERR_LIMIT, RP_ERR_MEMORY: bytes in out
 * must be passed on nevertheless. */
int route_frames_feed(route_frames *f, const char *bytes, size_t n, base_buffer *out);
/* The stream is complete: appends everything after the last mark. */
int route_frames_finish(route_frames *f, base_buffer *out);
/* Number of tokens of the answer so far. */
size_t route_frames_n_tokens(const route_frames *f);

#endif
