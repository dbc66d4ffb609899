/* SPDX-License-Identifier: Apache-2.0 */
/* cache_simulate.c: `reprise cache simulate`: replays a trace against caches of several sizes and policies.
 *
 * Owns the command's options, the sizes, the table and the JSON; bench_requests.h reads the trace, cache_curves.c draws
 * the curves. One thread.
 */
#include "cache/cache_simulate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_requests.h"
#include "common/command.h"
#include "common/console.h"
#include "common/json_out.h"
#include "reprise_tools.h"

#define DEFAULT_SIZES "1/64,1/32,1/16,1/8,1/4,1/2,1/1"

typedef struct simulate_options {
    const char *trace, *sizes, *svg;
    int32_t count, block, attention_tokens;
    const char *sessions;
    bool json;
} simulate_options;

#define AT(field) offsetof(simulate_options, field)
static const cli_option options[] = {
    {
        .name = "trace",
        .kind = CLI_TEXT,
        .value = "TRACE",
        .offset = AT(trace),
        .required = true,
        .positional = true,
        .help = "trace: JSON lines with input_length, output_length, hash_ids (Mooncake traces) or hash_ranges, "
                "session; -: standard input",
    },
    {
        .name = "sizes",
        .kind = CLI_TEXT,
        .value = "LIST",
        .offset = AT(sizes),
        .help =
            "cache sizes, separated by commas: fractions of the working set (1/2) or blocks (5000) (" DEFAULT_SIZES ")",
    },
    {
        .name = "count",
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(count),
        .min = 0,
        .max = INT32_MAX,
        .help = "number of requests to take from the trace; 0: all (0)",
    },
    {
        .name = "block",
        .kind = CLI_INT,
        .value = "TOKENS",
        .offset = AT(block),
        .min = 1,
        .max = 1 << 20,
        .help = "tokens in a block of the trace (512)",
    },
    {
        .name = "attention",
        .kind = CLI_INT,
        .value = "TOKENS",
        .offset = AT(attention_tokens),
        .min = 1,
        .max = 1 << 30,
        .help = "context length at which attention costs as much as the rest of a token's computation (16384)",
    },
    {
        .name = "sessions",
        .kind = CLI_TEXT,
        .value = "WHAT",
        .offset = AT(sessions),
        .help = "what Reprise's policy knows of sessions: known, ignored, or ended: also which request is the last of "
                "its session (known)",
    },
    {.name = "svg", .kind = CLI_TEXT, .value = "FILE", .offset = AT(svg), .help = "draw the curves into this SVG file"},
    {.name = "json", .kind = CLI_FLAG, .offset = AT(json), .help = "print JSON"},
    {.name = NULL},
};
#undef AT

static int simulate_main(int argc, char **argv);

const cli_command cli_cache_simulate = {
    .name = "cache simulate",
    .summary = "replay a trace against several cache sizes and eviction policies",
    .synopsis = "TRACE [--sizes LIST] [--svg FILE] [--json]",
    .notes = "The table shows saved compute, in percent of the compute of all prompts.\n"
             "A block is a hit only if all blocks before it are hits. Answers are not cached: traces do not identify "
             "them.\n",
    .options = options,
    .main = simulate_main,
};

/* ---- Sizes ---- */

static int wrong_size(const char *text, size_t n) {
    return cli_fail(CLI_WRONG_USE, "--sizes '%.*s': give fractions of the working set, as 1/2, or blocks, as 5000",
                    (int)n, text);
}

/* Parses n characters: A/B with A <= B, or a number of blocks. */
static int cache_curves_read_size(cache_curves *c, const char *text, size_t n) {
    cache_size *size = &c->sizes[c->n_sizes];
    char *end = NULL;
    if (n == 0 || n >= sizeof size->text || *text < '1' || *text > '9') return wrong_size(text, n);
    memcpy(size->text, text, n);
    size->text[n] = '\0';
    errno = 0;
    unsigned long long parts = strtoull(size->text, &end, 10), whole = 1;
    bool is_part = *end == '/' && end[1] >= '1' && end[1] <= '9';
    if (is_part) whole = strtoull(end + 1, &end, 10);
    if (*end != '\0' || errno != 0 || parts > UINT32_MAX || whole > UINT32_MAX || (is_part && parts > whole))
        return wrong_size(text, n);
    size->blocks = is_part ? (size_t)(parts * c->n_blocks / whole) : (size_t)parts;
    if (size->blocks == 0) size->blocks = 1;
    c->n_sizes++;
    return CLI_OK;
}

