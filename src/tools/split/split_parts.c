/* SPDX-License-Identifier: Apache-2.0 */
/* split_parts.c: from parts to the lead, modules with parameters, and unions.
 *
 *   lead    the messages and atoms that all prompts begin with, up to the first part that extends beyond them
 *   module  parts that always follow each other, with little between them:
 *
 *             [Plan a trip of][ 3 days ][to this city, and mind that ...]
 *             [Plan a trip of][ a week ][to this city, and mind that ...]     the differing text is a parameter
 *
 *   union   modules that directly follow the same element, and occur nowhere else, if most prompts have one of them
 *         there
 *
 * Each is one walk over the places of all parts.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "tools/split/split_internal.h"

/* A place of a part or a module. */
typedef struct spot {
    uint32_t atom, number, place;
} spot;

typedef struct planning {
    split_plan *p;
    const split_corpus *c;
    split_shares *s;
    spot *spots; /* rising */
    size_t n_spots;
    uint32_t *follow; /* by part: the one that follows it everywhere, SPLIT_NONE */
    bool *followed;   /* by part */
    size_t min_bytes;
    rp_error *err;
} planning;

/* ---- Spots ---- */

static int compare_spots(const void *a, const void *b) {
    const spot *x = a, *y = b;
    return (x->atom > y->atom) - (x->atom < y->atom);
}

static int list_spots(planning *w) {
    size_t n = 0;
    for (uint32_t i = 0; i < w->s->n_parts; i++) n += w->s->parts[i].n;
    base_free(w->spots);
    w->spots = base_calloc(n + 1, sizeof(*w->spots));
    w->n_spots = 0;
    if (!w->spots) return base_fail_memory(w->err, n * sizeof(*w->spots), "shared passages");
    for (uint32_t i = 0; i < w->s->n_parts; i++)
        for (uint32_t k = 0; k < w->s->parts[i].n; k++) w->spots[w->n_spots++] = (spot){w->s->parts[i].at[k], i, k};
    BASE_ASSERT(w->n_spots == n);
    qsort(w->spots, w->n_spots, sizeof(*w->spots), compare_spots);
    return RP_OK;
}

/* The first spot at or after an atom. */
static size_t spot_from(const planning *w, uint32_t atom) {
    size_t low = 0, high = w->n_spots;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (w->spots[mid].atom < atom) low = mid + 1;
        else high = mid;
    }
    return low;
}

/* ---- The lead ---- */

static uint32_t n_messages_of(const split_corpus *c, uint32_t prompt) {
    return c->prompts[prompt].end - c->prompts[prompt].first;
}

/* The i-th message of a prompt; NULL past its end. */
static const split_message *message_of(const split_corpus *c, uint32_t prompt, uint32_t i) {
    return i < n_messages_of(c, prompt) ? &c->messages[c->prompts[prompt].first + i] : NULL;
}

/* Atoms that the i-th messages of all prompts begin with; *whole: they are equal. SPLIT_NONE: not all have one, or of
   another role. */
static uint32_t common_atoms(const split_corpus *c, uint32_t i, bool *whole) {
    const split_message *first = message_of(c, 0, i);
    uint32_t n = first ? first->end - first->first : SPLIT_NONE;
    *whole = true;
    for (uint32_t p = 1; p < c->n_prompts && n != SPLIT_NONE; p++) {
        const split_message *m = message_of(c, p, i);
        if (!m || m->role != first->role) return SPLIT_NONE;
        uint32_t k = 0, length = m->end - m->first;
        while (k < n && k < length && c->id[m->first + k] == c->id[first->first + k]) k++;
        if (k < length || k < n) *whole = false;
        n = k;
    }
    return n;
}

static void measure_lead(planning *w) {
    split_lead *lead = &w->p->lead;
    bool whole = true;
    if (w->c->n_prompts < 2) return;
    while (whole) {
        uint32_t n = common_atoms(w->c, lead->n_messages, &whole);
        if (n == SPLIT_NONE) return;
        if (whole) lead->n_messages++;
        else lead->n_atoms = n;
    }
}

/* The first atom after the lead. */
static uint32_t lead_end(const planning *w, uint32_t prompt) {
    const split_message *m = message_of(w->c, prompt, w->p->lead.n_messages);
    if (m) return m->first + w->p->lead.n_atoms;
    return n_messages_of(w->c, prompt) > 0 ? w->c->messages[w->c->prompts[prompt].end - 1].end : 0;
}

