/* SPDX-License-Identifier: Apache-2.0 */
/* lint.c: the findings of a schema: their list, and those that need only the layout. Owns the list while it is made. One thread. */
#include "tools/lint/lint.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "tools/lint/lint_internal.h"
#include "pml/quality.h"

#define PATH_BYTES 512

static const char *const names[] = {
#define X(id, name, severity) name,
    RP_LINTS(X)
#undef X
};
static const rp_lint_severity severities[] = {
#define X(id, name, severity) RP_LINT_##severity,
    RP_LINTS(X)
#undef X
};
static const char *const severity_names[] = {"error", "warning", "note"};

const char *rp_lint_name(rp_lint_code code) { return (unsigned)code < RP_N_LINTS ? names[code] : NULL; }
const char *rp_lint_severity_name(rp_lint_severity s) {
    return (unsigned)s < RP_N_LINT_SEVERITIES ? severity_names[s] : NULL;
}

/* ---- The list ---- */

/* One block for a finding's strings: document, module, message. */
static char *join_strings(const char *document, const char *module, const char *message, rp_lint_finding *f) {
    size_t a = strlen(document) + 1, b = strlen(module) + 1, c = strlen(message) + 1;
    char *s = base_alloc(a + b + c);
    if (!s) return NULL;
    f->document = memcpy(s, document, a);
    f->module = memcpy(s + a, module, b);
    f->message = memcpy(s + a + b, message, c);
    return s;
}

int lint_add_at(lint *x, rp_lint_code code, const lint_place *place, int32_t module, const char *fmt, ...) {
    char path[PATH_BYTES] = "", message[RP_ERROR_MESSAGE_BYTES];
    if (x->n_entries == RP_LINT_MAX_FINDINGS) {
        x->n_left_out++;
        return RP_OK;
    }
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    if (base_grow((void **)&x->entries, &x->cap_entries, x->n_entries + 1, RP_LINT_MAX_FINDINGS, sizeof(*x->entries)))
        return base_fail_memory(x->err, sizeof(lint_entry), "a finding");
    lint_entry *e = &x->entries[x->n_entries];
    *e = (lint_entry){.number = x->n_entries, .source = place->source};
    e->f = (rp_lint_finding){.code = code, .severity = severities[code], .line = place->line, .column = place->column};
    e->strings =
        join_strings(place->document, module > 0 ? pml_path(x->d, module, path, sizeof(path)) : "", message, &e->f);
    if (!e->strings) return base_fail_memory(x->err, sizeof(message), "a finding");
    x->n_entries++;
    return RP_OK;
}

static int lint_compare(const void *a, const void *b) {
    const lint_entry *p = a, *q = b;
    if (p->source != q->source) return p->source < q->source ? -1 : 1;
    if (p->source != LINT_OF_PROMPT && p->f.line != q->f.line) return p->f.line < q->f.line ? -1 : 1;
    if (p->source != LINT_OF_PROMPT && p->f.column != q->f.column) return p->f.column < q->f.column ? -1 : 1;
    return p->number < q->number ? -1 : 1;
}

/* ---- Places ---- */

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

/* Both nodes are after it, inside the same holder. */
static bool lint_holds(const lint *x, int32_t node, int32_t inside) { return node <= inside && inside < x->end[node]; }

