/* SPDX-License-Identifier: Apache-2.0 */
/* record_index.c: see record_index.h. */
#define _DEFAULT_SOURCE /* O_NOFOLLOW */
#define _GNU_SOURCE
#include "store/disk/record_index.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"

#define INDEX_VERSION 4
#define INDEX_VERSION_TEXT "4"
/* "RPSi" (SQLite's application_id): marks our databases. Older versions set none. */
#define APPLICATION_ID 0x52505369
#define APPLICATION_ID_TEXT "1380995945"
#define MAX_PATH_BYTES 4096
#define PINS_HEAD "reprise pins 1\n"
#define MAX_PINS_BYTES ((size_t)64 << 20)
#define KEY_DIGITS 64
#define BUSY_MS 5000 /* to wait for a process that reads the index (`reprise cache ls`) or checkpoints its log */
/* Pages of 4 KiB after which the log is checkpointed, and the limit on its bytes: it counts as the store's. */
#define LOG_PAGES "64"
#define LOG_BYTES "262144"

/* Usage of a record, for a rebuilt index. */
typedef struct salvaged_use {
    base_key key;
    record_use use;
} salvaged_use;

struct record_index {
    sqlite3 *db;
    sqlite3_stmt *put, *remove, *note;
    char *path;
    bool in_transaction;
    bool needs_table; /* the table, or the application id, is not committed yet */
    bool is_new;      /* created by this opening, and its first rows are not committed; */
    bool is_complete; /* no row is, until all files were compared */
    base_key *pins;   /* of rows, by ascending key */
    size_t n_pins, cap_pins;
    bool pins_changed, pins_added; /* since the file of pins was written */
    salvaged_use *salvaged;        /* of the index before a new one, by ascending key */
    size_t n_salvaged, cap_salvaged;
};

static const char tables[] =
    "CREATE TABLE IF NOT EXISTS records (key BLOB PRIMARY KEY NOT NULL, fingerprint BLOB NOT NULL, parent BLOB NOT "
    "NULL, kind INTEGER NOT NULL,"
    " at INTEGER NOT NULL, first_slot INTEGER NOT NULL, pos INTEGER NOT NULL, slots INTEGER NOT NULL, readable_from "
    "INTEGER NOT NULL,"
    " format INTEGER NOT NULL, kept BLOB NOT NULL, tokens BLOB NOT NULL, label TEXT NOT NULL, bytes INTEGER NOT NULL, "
    "cost_us INTEGER NOT NULL,"
    " tenant INTEGER NOT NULL, uses INTEGER NOT NULL, last_use INTEGER NOT NULL, expires INTEGER NOT NULL, pinned "
    "INTEGER NOT NULL,"
    " head_slots BLOB NOT NULL, end_pos INTEGER NOT NULL, parts INTEGER NOT NULL);"
    "PRAGMA application_id = " APPLICATION_ID_TEXT "; PRAGMA user_version = " INDEX_VERSION_TEXT ";";

#define COLUMNS \
    "key, fingerprint, parent, kind, at, first_slot, pos, slots, readable_from, format, kept, tokens, label, bytes, " \
    "cost_us, tenant, uses, " \
    "last_use, expires, pinned, head_slots, end_pos, parts"

/* In the order of COLUMNS. */
enum {
    KEY,
    FINGERPRINT,
    PARENT,
    KIND,
    AT,
    FIRST_SLOT,
    POS,
    SLOTS,
    READABLE_FROM,
    FORMAT,
    KEPT,
    TOKENS,
    LABEL,
    BYTES,
    COST,
    TENANT,
    USES,
    LAST_USE,
    EXPIRES,
    PINNED,
    HEAD_SLOTS,
    END_POS,
    PARTS,
};

/* The errno for SQLite's last error. */
static int cause_of(sqlite3 *db) {
    switch (sqlite3_errcode(db) & 0xff) {
    case SQLITE_FULL: return ENOSPC;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return EBUSY;
    case SQLITE_READONLY: return EROFS;
    case SQLITE_PERM:
    case SQLITE_AUTH: return EACCES;
    case SQLITE_NOMEM: return ENOMEM;
    default: return sqlite3_system_errno(db) ? sqlite3_system_errno(db) : EIO;
    }
}

/* RP_ERR_IO, with the cause in errno. */
static int record_index_fail(const record_index *ix, const char *what, rp_error *err) {
    int cause = ix->db ? cause_of(ix->db) : ENOMEM;
    base_fail_at(err, RP_ERR_IO, ix->path, 0, "%s: %s", what, ix->db ? sqlite3_errmsg(ix->db) : "out of memory");
    errno = cause;
    return RP_ERR_IO;
}

