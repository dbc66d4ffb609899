/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_models.c: `reprise models`: the models on this machine, as a table or as JSON. Owns the command's options. One
   thread. */
#include <stdlib.h>
#include <string.h>

#include "cache/cache_store.h"
#include "common/command.h"
#include "common/console.h"
#include "common/json_out.h"
#include "common/text.h"
#include "models/model_list.h"
#include "reprise_tools.h"

typedef struct models_options {
    const char *name;
    bool json;
} models_options;

#define AT(field) offsetof(models_options, field)
static const cli_option options[] = {
    {.name = "name",
     .kind = CLI_TEXT,
     .value = "NAME",
     .offset = AT(name),
     .positional = true,
     .help = "print the path of this model alone"},
    {.name = "json", .kind = CLI_FLAG, .offset = AT(json), .help = "print one line of JSON per model"},
    {.name = NULL},
};
#undef AT

static int models_main(int argc, char **argv);

const cli_command cli_command_models = {
    .name = "models",
    .summary = "list the models on this machine, those of other programs included",
    .synopsis = "[NAME] [--json]",
    .notes = "Looks in the folder of 'reprise pull', in the hub's cache, and where llama.cpp, Ollama and LM Studio "
             "keep their models.\n"
             "-m NAME of every command reads such a file where it is, without a copy.\n",
    .options = options,
    .main = models_main,
};

enum { SIZE_CELLS = 10,
       ARCHITECTURE_LEAST = 12,
       QUANT_LEAST = 5,
       NAME_LEAST = 4 };

/* What the file says; of an unreadable one, nothing. */
static rp_model_summary summary_of(const model_entry *e) {
    rp_model_summary s = {.struct_size = sizeof s};
    if (rp_model_summarize(e->path, &s, NULL) != RP_OK) s = (rp_model_summary){.weights = ""};
    return s;
}

static void architecture_text(const rp_model_summary *s, char *out, size_t size) {
    if (s->architecture[0] == '\0') snprintf(out, size, "(unreadable)");
    else snprintf(out, size, s->is_supported ? "%s" : "%s (not supported)", s->architecture);
}

static int wider(int cells, const char *text) { return cli_text_cells(text) > cells ? cli_text_cells(text) : cells; }

static int models_table(const model_list *l) {
    int name_cells = NAME_LEAST, architecture_cells = ARCHITECTURE_LEAST, quant_cells = QUANT_LEAST;
    rp_model_summary *all = cli_alloc(l->n * sizeof *all);
    char architecture[96], size[CACHE_TEXT_BYTES];
    for (size_t i = 0; i < l->n; i++) {
        all[i] = summary_of(&l->items[i]);
        architecture_text(&all[i], architecture, sizeof architecture);
        name_cells = wider(name_cells, l->items[i].name);
        architecture_cells = wider(architecture_cells, architecture);
        quant_cells = wider(quant_cells, all[i].weights);
    }
    printf("%-*s  %*s  %-*s  %-*s  %s\n", name_cells, "NAME", SIZE_CELLS, "SIZE", architecture_cells, "ARCHITECTURE",
           quant_cells, "QUANT", "WHERE");
    for (size_t i = 0; i < l->n; i++) {
        architecture_text(&all[i], architecture, sizeof architecture);
        cli_print_fit(stdout, l->items[i].name, name_cells, name_cells);
        printf("  %*s  ", SIZE_CELLS, cache_bytes_text(l->items[i].bytes, size));
        cli_print_fit(stdout, architecture, architecture_cells, architecture_cells);
        fputs("  ", stdout);
        cli_print_fit(stdout, all[i].weights, quant_cells, quant_cells);
        printf("  %s\n", l->items[i].where);
    }
    free(all);
    return cli_finish_output();
}

static int models_json(const model_list *l) {
    int status = CLI_OK;
    for (size_t i = 0; i < l->n && status == CLI_OK; i++) {
        const model_entry *e = &l->items[i];
        const rp_model_summary s = summary_of(e);
        json_t *o = json_object();
        cli_json_set(o, "name", cli_json_text(e->name));
        cli_json_set(o, "where", cli_json_text(e->where));
        cli_json_set(o, "path", cli_json_text(e->path));
        cli_json_set(o, "bytes", json_integer((json_int_t)e->bytes));
        cli_json_set(o, "files", json_integer(e->n_files));
        cli_json_set(o, "architecture", cli_json_text(s.architecture));
        cli_json_set(o, "supported", json_boolean(s.is_supported));
        cli_json_set(o, "quantization", cli_json_text(s.weights));
        status = cli_json_print(o);
    }
    return status;
}

/* The one that the name chooses becomes the whole list. */
static int models_choose(model_list *l, const char *name) {
    size_t n;
    const model_entry *e = model_list_choose(l, name, &n);
    if (n == 0) return cli_fail(CLI_FAILED, "no model '%s' on this machine: 'reprise models' lists them", name);
    if (n > 1) return cli_fail(CLI_WRONG_USE, "%zu models have the name '%s': give more of it", n, name);
    const model_entry kept = *e;
    l->items[e - l->items] = l->items[0];
    l->items[0] = kept;
    for (; l->n > 1; l->n--) {
        free(l->items[l->n - 1].name);
        free(l->items[l->n - 1].path);
    }
    return CLI_OK;
}

static int models_print(const models_options *o, model_list *l) {
    if (l->n == 0 && o->name == NULL && !o->json) {
        fprintf(stderr, "no models in %s: download one with 'reprise pull'\n",
                l->places != NULL ? l->places : "any folder");
        return CLI_OK;
    }
    int status = o->name != NULL ? models_choose(l, o->name) : CLI_OK;
    if (status != CLI_OK) return status;
    if (o->json) return models_json(l);
    if (o->name == NULL) return models_table(l);
    printf("%s\n", l->items[0].path);
    return cli_finish_output();
}

static int models_main(int argc, char **argv) {
    models_options o = {0};
    cli_parsed parsed = cli_options_parse(&cli_command_models, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    model_list l = model_list_find();
    int status = models_print(&o, &l);
    model_list_free(&l);
    return status;
}
