/* SPDX-License-Identifier: Apache-2.0 */
/* vulkan_attention.c: storing KV into blocks, attention over views.
 *
 * Tables of a step (shaders/attention.glsl), in memory that the host writes; addresses of KV are kept between steps
 * (vulkan_tables.c):
 *
 *   entries   one for each block of each view of each context: positions, shift
 *   sights    what rows see, one for each reach (a window, or none): of each row its blocks and masks, with the
 *             number of slots that it sees before each block; with reduced spans, one for each KV head of each layer
 *   angles    of each kind of rotation: of the rows' positions, and of the different shifts
 *
 * Attention takes the rows of a step in tiles that fit the scratch of scores and sums: a row's result does not depend
 * on its tile. In a tile: scores, softmax, values in splits of VULKAN_SPLIT slots, the sum of the splits.
 */
#include <string.h>

#include "backend/vulkan/vulkan_attention.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

#define MAX_ENTRIES ((size_t)1 << 26)
#define MAX_SHIFTS ((size_t)1 << 20)

/* ---- entries ---- */

/* The number of a shift. Few are different: a prompt moves a module as a whole. */
static int number_of_shift(vulkan_attention *a, int32_t shift, uint32_t *out, rp_error *err) {
    size_t i = a->n_shifts;
    while (i > 0 && a->shifts[i - 1] != shift) i--; /* the latest is the most likely */
    *out = (uint32_t)(i - 1);
    if (i > 0) return RP_OK;
    int rc = base_grow((void **)&a->shifts, &a->cap_shifts, a->n_shifts + 1, MAX_SHIFTS, sizeof(*a->shifts));
    if (rc) return base_fail_memory(err, a->n_shifts * sizeof(*a->shifts), "shifts");
    *out = (uint32_t)a->n_shifts;
    a->shifts[a->n_shifts++] = shift;
    return RP_OK;
}

/* Positions of n slots, on the device; 0: out of memory. */
static uint64_t place_positions(vulkan_backend *b, const int32_t *positions, int32_t n) {
    const vulkan_part part = vulkan_arena_take(b, sizeof(*positions) * KV_SPAN_TOKENS);
    if (part.host) memcpy(part.host, positions, sizeof(*positions) * (size_t)n);
    return part.address;
}

/* layer, kv_head: whose slots a reduced span has; -1: positions are not needed of it. */
static int write_view(vulkan_backend *b, const kv_view *v, int32_t layer, int32_t kv_head, vulkan_entry *out,
                      rp_error *err) {
    const bool is_reduced = kv_span_is_reduced(v->span);
    uint32_t shift;
    int rc = number_of_shift(b->attention, v->shift, &shift, err);
    if (rc) return rc;
    const int32_t *positions =
        is_reduced && layer < 0 ? NULL : kv_span_positions(v->span, BASE_MAX(layer, 0), BASE_MAX(kv_head, 0));
    const int32_t n = is_reduced && positions ? kv_span_slots(v->span, layer, kv_head) : kv_span_tokens(v->span);
    const uint64_t places = positions ? place_positions(b, positions, n) : 0;
    const int32_t first = kv_span_position(v->span) + v->shift;
    for (int32_t i = 0; i < vulkan_view_blocks(v); i++)
        out[i] = (vulkan_entry){.positions = positions ? places + sizeof(int32_t) * KV_BLOCK_SLOTS * (size_t)i : 0,
                                .first = positions ? v->shift : first + i * KV_BLOCK_SLOTS,
                                .shift = shift};
    return b->failure.code ? base_fail(err, b->failure.code, "%s", b->failure.message) : RP_OK;
}

/* The table of all entries; layer, kv_head: as of write_view. */
static int write_entries(vulkan_backend *b, int32_t layer, int32_t kv_head, vulkan_entry *entries, rp_error *err) {
    const model_step *step = b->step;
    int rc = RP_OK;
    for (int32_t c = 0; c < step->n_contexts && !rc; c++) {
        vulkan_entry *out = entries + b->attention->first_entry[c];
        for (size_t i = 0; i < step->contexts[c]->n_views && !rc; i++) {
            rc = write_view(b, &step->contexts[c]->views[i], layer, kv_head, out, err);
            out += vulkan_view_blocks(&step->contexts[c]->views[i]);
        }
    }
    return rc;
}

