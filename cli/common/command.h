/* SPDX-License-Identifier: Apache-2.0 */
/* command.h: a command of the program, and the exit statuses shared by all commands.
 *
 * A command parses its own arguments (options.h), uses the library only through reprise.h, and returns an exit status.
 * It has printed its one error line itself.
 */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "common/options.h"

#define CLI_OK 0
#define CLI_FAILED 1
#define CLI_WRONG_USE 2
#define CLI_INTERRUPTED 130 /* 128 + SIGINT, as shells report it */

typedef struct cli_command {
    const char *name;
    const char *summary;                    /* one line */
    const char *synopsis;                   /* arguments after "reprise NAME" */
    const char *notes;                      /* printed after the options; ends with a newline, or is "" */
    const cli_option *options;              /* ends with a row without a name */
    int (*main)(int argc, char **argv);     /* argv[0] is the command's name */
    const struct cli_command *const *parts; /* its subcommands ("cache simulate"); ends with NULL. NULL: none */
} cli_command;

extern const cli_command cli_command_run;
extern const cli_command cli_command_chat;
extern const cli_command cli_command_inspect;
extern const cli_command cli_command_lint;
extern const cli_command cli_command_eval;
extern const cli_command cli_command_tokenize;
extern const cli_command cli_command_template;
extern const cli_command cli_command_embed;
extern const cli_command cli_command_quantize;
extern const cli_command cli_command_bench;
extern const cli_command cli_command_cache;
extern const cli_command cli_command_serve;
extern const cli_command cli_command_route;
extern const cli_command cli_command_explain;
extern const cli_command cli_command_diff;
extern const cli_command cli_command_split;
extern const cli_command cli_command_pull;
extern const cli_command cli_command_models;
extern const cli_command cli_command_devices;
extern const cli_command cli_command_completion;
extern const cli_command cli_command_cluster;

/* The program's commands in the order of its help; ends with NULL. main sets it before anything else: layers below the
 * commands have no other access to them. */
extern const cli_command *const *cli_commands;
extern const cli_command *const cli_all_commands[]; /* commands.c */

/* Subcommand of `reprise bench`, which is also a command itself. */
extern const cli_command cli_bench_serve;

/* Subcommands of `reprise cache`, in cmd_cache.c's table. */
extern const cli_command cli_cache_ls;
extern const cli_command cli_cache_stat;
extern const cli_command cli_cache_verify;
extern const cli_command cli_cache_rm;
extern const cli_command cli_cache_pin;
extern const cli_command cli_cache_unpin;
extern const cli_command cli_cache_gc;
extern const cli_command cli_cache_rebuild;
extern const cli_command cli_cache_export;
extern const cli_command cli_cache_import;
extern const cli_command cli_cache_simulate;
extern const cli_command cli_cache_weights;

/* Subcommand of `reprise cluster`. */
extern const cli_command cli_cluster_simulate;

#endif
