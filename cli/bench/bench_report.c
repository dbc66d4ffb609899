/* SPDX-License-Identifier: Apache-2.0 */
/* bench_report.c: results of a load, as text and as JSON. Owns nothing. One thread. */
#include "bench/bench_loads.h"
#include "common/command.h"
#include "common/json_out.h"
#include "common/text.h"
#include "reprise_store.h"

#include <string.h>

static const char *const load_names[] = {"poisson", "replay", "soak"}; /* in the order of bench_load */

typedef struct totals {
    uint64_t submitted, done, failed, prompt_tokens, cached_tokens, answer_tokens;
    double seconds;
} totals;

static totals sum_up(const bench_driver *d) {
    totals t = {.seconds = (d->end_ms - d->start_ms) / 1e3};
    for (int i = 0; i < d->n_kinds; i++) {
        const bench_kind *k = &d->kinds[i];
        t.submitted += k->submitted;
        t.done += k->done;
        t.failed += k->failed;
        t.prompt_tokens += k->prompt_tokens;
        t.cached_tokens += k->cached_tokens;
        t.answer_tokens += k->answer_tokens;
    }
    if (t.seconds <= 0) t.seconds = 1e-3;
    return t;
}

static double bench_report_share(uint64_t part, uint64_t all) { return all > 0 ? (double)part / (double)all : 0; }

/* The KV budget in tokens. */
static uint64_t cache_tokens(const bench_driver *d, const rp_memory *m) {
    rp_engine_info info = {.struct_size = sizeof(info)};
    rp_engine_describe(d->loaded->engine, &info);
    return info.kv_bytes_per_token > 0 ? m->kv_limit / info.kv_bytes_per_token : 0;
}

/* ---- JSON ---- */

static json_t *bench_report_integer(uint64_t v) { return json_integer((json_int_t)v); }

static json_t *kind_object(const bench_kind *k) {
    json_t *o = json_object();
    cli_json_set(o, "submitted", bench_report_integer(k->submitted));
    cli_json_set(o, "done", bench_report_integer(k->done));
    cli_json_set(o, "failed", bench_report_integer(k->failed));
    cli_json_set(o, "prompt_tokens", bench_report_integer(k->prompt_tokens));
    cli_json_set(o, "cached_tokens", bench_report_integer(k->cached_tokens));
    cli_json_set(o, "answer_tokens", bench_report_integer(k->answer_tokens));
    cli_json_set(o, "queue_ms", bench_histogram_object(&k->queue_ms));
    cli_json_set(o, "ttft_ms", bench_histogram_object(&k->ttft_ms));
    cli_json_set(o, "tbt_ms", bench_histogram_object(&k->tbt_ms));
    return o;
}

static json_t *steps_object(const bench_steps *s) {
    json_t *o = json_object();
    cli_json_set(o, "ms", bench_histogram_object(&s->ms));
    cli_json_set(o, "alone_ms", bench_histogram_object(&s->alone_ms));
    cli_json_set(o, "mixed_ms", bench_histogram_object(&s->mixed_ms));
    cli_json_set(o, "prediction_error_percent", bench_histogram_object(&s->miss));
    cli_json_set(o, "decode_rows", bench_report_integer(s->rows[RP_STEP_DECODE]));
    cli_json_set(o, "prefill_rows", bench_report_integer(s->rows[RP_STEP_PREFILL]));
    cli_json_set(o, "module_rows", bench_report_integer(s->rows[RP_STEP_MODULE]));
    cli_json_set(o, "background_rows", bench_report_integer(s->rows[RP_STEP_BACKGROUND]));
    cli_json_set(o, "most_running", json_integer(s->most_running));
    cli_json_set(o, "most_waiting", json_integer(s->most_waiting));
    return o;
}

static json_t *bench_report_memory_object(const bench_driver *d, const bench_steps *steps) {
    rp_memory m = {.struct_size = sizeof(m)};
    bench_process p = bench_process_now();
    rp_engine_memory(d->loaded->engine, &m);
    json_t *o = json_object();
    cli_json_set(o, "peak", bench_report_integer(p.peak_bytes));
    cli_json_set(o, "resident", bench_report_integer(p.resident_bytes));
    cli_json_set(o, "weights", bench_report_integer(m.weights));
    cli_json_set(o, "file", bench_report_integer(m.file));
    cli_json_set(o, "activations", bench_report_integer(m.activations));
    cli_json_set(o, "kv", bench_report_integer(m.kv));
    cli_json_set(o, "kv_used", bench_report_integer(steps->max_kv_bytes));
    cli_json_set(o, "kv_limit", bench_report_integer(m.kv_limit));
    cli_json_set(o, "cache_tokens", bench_report_integer(cache_tokens(d, &m)));
    return o;
}

