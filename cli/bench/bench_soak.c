/* SPDX-License-Identifier: Apache-2.0 */
/* bench_soak.c: a long mixed load that checks that memory stays flat and within its budgets, and that answers do not
 * change.
 *
 * Requests are drawn at random (bench_soak_calls.c); meanwhile schemas are replaced, requests cancelled, and bursts of
 * requests refused. Some prompts recur, and their answers must equal the first ones. Resident memory is compared with
 * its peak in the first quarter, or until the KV budget was full for the first time, if that is later. With a store on
 * disk its folder is watched, too (bench_disk.h), and the budget is the disk's.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_soak.h"
#include "common/command.h"
#include "reprise_pml.h"
#include "reprise_store.h"

#define TELL_EVERY_MS 10000.0
#define LOOK_EVERY_MS 250.0
#define SCHEMA_EVERY 60 /* mean number of requests, like the next three */
#define ENCODE_EVERY 300
#define CANCEL_EVERY 12
#define BURST_EVERY 500
#define BURST_CALLS 400 /* exceeds the capacity of the engine and its queue */
#define UNITS 16        /* of soak_source.unit in a context */
#define LARGEST_CONTEXT 2048
#define LATEST_SETTLED 0.75                /* share of the time: after a later settling, the rest is too short to
                                              judge */
#define GROWTH_SHARE 0.02                  /* allowed growth of resident memory after it has settled, */
#define GROWTH_BYTES ((uint64_t)8 << 20)   /* the tokens of 4,096 evicted spans, and as much again */
#define PROGRAM_BYTES ((uint64_t)48 << 20) /* code, vocabulary, tokens and results of requests, the ghost list */

typedef struct soak {
    bench_session *session;
    bench_driver *driver;
    soak_source source;
    double start_ms, end_ms, reported_ms, looked_ms;
    double full_ms;         /* time of the first eviction: from disk, if there is one */
    bench_disk_watch *disk; /* NULL: there is none */
    int32_t alive;          /* target number of concurrent requests; changes */
    bool had_burst;
    int32_t *answers[SOAK_KNOWN], n_answers[SOAK_KNOWN];
} soak;

/* ---- memory ---- */

static void soak_report(soak *s, double now) {
    FILE *to = s->session->options->json ? stderr : stdout;
    bench_driver *d = s->driver;
    uint64_t done = 0, failed = 0;
    for (int i = 0; i < d->n_kinds; i++) done += d->kinds[i].done, failed += d->kinds[i].failed;
    pthread_mutex_lock(&d->lock);
    int32_t running = d->n_running, waiting = d->n_waiting;
    double states = (double)d->kv_bytes / 1048576;
    pthread_mutex_unlock(&d->lock);
    fprintf(to,
            "%6.0f s  %llu requests done, %llu ended early, %llu faults; resident %.1f MiB, KV %.1f MiB; %d running, "
            "%d waiting\n",
            (now - s->start_ms) / 1e3, (unsigned long long)done, (unsigned long long)failed,
            (unsigned long long)d->faults, (double)bench_process_now().resident_bytes / 1048576, states, (int)running,
            (int)waiting);
    fflush(to);
    s->reported_ms = now;
}

/* Time after which memory must not grow. */
static double settled_ms(const soak *s) {
    double quarter = s->start_ms + (s->end_ms - s->start_ms) / 4;
    return s->full_ms > quarter ? s->full_ms : quarter;
}

static void soak_look(soak *s) {
    double now = cli_now_ms();
    if (now - s->looked_ms < LOOK_EVERY_MS) return;
    bench_verdict *v = &s->session->verdict;
    rp_store_stats store = {.struct_size = sizeof(store)};
    rp_engine_store_stats(s->driver->loaded->engine, &store);
    if (s->full_ms == INFINITY && (s->disk != NULL ? store.disk_evictions : store.evictions) > 0) s->full_ms = now;
    uint64_t bytes = bench_process_now().resident_bytes,
             *most = now <= settled_ms(s) ? &v->first_bytes : &v->later_bytes;
    if (bytes > *most) *most = bytes;
    if (now > settled_ms(s)) bench_disk_watch_settled(s->disk);
    s->looked_ms = now;
    if (now - s->reported_ms >= TELL_EVERY_MS) soak_report(s, now);
}

static void soak_judge(soak *s) {
    bench_verdict *v = &s->session->verdict;
    rp_memory m = {.struct_size = sizeof(m)};
    rp_engine_memory(s->driver->loaded->engine, &m);
    rp_store_stats store = {.struct_size = sizeof(store)};
    rp_engine_store_stats(s->driver->loaded->engine, &store);
    bench_steps steps = bench_steps_now(s->driver);
    v->allowed_bytes = v->first_bytes + (uint64_t)((double)v->first_bytes * GROWTH_SHARE) + GROWTH_BYTES;
    v->budget_bytes = m.weights + m.file + m.activations + m.kv_limit + PROGRAM_BYTES;
    v->judged = settled_ms(s) <= s->start_ms + (s->end_ms - s->start_ms) * LATEST_SETTLED && !cli_interrupted();
    v->flat = !v->judged || v->later_bytes <= v->allowed_bytes;
    v->inside = bench_process_now().peak_bytes <= v->budget_bytes && steps.max_kv_bytes <= m.kv_limit;
    bench_disk_watch_end(s->disk, store.disk_write_bytes, v->judged, &v->disk);
}

/* ---- requests ---- */

