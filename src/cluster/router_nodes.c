/* SPDX-License-Identifier: Apache-2.0 */
/* router_nodes.c: a router's nodes: their streams and their load (for the rule see router_internal.h). */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/memory.h"
#include "cluster/cost.h"
#include "cluster/router_internal.h"

/* Within this time a sent request is included in the node's counts: connection, body, planning, and one period of
 * reports. */
#define ARRIVAL_US 100000
/* Requests wait for a busy node in the router if its Retry-After is at most this. */
#define BUSY_WAIT_US 2000000
/* Time over which the share of time with prompts to compute is averaged. */
#define BUSY_US 10e6
/* Relative drift of two clocks, at most: the delay of the fastest report is forgotten at this rate. */
#define CLOCK_DRIFT 1e-4

static const cluster_load NO_LOAD = {.draining = false};
static const cluster_hello NO_HELLO = {.epoch = 0};

const cluster_load *router_node_load(const router_node *x) {
    const cluster_load *load = cluster_view_load(x->view);
    return load ? load : &NO_LOAD;
}

const cluster_hello *router_node_hello(const router_node *x) {
    const cluster_hello *hello = cluster_view_hello(x->view);
    return hello ? hello : &NO_HELLO;
}

/* ---- nodes ---- */

int router_node_add(cluster_router *t, const char *name, int32_t *node, rp_error *err) {
    int32_t i = 0;
    while ((size_t)i < t->n_nodes && t->nodes[i].used) i++;
    if (i >= CLUSTER_MAX_NODES) return base_fail(err, RP_ERR_LIMIT, "a router has at most %d nodes", CLUSTER_MAX_NODES);
    if (base_grow((void **)&t->nodes, &t->cap_nodes, (size_t)i + 1, CLUSTER_MAX_NODES, sizeof(*t->nodes)))
        return base_fail_memory(err, sizeof(*t->nodes), "a node");
    router_node x = {.used = true, .name_hash = base_table_hash(name, strlen(name))};
    snprintf(x.name, sizeof(x.name), "%s", name);
    int rc = cluster_view_new(&x.view, t->index, i, t->secret, err);
    if (rc) return rc;
    t->nodes[i] = x;
    t->n_nodes = BASE_MAX(t->n_nodes, (size_t)i + 1);
    t->nodes_due_us = 0;
    *node = i;
    return RP_OK;
}

void router_node_remove(cluster_router *t, router_node *x) {
    BASE_ASSERT(x->n_sent == 0);
    if (x->stream_is_open) t->env.close_stream(t->env.user, (int32_t)(x - t->nodes));
    cluster_speculation_leave(&t->speculation, t->index, (int32_t)(x - t->nodes));
    cluster_view_free(x->view);
    *x = (router_node){.used = false};
    while (t->n_nodes && !t->nodes[t->n_nodes - 1].used) t->n_nodes--;
}

cluster_health router_node_health(const router_node *x, uint64_t now_us) {
    const cluster_health health = router_node_hello(x)->epoch ? cluster_view_health(x->view, now_us) : CLUSTER_DEAD;
    return health == CLUSTER_WELL && x->silent_until_us > now_us ? CLUSTER_SUSPECT : health;
}

bool router_node_is_other(const cluster_router *t, const router_node *x) {
    return t->identity[0] && strcmp(t->identity, router_node_hello(x)->identity) != 0;
}

const char *router_node_excluded(const cluster_router *t, const router_node *x, uint64_t now_us) {
    cluster_health health = router_node_health(x, now_us);
    if (health == CLUSTER_DEAD) return "dead";
    if (health == CLUSTER_SUSPECT) return "suspect";
    /* Another model would give another answer. The same model with another KV format or arithmetic only has KV with
     * other names. */
    if (router_node_is_other(t, x) && strcmp(t->model, router_node_hello(x)->model) != 0) return "model";
    if (x->draining || x->said_drains || router_node_load(x)->draining) return "draining";
    if (x->busy_until_us > now_us) return x->busy_until_us - now_us > BUSY_WAIT_US ? "busy" : "full";
    return router_node_is_full(t, x) ? "full" : NULL;
}

