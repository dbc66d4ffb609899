/* SPDX-License-Identifier: Apache-2.0 */
/* serve_otlp.c: see serve_otlp.h. Owns the ring, the sender's thread and its connection. `lock` guards the ring and
 * `stopping`; the counts are atomic; everything else belongs to the sender's thread. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */

#include "serve_otlp.h"

#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "common/command.h"
#include "common/console.h"
#include "common/http_client.h"
#include "reprise.h"

#define OTLP_RING 4096      /* requests that wait to be sent: some 2 MiB */
#define OTLP_BATCH 128      /* requests in one POST */
#define OTLP_GATHER_MS 1000 /* a batch waits this long for more requests */
#define OTLP_RETRY_MS 1000  /* after the first failure; doubled for each further one */
#define OTLP_RETRY_MAX_MS 30000
#define OTLP_TIMEOUT_MS 10000L
#define OTLP_LAST_MS 2000L /* at the end, for the attempt under way, or for the last one */
#define TEXT_BYTES 160
#define RANDOM_BITS 56 /* of a trace id, its last ones: W3C Trace Context, level 2 */
#define PARTS 5

typedef struct otlp_record {
    uint64_t end_ns; /* since 1970 */
    double receive_ms, total_ms, part_ms[PARTS];
    int64_t prompt_tokens, cached_tokens, answer_tokens;
    int32_t status;
    bool has_answer;
    char trace[33], parent[17]; /* hex digits; parent: "" for the root of a trace */
    char id[40], method[16], route[64], error[TEXT_BYTES];
} otlp_record;

static const char *const part_names[PARTS] = {"queue", "module prefill", "plan", "prompt prefill", "decode"};

struct serve_otlp {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    otlp_record *ring;
    size_t first, n; /* oldest record, number */
    bool stopping;
    double stop_ms;                         /* since when */
    uint64_t threshold;                     /* of sampling: see otlp_is_sampled */
    _Atomic uint64_t sent, dropped, failed; /* requests; requests; POSTs */
    http_target target;
    http_transfer transfer;
    otlp_record *batch;
    bool is_down; /* the last attempt failed: reported once */
    bool is_last; /* the attempt at the end is under way */
};

/* ---- the ring ---- */

static uint64_t otlp_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void otlp_copy(char *to, size_t size, const char *from) { snprintf(to, size, "%s", from); }

static void otlp_random_id(char *hex, size_t n_bytes) {
    unsigned char bytes[16];
    randombytes_buf(bytes, n_bytes);
    sodium_bin2hex(hex, 2 * n_bytes + 1, bytes, n_bytes);
}

/* The trace and the parent of a request, and whether its trace is exported. OpenTelemetry's TraceIdRatioBased rule: the
 * last 56 bits of a trace id, which are random, are not below the threshold (1 - ratio) * 2^56. All services with the
 * same ratio choose the same traces, and those of a smaller ratio are some of those of a larger one. */
static bool otlp_is_sampled(const serve_otlp *o, const char *traceparent, char trace[33], char parent[17]) {
    if (traceparent[0] != '\0') {
        snprintf(trace, 33, "%.32s", traceparent + 3);
        snprintf(parent, 17, "%.16s", traceparent + 36);
        return strchr("13579bdf", traceparent[54]) != NULL;
    }
    otlp_random_id(trace, 16);
    parent[0] = '\0';
    return strtoull(trace + 32 - RANDOM_BITS / 4, NULL, 16) >= o->threshold;
}

void serve_otlp_add(void *user, const rp_server_request *q) {
    serve_otlp *o = user;
    char trace[33], parent[17];
    if (strcmp(q->method, "GET") == 0) return; /* scrapes and health checks */
    if (!otlp_is_sampled(o, q->traceparent, trace, parent)) return;
    uint64_t now = otlp_clock_ns();
    pthread_mutex_lock(&o->lock);
    bool fits = o->n < OTLP_RING;
    if (fits) {
        otlp_record *r = &o->ring[(o->first + o->n++) % OTLP_RING];
        const rp_timings *t = &q->timings;
        *r = (otlp_record){
            .end_ns = now,
            .receive_ms = q->receive_ms,
            .total_ms = q->total_ms,
            .part_ms = {t->queue_ms, t->module_prefill_ms, t->plan_ms, t->prompt_prefill_ms, t->decode_ms},
            .prompt_tokens = q->prompt_tokens,
            .cached_tokens = q->cached_tokens,
            .answer_tokens = q->answer_tokens,
            .status = q->status,
            .has_answer = q->has_answer};
        otlp_copy(r->id, sizeof r->id, q->id);
        otlp_copy(r->method, sizeof r->method, q->method);
        otlp_copy(r->route, sizeof r->route, q->route);
        otlp_copy(r->trace, sizeof r->trace, trace);
        otlp_copy(r->parent, sizeof r->parent, parent);
        otlp_copy(r->error, sizeof r->error, q->error);
        if (o->n == 1 || o->n == OTLP_BATCH) pthread_cond_signal(&o->changed);
    }
    pthread_mutex_unlock(&o->lock);
    if (!fits) atomic_fetch_add(&o->dropped, 1);
}

