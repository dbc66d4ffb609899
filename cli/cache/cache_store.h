/* SPDX-License-Identifier: Apache-2.0 */
/* cache_store.h: shared by the subcommands of `reprise cache` that use a store: options, opening, selection of records,
 * sizes and times as text. */
#ifndef CLI_CACHE_STORE_H
#define CLI_CACHE_STORE_H

#include <time.h>

#include "common/console.h"
#include "common/options.h"
#include "reprise_store.h"

typedef struct cache_store_args {
    const char *store, *store_key;
} cache_store_args;

/* clang-format off */
#define CACHE_STORE_ROWS(type, field) \
    {.name = "store", .kind = CLI_TEXT, .value = "DIR", .offset = offsetof(type, field.store), .required = true, \
     .help = "the store's folder, as given to 'reprise run --store'; required"}, \
    {.name = "store-key", .kind = CLI_TEXT, .value = "FILE", .offset = offsetof(type, field.store_key), \
     .help = "file with the key of its encrypted records (REPRISE_STORE_KEY, if set)"}
/* clang-format on */

/* Selection of records; all zero: none was given. */
typedef struct cache_select_args {
    const char *name, *key, *model;
    bool expired, all;
} cache_select_args;

/* clang-format off */
#define CACHE_SELECT_ROWS(type, field) \
    {.name = "name", .kind = CLI_TEXT, .value = "NAME", .offset = offsetof(type, field.name), .positional = true, \
     .help = "select a module with its members, as 'cities/plan', or a whole schema, as 'cities'"}, \
    {.name = "key", .kind = CLI_TEXT, .value = "DIGITS", .offset = offsetof(type, field.key), \
     .help = "select records by key prefix: at least 4 digits, as 'ls --all' prints"}, \
    {.name = "model", .kind = CLI_TEXT, .value = "DIGITS", .offset = offsetof(type, field.model), \
     .help = "select records by model fingerprint prefix: at least 4 digits, as 'ls' prints"}, \
    {.name = "expired", .kind = CLI_FLAG, .offset = offsetof(type, field.expired), .help = "select expired records"}, \
    {.name = "all", .kind = CLI_FLAG, .offset = offsetof(type, field.all), .help = "select every record"}
/* clang-format on */

/* Opens the store. Returns an exit status. */
int cache_store_open(rp_store **out, const cache_store_args *args, bool read_only, bool create);
/* Prints an error: CLI_WRONG_USE if it is about an option's value, else CLI_FAILED. */
int cache_store_fail(const rp_error *err);
/* CLI_WRONG_USE, after its error line, if no record is selected. */
int cache_select_check(const char *command, const cache_select_args *args);
rp_store_selection cache_selection(const cache_select_args *args);

/* Progress of a library function; its user pointer is a cache_progress. */
typedef struct cache_progress {
    cli_progress bar;
    const char *what;
} cache_progress;
void cache_on_progress(void *user, uint64_t done, uint64_t total);

#define CACHE_TEXT_BYTES 32

/* "1.3 MiB"; "42s", "5m", "3h", "12d". Each returns out[CACHE_TEXT_BYTES]. */
const char *cache_bytes_text(uint64_t bytes, char *out);
const char *cache_span_text(int64_t seconds, char *out);
/* "1 record", "2 records". */
const char *cache_count_text(uint64_t n, const char *one, char *out);

/* A listing as rows for people: one per module, one for its reduced KV, one for all prompts and answers of a model, one
 * for unreadable records. */
typedef struct cache_row {
    const char *name;      /* a label; or a description in brackets */
    const char *model;     /* "" unknown */
    const char *key;       /* NULL for several records */
    const char *kv_format; /* "mixed": of several; "": unknown */
    rp_store_kind kind;
    uint64_t records, pinned, tokens, bytes, uses;
    int64_t last_use, expires; /* the latest, and the earliest; 0: unknown, and never */
} cache_row;

typedef struct cache_rows {
    cache_row *items;
    size_t n;
} cache_rows;

typedef enum cache_order { CACHE_BY_NAME,
                           CACHE_BY_SIZE,
                           CACHE_BY_USE } cache_order;

/* each: one row per record. Sorted by model, kind, then `order`. Rows borrow the listing; free(items). */
cache_rows cache_rows_make(const rp_store_listing *l, bool each, cache_order order);

#endif
