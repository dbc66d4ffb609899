/* SPDX-License-Identifier: Apache-2.0 */
/* sim_cluster.c: see sim_cluster.h. */
#include "tools/cluster_simulation/sim_cluster.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

#define POLL_US 20000       /* changes of a node's names are sent together */
#define LOAD_POLL_US 100000 /* a changed load is noticed */
#define READ_BYTES ((size_t)1 << 18)
#define CLIENT_RETRY_US 100000
#define BUSY_RETRY_MS 500

void sim_cluster_broken(sim_cluster *s, const char *format, ...) {
    va_list args;
    if (s->broken[0]) return;
    int n = snprintf(s->broken, sizeof(s->broken), "at %.6f s: ", (double)s->clock.now_us / 1e6);
    BASE_ASSERT(n > 0 && (size_t)n < sizeof(s->broken));
    va_start(args, format);
    vsnprintf(s->broken + n, sizeof(s->broken) - (size_t)n, format, args);
    va_end(args);
}

static void cluster_mix(sim_cluster *s, uint64_t what, uint64_t a, uint64_t b) {
    s->hash = base_mix64(s->hash + base_mix64(s->clock.now_us + what) + base_mix64(a + (b << 32)));
}

int sim_gap_bucket(uint64_t us) {
    int power = 0;
    while (us >> power >= 64) power++;
    int bucket = BASE_MIN(power * 32 + (int)(us >> power), SIM_GAP_BUCKETS - 1);
    BASE_ASSERT(sim_gap_of(bucket) <= us);
    return bucket;
}

uint64_t sim_gap_of(int bucket) {
    BASE_ASSERT(bucket >= 0 && bucket < SIM_GAP_BUCKETS);
    int power = bucket < 64 ? 0 : bucket / 32 - 1;
    return (uint64_t)(bucket - power * 32) << power;
}

/* ---- faults of the network ---- */

typedef enum sim_fault { SIM_FINE,
                         SIM_LOSE,
                         SIM_CUT_IT,
                         SIM_DELAY } sim_fault;

static sim_fault cluster_fault(sim_cluster *s, uint64_t *at_us) {
    sim_faults *f = &s->faults;
    *at_us = s->clock.now_us + s->latency_us;
    if (!f->on) return SIM_FINE;
    double x = sim_random_unit(&s->random);
    if (x < f->lose) {
        f->lost++;
        return SIM_LOSE;
    }
    if (x < f->lose + f->cut) {
        f->cuts++;
        return SIM_CUT_IT;
    }
    if (x >= f->lose + f->cut + f->delay) return SIM_FINE;
    f->delays++;
    *at_us += sim_random_below(&s->random, SIM_DELAY_US);
    return SIM_DELAY;
}

/* ---- routers' time ---- */

static void router_tick(sim_router *u);

static void router_wakes(void *owner, const sim_event *e) {
    sim_router *u = owner;
    if (e->serial != u->life || !u->t || e->at_us != u->tick_us) return;
    u->tick_us = UINT64_MAX;
    router_tick(u);
}

/* After every call of the router: what time demands, and when to look again. */
static void router_tick(sim_router *u) {
    BASE_ASSERT(u->t && !u->is_ending);
    uint64_t due = cluster_router_tick(u->t), now = u->s->clock.now_us;
    if (due == UINT64_MAX) return;
    if (due <= now) due = now + 1;
    if (due >= u->tick_us && u->tick_us > now) return;
    u->tick_us = due;
    sim_clock_add(&u->s->clock, &(sim_event){.at_us = due, .fn = router_wakes, .owner = u, .serial = u->life});
}

/* ---- streams ---- */

static void link_poll_at(sim_cluster *s, int32_t router, int32_t node, uint64_t at_us);

static sim_link *link_of(sim_cluster *s, const sim_event *e) {
    BASE_ASSERT(e->router >= 0 && e->router < s->n_routers && e->node >= 0 && e->node < s->n_nodes);
    sim_link *l = &s->routers[e->router].links[e->node];
    return s->routers[e->router].t && l->serial == e->serial && l->is_open ? l : NULL;
}

static void link_close(sim_link *l) {
    BASE_ASSERT(l->is_open); /* both ends agree on it */
    cluster_journal_close(l->reader);
    l->reader = NULL;
    l->is_open = false;
    l->serial++;
}

static void stream_cut(void *owner, const sim_event *e) {
    sim_cluster *s = owner;
    sim_link *l = link_of(s, e);
    if (!l) return;
    link_close(l);
    cluster_router_cut(s->routers[e->router].t, e->node);
    router_tick(&s->routers[e->router]);
}

static void stream_arrives(void *owner, const sim_event *e) {
    sim_cluster *s = owner;
    if (!link_of(s, e)) return;
    cluster_mix(s, 1, (uint64_t)e->node, e->n);
    cluster_router_fed(s->routers[e->router].t, e->node, e->bytes, e->n);
    router_tick(&s->routers[e->router]);
}

