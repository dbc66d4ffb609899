/* SPDX-License-Identifier: Apache-2.0 */
/* cache_weights.c: `reprise cache weights`: lists, verifies and removes files of repacked weights. Owns its options,
 * output and JSON. One thread. */
#include <string.h>

#include "cache/cache_store.h"
#include "common/command.h"
#include "common/json_out.h"
#include "common/loader.h"
#include "common/text.h"
#include "reprise_store.h"

typedef struct weights_options {
    const char *store, *rm;
    bool verify, gc, json;
} weights_options;

#define AT(field) offsetof(weights_options, field)

static const cli_option table[] = {
    {.name = "store",
     .kind = CLI_TEXT,
     .value = "DIR",
     .offset = AT(store),
     .help = "files in this store's folder (those in ~/.cache/reprise)"},
    {.name = "verify", .kind = CLI_FLAG, .offset = AT(verify), .help = "read and check every byte"},
    {.name = "gc",
     .kind = CLI_FLAG,
     .offset = AT(gc),
     .help = "remove damaged files and leftovers of killed processes"},
    {.name = "rm",
     .kind = CLI_TEXT,
     .value = "DIGITS|all",
     .offset = AT(rm),
     .help = "remove a model's files, by digits of its hash, or all files"},
    {.name = "json", .kind = CLI_FLAG, .offset = AT(json), .help = "print JSON"},
    {.name = NULL},
};

static int weights_main(int argc, char **argv);

const cli_command cli_cache_weights = {
    .name = "cache weights",
    .summary = "list, verify and remove files of repacked weights",
    .synopsis = "[--store DIR] [--verify | --gc | --rm DIGITS|all] [--json]",
    .notes = "'run', 'serve', 'eval' and 'bench' write these files at the first start with a model, and map them at "
             "later ones\n"
             "(--weights-cache). A process that has mapped a file keeps it. Removed files are written again when they "
             "are needed.\n"
             "exit status: 0 success, 1 damaged files, or failure, 2 usage error\n",
    .options = table,
    .main = weights_main,
};

typedef struct weights_state {
    cache_progress progress; /* first member: cache_on_progress casts to it */
    json_t *files;           /* NULL: text output */
    int64_t now;
    uint64_t n, bytes, n_damaged;
} weights_state;

static void weights_print_file(weights_state *s, const rp_weights_file *f) {
    char size[CACHE_TEXT_BYTES], age[CACHE_TEXT_BYTES];
    if (s->n == 1) printf("%-16s %12s %5s %8s  %s\n", "MODEL", "SIZE", "ROWS", "USED", "NAME");
    printf("%-16.16s %12s %5d %8s  ", f->model, cache_bytes_text(f->bytes, size), (int)f->side,
           cache_span_text(s->now - f->used, age));
    cli_print_safe(stdout, f->name, strlen(f->name));
    if (f->is_temporary) printf("(being written, or a leftover)");
    if (f->fault[0] != '\0') printf("(%s)", f->fault);
    putchar('\n');
}

static void weights_on_file(void *user, const rp_weights_file *f) {
    weights_state *s = user;
    cli_progress_clear(&s->progress.bar);
    s->n++;
    s->bytes += f->bytes;
    s->n_damaged += f->fault[0] != '\0';
    if (s->files == NULL) {
        weights_print_file(s, f);
        return;
    }
    json_t *o = json_object();
    cli_json_set(o, "path", cli_json_text(f->path));
    cli_json_set(o, "name", cli_json_text(f->name));
    cli_json_set(o, "model", cli_json_text(f->model));
    cli_json_set(o, "side", json_integer(f->side));
    cli_json_set(o, "bytes", json_integer((json_int_t)f->bytes));
    cli_json_set(o, "created", json_integer(f->created));
    cli_json_set(o, "used", json_integer(f->used));
    cli_json_set(o, "temporary", json_boolean(f->is_temporary));
    cli_json_set(o, "fault", cli_json_text(f->fault));
    cli_json_append(s->files, o);
}

static int weights_list(const weights_options *o, const char *dir) {
    weights_state s = {
        .progress = {.what = "reading"}, .files = o->json ? json_array() : NULL, .now = (int64_t)time(NULL)};
    char size[CACHE_TEXT_BYTES], files[CACHE_TEXT_BYTES];
    rp_error err;
    int rc = rp_weights_each(dir, o->verify, cache_on_progress, weights_on_file, &s, &err);
    cli_progress_clear(&s.progress.bar);
    if (rc != RP_OK) {
        json_decref(s.files);
        return cli_fail_library(&err);
    }
    int status;
    if (o->json) {
        json_t *object = json_object();
        cli_json_set(object, "folder", cli_json_text(dir));
        cli_json_set(object, "bytes", json_integer((json_int_t)s.bytes));
        cli_json_set(object, "damaged", json_integer((json_int_t)s.n_damaged));
        cli_json_set(object, "files", s.files);
        status = cli_json_print(object);
    } else {
        printf("%s%s, %s in ", s.n > 0 ? "\n" : "", cache_count_text(s.n, "file", files),
               cache_bytes_text(s.bytes, size));
        cli_print_safe(stdout, dir, strlen(dir));
        putchar('\n');
        status = cli_finish_output();
    }
    return status == CLI_OK && s.n_damaged > 0 ? CLI_FAILED : status;
}

static int weights_change(const weights_options *o, const char *dir) {
    char size[CACHE_TEXT_BYTES], files[CACHE_TEXT_BYTES];
    uint64_t n, bytes;
    rp_error err;
    const char *digits = o->rm != NULL && strcmp(o->rm, "all") != 0 ? o->rm : NULL;
    int rc = o->rm != NULL ? rp_weights_remove(dir, digits, &n, &bytes, &err) : rp_weights_clean(dir, &n, &bytes, &err);
    if (rc != RP_OK) return cli_fail_library(&err);
    if (o->json) {
        json_t *object = json_object();
        cli_json_set(object, "folder", cli_json_text(dir));
        cli_json_set(object, "removed", json_integer((json_int_t)n));
        cli_json_set(object, "bytes", json_integer((json_int_t)bytes));
        return cli_json_print(object);
    }
    printf("removed %s, %s\n", cache_count_text(n, "file", files), cache_bytes_text(bytes, size));
    return cli_finish_output();
}

static int weights_main(int argc, char **argv) {
    weights_options o = {.json = false};
    cli_parsed parsed = cli_options_parse(&cli_cache_weights, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    if (o.verify + o.gc + (o.rm != NULL) > 1)
        return cli_fail(CLI_WRONG_USE, "--verify, --gc and --rm exclude each other: give one of them");
    if (o.rm != NULL && strcmp(o.rm, "all") != 0 &&
        (strlen(o.rm) < 4 || strspn(o.rm, "0123456789abcdef") != strlen(o.rm)))
        return cli_fail(
            CLI_WRONG_USE,
            "--rm '%s': give at least 4 digits of a model's hash, as 'reprise cache weights' prints, or 'all'", o.rm);
    const char *dir = cli_weights_dir(o.store);
    if (dir == NULL)
        return cli_fail(CLI_FAILED, "no folder of repacked weights: set HOME or XDG_CACHE_HOME, or give --store DIR");
    return o.gc || o.rm != NULL ? weights_change(&o, dir) : weights_list(&o, dir);
}
