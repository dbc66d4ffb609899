/* bench_serve.c: `reprise bench serve`: what the users of a server feel, whichever speaks OpenAI's chat completions.
 *
 * Owns the command's options and the order of the work: bench_serve.h. The server is another process, this one's or another's program.
 */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench_serve.h"
#include "command.h"
#include "loader.h"

#define DEFAULT_SECONDS 10.0f
#define KEY_VARIABLE "REPRISE_API_KEY"

static const char *const workload_names[] = {"random", "chat", "retrieval", "trace", NULL}; /* the order of bench_workload_kind */
static const char *const reuse_names[] = {"prefix", "modular", NULL};                       /* of bench_reuse_kind */

#define AT(field) offsetof(bench_serve_options, field)
#define TOKENS_MAX (1 << 24)
static const cli_option options[] = {
    {.name = "url", .kind = CLI_TEXT, .value = "URL", .offset = AT(url), .help = "where the server is (" HTTP_DEFAULT_URL ")"},
    {.name = "unix", .kind = CLI_TEXT, .value = "PATH", .offset = AT(unix_path), .help = "or at which Unix socket"},
    {.name = "workload", .kind = CLI_CHOICE, .value = "random|chat|retrieval|trace", .offset = AT(workload), .choices = workload_names,
     .help = "new prompts; conversations that grow; documents in changing order and a question; the requests of a file (random)"},
    {.name = "rate", .kind = CLI_REAL, .value = "N", .offset = AT(rate), .min = 0.001, .max = 1e5,
     .help = "requests a second, on average, at random moments (2)"},
    {.name = "seconds", .kind = CLI_REAL, .value = "S", .offset = AT(seconds), .min = 0.1, .max = 1e7,
     .help = "how long requests are sent (10; with --count or trace: until there are no more)"},
    {.name = "count", .kind = CLI_INT, .value = "N", .offset = AT(count), .min = 1, .max = INT32_MAX, .help = "how many requests at most"},
    {.name = "warm-up", .kind = CLI_INT, .value = "N", .offset = AT(warm_up), .min = 0, .max = INT32_MAX,
     .help = "requests before them, one after the other, that are not counted (0)"},
    {.name = "prompt-tokens", .kind = CLI_INT, .value = "N", .offset = AT(prompt_tokens), .min = 1, .max = TOKENS_MAX,
     .help = "new tokens of a prompt, on average (64)"},
    {.name = "max-tokens", .letter = 'n', .kind = CLI_INT, .value = "N", .offset = AT(max_tokens), .min = 1, .max = TOKENS_MAX,
     .help = "tokens of an answer, on average (32)"},
    {.name = "shared-tokens", .kind = CLI_INT, .value = "N", .offset = AT(shared_tokens), .min = 0, .max = TOKENS_MAX,
     .help = "tokens of the system prompt, the same for all (32)"},
    {.name = "documents", .kind = CLI_INT, .value = "N", .offset = AT(documents), .min = 1, .max = 1 << 20,
     .help = "how many documents there are: retrieval (32)"},
    {.name = "pick", .kind = CLI_INT, .value = "N", .offset = AT(pick), .min = 1, .max = 256,
     .help = "how many of them stand in a prompt: retrieval (4)"},
    {.name = "document-tokens", .kind = CLI_INT, .value = "N", .offset = AT(document_tokens), .min = 1, .max = TOKENS_MAX,
     .help = "tokens of a document: retrieval (512)"},
    {.name = "reuse", .kind = CLI_CHOICE, .value = "prefix|modular", .offset = AT(reuse), .choices = reuse_names,
     .help = "documents in one text; or as parts with \"reuse\": \"modular\", for Reprise: retrieval (prefix)"},
    {.name = "conversations", .kind = CLI_INT, .value = "N", .offset = AT(conversations), .min = 1, .max = 1 << 20,
     .help = "how many go on at one time: chat (8)"},
    {.name = "turns", .kind = CLI_INT, .value = "N", .offset = AT(turns), .min = 1, .max = 1 << 20,
     .help = "questions of a conversation: chat (6)"},
    {.name = "requests", .kind = CLI_TEXT, .value = "FILE", .offset = AT(requests),
     .help = "what to send: JSON lines with timestamp, input_length, output_length, hash_ids: trace"},
    {.name = "scale", .kind = CLI_INT, .value = "N", .offset = AT(scale), .min = 1, .max = BENCH_REQUEST_BLOCK,
     .help = "divide all lengths by a power of two: trace (1)"},
    {.name = "speed", .kind = CLI_REAL, .value = "N", .offset = AT(speed), .min = 1e-3, .max = 1e6,
     .help = "how many times as fast as the file's timestamps: trace (1)"},
    {.name = "ttft-limit", .kind = CLI_REAL, .value = "MS", .offset = AT(ttft_limit), .min = 0.001, .max = 1e9,
     .help = "goodput: answers whose first token came within so many milliseconds"},
    {.name = "tbt-limit", .kind = CLI_REAL, .value = "MS", .offset = AT(tbt_limit), .min = 0.001, .max = 1e9,
     .help = "goodput: and whose others took at most so many each, on average"},
    {.name = "connections", .kind = CLI_INT, .value = "N", .offset = AT(connections), .min = 1, .max = 16384,
     .help = "connections at most; requests beyond that wait, and their time runs (256)"},
    {.name = "patience", .kind = CLI_REAL, .value = "S", .offset = AT(patience), .min = 0.1, .max = 1e6,
     .help = "a request fails when nothing came for so long (300)"},
    {.name = "model", .letter = 'm', .kind = CLI_TEXT, .value = "FILE", .offset = AT(model),
     .help = "the server's model, a GGUF file: its vocabulary alone is read, so that a word is a token; without it common English words"},
    {.name = "name", .kind = CLI_TEXT, .value = "NAME", .offset = AT(name), .help = "how requests call the model (default)"},
    {.name = "salt", .kind = CLI_TEXT, .value = "TEXT", .offset = AT(salt),
     .help = "what keeps this run's states apart from those of others; '': nothing does (another one each time)"},
    {.name = "seed", .kind = CLI_U64, .value = "N", .offset = AT(seed), .help = "seed of moments, lengths, choices and words (0)"},
    {.name = "each", .kind = CLI_FLAG, .offset = AT(each), .help = "a line of JSON for each request, in the order in which they ended"},
    {.name = "json", .kind = CLI_FLAG, .offset = AT(json), .help = "print one JSON object"},
    {.name = NULL},
};
#undef AT

