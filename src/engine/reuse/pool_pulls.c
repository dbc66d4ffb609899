/* SPDX-License-Identifier: Apache-2.0 */
/* pool_pulls.c: see pool_pulls.h. */
#include "engine/reuse/pool_pulls.h"

#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/core/cost_model.h"
#include "engine/core/engine_state.h"
#include "engine/core/job.h"
#include "engine/core/job_tokens.h"
#include "engine/core/schemas.h"
#include "engine/reuse/prefix.h"
#include "kv/block_pool.h"
#include "kv/span.h"
#include "pml/layout.h"
#include "pml/plan.h"
#include "store/index/span_names.h"
#include "store/index/span_tree.h"
#include "store/span_store.h"

#define LEAST_TOKENS 64     /* missing ones for which the pool is asked */
#define ROOM_SHARE 2        /* divisor of the unreserved memory */
#define LEAST_WAIT_US 50000 /* deadlines, */
#define MOST_WAIT_US 30000000
#define UNKNOWN_WAIT_US 2000000 /* and where the time of computing is not known yet */
#define MAX_ITEMS ((size_t)16384)

/* ---- looks ---- */

static int add_key(remote_look *look, const base_key *key, const base_key *salt) {
    const int rc = base_grow((void **)&look->keys, &look->cap_keys, look->n_keys + 1, MAX_ITEMS, sizeof(*look->keys));
    if (!rc) look->keys[look->n_keys++] = (remote_key){*key, *salt};
    return rc;
}

/* The spans of the modules that the store lacks. *n: their tokens. */
static int list_modules(const rp_engine *e, const rp_job *c, remote_look *look, int32_t *n) {
    const pml_plan *p = c->plan;
    int rc = RP_OK;
    if (p->n_cached == 0 || c->exact || c->request->options.reuse != RP_REUSE_ON) return RP_OK;
    const base_key *salt = &c->request->schema->salt;
    for (size_t i = 0; i < p->n_items && !rc; i++) {
        if (!p->items[i].is_view || p->items[i].reduced) continue;
        const pml_segment *s = &p->layout->segments[p->items[i].segment];
        const base_key *keys = pml_segment_keys(p->layout, s);
        for (int32_t k = 0; k < s->n_spans && !rc; k++) {
            if (span_store_has(e->store, &keys[k])) continue;
            *n += BASE_MIN(KV_SPAN_TOKENS, s->n_tokens - k * KV_SPAN_TOKENS);
            rc = add_key(look, &keys[k], salt);
        }
    }
    return rc;
}

/* The names of a scope's text beyond its first n_found tokens. */
static int list_scope(const rp_engine *e, const rp_job *c, int32_t k, int32_t n_found, remote_look *look) {
    const int32_t first = c->scopes[k].first, end = BASE_MIN(job_most_found(c), job_scope_end(c, k));
    span_chain chain = span_chain_begin(e->cluster_key, &c->scopes[k].root);
    for (int32_t i = first; i + SPAN_NAME_TOKENS <= end && look->n_texts < REMOTE_POOL_TEXTS; i += SPAN_NAME_TOKENS) {
        span_chain_next(&chain, c->tokens + i, c->positions + i);
        if (i + SPAN_NAME_TOKENS <= first + n_found) continue;
        const int rc = base_grow((void **)&look->texts, &look->cap_texts, look->n_texts + 1, REMOTE_POOL_TEXTS,
                                 sizeof(*look->texts));
        if (rc) return rc;
        look->texts[look->n_texts++] = (remote_text){chain.name, c->salt};
    }
    return RP_OK;
}

/* Text after the first scope with a gap cannot be a hit before that gap is closed: all scopes are asked for at once. */
static int list_text(const rp_engine *e, const rp_job *c, remote_look *look, int32_t *n) {
    int rc = RP_OK;
    if (!c->prefix.shares || e->is_recurrent) return RP_OK;
    const int32_t most = job_most_found(c), found = (int32_t)prefix_peek(e, c, NULL, NULL);
    for (int32_t k = 0; k < c->n_scopes && c->scopes[k].first < most && !rc; k++) {
        const int32_t end = BASE_MIN(most, job_scope_end(c, k));
        if (found >= end) continue;
        rc = list_scope(e, c, k, BASE_MAX(found - c->scopes[k].first, 0), look);
    }
    if (!rc && look->n_texts > 0) *n += most - found;
    return rc;
}

