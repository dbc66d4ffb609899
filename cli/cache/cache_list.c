/* SPDX-License-Identifier: Apache-2.0 */
/* cache_list.c: `reprise cache ls` and `stat`: content of a store. Owns their options, tables and JSON. One thread.
 *
 * Both open the store read-only, so an engine may use it at the same time.
 */
#include <stdlib.h>
#include <string.h>

#include "cache/cache_audit.h"
#include "cache/cache_store.h"
#include "common/command.h"
#include "common/json_out.h"
#include "common/loader.h"
#include "common/text.h"
#include "reprise_store.h"

/* ---- ls ---- */

typedef struct ls_options {
    cache_store_args store;
    cache_select_args select; /* its name, model and expired */
    bool all, json;
    int32_t order;
} ls_options;

static const char *const orders[] = {"name", "size", "use", NULL}; /* in the order of cache_order */

#define AT(field) offsetof(ls_options, field)
static const cli_option ls_table[] = {
    {.name = "name",
     .kind = CLI_TEXT,
     .value = "NAME",
     .offset = AT(select.name),
     .positional = true,
     .help = "list this module with its members, or this schema; default: everything"},
    CACHE_STORE_ROWS(ls_options, store),
    {.name = "model",
     .kind = CLI_TEXT,
     .value = "DIGITS",
     .offset = AT(select.model),
     .help = "list one model, by fingerprint prefix of at least 4 digits"},
    {.name = "expired", .kind = CLI_FLAG, .offset = AT(select.expired), .help = "list expired records only"},
    {.name = "all", .kind = CLI_FLAG, .offset = AT(all), .help = "list every record with its key"},
    {.name = "sort",
     .kind = CLI_CHOICE,
     .value = "name|size|use",
     .offset = AT(order),
     .choices = orders,
     .help = "sort order: by name, by size (largest first), by last use (latest first) (name)"},
    {.name = "json", .kind = CLI_FLAG, .offset = AT(json), .help = "print JSON"},
    {.name = NULL},
};
#undef AT

static int ls_main(int argc, char **argv);

const cli_command cli_cache_ls = {
    .name = "cache ls",
    .summary = "list the modules, prompts and answers in a store",
    .synopsis = "--store DIR [NAME] [--all] [--sort name|size|use] [--json]",
    .notes =
        "Works while an engine has the store open. TTL: remaining time to live of a module. USES of a module: uses of "
        "its most used record.\n"
        "KV: format of keys and values. Records are grouped by model: an engine uses only those of its own model.\n"
        "Prompts and answers have no names and share one row; the reduced KV of a module has a row of its own.\n",
    .options = ls_table,
    .main = ls_main,
};

enum { NAME_LEAST = 12,
       KEY_SHOWN = 12,
       OTHER_CELLS = 9 + 11 + 6 + 5 + 6 + 9 + 8 + 4,
       ROW_CELLS = 80,
       TITLE_BYTES = 272 };

/* Width of the first column in cells: as the terminal allows, at most as needed. */
/* The name of a row in the table: a module's reduced KV has the module's. */
static const char *row_title(const cache_row *r, char out[TITLE_BYTES]) {
    if (r->kind != RP_STORE_REDUCED || r->name[0] == '(') return r->name;
    snprintf(out, TITLE_BYTES, "%s (reduced)", r->name);
    return out;
}

static int name_cells(const cache_rows *rows, bool each) {
    int longest = NAME_LEAST, others = OTHER_CELLS + (each ? KEY_SHOWN + 1 : 0);
    for (size_t i = 0; i < rows->n; i++) {
        char title[TITLE_BYTES];
        int cells = cli_text_cells(row_title(&rows->items[i], title));
        if (cells > longest) longest = cells;
    }
    int terminal = cli_terminal_cells(stdout, 0), room = terminal - others;
    if (terminal == 0 || longest <= room) return longest;
    return room > NAME_LEAST ? room : NAME_LEAST;
}

static void cache_list_print_head(int cells, bool each) {
    cli_print_fit(stdout, "NAME", cells, cells);
    if (each) printf(" %-*s", KEY_SHOWN, "KEY");
    printf(" %8s %10s %-5s %4s %5s %8s %7s %s\n", "TOKENS", "SIZE", "KV", "TIER", "USES", "USED", "TTL", "PIN");
}

