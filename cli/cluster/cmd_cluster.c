/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_cluster.c: `reprise cluster`: several machines. Owns the table of its subcommands. One thread. */
#include "common/command.h"
#include "common/console.h"

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

static int cluster_main(int argc, char **argv) {
    struct {
        char unused;
    } o = {0};
    if (argc < 2) return cli_fail(CLI_WRONG_USE, "'reprise cluster' needs a command: 'reprise cluster --help' lists them");
    if (argv[1][0] == '-')
        return cli_options_parse(&cli_command_cluster, argc, argv, &o) == CLI_PARSED_HELP ? cli_finish_output() : CLI_WRONG_USE;
    const cli_command *part = cli_find_part(&cli_command_cluster, argv[1]);
    return part != NULL ? part->main(argc - 1, argv + 1) : CLI_WRONG_USE;
}
