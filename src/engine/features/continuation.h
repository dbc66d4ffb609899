/* SPDX-License-Identifier: Apache-2.0 */
/* continuation.h: an answer that begins with tokens that were sampled before, on this engine or another one
 * (rp_request.resumed): they are computed after the prompt, or found, and sampling goes on as if they had been drawn
 * here.
 */
#ifndef ENGINE_CONTINUATION_H
#define ENGINE_CONTINUATION_H

#include "engine/core/job_feature.h"

extern const job_feature continuation_feature;

#endif