static uint64_t compute_us(const rp_engine *e, int32_t n, int64_t slots) {
    return cost_model_usual_us(e->cost, n, slots);
}

static uint64_t most_wait_us(const rp_engine *e, int32_t n) {
    const uint64_t us = compute_us(e, n, 0);
    if (e->pulls_at_any_cost) return MOST_WAIT_US;
    return us ? BASE_MIN(BASE_MAX(us, LEAST_WAIT_US), MOST_WAIT_US) : UNKNOWN_WAIT_US;
}

static void begin_look(rp_engine *e, rp_job *c) {
    remote_look look = {0};
    int32_t n = 0;
    c->pulls.state = PULL_DONE;
    if (span_store_know_tenant(e->store, &c->salt)) return;
    if (c->request->schema && span_store_know_tenant(e->store, &c->request->schema->salt)) return;
    int rc = list_modules(e, c, &look, &n);
    if (!rc) rc = list_text(e, c, &look, &n);
    if (!rc && n >= LEAST_TOKENS && remote_pool_is_usable(e->remote)) {
        c->pulls.deadline_us = base_clock_us() + most_wait_us(e, n);
        rc = remote_pool_look(e->remote, &look, c->pulls.deadline_us, &c->pulls.ticket);
        if (!rc) {
            c->pulls.state = PULL_LOOKING;
            span_store_count_look(e->store);
            BASE_TRACE(ENGINE, "job %llu asks the pool for %d tokens", (unsigned long long)c->request->number, n);
        }
    }
    remote_look_free(&look);
}

/* ---- what is pulled ---- */

static void drop_items(pool_pulls *p) {
    for (size_t i = 0; i < p->n; i++) {
        base_free(p->items[i].found.row);
        kv_span_unref(p->items[i].span);
    }
    base_free(p->items);
    p->items = NULL;
    p->n = p->n_open = 0;
}

void pool_pulls_release(rp_job *c) {
    drop_items(&c->pulls);
    c->pulls.state = PULL_DONE;
}

/* The index of the job's token at a position; -1: none. */
static int32_t token_at(const rp_job *c, int32_t position) {
    int32_t low = 0, high = c->n_tokens;
    while (low < high) {
        const int32_t mid = low + (high - low) / 2;
        if (c->positions[mid] < position) low = mid + 1;
        else high = mid;
    }
    return low < c->n_tokens && c->positions[low] == position ? low : -1;
}

/* Where a record's text lies in the job's; false: nowhere, or none of its own tokens is the job's. */
static bool place_text(const rp_job *c, const record *r, pulled_span *item) {
    const int32_t n_slots = r->form.n_tokens, at = token_at(c, r->form.first_pos), first = at + r->first_slot;
    if (at < 0 || r->n_tokens < 1 || r->first_slot + r->n_tokens != n_slots || first >= job_most_found(c)) return false;
    item->slot_at = at;
    item->scope = job_scope_of(c, first);
    return c->scopes[item->scope].first <= at && c->positions[first] == r->form.first_pos + r->first_slot &&
           c->tokens[first] == r->tokens[0];
}

/* Is it quicker to pull a record than to compute its tokens? */
static bool is_worth_it(const rp_engine *e, const record_row *row, double byte_us) {
    const uint64_t us = compute_us(e, row->record.form.n_tokens, row->record.form.first_pos);
    return e->pulls_at_any_cost || us == 0 || byte_us == 0 || byte_us * (double)row->bytes < (double)us;
}

/* Does another job pull the record of that key? */
static bool is_pulled_for_another(const rp_engine *e, const rp_job *but, const base_key *key) {
    for (const rp_job *c = e->waiting; c; c = c->next)
        for (size_t i = 0; c != but && i < c->pulls.n; i++)
            if (c->pulls.items[i].span && base_key_equal(&c->pulls.items[i].found.row->record.key, key)) return true;
    return false;
}

