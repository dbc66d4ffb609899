/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_completion.c: `reprise completion`: completion scripts for bash, zsh and fish.
 *
 * Generated from the tables that parse the options, so the scripts complete exactly what the commands accept. Owns
 * nothing. One thread.
 */
#include <stdio.h>
#include <string.h>

#include "common/command.h"
#include "common/console.h"
#include "reprise.h"

#define FUNCTION_BYTES 64

static int completion_main(int argc, char **argv);

typedef struct completion_options {
    const char *shell;
} completion_options;

static const char *const shells[] = {"bash", "zsh", "fish", NULL};

static const cli_option options[] = {
    {.name = "shell",
     .kind = CLI_TEXT,
     .value = "bash|zsh|fish",
     .offset = offsetof(completion_options, shell),
     .choices = shells,
     .required = true,
     .positional = true,
     .help = "shell of the script"},
    {.name = NULL},
};

const cli_command cli_command_completion = {
    .name = "completion",
    .summary = "print a shell completion script",
    .synopsis = "bash|zsh|fish",
    .notes = "bash: reprise completion bash > ~/.local/share/bash-completion/completions/reprise\n"
             "zsh:  reprise completion zsh > a file '_reprise' in a folder of $fpath\n"
             "fish: reprise completion fish > ~/.config/fish/completions/reprise.fish\n",
    .options = options,
    .main = completion_main,
};

/* ---- Tables ---- */

typedef enum value_kind { VALUE_NONE,
                          VALUE_ANY,
                          VALUE_WORDS,
                          VALUE_FILE,
                          VALUE_FOLDER } value_kind;

static bool is_shown(const cli_option *o) { return o->help != NULL && !o->positional; }

static value_kind completion_kind_of(const cli_option *o) {
    if (o->kind == CLI_FLAG) return VALUE_NONE;
    if (o->choices != NULL) return VALUE_WORDS;
    if (strcmp(o->value, "DIR") == 0) return VALUE_FOLDER;
    return strcmp(o->value, "FILE") == 0 || strcmp(o->value, "PATH") == 0 ? VALUE_FILE : VALUE_ANY;
}

static const cli_option *positional_of(const cli_command *c) {
    for (const cli_option *o = c->options; o->name != NULL; o++)
        if (o->positional) return o;
    return NULL;
}

static bool is_part(const cli_command *c) { return strchr(c->name, ' ') != NULL; }

static const char *completion_part_name(const cli_command *part) { return strrchr(part->name, ' ') + 1; }

/* The words of one option, with `between` as separator. */
static void print_words(const char *const *words, const char *between) {
    for (size_t i = 0; words[i] != NULL; i++) printf("%s%s", i > 0 ? between : "", words[i]);
}

static void each_command(void (*print)(const cli_command *c)) {
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) {
        print(*c);
        for (const cli_command *const *part = (*c)->parts; part != NULL && *part != NULL; part++) print(*part);
    }
}

/* ---- bash ---- */

static void bash_value(const cli_option *o) {
    static const char *const words[] = {[VALUE_ANY] = ":none", [VALUE_FILE] = ":file", [VALUE_FOLDER] = ":folder"};
    value_kind kind = completion_kind_of(o);
    if (kind == VALUE_NONE) return;
    printf("        --%s", o->name);
    if (o->letter != 0) printf("|-%c", o->letter);
    printf(") values='");
    if (kind == VALUE_WORDS) print_words(o->choices, " ");
    else printf("%s", words[kind]);
    printf("' ;;\n");
}

static void bash_command(const cli_command *c) {
    const cli_option *first = positional_of(c);
    printf("    '%s')\n        words='", c->name);
    for (const cli_command *const *part = c->parts; part != NULL && *part != NULL; part++)
        printf("%s ", completion_part_name(*part));
    if (first != NULL && first->choices != NULL) print_words(first->choices, " ");
    printf("'\n        options='");
    for (const cli_option *o = c->options; o->name != NULL; o++)
        if (is_shown(o)) printf("--%s ", o->name);
    printf("--help'\n        files=%s\n        case $before in\n",
           first != NULL && first->choices == NULL ? "yes" : "");
    for (const cli_option *o = c->options; o->name != NULL; o++)
        if (is_shown(o)) bash_value(o);
    printf("        esac ;;\n");
}

static void bash_part(const cli_command *c) {
    if (is_part(c)) printf("        '%s') command='%s' ;;\n", c->name, c->name);
}

