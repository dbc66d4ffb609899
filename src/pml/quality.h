/* SPDX-License-Identifier: Apache-2.0 */
/* quality.h: text form of the quality setting: "link:8" <-> rp_quality; and its effect on a prompt's plan. */
#ifndef PML_QUALITY_H
#define PML_QUALITY_H

#include <stdbool.h>

#include "reprise.h"

/* Syntax hint for error messages. */
#define PML_QUALITY_ADVICE \
    "write reuse, link:K (K from 1 to 4096 tokens), blend:R or focus:R (R from 1 to 100 percent), scaffold or exact"

/* Returns false if the text is not a quality. */
bool pml_quality_read(const char *text, rp_quality *out);
char *pml_quality_write(rp_quality quality, char out[RP_QUALITY_BYTES]);
/* Validates a quality from outside this file: known mode, amount in range. */
bool pml_quality_is_valid(rp_quality quality);

/* The place of a mode in the order: as written, reuse, link, blend, focus, scaffold, exact. */
static inline int pml_quality_rank(rp_quality_mode mode) {
    return mode == RP_QUALITY_FOCUS ? 2 * RP_QUALITY_BLEND + 1 : 2 * (int)mode;
}

/* The higher of two qualities. */
static inline rp_quality pml_quality_higher(rp_quality a, rp_quality b) {
    return pml_quality_rank(b.mode) > pml_quality_rank(a.mode) || (b.mode == a.mode && b.amount > a.amount) ? b : a;
}

#endif
