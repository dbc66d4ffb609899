/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_simulation.c: `reprise cluster simulate`: options, runs, faults. cluster_table.c and cluster_plot.c show the
 * results; bench_requests.h reads traces. One thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_requests.h"
#include "cluster/cluster_runs.h"
#include "common/command.h"
#include "common/console.h"

typedef struct simulation_options {
    const char *trace, *policies, *admissions, *kv_tokens, *disk_tokens, *pool, *rates, *speeds, *index_ages, *svg;
    float ttft_goal, itl_goal, speculative, near_ties, weight, latency, prefill_speed, decode_ms, think, deadline,
        disk_speed, pool_fetch, pool_rtt;
    int32_t workload, nodes, routers, attention, chunk, sequences, waiting, count, groups, prefix, question, answer,
        documents, chosen, turns, seeds, block, pool_writes, prefill_nodes;
    uint64_t seed;
    bool faults, no_queues, apart_by_cost, json;
} simulation_options;

static const char *const pool_writes[] = {"second-use", "evicted", "always", NULL};
static const char *const workloads[] = {"trace", "shared-prefix", "retrieval", "conversations", NULL};

#define AT(field) offsetof(simulation_options, field)
#define INT(n, v, f, lo, hi, h) \
    { .name = n, .kind = CLI_INT, .value = v, .offset = AT(f), .min = lo, .max = hi, .help = h }
#define REAL(n, v, f, lo, hi, h) \
    { .name = n, .kind = CLI_REAL, .value = v, .offset = AT(f), .min = lo, .max = hi, .help = h }
#define TEXT(n, v, f, h) \
    { .name = n, .kind = CLI_TEXT, .value = v, .offset = AT(f), .help = h }