static const char *used_text(const cache_row *r, int64_t now, char *out) {
    char span[CACHE_TEXT_BYTES];
    if (r->last_use == 0) return "-";
    snprintf(out, CACHE_TEXT_BYTES, "%.16s ago", cache_span_text(now - r->last_use, span));
    return out;
}

static const char *ttl_text(const cache_row *r, int64_t now, char *out) {
    return r->expires == 0 ? "-" : r->expires <= now ? "expired"
                                                     : cache_span_text(r->expires - now, out);
}

static const char *pin_text(const cache_row *r) { return r->pinned == 0 ? "-" : r->pinned < r->records ? "some"
                                                                                                       : "yes"; }

static void cache_row_print_row(const cache_row *r, int cells, int64_t now) {
    char size[CACHE_TEXT_BYTES], used[CACHE_TEXT_BYTES], ttl[CACHE_TEXT_BYTES], title[TITLE_BYTES];
    cli_print_fit(stdout, row_title(r, title), cells, cells);
    if (r->key != NULL) printf(" %.*s", KEY_SHOWN, r->key);
    printf(" %8llu %10s %-5s %4s %5llu %8s %7s %s\n", (unsigned long long)r->tokens, cache_bytes_text(r->bytes, size),
           r->kv_format[0] != '\0' ? r->kv_format : "-", "disk", (unsigned long long)r->uses, used_text(r, now, used),
           ttl_text(r, now, ttl), pin_text(r));
}

typedef struct totals {
    uint64_t records, modules, tokens, bytes;
} totals;

static totals cache_rows_sum_rows(const cache_rows *rows, const char *model) {
    totals t = {0};
    for (size_t i = 0; i < rows->n; i++) {
        const cache_row *r = &rows->items[i];
        if (model != NULL && strcmp(r->model, model) != 0) continue;
        t.records += r->records;
        t.modules += r->kind == RP_STORE_MODULE && r->name[0] != '(';
        t.tokens += r->tokens;
        t.bytes += r->bytes;
    }
    return t;
}

static void print_totals(totals t, bool each) {
    char records[CACHE_TEXT_BYTES], modules[CACHE_TEXT_BYTES], size[CACHE_TEXT_BYTES];
    if (!each) printf("%s in ", cache_count_text(t.modules, "module", modules));
    printf("%s, %llu tokens, %s\n", cache_count_text(t.records, "record", records), (unsigned long long)t.tokens,
           cache_bytes_text(t.bytes, size));
}

static void cache_rows_print_table(const cache_rows *rows, bool each) {
    int cells = name_cells(rows, each);
    int64_t now = (int64_t)time(NULL);
    const char *model = NULL;
    size_t n_models = 0;
    for (size_t i = 0; i < rows->n; i++) {
        const cache_row *r = &rows->items[i];
        if (model == NULL || strcmp(model, r->model) != 0) {
            model = r->model;
            printf("%smodel %.16s\n", n_models++ > 0 ? "\n" : "", model[0] != '\0' ? model : "unknown");
            cache_list_print_head(cells, each);
        }
        cache_row_print_row(r, cells, now);
    }
    if (n_models == 0) {
        puts("no records");
        return;
    }
    putchar('\n');
    if (n_models > 1) printf("%zu models: ", n_models);
    print_totals(cache_rows_sum_rows(rows, NULL), each);
}

static json_t *row_object(const cache_row *r, int64_t now) {
    json_t *o = json_object();
    cli_json_set(o, "name", cli_json_text(r->name[0] == '(' ? "" : r->name));
    cli_json_set(o, "kind", cli_json_text(rp_store_kind_name(r->kind)));
    cli_json_set(o, "model", cli_json_text(r->model));
    if (r->key != NULL) cli_json_set(o, "key", cli_json_text(r->key));
    cli_json_set(o, "records", json_integer((json_int_t)r->records));
    cli_json_set(o, "tokens", json_integer((json_int_t)r->tokens));
    cli_json_set(o, "bytes", json_integer((json_int_t)r->bytes));
    cli_json_set(o, "kv_format", cli_json_text(r->kv_format));
    cli_json_set(o, "tier", cli_json_text("disk"));
    cli_json_set(o, "uses", json_integer((json_int_t)r->uses));
    cli_json_set(o, "last_use", json_integer(r->last_use));
    cli_json_set(o, "expires", json_integer(r->expires));
    cli_json_set(o, "ttl_seconds",
                 r->expires == 0 ? json_null() : json_integer(r->expires > now ? r->expires - now : 0));
    cli_json_set(o, "pinned", json_integer((json_int_t)r->pinned));
    return o;
}