bool lint_excludes(const lint *x, int32_t a, int32_t b) {
    int32_t common = a;
    while (!lint_holds(x, common, b)) common = x->d->nodes[common].parent;
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

/* Ends of what each node holds; own tokens and segments of holders. */
static void lint_measure(lint *x) {
    for (int32_t i = x->d->n_nodes - 1; i >= 0; i--) {
        x->end[i] = i + 1;
        x->last[i] = -1;
        for (int32_t c = x->d->nodes[i].first_child; c >= 0; c = x->d->nodes[c].next) x->end[i] = x->end[c];
    }
    for (int32_t i = 0; i < x->l->n_plain; i++) {
        const pml_segment *s = &x->l->segments[i];
        if (x->last[s->holder] < 0) x->first[s->holder] = i;
        x->last[s->holder] = i;
        x->tokens[s->holder] += s->n_tokens;
        for (int32_t h = 0; h < s->n_holes; h++) x->tokens[s->holder] -= pml_segment_holes(x->l, s)[h].len;
    }
}

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
        return lint_add(x, RP_LINT_EMPTY, m, "the module is empty: give it the text that prompts reuse, or remove it");
    if (n >= LINT_SMALL_TOKENS || !lint_is_reused(x, m) || x->is_grouped[m]) return RP_OK;
    return lint_add(x, RP_LINT_SMALL, m,
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
    int32_t wasted = longest - (int32_t)(sum / n);
    if (wasted < LINT_UNION_TOKENS || wasted < longest / 2) return RP_OK;
    return lint_add(
        x, RP_LINT_UNION, u,
        "%d members of %d ('%.40s') to %d tokens ('%.40s') all reserve %d positions: a prompt leaves %d of them empty on average: %s",
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
        return lint_add(x, RP_LINT_CONTEXT, s->holder,
                        "%s ends at position %d, but the context has %d: no prompt can use it: shorten the text "
                        "before it, split it, or use a larger context",
                        s->holder == 0 ? "the schema's own text" : "the module", end, x->n_ctx);
    }
    if (l->length <= x->n_ctx) return RP_OK;
    return lint_add(
        x, RP_LINT_CROWDED, 0,
        "the whole schema takes %d positions, but the context has %d: a prompt can import only a part of it", l->length,
        x->n_ctx);
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
        return lint_add(x, RP_LINT_BEGINNING, m,
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
        return lint_add(x, RP_LINT_SCOPE, m,
                        "scope=\"module\" hides %d tokens that precede it in every prompt: write scope=\"path\", "
                        "which gives better answers at no cost, unless other schemas must share the same KV",
                        unseen);
    }
    return RP_OK;
}

/* ---- All ---- */

static int check_node(lint *x, int32_t i) {
    switch (x->d->nodes[i].kind) {
    case PML_MODULE: return lint_check_size(x, i);
    case PML_UNION: return check_union(x, i);
    default: return RP_OK;
    }
}

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
    for (int32_t i = 1; i < x->d->n_nodes; i++)
        if ((rc = check_node(x, i))) return rc;
    if ((rc = lint_check_context(x)) || (rc = check_beginning(x)) || (rc = check_scope(x))) return rc;
    if ((rc = lint_check_params(x)) || (rc = lint_check_space(x))) return rc;
    if ((rc = lint_check_names(x))) return rc;
    return lint_check_template(x, x->l->model);
}

static void free_entries(lint_entry *entries, size_t n) {
    for (size_t i = 0; i < n; i++) base_free(entries[i].strings);
    base_free(entries);
}

/* What rp_lint.owner is: the strings of the findings. */
typedef struct lint_owner {
    lint_entry *entries;
    size_t n;
} lint_owner;

static int lint_hand_over(lint *x, rp_lint **out) {
    rp_lint *made = base_calloc(1, sizeof(*made));
    if (made) made->struct_size = (uint32_t)sizeof(*made);
    lint_owner *owner = base_calloc(1, sizeof(*owner));
    rp_lint_finding *findings = base_calloc(x->n_entries + 1, sizeof(*findings));
    if (!made || !owner || !findings) {
        base_free(made);
        base_free(owner);
        base_free(findings);
        return base_fail_memory(x->err, sizeof(*findings) * (x->n_entries + 1), "findings");
    }
    *owner = (lint_owner){x->entries, x->n_entries};
    *made = (rp_lint){.findings = findings,
                      .n_findings = x->n_entries,
                      .n_left_out = x->n_left_out,
                      .n_prompts = (size_t)x->use.n_planned,
                      .n_others = x->n_others,
                      .owner = owner};
    if (x->n_entries > 0) qsort(x->entries, x->n_entries, sizeof(*x->entries), lint_compare);
    for (size_t i = 0; i < x->n_entries; i++) {
        findings[i] = x->entries[i].f;
        made->n_severity[findings[i].severity]++;
    }
    x->entries = NULL;
    x->n_entries = 0;
    *out = made;
    return RP_OK;
}

int lint_layout(const pml_layout *l, const rp_lint_prompt *prompts, size_t n_prompts, int32_t n_ctx, rp_lint **out,
                rp_error *err) {
    lint x = {.l = l, .d = l->schema, .n_ctx = n_ctx, .err = err};
    *out = NULL;
    int rc = lint_check(&x, prompts, n_prompts);
    if (!rc) rc = lint_hand_over(&x, out);
    free_entries(x.entries, x.n_entries);
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
    free_entries(x.entries, x.n_entries);
    return rc;
}

void rp_lint_free(rp_lint *made) {
    if (!made) return;
    lint_owner *owner = made->owner;
    free_entries(owner->entries, owner->n);
    base_free(owner);
    base_free(made->findings);
    base_free(made);
}