void serve_otlp_metrics(void *user, char *text, size_t size) {
    serve_otlp *o = user;
    snprintf(
        text, size,
        "# HELP reprise_otlp_requests_total Requests whose spans were sent to the OpenTelemetry collector.\n"
        "# TYPE reprise_otlp_requests_total counter\n"
        "reprise_otlp_requests_total %" PRIu64 "\n"
        "# HELP reprise_otlp_dropped_total Requests whose spans were dropped: the collector was slow, down, or refused "
        "them.\n"
        "# TYPE reprise_otlp_dropped_total counter\n"
        "reprise_otlp_dropped_total %" PRIu64 "\n"
        "# HELP reprise_otlp_failures_total Failed attempts to send spans to the OpenTelemetry collector.\n"
        "# TYPE reprise_otlp_failures_total counter\n"
        "reprise_otlp_failures_total %" PRIu64 "\n",
        atomic_load(&o->sent), atomic_load(&o->dropped), atomic_load(&o->failed));
}

/* ---- spans as JSON ---- */

static json_t *otlp_text(const char *key, const char *value) {
    json_t *text = json_string(value);
    if (text == NULL) text = json_string("(not UTF-8)");
    return json_pack("{s:s, s:{s:o}}", "key", key, "value", "stringValue", text);
}

/* 64-bit integers are strings in the JSON of protobuf. */
static json_t *otlp_integer(const char *key, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    return json_pack("{s:s, s:{s:s}}", "key", key, "value", "intValue", text);
}

static json_t *otlp_span(const char *trace, const char *id, const char *parent, const char *name, int kind,
                         uint64_t start_ns, uint64_t end_ns) {
    char start[24], end[24];
    snprintf(start, sizeof start, "%" PRIu64, start_ns);
    snprintf(end, sizeof end, "%" PRIu64, end_ns);
    json_t *span = json_pack("{s:s, s:s, s:s, s:i, s:s, s:s}", "traceId", trace, "spanId", id, "name", name, "kind",
                             kind, "startTimeUnixNano", start, "endTimeUnixNano", end);
    if (parent != NULL) json_object_set_new(span, "parentSpanId", json_string(parent));
    return span;
}

static void otlp_add_attributes(json_t *span, const otlp_record *r) {
    json_t *list = json_array();
    json_array_append_new(list, otlp_text("http.request.method", r->method));
    json_array_append_new(list, otlp_text("http.route", r->route));
    json_array_append_new(list, otlp_integer("http.response.status_code", r->status));
    json_array_append_new(list, otlp_text("reprise.request.id", r->id));
    if (r->has_answer) {
        json_array_append_new(list, otlp_integer("gen_ai.usage.input_tokens", r->prompt_tokens));
        json_array_append_new(list, otlp_integer("gen_ai.usage.output_tokens", r->answer_tokens));
        json_array_append_new(list, otlp_integer("reprise.cached_tokens", r->cached_tokens));
    }
    json_object_set_new(span, "attributes", list);
    bool is_failed =
        r->status >= 500 || (r->status < 400 && r->error[0] != '\0'); /* errors of clients are not the server's */
    json_t *message = is_failed ? json_string(r->error) : NULL;
    if (is_failed)
        json_object_set_new(span, "status",
                            json_pack("{s:i, s:o}", "code", 2, "message", message ? message : json_string("")));
}

