/* SPDX-License-Identifier: Apache-2.0 */
/* bench_http.c: overhead of the HTTP server: the same requests to one engine, by rp_engine_submit and over HTTP.
 *
 *   bench_http MODEL.gguf [--requests N] [--rounds N] [--parallel N] [--prompt N] [--answer N] [--threads N] [--whole]
 *
 * One process holds the engine, a server on a free port of the loopback device, and the clients, so HTTP figures
 * include the clients' cost.
 *
 *   one by one   --requests (40) pairs: a streamed completion of --prompt (64) new tokens and --answer (16) generated
 *                ones, by each way, in alternating order. Times are client-side: to the first text, and to the end.
 *   together     --rounds (6) times: --parallel (16) clients in a closed loop, 8 requests each, by each way; tokens/s,
 *                and processor time of the whole process per request, which is the better figure on a shared machine
 *                (with --threads 1: engine threads that wait for each other use some). The engine runs half as many
 *                requests together, so it is never idle, and a client's turnaround does not limit throughput. Answers
 *                have half to one and a half times --answer tokens: equal ones would all end in one step.
 *
 * Every prompt has new words, so neither way hits the KV of the other. --whole: replies are not streamed. Uses public
 * interfaces, and the program's own HTTP client (cli/common/http_client.h) with one persistent connection per client.
 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/console.h"
#include "common/http_client.h"
#include "common/sse_reader.h"
#include "reprise_server.h"
#include "support.h"

#define MAX_SAMPLES 4096
#define MAX_CALLERS 256
#define ASKS_EACH 8

typedef enum way { LIBRARY,
                   HTTP,
                   WAYS } way;
static const char *const way_names[] = {"library", "HTTP"};

typedef struct bench {
    rp_model *model;
    rp_engine *engine;
    rp_server *server;
    http_target target;
    int requests, rounds, parallel, prompt, answer, threads;
    bool whole;
    double first_ms[WAYS][MAX_SAMPLES], total_ms[WAYS][MAX_SAMPLES], rate[WAYS][MAX_SAMPLES];
    double used_ms[WAYS][MAX_SAMPLES]; /* processor time per request, all threads */
} bench;

/* A client, by one way or the other. */
typedef struct caller {
    bench *b;
    int index;
    int answer;             /* tokens of its current request */
    http_transfer transfer; /* opened on first use */
    unsigned seed;
    way way;
    double first_s; /* time of the first text; 0: none yet */
    bool said_done;
    long tokens; /* of all its answers */
    sse_reader events;
    pthread_t thread;
} caller;

/* ---- requests ---- */

static bool on_text(void *user, const char *text, size_t n) {
    caller *c = user;
    (void)text;
    if (n > 0 && c->first_s == 0) c->first_s = bench_now_s();
    return true;
}

static void ask_library(caller *c, const char *text) {
    rp_request q = rp_request_defaults();
    rp_job *call;
    rp_result *r;
    rp_error err;
    q.prompt = rp_prompt_text(text);
    q.max_tokens = c->answer;
    q.ignore_eos = true;
    q.on_text = c->b->whole ? NULL : on_text;
    q.user = c;
    if (rp_engine_submit(c->b->engine, &q, &call, &err)) bench_die("submit", &err);
    if (rp_job_result(call, &r, &err)) bench_die("result", &err);
    c->tokens += r->n_tokens;
    rp_result_free(r);
    rp_job_free(call);
}

static void on_event(void *user, const char *event, const char *data, size_t n) {
    caller *c = user;
    (void)event;
    if (strcmp(data, "[DONE]") == 0) c->said_done = true;
    else on_text(c, data, n);
}

static bool on_body(void *user, const char *bytes, size_t n) {
    caller *c = user;
    if (c->b->whole) c->said_done = true;
    else if (!sse_reader_feed(&c->events, bytes, n)) bench_die("an event is too long", NULL);
    return true;
}

static void ask_http(caller *c, const char *text) {
    bench_text body = {0};
    if (c->transfer.handle == NULL) http_transfer_open(&c->transfer, &c->b->target, on_body, c);
    bench_text_add(&body,
                   "{\"prompt\": \"%s\", \"max_tokens\": %d, \"temperature\": 0, \"ignore_eos\": true, \"stream\": %s}",
                   text, c->answer, c->b->whole ? "false" : "true");
    http_request q = {.method = "POST", .path = "/v1/completions", .body = body.bytes, .n_body = body.n};
    http_transfer_set(&c->transfer, &c->b->target, &q);
    sse_reader_begin(&c->events, on_event, c);
    c->said_done = false;
    CURLcode rc = curl_easy_perform(c->transfer.handle);
    bench_text_free(&body);
    if (rc != CURLE_OK || http_transfer_status(&c->transfer) != 200 || !c->said_done)
        bench_die("no answer over HTTP", NULL);
    c->tokens += c->answer;
}

