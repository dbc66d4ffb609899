/* SPDX-License-Identifier: Apache-2.0 */
/* file.h: whole-file reads, read-only maps, and new files that appear whole or not at all. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "base/buffer.h"
#include "reprise.h"

/* Reads a whole regular file of at most `limit` bytes into *out (owned by the caller, base_buffer_free).
 * RP_ERR_IO (cannot open or read, a directory), RP_ERR_LIMIT (larger), RP_ERR_MEMORY. */
int base_file_read(const char *path, size_t limit, base_buffer *out, rp_error *err);
/* base_file_read of a text that people edit: without the byte order mark that some editors write before UTF-8. Also
   RP_ERR_FORMAT (UTF-16). */
int base_file_read_text(const char *path, size_t limit, base_buffer *out, rp_error *err);

/* The same for a key or a secret: RP_ERR_INVALID if others may read or change the file. `what` is in the message: "the
 * store's key". Group members may read it: that is how an orchestrator gives a file to a process that is not its
 * owner. */
int base_file_read_secret(const char *path, size_t limit, const char *what, base_buffer *out, rp_error *err);

/* Identifies the content of a file without reading it: every change of the file changes its ctime, which no program can
   set back. */
typedef struct base_file_id {
    uint64_t device, inode, bytes;
    int64_t mtime_ns, ctime_ns; /* since 1970 */
    bool is_settled;            /* the last change was BASE_FILE_SETTLED_NS old when this was read: any later one will
                                   have another time */
} base_file_id;

#define BASE_FILE_SETTLED_NS INT64_C(2000000000) /* the coarsest clock of a file system (FAT) ticks every two seconds */

/* false: the file cannot be examined. */
bool base_file_identify(const char *path, base_file_id *out);
/* For tests: the time of day, in ns since 1970, that is_settled compares with. NULL: the system's. */
void base_file_set_clock(int64_t (*now_ns)(void));

/* A read-only, private map of a whole file. data is NULL when the file is empty (bytes = 0). */
typedef struct base_map {
    const uint8_t *data;
    size_t bytes;
    base_file_id id; /* of the file when it was mapped */
} base_map;

int base_map_open(base_map *out, const char *path, rp_error *err); /* RP_ERR_IO */
void base_map_close(base_map *m);                                  /* zero-initialised is fine */
/* Frees the memory of the whole pages in [p, p + n) that belong to the map: the next access reads the file again. Runs
   of less than 32 KiB are kept: the call costs more time than they cost memory. */
void base_map_forget(const base_map *m, const void *p, size_t n);

/* Do two paths lead to the same file? false if either cannot be examined. */
bool base_file_same(const char *a, const char *b);

/* A file being written: under another name in the same folder, until base_new_file_commit gives it its own. */
typedef struct base_new_file {
    FILE *file; /* write here; errors may be left to base_new_file_commit, which looks at ferror */
    char *path, *temporary;
} base_new_file;

/* RP_ERR_IO (also if `path` is there and not a regular file), RP_ERR_MEMORY. */
int base_new_file_open(base_new_file *out, const char *path, rp_error *err);
/* Syncs, closes and renames; an older file at `path` is replaced. On failure (RP_ERR_IO) no file is left. */
int base_new_file_commit(base_new_file *f, rp_error *err);
/* Removes what was written; after a commit and zero-initialised it does nothing. */
void base_new_file_abandon(base_new_file *f);

/* Monotonic time in microseconds. */
uint64_t base_clock_us(void);
/* Nanoseconds since 1970, by the system's clock: it may jump. */
int64_t base_clock_wall_ns(void);
/* When so many milliseconds are over on that clock: for timed waits. */
struct timespec base_clock_after(int64_t ms);
/* What the calling thread has had of processors, in microseconds. */
uint64_t base_clock_thread_us(void);
/* The calling thread does nothing for so long. A signal may end it early. */
void base_rest_us(uint64_t us);

#endif
