/* SPDX-License-Identifier: Apache-2.0 */
/* index.c: the table of names, and their holders. index.h has the layout.
 *
 * Owns slots, the pool of wide entries, and counts and digests of each node, which every change updates. One user at a
 * time.
 *
 * Invariants:
 *   1. Slots of a segment rise by (order, name). A slot in use has its home at or before it, and no free slot between.
 *   2. A wide entry has more than WIDE_LEAST holders and belongs to one slot.
 *   3. Outside of a snapshot all entries of a node have its mark.
 *   4. Counts and digests of a node are those of its entries.
 */
#include "cluster/index.h"

#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "cluster/index_wide.h"
#include "cluster/wire.h"

#define SEGMENT_BITS 10
#define N_SEGMENTS ((size_t)1 << SEGMENT_BITS)
#define INLINE_HOLDERS 7
#define WIDE_LEAST 4 /* a wide entry with so many holders becomes inline: less than 7, so that names do not alternate */
#define WIDE 0xffff  /* n_holders of a slot with a wide entry */
#define LEAST_CAP 16
#define MOST_CAP ((size_t)1 << 30)

/* A holder: node, 3 bits of tiers, mark. */
#define HOLDER_TIERS_AT 10
#define HOLDER_TIERS 7u
#define HOLDER_MARK_AT 13
#define REPORTED (RP_TIER_RAM | RP_TIER_DISK)

typedef struct slot {
    rp_name name;
    union {
        uint16_t holders[INLINE_HOLDERS];
        uint16_t wide[2]; /* the low and high half of a wide entry's number */
    };
    uint16_t n_holders; /* 0: a free slot */
} slot;
_Static_assert(sizeof(slot) == 32, "a slot has 32 bytes");
_Static_assert(CLUSTER_MAX_NODES == 1 << HOLDER_TIERS_AT, "a node's number has 10 bits");

/* slots: [cap + pad]: homes are below cap, the pad is for slots that are pushed beyond it. */
typedef struct segment {
    slot *slots;
    size_t cap, n_slots, count;
} segment;

typedef struct node_totals {
    size_t names;           /* speculative ones included */
    uint64_t reported, sum; /* count and sum of the digest */
    uint8_t mark;           /* mark of entries that the node has confirmed */
    bool in_snapshot;
} node_totals;

struct cluster_index {
    uint32_t factor; /* of orders; odd, so that it permutes them */
    segment segments[N_SEGMENTS];
    node_totals nodes[CLUSTER_MAX_NODES];
    index_wide_pool wide;
    size_t count;
    uint64_t slot_bytes, most_bytes; /* most_bytes 0: no limit */
};

/* A node's entry of a name. */
typedef struct holding {
    uint32_t tiers, mark;
} holding;

static int index_new(cluster_index **out, uint32_t factor, rp_error *err) {
    cluster_index *x = base_calloc(1, sizeof *x);
    *out = x;
    if (!x) return base_fail_memory(err, sizeof *x, "an index of names");
    x->factor = factor;
    return RP_OK;
}

int cluster_index_new(cluster_index **out, rp_error *err) { return index_new(out, 1, err); }
int cluster_index_new_source(cluster_index **out, rp_error *err) { return index_new(out, UINT32_C(0x9e3779b1), err); }

void cluster_index_set_limit(cluster_index *x, uint64_t bytes) { x->most_bytes = bytes; }

void cluster_index_free(cluster_index *x) {
    if (!x) return;
    for (size_t i = 0; i < N_SEGMENTS; i++) base_free(x->segments[i].slots);
    index_wide_close(&x->wide);
    base_free(x);
}

/* ---- Segments ---- */

static size_t order_home(uint32_t order, size_t cap) { return (size_t)((uint64_t)order * cap >> 32); }
static uint32_t index_order(const cluster_index *x, uint64_t hash) { return (uint32_t)hash * x->factor; }
static uint32_t slot_order(const cluster_index *x, const slot *s) {
    return index_order(x, cluster_name_hash(&s->name, 0));
}

