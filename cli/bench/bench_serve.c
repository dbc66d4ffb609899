/* SPDX-License-Identifier: Apache-2.0 */
/* bench_serve.c: `reprise bench serve`: client-side latency of any server with OpenAI's chat completions API.
 *
 * Owns the command's options and the sequence of steps: bench_serve.h. The server is another process, of this program
 * or another.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench_serve.h"
#include "common/command.h"
#include "common/loader.h"

#define DEFAULT_SECONDS 10.0f
#define KEY_VARIABLE "REPRISE_API_KEY"

static const char *const workload_names[] = {"random", "chat", "retrieval", "trace",
                                             NULL};                            /* in the order of bench_workload_kind */
static const char *const reuse_names[] = {"prefix", "parts", "modular", NULL}; /* in the order of bench_reuse_kind */

#define AT(field) offsetof(bench_serve_options, field)
#define TOKENS_MAX (1 << 24)
static const cli_option options[] = {
    {.name = "url",
     .kind = CLI_TEXT,
     .value = "URL",
     .offset = AT(url),
     .help = "URL of the server (" HTTP_DEFAULT_URL ")"},
    {.name = "unix",
     .kind = CLI_TEXT,
     .value = "PATH",
     .offset = AT(unix_path),
     .help = "Unix socket of the server, instead of a URL"},
    {.name = "ca-file", .kind = CLI_TEXT, .value = "FILE", .offset = AT(ca_file), .help = HTTP_CA_FILE_HELP},
    {.name = "workload",
     .kind = CLI_CHOICE,
     .value = "random|chat|retrieval|trace",
     .offset = AT(workload),
     .choices = workload_names,
     .help = "random: new prompts; chat: growing conversations; retrieval: documents in changing order and a "
             "question; trace: the requests of a file (random)"},
    {.name = "rate",
     .kind = CLI_REAL,
     .value = "N",
     .offset = AT(rate),
     .min = 0.001,
     .max = 1e5,
     .help = "mean arrival rate per second, Poisson arrivals (2)"},
    {.name = "seconds",
     .kind = CLI_REAL,
     .value = "S",
     .offset = AT(seconds),
     .min = 0.1,
     .max = 1e7,
     .help = "duration of the load (10; with --count or trace: until all requests are sent)"},
    {.name = "count",
     .kind = CLI_INT,
     .value = "N",
     .offset = AT(count),
     .min = 1,
     .max = INT32_MAX,
     .help = "maximum number of requests"},
    {.name = "warm-up",
     .kind = CLI_INT,
     .value = "N",
     .offset = AT(warm_up),
     .min = 0,
     .max = INT32_MAX,
     .help = "number of warm-up requests, sent one by one and not counted (0)"},
    {.name = "prompt-tokens",
     .kind = CLI_INT,
     .value = "N",
     .offset = AT(prompt_tokens),
     .min = 1,
     .max = TOKENS_MAX,
     .help = "mean number of new tokens in a prompt (64)"},
    {.name = "max-tokens",
     .letter = 'n',
     .kind = CLI_INT,
     .value = "N",
     .offset = AT(max_tokens),
     .min = 1,
     .max = TOKENS_MAX,
     .help = "mean length of answers (32)"},
    {.name = "shared-tokens",
     .kind = CLI_INT,
     .value = "N",
     .offset = AT(shared_tokens),
     .min = 0,
     .max = TOKENS_MAX,
     .help = "length of the system prompt, which all requests share (32)"},
    {.name = "documents",
     .kind = CLI_INT,
     .value = "N",
     .offset = AT(documents),
     .min = 1,
     .max = 1 << 20,
     .help = "number of documents: retrieval (32)"},
    {.name = "pick",
     .kind = CLI_INT,
     .value = "N",
     .offset = AT(pick),
     .min = 1,
     .max = 256,
     .help = "number of documents in a prompt: retrieval (4)"},
    {.name = "document-tokens",
     .kind = CLI_INT,
     .value = "N",
     .offset = AT(document_tokens),
     .min = 1,
     .max = TOKENS_MAX,
     .help = "length of a document: retrieval (512)"},
    {.name = "reuse",
     .kind = CLI_CHOICE,
     .value = "prefix|parts|modular",
     .offset = AT(reuse),
     .choices = reuse_names,
     .help = "prefix: all documents in one text; parts: each as a part of the message; modular: parts with \"reuse\": "
             "\"modular\", for "
             "Reprise: retrieval (prefix)"},
    {.name = "conversations",
     .kind = CLI_INT,
     .value = "N",
     .offset = AT(conversations),
     .min = 1,
     .max = 1 << 20,
     .help = "number of concurrent conversations: chat (8)"},
    {.name = "turns",
     .kind = CLI_INT,
     .value = "N",
     .offset = AT(turns),
     .min = 1,
     .max = 1 << 20,
     .help = "number of turns in a conversation: chat (6)"},
    {.name = "requests",
     .kind = CLI_TEXT,
     .value = "FILE",
     .offset = AT(requests),
     .help = "trace to send: JSON lines with timestamp, input_length, output_length, hash_ids: trace"},
    {.name = "scale",
     .kind = CLI_INT,
     .value = "N",
     .offset = AT(scale),
     .min = 1,
     .max = BENCH_REQUEST_BLOCK,
     .help = "divide all lengths by this power of two: trace (1)"},
    {.name = "speed",
     .kind = CLI_REAL,
     .value = "N",
     .offset = AT(speed),
     .min = 1e-3,
     .max = 1e6,
     .help = "speed-up over the trace's timestamps: trace (1)"},
    {.name = "ttft-limit",
     .kind = CLI_REAL,
     .value = "MS",
     .offset = AT(ttft_limit),
     .min = 0.001,
     .max = 1e9,
     .help = "goodput limit for the time to first token"},
    {.name = "tbt-limit",
     .kind = CLI_REAL,
     .value = "MS",
     .offset = AT(tbt_limit),
     .min = 0.001,
     .max = 1e9,
     .help = "goodput limit for the mean inter-token latency of an answer"},
    {.name = "connections",
     .kind = CLI_INT,
     .value = "N",
     .offset = AT(connections),
     .min = 1,
     .max = 16384,
     .help = "maximum number of connections; further requests wait, and the wait counts in their latency (256)"},
    {.name = "patience",
     .kind = CLI_REAL,
     .value = "S",
     .offset = AT(patience),
     .min = 0.1,
     .max = 1e6,
     .help = "a request fails after this time without data (300)"},
    {.name = "model",
     .letter = 'm',
     .kind = CLI_TEXT,
     .value = "FILE",
     .offset = AT(model),
     .help = "the server's model file (GGUF), for its vocabulary: every word of a prompt is one token; without it "
             "prompts are common English words"},
    {.name = "name", .kind = CLI_TEXT, .value = "NAME", .offset = AT(name), .help = "model name in requests (default)"},
    {.name = "salt",
     .kind = CLI_TEXT,
     .value = "TEXT",
     .offset = AT(salt),
     .help = "salt that keeps this run from hitting the cache of other runs; '': no salt (a new one each time)"},
    {.name = "seed",
     .kind = CLI_U64,
     .value = "N",
     .offset = AT(seed),
     .help = "random seed of arrivals, lengths, choices and words (0)"},
    {.name = "each",
     .kind = CLI_FLAG,
     .offset = AT(each),
     .help = "write a line of JSON per request, in the order of completion"},
    {.name = "json", .kind = CLI_FLAG, .offset = AT(json), .help = "print JSON"},
    {.name = NULL},
};
#undef AT

