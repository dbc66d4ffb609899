/* SPDX-License-Identifier: Apache-2.0 */
/* file.c: whole-file reads, read-only maps, new files and the clock.
 *
 * Owns a descriptor only while a function runs, except that of a new file; a map outlives it. Only regular files are
 * read, so that neither a directory nor a pipe without a writer can stop the program. Thread-safe.
 */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE /* madvise */

#include "base/check.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"

/* Opens a regular file. Returns the descriptor and what it is, or RP_ERR_IO. */
static int open_regular(const char *path, struct stat *st, rp_error *err) {
    *st = (struct stat){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) return base_fail_errno(err, "cannot open", path);
    int rc = 0;
    if (fstat(fd, st) != 0)
        rc = base_fail_errno(err, "cannot examine", path);
    else if (!S_ISREG(st->st_mode))
        rc = base_fail(err, RP_ERR_IO, "cannot read '%s': it is %s", path,
                       S_ISDIR(st->st_mode) ? "a directory" : "not a regular file");
    if (rc != 0) {
        close(fd);
        return rc;
    }
    return fd;
}

static int too_large(const char *path, size_t limit, rp_error *err) {
    return base_fail(err, RP_ERR_LIMIT, "'%s' is larger than the limit of %zu bytes", path, limit);
}

/* Reads to the end of the file: its size may have changed since it was opened. */
static int file_read_all(int fd, const char *path, size_t limit, base_buffer *out, rp_error *err) {
    char piece[16384];
    for (;;) {
        ssize_t n = read(fd, piece, sizeof piece);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return base_fail_errno(err, "cannot read", path);
        int rc = base_buffer_append(out, piece, (size_t)n);
        if (rc == RP_ERR_LIMIT) return too_large(path, limit, err);
        if (rc != 0) return base_fail_memory(err, (uint64_t)out->len + (uint64_t)n, path);
        if (n == 0) return 0;
    }
}

/* what: NULL, or it is a secret. */
static int file_read(const char *path, size_t limit, const char *what, base_buffer *out, rp_error *err) {
    *out = BASE_BUFFER(limit);
    struct stat st;
    int fd = open_regular(path, &st, err);
    if (fd < 0) return fd;
    int rc = 0;
    if (what && (st.st_mode & (S_IWGRP | S_IXGRP | S_IRWXO)))
        rc = base_fail(err, RP_ERR_INVALID, "%s: others may read or change %s (mode %03o): chmod 600", path, what,
                       (unsigned)(st.st_mode & 0777));
    if (rc == 0)
        rc = (uint64_t)st.st_size > limit ? too_large(path, limit, err) : file_read_all(fd, path, limit, out, err);
    close(fd);
    if (rc != 0) base_buffer_free(out);
    return rc;
}

int base_file_read(const char *path, size_t limit, base_buffer *out, rp_error *err) {
    return file_read(path, limit, NULL, out, err);
}

int base_file_read_secret(const char *path, size_t limit, const char *what, base_buffer *out, rp_error *err) {
    return file_read(path, limit, what, out, err);
}

int base_file_read_text(const char *path, size_t limit, base_buffer *out, rp_error *err) {
    int rc = base_file_read(path, limit, out, err);
    if (rc != 0) return rc;
    if (out->len >= 3 && memcmp(out->data, "\xEF\xBB\xBF", 3) == 0) {
        memmove(out->data, out->data + 3, out->len - 3);
        base_buffer_truncate(out, out->len - 3);
    }
    if (out->len < 2 || (memcmp(out->data, "\xFF\xFE", 2) != 0 && memcmp(out->data, "\xFE\xFF", 2) != 0)) return 0;
    base_buffer_free(out);
    return base_fail(err, RP_ERR_FORMAT, "cannot read '%s': it is UTF-16: save it as UTF-8", path);
}

/* ---- identity ---- */

static int64_t (*file_clock)(void);

void base_file_set_clock(int64_t (*now_ns)(void)) { file_clock = now_ns; }

static int64_t file_nanoseconds(struct timespec t) { return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec; }

int64_t base_clock_wall_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return file_nanoseconds(now);
}

static base_file_id id_of(const struct stat *st) {
    base_file_id id = {.device = (uint64_t)st->st_dev, .inode = (uint64_t)st->st_ino, .bytes = (uint64_t)st->st_size};
    id.mtime_ns = file_nanoseconds(st->st_mtim);
    id.ctime_ns = file_nanoseconds(st->st_ctim);
    int64_t last = BASE_MAX(id.mtime_ns, id.ctime_ns);
    id.is_settled = (file_clock ? file_clock() : base_clock_wall_ns()) - last >= BASE_FILE_SETTLED_NS;
    return id;
}

bool base_file_identify(const char *path, base_file_id *out) {
    struct stat st;
    if (stat(path, &st) != 0) return false;
    *out = id_of(&st);
    return true;
}