/* Requests that it reported and those that its report does not include yet, but at least the requests of this
 * router. */
bool router_node_is_full(const cluster_router *t, const router_node *x) {
    const rp_engine_load *load = &router_node_load(x)->engine;
    int32_t most = load->max_running > 0 ? load->max_running : BASE_MAX(router_node_hello(x)->max_sequences, 0);
    int64_t has = (int64_t)load->running + load->waiting + x->n_uncovered + x->n_prefills - x->n_gone;
    return BASE_MAX(has, x->n_sent) >= (int64_t)most + t->options.max_sent;
}

/* ---- load ---- */

static void node_uncover(router_node *x, const cluster_request *r, int sign) {
    const router_ticket *tk = router_ticket_of(r);
    x->n_uncovered += sign;
    x->uncovered_tokens += (int64_t)sign * tk->work_tokens;
    BASE_ASSERT(x->n_uncovered >= 0 && x->n_uncovered <= x->n_sent);
    BASE_ASSERT(x->n_uncovered ? x->uncovered_tokens >= 0 : x->uncovered_tokens == 0);
    x->uncovered_us = x->n_uncovered ? x->uncovered_us + sign * tk->work_us : 0;
}

/* One request fewer without a first byte. */
static void node_remove_waiting(router_node *x, const cluster_request *r, uint64_t now_us) {
    BASE_ASSERT(x->n_waiting > 0);
    x->n_waiting--;
    x->waiting_us = x->n_waiting ? BASE_MAX(x->waiting_us - router_ticket_of(r)->work_us, 0) : 0;
    x->own_until_us = BASE_MIN(x->own_until_us, now_us + (uint64_t)x->waiting_us);
}

static void node_cover(router_node *x, cluster_request *r) {
    router_ticket *tk = router_ticket_of(r);
    if (tk->covered) return;
    node_uncover(x, r, -1);
    tk->covered = true;
}

void router_node_sent(router_node *x, cluster_request *r, uint64_t now_us) {
    router_ticket *tk = router_ticket_of(r);
    BASE_ASSERT(r->state == ROUTER_SENT && !r->next && !r->previous);
    BASE_ASSERT(tk->work_us >= 0 && tk->work_tokens >= 0);
    r->next = NULL;
    r->previous = x->last;
    if (x->last) x->last->next = r;
    else x->first = r;
    x->last = r;
    x->n_sent++;
    x->n_waiting++;
    x->waiting_us += tk->work_us;
    x->own_until_us = BASE_MAX(x->own_until_us, now_us) + (uint64_t)tk->work_us;
    tk->covered = false;
    node_uncover(x, r, 1);
    x->placed++;
}

void router_node_began(router_node *x, cluster_request *r, uint64_t now_us) {
    BASE_ASSERT(r->state == ROUTER_SENT); /* it is counted as waiting */
    node_cover(x, r);
    node_remove_waiting(x, r, now_us);
}

void router_node_left(router_node *x, cluster_request *r, uint64_t now_us) {
    BASE_ASSERT(x->n_sent > 0);
    if (router_ticket_of(r)->covered) x->n_gone++;
    node_cover(x, r);
    if (r->state == ROUTER_SENT) {
        /* Its work is cancelled. */
        x->own_until_us -= BASE_MIN((uint64_t)router_ticket_of(r)->work_us, x->own_until_us);
        node_remove_waiting(x, r, now_us);
    }
    if (r->previous) r->previous->next = r->next;
    else x->first = r->next;
    if (r->next) r->next->previous = r->previous;
    else x->last = r->previous;
    r->next = r->previous = NULL;
    x->n_sent--;
    BASE_ASSERT((x->n_sent == 0) == (x->first == NULL) && x->n_waiting <= x->n_sent && x->n_uncovered <= x->n_sent);
}

