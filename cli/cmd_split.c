/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_split.c: `reprise split`: proposes a schema for plain prompts. Owns the options and the output; rp_split computes
 * the proposal. One thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "common/console.h"
#include "common/json_out.h"
#include "common/loader.h"
#include "split_input.h"
#include "common/text.h"
#include "reprise_tools.h"

typedef struct split_options {
    cli_list files;
    const char *model, *output, *prompts, *name;
    int32_t min;
    bool json;
} split_options;

#define AT(field) offsetof(split_options, field)
static const cli_option options[] = {
    {
        .name = "file",
        .kind = CLI_LIST,
        .value = "FILE",
        .offset = AT(files),
        .required = true,
        .positional = true,
        .help = "a prompt as text, or JSON Lines of {\"prompt\": TEXT} or {\"messages\": [...]}, one per line; '-': "
                "standard input",
    },
    {
        .name = "model",
        .letter = 'm',
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(model),
        .help = "count tokens of this model (GGUF); without it count bytes and estimate parameter lengths",
    },
    {.name = "output",
     .letter = 'o',
     .kind = CLI_TEXT,
     .value = "FILE",
     .offset = AT(output),
     .help = "file for the schema (standard output)"},
    {
        .name = "pml",
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(prompts),
        .help = "write the prompts over the schema: JSON Lines of {\"name\": ..., \"prompt\": PML}",
    },
    {.name = "name", .kind = CLI_TEXT, .value = "NAME", .offset = AT(name), .help = "name of the schema (proposed)"},
    {.name = "min",
     .kind = CLI_INT,
     .value = "BYTES",
     .offset = AT(min),
     .min = 1,
     .max = 65536,
     .help = "minimum size of a module (64)"},
    {.name = "json", .kind = CLI_FLAG, .offset = AT(json), .help = "print JSON instead of the summary"},
    {.name = NULL},
};
#undef AT

static int split_main(int argc, char **argv);

const cli_command cli_command_split = {
    .name = "split",
    .summary = "propose a schema for plain prompts",
    .synopsis = "FILE... [-m MODEL] [-o SCHEMA] [--pml OUT] [--json]",
    .notes = "The common prefix of all prompts becomes the schema's own text, passages that two or more share become "
             "modules,\n"
             "variations within a passage become parameters, alternatives at one position become unions. Each prompt "
             "over the\n"
             "schema has its original text. docs/split.md explains the summary.\n",
    .options = options,
    .main = split_main,
};

/* ---- summary ---- */

/* Totals over all prompts. */
typedef struct totals {
    uint64_t total, cached, first, prefix;
} totals;

static totals add_up(const rp_split_result *r) {
    totals t = {0};
    for (size_t i = 0; i < r->n_prompts; i++) {
        t.total += r->prompts[i].total;
        t.cached += r->prompts[i].cached;
        t.first += r->prompts[i].first;
        t.prefix += r->prompts[i].prefix;
    }
    return t;
}

static double share(uint64_t part, uint64_t whole) { return whole > 0 ? 100.0 * (double)part / (double)whole : 0; }

/* A line of the summary, with the share of `whole`. */
static void print_figure(FILE *to, const char *what, uint64_t n, uint64_t whole) {
    fprintf(to, "%-52s %10llu  %5.1f %%\n", what, (unsigned long long)n, share(n, whole));
}

static void split_print_summary(FILE *to, const rp_split_result *r) {
    totals t = add_up(r);
    const char *unit = r->counts_tokens ? "tokens" : "bytes";
    fprintf(to, "%zu prompts, %zu modules; all prompts begin with the same %zu bytes\n", r->n_prompts, r->n_modules,
            r->anonymous_bytes);
    if (r->n_modules > 0) fprintf(to, "\n%-40s %8s %8s %10s\n", "module", "bytes", "prompts", "parameters");
    for (size_t i = 0; i < r->n_modules; i++) {
        const rp_split_module *m = &r->modules[i];
        fprintf(to, "%-40s %8zu %8d %10d%s\n", m->name, m->n_bytes, (int)m->n_prompts, (int)m->n_params,
                m->is_alternative ? "  alternative" : "");
    }
    fprintf(to, "\n%s%-*s %10llu\n", unit, 52 - (int)strlen(unit), " of the prompts", (unsigned long long)t.total);
    print_figure(to, "cached, with the schema prefilled before", t.cached, t.total);
    print_figure(to, "cached, each part prefilled by its first prompt", t.cached - t.first, t.total);
    print_figure(to, "cached by a prefix cache, in this order", t.prefix, t.total);
    fprintf(to, "%-52s %10.1f %s\n", "cached per prompt",
            r->n_prompts > 0 ? (double)t.cached / (double)r->n_prompts : 0, unit);
}

