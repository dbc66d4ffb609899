/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_eval.c: `reprise eval`: measures answer quality per reuse setting, on task files.
 *
 *   for each task, for each item:
 *       the reference (full prefill) -> its distributions
 *       for each setting -> answer, score, agreement and divergence from the reference, time, share reused
 *   for each task and setting: means over items with intervals -> table
 *
 * Owns the options, the sequence of steps and the values of every item; scores, settings, task files and tables have
 * files of their own. One thread.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "common/console.h"
#include "eval/eval_report.h"
#include "eval/eval_score.h"
#include "eval/eval_setting.h"
#include "eval/eval_task.h"
#include "common/json_out.h"
#include "common/loader.h"
#include "reprise_tools.h"
#include "reprise_pml.h"
#include "reprise_test.h"

typedef struct eval_options {
    const char *model, *chat_format, *output, *items, *svg, *svg_kv;
    cli_list tasks, settings;
    cli_engine_args engine;
    int32_t max_tokens, limit, resamples;
    uint64_t seed;
    bool json, csv, markdown;
} eval_options;

static const char *const default_settings[] = {"exact", "path", "module", "scaffold", "path+fixed", "module+fixed"};

#define AT(field) offsetof(eval_options, field)
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
        .name = "tasks",
        .letter = 't',
        .kind = CLI_LIST,
        .value = "FILE",
        .offset = AT(tasks),
        .help = "task file: JSON lines with schema, prompt, answers and metric; required; may be repeated",
    },
    {
        .name = "setting",
        .letter = 's',
        .kind = CLI_LIST,
        .value = "WORDS",
        .offset = AT(settings),
        .help = "setting to compare, words joined by '+': exact, off, link:K, blend:R or focus:R; path or module; "
                "packed or "
                "fixed; scaffold; bos; a KV format; keep:SHARE and its method; kv-keep:N, kv-keep:N:METHOD; '*' for "
                "all methods; may be repeated "
                "(exact, path, module, scaffold, path+fixed, module+fixed)",
    },
    {
        .name = "max-tokens",
        .letter = 'n',
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(max_tokens),
        .min = 1,
        .max = INT32_MAX,
        .help = "maximum number of tokens to generate (32)",
    },
    {
        .name = "limit",
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(limit),
        .min = 0,
        .max = INT32_MAX,
        .help = "number of items to take from each file; 0: all (0)",
    },
    {.name = "json", .kind = CLI_FLAG, .offset = AT(json), .help = "write the table as JSON"},
    {.name = "csv", .kind = CLI_FLAG, .offset = AT(csv), .help = "write the table as CSV"},
    {.name = "markdown", .kind = CLI_FLAG, .offset = AT(markdown), .help = "write the table as Markdown"},
    {
        .name = "output",
        .letter = 'o',
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(output),
        .help = "file for --json, --csv or --markdown; the plain table is then printed, too (standard output)",
    },
    {.name = "items",
     .kind = CLI_TEXT,
     .value = "FILE",
     .offset = AT(items),
     .help = "write each answer with its scores, as JSON lines"},
    {.name = "svg",
     .kind = CLI_TEXT,
     .value = "FILE",
     .offset = AT(svg),
     .help = "draw scores and divergences against the time to first token"},
    {
        .name = "svg-kv",
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(svg_kv),
        .help = "draw scores of reduced KV and of KV formats against bytes, relative to the first setting with all KV "
                "in f16, reused",
    },
    {
        .name = "resamples",
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(resamples),
        .min = 0,
        .max = 1000000,
        .help = "number of bootstrap resamples for the intervals (1000)",
    },
    {.name = "seed", .kind = CLI_U64, .value = "N", .offset = AT(seed), .help = "random seed of the bootstrap (1)"},
    CLI_ENGINE_ROWS(eval_options, engine, 0),
    {.name = "chat-format",
     .kind = CLI_TEXT,
     .value = "NAME",
     .offset = AT(chat_format),
     .help = "chat template name (from the model's metadata)"},
    {.name = NULL},
};
#undef AT

static int eval_main(int argc, char **argv);