void router_node_heard(router_node *x, uint64_t now_us) {
    const cluster_load *load = router_node_load(x);
    uint64_t epoch = router_node_hello(x)->epoch;
    if (epoch != x->epoch)
        x->report_heard_us = x->report_sent_us = x->silent_until_us = 0; /* another process and clock */
    x->epoch = epoch;
    if (load->sent_us == 0 || load->sent_us == x->report_sent_us) return;
    /* The time of the report by our clock, if it had the delay of the fastest report. */
    double clock = (double)now_us - (double)load->sent_us;
    double known = x->clock_us + CLOCK_DRIFT * (double)(now_us - x->report_heard_us);
    x->clock_us = x->report_heard_us && known < clock ? known : clock;
    x->report_made_us = (uint64_t)BASE_MAX((double)load->sent_us + x->clock_us, 0);
    x->report_sent_us = load->sent_us;
    if (x->report_heard_us) {
        double share = BASE_MIN((double)(now_us - x->report_heard_us) / BUSY_US, 1.0);
        x->busy += share * ((load->engine.queued_tokens > 0) - x->busy);
    }
    x->said_drains = false;
    x->report_heard_us = now_us;
    x->n_gone = 0;
    /* Requests are in the order of sending, so that the uncovered ones are at the end of the list. */
    for (cluster_request *r = x->last; r && x->n_uncovered; r = r->previous)
        if (r->sent_us + ARRIVAL_US <= x->report_made_us) node_cover(x, r);
    if (x->report_made_us > ARRIVAL_US) router_prefills_heard(x, x->report_made_us - ARRIVAL_US);
}

double router_node_drain_us(const router_node *x, uint64_t now_us) {
    const rp_engine_load *load = &router_node_load(x)->engine;
    double since = (double)(now_us - BASE_MIN(x->report_heard_us, now_us));
    double reported = BASE_MAX((double)load->drain_us - since, 0) + x->uncovered_us + x->prefill_us;
    double own = x->own_until_us > now_us ? (double)(x->own_until_us - now_us) : 0;
    return BASE_MAX(reported, own);
}

/* ---- streams ---- */

void router_node_close(cluster_router *t, router_node *x, uint64_t now_us) {
    BASE_ASSERT(x->stream_is_open);
    x->stream_is_open = false;
    cluster_view_cut(x->view, now_us);
    t->nodes_due_us = 0;
}

static void node_open(cluster_router *t, router_node *x, uint64_t now_us) {
    uint8_t nonce[CLUSTER_NONCE_BYTES];
    uint64_t epoch, after;
    BASE_ASSERT(!x->stream_is_open);
    cluster_view_open(x->view, now_us, nonce, t->env.random(t->env.user), &epoch, &after);
    x->stream_is_open = true;
    x->opened_us = now_us;
    t->env.open_stream(t->env.user, (int32_t)(x - t->nodes), nonce, epoch, after);
}

uint64_t router_node_tick(cluster_router *t, router_node *x, uint64_t now_us) {
    if (x->stream_is_open && cluster_view_is_silent(x->view, now_us)) {
        t->env.close_stream(t->env.user, (int32_t)(x - t->nodes));
        router_node_close(t, x, now_us);
    }
    if (!x->stream_is_open && cluster_view_opens_at(x->view) <= now_us) node_open(t, x, now_us);
    uint64_t due = x->stream_is_open ? UINT64_MAX : cluster_view_opens_at(x->view),
             heard = cluster_view_heard_us(x->view);
    const uint64_t times[] = {heard + CLUSTER_SUSPECT_US, heard + CLUSTER_DEAD_US, x->opened_us + CLUSTER_DEAD_US,
                              x->busy_until_us, x->silent_until_us};
    for (size_t i = 0; i < BASE_ARRAY_LEN(times); i++)
        if (times[i] > now_us) due = BASE_MIN(due, times[i]);
    return due;
}