static int slot_compare(const cluster_index *x, const slot *s, uint32_t order, const rp_name *name) {
    const uint32_t own = slot_order(x, s);
    if (own != order) return own < order ? -1 : 1;
    return memcmp(s->name.bytes, name->bytes, RP_NAME_BYTES);
}

/* The first slot from the home of (order, name) on that is free or not less than (order, name). */
static size_t segment_seek(const cluster_index *x, const segment *g, uint32_t order, const rp_name *name) {
    size_t i = order_home(order, g->cap);
    while (i < g->n_slots && g->slots[i].n_holders > 0 && slot_compare(x, &g->slots[i], order, name) < 0) i++;
    return i;
}

static bool segment_has(const segment *g, size_t at, const rp_name *name) {
    return at < g->n_slots && g->slots[at].n_holders > 0 &&
           memcmp(g->slots[at].name.bytes, name->bytes, RP_NAME_BYTES) == 0;
}

/* Copies the used slots to `to`, which is empty. false: they do not fit. */
static bool segment_copy(const cluster_index *x, segment *to, const segment *from) {
    size_t next = 0, n = 0;
    BASE_ASSERT(to->count == 0);
    for (size_t i = 0; i < from->n_slots; i++) {
        if (from->slots[i].n_holders == 0) continue;
        next = BASE_MAX(next, order_home(slot_order(x, &from->slots[i]), to->cap));
        if (next == to->n_slots) return false;
        to->slots[next++] = from->slots[i];
        n++;
    }
    BASE_ASSERT(n == from->count);
    to->count = from->count;
    return true;
}

static int segment_resize(cluster_index *x, segment *g, size_t cap) {
    cap = BASE_MAX(cap, (size_t)LEAST_CAP);
    segment to = {.cap = cap, .n_slots = cap + BASE_MIN(cap / 16 + 4, (size_t)64)};
    if (cap > MOST_CAP) return RP_ERR_LIMIT;
    to.slots = base_calloc(to.n_slots, sizeof(slot));
    if (!to.slots) return RP_ERR_MEMORY;
    if (!segment_copy(x, &to, g)) {
        base_free(to.slots);
        return RP_ERR_LIMIT;
    }
    x->slot_bytes += (to.n_slots - g->n_slots) * sizeof(slot);
    base_free(g->slots);
    *g = to;
    return RP_OK;
}

/* Grows a segment until a slot for (order, name) can be inserted. Names with equal hashes, which a hostile node can
 * report, end with RP_ERR_LIMIT. */
static int segment_make_space(cluster_index *x, segment *g, uint32_t order, const rp_name *name, size_t *at,
                              size_t *end) {
    size_t cap = g->cap;
    if ((g->count + 1) * 20 > g->cap * 17) { /* 85 % */
        cap = g->cap + g->cap / 5 + 8;
        int rc = segment_resize(x, g, cap);
        if (rc == RP_ERR_MEMORY) return rc;
    }
    for (;;) {
        *at = segment_seek(x, g, order, name);
        for (*end = *at; *end < g->n_slots && g->slots[*end].n_holders > 0;) ++*end;
        if (*end < g->n_slots) return RP_OK;
        do { /* slots would be pushed beyond the pad */
            cap += cap / 5 + 8;
            if (cap / 8 > g->count + LEAST_CAP) return RP_ERR_LIMIT;
            int rc = segment_resize(x, g, cap);
            if (rc == RP_ERR_MEMORY) return rc;
            if (rc == RP_OK) break;
        } while (true);
    }
}

/* Removes the slot at `at`, which has no holders. */
static void segment_close_gap(cluster_index *x, segment *g, size_t at) {
    BASE_ASSERT(at < g->n_slots && g->slots[at].n_holders == 0 && g->count > 0 && x->count >= g->count);
    size_t end = at + 1;
    while (end < g->n_slots && g->slots[end].n_holders > 0 && order_home(slot_order(x, &g->slots[end]), g->cap) < end)
        end++;
    memmove(&g->slots[at], &g->slots[at + 1], (end - at - 1) * sizeof(slot));
    g->slots[end - 1] = (slot){0};
    g->count--;
    x->count--;
}

