/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_prefix.c: texts of a list that are a prefix of a text. The list is sorted by bytes, so texts with a common
 * prefix are adjacent, and a walk along the text narrows a range of the list:
 *
 *   text "abd":   a.. -> [a, ab, abc, abd, b]   ab. -> [ab, abc, abd]   abd -> [abd]
 *                         ^ is whole                 ^ is whole             ^ is whole
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "model/tokenizer/tokenizer_internal.h"

static int tokenizer_prefix_compare(const void *a, const void *b) {
    const prefix_text *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    if (order) return order;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

void prefix_sort(prefix_list *l) { qsort(l->texts, (size_t)l->n, sizeof(*l->texts), tokenizer_prefix_compare); }

prefix_walk prefix_begin(const prefix_list *l) { return (prefix_walk){0, l->n, 0}; }

/* The first text of the walk's range with a next byte of at least `byte`. */
static int32_t first_from(const prefix_list *l, const prefix_walk *w, int byte) {
    int32_t low = w->low, high = w->high;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        const prefix_text *p = &l->texts[middle];
        if (p->n <= w->depth || (unsigned char)p->bytes[w->depth] < byte) low = middle + 1;
        else high = middle;
    }
    return low;
}

bool prefix_step(const prefix_list *l, prefix_walk *w, char next) {
    int byte = (unsigned char)next;
    w->low = first_from(l, w, byte);
    w->high = first_from(l, w, byte + 1);
    BASE_DCHECK(w->low <= w->high && w->high <= l->n);
    w->depth++;
    return w->low < w->high;
}

int prefix_whole(const prefix_list *l, const prefix_walk *w, const prefix_text **first) {
    BASE_DCHECK(w->low < w->high); /* the last step returned true */
    int n = 0;
    *first = &l->texts[w->low];
    while (w->low + n < w->high && l->texts[w->low + n].n == w->depth) n++;
    return n;
}