const cli_command cli_command_eval = {
    .name = "eval",
    .summary = "measure answer quality per reuse setting, on task files",
    .synopsis = "-m MODEL -t FILE... [-s WORDS]... [OPTIONS]",
    .notes = "A task's line: {\"schema\": PML or a path, \"prompt\": PML, \"answers\": [...], \"metric\": \"exact\"}\n"
             "  schema   default: that of the previous line\n"
             "  metric   exact, contains, f1, rouge-l; perplexity of the first answer\n"
             "Columns: score, the mean of the items with its 95 % bootstrap interval; agreement, how often the first "
             "token of the\n"
             "answer equals that of an exact run, and KL, the divergence of its distribution from the exact one in "
             "nats (perplexity:\n"
             "at every token); first token, the median TTFT with every module cached; reused, tokens and KV bytes;\n"
             "recomputed, module tokens that were recomputed, of those that were compared to select them.\n"
             "exit status: 0 success, 1 failure, 2 usage error, 130 interrupted (Ctrl-C)\n",
    .options = options,
    .main = eval_main,
};

/* ---- One run ---- */

/* Distributions of a run: log-probabilities, n rows of n_vocab. */
typedef struct distributions {
    float *values;
    int32_t n, most, n_vocab; /* most: allocated rows */
} distributions;

/* Outcome of a setting for an item. */
typedef struct outcome {
    double score, agreement, kl, ttft_ms, cached_share, kv_bytes, kept_share, recomputed_tokens, probed_tokens, focused,
        quality_ms;
} outcome;

typedef struct eval_state {
    const eval_options *options;
    cli_loaded loaded;
    rp_engine *engines[RP_N_KV_FORMATS]; /* of settings with a KV format; NULL: not opened */
    rp_model_info info;
    eval_setting *settings;
    char **names; /* [n_settings] */
    size_t n_settings;
    eval_task *tasks;
    size_t n_tasks, n_items;
    eval_row *rows; /* [n_tasks * n_settings] */
    distributions reference, other;
    FILE *items;
    cli_progress progress;
    size_t done;
} eval_state;

static void eval_on_logits(void *user, const float *logits, int32_t n_vocab) {
    distributions *d = user;
    if (d->n == d->most) return;
    float *row = d->values + (size_t)d->n++ * (size_t)n_vocab;
    memcpy(row, logits, (size_t)n_vocab * sizeof *row);
    eval_log_softmax(row, n_vocab);
}

static rp_engine *engine_of(const eval_state *s, const eval_setting *setting) {
    return setting->has_kv_format ? s->engines[setting->kv_format] : s->loaded.engine;
}

static int fail_item(const eval_task *t, const eval_item *item, const eval_setting *s, const rp_error *err) {
    char line[CLI_MESSAGE_BYTES];
    return cli_fail(CLI_FAILED, "%s:%d: setting '%s': %s", t->path, item->line, s->name, cli_message(err, line));
}

/* Paths of the modules that the prompt imports, separated by spaces; NULL for fewer than two. Freed by the caller. */
static int modules_of(rp_engine *engine, const eval_item *item, char **paths, rp_error *err) {
    rp_inspection *inspection = NULL;
    *paths = NULL;
    if (rp_engine_inspect(engine, NULL, NULL, item->prompt, "prompt", &inspection, err) != RP_OK) return CLI_FAILED;
    size_t n = 0, length = 1;
    for (int32_t i = 0; i < inspection->n_nodes; i++) length += strlen(inspection->nodes[i].path) + 1;
    char *text = cli_alloc(length);
    for (int32_t i = 0; i < inspection->n_nodes; i++) {
        const rp_inspect_node *node = &inspection->nodes[i];
        if (!node->taken || strcmp(node->kind, "module") != 0) continue;
        if (n++ > 0) strcat(text, " ");
        strcat(text, node->path);
    }
    rp_inspection_free(inspection);
    if (n < 2) free(text);
    else *paths = text;
    return CLI_OK;
}

static int eval_load_schema(rp_engine *engine, const eval_item *item, const eval_setting *setting, rp_error *err) {
    rp_schema_options o = {
        .struct_size = sizeof(o),
        .scope = setting->scope,
        .anchor = setting->anchor,
        .layout = setting->layout,
        .keep_share = setting->keep[0] != '\0' ? setting->keep : NULL,
        .keep_method = setting->keep_method,
    };
    const char *name = item->schema_name != NULL ? item->schema_name : "schema";
    int rc = rp_schema_parse(engine, item->schema, strlen(item->schema), name, item->dir, &o, NULL, err);
    if (rc != RP_OK || !setting->scaffold) return rc;
    char *paths = NULL;
    if (modules_of(engine, item, &paths, err) != CLI_OK) return err->code;
    if (paths == NULL) return RP_OK; /* a single module needs no scaffold */
    o.scaffold = paths;
    rc = rp_schema_parse(engine, item->schema, strlen(item->schema), name, item->dir, &o, NULL, err);
    free(paths);
    return rc;
}

