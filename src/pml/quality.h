/* quality.h: the dial as it is written: "link:8" <-> rp_quality; and how the plan of a prompt follows it. */
#ifndef PML_QUALITY_H
#define PML_QUALITY_H

#include <stdbool.h>

#include "reprise.h"

/* How to write one, for errors. */
#define PML_QUALITY_ADVICE "write reuse, link:K (K from 1 to 4096 tokens), blend:R (R from 1 to 100 percent), scaffold or exact"

/* False: it is none of them. */
bool pml_quality_read(const char *text, rp_quality *out);
char *pml_quality_write(rp_quality quality, char out[RP_QUALITY_BYTES]);
/* One that was not written by this file: is the mode known and the amount in its range? */
bool pml_quality_is_valid(rp_quality quality);

/* The one further up the dial. */
static inline rp_quality pml_quality_higher(rp_quality a, rp_quality b) {
    return b.mode > a.mode || (b.mode == a.mode && b.amount > a.amount) ? b : a;
}

#endif
