/* SPDX-License-Identifier: Apache-2.0 */
/* plan_quality.c: the quality of each module of a plan, and the tokens of views that are recomputed in the prompt's
 * context.
 *
 *   view   [. . . . . . . .]          again: slots 0 and 1        [x x . . . . . .]
 *                                                          run    [a b]
 *
 * A recomputed token attends to all tokens before it, as free text does, and replaces the view's token for later
 * tokens.
 */
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "pml/plan_internal.h"
#include "pml/quality.h"

/* ---- effective quality ---- */

static bool is_asked_for(const plan_build *b) {
    return b->quality.mode != RP_QUALITY_AS_WRITTEN || b->prompt->nodes[0].quality.mode != RP_QUALITY_AS_WRITTEN;
}

static rp_quality quality_asked(const plan_build *b, int32_t holder) {
    if (b->quality.mode != RP_QUALITY_AS_WRITTEN) return b->quality;
    if (b->prompt->nodes[0].quality.mode != RP_QUALITY_AS_WRITTEN) return b->prompt->nodes[0].quality;
    for (int32_t i = holder; i >= 0; i = b->schema->nodes[i].parent)
        if (b->schema->nodes[i].quality.mode != RP_QUALITY_AS_WRITTEN) return b->schema->nodes[i].quality;
    return (rp_quality){RP_QUALITY_REUSE, 0};
}

rp_quality plan_quality_of(const plan_build *b, int32_t holder) {
    rp_quality q = quality_asked(b, holder);
    return is_asked_for(b) ? q : pml_quality_higher(q, b->least);
}

/* Anonymous text counts only without imported modules: it precedes them all, or its KV is as accurate as theirs. */
void plan_find_quality(plan_build *b) {
    rp_quality modules = {0}, text = {0};
    bool all_exact = true;
    for (size_t i = 0; i < b->n_entries; i++) {
        int32_t segment = b->entries[i].segment;
        if (segment < 0) continue;
        int32_t holder = b->layout->segments[segment].holder;
        rp_quality q = quality_asked(b, holder);
        rp_quality *of = holder == 0 ? &text : &modules;
        *of = pml_quality_higher(*of, q);
        if (holder != 0) all_exact &= plan_quality_of(b, holder).mode == RP_QUALITY_EXACT;
    }
    rp_quality asked = modules.mode != RP_QUALITY_AS_WRITTEN ? modules : text;
    if (asked.mode == RP_QUALITY_AS_WRITTEN) asked = quality_asked(b, 0);
    rp_quality used = is_asked_for(b) ? asked : pml_quality_higher(asked, b->least);
    b->plan->asked = asked;
    if (used.mode != asked.mode || used.amount != asked.amount) b->plan->raised = used;
    b->plan->is_flat = used.mode == RP_QUALITY_EXACT && all_exact;
}

/* ---- tokens that are computed again ---- */

static int insert_run(pml_plan *p, const pml_item *run, rp_error *err) {
    int rc = plan_add_item(p, run, err);
    if (rc) return rc;
    size_t i = p->n_items - 1;
    /* before the view that starts with it */
    for (; i > 0 && p->items[i - 1].pos >= run->pos; i--) p->items[i] = p->items[i - 1];
    p->items[i] = *run;
    return RP_OK;
}

/* Adds one run for each group of consecutive slots. */
static int add_runs(pml_plan *p, const pml_item *view, const int32_t *slots, int32_t n, const char *why,
                    rp_error *err) {
    const int32_t *tokens = pml_segment_tokens(p->layout, &p->layout->segments[view->segment]);
    int rc = RP_OK;
    for (int32_t i = 0, k; i < n && !rc; i = k) {
        BASE_ASSERT(slots[i] >= 0 && slots[i] < view->n_tokens);
        pml_item run = {.segment = view->segment,
                        .holder = view->holder,
                        .pos = view->pos + slots[i],
                        .first_token = p->tokens.n,
                        .why = why};
        for (k = i; k < n && slots[k] == slots[i] + k - i && !rc; k++)
            if (token_list_push(&p->tokens, tokens[slots[k]])) rc = base_fail_memory(err, sizeof(int32_t), "tokens");
        run.n_tokens = run.n_counted = k - i;
        if (!rc) rc = insert_run(p, &run, err);
    }
    return rc;
}

