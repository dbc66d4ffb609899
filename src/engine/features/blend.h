/* SPDX-License-Identifier: Apache-2.0 */
/* blend.h: quality="blend:R": selects R per cent of the tokens of a prompt's modules for recomputation: three quarters
 * at the beginnings of modules (EPIC; Hu et al., 2025), the others where the KV deviates most from the KV that they
 * would have in this prompt (CacheBlend; Yao et al., 2025).
 *
 *   COMPOSING   modules are hit or prefilled, as for every job
 *   PROBING     their tokens are computed up to the second layer's keys and values, in chunks after steps, and compared
 *   (choose)    the plan marks the tokens to recompute; the context is composed again without their old KV
 *   PREFILL     they are computed with the prompt's own tokens, by rising position
 *
 * The choice depends on the modules and the plan only.
 */
#ifndef ENGINE_BLEND_H
#define ENGINE_BLEND_H

#include "engine/core/job_feature.h"

extern const job_feature blend_feature;

#endif
