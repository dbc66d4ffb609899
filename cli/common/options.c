/* SPDX-License-Identifier: Apache-2.0 */
/* options.c: parses options by a table and prints help from it. Owns no state. One thread. */
#define _POSIX_C_SOURCE 200809L /* strcasecmp */

#include "common/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/command.h"
#include "common/console.h"
#include "common/input.h"
#include "common/llama_options.h"
#include "common/text.h"

#define HELP_NAME_CELLS 26 /* first cell of the help's second column */
#define HELP_CELLS 100

#define EXPECTED_BYTES 256
#define AT_BYTES 224 /* "FILE:LINE" */

typedef struct option_parser {
    const cli_command *command;
    int argc;
    char **argv;
    int next;
    size_t n_positional; /* taken so far */
    const char *model;   /* a model file that was given without -m; NULL: none */
    bool *given;         /* of each row: on the command line */
    void *out;
} option_parser;

/* ---- Values: text to field; on failure, the expected form ---- */

static bool wrong_range(const cli_option *o, char expected[EXPECTED_BYTES]) {
    snprintf(expected, EXPECTED_BYTES, "%s from %.10g to %.10g", o->kind == CLI_REAL ? "a number" : "a whole number",
             o->min, o->max);
    return false;
}

static bool set_int(const cli_option *o, const char *text, void *field, char expected[EXPECTED_BYTES]) {
    char *end = NULL;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || (double)v < o->min || (double)v > o->max)
        return wrong_range(o, expected);
    *(int32_t *)field = (int32_t)v;
    return true;
}

static bool set_count(const cli_option *o, const char *text, void *field, char expected[EXPECTED_BYTES]) {
    int32_t *count = field;
    if (strcmp(text, "auto") == 0) *count = 0;
    else if (!set_int(o, text, field, expected)) {
        snprintf(expected, EXPECTED_BYTES, "a whole number from 0 on, or 'auto'");
        return false;
    } else if (*count == 0) *count = CLI_NONE;
    return true;
}

static bool set_real(const cli_option *o, const char *text, void *field, char expected[EXPECTED_BYTES]) {
    char *end = NULL;
    double v = strtod(text, &end);
    if (end == text || *end != '\0' || !(v >= o->min && v <= o->max)) return wrong_range(o, expected);
    *(float *)field = (float)v;
    return true;
}

/* Digits only: strtoull alone would accept a sign and leading space. Returns the text after them, or NULL. */
static const char *parse_u64(const char *text, uint64_t *v) {
    if (*text < '0' || *text > '9') return NULL;
    char *end = NULL;
    errno = 0;
    *v = strtoull(text, &end, 10);
    return errno == 0 ? end : NULL;
}

static bool set_u64(const char *text, void *field, char expected[EXPECTED_BYTES]) {
    uint64_t v = 0;
    const char *end = parse_u64(text, &v);
    snprintf(expected, EXPECTED_BYTES, "a whole number from 0 to 18446744073709551615");
    if (end == NULL || *end != '\0') return false;
    *(uint64_t *)field = v;
    return true;
}

static bool set_bytes(const char *text, void *field, char expected[EXPECTED_BYTES]) {
    static const char units[] = "KMGT";
    uint64_t v = 0;
    unsigned shift = 0;
    const char *end = parse_u64(text, &v);
    if (end != NULL && *end != '\0') {
        char upper = (char)(*end >= 'a' && *end <= 'z' ? *end - 32 : *end);
        const char *unit = strchr(units, upper);
        if (unit != NULL) {
            shift = 10 * (unsigned)(unit - units + 1);
            end++;
        }
    }
    snprintf(expected, EXPECTED_BYTES, "bytes, such as 800M or 4G");
    if (end == NULL || *end != '\0' || v == 0 || v > UINT64_MAX >> shift) return false;
    *(uint64_t *)field = v << shift;
    return true;
}

static bool set_limit(const char *text, void *field, char expected[EXPECTED_BYTES]) {
    if (strcmp(text, "off") == 0) *(uint64_t *)field = CLI_OFF;
    else if (!set_bytes(text, field, expected)) {
        snprintf(expected, EXPECTED_BYTES, "bytes, such as 800M or 4G, or 'off'");
        return false;
    }
    return true;
}

