/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_merge.c: lookup tables, and merging adjacent pieces by priority: n log n with a heap that skips stale
 * entries. */
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "model/tokenizer/tokenizer_internal.h"

/* ---- tables ---- */

int token_map_init(token_map *m, size_t n_entries) {
    m->n_slots = 16;
    while (m->n_slots < n_entries * 2) m->n_slots *= 2;
    m->slots = base_alloc(m->n_slots * sizeof(int32_t));
    if (!m->slots) return RP_ERR_MEMORY;
    memset(m->slots, 0xff, m->n_slots * sizeof(int32_t));
    return RP_OK;
}

static size_t text_slot(const tokenizer *t, const char *text, size_t n) {
    BASE_DCHECK(t->by_text.n_slots > (size_t)t->n_vocab); /* a slot is empty */
    size_t mask = t->by_text.n_slots - 1, i = (size_t)base_table_hash(text, n) & mask;
    for (int32_t id; (id = t->by_text.slots[i]) >= 0; i = (i + 1) & mask)
        if (t->texts[id].n == n && memcmp(t->texts[id].bytes, text, n) == 0) break;
    return i;
}

int32_t tokenizer_map_find(const tokenizer *t, const char *text, size_t n) {
    return t->by_text.slots[text_slot(t, text, n)];
}

void tokenizer_map_fill(tokenizer *t) {
    for (int32_t id = 0; id < t->n_vocab; id++) {
        size_t i = text_slot(t, t->texts[id].bytes, (size_t)t->texts[id].n);
        if (t->by_text.slots[i] < 0) t->by_text.slots[i] = id;
    }
}

static size_t pair_slot(const tokenizer *t, int32_t left, int32_t right) {
    BASE_DCHECK(t->by_pair.n_slots > (size_t)t->n_merges);
    int32_t key[2] = {left, right};
    size_t mask = t->by_pair.n_slots - 1, i = (size_t)base_table_hash(key, sizeof(key)) & mask;
    for (int32_t rank; (rank = t->by_pair.slots[i]) >= 0; i = (i + 1) & mask)
        if (t->merges[rank].left == left && t->merges[rank].right == right) break;
    return i;
}

int32_t tokenizer_pair_rank(const tokenizer *t, int32_t left, int32_t right) {
    return t->by_pair.slots[pair_slot(t, left, right)];
}

void tokenizer_pairs_fill(tokenizer *t) {
    for (int32_t rank = 0; rank < t->n_merges; rank++) {
        if (t->merges[rank].merged < 0) continue;
        size_t i = pair_slot(t, t->merges[rank].left, t->merges[rank].right);
        if (t->by_pair.slots[i] < 0) t->by_pair.slots[i] = rank;
    }
}

/* ---- merging ---- */

int merge_add_piece(merge_work *w, size_t start, size_t n, int32_t id) {
    BASE_DCHECK(w->n_pieces == 0 || w->pieces[w->n_pieces - 1].start + w->pieces[w->n_pieces - 1].n == start);
    int rc = base_grow((void **)&w->pieces, &w->cap_pieces, w->n_pieces + 1, INT32_MAX / 2, sizeof(*w->pieces));
    if (rc) return rc;
    int32_t i = (int32_t)w->n_pieces++;
    w->pieces[i] = (merge_piece){.prev = i - 1, .next = -1, .start = start, .n = n, .id = id};
    if (i > 0) w->pieces[i - 1].next = i;
    return RP_OK;
}

static bool goes_before(const merge_candidate *a, const merge_candidate *b) {
    return a->priority != b->priority ? a->priority > b->priority : a->left < b->left;
}

static int heap_push(merge_work *w, const merge_candidate *c) {
    int rc = base_grow((void **)&w->heap, &w->cap_heap, w->n_heap + 1, INT32_MAX, sizeof(*w->heap));
    if (rc) return rc;
    size_t i = w->n_heap++;
    for (; i > 0 && goes_before(c, &w->heap[(i - 1) / 2]); i = (i - 1) / 2) w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = *c;
    return RP_OK;
}

static merge_candidate heap_pop(merge_work *w) {
    BASE_ASSERT(w->n_heap > 0);
    merge_candidate top = w->heap[0], last = w->heap[--w->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < w->n_heap; i = child) {
        if (child + 1 < w->n_heap && goes_before(&w->heap[child + 1], &w->heap[child])) child++;
        if (!goes_before(&w->heap[child], &last)) break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = last;
    return top;
}

static int merge_work_offer(merge_work *w, int32_t left, int32_t right) {
    if (left < 0 || right < 0) return RP_OK;
    BASE_DCHECK(w->pieces[left].next == right && w->pieces[right].prev == left);
    merge_candidate c = {.left = left, .right = right, .n = w->pieces[left].n + w->pieces[right].n};
    return w->propose(w, &w->pieces[left], &w->pieces[right], &c) ? heap_push(w, &c) : RP_OK;
}

int merge_run(merge_work *w) {
    int rc;
    for (size_t i = 1; i < w->n_pieces; i++)
        if ((rc = merge_work_offer(w, (int32_t)i - 1, (int32_t)i))) return rc;
    while (w->n_heap > 0) {
        merge_candidate c = heap_pop(w);
        merge_piece *l = &w->pieces[c.left], *r = &w->pieces[c.right];
        /* one of them has changed since */
        if (l->n == 0 || r->n == 0 || l->next != c.right || l->n + r->n != c.n) continue;
        BASE_DCHECK(l->start + l->n == r->start);
        l->n = c.n;
        l->id = c.id;
        l->next = r->next;
        r->n = 0;
        if (l->next >= 0) w->pieces[l->next].prev = c.left;
        if ((rc = merge_work_offer(w, l->prev, c.left)) || (rc = merge_work_offer(w, c.left, l->next))) return rc;
    }
    return RP_OK;
}

void merge_free(merge_work *w) {
    base_free(w->pieces);
    base_free(w->heap);
}
