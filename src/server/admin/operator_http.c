/* SPDX-License-Identifier: Apache-2.0 */
/* operator_http.c: endpoints for operators and their programs: liveness, readiness and metrics (on I/O threads, at any
 * time), the store, and the reports that explain where a request's time was spent. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "server/admin/engine_metrics.h"
#include "reprise.h"
#include "reprise_store.h"
#include "server/admin/admin_handlers.h"
#include "server/answers/report_ring.h"
#include "server/core/metrics.h"
#include "server/http/server_internal.h"

#define METRICS_BYTES ((size_t)4 << 20) /* mostly the auditor's tables, or nodes of a router, when full */
#define DEFAULT_LISTED 20               /* reports */

static void reply_word(server_request *x, int status, const char *word) {
    base_buffer text = BASE_BUFFER(256);
    if (base_buffer_append_str(&text, word)) base_buffer_clear(&text);
    server_request_reply_text(x, status, "text/plain; charset=utf-8", &text);
}

void handle_livez(server_request *x) { reply_word(x, 200, "alive\n"); }

/* Stops at a model whose store is degraded. */
static int find_degraded(server_model *m, void *user) {
    rp_store_stats *t = user;
    rp_engine_store_stats(m->engine, t);
    return t->disk_state > RP_STORE_WORKS;
}

void handle_readyz(server_request *x) {
    static const char *const words[] = {"loading\n", "ready\n", "draining\n", "closed\n"};
    server_state state = server_get_state(x->server);
    BASE_ASSERT((size_t)state < BASE_ARRAY_LEN(words));
    rp_store_stats t = {.struct_size = sizeof(t)};
    char text[128];
    bool is_degraded = state == SERVER_STATE_READY &&
                       model_pool_visit(x->server->models, find_degraded, &t); /* it answers all the same */
    if (state == SERVER_STATE_READY && server_is_draining(x->server))
        state = SERVER_STATE_DRAINING; /* an operator's wish */
    snprintf(text, sizeof(text), "%s%s%s%s%s%s", words[state], is_degraded ? "store: " : "",
             is_degraded ? rp_store_state_name(t.disk_state) : "", is_degraded ? ": " : "",
             is_degraded ? t.disk_trouble : "", is_degraded ? "\n" : "");
    reply_word(x, state == SERVER_STATE_READY ? 200 : 503, text);
}

void handle_health(server_request *x) {
    if (server_get_state(x->server) == SERVER_STATE_READY && !server_is_draining(x->server)) {
        server_request_reply_json(x, 200, json_pack("{s:s}", "status", "ok"));
        return;
    }
    server_fail(&x->problem, SERVER_LOADING, NULL, "Loading model");
    server_request_reply_problem(x);
}

/* ---- Prometheus ---- */

static int append_responses(base_buffer *b, server_counts *c) {
    int rc = base_buffer_append_str(
        b,
        "# HELP reprise_responses_total HTTP replies, by class of status.\n# TYPE reprise_responses_total counter\n");
    for (int i = 1; i < SERVER_N_STATUS_CLASSES && !rc; i++)
        rc = base_buffer_printf(b, "reprise_responses_total{status=\"%dxx\"} %" PRIu64 "\n", i,
                                atomic_load(&c->by_status[i]));
    if (!rc)
        rc = base_buffer_append_str(b,
                                    "# HELP reprise_rejections_total Requests that ended with an error, by its code.\n"
                                    "# TYPE reprise_rejections_total counter\n");
    for (int i = SERVER_FINE + 1; i < SERVER_N_PROBLEMS && !rc; i++)
        rc = base_buffer_printf(b, "reprise_rejections_total{reason=\"%s\"} %" PRIu64 "\n",
                                server_problem_name((server_problem_kind)i), atomic_load(&c->rejections[i]));
    return rc;
}

static int append_times(base_buffer *b, server_counts *c) {
    int rc = histogram_append(b, "queue", "Part of the time to first token: time in the queue.", &c->queue);
    if (!rc)
        rc = histogram_append(b, "module_prefill",
                              "Part of the time to first token: prefill of modules that were not cached.",
                              &c->module_prefill);
    if (!rc)
        rc = histogram_append(
            b, "plan", "Part of the time to first token: parsing the request, planning and composing the prompt.",
            &c->plan);
    if (!rc)
        rc = histogram_append(b, "prompt_prefill", "Part of the time to first token: prefill of the prompt's own text.",
                              &c->prompt_prefill);
    if (!rc)
        rc = histogram_append(b, "time_to_first_token", "Time to first token (TTFT), from arrival of the request.",
                              &c->first_token);
    if (!rc)
        rc = histogram_append(b, "time_between_tokens", "Inter-token latency (ITL) of answers.", &c->between_tokens);
    return rc ? rc : histogram_append(b, "step", "Duration of an engine step.", &c->step);
}

