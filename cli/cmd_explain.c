/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_explain.c: `reprise explain` and `reprise diff`: cache hits and misses of a server's request, and a comparison of
 * two. Owns their options. One thread. */
#include "common/command.h"
#include "common/console.h"
#include "common/json_out.h"
#include "reports.h"

typedef struct explain_options {
    reports_args server;
    const char *first, *second;
} explain_options;

#define AT(field) offsetof(explain_options, field)
static const cli_option explain_table[] = {
    {
        .name = "id",
        .kind = CLI_TEXT,
        .value = "ID",
        .offset = AT(first),
        .positional = true,
        .help = "request id, from the x-request-id of the reply; without it the last requests are listed",
    },
    REPORTS_ROWS(explain_options, server),
    {.name = NULL},
};
static const cli_option diff_table[] = {
    {.name = "a",
     .kind = CLI_TEXT,
     .value = "A",
     .offset = AT(first),
     .required = true,
     .positional = true,
     .help = "request id"},
    {.name = "b",
     .kind = CLI_TEXT,
     .value = "B",
     .offset = AT(second),
     .required = true,
     .positional = true,
     .help = "id of a later request"},
    REPORTS_ROWS(explain_options, server),
    {.name = NULL},
};
#undef AT

static int explain_main(int argc, char **argv);
static int diff_main(int argc, char **argv);

const cli_command cli_command_explain = {
    .name = "explain",
    .summary = "explain a request's cache hits and misses",
    .synopsis = "[ID] [OPTIONS]",
    .notes = "A server keeps the reports of its last 512 answers; an API key gives access to those of its tenant.\n",
    .options = explain_table,
    .main = explain_main,
};

const cli_command cli_command_diff = {
    .name = "diff",
    .summary = "compare two requests: where their prompts differ, and the reuse between them",
    .synopsis = "A B [OPTIONS]",
    .notes = "Reports hold hashes of a prompt, not its text: a difference is located to 64 bytes at first, to 4 KiB\n"
             "farther on, and not at all beyond 340 KiB.\n",
    .options = diff_table,
    .main = diff_main,
};

static int explain_explain(const explain_options *o) {
    json_t *report = NULL;
    int status = o->first != NULL ? reports_get_one(&o->server, o->first, &report)
                                  : reports_get(&o->server, "/v1/requests?limit=50", &report);
    if (status != CLI_OK) return status;
    if (o->server.json) return cli_json_print(report);
    if (o->first != NULL) report_print(report);
    else report_print_list(report);
    json_decref(report);
    return cli_finish_output();
}

static int explain_main(int argc, char **argv) {
    explain_options o = {.first = NULL};
    cli_parsed parsed = cli_options_parse(&cli_command_explain, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    return parsed == CLI_PARSED_WRONG ? CLI_WRONG_USE : explain_explain(&o);
}

static int explain_diff(const explain_options *o) {
    json_t *a = NULL, *b = NULL;
    int status = reports_get_one(&o->server, o->first, &a);
    if (status == CLI_OK) status = reports_get_one(&o->server, o->second, &b);
    if (status == CLI_OK && o->server.json) {
        json_t *both = json_object();
        cli_json_set(both, "a", json_incref(a));
        cli_json_set(both, "b", json_incref(b));
        status = cli_json_print(both);
    } else if (status == CLI_OK) {
        report_print_diff(a, b);
        status = cli_finish_output();
    }
    json_decref(a);
    json_decref(b);
    return status;
}

static int diff_main(int argc, char **argv) {
    explain_options o = {.first = NULL};
    cli_parsed parsed = cli_options_parse(&cli_command_diff, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    return parsed == CLI_PARSED_WRONG ? CLI_WRONG_USE : explain_diff(&o);
}
