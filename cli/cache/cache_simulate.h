/* SPDX-License-Identifier: Apache-2.0 */
/* cache_simulate.h: results of `reprise cache simulate`: a cell for each size and policy. */
#ifndef CLI_CACHE_SIMULATE_H
#define CLI_CACHE_SIMULATE_H

#include <stdio.h>

#include "reprise_tools.h"

#define CACHE_MAX_SIZES 64
#define CACHE_SIZE_BYTES 24

typedef struct cache_size {
    char text[CACHE_SIZE_BYTES]; /* as given by the user: "1/2" of the working set, or "5000" blocks */
    size_t blocks;
    rp_simulation cells[RP_N_POLICIES];
} cache_size;

typedef struct cache_curves {
    const char *trace;                   /* its path */
    size_t n_requests, n_refs, n_blocks; /* n_refs: blocks of all requests; n_blocks: different ones */
    int32_t block_tokens, attention_tokens;
    cache_size sizes[CACHE_MAX_SIZES]; /* by rising blocks */
    size_t n_sizes;
} cache_curves;

/* Share of the compute of all prompts that reuse saved, in per cent. */
static inline double cache_saved_percent(const rp_simulation *cell) {
    return cell->compute > 0 ? 100 * cell->saved / cell->compute : 0;
}

/* Draws saved compute against size, a curve for each policy (cache_curves.c). The caller opens and closes the file. */
void cache_curves_draw(FILE *to, const cache_curves *c);

#endif