/* Tokens of a forced answer; only perplexity uses them. */
static int answer_tokens(eval_state *s, const eval_item *item, int32_t **tokens, size_t *n, rp_error *err) {
    *tokens = NULL;
    *n = 0;
    if (item->metric != EVAL_PERPLEXITY) return RP_OK;
    return rp_tokenize(s->loaded.model, item->answers[0], strlen(item->answers[0]), false, false, tokens, n, err);
}

static void distributions_make_space(distributions *d, int32_t rows, int32_t n_vocab) {
    d->n = 0;
    d->n_vocab = n_vocab;
    if (rows > d->most) d->values = cli_realloc(d->values, (size_t)rows * (size_t)n_vocab * sizeof *d->values);
    if (rows > d->most) d->most = rows;
}

/* Runs an item under a setting. d receives the distributions from which its answer was sampled. */
static int run_item(eval_state *s, const eval_item *item, const eval_setting *setting, distributions *d,
                    rp_result **result, double *likelihood, rp_error *err) {
    int32_t *forced = NULL;
    size_t n = 0;
    rp_engine *engine = engine_of(s, setting);
    int rc = eval_load_schema(engine, item, setting, err);
    if (rc == RP_OK) rc = answer_tokens(s, item, &forced, &n, err);
    if (rc != RP_OK) return rc;
    distributions_make_space(d, item->metric == EVAL_PERPLEXITY ? (int32_t)n : 1, s->info.n_vocab);
    rp_request r = rp_request_defaults();
    r.prompt = rp_prompt_pml(item->prompt);
    r.reuse = setting->reuse;
    rp_request_experiment experiment = {.struct_size = sizeof(experiment), .no_prefix = true};
    r.experiment =
        &experiment; /* modules are compared; with a prefix cache, an item's second run would hit its first */
    r.max_tokens = 1;
    r.quality = (rp_quality){.mode = RP_QUALITY_REUSE};
    if (setting->reuse == RP_REUSE_ON) rc = rp_engine_run(engine, &r, result, err); /* caches the modules; */
    rp_engine_drain(engine, -1);                                                    /* reduces them */
    rp_result_free(*result);
    *result = NULL;
    r.quality = setting->quality;
    r.kv_keep = setting->kv_keep[0] ? setting->kv_keep : NULL;
    r.kv_method = setting->kv_method[0] ? setting->kv_method : NULL;
    r.max_tokens = s->options->max_tokens;
    experiment.forced = forced;
    experiment.n_forced = (int32_t)n;
    r.on_logits = eval_on_logits;
    r.user = d;
    if (rc == RP_OK) rc = rp_engine_run(engine, &r, result, err);
    *likelihood = 0;
    for (int32_t i = 0; rc == RP_OK && i < (int32_t)n && i < d->n; i++)
        *likelihood -= d->values[(size_t)i * (size_t)d->n_vocab + (size_t)forced[i]] / (double)n;
    rp_free(forced);
    return rc;
}

static outcome eval_judge(const eval_state *s, const eval_item *item, const eval_setting *setting, const rp_result *r,
                          double likelihood) {
    const distributions *p = &s->reference, *q = &s->other;
    int32_t n = p->n < q->n ? p->n : q->n;
    outcome o = {
        .ttft_ms = r->timings.ttft_ms,
        .kept_share = r->kv_reduction.share,
        .recomputed_tokens = r->quality.recomputed_tokens,
        .probed_tokens = r->quality.probed_tokens,
        .focused = r->quality.focus_token > 0,
        .quality_ms = r->quality.ms,
    };
    o.score = item->metric == EVAL_PERPLEXITY ? likelihood
                                              : eval_score(item->metric, r->text, item->answers, item->n_answers);
    for (int32_t i = 0; i < n; i++) {
        const float *a = p->values + (size_t)i * (size_t)p->n_vocab, *b = q->values + (size_t)i * (size_t)q->n_vocab;
        o.agreement += (eval_argmax(a, p->n_vocab) == eval_argmax(b, q->n_vocab)) / (double)n;
        o.kl += eval_kl(a, b, p->n_vocab) / n;
    }
    rp_engine_info engine = {.struct_size = sizeof(engine)};
    rp_engine_describe(engine_of(s, setting), &engine);
    o.cached_share = r->prompt_tokens > 0 ? (double)r->cached_tokens / r->prompt_tokens : 0;
    for (int32_t i = 0; i < r->n_plan; i++)
        if (r->plan[i].is_view && strcmp(r->plan[i].tier, "computed") != 0)
            o.kv_bytes += (double)r->plan[i].kept * r->plan[i].n_tokens * (double)engine.kv_bytes_per_token;
    return o;
}

