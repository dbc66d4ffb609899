/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_run.c: `reprise run`: generates answers to prompts.
 *
 * Owns the command's options, the sequence of steps and the callbacks of a request; run_report.c prints results.
 * The answer's text comes on this thread (answer.h); the other callbacks run on the engine's, while this one waits.
 */
#include <stdlib.h>
#include <string.h>

#include "common/answer.h"
#include "common/command.h"
#include "common/console.h"
#include "common/input.h"
#include "common/loader.h"
#include "run_form.h"
#include "run_inputs.h"
#include "run_report.h"
#include "sampling_args.h"
#include "common/text.h"
#include "reprise_adapter.h"

typedef struct run_options {
    const char *model, *chat_format, *dump_logits, *tenant, *grammar, *grammar_trigger, *quality, *kv_keep, *kv_method,
        *lora;
    cli_list schemas;
    run_prompts prompts;
    run_form_args form;
    cli_engine_args engine;
    cli_sampling_args sampling;
    int32_t max_tokens, reuse, repeat, draft, shifted_reuse;
    float lora_scale;
    bool ignore_eos, context_shift, json, verbose, explain;
} run_options;

#define DRAFT_DEFAULT INT32_MIN /* --draft was not given */
#define FORM_MAX_TOKENS 1024    /* of an answer with a form, without --max-tokens */

static const char *const reuse_names[] = {"on", "off", "exact", "auto", NULL}; /* in the order of rp_reuse */

#define AT(field) offsetof(run_options, field)
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
    {.name = "schema",
     .kind = CLI_LIST,
     .value = "FILE",
     .offset = AT(schemas),
     .help = "schema file (PML) of prompt modules; may be repeated"},
    RUN_PROMPTS_ROWS(run_options, prompts),
    {
        .name = "max-tokens",
        .letter = 'n',
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(max_tokens),
        .min = 1,
        .max = INT32_MAX,
        .help = "maximum number of tokens to generate (128; with --json-schema, --tools or --thinking 1024)",
    },
    CLI_SAMPLING_ROWS(run_options, sampling),
    CLI_LOGPROBS_ROW(run_options, sampling),
    {
        .name = "grammar",
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(grammar),
        .help = "constrain answers to the rule `root` of this GBNF grammar",
    },
    RUN_JSON_SCHEMA_ROW(run_options, form.json_schema),
    RUN_TOOLS_ROWS(run_options, form),
    {
        .name = "grammar-trigger",
        .kind = CLI_TEXT,
        .value = "STRING",
        .offset = AT(grammar_trigger),
        .help = "apply the grammar only after this text first appears in the answer",
    },
    {.name = "ignore-eos", .kind = CLI_FLAG, .offset = AT(ignore_eos), .help = "continue after the end-of-text token"},
    {
        .name = "reuse",
        .kind = CLI_CHOICE,
        .value = "on|off|exact|auto",
        .offset = AT(reuse),
        .choices = reuse_names,
        .help = "on: reuse cached KV; off: recompute the same plan; exact: ordinary full prefill of the same tokens; "
                "auto: on, and text that was "
                "computed before at other places, approximately (on)",
    },
    {
        .name = "quality",
        .kind = CLI_TEXT,
        .value = "Q",
        .offset = AT(quality),
        .help =
            "module tokens to recompute in the prompt's context: reuse (none), link:K (each module's first K), "
            "blend:R (the R percent that deviate most), focus:R (the R percent that an uncertain answer attends to), "
            "scaffold (all, in the background, for the next such prompt) or exact (all); default: from the prompt or "
            "the schema",
    },
    {
        .name = "kv-keep",
        .kind = CLI_TEXT,
        .value = "N|SHARE",
        .offset = AT(kv_keep),
        .help = "KV reduction: when the prompt is complete, keep N slots of its KV in the mean of all heads, or a "
                "share (12.5%), for its "
                "answer (all)",
    },
    {
        .name = "kv-method",
        .kind = CLI_TEXT,
        .value = "M",
        .offset = AT(kv_method),
        .help = "with --kv-keep: which slots: " CLI_KV_METHODS " (snapkv)",
    },
    {
        .name = "context-shift",
        .kind = CLI_FLAG,
        .offset = AT(context_shift),
        .help = "an answer that reaches the end of the context continues without the oldest tokens, up to --max-tokens",
    },
    {
        .name = "draft",
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(draft),
        .min = RP_DRAFT_AUTO,
        .max = RP_MAX_DRAFT,
        .help = "speculative decoding by prompt lookup, and by --draft-model: draft up to N tokens a step; -1: as many "
                "as are expected to save time; the answer does not change (0; with --draft-model -1)",
    },
    CLI_DRAFT_ROW(run_options, engine),
    {
        .name = "shifted-reuse",
        .kind = CLI_INT,
        .value = "K",
        .offset = AT(shifted_reuse),
        .min = -1,
        .max = INT32_MAX,
        .help = "after an edit inside a cached prompt, reuse the suffix at its new positions and recompute its first K "
                "tokens; approximate; -1: off (-1)",
    },
    {
        .name = "lora",
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(lora),
        .help = "LoRA adapter (GGUF); an activated one is on from its invocation tokens on",
    },
    {
        .name = "lora-scale",
        .kind = CLI_REAL,
        .value = "X",
        .offset = AT(lora_scale),
        .min = -1000,
        .max = 1000,
        .help = "with --lora: factor of what the adapter adds (1)",
    },
    {
        .name = "tenant",
        .kind = CLI_TEXT,
        .value = "NAME",
        .offset = AT(tenant),
        .help = "tenant of the prompts: no other tenant can hit the KV of their text and answers; schemas are shared "
                "(the operator)",
    },
    CLI_ENGINE_ROWS(run_options, engine, 't'),
    CLI_STORE_ROWS(run_options, engine),
    {.name = "chat-format",
     .kind = CLI_TEXT,
     .value = "NAME",
     .offset = AT(chat_format),
     .help = "chat template name (from the model's metadata)"},
    {
        .name = "repeat",
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(repeat),
        .min = 1,
        .max = INT32_MAX,
        .help = "run each prompt N times and report the timings of each run (1)",
    },
    {
        .name = "dump-logits",
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(dump_logits),
        .help = "write the logits of each decoding step to this file, as little-endian f32",
    },
    {.name = "json", .kind = CLI_FLAG, .offset = AT(json), .help = "print one line of JSON per answer"},
    {
        .name = "explain",
        .kind = CLI_FLAG,
        .offset = AT(explain),
        .help = "print the source and the miss reason of each prompt part on standard error",
    },
    {
        .name = "verbose",
        .letter = 'v',
        .kind = CLI_FLAG,
        .offset = AT(verbose),
        .help = "print the summary line even if standard error is not a terminal",
    },
    {.name = NULL},
};
#undef AT

