/* disk_folder.c: see disk_folder.h. */
#define _DEFAULT_SOURCE /* flock */

#include "store/disk_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "store/disk_tier.h"
#include "store/fingerprints.h"

#define RECORD_END ".rps"
#define KEY_DIGITS 64
#define LOCK_TRIES 3
#define LOCK_PAUSE_NS 2000000

/* ---- names ---- */

void disk_folder_record(const disk_folder *f, const base_key *key, char *out) {
    char hex[KEY_DIGITS + 1];
    base_key_hex(key, hex, KEY_DIGITS);
    snprintf(out, DISK_PATH_BYTES, "%s/%.1s/%s" RECORD_END, f->dir, hex, hex);
}

void disk_folder_index(const disk_folder *f, char *out) { snprintf(out, DISK_PATH_BYTES, "%s/index.db", f->dir); }

void disk_folder_audit(const char *dir, char *out) { snprintf(out, DISK_PATH_BYTES, "%s/audit", dir); }

static void bad_folder(const disk_folder *f, char *out) { snprintf(out, DISK_PATH_BYTES, "%s/bad", f->dir); }

void disk_folder_path(const disk_folder *f, int i, char *out) { snprintf(out, DISK_PATH_BYTES, "%s/%x", f->dir, (unsigned)i); }

int disk_folder_of(const base_key *key) { return key->bytes[0] >> 4; }

