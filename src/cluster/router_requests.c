/* SPDX-License-Identifier: Apache-2.0 */
/* router_requests.c: the life of a request: arrival, queue, sending, failures, end. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "cluster/admission.h"
#include "cluster/router_internal.h"

#define BUSY_MS 1000         /* pause of a node that is busy and sends no Retry-After */
#define MOST_BUSY_MS 60000   /* of a Retry-After */
#define UNREACHABLE_MS 500   /* pause of a node that could not be reached */
#define MOST_FAILURES 2      /* nodes on which a request fails before it ends */
#define FREE_RETRIES 10.0    /* retry budget without recent requests */
#define REFILL_US 1000000.0  /* per retry of these */
#define BUDGET_REQUESTS 1000 /* recent requests: those that the budget can accumulate */
#define MOST_PASSED 64       /* queued requests that a pass leaves in the queue before it stops */
#define MOST_LIMITED 3       /* nodes that refuse a request by limits of its tenant before it ends */
#define MEAN_GAIN (1.0 / 32)
#define LOOKS 8        /* checks for silence within the timeout */
#define MOST_DOUBLED 4 /* the pause of a silent node is doubled so many times at most */

/* ---- tickets ---- */

cluster_place *router_place_of(const cluster_request *r) { return &router_ticket_of(r)->place; }
cluster_due *router_due_of(const cluster_request *r) { return &router_ticket_of(r)->due; }

static router_ticket *ticket_new(cluster_router *t) {
    if (!t->free_tickets) {
        if (base_grow((void **)&t->slabs, &t->cap_slabs, t->n_slabs + 1, CLUSTER_MAX_REQUESTS, sizeof(router_ticket *)))
            return NULL;
        router_ticket *slab = base_alloc(ROUTER_TICKETS_AT_ONCE * sizeof(*slab));
        if (!slab) return NULL;
        t->slabs[t->n_slabs++] = slab;
        for (int i = 0; i < ROUTER_TICKETS_AT_ONCE; i++) {
            slab[i].next = t->free_tickets;
            t->free_tickets = &slab[i];
        }
    }
    router_ticket *tk = t->free_tickets;
    t->free_tickets = tk->next;
    *tk = (router_ticket){.due = {.place = -1}};
    return tk;
}

void router_requests_free(cluster_router *t) {
    BASE_ASSERT(t->n_requests == 0);
    for (size_t i = 0; i < t->n_slabs; i++) base_free(t->slabs[i]);
    base_free(t->slabs);
    cluster_queue_free(&t->queue);
    cluster_deadlines_free(&t->deadlines);
}

/* ---- the end ---- */

/* Invariant 2: a request ends exactly once. It is neither in the queue nor on a node. */
static void request_end(cluster_router *t, cluster_request *r, cluster_outcome outcome, uint64_t retry_ms) {
    BASE_ASSERT(r->state != ROUTER_ENDED && !r->next && !r->previous && (unsigned)outcome < CLUSTER_N_OUTCOMES);
    router_ticket *tk = router_ticket_of(r);
    if (tk) {
        BASE_ASSERT(t->n_requests > 0);
        cluster_deadlines_remove(&t->deadlines, r);
        tk->next = t->free_tickets;
        t->free_tickets = tk;
        t->n_requests--;
    }
    r->own = NULL;
    r->state = ROUTER_ENDED;
    t->counts.outcomes[outcome]++;
    t->env.end(t->env.user, r, outcome, retry_ms);
}

static router_node *request_node(const cluster_router *t, const cluster_request *r) {
    BASE_ASSERT(r->state == ROUTER_SENT || r->state == ROUTER_ANSWERING);
    BASE_ASSERT(r->node >= 0 && (size_t)r->node < t->n_nodes && t->nodes[r->node].used);
    return &t->nodes[r->node];
}

/* Takes it from its node. Speculative entries of KV that was not computed end. */
static void request_leave(cluster_router *t, cluster_request *r, uint64_t now_us) {
    router_node *x = request_node(t, r);
    if (r->state == ROUTER_SENT) cluster_speculation_fail(t->index, r->node, r->items, r->n_items);
    router_prefill_over(t, r);
    router_node_left(x, r, now_us);
    r->state = ROUTER_NEW;
}

static void request_unqueue(cluster_router *t, cluster_request *r, bool served) {
    BASE_ASSERT(r->state == ROUTER_QUEUED);
    cluster_queue_remove(&t->queue, r, served);
    r->state = ROUTER_NEW;
}

