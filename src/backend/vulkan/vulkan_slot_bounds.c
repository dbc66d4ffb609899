/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_slot_bounds.c: slots that rows choose anew (backend/slot_bounds.h), on the device.
 *
 * A list of slots has one buffer on the device, as long as the list: bounds of its groups' keys, which the device
 * computes once; of each group its view and last position; of each slot its group. A step takes no more of it than an
 * address for each row (shaders/chooser.glsl). In a layer:
 *
 *   queries, keys of bounds -> bounds of all groups -> the highest -> masks of the row's blocks, for each KV head
 *
 * The host does not wait for the choice: it knows how many slots a row sees at most.
 */
#include <string.h>

#include "backend/slot_bounds.h"
#include "backend/vulkan/vulkan_attention.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

#define MOST_GROUPS 32768u /* workgroups of a dispatch: each takes several groups, if there are more */

/* slot_bounds.device */
typedef struct device_bounds {
    vulkan_backend *backend;
    vulkan_buffer buffer;
    uint64_t keys, groups, members; /* addresses */
    uint32_t n_entries;             /* blocks of the context's views, when the slots were listed */
} device_bounds;

static void free_bounds(void *device) {
    device_bounds *d = device;
    vulkan_retire(d->backend, &d->buffer); /* a step may still read it */
    base_free(d);
}

/* ---- filling ---- */

static uint64_t key_bytes(const slot_bounds *s, int32_t n_layers) {
    return sizeof(uint16_t) * 2 * KV_BLOCK_SLOTS * (uint64_t)s->key_dim *
           (uint64_t)(slot_bounds_blocks(s) * s->n_kv_heads * n_layers);
}

/* The first entry of each view, in *first [n_views + 1], the caller's. */
static int find_entries(const slot_bounds *s, const kv_context *c, uint32_t **first, rp_error *err) {
    const size_t bytes = sizeof(**first) * (s->n_views + 1);
    if (!(*first = base_alloc(bytes))) return base_fail_memory(err, bytes, "bounds of slots");
    (*first)[0] = 0;
    for (size_t i = 0; i < s->n_views; i++)
        (*first)[i + 1] = (*first)[i] + (uint32_t)vulkan_view_blocks(&c->views[i]);
    return RP_OK;
}

/* The tables that steps read: groups, then the group of each slot of each entry. */
static int upload_tables(device_bounds *d, const slot_bounds *s, const uint32_t *first, uint64_t at, rp_error *err) {
    const size_t n_members = (size_t)d->n_entries * KV_BLOCK_SLOTS,
                 bytes = sizeof(vulkan_group) * (size_t)s->n_groups + sizeof(int32_t) * n_members;
    vulkan_group *groups = base_alloc(bytes);
    if (!groups) return base_fail_memory(err, bytes, "bounds of slots");
    int32_t *members = (int32_t *)(groups + s->n_groups);
    for (size_t i = 0; i < n_members; i++) members[i] = -1;
    for (int32_t g = 0; g < s->n_groups; g++) {
        const sequence_slot *last = &s->slots[s->groups[g].end - 1];
        groups[g] = (vulkan_group){first[last->view], last->pos};
        for (int32_t i = s->groups[g].first; i < s->groups[g].end; i++)
            members[(size_t)first[s->slots[i].view] * KV_BLOCK_SLOTS + (size_t)s->slots[i].slot] = g;
    }
    const int rc = vulkan_upload(&d->backend->copies, groups, &(vulkan_region){&d->buffer, at, bytes, NULL, 0}, err);
    base_free(groups);
    return rc;
}

/* Records the bounds of a layer's keys. */
static void record_layer(device_bounds *d, const slot_bounds *s, const kv_context *c, int32_t layer, uint64_t places,
                         uint64_t groups) {
    vulkan_backend *b = d->backend;
    const uint32_t n_heads = (uint32_t)s->n_kv_heads;
    const vulkan_part part = vulkan_arena_take(b, sizeof(vulkan_head) * d->n_entries * n_heads);
    vulkan_head *out = part.host;
    if (!out) return;
    for (size_t i = 0; i < s->n_views; i++)
        for (int32_t block = 0; block < vulkan_view_blocks(&c->views[i]); block++, out += n_heads)
            vulkan_write_heads(c->views[i].span, layer, block, s->n_kv_heads, out);
    const vulkan_bound_keys_args a = {.heads = part.address,
                                      .places = places,
                                      .groups = groups,
                                      .keys = d->keys + (uint64_t)layer * key_bytes(s, 1),
                                      .n_groups = (uint32_t)s->n_groups,
                                      .n_kv_heads = n_heads,
                                      .dim = (uint32_t)s->key_dim,
                                      .window = b->shape.layers[layer].window,
                                      .end = s->end};
    vulkan_dispatch(b, VULKAN_BOUND_KEYS, 0, &a, sizeof(a),
                    (uint32_t[]){BASE_MIN(a.n_groups, MOST_GROUPS), n_heads, 1});
}

