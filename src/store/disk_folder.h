/* SPDX-License-Identifier: Apache-2.0 */
/* disk_folder.h: names and files of a store's folder (disk_tier.h has the picture): whether it is a store, where a record lies, which there
 * are, who uses them.
 *
 * A store has a marker, the file reprise-store, written before anything else is. A folder that is neither empty nor marked is foreign: nothing
 * in it is touched, unless it is the store of a version that had no marker. Only files whose names have the pattern of the store's own are
 * ever removed, and below the folder no symbolic link is followed (base/io.h); the folder itself may be reached by one.
 */
#ifndef STORE_DISK_FOLDER_H
#define STORE_DISK_FOLDER_H

#include "base/buffer.h"
#include "store/record_index.h"

#define DISK_PATH_BYTES 4096
#define DISK_FOLDERS 16 /* one for each value of a key's first digit: each takes a page itself */

typedef struct disk_folder {
    char dir[DISK_PATH_BYTES - 128]; /* without symbolic links; every name in it fits behind */
    int lock, lock_file;             /* descriptors of the folder and of its file `lock`; -1: none */
    bool read_only;
    uint64_t bad_bytes;              /* that what is set aside may take; UINT64_MAX until somebody says less */
} disk_folder;

typedef struct disk_file {
    base_key key;
    uint64_t bytes; /* that it takes on disk */
} disk_file;

/* Opens a folder and locks it against other processes; one that is not there, or empty, becomes a store. read_only: none of this, and whether it
 * is one is left to disk_folder_check. RP_ERR_FORMAT (a foreign folder), RP_ERR_CONFLICT, RP_ERR_INVALID (a path that is too long), RP_ERR_IO
 * with its cause in errno (ENOTSUP: a newer format). */
int disk_folder_open(disk_folder *f, const char *dir, bool read_only, rp_error *err);
void disk_folder_close(disk_folder *f);
/* Is there a store in a folder that is open read-only? RP_ERR_IO (no such folder, a newer format), RP_ERR_FORMAT (another one, or empty). */
int disk_folder_check(const disk_folder *f, rp_error *err);
/* The same, but an empty folder is fine. */
int disk_folder_check_foreign(const disk_folder *f, rp_error *err);
/* Does another process have a folder locked that is open read-only? Its number; -1: one that does not say; 0: none. */
long disk_folder_owner(const disk_folder *f);

int disk_folder_of(const base_key *key); /* the number of the folder that its record lies in */

/* Paths, into out[DISK_PATH_BYTES]. */
void disk_folder_record(const disk_folder *f, const base_key *key, char *out);
void disk_folder_path(const disk_folder *f, int i, char *out); /* the folder of number i, below DISK_FOLDERS */
void disk_folder_index(const disk_folder *f, char *out);

/* DIR/audit into *out (the caller's, base_buffer_free), unless it is a symbolic link or larger. RP_ERR_IO, RP_ERR_LIMIT, RP_ERR_MEMORY. */
int disk_folder_read_audit(const char *dir, size_t limit, base_buffer *out);
/* Makes DIR/audit these n bytes: as a whole or not at all. RP_ERR_IO. */
int disk_folder_write_audit(const disk_folder *f, const char *bytes, size_t n, rp_error *err);

/* Makes the folder that a record of this key lies in. RP_ERR_IO. */
int disk_folder_make_room(const disk_folder *f, const base_key *key, rp_error *err);
/* Syncs the folders that lost records, so that these stay removed after a loss of power. unsynced: a bit for each folder, cleared when it is
 * synced or not there. The first failure: RP_ERR_IO, with the cause in errno; the others are synced all the same. */
int disk_folder_sync_removals(const disk_folder *f, uint32_t *unsynced, rp_error *err);
/* Moves a record that could not be read to where it is no longer found, and lets others that are there go for it. One that takes more than
 * f->bad_bytes by itself is removed. */
void disk_folder_set_aside(const disk_folder *f, const base_key *key);
/* Lets records that were set aside go until they take no more than f->bad_bytes. */
void disk_folder_thin_out(const disk_folder *f);
/* Called with a file that is no record in use. */
typedef enum disk_file_kind {
    DISK_FILE_LEFTOVER, /* a temporary file that a crash left */
    DISK_FILE_BAD,      /* set aside */
    DISK_FILE_FOREIGN,  /* somebody else's */
} disk_file_kind;
typedef void (*disk_file_fn)(void *user, disk_file_kind kind, const char *path, uint64_t bytes);
/* All records by rising key: owned by the caller, base_free. fn (may be NULL) is called with leftovers, which are removed unless the folder is
 * read-only, and with foreign files, which are left alone; the first of these is logged. RP_ERR_IO, RP_ERR_MEMORY. */
int disk_folder_scan(const disk_folder *f, disk_file_fn fn, void *user, disk_file **out, size_t *n, rp_error *err);
/* What was set aside, an index included: fn (may be NULL) is told; goes: and it is removed. RP_ERR_IO. */
int disk_folder_each_bad(const disk_folder *f, bool goes, disk_file_fn fn, void *user, rp_error *err);
/* Bytes on disk of folders, marker, lock, pins and audit, without what was set aside. */
uint64_t disk_folder_overhead(const disk_folder *f);

#endif
