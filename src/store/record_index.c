/* record_index.c: see record_index.h. */
#include "store/record_index.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"

#define INDEX_VERSION 2
#define MAX_PATH_BYTES 4096
#define BUSY_MS 5000 /* to wait for who looks at the index (`reprise cache ls`) or carries its log over */
/* Pages of 4 KiB after which the log is carried over, and bytes that it may keep: it counts as the store's. */
#define LOG_PAGES "64"
#define LOG_BYTES "262144"

struct record_index {
    sqlite3 *db;
    sqlite3_stmt *put, *remove, *note;
    char *path;
    bool in_transaction;
};

static const char tables[] =
    "CREATE TABLE IF NOT EXISTS records (key BLOB PRIMARY KEY NOT NULL, fingerprint BLOB NOT NULL, parent BLOB NOT NULL, kind INTEGER NOT NULL,"
    " at INTEGER NOT NULL, first_slot INTEGER NOT NULL, pos INTEGER NOT NULL, slots INTEGER NOT NULL, readable_from INTEGER NOT NULL,"
    " kept BLOB NOT NULL, tokens BLOB NOT NULL, label TEXT NOT NULL, bytes INTEGER NOT NULL, cost_us INTEGER NOT NULL,"
    " tenant INTEGER NOT NULL, uses INTEGER NOT NULL, last_use INTEGER NOT NULL, expires INTEGER NOT NULL, pinned INTEGER NOT NULL);";

#define COLUMNS \
    "key, fingerprint, parent, kind, at, first_slot, pos, slots, readable_from, kept, tokens, label, bytes, cost_us, tenant, uses, last_use, expires, " \
    "pinned"

/* The columns' order above. */
enum { KEY, FINGERPRINT, PARENT, KIND, AT, FIRST_SLOT, POS, SLOTS, READABLE_FROM, KEPT, TOKENS, LABEL, BYTES, COST, TENANT, USES, LAST_USE, EXPIRES, PINNED };

static int fail(const record_index *ix, const char *what, rp_error *err) {
    return base_fail_at(err, RP_ERR_IO, ix->path, 0, "%s: %s", what, ix->db ? sqlite3_errmsg(ix->db) : "out of memory");
}

static int execute(record_index *ix, const char *sql, rp_error *err) {
    return sqlite3_exec(ix->db, sql, NULL, NULL, NULL) == SQLITE_OK ? RP_OK : fail(ix, "the index of records cannot be used", err);
}

/* ---- opening ---- */

static void close_database(record_index *ix) {
    sqlite3_finalize(ix->put);
    sqlite3_finalize(ix->remove);
    sqlite3_finalize(ix->note);
    sqlite3_close(ix->db);
    ix->put = ix->remove = ix->note = NULL;
    ix->db = NULL;
}