/* ---- maps ---- */

int base_map_open(base_map *out, const char *path, rp_error *err) {
    *out = (base_map){0};
    struct stat st;
    int fd = open_regular(path, &st, err);
    if (fd < 0) return fd;
    int rc = 0;
    void *data = NULL;
    const uint64_t size = (uint64_t)st.st_size;
    if (size > SIZE_MAX)
        rc = base_fail(err, RP_ERR_IO, "cannot map '%s': %" PRIu64 " bytes do not fit the address space", path, size);
    else if (size > 0 && (data = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED)
        rc = base_fail_errno(err, "cannot map", path);
    close(fd);
    if (rc == 0 && size > 0) *out = (base_map){.data = data, .bytes = (size_t)size, .id = id_of(&st)};
    return rc;
}

void base_map_close(base_map *m) {
    if (m->data) munmap((void *)(uintptr_t)m->data, m->bytes);
    *m = (base_map){0};
}

#define LEAST_FORGOTTEN (32 << 10)

void base_map_forget(const base_map *m, const void *p, size_t n) {
    if (n < LEAST_FORGOTTEN) return;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), map = (uintptr_t)m->data;
    uintptr_t begin = ((uintptr_t)p + page - 1) / page * page, end = ((uintptr_t)p + n) / page * page;
    if (!m->data || begin < map || end > map + m->bytes || begin >= end) return;
    madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* ---- new files ---- */

bool base_file_same(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* PATH.PID.tmp; a file left by an earlier process with the same PID is removed. */
static int base_new_file_name_temporary(base_new_file *f, const char *path, rp_error *err) {
    size_t bytes = strlen(path) + 32;
    f->path = base_strdup(path);
    f->temporary = base_alloc(bytes);
    if (!f->path || !f->temporary) {
        base_free(f->temporary);
        f->temporary = NULL;
        return base_fail_memory(err, bytes, "a file's name");
    }
    snprintf(f->temporary, bytes, "%s.%ld.tmp", path, (long)getpid());
    return 0;
}

/* A new file: nothing is written through a name that was there, such as a link. */
static FILE *open_new(const char *path) {
    (void)unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    FILE *file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    int cause = errno;
    if (fd >= 0 && !file) close(fd);
    errno = cause;
    return file;
}

int base_new_file_open(base_new_file *out, const char *path, rp_error *err) {
    *out = (base_new_file){0};
    struct stat st;
    int rc = 0;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) /* a rename over a device would replace the device */
        rc = base_fail(err, RP_ERR_IO, "cannot write '%s': it is %s", path,
                       S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
    if (rc == 0) rc = base_new_file_name_temporary(out, path, err);
    if (rc == 0 && !(out->file = open_new(out->temporary))) {
        rc = base_fail_errno(err, "cannot write", out->temporary);
        base_free(out->temporary); /* nothing to remove */
        out->temporary = NULL;
    }
    if (rc != 0) base_new_file_abandon(out);
    return rc;
}

int base_new_file_commit(base_new_file *f, rp_error *err) {
    BASE_ASSERT(f->file && f->temporary); /* a file is committed once */
    errno = 0;
    bool written = !ferror(f->file) && fflush(f->file) == 0 && fsync(fileno(f->file)) == 0;
    int cause = errno;
    if (fclose(f->file) != 0 && written) {
        written = false;
        cause = errno;
    }
    f->file = NULL;
    if (written && rename(f->temporary, f->path) != 0) {
        written = false;
        cause = errno;
    }
    errno = cause ? cause : EIO; /* an earlier write failed, and its errno was lost */
    int rc = written ? 0 : base_fail_errno(err, "cannot write", f->path);
    if (written) {
        base_free(f->temporary);
        f->temporary = NULL;
    }
    base_new_file_abandon(f);
    return rc;
}

void base_new_file_abandon(base_new_file *f) {
    if (f->file) fclose(f->file);
    if (f->temporary) (void)remove(f->temporary);
    base_free(f->temporary);
    base_free(f->path);
    *f = (base_new_file){0};
}

static uint64_t read_clock(clockid_t clock) {
    struct timespec ts = {0};
    clock_gettime(clock, &ts);
    return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

struct timespec base_clock_after(int64_t ms) {
    uint64_t us = base_clock_us() + (uint64_t)ms * 1000u;
    return (struct timespec){(time_t)(us / 1000000u), (long)(us % 1000000u) * 1000};
}

uint64_t base_clock_us(void) { return read_clock(CLOCK_MONOTONIC); }
uint64_t base_clock_thread_us(void) { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

void base_rest_us(uint64_t us) {
    (void)nanosleep(&(struct timespec){(time_t)(us / 1000000u), (long)(us % 1000000u) * 1000}, NULL);
}