/* Prompt tokens by source, and the share of each tier. The total is loaded last: no ratio exceeds 1. */
static int append_tiers(base_buffer *b, server_counts *c) {
    uint64_t ram = atomic_load(&c->ram_tokens), disk = atomic_load(&c->disk_tokens),
             all = atomic_load(&c->prompt_tokens);
    double of = all > 0 ? (double)all : 1;
    return base_buffer_printf(
        b,
        "# HELP reprise_tokens_total Prompt tokens, by the source of their KV: computed, RAM tier or disk tier.\n"
        "# TYPE reprise_tokens_total counter\n"
        "reprise_tokens_total{source=\"computed\"} %" PRIu64 "\nreprise_tokens_total{source=\"ram\"} %" PRIu64
        "\nreprise_tokens_total{source=\"disk\"} %" PRIu64 "\n"
        "# HELP reprise_hit_ratio Hit rate: share of all prompt tokens served by a tier of the store.\n"
        "# TYPE reprise_hit_ratio gauge\n"
        "reprise_hit_ratio{tier=\"ram\"} %.6f\n"
        "reprise_hit_ratio{tier=\"disk\"} %.6f\n",
        all - BASE_MIN(ram + disk, all), ram, disk, (double)ram / of, (double)disk / of);
}

/* Drafts by source. Accepted ones are loaded first: no acceptance exceeds 1. */
static int append_drafts(base_buffer *b, server_counts *c) {
    const uint64_t lookup_accepted = atomic_load(&c->lookup_accepted), model_accepted = atomic_load(&c->model_accepted);
    return base_buffer_printf(
        b,
        "# HELP reprise_draft_tokens_total Draft tokens of speculative decoding, by source: prompt lookup, or the "
        "draft model or draft head.\n"
        "# TYPE reprise_draft_tokens_total counter\n"
        "reprise_draft_tokens_total{source=\"lookup\"} %" PRIu64
        "\nreprise_draft_tokens_total{source=\"model\"} %" PRIu64
        "\n# HELP reprise_accepted_draft_tokens_total Draft tokens that became answer tokens, by source.\n"
        "# TYPE reprise_accepted_draft_tokens_total counter\n"
        "reprise_accepted_draft_tokens_total{source=\"lookup\"} %" PRIu64
        "\nreprise_accepted_draft_tokens_total{source=\"model\"} %" PRIu64 "\n",
        atomic_load(&c->lookup_drafted), atomic_load(&c->model_drafted), lookup_accepted, model_accepted);
}

static int append_server(base_buffer *b, rp_server *s) {
    server_counts *c = &s->counts;
    pthread_mutex_lock(&s->lock);
    BASE_ASSERT(s->n_active >= 0 && s->n_suspended >= 0);
    uint64_t active = (uint64_t)s->n_active, suspended = (uint64_t)s->n_suspended;
    pthread_mutex_unlock(&s->lock);
    const server_metric list[] = {
        {"connections_open", "gauge", "Open connections.", atomic_load(&c->connections_open)},
        {"connections_total", "counter", "Connections accepted since the start.", atomic_load(&c->connections)},
        {"log_dropped_total", "counter", "Log lines dropped because standard error was not read fast enough.",
         rp_log_dropped()},
        {"requests_total", "counter", "Requests received with complete headers.", atomic_load(&c->requests)},
        {"requests_active", "gauge", "Requests in progress in workers or the engine.", active},
        {"requests_suspended", "gauge", "Connections that wait for the next text of an answer.", suspended},
        {"streams_total", "counter", "Streamed replies.", atomic_load(&c->streams)},
        {"clients_gone_total", "counter", "Requests abandoned by the client before the end of the reply.",
         atomic_load(&c->gone)},
        {"readers_too_slow_total", "counter",
         "Streamed answers ended because unsent text of a slow client exceeded its limit.", atomic_load(&c->overflows)},
        {"reply_buffer_bytes", "gauge", "Unsent text of streamed answers, in bytes.", atomic_load(&s->pending_bytes)},
        {"answers_paused_total", "counter", "Pauses of decoding for slow clients.", atomic_load(&c->pauses)},
        {"connections_refused_total", "counter", "Connections refused with status 503 because of a limit.",
         atomic_load(&c->refused)},
        {"connections_reclaimed_total", "counter", "Idle connections closed early to accept new ones.",
         watchdog_reclaimed(s->watchdog)},
        {"body_bytes", "gauge", "Request bodies in memory, in bytes.", atomic_load(&s->body_bytes)},
        {"request_memory_bytes", "gauge", "Memory of all requests in progress, without KV, in bytes (--request-ram).",
         base_budget_used(s->memory)},
        {"request_memory_peak_bytes", "gauge", "Most memory that all requests took together, without KV, in bytes.",
         base_budget_peak(s->memory)},
        {"request_memory_limit_bytes", "gauge", "Memory limit of all requests together, without KV, in bytes.",
         base_budget_limit(s->memory)},
        {"jobs_open", "gauge", "Engine jobs of requests that are not freed yet.", atomic_load(&c->jobs_open)},
        {"answers_total", "counter", "Answers generated.", atomic_load(&c->answers)},
        {"prompt_tokens_total", "counter", "Prompt tokens, cached ones included.", atomic_load(&c->prompt_tokens)},
        {"cached_tokens_total", "counter", "Prompt tokens with reused KV (cache hits).",
         atomic_load(&c->cached_tokens)},
        {"inexact_tokens_total", "counter",
         "Prompt tokens, cached or computed, whose KV differs from that of a full prefill.",
         atomic_load(&c->inexact_tokens)},
        {"answer_tokens_total", "counter", "Generated tokens.", atomic_load(&c->answer_tokens)},
    };
    int rc = metrics_append(b, list, BASE_ARRAY_LEN(list));
    if (!rc) rc = append_responses(b, c);
    if (!rc) rc = append_times(b, c);
    if (!rc) rc = append_drafts(b, c);
    return rc ? rc : append_tiers(b, c);
}