/* The node's side ends: the router is told after what was sent before. */
static void link_break(sim_cluster *s, int32_t router, int32_t node, uint64_t at_us) {
    sim_link *l = &s->routers[router].links[node];
    BASE_ASSERT(l->is_open); /* until its router is told */
    cluster_journal_close(l->reader);
    l->reader = NULL;
    l->arrives_us = BASE_MAX(l->arrives_us, at_us);
    sim_clock_add(
        &s->clock,
        &(sim_event){
            .at_us = l->arrives_us, .fn = stream_cut, .owner = s, .router = router, .node = node, .serial = l->serial});
}

/* Sends bytes; the event owns them. */
static void link_send(sim_cluster *s, int32_t router, int32_t node, void *bytes, size_t n) {
    sim_link *l = &s->routers[router].links[node];
    uint64_t at_us;
    BASE_ASSERT(l->is_open && l->reader && n > 0);
    sim_fault fault = cluster_fault(s, &at_us);
    if (fault == SIM_LOSE || fault == SIM_CUT_IT) {
        base_free(bytes);
        if (fault == SIM_CUT_IT) link_break(s, router, node, at_us);
        return;
    }
    l->arrives_us = BASE_MAX(l->arrives_us, at_us);
    sim_clock_add(&s->clock, &(sim_event){
                                 .at_us = l->arrives_us,
                                 .fn = stream_arrives,
                                 .owner = s,
                                 .bytes = bytes,
                                 .n = n,
                                 .router = router,
                                 .node = node,
                                 .serial = l->serial,
                             });
}

/* The node writes what is due. */
static void stream_polled(void *owner, const sim_event *e) {
    sim_cluster *s = owner;
    sim_link *l = link_of(s, e);
    if (!l || !l->reader || e->at_us != l->poll_us) return;
    uint64_t frozen = sim_node_frozen_until(s->nodes[e->node]), next = UINT64_MAX, now = s->clock.now_us;
    if (frozen) {
        link_poll_at(s, e->router, e->node, frozen);
        return;
    }
    base_buffer out = BASE_BUFFER(4 * READ_BYTES);
    sim_node_report(s->nodes[e->node]);
    int rc = cluster_journal_read(l->reader, now, READ_BYTES, &out, &next);
    if (rc) s->clock.failed = true;
    size_t n = out.len;
    if (n > 0) link_send(s, e->router, e->node, base_buffer_take(&out), n);
    base_buffer_free(&out);
    if (!l->reader) return; /* it was cut */
    l->poll_us = UINT64_MAX;
    bool ready = cluster_journal_is_ready(l->reader, now);
    link_poll_at(s, e->router, e->node,
                 ready ? now + (n >= READ_BYTES ? 100 : POLL_US) : BASE_MIN(next, now + LOAD_POLL_US));
}

static void link_poll_at(sim_cluster *s, int32_t router, int32_t node, uint64_t at_us) {
    sim_link *l = &s->routers[router].links[node];
    BASE_ASSERT(l->reader != NULL);
    l->poll_us = BASE_MAX(at_us, s->clock.now_us + 1);
    sim_clock_add(
        &s->clock,
        &(sim_event){
            .at_us = l->poll_us, .fn = stream_polled, .owner = s, .router = router, .node = node, .serial = l->serial});
}

/* A router's request for a stream reaches its node. */
static void stream_opens(void *owner, const sim_event *e) {
    sim_cluster *s = owner;
    sim_link *l = link_of(s, e);
    if (!l) return;
    sim_node *n = s->nodes[e->node];
    if (sim_node_frozen_until(n)) {
        sim_event again = *e;
        again.at_us = sim_node_frozen_until(n);
        sim_clock_add(&s->clock, &again);
    } else if (!sim_node_is_up(n)) link_break(s, e->router, e->node, s->clock.now_us + s->latency_us);
    else if (cluster_journal_open(sim_node_journal(n), l->nonce, l->epoch, l->after, &l->reader, NULL))
        s->clock.failed = true;
    else link_poll_at(s, e->router, e->node, s->clock.now_us);
}

static void env_open_stream(void *user, int32_t node, const uint8_t nonce[CLUSTER_NONCE_BYTES], uint64_t epoch,
                            uint64_t after) {
    sim_router *u = user;
    sim_link *l = &u->links[node];
    uint64_t at_us;
    BASE_ASSERT(!l->is_open);
    *l = (sim_link){.is_open = true, .serial = l->serial + 1, .epoch = epoch, .after = after, .poll_us = UINT64_MAX};
    memcpy(l->nonce, nonce, CLUSTER_NONCE_BYTES);
    sim_fault fault = cluster_fault(u->s, &at_us);
    sim_event e = {
        .at_us = at_us, .fn = stream_opens, .owner = u->s, .router = u->number, .node = node, .serial = l->serial};
    if (fault == SIM_CUT_IT || fault == SIM_LOSE) e.fn = stream_cut;
    if (fault == SIM_LOSE) e.at_us += SIM_STALL_US;
    sim_clock_add(&u->s->clock, &e);
}