static bool set_choice(const cli_option *o, const char *text, void *field, char expected[EXPECTED_BYTES]) {
    snprintf(expected, EXPECTED_BYTES, "one of");
    for (int32_t i = 0; o->choices[i] != NULL; i++) {
        if (strcmp(o->choices[i], text) == 0) {
            *(int32_t *)field = i;
            return true;
        }
        size_t used = strlen(expected);
        snprintf(expected + used, EXPECTED_BYTES - used, "%s %s", i > 0 ? "," : "", o->choices[i]);
    }
    return false;
}

static bool set_list(const char *text, void *field, char expected[EXPECTED_BYTES]) {
    cli_list *list = field;
    snprintf(expected, EXPECTED_BYTES, "at most %d values", CLI_LIST_MAX);
    if (list->n == CLI_LIST_MAX) return false;
    list->items[list->n++] = text;
    return true;
}

static bool set_value(const cli_option *o, const char *text, void *out, char expected[EXPECTED_BYTES]) {
    void *field = (char *)out + o->offset;
    switch (o->kind) {
    case CLI_FLAG: *(bool *)field = true; return true;
    case CLI_TEXT: *(const char **)field = text; return true;
    case CLI_CONFIG: ((cli_config *)field)->path = text; return true;
    case CLI_LIST: return set_list(text, field, expected);
    case CLI_INT: return set_int(o, text, field, expected);
    case CLI_COUNT: return set_count(o, text, field, expected);
    case CLI_U64: return set_u64(text, field, expected);
    case CLI_REAL: return set_real(o, text, field, expected);
    case CLI_BYTES: return set_bytes(text, field, expected);
    case CLI_LIMIT: return set_limit(text, field, expected);
    case CLI_CHOICE: return set_choice(o, text, field, expected);
    }
    return true;
}

/* ---- Names ---- */

static const cli_option *find_long(const cli_command *c, const char *name, size_t n) {
    for (const cli_option *o = c->options; o->name != NULL; o++)
        if (!o->positional && strlen(o->name) == n && memcmp(o->name, name, n) == 0) return o;
    return NULL;
}

static const cli_option *find_positional(const cli_command *c, size_t i) {
    for (const cli_option *o = c->options; o->name != NULL; o++)
        if (o->positional && i-- == 0) return o;
    return NULL;
}

static const cli_option *find_letter(const cli_command *c, char letter) {
    for (const cli_option *o = c->options; o->name != NULL; o++)
        if (o->letter == letter) return o;
    return NULL;
}

/* Bytes of the name in "--name=value", "-name" or "-name99". */
static size_t option_name_bytes(const char *arg) {
    size_t n = strcspn(arg, "=");
    while (arg[1] != '-' && n > 3 && arg[n - 1] >= '0' && arg[n - 1] <= '9') n--;
    return n;
}

static int unknown_option(const cli_command *c, const char *arg, const char *name, size_t n) {
    char word[CLI_NEAREST_BYTES];
    int status = cli_llama_option_refuse(c, arg, option_name_bytes(arg));
    if (status != CLI_OK) return status;
    snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), name);
    cli_nearest nearest = cli_nearest_start(word);
    for (const cli_option *o = c->options; o->name != NULL; o++)
        if (o->help != NULL && !o->positional) cli_nearest_try(&nearest, o->name);
    cli_nearest_try(&nearest, "help");
    if (nearest.best != NULL)
        return cli_fail(CLI_WRONG_USE, "unknown option '%s' of 'reprise %s': did you mean '--%s'?", arg, c->name,
                        nearest.best);
    return cli_fail(CLI_WRONG_USE, "unknown option '%s' of 'reprise %s': see 'reprise %s --help'", arg, c->name,
                    c->name);
}

/* ---- Arguments ---- */

/* The row of -m, or NULL. */
static const cli_option *find_model(const cli_command *c) {
    const cli_option *o = find_letter(c, 'm');
    return o != NULL && strcmp(o->name, "model") == 0 ? o : NULL;
}

static bool is_path(const cli_option *o) {
    static const char *const names[] = {"FILE", "[NAME=]FILE", "DIR", "PATH"};
    for (size_t i = 0; o->value != NULL && !o->positional && i < sizeof names / sizeof *names; i++)
        if (strcmp(o->value, names[i]) == 0) return true;
    return false;
}

