/* SPDX-License-Identifier: Apache-2.0 */
/* matcher_pool.c: the pool of places and cells, each stored once, and the eviction of unused ones. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "grammar/matcher.h"

#define MAX_ITEMS_OF_POOL ((size_t)1 << 24) /* far above MATCHER_POOL_BYTES */

/* ---- cells ---- */

typedef struct cell_key {
    const matcher_pool *pool;
    uint32_t node, parent;
} cell_key;

static bool is_cell(const void *user, uint32_t index) {
    const cell_key *k = user;
    const matcher_cell *c = &k->pool->cells[index];
    return c->node == k->node && c->parent == k->parent;
}

static int add_cell(matcher_pool *p, matcher_cell cell, uint32_t hash, uint32_t *out) {
    int rc = base_grow((void **)&p->cells, &p->cap_cells, p->n_cells + 1, MAX_ITEMS_OF_POOL, sizeof(*p->cells));
    if (!rc) rc = index_table_add(&p->cell_table, hash, (uint32_t)p->n_cells);
    if (rc) return rc;
    p->cells[p->n_cells] = cell;
    *out = (uint32_t)p->n_cells++;
    return RP_OK;
}

int matcher_pool_push(matcher_pool *p, uint32_t node, uint32_t parent, uint32_t *out) {
    BASE_ASSERT(parent < p->n_cells && p->cells[parent].depth <= MATCHER_MAX_NESTING); /* invariant 4 */
    uint32_t hash = index_hash(index_hash(0, node), parent), depth = p->cells[parent].depth + 1;
    cell_key key = {p, node, parent};
    *out = index_table_find(&p->cell_table, hash, is_cell, &key);
    if (*out != INDEX_NONE || depth > MATCHER_MAX_NESTING) return RP_OK;
    return add_cell(p, (matcher_cell){node, parent, depth}, hash, out);
}

/* ---- places ---- */

int matcher_find(matcher *m, matcher_config config) {
    int rc = base_grow((void **)&m->found, &m->cap_found, m->n_found + 1, MATCHER_MAX_CONFIGS, sizeof(*m->found));
    if (!rc) m->found[m->n_found++] = config;
    return rc;
}

static int compare_configs(const void *a, const void *b) {
    const matcher_config *x = a, *y = b;
    if (x->node != y->node) return x->node < y->node ? -1 : 1;
    if (x->unit != y->unit) return x->unit < y->unit ? -1 : 1;
    return (x->cell > y->cell) - (x->cell < y->cell);
}

void matcher_sort_found(matcher *m) {
    size_t n = 0;
    if (m->n_found > 1) qsort(m->found, m->n_found, sizeof(*m->found), compare_configs);
    for (size_t i = 0; i < m->n_found; i++)
        if (n == 0 || compare_configs(&m->found[n - 1], &m->found[i]) != 0) m->found[n++] = m->found[i];
    m->n_found = n;
}

BASE_UNUSED static bool found_is_sorted(const matcher *m) {
    for (size_t i = 1; i < m->n_found; i++)
        if (compare_configs(&m->found[i - 1], &m->found[i]) >= 0) return false;
    return true;
}

static bool is_place(const void *user, uint32_t index) {
    const matcher *m = user;
    const matcher_place *p = &m->pool.places[index];
    return p->n == m->n_found && p->may_end == m->may_end && p->is_free == m->is_free &&
           (p->n == 0 || memcmp(m->pool.configs + p->first, m->found, p->n * sizeof(*m->found)) == 0);
}

static int add_place(matcher *m, uint32_t hash, int32_t *out) {
    matcher_pool *p = &m->pool;
    size_t n_classes = (size_t)m->n_classes;
    int rc;
    BASE_ASSERT(m->n_found <= MATCHER_MAX_CONFIGS); /* invariant 4 */
    if ((rc = base_grow((void **)&p->configs, &p->cap_configs, p->n_configs + m->n_found, MAX_ITEMS_OF_POOL,
                        sizeof(*p->configs))) ||
        (rc = base_grow((void **)&p->places, &p->cap_places, p->n_places + 1, MAX_ITEMS_OF_POOL, sizeof(*p->places))) ||
        (rc = base_grow((void **)&p->rows, &p->cap_rows, (p->n_places + 1) * n_classes, MAX_ITEMS_OF_POOL,
                        sizeof(*p->rows))) ||
        (rc = index_table_add(&p->place_table, hash, (uint32_t)p->n_places)))
        return rc;
    p->places[p->n_places] = (matcher_place){(uint32_t)p->n_configs, (uint32_t)m->n_found, m->may_end, m->is_free};
    if (m->n_found > 0) memcpy(p->configs + p->n_configs, m->found, m->n_found * sizeof(*m->found));
    p->n_configs += m->n_found;
    for (size_t i = 0; i < n_classes; i++) p->rows[p->n_places * n_classes + i] = MATCHER_UNKNOWN;
    *out = (int32_t)p->n_places++;
    return RP_OK;
}