static int bound_keys(device_bounds *d, const slot_bounds *s, const kv_context *c, const uint32_t *first,
                      rp_error *err) {
    vulkan_backend *b = d->backend;
    vulkan_work_begin(b);
    const vulkan_part places = vulkan_arena_take(b, sizeof(vulkan_place) * (size_t)s->n_slots),
                      groups = vulkan_arena_take(b, sizeof(slot_group) * (size_t)s->n_groups);
    if (places.host && groups.host) {
        vulkan_place *out = places.host;
        for (int32_t i = 0; i < s->n_slots; i++)
            out[i] = (vulkan_place){first[s->slots[i].view] + (uint32_t)s->slots[i].slot / KV_BLOCK_SLOTS,
                                    (uint32_t)s->slots[i].slot % KV_BLOCK_SLOTS, s->slots[i].pos};
        memcpy(groups.host, s->groups, sizeof(slot_group) * (size_t)s->n_groups); /* first, end */
        for (int32_t layer = 0; layer < b->shape.n_layers; layer++)
            record_layer(d, s, c, layer, places.address, groups.address);
    }
    b->base.ops->submit(&b->base, NULL, 0);
    return b->base.ops->finish(&b->base, err);
}

int vulkan_bound(backend *self, slot_bounds *bounds, const kv_context *context, rp_error *err) {
    vulkan_backend *b = vulkan(self);
    uint32_t *first;
    BASE_ASSERT(bounds->n_kv_heads == b->net->hp.n_kv_heads && bounds->key_dim == b->net->hp.key_dim);
    BASE_ASSERT(bounds->n_views <= context->n_views && !bounds->device);
    int rc = find_entries(bounds, context, &first, err);
    if (rc) return rc;
    device_bounds *d = base_calloc(1, sizeof(*d));
    if (!d) rc = base_fail_memory(err, sizeof(*d), "bounds of slots");
    else {
        const uint64_t keys = key_bytes(bounds, b->shape.n_layers),
                       groups = sizeof(vulkan_group) * (uint64_t)bounds->n_groups;
        *d = (device_bounds){.backend = b, .n_entries = first[bounds->n_views]};
        rc = vulkan_take(b, VULKAN_ON_DEVICE, keys + groups + sizeof(int32_t) * KV_BLOCK_SLOTS * (uint64_t)d->n_entries,
                         "bounds of slots", &d->buffer, err);
        d->keys = d->buffer.address;
        d->groups = d->keys + keys;
        d->members = d->groups + groups;
        if (!rc) rc = upload_tables(d, bounds, first, keys, err);
        if (!rc) rc = bound_keys(d, bounds, context, first, err);
        if (rc) free_bounds(d);
        else {
            bounds->device = d;
            bounds->free_device = free_bounds;
        }
    }
    base_free(first);
    return rc;
}

/* ---- choosing ---- */

int vulkan_choices_begin(vulkan_backend *b, rp_error *err) {
    vulkan_attention *a = b->attention;
    const model_step *step = b->step;
    bool any = false;
    a->choosers = 0;
    a->most_groups = 0;
    for (int32_t r = 0; r < step->n_rows; r++) any = any || step->rows[r].bounds;
    if (!any) return RP_OK;
    const vulkan_part part = vulkan_arena_take(b, sizeof(vulkan_chooser) * (size_t)step->n_rows);
    if (!part.host) return base_fail(err, b->failure.code, "%s", b->failure.message);
    for (int32_t r = 0; r < step->n_rows; r++) {
        const slot_bounds *s = step->rows[r].bounds;
        const device_bounds *d = s ? s->device : NULL;
        vulkan_chooser *out = (vulkan_chooser *)part.host + r;
        BASE_ASSERT(!s || d); /* vulkan_bound */
        *out = (vulkan_chooser){0};
        if (!s) continue;
        *out = (vulkan_chooser){.keys = d->keys,
                                .groups = d->groups,
                                .members = d->members,
                                .n_groups = (uint32_t)s->n_groups,
                                .most = (uint32_t)s->most,
                                .first_entry = (uint32_t)a->first_entry[step->rows[r].context],
                                .n_entries = d->n_entries};
        a->most_groups = BASE_MAX(a->most_groups, (uint32_t)s->n_groups);
    }
    a->choosers = part.address;
    return RP_OK;
}

