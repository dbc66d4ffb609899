/* SPDX-License-Identifier: Apache-2.0 */
/* auto_modules.h: reuse without marks (RP_REUSE_AUTO): chunks of text that were seen before become modules of their own.
 *
 *   prompt    [ first token | ... | chunk | chunk | ... ]         cut by content (token_chunks.h)
 *   counted   a chunk that had to be computed, by key (chunk_index.h); from the second time on
 *   prefilled [ first token | chunk ]  as a prompt of its own, in the background (background.h); kept in the prefix tree like any text
 *   reused    at another place: the chunk's first AUTO_LINK tokens are computed, the others are views with a shift (moved_kv.h)
 *
 * The KV of a chunk depends on its tokens and the prompt's first token alone, not on the prompt that it was first seen in: a chunk has the same
 * bytes after eviction and in another engine. The first token gets the attention that a model gives to the beginning of any text (StreamingLLM; Xiao
 * et al., 2024); link
 * tokens get what it gives to the beginning of a passage (EPIC; Hu et al., 2024).
 *
 * The longest cached prefix is used first. What is computed after a run has a root that names all that is before it, so that the next turn of a
 * conversation finds it, and a plain request never does.
 *
 * Not for prompts with modules, and not with an adapter, kv_keep, context_shift, shifted_reuse, focus, embeddings, prompt log-probabilities and
 * resumed answers: these run as with RP_REUSE_ON. The auditor compares requests with such runs by the text that they begin with, and forbids
 * runs after a beginning that is too far from exact (audit.h).
 */
#ifndef ENGINE_AUTO_MODULES_H
#define ENGINE_AUTO_MODULES_H

#include "engine/observer.h"
#include "engine/reuse/chunk_index.h"

#define AUTO_LINK 32         /* first tokens of a chunk that are computed in their new context */
#define AUTO_LEAST_REUSED 32 /* tokens of a run: below it, views cost more than they save */
#define AUTO_USES 2          /* computations of a chunk until it is prefilled as a module */
#define AUTO_TASKS 16        /* prefills of modules that wait or run; further ones are submitted when the chunk is computed again */

/* Of a job with RP_REUSE_AUTO. Zero-initialise. */
typedef struct job_auto {
    bool asked;
    int32_t *ends, n; /* the chunks of its prompt, */
    bool *misses;     /* [n] and which of them are computed */
    base_key begins;  /* a name of the text that it begins with, for the auditor */
} job_auto;

/* Of an engine, for its thread. Zero-initialise. */
typedef struct auto_modules {
    chunk_index *index; /* NULL until the first request */
    int32_t n_tasks;
} auto_modules;

/* Submitting thread, after the tokens are listed: cuts the prompt. RP_ERR_MEMORY. */
int auto_modules_plan(rp_job *c, rp_error *err);
void job_auto_close(job_auto *a);
/* After prefix_find: chooses runs among the tokens that missed: c->moved. */
void auto_modules_find(rp_job *c);
void auto_modules_free(rp_engine *e);

/* Counts chunks and submits prefills when jobs end. */
extern const job_observer auto_modules_observer;

#endif