static json_t *store_object(const bench_driver *d) {
    rp_store_stats s = {.struct_size = sizeof(s)};
    rp_engine_store_stats(d->loaded->engine, &s);
    json_t *o = json_object();
    cli_json_set(o, "spans", bench_report_integer(s.spans));
    cli_json_set(o, "bytes", bench_report_integer(s.bytes));
    cli_json_set(o, "inserts", bench_report_integer(s.inserts));
    cli_json_set(o, "evictions", bench_report_integer(s.evictions));
    cli_json_set(o, "expired", bench_report_integer(s.expired));
    return o;
}

static json_t *bench_report_errors_object(const bench_driver *d) {
    json_t *o = json_object();
    for (int i = 1; i < BENCH_ERRORS; i++)
        if (d->errors[i] > 0) cli_json_set(o, rp_code_name((rp_code)-i), bench_report_integer(d->errors[i]));
    return o;
}

static json_t *seen_object(const bench_disk_seen *s) {
    json_t *o = json_object();
    cli_json_set(o, "looks", bench_report_integer(s->looks));
    cli_json_set(o, "bytes", bench_report_integer(s->bytes));
    cli_json_set(o, "index_bytes", bench_report_integer(s->index_bytes));
    cli_json_set(o, "files", json_integer(s->files));
    cli_json_set(o, "open_files", json_integer(s->open_files));
    cli_json_set(o, "threads", json_integer(s->threads));
    return o;
}

static json_t *disk_verdict_object(const bench_disk_verdict *v) {
    json_t *o = json_object();
    cli_json_set(o, "budget_bytes", bench_report_integer(v->budget_bytes));
    cli_json_set(o, "written_bytes", bench_report_integer(v->written_bytes));
    cli_json_set(o, "first", seen_object(&v->first));
    cli_json_set(o, "later", seen_object(&v->later));
    cli_json_set(o, "judged", json_boolean(v->judged));
    cli_json_set(o, "flat", json_boolean(v->flat));
    cli_json_set(o, "inside", json_boolean(v->inside));
    return o;
}

static json_t *verdict_object(const bench_verdict *v) {
    json_t *o = json_object();
    cli_json_set(o, "first_bytes", bench_report_integer(v->first_bytes));
    cli_json_set(o, "later_bytes", bench_report_integer(v->later_bytes));
    cli_json_set(o, "allowed_bytes", bench_report_integer(v->allowed_bytes));
    cli_json_set(o, "budget_bytes", bench_report_integer(v->budget_bytes));
    cli_json_set(o, "checked", bench_report_integer(v->checked));
    cli_json_set(o, "judged", json_boolean(v->judged));
    cli_json_set(o, "flat", json_boolean(v->flat));
    cli_json_set(o, "inside", json_boolean(v->inside));
    if (v->disk.watched) cli_json_set(o, "disk", disk_verdict_object(&v->disk));
    return o;
}

static int bench_report_json(const bench_session *s) {
    const bench_driver *d = s->driver;
    totals t = sum_up(d);
    bench_steps steps = bench_steps_now(s->driver);
    json_t *o = json_object(), *calls = json_object();
    for (int i = 0; i < d->n_kinds; i++) cli_json_set(calls, d->kinds[i].name, kind_object(&d->kinds[i]));
    cli_json_set(o, "load", cli_json_text(load_names[s->options->load]));
    cli_json_set(o, "seed", bench_report_integer(s->options->seed));
    cli_json_set(o, "seconds", cli_json_real(t.seconds));
    cli_json_set(o, "calls", calls);
    cli_json_set(o, "hit_rate", json_real(bench_report_share(t.cached_tokens, t.prompt_tokens)));
    cli_json_set(o, "answer_tokens_per_second", cli_json_real((double)t.answer_tokens / t.seconds));
    cli_json_set(o, "prompt_tokens_per_second", cli_json_real((double)t.prompt_tokens / t.seconds));
    cli_json_set(o, "steps", steps_object(&steps));
    cli_json_set(o, "memory", bench_report_memory_object(d, &steps));
    cli_json_set(o, "store", store_object(d));
    cli_json_set(o, "errors", bench_report_errors_object(d));
    if (s->options->load == BENCH_SOAK) cli_json_set(o, "verdict", verdict_object(&s->verdict));
    return cli_json_print(o);
}

