/* SPDX-License-Identifier: Apache-2.0 */
/* io.c: see io.h. Owns the counters of calls and the point of failure, nothing else. */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE /* preadv, realpath */
#define _GNU_SOURCE     /* O_PATH */

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/check.h"
#include "base/error.h"

#define DISK_UNIT 512 /* of st_blocks, whatever the file system's blocks are */

/* ---- faults ---- */

/* The counters only rise, so the n-th call from now has a number that no other one has. */
static _Atomic uint64_t n_calls[BASE_IO_SET_COUNT];
static _Atomic uint64_t n_reported[BASE_IO_SET_COUNT]; /* n_calls at the last base_io_count */
static _Atomic uint64_t fault_number;                  /* the call that fails; 0: none */
static _Atomic int fault_kind, fault_set;

/* Counts a call, and returns its fault. set: the smallest one that contains the call. */
static base_io_fault count_call(base_io_set set) {
    BASE_ASSERT((unsigned)set < BASE_IO_SET_COUNT);
    uint64_t numbers[BASE_IO_SET_COUNT] = {0};
    for (int i = 0; i <= (int)set; i++)
        numbers[i] = atomic_fetch_add_explicit(&n_calls[i], 1, memory_order_relaxed) + 1;
    uint64_t fault = atomic_load_explicit(&fault_number, memory_order_relaxed);
    if (BASE_LIKELY(fault == 0) || numbers[atomic_load_explicit(&fault_set, memory_order_relaxed)] != fault)
        return BASE_IO_NO_FAULT;
    return (base_io_fault)atomic_load_explicit(&fault_kind, memory_order_relaxed);
}

/* Does the fault prevent the call? Then errno is the cause. */
static bool is_refused(base_io_fault fault) {
    switch (fault) {
    case BASE_IO_EIO: errno = EIO; return true;
    case BASE_IO_ENOSPC: errno = ENOSPC; return true;
    case BASE_IO_EMFILE: errno = EMFILE; return true;
    default: return false;
    }
}

/* The same for a call that transfers nothing. */
static bool meets_fault(base_io_set set) {
    base_io_fault fault = count_call(set);
    if (fault == BASE_IO_KILL) raise(SIGKILL);
    return is_refused(fault == BASE_IO_SHORT ? BASE_IO_EIO : fault);
}

void base_io_fault_at(uint64_t n, base_io_fault fault, base_io_set set) {
    uint64_t now = atomic_load_explicit(&n_calls[set], memory_order_relaxed);
    atomic_store_explicit(&fault_number, 0, memory_order_relaxed);
    atomic_store_explicit(&fault_kind, (int)fault, memory_order_relaxed);
    atomic_store_explicit(&fault_set, (int)set, memory_order_relaxed);
    atomic_store_explicit(&fault_number, n ? now + n : 0, memory_order_relaxed);
}

uint64_t base_io_count(base_io_set set) {
    uint64_t now = atomic_load_explicit(&n_calls[set], memory_order_relaxed);
    return now - atomic_exchange_explicit(&n_reported[set], now, memory_order_relaxed);
}

/* ---- errors ---- */

static const char *io_advice(int cause) {
    switch (cause) {
    case ENOSPC:
    case EDQUOT: return ": free disk space, or lower the store's disk limit";
    case EMFILE:
    case ENFILE: return ": too many files are open: raise the limit (ulimit -n)";
    case EACCES:
    case EPERM:
    case EROFS: return ": check the permissions";
    case ELOOP: return ": neither the folder nor the file may be a symbolic link";
    case ENOTDIR: return ": a part of the path is a file or a symbolic link";
    case EIO: return ": the disk may be failing";
    default: return "";
    }
}

/* RP_ERR_IO by errno, which stays as it is. */
static int io_fail(rp_error *err, const char *what, const char *path) {
    int cause = errno;
    BASE_DCHECK(cause != 0); /* invariant 7 */
    char text[128];
    base_fail(err, RP_ERR_IO, "%s '%s': %s%s", what, path, base_errno_text(cause, text, sizeof text), io_advice(cause));
    errno = cause;
    return RP_ERR_IO;
}

/* ---- opening ---- */

static void close_quietly(int fd) {
    int cause = errno;
    close(fd);
    errno = cause;
}

/* The folder of a path, held open, and the name in it. */
typedef struct place {
    int fd; /* AT_FDCWD: the working folder */
    const char *name;
} place;

