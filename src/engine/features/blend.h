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
 * The choice depends on the modules and the plan only. All functions except blend_most: the engine's thread.
 */
#ifndef ENGINE_BLEND_H
#define ENGINE_BLEND_H

#include "reprise.h"

/* A candidate token. */
typedef struct blend_token {
    size_t item;  /* of the plan, a view; */
    int32_t need; /* of the call's needs */
    int32_t slot; /* of the segment */
} blend_token;

typedef struct job_blend {
    int32_t most;        /* maximum number of chosen tokens; 0: no module has this quality */
    bool chosen;         /* the plan has them; a requeued job keeps them */
    bool missed;         /* a completely evicted module was prefilled for the job */
    int32_t n_forgotten; /* tokens whose context left their module's windows: never chosen */
    int32_t n_probed;
    uint64_t us;         /* spent on probing */
    blend_token *tokens; /* [n], with the deviations of the first `done` of them */
    float *deviations;
    int32_t n, done;
} job_blend;

/* Maximum number of tokens that a planned job chooses. */
int32_t blend_most(const rp_job *c);
/* After composition: lists the candidates. RP_ERR_MEMORY. */
int blend_open(rp_job *c, rp_error *err);
/* Computes the deviations of the next n tokens. RP_ERR_MEMORY. */
int blend_probe(rp_engine *e, rp_job *c, int32_t n, rp_error *err);
/* After all deviations are computed: changes the plan, the job's tokens and its needs. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int blend_choose(rp_job *c, rp_error *err);
/* Frees the list. */
void blend_release(rp_job *c);

#endif