/* Merges two ascending lists without common elements. */
static void plan_quality_merge(int32_t *out, const int32_t *a, int32_t n_a, const int32_t *b, int32_t n_b) {
    for (int32_t i = 0, k = 0; i < n_a || k < n_b;) {
        bool first = k == n_b || (i < n_a && a[i] < b[k]);
        BASE_ASSERT(i == n_a || k == n_b || a[i] != b[k]);
        *out++ = first ? a[i++] : b[k++];
    }
}

/* The view's previous part of the list remains, unused. */
static int note_again(pml_plan *p, pml_item *view, const int32_t *slots, int32_t n, rp_error *err) {
    size_t first = p->n_again, need = first + (size_t)view->n_again + (size_t)n;
    int rc = base_grow((void **)&p->again, &p->cap_again, need, (size_t)1 << 30, sizeof(*p->again));
    if (rc) return base_fail(err, rc, "out of memory: %zu tokens to recompute", need);
    plan_quality_merge(p->again + first, pml_item_again(p, view), view->n_again, slots, n);
    view->first_again = first;
    view->n_again += n;
    p->n_again = need;
    return RP_OK;
}

int pml_plan_again(pml_plan *p, size_t item, const int32_t *slots, int32_t n, const char *why, rp_error *err) {
    BASE_ASSERT(item < p->n_items && p->items[item].is_view && n <= p->items[item].n_counted);
    if (n == 0) return RP_OK;
    int rc = note_again(p, &p->items[item], slots, n, err);
    if (rc) return rc;
    p->items[item].n_counted -= n;
    p->n_cached -= n;
    p->n_fresh += n;
    pml_item view = p->items[item]; /* a copy: items move */
    if (view.n_counted == 0) memmove(&p->items[item], &p->items[item + 1], (--p->n_items - item) * sizeof(view));
    return add_runs(p, &view, slots, n, why, err);
}

/* ---- link and exact ---- */

/* Recomputes the first k tokens of a view. */
static int begin_again(pml_plan *p, size_t item, int32_t k, const char *why, rp_error *err) {
    int32_t *list = base_alloc((size_t)k * sizeof(*list)), n = 0;
    pml_slots slots = pml_item_slots(p, &p->items[item]);
    if (!list) return base_fail_memory(err, (uint64_t)k * sizeof(*list), "a plan");
    while (n < k && pml_slots_next(&slots, &list[n])) n++;
    int rc = pml_plan_again(p, item, list, n, why, err);
    base_free(list);
    return rc;
}

int plan_compute_last(pml_plan *p, rp_error *err) {
    size_t i = 0;
    while (i < p->n_items &&
           (!p->items[i].is_view || p->items[i].n_tokens == p->layout->segments[p->items[i].segment].n_tokens))
        i++;
    return i < p->n_items ? begin_again(p, i, p->items[i].n_tokens, "last", err) : RP_OK;
}

int plan_turn_dial(pml_plan *p, rp_error *err) {
    int rc = RP_OK;
    for (size_t i = 0; i < p->n_items && !rc; i++) {
        const pml_item *view = &p->items[i];
        const bool is_right = view->exact && (view->has_format || view->quality.mode != RP_QUALITY_EXACT);
        if (!view->is_view || is_right || view->n_again > 0) continue;
        if (view->quality.mode == RP_QUALITY_LINK)
            rc = begin_again(p, i, BASE_MIN(view->quality.amount, view->n_tokens), "link", err);
        else if (view->quality.mode == RP_QUALITY_EXACT) rc = begin_again(p, i, view->n_tokens, "exact", err);
    }
    return rc;
}
