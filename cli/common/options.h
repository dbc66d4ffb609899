/* SPDX-License-Identifier: Apache-2.0 */
/* options.h: a command's options as a table: parsing, validation and help use the same rows.
 *
 * A row has the offset of its value in the command's own struct (offsetof), and the value's kind:
 *
 *   kind         field          accepted
 *   CLI_FLAG     bool           --json
 *   CLI_TEXT     const char *   --system STRING
 *   CLI_LIST     cli_list       --schema FILE, any number of times
 *   CLI_INT      int32_t        a whole number from min to max
 *   CLI_COUNT    int32_t        a whole number from 0 to max, or auto: the field gets 0 for auto, CLI_NONE for 0
 *   CLI_U64      uint64_t       a whole number
 *   CLI_REAL     float          a number from min to max
 *   CLI_BYTES    uint64_t       a whole number, then nothing, K, M, G or T (powers of 1024)
 *   CLI_LIMIT    uint64_t       as CLI_BYTES, or off: CLI_OFF
 *   CLI_CHOICE   int32_t        one of `choices`; the field gets its index
 *   CLI_CONFIG   cli_config     a file of options; at most one such row
 *
 * Syntax: `--name value`, `--name=value`, `-n value` or `-nvalue`. The last value of a repeated option applies. A
 * positional row is an argument without dashes: the first such row takes the first such argument, and so on; a list
 * takes all remaining ones. An argument that ends with ".gguf" is the value of -m where the command has that option and
 * it is not given. A row without help is accepted but hidden. Values are borrowed from argv, or from the text of an
 * options file.
 *
 * An options file has lines `name = value`, with the names of the options; `name` alone, or `name = true`, for flags;
 * and comments, lines that start with '#'. An option on the command line replaces all of the file's values for it.
 */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum cli_kind {
    CLI_FLAG,
    CLI_TEXT,
    CLI_LIST,
    CLI_INT,
    CLI_COUNT,
    CLI_U64,
    CLI_REAL,
    CLI_BYTES,
    CLI_LIMIT,
    CLI_CHOICE,
    CLI_CONFIG,
} cli_kind;

#define CLI_LIST_MAX 256
#define CLI_OFF UINT64_MAX
#define CLI_NONE (-1)

typedef struct cli_list {
    const char *items[CLI_LIST_MAX];
    size_t n;
} cli_list;

typedef struct cli_config {
    const char *path; /* NULL: none */
    char *text;       /* the text from which values are borrowed */
} cli_config;

typedef struct cli_option {
    const char *name; /* without its dashes; NULL ends the table */
    char letter;      /* the short form, or 0 */
    cli_kind kind;
    const char *value; /* the value's name in help; NULL for flags */
    const char *help;  /* NULL: not shown */
    size_t offset;
    double min, max;
    const char *const *choices; /* ends with NULL */
    bool required;
    bool positional; /* CLI_TEXT, or as the last one CLI_LIST; its name is its `value` */
} cli_option;

typedef enum cli_parsed { CLI_PARSED,
                          CLI_PARSED_HELP,
                          CLI_PARSED_WRONG } cli_parsed;

struct cli_command;

/* Parses argv[1..argc) into `out`, the struct of the table's offsets, initialised with the defaults. CLI_PARSED_HELP:
 * --help was given and help was printed. CLI_PARSED_WRONG: one line on standard error describes the error. */
cli_parsed cli_options_parse(const struct cli_command *command, int argc, char **argv, void *out);

void cli_config_free(cli_config *config);

/* Does the name end as those of model files do? */
bool cli_is_model_file(const char *arg);

/* The subcommand with this name; or NULL, after one error line on standard error. */
const struct cli_command *cli_find_part(const struct cli_command *command, const char *name);

/* The main of a command that only has subcommands. Returns an exit status. */
int cli_run_part(const struct cli_command *command, int argc, char **argv);

/* Prints a command's help: synopsis, subcommands, one entry for each row of its table, notes. */
void cli_options_help(const struct cli_command *command, FILE *to);

#endif
