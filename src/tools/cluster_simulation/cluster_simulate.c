/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_simulate.c: rp_cluster_simulate: options, the run, its results. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "tools/cluster_simulation/sim_chaos.h"

#define MOST_US \
    UINT64_C( \
        100000000000000) /* of virtual time: three years; without deadlines and nodes a request could wait for ever */
#define CHAOS_MOST_US UINT64_C(600000000)
#define MOST_DOCUMENT_TOKENS (1 << 28) /* of a prompt: positions are int32_t */

_Static_assert(CLUSTER_N_OUTCOMES <= RP_CLUSTER_OUTCOMES && CLUSTER_SERVED == RP_CLUSTER_SERVED,
               "reprise_cluster.h describes outcomes");

/* ---- options ---- */

static const rp_cluster_simulate_options defaults = {
    .seed = 1,
    .nodes = 8,
    .routers = 1,
    .policy = "cost",
    .admission = "off",
    .speculative_s = 2,
    .near_ties = 0.05,
    .latency_ms = 0.5,
    .kv_tokens = 3000000,
    .prefill_tokens_per_s = 14000,
    .attention_tokens = 8192,
    .decode_ms = 8,
    .disk_bytes_per_s = 3e9,
    .kv_bytes_per_token = 131072,
    .chunk_tokens = 512,
    .max_sequences = 64,
    .max_waiting = 4096,
    .speed = 1,
    .rate = 10,
    .requests = 0,
    .groups = 150,
    .prefix_tokens = 6000,
    .question_tokens = 1200,
    .documents = 64,
    .chosen = 4,
    .turns = 6,
    .think_s = 10,
    .block_tokens = 512,
    .pool_fetch_us = 10,
    .pool_rtt_us = 200,
    .pool_writes = RP_CLUSTER_POOL_ALWAYS,
};

void rp_cluster_simulate_options_init(rp_cluster_simulate_options *options, uint32_t struct_size) {
    base_sized_init(options, struct_size, &defaults, sizeof(defaults));
}

static int32_t number_of(const char *name, const char *(*names)(int32_t)) {
    for (int32_t i = 0; names(i); i++)
        if (name && strcmp(names(i), name) == 0) return i;
    return -1;
}