static const cli_option options[] = {
    {
        .name = "trace",
        .kind = CLI_TEXT,
        .value = "TRACE",
        .offset = AT(trace),
        .positional = true,
        .help = "trace: JSON lines with timestamp, input_length, output_length, hash_ids, as in the Mooncake traces; "
                "-: standard input",
    },
    {
        .name = "workload",
        .kind = CLI_CHOICE,
        .value = "NAME",
        .offset = AT(workload),
        .choices = workloads,
        .help = "requests: trace, shared-prefix, retrieval, conversations (trace)",
    },
    INT("block", "TOKENS", block, 1, 1 << 20, "tokens per id of the trace (512)"),
    INT("nodes", "N", nodes, 1, 1024, "number of nodes (8)"),
    INT("routers", "N", routers, 1, 64, "number of routers (1)"),
    TEXT("policy", "LIST", policies,
         "policies, separated by commas, or all: random, round-robin, least-loaded, longest-match, session, "
         "prefix-cost, cost (cost)"),
    TEXT("admission", "LIST", admissions,
         "rules of early rejection, or all: off, after-prefill, at-arrival, predicted (off; of 'reprise route': "
         "predicted)"),
    REAL("ttft-goal", "MS", ttft_goal, 0, 1e9,
         "time to first token above which a request is refused by --admission; 0: none (0)"),
    REAL("itl-goal", "MS", itl_goal, 0, 1e9,
         "inter-token latency above which a request is refused by --admission; 0: none (0)"),
    TEXT("kv-tokens", "LIST", kv_tokens, "KV capacity of a node in RAM, in tokens, as 3M or 500k (3M)"),
    TEXT("disk-tokens", "TOKENS", disk_tokens, "KV capacity of a node on disk; 0: none (0)"),
    REAL("disk-speed", "GB/S", disk_speed, 0.001, 1e6, "speed of a node's disk, gigabytes a second (3)"),
    TEXT("pool", "TOKENS", pool,
         "KV capacity of a pool that the nodes share, in tokens; auto: that of the nodes in RAM; 0: none (0)"),
    REAL("pool-fetch-us", "US", pool_fetch, 0.001, 1e6,
         "time to fetch a token's KV from the pool, microseconds (10)"),
    REAL("pool-rtt-us", "US", pool_rtt, 0, 1e9, "time of a fetch besides its tokens, microseconds (200)"),
    {
        .name = "pool-writes",
        .kind = CLI_CHOICE,
        .value = "WHEN",
        .offset = AT(pool_writes),
        .choices = pool_writes,
        .help = "KV is written to the pool at its second use on any node (second-use), also when a node evicts it "
                "(evicted), or when it is computed (always) (always)",
    },
    INT("prefill-nodes", "N", prefill_nodes, 0, 1023,
        "prefill and decode apart: nodes that compute prompts for the others, which fetch their KV as from a pool; 0: "
        "each node does both (0)"),
    {
        .name = "apart-by-cost",
        .kind = CLI_FLAG,
        .offset = AT(apart_by_cost),
        .help = "prefill and decode of a request on any two nodes, if that is predicted to cost less than any one node",
    },
    REAL("prefill-speed", "TOKENS/S", prefill_speed, 1, 1e9,
         "tokens a second that a node computes at the beginning of a prompt (14000)"),
    INT("attention", "TOKENS", attention, 1, 1 << 30,
        "context length at which attention costs as much as the rest of a token's computation (8192)"),
    REAL("decode", "MS", decode_ms, 0.001, 1e6, "time of a step with few rows (8)"),
    INT("chunk", "TOKENS", chunk, 1, 4096, "prompt tokens computed in a step (512)"),
    INT("max-sequences", "N", sequences, 1, 4096, "requests that a node runs at a time (64)"),
    INT("max-waiting", "N", waiting, 1, 1 << 20, "requests that wait in a node; it refuses more (4096)"),
    {
        .name = "no-queues",
        .kind = CLI_FLAG,
        .offset = AT(no_queues),
        .help = "nodes serve at once and report the load that they would have: for hit rates alone",
    },
    TEXT("index-age", "LIST", index_ages, "seconds until routers learn of a changed name (0)"),
    REAL("speculative", "SECONDS", speculative, 0, 1e6,
         "life of entries for requests that were just sent; 0: none (2)"),
    REAL("near-ties", "SHARE", near_ties, 0, 1, "nodes whose cost is so near to the least are drawn from (0.05)"),
    REAL("latency", "MS", latency, 0.001, 1e4, "latency of a message (0.5)"),
    TEXT("speed", "LIST", speeds, "factor by which arrivals are faster (1)"),
    TEXT("rate", "LIST", rates, "generated workloads: arrivals a second, Poisson (10)"),
    INT("count", "N", count, 0, 1 << 22, "requests; 0: all of the trace, 1000 of a generated workload (0)"),
    INT("groups", "N", groups, 1, 1 << 24, "shared-prefix, conversations: number of different beginnings (150)"),
    INT("prefix", "TOKENS", prefix, 0, 1 << 24, "system prompt, or a document of retrieval (6000)"),
    INT("question", "TOKENS", question, 1, 1 << 24, "tokens after it; of conversations: of a turn, on average (1200)"),
    INT("answer", "TOKENS", answer, 0, 1 << 24,
        "answer tokens; 0: those of the trace, 1000 of a generated workload (0)"),
    INT("documents", "N", documents, 1, 1 << 20, "retrieval: documents (64)"),
    INT("chosen", "N", chosen, 1, 1 << 20, "retrieval: of them in a prompt, in random order (4)"),
    INT("turns", "N", turns, 1, 1 << 16, "conversations: turns (6)"),
    REAL("think", "SECONDS", think, 0, 1e6, "conversations: mean time from an answer to the next turn (10)"),
    REAL("deadline", "SECONDS", deadline, 0, 1e9, "latest time of the first byte; 0: none (0)"),
    {.name = "seed", .kind = CLI_U64, .value = "N", .offset = AT(seed), .help = "random seed (1)"},
    {
        .name = "faults",
        .kind = CLI_FLAG,
        .offset = AT(faults),
        .help = "simulate random small clusters with lost, cut, delayed and swallowed messages, killed and frozen "
                "nodes, restarted routers; "
                "check invariants",
    },
    INT("seeds", "N", seeds, 1, INT32_MAX, "faults: number of seeds, from --seed on (1)"),
    TEXT("svg", "FILE", svg, "draw hit rate and TTFT into this SVG file"),
    {.name = "json", .kind = CLI_FLAG, .offset = AT(json), .help = "print JSON"},
    {.name = NULL},
};
#undef AT