static void env_close_stream(void *user, int32_t node) { link_close(&((sim_router *)user)->links[node]); }

/* ---- requests between routers and nodes ---- */

static sim_request *request_of(sim_cluster *s, const sim_event *e) {
    BASE_ASSERT(e->request < s->w.n);
    sim_request *q = &s->requests[e->request];
    return q->serial == e->serial && !q->ended && s->routers[q->router].t ? q : NULL;
}

/* The client checks what it gets: tokens in their order, each once, with the values that one node would have given. */
static void client_receives(sim_cluster *s, uint32_t request, int32_t from, int32_t to, uint64_t check) {
    BASE_ASSERT(from >= 0 && from <= to);
    sim_request *q = &s->requests[request];
    uint64_t own = 0;
    for (int32_t i = from; i < to; i++) own += sim_token(request, i);
    if (from != q->received || own != check)
        sim_cluster_broken(s, "request %u: answer tokens %d to %d after %d tokens, %s", (unsigned)request, (int)from,
                           (int)to, (int)q->received, own == check ? "the right ones" : "wrong ones");
    if (q->received == 0 && to > 0) q->first_us = s->clock.now_us;
    q->received = to;
}

/* The connection is over: what comes of it is stale. */
static void hang_up(sim_request *q) {
    q->serial++;
    q->is_sent = false;
}

static void report_failure(sim_cluster *s, sim_request *q, cluster_failure failure, uint64_t retry_ms) {
    hang_up(q);
    cluster_router_failed(s->routers[q->router].t, &q->r, failure, retry_ms);
}

static void cancel_arrives(void *owner, const sim_event *e) {
    sim_cluster *s = owner;
    sim_node *n = s->nodes[e->node];
    if (sim_node_frozen_until(n)) {
        sim_event again = *e;
        again.at_us = sim_node_frozen_until(n);
        sim_clock_add(&s->clock, &again);
    } else if (sim_node_is_up(n)) sim_node_cancel(n, e->request, e->serial);
}

/* The node sees that the connection has ended. */
static void send_cancel(sim_cluster *s, int32_t node, uint32_t request, uint32_t serial) {
    sim_clock_add(&s->clock, &(sim_event){
                                 .at_us = s->clock.now_us + s->latency_us,
                                 .fn = cancel_arrives,
                                 .owner = s,
                                 .node = node,
                                 .request = request,
                                 .serial = serial,
                             });
}

static void reply_arrives(void *owner, const sim_event *e) {
    sim_cluster *s = owner;
    sim_request *q = request_of(s, e);
    if (!q) return;
    BASE_ASSERT(q->is_sent); /* hanging up makes all messages of a connection stale */
    sim_router *u = &s->routers[q->router];
    cluster_mix(s, 2 + (uint64_t)e->kind, e->request, (uint64_t)e->to);
    switch ((sim_reply)e->kind) {
    case SIM_BEGAN:
        cluster_router_began(u->t, &q->r);
        if (q->ended) break; /* refused after its prefill */
        client_receives(s, e->request, e->from, e->to, e->check);
        cluster_router_progress(u->t, &q->r, e->to);
        break;
    case SIM_TOKENS:
        client_receives(s, e->request, e->from, e->to, e->check);
        cluster_router_progress(u->t, &q->r, e->to);
        break;
    case SIM_FINISHED:
        hang_up(q);
        cluster_router_finished(u->t, &q->r);
        break;
    case SIM_BUSY: report_failure(s, q, CLUSTER_NODE_BUSY, BUSY_RETRY_MS); break;
    case SIM_REFUSED: report_failure(s, q, CLUSTER_NODE_REFUSES, 0); break;
    case SIM_UNREACHABLE: report_failure(s, q, CLUSTER_NODE_UNREACHABLE, 0); break;
    case SIM_CUT:
        send_cancel(s, e->node, e->request, e->serial);
        report_failure(s, q, CLUSTER_NODE_CUT, 0);
        break;
    }
    router_tick(u);
}

static void add_reply(sim_cluster *s, uint64_t at_us, int32_t node, const sim_call *call, sim_reply what, int32_t from,
                      int32_t to, uint64_t check) {
    sim_request *q = &s->requests[call->request];
    q->link_us = BASE_MAX(q->link_us, at_us);
    sim_clock_add(&s->clock, &(sim_event){
                                 .at_us = q->link_us,
                                 .fn = reply_arrives,
                                 .owner = s,
                                 .node = node,
                                 .request = call->request,
                                 .serial = call->serial,
                                 .kind = (int32_t)what,
                                 .from = from,
                                 .to = to,
                                 .check = check,
                             });
}

