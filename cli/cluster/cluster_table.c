/* SPDX-License-Identifier: Apache-2.0 */
/* cluster_table.c: results of `reprise cluster simulate` as a table and as JSON. Served, refused and late requests are
 * always printed together: refusals improve every other figure. */
#include <string.h>

#include "cluster/cluster_runs.h"
#include "common/json_out.h"

const char *cluster_run_name(const cluster_runs *c, const cluster_run *r, char *out, size_t n) {
    if (!c->several_admissions) return r->policy;
    snprintf(out, n, "%s, %s", r->policy, r->admission);
    return out;
}

/* Outcomes of the table, in its order; others are their sum. */
static const char *const shown[] = {"served", "refused-ttft", "refused-itl", "refused-queue", "refused-busy", "late"};
#define N_SHOWN (sizeof shown / sizeof *shown)

static uint64_t outcome_of(const rp_cluster_simulation *r, const char *name) {
    for (int32_t i = 0; rp_cluster_outcome_name(i) != NULL; i++)
        if (strcmp(rp_cluster_outcome_name(i), name) == 0) return r->outcomes[i];
    return 0;
}

static void print_run(const cluster_runs *c, const cluster_run *run) {
    const rp_cluster_simulation *r = &run->result;
    char name[64];
    uint64_t others = r->requests;
    printf("%-28s ", cluster_run_name(c, run, name, sizeof name));
    if (c->axis != NULL) printf("%10g ", run->value);
    printf("%6.3f %7.3f %9.2f %9.2f %9.2f %9.2f %8.1f %9.0f", cluster_hit_rate(r), r->busiest_work,
           r->ttft_mean_ms / 1e3, r->ttft_p50_ms / 1e3, r->ttft_p90_ms / 1e3, r->ttft_p99_ms / 1e3, r->itl_p95_ms,
           cluster_token_rate(r));
    for (size_t i = 0; i < N_SHOWN; i++) {
        uint64_t n = outcome_of(r, shown[i]);
        printf(" %*llu", i == 0 ? 8 : 7, (unsigned long long)n);
        others -= n;
    }
    printf(" %7llu", (unsigned long long)others);
    if (c->base.pool_tokens != 0) printf(" %8llu", (unsigned long long)r->fetched_names);
    if (c->base.apart != RP_CLUSTER_TOGETHER)
        printf(" %8.2f %7llu", r->e2e_mean_ms / 1e3, (unsigned long long)r->apart);
    printf("\n");
}

void cluster_runs_print(const cluster_runs *c) {
    printf("%s: %d nodes of %lld tokens, %d router%s\n\n", c->source, (int)c->base.nodes, (long long)c->base.kv_tokens,
           (int)c->base.routers, c->base.routers == 1 ? "" : "s");
    printf("%-28s ", "policy");
    if (c->axis != NULL) printf("%10s ", c->axis);
    printf("%6s %7s %9s %9s %9s %9s %8s %9s %8s %7s %7s %7s %7s %7s %7s", "hits", "busiest", "TTFT mean", "p50", "p90",
           "p99 s", "ITL p95", "tokens/s", "served", "no-ttft", "no-itl", "no-room", "busy", "late", "others");
    if (c->base.pool_tokens != 0) printf(" %8s", "fetched");
    if (c->base.apart != RP_CLUSTER_TOGETHER) printf(" %8s %7s", "E2E mean", "apart");
    printf("\n");
    for (size_t i = 0; i < c->n; i++) print_run(c, &c->runs[i]);
    printf("\nhits: share of prompt tokens that were cached. busiest: its computing time, by the mean. ITL in ms. "
           "no-ttft, no-itl, no-room (of the\n"
           "queue), busy: refused. late: deadline before the first byte.%s%s\n",
           c->base.pool_tokens != 0 ? " fetched: names, from the pool." : "",
           c->base.apart != RP_CLUSTER_TOGETHER ? " E2E: end-to-end latency, s." : "");
}

static json_t *run_object(const cluster_runs *c, const cluster_run *run) {
    const rp_cluster_simulation *r = &run->result;
    json_t *object = json_object(), *outcomes = json_object();
    const struct {
        const char *name;
        double value;
    } reals[] = {
        {"hit_rate", cluster_hit_rate(r)},
        {"busiest_work", r->busiest_work},
        {"computed_s", r->computed_s},
        {"seconds", r->seconds},
        {"ttft_mean_ms", r->ttft_mean_ms},
        {"ttft_p50_ms", r->ttft_p50_ms},
        {"ttft_p90_ms", r->ttft_p90_ms},
        {"ttft_p99_ms", r->ttft_p99_ms},
        {"e2e_mean_ms", r->e2e_mean_ms},
        {"itl_mean_ms", r->itl_mean_ms},
        {"itl_p50_ms", r->itl_p50_ms},
        {"itl_p95_ms", r->itl_p95_ms},
        {"itl_p99_ms", r->itl_p99_ms},
        {"answer_tokens_per_s", cluster_token_rate(r)},
    };
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {
        {"requests", r->requests},
        {"within_goals", r->within_goals},
        {"prompt_tokens", (uint64_t)r->prompt_tokens},
        {"hit_tokens", (uint64_t)r->hit_tokens},
        {"answer_tokens", (uint64_t)r->answer_tokens},
        {"fetched_names", r->fetched_names},
        {"fetched_tokens", (uint64_t)r->fetched_tokens},
        {"apart", r->apart},
        {"pool_written_tokens", (uint64_t)r->pool_written_tokens},
        {"retries", r->retries},
        {"continuations", r->continuations},
        {"snapshots", r->snapshots},
        {"stream_bytes", r->stream_bytes},
        {"index_names", r->names},
        {"index_bytes", r->index_bytes},
    };
    char hash[17];
    cli_json_set(object, "policy", cli_json_text(run->policy));
    cli_json_set(object, "admission", cli_json_text(run->admission));
    if (c->axis != NULL) cli_json_set(object, c->axis, cli_json_real(run->value));
    for (int32_t i = 0; rp_cluster_outcome_name(i) != NULL; i++)
        cli_json_set(outcomes, rp_cluster_outcome_name(i), json_integer((json_int_t)r->outcomes[i]));
    cli_json_set(object, "outcomes", outcomes);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        cli_json_set(object, counts[i].name, json_integer((json_int_t)counts[i].value));
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        cli_json_set(object, reals[i].name, cli_json_real(reals[i].value));
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)r->hash);
    cli_json_set(object, "hash", cli_json_text(hash));
    return object;
}

int cluster_runs_print_json(const cluster_runs *c) {
    json_t *object = json_object(), *runs = json_array();
    cli_json_set(object, "source", cli_json_text(c->source));
    cli_json_set(object, "nodes", json_integer(c->base.nodes));
    cli_json_set(object, "routers", json_integer(c->base.routers));
    cli_json_set(object, "kv_tokens", json_integer((json_int_t)c->base.kv_tokens));
    cli_json_set(object, "seed", json_integer((json_int_t)c->base.seed));
    for (size_t i = 0; i < c->n; i++) cli_json_append(runs, run_object(c, &c->runs[i]));
    cli_json_set(object, "runs", runs);
    return cli_json_print(object);
}
