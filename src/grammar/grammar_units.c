/* SPDX-License-Identifier: Apache-2.0 */
/* grammar_units.c: converts sets of characters to units: bytes of UTF-8.
 *
 * The code points that remain possible after a lead byte, and after each continuation byte, are a block of 64^k. All
 * blocks that the set contains as a whole share one unit; a block that it contains in part is divided into its 64
 * sub-blocks. The ends of the set's ranges bound the work: each lies in one block of each size.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "grammar/grammar_internal.h"

#define LAST_CODE_POINT 0x10ffffu
#define NOTHING UINT32_MAX /* no unit: not in the set */

typedef struct class_set {
    grammar *g;
    const grammar_range *ranges; /* sorted, disjoint */
    size_t n;
    uint32_t min, max; /* code points of the current UTF-8 length */
    uint32_t whole[4]; /* units of whole blocks, of k bytes; 0: not added yet */
    int rc;
} class_set;

/* ---- ranges ---- */

static int by_low(const void *a, const void *b) {
    uint32_t x = ((const grammar_range *)a)->low, y = ((const grammar_range *)b)->low;
    return (x > y) - (x < y);
}

static size_t grammar_range_join(grammar_range *r, size_t n) {
    size_t used = 0;
    qsort(r, n, sizeof(*r), by_low);
    for (size_t i = 0; i < n; i++) {
        BASE_DCHECK(r[i].low <= r[i].high && r[i].high <= LAST_CODE_POINT);
        if (used > 0 && r[i].low <= r[used - 1].high + 1) r[used - 1].high = BASE_MAX(r[used - 1].high, r[i].high);
        else r[used++] = r[i];
    }
    return used;
}

/* The gaps between merged ranges, in place: the i-th gap ends where the i-th range begins. */
static size_t grammar_range_negate(grammar_range *r, size_t n) {
    uint32_t low = 0;
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        grammar_range next = r[i];
        if (next.low > low) r[used++] = (grammar_range){low, next.low - 1};
        low = next.high + 1;
    }
    if (low <= LAST_CODE_POINT) r[used++] = (grammar_range){low, LAST_CODE_POINT};
    return used;
}

/* Removes the surrogates: no range, the end or the middle of one range, or several ranges contain them. */
static size_t without_surrogates(grammar_range *r, size_t n) {
    size_t cut = n;
    for (size_t i = 0; i < n; i++) {
        if (r[i].low >= 0xd800 && r[i].low <= 0xdfff) r[i].low = 0xe000; /* may be empty now */
        if (r[i].high >= 0xd800 && r[i].high <= 0xdfff) r[i].high = 0xd7ff;
        if (r[i].low < 0xd800 && r[i].high > 0xdfff) cut = i;
    }
    if (cut < n) {
        memmove(r + cut + 1, r + cut, (n - cut) * sizeof(*r));
        r[cut].high = 0xd7ff;
        r[cut + 1].low = 0xe000;
        n++;
    }
    size_t used = 0;
    for (size_t i = 0; i < n; i++)
        if (r[i].low <= r[i].high) r[used++] = r[i];
    return used;
}

/* ---- units ---- */

static uint32_t add_unit(class_set *c, const grammar_edge *edges, uint32_t n) {
    grammar *g = c->g;
    if (n == 0 || c->rc) return NOTHING;
    BASE_ASSERT(g->n_units > 0); /* GRAMMAR_DONE */
    if ((c->rc = base_grow((void **)&g->edges, &g->cap_edges, g->n_edges + n, GRAMMAR_MAX_EDGES, sizeof(*g->edges))) ||
        (c->rc = base_grow((void **)&g->units, &g->cap_units, g->n_units + 1, GRAMMAR_MAX_EDGES, sizeof(*g->units))))
        return NOTHING;
    memcpy(g->edges + g->n_edges, edges, n * sizeof(*edges));
    g->units[g->n_units] = (grammar_unit){(uint32_t)g->n_edges, n};
    g->n_edges += n;
    return (uint32_t)g->n_units++;
}

/* Appends the edge byte -> unit, or extends the last edge. */
static uint32_t grammar_edge_extend(grammar_edge *edges, uint32_t n, uint8_t byte, uint32_t unit) {
    if (unit == NOTHING) return n;
    BASE_ASSERT(n == 0 || edges[n - 1].high < byte); /* they ascend */
    if (n > 0 && edges[n - 1].high + 1 == byte && edges[n - 1].unit == unit) edges[n - 1].high = byte;
    else edges[n++] = (grammar_edge){byte, byte, unit};
    return n;
}

