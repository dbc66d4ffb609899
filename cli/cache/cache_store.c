/* SPDX-License-Identifier: Apache-2.0 */
/* cache_store.c: see cache_store.h. Owns nothing. One thread. */
#include "cache/cache_store.h"

#include <stdlib.h>
#include <string.h>

#include "common/command.h"
#include "reprise_store.h"

int cache_store_fail(const rp_error *err) {
    bool wrong = err->code == RP_ERR_INVALID && err->where[0] == '\0';
    return cli_fail_library_as(wrong ? CLI_WRONG_USE : CLI_FAILED, err);
}

int cache_store_open(rp_store **out, const cache_store_args *args, bool read_only, bool create) {
    rp_store_options o = rp_store_options_defaults();
    rp_error err;
    o.key_file = args->store_key;
    o.read_only = read_only;
    o.create = create;
    return rp_store_open(out, args->store, &o, &err) == RP_OK ? CLI_OK : cache_store_fail(&err);
}

int cache_select_check(const char *command, const cache_select_args *a) {
    if (a->name != NULL || a->key != NULL || a->model != NULL || a->expired || a->all) return CLI_OK;
    return cli_fail(CLI_WRONG_USE,
                    "'reprise %s' needs a selection of records: give a NAME, --key, --model, --expired or --all",
                    command);
}

rp_store_selection cache_selection(const cache_select_args *a) {
    return (rp_store_selection){
        .name = a->name, .key = a->key, .model = a->model, .expired = a->expired, .all = a->all};
}

void cache_on_progress(void *user, uint64_t done, uint64_t total) {
    cache_progress *p = user;
    if (total > 0) cli_progress_draw(&p->bar, p->what, NULL, done, total);
}

/* ---- Texts ---- */

const char *cache_bytes_text(uint64_t bytes, char *out) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes / 1024;
    size_t unit = 0;
    while (v >= 1023.95 && unit + 1 < sizeof units / sizeof units[0]) v /= 1024, unit++;
    if (bytes < 1024) snprintf(out, CACHE_TEXT_BYTES, "%llu B", (unsigned long long)bytes);
    else snprintf(out, CACHE_TEXT_BYTES, "%.1f %s", v, units[unit]);
    return out;
}

const char *cache_span_text(int64_t s, char *out) {
    if (s < 0) s = 0;
    if (s < 60) snprintf(out, CACHE_TEXT_BYTES, "%llds", (long long)s);
    else if (s < 3600) snprintf(out, CACHE_TEXT_BYTES, "%lldm", (long long)(s / 60));
    else if (s < 48 * 3600) snprintf(out, CACHE_TEXT_BYTES, "%lldh", (long long)(s / 3600));
    else snprintf(out, CACHE_TEXT_BYTES, "%lldd", (long long)(s / 86400));
    return out;
}

const char *cache_count_text(uint64_t n, const char *one, char *out) {
    snprintf(out, CACHE_TEXT_BYTES, "%llu %s%s", (unsigned long long)n, one, n == 1 ? "" : "s");
    return out;
}

/* ---- Rows ---- */

static const char *row_name(const rp_store_entry *e) {
    if (e->label[0] != '\0') return e->label;
    if (e->encrypted && e->fault[0] != '\0') return "(encrypted: give --store-key)";
    if (e->fault[0] != '\0') return "(not readable here)";
    return e->kind == RP_STORE_TEXT ? "(prompts and answers)" : "(without a name)";
}

static int cache_store_sign(int64_t a, int64_t b) { return (a > b) - (a < b); }

/* Sort order: modules first. */
static int cache_entry_rank(const rp_store_entry *e) {
    return e->label[0] != '\0' ? 0 : e->kind == RP_STORE_TEXT && e->fault[0] == '\0' ? 1
                                                                                     : 2;
}

static int cache_store_compare_entries(const void *a, const void *b) {
    const rp_store_entry *x = *(const rp_store_entry *const *)a, *y = *(const rp_store_entry *const *)b;
    int c = strcmp(x->model, y->model);
    if (c == 0) c = cache_entry_rank(x) - cache_entry_rank(y);
    if (c == 0) c = strcmp(row_name(x), row_name(y));
    if (c == 0) c = (x->kind == RP_STORE_REDUCED) - (y->kind == RP_STORE_REDUCED);
    /* last: a row has the KV format of its first entry */
    if (c == 0) c = (x->kind == RP_STORE_STATES) - (y->kind == RP_STORE_STATES);
    return c != 0 ? c : strcmp(x->key, y->key);
}

static bool same_row(const rp_store_entry *a, const rp_store_entry *b) {
    return strcmp(a->model, b->model) == 0 && cache_entry_rank(a) == cache_entry_rank(b) &&
           strcmp(row_name(a), row_name(b)) == 0 && (a->kind == RP_STORE_REDUCED) == (b->kind == RP_STORE_REDUCED);
}

/* Records of a module are always used together; texts are used one by one. */
static void cache_row_add_entry(cache_row *r, const rp_store_entry *e) {
    if (r->records++ == 0) r->kv_format = e->kv_format;
    else if (e->kind != RP_STORE_STATES && strcmp(r->kv_format, e->kv_format) != 0) r->kv_format = "mixed";
    r->pinned += e->pinned;
    r->tokens += (uint64_t)e->n_tokens;
    r->bytes += e->bytes;
    r->uses = cache_entry_rank(e) != 0 ? r->uses + e->uses : e->uses > r->uses ? e->uses
                                                                               : r->uses;
    if (e->last_use > r->last_use) r->last_use = e->last_use;
    if (e->expires != 0 && (r->expires == 0 || e->expires < r->expires)) r->expires = e->expires;
}

static int compare_rows(const cache_row *x, const cache_row *y, cache_order order) {
    int c = strcmp(x->model, y->model);
    if (c == 0 && order == CACHE_BY_SIZE) c = cache_store_sign((int64_t)y->bytes, (int64_t)x->bytes);
    if (c == 0 && order == CACHE_BY_USE) c = cache_store_sign(y->last_use, x->last_use);
    return c;
}

static int by_size(const void *a, const void *b) { return compare_rows(a, b, CACHE_BY_SIZE); }
static int by_use(const void *a, const void *b) { return compare_rows(a, b, CACHE_BY_USE); }

cache_rows cache_rows_make(const rp_store_listing *l, bool each, cache_order order) {
    const rp_store_entry **sorted = cli_alloc(l->n_entries * sizeof(const rp_store_entry *));
    cache_rows rows = {.items = cli_alloc(l->n_entries * sizeof(cache_row))};
    for (size_t i = 0; i < l->n_entries; i++) sorted[i] = &l->entries[i];
    qsort(sorted, l->n_entries, sizeof *sorted, cache_store_compare_entries);
    for (size_t i = 0; i < l->n_entries; i++) {
        const rp_store_entry *e = sorted[i];
        if (each || i == 0 || !same_row(sorted[i - 1], e))
            rows.items[rows.n++] = (cache_row){
                .name = each && cache_entry_rank(e) == 1 ? "(prompt or answer)" : row_name(e),
                .model = e->model,
                .kind = e->kind,
                .key = each ? e->key : NULL,
            };
        cache_row_add_entry(&rows.items[rows.n - 1], e);
    }
    if (order != CACHE_BY_NAME)
        qsort(rows.items, rows.n, sizeof *rows.items, order == CACHE_BY_SIZE ? by_size : by_use);
    free(sorted);
    return rows;
}
