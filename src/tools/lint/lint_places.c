/* SPDX-License-Identifier: Apache-2.0 */
/* lint_places.c: where a schema's modules are, and what they see of each other: the questions that several checks ask.
   Owns nothing. One thread. */
#include "base/check.h"
#include "pml/quality.h"
#include "tools/lint/lint_internal.h"

/* As schema and modules say; a request may ask for another. */
static rp_quality_mode written_quality(const lint *x, int32_t holder) {
    for (; holder > 0 && x->d->nodes[holder].quality.mode == RP_QUALITY_AS_WRITTEN; holder = pml_holder(x->d, holder)) {
    }
    return x->d->nodes[holder].quality.mode;
}

bool lint_is_reused(const lint *x, int32_t holder) {
    return (holder == 0 || x->d->nodes[holder].cache) && written_quality(x, holder) != RP_QUALITY_EXACT;
}

bool lint_is_read_alone(const lint *x, int32_t holder) {
    return lint_is_reused(x, holder) &&
           pml_quality_rank(written_quality(x, holder)) < pml_quality_rank(RP_QUALITY_SCAFFOLD);
}

bool lint_has_seen(const lint *x, int32_t module, int32_t holder) {
    const pml_layout *l = x->l;
    for (int32_t i = x->first[module]; i <= x->last[module]; i++) {
        const pml_segment *s = &l->segments[i];
        for (int32_t k = 0; s->holder == module && k < s->n_scope; k++)
            if (l->segments[pml_segment_scope(l, s)[k]].holder == holder) return true;
    }
    return false;
}

bool lint_excludes(const lint *x, int32_t a, int32_t b) {
    BASE_ASSERT(b >= 0 && b < x->d->n_nodes); /* else nothing holds both */
    int32_t common = a;
    /* Up to the first that also holds b: a node holds those from itself on, before its x->end. */
    while (b < common || b >= x->end[common]) common = x->d->nodes[common].parent;
    return x->d->nodes[common].kind == PML_UNION;
}

static bool is_in_scaffold(const lint *x, const pml_scaffold *s, int32_t holder) {
    for (int32_t i = s->first_segment; i < s->first_segment + s->n_segments; i++)
        if (x->l->segments[i].holder == holder) return true;
    return false;
}

bool lint_is_joint(const lint *x, int32_t a, int32_t b) {
    for (int32_t i = 0; i < x->l->n_scaffolds; i++)
        if (is_in_scaffold(x, &x->l->scaffolds[i], a) && is_in_scaffold(x, &x->l->scaffolds[i], b)) return true;
    return false;
}

int32_t lint_next_module(const lint *x, int32_t module) {
    int32_t next = x->d->nodes[module].next;
    if (next < 0 || x->d->nodes[next].kind != PML_MODULE || pml_union_of(x->d, module) >= 0) return -1;
    return next;
}

static bool has_kind(const lint *x, int32_t module, pml_kind kind) {
    for (int32_t i = module + 1; i < x->end[module]; i++)
        if (x->d->nodes[i].kind == kind) return true;
    return false;
}

bool lint_is_leaf(const lint *x, int32_t module) {
    return !has_kind(x, module, PML_MODULE) && !has_kind(x, module, PML_ROLE);
}

bool lint_has_params(const lint *x, int32_t module) { return has_kind(x, module, PML_PARAM); }

void lint_measure(lint *x) {
    for (int32_t i = x->d->n_nodes - 1; i >= 0; i--) {
        x->end[i] = i + 1;
        x->last[i] = -1;
        for (int32_t c = x->d->nodes[i].first_child; c >= 0; c = x->d->nodes[c].next) x->end[i] = x->end[c];
    }
    for (int32_t i = 0; i < x->l->n_plain; i++) {
        const pml_segment *s = &x->l->segments[i];
        BASE_ASSERT(s->holder >= 0 && s->holder < x->d->n_nodes);
        if (x->last[s->holder] < 0) x->first[s->holder] = i;
        x->last[s->holder] = i;
        x->tokens[s->holder] += s->n_tokens;
        for (int32_t h = 0; h < s->n_holes; h++) x->tokens[s->holder] -= pml_segment_holes(x->l, s)[h].len;
    }
}
