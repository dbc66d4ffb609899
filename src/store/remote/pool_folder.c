/* SPDX-License-Identifier: Apache-2.0 */
/* pool_folder.c: a pool in a folder that nodes share: a local disk, NFS, CephFS. See pool_driver.h.
 *
 *   FOLDER / 3f / 3f09...e1              an object: a file of 64 digits
 *                 .3f09...e1.HOST-PID-TIME-NUMBER.tmp     one that is being written
 *
 * Many writers, no lock and no index. A file is written under a name of its own and renamed, so that readers see it
 * whole; two writers of one name write the same object, and either may win. A file is synced before it is renamed (NFS
 * reports a full disk no later than that), the folder is not: what a loss of power takes is a miss.
 */
#define _POSIX_C_SOURCE 200809L /* gethostname */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/io.h"
#include "base/memory.h"
#include "store/remote/pool_drivers.h"

#define PREFIX "dir:"
#define MAX_FOLDER 3072
#define PATH_BYTES 4096
#define HOST_BYTES 64

typedef struct pool_folder {
    pool_driver base;
    char host[HOST_BYTES];
    char path[]; /* no symbolic links */
} pool_folder;

typedef struct pool_folder_link {
    pool_link base;
    const pool_folder *folder;
} pool_folder_link;

/* ---- names ---- */

static void folder_of(const pool_folder *f, const char *name, char path[PATH_BYTES]) {
    BASE_ASSERT(strlen(name) == POOL_NAME_CHARS && strspn(name, "0123456789abcdef") == POOL_NAME_CHARS);
    snprintf(path, PATH_BYTES, "%s/%.2s", f->path, name);
}

static void object_of(const pool_folder *f, const char *name, char path[PATH_BYTES]) {
    folder_of(f, name, path);
    const size_t n = strlen(path);
    snprintf(path + n, PATH_BYTES - n, "/%s", name);
}

/* Unique for each writer, in every process of every host. */
static void temporary_of(const pool_folder *f, const char *name, char path[PATH_BYTES]) {
    static _Atomic uint32_t number;
    folder_of(f, name, path);
    const size_t n = strlen(path);
    snprintf(path + n, PATH_BYTES - n, "/.%s.%s-%ld-%llx-%x" BASE_IO_TEMPORARY, name, f->host, (long)getpid(),
             (unsigned long long)base_clock_us(),
             (unsigned)atomic_fetch_add_explicit(&number, 1, memory_order_relaxed));
}

static bool is_absent(int cause) { return cause == ENOENT || cause == ENOTDIR || cause == ESTALE; }

static int check_deadline(uint64_t deadline_us, const char *path, rp_error *err) {
    if (base_clock_us() < deadline_us) return RP_OK;
    errno = ETIMEDOUT;
    return base_fail_errno(err, "no time left for", path);
}

/* ---- operations ---- */

static int get_range(const pool_folder *f, pool_range *r, rp_error *err) {
    char path[PATH_BYTES];
    base_io_file file;
    object_of(f, r->name, path);
    r->found = false;
    r->got = 0;
    if (base_io_open(&file, path, err)) return is_absent(errno) ? RP_OK : RP_ERR_IO;
    const int rc = base_io_read(&file, r->begin, r->bytes, r->n, &r->got, err), cause = errno;
    base_io_close(&file);
    r->found = !rc;
    errno = cause;
    return rc && is_absent(cause) ? RP_OK : rc; /* NFS: another node has removed it */
}

static int pool_folder_get(pool_link *l, pool_range *ranges, size_t n, uint64_t deadline_us, rp_error *err) {
    const pool_folder *f = ((pool_folder_link *)l)->folder;
    int rc = RP_OK;
    for (size_t i = 0; i < n && !rc; i++) {
        rc = check_deadline(deadline_us, f->path, err);
        if (!rc) rc = get_range(f, &ranges[i], err);
    }
    return rc;
}

