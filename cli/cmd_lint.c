/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_lint.c: `reprise lint`: checks schemas, and how prompts use them. Owns the command's options and output. One
 * thread. */
#include <string.h>

#include "common/command.h"
#include "common/console.h"
#include "common/json_out.h"
#include "lint_prompts.h"
#include "common/loader.h"
#include "common/text.h"
#include "reprise_tools.h"

typedef struct lint_options {
    const char *schema, *model, *chat_format;
    cli_list prompts;
    int32_t ctx;
    bool strict, json;
} lint_options;

#define AT(field) offsetof(lint_options, field)
static const cli_option options[] = {
    {
        .name = "schema",
        .kind = CLI_TEXT,
        .value = "SCHEMA",
        .offset = AT(schema),
        .positional = true,
        .help = "schema file (PML); without it only the model's chat template is checked",
    },
    {
        .name = "model",
        .letter = 'm',
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(model),
        .required = true,
        .help = "model file (GGUF), for token counts and positions; required",
    },
    {
        .name = "pml",
        .kind = CLI_LIST,
        .value = "FILE",
        .offset = AT(prompts),
        .help = "sample prompts over the schema: concatenated PML documents, or JSON lines with \"prompt\"; '-' for "
                "standard input; may be repeated",
    },
    {
        .name = "ctx",
        .letter = 'c',
        .kind = CLI_INT,
        .value = "N",
        .offset = AT(ctx),
        .min = 0,
        .max = INT32_MAX,
        .help = "context size in tokens, prompt and answer together; 0: the model's training context (0)",
    },
    {.name = "chat-format",
     .kind = CLI_TEXT,
     .value = "NAME",
     .offset = AT(chat_format),
     .help = "chat template name (from the model's metadata)"},
    {.name = "strict", .kind = CLI_FLAG, .offset = AT(strict), .help = "treat warnings as errors in the exit status"},
    {.name = "json", .kind = CLI_FLAG, .offset = AT(json), .help = "print JSON"},
    {.name = NULL},
};
#undef AT

static int lint_main(int argc, char **argv);

const cli_command cli_command_lint = {
    .name = "lint",
    .summary = "check a schema and a chat template for mistakes and waste",
    .synopsis = "[SCHEMA] -m MODEL [--pml FILE]... [--strict] [--json]",
    .notes = "exit status: 0 no errors, 1 errors (with --strict: or warnings), 2 usage error; notes never count\n",
    .options = options,
    .main = lint_main,
};

/* ---- Findings ---- */

static json_t *finding_object(const rp_lint_finding *f) {
    json_t *o = json_object();
    cli_json_set(o, "code", cli_json_text(rp_lint_name(f->code)));
    cli_json_set(o, "severity", cli_json_text(rp_lint_severity_name(f->severity)));
    cli_json_set(o, "document", cli_json_text(f->document));
    cli_json_set(o, "line", json_integer(f->line));
    cli_json_set(o, "column", json_integer(f->column));
    cli_json_set(o, "module", cli_json_text(f->module));
    cli_json_set(o, "message", cli_json_text(f->message));
    return o;
}

static int lint_print_json(const rp_lint *lint) {
    json_t *o = json_object(), *findings = json_array();
    for (size_t i = 0; i < lint->n_findings; i++) cli_json_append(findings, finding_object(&lint->findings[i]));
    cli_json_set(o, "findings", findings);
    cli_json_set(o, "left_out", json_integer((json_int_t)lint->n_left_out));
    cli_json_set(o, "errors", json_integer((json_int_t)lint->n_severity[RP_LINT_ERROR]));
    cli_json_set(o, "warnings", json_integer((json_int_t)lint->n_severity[RP_LINT_WARNING]));
    cli_json_set(o, "notes", json_integer((json_int_t)lint->n_severity[RP_LINT_NOTE]));
    cli_json_set(o, "prompts", json_integer((json_int_t)lint->n_prompts));
    cli_json_set(o, "other_prompts", json_integer((json_int_t)lint->n_others));
    return cli_json_print(o);
}

/* The format of compiler messages, which editors can parse. */
static void print_finding(const rp_lint_finding *f) {
    cli_print_safe(stdout, f->document, strlen(f->document));
    printf(":%d:%d: %s: ", (int)f->line, (int)f->column, rp_lint_severity_name(f->severity));
    cli_print_safe(stdout, f->module, strlen(f->module));
    if (f->module[0] != '\0') printf(": ");
    cli_print_safe(stdout, f->message, strlen(f->message));
    printf(" [%s]\n", rp_lint_name(f->code));
}

static void lint_print_summary(const rp_lint *lint) {
    const size_t *n = lint->n_severity;
    fprintf(stderr, "%zu errors, %zu warnings, %zu notes", n[RP_LINT_ERROR], n[RP_LINT_WARNING], n[RP_LINT_NOTE]);
    if (lint->n_left_out > 0) fprintf(stderr, ", %zu more", lint->n_left_out);
    if (lint->n_prompts + lint->n_others > 0) fprintf(stderr, "; %zu prompts", lint->n_prompts);
    if (lint->n_others > 0) fprintf(stderr, " (%zu over other schemas)", lint->n_others);
    fputc('\n', stderr);
}

static int lint_show(const lint_options *o, const rp_lint *lint) {
    int status;
    if (o->json) status = lint_print_json(lint);
    else {
        for (size_t i = 0; i < lint->n_findings; i++) print_finding(&lint->findings[i]);
        status = cli_finish_output();
        lint_print_summary(lint);
    }
    bool failed = lint->n_severity[RP_LINT_ERROR] > 0 || (o->strict && lint->n_severity[RP_LINT_WARNING] > 0);
    return status == CLI_OK && failed ? CLI_FAILED : status;
}

static int lint_schema(const lint_options *o, const rp_model *model, const lint_prompts *prompts) {
    rp_lint *lint;
    rp_error err;
    const int rc = o->schema ? rp_schema_lint_file(model, o->schema, prompts->items, prompts->n, o->ctx, &lint, &err)
                             : rp_model_lint(model, &lint, &err);
    if (rc) return cli_fail_library(&err);
    int status = lint_show(o, lint);
    rp_lint_free(lint);
    return status;
}

static int lint_main(int argc, char **argv) {
    lint_options o = {0};
    cli_parsed parsed = cli_options_parse(&cli_command_lint, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    if (!o.schema && o.prompts.n > 0)
        return cli_fail(CLI_WRONG_USE, "--pml needs the schema of the prompts: give reprise lint SCHEMA --pml FILE");
    cli_loaded loaded = {0};
    lint_prompts prompts = {0};
    int status = lint_prompts_read(&prompts, &o.prompts);
    if (status == CLI_OK) status = cli_load_model(&loaded, o.model, o.chat_format);
    if (status == CLI_OK) status = lint_schema(&o, loaded.model, &prompts);
    lint_prompts_free(&prompts);
    cli_loaded_free(&loaded);
    return status;
}
