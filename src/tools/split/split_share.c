/* SPDX-License-Identifier: Apache-2.0 */
/* split_share.c: passages that occur in several places.
 *
 *   1. Windows of SPLIT_WINDOW atoms are looked up by hash. If two are equal, their atoms are united into classes
 *   (union-find). 2. A run of classes is a passage if each class is always followed by the next one, and each next one
 *   always preceded by it: with
 *      one set of places:
 *
 *        prompt 0   A A A A B B B C C C C        A precedes B and C: a cut
 *        prompt 1   A A A A C C C C D D D
 *
 *      (Maximal paths without a branch, as genomes are assembled from; Zerbino and Birney 2008.)
 *   3. Passages that occur at most once in a prompt are parts. A part takes text that is beside all its places and in
 *   no other part: first
 *      back to the best border before it, so that a document keeps its opening, then all equal text after and before
 *      it. A document thus recovers text that it repeats, or shares with another by chance.
 *   4. The rest of passages that prompts repeat: the first place in each prompt.
 *
 * Time is linear in the atoms, except for sorting parts and for hashing.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "tools/split/split_internal.h"

#define MIXED (SPLIT_NONE - 1) /* a class with several neighbours on one side, or an edge */
#define SEED_BYTES 16          /* shorter passages are no parts of their own; they are what parts take */

typedef struct sharing {
    const split_corpus *c;
    split_shares *out;
    uint32_t *class;       /* by atom: another one of its class on the way to the first; in the end the first */
    uint32_t *next, *prev; /* by class: the class that always follows or precedes it, MIXED, SPLIT_NONE */
    uint32_t *size;        /* by class: its atoms; later, of a passage's first class: its number */
    bool *repeats;         /* by part: it occurs twice in a prompt */
    rp_error *err;
} sharing;

/* ---- Classes ---- */

static uint32_t sharing_find(sharing *s, uint32_t a) {
    BASE_DCHECK(s->class[a] <= a); /* the first of a class is its smallest */
    while (s->class[a] != a) a = s->class[a] = s->class[s->class[a]];
    return a;
}