void bench_report_request(const bench_call *c, const rp_result *r, const rp_error *err) {
    json_t *o = json_object();
    cli_json_set(o, "request", json_integer(c->tag));
    if (r != NULL) {
        cli_json_set(o, "prompt_tokens", json_integer(r->prompt_tokens));
        cli_json_set(o, "cached_tokens", json_integer(r->cached_tokens));
        cli_json_set(o, "answer_tokens", json_integer(r->n_tokens));
        cli_json_set(o, "queue_ms", cli_json_real(r->timings.queue_ms));
        cli_json_set(o, "ttft_ms", cli_json_real(c->first_ms - c->due_ms));
        cli_json_set(o, "decode_ms", cli_json_real(c->last_ms - c->first_ms));
    } else cli_json_set(o, "error", cli_json_text(err->message));
    cli_json_print(o); /* a failed write is reported again at the end */
}

/* ---- text ---- */

static void print_kinds(const bench_driver *d) {
    static const double shares[] = {0.5, 0.9, 0.99};
    printf("%-9s %6s %6s  %-35s    inter-token latency, ms\n", "requests", "done", "failed",
           "  time to first token, ms");
    printf("%-9s %6s %6s  %8s %8s %8s %8s  %8s %8s %8s %8s\n", "", "", "", "p50", "p90", "p99", "max", "p50", "p90",
           "p99", "max");
    for (int i = 0; i < d->n_kinds; i++) {
        const bench_kind *k = &d->kinds[i];
        printf("%-9s %6llu %6llu", k->name, (unsigned long long)k->done, (unsigned long long)k->failed);
        putchar(' ');
        bench_histogram_print(&k->ttft_ms, shares);
        putchar(' ');
        bench_histogram_print(&k->tbt_ms, shares);
        putchar('\n');
    }
}

static void print_rates(const totals *t) {
    printf("\n%-9s decode %.1f tokens/s, prompts %.1f tokens/s; %llu of %llu prompt tokens cached (%.2f %%); %.1f s\n",
           "speed", (double)t->answer_tokens / t->seconds, (double)t->prompt_tokens / t->seconds,
           (unsigned long long)t->cached_tokens, (unsigned long long)t->prompt_tokens,
           100 * bench_report_share(t->cached_tokens, t->prompt_tokens), t->seconds);
}

static void print_answers(const bench_steps *s) {
    const bench_histogram *alone = &s->alone_ms, *mixed = &s->mixed_ms;
    printf("%-9s %llu steps with decoding only: median %.2f ms, p99 %.2f; %llu steps with prefill: median %.2f, p99 "
           "%.2f\n",
           "decode", (unsigned long long)alone->n, bench_histogram_at(alone, 0.5), bench_histogram_at(alone, 0.99),
           (unsigned long long)mixed->n, bench_histogram_at(mixed, 0.5), bench_histogram_at(mixed, 0.99));
}

static void print_steps(const bench_driver *d, const bench_steps *s) {
    double queue = 0;
    uint64_t rows = s->rows[0] + s->rows[1] + s->rows[2] + s->rows[3];
    for (int i = 0; i < d->n_kinds; i++) {
        double p99 = bench_histogram_at(&d->kinds[i].queue_ms, 0.99);
        if (p99 > queue) queue = p99;
    }
    printf("%-9s %llu, mean batch %.1f rows; median %.2f ms, maximum %.1f; ", "steps", (unsigned long long)s->ms.n,
           bench_report_share(rows, s->ms.n), bench_histogram_at(&s->ms, 0.5), s->ms.max_ms);
    printf("prediction error: median %.0f %%, p90 %.0f %%\n", bench_histogram_at(&s->miss, 0.5),
           bench_histogram_at(&s->miss, 0.9));
    print_answers(s);
    printf("%-9s at most %d requests running and %d waiting; p99 of the queue time %.1f ms\n", "queue",
           (int)s->most_running, (int)s->most_waiting, queue);
}

#define MIB(bytes) ((double)(bytes) / 1048576)

