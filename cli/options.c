/* options.c: parses options by a table and prints help from it. Owns no state. One thread. */
#include "options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "console.h"
#include "text.h"

#define HELP_NAME_CELLS 26 /* where help's second column begins */
#define HELP_CELLS 100

typedef struct option_parser {
    const cli_command *command;
    int argc;
    char **argv;
    int next;
    size_t n_positional; /* taken so far */
    void *out;
} option_parser;

/* ---- Values ---- */

static int wrong_value(const cli_option *o, const char *text, const char *expected) {
    return cli_fail(CLI_WRONG_USE, "--%s '%s': give %s", o->name, text, expected);
}

static int wrong_range(const cli_option *o, const char *text) {
    char expected[64];
    snprintf(expected, sizeof expected, "%s from %.10g to %.10g", o->kind == CLI_REAL ? "a number" : "a whole number", o->min,
             o->max);
    return wrong_value(o, text, expected);
}

static int set_int(const cli_option *o, const char *text, void *field) {
    char *end = NULL;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || (double)v < o->min || (double)v > o->max) return wrong_range(o, text);
    *(int32_t *)field = (int32_t)v;
    return CLI_OK;
}

static int set_real(const cli_option *o, const char *text, void *field) {
    char *end = NULL;
    double v = strtod(text, &end);
    if (end == text || *end != '\0' || !(v >= o->min && v <= o->max)) return wrong_range(o, text);
    *(float *)field = (float)v;
    return CLI_OK;
}

/* Digits only: strtoull alone would take a sign and leading space. Returns what follows them, or NULL. */
static const char *parse_u64(const char *text, uint64_t *v) {
    if (*text < '0' || *text > '9') return NULL;
    char *end = NULL;
    errno = 0;
    *v = strtoull(text, &end, 10);
    return errno == 0 ? end : NULL;
}

static int set_u64(const cli_option *o, const char *text, void *field) {
    uint64_t v = 0;
    const char *end = parse_u64(text, &v);
    if (end == NULL || *end != '\0') return wrong_value(o, text, "a whole number from 0 to 18446744073709551615");
    *(uint64_t *)field = v;
    return CLI_OK;
}

static int set_bytes(const cli_option *o, const char *text, void *field) {
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
    if (end == NULL || *end != '\0' || v == 0 || v > UINT64_MAX >> shift)
        return wrong_value(o, text, "bytes, such as 800M or 4G");
    *(uint64_t *)field = v << shift;
    return CLI_OK;
}

static int set_choice(const cli_option *o, const char *text, void *field) {
    char expected[256] = "one of";
    for (int32_t i = 0; o->choices[i] != NULL; i++) {
        if (strcmp(o->choices[i], text) == 0) {
            *(int32_t *)field = i;
            return CLI_OK;
        }
        size_t used = strlen(expected);
        snprintf(expected + used, sizeof expected - used, "%s %s", i > 0 ? "," : "", o->choices[i]);
    }
    return wrong_value(o, text, expected);
}

static int set_list(const cli_option *o, const char *text, void *field) {
    cli_list *list = field;
    if (list->n == CLI_LIST_MAX)
        return cli_fail(CLI_WRONG_USE, "--%s '%s': it was given %d times already, give fewer", o->name, text, CLI_LIST_MAX);
    list->items[list->n++] = text;
    return CLI_OK;
}

static int set_value(const cli_option *o, const char *text, void *out) {
    void *field = (char *)out + o->offset;
    switch (o->kind) {
    case CLI_FLAG: *(bool *)field = true; return CLI_OK;
    case CLI_TEXT: *(const char **)field = text; return CLI_OK;
    case CLI_LIST: return set_list(o, text, field);
    case CLI_INT: return set_int(o, text, field);
    case CLI_U64: return set_u64(o, text, field);
    case CLI_REAL: return set_real(o, text, field);
    case CLI_BYTES: return set_bytes(o, text, field);
    case CLI_CHOICE: return set_choice(o, text, field);
    }
    return CLI_OK;
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

static int unknown_option(const cli_command *c, const char *arg, const char *name, size_t n) {
    char word[CLI_NEAREST_BYTES];
    snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), name);
    cli_nearest nearest = cli_nearest_start(word);
    for (const cli_option *o = c->options; o->name != NULL; o++)
        if (o->help != NULL && !o->positional) cli_nearest_try(&nearest, o->name);
    cli_nearest_try(&nearest, "help");
    if (nearest.best != NULL)
        return cli_fail(CLI_WRONG_USE, "unknown option '%s' of 'reprise %s': did you mean '--%s'?", arg, c->name, nearest.best);
    return cli_fail(CLI_WRONG_USE, "unknown option '%s' of 'reprise %s': see 'reprise %s --help'", arg, c->name, c->name);
}

/* ---- Arguments ---- */

