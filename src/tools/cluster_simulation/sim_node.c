/* SPDX-License-Identifier: Apache-2.0 */
/* sim_node.c: see sim_node.h. */
#include "tools/cluster_simulation/sim_node.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/memory.h"
#include "cluster/cost.h"
#include "reprise_cluster.h"

/* How a job gets the KV of a name of its prompt. */
typedef enum job_name {
    JOB_COMPUTES,
    JOB_FETCHES,
    JOB_HOLDS, /* it has it, in RAM */
} job_name;

typedef struct sim_job {
    sim_call call;
    uint8_t *names;            /* [n_items] job_name; all JOB_COMPUTES before it runs */
    int32_t left;              /* tokens of prompt and resumed answer to compute */
    int32_t fetched;           /* tokens that it fetches, or fetched */
    bool fetching;             /* it is in no step meanwhile */
    double slots_each;         /* that each of them attends to, on average */
    int32_t take;              /* of them in this step */
    bool decodes, running;     /* decodes: has a row in this step */
    int32_t done, reported;    /* tokens of the answer */
    uint64_t check;            /* of those that were not reported yet */
    int64_t reserved, unnamed; /* memory: all; of it for tokens that will have no name */
    double read_us;            /* of what is read from disk, before its first step */
    double transfer_us;        /* of what is fetched */
    double estimate_us;        /* computing what is left; while it waits, as of its arrival */
    struct sim_job *next;
} sim_job;

struct sim_node {
    int32_t number;
    sim_node_options o;
    const sim_workload *w;
    sim_clock *clock;
    sim_port port;
    sim_cache *cache;
    cluster_journal *journal; /* NULL: dead */
    uint64_t epoch, frozen_until;
    uint32_t life; /* events of earlier lives do nothing */
    bool stepping, draining;
    sim_job *away;       /* their prefill nodes compute their prompts; any order */
    uint64_t link_until; /* transfers of its KV to decode nodes take its link until then */
    sim_job *waiting;    /* by falling priority, then as they came */
    sim_job **running;   /* [n_running] */
    int32_t n_running, n_waiting;
    double waiting_us;
    int64_t waiting_tokens;
    uint64_t backlog_until;  /* no_queues: when it would be idle */
    rp_span_change *changes; /* not yet in the journal */
    size_t n_changes, cap_changes;
    rp_name *pooled; /* written to the pool, not yet reported */
    size_t n_pooled, cap_pooled;
    sim_node_totals total;
};

static void node_step(sim_node *n);
static bool node_is_frozen(const sim_node *n) { return n->frozen_until > n->clock->now_us; }

/* ---- names ---- */

/* Names that the pool has since now. */
static void node_wrote(sim_node *n, const rp_name *name) {
    if (base_grow((void **)&n->pooled, &n->cap_pooled, n->n_pooled + 1, SIM_MAX_ITEMS, sizeof(*n->pooled)))
        n->clock->failed = true;
    else n->pooled[n->n_pooled++] = *name;
}

static void node_changed(void *user, uint32_t id, const rp_name *name, uint32_t tiers) {
    sim_node *n = user;
    if (!tiers && n->o.pool && sim_pool_evicted(n->o.pool, id)) node_wrote(n, name);
    if (base_grow((void **)&n->changes, &n->cap_changes, n->n_changes + 1, SIM_MAX_ITEMS, sizeof(*n->changes)))
        n->clock->failed = true;
    else n->changes[n->n_changes++] = (rp_span_change){*name, tiers};
}

static void node_tell(void *owner, const sim_event *e) {
    sim_node *n = owner;
    if (!n->journal || e->serial != n->life) return;
    cluster_journal_change(n->journal, e->bytes, e->n / sizeof(rp_span_change));
    n->port.changed(n->port.user, n->number);
}

/* What changed enters the journal, or will when the index has its age. */
static void node_flush(sim_node *n) {
    if (n->n_pooled) n->port.pooled(n->port.user, n->pooled, n->n_pooled);
    n->n_pooled = 0;
    if (!n->n_changes) return;
    sim_event e = {
        .at_us = n->clock->now_us + n->o.index_age_us,
        .fn = node_tell,
        .owner = n,
        .serial = n->life,
        .n = n->n_changes * sizeof(*n->changes),
    };
    if (n->o.index_age_us > 0) {
        e.bytes = base_alloc(e.n);
        if (e.bytes) memcpy(e.bytes, n->changes, e.n);
        if (e.bytes) sim_clock_add(n->clock, &e);
        else n->clock->failed = true;
    } else if (n->journal) {
        e.bytes = n->changes;
        node_tell(n, &e);
    }
    n->n_changes = 0;
}