static int cache_list_print_json(const ls_options *o, const cache_rows *rows) {
    json_t *object = json_object(), *list = json_array();
    totals t = cache_rows_sum_rows(rows, NULL);
    int64_t now = (int64_t)time(NULL);
    cli_json_set(object, "store", cli_json_text(o->store.store));
    cli_json_set(object, "records", json_integer((json_int_t)t.records));
    cli_json_set(object, "tokens", json_integer((json_int_t)t.tokens));
    cli_json_set(object, "bytes", json_integer((json_int_t)t.bytes));
    for (size_t i = 0; i < rows->n; i++) cli_json_append(list, row_object(&rows->items[i], now));
    cli_json_set(object, "rows", list);
    return cli_json_print(object);
}

static int cache_list_list(const ls_options *o, rp_store *cache) {
    rp_store_listing *l = NULL;
    rp_error err;
    rp_store_selection selection = cache_selection(&o->select);
    selection.all = true;
    if (rp_store_list(cache, &selection, NULL, &l, &err) != RP_OK) return cache_store_fail(&err);
    cache_rows rows = cache_rows_make(l, o->all, (cache_order)o->order);
    int status = CLI_OK;
    if (o->json) status = cache_list_print_json(o, &rows);
    else cache_rows_print_table(&rows, o->all);
    free(rows.items);
    rp_store_listing_free(l);
    return status == CLI_OK ? cli_finish_output() : status;
}