static void print_memory(const bench_driver *d, const bench_steps *s) {
    rp_memory m = {.struct_size = sizeof(m)};
    bench_process p = bench_process_now();
    rp_engine_memory(d->loaded->engine, &m);
    printf("%-9s resident %.1f MiB, peak %.1f; weights %.1f, file %.1f, activations %.1f, KV cache %.1f of %.1f (%llu "
           "tokens)\n",
           "memory", MIB(p.resident_bytes), MIB(p.peak_bytes), MIB(m.weights), MIB(m.file), MIB(m.activations),
           MIB(s->max_kv_bytes), MIB(m.kv_limit), (unsigned long long)cache_tokens(d, &m));
}

static void bench_report_print_errors(const bench_driver *d) {
    bool any = false;
    for (int i = 1; i < BENCH_ERRORS; i++) {
        if (d->errors[i] == 0) continue;
        printf("%s %llu %s", any ? ";" : "errors   ", (unsigned long long)d->errors[i], rp_code_text((rp_code)-i));
        any = true;
    }
    if (any) putchar('\n');
}

static void print_disk(const bench_disk_verdict *v) {
    const bench_disk_seen *a = &v->first, *b = &v->later;
    uint64_t most = a->bytes > b->bytes ? a->bytes : b->bytes;
    printf("%-9s %s: peak %.1f MiB in %llu samples, budget %.1f; %.1f MiB written\n", "disk",
           v->inside ? "within budget" : "OVER BUDGET", MIB(most), (unsigned long long)(a->looks + b->looks),
           MIB(v->budget_bytes), MIB(v->written_bytes));
    if (!v->judged) printf("%-9s not judged: the run is too short to write ten times --disk\n", "grows");
    else
        printf("%-9s %s: peak of the index %.2f MiB in the steady state, %.2f before; files %d, %d; minimum of open "
               "files %d, %d; threads %d, %d\n",
               "grows", v->flat ? "no" : "YES", MIB(b->index_bytes), MIB(a->index_bytes), (int)b->files, (int)a->files,
               (int)b->open_files, (int)a->open_files, (int)b->threads, (int)a->threads);
}

static void print_verdict(const bench_verdict *v) {
    printf("%-9s %llu answers were as expected\n", "checked", (unsigned long long)v->checked);
    if (!v->judged) printf("%-9s not judged: the run is too short to fill the KV cache (--kv-ram)\n", "flat");
    else
        printf("%-9s %s: peak %.1f MiB in the steady state, %.1f before (%.1f allowed)\n", "flat",
               v->flat ? "yes" : "NO", MIB(v->later_bytes), MIB(v->first_bytes), MIB(v->allowed_bytes));
    printf("%-9s %s: sum of the budgets %.1f MiB\n", "budget", v->inside ? "yes" : "NO", MIB(v->budget_bytes));
    if (v->disk.watched) print_disk(&v->disk);
}

static void bench_report_print_head(const bench_session *s) {
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_model_describe(s->driver->loaded->model, &info);
    printf("%s, seed %llu; ", load_names[s->options->load], (unsigned long long)s->options->seed);
    cli_print_safe(stdout, s->options->model, strlen(s->options->model));
    printf(", %.1f M parameters, %s\n\n", (double)info.parameters / 1e6, info.weights);
}

static int bench_report_text(const bench_session *s) {
    totals t = sum_up(s->driver);
    bench_steps steps = bench_steps_now(s->driver);
    bench_report_print_head(s);
    print_kinds(s->driver);
    print_rates(&t);
    print_steps(s->driver, &steps);
    print_memory(s->driver, &steps);
    bench_report_print_errors(s->driver);
    if (s->options->load == BENCH_SOAK) print_verdict(&s->verdict);
    return cli_finish_output();
}

int bench_report(const bench_session *s) {
    const bench_driver *d = s->driver;
    int status = s->options->json ? bench_report_json(s) : bench_report_text(s);
    if (status != CLI_OK) return status;
    if (d->faults > 0)
        return cli_fail(CLI_FAILED, "%llu requests failed; the first: %s", (unsigned long long)d->faults, d->fault);
    if (s->options->load == BENCH_SOAK && !(s->verdict.flat && s->verdict.inside))
        return cli_fail(CLI_FAILED, "memory %s", s->verdict.flat ? "exceeded its budgets" : "grew");
    if (s->options->load == BENCH_SOAK && !(s->verdict.disk.flat && s->verdict.disk.inside))
        return cli_fail(CLI_FAILED, "the store's folder %s",
                        s->verdict.disk.inside ? "or its index, files or threads grew" : "exceeded its budget");
    return CLI_OK;
}