static int simulation_main(int argc, char **argv);

const cli_command cli_cluster_simulate = {
    .name = "cluster simulate",
    .summary = "simulate routers and nodes under a virtual clock",
    .synopsis = "[TRACE] [--nodes N] [--policy LIST] [--svg FILE] [--json]",
    .notes = "Routers are those of 'reprise route'; nodes keep KV under the store's eviction policy and compute only "
             "times.\n"
             "One of --kv-tokens, --rate, --speed and --index-age may have several values, separated by commas.\n"
             "The same options give the same result on every machine.\n",
    .options = options,
    .main = simulation_main,
};

/* ---- lists ---- */

/* The next entry of a list; its length in *n. NULL: none is left. */
static const char *list_next(const char **at, size_t *n) {
    const char *entry = *at;
    if (entry == NULL) return NULL;
    *n = strcspn(entry, ",");
    *at = entry[*n] == ',' ? entry + *n + 1 : NULL;
    return entry;
}

/* Numbers with k, M or G: thousands, as token counts are given. */
static int read_numbers(const char *option, const char *list, double *out, size_t *n_out) {
    size_t n;
    *n_out = 0;
    for (const char *at = list, *entry; (entry = list_next(&at, &n)) != NULL;) {
        char *end;
        double v = strtod(entry, &end), factor = *end == 'k' ? 1e3 : *end == 'M' ? 1e6
                                                                 : *end == 'G'   ? 1e9
                                                                                 : 1;
        end += factor > 1;
        if (end != entry + n || n == 0 || !(v >= 0 && v <= 1e15) || *n_out == CLUSTER_MAX_VALUES)
            return cli_fail(CLI_WRONG_USE, "--%s '%s': give up to %d numbers, as 500k or 3M, separated by commas",
                            option, list, CLUSTER_MAX_VALUES);
        out[(*n_out)++] = v * factor;
    }
    return CLI_OK;
}

#define MAX_NAMES 16

static int fail_names(const char *option, const char *(*names)(int32_t), size_t n, const char *entry) {
    char all[256] = "";
    for (int32_t i = 0; names(i) != NULL; i++) {
        const size_t used = strlen(all);
        snprintf(all + used, sizeof(all) - used, "%s%s", i > 0 ? ", " : "", names(i));
    }
    return cli_fail(CLI_WRONG_USE, "--%s '%.*s': give all, or some of %s", option, (int)n, entry, all);
}

static int read_names(const char *option, const char *list, const char *(*names)(int32_t), const char **out,
                      size_t *n_out) {
    size_t n;
    bool all = strcmp(list, "all") == 0;
    *n_out = 0;
    for (int32_t i = 0; all && names(i) != NULL; i++) out[(*n_out)++] = names(i);
    for (const char *at = all ? NULL : list, *entry; (entry = list_next(&at, &n)) != NULL;) {
        int32_t i = 0;
        while (names(i) != NULL && (strlen(names(i)) != n || memcmp(names(i), entry, n) != 0)) i++;
        if (names(i) == NULL || *n_out == MAX_NAMES) return fail_names(option, names, n, entry);
        out[(*n_out)++] = names(i);
    }
    return CLI_OK;
}

/* ---- runs ---- */

/* The quantities that may have several values. */
typedef struct axes {
    double kv_tokens[CLUSTER_MAX_VALUES], rates[CLUSTER_MAX_VALUES], speeds[CLUSTER_MAX_VALUES],
        ages[CLUSTER_MAX_VALUES];
    size_t n_kv_tokens, n_rates, n_speeds, n_ages;
} axes;