static void write_item(eval_state *s, const eval_task *t, const eval_item *item, const eval_setting *setting,
                       const rp_result *r, const outcome *o) {
    if (s->items == NULL) return;
    json_t *object = json_object();
    cli_json_set(object, "task", cli_json_text(t->name));
    cli_json_set(object, "line", json_integer(item->line));
    cli_json_set(object, "setting", cli_json_text(setting->name));
    cli_json_set(object, "wanted", cli_json_text(item->answers[0]));
    cli_json_set(object, "answer", cli_json_text(r->text));
    cli_json_set(object, "score", cli_json_real(o->score));
    cli_json_set(object, "agreement", cli_json_real(o->agreement));
    cli_json_set(object, "kl", json_real(isfinite(o->kl) ? o->kl : 0));
    cli_json_set(object, "ttft_ms", cli_json_real(o->ttft_ms));
    cli_json_set(object, "cached_tokens", json_integer(r->cached_tokens));
    cli_json_set(object, "prompt_tokens", json_integer(r->prompt_tokens));
    cli_json_set(object, "recomputed_tokens", json_integer(r->quality.recomputed_tokens));
    cli_json_set(object, "probed_tokens", json_integer(r->quality.probed_tokens));
    cli_json_set(object, "focus_token", json_integer((json_int_t)r->quality.focus_token));
    cli_json_set(object, "quality_ms", cli_json_real(r->quality.ms));
    json_dumpf(object, s->items, JSON_COMPACT);
    fputc('\n', s->items);
    json_decref(object);
}

/* ---- A task ---- */

static int eval_item_under(eval_state *s, const eval_task *t, const eval_item *item, const eval_setting *setting,
                           outcome *out) {
    rp_error err;
    rp_result *result = NULL;
    double likelihood;
    if (run_item(s, item, setting, &s->other, &result, &likelihood, &err) != RP_OK)
        return fail_item(t, item, setting, &err);
    *out = eval_judge(s, item, setting, result, likelihood);
    write_item(s, t, item, setting, result, out);
    rp_result_free(result);
    return CLI_OK;
}

static int eval_one(eval_state *s, const eval_task *t, size_t index, outcome *outcomes) {
    const eval_item *item = &t->items[index];
    rp_error err;
    rp_result *result = NULL;
    double likelihood;
    if (run_item(s, item, &eval_reference, &s->reference, &result, &likelihood, &err) != RP_OK)
        return fail_item(t, item, &eval_reference, &err);
    rp_result_free(result);
    for (size_t k = 0; k < s->n_settings; k++) {
        int status = cli_interrupted()
                         ? CLI_INTERRUPTED
                         : eval_item_under(s, t, item, &s->settings[k], &outcomes[k * t->n_items + index]);
        if (status != CLI_OK) return status;
        cli_progress_draw(&s->progress, t->name, "answers", ++s->done, s->n_items * s->n_settings);
    }
    return CLI_OK;
}

static void eval_summarize(const eval_state *s, const eval_task *t, const outcome *outcomes, eval_row *row) {
    size_t n = t->n_items;
    double *values = cli_alloc(4 * n * sizeof *values), *score = values, *agreement = score + n, *kl = agreement + n,
           *ttft = kl + n;
    for (size_t i = 0; i < n; i++) {
        const outcome *o = &outcomes[i];
        score[i] = o->score;
        agreement[i] = o->agreement;
        kl[i] = o->kl;
        ttft[i] = o->ttft_ms;
        row->cached_share += o->cached_share / (double)n;
        row->kv_bytes += o->kv_bytes / (double)n;
        row->kept_share += o->kept_share / (double)n;
        row->recomputed_tokens += o->recomputed_tokens / (double)n;
        row->probed_tokens += o->probed_tokens / (double)n;
        row->focused += o->focused / (double)n;
        row->quality_ms += o->quality_ms / (double)n;
    }
    int resamples = s->options->resamples;
    row->items = n;
    row->metric = eval_metric_name(t->items[0].metric);
    row->perplexity = t->items[0].metric == EVAL_PERPLEXITY;
    row->score = eval_bootstrap(score, n, resamples, s->options->seed);
    if (row->perplexity) row->score = (eval_mean){exp(row->score.mean), exp(row->score.low), exp(row->score.high)};
    row->agreement = eval_bootstrap(agreement, n, resamples, s->options->seed);
    row->kl = eval_bootstrap(kl, n, resamples, s->options->seed);
    row->ttft_ms = eval_median(ttft, n);
    free(values);
}

