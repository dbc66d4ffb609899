/* SPDX-License-Identifier: Apache-2.0 */
/* cache_ship.c: `reprise cache export` and `import`: a module's KV as one file. Owns their options and output. One
 * thread. */
#include <string.h>

#include "cache/cache_store.h"
#include "common/command.h"
#include "common/text.h"
#include "reprise_store.h"

typedef struct ship_options {
    cache_store_args store;
    const char *name, *file;
} ship_options;

#define AT(field) offsetof(ship_options, field)
static const cli_option export_table[] = {
    {
        .name = "name",
        .kind = CLI_TEXT,
        .value = "NAME",
        .offset = AT(name),
        .required = true,
        .positional = true,
        .help = "module with its members, as 'ls' prints it",
    },
    {
        .name = "file",
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(file),
        .required = true,
        .positional = true,
        .help = "bundle file to write; an existing one is replaced",
    },
    CACHE_STORE_ROWS(ship_options, store),
    {.name = NULL},
};
static const cli_option import_table[] = {
    {
        .name = "file",
        .kind = CLI_TEXT,
        .value = "FILE",
        .offset = AT(file),
        .required = true,
        .positional = true,
        .help = "bundle file, written by 'reprise cache export'",
    },
    CACHE_STORE_ROWS(ship_options, store),
    {.name = NULL},
};
#undef AT

static int export_main(int argc, char **argv);
static int import_main(int argc, char **argv);

const cli_command cli_cache_export = {
    .name = "cache export",
    .summary = "export a module's KV to one file",
    .synopsis = "--store DIR NAME FILE",
    .notes = "A bundle is never encrypted, even if the store is: it is meant for others.\n"
             "Works while an engine has the store open.\n",
    .options = export_table,
    .main = export_main,
};

const cli_command cli_cache_import = {
    .name = "cache import",
    .summary = "import a module's KV from an exported file",
    .synopsis = "--store DIR FILE",
    .notes =
        "The whole file is checked first. The store's folder is created if it does not exist; with a key, records are "
        "encrypted.\n"
        "Checksums do not prove that the KV is right: import only from sources that you would trust with a model.\n",
    .options = import_table,
    .main = import_main,
};

static int cache_ship_parse(const cli_command *command, int argc, char **argv, ship_options *o, bool *done) {
    cli_parsed parsed = cli_options_parse(command, argc, argv, o);
    *done = parsed != CLI_PARSED;
    return parsed == CLI_PARSED_HELP ? cli_finish_output() : CLI_WRONG_USE;
}

static int cache_ship_print(const char *did, const rp_store_transfer *s) {
    char records[CACHE_TEXT_BYTES], size[CACHE_TEXT_BYTES];
    printf("%s ", did);
    cli_print_safe(stdout, s->name, strlen(s->name));
    printf(": %s, %llu tokens, %s\n", cache_count_text(s->records, "record", records), (unsigned long long)s->tokens,
           cache_bytes_text(s->bytes, size));
    if (s->present > 0) printf("%llu of them were already in the store\n", (unsigned long long)s->present);
    return cli_finish_output();
}

static int export_main(int argc, char **argv) {
    ship_options o = {.name = NULL};
    bool done;
    int status = cache_ship_parse(&cli_cache_export, argc, argv, &o, &done);
    if (done) return status;
    cache_progress progress = {.what = "exporting"};
    rp_store *cache = NULL;
    rp_store_transfer s = {.struct_size = sizeof(s)};
    rp_error err;
    status = cache_store_open(&cache, &o.store, true, false);
    if (status != CLI_OK) return status;
    int rc = rp_store_export(cache, o.name, o.file, cache_on_progress, &progress, &s, &err);
    cli_progress_clear(&progress.bar);
    rp_store_close(cache);
    return rc == RP_OK ? cache_ship_print("exported", &s) : cache_store_fail(&err);
}

static int import_main(int argc, char **argv) {
    ship_options o = {.name = NULL};
    bool done;
    int status = cache_ship_parse(&cli_cache_import, argc, argv, &o, &done);
    if (done) return status;
    cache_progress progress = {.what = "importing"};
    rp_store *cache = NULL;
    rp_store_transfer s = {.struct_size = sizeof(s)};
    rp_error err;
    status = cache_store_open(&cache, &o.store, false, true);
    if (status != CLI_OK) return status;
    int rc = rp_store_import(cache, o.file, cache_on_progress, &progress, &s, &err);
    cli_progress_clear(&progress.bar);
    rp_store_close(cache);
    return rc == RP_OK ? cache_ship_print("imported", &s) : cache_store_fail(&err);
}