/* attached: the value written in the same argument, or NULL. */
static int take_option(option_parser *p, const cli_option *o, const char *attached) {
    if (o->kind == CLI_FLAG) {
        if (attached != NULL) return cli_fail(CLI_WRONG_USE, "--%s=%s: --%s takes no value", o->name, attached, o->name);
        return set_value(o, NULL, p->out);
    }
    if (attached != NULL) return set_value(o, attached, p->out);
    if (p->next == p->argc)
        return cli_fail(CLI_WRONG_USE, "--%s of 'reprise %s' needs a value: --%s %s", o->name, p->command->name, o->name,
                        o->value);
    return set_value(o, p->argv[p->next++], p->out);
}

static int take_positional(option_parser *p, const char *arg) {
    const cli_option *o = find_positional(p->command, p->n_positional);
    if (o != NULL) {
        p->n_positional++;
        return set_value(o, arg, p->out);
    }
    if (p->n_positional > 0)
        return cli_fail(CLI_WRONG_USE, "unexpected argument '%s': see 'reprise %s --help'", arg, p->command->name);
    return cli_fail(CLI_WRONG_USE, "unexpected argument '%s': 'reprise %s' takes options only, see 'reprise %s --help'", arg,
                    p->command->name, p->command->name);
}

static int take_argument(option_parser *p, const char *arg) {
    if (arg[0] != '-' || arg[1] == '\0') return take_positional(p, arg);
    if (arg[1] != '-') {
        const cli_option *o = find_letter(p->command, arg[1]);
        if (o == NULL) return unknown_option(p->command, arg, arg + 1, strlen(arg + 1));
        return take_option(p, o, arg[2] != '\0' ? arg + 2 : NULL);
    }
    const char *name = arg + 2;
    size_t n = strcspn(name, "=");
    const cli_option *o = find_long(p->command, name, n);
    if (o == NULL) return unknown_option(p->command, arg, name, n);
    return take_option(p, o, name[n] == '=' ? name + n + 1 : NULL);
}

/* A required value that was not given is still the NULL it began as. */
static int check_required(const cli_command *c, const void *out) {
    for (const cli_option *o = c->options; o->name != NULL; o++) {
        if (!o->required) continue;
        const char *value = *(const char *const *)(const void *)((const char *)out + o->offset);
        if (value == NULL && o->positional)
            return cli_fail(CLI_WRONG_USE, "'reprise %s' needs %s: give reprise %s %s", c->name, o->value, c->name, c->synopsis);
        if (value == NULL && o->letter == 0)
            return cli_fail(CLI_WRONG_USE, "'reprise %s' needs --%s: give --%s %s", c->name, o->name, o->name, o->value);
        if (value == NULL)
            return cli_fail(CLI_WRONG_USE, "'reprise %s' needs --%s: give -%c %s", c->name, o->name, o->letter, o->value);
    }
    return CLI_OK;
}

cli_parsed cli_options_parse(const cli_command *command, int argc, char **argv, void *out) {
    option_parser p = {.command = command, .argc = argc, .argv = argv, .next = 1, .out = out};
    while (p.next < argc) {
        const char *arg = argv[p.next++];
        if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
            cli_options_help(command, stdout);
            return CLI_PARSED_HELP;
        }
        if (take_argument(&p, arg) != CLI_OK) return CLI_PARSED_WRONG;
    }
    return check_required(command, out) == CLI_OK ? CLI_PARSED : CLI_PARSED_WRONG;
}

/* ---- Parts ---- */

/* "simulate" of "cache simulate". */
static const char *part_name(const cli_command *part) { return strrchr(part->name, ' ') + 1; }

const cli_command *cli_find_part(const cli_command *command, const char *name) {
    cli_nearest nearest = cli_nearest_start(name);
    for (const cli_command *const *p = command->parts; *p != NULL; p++) {
        if (strcmp(part_name(*p), name) == 0) return *p;
        cli_nearest_try(&nearest, part_name(*p));
    }
    if (nearest.best != NULL)
        cli_fail(CLI_WRONG_USE, "unknown command 'reprise %s %s': did you mean '%s'?", command->name, name, nearest.best);
    else
        cli_fail(CLI_WRONG_USE, "unknown command 'reprise %s %s': 'reprise %s --help' lists them", command->name, name, command->name);
    return NULL;
}

/* ---- Help ---- */

/* Prints words from cell `at` on; lines after the first begin in the same cell. */
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
        fprintf(to, "  %-10s %s\n", part_name(*p), (*p)->summary);
    if (find_positional(command, 0) != NULL) fprintf(to, "\narguments:\n");
    for (const cli_option *o = command->options; o->name != NULL; o++)
        if (o->positional) print_option(to, o);
    fprintf(to, "\noptions:\n");
    for (const cli_option *o = command->options; o->name != NULL; o++)
        if (o->help != NULL && !o->positional) print_option(to, o);
    static const cli_option help = {.name = "help", .letter = 'h', .kind = CLI_FLAG, .help = "print this"};
    print_option(to, &help);
    if (command->notes[0] != '\0') fprintf(to, "\n%s", command->notes);
}