/* Where the part over an atom's left edge begins; the atom itself if there is none. */
static uint32_t part_around(const planning *w, uint32_t atom) {
    size_t i = spot_from(w, atom);
    if (i == 0) return atom;
    const spot *before = &w->spots[i - 1];
    return before->atom + w->s->parts[before->number].n_atoms > atom ? before->atom : atom;
}

/* Takes back what the beginning of a part is in some prompt. */
static void trim_lead(planning *w) {
    bool again = true;
    while (again) {
        again = false;
        for (uint32_t p = 0; p < w->c->n_prompts && w->p->lead.n_atoms > 0; p++) {
            uint32_t end = lead_end(w, p), start = part_around(w, end);
            if (start == end) continue;
            BASE_ASSERT(start < end && end - start <= w->p->lead.n_atoms); /* both in one message */
            w->p->lead.n_atoms -= end - start;
            again = true;
        }
    }
}

/* Parts lose their places in the lead. */
static void leave_lead(planning *w) {
    for (uint32_t i = 0; i < w->s->n_parts; i++) {
        split_part *part = &w->s->parts[i];
        uint32_t kept = 0;
        for (uint32_t k = 0; k < part->n; k++)
            if (part->at[k] >= lead_end(w, w->c->messages[w->c->message[part->at[k]]].prompt))
                part->at[kept++] = part->at[k];
        part->n = kept > 1 ? kept : 0;
    }
}

/* The part that follows the lead in all prompts, with little text before it, or SPLIT_NONE. */
static uint32_t planning_part_after_lead(const planning *w) {
    uint32_t number = SPLIT_NONE;
    bool varies = false;
    for (uint32_t p = 0; p < w->c->n_prompts; p++) {
        uint32_t end = lead_end(w, p);
        size_t i = spot_from(w, end);
        const split_message *m = message_of(w->c, p, w->p->lead.n_messages);
        if (i == w->n_spots || !m || w->spots[i].atom >= m->end || (p > 0 && w->spots[i].number != number))
            return SPLIT_NONE;
        number = w->spots[i].number;
        if (split_bytes(w->c, end, w->spots[i].atom) > SPLIT_ARGUMENT_BYTES) return SPLIT_NONE;
        varies |= w->spots[i].atom > end;
    }
    return varies && w->s->parts[number].n == w->c->n_prompts ? number : SPLIT_NONE;
}

/* Anonymous text has no parameters: if the lead ends in a sentence that continues with one, the start of that sentence
   becomes a part. */
static int cut_sentence(planning *w) {
    split_lead *lead = &w->p->lead;
    if (lead->n_atoms == 0 || planning_part_after_lead(w) == SPLIT_NONE) return RP_OK;
    uint32_t end = lead_end(w, 0), start = end - lead->n_atoms, from = end;
    while (from > start && split_border_at(w->c, from) < SPLIT_SENTENCE) from--;
    if (from == end || split_bytes(w->c, from, end) > SPLIT_ARGUMENT_BYTES) return RP_OK;
    BASE_ASSERT(end - from <= lead->n_atoms && w->c->n_prompts > 1);
    int rc = base_grow((void **)&w->s->parts, &w->s->cap_parts, (size_t)w->s->n_parts + 1, SPLIT_MAX_PARTS,
                       sizeof(*w->s->parts));
    if (rc)
        return base_fail(w->err, rc, "out of memory: %u shared passages: give fewer prompts", (unsigned)w->s->n_parts);
    split_part *part = &w->s->parts[w->s->n_parts++];
    *part = (split_part){.n_atoms = end - from, .n = w->c->n_prompts, .at = w->s->spare};
    lead->n_atoms -= part->n_atoms;
    for (uint32_t p = 0; p < w->c->n_prompts; p++) part->at[p] = lead_end(w, p);
    return RP_OK;
}

static int make_lead(planning *w) {
    int rc = list_spots(w);
    if (rc) return rc;
    measure_lead(w);
    trim_lead(w);
    leave_lead(w);
    if ((rc = list_spots(w)) || (rc = cut_sentence(w))) return rc;
    return list_spots(w);
}

/* ---- Joining parts ---- */

