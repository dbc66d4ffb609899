/* SPDX-License-Identifier: Apache-2.0 */
/* span_store_internal.h: shared by span_store.c (lookup, insertion, events), span_store_live.c (administration) and
 * span_store_open.c (opening and closing), each of which uses those before it. */
#ifndef STORE_SPAN_STORE_INTERNAL_H
#define STORE_SPAN_STORE_INTERNAL_H

#include "store/span_store.h"

#define SPAN_STORE_NONE SPAN_INDEX_NONE

struct span_store {
    span_places places;
    span_write_back writes;
    span_pushes pushes;
    const record_format *format; /* of its records; NULL: no tier was asked for */
    bool read_only;              /* the tier */
    uint64_t request;            /* the order of reads */
    double n_reads;              /* span_store_set_reads */
    span_sync *syncs;            /* not done yet */
};

static inline span_entry *span_store_entry(const span_store *s, uint32_t i) { return &s->places.index.entries[i]; }
static inline uint32_t span_store_find(const span_store *s, const base_key *key) {
    return span_index_find(&s->places.index, key);
}

#endif