static int run_main(int argc, char **argv);

const cli_command cli_command_run = {
    .name = "run",
    .summary = "run prompts and stream their answers",
    .synopsis = "-m MODEL (TEXT | -p TEXT... | -f FILE... | [--schema FILE]... --pml FILE...) [OPTIONS]",
    .notes = "A text is a user's message to a model with a chat template, and else, or with --raw, what the model "
             "continues.\n"
             "Without any prompt the program reads one from standard input.\n"
             "Ctrl-C ends the answer; a second Ctrl-C ends the program at once.\n"
             "exit status: 0 success, 1 failure, 2 usage error, 130 interrupted (Ctrl-C)\n",
    .options = options,
    .main = run_main,
};

typedef struct run_state {
    rp_quality quality;
    const run_options *options;
    cli_sampling_args sampling; /* settled */
    cli_loaded loaded;
    rp_adapter *adapter; /* NULL: none */
    double load_ms;
    rp_logit_bias *bias;
    int32_t n_bias;
    run_inputs inputs;
    run_form form;
    char *grammar; /* owned: of --grammar; NULL: none */
    FILE *dump;
    cli_answer answer;
    rp_chat_reader *reader; /* of an answer with a form, while it is streamed; NULL: its text is printed as it is */
    bool to_terminal;       /* standard output is a terminal */
    bool line_is_open;      /* the last streamed text has no line end yet */
    bool shows_reasoning;   /* on standard error */
    bool reasoning_is_open; /* its last line has no end yet */
} run_state;

/* ---- Callbacks ---- */

static void end_reasoning(run_state *s) {
    if (s->reasoning_is_open) fputc('\n', stderr);
    s->reasoning_is_open = false;
}

static bool print_text(run_state *s, const char *text, size_t n) {
    if (n == 0 || s->options->json) return true;
    end_reasoning(s);
    if (s->to_terminal) cli_print_safe(stdout, text, n);
    else fwrite(text, 1, n, stdout);
    s->line_is_open = text[n - 1] != '\n';
    return fflush(stdout) == 0; /* a failure is reported by cli_finish_output */
}

static bool print_reasoning(run_state *s, const char *text, size_t n) {
    if (n == 0 || !s->shows_reasoning || s->options->json) return true;
    cli_print_safe(stderr, text, n);
    s->reasoning_is_open = text[n - 1] != '\n';
    return true;
}