static void record_bounds(vulkan_backend *b, const model_layer *l, const backend_buffer *queries,
                          const vulkan_sight *from, uint32_t stride, uint32_t first, uint32_t n) {
    const vulkan_attention *at = b->attention;
    const model_rope *rope = l->rope == MODEL_NO_ROPE ? NULL : at->ropes[l->rope];
    const model_weight slopes = {.data = b->net->alibi_slopes, .type = KERNEL_F32, .n_in = l->n_heads, .n_out = 1};
    const vulkan_choice_bounds_args a = {.queries = queries->memory.address,
                                         .bounds = at->bounds.address,
                                         .rows = from->rows, /* positions: the same for all KV heads */
                                         .choosers = at->choosers,
                                         .entries = at->entries,
                                         .angles = rope ? at->row_angles[l->rope] : 0,
                                         .shifts = rope ? at->shift_angles[l->rope] : 0,
                                         .weights = vulkan_weight(b, &l->query_weights),
                                         .slopes = vulkan_weight(b, &slopes),
                                         .n_heads = (uint32_t)l->n_heads,
                                         .n_kv_heads = (uint32_t)l->n_kv_heads,
                                         .key_dim = (uint32_t)l->key_dim,
                                         .rot_dim = rope ? (uint32_t)rope->rot_dim : 0,
                                         .stride = stride,
                                         .first_row = first,
                                         .layer = (uint32_t)l->states,
                                         .scale = b->net->hp.score_scale,
                                         .window = l->window,
                                         .is_chunked = b->net->hp.windows_are_chunks};
    vulkan_dispatch(b, VULKAN_CHOICE_BOUNDS, b->net->hp.rope_halves, &a, sizeof(a),
                    (uint32_t[]){BASE_DIV_UP(at->most_groups, KV_BLOCK_SLOTS), a.n_kv_heads, n});
    const vulkan_choice_highest_args highest = {.bounds = a.bounds,
                                                .choosers = a.choosers,
                                                .n_heads = a.n_heads,
                                                .n_kv_heads = a.n_kv_heads,
                                                .stride = stride,
                                                .first_row = first};
    vulkan_dispatch(b, VULKAN_CHOICE_HIGHEST, 0, &highest, sizeof(highest), (uint32_t[]){a.n_kv_heads, n, 1});
}

bool vulkan_choose_slots(vulkan_backend *b, const model_layer *l, const backend_buffer *queries,
                         const vulkan_sight *from, vulkan_sight *to) {
    vulkan_attention *at = b->attention;
    const uint64_t rows = (uint64_t)b->step->n_rows, heads = (uint64_t)l->n_heads, kv_heads = (uint64_t)l->n_kv_heads,
                   stride = BASE_DIV_UP(BASE_MAX(at->most_groups, 1), 64) * 64,
                   n_blocks = from->row_heads > 0 ? from->n_blocks : kv_heads * from->n_blocks;
    const uint64_t at_once = BASE_MIN(BASE_MAX(VULKAN_TILE_BYTES / sizeof(float) / (heads * stride), 1), rows);
    if (!vulkan_grow_scratch(b, &at->bounds, at_once * heads * stride) ||
        !vulkan_grow_scratch(b, &at->bound_rows, kv_heads * rows * sizeof(vulkan_row) / sizeof(float)) ||
        !vulkan_grow_scratch(b, &at->bound_blocks, BASE_MAX(n_blocks, 1) * sizeof(vulkan_row_block) / sizeof(float)))
        return false;
    *to = *from;
    to->rows = at->bound_rows.address;
    to->blocks = at->bound_blocks.address;
    to->row_heads = kv_heads > 1 ? (uint32_t)rows : 0;
    to->n_blocks = n_blocks;
    to->host_rows = NULL;
    for (uint64_t r = 0; r < rows; r += at_once) {
        const uint32_t n = (uint32_t)BASE_MIN(at_once, rows - r);
        record_bounds(b, l, queries, from, (uint32_t)stride, (uint32_t)r, n);
        const vulkan_choice_masks_args masks = {.bounds = at->bounds.address,
                                                .choosers = at->choosers,
                                                .rows = from->rows,
                                                .blocks = from->blocks,
                                                .to_rows = to->rows,
                                                .to_blocks = to->blocks,
                                                .n_heads = (uint32_t)heads,
                                                .n_kv_heads = (uint32_t)kv_heads,
                                                .stride = (uint32_t)stride,
                                                .first_row = (uint32_t)r,
                                                .row_heads = from->row_heads,
                                                .n_rows = (uint32_t)rows,
                                                .n_blocks = (uint32_t)from->n_blocks};
        vulkan_dispatch(b, VULKAN_CHOICE_MASKS, 0, &masks, sizeof(masks), (uint32_t[]){(uint32_t)kv_heads, n, 1});
    }
    return true;
}