/* A node's reply enters the network. */
static void node_replies(void *user, int32_t node, const sim_call *call, sim_reply what, int32_t from, int32_t to,
                         uint64_t check) {
    sim_cluster *s = user;
    sim_request *q = &s->requests[call->request];
    uint64_t at_us;
    if (q->serial != call->serial || q->is_broken) return;
    sim_fault fault = cluster_fault(s, &at_us);
    if (fault == SIM_LOSE || fault == SIM_CUT_IT) {
        q->is_broken = true; /* nothing comes after it */
        add_reply(s, at_us + (fault == SIM_LOSE ? SIM_STALL_US : 0), node, call, SIM_CUT, 0, 0, 0);
    } else add_reply(s, at_us, node, call, what, from, to, check);
}

static void node_sampled(void *user, int32_t node, uint32_t request) {
    sim_cluster *s = user;
    sim_request *q = &s->requests[request];
    (void)node;
    BASE_ASSERT(q->token_us <= s->clock.now_us);
    if (q->token_us) s->gaps[sim_gap_bucket(s->clock.now_us - q->token_us)]++;
    q->token_us = s->clock.now_us;
}

static void node_changes(void *user, int32_t node) {
    sim_cluster *s = user;
    for (int32_t i = 0; i < s->n_routers; i++) {
        sim_link *l = &s->routers[i].links[node];
        if (l->reader && l->poll_us > s->clock.now_us + POLL_US) link_poll_at(s, i, node, s->clock.now_us + POLL_US);
    }
}

/* Hints of a node arrive at a router. */
static void pooled_arrives(void *owner, const sim_event *e) {
    sim_router *u = owner;
    if (e->serial != u->life || !u->t) return;
    cluster_router_pooled(u->t, e->bytes, e->n / sizeof(rp_name));
}

static void node_pooled(void *user, const rp_name *names, size_t n) {
    sim_cluster *s = user;
    uint64_t at_us = s->clock.now_us + POLL_US + s->latency_us + (uint64_t)(s->o->index_age_s * 1e6);
    for (int32_t i = 0; i < s->n_routers; i++) {
        rp_name *bytes = base_alloc(n * sizeof(*bytes));
        if (!bytes) {
            s->clock.failed = true;
            return;
        }
        memcpy(bytes, names, n * sizeof(*bytes));
        sim_clock_add(&s->clock, &(sim_event){
                                     .at_us = at_us,
                                     .fn = pooled_arrives,
                                     .owner = &s->routers[i],
                                     .serial = s->routers[i].life,
                                     .bytes = bytes,
                                     .n = n * sizeof(*bytes),
                                 });
    }
}

/* ---- prefill for another node ---- */

static void prefill_arrives(void *owner, const sim_event *e) {
    sim_cluster *s = owner;
    sim_call call = {.request = e->request,
                     .serial = e->serial,
                     .prompt = &s->w.prompts[e->request],
                     .prefill_node = -1,
                     .for_node = e->from};
    sim_node_arrive(s->nodes[e->node], &call);
}

static void node_sends_prefill(void *user, int32_t node, const sim_call *call) {
    sim_cluster *s = user;
    sim_clock_add(&s->clock, &(sim_event){
                                 .at_us = s->clock.now_us + s->latency_us,
                                 .fn = prefill_arrives,
                                 .owner = s,
                                 .node = call->prefill_node,
                                 .request = call->request,
                                 .serial = call->serial,
                                 .from = node,
                             });
}

static void prefilled_arrives(void *owner, const sim_event *e) {
    sim_cluster *s = owner;
    sim_node_prefilled(s->nodes[e->node], e->request, e->serial);
}

static void node_prefilled(void *user, int32_t node, const sim_call *call) {
    sim_cluster *s = user;
    (void)node;
    sim_clock_add(&s->clock, &(sim_event){
                                 .at_us = s->clock.now_us + s->latency_us,
                                 .fn = prefilled_arrives,
                                 .owner = s,
                                 .node = call->for_node,
                                 .request = call->request,
                                 .serial = call->serial,
                             });
}

static sim_node *node_of(void *user, int32_t node) {
    const sim_cluster *s = user;
    BASE_ASSERT(node >= 0 && node < s->n_nodes);
    return s->nodes[node];
}

static void node_is_broken(void *user, const char *what) { sim_cluster_broken(user, "%s", what); }

/* A request reaches its node. */
static void request_arrives(void *owner, const sim_event *e) {
    sim_cluster *s = owner;
    sim_request *q = request_of(s, e);
    if (!q) return;
    sim_node *n = s->nodes[e->node];
    sim_call call = {.request = e->request,
                     .serial = e->serial,
                     .router = q->router,
                     .resumed = e->from,
                     .prefill_node = e->to,
                     .for_node = -1,
                     .prompt = &s->w.prompts[e->request]};
    if (sim_node_frozen_until(n)) {
        sim_event again = *e;
        again.at_us = sim_node_frozen_until(n);
        sim_clock_add(&s->clock, &again);
    } else if (sim_node_is_up(n)) sim_node_arrive(n, &call);
    else add_reply(s, s->clock.now_us + s->latency_us, e->node, &call, SIM_UNREACHABLE, 0, 0, 0);
}

