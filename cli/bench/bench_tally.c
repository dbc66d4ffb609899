/* SPDX-License-Identifier: Apache-2.0 */
/* bench_tally.c: totals and report of `bench serve`, as text and as JSON: see bench_serve.h. Owns nothing. One
 * thread. */
#include <stdlib.h>
#include <string.h>

#include "bench/bench_serve.h"
#include "common/command.h"
#include "common/json_out.h"
#include "common/text.h"

static const char *const workload_names[] = {"random", "chat", "retrieval",
                                             "trace"}; /* in the order of bench_workload_kind */
static const char *const failure_names[] = {"no connection", "closed", "silent",
                                            "in stream"}; /* in the order of bench_failure */

/* ---- totals ---- */

/* Mean inter-token latency of an answer; a piece of text may hold several tokens. 0: a single token. */
static double mean_tbt(const bench_outcome *e) {
    int64_t n = e->answer_tokens > 0 ? e->answer_tokens : (int64_t)e->pieces;
    return n > 1 ? (e->last_ms - e->first_ms) / (double)(n - 1) : 0;
}

static uint64_t bench_tally_known(int64_t n) { return n > 0 ? (uint64_t)n : 0; }

static bool is_refusal(const bench_outcome *e) { return e->status == 429 || e->status == 503; }

static void count_failure(bench_tally *t, const bench_outcome *e) {
    bool by_status = e->status != 0 && e->status != 200 && e->status < BENCH_STATUS_MAX;
    t->failed++;
    if (by_status) t->by_status[e->status]++;
    else t->by_failure[e->failure]++;
    if (is_refusal(e)) return; /* the load may exceed the server's capacity */
    if (t->faults++ == 0 && by_status) snprintf(t->fault, sizeof t->fault, "%d: %s", e->status, e->message);
    else if (t->faults == 1) snprintf(t->fault, sizeof t->fault, "%s: %s", failure_names[e->failure], e->message);
}

void bench_tally_add(bench_tally *t, const bench_outcome *e, const bench_serve_options *o) {
    t->end_ms = e->end_ms;
    t->waited += e->has_waited;
    if (e->sent_ms > 0) bench_histogram_add(&t->lag_ms, e->sent_ms - e->due_ms);
    if (!e->is_done) {
        count_failure(t, e);
        return;
    }
    double ttft = (e->pieces > 0 ? e->first_ms : e->end_ms) - e->due_ms, tbt = mean_tbt(e);
    t->done++;
    t->prompt_tokens += bench_tally_known(e->prompt_tokens);
    t->cached_tokens += bench_tally_known(e->cached_tokens);
    t->answer_tokens += e->answer_tokens >= 0 ? (uint64_t)e->answer_tokens : e->pieces;
    t->in_limits +=
        (o->ttft_limit <= 0 || ttft <= (double)o->ttft_limit) && (o->tbt_limit <= 0 || tbt <= (double)o->tbt_limit);
    bench_histogram_add(&t->ttft_ms, ttft);
    bench_histogram_add(&t->total_ms, e->end_ms - e->due_ms);
    if (tbt > 0) bench_histogram_add(&t->mean_tbt_ms, tbt);
}

static double bench_tally_share(uint64_t part, uint64_t all) { return all > 0 ? (double)part / (double)all : 0; }

static double bench_tally_seconds(const bench_tally *t) {
    return t->end_ms > t->start_ms ? (t->end_ms - t->start_ms) / 1e3 : 1e-3;
}

static const char *error_name(const bench_outcome *e, char buffer[8]) {
    if (e->is_done) return NULL;
    if (e->status == 0 || e->status == 200) return failure_names[e->failure];
    snprintf(buffer, 8, "%d", e->status % 1000);
    return buffer;
}

/* ---- JSON ---- */

static json_t *bench_tally_integer(uint64_t v) { return json_integer((json_int_t)v); }