static int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "ab3f...rps" -> key; false: it is something else. */
static bool key_of_name(const char *name, base_key *key) {
    if (strlen(name) != KEY_DIGITS + sizeof(RECORD_END) - 1 || strcmp(name + KEY_DIGITS, RECORD_END) != 0) return false;
    for (size_t i = 0; i < sizeof(key->bytes); i++) {
        int high = digit(name[2 * i]), low = digit(name[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        key->bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* ---- opening ---- */

/* Who has it, for the message. */
static long read_owner(int lock) {
    char text[32] = {0};
    return pread(lock, text, sizeof(text) - 1, 0) > 0 ? strtol(text, NULL, 10) : 0;
}

/* Who only asks whether it is locked (disk_folder_owner) has it for a moment. errno says why not. */
static bool try_lock(int lock) {
    bool is_taken = false;
    for (int i = 0; i < LOCK_TRIES && !is_taken; i++) {
        if (i > 0) nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_NS}, NULL);
        is_taken = flock(lock, LOCK_EX | LOCK_NB) == 0;
        if (!is_taken && errno != EWOULDBLOCK) break;
    }
    return is_taken;
}

static int take_lock(disk_folder *f, rp_error *err) {
    char path[DISK_PATH_BYTES], text[32];
    snprintf(path, sizeof(path), "%s/lock", f->dir);
    f->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (f->lock < 0) return base_fail_errno(err, "cannot lock the store", path);
    if (!try_lock(f->lock)) {
        if (errno != EWOULDBLOCK) return base_fail_errno(err, "cannot lock the store", path);
        return base_fail_at(err, RP_ERR_CONFLICT, f->dir, 0, "process %ld uses this store: end it, take another folder, or open it read-only",
                            read_owner(f->lock));
    }
    int n = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    if (ftruncate(f->lock, 0) != 0 || pwrite(f->lock, text, (size_t)n, 0) != n)
        base_log(BASE_LOG_WARN, "store: %s does not say whose it is", path); /* the lock holds all the same */
    return RP_OK;
}

int disk_folder_open(disk_folder *f, const char *dir, bool read_only, rp_error *err) {
    *f = (disk_folder){.lock = -1, .read_only = read_only, .bad_bytes = UINT64_MAX};
    if (snprintf(f->dir, sizeof(f->dir), "%s", dir) >= (int)sizeof(f->dir))
        return base_fail(err, RP_ERR_INVALID, "the path of the store is longer than %zu bytes", sizeof(f->dir) - 1);
    if (read_only) return RP_OK;
    int rc = base_io_mkdir(dir, err);
    return rc ? rc : take_lock(f, err);
}

void disk_folder_close(disk_folder *f) {
    if (f->lock >= 0) close(f->lock);
    f->lock = -1;
}

static bool is_there(const char *dir, const char *name) {
    char path[DISK_PATH_BYTES];
    base_io_sizes sizes;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return base_io_stat(path, &sizes, NULL) == RP_OK;
}

int disk_folder_check(const char *dir, rp_error *err) {
    base_io_sizes sizes;
    if (base_io_stat(dir, &sizes, NULL))
        return base_fail_at(err, RP_ERR_IO, dir, 0, "there is no such store: give the folder that --store names where prompts run");
    if (is_there(dir, "lock") || is_there(dir, "index.db")) return RP_OK;
    return base_fail_at(err, RP_ERR_FORMAT, dir, 0, "this is no store: it has neither a lock nor an index.db");
}

long disk_folder_owner(const disk_folder *f) {
    char path[DISK_PATH_BYTES];
    snprintf(path, sizeof(path), "%s/lock", f->dir);
    int lock = open(path, O_RDONLY | O_CLOEXEC);
    if (lock < 0) return 0;
    bool is_taken = flock(lock, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    long owner = is_taken ? read_owner(lock) : 0;
    close(lock);
    return is_taken && owner <= 0 ? -1 : owner;
}

int disk_folder_make_room(const disk_folder *f, const base_key *key, rp_error *err) {
    char path[DISK_PATH_BYTES];
    disk_folder_path(f, disk_folder_of(key), path);
    return base_io_mkdir(path, err);
}

int disk_folder_write_audit(const disk_folder *f, const char *bytes, size_t n, rp_error *err) {
    return disk_folder_write_file(f->dir, "audit", bytes, n, err);
}

/* What a crash left of the temporary file goes first. */
int disk_folder_write_file(const char *dir, const char *name, const void *bytes, size_t n, rp_error *err) {
    char path[DISK_PATH_BYTES], temporary[DISK_PATH_BYTES];
    struct iovec piece = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n};
    base_io_file file = {0};
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    snprintf(temporary, sizeof(temporary), "%s/%s.tmp", dir, name);
    int rc = base_io_unlink(temporary, err);
    if (!rc) rc = base_io_create(&file, temporary, err);
    if (rc) return rc;
    if (!(rc = base_io_writev(&file, &piece, 1, err))) rc = base_io_sync(&file, err);
    base_io_close(&file);
    if (!rc) rc = base_io_rename(temporary, path, err);
    if (rc) base_io_unlink(temporary, NULL);
    return rc ? rc : base_io_sync_folder(dir, err);
}

/* ---- what could not be read ---- */

static uint64_t disk_bytes(const char *path) {
    base_io_sizes sizes;
    return base_io_stat(path, &sizes, NULL) == RP_OK ? sizes.disk_bytes : 0;
}

/* Keeps at most so many files and bytes in a folder: any others go. */
static void thin_out(const char *folder, int most_files, uint64_t most_bytes) {
    char path[DISK_PATH_BYTES + NAME_MAX + 2];
    DIR *d = opendir(folder);
    uint64_t bytes = 0;
    int n = 0;
    for (const struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        uint64_t own = disk_bytes(path);
        if (n == most_files || own > most_bytes - bytes) base_io_unlink(path, NULL);
        else n++, bytes += own;
    }
    if (d) closedir(d);
}

void disk_folder_thin_out(const disk_folder *f) {
    char folder[DISK_PATH_BYTES];
    bad_folder(f, folder);
    thin_out(folder, DISK_TIER_BAD, f->bad_bytes);
}

void disk_folder_set_aside(const disk_folder *f, const base_key *key) {
    char from[DISK_PATH_BYTES], folder[DISK_PATH_BYTES], hex[KEY_DIGITS + 1], to[DISK_PATH_BYTES + KEY_DIGITS + 8];
    disk_folder_record(f, key, from);
    bad_folder(f, folder);
    base_key_hex(key, hex, KEY_DIGITS);
    snprintf(to, sizeof(to), "%s/%s" RECORD_END, folder, hex);
    uint64_t own = disk_bytes(from), most = f->bad_bytes;
    if (own <= most && base_io_mkdir(folder, NULL) == RP_OK) thin_out(folder, DISK_TIER_BAD - 1, most - own);
    if (own > most || base_io_rename(from, to, NULL)) base_io_unlink(from, NULL);
}

/* ---- all there is ---- */

typedef struct file_list {
    disk_file *files;
    size_t n, cap;
} file_list;

static int add_file(file_list *list, const char *path, const base_key *key, rp_error *err) {
    base_io_sizes sizes;
    if (base_io_stat(path, &sizes, NULL)) return RP_OK; /* it is gone */
    int rc = base_grow((void **)&list->files, &list->cap, list->n + 1, DISK_TIER_MAX_RECORDS, sizeof(*list->files));
    if (rc) return base_fail(err, rc, "a store of more than %zu records", list->n);
    list->files[list->n++] = (disk_file){*key, sizes.disk_bytes};
    return RP_OK;
}

static void meet_leftover(const disk_folder *f, const char *path, disk_file_fn fn, void *user) {
    uint64_t bytes = disk_bytes(path);
    bool is_gone = !f->read_only && base_io_unlink(path, NULL) == RP_OK;
    if (!f->read_only && !is_gone) base_log(BASE_LOG_WARN, "store: %s cannot be removed", path);
    if ((f->read_only || is_gone) && fn) fn(user, path, bytes);
}

/* What is no record was left by a crash. */
static int scan_folder(const disk_folder *f, int i, disk_file_fn fn, void *user, file_list *list, rp_error *err) {
    char folder[DISK_PATH_BYTES], path[DISK_PATH_BYTES + NAME_MAX + 2];
    disk_folder_path(f, i, folder);
    DIR *d = opendir(folder);
    int rc = RP_OK;
    if (!d) return errno == ENOENT ? RP_OK : base_fail_errno(err, "cannot read the store", folder);
    for (const struct dirent *e; !rc && (e = readdir(d));) {
        base_key key;
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        if (key_of_name(e->d_name, &key) && disk_folder_of(&key) == i) rc = add_file(list, path, &key, err);
        else meet_leftover(f, path, fn, user);
    }
    closedir(d);
    return rc;
}

static int compare_files(const void *a, const void *b) { return memcmp(((const disk_file *)a)->key.bytes, ((const disk_file *)b)->key.bytes, sizeof(base_key)); }

int disk_folder_scan(const disk_folder *f, disk_file_fn fn, void *user, disk_file **out, size_t *n, rp_error *err) {
    file_list list = {0};
    int rc = RP_OK;
    for (int i = 0; i < DISK_FOLDERS && !rc; i++) rc = scan_folder(f, i, fn, user, &list, err);
    if (rc) {
        base_free(list.files);
        list = (file_list){0};
    }
    if (list.n > 0) qsort(list.files, list.n, sizeof(*list.files), compare_files);
    *out = list.files;
    *n = list.n;
    return rc;
}

int disk_folder_each_bad(const disk_folder *f, bool goes, disk_file_fn fn, void *user, rp_error *err) {
    char folder[DISK_PATH_BYTES], path[DISK_PATH_BYTES + NAME_MAX + 2];
    bad_folder(f, folder);
    DIR *d = opendir(folder);
    int rc = RP_OK;
    for (const struct dirent *e; d && !rc && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        uint64_t bytes = disk_bytes(path);
        rc = goes ? base_io_unlink(path, err) : RP_OK;
        if (!rc && fn) fn(user, path, bytes);
    }
    if (d) closedir(d);
    return rc;
}

uint64_t disk_folder_overhead(const disk_folder *f) {
    char folder[DISK_PATH_BYTES], path[DISK_PATH_BYTES + NAME_MAX + 2];
    snprintf(path, sizeof(path), "%s/lock", f->dir);
    uint64_t bytes = disk_bytes(f->dir) + disk_bytes(path);
    disk_folder_audit(f->dir, path);
    bytes += disk_bytes(path);
    snprintf(path, sizeof(path), "%s/" FINGERPRINTS_NAME, f->dir);
    bytes += disk_bytes(path);
    for (int i = 0; i < DISK_FOLDERS; i++) {
        disk_folder_path(f, i, folder);
        bytes += disk_bytes(folder);
    }
    bad_folder(f, folder);
    bytes += disk_bytes(folder);
    return bytes;
}
