/* SPDX-License-Identifier: Apache-2.0 */
/* lint.c: all checks of a schema, and those that need only the layout. Owns what is measured while they run. One
   thread. */
#include "tools/lint/lint.h"

#include <stdio.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "tools/lint/lint_internal.h"

/* ---- Sizes ---- */

/* "48.0 KiB" of n slots in all layers. */
static const char *slot_bytes(const lint *x, int32_t n, char out[32]) {
    kv_shape shape = model_kv_shape(x->l->model, RP_KV_F16);
    double bytes = (double)kv_shape_token_bytes(&shape) * n;
    if (bytes < 1 << 20) snprintf(out, 32, "%.1f KiB", bytes / 1024);
    else snprintf(out, 32, "%.1f MiB", bytes / (1 << 20));
    return out;
}

static int lint_check_size(lint *x, int32_t m) {
    char bytes[32];
    int32_t n = x->tokens[m], slots = KV_BLOCK_SLOTS;
    if (!lint_is_leaf(x, m)) return RP_OK;
    if (n == 0)
        return lint_add(x, RP_LINT_EMPTY_MODULE, m,
                        "the module is empty: give it the text that prompts reuse, or remove it");
    if (n >= LINT_SMALL_TOKENS || !lint_is_reused(x, m) || x->is_grouped[m]) return RP_OK;
    return lint_add(x, RP_LINT_SMALL_MODULE, m,
                    "%d token%s (less than %d): reuse saves little, and costs a view that every later token attends "
                    "to and a block of %d slots in each layer (%s), %d %% of it empty: write cache=\"false\", or "
                    "merge it with the adjacent text",
                    n, n == 1 ? "" : "s", LINT_SMALL_TOKENS, slots, slot_bytes(x, slots, bytes),
                    100 * (slots - n) / slots);
}

/* ---- Unions ---- */

/* Positions that a member takes, with all that it holds. */
static int32_t lint_extent(const lint *x, int32_t node) {
    int32_t begin = INT32_MAX, end = 0;
    for (int32_t m = node; m < x->end[node]; m++) {
        if (x->last[m] < 0) continue;
        const pml_segment *last = &x->l->segments[x->last[m]];
        begin = BASE_MIN(begin, x->l->segments[x->first[m]].pos);
        end = BASE_MAX(end, last->pos + last->n_tokens);
    }
    return end > 0 ? end - begin : 0;
}

static int check_union(lint *x, int32_t u) {
    int32_t longest = 0, shortest = INT32_MAX, long_one = -1, short_one = -1, n = 0;
    int64_t sum = 0;
    if (!x->l->fixed) return RP_OK;
    for (int32_t m = x->d->nodes[u].first_child; m >= 0; m = x->d->nodes[m].next, n++) {
        int32_t tokens = lint_extent(x, m);
        sum += tokens;
        if (tokens > longest) longest = tokens, long_one = m;
        if (tokens < shortest) shortest = tokens, short_one = m;
    }
    BASE_ASSERT(n > 0); /* the parser refuses empty unions */
    int32_t wasted = longest - (int32_t)(sum / n);
    if (wasted < LINT_UNION_TOKENS || wasted < longest / 2) return RP_OK;
    return lint_add(x, RP_LINT_UNEVEN_UNION, u,
                    "%d members of %d ('%.40s') to %d tokens ('%.40s') all reserve %d positions: a prompt leaves %d of "
                    "them empty on average: %s",
                    n, shortest, x->d->nodes[short_one].name, longest, x->d->nodes[long_one].name, longest, wasted,
                    model_is_movable(x->l->model)
                        ? "write layout=\"packed\", which leaves no gaps, or move the longest out of the union"
                        : "move the longest out of the union, or shorten it");
}

/* ---- Positions ---- */

static int lint_check_context(lint *x) {
    const pml_layout *l = x->l;
    for (int32_t i = 0; i < l->n_plain; i++) {
        const pml_segment *s = &l->segments[i];
        int32_t end = s->pos + s->n_tokens;
        if (end <= x->n_ctx) continue;
        return lint_add(x, RP_LINT_EXCEEDS_CONTEXT, s->holder,
                        "%s ends at position %d, but the context has %d: no prompt can use it: shorten the text "
                        "before it, split it, or use a larger context",
                        s->holder == 0 ? "the schema's own text" : "the module", end, x->n_ctx);
    }
    if (l->length <= x->n_ctx) return RP_OK;
    return lint_add(
        x, RP_LINT_SCHEMA_EXCEEDS_CONTEXT, 0,
        "the whole schema takes %d positions, but the context has %d: a prompt can import only a part of it", l->length,
        x->n_ctx);
}

/* What becomes of the modules of a model with recurrent layers is the engine's choice. */
static int check_recurrent(lint *x) {
    const rp_model *m = x->l->model;
    int32_t node = 1;
    if (!model_is_recurrent(&m->net)) return RP_OK;
    while (node < x->d->n_nodes && (x->d->nodes[node].kind != PML_MODULE || !lint_is_reused(x, node))) node++;
    if (node == x->d->n_nodes) return RP_OK;
    return lint_add(x, RP_LINT_RECURRENT_MODEL, node,
                    "'%s' has recurrent layers: by default modules are text of the prompt, and reused as a prefix "
                    "only: list them in the same order, or reuse them in any order, approximately, with "
                    "--module-states last%s; blend, focus and keep are not supported",
                    m->arch->name, model_states_compose(&m->net) ? " or composed" : "");
}