/* A line of its own, as soon as the call is complete. */
static bool print_call(run_state *s, const rp_tool_call *call) {
    if (s->options->json || !call->is_whole) return true;
    end_reasoning(s);
    if (s->line_is_open) fputc('\n', stdout);
    s->line_is_open = false;
    json_t *object = run_call_json(call);
    char *line = json_dumps(object, JSON_COMPACT);
    if (line != NULL && s->to_terminal) cli_print_safe(stdout, line, strlen(line));
    else if (line != NULL) fputs(line, stdout);
    if (line != NULL) fputc('\n', stdout);
    free(line);
    json_decref(object);
    return fflush(stdout) == 0;
}

static bool run_on_chat_event(void *user, rp_chat_event event, const rp_tool_call *call, const char *bytes, size_t n) {
    run_state *s = user;
    if (event == RP_CHAT_TEXT) return print_text(s, bytes, n);
    if (event == RP_CHAT_REASONING) return print_reasoning(s, bytes, n);
    return event != RP_CHAT_CALL_END || print_call(s, call);
}

static bool run_on_text(void *user, const char *text, size_t n) {
    run_state *s = user;
    rp_error err;
    if (s->reader == NULL) return print_text(s, text, n);
    return rp_chat_reader_feed(s->reader, text, n, &err) == RP_OK; /* run_one reports it */
}

static void run_on_logits(void *user, const float *logits, int32_t n_vocab) {
    run_state *s = user;
    for (int32_t i = 0; i < n_vocab; i++) { /* byte by byte: little-endian on every machine */
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        unsigned char bytes[4] = {(unsigned char)bits, (unsigned char)(bits >> 8), (unsigned char)(bits >> 16),
                                  (unsigned char)(bits >> 24)};
        fwrite(bytes, 1, sizeof bytes, s->dump); /* failures are reported when the file is closed */
    }
}

static void run_on_progress(void *user, uint64_t done, uint64_t total) {
    run_state *s = user;
    cli_answer_on_progress(&s->answer, done, total);
}

/* ---- inputs and requests ---- */

static int run_check_options(const run_options *o) {
    int status = run_prompts_check(&o->prompts);
    if (status != CLI_OK) return status;
    if (o->lora_scale != 1 && o->lora == NULL)
        return cli_fail(CLI_WRONG_USE, "--lora-scale needs an adapter: give --lora FILE, too");
    const char *of_chats = run_form_of_chats(&o->form),
               *form = o->form.json_schema != NULL ? "--json-schema" : of_chats;
    if (o->grammar != NULL && form != NULL)
        return cli_fail(CLI_WRONG_USE, "--grammar and %s exclude each other: give one of them", form);
    if (of_chats != NULL && (o->prompts.raw || o->prompts.documents.n > 0))
        return cli_fail(CLI_WRONG_USE, "%s is for messages in the model's chat template: leave out %s", of_chats,
                        o->prompts.raw ? "--raw" : "--pml");
    if (o->form.tool_choice != NULL && o->form.tools == NULL)
        return cli_fail(CLI_WRONG_USE, "--tool-choice needs tools: give --tools FILE, too");
    if (o->grammar_trigger != NULL && o->grammar == NULL)
        return cli_fail(CLI_WRONG_USE, "--grammar-trigger needs a grammar: give --grammar FILE, too");
    if (o->tenant != NULL && strlen(o->tenant) > RP_MAX_TENANT_BYTES)
        return cli_fail(CLI_WRONG_USE, "--tenant has %zu bytes: give at most %d", strlen(o->tenant),
                        RP_MAX_TENANT_BYTES);
    if (o->sampling.logprobs > 0 && !o->json)
        return cli_fail(CLI_WRONG_USE, "--logprobs %d: log-probabilities are printed as JSON, give --json too",
                        (int)o->sampling.logprobs);
    return cli_sampling_check(&o->sampling);
}

/* Runs before the model is opened: a missing file must not cost the loading time. */
static int read_inputs(run_state *s) {
    const run_options *o = s->options;
    int status = o->grammar != NULL ? cli_read_utf8(o->grammar, "a grammar is GBNF", &s->grammar) : CLI_OK;
    if (status == CLI_OK) status = run_form_read(&s->form, &o->form);
    return status == CLI_OK ? run_inputs_read(&s->inputs, &o->prompts) : status;
}