/* text: NULL for flags, which ignore it. */
static int take_value(option_parser *p, const cli_option *o, const char *text) {
    char expected[EXPECTED_BYTES];
    if (p->model != NULL && text != NULL && o == find_model(p->command) && o->kind == CLI_TEXT)
        return cli_fail(CLI_WRONG_USE, "two models, '%s' and '%s': give one", p->model, text);
    if (text != NULL && *text == '\0' && is_path(o))
        return cli_fail(CLI_WRONG_USE, "--%s is empty: give --%s %s", o->name, o->name, o->value);
    p->given[o - p->command->options] = true;
    if (text == NULL) text = "";
    return set_value(o, text, p->out, expected)
               ? CLI_OK
               : cli_fail(CLI_WRONG_USE, "--%s '%s': give %s", o->name, text, expected);
}

/* attached: the value in the same argument, or NULL. */
static int take_option(option_parser *p, const cli_option *o, const char *attached) {
    if (o->kind == CLI_FLAG) {
        if (attached != NULL)
            return cli_fail(CLI_WRONG_USE, "--%s=%s: --%s takes no value", o->name, attached, o->name);
        return take_value(p, o, NULL);
    }
    if (attached != NULL) return take_value(p, o, attached);
    if (p->next == p->argc)
        return cli_fail(CLI_WRONG_USE, "--%s of 'reprise %s' needs a value: --%s %s", o->name, p->command->name,
                        o->name, o->value);
    return take_value(p, o, p->argv[p->next++]);
}

bool cli_is_model_file(const char *arg) {
    const size_t n = strlen(arg);
    return n > 5 && strcasecmp(arg + n - 5, ".gguf") == 0;
}

/* A model may be given without -m, as the first argument with a name of model files. */
static int take_model(option_parser *p, const cli_option *o, const char *arg) {
    int status = take_value(p, o, arg);
    p->model = arg;
    return status;
}

static int take_positional(option_parser *p, const char *arg) {
    const cli_option *o = find_positional(p->command, p->n_positional), *model = find_model(p->command);
    if (model != NULL && cli_is_model_file(arg) && (model->kind == CLI_LIST || !p->given[model - p->command->options]))
        return take_model(p, model, arg);
    if (o != NULL) {
        if (o->kind != CLI_LIST) p->n_positional++;
        return take_value(p, o, arg);
    }
    if (find_long(p->command, "prompt", 6) != NULL && p->n_positional > 0)
        return cli_fail(CLI_WRONG_USE, "unexpected argument '%s': " CLI_QUOTE_ADVICE "%s", arg,
                        model != NULL && !p->given[model - p->command->options] ? "; the model with -m FILE" : "");
    if (p->n_positional > 0)
        return cli_fail(CLI_WRONG_USE, "unexpected argument '%s': see 'reprise %s --help'", arg, p->command->name);
    return cli_fail(CLI_WRONG_USE, "unexpected argument '%s': 'reprise %s' takes options only, see 'reprise %s --help'",
                    arg, p->command->name, p->command->name);
}

/* "-ngl", "-ngl99" and "-fa" are options of llama.cpp, not values of -n and -f. */
static bool takes_attached(const char *arg) {
    return arg[2] == '\0' || !cli_llama_option_is(arg, option_name_bytes(arg));
}

static int take_argument(option_parser *p, const char *arg) {
    if (arg[0] != '-' || arg[1] == '\0') return take_positional(p, arg);
    if (arg[1] != '-') {
        const cli_option *o = find_letter(p->command, arg[1]);
        if (o == NULL || !takes_attached(arg)) return unknown_option(p->command, arg, arg + 1, strlen(arg + 1));
        return take_option(p, o, arg[2] != '\0' ? arg + 2 : NULL);
    }
    const char *name = arg + 2;
    size_t n = strcspn(name, "=");
    const cli_option *o = find_long(p->command, name, n);
    if (o == NULL) return unknown_option(p->command, arg, name, n);
    return take_option(p, o, name[n] == '=' ? name + n + 1 : NULL);
}

/* A required value that is missing is still NULL, the default; so is the first field of a list. */
static int check_required(const cli_command *c, const void *out) {
    for (const cli_option *o = c->options; o->name != NULL; o++) {
        if (!o->required) continue;
        const char *value = *(const char *const *)(const void *)((const char *)out + o->offset);
        if (value == NULL && o->positional)
            return cli_fail(CLI_WRONG_USE, "'reprise %s' needs %s: give reprise %s %s", c->name, o->value, c->name,
                            c->synopsis);
        if (value == NULL && o->letter == 0)
            return cli_fail(CLI_WRONG_USE, "'reprise %s' needs --%s: give --%s %s", c->name, o->name, o->name,
                            o->value);
        if (value == NULL)
            return cli_fail(CLI_WRONG_USE, "'reprise %s' needs --%s: give -%c %s", c->name, o->name, o->letter,
                            o->value);
    }
    return CLI_OK;
}

