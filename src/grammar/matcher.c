/* SPDX-License-Identifier: Apache-2.0 */
/* matcher.c: see matcher.h. */
#include "grammar/matcher.h"

#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

/* ---- classes of bytes that no edge and no trigger distinguishes ---- */

static void matcher_make_classes(matcher *m) {
    bool begins[257] = {false};
    const grammar *g = m->g;
    for (size_t i = 0; i < g->n_edges; i++) begins[g->edges[i].low] = begins[g->edges[i].high + 1] = true;
    for (size_t i = 0; i < m->n_trigger; i++) {
        unsigned char byte = (unsigned char)m->trigger[i];
        begins[byte] = begins[byte + 1] = true;
    }
    m->n_classes = 1;
    for (int b = 0; b < 256; b++) {
        m->n_classes += b > 0 && begins[b];
        m->class_of[b] = (uint8_t)(m->n_classes - 1);
    }
    BASE_ASSERT(m->n_classes <= 256);
}

/* ---- the trigger ---- */

static uint32_t matcher_advance(const matcher *m, uint32_t matched, char byte) {
    BASE_DCHECK(matched < m->n_trigger);
    while (matched > 0 && m->trigger[matched] != byte) matched = m->borders[matched - 1];
    return m->trigger[matched] == byte ? matched + 1 : 0;
}

static int open_trigger(matcher *m, const char *trigger, rp_error *err) {
    if (!trigger) return RP_OK;
    m->n_trigger = strlen(trigger);
    m->trigger = base_strdup(trigger);
    m->borders = base_calloc(m->n_trigger, sizeof(*m->borders));
    if (!m->trigger || !m->borders)
        return base_fail_memory(err, m->n_trigger * sizeof(*m->borders), "a grammar's trigger");
    for (size_t i = 1; i < m->n_trigger; i++) m->borders[i] = matcher_advance(m, m->borders[i - 1], trigger[i]);
    return RP_OK;
}

/* ---- a step ---- */

typedef struct item_key {
    const matcher *m;
    matcher_item item;
} item_key;

static bool is_item(const void *user, uint32_t index) {
    const item_key *k = user;
    return k->m->items[index].node == k->item.node && k->m->items[index].cell == k->item.cell;
}

static uint32_t hash_item(matcher_item i) { return index_hash(index_hash(0, i.node), i.cell); }

static int matcher_reach(matcher *m, uint32_t node, uint32_t cell) {
    BASE_DCHECK(node < m->g->n_nodes && cell < m->pool.n_cells);
    item_key key = {m, {node, cell}};
    uint32_t hash = hash_item(key.item);
    if (index_table_find(&m->item_table, hash, is_item, &key) != INDEX_NONE) return RP_OK;
    int rc = base_grow((void **)&m->items, &m->cap_items, m->n_items + 1, MATCHER_MAX_ITEMS, sizeof(*m->items));
    if (!rc) rc = index_table_add(&m->item_table, hash, (uint32_t)m->n_items);
    if (!rc) m->items[m->n_items++] = key.item;
    return rc;
}

static int matcher_call(matcher *m, const grammar_node *node, uint32_t cell) {
    const grammar *g = m->g;
    if (g->nodes[node->next].kind != GRAMMAR_END) { /* else a tail call: it returns to this rule's caller */
        int rc = matcher_pool_push(&m->pool, node->next, cell, &cell);
        if (rc || cell == INDEX_NONE) return rc;
    }
    return matcher_reach(m, g->entries[node->what], cell);
}

static int leave_rule(matcher *m, uint32_t cell) {
    if (cell != 0) return matcher_reach(m, m->pool.cells[cell].node, m->pool.cells[cell].parent);
    m->may_end = true;
    return RP_OK;
}

static int matcher_pass(matcher *m, matcher_item item) {
    const grammar_node *node = &m->g->nodes[item.node];
    switch ((grammar_node_kind)node->kind) {
    case GRAMMAR_UNIT: return matcher_find(m, (matcher_config){item.node, node->what, item.cell});
    case GRAMMAR_CALL: return matcher_call(m, node, item.cell);
    case GRAMMAR_END: return leave_rule(m, item.cell);
    case GRAMMAR_SPLIT: break;
    }
    int rc = matcher_reach(m, node->what, item.cell);
    return rc ? rc : matcher_reach(m, node->next, item.cell);
}

static void add_work(matcher *m, uint64_t n) {
    m->work += n;
    m->debt += n;
}