static void print_bash(void) {
    printf("# bash completion of reprise %s, made by `reprise completion bash`.\n"
           "_reprise() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}\n"
           "    local words= options= values= files=\n"
           "    COMPREPLY=()\n"
           "    if [[ $word == = ]]; then word=; elif [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
           "    if ((COMP_CWORD == 1)); then command=; fi\n"
           "    if [[ $command == help ]]; then\n        ((COMP_CWORD == 2)) && command= || "
           "command=\"${COMP_WORDS[2]}\"\n    fi\n"
           "    if ((COMP_CWORD > 2)); then\n        case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n",
           rp_version());
    each_command(bash_part);
    printf("        esac\n    fi\n    case $command in\n    '')\n        words='");
    for (const cli_command *const *c = cli_commands; *c != NULL; c++) printf("%s ", (*c)->name);
    printf("help'\n        options='--help --version' ;;\n");
    each_command(bash_command);
    printf("    esac\n"
           "    case $values in\n"
           "    :none) ;;\n"
           "    :file) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$word\") ;;\n"
           "    :folder) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- \"$word\") ;;\n"
           "    ?*) mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$word\") ;;\n"
           "    '')\n"
           "        if [[ $word == -* ]]; then mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n"
           "        elif [[ $files ]]; then compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "
           "\"$word\")\n"
           "        else mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\"); fi ;;\n"
           "    esac\n"
           "}\n"
           "complete -F _reprise reprise\n");
}

/* ---- zsh ---- */

/* Text for single quotes, with a backslash before each of `special`. */
static void completion_print_quoted(const char *text, const char *special) {
    for (; *text != '\0'; text++) {
        if (*text == '\'') printf("'\\''");
        else if (strchr(special, *text) != NULL) printf("\\%c", *text);
        else putchar(*text);
    }
}

static void zsh_value(const cli_option *o) {
    value_kind kind = completion_kind_of(o);
    if (kind == VALUE_NONE) return;
    putchar(':');
    completion_print_quoted(o->value, "\\:");
    printf(":%s", kind == VALUE_FILE ? "_files" : kind == VALUE_FOLDER ? "_files -/"
                                                                       : "");
    if (kind != VALUE_WORDS) return;
    putchar('(');
    print_words(o->choices, " ");
    putchar(')');
}

static void zsh_option(const cli_option *o) {
    const char *again = o->kind == CLI_LIST ? "*" : "";
    if (o->letter != 0 && o->kind == CLI_LIST) printf(" \\\n        '*'{-%c,--%s}'", o->letter, o->name);
    else if (o->letter != 0) printf(" \\\n        '(-%c --%s)'{-%c,--%s}'", o->letter, o->name, o->letter, o->name);
    else printf(" \\\n        '%s--%s", again, o->name);
    putchar('[');
    completion_print_quoted(o->help, "\\[]:");
    putchar(']');
    zsh_value(o);
    putchar('\'');
}

static void zsh_function(const cli_command *c, char name[FUNCTION_BYTES]) {
    snprintf(name, FUNCTION_BYTES, "_reprise_%s", c->name);
    for (char *p = name; *p != '\0'; p++)
        if (*p == ' ' || *p == '-') *p = '_';
}

static void zsh_entry(const cli_command *c, const char *name) {
    printf("        '%s:", name);
    completion_print_quoted(c->summary, "\\:");
    printf("'\n");
}

static void zsh_call(const cli_command *c, const char *name) {
    char function[FUNCTION_BYTES];
    zsh_function(c, function);
    printf("        %s) %s ;;\n", name, function);
}

static void zsh_options(const cli_command *c) {
    printf("'(-h --help)'{-h,--help}'[print help]'");
    for (const cli_option *o = c->options; o->name != NULL; o++)
        if (is_shown(o)) zsh_option(o);
}

/* A function that completes one of several commands, and its arguments. whole: the command that they are parts of;
 * NULL: the program. */
static void zsh_choice(const char *function, const cli_command *whole, const cli_command *const *list,
                       const char *(*completion_name_of)(const cli_command *c)) {
    printf("%s() {\n    local state line\n    local -a commands=(\n", function);
    for (const cli_command *const *c = list; *c != NULL; c++) zsh_entry(*c, completion_name_of(*c));
    if (whole == NULL) printf("        'help:print the help of a command'\n");
    printf("    )\n    _arguments -C ");
    if (whole != NULL) zsh_options(whole);
    else printf("'--help[print help]' '--version[print the version]'");
    printf(" '1:command:->command' '*::argument:->argument'\n    case $state in\n    command) _describe command "
           "commands ;;\n    argument)\n        case $line[1] in\n");
    for (const cli_command *const *c = list; *c != NULL; c++) zsh_call(*c, completion_name_of(*c));
    if (whole == NULL) printf("        help) _describe command commands ;;\n");
    printf("        esac ;;\n    esac\n}\n\n");
}

