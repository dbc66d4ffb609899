/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_attention.h: the tables of attention, for vulkan_attention.c and vulkan_indexer.c. */
#ifndef BACKEND_VULKAN_ATTENTION_H
#define BACKEND_VULKAN_ATTENTION_H

#include "backend/vulkan/vulkan_backend.h"

#define VULKAN_TILE_BYTES ((uint64_t)32 << 20) /* of scratch, or what one row needs */
#define VULKAN_ANGLES (MODEL_ROPE_LOCAL_BASE + 1)
#define VULKAN_MAX_SIGHTS 4 /* different reaches of a network's layers */

/* What the rows of a step see through a window. */
typedef struct vulkan_sight {
    int32_t window;                   /* of its layers: the key */
    uint64_t rows, blocks;            /* addresses of the tables */
    const vulkan_row *host_rows;      /* [rows of the step]: the table on the host */
    size_t n_blocks;                  /* of all rows */
    uint32_t most_blocks, most_slots; /* of a row */
} vulkan_sight;

struct vulkan_attention {
    const model_rope *ropes[VULKAN_ANGLES]; /* NULL: no layer is of this kind */
    int32_t windows[VULKAN_MAX_SIGHTS], n_sights;
    vulkan_buffer scores, factors, sums; /* scratch */
    vulkan_buffer index_scores;          /* scratch of indexers */
    vulkan_buffer chosen_blocks;         /* vulkan_row_block: of `chosen` */
    /* of the current step */
    vulkan_sight sights[VULKAN_MAX_SIGHTS];
    vulkan_sight chosen; /* by the last indexer, for the layers after it */
    uint64_t row_angles[VULKAN_ANGLES], shift_angles[VULKAN_ANGLES];
    uint64_t entries;
    size_t n_entries;
    size_t *first_entry; /* [contexts]; entries that no context has are between them */
    size_t cap_first;
    int32_t *shifts; /* [n_shifts]: different ones; shifts[0] is 0 */
    size_t n_shifts, cap_shifts;
    vulkan_row_block *found; /* scratch of a vulkan_sight */
    size_t cap_found;
};

int32_t vulkan_view_blocks(const kv_view *v);

/* ---- addresses of KV (vulkan_tables.c) ---- */

/* Chooses the entries of the step's contexts: first_entry, n_entries. RP_ERR_MEMORY, RP_ERR_BUDGET. */
int vulkan_tables_begin(vulkan_backend *b, rp_error *err);
/* The address of a layer's table: of each entry and KV head, the addresses of keys and values (vulkan_head); of each
 * entry those of an indexer's keys (vulkan_index_keys). What has changed is written. 0: the step has failed. */
uint64_t vulkan_heads(vulkan_backend *b, int32_t layer);
uint64_t vulkan_index_table(vulkan_backend *b, int32_t layer);

/* ---- the step ---- */

/* What rows see in a layer, whatever an indexer chose. */
const vulkan_sight *vulkan_sight_of(const vulkan_attention *a, const model_layer *l);
/* A buffer of at least so many floats, whose content is undefined; false: the step has failed. */
bool vulkan_grow_scratch(vulkan_backend *b, vulkan_buffer *buffer, uint64_t floats);

#endif