static int load(run_state *s) {
    const run_options *o = s->options;
    double start = cli_now_ms();
    int status = cli_load_model(&s->loaded, o->model, o->chat_format);
    if (status == CLI_OK) status = cli_sampling_bias(&o->sampling, s->loaded.model, &s->bias, &s->n_bias);
    if (status == CLI_OK)
        status = run_inputs_render(&s->inputs, &o->prompts, &s->form, s->loaded.model, o->chat_format);
    if (status != CLI_OK) return status;
    s->sampling = o->sampling;
    cli_sampling_settle(&s->sampling, s->loaded.model);
    rp_error err;
    if (o->lora != NULL && rp_adapter_open(&s->adapter, s->loaded.model, o->lora, &err) != RP_OK)
        return cli_fail_library(&err);
    rp_engine_options engine = cli_engine_options(&o->engine);
    status = cli_find_draft(&s->loaded, o->engine.draft_model);
    if (status == CLI_OK) status = cli_load_engine(&s->loaded, &engine, &o->schemas);
    if (status == CLI_OK) status = cli_prepare_engine(&s->loaded, &engine);
    s->load_ms = cli_now_ms() - start;
    return status;
}

/* An object takes more tokens than a sentence, and half of one is of no use. */
static int32_t max_tokens(const run_state *s) {
    if (s->options->max_tokens > 0) return s->options->max_tokens;
    return run_form_is_given(&s->form) ? FORM_MAX_TOKENS : rp_request_defaults().max_tokens;
}

static rp_request run_make_request(run_state *s, const run_input *in) {
    const run_options *o = s->options;
    rp_request r = rp_request_defaults();
    r.tenant = o->tenant;
    run_input_apply(in, &r);
    r.reuse = (rp_reuse)o->reuse;
    r.quality = s->quality;
    r.kv_keep = o->kv_keep;
    r.kv_method = o->kv_method;
    r.n_kept_shares = o->explain ? RP_MAX_KEPT_SHARES : 0;
    r.max_tokens = max_tokens(s);
    cli_sampling_apply(&s->sampling, s->bias, s->n_bias, &r);
    r.grammar = in->chat != NULL ? NULL : s->grammar != NULL ? s->grammar
                                                             : s->form.grammar;
    r.grammar_trigger = o->grammar_trigger;
    r.ignore_eos = o->ignore_eos;
    r.context_shift = o->context_shift;
    r.adapter = s->adapter;
    r.adapter_scale = o->lora_scale;
    r.n_draft = o->draft != DRAFT_DEFAULT ? o->draft : o->engine.draft_model != NULL ? RP_DRAFT_AUTO
                                                                                     : 0;
    r.shifted_reuse = o->shifted_reuse;
    r.on_logits = s->dump != NULL ? run_on_logits : NULL;
    r.on_progress = run_on_progress;
    r.user = s;
    return r;
}

/* A pipe receives the answer's bytes only. On a terminal, and between two answers, the answer ends its line. */
static void end_line(run_state *s, bool last) {
    if (s->line_is_open && (s->to_terminal || !last)) fputc('\n', stdout);
    s->line_is_open = false;
}

static int print_result(run_state *s, const run_input *in, rp_result *result, const rp_chat_answer *answer, bool last) {
    const run_options *o = s->options;
    if (o->json) return run_report_json(in->name, s->loaded.model, s->loaded.engine, s->load_ms, result, answer);
    end_line(s, last);
    int status = cli_finish_output();
    for (int32_t i = 0; i < result->n_warnings && status == CLI_OK; i++)
        cli_warn("%s: %s", in->name, result->warnings[i]);
    if (status == CLI_OK && o->explain) run_report_explain(stderr, result);
    if (status == CLI_OK && (o->verbose || o->repeat > 1 || cli_is_terminal(stderr)))
        run_report_summary(stderr, result);
    return status;
}

/* An answer that must have a form, and was cut off within it. */
static int check_form(const run_state *s, const run_input *in, const rp_result *r, const rp_chat_answer *answer) {
    const bool cut = strcmp(r->finish_reason, "length") == 0 || strcmp(r->finish_reason, "grammar") == 0;
    const rp_tool_call *call = answer != NULL && answer->n_calls > 0 ? &answer->calls[answer->n_calls - 1] : NULL;
    if (!cut || !run_form_is_given(&s->form)) return CLI_OK;
    const char *name = in->name;
    const int n = (int)r->n_tokens;
    if (call != NULL && !call->is_whole)
        return cli_fail(CLI_FAILED,
                        "%s: the answer ended after %d tokens, within a call of '%s': give a larger --max-tokens", name,
                        n, call->name);
    if (call == NULL && s->form.schema != NULL)
        return cli_fail(CLI_FAILED,
                        "%s: the answer ended after %d tokens, before its JSON did: give a larger --max-tokens", name,
                        n);
    if (call == NULL && s->form.choice == RP_TOOL_CHOICE_REQUIRED)
        return cli_fail(CLI_FAILED, "%s: the answer ended after %d tokens, before its call: give a larger --max-tokens",
                        name, n);
    return CLI_OK;
}