/* Atoms between a spot and the next one; SPLIT_NONE: that is in another message, or there is none. */
static uint32_t planning_gap_after(const planning *w, size_t i) {
    const spot *here = &w->spots[i];
    uint32_t end = here->atom + w->s->parts[here->number].n_atoms;
    if (i + 1 == w->n_spots || w->c->message[w->spots[i + 1].atom] != w->c->message[here->atom]) return SPLIT_NONE;
    BASE_ASSERT(w->spots[i + 1].atom >= end); /* parts do not overlap */
    return w->spots[i + 1].atom - end;
}

static size_t part_bytes(const planning *w, uint32_t number) {
    const split_part *part = &w->s->parts[number];
    return split_bytes(w->c, part->at[0], part->at[0] + part->n_atoms);
}

/* follow[a] = b if every place of a is followed by b, and every place of b is preceded by a. */
static void find_followers(planning *w) {
    for (uint32_t i = 0; i < w->s->n_parts; i++) w->follow[i] = SPLIT_NONE - 1; /* not seen */
    for (size_t i = 0; i < w->n_spots; i++) {
        uint32_t a = w->spots[i].number, gap = planning_gap_after(w, i),
                 b = gap == SPLIT_NONE ? SPLIT_NONE : w->spots[i + 1].number;
        if (b != SPLIT_NONE) {
            uint32_t end = w->spots[i + 1].atom;
            size_t bytes = split_bytes(w->c, end - gap, end);
            if (w->s->parts[a].n != w->s->parts[b].n || bytes > SPLIT_ARGUMENT_BYTES ||
                bytes > part_bytes(w, a) + part_bytes(w, b))
                b = SPLIT_NONE;
        }
        w->follow[a] = w->follow[a] == SPLIT_NONE - 1 || w->follow[a] == b ? b : SPLIT_NONE;
    }
    for (uint32_t i = 0; i < w->s->n_parts; i++) {
        if (w->follow[i] == SPLIT_NONE - 1) w->follow[i] = SPLIT_NONE;
        if (w->follow[i] != SPLIT_NONE) w->followed[w->follow[i]] = true;
    }
}

/* Is the text between a part and its follower the same everywhere? Both have their places in the same order. */
static bool gaps_agree(const planning *w, const split_part *a, const split_part *b) {
    BASE_ASSERT(a->n == b->n && a->at[0] + a->n_atoms <= b->at[0]);
    uint32_t first = a->at[0] + a->n_atoms, n = b->at[0] - first;
    for (uint32_t i = 1; i < a->n; i++) {
        uint32_t at = a->at[i] + a->n_atoms;
        if (b->at[i] - at != n || memcmp(w->c->id + at, w->c->id + first, n * sizeof(*w->c->id)) != 0) return false;
    }
    return true;
}

static int planning_add_module(planning *w, uint32_t n_pieces, uint32_t n, split_module **out) {
    BASE_ASSERT(n_pieces >= 1 && n_pieces <= SPLIT_MAX_PARAMS + 1 && n >= 2);
    split_plan *p = w->p;
    int rc = base_grow((void **)&p->modules, &p->cap_modules, (size_t)p->n_modules + 1, SPLIT_MAX_MODULES,
                       sizeof(*p->modules));
    if (rc)
        return base_fail(w->err, rc, "out of memory: %u modules: give fewer prompts, or a larger minimum size",
                         (unsigned)p->n_modules);
    split_module *m = *out = &p->modules[p->n_modules++];
    *m = (split_module){.n_pieces = n_pieces, .n = n, .union_id = -1};
    m->lengths = base_calloc(n_pieces, sizeof(*m->lengths));
    m->places = base_calloc((size_t)n * n_pieces, sizeof(*m->places));
    m->params = base_calloc(n_pieces, sizeof(*m->params));
    if (!m->lengths || !m->places || !m->params) return base_fail_memory(w->err, (uint64_t)n * n_pieces * 4, "modules");
    return RP_OK;
}

/* The parts of a chain, as pieces: those with the same text between them everywhere are one piece. *next: where the
   next module begins. */