static int write_pieces(const base_io_file *file, const struct iovec *pieces, int n_pieces, uint64_t deadline_us,
                        rp_error *err) {
    int rc = RP_OK;
    for (int i = 0; i < n_pieces && !rc; i += BASE_IO_MAX_PIECES) {
        rc = check_deadline(deadline_us, file->path, err);
        if (!rc) rc = base_io_writev(file, pieces + i, BASE_MIN(n_pieces - i, BASE_IO_MAX_PIECES), err);
    }
    return rc ? rc : base_io_sync(file, err);
}

static int pool_folder_put(pool_link *l, const char *name, const struct iovec *pieces, int n_pieces,
                           uint64_t deadline_us, rp_error *err) {
    const pool_folder *f = ((pool_folder_link *)l)->folder;
    char temporary[PATH_BYTES], path[PATH_BYTES];
    base_io_file file;
    object_of(f, name, path);
    temporary_of(f, name, temporary);
    int rc = base_io_create(&file, temporary, err);
    if (rc && is_absent(errno)) { /* the first object of its folder */
        char folder[PATH_BYTES];
        folder_of(f, name, folder);
        rc = base_io_mkdir(folder, err);
        if (!rc) rc = base_io_create(&file, temporary, err);
    }
    if (rc) return rc;
    rc = write_pieces(&file, pieces, n_pieces, deadline_us, err);
    base_io_close(&file);
    if (!rc) rc = base_io_rename(temporary, path, err);
    if (!rc) return RP_OK;
    const int cause = errno;
    (void)base_io_unlink(temporary, NULL);
    errno = cause;
    return rc;
}

static int pool_folder_remove(pool_link *l, const char *name, uint64_t deadline_us, rp_error *err) {
    const pool_folder *f = ((pool_folder_link *)l)->folder;
    char path[PATH_BYTES];
    object_of(f, name, path);
    int rc = check_deadline(deadline_us, path, err);
    if (!rc) rc = base_io_unlink(path, err);
    return rc && is_absent(errno) ? RP_OK : rc;
}

/* ---- opening ---- */

static int pool_folder_connect(pool_driver *d, pool_link **out, rp_error *err) {
    pool_folder_link *l = base_calloc(1, sizeof(*l));
    if (!l) return base_fail_memory(err, sizeof(*l), "a pool");
    *l = (pool_folder_link){.base.ops = d->ops, .folder = (pool_folder *)d};
    *out = &l->base;
    return RP_OK;
}

static void pool_folder_disconnect(pool_link *l) { base_free(l); }
static void pool_folder_close(pool_driver *d) { base_free(d); }

static int pool_folder_open(pool_driver **out, const char *address, rp_error *err) {
    const char *path = address + strlen(PREFIX);
    char resolved[MAX_FOLDER];
    if (path[0] != '/')
        return base_fail(err, RP_ERR_INVALID, "'%s' is not the address of a pool in a folder: use dir:/FOLDER",
                         address);
    /* A folder that is not there now may be mounted later. */
    if (base_io_resolve(path, resolved, sizeof(resolved), NULL)) {
        if (strlen(path) >= sizeof(resolved)) return base_fail(err, RP_ERR_INVALID, "the path of a pool is too long");
        strcpy(resolved, path);
    }
    const size_t bytes = sizeof(pool_folder) + strlen(resolved) + 1;
    pool_folder *f = base_calloc(1, bytes);
    if (!f) return base_fail_memory(err, bytes, "a pool");
    f->base.ops = &pool_folder_ops;
    strcpy(f->path, resolved);
    if (gethostname(f->host, HOST_BYTES - 1) != 0) f->host[0] = '\0';
    for (char *c = f->host; *c; c++)
        if (*c == '/') *c = '-';
    *out = &f->base;
    return RP_OK;
}

const pool_driver_ops pool_folder_ops = {
    .prefix = PREFIX,
    .open = pool_folder_open,
    .connect = pool_folder_connect,
    .get = pool_folder_get,
    .put = pool_folder_put,
    .remove = pool_folder_remove,
    .disconnect = pool_folder_disconnect,
    .close = pool_folder_close,
};
