/* SPDX-License-Identifier: Apache-2.0 */
/* lint_use.c: prompts over a schema: which modules they import together, how long their arguments are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "tools/lint/lint_internal.h"
#include "pml/plan.h"

/* A prompt as it is read. */
typedef struct reader {
    lint *x;
    const pml_document *prompt;
    bool too_long; /* it has an argument that is: it cannot be planned */
} reader;

/* ---- Arguments ---- */

static int read_argument(reader *r, int32_t module, const pml_argument *a) {
    lint *x = r->x;
    int32_t node = pml_find_param(x->d, module, a->name);
    if (node < 0) return RP_OK; /* the plan reports it */
    token_list tokens = {0};
    int rc = pml_append_value(x->l->model, &x->d->nodes[node], a->value, &tokens, x->err);
    int32_t n = (int32_t)tokens.n;
    token_list_free(&tokens);
    if (rc) return rc;
    lint_param *p = &x->use.params[node];
    if (!p->sample && a->value[0] && !(p->sample = base_strdup(a->value)))
        return base_fail_memory(x->err, 64, "an argument");
    p->n_given++;
    p->longest = BASE_MAX(p->longest, n);
    p->n_too_long += n > x->d->nodes[node].param_len;
    r->too_long |= n > x->d->nodes[node].param_len;
    return RP_OK;
}

static int read_import(reader *r, int32_t holder, int32_t node) {
    const pml_node *n = &r->prompt->nodes[node];
    int32_t module = pml_find_module(r->x->d, holder, n->name, strlen(n->name));
    int rc = RP_OK;
    if (module < 0) return RP_OK; /* the plan reports it */
    for (int32_t i = 0; i < n->n_arguments && !rc; i++) rc = read_argument(r, module, &n->arguments[i]);
    for (int32_t c = n->first_child; c >= 0 && !rc; c = r->prompt->nodes[c].next)
        if (r->prompt->nodes[c].kind == PML_IMPORT) rc = read_import(r, module, c);
    return rc;
}

static int read_imports(reader *r, int32_t parent) {
    int rc = RP_OK;
    for (int32_t c = r->prompt->nodes[parent].first_child; c >= 0 && !rc; c = r->prompt->nodes[c].next) {
        if (r->prompt->nodes[c].kind == PML_IMPORT) rc = read_import(r, 0, c);
        else if (r->prompt->nodes[c].kind == PML_ROLE) rc = read_imports(r, c);
    }
    return rc;
}

/* ---- Modules ---- */

/* The module that an import names. */
static int32_t module_of(const reader *r, int32_t node) {
    int32_t holder = 0, around = r->prompt->nodes[node].parent;
    while (around >= 0 && r->prompt->nodes[around].kind == PML_ROLE) around = r->prompt->nodes[around].parent;
    if (around > 0 && r->prompt->nodes[around].kind == PML_IMPORT) holder = module_of(r, around);
    return pml_find_module(r->x->d, holder, r->prompt->nodes[node].name, strlen(r->prompt->nodes[node].name));
}

/* The prompt was planned: all of its names are right. */
static void count_modules(reader *r, const pml_plan *plan) {
    lint *x = r->x;
    for (int32_t m = 1; m < x->d->n_nodes; m++)
        if (x->d->nodes[m].kind == PML_MODULE) x->use.imported[m] += plan->included[m];
    for (int32_t i = 1; i < r->prompt->n_nodes; i++) {
        int32_t next = r->prompt->nodes[i].next;
        if (r->prompt->nodes[i].kind != PML_IMPORT || next < 0 || r->prompt->nodes[next].kind != PML_IMPORT) continue;
        int32_t m = module_of(r, i);
        BASE_ASSERT(m > 0);
        if (lint_next_module(x, m) >= 0 && lint_next_module(x, m) == module_of(r, next)) x->use.with_next[m]++;
    }
    x->use.n_planned++;
}

/* ---- Prompts ---- */

/* The library's error for a prompt becomes a finding, unless it is about this machine. The place is at the end of
   err->where. */
static int add_failure(lint *x, const rp_lint_prompt *p, int rc, const rp_error *e) {
    lint_place place = {p->name, 1, 1, LINT_OF_PROMPT};
    const char *message = e->message, *column = strrchr(e->where, ':');
    if (rc == RP_ERR_MEMORY || rc == RP_ERR_INTERNAL) {
        if (x->err) *x->err = *e;
        return rc;
    }
    if (column && column > e->where) {
        const char *line = column - 1;
        while (line > e->where && line[-1] != ':') line--;
        place.line = BASE_MAX(1, atoi(line));
        place.column = BASE_MAX(1, atoi(column + 1));
    }
    if (strncmp(message, e->where, strlen(e->where)) == 0)
        message += strlen(e->where) + strspn(message + strlen(e->where), ": ");
    return lint_add_at(x, RP_LINT_INVALID_PROMPT, &place, -1, "%s", message);
}