static int read_axes(const simulation_options *o, axes *a, cluster_runs *c) {
    int status = read_numbers("kv-tokens", o->kv_tokens, a->kv_tokens, &a->n_kv_tokens);
    if (status == CLI_OK) status = read_numbers("rate", o->rates, a->rates, &a->n_rates);
    if (status == CLI_OK) status = read_numbers("speed", o->speeds, a->speeds, &a->n_speeds);
    if (status == CLI_OK) status = read_numbers("index-age", o->index_ages, a->ages, &a->n_ages);
    if (status != CLI_OK) return status;
    c->n_values = a->n_kv_tokens * a->n_rates * a->n_speeds * a->n_ages;
    size_t n_axes = (a->n_kv_tokens > 1) + (a->n_rates > 1) + (a->n_speeds > 1) + (a->n_ages > 1);
    if (n_axes > 1)
        return cli_fail(CLI_WRONG_USE,
                        "only one of --kv-tokens, --rate, --speed and --index-age may have several values");
    c->axis = a->n_kv_tokens > 1 ? "kv-tokens" : a->n_rates > 1 ? "rate"
                                             : a->n_speeds > 1  ? "speed"
                                             : a->n_ages > 1    ? "index-age"
                                                                : NULL;
    return CLI_OK;
}

static double axis_set(const axes *a, size_t i, rp_cluster_simulate_options *o) {
    double kv = a->kv_tokens[a->n_kv_tokens > 1 ? i : 0];
    o->kv_tokens = (int64_t)kv;
    o->rate = a->rates[a->n_rates > 1 ? i : 0];
    o->speed = a->speeds[a->n_speeds > 1 ? i : 0];
    o->index_age_s = a->ages[a->n_ages > 1 ? i : 0];
    return a->n_rates > 1 ? o->rate : a->n_speeds > 1 ? o->speed
                                  : a->n_ages > 1     ? o->index_age_s
                                                      : kv;
}

static int fill_options(const simulation_options *o, rp_cluster_simulate_options *out) {
    double disk[CLUSTER_MAX_VALUES], pool[CLUSTER_MAX_VALUES];
    size_t n_disk, n_pool;
    const bool pool_auto = strcmp(o->pool, "auto") == 0;
    int status = read_numbers("disk-tokens", o->disk_tokens, disk, &n_disk);
    if (status == CLI_OK) status = read_numbers("pool", pool_auto ? "0" : o->pool, pool, &n_pool);
    if (status != CLI_OK) return status;
    *out = rp_cluster_simulate_options_defaults();
    out->seed = o->seed;
    out->nodes = o->nodes;
    out->routers = o->routers;
    out->ttft_goal_ms = (double)o->ttft_goal;
    out->itl_goal_ms = (double)o->itl_goal;
    out->speculative_s = (double)o->speculative;
    out->near_ties = (double)o->near_ties;
    out->latency_ms = (double)o->latency;
    out->disk_tokens = (int64_t)disk[0];
    out->apart = o->prefill_nodes > 0 ? RP_CLUSTER_APART
                 : o->apart_by_cost   ? RP_CLUSTER_APART_BY_COST
                                      : RP_CLUSTER_TOGETHER;
    out->prefill_nodes = o->prefill_nodes;
    out->block_tokens = o->block;
    out->pool_tokens = pool_auto ? -1 : (int64_t)pool[0];
    out->pool_fetch_us = (double)o->pool_fetch;
    out->pool_rtt_us = (double)o->pool_rtt;
    out->pool_writes = o->pool_writes;
    out->disk_bytes_per_s = (double)o->disk_speed * 1e9;
    out->prefill_tokens_per_s = (double)o->prefill_speed;
    out->attention_tokens = o->attention;
    out->decode_ms = (double)o->decode_ms;
    out->chunk_tokens = o->chunk;
    out->max_sequences = o->sequences;
    out->max_waiting = o->waiting;
    out->no_queues = o->no_queues;
    out->workload = o->workload;
    out->requests = o->count;
    out->groups = o->groups;
    out->prefix_tokens = o->prefix;
    out->question_tokens = o->question;
    out->answer_tokens = o->answer;
    out->documents = o->documents;
    out->chosen = o->chosen;
    out->turns = o->turns;
    out->think_s = (double)o->think;
    out->deadline_s = (double)o->deadline;
    return CLI_OK;
}

static int run_one(const rp_cluster_simulate_options *base, const axes *a, size_t value,
                   const rp_cluster_trace_request *trace, size_t n, cluster_run *run) {
    rp_cluster_simulate_options o = *base;
    rp_error err;
    run->value = axis_set(a, value, &o);
    o.policy = run->policy;
    o.admission = run->admission;
    run->result.struct_size = sizeof(run->result);
    if (rp_cluster_simulate(&o, trace, n, &run->result, &err) != RP_OK) return cli_fail_library(&err);
    if (run->result.broken[0] != '\0')
        return cli_fail(CLI_FAILED, "an invariant does not hold: %s", run->result.broken);
    return cli_interrupted() ? CLI_INTERRUPTED : CLI_OK;
}