int matcher_pool_enter(matcher *m, int32_t *out) {
    uint32_t hash = index_hash(0, 2U * m->may_end + m->is_free);
    for (size_t i = 0; i < m->n_found; i++)
        hash = index_hash(index_hash(index_hash(hash, m->found[i].node), m->found[i].unit), m->found[i].cell);
    const uint32_t index = index_table_find(&m->pool.place_table, hash, is_place, m);
    BASE_DCHECK(found_is_sorted(m)); /* invariant 5: equal positions are found as equal bytes */
    if (index == INDEX_NONE) return add_place(m, hash, out);
    *out = (int32_t)index;
    return RP_OK;
}

/* ---- the pool ---- */

int matcher_pool_open(matcher *m) {
    uint32_t bottom;
    int32_t nowhere;
    m->pool = (matcher_pool){0};
    m->n_found = 0;
    m->may_end = m->is_free = false;
    int rc = add_cell(&m->pool, (matcher_cell){0}, 0, &bottom);
    return rc ? rc : matcher_pool_enter(m, &nowhere);
}

void matcher_pool_free(matcher_pool *p) {
    base_free(p->cells);
    base_free(p->configs);
    base_free(p->places);
    base_free(p->rows);
    index_table_free(&p->cell_table);
    index_table_free(&p->place_table);
    *p = (matcher_pool){0};
}

static size_t used_bytes(const matcher *m) {
    const matcher_pool *p = &m->pool;
    return p->n_cells * (sizeof(*p->cells) + 2 * sizeof(index_slot)) + p->n_configs * sizeof(*p->configs) +
           p->n_places * (sizeof(*p->places) + 2 * sizeof(index_slot) + (size_t)m->n_classes * sizeof(*p->rows));
}

bool matcher_pool_is_full(const matcher *m) { return used_bytes(m) > m->pool_bytes; }

/* ---- eviction ---- */

/* Copies a stack to the new pool. map: [cells of the old pool]; INDEX_NONE: not copied yet. */
static int copy_stack(matcher_pool *to, const matcher_pool *from, uint32_t *map, uint32_t cell) {
    uint32_t chain[MATCHER_MAX_NESTING];
    size_t n = 0;
    BASE_ASSERT(cell < from->n_cells && from->cells[cell].depth <= MATCHER_MAX_NESTING);
    for (uint32_t c = cell; map[c] == INDEX_NONE; c = from->cells[c].parent) chain[n++] = c;
    while (n-- > 0) {
        const matcher_cell *c = &from->cells[chain[n]];
        int rc = matcher_pool_push(to, c->node, map[c->parent], &map[chain[n]]);
        if (rc) return rc;
        BASE_ASSERT(map[chain[n]] != INDEX_NONE); /* as deep as it was */
    }
    return RP_OK;
}

static int copy_place(matcher *m, const matcher_pool *from, uint32_t *map, int32_t *place) {
    const matcher_place *p = &from->places[*place];
    int rc = RP_OK;
    m->n_found = 0;
    m->may_end = p->may_end;
    m->is_free = p->is_free;
    for (uint32_t i = 0; i < p->n && !rc; i++) {
        matcher_config c = from->configs[p->first + i];
        rc = copy_stack(&m->pool, from, map, c.cell);
        c.cell = map[c.cell];
        if (!rc) rc = matcher_find(m, c);
    }
    if (rc) return rc;
    matcher_sort_found(m);
    return matcher_pool_enter(m, place);
}

int matcher_pool_make_room(matcher *m, int32_t *places, size_t n) {
    matcher_pool old = m->pool;
    int32_t here = m->place;
    uint32_t *map = base_alloc(old.n_cells * sizeof(*map));
    int rc = map ? matcher_pool_open(m) : RP_ERR_MEMORY;
    if (!map) return rc;
    for (size_t i = 0; i < old.n_cells; i++) map[i] = i == 0 ? 0 : INDEX_NONE;
    if (!rc) rc = copy_place(m, &old, map, &m->place);
    for (size_t i = 0; i < n && !rc; i++) rc = copy_place(m, &old, map, &places[i]);
    base_free(map);
    if (rc) {
        matcher_pool_free(&m->pool);
        m->pool = old;
        m->place = here;
        return rc;
    }
    matcher_pool_free(&old);
    for (int i = 0; i < MATCHER_MASKS; i++) m->masks[i].place = m->masks[i].place == here ? m->place : MATCHER_UNKNOWN;
    return used_bytes(m) > m->pool_bytes / 2 ? RP_ERR_LIMIT : RP_OK;
}
