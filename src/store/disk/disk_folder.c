/* SPDX-License-Identifier: Apache-2.0 */
/* disk_folder.c: see disk_folder.h. */
#define _DEFAULT_SOURCE /* flock */
#define _GNU_SOURCE     /* O_DIRECTORY, O_NOFOLLOW */

#include "store/disk/disk_folder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "store/disk/disk_tier.h"
#include "store/disk/fingerprints.h"

#define RECORD_END ".rps"
#define KEY_DIGITS 64
#define LOCK_TRIES 3
#define LOCK_PAUSE_NS 2000000
#define MARKER "reprise-store"
#define MARKER_FORMAT "reprise store\nformat "
#define MARKER_BYTES 4096 /* a larger file is not a marker */
#define STORE_FORMAT 1
#define FOLDER_RIGHTS (S_IRWXG | S_IRWXO) /* of other users, to be removed */
#define ENTRY_BYTES (DISK_PATH_BYTES + NAME_MAX + 2)

/* ---- names ---- */

void disk_folder_record(const disk_folder *f, const base_key *key, char *out) {
    char hex[KEY_DIGITS + 1];
    base_key_hex(key, hex, KEY_DIGITS);
    const int n = snprintf(out, DISK_PATH_BYTES, "%s/%.1s/%s" RECORD_END, f->dir, hex, hex);
    BASE_ASSERT(n < DISK_PATH_BYTES); /* a cut path would name another file */
}

void disk_folder_index(const disk_folder *f, char *out) { snprintf(out, DISK_PATH_BYTES, "%s/index.db", f->dir); }

static void bad_folder(const disk_folder *f, char *out) { snprintf(out, DISK_PATH_BYTES, "%s/bad", f->dir); }

void disk_folder_path(const disk_folder *f, int i, char *out) {
    BASE_ASSERT(i >= 0 && i < DISK_FOLDERS);
    snprintf(out, DISK_PATH_BYTES, "%s/%x", f->dir, (unsigned)i);
}

int disk_folder_of(const base_key *key) { return key->bytes[0] >> 4; }

static int disk_folder_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static const char *skip_digits(const char *s) {
    while (disk_folder_digit(*s) >= 0) s++;
    return s;
}

/* Kinds of names in a subfolder. Only the first two are ever removed. */
typedef enum name_kind {
    NAME_RECORD,    /* {64 digits}.rps */
    NAME_TEMPORARY, /* {64 digits}.rps.PID-TIME-NUMBER.tmp: of a writer that was killed (record_writer.c) */
    NAME_FOREIGN,
} name_kind;

/* folder: the number of its folder; DISK_FOLDERS: bad/, which has records of every key. */
static name_kind kind_of_name(const char *name, int folder, base_key *key) {
    if (!base_key_parse(key, name)) return NAME_FOREIGN;
    if (folder != DISK_FOLDERS && disk_folder_of(key) != folder) return NAME_FOREIGN;
    const char *rest = name + KEY_DIGITS;
    if (strncmp(rest, RECORD_END, strlen(RECORD_END)) != 0) return NAME_FOREIGN;
    rest += strlen(RECORD_END);
    if (!*rest) return NAME_RECORD;
    for (int i = 0; i < 3; i++) {
        const char *end = *rest == (i == 0 ? '.' : '-') ? skip_digits(rest + 1) : rest;
        if (end <= rest + 1) return NAME_FOREIGN;
        rest = end;
    }
    return strcmp(rest, RECORD_TEMPORARY) == 0 && folder != DISK_FOLDERS ? NAME_TEMPORARY : NAME_FOREIGN;
}

/* Is it one of the names in a store's folder? An empty file system has lost+found. */
static bool is_root_name(const char *name) {
    static const char *const names[] = {MARKER,
                                        MARKER RECORD_TEMPORARY,
                                        "lock",
                                        "index.db",
                                        "index.db-wal",
                                        "index.db-shm",
                                        "index.db-journal",
                                        "index.db.bad",
                                        "index.db.bad-wal",
                                        "index.db.bad-shm",
                                        "pins",
                                        "pins" RECORD_TEMPORARY,
                                        "audit",
                                        "audit" RECORD_TEMPORARY,
                                        FINGERPRINTS_NAME,
                                        FINGERPRINTS_NAME RECORD_TEMPORARY,
                                        "bad",
                                        DISK_WEIGHTS,
                                        "lost+found"};
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++)
        if (strcmp(name, names[i]) == 0) return true;
    return disk_folder_digit(name[0]) >= 0 && !name[1];
}