static int join_chain(planning *w, uint32_t first, uint32_t *next) {
    const split_part *parts = w->s->parts;
    uint32_t begins[SPLIT_MAX_PARAMS + 1], ends[SPLIT_MAX_PARAMS + 1], n_pieces = 0;
    size_t bytes = 0;
    *next = SPLIT_NONE;
    for (uint32_t i = first, before = SPLIT_NONE; i != SPLIT_NONE; before = i, i = w->follow[i]) {
        bool joined = before != SPLIT_NONE && gaps_agree(w, &parts[before], &parts[i]);
        if (!joined && n_pieces == SPLIT_MAX_PARAMS + 1) {
            *next = i;
            break;
        }
        if (!joined) begins[n_pieces++] = i;
        ends[n_pieces - 1] = i;
    }
    for (uint32_t k = 0; k < n_pieces; k++)
        bytes += split_bytes(w->c, parts[begins[k]].at[0], parts[ends[k]].at[0] + parts[ends[k]].n_atoms);
    if (bytes < w->min_bytes) return RP_OK;
    split_module *m;
    int rc = planning_add_module(w, n_pieces, parts[first].n, &m);
    if (rc) return rc;
    m->n_bytes = bytes;
    for (uint32_t k = 0; k < n_pieces; k++) {
        m->lengths[k] = parts[ends[k]].at[0] + parts[ends[k]].n_atoms - parts[begins[k]].at[0];
        for (uint32_t i = 0; i < m->n; i++) m->places[(size_t)i * n_pieces + k] = parts[begins[k]].at[i];
    }
    return RP_OK;
}

static int compare_modules(const void *a, const void *b) {
    const split_module *x = a, *y = b;
    return (x->places[0] > y->places[0]) - (x->places[0] < y->places[0]);
}

static int make_modules(planning *w) {
    w->follow = base_calloc((size_t)w->s->n_parts + 1, sizeof(*w->follow));
    w->followed = base_calloc((size_t)w->s->n_parts + 1, sizeof(*w->followed));
    if (!w->follow || !w->followed) return base_fail_memory(w->err, w->s->n_parts, "modules");
    find_followers(w);
    int rc = RP_OK;
    for (uint32_t i = 0; i < w->s->n_parts && !rc; i++)
        for (uint32_t next, from = w->s->parts[i].n > 0 && !w->followed[i] ? i : SPLIT_NONE; from != SPLIT_NONE && !rc;
             from = next)
            rc = join_chain(w, from, &next);
    if (!rc && w->p->n_modules > 0) qsort(w->p->modules, w->p->n_modules, sizeof(*w->p->modules), compare_modules);
    return rc;
}

/* Only modules inside a role keep it open for text of prompts. Without any, the start of the open message is a module,
 * or stays in the prompts if it is too short. */
static int close_lead(planning *w) {
    split_lead *lead = &w->p->lead;
    if (lead->n_atoms == 0 || w->p->n_modules > 0 || message_of(w->c, 0, lead->n_messages)->role == SPLIT_PLAIN)
        return RP_OK;
    uint32_t n = lead->n_atoms, first = lead_end(w, 0) - n;
    lead->n_atoms = 0;
    if (split_bytes(w->c, first, first + n) < w->min_bytes) return RP_OK;
    split_module *m;
    int rc = planning_add_module(w, 1, w->c->n_prompts, &m);
    if (rc) return rc;
    m->lengths[0] = n;
    m->n_bytes = split_bytes(w->c, first, first + n);
    for (uint32_t p = 0; p < m->n; p++) m->places[p] = lead_end(w, p);
    return RP_OK;
}

/* ---- Unions ---- */

#define BEHIND_LEAD (SPLIT_NONE - 1)
#define BEGINS_MESSAGE 0x80000000u /* and its index in the prompt */

/* The element directly before a place of a module. end, number: of the module's preceding place in the row. */
static uint32_t left_of(const planning *w, uint32_t atom, uint32_t end, uint32_t number) {
    uint32_t message = w->c->message[atom], prompt = w->c->messages[message].prompt;
    if (w->p->lead.n_atoms > 0 && atom == lead_end(w, prompt)) return BEHIND_LEAD;
    if (atom == w->c->messages[message].first) return BEGINS_MESSAGE | (message - w->c->prompts[prompt].first);
    return atom == end ? number : SPLIT_NONE;
}

