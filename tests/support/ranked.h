/* SPDX-License-Identifier: Apache-2.0 */
/* ranked.h: slots sorted as a selection prefers them (kv/slot_selection.h), for qsort. */
#ifndef SUPPORT_RANKED_H
#define SUPPORT_RANKED_H

#include <stdint.h>

typedef struct ranked {
    double score;
    int32_t slot, head; /* head: of all layers, layer by layer */
} ranked;

/* The highest first; equal ones by slot, then by head. */
static inline int compare_ranked(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->slot != y->slot ? x->slot - y->slot : x->head - y->head;
}

#endif