static int eval_all(eval_state *s, size_t *n_rows) {
    for (size_t i = 0; i < s->n_tasks; i++) {
        const eval_task *t = &s->tasks[i];
        outcome *outcomes = cli_alloc(s->n_settings * t->n_items * sizeof *outcomes);
        int status = CLI_OK;
        for (size_t k = 0; k < t->n_items && status == CLI_OK; k++) status = eval_one(s, t, k, outcomes);
        for (size_t k = 0; k < s->n_settings && status == CLI_OK; k++) {
            eval_row *row = &s->rows[(*n_rows)++];
            *row = (eval_row){.task = t->name, .setting = s->settings[k].name, .of = &s->settings[k]};
            eval_summarize(s, t, outcomes + k * t->n_items, row);
        }
        free(outcomes);
        if (status != CLI_OK) return status;
    }
    return CLI_OK;
}

/* ---- The command ---- */

static int eval_check_options(const eval_options *o) {
    if (o->tasks.n == 0) return cli_fail(CLI_WRONG_USE, "'reprise eval' needs tasks: give --tasks FILE");
    if (o->json + o->csv + o->markdown > 1)
        return cli_fail(CLI_WRONG_USE, "--json, --csv and --markdown exclude each other: give one of them");
    if (o->output != NULL && o->json + o->csv + o->markdown == 0)
        return cli_fail(CLI_WRONG_USE, "--output '%s' needs a format: give --json, --csv or --markdown", o->output);
    return CLI_OK;
}

static int eval_read_settings(eval_state *s) {
    const cli_list *given = &s->options->settings;
    const size_t n_texts = given->n > 0 ? given->n : sizeof default_settings / sizeof default_settings[0];
    s->settings = cli_alloc(n_texts * EVAL_MAX_EXPANDED * sizeof *s->settings);
    s->names = cli_alloc(n_texts * EVAL_MAX_EXPANDED * sizeof *s->names);
    for (size_t i = 0; i < n_texts; i++)
        s->n_settings +=
            eval_setting_expand(s->names + s->n_settings, given->n > 0 ? given->items[i] : default_settings[i]);
    for (size_t i = 0; i < s->n_settings; i++) {
        int status = eval_setting_parse(&s->settings[i], s->names[i]);
        if (status != CLI_OK) return status;
    }
    return CLI_OK;
}

/* All items of a task have one metric: its score is one number. */
static int check_task(const eval_task *t) {
    for (size_t i = 1; i < t->n_items; i++)
        if (t->items[i].metric != t->items[0].metric)
            return cli_fail(
                CLI_FAILED, "%s:%d: the metric is %s, but that of the first item is %s: use one file per metric",
                t->path, t->items[i].line, eval_metric_name(t->items[i].metric), eval_metric_name(t->items[0].metric));
    return CLI_OK;
}

static int read_tasks(eval_state *s) {
    const cli_list *files = &s->options->tasks;
    s->tasks = cli_alloc(files->n * sizeof *s->tasks);
    for (size_t i = 0; i < files->n; i++) {
        int status = eval_task_read(&s->tasks[s->n_tasks++], files->items[i], (size_t)s->options->limit);
        if (status == CLI_OK) status = check_task(&s->tasks[i]);
        if (status != CLI_OK) return status;
        s->n_items += s->tasks[i].n_items;
    }
    s->rows = cli_alloc(s->n_tasks * s->n_settings * sizeof *s->rows);
    return CLI_OK;
}

/* Options of an engine in a format. --kv-f16-layers is for the formats of less than 16 bits among the settings. */
static rp_engine_options options_in(const eval_state *s, rp_kv_format format) {
    rp_engine_options o = cli_engine_options(&s->options->engine);
    o.kv_format = format;
    if (format == RP_KV_F16 || format == RP_KV_F32) o.kv_f16_layers = NULL;
    return o;
}