static bool is_dots(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

int disk_folder_write_audit(const disk_folder *f, const char *bytes, size_t n, rp_error *err) {
    char path[DISK_PATH_BYTES];
    BASE_ASSERT(!f->read_only);
    snprintf(path, sizeof(path), "%s/audit", f->dir);
    return base_io_write_whole(path, bytes, n, err);
}

int disk_folder_read_audit(const char *dir, size_t limit, base_buffer *out) {
    char real[DISK_PATH_BYTES], path[DISK_PATH_BYTES + sizeof("/audit")];
    base_io_file f;
    base_io_sizes sizes;
    size_t n = 0;
    *out = BASE_BUFFER(limit + 1);
    int rc = base_io_resolve(dir, real, sizeof(real), NULL);
    if (rc) return rc;
    snprintf(path, sizeof(path), "%s/audit", real);
    if ((rc = base_io_open(&f, path, NULL))) return rc;
    rc = base_io_stat_file(&f, &sizes, NULL);
    if (!rc && sizes.bytes > limit) rc = RP_ERR_LIMIT;
    if (!rc) rc = base_buffer_reserve(out, (size_t)sizes.bytes + 1);
    if (!rc) rc = base_io_read(&f, 0, out->data, (size_t)sizes.bytes, &n, NULL);
    if (!rc) out->data[out->len = n] = '\0';
    base_io_close(&f);
    if (rc) base_buffer_free(out);
    return rc;
}

/* ---- recognising a store ---- */

/* Kinds of folders. */
typedef enum folder_kind {
    FOLDER_EMPTY,
    FOLDER_MARKED,
    FOLDER_UNMARKED, /* a store nevertheless: of a version without markers, or its marker was removed */
    FOLDER_FOREIGN,
} folder_kind;

typedef struct folder_look {
    folder_kind kind;
    size_t n_records;
    bool has_lock, has_index;
    char foreign[NAME_MAX + 3]; /* the first foreign name; "" none */
} folder_look;

/* RP_ERR_IO: it is unreadable, or of a newer format (errno ENOTSUP). */
static int read_marker(const disk_folder *f, bool *is_marked, rp_error *err) {
    char path[DISK_PATH_BYTES], text[MARKER_BYTES + 1];
    base_io_file file;
    char *end = NULL;
    size_t n;
    *is_marked = false;
    snprintf(path, sizeof(path), "%s/" MARKER, f->dir);
    if (base_io_open(&file, path, err)) return errno == ENOENT ? RP_OK : RP_ERR_IO;
    int rc = base_io_read(&file, 0, text, MARKER_BYTES, &n, err);
    base_io_close(&file);
    if (rc) return rc;
    text[n] = '\0';
    if (strncmp(text, MARKER_FORMAT, strlen(MARKER_FORMAT)) != 0) return RP_OK;
    const long format = strtol(text + strlen(MARKER_FORMAT), &end, 10);
    if (end == text + strlen(MARKER_FORMAT) || format < 1) return RP_OK;
    *is_marked = true;
    if (format <= STORE_FORMAT) return RP_OK;
    base_fail_at(err, RP_ERR_IO, path, 0,
                 "the store has format %ld, but this version supports formats up to %d: use a newer version", format,
                 STORE_FORMAT);
    errno = ENOTSUP;
    return RP_ERR_IO;
}

static void note_foreign(folder_look *l, const char *folder, const char *name) {
    if (!l->foreign[0])
        snprintf(l->foreign, sizeof(l->foreign), "%s%s%.*s", folder, folder[0] ? "/" : "", NAME_MAX, name);
}

/* Examines a subfolder of a possible store without a marker. */
static int look_into(const disk_folder *f, const char *name, folder_look *l, rp_error *err) {
    char path[DISK_PATH_BYTES];
    base_key key;
    DIR *d;
    int folder = name[1] ? DISK_FOLDERS : disk_folder_digit(name[0]);
    snprintf(path, sizeof(path), "%s/%.3s", f->dir, name);
    if (base_io_open_folder(&d, path, err)) {
        if (errno != ENOTDIR && errno != ELOOP) return RP_ERR_IO;
        note_foreign(l, "", name);
        return RP_OK;
    }
    for (const struct dirent *e; (e = readdir(d));) {
        if (is_dots(e->d_name)) continue;
        name_kind kind = kind_of_name(e->d_name, folder, &key);
        l->n_records += kind == NAME_RECORD;
        if (kind == NAME_FOREIGN) note_foreign(l, name, e->d_name);
    }
    closedir(d);
    return RP_OK;
}

static int look_around(const disk_folder *f, folder_look *l, rp_error *err) {
    DIR *d;
    size_t n = 0;
    int rc = base_io_open_folder(&d, f->dir, err);
    if (rc) return rc;
    for (const struct dirent *e; !rc && (e = readdir(d));) {
        const char *name = e->d_name;
        if (is_dots(name) || strcmp(name, "lost+found") == 0 || strcmp(name, DISK_WEIGHTS) == 0) continue;
        if (strncmp(name, MARKER, strlen(MARKER)) == 0) continue;
        n++;
        l->has_lock |= strcmp(name, "lock") == 0;
        l->has_index |= strcmp(name, "index.db") == 0;
        if (!is_root_name(name)) note_foreign(l, "", name);
        else if (!name[1] || strcmp(name, "bad") == 0) rc = look_into(f, name, l, err);
    }
    closedir(d);
    l->kind = n == 0 ? FOLDER_EMPTY : FOLDER_FOREIGN;
    return rc;
}

/* A folder without a marker is a store if all its names are a store's and its index has the table of one; if the
 * index has no table (a crash), is not a database (damage) or is missing, if it has a lock and records. */
static int disk_folder_examine(const disk_folder *f, folder_look *l, rp_error *err) {
    char path[DISK_PATH_BYTES];
    bool is_marked;
    *l = (folder_look){.kind = FOLDER_FOREIGN};
    int rc = read_marker(f, &is_marked, err);
    if (!rc && is_marked) l->kind = FOLDER_MARKED;
    if (rc || is_marked || (rc = look_around(f, l, err)) || l->kind == FOLDER_EMPTY || l->foreign[0]) return rc;
    disk_folder_index(f, path);
    record_index_look index = l->has_index ? record_index_look_at(path) : RECORD_INDEX_NONE;
    const bool is_unknown = index == RECORD_INDEX_NONE || index == RECORD_INDEX_EMPTY;
    if (index == RECORD_INDEX_OURS || (is_unknown && l->has_lock && l->n_records > 0)) l->kind = FOLDER_UNMARKED;
    else if (l->has_index) note_foreign(l, "", "index.db");
    return RP_OK;
}

static int refuse_foreign(const disk_folder *f, const folder_look *l, rp_error *err) {
    return base_fail_at(err, RP_ERR_FORMAT, f->dir, 0,
                        "this folder is neither empty nor a Reprise store%s%s%s: give an empty or a new folder",
                        l->foreign[0] ? " (it contains '" : "", l->foreign, l->foreign[0] ? "')" : "");
}

static int write_marker(const disk_folder *f, rp_error *err) {
    char text[256], created[32] = "", path[DISK_PATH_BYTES];
    struct tm tm;
    time_t now = time(NULL);
    BASE_ASSERT(!f->read_only && f->lock >= 0);
    if (gmtime_r(&now, &tm)) strftime(created, sizeof(created), "%Y-%m-%dT%H:%M:%SZ", &tm);
    int n =
        snprintf(text, sizeof(text), MARKER_FORMAT "%d\nversion %s\ncreated %s\n", STORE_FORMAT, rp_version(), created);
    snprintf(path, sizeof(path), "%s/" MARKER, f->dir);
    int rc = base_io_write_whole(path, text, (size_t)n, err);
    snprintf(path, sizeof(path), "%s", f->dir);
    if (!rc) (void)base_io_sync_folder_of(path, NULL); /* best effort: its parent may be unreadable */
    return rc;
}

/* Makes the folder a store, or verifies that it is one; locked. */
static int disk_folder_claim(const disk_folder *f, rp_error *err) {
    folder_look l;
    rp_error why;
    int rc = disk_folder_examine(f, &l, err);
    if (rc || l.kind == FOLDER_MARKED) return rc;
    if (l.kind == FOLDER_FOREIGN) return refuse_foreign(f, &l, err);
    if (l.kind == FOLDER_EMPTY) return write_marker(f, err);
    /* A full disk: the next opening writes the marker. */
    if (write_marker(f, &why)) base_log(BASE_LOG_WARN, "store: %s: no format marker was written", why.message);
    return RP_OK;
}

int disk_folder_check(const disk_folder *f, rp_error *err) {
    folder_look l;
    int rc = disk_folder_examine(f, &l, err);
    if (rc || l.kind == FOLDER_MARKED || l.kind == FOLDER_UNMARKED) return rc;
    if (l.kind == FOLDER_FOREIGN && l.foreign[0]) return refuse_foreign(f, &l, err);
    return base_fail_at(err, RP_ERR_FORMAT, f->dir, 0, "not a Reprise store: give the store_dir of an engine");
}

int disk_folder_check_foreign(const disk_folder *f, rp_error *err) {
    folder_look l;
    int rc = disk_folder_examine(f, &l, err);
    return !rc && l.kind == FOLDER_FOREIGN ? refuse_foreign(f, &l, err) : rc;
}

/* ---- opening ---- */

/* The process id of the owner, for the message; 0: unknown. */
static long read_owner(int folder) {
    char text[32] = {0};
    int fd = openat(folder, "lock", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    long owner = fd >= 0 && pread(fd, text, sizeof(text) - 1, 0) > 0 ? strtol(text, NULL, 10) : 0;
    if (fd >= 0) close(fd);
    return owner;
}

/* A process that only checks the lock (disk_folder_owner) holds it for a moment: retries. errno is the cause of a
 * failure. */
static bool try_lock(int lock) {
    bool is_taken = false;
    for (int i = 0; i < LOCK_TRIES && !is_taken; i++) {
        if (i > 0) nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_NS}, NULL);
        is_taken = flock(lock, LOCK_EX | LOCK_NB) == 0;
        if (!is_taken && errno != EWOULDBLOCK) break;
    }
    return is_taken;
}