static int read_plan(reader *r, const rp_lint_prompt *p, rp_error *e) {
    lint *x = r->x;
    pml_plan *plan;
    int rc = pml_plan_new(&plan, x->l, r->prompt, false, (rp_quality){.mode = RP_QUALITY_AS_WRITTEN},
                          (rp_quality){.mode = RP_QUALITY_AS_WRITTEN}, e);
    if (rc) return add_failure(x, p, rc, e);
    count_modules(r, plan);
    if (plan->end >= x->n_ctx)
        rc = lint_add_at(x, RP_LINT_EXCEEDS_CONTEXT,
                         &(lint_place){p->name, r->prompt->nodes[0].line, r->prompt->nodes[0].column, LINT_OF_PROMPT},
                         -1,
                         "the prompt takes %d positions, but the context has %d: import less, or use a larger context",
                         plan->end, x->n_ctx);
    pml_plan_free(plan);
    return rc;
}

static int lint_use_read_prompt(lint *x, const rp_lint_prompt *p) {
    rp_error e = {0};
    pml_document *prompt;
    int rc = pml_prompt_parse(&prompt, p->pml, p->n, p->name, &e);
    if (rc) return add_failure(x, p, rc, &e);
    reader r = {.x = x, .prompt = prompt};
    if (strcmp(prompt->nodes[0].name, x->d->nodes[0].name) != 0) x->n_others++;
    else if (!(rc = read_imports(&r, 0)) && !r.too_long) rc = read_plan(&r, p, &e);
    pml_document_free(prompt);
    return rc;
}

int lint_read_use(lint *x, const rp_lint_prompt *prompts, size_t n_prompts) {
    size_t n = (size_t)x->d->n_nodes;
    int rc = RP_OK;
    x->use.imported = base_calloc(n, sizeof(int32_t));
    x->use.with_next = base_calloc(n, sizeof(int32_t));
    x->use.params = base_calloc(n, sizeof(lint_param));
    if (!x->use.imported || !x->use.with_next || !x->use.params)
        return base_fail_memory(x->err, n * sizeof(lint_param), "a schema's use");
    for (size_t i = 0; i < n_prompts && !rc; i++) rc = lint_use_read_prompt(x, &prompts[i]);
    return rc;
}

void lint_use_free(lint_use *use, int32_t n_nodes) {
    for (int32_t i = 0; use->params && i < n_nodes; i++) base_free(use->params[i].sample);
    base_free(use->imported);
    base_free(use->with_next);
    base_free(use->params);
}

/* ---- Parameters ---- */

static int lint_use_check_arguments(lint *x, int32_t i) {
    const pml_node *n = &x->d->nodes[i];
    const lint_param *p = &x->use.params[i];
    int32_t prompts = x->use.imported[pml_holder(x->d, i)];
    BASE_ASSERT(prompts <= x->use.n_planned && p->n_too_long <= p->n_given);
    if (p->n_too_long > 0)
        return lint_add(x, RP_LINT_LONG_ARGUMENT, i,
                        "%d of %d arguments of '%.40s' are longer than len=\"%d\", the longest %d tokens: write "
                        "len=\"%d\", or shorten them",
                        p->n_too_long, p->n_given, n->name, n->param_len, p->longest, p->longest);
    if (p->n_given == 0 && prompts >= LINT_LEAST_PROMPTS)
        return lint_add(x, RP_LINT_LONG_PARAMETER, i,
                        "none of %d prompts that import the module gives '%.40s' an argument: remove the parameter",
                        prompts, n->name);
    if (p->n_given == 0 || n->param_len <= p->longest + LINT_HOLE_TOKENS) return RP_OK;
    return lint_add(x, RP_LINT_LONG_PARAMETER, i,
                    "len=\"%d\", but the longest of %d argument%s of '%.40s' has %d tokens: the text after it attends "
                    "to %d meaningless placeholders: write len=\"%d\"",
                    n->param_len, p->n_given, p->n_given == 1 ? "" : "s", n->name, p->longest,
                    n->param_len - p->longest, BASE_MAX(1, p->longest));
}

/* Tokens of the module's own text after a hole of this segment. */
static int32_t lint_use_tokens_after(const lint *x, int32_t segment, const pml_hole *hole) {
    const pml_layout *l = x->l;
    const pml_segment *s = &l->segments[segment];
    int32_t n = s->n_tokens - hole->offset - hole->len;
    BASE_ASSERT(n >= 0);
    for (int32_t i = segment + 1; i <= x->last[s->holder]; i++)
        if (l->segments[i].holder == s->holder) n += l->segments[i].n_tokens;
    return n;
}

/* The first of a module's parameters has the most text after it. */
static int lint_use_check_after(lint *x, int32_t segment) {
    const pml_segment *s = &x->l->segments[segment];
    if (s->n_holes == 0 || !lint_is_reused(x, s->holder)) return RP_OK;
    for (int32_t i = x->first[s->holder]; i < segment; i++)
        if (x->l->segments[i].holder == s->holder && x->l->segments[i].n_holes > 0) return RP_OK;
    const pml_hole *hole = pml_segment_holes(x->l, s);
    int32_t behind = lint_use_tokens_after(x, segment, hole);
    if (behind < LINT_BEHIND_TOKENS) return RP_OK;
    return lint_add(x, RP_LINT_TEXT_AFTER_PARAMETER, hole->param,
                    "%d tokens of the module follow '%.40s' and attend to its placeholder, not to the argument: move "
                    "text that does not depend on it before it, or into its own module",
                    behind, x->d->nodes[hole->param].name);
}