static void zsh_command(const cli_command *c) {
    char function[FUNCTION_BYTES];
    zsh_function(c, function);
    if (c->parts != NULL) {
        zsh_choice(function, c, c->parts, completion_part_name);
        return;
    }
    printf("%s() {\n    _arguments ", function);
    zsh_options(c);
    for (const cli_option *o = c->options; o->name != NULL; o++) {
        if (!o->positional) continue;
        printf(" \\\n        '%s:%s:", o->kind == CLI_LIST ? "*" : "", o->name);
        if (o->choices != NULL) putchar('('), print_words(o->choices, " "), printf(")'");
        else printf("_files'");
    }
    printf("\n}\n\n");
}

static const char *completion_name_of(const cli_command *c) { return c->name; }

static void print_zsh(void) {
    printf("#compdef reprise\n# zsh completion of reprise %s, made by `reprise completion zsh`.\n\n", rp_version());
    each_command(zsh_command);
    zsh_choice("_reprise", NULL, cli_commands, completion_name_of);
    /* a file in $fpath is executed by the first completion; the script may also be sourced */
    printf("if [ \"$funcstack[1]\" = _reprise ]; then _reprise \"$@\"; else compdef _reprise reprise; fi\n");
}

/* ---- fish ---- */

/* -d TEXT */
static void fish_text(const char *text) {
    printf(" -d '");
    for (; *text != '\0'; text++) printf(*text == '\'' || *text == '\\' ? "\\%c" : "%c", *text);
    printf("'\n");
}

/* The command is already on the line, and none of its parts is. */
static void fish_condition(const cli_command *c) {
    printf("complete -c reprise -n '__reprise_at %s", c->name);
    for (const cli_command *const *part = c->parts; part != NULL && *part != NULL; part++)
        printf("; and not __reprise_at %s", (*part)->name);
    putchar('\'');
}

static void fish_words(const char *const *words) {
    printf(" -x -a '");
    print_words(words, " ");
    putchar('\'');
}

static void fish_option(const cli_command *c, const cli_option *o) {
    fish_condition(c);
    printf(" -l %s", o->name);
    if (o->letter != 0) printf(" -s %c", o->letter);
    switch (completion_kind_of(o)) {
    case VALUE_NONE: break;
    case VALUE_ANY: printf(" -x"); break;
    case VALUE_WORDS: fish_words(o->choices); break;
    case VALUE_FILE: printf(" -r -F"); break;
    case VALUE_FOLDER: printf(" -x -a '(__fish_complete_directories)'"); break;
    }
    fish_text(o->help);
}

static void fish_entry(const cli_command *c, const char *name) {
    printf(" -a %s", name);
    fish_text(c->summary);
}

static void fish_command(const cli_command *c) {
    const cli_option *first = positional_of(c);
    if (!is_part(c)) {
        printf("complete -c reprise -n __fish_use_subcommand");
        fish_entry(c, c->name);
    }
    for (const cli_command *const *part = c->parts; part != NULL && *part != NULL; part++) {
        fish_condition(c);
        fish_entry(*part, completion_part_name(*part));
    }
    for (const cli_option *o = c->options; o->name != NULL; o++)
        if (is_shown(o)) fish_option(c, o);
    if (first == NULL) return;
    fish_condition(c);
    if (first->choices != NULL) fish_words(first->choices);
    else printf(" -F");
    putchar('\n');
}

static void print_fish(void) {
    printf("# fish completion of reprise %s, made by `reprise completion fish`.\n"
           "function __reprise_at\n    set -l words (commandline -opc)[2..]\n    for word in $argv\n"
           "        test \"$words[1]\" = $word; or return 1\n        set -e words[1]\n    end\nend\n"
           "complete -c reprise -f\ncomplete -c reprise -l help -s h -d 'print help'\n"
           "complete -c reprise -n __fish_use_subcommand -l version -d 'print the version'\n"
           "complete -c reprise -n __fish_use_subcommand -a help -d 'print the help of a command'\n",
           rp_version());
    each_command(fish_command);
}

static int completion_main(int argc, char **argv) {
    static void (*const print[])(void) = {print_bash, print_zsh, print_fish};
    completion_options o = {0};
    cli_parsed parsed = cli_options_parse(&cli_command_completion, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    for (size_t i = 0; shells[i] != NULL; i++)
        if (strcmp(shells[i], o.shell) == 0) {
            print[i]();
            return cli_finish_output();
        }
    return cli_fail(CLI_WRONG_USE, "no completion for '%s': give bash, zsh or fish", o.shell);
}
