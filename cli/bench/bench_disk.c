/* SPDX-License-Identifier: Apache-2.0 */
/* bench_disk.c: see bench_disk.h. */
#define _DEFAULT_SOURCE /* st_mtim */

#include "bench/bench_disk.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "common/command.h"
#include "common/console.h"

#define LOOK_EVERY_MS 10
#define MOST_TRIES 20
#define PATH_BYTES 4096
#define INDEX "index.db"  /* prefix of the index's files: also its log and its shared memory */
#define DEMAND 10         /* number of budgets that must have been written */
#define INDEX_GROWTH 1.25 /* allowed growth of the index after it has settled, */
#define INDEX_GROWTH_BYTES ((uint64_t)256 << 10)
#define FILES_GROWTH 1.5 /* and of the number of records, which differ in size */

struct bench_disk_watch {
    const char *dir;
    uint64_t budget;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closing, settled; /* these are guarded by the lock */
    bench_disk_seen first, later;
};

/* ---- a sample ---- */

typedef struct look {
    uint64_t bytes, index_bytes;
    uint64_t changes; /* of names: sum of the folders' modification times */
    int32_t files;
} look;

static uint64_t time_of(const struct stat *st) {
    return (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec;
}

/* Adds the disk blocks of a file, or of a folder and its content; a deleted one adds nothing. */
static void bench_disk_examine(look *l, const char *path, const char *name) {
    char inner[PATH_BYTES];
    struct stat st;
    if (lstat(path, &st) != 0) return;
    l->bytes += (uint64_t)st.st_blocks * 512;
    if (strncmp(name, INDEX, sizeof INDEX - 1) == 0) l->index_bytes += (uint64_t)st.st_blocks * 512;
    if (!S_ISDIR(st.st_mode)) {
        l->files++;
        return;
    }
    l->changes += time_of(&st);
    DIR *d = opendir(path);
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        if (snprintf(inner, sizeof inner, "%s/%s", path, e->d_name) < (int)sizeof inner)
            bench_disk_examine(l, inner, e->d_name);
    }
    if (d != NULL) closedir(d);
    l->changes += stat(path, &st) == 0 ? (uint64_t)0 - time_of(&st) : 1; /* adds up to 0 if the time has not changed */
}

static int32_t count_entries(const char *path) {
    DIR *d = opendir(path);
    int32_t n = 0;
    while (d != NULL && readdir(d) != NULL) n++;
    if (d != NULL) closedir(d);
    return n > 3 ? n - 3 : 0; /* ".", "..", and, for open files, this folder */
}

/* `changes` is 0 if no folder changed during the sample. */
static look look_once(const bench_disk_watch *w) {
    look l = {0};
    for (int i = 0; i < MOST_TRIES; i++) {
        l = (look){0};
        bench_disk_examine(&l, w->dir, "");
        if (l.changes == 0 || l.bytes <= w->budget) break;
    }
    return l;
}

static void bench_disk_seen_note(bench_disk_seen *s, const look *l, int32_t open_files, int32_t threads) {
    if (l->bytes > s->bytes) s->bytes = l->bytes;
    if (l->index_bytes > s->index_bytes) s->index_bytes = l->index_bytes;
    if (l->files > s->files) s->files = l->files;
    if (s->looks == 0 || open_files < s->open_files) s->open_files = open_files;
    if (s->looks == 0 || threads < s->threads) s->threads = threads;
    s->looks++;
}

/* ---- sampling thread ---- */

/* With the lock held. */
static void wait_a_moment(bench_disk_watch *w) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_EVERY_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    if (!w->closing) pthread_cond_timedwait(&w->changed, &w->lock, &until);
}

static void *watch_main(void *arg) {
    bench_disk_watch *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->closing) {
        bool settled = w->settled;
        pthread_mutex_unlock(&w->lock);
        look l = look_once(w);
        int32_t open_files = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
        pthread_mutex_lock(&w->lock);
        bench_disk_seen_note(settled ? &w->later : &w->first, &l, open_files, threads);
        wait_a_moment(w);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int bench_disk_watch_begin(bench_disk_watch **out, const char *dir, uint64_t budget_bytes) {
    bench_disk_watch *w = cli_alloc(sizeof *w);
    *w = (bench_disk_watch){.dir = dir, .budget = budget_bytes};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    *out = w;
    if (pthread_create(&w->thread, NULL, watch_main, w) == 0) return CLI_OK;
    *out = NULL;
    free(w);
    return cli_fail(CLI_FAILED, "cannot start a thread to watch %s", dir);
}

void bench_disk_watch_settled(bench_disk_watch *w) {
    if (w == NULL) return;
    pthread_mutex_lock(&w->lock);
    w->settled = true;
    pthread_mutex_unlock(&w->lock);
}

static bool is_flat(const bench_disk_seen *first, const bench_disk_seen *later) {
    return later->index_bytes <= (uint64_t)((double)first->index_bytes * INDEX_GROWTH) + INDEX_GROWTH_BYTES &&
           later->files <= (int32_t)((double)first->files * FILES_GROWTH) + 16 &&
           later->open_files <= first->open_files && later->threads <= first->threads;
}

void bench_disk_watch_end(bench_disk_watch *w, uint64_t written_bytes, bool settled_early, bench_disk_verdict *out) {
    *out = (bench_disk_verdict){.inside = true, .flat = true};
    if (w == NULL) return;
    pthread_mutex_lock(&w->lock);
    w->closing = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    out->watched = true;
    out->budget_bytes = w->budget;
    out->written_bytes = written_bytes;
    out->first = w->first;
    out->later = w->later;
    out->inside = w->first.bytes <= w->budget && w->later.bytes <= w->budget;
    out->judged = settled_early && written_bytes >= DEMAND * w->budget && w->later.looks > 0;
    out->flat = !out->judged || is_flat(&w->first, &w->later);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
