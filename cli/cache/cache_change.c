/* SPDX-License-Identifier: Apache-2.0 */
/* cache_change.c: `reprise cache rm`, `pin`, `unpin`, `gc`, `rebuild`: changes to a store. Owns their options and
 * output. One thread. */
#include <stdlib.h>
#include <string.h>

#include "cache/cache_store.h"
#include "common/command.h"
#include "common/loader.h"
#include "common/text.h"
#include "reprise_store.h"

typedef struct change_options {
    cache_store_args store;
    cache_select_args select;
} change_options;

static const cli_option select_table[] = {
    CACHE_SELECT_ROWS(change_options, select), CACHE_STORE_ROWS(change_options, store), {.name = NULL}};
static const cli_option plain_table[] = {CACHE_STORE_ROWS(change_options, store), {.name = NULL}};

#define NOTES \
    "Several selections together select the records that match all of them. Refused while an engine has the store " \
    "open.\n"

static int rm_main(int argc, char **argv);
static int pin_main(int argc, char **argv);
static int unpin_main(int argc, char **argv);
static int gc_main(int argc, char **argv);
static int rebuild_main(int argc, char **argv);

const cli_command cli_cache_rm = {
    .name = "cache rm",
    .summary = "remove records",
    .synopsis = "--store DIR (NAME | --key DIGITS | --model DIGITS | --expired | --all)",
    .notes = NOTES "Pinned records are removed, too. Removed KV is recomputed when it is needed.\n",
    .options = select_table,
    .main = rm_main,
};

const cli_command cli_cache_pin = {
    .name = "cache pin",
    .summary = "protect records from eviction",
    .synopsis = "--store DIR (NAME | --key DIGITS | --model DIGITS | --expired | --all)",
    .notes = NOTES,
    .options = select_table,
    .main = pin_main,
};

const cli_command cli_cache_unpin = {
    .name = "cache unpin",
    .summary = "remove pins",
    .synopsis = "--store DIR (NAME | --key DIGITS | --model DIGITS | --expired | --all)",
    .notes = NOTES,
    .options = select_table,
    .main = unpin_main,
};

const cli_command cli_cache_gc = {
    .name = "cache gc",
    .summary = "remove leftover files, bad and expired records; repair the index",
    .synopsis = "--store DIR",
    .notes = "Pinned records are not removed, even if expired. Refused while an engine has the store open.\n",
    .options = plain_table,
    .main = gc_main,
};

const cli_command cli_cache_rebuild = {
    .name = "cache rebuild",
    .summary = "rebuild the index from the records",
    .synopsis = "--store DIR",
    .notes = "Use counts, times and pins are copied from the old index where it is readable.\n"
             "Refused while an engine has the store open.\n",
    .options = plain_table,
    .main = rebuild_main,
};

/* Parses the arguments and opens the store for writing. *done: the command ends here. */
static int cache_change_begin(const cli_command *command, int argc, char **argv, change_options *o, rp_store **cache,
                              bool *done) {
    cli_parsed parsed = cli_options_parse(command, argc, argv, o);
    *done = true;
    if (parsed == CLI_PARSED_HELP) return cli_finish_output();
    if (parsed == CLI_PARSED_WRONG) return CLI_WRONG_USE;
    int status = command->options == select_table ? cache_select_check(command->name, &o->select) : CLI_OK;
    if (status == CLI_OK) status = cache_store_open(cache, &o->store, false, false);
    *done = status != CLI_OK;
    return status;
}

/* ---- rm, pin, unpin ---- */

/* Warns after removals on a full disk. */
static void cache_change_print_unwritten(bool index_unwritten) {
    if (index_unwritten)
        fputs("note: the disk is full: the index keeps the rows of removed records until the store is opened with free "
              "disk space\n",
              stderr);
}

/* "removed cities/plan: 2 records, 1.0 MiB" for each name, then the total. */
static int cache_change_print(const char *did, rp_store_listing *l) {
    cache_rows rows = cache_rows_make(l, false, CACHE_BY_NAME);
    char records[CACHE_TEXT_BYTES], size[CACHE_TEXT_BYTES];
    uint64_t bytes = 0;
    for (size_t i = 0; i < rows.n; i++) {
        const cache_row *r = &rows.items[i];
        bytes += r->bytes;
        printf("%s ", did);
        cli_print_safe(stdout, r->name, strlen(r->name));
        printf(": %s, %s\n", cache_count_text(r->records, "record", records), cache_bytes_text(r->bytes, size));
    }
    if (rows.n != 1)
        printf("%s %s, %s\n", did, cache_count_text(l->n_entries, "record", records), cache_bytes_text(bytes, size));
    cache_change_print_unwritten(l->index_unwritten);
    free(rows.items);
    rp_store_listing_free(l);
    return cli_finish_output();
}