/* Appends the spans of a request. */
static void otlp_add_spans(json_t *spans, const otlp_record *r) {
    char root[17], id[17], name[96];
    otlp_random_id(root, 8);
    snprintf(name, sizeof name, "%s %s", r->method, r->route);
    uint64_t start = r->end_ns - (uint64_t)(r->total_ms * 1e6);
    json_t *span = otlp_span(r->trace, root, r->parent[0] != '\0' ? r->parent : NULL, name, 2, start, r->end_ns);
    otlp_add_attributes(span, r);
    json_array_append_new(spans, span);
    double at_ms = r->receive_ms;
    for (int i = 0; i < PARTS && r->has_answer; i++) {
        uint64_t at = start + (uint64_t)(at_ms * 1e6);
        at_ms += r->part_ms[i];
        otlp_random_id(id, 8);
        json_array_append_new(spans,
                              otlp_span(r->trace, id, root, part_names[i], 1, at, start + (uint64_t)(at_ms * 1e6)));
    }
}

static char *otlp_body(const otlp_record *batch, size_t n) {
    const char *name = getenv("OTEL_SERVICE_NAME");
    json_t *spans = json_array();
    for (size_t i = 0; i < n; i++) otlp_add_spans(spans, &batch[i]);
    json_t *root = json_pack("{s:[{s:{s:[o, o]}, s:[{s:{s:s, s:s}, s:o}]}]}", "resourceSpans", "resource", "attributes",
                             otlp_text("service.name", name != NULL && name[0] != '\0' ? name : "reprise"),
                             otlp_text("service.version", rp_version()), "scopeSpans", "scope", "name", "reprise",
                             "version", rp_version(), "spans", spans);
    char *text = root != NULL ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (text == NULL) exit(cli_fail(CLI_FAILED, "out of memory"));
    return text;
}

/* ---- sending ---- */

static bool otlp_ignore_body(void *user, const char *bytes, size_t n) {
    (void)user, (void)bytes, (void)n;
    return true;
}

static bool otlp_is_stopping(serve_otlp *o) {
    pthread_mutex_lock(&o->lock);
    bool stopping = o->stopping;
    pthread_mutex_unlock(&o->lock);
    return stopping;
}

/* The end waits no longer. */
static bool otlp_is_over(serve_otlp *o) {
    pthread_mutex_lock(&o->lock);
    bool over = o->stopping && cli_now_ms() > o->stop_ms + OTLP_LAST_MS;
    pthread_mutex_unlock(&o->lock);
    return over;
}

/* libcurl's progress. The end does not cut off an attempt at once: the collector may have its spans already, and would
 * get them twice. */
static int otlp_on_progress(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up_now) {
    serve_otlp *o = user;
    (void)total, (void)now, (void)up_total, (void)up_now;
    return !o->is_last && otlp_is_over(o);
}

typedef enum otlp_outcome { OTLP_SENT,
                            OTLP_LATER,
                            OTLP_REFUSED } otlp_outcome;

/* Reports the first failure after a success. */
static void otlp_report(serve_otlp *o, const char *why) {
    char line[512];
    if (!o->is_down) {
        snprintf(line, sizeof line, "warning: --otlp: %s: %s; spans wait, and those beyond %d requests are dropped",
                 o->target.name, why, OTLP_RING);
        rp_log_line(line);
    }
    o->is_down = true;
}

