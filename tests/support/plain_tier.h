/* SPDX-License-Identifier: Apache-2.0 */
/* plain_tier.h: a second tier (store/tier.h) for tests: a folder of record files without index, lock, threads or order.
 * It works only while its events are asked for (tier_next), one layer or one write a call, and its medium can be told
 * to be slow, absent, full, or to lie.
 *
 *   a test --> plain_medium (outlives openings) <-- plain_tier_open <-- span_store_open_disk
 */
#ifndef SUPPORT_PLAIN_TIER_H
#define SUPPORT_PLAIN_TIER_H

#include "store/tier.h"

/* What a read gets instead of the record's file. */
typedef enum plain_lie {
    PLAIN_HONEST,
    PLAIN_FLIPS_KV,     /* a bit of the last layer */
    PLAIN_FLIPS_HEADER, /* a bit of the key */
    PLAIN_CUTS,         /* without the last byte */
    PLAIN_EXTENDS,      /* with another byte */
    PLAIN_SWAPS,        /* another record's file */
    PLAIN_LOSES,        /* nothing: the file is gone */
    PLAIN_BREAKS,       /* an I/O error */
    PLAIN_LIES,
} plain_lie;

typedef struct plain_medium {
    const char *dir;      /* exists */
    const char *other;    /* of PLAIN_SWAPS: the path of a record's file */
    int absent;           /* errno of every opening; 0: it can be opened */
    bool refuses_changes; /* an opening to change it fails with EROFS */
    int patience;         /* calls of tier_next before each layer and each write */
    int full;             /* errno of every write; 0: they succeed */
    plain_lie lie;
    uint64_t n_reads, n_writes, n_removals, n_set_aside, n_notes; /* begun */
} plain_medium;

/* A tier_source's function; its options are a plain_tier_options, borrowed until the tier is closed. */
typedef struct plain_tier_options {
    plain_medium *medium;
} plain_tier_options;
int plain_tier_open(store_tier **out, const void *options, const tier_terms *terms, rp_error *err);

#endif
