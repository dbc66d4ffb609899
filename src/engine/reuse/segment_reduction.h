/* SPDX-License-Identifier: Apache-2.0 */
/* segment_reduction.h: the reduced KV of a segment, computed from its full KV. A prefill (segment_prefills.h) whose
 * tokens are not the segment's alone:
 *
 *   context   [scope][the segment's full spans]                         cache hits, or prefilled for it
 *   tokens                                      asking, repetition      chunk by chunk, each directly after the segment
 *
 *   context   [scope]                                                   where the method needs the segment's own rows,
 *         or its format is encoded
 *   tokens            the segment, as its prefill has it; asking, repetition
 *
 * With REDUCTION_AUTO the share is calibrated: the first tokens of the repetition are computed again over the slots
 * that candidates keep. The smallest share (binary search of SEGMENT_REDUCTION_SHARES) is chosen that lowers the
 * (geometric) mean likelihood of a repeated token by 5 % at most.
 *
 * Rows report to an observer. After the last one, slots of the segment are selected (model/reduction.h) and copied to
 * reduced spans. Nothing else of it is kept. The spans depend on the segment, its scope and the options of its layout
 * only. Engine's thread.
 */
#ifndef ENGINE_SEGMENT_REDUCTION_H
#define ENGINE_SEGMENT_REDUCTION_H

#include "engine/core/sequence.h"
#include "pml/layout.h"

#define SEGMENT_REDUCTION_CHUNK 2048 /* tokens of a repetition, as in KVzip's implementation */

/* Of auto, in 1/1000. None is below 15 %: below, answers were lost that the likelihood of the text did not show
   (docs/quality.md). */
#define SEGMENT_REDUCTION_SHARES \
    { 150, 200, 250, 300, 400, 500, 750, REDUCTION_ALL }
#define SEGMENT_REDUCTION_JUDGED 512      /* tokens by which candidates are judged, at most */
#define SEGMENT_REDUCTION_LIKELIHOOD 0.95 /* as in Compactor; compared in docs/quality.md */

typedef struct segment_reduction segment_reduction;

/* A reduction of a segment that has keep; both are borrowed. RP_ERR_CONTEXT (no position is left for a repetition),
   RP_ERR_MEMORY, RP_ERR_LIMIT. */
int segment_reduction_new(segment_reduction **out, rp_engine *e, const pml_layout *l, const pml_segment *s,
                          rp_error *err);
void segment_reduction_free(segment_reduction *r); /* NULL is fine */
/* In which a segment's tokens are computed: of an encoded format, in the engine's own. */
rp_kv_format segment_open_format(const rp_engine *e, const pml_segment *s);
/* May a segment's reduction be tried: do its repetition and what asks for it probably fit into the context? */
bool segment_reduction_fits(const rp_engine *e, const pml_segment *s);
/* Are the segment's tokens computed again, instead of a view of its full spans? */
bool segment_reduction_recomputes(const segment_reduction *r);
/* Upper bound of the blocks that a segment's reduction takes, besides the spans that it views. */
int64_t segment_reduction_blocks(const rp_engine *e, const pml_segment *s);

/* The scope, and the full spans if they are not recomputed, are in the context: its tokens become those of the
   sequence. RP_ERR_MEMORY. */
int segment_reduction_begin(segment_reduction *r, sequence *seq, rp_error *err);
/* Rows that the next step may have at most. */
int32_t segment_reduction_most_rows(const segment_reduction *r, const sequence *seq);
/* The next token of the sequence is computed by this row. */
void segment_reduction_observe(segment_reduction *r, model_row *row);
/* Do the next rows want their logits? */
bool segment_reduction_wants_logits(const segment_reduction *r, const sequence *seq);
/* n_rows rows were computed, and counted in seq->done, with these logits, or NULL. seq->done may be lower afterwards.
   RP_ERR_MEMORY. */
int segment_reduction_settle(segment_reduction *r, sequence *seq, int32_t n_rows, const float *logits, rp_error *err);
/* All tokens are computed: makes the reduced spans, unsealed, in the segment's format. *out: [*n], the caller's.
   RP_ERR_MEMORY, RP_ERR_BUDGET. */
int segment_reduction_finish(segment_reduction *r, sequence *seq, kv_span ***out, int32_t *n, rp_error *err);

#endif