int sim_node_new(sim_node **out, int32_t number, const sim_node_options *o, const sim_workload *w, sim_clock *clock,
                 const sim_port *port) {
    BASE_ASSERT(o->costs.max_running > 0 && o->costs.chunk_tokens > 0); /* every step makes progress */
    sim_node *n = base_calloc(1, sizeof(*n));
    *out = n;
    if (!n) return RP_ERR_MEMORY;
    *n = (sim_node){.number = number, .o = *o, .w = w, .clock = clock, .port = *port};
    n->running = base_calloc((size_t)o->costs.max_running, sizeof(sim_job *));
    int rc = n->running ? sim_cache_new(&n->cache, w->n_names, o->kv_tokens, o->disk_tokens, node_changed, n)
                        : RP_ERR_MEMORY;
    if (rc) sim_node_free(n);
    if (rc) *out = NULL;
    return rc;
}

/* ---- jobs ---- */

static const rp_named_kv *items_of(const sim_node *n, const sim_prompt *p) { return n->w->items + p->first_item; }
static const uint32_t *ids_of(const sim_node *n, const sim_prompt *p) { return n->w->ids + p->first_item; }

/* The prefill node whose KV a job can fetch; NULL: none. */
static const sim_node *peer_of(const sim_node *n, const sim_job *j) {
    return j->call.prefill_node >= 0 ? n->port.node_of(n->port.user, j->call.prefill_node) : NULL;
}

static void job_free(sim_job *j) {
    base_free(j->names);
    base_free(j);
}

static void node_release(sim_node *n, sim_job *j) {
    for (int32_t i = 0; i < j->call.prompt->n_items; i++) {
        if (j->names[i] == JOB_HOLDS) sim_cache_release(n->cache, ids_of(n, j->call.prompt)[i]);
        j->names[i] = JOB_COMPUTES;
    }
    if (j->reserved) sim_cache_unreserve(n->cache, j->reserved);
    j->reserved = 0;
}

/* Tokens that a job samples. */
static int32_t answer_of(const sim_job *j) { return j->call.for_node >= 0 ? 0 : j->call.prompt->answer_tokens; }

/* The text name before the i-th, or none. */
static uint32_t parent_of(const sim_node *n, const sim_prompt *p, int32_t i) {
    const rp_named_kv *items = items_of(n, p);
    return items[i].is_module || i == 0 || items[i - 1].is_module ? UINT32_MAX : ids_of(n, p)[i - 1];
}

static double tokens_us(const sim_node *n, double tokens, double slots_each) {
    return tokens > 0 ? cluster_cost_rows(&n->o.costs, tokens) + n->o.costs.row_slot_us * tokens * slots_each : 0;
}

/* Can a name be fetched: from the prefill node, or else from the pool? */
static bool can_fetch(const sim_node *n, const sim_job *j, uint32_t id) {
    const sim_node *peer = peer_of(n, j);
    if (peer) return sim_cache_tiers(peer->cache, id) != 0;
    return n->o.pool && sim_pool_has(n->o.pool, id);
}

/* What fetching a name saves; 0: the node has it, it cannot be fetched, or computing it is faster. */
static double node_fetch_gain(const sim_node *n, const sim_job *j, int32_t i) {
    const sim_prompt *p = j->call.prompt;
    uint32_t id = ids_of(n, p)[i];
    if (sim_cache_tiers(n->cache, id) || !can_fetch(n, j, id)) return 0;
    if (n->o.pool && sim_pool_has(n->o.pool, id) && sim_pool_tenant(n->o.pool, id) != p->tenant)
        n->port.broken(n->port.user, "a tenant's name is in the pool for another tenant");
    return BASE_MAX(cluster_cost_fetch_gain(&n->o.costs, &n->o.fetch, &items_of(n, p)[i]), 0);
}

/* Is the text up to a name on the node, or can it be fetched? */
static bool node_text_goes_on(const sim_node *n, const sim_job *j, uint32_t id) {
    return sim_cache_tiers(n->cache, id) || can_fetch(n, j, id);
}

