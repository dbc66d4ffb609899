/* SPDX-License-Identifier: Apache-2.0 */
/* blend.h: quality="blend:R": which tokens of a prompt's modules are computed again, R per cent of them: three quarters for modules' beginnings
 * (EPIC; Hu et al., 2025), the others where states are furthest from those they would have in this prompt (CacheBlend; Yao et al., 2025).
 *
 *   COMPOSING   modules are found or computed, as ever
 *   PROBING     their tokens are computed as far as the keys and values of the second layer, piece by piece behind steps, and compared
 *   (choose)    the plan says from now on which are computed again; the context is composed anew, without their old states
 *   PREFILL     they are computed with the prompt's own tokens, by rising position
 *
 * What is chosen depends on the modules and the plan alone. The engine's thread, but for blend_most.
 */
#ifndef ENGINE_BLEND_H
#define ENGINE_BLEND_H

#include "reprise.h"

/* A token that may be chosen. */
typedef struct blend_token {
    size_t item;   /* of the plan, a view; */
    int32_t need;  /* of the call's needs */
    int32_t slot;  /* of the segment */
} blend_token;

typedef struct job_blend {
    int32_t most;        /* tokens that are chosen at most; 0: no module says blend */
    bool chosen;         /* the plan has them; a call that begins anew keeps them */
    bool missed;         /* a module of which nothing is left was computed for the call */
    int32_t n_forgotten; /* tokens of modules whose windows have forgotten what these would see: never chosen */
    int32_t n_probed;
    uint64_t us;         /* that probing took */
    blend_token *tokens; /* [n], and how far the first `done` of them deviate */
    float *deviations;
    int32_t n, done;
} job_blend;

/* Tokens that a planned call chooses at most. */
int32_t blend_most(const rp_job *c);
/* The call is composed: lists what may be chosen. RP_ERR_MEMORY. */
int blend_open(rp_job *c, rp_error *err);
/* Computes the deviations of the next n tokens. RP_ERR_MEMORY. */
int blend_probe(rp_engine *e, rp_job *c, int32_t n, rp_error *err);
/* All deviations are there: changes the plan, the call's tokens and its needs. RP_ERR_MEMORY, RP_ERR_LIMIT. */
int blend_choose(rp_job *c, rp_error *err);
/* Lets go of the list. */
void blend_release(rp_job *c);

#endif
