/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_cluster.c: `reprise cluster`: several machines. Owns the table of its subcommands. One thread. */
#include "common/command.h"
#include "common/options.h"

static int cluster_main(int argc, char **argv);

static const cli_command *const parts[] = {&cli_cluster_simulate, NULL};
static const cli_option options[] = {{.name = NULL}};

const cli_command cli_command_cluster = {
    .name = "cluster",
    .summary = "simulate routers and nodes",
    .synopsis = "COMMAND [OPTIONS]",
    .notes = "See 'reprise cluster COMMAND --help'.\n",
    .options = options,
    .main = cluster_main,
    .parts = parts,
};

static int cluster_main(int argc, char **argv) { return cli_run_part(&cli_command_cluster, argc, argv); }