/* No tenant's name is asked for by another: a request's names are its tenant's, and what a node is said to hold of
   them, its tenant asked for. */
static void check_names(sim_cluster *s, const cluster_request *r, const sim_prompt *p) {
    BASE_ASSERT(p->n_items <= p->n_kept);
    int64_t known = 0;
    if (r->items != s->w.items + p->first_item || r->n_items != p->n_items || r->tenant != p->tenant)
        sim_cluster_broken(s, "a request has other names");
    for (int32_t i = 0; i < p->n_kept; i++) {
        uint32_t id = s->w.ids[p->first_item + (size_t)i], *seen = &s->seen_by[id];
        if (s->w.owners[id] != p->tenant || (*seen && *seen != p->tenant + 1))
            sim_cluster_broken(s, "name %u is another tenant's", (unsigned)id);
        if (*seen && i < p->n_items) known += r->items[i].n_tokens;
        *seen = p->tenant + 1;
    }
    if (r->attempts <= 1 && r->held_tokens > known)
        sim_cluster_broken(s, "%d tokens are said to be held, but the tenant asked for only %lld of them before",
                           (int)r->held_tokens, (long long)known);
}

static void env_send(void *user, cluster_request *r) {
    sim_router *u = user;
    sim_cluster *s = u->s;
    sim_request *q = r->user;
    uint32_t request = (uint32_t)(q - s->requests);
    uint64_t at_us;
    BASE_ASSERT(r == &q->r && q->is_submitted && !q->ended);
    check_names(s, r, &s->w.prompts[request]);
    if (r->began && r->answer_tokens != q->received)
        sim_cluster_broken(s, "request %u is continued after %d tokens, its client has %d", (unsigned)request,
                           (int)r->answer_tokens, (int)q->received);
    hang_up(q);
    q->is_sent = true;
    q->is_broken = false;
    q->is_swallowed = s->faults.on && sim_random_unit(&s->random) < s->faults.swallow;
    q->link_us = 0;
    if (q->is_swallowed) {
        s->faults.swallowed++;
        return;
    }
    sim_fault fault = cluster_fault(s, &at_us);
    sim_event e = {
        .at_us = at_us,
        .fn = request_arrives,
        .owner = s,
        .node = r->node,
        .request = request,
        .serial = q->serial,
        .from = r->began ? r->answer_tokens : 0,
        .to = r->prefill_node,
    };
    s->apart += r->prefill_node >= 0;
    if (fault == SIM_LOSE || fault == SIM_CUT_IT) {
        e.fn = reply_arrives;
        e.kind = fault == SIM_CUT_IT ? SIM_UNREACHABLE : SIM_CUT;
        e.to = 0;
        e.at_us += fault == SIM_LOSE ? SIM_STALL_US : 0;
    }
    sim_clock_add(&s->clock, &e);
}

static void env_cancel(void *user, cluster_request *r) {
    sim_cluster *s = ((sim_router *)user)->s;
    sim_request *q = r->user;
    send_cancel(s, r->node, (uint32_t)(q - s->requests), q->serial);
    hang_up(q);
}

/* ---- signs of life ---- */

static void request_is_heard(void *user, cluster_request *r) {
    const sim_router *u = user;
    const sim_request *q = r->user;
    if (!q->is_swallowed && sim_node_is_up(u->s->nodes[r->node]))
        cluster_router_heard(u->t, r, u->s->clock.now_us, true);
}

/* The node's answer, after the latency of both ways. */
static void life_arrives(void *owner, const sim_event *e) {
    sim_router *u = owner;
    if (e->serial != u->life || !u->t) return;
    cluster_router_each_sent(u->t, e->node, request_is_heard, u);
}

static void env_ask(void *user, int32_t node) {
    sim_router *u = user;
    sim_event e = {.at_us = u->s->clock.now_us + 2 * u->s->latency_us,
                   .fn = life_arrives,
                   .owner = u,
                   .node = node,
                   .serial = u->life};
    sim_clock_add(&u->s->clock, &e);
}

/* ---- clients ---- */

static void client_arrives(void *owner, const sim_event *e);

static void schedule_arrival(sim_cluster *s, uint32_t request, uint64_t at_us) {
    BASE_ASSERT(request < s->w.n);
    sim_clock_add(&s->clock, &(sim_event){.at_us = at_us, .fn = client_arrives, .owner = s, .request = request});
}

/* The turns after one that was not served never come. */
static void client_goes_on(sim_cluster *s, const sim_request *q) {
    uint32_t next = s->w.prompts[q - s->requests].next;
    if (next != SIM_NONE && q->outcome == CLUSTER_SERVED && !q->lost) {
        schedule_arrival(s, next, s->clock.now_us + s->w.prompts[next].at_us);
        return;
    }
    for (; next != SIM_NONE; next = s->w.prompts[next].next) {
        s->dropped_turns++;
        s->n_open--;
    }
}