static int compare_sizes(const void *a, const void *b) {
    size_t x = ((const cache_size *)a)->blocks, y = ((const cache_size *)b)->blocks;
    return (x > y) - (x < y);
}

static int read_sizes(cache_curves *c, const char *list) {
    int status = CLI_OK;
    for (const char *at = list; at != NULL && status == CLI_OK;) {
        size_t n = strcspn(at, ",");
        if (c->n_sizes == CACHE_MAX_SIZES) return cli_fail(CLI_WRONG_USE, "--sizes: give at most %d", CACHE_MAX_SIZES);
        status = cache_curves_read_size(c, at, n);
        at = at[n] == ',' ? at + n + 1 : NULL;
    }
    qsort(c->sizes, c->n_sizes, sizeof c->sizes[0], compare_sizes);
    return status;
}

/* ---- Simulation ---- */

static rp_simulator *open_simulator(const bench_requests *r, cache_curves *c, rp_simulate_sessions sessions,
                                    rp_error *err) {
    rp_simulate_options o = {
        .struct_size = sizeof(o),
        .block_tokens = c->block_tokens,
        .attention_tokens = c->attention_tokens,
        .sessions = sessions,
    };
    rp_simulate_request *requests = cli_alloc(r->n * sizeof *requests);
    rp_simulator *simulator = NULL;
    for (size_t i = 0; i < r->n; i++) {
        size_t blocks = ((size_t)r->items[i].input_tokens + (size_t)r->block - 1) / (size_t)r->block;
        requests[i] =
            (rp_simulate_request){r->ids + r->items[i].first_id, blocks, r->items[i].input_tokens, r->items[i].session};
        c->n_refs += blocks;
    }
    if (rp_simulator_new(&simulator, requests, r->n, &o, err) == RP_OK) c->n_blocks = rp_simulator_blocks(simulator);
    c->n_requests = r->n;
    free(requests);
    return simulator;
}

static int run_cells(const rp_simulator *simulator, cache_curves *c) {
    cli_progress progress = {0};
    int status = CLI_OK;
    rp_error err;
    size_t all = c->n_sizes * RP_N_POLICIES;
    for (size_t i = 0; i < all && status == CLI_OK; i++) {
        cache_size *size = &c->sizes[i / RP_N_POLICIES];
        rp_policy policy = (rp_policy)(i % RP_N_POLICIES);
        cli_progress_draw(&progress, "replaying", NULL, i, all);
        size->cells[policy].struct_size = sizeof(size->cells[policy]);
        int rc = rp_simulator_run(simulator, policy, size->blocks, &size->cells[policy], &err);
        cli_progress_clear(&progress);
        if (rc != RP_OK) status = cli_fail_library(&err);
        else if (cli_interrupted()) status = CLI_INTERRUPTED;
    }
    return status;
}

/* ---- Results ---- */

static void cache_curves_print_table(const cache_curves *c) {
    printf("%zu requests, %zu blocks of %d tokens, working set of %zu different blocks\n", c->n_requests, c->n_refs,
           (int)c->block_tokens, c->n_blocks);
    printf("saved compute, %%\n\n%10s %12s", "size", "blocks");
    for (int p = 0; p < RP_N_POLICIES; p++) printf(" %8s", rp_policy_name((rp_policy)p));
    putchar('\n');
    for (size_t i = 0; i < c->n_sizes; i++) {
        printf("%10s %12zu", c->sizes[i].text, c->sizes[i].blocks);
        for (int p = 0; p < RP_N_POLICIES; p++) printf(" %8.2f", cache_saved_percent(&c->sizes[i].cells[p]));
        putchar('\n');
    }
}

static json_t *cell_object(const rp_simulation *cell) {
    json_t *object = json_object();
    double tokens = cell->prompt_tokens > 0 ? (double)cell->prompt_tokens : 1;
    cli_json_set(object, "saved_percent", cli_json_real(cache_saved_percent(cell)));
    cli_json_set(object, "hit_percent", cli_json_real(100 * (double)cell->hit_tokens / tokens));
    cli_json_set(object, "hit_tokens", json_integer((json_int_t)cell->hit_tokens));
    return object;
}