/* Does fetching save more than the round trip? */
static bool node_fetches(const sim_node *n, const sim_job *j) {
    const sim_prompt *p = j->call.prompt;
    double gain_us = 0;
    bool text = true;
    for (int32_t i = 0; (n->o.pool || peer_of(n, j)) && i < p->n_items; i++) {
        bool is_module = items_of(n, p)[i].is_module;
        if (text || is_module) gain_us += node_fetch_gain(n, j, i);
        text = text && (is_module || node_text_goes_on(n, j, ids_of(n, p)[i]));
    }
    return gain_us > 0 && gain_us > n->o.fetch.rtt_us;
}

/* A name that is held, or else fetched: whether it is. hold: the job holds it, or will fetch it. */
static bool node_has(sim_node *n, sim_job *j, int32_t i, bool fetches, bool hold) {
    const sim_prompt *p = j->call.prompt;
    const rp_named_kv *item = &items_of(n, p)[i];
    uint32_t id = ids_of(n, p)[i], tiers = sim_cache_tiers(n->cache, id);
    if (tiers && sim_cache_tenant(n->cache, id) != p->tenant)
        n->port.broken(n->port.user, "a tenant's name was used by another tenant");
    if (tiers && hold && !sim_cache_hold(n->cache, id, parent_of(n, p, i))) return false;
    if (tiers && hold) j->names[i] = JOB_HOLDS;
    if (tiers && !(tiers & RP_TIER_RAM)) j->read_us += cluster_cost_read(&n->o.costs, (double)item->bytes);
    if (tiers || !fetches || node_fetch_gain(n, j, i) <= 0) return tiers != 0;
    j->fetched += item->n_tokens;
    j->transfer_us += cluster_cost_transfer(&n->o.fetch, (double)item->bytes);
    if (hold) j->names[i] = JOB_FETCHES;
    return true;
}

/* What has to be computed of a prompt: visits its names. hold: the job holds what is cached. */
static void node_look_up(sim_node *n, sim_job *j, bool hold) {
    BASE_ASSERT(!hold || j->reserved == 0);
    const sim_prompt *p = j->call.prompt;
    const rp_named_kv *items = items_of(n, p);
    int32_t all = p->prompt_tokens + j->call.resumed, cached = 0;
    double slots = 0;
    bool text = true, fetches = node_fetches(n, j);
    j->fetched = 0;
    j->read_us = j->transfer_us = 0;
    for (int32_t i = 0; i < p->n_items; i++) {
        bool has = (text || items[i].is_module) && node_has(n, j, i, fetches, hold);
        double middle = items[i].position + items[i].n_tokens / 2.0;
        if (has) cached += items[i].n_tokens;
        else slots += middle * items[i].n_tokens;
        text = text && (has || items[i].is_module || (fetches && node_text_goes_on(n, j, ids_of(n, p)[i])));
    }
    int32_t named = 0;
    for (int32_t i = 0; i < p->n_items; i++) named += items[i].n_tokens;
    BASE_ASSERT(cached <= named && named <= all); /* names are of the prompt, each token has at most one */
    slots += (all - named) * (double)(all + named) / 2;
    j->left = BASE_MAX(all - cached, 1); /* the last token is always computed */
    j->slots_each = slots > 0 ? slots / j->left : all;
    j->estimate_us = tokens_us(n, j->left, j->slots_each) + j->read_us;
    j->unnamed = all - named;
}

/* Memory for a waiting job, and what is cached of its prompt. false: no space now. */
static bool node_admit(sim_node *n, sim_job *j) {
    const sim_prompt *p = j->call.prompt;
    node_look_up(n, j, true);
    int64_t need = (int64_t)j->fetched + j->left + answer_of(j) - j->call.resumed;
    BASE_ASSERT(need > 0);
    if (!sim_cache_reserve(n->cache, need)) {
        node_release(n, j);
        return false;
    }
    j->reserved = need;
    if (peer_of(n, j)) return true; /* its prompt is that node's */
    n->total.prompt_tokens += p->prompt_tokens + j->call.resumed;
    n->total.hit_tokens += p->prompt_tokens + j->call.resumed - j->left;
    return true;
}