/* Frees memory after many names were removed. If that fails, nothing changes. */
static void segment_shrink(cluster_index *x, segment *g) {
    if (g->cap <= LEAST_CAP || g->count >= g->cap / 3) return;
    if (g->count > 0) {
        (void)segment_resize(x, g, g->count + g->count / 2 + 8);
        return;
    }
    BASE_ASSERT(x->slot_bytes >= g->n_slots * sizeof(slot));
    x->slot_bytes -= g->n_slots * sizeof(slot);
    base_free(g->slots);
    *g = (segment){0};
}

/* ---- Holders of a slot ---- */

static uint16_t holder_make(int32_t node, holding h) {
    BASE_ASSERT((uint32_t)node < CLUSTER_MAX_NODES && h.tiers > 0 && h.tiers <= HOLDER_TIERS && h.mark <= 1);
    return (uint16_t)((uint32_t)node | h.tiers << HOLDER_TIERS_AT | h.mark << HOLDER_MARK_AT);
}
static int32_t holder_node(uint16_t h) { return h & (CLUSTER_MAX_NODES - 1); }
static holding holder_holding(uint16_t h) {
    return (holding){(uint32_t)h >> HOLDER_TIERS_AT & HOLDER_TIERS, (uint32_t)h >> HOLDER_MARK_AT & 1};
}

static uint32_t slot_wide(const slot *s) { return s->wide[0] | (uint32_t)s->wide[1] << 16; }
static holding slot_get_wide(const cluster_index *x, uint32_t entry, int32_t node) {
    const uint32_t planes = index_wide_get(&x->wide, entry, node);
    return (holding){planes & HOLDER_TIERS, planes >> 3};
}

/* Index of a node among the inline holders; -1: it is none. */
static int slot_find_holder(const slot *s, int32_t node) {
    BASE_DCHECK(s->n_holders <= INLINE_HOLDERS);
    for (int i = 0; i < s->n_holders; i++)
        if (holder_node(s->holders[i]) == node) return i;
    return -1;
}

static holding slot_get(const cluster_index *x, const slot *s, int32_t node) {
    if (s->n_holders == WIDE) return slot_get_wide(x, slot_wide(s), node);
    const int i = slot_find_holder(s, node);
    return i < 0 ? (holding){0, 0} : holder_holding(s->holders[i]);
}

/* Moves the holders of a slot and a new one to a wide entry. */
static int slot_widen(cluster_index *x, slot *s, int32_t node, holding h) {
    uint32_t entry;
    BASE_ASSERT(s->n_holders == INLINE_HOLDERS);
    int rc = index_wide_add(&x->wide, &entry);
    if (rc) return rc;
    rc = index_wide_set(&x->wide, entry, node, h.tiers | h.mark << 3);
    for (int i = 0; rc == RP_OK && i < s->n_holders; i++) {
        const holding other = holder_holding(s->holders[i]);
        rc = index_wide_set(&x->wide, entry, holder_node(s->holders[i]), other.tiers | other.mark << 3);
    }
    if (rc) {
        index_wide_remove(&x->wide, entry);
        return rc;
    }
    s->wide[0] = (uint16_t)entry;
    s->wide[1] = (uint16_t)(entry >> 16);
    s->n_holders = WIDE;
    return RP_OK;
}

/* Moves the holders of a wide entry that has become small back to its slot. */
static void slot_narrow(cluster_index *x, slot *s) {
    const uint32_t entry = slot_wide(s);
    if (index_wide_count(&x->wide, entry) > WIDE_LEAST) return;
    int n = 0;
    for (int32_t node = -1; (node = index_wide_next(&x->wide, entry, node)) >= 0;)
        s->holders[n++] = holder_make(node, slot_get_wide(x, entry, node));
    BASE_ASSERT(n == WIDE_LEAST); /* invariant 2: holders leave one by one */
    s->n_holders = (uint16_t)n;
    index_wide_remove(&x->wide, entry);
}