/* Begins to pull a record. false: memory allows no more. */
static bool begin_pull(rp_engine *e, rp_job *c, pulled_span *item) {
    const record *r = &item->found.row->record;
    if ((item->follows = is_pulled_for_another(e, c, &r->key))) return true;
    const int64_t blocks = kv_form_blocks(e->pool, &r->form);
    if (blocks == 0) return true; /* of another format: a miss */
    if (blocks * ROOM_SHARE > span_store_free_blocks(e->store)) return false;
    if (kv_span_restore(&item->span, e->pool, &r->form, record_is_of_text(r->kind) ? NULL : &r->key, NULL)) return true;
    if (remote_pool_pull(e->remote, &item->found, item->span, c->pulls.deadline_us, &item->ticket)) {
        kv_span_unref(item->span);
        item->span = NULL;
        return true;
    }
    c->pulls.n_open++;
    return true;
}

/* Which of the found records are pulled. Text: those that the job's text goes on with. */
static void begin_pulls(rp_engine *e, rp_job *c, remote_look *found) {
    pool_pulls *p = &c->pulls;
    if (found->n_rows == 0) return;
    if (!(p->items = base_calloc(found->n_rows, sizeof(*p->items)))) return;
    const double byte_us = remote_pool_measure(e->remote).byte_us;
    bool has_room = true, goes_on = true;
    const int32_t n_here = c->prefix.shares ? (int32_t)prefix_peek(e, c, NULL, NULL) : 0;
    for (size_t i = 0; i < found->n_rows && has_room; i++) {
        pulled_span *item = &p->items[p->n];
        const record *r = &found->rows[i].row->record;
        *item = (pulled_span){.found = found->rows[i]};
        const bool is_text = record_is_of_text(r->kind);
        if (is_text && (!goes_on || !place_text(c, r, item) || item->slot_at + r->form.n_tokens <= n_here)) continue;
        if (!is_worth_it(e, item->found.row, byte_us)) {
            goes_on = goes_on && !is_text;
            continue;
        }
        found->rows[i].row = NULL;
        p->n++;
        has_room = begin_pull(e, c, item);
    }
    BASE_TRACE(ENGINE, "job %llu: the pool has %zu records, %zu are pulled", (unsigned long long)c->request->number,
               found->n_rows, p->n_open);
}

/* ---- what was pulled ---- */

/* Keeps it from eviction until the job is admitted. */
static void hold(rp_job *c, kv_span *span) {
    prefetch *a = &c->ahead;
    if (base_grow((void **)&a->spans, &a->cap, a->n + 1, SPAN_STORE_MAX, sizeof(*a->spans)) == RP_OK)
        a->spans[a->n++] = kv_span_ref(span);
}

static void insert_text(rp_engine *e, rp_job *c, pulled_span *item) {
    const record *r = &item->found.row->record;
    const int32_t scope_first = c->scopes[item->scope].first;
    const span_root root = job_scope_root(c, item->scope);
    int32_t tokens[KV_SPAN_TOKENS];
    bool kept = false;
    memcpy(tokens, c->tokens + item->slot_at, (size_t)r->first_slot * sizeof(*tokens));
    memcpy(tokens + r->first_slot, r->tokens, (size_t)r->n_tokens * sizeof(*tokens));
    const int rc = span_tree_graft(e->tree, &root, c->tokens + scope_first, c->positions + scope_first,
                                   (size_t)(item->slot_at - scope_first), item->span, tokens, r->cost_us, &kept, NULL);
    if (!rc && kept) hold(c, item->span);
}

static void insert_module(rp_engine *e, rp_job *c, pulled_span *item) {
    if (span_store_put_pulled(e->store, item->span, NULL, &item->found.row->record, NULL) == RP_OK) hold(c, item->span);
}