/* Metrics of the program that runs the server. */
static int append_program(base_buffer *b, rp_server *s) {
    char text[RP_SERVER_METRICS_BYTES] = "";
    if (!s->options.on_metrics) return 0;
    s->options.on_metrics(s->options.user, text, sizeof(text));
    return base_buffer_append_str(b, text);
}

void handle_metrics(server_request *x) {
    base_buffer text = BASE_BUFFER(METRICS_BYTES);
    int failed = append_server(&text, x->server) || append_program(&text, x->server) ||
                 x->server->layers->metrics(&text, x->server);
    if (failed) base_buffer_clear(&text);
    server_request_reply_text(x, failed ? 500 : 200, "text/plain; version=0.0.4; charset=utf-8", &text);
}

/* ---- JSON ---- */

void handle_cache(server_request *x) {
    rp_store_stats t = {.struct_size = sizeof(t)};
    rp_engine_store_stats(x->model->engine, &t);
    server_request_reply_json(
        x, 200,
        json_pack("{s:s, s:{s:I, s:I, s:I, s:I}, s:{s:I, s:I, s:I, s:I, s:I}, s:I, s:I}", "object", "cache", "ram",
                  "spans", (json_int_t)t.spans, "bytes", (json_int_t)t.bytes, "used_bytes", (json_int_t)t.used_bytes,
                  "budget_bytes", (json_int_t)t.budget_bytes, "disk", "records", (json_int_t)t.disk_spans, "bytes",
                  (json_int_t)t.disk_bytes, "budget_bytes", (json_int_t)t.disk_budget_bytes, "unwritten",
                  (json_int_t)t.disk_unwritten, "faults", (json_int_t)t.disk_faults, "hits", (json_int_t)t.hits,
                  "misses", (json_int_t)t.misses));
}

void handle_explain(server_request *x) {
    base_buffer text = BASE_BUFFER(SERVER_MAX_REPORT_BYTES);
    if (report_ring_get(x->server->reports, x->name, x->key->tenant, &text) == 0) {
        server_request_reply_text(x, 200, "application/json", &text);
        return;
    }
    base_buffer_free(&text);
    server_fail(&x->problem, SERVER_NOT_FOUND, "id", "unknown request '%.40s': only the last %d answers are kept",
                x->name, SERVER_MAX_REPORTS);
    server_request_reply_problem(x);
}

void handle_requests(server_request *x) {
    base_buffer text = BASE_BUFFER(SERVER_MAX_REPORTS * SERVER_MAX_REPORT_BYTES);
    const char *limit = server_request_query(x, "limit");
    char *end = NULL;
    bool more = false;
    unsigned long n = limit ? strtoul(limit, &end, 10) : DEFAULT_LISTED;
    if (limit && (!*limit || *end || n == 0 || n > SERVER_MAX_REPORTS))
        server_fail(&x->problem, SERVER_INVALID, "limit", "'limit' is '%.40s': give 1 to %d", limit,
                    SERVER_MAX_REPORTS);
    int rc = x->problem.kind ? 0 : base_buffer_append_str(&text, "{\"object\":\"list\",\"data\":[");
    if (!rc && !x->problem.kind) rc = report_ring_list(x->server->reports, x->key->tenant, n, &text, &more);
    if (!rc && !x->problem.kind) rc = base_buffer_printf(&text, "],\"has_more\":%s}", more ? "true" : "false");
    if (rc) server_fail_memory(&x->problem);
    if (!x->problem.kind) {
        server_request_reply_text(x, 200, "application/json", &text);
        return;
    }
    base_buffer_free(&text);
    server_request_reply_problem(x);
}
