/* SPDX-License-Identifier: Apache-2.0 */
/* store_folder.c: see store_folder.h. */
#define _XOPEN_SOURCE 700 /* nftw, mkdtemp */
#include "store_folder.h"

#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_FOLDERS 8

/* Uses /dev/shm if it exists: fsync is free there, and a killed process loses no written data on either file system. */
void store_folder_make(char *out) {
    strcpy(out, access("/dev/shm", W_OK) == 0 ? "/dev/shm/reprise-XXXXXX" : "/tmp/reprise-XXXXXX");
    if (!mkdtemp(out)) abort();
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where) {
    (void)st;
    (void)type;
    (void)where;
    return remove(path);
}

void store_folder_remove(const char *dir) { nftw(dir, remove_entry, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS); }

void store_folder_key(const char *dir, char *out, unsigned char key) {
    unsigned char bytes[32];
    snprintf(out, STORE_FOLDER_BYTES, "%s.key%u", dir, key);
    FILE *f = fopen(out, "wb");
    memset(bytes, key, sizeof(bytes));
    if (!f || fchmod(fileno(f), 0600) || fwrite(bytes, sizeof(bytes), 1, f) != 1 || fclose(f)) abort();
}

/* nftw has no argument for its function: a walk at a time. */
static pthread_mutex_t walking = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uint64_t bytes;
    const char *end;
    int n;
    tiny_random *r;
} walk;

static bool ends(const char *path, const char *with) {
    size_t n = strlen(path), m = strlen(with);
    return n >= m && strcmp(path + n - m, with) == 0;
}

static int look_at(const char *path, const struct stat *st, int type, struct FTW *where) {
    (void)where;
    walk.bytes += (uint64_t)st->st_blocks * 512;
    walk.n += type == FTW_F && walk.end && ends(path, walk.end);
    return 0;
}

static void look(const char *dir, const char *end) {
    walk.bytes = 0;
    walk.n = 0;
    walk.end = end;
    nftw(dir, look_at, OPEN_FOLDERS, FTW_PHYS);
}

uint64_t store_folder_bytes(const char *dir) {
    pthread_mutex_lock(&walking);
    look(dir, NULL);
    uint64_t bytes = walk.bytes;
    pthread_mutex_unlock(&walking);
    return bytes;
}

int store_folder_count(const char *dir, const char *end) {
    pthread_mutex_lock(&walking);
    look(dir, end);
    int n = walk.n;
    pthread_mutex_unlock(&walking);
    return n;
}

static void flip(const char *path, uint64_t bytes) {
    FILE *f = fopen(path, "r+b");
    long at = (long)tiny_random_below(walk.r, bytes);
    if (!f || fseek(f, at, SEEK_SET)) abort();
    int c = fgetc(f);
    if (fseek(f, at, SEEK_SET) || fputc(c ^ (1 << tiny_random_below(walk.r, 8)), f) == EOF || fclose(f)) abort();
}

static int flip_last(const char *path, const struct stat *st, int type, struct FTW *where) {
    (void)where;
    if (type != FTW_F || st->st_size == 0 || !ends(path, walk.end)) return 0;
    FILE *f = fopen(path, "r+b");
    if (!f || fseek(f, -1, SEEK_END)) abort();
    int c = fgetc(f);
    if (fseek(f, -1, SEEK_END) || fputc(c ^ 1, f) == EOF || fclose(f)) abort();
    return 0;
}

void store_folder_flip(const char *dir, const char *end) {
    pthread_mutex_lock(&walking);
    walk.end = end;
    if (nftw(dir, flip_last, OPEN_FOLDERS, FTW_PHYS)) abort();
    pthread_mutex_unlock(&walking);
}

static int damage_some(const char *path, const struct stat *st, int type, struct FTW *where) {
    (void)where;
    if (type != FTW_F || st->st_size == 0 || ends(path, "/lock") || ends(path, "/reprise-store") ||
        tiny_random_below(walk.r, 4) != 0)
        return 0;
    switch (tiny_random_below(walk.r, 4)) {
    case 0: return unlink(path);
    case 1: return truncate(path, (off_t)tiny_random_below(walk.r, (uint64_t)st->st_size));
    default: flip(path, (uint64_t)st->st_size);
    }
    return 0;
}

void store_folder_damage(const char *dir, tiny_random *r) {
    pthread_mutex_lock(&walking);
    walk.r = r;
    if (nftw(dir, damage_some, OPEN_FOLDERS, FTW_PHYS)) abort();
    pthread_mutex_unlock(&walking);
}