static int make_entries(vulkan_backend *b, rp_error *err) {
    vulkan_attention *a = b->attention;
    const model_step *step = b->step;
    int rc = base_grow((void **)&a->first_entry, &a->cap_first, (size_t)step->n_contexts, SIZE_MAX / 16,
                       sizeof(*a->first_entry));
    if (rc) return base_fail_memory(err, (uint64_t)step->n_contexts * 8, "attention");
    if ((rc = vulkan_tables_begin(b, err))) return rc;
    if (a->n_entries > MAX_ENTRIES)
        return base_fail(err, RP_ERR_LIMIT, "the contexts of a step have more than 2^26 blocks");
    a->is_reduced = false;
    for (int32_t c = 0; c < step->n_contexts; c++)
        for (size_t i = 0; i < step->contexts[c]->n_views; i++)
            a->is_reduced |= kv_span_is_reduced(step->contexts[c]->views[i].span);
    const vulkan_part part = vulkan_arena_take(b, sizeof(vulkan_entry) * a->n_entries);
    if (!part.host) return base_fail(err, b->failure.code, "%s", b->failure.message);
    a->entries = part.address;
    return write_entries(b, -1, -1, part.host, err);
}

/* ---- what rows see ---- */

/* Appends what a row sees of its context in a KV head of a layer to the blocks; returns their number, and the slots in
   *n_slots. */
static size_t see(const vulkan_backend *b, const model_row *row, const vulkan_sight *s, int32_t states, int32_t kv_head,
                  vulkan_row_block *out, uint32_t *n_slots) {
    const kv_context *c = b->step->contexts[row->context];
    const model_layer layer = {.window = s->window};
    int32_t last;
    const int32_t reach = model_layer_reach(&b->net->hp, &layer, row->pos, row->after, &last);
    uint32_t entry = (uint32_t)b->attention->first_entry[row->context], before = 0;
    size_t n = 0;
    for (size_t i = 0; i < c->n_views; i++)
        for (int32_t block = 0; block < vulkan_view_blocks(&c->views[i]); block++, entry++) {
            const uint64_t visible = kv_view_visible(&c->views[i], states, kv_head, block, last, reach);
            if (!visible) continue;
            out[n++] = (vulkan_row_block){entry, before, visible};
            before += (uint32_t)base_popcount64(visible);
        }
    *n_slots = before;
    return n;
}

/* Of n_heads tables: those of the KV heads of a layer of the KV, or one for all of them. */
static int make_sight(vulkan_backend *b, vulkan_sight *s, int32_t states, int32_t n_heads, rp_error *err) {
    vulkan_attention *a = b->attention;
    const model_step *step = b->step;
    const vulkan_part rows = vulkan_arena_take(b, sizeof(vulkan_row) * (size_t)step->n_rows * (size_t)n_heads);
    size_t n = 0;
    for (int32_t i = 0; i < step->n_rows * n_heads && rows.host; i++) {
        const model_row *from = &step->rows[i % step->n_rows];
        const size_t most = vulkan_context_blocks(step->contexts[from->context]);
        if (base_grow((void **)&a->found, &a->cap_found, n + most, MAX_ENTRIES, sizeof(*a->found)))
            return base_fail_memory(err, (n + most) * sizeof(*a->found), "attention");
        vulkan_row *row = (vulkan_row *)rows.host + i;
        row->first_block = (uint32_t)n;
        row->pos = from->pos;
        row->n_blocks = (uint32_t)see(b, from, s, states, i / step->n_rows, a->found + n, &row->n_slots);
        n += row->n_blocks;
        s->most_blocks = BASE_MAX(s->most_blocks, row->n_blocks);
        s->most_slots = BASE_MAX(s->most_slots, row->n_slots);
    }
    const vulkan_part blocks = vulkan_arena_take(b, sizeof(vulkan_row_block) * n);
    if (!rows.host || !blocks.host) return base_fail(err, b->failure.code, "%s", b->failure.message);
    memcpy(blocks.host, a->found, sizeof(vulkan_row_block) * n);
    s->rows = rows.address;
    s->host_rows = rows.host;
    s->n_blocks = n;
    s->blocks = blocks.address;
    s->entries = a->entries;
    s->row_heads = n_heads > 1 ? (uint32_t)step->n_rows : 0;
    return RP_OK;
}