static void client_ends(sim_cluster *s, sim_request *q, cluster_outcome outcome) {
    uint32_t request = (uint32_t)(q - s->requests);
    if (q->ended) sim_cluster_broken(s, "request %u ended twice", (unsigned)request);
    q->ended = true;
    q->outcome = outcome;
    q->ended_us = s->clock.now_us;
    hang_up(q);
    s->n_open--;
    cluster_mix(s, 20, request, outcome);
    if (outcome == CLUSTER_SERVED && q->received != s->w.prompts[request].answer_tokens)
        sim_cluster_broken(s, "request %u was served %d tokens of %d", (unsigned)request, (int)q->received,
                           (int)s->w.prompts[request].answer_tokens);
    client_goes_on(s, q);
}

static void env_end(void *user, cluster_request *r, cluster_outcome outcome, uint64_t retry_after_ms) {
    sim_router *u = user;
    sim_request *q = r->user;
    (void)retry_after_ms;
    cluster_request_close(r);
    q->is_submitted = false;
    q->was_cut = u->is_ending;
    if (u->is_ending) return; /* the client sees its router's end, instead */
    if (outcome == CLUSTER_LATE && q->received > 0) sim_cluster_broken(u->s, "a request was late after its first byte");
    client_ends(u->s, q, outcome);
}

static sim_router *choose_router(sim_cluster *s, uint32_t request, int32_t tries) {
    BASE_ASSERT(s->n_routers > 0 && tries >= 0);
    for (int32_t i = 0; i < s->n_routers; i++) {
        sim_router *u = &s->routers[((int32_t)(request % (uint32_t)s->n_routers) + tries + i) % s->n_routers];
        if (u->t) return u;
    }
    return NULL;
}

static void client_submits(sim_cluster *s, sim_request *q, sim_router *u) {
    BASE_ASSERT(u->t && !q->is_submitted && !q->ended);
    const sim_prompt *p = &s->w.prompts[q - s->requests];
    uint64_t deadline = s->o->deadline_s > 0 ? q->arrived_us + (uint64_t)(s->o->deadline_s * 1e6) : 0;
    q->r = (cluster_request){
        .items = s->w.items + p->first_item,
        .n_items = p->n_items,
        .prompt_tokens = p->prompt_tokens,
        .max_tokens = p->answer_tokens,
        .tenant = p->tenant,
        .session = p->session,
        .priority = p->priority,
        .deadline_us = deadline,
        .only_node = -1,
        .continues = true,
        .user = q,
    };
    q->router = u->number;
    q->is_submitted = true;
    q->token_us = 0;
    s->submitted++;
    cluster_router_submit(u->t, &q->r);
    router_tick(u);
}

static void client_arrives(void *owner, const sim_event *e) {
    sim_cluster *s = owner;
    sim_request *q = &s->requests[e->request];
    if (!q->arrived) q->arrived_us = s->clock.now_us;
    q->arrived = true;
    sim_router *u = choose_router(s, e->request, q->tries);
    if (u) client_submits(s, q, u);
    else schedule_arrival(s, e->request, s->clock.now_us + CLIENT_RETRY_US);
}

/* ---- ends and beginnings of nodes and routers ---- */

static void node_starts(void *owner, const sim_event *e) {
    sim_cluster *s = owner;
    if (sim_node_is_up(s->nodes[e->node])) return;
    if (sim_node_start(s->nodes[e->node], sim_random_next(&s->random) | 1)) s->clock.failed = true;
}

void sim_cluster_kill_node(sim_cluster *s, int32_t node, uint64_t down_us) {
    BASE_ASSERT(node >= 0 && node < s->n_nodes);
    uint64_t at_us = s->clock.now_us + s->latency_us;
    if (!sim_node_is_up(s->nodes[node])) return;
    s->faults.restarts++;
    for (int32_t i = 0; i < s->n_routers; i++)
        if (s->routers[i].links[node].reader) link_break(s, i, node, at_us);
    for (size_t i = 0; i < s->w.n; i++) {
        sim_request *q = &s->requests[i];
        bool has = q->arrived && !q->ended && q->is_sent && q->r.node == node && !q->is_broken;
        if (!has) continue;
        q->is_broken = true;
        add_reply(s, at_us, node, &(sim_call){.request = (uint32_t)i, .serial = q->serial}, SIM_CUT, 0, 0, 0);
    }
    sim_node_kill(s->nodes[node]);
    sim_clock_add(&s->clock,
                  &(sim_event){.at_us = s->clock.now_us + down_us, .fn = node_starts, .owner = s, .node = node});
}

static uint64_t env_now(void *user) { return ((sim_router *)user)->s->clock.now_us; }
static uint64_t env_random(void *user) { return sim_random_next(&((sim_router *)user)->random); }