static int bench_serve_main(int argc, char **argv);

const cli_command cli_bench_serve = {
    .name = "bench serve",
    .summary = "send requests to a server over HTTP, however it keeps up, and say what its users feel",
    .synopsis = "[--url URL] [--workload random|chat|retrieval|trace] [OPTIONS]",
    .notes = "Works with every server that has OpenAI's /v1/chat/completions. " KEY_VARIABLE " is its key, if it needs one.\n"
             "Ctrl-C ends the load and reports what there is.\n"
             "exit status: 0 done, 1 failed (requests did; 429 and 503 are no failures), 2 used wrongly, 130 stopped by Ctrl-C\n",
    .options = options,
    .main = bench_serve_main,
};

/* ---- the work ---- */

/* A salt that no run before had. */
static const char *new_salt(char buffer[40]) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(buffer, 40, "bench-%llx-%lx-%lx", (unsigned long long)now.tv_sec, (unsigned long)now.tv_nsec, (unsigned long)getpid());
    return buffer;
}

static int bench_serve_check(const bench_serve_options *o) {
    bool is_trace = o->workload == BENCH_TRACE;
    if (is_trace && o->requests == NULL) return cli_fail(CLI_WRONG_USE, "--workload trace: nothing to send, give --requests FILE");
    if (!is_trace && o->requests != NULL)
        return cli_fail(CLI_WRONG_USE, "--requests %s: only --workload trace reads requests, give that too", o->requests);
    if (o->reuse == BENCH_REUSE_MODULAR && o->workload != BENCH_RETRIEVAL)
        return cli_fail(CLI_WRONG_USE, "--reuse modular: only --workload retrieval has documents, give that too");
    if (o->pick > o->documents)
        return cli_fail(CLI_WRONG_USE, "--pick '%d': give at most --documents, %d", (int)o->pick, (int)o->documents);
    return bench_requests_check_scale(o->scale);
}

static int check_timestamps(const bench_requests *r, const char *path) {
    for (size_t i = 1; i < r->n; i++)
        if (r->items[i].timestamp_ms < r->items[i - 1].timestamp_ms)
            return cli_fail(CLI_FAILED, "%s: the \"timestamp\" of request %zu is before that of the one before it: sort them", path, i + 1);
    return CLI_OK;
}

static int bench_serve_drive(const bench_serve_options *o, const bench_words *words, const bench_requests *requests, const http_target *target) {
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
    int status = o->requests != NULL ? bench_requests_read(&requests, o->requests, (size_t)o->count) : CLI_OK;
    if (status == CLI_OK) status = check_timestamps(&requests, o->requests);
    if (status == CLI_OK && o->model != NULL) status = cli_load_model(&loaded, o->model, NULL);
    if (status == CLI_OK && o->model != NULL) status = bench_words_open(words, loaded.model);
    if (status == CLI_OK && o->model == NULL) bench_words_common(words);
    if (status == CLI_OK) status = http_target_open(&target, o->url, o->unix_path);
    if (status == CLI_OK) status = bench_serve_drive(o, words, &requests, &target);
    cli_loaded_free(&loaded);
    bench_requests_free(&requests);
    free(words);
    return status;
}

static int bench_serve_main(int argc, char **argv) {
    char salt[40];
    bench_serve_options o = {.url = HTTP_DEFAULT_URL, .name = "default", .rate = 2, .speed = 1, .patience = 300, .prompt_tokens = 64,
                             .max_tokens = 32, .shared_tokens = 32, .documents = 32, .pick = 4, .document_tokens = 512, .conversations = 8,
                             .turns = 6, .scale = 1, .connections = 256};
    cli_parsed parsed = cli_options_parse(&cli_bench_serve, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    if (o.salt == NULL) o.salt = new_salt(salt);
    if (o.seconds <= 0 && o.count == 0 && o.workload != BENCH_TRACE) o.seconds = DEFAULT_SECONDS;
    int status = bench_serve_check(&o);
    return status == CLI_OK ? bench_serve_with(&o) : status;
}
