/* SPDX-License-Identifier: Apache-2.0 */
/* template_sort.c: lists sorted as Python's sorted() does, each comparison a step. One thread. */
#include <string.h>

#include "base/check.h"
#include "template/template_internal.h"

/* Is a before b? Keys of `sort` are lists in Jinja: what is equal is not compared. */
static bool keyed_less(state *s, const keyed *a, const keyed *b, bool as_lists) {
    BASE_ASSERT(!a->keys == !b->keys);
    if (a->keys) {
        const value x = {.type = VALUE_LIST, .as.l = (list *)a->keys},
                    y = {.type = VALUE_LIST, .as.l = (list *)b->keys};
        return value_compare(s, x, y, "<") < 0;
    }
    if (as_lists && value_equal(s, a->key, b->key)) return false;
    return value_compare(s, a->key, b->key, "<") < 0;
}

/* A stable merge sort: items[from..to). */
static void merge_sort(state *s, keyed *items, keyed *spare, size_t from, size_t to, bool as_lists) {
    BASE_ASSERT(from <= to);
    if (to - from < 2 || s->failed) return;
    size_t middle = from + (to - from) / 2, a = from, b = middle;
    merge_sort(s, items, spare, from, middle, as_lists);
    merge_sort(s, items, spare, middle, to, as_lists);
    for (size_t i = from; i < to && !s->failed; i++) {
        bool second = a == middle || (b < to && keyed_less(s, &items[b], &items[a], as_lists));
        spare[i] = second ? items[b++] : items[a++];
    }
    if (!s->failed) memcpy(items + from, spare + from, (to - from) * sizeof(*items));
}

void keyed_reverse(keyed *items, size_t n) {
    for (size_t i = 0; i < n / 2; i++) {
        keyed x = items[i];
        items[i] = items[n - 1 - i];
        items[n - 1 - i] = x;
    }
}

/* Python's order of comparisons for few items, so that its first error is ours: a run, then insertion by halves. */
static void insertion_sort(state *s, keyed *items, size_t n, bool as_lists) {
    if (n < 2) return;
    size_t run = 2;
    bool falls = keyed_less(s, &items[1], &items[0], as_lists);
    while (run < n && !s->failed && keyed_less(s, &items[run], &items[run - 1], as_lists) == falls) run++;
    if (falls) keyed_reverse(items, run);
    for (; run < n && !s->failed; run++) {
        size_t left = 0, right = run;
        const keyed pivot = items[run];
        while (left < right && !s->failed) {
            size_t middle = left + (right - left) / 2;
            if (keyed_less(s, &pivot, &items[middle], as_lists)) right = middle;
            else left = middle + 1;
        }
        memmove(items + left + 1, items + left, (run - left) * sizeof(*items));
        items[left] = pivot;
    }
}

void keyed_sort(state *s, keyed *items, size_t n, bool as_lists) {
    enum { FEW = 64 };
    keyed *spare = n < FEW ? NULL : state_alloc(s, n * sizeof(*spare));
    if (spare) merge_sort(s, items, spare, 0, n, as_lists);
    else if (!s->failed) insertion_sort(s, items, n, as_lists);
}