/* One request with a new prompt. Returns the time at which it was sent. */
static double ask(caller *c) {
    bench_text text = {0};
    bench_text_add_words(&text, c->b->model, (size_t)c->b->prompt, &c->seed);
    c->first_s = 0;
    double start = bench_now_s();
    if (c->way == HTTP) ask_http(c, text.bytes);
    else ask_library(c, text.bytes);
    bench_text_free(&text);
    return start;
}

static caller *callers_new(bench *b, int n) {
    static unsigned seed = 7;
    caller *all = cli_alloc((size_t)n * sizeof *all);
    for (int i = 0; i < n; i++) {
        all[i].b = b;
        all[i].index = i;
        all[i].answer = b->answer;
        all[i].seed = seed += 1000;
    }
    return all;
}

static void callers_free(caller *all, int n) {
    for (int i = 0; i < n; i++) {
        if (all[i].transfer.handle != NULL) http_transfer_close(&all[i].transfer);
        sse_reader_free(&all[i].events);
    }
    free(all);
}

/* ---- one by one ---- */

static void run_pairs(bench *b) {
    caller *c = callers_new(b, 1);
    for (int i = -2; i < b->requests; i++) /* two warm-up pairs */
        for (int k = 0; k < WAYS; k++) {
            c->way = (way)((i + k) & 1);
            double start = ask(c), end = bench_now_s();
            if (i < 0) continue;
            b->first_ms[c->way][i] = ((c->first_s > 0 ? c->first_s : end) - start) * 1e3;
            b->total_ms[c->way][i] = (end - start) * 1e3;
        }
    callers_free(c, 1);
}

/* ---- together ---- */

static void *ask_again(void *user) {
    caller *c = user;
    for (int i = 0; i < ASKS_EACH; i++) {
        c->answer = (c->b->answer + 1) / 2 + (37 * c->index + 11 * i) % (c->b->answer + 1); /* the same by both ways */
        ask(c);
    }
    return NULL;
}

