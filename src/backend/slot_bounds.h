/* SPDX-License-Identifier: Apache-2.0 */
/* slot_bounds.h: slots that rows of one sequence attend to, chosen anew for each row by upper bounds of their scores
 * (Quest; Tang et al., 2024).
 *
 *   listed slots    | 8 | 8 | 8 | 5 || 8 | 8 | ...           groups, in the order of the context; || another shift: a
 *         run ends
 *   their keys      of a KV head: the largest and the smallest element of each dimension in the group
 *   a row's query   q . key <= the sum over dimensions of the larger of q * largest and q * smallest
 *
 * A row attends to the groups of each KV head with the highest bounds, as many as `most`, and to all slots that are not
 * listed: those that the caller left out, and all of later views. The bound of a group is the highest of the query
 * heads that share the KV head, each less the highest bound of that head: heads with large scores would choose for all.
 * In a layer with a window, groups out of the row's reach are not chosen; with ALiBi, a bound is that of the group's
 * last position. Equal bounds: the earlier group first.
 *
 * Which groups are chosen depends on the order, positions and keys of the listed slots and on the query, not on how the
 * slots are cut into spans: the same bits by any number of threads and in any batch.
 *
 * Made and filled by one thread, then read by any during steps.
 */
#ifndef BACKEND_SLOT_BOUNDS_H
#define BACKEND_SLOT_BOUNDS_H

#include "base/check.h"
#include "base/compiler.h"
#include "kv/context.h"

/* A slot of a sequence: its view of the context (of an observer: of its views), its slot there, and its position in the
   sequence. */
typedef struct sequence_slot {
    int32_t view, slot, pos;
} sequence_slot;

#define SLOT_GROUP 8 /* with groups of 16, answers of the bundled model were lost (docs/quality.md) */

/* Slots [first, end) of the list. */
typedef struct slot_group {
    int32_t first, end;
} slot_group;

/* Groups [first, end) whose views all have one shift, that of `view`. */
typedef struct slot_run {
    int32_t first, end, view;
} slot_run;

typedef struct slot_bounds {
    int32_t n_kv_heads, key_dim;
    int32_t most;         /* groups of a KV head that a row attends to */
    int32_t end;          /* position of the first row that chooses */
    size_t n_views;       /* of the context when this was made */
    sequence_slot *slots; /* [n_slots] in the order of the context */
    slot_group *groups;   /* [n_groups] */
    slot_run *runs;       /* [n_runs] */
    int32_t n_slots, n_groups, n_runs;
    uint64_t (*others)[KV_SPAN_BLOCKS]; /* [n_views]: slots that are not listed */
    /* [layers of the KV][KV heads][blocks of 64 groups][largest, smallest][key_dim][64], in f16: the order of keys of a
       KV block. In the memory of the backend that filled them in: the host's, or what `device` has; NULL: elsewhere */
    uint16_t *keys;
    void *device; /* of that backend, which must outlive it; freed by free_device, on the engine's thread */
    void (*free_device)(void *device);
} slot_bounds;

/* Lists slots of a context, in its order, those with run_ends[i - 1] <= index < run_ends[i] at rising positions in
 * views of one shift and format. Keys are not read: backend.bound does that. `most` slots, 1 <= most, rounded up to
 * whole groups. RP_ERR_MEMORY. */
int slot_bounds_new(slot_bounds **out, const kv_shape *shape, const kv_context *context, const sequence_slot *slots,
                    int32_t n_slots, const int32_t *run_ends, int32_t n_runs, int32_t most, int32_t end, rp_error *err);
void slot_bounds_free(slot_bounds *s); /* NULL is fine */
/* Allocates the keys in the host's memory: for backends. RP_ERR_MEMORY. */
int slot_bounds_take_keys(slot_bounds *s, const kv_shape *shape, rp_error *err);
/* Upper bound of its memory for n_slots in n_runs. */
uint64_t slot_bounds_bytes(const kv_shape *shape, int64_t n_slots, int64_t n_runs);

static inline int64_t slot_bounds_blocks(const slot_bounds *s) {
    return BASE_DIV_UP(s->n_groups, KV_BLOCK_SLOTS);
}
/* A block of 64 groups: the largest elements, or the smallest. layer: of the KV. */
static inline uint16_t *slot_bounds_keys(const slot_bounds *s, int32_t layer, int32_t kv_head, int64_t block,
                                         bool smallest) {
    BASE_DCHECK(kv_head >= 0 && kv_head < s->n_kv_heads && block >= 0 && block < slot_bounds_blocks(s));
    const int64_t head = (int64_t)layer * s->n_kv_heads + kv_head;
    return s->keys + ((head * slot_bounds_blocks(s) + block) * 2 + smallest) * s->key_dim * KV_BLOCK_SLOTS;
}
/* Does a row at pos see any slot of a group in a layer with that window (0: none)? */
static inline bool slot_bounds_reaches(const slot_bounds *s, int32_t group, int32_t pos, int32_t window) {
    BASE_DCHECK(group >= 0 && group < s->n_groups);
    return window == 0 || pos - s->slots[s->groups[group].end - 1].pos < window;
}

#endif
