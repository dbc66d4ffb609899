/* SPDX-License-Identifier: Apache-2.0 */
/* plan_items.c: the items of a plan: their list, the slots of a view that the prompt attends to, and the plan flattened
 * to a prompt without views. Uses no other file of the plan. */
#include <stdlib.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "pml/plan_internal.h"

/* ---- the list ---- */

int plan_add_item(pml_plan *p, const pml_item *item, rp_error *err) {
    BASE_ASSERT(item->n_tokens >= 0 && item->pos >= 0 && (!item->is_view || item->segment >= 0));
    int rc = base_grow((void **)&p->items, &p->cap_items, p->n_items + 1, KV_MAX_VIEWS, sizeof(*item));
    if (rc) return base_fail(err, rc, "the plan has too many parts");
    p->items[p->n_items++] = *item;
    return RP_OK;
}

void pml_plan_free(pml_plan *p) {
    if (!p) return;
    base_free(p->items);
    base_free(p->missing);
    base_free(p->again);
    base_free(p->included);
    base_free(p->turns);
    base_free(p->opened.begun);
    token_list_free(&p->tokens);
    base_free(p);
}

void pml_plan_move(pml_plan *p, int32_t n) {
    BASE_ASSERT(n >= 0);
    for (size_t i = 0; i < p->n_items; i++) {
        p->items[i].pos += n;
        if (p->items[i].is_view) p->items[i].shift += n;
    }
    p->end += n;
}

/* ---- slots ---- */

pml_slots pml_item_slots(const pml_plan *p, const pml_item *view) {
    const pml_segment *s = &p->layout->segments[view->segment];
    BASE_ASSERT(view->is_view && view->n_tokens <= s->n_tokens);
    return (pml_slots){.holes = pml_segment_holes(p->layout, s), .n_holes = s->n_holes, .n = view->n_tokens};
}

bool pml_slots_next(pml_slots *s, int32_t *slot) {
    for (; s->hole < s->n_holes && s->next >= s->holes[s->hole].offset; s->hole++)
        s->next = BASE_MAX(s->next, s->holes[s->hole].offset + s->holes[s->hole].len);
    *slot = s->next++;
    return *slot < s->n;
}

int32_t pml_item_first_position(const pml_plan *p, const pml_item *view) {
    const int32_t *again = pml_item_again(p, view);
    pml_slots slots = pml_item_slots(p, view);
    int32_t slot = 0;
    for (int32_t k = 0; pml_slots_next(&slots, &slot) && k < view->n_again && again[k] == slot;) k++;
    return view->pos + slot;
}

/* ---- flat ---- */

typedef struct placed_token {
    int32_t pos, token, item;
} placed_token;

static int compare_placed(const void *a, const void *b) {
    const placed_token *x = a, *y = b;
    return (x->pos > y->pos) - (x->pos < y->pos);
}

static size_t flatten_view(const pml_plan *p, const pml_item *item, placed_token *out) {
    const int32_t *tokens = pml_segment_tokens(p->layout, &p->layout->segments[item->segment]),
                  *again = pml_item_again(p, item);
    pml_slots slots = pml_item_slots(p, item);
    size_t n = 0;
    for (int32_t i, k = 0; pml_slots_next(&slots, &i);)
        if (k < item->n_again && again[k] == i) k++;
        else out[n++] = (placed_token){item->pos + i, tokens[i], (int32_t)(item - p->items)};
    BASE_ASSERT(n == (size_t)item->n_counted);
    return n;
}

int pml_plan_flatten(const pml_plan *p, int32_t *tokens, int32_t *positions, rp_error *err) {
    return pml_plan_flatten_items(p, tokens, positions, NULL, err);
}

int pml_plan_flatten_items(const pml_plan *p, int32_t *tokens, int32_t *positions, int32_t *items, rp_error *err) {
    size_t total = (size_t)p->n_cached + (size_t)p->n_fresh, n = 0;
    placed_token *all = base_alloc(total * sizeof(*all));
    if (!all) return base_fail_memory(err, total * sizeof(*all), "a plain prompt");
    for (size_t i = 0; i < p->n_items; i++) {
        const pml_item *item = &p->items[i];
        if (item->is_view) n += flatten_view(p, item, all + n);
        else
            for (int32_t k = 0; k < item->n_tokens; k++)
                all[n++] = (placed_token){item->pos + k, p->tokens.ids[item->first_token + (size_t)k], (int32_t)i};
    }
    BASE_ASSERT(n == total);
    qsort(all, n, sizeof(*all), compare_placed);
    for (size_t i = 0; i < n; i++) {
        tokens[i] = all[i].token;
        positions[i] = all[i].pos;
        if (items) items[i] = all[i].item;
    }
    base_free(all);
    return RP_OK;
}