/* Sets or adds a holder. Tiers 0 remove it, which cannot fail and may leave a slot without holders. */
static int slot_put(cluster_index *x, slot *s, int32_t node, holding h) {
    if (s->n_holders == WIDE) {
        int rc = index_wide_set(&x->wide, slot_wide(s), node, h.tiers ? h.tiers | h.mark << 3 : 0);
        if (rc == RP_OK && h.tiers == 0) slot_narrow(x, s);
        return rc;
    }
    const int i = slot_find_holder(s, node);
    if (h.tiers == 0) {
        if (i >= 0) s->holders[i] = s->holders[--s->n_holders];
    } else if (i >= 0) s->holders[i] = holder_make(node, h);
    else if (s->n_holders < INLINE_HOLDERS) s->holders[s->n_holders++] = holder_make(node, h);
    else return slot_widen(x, s, node, h);
    return RP_OK;
}

/* ---- One name ---- */

static const slot *index_slot(const cluster_index *x, const rp_name *name, uint64_t hash) {
    const segment *g = &x->segments[hash >> (64 - SEGMENT_BITS)];
    const size_t at = segment_seek(x, g, index_order(x, hash), name);
    return segment_has(g, at, name) ? &g->slots[at] : NULL;
}

/* Totals of a node after a change of one name. */
static void totals_move(node_totals *t, const rp_name *name, uint32_t from, uint32_t to) {
    BASE_ASSERT(!from || t->names > 0);
    t->names += (to != 0) - (size_t)(from != 0);
    if ((from & REPORTED) == (to & REPORTED)) return;
    if (from & REPORTED) {
        t->reported--;
        t->sum -= cluster_name_hash(name, from & REPORTED);
    }
    if (to & REPORTED) {
        t->reported++;
        t->sum += cluster_name_hash(name, to & REPORTED);
    }
    BASE_ASSERT(t->reported <= t->names); /* invariant 4 */
}

static int index_insert(cluster_index *x, segment *g, uint32_t order, const rp_name *name, int32_t node, holding h) {
    size_t at, end;
    if (x->count >= CLUSTER_INDEX_MAX_NAMES) return RP_ERR_LIMIT;
    int rc = segment_make_space(x, g, order, name, &at, &end);
    if (rc) return rc;
    BASE_ASSERT(at <= end && end < g->n_slots && g->count < g->n_slots);
    memmove(&g->slots[at + 1], &g->slots[at], (end - at) * sizeof(slot));
    g->slots[at] = (slot){.name = *name, .holders = {holder_make(node, h)}, .n_holders = 1};
    g->count++;
    x->count++;
    return RP_OK;
}

/* confirms: it is a report of the node. */
static int index_put(cluster_index *x, const rp_name *name, int32_t node, uint32_t tiers, bool confirms) {
    BASE_ASSERT(node >= 0 && node < CLUSTER_MAX_NODES && tiers <= HOLDER_TIERS);
    const uint64_t hash = cluster_name_hash(name, 0);
    segment *g = &x->segments[hash >> (64 - SEGMENT_BITS)];
    node_totals *t = &x->nodes[node];
    const size_t at = segment_seek(x, g, index_order(x, hash), name);
    holding before = {0, t->mark}, after = {tiers, t->mark};
    int rc = RP_OK;
    const bool has_slot = segment_has(g, at, name),
               is_full = x->most_bytes > 0 && cluster_index_bytes(x) >= x->most_bytes;
    if (is_full && tiers && cluster_index_get(x, name, node) == 0) return RP_ERR_LIMIT;
    if (has_slot) {
        slot *s = &g->slots[at];
        before = slot_get(x, s, node);
        if (before.tiers && !confirms) after.mark = before.mark;
        rc = slot_put(x, s, node, after);
        if (s->n_holders == 0) {
            segment_close_gap(x, g, at);
            segment_shrink(x, g);
        }
    } else if (tiers) rc = index_insert(x, g, index_order(x, hash), name, node, after);
    if (rc == RP_OK) totals_move(t, name, before.tiers, tiers);
    return rc;
}