static uint64_t name_us(const sim_node *n, const rp_named_kv *item) {
    return (uint64_t)tokens_us(n, item->n_tokens, item->position + item->n_tokens / 2.0);
}

/* The job has computed or fetched a name: it enters the cache, and the job holds it. */
static int node_keep(sim_node *n, sim_job *j, int32_t i) {
    const sim_prompt *p = j->call.prompt;
    const rp_named_kv *item = &items_of(n, p)[i];
    uint32_t id = ids_of(n, p)[i];
    BASE_ASSERT(j->names[i] != JOB_HOLDS);
    bool there = sim_cache_tiers(n->cache, id) & RP_TIER_RAM; /* another request computed it meanwhile */
    int rc = there ? RP_OK : sim_cache_add(n->cache, id, item, parent_of(n, p, i), p->tenant, name_us(n, item));
    if (!(sim_cache_tiers(n->cache, id) & RP_TIER_RAM)) return rc;
    if (there) sim_cache_hold(n->cache, id, UINT32_MAX);
    else sim_cache_hold_new(n->cache, id);
    j->names[i] = JOB_HOLDS;
    return rc;
}

/* Names [from, to) are used by a request: perhaps the pool gets them. The last one first, so that the beginning of a
 * text is not evicted before its end. */
static void node_use(sim_node *n, const sim_prompt *p, int32_t from, int32_t to) {
    for (int32_t i = to; n->o.pool && i-- > from;) {
        const rp_named_kv *item = &items_of(n, p)[i];
        uint32_t id = ids_of(n, p)[i];
        bool has = sim_cache_tiers(n->cache, id) & RP_TIER_RAM;
        if (has && sim_pool_use(n->o.pool, id, item, p->tenant)) node_wrote(n, &item->name);
    }
}

/* Its prompt is computed: names that were reserved memory become cached names that it holds. */
static int node_publish(sim_node *n, sim_job *j) {
    const sim_prompt *p = j->call.prompt;
    int64_t keeps = BASE_MIN(j->unnamed + answer_of(j) - j->call.resumed, j->reserved);
    BASE_ASSERT(j->left == 0 && keeps >= 0);
    int rc = RP_OK;
    sim_cache_unreserve(n->cache, j->reserved - keeps);
    j->reserved = keeps;
    for (int32_t i = 0; i < p->n_items && !rc; i++) {
        BASE_ASSERT(j->names[i] != JOB_FETCHES); /* that was before */
        if (j->names[i] == JOB_COMPUTES) rc = node_keep(n, j, i);
    }
    node_use(n, p, 0, p->n_items);
    return rc;
}

/* The names of its answer, for the conversation's next turn. */
static int node_keep_answer(sim_node *n, const sim_prompt *p) {
    int rc = RP_OK;
    for (int32_t i = p->n_items; i < p->n_kept && !rc; i++) {
        const rp_named_kv *item = &items_of(n, p)[i];
        uint32_t parent = parent_of(n, p, i);
        if (parent != UINT32_MAX && !(sim_cache_tiers(n->cache, parent) & RP_TIER_RAM)) break;
        rc = sim_cache_add(n->cache, ids_of(n, p)[i], item, parent, p->tenant, name_us(n, item));
    }
    node_use(n, p, p->n_items, p->n_kept);
    return rc;
}

/* ---- answers ---- */

static void node_report_tokens(sim_node *n, sim_job *j, sim_reply what) {
    BASE_ASSERT(j->reported <= j->done);
    n->port.reply(n->port.user, n->number, &j->call, what, j->reported, j->done, j->check);
    j->reported = j->done;
    j->check = 0;
}

/* Names of the answer first, while its memory is still reserved for them. */
static int node_finish(sim_node *n, sim_job *j) {
    BASE_ASSERT(j->done == j->call.prompt->answer_tokens && j->reported == j->done);
    if (j->reserved) sim_cache_unreserve(n->cache, j->reserved);
    j->reserved = 0;
    int rc = node_keep_answer(n, j->call.prompt);
    node_release(n, j);
    n->port.reply(n->port.user, n->number, &j->call, SIM_FINISHED, j->done, j->done, 0);
    return rc;
}

/* ---- fetches ---- */

static void node_fail(sim_node *n, int rc) {
    if (rc) n->clock->failed = true;
}

