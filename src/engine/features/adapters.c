/* SPDX-License-Identifier: Apache-2.0 */
/* adapters.c: see adapters.h. */
#include "engine/features/adapters.h"

#include <math.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "engine/core/abilities.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "model/adapter.h"
#include "backend/backend.h"
#include "pml/document.h"
#include "pml/plan.h"

typedef struct job_adapter {
    adapter_use use;  /* .adapter NULL: inactive */
    bool is_inactive; /* an activated adapter was given, and the prompt does not have its invocation tokens */
} job_adapter;

static job_adapter *adapter_of(const rp_job *c) { return job_feature_state(c, &adapters_feature); }

static int adapters_ask(rp_job *c, const rp_request *o, rp_error *err) {
    if (!isfinite(o->adapter_scale))
        return base_fail(err, RP_ERR_INVALID, "adapter_scale is %g: give a finite number", (double)o->adapter_scale);
    if (!o->adapter || o->adapter_scale == 0) return RP_OK;
    const int rc = engine_check_backend(c->engine, BACKEND_ADAPTS, "adapter", err);
    if (rc) return rc;
    if (o->adapter->model != c->engine->model)
        return base_fail(err, RP_ERR_INVALID, "the adapter was opened for another model: open it for the engine's");
    if (o->context_shift && o->adapter->n_invocation > 0)
        return base_fail(err, RP_ERR_CONFLICT, "context_shift contradicts an activated adapter: give one of them");
    job_adapter *a = job_feature_add(c, &adapters_feature);
    if (!a) return base_fail_memory(err, sizeof(*a), "an adapter's use");
    a->use = adapter_use_of(o->adapter, o->adapter_scale);
    c->wants.adapter = &a->use;
    return RP_OK;
}

/* ---- activation ---- */

/* The first of the last n tokens that equal the invocation; -1: there is none. */
static int32_t find_invocation(const rp_adapter *a, const int32_t *tokens, int32_t n) {
    for (int32_t i = n - a->n_invocation; i >= 0; i--) {
        int32_t k = 0;
        while (k < a->n_invocation && tokens[i + k] == a->invocation[k]) k++;
        if (k == a->n_invocation) return i;
    }
    return -1;
}

/* Modules are the base model's. */
static int check_modules(const rp_job *c, rp_error *err) {
    char path[JOB_PATH_BYTES];
    for (size_t i = 0; i < c->plan->n_items && !c->exact; i++) {
        const pml_item *item = &c->plan->items[i];
        if (!item->is_view || item->pos + item->n_tokens <= c->wants.adapter->from) continue;
        return base_fail(
            err, RP_ERR_UNSUPPORTED,
            "module '%s' is after the invocation tokens of the adapter: put it before them, or ask for quality exact",
            pml_path(c->plan->layout->schema, item->holder, path, sizeof(path)));
    }
    return RP_OK;
}

/* The plan is final: finds the invocation of an activated adapter, or does without it. */
static int adapters_plan(rp_job *c, rp_error *err) {
    job_adapter *own = adapter_of(c);
    const rp_adapter *a = own ? own->use.adapter : NULL;
    const int32_t n = c->plan->n_cached + c->plan->n_fresh;
    if (!a || a->n_invocation == 0) return RP_OK;
    int32_t *tokens = base_alloc(2 * (size_t)n * sizeof(*tokens));
    if (!tokens) return base_fail_memory(err, 2 * (uint64_t)n * sizeof(*tokens), "a prompt");
    int rc = pml_plan_flatten(c->plan, tokens, tokens + n, err);
    const int32_t at = rc ? -1 : find_invocation(a, tokens, n);
    if (at >= 0) own->use.from = tokens[n + at];
    base_free(tokens);
    if (rc) return rc;
    if (at >= 0) return check_modules(c, err);
    BASE_ASSERT(c->wants.adapter == &own->use);
    own->is_inactive = true;
    adapter_unref(own->use.adapter);
    own->use = (adapter_use){.adapter = NULL};
    c->wants.adapter = NULL;
    return RP_OK;
}

/* ---- rows and results ---- */

static void adapters_row(rp_job *c, BASE_UNUSED int32_t token, model_row *row) {
    const adapter_use *u = c->wants.adapter;
    if (!u) return;
    BASE_ASSERT(u->adapter); /* an inactive one is not wanted */
    row->adapter = adapter_use_at(u, row->pos);
    row->adapter_scale = u->scale;
}

static const char *adapters_warning(const rp_job *c) {
    return adapter_of(c)->is_inactive
               ? "the prompt does not have the adapter's invocation tokens: the base model computed all of it"
               : NULL;
}

static void adapters_describe(rp_job *c) {
    c->result->adapter_from = c->wants.adapter ? BASE_MAX(c->wants.adapter->from, 0) : -1;
}

static void adapters_close(rp_job *c) { adapter_unref(adapter_of(c)->use.adapter); }

const job_feature adapters_feature = {
    .name = "adapter",
    .state_bytes = sizeof(job_adapter),
    .ask = adapters_ask,
    .plan = adapters_plan,
    .row = adapters_row,
    .warning = adapters_warning,
    .describe = adapters_describe,
    .close = adapters_close,
};
