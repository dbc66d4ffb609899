/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_bench.c: `reprise bench`: load tests of an engine: TTFT, inter-token latency, throughput.
 *
 * Owns the command's options and the sequence of steps. bench_poisson.c, bench_replay.c and bench_soak.c hold the
 * loads, bench_driver.c submits and times requests, bench_report.c prints results. Callbacks of requests run on the
 * engine's thread.
 */
#include <math.h>
#include <stdlib.h>

#include "bench/bench_loads.h"
#include "common/command.h"

#define DEFAULT_SECONDS 10.0f

static const char *const load_names[] = {"poisson", "replay", "soak", NULL}; /* in the order of bench_load */

#define AT(field) offsetof(bench_options, field)
static const cli_option options[] = {
    {
        .name = "model",
        .letter = 'm',
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(model),
        .required = true,
        .help = "model file (GGUF), hf:OWNER/REPO[:QUANT], or a name of 'reprise models'; required",
    },
    {
        .name = "load",
        .kind = CLI_CHOICE,
        .value = "poisson|replay|soak",
        .offset = AT(load),
        .choices = load_names,
        .help = "poisson: short requests with Poisson arrivals beside long prompts; replay: the requests of a file; "
                "soak: all features at once, for a long time (poisson)",
    },
    {
        .name = "seconds",
        .kind = CLI_REAL,
        .value = "S",
        .offset = AT(seconds),
        .min = 0.1,
        .max = 1e7,
        .help = "duration of the load: poisson, soak (10)",
    },
    {
        .name = "rate",
        .kind = CLI_REAL,
        .value = "N",
        .offset = AT(rate),
        .min = 0.001,
        .max = 1e5,
        .help = "mean arrival rate of short requests, per second: poisson (2)",
    },
    {
        .name = "prompt-tokens",
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(prompt_tokens),
        .min = 1,
        .max = 1 << 24,
        .help = "mean length of short prompts: poisson (64)",
    },
    {
        .name = "max-tokens",
        .letter = 'n',
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(max_tokens),
        .min = 1,
        .max = 1 << 24,
        .help = "mean length of answers: poisson (32)",
    },
    {
        .name = "long-tokens",
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(long_tokens),
        .min = 1,
        .max = 1 << 24,
        .help = "length of long prompts: poisson (2048)",
    },
    {
        .name = "long-every",
        .kind = CLI_REAL,
        .value = "S",
        .offset = AT(long_every),
        .min = 0,
        .max = 1e7,
        .help = "interval between long prompts; 0: no long prompts: poisson (5)",
    },
    {
        .name = "shared-tokens",
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(shared_tokens),
        .min = 0,
        .max = 1 << 24,
        .help = "length of a prefix shared by all prompts; 0: none: poisson (0)",
    },
    {
        .name = "requests",
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(requests),
        .help = "trace to replay: JSON lines with input_length, output_length, hash_ids: replay",
    },
    {
        .name = "scale",
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(scale),
        .min = 1,
        .max = BENCH_REQUEST_BLOCK,
        .help = "divide all lengths by this power of two: replay (1)",
    },
    {
        .name = "count",
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(count),
        .min = 0,
        .max = INT32_MAX,
        .help = "number of requests to take from the trace; 0: all: replay (0)",
    },
    {
        .name = "parallel",
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(parallel),
        .min = 1,
        .max = 65536,
        .help = "number of concurrent requests: replay, soak (1; soak: 24)",
    },
    {.name = "seed",
     .kind = CLI_U64,
     .value = "N",
     .offset = AT(seed),
     .help = "random seed of arrivals, lengths and words (0)"},
    {
        .name = "goal",
        .kind = CLI_REAL,
        .value = "MS",
        .offset = AT(goal_ms),
        .min = 0,
        .max = (double)INFINITY,
        .help = "inter-token latency goal beside long prompts; inf: whole prefill chunks; 0: 1.75 times the latency "
                "without them (0)",
    },
    {
        .name = "sequences",
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(sequences),
        .min = 1,
        .max = 256,
        .help = "maximum number of requests in a batch (16)",
    },
    CLI_DRAFT_ROW(bench_options, engine),
    CLI_ENGINE_ROWS(bench_options, engine, 't'),
    CLI_STORE_ROWS(bench_options, engine),
    {
        .name = "trace",
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(trace),
        .help = "write a timeline of the run as a Chrome trace, for ui.perfetto.dev",
    },
    {.name = "json",
     .kind = CLI_FLAG,
     .offset = AT(json),
     .help = "print JSON; with replay, one line per request before it"},
    {.name = NULL},
};
#undef AT

static int bench_main(int argc, char **argv);

static const cli_command *const parts[] = {&cli_bench_serve, NULL};