/* Ends a request that waits or is on a node, before it is complete. */
static void request_stop(cluster_router *t, cluster_request *r, cluster_outcome outcome, uint64_t retry_ms,
                         uint64_t now_us) {
    if (r->state == ROUTER_QUEUED) request_unqueue(t, r, false);
    else if (r->state != ROUTER_NEW) {
        t->env.cancel(t->env.user, r);
        request_leave(t, r, now_us);
    }
    request_end(t, r, outcome, retry_ms);
}

/* ---- sending ---- */

/* Sets the time at which a request without a first byte expires: its deadline, and before it is sent also the time at
 * which it has missed the TTFT goal. The node ends a request at its deadline by itself, with the answer so far (a reply
 * without a stream has its first byte at its end): the router waits for that as long as for a silent node. */
static int request_due(cluster_router *t, cluster_request *r) {
    BASE_ASSERT(r->state == ROUTER_NEW || r->state == ROUTER_SENT);
    double goal_ms =
        r->attempts == 0 && cluster_admission_checks_ttft(t->options.admission) ? t->options.ttft_goal_ms : 0;
    uint64_t at = r->deadline_us ? r->deadline_us : UINT64_MAX;
    if (r->deadline_us && r->state == ROUTER_SENT) at += BASE_MIN((uint64_t)CLUSTER_DEAD_US, UINT64_MAX - at);
    if (goal_ms > 0) at = BASE_MIN(at, r->arrived_us + (uint64_t)(goal_ms * 1e3));
    cluster_deadlines_remove(&t->deadlines, r);
    return r->began || at == UINT64_MAX ? RP_OK : cluster_deadlines_add(&t->deadlines, r, at);
}

static void request_send(cluster_router *t, cluster_request *r, const router_decision *d, uint64_t now_us) {
    router_ticket *tk = router_ticket_of(r);
    const cluster_candidate *c = d->candidate;
    router_node *x = &t->nodes[d->node];
    BASE_ASSERT(r->state == ROUTER_NEW && c->node == d->node && x->used);
    BASE_ASSERT(!(tk->tried[d->node / 64] >> (d->node % 64) & 1)); /* it is sent to each node once */
    BASE_ASSERT(!r->began || r->continues);                        /* invariant 3 */
    r->node = d->node;
    r->attempts++;
    r->state = ROUTER_SENT;
    r->sent_us = r->heard_us = now_us;
    r->held_tokens = c->held_tokens;
    r->predicted_ttft_ms = c->ttft_ms;
    tk->work_us = (c->compute_ms + c->read_ms) * 1e3;
    tk->work_tokens = BASE_MAX(r->prompt_tokens + r->answer_tokens - c->held_tokens - c->pool_tokens, 0);
    router_node_sent(x, r, now_us);
    if (d->prefill) router_prefill_sent(t, r, d->prefill);
    (void)request_due(t, r); /* cannot fail: the heap has had space for it since its arrival */
    const cluster_policy policy = t->options.policy;
    const bool uses_held = policy == CLUSTER_POLICY_COST || policy == CLUSTER_POLICY_PREFIX_COST ||
                           policy == CLUSTER_POLICY_LONGEST_MATCH;
    const int32_t nodes[] = {d->node, d->prefill ? d->prefill->node : -1};
    for (int i = 0; t->options.speculative_us && uses_held && i < 2; i++)
        if (nodes[i] >= 0 && !router_node_is_other(t, &t->nodes[nodes[i]]))
            cluster_speculation_add(&t->speculation, t->index, nodes[i], r->items, r->n_items,
                                    now_us + t->options.speculative_us);
    t->counts.prompt_tokens += r->prompt_tokens;
    t->counts.held_tokens += r->held_tokens;
    if (t->options.node_timeout_us)
        t->nodes_due_us = BASE_MIN(t->nodes_due_us, now_us + t->options.node_timeout_us / LOOKS);
    t->env.send(t->env.user, r);
}

/* ---- the queue ---- */

static uint64_t queue_retry_ms(const cluster_router *t) {
    return cluster_admission_retry_itl((double)BASE_MAX(t->n_requests - t->queue.n, 1), t->mean_answer_us);
}

/* Makes space for one more request: it ends the last one of lower priority if the queue is full. Retries and
 * continuations are always accepted. */