static void check_answer(soak *s, int known, const rp_result *r) {
    if (s->answers[known] == NULL) {
        s->answers[known] = cli_alloc((size_t)r->n_tokens * sizeof(int32_t));
        s->n_answers[known] = r->n_tokens;
        memcpy(s->answers[known], r->tokens, (size_t)r->n_tokens * sizeof(int32_t));
        return;
    }
    s->session->verdict.checked++;
    if (r->n_tokens != s->n_answers[known] ||
        memcmp(r->tokens, s->answers[known], (size_t)r->n_tokens * sizeof(int32_t)) != 0)
        bench_fault(s->driver, "the answer to prompt %d differs from its first answer", known);
}

static void bench_soak_on_ended(void *user, const bench_call *c, const rp_result *r, const rp_error *err) {
    soak *s = user;
    (void)err;
    if (r != NULL && c->tag > 0 && strcmp(r->finish_reason, "cancelled") != 0) check_answer(s, (int)c->tag - 1, r);
    soak_look(s);
}

static void soak_submit(soak *s) {
    soak_draft draft;
    soak_draw(&s->source, &draft);
    bench_submit(
        s->driver, &draft.request,
        &(bench_place){.kind = draft.kind, .due_ms = cli_now_ms(), .tag = draft.known, .stop_after = draft.stop_after});
    soak_draft_free(&draft);
}

static void soak_load_schema(soak *s, int schema) {
    char *document = soak_schema(&s->source, schema);
    rp_error err;
    if (rp_schema_parse(s->driver->loaded->engine, document, strlen(document), "soak", NULL, NULL, NULL, &err) != RP_OK)
        bench_fault(s->driver, "%s", err.message);
    free(document);
}

static void replace_schema(soak *s) {
    int schema = 1 + (int)bench_random_below(&s->source.state, SOAK_SCHEMAS - 1);
    s->source.versions[schema]++;
    soak_load_schema(s, schema);
}

static void prefill_schema(soak *s) {
    char name[16];
    rp_error err;
    snprintf(name, sizeof name, "s%u", (unsigned)bench_random_below(&s->source.state, SOAK_SCHEMAS));
    int rc = rp_schema_prefill(s->driver->loaded->engine, NULL, name, NULL, NULL, &err);
    if (rc != RP_OK && rc != RP_ERR_BUSY) bench_fault(s->driver, "%s", err.message);
}

static void cancel_one(soak *s) {
    bench_call *c = s->driver->newest;
    for (uint32_t i = bench_random_below(&s->source.state, 16); i > 0 && c != NULL && c->older != NULL; i--)
        c = c->older;
    if (c != NULL && c->tag == 0) rp_job_cancel(c->call);
}

static bool soak_once_in(soak *s, uint32_t n) { return bench_random_below(&s->source.state, n) == 0; }

static void soak_act(soak *s) {
    if (soak_once_in(s, SCHEMA_EVERY)) replace_schema(s);
    if (soak_once_in(s, ENCODE_EVERY)) prefill_schema(s);
    if (soak_once_in(s, CANCEL_EVERY)) cancel_one(s);
    if (soak_once_in(s, SCHEMA_EVERY))
        s->alive = 1 + (int32_t)bench_random_below(&s->source.state, (uint32_t)s->session->options->parallel);
    int32_t n =
        !s->had_burst || soak_once_in(s, BURST_EVERY) ? BURST_CALLS : 1; /* a burst first: it belongs to the baseline */
    s->had_burst = true;
    for (int32_t i = 0; i < n && !cli_interrupted(); i++) soak_submit(s);
    bench_wait_alive(s->driver, s->alive - 1);
    soak_look(s);
}

/* ---- the load ---- */

static int open_source(soak *s) {
    const bench_options *o = s->session->options;
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_model_describe(s->driver->loaded->model, &info);
    int32_t ctx = o->engine.ctx > 0 ? o->engine.ctx : info.n_ctx_train;
    if (ctx > LARGEST_CONTEXT) ctx = LARGEST_CONTEXT;
    if (ctx < 8 * UNITS)
        return cli_fail(CLI_WRONG_USE, "the context has %d tokens, but this load needs %d: raise --ctx", (int)ctx,
                        8 * UNITS);
    s->source = (soak_source){
        .words = s->session->words, .seed = o->seed, .unit = ctx / UNITS, .state = bench_random_stream(o->seed, 0)};
    return CLI_OK;
}

int bench_soak(bench_session *session) {
    bench_driver *d = session->driver;
    double ms = session->options->seconds * 1e3;
    soak s = {.session = session, .driver = d, .alive = session->options->parallel};
    int status = open_source(&s);
    if (status != CLI_OK) return status;
    d->n_kinds = 2;
    d->kinds[SOAK_TEXT].name = "texts";
    d->kinds[SOAK_MODULAR].name = "modular";
    d->tolerated = 1u << -RP_ERR_BUSY | 1u << -RP_ERR_DEADLINE | 1u << -RP_ERR_CANCELLED;
    d->on_ended = bench_soak_on_ended;
    d->user = &s;
    if (session->options->engine.store != NULL) {
        rp_store_stats store = {.struct_size = sizeof(store)};
        rp_engine_store_stats(d->loaded->engine, &store);
        if ((status = bench_disk_watch_begin(&s.disk, session->options->engine.store, store.disk_budget_bytes)) !=
            CLI_OK)
            return status;
    }
    bench_driver_restart(d);
    s.start_ms = s.reported_ms = cli_now_ms();
    s.full_ms = INFINITY;
    s.end_ms = s.start_ms + ms;
    for (int i = 0; i < SOAK_SCHEMAS; i++) soak_load_schema(&s, i);
    while (cli_now_ms() < s.end_ms && !cli_interrupted()) soak_act(&s);
    bench_wait_alive(d, 0);
    soak_judge(&s);
    d->on_ended = NULL;
    for (int i = 0; i < SOAK_KNOWN; i++) free(s.answers[i]);
    return cli_interrupted() ? CLI_INTERRUPTED : CLI_OK;
}
