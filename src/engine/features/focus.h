/* SPDX-License-Identifier: Apache-2.0 */
/* focus.h: quality="focus:R": recomputes what an uncertain answer looks at. Decodes over the cached modules; where a
 * prediction is uncertain for the first time, the R per cent of the modules' tokens that get most attention from its
 * row are recomputed in the prompt's context, and the prediction is made again.
 *
 *   WATCHES     a row's logits have an entropy of more than FOCUS_ENTROPY: they are dropped with the row's KV
 *   LOOKS       the row is computed again, over the same context, with an observer of its attention; and dropped again
 *   RECOMPUTES  [views without the chosen tokens][own tokens][chosen tokens, the row, the answer's later tokens:
 *   scattered]
 *   OVER        the token is drawn from the new logits, and decoding goes on
 *
 * No token is taken back: those before the row were certain. Own tokens keep their KV: the question is not prefilled
 * again. Once a request: further rounds won nothing in simulations.
 *
 * The choice depends on modules, plan and answer only: equal weights by position. The order of the context is the order
 * of a run without any hit. Nothing that attended to recomputed tokens is kept for others; own tokens before the row
 * attended to cached ones, and are.
 */
#ifndef ENGINE_FOCUS_H
#define ENGINE_FOCUS_H

#include "engine/core/job_feature.h"

/* In nats, of the model's own distribution: temperature 1, no filter, bias or grammar (docs/quality.md has its
   choice). */
#define FOCUS_ENTROPY 0.1

extern const job_feature focus_feature;

#endif