static int bench_serve_main(int argc, char **argv);

const cli_command cli_bench_serve = {
    .name = "bench serve",
    .summary = "load-test a server over HTTP (open loop): TTFT, inter-token latency, throughput, goodput",
    .synopsis = "[--url URL] [--workload random|chat|retrieval|trace] [OPTIONS]",
    .notes = "Works with every server that has OpenAI's /v1/chat/completions. " KEY_VARIABLE
             " is its API key, if it requires one.\n"
             "Ctrl-C ends the load and reports the results so far.\n"
             "exit status: 0 success, 1 failed requests (429 and 503 are not failures), 2 usage error, 130 interrupted "
             "(Ctrl-C)\n",
    .options = options,
    .main = bench_serve_main,
};

/* ---- steps ---- */

/* A salt that no earlier run has used. */
static const char *new_salt(char buffer[40]) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(buffer, 40, "bench-%llx-%lx-%lx", (unsigned long long)now.tv_sec, (unsigned long)now.tv_nsec,
             (unsigned long)getpid());
    return buffer;
}

static int bench_serve_check(const bench_serve_options *o) {
    bool is_trace = o->workload == BENCH_TRACE;
    if (is_trace && o->requests == NULL)
        return cli_fail(CLI_WRONG_USE, "--workload trace needs a trace: give --requests FILE");
    if (!is_trace && o->requests != NULL)
        return cli_fail(CLI_WRONG_USE, "--requests %s: only --workload trace uses it: give that too", o->requests);
    if (o->reuse != BENCH_REUSE_PREFIX && o->workload != BENCH_RETRIEVAL)
        return cli_fail(CLI_WRONG_USE, "--reuse %s: only --workload retrieval has documents: give that too",
                        reuse_names[o->reuse]);
    if (o->pick > o->documents)
        return cli_fail(CLI_WRONG_USE, "--pick '%d': give at most --documents, %d", (int)o->pick, (int)o->documents);
    return bench_requests_check_scale(o->scale);
}