/* ---- Files of options ---- */

/* Removes white space at both ends. */
static char *options_trim(char *s) {
    static const char space[] = " \t\r";
    s += strspn(s, space);
    size_t n = strlen(s);
    while (n > 0 && strchr(space, s[n - 1]) != NULL) n--;
    s[n] = '\0';
    return s;
}

static int unknown_name(const option_parser *p, const char *at, const char *name) {
    cli_nearest nearest = cli_nearest_start(name);
    for (const cli_option *o = p->command->options; o->name != NULL; o++)
        if (o->help != NULL && !o->positional && o->kind != CLI_CONFIG) cli_nearest_try(&nearest, o->name);
    if (nearest.best != NULL)
        return cli_fail(CLI_WRONG_USE, "%s: unknown option '%s': did you mean '%s'?", at, name, nearest.best);
    return cli_fail(CLI_WRONG_USE, "%s: unknown option '%s': see 'reprise %s --help'", at, name, p->command->name);
}

static int take_flag(option_parser *p, const cli_option *o, const char *value, const char *at) {
    char expected[EXPECTED_BYTES];
    if (value == NULL || strcmp(value, "true") == 0)
        return set_value(o, NULL, p->out, expected) ? CLI_OK : CLI_WRONG_USE;
    if (strcmp(value, "false") == 0) return CLI_OK;
    return cli_fail(CLI_WRONG_USE, "%s: %s = %s: give true or false", at, o->name, value);
}

/* value: NULL without '='. */
static int take_setting(option_parser *p, const char *name, const char *value, const char *at) {
    char expected[EXPECTED_BYTES];
    const cli_option *o = find_long(p->command, name, strlen(name));
    if (o == NULL || o->kind == CLI_CONFIG) return unknown_name(p, at, name);
    if (p->given[o - p->command->options]) return CLI_OK;
    if (o->kind == CLI_FLAG) return take_flag(p, o, value, at);
    if (value == NULL || *value == '\0')
        return cli_fail(CLI_WRONG_USE, "%s: '%s' needs a value: %s = %s", at, name, name, o->value);
    return set_value(o, value, p->out, expected)
               ? CLI_OK
               : cli_fail(CLI_WRONG_USE, "%s: %s = %s: give %s", at, name, value, expected);
}

static int option_parser_take_line(option_parser *p, char *line, const char *path, int number) {
    char at[AT_BYTES];
    char *name = options_trim(line), *value = strchr(name, '=');
    if (*name == '\0' || *name == '#') return CLI_OK;
    if (value != NULL) {
        *value = '\0';
        value = options_trim(value + 1);
        name = options_trim(name);
    }
    snprintf(at, sizeof at, "%.200s:%d", path, number);
    return take_setting(p, name, value, at);
}

/* Applies the file's settings to the rows that the command line does not set. */
static int option_parser_take_file(option_parser *p, cli_config *config) {
    size_t n = 0;
    int status = cli_read(config->path, &config->text, &n), number = 1;
    if (status != CLI_OK) return status;
    if (strlen(config->text) != n)
        return cli_fail(CLI_WRONG_USE, "%s: it contains a zero byte: give a text file", config->path);
    for (char *line = config->text, *next; line != NULL && status == CLI_OK; line = next, number++) {
        next = strchr(line, '\n');
        if (next != NULL) *next++ = '\0';
        status = option_parser_take_line(p, line, config->path, number);
    }
    return status;
}

static int take_config(option_parser *p) {
    for (const cli_option *o = p->command->options; o->name != NULL; o++)
        if (o->kind == CLI_CONFIG && p->given[o - p->command->options])
            return option_parser_take_file(p, (cli_config *)(void *)((char *)p->out + o->offset));
    return CLI_OK;
}

void cli_config_free(cli_config *config) {
    free(config->text);
    config->text = NULL;
}

/* ---- Parsing a command line ---- */

static cli_parsed option_parser_parse(option_parser *p) {
    while (p->next < p->argc) {
        const char *arg = p->argv[p->next++];
        if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
            cli_options_help(p->command, stdout);
            return CLI_PARSED_HELP;
        }
        if (take_argument(p, arg) != CLI_OK) return CLI_PARSED_WRONG;
    }
    if (take_config(p) != CLI_OK) return CLI_PARSED_WRONG;
    return check_required(p->command, p->out) == CLI_OK ? CLI_PARSED : CLI_PARSED_WRONG;
}