static int rm_main(int argc, char **argv) {
    change_options o = {.select = {.all = false}};
    rp_store *cache = NULL;
    rp_store_listing *l = NULL;
    rp_error err;
    bool done;
    int status = cache_change_begin(&cli_cache_rm, argc, argv, &o, &cache, &done);
    if (done) return status;
    rp_store_selection selection = cache_selection(&o.select);
    status = rp_store_remove(cache, &selection, &l, &err) == RP_OK ? cache_change_print("removed", l)
                                                                   : cache_store_fail(&err);
    rp_store_close(cache);
    return status;
}

static int set_pins(const cli_command *command, int argc, char **argv, bool pinned) {
    change_options o = {.select = {.all = false}};
    rp_store *cache = NULL;
    rp_store_listing *l = NULL;
    rp_error err;
    bool done;
    int status = cache_change_begin(command, argc, argv, &o, &cache, &done);
    if (done) return status;
    rp_store_selection selection = cache_selection(&o.select);
    status = rp_store_pin(cache, &selection, pinned, &l, &err) == RP_OK
                 ? cache_change_print(pinned ? "pinned" : "unpinned", l)
                 : cache_store_fail(&err);
    rp_store_close(cache);
    return status;
}

static int pin_main(int argc, char **argv) { return set_pins(&cli_cache_pin, argc, argv, true); }
static int unpin_main(int argc, char **argv) { return set_pins(&cli_cache_unpin, argc, argv, false); }

/* ---- gc, rebuild ---- */

static void cache_change_print_line(uint64_t n, const char *what, uint64_t bytes) {
    char count[CACHE_TEXT_BYTES], size[CACHE_TEXT_BYTES];
    if (n == 0) return;
    printf("%s", cache_count_text(n, what, count));
    if (bytes > 0) printf(", %s", cache_bytes_text(bytes, size));
    putchar('\n');
}

static int cache_cleaning_print_rest(const rp_store_cleaning *c) {
    char records[CACHE_TEXT_BYTES], size[CACHE_TEXT_BYTES], index[CACHE_TEXT_BYTES];
    printf("the store has %s, %s; its index %s\n", cache_count_text(c->records, "record", records),
           cache_bytes_text(c->bytes, size), cache_bytes_text(c->index_bytes, index));
    return cli_finish_output();
}

static int cache_cleaning_print_gc(const rp_store_cleaning *c, const char *store) {
    char size[CACHE_TEXT_BYTES];
    uint64_t index = c->index_bytes_before > c->index_bytes ? c->index_bytes_before - c->index_bytes : 0;
    cache_change_print_line(c->leftovers, "leftover file", c->leftover_bytes);
    cache_change_print_line(c->bad, "bad record", c->bad_bytes);
    cache_change_print_line(c->expired, "expired record", c->expired_bytes);
    cache_change_print_line(c->rows_removed, "row without a record", 0);
    cache_change_print_line(c->rows_entered, "record entered into the index", 0);
    cache_change_print_line(c->rows_corrected, "corrected row", 0);
    cache_change_print_unwritten(c->index_unwritten);
    const char *weights = cli_weights_dir(store);
    uint64_t n_weights = 0, weights_bytes = 0;
    if (weights != NULL)
        (void)rp_weights_clean(weights, &n_weights, &weights_bytes,
                               NULL); /* best effort: 'cache weights --gc' reports */
    cache_change_print_line(n_weights, "file of repacked weights", weights_bytes);
    printf("freed %s\n",
           cache_bytes_text(c->leftover_bytes + c->bad_bytes + c->expired_bytes + index + weights_bytes, size));
    return cache_cleaning_print_rest(c);
}

static int gc_main(int argc, char **argv) {
    change_options o = {.select = {.all = false}};
    rp_store *cache = NULL;
    rp_store_cleaning c = {.struct_size = sizeof(c)};
    rp_error err;
    bool done;
    int status = cache_change_begin(&cli_cache_gc, argc, argv, &o, &cache, &done);
    if (done) return status;
    status = rp_store_gc(cache, NULL, NULL, &c, &err) == RP_OK ? cache_cleaning_print_gc(&c, o.store.store)
                                                               : cache_store_fail(&err);
    rp_store_close(cache);
    return status;
}

static int cache_cleaning_print_rebuild(const rp_store_cleaning *c) {
    char records[CACHE_TEXT_BYTES];
    printf("entered %s\n", cache_count_text(c->rows_entered, "record", records));
    if (c->records > c->rows_entered)
        printf("%s not readable here: another key or version\n",
               cache_count_text(c->records - c->rows_entered, "record", records));
    cache_change_print_line(c->set_aside, "damaged record set aside", 0);
    return cache_cleaning_print_rest(c);
}

static int rebuild_main(int argc, char **argv) {
    change_options o = {.select = {.all = false}};
    rp_store *cache = NULL;
    rp_store_cleaning c = {.struct_size = sizeof(c)};
    rp_error err;
    bool done;
    int status = cache_change_begin(&cli_cache_rebuild, argc, argv, &o, &cache, &done);
    if (done) return status;
    status = rp_store_rebuild(cache, NULL, NULL, &c, &err) == RP_OK ? cache_cleaning_print_rebuild(&c)
                                                                    : cache_store_fail(&err);
    rp_store_close(cache);
    return status;
}
