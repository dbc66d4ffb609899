/* SPDX-License-Identifier: Apache-2.0 */
/* auto_modules.h: reuse without marks (RP_REUSE_AUTO): chunks of text that were seen before become modules of their
 * own.
 *
 *   prompt    [ first token | ... | chunk | chunk | ... ]         cut by content (token_chunks.h)
 *   prefilled [ first token | chunk ]  as a prompt of its own, once it was computed twice (background/auto_prefills.h);
 *   kept in the prefix tree
 *             like any text
 *   reused    at another place: the chunk's first AUTO_LINK tokens are computed, the others are views with a shift
 *         (moved_kv.h); likewise the
 *             first tokens of a module, where a chunk continues in another way
 *
 * The KV of a chunk depends on its tokens and the prompt's first token alone, not on the prompt that it was first seen
 * in: a chunk has the same bytes after eviction and in another engine. The first token gets the attention that a model
 * gives to the beginning of any text (StreamingLLM; Xiao et al., 2024); link
 * tokens get what it gives to the beginning of a passage (EPIC; Hu et al., 2024).
 *
 * The longest cached prefix is used first. What is computed after a run has a root that names all that is before it, so
 * that the next turn of a conversation finds it, and a plain request never does.
 *
 * Not for prompts with modules, and not with an adapter, kv_keep, context_shift, shifted_reuse, focus, embeddings,
 * prompt log-probabilities and resumed answers: these run as with RP_REUSE_ON. The auditor compares requests with such
 * runs by the text that they begin with, and forbids runs after a beginning that is too far from exact (audit.h).
 */
#ifndef ENGINE_AUTO_MODULES_H
#define ENGINE_AUTO_MODULES_H

#include "base/hash.h"
#include "engine/core/observer.h"
#include "engine/reuse/token_chunks.h"

#define AUTO_LEAST TOKEN_CHUNK_LEAST /* tokens of a module, and of the part of one that is reused */
#define AUTO_LINK 32                 /* first tokens of a chunk that are computed in their new context */
#define AUTO_LEAST_REUSED 32         /* tokens of a run: below it, views cost more than they save */

/* Of a job with RP_REUSE_AUTO. Zero-initialise. */
typedef struct job_auto {
    bool asked;
    int32_t *ends, n; /* the chunks of its prompt, */
    bool *misses;     /* [n] and which of them are computed */
    base_key begins;  /* a name of the text that it begins with, for the auditor, */
    bool allowed;     /* and its verdict when the job was planned (audit.h) */
} job_auto;

/* The text of a module: the prompt's first token, and the chunk, at positions from 0 on. */
typedef struct module_text {
    int32_t *tokens, *positions, n; /* tokens and positions: one allocation each */
} module_text;

/* Submitting thread, after the tokens are listed: cuts the prompt. RP_ERR_MEMORY. */
int auto_modules_plan(rp_job *c, rp_error *err);
void job_auto_close(job_auto *a);
/* After prefix_find: chooses runs among the tokens that missed: c->moved. */
void auto_modules_find(rp_job *c);
/* The text of the chunk [begin, end) of the job's prompt as a module, freed with module_text_free in any case. false:
   no memory. */
bool auto_module_text(const rp_job *c, int32_t begin, int32_t end, module_text *out);
void module_text_free(module_text *m);
/* How many of its first tokens the cache has. It does not read any. */
int32_t module_cached_tokens(const rp_job *c, const module_text *m);

#endif