static int router_begin(sim_router *u, rp_error *err) {
    BASE_ASSERT(!u->t);
    cluster_env env = {
        .user = u,
        .now_us = env_now,
        .random = env_random,
        .open_stream = env_open_stream,
        .close_stream = env_close_stream,
        .send = env_send,
        .cancel = env_cancel,
        .ask = env_ask,
        .end = env_end,
    };
    int rc = cluster_router_new(&u->t, &u->s->router_options, &env, err);
    u->tick_us = UINT64_MAX;
    for (int32_t i = 0, node; i < u->s->n_nodes && !rc; i++) {
        char name[CLUSTER_NODE_NAME_BYTES];
        snprintf(name, sizeof(name), "node-%d", (int)i);
        rc = cluster_router_add_node(u->t, name, &node, err);
        BASE_ASSERT(rc || node == i);
        if (!rc && i < u->s->o->prefill_nodes) cluster_router_set_prefill(u->t, node);
    }
    u->begun_us = u->s->clock.now_us;
    if (!rc) router_tick(u);
    return rc;
}

static void router_starts(void *owner, const sim_event *e) {
    sim_router *u = owner;
    if (e->serial == u->life && !u->t && router_begin(u, NULL)) u->s->clock.failed = true;
}

/* What a router cost more than it may: its budget, refilled with time. */
void sim_cluster_check_retries(sim_cluster *s, const sim_router *u) {
    cluster_router_counts c = cluster_router_counted(u->t);
    double most =
        10 + s->router_options.retry_share * (double)c.submitted + (double)(s->clock.now_us - u->begun_us) / 1e6;
    if ((double)(c.retries + c.continuations) > most + 1)
        sim_cluster_broken(s, "%llu retries and %llu continuations of %llu requests", (unsigned long long)c.retries,
                           (unsigned long long)c.continuations, (unsigned long long)c.submitted);
}

/* The router's process ends: nobody is told anything by it. */
static void router_kill(sim_router *u) {
    BASE_ASSERT(u->t && !u->is_ending);
    sim_cluster *s = u->s;
    u->is_ending = true;
    for (size_t i = 0; s->requests && i < s->w.n; i++)
        if (s->requests[i].router == u->number && s->requests[i].is_submitted)
            cluster_router_cancelled(u->t, &s->requests[i].r);
    cluster_router_counts counts = cluster_router_counted(u->t);
    sim_cluster_check_retries(s, u);
    s->retries += counts.retries;
    s->continuations += counts.continuations;
    cluster_router_free(u->t);
    u->t = NULL;
    u->life++;
    u->is_ending = false;
}

void sim_cluster_restart_router(sim_cluster *s, int32_t router, uint64_t down_us) {
    BASE_ASSERT(router >= 0 && router < s->n_routers);
    sim_router *u = &s->routers[router];
    if (!u->t) return;
    s->faults.router_restarts++;
    router_kill(u);
    for (size_t i = 0; i < s->w.n; i++) {
        sim_request *q = &s->requests[i];
        if (!q->was_cut) continue;
        q->was_cut = false;
        if (q->received == 0 && ++q->tries < SIM_CLIENT_TRIES) {
            schedule_arrival(s, (uint32_t)i, s->clock.now_us + CLIENT_RETRY_US);
            continue;
        }
        q->lost = true;
        s->router_lost++;
        client_ends(s, q, CLUSTER_CANCELLED);
    }
    sim_clock_add(&s->clock,
                  &(sim_event){.at_us = s->clock.now_us + down_us, .fn = router_starts, .owner = u, .serial = u->life});
}

/* ---- a cluster ---- */

/* Coefficients of rp_engine_load: few rows are bound by loading the weights, many by arithmetic. */
static rp_engine_load costs_of(const rp_cluster_simulate_options *o) {
    rp_engine_load load = {
        .struct_size = (uint32_t)sizeof(load),
        .kv_bytes_per_token = o->kv_bytes_per_token,
        .max_running = o->max_sequences,
        .chunk_tokens = o->chunk_tokens,
    };
    double token_us = 1e6 / o->prefill_tokens_per_s;
    for (int k = 0; k < RP_COST_KNOTS; k++) load.knot_us[k] = BASE_MAX(o->decode_ms * 1e3, token_us * (double)(1 << k));
    load.row_slot_us = token_us / o->attention_tokens;
    load.read_byte_us = o->disk_tokens > 0 ? 1e6 / o->disk_bytes_per_s : 0;
    return load;
}

static int cluster_make_pool(sim_cluster *s, rp_error *err) {
    const rp_cluster_simulate_options *o = s->o;
    sim_pool_options pool = {
        .tokens = o->pool_tokens < 0 ? o->kv_tokens * o->nodes : o->pool_tokens,
        .rtt_us = o->pool_rtt_us,
        .writes = o->pool_writes,
    };
    if (o->pool_tokens == 0) return RP_OK;
    return sim_pool_new(&s->pool, &pool, s->w.n_names) ? base_fail_memory(err, s->w.n_names, "the pool of a simulation")
                                                       : RP_OK;
}

