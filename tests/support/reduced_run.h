/* SPDX-License-Identifier: Apache-2.0 */
/* reduced_run.h: runs of complete spans with random bytes, and random selections of their slots, for reduced spans. */
#ifndef SUPPORT_REDUCED_RUN_H
#define SUPPORT_REDUCED_RUN_H

#include "kv/span.h"
#include "support/tiny_random.h"

#define REDUCED_RUN_SPANS 3

/* n_tokens tokens from position pos on, in as many spans as they fill: at most REDUCED_RUN_SPANS; the other ones are
 * NULL. Ends the process if there is no memory. */
void reduced_run_make(tiny_random *r, kv_pool *pool, rp_kv_format format, int32_t pos, int32_t n_tokens,
                      kv_span *run[REDUCED_RUN_SPANS]);
size_t reduced_run_spans(kv_span *const run[REDUCED_RUN_SPANS]);
void reduced_run_free(kv_span *run[REDUCED_RUN_SPANS]);
/* A selection of a run of that many tokens: each head has none, some, or all slots. */
kv_selection *reduced_run_select(tiny_random *r, const kv_shape *shape, int32_t n_tokens);
/* Random bytes in all cells of a reduced span; unused slots are zeros, as an encoder leaves them. */
void reduced_run_fill(tiny_random *r, kv_span *reduced);

#endif