void bench_outcome_print(const bench_outcome *e, double start_ms) {
    char buffer[8];
    const char *error = error_name(e, buffer);
    json_t *o = json_object();
    cli_json_set(o, "due_ms", cli_json_real(e->due_ms - start_ms));
    if (e->sent_ms > 0) cli_json_set(o, "sent_ms", cli_json_real(e->sent_ms - start_ms));
    if (e->pieces > 0) cli_json_set(o, "ttft_ms", cli_json_real(e->first_ms - e->due_ms));
    cli_json_set(o, "total_ms", cli_json_real(e->end_ms - e->due_ms));
    if (error == NULL) {
        cli_json_set(o, "mean_tbt_ms", cli_json_real(mean_tbt(e)));
        cli_json_set(o, "prompt_tokens", json_integer(e->prompt_tokens));
        cli_json_set(o, "cached_tokens", json_integer(e->cached_tokens));
        cli_json_set(o, "answer_tokens", json_integer(e->answer_tokens));
    } else {
        cli_json_set(o, "error", cli_json_text(error));
        cli_json_set(o, "message", cli_json_text(e->message));
    }
    cli_json_print(o); /* a failed write is reported again at the end */
}

static json_t *bench_tally_errors_object(const bench_tally *t) {
    json_t *o = json_object();
    char name[8];
    for (int i = 0; i < BENCH_STATUS_MAX; i++) {
        if (t->by_status[i] == 0) continue;
        snprintf(name, sizeof name, "%d", i);
        cli_json_set(o, name, bench_tally_integer(t->by_status[i]));
    }
    for (int i = 0; i < BENCH_FAILURES; i++)
        if (t->by_failure[i] > 0) cli_json_set(o, failure_names[i], bench_tally_integer(t->by_failure[i]));
    return o;
}

static json_t *goodput_object(const bench_tally *t, const bench_serve_options *o) {
    json_t *g = json_object();
    cli_json_set(g, "ttft_limit_ms", o->ttft_limit > 0 ? cli_json_real((double)o->ttft_limit) : json_null());
    cli_json_set(g, "tbt_limit_ms", o->tbt_limit > 0 ? cli_json_real((double)o->tbt_limit) : json_null());
    cli_json_set(g, "requests", bench_tally_integer(t->in_limits));
    cli_json_set(g, "share", cli_json_real(bench_tally_share(t->in_limits, t->sent)));
    cli_json_set(g, "per_second", cli_json_real((double)t->in_limits / bench_tally_seconds(t)));
    return g;
}

static int bench_tally_report_json(const bench_tally *t, const bench_serve_options *o, const http_target *target) {
    json_t *all = json_object(), *requests = json_object();
    cli_json_set(requests, "sent", bench_tally_integer(t->sent));
    cli_json_set(requests, "done", bench_tally_integer(t->done));
    cli_json_set(requests, "failed", bench_tally_integer(t->failed));
    cli_json_set(requests, "waited", bench_tally_integer(t->waited));
    cli_json_set(all, "workload", cli_json_text(workload_names[o->workload]));
    cli_json_set(all, "server", cli_json_text(target->name));
    cli_json_set(all, "seed", bench_tally_integer(o->seed));
    cli_json_set(all, "salt", cli_json_text(o->salt));
    cli_json_set(all, "seconds", cli_json_real(bench_tally_seconds(t)));
    cli_json_set(all, "requests", requests);
    cli_json_set(all, "errors", bench_tally_errors_object(t));
    cli_json_set(all, "prompt_tokens", bench_tally_integer(t->prompt_tokens));
    cli_json_set(all, "cached_tokens", bench_tally_integer(t->cached_tokens));
    cli_json_set(all, "answer_tokens", bench_tally_integer(t->answer_tokens));
    cli_json_set(all, "hit_rate", json_real(bench_tally_share(t->cached_tokens, t->prompt_tokens)));
    cli_json_set(all, "requests_per_second", cli_json_real((double)t->done / bench_tally_seconds(t)));
    cli_json_set(all, "prompt_tokens_per_second", cli_json_real((double)t->prompt_tokens / bench_tally_seconds(t)));
    cli_json_set(all, "answer_tokens_per_second", cli_json_real((double)t->answer_tokens / bench_tally_seconds(t)));
    cli_json_set(all, "ttft_ms", bench_histogram_object(&t->ttft_ms));
    cli_json_set(all, "tbt_ms", bench_histogram_object(&t->tbt_ms));
    cli_json_set(all, "mean_tbt_ms", bench_histogram_object(&t->mean_tbt_ms));
    cli_json_set(all, "total_ms", bench_histogram_object(&t->total_ms));
    cli_json_set(all, "lag_ms", bench_histogram_object(&t->lag_ms));
    cli_json_set(all, "goodput", goodput_object(t, o));
    return cli_json_print(all);
}

