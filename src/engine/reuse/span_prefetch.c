/* SPDX-License-Identifier: Apache-2.0 */
/* span_prefetch.c: see span_prefetch.h. */
#include "engine/reuse/span_prefetch.h"

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/schemas.h"
#include "engine/reuse/prefix.h"
#include "kv/block_pool.h"
#include "kv/span.h"
#include "pml/layout.h"
#include "pml/plan.h"
#include "store/span_store.h"

#define ROOM_SHARE 2 /* divisor of the unreserved memory */

typedef struct fetching {
    rp_engine *e;
    prefetch *ahead;
    bool full; /* no memory for more */
} fetching;

/* A span_tree_fn. */
static bool span_prefetch_fetch(void *user, const base_key *key) {
    fetching *f = user;
    rp_engine *e = f->e;
    prefetch *a = f->ahead;
    int64_t blocks = (int64_t)(span_store_idle_bytes_of(e->store, key) / kv_pool_block_bytes(e->pool));
    f->full = (blocks > 0 && blocks * ROOM_SHARE > span_store_free_blocks(e->store)) ||
              base_grow((void **)&a->spans, &a->cap, a->n + 1, SPAN_STORE_MAX, sizeof(*a->spans)) != RP_OK;
    kv_span *span = f->full ? NULL : span_store_fetch(e->store, key);
    if (span) a->spans[a->n++] = span;
    return span;
}

/* The first span has the number of the others. */
static void fetch_reduced(fetching *f, const pml_segment *s) {
    int32_t n = 1;
    for (int32_t i = 0; i < n; i++) {
        const base_key key = pml_reduced_key(s, i);
        if (!span_prefetch_fetch(f, &key)) return;
        if (i == 0) n = kv_span_parts(f->ahead->spans[f->ahead->n - 1]);
    }
}

/* The states that a prompt's recurrent layers continue from after a segment. is_last: text follows it. */
static void fetch_states(fetching *f, const pml_layout *l, const pml_segment *s, bool is_last) {
    const bool composed = f->e->module_states == RP_MODULE_STATES_COMPOSED;
    const base_key end = segment_states_name(l, s);
    if (!f->e->is_recurrent || !(composed || is_last) || !span_prefetch_fetch(f, &end)) return;
    if (!composed || s->n_scope == 0) return;
    const base_key begin = segment_states_name(l, &l->segments[pml_segment_scope(l, s)[s->n_scope - 1]]);
    (void)span_prefetch_fetch(f, &begin);
}

/* Same lookup as need_views of scheduler.c, without the scopes of misses. */
static void fetch_modules(fetching *f, const rp_job *c) {
    const pml_plan *p = c->plan;
    if (p->n_cached == 0 || c->exact || c->request->options.reuse != RP_REUSE_ON) return;
    for (size_t i = 0; i < p->n_items && !f->full; i++) {
        if (!p->items[i].is_view) continue;
        const pml_layout *l = c->request->schema->layout;
        const pml_segment *s = &l->segments[p->items[i].segment];
        if (p->items[i].reduced) fetch_reduced(f, s);
        else
            for (int32_t k = 0; k < s->n_spans && span_prefetch_fetch(f, &pml_segment_keys(l, s)[k]); k++) {}
        if (!f->full) fetch_states(f, l, s, i + 1 == p->n_items || !p->items[i + 1].is_view);
    }
}

static void prefetch_drop(prefetch *a) {
    for (size_t i = 0; i < a->n; i++) kv_span_unref(a->spans[i]);
    base_free(a->spans);
    *a = (prefetch){0};
}

static void fetch_for(rp_engine *e, rp_job *c) {
    prefetch old = c->ahead; /* held until the new lookup has its own references */
    fetching f = {.e = e, .ahead = &c->ahead};
    BASE_ASSERT(c->phase == JOB_WAITING);
    c->ahead = (prefetch){0};
    span_store_next_request(e->store);
    prefix_expect_reads(e, c);
    if (c->prefix.shares) prefix_peek(e, c, span_prefetch_fetch, &f);
    if (!f.full) fetch_modules(&f, c);
    c->ahead.done = !f.full;
    c->ahead.tried_at = e->budget_epoch;
    prefetch_drop(&old);
    if (c->ahead.n > 0)
        BASE_TRACE(ENGINE, "job %llu waits: %zu spans prefetched%s", (unsigned long long)c->request->number, c->ahead.n,
                   f.full ? ", and memory allows no more" : "");
}

/* A prefetched span failed to load; no job may hold it. */
static bool has_failed(const prefetch *a) {
    for (size_t i = 0; i < a->n; i++)
        if (kv_span_has_failed(a->spans[i])) return true;
    return false;
}

void prefetch_run(rp_engine *e) {
    int n = 0;
    if (e->n_running == 0) return; /* the head of the queue waits for memory: nothing may take it, or occupy the disk */
    for (rp_job *c = e->waiting; c && n < PREFETCH_JOBS; c = c->next) {
        prefetch *a = &c->ahead;
        if (c->kind != JOB_REQUEST) continue;
        n++;
        if (has_failed(a)) {
            prefetch_drop(a);
            a->done = true; /* admission decides */
        }
        if (!a->done && a->tried_at != e->budget_epoch) fetch_for(e, c); /* budget_epoch starts at 1 */
    }
}

void prefetch_release(rp_job *c) { prefetch_drop(&c->ahead); }

bool prefetch_release_others(rp_engine *e, const rp_job *but) {
    bool any = false;
    for (rp_job *c = e->waiting; c; c = c->next) {
        if (c == but || c->ahead.n == 0) continue;
        prefetch_drop(&c->ahead);
        c->ahead.tried_at = e->budget_epoch; /* retried when memory was freed */
        any = true;
    }
    return any;
}