int matcher_pay(matcher *m) {
    m->debt -= BASE_MIN(m->debt, MATCHER_TOKEN_WORK);
    return m->debt > MATCHER_MAX_DEBT ? RP_ERR_LIMIT : RP_OK;
}

/* Expands the items to all that is reachable before the next byte, and enters the place. */
static int matcher_settle(matcher *m, int32_t *out) {
    int rc = RP_OK;
    for (size_t i = 0; i < m->n_items && !rc; i++) rc = matcher_pass(m, m->items[i]);
    for (size_t i = 0; i < m->n_items; i++) index_table_clear_at(&m->item_table, hash_item(m->items[i]));
    add_work(m, m->n_items);
    m->n_items = 0;
    if (rc) return rc;
    matcher_sort_found(m);
    return matcher_pool_enter(m, out);
}

static int step_config(matcher *m, matcher_config c, uint8_t byte) {
    if (c.node == MATCHER_TRIGGER) {
        c.unit = matcher_advance(m, c.unit, (char)byte);
        m->is_free = c.unit < m->n_trigger;
        return m->is_free ? matcher_find(m, c) : matcher_reach(m, m->g->entries[m->g->root], 0);
    }
    BASE_DCHECK(c.unit < m->g->n_units);
    const grammar_edge *e = m->g->edges + m->g->units[c.unit].first, *end = e + m->g->units[c.unit].n;
    while (e < end && byte > e->high) e++;
    if (e == end || byte < e->low) return RP_OK;
    if (e->unit == GRAMMAR_DONE) return matcher_reach(m, m->g->nodes[c.node].next, c.cell);
    return matcher_find(m, (matcher_config){c.node, e->unit, c.cell});
}

static int compute_step(matcher *m, int32_t place, uint8_t byte, int32_t *out) {
    matcher_place from = m->pool.places[place];
    int rc = RP_OK;
    BASE_ASSERT(m->n_items == 0 && from.first + (size_t)from.n <= m->pool.n_configs);
    m->n_found = 0;
    m->may_end = m->is_free = false;
    for (uint32_t i = 0; i < from.n && !rc; i++) rc = step_config(m, m->pool.configs[from.first + i], byte);
    m->may_end = m->is_free; /* before the trigger the answer may end anywhere */
    add_work(m, from.n);
    int settled = matcher_settle(m, out); /* also after an error: it empties the table */
    if (rc || settled) return rc ? rc : settled;
    int32_t *row = &m->pool.rows[(size_t)place * (size_t)m->n_classes + m->class_of[byte]];
    BASE_ASSERT(*row == MATCHER_UNKNOWN); /* invariant 5: computed once */
    *row = *out;
    return m->work > MATCHER_MAX_WORK ? RP_ERR_LIMIT : RP_OK;
}

/* A byte's step from the last of n places. An eviction changes the indices of the places. */
static int matcher_step(matcher *m, int32_t *places, size_t n, uint8_t byte, int32_t *out) {
    BASE_ASSERT(n > 0 && (size_t)places[n - 1] < m->pool.n_places);
    *out = m->pool.rows[(size_t)places[n - 1] * (size_t)m->n_classes + m->class_of[byte]];
    if (*out != MATCHER_UNKNOWN) return RP_OK;
    bool is_full = matcher_pool_is_full(m);
    int rc = is_full ? matcher_pool_make_room(m, places, n) : RP_OK;
    if (is_full) add_work(m, m->pool.n_configs + m->pool.n_cells); /* copied by the eviction */
    return rc ? rc : compute_step(m, places[n - 1], byte, out);
}

int matcher_walk(matcher *m, int32_t *place, const char *bytes, size_t n, bool *fits) {
    int32_t at = *place;
    int rc = RP_OK;
    m->work = 0;
    for (size_t i = 0; i < n && at != MATCHER_NOWHERE && !rc; i++) {
        int32_t next;
        rc = matcher_step(m, &at, 1, (uint8_t)bytes[i], &next);
        at = next;
    }
    *fits = !rc && at != MATCHER_NOWHERE;
    if (*fits) *place = at;
    return rc;
}

/* ---- tokens ---- */