static bool queue_make_room(cluster_router *t, const cluster_request *r) {
    if (t->queue.n < t->options.max_queue || router_ticket_of(r)->place.paid) return true;
    cluster_request *last = cluster_queue_last(&t->queue);
    if (!last || last->priority >= r->priority) return false;
    request_unqueue(t, last, false);
    request_end(t, last, CLUSTER_REFUSED_QUEUE, queue_retry_ms(t));
    return true;
}

static void request_enqueue(cluster_router *t, cluster_request *r, double cost_us) {
    router_ticket *tk = router_ticket_of(r);
    BASE_ASSERT(r->state == ROUTER_NEW);
    tk->place.cost_us = cost_us;
    if (!queue_make_room(t, r) || cluster_queue_push(&t->queue, r)) {
        request_end(t, r, CLUSTER_REFUSED_QUEUE, queue_retry_ms(t));
        return;
    }
    r->state = ROUTER_QUEUED;
}

/* Nodes with capacity exist, but none can serve this request: it needs one certain node, others have refused it, or it
 * continues an answer. */
static bool queued_is_blocked(void *router, const cluster_request *r) {
    const cluster_router *t = router;
    return (r->only_node >= 0 || r->attempts > 0) && router_outlook(t, r, router_now(t)) == 0;
}

/* Decides about a queued request and carries the decision out. choosy: it stays queued if a full node would be better.
 * Returns whether it has left the queue. */
static bool queued_decide(cluster_router *t, cluster_request *r, bool choosy, uint64_t now_us) {
    router_decision d = router_decide(t, r, now_us);
    if (d.waits || (choosy && d.node >= 0 && d.prefers_full)) return false;
    request_unqueue(t, r, d.node >= 0);
    if (d.node >= 0) request_send(t, r, &d, now_us);
    else request_end(t, r, d.outcome, d.retry_ms);
    return true;
}

/* Returns whether it passed over a request. */
static bool dispatch_pass(cluster_router *t, bool choosy, uint64_t now_us) {
    int32_t priority = INT32_MIN; /* of the first one that was passed over */
    int passed = 0;
    cluster_queue_begin(&t->queue);
    while (passed < MOST_PASSED && t->queue.n && router_room(t, now_us) != 0) {
        cluster_queue_skip(&t->queue, queued_is_blocked, t); /* they delay no others, however many they are */
        cluster_request *r = cluster_queue_next(&t->queue);
        if (!r || (choosy && r->priority < priority)) break;
        if (queued_decide(t, r, choosy, now_us)) continue;
        if (passed == 0) priority = r->priority;
        cluster_queue_pass(&t->queue, r);
        passed++;
    }
    return passed > 0;
}

/* Free capacity of a node is given to the first request of the highest priority that prefers this node over full ones,
 * which keeps the hit rate of a full cluster; without such a request, to the first one in the queue. */
void router_dispatch(cluster_router *t) {
    uint64_t now_us = router_now(t);
    if (t->queue.n && dispatch_pass(t, true, now_us)) (void)dispatch_pass(t, false, now_us);
}

/* ---- arrival ---- */

static void budget_refill(cluster_router *t, uint64_t now_us) {
    double some = (double)(now_us - t->budget_us) / REFILL_US;
    t->budget_us = now_us;
    if (t->retry_budget < FREE_RETRIES) t->retry_budget = BASE_MIN(t->retry_budget + some, FREE_RETRIES);
}

static bool budget_take(cluster_router *t, uint64_t now_us) {
    budget_refill(t, now_us);
    if (t->retry_budget < 1) return false;
    t->retry_budget -= 1;
    BASE_ASSERT(t->retry_budget >= 0);
    return true;
}

void router_submit(cluster_router *t, cluster_request *r) {
    uint64_t now_us = router_now(t);
    BASE_ASSERT(r->state == ROUTER_NEW && !r->own && !r->next && !r->previous);
    r->node = r->prefill_node = -1;
    r->arrived_us = now_us;
    t->counts.submitted++;
    budget_refill(t, now_us);
    t->retry_budget =
        BASE_MIN(t->retry_budget + t->options.retry_share, FREE_RETRIES + t->options.retry_share * BUDGET_REQUESTS);
    router_ticket *tk = t->n_requests < CLUSTER_MAX_REQUESTS ? ticket_new(t) : NULL;
    if (tk) {
        r->own = tk;
        t->n_requests++;
    }
    if (!tk || request_due(t, r)) {
        request_end(t, r, CLUSTER_REFUSED_QUEUE, queue_retry_ms(t));
        return;
    }
    router_decision d = router_decide(t, r, now_us);
    if (d.node >= 0 && t->queue.n == 0) request_send(t, r, &d, now_us);
    else if (d.node >= 0 || d.waits) {
        request_enqueue(t, r, d.cost_us);
        router_dispatch(t);
    } else request_end(t, r, d.outcome, d.retry_ms);
}