static otlp_outcome otlp_send(serve_otlp *o, size_t n) {
    char *body = otlp_body(o->batch, n), why[64];
    http_request q = {.method = "POST", .path = "/v1/traces", .body = body, .n_body = strlen(body)};
    http_transfer_set(&o->transfer, &o->target, &q);
    curl_easy_setopt(o->transfer.handle, CURLOPT_TIMEOUT_MS, o->is_last ? OTLP_LAST_MS : OTLP_TIMEOUT_MS);
    curl_easy_setopt(o->transfer.handle, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(o->transfer.handle, CURLOPT_XFERINFOFUNCTION, otlp_on_progress);
    curl_easy_setopt(o->transfer.handle, CURLOPT_XFERINFODATA, o);
    CURLcode rc = curl_easy_perform(o->transfer.handle);
    int status = rc == CURLE_OK ? http_transfer_status(&o->transfer) : 0;
    free(body); /* jansson's */
    if (status >= 200 && status < 300) {
        atomic_fetch_add(&o->sent, n);
        o->is_down = false;
        return OTLP_SENT;
    }
    atomic_fetch_add(&o->failed, 1);
    snprintf(why, sizeof why, "HTTP status %d", status);
    otlp_report(o, rc != CURLE_OK ? http_fault(o->transfer.why, rc) : why);
    return rc != CURLE_OK || status == 429 || (status >= 502 && status <= 504) ? OTLP_LATER : OTLP_REFUSED;
}

/* Waits until ms from now, or serve_otlp_stop. Locked. */
static void otlp_wait(serve_otlp *o, int64_t ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + ms % 1000 * 1000000;
    until.tv_sec += ms / 1000 + ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    while (!o->stopping && pthread_cond_timedwait(&o->changed, &o->lock, &until) == 0 && o->n < OTLP_BATCH) {}
}

/* Moves up to a batch out of the ring, once there is something, or at the end. Returns its size; 0: the end. */
static size_t otlp_take(serve_otlp *o) {
    pthread_mutex_lock(&o->lock);
    while (!o->stopping && o->n == 0) pthread_cond_wait(&o->changed, &o->lock);
    if (!o->stopping && o->n < OTLP_BATCH) otlp_wait(o, OTLP_GATHER_MS);
    size_t n = o->n < OTLP_BATCH ? o->n : OTLP_BATCH;
    for (size_t i = 0; i < n; i++) o->batch[i] = o->ring[(o->first + i) % OTLP_RING];
    o->first = (o->first + n) % OTLP_RING;
    o->n -= n;
    pthread_mutex_unlock(&o->lock);
    return n;
}

/* Waits before the next attempt. Unlike a batch's wait, a full ring does not end it. */
static void otlp_back_off(serve_otlp *o, int64_t ms) {
    double until = cli_now_ms() + (double)ms;
    pthread_mutex_lock(&o->lock);
    for (double left; !o->stopping && (left = until - cli_now_ms()) > 0;) otlp_wait(o, (int64_t)left + 1);
    pthread_mutex_unlock(&o->lock);
}

static void *otlp_run(void *user) {
    serve_otlp *o = user;
    bool gives_up = false;      /* at the end, after a failure */
    prctl(PR_SET_NAME, "otlp"); /* tools/bench_otlp, `top -H` */
    size_t n;
    while ((n = otlp_take(o)) > 0) {
        otlp_outcome outcome = OTLP_LATER;
        int64_t delay = OTLP_RETRY_MS;
        while (outcome == OTLP_LATER && !gives_up) {
            o->is_last = otlp_is_stopping(o);
            outcome = otlp_send(o, n);
            gives_up = outcome == OTLP_LATER && (o->is_last || otlp_is_over(o));
            if (outcome == OTLP_LATER && !gives_up) otlp_back_off(o, delay);
            delay = delay < OTLP_RETRY_MAX_MS / 2 ? 2 * delay : OTLP_RETRY_MAX_MS;
        }
        if (outcome != OTLP_SENT) atomic_fetch_add(&o->dropped, n);
    }
    return NULL;
}

/* ---- start and end ---- */

static void otlp_free(serve_otlp *o) {
    if (o->transfer.handle != NULL) http_transfer_close(&o->transfer);
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->lock);
    free(o->ring);
    free(o->batch);
    free(o);
}

int serve_otlp_start(serve_otlp **out, const char *url, double sample) {
    pthread_condattr_t attributes;
    serve_otlp *o = cli_alloc(sizeof *o);
    o->threshold = (uint64_t)((1 - sample) * (double)(UINT64_C(1) << RANDOM_BITS));
    int status = http_target_read(&o->target, "--otlp", url, NULL, getenv("OTEL_EXPORTER_OTLP_CERTIFICATE"));
    pthread_mutex_init(&o->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&o->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    if (status == CLI_OK && sodium_init() < 0) status = cli_fail(CLI_FAILED, "libsodium cannot start");
    if (status == CLI_OK) {
        o->ring = cli_alloc(OTLP_RING * sizeof *o->ring);
        o->batch = cli_alloc(OTLP_BATCH * sizeof *o->batch);
        http_transfer_open(&o->transfer, &o->target, otlp_ignore_body, NULL);
        if (pthread_create(&o->thread, NULL, otlp_run, o) != 0)
            status = cli_fail(CLI_FAILED, "cannot start a thread for --otlp");
    }
    if (status != CLI_OK) otlp_free(o);
    else *out = o;
    return status;
}

void serve_otlp_stop(serve_otlp *o) {
    if (o == NULL) return;
    pthread_mutex_lock(&o->lock);
    o->stopping = true;
    o->stop_ms = cli_now_ms();
    pthread_cond_signal(&o->changed);
    pthread_mutex_unlock(&o->lock);
    pthread_join(o->thread, NULL);
    otlp_free(o);
}