/* The rest of a streamed answer, and its report. */
static int report(run_state *s, const run_input *in, rp_result *result, bool last) {
    rp_chat_answer *answer = NULL;
    rp_error err;
    if (s->reader != NULL && rp_chat_reader_end(s->reader, &answer, &err) != RP_OK)
        return cli_finish_output() != CLI_OK ? CLI_FAILED : cli_fail_library(&err);
    end_reasoning(s);
    int status = print_result(s, in, result, answer, last);
    if (status == CLI_OK) status = check_form(s, in, result, answer);
    rp_chat_answer_free(answer);
    return status;
}

/* The error is about an option's value, not about a document. */
static bool is_wrong_use(const rp_error *err) { return err->code == RP_ERR_INVALID && err->where[0] == '\0'; }

static int run_once(run_state *s, const run_input *in, bool last) {
    rp_request request = run_make_request(s, in);
    rp_result *result = NULL;
    rp_error err;
    s->answer = (cli_answer){.on_text = run_on_text, .user = s, .chat = in->chat};
    int rc = in->chat != NULL ? rp_chat_reader_new(&s->reader, in->chat, run_on_chat_event, s, &err) : RP_OK;
    if (rc == RP_OK) rc = cli_answer_run(&s->answer, s->loaded.engine, &request, &result, &err);
    if (rc != RP_OK) {
        end_reasoning(s);
        end_line(s, false);
        if (rc == RP_ERR_CANCELLED && cli_interrupted()) return CLI_INTERRUPTED;
        return cli_fail_library_as(is_wrong_use(&err) ? CLI_WRONG_USE : CLI_FAILED, &err);
    }
    int status = report(s, in, result, last || cli_interrupted());
    rp_result_free(result);
    return status == CLI_OK && cli_interrupted() ? CLI_INTERRUPTED : status;
}

static int run_one(run_state *s, const run_input *in, bool last) {
    int status = run_once(s, in, last);
    rp_chat_reader_free(s->reader);
    s->reader = NULL;
    return status;
}

static int run_all(run_state *s) {
    int32_t repeat = s->options->repeat;
    for (size_t i = 0; i < s->inputs.n; i++)
        for (int32_t k = 0; k < repeat; k++) {
            int status = run_one(s, &s->inputs.items[i], i + 1 == s->inputs.n && k + 1 == repeat);
            if (status != CLI_OK) return status;
        }
    return CLI_OK;
}

static int open_dump(run_state *s) {
    const char *path = s->options->dump_logits;
    if (path == NULL) return CLI_OK;
    s->dump = fopen(path, "wb");
    return s->dump != NULL ? CLI_OK
                           : cli_fail(CLI_FAILED, "cannot write '%s': give --dump-logits a writable path", path);
}

static int run_read_quality(run_state *s) {
    rp_error err;
    if (s->options->quality == NULL || rp_quality_parse(s->options->quality, &s->quality, &err) == RP_OK) return CLI_OK;
    return cli_fail(CLI_WRONG_USE, "--quality: %s", err.message);
}

static int run_with(const run_options *o) {
    run_state s = {
        .options = o, .to_terminal = cli_is_terminal(stdout), .shows_reasoning = o->verbose || cli_is_terminal(stderr)};
    int status = run_read_quality(&s);
    if (status == CLI_OK) status = read_inputs(&s);
    if (status == CLI_OK) status = load(&s);
    if (status == CLI_OK) status = open_dump(&s);
    if (status == CLI_OK) {
        cli_interrupt_catch();
        status = run_all(&s);
    }
    if (s.dump != NULL) {
        int closed = cli_close_output(s.dump, o->dump_logits);
        if (status == CLI_OK) status = closed;
    }
    rp_adapter_close(s.adapter);
    cli_loaded_free(&s.loaded);
    run_inputs_free(&s.inputs);
    run_form_free(&s.form);
    free(s.grammar);
    free(s.bias);
    return status;
}

static int run_main(int argc, char **argv) {
    run_options o = {.draft = DRAFT_DEFAULT,
                     .shifted_reuse = -1,
                     .sampling = cli_sampling_defaults(),
                     .repeat = 1,
                     .lora_scale = 1};
    cli_parsed parsed = cli_options_parse(&cli_command_run, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    int status = run_check_options(&o);
    return status == CLI_OK ? run_with(&o) : status;
}