int lint_check_params(lint *x) {
    int rc = RP_OK;
    for (int32_t i = 1; i < x->d->n_nodes && !rc; i++) {
        if (x->d->nodes[i].kind != PML_PARAM) continue;
        rc = lint_use_check_arguments(x, i);
    }
    for (int32_t i = 0; i < x->l->n_plain && !rc; i++) rc = lint_use_check_after(x, i);
    return rc;
}

/* ---- Text that belongs together ---- */

static bool is_plain_leaf(const lint *x, int32_t m) {
    return x->d->nodes[m].kind == PML_MODULE && lint_is_leaf(x, m) && lint_is_reused(x, m) && x->tokens[m] > 0;
}

static bool is_small(const lint *x, int32_t m) { return x->tokens[m] < LINT_SMALL_TOKENS; }

/* Do the prompts or, if there are too few, the modules' sizes suggest that module m and the next one belong
   together? */
static bool belongs_to_next(const lint *x, int32_t m) {
    int32_t next = lint_next_module(x, m), n = x->use.imported[m];
    if (next < 0 || !is_plain_leaf(x, m) || !is_plain_leaf(x, next)) return false;
    /* In another scope, or in one scaffold with it, its text would not say the same in one module. */
    if (x->l->scope_of[m] != x->l->scope_of[next] || lint_is_joint(x, m, next)) return false;
    if (x->is_grouped[m] || x->is_grouped[next]) return false;
    if (x->use.n_planned < LINT_LEAST_PROMPTS) return is_small(x, m) && is_small(x, next);
    return n >= LINT_LEAST_PROMPTS && x->use.imported[next] == n && x->use.with_next[m] == n;
}

/* From module m on as many as belong together. */
static int check_run(lint *x, int32_t m) {
    int32_t last = m, n = 1, sum = x->tokens[m], imported = x->use.imported[m];
    bool by_use = x->use.n_planned >= LINT_LEAST_PROMPTS;
    while (belongs_to_next(x, last)) {
        last = lint_next_module(x, last);
        sum += x->tokens[last];
        n++;
    }
    if (n == 1) return RP_OK;
    for (int32_t i = m; i >= 0 && i <= last; i = x->d->nodes[i].next) x->is_grouped[i] = true;
    if (by_use)
        return lint_add(x, RP_LINT_IMPORTED_TOGETHER, m,
                        "all %d prompts that import it also import the next %d, up to '%.40s': merge them into one "
                        "module (%d tokens): one view instead of %d, and each text attends to those before it",
                        imported, n - 1, x->d->nodes[last].name, sum, n);
    return lint_add(x, RP_LINT_IMPORTED_TOGETHER, m,
                    "%d small adjacent modules, up to '%.40s', %d tokens in total: merge those that prompts import "
                    "together, and write cache=\"false\" into the others (sample prompts show which)",
                    n, x->d->nodes[last].name, sum);
}

/* A module that is there whenever what holds it is. Anonymous text has no parameters, so one that has some stays a
   module. */
static int check_always(lint *x, int32_t m) {
    int32_t holder = pml_holder(x->d, m), n = x->use.imported[m];
    int32_t of = holder == 0 ? x->use.n_planned : x->use.imported[holder];
    if (n < LINT_LEAST_PROMPTS || n != of || !is_plain_leaf(x, m) || pml_union_of(x->d, m) >= 0 ||
        lint_is_joint(x, m, m))
        return RP_OK;
    if (lint_has_params(x, m) || x->l->scope_of[m] == PML_SCOPE_MODULE) return RP_OK;
    x->is_grouped[m] = true;
    if (holder == 0)
        return lint_add(x, RP_LINT_ALWAYS_IMPORTED, m,
                        "all %d prompts import it: make its text (%d tokens) the schema's own text, so that every "
                        "later module attends to it",
                        n, x->tokens[m]);
    return lint_add(x, RP_LINT_ALWAYS_IMPORTED, m,
                    "all %d prompts that import '%.40s' also import it: move its text (%d tokens) into that module", n,
                    x->d->nodes[holder].name, x->tokens[m]);
}

int lint_check_together(lint *x) {
    int rc = RP_OK;
    for (int32_t m = 1; m < x->d->n_nodes && !rc; m++)
        if (x->d->nodes[m].kind == PML_MODULE) rc = check_always(x, m);
    for (int32_t m = 1; m < x->d->n_nodes && !rc; m++)
        if (x->d->nodes[m].kind == PML_MODULE && !x->is_grouped[m]) rc = check_run(x, m);
    return rc;
}