static int record_index_execute(record_index *ix, const char *sql, rp_error *err) {
    BASE_ASSERT(ix->db);
    return sqlite3_exec(ix->db, sql, NULL, NULL, NULL) == SQLITE_OK
               ? RP_OK
               : record_index_fail(ix, "the index of records cannot be used", err);
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

/* A failed step of opening: RP_ERR_FORMAT if SQLite reports the file as corrupt or not a database, RP_ERR_IO if it is
 * unusable now. */
static int fail_open(const record_index *ix, rp_error *err) {
    int code = ix->db ? sqlite3_errcode(ix->db) & 0xff : SQLITE_NOMEM;
    int rc = record_index_fail(ix, "the index of records cannot be used", err);
    return code == SQLITE_CORRUPT || code == SQLITE_NOTADB ? RP_ERR_FORMAT : rc;
}

static int fail_broken(const record_index *ix, const char *what, rp_error *err) {
    return base_fail_at(err, RP_ERR_FORMAT, ix->path, 0, "the index of records is %s", what);
}

/* The first value of the first row. */
static int ask_number(const record_index *ix, const char *sql, int64_t *out, rp_error *err) {
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(ix->db, sql, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW
                 ? RP_OK
                 : fail_open(ix, err);
    if (!rc) *out = sqlite3_column_int64(s, 0);
    int cause = errno;
    sqlite3_finalize(s);
    errno = cause;
    return rc;
}

/* Is every page intact? A damaged row is detected when it is read, a damaged tree only here. A page that the disk
 * cannot read does not count as damage. */
static int check_pages(const record_index *ix, rp_error *err) {
    static const char code_at[] = "error code=";
    sqlite3_stmt *s = NULL;
    const bool runs =
        sqlite3_prepare_v2(ix->db, "PRAGMA quick_check(1)", -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW;
    int rc = runs ? RP_OK : fail_open(ix, err);
    const char *text = rc ? NULL : (const char *)sqlite3_column_text(s, 0);
    int cause = errno;
    if (text && strcmp(text, "ok") != 0) {
        const char *at = strstr(text, code_at);
        long code = at ? strtol(at + strlen(code_at), NULL, 10) & 0xff : SQLITE_CORRUPT;
        rc = fail_broken(ix, "damaged", err);
        if (code != SQLITE_CORRUPT && code != SQLITE_NOTADB)
            rc = base_fail_at(err, RP_ERR_IO, ix->path, 0, "the index of records cannot be read");
        cause = EIO;
    }
    sqlite3_finalize(s);
    errno = cause;
    return rc;
}

/* Checks the program, the version and the pages. *is_new: it has no table. */
static int check_database(const record_index *ix, bool *is_new, bool *is_marked, rp_error *err) {
    int64_t version = 0, application = 0, n_tables = 0;
    sqlite3_stmt *s = NULL;
    int rc = ask_number(ix, "PRAGMA user_version", &version, err);
    if (!rc) rc = ask_number(ix, "PRAGMA application_id", &application, err);
    if (!rc) rc = ask_number(ix, "SELECT count(*) FROM sqlite_master", &n_tables, err);
    if (rc) return rc;
    *is_new = n_tables == 0;
    *is_marked = application == APPLICATION_ID;
    if (application != 0 && !*is_marked) return fail_broken(ix, "a database of another program", err);
    if (version > INDEX_VERSION) {
        base_fail_at(err, RP_ERR_IO, ix->path, 0,
                     "the index of records has version %lld, but this version supports up to %d: use a newer version",
                     (long long)version, INDEX_VERSION);
        errno = ENOTSUP;
        return RP_ERR_IO;
    }
    if (!*is_new && version != INDEX_VERSION) return fail_broken(ix, "of a version that is no longer supported", err);
    if ((rc = check_pages(ix, err)) || *is_new) return rc;
    int step = sqlite3_prepare_v2(ix->db, "SELECT " COLUMNS " FROM records LIMIT 0", -1, &s, NULL);
    sqlite3_finalize(s);
    if (step == SQLITE_ERROR) return fail_broken(ix, "without its table", err);
    return step == SQLITE_OK ? RP_OK : fail_open(ix, err);
}

static int record_index_prepare(record_index *ix, rp_error *err) {
    BASE_ASSERT(ix->db && !ix->put && !ix->remove && !ix->note);
    static const char put[] =
        "INSERT OR REPLACE INTO records (" COLUMNS ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
    static const char drop[] = "DELETE FROM records WHERE key = ?";
    static const char note[] = "UPDATE records SET uses = ?2, last_use = ?3, expires = ?4, pinned = ?5 WHERE key = ?1";
    bool ok = sqlite3_prepare_v3(ix->db, put, -1, SQLITE_PREPARE_PERSISTENT, &ix->put, NULL) == SQLITE_OK &&
              sqlite3_prepare_v3(ix->db, drop, -1, SQLITE_PREPARE_PERSISTENT, &ix->remove, NULL) == SQLITE_OK &&
              sqlite3_prepare_v3(ix->db, note, -1, SQLITE_PREPARE_PERSISTENT, &ix->note, NULL) == SQLITE_OK;
    return ok ? RP_OK : record_index_fail(ix, "the index of records cannot be used", err);
}

/* SQLite opens and writes files beside the database, whoever made them. All are ours, or it opens none. They are for
 * their owner alone: SQLite creates them with the database's permissions. */
static int check_side_files(const char *path, rp_error *err) {
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    char name[MAX_PATH_BYTES];
    int rc = RP_OK;
    for (size_t i = 0; i < BASE_ARRAY_LEN(ends) && !rc; i++)
        if (snprintf(name, sizeof(name), "%s%s", path, ends[i]) < (int)sizeof(name))
            rc = base_io_make_private(name, err);
    return rc;
}

static int record_index_begin(record_index *ix, rp_error *err);

static int open_database(record_index *ix, rp_error *err) {
    bool is_marked = false;
    BASE_ASSERT(!ix->db && !ix->in_transaction);
    int fd = open(ix->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd >= 0) close(fd);
    else if (errno != EEXIST) return base_fail_errno(err, "cannot create the index of records", ix->path);
    int rc = check_side_files(ix->path, err);
    if (rc) return rc;
    if (sqlite3_open_v2(ix->path, &ix->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, NULL) !=
        SQLITE_OK)
        return fail_open(ix, err);
    sqlite3_busy_timeout(ix->db, BUSY_MS);
    if ((rc = check_database(ix, &ix->is_new, &is_marked, err))) return rc;
    if (sqlite3_db_readonly(ix->db, "main") == 1) {
        errno = EACCES;
        return base_fail_errno(err, "cannot write the index of records", ix->path);
    }
    static const char pragmas[] =
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = " LOG_PAGES
        "; PRAGMA journal_size_limit = " LOG_BYTES "; PRAGMA secure_delete = ON;";
    if (sqlite3_exec(ix->db, pragmas, NULL, NULL, NULL) != SQLITE_OK)
        return fail_open(ix, err);
    /* A killed process leaves a log of up to LOG_BYTES, which counts as the store's: its pages move to the database,
     * unless another process reads it. The log may stay, so errors do not matter. */
    sqlite3_busy_timeout(ix->db, 0);
    (void)sqlite3_wal_checkpoint_v2(ix->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    sqlite3_busy_timeout(ix->db, BUSY_MS);
    /* All other changes are one transaction with the first rows: a new index exists with its rows or not at all. */
    ix->needs_table = !is_marked || ix->is_new;
    if (ix->needs_table && (rc = record_index_begin(ix, err))) return rc;
    return record_index_prepare(ix, err);
}

/* ---- pins and usage, which survive the database ---- */

/* Of base_key, and of salvaged_use: the key is its first member. */
static int record_index_compare_keys(const void *a, const void *b) { return memcmp(a, b, sizeof(base_key)); }

/* The index of the key, or its insertion point. */
static size_t find_pin(const record_index *ix, const base_key *key, bool *is_there) {
    size_t low = 0, high = ix->n_pins;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (record_index_compare_keys(&ix->pins[middle], key) < 0) low = middle + 1;
        else high = middle;
    }
    *is_there = low < ix->n_pins && base_key_equal(&ix->pins[low], key);
    return low;
}

static int set_pin(record_index *ix, const base_key *key, bool pinned, rp_error *err) {
    bool is_there;
    size_t at = find_pin(ix, key, &is_there);
    if (is_there == pinned) return RP_OK;
    if (pinned &&
        base_grow((void **)&ix->pins, &ix->cap_pins, ix->n_pins + 1, SIZE_MAX / sizeof(*ix->pins), sizeof(*ix->pins)))
        return base_fail_memory(err, (ix->n_pins + 1) * sizeof(*ix->pins), "the pins of a store");
    if (pinned) {
        memmove(&ix->pins[at + 1], &ix->pins[at], (ix->n_pins++ - at) * sizeof(*ix->pins));
        ix->pins[at] = *key;
        ix->pins_added = true;
        BASE_DCHECK(at == 0 || record_index_compare_keys(&ix->pins[at - 1], key) < 0);
    } else {
        BASE_ASSERT(ix->n_pins > 0);
        memmove(&ix->pins[at], &ix->pins[at + 1], (--ix->n_pins - at) * sizeof(*ix->pins));
    }
    ix->pins_changed = true;
    return RP_OK;
}

static bool pins_path(const record_index *ix, char *out) {
    BASE_ASSERT(ix->path); /* it is named before it is opened */
    const char *slash = strrchr(ix->path, '/');
    return snprintf(out, MAX_PATH_BYTES, "%.*spins", slash ? (int)(slash - ix->path) + 1 : 0, ix->path) <
           MAX_PATH_BYTES;
}

static void pins_digest(const char *text, size_t n, char *out) {
    base_hash h;
    base_key key;
    base_hash_init(&h, "reprise pins");
    base_hash_bytes(&h, text, n);
    base_hash_final(&h, &key);
    base_key_hex(&key, out, KEY_DIGITS);
}

/* The text of the file: PINS_HEAD, a line for each key, and a last line with their hash. */
static int pins_text(const record_index *ix, base_buffer *out) {
    char hex[KEY_DIGITS + 1];
    int rc = base_buffer_append_str(out, PINS_HEAD);
    for (size_t i = 0; i < ix->n_pins && !rc; i++) {
        base_key_hex(&ix->pins[i], hex, KEY_DIGITS);
        rc = base_buffer_printf(out, "%s\n", hex);
    }
    if (rc) return rc;
    BASE_ASSERT(out->len == strlen(PINS_HEAD) + ix->n_pins * (KEY_DIGITS + 1));
    pins_digest(out->data, out->len, hex);
    return base_buffer_printf(out, "hash %s\n", hex);
}

static int write_pins(record_index *ix, rp_error *err) {
    char path[MAX_PATH_BYTES];
    base_buffer text = BASE_BUFFER(MAX_PINS_BYTES);
    if (!ix->pins_changed || !pins_path(ix, path)) return RP_OK;
    int rc = pins_text(ix, &text) ? base_fail_memory(err, ix->n_pins * (KEY_DIGITS + 1), "the pins of a store")
                                  : base_io_write_whole(path, text.data, text.len, err);
    base_buffer_free(&text);
    if (!rc) ix->pins_changed = ix->pins_added = false;
    return rc;
}

/* Loads the pins of the file. *found: the file exists and is intact. RP_ERR_IO: it exists and is unreadable now, and
 * must not be overwritten; errno is the cause. */
static int read_pins(record_index *ix, bool *found, rp_error *err) {
    char path[MAX_PATH_BYTES], hash[KEY_DIGITS + 8], hex[KEY_DIGITS + 1];
    base_buffer text = {0};
    const size_t head = strlen(PINS_HEAD), line = KEY_DIGITS + 1, last = KEY_DIGITS + 6;
    *found = false;
    if (!pins_path(ix, path)) return RP_OK;
    int rc = base_file_read(path, MAX_PINS_BYTES, &text, err);
    if (rc) return errno == ENOENT || rc == RP_ERR_LIMIT ? RP_OK : rc;
    bool ok =
        text.len >= head + last && memcmp(text.data, PINS_HEAD, head) == 0 && (text.len - head - last) % line == 0;
    if (ok) pins_digest(text.data, text.len - last, hex);
    if (ok) snprintf(hash, sizeof(hash), "hash %s\n", hex);
    ok = ok && memcmp(text.data + text.len - last, hash, last) == 0;
    for (size_t at = head; ok && at + last < text.len; at += line) {
        base_key key;
        ok = base_key_parse(&key, text.data + at) && set_pin(ix, &key, true, NULL) == RP_OK;
    }
    base_buffer_free(&text);
    *found = ok;
    return RP_OK;
}

static int64_t get_time(sqlite3_stmt *s, int i);
static bool get_key(sqlite3_stmt *s, int i, base_key *key);

/* While there is a table, its pins are authoritative. */
static int load_pins(record_index *ix, rp_error *err) {
    sqlite3_stmt *s = NULL;
    int step = SQLITE_DONE, rc = RP_OK;
    base_key key;
    ix->n_pins = 0;
    if (sqlite3_prepare_v2(ix->db, "SELECT key FROM records WHERE pinned != 0 ORDER BY key", -1, &s, NULL) != SQLITE_OK)
        return fail_open(ix, err);
    while (!rc && (step = sqlite3_step(s)) == SQLITE_ROW)
        if (get_key(s, 0, &key)) rc = set_pin(ix, &key, true, err);
    if (!rc && step != SQLITE_DONE) rc = fail_open(ix, err);
    int cause = errno;
    sqlite3_finalize(s);
    errno = cause;
    return rc;
}

/* Marks the file of pins for rewriting if it differs from the table. */
static void compare_pins(record_index *ix) {
    char path[MAX_PATH_BYTES];
    base_buffer is = {0}, should = BASE_BUFFER(MAX_PINS_BYTES);
    bool has_file = pins_path(ix, path) && base_file_read(path, MAX_PINS_BYTES, &is, NULL) == RP_OK;
    bool same = has_file && pins_text(ix, &should) == RP_OK && is.len == should.len &&
                memcmp(is.data, should.data, is.len) == 0;
    ix->pins_changed = !same && (has_file || ix->n_pins > 0);
    ix->pins_added = false;
    base_buffer_free(&is);
    base_buffer_free(&should);
}

/* Uses, times and pins of the damaged index that was kept beside a new one, as far as it is readable. */
static void salvage_uses(record_index *ix, bool with_pins) {
    char path[MAX_PATH_BYTES];
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    base_io_sizes sizes;
    if (snprintf(path, sizeof(path), "%s" RECORD_INDEX_BAD, ix->path) >= (int)sizeof(path) ||
        base_io_stat(path, &sizes, NULL) || check_side_files(path, NULL))
        return;
    bool ok =
        sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, NULL) ==
            SQLITE_OK &&
        sqlite3_prepare_v2(db, "SELECT key, uses, last_use, expires, pinned FROM records", -1, &s, NULL) == SQLITE_OK;
    while (ok && sqlite3_step(s) == SQLITE_ROW) {
        salvaged_use u = {.use = {(uint64_t)sqlite3_column_int64(s, 1), get_time(s, 2), get_time(s, 3),
                                  sqlite3_column_int(s, 4) != 0}};
        if (!get_key(s, 0, &u.key)) continue;
        ok = base_grow((void **)&ix->salvaged, &ix->cap_salvaged, ix->n_salvaged + 1, SIZE_MAX / sizeof(u),
                       sizeof(u)) == RP_OK;
        if (ok) ix->salvaged[ix->n_salvaged++] = u;
        if (ok && with_pins && u.use.pinned) ok = set_pin(ix, &u.key, true, NULL) == RP_OK;
    }
    sqlite3_finalize(s);
    sqlite3_close(db);
    if (ix->n_salvaged > 0) qsort(ix->salvaged, ix->n_salvaged, sizeof(*ix->salvaged), record_index_compare_keys);
}

void record_index_recall(const record_index *ix, const base_key *key, record_use *out) {
    const salvaged_use *u = ix->n_salvaged > 0 ? bsearch(key, ix->salvaged, ix->n_salvaged, sizeof(*ix->salvaged),
                                                         record_index_compare_keys)
                                               : NULL;
    bool is_pinned;
    *out = u ? u->use : (record_use){0};
    find_pin(ix, key, &is_pinned);
    out->pinned = is_pinned;
}

void record_index_complete(record_index *ix) { ix->is_complete = true; }

/* Keeps the database beside the new one, for inspection: only the last one. */
static void set_aside_database(const char *path) {
    static const char *const ends[] = {"", "-wal", "-shm"};
    char from[MAX_PATH_BYTES], to[MAX_PATH_BYTES];
    for (size_t i = 0; i < BASE_ARRAY_LEN(ends); i++) {
        if (snprintf(from, sizeof(from), "%s%s", path, ends[i]) >= (int)sizeof(from) ||
            snprintf(to, sizeof(to), "%s" RECORD_INDEX_BAD "%s", path, ends[i]) >= (int)sizeof(to))
            continue;
        base_io_unlink(to, NULL);
        if (i < 2) (void)base_io_rename(from, to, NULL);
        else base_io_unlink(from, NULL);
    }
}

/* A new index gets the pins and usage that survived the previous one, any other the pins of its rows. */
static int open_pins(record_index *ix, rp_error *err) {
    if (!ix->is_new) {
        int rc = load_pins(ix, err);
        if (!rc) compare_pins(ix);
        return rc;
    }
    bool has_pins;
    int rc = read_pins(ix, &has_pins, err);
    if (rc) return rc;
    salvage_uses(ix, !has_pins);
    ix->pins_changed = !has_pins && ix->n_pins > 0;
    ix->pins_added = false;
    return RP_OK;
}

static int record_index_open_all(record_index *ix, rp_error *err) {
    int rc = open_database(ix, err);
    return rc ? rc : open_pins(ix, err);
}

static void record_index_reset(record_index *ix) {
    ix->in_transaction = ix->is_new = ix->needs_table = false;
    ix->n_pins = ix->n_salvaged = 0;
    close_database(ix);
}

/* Reads every byte, to check whether the disk can. */
static int record_index_read_file(const char *path, rp_error *err) {
    static const size_t piece = (size_t)1 << 16;
    base_io_file file;
    size_t n = piece;
    char *bytes = base_alloc(piece);
    int rc = bytes ? base_io_open(&file, path, err) : base_fail_memory(err, piece, "the index of records");
    if (!rc) {
        for (uint64_t at = 0; !rc && n == piece; at += piece) rc = base_io_read(&file, at, bytes, piece, &n, err);
        int cause = errno;
        base_io_close(&file);
        errno = cause;
    }
    base_free(bytes);
    return rc;
}

int record_index_open(record_index **out, const char *path, rp_error *err) {
    record_index *ix = base_calloc(1, sizeof(*ix));
    rp_error why;
    *out = NULL;
    if (!ix || !(ix->path = base_strdup(path))) {
        base_free(ix);
        return base_fail_memory(err, sizeof(*ix), "the index of records");
    }
    int rc = record_index_open_all(ix, &why);
    if (rc == RP_ERR_FORMAT) { /* SQLite may report a failed read as damage (SQLITE_IOERR_CORRUPTFS) */
        record_index_reset(ix);
        rc = record_index_read_file(path, &why) ? RP_ERR_IO : record_index_open_all(ix, &why);
    }
    if (rc == RP_ERR_FORMAT) {
        base_log(BASE_LOG_WARN,
                 "store: %s: keeping it as index.db" RECORD_INDEX_BAD " and rebuilding it from the records",
                 why.message);
        record_index_reset(ix);
        set_aside_database(path);
        rc = record_index_open_all(ix, &why);
    }
    if (rc) {
        int cause = errno;
        if (err) *err = why;
        record_index_reset(ix);
        record_index_close(ix);
        errno = cause;
        return rc == RP_ERR_FORMAT ? RP_ERR_IO : rc;
    }
    *out = ix;
    return RP_OK;
}

void record_index_close(record_index *ix) {
    if (!ix) return;
    if (ix->db) record_index_commit(ix, NULL);
    close_database(ix);
    base_free(ix->pins);
    base_free(ix->salvaged);
    base_free(ix->path);
    base_free(ix);
}

/* ---- changes ---- */

static int record_index_begin(record_index *ix, rp_error *err) {
    if (ix->in_transaction) return RP_OK;
    int rc = record_index_execute(ix, "BEGIN IMMEDIATE", err);
    ix->in_transaction = !rc;
    return !rc && ix->needs_table ? record_index_execute(ix, tables, err) : rc;
}

/* Writes the file of pins first: a new index would take its pins. */
int record_index_commit(record_index *ix, rp_error *err) {
    if (ix->is_new && !ix->is_complete) { /* the next opening creates it again */
        record_index_roll_back(ix);
        return RP_OK;
    }
    rp_error why;
    if (write_pins(ix, &why)) {
        if (ix->pins_added) {
            if (err) *err = why;
            record_index_roll_back(ix);
            return RP_ERR_IO;
        }
        base_log(BASE_LOG_WARN, "store: %s", why.message); /* it has a surplus pin */
    }
    if (!ix->in_transaction) return RP_OK;
    BASE_ASSERT(!ix->is_new || ix->is_complete); /* invariant 7 */
    ix->in_transaction = false;
    int rc = record_index_execute(ix, "COMMIT", err);
    if (!rc) ix->is_new = ix->needs_table = false;
    if (!rc) return RP_OK;
    int cause = errno;
    ix->is_complete = false;
    ix->in_transaction = true;
    record_index_roll_back(ix);
    errno = cause;
    return rc;
}

int record_index_commit_durably(record_index *ix, rp_error *err) {
    int rc = record_index_commit(ix, err);
    if (rc) return rc;
    BASE_ASSERT(!ix->in_transaction);
    sqlite3_busy_timeout(ix->db, 0);
    int carried =
        sqlite3_wal_checkpoint_v2(ix->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL); /* syncs both files */
    sqlite3_busy_timeout(ix->db, BUSY_MS);
    if (carried != SQLITE_OK && carried != SQLITE_BUSY)
        rc = record_index_fail(ix, "the index of records cannot be synced", err);
    return rc;
}

void record_index_hurry(record_index *ix) {
    BASE_ASSERT(ix->db);
    sqlite3_wal_autocheckpoint(ix->db, 0);
    sqlite3_db_config(ix->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
}

static int record_index_run(record_index *ix, sqlite3_stmt *s, rp_error *err) {
    BASE_ASSERT(ix->in_transaction); /* changes are gathered in one */
    int done = sqlite3_step(s);
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return done == SQLITE_DONE ? RP_OK : record_index_fail(ix, "the index of records cannot be written", err);
}

static void bind_key(sqlite3_stmt *s, int i, const base_key *key) {
    sqlite3_bind_blob(s, i + 1, key->bytes, sizeof(key->bytes), SQLITE_STATIC);
}
static void bind_int(sqlite3_stmt *s, int i, int64_t v) { sqlite3_bind_int64(s, i + 1, v); }

int record_index_put(record_index *ix, const record_row *row, rp_error *err) {
    const record *r = &row->record;
    sqlite3_stmt *s = ix->put;
    BASE_ASSERT(row->n_layers > 0 && r->kind < RECORD_KIND_COUNT && r->label &&
                (r->form.slots != NULL) == (r->kind == RECORD_REDUCED));
    int rc = record_index_begin(ix, err);
    if (!rc) rc = set_pin(ix, &r->key, row->use.pinned, err);
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
    bind_int(s, FORMAT, kv_format_number(r->form.format));
    sqlite3_bind_blob(s, KEPT + 1, r->form.kept, row->n_layers, SQLITE_STATIC);
    sqlite3_bind_blob(s, TOKENS + 1, r->n_tokens ? (const void *)r->tokens : "", r->n_tokens * (int)sizeof(*r->tokens),
                      SQLITE_STATIC);
    sqlite3_bind_text(s, LABEL + 1, r->label, -1, SQLITE_STATIC);
    bind_int(s, BYTES, (int64_t)row->bytes);
    bind_int(s, COST, (int64_t)r->cost_us);
    bind_int(s, TENANT, r->tenant);
    bind_int(s, USES, (int64_t)row->use.uses);
    bind_int(s, LAST_USE, row->use.last_use);
    bind_int(s, EXPIRES, row->use.expires);
    bind_int(s, PINNED, row->use.pinned);
    const int head_bytes = r->form.slots ? row->n_layers * r->form.n_kv_heads * (int)sizeof(*r->form.slots) : 0;
    sqlite3_bind_blob(s, HEAD_SLOTS + 1, head_bytes ? (const void *)r->form.slots : "", head_bytes, SQLITE_STATIC);
    bind_int(s, END_POS, r->form.end);
    bind_int(s, PARTS, r->form.n_parts);
    return record_index_run(ix, s, err);
}

int record_index_remove(record_index *ix, const base_key *key, rp_error *err) {
    int rc = record_index_begin(ix, err);
    if (!rc) rc = set_pin(ix, key, false, err);
    if (rc) return rc;
    bind_key(ix->remove, 0, key);
    return record_index_run(ix, ix->remove, err);
}

int record_index_note(record_index *ix, const base_key *key, const record_use *use, rp_error *err) {
    int rc = record_index_begin(ix, err);
    if (!rc) rc = set_pin(ix, key, use->pinned, err);
    if (rc) return rc;
    bind_key(ix->note, 0, key);
    bind_int(ix->note, 1, (int64_t)use->uses);
    bind_int(ix->note, 2, use->last_use);
    bind_int(ix->note, 3, use->expires);
    bind_int(ix->note, 4, use->pinned);
    return record_index_run(ix, ix->note, err);
}

/* ---- queries ---- */

static bool get_key(sqlite3_stmt *s, int i, base_key *key) {
    const void *blob = sqlite3_column_blob(s, i);
    if (!blob || sqlite3_column_bytes(s, i) != (int)sizeof(key->bytes)) return false;
    memcpy(key->bytes, blob, sizeof(key->bytes));
    return true;
}

static bool in_range(int64_t v, int64_t least, int64_t most) {
    BASE_ASSERT(least <= most);
    return v >= least && v <= most;
}

/* A 32-bit number of the row. */
static bool get_int(sqlite3_stmt *s, int i, int64_t least, int64_t most, int32_t *out) {
    int64_t v = sqlite3_column_int64(s, i);
    *out = (int32_t)v;
    return in_range(v, least, most);
}

/* An invalid time is 0. */
static int64_t get_time(sqlite3_stmt *s, int i) {
    int64_t v = sqlite3_column_int64(s, i);
    return in_range(v, 0, (int64_t)1 << 48) ? v : 0;
}

/* The numbers of a reduced span; the row has all others. */
static bool get_reduced(sqlite3_stmt *s, record_row *row) {
    kv_span_form *f = &row->record.form;
    const int n_bytes = sqlite3_column_bytes(s, HEAD_SLOTS), of_head = row->n_layers * (int)sizeof(*f->slots);
    f->is_states = record_is_of_states(row->record.kind);
    if (f->is_states != (f->n_tokens == 0)) return false;
    if (row->record.kind != RECORD_REDUCED) return n_bytes == 0 && row->record.at <= KV_SPAN_TOKENS;
    f->slots = sqlite3_column_blob(s, HEAD_SLOTS);
    f->n_kv_heads = n_bytes / of_head;
    return n_bytes > 0 && n_bytes % of_head == 0 && n_bytes / (int)sizeof(*f->slots) <= KV_REDUCED_MAX_HEADS &&
           row->record.n_tokens == 0 && get_int(s, END_POS, 1, INT32_MAX, &f->end) &&
           get_int(s, PARTS, 1, KV_REDUCED_MAX_PARTS, &f->n_parts) && row->record.at < f->n_parts;
}

static bool get_row(sqlite3_stmt *s, record_row *row) {
    record *r = &row->record;
    int32_t kind = 0, format = 0, n_token_bytes = sqlite3_column_bytes(s, TOKENS);
    *row = (record_row){.bytes = (uint64_t)sqlite3_column_int64(s, BYTES),
                        .use.uses = (uint64_t)sqlite3_column_int64(s, USES),
                        .use.last_use = get_time(s, LAST_USE),
                        .use.expires = get_time(s, EXPIRES),
                        .use.pinned = sqlite3_column_int(s, PINNED) != 0};
    bool ok = get_key(s, KEY, &r->key) && get_key(s, FINGERPRINT, &row->fingerprint) &&
              get_key(s, PARENT, &r->parent) && get_int(s, KIND, 0, RECORD_KIND_COUNT - 1, &kind) &&
              get_int(s, AT, 0, KV_REDUCED_MAX_PARTS, &r->at) &&
              get_int(s, FIRST_SLOT, 0, KV_SPAN_TOKENS - 1, &r->first_slot) &&
              get_int(s, POS, 0, INT32_MAX - KV_SPAN_TOKENS, &r->form.first_pos) &&
              get_int(s, SLOTS, 0, KV_SPAN_TOKENS, &r->form.n_tokens) &&
              get_int(s, READABLE_FROM, INT32_MIN, INT32_MAX, &r->form.readable_from) &&
              get_int(s, FORMAT, 0, INT32_MAX, &format) && kv_format_of_number((uint32_t)format, &r->form.format);
    r->kind = (record_kind)kind;
    r->n_tokens = n_token_bytes / (int32_t)sizeof(*r->tokens);
    r->tokens = sqlite3_column_blob(s, TOKENS);
    r->form.kept = sqlite3_column_blob(s, KEPT);
    row->n_layers = sqlite3_column_bytes(s, KEPT);
    r->label = (const char *)sqlite3_column_text(s, LABEL);
    r->cost_us = (uint64_t)sqlite3_column_int64(s, COST);
    r->tenant = (uint32_t)sqlite3_column_int64(s, TENANT);
    return ok && r->label && row->n_layers > 0 && n_token_bytes % (int)sizeof(*r->tokens) == 0 &&
           r->first_slot + r->n_tokens <= r->form.n_tokens && get_reduced(s, row);
}

int record_index_each(record_index *ix, const base_key *fingerprint, record_row_fn fn, void *user, rp_error *err) {
    static const char all[] = "SELECT " COLUMNS " FROM records WHERE ?1 IS NULL OR fingerprint = ?1 ORDER BY key";
    sqlite3_stmt *s = NULL;
    const char *removed = NULL; /* a removed format that rows have */
    uint64_t n_removed = 0;
    int rc = RP_OK, step = SQLITE_DONE;
    if (sqlite3_prepare_v2(ix->db, all, -1, &s, NULL) != SQLITE_OK)
        return record_index_fail(ix, "the index of records cannot be read", err);
    if (fingerprint) bind_key(s, 0, fingerprint);
    while (!rc && (step = sqlite3_step(s)) == SQLITE_ROW) {
        record_row row;
        const char *format = kv_format_removed((uint32_t)sqlite3_column_int64(s, FORMAT));
        if (format) removed = format, n_removed++; /* its file has the reason (record_fault) */
        else if (get_row(s, &row)) rc = fn(user, &row, err);
        else base_log(BASE_LOG_WARN, "store: %s: ignoring a malformed row", ix->path);
    }
    if (n_removed > 0)
        base_log(BASE_LOG_WARN, "store: %s: %llu records have a KV format that was removed (%s), and are misses",
                 ix->path, (unsigned long long)n_removed, removed);
    if (!rc && step != SQLITE_DONE) rc = record_index_fail(ix, "the index of records cannot be read", err);
    sqlite3_finalize(s);
    return rc;
}

uint64_t record_index_bytes_at(const char *path) {
    static const char *const ends[] = {"", "-wal", "-shm"};
    char name[MAX_PATH_BYTES];
    base_io_sizes sizes;
    uint64_t bytes = 0;
    for (size_t i = 0; i < BASE_ARRAY_LEN(ends); i++)
        if (snprintf(name, sizeof(name), "%s%s", path, ends[i]) < (int)sizeof(name) &&
            base_io_stat(name, &sizes, NULL) == RP_OK)
            bytes += sizes.disk_bytes;
    return bytes;
}

uint64_t record_index_bytes(const record_index *ix) { return record_index_bytes_at(ix->path); }

/* ---- maintenance ---- */

/* "file:PATH?immutable=1", with its special characters escaped. false: it is too long. */
static bool make_uri(const char *path, char *out, size_t n) {
    size_t used = (size_t)snprintf(out, n, "file:");
    for (; *path && used + 4 < n; path++)
        used += (size_t)snprintf(out + used, n - used, strchr("%?#", *path) ? "%%%02X" : "%c",
                                 (unsigned)(unsigned char)*path);
    return !*path && snprintf(out + used, n - used, "?immutable=1") < (int)(n - used);
}

/* Does a query succeed? */
static bool record_index_answers(record_index *ix) {
    return sqlite3_exec(ix->db, "PRAGMA query_only = 1; SELECT key FROM records LIMIT 1", NULL, NULL, NULL) ==
           SQLITE_OK;
}

static bool open_to_read(record_index *ix) {
    char uri[3 * MAX_PATH_BYTES];
    if (check_side_files(ix->path, NULL) == RP_OK &&
        sqlite3_open_v2(ix->path, &ix->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, NULL) ==
            SQLITE_OK) {
        sqlite3_busy_timeout(ix->db, BUSY_MS);
        if (record_index_answers(ix)) return true;
    }
    close_database(
        ix); /* a read-only place without writers, or a log that is not ours: open it as it is, without its log */
    return make_uri(ix->path, uri, sizeof(uri)) &&
           sqlite3_open_v2(uri, &ix->db,
                           SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW,
                           NULL) == SQLITE_OK &&
           record_index_answers(ix);
}

record_index_look record_index_look_at(const char *path) {
    char uri[3 * MAX_PATH_BYTES];
    record_index ix = {.path = (char *)(uintptr_t)path};
    record_index_look is = RECORD_INDEX_NONE;
    bool is_new, is_marked;
    if (make_uri(path, uri, sizeof(uri)) &&
        sqlite3_open_v2(uri, &ix.db,
                        SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW,
                        NULL) == SQLITE_OK) {
        int rc = check_database(&ix, &is_new, &is_marked, NULL), code = sqlite3_errcode(ix.db) & 0xff;
        if (!rc) is = is_new ? RECORD_INDEX_EMPTY : RECORD_INDEX_OURS;
        else if (code != SQLITE_NOTADB && code != SQLITE_CORRUPT) is = RECORD_INDEX_OTHER;
    } else {
        is = RECORD_INDEX_OTHER;
    }
    sqlite3_close(ix.db);
    return is;
}

int record_index_open_read(record_index **out, const char *path, rp_error *err) {
    record_index *ix = base_calloc(1, sizeof(*ix));
    int rc = RP_OK;
    *out = NULL;
    if (!ix || !(ix->path = base_strdup(path))) rc = base_fail_memory(err, sizeof(*ix), "the index of records");
    else rc = base_io_make_private(path, err);
    if (!rc && !open_to_read(ix)) rc = record_index_fail(ix, "the index of records cannot be read", err);
    if (rc) {
        int cause = errno;
        record_index_close(ix);
        errno = cause;
    } else {
        *out = ix;
    }
    return rc;
}

int record_index_check(record_index *ix, rp_error *err) {
    bool is_new = false, is_marked;
    int rc = check_database(ix, &is_new, &is_marked, err);
    return !rc && is_new ? fail_broken(ix, "without its table", err) : rc;
}

/* v: the second parameter of sql, if it has one. */
static int change_row(record_index *ix, const char *sql, const base_key *key, int64_t v, rp_error *err) {
    sqlite3_stmt *s = NULL;
    int rc = record_index_begin(ix, err);
    if (rc) return rc;
    if (sqlite3_prepare_v2(ix->db, sql, -1, &s, NULL) != SQLITE_OK)
        return record_index_fail(ix, "the index of records cannot be written", err);
    bind_key(s, 0, key);
    if (sqlite3_bind_parameter_count(s) > 1) bind_int(s, 1, v);
    rc = record_index_run(ix, s, err);
    sqlite3_finalize(s);
    return rc;
}

int record_index_set_pinned(record_index *ix, const base_key *key, bool pinned, rp_error *err) {
    int rc = set_pin(ix, key, pinned, err);
    return rc ? rc : change_row(ix, "UPDATE records SET pinned = ?2 WHERE key = ?1", key, pinned, err);
}

int record_index_set_expiry(record_index *ix, const base_key *key, int64_t expires, rp_error *err) {
    return change_row(ix, "UPDATE records SET expires = ?2 WHERE key = ?1", key, expires, err);
}

int record_index_begin_rebuild(record_index *ix, rp_error *err) {
    int rc = record_index_execute(ix, "DROP TABLE IF EXISTS temp.old", err);
    if (!rc) rc = record_index_begin(ix, err);
    return rc ? rc
              : record_index_execute(
                    ix, "CREATE TEMP TABLE old AS SELECT * FROM main.records; DELETE FROM main.records", err);
}

int record_index_keep(record_index *ix, const base_key *key, rp_error *err) {
    return change_row(ix, "INSERT OR IGNORE INTO main.records SELECT * FROM temp.old WHERE key = ?1", key, 0, err);
}

int record_index_end_rebuild(record_index *ix, rp_error *err) {
    static const char carry[] =
        "UPDATE main.records SET uses = o.uses, last_use = o.last_use, expires = o.expires, pinned = o.pinned"
        " FROM temp.old AS o WHERE o.key = main.records.key; DROP TABLE temp.old";
    return record_index_execute(ix, carry, err);
}

void record_index_roll_back(record_index *ix) {
    if (!ix->in_transaction) return;
    sqlite3_exec(ix->db, "ROLLBACK", NULL, NULL, NULL);
    ix->in_transaction = false;
    if (!ix->is_new && load_pins(ix, NULL) == RP_OK) compare_pins(ix);
}

int record_index_compact(record_index *ix, rp_error *err) {
    int rc = record_index_commit(ix, err);
    if (!rc) rc = record_index_execute(ix, "VACUUM", err);
    return rc ? rc : record_index_execute(ix, "PRAGMA wal_checkpoint(TRUNCATE)", err);
}