/* Neither the folder nor, in the following calls, the file may be a symbolic link. false: errno is the cause. */
static bool place_open(place *p, const char *path) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    *p = (place){AT_FDCWD, slash && slash[1] ? slash + 1 : path};
    if (p->name == path) return true;
    size_t n = slash == path ? 1 : (size_t)(slash - path);
    if (n >= sizeof folder) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(folder, path, n);
    folder[n] = '\0';
    do p->fd = open(folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    while (p->fd < 0 && errno == EINTR);
    return p->fd >= 0;
}

static void place_close(const place *p) {
    if (p->fd >= 0) close_quietly(p->fd);
}

static int open_again(const char *path, int flags, mode_t mode) {
    place p;
    if (!place_open(&p, path)) return -1;
    int fd;
    do fd = openat(p.fd, p.name, flags | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW, mode);
    while (fd < 0 && errno == EINTR);
    place_close(&p);
    return fd;
}

int base_io_resolve(const char *path, char *out, size_t n, rp_error *err) {
    char real[PATH_MAX], folder[PATH_MAX];
    size_t length = strlen(path);
    const char *name = "";
    if (!realpath(path, real)) {
        while (length > 1 && path[length - 1] == '/') length--;
        if (errno != ENOENT || length == 0 || length >= sizeof folder) return io_fail(err, "cannot examine", path);
        memcpy(folder, path, length);
        folder[length] = '\0';
        char *slash = strrchr(folder, '/');
        name = slash ? path + (slash - folder) + 1 : path;
        length -= (size_t)(name - path);
        if (slash) slash[slash == folder] = '\0';
        if (!realpath(slash ? folder : ".", real)) return io_fail(err, "cannot examine", path);
    } else {
        length = 0;
    }
    if (snprintf(out, n, "%s%s%.*s", real, length > 0 && real[1] ? "/" : "", (int)length, name) < (int)n) return RP_OK;
    errno = ENAMETOOLONG;
    return io_fail(err, "cannot examine", path);
}

int base_io_open(base_io_file *out, const char *path, rp_error *err) {
    struct stat st;
    *out = (base_io_file){0};
    int fd = meets_fault(BASE_IO_ALL) ? -1 : open_again(path, O_RDONLY | O_NONBLOCK, 0); /* a pipe must not stop us */
    if (fd < 0) return io_fail(err, "cannot open", path);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        base_fail(err, RP_ERR_IO, "cannot read '%s': it is not a regular file", path);
        errno = EINVAL;
        return RP_ERR_IO;
    }
    *out = (base_io_file){fd, path};
    return RP_OK;
}

/* NULL: it is one of ours. */
static const char *foreign_reason(const struct stat *st, const struct stat *folder) {
    if (S_ISLNK(st->st_mode)) return "a symbolic link";
    if (!S_ISREG(st->st_mode)) return "not a regular file";
    if (st->st_nlink > 1) return "a file with other names (hard links)";
    return st->st_uid != geteuid() && st->st_uid != folder->st_uid ? "a file of another user" : NULL;
}

/* O_PATH: closing such a descriptor does not release the locks that SQLite has on the file. */
int base_io_make_private(const char *path, rp_error *err) {
    char name[32];
    struct stat st, folder;
    place p;
    if (!place_open(&p, path)) return io_fail(err, "cannot examine", path);
    int fd = openat(p.fd, p.name, O_PATH | O_NOFOLLOW | O_CLOEXEC), rc = RP_OK;
    if (fd < 0) rc = errno == ENOENT ? RP_OK : io_fail(err, "cannot examine", path);
    else if (fstat(fd, &st) != 0 || fstatat(p.fd, "", &folder, AT_EMPTY_PATH) != 0)
        rc = io_fail(err, "cannot examine", path);
    else {
        const char *reason = foreign_reason(&st, &folder);
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        if (reason) {
            rc = base_fail(err, RP_ERR_IO,
                           "'%s' is not used: it is %s: remove it, or replace it with a copy of its own", path, reason);
            errno = EMLINK;
        } else if (st.st_mode & (S_IRWXG | S_IRWXO)) {
            (void)chmod(name, S_IRUSR | S_IWUSR); /* another owner's: opening it will fail */
        }
    }
    if (fd >= 0) close_quietly(fd);
    place_close(&p);
    return rc;
}