int cluster_index_set(cluster_index *x, const rp_name *name, int32_t node, uint32_t tiers) {
    return index_put(x, name, node, tiers, false);
}
int cluster_index_report(cluster_index *x, const rp_name *name, int32_t node, uint32_t tiers) {
    return index_put(x, name, node, tiers, true);
}

uint32_t cluster_index_get(const cluster_index *x, const rp_name *name, int32_t node) {
    const slot *s = index_slot(x, name, cluster_name_hash(name, 0));
    return s ? slot_get(x, s, node).tiers : 0;
}

int32_t cluster_index_find(const cluster_index *x, const rp_name *name, int32_t *nodes, uint32_t *tiers, int32_t most) {
    const slot *s = index_slot(x, name, cluster_name_hash(name, 0));
    int32_t n = 0;
    if (s && s->n_holders == WIDE) {
        for (int32_t node = -1; n < most && (node = index_wide_next(&x->wide, slot_wide(s), node)) >= 0; n++) {
            nodes[n] = node;
            tiers[n] = slot_get_wide(x, slot_wide(s), node).tiers;
        }
        return n;
    }
    for (; s && n < most && n < s->n_holders; n++) {
        nodes[n] = holder_node(s->holders[n]);
        tiers[n] = holder_holding(s->holders[n]).tiers;
    }
    return n;
}

size_t cluster_index_count(const cluster_index *x) { return x->count; }
size_t cluster_index_count_of(const cluster_index *x, int32_t node) { return x->nodes[node].names; }
uint64_t cluster_index_bytes(const cluster_index *x) { return sizeof *x + x->slot_bytes + x->wide.bytes; }

void cluster_index_digest(const cluster_index *x, int32_t node, uint64_t *count, uint64_t *sum) {
    BASE_ASSERT(node >= 0 && node < CLUSTER_MAX_NODES);
    *count = x->nodes[node].reported;
    *sum = x->nodes[node].sum;
}

/* ---- All names of a node ---- */

/* The new value of a node's entry in a pass. */
typedef holding (*pass_fn)(const node_totals *t, holding h);

static holding pass_clear(const node_totals *t, holding h) {
    (void)t;
    (void)h;
    return (holding){0, 0};
}
/* Before a snapshot: all entries get the node's mark. */
static holding pass_align(const node_totals *t, holding h) { return (holding){h.tiers, t->mark}; }
/* At its end: entries that were not confirmed are removed. */
static holding pass_confirmed(const node_totals *t, holding h) {
    return (holding){h.mark == t->mark ? h.tiers : h.tiers & ~REPORTED, t->mark};
}

/* Changes the entries of a node in place. None is added, so that nothing can fail. */
static void index_pass(cluster_index *x, int32_t node, pass_fn fn) {
    BASE_ASSERT(node >= 0 && node < CLUSTER_MAX_NODES);
    node_totals *t = &x->nodes[node];
    for (size_t k = 0; k < N_SEGMENTS && t->names > 0; k++) {
        segment *g = &x->segments[k];
        for (size_t i = 0; i < g->n_slots;) {
            slot *s = &g->slots[i];
            const holding before = s->n_holders > 0 ? slot_get(x, s, node) : (holding){0, 0};
            if (before.tiers) {
                const holding after = fn(t, before);
                int rc = slot_put(x, s, node, after);
                BASE_ASSERT(rc == RP_OK);
                totals_move(t, &s->name, before.tiers, after.tiers);
            }
            if (before.tiers && s->n_holders == 0) segment_close_gap(x, g, i); /* the next slot is at i now */
            else i++;
        }
        segment_shrink(x, g);
    }
}

void cluster_index_clear(cluster_index *x, int32_t node) {
    index_pass(x, node, pass_clear);
    BASE_ASSERT(x->nodes[node].names == 0 && x->nodes[node].reported == 0 && x->nodes[node].sum == 0); /* invariant 4 */
    x->nodes[node].in_snapshot = false;
}

void cluster_index_begin_snapshot(cluster_index *x, int32_t node) {
    node_totals *t = &x->nodes[node];
    if (t->in_snapshot) index_pass(x, node, pass_align);
    t->mark ^= 1;
    t->in_snapshot = true;
}