/* Inserts what was pulled so far: of text, in its order. */
static void insert_all(rp_engine *e, rp_job *c) {
    pool_pulls *p = &c->pulls;
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) {
        pulled_span *item = &p->items[i];
        if (!item->span || item->ticket || kv_span_has_failed(item->span)) continue;
        BASE_ASSERT(kv_span_layers_ready(item->span) == kv_pool_shape(e->pool)->n_layers);
        if (record_is_of_text(item->found.row->record.kind)) insert_text(e, c, item);
        else insert_module(e, c, item);
        n++;
    }
    if (p->n > 0)
        BASE_TRACE(ENGINE, "job %llu: %zu of %zu records were pulled", (unsigned long long)c->request->number, n, p->n);
    pool_pulls_release(c);
    e->budget_epoch++; /* memory may have been freed */
}

static rp_job *find_looking(rp_engine *e, uint64_t ticket) {
    for (rp_job *c = e->waiting; c; c = c->next)
        if (c->pulls.state == PULL_LOOKING && c->pulls.ticket == ticket) return c;
    return NULL;
}

static void take_look(rp_engine *e, remote_event *event) {
    rp_job *c = find_looking(e, event->ticket);
    if (c) {
        if (event->failed) BASE_TRACE(ENGINE, "the pool cannot be asked: %s", event->err.message);
        c->pulls.state = PULL_PULLING;
        begin_pulls(e, c, &event->look);
    }
    remote_look_free(&event->look);
}

static void take_pull(rp_engine *e, const remote_event *event) {
    span_store_count_pull(e->store, event);
    if (event->failed && !event->cause)
        base_log(BASE_LOG_WARN, "pool: a record is not used (%s): %s", record_fault_name(event->fault),
                 event->err.message);
    kv_span_unref(event->span); /* before it is sealed by its job */
    for (rp_job *c = e->waiting; c; c = c->next)
        for (size_t i = 0; i < c->pulls.n; i++) {
            if (c->pulls.items[i].ticket != event->ticket) continue;
            BASE_ASSERT(c->pulls.n_open > 0);
            c->pulls.items[i].ticket = 0;
            c->pulls.n_open--;
            return;
        }
}

/* Is everything there that it pulls, or that others pull for it? */
static bool has_all(const rp_engine *e, rp_job *c) {
    if (c->pulls.n_open > 0) return false;
    for (size_t i = 0; i < c->pulls.n; i++) {
        pulled_span *item = &c->pulls.items[i];
        item->follows = item->follows && is_pulled_for_another(e, c, &item->found.row->record.key);
        if (item->follows) return false;
    }
    return true;
}

void pool_pulls_run(rp_engine *e) {
    remote_event event;
    if (!e->remote) return;
    while (remote_pool_next(e->remote, &event)) {
        e->budget_epoch++; /* its span may be evicted from now on */
        if (event.kind == REMOTE_LOOKED) {
            take_look(e, &event);
        } else if (event.kind == REMOTE_PULLED) {
            take_pull(e, &event);
        } else {
            span_store_take_push(e->store, &event);
            kv_span_unref(event.span);
        }
    }
    if (!e->waiting) return;
    const uint64_t now = base_clock_us();
    const bool is_off = remote_pool_measure(e->remote).is_open;
    int n = 0;
    for (rp_job *c = e->waiting; c && n < POOL_PULL_JOBS; c = c->next) {
        if (c->kind != JOB_REQUEST) continue;
        if (c->pulls.state == PULL_NEW) begin_look(e, c);
        if (c->pulls.state == PULL_DONE) continue;
        const bool is_late = is_off || now >= c->pulls.deadline_us;
        if (is_late || (c->pulls.state == PULL_PULLING && has_all(e, c))) insert_all(e, c);
        n++;
    }
}

bool pool_pulls_release_others(rp_engine *e, const rp_job *but) {
    bool any = false;
    for (rp_job *c = e->waiting; c; c = c->next) {
        if (c == but || c->pulls.n == 0) continue;
        pool_pulls_release(c);
        any = true;
    }
    return any;
}

bool pool_pulls_hold(const rp_engine *e, const rp_job *c) {
    return e->remote && c->kind == JOB_REQUEST && c->pulls.state != PULL_DONE;
}
