/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_tables.c: addresses of KV, which the host writes once and keeps between steps.
 *
 *   a layer's table   [entries][KV heads]: the addresses of a block's keys and values
 *   entries           | of a context ... free | of another ... free |     blocks of views, in the order of a context
 *
 * A context keeps its entries from step to step, with space for more blocks. Each entry of each table has the name of
 * the block that was written there (kv_span_serial, and its number in the span): it is written again if another block
 * takes its place. Contexts are recognised by their address; one that is another context by now only has other blocks.
 *
 * Memory is the host's, and no step is computed while it is written.
 */
#include <string.h>

#include "backend/vulkan/vulkan_attention.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

#define FIRST_ENTRIES 256
#define MAX_KEPT ((size_t)1 << 20)
#define SPARE 8         /* entries that a context gets besides a half of its own */
#define MOST_STALE 1024 /* entries of contexts that are in no step any more, besides as many as are in this one */

typedef struct kept_context {
    const kv_context *context;
    size_t first, cap;
    uint64_t step; /* the last that it was in */
} kept_context;

struct vulkan_tables {
    vulkan_buffer memory; /* all tables */
    size_t cap;           /* entries of each */
    size_t used;          /* entries that contexts have */
    int32_t n_tables;     /* of layers, with those of indexers after them */
    uint64_t *at;         /* [n_tables + 1]: bytes of an entry in the tables before */
    uint64_t *written;    /* [n_tables][cap]: name of the block; 0: none */
    kept_context *kept;   /* [n_kept] */
    size_t n_kept, cap_kept;
    uint64_t step;
};

/* ---- blocks ---- */

int32_t vulkan_view_blocks(const kv_view *v) { return BASE_DIV_UP(kv_span_tokens(v->span), KV_BLOCK_SLOTS); }

size_t vulkan_context_blocks(const kv_context *c) {
    size_t n = 0;
    for (size_t i = 0; i < c->n_views; i++) n += (size_t)vulkan_view_blocks(&c->views[i]);
    return n;
}

void vulkan_write_heads(const kv_span *span, int32_t states, int32_t block, int32_t n_kv_heads, vulkan_head *out) {
    const rp_kv_format format = kv_span_layer_format(span, states);
    const uint32_t keys = vulkan_element_of(format, true), values = vulkan_element_of(format, false);
    const bool is_reduced = kv_span_is_reduced(span);
    for (int32_t h = 0; h < n_kv_heads; h++) {
        out[h] = (vulkan_head){.key_element = keys, .value_element = values};
        if (is_reduced ? block * KV_BLOCK_SLOTS >= kv_span_slots(span, states, h)
                       : !kv_span_has(span, states, block)) /* out of reach of the window */
            continue;
        out[h].keys = kv_span_keys(span, states, block, h).at;
        out[h].values = kv_span_values(span, states, block, h).at;
    }
}

/* ---- tables ---- */

static int32_t layers_of(const vulkan_backend *b) {
    return b->net->hp.n_layers + (b->net->draft_head.projection.data != NULL);
}

/* The layer whose table a layer uses: those with the same KV share one. A draft head's KV is of another pool. */
static int32_t owner_of(const vulkan_backend *b, int32_t layer) {
    int32_t owner = layer;
    for (int32_t i = 0; i < layer && layer < b->net->hp.n_layers; i++)
        if (model_mixer_attends(b->net->layers[i].mixer) && b->net->layers[i].states == b->net->layers[layer].states)
            return i;
    return owner;
}

int vulkan_tables_open(vulkan_backend *b, rp_error *err) {
    const int32_t n = layers_of(b);
    vulkan_tables *t = b->tables = base_calloc(1, sizeof(*t));
    if (t) t->at = base_calloc((size_t)(2 * n) + 1, sizeof(*t->at));
    if (!t || !t->at) return base_fail_memory(err, sizeof(*t), "tables of KV");
    t->n_tables = 2 * n;
    for (int32_t i = 0; i < 2 * n; i++) {
        const model_layer *l = &b->net->layers[i % n];
        uint64_t bytes = 0;
        if (i < n && model_mixer_attends(l->mixer) && owner_of(b, i) == i)
            bytes = sizeof(vulkan_head) * (uint64_t)l->n_kv_heads;
        if (i >= n && l->index >= 0 && l->index_k.data) bytes = sizeof(vulkan_index_keys);
        t->at[i + 1] = t->at[i] + bytes;
    }
    return RP_OK;
}

void vulkan_tables_free(vulkan_backend *b) {
    vulkan_tables *t = b->tables;
    if (!t) return;
    vulkan_give(b, &t->memory);
    base_free(t->at);
    base_free(t->written);
    base_free(t->kept);
    base_free(t);
}

/* ---- entries of contexts ---- */

static void forget_all(vulkan_tables *t) {
    t->n_kept = t->used = 0;
    if (t->written) memset(t->written, 0, sizeof(*t->written) * (size_t)t->n_tables * t->cap);
}

/* Larger tables, in which nothing is written. */
static int grow(vulkan_backend *b, size_t n, rp_error *err) {
    vulkan_tables *t = b->tables;
    size_t cap = BASE_MAX(t->cap, FIRST_ENTRIES);
    vulkan_buffer memory;
    while (cap < n) cap *= 2;
    uint64_t *written = base_alloc(sizeof(*written) * (size_t)t->n_tables * cap);
    if (!written) return base_fail_memory(err, sizeof(*written) * (size_t)t->n_tables * cap, "tables of KV");
    const int rc =
        vulkan_take(b, VULKAN_TO_DEVICE, BASE_MAX(cap * t->at[t->n_tables], 4), "tables of KV", &memory, err);
    if (rc) {
        base_free(written);
        return rc;
    }
    vulkan_give(b, &t->memory); /* no step is computed */
    base_free(t->written);
    t->memory = memory;
    t->written = written;
    t->cap = cap;
    forget_all(t);
    return RP_OK;
}

