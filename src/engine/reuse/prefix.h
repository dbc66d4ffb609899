/* SPDX-License-Identifier: Apache-2.0 */
/* prefix.h: prefix cache: lookup of the longest cached prefix, waiting for a job that computes it, insertion. The
   engine's thread.
 */
#ifndef ENGINE_PREFIX_H
#define ENGINE_PREFIX_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/core/job.h"
#include "store/index/span_tree.h"

/* Looks up the longest cached prefix of a job's tokens: its path. *wait: a running job is about to compute more of the
   same prefix. */
int prefix_find(rp_engine *e, rp_job *c, bool *wait, rp_error *err);
/* The same lookup by span_tree_peek, for recurrent layers with the last checkpoint, whose key is the last one. */
size_t prefix_peek(const rp_engine *e, const rp_job *c, span_tree_fn fn, void *user);
/* Before a job's lookups: sets how often it will read the KV that they find (span_store_set_reads): once for each token
   that it has to compute. */
void prefix_expect_reads(rp_engine *e, const rp_job *c);
/* Adds the views of the path to the job's context, after the modules' views. The rest of its tokens becomes its
   sequence. RP_ERR_MEMORY. */
int prefix_compose(rp_job *c, rp_error *err);
/* Inserts spans that the job has computed into the prefix tree: full ones, and with `all` the open one. Best effort: on
 * failure a span is not cached. */
void prefix_give(rp_job *c, bool all);
/* The prompt is complete, and no other request may use what follows: inserts its KV, shares nothing from now on, and
 * describes the plan while its views are there. RP_ERR_MEMORY. */
int prefix_leave(rp_job *c, rp_error *err);
/* Tokens of a job with KV, cached ones included. */
static inline int32_t prefix_computed(const rp_job *c) { return c->prefix.n_found + c->seq.done; }

#endif
