/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_cache.c: `reprise cache`: store maintenance and cache simulation. Owns the table of its subcommands. One
 * thread. */
#include "common/command.h"
#include "common/options.h"

static int cache_main(int argc, char **argv);

static const cli_command *const parts[] = {&cli_cache_ls, &cli_cache_stat, &cli_cache_verify, &cli_cache_rm,
                                           &cli_cache_pin, &cli_cache_unpin, &cli_cache_gc, &cli_cache_rebuild,
                                           &cli_cache_export, &cli_cache_import, &cli_cache_simulate,
                                           &cli_cache_weights, NULL};
static const cli_option options[] = {{.name = NULL}};

const cli_command cli_command_cache = {
    .name = "cache",
    .summary = "list, verify, pin, remove, export and import the records of a store",
    .synopsis = "COMMAND [OPTIONS]",
    .notes = "See 'reprise cache COMMAND --help'.\n",
    .options = options,
    .main = cache_main,
    .parts = parts,
};

static int cache_main(int argc, char **argv) { return cli_run_part(&cli_command_cache, argc, argv); }