static int check_timestamps(const bench_requests *r, const char *path) {
    for (size_t i = 1; i < r->n; i++)
        if (r->items[i].timestamp_ms < r->items[i - 1].timestamp_ms)
            return cli_fail(
                CLI_FAILED,
                "%s: the \"timestamp\" of request %zu is earlier than that of the previous request: sort the requests",
                path, i + 1);
    return CLI_OK;
}

static int bench_serve_drive(const bench_serve_options *o, const bench_words *words, const bench_requests *requests,
                             const http_target *target) {
    const char *key = getenv(KEY_VARIABLE);
    bench_tally *tally = cli_alloc(sizeof *tally);
    bench_workload *workload = bench_workload_new(o, words, requests);
    bench_clients *clients = bench_clients_new(target, key != NULL && key[0] != '\0' ? key : NULL, o, workload, tally);
    cli_interrupt_catch();
    int status = bench_clients_warm_up(clients, o->warm_up);
    if (status == CLI_OK) {
        status = bench_clients_run(clients);
        int reported = bench_tally_report(tally, o, target);
        if (reported != CLI_OK) status = reported;
    }
    bench_clients_free(clients);
    bench_workload_free(workload);
    free(tally);
    return status;
}

static int bench_serve_with(const bench_serve_options *o) {
    cli_loaded loaded = {0};
    bench_requests requests = {0};
    http_target target;
    bench_words *words = cli_alloc(sizeof *words);
    int status = o->requests != NULL
                     ? bench_requests_read(&requests, o->requests, BENCH_REQUEST_BLOCK, (size_t)o->count)
                     : CLI_OK;
    if (status == CLI_OK) status = check_timestamps(&requests, o->requests);
    if (status == CLI_OK && o->model != NULL) status = cli_load_model(&loaded, o->model, NULL);
    if (status == CLI_OK && o->model != NULL) status = bench_words_open(words, loaded.model);
    if (status == CLI_OK && o->model == NULL) bench_words_common(words);
    if (status == CLI_OK) status = http_target_open(&target, o->url, o->unix_path, o->ca_file);
    if (status == CLI_OK) status = bench_serve_drive(o, words, &requests, &target);
    cli_loaded_free(&loaded);
    bench_requests_free(&requests);
    free(words);
    return status;
}

static int bench_serve_main(int argc, char **argv) {
    char salt[40];
    bench_serve_options o = {.url = HTTP_DEFAULT_URL,
                             .name = "default",
                             .rate = 2,
                             .speed = 1,
                             .patience = 300,
                             .prompt_tokens = 64,
                             .max_tokens = 32,
                             .shared_tokens = 32,
                             .documents = 32,
                             .pick = 4,
                             .document_tokens = 512,
                             .conversations = 8,
                             .turns = 6,
                             .scale = 1,
                             .connections = 256};
    cli_parsed parsed = cli_options_parse(&cli_bench_serve, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    if (o.salt == NULL) o.salt = new_salt(salt);
    if (o.seconds <= 0 && o.count == 0 && o.workload != BENCH_TRACE) o.seconds = DEFAULT_SECONDS;
    int status = bench_serve_check(&o);
    return status == CLI_OK ? bench_serve_with(&o) : status;
}
