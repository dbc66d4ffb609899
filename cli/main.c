/* SPDX-License-Identifier: Apache-2.0 */
/* main.c: the program `reprise`: looks up the command and runs it.
 *
 * Owns the help of the program. One thread; the library has its own.
 */
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "common/command.h"
#include "common/console.h"
#include "reprise.h"
#include "common/text.h"

static const cli_command *find_command(const char *name) {
    for (const cli_command *const *c = cli_commands; *c != NULL; c++)
        if (strcmp((*c)->name, name) == 0) return *c;
    return NULL;
}

/* A model or options of a command in place of a command, as for programs that have one only. */
static int missing_command(const char *name) {
    cli_nearest nearest = cli_nearest_start(name);
    cli_nearest_try(&nearest, "--help");
    cli_nearest_try(&nearest, "--version");
    if (nearest.best != NULL)
        return cli_fail(CLI_WRONG_USE, "unknown option '%s': did you mean '%s'?", name, nearest.best);
    if (name[0] == '-')
        return cli_fail(CLI_WRONG_USE,
                        "'%s' before a command: give the command first, as in reprise run -m MODEL \"TEXT\"", name);
    return cli_fail(CLI_WRONG_USE,
                    "no command before '%s': give reprise chat %s, reprise run %s \"TEXT\" or reprise serve %s", name,
                    name, name, name);
}

static int unknown_command(const char *name) {
    if (name[0] == '-' || cli_is_model_file(name)) return missing_command(name);
    cli_nearest nearest = cli_nearest_start(name);
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) cli_nearest_try(&nearest, (*c)->name);
    cli_nearest_try(&nearest, "help");
    if (nearest.best != NULL)
        return cli_fail(CLI_WRONG_USE, "unknown command '%s': did you mean '%s'?", name, nearest.best);
    return cli_fail(CLI_WRONG_USE, "unknown command '%s': 'reprise help' lists the commands", name);
}

static void print_help(void) {
    printf("usage: reprise COMMAND [OPTIONS]\n\nReprise runs prompts composed of modules and reuses their KV "
           "cache.\n\ncommands:\n");
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) printf("  %-10s %s\n", (*c)->name, (*c)->summary);
    printf("  %-10s %s\n", "help", "print the help of a command: reprise help COMMAND");
    printf("\n"
           "options:\n"
           "  --version  print the version\n"
           "  --help     print this help\n"
           "\n"
           "exit status: %d success, %d failure, %d usage error, %d interrupted (Ctrl-C)\n",
           CLI_OK, CLI_FAILED, CLI_WRONG_USE, CLI_INTERRUPTED);
}

static int main_help(int argc, char **argv) {
    if (argc < 2) {
        print_help();
        return cli_finish_output();
    }
    const cli_command *command = find_command(argv[1]);
    if (command == NULL) return unknown_command(argv[1]);
    int words = 2;
    if (argc > 2 && command->parts != NULL) {
        command = cli_find_part(command, argv[words++]);
        if (command == NULL) return CLI_WRONG_USE;
    }
    if (argc > words)
        return cli_fail(CLI_WRONG_USE, "unexpected argument '%s': 'reprise help' takes one command", argv[words]);
    cli_options_help(command, stdout);
    return cli_finish_output();
}

int main(int argc, char **argv) {
    setlocale(LC_CTYPE, ""); /* only this category: numbers keep the decimal point */
    cli_commands = cli_all_commands;
    if (argc < 2) return cli_fail(CLI_WRONG_USE, "no command: 'reprise help' lists the commands");
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0) {
        printf("reprise %s\n", rp_version());
        return cli_finish_output();
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) return main_help(1, argv);
    if (strcmp(name, "help") == 0) return main_help(argc - 1, argv + 1);
    const cli_command *command = find_command(name);
    rp_log_set_level(RP_LOG_WARN);
    return command != NULL ? command->main(argc - 1, argv + 1) : unknown_command(name);
}