static json_t *size_object(const cache_size *size) {
    json_t *object = json_object(), *policies = json_object();
    cli_json_set(object, "size", cli_json_text(size->text));
    cli_json_set(object, "blocks", json_integer((json_int_t)size->blocks));
    for (int p = 0; p < RP_N_POLICIES; p++)
        cli_json_set(policies, rp_policy_name((rp_policy)p), cell_object(&size->cells[p]));
    cli_json_set(object, "policies", policies);
    return object;
}

static int cache_curves_print_json(const cache_curves *c) {
    json_t *object = json_object(), *sizes = json_array();
    cli_json_set(object, "trace", cli_json_text(c->trace));
    cli_json_set(object, "requests", json_integer((json_int_t)c->n_requests));
    cli_json_set(object, "prompt_tokens", json_integer((json_int_t)c->sizes[0].cells[0].prompt_tokens));
    cli_json_set(object, "block_tokens", json_integer(c->block_tokens));
    cli_json_set(object, "attention_tokens", json_integer(c->attention_tokens));
    cli_json_set(object, "blocks", json_integer((json_int_t)c->n_refs));
    cli_json_set(object, "working_set_blocks", json_integer((json_int_t)c->n_blocks));
    for (size_t i = 0; i < c->n_sizes; i++) cli_json_append(sizes, size_object(&c->sizes[i]));
    cli_json_set(object, "sizes", sizes);
    return cli_json_print(object);
}

static int cache_curves_write_svg(const cache_curves *c, const char *path) {
    FILE *to = fopen(path, "wb");
    if (to == NULL) return cli_fail(CLI_FAILED, "cannot write '%s': %s", path, strerror(errno));
    cache_curves_draw(to, c);
    return cli_close_output(to, path);
}

static int cache_curves_show(const cache_curves *c, const simulate_options *o) {
    int status = o->svg != NULL ? cache_curves_write_svg(c, o->svg) : CLI_OK;
    if (status != CLI_OK) return status;
    if (o->json) return cache_curves_print_json(c);
    cache_curves_print_table(c);
    return cli_finish_output();
}

static int read_sessions(const char *word, rp_simulate_sessions *out) {
    static const char *const words[] = {
        [RP_SESSIONS_KNOWN] = "known", [RP_SESSIONS_IGNORED] = "ignored", [RP_SESSIONS_ENDED] = "ended"};
    for (int i = 0; i <= RP_SESSIONS_ENDED; i++) {
        *out = (rp_simulate_sessions)i;
        if (strcmp(word, words[i]) == 0) return CLI_OK;
    }
    return cli_fail(CLI_WRONG_USE, "--sessions '%s': give known, ignored or ended", word);
}

static int cache_simulate_simulate(const simulate_options *o, cache_curves *c) {
    bench_requests requests = {0};
    rp_simulator *simulator = NULL;
    rp_error err;
    rp_simulate_sessions sessions = RP_SESSIONS_KNOWN;
    int status = read_sessions(o->sessions, &sessions);
    if (status == CLI_OK) status = bench_requests_read(&requests, o->trace, o->block, (size_t)o->count);
    if (status == CLI_OK && (simulator = open_simulator(&requests, c, sessions, &err)) == NULL)
        status = cli_fail(CLI_FAILED, "%s: %s", o->trace, err.message);
    bench_requests_free(&requests);
    if (status == CLI_OK) status = read_sizes(c, o->sizes);
    if (status == CLI_OK) status = run_cells(simulator, c);
    rp_simulator_free(simulator);
    return status == CLI_OK ? cache_curves_show(c, o) : status;
}

static int simulate_main(int argc, char **argv) {
    simulate_options o = {
        .sizes = DEFAULT_SIZES,
        .sessions = "known",
        .block = BENCH_REQUEST_BLOCK,
        .attention_tokens = rp_simulate_options_defaults().attention_tokens,
    };
    cli_parsed parsed = cli_options_parse(&cli_cache_simulate, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    cache_curves *c = cli_alloc(sizeof *c);
    c->trace = o.trace;
    c->block_tokens = o.block;
    c->attention_tokens = o.attention_tokens;
    cli_interrupt_catch();
    int status = cache_simulate_simulate(&o, c);
    free(c);
    return status;
}