const cli_command cli_command_bench = {
    .name = "bench",
    .summary = "load test: time to first token, inter-token latency, throughput, memory",
    .synopsis = "(-m MODEL [--load poisson|replay|soak] | serve [--url URL]) [OPTIONS]",
    .notes =
        "Ctrl-C ends the load and reports the results so far.\n"
        "exit status: 0 success, 1 failure (of requests, or memory grew), 2 usage error, 130 interrupted (Ctrl-C)\n",
    .options = options,
    .main = bench_main,
    .parts = parts,
};

/* ---- steps ---- */

static rp_engine_options engine_options(const bench_options *o) {
    rp_engine_options e = cli_engine_options(&o->engine);
    e.max_sequences = o->sequences;
    e.token_goal_ms = o->goal_ms;
    if (o->load == BENCH_REPLAY && o->parallel > 1) e.max_queue = o->parallel;
    return e;
}

/* Checks that prompts and answers of a poisson load fit the context: one error before the run instead of one per
 * request. */
static int bench_check_context(const bench_options *o, const rp_model *model) {
    rp_model_info info = {.struct_size = sizeof(info)};
    rp_model_describe(model, &info);
    int32_t room = o->engine.ctx > 0 ? o->engine.ctx : info.n_ctx_train;
    int64_t longest =
        (o->long_every > 0 && o->long_tokens > o->prompt_tokens * 3 / 2 ? o->long_tokens : o->prompt_tokens * 3 / 2);
    longest += (int64_t)o->shared_tokens + o->max_tokens * 3 / 2 + 1;
    if (o->load != BENCH_POISSON || longest <= room) return CLI_OK;
    return cli_fail(
        CLI_WRONG_USE,
        "prompts and answers take up to %lld tokens, but the context has %d: give --ctx %lld, or fewer tokens",
        (long long)longest, (int)room, (long long)longest);
}

static int bench_drive(bench_session *s) {
    switch ((bench_load)s->options->load) {
    case BENCH_REPLAY: return bench_replay(s);
    case BENCH_SOAK: return bench_soak(s);
    case BENCH_POISSON: break;
    }
    return bench_poisson(s);
}

static int run_load(bench_session *s, cli_loaded *loaded, bench_trace *trace) {
    rp_engine_options engine = engine_options(s->options);
    int status = bench_driver_open(s->driver, loaded, &engine, trace);
    if (status != CLI_OK) return status;
    cli_interrupt_catch();
    status = bench_drive(s);
    if (status != CLI_OK && status != CLI_INTERRUPTED) return status;
    int reported = bench_report(s);
    return reported != CLI_OK ? reported : status;
}

static int run_session(bench_session *s, cli_loaded *loaded) {
    bench_words *words = cli_alloc(sizeof *words);
    bench_trace *trace = NULL;
    s->words = words;
    int status = bench_words_open(words, loaded->model);
    if (status == CLI_OK && s->options->trace != NULL) status = bench_trace_open(&trace, s->options->trace);
    if (status == CLI_OK) status = run_load(s, loaded, trace);
    rp_engine_free(loaded->engine); /* reports its last step before the trace ends */
    loaded->engine = NULL;
    int closed = bench_trace_close(trace);
    free(words);
    return status == CLI_OK ? closed : status;
}

static int bench_with(const bench_options *o) {
    cli_loaded loaded = {0};
    bench_session s = {.options = o, .driver = cli_alloc(sizeof *s.driver)};
    int status = o->requests != NULL
                     ? bench_requests_read(&s.requests, o->requests, BENCH_REQUEST_BLOCK, (size_t)o->count)
                     : CLI_OK;
    if (status == CLI_OK) status = cli_load_model(&loaded, o->model, NULL);
    if (status == CLI_OK) status = bench_check_context(o, loaded.model);
    if (status == CLI_OK) status = cli_find_draft(&loaded, o->engine.draft_model);
    if (status == CLI_OK) status = run_session(&s, &loaded);
    cli_loaded_free(&loaded);
    bench_driver_close(s.driver);
    bench_requests_free(&s.requests);
    free(s.driver);
    return status;
}

static int bench_main(int argc, char **argv) {
    bench_options o = {
        .seconds = DEFAULT_SECONDS,
        .rate = 2,
        .prompt_tokens = 64,
        .max_tokens = 32,
        .long_tokens = 2048,
        .long_every = 5,
        .scale = 1,
        .sequences = 16,
    };
    if (argc > 1 && argv[1][0] != '-' && !cli_is_model_file(argv[1])) {
        const cli_command *part = cli_find_part(&cli_command_bench, argv[1]);
        return part != NULL ? part->main(argc - 1, argv + 1) : CLI_WRONG_USE;
    }
    cli_parsed parsed = cli_options_parse(&cli_command_bench, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    int status = bench_replay_check(&o);
    if (o.parallel == 0) o.parallel = o.load == BENCH_SOAK ? 24 : 1;
    return status == CLI_OK ? bench_with(&o) : status;
}