void cluster_index_end_snapshot(cluster_index *x, int32_t node) {
    BASE_ASSERT(x->nodes[node].in_snapshot);
    index_pass(x, node, pass_confirmed);
    x->nodes[node].in_snapshot = false;
}

/* The segment and slot at which a walk continues. */
static size_t walk_resume(const cluster_index *x, const cluster_index_place *place, size_t *at) {
    *at = 0;
    if (!place->began) return 0;
    const uint64_t hash = cluster_name_hash(&place->last, 0);
    const size_t k = hash >> (64 - SEGMENT_BITS);
    *at = segment_seek(x, &x->segments[k], index_order(x, hash), &place->last);
    if (segment_has(&x->segments[k], *at, &place->last)) ++*at;
    return k;
}

size_t cluster_index_walk(const cluster_index *x, int32_t node, cluster_index_place *place, rp_span_change *out,
                          size_t most) {
    size_t n = 0, at;
    for (size_t k = walk_resume(x, place, &at); k < N_SEGMENTS && n < most; k++, at = 0)
        for (const segment *g = &x->segments[k]; at < g->n_slots && n < most; at++) {
            const slot *s = &g->slots[at];
            const uint32_t tiers = s->n_holders > 0 ? slot_get(x, s, node).tiers : 0;
            if (tiers) out[n++] = (rp_span_change){s->name, tiers};
        }
    if (n > 0) *place = (cluster_index_place){true, out[n - 1].name};
    return n;
}

/* ---- A request ---- */

#define MATCH_WORDS (CLUSTER_MAX_NODES / 64)

/* How far each node holds a text without a gap, 64 nodes a word. Tiers are written only when the set of holders or
 * their tiers change, which is rare in a frequent text of many names. */
typedef struct match_state {
    const rp_named_kv *items;
    int32_t n_items, n_nodes, n_words;
    bool has_texts;              /* a name of text was matched */
    bool any;                    /* a node holds the text so far */
    uint64_t chain[MATCH_WORDS]; /* nodes that hold the text so far */
    uint64_t planes[MATCH_WORDS][3];
    int32_t from[MATCH_WORDS]; /* items with these planes: [from, to) */
    int32_t to[MATCH_WORDS];
    uint8_t *held;
} match_state;

static uint8_t plane_tiers(const uint64_t planes[3], int bit) {
    return (uint8_t)((planes[0] >> bit & 1) | (planes[1] >> bit & 1) << 1 | (planes[2] >> bit & 1) << 2);
}

static uint8_t *match_held(const match_state *m, int32_t node, int32_t item) {
    return m->held + (size_t)node * (size_t)m->n_items + (size_t)item;
}

/* Writes the tiers of items from..to. */
static void match_flush(match_state *m, int32_t word) {
    BASE_DCHECK(m->from[word] <= m->to[word] && m->to[word] <= m->n_items);
    const size_t n = (size_t)(m->to[word] - m->from[word]);
    for (uint64_t left = n ? m->chain[word] : 0; left; left &= left - 1) {
        const int bit = base_ctz64(left);
        memset(match_held(m, word * 64 + bit, m->from[word]), plane_tiers(m->planes[word], bit), n);
    }
    m->from[word] = m->to[word];
}

static void match_module_word(match_state *m, int32_t item, int32_t word, const uint64_t planes[3], uint64_t holders) {
    for (; holders; holders &= holders - 1) {
        const int bit = base_ctz64(holders);
        if (word * 64 + bit < m->n_nodes) *match_held(m, word * 64 + bit, item) = plane_tiers(planes, bit);
    }
}