/* What a job fetched has arrived: reserved memory becomes cached names that it holds. */
static void node_take(sim_node *n, sim_job *j) {
    const sim_prompt *p = j->call.prompt;
    BASE_ASSERT(j->reserved >= j->fetched && j->left > 0); /* the last token is always computed */
    for (int32_t i = 0; i < p->n_items; i++) {
        int32_t tokens = items_of(n, p)[i].n_tokens;
        if (j->names[i] != JOB_FETCHES) continue;
        sim_cache_unreserve(n->cache, tokens);
        j->reserved -= tokens;
        node_fail(n, node_keep(n, j, i));
        BASE_ASSERT(n->clock->failed || j->names[i] == JOB_HOLDS); /* its memory was reserved */
        if (!peer_of(n, j)) n->total.fetched_names++;
    }
    if (!peer_of(n, j)) n->total.fetched_tokens += j->fetched;
    j->fetching = false;
}

static sim_job *node_fetching(const sim_node *n, uint32_t request, uint64_t serial) {
    for (int32_t i = 0; i < n->n_running; i++) {
        sim_job *j = n->running[i];
        if (j->fetching && j->call.request == request && j->call.serial == serial) return j;
    }
    return NULL;
}

/* An event of a frozen node comes when it is not any more. */
static bool node_defers(sim_node *n, const sim_event *e) {
    if (!node_is_frozen(n)) return false;
    sim_event again = *e;
    again.at_us = n->frozen_until;
    sim_clock_add(n->clock, &again);
    return true;
}

static void node_fetched(void *owner, const sim_event *e) {
    sim_node *n = owner;
    if (e->serial != n->life) return;
    if (node_defers(n, e)) return;
    sim_job *j = node_fetching(n, e->request, e->check);
    if (!j) return; /* cancelled */
    node_take(n, j);
    node_step(n);
}

/* A transfer takes the link of its source after the transfers that began before: when it has arrived. */
static uint64_t node_transfer(sim_node *n, const sim_job *j) {
    uint64_t now_us = n->clock->now_us;
    if (j->call.prefill_node < 0) return sim_pool_transfer(n->o.pool, now_us, j->transfer_us);
    sim_node *peer = n->port.node_of(n->port.user, j->call.prefill_node);
    peer->link_until = BASE_MAX(peer->link_until, now_us) + (uint64_t)j->transfer_us;
    return peer->link_until + (uint64_t)n->o.fetch.rtt_us;
}

/* The fetch of a job that has its memory begins. */
static void node_fetch(sim_node *n, sim_job *j) {
    const sim_prompt *p = j->call.prompt;
    if (j->fetched == 0) return;
    for (int32_t i = p->n_items; n->o.pool && !peer_of(n, j) && i-- > 0;) /* as node_use */
        if (j->names[i] == JOB_FETCHES) sim_pool_fetched(n->o.pool, ids_of(n, p)[i]);
    j->fetching = true;
    sim_clock_add(n->clock, &(sim_event){
                                .at_us = node_transfer(n, j),
                                .fn = node_fetched,
                                .owner = n,
                                .request = j->call.request,
                                .serial = n->life,
                                .check = j->call.serial,
                            });
}

/* ---- steps ---- */

/* The end of a step, for one job. Whether the job is over. */
static bool node_advance(sim_node *n, sim_job *j) {
    BASE_ASSERT(j->take <= j->left && !(j->decodes && j->take > 0)); /* a prompt, or its answer */
    bool token = j->decodes, over = false;
    if (j->take > 0) {
        j->left -= j->take;
        j->estimate_us = tokens_us(n, j->left, j->slots_each);
        token = j->left == 0;
        if (token) node_fail(n, node_publish(n, j));
    }
    j->take = 0;
    j->decodes = false;
    if (!token) return false;
    if (j->call.for_node >= 0) {
        node_release(n, j);
        n->port.prefilled(n->port.user, n->number, &j->call);
        return true;
    }
    bool first = j->done == j->call.resumed;
    BASE_ASSERT(j->left == 0 && j->done < j->call.prompt->answer_tokens);
    j->check += sim_token(j->call.request, j->done++);
    n->total.answer_tokens++;
    n->port.sampled(n->port.user, n->number, j->call.request);
    over = j->done >= j->call.prompt->answer_tokens;
    if (first) node_report_tokens(n, j, SIM_BEGAN);
    else if (over || j->done - j->reported >= n->o.report_tokens) node_report_tokens(n, j, SIM_TOKENS);
    if (over) node_fail(n, node_finish(n, j));
    return over;
}