static int cluster_make_nodes(sim_cluster *s, rp_error *err) {
    const rp_cluster_simulate_options *o = s->o;
    sim_node_options node = {
        .kv_tokens = o->kv_tokens,
        .disk_tokens = o->disk_tokens,
        .costs = costs_of(o),
        .max_waiting = o->max_waiting,
        .report_tokens = o->faults ? 1 : 16,
        .index_age_us = (uint64_t)(o->index_age_s * 1e6),
        .no_queues = o->no_queues,
        .secret = s->secret,
        .fetch = s->router_options.move,
        .pool = s->pool,
    };
    sim_port port = {
        .user = s,
        .reply = node_replies,
        .sampled = node_sampled,
        .changed = node_changes,
        .pooled = node_pooled,
        .prefill = node_sends_prefill,
        .prefilled = node_prefilled,
        .node_of = node_of,
        .broken = node_is_broken,
    };
    int rc = RP_OK;
    s->nodes = base_calloc((size_t)o->nodes, sizeof(sim_node *));
    if (!s->nodes) rc = RP_ERR_MEMORY;
    for (int32_t i = 0; i < o->nodes && !rc; i++) {
        rc = sim_node_new(&s->nodes[i], i, &node, &s->w, &s->clock, &port);
        if (!rc) rc = sim_node_start(s->nodes[i], sim_random_next(&s->random) | 1);
        s->n_nodes = s->nodes[i] ? i + 1 : i; /* one that did not start is freed, too */
    }
    return rc ? base_fail_memory(err, sizeof(sim_node *), "the nodes of a simulation") : RP_OK;
}

static int cluster_make_routers(sim_cluster *s, rp_error *err) {
    s->routers = base_calloc((size_t)s->o->routers, sizeof(*s->routers));
    if (!s->routers) return base_fail_memory(err, sizeof(*s->routers), "the routers of a simulation");
    int rc = RP_OK;
    for (int32_t i = 0; i < s->o->routers && !rc; i++) {
        sim_router *u = &s->routers[i];
        *u = (sim_router){.s = s, .number = i, .random = {sim_random_next(&s->random)}};
        s->n_routers = i + 1;
        u->links = base_calloc((size_t)s->n_nodes, sizeof(*u->links));
        rc = u->links ? router_begin(u, err) : base_fail_memory(err, sizeof(*u->links), "the streams of a simulation");
    }
    return rc;
}

static int cluster_make_requests(sim_cluster *s, rp_error *err) {
    s->requests = base_calloc(s->w.n + 1, sizeof(*s->requests));
    s->seen_by = base_calloc(s->w.n_names + 1, sizeof(*s->seen_by));
    if (!s->requests || !s->seen_by)
        return base_fail_memory(err, s->w.n * sizeof(*s->requests), "the requests of a simulation");
    s->n_open = s->w.n;
    for (size_t i = 0; i < s->w.n; i++) {
        s->requests[i].router = -1;
        if (!s->w.prompts[i].follows) schedule_arrival(s, (uint32_t)i, SIM_START_US + s->w.prompts[i].at_us);
    }
    return RP_OK;
}

int sim_cluster_new(sim_cluster **out, const rp_cluster_simulate_options *o, const cluster_router_options *router,
                    const rp_cluster_trace_request *trace, size_t n, rp_error *err) {
    sim_cluster *s = base_calloc(1, sizeof(*s));
    *out = s;
    if (!s) return base_fail_memory(err, sizeof(*s), "a simulation");
    s->o = o;
    s->random.state = base_mix64(o->seed);
    s->clock.now_us = 1;
    s->latency_us = (uint64_t)(o->latency_ms * 1e3);
    for (size_t i = 0; i < sizeof(s->secret); i++) s->secret[i] = (uint8_t)sim_random_next(&s->random);
    s->router_options = *router;
    s->router_options.secret = s->secret;
    if (s->o->faults) s->router_options.node_timeout_us = SIM_SWALLOWED_US;
    int rc = sim_workload_make(&s->w, o, trace, n, err);
    if (!rc) rc = cluster_make_pool(s, err);
    if (!rc) rc = cluster_make_nodes(s, err);
    if (!rc) rc = cluster_make_routers(s, err);
    if (!rc) rc = cluster_make_requests(s, err);
    return rc;
}

void sim_cluster_free(sim_cluster *s) {
    if (!s) return;
    for (int32_t i = 0; i < s->n_routers; i++) {
        if (s->routers[i].t) router_kill(&s->routers[i]);
        base_free(s->routers[i].links);
    }
    for (int32_t i = 0; i < s->n_nodes; i++) sim_node_free(s->nodes[i]);
    sim_pool_free(s->pool);
    base_free(s->nodes);
    base_free(s->routers);
    base_free(s->requests);
    base_free(s->seen_by);
    sim_workload_free(&s->w);
    sim_clock_free(&s->clock);
    base_free(s);
}