/* ---- reports of the transport ---- */

/* After-prefill: with this answer, the node's decode steps would exceed the ITL goal. Its prefill is lost. */
static bool is_refused_after_prefill(const cluster_router *t, const cluster_request *r, uint64_t *retry_ms) {
    if (t->options.admission != CLUSTER_ADMISSION_AFTER_PREFILL || t->options.itl_goal_ms <= 0) return false;
    const router_node *x = &t->nodes[r->node];
    const rp_engine_load *load = &router_node_load(x)->engine;
    double rows = BASE_MAX(load->decoding, router_own_answers(x));
    if (cluster_admission_step_ms(load, rows, r->prompt_tokens) <= t->options.itl_goal_ms) return false;
    *retry_ms = cluster_admission_retry_itl(rows, t->mean_answer_us);
    return true;
}

static void node_answered(router_node *x) {
    x->silent_until_us = 0;
    x->n_silences = 0;
}

void router_began(cluster_router *t, cluster_request *r) {
    uint64_t now_us = router_now(t), retry_ms;
    router_node *x = request_node(t, r);
    router_ticket *tk = router_ticket_of(r);
    BASE_ASSERT(r->state == ROUTER_SENT);
    if (!r->began && is_refused_after_prefill(t, r, &retry_ms)) {
        request_stop(t, r, CLUSTER_REFUSED_ITL, retry_ms, now_us);
        return;
    }
    router_node_began(x, r, now_us);
    router_prefill_over(t, r);
    node_answered(x);
    r->state = ROUTER_ANSWERING;
    tk->answers_us = now_us;
    if (r->began) return;
    r->began = true;
    r->began_us = now_us;
    cluster_deadlines_remove(&t->deadlines, r);
    snprintf(tk->identity, sizeof(tk->identity), "%s", router_node_hello(x)->identity);
}

static void mean_add(double *mean, double x) { *mean = *mean > 0 ? *mean + MEAN_GAIN * (x - *mean) : x; }

void router_finished(cluster_router *t, cluster_request *r) {
    uint64_t now_us = router_now(t);
    if (r->began && now_us > r->began_us) mean_add(&t->mean_answer_us, (double)(now_us - r->began_us));
    if (r->answer_tokens > 0) mean_add(&t->mean_answer_tokens, r->answer_tokens);
    if (r->state == ROUTER_SENT) { /* a reply without a stream: its prompt is computed, too */
        router_node_began(request_node(t, r), r, now_us);
        r->state = ROUTER_ANSWERING;
    }
    node_answered(request_node(t, r));
    request_leave(t, r, now_us);
    request_end(t, r, CLUSTER_SERVED, 0);
}

/* Sends it to another node, or enqueues it before other requests, since it arrived first. Invariant 3: an answer that
 * has begun and cannot be continued ends, whatever the reported failure. */
static void request_again(cluster_router *t, cluster_request *r, uint64_t now_us) {
    if (r->began && !r->continues) {
        request_end(t, r, CLUSTER_FAILED, 0);
        return;
    }
    router_decision d = router_decide(t, r, now_us);
    router_ticket_of(r)->place.paid = true;
    (void)request_due(t, r); /* no node has it now; cannot fail, as in request_send */
    if (d.node >= 0) request_send(t, r, &d, now_us);
    else if (d.waits) request_enqueue(t, r, 0);
    else request_end(t, r, d.outcome, d.retry_ms);
}

/* It failed on its node: retries it on another one, if the rules and the budget allow it. */
static void request_retry(cluster_router *t, cluster_request *r, uint64_t now_us) {
    router_ticket *tk = router_ticket_of(r);
    BASE_ASSERT(tk->failures < MOST_FAILURES); /* the second failure ends it */
    bool may = ++tk->failures < MOST_FAILURES && (!r->began || r->continues) && budget_take(t, now_us);
    if (!may) {
        request_end(t, r, CLUSTER_FAILED, 0);
        return;
    }
    if (r->began) t->counts.continuations++;
    else t->counts.retries++;
    request_again(t, r, now_us);
}

