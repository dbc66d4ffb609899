/* SPDX-License-Identifier: Apache-2.0 */
/* disk_folder.h: names and files of a store's folder (disk_tier.h has the picture): is it a store, the paths of
 * records, the list of records, the lock.
 *
 * A store has a marker, the file reprise-store, which is written before anything else. A folder that is neither empty
 * nor marked is foreign: nothing in it is touched, unless it is the store of a version without markers. Only files
 * that match the patterns of the store's own names are ever removed, and below the folder no symbolic link is
 * followed (base/io.h); the path of the folder itself may contain one.
 */
#ifndef STORE_DISK_FOLDER_H
#define STORE_DISK_FOLDER_H

#include "base/buffer.h"
#include "store/disk/record_index.h"

#define DISK_PATH_BYTES 4096
/* The folder of repacked weights (weights_cache.h) may lie in a store's folder, also in one that is not a store yet. */
#define DISK_WEIGHTS "weights"
#define DISK_FOLDERS 16 /* one for each value of a key's first digit: each takes a page itself */

typedef struct disk_folder {
    char dir[DISK_PATH_BYTES - 128]; /* without symbolic links; with capacity for every name in it */
    int lock, lock_file;             /* descriptors of the folder and of its file `lock`; -1: none */
    bool read_only;
    uint64_t bad_bytes; /* limit on the bytes of the quarantine; UINT64_MAX until it is set */
} disk_folder;

typedef struct disk_file {
    base_key key;
    uint64_t bytes; /* on disk */
} disk_file;

/* Opens a folder and locks it against other processes; a missing or empty one becomes a store. read_only: no lock, no
 * store is created, and disk_folder_check checks whether it is one. RP_ERR_FORMAT (a foreign folder),
 * RP_ERR_CONFLICT, RP_ERR_INVALID (a path that is too long), RP_ERR_IO with its cause in errno (ENOTSUP: a newer
 * format). */
int disk_folder_open(disk_folder *f, const char *dir, bool read_only, rp_error *err);
void disk_folder_close(disk_folder *f);
/* Is a folder that is open read-only a store? RP_ERR_IO (no such folder, a newer format), RP_ERR_FORMAT (a foreign
 * one, or empty). */
int disk_folder_check(const disk_folder *f, rp_error *err);
/* The same, but an empty folder is accepted. */
int disk_folder_check_foreign(const disk_folder *f, rp_error *err);
/* Is a folder that is open read-only locked by another process? Its process id; -1: locked, id unknown; 0: not
 * locked. */
long disk_folder_owner(const disk_folder *f);

int disk_folder_of(const base_key *key); /* the number of the folder of its record */

/* Paths, into out[DISK_PATH_BYTES]. */
void disk_folder_record(const disk_folder *f, const base_key *key, char *out);
void disk_folder_path(const disk_folder *f, int i, char *out); /* the folder of number i, below DISK_FOLDERS */
void disk_folder_index(const disk_folder *f, char *out);

/* Reads DIR/audit into *out (owned by the caller, base_buffer_free), unless it is a symbolic link or larger than limit.
 * RP_ERR_IO, RP_ERR_LIMIT, RP_ERR_MEMORY. */
int disk_folder_read_audit(const char *dir, size_t limit, base_buffer *out);
/* Replaces DIR/audit by these n bytes, atomically. RP_ERR_IO. */
int disk_folder_write_audit(const disk_folder *f, const char *bytes, size_t n, rp_error *err);

/* Creates the folder for a record of this key. RP_ERR_IO. */
int disk_folder_make_room(const disk_folder *f, const base_key *key, rp_error *err);
/* Syncs the folders that records were removed from: the removals survive a loss of power. unsynced: a bit for each
 * folder, cleared when it is synced or does not exist. Returns the first failure, RP_ERR_IO with the cause in errno;
 * the other folders are synced nevertheless. */
int disk_folder_sync_removals(const disk_folder *f, uint32_t *unsynced, rp_error *err);
/* Quarantines an unreadable record: moves it to DIR/bad and removes older files there to stay within the limits. A
 * record larger than f->bad_bytes is removed. */
void disk_folder_set_aside(const disk_folder *f, const base_key *key);
/* Removes quarantined records until they take no more than f->bad_bytes. */
void disk_folder_thin_out(const disk_folder *f);
/* Called with a file that is not a record in use. */
typedef enum disk_file_kind {
    DISK_FILE_LEFTOVER, /* a temporary file after a crash */
    DISK_FILE_BAD,      /* in the quarantine */
    DISK_FILE_FOREIGN,  /* not the store's */
} disk_file_kind;
typedef void (*disk_file_fn)(void *user, disk_file_kind kind, const char *path, uint64_t bytes);
/* All records by ascending key: owned by the caller, base_free. fn (may be NULL) is called with leftovers, which are
 * removed unless the folder is read-only, and with foreign files, which are not touched; the first of these is
 * logged. RP_ERR_IO, RP_ERR_MEMORY. */
int disk_folder_scan(const disk_folder *f, disk_file_fn fn, void *user, disk_file **out, size_t *n, rp_error *err);
/* Calls fn (may be NULL) with each file of the quarantine, a damaged index included; removes: deletes them.
   RP_ERR_IO. */
int disk_folder_each_bad(const disk_folder *f, bool goes, disk_file_fn fn, void *user, rp_error *err);
/* Bytes on disk of folders, marker, lock, pins and audit, without the quarantine. */
uint64_t disk_folder_overhead(const disk_folder *f);

#endif