/* Entries of the KV heads of a layer, with the positions of reduced spans' slots. */
static int make_head_entries(vulkan_backend *b, vulkan_sight *s, const model_layer *l, rp_error *err) {
    const size_t n = b->attention->n_entries;
    const vulkan_part part = vulkan_arena_take(b, sizeof(vulkan_entry) * n * (size_t)l->n_kv_heads);
    if (!part.host) return base_fail(err, b->failure.code, "%s", b->failure.message);
    int rc = RP_OK;
    for (int32_t h = 0; h < l->n_kv_heads && !rc; h++)
        rc = write_entries(b, l->states, h, (vulkan_entry *)part.host + (size_t)h * n, err);
    s->entries = part.address;
    s->entry_heads = (uint32_t)n;
    return rc;
}

/* What rows see in a layer of contexts with reduced spans. false: the step has failed. */
static bool make_layer_sight(vulkan_backend *b, const model_layer *l, vulkan_sight *out) {
    rp_error err = {0};
    *out = (vulkan_sight){.window = l->window};
    if (b->failure.code) return false;
    int rc = make_sight(b, out, l->states, l->n_kv_heads, &err);
    if (!rc && b->net->alibi_slopes) rc = make_head_entries(b, out, l, &err); /* others need no positions */
    if (rc) vulkan_step_fail(b, rc, &err);
    return rc == RP_OK;
}

/* ---- angles ---- */

static int make_angles(vulkan_backend *b, int kind, rp_error *err) {
    vulkan_attention *a = b->attention;
    const model_rope *rope = a->ropes[kind];
    const size_t bytes = sizeof(float) * (size_t)rope->rot_dim, n_rows = (size_t)b->step->n_rows;
    const vulkan_part rows = vulkan_arena_take(b, bytes * n_rows), shifts = vulkan_arena_take(b, bytes * a->n_shifts);
    if (!rows.host || !shifts.host) return base_fail(err, b->failure.code, "%s", b->failure.message);
    for (size_t r = 0; r < n_rows; r++)
        model_rope_angles(rope, b->step->rows[r].pos, rope->magnitude, (float *)((char *)rows.host + bytes * r));
    for (size_t i = 0; i < a->n_shifts; i++)
        model_rope_angles(rope, a->shifts[i], 1.0f, (float *)((char *)shifts.host + bytes * i));
    a->row_angles[kind] = rows.address;
    a->shift_angles[kind] = shifts.address;
    return RP_OK;
}

int vulkan_attention_begin(vulkan_backend *b, rp_error *err) {
    vulkan_attention *a = b->attention;
    a->n_shifts = 1;
    a->shifts[0] = 0;
    a->chosen = (vulkan_sight){0};
    int rc = make_entries(b, err);
    for (int32_t i = 0; i < a->n_sights && !rc && !a->is_reduced; i++) {
        a->sights[i] = (vulkan_sight){.window = a->windows[i]};
        rc = make_sight(b, &a->sights[i], 0, 1, err);
    }
    if (!rc) rc = vulkan_choices_begin(b, err);
    if (!rc) rc = vulkan_observers_begin(b, err);
    for (int i = 0; i < VULKAN_ANGLES && !rc; i++)
        if (a->ropes[i]) rc = make_angles(b, i, err);
    return rc;
}

const vulkan_sight *vulkan_sight_of(const vulkan_attention *a, const model_layer *l) {
    int32_t i = 0;
    BASE_ASSERT(!a->is_reduced);
    while (a->windows[i] != l->window) i++;
    BASE_ASSERT(i < a->n_sights);
    return &a->sights[i];
}