static int open_format(eval_state *s, const eval_setting *setting) {
    rp_error err;
    char line[CLI_MESSAGE_BYTES];
    if (!setting->has_kv_format || s->engines[setting->kv_format] != NULL) return CLI_OK;
    const rp_engine_options engine = options_in(s, setting->kv_format);
    if (rp_engine_new(&s->engines[setting->kv_format], s->loaded.model, &engine, &err) == RP_OK) return CLI_OK;
    return cli_fail(CLI_FAILED, "setting '%s': %s", setting->name, cli_message(&err, line));
}

static int eval_load(eval_state *s) {
    const eval_options *o = s->options;
    int status = cli_load_model(&s->loaded, o->model, o->chat_format);
    if (status != CLI_OK) return status;
    s->info.struct_size = sizeof(s->info);
    rp_model_describe(s->loaded.model, &s->info);
    const rp_engine_options engine = options_in(s, (rp_kv_format)o->engine.states);
    status = cli_load_engine(&s->loaded, &engine, &(cli_list){.n = 0});
    if (status == CLI_OK) status = cli_prepare_engine(&s->loaded, &engine);
    for (size_t i = 0; i < s->n_settings && status == CLI_OK; i++) status = open_format(s, &s->settings[i]);
    return status;
}

static int open_for_writing(const char *path, const char *option, FILE **file) {
    if (path == NULL) return CLI_OK;
    *file = fopen(path, "w");
    return *file != NULL ? CLI_OK : cli_fail(CLI_FAILED, "cannot write '%s': give %s a writable path", path, option);
}

static int report(const eval_state *s, FILE *output, FILE *svg, FILE *svg_kv, size_t n_rows) {
    const eval_options *o = s->options;
    eval_report r = {
        .model = o->model,
        .fingerprint = s->info.fingerprint,
        .resamples = o->resamples,
        .seed = o->seed,
        .rows = s->rows,
        .n_rows = n_rows,
    };
    eval_format format = o->json ? EVAL_JSON : o->csv    ? EVAL_CSV
                                           : o->markdown ? EVAL_MARKDOWN
                                                         : EVAL_TABLE;
    if (output != NULL) eval_report_write(&r, format, output);
    if (svg != NULL) eval_plot_write(&r, svg);
    if (svg_kv != NULL) eval_plot_kv_write(&r, svg_kv);
    eval_report_write(&r, output != NULL ? EVAL_TABLE : format, stdout);
    return cli_finish_output();
}

static int close_file(FILE *file, const char *path, int status) {
    if (file == NULL) return status;
    int closed = cli_close_output(file, path);
    return status == CLI_OK ? closed : status;
}

static int eval_with(const eval_options *o) {
    eval_state s = {.options = o};
    FILE *output = NULL, *svg = NULL, *svg_kv = NULL;
    size_t n_rows = 0;
    int status = eval_read_settings(&s);
    if (status == CLI_OK) status = read_tasks(&s);
    if (status == CLI_OK) status = eval_load(&s);
    if (status == CLI_OK) status = open_for_writing(o->output, "--output", &output);
    if (status == CLI_OK) status = open_for_writing(o->svg, "--svg", &svg);
    if (status == CLI_OK) status = open_for_writing(o->svg_kv, "--svg-kv", &svg_kv);
    if (status == CLI_OK) status = open_for_writing(o->items, "--items", &s.items);
    if (status == CLI_OK) {
        cli_interrupt_catch();
        status = eval_all(&s, &n_rows);
        cli_progress_clear(&s.progress);
    }
    if (status == CLI_OK) status = report(&s, output, svg, svg_kv, n_rows);
    status = close_file(output, o->output, status);
    status = close_file(svg, o->svg, status);
    status = close_file(svg_kv, o->svg_kv, status);
    status = close_file(s.items, o->items, status);
    for (int i = 0; i < RP_N_KV_FORMATS; i++) rp_engine_free(s.engines[i]);
    cli_loaded_free(&s.loaded);
    for (size_t i = 0; i < s.n_tasks; i++) eval_task_free(&s.tasks[i]);
    free(s.tasks);
    for (size_t i = 0; i < s.n_settings; i++) free(s.names[i]);
    free(s.names);
    free(s.settings);
    free(s.rows);
    free(s.reference.values);
    free(s.other.values);
    return status;
}

static int eval_main(int argc, char **argv) {
    eval_options o = {.max_tokens = 32, .resamples = 1000, .seed = 1};
    cli_parsed parsed = cli_options_parse(&cli_command_eval, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    int status = eval_check_options(&o);
    return status == CLI_OK ? eval_with(&o) : status;
}