static void match_text_word(match_state *m, int32_t item, int32_t word, const uint64_t planes[3], uint64_t holders) {
    BASE_DCHECK(item >= m->to[word]); /* items are matched in order */
    const int32_t n = m->n_nodes - word * 64;
    const uint64_t there = n < 64 ? (UINT64_C(1) << n) - 1 : ~UINT64_C(0),
                   chain = holders & there & (m->has_texts ? m->chain[word] : ~UINT64_C(0));
    const uint64_t *known = m->planes[word];
    const uint64_t changed =
        (chain ^ m->chain[word]) | (((planes[0] ^ known[0]) | (planes[1] ^ known[1]) | (planes[2] ^ known[2])) & chain);
    if (changed || m->to[word] != item) {
        match_flush(m, word);
        m->chain[word] = chain;
        memcpy(m->planes[word], planes, sizeof(m->planes[word]));
        m->from[word] = item;
    }
    m->to[word] = item + 1;
    m->any |= chain != 0;
}

/* One word of a slot's holders; slot NULL: no holders. */
static void match_word(const cluster_index *x, const slot *s, int32_t word, uint64_t planes[3], uint64_t *holders) {
    planes[0] = planes[1] = planes[2] = *holders = 0;
    if (s && s->n_holders == WIDE) {
        if (!index_wide_word(&x->wide, slot_wide(s), word, planes, holders))
            planes[0] = planes[1] = planes[2] = *holders = 0;
        return;
    }
    for (int i = 0; s && i < s->n_holders; i++) {
        const int32_t node = holder_node(s->holders[i]);
        if (node / 64 != word) continue;
        const uint64_t tiers = holder_holding(s->holders[i]).tiers;
        *holders |= UINT64_C(1) << node % 64;
        for (int k = 0; k < 3; k++) planes[k] |= (tiers >> k & 1) << node % 64;
    }
}

static void match_item(const cluster_index *x, match_state *m, int32_t item, uint64_t hash) {
    const bool is_text = !m->items[item].is_module;
    uint64_t planes[3], holders;
    if (is_text && m->has_texts && !m->any) return; /* no node holds the text so far */
    if (is_text) m->any = false;
    const slot *s = index_slot(x, &m->items[item].name, hash);
    for (int32_t word = 0; word < m->n_words; word++) {
        if (is_text && m->has_texts && !m->chain[word]) continue;
        match_word(x, s, word, planes, &holders);
        if (is_text) match_text_word(m, item, word, planes, holders);
        else match_module_word(m, item, word, planes, holders);
    }
    m->has_texts |= is_text;
}

/* Names of a group are useful together only. */
static void match_groups(match_state *m) {
    for (int32_t i = 0, end; i < m->n_items; i = end) {
        end = i + 1;
        if (!m->items[i].group) continue;
        while (end < m->n_items && m->items[end].group == m->items[i].group) end++;
        for (int32_t node = 0; node < m->n_nodes && end > i + 1; node++) {
            uint8_t *held = m->held + (size_t)node * (size_t)m->n_items + i;
            const size_t n = (size_t)(end - i);
            if (memchr(held, 0, n)) memset(held, 0, n);
        }
    }
}

void cluster_index_match(const cluster_index *x, const rp_named_kv *items, int32_t n_items, int32_t n_nodes,
                         uint8_t *held) {
    enum { AHEAD = 8 }; /* names whose slots are prefetched: each is a miss of the processor's caches */
    match_state m = {
        .items = items, .n_items = n_items, .n_nodes = n_nodes, .n_words = BASE_DIV_UP(n_nodes, 64), .held = held};
    uint64_t hashes[AHEAD];
    BASE_ASSERT(n_items >= 0 && n_nodes >= 0 && n_nodes <= CLUSTER_MAX_NODES);
    memset(held, 0, (size_t)n_nodes * (size_t)n_items);
    for (int32_t i = 0; i < n_items + AHEAD; i++) {
        if (i >= AHEAD) match_item(x, &m, i - AHEAD, hashes[i % AHEAD]);
        if (i >= n_items) continue;
        const uint64_t hash = hashes[i % AHEAD] = cluster_name_hash(&items[i].name, 0);
        const segment *g = &x->segments[hash >> (64 - SEGMENT_BITS)];
        if (g->slots) BASE_PREFETCH(&g->slots[order_home(index_order(x, hash), g->cap)]);
    }
    for (int32_t word = 0; word < m.n_words; word++) match_flush(&m, word);
    match_groups(&m);
}
