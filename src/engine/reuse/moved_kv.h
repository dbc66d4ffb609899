/* SPDX-License-Identifier: Apache-2.0 */
/* moved_kv.h: runs of a prompt's tokens whose KV was computed elsewhere, in another context: after an edit
 * (shifted_reuse.h), or as automatic modules (auto_modules.h). They are views with a shift among the tokens that the
 * job finds or computes.
 *
 *   prompt        [ prefix | ---run--- | between | ---run--- | rest ]
 *   job's tokens  [ prefix             | between             | rest ]       without the runs: they are removed while
 *         the job holds their KV
 *                                      ^ at                  ^ at
 *
 * What is computed after a run attended to KV that is not exact. Such KV never gets the key of a plain prompt: after a
 * run with a key, it is kept under another root (span_tree.h) that the key names, which covers all tokens before it and
 * the runs among them; after a run without one it is not kept. The views are in the context in position order, so that
 * later tokens add in the same order whether others were hits or computed.
 *
 * The engine's thread.
 */
#ifndef ENGINE_MOVED_KV_H
#define ENGINE_MOVED_KV_H

#include "base/hash.h"
#include "reprise.h"
#include "store/index/span_tree.h"

typedef struct moved_run {
    span_path path; /* of the KV: its tokens [from, from + n) */
    int32_t from, n;
    int32_t first;        /* index of the first one in the whole prompt's tokens; */
    int32_t pos, shift;   /* its position, and the shift of the views */
    int32_t n_recomputed; /* tokens before it that are computed for its sake */
    int32_t at;           /* index of the next token in the job's tokens, once they are removed */
    bool has_key;
    base_key key;   /* of the root of what follows */
    size_t n_views; /* in the context, once they are added */
} moved_run;

/* Zero-initialise. */
typedef struct job_moved {
    moved_run *runs;
    int32_t n_runs, cap_runs;
    int32_t n;        /* tokens of all runs; 0: none */
    int32_t n_added;  /* runs with views in the context */
    int32_t n_turned; /* runs after which the job's path goes on */
    int32_t *tokens;  /* [n] the removed tokens; NULL: none are removed */
} job_moved;

/* Can the KV of a path be reused elsewhere? Not with blocks that layers with windows have evicted. */
bool moved_kv_can_move(const span_path *p);
/* Adds a run, which takes the path over on success; later ones are further back in the prompt. NULL: no memory. */
moved_run *moved_kv_push(job_moved *m, const span_path *path);
/* The job's path is complete up to the last run, which has a key; `removed`: tokens of all runs. Continues it after the
 * run, as far as tokens before index `most` of the whole prompt are cached: returns their number; -1: no memory, and
 * the job adds nothing to the cache. */
int32_t moved_kv_follow(rp_job *c, int32_t removed, int32_t most);
/* All runs are chosen: the job's hits are those of its path, and its tokens those outside the runs. false: no memory;
 * the job has no runs, and does without a cache. */
bool moved_kv_settle(rp_job *c);
/* Puts them back, and forgets the runs. */
void moved_kv_put_back(rp_job *c);
/* Releases the KV, not the tokens: the context has no views of it any more. */
void moved_kv_release_paths(job_moved *m);

/* Adds the views of the next run to the context. */
int moved_kv_add_views(rp_job *c, rp_error *err);
/* Before the job's token of that index is appended: adds the views of the runs before it. */
int moved_kv_add_due(rp_job *c, int32_t token, rp_error *err);
/* The path is complete up to the index n_given: goes on after the runs there. false: what follows is not kept. */
bool moved_kv_turn(rp_job *c);
/* The index in the whole prompt of a token of the job. */
int32_t moved_kv_index(const job_moved *m, int32_t token);
/* Counts a use of the runs' KV. */
void moved_kv_use(const job_moved *m);

#endif
