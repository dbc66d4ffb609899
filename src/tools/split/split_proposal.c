/* SPDX-License-Identifier: Apache-2.0 */
/* split_proposal.c: rp_split: a schema from plain prompts (split.h), and its savings: the plans of the prompts compared
 * with a prefix cache. No token is computed. Any thread; no state.
 */
#include <string.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "base/text.h"
#include "pml/document.h"
#include "pml/plan.h"
#include "tools/split/split.h"

#define DEFAULT_NAME "proposed"
#define DEFAULT_MIN_BYTES 64
#define MAX_MIN_BYTES 65536

/* The result and what its strings belong to. */
typedef struct proposal {
    rp_split_result result;
    split_proposed *split;
} proposal;

/* What counting tokens needs. */
typedef struct counting {
    const rp_split_prompt *prompts;
    const rp_model *model;
    proposal *p;
    pml_document *schema;
    pml_layout *layout;
    bool *seen; /* by segment: an earlier prompt took it */
    rp_error *err;
} counting;

void rp_split_options_init(rp_split_options *options, uint32_t struct_size) {
    base_sized_init(options, struct_size, &(rp_split_options){.name = DEFAULT_NAME, .min_bytes = DEFAULT_MIN_BYTES},
                    sizeof(rp_split_options));
}

/* ---- Checks ---- */

static int split_prompt_check_prompt(const rp_split_prompt *p, size_t i, rp_error *err) {
    if (!p->name || !p->messages || p->n_messages == 0 || (p->plain && p->n_messages != 1))
        return base_fail(err, RP_ERR_INVALID, "prompt %zu has no name or an invalid list of messages", i);
    for (size_t m = 0; m < p->n_messages; m++)
        if ((!p->plain && (unsigned)p->messages[m].role >= RP_N_ROLES) ||
            (!p->messages[m].text && p->messages[m].n > 0))
            return base_fail_at(err, RP_ERR_INVALID, p->name, 0, "%s: message %zu has no known role or no text",
                                p->name, m);
    return RP_OK;
}

static int split_prompt_check(const rp_split_prompt *prompts, size_t n, const rp_split_options *o, rp_error *err) {
    pml_document *d;
    base_buffer probe = BASE_BUFFER(PML_MAX_BYTES);
    if (!prompts || n == 0) return base_fail(err, RP_ERR_INVALID, "no prompts: give two or more");
    if (n > RP_MAX_SPLIT_PROMPTS)
        return base_fail(err, RP_ERR_LIMIT, "%zu prompts: give at most %d", n, RP_MAX_SPLIT_PROMPTS);
    if (o->min_bytes < 1 || o->min_bytes > MAX_MIN_BYTES)
        return base_fail(err, RP_ERR_INVALID, "min_bytes is %d: give 1 to %d", o->min_bytes, MAX_MIN_BYTES);
    if (o->model && model_check_whole(o->model, err)) return RP_ERR_UNSUPPORTED;
    if (o->model && !model_is_movable(o->model))
        return base_fail(
            err, RP_ERR_UNSUPPORTED,
            "the model has learned positions, but proposed modules come in any order: give another model, or none");
    int rc = base_buffer_printf(&probe, "<schema name=\"%s\"/>", o->name);
    if (rc) return base_fail_memory(err, strlen(o->name), "a name");
    rc = strpbrk(o->name, "\"<>&") ? RP_ERR_SYNTAX
                                   : pml_schema_parse(&d, probe.data, probe.len, "name", NULL, NULL, err);
    base_buffer_free(&probe);
    if (rc)
        return base_fail(err, RP_ERR_INVALID, "'%.*s' cannot be a schema's name: give an XML name", base_shown(o->name),
                         o->name);
    pml_document_free(d);
    for (size_t i = 0; i < n; i++)
        if ((rc = split_prompt_check_prompt(&prompts[i], i, err))) return rc;
    return RP_OK;
}

/* ---- Tokens ---- */

static uint64_t counting_first_uses(counting *w, const pml_plan *plan) {
    uint64_t n = 0;
    for (size_t i = 0; i < plan->n_items; i++) {
        const pml_item *item = &plan->items[i];
        BASE_ASSERT(!item->is_view || (item->segment >= 0 && item->segment < w->layout->n_segments));
        if (!item->is_view || w->seen[item->segment]) continue;
        w->seen[item->segment] = true;
        n += (uint64_t)item->n_counted;
    }
    return n;
}

static int plan_prompt(counting *w, size_t i) {
    rp_split_import *out = &w->p->result.prompts[i];
    pml_document *prompt = NULL;
    pml_plan *plan = NULL;
    int rc = pml_prompt_parse(&prompt, out->pml, out->n_pml, w->prompts[i].name, w->err);
    if (!rc) rc = pml_plan_new(&plan, w->layout, prompt, false, (rp_quality){0}, (rp_quality){0}, w->err);
    if (!rc) {
        BASE_ASSERT(plan->n_cached >= 0 && plan->n_fresh >= 0);
        out->total = (uint64_t)plan->n_cached + (uint64_t)plan->n_fresh;
        out->cached = (uint64_t)plan->n_cached;
        out->first = counting_first_uses(w, plan);
    }
    pml_plan_free(plan);
    pml_document_free(prompt);
    return rc;
}

