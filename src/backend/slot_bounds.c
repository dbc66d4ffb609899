/* SPDX-License-Identifier: Apache-2.0 */
/* slot_bounds.c: see slot_bounds.h. The keys are the backend's to fill in (cpu/cpu_slot_bounds.c,
 * vulkan/vulkan_slot_bounds.c). */
#include "backend/slot_bounds.h"

#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

static int64_t groups_in(int64_t n_slots) { return BASE_DIV_UP(n_slots, SLOT_GROUP); }

static uint64_t key_bytes(const kv_shape *shape, int64_t n_groups) {
    const int64_t blocks = BASE_DIV_UP(n_groups, KV_BLOCK_SLOTS);
    return sizeof(uint16_t) * 2 *
           (uint64_t)(blocks * KV_BLOCK_SLOTS * shape->layers[0].key_dim * shape->n_layers * kv_shape_heads(shape));
}

uint64_t slot_bounds_bytes(const kv_shape *shape, int64_t n_slots, int64_t n_runs) {
    const int64_t n_groups = groups_in(n_slots) + n_runs; /* the last one of a run may have fewer slots */
    return sizeof(slot_bounds) + (uint64_t)n_slots * sizeof(sequence_slot) + (uint64_t)n_groups * sizeof(slot_group) +
           (uint64_t)n_runs * sizeof(slot_run) + key_bytes(shape, n_groups);
}

/* The first run ends at run_ends[0]. */
static void cut_groups(slot_bounds *s, const int32_t *run_ends) {
    for (int32_t run = 0, slot = 0; run < s->n_runs; run++) {
        s->runs[run] = (slot_run){.first = s->n_groups, .view = s->slots[slot].view};
        BASE_ASSERT(slot < run_ends[run] && run_ends[run] <= s->n_slots); /* no run is empty */
        for (; slot < run_ends[run]; slot = s->groups[s->n_groups++].end)
            s->groups[s->n_groups] = (slot_group){slot, BASE_MIN(slot + SLOT_GROUP, run_ends[run])};
        s->runs[run].end = s->n_groups;
    }
    BASE_ASSERT(s->groups[s->n_groups - 1].end == s->n_slots);
}

int slot_bounds_new(slot_bounds **out, const kv_shape *shape, const kv_context *context, const sequence_slot *slots,
                    int32_t n_slots, const int32_t *run_ends, int32_t n_runs, int32_t most, int32_t end,
                    rp_error *err) {
    int64_t n_groups = 0;
    BASE_ASSERT(n_slots > 0 && most > 0 && n_runs > 0 && run_ends[n_runs - 1] == n_slots);
    for (int32_t run = 0; run < n_runs; run++) n_groups += groups_in(run_ends[run] - (run > 0 ? run_ends[run - 1] : 0));
    const uint64_t bytes = key_bytes(shape, n_groups);
    slot_bounds *s = *out = base_calloc(1, sizeof(*s));
    if (!s) return base_fail_memory(err, sizeof(*s), "bounds of slots");
    *s = (slot_bounds){.n_kv_heads = kv_shape_heads(shape),
                       .key_dim = shape->layers[0].key_dim,
                       .n_views = context->n_views,
                       .n_slots = n_slots,
                       .n_runs = n_runs};
    s->most = (int32_t)groups_in(most);
    s->end = end;
    s->slots = base_alloc((size_t)n_slots * sizeof(*s->slots));
    s->groups = base_alloc((size_t)n_groups * sizeof(*s->groups));
    s->runs = base_alloc((size_t)n_runs * sizeof(*s->runs));
    s->others = base_alloc(s->n_views * sizeof(*s->others));
    if (!s->slots || !s->groups || !s->runs || !s->others) {
        slot_bounds_free(s);
        *out = NULL;
        return base_fail_memory(err, bytes, "bounds of slots");
    }
    memcpy(s->slots, slots, (size_t)n_slots * sizeof(*slots));
    cut_groups(s, run_ends);
    BASE_ASSERT(s->n_groups == n_groups); /* the keys have room for just these */
    for (size_t i = 0; i < s->n_views; i++) memcpy(s->others[i], context->views[i].mask, sizeof(s->others[i]));
    for (int32_t i = 0; i < n_slots; i++) {
        const sequence_slot *at = &s->slots[i];
        BASE_DCHECK((size_t)at->view < s->n_views && at->slot < KV_SPAN_TOKENS);
        s->others[at->view][at->slot / KV_BLOCK_SLOTS] &= ~(UINT64_C(1) << at->slot % KV_BLOCK_SLOTS);
    }
    return RP_OK;
}

int slot_bounds_take_keys(slot_bounds *s, const kv_shape *shape, rp_error *err) {
    const uint64_t bytes = key_bytes(shape, s->n_groups);
    BASE_ASSERT(!s->keys && !s->device);
    s->keys = base_alloc_aligned((size_t)bytes, 64);
    return s->keys ? RP_OK : base_fail_memory(err, bytes, "bounds of slots");
}

void slot_bounds_free(slot_bounds *s) {
    if (!s) return;
    base_free(s->slots);
    base_free(s->groups);
    base_free(s->runs);
    base_free(s->others);
    base_free(s->keys);
    if (s->device) s->free_device(s->device);
    base_free(s);
}