static void node_stepped(void *owner, const sim_event *e) {
    sim_node *n = owner;
    if (e->serial != n->life) return;
    if (node_defers(n, e)) return;
    BASE_ASSERT(n->stepping && n->journal); /* a node has one step at a time; death begins another life */
    n->stepping = false;
    int32_t kept = 0;
    for (int32_t i = 0; i < n->n_running; i++) {
        sim_job *j = n->running[i];
        if (node_advance(n, j)) job_free(j);
        else n->running[kept++] = j;
    }
    n->n_running = kept;
    node_flush(n);
    node_step(n);
}

/* Jobs that wait become running ones. */
static void node_fill(sim_node *n) {
    while (n->waiting && n->n_running < n->o.costs.max_running) {
        sim_job *j = n->waiting;
        double estimate_us = j->estimate_us;
        int32_t left = j->left;
        if (!node_admit(n, j)) {
            j->estimate_us = estimate_us;
            j->left = left;
            BASE_ASSERT(n->n_running > 0); /* what does not fit into an empty node was refused */
            return;
        }
        n->waiting = j->next;
        n->n_waiting--;
        n->waiting_us = n->n_waiting ? BASE_MAX(n->waiting_us - estimate_us, 0) : 0;
        n->waiting_tokens -= left;
        BASE_ASSERT((n->n_waiting == 0) == (n->waiting == NULL) && n->waiting_tokens >= 0);
        j->running = true;
        n->running[n->n_running++] = j;
        node_fetch(n, j);
    }
}

static void node_step(sim_node *n) {
    if (n->stepping || !n->journal) return;
    node_fill(n);
    node_flush(n);
    double rows = 0, row_slots = 0, read_us = 0;
    int32_t chunk = n->o.costs.chunk_tokens;
    for (int32_t i = 0; i < n->n_running; i++) {
        sim_job *j = n->running[i];
        j->decodes = j->left == 0;
        j->take = j->decodes || j->fetching ? 0 : BASE_MIN(j->left, chunk);
        chunk -= j->take;
        rows += j->decodes ? 1 : j->take;
        row_slots += j->decodes ? (double)j->call.prompt->prompt_tokens + j->done : j->take * j->slots_each;
        if (j->take > 0) read_us += j->read_us;
        if (j->take > 0) j->read_us = 0;
    }
    if (rows <= 0) return;
    BASE_ASSERT(chunk >= 0 && chunk <= n->o.costs.chunk_tokens);
    double us = cluster_cost_step(&n->o.costs, rows, row_slots, 0) + read_us;
    n->stepping = true;
    n->total.busy_us += us;
    sim_clock_add(
        n->clock,
        &(sim_event){.at_us = n->clock->now_us + (uint64_t)us + 1, .fn = node_stepped, .owner = n, .serial = n->life});
}

/* ---- requests ---- */

/* no_queues: everything at once. */
static void node_serve_at_once(sim_node *n, sim_job *j) {
    if (!node_admit(n, j)) n->port.broken(n->port.user, "no space for a request in an empty node");
    n->total.busy_us += j->estimate_us;
    n->backlog_until = BASE_MAX(n->backlog_until, n->clock->now_us) + (uint64_t)j->estimate_us;
    node_fetch(n, j);
    if (j->fetching) node_take(n, j);
    j->take = j->left;
    for (bool over = node_advance(n, j); !over; over = node_advance(n, j)) j->decodes = true;
    job_free(j);
    node_flush(n);
}

/* Looks a prompt up, and waits for its turn. */
static void node_enqueue(sim_node *n, sim_job *j) {
    BASE_ASSERT(j->left > 0 && j->reserved == 0); /* it holds nothing meanwhile */
    sim_job **at = &n->waiting;
    while (*at && (*at)->call.prompt->priority >= j->call.prompt->priority) at = &(*at)->next;
    j->next = *at;
    *at = j;
    n->n_waiting++;
    n->waiting_us += j->estimate_us;
    n->waiting_tokens += j->left;
}

