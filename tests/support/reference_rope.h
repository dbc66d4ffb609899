/* SPDX-License-Identifier: Apache-2.0 */
/* reference_rope.h: RoPE of the slow reference: a frequency for each pair of dimensions. For tests; not thread-safe. */
#ifndef SUPPORT_REFERENCE_ROPE_H
#define SUPPORT_REFERENCE_ROPE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct reference_rope {
    int32_t n_pairs;     /* 2 n_pairs dimensions of a head rotate, the others do not */
    bool adjacent;       /* pairs (2i, 2i + 1); else (i, i + n_pairs) */
    double *frequencies; /* [n_pairs], radians a position */
    double magnitude;    /* factor for the rotating dimensions of queries and keys */
} reference_rope;

/* cos, sin of every pair at every requested distance. */
typedef struct reference_angles {
    double **at; /* [distance]; NULL: not requested yet */
    int32_t n;
} reference_angles;

/* [n_pairs][2], borrowed until the angles are freed. A negative distance ends the program. */
const double *reference_angles_at(reference_angles *a, const reference_rope *r, int32_t distance);
void reference_angles_free(reference_angles *a);

/* (R(distance) q) . k over all dim dimensions, cs from reference_angles_at. */
double reference_rope_dot(const reference_rope *r, const double *cs, const double *q, const double *k, int32_t dim);
/* x = R(distance) x, without the magnitude. */
void reference_rope_turn(const reference_rope *r, const double *cs, double *x);

#endif