/* Visits nodes in order and skips the subtree of a node if its byte is not allowed. */
static int walk_trie(matcher *m, const token_trie *t, bool drops_space, uint64_t *bits) {
    m->path[0] = m->place;
    for (uint32_t i = 1; i < t->n_nodes;) {
        size_t depth = t->depths[i];
        BASE_DCHECK(depth > 0 && depth <= t->depth && t->ends[i] > i);
        int32_t next = m->path[0];
        if (!drops_space || depth > 1 || t->bytes[i] != ' ') {
            int rc = matcher_step(m, m->path, depth, t->bytes[i], &next);
            if (rc) return rc;
        }
        if (next == MATCHER_NOWHERE) {
            i = t->ends[i];
            continue;
        }
        m->path[depth] = next;
        for (uint32_t k = t->first[i]; k < t->first[i + 1]; k++) token_mask_add(bits, t->tokens[k]);
        i++;
    }
    return RP_OK;
}

static int matcher_fill(matcher *m, const token_trie *t, bool drops_space, uint64_t *bits) {
    size_t words = token_mask_words(t->n_tokens);
    const matcher_place *place = &m->pool.places[m->place];
    if (place->is_free) memcpy(bits, t->others, words * sizeof(*bits));
    else memset(bits, 0, words * sizeof(*bits));
    for (int32_t i = 0; i < t->n_end_tokens && place->may_end && !place->is_free && !m->no_end; i++)
        token_mask_add(bits, t->end_tokens[i]);
    int rc =
        base_grow((void **)&m->path, &m->path_cap, (size_t)t->depth + 1, TOKEN_TRIE_MAX_DEPTH + 1, sizeof(*m->path));
    m->work = 0;
    return rc ? rc : walk_trie(m, t, drops_space, bits);
}

/* A free mask, or the least recently used one. */
static matcher_mask *oldest_mask(matcher *m) {
    matcher_mask *oldest = &m->masks[0];
    for (int i = 0; i < MATCHER_MASKS; i++) {
        if (m->masks[i].place == MATCHER_UNKNOWN) return &m->masks[i];
        if (m->masks[i].used < oldest->used) oldest = &m->masks[i];
    }
    return oldest;
}

int matcher_allowed(matcher *m, const token_trie *t, bool drops_space, const uint64_t **bits) {
    matcher_mask *mask = NULL;
    for (int i = 0; i < MATCHER_MASKS && !drops_space; i++)
        if (m->masks[i].place == m->place) mask = &m->masks[i];
    if (!mask) {
        mask = oldest_mask(m);
        mask->place = MATCHER_UNKNOWN;
        if (!mask->bits) mask->bits = base_calloc(token_mask_words(t->n_tokens), sizeof(*mask->bits));
        int rc = mask->bits ? matcher_fill(m, t, drops_space, mask->bits) : RP_ERR_MEMORY;
        if (rc) return rc;
        if (!drops_space) mask->place = m->place;
    }
    mask->used = ++m->n_used;
    *bits = mask->bits;
    return RP_OK;
}

/* ---- opening ---- */

int matcher_open(matcher *m, const grammar *g, const char *trigger, rp_error *err) {
    m->g = g;
    m->pool_bytes = MATCHER_POOL_BYTES;
    for (int i = 0; i < MATCHER_MASKS; i++) m->masks[i].place = MATCHER_UNKNOWN;
    int rc = open_trigger(m, trigger, err);
    if (rc) return rc;
    matcher_make_classes(m);
    rc = matcher_pool_open(m);
    m->n_found = 0;
    m->is_free = m->may_end = m->trigger != NULL;
    if (!rc && m->trigger) rc = matcher_find(m, (matcher_config){MATCHER_TRIGGER, 0, 0});
    else if (!rc) rc = matcher_reach(m, g->entries[g->root], 0);
    if (!rc) rc = matcher_settle(m, &m->place);
    if (rc == RP_ERR_LIMIT)
        return base_fail(
            err, (rp_code)rc,
            "the grammar has more than %d initial states: use fewer alternatives, or fewer rules that can be empty",
            MATCHER_MAX_CONFIGS);
    return rc ? base_fail_memory(err, MATCHER_POOL_BYTES, "a grammar") : RP_OK;
}

void matcher_close(matcher *m) {
    matcher_pool_free(&m->pool);
    index_table_free(&m->item_table);
    for (int i = 0; i < MATCHER_MASKS; i++) base_free(m->masks[i].bits);
    base_free(m->trigger);
    base_free(m->borders);
    base_free(m->path);
    base_free(m->items);
    base_free(m->found);
    *m = (matcher){0};
}