void sim_node_prefilled(sim_node *n, uint32_t request, uint32_t serial) {
    sim_job **at = &n->away;
    while (*at && ((*at)->call.request != request || (*at)->call.serial != serial)) at = &(*at)->next;
    sim_job *j = *at;
    if (!j) return; /* cancelled */
    *at = j->next;
    node_look_up(n, j, false);
    node_enqueue(n, j);
    node_step(n);
}

void sim_node_arrive(sim_node *n, const sim_call *call) {
    BASE_ASSERT(n->journal != NULL);
    int64_t tokens = (int64_t)call->prompt->prompt_tokens + call->prompt->answer_tokens + 1;
    bool too_large = tokens > n->o.kv_tokens, busy = n->draining || n->n_waiting >= n->o.max_waiting;
    if ((too_large || busy) && call->for_node >= 0) {
        n->port.prefilled(n->port.user, n->number, call); /* its decode node computes it */
        return;
    }
    if (too_large || busy) {
        n->port.reply(n->port.user, n->number, call, too_large ? SIM_REFUSED : SIM_BUSY, 0, 0, 0);
        return;
    }
    if (call->resumed >= call->prompt->answer_tokens) { /* only its end was lost */
        n->port.reply(n->port.user, n->number, call, SIM_BEGAN, call->resumed, call->resumed, 0);
        n->port.reply(n->port.user, n->number, call, SIM_FINISHED, call->resumed, call->resumed, 0);
        return;
    }
    sim_job *j = base_calloc(1, sizeof(*j));
    uint8_t *names = base_calloc((size_t)call->prompt->n_items + 1, sizeof(*names));
    if (!j || !names) {
        base_free(j);
        base_free(names);
        n->clock->failed = true;
        return;
    }
    *j = (sim_job){.call = *call, .names = names, .done = call->resumed, .reported = call->resumed};
    if (call->prefill_node >= 0) {
        j->next = n->away;
        n->away = j;
        n->port.prefill(n->port.user, n->number, call);
        return;
    }
    node_look_up(n, j, false);
    if (n->o.no_queues) {
        node_serve_at_once(n, j);
        return;
    }
    node_enqueue(n, j);
    node_step(n);
}

void sim_node_cancel(sim_node *n, uint32_t request, uint32_t serial) {
    for (sim_job **at = &n->away; *at; at = &(*at)->next) {
        sim_job *j = *at;
        if (j->call.request != request || j->call.serial != serial) continue;
        *at = j->next; /* its prefill node's result is not used */
        job_free(j);
        return;
    }
    for (sim_job **at = &n->waiting; *at; at = &(*at)->next) {
        sim_job *j = *at;
        if (j->call.request != request || j->call.serial != serial) continue;
        *at = j->next;
        n->n_waiting--;
        n->waiting_us = n->n_waiting ? BASE_MAX(n->waiting_us - j->estimate_us, 0) : 0;
        n->waiting_tokens -= j->left;
        BASE_ASSERT((n->n_waiting == 0) == (n->waiting == NULL) && n->waiting_tokens >= 0);
        job_free(j);
        return;
    }
    for (int32_t i = 0; i < n->n_running; i++) {
        sim_job *j = n->running[i];
        if (j->call.request != request || j->call.serial != serial) continue;
        node_release(n, j);
        job_free(j);
        memmove(n->running + i, n->running + i + 1, (size_t)(n->n_running - i - 1) * sizeof(*n->running));
        n->n_running--;
        return;
    }
}

/* ---- life ---- */

int sim_node_start(sim_node *n, uint64_t epoch) {
    cluster_hello hello = {
        .epoch = epoch,
        .n_ctx = INT32_MAX,
        .max_sequences = n->o.costs.max_running,
        .max_queue = n->o.max_waiting,
        .kv_budget_bytes = (uint64_t)n->o.kv_tokens * n->o.costs.kv_bytes_per_token,
        .disk_budget_bytes = (uint64_t)n->o.disk_tokens * n->o.costs.kv_bytes_per_token,
    };
    BASE_ASSERT(!n->journal);
    memset(hello.identity, 'a', sizeof(hello.identity) - 1);
    snprintf(hello.node, sizeof(hello.node), "node-%d", (int)n->number);
    snprintf(hello.model, sizeof(hello.model), "simulated");
    snprintf(hello.kv_format, sizeof(hello.kv_format), "f16");
    snprintf(hello.weights, sizeof(hello.weights), "f16");
    int rc = cluster_journal_new(&n->journal, n->o.secret, &hello, NULL);
    if (rc) return rc;
    n->epoch = epoch;
    n->draining = false;
    n->n_changes = 0;
    sim_cache_report(n->cache); /* what is on disk */
    if (n->n_changes) cluster_journal_change(n->journal, n->changes, n->n_changes);
    n->n_changes = 0;
    return RP_OK;
}