static int ls_main(int argc, char **argv) {
    ls_options o = {.order = CACHE_BY_NAME};
    cli_parsed parsed = cli_options_parse(&cli_cache_ls, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    rp_store *cache = NULL;
    int status = cache_store_open(&cache, &o.store, true, false);
    if (status == CLI_OK) status = cache_list_list(&o, cache);
    rp_store_close(cache);
    return status;
}

/* ---- stat ---- */

typedef struct stat_options {
    cache_store_args store;
    bool json;
} stat_options;

static const cli_option stat_table[] = {
    CACHE_STORE_ROWS(stat_options, store),
    {.name = "json", .kind = CLI_FLAG, .offset = offsetof(stat_options, json), .help = "print JSON"},
    {.name = NULL},
};

static int stat_main(int argc, char **argv);

const cli_command cli_cache_stat = {
    .name = "cache stat",
    .summary = "totals of a store",
    .synopsis = "--store DIR [--json]",
    .notes = "Works while an engine has the store open. Sizes are allocated disk space.\n"
             "Results of the quality audit (reprise serve --audit) follow, as of its last report.\n",
    .options = stat_table,
    .main = stat_main,
};

static void cache_list_print_line(const char *what, uint64_t n, uint64_t bytes, const char *more) {
    char size[CACHE_TEXT_BYTES];
    printf("%-22s %8llu", what, (unsigned long long)n);
    if (n > 0) printf(" %12s", cache_bytes_text(bytes, size));
    printf("%s%s\n", n > 0 && more[0] != '\0' ? "   " : "", n > 0 ? more : "");
}

static void print_flaw(const char *what, uint64_t n, const char *means) {
    if (n > 0) printf("%-22s %8llu %12s   %s\n", what, (unsigned long long)n, "", means);
}

static void print_flaws(const rp_store_usage *s) {
    print_flaw("unreadable", s->unreadable, "not readable here: another key or version");
    print_flaw("damaged", s->broken, "see 'reprise cache verify'");
    print_flaw("without a row", s->without_row, "records missing from the index");
    print_flaw("without a file", s->without_file, "index rows without a record");
}

static void print_models(const cache_rows *rows) {
    const char *model = NULL;
    for (size_t i = 0; i < rows->n; i++) {
        char size[CACHE_TEXT_BYTES];
        if (model != NULL && strcmp(model, rows->items[i].model) == 0) continue;
        model = rows->items[i].model;
        totals t = cache_rows_sum_rows(rows, model);
        printf("model %-16.16s %8llu %12s   %llu tokens\n", model[0] != '\0' ? model : "unknown",
               (unsigned long long)t.records, cache_bytes_text(t.bytes, size), (unsigned long long)t.tokens);
    }
}

/* The records of each KV format: fn is called with its name and totals, in the order of their first records. rows: one
   per record */
typedef void (*format_fn)(void *user, const char *format, const totals *t);

static void each_format(const cache_rows *rows, format_fn fn, void *user) {
    for (size_t i = 0; i < rows->n; i++) {
        const char *format = rows->items[i].kv_format;
        totals t = {0};
        size_t first = 0;
        while (strcmp(rows->items[first].kv_format, format) != 0) first++;
        if (first < i || format[0] == '\0') continue;
        for (size_t j = i; j < rows->n; j++) {
            if (strcmp(rows->items[j].kv_format, format) != 0) continue;
            t.records += rows->items[j].records;
            t.tokens += rows->items[j].tokens;
            t.bytes += rows->items[j].bytes;
        }
        fn(user, format, &t);
    }
}

static void print_format(void *user, const char *format, const totals *t) {
    char size[CACHE_TEXT_BYTES];
    (void)user;
    printf("KV %-19s %8llu %12s   %llu tokens\n", format, (unsigned long long)t->records,
           cache_bytes_text(t->bytes, size), (unsigned long long)t->tokens);
}

static void append_format(void *user, const char *format, const totals *t) {
    json_t *o = json_object();
    cli_json_set(o, "kv_format", cli_json_text(format));
    cli_json_set(o, "records", json_integer((json_int_t)t->records));
    cli_json_set(o, "tokens", json_integer((json_int_t)t->tokens));
    cli_json_set(o, "bytes", json_integer((json_int_t)t->bytes));
    cli_json_append(user, o);
}

typedef struct stat_weights {
    uint64_t n, bytes;
} stat_weights;

static void stat_on_weights(void *user, const rp_weights_file *f) {
    stat_weights *w = user;
    w->n++;
    w->bytes += f->bytes;
}

/* Files of repacked weights in the store's folder, which its limit does not count. */
static stat_weights stat_count_weights(const char *store) {
    stat_weights w = {0, 0};
    const char *dir = cli_weights_dir(store);
    if (dir != NULL) (void)rp_weights_each(dir, false, NULL, stat_on_weights, &w, NULL);
    return w;
}

/* Results of the quality audit; NULL if there are none. */
typedef struct stat_audit {
    rp_audit *report;
    char model[65];
} stat_audit;

static void print_stats(const stat_options *o, const rp_store_usage *s, const cache_rows *rows, const stat_audit *a) {
    char size[CACHE_TEXT_BYTES], tokens[64];
    printf("store ");
    cli_print_safe(stdout, o->store.store, strlen(o->store.store));
    if (s->owner > 0) printf(" (process %lld has it open)", (long long)s->owner);
    if (s->owner < 0) printf(" (another process has it open)");
    printf("\n\n");
    snprintf(tokens, sizeof tokens, "%llu tokens", (unsigned long long)s->tokens);
    cache_list_print_line("records", s->records, s->record_bytes, tokens);
    cache_list_print_line("  modules", s->modules, s->module_bytes, "");
    if (s->reduced > 0) cache_list_print_line("  reduced modules", s->reduced, s->reduced_bytes, "");
    cache_list_print_line("  prompts and answers", s->texts, s->text_bytes, "");
    if (s->states > 0) cache_list_print_line("  states of layers", s->states, s->state_bytes, "");
    printf("%-22s %8s\n", "encrypted", s->encrypted == 0 ? "no" : s->encrypted == s->records ? "all"
                                                                                             : "some");
    cache_list_print_line("pinned", s->pinned, s->pinned_bytes, "");
    cache_list_print_line("expired", s->expired, s->expired_bytes, "'reprise cache gc' removes them");
    cache_list_print_line("set aside in bad/", s->bad, s->bad_bytes, "'reprise cache gc' removes them");
    cache_list_print_line("leftovers", s->leftovers, s->leftover_bytes,
                          s->owner != 0 ? "" : "'reprise cache gc' removes them");
    cache_list_print_line("foreign files", s->foreign, s->foreign_bytes,
                          "not part of the store: ignored, not in the total");
    print_flaws(s);
    printf("%-22s %8s %12s\n", "index", "", cache_bytes_text(s->index_bytes, size));
    printf("%-22s %8s %12s\n", "total", "", cache_bytes_text(s->total_bytes, size));
    const stat_weights w = stat_count_weights(o->store.store);
    cache_list_print_line("repacked weights", w.n, w.bytes, "not in the total: see 'reprise cache weights'");
    printf("\n");
    print_models(rows);
    each_format(rows, print_format, NULL);
    if (a->report != NULL) cache_audit_print(a->report, a->model);
}

static json_t *models_array(const cache_rows *rows) {
    json_t *list = json_array();
    const char *model = NULL;
    for (size_t i = 0; i < rows->n; i++) {
        if (model != NULL && strcmp(model, rows->items[i].model) == 0) continue;
        model = rows->items[i].model;
        totals t = cache_rows_sum_rows(rows, model);
        json_t *o = json_object();
        cli_json_set(o, "model", cli_json_text(model));
        cli_json_set(o, "records", json_integer((json_int_t)t.records));
        cli_json_set(o, "tokens", json_integer((json_int_t)t.tokens));
        cli_json_set(o, "bytes", json_integer((json_int_t)t.bytes));
        cli_json_append(list, o);
    }
    return list;
}

static int print_stats_json(const stat_options *o, const rp_store_usage *s, const cache_rows *rows,
                            const stat_audit *a) {
    json_t *object = json_object();
    const stat_weights w = stat_count_weights(o->store.store);
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {{"records", s->records},
                   {"record_bytes", s->record_bytes},
                   {"modules", s->modules},
                   {"module_bytes", s->module_bytes},
                   {"reduced", s->reduced},
                   {"reduced_bytes", s->reduced_bytes},
                   {"texts", s->texts},
                   {"text_bytes", s->text_bytes},
                   {"states", s->states},
                   {"state_bytes", s->state_bytes},
                   {"tokens", s->tokens},
                   {"encrypted", s->encrypted},
                   {"unreadable", s->unreadable},
                   {"pinned", s->pinned},
                   {"pinned_bytes", s->pinned_bytes},
                   {"expired", s->expired},
                   {"expired_bytes", s->expired_bytes},
                   {"bad", s->bad},
                   {"bad_bytes", s->bad_bytes},
                   {"leftovers", s->leftovers},
                   {"leftover_bytes", s->leftover_bytes},
                   {"foreign", s->foreign},
                   {"foreign_bytes", s->foreign_bytes},
                   {"damaged", s->broken},
                   {"without_row", s->without_row},
                   {"without_file", s->without_file},
                   {"index_bytes", s->index_bytes},
                   {"total_bytes", s->total_bytes},
                   {"weights_files", w.n},
                   {"weights_bytes", w.bytes}};
    cli_json_set(object, "store", cli_json_text(o->store.store));
    cli_json_set(object, "owner", json_integer(s->owner));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        cli_json_set(object, numbers[i].name, json_integer((json_int_t)numbers[i].value));
    cli_json_set(object, "models", models_array(rows));
    json_t *formats = json_array();
    each_format(rows, append_format, formats);
    cli_json_set(object, "kv_formats", formats);
    cli_json_set(object, "audit", cache_audit_object(a->report, a->model));
    return cli_json_print(object);
}

static int show_stats(const stat_options *o, rp_store *cache) {
    rp_store_usage s = {.struct_size = sizeof(s)};
    rp_store_listing *l = NULL;
    rp_error err;
    stat_audit a = {NULL, ""};
    if (rp_store_get_usage(cache, &s, &err) != RP_OK || rp_store_read_audit(cache, &a.report, a.model, &err) != RP_OK)
        return cache_store_fail(&err);
    if (rp_store_list(cache, NULL, NULL, &l, &err) != RP_OK) {
        rp_audit_free(a.report);
        return cache_store_fail(&err);
    }
    cache_rows rows = cache_rows_make(l, true, CACHE_BY_NAME);
    int status = CLI_OK;
    if (o->json) status = print_stats_json(o, &s, &rows, &a);
    else print_stats(o, &s, &rows, &a);
    free(rows.items);
    rp_store_listing_free(l);
    rp_audit_free(a.report);
    return status == CLI_OK ? cli_finish_output() : status;
}

static int stat_main(int argc, char **argv) {
    stat_options o = {.json = false};
    cli_parsed parsed = cli_options_parse(&cli_cache_stat, argc, argv, &o);
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    rp_store *cache = NULL;
    int status = cache_store_open(&cache, &o.store, true, false);
    if (status == CLI_OK) status = show_stats(&o, cache);
    rp_store_close(cache);
    return status;
}
