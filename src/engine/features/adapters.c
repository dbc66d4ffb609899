/* SPDX-License-Identifier: Apache-2.0 */
/* adapters.c: the LoRA adapter of a request: where it is switched on.
 *
 *   ordinary    modules: keys of the adapter (fallback.c)      text: a root of the adapter
 *   activated   | base model: keys and root of the base | invocation tokens, rest, answer: a root of the adapter |
 *                                                       from
 *
 * The root of the adapter is that of a scope (job_tokens.c), which the adapter with its scale names as well. The submitting thread, except
 * job_find_switch, which the engine's thread calls as well. */
#include "engine/features/adapters.h"

#include <math.h>

#include "base/error.h"
#include "base/memory.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "model/adapter.h"
#include "pml/document.h"
#include "pml/plan.h"

int job_take_adapter(rp_job *c, const rp_request *o, rp_error *err) {
    if (!isfinite(o->adapter_scale)) return base_fail(err, RP_ERR_INVALID, "adapter_scale is %g: give a finite number", (double)o->adapter_scale);
    if (!o->adapter || o->adapter_scale == 0) return RP_OK;
    if (o->adapter->model != c->engine->model)
        return base_fail(err, RP_ERR_INVALID, "the adapter was opened for another model: open it for the engine's");
    if (o->context_shift && o->adapter->n_invocation > 0)
        return base_fail(err, RP_ERR_CONFLICT, "context_shift contradicts an activated adapter: give one of them");
    c->adapter = adapter_use_of(o->adapter, o->adapter_scale);
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

static void do_without(rp_job *c) {
    c->is_inactive = true;
    adapter_unref(c->adapter.adapter);
    c->adapter = (adapter_use){.adapter = NULL};
}

/* Modules are the base model's. */
static int check_modules(const rp_job *c, rp_error *err) {
    char path[JOB_PATH_BYTES];
    for (size_t i = 0; i < c->plan->n_items && !c->exact; i++) {
        const pml_item *item = &c->plan->items[i];
        if (!item->is_view || item->pos + item->n_tokens <= c->adapter.from) continue;
        return base_fail(err, RP_ERR_UNSUPPORTED,
                         "module '%s' is after the invocation tokens of the adapter: put it before them, or ask for quality exact",
                         pml_path(c->plan->layout->schema, item->holder, path, sizeof(path)));
    }
    return RP_OK;
}

int job_activate_adapter(rp_job *c, rp_error *err) {
    const rp_adapter *a = c->adapter.adapter;
    const int32_t n = c->plan->n_cached + c->plan->n_fresh;
    if (!a || a->n_invocation == 0) return RP_OK;
    int32_t *tokens = base_alloc(2 * (size_t)n * sizeof(*tokens));
    if (!tokens) return base_fail_memory(err, 2 * (uint64_t)n * sizeof(*tokens), "a prompt");
    int rc = pml_plan_flatten(c->plan, tokens, tokens + n, err);
    const int32_t at = rc ? -1 : find_invocation(a, tokens, n);
    if (at >= 0) c->adapter.from = tokens[n + at];
    base_free(tokens);
    if (rc) return rc;
    if (at >= 0) return check_modules(c, err);
    do_without(c);
    return RP_OK;
}

/* ---- the switch ---- */

int32_t job_find_switch(rp_job *c) {
    c->switch_at = 0;
    if (!c->adapter.adapter) return INT32_MAX;
    while (c->switch_at < c->n_prompt && c->positions[c->switch_at] < c->adapter.from) c->switch_at++;
    return c->switch_at;
}