/* Number of prompts that contain an element. */
static uint32_t count_left(const planning *w, uint32_t left) {
    BASE_ASSERT(left != SPLIT_NONE && (left & BEGINS_MESSAGE || left < w->p->n_modules));
    uint32_t n = 0;
    if (left == BEHIND_LEAD) return w->c->n_prompts;
    if (!(left & BEGINS_MESSAGE)) return w->p->modules[left].n;
    for (uint32_t p = 0; p < w->c->n_prompts; p++) n += n_messages_of(w->c, p) > (left & ~BEGINS_MESSAGE);
    return n;
}

/* Modules by the element before them. */
typedef struct neighbour {
    uint32_t left, number;
} neighbour;

static int compare_neighbours(const void *a, const void *b) {
    const neighbour *x = a, *y = b;
    if (x->left != y->left) return x->left < y->left ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

/* Walks the row of all modules' places: the element before each module, SPLIT_NONE if that differs. */
static void see_left(const planning *w, const spot *row, size_t n, neighbour *left) {
    uint32_t end = SPLIT_NONE, before = SPLIT_NONE;
    for (uint32_t i = 0; i < w->p->n_modules; i++) left[i] = (neighbour){0, i};
    for (size_t i = 0; i < n; i++) {
        const split_module *m = &w->p->modules[row[i].number];
        BASE_ASSERT(end == SPLIT_NONE || end <= row[i].atom); /* modules do not overlap */
        uint32_t here = left_of(w, row[i].atom, end, before), last = m->n_pieces - 1;
        neighbour *of = &left[row[i].number];
        of->left = row[i].place == 0 || of->left == here ? here : SPLIT_NONE;
        end = m->places[(size_t)row[i].place * m->n_pieces + last] + m->lengths[last];
        before = row[i].number;
    }
}

static void unite_alternatives(planning *w, neighbour *left) {
    uint32_t n = w->p->n_modules;
    qsort(left, n, sizeof(*left), compare_neighbours);
    for (uint32_t i = 0, end; i < n; i = end) {
        uint64_t places = 0;
        for (end = i; end < n && left[end].left == left[i].left; end++) places += w->p->modules[left[end].number].n;
        if (left[i].left == SPLIT_NONE || end - i < 2 || 4 * places < 3 * (uint64_t)count_left(w, left[i].left))
            continue;
        for (uint32_t k = i; k < end; k++) w->p->modules[left[k].number].union_id = w->p->n_unions;
        w->p->n_unions++;
    }
}

static int make_unions(planning *w) {
    size_t n = 0;
    if (w->p->n_modules < 2) return RP_OK;
    for (uint32_t i = 0; i < w->p->n_modules; i++) n += w->p->modules[i].n;
    spot *row = base_calloc(n, sizeof(*row));
    neighbour *left = base_calloc(w->p->n_modules, sizeof(*left));
    int rc = row && left ? RP_OK : base_fail_memory(w->err, n * sizeof(*row), "unions");
    if (!rc) {
        n = 0;
        for (uint32_t i = 0; i < w->p->n_modules; i++)
            for (uint32_t k = 0; k < w->p->modules[i].n; k++)
                row[n++] = (spot){w->p->modules[i].places[(size_t)k * w->p->modules[i].n_pieces], i, k};
        qsort(row, n, sizeof(*row), compare_spots);
        see_left(w, row, n, left);
        unite_alternatives(w, left);
    }
    base_free(row);
    base_free(left);
    return rc;
}

/* ---- All of it ---- */

int split_plan_make(split_plan *p, const split_corpus *c, split_shares *s, size_t min_bytes, rp_error *err) {
    planning w = {.p = p, .c = c, .s = s, .min_bytes = min_bytes, .err = err};
    p->corpus = c;
    int rc;
    if (!(rc = make_lead(&w)) && !(rc = make_modules(&w)) && !(rc = close_lead(&w))) rc = make_unions(&w);
    base_free(w.spots);
    base_free(w.follow);
    base_free(w.followed);
    return rc;
}

void split_plan_free(split_plan *p) {
    for (uint32_t i = 0; i < p->n_modules; i++) {
        split_module *m = &p->modules[i];
        for (uint32_t k = 0; m->params && k + 1 < m->n_pieces; k++) base_free(m->params[k]);
        base_free(m->params);
        base_free(m->lengths);
        base_free(m->places);
        base_free(m->name);
    }
    base_free(p->modules);
}