static double processor_ms(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

/* Returns tokens/s. */
static double run_round(caller *all, int n, way w, double *used_ms) {
    long tokens = 0;
    double start = bench_now_s(), used = processor_ms();
    for (int i = 0; i < n; i++) {
        all[i].way = w;
        all[i].tokens = 0;
        if (pthread_create(&all[i].thread, NULL, ask_again, &all[i])) bench_die("thread", NULL);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(all[i].thread, NULL);
        tokens += all[i].tokens;
    }
    *used_ms = (processor_ms() - used) / (n * ASKS_EACH);
    return (double)tokens / (bench_now_s() - start);
}

static void run_rounds(bench *b) {
    caller *all = callers_new(b, b->parallel);
    for (int i = 0; i < b->rounds; i++)
        for (int k = 0; k < WAYS; k++) {
            way w = (way)((i + k) & 1);
            b->rate[w][i] = run_round(all, b->parallel, w, &b->used_ms[w][i]);
            fprintf(stderr, "bench_http: round %d, %s: %.1f tokens/s, %.2f ms of processors a request\n", i + 1,
                    way_names[w], b->rate[w][i], b->used_ms[w][i]);
        }
    callers_free(all, b->parallel);
}

/* ---- results ---- */

static void print_times(const char *what, double ms[WAYS][MAX_SAMPLES], int n) {
    double more[MAX_SAMPLES];
    for (int i = 0; i < n; i++) more[i] = ms[HTTP][i] - ms[LIBRARY][i];
    double middle = bench_median(more, (size_t)n), p90 = more[n * 9 / 10]; /* bench_median sorted them */
    double library = bench_median(ms[LIBRARY], (size_t)n), http = bench_median(ms[HTTP], (size_t)n);
    printf("| %s, ms | %.2f | %.2f | %.3f | %+.2f (p90 %+.2f) |\n", what, library, http, http / library, middle, p90);
}

static void report(bench *b) {
    double ratio[MAX_SAMPLES], more[MAX_SAMPLES];
    for (int i = 0; i < b->requests; i++) more[i] = b->total_ms[HTTP][i] - b->total_ms[LIBRARY][i];
    for (int i = 0; i < b->rounds; i++) ratio[i] = b->rate[HTTP][i] / b->rate[LIBRARY][i];
    double a_request = bench_median(more, (size_t)b->requests), throughput = bench_median(ratio, (size_t)b->rounds);
    printf("%d tokens of prompt, %d of answer, %s; %d threads; %d pairs, %d rounds of %d callers\n\n", b->prompt,
           b->answer, b->whole ? "whole" : "streamed", b->threads, b->requests, b->rounds, b->parallel);
    printf("| | library | HTTP | HTTP / library | median of differences |\n| --- | --- | --- | --- | --- |\n");
    if (!b->whole) print_times("first text", b->first_ms, b->requests);
    print_times("answer", b->total_ms, b->requests);
    printf("| together, tokens/s | %.1f | %.1f | %.3f | |\n", bench_median(b->rate[LIBRARY], (size_t)b->rounds),
           bench_median(b->rate[HTTP], (size_t)b->rounds), throughput);
    print_times("together, processors' time a request", b->used_ms, b->rounds);
    fprintf(stderr, "less than 2 ms a request: %s; less than 3 %% of throughput: %s\n",
            a_request < 2 ? "reached" : "MISSED", throughput > 0.97 ? "reached" : "MISSED");
}

/* ---- setup and teardown ---- */

static void *run_server(void *user) {
    rp_server_run(user);
    return NULL;
}

static void open_all(bench *b, const char *path) {
    rp_server_options s = rp_server_options_defaults();
    rp_engine_options e = rp_engine_options_defaults();
    rp_error err;
    s.port = 0;
    e.n_threads = b->threads;
    e.max_sequences = b->parallel > 3 ? b->parallel / 2 : 2;
    if (rp_model_open(&b->model, path, NULL, &err)) bench_die("model", &err);
    if (rp_engine_new(&b->engine, b->model, &e, &err)) bench_die("engine", &err);
    if (rp_engine_prepare(b->engine, NULL, NULL, &err)) bench_die("prepare", &err);
    if (rp_server_new(&b->server, &s, &err)) bench_die("server", &err);
    if (rp_server_ready(b->server, b->model, b->engine, &err)) bench_die("server", &err);
    if (http_target_open(&b->target, rp_server_address(b->server, 0), NULL, NULL)) exit(1);
}

static int number_after(int argc, char **argv, const char *name, int otherwise, int most) {
    for (int i = 2; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0) otherwise = atoi(argv[i + 1]);
    return otherwise > 0 && otherwise <= most ? otherwise : -1;
}

static bool read_arguments(bench *b, int argc, char **argv) {
    b->requests = number_after(argc, argv, "--requests", 40, MAX_SAMPLES);
    b->rounds = number_after(argc, argv, "--rounds", 6, MAX_SAMPLES);
    b->parallel = number_after(argc, argv, "--parallel", 16, MAX_CALLERS);
    b->prompt = number_after(argc, argv, "--prompt", 64, 100000);
    b->answer = number_after(argc, argv, "--answer", 16, 100000);
    b->threads = number_after(argc, argv, "--threads", 2, BENCH_MAX_THREADS);
    b->whole = bench_has_flag(argc, argv, "--whole");
    return argc >= 2 && argv[1][0] != '-' && b->requests > 0 && b->rounds > 0 && b->parallel > 0 && b->prompt > 0 &&
           b->answer > 0 && b->threads > 0;
}

int main(int argc, char **argv) {
    static bench b;
    pthread_t running;
    bench_name = "bench_http";
    if (!read_arguments(&b, argc, argv)) {
        fprintf(stderr, "usage: bench_http MODEL.gguf [--requests N] [--rounds N] [--parallel N] [--prompt N] "
                        "[--answer N] [--threads N] "
                        "[--whole]\n");
        return 2;
    }
    open_all(&b, argv[1]);
    if (pthread_create(&running, NULL, run_server, b.server)) bench_die("thread", NULL);
    run_pairs(&b);
    run_rounds(&b);
    report(&b);
    rp_server_stop(b.server);
    pthread_join(running, NULL);
    rp_server_free(b.server);
    rp_engine_free(b.engine);
    rp_model_close(b.model);
    return 0;
}
