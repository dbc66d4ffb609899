/* SPDX-License-Identifier: Apache-2.0 */
/* io.h: file operations of the store. A test can make each of them fail.
 *
 *   call         create  write  write  sync  rename  sync_folder         counted from 1 by each of two counters:
 *   number          1      2      3     4      5          6              of all calls, and of those that change what is
 *         on disk
 *
 * Paths: the folder of a file, and the file, must not be symbolic links (a path from outside is resolved first:
 * base_io_resolve). Therefore nobody who can make names in a folder can have the store read, replace or remove a file
 * elsewhere.
 *
 * Each function is one call, however many the system needs for it: calls that a signal interrupted are made again, and
 * transfers that were partial are continued. Errors are RP_ERR_IO with a line that names the problem, the place and the
 * remedy; errno is then the cause.
 *
 * Thread-safe. A file may be read by any number of threads, and is written by one.
 */
#ifndef BASE_IO_H
#define BASE_IO_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/file.h"
#include "reprise.h"

#define BASE_IO_MAX_PIECES 16    /* of one transfer */
#define BASE_IO_TEMPORARY ".tmp" /* the end of names that are renamed when they are whole */

/* An open file. Zero-initialised it is a closed one. */
typedef struct base_io_file {
    int fd;
    const char *path; /* borrowed, for messages; NULL: closed */
} base_io_file;

typedef struct base_io_sizes {
    uint64_t bytes;      /* to its end */
    uint64_t disk_bytes; /* that it takes from the disk */
    bool is_file;        /* a regular one: no folder, link, pipe or device */
    bool is_private;     /* it belongs to the user of this process, and nobody else can write to it */
    int64_t mtime_ns;    /* since 1970 */
} base_io_sizes;

/* A path without symbolic links, into out[n]: the file need not be there, its folder must be. Not counted. */
int base_io_resolve(const char *path, char *out, size_t n, rp_error *err);

/* For reading: a regular file. errno is ENOENT or ENOTDIR if there is none. */
int base_io_open(base_io_file *out, const char *path, rp_error *err);
/* For writing: a new file, for its owner alone; one that is there already is an error (EEXIST). */
int base_io_create(base_io_file *out, const char *path, rp_error *err);
/* Locks an open file against base_io_lock of other processes, until it and its maps are closed or the process ends.
   false: it is locked, or cannot be. */
bool base_io_lock(const base_io_file *f);
/* Maps the first n bytes of an open file, read-only; base_map_close. The file may be closed before. */
int base_io_map(base_map *out, const base_io_file *f, size_t n, rp_error *err);
void base_io_close(
    base_io_file *f); /* a closed one is fine; not counted, and nothing is lost by it after base_io_sync */

/* Reads n bytes at an offset. *n_read is smaller than n only if the file ends before. */
int base_io_read(const base_io_file *f, uint64_t offset, void *bytes, size_t n, size_t *n_read, rp_error *err);
/* The same into up to BASE_IO_MAX_PIECES pieces, one after another. */
int base_io_readv(const base_io_file *f, uint64_t offset, const struct iovec *pieces, int n, size_t *n_read,
                  rp_error *err);
/* Writes up to BASE_IO_MAX_PIECES pieces after the bytes written before. After an error any part of them may be
   written. */
int base_io_writev(const base_io_file *f, const struct iovec *pieces, int n, rp_error *err);
/* Takes disk space for n bytes, so that writing them cannot fail for lack of it; does nothing where the file system has
   no such call. */
int base_io_reserve(const base_io_file *f, uint64_t n, rp_error *err);
/* Sets the time of the last change, in sizes.mtime_ns, to now. */
int base_io_touch(const base_io_file *f, rp_error *err);
/* What was written outlives a loss of power from here on. */
int base_io_sync(const base_io_file *f, rp_error *err);
int base_io_sync_folder(const char *path, rp_error *err); /* the names in it */
int base_io_sync_folder_of(char *path, rp_error *err);    /* of the folder that it lies in; path is used up */

bool base_io_is_full(int cause); /* of errno's values: is the disk or its quota full? */

int base_io_rename(const char *from, const char *to, rp_error *err); /* a file that has the name is replaced */
int base_io_unlink(const char *path, rp_error *err);                 /* a missing file is no error */
/* Makes a file accessible to its owner alone. RP_ERR_IO, and it is left as it is, if it is not one of ours: a link, a
 * file with a second name (a hard link), no regular file, or a file of another user than this process's and the
 * folder's; errno is EMLINK. A missing file is fine. Locks that this process has on the file stay. Not counted. */
int base_io_make_private(const char *path, rp_error *err);
/* For its owner alone, and synced with the folder that it is in; one that is there already is fine. */
int base_io_mkdir(const char *path, rp_error *err);
/* The same, with all missing folders above it. */
int base_io_mkdirs(const char *path, rp_error *err);
/* Free bytes, for this user, of the disk of a folder. */
int base_io_free_bytes(const char *folder, uint64_t *out, rp_error *err);
int base_io_open_folder(DIR **out, const char *path, rp_error *err); /* to list it; closedir */
/* A small file as a whole, durably: PATH.tmp, which a crash may have left, sync, rename, sync of the folder. Some
   calls. */
int base_io_write_whole(const char *path, const void *bytes, size_t n, rp_error *err);
int base_io_stat(const char *path, base_io_sizes *out, rp_error *err);
int base_io_stat_file(const base_io_file *f, base_io_sizes *out, rp_error *err);

/* ---- Faults, for tests ---- */

/* Which calls are counted. Changes: create, reserve, writev, touch, sync, sync_folder, rename, unlink, mkdir. */
typedef enum base_io_set { BASE_IO_ALL,
                           BASE_IO_CHANGES,
                           BASE_IO_SET_COUNT } base_io_set;

typedef enum base_io_fault {
    BASE_IO_NO_FAULT,
    BASE_IO_EIO, /* the call fails with this errno, and nothing was done */
    BASE_IO_ENOSPC,
    BASE_IO_EMFILE,
    BASE_IO_SHORT,     /* a read gets half, as at the end of the file; a write writes half, then ENOSPC; any other call:
                          EIO */
    BASE_IO_INTERRUPT, /* no failure: a signal comes first, then one byte, then the rest */
    BASE_IO_KILL,      /* SIGKILL: after half of a write; before any other call (the next number is after the call) */
} base_io_fault;

/* The n-th call of the set from now (1 = the next) meets the fault, and no other does. n 0 switches it off.
 * Process-wide, atomic.
 *
 *   for (uint64_t n = 1;; n++) {                       each call fails in turn, until none is left
 *       base_io_count(BASE_IO_ALL);
 *       base_io_fault_at(n, BASE_IO_EIO, BASE_IO_ALL);
 *       int rc = what_is_tested();
 *       if (base_io_count(BASE_IO_ALL) < n) break;     it made fewer calls than n: rc is its success
 *   }
 *
 * With BASE_IO_KILL the body is a child (fork), and the loop ends with the first one that exits by itself. */
void base_io_fault_at(uint64_t n, base_io_fault fault, base_io_set set);
/* Calls of the set since this function was last called for it. */
uint64_t base_io_count(base_io_set set);

#endif