/* ---- text ---- */

static void bench_tally_print_row(const char *name, const bench_histogram *h) {
    static const double shares[] = {0.5, 0.95, 0.99};
    printf("%-24s", name);
    bench_histogram_print(h, shares);
    putchar('\n');
}

static void print_limit(const char *what, float limit) {
    if (limit > 0) printf(", %s at most %g ms", what, (double)limit);
}

static void bench_tally_print_errors(const bench_tally *t) {
    const char *separator = "errors    ";
    for (int i = 0; i < BENCH_STATUS_MAX; i++) {
        if (t->by_status[i] == 0) continue;
        printf("%s%llu x %d", separator, (unsigned long long)t->by_status[i], i);
        separator = "; ";
    }
    for (int i = 0; i < BENCH_FAILURES; i++) {
        if (t->by_failure[i] == 0) continue;
        printf("%s%llu x %s", separator, (unsigned long long)t->by_failure[i], failure_names[i]);
        separator = "; ";
    }
    if (t->failed > 0) putchar('\n');
}

static int bench_tally_report_text(const bench_tally *t, const bench_serve_options *o, const http_target *target) {
    double s = bench_tally_seconds(t);
    printf("%s, seed %llu, salt ", workload_names[o->workload], (unsigned long long)o->seed);
    cli_print_safe(stdout, o->salt, strlen(o->salt));
    printf("; ");
    cli_print_safe(stdout, target->name, strlen(target->name));
    printf("\n\n%-24s %8s %8s %8s %8s\n", "ms", "p50", "p95", "p99", "max");
    bench_tally_print_row("first token", &t->ttft_ms);
    bench_tally_print_row("inter-chunk latency", &t->tbt_ms);
    bench_tally_print_row("inter-token latency, mean", &t->mean_tbt_ms);
    bench_tally_print_row("end-to-end latency", &t->total_ms);
    bench_tally_print_row("send delay", &t->lag_ms);
    printf("\nrequests  %llu sent, %llu answered, %llu failed, %llu waited for a connection; %.1f s\n",
           (unsigned long long)t->sent, (unsigned long long)t->done, (unsigned long long)t->failed,
           (unsigned long long)t->waited, s);
    printf("speed     %.2f answers/s; decode %.1f tokens/s, prompts %.1f tokens/s\n", (double)t->done / s,
           (double)t->answer_tokens / s, (double)t->prompt_tokens / s);
    printf("cached    %llu of %llu prompt tokens (%.2f %%)\n", (unsigned long long)t->cached_tokens,
           (unsigned long long)t->prompt_tokens, 100 * bench_tally_share(t->cached_tokens, t->prompt_tokens));
    printf("goodput   %.2f requests/s, %.1f %% of those sent", (double)t->in_limits / s,
           100 * bench_tally_share(t->in_limits, t->sent));
    print_limit("first token", o->ttft_limit);
    print_limit("mean inter-token latency", o->tbt_limit);
    putchar('\n');
    bench_tally_print_errors(t);
    return cli_finish_output();
}

int bench_tally_report(const bench_tally *t, const bench_serve_options *o, const http_target *target) {
    int status = o->json ? bench_tally_report_json(t, o, target) : bench_tally_report_text(t, o, target);
    if (status != CLI_OK) return status;
    if (t->faults > 0)
        return cli_fail(CLI_FAILED, "%llu requests failed; the first: %s", (unsigned long long)t->faults, t->fault);
    if (t->done == 0 && t->sent > 0)
        return cli_fail(CLI_FAILED, "all %llu requests were refused", (unsigned long long)t->sent);
    return CLI_OK;
}