static int run_all(const simulation_options *o, const axes *a, const rp_cluster_trace_request *trace, size_t n,
                   cluster_runs *c) {
    const char *policies[MAX_NAMES], *admissions[MAX_NAMES];
    size_t n_policies, n_admissions;
    cli_progress progress = {0};
    int status = read_names("policy", o->policies, rp_cluster_policy_name, policies, &n_policies);
    if (status == CLI_OK)
        status = read_names("admission", o->admissions, rp_cluster_admission_name, admissions, &n_admissions);
    if (status != CLI_OK) return status;
    size_t all = n_policies * n_admissions * c->n_values;
    c->several_admissions = n_admissions > 1;
    if (all > CLUSTER_MAX_RUNS) return cli_fail(CLI_WRONG_USE, "%zu runs: give at most %d", all, CLUSTER_MAX_RUNS);
    for (size_t i = 0; i < all && status == CLI_OK; i++) {
        size_t value = i % c->n_values, series = i / c->n_values;
        c->runs[i].policy = policies[series / n_admissions];
        c->runs[i].admission = admissions[series % n_admissions];
        cli_progress_draw(&progress, "simulating", NULL, i, all);
        status = run_one(&c->base, a, value, trace, n, &c->runs[i]);
        cli_progress_clear(&progress);
        c->n = i + 1;
    }
    return status;
}

/* ---- faults ---- */

static int run_faults(const simulation_options *o) {
    const char *policy = strcmp(o->policies, "all") == 0 ? "cost" : o->policies;
    cli_progress progress = {0};
    uint64_t requests = 0, served = 0, faults = 0;
    for (int32_t i = 0; i < o->seeds; i++) {
        rp_cluster_simulate_options s = rp_cluster_simulate_options_defaults();
        rp_cluster_simulation r = {.struct_size = sizeof r};
        rp_error err;
        s.seed = o->seed + (uint64_t)i;
        s.policy = policy;
        s.faults = true;
        if (i % 64 == 0) cli_progress_draw(&progress, "simulating", NULL, (size_t)i, (size_t)o->seeds);
        int rc = rp_cluster_simulate(&s, NULL, 0, &r, &err);
        if (rc != RP_OK || r.broken[0] != '\0' || cli_interrupted()) cli_progress_clear(&progress);
        if (rc != RP_OK) return cli_fail_library(&err);
        if (r.broken[0] != '\0')
            return cli_fail(CLI_FAILED, "%s (again: reprise cluster simulate --faults --policy %s --seed %llu)",
                            r.broken, policy, (unsigned long long)s.seed);
        if (cli_interrupted()) return CLI_INTERRUPTED;
        requests += r.requests;
        served += r.outcomes[RP_CLUSTER_SERVED];
        faults += r.lost + r.cut + r.delayed + r.swallowed + r.restarts + r.freezes + r.router_restarts;
    }
    cli_progress_clear(&progress);
    printf("%d seeds, %llu requests, %llu of them served, %llu faults: all invariants hold\n", (int)o->seeds,
           (unsigned long long)requests, (unsigned long long)served, (unsigned long long)faults);
    return cli_finish_output();
}

/* ---- the command ---- */

static rp_cluster_trace_request *trace_of(const bench_requests *r) {
    rp_cluster_trace_request *trace = cli_alloc((r->n + 1) * sizeof *trace);
    for (size_t i = 0; i < r->n; i++) {
        const bench_request *q = &r->items[i];
        size_t blocks = ((size_t)q->input_tokens + (size_t)r->block - 1) / (size_t)r->block;
        trace[i] = (rp_cluster_trace_request){q->timestamp_ms, r->ids + q->first_id, blocks, q->input_tokens,
                                              q->output_tokens};
    }
    return trace;
}

static uint64_t *sessions_of(const bench_requests *r) {
    uint64_t *sessions = cli_alloc((r->n + 1) * sizeof *sessions);
    for (size_t i = 0; i < r->n; i++) sessions[i] = r->items[i].session;
    return sessions;
}

