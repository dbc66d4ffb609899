/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_attention.h: the tables of attention, for the files that make, narrow or observe what rows see. */
#ifndef BACKEND_VULKAN_ATTENTION_H
#define BACKEND_VULKAN_ATTENTION_H

#include "backend/vulkan/vulkan_backend.h"

#define VULKAN_TILE_BYTES ((uint64_t)32 << 20) /* of scratch, or what one row needs */
#define VULKAN_ANGLES (MODEL_ROPE_LOCAL_BASE + 1)
#define VULKAN_MAX_SIGHTS 4 /* different reaches of a network's layers */

/* What the rows of a step see through a window, or in one layer. */
typedef struct vulkan_sight {
    int32_t window;                   /* of its layers: the key */
    uint64_t rows, blocks, entries;   /* addresses of the tables */
    uint32_t row_heads, entry_heads;  /* elements from a KV head's table to the next; 0: all heads have one */
    const vulkan_row *host_rows;      /* [KV heads][rows of the step]: the table on the host */
    size_t n_blocks;                  /* of all rows, and KV heads */
    uint32_t most_blocks, most_slots; /* of a row */
} vulkan_sight;

typedef struct vulkan_observers vulkan_observers; /* private to vulkan_observers.c */

struct vulkan_attention {
    const model_rope *ropes[VULKAN_ANGLES]; /* NULL: no layer is of this kind */
    int32_t windows[VULKAN_MAX_SIGHTS], n_sights;
    vulkan_buffer scores, factors, sums; /* scratch */
    vulkan_buffer index_scores;          /* scratch of indexers */
    vulkan_buffer chosen_blocks;         /* vulkan_row_block: of `chosen` */
    /* of rows that choose slots: bounds of groups; what the rows see: vulkan_row, vulkan_row_block */
    vulkan_buffer bounds, bound_rows, bound_blocks;
    vulkan_buffer deviations;
    vulkan_observers *observers;
    /* of the current step */
    vulkan_sight sights[VULKAN_MAX_SIGHTS];
    vulkan_sight chosen; /* by the last indexer, for the layers after it */
    uint64_t row_angles[VULKAN_ANGLES], shift_angles[VULKAN_ANGLES];
    bool is_reduced;      /* a context has a reduced span: KV heads see different slots, in sights of each layer */
    uint64_t choosers;    /* vulkan_chooser [rows]; 0: no row chooses */
    uint32_t most_groups; /* of such a row */
    uint64_t entries;
    size_t n_entries;
    size_t *first_entry; /* [contexts]; entries that no context has are between them */
    size_t cap_first;
    int32_t *shifts; /* [n_shifts]: different ones; shifts[0] is 0 */
    size_t n_shifts, cap_shifts;
    vulkan_row_block *found; /* scratch of a vulkan_sight */
    size_t cap_found;
};

/* The rows of a step that attention takes at once: those whose scratch fits. */
typedef struct vulkan_tile {
    const model_layer *layer;
    const vulkan_sight *sight;
    uint64_t queries, dst, heads;
    uint32_t first, n_rows, stride, splits;
} vulkan_tile;

int32_t vulkan_view_blocks(const kv_view *v);
size_t vulkan_context_blocks(const kv_context *c); /* of all its views */

/* ---- addresses of KV (vulkan_tables.c) ---- */

/* Chooses the entries of the step's contexts: first_entry, n_entries. RP_ERR_MEMORY, RP_ERR_BUDGET. */
int vulkan_tables_begin(vulkan_backend *b, rp_error *err);
/* The address of a layer's table: of each entry and KV head, the addresses of keys and values (vulkan_head); of each
 * entry those of an indexer's keys (vulkan_index_keys). What has changed is written. 0: the step has failed. */
uint64_t vulkan_heads(vulkan_backend *b, int32_t layer);
uint64_t vulkan_index_table(vulkan_backend *b, int32_t layer);
/* Writes the addresses of the keys and values of a block of a span, [KV heads]. */
void vulkan_write_heads(const kv_span *span, int32_t states, int32_t block, int32_t n_kv_heads, vulkan_head *out);

/* ---- the step ---- */

/* What rows see in a layer, whatever an indexer chose. */
const vulkan_sight *vulkan_sight_of(const vulkan_attention *a, const model_layer *l);

/* ---- slots that rows choose (vulkan_slot_bounds.c) ---- */

int vulkan_choices_begin(vulkan_backend *b, rp_error *err); /* of the step, after its entries. RP_ERR_MEMORY */
/* What rows see of a sight, after their choice. false: the step has failed. */
bool vulkan_choose_slots(vulkan_backend *b, const model_layer *l, const backend_buffer *queries,
                         const vulkan_sight *from, vulkan_sight *to);

/* ---- observers of rows (vulkan_observers.c) ---- */

int vulkan_observers_begin(vulkan_backend *b, rp_error *err);      /* of the step, after its entries. RP_ERR_MEMORY */
void vulkan_observe_tile(vulkan_backend *b, const vulkan_tile *t); /* after softmax */
void vulkan_observe_layer(vulkan_backend *b, int32_t layer);       /* after its tiles */
void vulkan_record_queries(vulkan_backend *b, int32_t layer, const backend_buffer *queries);
void vulkan_observers_report(vulkan_backend *b); /* the step is computed */
void vulkan_observers_free(vulkan_backend *b);

#endif