/* A module at the very start is tokenized as the start of a text, wherever a prompt imports it. */
static int check_beginning(lint *x) {
    if (x->l->fixed) return RP_OK; /* positions before them stay free */
    for (int32_t m = 1; m < x->d->n_nodes; m++) {
        if (x->d->nodes[m].kind != PML_MODULE || !lint_is_reused(x, m) || x->l->scope_of[m] == PML_SCOPE_MODULE)
            continue;
        if (x->tokens[m] < LINT_SMALL_TOKENS) continue;
        const pml_segment *s = &x->l->segments[x->first[m]];
        if (s->pos >= LINT_BEGINNING_TOKENS) return RP_OK;
        return lint_add(x, RP_LINT_SHORT_BEGINNING, m,
                        "only %d token%s before it when it is prefilled: its KV is that of the beginning of a text, "
                        "wherever a prompt puts it: begin the schema with a sentence or two of its own text",
                        s->pos, s->pos == 1 ? "" : "s");
    }
    return RP_OK;
}

/* Tokens that every prompt has before the module and that it may not see. */
static int32_t unseen_tokens(const lint *x, int32_t m) {
    int32_t n = 0;
    for (int32_t h = pml_holder(x->d, m); h >= 0; h = pml_holder(x->d, h))
        for (int32_t i = x->first[h]; i <= BASE_MIN(x->last[h], x->first[m]); i++)
            if (x->l->segments[i].holder == h) n += x->l->segments[i].n_tokens;
    return n;
}

static int check_scope(lint *x) {
    for (int32_t m = 1; m < x->d->n_nodes; m++) {
        if (x->d->nodes[m].kind != PML_MODULE || !lint_is_reused(x, m) || x->tokens[m] == 0 ||
            x->l->scope_of[m] != PML_SCOPE_MODULE)
            continue;
        int32_t unseen = unseen_tokens(x, m);
        if (unseen < LINT_BEGINNING_TOKENS) continue;
        return lint_add(x, RP_LINT_MODULE_SCOPE, m,
                        "scope=\"module\" hides %d tokens that precede it in every prompt: write scope=\"path\", "
                        "which gives better answers at no cost, unless other schemas must share the same KV",
                        unseen);
    }
    return RP_OK;
}

/* ---- All ---- */

static int lint_check(lint *x, const rp_lint_prompt *prompts, size_t n_prompts) {
    int rc;
    size_t n = (size_t)x->d->n_nodes;
    x->tokens = base_calloc(n, sizeof(int32_t));
    x->end = base_calloc(n, sizeof(int32_t));
    x->first = base_calloc(n, sizeof(int32_t));
    x->last = base_calloc(n, sizeof(int32_t));
    x->is_grouped = base_calloc(n, sizeof(bool));
    if (!x->tokens || !x->end || !x->first || !x->last || !x->is_grouped)
        return base_fail_memory(x->err, n * 17, "a schema's findings");
    lint_measure(x);
    if ((rc = lint_read_use(x, prompts, n_prompts)) || (rc = lint_check_together(x))) return rc;
    for (int32_t i = 1; i < x->d->n_nodes; i++) {
        if (x->d->nodes[i].kind == PML_MODULE) rc = lint_check_size(x, i);
        else if (x->d->nodes[i].kind == PML_UNION) rc = check_union(x, i);
        if (rc) return rc;
    }
    if ((rc = lint_check_context(x)) || (rc = check_beginning(x)) || (rc = check_scope(x)) ||
        (rc = check_recurrent(x)))
        return rc;
    if ((rc = lint_check_params(x)) || (rc = lint_check_space(x))) return rc;
    if ((rc = lint_check_names(x))) return rc;
    return lint_check_template(x, x->l->model);
}

int lint_layout(const pml_layout *l, const rp_lint_prompt *prompts, size_t n_prompts, int32_t n_ctx, rp_lint **out,
                rp_error *err) {
    lint x = {.l = l, .d = l->schema, .n_ctx = n_ctx, .err = err};
    *out = NULL;
    int rc = lint_check(&x, prompts, n_prompts);
    if (!rc) rc = lint_hand_over(&x, out);
    lint_entries_free(x.entries, x.n_entries);
    lint_use_free(&x.use, x.d->n_nodes);
    base_free(x.tokens);
    base_free(x.end);
    base_free(x.first);
    base_free(x.last);
    base_free(x.is_grouped);
    return rc;
}

int rp_model_lint(const rp_model *model, rp_lint **out, rp_error *err) {
    lint x = {.err = err};
    if (!model || !out)
        return base_fail(err, RP_ERR_INVALID, "rp_model_lint: a model and a place for the findings are needed");
    *out = NULL;
    int rc = lint_check_template(&x, model);
    if (!rc) rc = lint_hand_over(&x, out);
    lint_entries_free(x.entries, x.n_entries);
    return rc;
}
