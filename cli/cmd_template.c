/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_template.c: `reprise template`: what a chat template makes of a conversation. Owns nothing. One thread. */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/command.h"
#include "common/console.h"
#include "common/loader.h"
#include "common/text.h"
#include "reprise_tools.h"
#include "reprise_chat.h"

typedef struct template_options {
    const char *model, *file;
    bool source, json, tokens, check;
} template_options;

#define AT(field) offsetof(template_options, field)
static const cli_option options[] = {
    {.name = "model",
     .letter = 'm',
     .kind = CLI_TEXT,
     .value = "FILE",
     .offset = AT(model),
     .help = "model file (GGUF): use its template"},
    {.name = "template",
     .kind = CLI_TEXT,
     .value = "FILE",
     .offset = AT(file),
     .help = "template file (Jinja), in place of the model's own"},
    {.name = "source", .kind = CLI_FLAG, .offset = AT(source), .help = "print the template itself; reads no input"},
    {.name = "json",
     .kind = CLI_FLAG,
     .offset = AT(json),
     .help = "print the text and the origin of its parts as JSON"},
    {.name = "tokens", .kind = CLI_FLAG, .offset = AT(tokens), .help = "print token ids; needs --model"},
    {.name = "check",
     .kind = CLI_FLAG,
     .offset = AT(check),
     .help = "report text of earlier messages that more messages, or the date, change"},
    {.name = NULL},
};
#undef AT

static int template_main(int argc, char **argv);

const cli_command cli_command_template = {
    .name = "template",
    .summary = "render a conversation with a chat template",
    .synopsis = "(-m MODEL | --template FILE) [--json | --tokens | --check] < INPUT.json",
    .notes = "Reads a JSON object whose members are the template's variables:\n"
             "  {\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}], \"add_generation_prompt\": true}\n"
             "and tools, documents, enable_thinking, ... With --model, bos_token and eos_token are the model's.\n"
             "--check: where a prefix changes the prefix cache misses; exit status 1 if one does.\n",
    .options = options,
    .main = template_main,
};

/* The template in use, and its model. */
typedef struct template_use {
    cli_loaded loaded;
    rp_template *own; /* of a file */
    const rp_template *t;
} template_use;

static int template_print(const char *bytes, size_t n) {
    fwrite(bytes, 1, n, stdout);
    return cli_finish_output();
}

static int use_file(template_use *use, const template_options *o) {
    char *source = NULL;
    size_t n = 0;
    rp_error err;
    int status = cli_read(o->file, &source, &n);
    if (status == CLI_OK && o->source) status = template_print(source, n);
    else if (status == CLI_OK && rp_template_new(&use->own, source, n, o->file, &err)) status = cli_fail_library(&err);
    use->t = use->own;
    free(source);
    return status;
}

static int use_model(template_use *use, const template_options *o) {
    rp_model_info info = {.struct_size = sizeof(info)};
    use->t = rp_model_template(use->loaded.model);
    rp_model_describe(use->loaded.model, &info);
    if (o->source && info.chat_template) return template_print(info.chat_template, strlen(info.chat_template));
    if (use->t) return CLI_OK;
    return cli_fail(
        CLI_FAILED,
        "%s: the model has no chat template that can be used, but the built-in format '%s': give --template FILE",
        o->model, info.chat_format);
}

/* ---- Rendering ---- */

static int template_render(const template_use *use, const char *json, size_t n, rp_template_text **out) {
    rp_error err;
    const bool of_model = use->loaded.model && !use->own;
    int rc = of_model ? rp_model_render(use->loaded.model, json, n, NULL, out, &err)
                      : rp_template_render(use->t, json, n, NULL, out, &err);
    return rc ? cli_fail_library(&err) : CLI_OK;
}

static const char *origin_name(uint32_t origin) {
    return origin == RP_TEMPLATE_TRUSTED ? "template" : origin == RP_TEMPLATE_UNTRUSTED ? "input"
                                                                                        : "string";
}

static int template_print_json(const rp_template_text *text) {
    json_t *runs = json_array(), *all = json_pack("{s:s%, s:o}", "text", text->bytes, text->n, "runs", runs);
    size_t begin = 0;
    for (size_t i = 0; i < text->n_runs && all; begin = text->runs[i++].end) {
        const rp_template_run *run = &text->runs[i];
        json_t *object = json_pack("{s:I, s:I, s:s}", "begin", (json_int_t)begin, "end", (json_int_t)run->end, "origin",
                                   origin_name(run->origin));
        if (run->origin >= RP_TEMPLATE_FIRST_STRING)
            json_object_set_new(object, "string", json_integer(run->origin - RP_TEMPLATE_FIRST_STRING));
        if (run->origin >= RP_TEMPLATE_FIRST_STRING && run->offset != SIZE_MAX)
            json_object_set_new(object, "offset", json_integer((json_int_t)run->offset));
        json_array_append_new(runs, object);
    }
    char *line = all ? json_dumps(all, 0) : NULL;
    json_decref(all);
    if (line) puts(line);
    int status = line ? cli_finish_output() : cli_fail(CLI_FAILED, "out of memory");
    free(line);
    return status;
}