static int version_of(record_index *ix) {
    sqlite3_stmt *s = NULL;
    int version = -1;
    if (sqlite3_prepare_v2(ix->db, "PRAGMA user_version", -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        version = sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    return version;
}

/* Is every page what it should be? A damaged row would be found when it is read, a damaged tree only here. */
static bool is_sound(record_index *ix) {
    sqlite3_stmt *s = NULL;
    bool sound = sqlite3_prepare_v2(ix->db, "PRAGMA quick_check(1)", -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW &&
                 strcmp((const char *)sqlite3_column_text(s, 0), "ok") == 0;
    sqlite3_finalize(s);
    return sound;
}

static int prepare(record_index *ix, rp_error *err) {
    static const char put[] = "INSERT OR REPLACE INTO records (" COLUMNS ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
    static const char drop[] = "DELETE FROM records WHERE key = ?";
    static const char note[] = "UPDATE records SET uses = ?2, last_use = ?3, expires = ?4, pinned = ?5 WHERE key = ?1";
    bool ok = sqlite3_prepare_v3(ix->db, put, -1, SQLITE_PREPARE_PERSISTENT, &ix->put, NULL) == SQLITE_OK &&
              sqlite3_prepare_v3(ix->db, drop, -1, SQLITE_PREPARE_PERSISTENT, &ix->remove, NULL) == SQLITE_OK &&
              sqlite3_prepare_v3(ix->db, note, -1, SQLITE_PREPARE_PERSISTENT, &ix->note, NULL) == SQLITE_OK;
    return ok ? RP_OK : fail(ix, "the index of records cannot be used", err);
}

static int open_database(record_index *ix, rp_error *err) {
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(ix->path, &ix->db, flags, NULL) != SQLITE_OK) return fail(ix, "the index of records cannot be opened", err);
    sqlite3_busy_timeout(ix->db, BUSY_MS);
    int version = version_of(ix);
    if ((version != 0 && version != INDEX_VERSION) || !is_sound(ix))
        return base_fail_at(err, RP_ERR_FORMAT, ix->path, 0, "the index of records is damaged, or of another version");
    int rc = execute(ix, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = " LOG_PAGES
                         "; PRAGMA journal_size_limit = " LOG_BYTES "; PRAGMA secure_delete = ON;", err);
    if (!rc) rc = execute(ix, tables, err);
    if (!rc) rc = execute(ix, "PRAGMA user_version = 2", err);
    return rc ? rc : prepare(ix, err);
}

/* The database and what belongs to it. */
static void remove_database(const char *path) {
    static const char *const ends[] = {"", "-wal", "-shm"};
    char name[MAX_PATH_BYTES];
    for (size_t i = 0; i < BASE_ARRAY_LEN(ends); i++)
        if (snprintf(name, sizeof(name), "%s%s", path, ends[i]) < (int)sizeof(name)) base_io_unlink(name, NULL);
}

int record_index_open(record_index **out, const char *path, rp_error *err) {
    record_index *ix = base_calloc(1, sizeof(*ix));
    *out = NULL;
    if (!ix || !(ix->path = base_strdup(path))) {
        base_free(ix);
        return base_fail_memory(err, sizeof(*ix), "the index of records");
    }
    int rc = open_database(ix, err);
    if (rc) { /* it can be made again */
        base_log(BASE_LOG_WARN, "store: %s: it is made again from the records", err ? err->message : path);
        close_database(ix);
        remove_database(path);
        rc = open_database(ix, err);
    }
    if (rc) {
        record_index_close(ix);
        return rc;
    }
    *out = ix;
    return RP_OK;
}

void record_index_close(record_index *ix) {
    if (!ix) return;
    if (ix->db) record_index_commit(ix, NULL);
    close_database(ix);
    base_free(ix->path);
    base_free(ix);
}

/* ---- changing ---- */

static int begin(record_index *ix, rp_error *err) {
    if (ix->in_transaction) return RP_OK;
    int rc = execute(ix, "BEGIN IMMEDIATE", err);
    ix->in_transaction = !rc;
    return rc;
}

int record_index_commit(record_index *ix, rp_error *err) {
    if (!ix->in_transaction) return RP_OK;
    ix->in_transaction = false;
    int rc = execute(ix, "COMMIT", err);
    if (rc) sqlite3_exec(ix->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

int record_index_commit_durably(record_index *ix, rp_error *err) {
    int rc = record_index_commit(ix, err);
    if (rc) return rc;
    sqlite3_busy_timeout(ix->db, 0);
    int carried = sqlite3_wal_checkpoint_v2(ix->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL); /* syncs log and database */
    sqlite3_busy_timeout(ix->db, BUSY_MS);
    if (carried != SQLITE_OK && carried != SQLITE_BUSY) rc = fail(ix, "the index of records cannot be synced", err);
    return rc;
}

void record_index_hurry(record_index *ix) {
    sqlite3_wal_autocheckpoint(ix->db, 0);
    sqlite3_db_config(ix->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
}

static int run(record_index *ix, sqlite3_stmt *s, rp_error *err) {
    int done = sqlite3_step(s);
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return done == SQLITE_DONE ? RP_OK : fail(ix, "the index of records cannot be written", err);
}

static void bind_key(sqlite3_stmt *s, int i, const base_key *key) { sqlite3_bind_blob(s, i + 1, key->bytes, sizeof(key->bytes), SQLITE_STATIC); }
static void bind_int(sqlite3_stmt *s, int i, int64_t v) { sqlite3_bind_int64(s, i + 1, v); }

int record_index_put(record_index *ix, const record_row *row, rp_error *err) {
    const record *r = &row->record;
    sqlite3_stmt *s = ix->put;
    int rc = begin(ix, err);
    if (rc) return rc;
    bind_key(s, KEY, &r->key);
    bind_key(s, FINGERPRINT, &row->fingerprint);
    bind_key(s, PARENT, &r->parent);
    bind_int(s, KIND, r->kind);
    bind_int(s, AT, r->at);
    bind_int(s, FIRST_SLOT, r->first_slot);
    bind_int(s, POS, r->form.first_pos);
    bind_int(s, SLOTS, r->form.n_tokens);
    bind_int(s, READABLE_FROM, r->form.readable_from);
    sqlite3_bind_blob(s, KEPT + 1, r->form.kept, row->n_layers, SQLITE_STATIC);
    sqlite3_bind_blob(s, TOKENS + 1, r->n_tokens ? (const void *)r->tokens : "", r->n_tokens * (int)sizeof(*r->tokens), SQLITE_STATIC);
    sqlite3_bind_text(s, LABEL + 1, r->label, -1, SQLITE_STATIC);
    bind_int(s, BYTES, (int64_t)row->bytes);
    bind_int(s, COST, (int64_t)r->cost_us);
    bind_int(s, TENANT, r->tenant);
    bind_int(s, USES, (int64_t)row->uses);
    bind_int(s, LAST_USE, row->last_use);
    bind_int(s, EXPIRES, row->expires);
    bind_int(s, PINNED, row->pinned);
    return run(ix, s, err);
}

int record_index_remove(record_index *ix, const base_key *key, rp_error *err) {
    int rc = begin(ix, err);
    if (rc) return rc;
    bind_key(ix->remove, 0, key);
    return run(ix, ix->remove, err);
}

int record_index_note(record_index *ix, const base_key *key, const record_use *use, rp_error *err) {
    int rc = begin(ix, err);
    if (rc) return rc;
    bind_key(ix->note, 0, key);
    bind_int(ix->note, 1, (int64_t)use->uses);
    bind_int(ix->note, 2, use->last_use);
    bind_int(ix->note, 3, use->expires);
    bind_int(ix->note, 4, use->pinned);
    return run(ix, ix->note, err);
}

/* ---- asking ---- */

static bool get_key(sqlite3_stmt *s, int i, base_key *key) {
    const void *blob = sqlite3_column_blob(s, i);
    if (!blob || sqlite3_column_bytes(s, i) != (int)sizeof(key->bytes)) return false;
    memcpy(key->bytes, blob, sizeof(key->bytes));
    return true;
}

static bool in_range(int64_t v, int64_t least, int64_t most) { return v >= least && v <= most; }

/* A number of the row that fits 32 bits. */
static bool get_int(sqlite3_stmt *s, int i, int64_t least, int64_t most, int32_t *out) {
    int64_t v = sqlite3_column_int64(s, i);
    *out = (int32_t)v;
    return in_range(v, least, most);
}

/* One that cannot be is none. */
static int64_t get_time(sqlite3_stmt *s, int i) {
    int64_t v = sqlite3_column_int64(s, i);
    return in_range(v, 0, (int64_t)1 << 48) ? v : 0;
}

static bool get_row(sqlite3_stmt *s, record_row *row) {
    record *r = &row->record;
    int32_t kind = 0, n_token_bytes = sqlite3_column_bytes(s, TOKENS);
    *row = (record_row){.bytes = (uint64_t)sqlite3_column_int64(s, BYTES),
                        .uses = (uint64_t)sqlite3_column_int64(s, USES),
                        .last_use = get_time(s, LAST_USE),
                        .expires = get_time(s, EXPIRES),
                        .pinned = sqlite3_column_int(s, PINNED) != 0};
    bool ok = get_key(s, KEY, &r->key) && get_key(s, FINGERPRINT, &row->fingerprint) && get_key(s, PARENT, &r->parent) &&
              get_int(s, KIND, RECORD_MODULE, RECORD_TEXT, &kind) && get_int(s, AT, 0, KV_SPAN_TOKENS, &r->at) &&
              get_int(s, FIRST_SLOT, 0, KV_SPAN_TOKENS - 1, &r->first_slot) &&
              get_int(s, POS, 0, INT32_MAX - KV_SPAN_TOKENS, &r->form.first_pos) &&
              get_int(s, SLOTS, 1, KV_SPAN_TOKENS, &r->form.n_tokens) &&
              get_int(s, READABLE_FROM, INT32_MIN, INT32_MAX, &r->form.readable_from);
    r->kind = (record_kind)kind;
    r->n_tokens = n_token_bytes / (int32_t)sizeof(*r->tokens);
    r->tokens = sqlite3_column_blob(s, TOKENS);
    r->form.kept = sqlite3_column_blob(s, KEPT);
    row->n_layers = sqlite3_column_bytes(s, KEPT);
    r->label = (const char *)sqlite3_column_text(s, LABEL);
    r->cost_us = (uint64_t)sqlite3_column_int64(s, COST);
    r->tenant = (uint32_t)sqlite3_column_int64(s, TENANT);
    return ok && r->label && row->n_layers > 0 && n_token_bytes % (int)sizeof(*r->tokens) == 0 &&
           r->first_slot + r->n_tokens <= r->form.n_tokens;
}

int record_index_each(record_index *ix, const base_key *fingerprint, record_row_fn fn, void *user, rp_error *err) {
    static const char all[] = "SELECT " COLUMNS " FROM records WHERE ?1 IS NULL OR fingerprint = ?1 ORDER BY key";
    sqlite3_stmt *s = NULL;
    int rc = RP_OK, step = SQLITE_DONE;
    if (sqlite3_prepare_v2(ix->db, all, -1, &s, NULL) != SQLITE_OK) return fail(ix, "the index of records cannot be read", err);
    if (fingerprint) bind_key(s, 0, fingerprint);
    while (!rc && (step = sqlite3_step(s)) == SQLITE_ROW) {
        record_row row;
        if (get_row(s, &row)) rc = fn(user, &row, err);
        else base_log(BASE_LOG_WARN, "store: %s: a row that cannot be is left out", ix->path);
    }
    if (!rc && step != SQLITE_DONE) rc = fail(ix, "the index of records cannot be read", err);
    sqlite3_finalize(s);
    return rc;
}

uint64_t record_index_bytes_at(const char *path) {
    static const char *const ends[] = {"", "-wal", "-shm"};
    char name[MAX_PATH_BYTES];
    base_io_sizes sizes;
    uint64_t bytes = 0;
    for (size_t i = 0; i < BASE_ARRAY_LEN(ends); i++)
        if (snprintf(name, sizeof(name), "%s%s", path, ends[i]) < (int)sizeof(name) && base_io_stat(name, &sizes, NULL) == RP_OK)
            bytes += sizes.disk_bytes;
    return bytes;
}

uint64_t record_index_bytes(const record_index *ix) { return record_index_bytes_at(ix->path); }

/* ---- for who looks after a store ---- */

/* "file:PATH?immutable=1", with what has a meaning there escaped. false: it is too long. */
static bool make_uri(const char *path, char *out, size_t n) {
    size_t used = (size_t)snprintf(out, n, "file:");
    for (; *path && used + 4 < n; path++)
        used += (size_t)snprintf(out + used, n - used, strchr("%?#", *path) ? "%%%02X" : "%c", (unsigned)(unsigned char)*path);
    return !*path && snprintf(out + used, n - used, "?immutable=1") < (int)(n - used);
}

/* Can anything be asked? */
static bool answers(record_index *ix) {
    return sqlite3_exec(ix->db, "PRAGMA query_only = 1; SELECT count(*) FROM sqlite_master", NULL, NULL, NULL) == SQLITE_OK;
}

static bool open_to_read(record_index *ix) {
    char uri[3 * MAX_PATH_BYTES];
    if (sqlite3_open_v2(ix->path, &ix->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK) {
        sqlite3_busy_timeout(ix->db, BUSY_MS);
        if (answers(ix)) return true;
    }
    close_database(ix); /* a place that cannot be written to, so nobody does: as it lies there, without its log */
    return make_uri(ix->path, uri, sizeof(uri)) &&
           sqlite3_open_v2(uri, &ix->db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK && answers(ix);
}

int record_index_open_read(record_index **out, const char *path, rp_error *err) {
    record_index *ix = base_calloc(1, sizeof(*ix));
    int rc = RP_OK;
    *out = NULL;
    if (!ix || !(ix->path = base_strdup(path))) rc = base_fail_memory(err, sizeof(*ix), "the index of records");
    else if (!open_to_read(ix)) rc = fail(ix, "the index of records cannot be read", err);
    if (rc) record_index_close(ix);
    else *out = ix;
    return rc;
}

int record_index_check(record_index *ix, rp_error *err) {
    if (version_of(ix) == INDEX_VERSION && is_sound(ix)) return RP_OK;
    return base_fail_at(err, RP_ERR_FORMAT, ix->path, 0, "the index of records is damaged, or of another version");
}

/* v: the second of sql's values, if it has so many. */
static int change_row(record_index *ix, const char *sql, const base_key *key, int64_t v, rp_error *err) {
    sqlite3_stmt *s = NULL;
    int rc = begin(ix, err);
    if (rc) return rc;
    if (sqlite3_prepare_v2(ix->db, sql, -1, &s, NULL) != SQLITE_OK) return fail(ix, "the index of records cannot be written", err);
    bind_key(s, 0, key);
    if (sqlite3_bind_parameter_count(s) > 1) bind_int(s, 1, v);
    rc = run(ix, s, err);
    sqlite3_finalize(s);
    return rc;
}

int record_index_set_pinned(record_index *ix, const base_key *key, bool pinned, rp_error *err) {
    return change_row(ix, "UPDATE records SET pinned = ?2 WHERE key = ?1", key, pinned, err);
}

int record_index_begin_anew(record_index *ix, rp_error *err) {
    int rc = execute(ix, "DROP TABLE IF EXISTS temp.old", err);
    if (!rc) rc = begin(ix, err);
    return rc ? rc : execute(ix, "CREATE TEMP TABLE old AS SELECT * FROM main.records; DELETE FROM main.records", err);
}

int record_index_keep(record_index *ix, const base_key *key, rp_error *err) {
    return change_row(ix, "INSERT OR IGNORE INTO main.records SELECT * FROM temp.old WHERE key = ?1", key, 0, err);
}

int record_index_end_anew(record_index *ix, rp_error *err) {
    static const char carry[] = "UPDATE main.records SET uses = o.uses, last_use = o.last_use, expires = o.expires, pinned = o.pinned"
                                " FROM temp.old AS o WHERE o.key = main.records.key; DROP TABLE temp.old";
    return execute(ix, carry, err);
}

void record_index_roll_back(record_index *ix) {
    if (ix->in_transaction) sqlite3_exec(ix->db, "ROLLBACK", NULL, NULL, NULL);
    ix->in_transaction = false;
}

int record_index_compact(record_index *ix, rp_error *err) {
    int rc = record_index_commit(ix, err);
    if (!rc) rc = execute(ix, "VACUUM", err);
    return rc ? rc : execute(ix, "PRAGMA wal_checkpoint(TRUNCATE)", err);
}