static void node_is_busy(cluster_router *t, router_node *x, uint64_t ms, uint64_t now_us) {
    x->busy_until_us = BASE_MAX(x->busy_until_us, now_us + BASE_MIN(ms, MOST_BUSY_MS) * 1000);
    t->nodes_due_us = 0;
}

void router_failed(cluster_router *t, cluster_request *r, cluster_failure failure, uint64_t retry_ms) {
    uint64_t now_us = router_now(t);
    router_node *x = request_node(t, r);
    router_ticket *tk = router_ticket_of(r);
    tk->tried[r->node / 64] |= UINT64_C(1) << (r->node % 64);
    x->failed++;
    request_leave(t, r, now_us);
    switch (failure) {
    case CLUSTER_NODE_REFUSES: request_end(t, r, r->began ? CLUSTER_FAILED : CLUSTER_ANSWERED, 0); return;
    case CLUSTER_NODE_UNREACHABLE: node_is_busy(t, x, UNREACHABLE_MS, now_us); break;
    case CLUSTER_NODE_DRAINS: x->said_drains = true; break; /* no request waits for it */
    case CLUSTER_NODE_BUSY:
        node_is_busy(t, x, retry_ms ? retry_ms : BUSY_MS, now_us);
        tk->was_busy = true;
        break;
    case CLUSTER_NODE_LIMITS: /* other nodes may accept this tenant, but each refusal costs time */
        if (++tk->n_limited >= MOST_LIMITED) {
            request_end(t, r, r->began ? CLUSTER_FAILED : CLUSTER_ANSWERED, 0);
            return;
        }
        break;
    default: request_retry(t, r, now_us); return;
    }
    request_again(t, r, now_us); /* no retry: nothing was computed */
}

void router_cancelled(cluster_router *t, cluster_request *r) {
    request_stop(t, r, CLUSTER_CANCELLED, 0, router_now(t));
}

void router_move_all(cluster_router *t, router_node *x) {
    int32_t node = (int32_t)(x - t->nodes);
    cluster_speculation_leave(&t->speculation, t->index, node);
    while (x->first) {
        cluster_request *r = x->first;
        t->env.cancel(t->env.user, r);
        router_failed(t, r, CLUSTER_NODE_CUT, 0);
    }
}

/* ---- silence ---- */

/* The node has lost the request, or hangs. It hangs if it gave no sign of life of any other request since; then it is
 * suspect, each time for longer. */
static void request_is_silent(cluster_router *t, router_node *x, cluster_request *r, uint64_t now_us) {
    if (x->heard_us <= r->heard_us) {
        x->silent_until_us = now_us + (t->options.node_timeout_us << BASE_MIN(x->n_silences, MOST_DOUBLED));
        x->n_silences++;
    }
    x->silent++;
    t->counts.silent++;
    t->env.cancel(t->env.user, r);
    router_failed(t, r, CLUSTER_NODE_SILENT, 0);
}

uint64_t router_look_silent(cluster_router *t, router_node *x, uint64_t now_us) {
    const uint64_t timeout_us = t->options.node_timeout_us;
    bool asks = false;
    if (timeout_us == 0 || x->n_sent == 0) return UINT64_MAX;
    if (x->look_us > now_us) return x->look_us;
    for (cluster_request *r = x->first, *next; r; r = next) {
        next = r->next;
        if (r->heard_us + timeout_us <= now_us) request_is_silent(t, x, r, now_us);
        else asks |= r->heard_us + timeout_us / 2 <= now_us;
    }
    if (asks && t->env.ask) t->env.ask(t->env.user, (int32_t)(x - t->nodes));
    x->look_us = now_us + timeout_us / LOOKS;
    return x->look_us;
}

void router_expire(cluster_router *t) {
    uint64_t now_us = router_now(t), at_us;
    for (cluster_request *r; (r = cluster_deadlines_first(&t->deadlines, &at_us)) && at_us <= now_us;)
        if (r->deadline_us && r->deadline_us <= now_us) request_stop(t, r, CLUSTER_LATE, 0, now_us);
        else request_stop(t, r, CLUSTER_REFUSED_TTFT, queue_retry_ms(t), now_us);
}