int base_io_create(base_io_file *out, const char *path, rp_error *err) {
    *out = (base_io_file){0};
    int fd = meets_fault(BASE_IO_CHANGES) ? -1 : open_again(path, O_WRONLY | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
    if (fd < 0) return io_fail(err, "cannot create", path);
    *out = (base_io_file){fd, path};
    return RP_OK;
}

bool base_io_lock(const base_io_file *f) {
    BASE_ASSERT(f->path); /* it is open: a closed one has the descriptor 0 */
    int rc;
    do rc = flock(f->fd, LOCK_EX | LOCK_NB);
    while (rc != 0 && errno == EINTR);
    return rc == 0;
}

int base_io_map(base_map *out, const base_io_file *f, size_t n, rp_error *err) {
    BASE_ASSERT(f->path);
    *out = (base_map){0};
    void *data = meets_fault(BASE_IO_ALL) ? MAP_FAILED : mmap(NULL, n, PROT_READ, MAP_PRIVATE, f->fd, 0);
    if (data == MAP_FAILED) return io_fail(err, "cannot map", f->path);
    (void)madvise(data, n, MADV_HUGEPAGE); /* only advice: some file systems have huge pages of files */
    *out = (base_map){.data = data, .bytes = n};
    return RP_OK;
}

void base_io_close(base_io_file *f) {
    if (f->path) close_quietly(f->fd);
    *f = (base_io_file){0};
}

/* ---- transfers ---- */

static size_t total_bytes(const struct iovec *pieces, int n) {
    size_t total = 0;
    for (int i = 0; i < n; i++) total += pieces[i].iov_len;
    return total;
}

/* Bytes [begin, end) of the pieces, as pieces. */
static int iovec_cut(const struct iovec *pieces, int n, size_t begin, size_t end, struct iovec *out) {
    BASE_DCHECK(begin <= end && n <= BASE_IO_MAX_PIECES);
    int n_out = 0;
    size_t at = 0;
    for (int i = 0; i < n; at += pieces[i++].iov_len) {
        size_t first = BASE_MAX(begin, at), last = BASE_MIN(end, at + pieces[i].iov_len);
        if (first < last) out[n_out++] = (struct iovec){(char *)pieces[i].iov_base + (first - at), last - first};
    }
    return n_out;
}

typedef struct transfer {
    const base_io_file *file;
    const struct iovec *pieces;
    int n;
    bool is_read;
    uint64_t offset;   /* of a read */
    bool is_signalled; /* a signal comes before the next byte, and after it the system takes only one */
} transfer;

/* One call of the system: bytes [begin, end), or fewer. */
static ssize_t transfer_once(transfer *t, size_t begin, size_t end) {
    struct iovec pieces[BASE_IO_MAX_PIECES];
    if (t->is_signalled && begin == 0) {
        t->is_signalled = false;
        errno = EINTR;
        return -1;
    }
    int n = iovec_cut(t->pieces, t->n, begin, end, pieces);
    if (!t->is_read) return writev(t->file->fd, pieces, n);
    return preadv(t->file->fd, pieces, n, (off_t)(t->offset + begin));
}

/* Transfers the first `end` bytes of the pieces. Returns how many: fewer at the end of a file, or with errno set. */
static size_t transfer_all(transfer *t, size_t end) {
    size_t done = 0;
    bool in_pieces = t->is_signalled;
    errno = 0;
    while (done < end) {
        ssize_t n = transfer_once(t, done, in_pieces && done == 0 ? 1 : end);
        if (n < 0 && errno == EINTR) {
            errno = 0;
            continue;
        }
        if (n == 0 && !t->is_read) errno = EIO; /* a system that writes nothing and sets no errno */
        if (n <= 0) return done;
        BASE_ASSERT((size_t)n <= end - done);
        done += (size_t)n;
    }
    return done;
}

int base_io_readv(const base_io_file *f, uint64_t offset, const struct iovec *pieces, int n, size_t *n_read,
                  rp_error *err) {
    BASE_ASSERT(f->path && n <= BASE_IO_MAX_PIECES);
    base_io_fault fault = count_call(BASE_IO_ALL);
    size_t bytes = total_bytes(pieces, n);
    transfer t = {.file = f,
                  .pieces = pieces,
                  .n = n,
                  .is_read = true,
                  .offset = offset,
                  .is_signalled = fault == BASE_IO_INTERRUPT};
    *n_read = 0;
    if (fault == BASE_IO_KILL) raise(SIGKILL);
    if (is_refused(fault)) return io_fail(err, "cannot read", f->path);
    *n_read = transfer_all(&t, fault == BASE_IO_SHORT ? bytes / 2 : bytes);
    return errno ? io_fail(err, "cannot read", f->path) : RP_OK;
}

int base_io_read(const base_io_file *f, uint64_t offset, void *bytes, size_t n, size_t *n_read, rp_error *err) {
    return base_io_readv(f, offset, &(struct iovec){bytes, n}, 1, n_read, err);
}

int base_io_writev(const base_io_file *f, const struct iovec *pieces, int n, rp_error *err) {
    BASE_ASSERT(f->path && n <= BASE_IO_MAX_PIECES);
    base_io_fault fault = count_call(BASE_IO_CHANGES);
    size_t bytes = total_bytes(pieces, n);
    transfer t = {.file = f, .pieces = pieces, .n = n, .is_signalled = fault == BASE_IO_INTERRUPT};
    if (is_refused(fault)) return io_fail(err, "cannot write", f->path);
    bool is_half = fault == BASE_IO_SHORT || fault == BASE_IO_KILL;
    transfer_all(&t, is_half ? bytes / 2 : bytes);
    if (fault == BASE_IO_KILL) raise(SIGKILL);
    if (fault == BASE_IO_SHORT) errno = ENOSPC;
    return errno ? io_fail(err, "cannot write", f->path) : RP_OK;
}

/* ---- the rest ---- */

int base_io_reserve(const base_io_file *f, uint64_t n, rp_error *err) {
    BASE_ASSERT(f->path);
    int rc = meets_fault(BASE_IO_CHANGES) ? -1 : 0;
    bool is_refused_here = rc != 0;
    while (!is_refused_here && (rc = fallocate(f->fd, 0, 0, (off_t)n)) != 0 && errno == EINTR) continue;
    if (rc == 0 || (!is_refused_here && (errno == EOPNOTSUPP || errno == ENOSYS))) return RP_OK;
    return io_fail(err, "cannot reserve disk space for", f->path);
}

int base_io_touch(const base_io_file *f, rp_error *err) {
    BASE_ASSERT(f->path);
    return meets_fault(BASE_IO_CHANGES) || futimens(f->fd, NULL) != 0 ? io_fail(err, "cannot set the time of", f->path)
                                                                      : RP_OK;
}

int base_io_free_bytes(const char *folder, uint64_t *out, rp_error *err) {
    struct statvfs v;
    *out = 0;
    if (meets_fault(BASE_IO_ALL) || statvfs(folder, &v) != 0) return io_fail(err, "cannot examine the disk of", folder);
    *out = (uint64_t)v.f_bavail * v.f_frsize;
    return RP_OK;
}

static int sync_again(int fd) {
    int rc;
    do rc = fsync(fd);
    while (rc != 0 && errno == EINTR);
    return rc;
}

int base_io_sync(const base_io_file *f, rp_error *err) {
    BASE_ASSERT(f->path);
    return meets_fault(BASE_IO_CHANGES) || sync_again(f->fd) != 0 ? io_fail(err, "cannot sync", f->path) : RP_OK;
}

int base_io_sync_folder(const char *path, rp_error *err) {
    int fd = meets_fault(BASE_IO_CHANGES) ? -1 : open_again(path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0) return io_fail(err, "cannot sync", path);
    bool is_done = sync_again(fd) == 0 || errno == EINVAL; /* EINVAL: a file system that has no such thing */
    close_quietly(fd);
    return is_done ? RP_OK : io_fail(err, "cannot sync", path);
}

int base_io_sync_folder_of(char *path, rp_error *err) {
    char *slash = strrchr(path, '/');
    if (!slash) return base_io_sync_folder(".", err);
    slash[slash == path] = '\0';
    return base_io_sync_folder(path, err);
}

bool base_io_is_full(int cause) { return cause == ENOSPC || cause == EDQUOT; }

static bool rename_at(const char *from, const char *to) {
    place a, b;
    if (!place_open(&a, from)) return false;
    bool is_done = place_open(&b, to);
    if (is_done) {
        is_done = renameat(a.fd, a.name, b.fd, b.name) == 0;
        place_close(&b);
    }
    place_close(&a);
    return is_done;
}

int base_io_rename(const char *from, const char *to, rp_error *err) {
    return meets_fault(BASE_IO_CHANGES) || !rename_at(from, to) ? io_fail(err, "cannot rename to", to) : RP_OK;
}

int base_io_unlink(const char *path, rp_error *err) {
    place p;
    if (meets_fault(BASE_IO_CHANGES)) return io_fail(err, "cannot remove", path);
    if (!place_open(&p, path)) return errno == ENOENT ? RP_OK : io_fail(err, "cannot remove", path);
    const bool is_gone = unlinkat(p.fd, p.name, 0) == 0 || errno == ENOENT;
    place_close(&p);
    return is_gone ? RP_OK : io_fail(err, "cannot remove", path);
}

/* A folder is created even if its parent may not be read: then its name cannot be synced. */
static bool sync_parent(int parent) {
    int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno == EACCES;
    bool is_done = sync_again(fd) == 0 || errno == EINVAL;
    close_quietly(fd);
    return is_done;
}

static bool mkdir_at(const char *path) {
    struct stat st;
    place p;
    if (!place_open(&p, path)) return false;
    bool is_made = mkdirat(p.fd, p.name, S_IRWXU) == 0, is_there = is_made && sync_parent(p.fd);
    if (!is_made && errno == EEXIST) {
        is_there = fstatat(p.fd, p.name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
        errno = ENOTDIR;
    }
    place_close(&p);
    return is_there;
}

int base_io_mkdir(const char *path, rp_error *err) {
    return meets_fault(BASE_IO_CHANGES) || !mkdir_at(path) ? io_fail(err, "cannot make the folder", path) : RP_OK;
}

int base_io_mkdirs(const char *path, rp_error *err) {
    char folder[PATH_MAX];
    struct stat st;
    if (snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder) {
        errno = ENAMETOOLONG;
        return io_fail(err, "cannot make the folder", path);
    }
    for (char *slash = strchr(folder + 1, '/'); folder[0] && slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int rc = stat(folder, &st) == 0 && S_ISDIR(st.st_mode) ? RP_OK : base_io_mkdir(folder, err);
        if (rc) return rc;
        *slash = '/';
    }
    return base_io_mkdir(folder, err);
}

int base_io_open_folder(DIR **out, const char *path, rp_error *err) {
    int fd = meets_fault(BASE_IO_ALL) ? -1 : open_again(path, O_RDONLY | O_DIRECTORY, 0);
    *out = fd < 0 ? NULL : fdopendir(fd);
    if (*out) return RP_OK;
    if (fd >= 0) close_quietly(fd);
    return io_fail(err, "cannot read the folder", path);
}

int base_io_write_whole(const char *path, const void *bytes, size_t n, rp_error *err) {
    char temporary[PATH_MAX];
    base_io_file file = {0};
    if (snprintf(temporary, sizeof temporary, "%s" BASE_IO_TEMPORARY, path) >= (int)sizeof temporary) {
        errno = ENAMETOOLONG;
        return io_fail(err, "cannot create", path);
    }
    int rc = base_io_unlink(temporary, err);
    if (!rc) rc = base_io_create(&file, temporary, err);
    if (rc) return rc;
    if (!(rc = base_io_writev(&file, &(struct iovec){(void *)(uintptr_t)bytes, n}, 1, err)))
        rc = base_io_sync(&file, err);
    base_io_close(&file);
    if (!rc) rc = base_io_rename(temporary, path, err);
    if (!rc) return base_io_sync_folder_of(temporary, err);
    int cause = errno;
    base_io_unlink(temporary, NULL);
    errno = cause;
    return rc;
}

static base_io_sizes sizes_of(const struct stat *st) {
    return (base_io_sizes){.bytes = (uint64_t)st->st_size,
                           .disk_bytes = (uint64_t)st->st_blocks * DISK_UNIT,
                           .is_file = S_ISREG(st->st_mode),
                           .is_private = st->st_uid == geteuid() && (st->st_mode & (S_IWGRP | S_IWOTH)) == 0,
                           .mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec};
}

int base_io_stat(const char *path, base_io_sizes *out, rp_error *err) {
    struct stat st;
    place p;
    *out = (base_io_sizes){0};
    if (meets_fault(BASE_IO_ALL) || !place_open(&p, path)) return io_fail(err, "cannot examine", path);
    const bool is_there = fstatat(p.fd, p.name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    place_close(&p);
    if (!is_there) return io_fail(err, "cannot examine", path);
    *out = sizes_of(&st);
    return RP_OK;
}

int base_io_stat_file(const base_io_file *f, base_io_sizes *out, rp_error *err) {
    BASE_ASSERT(f->path);
    struct stat st;
    *out = (base_io_sizes){0};
    if (meets_fault(BASE_IO_ALL) || fstat(f->fd, &st) != 0) return io_fail(err, "cannot examine", f->path);
    *out = sizes_of(&st);
    return RP_OK;
}