#define RANGE(field, low, high) \
    { #field, (double)o->field, low, high }

static int check_numbers(const rp_cluster_simulate_options *o, rp_error *err) {
    const struct {
        const char *name;
        double value, low, high;
    } ranges[] = {
        RANGE(nodes, 1, CLUSTER_MAX_NODES),
        RANGE(routers, 1, CLUSTER_MAX_READERS),
        RANGE(ttft_goal_ms, 0, 1e9),
        RANGE(itl_goal_ms, 0, 1e9),
        RANGE(speculative_s, 0, 1e6),
        RANGE(near_ties, 0, 1),
        RANGE(index_age_s, 0, 1e6),
        RANGE(latency_ms, 0.001, 1e4),
        RANGE(kv_tokens, 1, 1e12),
        RANGE(disk_tokens, 0, 1e12),
        RANGE(prefill_tokens_per_s, 1, 1e9),
        RANGE(attention_tokens, 1, 1e12),
        RANGE(decode_ms, 0.001, 1e6),
        RANGE(disk_bytes_per_s, 1, 1e15),
        RANGE(kv_bytes_per_token, 1, 1e9),
        RANGE(chunk_tokens, 1, 4096),
        RANGE(max_sequences, 1, 4096),
        RANGE(max_waiting, 1, 1 << 20),
        RANGE(workload, RP_CLUSTER_TRACE, RP_CLUSTER_CONVERSATIONS),
        RANGE(speed, 1e-6, 1e6),
        RANGE(rate, 1e-6, 1e6),
        RANGE(requests, 0, SIM_MAX_PROMPTS),
        RANGE(groups, 1, 1 << 24),
        RANGE(prefix_tokens, 0, 1 << 24),
        RANGE(question_tokens, 1, 1 << 24),
        RANGE(answer_tokens, 0, 1 << 24),
        RANGE(documents, 1, 1 << 20),
        RANGE(chosen, 1, o->documents),
        RANGE(turns, 1, 1 << 16),
        RANGE(think_s, 0, 1e6),
        RANGE(deadline_s, 0, 1e9),
        RANGE(block_tokens, 1, 1 << 20),
        RANGE(pool_tokens, -1, 1e12),
        RANGE(pool_fetch_us, 0.001, 1e6),
        RANGE(pool_rtt_us, 0, 1e9),
        RANGE(apart, RP_CLUSTER_TOGETHER, RP_CLUSTER_APART_BY_COST),
        RANGE(prefill_nodes, o->apart == RP_CLUSTER_APART, o->apart == RP_CLUSTER_APART ? o->nodes - 1 : 0),
        RANGE(pool_writes, RP_CLUSTER_POOL_SECOND_USE, RP_CLUSTER_POOL_ALWAYS),
        {"chosen * prefix_tokens", o->workload == RP_CLUSTER_RETRIEVAL ? (double)o->chosen * o->prefix_tokens : 0, 0,
         MOST_DOCUMENT_TOKENS},
    };
    for (size_t i = 0; i < BASE_ARRAY_LEN(ranges); i++)
        if (!(ranges[i].value >= ranges[i].low && ranges[i].value <= ranges[i].high)) /* NaN too */
            return base_fail(err, RP_ERR_INVALID, "%s is %g: give a number from %g to %g", ranges[i].name,
                             ranges[i].value, ranges[i].low, ranges[i].high);
    return RP_OK;
}

static int check_options(const rp_cluster_simulate_options *o, cluster_router_options *router, rp_error *err) {
    int32_t policy = number_of(o->policy, rp_cluster_policy_name),
            admission = number_of(o->admission, rp_cluster_admission_name);
    if (policy < 0) return base_fail(err, RP_ERR_INVALID, "unknown policy '%s'", o->policy ? o->policy : "");
    if (admission < 0)
        return base_fail(err, RP_ERR_INVALID, "unknown admission '%s'", o->admission ? o->admission : "");
    *router = cluster_router_defaults();
    router->policy = (cluster_policy)policy;
    router->admission = (cluster_admission)admission;
    router->ttft_goal_ms = o->ttft_goal_ms;
    router->itl_goal_ms = o->itl_goal_ms;
    router->near_ties = o->near_ties;
    router->speculative_us = (uint64_t)(o->speculative_s * 1e6);
    router->move = (cluster_fetch_cost){o->pool_rtt_us, o->pool_fetch_us / (double)o->kv_bytes_per_token};
    if (o->pool_tokens != 0) router->fetch = router->move;
    router->apart = (cluster_apart)o->apart;
    if (o->apart != RP_CLUSTER_TOGETHER && (o->no_queues || o->faults))
        return base_fail(err, RP_ERR_INVALID, "prefill and decode apart: not simulated without queues, or with faults");
    if (o->apart == RP_CLUSTER_APART_BY_COST && policy != CLUSTER_POLICY_COST && policy != CLUSTER_POLICY_PREFIX_COST)
        return base_fail(err, RP_ERR_INVALID, "policy '%s' does not compare costs: use cost, to choose by cost whether "
                                              "prefill and decode are apart",
                         o->policy);
    router->max_queue = o->faults ? router->max_queue : CLUSTER_MAX_REQUESTS;
    return check_numbers(o, err);
}

/* ---- results ---- */

static int compare_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static double percentile_ms(const uint64_t *sorted, size_t n, double p) {
    return n ? (double)sorted[(size_t)(p * (double)(n - 1) + 0.5)] / 1e3 : 0;
}

static int count_requests(const sim_cluster *s, rp_cluster_simulation *out, rp_error *err) {
    uint64_t *ttft = base_alloc((s->w.n + 1) * sizeof(*ttft)), first = UINT64_MAX, last = 0, sum = 0, total = 0;
    size_t n = 0;
    if (!ttft) return base_fail_memory(err, s->w.n * sizeof(*ttft), "the times of a simulation");
    for (size_t i = 0; i < s->w.n; i++) {
        const sim_request *q = &s->requests[i];
        if (!q->arrived) continue;
        out->requests++;
        first = BASE_MIN(first, q->arrived_us);
        last = BASE_MAX(last, q->ended_us);
        if (!q->lost) out->outcomes[q->outcome]++;
        if (q->lost || q->outcome != CLUSTER_SERVED) continue;
        ttft[n] = q->first_us - q->arrived_us;
        sum += ttft[n++];
        total += q->ended_us - q->arrived_us;
        double tokens = BASE_MAX(q->received - 1, 1), mean_ms = (double)(q->ended_us - q->first_us) / 1e3 / tokens;
        double ttft_ms = (double)(q->first_us - q->arrived_us) / 1e3;
        out->within_goals += (s->o->ttft_goal_ms <= 0 || ttft_ms <= s->o->ttft_goal_ms) &&
                             (s->o->itl_goal_ms <= 0 || mean_ms <= s->o->itl_goal_ms);
    }
    qsort(ttft, n, sizeof(*ttft), compare_u64);
    out->seconds = last > first ? (double)(last - first) / 1e6 : 0;
    out->ttft_mean_ms = n ? (double)sum / (double)n / 1e3 : 0;
    out->e2e_mean_ms = n ? (double)total / (double)n / 1e3 : 0;
    out->ttft_p50_ms = percentile_ms(ttft, n, 0.50);
    out->ttft_p90_ms = percentile_ms(ttft, n, 0.90);
    out->ttft_p99_ms = percentile_ms(ttft, n, 0.99);
    base_free(ttft);
    return RP_OK;
}

static double gap_percentile_ms(const sim_cluster *s, uint64_t n, double p) {
    uint64_t before = 0, rank = (uint64_t)(p * (double)n);
    for (int i = 0; i < SIM_GAP_BUCKETS; i++) {
        before += s->gaps[i];
        if (before > rank) return (double)sim_gap_of(i) / 1e3;
    }
    BASE_ASSERT(n == 0); /* else a bucket has the rank */
    return 0;
}

static void count_gaps(const sim_cluster *s, rp_cluster_simulation *out) {
    uint64_t n = 0;
    double sum = 0;
    for (int i = 0; i < SIM_GAP_BUCKETS; i++) {
        n += s->gaps[i];
        sum += (double)s->gaps[i] * (double)sim_gap_of(i);
    }
    out->itl_mean_ms = n ? sum / (double)n / 1e3 : 0;
    out->itl_p50_ms = gap_percentile_ms(s, n, 0.50);
    out->itl_p95_ms = gap_percentile_ms(s, n, 0.95);
    out->itl_p99_ms = gap_percentile_ms(s, n, 0.99);
}

static void count_cluster(const sim_cluster *s, rp_cluster_simulation *out) {
    double busiest = 0;
    for (int32_t i = 0; i < s->n_nodes; i++) {
        sim_node_totals t = sim_node_total(s->nodes[i]);
        busiest = BASE_MAX(busiest, t.busy_us);
        out->computed_s += t.busy_us / 1e6;
        out->prompt_tokens += t.prompt_tokens;
        out->hit_tokens += t.hit_tokens;
        out->answer_tokens += t.answer_tokens;
        out->fetched_names += (uint64_t)t.fetched_names;
        out->fetched_tokens += t.fetched_tokens;
    }
    out->busiest_work = out->computed_s > 0 ? busiest / 1e6 * s->n_nodes / out->computed_s : 0;
    out->pool_written_tokens = s->pool ? sim_pool_written_tokens(s->pool) : 0;
    out->retries = s->retries;
    out->continuations = s->continuations;
    for (int32_t i = 0; i < s->n_routers; i++) {
        if (!s->routers[i].t) continue;
        cluster_router_counts c = cluster_router_counted(s->routers[i].t);
        out->retries += c.retries;
        out->continuations += c.continuations;
        out->index_bytes += c.index_bytes;
        out->names += c.names;
        cluster_node_status status;
        for (int32_t k = 0; k < s->n_nodes && cluster_router_node(s->routers[i].t, k, &status); k++) {
            out->snapshots += status.counts->snapshots;
            out->stream_bytes += status.counts->bytes;
        }
    }
}

static int count_all(const sim_cluster *s, rp_cluster_simulation *out, rp_error *err) {
    out->nodes = s->n_nodes;
    out->routers = s->n_routers;
    out->router_lost = s->router_lost;
    out->apart = s->apart;
    out->dropped_turns = s->dropped_turns;
    out->hash = s->hash;
    out->restarts = s->faults.restarts;
    out->freezes = s->faults.freezes;
    out->lost = s->faults.lost;
    out->cut = s->faults.cuts;
    out->delayed = s->faults.delays;
    out->swallowed = s->faults.swallowed;
    out->router_restarts = s->faults.router_restarts;
    memcpy(out->broken, s->broken, sizeof(out->broken));
    count_gaps(s, out);
    count_cluster(s, out);
    return count_requests(s, out, err);
}

/* ---- the run ---- */

static int cluster_run(sim_cluster *s, rp_error *err) {
    uint64_t most = s->o->faults ? CHAOS_MOST_US : MOST_US;
    if (s->o->faults) sim_chaos_begin(s);
    while (s->n_open > 0 && sim_clock_step(&s->clock, most)) continue;
    if (s->o->faults) {
        sim_chaos_calm(s);
        sim_chaos_check(s);
    } else if (s->n_open > 0) sim_cluster_broken(s, "%zu requests never ended", s->n_open);
    return s->clock.failed
               ? base_fail(err, RP_ERR_MEMORY, "simulation: out of memory, or more than %zu events", SIM_MAX_EVENTS)
               : RP_OK;
}

int rp_cluster_simulate(const rp_cluster_simulate_options *options, const rp_cluster_trace_request *trace, size_t n,
                        rp_cluster_simulation *out, rp_error *err) {
    rp_cluster_simulate_options o = defaults;
    rp_cluster_simulation own = {.struct_size = (uint32_t)sizeof(own)};
    cluster_router_options router;
    sim_cluster *s = NULL;
    int rc = base_sized_check(out, "rp_cluster_simulation", err);
    if (!rc) rc = base_sized_read(&o, sizeof(o), options, "rp_cluster_simulate_options", err);
    if (!rc && o.faults) sim_chaos_draw(&o);
    if (!rc && o.workload != RP_CLUSTER_TRACE && o.requests == 0) o.requests = 1000;
    if (!rc && o.workload != RP_CLUSTER_TRACE && o.answer_tokens == 0) o.answer_tokens = 1000;
    if (!rc) rc = check_options(&o, &router, err);
    if (!rc && (o.workload == RP_CLUSTER_TRACE) != (trace != NULL))
        rc = base_fail(err, RP_ERR_INVALID, "a trace is given, or a workload, not both");
    if (rc) return rc;
    rc = sim_cluster_new(&s, &o, &router, trace, n, err);
    if (!rc) rc = cluster_run(s, err);
    if (!rc) rc = count_all(s, &own, err);
    sim_cluster_free(s);
    if (!rc) base_sized_write(out, &own, sizeof(own));
    return rc;
}
