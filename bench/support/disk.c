/* SPDX-License-Identifier: Apache-2.0 */
/* disk.c: a store's files on disk: how much of them the page cache holds, and how fast they are read. */
#define _GNU_SOURCE /* mincore */

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support.h"

#define RECORD_END ".rps"

/* ---- list of files ---- */

static void add_file(bench_files *f, const char *folder, const char *name) {
    struct stat st;
    char *path = malloc(strlen(folder) + strlen(name) + 2);
    f->paths = realloc(f->paths, (f->n + 1) * sizeof(*f->paths));
    f->sizes = realloc(f->sizes, (f->n + 1) * sizeof(*f->sizes));
    if (!path || !f->paths || !f->sizes) bench_die("out of memory", NULL);
    sprintf(path, "%s/%s", folder, name);
    if (stat(path, &st) != 0) bench_die(path, NULL);
    f->paths[f->n] = path;
    f->sizes[f->n++] = (uint64_t)st.st_size;
    f->bytes += (uint64_t)st.st_size;
}

static bool is_record(const char *name) {
    size_t n = strlen(name), end = sizeof(RECORD_END) - 1;
    return n > end && strcmp(name + n - end, RECORD_END) == 0;
}

bench_files bench_files_of(const char *dir) {
    bench_files f = {0};
    for (int i = 0; i < 16; i++) {
        char folder[4096];
        snprintf(folder, sizeof(folder), "%s/%x", dir, (unsigned)i);
        DIR *d = opendir(folder);
        for (const struct dirent *e; d && (e = readdir(d));)
            if (is_record(e->d_name)) add_file(&f, folder, e->d_name);
        if (d) closedir(d);
    }
    return f;
}

void bench_files_free(bench_files *f) {
    for (size_t i = 0; i < f->n; i++) free(f->paths[i]);
    free(f->paths);
    free(f->sizes);
    *f = (bench_files){0};
}

/* ---- page cache ---- */

static uint64_t cached_bytes(int fd, uint64_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (size_t)(size + page - 1) / page;
    uint64_t bytes = 0;
    unsigned char *in = malloc(n);
    void *map = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
    if (!in || map == MAP_FAILED || mincore(map, (size_t)size, in) != 0) bench_die("mincore", NULL);
    for (size_t i = 0; i < n; i++) bytes += in[i] & 1 ? page : 0;
    munmap(map, (size_t)size);
    free(in);
    return bytes;
}

uint64_t bench_files_forget(const bench_files *f) {
    uint64_t left = 0;
    for (size_t i = 0; i < f->n; i++) {
        int fd = open(f->paths[i], O_RDONLY | O_CLOEXEC);
        if (fd < 0) bench_die(f->paths[i], NULL);
        fsync(fd); /* only a clean page can be removed from the cache */
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        if (f->sizes[i] > 0) left += cached_bytes(fd, f->sizes[i]);
        close(fd);
    }
    return left;
}

/* ---- read speed ---- */

typedef struct reading {
    const bench_files *files;
    const int *fds;
    size_t piece;
    atomic_size_t next; /* index of a piece: the same piece of all files, then the next, as a request reads layers */
    size_t n_pieces;    /* of the largest file */
    atomic_bool failed;
} reading;

static void *read_pieces(void *arg) {
    reading *r = arg;
    char *bytes = aligned_alloc(4096, r->piece);
    if (!bytes) bench_die("out of memory", NULL);
    for (size_t i; (i = atomic_fetch_add(&r->next, 1)) < r->n_pieces * r->files->n;) {
        size_t file = i % r->files->n;
        uint64_t at = (uint64_t)(i / r->files->n) * r->piece, end = r->files->sizes[file];
        while (at < end && at < (uint64_t)(i / r->files->n + 1) * r->piece) {
            ssize_t n = pread(r->fds[file], bytes, r->piece, (off_t)at);
            if (n <= 0) {
                atomic_store(&r->failed, true);
                break;
            }
            at += (uint64_t)n;
        }
    }
    free(bytes);
    return NULL;
}

double bench_files_read_gbs(const bench_files *f, int n_threads, size_t piece_bytes) {
    pthread_t threads[BENCH_MAX_THREADS];
    int *fds = malloc(f->n * sizeof(*fds));
    reading r = {.files = f, .fds = fds, .piece = piece_bytes};
    if (!fds || n_threads > BENCH_MAX_THREADS) bench_die("out of memory", NULL);
    for (size_t i = 0; i < f->n; i++) {
        if ((fds[i] = open(f->paths[i], O_RDONLY | O_CLOEXEC)) < 0) bench_die(f->paths[i], NULL);
        size_t n = (size_t)((f->sizes[i] + piece_bytes - 1) / piece_bytes);
        if (n > r.n_pieces) r.n_pieces = n;
    }
    double start = bench_now_s();
    for (int i = 0; i < n_threads; i++)
        if (pthread_create(&threads[i], NULL, read_pieces, &r) != 0) bench_die("a thread", NULL);
    for (int i = 0; i < n_threads; i++) pthread_join(threads[i], NULL);
    double seconds = bench_now_s() - start;
    for (size_t i = 0; i < f->n; i++) close(fds[i]);
    free(fds);
    if (atomic_load(&r.failed)) bench_die("the records cannot be read", NULL);
    return (double)f->bytes / seconds / 1e9;
}

/* ---- folders ---- */

void bench_folder_remove(const char *dir) {
    DIR *d = opendir(dir);
    char path[4096];
    for (const struct dirent *e; d && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) >= (int)sizeof(path)) continue;
        if (unlink(path) != 0) bench_folder_remove(path);
    }
    if (d) closedir(d);
    rmdir(dir);
}