void sim_node_kill(sim_node *n) {
    BASE_ASSERT(n->journal != NULL);
    sim_job *lists[] = {n->waiting, n->away};
    for (size_t i = 0; i < BASE_ARRAY_LEN(lists); i++)
        for (sim_job *j = lists[i], *next; j; j = next) {
            next = j->next;
            job_free(j);
        }
    for (int32_t i = 0; i < n->n_running; i++) {
        node_release(n, n->running[i]);
        job_free(n->running[i]);
    }
    /* Only running requests have memory, and hold names. */
    BASE_ASSERT(sim_cache_used(n->cache).held == 0 && sim_cache_used(n->cache).reserved_tokens == 0);
    n->waiting = n->away = NULL;
    n->n_running = n->n_waiting = 0;
    n->waiting_us = 0;
    n->waiting_tokens = 0;
    n->stepping = false;
    n->frozen_until = 0;
    n->life++;
    sim_cache_forget_ram(n->cache);
    n->n_changes = n->n_pooled = 0;
    cluster_journal_free(n->journal);
    n->journal = NULL;
}

void sim_node_free(sim_node *n) {
    if (!n) return;
    if (n->journal) sim_node_kill(n);
    sim_cache_free(n->cache);
    base_free(n->running);
    base_free(n->changes);
    base_free(n->pooled);
    base_free(n);
}

void sim_node_freeze(sim_node *n, uint64_t until_us) { n->frozen_until = until_us; }
void sim_node_drain(sim_node *n, bool drains) { n->draining = drains; }
bool sim_node_is_up(const sim_node *n) { return n->journal != NULL; }
uint64_t sim_node_frozen_until(const sim_node *n) { return node_is_frozen(n) ? n->frozen_until : 0; }
cluster_journal *sim_node_journal(sim_node *n) { return n->journal; }

void sim_node_report(sim_node *n) {
    cluster_load load = {.engine = n->o.costs, .draining = n->draining, .sent_us = n->clock->now_us};
    rp_engine_load *e = &load.engine;
    double drain = n->waiting_us, decode_slots = 0;
    e->struct_size = (uint32_t)sizeof(*e);
    e->running = n->n_running;
    e->waiting = n->n_waiting;
    e->queued_tokens = n->waiting_tokens;
    for (int32_t i = 0; i < n->n_running; i++) {
        const sim_job *j = n->running[i];
        e->decoding += j->left == 0;
        e->queued_tokens += j->left;
        if (j->left == 0) decode_slots += (double)j->call.prompt->prompt_tokens + j->done;
        else drain += j->estimate_us;
    }
    e->context_tokens = (int64_t)decode_slots;
    /* Each step that computes prompts has the rows of the answers, too. */
    double chunk = cluster_cost_chunk(e), steps = (double)e->queued_tokens / chunk;
    drain += steps * (cluster_cost_step(e, chunk + e->decoding, decode_slots, 0) - cluster_cost_step(e, chunk, 0, 0));
    if (n->o.no_queues) drain = n->backlog_until > n->clock->now_us ? (double)(n->backlog_until - n->clock->now_us) : 0;
    e->drain_us = (uint64_t)drain;
    sim_cache_use use = sim_cache_used(n->cache);
    e->free_bytes = (uint64_t)(n->o.kv_tokens - use.reserved_tokens) * e->kv_bytes_per_token;
    if (use.reserved_tokens + use.ram_tokens > n->o.kv_tokens || use.disk_tokens > BASE_MAX(n->o.disk_tokens, 0))
        n->port.broken(n->port.user, "a node exceeds its budget of RAM or disk");
    cluster_journal_set_load(n->journal, &load);
}

sim_node_totals sim_node_total(const sim_node *n) {
    sim_node_totals t = n->total;
    t.jobs = n->n_running + n->n_waiting;
    t.cache = sim_cache_used(n->cache);
    return t;
}