cli_parsed cli_options_parse(const cli_command *command, int argc, char **argv, void *out) {
    option_parser p = {.command = command, .argc = argc, .argv = argv, .next = 1, .out = out};
    size_t n = 1;
    while (command->options[n - 1].name != NULL) n++;
    p.given = cli_alloc(n);
    cli_parsed parsed = option_parser_parse(&p);
    free(p.given);
    return parsed;
}

/* ---- Subcommands ---- */

/* "simulate" of "cache simulate". */
static const char *options_part_name(const cli_command *part) { return strrchr(part->name, ' ') + 1; }

const cli_command *cli_find_part(const cli_command *command, const char *name) {
    cli_nearest nearest = cli_nearest_start(name);
    for (const cli_command *const *p = command->parts; *p != NULL; p++) {
        if (strcmp(options_part_name(*p), name) == 0) return *p;
        cli_nearest_try(&nearest, options_part_name(*p));
    }
    if (nearest.best != NULL)
        cli_fail(CLI_WRONG_USE, "unknown command 'reprise %s %s': did you mean '%s'?", command->name, name,
                 nearest.best);
    else
        cli_fail(CLI_WRONG_USE, "unknown command 'reprise %s %s': 'reprise %s --help' lists the commands",
                 command->name, name, command->name);
    return NULL;
}

int cli_run_part(const cli_command *command, int argc, char **argv) {
    char unused = 0; /* the table has no options but --help */
    if (argc < 2)
        return cli_fail(CLI_WRONG_USE, "'reprise %s' needs a command: 'reprise %s --help' lists them", command->name,
                        command->name);
    if (argv[1][0] == '-')
        return cli_options_parse(command, argc, argv, &unused) == CLI_PARSED_HELP ? cli_finish_output() : CLI_WRONG_USE;
    const cli_command *part = cli_find_part(command, argv[1]);
    return part != NULL ? part->main(argc - 1, argv + 1) : CLI_WRONG_USE;
}

/* ---- Help ---- */

/* Prints words from cell `at` on; continuation lines start in the same cell. */
static void print_wrapped(FILE *to, const char *text, int at) {
    int used = at;
    while (*text != '\0') {
        int n = (int)strcspn(text, " ");
        if (used > at && used + 1 + n > HELP_CELLS) {
            fprintf(to, "\n%*s", at, "");
            used = at;
        }
        used += fprintf(to, "%s%.*s", used > at ? " " : "", n, text);
        text += n;
        text += strspn(text, " ");
    }
    fputc('\n', to);
}

static void print_option(FILE *to, const cli_option *o) {
    char head[96], letter[8] = "    ";
    if (o->letter != 0) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    const char *value = o->value != NULL ? o->value : "";
    if (o->positional) snprintf(head, sizeof head, "  %s", value);
    else snprintf(head, sizeof head, "  %s--%s%s%s", letter, o->name, *value ? " " : "", value);
    fprintf(to, "%-*s", HELP_NAME_CELLS, head);
    if (strlen(head) >= HELP_NAME_CELLS) fprintf(to, "\n%*s", HELP_NAME_CELLS, "");
    print_wrapped(to, o->help, HELP_NAME_CELLS);
}

void cli_options_help(const cli_command *command, FILE *to) {
    int at = fprintf(to, "usage: reprise %s ", command->name);
    print_wrapped(to, command->synopsis, at);
    fprintf(to, "\n%s\n", command->summary);
    if (command->parts != NULL) fprintf(to, "\ncommands:\n");
    for (const cli_command *const *p = command->parts; p != NULL && *p != NULL; p++)
        fprintf(to, "  %-10s %s\n", options_part_name(*p), (*p)->summary);
    if (find_positional(command, 0) != NULL) fprintf(to, "\narguments:\n");
    for (const cli_option *o = command->options; o->name != NULL; o++)
        if (o->positional) print_option(to, o);
    fprintf(to, "\noptions:\n");
    for (const cli_option *o = command->options; o->name != NULL; o++)
        if (o->help != NULL && !o->positional) print_option(to, o);
    static const cli_option help = {.name = "help", .letter = 'h', .kind = CLI_FLAG, .help = "print this help"};
    print_option(to, &help);
    if (command->notes[0] != '\0') fprintf(to, "\n%s", command->notes);
}