static int fail_lock(const disk_folder *f, rp_error *err) {
    if (errno != EWOULDBLOCK) return base_fail_errno(err, "cannot lock the store", f->dir);
    long owner = read_owner(f->lock);
    char who[48] = "another process";
    if (owner > 0) snprintf(who, sizeof(who), "process %ld", owner);
    return base_fail_at(err, RP_ERR_CONFLICT, f->dir, 0,
                        "the store is in use by %s: end it, use another folder, or open the store read-only", who);
}

/* Locks the folder itself: its lock can be removed only with the store. Some file systems lock only files (NFS):
 * there it locks the file `lock`, which also excludes programs of versions that lock nothing else. */
static int take_folder(disk_folder *f, rp_error *err) {
    BASE_ASSERT(f->lock < 0 && !f->read_only);
    f->lock = open(f->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (f->lock < 0) return base_fail_errno(err, "cannot lock the store", f->dir);
    bool is_locked = try_lock(f->lock),
         is_unknown = errno == EBADF || errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL;
    return is_locked || is_unknown ? RP_OK : fail_lock(f, err);
}

/* Does the name still refer to the open file? */
static bool disk_folder_is_named(int folder, const char *name, int fd) {
    struct stat own, named;
    if (fstat(fd, &own) != 0 || fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) != 0) return false;
    return own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

static int disk_folder_take_file(disk_folder *f, rp_error *err) {
    char text[32], path[DISK_PATH_BYTES];
    BASE_ASSERT(f->lock >= 0 && f->lock_file < 0);
    snprintf(path, sizeof(path), "%s/lock", f->dir);
    for (int i = 0; i < LOCK_TRIES; i++) { /* its previous owner may have been asked to remove it */
        int rc = base_io_make_private(path, err);
        if (rc) return rc;
        f->lock_file = openat(f->lock, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
        /* A full disk: the folder is locked, and removals can free space. */
        if (f->lock_file < 0 && base_io_is_full(errno)) return RP_OK;
        if (f->lock_file < 0) return base_fail_errno(err, "cannot lock the store", f->dir);
        if (!try_lock(f->lock_file)) return fail_lock(f, err);
        if (disk_folder_is_named(f->lock, "lock", f->lock_file)) break;
        close(f->lock_file);
        f->lock_file = -1;
    }
    if (f->lock_file < 0)
        return base_fail_at(err, RP_ERR_IO, f->dir, 0, "cannot lock the store: its file 'lock' keeps being replaced");
    int n = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    if (fchmod(f->lock_file, S_IRUSR | S_IWUSR) != 0 || ftruncate(f->lock_file, 0) != 0 ||
        pwrite(f->lock_file, text, (size_t)n, 0) != n)
        base_log(BASE_LOG_WARN, "store: %s/lock does not name its owner", f->dir); /* the lock is held nevertheless */
    return RP_OK;
}

static int open_folder(disk_folder *f, const char *dir, rp_error *err) {
    struct stat st;
    int rc = base_io_resolve(dir, f->dir, sizeof(f->dir), err);
    if (rc && errno == ENAMETOOLONG)
        return base_fail(err, RP_ERR_INVALID, "the path of the store is longer than %zu bytes", sizeof(f->dir) - 1);
    if (rc) return rc;
    /* A mistake of the operator, like a foreign folder, and no failure that may pass. */
    if (stat(f->dir, &st) == 0 && !S_ISDIR(st.st_mode))
        return base_fail_at(err, RP_ERR_FORMAT, f->dir, 0,
                            "this is a file, but the store is a folder: give an empty or a new folder");
    if (f->read_only) return RP_OK;
    if (!(rc = base_io_mkdir(f->dir, err)) && !(rc = take_folder(f, err)) && !(rc = disk_folder_claim(f, err)))
        rc = disk_folder_take_file(f, err);
    if (!rc && fstat(f->lock, &st) == 0 && (st.st_mode & FOLDER_RIGHTS))
        base_log(BASE_LOG_WARN, "store: %s is accessible to other users (mode %o): run chmod 700 on it", f->dir,
                 (unsigned)(st.st_mode & 0777));
    return rc;
}

int disk_folder_open(disk_folder *f, const char *dir, bool read_only, rp_error *err) {
    *f = (disk_folder){.lock = -1, .lock_file = -1, .read_only = read_only, .bad_bytes = UINT64_MAX};
    int rc = open_folder(f, dir, err);
    if (rc) {
        int cause = errno;
        disk_folder_close(f);
        errno = cause;
    }
    return rc;
}

void disk_folder_close(disk_folder *f) {
    if (f->lock_file >= 0) close(f->lock_file);
    if (f->lock >= 0) close(f->lock);
    f->lock = f->lock_file = -1;
}

static bool is_locked(int fd) {
    bool is_taken = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0) close(fd);
    return is_taken;
}

long disk_folder_owner(const disk_folder *f) {
    int folder = open(f->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0) return 0;
    long owner = read_owner(folder);
    bool is_taken = is_locked(openat(folder, "lock", O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    is_taken = is_locked(folder) || is_taken;
    return !is_taken ? 0 : owner > 0 ? owner
                                     : -1;
}

int disk_folder_make_room(const disk_folder *f, const base_key *key, rp_error *err) {
    char path[DISK_PATH_BYTES];
    BASE_ASSERT(!f->read_only);
    disk_folder_path(f, disk_folder_of(key), path);
    return base_io_mkdir(path, err);
}

int disk_folder_sync_removals(const disk_folder *f, uint32_t *unsynced, rp_error *err) {
    char path[DISK_PATH_BYTES];
    rp_error first, next;
    int rc = RP_OK, cause = 0;
    BASE_ASSERT(*unsynced >> DISK_FOLDERS == 0);
    for (int i = 0; i < DISK_FOLDERS; i++) {
        if (!(*unsynced >> i & 1)) continue;
        disk_folder_path(f, i, path);
        int own = base_io_sync_folder(path, &next);
        if (own && errno == ENOENT) own = RP_OK; /* it does not exist, and so has no names */
        if (!own) *unsynced &= ~(1u << i);
        else if (!rc) rc = own, first = next, cause = errno;
    }
    if (rc && err) *err = first;
    if (rc) errno = cause;
    return rc;
}

/* ---- quarantine ---- */

static uint64_t disk_bytes(const char *path) {
    base_io_sizes sizes;
    return base_io_stat(path, &sizes, NULL) == RP_OK ? sizes.disk_bytes : 0;
}

static const char *const bad_index[] = {"index.db.bad", "index.db.bad-wal", "index.db.bad-shm"};

/* Removes files of the quarantine, an index included, beyond the limits. */
static void thin_out(const disk_folder *f, int most_files, uint64_t most_bytes) {
    char folder[DISK_PATH_BYTES], path[ENTRY_BYTES];
    base_key key;
    uint64_t bytes = 0;
    int n = 0;
    DIR *d;
    for (size_t i = 0; i < BASE_ARRAY_LEN(bad_index); i++) {
        snprintf(path, sizeof(path), "%s/%s", f->dir, bad_index[i]);
        uint64_t own = disk_bytes(path);
        if (own > most_bytes - bytes) base_io_unlink(path, NULL);
        else bytes += own;
    }
    bad_folder(f, folder);
    if (base_io_open_folder(&d, folder, NULL)) return;
    for (const struct dirent *e; (e = readdir(d));) {
        if (kind_of_name(e->d_name, DISK_FOLDERS, &key) != NAME_RECORD) continue;
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        uint64_t own = disk_bytes(path);
        if (n == most_files || own > most_bytes - bytes) base_io_unlink(path, NULL);
        else n++, bytes += own;
    }
    closedir(d);
}

void disk_folder_thin_out(const disk_folder *f) { thin_out(f, DISK_TIER_BAD, f->bad_bytes); }

void disk_folder_set_aside(const disk_folder *f, const base_key *key) {
    char from[DISK_PATH_BYTES], folder[DISK_PATH_BYTES], hex[KEY_DIGITS + 1], to[DISK_PATH_BYTES + KEY_DIGITS + 8];
    BASE_ASSERT(!f->read_only);
    disk_folder_record(f, key, from);
    bad_folder(f, folder);
    base_key_hex(key, hex, KEY_DIGITS);
    snprintf(to, sizeof(to), "%s/%s" RECORD_END, folder, hex);
    uint64_t own = disk_bytes(from), most = f->bad_bytes;
    if (own <= most && base_io_mkdir(folder, NULL) == RP_OK) thin_out(f, DISK_TIER_BAD - 1, most - own);
    if (own > most || base_io_rename(from, to, NULL)) base_io_unlink(from, NULL);
}

/* ---- scanning ---- */

typedef struct file_list {
    disk_file *files;
    size_t n, cap;
    size_t n_foreign;
    disk_file_fn fn; /* may be NULL */
    void *user;
} file_list;

static void meet_foreign(file_list *list, const char *path, uint64_t bytes) {
    if (list->n_foreign++ == 0)
        base_log(BASE_LOG_WARN, "store: %s is not part of the store: ignored, as are further ones", path);
    if (list->fn) list->fn(list->user, DISK_FILE_FOREIGN, path, bytes);
}

static void meet_leftover(const disk_folder *f, file_list *list, const char *path, uint64_t bytes) {
    BASE_ASSERT(strlen(path) > strlen(RECORD_TEMPORARY) &&
                strcmp(path + strlen(path) - strlen(RECORD_TEMPORARY), RECORD_TEMPORARY) == 0);
    bool is_gone =
        !f->read_only && base_io_unlink(path, NULL) == RP_OK; /* invariant 6: a name of the store's own patterns */
    if (!f->read_only && !is_gone) base_log(BASE_LOG_WARN, "store: %s cannot be removed", path);
    if ((f->read_only || is_gone) && list->fn) list->fn(list->user, DISK_FILE_LEFTOVER, path, bytes);
}

static int meet_name(const disk_folder *f, int i, const char *path, const char *name, file_list *list, rp_error *err) {
    base_io_sizes sizes;
    base_key key;
    name_kind kind = kind_of_name(name, i, &key);
    /* Other errors: its row must stay. */
    if (base_io_stat(path, &sizes, err)) return errno == ENOENT ? RP_OK : RP_ERR_IO;
    if (!sizes.is_file) kind = NAME_FOREIGN;
    if (kind == NAME_RECORD) {
        int rc = base_grow((void **)&list->files, &list->cap, list->n + 1, DISK_TIER_MAX_RECORDS, sizeof(*list->files));
        if (rc) return base_fail(err, rc, "a store of more than %zu records", list->n);
        list->files[list->n++] = (disk_file){key, sizes.disk_bytes};
    } else if (kind == NAME_TEMPORARY) meet_leftover(f, list, path, sizes.disk_bytes);
    else meet_foreign(list, path, sizes.disk_bytes);
    return RP_OK;
}

static int scan_folder(const disk_folder *f, int i, file_list *list, rp_error *err) {
    char folder[DISK_PATH_BYTES], path[ENTRY_BYTES];
    DIR *d;
    int rc = RP_OK;
    disk_folder_path(f, i, folder);
    if (base_io_open_folder(&d, folder, err)) {
        if (errno == ENOTDIR || errno == ELOOP) meet_foreign(list, folder, 0);
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? RP_OK : RP_ERR_IO;
    }
    while (!rc) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (!e && errno != 0) rc = base_fail_errno(err, "cannot read the folder", folder);
        if (!e) break;
        if (is_dots(e->d_name)) continue;
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        rc = meet_name(f, i, path, e->d_name, list, err);
    }
    int cause = errno;
    closedir(d);
    errno = cause;
    return rc;
}

/* Files that are not the store's, in the folder and in bad/. An error here does not affect the records. */
static void scan_others(const disk_folder *f, file_list *list) {
    char folder[DISK_PATH_BYTES], path[ENTRY_BYTES];
    base_key key;
    DIR *d;
    bad_folder(f, folder);
    for (int i = 0; i < 2; i++) {
        const char *dir = i == 0 ? f->dir : folder;
        if (base_io_open_folder(&d, dir, NULL)) continue;
        for (const struct dirent *e; (e = readdir(d));) {
            if (is_dots(e->d_name) ||
                (i == 0 ? is_root_name(e->d_name) : kind_of_name(e->d_name, DISK_FOLDERS, &key) == NAME_RECORD))
                continue;
            snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
            meet_foreign(list, path, disk_bytes(path));
        }
        closedir(d);
    }
}

static int compare_files(const void *a, const void *b) {
    return memcmp(((const disk_file *)a)->key.bytes, ((const disk_file *)b)->key.bytes, sizeof(base_key));
}

int disk_folder_scan(const disk_folder *f, disk_file_fn fn, void *user, disk_file **out, size_t *n, rp_error *err) {
    file_list list = {.fn = fn, .user = user};
    int rc = RP_OK;
    for (int i = 0; i < DISK_FOLDERS && !rc; i++) rc = scan_folder(f, i, &list, err);
    if (rc) {
        base_free(list.files);
        list = (file_list){0};
    } else {
        scan_others(f, &list);
    }
    if (list.n > 0) qsort(list.files, list.n, sizeof(*list.files), compare_files);
    for (size_t i = 1; i < list.n; i++)
        BASE_ASSERT(compare_files(&list.files[i - 1], &list.files[i]) < 0); /* a key has one file */
    *out = list.files;
    *n = list.n;
    return rc;
}

static int meet_bad(const char *path, bool goes, disk_file_fn fn, void *user, rp_error *err) {
    uint64_t bytes = disk_bytes(path);
    int rc = goes ? base_io_unlink(path, err) : RP_OK;
    if (!rc && fn) fn(user, DISK_FILE_BAD, path, bytes);
    return rc;
}

int disk_folder_each_bad(const disk_folder *f, bool goes, disk_file_fn fn, void *user, rp_error *err) {
    char folder[DISK_PATH_BYTES], path[ENTRY_BYTES];
    base_io_sizes sizes;
    base_key key;
    DIR *d;
    int rc = RP_OK;
    for (size_t i = 0; i < BASE_ARRAY_LEN(bad_index) && !rc; i++) {
        snprintf(path, sizeof(path), "%s/%s", f->dir, bad_index[i]);
        if (base_io_stat(path, &sizes, NULL) == RP_OK) rc = meet_bad(path, goes, fn, user, err);
    }
    bad_folder(f, folder);
    if (rc || base_io_open_folder(&d, folder, NULL)) return rc;
    for (const struct dirent *e; !rc && (e = readdir(d));) {
        if (kind_of_name(e->d_name, DISK_FOLDERS, &key) != NAME_RECORD) continue;
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        rc = meet_bad(path, goes, fn, user, err);
    }
    closedir(d);
    return rc;
}

uint64_t disk_folder_overhead(const disk_folder *f) {
    static const char *const names[] = {MARKER, "lock", "pins", "audit", FINGERPRINTS_NAME, "bad"};
    char path[ENTRY_BYTES];
    uint64_t bytes = disk_bytes(f->dir);
    for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", f->dir, names[i]);
        bytes += disk_bytes(path);
    }
    for (int i = 0; i < DISK_FOLDERS; i++) {
        disk_folder_path(f, i, path);
        bytes += disk_bytes(path);
    }
    return bytes;
}