static int show(const simulation_options *o, const cluster_runs *c) {
    if (o->svg != NULL) {
        FILE *to = fopen(o->svg, "wb");
        if (to == NULL) return cli_fail(CLI_FAILED, "cannot write '%s': %s", o->svg, strerror(errno));
        cluster_runs_draw(to, c);
        int status = cli_close_output(to, o->svg);
        if (status != CLI_OK) return status;
    }
    if (o->json) return cluster_runs_print_json(c);
    cluster_runs_print(c);
    return cli_finish_output();
}

static int simulate(const simulation_options *o, cluster_runs *c, axes *a) {
    bench_requests requests = {0};
    rp_cluster_trace_request *trace = NULL;
    uint64_t *sessions = NULL;
    if (o->workload == RP_CLUSTER_TRACE && !o->trace)
        return cli_fail(CLI_WRONG_USE, "give a TRACE, or --workload shared-prefix, retrieval or conversations");
    if (o->workload != RP_CLUSTER_TRACE && o->trace)
        return cli_fail(CLI_WRONG_USE, "--workload %s makes its own requests: leave out '%.80s'",
                        workloads[o->workload], o->trace);
    if (o->ttft_goal > 0 && strcmp(o->admissions, "off") == 0)
        return cli_fail(CLI_WRONG_USE,
                        "--ttft-goal has no effect without a rule of early rejection: add --admission predicted");
    if (o->prefill_nodes > 0 && o->apart_by_cost)
        return cli_fail(CLI_WRONG_USE, "--apart-by-cost uses any node for both: leave out --prefill-nodes");
    c->source = o->trace != NULL ? o->trace : workloads[o->workload];
    int status = read_axes(o, a, c);
    if (status == CLI_OK) status = fill_options(o, &c->base);
    if (status == CLI_OK && o->trace != NULL)
        status = bench_requests_read(&requests, o->trace, o->block, (size_t)o->count);
    if (status == CLI_OK && o->trace != NULL) {
        trace = trace_of(&requests);
        c->base.trace_sessions = sessions = sessions_of(&requests);
    }
    if (status == CLI_OK) status = run_all(o, a, trace, requests.n, c);
    if (status == CLI_OK) c->base.kv_tokens = (int64_t)a->kv_tokens[0];
    free(trace);
    free(sessions);
    c->base.trace_sessions = NULL;
    bench_requests_free(&requests);
    return status == CLI_OK ? show(o, c) : status;
}

static int simulation_main(int argc, char **argv) {
    simulation_options o = {
        .policies = "cost",
        .admissions = "off",
        .kv_tokens = "3M",
        .disk_tokens = "0",
        .pool = "0",
        .rates = "10",
        .speeds = "1",
        .index_ages = "0",
        .speculative = 2,
        .near_ties = 0.05F,
        .latency = 0.5F,
        .prefill_speed = 14000,
        .decode_ms = 8,
        .think = 10,
        .disk_speed = 3,
        .pool_fetch = 10,
        .pool_rtt = 200,
        .pool_writes = RP_CLUSTER_POOL_ALWAYS,
        .block = 512,
        .nodes = 8,
        .routers = 1,
        .attention = 8192,
        .chunk = 512,
        .sequences = 64,
        .waiting = 4096,
        .groups = 150,
        .prefix = 6000,
        .question = 1200,
        .documents = 64,
        .chosen = 4,
        .turns = 6,
        .seeds = 1,
        .seed = 1,
    };
    cli_parsed parsed = cli_options_parse(&cli_cluster_simulate, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    cli_interrupt_catch();
    if (o.faults && o.trace)
        return cli_fail(CLI_WRONG_USE, "--faults draws its own requests: leave out '%.80s'", o.trace);
    if (!o.faults && o.seeds > 1) return cli_fail(CLI_WRONG_USE, "--seeds needs --faults");
    if (o.faults) return run_faults(&o);
    cluster_runs *c = cli_alloc(sizeof *c);
    axes *a = cli_alloc(sizeof *a);
    int status = simulate(&o, c, a);
    free(c);
    free(a);
    return status;
}