/* ---- storing ---- */

void vulkan_store(backend *self, int32_t layer, backend_buffer *keys, const backend_buffer *values) {
    vulkan_backend *b = vulkan(self);
    const model_layer *l = &b->net->layers[layer];
    const int32_t rows = b->step->n_rows, n_heads = l->n_kv_heads;
    const vulkan_part part = vulkan_arena_take(b, sizeof(vulkan_slot) * (size_t)rows * (size_t)n_heads);
    BASE_ASSERT(l->owns_kv && keys->width == n_heads * l->key_dim);
    BASE_ASSERT(values ? values->width == n_heads * l->value_dim : b->net->hp.plain_key_dim > 0);
    if (!part.host) return;
    vulkan_memory_await_rows(b->memory, l->states);
    vulkan_slot *slot = part.host;
    bool is_int8 = false;
    for (int32_t r = 0; r < rows; r++) {
        const model_row *row = &b->step->rows[r];
        const int32_t block = row->slot / KV_BLOCK_SLOTS;
        const rp_kv_format format = kv_span_layer_format(row->span, l->states);
        const uint32_t element = vulkan_element_of(format, true);
        BASE_DCHECK(!kv_span_is_sealed(row->span)); /* invariant 2 of kv/ */
        BASE_ASSERT(!kv_format_is_encoded(format) && element == vulkan_element_of(format, false));
        is_int8 = is_int8 || element == VULKAN_ELEMENT_INT8;
        for (int32_t h = 0; h < n_heads; h++, slot++)
            *slot = (vulkan_slot){.keys = kv_span_keys(row->span, l->states, block, h).at,
                                  .values = kv_span_values(row->span, l->states, block, h).at,
                                  .element = element,
                                  .slot = (uint32_t)(row->slot % KV_BLOCK_SLOTS)};
    }
    const model_rope *rope = l->rope == MODEL_NO_ROPE ? NULL : b->attention->ropes[l->rope];
    const vulkan_store_args a = {.keys = keys->memory.address,
                                 .values = values ? values->memory.address : 0,
                                 .angles = rope ? b->attention->row_angles[l->rope] : 0,
                                 .slots = part.address,
                                 .n_heads = (uint32_t)n_heads,
                                 .key_dim = (uint32_t)l->key_dim,
                                 .value_dim = values ? (uint32_t)l->value_dim : 0, /* latent: parts of the keys */
                                 .rot_dim = rope ? (uint32_t)rope->rot_dim : 0};
    const uint32_t groups[3] = {(uint32_t)n_heads, (uint32_t)rows, 1};
    vulkan_dispatch(b, VULKAN_STORE, b->net->hp.rope_halves, &a, sizeof(a), groups);
    if (is_int8) vulkan_dispatch_beside(b, VULKAN_STORE_INT8, b->net->hp.rope_halves, &a, sizeof(a), groups);
}

/* ---- attending ---- */

static void record_scores(vulkan_backend *b, const vulkan_tile *t) {
    const vulkan_attention *at = b->attention;
    const model_layer *l = t->layer;
    const model_rope *rope = l->rope == MODEL_NO_ROPE ? NULL : at->ropes[l->rope];
    const model_weight slopes = {.data = b->net->alibi_slopes, .type = KERNEL_F32, .n_in = l->n_heads, .n_out = 1};
    const vulkan_scores_args a = {.queries = t->queries,
                                  .scores = at->scores.address,
                                  .rows = t->sight->rows,
                                  .blocks = t->sight->blocks,
                                  .entries = t->sight->entries,
                                  .heads = t->heads,
                                  .angles = rope ? at->row_angles[l->rope] : 0,
                                  .shifts = rope ? at->shift_angles[l->rope] : 0,
                                  .weights = vulkan_weight(b, &l->query_weights),
                                  .slopes = vulkan_weight(b, &slopes),
                                  .n_heads = (uint32_t)l->n_heads,
                                  .n_kv_heads = (uint32_t)l->n_kv_heads,
                                  .key_dim = (uint32_t)l->key_dim,
                                  .rot_dim = rope ? (uint32_t)rope->rot_dim : 0,
                                  .stride = t->stride,
                                  .first_row = t->first,
                                  .scale = b->net->hp.score_scale,
                                  .cap = b->net->hp.score_cap,
                                  .row_heads = t->sight->row_heads,
                                  .entry_heads = t->sight->entry_heads};
    const uint32_t groups = BASE_DIV_UP(t->sight->most_blocks, VULKAN_BLOCKS);
    vulkan_dispatch(b, VULKAN_SCORES, b->net->hp.rope_halves, &a, sizeof(a),
                    (uint32_t[]){groups, (uint32_t)l->n_kv_heads, t->n_rows});
}