static int template_print_tokens(const template_use *use, const rp_template_text *text) {
    int32_t *tokens = NULL;
    size_t n = 0;
    rp_error err;
    if (rp_tokenize_rendered(use->loaded.model, text, &tokens, &n, &err)) return cli_fail_library(&err);
    for (size_t i = 0; i < n; i++) printf("%s%d", i > 0 ? " " : "", (int)tokens[i]);
    fputc('\n', stdout);
    rp_free(tokens);
    return cli_finish_output();
}

/* ---- Stability ---- */

static void print_excerpt(const char *word, const char *text) {
    json_t *shown = json_stringn_nocheck(text, strlen(text));
    char *quoted = shown ? json_dumps(shown, JSON_ENCODE_ANY) : NULL;
    printf("  %-13s %s\n", word, quoted ? quoted : "");
    free(quoted);
    json_decref(shown);
}

static void print_change(const rp_template *t, const rp_template_change *c) {
    char first[48] = "now:", second[48] = "another time:";
    const char *const place = c->opens_answer ? "in the generation prompt" : "";
    if (c->by_time) printf("%d message%s: the date or the time", (int)c->n_before, c->n_before == 1 ? "" : "s");
    else {
        printf("%d and %d messages differ %s%sin message %d", (int)c->n_before, (int)c->n_after, place,
               place[0] ? ", " : "", (int)c->message + 1);
        snprintf(first, sizeof(first), c->n_before == 1 ? "1 message:" : "%d messages:", (int)c->n_before);
        snprintf(second, sizeof(second), "%d messages:", (int)c->n_after);
    }
    printf(", at byte %zu, line %zu", c->byte, c->text_line);
    if (c->line_before > 0) printf(", by line %d of the template", (int)c->line_before);
    if (c->line_after > 0 && c->line_after != c->line_before)
        printf("%s line %d", c->line_before > 0 ? ", then" : ", by", (int)c->line_after);
    puts(":");
    print_excerpt(first, c->before);
    print_excerpt(second, c->after);
    printf("  %s\n", rp_template_advice(t, c));
}

static int template_check(const template_use *use, const char *json, size_t n) {
    rp_template_report *report;
    rp_error err;
    if (rp_template_check(use->t, use->own ? NULL : use->loaded.model, json, n, NULL, &report, &err))
        return cli_fail_library(&err);
    const bool failed = report->n_changes > 0 || report->n_rendered == 0;
    for (size_t i = 0; i < report->n_changes; i++) print_change(use->t, &report->changes[i]);
    if (report->n_left_out > 0) printf("%zu more\n", report->n_left_out);
    const size_t n_changes = report->n_changes + report->n_left_out;
    printf("%zu of %zu beginnings of the conversation render, %zu change%s\n", report->n_rendered, report->n_messages,
           n_changes, n_changes == 1 ? "" : "s");
    rp_template_report_free(report);
    const int status = cli_finish_output();
    return status == CLI_OK && failed ? CLI_FAILED : status;
}

static int template_run(const template_use *use, const template_options *o) {
    char *json = NULL;
    size_t n = 0;
    rp_template_text *text = NULL;
    int status = cli_read("-", &json, &n);
    if (status == CLI_OK && o->check) status = template_check(use, json, n);
    else if (status == CLI_OK && (status = template_render(use, json, n, &text)) == CLI_OK)
        status = o->json ? template_print_json(text) : o->tokens ? template_print_tokens(use, text)
                                                                 : template_print(text->bytes, text->n);
    rp_template_text_free(text);
    free(json);
    return status;
}

static int template_main(int argc, char **argv) {
    template_options o = {0};
    template_use use = {0};
    cli_parsed parsed = cli_options_parse(&cli_command_template, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    if (!o.model && !o.file) return cli_fail(CLI_WRONG_USE, "give --model FILE or --template FILE");
    if (o.json + o.tokens + o.check + o.source > 1)
        return cli_fail(CLI_WRONG_USE, "give one of --json, --tokens, --check and --source");
    if (o.tokens && !o.model) return cli_fail(CLI_WRONG_USE, "--tokens needs --model");
    int status = o.model ? cli_load_vocabulary(&use.loaded, o.model) : CLI_OK;
    if (status == CLI_OK) status = o.file ? use_file(&use, &o) : use_model(&use, &o);
    if (status == CLI_OK && !o.source) status = template_run(&use, &o);
    rp_template_free(use.own);
    cli_loaded_free(&use.loaded);
    return status;
}