/* The tokens of a prompt as it was given. */
static int counting_tokenize(const counting *w, size_t i, token_list *out) {
    const rp_split_prompt *p = &w->prompts[i];
    int32_t bos = tokenizer_adds_bos(w->model->tokenizer) ? tokenizer_bos(w->model->tokenizer) : -1;
    if (!p->plain) return pml_append_messages(w->model, p->messages, p->n_messages, false, out, w->err);
    if (bos >= 0 && token_list_push(out, bos)) return base_fail_memory(w->err, sizeof(bos), "tokens");
    return pml_append_text(w->model, p->messages[0].text, p->messages[0].n, false, out, w->err);
}

static int counting_find_prefixes(counting *w, size_t n) {
    token_list *rows = base_calloc(n, sizeof(*rows));
    const int32_t **ids = base_calloc(n, sizeof(*ids));
    size_t *lengths = base_calloc(n, sizeof(*lengths)), *shared = base_calloc(n, sizeof(*shared));
    int rc = rows && ids && lengths && shared ? RP_OK : base_fail_memory(w->err, n * sizeof(*rows), "tokens");
    for (size_t i = 0; i < n && !rc; i++) {
        rc = counting_tokenize(w, i, &rows[i]);
        ids[i] = rows[i].ids;
        lengths[i] = rows[i].n;
    }
    if (!rc) rc = split_prefixes(ids, lengths, n, shared, w->err);
    for (size_t i = 0; i < n && !rc; i++) /* the last token is always computed */
        w->p->result.prompts[i].prefix = shared[i] < lengths[i] || shared[i] == 0 ? shared[i] : shared[i] - 1;
    for (size_t i = 0; i < n && rows; i++) token_list_free(&rows[i]);
    base_free(rows);
    base_free(ids);
    base_free(lengths);
    base_free(shared);
    return rc;
}

static int counting_count_tokens(counting *w) {
    static const base_key salt = {{0}};
    const rp_split_result *r = &w->p->result;
    int rc = pml_schema_parse(&w->schema, r->schema, r->n_schema, "proposed schema", NULL, NULL, w->err);
    if (!rc) rc = pml_layout_new(&w->layout, w->schema, w->model, NULL, &salt, w->err);
    if (!rc && !(w->seen = base_calloc((size_t)w->layout->n_segments + 1, sizeof(*w->seen))))
        rc = base_fail_memory(w->err, 1, "a schema");
    for (size_t i = 0; i < r->n_prompts && !rc; i++) rc = plan_prompt(w, i);
    if (!rc) rc = counting_find_prefixes(w, r->n_prompts);
    base_free(w->seen);
    pml_layout_free(w->layout);
    pml_document_free(w->schema);
    return rc;
}

/* ---- The result ---- */

static int proposal_describe(proposal *p, rp_error *err) {
    const split_proposed *s = p->split;
    rp_split_result *r = &p->result;
    *r = (rp_split_result){.struct_size = (uint32_t)sizeof(*r),
                           .schema = s->schema.bytes,
                           .n_schema = s->schema.n,
                           .anonymous_bytes = s->lead_bytes,
                           .n_modules = s->n_modules,
                           .n_prompts = s->n_prompts,
                           .owner = p};
    r->modules = base_calloc(s->n_modules + 1, sizeof(*r->modules));
    r->prompts = base_calloc(s->n_prompts + 1, sizeof(*r->prompts));
    if (!r->modules || !r->prompts) return base_fail_memory(err, s->n_prompts * sizeof(*r->prompts), "prompts");
    for (size_t i = 0; i < s->n_modules; i++) {
        const split_proposed_module *m = &s->modules[i];
        r->modules[i] = (rp_split_module){.name = m->name,
                                          .is_alternative = m->is_alternative,
                                          .n_params = m->n_params,
                                          .n_prompts = m->n_prompts,
                                          .n_bytes = m->n_bytes};
    }
    for (size_t i = 0; i < s->n_prompts; i++) {
        const split_figures *f = &s->figures[i];
        r->prompts[i] = (rp_split_import){.pml = s->prompts[i].bytes,
                                          .n_pml = s->prompts[i].n,
                                          .total = f->total,
                                          .cached = f->cached,
                                          .first = f->first,
                                          .prefix = f->prefix};
    }
    return RP_OK;
}

int rp_split(const rp_split_prompt *prompts, size_t n, const rp_split_options *options, rp_split_result **out,
             rp_error *err) {
    rp_split_options o = rp_split_options_defaults();
    if (!out) return base_fail(err, RP_ERR_INVALID, "rp_split: out is needed");
    *out = NULL;
    int rc = base_sized_read(&o, sizeof(o), options, "rp_split_options", err);
    if (!o.name) o.name = DEFAULT_NAME;
    if (!rc) rc = split_prompt_check(prompts, n, &o, err);
    if (rc) return rc;
    proposal *p = base_calloc(1, sizeof(*p));
    if (!p) return base_fail_memory(err, sizeof(*p), "a schema");
    p->result.owner = p;
    rc = split_new(&p->split, prompts, n, &o, err);
    if (!rc) rc = proposal_describe(p, err);
    if (!rc && o.model) {
        p->result.counts_tokens = true;
        rc = counting_count_tokens(&(counting){.prompts = prompts, .model = o.model, .p = p, .err = err});
    }
    if (rc) rp_split_free(&p->result);
    else *out = &p->result;
    return rc;
}

void rp_split_free(rp_split_result *result) {
    if (!result) return;
    proposal *p = result->owner;
    base_free(p->result.modules);
    base_free(p->result.prompts);
    split_free(p->split);
    base_free(p);
}