static kept_context *find_kept(const vulkan_tables *t, const kv_context *c, size_t guess) {
    if (guess < t->n_kept && t->kept[guess].context == c) return &t->kept[guess];
    for (size_t i = 0; i < t->n_kept; i++)
        if (t->kept[i].context == c) return &t->kept[i];
    return NULL;
}

/* Gives a context n entries or more; NULL: there are not as many. */
static kept_context *give_entries(vulkan_tables *t, const kv_context *c, size_t n, size_t guess) {
    kept_context *k = find_kept(t, c, guess);
    const size_t cap = n + n / 2 + SPARE;
    if (k && k->cap >= n) return k;
    if (k && k->first + k->cap == t->used && k->first + cap <= t->cap) { /* the last one stays where it is */
        t->used = k->first + cap;
        k->cap = cap;
        return k;
    }
    if (t->used + cap > t->cap) return NULL;
    if (!k) {
        if (base_grow((void **)&t->kept, &t->cap_kept, t->n_kept + 1, MAX_KEPT, sizeof(*t->kept))) return NULL;
        k = &t->kept[t->n_kept++];
    }
    *k = (kept_context){.context = c, .first = t->used, .cap = cap};
    t->used += cap;
    return k;
}

/* Entries for all contexts of the step; false: they do not fit. */
static bool place_contexts(vulkan_backend *b) {
    vulkan_tables *t = b->tables;
    vulkan_attention *a = b->attention;
    a->n_entries = 0;
    for (int32_t c = 0; c < b->step->n_contexts; c++) {
        const size_t n = vulkan_context_blocks(b->step->contexts[c]);
        kept_context *k = give_entries(t, b->step->contexts[c], n, (size_t)c);
        if (!k) return false;
        k->step = t->step;
        a->first_entry[c] = k->first;
        a->n_entries = BASE_MAX(a->n_entries, k->first + n);
    }
    return true;
}

int vulkan_tables_begin(vulkan_backend *b, rp_error *err) {
    vulkan_tables *t = b->tables;
    size_t need = 0;
    t->step++;
    for (int32_t c = 0; c < b->step->n_contexts; c++) {
        const size_t n = vulkan_context_blocks(b->step->contexts[c]);
        need += n + n / 2 + SPARE;
    }
    if (t->used > 2 * need + MOST_STALE) forget_all(t); /* of requests that have ended */
    if (t->cap >= need && t->cap > 0 && place_contexts(b)) return RP_OK;
    forget_all(t);
    if (need > t->cap || t->cap == 0) {
        const int rc = grow(b, need, err);
        if (rc) return rc;
    }
    if (place_contexts(b)) return RP_OK;
    return base_fail_memory(err, sizeof(*t->kept) * (size_t)b->step->n_contexts, "tables of KV");
}

/* ---- what is in them ---- */

static void write_heads(const vulkan_backend *b, const kv_span *span, int32_t layer, int32_t block, void *to) {
    const model_layer *l = &b->net->layers[layer];
    vulkan_write_heads(span, l->states, block, l->n_kv_heads, to);
}

static void write_index_keys(const vulkan_backend *b, const kv_span *span, int32_t layer, int32_t block, void *to) {
    const model_layer *l = &b->net->layers[layer];
    const rp_kv_format format = kv_span_layer_format(span, l->index);
    const bool has = kv_span_has(span, l->index, block);
    BASE_ASSERT(format == RP_KV_F32 || format == RP_KV_F16); /* of latent layers */
    *(vulkan_index_keys *)to = (vulkan_index_keys){.keys = has ? kv_span_keys(span, l->index, block, 0).at : 0,
                                                   .is_f16 = format == RP_KV_F16};
}

/* Writes what is not in a table yet; returns its address. 0: the step has failed. */
static uint64_t fill(vulkan_backend *b, int32_t table, int32_t layer,
                     void (*write)(const vulkan_backend *, const kv_span *, int32_t, int32_t, void *)) {
    vulkan_tables *t = b->tables;
    const uint64_t bytes = t->at[table + 1] - t->at[table], first = t->at[table] * t->cap;
    BASE_ASSERT(table < t->n_tables && bytes > 0);
    if (b->failure.code) return 0;
    for (int32_t c = 0; c < b->step->n_contexts; c++) {
        size_t entry = b->attention->first_entry[c];
        const kv_context *context = b->step->contexts[c];
        for (size_t i = 0; i < context->n_views; i++)
            for (int32_t block = 0; block < vulkan_view_blocks(&context->views[i]); block++, entry++) {
                const kv_span *span = context->views[i].span;
                const uint64_t name = kv_span_serial(span) * KV_SPAN_BLOCKS + (uint64_t)block;
                uint64_t *written = &t->written[(size_t)table * t->cap + entry];
                BASE_DCHECK(entry < t->used);
                if (*written == name) continue;
                write(b, span, layer, block, t->memory.mapped + first + entry * bytes);
                *written = name;
                b->counts.table_bytes += bytes;
            }
    }
    return t->memory.address + first;
}

uint64_t vulkan_heads(vulkan_backend *b, int32_t layer) {
    const int32_t owner = owner_of(b, layer);
    BASE_ASSERT(b->net->layers[owner].n_kv_heads == b->net->layers[layer].n_kv_heads);
    return fill(b, owner, owner, write_heads);
}

uint64_t vulkan_index_table(vulkan_backend *b, int32_t layer) {
    return fill(b, layers_of(b) + layer, layer, write_index_keys);
}