static void record_softmax(vulkan_backend *b, const vulkan_tile *t) {
    const vulkan_softmax_args a = {.scores = b->attention->scores.address,
                                   .factors = b->attention->factors.address,
                                   .rows = t->sight->rows,
                                   .sinks = vulkan_weight(b, &t->layer->sinks),
                                   .n_heads = (uint32_t)t->layer->n_heads,
                                   .stride = t->stride,
                                   .first_row = t->first,
                                   .group = (uint32_t)(t->layer->n_heads / t->layer->n_kv_heads),
                                   .row_heads = t->sight->row_heads};
    vulkan_dispatch(b, VULKAN_SOFTMAX, 0, &a, sizeof(a), (uint32_t[]){(uint32_t)t->layer->n_heads, t->n_rows, 1});
}

static void record_values(vulkan_backend *b, const vulkan_tile *t) {
    const vulkan_attention *at = b->attention;
    const model_layer *l = t->layer;
    const vulkan_values_args a = {.scores = at->scores.address,
                                  .sums = at->sums.address,
                                  .rows = t->sight->rows,
                                  .blocks = t->sight->blocks,
                                  .heads = t->heads,
                                  .n_heads = (uint32_t)l->n_heads,
                                  .n_kv_heads = (uint32_t)l->n_kv_heads,
                                  .value_dim = (uint32_t)l->value_dim,
                                  .stride = t->stride,
                                  .first_row = t->first,
                                  .splits = t->splits,
                                  .row_heads = t->sight->row_heads};
    vulkan_dispatch(b, VULKAN_VALUES, b->net->hp.plain_key_dim > 0, &a, sizeof(a),
                    (uint32_t[]){t->splits, (uint32_t)l->n_kv_heads, t->n_rows});
    const vulkan_join_args join = {.sums = at->sums.address,
                                   .factors = at->factors.address,
                                   .rows = t->sight->rows,
                                   .dst = t->dst,
                                   .n_heads = (uint32_t)l->n_heads,
                                   .value_dim = (uint32_t)l->value_dim,
                                   .first_row = t->first,
                                   .splits = t->splits,
                                   .n_rows = t->n_rows,
                                   .group = (uint32_t)(l->n_heads / l->n_kv_heads),
                                   .row_heads = t->sight->row_heads};
    const uint64_t n = BASE_DIV_UP((uint64_t)t->n_rows * join.n_heads * join.value_dim, 64);
    vulkan_dispatch(b, VULKAN_JOIN, 0, &join, sizeof(join), (uint32_t[]){(uint32_t)BASE_MIN(n, 8192), 1, 1});
}

