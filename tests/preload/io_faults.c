/* SPDX-License-Identifier: Apache-2.0 */
/* io_faults.c: an LD_PRELOAD library that injects failures into a program's file calls below one folder, SQLite's
 * included.
 *
 *   IO_FAULTS_BELOW=DIR    counts calls on this folder and its contents, by path or by descriptor
 *   IO_FAULTS_AT=N         the N-th of them fails, counted from 1; without it none does
 *   IO_FAULTS_FOR=M        and the M - 1 after it (1); 0: all after it
 *   IO_FAULTS_ERRNO=E      with this errno, a number (EIO)
 *   IO_FAULTS_DELAY_MS=D   delay of every counted fsync and fdatasync (0)
 *   IO_FAULTS_DELAY_IF=FILE  only while this file exists
 *   IO_FAULTS_COUNT=FILE   writes the number of calls to this file at exit
 *
 * The counted calls are open, read, write, sync, truncate, rename, unlink, mkdir, stat, lock, and their variants. close
 * never fails. Thread-safe.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static atomic_long calls;

static long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 10) : otherwise;
}

static bool is_below(const char *path) {
    const char *dir = getenv("IO_FAULTS_BELOW");
    size_t n = dir ? strlen(dir) : 0;
    return n > 0 && strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* A relative path below a descriptor of the folder is below it, too. */
static bool is_ours(int dirfd, const char *path) {
    char name[64], target[PATH_MAX];
    if (path && path[0] == '/') return is_below(path);
    if (dirfd == AT_FDCWD) return false;
    snprintf(name, sizeof(name), "/proc/self/fd/%d", dirfd);
    ssize_t n = readlink(name, target, sizeof(target) - 1);
    if (n <= 0) return false;
    target[n] = '\0';
    return is_below(target);
}

/* Counts a call; true: it has to fail, and errno is set. */
static bool fails(int dirfd, const char *path) {
    if (!is_ours(dirfd, path)) return false;
    long at = setting("IO_FAULTS_AT", 0), most = setting("IO_FAULTS_FOR", 1), n = atomic_fetch_add(&calls, 1) + 1;
    if (at <= 0 || n < at || (most > 0 && n >= at + most)) return false;
    errno = (int)setting("IO_FAULTS_ERRNO", EIO);
    return true;
}

static void delay_sync(int fd) {
    long ms = is_ours(fd, NULL) ? setting("IO_FAULTS_DELAY_MS", 0) : 0;
    const char *condition = getenv("IO_FAULTS_DELAY_IF");
    if (ms > 0 && (!condition || access(condition, F_OK) == 0))
        nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

__attribute__((destructor)) static void count_write(void) {
    const char *path = getenv("IO_FAULTS_COUNT");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f) return;
    fprintf(f, "%ld\n", atomic_load(&calls));
    fclose(f);
}

/* The C library's function of the same name. */
#define NEXT(result, name, ...) \
    static result (*next)(__VA_ARGS__); \
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, #name)

static int mode_of(int flags, va_list more) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0; }

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        NEXT(int, name, const char *, int, ...); \
        va_list more; \
        va_start(more, flags); \
        int mode = mode_of(flags, more); \
        va_end(more); \
        return fails(AT_FDCWD, path) ? -1 : next(path, flags, mode); \
    }
#define OPENAT(name) \
    int name(int dirfd, const char *path, int flags, ...) { \
        NEXT(int, name, int, const char *, int, ...); \
        va_list more; \
        va_start(more, flags); \
        int mode = mode_of(flags, more); \
        va_end(more); \
        return fails(dirfd, path) ? -1 : next(dirfd, path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

#define FD3(result, name, A, B) \
    result name(int fd, A a, B b) { \
        NEXT(result, name, int, A, B); \
        return fails(fd, NULL) ? -1 : next(fd, a, b); \
    }
#define FD4(result, name, A, B, C) \
    result name(int fd, A a, B b, C c) { \
        NEXT(result, name, int, A, B, C); \
        return fails(fd, NULL) ? -1 : next(fd, a, b, c); \
    }
FD3(ssize_t, read, void *, size_t)
FD3(ssize_t, write, const void *, size_t)
FD3(ssize_t, readv, const struct iovec *, int)
FD3(ssize_t, writev, const struct iovec *, int)
FD4(ssize_t, pread, void *, size_t, off_t)
FD4(ssize_t, pread64, void *, size_t, off64_t)
FD4(ssize_t, pwrite, const void *, size_t, off_t)
FD4(ssize_t, pwrite64, const void *, size_t, off64_t)
FD4(ssize_t, preadv, const struct iovec *, int, off_t)
FD4(ssize_t, preadv64, const struct iovec *, int, off64_t)
FD4(ssize_t, pwritev, const struct iovec *, int, off_t)
FD4(ssize_t, pwritev64, const struct iovec *, int, off64_t)

#define FD2(name, A) \
    int name(int fd, A a) { \
        NEXT(int, name, int, A); \
        return fails(fd, NULL) ? -1 : next(fd, a); \
    }
FD2(ftruncate, off_t)
FD2(ftruncate64, off64_t)
FD2(flock, int)
FD2(fchmod, mode_t)

#define SYNC(name) \
    int name(int fd) { \
        NEXT(int, name, int); \
        delay_sync(fd); \
        return fails(fd, NULL) ? -1 : next(fd); \
    }
SYNC(fsync)
SYNC(fdatasync)

int rename(const char *from, const char *to) {
    NEXT(int, rename, const char *, const char *);
    return fails(AT_FDCWD, from) ? -1 : next(from, to);
}
int renameat(int fd, const char *from, int to_fd, const char *to) {
    NEXT(int, renameat, int, const char *, int, const char *);
    return fails(fd, from) ? -1 : next(fd, from, to_fd, to);
}
int unlink(const char *path) {
    NEXT(int, unlink, const char *);
    return fails(AT_FDCWD, path) ? -1 : next(path);
}
int unlinkat(int fd, const char *path, int flags) {
    NEXT(int, unlinkat, int, const char *, int);
    return fails(fd, path) ? -1 : next(fd, path, flags);
}
int mkdir(const char *path, mode_t mode) {
    NEXT(int, mkdir, const char *, mode_t);
    return fails(AT_FDCWD, path) ? -1 : next(path, mode);
}
int mkdirat(int fd, const char *path, mode_t mode) {
    NEXT(int, mkdirat, int, const char *, mode_t);
    return fails(fd, path) ? -1 : next(fd, path, mode);
}
int stat(const char *restrict path, struct stat *restrict out) {
    NEXT(int, stat, const char *, struct stat *);
    return fails(AT_FDCWD, path) ? -1 : next(path, out);
}
int fstatat(int fd, const char *restrict path, struct stat *restrict out, int flags) {
    NEXT(int, fstatat, int, const char *, struct stat *, int);
    return fails(fd, path) ? -1 : next(fd, path, out, flags);
}