/* The unit of k bytes for a block that is wholly in the set. */
static uint32_t whole_unit(class_set *c, int k) {
    BASE_ASSERT(k >= 0 && k < 4);
    if (k == 0) return GRAMMAR_DONE;
    if (c->whole[k]) return c->whole[k];
    grammar_edge edge = {0x80, 0xbf, whole_unit(c, k - 1)};
    uint32_t unit = add_unit(c, &edge, 1);
    if (unit != NOTHING) c->whole[k] = unit;
    return unit;
}

/* The first range that ends at or after `low`. */
static const grammar_range *range_from(const class_set *c, uint32_t low) {
    size_t first = 0, end = c->n;
    while (first < end) {
        size_t mid = first + (end - first) / 2;
        if (c->ranges[mid].high < low) first = mid + 1;
        else end = mid;
    }
    return first < c->n ? &c->ranges[first] : NULL;
}

/* The unit of the k bytes that continue a character with a code point in [base, base + 64^k). */
static uint32_t block_unit(class_set *c, uint32_t base, int k) {
    uint32_t last = base + (1u << 6 * k) - 1, low = BASE_MAX(base, c->min), high = BASE_MIN(last, c->max);
    const grammar_range *r = low <= high ? range_from(c, low) : NULL;
    grammar_edge edges[64] = {{0, 0, 0}};
    uint32_t n = 0;
    if (!r || r->low > high) return NOTHING;
    if (r->low <= base && r->high >= last && low == base && high == last) return whole_unit(c, k);
    for (uint32_t i = 0; i < 64 && k > 0; i++)
        n = grammar_edge_extend(edges, n, (uint8_t)(0x80 + i), block_unit(c, base + (i << 6 * (k - 1)), k - 1));
    return add_unit(c, edges, n);
}

/* Lead bytes from `first` to `last`, each followed by k bytes, of code points from min to max. */
static uint32_t add_leads(class_set *c, grammar_edge *edges, uint32_t n, int first, int last, int k, uint32_t min,
                          uint32_t max) {
    c->min = min;
    c->max = max;
    for (int b = first; b <= last; b++) {
        uint32_t bits = k == 0 ? (uint32_t)b : (uint32_t)b & (0x3fu >> k);
        n = grammar_edge_extend(edges, n, (uint8_t)b, block_unit(c, bits << 6 * k, k));
    }
    return n;
}

static int open_units(grammar *g) {
    if (g->n_units > 0) return RP_OK;
    int rc = base_grow((void **)&g->units, &g->cap_units, 1, GRAMMAR_MAX_EDGES, sizeof(*g->units));
    if (!rc) g->units[g->n_units++] = (grammar_unit){0, 0}; /* GRAMMAR_DONE */
    return rc;
}

int grammar_add_class(grammar *g, grammar_range *ranges, size_t n, bool negated, uint32_t *unit) {
    grammar_edge edges[256];
    class_set c = {.g = g, .ranges = ranges, .rc = open_units(g)};
    uint32_t n_edges = 0;
    *unit = GRAMMAR_DONE;
    if (n == 0) return c.rc;
    n = grammar_range_join(ranges, n);
    if (negated) n = grammar_range_negate(ranges, n);
    c.n = without_surrogates(ranges, n);
    if (c.n == 0 || c.rc) return c.rc;
    n_edges = add_leads(&c, edges, n_edges, 0x00, 0x7f, 0, 0, 0x7f);
    n_edges = add_leads(&c, edges, n_edges, 0xc2, 0xdf, 1, 0x80, 0x7ff);
    n_edges = add_leads(&c, edges, n_edges, 0xe0, 0xef, 2, 0x800, 0xffff);
    n_edges = add_leads(&c, edges, n_edges, 0xf0, 0xf4, 3, 0x10000, LAST_CODE_POINT);
    *unit = add_unit(&c, edges, n_edges);
    BASE_ASSERT(c.rc || *unit != NOTHING); /* a character that is left has bytes */
    return c.rc;
}

int grammar_add_byte(grammar *g, uint8_t byte, uint32_t *unit) {
    grammar_edge edge = {byte, byte, GRAMMAR_DONE};
    class_set c = {.g = g, .rc = open_units(g)};
    *unit = add_unit(&c, &edge, 1);
    return c.rc;
}