void vulkan_attend(backend *self, int32_t layer, const backend_buffer *queries, backend_buffer *dst) {
    vulkan_backend *b = vulkan(self);
    vulkan_attention *at = b->attention;
    const model_layer *l = &b->net->layers[layer];
    vulkan_sight own, chosen;
    const vulkan_sight *s = l->is_chosen ? &at->chosen : at->is_reduced ? &own
                                                                        : vulkan_sight_of(at, l);
    const uint64_t heads = (uint64_t)l->n_heads, rows = (uint64_t)b->step->n_rows;
    BASE_ASSERT(s != &at->chosen || s->rows != 0 || b->failure.code); /* an indexer chose in this step */
    BASE_ASSERT(!l->is_chosen || (!at->is_reduced && !at->choosers)); /* KV of indexers is not reduced */
    BASE_ASSERT(queries->width == l->n_heads * l->key_dim && dst->width == l->n_heads * l->value_dim);
    vulkan_memory_await_contexts(b->memory, l->states);
    vulkan_record_queries(b, layer, queries);
    if (s == &own && !make_layer_sight(b, l, &own)) return;
    if (at->choosers) {
        if (!vulkan_choose_slots(b, l, queries, s, &chosen)) return;
        s = &chosen;
    }
    vulkan_tile t = {.layer = l,
                     .sight = s,
                     .queries = queries->memory.address,
                     .dst = dst->memory.address,
                     .heads = vulkan_heads(b, layer),
                     .stride = BASE_DIV_UP(BASE_MAX(s->most_slots, 1), 64) * 64,
                     .splits = BASE_DIV_UP(BASE_MAX(s->most_slots, 1), VULKAN_SPLIT)};
    const uint64_t row_floats = heads * (t.stride + (uint64_t)t.splits * (uint64_t)l->value_dim);
    const uint64_t at_once = BASE_MIN(BASE_MAX(VULKAN_TILE_BYTES / sizeof(float) / row_floats, 1), rows);
    if (!vulkan_grow_scratch(b, &at->scores, at_once * heads * t.stride) ||
        !vulkan_grow_scratch(b, &at->factors, at_once * heads) ||
        !vulkan_grow_scratch(b, &at->sums, at_once * heads * t.splits * (uint64_t)l->value_dim))
        return;
    for (uint64_t r = 0; r < rows; r += at_once) {
        t.first = (uint32_t)r;
        t.n_rows = (uint32_t)BASE_MIN(at_once, rows - r);
        record_scores(b, &t);
        record_softmax(b, &t);
        vulkan_observe_tile(b, &t);
        record_values(b, &t);
    }
    vulkan_observe_layer(b, layer);
}

/* ---- life ---- */

int vulkan_attention_open(vulkan_backend *b, rp_error *err) {
    vulkan_attention *a = b->attention = base_calloc(1, sizeof(*a));
    if (!a) return base_fail_memory(err, sizeof(*a), "attention");
    if (base_grow((void **)&a->shifts, &a->cap_shifts, 1, MAX_SHIFTS, sizeof(*a->shifts)))
        return base_fail_memory(err, sizeof(*a->shifts), "attention");
    const int32_t n_layers = b->net->hp.n_layers + (b->net->draft_head.projection.data != NULL);
    for (int32_t i = 0; i < n_layers; i++) {
        const model_layer *l = &b->net->layers[i];
        if (!model_mixer_attends(l->mixer)) continue;
        if (l->rope != MODEL_NO_ROPE) a->ropes[l->rope] = model_layer_rope(b->net, l->rope, b->n_ctx);
        int32_t k = 0;
        while (k < a->n_sights && a->windows[k] != l->window) k++;
        if (k < a->n_sights) continue;
        if (k == VULKAN_MAX_SIGHTS)
            return base_fail(err, RP_ERR_UNSUPPORTED, "layers have more than %d windows", VULKAN_MAX_SIGHTS);
        a->windows[a->n_sights++] = l->window;
    }
    return RP_OK;
}

void vulkan_attention_free(vulkan_backend *b) {
    vulkan_attention *a = b->attention;
    if (!a) return;
    vulkan_give(b, &a->scores);
    vulkan_give(b, &a->factors);
    vulkan_give(b, &a->sums);
    vulkan_give(b, &a->index_scores);
    vulkan_give(b, &a->chosen_blocks);
    vulkan_give(b, &a->bounds);
    vulkan_give(b, &a->bound_rows);
    vulkan_give(b, &a->bound_blocks);
    vulkan_give(b, &a->deviations);
    vulkan_observers_free(b);
    base_free(a->first_entry);
    base_free(a->shifts);
    base_free(a->found);
    base_free(a);
}