/* The first window equal to the one at a, which may be a itself. */
static uint32_t first_window(const split_corpus *c, uint32_t *table, size_t mask, uint32_t a) {
    const size_t bytes = SPLIT_WINDOW * sizeof(*c->id);
    uint64_t hash = 0x243f6a8885a308d3u;
    for (int i = 0; i < SPLIT_WINDOW; i++) {
        hash = (hash ^ c->id[a + (uint32_t)i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    size_t slot = hash & mask;
    while (table[slot] != SPLIT_NONE && memcmp(c->id + table[slot], c->id + a, bytes) != 0) slot = (slot + 1) & mask;
    if (table[slot] == SPLIT_NONE) table[slot] = a;
    return table[slot];
}

static void unite_windows(sharing *s, uint32_t *table, size_t mask) {
    const split_corpus *c = s->c;
    for (uint32_t m = 0; m < c->n_messages; m++) {
        uint32_t expected = SPLIT_NONE; /* where the window would be if it continued the last one */
        for (uint32_t a = c->messages[m].first; a + SPLIT_WINDOW <= c->messages[m].end; a++) {
            uint32_t other = first_window(c, table, mask, a);
            for (uint32_t i = other == expected ? SPLIT_WINDOW - 1 : 0; i < SPLIT_WINDOW && other != a; i++) {
                uint32_t here = sharing_find(s, a + i), there = sharing_find(s, other + i);
                s->class[BASE_MAX(here, there)] = BASE_MIN(here, there);
            }
            expected = other != a ? other + 1 : SPLIT_NONE;
        }
    }
}

static int sharing_make_classes(sharing *s) {
    size_t n_slots = 64;
    while (n_slots < 2 * (size_t)s->c->n_atoms) n_slots *= 2;
    uint32_t *table = base_alloc(n_slots * sizeof(*table));
    if (!table) return base_fail_memory(s->err, n_slots * sizeof(*table), "windows");
    memset(table, 0xff, n_slots * sizeof(*table));
    for (uint32_t a = 0; a < s->c->n_atoms; a++) s->class[a] = a;
    unite_windows(s, table, n_slots - 1);
    base_free(table);
    for (uint32_t a = 0; a < s->c->n_atoms; a++) s->class[a] = sharing_find(s, a);
    return RP_OK;
}

/* ---- Passages ---- */

static void see_neighbour(uint32_t *of, uint32_t neighbour) {
    *of = *of == SPLIT_NONE || *of == neighbour ? neighbour : MIXED;
}

static void see_neighbours(sharing *s) {
    const split_corpus *c = s->c;
    for (uint32_t a = 0; a < c->n_atoms; a++) {
        const split_message *m = &c->messages[c->message[a]];
        uint32_t class = s->class[a];
        s->size[class]++;
        see_neighbour(&s->next[class], a + 1 < m->end ? s->class[a + 1] : MIXED);
        see_neighbour(&s->prev[class], a > m->first ? s->class[a - 1] : MIXED);
    }
}

/* Does a passage begin at a? */
static bool is_cut(const sharing *s, uint32_t a) {
    if (a == s->c->messages[s->c->message[a]].first) return true;
    uint32_t before = s->class[a - 1], here = s->class[a];
    return s->next[before] != here || s->prev[here] != before;
}

static uint32_t passage_end(const sharing *s, uint32_t a) {
    uint32_t end = s->c->messages[s->c->message[a]].end;
    for (a++; a < end && !is_cut(s, a);) a++;
    return a;
}

/* Numbers the passages that are long enough: a part each, with n counted and no places yet. */
static int number_passages(sharing *s) {
    split_shares *out = s->out;
    for (uint32_t a = 0, end; a < s->c->n_atoms; a = end) {
        uint32_t class = s->class[a];
        end = passage_end(s, a);
        BASE_DCHECK(class <= a && end > a);
        if (class != a) continue; /* seen, or of no interest */
        bool good = s->size[class] > 1 && split_bytes(s->c, a, end) >= SEED_BYTES;
        uint32_t n = s->size[class];
        s->size[class] = SPLIT_NONE;
        if (!good) continue;
        int rc = base_grow((void **)&out->parts, &out->cap_parts, (size_t)out->n_parts + 1, SPLIT_MAX_PARTS,
                           sizeof(*out->parts));
        if (rc)
            return base_fail(s->err, rc, "out of memory: %u shared passages: give fewer prompts",
                             (unsigned)out->n_parts);
        s->size[class] = out->n_parts;
        out->parts[out->n_parts++] = (split_part){.n_atoms = end - a, .n = n};
    }
    return RP_OK;
}

static uint32_t sharing_prompt_of(const sharing *s, uint32_t atom) {
    return s->c->messages[s->c->message[atom]].prompt;
}

/* Gives every part its places, rising, and finds out which repeat. */
static int place_passages(sharing *s) {
    split_shares *out = s->out;
    size_t n = 0;
    for (uint32_t i = 0; i < out->n_parts; i++) n += out->parts[i].n;
    out->places = base_calloc(n + s->c->n_prompts, sizeof(*out->places));
    s->repeats = base_calloc((size_t)out->n_parts + 1, sizeof(*s->repeats));
    if (!out->places || !s->repeats) return base_fail_memory(s->err, n * sizeof(*out->places), "shared passages");
    out->spare = out->places + n;
    n = 0;
    for (uint32_t i = 0; i < out->n_parts; i++) {
        split_part *part = &out->parts[i];
        part->at = out->places + n;
        n += part->n;
        part->n = 0;
    }
    for (uint32_t a = 0, end; a < s->c->n_atoms; a = end) {
        uint32_t number = s->size[s->class[a]];
        end = passage_end(s, a);
        if (number == SPLIT_NONE) continue;
        split_part *part = &out->parts[number];
        BASE_ASSERT(part->at + part->n < out->spare); /* each atom of its first class begins it, as counted */
        if (part->n > 0 && sharing_prompt_of(s, part->at[part->n - 1]) == sharing_prompt_of(s, a))
            s->repeats[number] = true;
        part->at[part->n++] = a;
    }
    return RP_OK;
}

/* ---- Owners ---- */

static void split_shares_own(split_shares *out, uint32_t number, uint32_t first, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) out->owner[first + i] = number;
}

/* Is the k-th atom before (after: after) all places of a part the same, and in no other part? */
static bool sharing_agrees(const sharing *s, const split_part *part, uint32_t k, bool after) {
    BASE_ASSERT(part->n > 0 && k > 0); /* without places it would agree for ever */
    uint32_t id = SPLIT_NONE;
    for (uint32_t i = 0; i < part->n; i++) {
        const split_message *m = &s->c->messages[s->c->message[part->at[i]]];
        uint32_t at = part->at[i];
        if (after ? at + part->n_atoms + k > m->end : at < m->first + k) return false;
        at = after ? at + part->n_atoms + k - 1 : at - k;
        if (s->out->owner[at] != SPLIT_NONE || (i > 0 && s->c->id[at] != id)) return false;
        id = s->c->id[at];
    }
    return true;
}

static void grow_before(const sharing *s, uint32_t number, uint32_t k) {
    split_part *part = &s->out->parts[number];
    for (uint32_t i = 0; i < part->n; i++) {
        part->at[i] -= k;
        split_shares_own(s->out, number, part->at[i], k);
    }
    part->n_atoms += k;
}

/* Back to the best border there is, if it is as good as the one that the part begins at. */
static void grow_to_border(const sharing *s, uint32_t number) {
    const split_part *part = &s->out->parts[number];
    split_border best = split_border_at(s->c, part->at[0]);
    uint32_t taken = 0;
    for (uint32_t k = 1; sharing_agrees(s, part, k, false); k++) {
        split_border border = split_border_at(s->c, part->at[0] - k);
        if (border < best) continue;
        best = border;
        taken = k;
    }
    grow_before(s, number, taken);
}

static void sharing_grow(const sharing *s, uint32_t number, bool after) {
    split_part *part = &s->out->parts[number];
    uint32_t k = 0;
    while (sharing_agrees(s, part, k + 1, after)) k++;
    if (!after) {
        grow_before(s, number, k);
        return;
    }
    for (uint32_t i = 0; i < part->n; i++) split_shares_own(s->out, number, part->at[i] + part->n_atoms, k);
    part->n_atoms += k;
}

/* A passage that prompts repeat: what nobody has taken, once in each prompt. */
static void take_first_places(const sharing *s, uint32_t number, size_t min_bytes) {
    split_part *part = &s->out->parts[number];
    uint32_t kept = 0;
    bool pays = split_bytes(s->c, part->at[0], part->at[0] + part->n_atoms) >= min_bytes;
    for (uint32_t i = 0; i < part->n && pays; i++) {
        if (kept > 0 && sharing_prompt_of(s, part->at[kept - 1]) == sharing_prompt_of(s, part->at[i])) continue;
        uint32_t n_free = 0;
        while (n_free < part->n_atoms && s->out->owner[part->at[i] + n_free] == SPLIT_NONE) n_free++;
        if (n_free == part->n_atoms) part->at[kept++] = part->at[i];
    }
    part->n = kept > 1 ? kept : 0;
    for (uint32_t i = 0; i < part->n; i++) split_shares_own(s->out, number, part->at[i], part->n_atoms);
}

typedef struct ranked {
    uint32_t n_atoms, number;
} ranked;

static int compare_ranked(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->n_atoms != y->n_atoms) return x->n_atoms < y->n_atoms ? 1 : -1;
    return (x->number > y->number) - (x->number < y->number);
}

/* Longest first. */
static int sharing_settle(sharing *s, size_t min_bytes) {
    split_shares *out = s->out;
    ranked *order = base_calloc((size_t)out->n_parts + 1, sizeof(*order));
    if (!order) return base_fail_memory(s->err, out->n_parts * sizeof(*order), "shared passages");
    uint32_t n = 0;
    for (uint32_t i = 0; i < out->n_parts; i++) {
        if (s->repeats[i]) continue;
        order[n++] = (ranked){out->parts[i].n_atoms, i};
        for (uint32_t k = 0; k < out->parts[i].n; k++)
            split_shares_own(out, i, out->parts[i].at[k], out->parts[i].n_atoms);
    }
    qsort(order, n, sizeof(*order), compare_ranked);
    for (uint32_t i = 0; i < n; i++) grow_to_border(s, order[i].number);
    for (uint32_t i = 0; i < n; i++) sharing_grow(s, order[i].number, true);
    for (uint32_t i = 0; i < n; i++) sharing_grow(s, order[i].number, false);
    for (uint32_t i = 0; i < out->n_parts; i++)
        if (s->repeats[i]) take_first_places(s, i, min_bytes);
    base_free(order);
    return RP_OK;
}

/* ---- All of it ---- */

static uint32_t *split_share_make_row(size_t n, int fill) {
    uint32_t *row = base_alloc((n + 1) * sizeof(*row));
    if (row) memset(row, fill, (n + 1) * sizeof(*row));
    return row;
}

int split_shares_find(split_shares *out, const split_corpus *c, size_t min_bytes, rp_error *err) {
    sharing s = {.c = c, .out = out, .err = err};
    s.class = split_share_make_row(c->n_atoms, 0);
    s.next = split_share_make_row(c->n_atoms, 0xff);
    s.prev = split_share_make_row(c->n_atoms, 0xff);
    s.size = split_share_make_row(c->n_atoms, 0);
    out->owner = split_share_make_row(c->n_atoms, 0xff);
    int rc = RP_OK;
    if (!s.class || !s.next || !s.prev || !s.size || !out->owner)
        rc = base_fail_memory(err, (uint64_t)c->n_atoms * 20, "shared passages");
    else if (!(rc = sharing_make_classes(&s))) {
        see_neighbours(&s);
        if (!(rc = number_passages(&s)) && !(rc = place_passages(&s))) rc = sharing_settle(&s, min_bytes);
    }
    base_free(s.class);
    base_free(s.next);
    base_free(s.prev);
    base_free(s.size);
    base_free(s.repeats);
    return rc;
}

void split_shares_free(split_shares *s) {
    base_free(s->parts);
    base_free(s->places);
    base_free(s->owner);
}