static json_t *split_figures(uint64_t total, uint64_t cached, uint64_t first, uint64_t prefix) {
    json_t *o = json_object();
    cli_json_set(o, "total", json_integer((json_int_t)total));
    cli_json_set(o, "cached", json_integer((json_int_t)cached));
    cli_json_set(o, "cached_in_order", json_integer((json_int_t)(cached - first)));
    cli_json_set(o, "prefix", json_integer((json_int_t)prefix));
    return o;
}

static json_t *list_modules(const rp_split_result *r) {
    json_t *list = json_array();
    for (size_t i = 0; i < r->n_modules; i++) {
        const rp_split_module *m = &r->modules[i];
        json_t *o = json_object();
        cli_json_set(o, "name", cli_json_text(m->name));
        cli_json_set(o, "bytes", json_integer((json_int_t)m->n_bytes));
        cli_json_set(o, "prompts", json_integer(m->n_prompts));
        cli_json_set(o, "parameters", json_integer(m->n_params));
        cli_json_set(o, "alternative", json_boolean(m->is_alternative));
        cli_json_append(list, o);
    }
    return list;
}

static int split_print_json(const split_options *o, const split_input *in, const rp_split_result *r) {
    totals t = add_up(r);
    json_t *all = json_object(), *list = json_array();
    cli_json_set(all, "unit", cli_json_text(r->counts_tokens ? "tokens" : "bytes"));
    cli_json_set(all, "anonymous_bytes", json_integer((json_int_t)r->anonymous_bytes));
    cli_json_set(all, "modules", list_modules(r));
    cli_json_set(all, "all", split_figures(t.total, t.cached, t.first, t.prefix));
    for (size_t i = 0; i < r->n_prompts; i++) {
        const rp_split_import *p = &r->prompts[i];
        json_t *one = split_figures(p->total, p->cached, p->first, p->prefix);
        cli_json_set(one, "name", cli_json_text(in->prompts[i].name));
        cli_json_append(list, one);
    }
    cli_json_set(all, "prompts", list);
    if (o->output == NULL) cli_json_set(all, "schema", cli_json_text(r->schema));
    return cli_json_print(all);
}

/* ---- Files ---- */

static int split_write_schema(const char *path, const rp_split_result *r) {
    FILE *to = fopen(path, "wb");
    if (to == NULL) return cli_fail(CLI_FAILED, "cannot write '%s': %s", path, strerror(errno));
    fwrite(r->schema, 1, r->n_schema, to);
    return cli_close_output(to, path);
}

static int write_prompts(const char *path, const split_input *in, const rp_split_result *r) {
    FILE *to = fopen(path, "wb");
    if (to == NULL) return cli_fail(CLI_FAILED, "cannot write '%s': %s", path, strerror(errno));
    for (size_t i = 0; i < r->n_prompts; i++) {
        json_t *line = json_object();
        cli_json_set(line, "name", cli_json_text(in->prompts[i].name));
        cli_json_set(line, "prompt", cli_json_text(r->prompts[i].pml));
        json_dumpf(line, to, JSON_COMPACT);
        json_decref(line);
        fputc('\n', to);
    }
    return cli_close_output(to, path);
}

static int split_show(const split_options *o, const split_input *in, const rp_split_result *r) {
    int status = o->output != NULL ? split_write_schema(o->output, r) : CLI_OK;
    if (status == CLI_OK && o->prompts != NULL) status = write_prompts(o->prompts, in, r);
    if (status != CLI_OK) return status;
    if (o->json) return split_print_json(o, in, r);
    if (o->output == NULL) fwrite(r->schema, 1, r->n_schema, stdout);
    split_print_summary(stderr, r);
    return cli_finish_output();
}

static int split_split(const split_options *o, const split_input *in, const rp_model *model) {
    rp_split_options how = rp_split_options_defaults();
    rp_split_result *r = NULL;
    rp_error err;
    if (o->name != NULL) how.name = o->name;
    if (o->min > 0) how.min_bytes = o->min;
    how.model = model;
    if (rp_split(in->prompts, in->n, &how, &r, &err) != RP_OK) return cli_fail_library(&err);
    int status = split_show(o, in, r);
    rp_split_free(r);
    return status;
}

static int split_main(int argc, char **argv) {
    split_options o = {0};
    cli_parsed parsed = cli_options_parse(&cli_command_split, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    cli_loaded loaded = {0};
    split_input in = {0};
    int status = split_input_read(&in, &o.files);
    if (status == CLI_OK && o.model != NULL) status = cli_load_model(&loaded, o.model, NULL);
    if (status == CLI_OK) status = split_split(&o, &in, loaded.model);
    split_input_free(&in);
    cli_loaded_free(&loaded);
    return status;
}
